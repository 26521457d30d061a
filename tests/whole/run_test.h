/* SPDX-License-Identifier: Apache-2.0 */
/* A run of operations on the whole namespace, and what a crash may leave of it. Only *_test.c files
 * include this.
 *
 * The run: one operation after the other, each held against the model; when each was submitted and
 * answered is told by the events of the device. In the end all is closed, and the stores are
 * described and compared.
 *
 * A cut at an event leaves what was durable by then, by a reply or a sync; of the others, which
 * were ordered or under way, any that could have happened: not without those before it that touched
 * the same (P3, rule M1). Of the last, if it goes through several states, any of these. All such
 * states are made from the model and hashed; what a machine finds that comes up with what the cut
 * left must be one of them. So there are never many that are ordered: a sync comes between.
 *
 * Functions that answer bool say whether all is right; the first thing that was not is printed.
 */
#ifndef LP_TESTS_WHOLE_RUN_TEST_H
#define LP_TESTS_WHOLE_RUN_TEST_H

#include "tests/whole/draw.h"
#include "tests/whole/sim_test.h"
#include "tests/whole/trouble_test.h"

#define LPI_WHOLE_NEVER       UINT64_MAX
#define LPI_WHOLE_ORDERED_MAX 5u /* a sync then comes between */
#define LPI_WHOLE_CHOICES_MAX 10u
#define LPI_WHOLE_LATER_TURNS 40u

struct lpi_whole_options {
	uint64_t seed; /* of the devices, the machine, and the cuts */
	uint32_t shard_cnt;
	enum lp_sim_preset preset;
	bool without_fua; /* a write-through is a write and a flush */
	bool has_upkeep;  /* of the logs, between operations; else only when they need it */
	struct lpi_ns_sim_config config;
	uint32_t cuts;        /* about so many; 0: at every event */
	uint32_t nested;      /* one cut of so many is made in the recovery, too; 0: none */
	uint64_t first_event; /* no cut before it */
	/* A door to be used instead, which calls that of the simulation; for tests of this. */
	void (*apply)(struct lpi_whole_door *door, const struct lpi_whole *whole,
		      const struct lpi_whole_op *op, struct lpi_whole_answer *ret);
};

struct lpi_whole_step {
	struct lpi_whole_op op;
	struct lpi_whole_answer want;
	struct lpi_whole_touches touches;
	bool has_changed;
	uint64_t sent_event;
	uint64_t done_event;
	uint64_t durable_event;
	uint64_t ino;        /* of what was found, and its version */
	uint64_t version_nr; /* 0: none */
};

struct lpi_whole_run {
	struct lpi_whole_options options;
	struct lpi_whole_sim ws;
	struct lpi_whole_inos inos;
	struct lpi_whole model;
	struct lp_prng upkeep;
	struct lpi_whole_step *steps;
	uint32_t step_cnt;
	uint32_t step_max;
	uint32_t ordered; /* since the last sync */
	uint64_t states;  /* crash states judged */
	uint64_t answers; /* hash of all */
};

static inline struct lp_sim *lpi_whole_device(const struct lpi_whole_run *run)
{
	return lp_sim_of(run->ws.sim->bdev);
}

/* --- What a seed stands for ------------------------------------------------------------------- */

