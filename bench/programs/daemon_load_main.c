/* SPDX-License-Identifier: Apache-2.0 */
/* Load on a daemon, of one kind, by one thread: what bench/daemon measures with.
 *
 *   daemon_load --address unix:PATH|tcp:HOST:PORT --op OP [--size BYTES] [--depth N] [--seconds S]
 *               [--object NAME] [--object-size BYTES] [--path auto|inline|deferred|direct]
 *               [--crc off|header|all] [--connections N] [--rate N] [--ops N] [--seed N]
 *               [--order random|sequential] [--sends together|singly] [--nodelay on|off]
 *               [--quickack on|off] [--socket-buffer BYTES] [--share on|off]
 *   daemon_load --echo write|read|ping [--size BYTES] [--depth N] [--seconds S]
 *
 * OP is write or read (of a file NAME, at random places on the grid of the size, or from front to
 * back; it is made and filled when it is shorter than the object size), create (puts of new objects
 * NAME/...), or ping. Each connection has `depth` requests under way, and a file of its own on the
 * shard that serves it. With --rate so many requests are begun a second, whatever the answers do,
 * and a latency counts from when a request was due, not from when it could be sent at last. With
 * --ops it ends after so many requests, or when the time is over.
 *
 * So that the client is not what is measured: all data sent is one buffer, whose checksums are
 * made once; what comes is not copied nor checked, but for the header; whatever can be sent goes
 * in one call, and whatever came is taken by one. Its own CPU time is in the report.
 *
 * Over TCP its socket is as a client's of liblapis: what is small goes at once. --nodelay off,
 * --quickack (acknowledge each segment at once), --socket-buffer and --sends (a call for each
 * request) are for asking what that is worth.
 *
 * Reads of 256 KiB and more through a unix socket come by shared memory, as they do to liblapis,
 * and are copied from there to where a receive would have put them; --share off lets them come
 * through the socket.
 *
 * --echo has no daemon: a child answers the same messages with replies of the same sizes, and does
 * nothing else. That is the ceiling of the socket.
 *
 * The report is one line of JSON. Exit status 1 when a request failed. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/prng.h"
#include "base/struct/hist.h"
#include "base/units.h"
#include "store/record/types.h"
#include "wire/wire.h"

#define CONNS_MAX   16u
#define DEPTH_MAX   1024u
#define IOVS_MAX    512u /* of one send: 256 messages */
#define IN_BYTES    (256u << 10)
#define HEAD_MAX    (LP_WIRE_HEADER_SIZE + 128u + 4u * LP_WIRE_CRCS_MAX)
#define NAME_BYTES  64u
#define FILE_TRIES  256u
#define TEXT_BYTES  (LP_WIRE_TEXT_MAX + 1)
#define ECHO_BYTES  (1u << 20)
#define REPLY_BYTES 256u /* before the data of a reply that is waited for */
#define SHARE_BYTES (UINT64_C(16) << 20)
#define SHARE_FROM  (256u << 10)
#define REST_MAX                                                                                   \
	(LP_WIRE_GOT_SIZE + LP_WIRE_PARTS_MAX * LP_WIRE_SHARED_SIZE + 4u * LP_WIRE_CRCS_MAX)

enum op { OP_WRITE, OP_READ, OP_CREATE, OP_PING, OP_CNT };
static const char *const op_names[OP_CNT] = {"write", "read", "create", "ping"};
static const char *const path_names[] = {"auto", "inline", "deferred", "direct"};
static const char *const crc_names[] = {"off", "header", "all"};
static const char *const switch_names[] = {"off", "on"};
static const char *const order_names[] = {"random", "sequential"};
static const char *const sends_names[] = {"together", "singly"};

static struct {
	const char *address;
	bool is_echo;
	enum op op;
	uint32_t size;
	uint32_t depth;
	double seconds;
	const char *object;
	uint64_t object_bytes;
	uint8_t path;
	enum lp_wire_crc crc;
	uint32_t conn_cnt;
	double rate;
	uint64_t ops; /* 0: until the time is over */
	uint64_t seed;
	bool is_sequential;
	bool sends_singly;
	bool without_nodelay;
	bool with_quickack;
	uint32_t socket_bytes; /* 0: as the kernel likes */
	bool without_share;
} options = {.op = OP_CNT,
	     .size = 4096,
	     .depth = 1,
	     .seconds = 1,
	     .object = "load",
	     .object_bytes = UINT64_C(256) << 20,
	     .crc = LP_WIRE_CRC_ALL,
	     .conn_cnt = 1,
	     .seed = 1};

struct conn {
	int fd;
	uint64_t ino;
	uint64_t next_place; /* of --order sequential */
	uint32_t free_cnt;
	uint32_t free[DEPTH_MAX]; /* slots, as numbers in requests */
	/* What has come of a header, and how much is still to come of what follows it. */
	uint8_t head[LP_WIRE_HEADER_SIZE];
	uint32_t head_bytes;
	uint64_t skip_bytes;
	bool is_last; /* the reply that is coming */
	uint64_t coming_id;
	/* Shared memory, and of replies with data there what follows the header. */
	const uint8_t *share; /* NULL: there is none */
	uint64_t share_bytes;
	uint64_t shared_cnt;
	uint64_t released_cnt;
	bool is_shared; /* the reply that is coming */
	uint32_t rest_bytes;
	uint32_t meta_bytes;
	uint8_t rest[REST_MAX];
};

