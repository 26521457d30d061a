/* SPDX-License-Identifier: Apache-2.0 */
#include "store/check/scrub.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/endian.h"
#include "base/units.h"

#define LIST_BYTES   8192u
#define BURST_NS     (100 * LP_NS_PER_MS) /* so much may be made up for of what was slow */
#define NUMBER_BYTES 8u

enum state {
	IDLE,
	PAUSE, /* until the rate allows for more, or for the next turn */
	LIST,
	SEEK, /* where data begins, */
	SPAN, /* and where it ends */
	READ
};

struct lp_scrub {
	struct lp_scrub_options options;
	struct lp_scrub_stats stats;
	enum state state;
	enum state next; /* after the pause */
	bool is_stopping;
	struct lp_store_op op;
	struct lp_task task;
	struct lp_timer timer;
	uint64_t due_ns;

	/* Something behind `behind` cannot be listed: one by one, until it is the next one. Then it
	 * is skipped: where lists begin that fail, and one that does not, 0 being none known. */
	bool is_careful;
	bool is_skipping;
	uint64_t fails_from;
	uint64_t lists_from;
	int skip_error;

	struct lp_store_op page; /* the list that is gone through */
	uint32_t page_pos;
	uint8_t behind[NUMBER_BYTES];
	uint8_t from[NUMBER_BYTES]; /* the list that is tried */
	uint8_t page_bytes[LIST_BYTES];

	struct lp_ino only;              /* nr 0: all that are listed */
	struct lp_scrub_verdict verdict; /* of the inode that is read */
	struct lp_ino ino;
	uint64_t offset;
	uint64_t data_end;        /* behind what is read: a hole */
	uint64_t by_blocks_up_to; /* something before here is damaged */
	uint64_t size_bytes;      /* the least that was seen */
};

static void list(struct lp_scrub *scrub);
static void listed(struct lp_store_op *op);
static void seek(struct lp_scrub *scrub);
static void span(struct lp_scrub *scrub);
static void read_piece(struct lp_scrub *scrub);

/* --- One after the other ---------------------------------------------------------------------- */

static void end(struct lp_scrub *scrub, bool is_whole, int error)
{
	struct lp_scrub_stats *stats = &scrub->stats;
	scrub->state = IDLE;
	stats->is_running = false;
	stats->is_whole = is_whole;
	stats->error = error;
	stats->sum.passes += is_whole;
	stats->ended_ns = lp_clock_wall_ns(lp_reactor_clock(scrub->options.reactor));
	if (scrub->options.ended != NULL)
		scrub->options.ended(scrub->options.ended_arg);
}

static void go_on(struct lp_scrub *scrub)
{
	if (scrub->is_stopping) {
		end(scrub, false, 0);
		return;
	}
	switch (scrub->next) {
	case LIST:
		list(scrub);
		break;
	case SEEK:
		seek(scrub);
		break;
	case SPAN:
		span(scrub);
		break;
	case READ:
		read_piece(scrub);
		break;
	case IDLE:
	case PAUSE:
		LP_UNREACHABLE();
	}
}

static void task_run(struct lp_task *task)
{
	go_on(LP_CONTAINER_OF(task, struct lp_scrub, task));
}

static void timer_fire(struct lp_timer *timer)
{
	go_on(LP_CONTAINER_OF(timer, struct lp_scrub, timer));
}

static void soon(struct lp_scrub *scrub, enum state next)
{
	uint64_t now_ns = lp_reactor_now_ns(scrub->options.reactor);
	scrub->state = PAUSE;
	scrub->next = next;
	if (scrub->is_stopping || scrub->due_ns <= now_ns)
		lp_task_queue(scrub->options.reactor, &scrub->task);
	else
		lp_timer_start(scrub->options.reactor, &scrub->timer, scrub->due_ns);
}

/* So much was read: the next request is not due before the rate allows for it. */
static void pay(struct lp_scrub *scrub, uint64_t bytes)
{
	uint64_t rate = scrub->options.bytes_per_s;
	uint64_t now_ns = lp_reactor_now_ns(scrub->options.reactor);
	uint64_t least_ns = now_ns > BURST_NS ? now_ns - BURST_NS : 0;
	if (rate == LP_SCRUB_RATE_NOLIMIT) {
		scrub->due_ns = 0;
		return;
	}
	scrub->due_ns = LP_MAX(scrub->due_ns, least_ns) + bytes * LP_NS_PER_S / rate;
}

