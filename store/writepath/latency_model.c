/* SPDX-License-Identifier: Apache-2.0 */
/* The header argues the model; here is how its numbers come about.
 *
 * Guesses: a table of what one expects of a disk or of flash, each a fixed time and a time per
 * byte. They are wrong in size, often by a factor of ten, but right in shape: so a class that has
 * no samples on both sides is taken to be off by the same factor as the nearest that has some, and
 * else as the other kind of write is. Between classes with samples, and for bytes between classes,
 * an estimate lies on the line through both.
 *
 * A sample belongs to the class nearest to its bytes, and is scaled to that class's size by the
 * guesses. (By the estimates it would be taught by what it teaches, and drifts.) It teaches load
 * only in a row of its like: one small frame between large data writes waits for them, and says
 * nothing of itself.
 *
 * Doubles: nothing here is a count, and no result is compared between machines. */
#include "store/writepath/latency_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "store/record/keys.h"

#define CLASS_BYTES_MIN UINT64_C(4096)
#define FRAMES_MAX      2u  /* of the commit pipeline in flight */
#define PLACES_MAX      32u /* of write-back in flight */
#define ORDERED_MIN     8u /* in a frame: who does not wait for it brings the next ones meanwhile */
#define CNT_MAX         8u /* samples until the weight stays at 1 / CNT_MAX */
#define NS_MIN          1.0
#define NS_MAX          1e12
#define LOOK_MAX        0.25 /* what one look may add to a lean */
#define RUN_MAX         16u  /* of the same in a row: what is beside a sample is like it */
#define SHALLOW_MAX     2u   /* a queue this deep teaches idle */
#define CERTAIN         0.5  /* of a sample's time is known: it teaches, also what was expected */
/* What a write waits for that is not alone, found by simulation (see the test): a part of the
 * frames on their way, and, with others that come one by one, of the flush under way, which does
 * not cover it, and of the data before it. */
#define FRAME_WAIT        1.25
#define STAGE_WAIT        1.5
#define QUEUE_WAIT        0.125
#define SORTED_SAVES      0.25 /* of getting to the place, on a rotational device */
#define THREAD_FACTOR_MAX 16.0
#define PS_PER_NS         1000.0
#define PS_MAX            UINT64_C(1000000000000000)

/* --- Guesses ---------------------------------------------------------------------------------- */

struct guess {
	double idle_ns;
	double load_ns; /* of the fixed part */
	double byte_ns; /* in both */
};

static const struct guess disk_guesses[LP_POLICY_KIND_CNT] = {
	[LP_POLICY_LOG_WRITE] = {8e6, 8e6, 7},
	[LP_POLICY_DATA_WRITE] = {8e6, 8e6, 7},
	[LP_POLICY_PLACE_WRITE] = {8e6, 8e6, 7},
	[LP_POLICY_FLUSH] = {8e6, 8e6, 0},
};

static const struct guess flash_guesses[LP_POLICY_KIND_CNT] = {
	[LP_POLICY_LOG_WRITE] = {30e3, 2e3, 1},
	[LP_POLICY_DATA_WRITE] = {30e3, 2e3, 1},
	[LP_POLICY_PLACE_WRITE] = {30e3, 2e3, 1},
	[LP_POLICY_FLUSH] = {500e3, 100e3, 0},
};

/* What a write takes of the shard's thread, its write-back included (docs/facts.md): a direct one
 * finds new space, frees the old and waits twice; a deferred one is work for each of its blocks. */
struct thread_guess {
	double fixed_ns;
	double byte_ns;
};
static const struct thread_guess deferred_thread = {4e3, 0.40};
static const struct thread_guess direct_thread = {9.5e3, 0.02};

/* Where a write-through is a write and a flush, as it is on most flash with a volatile cache. */
static const struct guess volatile_log_guess = {530e3, 50e3, 1};

static struct guess guess_of(const struct lp_policy *policy, enum lp_policy_kind kind)
{
	if (policy->is_rotational)
		return disk_guesses[kind];
	if (kind == LP_POLICY_LOG_WRITE && policy->volatile_cache)
		return volatile_log_guess;
	return flash_guesses[kind];
}

/* --- Estimates -------------------------------------------------------------------------------- */

struct times {
	double idle_ns;
	double load_ns;
};