static struct conn conns[CONNS_MAX];
static uint64_t began_ns[DEPTH_MAX];
static uint8_t *data;       /* LP_WIRE_DATA_MAX bytes */
static uint8_t *data_crcs;  /* of its blocks, as they are sent */
static uint8_t *heads;      /* stride_bytes for each of a send */
static size_t stride_bytes; /* close to each other: they stay in the cache */
static uint8_t *in;         /* IN_BYTES */
static uint8_t *landing;    /* the same, of shared memory */
static struct iovec iovs[IOVS_MAX];
static struct lp_prng prng;
static struct lp_hist latencies;
static struct {
	uint64_t begun;
	uint64_t unsent; /* due by the rate, and never begun */
	uint64_t done;
	uint64_t errors;
	uint64_t sends;
	uint64_t receives;
	uint64_t created;
	uint64_t shared; /* replies with data in shared memory */
	char error[TEXT_BYTES + 64];
} stats;

static void die(const char *what, int err)
{
	(void)fprintf(stderr, "daemon_load: %s: %s\n", what, lp_strerror(err));
	exit(1); /* NOLINT(concurrency-mt-unsafe): one thread */
}

static uint64_t now_ns(void)
{
	return lp_clock_mono_ns(lp_clock_system());
}

static double cpu_us(int who)
{
	struct rusage usage;
	(void)getrusage(who, &usage); /* cannot fail with these arguments */
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* --- Messages --------------------------------------------------------------------------------- */

/* A message without its data, to `head`: returns its length. */
static uint32_t make_message(struct lp_wire_header *header, const void *meta, enum lp_wire_crc mode,
			     uint8_t *head)
{
	uint8_t *rest = head + LP_WIRE_HEADER_SIZE;
	header->kind = LP_WIRE_KIND_REQUEST;
	if (header->meta_bytes > 0)
		memcpy(rest, meta, header->meta_bytes);
	if (header->data_bytes > 0 && mode == LP_WIRE_CRC_ALL) {
		header->crc_cnt = lp_wire_piece_cnt(header->offset, header->data_bytes);
		memcpy(rest + header->meta_bytes, data_crcs, (size_t)header->crc_cnt * 4);
	}
	lp_wire_header_seal(header, mode, rest, head);
	return LP_WIRE_HEADER_SIZE + lp_wire_rest_bytes(header);
}

static uint64_t next_offset(struct conn *conn)
{
	uint64_t places = options.object_bytes / options.size;
	uint64_t place =
		options.is_sequential ? conn->next_place++ % places : lp_prng_below(&prng, places);
	return place * options.size;
}

static uint32_t make_write(uint64_t ino, uint64_t id, uint64_t offset, uint32_t bytes,
			   uint8_t *head)
{
	const struct lp_wire_ref ref = {.ino = ino};
	struct lp_wire_write write = {.write_path = options.path};
	uint8_t meta[LP_WIRE_WRITE_SIZE];
	struct lp_wire_header header = {.opcode = LP_WIRE_OP_WRITE,
					.request_id = id,
					.meta_bytes = sizeof(meta),
					.data_bytes = bytes,
					.offset = offset};
	lp_wire_ref_encode(&ref, write.ref);
	lp_wire_write_encode(&write, meta);
	return make_message(&header, meta, options.crc, head);
}

static uint32_t make_read(struct conn *conn, uint64_t id, uint8_t *head)
{
	const struct lp_wire_ref ref = {.ino = conn->ino};
	struct lp_wire_get get = {.offset = next_offset(conn), .length = options.size};
	uint8_t meta[LP_WIRE_GET_SIZE];
	struct lp_wire_header header = {
		.opcode = LP_WIRE_OP_GET, .request_id = id, .meta_bytes = sizeof(meta)};
	lp_wire_ref_encode(&ref, get.ref);
	lp_wire_get_encode(&get, meta);
	return make_message(&header, meta, options.crc, head);
}

static uint32_t make_create(uint64_t id, uint8_t *head)
{
	uint8_t meta[LP_WIRE_PUT_SIZE + 2 * NAME_BYTES];
	char *path = (char *)meta + LP_WIRE_PUT_SIZE;
	int len = snprintf(path, 2 * (size_t)NAME_BYTES, "%s/%llx-%llu", options.object,
			   (unsigned long long)options.seed, (unsigned long long)stats.created++);
	const struct lp_wire_ref ref = {.path_bytes = (uint16_t)len};
	struct lp_wire_put put = {.uid = LP_WIRE_NO_OWNER,
				  .gid = LP_WIRE_NO_OWNER,
				  .mode = LP_WIRE_NO_MODE,
				  .write_path = options.path};
	struct lp_wire_header header = {.opcode = LP_WIRE_OP_PUT,
					.request_id = id,
					.meta_bytes = LP_WIRE_PUT_SIZE + (uint32_t)len,
					.data_bytes = options.size};
	lp_wire_ref_encode(&ref, put.ref);
	lp_wire_put_encode(&put, meta);
	return make_message(&header, meta, options.crc, head);
}

static uint32_t make_request(struct conn *conn, uint64_t id, uint8_t *head)
{
	struct lp_wire_header ping = {.opcode = LP_WIRE_OP_PING, .request_id = id};
	switch (options.op) {
	case OP_WRITE:
		return make_write(conn->ino, id, next_offset(conn), options.size, head);
	case OP_READ:
		return make_read(conn, id, head);
	case OP_CREATE:
		return make_create(id, head);
	case OP_PING:
	case OP_CNT:
		break;
	}
	return make_message(&ping, NULL, options.crc, head);
}

static bool sends_data(void)
{
	return options.op == OP_WRITE || options.op == OP_CREATE;
}

static void set_socket(int fd, int level, int name, int value)
{
	if (setsockopt(fd, level, name, &value, sizeof(value)) < 0)
		die("setsockopt", -errno);
}

static uint32_t make_release(struct conn *conn, uint8_t *head)
{
	const struct lp_wire_header header = {.kind = LP_WIRE_KIND_NOTICE,
					      .opcode = LP_WIRE_OP_RELEASE,
					      .offset = conn->shared_cnt};
	conn->released_cnt = conn->shared_cnt;
	lp_wire_header_seal(&header, options.crc, NULL, head);
	return LP_WIRE_HEADER_SIZE;
}

/* --- Sending ---------------------------------------------------------------------------------- */

static void send_some(int fd, struct iovec *from, uint32_t cnt)
{
	struct msghdr msg = {.msg_iov = from, .msg_iovlen = cnt};
	while (msg.msg_iovlen > 0) {
		ssize_t n = sendmsg(fd, &msg, MSG_NOSIGNAL);
		stats.sends++;
		if (n < 0)
			die("send", -errno);
		while (msg.msg_iovlen > 0 && (size_t)n >= msg.msg_iov->iov_len) {
			n -= (ssize_t)msg.msg_iov->iov_len;
			msg.msg_iov++;
			msg.msg_iovlen--;
		}
		if (msg.msg_iovlen > 0) {
			msg.msg_iov->iov_base = (uint8_t *)msg.msg_iov->iov_base + n;
			msg.msg_iov->iov_len -= (size_t)n;
		}
	}
}

static void send_vectors(int fd, uint32_t cnt)
{
	send_some(fd, iovs, cnt);
}

/* All messages have the same number of vectors. */
static void send_singly(int fd, uint32_t messages, uint32_t cnt)
{
	for (uint32_t i = 0; i < messages; i++)
		send_some(fd, iovs + (size_t)i * (cnt / messages), cnt / messages);
}

static bool has_all(void)
{
	return options.ops > 0 && stats.begun >= options.ops;
}

/* Requests that began at begin_ns, one every interval_ns up to now; returns when the next one is
 * due. Without an interval as many as there are slots. */
static uint64_t send_requests(struct conn *conn, uint64_t due_ns, uint64_t interval_ns)
{
	uint64_t now = now_ns();
	uint32_t cnt = 0;
	uint32_t messages = 0;
	if (conn->released_cnt != conn->shared_cnt) {
		uint8_t *head = heads + messages++ * stride_bytes;
		iovs[cnt++] = (struct iovec){head, make_release(conn, head)};
	}
	while (conn->free_cnt > 0 && cnt + 2 <= IOVS_MAX && (interval_ns == 0 || due_ns <= now) &&
	       !has_all()) {
		uint32_t slot = conn->free[--conn->free_cnt];
		uint8_t *head = heads + messages++ * stride_bytes;
		began_ns[slot] = interval_ns == 0 ? now : due_ns;
		due_ns += interval_ns;
		stats.begun++;
		iovs[cnt++] = (struct iovec){head, make_request(conn, slot, head)};
		if (sends_data())
			iovs[cnt++] = (struct iovec){data, options.size};
	}
	if (options.sends_singly)
		send_singly(conn->fd, messages, cnt);
	else if (cnt > 0)
		send_vectors(conn->fd, cnt);
	return due_ns;
}

/* --- Receiving -------------------------------------------------------------------------------- */

static void note_error(const struct lp_wire_header *header)
{
	if (stats.errors++ == 0)
		(void)snprintf(stats.error, sizeof(stats.error), "opcode %u: %s", header->opcode,
			       lp_strerror(-(int)header->status));
}

static void take_header(struct conn *conn)
{
	struct lp_wire_header header;
	lp_wire_header_decode(conn->head, &header);
	if (header.magic != LP_WIRE_MAGIC || header.request_id >= DEPTH_MAX)
		die("a reply that is none", -EPROTO);
	if (header.status != 0)
		note_error(&header);
	conn->is_shared = (header.flags & (uint32_t)LP_WIRE_FLAG_SHARED) != 0;
	conn->skip_bytes = lp_wire_rest_bytes(&header);
	conn->meta_bytes = header.meta_bytes;
	conn->rest_bytes = 0;
	if (!conn->is_shared)
		conn->skip_bytes += header.data_bytes;
	else if (conn->skip_bytes > REST_MAX || conn->share == NULL)
		die("a reply with shared data", -EPROTO);
	conn->is_last = (header.flags & (uint32_t)LP_WIRE_FLAG_MORE) == 0;
	conn->coming_id = header.request_id;
}

/* To where a receive would have put it. */
static void copy_shared(struct conn *conn)
{
	struct lp_wire_shared part;
	for (uint32_t at = LP_WIRE_GOT_SIZE; at < conn->meta_bytes; at += sizeof(part)) {
		lp_wire_shared_decode(conn->rest + at, &part);
		if ((uint64_t)part.offset + part.bytes > conn->share_bytes)
			die("a part of shared data", -EPROTO);
		for (uint32_t done = 0; done < part.bytes; done += IN_BYTES)
			memcpy(landing, conn->share + part.offset + done,
			       LP_MIN(part.bytes - done, IN_BYTES));
	}
	conn->shared_cnt++;
	stats.shared++;
}

static void take_reply(struct conn *conn, uint64_t now)
{
	conn->head_bytes = 0;
	if (conn->is_shared)
		copy_shared(conn);
	if (!conn->is_last)
		return;
	lp_hist_record(&latencies, now - began_ns[conn->coming_id]);
	conn->free[conn->free_cnt++] = (uint32_t)conn->coming_id;
	stats.done++;
}

static void take_bytes(struct conn *conn, const uint8_t *bytes, size_t len, uint64_t now)
{
	while (len > 0) {
		size_t part = LP_WIRE_HEADER_SIZE - conn->head_bytes;
		if (part > 0) {
			part = LP_MIN(part, len);
			memcpy(conn->head + conn->head_bytes, bytes, part);
			conn->head_bytes += (uint32_t)part;
			if (conn->head_bytes == LP_WIRE_HEADER_SIZE)
				take_header(conn);
		} else {
			part = LP_MIN(conn->skip_bytes, len);
			conn->skip_bytes -= part;
			if (conn->is_shared) {
				memcpy(conn->rest + conn->rest_bytes, bytes, part);
				conn->rest_bytes += (uint32_t)part;
			}
		}
		if (conn->head_bytes == LP_WIRE_HEADER_SIZE && conn->skip_bytes == 0)
			take_reply(conn, now);
		bytes += part;
		len -= part;
	}
}

static void receive(struct conn *conn, int flags)
{
	ssize_t n = recv(conn->fd, in, IN_BYTES, flags);
	stats.receives++;
	if (options.with_quickack)
		set_socket(conn->fd, IPPROTO_TCP, TCP_QUICKACK, 1); /* it does not last */
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		die("receive", -errno);
	if (n == 0)
		die("the daemon has closed the connection", -ECONNRESET);
	if (n > 0)
		take_bytes(conn, in, (size_t)n, now_ns());
}

/* Whatever has come; waits for something, at most until_ns. */
static void receive_any(uint64_t until_ns)
{
	struct pollfd fds[CONNS_MAX];
	uint64_t now = now_ns();
	uint64_t left = until_ns > now ? until_ns - now : 0;
	const struct timespec wait = {.tv_sec = (time_t)(left / LP_NS_PER_S),
				      .tv_nsec = (long)(left % LP_NS_PER_S)};
	if (options.conn_cnt == 1 && until_ns == UINT64_MAX) {
		receive(&conns[0], 0);
		return;
	}
	for (uint32_t i = 0; i < options.conn_cnt; i++)
		fds[i] = (struct pollfd){.fd = conns[i].fd, .events = POLLIN};
	if (ppoll(fds, options.conn_cnt, until_ns == UINT64_MAX ? NULL : &wait, NULL) < 0 &&
	    errno != EINTR)
		die("poll", -errno);
	for (uint32_t i = 0; i < options.conn_cnt; i++) {
		if (fds[i].revents != 0)
			receive(&conns[i], MSG_DONTWAIT);
	}
}

/* Without a free slot only an answer helps. */
static bool is_full(void)
{
	for (uint32_t i = 0; i < options.conn_cnt; i++) {
		if (conns[i].free_cnt > 0)
			return false;
	}
	return true;
}

static bool is_busy(void)
{
	for (uint32_t i = 0; i < options.conn_cnt; i++) {
		if (conns[i].free_cnt < options.depth)
			return true;
	}
	return false;
}

/* Returns how many seconds it took. */
static double drive(void)
{
	uint64_t begin_ns = now_ns();
	uint64_t end_ns = begin_ns + (uint64_t)(options.seconds * 1e9);
	uint64_t due_ns = begin_ns;
	uint64_t interval_ns = options.rate > 0 ? (uint64_t)(1e9 / options.rate) : 0;
	uint32_t first = 0;
	while (now_ns() < end_ns && !has_all()) {
		/* With a rate the first one takes all that is due: each is it in turn. */
		for (uint32_t i = 0; i < options.conn_cnt; i++)
			due_ns = send_requests(&conns[(first + i) % options.conn_cnt], due_ns,
					       interval_ns);
		first++;
		receive_any(interval_ns == 0 || is_full() ? UINT64_MAX : due_ns);
	}
	if (interval_ns > 0 && due_ns < end_ns && !has_all())
		stats.unsent = (end_ns - due_ns) / interval_ns;
	while (is_busy())
		receive_any(UINT64_MAX);
	return (double)(now_ns() - begin_ns) / 1e9;
}

/* --- One request after the other, before the load --------------------------------------------- */

static void receive_all(int fd, void *bytes, size_t len)
{
	ssize_t n = len == 0 ? 0 : recv(fd, bytes, len, MSG_WAITALL);
	if (n != (ssize_t)len)
		die("a reply", n < 0 ? -errno : -ECONNRESET);
}

/* Its status; the first meta_bytes of its meta. */
static int await_reply(int fd, void *ret_meta, uint32_t meta_bytes)
{
	struct lp_wire_header header;
	uint8_t bytes[LP_WIRE_HEADER_SIZE];
	uint8_t rest[REPLY_BYTES + LP_WIRE_TEXT_MAX];
	receive_all(fd, bytes, sizeof(bytes));
	lp_wire_header_decode(bytes, &header);
	if (lp_wire_rest_bytes(&header) > sizeof(rest) || header.data_bytes > 0)
		die("a reply", -EPROTO);
	receive_all(fd, rest, lp_wire_rest_bytes(&header));
	if (header.status != 0)
		return -(int)header.status;
	if (meta_bytes > 0)
		memcpy(ret_meta, rest, meta_bytes);
	return 0;
}

static void send_one(int fd, uint8_t *head, uint32_t head_bytes, uint32_t data_bytes)
{
	iovs[0] = (struct iovec){head, head_bytes};
	iovs[1] = (struct iovec){data, data_bytes};
	send_vectors(fd, data_bytes > 0 ? 2 : 1);
}

/* Says hello to a shard, and says how many there are. */
static uint32_t greet(struct conn *conn, uint32_t shard)
{
	const struct lp_wire_hello hello = {
		.version_min = 1, .version_max = 1, .crc_mode = options.crc, .shard = shard};
	struct lp_wire_header header = {.opcode = LP_WIRE_OP_HELLO,
					.meta_bytes = LP_WIRE_HELLO_SIZE};
	struct lp_wire_welcome welcome;
	uint8_t meta[LP_WIRE_WELCOME_SIZE];
	lp_wire_hello_encode(&hello, meta);
	send_one(conn->fd, heads, make_message(&header, meta, LP_WIRE_CRC_HEADER, heads), 0);
	int r = await_reply(conn->fd, meta, sizeof(meta));
	if (r < 0)
		die("hello", r);
	lp_wire_welcome_decode(meta, &welcome);
	options.crc = (enum lp_wire_crc)welcome.crc_mode;
	return welcome.shard_cnt;
}

static int ask_attrs(struct conn *conn, uint16_t opcode, const void *meta, uint32_t meta_bytes,
		     struct lp_wire_attrs *ret)
{
	struct lp_wire_header header = {.opcode = opcode, .meta_bytes = meta_bytes};
	uint8_t bytes[LP_WIRE_ATTRS_SIZE];
	send_one(conn->fd, heads, make_message(&header, meta, options.crc, heads), 0);
	int r = await_reply(conn->fd, bytes, sizeof(bytes));
	if (r == 0)
		lp_wire_attrs_decode(bytes, ret);
	return r;
}

/* A file that is there, or a new one. */
static void open_file(struct conn *conn, const char *path, struct lp_wire_attrs *ret_attrs)
{
	uint8_t meta[LP_WIRE_PUT_SIZE + NAME_BYTES];
	uint32_t len = (uint32_t)strlen(path);
	const struct lp_wire_ref ref = {.path_bytes = (uint16_t)len};
	struct lp_wire_put put = {
		.uid = LP_WIRE_NO_OWNER, .gid = LP_WIRE_NO_OWNER, .mode = LP_WIRE_NO_MODE};
	lp_wire_ref_encode(&ref, meta);
	/* NOLINTNEXTLINE(bugprone-not-null-terminated-result): paths of the wire have a length */
	memcpy(meta + LP_WIRE_REF_SIZE, path, len);
	int r = ask_attrs(conn, LP_WIRE_OP_STAT, meta, LP_WIRE_REF_SIZE + len, ret_attrs);
	if (r == -ENOENT) {
		lp_wire_ref_encode(&ref, put.ref);
		lp_wire_put_encode(&put, meta);
		/* NOLINTNEXTLINE(bugprone-not-null-terminated-result): the same */
		memcpy(meta + LP_WIRE_PUT_SIZE, path, len);
		r = ask_attrs(conn, LP_WIRE_OP_PUT, meta, LP_WIRE_PUT_SIZE + len, ret_attrs);
	}
	if (r < 0)
		die(path, r);
}

static void fill_file(const struct conn *conn, uint64_t from_bytes)
{
	uint64_t at = from_bytes;
	while (at < options.object_bytes) {
		uint64_t part = LP_MIN(options.object_bytes - at, (uint64_t)LP_WIRE_DATA_MAX);
		uint32_t len = make_write(conn->ino, 0, at, (uint32_t)part, heads);
		send_one(conn->fd, heads, len, (uint32_t)part);
		int r = await_reply(conn->fd, NULL, 0);
		if (r < 0)
			die("fill", r);
		at += part;
	}
}

/* The file for a connection: directories are tried until that many have led to its shard. */
static void find_file(struct conn *conn, uint32_t shard, uint32_t before_cnt)
{
	struct lp_wire_attrs attrs = {0};
	char path[NAME_BYTES];
	for (uint32_t i = 0; i < FILE_TRIES; i++) {
		(void)snprintf(path, sizeof(path), "%s.%u/file", options.object, i);
		open_file(conn, path, &attrs);
		if (lp_ino_shard((struct lp_ino){attrs.ino}) != shard || before_cnt-- > 0)
			continue;
		conn->ino = attrs.ino;
		fill_file(conn, attrs.size_bytes);
		return;
	}
	die("no directory leads to the shard", -ENOENT);
}

static int connect_to(const char *address)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	struct sockaddr_in tcp = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const char *port = address == NULL ? NULL : strrchr(address, ':');
	if (port == NULL)
		die("the address", -EINVAL);
	bool is_unix = strncmp(address, "unix:", 5) == 0;
	int fd = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	(void)snprintf(un.sun_path, sizeof(un.sun_path), "%s", address + 5);
	tcp.sin_port = htons((uint16_t)strtoul(port + 1, NULL, 10));
	if (fd >= 0 && !is_unix && !options.without_nodelay)
		set_socket(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	if (fd >= 0 && options.socket_bytes > 0) {
		set_socket(fd, SOL_SOCKET, SO_SNDBUF, (int)options.socket_bytes);
		set_socket(fd, SOL_SOCKET, SO_RCVBUF, (int)options.socket_bytes);
	}
	int r = is_unix ? connect(fd, (struct sockaddr *)&un, sizeof(un))
			: connect(fd, (struct sockaddr *)&tcp, sizeof(tcp));
	if (fd < 0 || r < 0)
		die(address, -errno);
	return fd;
}

/* The descriptor that comes with the header of a reply, or -1. */
static int receive_fd(int fd, uint8_t *ret_header)
{
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {ret_header, LP_WIRE_HEADER_SIZE};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &msg, MSG_WAITALL | MSG_CMSG_CLOEXEC);
	if (n != LP_WIRE_HEADER_SIZE)
		die("a reply", n < 0 ? -errno : -ECONNRESET);
	int came = -1;
	const struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
	if (head != NULL && head->cmsg_type == SCM_RIGHTS)
		memcpy(&came, CMSG_DATA(head), sizeof(came));
	return came;
}

