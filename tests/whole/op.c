/* SPDX-License-Identifier: Apache-2.0 */
/* A line is the kind and then field=value for each field that is not 0, in the order of a table. */
#include "tests/whole/op.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "store/record/inode.h"

/* --- As text ---------------------------------------------------------------------------------- */

static const char *const kind_names[LPI_WHOLE_KIND_CNT] = {
	[LPI_WHOLE_MAKE] = "make",
	[LPI_WHOLE_LINK] = "link",
	[LPI_WHOLE_REMOVE] = "remove",
	[LPI_WHOLE_RENAME] = "rename",
	[LPI_WHOLE_OPEN] = "open",
	[LPI_WHOLE_CLOSE] = "close",
	[LPI_WHOLE_SET] = "set",
	[LPI_WHOLE_WRITE] = "write",
	[LPI_WHOLE_APPEND] = "append",
	[LPI_WHOLE_TRUNCATE] = "truncate",
	[LPI_WHOLE_PUNCH] = "punch",
	[LPI_WHOLE_PREALLOC] = "prealloc",
	[LPI_WHOLE_CLONE] = "clone",
	[LPI_WHOLE_XATTR_SET] = "xattr-set",
	[LPI_WHOLE_XATTR_REMOVE] = "xattr-remove",
	[LPI_WHOLE_OMAP_SET] = "omap-set",
	[LPI_WHOLE_OMAP_REMOVE] = "omap-remove",
	[LPI_WHOLE_PUT] = "put",
	[LPI_WHOLE_UPLOAD] = "upload",
	[LPI_WHOLE_COMMIT] = "commit",
	[LPI_WHOLE_DELETE] = "delete",
	[LPI_WHOLE_COPY] = "copy",
	[LPI_WHOLE_MOVE] = "move",
	[LPI_WHOLE_SYNC] = "sync",
	[LPI_WHOLE_STAT] = "stat",
	[LPI_WHOLE_LOOKUP] = "lookup",
	[LPI_WHOLE_WALK] = "walk",
	[LPI_WHOLE_READ] = "read",
	[LPI_WHOLE_SEEK] = "seek",
	[LPI_WHOLE_XATTRS] = "xattrs",
	[LPI_WHOLE_READDIR] = "readdir",
	[LPI_WHOLE_LIST] = "list",
};

#define FIELD(text, member)                                                                        \
	{                                                                                          \
		(text), offsetof(struct lpi_whole_op, member),                                     \
			sizeof(((struct lpi_whole_op *)0)->member)                                 \
	}

static const struct {
	const char *name;
	size_t at;
	size_t bytes;
} fields[] = {
	FIELD("id", id),
	FIELD("flags", flags),
	FIELD("home", home),
	FIELD("condition", condition),
	FIELD("type", type),
	FIELD("mode", mode),
	FIELD("mask", mask),
	FIELD("seed", seed),
	FIELD("path", path),
	FIELD("items", items),
	FIELD("node", node),
	FIELD("dir", dir),
	FIELD("to-dir", to_dir),
	FIELD("name", name),
	FIELD("to-name", to_name),
	FIELD("depth", depth),
	FIELD("to-depth", to_depth),
	FIELD("n0", names[0]),
	FIELD("n1", names[1]),
	FIELD("n2", names[2]),
	FIELD("n3", names[3]),
	FIELD("t0", to_names[0]),
	FIELD("t1", to_names[1]),
	FIELD("t2", to_names[2]),
	FIELD("t3", to_names[3]),
	FIELD("offset", offset),
	FIELD("src-offset", src_offset),
	FIELD("length", length),
};

const char *lpi_whole_kind_name(uint32_t kind)
{
	return kind < LPI_WHOLE_KIND_CNT ? kind_names[kind] : "unknown";
}

static uint64_t field_get(const struct lpi_whole_op *op, size_t idx)
{
	uint64_t wide = 0;
	uint32_t narrow = 0;
	const char *from = (const char *)op + fields[idx].at;
	if (fields[idx].bytes == sizeof(wide)) {
		memcpy(&wide, from, sizeof(wide));
		return wide;
	}
	memcpy(&narrow, from, sizeof(narrow));
	return narrow;
}

static void field_set(struct lpi_whole_op *op, size_t idx, uint64_t value)
{
	uint32_t narrow = (uint32_t)value;
	char *to = (char *)op + fields[idx].at;
	if (fields[idx].bytes == sizeof(value))
		memcpy(to, &value, sizeof(value));
	else
		memcpy(to, &narrow, sizeof(narrow));
}

size_t lpi_whole_op_write(const struct lpi_whole_op *op, char line[LPI_WHOLE_LINE_MAX])
{
	size_t len =
		(size_t)snprintf(line, LPI_WHOLE_LINE_MAX, "%s", lpi_whole_kind_name(op->kind));
	for (size_t i = 0; i < LP_ARRAY_SIZE(fields); i++) {
		uint64_t value = field_get(op, i);
		if (value != 0)
			len += (size_t)snprintf(line + len, LPI_WHOLE_LINE_MAX - len, " %s=%llu",
						fields[i].name, (unsigned long long)value);
		LP_ASSERT(len < LPI_WHOLE_LINE_MAX);
	}
	return len;
}

static int read_field(const char *text, struct lpi_whole_op *op)
{
	const char *sign = strchr(text, '=');
	for (size_t i = 0; sign != NULL && i < LP_ARRAY_SIZE(fields); i++) {
		size_t len = (size_t)(sign - text);
		if (strlen(fields[i].name) == len && strncmp(text, fields[i].name, len) == 0) {
			field_set(op, i, strtoull(sign + 1, NULL, 10));
			return 0;
		}
	}
	return -EINVAL;
}

