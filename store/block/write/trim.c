/* SPDX-License-Identifier: Apache-2.0 */
/* Large removals and truncations, cut up (rule S6). The logical change was committed together with
 * a U record. A trim frees space and keys, a bounded piece with each commit, and removes the U
 * record at the end. After a crash the U record says where to go on.
 *
 * No claim is needed: no other operation changes blocks behind the cut. A transaction that changes
 * the data of the inode waits until the trim has ended.
 *
 * A few trims run at once. One that has done STEPS_MAX steps lets a waiting one run.
 *
 * A trim that meets damage gives up. It is kept, so that no operation shows the blocks it left
 * behind; the next opening tries again. If the device only refuses a read, the trim first retries a
 * few times, and other trims run meanwhile. */
#include <stdlib.h>

#include "store/block/write/txn.h"
#include "store/extmap/table.h"

#define STEPS_PER_TURN 4u
#define SEEKS_PER_STEP 16u /* of the map, each of which looks at a bounded part */
#define RUNNING_MAX    4u
#define STEPS_MAX      32u         /* before a waiting trim may run */
#define TRIMS_MAX      256u        /* waiting trims, before removals wait as well */
#define SCAN_BYTES     (96u << 10) /* the largest record fits */
#define SCAN_RECORDS   128u
#define REFUSALS_MAX   10u /* of the device, in a row, before it counts as damage: 5 s */
#define REFUSAL_NS     (5 * LP_NS_PER_MS) /* before the first retry; then twice as long each time */

enum phase { PHASE_SPACE, PHASE_KEYS_WAIT, PHASE_XATTRS, PHASE_OMAP, PHASE_END };

LP_LIST_DEFINE(trim_list, struct lpi_trim, node);

struct lpi_trims {
	struct trim_list list; /* in the order in which they began */
	uint32_t cnt;
	uint32_t running;
	uint32_t given_up;
	uint64_t last_nr;
	uint64_t last_place;
	bool is_stopping;
};

static void run(struct lpi_trim *trim);

static struct lp_kv_bytes key_bytes(const struct lp_key *key)
{
	return (struct lp_kv_bytes){key->bytes, key->len};
}

/* --- Waiting ---------------------------------------------------------------------------------- */

static void run_task(struct lp_task *task)
{
	run(LP_CONTAINER_OF(task, struct lpi_trim, task));
}

static void told(struct lp_commit_waiter *waiter, int result)
{
	(void)result; /* the shard's error is checked instead */
	run(LP_CONTAINER_OF(waiter, struct lpi_trim, waiter));
}

static void warmed(struct lpi_warmer *warmer)
{
	run(LP_CONTAINER_OF(warmer, struct lpi_trim, warmer));
}

static void wait_room(struct lpi_trim *trim)
{
	lp_commit_wait_room(trim->block->commit, &trim->waiter);
}

static int wait_index(struct lpi_trim *trim)
{
	lpi_warmer_start(&trim->warmer);
	return LPI_WAIT;
}

/* --- Nodes ------------------------------------------------------------------------------------ */

static int pin(void *arg, struct lpi_node *node)
{
	struct lpi_trim *trim = arg;
	for (uint32_t i = 0; i < trim->node_cnt; i++) {
		if (trim->nodes[i] == node)
			return 0;
	}
	if (trim->node_cnt == LPI_TRIM_NODES_MAX)
		return -EFBIG;
	lpi_node_pin(node);
	trim->nodes[trim->node_cnt++] = node;
	return 0;
}

static void unpin_all(struct lpi_trim *trim)
{
	while (trim->node_cnt > 0)
		lpi_node_unpin(trim->nodes[--trim->node_cnt]);
}

/* --- Space ------------------------------------------------------------------------------------ */

static void begin_scan(struct lpi_trim *trim);

/* The root of a very sparse file does not name the next leaf. One scan of the index finds the
 * existing leaves, because single lookups would be millions, mostly for leaves that do not exist.
 * 0: the leaves found are in the map. */