static inline void lpi_whole_options_of(uint64_t seed, struct lpi_whole_options *ret)
{
	static const uint64_t caches[] = {0, UINT64_C(200) << 10, UINT64_C(8) << 20};
	struct lp_prng prng;
	lp_prng_init(&prng, seed ^ UINT64_C(0x77686f6c65));
	*ret = (struct lpi_whole_options){.seed = seed, .nested = 12};
	ret->shard_cnt = 1 + (uint32_t)lp_prng_below(&prng, LPI_NS_SIM_SHARDS);
	ret->preset = (enum lp_sim_preset)lp_prng_below(&prng, LP_SIM_PRESET_CNT);
	ret->config.alloc_kind = (enum lp_alloc_kind)lp_prng_below(&prng, LP_ALLOC_KIND_CNT);
	ret->config.write_path = (enum lp_write_path)lp_prng_below(&prng, LP_PATH_CNT);
	ret->config.deferred_store =
		(enum lp_deferred_store)lp_prng_below(&prng, LP_DEFERRED_STORE_CNT);
	ret->config.discard = lp_prng_chance(&prng, 1, 2);
	/* Either too little for what there is, or enough: the usual 256 MiB are tables of some 10
	 * MiB, empty ones, to be made for each state that a cut has left. */
	ret->config.memory_bytes = UINT64_C(1) << (lp_prng_chance(&prng, 1, 3) ? 20 : 24);
	ret->config.data_cache_bytes = caches[lp_prng_below(&prng, LP_ARRAY_SIZE(caches))];
	/* More than one write may have. */
	ret->config.deferred_blocks_max = 80;
	ret->config.hold_ns = lp_prng_chance(&prng, 1, 2) ? LP_NS_PER_MS : 0;
	ret->without_fua = lp_prng_chance(&prng, 1, 2);
	ret->has_upkeep = lp_prng_chance(&prng, 1, 2);
}

/* As the first line of a file; what is not in it follows from the seed. */
static inline void lpi_whole_options_write(const struct lpi_whole_options *options,
					   char ret_line[LPI_WHOLE_LINE_MAX])
{
	(void)snprintf(ret_line, LPI_WHOLE_LINE_MAX,
		       "seed %llu shards %u preset %u cuts %u nested %u",
		       (unsigned long long)options->seed, options->shard_cnt,
		       (unsigned)options->preset, options->cuts, options->nested);
}

/* What stands behind the word; absent: 0. */
static inline uint64_t lpi_whole_number_of(const char *line, const char *word)
{
	const char *at = strstr(line, word);
	return at == NULL ? 0 : strtoull(at + strlen(word), NULL, 10);
}

static inline bool lpi_whole_options_read(const char *line, struct lpi_whole_options *ret)
{
	uint64_t shards = lpi_whole_number_of(line, "shards ");
	uint64_t preset = lpi_whole_number_of(line, "preset ");
	if (shards == 0 || shards > LPI_NS_SIM_SHARDS || preset >= LP_SIM_PRESET_CNT)
		return false;
	lpi_whole_options_of(lpi_whole_number_of(line, "seed "), ret);
	ret->shard_cnt = (uint32_t)shards;
	ret->preset = (enum lp_sim_preset)preset;
	ret->cuts = (uint32_t)lpi_whole_number_of(line, "cuts ");
	ret->nested = (uint32_t)lpi_whole_number_of(line, "nested ");
	return true;
}

/* --- The run ---------------------------------------------------------------------------------- */

/* Devices with a new store, of each kind and number of shards: what runs are made on are copies. */
static struct lp_bdev *lpi_whole_fresh[LP_SIM_PRESET_CNT][LPI_NS_SIM_SHARDS + 1];

static inline struct lp_bdev *lpi_whole_fresh_get(const struct lpi_whole_options *options)
{
	struct lp_bdev **fresh = &lpi_whole_fresh[options->preset][options->shard_cnt];
	if (*fresh == NULL)
		*fresh = lpi_ns_sim_mkfs_on(lp_sim_preset(options->preset), options->shard_cnt, 1);
	return *fresh;
}

static inline struct lp_bdev *lpi_whole_fresh_copy(const struct lpi_whole_options *options)
{
	struct lp_sim *fresh = lp_sim_of(lpi_whole_fresh_get(options));
	const struct lp_sim_profile profile =
		lpi_bench_profile_of(options->preset, !options->without_fua);
	struct lp_sim_cutter *cutter = NULL;
	lp_test_ok(lp_sim_cutter_new(fresh, &profile, &cutter));
	struct lp_bdev *copy = lp_sim_cutter_cut(cutter, options->seed);
	lp_sim_cutter_free(cutter);
	return copy;
}

static inline void lpi_whole_fresh_free(void)
{
	for (size_t i = 0; i < LP_SIM_PRESET_CNT; i++) {
		for (size_t j = 0; j <= LPI_NS_SIM_SHARDS; j++) {
			lp_bdev_close(lpi_whole_fresh[i][j]);
			lpi_whole_fresh[i][j] = NULL;
		}
	}
}

