/* SPDX-License-Identifier: Apache-2.0 */
/* What a message through the native door costs: one shard with its store in memory on one thread,
 * one client on another, at the two ends of a socketpair.
 *
 *   echo    the ceiling: the same bytes back and forth between two plain threads that do nothing
 *           but receive into a big buffer and send one answer for all that came
 *   ping    messages without meta through the door
 *   write   4 KiB overwrites; target: at least half of the echo's rate
 *   read    4 KiB reads
 *
 *   door_bench [--depth N] [--seconds N] [--rounds N] [--crc off|header|all] [--without-batching]
 *              [--without-pool]
 *   door_bench --alone ping|write|read [--ops N] [--depth N] [--crc ...]
 *
 * The kinds alternate, so that noise meets all; medians are printed, and the door's thread's CPU
 * time for each message.
 *
 * With --alone client and door take turns on one thread, N messages of one kind: what comes at once
 * is always the same, so instructions can be counted, and CPU times of two states of the code
 * scatter little. Only the door's turns count:
 *
 *   valgrind --tool=callgrind --toggle-collect=lp_reactor_turn --callgrind-out-file=a
 *   build/release/tools/door_bench --alone write --ops 10000; the same with 20000; and the
 *   difference by 10000 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/loop/reactor.h"
#include "native/conn.h"

#define BLOCK       4096u
#define FILE_BLOCKS 1024u
#define REQUEST_MAX (LP_WIRE_HEADER_SIZE + LP_WIRE_GET_SIZE + 4 + BLOCK)
#define ROUNDS_MAX  31u
#define TARGET      0.5

enum kind { KIND_ECHO, KIND_PING, KIND_WRITE, KIND_READ, KIND_CNT };
static const char *const kind_names[KIND_CNT] = {"echo", "ping", "write", "read"};

static struct {
	uint32_t depth;
	double seconds;
	uint32_t rounds;
	enum lp_wire_crc crc_mode;
	bool without_batching;
	bool without_pool;
	enum kind alone; /* KIND_CNT: each side has a thread */
	uint64_t ops;    /* when alone */
} options = {.depth = 128,
	     .seconds = 1,
	     .rounds = 5,
	     .crc_mode = LP_WIRE_CRC_ALL,
	     .alone = KIND_CNT,
	     .ops = 10000};

static void die(const char *what, int err)
{
	(void)fprintf(stderr, "door_bench: %s: %s\n", what, lp_strerror(err));
	exit(1); /* NOLINT(concurrency-mt-unsafe): nothing to clean up */
}

static void must(int result, const char *what)
{
	if (result < 0)
		die(what, result);
}

static uint64_t now_ns(void)
{
	return lp_clock_mono_ns(lp_clock_system());
}

