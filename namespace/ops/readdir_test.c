/* SPDX-License-Identifier: Apache-2.0 */
/* Readdir by name, of directories of both kinds on one, two and three shards: entries that stay are
 * read once, the cost of a call, and which cookies and names go together. The order of the cookies
 * is in ops/dirs_test.c. */
#include "namespace/ops/names_rig_test.h"

#define NAMES 300u
#define PAGE  2048u

static const struct lp_ino root = {1};

typedef void check_fn(struct lpi_t *t, struct lp_ino dir);

static void on_all(check_fn *check)
{
	for (uint32_t shards = 1; shards <= 3; shards++) {
		struct lpi_t t;
		lpi_t_begin(&t, shards);
		check(&t, lpi_t_dir(&t, root, "plain"));
		check(&t, lpi_t_spread(&t, root, "spread"));
		lpi_t_end(&t);
	}
}

static const char *name_of(uint32_t nr)
{
	static char name[16];
	(void)snprintf(name, sizeof(name), "n%03u", nr);
	return name;
}

static uint32_t nr_of(struct lp_bytes name)
{
	char text[16] = {0};
	assert_true(name.len < sizeof(text));
	memcpy(text, name.data, name.len);
	return text[0] == 'n' ? (uint32_t)strtoul(text + 1, NULL, 10) : NAMES;
}

/* A reading, with what a mount's handle remembers of it. */
struct reading {
	struct lp_ino dir;
	uint64_t cookie;
	char last[256];
	uint32_t last_len;
	bool forgets; /* the name */
	bool with_attrs;
	uint32_t calls;
	uint32_t items;
	uint8_t times[NAMES];
};

static int read_page(struct lpi_t *t, struct reading *reading)
{
	static uint8_t buf[PAGE];
	lpi_t_op(t, LP_NS_READDIR);
	t->op->readdir.dir = reading->dir;
	t->op->readdir.by_name = true;
	t->op->readdir.cookie = reading->cookie;
	if (!reading->forgets)
		t->op->readdir.after = (struct lp_bytes){reading->last, reading->last_len};
	t->op->readdir.buf = buf;
	t->op->readdir.buf_len = sizeof(buf);
	t->op->readdir.with_attrs = reading->with_attrs;
	reading->calls++;
	return lpi_t_do(t);
}

static void take(struct lpi_t *t, struct reading *reading)
{
	struct lp_ns_item item;
	uint32_t pos = 0;
	while (lp_ns_next(t->op, &pos, &item)) {
		uint32_t nr = nr_of(item.name);
		bool is_next_shard = item.cookie >> 56 > reading->cookie >> 56;
		if (reading->last_len > 0 && !is_next_shard)
			assert_true(memcmp(item.name.data, reading->last,
					   LP_MIN(item.name.len, reading->last_len)) > 0);
		assert_int_equal(item.has_attrs, reading->with_attrs);
		reading->cookie = item.cookie;
		reading->last_len = item.name.len;
		memcpy(reading->last, item.name.data, item.name.len);
		reading->items++;
		if (nr < NAMES)
			reading->times[nr]++;
	}
	assert_true(pos > 0 || !t->op->readdir.more);
}

/* Removes or renames the entry of the last cookie; entries that stay are even. */
static void disturb(struct lpi_t *t, struct reading *reading)
{
	uint32_t nr = nr_of((struct lp_bytes){reading->last, reading->last_len});
	if (nr % 2 == 0 || nr >= NAMES || reading->last_len == 0)
		return;
	if (reading->calls % 2 == 0)
		lp_test_ok(lpi_t_remove(t, reading->dir, name_of(nr), false));
	else
		lp_test_ok(lpi_t_rename(t, reading->dir, name_of(nr), reading->dir, "other", 0));
}

/* Rule N4: even ones are there throughout and read once each. */
static void check_stays(struct lpi_t *t, struct lp_ino dir)
{
	for (uint32_t nr = 0; nr < NAMES; nr++)
		(void)lpi_t_file(t, dir, name_of(nr));
	struct reading reading = {.dir = dir};
	uint32_t disturbed = 0;
	do {
		reading.with_attrs = reading.calls % 3 == 1;
		lp_test_ok(read_page(t, &reading));
		bool more = t->op->readdir.more;
		take(t, &reading);
		if (!more)
			break;
		disturb(t, &reading);
		disturbed++;
	} while (true);
	assert_true(disturbed > 5);
	for (uint32_t nr = 0; nr < NAMES; nr += 2)
		assert_int_equal(reading.times[nr], 1);
	for (uint32_t nr = 1; nr < NAMES; nr += 2)
		assert_true(reading.times[nr] <= 1);
}