static inline struct lpi_whole_run *lpi_whole_run_new(const struct lpi_whole_options *options)
{
	struct lpi_whole_run *run = calloc(1, sizeof(*run));
	assert_non_null(run);
	run->options = *options;
	lp_prng_init(&run->upkeep, options->seed);
	struct lp_bdev *bdev = lpi_whole_fresh_copy(options);
	run->ws.door.apply = options->apply != NULL ? options->apply : lpi_whole_sim_apply;
	run->ws.sim = lpi_ns_sim_boot_as(bdev, &options->config);
	lp_test_ok(lpi_ns_sim_start(run->ws.sim));
	/* The root is durable. */
	lp_sim_trim_log(lp_sim_of(bdev));
	lpi_whole_init(&run->model, options->shard_cnt, &run->inos);
	return run;
}

static inline void lpi_whole_run_free(struct lpi_whole_run *run)
{
	lp_test_ok(lpi_ns_sim_close(run->ws.sim, false));
	lpi_ns_sim_fini(run->ws.sim);
	free(run->ws.sim);
	lpi_whole_fini(&run->model);
	lpi_whole_inos_fini(&run->inos);
	free(run->steps);
	free(run);
}

static inline bool lpi_whole_complain(const struct lpi_whole_run *run,
				      const struct lpi_whole_step *step,
				      const struct lpi_whole_answer *got)
{
	char line[LPI_WHOLE_LINE_MAX];
	(void)lpi_whole_op_write(&step->op, line);
	print_error("seed %llu, step %u: %s\n", (unsigned long long)run->options.seed,
		    run->step_cnt, line);
	const struct lpi_whole_answer *answers[] = {&step->want, got};
	for (size_t i = 0; i < LP_ARRAY_SIZE(answers); i++)
		print_error(
			"  %s: result %d inode %llx count %llu more %llu hash %llx version %llu\n",
			i == 0 ? "expected" : "answered", answers[i]->result,
			(unsigned long long)answers[i]->ino, (unsigned long long)answers[i]->cnt,
			(unsigned long long)answers[i]->more, (unsigned long long)answers[i]->hash,
			(unsigned long long)answers[i]->version_nr);
	return false;
}

/* What an entry leads to that has no number yet, if its directory has one. */
static inline bool lpi_whole_learn_entry(struct lpi_whole_run *run,
					 const struct lpi_whole_entry *entry)
{
	const struct lpi_whole_op lookup = {
		.kind = LPI_WHOLE_LOOKUP, .dir = entry->dir, .name = entry->name};
	struct lpi_whole_answer found;
	if (lpi_whole_ino(&run->model, entry->node) != 0 ||
	    lpi_whole_ino(&run->model, entry->dir) == 0)
		return false;
	lpi_whole_sim_apply(&run->ws.door, &run->model, &lookup, &found);
	lpi_whole_inos_set(&run->inos, entry->node, found.ino);
	return found.ino != 0;
}

/* Directories that were made on the way got numbers that the answer does not say. */
static inline void lpi_whole_learn(struct lpi_whole_run *run)
{
	for (uint32_t i = 0; i < run->model.entry_cnt;)
		i = lpi_whole_learn_entry(run, &run->model.entries[i]) ? 0 : i + 1;
}

/* Those that were answered before. */
static inline void lpi_whole_synced(struct lpi_whole_run *run, uint64_t event)
{
	for (uint32_t i = run->step_cnt; i-- > 0;) {
		struct lpi_whole_step *step = &run->steps[i];
		step->durable_event = LP_MIN(step->durable_event, event);
	}
	run->ordered = 0;
}

/* What a client was told, who was not told that it might be taken back, stays (P3). */
static inline void lpi_whole_keep_shown(struct lpi_whole_run *run,
					const struct lpi_whole_step *told)
{
	struct lpi_whole_touches shown;
	if (told->has_changed || (told->op.flags & LPI_WHOLE_ORDERED) != 0)
		return;
	lpi_whole_show(&run->model, &told->op, told->want.result, &shown);
	for (struct lpi_whole_step *step = run->steps; step != told; step++) {
		if (step->has_changed && lpi_whole_is_shown(&step->op, &step->touches, &shown))
			step->durable_event = LP_MIN(step->durable_event, told->done_event);
	}
}

