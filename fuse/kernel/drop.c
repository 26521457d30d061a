/* SPDX-License-Identifier: Apache-2.0 */
/* is_answered decides which answers: the thread that tells the kernel, or the limit's timer.
 *
 * If the request came by a descriptor, its drop has no request. So parked_cnt keeps the descriptor
 * open. A message to the channel that has the descriptor counts it down. */
#include "fuse/kernel/drop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fuse/channel_state.h"

int lpi_fuse_drops_init(struct lpi_fuse_drops *drops)
{
	const struct lp_pool_config config = {.name = "fuse drops",
					      .object_bytes = sizeof(struct lpi_fuse_drop),
					      .limit = LPI_FUSE_DROPS_MAX};
	lpi_fuse_list_init(&drops->waiting);
	return lp_pool_new(&config, &drops->pool);
}

void lpi_fuse_drops_fini(struct lpi_fuse_drops *drops)
{
	lp_pool_free(drops->pool);
	drops->pool = NULL;
}

bool lpi_fuse_is_dropping(const struct lp_fuse_channel *channel)
{
	return channel->drops.cnt > 0;
}

bool lpi_fuse_is_parking(const struct lp_fuse_channel *channel)
{
	return atomic_load(&channel->drops.parked_cnt) > 0;
}

static _Atomic uint32_t *held_cnt_of(const struct lp_fuse_channel *channel)
{
	return &channel->peers[0]->drops.held_cnt;
}

/* --- The answer ------------------------------------------------------------------------------- */

/* True: the caller must answer. */
static bool take_answer(struct lpi_fuse_drop *drop)
{
	if (atomic_exchange(&drop->is_answered, true))
		return false;
	atomic_fetch_sub(held_cnt_of(drop->channel), 1);
	return true;
}

static void answer_by_descriptor(const struct lpi_fuse_drop *drop)
{
	struct fuse_write_out out = {.size = drop->bytes};
	struct fuse_out_header header = {
		.len = sizeof(header), .error = drop->err, .unique = drop->unique};
	struct iovec iovs[2] = {{&header, sizeof(header)}, {&out, sizeof(out)}};
	if (drop->err == 0)
		header.len += (uint32_t)sizeof(out);
	ssize_t n = writev(drop->fd, iovs, drop->err == 0 ? 2 : 1);
	(void)n; /* if it fails, no caller waits for it any more */
}

static void answer_by_entry(struct lpi_fuse_drop *drop)
{
	struct lpi_fuse_request *request = drop->request;
	const struct fuse_write_out out = {.size = drop->bytes};
	drop->request = NULL;
	atomic_fetch_sub(drop->held_cnt, 1);
	if (drop->err < 0)
		lpi_fuse_answer(request, drop->err);
	else
		lpi_fuse_answer_bytes(request, &out, sizeof(out));
}

/* --- Stuck threads ---------------------------------------------------------------------------- */

/* Whether so many writes wait that the kernel may lack a request or an entry for the read that they
 * wait for. */
static bool is_crowded(const struct lpi_fuse_drop *drop)
{
	if (atomic_load(held_cnt_of(drop->channel)) >= LPI_FUSE_DROPS_HURRY_AT)
		return true;
	if (drop->request == NULL)
		return false;
	uint32_t depth = drop->request->entry->ring->depth;
	return atomic_load(drop->held_cnt) >= depth - LP_MAX(depth / 4, 1u);
}

/* The thread sleeps in the kernel, and no signal wakes it: it waits for a page. */
static bool is_asleep(int tid)
{
	char path[64];
	char stat[128];
	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, stat, sizeof(stat) - 1);
	if (fd >= 0)
		(void)close(fd); /* it was only read */
	if (len <= 0)
		return true; /* not known */
	stat[len] = '\0';
	const char *name_end = strrchr(stat, ')');
	return name_end == NULL || strncmp(name_end, ") D", 3) == 0;
}

static bool is_stuck(const struct lpi_fuse_drop *drop)
{
	int tid = atomic_load(&drop->tid);
	return atomic_load(&drop->is_at_last) && (tid == 0 || is_asleep(tid));
}

static bool are_all_stuck(const struct lpi_fuse_drop *drop, uint64_t now_ns)
{
	struct lp_workers *dropper = drop->channel->options.dropper;
	struct lp_workers_stats stats;
	uint64_t ended_ns = atomic_load(&drop->channel->peers[0]->drops.ended_ns);
	uint64_t from_ns = LP_MAX(ended_ns, drop->began_ns);
	if (now_ns - LP_MIN(from_ns, now_ns) < LPI_FUSE_DROP_STUCK_NS)
		return false;
	lp_workers_read_stats(dropper, &stats);
	return stats.running >= lp_workers_thread_cnt(dropper);
}

/* True at the second check in a row that finds it stuck, because at the first it may be about to go
 * on. */