static void submit(struct lp_scrub *scrub, enum state state, void (*complete)(struct lp_store_op *))
{
	scrub->state = state;
	scrub->op.complete = complete;
	scrub->op.sees_ordered = true;
	lp_store_submit(scrub->options.store, &scrub->op);
}

/* Nothing can be read from a store that has failed, or is opened again after that: that is no
 * damage. */
static bool is_lost(const struct lp_scrub *scrub)
{
	struct lp_store_health health;
	lp_store_read_health(scrub->options.store, &health);
	return health.state == LP_STORE_REOPENING || health.state == LP_STORE_DEAD;
}

/* --- Damage ----------------------------------------------------------------------------------- */

static bool is_damage(int err)
{
	return err == -EBADMSG || err == -EUCLEAN || err == -EIO;
}

/* There is no data, or no more of it: nothing is left to read. */
static bool is_answer(int err)
{
	return err == -ENXIO || err == -ENOENT || err == -EISDIR || err == -EINVAL;
}

static void note_damage(struct lp_scrub *scrub, int err)
{
	struct lp_scrub_stats *stats = &scrub->stats;
	struct lp_scrub_verdict *verdict = &scrub->verdict;
	stats->damaged++;
	stats->sum.damaged++;
	if (verdict->places++ == 0) {
		verdict->offset = scrub->offset;
		verdict->error = err;
	}
	if (stats->named_cnt < LP_SCRUB_NAMED)
		stats->named[stats->named_cnt++] = (struct lp_scrub_place){
			.ino = scrub->ino, .offset = scrub->offset, .error = err};
}

/* --- Inodes ----------------------------------------------------------------------------------- */

static void begin_inode(struct lp_scrub *scrub, struct lp_ino ino)
{
	scrub->ino = ino;
	scrub->verdict = (struct lp_scrub_verdict){.ino = ino};
	scrub->offset = 0;
	scrub->by_blocks_up_to = 0;
	scrub->size_bytes = UINT64_MAX;
	soon(scrub, SEEK);
}

static void tell_verdict(const struct lp_scrub *scrub)
{
	if (scrub->options.passed != NULL)
		scrub->options.passed(scrub->options.ended_arg, &scrub->verdict);
}

static void next_inode(struct lp_scrub *scrub)
{
	struct lp_list_item item;
	if (scrub->only.nr != 0) {
		end(scrub, true, 0);
		return;
	}
	if (!lp_store_list_next(&scrub->page, &scrub->page_pos, &item)) {
		if (scrub->page.list.more)
			soon(scrub, LIST);
		else
			end(scrub, true, 0);
		return;
	}
	LP_ASSERT(item.name.len == NUMBER_BYTES);
	memcpy(scrub->behind, item.name.data, NUMBER_BYTES);
	begin_inode(scrub, (struct lp_ino){lp_get_be64(scrub->behind)});
}

/* It has cost as much as a block: else a store of small objects would be gone through as fast as
 * the thread can. */
static void inode_done(struct lp_scrub *scrub)
{
	pay(scrub, LP_BLOCK_BYTES);
	scrub->stats.objects++;
	scrub->stats.sum.objects++;
	scrub->stats.at = scrub->ino;
	scrub->stats.at_damaged = scrub->stats.damaged;
	tell_verdict(scrub);
	next_inode(scrub);
}

static void begin_page(struct lp_scrub *scrub, const struct lp_store_op *op)
{
	scrub->page = *op;
	scrub->page_pos = 0;
	next_inode(scrub);
}

static void list_at(struct lp_scrub *scrub, struct lp_bytes after, struct lp_bytes from)
{
	scrub->op = (struct lp_store_op){.opcode = LP_STORE_LIST,
					 .list = {.space = LP_STORE_INODES,
						  .after = after,
						  .from = from,
						  .buf = scrub->page_bytes,
						  .buf_len = LIST_BYTES,
						  .items_max = scrub->is_careful ? 1 : 0}};
	submit(scrub, LIST, listed);
}

/* Where the next list is tried: farther and farther behind those that fail until one does not, then
 * halfway between. 0: that is known, or there is no number left. */
static uint64_t next_try(const struct lp_scrub *scrub)
{
	uint64_t fails = scrub->fails_from;
	if (scrub->lists_from != 0)
		return scrub->lists_from - fails > 1 ? fails + (scrub->lists_from - fails) / 2 : 0;
	uint64_t step = fails - lp_get_be64(scrub->behind);
	return step <= UINT64_MAX - fails ? fails + step : 0;
}

