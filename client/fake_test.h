/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon of a few objects for tests of the client. It holds each message to docs/format/wire.md
 * and does to its replies what the test tells it to: hold them, turn their order round, send them
 * byte by byte, damage them, close the connection instead.
 *
 * Threads: whoever calls fake_step(); fake_start() makes a thread that does, and then what the test
 * reads or changes is read and changed before or after it. Errors: asserts of cmocka.
 */
#ifndef LP_CLIENT_FAKE_TEST_H
#define LP_CLIENT_FAKE_TEST_H

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/testing/test.h"
#include "client/lapis.h"
#include "wire/wire.h"

#define LPI_FAKE_CONNS   8
#define LPI_FAKE_OBJECTS 64
#define LPI_FAKE_IN      (8u << 20)
#define LPI_FAKE_INO     1000u

struct lpi_fake_object {
	char path[64]; /* empty: an upload, or unused */
	uint8_t *data;
	size_t len;
	uint64_t version;
	bool is_used;
};

struct lpi_fake_conn {
	int fd; /* -1: none */
	bool greeted;
	uint32_t shard;
	uint8_t *in;
	size_t in_len;
	uint8_t *out;
	size_t out_len;
	uint32_t held[64]; /* where replies begin in out */
	uint32_t held_cnt;
	uint64_t released_cnt; /* replies with data in shared memory that the client is done with */
	bool passes_fd;        /* with what is sent next */
	int passed_fd;
};

struct lpi_fake_request {
	struct lpi_fake_conn *conn;
	struct lp_wire_header header;
	const uint8_t *meta;
	const uint8_t *data;
};

struct lpi_fake {
	/* What the test sets. */
	uint32_t credits;
	uint32_t credit_bytes;
	uint32_t shard_cnt;
	uint64_t uuid;
	size_t step_bytes;  /* sent in a step; 0: all */
	bool holds;         /* replies wait for fake_release() */
	bool is_deaf;       /* nothing is read */
	uint32_t piece_max; /* of a get */
	uint64_t features;  /* that hold, if they are wanted */
	bool is_changing;   /* whatever is read, between two pieces */
	/* Before a request is answered: true when the hook has done that. */
	bool (*hook)(struct lpi_fake *fake, struct lpi_fake_request *req);
	/* Changes a reply's bytes before it is sent. */
	void (*spoil)(struct lpi_fake *fake, uint8_t *reply, size_t len);
	int script; /* for the hooks */

	char dir[64];
	char address[108];
	int listen_fd;
	struct lpi_fake_conn conns[LPI_FAKE_CONNS];
	struct lpi_fake_object objects[LPI_FAKE_OBJECTS];
	uint32_t requests[96]; /* by opcode */
	uint32_t conns_ever;
	uint32_t under_way_max;
	pthread_t thread;
	atomic_bool stops;
};

static inline void lpi_fake_listen(struct lpi_fake *fake)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	(void)snprintf(un.sun_path, sizeof(un.sun_path), "%s", fake->address + 5);
	(void)unlink(un.sun_path);
	fake->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_true(fake->listen_fd >= 0);
	assert_int_equal(bind(fake->listen_fd, (struct sockaddr *)&un, sizeof(un)), 0);
	assert_int_equal(listen(fake->listen_fd, 16), 0);
}

static inline void lpi_fake_init(struct lpi_fake *fake)
{
	*fake = (struct lpi_fake){.credits = 32,
				  .credit_bytes = 8u << 20,
				  .shard_cnt = 1,
				  .uuid = 7,
				  .piece_max = LP_WIRE_PIECE_MAX};
	(void)snprintf(fake->dir, sizeof(fake->dir), "/tmp/lapis-client-XXXXXX");
	assert_non_null(mkdtemp(fake->dir));
	(void)snprintf(fake->address, sizeof(fake->address), "unix:%s/sock", fake->dir);
	for (int i = 0; i < LPI_FAKE_CONNS; i++)
		fake->conns[i].fd = -1;
	lpi_fake_listen(fake);
}