static bool has_to_answer(struct lpi_fuse_drop *drop, uint64_t now_ns)
{
	bool was_stuck = drop->was_stuck;
	bool is_hurried = drop->may_lock || is_crowded(drop);
	drop->was_stuck = is_hurried && is_stuck(drop);
	if (now_ns - drop->began_ns >= LPI_FUSE_DROP_LIMIT_NS || (was_stuck && drop->was_stuck))
		return true;
	return is_crowded(drop) && are_all_stuck(drop, now_ns);
}

/* The kernel takes long, or waits for the answer itself. */
static void look(struct lp_timer *timer)
{
	struct lpi_fuse_drop *drop = LP_CONTAINER_OF(timer, struct lpi_fuse_drop, limit);
	struct lp_reactor *reactor = drop->channel->options.reactor;
	uint64_t now_ns = lp_reactor_now_ns(reactor);
	if (!has_to_answer(drop, now_ns)) {
		lp_timer_start(reactor, timer, now_ns + LPI_FUSE_DROP_LOOK_NS);
		return;
	}
	if (!take_answer(drop))
		return;
	drop->channel->stats.dropped_late++;
	if (drop->held_cnt != NULL)
		answer_by_entry(drop);
	else
		answer_by_descriptor(drop);
}

/* --- Telling ---------------------------------------------------------------------------------- */

/* length 0: to the end. */
static int say(const struct lpi_fuse_drop *drop, uint64_t offset, uint64_t length)
{
	const struct {
		struct fuse_out_header header;
		struct fuse_notify_inval_inode_out out;
	} message = {.header = {.len = sizeof(message), .error = FUSE_NOTIFY_INVAL_INODE},
		     .out = {.ino = drop->ino.nr, .off = (int64_t)offset, .len = (int64_t)length}};
	return write(drop->channel->fd, &message, sizeof(message)) < 0 ? -errno : 0;
}

static int say_all(struct lpi_fuse_drop *drop)
{
	uint64_t end = drop->offset + drop->length;
	uint64_t from = drop->offset;
	if (drop->is_all)
		return say(drop, 0, 0);
	if (drop->may_lock && drop->last_page > from) {
		int err = say(drop, from, drop->last_page - from);
		if (err < 0)
			return err;
		from = drop->last_page;
	}
	atomic_store(&drop->is_at_last, true);
	return say(drop, from, end - from);
}

/* On a thread that may block. A write through the cache has its inode's lock until it is answered,
 * so no other one can have begun. */
static void run(struct lp_work *work)
{
	struct lpi_fuse_drop *drop = LP_CONTAINER_OF(work, struct lpi_fuse_drop, work);
	const struct lp_fuse_channel *channel = drop->channel;
	atomic_store(&drop->tid, gettid());
	lpi_fuse_pages_begin_drop(channel, drop->ino);
	int err = say_all(drop);
	atomic_store(&channel->peers[0]->drops.ended_ns,
		     lp_clock_mono_ns(lp_reactor_clock(channel->options.reactor)));
	bool is_noted = !drop->is_through || atomic_load(&drop->is_answered);
	lpi_fuse_pages_end_drop(channel, drop->ino, is_noted);
	if (err == 0 && drop->is_all)
		lpi_fuse_pages_all_dropped(channel, drop->ino, drop->fills);
	if (drop->held_cnt == NULL && take_answer(drop))
		answer_by_descriptor(drop);
}

static bool begin(struct lpi_fuse_request *request);

static void ended(struct lpi_fuse_drop *drop)
{
	struct lp_fuse_channel *channel = drop->channel;
	struct lpi_fuse_drops *drops = &channel->drops;
	lp_pool_put(drops->pool, drop);
	LP_ASSERT(drops->cnt > 0);
	drops->cnt--;
	struct lpi_fuse_request *next = lpi_fuse_list_pop_front(&drops->waiting);
	bool is_begun = next == NULL || begin(next);
	LP_ASSERT(is_begun); /* a place is free now */
	lpi_fuse_channel_told(channel);
}

static void back(struct lp_reactor *reactor, struct lp_msg *msg)
{
	(void)reactor;
	ended(LP_CONTAINER_OF(msg, struct lpi_fuse_drop, msg));
}

static void let_home_go(struct lpi_fuse_drop *drop)
{
	uint32_t cnt = atomic_fetch_sub(&drop->home->drops.parked_cnt, 1);
	LP_ASSERT(cnt > 0);
	lpi_fuse_channel_check_stopped(drop->home);
}

static void come_home(struct lp_reactor *reactor, struct lp_msg *msg)
{
	struct lpi_fuse_drop *drop = LP_CONTAINER_OF(msg, struct lpi_fuse_drop, msg);
	struct lp_reactor *to = drop->channel->options.reactor;
	let_home_go(drop);
	msg->deliver = back;
	lp_reactor_send(reactor, to, msg);
}

static void done(struct lp_work *work)
{
	struct lpi_fuse_drop *drop = LP_CONTAINER_OF(work, struct lpi_fuse_drop, work);
	struct lp_reactor *reactor = drop->channel->options.reactor;
	lp_timer_stop(reactor, &drop->limit);
	if (drop->held_cnt != NULL) {
		if (take_answer(drop))
			answer_by_entry(drop);
		ended(drop);
	} else if (drop->home == drop->channel) {
		let_home_go(drop);
		ended(drop);
	} else {
		drop->msg.deliver = come_home;
		lp_reactor_send(reactor, drop->home->options.reactor, &drop->msg);
	}
}

