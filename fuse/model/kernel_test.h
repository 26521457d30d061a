/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's side of a channel in a test: it sends requests as bytes and takes answers.
 *
 * Only *_test.c files include this.
 *
 * It is at the other end of a socketpair, asks one thing at a time and waits for the answer. Or it
 * is the kernel's side of one queue of FUSE over io_uring. It owns an entry from lpi_kernel_given()
 * on.
 */
#ifndef LP_FUSE_MODEL_KERNEL_TEST_H
#define LP_FUSE_MODEL_KERNEL_TEST_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/testing/test.h"

#include "fuse/proto.h"
#include "fuse/ring.h"

#define LPI_KERNEL_BYTES (160u << 10) /* of a message */

/* An answer that was given by a ring. */
struct lpi_kernel_answer {
	uint32_t len;
	uint8_t *bytes;
};

struct lpi_kernel {
	int fd;
	/* Called when a message is to be read, and to let time pass. */
	void (*sent)(void *arg);
	void (*turn)(void *arg);
	void *arg;
	uint64_t unique;
	/* Of a queue: entries that wait for requests, of which the last is taken first; and
	 * answers. */
	bool has_ring;
	uint32_t entry_cnt;
	uint32_t answer_cnt;
	struct lpi_fuse_entry *entries[LP_FUSE_RING_DEPTH_MAX];
	struct lpi_kernel_answer answers[LP_FUSE_RING_DEPTH_MAX];
	uint32_t out_len;
	uint32_t in_len;
	uint8_t out[LPI_KERNEL_BYTES];
	uint8_t in[LPI_KERNEL_BYTES];
};

/* Returns the channel's end. */
static inline int lpi_kernel_connect(struct lpi_kernel *kernel)
{
	int fds[2];
	int bytes = 2 * LPI_KERNEL_BYTES;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)),
				 0);
	kernel->fd = fds[1];
	return fds[0];
}

static inline void lpi_kernel_begin(struct lpi_kernel *kernel, uint32_t opcode, uint64_t node)
{
	const struct fuse_in_header header = {
		.opcode = opcode, .unique = ++kernel->unique, .nodeid = node};
	memcpy(kernel->out, &header, sizeof(header));
	kernel->out_len = sizeof(header);
}

static inline void lpi_kernel_add(struct lpi_kernel *kernel, const void *bytes, size_t len)
{
	assert_true(kernel->out_len + len <= LPI_KERNEL_BYTES);
	if (len > 0)
		memcpy(kernel->out + kernel->out_len, bytes, len);
	kernel->out_len += (uint32_t)len;
}

static inline void lpi_kernel_add_name(struct lpi_kernel *kernel, const char *name)
{
	lpi_kernel_add(kernel, name, strlen(name) + 1);
}

/* A command of the queue: with the answer to what was in the entry, unless it is new. */
static inline void lpi_kernel_given(struct lpi_kernel *kernel, struct lpi_fuse_entry *entry,
				    uint32_t command)
{
	struct fuse_out_header header;
	LP_ASSERT(kernel->entry_cnt < LP_FUSE_RING_DEPTH_MAX);
	kernel->entries[kernel->entry_cnt++] = entry;
	if (command == LPI_FUSE_RING_REGISTER)
		return;
	LP_ASSERT(command == LPI_FUSE_RING_COMMIT_AND_FETCH);
	LP_ASSERT(kernel->answer_cnt < LP_FUSE_RING_DEPTH_MAX);
	struct lpi_kernel_answer *answer = &kernel->answers[kernel->answer_cnt++];
	memcpy(&header, entry->head->in_out, sizeof(header));
	LP_ASSERT(header.unique == entry->commit_id);
	LP_ASSERT(header.len == sizeof(header) + entry->head->tail.payload_bytes);
	answer->len = header.len;
	answer->bytes = malloc(header.len);
	LP_ASSERT(answer->bytes != NULL);
	memcpy(answer->bytes, &header, sizeof(header));
	memcpy(answer->bytes + sizeof(header), entry->payload->data,
	       entry->head->tail.payload_bytes);
}

