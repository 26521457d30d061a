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
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/testing/test_long.h"
#include "tests/whole/list.h"
#include "tests/whole/run_test.h"

#define SEEDS   (LP_ASSERT_SLOW_ON ? 3u : 12u)
#define OPS     (LP_ASSERT_SLOW_ON ? 60u : 90u)
#define CUTS    (LP_ASSERT_SLOW_ON ? 3u : 16u)
#define TRIAL_S 120u /* then it hangs */

/* What a process gives back. */
struct outcome {
	bool is_right;
	uint64_t states;
	uint64_t trace;
	uint64_t steps;
};

static uint64_t state_cnt;

/* --- One run ---------------------------------------------------------------------------------- */

/* Those of the list, or else as many as are drawn. */
static bool run_ops(struct lpi_whole_run *run, const struct lpi_whole_list *list, FILE *log)
{
	struct lpi_whole_draw draw;
	struct lpi_whole_op op;
	lpi_whole_draw_init(&draw, run->options.seed);
	for (uint32_t i = 0; i < (list != NULL ? list->cnt : OPS); i++) {
		if (list != NULL)
			op = list->ops[i];
		else
			lpi_whole_draw_op(&draw, &run->model, &op);
		if (log != NULL)
			lpi_whole_list_write_op(log, &op);
		if (!lpi_whole_run_op(run, &op))
			return false;
	}
	return lpi_whole_run_end(run);
}

/* All that the device was asked and when, and all answers; but not what is in it, for the index
 * gives its files numbers that nobody chooses. */
static uint64_t trace_of(const struct lpi_whole_run *run)
{
	const struct lp_sim *sim = lpi_whole_device(run);
	uint64_t hash = run->answers;
	for (uint64_t i = lp_sim_event_first(sim); i < lp_sim_event_count(sim); i++) {
		struct lp_sim_event event;
		lp_sim_event_get(sim, i, &event);
		const uint64_t words[] = {event.type,   event.opcode,       (uint64_t)event.result,
					  event.op_seq, event.offset_bytes, event.length_bytes,
					  event.time_ns};
		hash = lp_hash_u64(words, sizeof(words), hash);
	}
	return hash;
}

