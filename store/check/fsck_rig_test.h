/* SPDX-License-Identifier: Apache-2.0 */
/* Test rig: a small store in memory, built record by record, and the checker run on it.
 *
 * Only *_test.c files include this. Commits put the records.
 *
 *   inode 1   /        directory, shard 0
 *   inode 2   /d       directory
 *   inode 3   /d/a     4 blocks in one extent, and a large attribute
 *   inode 4   /d/b     pieces of a map: blocks 0 to 9, 64 to 73, 640 to 649, of which the last are
 *                      unwritten and beyond the size
 *   inode 5   /d/c     a clone of blocks 0 to 2 of b
 *   inode 6   deleted, still open: a mark, one block
 *   inode 7   /d/l     and /m: two names
 *   inode 8   /s       directory on the last shard, empty, with an omap
 */
#ifndef LP_STORE_CHECK_FSCK_RIG_TEST_H
#define LP_STORE_CHECK_FSCK_RIG_TEST_H

#include "store/check/machine_test.h"

struct lpi_fsck_want {
	enum lp_fsck_kind kind;
	uint64_t ino;
	bool is_mendable;
};

/* --- The store of the picture ----------------------------------------------------------------- */

static inline void lpi_rig_fill_files(struct lpi_fsck_rig *rig)
{
	struct lp_inode inode = lpi_rig_inode(3, LP_INODE_TYPE_FILE, 2, "a", 1);
	struct lp_extmap map;
	rig->a = lpi_rig_take(rig, 4);
	rig->b = lpi_rig_take(rig, 30);
	rig->orphan = lpi_rig_take(rig, 1);
	inode.size_bytes = 4 * LP_BLOCK_BYTES - 5;
	lp_extmap_init(&map, inode.ino, NULL);
	lpi_rig_map(&map, 0, rig->a, true, false);
	lpi_rig_put_file(rig, &inode, &map);

	inode = lpi_rig_inode(4, LP_INODE_TYPE_FILE, 2, "b", 1);
	inode.size_bytes = 100 * LP_BLOCK_BYTES;
	lp_extmap_init(&map, inode.ino, NULL);
	lpi_rig_map(&map, 0, (struct lp_extent){rig->b.block, 3}, true, true);
	lpi_rig_map(&map, 3, (struct lp_extent){rig->b.block + 3, 7}, true, false);
	lpi_rig_map(&map, 64, (struct lp_extent){rig->b.block + 10, 10}, true, false);
	lpi_rig_map(&map, 640, (struct lp_extent){rig->b.block + 20, 10}, false, false);
	lpi_rig_put_file(rig, &inode, &map);

	inode = lpi_rig_inode(5, LP_INODE_TYPE_FILE, 2, "c", 1);
	inode.size_bytes = 3 * LP_BLOCK_BYTES;
	lp_extmap_init(&map, inode.ino, NULL);
	lpi_rig_map(&map, 0, (struct lp_extent){rig->b.block, 3}, true, true);
	lpi_rig_put_file(rig, &inode, &map);

	inode = lpi_rig_inode(6, LP_INODE_TYPE_FILE, 0, NULL, 0);
	inode.size_bytes = 1;
	lp_extmap_init(&map, inode.ino, NULL);
	lpi_rig_map(&map, 0, rig->orphan, true, false);
	lpi_rig_put_file(rig, &inode, &map);
	lpi_rig_put_mark(rig, 6, LP_UNFINISHED_KIND_ORPHAN);
}

/* Blocks of b that c shares. */
static inline void lpi_rig_put_counts(struct lpi_fsck_rig *rig, uint32_t cnt)
{
	for (uint64_t group = rig->b.block >> LP_REFS_SHIFT;
	     group <= (rig->b.block + 2) >> LP_REFS_SHIFT; group++) {
		struct lp_refs refs;
		lp_refs_init(&refs, group);
		for (uint64_t block = rig->b.block; block < rig->b.block + 3; block++) {
			if (block >> LP_REFS_SHIFT == group)
				refs.cnt[block % LP_REFS_BLOCKS] = cnt;
		}
		lpi_rig_put_refs(rig, &refs);
	}
}

