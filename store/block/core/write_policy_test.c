/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a block store left to itself writes the way that is the faster one on its device, keeps
 * what it learned, explains it, does as it is told when it is told, and never writes a frame more
 * for all that; it says how long its operations stayed in each state. Method: a whole store in
 * simulated time, on a simulated device made as slow as others by store/device/bdev_delay.h. A
 * number of clients overwrite random blocks of a file; the same is done on either path, and the
 * simulated time it takes is the truth. */
#include "store/device/sim/sim_test.h"

#include "store/block/core/block.h"
#include "store/device/bdev_delay.h"
#include "store/model/store_test.h"
#include "store/setup/mkfs.h"

#define DEVICE_BYTES (UINT64_C(256) << 20)
#define FILE_BYTES   (UINT64_C(24) << 20)
#define CLIENTS_MAX  32u

struct rig;

struct client {
	struct lp_store_op op;
	struct lp_change change;
	struct rig *rig;
	bool is_idle;
};

struct rig {
	struct lp_clock_sim clock;
	struct lp_workers *workers;
	struct lp_bdev *bdev;
	struct lp_devices devices;
	struct lpi_hand hand;
	struct lp_ino ino;
	struct lpi_pay pay;
	struct lp_prng prng;
	struct client clients[CLIENTS_MAX];
	uint32_t done;
};

/* --- A machine -------------------------------------------------------------------------------- */

static void open_store(struct rig *rig)
{
	const struct lp_devices_options devices = {.bdev = {rig->bdev}};
	const struct lp_store_options options = {.reactor = rig->hand.reactor,
						 .workers = rig->workers,
						 .devices = &rig->devices,
						 .bufs = rig->hand.bufs,
						 .sim_clock = &rig->clock.clock,
						 .memory_bytes = UINT64_C(64) << 20,
						 .index_buffer_bytes = 1 << 20,
						 .deferred_blocks_max = 4096,
						 .files_reserve_bytes = 1 << 20};
	struct lp_label_why why;
	lp_test_ok(lp_devices_open(&devices, &rig->devices, &why));
	lp_test_ok(lp_store_open(&options, &rig->hand.store));
}

static void close_store(struct rig *rig, bool abandon)
{
	int err = lp_store_close(rig->hand.store, abandon);
	assert_true(err == 0 || abandon);
	lp_devices_close(&rig->devices);
}

static void make_file(struct rig *rig)
{
	uint8_t bytes[8] = {0};
	rig->ino = lp_store_new_ino(rig->hand.store);
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .mode = 0644, .nlink = 1};
	const struct lp_change create = {
		.type = LP_CHANGE_CREATE, .ino = rig->ino, .inode = {.attrs = &attrs}};
	lp_test_ok(lpi_hand_change(&rig->hand, create));
	lp_test_ok(lpi_hand_write(&rig->hand, rig->ino, FILE_BYTES - sizeof(bytes), bytes,
				  sizeof(bytes)));
}

static void mkfs(struct lp_bdev *bdev)
{
	struct lp_mkfs_options options = {
		.bdev = {bdev}, .shard_cnt = 1, .log_bytes = UINT64_C(32) << 20};
	struct lp_disk_label label;
	struct lp_label_why why;
	for (size_t i = 0; i < sizeof(options.seed); i++)
		options.seed[i] = (uint8_t)(i * 7 + 1);
	lp_test_ok(lp_store_mkfs(&options, &label, &why));
}