/* The command of the entry that came last is done. */
static inline void lpi_kernel_complete(struct lpi_kernel *kernel, int result)
{
	LP_ASSERT(kernel->entry_cnt > 0);
	struct lpi_fuse_entry *entry = kernel->entries[--kernel->entry_cnt];
	entry->io.result = result;
	entry->io.complete(&entry->io);
}

/* Puts the request into the entry that came last, its fixed part in the place for that. */
static inline void lpi_kernel_put(struct lpi_kernel *kernel, uint32_t fixed_bytes)
{
	LP_ASSERT(kernel->entry_cnt > 0);
	struct lpi_fuse_entry *entry = kernel->entries[kernel->entry_cnt - 1];
	uint32_t head_bytes = (uint32_t)sizeof(struct fuse_in_header) + fixed_bytes;
	memset(entry->head, 0, sizeof(*entry->head));
	memcpy(entry->head->in_out, kernel->out, sizeof(struct fuse_in_header));
	memcpy(entry->head->op_in, kernel->out + sizeof(struct fuse_in_header), fixed_bytes);
	entry->head->tail.commit_id = kernel->unique;
	entry->head->tail.payload_bytes = kernel->out_len - head_bytes;
	memcpy(entry->payload->data, kernel->out + head_bytes, kernel->out_len - head_bytes);
}

static inline bool lpi_kernel_take_by_ring(struct lpi_kernel *kernel)
{
	if (kernel->answer_cnt == 0)
		return false;
	struct lpi_kernel_answer answer = kernel->answers[0];
	kernel->answer_cnt--;
	memmove(kernel->answers, kernel->answers + 1,
		kernel->answer_cnt * sizeof(kernel->answers[0]));
	assert_true(answer.len <= LPI_KERNEL_BYTES);
	memcpy(kernel->in, answer.bytes, answer.len);
	kernel->in_len = answer.len;
	free(answer.bytes);
	return true;
}

static inline void lpi_kernel_send(struct lpi_kernel *kernel)
{
	memcpy(kernel->out, &kernel->out_len, sizeof(kernel->out_len));
	if (kernel->has_ring) {
		struct fuse_in_header header;
		memcpy(&header, kernel->out, sizeof(header));
		const struct lp_fuse_opcode *opcode = lp_fuse_opcode_find(header.opcode);
		lpi_kernel_put(kernel, opcode == NULL ? 0 : opcode->fixed_bytes);
		lpi_kernel_complete(kernel, 0);
		return;
	}
	assert_int_equal(send(kernel->fd, kernel->out, kernel->out_len, 0), kernel->out_len);
	kernel->sent(kernel->arg);
}

/* Takes the next answer, if there is one, with its header. */
static inline bool lpi_kernel_take(struct lpi_kernel *kernel, struct fuse_out_header *ret)
{
	if (!kernel->has_ring) {
		ssize_t len = recv(kernel->fd, kernel->in, sizeof(kernel->in), 0);
		if (len <= 0)
			return false;
		kernel->in_len = (uint32_t)len;
	} else if (!lpi_kernel_take_by_ring(kernel)) {
		return false;
	}
	assert_true(kernel->in_len >= sizeof(*ret));
	memcpy(ret, kernel->in, sizeof(*ret));
	assert_int_equal(ret->len, kernel->in_len);
	return true;
}

/* Sends the request, and returns the answer's error. Ignores notices meanwhile. */
static inline int lpi_kernel_ask(struct lpi_kernel *kernel)
{
	struct fuse_out_header header;
	lpi_kernel_send(kernel);
	for (uint32_t i = 0; !lpi_kernel_take(kernel, &header) || header.unique == 0; i++) {
		assert_true(i < 2000000);
		kernel->turn(kernel->arg);
	}
	assert_int_equal(header.unique, kernel->unique);
	return header.error;
}

static inline const uint8_t *lpi_kernel_answer(const struct lpi_kernel *kernel, size_t len)
{
	assert_true(kernel->in_len >= sizeof(struct fuse_out_header) + len);
	return kernel->in + sizeof(struct fuse_out_header);
}