static void test_stays(void **state)
{
	(void)state;
	on_all(check_stays);
}

/* A cookie alone is enough while its entry exists. When the entry is gone its place is unknown,
 * which is reported; with its name the reading goes on. */
static void check_cookie_alone(struct lpi_t *t, struct lp_ino dir)
{
	for (uint32_t nr = 0; nr < 100; nr++)
		(void)lpi_t_file(t, dir, name_of(nr));
	struct reading reading = {.dir = dir, .forgets = true};
	bool more = true;
	while (more) {
		lp_test_ok(read_page(t, &reading));
		more = t->op->readdir.more;
		take(t, &reading);
	}
	for (uint32_t nr = 0; nr < 100; nr++)
		assert_int_equal(reading.times[nr], 1);
	reading = (struct reading){.dir = dir};
	lp_test_ok(read_page(t, &reading));
	assert_true(t->op->readdir.more);
	take(t, &reading);
	const struct lp_bytes last = {reading.last, reading.last_len};
	lp_test_ok(lpi_t_remove(t, dir, name_of(nr_of(last)), false));
	reading.forgets = true;
	assert_int_equal(read_page(t, &reading), -ENOENT);
	reading.forgets = false;
	lp_test_ok(read_page(t, &reading));
}

static void test_cookie_alone(void **state)
{
	(void)state;
	on_all(check_cookie_alone);
}

/* A call asks the store for as many pages as it returns items, wherever in the directory it is:
 * each is a call to the other shard, and those are counted. */
static void test_cost(void **state)
{
	(void)state;
	struct lpi_t t;
	lpi_t_begin(&t, 2);
	struct lp_ino dir = lpi_t_dir(&t, root, "plain");
	for (uint32_t nr = 0; nr < NAMES; nr++)
		(void)lpi_t_file(&t, dir, name_of(nr));
	uint32_t home = 1 - lp_ino_shard(dir);
	struct reading reading = {.dir = dir};
	bool more = true;
	while (more) {
		struct lp_ns_stats before;
		struct lp_ns_stats after;
		t.home = home + 1; /* the next is home */
		lp_ns_read_stats(t.rig->ns[home], &before);
		lp_test_ok(read_page(&t, &reading));
		lp_ns_read_stats(t.rig->ns[home], &after);
		assert_int_equal(t.home, home);
		/* 512 bytes each; the first call asks what kind of directory it is, too. */
		uint64_t pages = PAGE / (PAGE / 4) + 1;
		assert_true(after.remote_calls - before.remote_calls <= pages + 1);
		more = t.op->readdir.more;
		take(&t, &reading);
	}
	assert_int_equal(reading.items, NAMES);
	assert_true(reading.calls >= 5);
	lpi_t_end(&t);
}

static int try(struct lpi_t *t, struct lp_ino dir, bool by_name, uint64_t cookie, const char *after)
{
	static uint8_t buf[PAGE];
	lpi_t_op(t, LP_NS_READDIR);
	t->op->readdir.dir = dir;
	t->op->readdir.by_name = by_name;
	t->op->readdir.cookie = cookie;
	if (after != NULL)
		t->op->readdir.after = lpi_t_bytes(after);
	t->op->readdir.buf = buf;
	t->op->readdir.buf_len = sizeof(buf);
	return lpi_t_do(t);
}

static void check_refused(struct lpi_t *t, struct lp_ino dir)
{
	for (uint32_t nr = 0; nr < 40; nr++)
		(void)lpi_t_file(t, dir, name_of(nr));
	lp_test_ok(try(t, dir, true, 0, NULL));
	struct lp_ns_item item;
	uint32_t pos = 0;
	assert_true(lp_ns_next(t->op, &pos, &item));
	char name[16] = {0};
	assert_true(item.name.len < sizeof(name));
	memcpy(name, item.name.data, item.name.len);
	lp_test_ok(try(t, dir, true, item.cookie, name));
	assert_int_equal(try(t, dir, true, 0, name), -EINVAL);
	assert_int_equal(try(t, dir, false, item.cookie, name), -EINVAL);
	assert_int_equal(try(t, dir, true, item.cookie, ".."), -EINVAL);
	assert_int_equal(try(t, dir, true, item.cookie, "a/b"), -EINVAL);
	/* Of another shard: this name was not read with it. */
	uint64_t other = item.cookie ^ UINT64_C(1) << 56;
	if (t->rig->shard_cnt > 1)
		assert_int_equal(try(t, dir, true, other, name), -EINVAL);
}