static struct rig *rig_new(enum lp_bdev_delay_kind kind, bool is_volatile)
{
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct rig *rig = calloc(1, sizeof(*rig));
	assert_non_null(rig);
	for (int i = 0; i < LP_BDEV_OPCODE_CNT; i++)
		profile.latency[i] = (struct lp_sim_latency){100, 100};
	profile.power_protected = !is_volatile;
	profile.rotational = kind == LP_BDEV_DELAY_HDD;
	const struct lp_sim_options sim = {.profile = &profile,
					   .size_bytes = DEVICE_BYTES,
					   .seed = 7,
					   .log_metadata_only = true};
	struct lp_bdev *inner = NULL;
	lp_test_ok(lp_bdev_open_sim(&sim, &inner));
	mkfs(inner);
	lp_clock_sim_init(&rig->clock, LP_NS_PER_S, INT64_C(1700000000) * (int64_t)LP_NS_PER_S);
	struct lp_bdev_delay_options delay = *lp_bdev_delay_preset(kind);
	delay.clock = &rig->clock.clock;
	if (!is_volatile)
		delay.fua_ns = 0;
	if (kind == LP_BDEV_DELAY_NVME) { /* else there is no limit to what it does at once */
		delay.queue_depth = 16;
		delay.write_ns_per_kib = 500;
	}
	lp_test_ok(lp_bdev_open_delay(&inner, &delay, &rig->bdev));
	const struct lp_reactor_options reactor = {.name = "sim", .sim = &rig->clock};
	lp_test_ok(lp_reactor_new(&reactor, &rig->hand.reactor));
	lp_test_ok(lp_reactor_start(rig->hand.reactor));
	lp_test_ok(lp_workers_new(0, &rig->workers));
	lp_test_ok(lp_bufs_new(UINT64_C(48) << 20, &rig->hand.bufs));
	lp_prng_init(&rig->prng, 5);
	open_store(rig);
	make_file(rig);
	return rig;
}

static void rig_free(struct rig *rig)
{
	lp_bufs_free(rig->hand.bufs);
	lp_workers_free(rig->workers);
	lp_reactor_free(rig->hand.reactor);
	lp_bdev_close(rig->bdev);
	free(rig);
}

/* --- Clients ---------------------------------------------------------------------------------- */

static void client_complete(struct lp_store_op *op)
{
	struct client *client = LP_CONTAINER_OF(op, struct client, op);
	assert_int_equal(op->result, 0);
	client->is_idle = true;
	client->rig->done++;
}

static void client_begin(struct rig *rig, struct client *client, uint64_t bytes)
{
	uint64_t offset = lp_prng_below(&rig->prng, FILE_BYTES / bytes) * bytes;
	client->change = lpi_write_change(rig->ino, offset, bytes, &rig->pay);
	client->op = lpi_txn_op(&client->change, 1);
	client->op.complete = client_complete;
	client->is_idle = false;
	lp_store_submit(rig->hand.store, &client->op);
}

/* Simulated time per write. */
static double run(struct rig *rig, uint64_t bytes, uint32_t depth, uint32_t cnt)
{
	uint32_t begun = 0;
	assert_true(depth <= CLIENTS_MAX);
	uint8_t *content = calloc(1, bytes);
	assert_non_null(content);
	assert_true(lpi_pay_make(&rig->pay, rig->hand.bufs, content, 0, bytes, LP_BUF_SMALL));
	free(content);
	uint64_t start_ns = rig->clock.now_ns;
	rig->done = 0;
	for (uint32_t i = 0; i < depth; i++)
		rig->clients[i] = (struct client){.rig = rig, .is_idle = true};
	for (uint64_t turns = 0; rig->done < cnt; turns++) {
		assert_true(turns < LPI_TURNS_MAX);
		for (uint32_t i = 0; i < depth && begun < cnt; i++) {
			if (!rig->clients[i].is_idle)
				continue;
			client_begin(rig, &rig->clients[i], bytes);
			begun++;
		}
		lpi_hand_turn(&rig->hand);
	}
	lpi_pay_drop(&rig->pay);
	return (double)(rig->clock.now_ns - start_ns) / cnt;
}

/* --- Tests ------------------------------------------------------------------------------------ */

struct device_case {
	enum lp_bdev_delay_kind kind;
	bool is_volatile;
	uint64_t bytes;
	uint32_t depth;
	uint32_t cnt;
	uint32_t learn_cnt;
};

static double time_of(const struct device_case *one, enum lp_write_path path, uint64_t ret_paths[])
{
	struct rig *rig = rig_new(one->kind, one->is_volatile);
	struct lp_store_stats stats[2];
	lp_store_set_write_path(rig->hand.store, path);
	(void)run(rig, one->bytes, one->depth, one->learn_cnt);
	lp_store_read_stats(rig->hand.store, &stats[0]);
	double ns = run(rig, one->bytes, one->depth, one->cnt);
	lp_store_read_stats(rig->hand.store, &stats[1]);
	for (int i = 0; i < LP_PATH_CNT; i++)
		ret_paths[i] = stats[1].writes_by_path[i] - stats[0].writes_by_path[i];
	close_store(rig, true);
	rig_free(rig);
	return ns;
}