enum number { IDLE, LOAD };

static uint64_t class_bytes(uint32_t class_idx)
{
	return CLASS_BYTES_MIN << class_idx;
}

/* Rounded up; longer ones are in the last. */
uint32_t lp_policy_class_idx(uint64_t bytes)
{
	uint32_t class_idx = 0;
	while (class_idx < LP_POLICY_CLASS_CNT - 1 && class_bytes(class_idx) < bytes)
		class_idx++;
	return class_idx;
}

/* For samples: by ratio, so that none is further off than the root of two. */
static uint32_t nearest_class(uint64_t bytes)
{
	uint32_t class_idx = lp_policy_class_idx(bytes);
	bool is_low = class_idx > 0 && (double)bytes * M_SQRT2 < (double)class_bytes(class_idx);
	return is_low ? class_idx - 1 : class_idx;
}

static double guessed_ns(const struct lp_policy *policy, enum lp_policy_kind kind,
			 enum number number, uint64_t bytes)
{
	struct guess guess = guess_of(policy, kind);
	double fixed_ns = number == IDLE ? guess.idle_ns : guess.load_ns;
	return fixed_ns + guess.byte_ns * (double)bytes;
}

static const struct lp_policy_estimate *estimate_at(const struct lp_policy *policy,
						    enum lp_policy_kind kind, enum number number,
						    uint32_t class_idx)
{
	LP_ASSERT(class_idx < LP_POLICY_CLASS_CNT);
	const struct lp_policy_cell *cell = &policy->cells[kind][class_idx];
	return number == IDLE ? &cell->idle : &cell->load;
}

/* The nearest classes with samples, at or below and at or above; false when there are none. Where
 * there is one on one side only it is both. */
static bool find_near(const struct lp_policy *policy, enum lp_policy_kind kind, enum number number,
		      uint32_t class_idx, uint32_t ret_near[2])
{
	uint32_t low = class_idx + 1; /* one too many */
	while (low > 0 && estimate_at(policy, kind, number, low - 1)->cnt == 0)
		low--;
	uint32_t high = class_idx;
	while (high < LP_POLICY_CLASS_CNT && estimate_at(policy, kind, number, high)->cnt == 0)
		high++;
	bool has_low = low > 0;
	bool has_high = high < LP_POLICY_CLASS_CNT;
	if (!has_low && !has_high)
		return false;
	ret_near[0] = has_low ? low - 1 : high;
	ret_near[1] = has_high ? high : low - 1;
	return true;
}

static uint64_t guess_bytes(enum lp_policy_kind kind, uint32_t class_idx)
{
	return kind == LP_POLICY_FLUSH ? 0 : class_bytes(class_idx);
}

/* How many times as long as was guessed the nearest with samples is. */
static bool find_factor(const struct lp_policy *policy, enum lp_policy_kind kind,
			enum number number, uint32_t class_idx, double *ret_factor)
{
	uint32_t near[2];
	if (!find_near(policy, kind, number, class_idx, near))
		return false;
	uint32_t nearest = class_idx - near[0] <= near[1] - class_idx ? near[0] : near[1];
	*ret_factor = estimate_at(policy, kind, number, nearest)->ns /
		      guessed_ns(policy, kind, number, guess_bytes(kind, nearest));
	return true;
}

/* Without samples of the number for the kind on both sides of the class. */
static double made_up_ns(const struct lp_policy *policy, enum lp_policy_kind kind,
			 enum number number, uint32_t class_idx)
{
	double factor = 1;
	double guess_ns = guessed_ns(policy, kind, number, guess_bytes(kind, class_idx));
	enum lp_policy_kind other =
		kind == LP_POLICY_LOG_WRITE ? LP_POLICY_DATA_WRITE : LP_POLICY_LOG_WRITE;
	/* Flushes are like nothing else; nor is what is sorted and not written through. */
	bool has_other = kind == LP_POLICY_LOG_WRITE || kind == LP_POLICY_DATA_WRITE;
	bool is_found = find_factor(policy, kind, number, class_idx, &factor) ||
			(has_other && find_factor(policy, other, number, class_idx, &factor));
	/* Nothing was ever seen among others: as far off as it is alone. */
	if (!is_found && number == LOAD)
		(void)find_factor(policy, kind, IDLE, class_idx, &factor); /* or as guessed */
	return factor * guess_ns;
}