static int look_for_leaves(struct lpi_trim *trim)
{
	struct lpi_inode *inode = trim->inode;
	if (!trim->is_looking) {
		trim->is_looking = true;
		trim->leaves = lp_extmap_missing(&inode->map);
		lp_commit_wait_inserted(trim->block->commit, &trim->waiter);
		return LPI_WAIT;
	}
	if (!trim->has_begun) {
		lp_key_range_of_map(&trim->scan_range, inode->rec.ino,
				    (uint64_t)trim->leaves.first * LP_EXTMAP_LEAF_BLOCKS,
				    (uint64_t)trim->leaves.last * LP_EXTMAP_LEAF_BLOCKS);
		begin_scan(trim);
		return LPI_WAIT;
	}
	LP_ASSERT(trim->has_scanned);
	int err = lpi_leaves_load(inode, &trim->scan, trim->leaves);
	/* Without memory it is tried again: with the leaves found, or from the scan on. */
	trim->is_looking = err == -ENOMEM;
	trim->has_begun = trim->is_looking && trim->scan.result == 0;
	return err;
}

/* Moves from_block to the next block that has space. 0, -EAGAIN, LPI_WAIT, -ENXIO: none is left,
 * -EINPROGRESS: from_block is nearer, and this is enough for one step. */
static int find_next(struct lpi_trim *trim)
{
	struct lp_extmap *map = &trim->inode->map;
	int err = trim->is_looking ? look_for_leaves(trim) : 0;
	for (uint32_t n = 0; err == 0; n++) {
		if (n == SEEKS_PER_STEP)
			return -EINPROGRESS;
		int found = lp_extmap_seek(map, trim->from_block, LP_EXTMAP_SEEK_ALLOCATED,
					   &trim->from_block);
		if (found == -EAGAIN && lpi_leaves_are_unnamed(trim->inode))
			err = look_for_leaves(trim);
		else if (found == -EAGAIN)
			err = lpi_leaves_get(&trim->warmer, trim->inode, true);
		else if (found <= 0)
			return found;
	}
	return err;
}

static struct lp_commit_need need_of(const struct lpi_trim *trim, uint32_t leaves, uint32_t changes)
{
	struct lp_commit_need need = {
		.batch_bytes = lpi_node_need(&trim->inode->node) +
			       (uint32_t)LP_EXTMAP_ROOT_BYTES_MAX + (leaves + 1) * LPI_LEAF_NEED,
		.change_cnt = changes,
	};
	for (uint32_t i = 0; i < trim->node_cnt; i++)
		need.batch_bytes += lpi_node_need(trim->nodes[i]);
	return need;
}

/* Notes only leaves that the trim has left behind. The leaf with the cut in it is not noted,
 * because its index write may be deferred when its group is inserted (rule L9). The deletion of an
 * emptied leaf is never deferred. */
static void note_emptied(struct lpi_trim *trim, struct lp_extmap_range range)
{
	uint64_t whole = (trim->cut_block + LP_EXTMAP_LEAF_BLOCKS - 1) / LP_EXTMAP_LEAF_BLOCKS;
	uint64_t first = LP_MAX(range.first / LP_EXTMAP_LEAF_BLOCKS, whole);
	uint64_t end = (range.first + range.cnt) / LP_EXTMAP_LEAF_BLOCKS;
	if (end <= first)
		return;
	uint32_t at = (trim->emptied_first + trim->emptied_cnt) % LPI_TRIM_STEPS_MAX;
	LP_ASSERT(trim->emptied_cnt < LPI_TRIM_STEPS_MAX);
	trim->emptied_cnt++;
	trim->emptied[at] =
		(struct lpi_trim_emptied){.leaves = {(uint32_t)first, (uint32_t)end - 1},
					  .group = lp_commit_group(trim->block->commit)};
}

