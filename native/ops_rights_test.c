/* SPDX-License-Identifier: Apache-2.0 */
/* What clients that are not root's cannot do: whatever they change, nobody gets the rights of
 * another user by it, where the namespace is mounted as well. */
#include <sys/stat.h>

#include "namespace/state/acl.h"
#include "native/door_test.h"

#define BUFS       (UINT64_C(64) << 20)
#define USER       1000u
#define GROUP      100u
#define CAPABILITY "security.capability"

/* Root, a user, and somebody by TCP, whom the daemon takes for its own user. */
struct world {
	struct lpi_door_rig *rig;
	struct lpi_client *root;
	struct lpi_client *user;
	struct lpi_client *tcp;
};

static struct lpi_client *come(struct lpi_door_rig *rig, uint32_t uid, uint32_t gid, bool is_tcp)
{
	rig->peer_uid = uid;
	rig->peer_gid = gid;
	rig->is_tcp = is_tcp;
	return lpi_client_open(rig, LP_WIRE_CRC_HEADER);
}

static struct world begin(void)
{
	struct world world = {.rig = lpi_door_rig_new(2, BUFS, NULL)};
	world.root = come(world.rig, 0, 0, false);
	world.user = come(world.rig, USER, GROUP, false);
	world.tcp = come(world.rig, 0, 0, true);
	return world;
}

static void end(struct world *world)
{
	lpi_client_free(world->root);
	lpi_client_free(world->user);
	lpi_client_free(world->tcp);
	lpi_door_rig_free(world->rig);
}

static int do_set(struct lpi_client *client, const char *path, uint32_t mask,
		  const struct lp_wire_attrs *attrs)
{
	struct lp_wire_set set = {.mask = mask};
	lp_wire_attrs_encode(attrs, set.attrs);
	LPI_CLIENT_REF(set.ref, 0, path);
	lp_wire_put_part(&client->meta, lp_wire_set, &set);
	lpi_client_put_text(client, path);
	return lpi_client_do(client, LP_WIRE_OP_SET, NULL, 0, 0);
}

static int do_chmod(struct lpi_client *client, const char *path, uint16_t mode)
{
	return do_set(client, path, LP_WIRE_SET_MODE, &(struct lp_wire_attrs){.mode = mode});
}

static int do_chown(struct lpi_client *client, const char *path, uint32_t uid, uint32_t gid)
{
	return do_set(client, path, LP_WIRE_SET_UID | LP_WIRE_SET_GID,
		      &(struct lp_wire_attrs){.uid = uid, .gid = gid});
}

static struct lp_wire_attrs stat_of(struct lpi_client *client, const char *path)
{
	lpi_client_put_ref(client, 0, path);
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_STAT, NULL, 0, 0));
	return lpi_client_attrs(client);
}

static uint16_t mode_of(const struct world *world, const char *path)
{
	return stat_of(world->root, path).mode;
}

/* A file of somebody's, with data, a mode, and a capability if it is to have one. */
static uint64_t have(const struct world *world, const char *path, uint32_t uid, uint32_t gid,
		     uint16_t mode)
{
	lp_test_ok(lpi_client_result(world->root,
				     lpi_client_send_put(world->root, path, "program", 7)));
	lp_test_ok(do_set(world->root, path, LP_WIRE_SET_UID | LP_WIRE_SET_GID | LP_WIRE_SET_MODE,
			  &(struct lp_wire_attrs){.uid = uid, .gid = gid, .mode = mode}));
	return lpi_client_attrs(world->root).ino;
}

static int do_xattr(struct lpi_client *client, uint16_t opcode, const char *path, const char *name,
		    const void *value, uint32_t len)
{
	struct lp_wire_named named = {.name_bytes = (uint16_t)strlen(name), .value_bytes = len};
	LPI_CLIENT_REF(named.ref, 0, path);
	lp_wire_put_part(&client->meta, lp_wire_named, &named);
	lpi_client_put_text(client, path);
	lpi_client_put_text(client, name);
	lp_writer_bytes(&client->meta, value, len);
	return lpi_client_do(client, opcode, NULL, 0, 0);
}

