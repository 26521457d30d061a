/* SPDX-License-Identifier: Apache-2.0 */
/* How long does a store take to serve again after kill -9, and how much memory does it need then?
 *
 *   store_start DEVICE create|overwrite OPERATIONS [MEMORY_MIB]
 *
 * DEVICE holds a new store of one shard (lapis mkfs). A child does OPERATIONS, DEPTH at a time:
 * creates small objects with their entries, whose data is in their inodes; or overwrites random
 * blocks, deferred. It has then seen how full the log becomes, goes on until it is as full as
 * that again, and kills itself: the worst moment there is. The parent opens the store, reads
 * objects that were acknowledged, at random, and holds every byte against what it must be.
 * Prints one JSON object; bench/store-start runs it and judges. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "base/crc32c.h"
#include "base/memory/account.h"
#include "base/prng.h"
#include "bench/programs/machine.h"

#define DEPTH       128u
#define SMALL_BYTES 256u
#define READS       1000u
#define LOOK_OPS    1024u /* how often it is asked how full the log is */
#define FULL        0.9   /* of the most that was seen counts as as full again */
#define BUFS_BYTES  (UINT64_C(320) << 20)
/* What is overwritten: FILES of FILE_BLOCKS. */
#define FILES       32u
#define FILE_BLOCKS 8192u
#define FILL_BLOCKS 256u /* of one write that makes them */
#define INO_FIRST   UINT64_C(1000000000)
#define DIR_INO     (INO_FIRST - 1)
#define ODD         UINT64_C(0x9e3779b97f4a7c15)

/* What the child tells, in memory that both have. */
struct told {
	uint64_t acked; /* all operations before this one are acknowledged */
	uint64_t ring_blocks;
	uint64_t needed_max_blocks;
	uint64_t needed_blocks; /* at its death */
	uint64_t needed_records;
};

struct slot {
	struct lp_store_op op;
	struct lp_change changes[3];
	struct lp_attrs attrs;
	struct lp_seg segs[FILL_BLOCKS];
	uint32_t crcs[FILL_BLOCKS];
	uint32_t seg_cnt;
	uint64_t number;
	char name[24];
};

static struct slot slots[DEPTH];
static struct told *told;
static struct lpi_machine rig;
static struct lp_prng prng;
static uint64_t next_number;
static uint64_t completed;
static uint64_t ops_wanted;
static bool creates;

/* --- What the bytes are ----------------------------------------------------------------------- */

/* They follow from the place, so whoever reads knows them. */
static void fill(uint8_t *bytes, size_t len, uint64_t place)
{
	uint64_t word = (place + 1) * ODD;
	for (size_t i = 0; i < len; i += 8) {
		word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		memcpy(bytes + i, &word, 8);
	}
}

static void add_block(struct slot *slot, uint32_t len, uint64_t place)
{
	struct lp_buf *buf = lp_buf_new(rig.bufs, LP_BUF_SMALL);
	LPI_MACHINE_CHECK(buf != NULL);
	fill(buf->data, len, place);
	slot->segs[slot->seg_cnt] = (struct lp_seg){buf, 0, len};
	slot->crcs[slot->seg_cnt++] = lp_crc32c(0, buf->data, len);
}

static struct lp_bytes name_of(uint64_t number, char *buf, size_t len)
{
	int n = snprintf(buf, len, "object-%016" PRIx64, number * ODD);
	return (struct lp_bytes){buf, (uint32_t)n};
}

/* --- The child -------------------------------------------------------------------------------- */

static void submit(struct slot *slot);

static void publish(void)
{
	struct lp_store_usage space;
	uint64_t low = next_number;
	for (uint32_t i = 0; i < DEPTH; i++)
		low = LP_MIN(low, slots[i].number);
	told->acked = low;
	lp_store_read_usage(rig.store, &space);
	told->ring_blocks = space.log_ring_blocks;
	told->needed_blocks = space.log_needed_blocks;
	told->needed_records = space.log_needed_records;
	told->needed_max_blocks = LP_MAX(told->needed_max_blocks, space.log_needed_blocks);
}

/* Not for ever: the most may have been an exception. */
static bool is_time_to_die(void)
{
	if (completed < ops_wanted)
		return false;
	return (double)told->needed_blocks >= FULL * (double)told->needed_max_blocks ||
	       completed >= 2 * ops_wanted;
}

static void complete(struct lp_store_op *op)
{
	struct slot *slot = LP_CONTAINER_OF(op, struct slot, op);
	if (op->result < 0)
		(void)fprintf(stderr, "store_start: %s\n", lp_strerror(op->result));
	LPI_MACHINE_CHECK(op->result == 0);
	for (uint32_t i = 0; i < slot->seg_cnt; i++)
		lp_buf_put(slot->segs[i].buf);
	slot->number = UINT64_MAX; /* none under way */
	if (++completed % LOOK_OPS == 0) {
		publish();
		if (is_time_to_die())
			(void)raise(SIGKILL);
	}
	submit(slot);
}

