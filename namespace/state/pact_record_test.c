/* SPDX-License-Identifier: Apache-2.0 */
/* What is written is read again, and whatever the page of the format says must be refused is. */
#include "namespace/state/pact_record.h"

#include "base/crc32c.h"
#include "base/endian.h"
#include "base/testing/test.h"

#define TXID   UINT64_C(0x0200000000000077)
#define SHARDS 5u

static const uint8_t mark[] = {'U', 2, 0, 0, 0, 0, 0, 0, 5};
static const struct lp_attrs attrs = {.atime_ns = -1,
				      .mtime_ns = 2,
				      .ctime_ns = 3,
				      .btime_ns = 4,
				      .parent = {5},
				      .uid = 6,
				      .gid = 7,
				      .nlink = 8,
				      .flags = LP_INODE_FLAG_SPREAD,
				      .rdev = 9,
				      .mode = 0751,
				      .type = LP_INODE_TYPE_DIR};

/* One of each kind; guards are left out. */
static const struct lp_change changes[] = {
	{.type = LP_GUARD_INODE, .ino = {5}},
	{.type = LP_CHANGE_CREATE, .ino = {5}, .inode = {.attrs = &attrs, .name = {"n", 1}}},
	{.type = LP_CHANGE_SET,
	 .ino = {6},
	 .inode = {.attrs = &attrs, .mask = LP_ATTR_NLINK | LP_ATTR_PARENT, .name = {"m", 1}}},
	{.type = LP_CHANGE_LINK, .ino = {7}, .inode = {.delta = -1}},
	{.type = LP_CHANGE_REMOVE, .ino = {8}},
	{.type = LP_CHANGE_ENTRY_SET,
	 .ino = {9},
	 .named = {.name = {"entry", 5}, .target = {10}, .target_type = LP_INODE_TYPE_FILE}},
	{.type = LP_CHANGE_ENTRY_REMOVE, .ino = {9}, .named = {.name = {"old", 3}}},
	{.type = LP_CHANGE_DIR, .ino = {9}, .dir = {.mtime_ns = 11, .ctime_ns = 12, .seal = true}},
	{.type = LP_CHANGE_DIR, .ino = {9}, .dir = {.unseal = true}},
	{.type = LP_CHANGE_DIR, .ino = {9}, .dir = {.drop = true}},
	{.type = LP_CHANGE_RECORD, .named = {.name = {mark, sizeof(mark)}, .value = {"v", 1}}},
	{.type = LP_CHANGE_RECORD, .named = {.name = {mark, sizeof(mark)}}},
};

/* Where the changes with these numbers begin in the value. */
enum { CREATE, SET, LINK, REMOVE, ENTRY_SET, ENTRY_REMOVE, SEAL, UNSEAL, DROP, MARK, UNMARK, CNT };

struct value {
	size_t len;
	size_t at[CNT];
	uint8_t bytes[LPI_PACT_RECORD_BYTES_MAX];
};

static void repair(struct value *value)
{
	uint8_t key[LPI_PACT_KEY_BYTES];
	size_t rest = LP_PACT_HEAD_CRC_OFF + LP_PACT_HEAD_CRC_SIZE;
	lpi_pact_key(TXID, key);
	uint32_t crc = lp_crc32c(0, key, sizeof(key));
	crc = lp_crc32c(crc, value->bytes, LP_PACT_HEAD_CRC_OFF);
	crc = lp_crc32c(crc, value->bytes + rest, value->len - rest);
	lp_put_le32(value->bytes + LP_PACT_HEAD_CRC_OFF, crc);
}

static int decode(const struct value *value, struct lpi_pact_decoded *ret)
{
	/* In memory of its own size, for the sanitizer. */
	uint8_t *copy = malloc(value->len);
	assert_non_null(copy);
	memcpy(copy, value->bytes, value->len);
	int r = lpi_pact_record_decode((struct lp_bytes){copy, (uint32_t)value->len}, TXID, SHARDS,
				       ret);
	free(copy);
	return r;
}