static inline struct lpi_whole_step *lpi_whole_step_add(struct lpi_whole_run *run,
							const struct lpi_whole_op *op)
{
	if (run->step_cnt == run->step_max) {
		run->step_max = LP_MAX(64, run->step_max * 2);
		run->steps = realloc(run->steps, run->step_max * sizeof(*run->steps));
		assert_non_null(run->steps);
	}
	struct lpi_whole_step *step = &run->steps[run->step_cnt];
	*step = (struct lpi_whole_step){.op = *op, .durable_event = LPI_WHOLE_NEVER};
	return step;
}

/* Whether this version of an inode may follow the one that was told last: a later one, if something
 * of the inode's own has changed since. */
static inline bool lpi_whole_version_is_right(const struct lpi_whole_run *run,
					      const struct lpi_whole_step *told)
{
	bool has_changed = false;
	if (told->version_nr == 0)
		return told->ino == 0;
	for (uint32_t i = run->step_cnt; i-- > 0;) {
		const struct lpi_whole_step *step = &run->steps[i];
		bool is_own = step->op.kind >= LPI_WHOLE_SET && step->op.kind < LPI_WHOLE_PUT;
		if (step->version_nr != 0 && step->ino == told->ino)
			return has_changed ? step->version_nr < told->version_nr
					   : step->version_nr <= told->version_nr;
		has_changed =
			has_changed || (is_own && step->has_changed &&
					lpi_whole_ino(&run->model, step->op.node) == told->ino);
	}
	return true;
}

/* What the model knows nothing of, and a log of so few operations would not need. */
static inline void lpi_whole_keep_up(struct lpi_whole_run *run)
{
	if (!run->options.has_upkeep)
		return;
	switch (lp_prng_below(&run->upkeep, 24)) {
	case 0:
		lpi_whole_persist(run->ws.sim);
		break;
	case 1:
	case 2:
		lpi_whole_trim(run->ws.sim);
		break;
	case 3:
		lpi_whole_rest(run->ws.sim);
		break;
	default:
		break;
	}
}

static inline bool lpi_whole_run_one(struct lpi_whole_run *run, const struct lpi_whole_op *op)
{
	struct lpi_whole_step *step = lpi_whole_step_add(run, op);
	struct lpi_whole *model = &run->model;
	struct lpi_whole_answer got;
	step->sent_event = lp_sim_event_count(lpi_whole_device(run));
	run->ws.door.apply(&run->ws.door, model, op, &got);
	step->done_event = lp_sim_event_count(lpi_whole_device(run));
	model->touches = &step->touches;
	lpi_whole_apply(model, op, NULL, &step->want);
	model->touches = NULL;
	step->has_changed = model->has_changed;
	step->version_nr = got.version_nr;
	step->ino = got.version_nr == 0 ? 0 : got.ino;
	if (!lpi_whole_is_right(model, op, &step->want, &got) ||
	    !lpi_whole_version_is_right(run, step))
		return lpi_whole_complain(run, step, &got);
	const uint64_t words[] = {(uint64_t)got.result, got.ino, got.cnt, got.more, got.hash};
	run->answers = lp_hash_u64(words, sizeof(words), run->answers);
	run->step_cnt++;
	bool is_new = lpi_whole_find(model, lpi_whole_slot(op)) != NULL;
	if (is_new && lpi_whole_ino(model, lpi_whole_slot(op)) == 0)
		lpi_whole_inos_set(&run->inos, lpi_whole_slot(op), got.ino);
	lpi_whole_learn(run);
	if (op->kind == LPI_WHOLE_SYNC)
		lpi_whole_synced(run, step->done_event);
	else if (step->has_changed && (op->flags & LPI_WHOLE_ORDERED) == 0)
		step->durable_event = step->done_event;
	else
		run->ordered += step->has_changed ? 1 : 0;
	lpi_whole_keep_shown(run, step);
	lpi_whole_keep_up(run);
	return true;
}

