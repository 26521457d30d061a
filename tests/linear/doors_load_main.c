/* SPDX-License-Identifier: Apache-2.0 */
/* One life of a daemon, as clients at both its doors see it: what they do is recorded until each
 * has done enough, or the daemon is gone.
 *
 *   doors_load --address ADDRESS --mount DIR --out FILE --seed N --life N --acts N
 *              [--cached] [--synced] [--ended NS --ready NS]
 *
 * The first life (0) makes the groups' directories. --cached: the kernel of the mount may remember
 * what it was told; --synced: the mount has the option sync; --ended, --ready: when the daemon that
 * was there before was gone, and this one was ready (CLOCK_MONOTONIC). Before the clients begin all
 * objects are looked at; then it prints "begun", and in the end "lost NS", the time at which the
 * first client lost the daemon, if one did. A client more writes what nobody looks at, so that
 * logs and index go round.
 *
 * Status 0: the file is written; 1: something came that should never come; 2: a wrong call. */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/lapis.h"
#include "tests/linear/client.h"

#define FILLED_NAMES     500u
#define FILLED_BYTES     2000u /* lies in the index */
#define FILLED_BYTES_MAX (256u << 10)

struct call {
	struct lpi_plan plan;
	const char *out;
	uint64_t ended_ns;
	uint64_t ready_ns;
};

struct crew {
	struct lpi_client clients[LPI_CLIENTS + 1]; /* the last one looks at all, before */
	pthread_t threads[LPI_CLIENTS];
	pthread_t filler;
	struct lpi_acts acts;
};

static struct call the_call;
static struct crew the_crew;

static const struct option long_options[] = {
	{"address", required_argument, NULL, 'a'},
	{"mount", required_argument, NULL, 'm'},
	{"out", required_argument, NULL, 'o'},
	{"seed", required_argument, NULL, 's'},
	{"life", required_argument, NULL, 'l'},
	{"acts", required_argument, NULL, 'n'},
	{"ended", required_argument, NULL, 'e'},
	{"ready", required_argument, NULL, 'r'},
	{"cached", no_argument, NULL, 'c'},
	{"synced", no_argument, NULL, 'y'},
	{NULL, 0, NULL, 0},
};

LP_NORETURN static void die(int status, const char *what, int err)
{
	(void)fprintf(stderr, "doors_load: %s: %s\n", what, lp_strerror(err));
	_exit(status);
}

static void set_option(struct call *call, int option, const char *value)
{
	uint64_t number = value == NULL ? 0 : strtoull(value, NULL, 10);
	switch (option) {
	case 'a':
		call->plan.address = value;
		break;
	case 'm':
		call->plan.dir = value;
		break;
	case 'o':
		call->out = value;
		break;
	case 's':
		call->plan.seed = number;
		break;
	case 'l':
		call->plan.life = number;
		break;
	case 'n':
		call->plan.acts_max = (uint32_t)number;
		break;
	case 'e':
		call->ended_ns = number;
		break;
	case 'r':
		call->ready_ns = number;
		break;
	case 'c':
		call->plan.is_cached = true;
		break;
	case 'y':
		call->plan.is_synced = true;
		break;
	default:
		die(2, "an option", -EINVAL);
	}
}

/* The same in all lives of a store. */
static void choose_cells(struct lpi_plan *plan)
{
	static const uint32_t sizes[] = {100, 512, 1000, 1024, 4096, 4096, 6000, 16384, 65536};
	struct lp_prng prng;
	lp_prng_init(&prng, plan->seed);
	for (unsigned i = 0; i < LPI_GROUPS; i++)
		plan->cell_bytes[i] = sizes[lp_prng_below(&prng, LP_ARRAY_SIZE(sizes))];
}

/* --- Before the clients ----------------------------------------------------------------------- */

static void add_start(const struct call *call, unsigned group, struct lpi_acts *acts)
{
	struct lpi_act start = {.kind = LPI_START,
				.group = (uint8_t)group,
				.client = LPI_CLIENTS,
				.invoke_ns = call->ended_ns,
				.return_ns = call->ready_ns};
	if (call->plan.life == 0)
		start.invoke_ns = start.return_ns = lp_clock_mono_ns(lp_clock_system());
	if (group == LPI_ALWAYS_THERE)
		start.flags = LPI_LOSSY;
	if (lpi_acts_add(acts, &start) < 0)
		die(1, "starts", -ENOMEM);
}

static void make_group(struct lpi_client *client, unsigned group)
{
	char name[16];
	uint32_t flags = lp_prng_chance(&client->prng, 1, 2) ? LAPIS_SPREAD : 0;
	(void)snprintf(name, sizeof(name), "g%u", group);
	int err = lapis_mkdir(client->lapis, name, 0755, flags);
	if (err < 0)
		die(1, name, err);
	struct lpi_act act = {.kind = LPI_PUT,
			      .group = (uint8_t)group,
			      .client = (uint8_t)client->idx,
			      .count = 2,
			      .value = lpi_client_value(client)};
	lpi_client_do(client, &act);
}