static void prepare_create(struct slot *slot)
{
	struct lp_ino ino = {INO_FIRST + slot->number};
	struct lp_bytes name = name_of(slot->number, slot->name, sizeof(slot->name));
	slot->attrs = (struct lp_attrs){
		.mode = 0644, .nlink = 1, .type = LP_INODE_TYPE_FILE, .parent = {DIR_INO}};
	add_block(slot, SMALL_BYTES, slot->number);
	slot->changes[0] = (struct lp_change){.type = LP_CHANGE_CREATE,
					      .ino = ino,
					      .inode = {.attrs = &slot->attrs, .name = name}};
	slot->changes[1] = (struct lp_change){
		.type = LP_CHANGE_WRITE,
		.ino = ino,
		.data = {.length = SMALL_BYTES, .payload = {slot->segs, slot->crcs, 1, 1}}};
	slot->changes[2] = (struct lp_change){
		.type = LP_CHANGE_ENTRY_SET,
		.ino = {DIR_INO},
		.named = {.name = name, .target = ino, .target_type = LP_INODE_TYPE_FILE}};
}

static void prepare_overwrite(struct slot *slot)
{
	uint64_t place = lp_prng_below(&prng, (uint64_t)FILES * FILE_BLOCKS);
	add_block(slot, LP_BUF_SMALL, place);
	slot->changes[0] =
		(struct lp_change){.type = LP_CHANGE_WRITE,
				   .ino = {INO_FIRST + place / FILE_BLOCKS},
				   .data = {.offset = place % FILE_BLOCKS * LP_BLOCK_BYTES,
					    .length = LP_BLOCK_BYTES,
					    .path = LP_PATH_DEFERRED,
					    .payload = {slot->segs, slot->crcs, 1, 1}}};
}

static void submit(struct slot *slot)
{
	slot->number = next_number++;
	slot->seg_cnt = 0;
	if (creates)
		prepare_create(slot);
	else
		prepare_overwrite(slot);
	slot->op = (struct lp_store_op){
		.opcode = LP_STORE_TXN,
		.complete = complete,
		.txn = {.changes = slot->changes, .change_cnt = creates ? 3 : 1}};
	lp_store_submit(rig.store, &slot->op);
}

static void fill_some(uint64_t file, uint64_t from)
{
	struct slot *slot = &slots[0];
	slot->seg_cnt = 0;
	for (uint64_t i = 0; i < FILL_BLOCKS; i++)
		add_block(slot, LP_BUF_SMALL, file * FILE_BLOCKS + from + i);
	slot->attrs = (struct lp_attrs){.mode = 0644, .nlink = 1, .type = LP_INODE_TYPE_FILE};
	slot->changes[0] = (struct lp_change){.type = LP_CHANGE_CREATE,
					      .ino = {INO_FIRST + file},
					      .inode = {.attrs = &slot->attrs}};
	slot->changes[1] = (struct lp_change){
		.type = LP_CHANGE_WRITE,
		.ino = {INO_FIRST + file},
		.data = {.offset = from * LP_BLOCK_BYTES,
			 .length = FILL_BLOCKS * LP_BLOCK_BYTES,
			 .payload = {slot->segs, slot->crcs, FILL_BLOCKS, FILL_BLOCKS}}};
	uint32_t skip = from > 0;
	slot->op = (struct lp_store_op){
		.opcode = LP_STORE_TXN,
		.txn = {.changes = slot->changes + skip, .change_cnt = 2 - skip}};
	LPI_MACHINE_CHECK(lpi_machine_do(&rig, &slot->op) == 0);
	for (uint32_t i = 0; i < slot->seg_cnt; i++)
		lp_buf_put(slot->segs[i].buf);
}

static void work(const struct lpi_machine_options *options)
{
	lpi_machine_open(&rig, options);
	for (uint64_t file = 0; !creates && file < FILES; file++) {
		for (uint64_t from = 0; from < FILE_BLOCKS; from += FILL_BLOCKS)
			fill_some(file, from);
	}
	for (uint32_t i = 0; i < DEPTH; i++)
		submit(&slots[i]);
	for (;;)
		(void)lp_reactor_turn(rig.reactor, true);
}

/* --- The parent ------------------------------------------------------------------------------- */

static void read_back(struct lp_ino ino, uint64_t offset, uint32_t len, uint64_t place)
{
	static uint8_t want[LP_BLOCK_BYTES];
	struct lp_store_op op = {.opcode = LP_STORE_READ,
				 .read = {.ino = ino, .offset = offset, .length = len}};
	LPI_MACHINE_CHECK(lpi_machine_do(&rig, &op) == 0);
	LPI_MACHINE_CHECK(op.read.bytes == len && op.read.seg_cnt == 1);
	fill(want, len, place);
	const struct lp_seg *seg = &op.read.segs[0];
	LPI_MACHINE_CHECK(memcmp(seg->buf->data + seg->offset, want, len) == 0);
	LPI_MACHINE_CHECK(op.read.crcs[0] == lp_crc32c(0, want, len));
	lp_store_end(rig.store, &op);
}

