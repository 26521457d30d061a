/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: questions other than reads get the right answer whether what they need is in memory, in
 * the overlay, in the index's cache, or has to be fetched; lists see what was put before them (rule
 * W1), in order and without gaps whatever the page; and no answer comes before what it was seen in
 * is durable (store I6).
 * Method: inodes and records put by hand beside a model; each question warm and cold; damage and
 * failures one by one. */
#include "store/block/block_rig_test.h"

#include "base/crc32c.h"
#include "base/endian.h"

#define NAMES_MAX 1000u
#define VALUE_MAX 65536u

struct name {
	uint8_t bytes[LP_KEY_NAME_MAX];
	uint32_t len;
};

static struct name names[NAMES_MAX]; /* in order, none twice */
static uint8_t value_bytes[VALUE_MAX];

static int compare_names(const void *a, const void *b)
{
	const struct name *x = a;
	const struct name *y = b;
	return lp_key_compare(x->bytes, x->len, y->bytes, y->len);
}

static void make_names(uint64_t seed)
{
	struct lp_prng prng;
	lp_prng_init(&prng, seed);
	for (uint32_t i = 0; i < NAMES_MAX; i++) {
		names[i].len = (uint32_t)lp_prng_between(&prng, 3, 40);
		for (uint32_t k = 0; k < names[i].len; k++)
			names[i].bytes[k] = (uint8_t)lp_prng_between(&prng, 'a', 'h');
		/* A number in it, so that none is there twice. */
		names[i].bytes[1] = (uint8_t)('0' + i / 64);
		names[i].bytes[2] = (uint8_t)('0' + i % 64);
	}
	qsort(names, NAMES_MAX, sizeof(names[0]), compare_names);
	for (uint32_t i = 0; i < VALUE_MAX; i++)
		value_bytes[i] = (uint8_t)lp_prng_u64(&prng);
}

/* How long the value of name i is: mostly short, some long, some empty. */
static uint32_t value_len(uint32_t i)
{
	if (i % 97 == 13)
		return VALUE_MAX - i;
	return i % 10 == 0 ? 0 : i % 50;
}

static struct lp_bytes name_of(uint32_t i)
{
	return (struct lp_bytes){names[i].bytes, names[i].len};
}

static void put_dirent(struct lpi_rig *rig, struct lp_ino dir, struct lp_bytes name,
		       const struct lp_dirent_value *value)
{
	uint8_t bytes[LP_DIRENT_VALUE_SIZE];
	struct lp_key key;
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, dir, name.data, name.len);
	lp_dirent_write(value, &key, bytes);
	lpi_rig_put_entry(rig, dir, &key, bytes);
}

static void put_named(struct lpi_rig *rig, enum lp_key_space space, struct lp_ino ino,
		      struct lp_bytes name, uint32_t len)
{
	const struct lp_commit_need need = {.batch_bytes = len + 1200};
	struct lp_key key;
	lp_key_of_name(&key, space, ino, name.data, name.len);
	while (!lp_commit_reserve(rig->block->commit, &need))
		lpi_rig_turn(rig);
	lp_commit_put(rig->block->commit, (struct lp_kv_bytes){key.bytes, key.len},
		      (struct lp_kv_bytes){value_bytes, len});
}

static struct lpi_rig_op get_op(enum lp_store_space space, uint64_t ino, struct lp_bytes name,
				struct lp_bytes buf)
{
	return (struct lpi_rig_op){.op = {.opcode = LP_STORE_GET,
					  .get = {.space = space,
						  .ino = {ino},
						  .name = name,
						  .buf = (void *)(uintptr_t)buf.data,
						  .buf_len = buf.len}}};
}

static struct lp_bytes text(const char *string)
{
	return (struct lp_bytes){string, (uint32_t)strlen(string)};
}

/* The reply has waited: all it could have seen is durable. */
static void assert_durable(const struct lpi_rig *rig)
{
	assert_true(lp_commit_durable_seq(rig->block->commit) >=
		    lp_commit_inserted_seq(rig->block->commit));
}

/* The same of a list: of entries, all of its directory's. */
static void assert_list_durable(const struct lpi_rig *rig, enum lp_store_space space, uint64_t ino)
{
	const struct lpi_node *fragment = lpi_node_peek(&rig->block->nodes, LPI_NODE_FRAGMENT, ino);
	if (space != LP_STORE_ENTRIES)
		assert_durable(rig);
	else
		assert_true(fragment == NULL || lpi_node_is_durable(fragment));
}

static int do_op(struct lpi_rig *rig, struct lpi_rig_op *op)
{
	int result = lpi_rig_do(rig, op);
	assert_int_equal(rig->block->running, 0);
	assert_int_equal(lp_claims_cnt(rig->block->claims), 0);
	return result;
}

/* --- One thing -------------------------------------------------------------------------------- */

static void test_table(void **state)
{
	char why[200] = "";
	(void)state;
	if (lp_sm_table_check(&lpi_query_table, why, sizeof(why)) < 0)
		print_error("%s\n", why);
	assert_string_equal(why, "");
}