static void look_at_all(struct lpi_client *client)
{
	static const uint8_t looks[] = {LPI_READ, LPI_STAT, LPI_XATTR_GET};
	const unsigned look_cnt = LP_ARRAY_SIZE(looks);
	for (unsigned i = 0; i < LPI_GROUPS * LPI_NAMES * look_cnt; i++) {
		unsigned place = i / look_cnt;
		struct lpi_act act = {.kind = looks[i % look_cnt],
				      .group = (uint8_t)(place / LPI_NAMES),
				      .name = (uint8_t)(place % LPI_NAMES),
				      .client = (uint8_t)client->idx,
				      .count = LPI_CELLS};
		if (client->is_lost || (act.group == LPI_ALWAYS_THERE && act.name > 0))
			continue;
		lpi_client_do(client, &act);
	}
}

/* --- The clients ------------------------------------------------------------------------------ */

static void *work(void *arg)
{
	lpi_client_run(arg);
	return NULL;
}

/* Until the others are done: of its own objects it only says that they may be written late. */
static void *fill(void *arg)
{
	struct lpi_client *client = arg;
	static uint8_t data[FILLED_BYTES_MAX];
	char path[32];
	int err = 0;
	while (!atomic_load(&client->plan->has_ended) && (err == 0 || err == -EAGAIN)) {
		const struct lapis_put_options options = {.size = sizeof(options),
							  .flags = LAPIS_ORDERED};
		bool is_large = lp_prng_chance(&client->prng, 1, 50);
		(void)snprintf(path, sizeof(path), "fill/%u",
			       (unsigned)lp_prng_below(&client->prng, FILLED_NAMES));
		err = lapis_put(client->lapis, path, data,
				is_large ? FILLED_BYTES_MAX : FILLED_BYTES, &options, NULL);
	}
	if (err != 0 && err != -EAGAIN && err != -ENOTCONN && err != -LAPIS_EUNKNOWN)
		lpi_client_fail(client, "what fills: %s", lp_strerror(err));
	return NULL;
}

static void gather(struct crew *crew)
{
	/* The one who looked comes behind the starts, and before all others. */
	for (unsigned i = 0; i <= LPI_CLIENTS; i++) {
		const struct lpi_acts *acts =
			&crew->clients[(i + LPI_CLIENTS) % (LPI_CLIENTS + 1)].acts;
		for (size_t k = 0; k < acts->cnt; k++) {
			if (lpi_acts_add(&crew->acts, &acts->list[k]) < 0)
				die(1, "acts", -ENOMEM);
		}
	}
}

static int tell_trouble(const struct crew *crew)
{
	int status = 0;
	for (unsigned i = 0; i <= LPI_CLIENTS; i++) {
		if (crew->clients[i].trouble[0] == '\0')
			continue;
		(void)fprintf(stderr, "doors_load: client %u: %s\n", i, crew->clients[i].trouble);
		status = 1;
	}
	return status;
}

/* For whoever knows when the daemon was killed: until then nobody may have lost it. */
static void tell_first_loss(const struct crew *crew)
{
	uint64_t first_ns = UINT64_MAX;
	for (unsigned i = 0; i < LPI_CLIENTS; i++) {
		if (crew->clients[i].lost_ns != 0)
			first_ns = LP_MIN(first_ns, crew->clients[i].lost_ns);
	}
	if (first_ns != UINT64_MAX)
		(void)printf("lost %llu\n", (unsigned long long)first_ns);
}

static void run_clients(struct crew *crew, struct lpi_plan *plan)
{
	if (pthread_create(&crew->filler, NULL, fill, &crew->clients[LPI_CLIENTS]) != 0)
		die(1, "a thread", -EAGAIN);
	for (unsigned i = 0; i < LPI_CLIENTS; i++) {
		if (pthread_create(&crew->threads[i], NULL, work, &crew->clients[i]) != 0)
			die(1, "a thread", -EAGAIN);
	}
	for (unsigned i = 0; i < LPI_CLIENTS; i++)
		(void)pthread_join(crew->threads[i], NULL); /* it is one that was made */
	atomic_store(&plan->has_ended, true);
	(void)pthread_join(crew->filler, NULL);
}

int main(int argc, char **argv)
{
	struct call *call = &the_call;
	struct crew *crew = &the_crew;
	struct lpi_client *first = &crew->clients[LPI_CLIENTS];
	int option;
	/* One thread: getopt's state is ours. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1)
		set_option(call, option, optarg);
	if (call->plan.address == NULL || call->plan.dir == NULL || call->out == NULL)
		die(2, "--address, --mount, --out", -EINVAL);
	choose_cells(&call->plan);
	for (unsigned i = 0; i <= LPI_CLIENTS; i++) {
		int err = lpi_client_init(&crew->clients[i], &call->plan, i);
		if (err < 0)
			die(1, "a client", err);
	}
	for (unsigned i = 0; i < LPI_GROUPS; i++)
		add_start(call, i, &crew->acts);
	for (unsigned i = 0; i < LPI_GROUPS && call->plan.life == 0; i++)
		make_group(first, i);
	look_at_all(first);
	(void)puts("begun"); /* who does not hear it waits in vain, and says so */
	(void)fflush(stdout);
	run_clients(crew, &call->plan);
	gather(crew);
	int err = lpi_acts_save(&crew->acts, call->out);
	if (err < 0)
		die(1, call->out, err);
	int status = tell_trouble(crew);
	tell_first_loss(crew);
	for (unsigned i = 0; i <= LPI_CLIENTS; i++)
		lpi_client_fini(&crew->clients[i]);
	lpi_acts_fini(&crew->acts);
	return status;
}