/* Not slower than the better path, but for a little. */
static void test_auto_is_the_better(void **state)
{
	static const struct device_case cases[] = {
		{LP_BDEV_DELAY_HDD, true, 4096, 1, 200, 300},
		{LP_BDEV_DELAY_HDD, true, 4096, 32, 500, 1500},
		{LP_BDEV_DELAY_NVME, false, 4096, 1, 400, 500},
		/* As many as make the log half full a few times: write-back comes in waves. */
		{LP_BDEV_DELAY_NVME, false, 4096, 32, 3000, 60000},
		{LP_BDEV_DELAY_NVME, false, 16384, 16, 3000, 3000},
		{LP_BDEV_DELAY_NVME, false, 262144, 16, 100, 100},
		{LP_BDEV_DELAY_SATA_SSD, true, 16384, 16, 1000, 3000},
		{LP_BDEV_DELAY_SATA_SSD, true, 65536, 1, 400, 800},
		{LP_BDEV_DELAY_HDD, true, 65536, 1, 200, 300},
		{LP_BDEV_DELAY_TARGET, true, 4096, 32, 300, 6000},
	};
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		uint64_t paths[LP_PATH_CNT];
		double deferred_ns = time_of(&cases[i], LP_PATH_DEFERRED, paths);
		assert_int_equal(paths[LP_PATH_DEFERRED], cases[i].cnt);
		double direct_ns = time_of(&cases[i], LP_PATH_DIRECT, paths);
		assert_int_equal(paths[LP_PATH_DIRECT], cases[i].cnt);
		double auto_ns = time_of(&cases[i], LP_PATH_AUTO, paths);
		double best_ns = LP_MIN(deferred_ns, direct_ns);
		if (auto_ns > best_ns * 1.15)
			fail_msg("%s, %llu bytes, depth %u: deferred %.0f ns, direct %.0f, auto "
				 "%.0f (%llu deferred)",
				 lp_bdev_delay_kind_name(cases[i].kind),
				 (unsigned long long)cases[i].bytes, cases[i].depth, deferred_ns,
				 direct_ns, auto_ns, (unsigned long long)paths[LP_PATH_DEFERRED]);
	}
}

static uint64_t path_cnt(struct rig *rig, enum lp_write_path path)
{
	struct lp_store_stats stats;
	lp_store_read_stats(rig->hand.store, &stats);
	return stats.writes_by_path[path];
}

static void test_switch_while_running(void **state)
{
	struct rig *rig = rig_new(LP_BDEV_DELAY_NVME, false);
	char text[256];
	(void)state;
	for (int i = 0; i < 6; i++) {
		enum lp_write_path path = i % 2 == 0 ? LP_PATH_DIRECT : LP_PATH_DEFERRED;
		uint64_t before = path_cnt(rig, path);
		lp_store_set_write_path(rig->hand.store, path);
		(void)run(rig, 4096, 16, 100);
		assert_int_equal(path_cnt(rig, path) - before, 100);
		assert_true(lp_store_explain(rig->hand.store, 65536, text, sizeof(text)) > 0);
		assert_non_null(strstr(text, lp_write_path_name(path)));
	}
	/* What was asked for of one write goes before all. */
	lp_store_set_write_path(rig->hand.store, LP_PATH_DIRECT);
	uint8_t content[4096] = {1};
	uint64_t before = path_cnt(rig, LP_PATH_DEFERRED);
	assert_true(lpi_pay_make(&rig->pay, rig->hand.bufs, content, 0, 4096, LP_BUF_SMALL));
	struct lp_change change = lpi_write_change(rig->ino, 8192, 4096, &rig->pay);
	change.data.path = LP_PATH_DEFERRED;
	lp_test_ok(lpi_hand_change(&rig->hand, change));
	lpi_pay_drop(&rig->pay);
	assert_int_equal(path_cnt(rig, LP_PATH_DEFERRED) - before, 1);
	close_store(rig, false);
	rig_free(rig);
}

/* What was seen in a bad moment is not believed for ever: also when it is long ago that a store was
 * new there are trials, and what whole writes take is learned from them, and from the others. */