/* What refers to something that was never made is left out. */
static inline bool lpi_whole_run_op(struct lpi_whole_run *run, const struct lpi_whole_op *op)
{
	static const struct lpi_whole_op sync = {.kind = LPI_WHOLE_SYNC};
	if (!lpi_whole_can(&run->model, op))
		return true;
	if (run->ordered >= LPI_WHOLE_ORDERED_MAX && !lpi_whole_run_one(run, &sync))
		return false;
	return lpi_whole_run_one(run, op);
}

static inline void lpi_whole_print_difference(const struct lpi_whole *model,
					      struct lpi_whole_text *found)
{
	struct lpi_whole_text want = {.is_kept = true};
	lpi_whole_describe(model, &want);
	lpi_whole_text_compare(found, &want);
	lpi_whole_text_fini(&want);
}

static inline bool lpi_whole_run_compare(struct lpi_whole_run *run)
{
	struct lpi_whole_text found = {.is_kept = true};
	struct lpi_whole_text want = {.is_kept = false};
	lpi_whole_sim_describe(run->ws.sim, &found);
	lpi_whole_describe(&run->model, &want);
	bool is_same = found.hash == want.hash;
	if (!is_same) {
		print_error("seed %llu: in the end:\n", (unsigned long long)run->options.seed);
		lpi_whole_print_difference(&run->model, &found);
	}
	lpi_whole_text_fini(&found);
	return is_same;
}

/* All is closed, the namespaces stop, the stores get some time for what they do later, and are
 * compared with the model. */
static inline bool lpi_whole_run_end(struct lpi_whole_run *run)
{
	for (uint32_t i = 0; i < run->model.node_cnt;) {
		const struct lpi_whole_node *node = &run->model.nodes[i];
		const struct lpi_whole_op close = {.kind = LPI_WHOLE_CLOSE, .node = node->slot};
		if (node->opens == 0)
			i++;
		else if (!lpi_whole_run_one(run, &close))
			return false;
	}
	lpi_ns_sim_stop(run->ws.sim);
	for (uint32_t i = 0; i < LPI_WHOLE_LATER_TURNS; i++)
		(void)lpi_ns_sim_turn(run->ws.sim);
	return lpi_whole_run_compare(run);
}

/* --- What a cut may leave --------------------------------------------------------------------- */

struct lpi_whole_judge {
	struct lpi_whole_run *run;
	struct lpi_whole base; /* what all of the first base_cnt steps have left */
	uint32_t base_cnt;
	uint32_t end;   /* steps that were submitted */
	uint64_t event; /* that has not happened any more */
	uint64_t *hashes;
	uint32_t hash_cnt;
	uint32_t hash_max;
	uint32_t choices;
	bool *is_made; /* of those from base_cnt on, while states are made */
	uint64_t key;  /* of what the hashes are for */
	/* To explain what was found: the state that is nearest to it. */
	struct lpi_whole_text *found;
	struct lpi_whole nearest;
	uint32_t distance;
};

static inline void lpi_whole_judge_init(struct lpi_whole_judge *judge, struct lpi_whole_run *run)
{
	*judge = (struct lpi_whole_judge){.run = run, .key = LPI_WHOLE_NEVER};
	judge->is_made = calloc(run->step_cnt + 1, sizeof(bool));
	assert_non_null(judge->is_made);
	lpi_whole_init(&judge->base, run->options.shard_cnt, &run->inos);
}

static inline void lpi_whole_judge_fini(struct lpi_whole_judge *judge)
{
	lpi_whole_fini(&judge->base);
	lpi_whole_fini(&judge->nearest);
	free(judge->is_made);
	free(judge->hashes);
}

