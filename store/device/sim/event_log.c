/* SPDX-License-Identifier: Apache-2.0 */
/* The log, and the devices that are made from it. Replaying an event feeds the same functions of
 * device/sim/cache.c with the same operations as the running device did, so that a cutter's cache
 * at an event is the running device's at that event. */
#include "store/device/sim/sim_impl.h"

#include <stdlib.h>

#include "base/sanitize.h"

/* --- The log -----------------------------------------------------------------------------------
 */

void lpi_log_init(struct lpi_log *log, bool metadata_only, struct lpi_cache *take_start)
{
	*log = (struct lpi_log){.metadata_only = metadata_only};
	/* Lists are linked through their heads, so the cache is cloned rather than moved. */
	lpi_cache_clone(take_start, &log->start);
	lpi_cache_fini(take_start);
}

static void forget_events(struct lpi_log *log)
{
	for (uint64_t i = 0; i < log->count - log->first; i++)
		lpi_rec_put(log->events[i].rec);
	free(log->events);
	log->events = NULL;
	log->max = 0;
	log->first = log->count;
}

void lpi_log_fini(struct lpi_log *log)
{
	forget_events(log);
	lpi_cache_fini(&log->start);
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * UINT64_C(0x9fb21c651e98df25);
	return hash ^ (hash >> 29);
}

static void trace(struct lpi_log *log, const struct lp_sim_event *info, uint64_t data_hash)
{
	uint64_t hash = mix(log->trace_hash, (uint64_t)info->type);
	hash = mix(hash, (uint64_t)info->opcode);
	hash = mix(hash, (uint64_t)(int64_t)info->result);
	hash = mix(hash, info->op_seq);
	hash = mix(hash, info->offset_bytes);
	hash = mix(hash, info->length_bytes);
	hash = mix(hash, info->time_ns);
	log->trace_hash = mix(hash, data_hash);
}

void lpi_log_push(struct lp_sim *sim, const struct lp_sim_event *info, struct lpi_rec *rec,
		  uint64_t data_hash)
{
	struct lpi_log *log = &sim->log;
	uint64_t cnt = log->count - log->first;
	if (cnt == log->max) {
		log->max = LP_MAX(2 * log->max, UINT64_C(16));
		log->events = lpi_sim_realloc(log->events, log->max * sizeof(*log->events));
	}
	log->events[cnt] = (struct lpi_event){.info = *info};
	if (rec != NULL && !log->metadata_only)
		log->events[cnt].rec = lpi_rec_get(rec);
	log->count++;
	trace(log, info, data_hash);
}

uint64_t lp_sim_event_count(const struct lp_sim *sim)
{
	lpi_sim_lock(sim);
	uint64_t count = sim->log.count;
	lpi_sim_unlock(sim);
	return count;
}

uint64_t lp_sim_event_first(const struct lp_sim *sim)
{
	lpi_sim_lock(sim);
	uint64_t first = sim->log.first;
	lpi_sim_unlock(sim);
	return first;
}

void lp_sim_event_get(const struct lp_sim *sim, uint64_t event_idx, struct lp_sim_event *ret_event)
{
	lpi_sim_lock(sim);
	LP_ASSERT(event_idx >= sim->log.first && event_idx < sim->log.count);
	*ret_event = sim->log.events[event_idx - sim->log.first].info;
	lpi_sim_unlock(sim);
}

uint64_t lp_sim_trace_hash(const struct lp_sim *sim)
{
	lpi_sim_lock(sim);
	uint64_t hash = sim->log.trace_hash;
	lpi_sim_unlock(sim);
	return hash;
}

void lp_sim_trim_log(struct lp_sim *sim)
{
	lpi_sim_lock(sim);
	forget_events(&sim->log);
	lpi_cache_fini(&sim->log.start);
	lpi_cache_clone(&sim->cache, &sim->log.start);
	lpi_sim_unlock(sim);
}

/* --- Devices from caches ------------------------------------------------------------------------
 */

/* Each event has its own stream, so that one seed gives other draws at each. */
static void seed_at(uint64_t seed, uint64_t event_idx, struct lp_prng *ret_prng)
{
	struct lp_prng root;
	lp_prng_init(&root, seed);
	lp_prng_fork(&root, event_idx, ret_prng);
}

static struct lp_sim *after_cut(const struct lpi_cache *cache, const struct lp_sim_profile *profile,
				struct lp_prng *prng, bool metadata_only)
{
	struct lpi_cache left;
	lpi_cache_cut(cache, profile, prng, &left);
	return lpi_sim_new(profile, lp_prng_u64(prng), metadata_only, &left);
}

static struct lp_sim *after_crash(const struct lpi_cache *cache,
				  const struct lp_sim_profile *profile, struct lp_prng *prng,
				  bool metadata_only)
{
	struct lpi_cache left;
	lpi_cache_clone(cache, &left);
	lpi_cache_crash(&left, prng);
	return lpi_sim_new(profile, lp_prng_u64(prng), metadata_only, &left);
}