static void test_tries_again(void **state)
{
	struct rig *rig = rig_new(LP_BDEV_DELAY_NVME, false);
	struct lpi_policy *policy = &lpi_block_of(rig->hand.store)->policy;
	(void)state;
	lp_store_set_write_path(rig->hand.store, LP_PATH_AUTO);
	(void)run(rig, 16384, 1, 50);
	struct lp_contest *contest =
		&policy->contests[lp_policy_class_idx(16384)][lp_policy_depth_idx(1)];
	assert_true(contest->is_begun && !contest->is_trial);
	contest->far = LP_CONTEST_FAR;
	contest->run_cnt = LP_CONTEST_FAR * (6 + LP_CONTEST_WINDOW);
	uint64_t deferred = path_cnt(rig, LP_PATH_DEFERRED);
	uint64_t direct = path_cnt(rig, LP_PATH_DIRECT);
	(void)run(rig, 16384, 1, 100);
	deferred = path_cnt(rig, LP_PATH_DEFERRED) - deferred;
	direct = path_cnt(rig, LP_PATH_DIRECT) - direct;
	assert_in_range(LP_MIN(deferred, direct), LP_CONTEST_SOON, 6 + LP_CONTEST_WINDOW);
	assert_true(contest->direct.cnt > 0 && contest->burst.cnt > 0);
	assert_int_equal(contest->far, LP_CONTEST_FAR);
	close_store(rig, false);
	rig_free(rig);
}

/* Less than a block is deferred, and nothing is tried. */
static void test_parts_of_blocks(void **state)
{
	struct rig *rig = rig_new(LP_BDEV_DELAY_NVME, false);
	(void)state;
	lp_store_set_write_path(rig->hand.store, LP_PATH_AUTO);
	(void)run(rig, 512, 1, LPI_POLICY_BLOCK_FAR * (6 + LP_CONTEST_WINDOW));
	(void)run(rig, 512, 16, 2000);
	assert_int_equal(path_cnt(rig, LP_PATH_DIRECT), 0);
	close_store(rig, false);
	rig_free(rig);
}

/* What waits for the log and what is only ordered are two choices. */
static void test_ordered_is_chosen_apart(void **state)
{
	struct rig *rig = rig_new(LP_BDEV_DELAY_NVME, false);
	struct lp_policy *costs = &lpi_block_of(rig->hand.store)->policy.costs;
	uint8_t content[8192] = {1};
	(void)state;
	for (uint32_t i = 0; i < LP_POLICY_DEPTH_CNT; i++) {
		costs->choices[false][lp_policy_class_idx(8192)][i].path = LP_PATH_DIRECT;
		costs->choices[true][lp_policy_class_idx(8192)][i].path = LP_PATH_DEFERRED;
	}
	assert_true(lpi_pay_make(&rig->pay, rig->hand.bufs, content, 0, 8192, LP_BUF_SMALL));
	const struct lp_change change = lpi_write_change(rig->ino, 8192, 8192, &rig->pay);
	for (int is_ordered = 0; is_ordered < 2; is_ordered++) {
		enum lp_write_path path = is_ordered ? LP_PATH_DEFERRED : LP_PATH_DIRECT;
		struct lp_store_op op = lpi_txn_op(&change, 1);
		uint64_t before = path_cnt(rig, path);
		op.txn.ack = is_ordered ? LP_ACK_ORDERED : LP_ACK_DURABLE;
		lp_test_ok(lpi_hand_do(&rig->hand, &op));
		assert_int_equal(path_cnt(rig, path) - before, 1);
	}
	lpi_pay_drop(&rig->pay);
	close_store(rig, false);
	rig_free(rig);
}

static void test_explains(void **state)
{
	struct rig *rig = rig_new(LP_BDEV_DELAY_NVME, false);
	char text[1024];
	(void)state;
	(void)run(rig, 16384, 1, 100);
	int len = lp_store_explain(rig->hand.store, 16384, text, sizeof(text));
	assert_in_range(len, 100, sizeof(text) - 1);
	assert_int_equal(len, strlen(text));
	assert_non_null(strstr(text, "of 1 at once each took"));
	assert_non_null(strstr(text, "up to 16 KiB at depth 1"));
	assert_true(lp_store_explain(rig->hand.store, 100, text, sizeof(text)) > 0);
	assert_non_null(strstr(text, "inline"));
	assert_true(lp_store_explain(rig->hand.store, 1 << 20, text, sizeof(text)) > 0);
	assert_non_null(strstr(text, "direct"));
	char small[8];
	assert_int_equal(lp_store_explain(rig->hand.store, 16384, small, sizeof(small)), len);
	close_store(rig, false);
	rig_free(rig);
}

