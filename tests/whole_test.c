/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever operations come, by number or by path, with whatever options, the namespace does
 * and says what a simple model of it does and says; and whatever cuts the power, it comes up with
 * something that a crash may leave (P1 to P4, rules L1, N1, N2, S6, M1), with nothing lost that was
 * acknowledged, nothing left over, and no fault that fsck finds; also if the recovery is cut.
 * Method: operations drawn from a seed, which also says how many shards, what kind of device, and
 * how the machine is set up. Each seed runs in a process of its own, which writes down what it
 * does. When it fails, or dies, operations are left out as long as it still does, and a file is
 * printed that the program runs again:
 *
 *     whole_test --replay FILE
 *     whole_test --seed NUMBER
 */
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/test_long.h"
#include "tests/whole_run_test.h"

#define SEEDS      (LP_ASSERT_SLOW_ON ? 4u : 40u)
#define OPS        (LP_ASSERT_SLOW_ON ? 60u : 90u)
#define CUTS       (LP_ASSERT_SLOW_ON ? 4u : 16u)
#define TRIALS_MAX 200u /* of a failing sequence */
#define TRIAL_S    120u /* it hangs */
#define LIST_MAX   4096u

struct list {
	uint32_t cnt;
	struct lpi_whole_op ops[LIST_MAX];
};

/* What a process gives back. */
struct outcome {
	bool is_right;
	uint64_t states;
	uint64_t trace;
	uint64_t steps;
};

static uint64_t state_cnt;

/* --- Files ------------------------------------------------------------------------------------ */

static void write_head(FILE *file, const struct lpi_whole_options *options)
{
	assert_true(fprintf(file, "seed %llu shards %u preset %u cuts %u nested %u\n",
			    (unsigned long long)options->seed, options->shard_cnt,
			    (unsigned)options->preset, options->cuts, options->nested) > 0);
}

static void write_op(FILE *file, const struct lpi_whole_op *op)
{
	char line[LPI_WHOLE_LINE_MAX];
	(void)lpi_whole_op_write(op, line);
	assert_true(fprintf(file, "%s\n", line) > 0);
	assert_int_equal(fflush(file), 0); /* the process may die of the next one */
}

static FILE *open_file(const char *path, const char *mode)
{
	FILE *file = fopen(path, mode);
	if (file == NULL) {
		print_error("%s: %s\n", path, lp_strerror(-errno));
		abort();
	}
	return file;
}

static void save(const char *path, const struct lpi_whole_options *options, const struct list *list)
{
	FILE *file = open_file(path, "w");
	write_head(file, options);
	for (uint32_t i = 0; i < list->cnt; i++)
		write_op(file, &list->ops[i]);
	assert_int_equal(fclose(file), 0);
}

/* What the seed stands for beside this is as always. */
static void load(const char *path, struct lpi_whole_options *ret_options, struct list *ret_list)
{
	char line[LPI_WHOLE_LINE_MAX];
	unsigned long long seed = 0;
	struct lpi_whole_options said;
	unsigned preset = 0;
	FILE *file = open_file(path, "r");
	assert_non_null(fgets(line, sizeof(line), file));
	int found = sscanf(line, "seed %llu shards %u preset %u cuts %u nested %u", &seed,
			   &said.shard_cnt, &preset, &said.cuts, &said.nested);
	assert_int_equal(found, 5);
	lpi_whole_options_of(seed, ret_options);
	ret_options->shard_cnt = said.shard_cnt;
	ret_options->preset = (enum lp_sim_preset)preset;
	ret_options->cuts = said.cuts;
	ret_options->nested = said.nested;
	ret_list->cnt = 0;
	while (fgets(line, sizeof(line), file) != NULL) {
		assert_true(ret_list->cnt < LIST_MAX);
		lp_test_ok(lpi_whole_op_read(line, &ret_list->ops[ret_list->cnt++]));
	}
	assert_int_equal(fclose(file), 0);
}

/* --- One run ---------------------------------------------------------------------------------- */

/* Those of the list, or else as many as are drawn. */
static bool run_ops(struct lpi_whole_run *run, const struct list *list, uint32_t cnt, FILE *log)
{
	struct lpi_whole_draw draw;
	struct lpi_whole_op op;
	lpi_whole_draw_init(&draw, run->options.seed);
	for (uint32_t i = 0; i < cnt; i++) {
		if (list != NULL)
			op = list->ops[i];
		else
			lpi_whole_draw_op(&draw, &run->model, &op);
		if (log != NULL)
			write_op(log, &op);
		if (!lpi_whole_run_op(run, &op))
			return false;
	}
	return lpi_whole_run_end(run);
}

