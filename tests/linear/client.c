/* SPDX-License-Identifier: Apache-2.0 */
/* How an act is drawn: a table of weights for what can be done by name, and one for what can be
 * done by a handle, from which what the group or this life does not have is struck out. */
#include "tests/linear/client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "client/lapis.h"

#define PAGE_BYTES   4096u
#define APPEND_BELOW 8u /* cells; each client may have one append under way beyond that */
#define UNSYNCED_MAX 2u /* and each of these many changes that a crash may take back */

/* --- Cells ------------------------------------------------------------------------------------ */

static uint64_t word_of(uint64_t cell, uint64_t idx)
{
	uint64_t word = (cell ^ (idx << 52)) * UINT64_C(0x9e3779b97f4a7c15);
	return idx == 0 ? cell : word ^ (word >> 29);
}

static void fill_cell(uint8_t *buf, size_t bytes, uint64_t cell)
{
	for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
		uint64_t word = cell == 0 ? 0 : word_of(cell, at / sizeof(uint64_t));
		memcpy(buf + at, &word, LP_MIN(sizeof(word), bytes - at));
	}
}

/* Up to where it is that cell: `bytes` if it is all of it. */
static size_t cell_length(const uint8_t *buf, size_t bytes, uint64_t cell)
{
	for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
		uint64_t word = cell == 0 ? 0 : word_of(cell, at / sizeof(uint64_t));
		if (memcmp(buf + at, &word, LP_MIN(sizeof(word), bytes - at)) != 0)
			return at;
	}
	return bytes;
}

void lpi_cells_fill(const struct lpi_client *client, const struct lpi_act *act)
{
	size_t bytes = client->plan->cell_bytes[act->group];
	for (unsigned i = 0; i < act->count; i++)
		fill_cell(client->buf + i * bytes, bytes, lpi_act_cell(act, i));
}

int lpi_cells_take(const struct lpi_client *client, size_t bytes, bool can_be_torn,
		   struct lpi_act *act)
{
	size_t cell_bytes = client->plan->cell_bytes[act->group];
	if (bytes % cell_bytes != 0 || bytes / cell_bytes > LPI_CELLS) {
		(void)fprintf(stderr, "%zu bytes of cells of %zu\n", bytes, cell_bytes);
		return -EBADMSG;
	}
	act->got = (uint8_t)(bytes / cell_bytes);
	for (unsigned i = 0; i < act->got; i++) {
		const uint8_t *at = client->buf + i * cell_bytes;
		memcpy(&act->cells[i], at, sizeof(act->cells[i]));
		size_t len = cell_length(at, cell_bytes, act->cells[i]);
		if (len != cell_bytes && can_be_torn) {
			act->cells[i] = LPI_TORN;
		} else if (len != cell_bytes) {
			uint64_t found = 0;
			memcpy(&found, at + len, LP_MIN(sizeof(found), cell_bytes - len));
			(void)fprintf(stderr,
				      "of cell %u of %zu bytes %zu are of %llx, then comes %llx\n",
				      act->first + i, cell_bytes, len,
				      (unsigned long long)act->cells[i], (unsigned long long)found);
			return -EBADMSG;
		}
	}
	return 0;
}

/* --- What is drawn ---------------------------------------------------------------------------- */

struct choice {
	uint8_t kind;
	uint8_t condition;
	uint8_t weight_native;
	uint8_t weight_mount;
};

static const struct choice by_name[] = {
	{LPI_READ, LPI_IF_ANY, 24, 0},     {LPI_STAT, LPI_IF_ANY, 8, 0},
	{LPI_PUT, LPI_IF_ANY, 10, 0},      {LPI_PUT, LPI_IF_ABSENT, 4, 0},
	{LPI_PUT, LPI_IF_EXISTS, 3, 0},    {LPI_PUT, LPI_IF_VERSION, 5, 0},
	{LPI_REMOVE, LPI_IF_ANY, 5, 6},    {LPI_RENAME, LPI_IF_ANY, 5, 7},
	{LPI_RENAME, LPI_IF_ABSENT, 4, 5}, {LPI_EXCHANGE, LPI_IF_ANY, 4, 5},
	{LPI_LINK, LPI_IF_ANY, 5, 0},      {LPI_COPY, LPI_IF_ANY, 5, 0},
	{LPI_WRITE, LPI_IF_ANY, 12, 0},    {LPI_APPEND, LPI_IF_ANY, 5, 0},
	{LPI_TRUNCATE, LPI_IF_ANY, 4, 0},  {LPI_XATTR_SET, LPI_IF_ANY, 4, 0},
	{LPI_XATTR_GET, LPI_IF_ANY, 4, 0}, {LPI_OPEN, LPI_IF_ANY, 6, 20},
	{LPI_CREATE, LPI_IF_ANY, 0, 10},   {LPI_CREATE, LPI_IF_ABSENT, 0, 6},
};