static void forget(struct lp_extmap *map, uint32_t idx)
{
	const struct lpi_leaf *leaf = lpi_extmap_find(map, idx);
	LP_ASSERT(leaf == NULL || (leaf->words_cnt == 0 && !leaf->is_owed));
	int busy = lp_extmap_unload(map, idx);
	(void)busy; /* the one in the root stays */
}

/* An emptied leaf stays in memory until its record is deleted from the index. Otherwise it would be
 * read again (rule W1). Then it is dropped, because a large file has millions (P5). False: so many
 * are left that the trim waits for their groups. */
static bool forget_emptied(struct lpi_trim *trim)
{
	struct lp_extmap *map = &trim->inode->map;
	struct lp_commit *commit = trim->block->commit;
	bool any = false;
	while (trim->emptied_cnt > 0) {
		struct lpi_trim_emptied *oldest = &trim->emptied[trim->emptied_first];
		if (!lp_commit_group_is_inserted(commit, oldest->group))
			break;
		for (uint32_t idx = oldest->leaves.first; idx <= oldest->leaves.last; idx++)
			forget(map, idx);
		trim->emptied_first = (trim->emptied_first + 1) % LPI_TRIM_STEPS_MAX;
		trim->emptied_cnt--;
		any = true;
	}
	if (any) {
		(void)lp_extmap_shrink(map, 0); /* frees the table of them */
		lpi_node_account(&trim->inode->node);
	}
	if (trim->emptied_cnt < LPI_TRIM_STEPS_MAX)
		return true;
	lp_commit_wait_inserted(commit, &trim->waiter);
	return false;
}

static void punch(struct lpi_trim *trim, struct lp_extmap_range range)
{
	struct lpi_block *block = trim->block;
	struct lp_extmap_released released = {.items = block->scratch.releases,
					      .max = LPI_SCRATCH_BLOCKS};
	int err = lp_extmap_reserve(&trim->inode->map, range, 0);
	if (err < 0) {
		lp_commit_give_up(block->commit, err);
		return;
	}
	lp_extmap_punch(&trim->inode->map, range, &released);
	lpi_release_apply(block, &released);
	lpi_node_changed(&trim->inode->node);
	trim->from_block = range.first + range.cnt;
	note_emptied(trim, range);
}

enum step { STEP_DONE, STEP_TOO_MUCH, STEP_WAIT };

static int try_range(struct lpi_trim *trim, struct lp_extmap_range range, enum step *ret_step)
{
	struct lpi_block *block = trim->block;
	struct lpi_release_plan plan = {.warmer = &trim->warmer, .pin = pin, .arg = trim};
	uint32_t leaves = (uint32_t)(range.cnt / LP_EXTMAP_LEAF_BLOCKS) + 2;
	int err = lpi_release_prepare(&plan, trim->inode, range, true);
	*ret_step = err == -EFBIG ? STEP_TOO_MUCH : STEP_WAIT;
	if (err == -EFBIG)
		return 0;
	if (err < 0)
		return err;
	struct lp_commit_need need = need_of(trim, leaves, plan.changes);
	if (!lp_commit_need_is_possible(block->commit, &need)) {
		*ret_step = STEP_TOO_MUCH;
		return 0;
	}
	if (!lp_commit_reserve(block->commit, &need)) {
		wait_room(trim);
		return 0;
	}
	punch(trim, range);
	*ret_step = STEP_DONE;
	return 0;
}

/* 0: go on; LPI_WAIT; -ENXIO: nothing left; errors. */
static int free_some(struct lpi_trim *trim)
{
	if (!forget_emptied(trim))
		return LPI_WAIT;
	int err = find_next(trim);
	if (err == -EINPROGRESS)
		return 0;
	if (err != 0)
		return err == -EAGAIN ? wait_index(trim) : err;
	uint64_t first = trim->from_block;
	uint64_t end = (first / LP_EXTMAP_LEAF_BLOCKS + LPI_TRIM_LEAVES) * LP_EXTMAP_LEAF_BLOCKS;
	uint64_t cnt = LP_MIN(end, LP_EXTMAP_BLOCKS_MAX) - first;
	for (;;) {
		enum step step = STEP_DONE;
		err = try_range(trim, (struct lp_extmap_range){first, cnt}, &step);
		if (err == -EAGAIN)
			return wait_index(trim);
		if (err < 0)
			return err;
		unpin_all(trim);
		if (step == STEP_DONE)
			return 0;
		if (step == STEP_WAIT)
			return LPI_WAIT;
		LP_ASSERT(cnt > 1);
		cnt /= 2;
	}
}

