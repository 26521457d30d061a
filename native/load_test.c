/* SPDX-License-Identifier: Apache-2.0 */
/* Shards on threads of their own, and clients that come, work, and go at any point, whatever they
 * have under way. What was acknowledged is there afterwards; nothing is left open, no buffer is
 * lost. */
#include <pthread.h>

#include "base/prng.h"
#include "native/door_test.h"

#define SHARDS     2u
#define CLIENTS    4u
#define ROUNDS     24u
#define DATA_BYTES (600u << 10)

struct rig;

/* What the main thread asks of a shard's thread. */
struct order {
	struct lp_msg msg;
	struct shard *shard;
	int fd;
	struct lp_peer peer;
	uint8_t *head;
	uint32_t read;
};

struct shard {
	struct rig *rig;
	uint32_t idx;
	pthread_t thread;
	struct lp_reactor *reactor;
	struct lp_bufs *bufs;
	struct lp_store *store;
	struct lp_ns *ns;
	struct lp_door *door;
	struct order stop;
	_Atomic bool is_open;
	_Atomic bool is_ready;
	_Atomic bool has_stopped; /* the door, then the namespace */
};

struct rig {
	struct shard shards[SHARDS];
	struct lp_ns *peers[SHARDS];
	_Atomic uint32_t open_cnt;
	_Atomic uint32_t ready_cnt;
	_Atomic uint32_t door_stopped_cnt;
	_Atomic uint32_t ns_stopped_cnt;
};

static void adopt(struct lp_reactor *reactor, struct lp_msg *msg)
{
	struct order *order = LP_CONTAINER_OF(msg, struct order, msg);
	(void)reactor;
	lp_test_ok(lp_door_adopt(order->shard->door, order->fd, &order->peer, order->head,
				 order->read));
	free(order->head);
	free(order);
}

static void give(struct shard *shard, int fd, const uint8_t *head, uint32_t read)
{
	struct order *order = calloc(1, sizeof(*order));
	LP_ASSERT(order != NULL);
	order->msg.deliver = adopt;
	order->shard = shard;
	order->fd = fd;
	order->read = read;
	order->head = malloc(read + 1);
	LP_ASSERT(order->head != NULL);
	if (read > 0)
		memcpy(order->head, head, read);
	lp_reactor_post(shard->reactor, &order->msg);
}

static void hand_over(void *arg, uint32_t shard_idx, int fd, const struct lp_peer *peer,
		      const uint8_t *head, uint32_t read)
{
	struct shard *shard = arg;
	(void)peer;
	give(&shard->rig->shards[shard_idx], fd, head, read);
}

static void ready(struct lp_ns *ns, int result, void *arg)
{
	(void)ns;
	LP_ASSERT(result >= 0);
	((struct rig *)arg)->ready_cnt++;
}

static void ns_stopped(struct lp_ns *ns, void *arg)
{
	(void)ns;
	((struct rig *)arg)->ns_stopped_cnt++;
}

static void door_stopped(void *arg)
{
	struct shard *shard = arg;
	shard->rig->door_stopped_cnt++;
	shard->has_stopped = true;
}

static void stop(struct lp_reactor *reactor, struct lp_msg *msg)
{
	struct order *order = LP_CONTAINER_OF(msg, struct order, msg);
	(void)reactor;
	/* One gracefully, one at once. */
	lp_door_stop(order->shard->door, order->shard->idx == 0 ? LP_NS_PER_S : 0, door_stopped,
		     order->shard);
}