/* Across a close and an opening, and never by a frame of its own while the store works. */
static void test_keeps(void **state)
{
	struct rig *rig = rig_new(LP_BDEV_DELAY_NVME, false);
	struct lp_store_stats before;
	struct lp_store_stats after;
	(void)state;
	lp_store_set_write_path(rig->hand.store, LP_PATH_DEFERRED);
	lp_store_read_stats(rig->hand.store, &before);
	struct lpi_policy *policy = &lpi_block_of(rig->hand.store)->policy;
	uint64_t saved_cnt = policy->saved_cnt;
	policy->costs.sample_cnt += LPI_POLICY_SAVE - 300; /* nearly due */
	(void)run(rig, 4096, 1, 400);
	lp_store_read_stats(rig->hand.store, &after);
	assert_true(policy->saved_cnt > saved_cnt);
	assert_int_equal(after.commits - before.commits, 400);
	(void)run(rig, 4096, 1, 50);
	const struct lp_policy_cell learned = policy->costs.cells[LP_POLICY_LOG_WRITE][1];
	assert_int_equal(learned.idle.cnt, 8);
	close_store(rig, false);
	open_store(rig);
	policy = &lpi_block_of(rig->hand.store)->policy;
	const struct lp_policy_cell *kept = &policy->costs.cells[LP_POLICY_LOG_WRITE][1];
	assert_int_equal(kept->idle.cnt, 8);
	assert_true(kept->idle.ns >= 32000 && kept->idle.ns < 38000);
	/* Nothing new: nothing is put. */
	uint64_t seq = lp_commit_seq(lpi_block_of(rig->hand.store)->commit);
	lpi_policy_close(lpi_block_of(rig->hand.store));
	lpi_hand_turn(&rig->hand);
	assert_int_equal(lp_commit_seq(lpi_block_of(rig->hand.store)->commit), seq);
	close_store(rig, false);
	rig_free(rig);
}

/* What is an hour old is put with the next transaction, however little it is; before that hour is
 * over, and when there is nothing new, it is not. */
static void test_keeps_each_hour(void **state)
{
	struct rig *rig = rig_new(LP_BDEV_DELAY_NVME, false);
	struct lp_store_stats before;
	struct lp_store_stats after;
	(void)state;
	lp_store_set_write_path(rig->hand.store, LP_PATH_DEFERRED);
	const struct lpi_policy *policy = &lpi_block_of(rig->hand.store)->policy;
	uint64_t saved_ns = policy->saved_ns;
	(void)run(rig, 4096, 1, 20);
	assert_true(policy->saved_ns == saved_ns);
	for (int hour = 1; hour <= 3; hour++) {
		uint64_t saved_cnt = policy->saved_cnt;
		uint64_t due_ns = policy->saved_ns + UINT64_C(3600) * LP_NS_PER_S;
		lp_clock_sim_advance_to(&rig->clock, due_ns - LP_NS_PER_S);
		(void)run(rig, 4096, 1, 20);
		assert_int_equal(policy->saved_cnt, saved_cnt);
		lp_clock_sim_advance_to(&rig->clock, due_ns);
		lp_store_read_stats(rig->hand.store, &before);
		(void)run(rig, 4096, 1, 20);
		lp_store_read_stats(rig->hand.store, &after);
		assert_true(policy->saved_cnt > saved_cnt && policy->saved_ns >= due_ns);
		assert_int_equal(after.commits - before.commits, 20); /* no frame for it alone */
	}
	assert_true(policy->costs.sample_cnt < LPI_POLICY_SAVE);
	/* A crash now: it is there. */
	close_store(rig, true);
	open_store(rig);
	assert_true(
		lpi_block_of(rig->hand.store)->policy.costs.cells[LP_POLICY_LOG_WRITE][1].idle.cnt >
		0);
	close_store(rig, false);
	rig_free(rig);
}

static struct lp_store_time time_in(const struct lp_store_time *rows, size_t cnt, const char *name)
{
	for (size_t i = 0; i < cnt; i++) {
		if (strcmp(rows[i].operation, "transaction") == 0 &&
		    strcmp(rows[i].state, name) == 0)
			return rows[i];
	}
	fail_msg("no state %s", name);
	return (struct lp_store_time){0};
}

