/* SPDX-License-Identifier: Apache-2.0 */
/* How fast one thread drives a device through store/device/bdev.h: random I/O of one size at one
 * depth. The raw limit that everything above is measured against. bench/bdev compares it with fio.
 * With
 * --crc it does what no reader who promises right data can leave out: it sums each block. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/prng.h"
#include "store/device/bdev_delay.h"

#define DEPTH_MAX 1024u
#define CRC_BYTES UINT64_C(4096)

struct bench {
	struct lp_reactor *reactor;
	struct lp_bdev *bdev;
	struct lp_bdev_chan *chan;
	enum lp_bdev_opcode opcode;
	uint64_t size_bytes;
	uint64_t span_bytes; /* so much of the device, from its beginning, */
	uint64_t slots;      /* is so many places of size_bytes */
	uint32_t depth;
	double seconds;
	uint64_t spin_ns;
	bool registered;
	bool crc;
	const struct lp_bdev_delay_options *delay; /* NULL: none */

	struct lp_prng prng;
	uint64_t end_ns;
	uint64_t ops;
	uint64_t latency_sum_ns;
	uint32_t crc_sum; /* of all, so that none can be left out */
	int first_error;
	uint8_t *buffers;
	struct unit {
		struct lp_bdev_op op;
		struct bench *bench;
		void *buf;
	} units[DEPTH_MAX];
};

static void unit_start(struct unit *unit)
{
	struct bench *bench = unit->bench;
	uint64_t offset = lp_prng_below(&bench->prng, bench->slots) * bench->size_bytes;
	lp_bdev_op_prep(&unit->op, bench->opcode, unit->buf, bench->size_bytes, offset);
	lp_bdev_submit(bench->chan, &unit->op);
}

static void sum_blocks(struct bench *bench, const uint8_t *at, uint64_t bytes)
{
	for (uint64_t done = 0; done < bytes; done += CRC_BYTES) {
		uint64_t len = LP_MIN(bytes - done, CRC_BYTES);
		const uint8_t *next = done + len < bytes ? at + done + len : NULL;
		bench->crc_sum ^= lp_crc32c_ahead(0, at + done, len, next);
	}
}

static void unit_complete(struct lp_bdev_op *op)
{
	struct unit *unit = LP_CONTAINER_OF(op, struct unit, op);
	struct bench *bench = unit->bench;
	uint64_t now_ns = lp_reactor_now_ns(bench->reactor);
	if (op->result < 0 && bench->first_error == 0)
		bench->first_error = op->result;
	if (bench->crc && op->opcode == LP_BDEV_READ)
		sum_blocks(bench, unit->buf, bench->size_bytes);
	bench->ops++;
	bench->latency_sum_ns += now_ns - op->submitted_ns;
	if (now_ns < bench->end_ns && bench->first_error == 0)
		unit_start(unit);
}

static int set_up(struct bench *bench, const char *path)
{
	const struct lp_reactor_options options = {.name = "bench",
						   .ring = true,
						   .files_max = 4,
						   .buffers_max = 1,
						   .spin_max_ns = bench->spin_ns};
	const struct lp_bdev_open_options open_options = {.exclusive = true};
	struct lp_bdev *inner = NULL;
	int err = lp_reactor_new(&options, &bench->reactor);
	if (err < 0) {
		char why[512];
		(void)lp_reactor_explain(err, why, sizeof(why));
		(void)fprintf(stderr, "bdev_bench: %s\n", why);
		return err;
	}
	err = lp_reactor_start(bench->reactor);
	if (err >= 0)
		err = lp_bdev_open_uring(path, &open_options, &inner);
	if (err >= 0 && bench->delay != NULL)
		err = lp_bdev_open_delay(&inner, bench->delay, &bench->bdev);
	else
		bench->bdev = inner;
	if (err >= 0)
		err = lp_bdev_attach(bench->bdev, bench->reactor, &bench->chan);
	if (err < 0)
		return err;
	size_t bytes = bench->size_bytes * bench->depth;
	bench->buffers = aligned_alloc(4096, lp_align_up(bytes, 4096));
	if (bench->buffers == NULL)
		return -ENOMEM;
	lp_prng_init(&bench->prng, 1);
	lp_prng_fill(&bench->prng, bench->buffers, bytes);
	uint64_t device_bytes = lp_bdev_caps(bench->bdev)->size_bytes;
	bench->slots = LP_MIN(bench->span_bytes, device_bytes) / bench->size_bytes;
	if (bench->registered)
		err = lp_reactor_buffer_add(bench->reactor, bench->buffers, bytes);
	return err < 0 ? err : bench->slots == 0 ? -ENOSPC : 0;
}

