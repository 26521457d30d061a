/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's messages against the table. Each opcode gets a message of exactly its length, which
 * must pass, and then every shorter and longer one, which must not. Lengths inside a message are
 * wrong, too. All decoded parts must lie within the bytes. */
#include "fuse/proto.h"

#include <stdlib.h>
#include <string.h>

#include "base/testing/test.h"

#define MESSAGE_MAX 512u
#define OPCODES_MAX 64u

struct built {
	uint8_t bytes[MESSAGE_MAX];
	uint32_t len;
};

static void add(struct built *built, const void *bytes, size_t len)
{
	assert_true(built->len + len <= MESSAGE_MAX);
	memcpy(built->bytes + built->len, bytes, len);
	built->len += (uint32_t)len;
}

static void seal(struct built *built)
{
	memcpy(built->bytes, &built->len, sizeof(built->len));
}

/* A message that is right: a fixed part of zeros, names, and eight bytes of data if it may have
 * any. */
static void build(struct built *built, uint32_t code)
{
	static const char *const names[] = {"first", "second"};
	const struct lp_fuse_opcode *opcode = lp_fuse_opcode_find(code);
	const struct fuse_in_header header = {.opcode = code, .unique = 7, .nodeid = 1};
	union lp_fuse_in in;
	memset(&in, 0, sizeof(in));
	memset(built, 0, sizeof(*built));
	uint32_t data_bytes = 0;
	if (opcode->data == LP_FUSE_DATA_WRITE)
		data_bytes = in.write.size = 8;
	else if (opcode->data == LP_FUSE_DATA_XATTR)
		data_bytes = in.setxattr.size = 8;
	else if (opcode->data == LP_FUSE_DATA_FORGETS)
		data_bytes = (in.batch_forget.count = 2) * (uint32_t)sizeof(struct fuse_forget_one);
	add(built, &header, sizeof(header));
	add(built, &in, opcode->fixed_bytes);
	LP_ASSERT(opcode->name_cnt <= LP_ARRAY_SIZE(names));
	for (uint32_t i = 0; i < opcode->name_cnt; i++)
		add(built, names[i], strlen(names[i]) + 1);
	add(built, (uint8_t[MESSAGE_MAX / 2]){0}, data_bytes);
	seal(built);
}

/* In memory of exactly that length, so that a sanitizer sees a read beyond it. */
static int decode(const struct built *built, struct lp_fuse_message *ret)
{
	uint8_t *copy = malloc(built->len);
	assert_non_null(copy);
	memcpy(copy, built->bytes, built->len);
	int err = lp_fuse_decode(copy, built->len, ret);
	for (uint32_t i = 0; err == 0 && i < ret->opcode->name_cnt; i++) {
		const uint8_t *name = ret->names[i].data;
		assert_true(name >= copy && name + ret->names[i].len < copy + built->len);
		assert_null(memchr(name, 0, ret->names[i].len));
	}
	if (err == 0 && ret->data != NULL)
		assert_true(ret->data + ret->data_bytes == copy + built->len);
	free(copy);
	return err;
}

/* In two pieces, as io_uring brings it: only where the fixed part ends. */
static void check_splits(const struct built *built)
{
	struct lp_fuse_message whole;
	struct lp_fuse_message split;
	assert_int_equal(decode(built, &whole), 0);
	for (uint32_t at = 0; at <= built->len; at++) {
		uint8_t *head = malloc(at + 1);
		uint8_t *rest = malloc(built->len - at + 1);
		assert_non_null(head);
		assert_non_null(rest);
		memcpy(head, built->bytes, at);
		memcpy(rest, built->bytes + at, built->len - at);
		int err = lp_fuse_decode_split(head, at, rest, built->len - at, &split);
		bool is_right = at == sizeof(whole.header) + whole.opcode->fixed_bytes;
		assert_int_equal(err, is_right ? 0 : -EINVAL);
		if (is_right) {
			assert_memory_equal(&split.in, &whole.in, whole.opcode->fixed_bytes);
			assert_int_equal(split.data_bytes, whole.data_bytes);
		}
		for (uint32_t i = 0; is_right && i < whole.opcode->name_cnt; i++) {
			const uint8_t *name = split.names[i].data;
			assert_true(name >= rest && name < rest + (built->len - at));
			assert_int_equal(split.names[i].len, whole.names[i].len);
		}
		free(head);
		free(rest);
	}
}

/* Cut and lengthened by each number of bytes, with the header saying so. */
static void check_lengths(uint32_t code)
{
	struct lp_fuse_message message;
	const struct lp_fuse_opcode *opcode = lp_fuse_opcode_find(code);
	struct built right;
	build(&right, code);
	assert_int_equal(decode(&right, &message), 0);
	assert_ptr_equal(message.opcode, opcode);
	assert_int_equal(message.header.unique, 7);
	bool any_end = opcode->data == LP_FUSE_DATA_ANY || opcode->fixed_min_bytes > 0;
	if (!any_end)
		check_splits(&right);
	for (uint32_t len = 0; len < right.len + 40; len++) {
		struct built wrong = right;
		wrong.len = len;
		if (len == right.len || (any_end && len > right.len))
			continue;
		if (len >= sizeof(wrong.len))
			seal(&wrong);
		if (opcode->fixed_min_bytes > 0 && len >= 40u + opcode->fixed_min_bytes)
			continue;
		assert_int_equal(decode(&wrong, &message), -EINVAL);
	}
}