static inline void lpi_fake_drop(struct lpi_fake_conn *conn)
{
	if (conn->fd < 0)
		return;
	(void)close(conn->fd);
	free(conn->in);
	free(conn->out);
	*conn = (struct lpi_fake_conn){.fd = -1};
}

static inline void lpi_fake_drop_all(struct lpi_fake *fake)
{
	for (int i = 0; i < LPI_FAKE_CONNS; i++)
		lpi_fake_drop(&fake->conns[i]);
}

static inline void lpi_fake_fini(struct lpi_fake *fake)
{
	lpi_fake_drop_all(fake);
	for (int i = 0; i < LPI_FAKE_OBJECTS; i++)
		free(fake->objects[i].data);
	(void)close(fake->listen_fd);
	(void)unlink(fake->address + 5);
	assert_int_equal(rmdir(fake->dir), 0);
}

/* --- Replies ---------------------------------------------------------------------------------- */

static inline void lpi_fake_send(struct lpi_fake *fake, struct lpi_fake_request *req,
				 struct lp_wire_header header, const void *meta,
				 const uint8_t *data)
{
	struct lpi_fake_conn *conn = req->conn;
	header.kind = LP_WIRE_KIND_REPLY;
	header.opcode = req->header.opcode;
	header.request_id = req->header.request_id;
	header.crc_cnt = lp_wire_piece_cnt(header.offset, header.data_bytes);
	uint32_t rest = lp_wire_rest_bytes(&header);
	size_t len = LP_WIRE_HEADER_SIZE + rest + header.data_bytes;
	conn->out = realloc(conn->out, conn->out_len + len);
	assert_non_null(conn->out);
	uint8_t *at = conn->out + conn->out_len;
	uint32_t crcs[LP_WIRE_CRCS_MAX];
	if (header.meta_bytes > 0)
		memcpy(at + LP_WIRE_HEADER_SIZE, meta, header.meta_bytes);
	lp_wire_crcs_make(data, header.offset, header.data_bytes, crcs);
	lp_wire_crcs_encode(crcs, header.crc_cnt, at + LP_WIRE_HEADER_SIZE + header.meta_bytes);
	if (header.data_bytes > 0)
		memcpy(at + LP_WIRE_HEADER_SIZE + rest, data, header.data_bytes);
	lp_wire_header_seal(&header, LP_WIRE_CRC_ALL, at + LP_WIRE_HEADER_SIZE, at);
	if (fake->spoil != NULL && conn->greeted)
		fake->spoil(fake, at, len);
	if (fake->holds && conn->greeted) {
		assert_true(conn->held_cnt < LP_ARRAY_SIZE(conn->held));
		conn->held[conn->held_cnt++] = (uint32_t)conn->out_len;
	}
	conn->out_len += len;
}

/* Sends what was held, the last reply first. */
static inline void lpi_fake_release(struct lpi_fake *fake)
{
	fake->holds = false;
	for (int i = 0; i < LPI_FAKE_CONNS; i++) {
		struct lpi_fake_conn *conn = &fake->conns[i];
		uint8_t *turned = malloc(conn->out_len + 1);
		size_t to = 0;
		size_t end = conn->out_len;
		assert_non_null(turned);
		while (conn->held_cnt > 0) {
			size_t from = conn->held[--conn->held_cnt];
			memcpy(turned + to, conn->out + from, end - from);
			to += end - from;
			end = from;
		}
		if (to > 0)
			memcpy(conn->out + conn->out_len - to, turned, to);
		free(turned);
	}
}

static inline void lpi_fake_error(struct lpi_fake *fake, struct lpi_fake_request *req, uint32_t err,
				  const char *text)
{
	lpi_fake_send(fake, req,
		      (struct lp_wire_header){.status = err, .meta_bytes = (uint32_t)strlen(text)},
		      text, NULL);
}

