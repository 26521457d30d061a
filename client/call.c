/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that wait, and the functions named after operations: each fills in a request. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/unchanged.h"
#include "client/call.h"
#include "client/handle.h"
#include "client/op.h"
#include "client/public.h"

static const char bad_size[] = "a struct has no size, or fields that this version does not know";

/* --- Waiting ---------------------------------------------------------------------------------- */

static void destroy(struct lpi_await *call)
{
	pthread_cond_destroy(&call->ended);
	pthread_mutex_destroy(&call->lock);
}

static void call_done(void *arg, const struct lapis_result *result)
{
	struct lpi_await *call = arg;
	struct lpi_op *op = lpi_op_of(result);
	pthread_mutex_lock(&call->lock);
	*call->result = *result;
	call->result->text = strdup(result->text);
	/* Nobody else looks at it after us. */
	call->result->value = op->value;
	op->value = NULL;
	call->conn = op->by;
	call->generation = op->by_generation;
	call->last_pos = op->last_pos;
	call->has_ended = true;
	void (*left)(struct lpi_await * call) = call->left;
	pthread_cond_signal(&call->ended);
	pthread_mutex_unlock(&call->lock);
	if (left != NULL) {
		destroy(call);
		left(call);
	}
}

static void wait_for(struct lapis *lapis, struct lpi_await *call)
{
	if (!lapis->has_thread) {
		while (!call->has_ended)
			(void)lapis_turn(lapis, -1);
		return;
	}
	pthread_mutex_lock(&call->lock);
	while (!call->has_ended)
		pthread_cond_wait(&call->ended, &call->lock);
	pthread_mutex_unlock(&call->lock);
}

int lpi_await_start(struct lapis *lapis, const struct lapis_request *request,
		    struct lpi_await *call)
{
	struct lapis_request req = *request;
	req.done = call_done;
	req.arg = call;
	call->has_ended = false;
	call->left = NULL;
	pthread_mutex_init(&call->lock, NULL);
	pthread_cond_init(&call->ended, NULL);
	int err = lpi_submit(lapis, &req, call->conn != NULL ? call : NULL, &call->id);
	if (err < 0)
		destroy(call);
	return err;
}

int lpi_await_end(struct lapis *lapis, struct lpi_await *call)
{
	wait_for(lapis, call);
	int err = call->result->status;
	if (err < 0)
		(void)lpi_set_error(err, call->result->text);
	destroy(call);
	return err;
}

void lpi_await_leave(struct lapis *lapis, struct lpi_await *call,
		     void (*left)(struct lpi_await *call))
{
	uint64_t id = call->id;
	pthread_mutex_lock(&call->lock);
	bool has_ended = call->has_ended;
	call->left = left;
	pthread_mutex_unlock(&call->lock);
	if (!has_ended) {
		lapis_cancel(lapis, id);
		return;
	}
	destroy(call);
	left(call);
}

int lpi_await(struct lapis *lapis, const struct lapis_request *request, struct lpi_await *call)
{
	if (lpi_is_running(lapis))
		return lpi_set_error(-EDEADLK, "a callback may not wait");
	int err = lpi_await_start(lapis, request, call);
	return err < 0 ? lpi_set_error(err, NULL) : lpi_await_end(lapis, call);
}

int lapis_call(struct lapis *lapis, const struct lapis_request *request,
	       struct lapis_result *ret_result)
{
	struct lapis_request req;
	struct lapis_result result = {0};
	struct lpi_await call = {.result = &result};
	size_t size = ret_result->size;
	if (size < sizeof(size))
		return lpi_set_error(-EINVAL, bad_size);
	int err = lpi_copy_request(request, &req) < 0 ? lpi_set_error(-EINVAL, bad_size)
						      : lpi_await(lapis, &req, &call);
	/* What was not even begun has no other end than this. */
	if (err < 0 && result.status == 0) {
		result.status = err;
		result.text = strdup(lapis_error_text());
	}
	memset(ret_result, 0, size);
	result.size = LP_MIN(size, sizeof(result));
	memcpy(ret_result, &result, result.size);
	return err;
}