static uint64_t cpu_us(void)
{
	struct rusage usage;
	if (getrusage(RUSAGE_THREAD, &usage) < 0)
		return 0;
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void run(struct bench *bench)
{
	uint64_t start_cpu_us = cpu_us();
	uint64_t start_ns = lp_clock_mono_ns(lp_clock_system());
	bench->end_ns = start_ns + (uint64_t)(bench->seconds * (double)LP_NS_PER_S);
	for (uint32_t i = 0; i < bench->depth; i++) {
		struct unit *unit = &bench->units[i];
		unit->bench = bench;
		unit->buf = bench->buffers + i * bench->size_bytes;
		unit->op.complete = unit_complete;
		unit_start(unit);
	}
	while (lp_bdev_inflight(bench->chan) > 0)
		(void)lp_reactor_turn(bench->reactor, true);
	double seconds = (double)(lp_clock_mono_ns(lp_clock_system()) - start_ns) / 1e9;
	const struct lp_reactor_stats *stats = lp_reactor_stats(bench->reactor);
	(void)printf(
		"{\"op\": \"%s\", \"size\": %llu, \"depth\": %u, \"seconds\": %.3f, \"ops\": %llu, "
		"\"iops\": %.1f, \"latency_us\": %.2f, \"cpu_us_per_op\": %.2f, "
		"\"enters_per_op\": %.3f, "
		"\"spins_won\": %llu, \"spins_lost\": %llu}\n",
		lp_bdev_opcode_name(bench->opcode), (unsigned long long)bench->size_bytes,
		bench->depth, seconds, (unsigned long long)bench->ops, (double)bench->ops / seconds,
		(double)bench->latency_sum_ns / (double)bench->ops / 1e3,
		(double)(cpu_us() - start_cpu_us) / (double)bench->ops,
		(double)stats->enters / (double)bench->ops, (unsigned long long)stats->spins_won,
		(unsigned long long)stats->spins_lost);
}

static void tear_down(struct bench *bench)
{
	if (bench->registered && bench->buffers != NULL && bench->first_error != -ENOMEM)
		lp_reactor_buffer_remove(bench->reactor, bench->buffers);
	lp_bdev_detach(bench->chan);
	lp_bdev_close(bench->bdev);
	lp_reactor_free(bench->reactor);
	free(bench->buffers);
}

static int parse_opcode(const char *name, enum lp_bdev_opcode *ret_opcode)
{
	for (int i = 0; i <= LP_BDEV_WRITE_THROUGH; i++) {
		if (strcmp(name, lp_bdev_opcode_name((enum lp_bdev_opcode)i)) == 0) {
			*ret_opcode = (enum lp_bdev_opcode)i;
			return 0;
		}
	}
	return -EINVAL;
}

static int usage(void)
{
	(void)fputs("usage: bdev_bench [--op read|write|write-through] [--size BYTES] [--depth N]\n"
		    "                  [--seconds S] [--span BYTES] [--spin-us N] [--registered]\n"
		    "                  [--crc] [--delay PROFILE] DEVICE\n"
		    "Random I/O over the whole of DEVICE, or as much of it, whose content is "
		    "destroyed\n"
		    "by writes.\n",
		    stderr);
	return 2;
}

static bool parse(int argc, char **argv, struct bench *bench)
{
	static const struct option options[] = {
		{"op", required_argument, NULL, 'o'},    {"size", required_argument, NULL, 'z'},
		{"depth", required_argument, NULL, 'd'}, {"seconds", required_argument, NULL, 's'},
		{"span", required_argument, NULL, 'n'},  {"spin-us", required_argument, NULL, 'p'},
		{"registered", no_argument, NULL, 'r'},  {"crc", no_argument, NULL, 'c'},
		{"delay", required_argument, NULL, 'y'}, {NULL, 0, NULL, 0},
	};
	int c;
	/* One thread: getopt's global state is ours. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'o' && parse_opcode(optarg, &bench->opcode) < 0)
			return false;
		if (c == 'z')
			bench->size_bytes = strtoull(optarg, NULL, 10);
		if (c == 'd')
			bench->depth = (uint32_t)strtoul(optarg, NULL, 10);
		if (c == 's')
			bench->seconds = strtod(optarg, NULL);
		if (c == 'n')
			bench->span_bytes = strtoull(optarg, NULL, 10);
		if (c == 'p')
			bench->spin_ns = strtoull(optarg, NULL, 10) * LP_NS_PER_US;
		if (c == 'r')
			bench->registered = true;
		if (c == 'c')
			bench->crc = true;
		if (c == 'y')
			bench->delay = lp_bdev_delay_profile(optarg);
		if (c == 'y' && bench->delay == NULL)
			return false;
		if (c == '?')
			return false;
	}
	return optind == argc - 1 && bench->depth >= 1 && bench->depth <= DEPTH_MAX &&
	       bench->size_bytes >= 512 && bench->size_bytes % 512 == 0 &&
	       bench->size_bytes * bench->depth <= LP_BDEV_IO_MAX;
}

int main(int argc, char **argv)
{
	static struct bench bench = {
		.size_bytes = 4096, .depth = 1, .seconds = 1.0, .span_bytes = UINT64_MAX};
	if (!parse(argc, argv, &bench))
		return usage();
	int err = set_up(&bench, argv[optind]);
	if (err >= 0) {
		run(&bench);
		err = bench.first_error;
	}
	if (err < 0)
		(void)fprintf(stderr, "bdev_bench: %s: %s\n", argv[optind], lp_strerror(err));
	if (bench.reactor != NULL && bench.chan != NULL)
		tear_down(&bench);
	return err < 0 ? 1 : 0;
}