static void read_one(void)
{
	char buf[24];
	if (!creates) {
		uint64_t place = lp_prng_below(&prng, (uint64_t)FILES * FILE_BLOCKS);
		read_back((struct lp_ino){INO_FIRST + place / FILE_BLOCKS},
			  place % FILE_BLOCKS * LP_BLOCK_BYTES, LP_BLOCK_BYTES, place);
		return;
	}
	uint64_t number = lp_prng_below(&prng, told->acked);
	struct lp_store_op op = {
		.opcode = LP_STORE_LOOKUP,
		.lookup = {.dir = {DIR_INO}, .name = name_of(number, buf, sizeof(buf))}};
	LPI_MACHINE_CHECK(lpi_machine_do(&rig, &op) == 0);
	LPI_MACHINE_CHECK(op.lookup.ino.nr == INO_FIRST + number);
	read_back(op.lookup.ino, 0, SMALL_BYTES, number);
}

static double cpu_s(clockid_t clock)
{
	struct timespec now;
	LPI_MACHINE_CHECK(clock_gettime(clock, &now) == 0);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double rss_mib(void)
{
	long unused;
	long pages = 0;
	FILE *in = fopen("/proc/self/statm", "re");
	LPI_MACHINE_CHECK(in != NULL);
	LPI_MACHINE_CHECK(fscanf(in, "%ld %ld", &unused, &pages) == 2); /* NOLINT: the kernel's */
	(void)fclose(in);
	return (double)pages * 4096 / (1 << 20);
}

static void judge(const struct lpi_machine_options *options)
{
	struct lp_store_usage space;
	struct lp_store_stats stats;
	struct lp_account_sum accounted;
	double rss_before = rss_mib();
	double thread = cpu_s(CLOCK_THREAD_CPUTIME_ID);
	double process = cpu_s(CLOCK_PROCESS_CPUTIME_ID);
	lpi_machine_open(&rig, options);
	double wall_before = cpu_s(CLOCK_MONOTONIC);
	thread = cpu_s(CLOCK_THREAD_CPUTIME_ID) - thread;
	process = cpu_s(CLOCK_PROCESS_CPUTIME_ID) - process;
	read_one();
	double first_read = cpu_s(CLOCK_MONOTONIC) - wall_before;
	for (uint32_t i = 1; i < READS; i++)
		read_one();
	lp_store_read_usage(rig.store, &space);
	lp_store_read_stats(rig.store, &stats);
	lp_account_total(&accounted);
	(void)printf("{\"operations\": %" PRIu64 ", \"open_s\": %.3f, \"shard_s\": %.3f, "
		     "\"thread_cpu_s\": %.3f, \"process_cpu_s\": %.3f, \"first_read_s\": %.4f, "
		     "\"frames\": %" PRIu64 ", \"payloads\": %" PRIu64 ", \"records\": %" PRIu64,
		     told->acked, (double)rig.open_ns / 1e9, (double)space.start_ns / 1e9, thread,
		     process, first_read, space.start_frames, space.start_payloads,
		     told->needed_records);
	(void)printf(", \"log_ring_mib\": %.1f, \"log_needed_mib\": %.1f, \"index_mib\": %.1f, "
		     "\"rss_mib\": %.1f, \"rss_before_mib\": %.1f, \"accounted_mib\": %.1f, "
		     "\"budget_mib\": %.1f}\n",
		     (double)told->ring_blocks / 256, (double)told->needed_blocks / 256,
		     (double)space.index_bytes / (1 << 20), rss_mib(), rss_before,
		     (double)accounted.bytes / (1 << 20), (double)stats.budget_bytes / (1 << 20));
	lpi_machine_close(&rig, true);
}

int main(int argc, char **argv)
{
	if (argc < 4 || argc > 5) {
		(void)fprintf(stderr,
			      "store_start DEVICE create|overwrite OPERATIONS [MEMORY_MIB]\n");
		return 2;
	}
	creates = strcmp(argv[2], "create") == 0;
	ops_wanted = strtoull(argv[3], NULL, 10);
	const struct lpi_machine_options options = {
		.path = argv[1],
		.bufs_bytes = BUFS_BYTES,
		.memory_bytes = argc > 4 ? strtoull(argv[4], NULL, 10) << 20 : 0,
		.spin_ns = 20000,
		.alloc_kind = LP_ALLOC_HYBRID,
		.write_path = LP_PATH_AUTO};
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	LPI_MACHINE_CHECK(told != MAP_FAILED);
	lp_prng_init(&prng, 1);
	pid_t child = fork();
	LPI_MACHINE_CHECK(child >= 0);
	if (child == 0)
		work(&options);
	int status = 0;
	LPI_MACHINE_CHECK(waitpid(child, &status, 0) == child);
	LPI_MACHINE_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	judge(&options);
	return 0;
}
