/* SPDX-License-Identifier: Apache-2.0 */
/* Modes, owners and who asks, one by one. */
#include "namespace/state/rights.h"

#include <errno.h>

#include "base/testing/test.h"

#define OWNER (LP_ATTR_UID | LP_ATTR_GID)

static const struct lp_rights root;
static const struct lp_rights user = {.is_limited = true, .uid = 1000, .gid = 100};
static const struct lp_rights nobody = {
	.is_limited = true, .uid = LP_RIGHTS_NOBODY, .gid = LP_RIGHTS_NOBODY};

static struct lp_attrs have(uint8_t type, uint32_t uid, uint32_t gid, uint16_t mode)
{
	return (struct lp_attrs){.type = type, .uid = uid, .gid = gid, .mode = mode};
}

static void test_what_is_left(void **state)
{
	const struct lp_attrs his = have(LP_INODE_TYPE_FILE, 1000, 100, 06755);
	const struct lp_attrs group = have(LP_INODE_TYPE_FILE, 1000, 0, 06755);
	const struct lp_attrs roots = have(LP_INODE_TYPE_FILE, 0, 100, 06744);
	const struct lp_attrs dir = have(LP_INODE_TYPE_DIR, 0, 0, 02755);
	const struct lp_attrs none = have(LP_INODE_TYPE_FILE, UINT32_MAX, UINT32_MAX, 06755);
	(void)state;
	assert_int_equal(lp_rights_mode_left(&user, &his), 06755);
	assert_int_equal(lp_rights_mode_left(&user, &group), 04755);
	assert_int_equal(lp_rights_mode_left(&user, &roots), 0744);
	assert_int_equal(lp_rights_mode_left(&user, &dir), 02755);
	assert_int_equal(lp_rights_mode_left(&root, &his), 06755);
	assert_int_equal(lp_rights_mode_left(&nobody, &none), 0755);
	assert_int_equal(lp_rights_check_new(&user, 1000, 100, 06755), 0);
	assert_int_equal(lp_rights_check_new(&user, 1000, 101, 02755), -EPERM);
	assert_int_equal(lp_rights_check_new(&user, 0, 100, 04755), -EPERM);
	assert_int_equal(lp_rights_check_new(&user, 0, 100, 01777), 0);
	assert_int_equal(lp_rights_check_new(&root, 5, 5, 07777), 0);
}

static void test_sets(void **state)
{
	static const struct {
		uint16_t old_mode; /* the file is of user uid, group 0 */
		uint32_t uid;
		uint32_t mask;
		uint16_t mode; /* set */
		uint32_t gid;  /* set */
		int err;
		int left; /* the mode that is set; -1: none */
	} cases[] = {
		{0755, 1000, LP_ATTR_MODE, 04711, 0, 0, 04711},
		{0755, 1000, LP_ATTR_MODE, 06711, 0, 0, 04711},
		{0755, 1000, LP_ATTR_MODE | LP_ATTR_GID, 06711, 100, 0, 06711},
		{04755, 0, LP_ATTR_MODE, 04755, 0, -EPERM, -1},
		{04755, 0, LP_ATTR_MODE, 0755, 0, 0, 0755},
		{06755, 0, OWNER, 0, 100, 0, 0755},
		{06755, 1000, LP_ATTR_GID, 0, 100, 0, 0755},
		{0755, 0, OWNER, 0, 100, 0, -1},
		{04755, 0, LP_ATTR_MTIME, 0, 0, 0, -1},
	};
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lp_attrs old = have(LP_INODE_TYPE_FILE, cases[i].uid, 0, cases[i].old_mode);
		struct lp_attrs attrs = {.uid = 1000, .gid = cases[i].gid, .mode = cases[i].mode};
		uint32_t mask = cases[i].mask;
		assert_int_equal(lp_rights_set(&user, &old, &attrs, &mask), cases[i].err);
		assert_int_equal(cases[i].err == 0 && (mask & LP_ATTR_MODE) != 0 ? attrs.mode : -1,
				 cases[i].left);
	}
}

static void test_xattrs(void **state)
{
	(void)state;
	assert_true(lp_rights_is_roots_xattr((struct lp_bytes){"security.capability", 19}));
	assert_true(lp_rights_is_roots_xattr((struct lp_bytes){"trusted.", 8}));
	assert_false(lp_rights_is_roots_xattr((struct lp_bytes){"trusted", 7}));
	assert_false(lp_rights_is_roots_xattr((struct lp_bytes){"user.security.x", 15}));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_left),
		cmocka_unit_test(test_sets),
		cmocka_unit_test(test_xattrs),
	};
	return lp_test_main(tests, "rights");
}