/* Without it all comes through the socket. */
static void ask_to_share(struct conn *conn)
{
	struct lp_wire_share share = {.bytes = SHARE_BYTES};
	struct lp_wire_header header = {.opcode = LP_WIRE_OP_SHARE,
					.meta_bytes = LP_WIRE_SHARE_SIZE};
	uint8_t meta[LP_WIRE_SHARE_SIZE];
	uint8_t bytes[LP_WIRE_HEADER_SIZE];
	uint8_t rest[REPLY_BYTES + LP_WIRE_TEXT_MAX];
	lp_wire_share_encode(&share, meta);
	send_one(conn->fd, heads, make_message(&header, meta, options.crc, heads), 0);
	int fd = receive_fd(conn->fd, bytes);
	lp_wire_header_decode(bytes, &header);
	if (lp_wire_rest_bytes(&header) > sizeof(rest))
		die("a reply", -EPROTO);
	receive_all(conn->fd, rest, lp_wire_rest_bytes(&header));
	if (header.status == 0 && fd >= 0) {
		lp_wire_share_decode(rest, &share);
		conn->share = mmap(NULL, share.bytes, PROT_READ, MAP_SHARED, fd, 0);
		conn->share_bytes = share.bytes;
		if (conn->share == MAP_FAILED)
			die("shared memory", -errno);
	}
	if (fd >= 0)
		close(fd);
}

