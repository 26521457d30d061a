/* SPDX-License-Identifier: Apache-2.0 */
/* Chunk table of a device: which shard owns which large piece, and for what (rule S5).
 *
 * Threads: any, but not shard threads: one mutex per table is held during its writes. Some calls
 * say that they take no lock.
 * Blocking: lease, return, give, grow, open.
 * Memory: the table, and the splits.
 * Errors: -ENOSPC. -EIO for good after a failed write, because the device then holds the old
 * table or the new one (reopen to know). -EBADMSG, -EUCLEAN at open when both slots are damaged.
 * -EROFS.
 *
 * A chunk is free, or leased by one shard for one use. A lease is durable before
 * lp_chunks_lease() returns, and a return before lp_chunks_return() does. Before a return the
 * owner must have made durable that nothing it records lies in the chunk (rule S1). A chunk that
 * a shard leased and did not use before the power failed is still its own, and empty.
 *
 * A chunk that is not empty cannot be returned. Its free blocks can be given to another shard all
 * the same, one by one (lp_chunks_give()). From then on the chunk is split, and each of its
 * blocks has an owner of its own. A gift is durable before its receiver learns of it. The giver
 * must have made durable before that nothing it records lies in these blocks.
 *
 * Some free chunks are kept for files: leases for objects get -ENOSPC when fewer would remain, so
 * that RocksDB can still flush and compact on a full device (rule L8).
 */
#ifndef LP_STORE_VOLUME_CHUNKS_H
#define LP_STORE_VOLUME_CHUNKS_H

#include "base/struct/bitmap.h"
#include "format/disk.h"
#include "store/device/bdev.h"
#include "store/record/types.h"

#define LP_CHUNK_NONE UINT32_MAX

struct lp_chunks_options {
	const struct lp_disk_label *label; /* read during open only */
	uint32_t files_reserve_cnt;        /* chunks that leases for objects leave free */
	bool read_only;
};

struct lp_chunks_stats {
	uint32_t total_cnt;
	uint32_t cnt[LP_CHUNK_USE_META + 1]; /* by use */
	uint64_t lease_cnt;                  /* since open */
	uint64_t return_cnt;
	uint64_t give_cnt;
	uint64_t write_cnt; /* device writes */
	uint32_t split_cnt; /* parts of chunks that another shard has */
	bool failed;
};

struct lp_chunks;

/* An empty table in both slots, written through. */
int lp_chunks_format(struct lp_bdev *bdev, const struct lp_disk_label *label) LP_MUST_CHECK;

/* bdev must outlive the table. A damaged slot is repaired, and chunks that the label has and the
 * table does not yet know are added, unless read_only. */
int lp_chunks_open(struct lp_bdev *bdev, const struct lp_chunks_options *options,
		   struct lp_chunks **ret_chunks) LP_MUST_CHECK;
/* Accepts NULL. Nothing is left to be written. */
void lp_chunks_close(struct lp_chunks *chunks);

/* The first free chunk from hint_idx on, going round; any hint will do. use is not FREE. */
int lp_chunks_lease(struct lp_chunks *chunks, uint32_t shard_idx, enum lp_chunk_use use,
		    uint32_t hint_idx, uint32_t *ret_chunk_idx) LP_MUST_CHECK;
/* The chunk must be leased by that shard for that use (asserted). */
int lp_chunks_return(struct lp_chunks *chunks, uint32_t shard_idx, enum lp_chunk_use use,
		     uint32_t chunk_idx) LP_MUST_CHECK;
/* After lp_label_grow(): takes up the label's new chunks. */
int lp_chunks_grow(struct lp_chunks *chunks, const struct lp_disk_label *label) LP_MUST_CHECK;
void lp_chunks_set_files_reserve(struct lp_chunks *chunks, uint32_t files_reserve_cnt);

/* Who finds no free chunk asks the other shards for what they do not need: lp_chunks_ask() calls
 * asked() of each, on the asking thread, which must be short and must not call back; each answers
 * by lp_chunks_answer() when it has returned what it could, which may be nothing. Returns whether
 * an answer is to come. No asked() is under way once lp_chunks_listen() returns; asked NULL: no
 * more, which is an answer as well. Who listens may be given single blocks; those that it has not
 * taken up when it ends are its own at its next opening. */
void lp_chunks_listen(struct lp_chunks *chunks, uint32_t shard_idx, void (*asked)(void *arg),
		      void *arg);
bool lp_chunks_ask(struct lp_chunks *chunks, uint32_t shard_idx);
/* Who has asked this shard since it was called last, a bit for each. Takes no lock. */
uint64_t lp_chunks_askers(struct lp_chunks *chunks, uint32_t shard_idx);
/* A shard's thread, too: takes no lock. False: somebody else has asked since it was asked, or since
 * it called lp_chunks_askers(), who may know of space that was freed after it had looked. That is
 * no answer: it looks once more. */
