/* SPDX-License-Identifier: Apache-2.0 */
/* Memory runs out in a daemon that starts or stops, or gets an option. Each allocation of our code
 * fails once, in a life of its own. Either all shards serve and the daemon stops in order when
 * requested, or the start is refused with a sentence. An option is set on all threads or on none.
 * The daemon neither dies nor hangs, and gives back all memory (P5). */
#include "base/testing/scarce_test.h"

#include <dirent.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sanitize.h"
#include "daemon/admin.h"
#include "daemon/service_impl.h"
#include "native/door_impl.h"

#define SHARDS    "2"
#define THREADS   "2"
#define MEMORY    "128M" /* there is no less for two shards */
#define LIVES_MIN 20
/* With a thread sanitizer a life takes much longer, so only one in FEWER is tried. In the
 * environment LP_MEMORY_ALL: each; LP_MEMORY_FROM: from this one on, for a debugger (break
 * lp_scarce_refuse). Threads run beside each other, so the allocation of a number differs by a few.
 */
#define FEWER (LP_SAN_THREAD ? 5 : 1)

#define REQUESTS_WAS 64u
#define REQUESTS_NEW 20000u /* a pool has to grow for that */

struct life {
	struct lp_config config;
	struct lp_service *service;
	char dir[64];
	char socket[96];
	uint32_t ready_cnt;
	uint32_t stopping_cnt;
	/* The question when it serves, and the allocation that fails then; 0: no question. */
	struct lpi_question question;
	long failing;
	bool was_hit;
	char why[LP_WHY_MAX];
};

static void is_ready(void *arg)
{
	struct life *life = arg;
	life->ready_cnt++;
	assert_int_equal(access(life->socket, F_OK), 0);
	if (life->question.opcode == 0) {
		lp_service_stop(life->service);
		return;
	}
	lp_scarce_again(life->failing);
	lpi_gather_ask(life->service->gather, &life->question);
}

static void is_stopping(void *arg)
{
	struct life *life = arg;
	life->stopping_cnt++;
}

static void set(struct life *life, enum lp_option option, const char *text)
{
	lp_test_ok(lp_config_set(&life->config, option, text, life->why));
}

/* In a directory of its own. */
static void prepare(struct life *life)
{
	char address[128];
	(void)snprintf(life->dir, sizeof(life->dir), "/tmp/lapis-service-memory-XXXXXX");
	assert_non_null(mkdtemp(life->dir));
	(void)snprintf(life->socket, sizeof(life->socket), "%s/s", life->dir);
	(void)snprintf(address, sizeof(address), "unix:%s", life->socket);
	lp_config_init(&life->config);
	set(life, LP_OPT_STORE, "mem");
	set(life, LP_OPT_SHARDS, SHARDS);
	set(life, LP_OPT_THREADS, THREADS);
	set(life, LP_OPT_MEMORY, MEMORY);
	set(life, LP_OPT_WORKERS, "1");
	set(life, LP_OPT_LISTEN, address);
	life->why[0] = '\0';
}

/* As lapisd does it. */
static int live(struct life *life)
{
	const struct lp_service_options options = {.config = &life->config,
						   .server_name = "lapisd (test)",
						   .uid = UINT32_MAX,
						   .gid = UINT32_MAX,
						   .ready = is_ready,
						   .stopping = is_stopping,
						   .arg = life};
	int err = lp_service_open(&options, &life->service, life->why);
	if (err < 0)
		return err;
	err = lp_service_start(life->service, life->why);
	if (err == 0)
		err = lp_service_run(life->service, life->why);
	lp_service_close(life->service);
	return err;
}

static int open_files(void)
{
	int cnt = 0;
	DIR *dir = opendir("/proc/self/fd");
	assert_non_null(dir);
	while (readdir(dir) != NULL) /* NOLINT(concurrency-mt-unsafe): there is one thread */
		cnt++;
	(void)closedir(dir);
	return cnt;
}