static inline void lpi_rig_fill_names(struct lpi_fsck_rig *rig)
{
	struct lp_inode inode = lpi_rig_inode(1, LP_INODE_TYPE_DIR, 1, NULL, 4);
	struct lp_key key;
	lpi_rig_put_inode(rig, &inode);
	inode = lpi_rig_inode(2, LP_INODE_TYPE_DIR, 1, "d", 2);
	lpi_rig_put_inode(rig, &inode);
	inode = lpi_rig_inode(7, LP_INODE_TYPE_FILE, 2, "l", 2);
	lpi_rig_put_inode(rig, &inode);
	inode = lpi_rig_inode(rig->s.nr, LP_INODE_TYPE_DIR, 1, "s", 2);
	lpi_rig_put_inode(rig, &inode);
	lpi_rig_put_entry(rig, 1, "d", 2, LP_INODE_TYPE_DIR, 1);
	lpi_rig_put_entry(rig, 1, "m", 7, LP_INODE_TYPE_FILE, 2);
	lpi_rig_put_entry(rig, 1, "s", rig->s.nr, LP_INODE_TYPE_DIR, 3);
	lpi_rig_put_fragment(rig, 1, 3, 3, 4);
	lpi_rig_put_entry(rig, 2, "a", 3, LP_INODE_TYPE_FILE, 1);
	lpi_rig_put_entry(rig, 2, "b", 4, LP_INODE_TYPE_FILE, 2);
	lpi_rig_put_entry(rig, 2, "c", 5, LP_INODE_TYPE_FILE, 3);
	lpi_rig_put_entry(rig, 2, "l", 7, LP_INODE_TYPE_FILE, 5);
	lpi_rig_put_fragment(rig, 2, 4, 4, 6);
	lpi_rig_put_fragment(rig, rig->s.nr, 0, 0, 1);
	lp_key_of_name(&key, LP_KEY_SPACE_XATTR, (struct lp_ino){3}, "user.x", 6);
	lpi_rig_put(rig, 0, &key, "value", 5);
	lp_key_of_name(&key, LP_KEY_SPACE_OMAP, rig->s, "\0k", 2);
	lpi_rig_put(rig, lp_ino_shard(rig->s), &key, "value", 5);
}

static inline void lpi_rig_fill(struct lpi_fsck_rig *rig)
{
	lpi_rig_open(rig);
	lpi_rig_fill_files(rig);
	lpi_rig_put_counts(rig, 2);
	lpi_rig_fill_names(rig);
	lpi_rig_settle(rig);
	lpi_rig_close(rig);
}

/* --- Checking --------------------------------------------------------------------------------- */

static inline void lpi_rig_found(struct lp_fsck_events *events,
				 const struct lp_fsck_finding *finding)
{
	struct lpi_fsck_rig *rig = LP_CONTAINER_OF(events, struct lpi_fsck_rig, events);
	assert_true(rig->found_cnt < LPI_RIG_FOUND_MAX);
	rig->found[rig->found_cnt] = *finding;
	(void)snprintf(rig->texts[rig->found_cnt], sizeof(rig->texts[0]), "%s: %s: %s%s%s",
		       lp_fsck_kind_name(finding->kind), finding->object, finding->text,
		       finding->is_repaired ? " [repaired]" : "",
		       finding->severity == LP_FSCK_WARNING ? " [warning]" : "");
	rig->found_cnt++;
}

static inline int lpi_rig_run(struct lpi_fsck_rig *rig, bool repair)
{
	const struct lp_fsck_options options = {.reactor = rig->reactor,
						.workers = rig->workers,
						.bufs = rig->bufs,
						.bdev = {rig->bdev},
						.events = &rig->events,
						.sim_clock = &rig->clock.clock,
						.index_cache_bytes = 1 << 20,
						.index_buffer_bytes = 1 << 16,
						.files_reserve_bytes = 1 << 20,
						.names_bytes_max = rig->names_bytes_max,
						.refs_groups_max = rig->refs_groups_max,
						.deep = rig->deep,
						.repair = repair};
	struct lp_label_why why;
	rig->events.found = lpi_rig_found;
	rig->found_cnt = 0;
	return lp_fsck_run(&options, &rig->report, &why);
}

static inline void lpi_rig_fail(const struct lpi_fsck_rig *rig, const char *what,
				const struct lpi_fsck_want *want)
{
	for (uint32_t i = 0; i < rig->found_cnt; i++)
		print_error("found %s\n", rig->texts[i]);
	print_error("%s: %s inode %llu\n", what, lp_fsck_kind_name(want->kind),
		    (unsigned long long)want->ino);
	fail();
}

/* Exactly these were found, in any order; those that can be mended were, if it was a repair. */
static inline void lpi_rig_compare(struct lpi_fsck_rig *rig, const struct lpi_fsck_want *wants,
				   size_t cnt, bool repair)
{
	bool used[LPI_RIG_FOUND_MAX] = {false};
	for (size_t w = 0; w < cnt; w++) {
		uint32_t i = 0;
		while (i < rig->found_cnt &&
		       (used[i] || rig->found[i].kind != wants[w].kind ||
			rig->found[i].ino.nr != wants[w].ino ||
			rig->found[i].is_repaired != (repair && wants[w].is_mendable)))
			i++;
		if (i == rig->found_cnt)
			lpi_rig_fail(rig, "not found so", &wants[w]);
		used[i] = true;
	}
	for (uint32_t i = 0; i < rig->found_cnt; i++) {
		if (!used[i])
			lpi_rig_fail(rig, "too much",
				     &(struct lpi_fsck_want){rig->found[i].kind,
							     rig->found[i].ino.nr, false});
	}
}

