/* SPDX-License-Identifier: Apache-2.0 */
/* What our code, and the index's, takes for an operation: one shard's namespace over its store on a
 * device in memory, in one process, without a ring, threads, or a kernel that does anything.
 *
 *   create     puts of new objects of 4 KiB into one directory
 *   overwrite  4 KiB at random places of one file
 *   read       the same places, read
 *
 *   ns_bench --op OP [--ops N] [--prepared N] [--depth N] [--memory MIB]
 *            [--path auto|inline|deferred|direct]
 *
 * Time is simulated, so the same things happen in each run: instructions can be counted exactly.
 * What N operations more take is what they cost:
 *
 *   valgrind --tool=callgrind --callgrind-out-file=a build/release/tools/ns_bench --op create --ops
 *   10000; the same with 20000; and the difference by 10000
 *
 * Without valgrind it prints the thread's CPU time for an operation, which knows no device and no
 * socket: to compare two states of the code in turn. --prepared is how many are made before the
 * clock starts, for a memtable and caches that are as full as they are in earnest. With little
 * --memory (64) reads come from the device, with as much as there is by default from the cache.
 * Flushes and compactions of the index, which a daemon has on threads of their own, count when
 * they come. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/loop/workers.h"
#include "base/prng.h"
#include "base/units.h"
#include "namespace/ns.h"
#include "store/setup/mkfs.h"
#include "store/volume/devices.h"

#define DEVICE_BYTES (UINT64_C(2) << 30)
#define LOG_BYTES    (UINT64_C(64) << 20)
#define BUFS_BYTES   (UINT64_C(512) << 20)
#define MEMORY_MIB   512u
#define FILE_BLOCKS  UINT64_C(16384)
#define DEPTH_MAX    256u
#define NAME_BYTES   48u

enum op { OP_CREATE, OP_OVERWRITE, OP_READ, OP_CNT };
static const char *const op_names[OP_CNT] = {"create", "overwrite", "read"};
static const char *const path_names[LP_PATH_CNT] = {"auto", "inline", "deferred", "direct"};

static struct {
	enum op op;
	uint64_t ops;
	uint64_t prepared;
	uint64_t memory_mib;
	uint32_t depth;
	enum lp_write_path path;
} options = {.op = OP_CNT, .ops = 10000, .depth = 128, .memory_mib = MEMORY_MIB};

/* One of those under way. */
struct slot {
	struct lp_ns_op op;
	struct lp_change changes[2];
	struct lp_attrs attrs;
	struct lp_seg seg;
	char name[NAME_BYTES];
};

static struct {
	struct lp_clock_sim clock;
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	struct lp_bufs *bufs;
	struct lp_bdev *bdev;
	struct lp_devices devices;
	struct lp_store *store;
	struct lp_ns *ns;
	bool is_told;
	struct slot slots[DEPTH_MAX];
	struct lp_ino file;
	struct lp_prng prng;
	uint32_t crc;    /* of what is written */
	uint64_t begun;  /* operations, of this part of the run */
	uint64_t ended;  /* of all */
	uint64_t target; /* of this part */
	uint64_t made;
} bench;

static void die(const char *what, int err)
{
	(void)fprintf(stderr, "ns_bench: %s: %s\n", what, lp_strerror(err));
	exit(1); /* NOLINT(concurrency-mt-unsafe): one thread */
}

static void must(int result, const char *what)
{
	if (result < 0)
		die(what, result);
}

static void turn(void)
{
	(void)lp_store_sim_run_one(bench.store);
	(void)lp_reactor_turn(bench.reactor, true);
}

/* --- Operations ------------------------------------------------------------------------------- */

static void begin(struct slot *slot);

static void ended(struct lp_ns_op *op)
{
	struct slot *slot = LP_CONTAINER_OF(op, struct slot, op);
	must(op->result, "an operation");
	if (op->opcode == LP_NS_STORE && op->store.op.opcode == LP_STORE_READ)
		lp_ns_end(bench.ns, op);
	if (slot->seg.buf != NULL)
		lp_buf_put(slot->seg.buf);
	slot->seg.buf = NULL;
	bench.ended++;
	if (bench.begun < bench.target)
		begin(slot);
}

/* As the door has received it: a buffer of its own, and its checksum. */
static struct lp_payload payload_of(struct slot *slot)
{
	slot->seg = (struct lp_seg){lp_buf_new(bench.bufs, LP_BUF_SMALL), 0, LP_BUF_SMALL};
	if (slot->seg.buf == NULL)
		die("a buffer", -ENOMEM);
	memset(slot->seg.buf->data, 0x5a, LP_BUF_SMALL);
	return (struct lp_payload){
		.segs = &slot->seg, .seg_cnt = 1, .crcs = &bench.crc, .crc_cnt = 1};
}

