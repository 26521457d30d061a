/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzzer without libFuzzer: on each file of a directory, and on so many mutations of each.
 *
 *   NAME_fuzz DIRECTORY [MUTATIONS]
 *
 * The mutations follow from the file and their number alone: what fails once fails again. An input
 * that is about to run is in the file "fuzz.input" of the working directory, so that it is still
 * there after an abort. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/prng.h"
#include "tests/fuzz/fuzz.h"

#define INPUT_BYTES_MAX (1u << 20)
#define PATH_BYTES_MAX  4096u

static uint8_t seed[INPUT_BYTES_MAX];
static uint8_t input[INPUT_BYTES_MAX];
static unsigned long run_cnt;

static void die(const char *what, const char *path)
{
	(void)fprintf(stderr, "%s: %s\n", path, what);
	_exit(1);
}

static size_t read_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	if (file == NULL)
		die("cannot be opened", path);
	size_t len = fread(seed, 1, sizeof(seed), file);
	if (ferror(file) != 0 || fclose(file) != 0)
		die("cannot be read", path);
	return len;
}

static void run(size_t len)
{
	static int fd = -1;
	if (fd < 0)
		fd = open("fuzz.input", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0 || pwrite(fd, input, len, 0) != (ssize_t)len || ftruncate(fd, (off_t)len) < 0)
		die("cannot be written", "fuzz.input");
	(void)LLVMFuzzerTestOneInput(input, len);
	run_cnt++;
}

/* Changes one place. Returns the new length. */
static size_t mutate_once(size_t len, struct lp_prng *prng)
{
	static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff};
	if (len == 0)
		return 0;
	size_t at = lp_prng_below(prng, len);
	size_t part = lp_prng_between(prng, 1, LP_MIN(len - at, (size_t)64));
	size_t from = lp_prng_below(prng, len - part + 1);
	switch (lp_prng_below(prng, 6)) {
	case 0:
		input[at] ^= (uint8_t)(1u << lp_prng_below(prng, 8));
		return len;
	case 1:
		input[at] = edges[lp_prng_below(prng, LP_ARRAY_SIZE(edges))];
		return len;
	case 2:
		input[at] = (uint8_t)(input[at] + (int)lp_prng_between(prng, 0, 8) - 4);
		return len;
	case 3:
		memmove(input + at, input + from, part);
		return len;
	case 4: /* take a part out */
		memmove(input + at, input + at + part, len - at - part);
		return len - part;
	default: /* say a part twice */
		if (len + part > sizeof(input))
			return len;
		memmove(input + at + part, input + at, len - at);
		return len + part;
	}
}

static void run_file(const char *path, unsigned long mutation_cnt)
{
	struct lp_prng prng;
	size_t seed_len = read_file(path);
	lp_prng_init(&prng, lp_hash_u64(seed, seed_len, 0));
	memcpy(input, seed, seed_len);
	run(seed_len);
	for (unsigned long i = 0; i < mutation_cnt; i++) {
		size_t len = seed_len;
		memcpy(input, seed, seed_len);
		for (uint64_t n = lp_prng_between(&prng, 1, 6); n > 0; n--)
			len = mutate_once(len, &prng);
		run(len);
	}
}

static int is_seed(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
	struct dirent **entries = NULL;
	char path[PATH_BYTES_MAX];
	if (argc < 2 || argc > 3) {
		(void)fprintf(stderr, "usage: %s DIRECTORY [MUTATIONS]\n", argv[0]);
		return 2;
	}
	unsigned long mutation_cnt = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
	int entry_cnt = scandir(argv[1], &entries, is_seed, alphasort);
	if (entry_cnt <= 0)
		die("no seeds", argv[1]);
	for (int i = 0; i < entry_cnt; i++) {
		int len = snprintf(path, sizeof(path), "%s/%s", argv[1], entries[i]->d_name);
		if (len < 0 || (size_t)len >= sizeof(path))
			die("name too long", argv[1]);
		run_file(path, mutation_cnt);
		free(entries[i]);
	}
	free(entries);
	(void)printf("%d seeds, %lu runs\n", entry_cnt, run_cnt);
	return 0;
}
