/* SPDX-License-Identifier: Apache-2.0 */
/* One of the channels is the reader: the one that had requests last. A poll tells it that the
 * descriptor has messages. It reads until there are none, a few messages in a turn. If all of them
 * were for one other channel, that one is the reader from then on. So a program that works on one
 * file or in one directory wakes one thread, and none of its requests passes through two threads.
 * (If each channel had a poll, the kernel would wake all threads for each request, and one of them
 * would find it.) When there are more messages than for one turn, the reader invites the next
 * channel to read as well. That one invites the next, until there are no messages.
 *
 *   idle       not the reader: waits for requests that are handed over, or to become it
 *   resting    the reader, and has read all there was: looks again when its thread has nothing to
 *              do, and arms a poll before that sleeps, or after some turns if it never does
 *   armed      the reader, and its poll is armed
 *   reading    read_task is queued
 *   throttled  the reader, without request or buffers, and so are all others: goes on when a
 *              request ends, or by the retry timer if the buffers are with somebody else
 *   gone       the connection has ended: nothing is read any more
 *   to stop    the kernel is being told something: it may ask before that returns, so this reads
 *              until then, also when it is not the reader
 *   stopping   the poll is cancelled; when it has come back and no request is under way: stopped
 */
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "fuse/channel_state.h"
#include "fuse/handover.h"

#define READS_PER_TURN 16u
#define REST_TURNS     8u
#define RETRY_NS       (2 * LP_NS_PER_MS)
/* Data under way on a channel may take this share of its thread's buffers: one in BYTES_SHARE. */
#define BYTES_SHARE 4u

/* A message fills the buffers in this order. Unfilled buffers stay for the next message. So a write
 * of a power of two takes 4 KiB more than its data, and any other less than twice as much. */
static const uint32_t landing_bytes[LPI_FUSE_SEGS] = {4096, 65536, 65536, 131072, 262144, 524288};

static_assert(4096 + 65536 + 65536 + 131072 + 262144 + 524288 >= LP_FUSE_WRITE_MAX,
	      "a write lands");

static void read_some(struct lp_task *task);
static void go_on(struct lp_fuse_channel *channel);
static void arm(struct lp_fuse_channel *channel);
static void wait_for_more(struct lp_fuse_channel *channel);

/* --- Stopping --------------------------------------------------------------------------------- */

static void run_stopped(struct lp_task *task)
{
	struct lp_fuse_channel *channel =
		LP_CONTAINER_OF(task, struct lp_fuse_channel, stopped_task);
	channel->stopped(channel->stopped_arg);
}

static void give_back_landing(struct lp_fuse_channel *channel)
{
	for (uint32_t i = 0; i < LPI_FUSE_SEGS; i++) {
		lp_buf_put(channel->landing[i]);
		channel->landing[i] = NULL;
	}
	if (channel->spare != NULL)
		lp_pool_put(channel->requests, channel->spare);
	channel->spare = NULL;
}

static void all_forgotten(struct lp_ns_op *op);

/* The kernel that held inodes has gone, so all of them are forgotten. Each channel says so, because
 * the last one to stop has seen the end of all requests. */
static void forget_all(struct lp_fuse_channel *channel)
{
	channel->is_forgetting = true;
	channel->has_forgotten = channel->is_stopping;
	channel->forget_op = (struct lp_ns_op){
		.opcode = LP_NS_FORGET, .complete = all_forgotten, .forget = {.all = true}};
	lp_ns_submit(channel->options.ns, &channel->forget_op);
}

