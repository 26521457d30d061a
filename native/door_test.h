/* SPDX-License-Identifier: Apache-2.0 */
/* Test rig: a door of several shards on one thread, with clients.
 *
 * The stores are in memory, the ring is a real one. Clients are at the other ends of socketpairs,
 * and are turned together with the door. Only *_test.c files include this.
 */
#ifndef LP_NATIVE_DOOR_TEST_H
#define LP_NATIVE_DOOR_TEST_H

#include "base/testing/test.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "native/door_impl.h"

#define LPI_DOOR_RIG_SHARDS_MAX 4u
#define LPI_DOOR_RIG_TURNS_MAX  2000000u
#define LPI_DOOR_META_MAX       4096u
#define LPI_CLIENT_KEPT_MAX     (256u << 10) /* one receive of the door */

struct lpi_door_rig {
	uint32_t shard_cnt;
	struct lp_door_options options;
	struct lp_reactor *reactor;
	struct lp_bufs *bufs;
	struct lp_store *store[LPI_DOOR_RIG_SHARDS_MAX];
	struct lp_ns *ns[LPI_DOOR_RIG_SHARDS_MAX];
	struct lp_door *door[LPI_DOOR_RIG_SHARDS_MAX];
	uint32_t ready_cnt;
	uint32_t stopped_cnt;
	uint32_t handed_cnt;
	uint32_t peer_uid; /* of clients that come from now on, and gid */
	uint32_t peer_gid;
	bool is_tcp;
	int send_bytes;              /* what a socket of the door holds; 0: as it is */
	struct lp_admin *admin;      /* the last one that was asked */
	void (*around)(bool begins); /* each turn; NULL: nothing */
};

static inline void lpi_door_rig_turn(struct lpi_door_rig *rig)
{
	if (rig->around != NULL)
		rig->around(true);
	(void)lp_reactor_turn(rig->reactor, false);
	if (rig->around != NULL)
		rig->around(false);
}

/* Until cond is true, bounded. */
#define LPI_DOOR_UNTIL(rig, cond)                                                                  \
	do {                                                                                       \
		uint64_t until_ns_ = lp_clock_mono_ns(lp_clock_system()) + 30 * LP_NS_PER_S;       \
		while (!(cond)) {                                                                  \
			assert_true(lp_clock_mono_ns(lp_clock_system()) < until_ns_);              \
			lpi_door_rig_turn(rig);                                                    \
		}                                                                                  \
	} while (0)

/* --- Up and down -------------------------------------------------------------------------------
 */

static inline void lpi_door_rig_ready(struct lp_ns *ns, int result, void *arg)
{
	struct lpi_door_rig *rig = arg;
	(void)ns;
	lp_test_ok(result);
	rig->ready_cnt++;
}

static inline void lpi_door_rig_ns_stopped(struct lp_ns *ns, void *arg)
{
	(void)ns;
	((struct lpi_door_rig *)arg)->stopped_cnt++;
}

static inline void lpi_door_rig_stopped(void *arg)
{
	((struct lpi_door_rig *)arg)->stopped_cnt++;
}

static inline void lpi_door_rig_hand_over(void *arg, uint32_t shard_idx, int fd,
					  const struct lp_peer *peer, const uint8_t *head,
					  uint32_t read)
{
	struct lpi_door_rig *rig = arg;
	rig->handed_cnt++;
	int err = lp_door_adopt(rig->door[shard_idx], fd, peer, head, read);
	if (rig->around == NULL || err != -ENOMEM) /* who was not taken is hung up on */
		lp_test_ok(err);
}

static inline void lpi_door_rig_admin(void *arg, struct lp_admin *admin)
{
	((struct lpi_door_rig *)arg)->admin = admin;
}