static const struct choice by_handle[] = {
	{LPI_READ, LPI_IF_ANY, 24, 40},    {LPI_STAT, LPI_IF_ANY, 8, 10},
	{LPI_LINK, LPI_IF_ANY, 5, 5},      {LPI_WRITE, LPI_IF_ANY, 12, 16},
	{LPI_APPEND, LPI_IF_ANY, 5, 8},    {LPI_TRUNCATE, LPI_IF_ANY, 4, 0},
	{LPI_XATTR_SET, LPI_IF_ANY, 4, 4}, {LPI_XATTR_GET, LPI_IF_ANY, 4, 4},
	{LPI_SYNC, LPI_IF_ANY, 0, 3},      {LPI_CLOSE, LPI_IF_ANY, 8, 10},
};

static bool is_change(const struct choice *choice)
{
	const struct lpi_act act = {.kind = choice->kind};
	return !lpi_act_is_look(&act) && choice->kind != LPI_CLOSE && choice->kind != LPI_SYNC;
}

/* Of the object that is always there. */
static bool is_of_one(const struct choice *choice)
{
	switch ((enum lpi_act_kind)choice->kind) {
	case LPI_READ:
	case LPI_STAT:
	case LPI_WRITE:
	case LPI_APPEND:
	case LPI_TRUNCATE:
	case LPI_XATTR_SET:
	case LPI_XATTR_GET:
	case LPI_OPEN:
	case LPI_CLOSE:
	case LPI_SYNC:
		return true;
	case LPI_PUT:
	case LPI_REMOVE:
	case LPI_RENAME:
	case LPI_EXCHANGE:
	case LPI_LINK:
	case LPI_TAKE:
	case LPI_FIND:
	case LPI_COPY:
	case LPI_CREATE:
	case LPI_START:
	case LPI_KINDS:
		break;
	}
	return false;
}

static bool moves(const struct choice *choice)
{
	return choice->kind == LPI_RENAME || choice->kind == LPI_EXCHANGE ||
	       choice->kind == LPI_LINK;
}

/* Whether this is done here, in this life. */
static bool is_done(const struct lpi_client *client, unsigned group, const struct choice *choice,
		    bool is_by_handle)
{
	const struct lpi_plan *plan = client->plan;
	if (group == LPI_ALWAYS_THERE)
		return is_of_one(choice);
	if (choice->kind == LPI_SYNC)
		return false;
	if (!client->is_mounts) {
		/* A look that binds a handle cannot be left out of the mount's view. */
		if (plan->is_cached && choice->kind == LPI_OPEN)
			return false;
		return group == LPI_MOVED_BY_SOCKET || !moves(choice);
	}
	if (is_change(choice) && !plan->is_synced)
		return false;
	/* What the kernel's memory has under a name may be another object than the daemon has. */
	if (plan->is_cached && is_change(choice) &&
	    (is_by_handle || (choice->kind == LPI_CREATE && choice->condition != LPI_IF_ABSENT)))
		return false;
	if (choice->kind == LPI_LINK)
		return group == LPI_MOVED_BY_SOCKET;
	return group == LPI_MOVED_BY_MOUNT || !moves(choice);
}

static const struct choice *draw_from(struct lpi_client *client, unsigned group, bool is_by_handle)
{
	const struct choice *table = is_by_handle ? by_handle : by_name;
	size_t cnt = is_by_handle ? LP_ARRAY_SIZE(by_handle) : LP_ARRAY_SIZE(by_name);
	uint32_t weights[LP_ARRAY_SIZE(by_name)];
	uint32_t sum = 0;
	for (size_t i = 0; i < cnt; i++) {
		uint32_t weight =
			client->is_mounts ? table[i].weight_mount : table[i].weight_native;
		weights[i] = is_done(client, group, &table[i], is_by_handle) ? weight : 0;
		sum += weights[i];
	}
	uint32_t at = (uint32_t)lp_prng_below(&client->prng, sum);
	size_t idx = 0;
	while (at >= weights[idx])
		at -= weights[idx++];
	return &table[idx];
}

/* The version that this client was last told of this name. */
static uint64_t known_version(const struct lpi_client *client, unsigned group, unsigned name)
{
	for (size_t i = client->acts.cnt; i > 0 && client->acts.cnt - i < 20; i--) {
		const struct lpi_act *act = &client->acts.list[i - 1];
		if (act->group == group && act->name == name && act->version != 0 &&
		    !(act->flags & LPI_BY_HANDLE))
			return act->version;
	}
	return 0;
}