void lpi_fuse_channel_check_stopped(struct lp_fuse_channel *channel)
{
	if (!channel->is_stopping || channel->stopped == NULL || channel->stats.under_way > 0 ||
	    !lp_io_is_idle(&channel->poll_io) || !lp_io_is_idle(&channel->cancel_io) ||
	    lp_task_is_queued(&channel->stopped_task) || channel->has_invited ||
	    channel->is_forgetting || !lpi_fuse_ring_is_idle(channel) ||
	    lpi_fuse_is_parking(channel))
		return;
	if (!channel->has_forgotten) {
		forget_all(channel);
		return;
	}
	lp_task_cancel(&channel->read_task);
	lp_timer_stop(channel->options.reactor, &channel->retry);
	if (lp_list_node_is_linked(&channel->source.node))
		lp_source_remove(channel->options.reactor, &channel->source);
	give_back_landing(channel);
	if (channel->fd >= 0)
		(void)close(channel->fd); /* requests that were not read go to other channels, or to
					     none */
	channel->fd = -1;
	lp_task_queue(channel->options.reactor, &channel->stopped_task);
}

static void all_forgotten(struct lp_ns_op *op)
{
	struct lp_fuse_channel *channel = LP_CONTAINER_OF(op, struct lp_fuse_channel, forget_op);
	channel->is_forgetting = false;
	lpi_fuse_channel_check_stopped(channel);
}

/* --- Landing ---------------------------------------------------------------------------------- */

/* Prepares all that the next message may need; false: not possible now. */
static bool prepare(struct lp_fuse_channel *channel)
{
	if (channel->bytes_out >= channel->bytes_max && channel->stats.under_way > 0)
		return false;
	if (lpi_fuse_rooms_are_wanted(&channel->rooms))
		return false;
	if (channel->spare == NULL)
		channel->spare = lp_pool_get(channel->requests);
	if (channel->spare == NULL)
		return false;
	for (uint32_t i = 0; i < LPI_FUSE_SEGS; i++) {
		if (channel->landing[i] == NULL)
			channel->landing[i] = lp_buf_new_ranked(channel->options.bufs,
								landing_bytes[i], LP_BUF_MOUNT);
		if (channel->landing[i] == NULL)
			return false;
	}
	return true;
}

static void set_iovs(struct lp_fuse_channel *channel, struct iovec *iovs)
{
	iovs[0] = (struct iovec){channel->head, LPI_FUSE_HEAD_BYTES};
	for (uint32_t i = 0; i < LPI_FUSE_SEGS; i++)
		iovs[i + 1] = (struct iovec){channel->landing[i]->data, landing_bytes[i]};
}

/* Keeps the data that landed behind the head where it is. */
static void take_data(struct lpi_fuse_request *request, uint32_t bytes)
{
	struct lp_fuse_channel *channel = request->channel;
	for (uint32_t i = 0; bytes > 0; i++) {
		LP_ASSERT(i < LPI_FUSE_SEGS);
		uint32_t len = LP_MIN(bytes, landing_bytes[i]);
		request->segs[i] = (struct lp_seg){.buf = channel->landing[i], .len = len};
		request->seg_cnt = i + 1;
		channel->landing[i] = NULL;
		bytes -= len;
	}
}

/* The landed parts in one piece, in one of the buffers that they landed in: one is large enough. */
static uint8_t *gather_landed(struct lpi_fuse_request *request, uint32_t len)
{
	struct lp_fuse_channel *channel = request->channel;
	uint32_t at = LPI_FUSE_HEAD_BYTES;
	uint32_t largest = 0;
	for (; largest < LPI_FUSE_SEGS && landing_bytes[largest] < len; largest++)
		at += landing_bytes[largest];
	if (largest == LPI_FUSE_SEGS)
		return NULL;
	request->message_buf = channel->landing[largest];
	channel->landing[largest] = NULL;
	uint8_t *to = request->message_buf->data;
	if (len > at)
		memmove(to + at, to, len - at);
	at = LPI_FUSE_HEAD_BYTES;
	for (uint32_t i = 0; i < largest && at < len; i++) {
		memcpy(to + at, channel->landing[i]->data, LP_MIN(len - at, landing_bytes[i]));
		at += landing_bytes[i];
	}
	return to;
}