static inline void lpi_fake_plain(struct lpi_fake *fake, struct lpi_fake_request *req,
				  const void *meta, uint32_t len)
{
	lpi_fake_send(fake, req, (struct lp_wire_header){.meta_bytes = len}, meta, NULL);
}

static inline void lpi_fake_attrs(struct lpi_fake *fake, struct lpi_fake_request *req, int idx)
{
	uint8_t meta[LP_WIRE_ATTRS_SIZE];
	const struct lp_wire_attrs attrs = {.ino = LPI_FAKE_INO + (uint64_t)idx,
					    .size_bytes = fake->objects[idx].len,
					    .version_nr = fake->objects[idx].version,
					    .mode = 0644,
					    .type = 1};
	lp_wire_attrs_encode(&attrs, meta);
	lpi_fake_plain(fake, req, meta, sizeof(meta));
}

static inline void lpi_fake_value(struct lpi_fake *fake, struct lpi_fake_request *req,
				  const char *text, uint32_t flags)
{
	uint8_t meta[512];
	const struct lp_wire_value value = {.value_bytes = (uint32_t)strlen(text)};
	lp_wire_value_encode(&value, meta);
	memcpy(meta + LP_WIRE_VALUE_SIZE, text, value.value_bytes);
	lpi_fake_send(fake, req,
		      (struct lp_wire_header){.flags = flags,
					      .meta_bytes = LP_WIRE_VALUE_SIZE + value.value_bytes},
		      meta, NULL);
}

/* --- Objects ---------------------------------------------------------------------------------- */

/* The object a reference at `meta` names, its path being at `path`; -1: there is none. */
static inline int lpi_fake_find(struct lpi_fake *fake, const uint8_t *meta, const uint8_t *path)
{
	struct lp_wire_ref ref;
	lp_wire_ref_decode(meta, &ref);
	for (int i = 0; i < LPI_FAKE_OBJECTS; i++) {
		const struct lpi_fake_object *obj = &fake->objects[i];
		bool by_ino = ref.path_bytes == 0 && ref.ino == LPI_FAKE_INO + (uint64_t)i;
		bool by_path = ref.path_bytes > 0 && strlen(obj->path) == ref.path_bytes &&
			       memcmp(obj->path, path, ref.path_bytes) == 0;
		if (obj->is_used && (by_ino || by_path))
			return i;
	}
	return -1;
}

static inline int lpi_fake_new(struct lpi_fake *fake)
{
	for (int i = 0; i < LPI_FAKE_OBJECTS; i++) {
		if (!fake->objects[i].is_used) {
			fake->objects[i].is_used = true;
			fake->objects[i].version = 1;
			return i;
		}
	}
	fail_msg("the fake has no room for more objects");
	return -1;
}

static inline void lpi_fake_forget(struct lpi_fake *fake, int idx)
{
	free(fake->objects[idx].data);
	fake->objects[idx] = (struct lpi_fake_object){0};
}

static inline void lpi_fake_write(struct lpi_fake *fake, int idx, uint64_t offset,
				  const struct lpi_fake_request *req)
{
	struct lpi_fake_object *obj = &fake->objects[idx];
	size_t end = offset + req->header.data_bytes;
	if (end > obj->len) {
		obj->data = realloc(obj->data, end);
		assert_non_null(obj->data);
		memset(obj->data + obj->len, 0, end - obj->len);
		obj->len = end;
	}
	if (req->header.data_bytes > 0)
		memcpy(obj->data + offset, req->data, req->header.data_bytes);
	obj->version++;
}

static inline void lpi_fake_name(struct lpi_fake *fake, int idx, const uint8_t *path, size_t len)
{
	assert_true(len > 0 && len < sizeof(fake->objects[idx].path));
	memcpy(fake->objects[idx].path, path, len);
	fake->objects[idx].path[len] = '\0';
}