static inline void lpi_door_rig_open_ns(struct lpi_door_rig *rig)
{
	for (uint32_t i = 0; i < rig->shard_cnt; i++) {
		const struct lp_store_options store = {
			.reactor = rig->reactor, .bufs = rig->bufs, .shard_idx = i};
		lp_test_ok(lp_store_open_mem(&store, &rig->store[i]));
		const struct lp_ns_options ns = {.reactor = rig->reactor,
						 .store = rig->store[i],
						 .bufs = rig->bufs,
						 .shard_idx = i,
						 .shard_cnt = rig->shard_cnt};
		lp_test_ok(lp_ns_open(&ns, &rig->ns[i]));
	}
	for (uint32_t i = 0; i < rig->shard_cnt; i++)
		lp_ns_start(rig->ns[i], rig->ns, lpi_door_rig_ready, rig);
	LPI_DOOR_UNTIL(rig, rig->ready_cnt == rig->shard_cnt);
}

/* Options as given, but for what the rig has. NULL: all defaults. */
static inline struct lpi_door_rig *lpi_door_rig_new(uint32_t shard_cnt, uint64_t bufs_bytes,
						    const struct lp_door_options *options)
{
	struct lpi_door_rig *rig = calloc(1, sizeof(*rig));
	const struct lp_reactor_options reactor = {.name = "door", .ring = true};
	assert_non_null(rig);
	rig->shard_cnt = shard_cnt;
	lp_test_ok(lp_reactor_new(&reactor, &rig->reactor));
	lp_test_ok(lp_reactor_start(rig->reactor));
	lp_test_ok(lp_bufs_new(bufs_bytes, &rig->bufs));
	lpi_door_rig_open_ns(rig);
	for (uint32_t i = 0; i < shard_cnt; i++) {
		struct lp_door_options own =
			options == NULL ? (struct lp_door_options){0} : *options;
		own.reactor = rig->reactor;
		own.bufs = rig->bufs;
		own.ns = rig->ns[i];
		own.shard_idx = i;
		own.shard_cnt = shard_cnt;
		own.server_name = "a test";
		own.hand_over = lpi_door_rig_hand_over;
		own.admin = lpi_door_rig_admin;
		own.arg = rig;
		memset(own.store_uuid, 0x5a, sizeof(own.store_uuid));
		lp_test_ok(lp_door_new(&own, &rig->door[i]));
	}
	return rig;
}

/* Freeing the buffers and pools asserts that all of them were given back. */
static inline void lpi_door_rig_free(struct lpi_door_rig *rig)
{
	rig->stopped_cnt = 0;
	for (uint32_t i = 0; i < rig->shard_cnt; i++)
		lp_door_stop(rig->door[i], LP_NS_PER_S, lpi_door_rig_stopped, rig);
	LPI_DOOR_UNTIL(rig, rig->stopped_cnt == rig->shard_cnt);
	for (uint32_t i = 0; i < rig->shard_cnt; i++) {
		struct lp_ns_stats stats;
		lp_ns_read_stats(rig->ns[i], &stats);
		assert_int_equal(stats.opens, 0); /* all that was open was given back */
		lp_door_free(rig->door[i]);
	}
	rig->stopped_cnt = 0;
	for (uint32_t i = 0; i < rig->shard_cnt; i++)
		lp_ns_stop(rig->ns[i], lpi_door_rig_ns_stopped, rig);
	LPI_DOOR_UNTIL(rig, rig->stopped_cnt == rig->shard_cnt);
	for (uint32_t i = 0; i < rig->shard_cnt; i++)
		lp_ns_close(rig->ns[i]);
	for (uint32_t i = 0; i < rig->shard_cnt; i++)
		lp_test_ok(lp_store_close(rig->store[i], false));
	lp_bufs_free(rig->bufs);
	lp_reactor_free(rig->reactor);
	free(rig);
}

/* --- A client ------------------------------------------------------------------------------------
 */

struct lpi_client {
	struct lpi_door_rig *rig;
	int fd;
	enum lp_wire_crc crc_mode;
	uint64_t request_id;
	/* The message to send: its meta. */
	struct lp_writer meta;
	uint8_t meta_bytes[LP_WIRE_LONG_META_MAX];
	uint32_t meta_max; /* of what comes */
	/* What is sent is kept, to be sent at once. NULL: it is not. */
	uint8_t *kept;
	size_t kept_bytes;
	/* The last reply. */
	struct lp_wire_header reply;
	struct lp_reader answer;
	uint8_t *rest;
	uint8_t *data;
};

