/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a check (fsck_impl.h). All shards are open at once, as in a daemon: names cross
 * them. A shard that does not open is a finding, and whatever it might say of names is left open.
 */
#include "store/check/fsck.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "store/check/fsck_impl.h"

#define ADVICE "lapis salvage takes out what is whole"

static int open_devices(struct lpi_fsck *fsck, struct lp_label_why *why)
{
	const struct lp_fsck_options *options = fsck->options;
	struct lp_devices_options devices = {.files_reserve_bytes = options->files_reserve_bytes,
					     .read_only = fsck->read_only};
	for (int i = 0; i < LP_ROLES; i++)
		devices.bdev[i] = options->bdev[i];
	int err = lpi_fsck_labels(fsck);
	if (err == 0)
		err = lpi_fsck_tables(fsck);
	if (err == 0)
		err = lp_devices_open(&devices, &fsck->devices, why);
	return err;
}

/* --- Shards ----------------------------------------------------------------------------------- */

/* A new index is made of what the old one still has, in a copy: where there is damage, and nothing
 * else that keeps it from being opened. */
static bool wants_rebuild(const struct lpi_fsck_shard *shard, int err)
{
	return shard->fsck->options->rebuild != NULL &&
	       (err == -EBADMSG || err == -EUCLEAN || shard->has_bad_files);
}

static int open_shard(struct lpi_fsck *fsck, uint32_t idx)
{
	const struct lp_fsck_options *options = fsck->options;
	struct lpi_fsck_shard *shard = &fsck->shards[idx];
	const struct lp_shard_options of_shard = {
		.reactor = options->reactor,
		.workers = options->workers,
		.devices = &fsck->devices,
		.bufs = options->bufs,
		.shard_idx = idx,
		.sim_clock = options->sim_clock,
		.index_cache_bytes = options->index_cache_bytes,
		.index_buffer_bytes = options->index_buffer_bytes,
		.files_reserve_bytes = options->files_reserve_bytes,
		.read_only = fsck->read_only,
	};
	const struct lpi_fsck_at at = {.kind = LP_FSCK_SHARD, .shard = shard};
	*shard = (struct lpi_fsck_shard){.fsck = fsck, .idx = idx};
	int err = lpi_fsck_supers_look(shard);
	if (err == 0)
		err = lpi_fsck_mend(shard);
	if (err < 0)
		return err;
	uint64_t before = lp_corruption_count();
	err = wants_rebuild(shard, 0) ? -EBADMSG : lp_shard_open(&of_shard, &shard->shard);
	if (err == -ENOMEM)
		return err;
	if (err < 0 && wants_rebuild(shard, err)) {
		err = lpi_fsck_rebuild(shard);
		if (err < 0)
			return err;
		shard->is_rebuilt = true;
		err = lp_shard_open(&of_shard, &shard->shard);
	}
	lpi_fsck_supers_tell(shard);
	if (err < 0) {
		fsck->names_in_doubt = true;
		lpi_fsck_found(fsck, &at, "cannot be opened: %s (" ADVICE ")",
			       lp_corruption_count() > before ? lpi_fsck_last_corruption()
							      : lp_strerror(err));
	}
	return 0;
}

static int own_chunks(struct lpi_fsck_shard *shard)
{
	const struct lp_disk_label *label = &shard->fsck->devices.label[LP_ROLE_DATA];
	const struct lp_view *view = shard->view;
	uint32_t chunk_cnt = view != NULL ? view->chunk_cnt : label->chunk_cnt;
	int err = lpi_fsck_blocks_init(
		&shard->blocks, view != NULL ? view->base_block : label->chunk_base,
		view != NULL ? view->chunk_blocks : label->chunk_blocks, chunk_cnt);
	/* A lease may be durable while the space does not know it yet: nothing is in it. */
	for (uint32_t i = 0; i < chunk_cnt && err == 0; i++) {
		if (lpi_fsck_owns(shard, i))
			err = lpi_fsck_blocks_add(&shard->blocks, i, lpi_fsck_mine(shard, i));
	}
	return err;
}