static inline void lpi_fake_put(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	struct lp_wire_put put;
	struct lp_wire_ref ref;
	bool commits = req->header.opcode == LP_WIRE_OP_COMMIT;
	const uint8_t *path = req->meta + (commits ? LP_WIRE_COMMIT_SIZE : LP_WIRE_PUT_SIZE);
	lp_wire_put_decode(req->meta, &put);
	lp_wire_ref_decode(put.ref, &ref);
	int idx = lpi_fake_find(fake, put.ref, path);
	if (idx >= 0 && put.condition == LP_WIRE_IF_ABSENT) {
		lpi_fake_error(fake, req, EEXIST, "there is one already");
		return;
	}
	if (idx >= 0)
		lpi_fake_forget(fake, idx);
	if (commits) {
		idx = (int)(lp_get_le64(req->meta + LP_WIRE_PUT_SIZE) - LPI_FAKE_INO);
		assert_true(idx >= 0 && idx < LPI_FAKE_OBJECTS && fake->objects[idx].is_used);
	} else {
		idx = lpi_fake_new(fake);
		lpi_fake_write(fake, idx, 0, req);
	}
	lpi_fake_name(fake, idx, path, ref.path_bytes);
	lpi_fake_attrs(fake, req, idx);
}

static inline void lpi_fake_get(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	struct lp_wire_get get;
	uint8_t meta[LP_WIRE_GOT_SIZE];
	lp_wire_get_decode(req->meta, &get);
	int idx = lpi_fake_find(fake, get.ref, req->meta + LP_WIRE_GET_SIZE);
	if (idx < 0) {
		lpi_fake_error(fake, req, ENOENT, "no such object");
		return;
	}
	const struct lpi_fake_object *obj = &fake->objects[idx];
	if (get.version_nr != 0 && get.version_nr != obj->version) {
		lpi_fake_error(fake, req, ECANCELED, "");
		return;
	}
	struct lp_wire_got got = {.size_bytes = obj->len, .version_nr = obj->version};
	lp_wire_got_encode(&got, meta);
	uint64_t left = get.offset < obj->len ? LP_MIN(get.length, obj->len - get.offset) : 0;
	do {
		uint64_t len = LP_MIN(left, (uint64_t)fake->piece_max);
		struct lp_wire_header header = {.meta_bytes = sizeof(meta),
						.data_bytes = (uint32_t)len,
						.offset = len > 0 ? get.offset : 0,
						.flags = left > len ? LP_WIRE_FLAG_MORE : 0};
		lpi_fake_send(fake, req, header, meta, obj->data + get.offset);
		got.version_nr += fake->is_changing ? 1 : 0;
		lp_wire_got_encode(&got, meta);
		get.offset += len;
		left -= len;
	} while (left > 0 && req->conn->fd >= 0);
}

/* Names behind `after`, three in a reply. */
static inline void lpi_fake_list(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	struct lp_wire_list list;
	uint8_t meta[1024];
	struct lp_writer writer;
	size_t len = 0;
	struct lp_wire_listed listed = {0};
	char after[64] = "";
	lp_wire_list_decode(req->meta, &list);
	memcpy(after, req->meta + LP_WIRE_LIST_SIZE + list.prefix_bytes, list.after_bytes);
	lp_writer_init(&writer, meta, sizeof(meta));
	lp_writer_zeros(&writer, LP_WIRE_LISTED_SIZE);
	for (int i = 0; i < LPI_FAKE_OBJECTS; i++) {
		const struct lpi_fake_object *obj = &fake->objects[i];
		if (!obj->is_used || strcmp(obj->path, after) <= 0)
			continue;
		if (listed.item_cnt == 3) {
			listed.more = 1;
			break;
		}
		const struct lp_wire_item item = {.ino = LPI_FAKE_INO + (uint64_t)i,
						  .name_bytes = (uint16_t)strlen(obj->path),
						  .type = 1};
		lp_wire_put_part(&writer, lp_wire_item, &item);
		lp_writer_bytes(&writer, obj->path, item.name_bytes);
		listed.item_cnt++;
	}
	assert_true(lp_writer_finish(&writer, &len));
	lp_wire_listed_encode(&listed, meta);
	lpi_fake_plain(fake, req, meta, (uint32_t)len);
}

