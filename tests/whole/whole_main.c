/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations held against the model of the whole namespace (tests/whole/model.h): as system
 * calls below a directory of any file system, so that the model can be tried on one that is
 * trusted; or as requests to a daemon, whose address begins with "unix:" or "tcp:".
 *
 *     whole DIR-OR-ADDRESS FIRST-SEED SEEDS OPERATIONS
 *     whole --replay DIR-OR-ADDRESS FILE
 *
 * Each seed has a new directory. What fails is made shorter, printed, and kept as FILE to be run
 * again. Exit status 0: all was right. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/whole/draw.h"
#include "tests/whole/list.h"
#include "tests/whole/posix.h"
#include "tests/whole/wire.h"

#define DATA_MAX 600000u /* of a file that is looked at in the end */

struct run {
	struct lpi_whole_posix posix;
	struct lpi_whole_wire wire;
	struct lpi_whole_door *door;
	struct lpi_whole_inos inos;
	struct lpi_whole model;
	bool is_quiet;
	uint64_t done;
};

/* Where all runs are: a directory, or a daemon. */
struct place {
	const char *name;
	struct lapis *lapis; /* NULL: a directory */
	uint32_t root_cnt;
};

static _Noreturn void give_up(const char *what, const char *why)
{
	(void)fprintf(stderr, "%s: %s\n", what, why);
	exit(2); /* NOLINT(concurrency-mt-unsafe): there is one thread */
}

static void place_open(struct place *place, const char *name)
{
	const struct lapis_options options = {.size = sizeof(options), .address = name};
	*place = (struct place){.name = name};
	bool is_daemon = strncmp(name, "unix:", 5) == 0 || strncmp(name, "tcp:", 4) == 0;
	if (is_daemon && lapis_open(&options, &place->lapis) < 0)
		give_up(name, lapis_error_text());
}

static void begin_below_dir(struct run *run, struct place *place)
{
	char root[200];
	(void)snprintf(root, sizeof(root), "%s/whole%u", place->name, place->root_cnt++);
	if (mkdir(root, 0755) < 0)
		give_up(root, "cannot be made");
	lpi_whole_posix_init(&run->posix, root);
	run->door = &run->posix.door;
	run->model.mode_mask = 0777;
	run->model.is_root_only = true;
}

/* Names of their own for each process: what the last one left is there still. */
static void begin_at_daemon(struct run *run, struct place *place)
{
	char root[32];
	(void)snprintf(root, sizeof(root), "whole%d-%u", (int)getpid(), place->root_cnt++);
	if (lpi_whole_wire_init(&run->wire, place->lapis, root) < 0)
		give_up(root, lapis_error_text());
	run->door = &run->wire.door;
	run->model.is_below = true;
	run->model.copies_are_roots = true;
	run->model.data_sets_times = true;
	run->model.lists_set_modes = true;
}

static void run_begin(struct run *run, struct place *place)
{
	*run = (struct run){.done = 0};
	lpi_whole_init(&run->model, 1, &run->inos);
	if (place->lapis == NULL)
		begin_below_dir(run, place);
	else
		begin_at_daemon(run, place);
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
	bool is_kernel = run->door == &run->posix.door;
	return (is_kernel && op->kind == LPI_WHOLE_RENAME && both_failed) ||
	       lpi_whole_is_right(&run->model, op, want, got);
}

/* What an entry leads to that has no number yet, if its directory has one. */
static bool learn_entry(struct run *run, const struct lpi_whole_entry *entry)
{
	const struct lpi_whole_op lookup = {
		.kind = LPI_WHOLE_LOOKUP, .dir = entry->dir, .name = entry->name};
	struct lpi_whole_answer found;
	if (lpi_whole_ino(&run->model, entry->node) != 0 ||
	    lpi_whole_ino(&run->model, entry->dir) == 0)
		return false;
	run->door->apply(run->door, &run->model, &lookup, &found);
	lpi_whole_inos_set(&run->inos, entry->node, found.ino);
	return found.ino != 0;
}

/* The numbers of what it has made, also on the way there. */
static void learn(struct run *run, const struct lpi_whole_op *op,
		  const struct lpi_whole_answer *got)
{
	const struct lpi_whole *model = &run->model;
	bool is_new = lpi_whole_find(model, lpi_whole_slot(op)) != NULL;
	if (is_new && lpi_whole_ino(model, lpi_whole_slot(op)) == 0)
		lpi_whole_inos_set(&run->inos, lpi_whole_slot(op), got->ino);
	for (uint32_t i = 0; i < model->entry_cnt;)
		i = learn_entry(run, &model->entries[i]) ? 0 : i + 1;
}

