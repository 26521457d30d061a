/* SPDX-License-Identifier: Apache-2.0 */
/* Does who reads a file see what was acknowledged, in whatever way it is read and changed?
 *
 *   race [--seconds S] [--seed N] [--pairs LIST] [--except LIST] [--control DIR]
 *        [--socket ADDRESS --key KEY] [--synced] DIR
 *
 * DIR is a directory on the file system in question. For each pair of a way to read and a way to
 * change there is a new file in it; for S seconds (1), or longer until there is something to judge,
 * two processes read it in this way and one by pread, while one or two change it. What was
 * acknowledged before a read began must be seen by it (race.h). Afterwards, when all is at rest,
 * each block must be what it was last.
 *
 * With --control each pair is run below that directory as well, on ext4 for one: what that shows is
 * no fault here.
 * --socket is a daemon's address: then there are pairs with its clients, who know DIR as KEY. With
 * --synced what was changed through the mount counts for them when it was synced, as it must where
 * the mount is `writeback`. LIST has patterns such as "mmap:*,*:aio", READER:CHANGER; --except
 * leaves out what it names.
 *
 * Prints a line for each pair: blocks read, changes, how many blocks were stale, wrong, torn, and
 * stale at rest; below "beside" is what the reader by pread has seen. Exit status 1 if any was
 * stale or wrong, 2 for a wrong call. */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/strangers/race.h"

#define READERS        2u
#define CHANGERS       2u
#define BESIDE         2u
#define BESIDE_NAME    "pread"
#define PROCESSES_MAX  (READERS + CHANGERS + BESIDE)
#define PATH_MAX_BYTES 256u
#define LIST_MAX_BYTES 1024u
#define END_S          30u /* that processes have to end when the time is over */
#define LATE_S         20u /* more that a pair may take until it has done enough */
#define READS_MIN      50u
#define CHANGES_MIN    10u
#define TICK_NS        10000000L
#define NS_PER_S       1000000000L

enum {
	OPT_SECONDS = 256,
	OPT_SEED,
	OPT_PAIRS,
	OPT_EXCEPT,
	OPT_CONTROL,
	OPT_SOCKET,
	OPT_KEY,
	OPT_SYNCED
};

struct options {
	double seconds;
	uint64_t seed;
	const char *pairs;
	const char *except;
	const char *control;
	const char *address;
	const char *key;
	const char *dir;
	bool is_synced;
};

struct pair {
	const struct lpi_reader *reader;
	const struct lpi_changer *changer;
	char name[64];
};

/* What came of one pair in one place. */
struct outcome {
	struct lpi_found found;
	struct lpi_found beside;
	uint64_t changes;
	int unsupported;
	bool is_failed; /* a process has ended badly, and has said why */
	bool is_hung;
};

static struct lpi_race *shared; /* one race after the other */