static void test_times(void **state)
{
	struct rig *rig = rig_new(LP_BDEV_DELAY_NVME, false);
	struct lp_store_time before[LP_STORE_TIMES_MAX];
	struct lp_store_time after[LP_STORE_TIMES_MAX];
	(void)state;
	lp_store_set_write_path(rig->hand.store, LP_PATH_DIRECT);
	size_t cnt = lp_store_read_times(rig->hand.store, before, LP_STORE_TIMES_MAX);
	assert_true(cnt > 20 && cnt <= LP_STORE_TIMES_MAX);
	assert_int_equal(lp_store_read_times(rig->hand.store, NULL, 0), cnt);
	(void)run(rig, 4096, 1, 100);
	assert_int_equal(lp_store_read_times(rig->hand.store, after, LP_STORE_TIMES_MAX), cnt);
	static const char *const names[] = {"DATA_IO", "LOGGED"};
	for (size_t i = 0; i < LP_ARRAY_SIZE(names); i++) {
		const struct lp_store_time from = time_in(before, cnt, names[i]);
		const struct lp_store_time to = time_in(after, cnt, names[i]);
		assert_int_equal(to.cnt - from.cnt, 100);
		uint64_t mean_ns = (to.ns - from.ns) / 100;
		assert_true(mean_ns >= 32000 && mean_ns < 38000); /* as the device takes */
	}
	struct lp_store_time one = {.operation = "untouched"};
	assert_int_equal(lp_store_read_times(rig->hand.store, &one, 1), cnt);
	assert_string_equal(one.operation, "transaction");
	close_store(rig, false);
	rig_free(rig);
}

static void test_memory_is_told(void **state)
{
	struct rig *rig = rig_new(LP_BDEV_DELAY_NVME, false);
	struct lp_store_stats stats;
	struct lp_account_sum sum;
	(void)state;
	lp_store_set_write_path(rig->hand.store, LP_PATH_DEFERRED);
	(void)run(rig, 4096, 16, 200);
	lp_store_read_stats(rig->hand.store, &stats);
	assert_int_equal(stats.budget_bytes, UINT64_C(64) << 20);
	assert_int_equal(stats.nodes_bytes, stats.cached_bytes);
	assert_true(stats.nodes_bytes > 0 && stats.nodes_limit_bytes >= stats.nodes_bytes);
	assert_true(stats.memtable_bytes > 0 && stats.pools_bytes > 0);
	assert_true(stats.pending_bytes > 0);
	assert_true(lp_account_find_sum("store nodes", &sum));
	assert_int_equal(sum.bytes, stats.nodes_bytes);
	assert_int_equal(sum.limit_bytes, stats.nodes_limit_bytes);
	assert_true(lp_account_find_sum("index memtables", &sum));
	assert_int_equal(sum.bytes, stats.memtable_bytes);
	/* A second later it has been looked at again. */
	uint64_t next_ns = lpi_block_of(rig->hand.store)->memory.next_ns;
	lp_clock_sim_advance_to(&rig->clock, rig->clock.now_ns + LPI_MEMORY_LOOK_NS);
	(void)run(rig, 4096, 1, 2);
	assert_true(lpi_block_of(rig->hand.store)->memory.next_ns > next_ns);
	close_store(rig, false);
	assert_false(lp_account_find_sum("store nodes", &sum));
	rig_free(rig);
}

/* A store in memory has a sentence and no states. */
static void test_mem(void **state)
{
	struct lpi_mem_rig rig = {0};
	char text[128];
	(void)state;
	lpi_mem_rig_init(&rig, UINT64_C(4) << 20);
	assert_true(lp_store_explain(rig.hand.store, 4096, text, sizeof(text)) > 0);
	assert_non_null(strstr(text, "memory"));
	assert_int_equal(lp_store_read_times(rig.hand.store, NULL, 0), 0);
	lpi_mem_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_auto_is_the_better),
		cmocka_unit_test(test_switch_while_running),
		cmocka_unit_test(test_tries_again),
		cmocka_unit_test(test_parts_of_blocks),
		cmocka_unit_test(test_ordered_is_chosen_apart),
		cmocka_unit_test(test_explains),
		cmocka_unit_test(test_keeps),
		cmocka_unit_test(test_keeps_each_hour),
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_mem),
		cmocka_unit_test(test_memory_is_told),
	};
	return lp_test_main(tests, "store/block/core/write_policy");
}