void lapis_result_fini(struct lapis_result *result)
{
	free((void *)(uintptr_t)result->text);
	free((void *)(uintptr_t)result->value);
	result->text = NULL;
	result->value = NULL;
}

int lpi_ask(struct lapis *lapis, const struct lapis_request *request,
	    struct lapis_result *ret_result)
{
	struct lapis_result result = {0};
	struct lpi_await call = {.result = &result};
	int err = lpi_await(lapis, request, &call);
	lapis_result_fini(&result);
	if (ret_result != NULL && err >= 0)
		*ret_result = result;
	return err;
}

static int ask_attrs(struct lapis *lapis, const struct lapis_request *request,
		     struct lapis_attrs *ret_attrs)
{
	struct lapis_result result;
	int err = lpi_ask(lapis, request, &result);
	if (err >= 0 && ret_attrs != NULL)
		*ret_attrs = result.attrs;
	return err;
}

/* --- Whole objects ---------------------------------------------------------------------------- */

/* What is left out of the options must not be meant: a put on a condition would overwrite. */
static int put_request(const char *key, const struct lapis_put_options *options,
		       struct lapis_request *ret)
{
	struct lapis_put_options opt = {0};
	if (options != NULL &&
	    lpi_copy_struct(options, sizeof(options->size), sizeof(opt), &opt) < 0)
		return lpi_set_error(-EINVAL, bad_size);
	*ret = (struct lapis_request){
		.op = LAPIS_PUT,
		.path = key,
		.flags = opt.flags & (LAPIS_OWNER | LAPIS_MODE | LAPIS_ORDERED),
		.condition = opt.condition,
		.version = opt.version,
		.mtime_ns = opt.mtime_ns,
		.uid = opt.uid,
		.gid = opt.gid,
		.mode = opt.mode,
		.write_path = opt.write_path,
		.xattr_cnt = opt.xattr_cnt,
		.xattrs = opt.xattrs,
	};
	return 0;
}

int lapis_put(struct lapis *lapis, const char *key, const void *data, size_t len,
	      const struct lapis_put_options *options, struct lapis_attrs *ret_attrs)
{
	struct lapis_request request;
	int err = put_request(key, options, &request);
	if (err < 0)
		return err;
	request.data = data;
	request.data_bytes = len;
	return ask_attrs(lapis, &request, ret_attrs);
}

int lapis_put_from(struct lapis *lapis, const char *key, lapis_source_fn *source, void *arg,
		   const struct lapis_put_options *options, struct lapis_attrs *ret_attrs)
{
	struct lapis_request request;
	int err = put_request(key, options, &request);
	if (err < 0)
		return err;
	request.source = source;
	request.source_arg = arg;
	return ask_attrs(lapis, &request, ret_attrs);
}

struct fd_source {
	int fd;
	bool has_changed;
	struct stat before;
};