static void *run_shard(void *arg)
{
	struct shard *shard = arg;
	struct rig *rig = shard->rig;
	const struct lp_reactor_options reactor = {.name = "shard", .ring = true};
	LP_ASSERT(lp_reactor_new(&reactor, &shard->reactor) >= 0);
	LP_ASSERT(lp_reactor_start(shard->reactor) >= 0);
	LP_ASSERT(lp_bufs_new(UINT64_C(48) << 20, &shard->bufs) >= 0);
	const struct lp_store_options store = {
		.reactor = shard->reactor, .bufs = shard->bufs, .shard_idx = shard->idx};
	LP_ASSERT(lp_store_open_mem(&store, &shard->store) >= 0);
	const struct lp_ns_options ns = {.reactor = shard->reactor,
					 .store = shard->store,
					 .bufs = shard->bufs,
					 .shard_idx = shard->idx,
					 .shard_cnt = SHARDS};
	LP_ASSERT(lp_ns_open(&ns, &shard->ns) >= 0);
	const struct lp_door_options door = {.reactor = shard->reactor,
					     .bufs = shard->bufs,
					     .ns = shard->ns,
					     .shard_idx = shard->idx,
					     .shard_cnt = SHARDS,
					     .requests_max = 64,
					     .hand_over = hand_over,
					     .arg = shard};
	LP_ASSERT(lp_door_new(&door, &shard->door) >= 0);
	rig->peers[shard->idx] = shard->ns;
	rig->open_cnt++;
	while (rig->open_cnt < SHARDS)
		sched_yield();
	lp_ns_start(shard->ns, rig->peers, ready, rig);
	while (rig->ready_cnt < SHARDS)
		(void)lp_reactor_turn(shard->reactor, false);
	shard->is_ready = true;
	while (!shard->has_stopped)
		(void)lp_reactor_turn(shard->reactor, true);
	while (rig->door_stopped_cnt < SHARDS)
		(void)lp_reactor_turn(shard->reactor, false);
	struct lp_ns_stats stats;
	lp_ns_read_stats(shard->ns, &stats);
	lp_ns_stop(shard->ns, ns_stopped, rig);
	while (rig->ns_stopped_cnt < SHARDS)
		(void)lp_reactor_turn(shard->reactor, false);
	lp_ns_read_stats(shard->ns, &stats);
	LP_ASSERT(stats.opens == 0);
	lp_door_free(shard->door);
	lp_ns_close(shard->ns);
	LP_ASSERT(lp_store_close(shard->store, false) >= 0);
	lp_bufs_free(shard->bufs);
	return NULL;
}

/* --- Clients: plain blocking ones
 * ------------------------------------------------------------------ */

struct worker {
	struct rig *rig;
	uint32_t idx;
	pthread_t thread;
	struct lp_prng prng;
	uint8_t *data;
	uint8_t *scratch;
	uint64_t acknowledged; /* seed of the last put that was */
	uint64_t attempted;
};

static bool send_all(int fd, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;
	while (len > 0) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
		if (n <= 0)
			return false;
		at += n;
		len -= (size_t)n;
	}
	return true;
}

static bool recv_all(int fd, void *bytes, size_t len)
{
	uint8_t *at = bytes;
	while (len > 0) {
		ssize_t n = recv(fd, at, len, 0);
		if (n <= 0)
			return false;
		at += n;
		len -= (size_t)n;
	}
	return true;
}

/* The head of a message: one struct and a path. */
static bool send_head(int fd, uint16_t opcode, const uint8_t *meta, uint32_t meta_bytes,
		      uint32_t data_bytes)
{
	uint8_t message[LP_WIRE_HEADER_SIZE + 256];
	struct lp_wire_header header = {.kind = LP_WIRE_KIND_REQUEST,
					.opcode = opcode,
					.request_id = opcode,
					.meta_bytes = meta_bytes,
					.data_bytes = data_bytes};
	memcpy(message + LP_WIRE_HEADER_SIZE, meta, meta_bytes);
	lp_wire_header_seal(&header, LP_WIRE_CRC_HEADER, meta, message);
	return send_all(fd, message, LP_WIRE_HEADER_SIZE + meta_bytes);
}

/* Replies up to one to this opcode without "more". Returns -1 when the connection is gone. */
static int await(int fd, uint16_t opcode, struct worker *worker, uint64_t *ret_bytes)
{
	uint8_t head[LP_WIRE_HEADER_SIZE];
	struct lp_wire_header header;
	const char *why = "";
	uint8_t rest[4096];
	*ret_bytes = 0;
	do {
		if (!recv_all(fd, head, sizeof(head)))
			return -1;
		LP_ASSERT(lp_wire_header_read(head, LP_WIRE_CRC_HEADER, LP_WIRE_META_MAX, &header,
					      &why) >= 0);
		LP_ASSERT(lp_wire_rest_bytes(&header) <= sizeof(rest));
		if (!recv_all(fd, rest, lp_wire_rest_bytes(&header)))
			return -1;
		uint8_t *to = worker->scratch + (header.data_bytes > 0 ? header.offset : 0);
		if (!recv_all(fd, to, header.data_bytes))
			return -1;
		*ret_bytes += header.data_bytes;
	} while (header.opcode != opcode || (header.flags & LP_WIRE_FLAG_MORE) != 0);
	return (int)header.status;
}

