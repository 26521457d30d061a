/* SPDX-License-Identifier: Apache-2.0 */
/* Names, keys and sessions through a socket. */
#include "native/door_test.h"

#define BUFS (UINT64_C(64) << 20)

static int do_ref(struct lpi_client *client, uint16_t opcode, uint64_t ino, const char *path)
{
	lpi_client_put_ref(client, ino, path);
	return lpi_client_do(client, opcode, NULL, 0, 0);
}

static int do_two(struct lpi_client *client, uint16_t opcode, const char *from, const char *to,
		  uint32_t condition)
{
	struct lp_wire_two two = {.condition = condition};
	LPI_CLIENT_REF(two.ref, 0, from);
	LPI_CLIENT_REF(two.to, 0, to);
	lp_wire_put_part(&client->meta, lp_wire_two, &two);
	lpi_client_put_text(client, from);
	lpi_client_put_text(client, to);
	return lpi_client_do(client, opcode, NULL, 0, 0);
}

static int do_remove(struct lpi_client *client, uint64_t ino, const char *path, uint32_t is_dir)
{
	struct lp_wire_remove remove = {.is_dir = is_dir};
	LPI_CLIENT_REF(remove.ref, ino, path);
	lp_wire_put_part(&client->meta, lp_wire_remove, &remove);
	lpi_client_put_text(client, path);
	return lpi_client_do(client, LP_WIRE_OP_REMOVE, NULL, 0, 0);
}

static int do_delete(struct lpi_client *client, const char *path)
{
	struct lp_wire_delete delete = {.condition = 0};
	LPI_CLIENT_REF(delete.ref, 0, path);
	lp_wire_put_part(&client->meta, lp_wire_delete, &delete);
	lpi_client_put_text(client, path);
	return lpi_client_do(client, LP_WIRE_OP_DELETE, NULL, 0, 0);
}

static void names_lead_to_inodes(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(3, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	struct lp_wire_attrs attrs;
	(void)state;
	uint64_t dir = lpi_client_make(client, "dir", LP_INODE_TYPE_DIR);
	uint64_t file = lpi_client_make(client, "dir/file", LP_INODE_TYPE_FILE);
	/* By path, by directory and name, by number; the root. */
	lp_test_ok(do_ref(client, LP_WIRE_OP_STAT, 0, "dir/file"));
	attrs = lpi_client_attrs(client);
	assert_int_equal(attrs.ino, file);
	assert_int_equal(attrs.type, LP_INODE_TYPE_FILE);
	assert_int_equal(attrs.mode, 0755);
	lp_test_ok(do_ref(client, LP_WIRE_OP_STAT, dir, "file"));
	assert_int_equal(lpi_client_attrs(client).ino, file);
	lp_test_ok(do_ref(client, LP_WIRE_OP_STAT, file, ""));
	assert_int_equal(client->reply.shard, file >> 56);
	assert_int_equal(lpi_client_attrs(client).nlink, 1);
	lp_test_ok(do_ref(client, LP_WIRE_OP_STAT, 0, ""));
	attrs = lpi_client_attrs(client);
	assert_int_equal(attrs.ino, LP_INO_ROOT.nr);
	assert_int_equal(attrs.entries_cnt, 1);
	/* What cannot be (rule N6). */
	lp_test_err(-ENOENT, do_ref(client, LP_WIRE_OP_STAT, 0, "dir/no"));
	lp_test_err(-ENOTDIR, do_ref(client, LP_WIRE_OP_STAT, 0, "dir/file/x"));
	lp_test_err(-EINVAL, do_ref(client, LP_WIRE_OP_STAT, 0, "dir//file"));
	lp_test_err(-EINVAL, do_ref(client, LP_WIRE_OP_STAT, 0, "/dir"));
	lp_test_err(-EINVAL, do_ref(client, LP_WIRE_OP_STAT, dir, "a/b"));
	lp_test_err(-ESTALE, do_ref(client, LP_WIRE_OP_STAT, 7777777, ""));
	/* Links and renames. */
	lp_test_ok(do_two(client, LP_WIRE_OP_LINK, "dir/file", "second", 0));
	assert_int_equal(lpi_client_attrs(client).nlink, 2);
	lp_test_err(-EEXIST, do_two(client, LP_WIRE_OP_RENAME, "second", "dir/file",
				    LP_WIRE_RENAME_NOREPLACE));
	lp_test_ok(do_two(client, LP_WIRE_OP_RENAME, "second", "dir/third", 0));
	lp_test_err(-EINVAL, do_two(client, LP_WIRE_OP_RENAME, "second", "dir/third", 4));
	lp_test_err(-ENOTEMPTY, do_remove(client, 0, "dir", 1));
	lp_test_err(-EISDIR, do_remove(client, 0, "dir", 0));
	lp_test_ok(do_remove(client, dir, "third", 0));
	lp_test_ok(do_remove(client, 0, "dir/file", 0));
	lp_test_ok(do_remove(client, 0, "dir", 1));
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_SYNC, NULL, 0, 0));
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

