/* SPDX-License-Identifier: Apache-2.0 */
/* A group whose frame is durable: its blocks go to their files, its records into the index, and
 * the space that its maps no longer name, but those before did, is given back. In this order, so
 * that nothing is punched that the index still names. Blocks that lie side by side are one write.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "store/filestore/filestore_impl.h"

#define STALL_RETRY_NS    (10 * LP_NS_PER_MS)
#define STALL_RETRIES_MAX 6000u /* a minute */
#define RESUME_PAUSE_NS   (200 * LP_NS_PER_MS)
#define RESUMES_MAX       5u
#define SHORT_RETRY_NS    (200 * LP_NS_PER_MS)
#define SHORT_RETRIES_MAX 300u /* a minute */

/* --- The index -------------------------------------------------------------------------------- */

static void pause_for(uint64_t pause_ns)
{
	const struct timespec pause = {.tv_nsec = (long)pause_ns};
	(void)nanosleep(&pause, NULL); /* a shorter one only asks once more */
}

/* A full memtable waits for its flush; a flush that failed, for space perhaps, is tried again. */
int lpi_fstore_write_batch(struct lp_kv *kv, struct lp_kv_batch *batch)
{
	uint32_t stalls = 0;
	uint32_t failures = 0;
	for (;;) {
		int err = lp_kv_write(kv, batch);
		int why = lp_kv_error(kv);
		if (err == 0)
			return 0;
		if (err == -EAGAIN && why == 0) {
			if (++stalls > STALL_RETRIES_MAX)
				return -ETIMEDOUT;
			pause_for(STALL_RETRY_NS);
			continue;
		}
		if ((err != -EAGAIN && err != -ENOSPC && err != -EIO) || ++failures > RESUMES_MAX)
			return why < 0 ? why : err;
		pause_for(RESUME_PAUSE_NS);
		int ignored = lp_kv_resume(kv); /* if it fails, so does the next write */
		(void)ignored;
	}
}

/* --- Blocks ----------------------------------------------------------------------------------- */

struct run {
	struct lpi_object_place first;
	uint32_t cnt;
	struct iovec iov[LPI_LEAF_BLOCKS];
};

static int write_run(struct lpi_fstore_store *store, struct run *run)
{
	if (run->cnt == 0)
		return 0;
	int err = lpi_objects_write(&store->objects, &run->first, run->iov, (int)run->cnt);
	run->cnt = 0;
	return err;
}

static bool goes_on(const struct run *run, const struct lpi_object_place *place)
{
	const struct lpi_object_place *first = &run->first;
	return run->cnt > 0 && run->cnt < LPI_LEAF_BLOCKS && first->ino.nr == place->ino.nr &&
	       first->side == place->side && first->block + run->cnt == place->block &&
	       (place->block & ((UINT64_C(1) << LPI_PART_SHIFT) - 1)) != 0;
}

static int write_payloads(struct lpi_fstore_store *store, const struct lpi_fstore_overlay *overlay)
{
	const struct lpi_fstore_rec *rec = lpi_fstore_overlay_payloads(overlay);
	struct run run = {.cnt = 0};
	int err = 0;
	for (; rec != NULL && rec->key[0] == LPI_PAYLOAD_SPACE && err == 0;
	     rec = lpi_fstore_recs_next(rec)) {
		struct lpi_object_place place;
		if (rec->value == NULL)
			continue;
		lpi_payload_place(rec, &place);
		if (!goes_on(&run, &place)) {
			err = write_run(store, &run);
			run.first = place;
		}
		run.iov[run.cnt++] =
			(struct iovec){.iov_base = rec->value, .iov_len = LP_BLOCK_BYTES};
	}
	return err < 0 ? err : write_run(store, &run);
}

/* --- Space ------------------------------------------------------------------------------------ */

/* Of one leaf: what nothing names any more. */
struct freed {
	struct lp_ino ino;
	uint64_t block;
	uint64_t places[LPI_SIDE_CNT];
};

struct freed_list {
	struct freed *items;
	uint32_t cnt;
};

