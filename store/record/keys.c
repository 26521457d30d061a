/* SPDX-License-Identifier: Apache-2.0 */
/* A key is put together from at most three parts: space, numbers, name. The shape of each space
 * (has it an ino, a number, a name of which kind) is one table, which builders assert by and the
 * parser reads by, so that the two cannot differ. */
#include "store/record/keys.h"

#include "base/assert.h"
#include "base/cursor.h"

#define SHORT_NAME_MAX 24u

typedef bool name_check_fn(const void *name, size_t len);

struct shape {
	bool has_ino;
	bool has_number;
	name_check_fn *name_check; /* NULL: no name */
};

static bool lacks(const void *name, size_t len, char byte)
{
	return memchr(name, byte, len) == NULL;
}

/* Of a name that is short two calls would be most of it. */
static bool lacks_both(const char *name, size_t len, char one, char other)
{
	if (len > SHORT_NAME_MAX)
		return lacks(name, len, one) && lacks(name, len, other);
	for (size_t i = 0; i < len; i++) {
		if (name[i] == one || name[i] == other)
			return false;
	}
	return true;
}

bool lp_key_name_is_valid(const void *name, size_t len)
{
	if (len == 0 || len > LP_KEY_NAME_MAX)
		return false;
	bool is_dots = len <= 2 && memcmp(name, "..", len) == 0;
	return !is_dots && lacks_both(name, len, '/', '\0');
}

bool lp_key_xattr_name_is_valid(const void *name, size_t len)
{
	return len > 0 && len <= LP_KEY_NAME_MAX && lacks(name, len, '\0');
}

bool lp_key_omap_key_is_valid(const void *name, size_t len)
{
	(void)name;
	return len > 0 && len <= LP_KEY_OMAP_MAX;
}

bool lp_key_store_name_is_valid(const void *name, size_t len)
{
	return len > 0 && len <= LP_KEY_STORE_NAME_MAX && lacks(name, len, '\0');
}

/* S is not here: its name stands before its number. */
static const struct shape shapes[] = {
	[LP_KEY_SPACE_XATTR] = {true, false, lp_key_xattr_name_is_valid},
	[LP_KEY_SPACE_DIRENT] = {true, false, lp_key_name_is_valid},
	[LP_KEY_SPACE_FRAGMENT] = {true, false, NULL},
	[LP_KEY_SPACE_INODE] = {true, false, NULL},
	[LP_KEY_SPACE_DEFERRED] = {false, true, NULL},
	[LP_KEY_SPACE_OMAP] = {true, false, lp_key_omap_key_is_valid},
	[LP_KEY_SPACE_REFS] = {false, true, NULL},
	[LP_KEY_SPACE_TXN] = {false, true, NULL},
	[LP_KEY_SPACE_UNFINISHED] = {true, false, NULL},
	[LP_KEY_SPACE_MAP] = {true, true, NULL},
};

/* NULL for S and for what is no space. */
static const struct shape *find_shape(unsigned space)
{
	if (space >= LP_ARRAY_SIZE(shapes))
		return NULL;
	const struct shape *shape = &shapes[space];
	return shape->has_ino || shape->has_number ? shape : NULL;
}

static bool has_shape(enum lp_key_space space, bool has_ino, bool has_number, bool has_name)
{
	const struct shape *shape = find_shape((unsigned)space);
	return shape != NULL && shape->has_ino == has_ino && shape->has_number == has_number &&
	       (shape->name_check != NULL) == has_name;
}

static void put_space(struct lp_key *ret, enum lp_key_space space)
{
	ret->bytes[0] = (uint8_t)space;
	ret->len = 1;
}

static void put_number(struct lp_key *ret, uint64_t number)
{
	LP_ASSERT(ret->len + sizeof(number) <= sizeof(ret->bytes));
	lp_put_be64(ret->bytes + ret->len, number);
	ret->len += sizeof(number);
}

static void put_bytes(struct lp_key *ret, const void *bytes, size_t len)
{
	LP_ASSERT(len <= sizeof(ret->bytes) - ret->len);
	if (len > 0)
		memcpy(ret->bytes + ret->len, bytes, len);
	ret->len += len;
}