static int set_xattr(struct lpi_client *client, const char *path, const char *name)
{
	return do_xattr(client, LP_WIRE_OP_XATTR_SET, path, name, "value", 5);
}

static bool has_xattr(const struct world *world, const char *path, const char *name)
{
	int r = do_xattr(world->root, LP_WIRE_OP_XATTR_GET, path, name, NULL, 0);
	assert_true(r == 0 || r == -ENODATA);
	return r == 0;
}

/* --- Owners ------------------------------------------------------------------------------------
 */

static void nobody_gives_files_to_others(void **state)
{
	struct world world = begin();
	(void)state;
	(void)have(&world, "his", USER, GROUP, 0755);
	lp_test_err(-EPERM, do_chown(world.user, "his", 0, GROUP));
	lp_test_err(-EPERM, do_chown(world.user, "his", USER, 0));
	lp_test_err(-EPERM, do_set(world.user, "his", LP_WIRE_SET_UID | LP_WIRE_SET_MODE,
				   &(struct lp_wire_attrs){.uid = 0, .mode = 04755}));
	lp_test_ok(do_chown(world.user, "his", USER, GROUP));
	assert_int_equal(stat_of(world.root, "his").uid, USER);
	/* What he takes for himself brings no bits along. */
	(void)have(&world, "roots", 0, 0, 06755);
	lp_test_ok(do_chown(world.user, "roots", USER, GROUP));
	assert_int_equal(mode_of(&world, "roots"), 0755);
	(void)have(&world, "group", USER, 0, 02755);
	lp_test_ok(
		do_set(world.user, "group", LP_WIRE_SET_UID, &(struct lp_wire_attrs){.uid = USER}));
	assert_int_equal(mode_of(&world, "group"), 0755);
	/* By TCP anybody may come: owners are given as before, but without bits. */
	(void)have(&world, "tcp", 0, 0, 04755);
	lp_test_ok(do_chown(world.tcp, "tcp", USER, GROUP));
	assert_int_equal(mode_of(&world, "tcp"), 0755);
	end(&world);
}

static void bits_are_set_on_ones_own_files_only(void **state)
{
	struct world world = begin();
	(void)state;
	(void)have(&world, "his", USER, GROUP, 0755);
	lp_test_ok(do_chmod(world.user, "his", 06755));
	assert_int_equal(mode_of(&world, "his"), 06755);
	/* The group's only if it is his. */
	(void)have(&world, "group", USER, 0, 0755);
	lp_test_ok(do_chmod(world.user, "group", 06755));
	assert_int_equal(mode_of(&world, "group"), 04755);
	/* Not even where they are: that would let others run it. */
	(void)have(&world, "roots", 0, 0, 04700);
	lp_test_err(-EPERM, do_chmod(world.user, "roots", 04755));
	lp_test_err(-EPERM, do_chmod(world.user, "roots", 02755));
	lp_test_err(-EPERM, do_chmod(world.tcp, "roots", 04755));
	lp_test_err(-EPERM, do_set(world.user, "roots", LP_WIRE_SET_UID | LP_WIRE_SET_MODE,
				   &(struct lp_wire_attrs){.uid = USER, .mode = 04755}));
	assert_int_equal(mode_of(&world, "roots"), 04700);
	lp_test_ok(do_chmod(world.user, "roots", 0755));
	assert_int_equal(mode_of(&world, "roots"), 0755);
	/* Root may. A directory keeps what it has. */
	lp_test_ok(do_chmod(world.root, "roots", 04755));
	(void)lpi_client_make(world.root, "dir", LP_INODE_TYPE_DIR);
	lp_test_err(-EPERM, do_chmod(world.user, "dir", 02755));
	lp_test_ok(do_chmod(world.root, "dir", 02755));
	lp_test_ok(do_chmod(world.user, "dir", 02775));
	assert_int_equal(mode_of(&world, "dir"), 02775);
	end(&world);
}