/* --- Keys ------------------------------------------------------------------------------------- */

static void scanned(struct lp_kv_scan_op *scan);

/* Scans scan_range. */
static void begin_scan(struct lpi_trim *trim)
{
	struct lpi_block *block = trim->block;
	trim->scan = (struct lp_kv_scan_op){
		.kv = block->kv,
		.lower = key_bytes(&trim->scan_range.first),
		.upper = key_bytes(&trim->scan_range.end),
		.buf = trim->scan_buf,
		.buf_len = SCAN_BYTES,
		.records_max = SCAN_RECORDS,
		.done = scanned,
	};
	trim->has_begun = true;
	trim->has_scanned = false;
	lp_kv_scan_submit(block->options.workers, block->options.reactor, &trim->scan);
}

static void scanned(struct lp_kv_scan_op *scan)
{
	struct lpi_trim *trim = LP_CONTAINER_OF(scan, struct lpi_trim, scan);
	trim->has_scanned = true;
	run(trim);
}

/* Deletes the keys that the scan found. Scans again when that is in the index, until nothing is
 * found.
 */
static int delete_found(struct lpi_trim *trim, enum phase next)
{
	struct lp_commit *commit = trim->block->commit;
	struct lp_commit_need need = {0};
	struct lp_kv_bytes key;
	struct lp_kv_bytes value;
	size_t pos = 0;
	if (trim->scan.result < 0) {
		trim->has_begun = false; /* for a retry */
		return trim->scan.result;
	}
	if (trim->scan.records == 0) {
		trim->phase = (uint8_t)next;
		trim->has_begun = false;
		return 0;
	}
	while (lp_kv_scan_next(&trim->scan, &pos, &key, &value))
		need.batch_bytes += (uint32_t)key.len + LP_COMMIT_RECORD_BYTES;
	if (!lp_commit_reserve(commit, &need)) {
		wait_room(trim);
		return LPI_WAIT;
	}
	for (pos = 0; lp_kv_scan_next(&trim->scan, &pos, &key, &value);)
		lp_commit_delete(commit, key);
	trim->has_begun = false;
	trim->must_wait_inserted = true;
	return 0;
}

static int free_keys(struct lpi_trim *trim, enum lp_key_space space, enum phase next)
{
	if (trim->must_wait_inserted) {
		trim->must_wait_inserted = false;
		lp_commit_wait_inserted(trim->block->commit, &trim->waiter);
		return LPI_WAIT;
	}
	if (!trim->has_begun) {
		lp_key_range_of_ino(&trim->scan_range, space, trim->inode->rec.ino);
		begin_scan(trim);
		return LPI_WAIT;
	}
	LP_ASSERT(trim->has_scanned);
	return delete_found(trim, next);
}

/* --- Marks ------------------------------------------------------------------------------------ */

static void put_mark(struct lpi_block *block, const struct lpi_inode *inode,
		     enum lp_unfinished_kind kind, uint64_t from_block)
{
	const struct lp_unfinished_value value = {
		.kind = kind, .from_block = from_block, .since_ns = inode->rec.ctime_ns};
	uint8_t bytes[LP_UNFINISHED_VALUE_SIZE];
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, inode->rec.ino);
	lp_unfinished_write(&value, &key, bytes);
	lp_commit_put(block->commit, key_bytes(&key), (struct lp_kv_bytes){bytes, sizeof(bytes)});
}

/* --- The end ---------------------------------------------------------------------------------- */

static void start_next(struct lpi_block *block);

