/* SPDX-License-Identifier: Apache-2.0 */
/* Access lists of inodes, for tests. Only *_test.c files include this. */
#ifndef LP_NAMESPACE_STATE_ACL_RIG_TEST_H
#define LP_NAMESPACE_STATE_ACL_RIG_TEST_H

#include "namespace/ops/names_rig_test.h"
#include "namespace/state/acl.h"

#define LPI_T_LIST_BYTES 44u
#define LPI_T_LIST_NAMED 14u /* what user 1000 may */

/* u::rw- u:1000:rwx g::r-- m::MASK o::---: a mode of 0600 with the mask in the middle. */
static inline void lpi_t_list_fill(uint8_t list[LPI_T_LIST_BYTES], uint8_t mask)
{
	static const struct {
		uint8_t tag;
		uint8_t perm;
		uint32_t id;
	} entries[] = {{1, 6, UINT32_MAX},
		       {2, 7, 1000},
		       {4, 4, UINT32_MAX},
		       {16, 0, UINT32_MAX},
		       {32, 0, UINT32_MAX}};
	memset(list, 0, LPI_T_LIST_BYTES);
	list[0] = 2;
	for (size_t i = 0; i < LP_ARRAY_SIZE(entries); i++) {
		uint8_t *at = list + 4 + 8 * i;
		at[0] = entries[i].tag;
		at[2] = entries[i].tag == 16 ? mask : entries[i].perm;
		for (uint32_t k = 0; k < 4; k++)
			at[4 + k] = (uint8_t)(entries[i].id >> (8 * k));
	}
	assert_int_equal(lp_acl_check(list, LPI_T_LIST_BYTES), 0);
}

/* The list, and nothing else: the mode is for others to set. */
static inline void lpi_t_list_set(struct lpi_t *t, struct lp_ino ino, const uint8_t *list)
{
	const struct lp_change change = {
		.type = LP_CHANGE_XATTR_SET,
		.ino = ino,
		.named = {.name = lp_acl_access_name(), .value = {list, LPI_T_LIST_BYTES}}};
	lpi_t_op(t, LP_NS_STORE);
	t->op->store.ino = ino;
	t->op->store.op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					       .txn = {.changes = &change, .change_cnt = 1}};
	lp_test_ok(lpi_t_do(t));
}

/* False: there is none. */
static inline bool lpi_t_list_get(struct lpi_t *t, struct lp_ino ino,
				  uint8_t ret_list[LPI_T_LIST_BYTES])
{
	lpi_t_op(t, LP_NS_STORE);
	t->op->store.ino = ino;
	t->op->store.op = (struct lp_store_op){.opcode = LP_STORE_GET,
					       .get = {.space = LP_STORE_XATTRS,
						       .ino = ino,
						       .name = lp_acl_access_name(),
						       .buf = ret_list,
						       .buf_len = LPI_T_LIST_BYTES}};
	int r = lpi_t_do(t);
	if (r == -ENODATA)
		return false;
	lp_test_ok(r);
	assert_int_equal(t->op->store.op.get.value_len, LPI_T_LIST_BYTES);
	return true;
}

static inline int lpi_t_chmod(struct lpi_t *t, struct lp_ino ino, uint16_t mode)
{
	lpi_t_op(t, LP_NS_SET);
	t->op->set.ino = ino;
	t->op->set.mask = LP_ATTR_MODE;
	t->op->set.attrs.mode = mode;
	return lpi_t_do(t);
}

/* The mode of what has a list is what the list says. */
static inline void lpi_t_list_agrees(struct lpi_t *t, struct lp_ino ino)
{
	uint8_t list[LPI_T_LIST_BYTES];
	assert_true(lpi_t_list_get(t, ino, list));
	assert_int_equal(lpi_t_attrs(t, ino).mode & 0777, lp_acl_mode(list, sizeof(list)));
}

#endif