static void test_refused(void **state)
{
	(void)state;
	on_all(check_refused);
}

/* --- Fragments -------------------------------------------------------------------------------- */

#define ANSWER  1000u
#define ENTRY   24u
#define HIGHEST 16u /* bytes of a name in these tests */

/* One that is read by ranges of names, each in the order of the cookies: as a mount does. */
struct fragment {
	struct lp_ino dir;
	uint64_t cookie;
	char after[16];
	char until[16];
	uint64_t before;
	bool by_name;
};

static int read_fragment(struct lpi_t *t, const struct fragment *fragment)
{
	static uint8_t buf[PAGE];
	lpi_t_op(t, LP_NS_READDIR);
	t->op->readdir.dir = fragment->dir;
	t->op->readdir.in_fragment = true;
	t->op->readdir.by_name = fragment->by_name;
	t->op->readdir.cookie = fragment->cookie;
	t->op->readdir.after = lpi_t_bytes(fragment->after);
	t->op->readdir.until = lpi_t_bytes(fragment->until);
	t->op->readdir.before = fragment->before;
	if (fragment->by_name) {
		t->op->readdir.answer_bytes = ANSWER;
		t->op->readdir.item_bytes = ENTRY;
	}
	t->op->readdir.buf = buf;
	t->op->readdir.buf_len = sizeof(buf);
	return lpi_t_do(t);
}

/* Counts the listed items, which are in the order of the cookies and no more than there was room
 * for. The next range begins at the greatest name. */
static uint32_t count_items(struct lpi_t *t, const struct fragment *fragment, uint8_t *times,
			    char *ret_highest)
{
	struct lp_ns_item item;
	uint64_t cookie = fragment->cookie;
	uint32_t pos = 0;
	uint32_t bytes = 0;
	while (lp_ns_next(t->op, &pos, &item)) {
		char name[16] = {0};
		memcpy(name, item.name.data, LP_MIN(item.name.len, sizeof(name) - 1));
		assert_true(item.cookie > cookie);
		assert_int_equal(item.cookie >> 56, t->op->readdir.shard_idx);
		cookie = item.cookie;
		bytes += (ENTRY + item.name.len + 7) / 8 * 8;
		assert_true(strcmp(name, fragment->after) > 0);
		if (strcmp(name, ret_highest) > 0)
			(void)snprintf(ret_highest, HIGHEST, "%s", name);
		if (nr_of(item.name) < NAMES)
			times[nr_of(item.name)]++;
	}
	assert_true(!fragment->by_name || bytes <= ANSWER);
	return pos;
}

/* Whatever has been renamed to a name that is still to come is not told: or a reader might never
 * be done. Nor does any of it move those that stay (rule N4). */
static void check_fragments(struct lpi_t *t, struct lp_ino dir)
{
	uint8_t times[NAMES] = {0};
	uint32_t calls = 0;
	uint32_t moves = 0;
	for (uint32_t nr = 0; nr < NAMES; nr++)
		(void)lpi_t_file(t, dir, name_of(nr));
	(void)lpi_t_file(t, dir, "m0");
	struct fragment fragment = {.dir = dir, .by_name = true};
	for (bool is_last = false; !is_last;) {
		char highest[HIGHEST] = "";
		char from[16];
		char to[16];
		lp_test_ok(read_fragment(t, &fragment));
		assert_true(count_items(t, &fragment, times, highest) > 0 || !t->op->readdir.more);
		fragment.before = t->op->readdir.before;
		uint64_t shard_idx = t->op->readdir.shard_idx;
		is_last = !t->op->readdir.more && t->op->readdir.is_last;
		if (t->op->readdir.more) {
			fragment.cookie = shard_idx << 56;
			(void)snprintf(fragment.after, sizeof(fragment.after), "%s", highest);
		} else {
			fragment = (struct fragment){
				.dir = dir, .by_name = true, .cookie = (shard_idx + 1) << 56};
		}
		calls++;
		(void)snprintf(from, sizeof(from), "%c%u", moves == 0 ? 'm' : 'z', moves);
		(void)snprintf(to, sizeof(to), "z%u", moves + 1);
		lp_test_ok(lpi_t_rename(t, dir, from, dir, to, 0));
		moves++;
	}
	assert_true(calls >= NAMES * 32 / ANSWER && calls <= NAMES * 32 / ANSWER + 4);
	for (uint32_t nr = 0; nr < NAMES; nr++)
		assert_int_equal(times[nr], 1);
}

