/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of the index: the input is one.
 *
 * A key that is accepted is built from what it says to the same bytes, and lies in the ranges that
 * are made for its like; the key after it is above it. */
#include "store/record/keys.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/repair.h"

static bool is_in(const struct lp_key_range *range, const struct lp_key *key)
{
	return lp_key_compare(range->first.bytes, range->first.len, key->bytes, key->len) <= 0 &&
	       lp_key_compare(key->bytes, key->len, range->end.bytes, range->end.len) < 0;
}

static void check_store(const struct lp_key_view *view, struct lp_key *ret)
{
	char name[LP_KEY_STORE_NAME_MAX + 1];
	struct lp_key_range range;
	LP_ASSERT(view->name_len < sizeof(name));
	memcpy(name, view->name, view->name_len);
	name[view->name_len] = '\0';
	if (!view->has_number) {
		lp_key_of_store(ret, name);
		return;
	}
	lp_key_of_store_number(ret, name, view->number);
	lp_key_range_of_store(&range, name);
	LP_ASSERT(is_in(&range, ret));
}

static void check_named(const struct lp_key_view *view, struct lp_key *ret)
{
	struct lp_key_range range;
	lp_key_of_name(ret, view->space, view->ino, view->name, view->name_len);
	lp_key_range_of_ino(&range, view->space, view->ino);
	LP_ASSERT(is_in(&range, ret));
	lp_key_range_from(&range, view->space, view->ino, view->name, view->name_len);
	LP_ASSERT(is_in(&range, ret));
	lp_key_range_after(&range, view->space, view->ino, view->name, view->name_len);
	LP_ASSERT(!is_in(&range, ret));
}

static void check_map(const struct lp_key_view *view, struct lp_key *ret)
{
	struct lp_key_range range;
	lp_key_of_map(ret, view->ino, view->number);
	lp_key_range_of_ino(&range, view->space, view->ino);
	LP_ASSERT(is_in(&range, ret));
	lp_key_range_of_map(&range, view->ino, view->number, view->number);
	LP_ASSERT(is_in(&range, ret));
}

static void rebuild(const struct lp_key_view *view, struct lp_key *ret)
{
	switch (view->space) {
	case LP_KEY_SPACE_STORE:
		check_store(view, ret);
		break;
	case LP_KEY_SPACE_MAP:
		check_map(view, ret);
		break;
	case LP_KEY_SPACE_INODE:
	case LP_KEY_SPACE_FRAGMENT:
	case LP_KEY_SPACE_UNFINISHED:
		lp_key_of_ino(ret, view->space, view->ino);
		break;
	case LP_KEY_SPACE_DEFERRED:
	case LP_KEY_SPACE_REFS:
	case LP_KEY_SPACE_TXN:
		lp_key_of_number(ret, view->space, view->number);
		break;
	default:
		check_named(view, ret);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct lp_key_view view = {.name = NULL};
	struct lp_key_range range;
	struct lp_key key;
	struct lp_key after;
	uint8_t *exact = lpi_fuzz_copy(bytes, len);
	if (len <= sizeof(key.bytes) && lp_key_after(exact, len, &after))
		LP_ASSERT(lp_key_compare(exact, len, after.bytes, after.len) < 0);
	if (lp_key_parse(exact, len, &view) == 0) {
		rebuild(&view, &key);
		LP_ASSERT(key.len == len && memcmp(key.bytes, bytes, len) == 0);
		lp_key_range_of_space(&range, view.space);
		LP_ASSERT(is_in(&range, &key));
	}
	free(exact);
	return 0;
}