/* This one is lost; all up to it have been gone through. */
static void pass_lost(struct lp_scrub *scrub, uint64_t nr, int err)
{
	scrub->is_skipping = false;
	scrub->is_careful = false;
	scrub->ino.nr = nr;
	scrub->verdict = (struct lp_scrub_verdict){.ino = scrub->ino};
	scrub->offset = 0;
	note_damage(scrub, err);
	tell_verdict(scrub);
	scrub->stats.at = scrub->ino;
	scrub->stats.at_damaged = scrub->stats.damaged;
	lp_put_be64(scrub->behind, nr);
}

/* A part of the index cannot be read: nobody knows what was in it. */
static void skip(struct lp_scrub *scrub, int result)
{
	uint64_t tried = lp_get_be64(scrub->from);
	if (!scrub->is_skipping) {
		scrub->is_skipping = true;
		scrub->skip_error = result;
		scrub->fails_from = lp_get_be64(scrub->behind) + 1;
		scrub->lists_from = 0;
	} else if (result < 0) {
		scrub->fails_from = tried;
	} else {
		scrub->lists_from = tried;
	}
	uint64_t next = next_try(scrub);
	lp_put_be64(scrub->from, next);
	if (next == 0)
		pass_lost(scrub, scrub->fails_from, scrub->skip_error);
	if (next == 0 && scrub->lists_from == 0)
		end(scrub, true, 0); /* all the rest is in it */
	else
		soon(scrub, LIST);
}

static void list_failed(struct lp_scrub *scrub, const struct lp_store_op *op)
{
	bool is_record = op->list.damaged.nr != 0; /* up to there all can be read */
	if (!scrub->is_careful) {
		scrub->is_careful = true;
		soon(scrub, LIST);
	} else if (scrub->is_skipping || !is_record) {
		skip(scrub, is_record ? 0 : op->result);
	} else {
		pass_lost(scrub, op->list.damaged.nr, op->result);
		soon(scrub, LIST);
	}
}

static void listed(struct lp_store_op *op)
{
	struct lp_scrub *scrub = LP_CONTAINER_OF(op, struct lp_scrub, op);
	bool is_bad = is_damage(op->result) && !is_lost(scrub);
	if (op->result < 0 && !is_bad)
		end(scrub, false, op->result);
	else if (is_bad)
		list_failed(scrub, op);
	else if (scrub->is_skipping)
		skip(scrub, 0);
	else
		begin_page(scrub, op);
}

static void list(struct lp_scrub *scrub)
{
	const struct lp_bytes none = {NULL, 0};
	const struct lp_bytes from = {scrub->from, NUMBER_BYTES};
	const struct lp_bytes after = {scrub->behind, NUMBER_BYTES};
	if (scrub->is_skipping)
		list_at(scrub, none, from);
	else
		list_at(scrub, lp_get_be64(scrub->behind) == 0 ? none : after, none);
}

/* --- Data ------------------------------------------------------------------------------------- */

/* No more of this inode: no data is behind here, or its map cannot be read, or it is gone, or is
 * none that has data. */
static void leave(struct lp_scrub *scrub, int err)
{
	if (is_damage(err) && is_lost(scrub)) {
		end(scrub, false, err);
		return;
	}
	if (is_damage(err))
		note_damage(scrub, err);
	scrub->verdict.is_unsure = !is_damage(err) && !is_answer(err);
	inode_done(scrub);
}

static void spanned(struct lp_store_op *op)
{
	struct lp_scrub *scrub = LP_CONTAINER_OF(op, struct lp_scrub, op);
	if (op->result < 0) {
		leave(scrub, op->result);
		return;
	}
	scrub->data_end = op->seek.found;
	soon(scrub, READ);
}

static void span(struct lp_scrub *scrub)
{
	scrub->op = (struct lp_store_op){
		.opcode = LP_STORE_SEEK,
		.seek = {.ino = scrub->ino, .offset = scrub->offset, .hole = true}};
	submit(scrub, SPAN, spanned);
}

static void sought(struct lp_store_op *op)
{
	struct lp_scrub *scrub = LP_CONTAINER_OF(op, struct lp_scrub, op);
	if (op->result < 0) {
		leave(scrub, op->result);
		return;
	}
	scrub->offset = op->seek.found;
	soon(scrub, SPAN);
}

static void seek(struct lp_scrub *scrub)
{
	scrub->op = (struct lp_store_op){.opcode = LP_STORE_SEEK,
					 .seek = {.ino = scrub->ino, .offset = scrub->offset}};
	submit(scrub, SEEK, sought);
}