static double cpu_s(void)
{
	struct rusage usage;
	(void)getrusage(RUSAGE_THREAD, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* --- The servers
 * ------------------------------------------------------------------------------------ */

struct server {
	pthread_t thread;
	int fd;
	bool is_echo;
	uint32_t answer_bytes; /* of the echo, for each REQUEST_MAX or so */
	uint32_t request_bytes;
	double cpu_s;
	struct lp_door_stats stats;
	bool is_ready;
	bool has_stopped;
	struct lp_reactor *reactor;
	struct lp_bufs *bufs;
	struct lp_store *store;
	struct lp_ns *ns;
	struct lp_door *door;
	struct lp_msg stop;
	pthread_barrier_t started;
};

static void echo(struct server *server)
{
	const size_t size = 1 << 20;
	uint8_t *in = malloc(size);
	uint8_t *out = calloc(1, size);
	size_t have = 0;
	if (in == NULL || out == NULL)
		die("memory", -ENOMEM);
	for (;;) {
		ssize_t n = recv(server->fd, in, size, 0);
		if (n <= 0)
			break;
		have += (size_t)n;
		size_t cnt = have / server->request_bytes;
		have -= cnt * server->request_bytes;
		for (size_t left = cnt * server->answer_bytes; left > 0;) {
			ssize_t sent =
				send(server->fd, out, left < size ? left : size, MSG_NOSIGNAL);
			if (sent <= 0)
				break;
			left -= (size_t)sent;
		}
	}
	free(in);
	free(out);
	close(server->fd);
}

static void ready(struct lp_ns *ns, int result, void *arg)
{
	(void)ns;
	must(result, "namespace");
	((struct server *)arg)->is_ready = true;
}

static void ns_stopped(struct lp_ns *ns, void *arg)
{
	(void)ns;
	((struct server *)arg)->has_stopped = true;
}

static void door_stopped(void *arg)
{
	((struct server *)arg)->has_stopped = true;
}

static void stop(struct lp_reactor *reactor, struct lp_msg *msg)
{
	struct server *server = LP_CONTAINER_OF(msg, struct server, stop);
	(void)reactor;
	lp_door_stop(server->door, 0, door_stopped, server);
}

static void run_until_stopped(struct server *server)
{
	while (!server->has_stopped)
		(void)lp_reactor_turn(server->reactor, true);
	server->has_stopped = false;
}

static void open_server(struct server *server)
{
	const struct lp_reactor_options reactor = {.name = "door", .ring = true};
	const struct lp_peer peer = {.is_unix = true, .who = lp_who_user(0, true)};
	must(lp_reactor_new(&reactor, &server->reactor), "ring");
	must(lp_reactor_start(server->reactor), "ring");
	must(lp_bufs_new(UINT64_C(64) << 20, &server->bufs), "buffers");
	const struct lp_store_options store = {.reactor = server->reactor, .bufs = server->bufs};
	must(lp_store_open_mem(&store, &server->store), "store");
	const struct lp_ns_options ns = {.reactor = server->reactor,
					 .store = server->store,
					 .bufs = server->bufs,
					 .shard_cnt = 1};
	must(lp_ns_open(&ns, &server->ns), "namespace");
	lp_ns_start(server->ns, &server->ns, ready, server);
	while (!server->is_ready)
		(void)lp_reactor_turn(server->reactor, true);
	const struct lp_door_options door = {.reactor = server->reactor,
					     .bufs = server->bufs,
					     .ns = server->ns,
					     .shard_cnt = 1,
					     .without_batching = options.without_batching,
					     .without_pool = options.without_pool};
	must(lp_door_new(&door, &server->door), "door");
	must(lp_door_adopt(server->door, server->fd, &peer, NULL, 0), "connection");
}

/* Its door is stopping. */
static void close_server(struct server *server)
{
	run_until_stopped(server);
	lp_door_read_stats(server->door, &server->stats);
	lp_ns_stop(server->ns, ns_stopped, server);
	run_until_stopped(server);
	lp_door_free(server->door);
	lp_ns_close(server->ns);
	must(lp_store_close(server->store, false), "store");
	lp_bufs_free(server->bufs);
	lp_reactor_free(server->reactor);
}

static void *run_server(void *arg)
{
	struct server *server = arg;
	double before = cpu_s();
	if (server->is_echo) {
		pthread_barrier_wait(&server->started);
		echo(server);
	} else {
		open_server(server);
		pthread_barrier_wait(&server->started);
		close_server(server);
	}
	server->cpu_s = cpu_s() - before;
	return NULL;
}

/* --- The client
 * ------------------------------------------------------------------------------------- */

struct client {
	int fd;
	struct server *server; /* whose turns are the client's to make, or NULL */
	uint64_t ino;
	uint8_t *out;
	uint8_t *in;
	size_t in_bytes;
};

static void send_all(int fd, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;
	while (len > 0) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
		must((int)n, "send");
		at += n;
		len -= (size_t)n;
	}
}

/* One message: header, meta, and for a write its checksum and data; returns its length. */
static size_t make(uint8_t *message, uint16_t opcode, const uint8_t *meta, uint32_t meta_bytes,
		   const uint8_t *data, uint64_t offset)
{
	/* What is spoken is agreed on by the first message. */
	enum lp_wire_crc mode = opcode == LP_WIRE_OP_HELLO ? LP_WIRE_CRC_HEADER : options.crc_mode;
	struct lp_wire_header header = {.kind = LP_WIRE_KIND_REQUEST,
					.opcode = opcode,
					.meta_bytes = meta_bytes,
					.data_bytes = data != NULL ? BLOCK : 0,
					.offset = data != NULL ? offset : 0};
	uint8_t *rest = message + LP_WIRE_HEADER_SIZE;
	uint32_t crc = 0;
	if (meta_bytes > 0)
		memcpy(rest, meta, meta_bytes);
	if (data != NULL && mode == LP_WIRE_CRC_ALL) {
		header.crc_cnt = 1;
		lp_wire_crcs_make(data, 0, BLOCK, &crc);
		lp_wire_crcs_encode(&crc, 1, rest + meta_bytes);
	}
	lp_wire_header_seal(&header, mode, rest, message);
	if (data != NULL)
		memcpy(rest + lp_wire_rest_bytes(&header), data, BLOCK);
	return LP_WIRE_HEADER_SIZE + lp_wire_rest_bytes(&header) + header.data_bytes;
}

/* How many whole replies there are among the bytes that came; the last header is kept. */
static uint32_t count_replies(struct client *client, enum kind kind, uint32_t answer_bytes)
{
	uint32_t cnt = 0;
	size_t at = 0;
	if (kind == KIND_ECHO) {
		cnt = (uint32_t)(client->in_bytes / answer_bytes);
		client->in_bytes -= (size_t)cnt * answer_bytes;
		return cnt;
	}
	while (client->in_bytes - at >= LP_WIRE_HEADER_SIZE) {
		struct lp_wire_header header;
		lp_wire_header_decode(client->in + at, &header);
		size_t all = (size_t)LP_WIRE_HEADER_SIZE + lp_wire_rest_bytes(&header) +
			     header.data_bytes;
		if (header.status != 0)
			die("request", -(int)header.status);
		if (client->in_bytes - at < all)
			break;
		at += all;
		cnt++;
	}
	memmove(client->in, client->in + at, client->in_bytes - at);
	client->in_bytes -= at;
	return cnt;
}

static void let_serve(struct client *client)
{
	struct pollfd answer = {.fd = client->fd, .events = POLLIN};
	while (client->server != NULL && poll(&answer, 1, 0) == 0)
		(void)lp_reactor_turn(client->server->reactor, true);
}

static void await(struct client *client, uint8_t *ret_meta, uint32_t meta_bytes)
{
	struct lp_wire_header header;
	uint8_t bytes[1024];
	let_serve(client);
	must(recv(client->fd, bytes, LP_WIRE_HEADER_SIZE, MSG_WAITALL) == LP_WIRE_HEADER_SIZE
		     ? 0
		     : -EPROTO,
	     "reply");
	lp_wire_header_decode(bytes, &header);
	if (header.status != 0 || lp_wire_rest_bytes(&header) > sizeof(bytes))
		die("request", -(int)header.status);
	must((int)recv(client->fd, bytes, lp_wire_rest_bytes(&header), MSG_WAITALL), "reply");
	if (ret_meta != NULL)
		memcpy(ret_meta, bytes, meta_bytes);
}

static void begin_session(struct client *client)
{
	uint8_t message[REQUEST_MAX + 256];
	uint8_t meta[256];
	uint8_t block[BLOCK] = {0};
	const struct lp_wire_hello hello = {.version_min = 1,
					    .version_max = 1,
					    .crc_mode = options.crc_mode,
					    .shard = LP_WIRE_ANY_SHARD};
	const struct lp_wire_ref ref = {.path_bytes = 1};
	struct lp_wire_make file = {.uid = LP_WIRE_NO_OWNER,
				    .gid = LP_WIRE_NO_OWNER,
				    .mode = 0644,
				    .type = LP_INODE_TYPE_FILE};
	struct lp_wire_attrs attrs;
	lp_wire_hello_encode(&hello, meta);
	send_all(client->fd, message,
		 make(message, LP_WIRE_OP_HELLO, meta, sizeof(hello), NULL, 0));
	await(client, NULL, 0);
	lp_wire_ref_encode(&ref, file.ref);
	lp_wire_make_encode(&file, meta);
	meta[LP_WIRE_MAKE_SIZE] = 'f';
	send_all(client->fd, message,
		 make(message, LP_WIRE_OP_MAKE, meta, LP_WIRE_MAKE_SIZE + 1, NULL, 0));
	await(client, meta, LP_WIRE_ATTRS_SIZE);
	lp_wire_attrs_decode(meta, &attrs);
	client->ino = attrs.ino;
	const struct lp_wire_ref by_ino = {.ino = client->ino};
	for (uint64_t i = 0; i < FILE_BLOCKS; i++) {
		struct lp_wire_write write = {.append = 0};
		lp_wire_ref_encode(&by_ino, write.ref);
		lp_wire_write_encode(&write, meta);
		send_all(client->fd, message,
			 make(message, LP_WIRE_OP_WRITE, meta, LP_WIRE_WRITE_SIZE, block,
			      i * BLOCK));
		await(client, NULL, 0);
	}
}

static size_t make_request(struct client *client, enum kind kind, uint64_t nr, uint8_t *message)
{
	static uint8_t block[BLOCK];
	uint8_t meta[64];
	const struct lp_wire_ref by_ino = {.ino = client->ino};
	uint64_t offset = nr * 2654435761u % FILE_BLOCKS * BLOCK;
	struct lp_wire_write write = {.append = 0};
	struct lp_wire_get get = {.offset = offset, .length = BLOCK};
	switch (kind) {
	case KIND_PING:
		return make(message, LP_WIRE_OP_PING, NULL, 0, NULL, 0);
	case KIND_READ:
		lp_wire_ref_encode(&by_ino, get.ref);
		lp_wire_get_encode(&get, meta);
		return make(message, LP_WIRE_OP_GET, meta, LP_WIRE_GET_SIZE, NULL, 0);
	case KIND_ECHO:
	case KIND_WRITE:
	case KIND_CNT:
		break;
	}
	lp_wire_ref_encode(&by_ino, write.ref);
	lp_wire_write_encode(&write, meta);
	return make(message, LP_WIRE_OP_WRITE, meta, LP_WIRE_WRITE_SIZE, block, offset);
}

struct measured {
	double rate;
	double cpu_us;
	double per_send;
	double per_receive;
};

/* Keeps depth requests under way; what has been answered is asked anew in one send. */
static uint64_t drive(struct client *client, enum kind kind, uint32_t answer_bytes)
{
	uint64_t until_ns = now_ns() + (uint64_t)(options.seconds * 1e9);
	uint64_t done = 0;
	uint64_t sent = 0;
	uint32_t want = options.depth;
	while (want > 0 || sent > done) {
		size_t len = 0;
		for (uint32_t i = 0; i < want; i++)
			len += make_request(client, kind, sent++, client->out + len);
		send_all(client->fd, client->out, len);
		ssize_t n = recv(client->fd, client->in + client->in_bytes,
				 (size_t)options.depth * REQUEST_MAX * 2 - client->in_bytes, 0);
		must((int)n, "recv");
		if (n == 0)
			die("closed", -EPIPE);
		client->in_bytes += (size_t)n;
		want = count_replies(client, kind, answer_bytes);
		done += want;
		if (now_ns() > until_ns)
			want = 0;
	}
	return done;
}

static void connect_both(struct client *client, struct server *server)
{
	int fds[2];
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), "socketpair");
	client->fd = fds[0];
	server->fd = fds[1];
	client->out = malloc((size_t)options.depth * REQUEST_MAX);
	client->in = malloc((size_t)options.depth * REQUEST_MAX * 2);
	if (client->out == NULL || client->in == NULL)
		die("memory", -ENOMEM);
}