static void draw_range(struct lpi_client *client, struct lpi_act *act)
{
	bool is_one_page = client->is_mounts && client->plan->is_cached;
	act->count = (uint8_t)lp_prng_between(&client->prng, 1, is_one_page ? 1 : 4);
	act->first = (uint8_t)lp_prng_below(&client->prng, 5);
	if (act->kind == LPI_TRUNCATE)
		act->count = (uint8_t)lp_prng_below(&client->prng, 6);
	if (act->kind == LPI_APPEND)
		act->count = 1;
	if (act->kind == LPI_APPEND || act->kind == LPI_TRUNCATE || act->kind == LPI_PUT)
		act->first = 0;
	if (act->kind == LPI_READ) {
		/* The kernel cuts a read that is short, so the mount's are of one cell. */
		act->count = client->is_mounts ? 1 : LPI_CELLS;
		act->first = client->is_mounts ? act->first : 0;
		if (!client->is_mounts && lp_prng_chance(&client->prng, 1, 4)) {
			act->first = 2;
			act->count = 2;
		}
	}
}

static void draw(struct lpi_client *client, struct lpi_act *act)
{
	bool is_by_handle = client->handle_group != LPI_NO_GROUP &&
			    lp_prng_chance(&client->prng, client->is_mounts ? 9 : 6, 10);
	unsigned group = is_by_handle ? client->handle_group
				      : (unsigned)lp_prng_below(&client->prng, LPI_GROUPS);
	const struct choice *choice = draw_from(client, group, is_by_handle);
	*act = (struct lpi_act){
		.kind = choice->kind,
		.condition = choice->condition,
		.group = (uint8_t)group,
		.client = (uint8_t)client->idx,
		.name = (uint8_t)lp_prng_below(&client->prng,
					       group == LPI_ALWAYS_THERE ? 1 : LPI_NAMES),
		.value = is_change(choice) ? lpi_client_value(client) : 0,
		.flags = is_by_handle ? LPI_BY_HANDLE : 0,
	};
	act->to_name = (uint8_t)((act->name + 1 + lp_prng_below(&client->prng, LPI_NAMES - 1)) %
				 LPI_NAMES);
	draw_range(client, act);
	if (act->condition == LPI_IF_VERSION)
		act->if_version = known_version(client, group, act->name);
	if (act->condition == LPI_IF_VERSION && act->if_version == 0)
		act->condition = LPI_IF_EXISTS;
}

/* --- What is done ----------------------------------------------------------------------------- */

void lpi_client_fail(struct lpi_client *client, const char *format, ...)
{
	va_list args;
	if (client->trouble[0] != '\0')
		return;
	va_start(args, format);
	(void)vsnprintf(client->trouble, sizeof(client->trouble), format, args);
	va_end(args);
	client->is_lost = true;
}

uint64_t lpi_client_value(struct lpi_client *client)
{
	uint64_t owner = client->plan->life * (LPI_CLIENTS + 1) + client->idx + 1;
	return (owner << 24) + ++client->serial;
}

void lpi_client_path(const char *dir, unsigned group, unsigned name, char *ret_path, size_t len)
{
	if (dir == NULL)
		(void)snprintf(ret_path, len, "g%u/n%u", group, name);
	else
		(void)snprintf(ret_path, len, "%s/g%u/n%u", dir, group, name);
}

/* Who may be asked about what it saw, and what a crash may take back. */
static void mark(const struct lpi_client *client, struct lpi_act *act)
{
	const struct lpi_plan *plan = client->plan;
	bool is_fixed = act->kind == LPI_OPEN && act->group == LPI_ALWAYS_THERE;
	bool is_look = lpi_act_is_look(act) || (act->status != 0 && !(act->flags & LPI_UNKNOWN));
	if (client->is_mounts)
		act->flags |= LPI_MOUNT;
	if (plan->is_cached && is_look && !is_fixed && client->idx < LPI_CLIENTS)
		act->flags |= client->is_mounts ? LPI_CACHED : LPI_SHARP;
	if (client->is_mounts && plan->is_synced && !is_look)
		act->flags |= LPI_DURABLE;
}