/* Behind what was read, or could not be. */
static void advance(struct lp_scrub *scrub, uint64_t length)
{
	scrub->offset += length;
	soon(scrub, scrub->offset < scrub->data_end ? READ : SEEK);
}

/* What is appended meanwhile is the next pass's: one that is written as fast as it is read here
 * would hold up all others for ever. */
static void has_read(struct lp_store_op *op)
{
	struct lp_scrub *scrub = LP_CONTAINER_OF(op, struct lp_scrub, op);
	uint64_t length = op->read.length;
	if (op->result == 0) {
		uint64_t bytes = op->read.bytes;
		scrub->size_bytes = LP_MIN(scrub->size_bytes, op->read.size_bytes);
		pay(scrub, bytes);
		scrub->stats.bytes += bytes;
		scrub->stats.sum.bytes += bytes;
		lp_store_end(scrub->options.store, op);
		if (scrub->offset + length >= scrub->size_bytes)
			inode_done(scrub);
		else
			advance(scrub, length);
	} else if (!is_damage(op->result) || is_lost(scrub)) {
		leave(scrub, op->result);
	} else if (length > LP_BLOCK_BYTES) {
		pay(scrub, length);
		scrub->by_blocks_up_to = scrub->offset + length;
		soon(scrub, READ);
	} else {
		note_damage(scrub, op->result);
		advance(scrub, length);
	}
}

static void read_piece(struct lp_scrub *scrub)
{
	bool is_careful = scrub->offset < scrub->by_blocks_up_to;
	uint64_t grid = is_careful ? LP_BLOCK_BYTES : LP_SCRUB_READ_BYTES;
	uint64_t length = LP_MIN(grid - scrub->offset % grid, scrub->data_end - scrub->offset);
	scrub->op = (struct lp_store_op){.opcode = LP_STORE_READ,
					 .read = {.ino = scrub->ino,
						  .offset = scrub->offset,
						  .length = length,
						  .from_device = true}};
	submit(scrub, READ, has_read);
}

/* --- The face --------------------------------------------------------------------------------- */

int lp_scrub_new(const struct lp_scrub_options *options, struct lp_scrub **ret_scrub)
{
	struct lp_scrub *scrub = calloc(1, sizeof(*scrub));
	if (scrub == NULL)
		return -ENOMEM;
	scrub->options = *options;
	scrub->task.run = task_run;
	scrub->timer.fire = timer_fire;
	*ret_scrub = scrub;
	return 0;
}

void lp_scrub_free(struct lp_scrub *scrub)
{
	LP_ASSERT(scrub == NULL || lp_scrub_is_idle(scrub));
	free(scrub);
}

static int start(struct lp_scrub *scrub, struct lp_ino behind)
{
	if (scrub->state != IDLE)
		return -EALREADY;
	struct lp_scrub_sum sum = scrub->stats.sum;
	scrub->stats = (struct lp_scrub_stats){
		.is_running = true,
		.sum = sum,
		.at = behind,
		.began_ns = lp_clock_wall_ns(lp_reactor_clock(scrub->options.reactor))};
	scrub->is_stopping = false;
	scrub->is_careful = false;
	scrub->is_skipping = false;
	scrub->due_ns = lp_reactor_now_ns(scrub->options.reactor);
	scrub->only.nr = 0;
	lp_put_be64(scrub->behind, behind.nr);
	return 0;
}

int lp_scrub_start(struct lp_scrub *scrub, struct lp_ino behind)
{
	int err = start(scrub, behind);
	if (err == 0)
		soon(scrub, LIST);
	return err;
}

int lp_scrub_start_one(struct lp_scrub *scrub, struct lp_ino ino)
{
	LP_ASSERT(ino.nr != 0);
	int err = start(scrub, (struct lp_ino){0});
	if (err < 0)
		return err;
	scrub->only = ino;
	begin_inode(scrub, ino);
	return 0;
}

void lp_scrub_stop(struct lp_scrub *scrub)
{
	scrub->is_stopping = true;
	if (scrub->state != PAUSE || lp_task_is_queued(&scrub->task))
		return;
	lp_timer_stop(scrub->options.reactor, &scrub->timer);
	lp_task_queue(scrub->options.reactor, &scrub->task);
}

bool lp_scrub_is_idle(const struct lp_scrub *scrub)
{
	return scrub->state == IDLE;
}

void lp_scrub_set_rate(struct lp_scrub *scrub, uint64_t bytes_per_s)
{
	scrub->options.bytes_per_s = bytes_per_s;
}

const struct lp_scrub_stats *lp_scrub_stats(const struct lp_scrub *scrub)
{
	return &scrub->stats;
}
