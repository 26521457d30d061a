/* SPDX-License-Identifier: Apache-2.0 */
/* The device itself. An operation's life:
 *   begin   its data is captured, the rules decide its fate (device/sim/fault.c), its submission is
 *           logged, and it flies (device/sim/cache.c);
 *   wait    on its channel's heap until its random time has come;
 *   finish  reads get their data, writes take effect, the completion is logged;
 * then the owner is called, without the lock. A blocking call begins and finishes at once. */
#include "store/device/sim/sim_impl.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/sanitize.h"

/* Read buffers hold this from submission to completion, so that early looks show; long ones, which
 * are those of recoveries, where each block begins: whoever looks at a block looks there. */
#define UNREAD_BYTE       0xdb
#define UNREAD_LONG_MIN   65536u
#define UNREAD_HEAD_BYTES 64u

#define US LP_NS_PER_US
#define MS LP_NS_PER_MS

static const struct lp_sim_profile presets[LP_SIM_PRESET_CNT] = {
	[LP_SIM_CONSUMER] = {.name = "consumer",
			     .latency = {{60 * US, 200 * US},
					 {15 * US, 60 * US},
					 {400 * US, 2 * MS},
					 {500 * US, 5 * MS},
					 {100 * US, 1 * MS}},
			     .slow = {10 * MS, 100 * MS},
			     .slow_ppm = 500,
			     .sector_bytes = 4096},
	[LP_SIM_PROTECTED] = {.name = "protected",
			      .latency = {{60 * US, 120 * US},
					  {10 * US, 30 * US},
					  {10 * US, 30 * US},
					  {5 * US, 20 * US},
					  {20 * US, 100 * US}},
			      .slow = {1 * MS, 10 * MS},
			      .slow_ppm = 100,
			      .sector_bytes = 4096,
			      .atomic_write_bytes = 16384,
			      .power_protected = true},
	[LP_SIM_DISK] = {.name = "disk",
			 .latency = {{1 * MS, 15 * MS},
				     {20 * US, 10 * MS},
				     {4 * MS, 25 * MS},
				     {5 * MS, 60 * MS},
				     {1 * US, 2 * US}},
			 .slow = {100 * MS, 5000 * MS},
			 .slow_ppm = 200,
			 .sector_bytes = 512,
			 .physical_bytes = 4096,
			 .rotational = true,
			 .no_discard = true},
	[LP_SIM_HOSTILE] =
		{.name = "hostile",
		 .latency = {{1, 1 * MS}, {1, 1 * MS}, {1, 1 * MS}, {1, 1 * MS}, {1, 1 * MS}},
		 .slow = {1 * MS, 3000 * MS},
		 .slow_ppm = 5000,
		 .sector_bytes = 512,
		 .tears_sectors = true,
		 .leaves_garbage = true,
		 .drops_on_failed_flush = true},
};

const struct lp_sim_profile *lp_sim_preset(enum lp_sim_preset preset)
{
	LP_ASSERT(preset < LP_SIM_PRESET_CNT);
	return &presets[preset];
}

/* What is done under the lock is the device's doing. */
void lpi_sim_lock(const struct lp_sim *sim)
{
	/* Locking does not change what a const device promises to keep. */
	struct lp_sim *mutable = (struct lp_sim *)(uintptr_t)sim;
	int err = pthread_mutex_lock(&mutable->lock);
	LP_ASSERT(err == 0);
	lp_san_hide_begin();
}

void lpi_sim_unlock(const struct lp_sim *sim)
{
	struct lp_sim *mutable = (struct lp_sim *)(uintptr_t)sim;
	lp_san_hide_end();
	int err = pthread_mutex_unlock(&mutable->lock);
	LP_ASSERT(err == 0);
}

/* --- One operation -----------------------------------------------------------------------------
 */