static void drop(struct lpi_trim *trim)
{
	struct lpi_block *block = trim->block;
	struct lp_commit_waiter *waiter;
	unpin_all(trim);
	trim->inode->trim = NULL;
	lp_shard_note_removal(block->shard);
	lpi_node_unpin(&trim->inode->node);
	trim_list_remove(trim);
	block->trims->cnt--;
	block->trims->running--;
	block->trims->given_up -= trim->error != 0;
	while ((waiter = lpi_waiter_list_pop_front(&trim->waiters)) != NULL)
		waiter->told(waiter, 0);
	lpi_trim_free(trim);
	start_next(block);
}

static int finish(struct lpi_trim *trim)
{
	struct lp_commit *commit = trim->block->commit;
	struct lp_commit_need need = {.batch_bytes =
					      lpi_node_need(&trim->inode->node) + LPI_TRIM_NEED};
	struct lp_key key;
	if (!lp_commit_reserve(commit, &need)) {
		wait_room(trim);
		return LPI_WAIT;
	}
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, trim->inode->rec.ino);
	if (!trim->is_removal && trim->inode->rec.nlink == 0)
		put_mark(trim->block, trim->inode, LP_UNFINISHED_KIND_ORPHAN, 0);
	else
		lp_commit_delete(commit, key_bytes(&key));
	if (trim->is_removal) {
		lpi_inode_end(trim->inode);
		lpi_node_changed(&trim->inode->node);
	}
	return 0;
}

static int step(struct lpi_trim *trim)
{
	int err = 0;
	switch ((enum phase)trim->phase) {
	case PHASE_SPACE:
		err = free_some(trim);
		if (err != -ENXIO)
			return err;
		trim->phase = trim->is_removal ? PHASE_KEYS_WAIT : PHASE_END;
		return 0;
	case PHASE_KEYS_WAIT:
		trim->must_wait_inserted = true;
		trim->phase = (trim->inode->rec.flags & LP_INODE_FLAG_HAS_KEYS) != 0 ? PHASE_XATTRS
										     : PHASE_END;
		return 0;
	case PHASE_XATTRS:
		return free_keys(trim, LP_KEY_SPACE_XATTR, PHASE_OMAP);
	case PHASE_OMAP:
		return free_keys(trim, LP_KEY_SPACE_OMAP, PHASE_END);
	case PHASE_END:
	default:
		err = finish(trim);
		return err == 0 ? -ENXIO : err;
	}
}

/* The trim cannot go on: remaining blocks stay taken. In a file that was cut, the blocks behind the
 * cut are still mapped. So its data may not be changed any more, because a longer file would show
 * them again. */
static void give_up(struct lpi_trim *trim, int err)
{
	struct lpi_waiter_list now;
	struct lp_commit_waiter *waiter;
	unpin_all(trim);
	trim->error = err;
	trim->is_running = false;
	trim->block->trims->running--;
	trim->block->trims->given_up++;
	/* There may be many, and all stay until the store is closed. */
	lpi_warmer_fini(&trim->warmer);
	free(trim->scan_buf);
	trim->scan_buf = NULL;
	start_next(trim->block);
	lpi_waiter_list_init(&now);
	lpi_waiter_list_splice_back(&now, &trim->waiters);
	while ((waiter = lpi_waiter_list_pop_front(&now)) != NULL)
		waiter->told(waiter, 0);
}

static void try_again(struct lp_timer *timer)
{
	start_next(LP_CONTAINER_OF(timer, struct lpi_trim, timer)->block);
}

/* The device refused a read. */
static void try_later(struct lpi_trim *trim)
{
	struct lpi_block *block = trim->block;
	uint64_t now_ns = lp_reactor_now_ns(block->options.reactor);
	unpin_all(trim);
	lpi_warmer_fini(&trim->warmer); /* its value is the error */
	lp_timer_start(block->options.reactor, &trim->timer,
		       now_ns + (REFUSAL_NS << trim->refusals++));
	trim->is_running = false;
	block->trims->running--;
	start_next(block);
}

