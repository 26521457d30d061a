/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations as system calls below a directory of a file system, held against the model of
 * the whole namespace (tests/whole_model.h): any file system, and so the model can be tried on one
 * that is trusted.
 *
 *     whole DIR FIRST-SEED SEEDS OPERATIONS
 *     whole --replay DIR FILE
 *
 * Each seed has a new directory. What fails is made shorter, printed, and kept as FILE to be run
 * again. Exit status 0: all was right. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/whole_draw.h"
#include "tests/whole_list.h"
#include "tests/whole_posix.h"

#define DATA_MAX 600000u /* of a file that is looked at in the end */

struct run {
	struct lpi_whole_posix posix;
	struct lpi_whole_inos inos;
	struct lpi_whole model;
	bool is_quiet;
	uint64_t done;
};

static uint32_t root_cnt;

static void run_begin(struct run *run, const char *dir)
{
	char root[200];
	*run = (struct run){.done = 0};
	(void)snprintf(root, sizeof(root), "%s/whole%u", dir, root_cnt++);
	if (mkdir(root, 0755) < 0) {
		perror(root);
		exit(2); /* NOLINT(concurrency-mt-unsafe): there is one thread */
	}
	lpi_whole_posix_init(&run->posix, root);
	lpi_whole_init(&run->model, 1, &run->inos);
	run->model.mode_mask = 0777;
	run->model.is_root_only = true;
}

static void run_end(struct run *run)
{
	lpi_whole_posix_fini(&run->posix);
	lpi_whole_fini(&run->model);
	lpi_whole_inos_fini(&run->inos);
}

/* Of several things that are wrong the kernel finds another one first. */
static bool is_right(const struct run *run, const struct lpi_whole_op *op,
		     const struct lpi_whole_answer *want, const struct lpi_whole_answer *got)
{
	bool both_failed = want->result < 0 && got->result < 0 && got->result != -EPROTO;
	return (op->kind == LPI_WHOLE_RENAME && both_failed) ||
	       lpi_whole_is_right(&run->model, op, want, got);
}

static bool run_op(struct run *run, const struct lpi_whole_op *op)
{
	struct lpi_whole_answer want;
	struct lpi_whole_answer got;
	char line[LPI_WHOLE_LINE_MAX];
	if (!lpi_whole_can(&run->model, op))
		return true;
	run->posix.door.apply(&run->posix.door, &run->model, op, &got);
	if (got.result == LPI_WHOLE_SKIPPED)
		return true;
	lpi_whole_apply(&run->model, op, NULL, &want);
	run->done++;
	if (is_right(run, op, &want, &got)) {
		if (lpi_whole_find(&run->model, lpi_whole_slot(op)) != NULL &&
		    lpi_whole_ino(&run->model, lpi_whole_slot(op)) == 0)
			lpi_whole_inos_set(&run->inos, lpi_whole_slot(op), got.ino);
		return true;
	}
	if (run->is_quiet)
		return false;
	(void)lpi_whole_op_write(op, line);
	(void)fprintf(stderr, "%s: %s\n  expected %d, count %llu, hash %llx\n", run->posix.root,
		      line, want.result, (unsigned long long)want.cnt,
		      (unsigned long long)want.hash);
	(void)fprintf(stderr, "  answered %d, count %llu, hash %llx\n", got.result,
		      (unsigned long long)got.cnt, (unsigned long long)got.hash);
	return false;
}

/* All of it is looked at. */
static bool look(struct run *run)
{
	for (uint32_t i = 0; i < run->model.node_cnt; i++) {
		const struct lpi_whole_node *node = &run->model.nodes[i];
		const struct lpi_whole_op ops[] = {
			{.kind = LPI_WHOLE_STAT, .node = node->slot},
			{.kind = LPI_WHOLE_XATTRS, .node = node->slot},
			{.kind = LPI_WHOLE_READ, .node = node->slot, .length = DATA_MAX},
			{.kind = LPI_WHOLE_READDIR, .dir = node->slot},
		};
		for (size_t j = 0; j < LP_ARRAY_SIZE(ops); j++) {
			bool is_about =
				ops[j].kind != LPI_WHOLE_READDIR || node->type == LP_INODE_TYPE_DIR;
			if (is_about && !run_op(run, &ops[j]))
				return false;
		}
	}
	return true;
}