struct lpi_rec *lpi_sim_rec_new(struct lp_sim *sim, enum lp_bdev_opcode opcode,
				uint64_t length_bytes, uint64_t offset_bytes)
{
	struct lpi_rec *rec = lpi_sim_alloc_zeroed(sizeof(*rec));
	atomic_init(&rec->refs, 1);
	rec->opcode = opcode;
	rec->seq = ++sim->op_cnt;
	rec->seed = lp_prng_u64(&sim->op_prng);
	rec->media_bytes = offset_bytes;
	rec->offset_bytes = offset_bytes;
	rec->length_bytes = length_bytes;
	return rec;
}

/* A write that lies in one aligned atomic unit is never torn (SIM12). */
static bool is_atomic(const struct lp_sim *sim, uint64_t length_bytes, uint64_t offset_bytes)
{
	uint64_t unit = sim->base.caps.atomic_write_bytes;
	return unit > sim->profile.sector_bytes &&
	       offset_bytes / unit == (offset_bytes + length_bytes - 1) / unit;
}

static unsigned char *gather(const struct iovec *iov, uint32_t iov_cnt, uint64_t length_bytes)
{
	unsigned char *data = lpi_sim_alloc(length_bytes);
	uint64_t at = 0;
	for (uint32_t i = 0; i < iov_cnt; i++) {
		memcpy(data + at, iov[i].iov_base, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	LP_ASSERT(at == length_bytes);
	return data;
}

/* Each piece on top of those before it; and what becomes of it, for a lost or misdirected write
 * leaves no other mark in the trace. */
static uint64_t hash_of(const struct lpi_flight *flight)
{
	uint64_t hash = flight->rec->media_bytes ^ (uint64_t)flight->rec->effect;
	for (uint32_t i = 0; i < flight->iov_cnt; i++)
		hash = lp_hash_u64(flight->iov[i].iov_base, flight->iov[i].iov_len, hash);
	return hash;
}

static void scatter(const struct iovec *iov, uint32_t iov_cnt, const unsigned char *data)
{
	for (uint32_t i = 0; i < iov_cnt; i++) {
		memcpy(iov[i].iov_base, data, iov[i].iov_len);
		data += iov[i].iov_len;
	}
}

/* The buffers are the device's: nobody may have changed them meanwhile (SIM6). */
static void assert_unchanged(const struct lpi_flight *flight)
{
	const unsigned char *data = flight->rec->data;
	for (uint32_t i = 0; i < flight->iov_cnt; i++) {
		LP_ASSERT(memcmp(flight->iov[i].iov_base, data, flight->iov[i].iov_len) == 0);
		data += flight->iov[i].iov_len;
	}
}

static bool is_write(enum lp_bdev_opcode opcode)
{
	return opcode == LP_BDEV_WRITE || opcode == LP_BDEV_WRITE_THROUGH;
}

static void make_unread(const struct lp_sim *sim, const struct iovec *piece)
{
	uint32_t sector = sim->profile.sector_bytes;
	size_t marked = piece->iov_len >= UNREAD_LONG_MIN ? UNREAD_HEAD_BYTES : sector;
	for (size_t at = 0; at < piece->iov_len; at += sector)
		memset((unsigned char *)piece->iov_base + at, UNREAD_BYTE,
		       LP_MIN(marked, piece->iov_len - at));
}

static void capture(struct lp_sim *sim, struct lpi_flight *flight)
{
	struct lpi_rec *rec = flight->rec;
	switch (rec->opcode) {
	case LP_BDEV_READ:
		lpi_image_clone(&sim->current, &flight->before);
		for (uint32_t i = 0; i < flight->iov_cnt; i++)
			make_unread(sim, &flight->iov[i]);
		break;
	case LP_BDEV_WRITE:
	case LP_BDEV_WRITE_THROUGH:
		rec->effect = LPI_STORE;
		rec->atomic = is_atomic(sim, rec->length_bytes, rec->offset_bytes);
		rec->data = gather(flight->iov, flight->iov_cnt, rec->length_bytes);
		break;
	case LP_BDEV_DISCARD:
		rec->effect = sim->profile.no_discard ? LPI_NOTHING : LPI_ZERO;
		rec->result = sim->profile.no_discard ? -EOPNOTSUPP : 0;
		break;
	case LP_BDEV_FLUSH:
	case LP_BDEV_OPCODE_CNT:
		break;
	}
}

static void log_op(struct lp_sim *sim, enum lp_sim_event_type type, struct lpi_rec *rec,
		   uint64_t data_hash, int result)
{
	struct lp_sim_event info = {.type = type,
				    .opcode = rec->opcode,
				    .result = result,
				    .op_seq = rec->seq,
				    .offset_bytes = rec->offset_bytes,
				    .length_bytes = rec->length_bytes,
				    .time_ns = sim->now_ns};
	bool replays = rec->opcode != LP_BDEV_READ;
	lpi_log_push(sim, &info, replays ? rec : NULL, data_hash);
}

static void begin(struct lp_sim *sim, struct lpi_flight *flight)
{
	struct lpi_rec *rec = flight->rec;
	capture(sim, flight);
	lpi_sim_plan(sim, flight);
	rec->stamp = lpi_log_stamp(&sim->log);
	log_op(sim, LP_SIM_SUBMIT, rec, is_write(rec->opcode) ? hash_of(flight) : 0, 0);
	lpi_cache_submit(&sim->cache, rec);
}

/* Where a write completed during the read, either content may have been met (SIM5). */
static void mix_before(struct lp_sim *sim, const struct lpi_flight *flight, unsigned char *data)
{
	const struct lpi_rec *rec = flight->rec;
	uint32_t sector = sim->profile.sector_bytes;
	if (flight->before.root == sim->current.root)
		return;
	unsigned char *old = lpi_sim_alloc(rec->length_bytes);
	lpi_image_read(&flight->before, old, rec->length_bytes, rec->offset_bytes);
	for (uint64_t at = 0; at < rec->length_bytes; at += sector)
		if (memcmp(data + at, old + at, sector) != 0 &&
		    lp_prng_chance(&sim->read_prng, 1, 2))
			memcpy(data + at, old + at, sector);
	free(old);
}

/* What was there all the time, and no write in flight may be seen. */
static bool is_settled(const struct lp_sim *sim, const struct lpi_flight *flight)
{
	const struct lpi_rec *rec = flight->rec;
	return !flight->stale && flight->before.root == sim->current.root &&
	       !lpi_cache_flies(&sim->cache, rec->length_bytes, rec->offset_bytes);
}

/* The contents as this read sees them. */
static void read_mixed(struct lp_sim *sim, const struct lpi_flight *flight)
{
	const struct lpi_rec *rec = flight->rec;
	unsigned char *data = lpi_sim_alloc(rec->length_bytes);
	if (flight->stale) {
		lpi_image_read(&flight->before, data, rec->length_bytes, rec->offset_bytes);
	} else {
		lpi_image_read(&sim->current, data, rec->length_bytes, rec->offset_bytes);
		mix_before(sim, flight, data);
		lpi_cache_mix(&sim->cache, data, rec->length_bytes, rec->offset_bytes,
			      &sim->read_prng);
	}
	scatter(flight->iov, flight->iov_cnt, data);
	free(data);
}

/* Most reads are such, and the longest: they are spared the copy. */
static void read_settled(const struct lp_sim *sim, const struct lpi_flight *flight)
{
	uint64_t at = flight->rec->offset_bytes;
	for (uint32_t i = 0; i < flight->iov_cnt; i++) {
		lpi_image_read(&sim->current, flight->iov[i].iov_base, flight->iov[i].iov_len, at);
		at += flight->iov[i].iov_len;
	}
}

static int finish_read(struct lp_sim *sim, struct lpi_flight *flight)
{
	struct lpi_rec *rec = flight->rec;
	uint64_t hash = 0;
	int result = rec->result;
	lpi_sim_plan_spoil(sim, flight);
	if (lpi_sim_plan_rot(sim, flight) && !flight->stale) {
		/* What was there before the rot is no choice any more. */
		lpi_image_fini(&flight->before);
		lpi_image_clone(&sim->current, &flight->before);
	}
	if (result == 0 && lpi_cache_is_bad(&sim->cache, rec->length_bytes, rec->offset_bytes))
		result = -EIO;
	if (result == 0) {
		/* What is settled follows from the writes before it, which the trace has. */
		if (is_settled(sim, flight)) {
			read_settled(sim, flight);
		} else {
			read_mixed(sim, flight);
			hash = hash_of(flight);
		}
	}
	log_op(sim, LP_SIM_COMPLETE, rec, hash, result);
	return result;
}

static int finish_other(struct lp_sim *sim, const struct lpi_flight *flight)
{
	struct lpi_rec *rec = flight->rec;
	uint64_t stamp = lpi_log_stamp(&sim->log);
	if (is_write(rec->opcode))
		assert_unchanged(flight);
	log_op(sim, LP_SIM_COMPLETE, rec, 0, rec->result);
	bool is_there = lpi_cache_complete(&sim->cache, rec, stamp);
	if (rec->drops) {
		lpi_image_fini(&sim->current);
		lpi_cache_view(&sim->cache, &sim->current);
	} else if (is_there) {
		lpi_cache_apply(&sim->cache, rec, &sim->current);
	}
	(void)lpi_sim_plan_rot(sim, flight); /* whether it struck matters to reads only */
	return rec->result;
}

/* Whoever else uses the device flushes it, in vain. */
static void foreign_flush(struct lp_sim *sim)
{
	const struct lp_bdev_failure failure = {.opcode = LP_BDEV_FLUSH, .result = -EIO};
	struct lpi_flight flight = {.rec = lpi_sim_rec_new(sim, LP_BDEV_FLUSH, 0, 0)};
	struct lpi_rec *rec = flight.rec;
	rec->stamp = lpi_log_stamp(&sim->log);
	rec->result = failure.result;
	lpi_sim_fail_flush(sim, rec, true);
	log_op(sim, LP_SIM_SUBMIT, rec, 0, 0);
	(void)finish_other(sim, &flight); /* it fails */
	lpi_bdev_note_failure(&sim->base, &failure);
	lpi_rec_put(rec);
}

static int finish(struct lp_sim *sim, struct lpi_flight *flight)
{
	if (flight->foreign)
		foreign_flush(sim);
	return flight->rec->opcode == LP_BDEV_READ ? finish_read(sim, flight)
						   : finish_other(sim, flight);
}

static void flight_fini(struct lpi_flight *flight)
{
	lpi_rec_put(flight->rec);
	lpi_image_fini(&flight->before);
}

/* --- The heap of a channel ---------------------------------------------------------------------
 */

static bool is_sooner(const struct lpi_flight *a, const struct lpi_flight *b)
{
	if (a->due_ns != b->due_ns)
		return a->due_ns < b->due_ns;
	return a->rec->seq < b->rec->seq;
}

static void swap(struct lpi_flight **a, struct lpi_flight **b)
{
	struct lpi_flight *tmp = *a;
	*a = *b;
	*b = tmp;
}

static void heap_push(struct lpi_sim_chan *chan, struct lpi_flight *flight)
{
	if (chan->heap_cnt == chan->heap_max) {
		chan->heap_max = LP_MAX(2 * chan->heap_max, (size_t)16);
		chan->heap =
			lpi_sim_realloc(chan->heap, chan->heap_max * sizeof(struct lpi_flight *));
	}
	size_t at = chan->heap_cnt++;
	chan->heap[at] = flight;
	while (at > 0 && is_sooner(chan->heap[at], chan->heap[(at - 1) / 2])) {
		swap(&chan->heap[at], &chan->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
}

static struct lpi_flight *heap_pop(struct lpi_sim_chan *chan)
{
	LP_ASSERT(chan->heap_cnt > 0);
	struct lpi_flight *top = chan->heap[0];
	chan->heap[0] = chan->heap[--chan->heap_cnt];
	for (size_t at = 0;;) {
		size_t child = 2 * at + 1;
		if (child >= chan->heap_cnt)
			return top;
		if (child + 1 < chan->heap_cnt &&
		    is_sooner(chan->heap[child + 1], chan->heap[child]))
			child++;
		if (!is_sooner(chan->heap[child], chan->heap[at]))
			return top;
		swap(&chan->heap[child], &chan->heap[at]);
		at = child;
	}
}

/* --- Channels ----------------------------------------------------------------------------------
 */

static struct lp_sim *sim_of(const struct lp_bdev *bdev)
{
	/* Cast through uintptr_t: the kind's own struct is never const. */
	return LP_CONTAINER_OF((struct lp_bdev *)(uintptr_t)bdev, struct lp_sim, base);
}

static struct lpi_sim_chan *chan_of(struct lp_bdev_chan *chan)
{
	return LP_CONTAINER_OF(chan, struct lpi_sim_chan, base);
}

static uint64_t draw_latency(struct lp_sim *sim, enum lp_bdev_opcode opcode)
{
	const struct lp_sim_profile *profile = &sim->profile;
	const struct lp_sim_latency *usual = &profile->latency[opcode];
	uint64_t ns = lp_prng_between(&sim->latency_prng, usual->low_ns, usual->high_ns);
	bool slow = lp_prng_chance(&sim->latency_prng, profile->slow_ppm, 1000000);
	/* Drawn in any case, so that one slow operation does not move all later draws. */
	uint64_t more =
		lp_prng_between(&sim->latency_prng, profile->slow.low_ns, profile->slow.high_ns);
	if (slow)
		ns += more;
	return LP_MAX(ns, UINT64_C(1)); /* never in the turn of the submission (SIM2) */
}

static void sim_submit(struct lp_bdev_chan *base, struct lp_bdev_op *op)
{
	struct lpi_sim_chan *chan = chan_of(base);
	struct lp_sim *sim = sim_of(base->bdev);
	lpi_sim_lock(sim);
	if (sim->off) {
		/* After a cut nothing completes, and nothing keeps the channel from going. */
		base->inflight--;
		lpi_sim_unlock(sim);
		return;
	}
	struct lpi_flight *flight = lpi_sim_alloc_zeroed(sizeof(*flight));
	uint64_t length_bytes = op->opcode == LP_BDEV_FLUSH ? 0 : op->length_bytes;
	uint64_t offset_bytes = op->opcode == LP_BDEV_FLUSH ? 0 : op->offset_bytes;
	sim->now_ns = LP_MAX(sim->now_ns, lp_reactor_now_ns(base->reactor));
	flight->op = op;
	flight->iov = op->iov;
	flight->iov_cnt = op->iov_cnt;
	flight->rec = lpi_sim_rec_new(sim, op->opcode, length_bytes, offset_bytes);
	begin(sim, flight);
	flight->due_ns =
		lp_reactor_now_ns(base->reactor) + draw_latency(sim, op->opcode) + flight->extra_ns;
	heap_push(chan, flight);
	lpi_sim_unlock(sim);
}

/* The next operation that is due, finished; NULL if none is. */
static struct lp_bdev_op *finish_next(struct lpi_sim_chan *chan, int *ret_result)
{
	struct lp_sim *sim = sim_of(chan->base.bdev);
	struct lp_bdev_op *op = NULL;
	uint64_t now_ns = lp_reactor_now_ns(chan->base.reactor);
	lpi_sim_lock(sim);
	sim->now_ns = LP_MAX(sim->now_ns, now_ns);
	if (chan->heap_cnt > 0 && chan->heap[0]->due_ns <= now_ns) {
		struct lpi_flight *flight = heap_pop(chan);
		*ret_result = finish(sim, flight);
		op = flight->op;
		flight_fini(flight);
		free(flight);
	}
	lpi_sim_unlock(sim);
	return op;
}

static uint32_t sim_poll(struct lp_source *source, uint32_t budget)
{
	struct lpi_sim_chan *chan = LP_CONTAINER_OF(source, struct lpi_sim_chan, source);
	uint32_t done = 0;
	chan->polling = true;
	while (done < budget) {
		int result = 0;
		struct lp_bdev_op *op = finish_next(chan, &result);
		if (op == NULL)
			break;
		lpi_bdev_complete(op, result);
		done++;
	}
	chan->polling = false;
	return done;
}

static uint64_t sim_next_ns(const struct lp_source *source)
{
	/* Only read here. */
	struct lp_source *mutable = (struct lp_source *)(uintptr_t)source;
	struct lpi_sim_chan *chan = LP_CONTAINER_OF(mutable, struct lpi_sim_chan, source);
	return chan->heap_cnt > 0 ? chan->heap[0]->due_ns : UINT64_MAX;
}

static int sim_attach(struct lp_bdev *bdev, struct lp_reactor *reactor,
		      struct lp_bdev_chan **ret_chan)
{
	struct lp_sim *sim = sim_of(bdev);
	struct lpi_sim_chan *chan = lpi_sim_alloc_zeroed(sizeof(*chan));
	chan->source.name = "bdev-sim";
	chan->source.budget = LP_REACTOR_BUDGET;
	chan->source.poll = sim_poll;
	chan->source.next_ns = sim_next_ns;
	lp_source_add(reactor, &chan->source);
	lpi_sim_lock(sim);
	lpi_sim_chans_push_back(&sim->chans, chan);
	lpi_sim_unlock(sim);
	*ret_chan = &chan->base;
	return 0;
}

static void sim_detach(struct lp_bdev_chan *base)
{
	struct lpi_sim_chan *chan = chan_of(base);
	struct lp_sim *sim = sim_of(base->bdev);
	LP_ASSERT(chan->heap_cnt == 0);
	LP_ASSERT(!chan->polling);
	lp_source_remove(base->reactor, &chan->source);
	lpi_sim_lock(sim);
	lpi_sim_chans_remove(chan);
	lpi_sim_unlock(sim);
	free(chan->heap);
	free(chan);
}

void lpi_sim_switch_off(struct lp_sim *sim)
{
	struct lpi_sim_chan *chan;
	LP_LIST_FOREACH (lpi_sim_chans, &sim->chans, chan) {
		while (chan->heap_cnt > 0) {
			struct lpi_flight *flight = heap_pop(chan);
			flight_fini(flight);
			free(flight);
		}
		chan->base.inflight = 0;
	}
	sim->off = true;
}

/* --- The device --------------------------------------------------------------------------------
 */

static int sim_sync(struct lp_bdev *bdev, enum lp_bdev_opcode opcode, void *buf,
		    uint64_t length_bytes, uint64_t offset_bytes)
{
	struct lp_sim *sim = sim_of(bdev);
	struct iovec one = {.iov_base = buf, .iov_len = length_bytes};
	struct lpi_flight flight = {.iov = &one, .iov_cnt = 1};
	int result = -ENODEV;
	lpi_sim_lock(sim);
	if (!sim->off) {
		flight.rec = lpi_sim_rec_new(sim, opcode, length_bytes, offset_bytes);
		begin(sim, &flight);
		result = finish(sim, &flight);
		flight_fini(&flight);
	}
	lpi_sim_unlock(sim);
	return result;
}

static int sim_refresh_size(struct lp_bdev *bdev)
{
	struct lp_sim *sim = sim_of(bdev);
	lpi_sim_lock(sim);
	int err = sim->off || sim->vanished ? -ENODEV : 0;
	lpi_sim_unlock(sim);
	return err;
}

static void sim_close(struct lp_bdev *bdev)
{
	struct lp_sim *sim = sim_of(bdev);
	LP_ASSERT(lpi_sim_chans_is_empty(&sim->chans));
	lp_san_hide_begin();
	lpi_sim_rules_fini(sim);
	lpi_log_fini(&sim->log);
	lpi_cache_fini(&sim->cache);
	lpi_image_fini(&sim->current);
	lp_san_hide_end();
	int err = pthread_mutex_destroy(&sim->lock);
	LP_ASSERT(err == 0);
	free(sim);
}

static const struct lp_bdev_kind sim_kind = {
	.name = "sim",
	.close = sim_close,
	.refresh_size = sim_refresh_size,
	.attach = sim_attach,
	.detach = sim_detach,
	.submit = sim_submit,
	.sync = sim_sync,
};

struct lp_sim *lp_sim_of(struct lp_bdev *bdev)
{
	LP_ASSERT(bdev->kind == &sim_kind);
	return sim_of(bdev);
}

static bool is_sector_multiple(uint32_t bytes, uint32_t sector_bytes)
{
	return bytes == 0 || (lp_is_power_of_two(bytes) && bytes >= sector_bytes);
}

bool lpi_sim_profile_is_valid(const struct lp_sim_profile *profile)
{
	uint32_t sector_bytes = profile->sector_bytes;
	if (sector_bytes != 512 && sector_bytes != 4096)
		return false;
	if (!is_sector_multiple(profile->physical_bytes, sector_bytes) ||
	    !is_sector_multiple(profile->atomic_write_bytes, sector_bytes))
		return false;
	if (profile->through_flushes && profile->power_protected)
		return false;
	for (int i = 0; i < LP_BDEV_OPCODE_CNT; i++)
		if (profile->latency[i].low_ns > profile->latency[i].high_ns)
			return false;
	return profile->slow.low_ns <= profile->slow.high_ns && profile->slow_ppm <= 1000000;
}

static void init_caps(struct lp_sim *sim, uint64_t size_bytes)
{
	const struct lp_sim_profile *profile = &sim->profile;
	uint32_t sector_bytes = profile->sector_bytes;
	sim->base.caps = (struct lp_bdev_caps){
		.size_bytes = size_bytes,
		.block_bytes = sector_bytes,
		.physical_bytes = LP_MAX(profile->physical_bytes, sector_bytes),
		.atomic_write_bytes = LP_MAX(profile->atomic_write_bytes, sector_bytes),
		.volatile_cache = !profile->power_protected,
		.through_flushes = profile->through_flushes,
		.rotational = profile->rotational,
		.can_discard = !profile->no_discard,
		.is_file = profile->is_file,
	};
}

struct lp_sim *lpi_sim_new(const struct lp_sim_profile *profile, uint64_t seed, bool metadata_only,
			   struct lpi_cache *take_cache)
{
	struct lp_sim *sim = lpi_sim_alloc_zeroed(sizeof(*sim));
	struct lp_prng root;
	char name[64];
	/* A longer name is cut: it is only shown. */
	(void)snprintf(name, sizeof(name), "sim:%s",
		       profile->name != NULL ? profile->name : "unnamed");
	lpi_bdev_init(&sim->base, &sim_kind, name);
	int err = pthread_mutex_init(&sim->lock, NULL);
	LP_ASSERT(err == 0);
	sim->profile = *profile;
	init_caps(sim, take_cache->base.size_bytes);
	lp_prng_init(&root, seed);
	lp_prng_fork(&root, 1, &sim->latency_prng);
	lp_prng_fork(&root, 2, &sim->read_prng);
	lp_prng_fork(&root, 3, &sim->fault_prng);
	lp_prng_fork(&root, 4, &sim->op_prng);
	lpi_sim_chans_init(&sim->chans);
	struct lpi_cache start;
	lpi_cache_clone(take_cache, &start);
	lpi_log_init(&sim->log, metadata_only, &start);
	lpi_cache_clone(take_cache, &sim->cache);
	lpi_cache_fini(take_cache);
	lpi_cache_view(&sim->cache, &sim->current);
	return sim;
}

int lp_bdev_open_sim(const struct lp_sim_options *options, struct lp_bdev **ret_bdev)
{
	const struct lp_sim_profile *profile = options->profile;
	if (!lpi_sim_profile_is_valid(profile) || options->size_bytes == 0 ||
	    !lp_is_aligned(options->size_bytes, profile->sector_bytes))
		return -EINVAL;
	struct lpi_cache cache;
	lpi_cache_init(&cache, options->size_bytes, profile->sector_bytes,
		       profile->power_protected);
	struct lp_sim *sim =
		lpi_sim_new(profile, options->seed, options->log_metadata_only, &cache);
	*ret_bdev = &sim->base;
	return 0;
}
