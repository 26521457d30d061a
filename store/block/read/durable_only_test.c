/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an answer waits for the commit that has changed what it is about, and for no other: about
 * what no commit under way changes it waits for none, however slow the device is; and what was
 * answered no crash takes back, also that something is not there (P3, rule W1).
 * Method: a device whose write-throughs take long. Three groups are under way, two in flight and
 * one that collects, each of which has changed other names, directories, inodes and records in
 * every way there is. Each question is asked about what each of them has changed, and about what
 * none has; how many of them are durable when it is answered is exact. Then the power is cut at
 * each moment at which anything was answered, and all that had been answered is asked again. */
#include "store/block/block_sim_test.h"

#define GROUPS        3u /* that are under way */
#define SLOW_NS       (100 * LP_NS_PER_MS)
#define APART_NS      (10 * LP_NS_PER_MS)
#define QUESTIONS_MAX 64u
#define TURNS         60
#define LIST_BYTES    4096u
#define CUT_SEEDS     3u

/* Of each group k, and with k = 0 of none. */
#define DIR_OF(k)   (10u + (k)) /* all kinds of changes, and names that stay */
#define MOVED_OF(k) (20u + (k)) /* the one name leads elsewhere */
#define GONE_OF(k)  (30u + (k)) /* the one name goes */
#define NEW_OF(k)   (40u + (k)) /* the first name comes */
#define INO_OF(k)   (100u + (k))

static struct {
	struct lpi_store_rig rig;
	uint64_t groups[GROUPS]; /* as lp_commit_group() names them */
	uint32_t ended;
} world;

struct question {
	struct lp_store_op op;
	const char *what;
	uint32_t k; /* what it is about was changed by group k, 0: by none */
	uint32_t wait;
	bool is_done;
	uint32_t durable_cnt; /* of the three groups, when it was answered */
	uint64_t events;      /* of the device until then */
	uint8_t buf[LIST_BYTES];
};

static struct question questions[QUESTIONS_MAX];
static uint32_t question_cnt;

static struct lpi_block *block_of(const struct lpi_store_rig *rig)
{
	return lpi_block_of(rig->hand.store);
}

/* --- What is changed -------------------------------------------------------------------------- */

static struct lp_bytes text(const char *string)
{
	return (struct lp_bytes){string, (uint32_t)strlen(string)};
}

static struct lp_change entry(enum lp_change_type type, uint64_t dir, const char *name,
			      uint64_t target)
{
	return (struct lp_change){.type = type,
				  .ino = {dir},
				  .named = {.name = text(name),
					    .target = {target},
					    .target_type = LP_INODE_TYPE_FILE}};
}

static const char *const record_names[GROUPS + 1] = {"St0", "St1", "St2", "St3"};

static struct lp_change record(uint32_t k, const char *value)
{
	return (struct lp_change){.type = LP_CHANGE_RECORD,
				  .named = {.name = text(record_names[k]), .value = text(value)}};
}

/* What is there before. */
static void prepare(uint32_t k)
{
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .mode = 0644, .nlink = 1};
	const struct lp_change changes[] = {
		{.type = LP_CHANGE_CREATE, .ino = {INO_OF(k)}, .inode = {.attrs = &attrs}},
		entry(LP_CHANGE_ENTRY_SET, DIR_OF(k), "still", 200),
		entry(LP_CHANGE_ENTRY_SET, DIR_OF(k), "gone", 200),
		entry(LP_CHANGE_ENTRY_SET, DIR_OF(k), "moved", 200),
		entry(LP_CHANGE_ENTRY_SET, DIR_OF(k), "inode", INO_OF(k)),
		entry(LP_CHANGE_ENTRY_SET, MOVED_OF(k), "moved", 200),
		entry(LP_CHANGE_ENTRY_SET, GONE_OF(k), "gone", 200),
		record(k, "before"),
	};
	lp_test_ok(lpi_hand_txn(&world.rig.hand, changes, LP_ARRAY_SIZE(changes)));
}

static void poll_some(void)
{
	for (int i = 0; i < TURNS; i++) {
		lpi_store_rig_press(world.rig.hand.store);
		(void)lp_store_sim_run_one(world.rig.hand.store);
		(void)lp_reactor_turn(world.rig.hand.reactor, false);
	}
}