static struct lpi_trim *next_waiting(const struct lpi_trims *trims);

/* Others wait, and four huge trims would take minutes. The trim first drops the leaves that it has
 * emptied. Otherwise each waiting trim would keep as much memory as a running one (P5). */
static bool gives_way(struct lpi_trim *trim)
{
	struct lpi_trims *trims = trim->block->trims;
	if (trim->steps < STEPS_MAX || trim->has_begun || trims->is_stopping ||
	    next_waiting(trims) == NULL)
		return false;
	if (!forget_emptied(trim))
		return true;
	if (trim->emptied_cnt > 0) {
		lp_commit_wait_inserted(trim->block->commit, &trim->waiter);
		return true;
	}
	unpin_all(trim);
	lpi_warmer_fini(&trim->warmer); /* values that were read may change meanwhile */
	trim->place = ++trims->last_place;
	trim->is_running = false;
	trims->running--;
	start_next(trim->block);
	return true;
}

static void run(struct lpi_trim *trim)
{
	struct lpi_block *block = trim->block;
	if (lp_shard_error(block->shard) == 0 && gives_way(trim))
		return;
	for (uint32_t i = 0; i < STEPS_PER_TURN; i++) {
		if (lp_shard_error(block->shard) != 0 || block->trims->is_stopping) {
			drop(trim); /* the next opening finds the U record */
			return;
		}
		int err = step(trim);
		if (err == LPI_WAIT)
			return;
		if (err == -ENXIO) { /* all is freed */
			drop(trim);
			return;
		}
		if (err == -ENOMEM) {
			unpin_all(trim);
			lpi_block_wait_memory(block, &trim->waiter);
			return;
		}
		if (err == -EIO && trim->refusals < REFUSALS_MAX) {
			try_later(trim);
			return;
		}
		if (err < 0) {
			give_up(trim, err);
			return;
		}
		trim->refusals = 0;
		trim->steps++;
	}
	lp_task_queue(block->options.reactor, &trim->task);
}

/* --- The beginning ---------------------------------------------------------------------------- */

/* The trim was given up, or is to be tried again later. At closing such trims are run all the same.
 */
static bool is_left_alone(const struct lpi_trim *trim)
{
	return trim->error != 0 || lp_timer_is_armed(&trim->timer);
}

/* The trim that runs next: one that paused is behind those that waited then. */
static struct lpi_trim *next_waiting(const struct lpi_trims *trims)
{
	struct lpi_trim *next = NULL;
	struct lpi_trim *trim = NULL;
	LP_LIST_FOREACH (trim_list, &trims->list, trim) {
		if (trim->is_running || (is_left_alone(trim) && !trims->is_stopping))
			continue;
		if (next == NULL || trim->place < next->place)
			next = trim;
		if (trims->is_stopping)
			break; /* any of them will do */
	}
	return next;
}

static void start_next(struct lpi_block *block)
{
	struct lpi_trims *trims = block->trims;
	while (trims->running < RUNNING_MAX || trims->is_stopping) {
		struct lpi_trim *trim = next_waiting(trims);
		if (trim == NULL)
			return;
		lp_timer_stop(block->options.reactor, &trim->timer);
		trim->is_running = true;
		trim->steps = 0;
		trims->running++;
		lp_task_queue(block->options.reactor, &trim->task);
	}
}

int lpi_trim_new(struct lpi_block *block, struct lpi_trim **ret_trim)
{
	struct lpi_trim *trim = calloc(1, sizeof(*trim));
	uint8_t *scan_buf = malloc(SCAN_BYTES);
	if (trim == NULL || scan_buf == NULL) {
		free(trim);
		free(scan_buf);
		return -ENOMEM;
	}
	trim->block = block;
	trim->scan_buf = scan_buf;
	trim->waiter.told = told;
	trim->task.run = run_task;
	trim->timer.fire = try_again;
	lpi_waiter_list_init(&trim->waiters);
	lpi_warmer_init(&trim->warmer, block, warmed);
	*ret_trim = trim;
	return 0;
}