/* A client, and the other end of its socket, which no door has yet. */
static inline struct lpi_client *lpi_client_pair(struct lpi_door_rig *rig, int *ret_fd)
{
	int fds[2];
	struct lpi_client *client = calloc(1, sizeof(*client));
	assert_non_null(client);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	if (rig->send_bytes > 0)
		assert_int_equal(setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &rig->send_bytes,
					    sizeof(rig->send_bytes)),
				 0);
	*ret_fd = fds[1];
	client->rig = rig;
	client->fd = fds[0];
	client->crc_mode = LP_WIRE_CRC_HEADER;
	client->meta_max = LP_WIRE_META_MAX;
	client->rest = malloc(LP_WIRE_LONG_META_MAX + LP_WIRE_CRCS_MAX * 4);
	client->data = malloc(LP_WIRE_DATA_MAX);
	lp_writer_init(&client->meta, client->meta_bytes, sizeof(client->meta_bytes));
	return client;
}

/* The rig's peers are root's, unless it says who they are. */
static inline int lpi_client_adopt(struct lpi_door_rig *rig, uint32_t shard_idx, int fd)
{
	const struct lp_peer peer = {.is_unix = !rig->is_tcp,
				     .uid = rig->peer_uid,
				     .gid = rig->peer_gid,
				     .pid = getpid(),
				     .who = lp_who_user(rig->peer_uid, rig->peer_uid == 0)};
	return lp_door_adopt(rig->door[shard_idx], fd, &peer, NULL, 0);
}

/* A connection that has said nothing yet, to the door of a shard. */
static inline struct lpi_client *lpi_client_new(struct lpi_door_rig *rig, uint32_t shard_idx)
{
	int fd;
	struct lpi_client *client = lpi_client_pair(rig, &fd);
	lp_test_ok(lpi_client_adopt(rig, shard_idx, fd));
	return client;
}

static inline void lpi_client_free(struct lpi_client *client)
{
	if (client->fd >= 0)
		close(client->fd);
	free(client->kept);
	free(client->rest);
	free(client->data);
	free(client);
}

static inline void lpi_client_send_bytes(struct lpi_client *client, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;
	uint64_t until_ns = lp_clock_mono_ns(lp_clock_system()) + 30 * LP_NS_PER_S;
	if (client->kept != NULL) {
		assert_true(len <= LPI_CLIENT_KEPT_MAX - client->kept_bytes);
		if (len > 0)
			memcpy(client->kept + client->kept_bytes, bytes, len);
		client->kept_bytes += len;
		return;
	}
	while (len > 0) {
		ssize_t n = send(client->fd, at, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (client->rig->around != NULL && n < 0 && (errno == EPIPE || errno == ECONNRESET))
			return; /* it may be closed at any time: the answer will not come */
		assert_true(n > 0 || errno == EAGAIN);
		assert_true(lp_clock_mono_ns(lp_clock_system()) < until_ns);
		if (n > 0) {
			at += n;
			len -= (size_t)n;
		}
		lpi_door_rig_turn(client->rig);
	}
}

/* All messages from here on are one, which the door takes in one turn. */
static inline void lpi_client_keep(struct lpi_client *client)
{
	assert_null(client->kept);
	client->kept = malloc(LPI_CLIENT_KEPT_MAX);
	client->kept_bytes = 0;
	assert_non_null(client->kept);
}

static inline void lpi_client_send_kept(struct lpi_client *client)
{
	uint8_t *kept = client->kept;
	ssize_t bytes = (ssize_t)client->kept_bytes;
	client->kept = NULL;
	assert_int_equal(send(client->fd, kept, (size_t)bytes, MSG_DONTWAIT | MSG_NOSIGNAL), bytes);
	free(kept);
}

/* Returns 0 when the daemon has closed before the first byte. */
static inline bool lpi_client_recv_bytes(struct lpi_client *client, void *bytes, size_t len)
{
	uint8_t *at = bytes;
	uint64_t until_ns = lp_clock_mono_ns(lp_clock_system()) + 30 * LP_NS_PER_S;
	while (len > 0) {
		ssize_t n = recv(client->fd, at, len, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno == ECONNRESET)) {
			assert_true(at == bytes);
			return false;
		}
		assert_true(n > 0 || errno == EAGAIN);
		assert_true(lp_clock_mono_ns(lp_clock_system()) < until_ns);
		if (n > 0) {
			at += n;
			len -= (size_t)n;
		} else {
			lpi_door_rig_turn(client->rig);
		}
	}
	return true;
}

