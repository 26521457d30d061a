/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of the index: built, parsed, and bounds for iterators (docs/format/keys.md).
 *
 * Threads: any.
 * Blocking: none.
 * Memory: none is allocated. A view points into the bytes that were parsed.
 * Errors: builders assert that their parts are valid, so names from outside go through
 * lp_key_name_is_valid() and its like first. Parsing takes any bytes and refuses what no builder
 * makes.
 */
#ifndef LP_STORE_RECORD_KEYS_H
#define LP_STORE_RECORD_KEYS_H

#include "base/error.h"
#include "format/keys.h"
#include "store/record/types.h"

#define LP_KEY_NAME_MAX       255  /* bytes of an entry's or an xattr's name */
#define LP_KEY_OMAP_MAX       1024 /* bytes of an omap's key */
#define LP_KEY_STORE_NAME_MAX 64   /* bytes of a store-wide name */
#define LP_KEY_BYTES_MAX      (1 + 8 + LP_KEY_OMAP_MAX)
#define LP_KEY_MAP_BLOCKS_MAX (UINT64_C(1) << 32) /* X: logical blocks are below */

/* A key under construction or as a bound, which may be a byte longer than any key. Only len bytes
 * are set. */
struct lp_key {
	size_t len;
	uint8_t bytes[LP_KEY_BYTES_MAX + 1];
};

/* Keys k with first <= k < end. */
struct lp_key_range {
	struct lp_key first;
	struct lp_key end;
};

/* What a key says. Fields that its space does not have are 0 or NULL. */
struct lp_key_view {
	enum lp_key_space space;
	struct lp_ino ino;
	uint64_t number; /* X: logical block; L, R, T, and S with has_number */
	bool has_number; /* S only: the second form */
	const uint8_t *name;
	size_t name_len;
};

/* 1 to 255 bytes, no '/' and no NUL, neither "." nor ".." (rule N6). */
bool lp_key_name_is_valid(const void *name, size_t len);
/* 1 to 255 bytes, no NUL. */
bool lp_key_xattr_name_is_valid(const void *name, size_t len);
/* 1 to 1024 bytes. */
bool lp_key_omap_key_is_valid(const void *name, size_t len);
/* 1 to 64 bytes, no NUL. */
bool lp_key_store_name_is_valid(const void *name, size_t len);
/* A whole key of the spaces S, T or U, such as a request may name: what lp_key_parse() takes,
 * without a word about corruption. */
bool lp_key_record_is_valid(const void *key, size_t len);

/* I, F, U. */
void lp_key_of_ino(struct lp_key *ret, enum lp_key_space space, struct lp_ino ino);
/* L, R, T. */
void lp_key_of_number(struct lp_key *ret, enum lp_key_space space, uint64_t number);
/* X. */
void lp_key_of_map(struct lp_key *ret, struct lp_ino ino, uint64_t block);
/* D, A, O. */
void lp_key_of_name(struct lp_key *ret, enum lp_key_space space, struct lp_ino ino,
		    const void *name, size_t len);
/* S: name is a string; with a number, keys of one name are ordered by it. */
void lp_key_of_store(struct lp_key *ret, const char *name);
void lp_key_of_store_number(struct lp_key *ret, const char *name, uint64_t number);

/* -EUCLEAN, by lp_corrupt(), for whatever no builder makes. */
int lp_key_parse(const void *bytes, size_t len, struct lp_key_view *ret) LP_MUST_CHECK;

/* The first key above all that begin with these bytes. False when there is none: all are 0xff,
 * which no key of ours begins with. */
bool lp_key_after(const void *bytes, size_t len, struct lp_key *ret) LP_MUST_CHECK;

/* All keys of a space. */
void lp_key_range_of_space(struct lp_key_range *ret, enum lp_key_space space);
/* All X, D, A or O of one inode. */
void lp_key_range_of_ino(struct lp_key_range *ret, enum lp_key_space space, struct lp_ino ino);
/* D, A, O: those from a name on, or after it. The name need not be valid, for a listing may start
 * anywhere: any bytes, of any number. */
void lp_key_range_from(struct lp_key_range *ret, enum lp_key_space space, struct lp_ino ino,
		       const void *name, size_t len);
void lp_key_range_after(struct lp_key_range *ret, enum lp_key_space space, struct lp_ino ino,
			const void *name, size_t len);
/* X: pieces that begin at block first up to last, both included. */
void lp_key_range_of_map(struct lp_key_range *ret, struct lp_ino ino, uint64_t first,
			 uint64_t last);
/* S with a number: all of one name. */
void lp_key_range_of_store(struct lp_key_range *ret, const char *name);

/* memcmp order, shorter first: the order of the index. */
int lp_key_compare(const void *a, size_t a_len, const void *b, size_t b_len);

#endif
