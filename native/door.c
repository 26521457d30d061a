/* SPDX-License-Identifier: Apache-2.0 */
/* The door as a source of its reactor: at a turn's beginning queued replies are sent and ended
 * connections are freed. During the turn, connections with bytes to read are read from, one after
 * the other.
 *
 * A tick tells clients that their long requests progress. It also ends clients that are silent in
 * the middle of a message or reply: after send_timeout_ns, or much sooner while others wait for
 * something that they hold. */
#include <stdlib.h>
#include <unistd.h>

#include "native/door_impl.h"

#define CONNS_MAX        1024u
#define REQUESTS_MAX     512u
#define CREDITS_MAX      256u
#define CREDIT_BYTES_MAX (UINT64_C(32) << 20)
#define SEND_TIMEOUT_NS  (30 * LP_NS_PER_S)
#define REQUESTS_LIMIT   (1u << 16)
#define OPENS_MAX        16384u
#define SHARE_PERCENT    50u
/* A refused client asks again. For this time it counts as waiting, which is long enough to find out
 * which client is silent. */
#define REFUSED_NS (2 * LPI_STARVED_NS)

/* --- The turn -----------------------------------------------------------------------------------
 */

static uint32_t poll_door(struct lp_source *source, uint32_t budget)
{
	struct lp_door *door = LP_CONTAINER_OF(source, struct lp_door, source);
	uint32_t did = 0;
	struct lpi_conn *conn = NULL;
	while (did < budget && (conn = lpi_ready_list_pop_front(&door->ready)) != NULL) {
		lpi_conn_receive(conn);
		did++;
	}
	return did;
}

/* Gets that waited for room for replies. */
static void pump(struct lp_door *door)
{
	struct lpi_wait_list waiting;
	struct lpi_request *request = NULL;
	lpi_wait_list_init(&waiting);
	lpi_wait_list_splice_back(&waiting, &door->short_of_room);
	/* A request that finds no room yet is put into the door's list again, in the same order. */
	while ((request = lpi_wait_list_pop_front(&waiting)) != NULL)
		request->opcode->pump(request);
}

static void flush_door(struct lp_source *source)
{
	struct lp_door *door = LP_CONTAINER_OF(source, struct lp_door, source);
	struct lpi_conn *conn = NULL;
	struct lpi_conn *next = NULL;
	if (!lpi_wait_list_is_empty(&door->short_of_room))
		pump(door);
	LP_LIST_FOREACH_SAFE (lpi_end_list, &door->ending, conn, next)
		lpi_conn_check_end(conn);
	/* Last, because the others may queue replies, and the lists are not looked at again before
	 * the thread sleeps. */
	while ((conn = lpi_send_list_pop_front(&door->sendable)) != NULL) {
		if (lpi_conn_is_alive(conn))
			lpi_conn_send(conn);
	}
}

/* Only makes the turn go on to the sources. */
static void kicked(struct lp_task *task)
{
	(void)task;
}

/* --- Silent clients -----------------------------------------------------------------------------
 */

static bool is_starved(const struct lp_door *door)
{
	uint64_t now = lpi_door_now_ns(door);
	const struct lpi_conn *conn = NULL;
	const struct lpi_request *request = lpi_wait_list_first(&door->short_of_room);
	/* A request that waits because its own connection has too many replies does not count. */
	bool is_full = request != NULL &&
		       lpi_conn_reply_room(request->conn, LP_WIRE_PIECE_MAX) < LP_WIRE_PIECE_MAX;
	if (is_full && now - request->waits_ns > LPI_PATIENCE_NS)
		return true;
	if (door->refused_ns != 0 && now - door->refused_ns < REFUSED_NS)
		return true;
	/* Not by the list of throttled connections, because they may be trying again just now. */
	LP_LIST_FOREACH (lpi_conn_list, &door->conns, conn) {
		if (conn->throttled_ns != 0 && !conn->waits_for_own &&
		    now - conn->throttled_ns > LPI_PATIENCE_NS)
			return true;
	}
	return false;
}

/* True if since_ns is more than LPI_STARVED_NS ago, and a connection, any one or one of the same
 * user, has been starved for as long. */