static bool may_share(void)
{
	return options.op == OP_READ && options.size >= SHARE_FROM && !options.without_share &&
	       options.crc == LP_WIRE_CRC_ALL && strncmp(options.address, "unix:", 5) == 0;
}

static void connect_all(void)
{
	for (uint32_t i = 0; i < options.conn_cnt; i++) {
		struct conn *conn = &conns[i];
		conn->fd = connect_to(options.address);
		/* The first only asks how many there are; numbers beyond go round. */
		uint32_t shard_cnt = greet(conn, i == 0 ? 0 : LP_WIRE_ANY_SHARD);
		if (i > 0 && shard_cnt > 1) {
			close(conn->fd);
			conn->fd = connect_to(options.address);
			(void)greet(conn, i % shard_cnt);
		}
		if (options.op == OP_WRITE || options.op == OP_READ)
			find_file(conn, i % shard_cnt, i / shard_cnt);
		if (may_share())
			ask_to_share(conn);
	}
}

/* --- The ceiling ------------------------------------------------------------------------------ */

/* Answers each request_bytes with reply_bytes, under its number, until the other end closes. */
static void echo(int fd, uint32_t request_bytes, uint32_t reply_bytes)
{
	uint32_t batch_max = ECHO_BYTES / LP_MIN(request_bytes, reply_bytes) + 1;
	uint8_t *requests = malloc(ECHO_BYTES);
	uint8_t *replies = calloc(batch_max, reply_bytes);
	struct lp_wire_header header = {.kind = LP_WIRE_KIND_REPLY,
					.data_bytes = reply_bytes - LP_WIRE_HEADER_SIZE};
	size_t have = 0;
	ssize_t n;
	if (requests == NULL || replies == NULL)
		die("memory", -ENOMEM);
	for (uint32_t i = 0; i < batch_max; i++)
		lp_wire_header_seal(&header, LP_WIRE_CRC_OFF, NULL,
				    replies + (size_t)i * reply_bytes);
	while ((n = recv(fd, requests + have, ECHO_BYTES - have, 0)) > 0) {
		have += (size_t)n;
		size_t cnt = have / request_bytes;
		for (size_t i = 0; i < cnt; i++)
			memcpy(replies + i * reply_bytes + LP_WIRE_HEADER_REQUEST_ID_OFF,
			       requests + i * request_bytes + LP_WIRE_HEADER_REQUEST_ID_OFF,
			       LP_WIRE_HEADER_REQUEST_ID_SIZE);
		have -= cnt * request_bytes;
		memmove(requests, requests + cnt * request_bytes, have);
		for (size_t at = 0; at < cnt * reply_bytes; at += (size_t)n) {
			n = send(fd, replies + at, cnt * reply_bytes - at, MSG_NOSIGNAL);
			if (n <= 0)
				_exit(1);
		}
	}
	_exit(0);
}