static int check_read(const struct lpi_whole_op *op)
{
	bool fits = op->depth <= LPI_WHOLE_DEPTH_MAX && op->to_depth <= LPI_WHOLE_DEPTH_MAX;
	return op->kind < LPI_WHOLE_KIND_CNT && op->id != 0 && fits ? 0 : -EINVAL;
}

int lpi_whole_op_read(const char *line, struct lpi_whole_op *ret_op)
{
	struct lpi_whole_op op = {.kind = LPI_WHOLE_KIND_CNT};
	char text[LPI_WHOLE_LINE_MAX];
	char *rest = NULL;
	if (strlen(line) >= sizeof(text))
		return -EINVAL;
	memcpy(text, line, strlen(line) + 1);
	char *word = strtok_r(text, " \n", &rest);
	for (uint32_t i = 0; word != NULL && i < LPI_WHOLE_KIND_CNT; i++)
		if (strcmp(word, kind_names[i]) == 0)
			op.kind = i;
	while (word != NULL && (word = strtok_r(NULL, " \n", &rest)) != NULL)
		if (read_field(word, &op) < 0)
			return -EINVAL;
	int r = check_read(&op);
	if (r == 0)
		*ret_op = op;
	return r;
}

/* --- Names and contents ----------------------------------------------------------------------- */

static void set_bytes(struct lpi_whole_bytes *ret, const char *text)
{
	ret->len = (uint32_t)strlen(text);
	memcpy(ret->bytes, text, ret->len);
}

void lpi_whole_name(uint32_t idx, struct lpi_whole_bytes *ret)
{
	/* "a", "a-" and "a/" come in another order as names than as keys. */
	static const char *const few[LPI_WHOLE_NAMES_FEW] = {"a", "b", "a-", "ab", "\xff\xfe", ""};
	if (idx < LPI_WHOLE_NAMES_FEW - 1) {
		set_bytes(ret, few[idx]);
	} else if (idx == LPI_WHOLE_NAMES_FEW - 1) {
		ret->len = LP_KEY_NAME_MAX;
		memset(ret->bytes, 'n', ret->len);
	} else {
		ret->len = (uint32_t)snprintf(ret->bytes, sizeof(ret->bytes), "name%u", idx);
	}
}

void lpi_whole_xattr_name(uint32_t idx, struct lpi_whole_bytes *ret)
{
	static const char *const names[] = {"user.a", "user.ab", "trusted.b",
					    "system.posix_acl_access"};
	if (idx < LP_ARRAY_SIZE(names))
		set_bytes(ret, names[idx]);
	else
		ret->len = (uint32_t)snprintf(ret->bytes, sizeof(ret->bytes), "user.x%u", idx);
}

void lpi_whole_omap_name(uint32_t idx, struct lpi_whole_bytes *ret)
{
	static const char *const names[LPI_WHOLE_OMAP_NAMES] = {"k", "k1", "\xff", "other/key",
								"k "};
	set_bytes(ret, names[idx % LPI_WHOLE_OMAP_NAMES]);
}

void lpi_whole_fill(uint32_t seed, void *buf, size_t len)
{
	struct lp_prng prng;
	if (seed % 16 == 0) {
		memset(buf, 0, len);
		return;
	}
	lp_prng_init(&prng, seed);
	lp_prng_fill(&prng, buf, len);
}

static const uint16_t tags[] = {0x01, 0x04, 0x20}; /* owner, group, others */
static_assert(LPI_WHOLE_ACL_BYTES == 4 + 8 * LP_ARRAY_SIZE(tags), "version, entries");

uint32_t lpi_whole_acl_perms(const uint8_t acl[LPI_WHOLE_ACL_BYTES])
{
	uint32_t perms = 0;
	for (size_t i = 0; i < LP_ARRAY_SIZE(tags); i++)
		perms = perms << 3 | lp_get_le16(acl + 4 + 8 * i + 2);
	return perms;
}

void lpi_whole_acl_set_perms(uint8_t acl[LPI_WHOLE_ACL_BYTES], uint32_t perms)
{
	for (size_t i = LP_ARRAY_SIZE(tags); i > 0; i--, perms >>= 3)
		lp_put_le16(acl + 4 + 8 * (i - 1) + 2, perms & 7u);
}

void lpi_whole_fill_xattr(uint32_t idx, uint32_t seed, uint8_t *buf, size_t len)
{
	lpi_whole_fill(seed, buf, len);
	if (idx != LPI_WHOLE_XATTR_ACL || len != LPI_WHOLE_ACL_BYTES)
		return;
	lp_put_le32(buf, 2); /* its version */
	for (size_t i = 0; i < LP_ARRAY_SIZE(tags); i++) {
		uint8_t *entry = buf + 4 + 8 * i;
		lp_put_le16(entry, tags[i]);
		lp_put_le16(entry + 2, entry[2] & 7u);
		lp_put_le32(entry + 4, UINT32_MAX);
	}
}

int64_t lpi_whole_time(uint32_t seed)
{
	return seed % 3 == 0 ? 0 : 1 + (int64_t)(seed % 1000) * INT64_C(999999999);
}

uint32_t lpi_whole_target_len(uint32_t seed)
{
	static const uint32_t lens[] = {1, 20, 1000, LP_INODE_TARGET_MAX};
	return lens[seed % LP_ARRAY_SIZE(lens)];
}

void lpi_whole_target(uint32_t seed, void *buf)
{
	memset(buf, 'a' + (int)(seed % 26), lpi_whole_target_len(seed));
}

uint32_t lpi_whole_owner(uint32_t seed)
{
	return 1000 + seed % 7;
}