static double class_ns(const struct lp_policy *policy, enum lp_policy_kind kind, enum number number,
		       uint32_t class_idx)
{
	const struct lp_policy_estimate *own = estimate_at(policy, kind, number, class_idx);
	if (LP_LIKELY(own->cnt > 0))
		return own->ns; /* as would come out below: it is the nearest on both sides */
	uint32_t near[2];
	bool is_known = find_near(policy, kind, number, class_idx, near);
	bool is_between = is_known && near[0] <= class_idx && near[1] >= class_idx;
	if (!is_between)
		return made_up_ns(policy, kind, number, class_idx);
	double low_ns = estimate_at(policy, kind, number, near[0])->ns;
	if (near[0] == near[1])
		return low_ns;
	double high_ns = estimate_at(policy, kind, number, near[1])->ns;
	double part = (double)(class_bytes(class_idx) - class_bytes(near[0])) /
		      (double)(class_bytes(near[1]) - class_bytes(near[0]));
	return low_ns + (high_ns - low_ns) * part;
}

static struct times times_of_class(const struct lp_policy *policy, enum lp_policy_kind kind,
				   uint32_t class_idx)
{
	double idle_ns = LP_MAX(class_ns(policy, kind, IDLE, class_idx), NS_MIN);
	double load_ns = class_ns(policy, kind, LOAD, class_idx);
	/* A device that does one thing at a time takes as long for each of many as for one. */
	return (struct times){idle_ns, LP_MIN(load_ns, idle_ns)};
}

/* On the line through the classes on both sides; beyond the last one in proportion. */
static struct times times_of(const struct lp_policy *policy, enum lp_policy_kind kind,
			     uint64_t bytes)
{
	uint32_t class_idx = lp_policy_class_idx(bytes);
	struct times high = times_of_class(policy, kind, class_idx);
	double ratio = (double)bytes / (double)class_bytes(class_idx);
	if (ratio > 1)
		return (struct times){high.idle_ns * ratio, high.load_ns * ratio};
	if (class_idx == 0)
		return high;
	struct times low = times_of_class(policy, kind, class_idx - 1);
	double part = 2 * ratio - 1; /* the class below has half of the bytes */
	return (struct times){low.idle_ns + (high.idle_ns - low.idle_ns) * part,
			      low.load_ns + (high.load_ns - low.load_ns) * part};
}

/* --- Learning --------------------------------------------------------------------------------- */

/* expected_ns is the estimate, made up where there was none. floor_ns keeps an estimate near 0 able
 * to grow. */
static void learn(struct lp_policy_estimate *estimate, double expected_ns, double floor_ns,
		  double sample_ns)
{
	double cut = estimate->cnt < CNT_MAX ? 4 : 2;
	double most_ns = LP_MAX(expected_ns, floor_ns) * cut;
	sample_ns = LP_MIN(LP_MAX(sample_ns, expected_ns / cut), most_ns);
	uint32_t weight = LP_MIN(estimate->cnt + 2u, CNT_MAX);
	estimate->ns = LP_MIN(expected_ns + (sample_ns - expected_ns) / weight, NS_MAX);
	if (estimate->cnt < CNT_MAX)
		estimate->cnt++;
}

/* How many of the same came in a row, this one included. */
static void note_run(struct lp_policy *policy, enum lp_policy_kind kind, uint32_t class_idx)
{
	bool is_same = policy->run_kind == kind && policy->run_class == class_idx;
	policy->run_cnt = is_same ? LP_MIN(policy->run_cnt + 1, RUN_MAX) : 1;
	policy->run_kind = kind;
	policy->run_class = class_idx;
}

static double within(double least, double value, double most)
{
	return LP_MIN(LP_MAX(value, least), most);
}

