/* SPDX-License-Identifier: Apache-2.0 */
/* stale [--seconds N] [--only CASE] [--skip-mixed] [--socket ADDRESS KEY] FILE
 *
 * Each case for so many seconds, on FILE, which is made anew. With --socket the same file is
 * changed there, as KEY. --skip-mixed leaves out what ext4 and a mount that writes back do not
 * promise. 0: nothing was old; 1: something was; 2: something failed. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/strangers/stale.h"

struct options {
	const char *path;
	const char *only;
	const char *address;
	const char *key;
	double seconds;
	bool skips_mixed;
};

static bool parse(int argc, char **argv, struct options *ret)
{
	*ret = (struct options){.seconds = 1};
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
			ret->seconds = strtod(argv[++i], NULL);
		} else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
			ret->only = argv[++i];
		} else if (strcmp(argv[i], "--skip-mixed") == 0) {
			ret->skips_mixed = true;
		} else if (strcmp(argv[i], "--socket") == 0 && i + 2 < argc) {
			ret->address = argv[++i];
			ret->key = argv[++i];
		} else if (argv[i][0] == '-' || ret->path != NULL) {
			return false;
		} else {
			ret->path = argv[i];
		}
	}
	return ret->path != NULL && ret->seconds > 0;
}

static bool is_wanted(const struct options *options, const struct lpi_stale_case *one)
{
	if (options->only != NULL)
		return strcmp(options->only, one->name) == 0;
	return !(one->needs_socket && options->address == NULL) &&
	       !(one->is_for_one_kernel && options->skips_mixed);
}

static uint64_t in_ns(double seconds)
{
	struct timespec ts;
	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* it is always there */
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec + (uint64_t)(seconds * 1e9);
}

static bool run_case(const struct options *options, const struct lpi_stale_case *one,
		     struct lpi_stale *shared)
{
	memset(shared, 0, sizeof(*shared));
	struct lpi_stale_run run = {.shared = shared,
				    .path = options->path,
				    .address = options->address,
				    .key = options->key};
	(void)unlink(options->path);                         /* there may be none */
	(void)close(lpi_stale_open(&run, O_RDWR | O_CREAT)); /* nothing was written */
	/* Whatever hangs is ended. */
	(void)alarm((unsigned)options->seconds + 60);
	run.until_ns = in_ns(options->seconds);
	one->run(&run);
	lpi_stale_end(&run);
	(void)printf("%s: %llu looks, %llu of them saw old data\n", one->name,
		     (unsigned long long)shared->looks, (unsigned long long)shared->stale);
	(void)fflush(stdout); /* for whoever looks on */
	if (shared->looks == 0)
		lpi_stale_fail("nobody has looked");
	return shared->stale == 0;
}

int main(int argc, char **argv)
{
	struct options options;
	unsigned cnt = 0;
	bool is_good = true;
	if (!parse(argc, argv, &options)) {
		(void)fprintf(stderr, "usage: stale [--seconds N] [--only CASE] [--skip-mixed] "
				      "[--socket ADDRESS KEY] FILE\n");
		return 2;
	}
	struct lpi_stale *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
					MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		lpi_stale_fail("mmap");
	for (unsigned i = 0; i < lpi_stale_case_cnt; i++) {
		if (!is_wanted(&options, &lpi_stale_cases[i]))
			continue;
		is_good &= run_case(&options, &lpi_stale_cases[i], shared);
		cnt++;
	}
	(void)unlink(options.path); /* it is only ours */
	if (cnt == 0)
		lpi_stale_fail("there is no such case");
	return is_good ? 0 : 1;
}
