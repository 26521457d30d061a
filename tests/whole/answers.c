/* SPDX-License-Identifier: Apache-2.0 */
/* Whether an answer is right: where the model cannot say which it is, what it may be. */
#include <errno.h>

#include "tests/whole/model.h"

/* --- Faults ----------------------------------------------------------------------------------- */

#define FAULTS_MAX 7u

/* What may be said of each where several things are wrong at once: of what was asked for, and never
 * of the store. */
static const int faults[LPI_WHOLE_KIND_CNT][FAULTS_MAX] = {
	[LPI_WHOLE_MAKE] = {-ENOENT, -ENOTDIR, -EEXIST, -EISDIR, -ENAMETOOLONG},
	[LPI_WHOLE_LINK] = {-ENOENT, -ENOTDIR, -EEXIST, -EPERM},
	[LPI_WHOLE_REMOVE] = {-ENOENT, -ENOTDIR, -EISDIR, -ENOTEMPTY},
	[LPI_WHOLE_RENAME] = {-ENOENT, -ENOTDIR, -EISDIR, -EEXIST, -ENOTEMPTY, -EINVAL},
	[LPI_WHOLE_CLOSE] = {-ENOENT, -EINVAL},
	[LPI_WHOLE_WRITE] = {-ECANCELED, -EFBIG, -EISDIR, -EINVAL},
	[LPI_WHOLE_APPEND] = {-ECANCELED, -EFBIG, -EISDIR, -EINVAL},
	[LPI_WHOLE_TRUNCATE] = {-ECANCELED, -EFBIG, -EISDIR, -EINVAL},
	[LPI_WHOLE_PUNCH] = {-ECANCELED, -EFBIG, -EISDIR, -EINVAL},
	[LPI_WHOLE_PREALLOC] = {-ECANCELED, -EFBIG, -EISDIR, -EINVAL},
	[LPI_WHOLE_CLONE] = {-ENOENT, -ECANCELED, -EFBIG, -EISDIR, -EINVAL, -EXDEV},
	[LPI_WHOLE_XATTR_SET] = {-ECANCELED},
	[LPI_WHOLE_XATTR_REMOVE] = {-ECANCELED, -ENODATA},
	[LPI_WHOLE_OMAP_SET] = {-ECANCELED},
	[LPI_WHOLE_OMAP_REMOVE] = {-ECANCELED},
	[LPI_WHOLE_COMMIT] = {-ENOENT, -ENOTDIR, -EEXIST, -EISDIR, -ECANCELED},
	[LPI_WHOLE_DELETE] = {-EISDIR, -ENOTEMPTY, -ECANCELED},
	[LPI_WHOLE_MOVE] = {-ENOENT, -ENOTDIR, -EEXIST, -EISDIR, -ENOTEMPTY, -EINVAL, -ECANCELED},
	[LPI_WHOLE_LOOKUP] = {-ENOENT, -ENOTDIR},
	[LPI_WHOLE_SEEK] = {-EISDIR, -EINVAL, -ENXIO},
	[LPI_WHOLE_READDIR] = {-ENOENT, -ENOTDIR},
};

static bool is_named(const struct lpi_whole_op *op, int result)
{
	for (uint32_t i = 0; i < FAULTS_MAX; i++)
		if (result < 0 && faults[op->kind][i] == result)
			return true;
	return false;
}

/* --- All -------------------------------------------------------------------------------------- */

static bool is_seek_right(const struct lpi_whole_node *node, const struct lpi_whole_op *op,
			  const struct lpi_whole_answer *got)
{
	uint64_t data = lpi_whole_next_data(node, op->offset);
	bool is_behind = op->offset >= node->size_bytes;
	bool is_inside = got->cnt >= op->offset && got->cnt <= node->size_bytes;
	if (got->result == -ENXIO)
		return is_behind || (data == UINT64_MAX && (op->flags & LPI_WHOLE_HOLE) == 0);
	if (got->result != 0 || is_behind || !is_inside)
		return false;
	if ((op->flags & LPI_WHOLE_HOLE) == 0)
		return got->cnt <= data && got->cnt < node->size_bytes;
	return got->cnt == node->size_bytes || lpi_whole_next_data(node, got->cnt) != got->cnt;
}

bool lpi_whole_is_right(const struct lpi_whole *whole, const struct lpi_whole_op *op,
			const struct lpi_whole_answer *want, const struct lpi_whole_answer *got)
{
	if (want->result == LPI_WHOLE_ANYTHING || got->result == LPI_WHOLE_SKIPPED)
		return true;
	if (want->result == LPI_WHOLE_ANY_ERROR)
		return is_named(op, got->result);
	if (op->kind == LPI_WHOLE_SEEK)
		return is_seek_right(lpi_whole_find(whole, op->node), op, got);
	/* One that is being removed since it was closed may be seen still. */
	if (op->kind == LPI_WHOLE_STAT && want->result < 0 && got->result >= 0)
		return got->more == 0;
	if (want->result != got->result || want->result < 0)
		return want->result == got->result;
	bool is_ino_right = !lpi_whole_only_asks(op) || want->ino == got->ino;
	return is_ino_right && want->cnt == got->cnt && want->more == got->more &&
	       want->hash == got->hash;
}