static inline uint32_t lpi_kernel_answer_len(const struct lpi_kernel *kernel)
{
	return kernel->in_len - (uint32_t)sizeof(struct fuse_out_header);
}

/* --- Requests of programs --------------------------------------------------------------------- */

struct lpi_opened {
	uint64_t node;
	uint64_t fh;
};

/* FUSE_CREATE, or FUSE_TMPFILE. */
static inline struct lpi_opened lpi_kernel_create(struct lpi_kernel *kernel, uint32_t opcode,
						  uint64_t dir, const char *name)
{
	const struct fuse_create_in in = {.flags = O_RDWR | O_CREAT | O_EXCL,
					  .mode = S_IFREG | 0644};
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} out;
	lpi_kernel_begin(kernel, opcode, dir);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lpi_kernel_add_name(kernel, name);
	lp_test_ok(lpi_kernel_ask(kernel));
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	return (struct lpi_opened){out.entry.nodeid, out.open.fh};
}

static inline uint64_t lpi_kernel_mkdir(struct lpi_kernel *kernel, uint64_t dir, const char *name)
{
	const struct fuse_mkdir_in in = {.mode = 0755};
	struct fuse_entry_out out;
	lpi_kernel_begin(kernel, FUSE_MKDIR, dir);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lpi_kernel_add_name(kernel, name);
	lp_test_ok(lpi_kernel_ask(kernel));
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	return out.nodeid;
}

/* Returns the handle. */
static inline uint64_t lpi_kernel_open_as(struct lpi_kernel *kernel, uint32_t opcode, uint64_t node,
					  uint32_t flags)
{
	const struct fuse_open_in in = {.flags = flags};
	struct fuse_open_out out;
	lpi_kernel_begin(kernel, opcode, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(kernel));
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	return out.fh;
}

static inline uint64_t lpi_kernel_open(struct lpi_kernel *kernel, uint32_t opcode, uint64_t node)
{
	return lpi_kernel_open_as(kernel, opcode, node, O_RDONLY);
}

/* FUSE_RELEASE, FUSE_RELEASEDIR. */
static inline void lpi_kernel_release(struct lpi_kernel *kernel, uint32_t opcode, uint64_t node)
{
	const struct fuse_release_in in = {.fh = 0};
	lpi_kernel_begin(kernel, opcode, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(kernel));
}

static inline void lpi_kernel_begin_write_as(struct lpi_kernel *kernel, uint64_t node,
					     const struct fuse_write_in *in, const void *bytes)
{
	lpi_kernel_begin(kernel, FUSE_WRITE, node);
	lpi_kernel_add(kernel, in, sizeof(*in));
	lpi_kernel_add(kernel, bytes, in->size);
}

static inline void lpi_kernel_begin_write(struct lpi_kernel *kernel, uint64_t node, uint64_t offset,
					  const void *bytes, uint32_t len)
{
	const struct fuse_write_in in = {.offset = offset, .size = len};
	lpi_kernel_begin_write_as(kernel, node, &in, bytes);
}

static inline int lpi_kernel_write(struct lpi_kernel *kernel, uint64_t node, uint64_t offset,
				   const void *bytes, uint32_t len)
{
	lpi_kernel_begin_write(kernel, node, offset, bytes, len);
	return lpi_kernel_ask(kernel);
}

/* With the flags of the file that is written to. */
static inline int lpi_kernel_write_as(struct lpi_kernel *kernel, struct lpi_opened file,
				      uint32_t flags, uint64_t offset, const void *bytes,
				      uint32_t len)
{
	const struct fuse_write_in in = {
		.fh = file.fh, .offset = offset, .size = len, .flags = flags};
	lpi_kernel_begin_write_as(kernel, file.node, &in, bytes);
	return lpi_kernel_ask(kernel);
}