/* list NULL: drawn, and written to the log. */
static void run_all(const struct lpi_whole_options *options, const struct list *list,
		    const char *log_path, struct outcome *ret)
{
	struct lpi_whole_run *run = lpi_whole_run_new(options);
	FILE *log = log_path != NULL ? open_file(log_path, "w") : NULL;
	if (log != NULL)
		write_head(log, options);
	bool is_right = run_ops(run, list, list != NULL ? list->cnt : OPS, log);
	uint64_t trace = lp_sim_trace_hash(lpi_whole_device(run));
	if (log != NULL)
		assert_int_equal(fclose(log), 0);
	is_right = is_right && lpi_whole_run_cut(run);
	*ret = (struct outcome){.is_right = is_right,
				.states = run->states,
				.trace = lp_hash_u64(&trace, sizeof(trace), run->answers),
				.steps = run->step_cnt};
	/* What is wrong is not torn down. */
	if (is_right)
		lpi_whole_run_free(run);
}

/* A failed assert ends the process. */
static void run_child(const struct lpi_whole_options *options, const struct list *list,
		      const char *log_path, int out)
{
	struct outcome outcome = {.is_right = false};
	if (setenv("CMOCKA_TEST_ABORT", "1", 1) != 0) /* NOLINT(concurrency-mt-unsafe) */
		_exit(1);
	(void)alarm(TRIAL_S);
	run_all(options, list, log_path, &outcome);
	bool is_told = write(out, &outcome, sizeof(outcome)) == (ssize_t)sizeof(outcome);
	(void)fflush(NULL);
	_exit(is_told ? 0 : 1);
}

