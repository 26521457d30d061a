/* SPDX-License-Identifier: Apache-2.0 */
/* The record of an inode, from bytes that may be anything.
 *
 *   byte 0: 1 repair length and crcs, 2 the key's ino is the record's; then the record
 *
 * A record has one form: what is accepted is encoded to the same bytes. Each xattr of its list is
 * found, and set to the value it has leaves the list as it is. A refusal leaves *ret untouched. */
#include "store/record/inode.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/repair.h"

#define FLAG_REPAIR  1u
#define FLAG_OWN_INO 2u
#define CRC_BYTES    4u

/* Of target or inline data. */
static void repair_section(const struct lp_inode_section *head, uint8_t *body)
{
	bool is_summed = head->kind == LP_INODE_SECTION_KIND_TARGET ||
			 head->kind == LP_INODE_SECTION_KIND_INLINE_DATA;
	if (is_summed && head->bytes > CRC_BYTES)
		lp_put_le32(body, lp_crc32c(0, body + CRC_BYTES, head->bytes - CRC_BYTES));
}

static void repair(uint8_t *record, size_t len)
{
	if (len < LP_INODE_HEAD_SIZE + CRC_BYTES)
		return;
	size_t end = len - CRC_BYTES;
	for (size_t at = LP_INODE_HEAD_SIZE; at + LP_INODE_SECTION_SIZE <= end;) {
		struct lp_inode_section head;
		lp_inode_section_decode(record + at, &head);
		at += LP_INODE_SECTION_SIZE;
		if (head.bytes > end - at)
			break;
		repair_section(&head, record + at);
		at += head.bytes;
	}
	lp_put_le32(record + LP_INODE_HEAD_RECORD_BYTES_OFF, (uint32_t)len);
	lp_put_le32(record + end, lp_crc32c(0, record, end));
}

static void check_xattrs(struct lp_inode_bytes list)
{
	uint8_t again[LP_INODE_XATTRS_MAX];
	struct lp_xattr xattr;
	struct lp_xattr found;
	for (size_t offset = 0; lp_xattrs_next(list, &offset, &xattr);) {
		bool is_there = lp_xattrs_find(list, xattr.name.at, xattr.name.len, &found);
		LP_ASSERT(is_there && found.value.at == xattr.value.at);
		int len = lp_xattrs_set(list, &xattr.name, &xattr.value, again);
		LP_ASSERT(len >= 0 && (size_t)len == list.len);
		LP_ASSERT(memcmp(again, list.at, list.len) == 0);
	}
}

static void check_accepted(const struct lp_inode *inode, const uint8_t *record, size_t len)
{
	static uint8_t again[LP_INODE_BYTES_MAX];
	LP_ASSERT(lp_inode_fault(inode) == NULL);
	LP_ASSERT(lp_inode_encode(inode, again) == len);
	LP_ASSERT(memcmp(again, record, len) == 0);
	check_xattrs(inode->xattrs);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	static struct lp_inode inode;
	struct lp_ino ino = {7};
	if (len < 1)
		return 0;
	uint8_t *record = lpi_fuzz_copy(bytes + 1, len - 1);
	if ((bytes[0] & FLAG_REPAIR) != 0)
		repair(record, len - 1);
	if ((bytes[0] & FLAG_OWN_INO) != 0 && len - 1 >= LP_INODE_HEAD_SIZE)
		ino.nr = lp_get_le64(record + LP_INODE_HEAD_INO_OFF);
	inode = (struct lp_inode){.type = 0};
	if (lp_inode_decode(record, len - 1, ino, &inode) == 0)
		check_accepted(&inode, record, len - 1);
	else
		LP_ASSERT(inode.ino.nr == 0 && inode.type == 0 && inode.name.at == NULL);
	free(record);
	return 0;
}
