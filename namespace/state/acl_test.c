/* SPDX-License-Identifier: Apache-2.0 */
/* Lists written out byte by byte, and what POSIX 1003.1e says must become of them and of the mode.
 * Whatever is no list is refused: each byte of a right one is replaced by each other value, and
 * what still passes must be read without a step outside its bytes. */
#include "namespace/state/acl.h"

#include <stdlib.h>
#include <string.h>

#include "base/endian.h"
#include "base/testing/test.h"

#define NOBODY 0xff, 0xff, 0xff, 0xff

/* u::rw- u:1000:rwx g::r-- m::rw- o::--- */
static const uint8_t named[] = {2,  0, 0,    0, 1,      0,  6, 0, NOBODY, 2,     0,
				7,  0, 0xe8, 3, 0,      0,  4, 0, 4,      0,     NOBODY,
				16, 0, 6,    0, NOBODY, 32, 0, 0, 0,      NOBODY};
/* u::rwx g::r-x o::r-x */
static const uint8_t plain[] = {2, 0, 0, 0,      1,  0, 7, 0, NOBODY, 4,
				0, 5, 0, NOBODY, 32, 0, 5, 0, NOBODY};

static void test_modes(void **state)
{
	(void)state;
	assert_int_equal(lp_acl_check(named, sizeof(named)), 0);
	assert_int_equal(lp_acl_check(plain, sizeof(plain)), 0);
	assert_int_equal(lp_acl_mode(named, sizeof(named)), 0660);
	assert_int_equal(lp_acl_mode(plain, sizeof(plain)), 0755);
	assert_false(lp_acl_is_mode(named, sizeof(named)));
	assert_true(lp_acl_is_mode(plain, sizeof(plain)));
}

/* chmod sets the mask, and leaves the group's own entry and the named one. */
static void test_chmod(void **state)
{
	uint8_t acl[sizeof(named)];
	(void)state;
	memcpy(acl, named, sizeof(acl));
	lp_acl_chmod(acl, sizeof(acl), 04715);
	assert_int_equal(lp_acl_check(acl, sizeof(acl)), 0);
	assert_int_equal(lp_acl_mode(acl, sizeof(acl)), 0715);
	assert_int_equal(acl[14], 7); /* u:1000 */
	assert_int_equal(acl[22], 4); /* g:: */
	assert_int_equal(acl[30], 1); /* m:: */
	uint8_t simple[sizeof(plain)];
	memcpy(simple, plain, sizeof(simple));
	lp_acl_chmod(simple, sizeof(simple), 0640);
	assert_int_equal(lp_acl_mode(simple, sizeof(simple)), 0640);
}

static void test_create(void **state)
{
	uint8_t acl[sizeof(named)];
	(void)state;
	memcpy(acl, named, sizeof(acl));
	assert_int_equal(lp_acl_create(acl, sizeof(acl), 02751), 02640);
	assert_int_equal(lp_acl_mode(acl, sizeof(acl)), 0640);
	assert_int_equal(acl[22], 4); /* g:: stays behind the mask */
	uint8_t simple[sizeof(plain)];
	memcpy(simple, plain, sizeof(simple));
	assert_int_equal(lp_acl_create(simple, sizeof(simple), 0666), 0644);
	assert_int_equal(lp_acl_mode(simple, sizeof(simple)), 0644);
}

static void test_refused(void **state)
{
	(void)state;
	for (size_t len = 0; len < sizeof(named); len++)
		assert_int_equal(lp_acl_check(named, len), -EINVAL);
	for (size_t i = 0; i < sizeof(named); i++) {
		for (unsigned value = 0; value < 256; value++) {
			uint8_t *acl = malloc(sizeof(named));
			assert_non_null(acl);
			memcpy(acl, named, sizeof(named));
			acl[i] = (uint8_t)value;
			if (lp_acl_check(acl, sizeof(named)) == 0) {
				(void)lp_acl_create(acl, sizeof(named), 0777);
				lp_acl_chmod(acl, sizeof(named), 0777);
				assert_int_equal(lp_acl_mode(acl, sizeof(named)), 0777);
			}
			free(acl);
		}
	}
	/* A named user without a mask; one that is nobody; two owning groups. */
	uint8_t acl[sizeof(named)];
	memcpy(acl, named, sizeof(acl));
	memmove(acl + 28, acl + 36, 8);
	assert_int_equal(lp_acl_check(acl, sizeof(acl) - 8), -EINVAL);
	memcpy(acl, named, sizeof(acl));
	memset(acl + 16, 0xff, 4);
	assert_int_equal(lp_acl_check(acl, sizeof(acl)), -EINVAL);
	memcpy(acl, named, sizeof(acl));
	memcpy(acl + 12, acl + 20, 8);
	assert_int_equal(lp_acl_check(acl, sizeof(acl)), -EINVAL);
}

/* u::rw- user and group entries g::r-- m::rw- o::---: those who are named in any order, and twice,
 * as the kernel takes them; but not the groups before the owning one. */
static void test_any_order(void **state)
{
	static const uint32_t ids[][2] = {{7, 9}, {9, 7}, {7, 7}};
	uint8_t acl[sizeof(named) + 24];
	uint8_t *at = acl + 12;
	(void)state;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(ids); i++) {
		memcpy(acl, named, 12);
		memcpy(at, named + 12, 8);
		memcpy(at + 8, named + 12, 8);
		memcpy(at + 16, named + 20, 8);
		memcpy(at + 24, named + 12, 8);
		memcpy(at + 32, named + 12, 8);
		memcpy(at + 40, named + 28, 16);
		at[24] = at[32] = 8; /* the tag of a named group */
		lp_put_le32(at + 4, ids[i][0]);
		lp_put_le32(at + 12, ids[i][1]);
		lp_put_le32(at + 28, ids[i][0]);
		lp_put_le32(at + 36, ids[i][1]);
		assert_int_equal(lp_acl_check(acl, sizeof(acl)), 0);
		assert_int_equal(lp_acl_mode(acl, sizeof(acl)), 0660);
		memmove(at + 16, at + 24, 8);
		memcpy(at + 24, named + 20, 8);
		assert_int_equal(lp_acl_check(acl, sizeof(acl)), -EINVAL);
	}
}

/* As many users as are named in what the kernel has room for; one more is too many. */
static void test_longest(void **state)
{
	const size_t most = 4 + 8 * 511;
	uint8_t *acl = calloc(1, most + 16);
	(void)state;
	assert_non_null(acl);
	memcpy(acl, named, 12);
	for (uint32_t i = 0; i <= 508; i++) {
		size_t len = 12 + 8 * (i + 1) + 24;
		uint8_t *at = acl + 12 + (size_t)i * 8;
		memcpy(at, named + 12, 8);
		at[4] = (uint8_t)i;
		at[5] = (uint8_t)(i >> 8);
		memcpy(at + 8, named + 20, 24);
		assert_int_equal(lp_acl_check(acl, len), len <= most ? 0 : -EINVAL);
	}
	free(acl);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_modes),   cmocka_unit_test(test_chmod),
		cmocka_unit_test(test_create),  cmocka_unit_test(test_refused),
		cmocka_unit_test(test_longest), cmocka_unit_test(test_any_order),
	};
	return lp_test_main(tests, "namespace/state/acl");
}