static int say_hello(struct worker *worker)
{
	int fds[2];
	uint8_t meta[LP_WIRE_HELLO_SIZE];
	uint64_t bytes = 0;
	const struct lp_wire_hello hello = {.version_min = 1,
					    .version_max = 1,
					    .crc_mode = LP_WIRE_CRC_HEADER,
					    .shard =
						    (uint32_t)lp_prng_below(&worker->prng, SHARDS)};
	LP_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	give(&worker->rig->shards[lp_prng_below(&worker->prng, SHARDS)], fds[1], NULL, 0);
	lp_wire_hello_encode(&hello, meta);
	LP_ASSERT(send_head(fds[0], LP_WIRE_OP_HELLO, meta, sizeof(meta), 0));
	LP_ASSERT(await(fds[0], LP_WIRE_OP_HELLO, worker, &bytes) == 0);
	return fds[0];
}

static uint32_t path_of(const struct worker *worker, char *ret)
{
	return (uint32_t)sprintf(ret, "dir/of %u/object", worker->idx);
}

/* Cut short, it is sent only so far. */
static bool send_put(struct worker *worker, int fd, uint32_t len, uint32_t cut)
{
	uint8_t meta[LP_WIRE_PUT_SIZE + 64];
	uint32_t path_bytes = path_of(worker, (char *)meta + LP_WIRE_PUT_SIZE);
	struct lp_wire_put put = {
		.uid = LP_WIRE_NO_OWNER, .gid = LP_WIRE_NO_OWNER, .mode = LP_WIRE_NO_MODE};
	const struct lp_wire_ref ref = {.path_bytes = (uint16_t)path_bytes};
	lp_wire_ref_encode(&ref, put.ref);
	lp_wire_put_encode(&put, meta);
	return send_head(fd, LP_WIRE_OP_PUT, meta, LP_WIRE_PUT_SIZE + path_bytes, len) &&
	       send_all(fd, worker->data, len - LP_MIN(cut, len));
}

static bool send_get(struct worker *worker, int fd)
{
	uint8_t meta[LP_WIRE_GET_SIZE + 64];
	uint32_t path_bytes = path_of(worker, (char *)meta + LP_WIRE_GET_SIZE);
	struct lp_wire_get get = {.length = UINT64_MAX};
	const struct lp_wire_ref ref = {.path_bytes = (uint16_t)path_bytes};
	lp_wire_ref_encode(&ref, get.ref);
	lp_wire_get_encode(&get, meta);
	return send_head(fd, LP_WIRE_OP_GET, meta, LP_WIRE_GET_SIZE + path_bytes, 0);
}

static bool send_ref(struct worker *worker, int fd, uint16_t opcode)
{
	uint8_t meta[LP_WIRE_REF_SIZE + 64];
	uint32_t path_bytes = path_of(worker, (char *)meta + LP_WIRE_REF_SIZE);
	const struct lp_wire_ref ref = {.path_bytes = (uint16_t)path_bytes};
	lp_wire_ref_encode(&ref, meta);
	return send_head(fd, opcode, meta, LP_WIRE_REF_SIZE + path_bytes, 0);
}

static uint32_t len_of(uint64_t seed)
{
	return 1 + (uint32_t)(seed * 7919 % (UINT64_C(2) * DATA_BYTES));
}

/* The object is one of those that were put, and not older than the last that was acknowledged. */
static void check_object(struct worker *worker, uint64_t len)
{
	for (uint64_t seed = worker->acknowledged; seed <= worker->attempted; seed++) {
		if (len_of(seed) != len)
			continue;
		lpi_client_fill(worker->data, len, seed);
		if (memcmp(worker->data, worker->scratch, len) == 0)
			return;
	}
	LP_ASSERT(false);
}