static bool is_too_slow(const struct lpi_conn *conn, uint64_t since_ns)
{
	uint64_t starved_ns = conn->door->starved_ns;
	uint64_t short_ns = conn->user->short_ns;
	if (starved_ns == 0 || (short_ns != 0 && short_ns < starved_ns))
		starved_ns = short_ns;
	return starved_ns != 0 &&
	       lpi_door_now_ns(conn->door) - LP_MAX(since_ns, starved_ns) > LPI_STARVED_NS;
}

static bool reads_too_slowly(const struct lpi_conn *conn, uint64_t limit_ns)
{
	uint64_t now = lpi_door_now_ns(conn->door);
	if (!lp_io_is_idle(&conn->send_io) && now - conn->send_began_ns > limit_ns)
		return true;
	return conn->send_pace_ns != 0 && is_too_slow(conn, conn->send_pace_ns);
}

static bool sends_too_slowly(const struct lpi_conn *conn, uint64_t limit_ns)
{
	bool is_amid =
		conn->head_bytes > 0 || conn->coming != NULL || conn->state == LPI_CONN_GREETING;
	if (conn->state > LPI_CONN_SERVING || !is_amid || conn->throttle != LPI_THROTTLE_NONE ||
	    conn->stash != NULL)
		return false;
	return lpi_door_now_ns(conn->door) - conn->progress_ns > limit_ns ||
	       is_too_slow(conn, conn->pace_ns);
}

static void check_silence(struct lpi_conn *conn, uint64_t limit_ns)
{
	struct lp_door *door = conn->door;
	if (conn->user->is_short)
		limit_ns = LP_MIN(limit_ns, LPI_STARVED_NS);
	if (reads_too_slowly(conn, limit_ns)) {
		door->stats.timeouts++;
		lpi_conn_end(conn);
	} else if (sends_too_slowly(conn, limit_ns)) {
		door->stats.timeouts++;
		lpi_conn_part(conn, -ETIMEDOUT, "the rest of a message did not come in time");
	}
}

static void look_after(struct lpi_conn *conn, uint64_t limit_ns)
{
	lpi_conn_give_signs(conn);
	check_silence(conn, limit_ns);
}

static void start_tick(struct lp_door *door)
{
	uint64_t at = lpi_door_now_ns(door) + door->tick_ns;
	if (door->is_stopping)
		at = LP_MIN(at, door->stop_deadline_ns);
	lp_timer_start(door->options.reactor, &door->tick, at);
}

static void tick(struct lp_timer *timer)
{
	struct lp_door *door = LP_CONTAINER_OF(timer, struct lp_door, tick);
	uint64_t limit_ns = door->options.send_timeout_ns;
	bool is_over = door->is_stopping && lpi_door_now_ns(door) >= door->stop_deadline_ns;
	struct lpi_conn *conn = NULL;
	bool is_short = is_starved(door);
	lpi_door_look_at_users(door);
	if (is_short)
		limit_ns = LP_MIN(limit_ns, LPI_STARVED_NS);
	if (!is_short || door->starved_ns == 0)
		door->starved_ns = is_short ? lpi_door_now_ns(door) : 0;
	LP_LIST_FOREACH (lpi_conn_list, &door->conns, conn) {
		if (is_over)
			lpi_conn_end(conn);
		else if (lpi_conn_is_alive(conn))
			look_after(conn, limit_ns);
	}
	lp_slow_forget(&door->slow,
		       (uint64_t)lp_clock_wall_ns(lp_reactor_clock(door->options.reactor)));
	if (is_over)
		door->stop_deadline_ns = UINT64_MAX;
	if (!lpi_conn_list_is_empty(&door->conns))
		start_tick(door);
}

static void retry(struct lp_timer *timer)
{
	struct lp_door *door = LP_CONTAINER_OF(timer, struct lp_door, retry);
	struct lpi_throttled_list waiting;
	struct lpi_conn *conn = NULL;
	lpi_throttled_list_init(&waiting);
	lpi_throttled_list_splice_back(&waiting, &door->throttled);
	while ((conn = lpi_throttled_list_pop_front(&waiting)) != NULL)
		lpi_conn_unthrottle(conn);
}