static int do_make(struct lpi_client *client, const char *path, uint8_t type, uint16_t mode)
{
	struct lp_wire_make make = {.uid = LP_WIRE_NO_OWNER,
				    .gid = LP_WIRE_NO_OWNER,
				    .mode = mode,
				    .type = type,
				    .rdev = type >= LP_INODE_TYPE_CHARDEV ? 0x0801 : 0};
	LPI_CLIENT_REF(make.ref, 0, path);
	lp_wire_put_part(&client->meta, lp_wire_make, &make);
	lpi_client_put_text(client, path);
	return lpi_client_do(client, LP_WIRE_OP_MAKE, NULL, 0, 0);
}

static void only_root_makes_devices(void **state)
{
	struct world world = begin();
	(void)state;
	lp_test_err(-EPERM, do_make(world.user, "b", LP_INODE_TYPE_BLOCKDEV, 0666));
	lp_test_err(-EPERM, do_make(world.user, "c", LP_INODE_TYPE_CHARDEV, 0666));
	lp_test_err(-EPERM, do_make(world.tcp, "b", LP_INODE_TYPE_BLOCKDEV, 0666));
	lp_test_ok(do_make(world.root, "b", LP_INODE_TYPE_BLOCKDEV, 0600));
	lp_test_ok(do_make(world.user, "p", LP_INODE_TYPE_FIFO, 0600));
	lp_test_ok(do_make(world.user, "f", LP_INODE_TYPE_FILE, 04755));
	assert_int_equal(stat_of(world.root, "f").uid, USER);
	lp_test_err(-EPERM, do_make(world.tcp, "g", LP_INODE_TYPE_FILE, 04755));
	end(&world);
}

/* --- Data --------------------------------------------------------------------------------------
 */

static int do_space(struct lpi_client *client, uint16_t opcode, const char *path, uint64_t length)
{
	struct lp_wire_space space = {.length = length};
	LPI_CLIENT_REF(space.ref, 0, path);
	lp_wire_put_part(&client->meta, lp_wire_space, &space);
	lpi_client_put_text(client, path);
	return lpi_client_do(client, opcode, NULL, 0, 0);
}

static uint64_t source_ino;

static int do_clone(struct lpi_client *client, const char *path)
{
	struct lp_wire_clone clone = {.src_ino = source_ino, .length = 7};
	LPI_CLIENT_REF(clone.ref, 0, path);
	lp_wire_put_part(&client->meta, lp_wire_clone, &clone);
	lpi_client_put_text(client, path);
	return lpi_client_do(client, LP_WIRE_OP_CLONE, NULL, 0, 0);
}

static int do_compound(struct lpi_client *client, const char *path)
{
	const struct lp_wire_change changes[] = {
		{.kind = LP_WIRE_CHANGE_KIND_GUARD_NO_XATTR, .name_bytes = 6},
		{.kind = LP_WIRE_CHANGE_KIND_WRITE, .length = 5}};
	struct lp_wire_compound compound = {.change_cnt = 2};
	LPI_CLIENT_REF(compound.ref, 0, path);
	lp_wire_put_part(&client->meta, lp_wire_compound, &compound);
	lpi_client_put_text(client, path);
	lp_wire_put_part(&client->meta, lp_wire_change, &changes[0]);
	lpi_client_put_text(client, "user.x");
	lp_wire_put_part(&client->meta, lp_wire_change, &changes[1]);
	return lpi_client_do(client, LP_WIRE_OP_COMPOUND, "other", 5, 0);
}

enum { WRITE, TRUNCATE, PUNCH, PREALLOC, CLONE, COMPOUND, WAY_CNT };

static int change_data(struct lpi_client *client, int way, const char *path)
{
	switch (way) {
	case WRITE:
		return lpi_client_result(client,
					 lpi_client_send_write(client, 0, path, "other", 5, 0));
	case TRUNCATE:
		return do_space(client, LP_WIRE_OP_TRUNCATE, path, 0);
	case PUNCH:
		return do_space(client, LP_WIRE_OP_PUNCH, path, 3);
	case PREALLOC:
		return do_space(client, LP_WIRE_OP_PREALLOC, path, 4096);
	case CLONE:
		return do_clone(client, path);
	default:
		return do_compound(client, path);
	}
}