static inline void lpi_whole_may_be_nearest(struct lpi_whole_judge *judge,
					    const struct lpi_whole *state)
{
	struct lpi_whole_text text = {.is_kept = true};
	lpi_whole_describe(state, &text);
	uint32_t distance = lpi_whole_text_distance(judge->found, &text);
	lpi_whole_text_fini(&text);
	if (judge->nearest.node_cnt > 0 && distance >= judge->distance)
		return;
	lpi_whole_fini(&judge->nearest);
	lpi_whole_copy(state, &judge->nearest);
	judge->distance = distance;
}

static inline void lpi_whole_may_be(void *arg, const struct lpi_whole *state)
{
	struct lpi_whole_judge *judge = arg;
	struct lpi_whole_text text = {.is_kept = false};
	if (judge->found != NULL) {
		lpi_whole_may_be_nearest(judge, state);
		return;
	}
	if (judge->hash_cnt == judge->hash_max) {
		judge->hash_max = LP_MAX(16, judge->hash_max * 2);
		judge->hashes = realloc(judge->hashes, judge->hash_max * sizeof(uint64_t));
		assert_non_null(judge->hashes);
	}
	lpi_whole_describe(state, &text);
	judge->hashes[judge->hash_cnt++] = text.hash;
}

static inline bool lpi_whole_must_be(const struct lpi_whole_judge *judge, uint32_t idx)
{
	return judge->run->steps[idx].durable_event <= judge->event;
}

/* Whether one that touched the same, and came before, is not there. */
static inline bool lpi_whole_lacks(const struct lpi_whole_judge *judge, uint32_t idx)
{
	const struct lpi_whole_step *steps = judge->run->steps;
	for (uint32_t i = judge->base_cnt; i < idx; i++)
		if (!judge->is_made[i] &&
		    lpi_whole_touches_meet(&steps[i].touches, &steps[idx].touches))
			return true;
	return false;
}

/* With step idx done as well; false: then it would have ended otherwise. What has not changed
 * anything counts only who has it open. */
static inline bool lpi_whole_do_step(const struct lpi_whole_judge *judge, struct lpi_whole *state,
				     uint32_t idx, const struct lpi_whole_visit *visit)
{
	const struct lpi_whole_step *step = &judge->run->steps[idx];
	const struct lpi_whole_op *op = &step->op;
	struct lpi_whole_answer answer;
	bool opens = op->kind == LPI_WHOLE_OPEN || op->kind == LPI_WHOLE_CLOSE ||
		     (op->kind == LPI_WHOLE_MAKE && step->want.result == 0 &&
		      lpi_whole_entry_find(state, op->dir, op->name) != NULL);
	if (!step->has_changed && !opens)
		return true;
	lpi_whole_apply(state, op, visit, &answer);
	return answer.result == step->want.result;
}

/* All states that the steps from idx on may have left of this one: every choice of them is gone
 * through, as the digits of a number. */
static inline void lpi_whole_make_choice(struct lpi_whole_judge *judge, uint32_t choice)
{
	const struct lpi_whole_visit visit = {.state = lpi_whole_may_be, .arg = judge};
	struct lpi_whole state;
	bool may_be = true;
	uint32_t digit = 0;
	lpi_whole_copy(&judge->base, &state);
	for (uint32_t i = judge->base_cnt; i < judge->end && may_be; i++) {
		const struct lpi_whole_step *step = &judge->run->steps[i];
		bool is_under_way = step->done_event > judge->event;
		bool is_chosen = lpi_whole_must_be(judge, i) || !step->has_changed;
		if (!is_chosen)
			is_chosen = (choice >> digit++ & 1) != 0;
		judge->is_made[i] = is_chosen || !step->has_changed;
		if (!is_chosen)
			continue;
		bool lacks = step->has_changed && lpi_whole_lacks(judge, i);
		if (lacks && !is_under_way)
			may_be = false;
		else if (!lpi_whole_do_step(judge, &state, i, is_under_way ? &visit : NULL))
			may_be = !step->has_changed;
		if (lacks)
			may_be = false;
	}
	if (may_be)
		lpi_whole_may_be(judge, &state);
	lpi_whole_fini(&state);
}