/* --- Birth and death ----------------------------------------------------------------------------
 */

static void set_defaults(struct lp_door_options *options)
{
	if (options->conns_max == 0)
		options->conns_max = CONNS_MAX;
	if (options->requests_max == 0)
		options->requests_max = REQUESTS_MAX;
	if (options->opens_max == 0)
		options->opens_max = OPENS_MAX;
	if (options->share_percent == 0)
		options->share_percent = SHARE_PERCENT;
	if (options->credits_max == 0)
		options->credits_max = CREDITS_MAX;
	if (options->credit_bytes_max == 0)
		options->credit_bytes_max = CREDIT_BYTES_MAX;
	if (options->send_timeout_ns == 0)
		options->send_timeout_ns = SEND_TIMEOUT_NS;
	/* One message must fit. */
	options->credit_bytes_max = LP_MAX(options->credit_bytes_max, (uint64_t)LP_WIRE_DATA_MAX);
	options->credit_bytes_max = LP_MIN(options->credit_bytes_max, (uint64_t)UINT32_MAX);
}

/* Often enough that no client is silent for much longer than allowed. */
static void set_tick(struct lp_door *door)
{
	door->tick_ns = LP_MIN(door->options.send_timeout_ns / 4, LP_NS_PER_S / 2);
}

/* Bounds within its own part of the buffers: the doors of a thread share one region. */
static void set_bounds(struct lp_door *door)
{
	struct lp_bufs_stats bufs;
	lp_bufs_read_stats(door->options.bufs, &bufs);
	uint64_t bytes = bufs.region_bytes;
	if (door->options.bufs_bytes != 0)
		bytes = LP_MIN(bytes, door->options.bufs_bytes);
	/* The reserved part is for the work that these requests cause. */
	bytes -= bytes * (bufs.reserved_bytes >> 20) / (bufs.region_bytes >> 20);
	door->receiving_bytes_max = bytes / 2;
	door->reply_bytes_max = bytes / 2;
	door->held_bytes_max = bytes / 4;
	uint64_t *max = door->quota.max;
	max[LPI_QUOTA_CONNS] = door->options.conns_max;
	max[LPI_QUOTA_REQUESTS] = door->options.requests_max;
	max[LPI_QUOTA_PIECES] = LPI_PIECES;
	max[LPI_QUOTA_OPENS] = door->options.opens_max;
	max[LPI_QUOTA_COMING] = door->receiving_bytes_max;
	max[LPI_QUOTA_GOING] = door->reply_bytes_max;
	max[LPI_QUOTA_META] = door->held_bytes_max;
	max[LPI_QUOTA_SHARED] = door->options.share_bytes;
	max[LPI_QUOTA_STASH] = LPI_STASH_BYTES_MAX;
}

static int new_pools(struct lp_door *door)
{
	const struct lp_pool_config requests = {.name = "requests",
						.object_bytes = sizeof(struct lpi_request),
						.limit = door->options.requests_max,
						.limit_max = REQUESTS_LIMIT};
	const struct lp_pool_config pieces = {
		.name = "pieces", .object_bytes = sizeof(struct lpi_piece), .limit = LPI_PIECES};
	const struct lp_pool_config opens = {.name = "opens",
					     .object_bytes = sizeof(struct lpi_open),
					     .limit = door->options.opens_max};
	int r = lp_pool_new(&requests, &door->requests);
	if (r >= 0)
		r = lp_pool_new(&pieces, &door->pieces);
	if (r >= 0)
		r = lp_pool_new(&opens, &door->opens);
	return r < 0 ? r : lp_bufs_new(LPI_ADMIN_BUFS_BYTES, &door->admin_bufs);
}

static int new_latencies(struct lp_door *door)
{
	uint32_t cnt = door->opcodes->cnt;
	for (uint32_t i = 0; i < cnt; i++)
		door->latency_idx[door->opcodes->all[i].code] = (uint8_t)i;
	LP_ASSERT(cnt > 0);
	door->latencies = calloc(cnt, sizeof(*door->latencies));
	if (door->latencies == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < cnt; i++)
		lp_hist_reset(&door->latencies[i]);
	return 0;
}