static void changed(struct lp_store_op *op)
{
	assert_int_equal(op->result, 0);
	world.ended++;
}

static void noticed(struct lp_commit_waiter *waiter, int result)
{
	(void)waiter;
	(void)result;
}

/* Group k: time stands still until it is on its way, or collects behind the others. The last one
 * that may be on its way has to be waited for. */
static void change(uint32_t k)
{
	static struct lp_commit_waiter waiters[GROUPS];
	const struct lp_attrs attrs = {.uid = 7};
	const struct lp_change changes[] = {
		{.type = LP_CHANGE_SET,
		 .ino = {INO_OF(k)},
		 .inode = {.attrs = &attrs, .mask = LP_ATTR_UID}},
		entry(LP_CHANGE_ENTRY_SET, DIR_OF(k), "new", 201),
		entry(LP_CHANGE_ENTRY_REMOVE, DIR_OF(k), "gone", 0),
		entry(LP_CHANGE_ENTRY_SET, DIR_OF(k), "moved", 201),
		entry(LP_CHANGE_ENTRY_SET, MOVED_OF(k), "moved", 201),
		entry(LP_CHANGE_ENTRY_REMOVE, GONE_OF(k), "gone", 0),
		entry(LP_CHANGE_ENTRY_SET, NEW_OF(k), "new", 201),
		record(k, "after"),
	};
	struct lp_store_op op = lpi_txn_op(changes, LP_ARRAY_SIZE(changes));
	struct lp_commit *commit = block_of(&world.rig)->commit;
	op.txn.ack = LP_ACK_ORDERED;
	op.complete = changed;
	world.ended = 0;
	world.groups[k - 1] = lp_commit_group(commit);
	lp_store_submit(world.rig.hand.store, &op);
	poll_some();
	assert_int_equal(world.ended, 1);
	if (lp_commit_group(commit) == world.groups[k - 1] && k < GROUPS) {
		waiters[k].told = noticed;
		lp_commit_wait(commit, &waiters[k]);
		poll_some();
	}
	assert_int_equal(lp_commit_group(commit), world.groups[k - 1] + (k < GROUPS));
	assert_int_equal(lp_commit_group_is_inserted(commit, world.groups[k - 1]), k < GROUPS);
	assert_false(lp_commit_group_is_durable(commit, world.groups[0]));
	lp_clock_sim_advance_to(&world.rig.clock, world.rig.clock.now_ns + APART_NS);
	poll_some(); /* the reactor looks at the clock in its turns */
}

/* --- What is asked ---------------------------------------------------------------------------- */

static struct question *ask(const char *what, uint32_t k, uint32_t wait)
{
	assert_true(question_cnt < QUESTIONS_MAX);
	struct question *question = &questions[question_cnt++];
	memset(question, 0, sizeof(*question));
	question->what = what;
	question->k = k;
	question->wait = wait;
	return question;
}

static void ask_lookup(uint32_t k, const char *name, uint32_t wait)
{
	struct question *question = ask(name, k, wait);
	question->op.opcode = LP_STORE_LOOKUP;
	question->op.lookup.dir.nr = DIR_OF(k);
	question->op.lookup.name = text(name);
}

static void ask_list(uint32_t k, const char *what, uint64_t dir)
{
	struct question *question = ask(what, k, k);
	question->op.opcode = LP_STORE_LIST;
	question->op.list.space = LP_STORE_ENTRIES;
	question->op.list.ino.nr = dir;
	question->op.list.buf = question->buf;
	question->op.list.buf_len = sizeof(question->buf);
}

static void ask_all(uint32_t k)
{
	ask_lookup(k, "still", 0);
	ask_lookup(k, "never", 0);
	ask_lookup(k, "new", k);
	ask_lookup(k, "gone", k);
	ask_lookup(k, "moved", k);
	ask_lookup(k, "inode", k); /* the entry stays, the inode behind it changes */
	ask_list(k, "list", DIR_OF(k));
	ask_list(k, "list of what moved", MOVED_OF(k));
	ask_list(k, "list of what went", GONE_OF(k));
	ask_list(k, "list of what came", NEW_OF(k));
	struct question *question = ask("stat", k, k);
	question->op.opcode = LP_STORE_STAT;
	question->op.stat.ino.nr = INO_OF(k);
	question = ask("fragment", k, k);
	question->op.opcode = LP_STORE_DIR;
	question->op.dir.ino.nr = DIR_OF(k);
	question = ask("record", k, k);
	question->op.opcode = LP_STORE_GET;
	question->op.get.space = LP_STORE_RECORDS;
	question->op.get.name = text(record_names[k]);
	question->op.get.buf = question->buf;
	question->op.get.buf_len = sizeof(question->buf);
}