struct lp_bdev *lp_sim_power_cut(struct lp_sim *sim, uint64_t seed)
{
	struct lp_prng prng;
	lpi_sim_lock(sim);
	LP_ASSERT(!sim->off);
	seed_at(seed, sim->log.count, &prng);
	struct lp_sim *left = after_cut(&sim->cache, &sim->profile, &prng, sim->log.metadata_only);
	lpi_sim_switch_off(sim);
	lpi_sim_unlock(sim);
	return &left->base;
}

struct lp_bdev *lp_sim_process_crash(struct lp_sim *sim, uint64_t seed)
{
	struct lp_prng prng;
	lpi_sim_lock(sim);
	LP_ASSERT(!sim->off);
	seed_at(seed, sim->log.count, &prng);
	struct lp_sim *left =
		after_crash(&sim->cache, &sim->profile, &prng, sim->log.metadata_only);
	lpi_sim_switch_off(sim);
	lpi_sim_unlock(sim);
	return &left->base;
}

/* --- Cutters ------------------------------------------------------------------------------------
 */

struct lp_sim_cutter {
	const struct lp_sim *sim;
	struct lp_sim_profile profile;
	struct lpi_cache cache;
	uint64_t first; /* of the log when the cutter was made */
	uint64_t event_idx;
};

int lp_sim_cutter_new(const struct lp_sim *sim, const struct lp_sim_profile *profile,
		      struct lp_sim_cutter **ret_cutter)
{
	if (profile == NULL)
		profile = &sim->profile;
	if (sim->log.metadata_only)
		return -ENOTSUP;
	if (!lpi_sim_profile_is_valid(profile) ||
	    profile->sector_bytes != sim->profile.sector_bytes)
		return -EINVAL;
	struct lp_sim_cutter *cutter = lpi_sim_alloc_zeroed(sizeof(*cutter));
	cutter->sim = sim;
	cutter->profile = *profile;
	lpi_sim_lock(sim);
	lpi_cache_clone(&sim->log.start, &cutter->cache);
	cutter->first = sim->log.first;
	cutter->event_idx = sim->log.first;
	lpi_sim_unlock(sim);
	lpi_cache_protect(&cutter->cache, profile->power_protected);
	*ret_cutter = cutter;
	return 0;
}

static void replay(struct lpi_cache *cache, const struct lpi_event *event, uint64_t stamp)
{
	switch (event->info.type) {
	case LP_SIM_SUBMIT:
		if (event->rec != NULL)
			lpi_cache_submit(cache, event->rec);
		break;
	case LP_SIM_COMPLETE:
		if (event->rec != NULL)
			(void)lpi_cache_complete(cache, event->rec, stamp); /* no view */
		break;
	case LP_SIM_ROTTED:
		lpi_cache_rot(cache, event->rec, stamp);
		break;
	case LP_SIM_SPOILED:
		lpi_cache_spoil(cache, event->info.length_bytes, event->info.offset_bytes);
		break;
	}
}

bool lp_sim_cutter_next(struct lp_sim_cutter *cutter)
{
	const struct lpi_log *log = &cutter->sim->log;
	lpi_sim_lock(cutter->sim);
	LP_ASSERT(log->first == cutter->first); /* not trimmed below us */
	bool more = cutter->event_idx < log->count;
	if (more) {
		uint64_t idx = cutter->event_idx++;
		replay(&cutter->cache, &log->events[idx - log->first], idx + 1);
	}
	lpi_sim_unlock(cutter->sim);
	return more;
}

uint64_t lp_sim_cutter_event(const struct lp_sim_cutter *cutter)
{
	return cutter->event_idx;
}

struct lp_bdev *lp_sim_cutter_cut(const struct lp_sim_cutter *cutter, uint64_t seed)
{
	struct lp_prng prng;
	lp_san_hide_begin();
	seed_at(seed, cutter->event_idx, &prng);
	struct lp_sim *left = after_cut(&cutter->cache, &cutter->profile, &prng, false);
	lp_san_hide_end();
	return &left->base;
}

struct lp_bdev *lp_sim_cutter_crash(const struct lp_sim_cutter *cutter, uint64_t seed)
{
	struct lp_prng prng;
	lp_san_hide_begin();
	seed_at(seed, cutter->event_idx, &prng);
	struct lp_sim *left = after_crash(&cutter->cache, &cutter->profile, &prng, false);
	lp_san_hide_end();
	return &left->base;
}

void lp_sim_cutter_free(struct lp_sim_cutter *cutter)
{
	if (cutter == NULL)
		return;
	lpi_cache_fini(&cutter->cache);
	free(cutter);
}

int lp_sim_image_at(const struct lp_sim *sim, uint64_t event_idx,
		    const struct lp_sim_profile *profile, uint64_t seed, struct lp_bdev **ret_bdev)
{
	if (event_idx < lp_sim_event_first(sim) || event_idx >= lp_sim_event_count(sim))
		return -EINVAL;
	struct lp_sim_cutter *cutter = NULL;
	int err = lp_sim_cutter_new(sim, profile, &cutter);
	if (err < 0)
		return err;
	while (lp_sim_cutter_event(cutter) <= event_idx)
		(void)lp_sim_cutter_next(cutter); /* there is one: the range was checked */
	*ret_bdev = lp_sim_cutter_cut(cutter, seed);
	lp_sim_cutter_free(cutter);
	return 0;
}