static void init_lists(struct lp_door *door)
{
	lpi_conn_list_init(&door->conns);
	lpi_ready_list_init(&door->ready);
	lpi_throttled_list_init(&door->throttled);
	lpi_throttled_list_init(&door->capped);
	lpi_send_list_init(&door->sendable);
	lpi_end_list_init(&door->ending);
	lpi_wait_list_init(&door->short_of_room);
	for (uint32_t i = 0; i < LPI_OPEN_BUCKETS; i++)
		lpi_open_bucket_init(&door->open_buckets[i]);
}

static void say_stopped(struct lp_task *task)
{
	struct lp_door *door = LP_CONTAINER_OF(task, struct lp_door, stopped_task);
	lp_timer_stop(door->options.reactor, &door->tick);
	lp_timer_stop(door->options.reactor, &door->retry);
	if (lp_task_is_queued(&door->kick))
		lp_task_cancel(&door->kick);
	lp_source_remove(door->options.reactor, &door->source);
	door->stopped(door->stopped_arg);
}

int lpi_door_new(const struct lp_door_options *options, const struct lpi_opcodes *opcodes,
		 struct lp_door **ret_door)
{
	struct lp_door *door = calloc(1, sizeof(*door));
	if (door == NULL)
		return -ENOMEM;
	door->options = *options;
	door->opcodes = opcodes;
	set_defaults(&door->options);
	init_lists(door);
	lpi_quota_init(&door->quota, door->options.share_percent);
	set_bounds(door);
	set_tick(door);
	door->tick.fire = tick;
	door->retry.fire = retry;
	door->stopped_task.run = say_stopped;
	door->kick.run = kicked;
	int r = new_pools(door);
	if (r >= 0)
		r = new_latencies(door);
	door->scratch = malloc(LPI_SCRATCH_BYTES);
	if (r < 0 || door->scratch == NULL) {
		lp_door_free(door);
		return r < 0 ? r : -ENOMEM;
	}
	door->source = (struct lp_source){.name = "native door",
					  .budget = LPI_READY_BUDGET,
					  .poll = poll_door,
					  .flush = flush_door};
	lp_source_add(options->reactor, &door->source);
	*ret_door = door;
	return 0;
}

void lp_door_free(struct lp_door *door)
{
	if (door == NULL)
		return;
	LP_ASSERT(lpi_conn_list_is_empty(&door->conns));
	lpi_quota_fini(&door->quota);
	lp_pool_free(door->requests);
	lp_pool_free(door->pieces);
	lp_pool_free(door->opens);
	lp_bufs_free(door->admin_bufs);
	free(door->latencies);
	free(door->scratch);
	free(door);
}

/* --- Connections --------------------------------------------------------------------------------
 */

static struct lpi_conn *new_conn(struct lp_door *door, int fd, const struct lp_peer *peer,
				 const uint8_t *head, uint32_t read)
{
	struct lpi_conn *conn = calloc(1, sizeof(*conn));
	if (conn == NULL)
		return NULL;
	uint8_t *stash = read > 0 ? malloc(read) : NULL;
	if ((read > 0 && stash == NULL) ||
	    lpi_quota_join(&door->quota, &peer->who, &conn->user) < 0) {
		free(stash);
		free(conn);
		return NULL;
	}
	conn->door = door;
	if (read > 0) {
		memcpy(stash, head, read);
		lpi_conn_keep_stash(conn, stash, read);
	}
	conn->fd = fd;
	conn->peer = *peer;
	conn->crc_mode = LP_WIRE_CRC_HEADER;
	conn->meta_max = LP_WIRE_META_MAX;
	conn->credits = 1;
	conn->read_all = true;
	conn->progress_ns = lpi_door_now_ns(door);
	conn->active_ns = conn->progress_ns;
	conn->pace_ns = conn->progress_ns;
	lpi_request_list_init(&conn->requests);
	lpi_wait_list_init(&conn->waiting);
	lpi_reply_list_init(&conn->replies);
	lpi_open_list_init(&conn->opens);
	return conn;
}

