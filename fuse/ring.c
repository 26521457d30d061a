/* SPDX-License-Identifier: Apache-2.0 */
/* An entry goes round:
 *
 *   with the kernel   its command is on the ring of entry->channel's reactor
 *   waiting           a request is in it, and here is no room for one more, or for a write's data;
 *                     or an answer, and the kernel had none
 *   at work           request->entry is it; perhaps on another thread
 *   answered          the answer is in it, and the command that says so leaves with the turn: on
 *                     the ring of the thread that did the work, whoever had it before
 *   lost              the connection has ended, or the kernel did not take the command
 *
 * The message is decoded in the entry, and stays there until it is answered. Only a write's data is
 * copied, to buffers of the thread that works on it. The store may keep those longer than the
 * kernel leaves the entry alone.
 *
 * The kernel finds the request of an answer by its number, not by the thread that had the entry. So
 * a thread can answer a request that another one has fetched. For the next request the kernel takes
 * the entry that came last. So while one thread does all the work, it also gets the entries. */
#include "fuse/ring.h"

#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "fuse/channel_state.h"
#include "fuse/handover.h"

#define PARAMETER "/sys/module/fuse/parameters/enable_uring"
#define POSSIBLE  "/sys/devices/system/cpu/possible"
#define RETRY_NS  (2 * LP_NS_PER_MS)
/* Bytes of a large SQE for the command. */
#define COMMAND_BYTES 80u
#define PAYLOAD_BYTES LP_FUSE_WRITE_MAX

static_assert(PAYLOAD_BYTES == LP_BUF_LARGE, "a payload is a buffer");
static_assert(sizeof(struct lpi_fuse_ring_head) == 288 && sizeof(struct lpi_fuse_ring_cmd) == 24,
	      "as the protocol has it");
static_assert(sizeof(struct fuse_in_header) + LPI_FUSE_RING_HEAD_BYTES <= LPI_FUSE_INLINE_BYTES,
	      "both heads are inline");

/* --- Features of the kernel ------------------------------------------------------------------- */

/* The first line of a small file; false: there is none. */
static bool read_line(const char *path, char *line, int bytes)
{
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return false;
	bool is_there = fgets(line, bytes, file) != NULL;
	(void)fclose(file); /* it was only read */
	return is_there;
}

bool lp_fuse_ring_is_on(void)
{
	char line[16];
	return read_line(PARAMETER, line, sizeof(line)) && line[0] == 'Y';
}

/* Counts the CPUs of the list: the kernel has a queue for each. */
uint32_t lpi_fuse_ring_count(const char *possible)
{
	uint64_t cnt = 0;
	const char *at = possible;
	while (*at >= '0' && *at <= '9' && cnt < UINT16_MAX) {
		char *end = NULL;
		unsigned long first = strtoul(at, &end, 10);
		unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
		cnt += last >= first ? last - first + 1 : 0;
		at = *end == ',' ? end + 1 : end;
	}
	return (*at != '\n' && *at != '\0') || cnt > UINT16_MAX ? 0 : (uint32_t)cnt;
}

uint32_t lp_fuse_ring_queues(void)
{
	char line[256];
	return read_line(POSSIBLE, line, sizeof(line)) ? lpi_fuse_ring_count(line) : 0;
}

/* --- Commands --------------------------------------------------------------------------------- */

static void submit_to_kernel(struct lpi_fuse_entry *entry, uint32_t command)
{
	const struct lp_fuse_channel *channel = entry->channel;
	const struct lpi_fuse_ring_cmd cmd = {.commit_id = entry->commit_id, .queue = entry->queue};
	struct io_uring_sqe *sqe = lp_reactor_sqe(channel->options.reactor, &entry->io);
	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, channel->fd, entry->iovs,
			 LP_ARRAY_SIZE(entry->iovs), 0);
	sqe->cmd_op = command;
	memset(sqe->cmd, 0, COMMAND_BYTES);
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
}

static void give(struct lp_fuse_channel *channel, struct lpi_fuse_entry *entry, uint32_t command)
{
	LP_ASSERT(lp_reactor_is_mine(channel->options.reactor) && channel->fd >= 0);
	LP_ASSERT(entry->request == NULL);
	entry->channel = channel;
	channel->ring.in_flight++;
	entry->ring->submit(entry, command);
}

/* --- Requests --------------------------------------------------------------------------------- */