static void fill_create(struct slot *slot)
{
	int len = snprintf(slot->name, sizeof(slot->name), "load/1-%llu",
			   (unsigned long long)bench.made++);
	slot->op.opcode = LP_NS_PUT;
	slot->op.put.path = (struct lp_bytes){slot->name, (uint32_t)len};
	slot->op.put.mode = 0644;
	slot->op.put.payload = payload_of(slot);
	slot->op.put.length = LP_BUF_SMALL;
	slot->op.put.write_path = options.path;
}

static void fill_overwrite(struct slot *slot, uint64_t block)
{
	slot->attrs.mtime_ns = lp_clock_wall_ns(lp_reactor_clock(bench.reactor));
	slot->attrs.ctime_ns = slot->attrs.mtime_ns;
	slot->changes[0] = (struct lp_change){.type = LP_CHANGE_WRITE,
					      .ino = bench.file,
					      .data = {.offset = block * LP_BUF_SMALL,
						       .length = LP_BUF_SMALL,
						       .payload = payload_of(slot),
						       .path = options.path}};
	slot->changes[1] = (struct lp_change){
		.type = LP_CHANGE_SET,
		.ino = bench.file,
		.inode = {.attrs = &slot->attrs, .mask = LP_ATTR_MTIME | LP_ATTR_CTIME}};
	slot->op.opcode = LP_NS_STORE;
	slot->op.store.ino = bench.file;
	slot->op.store.op.opcode = LP_STORE_TXN;
	slot->op.store.op.txn.changes = slot->changes;
	slot->op.store.op.txn.change_cnt = 2;
}

static void fill_read(struct slot *slot)
{
	slot->op.opcode = LP_NS_STORE;
	slot->op.store.ino = bench.file;
	slot->op.store.op.opcode = LP_STORE_READ;
	slot->op.store.op.read.ino = bench.file;
	slot->op.store.op.read.offset = lp_prng_below(&bench.prng, FILE_BLOCKS) * LP_BUF_SMALL;
	slot->op.store.op.read.length = LP_BUF_SMALL;
}

static void begin(struct slot *slot)
{
	memset(&slot->op, 0, sizeof(slot->op));
	slot->op.complete = ended;
	bench.begun++;
	switch (options.op) {
	case OP_CREATE:
		fill_create(slot);
		break;
	case OP_OVERWRITE:
		fill_overwrite(slot, lp_prng_below(&bench.prng, FILE_BLOCKS));
		break;
	case OP_READ:
	case OP_CNT:
		fill_read(slot);
		break;
	}
	lp_ns_submit(bench.ns, &slot->op);
}

static void run(uint64_t ops)
{
	bench.begun = 0;
	bench.ended = 0;
	bench.target = ops;
	for (uint32_t i = 0; i < options.depth && bench.begun < ops; i++)
		begin(&bench.slots[i]);
	while (bench.ended < ops)
		turn();
}

/* --- The file --------------------------------------------------------------------------------- */

static void fill_ended(struct lp_ns_op *op)
{
	must(op->result, "the file");
	bench.is_told = true;
}

static void submit_and_wait(struct slot *slot)
{
	bench.is_told = false;
	slot->op.complete = fill_ended;
	lp_ns_submit(bench.ns, &slot->op);
	while (!bench.is_told)
		turn();
}

/* All its blocks have space, and its map is in memory. */
static void make_file(void)
{
	struct slot *slot = &bench.slots[0];
	fill_create(slot);
	submit_and_wait(slot);
	bench.file = slot->op.put.found.ino;
	lp_buf_put(slot->seg.buf);
	for (uint64_t block = 0; block < FILE_BLOCKS; block++) {
		memset(&slot->op, 0, sizeof(slot->op));
		fill_overwrite(slot, block);
		submit_and_wait(slot);
		lp_buf_put(slot->seg.buf);
	}
	slot->seg.buf = NULL;
}

/* --- The machine ------------------------------------------------------------------------------ */

static void make_store(void)
{
	struct lp_disk_label label;
	struct lp_label_why why;
	struct lp_mkfs_options mkfs = {.shard_cnt = 1, .log_bytes = LOG_BYTES};
	must(lp_bdev_open_mem(DEVICE_BYTES, LP_BUF_SMALL, &bench.bdev), "the device");
	mkfs.bdev[LP_ROLE_DATA] = bench.bdev;
	for (size_t i = 0; i < sizeof(mkfs.seed); i++)
		mkfs.seed[i] = (uint8_t)(i * 7 + 1);
	must(lp_store_mkfs(&mkfs, &label, &why), "mkfs");
	const struct lp_devices_options devices = {.bdev = {bench.bdev}};
	must(lp_devices_open(&devices, &bench.devices, &why), "the devices");
	const struct lp_store_options store = {.reactor = bench.reactor,
					       .workers = bench.workers,
					       .devices = &bench.devices,
					       .bufs = bench.bufs,
					       .sim_clock = &bench.clock.clock,
					       .memory_bytes = options.memory_mib << 20};
	must(lp_store_open(&store, &bench.store), "the store");
}