static pid_t start_echo(void)
{
	int fds[2];
	uint32_t request_bytes = make_request(&conns[0], 0, heads);
	uint32_t reply_bytes = LP_WIRE_HEADER_SIZE;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		die("socketpair", -errno);
	if (sends_data()) {
		request_bytes += options.size;
		reply_bytes += LP_WIRE_WRITTEN_SIZE;
	} else if (options.op == OP_READ) {
		reply_bytes +=
			LP_WIRE_GOT_SIZE + options.size + options.size / LP_WIRE_BLOCK_BYTES * 4;
	}
	if (request_bytes > ECHO_BYTES || reply_bytes > ECHO_BYTES)
		die("--size", -EFBIG);
	pid_t pid = fork();
	if (pid < 0)
		die("fork", -errno);
	if (pid == 0) {
		close(fds[0]);
		echo(fds[1], request_bytes, reply_bytes);
	}
	close(fds[1]);
	conns[0].fd = fds[0];
	return pid;
}

/* --- All of it -------------------------------------------------------------------------------- */

static uint32_t choice(const char *what, const char *value, const char *const *names, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++) {
		if (strcmp(names[i], value) == 0)
			return i;
	}
	die(what, -EINVAL);
	return cnt;
}

static uint64_t number(const char *what, const char *value, uint64_t max)
{
	uint64_t n = 0;
	if (lp_parse_bytes(value, &n) < 0 || n == 0 || n > max)
		die(what, -EINVAL);
	return n;
}

