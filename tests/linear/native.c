/* SPDX-License-Identifier: Apache-2.0 */
/* Acts through a socket, by liblapis. */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "client/lapis.h"
#include "tests/linear/client.h"

#define XATTR          "user.value"
#define PATH_MAX_BYTES 64u

struct asked {
	struct lapis_request request;
	char path[PATH_MAX_BYTES];
	char to_path[PATH_MAX_BYTES];
};

static void ask_names(struct lpi_client *client, const struct lpi_act *act, struct asked *asked)
{
	lpi_client_path(NULL, act->group, act->name, asked->path, sizeof(asked->path));
	lpi_client_path(NULL, act->group, act->to_name, asked->to_path, sizeof(asked->to_path));
	if (act->flags & LPI_BY_HANDLE)
		asked->request.ino = lapis_file_ino(client->file);
	else
		asked->request.path = asked->path;
	if (act->kind == LPI_LINK || act->kind == LPI_RENAME || act->kind == LPI_EXCHANGE ||
	    act->kind == LPI_COPY)
		asked->request.to_path = asked->to_path;
}

static void ask_data(struct lpi_client *client, const struct lpi_act *act,
		     struct lapis_request *request)
{
	uint64_t cell_bytes = client->plan->cell_bytes[act->group];
	lpi_cells_fill(client, act);
	request->data = client->buf;
	request->data_bytes = act->count * cell_bytes;
	request->offset = act->first * cell_bytes;
	request->write_path = (uint8_t)lp_prng_below(&client->prng, LAPIS_PATH_DIRECT + 1);
	if (request->write_path == LAPIS_PATH_INLINE && act->kind != LPI_PUT)
		request->write_path = LAPIS_PATH_AUTO;
}

static void ask(struct lpi_client *client, const struct lpi_act *act, struct asked *asked)
{
	static const uint8_t ops[LPI_KINDS] = {
		[LPI_PUT] = LAPIS_PUT,
		[LPI_READ] = LAPIS_GET,
		[LPI_STAT] = LAPIS_STAT,
		[LPI_REMOVE] = LAPIS_DELETE,
		[LPI_RENAME] = LAPIS_RENAME,
		[LPI_EXCHANGE] = LAPIS_RENAME,
		[LPI_LINK] = LAPIS_LINK,
		[LPI_COPY] = LAPIS_COPY,
		[LPI_WRITE] = LAPIS_WRITE,
		[LPI_APPEND] = LAPIS_WRITE,
		[LPI_TRUNCATE] = LAPIS_TRUNCATE,
		[LPI_XATTR_SET] = LAPIS_XATTR_SET,
		[LPI_XATTR_GET] = LAPIS_XATTR_GET,
	};
	uint64_t cell_bytes = client->plan->cell_bytes[act->group];
	struct lapis_request *request = &asked->request;
	*asked = (struct asked){.request = {.size = sizeof(*request), .op = ops[act->kind]}};
	ask_names(client, act, asked);
	if (act->kind == LPI_PUT) {
		ask_data(client, act, request);
		request->offset = 0;
		request->condition = act->condition;
		request->version = act->if_version;
	} else if (act->kind == LPI_WRITE || act->kind == LPI_APPEND) {
		ask_data(client, act, request);
		request->flags = act->kind == LPI_APPEND ? LAPIS_APPEND : 0;
	} else if (act->kind == LPI_RENAME) {
		request->condition = act->condition == LPI_IF_ABSENT ? LAPIS_RENAME_NOREPLACE : 0;
	} else if (act->kind == LPI_EXCHANGE) {
		request->condition = LAPIS_RENAME_EXCHANGE;
	} else if (act->kind == LPI_READ) {
		request->offset = act->first * cell_bytes;
		request->length = act->count * cell_bytes;
		request->buf = client->buf;
		request->buf_bytes = request->length;
	} else if (act->kind == LPI_TRUNCATE) {
		request->offset = act->count * cell_bytes;
	} else if (act->kind == LPI_XATTR_SET || act->kind == LPI_XATTR_GET) {
		request->name = XATTR;
		request->value = act->kind == LPI_XATTR_SET ? &act->value : NULL;
		request->value_bytes = act->kind == LPI_XATTR_SET ? sizeof(act->value) : 0;
	}
	/* What need not be durable is done so now and then, where that is judged. */
	if (act->group == LPI_ALWAYS_THERE && !lpi_act_is_look(act) && act->kind != LPI_PUT &&
	    act->kind != LPI_XATTR_SET && client->unsynced == 0 &&
	    lp_prng_chance(&client->prng, 1, 3))
		request->flags |= LAPIS_ORDERED;
}