/* In a process of its own: whether all was right. */
static bool run_apart(const struct lpi_whole_options *options, const struct list *list,
		      const char *log_path, struct outcome *ret)
{
	struct outcome outcome = {.is_right = false};
	int pipe_fds[2];
	int status = 0;
	assert_int_equal(pipe(pipe_fds), 0);
	(void)fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		run_child(options, list, log_path, pipe_fds[1]);
	assert_int_equal(close(pipe_fds[1]), 0);
	bool is_told = read(pipe_fds[0], &outcome, sizeof(outcome)) == (ssize_t)sizeof(outcome);
	assert_int_equal(close(pipe_fds[0]), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	*ret = outcome;
	return is_told && outcome.is_right && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* --- Made shorter ----------------------------------------------------------------------------- */

static void without(const struct list *list, uint32_t from, uint32_t cnt, struct list *ret)
{
	ret->cnt = 0;
	for (uint32_t i = 0; i < list->cnt; i++)
		if (i < from || i >= from + cnt)
			ret->ops[ret->cnt++] = list->ops[i];
}

/* Half of it is left out, a quarter, and so on, as long as it still fails. Returns the trials. */
static uint32_t reduce(const struct lpi_whole_options *options, struct list *list)
{
	static struct list shorter;
	struct outcome outcome;
	uint32_t trials = 0;
	for (uint32_t cnt = LP_MAX(list->cnt / 2, 1); cnt > 0; cnt = cnt == 1 ? 0 : cnt / 2) {
		for (uint32_t from = 0; from < list->cnt && trials < TRIALS_MAX; trials++) {
			without(list, from, cnt, &shorter);
			if (run_apart(options, &shorter, NULL, &outcome))
				from += cnt;
			else
				*list = shorter;
		}
	}
	return trials;
}

static void print_file(const char *path)
{
	char line[LPI_WHOLE_LINE_MAX];
	FILE *file = open_file(path, "r");
	while (fgets(line, sizeof(line), file) != NULL)
		print_error("%s", line);
	assert_int_equal(fclose(file), 0);
}

static void explain(const struct lpi_whole_options *options, const char *log_path)
{
	static struct list list;
	struct lpi_whole_options again;
	struct outcome outcome;
	load(log_path, &again, &list);
	again = *options;
	/* The cuts fall elsewhere in what is shorter. */
	again.cuts = 60;
	if (run_apart(&again, &list, NULL, &outcome))
		again.cuts = options->cuts;
	uint32_t trials = reduce(&again, &list);
	save(log_path, &again, &list);
	print_error("made shorter by %u trials; to be run again with --replay:\n", trials);
	print_file(log_path);
	(void)run_apart(&again, &list, NULL, &outcome);
}

/* --- Tests ------------------------------------------------------------------------------------ */

static bool check_seed(uint64_t seed)
{
	struct lpi_whole_options options;
	struct outcome outcome;
	char path[64];
	lpi_whole_options_of(seed, &options);
	options.cuts = CUTS;
	(void)snprintf(path, sizeof(path), "whole-%llu.ops", (unsigned long long)seed);
	bool is_right = run_apart(&options, NULL, path, &outcome);
	state_cnt += outcome.states;
	if (!is_right)
		explain(&options, path);
	else
		assert_int_equal(unlink(path), 0);
	return is_right;
}

static void test_seeds(void **state)
{
	uint64_t first = 1 + lp_test_seed_shift();
	uint64_t failed = 0;
	(void)state;
	for (uint64_t seed = first; seed < first + SEEDS * lp_test_factor(); seed++)
		failed += check_seed(seed) ? 0 : 1;
	print_message("%llu seeds run\n", (unsigned long long)(SEEDS * lp_test_factor()));
	lp_test_tell_crash_states(state_cnt);
	assert_int_equal(failed, 0);
	assert_true(state_cnt >= SEEDS);
}

/* One seed for all that is random: the same events of the device with the same data at the same
 * times, and the same answers. */
static void test_same_again(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 3; seed++) {
		struct lpi_whole_options options;
		struct outcome first;
		struct outcome second;
		lpi_whole_options_of(seed, &options);
		options.cuts = 1;
		assert_true(run_apart(&options, NULL, NULL, &first));
		assert_true(run_apart(&options, NULL, NULL, &second));
		assert_true(first.steps > OPS / 2);
		assert_int_equal(first.trace, second.trace);
		lpi_whole_options_of(seed + 1000, &options);
		options.cuts = 1;
		assert_true(run_apart(&options, NULL, NULL, &second));
		assert_true(first.trace != second.trace);
	}
}

/* Says that it has done what it has not. */
static void lose_xattr(struct lpi_whole_door *door, const struct lpi_whole *whole,
		       const struct lpi_whole_op *op, struct lpi_whole_answer *ret)
{
	if (op->kind == LPI_WHOLE_XATTR_SET && op->node != LPI_WHOLE_ROOT &&
	    lpi_whole_find(whole, op->node) != NULL)
		*ret = (struct lpi_whole_answer){.result = 0};
	else
		lpi_whole_sim_apply(door, whole, op, ret);
}

/* Returns an older byte. */
static void read_wrong(struct lpi_whole_door *door, const struct lpi_whole *whole,
		       const struct lpi_whole_op *op, struct lpi_whole_answer *ret)
{
	lpi_whole_sim_apply(door, whole, op, ret);
	if (op->kind == LPI_WHOLE_READ && ret->cnt > 0)
		ret->hash++;
}

/* Acknowledges as durable what is only ordered. */
static void order_only(struct lpi_whole_door *door, const struct lpi_whole *whole,
		       const struct lpi_whole_op *op, struct lpi_whole_answer *ret)
{
	struct lpi_whole_op ordered = *op;
	if (op->kind == LPI_WHOLE_WRITE || op->kind == LPI_WHOLE_MAKE)
		ordered.flags |= LPI_WHOLE_ORDERED;
	lpi_whole_sim_apply(door, whole, &ordered, ret);
}

/* A door that is wrong is found out, and what shows it is made short. */
static void test_noticed(void **state)
{
	static const struct {
		void (*apply)(struct lpi_whole_door *door, const struct lpi_whole *whole,
			      const struct lpi_whole_op *op, struct lpi_whole_answer *ret);
		uint32_t ops_max; /* that are left */
	} doors[] = {{lose_xattr, 2}, {read_wrong, 3}, {order_only, 3}};
	static struct list list;
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(doors); i++) {
		struct lpi_whole_options options;
		struct outcome outcome;
		bool is_right = true;
		for (uint64_t seed = 1; is_right && seed < 20; seed++) {
			lpi_whole_options_of(seed, &options);
			options.cuts = 8;
			options.nested = 0;
			options.apply = doors[i].apply;
			is_right = run_apart(&options, NULL, "wrong.ops", &outcome);
		}
		assert_false(is_right);
		struct lpi_whole_options said;
		load("wrong.ops", &said, &list);
		uint32_t before = list.cnt;
		options.cuts = 30;
		(void)reduce(&options, &list);
		print_message("%u operations of %u show it\n", list.cnt, before);
		assert_in_range(list.cnt, 1, doors[i].ops_max);
		/* Kept and loaded it is the same. */
		save("wrong.ops", &options, &list);
		load("wrong.ops", &said, &list);
		said.apply = doors[i].apply;
		assert_false(run_apart(&said, &list, NULL, &outcome));
		said.apply = NULL;
		assert_true(run_apart(&said, &list, NULL, &outcome));
		assert_int_equal(unlink("wrong.ops"), 0);
	}
}

static int replay(const char *path)
{
	static struct list list;
	struct lpi_whole_options options;
	struct outcome outcome;
	load(path, &options, &list);
	run_all(&options, &list, NULL, &outcome);
	print_message("%s: %u operations, %llu crash states: %s\n", path, list.cnt,
		      (unsigned long long)outcome.states, outcome.is_right ? "right" : "WRONG");
	return outcome.is_right ? 0 : 1;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_again),
		cmocka_unit_test(test_noticed),
		cmocka_unit_test(test_seeds),
	};
	if (argc == 3 && strcmp(argv[1], "--replay") == 0)
		return replay(argv[2]);
	if (argc == 3 && strcmp(argv[1], "--seed") == 0)
		return check_seed(strtoull(argv[2], NULL, 10)) ? 0 : 1;
	return lp_test_main(tests, "tests/whole");
}