static int decode(const struct lpi_fuse_entry *entry, struct lpi_fuse_request *request)
{
	const struct lpi_fuse_ring_head *head = entry->head;
	struct lp_fuse_message *message = &request->message;
	uint8_t *to = (uint8_t *)request->bytes;
	uint32_t rest_bytes = head->tail.payload_bytes;
	memcpy(to, head->in_out, sizeof(message->header));
	memcpy(&message->header, to, sizeof(message->header));
	/* The ring does not give the length of the fixed part. */
	uint64_t outside = (uint64_t)rest_bytes + sizeof(message->header);
	uint64_t fixed_bytes = message->header.len - outside;
	if (rest_bytes > PAYLOAD_BYTES || message->header.len < outside ||
	    fixed_bytes > LPI_FUSE_RING_HEAD_BYTES)
		return -EINVAL;
	memcpy(to + sizeof(message->header), head->op_in, fixed_bytes);
	uint32_t head_bytes = (uint32_t)(sizeof(message->header) + fixed_bytes);
	int err = lp_fuse_decode_split(to, head_bytes, entry->payload->data, rest_bytes, message);
	/* Requests without an answer come by the descriptors. */
	return err == 0 && message->opcode->is_silent ? -EINVAL : err;
}

static void wait_for_room(struct lp_fuse_channel *channel)
{
	struct lp_reactor *reactor = channel->options.reactor;
	channel->stats.throttled++;
	if (!lp_timer_is_armed(&channel->ring.retry))
		lp_timer_start(reactor, &channel->ring.retry,
			       lp_reactor_now_ns(reactor) + RETRY_NS);
}

/* False: there are no buffers for its data. */
static bool begin(struct lpi_fuse_request *request)
{
	const struct lp_fuse_message *message = &request->message;
	struct lpi_fuse_entry *entry = request->entry;
	if (message->header.opcode == FUSE_WRITE && message->in.write.size > 0) {
		request->segs[0] =
			(struct lp_seg){.buf = entry->payload, .len = message->in.write.size};
		request->seg_cnt = 1;
		bool is_adopted = lpi_fuse_adopt_data(request);
		request->seg_cnt = 0; /* the segments belong to the entry */
		if (!is_adopted)
			return false;
	}
	lpi_fuse_channel_begin(request);
	return true;
}

static void drop(struct lpi_fuse_request *request)
{
	lpi_fuse_move(request, LPI_FUSE_WORK);
	lpi_fuse_answer(request, -ENOTCONN);
}

static void begin_there(struct lpi_fuse_request *request)
{
	struct lp_fuse_channel *channel = request->channel;
	if (channel->is_stopping) {
		drop(request);
	} else if (!begin(request)) {
		lpi_fuse_entries_push_back(&channel->ring.waiting, request->entry);
		wait_for_room(channel);
	}
}

/* False: there is no room for one more. */
static bool take(struct lp_fuse_channel *channel, struct lpi_fuse_entry *entry)
{
	if (channel->bytes_out >= channel->bytes_max && channel->stats.under_way > 0)
		return false;
	if (lpi_fuse_rooms_are_wanted(&channel->rooms))
		return false;
	struct lpi_fuse_request *request = lpi_fuse_channel_take(channel);
	if (request == NULL)
		return false;
	entry->request = request;
	request->entry = entry;
	int err = decode(entry, request);
	if (err < 0) {
		lpi_fuse_channel_refuse(request, err);
		return true;
	}
	struct lp_fuse_channel *place = lpi_fuse_place_of(request);
	if (place == NULL || place == channel) {
		begin_there(request);
		return true;
	}
	channel->stats.handed_over++;
	lpi_fuse_hand_over(request, place, begin_there);
	return true;
}

/* Only the requests that wait now: one that finds no buffers waits again. */
static void work_off(struct lp_fuse_channel *channel)
{
	struct lpi_fuse_entries now;
	struct lpi_fuse_entry *entry;
	lpi_fuse_entries_init(&now);
	lpi_fuse_entries_splice_back(&now, &channel->ring.waiting);
	while ((entry = lpi_fuse_entries_pop_front(&now)) != NULL) {
		bool is_begun = true;
		if (entry->has_answer)
			give(channel, entry, LPI_FUSE_RING_COMMIT_AND_FETCH);
		else if (entry->request != NULL)
			begin_there(entry->request);
		else
			is_begun = take(channel, entry);
		if (is_begun)
			continue;
		lpi_fuse_entries_push_back(&channel->ring.waiting, entry);
		wait_for_room(channel);
	}
}