/* The message in one piece of memory of its own. */
static const void *gather(struct lpi_fuse_request *request, uint32_t len)
{
	struct lp_fuse_channel *channel = request->channel;
	uint32_t in_head = LP_MIN(len, (uint32_t)LPI_FUSE_HEAD_BYTES);
	uint8_t *to = (uint8_t *)request->bytes;
	if (len > LPI_FUSE_INLINE_BYTES)
		to = gather_landed(request, len);
	else if (len > in_head)
		memcpy(to + in_head, channel->landing[0]->data, len - in_head);
	if (to != NULL)
		memcpy(to, channel->head, in_head);
	return to;
}

void lpi_fuse_channel_begin(struct lpi_fuse_request *request)
{
	const struct lp_fuse_message *message = &request->message;
	lpi_fuse_step_fn *step = request->channel->find_step(message->header.opcode);
	lpi_fuse_prune_check(request->channel);
	lpi_fuse_move(request, LPI_FUSE_WORK);
	if (step != NULL)
		step(request);
	else if (message->opcode->is_silent)
		lpi_fuse_end(request, 0);
	else
		lpi_fuse_answer(request, -ENOSYS);
}

/* Begins a write on the thread it was handed to; or on the thread that read it, if the other has no
 * room for its data. */
static void begin_handed(struct lpi_fuse_request *request)
{
	bool is_here = request->channel == request->home;
	if (request->message.header.opcode != FUSE_WRITE || is_here ||
	    request->message.in.write.size == 0 || lpi_fuse_adopt_data(request))
		lpi_fuse_channel_begin(request);
	else
		lpi_fuse_hand_over(request, request->home, begin_handed);
}

static void begin_where_it_belongs(struct lpi_fuse_request *request)
{
	struct lp_fuse_channel *channel = request->channel;
	struct lp_fuse_channel *place = lpi_fuse_place_of(request);
	if (place != NULL && channel->reads_for == NULL)
		channel->reads_for = place;
	else if (place != NULL && channel->reads_for != place)
		channel->reads_for = channel; /* for several */
	if (place == NULL || place == channel) {
		lpi_fuse_channel_begin(request);
		return;
	}
	if (request->message.header.opcode == FUSE_WRITE) {
		request->home_bytes = request->message.in.write.size;
		channel->bytes_out += request->home_bytes;
	}
	channel->stats.handed_over++;
	lpi_fuse_hand_over(request, place, begin_handed);
}

void lpi_fuse_channel_refuse(struct lpi_fuse_request *request, int err)
{
	struct lp_fuse_channel *channel = request->channel;
	const struct fuse_in_header *header = &request->message.header;
	lpi_fuse_move(request, LPI_FUSE_WORK);
	if (err == -EINVAL) {
		channel->stats.refused++;
		LP_LOG_WARN("the mount: a request of the kernel cannot be understood (opcode %u, "
			    "%u bytes)",
			    header->opcode, header->len);
	}
	bool is_silent = request->message.opcode != NULL && request->message.opcode->is_silent;
	if (is_silent && request->entry == NULL)
		lpi_fuse_end(request, err);
	else
		lpi_fuse_answer(request, err);
}

static void init_request(struct lp_fuse_channel *channel, struct lpi_fuse_request *request)
{
	memset(request, 0, offsetof(struct lpi_fuse_request, after_name));
	request->home = channel;
	request->channel = channel;
	lp_sm_init(&request->sm, &lpi_fuse_request_table, NULL,
		   lp_reactor_now_ns(channel->options.reactor));
	channel->stats.under_way++;
	lpi_fuse_home_list_push_back(&channel->at_home, request);
	request->began_ns = lp_clock_mono_ns(lp_reactor_clock(channel->options.reactor));
}

struct lpi_fuse_request *lpi_fuse_channel_take(struct lp_fuse_channel *channel)
{
	struct lpi_fuse_request *request = lp_pool_get(channel->requests);
	if (request != NULL)
		init_request(channel, request);
	return request;
}