void lp_policy_observe(struct lp_policy *policy, enum lp_policy_kind kind, uint64_t bytes,
		       uint32_t depth, uint64_t ns, uint64_t waited_ns)
{
	LP_ASSERT(kind < LP_POLICY_KIND_CNT);
	LP_ASSERT(depth > 0 && (bytes > 0 || kind == LP_POLICY_FLUSH));
	uint32_t class_idx = kind == LP_POLICY_FLUSH ? 0 : nearest_class(bytes);
	struct lp_policy_cell *cell = &policy->cells[kind][class_idx];
	struct times expected = times_of_class(policy, kind, class_idx);
	double sample_ns = within(NS_MIN, (double)ns, NS_MAX);
	double certain_ns = LP_MIN((double)waited_ns, sample_ns);
	bool is_certain = certain_ns >= sample_ns * CERTAIN;
	if (kind != LP_POLICY_FLUSH) { /* as if it had been of its class's size */
		double scale = guessed_ns(policy, kind, IDLE, class_bytes(class_idx)) /
			       guessed_ns(policy, kind, IDLE, bytes);
		sample_ns *= scale;
		certain_ns *= scale;
	}
	note_run(policy, kind, class_idx);
	double others = (double)depth - 1;
	bool is_among_its_own = policy->run_cnt >= LP_MIN(depth, RUN_MAX);
	/* It had to wait for nothing or for all others: what is expected between is no news. */
	double least_ns = 0;
	if (depth == 1 || (depth <= SHALLOW_MAX && is_among_its_own))
		least_ns = certain_ns - others * expected.load_ns;
	double alone_ns = within(least_ns, expected.idle_ns, sample_ns);
	if ((depth == 1 && is_certain) || alone_ns != expected.idle_ns)
		learn(&cell->idle, expected.idle_ns, NS_MIN, alone_ns);
	if (depth > SHALLOW_MAX && is_among_its_own) {
		double least_load_ns = LP_MAX(certain_ns - expected.idle_ns, 0) / others;
		double most_load_ns = LP_MAX(sample_ns - expected.idle_ns, 0) / others;
		double load_ns = within(least_load_ns, expected.load_ns, most_load_ns);
		if (is_certain || load_ns != expected.load_ns)
			learn(&cell->load, expected.load_ns, expected.idle_ns / 32, load_ns);
	}
	policy->sample_cnt++;
}

double lp_policy_thread_ns(enum lp_write_path path, uint64_t bytes)
{
	LP_ASSERT(path == LP_PATH_DIRECT || path == LP_PATH_DEFERRED);
	const struct thread_guess *guess =
		path == LP_PATH_DIRECT ? &direct_thread : &deferred_thread;
	return guess->fixed_ns + guess->byte_ns * (double)bytes;
}

void lp_policy_observe_thread(struct lp_policy *policy, double guessed_ns, uint64_t busy_ns,
			      bool is_idle)
{
	LP_ASSERT(guessed_ns > 0);
	double factor =
		within(1 / THREAD_FACTOR_MAX, (double)busy_ns / guessed_ns, THREAD_FACTOR_MAX);
	if (is_idle && factor > policy->thread_factor)
		return;
	policy->thread_factor += (factor - policy->thread_factor) / CNT_MAX;
}

/* --- Costs ------------------------------------------------------------------------------------ */

/* What a choice rests on, for lp_policy_explain() too. All times are per operation but for those
 * of single writes. */
struct cost {
	double ns; /* the larger of the next two, and the third; or the fourth, if that is more */
	double latency_ns;
	double demand_ns;
	double place_ns;
	double thread_ns;
	uint32_t group; /* operations in a frame */
	uint64_t frame_bytes;
	struct times log;
	struct times data;
	struct times flush;
};

static uint32_t group_of(uint32_t depth, bool is_ordered)
{
	return LP_MAX(depth / FRAMES_MAX, is_ordered ? ORDERED_MIN : 1u);
}

static uint64_t meta_bytes(uint32_t group)
{
	return lp_align_up((uint64_t)group * LP_POLICY_META_BYTES, LP_BLOCK_BYTES);
}

static enum lp_policy_kind place_kind(const struct lp_policy *policy)
{
	const struct lp_policy_cell *cells = policy->cells[LP_POLICY_PLACE_WRITE];
	for (uint32_t i = 0; i < LP_POLICY_CLASS_CNT; i++) {
		if (cells[i].idle.cnt > 0 || cells[i].load.cnt > 0)
			return LP_POLICY_PLACE_WRITE;
	}
	return LP_POLICY_DATA_WRITE;
}

/* The later write, in device order: its bytes take what they take, getting to the place less. What
 * was measured of write-back itself was in device order, and is no more than what it would take
 * written through: many that begin at once wait for each other, which is not what they cost.
 * Several payloads may share a write. */