/* What they are, and that they hold. */
static void set_flags(struct lpi_client *client, struct lp_wire_set *set)
{
	static const uint32_t flags[] = {LP_WIRE_ATTR_FLAG_IMMUTABLE, LP_WIRE_ATTR_FLAG_APPEND, 0};
	struct lp_wire_attrs attrs = {.flags = 0};
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(flags); i++) {
		attrs.flags = flags[i];
		set->mask = LP_WIRE_SET_FLAGS;
		lp_wire_attrs_encode(&attrs, set->attrs);
		lp_wire_put_part(&client->meta, lp_wire_set, set);
		lp_test_ok(lpi_client_do(client, LP_WIRE_OP_SET, NULL, 0, 0));
		assert_int_equal(lpi_client_attrs(client).flags, flags[i]);
		set->mask = LP_WIRE_SET_MODE;
		attrs.mode = 0600;
		lp_wire_attrs_encode(&attrs, set->attrs);
		lp_wire_put_part(&client->meta, lp_wire_set, set);
		int r = lpi_client_do(client, LP_WIRE_OP_SET, NULL, 0, 0);
		assert_int_equal(r, flags[i] != 0 ? -EPERM : 0);
		assert_true(r == 0 || lpi_client_says(client, "immutable"));
	}
	attrs.flags = 0x400;
	set->mask = LP_WIRE_SET_FLAGS;
	lp_wire_attrs_encode(&attrs, set->attrs);
	lp_wire_put_part(&client->meta, lp_wire_set, set);
	lp_test_err(-EINVAL, lpi_client_do(client, LP_WIRE_OP_SET, NULL, 0, 0));
}

static void attributes_are_set(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(2, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	struct lp_wire_set set = {.mask = LP_WIRE_SET_MODE | LP_WIRE_SET_UID | LP_WIRE_SET_MTIME |
					  LP_WIRE_SET_ATIME_NOW};
	struct lp_wire_attrs attrs = {.mode = 0600, .uid = 12, .mtime_ns = 5};
	(void)state;
	uint64_t ino = lpi_client_make(client, "file", LP_INODE_TYPE_FILE);
	lp_wire_attrs_encode(&attrs, set.attrs);
	LPI_CLIENT_REF(set.ref, ino, "");
	lp_wire_put_part(&client->meta, lp_wire_set, &set);
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_SET, NULL, 0, 0));
	attrs = lpi_client_attrs(client);
	assert_int_equal(attrs.mode, 0600);
	assert_int_equal(attrs.uid, 12);
	assert_int_equal(attrs.mtime_ns, 5);
	assert_true(attrs.atime_ns > 5);
	set.mask = 8;
	lp_wire_put_part(&client->meta, lp_wire_set, &set);
	lp_test_err(-EINVAL, lpi_client_do(client, LP_WIRE_OP_SET, NULL, 0, 0));
	set_flags(client, &set);
	/* A symlink says where it leads. */
	struct lp_wire_make make = {
		.uid = 3, .gid = 3, .type = LP_INODE_TYPE_SYMLINK, .target_bytes = 6};
	struct lp_wire_value value = {.value_bytes = 0};
	LPI_CLIENT_REF(make.ref, 0, "link");
	lp_wire_put_part(&client->meta, lp_wire_make, &make);
	lpi_client_put_text(client, "linktarget");
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_MAKE, NULL, 0, 0));
	assert_int_equal(lpi_client_attrs(client).uid, 3);
	lp_test_ok(do_ref(client, LP_WIRE_OP_READLINK, 0, "link"));
	assert_true(lp_wire_part(&client->answer, lp_wire_value, &value));
	assert_int_equal(value.value_bytes, 6);
	assert_memory_equal(lp_wire_bytes(&client->answer, 6), "target", 6);
	lp_test_err(-EINVAL, do_ref(client, LP_WIRE_OP_READLINK, ino, ""));
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