static inline void lpi_fake_written(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	uint8_t meta[LP_WIRE_WRITTEN_SIZE];
	int idx = lpi_fake_find(fake, req->meta, req->meta);
	struct lp_wire_written written = {.offset = req->header.offset};
	if (idx < 0) {
		lpi_fake_error(fake, req, ESTALE, "that inode is gone");
		return;
	}
	if (req->header.opcode == LP_WIRE_OP_WRITE) {
		struct lp_wire_write write;
		lp_wire_write_decode(req->meta, &write);
		if (write.append == 1)
			written.offset = fake->objects[idx].len;
		lpi_fake_write(fake, idx, written.offset, req);
	}
	written.version_nr = fake->objects[idx].version;
	lp_wire_written_encode(&written, meta);
	lpi_fake_plain(fake, req, meta, sizeof(meta));
}

static inline void lpi_fake_object_op(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	bool deletes = req->header.opcode == LP_WIRE_OP_DELETE;
	size_t fixed = deletes ? LP_WIRE_DELETE_SIZE : LP_WIRE_REF_SIZE;
	int idx = lpi_fake_find(fake, req->meta, req->meta + fixed);
	if (idx < 0) {
		lpi_fake_error(fake, req, ENOENT, "no such object");
		return;
	}
	if (!deletes && req->header.opcode != LP_WIRE_OP_ABORT) {
		lpi_fake_attrs(fake, req, idx);
		return;
	}
	lpi_fake_forget(fake, idx);
	lpi_fake_plain(fake, req, NULL, 0);
}

static inline void lpi_fake_answer(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	switch ((enum lp_wire_op)req->header.opcode) {
	case LP_WIRE_OP_STAT:
	case LP_WIRE_OP_OPEN:
	case LP_WIRE_OP_DELETE:
	case LP_WIRE_OP_ABORT:
		lpi_fake_object_op(fake, req);
		break;
	case LP_WIRE_OP_PUT:
	case LP_WIRE_OP_COMMIT:
		lpi_fake_put(fake, req);
		break;
	case LP_WIRE_OP_GET:
		lpi_fake_get(fake, req);
		break;
	case LP_WIRE_OP_UPLOAD:
		lpi_fake_attrs(fake, req, lpi_fake_new(fake));
		break;
	case LP_WIRE_OP_WRITE:
	case LP_WIRE_OP_TRUNCATE:
		lpi_fake_written(fake, req);
		break;
	case LP_WIRE_OP_LIST:
		lpi_fake_list(fake, req);
		break;
	case LP_WIRE_OP_STATUS:
		lpi_fake_value(fake, req, "{\"a\":", LP_WIRE_FLAG_MORE);
		lpi_fake_value(fake, req, "1}", 0);
		break;
	case LP_WIRE_OP_XATTR_GET:
		lpi_fake_value(fake, req, "value", 0);
		break;
	case LP_WIRE_OP_PING:
	case LP_WIRE_OP_SYNC:
	case LP_WIRE_OP_CLOSE:
		lpi_fake_plain(fake, req, NULL, 0);
		break;
	default:
		lpi_fake_error(fake, req, ENOSYS, "not here");
		break;
	}
}

/* --- Requests --------------------------------------------------------------------------------- */