static bool is_for_now(int err)
{
	return err == -ENOMEM || err == -EAGAIN || err == -EINTR;
}

/* An answer was lost: its caller would wait for ever, and only the end of the connection ends the
 * wait. */
static void end_connection(struct lp_fuse_ring *ring, int err)
{
	if (atomic_exchange(&ring->is_broken, true))
		return;
	LP_LOG_ERROR("the mount: the kernel does not take an answer by io_uring (%s): it is ended",
		     lp_strerror(err));
	if (ring->end != NULL)
		ring->end(ring->end_arg);
}

/* The kernel refused a command. The caller waits for its answer until the kernel has taken it, or
 * does not want it any more. */
static void failed(struct lpi_fuse_entry *entry)
{
	struct lp_fuse_channel *channel = entry->channel;
	int err = entry->io.result;
	if (err == -ENOTCONN || err == -ECONNABORTED || err == -ECANCELED) {
		lpi_fuse_channel_gone(channel);
	} else if (!entry->has_served) {
		if (!atomic_exchange(&entry->ring->is_refused, true))
			LP_LOG_NOTICE("the mount: the kernel refuses to use io_uring: %s",
				      lp_strerror(err));
	} else if (!is_for_now(err)) {
		end_connection(entry->ring, err);
	} else if (!channel->is_stopping) {
		entry->has_answer = true;
		lpi_fuse_entries_push_back(&channel->ring.waiting, entry);
		wait_for_room(channel);
	}
}

/* The entry has a request in it, unless the command failed. */
static void completed(struct lp_io *io)
{
	struct lpi_fuse_entry *entry = LP_CONTAINER_OF(io, struct lpi_fuse_entry, io);
	struct lp_fuse_channel *channel = entry->channel;
	LP_ASSERT(channel->ring.in_flight > 0 && entry->request == NULL);
	channel->ring.in_flight--;
	if (io->result < 0) {
		failed(entry);
	} else if (!channel->is_stopping && !channel->is_gone) {
		entry->has_served = true;
		entry->has_answer = false;
		entry->commit_id = entry->head->tail.commit_id;
		channel->stats.ring_requests++;
		if (!atomic_load_explicit(&entry->ring->serves, memory_order_relaxed))
			atomic_store(&entry->ring->serves, true);
		lpi_fuse_entries_push_back(&channel->ring.waiting, entry);
		work_off(channel);
	}
	lpi_fuse_channel_check_stopped(channel);
}

bool lpi_fuse_ring_answer(struct lpi_fuse_request *request, struct fuse_out_header *header,
			  const struct iovec *iovs, uint32_t cnt)
{
	struct lp_fuse_channel *channel = request->channel;
	struct lpi_fuse_entry *entry = request->entry;
	uint32_t bytes = header->len - (uint32_t)sizeof(*header);
	uint32_t at = 0;
	request->entry = NULL;
	entry->request = NULL;
	if (channel->is_gone || channel->is_stopping)
		return false;
	if (bytes > PAYLOAD_BYTES) { /* the answer is longer than the payload */
		header->error = -EIO;
		header->len = sizeof(*header);
		cnt = 0;
	}
	for (uint32_t i = 0; i < cnt; i++) {
		if (iovs[i].iov_len > 0)
			memcpy(entry->payload->data + at, iovs[i].iov_base, iovs[i].iov_len);
		at += (uint32_t)iovs[i].iov_len;
	}
	memcpy(entry->head->in_out, header, sizeof(*header));
	entry->head->tail.payload_bytes = at;
	give(channel, entry, LPI_FUSE_RING_COMMIT_AND_FETCH);
	return true;
}

void lpi_fuse_ring_go_on(struct lp_fuse_channel *channel)
{
	if (!lpi_fuse_entries_is_empty(&channel->ring.waiting) && !channel->is_stopping &&
	    !lp_task_is_queued(&channel->ring.task))
		lp_task_queue(channel->options.reactor, &channel->ring.task);
}

/* --- From birth to death ---------------------------------------------------------------------- */

static void run_task(struct lp_task *task)
{
	work_off(LP_CONTAINER_OF(task, struct lp_fuse_channel, ring.task));
}

static void retry(struct lp_timer *timer)
{
	lpi_fuse_ring_go_on(LP_CONTAINER_OF(timer, struct lp_fuse_channel, ring.retry));
}