void lpi_trim_free(struct lpi_trim *trim)
{
	lpi_warmer_fini(&trim->warmer);
	free(trim->scan_buf);
	free(trim);
}

void lpi_trim_resume(struct lpi_trim *trim, struct lpi_inode *inode, uint64_t from_block,
		     bool is_removal)
{
	struct lpi_block *block = trim->block;
	LP_ASSERT(inode != NULL && inode->trim == NULL);
	trim->inode = inode;
	trim->cut_block = from_block;
	trim->from_block = from_block;
	trim->is_removal = is_removal;
	inode->trim = trim;
	lpi_node_pin(&inode->node);
	trim->nr = ++block->trims->last_nr;
	trim->place = ++block->trims->last_place;
	trim_list_push_back(&block->trims->list, trim);
	block->trims->cnt++;
	start_next(block);
}

static void set_removed(struct lpi_inode *inode)
{
	inode->rec.flags |= LP_INODE_FLAG_REMOVED;
	inode->rec.nlink = 0;
}

/* The next opening frees as much of the whole inode as it can. */
void lpi_trim_remove(struct lpi_trim *trim)
{
	LP_ASSERT(trim->error != 0);
	set_removed(trim->inode);
	trim->is_removal = true;
	put_mark(trim->block, trim->inode, LP_UNFINISHED_KIND_REMOVAL, 0);
}

void lpi_trim_begin(struct lpi_trim *trim, struct lpi_inode *inode, uint64_t from_block,
		    bool is_removal)
{
	if (is_removal)
		set_removed(inode);
	put_mark(trim->block, inode,
		 is_removal ? LP_UNFINISHED_KIND_REMOVAL : LP_UNFINISHED_KIND_TRIM, from_block);
	lpi_trim_resume(trim, inode, from_block, is_removal);
}

void lpi_trim_wait(struct lpi_trim *trim, struct lp_commit_waiter *waiter)
{
	lpi_waiter_list_push_back(&trim->waiters, waiter);
}

/* --- Opening and closing ---------------------------------------------------------------------- */

static int load_inode(struct lpi_block *block, struct lp_ino ino, struct lpi_inode **ret_inode)
{
	struct lp_kv_value value;
	struct lpi_node *node = NULL;
	struct lp_key key;
	lpi_node_key(LPI_NODE_INODE, ino.nr, &key);
	int err = lp_kv_get(block->kv, key_bytes(&key), &value); /* opening may block */
	if (err == -ENOENT)
		return LP_CORRUPT(LP_OFFSET_NONE, "unfinished work on inode %llu, which is missing",
				  (unsigned long long)ino.nr);
	if (err < 0)
		return err;
	err = lpi_node_load(&block->nodes, LPI_NODE_INODE, ino.nr, value.bytes, &node);
	lp_kv_value_release(&value);
	if (err == 0)
		*ret_inode = lpi_inode_of(node);
	return err;
}

/* An unreadable mark was about one of two things, which follow from the inode: a removal under way,
 * or blocks left behind its end. Freeing these is right in any case. At worst it frees blocks that
 * were preallocated there. */
static void guess(const struct lpi_inode *inode, struct lp_unfinished_value *ret)
{
	bool is_removal = (inode->rec.flags & LP_INODE_FLAG_REMOVED) != 0;
	*ret = (struct lp_unfinished_value){
		.kind = is_removal ? LP_UNFINISHED_KIND_REMOVAL : LP_UNFINISHED_KIND_TRIM,
		.from_block = is_removal ? 0 : lp_bytes_to_blocks_up(inode->rec.size_bytes)};
}

static int resume(struct lpi_block *block, struct lpi_inode *inode,
		  const struct lp_unfinished_value *value)
{
	struct lpi_trim *trim = NULL;
	int err = lpi_trim_new(block, &trim);
	if (err == 0)
		lpi_trim_resume(trim, inode, value->from_block,
				value->kind == LP_UNFINISHED_KIND_REMOVAL);
	return err;
}