/* Whether the message need not be in one piece: what follows the head stays where it landed. */
static bool is_split(const struct fuse_in_header *header, uint32_t len)
{
	return len >= LPI_FUSE_HEAD_BYTES &&
	       (header->opcode == FUSE_WRITE || header->opcode == FUSE_BATCH_FORGET);
}

static int decode_landed(struct lpi_fuse_request *request, const struct fuse_in_header *header,
			 uint32_t len)
{
	struct lp_fuse_channel *channel = request->channel;
	const void *bytes = request->bytes;
	bool is_in_place = is_split(header, len);
	static_assert(sizeof(request->bytes) >= LPI_FUSE_HEAD_BYTES, "a head is inline");
	if (is_in_place)
		memcpy(request->bytes, channel->head, LPI_FUSE_HEAD_BYTES);
	else
		bytes = gather(request, len);
	if (bytes == NULL) {
		request->message.header = *header;
		return -ENOMEM;
	}
	int err = lp_fuse_decode(bytes, len, &request->message);
	if (err == 0 && is_in_place)
		take_data(request, len - (uint32_t)LPI_FUSE_HEAD_BYTES);
	return err;
}

static void landed(struct lp_fuse_channel *channel, uint32_t len)
{
	struct fuse_in_header header;
	if (len < sizeof(header))
		return; /* there is no caller to be told */
	memcpy(&header, channel->head, sizeof(header));
	struct lpi_fuse_request *request = channel->spare;
	channel->spare = NULL;
	init_request(channel, request);
	int err = decode_landed(request, &header, len);
	if (err == 0)
		begin_where_it_belongs(request);
	else
		lpi_fuse_channel_refuse(request, err);
}

/* --- Reading ---------------------------------------------------------------------------------- */

void lpi_fuse_channel_gone(struct lp_fuse_channel *channel)
{
	if (channel->is_gone)
		return;
	channel->is_gone = true;
	if (channel->is_stopping)
		return;
	lpi_fuse_end_telling(channel);
	forget_all(channel);
	if (channel->options.gone != NULL)
		channel->options.gone(channel->options.arg);
}

/* 1: a message; 0: there is none; -EAGAIN: throttled. */
static int read_one(struct lp_fuse_channel *channel)
{
	struct iovec iovs[LPI_FUSE_SEGS + 1];
	if (!prepare(channel))
		return -EAGAIN;
	set_iovs(channel, iovs);
	ssize_t len = readv(channel->fd, iovs, LP_ARRAY_SIZE(iovs));
	channel->stats.reads++;
	if (len > 0) {
		channel->passed_cnt = 0;
		landed(channel, (uint32_t)len);
		return 1;
	}
	/* The request was taken back while it was read, or there was a signal. The next request may
	 * be there. */
	if (len < 0 && (errno == ENOENT || errno == EINTR))
		return 1;
	if (len == 0 || errno != EAGAIN)
		lpi_fuse_channel_gone(channel);
	return 0;
}

/* This channel becomes the reader, perhaps before it serves. */
static void come_reader(struct lp_reactor *reactor, struct lp_msg *msg)
{
	const struct lp_fuse_channel *from =
		LP_CONTAINER_OF(msg, struct lp_fuse_channel, reader_msg);
	struct lp_fuse_channel *channel = from->next_reader;
	LP_ASSERT(lp_reactor_is_mine(channel->options.reactor) && !channel->is_reader);
	(void)reactor;
	channel->is_reader = true;
	channel->passed_cnt = from->passes;
	if (channel->fd >= 0 && !channel->is_stopping && !channel->is_gone)
		wait_for_more(channel);
}