static void take_answer(struct lpi_client *client, const struct lapis_result *result,
			struct lpi_act *act)
{
	uint64_t cell_bytes = client->plan->cell_bytes[act->group];
	if (act->kind == LPI_PUT || act->kind == LPI_STAT || act->kind == LPI_COPY)
		act->version = result->attrs.version;
	else if (act->kind != LPI_XATTR_SET && act->kind != LPI_XATTR_GET)
		act->version = result->version;
	if (act->kind == LPI_STAT) {
		act->nlink = (uint8_t)result->attrs.nlink;
		act->got = (uint8_t)(result->attrs.size_bytes / cell_bytes);
		if (result->attrs.size_bytes % cell_bytes != 0)
			lpi_client_fail(client, "a size that nobody made");
	} else if (act->kind == LPI_READ) {
		if (lpi_cells_take(client, result->data_bytes, false, act) < 0)
			lpi_client_fail(client, "a read of group %u, name %u: torn data",
					act->group, act->name);
	} else if (act->kind == LPI_XATTR_GET) {
		if (result->value_bytes == sizeof(act->value))
			memcpy(&act->value, result->value, sizeof(act->value));
		else
			lpi_client_fail(client, "an xattr that nobody set");
	} else if (act->kind == LPI_APPEND) {
		act->first = (uint8_t)(result->offset / cell_bytes);
		act->flags |= LPI_TOLD;
		if (result->offset % cell_bytes != 0)
			lpi_client_fail(client, "an offset that nobody made");
	}
}

/* False: it has certainly not happened. */
static bool take_status(struct lpi_client *client, int status, const char *text,
			struct lpi_act *act)
{
	act->status = status;
	switch (-status) {
	case 0:
	case ENOENT:
	case EEXIST:
	case ENODATA:
		return true;
	case ECANCELED:
		if (act->condition == LPI_IF_VERSION)
			return true;
		break;
	case EAGAIN:
		return false;
	case LAPIS_EUNKNOWN:
		client->is_lost = true;
		return true;
	case ENOTCONN:
		client->is_lost = true;
		return false;
	default:
		break;
	}
	lpi_client_fail(client, "native, act %u of group %u: %s (%s)", act->kind, act->group,
			lp_strerror(status), text);
	return false;
}

static bool do_open(struct lpi_client *client, struct lpi_act *act)
{
	char path[PATH_MAX_BYTES];
	lpi_client_path(NULL, act->group, act->name, path, sizeof(path));
	int err = lapis_open_file(client->lapis, path, &client->file);
	return take_status(client, err, lapis_error_text(), act);
}

static bool do_close(struct lpi_client *client)
{
	int err = lapis_close_file(client->file);
	client->file = NULL;
	client->is_lost = err == -ENOTCONN || err == -LAPIS_EUNKNOWN || err == -ESTALE;
	return err == 0;
}

/* A read may come in pieces, which are of one moment only if they are of the version that is asked
 * for. An object that is not there has none. */
static bool look_first(struct lpi_client *client, struct asked *asked)
{
	struct lapis_result result = {.size = sizeof(result)};
	struct lapis_request look = asked->request;
	look.op = LAPIS_STAT;
	look.buf = NULL;
	look.buf_bytes = look.length = look.offset = 0;
	int status = lapis_call(client->lapis, &look, &result);
	asked->request.version = status == 0 ? result.attrs.version : 0;
	lapis_result_fini(&result);
	return status == 0 || status == -ENOENT;
}

bool lpi_native_do(struct lpi_client *client, struct lpi_act *act)
{
	struct asked asked;
	struct lapis_result result = {.size = sizeof(result)};
	if (act->kind == LPI_OPEN)
		return do_open(client, act);
	if (act->kind == LPI_CLOSE)
		return do_close(client);
	if (act->kind == LPI_SYNC) {
		act->flags |= LPI_DURABLE;
		return take_status(client, lapis_sync(client->lapis), lapis_error_text(), act);
	}
	ask(client, act, &asked);
	if (!(asked.request.flags & LAPIS_ORDERED))
		act->flags |= LPI_DURABLE;
	if (act->kind == LPI_READ && act->count > 1 && !look_first(client, &asked))
		return false;
	int status = lapis_call(client->lapis, &asked.request, &result);
	/* It changed while it was read: then what came is of several moments. */
	if (status == -ECANCELED && asked.request.version != 0)
		status = -EAGAIN;
	/* A handle goes with its connection. */
	if (status == -ESTALE && (act->flags & LPI_BY_HANDLE)) {
		client->is_lost = true;
		status = -ENOTCONN;
	}
	if (status == 0 && act->kind == LPI_READ && act->count > 1 && asked.request.version == 0)
		status = -EAGAIN; /* it came between */
	bool has_happened = take_status(client, status, result.text, act);
	if (status == 0)
		take_answer(client, &result, act);
	lapis_result_fini(&result);
	return has_happened;
}