static inline void lpi_fake_greet(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	struct lp_reader reader;
	struct lp_wire_hello hello = {0};
	uint8_t meta[LP_WIRE_WELCOME_SIZE];
	assert_int_equal(req->header.opcode, LP_WIRE_OP_HELLO);
	lp_reader_init(&reader, req->meta, req->header.meta_bytes);
	assert_true(lp_wire_part(&reader, lp_wire_hello, &hello));
	assert_non_null(lp_wire_bytes(&reader, hello.name_bytes));
	lp_test_ok(lp_wire_end(&reader));
	req->conn->shard = hello.shard == LP_WIRE_ANY_SHARD ? 0 : hello.shard;
	const struct lp_wire_welcome welcome = {.version = 1,
						.crc_mode = LP_WIRE_CRC_ALL,
						.features = fake->features & hello.features,
						.credits = fake->credits,
						.credit_bytes = fake->credit_bytes,
						.shard_cnt = fake->shard_cnt,
						.shard = req->conn->shard,
						.uuid_low = fake->uuid};
	lp_wire_welcome_encode(&welcome, meta);
	lpi_fake_plain(fake, req, meta, sizeof(meta));
	req->conn->greeted = true;
}

static inline void lpi_fake_take(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	uint32_t crcs[LP_WIRE_CRCS_MAX];
	const struct lp_wire_header *header = &req->header;
	if (header->kind == LP_WIRE_KIND_NOTICE) {
		assert_int_equal(header->opcode, LP_WIRE_OP_RELEASE);
		assert_true(header->offset > req->conn->released_cnt);
		req->conn->released_cnt = header->offset;
		return;
	}
	assert_int_equal(header->kind, LP_WIRE_KIND_REQUEST);
	assert_true(header->opcode < LP_ARRAY_SIZE(fake->requests));
	assert_int_equal(header->shard, 0);
	assert_int_equal(header->status, 0);
	assert_true(header->data_bytes > 0 || header->offset == 0);
	fake->requests[header->opcode]++;
	uint32_t cnt = lp_wire_piece_cnt(header->offset, header->data_bytes);
	assert_int_equal(header->crc_cnt, cnt);
	lp_wire_crcs_decode(req->meta + header->meta_bytes, cnt, crcs);
	assert_int_equal(lp_wire_crcs_check(req->data, header->offset, header->data_bytes, crcs),
			 cnt);
	if (!req->conn->greeted)
		lpi_fake_greet(fake, req);
	else if (fake->hook == NULL || !fake->hook(fake, req))
		lpi_fake_answer(fake, req);
	fake->under_way_max = LP_MAX(fake->under_way_max, req->conn->held_cnt);
}

static inline void lpi_fake_parse(struct lpi_fake *fake, struct lpi_fake_conn *conn)
{
	size_t pos = 0;
	while (conn->fd >= 0 && conn->in_len - pos >= LP_WIRE_HEADER_SIZE) {
		const char *why = "";
		struct lpi_fake_request req = {.conn = conn};
		lp_test_ok(lp_wire_header_read(conn->in + pos, LP_WIRE_CRC_ALL,
					       LP_WIRE_LONG_META_MAX, &req.header, &why));
		size_t rest = lp_wire_rest_bytes(&req.header);
		size_t len = LP_WIRE_HEADER_SIZE + rest + req.header.data_bytes;
		if (conn->in_len - pos < len)
			break;
		req.meta = conn->in + pos + LP_WIRE_HEADER_SIZE;
		req.data = req.meta + rest;
		lp_test_ok(lp_wire_rest_check(&req.header, LP_WIRE_CRC_ALL, req.meta));
		lpi_fake_take(fake, &req);
		pos += len;
	}
	if (conn->fd >= 0 && pos > 0) {
		memmove(conn->in, conn->in + pos, conn->in_len - pos);
		conn->in_len -= pos;
	}
}

static inline void lpi_fake_accept(struct lpi_fake *fake)
{
	int fd = accept4(fake->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0)
		return;
	for (int i = 0; i < LPI_FAKE_CONNS; i++) {
		struct lpi_fake_conn *conn = &fake->conns[i];
		if (conn->fd >= 0)
			continue;
		*conn = (struct lpi_fake_conn){.fd = fd, .in = malloc(LPI_FAKE_IN)};
		assert_non_null(conn->in);
		fake->conns_ever++;
		return;
	}
	fail_msg("too many connections");
}