static void pass_on(struct lp_fuse_channel *channel, struct lp_fuse_channel *to)
{
	LP_ASSERT(channel->is_reader && to != channel); /* mount F5 */
	LP_ASSERT(lp_io_is_idle(&channel->poll_io));
	channel->is_reader = false;
	channel->is_resting = false;
	channel->passes = channel->is_throttled ? channel->passed_cnt + 1 : 0;
	channel->is_throttled = false;
	/* The message comes back to this channel before it becomes the reader again. */
	channel->next_reader = to;
	channel->reader_msg.deliver = come_reader;
	lp_reactor_send(channel->options.reactor, to->options.reactor, &channel->reader_msg);
}

static struct lp_fuse_channel *next_of(const struct lp_fuse_channel *channel)
{
	return channel->peers[(channel->idx + 1) % channel->peer_cnt];
}

static void invitation_back(struct lp_reactor *reactor, struct lp_msg *msg)
{
	struct lp_fuse_channel *channel = LP_CONTAINER_OF(msg, struct lp_fuse_channel, invitation);
	(void)reactor;
	channel->has_invited = false;
	lpi_fuse_channel_check_stopped(channel);
}

static void come_invitation(struct lp_reactor *reactor, struct lp_msg *msg)
{
	struct lp_fuse_channel *from = LP_CONTAINER_OF(msg, struct lp_fuse_channel, invitation);
	struct lp_fuse_channel *channel = next_of(from);
	if (channel->fd >= 0 && !channel->is_reader)
		go_on(channel);
	msg->deliver = invitation_back;
	lp_reactor_send(reactor, from->options.reactor, msg);
}

static void invite(struct lp_fuse_channel *channel)
{
	if (channel->has_invited || channel->peer_cnt == 1)
		return;
	channel->has_invited = true;
	channel->invitation.deliver = come_invitation;
	lp_reactor_send(channel->options.reactor, next_of(channel)->options.reactor,
			&channel->invitation);
}

/* Whether the channel, as the reader, must wait for requests. An invited channel may have become
 * the reader meanwhile and have armed its poll, which then reports further requests. */
static bool has_to_wait(const struct lp_fuse_channel *channel)
{
	return channel->is_reader && !channel->is_gone && lp_io_is_idle(&channel->poll_io);
}

/* Whether the channel waits for requests even if it is not the reader. It stops when the kernel has
 * been told of a change. Until then it must read, because the reader may have stopped, and the
 * message to the kernel may need an answer first. */
static bool reads_alone(const struct lp_fuse_channel *channel)
{
	return channel->is_to_stop && !channel->is_stopping && !channel->is_gone &&
	       channel->fd >= 0;
}

static void rest(struct lp_fuse_channel *channel)
{
	struct lp_fuse_channel *to = channel->reads_for;
	channel->reads_for = NULL;
	if (reads_alone(channel)) {
		arm(channel);
		return;
	}
	if (!has_to_wait(channel))
		return;
	if (to == NULL || to == channel)
		wait_for_more(channel);
	else
		pass_on(channel, to);
}

/* Other channels may have the buffers or requests that this one lacks. */
static void throttle(struct lp_fuse_channel *channel)
{
	struct lp_reactor *reactor = channel->options.reactor;
	channel->stats.throttled++;
	if (!has_to_wait(channel))
		return;
	channel->is_throttled = true;
	if (channel->passed_cnt + 1 < channel->peer_cnt)
		pass_on(channel, next_of(channel));
	else
		lp_timer_start(reactor, &channel->retry, lp_reactor_now_ns(reactor) + RETRY_NS);
}

static void read_some(struct lp_task *task)
{
	struct lp_fuse_channel *channel = LP_CONTAINER_OF(task, struct lp_fuse_channel, read_task);
	uint32_t cnt = 0;
	int r = 1;
	while (cnt < READS_PER_TURN && r == 1) {
		if (channel->is_stopping || channel->is_gone)
			return;
		r = read_one(channel);
		cnt += r == 1;
	}
	/* The poll's event announced the first message already. */
	if (cnt > 1)
		lp_reactor_note_events(channel->options.reactor, cnt - 1);
	if (r == 1) {
		go_on(channel);
		invite(channel);
	} else if (r == 0) {
		rest(channel);
	} else {
		throttle(channel);
	}
}