static void nap(long ns)
{
	struct timespec time = {.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
	(void)nanosleep(&time, NULL);
}

/* --- The processes --- */

static const struct lpi_reader *pread_of_table(void)
{
	for (const struct lpi_reader *reader = lpi_readers; reader->name != NULL; reader++) {
		if (strcmp(reader->name, BESIDE_NAME) == 0)
			return reader;
	}
	return NULL;
}

static void start_reader(struct lpi_actor *actor, const struct lpi_reader *reader)
{
	lpi_race_open(actor, O_RDONLY | reader->flags, strcmp(reader->name, "mmap") == 0);
	if (reader->start != NULL)
		reader->start(actor);
}

static void read_once(struct lpi_actor *actor, const struct lpi_reader *reader, unsigned block,
		      unsigned cnt, struct lpi_found *found)
{
	struct lpi_window window;
	lpi_race_look(actor, block, cnt, &window);
	int64_t got = reader->read(actor, block, cnt);
	if (got < 0)
		lpi_race_fail(actor, reader->name, (int)-got);
	(void)lpi_race_judge(actor, &window, got, found);
}

static void run_reader(struct lpi_actor *actor, const struct lpi_reader *reader,
		       struct lpi_found *found)
{
	start_reader(actor, reader);
	while (!actor->race->is_over) {
		unsigned cnt = (unsigned)lp_prng_between(&actor->prng, 1, LPI_RUN_MAX);
		unsigned block = (unsigned)lp_prng_below(&actor->prng, LPI_BLOCKS - cnt + 1);
		read_once(actor, reader, block, cnt, found);
	}
	_exit(0);
}

/* Each block once, in this process's own time. */
static void run_at_rest(struct lpi_actor *actor, const struct lpi_reader *reader)
{
	actor->is_at_rest = true;
	start_reader(actor, reader);
	for (unsigned block = 0; block < LPI_BLOCKS; block++)
		read_once(actor, reader, block, 1, &actor->race->found);
	_exit(0);
}

static void run_changer(struct lpi_actor *actor)
{
	const struct lpi_changer *changer = actor->changer;
	lpi_race_open(actor, O_RDWR | changer->flags, strcmp(changer->name, "mmap") == 0);
	if (changer->start != NULL)
		changer->start(actor);
	while (!actor->race->is_over)
		changer->change(actor);
	_exit(0);
}

/* --- One pair in one place --- */

struct stage {
	struct lpi_actor actor; /* what all have alike */
	pid_t pids[PROCESSES_MAX];
	unsigned pids_cnt;
};

/* Forks; 0 in the child, whose random numbers are its own. */
static bool is_child(struct stage *stage, uint64_t seed)
{
	(void)fflush(NULL);
	pid_t pid = fork();
	if (pid < 0) {
		perror("race: fork");
		_exit(2);
	}
	if (pid > 0) {
		stage->pids[stage->pids_cnt++] = pid;
		return false;
	}
	lp_prng_init(&stage->actor.prng, seed + stage->pids_cnt);
	return true;
}

/* Waits for all of them; false: they do not end, and were killed. */
static bool await_all(struct stage *stage, struct outcome *outcome)
{
	bool is_fine = true;
	for (unsigned i = 0; i < stage->pids_cnt; i++) {
		int status = 0;
		pid_t ended = 0;
		for (uint64_t ns = 0; ns < END_S * (uint64_t)NS_PER_S; ns += TICK_NS) {
			ended = waitpid(stage->pids[i], &status, WNOHANG);
			if (ended != 0)
				break;
			nap(TICK_NS);
		}
		if (ended == 0) {
			(void)kill(stage->pids[i], SIGKILL);
			is_fine = false;
		} else if (status != 0 && outcome->unsupported == 0) {
			outcome->unsupported = shared->unsupported;
			outcome->is_failed = shared->unsupported == 0;
		}
	}
	stage->pids_cnt = 0;
	return is_fine;
}

/* The file, with version 0 of each block. */
static void make_file(const struct lpi_actor *actor)
{
	int fd = open(actor->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	static unsigned char buf[LPI_FILE_BYTES];
	lpi_race_fill(actor, buf, 0, LPI_BLOCKS);
	if (fd < 0 || pwrite(fd, buf, sizeof(buf), 0) != (ssize_t)sizeof(buf) || fsync(fd) != 0) {
		(void)fprintf(stderr, "race: %s: %s\n", actor->path, lp_strerror(errno));
		_exit(2);
	}
	(void)close(fd);
}

static bool is_enough(void)
{
	return shared->found.reads >= READS_MIN && shared->changes >= CHANGES_MIN;
}

static void run_stage(struct stage *stage, const struct options *options, const struct pair *pair,
		      struct outcome *outcome)
{
	unsigned changers = pair->changer->is_one ? 1 : CHANGERS;
	for (unsigned i = 0; i < changers; i++) {
		stage->actor.first_block = i * (LPI_BLOCKS / changers);
		stage->actor.blocks_cnt = LPI_BLOCKS / changers;
		if (is_child(stage, options->seed))
			run_changer(&stage->actor);
	}
	for (unsigned i = 0; i < READERS; i++) {
		if (is_child(stage, options->seed))
			run_reader(&stage->actor, pair->reader, &shared->found);
	}
	for (unsigned i = 0; i < BESIDE; i++) {
		if (is_child(stage, options->seed))
			run_reader(&stage->actor, pread_of_table(), &shared->beside);
	}
	nap((long)(options->seconds * (double)NS_PER_S));
	/* A busy machine may not have come to much yet. */
	for (unsigned i = 0; i < LATE_S * (NS_PER_S / TICK_NS) && !is_enough(); i++)
		nap(TICK_NS);
	shared->is_over = true;
	outcome->is_hung = !await_all(stage, outcome);
	if (outcome->is_hung || outcome->unsupported != 0 || outcome->is_failed)
		return;
	if (is_child(stage, options->seed))
		run_at_rest(&stage->actor, pair->reader);
	if (is_child(stage, options->seed))
		run_at_rest(&stage->actor, pread_of_table());
	outcome->is_hung = !await_all(stage, outcome);
}

static void run_pair(const struct options *options, const struct pair *pair, const char *dir,
		     struct outcome *ret_outcome)
{
	char path[PATH_MAX_BYTES];
	char key[PATH_MAX_BYTES];
	struct stage stage = {.actor = {.race = shared, .changer = pair->changer}};
	memset(shared, 0, sizeof(*shared));
	memset(ret_outcome, 0, sizeof(*ret_outcome));
	(void)snprintf(path, sizeof(path), "%s/%s-%s", dir, pair->reader->name,
		       pair->changer->name);
	(void)snprintf(key, sizeof(key), "%s/%s-%s", options->key, pair->reader->name,
		       pair->changer->name);
	stage.actor.path = path;
	stage.actor.key = key;
	stage.actor.address = options->address;
	stage.actor.is_synced = pair->reader->is_socket && options->is_synced;
	/* What is stored to a mapping is the kernel's alone before that. */
	if (pair->reader->is_socket && strcmp(pair->changer->name, "mmap") == 0)
		stage.actor.is_synced = true;
	make_file(&stage.actor);
	run_stage(&stage, options, pair, ret_outcome);
	ret_outcome->found = shared->found;
	ret_outcome->beside = shared->beside;
	ret_outcome->changes = shared->changes;
	(void)unlink(path);
}

/* --- The pairs, and what is said of them --- */

static bool is_named(const char *list, const char *name)
{
	char copy[LIST_MAX_BYTES];
	char *rest = NULL;
	(void)snprintf(copy, sizeof(copy), "%s", list);
	for (char *one = strtok_r(copy, ",", &rest); one != NULL;
	     one = strtok_r(NULL, ",", &rest)) {
		if (fnmatch(one, name, 0) == 0)
			return true;
	}
	return false;
}

static void tell(const struct pair *pair, const char *where, const struct outcome *outcome)
{
	const struct lpi_found *found = &outcome->found;
	const struct lpi_found *beside = &outcome->beside;
	(void)printf("%-8s %-32s ", where, pair->name);
	if (outcome->is_hung)
		(void)printf("HANG: processes do not end\n");
	else if (outcome->unsupported != 0)
		(void)printf("not there: %s\n", lp_strerror(outcome->unsupported));
	else if (outcome->is_failed)
		(void)printf("FAILED, see above\n");
	else
		(void)printf("%8" PRIu64 " %7" PRIu64 " %6" PRIu64 " %5" PRIu64 " %6" PRIu64
			     " %7" PRIu64 " | %6" PRIu64 " %5" PRIu64 " %6" PRIu64 "\n",
			     found->reads, outcome->changes, found->stale, found->wrong,
			     found->torn, found->at_rest, beside->stale, beside->wrong,
			     beside->torn);
	(void)fflush(stdout);
}

static bool is_bad(const struct outcome *outcome)
{
	return outcome->found.stale + outcome->found.wrong + outcome->found.at_rest +
		       outcome->beside.stale + outcome->beside.wrong >
	       0;
}

/* Whether the pair is a fault of the file system in question. */
static bool judge_pair(const struct options *options, const struct pair *pair)
{
	struct outcome control = {0};
	struct outcome outcome;
	bool has_socket = pair->reader->is_socket || pair->changer->is_socket;
	if (options->control != NULL && !has_socket) {
		run_pair(options, pair, options->control, &control);
		tell(pair, "control", &control);
	}
	run_pair(options, pair, options->dir, &outcome);
	tell(pair, "", &outcome);
	if (outcome.is_hung || outcome.is_failed)
		return true;
	if (outcome.unsupported != 0)
		return false;
	if (outcome.found.reads == 0 || outcome.changes == 0) {
		(void)printf("FAIL %s: nothing was read or changed\n", pair->name);
		return true;
	}
	return is_bad(&outcome) && !is_bad(&control);
}

static int run_all(const struct options *options)
{
	unsigned run = 0;
	unsigned bad = 0;
	(void)printf("%-8s %-32s %8s %7s %6s %5s %6s %7s | beside: stale, wrong, torn\n", "",
		     "reader:changer", "reads", "changes", "stale", "wrong", "torn", "at rest");
	for (const struct lpi_changer *changer = lpi_changers; changer->name != NULL; changer++) {
		for (const struct lpi_reader *reader = lpi_readers; reader->name != NULL;
		     reader++) {
			struct pair pair = {.reader = reader, .changer = changer};
			(void)snprintf(pair.name, sizeof(pair.name), "%s:%s", reader->name,
				       changer->name);
			bool has_socket = reader->is_socket || changer->is_socket;
			if (!is_named(options->pairs, pair.name) ||
			    is_named(options->except, pair.name) ||
			    (has_socket && options->address == NULL))
				continue;
			run++;
			if (judge_pair(options, &pair)) {
				bad++;
				(void)printf("FAIL %s\n", pair.name);
			}
		}
	}
	(void)printf("race: %u pairs, %u bad, seed %" PRIu64 "\n", run, bad, options->seed);
	return bad > 0 || run == 0;
}

/* --- The call --- */

static const struct option longs[] = {
	{"seconds", required_argument, NULL, OPT_SECONDS},
	{"seed", required_argument, NULL, OPT_SEED},
	{"pairs", required_argument, NULL, OPT_PAIRS},
	{"except", required_argument, NULL, OPT_EXCEPT},
	{"control", required_argument, NULL, OPT_CONTROL},
	{"socket", required_argument, NULL, OPT_SOCKET},
	{"key", required_argument, NULL, OPT_KEY},
	{"synced", no_argument, NULL, OPT_SYNCED},
	{NULL, 0, NULL, 0},
};

static bool take(struct options *options, int option)
{
	switch (option) {
	case OPT_SECONDS:
		options->seconds = strtod(optarg, NULL);
		return options->seconds > 0;
	case OPT_SEED:
		options->seed = strtoull(optarg, NULL, 10);
		return true;
	case OPT_PAIRS:
		options->pairs = optarg;
		return true;
	case OPT_EXCEPT:
		options->except = optarg;
		return true;
	case OPT_CONTROL:
		options->control = optarg;
		return true;
	case OPT_SOCKET:
		options->address = optarg;
		return true;
	case OPT_KEY:
		options->key = optarg;
		return true;
	case OPT_SYNCED:
		options->is_synced = true;
		return true;
	default:
		return false;
	}
}

int main(int argc, char **argv)
{
	struct options options = {.seconds = 1, .seed = 1, .pairs = "*", .except = ""};
	bool is_fine = true;
	int option;
	/* One thread: getopt's state is ours. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	while (is_fine && (option = getopt_long(argc, argv, "", longs, NULL)) != -1)
		is_fine = take(&options, option);
	if (!is_fine || optind != argc - 1 || (options.address == NULL) != (options.key == NULL)) {
		(void)fprintf(stderr,
			      "usage: race [--seconds S] [--seed N] [--pairs LIST] "
			      "[--except LIST] [--control DIR] [--socket ADDRESS --key KEY] "
			      "[--synced] DIR\n");
		return 2;
	}
	options.dir = argv[optind];
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED) {
		perror("race: mmap");
		return 2;
	}
	return run_all(&options);
}