/* Sends the meta that was written, and data; returns the request's number. */
static inline uint64_t lpi_client_send(struct lpi_client *client, uint16_t opcode, uint32_t flags,
				       const void *data, uint32_t data_bytes, uint64_t offset)
{
	size_t meta_bytes = 0;
	uint32_t *crcs = calloc(LP_WIRE_CRCS_MAX, sizeof(*crcs));
	uint8_t head[LP_WIRE_HEADER_SIZE];
	assert_true(lp_writer_finish(&client->meta, &meta_bytes));
	struct lp_wire_header header = {.kind = LP_WIRE_KIND_REQUEST,
					.opcode = opcode,
					.request_id = ++client->request_id,
					.flags = flags,
					.meta_bytes = (uint32_t)meta_bytes,
					.data_bytes = data_bytes,
					.offset = offset};
	uint8_t *rest = malloc(meta_bytes + (size_t)LP_WIRE_CRCS_MAX * 4);
	memcpy(rest, client->meta_bytes, meta_bytes);
	if (client->crc_mode == LP_WIRE_CRC_ALL && data_bytes > 0) {
		header.crc_cnt = lp_wire_piece_cnt(offset, data_bytes);
		lp_wire_crcs_make(data, offset, data_bytes, crcs);
		lp_wire_crcs_encode(crcs, header.crc_cnt, rest + meta_bytes);
	}
	lp_wire_header_seal(&header, client->crc_mode, rest, head);
	lpi_client_send_bytes(client, head, sizeof(head));
	lpi_client_send_bytes(client, rest, lp_wire_rest_bytes(&header));
	lpi_client_send_bytes(client, data, data_bytes);
	lp_writer_init(&client->meta, client->meta_bytes, sizeof(client->meta_bytes));
	free(rest);
	free(crcs);
	return client->request_id;
}

/* The next reply, checked; false: the daemon has closed. */
static inline bool lpi_client_recv(struct lpi_client *client)
{
	uint8_t head[LP_WIRE_HEADER_SIZE];
	const char *why = "";
	if (!lpi_client_recv_bytes(client, head, sizeof(head)))
		return false;
	lp_test_ok(lp_wire_header_read(head, client->crc_mode, client->meta_max, &client->reply,
				       &why));
	assert_int_equal(client->reply.kind, LP_WIRE_KIND_REPLY);
	assert_true(
		lpi_client_recv_bytes(client, client->rest, lp_wire_rest_bytes(&client->reply)));
	lp_test_ok(lp_wire_rest_check(&client->reply, client->crc_mode, client->rest));
	assert_true(lpi_client_recv_bytes(client, client->data, client->reply.data_bytes));
	assert_true(client->reply.data_bytes <= LP_WIRE_PIECE_MAX);
	uint32_t pieces = lp_wire_piece_cnt(client->reply.offset, client->reply.data_bytes);
	assert_int_equal(client->reply.crc_cnt, client->crc_mode == LP_WIRE_CRC_ALL ? pieces : 0);
	if (pieces > 0 && client->reply.crc_cnt > 0) {
		uint32_t *crcs = calloc(pieces, sizeof(*crcs));
		lp_wire_crcs_decode(client->rest + client->reply.meta_bytes, pieces, crcs);
		assert_int_equal(lp_wire_crcs_check(client->data, client->reply.offset,
						    client->reply.data_bytes, crcs),
				 pieces);
		free(crcs);
	}
	lp_reader_init(&client->answer, client->rest, client->reply.meta_bytes);
	return true;
}

/* Receives the one reply to a request: its result. */
static inline int lpi_client_result(struct lpi_client *client, uint64_t request_id)
{
	assert_true(lpi_client_recv(client));
	assert_int_equal(client->reply.request_id, request_id);
	return -(int)client->reply.status;
}

static inline int lpi_client_do(struct lpi_client *client, uint16_t opcode, const void *data,
				uint32_t data_bytes, uint64_t offset)
{
	return lpi_client_result(client,
				 lpi_client_send(client, opcode, 0, data, data_bytes, offset));
}