static double place_ns(const struct lp_policy *policy, uint64_t bytes)
{
	enum lp_policy_kind kind = place_kind(policy);
	struct times place = times_of(policy, kind, bytes);
	double fixed_ns = LP_MIN(times_of(policy, kind, 1).load_ns, place.load_ns);
	bool is_unsorted = policy->is_rotational && kind == LP_POLICY_DATA_WRITE;
	double saved_ns = is_unsorted ? fixed_ns * SORTED_SAVES : 0;
	double least_ns = LP_MAX(place.load_ns - saved_ns, place.idle_ns / PLACES_MAX);
	double alone_ns = LP_MIN(least_ns, times_of(policy, LP_POLICY_DATA_WRITE, bytes).load_ns);
	return alone_ns - LP_MIN(fixed_ns, alone_ns) * (1 - policy->place_share);
}

static struct cost deferred_cost(const struct lp_policy *policy, uint64_t bytes, uint32_t depth,
				 bool is_ordered)
{
	uint64_t fit = LP_MAX(policy->payload_bytes / bytes, UINT64_C(1));
	struct cost cost = {.group = (uint32_t)LP_MIN((uint64_t)group_of(depth, is_ordered), fit)};
	cost.frame_bytes = cost.group * bytes + meta_bytes(cost.group);
	cost.log = times_of(policy, LP_POLICY_LOG_WRITE, cost.frame_bytes);
	cost.data = times_of(policy, LP_POLICY_DATA_WRITE, bytes);
	/* Full frames follow each other without a pause. */
	double wait = depth > FRAMES_MAX && fit > cost.group ? FRAME_WAIT : 1;
	uint32_t on_the_way = LP_MIN(depth, FRAMES_MAX) * cost.group;
	cost.latency_ns = is_ordered ? 0 : wait * cost.log.idle_ns / on_the_way;
	cost.demand_ns = cost.log.load_ns / cost.group;
	cost.place_ns = place_ns(policy, bytes);
	cost.thread_ns = policy->thread_factor * lp_policy_thread_ns(LP_PATH_DEFERRED, bytes);
	cost.ns = LP_MAX(cost.latency_ns, cost.demand_ns) + cost.place_ns;
	cost.ns = LP_MAX(cost.ns, cost.thread_ns);
	return cost;
}

static struct cost direct_cost(const struct lp_policy *policy, uint64_t bytes, uint32_t depth,
			       bool is_ordered)
{
	/* They come out of the stage before one by one: a frame finds half as many. */
	struct cost cost = {.group = group_of(LP_MAX(depth / 2, 1u), is_ordered)};
	if (policy->volatile_cache)
		cost.flush = times_of_class(policy, LP_POLICY_FLUSH, 0);
	cost.frame_bytes = meta_bytes(cost.group);
	cost.log = times_of(policy, LP_POLICY_LOG_WRITE, cost.frame_bytes);
	cost.data = times_of(policy, LP_POLICY_DATA_WRITE, bytes);
	double flush_ns = cost.flush.idle_ns * (depth > 1 ? STAGE_WAIT : 1);
	double log_ns = cost.log.idle_ns * (depth > FRAMES_MAX ? STAGE_WAIT : 1);
	if (is_ordered)
		log_ns = 0;
	double queue_ns = QUEUE_WAIT * cost.data.load_ns * (depth - 1);
	cost.latency_ns = (cost.data.idle_ns + queue_ns + flush_ns + log_ns) / depth;
	cost.demand_ns = cost.data.load_ns + (cost.flush.load_ns + cost.log.load_ns) / cost.group;
	cost.thread_ns = policy->thread_factor * lp_policy_thread_ns(LP_PATH_DIRECT, bytes);
	cost.ns = LP_MAX(LP_MAX(cost.latency_ns, cost.demand_ns), cost.thread_ns);
	return cost;
}

uint32_t lp_policy_depth_idx(uint32_t depth)
{
	uint32_t idx = 0;
	while (idx < LP_POLICY_DEPTH_CNT - 1 && (UINT32_C(1) << idx) < depth)
		idx++;
	return idx;
}

/* --- Choices ---------------------------------------------------------------------------------- */