/* Beside the source of a clone, which is on one shard. */
static const char *place(const struct world *world, uint32_t uid, uint32_t gid, uint16_t mode)
{
	static char path[32];
	uint64_t ino = 0;
	source_ino = have(world, "source", 0, 0, 0644);
	for (int i = 0; i == 0 || ino >> 56 != source_ino >> 56; i++) {
		(void)snprintf(path, sizeof(path), "file%d", i);
		ino = have(world, path, uid, gid, mode);
	}
	return path;
}

static void who_changes_data_leaves_no_rights(void **state)
{
	struct world world = begin();
	(void)state;
	for (int way = 0; way < WAY_CNT; way++) {
		const char *path = place(&world, 0, 0, 06755);
		lp_test_ok(set_xattr(world.root, path, CAPABILITY));
		lp_test_ok(change_data(world.root, way, path));
		assert_int_equal(mode_of(&world, path), 06755);
		lp_test_ok(change_data(world.user, way, path));
		assert_int_equal(mode_of(&world, path), 0755);
		assert_false(has_xattr(&world, path, CAPABILITY));
		/* Once more, as it is now; and with a capability alone, on a file of his own. */
		lp_test_ok(change_data(world.user, way, path));
		path = place(&world, USER, GROUP, 06755);
		lp_test_ok(set_xattr(world.root, path, CAPABILITY));
		lp_test_ok(change_data(world.user, way, path));
		assert_false(has_xattr(&world, path, CAPABILITY));
		assert_int_equal(mode_of(&world, path), 06755);
		/* His file, but not his group. */
		path = place(&world, USER, 0, 06755);
		lp_test_ok(change_data(world.user, way, path));
		assert_int_equal(mode_of(&world, path), 04755);
		path = place(&world, 0, 0, 06755);
		lp_test_ok(change_data(world.tcp, way, path));
		assert_int_equal(mode_of(&world, path), 0755);
	}
	end(&world);
}

/* Many at once do not get into each other's way. */
static void writes_at_once_all_succeed(void **state)
{
	struct world world = begin();
	uint64_t first = 0;
	(void)state;
	for (int own = 0; own < 2; own++) {
		uint64_t ino = have(&world, "file", own ? USER : 0, GROUP, 04755);
		for (uint64_t i = 0; i < 40; i++) {
			uint64_t id = lpi_client_send_write(world.user, ino, "", "x", 1, i);
			first = i == 0 ? id : first;
		}
		for (uint64_t i = 0; i < 40; i++) {
			assert_true(lpi_client_recv(world.user));
			assert_int_equal(world.user->reply.status, 0);
			assert_in_range(world.user->reply.request_id, first, first + 39);
		}
		assert_int_equal(mode_of(&world, "file"), own ? 04755 : 0755);
	}
	end(&world);
}

/* Which change it was that failed is told as the client has counted. */
static void what_failed_is_counted_without_ours(void **state)
{
	const struct lp_wire_change changes[] = {
		{.kind = LP_WIRE_CHANGE_KIND_WRITE, .length = 5},
		{.kind = LP_WIRE_CHANGE_KIND_XATTR_REMOVE, .name_bytes = 6}};
	struct lp_wire_compound compound = {.change_cnt = 2};
	struct lp_wire_written written;
	struct world world = begin();
	(void)state;
	(void)have(&world, "file", USER, GROUP, 0644);
	LPI_CLIENT_REF(compound.ref, 0, "file");
	lp_wire_put_part(&world.user->meta, lp_wire_compound, &compound);
	lpi_client_put_text(world.user, "file");
	lp_wire_put_part(&world.user->meta, lp_wire_change, &changes[0]);
	lp_wire_put_part(&world.user->meta, lp_wire_change, &changes[1]);
	lpi_client_put_text(world.user, "user.x");
	lp_test_err(-ENODATA, lpi_client_do(world.user, LP_WIRE_OP_COMPOUND, "other", 5, 0));
	assert_true(lp_wire_part(&world.user->answer, lp_wire_written, &written));
	assert_int_equal(written.failed_idx, 1);
	end(&world);
}