static void test_every_length(void **state)
{
	uint32_t cnt = 0;
	(void)state;
	for (uint32_t code = 0; code < OPCODES_MAX; code++) {
		if (lp_fuse_opcode_find(code) == NULL)
			continue;
		check_lengths(code);
		cnt++;
	}
	assert_true(cnt >= 40);
}

/* The header's own length, an unknown opcode, extensions that are longer than the message. */
static void test_header(void **state)
{
	struct lp_fuse_message message;
	struct built built;
	uint32_t wrong = 0;
	uint16_t extension = 0;
	(void)state;
	build(&built, FUSE_GETATTR);
	wrong = built.len + 1;
	memcpy(built.bytes, &wrong, sizeof(wrong));
	assert_int_equal(decode(&built, &message), -EINVAL);
	build(&built, FUSE_GETATTR);
	wrong = 4711;
	memcpy(built.bytes + 4, &wrong, sizeof(wrong));
	assert_int_equal(decode(&built, &message), -ENOSYS);
	assert_null(message.opcode);
	assert_int_equal(message.header.unique, 7);
	build(&built, FUSE_MKDIR);
	extension = UINT16_MAX;
	memcpy(built.bytes + offsetof(struct fuse_in_header, total_extlen), &extension,
	       sizeof(extension));
	assert_int_equal(decode(&built, &message), -EINVAL);
	/* An extension that fits is skipped. */
	build(&built, FUSE_MKDIR);
	add(&built, (uint8_t[8]){1, 2, 3}, 8);
	seal(&built);
	extension = 1;
	memcpy(built.bytes + offsetof(struct fuse_in_header, total_extlen), &extension,
	       sizeof(extension));
	assert_int_equal(decode(&built, &message), 0);
}

/* Counts that would overflow; a write and forgets whose data is elsewhere: only its length counts.
 */
static void test_counts(void **state)
{
	struct lp_fuse_message message;
	struct built built;
	uint32_t wrong = UINT32_MAX;
	(void)state;
	build(&built, FUSE_BATCH_FORGET);
	assert_int_equal(decode(&built, &message), 0);
	assert_null(message.data);
	assert_int_equal(message.data_bytes, 32);
	memcpy(built.bytes + 40, &wrong, sizeof(wrong));
	assert_int_equal(decode(&built, &message), -EINVAL);
	/* 2^28 + 2 items of 16 bytes each overflow to 32 bytes. */
	wrong = (UINT32_C(1) << 28) + 2;
	memcpy(built.bytes + 40, &wrong, sizeof(wrong));
	assert_int_equal(decode(&built, &message), -EINVAL);
	build(&built, FUSE_WRITE);
	assert_int_equal(decode(&built, &message), 0);
	assert_null(message.data);
	assert_int_equal(message.data_bytes, 8);
	/* More than one write may be; and one with an extension. */
	size_t size_at = sizeof(struct fuse_in_header) + offsetof(struct fuse_write_in, size);
	for (uint32_t more = 0; more < 2; more++) {
		uint32_t size = LP_FUSE_WRITE_MAX + more;
		build(&built, FUSE_WRITE);
		built.len += size - 8;
		memcpy(built.bytes + size_at, &size, sizeof(size));
		seal(&built);
		/* The data is elsewhere. */
		assert_int_equal(lp_fuse_decode(built.bytes, built.len, &message),
				 more == 0 ? 0 : -EINVAL);
	}
	uint16_t extension = 1;
	build(&built, FUSE_WRITE);
	built.len += 8;
	seal(&built);
	memcpy(built.bytes + offsetof(struct fuse_in_header, total_extlen), &extension,
	       sizeof(extension));
	assert_int_equal(decode(&built, &message), -EINVAL);
	build(&built, FUSE_SETXATTR);
	assert_int_equal(decode(&built, &message), 0);
	assert_int_equal(message.data_bytes, 8);
	assert_int_equal(message.names[0].len, 5);
}

/* Names: empty, without an end, one too few. */
static void test_names(void **state)
{
	struct lp_fuse_message message;
	struct built built;
	(void)state;
	build(&built, FUSE_LOOKUP);
	built.bytes[40] = 0;
	assert_int_equal(decode(&built, &message), -EINVAL);
	build(&built, FUSE_LOOKUP);
	built.bytes[built.len - 1] = 'x';
	assert_int_equal(decode(&built, &message), -EINVAL);
	build(&built, FUSE_SYMLINK);
	built.bytes[45] = 'x'; /* the end of the first one */
	assert_int_equal(decode(&built, &message), -EINVAL);
}

/* Whatever the size of the kernel's pages, the most pages of a request are the most bytes of a
 * read. */
static void test_pages(void **state)
{
	(void)state;
	for (uint64_t page_bytes = 4096; page_bytes <= LP_FUSE_WRITE_MAX; page_bytes *= 2)
		assert_int_equal(lp_fuse_pages_max(page_bytes) * page_bytes, LP_STORE_READ_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_length), cmocka_unit_test(test_header),
		cmocka_unit_test(test_counts),       cmocka_unit_test(test_names),
		cmocka_unit_test(test_pages),
	};
	return lp_test_main(tests, "fuse/proto");
}