static void go_on(struct lp_fuse_channel *channel)
{
	if (channel->is_stopping || channel->is_gone || lp_task_is_queued(&channel->read_task))
		return;
	channel->is_throttled = false;
	channel->is_resting = false;
	lp_task_queue(channel->options.reactor, &channel->read_task);
}

static void retry(struct lp_timer *timer)
{
	go_on(LP_CONTAINER_OF(timer, struct lp_fuse_channel, retry));
}

/* Asks the clock, not the reactor, because most requests are answered in the turn in which they
 * came. */
void lpi_fuse_channel_count(const struct lpi_fuse_request *request, int err)
{
	struct lp_fuse_channel *channel = request->channel;
	uint32_t opcode = request->message.opcode == NULL ? 0 : request->message.header.opcode;
	struct lp_hist *hist = &channel->latencies[opcode];
	uint64_t now_ns = lp_clock_mono_ns(lp_reactor_clock(channel->options.reactor));
	if (hist->count == 0)
		lp_hist_reset(hist);
	lp_hist_record(hist, now_ns - LP_MIN(request->began_ns, now_ns));
	channel->stats.requests[opcode]++;
	channel->stats.errors[opcode] += err < 0;
	if (channel->is_throttled)
		go_on(channel); /* buffers of this thread have come back */
	lpi_fuse_ring_go_on(channel);
}

void lpi_fuse_channel_ended(struct lpi_fuse_request *request)
{
	struct lp_fuse_channel *channel = request->home;
	LP_ASSERT(channel->stats.under_way > 0);
	for (uint32_t i = 0; i < request->seg_cnt; i++)
		lp_buf_put(request->segs[i].buf);
	lp_buf_put(request->message_buf);
	channel->bytes_out -= request->home_bytes;
	channel->stats.under_way--;
	lpi_fuse_home_list_remove(request);
	lp_pool_put(channel->requests, request);
	if (channel->is_throttled)
		go_on(channel);
	lpi_fuse_ring_go_on(channel);
	lpi_fuse_channel_check_stopped(channel);
}

static void polled(struct lp_io *io)
{
	struct lp_fuse_channel *channel = LP_CONTAINER_OF(io, struct lp_fuse_channel, poll_io);
	if (channel->is_stopping) {
		lpi_fuse_channel_check_stopped(channel);
		return;
	}
	if (io->result < 0 && io->result != -ECANCELED)
		lpi_fuse_channel_gone(channel);
	go_on(channel);
}

/* The poll checks first, so it reports messages that came before at once. */
static void arm(struct lp_fuse_channel *channel)
{
	LP_ASSERT(channel->is_reader || channel->is_to_stop);
	channel->is_resting = false;
	if (!lp_io_is_idle(&channel->poll_io) ||
	    !lp_reactor_has_opcode(channel->options.reactor, IORING_OP_POLL_ADD))
		return;
	channel->poll_io.complete = polled;
	struct io_uring_sqe *sqe = lp_reactor_sqe(channel->options.reactor, &channel->poll_io);
	io_uring_prep_poll_add(sqe, channel->fd, POLLIN);
}

/* --- Between two requests --------------------------------------------------------------------- */

/* A poll by the ring costs the kernel's wake-up of the thread, two calls and a completion for each
 * request. A thread that is awake anyway reads by itself, and its next request costs one call. */

static void wait_for_more(struct lp_fuse_channel *channel)
{
	/* A channel that reads until the kernel has been told may become the reader, too. */
	if (!lp_io_is_idle(&channel->poll_io))
		return;
	channel->is_resting = true;
	channel->rested_turns = 0;
}

static bool look(struct lp_source *source)
{
	struct lp_fuse_channel *channel = LP_CONTAINER_OF(source, struct lp_fuse_channel, source);
	struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
	if (!channel->is_resting || poll(&fd, 1, 0) <= 0)
		return false;
	go_on(channel);
	return true;
}