static uint64_t epoch_of(const struct lp_policy *policy)
{
	return policy->sample_cnt / LP_POLICY_EPOCH;
}

/* Which choice: for writes of which size, of how many at once, that wait for the log or do not. */
struct place {
	uint32_t class_idx;
	uint32_t depth_idx;
	bool is_ordered;
};

static void compare(const struct lp_policy *policy, struct place at, double *ret_deferred_ns,
		    double *ret_direct_ns)
{
	uint32_t depth = UINT32_C(1) << at.depth_idx;
	uint64_t bytes = class_bytes(at.class_idx);
	*ret_deferred_ns = deferred_cost(policy, bytes, depth, at.is_ordered).ns;
	*ret_direct_ns = direct_cost(policy, bytes, depth, at.is_ordered).ns;
}

static struct lp_policy_choice *choice_at(struct lp_policy *policy, struct place at)
{
	return &policy->choices[at.is_ordered][at.class_idx][at.depth_idx];
}

static void settle(struct lp_policy *policy, struct place at)
{
	double deferred_ns = 0;
	double direct_ns = 0;
	compare(policy, at, &deferred_ns, &direct_ns);
	*choice_at(policy, at) = (struct lp_policy_choice){
		.path = direct_ns < deferred_ns ? LP_PATH_DIRECT : LP_PATH_DEFERRED,
		.seen_epoch = epoch_of(policy)};
}

void lp_policy_settle(struct lp_policy *policy)
{
	for (uint32_t i = 0; i < LP_POLICY_CLASS_CNT; i++) {
		for (uint32_t d = 0; d < LP_POLICY_DEPTH_CNT; d++) {
			settle(policy, (struct place){i, d, false});
			settle(policy, (struct place){i, d, true});
		}
	}
}

static void look_again(struct lp_policy *policy, struct place at)
{
	struct lp_policy_choice *choice = choice_at(policy, at);
	double deferred_ns = 0;
	double direct_ns = 0;
	compare(policy, at, &deferred_ns, &direct_ns);
	bool is_direct = choice->path == LP_PATH_DIRECT;
	double gain = is_direct ? direct_ns / deferred_ns : deferred_ns / direct_ns;
	gain = LP_MIN(LP_MAX(gain - 1 - LP_POLICY_MARGIN, -LOOK_MAX), LOOK_MAX);
	choice->lean = LP_MAX(choice->lean + gain, 0);
	choice->seen_epoch = epoch_of(policy);
	if (choice->lean <= LP_POLICY_PATIENCE)
		return;
	choice->path = is_direct ? LP_PATH_DEFERRED : LP_PATH_DIRECT;
	choice->lean = 0;
	policy->flips++;
}

static enum lp_write_path choose(struct lp_policy *policy, uint64_t bytes, uint32_t depth_hint,
				 bool is_ordered)
{
	LP_ASSERT(bytes > 0);
	if (bytes > policy->payload_bytes)
		return LP_PATH_DIRECT;
	const struct place at = {lp_policy_class_idx(bytes), lp_policy_depth_idx(depth_hint),
				 is_ordered};
	if (choice_at(policy, at)->seen_epoch != epoch_of(policy))
		look_again(policy, at);
	return choice_at(policy, at)->path;
}

enum lp_write_path lp_policy_choose(struct lp_policy *policy, uint64_t bytes, uint32_t depth_hint)
{
	return choose(policy, bytes, depth_hint, false);
}

enum lp_write_path lp_policy_choose_ordered(struct lp_policy *policy, uint64_t bytes,
					    uint32_t depth_hint)
{
	return choose(policy, bytes, depth_hint, bytes <= LP_POLICY_ORDERED_BYTES);
}

void lp_policy_init(struct lp_policy *policy, bool is_rotational, bool volatile_cache)
{
	*policy = (struct lp_policy){.is_rotational = is_rotational,
				     .volatile_cache = volatile_cache,
				     .payload_bytes = LP_POLICY_PAYLOAD_BYTES,
				     .place_share = 1,
				     .thread_factor = 1};
	lp_policy_settle(policy);
}

void lp_policy_set_place_share(struct lp_policy *policy, double share)
{
	LP_ASSERT(share >= 0);
	policy->place_share = LP_MIN(share, 1.0);
}