static void measure(enum kind kind, struct measured *ret)
{
	struct server server = {.is_echo = kind == KIND_ECHO};
	struct client client = {.ino = 0};
	uint8_t message[REQUEST_MAX];
	connect_both(&client, &server);
	server.request_bytes = (uint32_t)make_request(&client, kind, 0, message);
	server.answer_bytes = LP_WIRE_HEADER_SIZE + LP_WIRE_WRITTEN_SIZE;
	(void)pthread_barrier_init(&server.started, NULL, 2);
	must(-pthread_create(&server.thread, NULL, run_server, &server), "thread");
	pthread_barrier_wait(&server.started);
	if (kind != KIND_ECHO)
		begin_session(&client);
	uint64_t began_ns = now_ns();
	uint64_t done = drive(&client, kind, server.answer_bytes);
	double seconds = (double)(now_ns() - began_ns) / 1e9;
	if (kind != KIND_ECHO) {
		server.stop.deliver = stop;
		lp_reactor_post(server.reactor, &server.stop);
	}
	close(client.fd);
	pthread_join(server.thread, NULL);
	pthread_barrier_destroy(&server.started);
	free(client.out);
	free(client.in);
	ret->rate = (double)done / seconds;
	ret->cpu_us = server.cpu_s * 1e6 / (double)done;
	ret->per_send = server.stats.sends == 0 ? 0 : (double)done / (double)server.stats.sends;
	ret->per_receive =
		server.stats.receives == 0 ? 0 : (double)done / (double)server.stats.receives;
}