static int find_freed(struct lpi_fstore_store *store, const struct lpi_fstore_rec *rec,
		      struct freed *ret_freed)
{
	const struct lpi_fstore_view before = {.layer_cnt = 0, .kv = store->kv};
	struct lp_key_view at;
	struct lpi_mapleaf old = {.data = 0};
	struct lpi_mapleaf new = {.data = 0};
	struct lp_key key = {.len = rec->key_len};
	memcpy(key.bytes, rec->key, rec->key_len);
	int err = lp_key_parse(rec->key, rec->key_len, &at);
	if (err == 0)
		err = lpi_mapleaf_get(&before, at.ino, at.number, &old);
	if (err == 0 && rec->value != NULL)
		err = lpi_mapleaf_decode(&key, (struct lp_kv_bytes){rec->value, rec->value_len},
					 &new);
	if (err < 0)
		return err;
	*ret_freed = (struct freed){.ino = at.ino, .block = at.number};
	for (uint32_t side = 0; side < LPI_SIDE_CNT; side++)
		ret_freed->places[side] =
			lpi_mapleaf_uses(&old, side) & ~lpi_mapleaf_uses(&new, side);
	return 0;
}

static int find_all_freed(struct lpi_fstore_store *store, const struct lpi_fstore_overlay *overlay,
			  struct freed_list *ret_list)
{
	const struct lpi_fstore_rec *rec = lpi_fstore_recs_first(&overlay->recs);
	uint32_t max = 0;
	int err = 0;
	for (; rec != NULL && err == 0; rec = lpi_fstore_recs_next(rec)) {
		if (rec->key[0] != LP_KEY_SPACE_MAP)
			continue;
		if (ret_list->cnt == max) {
			max = LP_MAX(2 * max, 16u);
			struct freed *items = realloc(ret_list->items, max * sizeof(*items));
			if (items == NULL)
				return -ENOMEM;
			ret_list->items = items;
		}
		struct freed *freed = &ret_list->items[ret_list->cnt];
		err = find_freed(store, rec, freed);
		if (err == 0 && (freed->places[0] | freed->places[1]) != 0)
			ret_list->cnt++;
	}
	return err;
}

/* Space that stays is lost until the object goes, nothing else: a failure is no matter. */
static void punch(struct lpi_fstore_store *store, const struct freed *freed)
{
	for (uint32_t side = 0; side < LPI_SIDE_CNT; side++) {
		uint64_t left = freed->places[side];
		while (left != 0) {
			uint32_t begin = (uint32_t)__builtin_ctzll(left);
			uint64_t rest = ~(left >> begin);
			uint32_t cnt =
				rest == 0 ? LPI_LEAF_BLOCKS : (uint32_t)__builtin_ctzll(rest);
			const struct lpi_object_place place = {freed->ino, freed->block + begin,
							       side};
			int ignored = lpi_objects_punch(&store->objects, &place, cnt);
			(void)ignored;
			if (begin + cnt >= LPI_LEAF_BLOCKS)
				break;
			left &= ~((UINT64_C(1) << (begin + cnt)) - 1);
		}
	}
}

/* --- All -------------------------------------------------------------------------------------- */

/* May be done again. */
static int apply_once(struct lpi_fstore_store *store, const struct lpi_fstore_group *group)
{
	struct freed_list list = {.items = NULL};
	int err = write_payloads(store, &group->overlay);
	if (err == 0)
		err = find_all_freed(store, &group->overlay, &list);
	if (err == 0)
		err = lpi_fstore_write_batch(store->kv, group->batch);
	for (uint32_t i = 0; i < list.cnt && err == 0; i++)
		punch(store, &list.items[i]);
	free(list.items);
	return err;
}

/* Of what others have taken, and may give back. */
static bool is_shortage(int err)
{
	return err == -ENOSPC || err == -EDQUOT || err == -EMFILE || err == -ENFILE ||
	       err == -ENOMEM;
}

int lpi_fstore_apply(struct lpi_fstore_store *store, const struct lpi_fstore_group *group)
{
	int err = apply_once(store, group);
	for (uint32_t i = 0; is_shortage(err) && i < SHORT_RETRIES_MAX; i++) {
		pause_for(SHORT_RETRY_NS);
		err = apply_once(store, group);
	}
	return err;
}

int lpi_fstore_checkpoint(struct lpi_fstore_store *store)
{
	int err = lpi_objects_sync_all(&store->objects);
	if (err < 0)
		return err;
	if (lp_kv_error(store->kv) != 0) {
		int ignored = lp_kv_resume(store->kv); /* if it fails, so does the flush */
		(void)ignored;
	}
	err = lp_kv_flush_wait(store->kv);
	return err == -EAGAIN ? -ENOSPC : err;
}