static bool run_op(struct run *run, const struct lpi_whole_op *op)
{
	struct lpi_whole_answer want;
	struct lpi_whole_answer got;
	char line[LPI_WHOLE_LINE_MAX];
	if (!lpi_whole_can(&run->model, op))
		return true;
	run->door->apply(run->door, &run->model, op, &got);
	if (got.result == LPI_WHOLE_SKIPPED)
		return true;
	lpi_whole_apply(&run->model, op, NULL, &want);
	run->done++;
	if (is_right(run, op, &want, &got)) {
		learn(run, op, &got);
		return true;
	}
	if (run->is_quiet)
		return false;
	(void)lpi_whole_op_write(op, line);
	(void)fprintf(stderr, "%s\n  expected %d, count %llu, hash %llx\n", line, want.result,
		      (unsigned long long)want.cnt, (unsigned long long)want.hash);
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
			{.kind = LPI_WHOLE_XATTRS, .node = node->slot, .flags = LPI_WHOLE_OMAP},
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

static bool run_list(const struct lpi_whole_list *list, struct place *place, bool is_quiet)
{
	struct run run;
	bool is_right_so_far = true;
	run_begin(&run, place);
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

static void explain(struct lpi_whole_list *list, struct place *place, uint64_t seed)
{
	char path[64];
	(void)snprintf(path, sizeof(path), "whole-%llu.ops", (unsigned long long)seed);
	(void)snprintf(list->head, sizeof(list->head), "below a directory, seed %llu",
		       (unsigned long long)seed);
	(void)lpi_whole_list_reduce(list, fails, place);
	(void)fprintf(stderr, "made shorter; to be run again with --replay DIR %s:\n", path);
	lpi_whole_list_print(list, stderr);
	lpi_whole_list_save(list, path);
	(void)run_list(list, place, false); /* says once more what is wrong */
}

static bool run_seed(struct place *place, uint64_t seed, uint32_t ops)
{
	static struct lpi_whole_list list;
	struct lpi_whole_draw draw;
	struct run run;
	bool is_right_so_far = true;
	list.cnt = 0;
	run_begin(&run, place);
	lpi_whole_draw_init(&draw, seed);
	if (place->lapis == NULL) /* not by keys */
		draw.mood = (enum lpi_whole_mood)(seed % LPI_WHOLE_MOOD_PATHS);
	for (uint32_t i = 0; i < ops && is_right_so_far; i++) {
		struct lpi_whole_op op;
		lpi_whole_draw_op(&draw, &run.model, &op);
		if (place->lapis == NULL)
			lpi_whole_posix_fit(&op);
		else
			lpi_whole_wire_fit(&op);
		lpi_whole_list_add(&list, &op);
		is_right_so_far = run_op(&run, &op);
	}
	is_right_so_far = is_right_so_far && look(&run);
	if (is_right_so_far) {
		(void)printf("seed %llu: %llu operations\n", (unsigned long long)seed,
			     (unsigned long long)run.done);
		(void)fflush(stdout); /* the next one may hang */
	}
	run_end(&run);
	if (!is_right_so_far)
		explain(&list, place, seed);
	return is_right_so_far;
}

static int run_seeds(struct place *place, char **args)
{
	uint64_t failed = 0;
	uint64_t first = strtoull(args[0], NULL, 10);
	uint64_t cnt = strtoull(args[1], NULL, 10);
	uint32_t ops = (uint32_t)LP_MIN(strtoull(args[2], NULL, 10), LPI_WHOLE_LIST_MAX);
	for (uint64_t seed = first; seed < first + cnt; seed++)
		failed += run_seed(place, seed, ops) ? 0 : 1;
	return failed == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	static struct lpi_whole_list list;
	struct place place;
	int status = 0;
	bool is_replay = argc == 4 && strcmp(argv[1], "--replay") == 0;
	(void)umask(0);
	if (!is_replay && argc != 5)
		give_up("usage", "whole DIR-OR-ADDRESS FIRST-SEED SEEDS OPERATIONS, or "
				 "whole --replay DIR-OR-ADDRESS FILE");
	place_open(&place, argv[is_replay ? 2 : 1]);
	if (is_replay) {
		lpi_whole_list_load(argv[3], &list);
		status = run_list(&list, &place, false) ? 0 : 1;
	} else {
		status = run_seeds(&place, argv + 2);
	}
	lapis_close(place.lapis);
	return status;
}