static struct value prepared(void)
{
	struct value value;
	const struct lpi_pact_record record = {.kind = LP_PACT_KIND_PREPARED,
					       .coordinator = 3,
					       .since_ns = 1234,
					       .sealed = {9},
					       .change_cnt = LP_ARRAY_SIZE(changes),
					       .changes = changes};
	value.len = lpi_pact_record_encode(&record, TXID, value.bytes);
	size_t at = LP_PACT_HEAD_SIZE;
	for (uint32_t i = 0; i < CNT; i++) {
		struct lp_pact_change head;
		value.at[i] = at;
		lp_pact_change_decode(value.bytes + at, &head);
		at += LP_PACT_CHANGE_SIZE + head.name_bytes + head.value_bytes;
	}
	assert_int_equal(at, value.len);
	return value;
}

static struct value decided(void)
{
	struct value value;
	const struct lpi_pact_record record = {.kind = LP_PACT_KIND_DECIDED,
					       .coordinator = 3,
					       .participants = 0x13,
					       .since_ns = 5};
	value.len = lpi_pact_record_encode(&record, TXID, value.bytes);
	return value;
}

static void check_change(const struct lp_change *got, const struct lp_change *want)
{
	assert_int_equal(got->type, want->type);
	assert_int_equal(got->ino.nr, want->ino.nr);
	switch (want->type) {
	case LP_CHANGE_CREATE:
	case LP_CHANGE_SET:
		assert_int_equal(got->inode.mask, want->inode.mask);
		assert_int_equal(got->inode.name.len, want->inode.name.len);
		assert_int_equal(got->inode.attrs->nlink, attrs.nlink);
		assert_int_equal(got->inode.attrs->parent.nr, attrs.parent.nr);
		assert_int_equal(got->inode.attrs->atime_ns, attrs.atime_ns);
		assert_int_equal(got->inode.attrs->mtime_ns, attrs.mtime_ns);
		assert_int_equal(got->inode.attrs->ctime_ns, attrs.ctime_ns);
		assert_int_equal(got->inode.attrs->btime_ns, attrs.btime_ns);
		assert_int_equal(got->inode.attrs->uid, attrs.uid);
		assert_int_equal(got->inode.attrs->gid, attrs.gid);
		assert_int_equal(got->inode.attrs->mode, attrs.mode);
		assert_int_equal(got->inode.attrs->rdev, attrs.rdev);
		assert_int_equal(got->inode.attrs->flags, attrs.flags);
		assert_int_equal(got->inode.attrs->type,
				 want->type == LP_CHANGE_CREATE ? attrs.type : 0);
		break;
	case LP_CHANGE_LINK:
		assert_int_equal(got->inode.delta, want->inode.delta);
		break;
	case LP_CHANGE_DIR:
		assert_int_equal(got->dir.mtime_ns, want->dir.mtime_ns);
		assert_int_equal(got->dir.ctime_ns, want->dir.ctime_ns);
		assert_true(got->dir.seal == want->dir.seal);
		assert_true(got->dir.unseal == want->dir.unseal);
		assert_true(got->dir.drop == want->dir.drop);
		break;
	default:
		if (want->type == LP_CHANGE_REMOVE)
			break;
		assert_int_equal(got->named.target.nr, want->named.target.nr);
		assert_int_equal(got->named.target_type, want->named.target_type);
		assert_int_equal(got->named.name.len, want->named.name.len);
		assert_memory_equal(got->named.name.data, want->named.name.data,
				    want->named.name.len);
		assert_int_equal(got->named.value.len, want->named.value.len);
		assert_true((got->named.value.data == NULL) == (want->named.value.data == NULL));
		break;
	}
}

static void test_again(void **state)
{
	(void)state;
	static struct lpi_pact_decoded is;
	struct value value = prepared();
	/* Names point into what was read. */
	lp_test_ok(lpi_pact_record_decode((struct lp_bytes){value.bytes, (uint32_t)value.len}, TXID,
					  SHARDS, &is));
	assert_int_equal(is.record.kind, LP_PACT_KIND_PREPARED);
	assert_int_equal(is.record.coordinator, 3);
	assert_int_equal(is.record.participants, 0);
	assert_int_equal(is.record.since_ns, 1234);
	assert_int_equal(is.record.sealed.nr, 9);
	assert_int_equal(is.record.change_cnt, CNT);
	for (uint32_t i = 0; i < CNT; i++)
		check_change(&is.record.changes[i], &changes[i + 1]);
	value = decided();
	lp_test_ok(decode(&value, &is));
	assert_int_equal(is.record.kind, LP_PACT_KIND_DECIDED);
	assert_int_equal(is.record.participants, 0x13);
	assert_int_equal(is.record.change_cnt, 0);
}

