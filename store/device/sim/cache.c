/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a write: submitted (flying), completed (done), then one of
 *   settled   a flush that was submitted after its completion completed, or it was a
 *             write-through, or the device is power protected: its live sectors go to the base,
 *             and all older versions of these sectors are dead;
 *   dead      no live sector left, because younger versions were settled first;
 *   dropped   a flush failed on a device that then forgets. One that is flying then loses its
 *             sectors, and completes as if nothing had happened.
 * A cut applies to a copy of the base whichever versions it chooses, oldest first, so that any
 * version of a sector may be the one that survives, and no settled one can be lost.
 *
 * Order is that of completion: what completes later is younger. Two writes in flight at once have
 * no order of their own, so a cut shuffles what is in flight. */
#include "store/device/sim/cache.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* --- Operations ------------------------------------------------------------------------------- */

struct lpi_rec *lpi_rec_get(struct lpi_rec *rec)
{
	atomic_fetch_add_explicit(&rec->refs, 1, memory_order_relaxed);
	return rec;
}

void lpi_rec_put(struct lpi_rec *rec)
{
	if (rec == NULL || atomic_fetch_sub_explicit(&rec->refs, 1, memory_order_acq_rel) > 1)
		return;
	free(rec->data);
	free(rec);
}

uint64_t lpi_rec_draw(const struct lpi_rec *rec, uint64_t sector_idx)
{
	uint64_t z = rec->seed + (sector_idx + 1) * UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* Whether a completed operation left its mark on this sector: a failed write (SIM17) on some, a
 * discard (SIM13) on some. */
static bool reached(const struct lpi_rec *rec, uint64_t sector_idx)
{
	if (rec->effect == LPI_ZERO)
		return lpi_rec_draw(rec, sector_idx) & 1;
	if (rec->result == 0)
		return true;
	return lpi_rec_draw(rec, rec->atomic ? 0 : sector_idx) & 1;
}

/* --- Versions --------------------------------------------------------------------------------- */

static bool is_live(const struct lpi_version *version, uint64_t sector_idx)
{
	return version->live[sector_idx / 64] >> (sector_idx % 64) & 1;
}

static void kill_sector(struct lpi_version *version, uint64_t sector_idx)
{
	if (!is_live(version, sector_idx))
		return;
	version->live[sector_idx / 64] &= ~(UINT64_C(1) << (sector_idx % 64));
	version->live_cnt--;
}

static size_t version_size(uint64_t sector_cnt)
{
	return sizeof(struct lpi_version) + (sector_cnt + 63) / 64 * sizeof(uint64_t);
}

static struct lpi_version *version_new(const struct lpi_cache *cache, struct lpi_rec *rec)
{
	uint64_t sector_cnt = rec->length_bytes / cache->sector_bytes;
	struct lpi_version *version = lpi_sim_alloc(version_size(sector_cnt));
	lp_list_node_init(&version->node);
	version->rec = lpi_rec_get(rec);
	version->stamp = UINT64_MAX;
	version->sector_cnt = sector_cnt;
	version->live_cnt = sector_cnt;
	memset(version->live, 0xff, (sector_cnt + 63) / 64 * sizeof(uint64_t));
	return version;
}

static void version_free(struct lpi_version *version)
{
	LP_ASSERT(!lpi_versions_is_linked(version));
	lpi_rec_put(version->rec);
	free(version);
}

/* Takes it off its list first. */
static void version_drop(struct lpi_version *version)
{
	lpi_versions_remove(version);
	version_free(version);
}

static void versions_clone(const struct lpi_versions *from, struct lpi_versions *to)
{
	const struct lpi_version *it;
	lpi_versions_init(to);
	LP_LIST_FOREACH (lpi_versions, from, it) {
		struct lpi_version *copy = lpi_sim_alloc(version_size(it->sector_cnt));
		memcpy(copy, it, version_size(it->sector_cnt));
		lp_list_node_init(&copy->node);
		(void)lpi_rec_get(copy->rec); /* the copy holds a reference of its own */
		lpi_versions_push_back(to, copy);
	}
}

static void versions_fini(struct lpi_versions *versions)
{
	struct lpi_version *it;
	struct lpi_version *tmp;
	LP_LIST_FOREACH_SAFE (lpi_versions, versions, it, tmp) {
		version_drop(it);
	}
}

/* --- The cache -------------------------------------------------------------------------------- */

void lpi_cache_init(struct lpi_cache *cache, uint64_t size_bytes, uint32_t sector_bytes,
		    bool power_protected)
{
	*cache = (struct lpi_cache){.sector_bytes = sector_bytes,
				    .power_protected = power_protected};
	lpi_image_init(&cache->base, size_bytes);
	lpi_versions_init(&cache->done);
	lpi_versions_init(&cache->flying);
}

static void clone_bad(const struct lpi_cache *cache, struct lpi_cache *to)
{
	to->bad = NULL;
	to->bad_cnt = cache->bad_cnt;
	to->bad_max = cache->bad_cnt;
	if (cache->bad_cnt == 0)
		return;
	to->bad = lpi_sim_alloc(cache->bad_cnt * sizeof(*cache->bad));
	memcpy(to->bad, cache->bad, cache->bad_cnt * sizeof(*cache->bad));
}

void lpi_cache_clone(const struct lpi_cache *cache, struct lpi_cache *ret_clone)
{
	*ret_clone = *cache;
	lpi_image_clone(&cache->base, &ret_clone->base);
	versions_clone(&cache->done, &ret_clone->done);
	versions_clone(&cache->flying, &ret_clone->flying);
	clone_bad(cache, ret_clone);
}

void lpi_cache_fini(struct lpi_cache *cache)
{
	versions_fini(&cache->done);
	versions_fini(&cache->flying);
	lpi_image_fini(&cache->base);
	free(cache->bad);
	cache->bad = NULL;
}

static void apply_sector(const struct lpi_rec *rec, uint64_t sector_idx, uint32_t sector_bytes,
			 struct lpi_image *image)
{
	uint64_t at = sector_idx * sector_bytes;
	switch (rec->effect) {
	case LPI_NOTHING:
		break;
	case LPI_STORE:
		lpi_image_write(image, rec->data + at, sector_bytes, rec->media_bytes + at);
		break;
	case LPI_ZERO:
		lpi_image_zero(image, sector_bytes, rec->media_bytes + at);
		break;
	case LPI_FLIP:
		lpi_image_flip(image, rec->data + at, sector_bytes, rec->media_bytes + at);
		break;
	}
}

/* Applies the live sectors, of a discard those it has chosen. */
static void apply_version(const struct lpi_version *version, uint32_t sector_bytes,
			  struct lpi_image *image)
{
	const struct lpi_rec *rec = version->rec;
	if (rec->effect == LPI_STORE && version->live_cnt == version->sector_cnt) {
		lpi_image_write(image, rec->data, rec->length_bytes, rec->media_bytes);
		return;
	}
	for (uint64_t i = 0; i < version->sector_cnt; i++)
		if (is_live(version, i) && (rec->effect != LPI_ZERO || reached(rec, i)))
			apply_sector(rec, i, sector_bytes, image);
}

static bool overlap(const struct lpi_rec *rec, uint64_t length_bytes, uint64_t offset_bytes)
{
	return rec->media_bytes < offset_bytes + length_bytes &&
	       offset_bytes < rec->media_bytes + rec->length_bytes;
}

/* Kills the live sectors of `young` in one older version; of a discard those it has chosen. */
static void overtake(const struct lpi_cache *cache, const struct lpi_version *young,
		     struct lpi_version *old)
{
	const struct lpi_rec *rec = young->rec;
	uint64_t from = LP_MAX(rec->media_bytes, old->rec->media_bytes);
	uint64_t to = LP_MIN(rec->media_bytes + rec->length_bytes,
			     old->rec->media_bytes + old->rec->length_bytes);
	for (uint64_t at = from; at < to; at += cache->sector_bytes) {
		uint64_t i = (at - rec->media_bytes) / cache->sector_bytes;
		if (is_live(young, i) && (rec->effect != LPI_ZERO || reached(rec, i)))
			kill_sector(old, (at - old->rec->media_bytes) / cache->sector_bytes);
	}
}

/* A version becomes durable: to the base, and everything older below it is dead. */
static void settle(struct lpi_cache *cache, struct lpi_version *version)
{
	const struct lpi_rec *rec = version->rec;
	apply_version(version, cache->sector_bytes, &cache->base);
	struct lpi_version *it;
	struct lpi_version *tmp;
	LP_LIST_FOREACH_SAFE (lpi_versions, &cache->done, it, tmp) {
		if (it == version)
			break;
		if (overlap(it->rec, rec->length_bytes, rec->media_bytes))
			overtake(cache, version, it);
		if (it->live_cnt == 0)
			version_drop(it);
	}
	version_drop(version);
}

/* Flipped bits go to the base only where no older discard is still open: that is applied after
 * the base, and would undo them. */
static void settle_flips(struct lpi_cache *cache, struct lpi_version *version)
{
	const struct lpi_rec *rec = version->rec;
	for (uint64_t i = 0; i < version->sector_cnt; i++) {
		uint64_t at = rec->media_bytes + i * cache->sector_bytes;
		bool open = !is_live(version, i);
		const struct lpi_version *it = lpi_versions_first(&cache->done);
		for (; it != version && !open; it = lpi_versions_next(&cache->done, it))
			open = overlap(it->rec, cache->sector_bytes, at) &&
			       is_live(it, (at - it->rec->media_bytes) / cache->sector_bytes);
		if (open)
			continue;
		apply_sector(rec, i, cache->sector_bytes, &cache->base);
		kill_sector(version, i);
	}
	if (version->live_cnt == 0)
		version_drop(version);
}

static void settle_any(struct lpi_cache *cache, struct lpi_version *version)
{
	switch (version->rec->effect) {
	case LPI_NOTHING:
		LP_UNREACHABLE();
	case LPI_STORE:
		settle(cache, version);
		break;
	case LPI_FLIP:
		settle_flips(cache, version);
		break;
	case LPI_ZERO:
		break; /* undefined until rewritten: no flush settles a discard (SIM13) */
	}
}

static void settle_old_discards(struct lpi_cache *cache, uint64_t stamp)
{
	uint32_t open_cnt = 0;
	struct lpi_version *it;
	struct lpi_version *tmp;
	LP_LIST_FOREACH (lpi_versions, &cache->done, it) {
		open_cnt += it->rec->effect == LPI_ZERO && it->stamp < stamp;
	}
	LP_LIST_FOREACH_SAFE (lpi_versions, &cache->done, it, tmp) {
		if (open_cnt <= LPI_OPEN_DISCARDS_MAX)
			return;
		if (it->rec->effect != LPI_ZERO)
			continue;
		settle(cache, it);
		open_cnt--;
	}
}

/* What completed before `stamp` becomes durable, oldest first. */
static void settle_before(struct lpi_cache *cache, uint64_t stamp)
{
	struct lpi_version *it;
	struct lpi_version *tmp;
	LP_LIST_FOREACH_SAFE (lpi_versions, &cache->done, it, tmp) {
		/* Younger ones come after it: a settled version frees only older ones. */
		if (it->stamp >= stamp)
			break;
		settle_any(cache, it);
	}
	settle_old_discards(cache, stamp);
}

void lpi_cache_protect(struct lpi_cache *cache, bool power_protected)
{
	cache->power_protected = power_protected;
	if (power_protected)
		settle_before(cache, UINT64_MAX);
}

static void kill_all(struct lpi_version *version)
{
	memset(version->live, 0, (version->sector_cnt + 63) / 64 * sizeof(uint64_t));
	version->live_cnt = 0;
}

/* What was in flight had come as far as the cache, or not: each by itself. */
static void drop_flying(struct lpi_cache *cache, const struct lpi_rec *failed)
{
	struct lpi_version *it;
	LP_LIST_FOREACH (lpi_versions, &cache->flying, it) {
		if (it->rec != failed && it->rec->effect == LPI_STORE &&
		    (lpi_rec_draw(it->rec, it->sector_cnt) & 1) != 0)
			kill_all(it);
	}
}

/* A flush failed and the device forgot. Discards and rot are not in its cache. */
static void drop_done(struct lpi_cache *cache)
{
	struct lpi_version *it;
	struct lpi_version *tmp;
	LP_LIST_FOREACH_SAFE (lpi_versions, &cache->done, it, tmp) {
		if (it->rec->effect == LPI_STORE)
			version_drop(it);
	}
}

void lpi_cache_submit(struct lpi_cache *cache, struct lpi_rec *rec)
{
	if (rec->effect == LPI_STORE || rec->effect == LPI_ZERO)
		lpi_versions_push_back(&cache->flying, version_new(cache, rec));
}

static struct lpi_version *find_flying(const struct lpi_cache *cache, const struct lpi_rec *rec)
{
	struct lpi_version *it;
	LP_LIST_FOREACH (lpi_versions, &cache->flying, it) {
		if (it->rec == rec)
			return it;
	}
	return NULL;
}

static void rewrite_bad(struct lpi_cache *cache, uint64_t length_bytes, uint64_t offset_bytes);

/* Keeps of a failed write the sectors that reached the medium. */
static void keep_reached(struct lpi_version *version)
{
	for (uint64_t i = 0; i < version->sector_cnt; i++)
		if (!reached(version->rec, i))
			kill_sector(version, i);
}

/* False: nothing was left of it. */
static bool complete_version(struct lpi_cache *cache, struct lpi_version *version, uint64_t stamp)
{
	const struct lpi_rec *rec = version->rec;
	bool was_there = version->live_cnt > 0;
	lpi_versions_remove(version);
	if (rec->effect == LPI_STORE && rec->result < 0)
		keep_reached(version);
	if (version->live_cnt == 0) {
		version_free(version);
		return was_there;
	}
	version->stamp = stamp;
	lpi_versions_push_back(&cache->done, version);
	if (rec->effect != LPI_STORE)
		return true;
	if (rec->result == 0)
		rewrite_bad(cache, rec->length_bytes, rec->media_bytes);
	bool through = rec->opcode == LP_BDEV_WRITE_THROUGH && rec->result == 0;
	if (through || cache->power_protected)
		settle(cache, version);
	return true;
}

bool lpi_cache_complete(struct lpi_cache *cache, struct lpi_rec *rec, uint64_t stamp)
{
	bool is_flush = rec->opcode == LP_BDEV_FLUSH;
	if (rec->result == 0 && is_flush)
		settle_before(cache, rec->stamp);
	else if (rec->drops)
		drop_done(cache);
	if (rec->drops_flying)
		drop_flying(cache, rec);
	if (is_flush)
		return true;
	struct lpi_version *version = find_flying(cache, rec);
	if (version != NULL)
		return complete_version(cache, version, stamp);
	LP_ASSERT(rec->effect == LPI_NOTHING);
	return true;
}

void lpi_cache_rot(struct lpi_cache *cache, struct lpi_rec *rec, uint64_t stamp)
{
	LP_ASSERT(rec->effect == LPI_FLIP);
	struct lpi_version *version = version_new(cache, rec);
	version->stamp = stamp;
	lpi_versions_push_back(&cache->done, version);
	if (cache->power_protected)
		settle_flips(cache, version);
}

/* --- Unreadable sectors ------------------------------------------------------------------------
 */

static void bad_push(struct lpi_cache *cache, uint64_t start_bytes, uint64_t end_bytes)
{
	if (start_bytes >= end_bytes)
		return;
	if (cache->bad_cnt == cache->bad_max) {
		cache->bad_max = LP_MAX(2 * cache->bad_max, 4u);
		cache->bad = lpi_sim_realloc(cache->bad, cache->bad_max * sizeof(*cache->bad));
	}
	cache->bad[cache->bad_cnt++] = (struct lpi_span){start_bytes, end_bytes};
}

/* Cuts the range out of all spans. */
static void rewrite_bad(struct lpi_cache *cache, uint64_t length_bytes, uint64_t offset_bytes)
{
	uint64_t end = offset_bytes + length_bytes;
	/* Pieces are pushed behind and found disjoint from the range when the walk gets there. */
	for (uint32_t i = 0; i < cache->bad_cnt;) {
		struct lpi_span span = cache->bad[i];
		if (span.start_bytes >= end || span.end_bytes <= offset_bytes) {
			i++;
			continue;
		}
		cache->bad[i] = cache->bad[--cache->bad_cnt];
		bad_push(cache, span.start_bytes, LP_MIN(span.end_bytes, offset_bytes));
		bad_push(cache, LP_MAX(span.start_bytes, end), span.end_bytes);
	}
}

void lpi_cache_spoil(struct lpi_cache *cache, uint64_t length_bytes, uint64_t offset_bytes)
{
	uint64_t start = lp_align_down(offset_bytes, cache->sector_bytes);
	uint64_t end = lp_align_up(offset_bytes + length_bytes, cache->sector_bytes);
	rewrite_bad(cache, end - start, start);
	bad_push(cache, start, end);
}

bool lpi_cache_is_bad(const struct lpi_cache *cache, uint64_t length_bytes, uint64_t offset_bytes)
{
	for (uint32_t i = 0; i < cache->bad_cnt; i++)
		if (cache->bad[i].start_bytes < offset_bytes + length_bytes &&
		    cache->bad[i].end_bytes > offset_bytes)
			return true;
	return false;
}

/* --- What reads see ----------------------------------------------------------------------------
 */

void lpi_cache_apply(const struct lpi_cache *cache, const struct lpi_rec *rec,
		     struct lpi_image *image)
{
	if (rec->effect == LPI_STORE && rec->result == 0) {
		lpi_image_write(image, rec->data, rec->length_bytes, rec->media_bytes);
		return;
	}
	for (uint64_t i = 0; i < rec->length_bytes / cache->sector_bytes; i++)
		if (reached(rec, i))
			apply_sector(rec, i, cache->sector_bytes, image);
}

void lpi_cache_view(const struct lpi_cache *cache, struct lpi_image *ret_image)
{
	const struct lpi_version *it;
	lpi_image_clone(&cache->base, ret_image);
	LP_LIST_FOREACH (lpi_versions, &cache->done, it) {
		apply_version(it, cache->sector_bytes, ret_image);
	}
}

bool lpi_cache_flies(const struct lpi_cache *cache, uint64_t length_bytes, uint64_t offset_bytes)
{
	const struct lpi_version *it;
	LP_LIST_FOREACH (lpi_versions, &cache->flying, it) {
		if (overlap(it->rec, length_bytes, offset_bytes))
			return true;
	}
	return false;
}

void lpi_cache_mix(const struct lpi_cache *cache, void *buf, uint64_t length_bytes,
		   uint64_t offset_bytes, struct lp_prng *prng)
{
	const struct lpi_version *it;
	uint32_t sector = cache->sector_bytes;
	LP_LIST_FOREACH (lpi_versions, &cache->flying, it) {
		const struct lpi_rec *rec = it->rec;
		uint64_t from = LP_MAX(rec->media_bytes, offset_bytes);
		uint64_t to =
			LP_MIN(rec->media_bytes + rec->length_bytes, offset_bytes + length_bytes);
		for (uint64_t at = from; at < to; at += sector) {
			unsigned char *dest = (unsigned char *)buf + (at - offset_bytes);
			if (lp_prng_chance(prng, 1, 2) || it->live_cnt == 0)
				continue;
			if (rec->effect == LPI_STORE)
				memcpy(dest, rec->data + (at - rec->media_bytes), sector);
			else
				memset(dest, 0, sector);
		}
	}
}

/* --- Cuts --------------------------------------------------------------------------------------
 */

enum fate { LOST, KEPT, TORN, GARBAGE };

/* Independent choices alone would hardly ever lose or keep all of many sectors, which are the
 * commonest outcomes in the world: so some cuts are of one mind, as a whole or per operation. */
enum mood { MOOD_LOSE_ALL, MOOD_KEEP_ALL, MOOD_BY_OPERATION, MOOD_BY_SECTOR };

struct cut {
	const struct lp_sim_profile *profile;
	struct lp_prng *prng;
	struct lpi_image *image;
	uint32_t sector_bytes;
	enum mood mood;
};

static enum mood draw_mood(struct lp_prng *prng)
{
	uint64_t draw = lp_prng_below(prng, 8);
	if (draw < 2)
		return draw == 0 ? MOOD_LOSE_ALL : MOOD_KEEP_ALL;
	return draw == 2 ? MOOD_BY_OPERATION : MOOD_BY_SECTOR;
}

static enum fate draw_whole(const struct cut *cut)
{
	if (cut->mood == MOOD_LOSE_ALL || cut->mood == MOOD_KEEP_ALL)
		return cut->mood == MOOD_KEEP_ALL ? KEPT : LOST;
	return lp_prng_chance(cut->prng, 1, 2) ? KEPT : LOST;
}

static enum fate draw_sector(const struct cut *cut, const struct lpi_rec *rec)
{
	bool store = rec->effect == LPI_STORE;
	bool hurts = store && !cut->profile->power_protected;
	if (hurts && cut->profile->tears_sectors && lp_prng_chance(cut->prng, 1, 8))
		return TORN;
	if (hurts && cut->profile->leaves_garbage && lp_prng_chance(cut->prng, 1, 8))
		return GARBAGE;
	return lp_prng_chance(cut->prng, 1, 2) ? KEPT : LOST;
}

static void cut_sector(const struct cut *cut, const struct lpi_rec *rec, uint64_t sector_idx,
		       enum fate fate)
{
	unsigned char buf[LPI_PAGE_BYTES];
	uint64_t at = sector_idx * cut->sector_bytes;
	uint32_t half = cut->sector_bytes / 2;
	switch (fate) {
	case LOST:
		return;
	case KEPT:
		apply_sector(rec, sector_idx, cut->sector_bytes, cut->image);
		return;
	case TORN:
		/* The first half or the second is new; the other stays as it was. */
		at += lp_prng_chance(cut->prng, 1, 2) ? half : 0;
		lpi_image_write(cut->image, rec->data + at, half, rec->media_bytes + at);
		return;
	case GARBAGE:
		lp_prng_fill(cut->prng, buf, cut->sector_bytes);
		lpi_image_write(cut->image, buf, cut->sector_bytes, rec->media_bytes + at);
		return;
	}
}

static void cut_version(const struct cut *cut, const struct lpi_version *version)
{
	const struct lpi_rec *rec = version->rec;
	bool one = cut->mood != MOOD_BY_SECTOR || (rec->atomic && rec->effect == LPI_STORE);
	enum fate fate = one ? draw_whole(cut) : LOST;
	if (rec->effect == LPI_FLIP)
		fate = KEPT; /* rot is in the medium, not in the cache */
	for (uint64_t i = 0; i < version->sector_cnt; i++) {
		if (!is_live(version, i))
			continue;
		if (!one && rec->effect != LPI_FLIP)
			fate = draw_sector(cut, rec);
		cut_sector(cut, rec, i, fate);
	}
}

/* The versions in flight in random order; *ret_cnt of them, to be freed. */
static struct lpi_version **shuffle_flying(const struct lpi_cache *cache, struct lp_prng *prng,
					   size_t *ret_cnt)
{
	size_t cnt = lpi_versions_count(&cache->flying);
	struct lpi_version **order = lpi_sim_alloc((cnt + 1) * sizeof(struct lpi_version *));
	struct lpi_version *it;
	size_t n = 0;
	LP_LIST_FOREACH (lpi_versions, &cache->flying, it) {
		size_t at = lp_prng_below(prng, n + 1);
		if (at != n)
			order[n] = order[at];
		order[at] = it;
		n++;
	}
	*ret_cnt = cnt;
	return order;
}

void lpi_cache_cut(const struct lpi_cache *cache, const struct lp_sim_profile *profile,
		   struct lp_prng *prng, struct lpi_cache *ret_cache)
{
	*ret_cache = (struct lpi_cache){.sector_bytes = cache->sector_bytes,
					.power_protected = profile->power_protected};
	lpi_image_clone(&cache->base, &ret_cache->base);
	lpi_versions_init(&ret_cache->done);
	lpi_versions_init(&ret_cache->flying);
	clone_bad(cache, ret_cache);
	struct cut cut = {.profile = profile,
			  .prng = prng,
			  .image = &ret_cache->base,
			  .sector_bytes = cache->sector_bytes,
			  .mood = draw_mood(prng)};
	const struct lpi_version *it;
	LP_LIST_FOREACH (lpi_versions, &cache->done, it) {
		cut_version(&cut, it);
	}
	size_t cnt = 0;
	struct lpi_version **flying = shuffle_flying(cache, prng, &cnt);
	for (size_t i = 0; i < cnt; i++)
		cut_version(&cut, flying[i]);
	free(flying);
}

void lpi_cache_crash(struct lpi_cache *cache, struct lp_prng *prng)
{
	size_t cnt = 0;
	struct lpi_version **flying = shuffle_flying(cache, prng, &cnt);
	struct lpi_version *it;
	LP_LIST_FOREACH (lpi_versions, &cache->done, it) {
		it->stamp = 0;
	}
	for (size_t i = 0; i < cnt; i++) {
		if (lp_prng_chance(prng, 1, 2))
			(void)complete_version(cache, flying[i], 0); /* it has no view to keep */
		else
			version_drop(flying[i]);
	}
	free(flying);
}