static void test_fragments(void **state)
{
	(void)state;
	on_all(check_fragments);
}

/* Part of one, in the order of the cookies, from any of them on: also when that is gone. */
static void test_part(void **state)
{
	(void)state;
	struct lpi_t t;
	lpi_t_begin(&t, 2);
	struct lp_ino dir = lpi_t_dir(&t, root, "plain");
	for (uint32_t nr = NAMES; nr-- > 0;)
		(void)lpi_t_file(&t, dir, name_of(nr));
	struct fragment part = {.dir = dir,
				.cookie = (uint64_t)lp_ino_shard(dir) << 56,
				.after = "n100",
				.until = "n109"};
	uint8_t times[NAMES] = {0};
	char highest[HIGHEST] = "";
	lp_test_ok(read_fragment(&t, &part));
	assert_int_equal(count_items(&t, &part, times, highest), 9);
	assert_string_equal(highest, "n109");
	struct lp_ns_item item;
	uint32_t pos = 3;
	assert_true(lp_ns_next(t.op, &pos, &item)); /* the fourth of those made: n106 */
	part.cookie = item.cookie;
	lp_test_ok(lpi_t_remove(&t, dir, "n106", false));
	lp_test_ok(read_fragment(&t, &part));
	highest[0] = 0;
	assert_int_equal(count_items(&t, &part, times, highest), 5);
	assert_string_equal(highest, "n105");
	assert_false(t.op->readdir.more);
	/* Nothing can be asked for by halves. */
	part.by_name = true;
	assert_int_equal(read_fragment(&t, &part), -EINVAL);
	part.by_name = false;
	part.cookie ^= UINT64_C(1) << 56;
	assert_int_equal(read_fragment(&t, &part), -EINVAL);
	(void)snprintf(part.after, sizeof(part.after), "%s", "..");
	assert_int_equal(read_fragment(&t, &part), -EINVAL);
	lpi_t_end(&t);
}

/* --- Many at once ----------------------------------------------------------------------------- */

#define AT_ONCE (2 * LPI_STAT_BATCHES)

/* More than there are batches for: each gets all attributes. */
static void test_many_at_once(void **state)
{
	(void)state;
	struct lpi_t t;
	static struct lpi_ns_hand hands[AT_ONCE];
	static uint8_t bufs[AT_ONCE][UINT32_C(8) * PAGE];
	lpi_t_begin(&t, 2);
	struct lp_ino dir = lpi_t_spread(&t, root, "spread");
	for (uint32_t nr = 0; nr < 100; nr++)
		(void)lpi_t_file(&t, dir, name_of(nr));
	for (uint32_t i = 0; i < AT_ONCE; i++) {
		hands[i].op = (struct lp_ns_op){.opcode = LP_NS_READDIR};
		hands[i].op.readdir.dir = dir;
		hands[i].op.readdir.buf = bufs[i];
		hands[i].op.readdir.buf_len = sizeof(bufs[i]);
		hands[i].op.readdir.by_name = true;
		hands[i].op.readdir.with_attrs = true;
		lpi_ns_rig_submit(t.rig, 0, &hands[i]);
	}
	for (uint32_t i = 0; i < AT_ONCE; i++) {
		struct lp_ns_item item;
		uint32_t pos = 0;
		lp_test_ok(lpi_ns_rig_wait(t.rig, &hands[i]));
		while (lp_ns_next(&hands[i].op, &pos, &item)) {
			assert_true(item.has_attrs);
			assert_int_equal(item.attrs.type, LP_INODE_TYPE_FILE);
			assert_int_equal(item.attrs.nlink, 1);
		}
		assert_int_equal(pos, 100);
	}
	lpi_t_end(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fragments),    cmocka_unit_test(test_part),
		cmocka_unit_test(test_many_at_once), cmocka_unit_test(test_stays),
		cmocka_unit_test(test_cookie_alone), cmocka_unit_test(test_cost),
		cmocka_unit_test(test_refused),
	};
	return lp_test_main(tests, "namespace/ops/readdir");
}