static uint32_t read_page(struct lpi_client *client, uint64_t *cookie, bool *ret_more)
{
	struct lp_wire_readdir readdir = {.cookie = *cookie, .items_max = 7, .with_attrs = 1};
	struct lp_wire_listed listed = {.item_cnt = 0};
	LPI_CLIENT_REF(readdir.ref, 0, "dir");
	lp_wire_put_part(&client->meta, lp_wire_readdir, &readdir);
	lpi_client_put_text(client, "dir");
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_READDIR, NULL, 0, 0));
	assert_true(lp_wire_part(&client->answer, lp_wire_listed, &listed));
	assert_true(listed.item_cnt <= 7);
	for (uint32_t i = 0; i < listed.item_cnt; i++) {
		struct lp_wire_item item = {.ino = 0};
		assert_true(lp_wire_part(&client->answer, lp_wire_item, &item));
		assert_non_null(lp_wire_bytes(&client->answer, item.name_bytes));
		if (item.has_attrs == 1)
			assert_int_equal(lpi_client_attrs(client).ino, item.ino);
		*cookie = item.cookie;
	}
	lp_test_ok(lp_wire_end(&client->answer));
	*ret_more = listed.more == 1;
	return listed.item_cnt;
}

static void a_directory_is_read_page_by_page(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(2, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	uint64_t cookie = 0;
	uint32_t cnt = 0;
	bool more = true;
	(void)state;
	(void)lpi_client_make(client, "dir", LP_INODE_TYPE_DIR);
	for (int i = 0; i < 40; i++) {
		char path[32];
		(void)snprintf(path, sizeof(path), "dir/%d", i);
		(void)lpi_client_make(client, path, LP_INODE_TYPE_FILE);
	}
	while (more)
		cnt += read_page(client, &cookie, &more);
	assert_int_equal(cnt, 40);
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

static void what_is_open_lives(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(2, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	struct lpi_client *other = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	(void)state;
	uint64_t ino = lpi_client_make(client, "file", LP_INODE_TYPE_FILE);
	lp_test_err(-EBADF, do_ref(client, LP_WIRE_OP_CLOSE, ino, ""));
	lp_test_ok(do_ref(client, LP_WIRE_OP_OPEN, 0, "file"));
	assert_int_equal(lpi_client_attrs(client).ino, ino);
	lp_test_ok(do_ref(client, LP_WIRE_OP_OPEN, ino, ""));
	lp_test_ok(do_remove(client, 0, "file", 0));
	lp_test_err(-EBADF, do_ref(other, LP_WIRE_OP_CLOSE, ino, ""));
	lp_test_ok(do_ref(client, LP_WIRE_OP_CLOSE, ino, ""));
	lp_test_ok(lpi_client_result(client, lpi_client_send_write(client, ino, "", "x", 1, 0)));
	lp_test_ok(do_ref(client, LP_WIRE_OP_CLOSE, ino, ""));
	lp_test_err(-EBADF, do_ref(client, LP_WIRE_OP_CLOSE, ino, ""));
	LPI_DOOR_UNTIL(rig, do_ref(client, LP_WIRE_OP_STAT, ino, "") == -ESTALE);
	/* And is given back by a client that just goes: the rig looks that nothing is open. */
	(void)lpi_client_make(client, "other", LP_INODE_TYPE_FILE);
	lp_test_ok(do_ref(client, LP_WIRE_OP_OPEN, 0, "other"));
	lp_test_err(-ENOENT, do_ref(client, LP_WIRE_OP_OPEN, 0, "none"));
	lpi_client_free(client);
	lpi_client_free(other);
	lpi_door_rig_free(rig);
}

static int do_commit(struct lpi_client *client, uint64_t ino, const char *path)
{
	struct lp_wire_put put = {
		.uid = LP_WIRE_NO_OWNER, .gid = LP_WIRE_NO_OWNER, .mode = LP_WIRE_NO_MODE};
	struct lp_wire_commit commit = {.ino = ino};
	LPI_CLIENT_REF(put.ref, 0, path);
	lp_wire_put_encode(&put, commit.put);
	lp_wire_put_part(&client->meta, lp_wire_commit, &commit);
	lpi_client_put_text(client, path);
	return lpi_client_do(client, LP_WIRE_OP_COMMIT, NULL, 0, 0);
}

static void an_upload_takes_its_name_when_it_is_done(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(2, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	struct lpi_client *other = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	uint8_t back[16];
	(void)state;
	lp_test_ok(do_ref(client, LP_WIRE_OP_UPLOAD, 0, "a/b"));
	uint64_t ino = lpi_client_attrs(client).ino;
	/* Anyone may write to it; only this connection may end it. */
	lp_test_ok(lpi_client_result(other, lpi_client_send_write(other, ino, "", "hello", 5, 0)));
	lp_test_err(-EBADF, do_commit(other, ino, "a/b"));
	lp_test_err(-EBADF, do_ref(client, LP_WIRE_OP_CLOSE, ino, ""));
	lp_test_err(-ENOENT, do_ref(client, LP_WIRE_OP_STAT, 0, "a/b"));
	lp_test_ok(do_commit(client, ino, "a/b"));
	uint64_t id = lpi_client_send_get(client, 0, "a/b", 0, 100);
	assert_int_equal(lpi_client_recv_get(client, id, 0, back, sizeof(back)), 5);
	assert_memory_equal(back, "hello", 5);
	lp_test_err(-EBADF, do_commit(client, ino, "a/b"));
	lp_test_ok(do_ref(client, LP_WIRE_OP_UPLOAD, 0, "a/c"));
	ino = lpi_client_attrs(client).ino;
	lp_test_ok(do_ref(client, LP_WIRE_OP_ABORT, ino, ""));
	lp_test_err(-EBADF, do_ref(client, LP_WIRE_OP_ABORT, ino, ""));
	/* One that goes with its connection. */
	lp_test_ok(do_ref(client, LP_WIRE_OP_UPLOAD, 0, "a/d"));
	lpi_client_free(client);
	lpi_client_free(other);
	lpi_door_rig_free(rig);
}

static void objects_are_put_and_deleted(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(3, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	struct lp_wire_put put = {.uid = LP_WIRE_NO_OWNER,
				  .gid = LP_WIRE_NO_OWNER,
				  .mode = 0640,
				  .xattr_cnt = 1,
				  .condition = LP_WIRE_IF_ABSENT};
	const struct lp_wire_pair pair = {.name_bytes = 6, .value_bytes = 2};
	(void)state;
	for (int i = 0; i < 2; i++) {
		LPI_CLIENT_REF(put.ref, 0, "x/y");
		lp_wire_put_part(&client->meta, lp_wire_put, &put);
		lpi_client_put_text(client, "x/y");
		lp_wire_put_part(&client->meta, lp_wire_pair, &pair);
		lpi_client_put_text(client, "user.avv");
		lp_test_err(i == 0 ? 0 : -EEXIST,
			    lpi_client_do(client, LP_WIRE_OP_PUT, "content", 7, 0));
	}
	lp_test_ok(do_ref(client, LP_WIRE_OP_STAT, 0, "x/y"));
	struct lp_wire_attrs attrs = lpi_client_attrs(client);
	assert_int_equal(attrs.size_bytes, 7);
	assert_int_equal(attrs.mode, 0640);
	/* An empty one, over it. */
	lp_test_ok(lpi_client_result(client, lpi_client_send_put(client, "x/y", NULL, 0)));
	assert_int_equal(lpi_client_attrs(client).size_bytes, 0);
	lp_test_ok(do_delete(client, "x/y"));
	lp_test_err(-ENOENT, do_delete(client, "x/y"));
	lp_test_err(-ENOENT, do_ref(client, LP_WIRE_OP_STAT, 0, "x"));
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

/* The keys of one page, joined by commas. */
static void list_keys(struct lpi_client *client, const char *prefix, bool delimit, char *ret)
{
	const struct lp_wire_list list = {.prefix_bytes = (uint16_t)strlen(prefix),
					  .delimit = delimit ? 1 : 0};
	struct lp_wire_listed listed = {.item_cnt = 0};
	lp_wire_put_part(&client->meta, lp_wire_list, &list);
	lpi_client_put_text(client, prefix);
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_LIST, NULL, 0, 0));
	assert_true(lp_wire_part(&client->answer, lp_wire_listed, &listed));
	assert_int_equal(listed.more, 0);
	*ret = '\0';
	for (uint32_t i = 0; i < listed.item_cnt; i++) {
		struct lp_wire_item item = {.ino = 0};
		assert_true(lp_wire_part(&client->answer, lp_wire_item, &item));
		const char *name = lp_wire_bytes(&client->answer, item.name_bytes);
		ret += sprintf(ret, "%.*s,", (int)item.name_bytes, name);
	}
	lp_test_ok(lp_wire_end(&client->answer));
}

static void objects_are_listed_copied_and_moved(void **state)
{
	static const char *const paths[] = {"p/b", "p/a", "p/d/e", "q"};
	struct lpi_door_rig *rig = lpi_door_rig_new(3, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	char keys[256];
	uint8_t back[32];
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(paths); i++)
		lp_test_ok(
			lpi_client_result(client, lpi_client_send_put(client, paths[i], paths[i],
								      (uint32_t)strlen(paths[i]))));
	list_keys(client, "p/", true, keys);
	assert_string_equal(keys, "p/a,p/b,p/d/,");
	list_keys(client, "p", false, keys);
	assert_string_equal(keys, "p/a,p/b,p/d/e,");
	lp_test_ok(do_two(client, LP_WIRE_OP_COPY, "p/d/e", "r/s", 0));
	lp_test_err(-EEXIST, do_two(client, LP_WIRE_OP_MOVE, "q", "r/s", LP_WIRE_IF_ABSENT));
	lp_test_ok(do_two(client, LP_WIRE_OP_MOVE, "q", "t/u/v", LP_WIRE_IF_ABSENT));
	list_keys(client, "", false, keys);
	assert_string_equal(keys, "p/a,p/b,p/d/e,r/s,t/u/v,");
	uint64_t id = lpi_client_send_get(client, 0, "r/s", 0, 100);
	assert_int_equal(lpi_client_recv_get(client, id, 0, back, sizeof(back)), 5);
	assert_memory_equal(back, "p/d/e", 5);
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

/* --- Long values ------------------------------------------------------------------------------ */

static uint8_t long_value[LP_WIRE_VALUE_MAX + 1];

static int do_named(struct lpi_client *client, uint16_t opcode, const char *path, const char *name,
		    uint32_t value_bytes)
{
	struct lp_wire_named named = {.name_bytes = (uint16_t)strlen(name),
				      .value_bytes = value_bytes};
	LPI_CLIENT_REF(named.ref, 0, path);
	lp_wire_put_part(&client->meta, lp_wire_named, &named);
	lpi_client_put_text(client, path);
	lpi_client_put_text(client, name);
	lp_writer_bytes(&client->meta, long_value, value_bytes);
	return lpi_client_do(client, opcode, NULL, 0, 0);
}

static void is_value(struct lpi_client *client, uint32_t len)
{
	struct lp_wire_value value = {.value_bytes = 0};
	assert_true(lp_wire_part(&client->answer, lp_wire_value, &value));
	assert_int_equal(value.value_bytes, len);
	assert_memory_equal(lp_wire_bytes(&client->answer, len), long_value, len);
	lp_test_ok(lp_wire_end(&client->answer));
}

static int list_pairs(struct lpi_client *client, uint16_t opcode, const char *path,
		      const char *after, uint32_t with_values)
{
	struct lp_wire_range range = {.after_bytes = (uint16_t)strlen(after),
				      .with_values = with_values};
	LPI_CLIENT_REF(range.ref, 0, path);
	lp_wire_put_part(&client->meta, lp_wire_range, &range);
	lpi_client_put_text(client, path);
	lpi_client_put_text(client, after);
	return lpi_client_do(client, opcode, NULL, 0, 0);
}

/* All names, page by page, each with a value of so many bytes. */
static void are_listed(struct lpi_client *client, uint16_t opcode, const char *path,
		       const char *const *names, uint32_t cnt, uint32_t len)
{
	struct lp_wire_listed listed = {.more = 1};
	const char *after = "";
	uint32_t found = 0;
	while (listed.more == 1) {
		lp_test_ok(list_pairs(client, opcode, path, after, 1));
		assert_true(lp_wire_part(&client->answer, lp_wire_listed, &listed));
		assert_true(listed.item_cnt > 0);
		for (uint32_t i = 0; i < listed.item_cnt; i++, found++) {
			struct lp_wire_pair pair = {.name_bytes = 0};
			assert_true(found < cnt);
			assert_true(lp_wire_part(&client->answer, lp_wire_pair, &pair));
			assert_int_equal(pair.name_bytes, strlen(names[found]));
			assert_memory_equal(lp_wire_bytes(&client->answer, pair.name_bytes),
					    names[found], pair.name_bytes);
			assert_int_equal(pair.value_bytes, len);
			assert_memory_equal(lp_wire_bytes(&client->answer, len), long_value, len);
			after = names[found];
		}
	}
	assert_int_equal(found, cnt);
}

/* As long as the kernel's, beside the longest path and name. */
static void check_long(struct lpi_client *client, struct lpi_client *old, const char *path,
		       const char *const *names, bool is_omap)
{
	const uint16_t get = is_omap ? LP_WIRE_OP_OMAP_GET : LP_WIRE_OP_XATTR_GET;
	const uint16_t set = is_omap ? LP_WIRE_OP_OMAP_SET : LP_WIRE_OP_XATTR_SET;
	const uint16_t list = is_omap ? LP_WIRE_OP_OMAP_LIST : LP_WIRE_OP_XATTR_LIST;
	const uint32_t most = LP_WIRE_VALUE_MAX;
	for (uint32_t i = 0; i < 3; i++)
		lp_test_ok(do_named(client, set, path, names[i], most));
	lp_test_ok(do_named(client, get, path, names[1], 0));
	is_value(client, most);
	lp_test_err(-E2BIG, do_named(client, set, path, names[0], most + 1));
	are_listed(client, list, path, names, 3, most);
	/* Who has not agreed to it is told, and goes on. */
	lp_test_err(-EMSGSIZE, do_named(old, get, path, names[1], 0));
	assert_true(lpi_client_says(old, "too old"));
	lp_test_err(-EMSGSIZE, list_pairs(old, list, path, "", 1));
	lp_test_ok(list_pairs(old, list, path, "", 0));
	lp_test_ok(do_named(old, set, path, names[1], 60000));
	lp_test_ok(do_named(old, get, path, names[1], 0));
	is_value(old, 60000);
}

static void values_are_as_long_as_the_kernels(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(2, BUFS, NULL);
	struct lpi_client *client = lpi_client_open_long(rig);
	struct lpi_client *old = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	char path[LP_WIRE_PATH_MAX + 1] = "";
	char longest[3][1025];
	const char *const xattrs[] = {"user.a", "user.b", longest[0]};
	const char *const keys[] = {"a", longest[1], longest[2]};
	(void)state;
	/* 16 names of 255 bytes, and what is between them. */
	for (uint32_t i = 0; i < 4095; i++)
		path[i] = i % 256 == 255 ? '/' : 'p';
	memset(longest, 'x', sizeof(longest));
	memcpy(longest[0], "user.", 5);
	longest[0][255] = '\0';
	longest[1][1023] = '\0';
	longest[2][1024] = '\0';
	for (uint32_t i = 0; i < sizeof(long_value); i++)
		long_value[i] = (uint8_t)(i * 7 + i / 256);
	lp_test_ok(lpi_client_result(client, lpi_client_send_put(client, path, "x", 1)));
	check_long(client, old, path, xattrs, false);
	check_long(client, old, path, keys, true);
	lpi_client_free(client);
	lpi_client_free(old);
	lpi_door_rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_are_as_long_as_the_kernels),
		cmocka_unit_test(names_lead_to_inodes),
		cmocka_unit_test(attributes_are_set),
		cmocka_unit_test(a_directory_is_read_page_by_page),
		cmocka_unit_test(what_is_open_lives),
		cmocka_unit_test(an_upload_takes_its_name_when_it_is_done),
		cmocka_unit_test(objects_are_put_and_deleted),
		cmocka_unit_test(objects_are_listed_copied_and_moved),
	};
	return lp_test_main(tests, "opcodes");
}