/* list NULL: drawn, and written to the log. */
static void run_all(const struct lpi_whole_options *options, const struct lpi_whole_list *list,
		    const char *log_path, struct outcome *ret)
{
	char head[LPI_WHOLE_LINE_MAX];
	struct lpi_whole_run *run = lpi_whole_run_new(options);
	FILE *log = log_path != NULL ? lpi_whole_list_open(log_path, "w") : NULL;
	lpi_whole_options_write(options, head);
	if (log != NULL)
		assert_true(fprintf(log, "%s\n", head) > 0);
	bool is_right = run_ops(run, list, log);
	uint64_t trace = trace_of(run);
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
static void run_child(const struct lpi_whole_options *options, const struct lpi_whole_list *list,
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
static bool run_apart(const struct lpi_whole_options *options, const struct lpi_whole_list *list,
		      const char *log_path, struct outcome *ret)
{
	struct outcome outcome = {.is_right = false};
	int pipe_fds[2];
	int status = 0;
	(void)lpi_whole_fresh_get(options); /* it need not be made in each of them */
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
	if (WIFSIGNALED(status))
		print_error("seed %llu: ended by signal %d%s\n", (unsigned long long)options->seed,
			    WTERMSIG(status), WTERMSIG(status) == SIGALRM ? ": it hangs" : "");
	return is_told && outcome.is_right && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* --- Made shorter ----------------------------------------------------------------------------- */

struct trial {
	struct lpi_whole_options options;
	const char *path; /* what still fails is kept there: who does not wait for the end has it */
};

static bool fails(const struct lpi_whole_list *list, void *arg)
{
	const struct trial *trial = arg;
	struct lpi_whole_list *failing = NULL;
	struct outcome outcome;
	if (run_apart(&trial->options, list, NULL, &outcome))
		return false;
	failing = malloc(sizeof(*failing));
	assert_non_null(failing);
	*failing = *list;
	lpi_whole_options_write(&trial->options, failing->head);
	lpi_whole_list_save(failing, trial->path);
	free(failing);
	return true;
}

static void explain(const struct lpi_whole_options *options, const char *log_path)
{
	static struct lpi_whole_list list;
	struct trial trial = {.options = *options, .path = log_path};
	lpi_whole_list_load(log_path, &list);
	/* The cuts fall elsewhere in what is shorter. */
	trial.options.cuts = 60;
	if (!fails(&list, &trial))
		trial.options.cuts = options->cuts;
	uint32_t trials = lpi_whole_list_reduce(&list, fails, &trial);
	lpi_whole_options_write(&trial.options, list.head);
	print_error("made shorter by %u trials; to be run again with --replay:\n", trials);
	lpi_whole_list_print(&list, stderr);
	(void)fails(&list, &trial); /* says once more what is wrong */
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
	for (uint64_t seed = 1; seed <= (LP_ASSERT_SLOW_ON ? 1 : 3); seed++) {
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

struct wrong_door {
	void (*apply)(struct lpi_whole_door *door, const struct lpi_whole *whole,
		      const struct lpi_whole_op *op, struct lpi_whole_answer *ret);
	uint32_t ops_max; /* that are left */
	uint32_t cuts;
};

static void check_noticed(const struct wrong_door *wrong)
{
	static struct lpi_whole_list list;
	struct trial trial = {.path = "wrong.ops"};
	struct outcome outcome;
	bool is_right = true;
	for (uint64_t seed = 1; is_right && seed < 20; seed++) {
		lpi_whole_options_of(seed, &trial.options);
		trial.options.cuts = wrong->cuts;
		trial.options.nested = 0;
		trial.options.apply = wrong->apply;
		is_right = run_apart(&trial.options, NULL, trial.path, &outcome);
	}
	assert_false(is_right);
	lpi_whole_list_load(trial.path, &list);
	uint32_t before = list.cnt;
	(void)lpi_whole_list_reduce(&list, fails, &trial);
	print_message("%u operations of %u show it\n", list.cnt, before);
	assert_in_range(list.cnt, 1, wrong->ops_max);
	/* As it was kept it is the same. */
	uint32_t cnt = list.cnt;
	lpi_whole_list_load(trial.path, &list);
	assert_int_equal(list.cnt, cnt);
	assert_true(lpi_whole_options_read(list.head, &trial.options));
	trial.options.apply = wrong->apply;
	assert_true(fails(&list, &trial));
	trial.options.apply = NULL;
	assert_false(fails(&list, &trial));
	assert_int_equal(unlink(trial.path), 0);
}

/* A door that is wrong is found out, and what shows it is made short. */
static void test_noticed(void **state)
{
	static const struct wrong_door doors[] = {{lose_xattr, 2, 1}, {read_wrong, 3, 1}};
	(void)state;
	/* With a sanitizer one: each takes many runs. */
	for (size_t i = 0; i < (LP_ASSERT_SLOW_ON ? 1 : LP_ARRAY_SIZE(doors)); i++)
		check_noticed(&doors[i]);
}

/* --- The model's own -------------------------------------------------------------------------- */

static void count_without_first(void *arg, const struct lpi_whole *whole)
{
	const uint32_t path[] = {1, 2};
	if (lpi_whole_walk(whole, path, 2) == NULL)
		++*(uint32_t *)arg;
}

/* A delete takes the directory with it when it is empty; the power may fail between, and then what
 * was removed from the directory before, only ordered, may be there again. */
static void test_delete_between(void **state)
{
	(void)state;
	struct lpi_whole_inos inos = {0};
	struct lpi_whole whole;
	struct lpi_whole_answer answer;
	uint32_t seen = 0;
	const struct lpi_whole_visit visit = {.state = count_without_first, .arg = &seen};
	struct lpi_whole_op op = {.kind = LPI_WHOLE_PUT, .id = 1, .depth = 2, .names = {1, 2}};
	lpi_whole_init(&whole, 1, &inos);
	lpi_whole_apply(&whole, &op, NULL, &answer);
	assert_int_equal(answer.result, 0);
	op.id = 2;
	op.names[1] = 3;
	lpi_whole_apply(&whole, &op, NULL, &answer);
	assert_int_equal(answer.result, 0);
	op = (struct lpi_whole_op){.kind = LPI_WHOLE_DELETE, .id = 3, .depth = 2, .names = {1, 2}};
	lpi_whole_apply(&whole, &op, &visit, &answer);
	assert_int_equal(answer.result, 0);
	assert_int_equal(seen, 1);
	lpi_whole_fini(&whole);
	lpi_whole_inos_fini(&inos);
}

static bool touches_inode(const struct lpi_whole_touches *touches, uint32_t slot)
{
	for (uint32_t i = 0; i < touches->cnt; i++) {
		if (touches->items[i].kind == LPI_WHOLE_TOUCH_INODE &&
		    touches->items[i].slot == slot)
			return true;
	}
	return false;
}

/* A spread directory has the same count whatever is in it. So what goes from it is not ordered with
 * a later change of its own name, and a crash may keep only that one. */
static void test_spread_counts_nothing(void **state)
{
	(void)state;
	struct lpi_whole whole;
	struct lpi_whole_inos inos = {0};
	struct lpi_whole_answer answer;
	static struct lpi_whole_touches touches;
	lpi_whole_init(&whole, 2, &inos);
	for (uint32_t i = 0; i < 2; i++) {
		const uint32_t dir = (1 + 4 * i) * LPI_WHOLE_SLOTS_EACH;
		const struct lpi_whole_op ops[] = {
			{.kind = LPI_WHOLE_MAKE,
			 .id = 1 + 4 * i,
			 .type = LP_INODE_TYPE_DIR,
			 .name = 1 + i,
			 .flags = i == 0 ? LPI_WHOLE_SPREAD : 0},
			{.kind = LPI_WHOLE_MAKE,
			 .id = 2 + 4 * i,
			 .type = LP_INODE_TYPE_DIR,
			 .dir = dir,
			 .name = 5},
			{.kind = LPI_WHOLE_REMOVE,
			 .id = 3 + 4 * i,
			 .dir = dir,
			 .name = 5,
			 .flags = LPI_WHOLE_IS_DIR},
		};
		for (size_t k = 0; k < LP_ARRAY_SIZE(ops); k++) {
			touches.cnt = 0;
			whole.touches = &touches;
			lpi_whole_apply(&whole, &ops[k], NULL, &answer);
			assert_int_equal(answer.result, 0);
			assert_int_equal(touches_inode(&touches, dir), k == 0 || i == 1);
		}
	}
	whole.touches = NULL;
	lpi_whole_fini(&whole);
	lpi_whole_inos_fini(&inos);
}

/* --- All of them ------------------------------------------------------------------------------ */

static int replay(const char *path)
{
	static struct lpi_whole_list list;
	struct lpi_whole_options options;
	struct outcome outcome;
	lpi_whole_list_load(path, &list);
	if (!lpi_whole_options_read(list.head, &options))
		return 2;
	run_all(&options, &list, NULL, &outcome);
	print_message("%s: %u operations, %llu crash states: %s\n", path, list.cnt,
		      (unsigned long long)outcome.states, outcome.is_right ? "right" : "WRONG");
	return outcome.is_right ? 0 : 1;
}

static int end(void **state)
{
	(void)state;
	lpi_whole_fresh_free();
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_delete_between), cmocka_unit_test(test_spread_counts_nothing),
		cmocka_unit_test(test_same_again),     cmocka_unit_test(test_noticed),
		cmocka_unit_test(test_seeds),
	};
	if (argc == 3 && strcmp(argv[1], "--replay") == 0)
		return replay(argv[2]);
	if (argc == 3 && strcmp(argv[1], "--seed") == 0)
		return check_seed(strtoull(argv[2], NULL, 10)) ? 0 : 1;
	return lp_test_main_with(tests, "tests/whole/whole", NULL, end);
}