/* False: fewer allocations are made than this. */
static bool fail_at(long idx)
{
	struct life *life = calloc(1, sizeof(*life));
	assert_non_null(life);
	prepare(life);
	int files = open_files();
	atomic_store(&lp_scarce_made, 0);
	lp_scarce_again(idx);
	int err = live(life);
	bool was_hit = lp_scarce_pause() < 0;
	/* The space of a store in memory is memory. */
	bool is_refusal = (err == -ENOMEM || err == -ENOSPC) && life->why[0] != '\0';
	if (err < 0 && !is_refusal)
		fail_msg("allocation %ld: %s: '%s'", idx, lp_strerror(err), life->why);
	assert_true(was_hit || err == 0);
	assert_true(err < 0 || life->ready_cnt == 1);
	assert_int_equal(life->ready_cnt, life->stopping_cnt);
	assert_int_equal(open_files(), files);
	assert_int_equal(rmdir(life->dir), 0); /* the socket has gone */
	free(life);
	return was_hit;
}

/* All threads have the one value, or all the other. */
static void check_requests_max(const struct lp_service *service, uint32_t want)
{
	assert_int_equal(lp_config_number(&service->config, LP_OPT_REQUESTS_MAX), want);
	for (uint32_t i = 0; i < service->thread_cnt; i++) {
		const struct lp_config *config = &service->threads[i].config;
		assert_int_equal(lp_config_number(config, LP_OPT_REQUESTS_MAX), want);
	}
	for (uint32_t i = 0; i < service->shard_cnt; i++)
		assert_int_equal(service->shards[i].door->options.requests_max, want);
}

static void answered(struct lpi_question *question)
{
	struct life *life = LP_CONTAINER_OF(question, struct life, question);
	life->was_hit = lp_scarce_pause() < 0;
	if (question->result < 0)
		lp_test_err(-ENOMEM, question->result);
	assert_true(life->was_hit || question->result == 0);
	check_requests_max(life->service, question->result < 0 ? REQUESTS_WAS : REQUESTS_NEW);
	lpi_text_fini(&question->answer);
	lp_service_stop(life->service);
}

/* False: fewer allocations are made than this. */
static bool fail_in_option_at(long idx)
{
	struct life *life = calloc(1, sizeof(*life));
	assert_non_null(life);
	prepare(life);
	lp_test_ok(lp_config_set(&life->config, LP_OPT_REQUESTS_MAX, "64", life->why));
	life->failing = idx;
	life->question.opcode = LP_WIRE_OP_CONFIG_SET;
	life->question.answered = answered;
	(void)snprintf(life->question.text, sizeof(life->question.text), "requests-max=%u",
		       REQUESTS_NEW);
	lp_test_ok(live(life));
	assert_int_equal(life->ready_cnt, 1);
	assert_int_equal(rmdir(life->dir), 0);
	bool was_hit = life->was_hit;
	free(life);
	return was_hit;
}

static void an_option_is_set_everywhere_or_nowhere(void **state)
{
	long idx = 0;
	(void)state;
	lp_log_set_level(LP_LEVEL_ERROR);
	while (fail_in_option_at(idx))
		idx++;
	print_message("%ld allocations\n", idx);
	assert_true(idx > 1);
}

static void each_fails_once(void **state)
{
	/* No test changes its environment. NOLINTBEGIN(concurrency-mt-unsafe) */
	bool is_all = getenv("LP_MEMORY_ALL") != NULL;
	const char *from = getenv("LP_MEMORY_FROM");
	/* NOLINTEND(concurrency-mt-unsafe) */
	long idx = from != NULL ? strtol(from, NULL, 10) : 0;
	long step = FEWER;
	(void)state;
	if (is_all)
		step = 1;
	lp_log_set_level(LP_LEVEL_ERROR); /* each life logs that it serves */
	while (fail_at(idx))
		idx += step;
	print_message("%ld allocations in a life\n", atomic_load(&lp_scarce_made));
	assert_true(idx > LIVES_MIN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_fails_once),
		cmocka_unit_test(an_option_is_set_everywhere_or_nowhere),
	};
	return lp_test_main(tests, "daemon/service_memory");
}