void lpi_fuse_ring_init(struct lp_fuse_channel *channel)
{
	lpi_fuse_entries_init(&channel->ring.waiting);
	channel->ring.task.run = run_task;
	channel->ring.retry.fire = retry;
}

void lpi_fuse_ring_start(struct lp_fuse_channel *channel)
{
	struct lp_fuse_ring *ring = channel->options.ring;
	for (uint32_t queue = channel->idx; queue < ring->queue_cnt; queue += channel->peer_cnt) {
		for (uint32_t i = 0; i < ring->depth; i++)
			give(channel, &ring->entries[queue * ring->depth + i],
			     LPI_FUSE_RING_REGISTER);
	}
}

void lpi_fuse_ring_stop(struct lp_fuse_channel *channel)
{
	struct lpi_fuse_entry *entry;
	lp_task_cancel(&channel->ring.task);
	lp_timer_stop(channel->options.reactor, &channel->ring.retry);
	while ((entry = lpi_fuse_entries_pop_front(&channel->ring.waiting)) != NULL) {
		if (entry->request != NULL)
			drop(entry->request);
	}
}

bool lpi_fuse_ring_is_idle(const struct lp_fuse_channel *channel)
{
	return channel->ring.in_flight == 0;
}

static void init_entry(struct lp_fuse_ring *ring, uint32_t idx)
{
	struct lpi_fuse_entry *entry = &ring->entries[idx];
	entry->io.complete = completed;
	entry->ring = ring;
	entry->head = &ring->heads[idx];
	entry->payload = lp_buf_new(ring->payloads, PAYLOAD_BYTES);
	LP_ASSERT(entry->payload != NULL); /* there are as many as entries */
	entry->iovs[0] = (struct iovec){entry->head, sizeof(*entry->head)};
	entry->iovs[1] = (struct iovec){entry->payload->data, PAYLOAD_BYTES};
	entry->queue = (uint16_t)(idx / ring->depth);
}

int lp_fuse_ring_new(uint64_t bytes_max, uint32_t queue_cnt, struct lp_fuse_ring **ret_ring)
{
	LP_ASSERT(queue_cnt > 0 && queue_cnt <= UINT16_MAX);
	uint64_t fitting = bytes_max / PAYLOAD_BYTES / queue_cnt;
	if (fitting < LP_FUSE_RING_DEPTH_MIN)
		return -EOPNOTSUPP;
	struct lp_fuse_ring *ring = calloc(1, sizeof(*ring));
	if (ring == NULL)
		return -ENOMEM;
	ring->queue_cnt = queue_cnt;
	ring->depth = (uint32_t)LP_MIN(fitting, LP_FUSE_RING_DEPTH_MAX);
	ring->submit = submit_to_kernel;
	uint32_t cnt = ring->queue_cnt * ring->depth;
	ring->entries = calloc(cnt, sizeof(*ring->entries));
	ring->heads = calloc(cnt, sizeof(*ring->heads));
	ring->held_cnts = calloc(ring->queue_cnt, sizeof(*ring->held_cnts));
	bool is_short = ring->entries == NULL || ring->heads == NULL || ring->held_cnts == NULL;
	int err = is_short ? -ENOMEM : 0;
	/* Only the parts that requests have used take memory. */
	if (err == 0)
		err = lp_bufs_new((uint64_t)cnt * PAYLOAD_BYTES, &ring->payloads);
	if (err < 0) {
		lp_fuse_ring_free(ring);
		return err;
	}
	for (uint32_t i = 0; i < cnt; i++)
		init_entry(ring, i);
	*ret_ring = ring;
	return 0;
}

void lp_fuse_ring_free(struct lp_fuse_ring *ring)
{
	if (ring == NULL)
		return;
	for (uint32_t i = 0; ring->payloads != NULL && i < ring->queue_cnt * ring->depth; i++)
		lp_buf_put(ring->entries[i].payload);
	lp_bufs_free(ring->payloads);
	free(ring->held_cnts);
	free(ring->heads);
	free(ring->entries);
	free(ring);
}

bool lp_fuse_ring_serves(const struct lp_fuse_ring *ring)
{
	return ring != NULL && atomic_load(&ring->serves);
}

bool lp_fuse_ring_is_refused(const struct lp_fuse_ring *ring)
{
	return ring != NULL && atomic_load(&ring->is_refused);
}

bool lp_fuse_ring_is_broken(const struct lp_fuse_ring *ring)
{
	return ring != NULL && atomic_load(&ring->is_broken);
}