static void put_ino(struct lp_key *ret, enum lp_key_space space, struct lp_ino ino)
{
	LP_ASSERT(ino.nr != 0);
	put_space(ret, space);
	put_number(ret, ino.nr);
}

void lp_key_of_ino(struct lp_key *ret, enum lp_key_space space, struct lp_ino ino)
{
	LP_ASSERT(has_shape(space, true, false, false));
	put_ino(ret, space, ino);
}

void lp_key_of_number(struct lp_key *ret, enum lp_key_space space, uint64_t number)
{
	LP_ASSERT(has_shape(space, false, true, false));
	put_space(ret, space);
	put_number(ret, number);
}

void lp_key_of_map(struct lp_key *ret, struct lp_ino ino, uint64_t block)
{
	LP_ASSERT(block < LP_KEY_MAP_BLOCKS_MAX);
	put_ino(ret, LP_KEY_SPACE_MAP, ino);
	put_number(ret, block);
}

void lp_key_of_name(struct lp_key *ret, enum lp_key_space space, struct lp_ino ino,
		    const void *name, size_t len)
{
	LP_ASSERT(has_shape(space, true, false, true));
	const struct shape *shape = find_shape((unsigned)space);
	LP_ASSERT(shape != NULL && shape->name_check != NULL);
	LP_ASSERT(shape->name_check(name, len));
	put_ino(ret, space, ino);
	put_bytes(ret, name, len);
}

void lp_key_of_store(struct lp_key *ret, const char *name)
{
	size_t len = strlen(name);
	LP_ASSERT(lp_key_store_name_is_valid(name, len));
	put_space(ret, LP_KEY_SPACE_STORE);
	put_bytes(ret, name, len);
}

void lp_key_of_store_number(struct lp_key *ret, const char *name, uint64_t number)
{
	lp_key_of_store(ret, name);
	put_bytes(ret, "", 1);
	put_number(ret, number);
}

static int bad_key(const struct lp_reader *reader, unsigned space, const char *what)
{
	return LP_CORRUPT(LP_OFFSET_NONE, "key of space 0x%02x: %s at its byte %zu", space, what,
			  lp_reader_offset(reader));
}

static int parse_store(struct lp_reader *reader, struct lp_key_view *view)
{
	size_t len = lp_reader_remaining(reader);
	const uint8_t *name = lp_reader_bytes(reader, len);
	const uint8_t *nul = memchr(name, '\0', len);
	view->name = name;
	view->name_len = nul == NULL ? len : (size_t)(nul - name);
	if (!lp_key_store_name_is_valid(name, view->name_len))
		return bad_key(reader, view->space, "name");
	if (nul == NULL)
		return 0;
	if (len - view->name_len != 1 + sizeof(view->number))
		return bad_key(reader, view->space, "number");
	view->has_number = true;
	view->number = lp_get_be64(nul + 1);
	return 0;
}

bool lp_key_record_is_valid(const void *key, size_t len)
{
	const uint8_t *bytes = key;
	if (len == 0)
		return false;
	if (bytes[0] == LP_KEY_SPACE_TXN)
		return len == 1 + sizeof(uint64_t);
	if (bytes[0] == LP_KEY_SPACE_UNFINISHED)
		return len == 1 + sizeof(uint64_t) && lp_get_be64(bytes + 1) != 0;
	if (bytes[0] != LP_KEY_SPACE_STORE)
		return false;
	const uint8_t *nul = memchr(bytes + 1, '\0', len - 1);
	size_t name_len = nul == NULL ? len - 1 : (size_t)(nul - bytes) - 1;
	if (!lp_key_store_name_is_valid(bytes + 1, name_len))
		return false;
	return nul == NULL || len == 1 + name_len + 1 + sizeof(uint64_t);
}

