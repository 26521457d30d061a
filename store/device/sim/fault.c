/* SPDX-License-Identifier: Apache-2.0 */
/* Rules decide at an operation's submission what will go wrong with it; what they decide is
 * written into the operation, which carries it out when it completes. All rules look at every
 * operation, in the order they were added, so that the counts of one do not depend on another. */
#include "store/device/sim/sim_impl.h"

#include <stdlib.h>

#include "base/hash.h"

#define OPS_WRITES (LP_SIM_OP(LP_BDEV_WRITE) | LP_SIM_OP(LP_BDEV_WRITE_THROUGH))
#define OPS_READS  LP_SIM_OP(LP_BDEV_READ)
#define OPS_ALL    (LP_SIM_OP(LP_BDEV_OPCODE_CNT) - 1)

/* The operations each fault is for. */
static const uint32_t fault_ops[LP_SIM_FAULT_CNT] = {
	[LP_SIM_EIO] = OPS_ALL,
	[LP_SIM_LATENT] = OPS_READS,
	[LP_SIM_ROT] = OPS_READS | OPS_WRITES,
	[LP_SIM_MISDIRECT] = OPS_WRITES,
	[LP_SIM_LOST] = OPS_WRITES,
	[LP_SIM_STALE] = OPS_READS,
	[LP_SIM_SLOW] = OPS_ALL,
	[LP_SIM_ENOSPC] = OPS_WRITES,
	[LP_SIM_VANISH] = OPS_ALL,
	[LP_SIM_FOREIGN] = OPS_ALL,
};

uint32_t lp_sim_rule_add(struct lp_sim *sim, const struct lp_sim_rule *rule)
{
	LP_ASSERT(rule->fault < LP_SIM_FAULT_CNT);
	LP_ASSERT((rule->opcode_mask & ~fault_ops[rule->fault]) == 0);
	LP_ASSERT(rule->fault != LP_SIM_MISDIRECT ||
		  (lp_is_aligned(rule->arg, sim->profile.sector_bytes) &&
		   rule->arg < sim->base.caps.size_bytes));
	lpi_sim_lock(sim);
	if (sim->rule_cnt == sim->rule_max) {
		sim->rule_max = LP_MAX(2 * sim->rule_max, 4u);
		sim->rules = lpi_sim_realloc(sim->rules, sim->rule_max * sizeof(*sim->rules));
	}
	struct lpi_rule *added = &sim->rules[sim->rule_cnt];
	*added = (struct lpi_rule){.rule = *rule};
	if (rule->opcode_mask == 0)
		added->rule.opcode_mask = fault_ops[rule->fault];
	if (rule->length_bytes == 0)
		added->rule.length_bytes = sim->base.caps.size_bytes - rule->offset_bytes;
	if (rule->fault == LP_SIM_STALE)
		lpi_image_clone(&sim->current, &added->then);
	uint32_t rule_idx = sim->rule_cnt++;
	lpi_sim_unlock(sim);
	return rule_idx;
}

uint64_t lp_sim_rule_fired(struct lp_sim *sim, uint32_t rule_idx)
{
	lpi_sim_lock(sim);
	LP_ASSERT(rule_idx < sim->rule_cnt);
	uint64_t fired_cnt = sim->rules[rule_idx].fired_cnt;
	lpi_sim_unlock(sim);
	return fired_cnt;
}

void lp_sim_rules_clear(struct lp_sim *sim)
{
	lpi_sim_lock(sim);
	lpi_sim_rules_fini(sim);
	lpi_sim_unlock(sim);
}

void lpi_sim_rules_fini(struct lp_sim *sim)
{
	for (uint32_t i = 0; i < sim->rule_cnt; i++)
		lpi_image_fini(&sim->rules[i].then);
	free(sim->rules);
	sim->rules = NULL;
	sim->rule_cnt = 0;
	sim->rule_max = 0;
}