static int do_copy(struct lpi_client *client, const char *from, const char *to)
{
	struct lp_wire_two two = {.condition = 0};
	LPI_CLIENT_REF(two.ref, 0, from);
	LPI_CLIENT_REF(two.to, 0, to);
	lp_wire_put_part(&client->meta, lp_wire_two, &two);
	lpi_client_put_text(client, from);
	lpi_client_put_text(client, to);
	return lpi_client_do(client, LP_WIRE_OP_COPY, NULL, 0, 0);
}

static int do_upload(struct lpi_client *client, const char *path)
{
	struct lp_wire_put put = {
		.uid = LP_WIRE_NO_OWNER, .gid = LP_WIRE_NO_OWNER, .mode = LP_WIRE_NO_MODE};
	lpi_client_put_ref(client, 0, path);
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_UPLOAD, NULL, 0, 0));
	struct lp_wire_commit commit = {.ino = lpi_client_attrs(client).ino};
	LPI_CLIENT_REF(put.ref, 0, path);
	lp_wire_put_encode(&put, commit.put);
	lp_wire_put_part(&client->meta, lp_wire_commit, &commit);
	lpi_client_put_text(client, path);
	return lpi_client_do(client, LP_WIRE_OP_COMMIT, NULL, 0, 0);
}

static void what_is_put_over_loses_its_bits(void **state)
{
	struct world world = begin();
	(void)state;
	for (int way = 0; way < 3; way++) {
		(void)have(&world, "evil", USER, GROUP, 0755);
		for (int own = 0; own < 2; own++) {
			(void)have(&world, "file", own ? USER : 0, own ? GROUP : 0, 06755);
			if (way == 0)
				lp_test_ok(lpi_client_result(
					world.user,
					lpi_client_send_put(world.user, "file", "evil", 4)));
			else if (way == 1)
				lp_test_ok(do_upload(world.user, "file"));
			else
				lp_test_ok(do_copy(world.user, "evil", "file"));
			assert_int_equal(mode_of(&world, "file"), own ? 06755 : 0755);
			assert_int_equal(stat_of(world.root, "file").uid, own ? USER : 0);
		}
	}
	(void)have(&world, "file", 0, 0, 06755);
	lp_test_ok(lpi_client_result(world.tcp, lpi_client_send_put(world.tcp, "file", "evil", 4)));
	assert_int_equal(mode_of(&world, "file"), 0755);
	(void)have(&world, "file", 0, 0, 06755);
	lp_test_ok(lpi_client_result(world.root, lpi_client_send_put(world.root, "file", "x", 1)));
	assert_int_equal(mode_of(&world, "file"), 06755);
	end(&world);
}

/* The bits of a copy would be those of who copies. */
static void a_copy_brings_no_rights(void **state)
{
	struct world world = begin();
	(void)state;
	(void)have(&world, "roots", 0, 0, 06750);
	lp_test_ok(set_xattr(world.root, "roots", CAPABILITY));
	lp_test_ok(set_xattr(world.root, "roots", "trusted.x"));
	lp_test_ok(set_xattr(world.root, "roots", "user.x"));
	lp_test_ok(do_copy(world.user, "roots", "copy"));
	assert_int_equal(mode_of(&world, "copy"), 0750);
	assert_false(has_xattr(&world, "copy", CAPABILITY));
	assert_false(has_xattr(&world, "copy", "trusted.x"));
	assert_true(has_xattr(&world, "copy", "user.x"));
	lp_test_ok(do_copy(world.root, "roots", "copy2"));
	assert_int_equal(mode_of(&world, "copy2"), 06750);
	assert_true(has_xattr(&world, "copy2", CAPABILITY));
	/* Nor does root's of what somebody else has made. */
	(void)have(&world, "evil", USER, GROUP, 06755);
	lp_test_ok(do_copy(world.root, "evil", "copy3"));
	assert_int_equal(mode_of(&world, "copy3"), 0755);
	lp_test_ok(do_copy(world.user, "evil", "copy4"));
	assert_int_equal(mode_of(&world, "copy4"), 06755);
	/* Nor who is taken for root, and may be anybody. */
	lp_test_ok(do_copy(world.tcp, "roots", "copy5"));
	assert_int_equal(mode_of(&world, "copy5"), 0750);
	end(&world);
}