int lp_door_adopt(struct lp_door *door, int fd, const struct lp_peer *peer, const uint8_t *head,
		  uint32_t read)
{
	int r = -ENOMEM;
	struct lpi_conn *conn = NULL;
	LP_ASSERT(lp_reactor_is_mine(door->options.reactor));
	if (door->is_stopping)
		r = -EAGAIN;
	else
		conn = new_conn(door, fd, peer, head, read);
	if (conn == NULL) {
		door->stats.conns_refused++;
		close(fd);
		return r;
	}
	lpi_conn_list_push_back(&door->conns, conn);
	door->stats.conns++;
	if (!lp_timer_is_armed(&door->tick))
		start_tick(door);
	enum lpi_quota_verdict verdict = lpi_door_find_place(conn);
	if (verdict != LPI_QUOTA_OK) {
		lpi_door_turn_away(conn, verdict);
		return -EMFILE;
	}
	door->stats.conns_total++;
	lpi_conn_go_on(conn);
	return 0;
}

void lp_door_stop(struct lp_door *door, uint64_t timeout_ns, void (*stopped)(void *arg), void *arg)
{
	struct lpi_conn *conn = NULL;
	uint64_t now = lpi_door_now_ns(door);
	LP_ASSERT(!door->is_stopping);
	door->is_stopping = true;
	door->stopped = stopped;
	door->stopped_arg = arg;
	door->stop_deadline_ns = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
	LP_LIST_FOREACH (lpi_conn_list, &door->conns, conn) {
		if (timeout_ns == 0)
			lpi_conn_end(conn);
		else
			lpi_conn_finish(conn);
	}
	if (!lpi_conn_list_is_empty(&door->conns))
		start_tick(door);
	lpi_door_check_stopped(door);
}

int lp_door_set_requests_max(struct lp_door *door, uint32_t requests_max)
{
	if (requests_max == 0 || requests_max > REQUESTS_LIMIT)
		return -EINVAL;
	int r = lp_pool_resize(door->requests, requests_max);
	if (r < 0)
		return r;
	door->options.requests_max = requests_max;
	door->quota.max[LPI_QUOTA_REQUESTS] = requests_max;
	if (!lpi_throttled_list_is_empty(&door->throttled))
		lp_timer_start(door->options.reactor, &door->retry, lpi_door_now_ns(door));
	return 0;
}

void lp_door_set_credits(struct lp_door *door, uint32_t credits_max, uint64_t credit_bytes_max)
{
	door->options.credits_max = credits_max;
	door->options.credit_bytes_max = credit_bytes_max;
	set_defaults(&door->options);
}

void lp_door_set_limits(struct lp_door *door, uint32_t conns_max, uint64_t send_timeout_ns,
			enum lp_wire_crc crc_min)
{
	door->options.conns_max = conns_max;
	door->options.send_timeout_ns = send_timeout_ns;
	door->options.crc_min = crc_min;
	set_defaults(&door->options);
	door->quota.max[LPI_QUOTA_CONNS] = door->options.conns_max;
	set_tick(door);
}

void lp_door_set_share_percent(struct lp_door *door, uint32_t share_percent)
{
	door->options.share_percent = share_percent;
	set_defaults(&door->options);
	door->quota.share_percent = door->options.share_percent;
}

/* --- Figures ------------------------------------------------------------------------------------
 */

static_assert((int)LPI_REQUEST_STATE_CNT <= (int)LP_SLOW_STATES_MAX, "each has a place");

const char *lp_door_state_name(uint32_t state)
{
	return state < LPI_REQUEST_STATE_CNT ? lpi_request_table.states[state].name : NULL;
}

void lp_door_rest(struct lp_door *door)
{
	(void)lp_pool_trim(door->requests);
	(void)lp_pool_trim(door->pieces);
	(void)lp_pool_trim(door->opens);
	if (lp_bufs_reach(door->admin_bufs) > 0)
		lp_bufs_trim(door->admin_bufs, 0);
}