static inline void lpi_fake_read(struct lpi_fake *fake, struct lpi_fake_conn *conn)
{
	ssize_t n = recv(conn->fd, conn->in + conn->in_len, LPI_FAKE_IN - conn->in_len, 0);
	if (n == 0 || (n < 0 && errno != EAGAIN)) {
		lpi_fake_drop(conn);
		return;
	}
	if (n > 0) {
		conn->in_len += (size_t)n;
		lpi_fake_parse(fake, conn);
	}
}

/* As send(), with the descriptor that is to go along. */
static inline ssize_t lpi_fake_send_some(struct lpi_fake_conn *conn, size_t len)
{
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(int))] = {0};
	struct cmsghdr head = {.cmsg_len = CMSG_LEN(sizeof(int)),
			       .cmsg_level = SOL_SOCKET,
			       .cmsg_type = SCM_RIGHTS};
	struct iovec iov = {conn->out, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	if (conn->passes_fd) {
		memcpy(control, &head, sizeof(head));
		memcpy(control + CMSG_LEN(0), &conn->passed_fd, sizeof(int));
		msg.msg_control = control;
		msg.msg_controllen = sizeof(control);
	}
	ssize_t n = sendmsg(conn->fd, &msg, MSG_NOSIGNAL);
	conn->passes_fd &= n <= 0;
	return n;
}

static inline void lpi_fake_flush(struct lpi_fake *fake, struct lpi_fake_conn *conn)
{
	size_t len = conn->held_cnt > 0 ? conn->held[0] : conn->out_len;
	if (fake->step_bytes > 0)
		len = LP_MIN(len, fake->step_bytes);
	if (len == 0)
		return;
	ssize_t n = lpi_fake_send_some(conn, len);
	if (n <= 0)
		return;
	memmove(conn->out, conn->out + n, conn->out_len - (size_t)n);
	conn->out_len -= (size_t)n;
	for (uint32_t i = 0; i < conn->held_cnt; i++)
		conn->held[i] -= (uint32_t)n;
}

static inline void lpi_fake_step(struct lpi_fake *fake, int timeout_ms)
{
	struct pollfd fds[LPI_FAKE_CONNS + 1] = {{.fd = fake->listen_fd, .events = POLLIN}};
	for (int i = 0; i < LPI_FAKE_CONNS; i++) {
		struct lpi_fake_conn *conn = &fake->conns[i];
		short events = fake->is_deaf ? 0 : POLLIN;
		if (conn->fd >= 0 && conn->out_len > 0 && conn->held_cnt == 0)
			events |= POLLOUT;
		fds[i + 1] = (struct pollfd){.fd = conn->fd, .events = events};
	}
	(void)poll(fds, LPI_FAKE_CONNS + 1, timeout_ms);
	lpi_fake_accept(fake);
	for (int i = 0; i < LPI_FAKE_CONNS; i++) {
		struct lpi_fake_conn *conn = &fake->conns[i];
		if (conn->fd >= 0 && !fake->is_deaf)
			lpi_fake_read(fake, conn);
		if (conn->fd >= 0)
			lpi_fake_flush(fake, conn);
	}
}

static inline void *lpi_fake_main(void *arg)
{
	struct lpi_fake *fake = arg;
	while (!atomic_load(&fake->stops))
		lpi_fake_step(fake, 2);
	return NULL;
}

static inline void lpi_fake_start(struct lpi_fake *fake)
{
	atomic_store(&fake->stops, false);
	assert_int_equal(pthread_create(&fake->thread, NULL, lpi_fake_main, fake), 0);
}

static inline void lpi_fake_stop(struct lpi_fake *fake)
{
	atomic_store(&fake->stops, true);
	assert_int_equal(pthread_join(fake->thread, NULL), 0);
}

/* --- A client of it, in the same thread ------------------------------------------------------- */

struct lpi_fake_rig {
	struct lpi_fake fake;
	struct lapis *lapis;
};