/* The end is said only if all of it was of one moment. */
static int64_t read_fd(void *arg, void *buf, size_t len)
{
	struct fd_source *source = arg;
	ssize_t n;
	do {
		n = read(source->fd, buf, len);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	source->has_changed = n == 0 && !lp_unchanged_is(source->fd, &source->before);
	return source->has_changed ? -EBUSY : n;
}

int lapis_put_fd(struct lapis *lapis, const char *key, int fd,
		 const struct lapis_put_options *options, struct lapis_attrs *ret_attrs)
{
	struct fd_source source = {.fd = fd};
	int err = lp_unchanged_begin(fd, &source.before);
	if (err < 0)
		return lpi_set_error(err, lp_strerror(err));
	err = lapis_put_from(lapis, key, read_fd, &source, options, ret_attrs);
	return source.has_changed
		       ? lpi_set_error(-EBUSY, "the file changed while it was read; nothing was "
					       "stored")
		       : err;
}

int lapis_get(struct lapis *lapis, const char *key, uint64_t offset, void *buf, size_t len,
	      size_t *ret_len)
{
	struct lapis_result result;
	const struct lapis_request request = {.op = LAPIS_GET,
					      .path = key,
					      .offset = offset,
					      .length = len,
					      .buf = buf,
					      .buf_bytes = len};
	int err = lpi_ask(lapis, &request, &result);
	if (err >= 0)
		*ret_len = result.data_bytes;
	return err;
}

int lapis_get_to(struct lapis *lapis, const char *key, uint64_t offset, uint64_t length,
		 lapis_sink_fn *sink, void *arg)
{
	const struct lapis_request request = {.op = LAPIS_GET,
					      .path = key,
					      .offset = offset,
					      .length = length,
					      .sink = sink,
					      .sink_arg = arg};
	return lpi_ask(lapis, &request, NULL);
}

static int write_fd(void *arg, uint64_t offset, const void *data, size_t len)
{
	const int *fd = arg;
	const char *at = data;
	(void)offset;
	while (len > 0) {
		ssize_t n = write(*fd, at, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

int lapis_get_fd(struct lapis *lapis, const char *key, uint64_t offset, uint64_t length, int fd)
{
	return lapis_get_to(lapis, key, offset, length, write_fd, &fd);
}

int lapis_stat(struct lapis *lapis, const char *key, struct lapis_attrs *ret_attrs)
{
	const struct lapis_request request = {.op = LAPIS_STAT, .path = key};
	return ask_attrs(lapis, &request, ret_attrs);
}

int lapis_delete(struct lapis *lapis, const char *key)
{
	const struct lapis_request request = {.op = LAPIS_DELETE, .path = key};
	return lpi_ask(lapis, &request, NULL);
}

int lapis_copy(struct lapis *lapis, const char *key, const char *to_key,
	       struct lapis_attrs *ret_attrs)
{
	const struct lapis_request request = {.op = LAPIS_COPY, .path = key, .to_path = to_key};
	return ask_attrs(lapis, &request, ret_attrs);
}

int lapis_move(struct lapis *lapis, const char *key, const char *to_key,
	       struct lapis_attrs *ret_attrs)
{
	const struct lapis_request request = {.op = LAPIS_MOVE, .path = key, .to_path = to_key};
	return ask_attrs(lapis, &request, ret_attrs);
}

/* --- Directories and names -------------------------------------------------------------------- */

int lapis_mkdir(struct lapis *lapis, const char *key, uint16_t mode, uint32_t flags)
{
	const struct lapis_request request = {.op = LAPIS_MAKE,
					      .path = key,
					      .type = LAPIS_DIR,
					      .mode = mode,
					      .flags = flags & LAPIS_SPREAD};
	return lpi_ask(lapis, &request, NULL);
}

static int remove_name(struct lapis *lapis, const char *key, uint32_t flags)
{
	const struct lapis_request request = {.op = LAPIS_REMOVE, .path = key, .flags = flags};
	return lpi_ask(lapis, &request, NULL);
}

int lapis_rmdir(struct lapis *lapis, const char *key)
{
	return remove_name(lapis, key, LAPIS_IS_DIR);
}

int lapis_unlink(struct lapis *lapis, const char *key)
{
	return remove_name(lapis, key, 0);
}

int lapis_symlink(struct lapis *lapis, const char *target, const char *key)
{
	const struct lapis_request request = {.op = LAPIS_MAKE,
					      .path = key,
					      .type = LAPIS_SYMLINK,
					      .mode = 0777,
					      .value = target,
					      .value_bytes = strlen(target)};
	return lpi_ask(lapis, &request, NULL);
}

int lapis_link(struct lapis *lapis, const char *key, const char *to_key)
{
	const struct lapis_request request = {.op = LAPIS_LINK, .path = key, .to_path = to_key};
	return lpi_ask(lapis, &request, NULL);
}

int lapis_rename(struct lapis *lapis, const char *key, const char *to_key, uint32_t flags)
{
	const struct lapis_request request = {
		.op = LAPIS_RENAME, .path = key, .to_path = to_key, .condition = flags};
	return lpi_ask(lapis, &request, NULL);
}

/* Copies a value to the caller: its length, which is known also when it does not fit. */
static int ask_value(struct lapis *lapis, const struct lapis_request *request, void *buf,
		     size_t len)
{
	struct lapis_result result = {0};
	struct lpi_await call = {.result = &result};
	int err = lpi_await(lapis, request, &call);
	if (err >= 0)
		err = (int)result.value_bytes;
	if (err >= 0 && len > 0 && result.value_bytes > len)
		err = lpi_set_error(-ERANGE, "the value is longer than there is room for");
	else if (err > 0 && len > 0)
		memcpy(buf, result.value, result.value_bytes);
	lapis_result_fini(&result);
	return err;
}

int lapis_readlink(struct lapis *lapis, const char *key, char *buf, size_t len)
{
	const struct lapis_request request = {.op = LAPIS_READLINK, .path = key};
	if (len < 2)
		return lpi_set_error(-ERANGE, NULL);
	int n = ask_value(lapis, &request, buf, len - 1);
	if (n >= 0)
		buf[n] = '\0';
	return n < 0 ? n : 0;
}

int lapis_set(struct lapis *lapis, const char *key, const struct lapis_attrs *attrs, uint32_t mask,
	      struct lapis_attrs *ret_attrs)
{
	const struct lapis_request request = {
		.op = LAPIS_SET, .path = key, .attrs = attrs, .mask = mask};
	return ask_attrs(lapis, &request, ret_attrs);
}

/* --- xattrs and omap -------------------------------------------------------------------------- */

static struct lapis_request named(uint32_t op, const char *key, const char *name)
{
	return (struct lapis_request){.op = op, .path = key, .name = name};
}

static int set_named(struct lapis *lapis, struct lapis_request *request, const void *value,
		     size_t len)
{
	request->value = value;
	request->value_bytes = len;
	return lpi_ask(lapis, request, NULL);
}

int lapis_xattr_get(struct lapis *lapis, const char *key, const char *name, void *buf, size_t len)
{
	const struct lapis_request request = named(LAPIS_XATTR_GET, key, name);
	return ask_value(lapis, &request, buf, len);
}

int lapis_xattr_set(struct lapis *lapis, const char *key, const char *name, const void *value,
		    size_t len)
{
	struct lapis_request request = named(LAPIS_XATTR_SET, key, name);
	return set_named(lapis, &request, value, len);
}

int lapis_xattr_remove(struct lapis *lapis, const char *key, const char *name)
{
	const struct lapis_request request = named(LAPIS_XATTR_REMOVE, key, name);
	return lpi_ask(lapis, &request, NULL);
}

int lapis_omap_get(struct lapis *lapis, const char *key, const char *name, void *buf, size_t len)
{
	const struct lapis_request request = named(LAPIS_OMAP_GET, key, name);
	return ask_value(lapis, &request, buf, len);
}

int lapis_omap_set(struct lapis *lapis, const char *key, const char *name, const void *value,
		   size_t len)
{
	struct lapis_request request = named(LAPIS_OMAP_SET, key, name);
	return set_named(lapis, &request, value, len);
}

int lapis_omap_remove(struct lapis *lapis, const char *key, const char *name)
{
	const struct lapis_request request = named(LAPIS_OMAP_REMOVE, key, name);
	return lpi_ask(lapis, &request, NULL);
}

/* --- Everything else -------------------------------------------------------------------------- */

int lapis_ping(struct lapis *lapis)
{
	const struct lapis_request request = {.op = LAPIS_PING};
	return lpi_ask(lapis, &request, NULL);
}

int lapis_sync(struct lapis *lapis)
{
	const struct lapis_request request = {.op = LAPIS_SYNC};
	return lpi_ask(lapis, &request, NULL);
}

int lapis_admin(struct lapis *lapis, uint32_t op, const char *text, char **ret_text)
{
	struct lapis_result result = {0};
	struct lpi_await call = {.result = &result};
	struct lapis_request request = {.op = op};
	if (op < LAPIS_STATUS || op > LAPIS_CHECK)
		return lpi_set_error(-EINVAL, "this is no operation of the administration");
	if (op == LAPIS_EXPLAIN) {
		request.path = text;
	} else if (text != NULL) {
		request.value = text;
		request.value_bytes = strlen(text);
	}
	int err = lpi_await(lapis, &request, &call);
	if (err >= 0) {
		*ret_text = (char *)(uintptr_t)result.value;
		result.value = NULL;
	}
	lapis_result_fini(&result);
	return err;
}