static bool set_path_option(const char *name, const char *value)
{
	if (strcmp(name, "--order") == 0)
		options.is_sequential = choice(name, value, order_names, 2) == 1;
	else if (strcmp(name, "--sends") == 0)
		options.sends_singly = choice(name, value, sends_names, 2) == 1;
	else if (strcmp(name, "--nodelay") == 0)
		options.without_nodelay = choice(name, value, switch_names, 2) == 0;
	else if (strcmp(name, "--quickack") == 0)
		options.with_quickack = choice(name, value, switch_names, 2) == 1;
	else if (strcmp(name, "--share") == 0)
		options.without_share = choice(name, value, switch_names, 2) == 0;
	else if (strcmp(name, "--socket-buffer") == 0)
		options.socket_bytes = (uint32_t)number(name, value, UINT64_C(64) << 20);
	else
		return false;
	return true;
}

static void set_option(const char *name, const char *value)
{
	if (strcmp(name, "--address") == 0)
		options.address = value;
	else if (strcmp(name, "--object") == 0)
		options.object = value;
	else if (strcmp(name, "--size") == 0)
		options.size = (uint32_t)number(name, value, LP_WIRE_DATA_MAX);
	else if (strcmp(name, "--depth") == 0)
		options.depth = (uint32_t)number(name, value, DEPTH_MAX);
	else if (strcmp(name, "--seconds") == 0)
		options.seconds = strtod(value, NULL);
	else if (strcmp(name, "--object-size") == 0)
		options.object_bytes = number(name, value, UINT64_MAX);
	else if (strcmp(name, "--path") == 0)
		options.path = (uint8_t)choice(name, value, path_names, LP_ARRAY_SIZE(path_names));
	else if (strcmp(name, "--crc") == 0)
		options.crc =
			(enum lp_wire_crc)choice(name, value, crc_names, LP_ARRAY_SIZE(crc_names));
	else if (strcmp(name, "--connections") == 0)
		options.conn_cnt = (uint32_t)number(name, value, CONNS_MAX);
	else if (strcmp(name, "--rate") == 0)
		options.rate = strtod(value, NULL);
	else if (strcmp(name, "--ops") == 0)
		options.ops = number(name, value, UINT64_MAX);
	else if (strcmp(name, "--seed") == 0)
		options.seed = number(name, value, UINT64_MAX);
	else if (!set_path_option(name, value))
		die(name, -EINVAL);
}