static void answered(struct lp_store_op *op)
{
	struct question *question = op->user;
	const struct lp_commit *commit = block_of(&world.rig)->commit;
	question->is_done = true;
	question->events = lp_sim_event_count(lp_sim_of(world.rig.bdev));
	for (uint32_t i = 0; i < GROUPS; i++)
		question->durable_cnt += lp_commit_group_is_durable(commit, world.groups[i]);
}

static bool all_are_done(void)
{
	for (uint32_t i = 0; i < question_cnt; i++) {
		if (!questions[i].is_done)
			return false;
	}
	return true;
}

/* As a text, to compare. */
static void describe(const struct lp_store_op *op, char *text_buf, size_t max)
{
	struct lp_list_item item;
	uint32_t pos = 0;
	int len = snprintf(text_buf, max, "%d", op->result);
	switch (op->opcode) {
	case LP_STORE_LOOKUP:
		len += snprintf(text_buf + len, max - (size_t)len, " to %u, uid %u",
				op->result == 0 ? (unsigned)op->lookup.ino.nr : 0,
				op->result == 0 ? (unsigned)op->lookup.attrs.uid : 0);
		break;
	case LP_STORE_STAT:
		len += snprintf(text_buf + len, max - (size_t)len, " uid %u",
				(unsigned)op->stat.attrs.uid);
		break;
	case LP_STORE_DIR:
		len += snprintf(text_buf + len, max - (size_t)len, " %u entries",
				(unsigned)op->dir.entries_cnt);
		break;
	case LP_STORE_GET:
		len += snprintf(text_buf + len, max - (size_t)len, " %.*s", (int)op->get.value_len,
				(const char *)op->get.buf);
		break;
	case LP_STORE_LIST:
		while (lp_store_list_next(op, &pos, &item))
			len += snprintf(text_buf + len, max - (size_t)len, " %.*s:%u",
					(int)item.name.len, (const char *)item.name.data,
					(unsigned)item.ino.nr);
		break;
	case LP_STORE_TXN:
	case LP_STORE_READ:
	case LP_STORE_SEEK:
	case LP_STORE_SYNC:
	case LP_STORE_OPCODE_CNT:
	default:
		fail();
	}
	assert_true((size_t)len < max);
}

/* What the question is answered when the group has happened. */
static const char *expected(const struct question *question)
{
	static const struct {
		const char *what;
		const char *before; /* with k = 0 */
		const char *after;
	} answers[] = {
		{"still", "0 to 200, uid 0", "0 to 200, uid 0"},
		{"never", "-2 to 0, uid 0", "-2 to 0, uid 0"},
		{"new", "-2 to 0, uid 0", "0 to 201, uid 0"},
		{"gone", "0 to 200, uid 0", "-2 to 0, uid 0"},
		{"moved", "0 to 200, uid 0", "0 to 201, uid 0"},
		{"list", "0 gone:200 inode:100 moved:200 still:200", NULL},
		{"list of what moved", "0 moved:200", "0 moved:201"},
		{"list of what went", "0 gone:200", "0"},
		{"list of what came", "0", "0 new:201"},
		{"stat", "0 uid 0", "0 uid 7"},
		{"fragment", "0 4 entries", "0 4 entries"},
		{"record", "0 before", "0 after"},
	};
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(answers); i++) {
		if (strcmp(answers[i].what, question->what) == 0)
			return question->k == 0 ? answers[i].before : answers[i].after;
	}
	return NULL; /* with the group's number in it */
}

static void judge(const struct question *question)
{
	char is[256];
	describe(&question->op, is, sizeof(is));
	const char *want = expected(question);
	if (question->durable_cnt != question->wait)
		print_error("%s, of group %u: answered when %u were durable\n", question->what,
			    (unsigned)question->k, (unsigned)question->durable_cnt);
	assert_int_equal(question->durable_cnt, question->wait);
	if (want != NULL)
		assert_string_equal(is, want);
}