static void ready(struct lp_ns *ns, int result, void *arg)
{
	(void)ns;
	(void)arg;
	must(result, "the namespace");
	bench.is_told = true;
}

static void stopped(struct lp_ns *ns, void *arg)
{
	(void)ns;
	(void)arg;
	bench.is_told = true;
}

static void start(void)
{
	lp_clock_sim_init(&bench.clock, LP_NS_PER_S, INT64_C(1700000000) * (int64_t)LP_NS_PER_S);
	const struct lp_reactor_options reactor = {
		.name = "bench", .clock = &bench.clock.clock, .sim = &bench.clock};
	must(lp_reactor_new(&reactor, &bench.reactor), "the reactor");
	must(lp_reactor_start(bench.reactor), "the reactor");
	must(lp_workers_new(0, &bench.workers), "the helpers");
	must(lp_bufs_new(BUFS_BYTES, &bench.bufs), "the buffers");
	make_store();
	const struct lp_ns_options ns = {.reactor = bench.reactor,
					 .store = bench.store,
					 .bufs = bench.bufs,
					 .shard_cnt = 1,
					 .ops_max = DEPTH_MAX};
	must(lp_ns_open(&ns, &bench.ns), "the namespace");
	lp_ns_start(bench.ns, &bench.ns, ready, NULL);
	while (!bench.is_told)
		turn();
}

static void stop(void)
{
	bench.is_told = false;
	lp_ns_stop(bench.ns, stopped, NULL);
	while (!bench.is_told)
		turn();
	lp_ns_close(bench.ns);
	must(lp_store_close(bench.store, true), "the store");
	lp_devices_close(&bench.devices);
	lp_bufs_free(bench.bufs);
	lp_workers_free(bench.workers);
	lp_reactor_free(bench.reactor);
	lp_bdev_close(bench.bdev);
}

/* --- Calling it ------------------------------------------------------------------------------- */

static int usage(void)
{
	(void)fprintf(stderr, "usage: ns_bench --op create|overwrite|read [--ops N] [--prepared N] "
			      "[--depth N] [--memory MIB] [--path auto|inline|deferred|direct]\n");
	return 2;
}

/* cnt: it is none of them. */
static int index_of(const char *const *words, int cnt, const char *word)
{
	for (int i = 0; i < cnt; i++) {
		if (strcmp(words[i], word) == 0)
			return i;
	}
	return cnt;
}

static bool parse_one(const char *name, const char *value)
{
	if (strcmp(name, "--op") == 0)
		options.op = (enum op)index_of(op_names, OP_CNT, value);
	else if (strcmp(name, "--path") == 0)
		options.path = (enum lp_write_path)index_of(path_names, LP_PATH_CNT, value);
	else if (strcmp(name, "--ops") == 0)
		options.ops = strtoull(value, NULL, 10);
	else if (strcmp(name, "--prepared") == 0)
		options.prepared = strtoull(value, NULL, 10);
	else if (strcmp(name, "--depth") == 0)
		options.depth = (uint32_t)strtoul(value, NULL, 10);
	else if (strcmp(name, "--memory") == 0)
		options.memory_mib = strtoull(value, NULL, 10);
	else
		return false;
	return true;
}

static double cpu_us(void)
{
	struct timespec at;
	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
	return (double)at.tv_sec * 1e6 + (double)at.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
	uint8_t filled[LP_BUF_SMALL];
	for (int i = 1; i < argc; i += 2) {
		if (i + 1 == argc || !parse_one(argv[i], argv[i + 1]))
			return usage();
	}
	if (options.op >= OP_CNT || options.path >= LP_PATH_CNT || options.depth == 0 ||
	    options.depth > DEPTH_MAX || options.ops == 0 || options.memory_mib == 0 ||
	    options.memory_mib > UINT32_MAX)
		return usage();
	memset(filled, 0x5a, sizeof(filled));
	bench.crc = lp_crc32c(0, filled, sizeof(filled));
	lp_prng_init(&bench.prng, 1);
	start();
	if (options.op != OP_CREATE)
		make_file();
	if (options.prepared > 0)
		run(options.prepared);
	double before_us = cpu_us();
	run(options.ops);
	printf("%.3f us of CPU an operation, %llu at depth %u\n",
	       (cpu_us() - before_us) / (double)options.ops, (unsigned long long)options.ops,
	       options.depth);
	stop();
	return 0;
}