/* Nothing may come, when nothing was asked. */
static void read_a_bit(struct worker *worker, int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	size_t len = lp_prng_below(&worker->prng, 100000) + 1;
	if (poll(&poll_fd, 1, 5) > 0)
		(void)recv(fd, worker->scratch, len, 0);
}

static void one_round(struct worker *worker)
{
	int fd = say_hello(worker);
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < 3; i++) {
		uint64_t seed = ++worker->attempted;
		uint32_t len = len_of(seed);
		lpi_client_fill(worker->data, len, seed);
		LP_ASSERT(send_put(worker, fd, len, 0));
		LP_ASSERT(await(fd, LP_WIRE_OP_PUT, worker, &bytes) == 0);
		worker->acknowledged = seed;
		LP_ASSERT(send_get(worker, fd));
		LP_ASSERT(await(fd, LP_WIRE_OP_GET, worker, &bytes) == 0);
		check_object(worker, bytes);
	}
	/* All sorts of things under way, of which the last may be cut short; then it goes, perhaps
	 * in the middle of an answer. */
	uint64_t cnt = lp_prng_below(&worker->prng, 6);
	for (uint64_t i = 0; i < cnt; i++) {
		uint64_t kind = lp_prng_below(&worker->prng, 4);
		if (kind == 0)
			(void)send_get(worker, fd);
		else if (kind == 1)
			(void)send_ref(worker, fd, LP_WIRE_OP_OPEN);
		else if (kind == 2)
			(void)send_ref(worker, fd, LP_WIRE_OP_UPLOAD);
		else
			(void)send_ref(worker, fd, LP_WIRE_OP_STAT);
	}
	if (lp_prng_below(&worker->prng, 2) == 0) {
		uint32_t len = len_of(worker->attempted + 1);
		lpi_client_fill(worker->data, len, worker->attempted + 1);
		uint32_t cut = (uint32_t)lp_prng_below(&worker->prng, UINT64_C(2) * len);
		if (cut < len)
			worker->attempted++;
		(void)send_put(worker, fd, len, cut);
	}
	if (lp_prng_below(&worker->prng, 2) == 0)
		read_a_bit(worker, fd);
	close(fd);
}

static void *run_worker(void *arg)
{
	struct worker *worker = arg;
	worker->data = malloc((size_t)2 * DATA_BYTES);
	worker->scratch = malloc((size_t)2 * DATA_BYTES);
	for (uint32_t i = 0; i < ROUNDS; i++)
		one_round(worker);
	free(worker->data);
	free(worker->scratch);
	return NULL;
}

static void clients_come_and_go(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	struct worker workers[CLIENTS];
	(void)state;
	for (uint32_t i = 0; i < SHARDS; i++) {
		struct shard *shard = &rig->shards[i];
		shard->rig = rig;
		shard->idx = i;
		assert_int_equal(pthread_create(&shard->thread, NULL, run_shard, shard), 0);
	}
	for (uint32_t i = 0; i < SHARDS; i++) {
		while (!rig->shards[i].is_ready)
			usleep(1000);
	}
	memset(workers, 0, sizeof(workers));
	for (uint32_t i = 0; i < CLIENTS; i++) {
		workers[i].rig = rig;
		workers[i].idx = i;
		lp_prng_init(&workers[i].prng, 100 + i);
		assert_int_equal(pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]),
				 0);
	}
	for (uint32_t i = 0; i < CLIENTS; i++)
		pthread_join(workers[i].thread, NULL);
	for (uint32_t i = 0; i < SHARDS; i++) {
		struct shard *shard = &rig->shards[i];
		shard->stop.msg.deliver = stop;
		shard->stop.shard = shard;
		lp_reactor_post(shard->reactor, &shard->stop.msg);
	}
	for (uint32_t i = 0; i < SHARDS; i++)
		pthread_join(rig->shards[i].thread, NULL);
	/* Not by their threads: whoever posts to one may not have left it yet. */
	for (uint32_t i = 0; i < SHARDS; i++)
		lp_reactor_free(rig->shards[i].reactor);
	free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clients_come_and_go),
	};
	return lp_test_main(tests, "load");
}