static void rest_source(struct lp_source *source)
{
	struct lp_fuse_channel *channel = LP_CONTAINER_OF(source, struct lp_fuse_channel, source);
	if (channel->is_resting)
		arm(channel);
}

/* A thread that is never idle never calls look(), so the poll is armed after REST_TURNS turns. */
static void turn_begins(struct lp_source *source)
{
	struct lp_fuse_channel *channel = LP_CONTAINER_OF(source, struct lp_fuse_channel, source);
	if (channel->is_resting && ++channel->rested_turns > REST_TURNS)
		arm(channel);
}

static void add_source(struct lp_fuse_channel *channel)
{
	channel->source = (struct lp_source){
		.name = "mount", .flush = turn_begins, .look = look, .rest = rest_source};
	lp_source_add(channel->options.reactor, &channel->source);
}

static void cancelled(struct lp_io *io)
{
	lpi_fuse_channel_check_stopped(LP_CONTAINER_OF(io, struct lp_fuse_channel, cancel_io));
}

/* --- From birth to death ---------------------------------------------------------------------- */

static uint32_t first_atimes(const struct lp_fuse_behaviour *behaviour)
{
	if (behaviour->no_atime)
		return LPI_FUSE_KEEP_NO_ATIMES;
	if (behaviour->strict_atime)
		return behaviour->no_diratime ? LPI_FUSE_KEEP_EACH_FILES_ATIME
					      : LPI_FUSE_KEEP_EACH_ATIME;
	return behaviour->no_diratime ? LPI_FUSE_KEEP_FILES_ATIMES : LPI_FUSE_KEEP_ATIMES;
}

int lpi_fuse_channel_new(const struct lp_fuse_channel_options *options, lpi_fuse_find_fn *find_step,
			 struct lp_fuse_channel **ret_channel)
{
	LP_ASSERT(options->store_cnt <= LP_FUSE_CHANNEL_STORES);
	struct lp_fuse_channel *channel = calloc(1, sizeof(*channel));
	if (channel == NULL)
		return -ENOMEM;
	channel->options = *options;
	channel->find_step = find_step;
	channel->fd = -1;
	atomic_init(&channel->atimes, first_atimes(&options->behaviour));
	channel->read_task.run = read_some;
	channel->stopped_task.run = run_stopped;
	channel->retry.fire = retry;
	lpi_fuse_home_list_init(&channel->at_home);
	lpi_fuse_rooms_init(&channel->rooms);
	lpi_fuse_carries_init(&channel->carries);
	struct lp_bufs_stats bufs;
	lp_bufs_read_stats(options->bufs, &bufs);
	channel->bytes_max = bufs.region_bytes / BYTES_SHARE;
	lpi_fuse_ring_init(channel);
	uint32_t requests_max =
		options->requests_max == 0 ? LP_FUSE_REQUESTS_MAX : options->requests_max;
	/* All entries may be here at once. */
	if (options->ring != NULL)
		requests_max += options->ring->queue_cnt * options->ring->depth;
	struct lp_pool_config pool = {.name = "fuse requests",
				      .object_bytes = sizeof(struct lpi_fuse_request),
				      .limit = requests_max};
	int err = lpi_readings_init(&channel->readings);
	if (err < 0)
		goto no_readings;
	/* Large, but only the used parts take memory. */
	channel->latencies = calloc(LP_FUSE_OPCODES, sizeof(*channel->latencies));
	err = channel->latencies == NULL ? -ENOMEM : lp_pool_new(&pool, &channel->requests);
	if (err < 0)
		goto no_pool;
	err = lpi_fuse_syncs_init(channel);
	if (err < 0)
		goto no_syncs;
	err = lpi_fuse_pages_init(&channel->pages);
	if (err < 0)
		goto no_pages;
	err = lpi_fuse_drops_init(&channel->drops);
	if (err < 0)
		goto no_drops;
	lpi_fuse_watch(channel);
	*ret_channel = channel;
	return 0;
no_drops:
	lpi_fuse_pages_fini(&channel->pages);
no_pages:
	lpi_fuse_syncs_fini(channel);
no_syncs:
	lp_pool_free(channel->requests);
no_pool:
	free(channel->latencies);
	lpi_readings_fini(&channel->readings);
no_readings:
	free(channel);
	return err;
}