/* Where the operation and the rule overlap; empty if nowhere. */
static struct lpi_span overlap(const struct lp_sim_rule *rule, const struct lpi_rec *rec)
{
	struct lpi_span span = {
		LP_MAX(rule->offset_bytes, rec->offset_bytes),
		LP_MIN(rule->offset_bytes + rule->length_bytes,
		       rec->offset_bytes + rec->length_bytes),
	};
	if (span.start_bytes >= span.end_bytes)
		span = (struct lpi_span){0, 0};
	return span;
}

static bool meets(const struct lp_sim_rule *rule, const struct lpi_rec *rec)
{
	if ((rule->opcode_mask & LP_SIM_OP(rec->opcode)) == 0)
		return false;
	return rec->opcode == LP_BDEV_FLUSH || overlap(rule, rec).end_bytes > 0;
}

static bool fires(struct lp_sim *sim, struct lpi_rule *rule, const struct lpi_rec *rec)
{
	if (!meets(&rule->rule, rec))
		return false;
	rule->met_cnt++;
	if (rule->met_cnt <= rule->rule.skip_cnt)
		return false;
	if (rule->rule.fire_cnt != 0 && rule->fired_cnt >= rule->rule.fire_cnt)
		return false;
	if (rule->rule.chance_ppm != 0 &&
	    !lp_prng_chance(&sim->fault_prng, rule->rule.chance_ppm, 1000000))
		return false;
	rule->fired_cnt++;
	return true;
}

static void misdirect(const struct lp_sim *sim, uint64_t to_bytes, struct lpi_rec *rec)
{
	uint64_t last = sim->base.caps.size_bytes - rec->length_bytes;
	rec->media_bytes = LP_MIN(to_bytes, last);
}

/* What it loses; nothing, unless it is one or has one. */
void lpi_sim_fail_flush(const struct lp_sim *sim, struct lpi_rec *rec, bool is_blocking)
{
	bool flushes =
		sim->profile.through_flushes || (is_blocking && !sim->profile.power_protected);
	bool is_through = rec->opcode == LP_BDEV_WRITE_THROUGH && flushes;
	rec->drops =
		(rec->opcode == LP_BDEV_FLUSH || is_through) && sim->profile.drops_on_failed_flush;
	rec->drops_flying = rec->drops && sim->profile.through_flushes;
}

static void strike(struct lp_sim *sim, const struct lpi_rule *rule, struct lpi_flight *flight)
{
	struct lpi_rec *rec = flight->rec;
	switch (rule->rule.fault) {
	case LP_SIM_EIO:
		rec->result = -EIO;
		lpi_sim_fail_flush(sim, rec, flight->op == NULL);
		break;
	case LP_SIM_LATENT:
		flight->spoil = overlap(&rule->rule, rec);
		break;
	case LP_SIM_ROT:
		flight->rot = overlap(&rule->rule, rec);
		flight->rot_bit_cnt = rule->rule.arg;
		break;
	case LP_SIM_MISDIRECT:
		misdirect(sim, rule->rule.arg, rec);
		break;
	case LP_SIM_LOST:
		rec->effect = LPI_NOTHING;
		break;
	case LP_SIM_STALE:
		lpi_image_fini(&flight->before);
		lpi_image_clone(&rule->then, &flight->before);
		flight->stale = true;
		break;
	case LP_SIM_SLOW:
		flight->extra_ns += rule->rule.arg;
		break;
	case LP_SIM_ENOSPC:
		rec->result = -ENOSPC;
		break;
	case LP_SIM_VANISH:
		sim->vanished = true;
		break;
	case LP_SIM_FOREIGN:
		flight->foreign = true;
		break;
	case LP_SIM_FAULT_CNT:
		LP_UNREACHABLE();
	}
}

void lpi_sim_plan(struct lp_sim *sim, struct lpi_flight *flight)
{
	struct lpi_rec *rec = flight->rec;
	for (uint32_t i = 0; i < sim->rule_cnt; i++)
		if (fires(sim, &sim->rules[i], rec))
			strike(sim, &sim->rules[i], flight);
	if (!sim->vanished)
		return;
	rec->effect = LPI_NOTHING;
	rec->result = -ENODEV;
	rec->drops = false;
	flight->foreign = false;
	flight->spoil = (struct lpi_span){0, 0};
	flight->rot = (struct lpi_span){0, 0};
}