static void parse(int argc, char **argv)
{
	for (int i = 1; i + 1 < argc; i += 2) {
		options.is_echo |= strcmp(argv[i], "--echo") == 0;
		if (strcmp(argv[i], "--echo") == 0 || strcmp(argv[i], "--op") == 0)
			options.op = (enum op)choice(argv[i], argv[i + 1], op_names, OP_CNT);
		else
			set_option(argv[i], argv[i + 1]);
	}
	if (argc % 2 == 0 || options.op == OP_CNT || options.is_echo == (options.address != NULL))
		die("--op or --echo, with or without --address", -EINVAL);
	if (options.depth * options.conn_cnt > DEPTH_MAX || strlen(options.object) > NAME_BYTES / 2)
		die("--depth, --connections or --object", -EINVAL);
	if (options.object_bytes < options.size || options.seconds <= 0 || options.rate < 0)
		die("--object-size, --seconds or --rate", -EINVAL);
}

static void make_buffers(void)
{
	uint32_t blocks = LP_WIRE_DATA_MAX / LP_WIRE_BLOCK_BYTES;
	uint32_t *crcs = calloc(blocks, sizeof(*crcs));
	data = aligned_alloc(LP_WIRE_BLOCK_BYTES, LP_WIRE_DATA_MAX);
	data_crcs = malloc((size_t)blocks * 4);
	stride_bytes = LP_WIRE_HEADER_SIZE + 2 * NAME_BYTES + LP_WIRE_PUT_SIZE +
		       4u * (size_t)lp_wire_piece_cnt(0, options.size);
	heads = calloc(1, LP_MAX(IOVS_MAX * stride_bytes, (size_t)HEAD_MAX));
	in = malloc(IN_BYTES);
	landing = malloc(IN_BYTES);
	if (crcs == NULL || data == NULL || data_crcs == NULL || heads == NULL || in == NULL ||
	    landing == NULL)
		die("memory", -ENOMEM);
	lp_prng_init(&prng, options.seed);
	lp_prng_fill(&prng, data, LP_WIRE_DATA_MAX);
	lp_wire_crcs_make(data, 0, LP_WIRE_DATA_MAX, crcs);
	lp_wire_crcs_encode(crcs, blocks, data_crcs);
	free(crcs);
	for (uint32_t slot = 0; slot < options.depth * options.conn_cnt; slot++) {
		struct conn *conn = &conns[slot / options.depth];
		conn->free[conn->free_cnt++] = slot;
	}
}