void lp_fuse_channel_free(struct lp_fuse_channel *channel)
{
	if (channel == NULL)
		return;
	LP_ASSERT(channel->fd < 0 && !lpi_fuse_rooms_are_wanted(&channel->rooms));
	LP_ASSERT(channel->carries.cnt == 0);
	lpi_fuse_unwatch(channel);
	lpi_fuse_drops_fini(&channel->drops);
	lpi_fuse_pages_fini(&channel->pages);
	lpi_fuse_syncs_fini(channel);
	lp_pool_free(channel->requests);
	lpi_readings_fini(&channel->readings);
	free(channel->latencies);
	free(channel);
}

void lp_fuse_channels_join(struct lp_fuse_channel *const *channels, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++) {
		struct lp_fuse_channel *channel = channels[i];
		channel->peers = channels;
		channel->peer_cnt = cnt;
		channel->idx = i;
		channel->readings.owner_idx = i;
	}
}

void lp_fuse_channel_start(struct lp_fuse_channel *channel, int fd)
{
	LP_ASSERT(channel->fd < 0 && channel->peers != NULL);
	channel->fd = fd;
	add_source(channel);
	if (channel->idx == 0)
		channel->is_reader = true;
	if (channel->is_reader)
		arm(channel);
	if (channel->options.ring != NULL)
		lpi_fuse_ring_start(channel);
}

void lpi_fuse_channel_look(struct lp_fuse_channel *channel)
{
	if (!channel->is_throttled)
		go_on(channel);
}

static void begin_stop(struct lp_fuse_channel *channel)
{
	LP_ASSERT(!channel->is_stopping);
	channel->is_stopping = true;
	channel->is_resting = false;
	lpi_fuse_ring_stop(channel);
	if (!lp_io_is_idle(&channel->poll_io)) {
		channel->cancel_io.complete = cancelled;
		struct io_uring_sqe *sqe =
			lp_reactor_sqe(channel->options.reactor, &channel->cancel_io);
		io_uring_prep_cancel(sqe, &channel->poll_io, 0);
	}
	lpi_fuse_channel_check_stopped(channel);
}

void lp_fuse_channel_stop(struct lp_fuse_channel *channel, void (*stopped)(void *arg), void *arg)
{
	LP_ASSERT(!channel->is_to_stop);
	channel->is_to_stop = true;
	channel->stopped = stopped;
	channel->stopped_arg = arg;
	/* The mount has ended, so later changes need not be told to its kernel. */
	lpi_fuse_unwatch(channel);
	if (!lpi_fuse_is_telling(channel))
		begin_stop(channel);
	else if (reads_alone(channel))
		arm(channel);
}

void lpi_fuse_channel_told(struct lp_fuse_channel *channel)
{
	if (channel->is_to_stop && !lpi_fuse_is_telling(channel))
		begin_stop(channel);
}

void lp_fuse_channel_rest(struct lp_fuse_channel *channel)
{
	(void)lp_pool_trim(channel->requests);
}

void lp_fuse_channel_read_stats(const struct lp_fuse_channel *channel,
				struct lp_fuse_channel_stats *ret_stats)
{
	*ret_stats = channel->stats;
}

const struct lp_hist *lp_fuse_channel_latency(const struct lp_fuse_channel *channel,
					      uint32_t opcode)
{
	LP_ASSERT(opcode < LP_FUSE_OPCODES);
	return channel->latencies[opcode].count > 0 ? &channel->latencies[opcode] : NULL;
}