/* --- Xattrs ------------------------------------------------------------------------------------
 */

static void some_xattrs_are_roots(void **state)
{
	static const char *const names[] = {CAPABILITY, "security.x", "trusted.x"};
	struct world world = begin();
	struct lp_wire_put put = {
		.uid = LP_WIRE_NO_OWNER, .gid = LP_WIRE_NO_OWNER, .mode = 0755, .xattr_cnt = 1};
	struct lp_wire_compound compound = {.change_cnt = 1};
	(void)state;
	(void)have(&world, "his", USER, GROUP, 0755);
	for (size_t i = 0; i < LP_ARRAY_SIZE(names); i++) {
		const struct lp_wire_pair pair = {.name_bytes = (uint16_t)strlen(names[i])};
		struct lp_wire_change change = {.name_bytes = pair.name_bytes};
		lp_test_err(-EPERM, set_xattr(world.user, "his", names[i]));
		lp_test_err(-EPERM, set_xattr(world.tcp, "his", names[i]));
		lp_test_ok(set_xattr(world.root, "his", names[i]));
		lp_test_err(-EPERM, do_xattr(world.user, LP_WIRE_OP_XATTR_REMOVE, "his", names[i],
					     NULL, 0));
		for (int j = 0; j < 2; j++) {
			change.kind = j == 0 ? LP_WIRE_CHANGE_KIND_XATTR_SET
					     : LP_WIRE_CHANGE_KIND_XATTR_REMOVE;
			LPI_CLIENT_REF(compound.ref, 0, "his");
			lp_wire_put_part(&world.user->meta, lp_wire_compound, &compound);
			lpi_client_put_text(world.user, "his");
			lp_wire_put_part(&world.user->meta, lp_wire_change, &change);
			lpi_client_put_text(world.user, names[i]);
			lp_test_err(-EPERM,
				    lpi_client_do(world.user, LP_WIRE_OP_COMPOUND, NULL, 0, 0));
		}
		LPI_CLIENT_REF(put.ref, 0, "new");
		lp_wire_put_part(&world.user->meta, lp_wire_put, &put);
		lpi_client_put_text(world.user, "new");
		lp_wire_put_part(&world.user->meta, lp_wire_pair, &pair);
		lpi_client_put_text(world.user, names[i]);
		lp_test_err(-EPERM, lpi_client_do(world.user, LP_WIRE_OP_PUT, "x", 1, 0));
	}
	lp_test_ok(set_xattr(world.user, "his", "user.x"));
	end(&world);
}

/* u::rwx g::r-x o::r-x: everybody may run it. */
static const uint8_t list[] = {2,    0,    0, 0, 1,    0,    7,    0,    0xff, 0xff,
			       0xff, 0xff, 4, 0, 5,    0,    0xff, 0xff, 0xff, 0xff,
			       32,   0,    5, 0, 0xff, 0xff, 0xff, 0xff};

static void a_list_lets_nobody_run_anothers_rights(void **state)
{
	struct world world = begin();
	(void)state;
	(void)have(&world, "roots", 0, 0, 06750);
	lp_test_ok(do_xattr(world.user, LP_WIRE_OP_XATTR_SET, "roots", LP_ACL_ACCESS, list,
			    sizeof(list)));
	assert_int_equal(mode_of(&world, "roots"), 0755);
	lp_test_ok(do_chmod(world.root, "roots", 06750));
	lp_test_ok(do_xattr(world.user, LP_WIRE_OP_XATTR_REMOVE, "roots", LP_ACL_ACCESS, NULL, 0));
	assert_int_equal(mode_of(&world, "roots"), 0750);
	(void)have(&world, "his", USER, GROUP, 06750);
	lp_test_ok(do_xattr(world.user, LP_WIRE_OP_XATTR_SET, "his", LP_ACL_ACCESS, list,
			    sizeof(list)));
	assert_int_equal(mode_of(&world, "his"), 06755);
	end(&world);
}