static void report(double seconds, double own_us, double echo_us)
{
	double done = stats.done == 0 ? 1 : (double)stats.done;
	printf("{\"ops\": %llu, \"errors\": %llu, \"seconds\": %.3f, \"iops\": %.1f, ",
	       (unsigned long long)stats.done, (unsigned long long)stats.errors, seconds,
	       (double)stats.done / seconds);
	printf("\"cpu_us_per_op\": %.3f, \"echo_cpu_us_per_op\": %.3f, ", own_us / done,
	       echo_us / done);
	printf("\"unsent\": %llu, \"sends\": %llu, \"receives\": %llu, \"shared\": %llu, ",
	       (unsigned long long)stats.unsent, (unsigned long long)stats.sends,
	       (unsigned long long)stats.receives, (unsigned long long)stats.shared);
	printf("\"latency_us\": {\"mean\": %.1f, \"p50\": %.1f, \"p95\": %.1f, \"p99\": %.1f, "
	       "\"p999\": %.1f, \"max\": %.1f}}\n",
	       lp_hist_mean(&latencies) / 1e3,
	       (double)lp_hist_percentile(&latencies, LP_HIST_P50) / 1e3,
	       (double)lp_hist_percentile(&latencies, LP_HIST_P95) / 1e3,
	       (double)lp_hist_percentile(&latencies, LP_HIST_P99) / 1e3,
	       (double)lp_hist_percentile(&latencies, LP_HIST_P999) / 1e3,
	       (double)latencies.max / 1e3);
}

int main(int argc, char **argv)
{
	pid_t echo_pid = -1;
	int status = 0;
	parse(argc, argv);
	make_buffers();
	lp_hist_reset(&latencies);
	/* A wait until the next request is due ends then. */
	(void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* only this suffers without it */
	if (options.is_echo)
		echo_pid = start_echo();
	else
		connect_all();
	stats.sends = 0;
	double before_us = cpu_us(RUSAGE_SELF);
	double seconds = drive();
	double own_us = cpu_us(RUSAGE_SELF) - before_us;
	for (uint32_t i = 0; i < options.conn_cnt; i++)
		close(conns[i].fd);
	if (echo_pid > 0 && waitpid(echo_pid, &status, 0) < 0)
		die("wait", -errno);
	report(seconds, own_us, echo_pid > 0 ? cpu_us(RUSAGE_CHILDREN) : 0);
	if (stats.errors > 0)
		(void)fprintf(stderr, "daemon_load: %s\n", stats.error);
	return stats.errors > 0 || status != 0 ? 1 : 0;
}