/* The states that the power, failing before this event, may have left; events ascend. */
static inline void lpi_whole_judge_at(struct lpi_whole_judge *judge, uint64_t event)
{
	const struct lpi_whole_step *steps = judge->run->steps;
	uint32_t choices = 0;
	judge->event = event;
	while (judge->end < judge->run->step_cnt && steps[judge->end].sent_event <= event)
		judge->end++;
	while (judge->base_cnt < judge->end &&
	       (lpi_whole_must_be(judge, judge->base_cnt) || !steps[judge->base_cnt].has_changed)) {
		(void)lpi_whole_do_step(judge, &judge->base, judge->base_cnt, NULL);
		judge->base_cnt++;
	}
	uint64_t key = (uint64_t)judge->base_cnt << 32 | judge->end;
	for (uint32_t i = judge->base_cnt; i < judge->end; i++) {
		const uint64_t words[] = {key, lpi_whole_must_be(judge, i),
					  steps[i].done_event > event};
		key = lp_hash_u64(words, sizeof(words), 0);
		choices += lpi_whole_must_be(judge, i) || !steps[i].has_changed ? 0 : 1;
	}
	if (key == judge->key)
		return;
	assert_true(choices <= LPI_WHOLE_CHOICES_MAX);
	judge->key = key;
	judge->hash_cnt = 0;
	judge->choices = choices;
	for (uint32_t choice = 0; choice < UINT32_C(1) << choices; choice++)
		lpi_whole_make_choice(judge, choice);
}

static inline bool lpi_whole_judge_found(struct lpi_whole_judge *judge,
					 struct lpi_whole_text *found)
{
	const struct lpi_whole_run *run = judge->run;
	for (uint32_t i = 0; i < judge->hash_cnt; i++)
		if (judge->hashes[i] == found->hash)
			return true;
	print_error(
		"seed %llu, cut before event %llu: none of %u states that may be; the nearest:\n",
		(unsigned long long)run->options.seed, (unsigned long long)judge->event,
		judge->hash_cnt);
	judge->found = found;
	for (uint32_t choice = 0; choice < UINT32_C(1) << judge->choices; choice++)
		lpi_whole_make_choice(judge, choice);
	judge->found = NULL;
	if (judge->nearest.node_cnt > 0)
		lpi_whole_print_difference(&judge->nearest, found);
	for (uint32_t i = judge->base_cnt - LP_MIN(judge->base_cnt, 3); i < judge->end; i++) {
		const struct lpi_whole_step *step = &run->steps[i];
		char line[LPI_WHOLE_LINE_MAX];
		(void)lpi_whole_op_write(&step->op, line);
		print_error("  %u: %s: result %d, events %llu to %llu, durable %llu%s\n", i, line,
			    step->want.result, (unsigned long long)step->sent_event,
			    (unsigned long long)step->done_event,
			    (unsigned long long)step->durable_event,
			    step->has_changed ? "" : ", no change");
	}
	return false;
}

/* --- Cuts ------------------------------------------------------------------------------------- */

/* A machine comes up with this device, which is gone afterwards, and what it finds is judged.
 * Opened once more it finds the same. */
static inline bool lpi_whole_recover(struct lpi_whole_judge *judge, struct lp_bdev *bdev,
				     uint32_t mood)
{
	struct lpi_whole_text found = {.is_kept = true};
	struct lpi_whole_text again = {.is_kept = false};
	const struct lpi_whole_options *options = &judge->run->options;
	struct lpi_ns_sim *sim = lpi_ns_sim_new(bdev, &options->config);
	/* Where nothing is lost there is nothing to be seen. */
	if (lpi_bench_profile_of(options->preset, !options->without_fua).drops_on_failed_flush &&
	    mood % 12 == 5)
		lpi_whole_disturb(sim, mood);
	lpi_ns_sim_open(sim);
	lp_test_ok(lpi_ns_sim_start(sim));
	lpi_whole_sim_describe(sim, &found);
	lpi_ns_sim_stop(sim);
	if (options->has_upkeep && mood % 8 == 2)
		lpi_whole_check_room(sim);
	int r = lpi_ns_sim_close(sim, mood % 3 == 0);
	assert_true(r == 0 || mood % 3 == 0);
	bool is_right = lpi_whole_judge_found(judge, &found);
	if (is_right && mood % 16 == 1) {
		lpi_ns_sim_open(sim);
		lp_test_ok(lpi_ns_sim_start(sim));
		lpi_whole_sim_describe(sim, &again);
		lpi_ns_sim_stop(sim);
		lp_test_ok(lpi_ns_sim_close(sim, false));
		is_right = again.hash == found.hash;
		if (!is_right)
			print_error("another state when it was opened once more\n");
	}
	if (is_right && mood % 4 == 0)
		lpi_ns_sim_fsck(sim);
	lpi_ns_sim_fini(sim);
	free(sim);
	lpi_whole_text_fini(&found);
	judge->run->states++;
	return is_right;
}