/* --- One thread for both
 * --------------------------------------------------------------------------- */

static double turn_cpu_us(struct server *server)
{
	struct timespec from;
	struct timespec to;
	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
	(void)lp_reactor_turn(server->reactor, false);
	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
	return (double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3;
}

/* Returns the CPU time of the door's turns. */
static double drive_alone(struct client *client, enum kind kind)
{
	uint64_t done = 0;
	uint64_t sent = 0;
	size_t len = 0;
	size_t at = 0;
	double cpu_us = 0;
	while (done < options.ops) {
		if (at == len) {
			at = 0;
			len = 0;
		}
		while (at == 0 && sent < options.ops && sent - done < options.depth)
			len += make_request(client, kind, sent++, client->out + len);
		ssize_t n = send(client->fd, client->out + at, len - at, MSG_DONTWAIT);
		at += n > 0 ? (size_t)n : 0;
		cpu_us += turn_cpu_us(client->server);
		n = recv(client->fd, client->in + client->in_bytes,
			 (size_t)options.depth * REQUEST_MAX * 2 - client->in_bytes, MSG_DONTWAIT);
		client->in_bytes += n > 0 ? (size_t)n : 0;
		if (n > 0)
			done += count_replies(client, kind, 0);
	}
	return cpu_us;
}

static void measure_alone(enum kind kind)
{
	struct server server = {.is_echo = false};
	struct client client = {.server = &server};
	struct lp_door_stats before;
	connect_both(&client, &server);
	open_server(&server);
	begin_session(&client);
	lp_door_read_stats(server.door, &before);
	double cpu_us = drive_alone(&client, kind);
	lp_door_stop(server.door, 0, door_stopped, &server);
	close_server(&server);
	close(client.fd);
	free(client.out);
	free(client.in);
	printf("%-5s  %.3f us CPU each  %6.1f a send  %6.1f a receive\n", kind_names[kind],
	       cpu_us / (double)options.ops,
	       (double)options.ops / (double)(server.stats.sends - before.sends),
	       (double)options.ops / (double)(server.stats.receives - before.receives));
}

static int by_rate(const void *a, const void *b)
{
	double one = ((const struct measured *)a)->rate;
	double other = ((const struct measured *)b)->rate;
	return one < other ? -1 : one > other;
}

static uint32_t index_of(const char *const *words, uint32_t cnt, const char *word)
{
	for (uint32_t i = 0; i < cnt; i++) {
		if (strcmp(words[i], word) == 0)
			return i;
	}
	die(word, -EINVAL);
	return cnt;
}

static void parse(int argc, char **argv)
{
	static const char *const modes[] = {"off", "header", "all"};
	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";
		if (strcmp(argv[i], "--without-batching") == 0) {
			options.without_batching = true;
		} else if (strcmp(argv[i], "--without-pool") == 0) {
			options.without_pool = true;
		} else if (strcmp(argv[i], "--depth") == 0) {
			options.depth = (uint32_t)strtoul(value, NULL, 10);
			i++;
		} else if (strcmp(argv[i], "--rounds") == 0) {
			options.rounds = (uint32_t)strtoul(value, NULL, 10);
			i++;
		} else if (strcmp(argv[i], "--seconds") == 0) {
			options.seconds = strtod(value, NULL);
			i++;
		} else if (strcmp(argv[i], "--crc") == 0) {
			options.crc_mode = (enum lp_wire_crc)index_of(modes, 3, value);
			i++;
		} else if (strcmp(argv[i], "--alone") == 0) {
			options.alone = (enum kind)index_of(kind_names, KIND_CNT, value);
			i++;
		} else if (strcmp(argv[i], "--ops") == 0) {
			options.ops = strtoull(value, NULL, 10);
			i++;
		} else {
			die(argv[i], -EINVAL);
		}
	}
	if (options.depth == 0 || options.depth > 256 || options.rounds == 0 ||
	    options.rounds > ROUNDS_MAX || options.seconds <= 0 || options.ops == 0 ||
	    options.alone == KIND_ECHO)
		die("depth, rounds, seconds, ops or kind", -EINVAL);
}

int main(int argc, char **argv)
{
	struct measured all[KIND_CNT][ROUNDS_MAX];
	parse(argc, argv);
	if (options.alone != KIND_CNT) {
		measure_alone(options.alone);
		return 0;
	}
	for (uint32_t round = 0; round < options.rounds; round++) {
		for (uint32_t kind = 0; kind < KIND_CNT; kind++)
			measure((enum kind)kind, &all[kind][round]);
	}
	double ceiling = 0;
	for (uint32_t kind = 0; kind < KIND_CNT; kind++) {
		qsort(all[kind], options.rounds, sizeof(all[kind][0]), by_rate);
		const struct measured *median = &all[kind][options.rounds / 2];
		if (kind == KIND_ECHO)
			ceiling = median->rate;
		printf("%-5s  %9.0f messages/s  %5.2f of echo  %5.2f us CPU each  %6.1f a send  "
		       "%6.1f a receive",
		       kind_names[kind], median->rate, median->rate / ceiling, median->cpu_us,
		       median->per_send, median->per_receive);
		if (kind == KIND_WRITE)
			printf("  target %.2f %s", TARGET,
			       median->rate / ceiling >= TARGET ? "met" : "missed");
		printf("\n");
	}
	return 0;
}