static int check_shard(struct lpi_fsck_shard *shard)
{
	if (!lpi_fsck_is_there(shard))
		return 0;
	int err = own_chunks(shard);
	if (err == 0 && shard->fsck->options->deep)
		err = lpi_fsck_deep_new(shard, &shard->deep);
	if (err == 0)
		err = lpi_fsck_walk(shard);
	if (shard->deep != NULL)
		lpi_fsck_deep_finish(shard->deep);
	lpi_fsck_deep_free(shard->deep);
	shard->deep = NULL;
	return err == 0 ? lpi_fsck_space_named(shard) : err;
}

static int check_shards(struct lpi_fsck *fsck)
{
	int err = 0;
	for (uint32_t i = 0; i < fsck->report->shards && err == 0; i++)
		err = check_shard(&fsck->shards[i]);
	/* The maps of any shard may put those of all in doubt. */
	for (uint32_t i = 0; i < fsck->report->shards && err == 0; i++) {
		if (lpi_fsck_is_there(&fsck->shards[i]))
			err = lpi_fsck_refs(&fsck->shards[i]);
	}
	if (err == 0)
		err = lpi_fsck_links(fsck);
	for (uint32_t i = 0; i < fsck->report->shards; i++) {
		if (err == 0 && lpi_fsck_is_there(&fsck->shards[i]))
			err = lpi_fsck_space_unnamed(&fsck->shards[i]);
		lpi_fsck_blocks_fini(&fsck->shards[i].blocks);
	}
	return err;
}

/* A repair is complete only when it is in its place. */
static int close_shard(struct lpi_fsck_shard *shard, bool abandon)
{
	int err = lp_shard_close(shard->shard, abandon);
	shard->shard = NULL;
	return err;
}

static int check_all(struct lpi_fsck *fsck)
{
	uint32_t opened = 0;
	int err = 0;
	for (; opened < fsck->report->shards && err == 0; opened++)
		err = open_shard(fsck, opened);
	if (err == 0)
		err = lpi_fsck_reconnect(fsck);
	if (err == 0)
		err = check_shards(fsck);
	for (uint32_t i = 0; i < opened; i++) {
		int close_err = close_shard(&fsck->shards[i], err < 0);
		err = err == 0 ? close_err : err;
	}
	return err;
}

int lp_fsck_run(const struct lp_fsck_options *options, struct lp_fsck_report *ret_report,
		struct lp_label_why *why)
{
	/* Opening recovers, as any start does. */
	struct lpi_fsck fsck = {
		.options = options, .report = ret_report, .read_only = !options->repair};
	*ret_report = (struct lp_fsck_report){.problems = 0};
	*why = (struct lp_label_why){.text = ""};
	LP_ASSERT(options->events != NULL && options->events->found != NULL);
	int err = open_devices(&fsck, why);
	if (err < 0)
		return err;
	uint32_t shard_cnt = fsck.devices.label[LP_ROLE_DATA].shard_cnt;
	fsck.shards = calloc(shard_cnt, sizeof(*fsck.shards));
	err = fsck.shards != NULL ? 0 : -ENOMEM;
	if (err == 0) {
		ret_report->shards = shard_cnt;
		err = check_all(&fsck);
	}
	free(fsck.shards);
	lp_devices_close(&fsck.devices);
	return err;
}

int lp_fsck_look(const struct lp_fsck_look *look, struct lp_fsck_report *ret_report)
{
	const struct lp_fsck_options options = {.events = look->events,
						.names_bytes_max = look->names_bytes_max,
						.refs_groups_max = look->refs_groups_max};
	struct lpi_fsck fsck = {.options = &options, .report = ret_report, .read_only = true};
	*ret_report = (struct lp_fsck_report){.shards = look->view_cnt};
	fsck.shards = calloc(look->view_cnt, sizeof(*fsck.shards));
	if (fsck.shards == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < look->view_cnt; i++) {
		LP_ASSERT(look->views[i]->shard_idx == i);
		fsck.shards[i] =
			(struct lpi_fsck_shard){.fsck = &fsck, .idx = i, .view = look->views[i]};
	}
	int err = check_shards(&fsck);
	free(fsck.shards);
	return err == 0 && fsck.is_over ? -ECANCELED : err;
}