static void test_stat(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	lpi_rig_init(&rig);
	struct lpi_inode *inode = lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	inode->rec.size_bytes = 77;
	inode->rec.uid = 3;
	inode->rec.mtime_ns = -5;
	inode->rec.flags = LP_INODE_FLAG_HAS_KEYS | LP_INODE_FLAG_IMMUTABLE;
	lpi_rig_inode(&rig, 6, LP_INODE_TYPE_FILE)->rec.flags = LP_INODE_FLAG_REMOVED;
	for (int round = 0; round < 3; round++) {
		struct lpi_rig_op op = {.op = {.opcode = LP_STORE_STAT, .stat = {.ino = {5}}}};
		assert_int_equal(do_op(&rig, &op), 0);
		assert_durable(&rig);
		assert_int_equal(op.op.stat.attrs.size_bytes, 77);
		assert_int_equal(op.op.stat.attrs.uid, 3);
		assert_true(op.op.stat.attrs.mtime_ns == -5);
		assert_int_equal(op.op.stat.attrs.flags, LP_INODE_FLAG_IMMUTABLE);
		op.op.stat.ino.nr = 6;
		assert_int_equal(do_op(&rig, &op), -ENOENT);
		op.op.stat.ino.nr = 7;
		assert_int_equal(do_op(&rig, &op), -ENOENT);
		if (round == 1)
			lpi_rig_reopen(&rig);
	}
	assert_int_equal(rig.block->stats.errors[LP_STORE_STAT], 2);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

static void test_lookup(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	const struct lp_ino dir = {3};
	const struct {
		const char *name;
		uint64_t ino;
		bool has_attrs;
	} cases[] = {
		{"here", 5, true}, {"no inode", 6, false}, {"there", UINT64_C(1) << 56, false}};
	lpi_rig_init(&rig);
	lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FIFO)->rec.uid = 9;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(cases); i++)
		put_dirent(&rig, dir, text(cases[i].name),
			   &(struct lp_dirent_value){.ino = cases[i].ino,
						     .type = LP_INODE_TYPE_FIFO,
						     .insertion = i + 1});
	/* From the overlay, from the index, from disk. */
	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
			struct lpi_rig_op op = {
				.op = {.opcode = LP_STORE_LOOKUP,
				       .lookup = {.dir = dir, .name = text(cases[i].name)}}};
			assert_int_equal(do_op(&rig, &op), 0);
			assert_durable(&rig);
			assert_int_equal(op.op.lookup.ino.nr, cases[i].ino);
			assert_int_equal(op.op.lookup.type, LP_INODE_TYPE_FIFO);
			assert_int_equal(op.op.lookup.insertion, i + 1);
			assert_int_equal(op.op.lookup.has_attrs, cases[i].has_attrs);
			assert_int_equal(op.op.lookup.attrs.uid, cases[i].has_attrs ? 9 : 0);
		}
		struct lpi_rig_op none = {.op = {.opcode = LP_STORE_LOOKUP,
						 .lookup = {.dir = dir, .name = text("none")}}};
		assert_int_equal(do_op(&rig, &none), -ENOENT);
		if (round == 1)
			lpi_rig_reopen(&rig);
	}
	/* A deletion that is in the overlay only. */
	struct lp_key key;
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, dir, "here", 4);
	lpi_rig_reserve(&rig);
	lp_commit_delete(rig.block->commit, (struct lp_kv_bytes){key.bytes, key.len});
	struct lpi_rig_op gone = {
		.op = {.opcode = LP_STORE_LOOKUP, .lookup = {.dir = dir, .name = text("here")}}};
	assert_int_equal(do_op(&rig, &gone), -ENOENT);
	assert_durable(&rig);
	/* A value of another entry. */
	uint8_t bytes[LP_DIRENT_VALUE_SIZE];
	struct lp_dirent_value value = {.ino = 5, .type = LP_INODE_TYPE_FILE, .insertion = 1};
	lp_dirent_write(&value, &key, bytes);
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, dir, "bad", 3);
	lpi_rig_put(&rig, &key, bytes, sizeof(bytes));
	gone.op.lookup.name = text("bad");
	assert_int_equal(do_op(&rig, &gone), -EBADMSG);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

static void expect_get(struct lpi_rig *rig, enum lp_store_space space, uint64_t ino,
		       struct lp_bytes name, const void *want, int64_t want_len)
{
	static uint8_t buf[VALUE_MAX];
	struct lpi_rig_op op = get_op(space, ino, name, (struct lp_bytes){buf, sizeof(buf)});
	int result = do_op(rig, &op);
	assert_durable(rig);
	if (want_len < 0) {
		assert_int_equal(result, want_len);
		return;
	}
	assert_int_equal(result, 0);
	assert_int_equal(op.op.get.value_len, want_len);
	assert_memory_equal(buf, want, (size_t)want_len);
	if (want_len == 0)
		return;
	op.op.get.buf_len = (uint32_t)want_len - 1;
	assert_int_equal(do_op(rig, &op), -ERANGE);
	assert_int_equal(op.op.get.value_len, want_len);
}

static void set_xattr(struct lpi_rig *rig, struct lpi_inode *inode, struct lp_bytes name,
		      uint32_t len)
{
	uint8_t list[LP_INODE_XATTRS_MAX];
	const struct lp_inode_bytes name_bytes = {name.data, name.len};
	const struct lp_inode_bytes value = {value_bytes, len};
	lpi_rig_reserve(rig);
	int list_len = lp_xattrs_set(inode->rec.xattrs, &name_bytes, &value, list);
	lp_test_ok(list_len);
	lp_test_ok(lpi_inode_make_room(inode, LPI_PART_XATTRS, LP_INODE_XATTRS_MAX));
	lpi_inode_set_part(inode, LPI_PART_XATTRS, list, (uint32_t)list_len);
	lpi_node_changed(&inode->node);
}