/* --- What a crash leaves ---------------------------------------------------------------------- */

/* All that had been answered until then is so. */
static void check_left(struct lp_bdev *bdev, uint64_t events, uint64_t seed)
{
	struct lpi_store_rig rig;
	char was[256];
	char is[256];
	lpi_store_rig_init(&rig, bdev, seed);
	lp_test_ok(lpi_store_rig_open(&rig));
	for (uint32_t i = 0; i < question_cnt; i++) {
		if (questions[i].events > events)
			continue;
		describe(&questions[i].op, was, sizeof(was));
		struct question again = questions[i];
		if (again.op.opcode == LP_STORE_LIST)
			again.op.list.buf = again.buf;
		if (again.op.opcode == LP_STORE_GET)
			again.op.get.buf = again.buf;
		(void)lpi_hand_do(&rig.hand, &again.op);
		describe(&again.op, is, sizeof(is));
		if (strcmp(was, is) != 0)
			print_error("%s, of group %u\n", again.what, (unsigned)again.k);
		assert_string_equal(was, is);
	}
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_fini(&rig);
}

static bool is_first(uint32_t idx)
{
	for (uint32_t i = 0; i < idx; i++) {
		if (questions[i].events == questions[idx].events)
			return false;
	}
	return true;
}

static void cut_at_each_answer(void)
{
	for (uint32_t i = 0; i < question_cnt; i++) {
		for (uint64_t seed = 0; is_first(i) && seed < CUT_SEEDS; seed++) {
			struct lp_bdev *left = NULL;
			lp_test_ok(lp_sim_image_at(lp_sim_of(world.rig.bdev),
						   questions[i].events - 1, NULL, seed, &left));
			check_left(left, questions[i].events, seed);
		}
	}
}

/* --- All of it -------------------------------------------------------------------------------- */

static void settle(void)
{
	struct lp_store_op op = {.opcode = LP_STORE_SYNC};
	lp_test_ok(lpi_hand_do(&world.rig.hand, &op));
	while (!lp_commit_is_idle(block_of(&world.rig)->commit))
		lpi_hand_turn(&world.rig.hand);
}

static void reopen(void)
{
	lp_test_ok(lpi_store_rig_close(&world.rig, false));
	lp_test_ok(lpi_store_rig_open(&world.rig));
}

/* The seed says among other things how much memory there is. */
static void check(uint64_t seed, bool is_cold)
{
	const struct lp_sim_rule slow = {.fault = LP_SIM_SLOW,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					 .arg = SLOW_NS};
	question_cnt = 0;
	lpi_store_rig_start(&world.rig, seed);
	world.rig.ops_max = QUESTIONS_MAX; /* nobody waits for the slot of one who waits */
	reopen();
	for (uint32_t k = 0; k <= GROUPS; k++)
		prepare(k);
	settle();
	if (is_cold) {
		reopen();
		settle();
	}
	lp_sim_rule_add(lp_sim_of(world.rig.bdev), &slow);
	for (uint32_t k = 1; k <= GROUPS; k++)
		change(k);
	for (uint32_t k = 0; k <= GROUPS; k++)
		ask_all(k);
	for (uint32_t i = 0; i < question_cnt; i++) {
		questions[i].op.user = &questions[i];
		questions[i].op.complete = answered;
		lp_store_submit(world.rig.hand.store, &questions[i].op);
	}
	/* Time goes on when nothing else can. */
	while (!all_are_done()) {
		poll_some();
		lpi_hand_turn(&world.rig.hand);
	}
	for (uint32_t i = 0; i < question_cnt; i++)
		judge(&questions[i]);
	cut_at_each_answer();
	lp_sim_rules_clear(lp_sim_of(world.rig.bdev));
	lp_test_ok(lpi_store_rig_close(&world.rig, false));
	lpi_store_rig_check(&world.rig);
	lpi_store_rig_fini(&world.rig);
}

static void test_in_memory(void **state)
{
	(void)state;
	check(1, false);
	check(3, false); /* nodes leave memory as soon as they may */
}

static void test_cold(void **state)
{
	(void)state;
	check(1, true);
	check(3, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_memory),
		cmocka_unit_test(test_cold),
	};
	return lp_test_main(tests, "store/block/read/durable_only");
}