/* --- Damage to the medium ----------------------------------------------------------------------
 */

static void set_bits(struct lp_sim *sim, unsigned char *mask, const struct lpi_span *span,
		     uint64_t base_bytes, uint64_t bit_cnt)
{
	uint64_t limit = (span->end_bytes - span->start_bytes) * 8;
	LP_ASSERT(bit_cnt <= limit);
	while (bit_cnt > 0) {
		uint64_t bit = lp_prng_below(&sim->fault_prng, limit) +
			       (span->start_bytes - base_bytes) * 8;
		unsigned char one = (unsigned char)(1u << (bit % 8));
		/* The same bit twice would be no rot at all. */
		bit_cnt -= (mask[bit / 8] & one) == 0;
		mask[bit / 8] |= one;
	}
}

static void rot(struct lp_sim *sim, const struct lpi_span *span, uint64_t bit_cnt)
{
	uint32_t sector = sim->profile.sector_bytes;
	uint64_t start = lp_align_down(span->start_bytes, sector);
	uint64_t len = lp_align_up(span->end_bytes, sector) - start;
	struct lpi_rec *rec = lpi_sim_rec_new(sim, LP_BDEV_WRITE, len, start);
	rec->effect = LPI_FLIP;
	rec->data = lpi_sim_alloc_zeroed(len);
	set_bits(sim, rec->data, span, start, bit_cnt);
	struct lp_sim_event info = {.type = LP_SIM_ROTTED,
				    .op_seq = rec->seq,
				    .offset_bytes = start,
				    .length_bytes = len,
				    .time_ns = sim->now_ns};
	uint64_t stamp = lpi_log_stamp(&sim->log);
	rec->stamp = stamp;
	lpi_log_push(sim, &info, rec, lp_hash_u64(rec->data, len, 0));
	lpi_cache_rot(&sim->cache, rec, stamp);
	lpi_cache_apply(&sim->cache, rec, &sim->current);
	lpi_rec_put(rec);
}

static void spoil(struct lp_sim *sim, const struct lpi_span *span)
{
	uint64_t len = span->end_bytes - span->start_bytes;
	struct lp_sim_event info = {.type = LP_SIM_SPOILED,
				    .offset_bytes = span->start_bytes,
				    .length_bytes = len,
				    .time_ns = sim->now_ns};
	lpi_log_push(sim, &info, NULL, 0);
	lpi_cache_spoil(&sim->cache, len, span->start_bytes);
}

bool lpi_sim_plan_rot(struct lp_sim *sim, const struct lpi_flight *flight)
{
	if (flight->rot.end_bytes == 0)
		return false;
	rot(sim, &flight->rot, flight->rot_bit_cnt);
	return true;
}

void lpi_sim_plan_spoil(struct lp_sim *sim, const struct lpi_flight *flight)
{
	if (flight->spoil.end_bytes > 0)
		spoil(sim, &flight->spoil);
}

void lp_sim_rot(struct lp_sim *sim, uint64_t length_bytes, uint64_t offset_bytes, uint64_t bit_cnt)
{
	struct lpi_span span = {offset_bytes, offset_bytes + length_bytes};
	LP_ASSERT(!lp_range_outside(offset_bytes, length_bytes, sim->base.caps.size_bytes));
	lpi_sim_lock(sim);
	rot(sim, &span, bit_cnt);
	lpi_sim_unlock(sim);
}

void lp_sim_spoil(struct lp_sim *sim, uint64_t length_bytes, uint64_t offset_bytes)
{
	struct lpi_span span = {offset_bytes, offset_bytes + length_bytes};
	LP_ASSERT(!lp_range_outside(offset_bytes, length_bytes, sim->base.caps.size_bytes));
	lpi_sim_lock(sim);
	spoil(sim, &span);
	lpi_sim_unlock(sim);
}
