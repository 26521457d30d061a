/* SPDX-License-Identifier: Apache-2.0 */
#include "store/salvage/record_check.h"

#include <string.h>

#include "store/extmap/leaf.h"
#include "store/record/inode.h"
#include "store/record/ref_counts.h"
#include "store/record/values.h"

static bool leaf_is_right(const struct lp_key_view *view, struct lp_kv_bytes value)
{
	uint32_t words = 0;
	uint32_t crcs_end = 0;
	return view->number % LPI_LEAF_BLOCKS == 0 &&
	       lpi_leaf_check(value.data, value.len, view->ino,
			      (uint32_t)(view->number >> LPI_LEAF_SHIFT), &words, &crcs_end) == 0;
}

static bool value_is_right(const struct lp_key *key, const struct lp_key_view *view,
			   struct lp_kv_bytes value)
{
	struct lp_inode inode;
	struct lp_refs refs;
	union {
		struct lp_dirent_value dirent;
		struct lp_fragment_value fragment;
		struct lp_unfinished_value unfinished;
		struct lp_deferred_value deferred;
	} small;
	switch (view->space) {
	case LP_KEY_SPACE_INODE:
		return lp_inode_decode(value.data, value.len, view->ino, &inode) == 0;
	case LP_KEY_SPACE_DIRENT:
		return lp_dirent_read(value.data, value.len, key, &small.dirent) == 0;
	case LP_KEY_SPACE_FRAGMENT:
		return lp_fragment_read(value.data, value.len, key, &small.fragment) == 0;
	case LP_KEY_SPACE_UNFINISHED:
		return lp_unfinished_read(value.data, value.len, key, &small.unfinished) == 0;
	case LP_KEY_SPACE_DEFERRED:
		return lp_deferred_read(value.data, value.len, key, &small.deferred) == 0;
	case LP_KEY_SPACE_MAP:
		return leaf_is_right(view, value);
	case LP_KEY_SPACE_REFS:
		return lp_refs_decode(value.data, value.len, key, &refs) == 0;
	case LP_KEY_SPACE_XATTR:
	case LP_KEY_SPACE_OMAP:
	case LP_KEY_SPACE_STORE:
	case LP_KEY_SPACE_TXN:
		break;
	}
	return true;
}

bool lpi_record_is_right(struct lp_kv_bytes key, struct lp_kv_bytes value)
{
	struct lp_key_view view;
	struct lp_key copy;
	if (key.len > sizeof(copy.bytes) || value.len > LPI_RECORD_VALUE_MAX ||
	    lp_key_parse(key.data, key.len, &view) < 0)
		return false;
	copy.len = key.len;
	memcpy(copy.bytes, key.data, key.len);
	return value_is_right(&copy, &view, value);
}