static int parse_shape(struct lp_reader *reader, const struct shape *shape,
		       struct lp_key_view *view)
{
	if (shape->has_ino)
		view->ino.nr = lp_reader_be64(reader);
	if (shape->has_number)
		view->number = lp_reader_be64(reader);
	if (lp_reader_failed(reader))
		return bad_key(reader, view->space, "too short");
	if (shape->has_ino && view->ino.nr == 0)
		return bad_key(reader, view->space, "ino 0");
	if (view->space == LP_KEY_SPACE_MAP && view->number >= LP_KEY_MAP_BLOCKS_MAX)
		return bad_key(reader, view->space, "block");
	size_t len = lp_reader_remaining(reader);
	if (shape->name_check == NULL)
		return len == 0 ? 0 : bad_key(reader, view->space, "too long");
	view->name = lp_reader_bytes(reader, len);
	view->name_len = len;
	return shape->name_check(view->name, len) ? 0 : bad_key(reader, view->space, "name");
}

int lp_key_parse(const void *bytes, size_t len, struct lp_key_view *ret)
{
	struct lp_reader reader;
	lp_reader_init(&reader, bytes, len);
	unsigned space = lp_reader_u8(&reader);
	struct lp_key_view view = {.space = (enum lp_key_space)space};
	const struct shape *shape = find_shape(space);
	int err;
	if (space == LP_KEY_SPACE_STORE)
		err = parse_store(&reader, &view);
	else if (shape != NULL)
		err = parse_shape(&reader, shape, &view);
	else
		err = bad_key(&reader, space, "unknown space");
	if (err == 0)
		*ret = view;
	return err;
}

bool lp_key_after(const void *bytes, size_t len, struct lp_key *ret)
{
	const uint8_t *from = bytes;
	LP_ASSERT(len <= sizeof(ret->bytes));
	while (len > 0 && from[len - 1] == UINT8_MAX)
		len--;
	if (len == 0)
		return false;
	memmove(ret->bytes, from, len);
	ret->bytes[len - 1]++;
	ret->len = len;
	return true;
}

static void set_end(struct lp_key_range *range, const struct lp_key *prefix)
{
	bool has_end = lp_key_after(prefix->bytes, prefix->len, &range->end);
	LP_ASSERT(has_end); /* no space is 0xff */
}

void lp_key_range_of_space(struct lp_key_range *ret, enum lp_key_space space)
{
	LP_ASSERT(lp_key_space_name((uint64_t)space) != NULL);
	put_space(&ret->first, space);
	set_end(ret, &ret->first);
}

void lp_key_range_of_ino(struct lp_key_range *ret, enum lp_key_space space, struct lp_ino ino)
{
	LP_ASSERT(has_shape(space, true, false, true) || space == LP_KEY_SPACE_MAP);
	put_ino(&ret->first, space, ino);
	set_end(ret, &ret->first);
}

void lp_key_range_from(struct lp_key_range *ret, enum lp_key_space space, struct lp_ino ino,
		       const void *name, size_t len)
{
	LP_ASSERT(has_shape(space, true, false, true));
	lp_key_range_of_ino(ret, space, ino);
	/* No name is longer than LP_KEY_OMAP_MAX, so bytes beyond the one after do not count. */
	put_bytes(&ret->first, name, LP_MIN(len, LP_KEY_OMAP_MAX + 1));
}

void lp_key_range_after(struct lp_key_range *ret, enum lp_key_space space, struct lp_ino ino,
			const void *name, size_t len)
{
	lp_key_range_from(ret, space, ino, name, len);
	/* The least string above another is that one with a NUL. */
	if (len <= LP_KEY_OMAP_MAX)
		put_bytes(&ret->first, "", 1);
}

void lp_key_range_of_map(struct lp_key_range *ret, struct lp_ino ino, uint64_t first, uint64_t last)
{
	struct lp_key last_key;
	LP_ASSERT(first <= last);
	lp_key_of_map(&ret->first, ino, first);
	lp_key_of_map(&last_key, ino, last);
	set_end(ret, &last_key);
}

void lp_key_range_of_store(struct lp_key_range *ret, const char *name)
{
	lp_key_of_store(&ret->first, name);
	put_bytes(&ret->first, "", 1);
	set_end(ret, &ret->first);
}

int lp_key_compare(const void *a, size_t a_len, const void *b, size_t b_len)
{
	int order = memcmp(a, b, LP_MIN(a_len, b_len));
	if (order != 0)
		return order;
	return (a_len > b_len) - (a_len < b_len);
}