bool lp_chunks_answer(struct lp_chunks *chunks, uint32_t shard_idx) LP_MUST_CHECK;
/* Somebody else has not answered yet. Takes no lock. */
bool lp_chunks_is_asking(const struct lp_chunks *chunks, uint32_t shard_idx);
/* Before lp_chunks_answer(): that nothing was returned or given does not mean that there is
 * nothing. A shard's thread, too: takes no lock. */
void lp_chunks_evade(struct lp_chunks *chunks, uint32_t shard_idx);
/* How often all others have done that, or have stopped to listen. Takes no lock. */
uint64_t lp_chunks_evasions(const struct lp_chunks *chunks, uint32_t shard_idx);
/* Whenever space may have changed hands this number has changed: chunks were leased or returned,
 * blocks were given, the device grew, a shard began or ceased to listen. Takes no lock. */
uint64_t lp_chunks_moves(const struct lp_chunks *chunks);

/* --- Single blocks ---
 *
 * Blocks of one chunk, with words of the caller, as many bits as a chunk has blocks. */
struct lp_chunk_blocks {
	uint32_t chunk_idx;
	uint32_t shard_idx; /* who gets them, or has them */
	uint32_t home_idx;  /* who leased the chunk; in what is returned only */
	bool has_gone;      /* lp_chunks_give() says so: they may be the receiver's */
	struct lp_bitmap blocks;
};
#define LP_CHUNKS_HOME UINT32_MAX /* as shard_idx: whoever leased the chunk */

/* The blocks, all from_idx's own (asserted) and of chunks for objects, are others' from now on.
 * Each receiver is told as if it had been asked. Who does not listen gets nothing. If the table has
 * no room for the whole list, the first ones of it are given, as many as it has room for.
 *
 * has_gone is set of each item that the giver does not have any more. That is so after an error as
 * well: if the write failed, only the next opening knows whose they are. What has not gone is the
 * giver's as before.
 *
 * 0: something was given. -ENOSPC: the table has no room for any of it. -EBUSY: nobody listens. */
int lp_chunks_give(struct lp_chunks *chunks, uint32_t from_idx, struct lp_chunk_blocks *list,
		   uint32_t cnt) LP_MUST_CHECK;
/* The next gift that the shard has not taken up, the oldest first. False: there is none. The words
 * are the caller's then, to free(). */
bool lp_chunks_take_gift(struct lp_chunks *chunks, uint32_t shard_idx,
			 struct lp_chunk_blocks *ret_gift);
/* How many blocks are given and not taken up. Any thread: takes no lock. */
uint64_t lp_chunks_gift_blocks(const struct lp_chunks *chunks, uint32_t shard_idx);
/* Of the last list that was given, some or all was refused for want of room in the table. Any
 * thread: takes no lock. */
bool lp_chunks_is_split_up(const struct lp_chunks *chunks);
/* The first chunk from from_idx on of which the shard has blocks for objects, and in
 * ret_found->blocks, which are zeroed, which these are. False: there is none. For a shard that does
 * not listen yet. */
bool lp_chunks_find_blocks(struct lp_chunks *chunks, uint32_t shard_idx, uint32_t from_idx,
			   struct lp_chunk_blocks *ret_found);

/* The first chunk from from_idx on that the shard leased for the use, or LP_CHUNK_NONE. */
uint32_t lp_chunks_find(struct lp_chunks *chunks, uint32_t shard_idx, enum lp_chunk_use use,
			uint32_t from_idx);
/* Who owns a chunk. Returns its use; the shard only if that is not FREE. */
enum lp_chunk_use lp_chunks_owner(struct lp_chunks *chunks, uint32_t chunk_idx,
				  uint32_t *ret_shard_idx);

/* Geometry: does not change but by grow, needs no lock. */
uint32_t lp_chunks_chunk_blocks(const struct lp_chunks *chunks);
struct lp_extent lp_chunks_extent(const struct lp_chunks *chunks, uint32_t chunk_idx);
/* The chunk that holds a block, or LP_CHUNK_NONE. */
uint32_t lp_chunks_of_block(struct lp_chunks *chunks, uint64_t block);

void lp_chunks_stats(struct lp_chunks *chunks, struct lp_chunks_stats *ret_stats);
/* Free chunks, as of the last change. Any thread, a shard's too: takes no lock. */
uint32_t lp_chunks_free_cnt(const struct lp_chunks *chunks);
/* Those of them that leases for objects may have. The same. */
uint32_t lp_chunks_for_objects_cnt(const struct lp_chunks *chunks);

/* Of the device: what the file system that holds an image could not give. The same. */
uint64_t lp_chunks_host_lack_blocks(const struct lp_chunks *chunks);

/* A slot's header from bytes that may be anything: len bytes of slot slot_idx of that device.
 * On success its entries are sound too and follow the header in `bytes`. */
int lp_chunks_decode(const void *bytes, size_t len, uint32_t slot_idx, const uint8_t *device_uuid,
		     struct lp_disk_chunks *ret_header) LP_MUST_CHECK;

#endif