/* --- Ranges to drop --------------------------------------------------------------------------- */

/* The kernel may hold the last page locked until the answer: the write did not cover it, and it may
 * not have been cached. */
static void look_at_last_page(struct lpi_fuse_drop *drop)
{
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t end = drop->offset + drop->length;
	drop->last_page = lp_align_down(end - 1, page_bytes);
	drop->may_lock =
		drop->is_through && (drop->offset > drop->last_page || end % page_bytes != 0);
}

static void start_limit(struct lpi_fuse_drop *drop)
{
	struct lp_reactor *reactor = drop->channel->options.reactor;
	look_at_last_page(drop);
	atomic_fetch_add(held_cnt_of(drop->channel), 1);
	drop->began_ns = lp_reactor_now_ns(reactor);
	drop->limit.fire = look;
	lp_timer_start(reactor, &drop->limit, drop->began_ns + LPI_FUSE_DROP_LOOK_NS);
}

/* Gives back all that the request has now; it is answered when the drop has ended. */
static void park(struct lpi_fuse_drop *drop, struct lpi_fuse_request *request)
{
	drop->home = request->home;
	drop->fd = request->home->fd;
	atomic_fetch_add(&drop->home->drops.parked_cnt, 1);
	start_limit(drop);
	lpi_fuse_look_slow(request, drop->err);
	lpi_fuse_end(request, drop->err);
}

static void keep(struct lpi_fuse_drop *drop, struct lpi_fuse_request *request)
{
	drop->request = request;
	drop->held_cnt = &request->entry->ring->held_cnts[request->entry->queue];
	atomic_fetch_add(drop->held_cnt, 1);
	start_limit(drop);
	lpi_fuse_give_back_data(request);
}

/* request->failure and request->left hold the write's result. False: there is no place for the
 * drop. */
static bool begin(struct lpi_fuse_request *request)
{
	struct lp_fuse_channel *channel = request->channel;
	const struct fuse_write_in *in = &request->message.in.write;
	struct lpi_fuse_drop *drop = lp_pool_get(channel->drops.pool);
	if (drop == NULL)
		return false;
	*drop = (struct lpi_fuse_drop){.channel = channel,
				       .ino = lpi_fuse_node(request),
				       .offset = in->offset,
				       .length = in->size,
				       .unique = request->message.header.unique,
				       .err = lpi_fuse_errno_of(request, request->failure),
				       .bytes = (uint32_t)request->left,
				       .fills = request->count,
				       .is_all = request->tries == LPI_FUSE_PAGES_ALL,
				       .is_through = !lpi_fuse_is_uncached(request)};
	drop->work = (struct lp_work){.run = run, .done = done};
	channel->drops.cnt++;
	channel->stats.dropped++;
	if (request->entry == NULL)
		park(drop, request);
	else
		keep(drop, request);
	lp_workers_submit(channel->options.dropper, channel->options.reactor, &drop->work);
	return true;
}

/* Which pages the write may have left wrong: none if the kernel wrote back, because it keeps the
 * pages locked, and no program reads them meanwhile. */
static enum lpi_fuse_pages_wrong judge(struct lpi_fuse_request *request)
{
	const struct fuse_write_in *in = &request->message.in.write;
	struct lp_ino ino = lpi_fuse_node(request);
	if ((in->write_flags & FUSE_WRITE_CACHE) != 0 || in->size == 0)
		return LPI_FUSE_PAGES_NONE;
	/* The kernel waits for writes by FOPEN_DIRECT_IO, and then drops the pages itself. */
	if (lpi_fuse_is_uncached(request) && (in->flags & O_DIRECT) == 0 &&
	    (in->fh & LPI_FUSE_HANDLE_DIRECT) != 0)
		return LPI_FUSE_PAGES_NONE;
	if (lpi_fuse_is_uncached(request))
		return lpi_fuse_pages_behind(request->channel, ino, in->fh, &request->count);
	bool is_wrong = lpi_fuse_pages_take_dropped(request->channel, ino);
	return is_wrong ? LPI_FUSE_PAGES_RANGE : LPI_FUSE_PAGES_NONE;
}

bool lpi_fuse_drop(struct lpi_fuse_request *request, int err, uint32_t bytes)
{
	struct lp_fuse_channel *channel = request->channel;
	request->count = 0;
	enum lpi_fuse_pages_wrong wrong = judge(request);
	if (wrong == LPI_FUSE_PAGES_NONE || channel->options.dropper == NULL ||
	    channel->is_stopping || channel->is_gone)
		return false;
	request->failure = err;
	request->left = bytes;
	request->tries = wrong;
	if (!begin(request))
		lpi_fuse_list_push_back(&channel->drops.waiting, request);
	return true;
}
