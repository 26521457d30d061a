/* SPDX-License-Identifier: Apache-2.0 */
/* The changes of one group as the frame will have them. */
#include "store/space/space.h"

#include <errno.h>

#include "format/space.h"

void lp_space_group_init(struct lp_space_group *group, void *bytes, size_t size)
{
	LP_ASSERT(bytes != NULL || size == 0);
	*group = (struct lp_space_group){.bytes = bytes, .size = size};
}

bool lp_space_group_has_room(const struct lp_space_group *group, unsigned change_cnt)
{
	return (group->size - group->len) / LP_SPACE_CHANGE_SIZE >= change_cnt;
}

/* A change of the same kind that goes on where the last one ends makes it longer. */
static bool join_last(struct lp_space_group *group, struct lp_extent extent, uint8_t kind)
{
	if (group->len == 0)
		return false;
	uint8_t *at = group->bytes + group->len - LP_SPACE_CHANGE_SIZE;
	struct lp_space_change last;
	lp_space_change_decode(at, &last);
	if (last.kind != kind || last.block + last.cnt != extent.block ||
	    extent.cnt > UINT32_MAX - last.cnt)
		return false;
	last.cnt += (uint32_t)extent.cnt;
	lp_space_change_encode(&last, at);
	return true;
}

static int log_change(struct lp_space_group *group, struct lp_extent extent, uint8_t kind)
{
	LP_ASSERT(extent.cnt > 0 && extent.cnt <= UINT32_MAX);
	if (join_last(group, extent, kind))
		return 0;
	if (!lp_space_group_has_room(group, 1))
		return -EAGAIN;
	struct lp_space_change change = {
		.block = extent.block, .cnt = (uint32_t)extent.cnt, .kind = kind};
	lp_space_change_encode(&change, group->bytes + group->len);
	group->len += LP_SPACE_CHANGE_SIZE;
	return 0;
}

int lp_space_log_take(struct lp_space_group *group, struct lp_extent extent)
{
	return log_change(group, extent, LP_SPACE_CHANGE_KIND_TAKE);
}

int lp_space_log_free(struct lp_space_group *group, struct lp_extent extent)
{
	return log_change(group, extent, LP_SPACE_CHANGE_KIND_FREE);
}