/* The recovery from this device is cut, too, at some of its events. */
static inline bool lpi_whole_recover_cut(struct lpi_whole_judge *judge, struct lp_bdev *bdev,
					 uint64_t seed)
{
	struct lpi_ns_sim *sim = lpi_ns_sim_boot_as(bdev, &judge->run->options.config);
	struct lp_sim_cutter *cutter = NULL;
	struct lp_prng prng;
	bool is_right = true;
	lp_prng_init(&prng, seed);
	lp_test_ok(lpi_ns_sim_start(sim));
	uint64_t stride = 1 + (lp_sim_event_count(lp_sim_of(bdev))) / 6;
	lp_test_ok(lp_sim_cutter_new(lp_sim_of(bdev), NULL, &cutter));
	while (is_right && lp_sim_cutter_next(cutter)) {
		uint64_t event = lp_sim_cutter_event(cutter);
		if (lp_prng_below(&prng, stride) == 0)
			is_right = lpi_whole_recover(judge, lp_sim_cutter_cut(cutter, seed + event),
						     (uint32_t)event);
	}
	lp_sim_cutter_free(cutter);
	lpi_ns_sim_stop(sim);
	lp_test_ok(lpi_ns_sim_close(sim, false));
	lpi_ns_sim_fini(sim);
	free(sim);
	return is_right;
}

static inline bool lpi_whole_cut(struct lpi_whole_judge *judge, const struct lp_sim_cutter *cutter,
				 struct lp_prng *prng)
{
	const struct lpi_whole_options *options = &judge->run->options;
	uint64_t seed = lp_prng_u64(prng);
	if (options->nested != 0 && lp_prng_below(prng, options->nested) == 0)
		return lpi_whole_recover_cut(judge, lp_sim_cutter_cut(cutter, seed), seed);
	/* The process dies, or the machine. */
	bool is_crash = lp_prng_below(prng, 8) == 0;
	return lpi_whole_recover(judge,
				 is_crash ? lp_sim_cutter_crash(cutter, seed)
					  : lp_sim_cutter_cut(cutter, seed),
				 (uint32_t)(seed >> 40));
}

/* The run has ended. */
static inline bool lpi_whole_run_cut(struct lpi_whole_run *run)
{
	const struct lpi_whole_options *options = &run->options;
	struct lp_sim *sim = lpi_whole_device(run);
	struct lp_sim_cutter *cutter = NULL;
	struct lpi_whole_judge judge;
	struct lp_prng prng;
	bool is_right = true;
	uint64_t first = LP_MAX(lp_sim_event_first(sim), options->first_event);
	uint64_t stride =
		options->cuts == 0 ? 1 : (lp_sim_event_count(sim) - first) / options->cuts;
	lp_prng_init(&prng, options->seed);
	lpi_whole_judge_init(&judge, run);
	lp_test_ok(lp_sim_cutter_new(sim, NULL, &cutter));
	while (is_right && lp_sim_cutter_next(cutter)) {
		uint64_t event = lp_sim_cutter_event(cutter);
		if (event < first || lp_prng_below(&prng, LP_MAX(stride, 1)) != 0)
			continue;
		lpi_whole_judge_at(&judge, event);
		is_right = lpi_whole_cut(&judge, cutter, &prng);
	}
	lp_sim_cutter_free(cutter);
	lpi_whole_judge_fini(&judge);
	return is_right;
}

#endif