static void test_key(void **state)
{
	(void)state;
	uint8_t key[LPI_PACT_KEY_BYTES + 1] = {0};
	uint64_t txid = 0;
	lpi_pact_key(TXID, key);
	lp_test_ok(lpi_pact_key_parse((struct lp_bytes){key, LPI_PACT_KEY_BYTES}, &txid));
	assert_true(txid == TXID);
	lp_test_err(-EUCLEAN, lpi_pact_key_parse((struct lp_bytes){key, 8}, &txid));
	lp_test_err(-EUCLEAN, lpi_pact_key_parse((struct lp_bytes){key, 10}, &txid));
	key[0] = 'U';
	lp_test_err(-EUCLEAN,
		    lpi_pact_key_parse((struct lp_bytes){key, LPI_PACT_KEY_BYTES}, &txid));
}

/* Every bit counts, also those of the key. */
static void test_bits(void **state)
{
	(void)state;
	static struct lpi_pact_decoded is;
	struct value value = prepared();
	for (size_t i = 0; i < 8 * value.len; i++) {
		value.bytes[i / 8] ^= (uint8_t)(1u << i % 8);
		lp_test_err(-EBADMSG, decode(&value, &is));
		value.bytes[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	lp_test_err(-EBADMSG,
		    lpi_pact_record_decode((struct lp_bytes){value.bytes, (uint32_t)value.len},
					   TXID + 1, SHARDS, &is));
	for (size_t len = value.len; len-- > 0;) {
		value.len = len;
		if (len >= LP_PACT_HEAD_SIZE)
			repair(&value);
		lp_test_err(-EUCLEAN, decode(&value, &is));
	}
	value = prepared();
	value.bytes[value.len++] = 0;
	repair(&value);
	lp_test_err(-EUCLEAN, decode(&value, &is));
}

/* Bytes that say what they must not, with a crc that is right. */
enum { HEAD = -1, DECISION = -2 };
static const struct {
	int change; /* or the head */
	size_t off;
	uint8_t byte;
} bad[] = {
	{HEAD, LP_PACT_HEAD_VERSION_OFF, 2},
	{HEAD, LP_PACT_HEAD_VERSION_OFF, 0},
	{HEAD, LP_PACT_HEAD_KIND_OFF, 0},
	{HEAD, LP_PACT_HEAD_KIND_OFF, 3},
	{HEAD, LP_PACT_HEAD_KIND_OFF, LP_PACT_KIND_DECIDED},
	{HEAD, LP_PACT_HEAD_CHANGE_CNT_OFF, CNT - 1},
	{HEAD, LP_PACT_HEAD_CHANGE_CNT_OFF, CNT + 1},
	{HEAD, LP_PACT_HEAD_CHANGE_CNT_OFF, LPI_PACT_CHANGES_MAX + 1},
	{HEAD, LP_PACT_HEAD_COORDINATOR_OFF, SHARDS},
	{HEAD, LP_PACT_HEAD_RESERVED_OFF, 1},
	{HEAD, LP_PACT_HEAD_PARTICIPANTS_OFF, 1},
	{HEAD, LP_PACT_HEAD_RESERVED_B_OFF, 1},
	{DECISION, LP_PACT_HEAD_KIND_OFF, LP_PACT_KIND_PREPARED},
	{DECISION, LP_PACT_HEAD_PARTICIPANTS_OFF, 0},
	{DECISION, LP_PACT_HEAD_PARTICIPANTS_OFF, 1u << SHARDS},
	{DECISION, LP_PACT_HEAD_SEALED_INO_OFF, 1},
	{CREATE, LP_PACT_CHANGE_KIND_OFF, 0},
	{CREATE, LP_PACT_CHANGE_KIND_OFF, 9},
	{CREATE, LP_PACT_CHANGE_INO_OFF, 0},
	{CREATE, LP_PACT_CHANGE_TARGET_OFF, 1},
	{CREATE, LP_PACT_CHANGE_TARGET_TYPE_OFF, 1},
	{CREATE, LP_PACT_CHANGE_EXTRA_OFF, 1},
	{CREATE, LP_PACT_CHANGE_SIZE, '/'},
	{CREATE, LP_PACT_CHANGE_SIZE + 1 + LP_PACT_ATTRS_TYPE_OFF, 0},
	{CREATE, LP_PACT_CHANGE_SIZE + 1 + LP_PACT_ATTRS_MODE_OFF + 1, 0x10},
	{CREATE, LP_PACT_CHANGE_SIZE + 1 + LP_PACT_ATTRS_FLAGS_OFF + 3, 0x80},
	{CREATE, LP_PACT_CHANGE_SIZE + 1 + LP_PACT_ATTRS_RESERVED_OFF, 1},
	{CREATE, LP_PACT_CHANGE_SIZE + 1 + LP_PACT_ATTRS_RESERVED_B_OFF, 1},
	{SET, LP_PACT_CHANGE_EXTRA_OFF + 1, 4},
	{SET, LP_PACT_CHANGE_SIZE + 1 + LP_PACT_ATTRS_TYPE_OFF, 1},
	{LINK, LP_PACT_CHANGE_TARGET_OFF + 4, 0},
	{LINK, LP_PACT_CHANGE_INO_OFF, 0},
	{ENTRY_SET, LP_PACT_CHANGE_TARGET_OFF, 0},
	{ENTRY_SET, LP_PACT_CHANGE_TARGET_TYPE_OFF, 0},
	{ENTRY_SET, LP_PACT_CHANGE_SIZE, 0},
	{ENTRY_REMOVE, LP_PACT_CHANGE_TARGET_OFF, 1},
	{ENTRY_REMOVE, LP_PACT_CHANGE_TARGET_TYPE_OFF, 1},
	{SEAL, LP_PACT_CHANGE_TARGET_TYPE_OFF, 3},
	{SEAL, LP_PACT_CHANGE_TARGET_TYPE_OFF, 4},
	{UNSEAL, LP_PACT_CHANGE_TARGET_TYPE_OFF, 8},
	{DROP, LP_PACT_CHANGE_TARGET_OFF, 1},
	{DROP, LP_PACT_CHANGE_EXTRA_OFF, 1},
	{DROP, LP_PACT_CHANGE_TARGET_TYPE_OFF, 5},
	{MARK, LP_PACT_CHANGE_SIZE, 'T'},
	{MARK, LP_PACT_CHANGE_INO_OFF, 1},
	{MARK, LP_PACT_CHANGE_TARGET_OFF, 1},
	{UNMARK, LP_PACT_CHANGE_TARGET_OFF, 0},
	{UNMARK, LP_PACT_CHANGE_TARGET_OFF, 2},
	/* Lengths, of which the sum stays. */
	{REMOVE, LP_PACT_CHANGE_NAME_BYTES_OFF, 1},
	{REMOVE, LP_PACT_CHANGE_VALUE_BYTES_OFF, 1},
	{ENTRY_SET, LP_PACT_CHANGE_NAME_BYTES_OFF, 0},
	{ENTRY_SET, LP_PACT_CHANGE_VALUE_BYTES_OFF + 3, 0xff},
	{CREATE, LP_PACT_CHANGE_VALUE_BYTES_OFF, LP_PACT_ATTRS_SIZE - 1},
};

static void test_refusals(void **state)
{
	(void)state;
	static struct lpi_pact_decoded is;
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++) {
		struct value value = bad[i].change == DECISION ? decided() : prepared();
		size_t at = bad[i].change < 0 ? 0 : value.at[bad[i].change];
		assert_true(value.bytes[at + bad[i].off] != bad[i].byte);
		value.bytes[at + bad[i].off] = bad[i].byte;
		repair(&value);
		int r = decode(&value, &is);
		if (r != -EUCLEAN)
			print_error("refusal %zu\n", i);
		lp_test_err(-EUCLEAN, r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_key),
		cmocka_unit_test(test_bits),
		cmocka_unit_test(test_refusals),
	};
	return lp_test_main(tests, "namespace/state/pact_record");
}
