/* SPDX-License-Identifier: Apache-2.0 */
/* Starting with what a change over several shards left (rule N1). Goal: a record that is damaged,
 * or does not fit to the others, is reported, no shard serves, and nothing is changed: whether the
 * change happened is never guessed. Method: a prepared record on one shard and its decision on
 * another, as a crash leaves them, of which one thing is wrong at a time; then right again. */
#include "namespace/change/pact_trial_test.h"
#include "namespace/shard/ns_rig_test.h"
#include "namespace/shard/ns_text_test.h"

#define SHARDS 3u
#define TXID   ((UINT64_C(2) << 56) + 77)

struct bench {
	struct lpi_ns_rig *rig;
	struct lpi_hand hand[SHARDS];
	struct lp_ino dir; /* on shard 1 */
};

static void bench_turn(const struct lpi_hand *hand)
{
	(void)lpi_ns_rig_turn(hand->arg);
}

static void bench_init(struct bench *bench)
{
	bench->rig = lpi_ns_rig_new(SHARDS);
	for (uint32_t i = 0; i < SHARDS; i++)
		bench->hand[i] = (struct lpi_hand){.reactor = bench->rig->reactor[i],
						   .bufs = bench->rig->bufs[i],
						   .store = bench->rig->store[i],
						   .turn = bench_turn,
						   .arg = bench->rig};
	const struct lpi_trial_world world = lpi_world_make(bench->hand, bench->rig->ns);
	bench->dir = world.d1;
	lpi_ns_rig_stop(bench->rig);
}

struct record {
	uint32_t len;
	uint8_t bytes[LPI_PACT_RECORD_BYTES_MAX + 1];
};

static struct record prepared(const struct bench *bench, uint32_t coordinator)
{
	struct record record;
	const struct lp_change change = {.type = LP_CHANGE_ENTRY_SET,
					 .ino = bench->dir,
					 .named = {.name = LPI_TRIAL_NAME("new"),
						   .target = {(UINT64_C(1) << 56) + 99},
						   .target_type = LP_INODE_TYPE_FILE}};
	const struct lpi_pact_record content = {.kind = LP_PACT_KIND_PREPARED,
						.coordinator = coordinator,
						.since_ns = 1,
						.change_cnt = 1,
						.changes = &change};
	record.len = (uint32_t)lpi_pact_record_encode(&content, TXID, record.bytes);
	return record;
}

static struct record decided(uint64_t participants)
{
	struct record record;
	const struct lpi_pact_record content = {.kind = LP_PACT_KIND_DECIDED,
						.coordinator = 0,
						.participants = participants,
						.since_ns = 1};
	record.len = (uint32_t)lpi_pact_record_encode(&content, TXID, record.bytes);
	return record;
}

static void put(const struct bench *bench, uint32_t shard, const struct record *record)
{
	uint8_t key[LPI_PACT_KEY_BYTES];
	lpi_pact_key(TXID, key);
	lp_test_ok(lpi_hand_change(
		&bench->hand[shard],
		(struct lp_change){.type = LP_CHANGE_RECORD,
				   .named = {.name = {key, sizeof(key)},
					     .value = {record->bytes, record->len}}}));
}

static void describe(const struct bench *bench, struct lpi_ns_text *ret_text)
{
	const struct lpi_ns_hands hands = {SHARDS, bench->hand};
	lpi_ns_describe(&hands, ret_text);
}

enum wrong {
	RIGHT,
	PREPARED_BIT,
	PREPARED_SHORT,
	PREPARED_LONG,
	PREPARED_ASKS_ITSELF,
	PREPARED_ASKS_NOBODY,
	DECISION_BIT,
	DECISION_SHORT,
	DECISION_LONG,
	DECISION_OF_OTHERS,
	DECISION_IS_NONE,
	WRONG_CNT
};

static void fill(const struct bench *bench, enum wrong wrong, struct record *ret_prepared,
		 struct record *ret_decision)
{
	uint32_t coordinator = wrong == PREPARED_ASKS_ITSELF ? 1 : 0;
	*ret_prepared = prepared(bench, wrong == PREPARED_ASKS_NOBODY ? SHARDS : coordinator);
	*ret_decision = decided(wrong == DECISION_OF_OTHERS ? 1u << 2 : 1u << 1);
	if (wrong == DECISION_IS_NONE)
		*ret_decision = prepared(bench, 0);
	struct record *record =
		wrong >= PREPARED_BIT && wrong <= PREPARED_LONG ? ret_prepared : ret_decision;
	if (wrong == PREPARED_BIT || wrong == DECISION_BIT)
		record->bytes[record->len / 2] ^= 1;
	if (wrong == PREPARED_SHORT || wrong == DECISION_SHORT)
		record->len--;
	if (wrong == PREPARED_LONG || wrong == DECISION_LONG)
		record->bytes[record->len++] = 0;
}

/* Returns what the start said; the namespaces are closed. */
static int start(struct bench *bench)
{
	int r = lpi_ns_rig_start(bench->rig);
	if (r >= 0) {
		lpi_ns_rig_stop(bench->rig);
		return r;
	}
	for (uint32_t i = 0; i < SHARDS; i++) {
		assert_int_equal(bench->rig->ns[i]->state, LPI_NS_OPENED);
		lp_ns_close(bench->rig->ns[i]);
	}
	return r;
}

static void check_wrong(enum wrong wrong)
{
	struct bench bench;
	struct record one;
	struct record other;
	struct lpi_ns_text before;
	struct lpi_ns_text after;
	bench_init(&bench);
	fill(&bench, wrong, &one, &other);
	put(&bench, 1, &one);
	put(&bench, 0, &other);
	describe(&bench, &before);
	int r = start(&bench);
	describe(&bench, &after);
	if (r != -EUCLEAN && r != -EBADMSG)
		print_error("wrong %d: %d\n", (int)wrong, r);
	assert_true(r == -EUCLEAN || r == -EBADMSG);
	if (!lpi_ns_text_is_same(&before, &after))
		print_error("wrong %d:\n%.*s\nthen:\n%.*s\n", (int)wrong, (int)before.len,
			    before.bytes, (int)after.len, after.bytes);
	assert_true(lpi_ns_text_is_same(&before, &after));
	/* Nothing was spoilt: right again, it is finished. */
	fill(&bench, RIGHT, &one, &other);
	put(&bench, 1, &one);
	put(&bench, 0, &other);
	assert_int_equal(start(&bench), 0);
	describe(&bench, &after);
	assert_non_null(memmem(after.bytes, after.len, ": new ->", 8));
	assert_null(memmem(after.bytes, after.len, "record", 6));
	lp_test_ok(lpi_ns_rig_start(bench.rig));
	lpi_ns_rig_free(bench.rig);
}

static void test_wrong(void **state)
{
	(void)state;
	for (int wrong = RIGHT + 1; wrong < WRONG_CNT; wrong++)
		check_wrong((enum wrong)wrong);
}

/* Presumed abort: no decision is an answer. */
static void test_none(void **state)
{
	(void)state;
	struct bench bench;
	struct lpi_ns_text before;
	struct lpi_ns_text after;
	bench_init(&bench);
	describe(&bench, &before);
	const struct record one = prepared(&bench, 0);
	put(&bench, 1, &one);
	assert_int_equal(start(&bench), 0);
	describe(&bench, &after);
	assert_true(lpi_ns_text_is_same(&before, &after));
	lp_test_ok(lpi_ns_rig_start(bench.rig));
	lpi_ns_rig_free(bench.rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_none),
	};
	return lp_test_main(tests, "namespace/shard/start");
}