/* The text of an error. */
static inline bool lpi_client_says(const struct lpi_client *client, const char *what)
{
	return memmem(client->rest, client->reply.meta_bytes, what, strlen(what)) != NULL;
}

static inline void lpi_client_put_hello(struct lpi_client *client, enum lp_wire_crc mode,
					uint32_t shard_idx)
{
	const struct lp_wire_hello hello = {.version_min = 1,
					    .version_max = 1,
					    .crc_mode = mode,
					    .shard = shard_idx,
					    .name_bytes = 4};
	lp_wire_put_part(&client->meta, lp_wire_hello, &hello);
	lp_writer_bytes(&client->meta, "test", 4);
}

/* A client that is being served. */
static inline struct lpi_client *lpi_client_open(struct lpi_door_rig *rig, enum lp_wire_crc mode)
{
	struct lpi_client *client = lpi_client_new(rig, 0);
	lpi_client_put_hello(client, mode, LP_WIRE_ANY_SHARD);
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_HELLO, NULL, 0, 0));
	client->crc_mode = mode;
	return client;
}

/* The same, of one whose messages have more meta. */
static inline struct lpi_client *lpi_client_open_long(struct lpi_door_rig *rig)
{
	const struct lp_wire_hello hello = {.version_min = 1,
					    .version_max = 1,
					    .features = LP_WIRE_FEATURE_LONG_META | 1u << 31,
					    .shard = LP_WIRE_ANY_SHARD};
	struct lpi_client *client = lpi_client_new(rig, 0);
	struct lp_wire_welcome welcome = {.features = 0};
	lp_wire_put_part(&client->meta, lp_wire_hello, &hello);
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_HELLO, NULL, 0, 0));
	assert_true(lp_wire_part(&client->answer, lp_wire_welcome, &welcome));
	assert_int_equal(welcome.features, LP_WIRE_FEATURE_LONG_META);
	client->crc_mode = LP_WIRE_CRC_OFF;
	client->meta_max = LP_WIRE_LONG_META_MAX;
	return client;
}

/* --- Metas ---------------------------------------------------------------------------------------
 */

static inline struct lp_wire_ref lpi_client_ref(uint64_t ino, const char *path)
{
	return (struct lp_wire_ref){.ino = ino, .path_bytes = (uint16_t)strlen(path)};
}

static inline void lpi_client_put_text(struct lpi_client *client, const char *text)
{
	lp_writer_bytes(&client->meta, text, strlen(text));
}

/* The ref as it is inside others. */
#define LPI_CLIENT_REF(to, ino, path)                                                              \
	do {                                                                                       \
		const struct lp_wire_ref ref_ = lpi_client_ref((ino), (path));                     \
		lp_wire_ref_encode(&ref_, (to));                                                   \
	} while (0)

static inline void lpi_client_put_ref(struct lpi_client *client, uint64_t ino, const char *path)
{
	const struct lp_wire_ref ref = lpi_client_ref(ino, path);
	lp_wire_put_part(&client->meta, lp_wire_ref, &ref);
	lpi_client_put_text(client, path);
}

static inline struct lp_wire_attrs lpi_client_attrs(struct lpi_client *client)
{
	struct lp_wire_attrs attrs = {.ino = 0};
	assert_true(lp_wire_part(&client->answer, lp_wire_attrs, &attrs));
	return attrs;
}

/* Makes an empty file in a directory: its number. */
static inline uint64_t lpi_client_make(struct lpi_client *client, const char *path, uint8_t type)
{
	struct lp_wire_make make = {
		.uid = LP_WIRE_NO_OWNER, .gid = LP_WIRE_NO_OWNER, .mode = 0755, .type = type};
	LPI_CLIENT_REF(make.ref, 0, path);
	lp_wire_put_part(&client->meta, lp_wire_make, &make);
	lpi_client_put_text(client, path);
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_MAKE, NULL, 0, 0));
	return lpi_client_attrs(client).ino;
}