void lp_policy_set_payload_max(struct lp_policy *policy, uint32_t payload_bytes)
{
	if (policy->payload_bytes == payload_bytes)
		return; /* settling again takes as long as much of opening a small store */
	policy->payload_bytes = payload_bytes;
	lp_policy_settle(policy);
}

/* --- For people ------------------------------------------------------------------------------- */

const char *lp_write_path_name(enum lp_write_path path)
{
	static const char *const names[LP_PATH_CNT] = {
		[LP_PATH_AUTO] = "auto",
		[LP_PATH_INLINE] = "inline",
		[LP_PATH_DEFERRED] = "deferred",
		[LP_PATH_DIRECT] = "direct",
	};
	LP_ASSERT(path < LP_PATH_CNT);
	return names[path];
}

#define KIB(bytes) ((unsigned long long)((bytes) / 1024))
#define US(ns)     ((ns) / 1000)

int lp_policy_explain(const struct lp_policy *policy, uint64_t bytes, uint32_t depth_hint,
		      char *buf, size_t len)
{
	LP_ASSERT(bytes > 0);
	if (bytes > policy->payload_bytes)
		return snprintf(buf, len, "%llu bytes: direct, longer than the %u a frame can hold",
				(unsigned long long)bytes, policy->payload_bytes);
	uint32_t class_idx = lp_policy_class_idx(bytes);
	uint32_t depth_idx = lp_policy_depth_idx(depth_hint);
	const struct lp_policy_choice *choice = &policy->choices[false][class_idx][depth_idx];
	uint32_t depth = UINT32_C(1) << depth_idx;
	struct cost deferred = deferred_cost(policy, class_bytes(class_idx), depth, false);
	struct cost direct = direct_cost(policy, class_bytes(class_idx), depth, false);
	return snprintf(buf, len,
			"up to %llu KiB at depth %u: %s; per operation deferred %.1f us (latency "
			"%.1f, demand %.1f, later write %.1f, thread %.1f; a log write of %llu KiB "
			"for %u takes %.1f), direct %.1f us (latency %.1f, demand %.1f, thread "
			"%.1f; a data write takes %.1f, a flush %.1f, a log write of %llu KiB "
			"%.1f); leans %.2f of %.2f; %llu samples",
			KIB(class_bytes(class_idx)), depth, lp_write_path_name(choice->path),
			US(deferred.ns), US(deferred.latency_ns), US(deferred.demand_ns),
			US(deferred.place_ns), US(deferred.thread_ns), KIB(deferred.frame_bytes),
			deferred.group, US(deferred.log.idle_ns), US(direct.ns),
			US(direct.latency_ns), US(direct.demand_ns), US(direct.thread_ns),
			US(direct.data.idle_ns), US(direct.flush.idle_ns), KIB(direct.frame_bytes),
			US(direct.log.idle_ns), choice->lean, LP_POLICY_PATIENCE,
			(unsigned long long)policy->sample_cnt);
}

/* --- Keeping --------------------------------------------------------------------------------- */

static void take_out(const struct lp_policy_estimate *estimate, uint64_t *ret_ps, uint8_t *ret_cnt)
{
	*ret_cnt = estimate->cnt;
	*ret_ps = estimate->cnt == 0 ? 0 : (uint64_t)(estimate->ns * PS_PER_NS + 0.5);
	LP_ASSERT(*ret_cnt <= CNT_MAX && *ret_ps <= PS_MAX);
}

/* False when it is none that we would have written. */
static bool put_back(uint64_t ps, uint8_t cnt, struct lp_policy_estimate *ret_estimate)
{
	if (cnt > CNT_MAX || ps > PS_MAX || (cnt == 0 && ps != 0))
		return false;
	*ret_estimate = (struct lp_policy_estimate){.ns = (double)ps / PS_PER_NS, .cnt = cnt};
	return true;
}

static uint32_t crc_of(const uint8_t *bytes)
{
	struct lp_key key;
	size_t after = LP_POLICY_VALUE_CRC_OFF + LP_POLICY_VALUE_CRC_SIZE;
	lp_key_of_store(&key, "policy");
	uint32_t crc = lp_crc32c(0, key.bytes, key.len);
	crc = lp_crc32c(crc, bytes, LP_POLICY_VALUE_CRC_OFF);
	return lp_crc32c(crc, bytes + after, LP_POLICY_VALUE_SIZE - after);
}