static inline struct lapis_options lpi_fake_rig_options(const struct lpi_fake_rig *rig)
{
	return (struct lapis_options){.size = sizeof(struct lapis_options),
				      .address = rig->fake.address,
				      .name = "test",
				      .timeout_ms = 5000,
				      .reconnect_ms = 2000};
}

static inline void lpi_fake_rig_init(struct lpi_fake_rig *rig)
{
	lpi_fake_init(&rig->fake);
	const struct lapis_options options = lpi_fake_rig_options(rig);
	lp_test_ok(lapis_open(&options, &rig->lapis));
}

static inline void lpi_fake_rig_fini(struct lpi_fake_rig *rig)
{
	lapis_close(rig->lapis);
	lpi_fake_fini(&rig->fake);
}

/* What is known of one request. */
struct lpi_fake_ending {
	int ended; /* how often */
	int status;
	uint64_t id;
	uint64_t data_bytes;
	uint64_t offset;
	uint64_t version;
	char text[320];
};

static inline void lpi_fake_rig_note_ending(void *arg, const struct lapis_result *result)
{
	struct lpi_fake_ending *ending = arg;
	ending->ended++;
	ending->status = result->status;
	ending->data_bytes = result->data_bytes;
	ending->offset = result->offset;
	ending->version = result->version;
	(void)snprintf(ending->text, sizeof(ending->text), "%s", result->text);
}

static inline void lpi_fake_rig_submit(struct lpi_fake_rig *rig, struct lapis_request request,
				       struct lpi_fake_ending *ending)
{
	*ending = (struct lpi_fake_ending){0};
	request.size = sizeof(request);
	request.done = lpi_fake_rig_note_ending;
	request.arg = ending;
	lp_test_ok(lapis_submit(rig->lapis, &request, &ending->id));
}

static inline void lpi_fake_rig_turn(struct lpi_fake_rig *rig)
{
	(void)lapis_turn(rig->lapis, 0);
	lpi_fake_step(&rig->fake, 0);
	(void)lapis_turn(rig->lapis, 0);
}

static inline void lpi_fake_rig_turns(struct lpi_fake_rig *rig, int cnt)
{
	for (int i = 0; i < cnt; i++)
		lpi_fake_rig_turn(rig);
}

/* Both go on until it has ended. */
static inline void lpi_fake_rig_wait_for(struct lpi_fake_rig *rig,
					 const struct lpi_fake_ending *ending)
{
	for (int i = 0; i < 200000 && ending->ended == 0; i++) {
		(void)lapis_turn(rig->lapis, 0);
		lpi_fake_step(&rig->fake, i > 1000 ? 1 : 0);
	}
	assert_int_equal(ending->ended, 1);
}

static inline int lpi_fake_rig_ask(struct lpi_fake_rig *rig, struct lapis_request request)
{
	struct lpi_fake_ending ending;
	lpi_fake_rig_submit(rig, request, &ending);
	lpi_fake_rig_wait_for(rig, &ending);
	return ending.status;
}

static inline struct lapis_request lpi_fake_rig_put_of(const char *key, const void *data,
						       size_t len)
{
	return (struct lapis_request){
		.op = LAPIS_PUT, .path = key, .data = data, .data_bytes = len};
}

static inline struct lapis_request lpi_fake_rig_get_of(const char *key, void *buf, size_t len)
{
	return (struct lapis_request){
		.op = LAPIS_GET, .path = key, .length = len, .buf = buf, .buf_bytes = len};
}

static const struct lapis_request lpi_fake_rig_ping __attribute__((unused)) = {.op = LAPIS_PING};

static inline uint8_t *lpi_fake_rig_pattern(size_t len)
{
	uint8_t *data = malloc(len);
	assert_non_null(data);
	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(i * 31 + (i >> 12) * 7 + (i >> 20));
	return data;
}

static inline struct lapis_stats lpi_fake_rig_stats_of(const struct lpi_fake_rig *rig)
{
	struct lapis_stats stats = {.size = sizeof(stats)};
	lapis_read_stats(rig->lapis, &stats);
	return stats;
}

#endif