static inline uint64_t lpi_client_send_write(struct lpi_client *client, uint64_t ino,
					     const char *path, const void *data, uint32_t len,
					     uint64_t offset)
{
	struct lp_wire_write write = {.write_path = 0};
	LPI_CLIENT_REF(write.ref, ino, path);
	lp_wire_put_part(&client->meta, lp_wire_write, &write);
	lpi_client_put_text(client, path);
	return lpi_client_send(client, LP_WIRE_OP_WRITE, 0, data, len, offset);
}

static inline uint64_t lpi_client_send_get(struct lpi_client *client, uint64_t ino,
					   const char *path, uint64_t offset, uint64_t length)
{
	struct lp_wire_get get = {.offset = offset, .length = length};
	LPI_CLIENT_REF(get.ref, ino, path);
	lp_wire_put_part(&client->meta, lp_wire_get, &get);
	lpi_client_put_text(client, path);
	return lpi_client_send(client, LP_WIRE_OP_GET, 0, NULL, 0, 0);
}

static inline uint64_t lpi_client_send_put(struct lpi_client *client, const char *path,
					   const void *data, uint32_t len)
{
	struct lp_wire_put put = {
		.uid = LP_WIRE_NO_OWNER, .gid = LP_WIRE_NO_OWNER, .mode = LP_WIRE_NO_MODE};
	LPI_CLIENT_REF(put.ref, 0, path);
	lp_wire_put_part(&client->meta, lp_wire_put, &put);
	lpi_client_put_text(client, path);
	return lpi_client_send(client, LP_WIRE_OP_PUT, 0, data, len, 0);
}

/* Receives all pieces of a get into data, in order; returns the result, or how much it was. */
static inline int64_t lpi_client_recv_get(struct lpi_client *client, uint64_t request_id,
					  uint64_t offset, uint8_t *ret_data, size_t max)
{
	uint64_t at = 0;
	do {
		int r = lpi_client_result(client, request_id);
		if (r < 0)
			return r;
		assert_true(client->reply.data_bytes == 0 || client->reply.offset == offset + at);
		assert_true(at + client->reply.data_bytes <= max);
		memcpy(ret_data + at, client->data, client->reply.data_bytes);
		at += client->reply.data_bytes;
	} while ((client->reply.flags & LP_WIRE_FLAG_MORE) != 0);
	return (int64_t)at;
}

/* Bytes that tell where they belong. */
static inline void lpi_client_fill(uint8_t *data, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)((i * 7 + seed * 131 + (i >> 8)) % 251);
}

/* --- Messages that are made beforehand -----------------------------------------------------------
 */

static inline struct lp_wire_header lpi_client_header(uint16_t opcode)
{
	return (struct lp_wire_header){
		.kind = LP_WIRE_KIND_REQUEST, .opcode = opcode, .request_id = 7};
}

#define LPI_CLIENT_GET_BYTES (LP_WIRE_HEADER_SIZE + LP_WIRE_GET_SIZE)

/* A request for all of a file, as it is sent. */
static inline void lpi_client_seal_get(uint64_t ino, uint64_t request_id, uint8_t *ret_message)
{
	struct lp_wire_header header = lpi_client_header(LP_WIRE_OP_GET);
	struct lp_wire_get get = {.length = UINT64_MAX};
	LPI_CLIENT_REF(get.ref, ino, "");
	header.request_id = request_id;
	header.meta_bytes = LP_WIRE_GET_SIZE;
	lp_wire_get_encode(&get, ret_message + LP_WIRE_HEADER_SIZE);
	lp_wire_header_seal(&header, LP_WIRE_CRC_HEADER, ret_message + LP_WIRE_HEADER_SIZE,
			    ret_message);
}

/* A file of so many of the longest writes. */
static inline uint64_t lpi_client_make_large(struct lpi_client *client, uint64_t pieces)
{
	uint8_t *data = calloc(1, LP_WIRE_PIECE_MAX);
	assert_non_null(data);
	uint64_t ino = lpi_client_make(client, "file", LP_INODE_TYPE_FILE);
	for (uint64_t i = 0; i < pieces; i++)
		lp_test_ok(lpi_client_result(client, lpi_client_send_write(client, ino, "", data,
									   LP_WIRE_PIECE_MAX,
									   i * LP_WIRE_PIECE_MAX)));
	free(data);
	return ino;
}

#endif