static bool run_list(const struct lpi_whole_list *list, const char *dir, bool is_quiet)
{
	struct run run;
	bool is_right_so_far = true;
	run_begin(&run, dir);
	run.is_quiet = is_quiet;
	for (uint32_t i = 0; i < list->cnt && is_right_so_far; i++)
		is_right_so_far = run_op(&run, &list->ops[i]);
	is_right_so_far = is_right_so_far && look(&run);
	run_end(&run);
	return is_right_so_far;
}

static bool fails(const struct lpi_whole_list *list, void *arg)
{
	return !run_list(list, arg, true);
}

static void explain(struct lpi_whole_list *list, const char *dir, uint64_t seed)
{
	char path[64];
	char at[200];
	(void)snprintf(at, sizeof(at), "%s", dir);
	(void)snprintf(path, sizeof(path), "whole-%llu.ops", (unsigned long long)seed);
	(void)snprintf(list->head, sizeof(list->head), "below a directory, seed %llu",
		       (unsigned long long)seed);
	(void)lpi_whole_list_reduce(list, fails, at);
	(void)fprintf(stderr, "made shorter; to be run again with --replay DIR %s:\n", path);
	lpi_whole_list_print(list, stderr);
	lpi_whole_list_save(list, path);
	(void)run_list(list, dir, false); /* says once more what is wrong */
}

static bool run_seed(const char *dir, uint64_t seed, uint32_t ops)
{
	static struct lpi_whole_list list;
	struct lpi_whole_draw draw;
	struct run run;
	bool is_right_so_far = true;
	list.cnt = 0;
	run_begin(&run, dir);
	lpi_whole_draw_init(&draw, seed);
	/* Not by keys. */
	draw.mood = (enum lpi_whole_mood)(seed % LPI_WHOLE_MOOD_PATHS);
	for (uint32_t i = 0; i < ops && is_right_so_far; i++) {
		struct lpi_whole_op op;
		lpi_whole_draw_op(&draw, &run.model, &op);
		lpi_whole_posix_fit(&op);
		lpi_whole_list_add(&list, &op);
		is_right_so_far = run_op(&run, &op);
	}
	is_right_so_far = is_right_so_far && look(&run);
	if (is_right_so_far)
		(void)printf("seed %llu: %llu operations\n", (unsigned long long)seed,
			     (unsigned long long)run.done);
	run_end(&run);
	if (!is_right_so_far)
		explain(&list, dir, seed);
	return is_right_so_far;
}

int main(int argc, char **argv)
{
	static struct lpi_whole_list list;
	uint64_t failed = 0;
	(void)umask(0);
	if (argc == 4 && strcmp(argv[1], "--replay") == 0) {
		lpi_whole_list_load(argv[3], &list);
		return run_list(&list, argv[2], false) ? 0 : 1;
	}
	if (argc != 5) {
		(void)fprintf(stderr, "usage: whole DIR FIRST-SEED SEEDS OPERATIONS\n"
				      "       whole --replay DIR FILE\n");
		return 2;
	}
	uint64_t first = strtoull(argv[2], NULL, 10);
	uint64_t cnt = strtoull(argv[3], NULL, 10);
	uint32_t ops = (uint32_t)LP_MIN(strtoull(argv[4], NULL, 10), LPI_WHOLE_LIST_MAX);
	for (uint64_t seed = first; seed < first + cnt; seed++)
		failed += run_seed(argv[1], seed, ops) ? 0 : 1;
	return failed == 0 ? 0 : 1;
}