void lp_door_read_stats(const struct lp_door *door, struct lp_door_stats *ret_stats)
{
	const uint64_t *met = door->quota.met;
	*ret_stats = door->stats;
	ret_stats->requests_under_way = door->under_way;
	ret_stats->users = door->quota.user_cnt;
	ret_stats->limits_conns = met[LPI_QUOTA_CONNS];
	ret_stats->limits_requests = met[LPI_QUOTA_REQUESTS];
	ret_stats->limits_pieces = met[LPI_QUOTA_PIECES];
	ret_stats->limits_opens = met[LPI_QUOTA_OPENS];
	ret_stats->limits_coming = met[LPI_QUOTA_COMING];
	ret_stats->limits_going = met[LPI_QUOTA_GOING];
	ret_stats->limits_meta = met[LPI_QUOTA_META];
	ret_stats->limits_shared = met[LPI_QUOTA_SHARED];
	ret_stats->limits_stash = met[LPI_QUOTA_STASH];
}

const struct lp_hist *lp_door_latency(const struct lp_door *door, uint16_t opcode)
{
	const struct lpi_opcode *known = lpi_opcode_find(door->opcodes, opcode);
	if (known == NULL)
		return NULL;
	const struct lp_hist *hist = &door->latencies[door->latency_idx[known->code]];
	return hist->count > 0 ? hist : NULL;
}

uint32_t lp_door_slow(const struct lp_door *door, struct lp_slow_request *ret, uint32_t max)
{
	return lp_slow_read(&door->slow, ret, max);
}

/* --- Requests under way ----------------------------------------------------------------------- */

static const char *waits_for(const struct lpi_request *request)
{
	switch ((enum lpi_request_state)lp_sm_state(&request->sm)) {
	case LPI_REQUEST_REST:
	case LPI_REQUEST_DATA:
		return request->conn->throttle == LPI_THROTTLE_BUFFERS ? "buffers" : "its client";
	case LPI_REQUEST_WAIT:
		return "an earlier request";
	case LPI_REQUEST_REPLY:
		return "its client";
	case LPI_REQUEST_FIND:
	case LPI_REQUEST_WORK:
	case LPI_REQUEST_CLOSE:
	case LPI_REQUEST_DONE:
	case LPI_REQUEST_DROPPED:
	case LPI_REQUEST_STATE_CNT:
		break;
	}
	return NULL;
}

static bool is_at_work(const struct lpi_request *request)
{
	unsigned state = lp_sm_state(&request->sm);
	bool is_admin = request->opcode != NULL && request->opcode->code >= LP_WIRE_OP_STATUS;
	return !is_admin && (state == LPI_REQUEST_WAIT || state == LPI_REQUEST_FIND ||
			     state == LPI_REQUEST_WORK || state == LPI_REQUEST_CLOSE);
}

static uint64_t size_of(const struct lp_buf *buf)
{
	return buf != NULL ? buf->bytes : 0;
}

static void fill_row(struct lp_under_way *row, const struct lpi_request *request, uint64_t now_ns)
{
	row->part = "socket";
	row->operation = request->opcode != NULL ? request->opcode->name : "unknown";
	row->state = lp_sm_state_name(&request->sm);
	row->waits_for = waits_for(request);
	uint64_t since_ns = request->began_ns != 0 ? request->began_ns : request->sm.entered_ns;
	row->age_ns = now_ns - LP_MIN(since_ns, now_ns);
	row->held_bytes =
		size_of(request->meta_buf) + size_of(request->crcs_buf) + size_of(request->room);
	for (uint32_t i = 0; i < request->seg_cnt; i++)
		row->held_bytes += size_of(request->segs[i].buf);
	row->ino_nr = request->refs[0].found.nr;
	lpi_request_tell_object(request, row->object, sizeof(row->object));
}

uint64_t lp_door_under_way(struct lp_door *door, struct lp_under_way_list *list)
{
	uint64_t now_ns = lpi_door_now_ns(door);
	uint64_t work_cnt = 0;
	struct lpi_conn *conn = NULL;
	struct lpi_request *request = NULL;
	for (int round = 0; round < 2; round++) {
		LP_LIST_FOREACH (lpi_conn_list, &door->conns, conn) {
			LP_LIST_FOREACH (lpi_request_list, &conn->requests, request) {
				if (is_at_work(request) != (round == 0))
					continue;
				struct lp_under_way *row = lp_under_way_add(list);
				if (row != NULL)
					fill_row(row, request, now_ns);
				work_cnt += round == 0;
			}
		}
	}
	return work_cnt;
}