static void test_get(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lp_key key;
	make_names(1);
	lpi_rig_init(&rig);
	struct lpi_inode *inode = lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	inode->rec.flags = LP_INODE_FLAG_HAS_KEYS;
	set_xattr(&rig, inode, text("user.small"), 30);
	set_xattr(&rig, inode, text("user.empty"), 0);
	put_named(&rig, LP_KEY_SPACE_XATTR, (struct lp_ino){5}, text("user.large"), 5000);
	put_named(&rig, LP_KEY_SPACE_OMAP, (struct lp_ino){5}, text("key"), VALUE_MAX);
	put_named(&rig, LP_KEY_SPACE_OMAP, (struct lp_ino){5}, text("empty"), 0);
	lpi_rig_inode(&rig, 6, LP_INODE_TYPE_FILE); /* without keys */
	inode = lpi_rig_inode(&rig, 7, LP_INODE_TYPE_SYMLINK);
	lp_test_ok(lpi_inode_make_room(inode, LPI_PART_TARGET, 6));
	lpi_inode_set_part(inode, LPI_PART_TARGET, "target", 6);
	inode->rec.size_bytes = 6;
	inode->rec.content_crc = lp_crc32c(0, "target", 6);
	inode = lpi_rig_inode(&rig, 10, LP_INODE_TYPE_FILE);
	inode->rec.parent.nr = 1;
	lp_test_ok(lpi_inode_make_room(inode, LPI_PART_NAME, 8));
	lpi_inode_set_part(inode, LPI_PART_NAME, "its name", 8);
	/* Gone, though its keys are still there. */
	lpi_rig_inode(&rig, 8, LP_INODE_TYPE_FILE)->rec.flags =
		LP_INODE_FLAG_REMOVED | LP_INODE_FLAG_HAS_KEYS;
	put_named(&rig, LP_KEY_SPACE_OMAP, (struct lp_ino){8}, text("key"), 10);
	lp_key_of_store(&key, "name");
	lpi_rig_put(&rig, &key, "record", 6);
	const struct lp_bytes record = {key.bytes, (uint32_t)key.len};
	for (int round = 0; round < 3; round++) {
		expect_get(&rig, LP_STORE_XATTRS, 5, text("user.small"), value_bytes, 30);
		expect_get(&rig, LP_STORE_XATTRS, 5, text("user.empty"), value_bytes, 0);
		expect_get(&rig, LP_STORE_XATTRS, 5, text("user.large"), value_bytes, 5000);
		expect_get(&rig, LP_STORE_XATTRS, 5, text("user.none"), NULL, -ENODATA);
		expect_get(&rig, LP_STORE_XATTRS, 6, text("user.small"), NULL, -ENODATA);
		expect_get(&rig, LP_STORE_XATTRS, 9, text("user.small"), NULL, -ENOENT);
		expect_get(&rig, LP_STORE_OMAP, 5, text("key"), value_bytes, VALUE_MAX);
		expect_get(&rig, LP_STORE_OMAP, 5, text("empty"), value_bytes, 0);
		expect_get(&rig, LP_STORE_OMAP, 5, text("none"), NULL, -ENODATA);
		expect_get(&rig, LP_STORE_OMAP, 8, text("key"), NULL, -ENOENT);
		expect_get(&rig, LP_STORE_TARGET, 7, text(""), "target", 6);
		expect_get(&rig, LP_STORE_TARGET, 5, text(""), NULL, -EINVAL);
		expect_get(&rig, LP_STORE_NAME, 10, text(""), "its name", 8);
		expect_get(&rig, LP_STORE_RECORDS, 0, record, "record", 6);
		expect_get(&rig, LP_STORE_RECORDS, 0, text("Snone"), NULL, -ENOENT);
		if (round == 1)
			lpi_rig_reopen(&rig);
	}
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

static void test_dir(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_node *node = NULL;
	lpi_rig_init(&rig);
	lpi_rig_reserve(&rig);
	lp_test_ok(lpi_node_load(&rig.block->nodes, LPI_NODE_FRAGMENT, 5, (struct lp_kv_bytes){0},
				 &node));
	node->exists = true;
	lpi_fragment_of(node)->value = (struct lp_fragment_value){.entries_cnt = 3,
								  .name_bytes = 10,
								  .next_insertion = 9,
								  .mtime_ns = 4,
								  .ctime_ns = 5};
	lpi_node_changed(node);
	for (int round = 0; round < 3; round++) {
		struct lpi_rig_op op = {.op = {.opcode = LP_STORE_DIR, .dir = {.ino = {5}}}};
		assert_int_equal(do_op(&rig, &op), 0);
		assert_durable(&rig);
		assert_int_equal(op.op.dir.entries_cnt, 3);
		assert_int_equal(op.op.dir.name_bytes, 10);
		assert_int_equal(op.op.dir.next_insertion, 9);
		assert_int_equal(op.op.dir.mtime_ns, 4);
		assert_int_equal(op.op.dir.ctime_ns, 5);
		assert_false(op.op.dir.is_sealed);
		op.op.dir.ino.nr = 6;
		assert_int_equal(do_op(&rig, &op), 0);
		assert_int_equal(op.op.dir.entries_cnt, 0);
		if (round == 1)
			lpi_rig_reopen(&rig);
	}
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

/* --- Lists ------------------------------------------------------------------------------------ */

struct page {
	struct lp_bytes after;
	struct lp_bytes from;
	struct lp_bytes prefix;
	uint32_t items_max;
	uint32_t buf_len;
};

static struct lpi_rig_op list_op(enum lp_store_space space, uint64_t ino, const struct page *page)
{
	static uint8_t buf[1 << 20];
	return (struct lpi_rig_op){
		.op = {.opcode = LP_STORE_LIST,
		       .list = {.space = space,
				.ino = {ino},
				.after = page->after,
				.from = page->from,
				.prefix = page->prefix,
				.buf = buf,
				.buf_len = page->buf_len != 0 ? page->buf_len : sizeof(buf),
				.items_max = page->items_max,
				.with_values = true}}};
}

static bool is_in_page(const struct page *page, uint32_t i)
{
	const struct name *name = &names[i];
	if (page->after.data != NULL &&
	    lp_key_compare(name->bytes, name->len, page->after.data, page->after.len) <= 0)
		return false;
	if (page->from.data != NULL &&
	    lp_key_compare(name->bytes, name->len, page->from.data, page->from.len) < 0)
		return false;
	return name->len >= page->prefix.len &&
	       (page->prefix.len == 0 ||
		memcmp(name->bytes, page->prefix.data, page->prefix.len) == 0);
}

static void check_item(enum lp_store_space space, const struct lp_list_item *item, uint32_t i)
{
	assert_int_equal(item->name.len, names[i].len);
	assert_memory_equal(item->name.data, names[i].bytes, names[i].len);
	if (space == LP_STORE_ENTRIES) {
		assert_int_equal(item->ino.nr, 100 + i);
		assert_int_equal(item->insertion, 1 + i);
		assert_int_equal(item->type, LP_INODE_TYPE_FILE);
		return;
	}
	assert_non_null(item->value.data);
	assert_int_equal(item->value.len, value_len(i));
	assert_memory_equal(item->value.data, value_bytes, value_len(i));
}

/* Pages through all that the first page's bounds allow, of names 0 to cnt; returns how many pages
 * it took. */
static uint32_t list_all(struct lpi_rig *rig, enum lp_store_space space, struct page page,
			 uint32_t cnt)
{
	const struct page all = page;
	struct name last = {.len = 0};
	uint32_t pages = 0;
	uint32_t i = 0;
	bool more = true;
	while (more) {
		struct lpi_rig_op op = list_op(space, 5, &page);
		struct lp_list_item item;
		uint32_t pos = 0;
		uint32_t items = 0;
		assert_int_equal(do_op(rig, &op), 0);
		assert_list_durable(rig, space, 5);
		while (lp_store_list_next(&op.op, &pos, &item)) {
			while (i < cnt && !is_in_page(&all, i))
				i++;
			assert_true(i < cnt);
			check_item(space, &item, i);
			last = names[i];
			i++;
			items++;
		}
		assert_int_equal(op.op.list.items, items);
		assert_true(page.items_max == 0 || items <= page.items_max);
		more = op.op.list.more;
		assert_true(!more || items > 0);
		page.from = (struct lp_bytes){NULL, 0};
		page.after = (struct lp_bytes){last.bytes, last.len};
		pages++;
	}
	while (i < cnt && !is_in_page(&all, i))
		i++;
	assert_int_equal(i, cnt);
	return pages;
}

static void list_in_all_ways(struct lpi_rig *rig, enum lp_store_space space, uint32_t cnt)
{
	const struct page whole = {.items_max = 0};
	(void)list_all(rig, space, whole, cnt);
	assert_int_equal(list_all(rig, space, (struct page){.items_max = cnt}, cnt), 1);
	assert_int_equal(list_all(rig, space, (struct page){.items_max = cnt - 1}, cnt), 2);
	(void)list_all(rig, space, (struct page){.buf_len = 70000, .items_max = 7}, cnt);
	for (uint32_t i = 0; i < cnt; i += 1 + cnt / 7) {
		struct lp_bytes name = name_of(i);
		(void)list_all(rig, space, (struct page){.after = name}, cnt);
		(void)list_all(rig, space, (struct page){.from = name}, cnt);
		for (uint32_t len = 1; len <= 3; len++) {
			const struct lp_bytes prefix = {names[i].bytes, len};
			(void)list_all(rig, space, (struct page){.prefix = prefix}, cnt);
			(void)list_all(rig, space, (struct page){.prefix = prefix, .after = name},
				       cnt);
			(void)list_all(rig, space, (struct page){.prefix = prefix, .from = name},
				       cnt);
		}
	}
	/* Bounds that are no names, and longer than any. */
	static uint8_t high[2000];
	static const uint8_t low[2000];
	memset(high, 0xff, sizeof(high));
	(void)list_all(rig, space, (struct page){.after = {high, sizeof(high)}}, cnt);
	(void)list_all(rig, space, (struct page){.from = {high, 3}}, cnt);
	(void)list_all(rig, space, (struct page){.after = {low, 0}}, cnt);
	(void)list_all(rig, space, (struct page){.from = {low, sizeof(low)}}, cnt);
	(void)list_all(rig, space, (struct page){.prefix = {high, sizeof(high)}}, cnt);
	(void)list_all(rig, space, (struct page){.prefix = {high, 5}}, cnt);
}

static void test_list_entries(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	make_names(2);
	lpi_rig_init(&rig);
	for (uint32_t i = 0; i < NAMES_MAX; i++)
		put_dirent(&rig, (struct lp_ino){5}, name_of(i),
			   &(struct lp_dirent_value){
				   .ino = 100 + i, .type = LP_INODE_TYPE_FILE, .insertion = 1 + i});
	/* Those of other directories are not of this one. */
	put_dirent(&rig, (struct lp_ino){4}, name_of(0),
		   &(struct lp_dirent_value){.ino = 1, .type = 1, .insertion = 1});
	put_dirent(&rig, (struct lp_ino){6}, name_of(0),
		   &(struct lp_dirent_value){.ino = 1, .type = 1, .insertion = 1});
	list_in_all_ways(&rig, LP_STORE_ENTRIES, NAMES_MAX);
	assert_int_equal(rig.block->stats.index_waits, 0);
	lpi_rig_reopen(&rig);
	list_in_all_ways(&rig, LP_STORE_ENTRIES, NAMES_MAX);
	assert_true(rig.block->stats.index_waits > 0);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

static void test_list_omap(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	make_names(3);
	lpi_rig_init(&rig);
	struct lpi_inode *inode = lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	inode->rec.flags = LP_INODE_FLAG_HAS_KEYS;
	lpi_rig_inode(&rig, 6, LP_INODE_TYPE_FILE);
	for (uint32_t i = 0; i < 300; i++)
		put_named(&rig, LP_KEY_SPACE_OMAP, inode->rec.ino, name_of(i), value_len(i));
	for (int round = 0; round < 2; round++) {
		const struct page page = {.items_max = 0};
		list_in_all_ways(&rig, LP_STORE_OMAP, 300);
		struct lpi_rig_op op = list_op(LP_STORE_OMAP, 6, &page);
		assert_int_equal(do_op(&rig, &op), 0);
		assert_int_equal(op.op.list.items, 0);
		op = list_op(LP_STORE_OMAP, 7, &page);
		assert_int_equal(do_op(&rig, &op), -ENOENT);
		/* A value that does not fit. */
		op = list_op(LP_STORE_OMAP, 5,
			     &(struct page){.from = name_of(13), .buf_len = 60000});
		assert_int_equal(do_op(&rig, &op), -ERANGE);
		/* Without values it does. */
		op.op.list.with_values = false;
		assert_int_equal(do_op(&rig, &op), 0);
		assert_int_equal(op.op.list.items, 287);
		lpi_rig_reopen(&rig);
	}
	/* A cache that keeps nothing: the iterator stops in the middle. */
	lp_kv_set_cache_bytes(rig.block->kv, 4096);
	list_in_all_ways(&rig, LP_STORE_OMAP, 300);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

/* Some in the inode, some under keys, in turns. */
static void test_list_xattrs(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	make_names(4);
	lpi_rig_init(&rig);
	struct lpi_inode *inode = lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	inode->rec.flags = LP_INODE_FLAG_HAS_KEYS;
	for (uint32_t i = 0; i < 40; i++) {
		if (i % 3 == 0 || i > 35)
			set_xattr(&rig, inode, name_of(i), value_len(i));
		else
			put_named(&rig, LP_KEY_SPACE_XATTR, inode->rec.ino, name_of(i),
				  value_len(i));
	}
	/* One that is in both places: the inode's own counts. */
	put_named(&rig, LP_KEY_SPACE_XATTR, inode->rec.ino, name_of(3), 1);
	for (int round = 0; round < 2; round++) {
		list_in_all_ways(&rig, LP_STORE_XATTRS, 40);
		struct lpi_rig_op op = list_op(LP_STORE_XATTRS, 7, &(struct page){.items_max = 0});
		assert_int_equal(do_op(&rig, &op), -ENOENT);
		lpi_rig_reopen(&rig);
	}
	/* None under keys. */
	inode = lpi_rig_inode(&rig, 9, LP_INODE_TYPE_FILE);
	set_xattr(&rig, inode, text("a"), 1);
	set_xattr(&rig, inode, text("b"), 1);
	struct lpi_rig_op op = list_op(LP_STORE_XATTRS, 9, &(struct page){.after = text("a")});
	assert_int_equal(do_op(&rig, &op), 0);
	assert_int_equal(op.op.list.items, 1);
	assert_durable(&rig);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

static void test_list_records_and_inodes(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lp_key key;
	lpi_rig_init(&rig);
	for (uint64_t i = 0; i < 20; i++) {
		lp_key_of_store_number(&key, "series", i);
		lpi_rig_put(&rig, &key, &i, sizeof(i));
		lpi_rig_inode(&rig, 1000 + i, LP_INODE_TYPE_FILE)->rec.flags =
			i % 4 == 0 ? LP_INODE_FLAG_REMOVED : 0;
	}
	lp_key_of_store_number(&key, "series", 4);
	for (int round = 0; round < 2; round++) {
		struct lp_list_item item;
		uint32_t pos = 0;
		struct lpi_rig_op op =
			list_op(LP_STORE_RECORDS, 0,
				&(struct page){.prefix = {key.bytes, 8}, .items_max = 5});
		op.op.list.prefix = text("Sseries");
		op.op.list.after = (struct lp_bytes){key.bytes, (uint32_t)key.len};
		assert_int_equal(do_op(&rig, &op), 0);
		assert_int_equal(op.op.list.items, 5);
		assert_true(op.op.list.more);
		for (uint64_t i = 5; lp_store_list_next(&op.op, &pos, &item); i++) {
			struct lp_key want;
			lp_key_of_store_number(&want, "series", i);
			assert_int_equal(item.name.len, want.len);
			assert_memory_equal(item.name.data, want.bytes, want.len);
			assert_memory_equal(item.value.data, &i, sizeof(i));
		}
		op = list_op(LP_STORE_INODES, 0, &(struct page){.items_max = 0});
		assert_int_equal(do_op(&rig, &op), 0);
		assert_int_equal(op.op.list.items, 15);
		pos = 0;
		uint64_t nr = 1001;
		for (; lp_store_list_next(&op.op, &pos, &item); nr += nr % 4 == 3 ? 2 : 1) {
			assert_int_equal(item.name.len, 8);
			assert_int_equal(lp_get_be64(item.name.data), nr);
		}
		assert_int_equal(nr, 1021);
		lpi_rig_reopen(&rig);
	}
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

static void test_list_damage(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lp_key key;
	lpi_rig_init(&rig);
	for (uint64_t i = 0; i < 3; i++)
		put_dirent(&rig, (struct lp_ino){5}, (struct lp_bytes){&"abc"[i], 1},
			   &(struct lp_dirent_value){.ino = 9, .type = 1, .insertion = 1});
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, (struct lp_ino){5}, "bb", 2);
	lpi_rig_put_entry(&rig, (struct lp_ino){5}, &key, "0123456789012345678901234567");
	for (int round = 0; round < 2; round++) {
		struct lpi_rig_op op = list_op(LP_STORE_ENTRIES, 5, &(struct page){.items_max = 0});
		assert_int_equal(do_op(&rig, &op), -EBADMSG);
		op = list_op(LP_STORE_ENTRIES, 5, &(struct page){.after = text("bb")});
		assert_int_equal(do_op(&rig, &op), 0);
		assert_int_equal(op.op.list.items, 1);
		lpi_rig_reopen(&rig);
	}
	/* An inode's record, and a key that no name of ours has. */
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, (struct lp_ino){77});
	lpi_rig_put(&rig, &key, "x", 1);
	struct lpi_rig_op op = list_op(LP_STORE_INODES, 0, &(struct page){.items_max = 0});
	assert_true(do_op(&rig, &op) == -EUCLEAN || op.op.result == -EBADMSG);
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, (struct lp_ino){6}, "bb", 2);
	key.bytes[key.len - 1] = '/';
	lpi_rig_put_entry(&rig, (struct lp_ino){6}, &key, "0123456789012345678901234567");
	op = list_op(LP_STORE_ENTRIES, 6, &(struct page){.items_max = 0});
	assert_int_equal(do_op(&rig, &op), -EUCLEAN);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

/* --- Waiting ---------------------------------------------------------------------------------- */

static void turn_some(struct lpi_rig *rig, int turns)
{
	for (int i = 0; i < turns; i++)
		lpi_rig_turn(rig);
}

static void granted(struct lp_claim_set *set)
{
	(void)set;
}

/* What is asked about an inode waits for who came before; a name does not. */
static void test_claim(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lp_claim_set set = {.granted = granted};
	lpi_rig_init(&rig);
	struct lpi_inode *inode = lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	put_dirent(&rig, (struct lp_ino){3}, text("name"),
		   &(struct lp_dirent_value){.ino = 5, .type = 1, .insertion = 1});
	assert_true(lp_claim_set_add(&set, lpi_claim_of_ino((struct lp_ino){5})));
	assert_true(lp_claims_acquire(rig.block->claims, &set));
	struct lpi_rig_op stat = {.op = {.opcode = LP_STORE_STAT, .stat = {.ino = {5}}}};
	struct lpi_rig_op lookup = {
		.op = {.opcode = LP_STORE_LOOKUP, .lookup = {.dir = {3}, .name = text("name")}}};
	lpi_rig_submit(&rig, &stat);
	assert_int_equal(lpi_rig_do(&rig, &lookup), 0);
	assert_true(lookup.op.lookup.has_attrs);
	turn_some(&rig, 20);
	assert_int_equal(stat.order, 0);
	lpi_rig_reserve(&rig);
	inode->rec.uid = 12;
	lpi_node_changed(&inode->node);
	lp_claims_release(rig.block->claims, &set);
	assert_int_equal(lpi_rig_wait(&rig, &stat), 0);
	assert_int_equal(stat.op.stat.attrs.uid, 12);
	assert_durable(&rig);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

/* Each kind of question, about something that is not durable yet. */
static uint32_t ask_everything(struct lpi_rig_op ops[9])
{
	static uint8_t buf[100];
	const struct lp_bytes space = {buf, sizeof(buf)};
	uint32_t cnt = 0;
	ops[cnt++] = (struct lpi_rig_op){.op = {.opcode = LP_STORE_STAT, .stat = {.ino = {5}}}};
	ops[cnt++] = (struct lpi_rig_op){
		.op = {.opcode = LP_STORE_LOOKUP, .lookup = {.dir = {3}, .name = text("name")}}};
	ops[cnt++] = get_op(LP_STORE_OMAP, 5, text("key"), space);
	ops[cnt++] = get_op(LP_STORE_RECORDS, 0, text("Snone"), space);
	ops[cnt++] = list_op(LP_STORE_ENTRIES, 3, &(struct page){.items_max = 9});
	ops[cnt++] = (struct lpi_rig_op){
		.op = {.opcode = LP_STORE_SEEK, .seek = {.ino = {5}, .hole = true}}};
	ops[cnt++] = (struct lpi_rig_op){.op = {.opcode = LP_STORE_SYNC}};
	return cnt;
}

/* Who says that it may be taken back does not wait. */
static void check_sees_ordered(struct lpi_rig *rig, uint64_t group)
{
	struct lpi_rig_op ops[] = {
		{.op = {.opcode = LP_STORE_STAT, .sees_ordered = true, .stat = {.ino = {5}}}},
		{.op = {.opcode = LP_STORE_LOOKUP,
			.sees_ordered = true,
			.lookup = {.dir = {3}, .name = text("name")}}}};
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(ops); i++)
		lpi_rig_submit(rig, &ops[i]);
	for (int i = 0; i < 20; i++)
		(void)lp_reactor_turn(rig->reactor, false);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(ops); i++) {
		assert_true(ops[i].order != 0);
		assert_int_equal(ops[i].op.result, 0);
		assert_true(ops[i].op.saw_ordered);
	}
	assert_false(lp_commit_group_is_durable(rig->block->commit, group));
}

static void test_waits_until_durable(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_op ops[9];
	lpi_rig_init(&rig);
	lpi_rig_settle(&rig);
	const struct lp_sim_rule slow = {.fault = LP_SIM_SLOW,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					 .arg = 50 * LP_NS_PER_MS};
	lp_sim_rule_add(lp_sim_of(rig.bdev), &slow);
	struct lpi_inode *inode = lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	inode->rec.size_bytes = 10;
	inode->rec.flags = LP_INODE_FLAG_HAS_KEYS;
	const struct lp_dirent_value name = {.ino = 5, .type = 1, .insertion = 1};
	put_dirent(&rig, (struct lp_ino){3}, text("name"), &name);
	put_named(&rig, LP_KEY_SPACE_OMAP, (struct lp_ino){5}, text("key"), 20);
	/* In the overlay; then in the index, where they are before they are durable. */
	for (int round = 0; round < 2; round++) {
		uint64_t group = inode->node.group;
		uint32_t cnt = ask_everything(ops);
		assert_false(lp_commit_group_is_durable(rig.block->commit, group));
		for (uint32_t i = 0; i < cnt; i++)
			lpi_rig_submit(&rig, &ops[i]);
		for (int i = 0; i < 20; i++)
			(void)lp_reactor_turn(rig.reactor, false);
		check_sees_ordered(&rig, group);
		/* But for the record, which nobody has put. */
		for (uint32_t i = 0; i < cnt; i++)
			assert_true((ops[i].order != 0) == (i == 3));
		for (uint32_t i = 0; i < cnt; i++) {
			int want = ops[i].op.opcode == LP_STORE_GET &&
						   ops[i].op.get.space == LP_STORE_RECORDS
					   ? -ENOENT
					   : 0;
			assert_int_equal(lpi_rig_wait(&rig, &ops[i]), want);
			assert_true(lp_commit_group_is_durable(rig.block->commit, group));
		}
		assert_int_equal(ops[4].op.list.items, 1); /* rule W1 */
		lpi_rig_reserve(&rig);
		inode->rec.uid++;
		lpi_node_changed(&inode->node);
		put_dirent(&rig, (struct lp_ino){3}, text("name"), &name);
		assert_int_equal(lp_commit_group(rig.block->commit), inode->node.group);
		for (int i = 0; i < 20 && round == 0; i++)
			(void)lp_reactor_turn(rig.reactor, false);
		assert_true(round == 1 ||
			    lp_commit_group_is_inserted(rig.block->commit, inode->node.group));
	}
	/* All is durable: nothing is waited for. */
	lpi_rig_settle(&rig);
	uint64_t before_ns = rig.clock.now_ns;
	uint32_t cnt = ask_everything(ops);
	for (uint32_t i = 0; i < cnt; i++)
		(void)lpi_rig_do(&rig, &ops[i]);
	assert_true(rig.clock.now_ns - before_ns < 10 * LP_NS_PER_MS);
	struct lpi_rig_op stat = {
		.op = {.opcode = LP_STORE_STAT, .sees_ordered = true, .stat = {.ino = {5}}}};
	lp_test_ok(lpi_rig_do(&rig, &stat));
	assert_false(stat.op.saw_ordered);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

/* Time does not pass. */
static void poll_some(struct lpi_rig *rig, int turns)
{
	for (int i = 0; i < turns; i++)
		(void)lp_reactor_turn(rig->reactor, false);
}

/* The inode has been changed: that is soon in the index, and not durable for long. */
static uint64_t hold_a_group(struct lpi_rig *rig, const struct lpi_inode *inode)
{
	const struct lp_sim_rule slow = {.fault = LP_SIM_SLOW,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					 .arg = 50 * LP_NS_PER_MS};
	lp_sim_rule_add(lp_sim_of(rig->bdev), &slow);
	uint64_t group = inode->node.group;
	poll_some(rig, 20);
	assert_true(lp_commit_group_is_inserted(rig->block->commit, group));
	assert_false(lp_commit_group_is_durable(rig->block->commit, group));
	return group;
}

/* What has left memory is read from the index as if it had always been there: so it may not leave
 * before it is durable (P3). */
static void test_memory_is_short(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	lpi_rig_init(&rig);
	lpi_rig_settle(&rig);
	uint64_t group = hold_a_group(&rig, lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE));
	struct lpi_nodes *nodes = &rig.block->nodes;
	uint64_t limit = nodes->limit_bytes;
	nodes->limit_bytes = 1;
	for (int i = 0; i < 10; i++)
		lpi_nodes_shrink(nodes);
	struct lpi_rig_op stat = {.op = {.opcode = LP_STORE_STAT, .stat = {.ino = {5}}}};
	lpi_rig_submit(&rig, &stat);
	poll_some(&rig, 20);
	assert_int_equal(stat.order, 0);
	assert_int_equal(lpi_rig_wait(&rig, &stat), 0);
	assert_true(lp_commit_group_is_durable(rig.block->commit, group));
	for (int i = 0; i < 10; i++)
		lpi_nodes_shrink(nodes);
	assert_null(lpi_node_peek(nodes, LPI_NODE_INODE, 5));
	nodes->limit_bytes = limit;
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

/* One thing, or one directory, in memory or not, is answered at once whatever else is on its way to
 * the device. */
static void test_waits_for_no_other(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_op ops[9];
	lpi_rig_init(&rig);
	struct lpi_inode *inode = lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	inode->rec.flags = LP_INODE_FLAG_HAS_KEYS;
	put_dirent(&rig, (struct lp_ino){3}, text("name"),
		   &(struct lp_dirent_value){.ino = 5, .type = 1, .insertion = 1});
	put_named(&rig, LP_KEY_SPACE_OMAP, (struct lp_ino){5}, text("key"), 20);
	for (int is_cold = 0; is_cold < 2; is_cold++) {
		lpi_rig_settle(&rig);
		if (is_cold)
			lpi_rig_reopen(&rig);
		uint64_t group = hold_a_group(
			&rig, lpi_rig_inode(&rig, is_cold ? 7 : 6, LP_INODE_TYPE_FILE));
		uint32_t cnt = ask_everything(ops);
		for (uint32_t i = 0; i < cnt; i++)
			lpi_rig_submit(&rig, &ops[i]);
		/* What is not in memory takes reads of the device. */
		for (uint32_t i = 0; is_cold && i < cnt; i++)
			while (ops[i].order == 0 && ops[i].op.opcode != LP_STORE_SYNC)
				lpi_rig_turn(&rig);
		poll_some(&rig, 50);
		for (uint32_t i = 0; i < cnt; i++) {
			unsigned opcode = ops[i].op.opcode;
			assert_int_equal(ops[i].order == 0, opcode == LP_STORE_SYNC);
		}
		assert_false(lp_commit_group_is_durable(rig.block->commit, group));
		for (uint32_t i = 0; i < cnt; i++)
			(void)lpi_rig_wait(&rig, &ops[i]);
		lp_sim_rules_clear(lp_sim_of(rig.bdev));
	}
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

static void test_failed_commit(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_op ops[9];
	lpi_rig_init(&rig);
	lpi_rig_settle(&rig);
	const struct lp_sim_rule eio = {.fault = LP_SIM_EIO,
					.opcode_mask = LP_SIM_OP(LP_BDEV_WRITE_THROUGH)};
	lp_sim_rule_add(lp_sim_of(rig.bdev), &eio);
	lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE)->rec.size_bytes = 10;
	put_dirent(&rig, (struct lp_ino){3}, text("name"),
		   &(struct lp_dirent_value){.ino = 5, .type = 1, .insertion = 1});
	uint32_t cnt = ask_everything(ops);
	for (uint32_t i = 0; i < cnt; i++)
		lpi_rig_submit(&rig, &ops[i]);
	/* Nothing that is not durable is seen: they wait until the store was opened again. */
	for (uint32_t i = 0; i < cnt; i++) {
		int result = lpi_rig_wait(&rig, &ops[i]);
		if (ops[i].op.opcode == LP_STORE_SYNC)
			assert_int_equal(result, -EIO);
		else if (ops[i].op.opcode == LP_STORE_LIST)
			assert_true(result == 0 && ops[i].op.list.items == 0);
		else
			assert_int_equal(result, -ENOENT);
	}
	assert_int_equal(rig.block->running, 0);
	lpi_rig_close(&rig, true);
	lpi_rig_fini(&rig);
}

static void complete_slowly(struct lp_store_op *op)
{
	struct lpi_rig_op *own = LP_CONTAINER_OF(op, struct lpi_rig_op, op);
	lpi_rig_completed(op);
	lp_clock_sim_advance_to(&own->rig->clock, own->rig->clock.now_ns + LP_REACTOR_LONG_NS / 2);
}

/* Where those that are told take their time, the others are told in later turns, in order, and
 * before those that end meanwhile. */
static void test_told_in_turns(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_op ops[9];
	lpi_rig_init(&rig);
	lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	lpi_rig_settle(&rig);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(ops); i++) {
		ops[i] = (struct lpi_rig_op){.op = {.opcode = LP_STORE_STAT, .stat = {.ino = {5}}}};
		lpi_rig_submit(&rig, &ops[i]);
		ops[i].op.complete = complete_slowly;
		uint32_t before = rig.completed;
		if (i < 5)
			continue;
		lpi_rig_turn(&rig);
		assert_int_equal(rig.completed, before + 2);
	}
	while (rig.completed < LP_ARRAY_SIZE(ops)) {
		uint32_t before = rig.completed;
		lpi_rig_turn(&rig);
		assert_true(rig.completed > before && rig.completed <= before + 2);
	}
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(ops); i++)
		assert_int_equal(ops[i].order, i + 1);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

static void test_slots(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 2};
	struct lpi_rig_op ops[40];
	lpi_rig_init(&rig);
	lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(ops); i++) {
		ops[i] = (struct lpi_rig_op){
			.op = {.opcode = LP_STORE_STAT, .stat = {.ino = {i % 3 == 0 ? 6 : 5}}}};
		lpi_rig_submit(&rig, &ops[i]);
	}
	assert_int_equal(rig.block->running, 2);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(ops); i++)
		assert_int_equal(lpi_rig_wait(&rig, &ops[i]), i % 3 == 0 ? -ENOENT : 0);
	assert_int_equal(rig.block->running, 0);
	assert_int_equal(lp_pool_free_cnt(rig.block->queries), 2);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_stat),
		cmocka_unit_test(test_lookup),
		cmocka_unit_test(test_get),
		cmocka_unit_test(test_dir),
		cmocka_unit_test(test_list_entries),
		cmocka_unit_test(test_list_omap),
		cmocka_unit_test(test_list_xattrs),
		cmocka_unit_test(test_list_records_and_inodes),
		cmocka_unit_test(test_list_damage),
		cmocka_unit_test(test_claim),
		cmocka_unit_test(test_waits_until_durable),
		cmocka_unit_test(test_memory_is_short),
		cmocka_unit_test(test_waits_for_no_other),
		cmocka_unit_test(test_failed_commit),
		cmocka_unit_test(test_told_in_turns),
		cmocka_unit_test(test_slots),
	};
	return lp_test_main(tests, "store/block/read/query");
}