/* A mark that cannot be read, or whose inode cannot, is recorded and counted, and the store opens.
 * A check reports it. */
static int resume_one(struct lpi_block *block, struct lp_kv_iter *iter)
{
	struct lp_kv_bytes bytes = lp_kv_iter_key(iter);
	struct lp_kv_bytes value_bytes = lp_kv_iter_value(iter);
	struct lp_unfinished_value value;
	struct lpi_inode *inode = NULL;
	struct lp_key_view view;
	struct lp_key key;
	if (lp_key_parse(bytes.data, bytes.len, &view) < 0) {
		block->stats.bad_marks++;
		return 0;
	}
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, view.ino);
	bool is_bad = lp_unfinished_read(value_bytes.data, value_bytes.len, &key, &value) < 0;
	if (!is_bad && value.kind != LP_UNFINISHED_KIND_TRIM &&
	    value.kind != LP_UNFINISHED_KIND_REMOVAL)
		return 0; /* it belongs to the namespace */
	int err = load_inode(block, view.ino, &inode);
	bool leads_nowhere = err == -EBADMSG || err == -EUCLEAN;
	block->stats.bad_marks += is_bad || leads_nowhere;
	if (err < 0)
		return leads_nowhere ? 0 : err;
	LP_ASSERT(inode != NULL);
	if (is_bad)
		guess(inode, &value);
	return resume(block, inode, &value);
}

int lpi_trims_open(struct lpi_block *block)
{
	struct lp_key_range range;
	struct lp_kv_iter *iter = NULL;
	lp_key_range_of_space(&range, LP_KEY_SPACE_UNFINISHED);
	int err = lp_kv_iter_open(block->kv, key_bytes(&range.first), key_bytes(&range.end), false,
				  &iter);
	if (err < 0)
		return err;
	err = lp_kv_iter_seek_first(iter);
	while (err == 0) {
		err = resume_one(block, iter);
		if (err == 0)
			err = lp_kv_iter_next(iter);
	}
	lp_kv_iter_close(iter);
	return err == -ENOENT ? 0 : err;
}

void lpi_trims_stop(struct lpi_block *block)
{
	if (block->trims == NULL)
		return;
	/* Trims that have not begun run once, and see that the store is closing. */
	block->trims->is_stopping = true;
	start_next(block);
}

bool lpi_trims_are_idle(const struct lpi_block *block)
{
	return block->trims == NULL || trim_list_is_empty(&block->trims->list);
}

bool lpi_trims_are_freeing(const struct lpi_block *block)
{
	return block->trims != NULL && block->trims->cnt > block->trims->given_up;
}

uint64_t lpi_trims_last_nr(const struct lpi_block *block)
{
	return block->trims == NULL ? 0 : block->trims->last_nr;
}

bool lpi_trims_are_freeing_upto(const struct lpi_block *block, uint64_t nr)
{
	if (!lpi_trims_are_freeing(block))
		return false;
	const struct lpi_trim *trim = trim_list_first(&block->trims->list);
	while (trim != NULL && trim->error != 0)
		trim = trim_list_next(&block->trims->list, trim);
	return trim != NULL && trim->nr <= nr;
}

bool lpi_trims_are_many(const struct lpi_block *block)
{
	/* Trims that were given up do not end: waiting for them would last for ever. */
	return block->trims->cnt - block->trims->given_up >= TRIMS_MAX;
}

int lpi_trims_new(struct lpi_block *block)
{
	block->trims = calloc(1, sizeof(*block->trims));
	if (block->trims == NULL)
		return -ENOMEM;
	trim_list_init(&block->trims->list);
	return 0;
}

void lpi_trims_free(struct lpi_block *block)
{
	LP_ASSERT(block->trims == NULL || lpi_trims_are_idle(block));
	free(block->trims);
	block->trims = NULL;
}