/* --- Flags that keep changes away ------------------------------------------------------------- */

static int do_path(struct lpi_client *client, uint16_t opcode, const char *path)
{
	struct lp_wire_delete gone = {.condition = LP_WIRE_IF_ANY};
	struct lp_wire_space space = {.offset = 0};
	if (opcode == LP_WIRE_OP_DELETE) {
		LPI_CLIENT_REF(gone.ref, 0, path);
		lp_wire_put_part(&client->meta, lp_wire_delete, &gone);
	} else {
		LPI_CLIENT_REF(space.ref, 0, path);
		lp_wire_put_part(&client->meta, lp_wire_space, &space);
	}
	lpi_client_put_text(client, path);
	return lpi_client_do(client, opcode, NULL, 0, 0);
}

static int do_flags(struct lpi_client *client, const char *path, uint32_t flags)
{
	return do_set(client, path, LP_WIRE_SET_FLAGS, &(struct lp_wire_attrs){.flags = flags});
}

/* Root sets them, his own file or not; and they hold root as well. */
static void flags_are_roots(void **state)
{
	struct world world = begin();
	const uint32_t flags[] = {LP_WIRE_ATTR_FLAG_IMMUTABLE, LP_WIRE_ATTR_FLAG_APPEND};
	(void)state;
	uint64_t ino = have(&world, "dir/file", USER, GROUP, 0644);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(flags); i++) {
		lp_test_err(-EPERM, do_flags(world.user, "dir/file", flags[i]));
		assert_true(lpi_client_says(world.user, "only root"));
		lp_test_err(-EPERM, do_flags(world.tcp, "dir/file", flags[i]));
		lp_test_ok(do_flags(world.root, "dir/file", flags[i]));
		lp_test_err(-EPERM, do_flags(world.user, "dir/file", 0));
		lp_test_ok(do_flags(world.user, "dir/file", flags[i]));
		lp_test_err(-EPERM, do_path(world.root, LP_WIRE_OP_DELETE, "dir/file"));
		assert_true(lpi_client_says(world.root, "immutable or append-only"));
		lp_test_err(-EPERM, do_path(world.root, LP_WIRE_OP_TRUNCATE, "dir/file"));
		lp_test_err(-EPERM, set_xattr(world.root, "dir/file", "user.x"));
		uint64_t put = lpi_client_send_put(world.root, "dir/file", "other", 5);
		lp_test_err(-EPERM, lpi_client_result(world.root, put));
		uint64_t write = lpi_client_send_write(world.root, ino, "", "x", 1, 0);
		lp_test_err(-EPERM, lpi_client_result(world.root, write));
		assert_int_equal(stat_of(world.user, "dir/file").flags, flags[i]);
		assert_int_equal(stat_of(world.user, "dir/file").size_bytes, 7);
	}
	lp_test_ok(do_flags(world.root, "dir/file", 0));
	lp_test_ok(do_path(world.user, LP_WIRE_OP_DELETE, "dir/file"));
	end(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flags_are_roots),
		cmocka_unit_test(nobody_gives_files_to_others),
		cmocka_unit_test(bits_are_set_on_ones_own_files_only),
		cmocka_unit_test(only_root_makes_devices),
		cmocka_unit_test(who_changes_data_leaves_no_rights),
		cmocka_unit_test(writes_at_once_all_succeed),
		cmocka_unit_test(what_failed_is_counted_without_ours),
		cmocka_unit_test(what_is_put_over_loses_its_bits),
		cmocka_unit_test(a_copy_brings_no_rights),
		cmocka_unit_test(some_xattrs_are_roots),
		cmocka_unit_test(a_list_lets_nobody_run_anothers_rights),
	};
	return lp_test_main(tests, "rights of clients");
}