static inline int lpi_rig_open_read_only(struct lpi_fsck_rig *rig, uint32_t shard_idx)
{
	const struct lp_shard_options options = {.reactor = rig->reactor,
						 .workers = rig->workers,
						 .devices = &rig->devices,
						 .bufs = rig->bufs,
						 .shard_idx = shard_idx,
						 .sim_clock = &rig->clock.clock,
						 .index_cache_bytes = 1 << 20,
						 .index_buffer_bytes = 1 << 16,
						 .files_reserve_bytes = 1 << 20,
						 .read_only = true};
	return lp_shard_open(&options, &rig->shards[shard_idx]);
}

/* Through views of the shards; false when one does not open. */
static inline bool lpi_rig_look(struct lpi_fsck_rig *rig)
{
	const struct lp_devices_options devices = {.bdev = {rig->bdev}, .read_only = true};
	struct lp_view *views[LPI_RIG_SHARDS] = {NULL};
	const struct lp_fsck_look look = {.views = views,
					  .view_cnt = rig->shard_cnt,
					  .events = &rig->events,
					  .names_bytes_max = rig->names_bytes_max,
					  .refs_groups_max = rig->refs_groups_max};
	struct lp_label_why why;
	uint32_t opened = 0;
	rig->found_cnt = 0;
	rig->events.found = lpi_rig_found;
	lp_test_ok(lp_devices_open(&devices, &rig->devices, &why));
	while (opened < rig->shard_cnt && lpi_rig_open_read_only(rig, opened) == 0) {
		struct lp_shard *shard = rig->shards[opened];
		lp_test_ok(lpi_view_new(opened, lp_shard_kv(shard), lp_shard_space(shard),
					&views[opened]));
		opened++;
	}
	bool is_whole = opened == rig->shard_cnt;
	if (is_whole)
		lp_test_ok(lp_fsck_look(&look, &rig->report));
	for (uint32_t i = 0; i < opened; i++) {
		lpi_view_free(views[i]);
		lp_test_ok(lp_shard_close(rig->shards[i], false));
	}
	lp_devices_close(&rig->devices);
	return is_whole;
}

/* Who looks while the store is served finds the same, but for what he does not look at. */
static inline void lpi_rig_expect_seen(struct lpi_fsck_rig *rig, const struct lpi_fsck_want *wants,
				       size_t cnt)
{
	struct lpi_fsck_want seen[LPI_RIG_FOUND_MAX] = {{.ino = 0}};
	size_t seen_cnt = 0;
	bool all_open = true;
	for (size_t w = 0; w < cnt; w++) {
		enum lp_fsck_kind kind = wants[w].kind;
		all_open = all_open && kind != LP_FSCK_SHARD;
		if (kind != LP_FSCK_LABEL_COPY && kind != LP_FSCK_CHUNK_SLOT &&
		    kind != LP_FSCK_SUPER_COPY && kind != LP_FSCK_BIT && kind != LP_FSCK_DATA &&
		    kind != LP_FSCK_DATA_READ)
			seen[seen_cnt++] = wants[w];
	}
	assert_int_equal(lpi_rig_look(rig), all_open);
	if (all_open)
		lpi_rig_compare(rig, seen, seen_cnt, false);
}

/* A check finds these, whichever way it looks; a repair mends what can be; a check then finds the
 * rest. */
static inline void lpi_rig_expect(struct lpi_fsck_rig *rig, const struct lpi_fsck_want *wants,
				  size_t cnt)
{
	struct lpi_fsck_want rest[LPI_RIG_FOUND_MAX] = {{.ino = 0}};
	size_t rest_cnt = 0;
	for (size_t w = 0; w < cnt; w++) {
		if (!wants[w].is_mendable)
			rest[rest_cnt++] = wants[w];
	}
	lpi_rig_expect_seen(rig, wants, cnt);
	lp_test_ok(lpi_rig_run(rig, false));
	lpi_rig_compare(rig, wants, cnt, false);
	assert_int_equal(rig->report.problems + rig->report.warnings, cnt);
	lp_test_ok(lpi_rig_run(rig, true));
	lpi_rig_compare(rig, wants, cnt, true);
	assert_int_equal(rig->report.repaired, cnt - rest_cnt);
	lp_test_ok(lpi_rig_run(rig, false));
	lpi_rig_compare(rig, rest, rest_cnt, false);
}

#define LPI_RIG_EXPECT(rig, ...)                                                                   \
	lpi_rig_expect((rig), (const struct lpi_fsck_want[]){__VA_ARGS__},                         \
		       LP_ARRAY_SIZE(((const struct lpi_fsck_want[]){__VA_ARGS__})))

/* A new store of the picture, damaged by the function, which finds the shards open. */
static inline void lpi_rig_damage_on(struct lpi_fsck_rig *rig, uint32_t shard_cnt,
				     void (*damage)(struct lpi_fsck_rig *))
{
	lpi_rig_init(rig, shard_cnt);
	lpi_rig_fill(rig);
	lpi_rig_open(rig);
	damage(rig);
	lpi_rig_settle(rig);
	lpi_rig_close(rig);
}

static inline void lpi_rig_damage(struct lpi_fsck_rig *rig, void (*damage)(struct lpi_fsck_rig *))
{
	lpi_rig_damage_on(rig, 1, damage);
}

#endif