/* FUSE_FSYNC, FUSE_FSYNCDIR. */
static inline void lpi_kernel_begin_fsync(struct lpi_kernel *kernel, uint32_t opcode, uint64_t node,
					  uint64_t fh)
{
	const struct fuse_fsync_in in = {.fh = fh};
	lpi_kernel_begin(kernel, opcode, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
}

static inline int lpi_kernel_fsync(struct lpi_kernel *kernel, uint32_t opcode, uint64_t node,
				   uint64_t fh)
{
	lpi_kernel_begin_fsync(kernel, opcode, node, fh);
	return lpi_kernel_ask(kernel);
}

/* Returns the length read into bytes, which has room for LPI_KERNEL_BYTES. */
static inline uint32_t lpi_kernel_read(struct lpi_kernel *kernel, uint32_t opcode, uint64_t node,
				       uint64_t offset, void *bytes)
{
	const struct fuse_read_in in = {.offset = offset, .size = LPI_KERNEL_BYTES - 4096};
	lpi_kernel_begin(kernel, opcode, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(kernel));
	uint32_t len = lpi_kernel_answer_len(kernel);
	memcpy(bytes, lpi_kernel_answer(kernel, len), len);
	return len;
}

/* FUSE_UNLINK, FUSE_RMDIR. */
static inline int lpi_kernel_remove(struct lpi_kernel *kernel, uint32_t opcode, uint64_t dir,
				    const char *name)
{
	lpi_kernel_begin(kernel, opcode, dir);
	lpi_kernel_add_name(kernel, name);
	return lpi_kernel_ask(kernel);
}

static inline int lpi_kernel_rename(struct lpi_kernel *kernel, uint64_t dir, const char *name,
				    uint64_t to_dir, const char *to_name)
{
	const struct fuse_rename_in in = {.newdir = to_dir};
	lpi_kernel_begin(kernel, FUSE_RENAME, dir);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lpi_kernel_add_name(kernel, name);
	lpi_kernel_add_name(kernel, to_name);
	return lpi_kernel_ask(kernel);
}

static inline int lpi_kernel_link(struct lpi_kernel *kernel, uint64_t node, uint64_t dir,
				  const char *name)
{
	const struct fuse_link_in in = {.oldnodeid = node};
	lpi_kernel_begin(kernel, FUSE_LINK, dir);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lpi_kernel_add_name(kernel, name);
	return lpi_kernel_ask(kernel);
}

static inline int lpi_kernel_truncate(struct lpi_kernel *kernel, uint64_t node, uint64_t size)
{
	const struct fuse_setattr_in in = {.valid = FATTR_SIZE, .size = size};
	lpi_kernel_begin(kernel, FUSE_SETATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	return lpi_kernel_ask(kernel);
}

static inline int lpi_kernel_set_xattr(struct lpi_kernel *kernel, uint64_t node, const void *value,
				       uint32_t bytes)
{
	const struct fuse_setxattr_in in = {.size = bytes};
	lpi_kernel_begin(kernel, FUSE_SETXATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lpi_kernel_add_name(kernel, "user.x");
	lpi_kernel_add(kernel, value, bytes);
	return lpi_kernel_ask(kernel);
}

/* The attribute of lpi_kernel_set_xattr(), if it has no more than so many bytes. */
static inline void lpi_kernel_begin_get_xattr(struct lpi_kernel *kernel, uint64_t node,
					      uint32_t bytes)
{
	const struct fuse_getxattr_in in = {.size = bytes};
	lpi_kernel_begin(kernel, FUSE_GETXATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lpi_kernel_add_name(kernel, "user.x");
}

static inline int lpi_kernel_get_xattr(struct lpi_kernel *kernel, uint64_t node, uint32_t bytes)
{
	lpi_kernel_begin_get_xattr(kernel, node, bytes);
	return lpi_kernel_ask(kernel);
}

/* 0: there is no such name. */
static inline uint64_t lpi_kernel_lookup(struct lpi_kernel *kernel, uint64_t dir, const char *name)
{
	struct fuse_entry_out out;
	lpi_kernel_begin(kernel, FUSE_LOOKUP, dir);
	lpi_kernel_add_name(kernel, name);
	int err = lpi_kernel_ask(kernel);
	if (err == -ENOENT)
		return 0;
	lp_test_ok(err);
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	return out.nodeid;
}

#endif
