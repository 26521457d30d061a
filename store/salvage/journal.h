/* SPDX-License-Identifier: Apache-2.0 */
/* Files of an index whose journal may be damaged: for `lapis salvage` and `lapis fsck`.
 *
 * Threads: one.
 * Blocking: all of it. Nothing is written.
 * Memory: both halves of the journal while it opens, then the descriptions of the files. 1 GiB at
 * most of a file that is read.
 * Errors: -ENOMEM. A journal of which nothing can be read has no files.
 *
 * Where lp_blockfs_open() refuses, this takes what the journal still says. It passes over frames
 * that are damaged. The half of the journal that is not active still has the records from before
 * the snapshot, and fills its gaps. One bit that flipped in a frame, or in a block of a file, is
 * found by the checksum, and right again in the bytes that are given out. The caller is told, and
 * may write it back. Other damage in files is given out as the device has it: the library's own
 * checksums tell.
 *
 * Where the journal is not whole, a file may be one that is gone, and its blocks another one's by
 * now. A bit that seems to have flipped in such a block must not be written back.
 */
#ifndef LP_STORE_SALVAGE_JOURNAL_H
#define LP_STORE_SALVAGE_JOURNAL_H

#include "store/blockfs/blockfs.h"
#include "store/salvage/flipped_bit.h"

struct lp_blockfs_salvage;

struct lp_blockfs_salvage_report {
	uint32_t file_cnt;
	uint32_t frame_cnt;      /* that were used */
	uint32_t lost_frame_cnt; /* that are missing between them, at least */
	bool has_super;          /* one of the superblocks could be read */
	bool is_whole;           /* nothing of the journal is known to be missing */
};

/* Uses the devices, area, store_uuid and shard_idx of the options; chunks may be NULL. The mender,
 * which may be NULL, is told until the files are closed. */
int lp_blockfs_salvage_open(const struct lp_blockfs_options *options, struct lp_mender *mender,
			    struct lp_blockfs_salvage **ret_files,
			    struct lp_blockfs_salvage_report *ret_report) LP_MUST_CHECK;
/* Accepts NULL. */
void lp_blockfs_salvage_close(struct lp_blockfs_salvage *files);

/* idx < file_cnt. */
const char *lp_blockfs_salvage_name(const struct lp_blockfs_salvage *files, uint32_t idx);
/* All bytes, in memory that the caller frees; zeros for what the device cannot read. *ret_bad: how
 * many blocks are not what their checksum says. Of what is longer than any file of an index, or
 * than the devices together with what was read before, nothing is read: NULL, and all is bad. */
int lp_blockfs_salvage_read(struct lp_blockfs_salvage *files, uint32_t idx, uint8_t **ret_bytes,
			    size_t *ret_len, uint64_t *ret_bad) LP_MUST_CHECK;

#endif