void lp_policy_export(const struct lp_policy *policy, uint8_t ret_bytes[LP_POLICY_VALUE_SIZE])
{
	struct lp_policy_value value = {.version = LP_VALUE_VERSION};
	const struct lp_policy_cell *log = policy->cells[LP_POLICY_LOG_WRITE];
	const struct lp_policy_cell *data = policy->cells[LP_POLICY_DATA_WRITE];
	const struct lp_policy_cell *place = policy->cells[LP_POLICY_PLACE_WRITE];
	const struct lp_policy_cell *flush = policy->cells[LP_POLICY_FLUSH];
	for (uint32_t i = 0; i < LP_POLICY_CLASS_CNT; i++) {
		take_out(&log[i].idle, &value.log_idle_ps[i], &value.log_idle_cnt[i]);
		take_out(&log[i].load, &value.log_load_ps[i], &value.log_load_cnt[i]);
		take_out(&data[i].idle, &value.data_idle_ps[i], &value.data_idle_cnt[i]);
		take_out(&data[i].load, &value.data_load_ps[i], &value.data_load_cnt[i]);
		take_out(&place[i].idle, &value.place_idle_ps[i], &value.place_idle_cnt[i]);
		take_out(&place[i].load, &value.place_load_ps[i], &value.place_load_cnt[i]);
	}
	take_out(&flush[0].idle, &value.flush_idle_ps, &value.flush_idle_cnt);
	take_out(&flush[0].load, &value.flush_load_ps, &value.flush_load_cnt);
	lp_policy_value_encode(&value, ret_bytes);
	lp_put_le32(ret_bytes + LP_POLICY_VALUE_CRC_OFF, crc_of(ret_bytes));
}

/* False when a number is out of its bounds. */
static bool fill_cells(struct lp_policy *policy, const struct lp_policy_value *value)
{
	struct lp_policy_cell *log = policy->cells[LP_POLICY_LOG_WRITE];
	struct lp_policy_cell *data = policy->cells[LP_POLICY_DATA_WRITE];
	struct lp_policy_cell *place = policy->cells[LP_POLICY_PLACE_WRITE];
	struct lp_policy_cell *flush = policy->cells[LP_POLICY_FLUSH];
	bool ok = put_back(value->flush_idle_ps, value->flush_idle_cnt, &flush[0].idle) &&
		  put_back(value->flush_load_ps, value->flush_load_cnt, &flush[0].load);
	for (uint32_t i = 0; i < LP_POLICY_CLASS_CNT && ok; i++)
		ok = put_back(value->log_idle_ps[i], value->log_idle_cnt[i], &log[i].idle) &&
		     put_back(value->log_load_ps[i], value->log_load_cnt[i], &log[i].load) &&
		     put_back(value->data_idle_ps[i], value->data_idle_cnt[i], &data[i].idle) &&
		     put_back(value->data_load_ps[i], value->data_load_cnt[i], &data[i].load) &&
		     put_back(value->place_idle_ps[i], value->place_idle_cnt[i], &place[i].idle) &&
		     put_back(value->place_load_ps[i], value->place_load_cnt[i], &place[i].load);
	return ok;
}

int lp_policy_import(struct lp_policy *policy, const void *bytes, size_t len)
{
	struct lp_policy_value value;
	struct lp_policy read = *policy;
	if (len != LP_POLICY_VALUE_SIZE)
		return LP_CORRUPT(LP_OFFSET_NONE, "value of S policy: %zu bytes", len);
	lp_policy_value_decode(bytes, &value);
	uint32_t crc = crc_of(bytes);
	if (crc != value.crc)
		return LP_CORRUPT_CRC(LP_OFFSET_NONE, "value of S policy: crc is %08x, stored %08x",
				      crc, value.crc);
	if (value.version != LP_VALUE_VERSION || !lp_policy_value_reserved_is_zero(&value))
		return LP_CORRUPT(LP_OFFSET_NONE, "value of S policy: version or reserved");
	if (!fill_cells(&read, &value))
		return LP_CORRUPT(LP_OFFSET_NONE, "value of S policy: times or counts");
	lp_policy_settle(&read);
	*policy = read;
	return 0;
}
