/* SPDX-License-Identifier: Apache-2.0 */
/* Open files: an inode, and the connection on which it is open. Its data may come by another one,
 * that of the shard that has it. */
#include <stdlib.h>

#include "client/call.h"
#include "client/handle.h"
#include "client/public.h"

#define SPACE_MAX (UINT64_C(16) << 20) /* of punch, prealloc and clone in one message */

struct lapis_file {
	struct lapis *lapis;
	uint64_t ino;
	struct lpi_link *by; /* that it was opened on */
	uint64_t generation;
};

static int open_by(struct lapis *lapis, const struct lapis_request *request,
		   struct lapis_file **ret_file)
{
	struct lapis_result result = {0};
	struct lpi_await call = {.result = &result};
	struct lapis_file *file = calloc(1, sizeof(*file));
	if (file == NULL)
		return lpi_set_error(-ENOMEM, NULL);
	int err = lpi_await(lapis, request, &call);
	lapis_result_fini(&result);
	if (err < 0) {
		free(file);
		return err;
	}
	file->lapis = lapis;
	file->ino = result.attrs.ino;
	file->by = call.conn;
	file->generation = call.generation;
	*ret_file = file;
	return 0;
}

int lapis_open_file(struct lapis *lapis, const char *key, struct lapis_file **ret_file)
{
	const struct lapis_request request = {.op = LAPIS_OPEN, .path = key};
	return open_by(lapis, &request, ret_file);
}

int lapis_create_file(struct lapis *lapis, const char *key, uint16_t mode,
		      struct lapis_file **ret_file)
{
	const struct lapis_request request = {.op = LAPIS_MAKE,
					      .path = key,
					      .type = LAPIS_FILE,
					      .mode = mode,
					      .flags = LAPIS_OR_OPEN | LAPIS_AND_OPEN};
	return open_by(lapis, &request, ret_file);
}

uint64_t lapis_file_ino(const struct lapis_file *file)
{
	return file->ino;
}

int lapis_close_file(struct lapis_file *file)
{
	if (file == NULL)
		return 0;
	struct lapis_result result = {0};
	struct lpi_await call = {
		.result = &result, .conn = file->by, .generation = file->generation};
	const struct lapis_request request = {.op = LAPIS_CLOSE, .ino = file->ino};
	int err = lpi_await(file->lapis, &request, &call);
	lapis_result_fini(&result);
	free(file);
	/* What was open on a connection that has gone is closed. */
	return err == -ENOTCONN || err == -LAPIS_EUNKNOWN ? 0 : err;
}

/* --- Data ------------------------------------------------------------------------------------- */

int64_t lapis_pread(struct lapis_file *file, void *buf, size_t len, uint64_t offset)
{
	struct lapis_result result;
	const struct lapis_request request = {.op = LAPIS_GET,
					      .ino = file->ino,
					      .offset = offset,
					      .length = len,
					      .buf = buf,
					      .buf_bytes = len};
	int err = lpi_ask(file->lapis, &request, &result);
	return err < 0 ? err : (int64_t)result.data_bytes;
}

int lapis_pwrite(struct lapis_file *file, const void *data, size_t len, uint64_t offset,
		 uint32_t flags)
{
	const char *at = data;
	int err = 0;
	while (err >= 0 && len > 0) {
		size_t step = LP_MIN(len, (size_t)LP_WIRE_DATA_MAX);
		const struct lapis_request request = {.op = LAPIS_WRITE,
						      .flags = flags & LAPIS_ORDERED,
						      .ino = file->ino,
						      .data = at,
						      .data_bytes = step,
						      .offset = offset};
		err = lpi_ask(file->lapis, &request, NULL);
		at += step;
		offset += step;
		len -= step;
	}
	return err;
}

int lapis_append(struct lapis_file *file, const void *data, size_t len, uint64_t *ret_offset)
{
	struct lapis_result result;
	const struct lapis_request request = {.op = LAPIS_WRITE,
					      .flags = LAPIS_APPEND,
					      .ino = file->ino,
					      .data = data,
					      .data_bytes = len};
	int err = lpi_ask(file->lapis, &request, &result);
	if (err >= 0)
		*ret_offset = result.offset;
	return err;
}

int lapis_fstat(struct lapis_file *file, struct lapis_attrs *ret_attrs)
{
	struct lapis_result result;
	const struct lapis_request request = {.op = LAPIS_STAT, .ino = file->ino};
	int err = lpi_ask(file->lapis, &request, &result);
	if (err >= 0)
		*ret_attrs = result.attrs;
	return err;
}

int lapis_truncate(struct lapis_file *file, uint64_t size_bytes)
{
	const struct lapis_request request = {
		.op = LAPIS_TRUNCATE, .ino = file->ino, .offset = size_bytes};
	return lpi_ask(file->lapis, &request, NULL);
}

/* The same request for one part after another of what may be longer than a message says. */
static int in_steps(struct lapis *lapis, struct lapis_request *request, uint64_t length)
{
	int err = 0;
	while (err >= 0 && length > 0) {
		/* Steps end on a multiple of their size, so that none but the last cuts a block. */
		uint64_t step = SPACE_MAX - request->offset % SPACE_MAX;
		request->length = LP_MIN(step, length);
		err = lpi_ask(lapis, request, NULL);
		request->offset += request->length;
		request->src_offset += request->length;
		length -= request->length;
	}
	return err;
}

int lapis_punch(struct lapis_file *file, uint64_t offset, uint64_t length)
{
	struct lapis_request request = {.op = LAPIS_PUNCH, .ino = file->ino, .offset = offset};
	return in_steps(file->lapis, &request, length);
}

int lapis_prealloc(struct lapis_file *file, uint64_t offset, uint64_t length)
{
	struct lapis_request request = {.op = LAPIS_PREALLOC, .ino = file->ino, .offset = offset};
	return in_steps(file->lapis, &request, length);
}

int lapis_clone(struct lapis_file *from, uint64_t src_offset, struct lapis_file *to,
		uint64_t offset, uint64_t length)
{
	struct lapis_request request = {.op = LAPIS_CLONE,
					.ino = to->ino,
					.to_ino = from->ino,
					.src_offset = src_offset,
					.offset = offset};
	return in_steps(to->lapis, &request, length);
}

int lapis_seek(struct lapis_file *file, uint64_t offset, uint32_t flags, uint64_t *ret_offset)
{
	struct lapis_result result;
	const struct lapis_request request = {
		.op = LAPIS_SEEK, .flags = flags & LAPIS_HOLE, .ino = file->ino, .offset = offset};
	int err = lpi_ask(file->lapis, &request, &result);
	if (err >= 0)
		*ret_offset = result.offset;
	return err;
}