void lpi_client_do(struct lpi_client *client, struct lpi_act *act)
{
	act->invoke_ns = lp_clock_mono_ns(lp_clock_system());
	bool has_happened =
		client->is_mounts ? lpi_mounted_do(client, act) : lpi_native_do(client, act);
	act->return_ns = lp_clock_mono_ns(lp_clock_system());
	if (client->is_lost && client->lost_ns == 0)
		client->lost_ns = act->return_ns;
	if (!has_happened || client->trouble[0] != '\0')
		return;
	if (client->is_lost) {
		act->flags |= LPI_UNKNOWN;
		act->return_ns = LPI_NEVER;
		act->status = 0;
	}
	mark(client, act);
	if (lpi_acts_add(&client->acts, act) < 0)
		lpi_client_fail(client, "out of memory");
	if (act->status == 0 && (act->kind == LPI_OPEN || act->kind == LPI_CREATE))
		client->handle_group = act->group;
	if (act->kind == LPI_CLOSE)
		client->handle_group = LPI_NO_GROUP;
}

static void close_handle(struct lpi_client *client)
{
	struct lpi_act act = {.kind = LPI_CLOSE,
			      .flags = LPI_BY_HANDLE,
			      .group = client->handle_group,
			      .client = (uint8_t)client->idx};
	if (client->handle_group != LPI_NO_GROUP && !client->is_lost)
		lpi_client_do(client, &act);
}

/* What is appended to must not become too long, whatever the others do at the same time: each of
 * them looks first. */
static bool may_append(struct lpi_client *client, const struct lpi_act *append)
{
	struct lpi_act look = *append;
	look.kind = LPI_STAT;
	look.value = 0;
	look.count = 0;
	lpi_client_do(client, &look);
	return !client->is_lost && look.status == 0 && look.got <= APPEND_BELOW;
}

static void one_act(struct lpi_client *client)
{
	struct lpi_act act;
	draw(client, &act);
	if (act.kind == LPI_OPEN || act.kind == LPI_CREATE)
		close_handle(client);
	if (act.kind == LPI_APPEND && client->is_mounts && !client->is_append)
		act.kind = LPI_WRITE;
	else if (act.kind == LPI_WRITE && client->is_mounts && client->is_append)
		act.kind = LPI_APPEND;
	if (client->is_lost || (act.kind == LPI_APPEND && !may_append(client, &act)))
		return;
	lpi_client_do(client, &act);
	bool may_lose = client->is_mounts && !client->plan->is_synced && !client->is_lost &&
			act.group == LPI_ALWAYS_THERE && (act.flags & LPI_BY_HANDLE) &&
			!lpi_act_is_look(&act) && act.kind != LPI_CLOSE;
	if (act.kind == LPI_SYNC) {
		client->unsynced = 0;
	} else if (may_lose && ++client->unsynced >= UNSYNCED_MAX) {
		struct lpi_act sync = {.kind = LPI_SYNC,
				       .flags = LPI_BY_HANDLE,
				       .group = act.group,
				       .client = act.client};
		lpi_client_do(client, &sync);
		client->unsynced = 0;
	}
}

int lpi_client_init(struct lpi_client *client, const struct lpi_plan *plan, uint32_t idx)
{
	*client = (struct lpi_client){
		.plan = plan,
		.idx = idx,
		.is_mounts = idx >= LPI_CLIENTS / 2 && idx < LPI_CLIENTS,
		.handle_group = LPI_NO_GROUP,
		.fd = -1,
	};
	lp_prng_init(&client->prng, plan->seed * 1000003 + plan->life * 101 + idx);
	client->buf = aligned_alloc(PAGE_BYTES, (size_t)LPI_CELLS * LPI_CELL_BYTES_MAX);
	if (client->buf == NULL)
		return -ENOMEM;
	const struct lapis_options options = {.size = sizeof(options),
					      .address = plan->address,
					      .reconnect_ms = 1,
					      .connect_ms = 2000};
	if (client->is_mounts)
		return 0;
	int err = lapis_open(&options, &client->lapis);
	/* What fails before there was a connection fails by that one's error. */
	if (err == 0)
		err = lapis_ping(client->lapis);
	if (err < 0) {
		lapis_close(client->lapis);
		client->lapis = NULL;
		free(client->buf);
		client->buf = NULL;
	}
	return err;
}

void lpi_client_fini(struct lpi_client *client)
{
	if (client->file != NULL)
		(void)lapis_close_file(client->file); /* of a daemon that may be gone */
	if (client->fd >= 0)
		(void)close(client->fd);
	lapis_close(client->lapis);
	free(client->buf);
	lpi_acts_fini(&client->acts);
}

void lpi_client_run(struct lpi_client *client)
{
	while (!client->is_lost && client->acts.cnt < client->plan->acts_max)
		one_act(client);
	close_handle(client);
}
