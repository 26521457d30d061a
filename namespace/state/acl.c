/* SPDX-License-Identifier: Apache-2.0 */
#include "namespace/state/acl.h"

#include <string.h>

#include "base/assert.h"
#include "base/endian.h"

#define VERSION     2u
#define HEAD_BYTES  4u
#define ENTRY_BYTES 8u

/* Tags, in the order in which they stand. */
#define OWNER       0x01u
#define NAMED_USER  0x02u
#define GROUP       0x04u
#define NAMED_GROUP 0x08u
#define MASK        0x10u
#define OTHERS      0x20u

#define RWX   7u
#define NO_ID UINT32_MAX

struct entry {
	uint16_t tag;
	uint16_t perm;
	uint32_t id;
};

static size_t entry_cnt(size_t len)
{
	return (len - HEAD_BYTES) / ENTRY_BYTES;
}

static struct entry get(const void *acl, size_t idx)
{
	const uint8_t *at = (const uint8_t *)acl + HEAD_BYTES + idx * ENTRY_BYTES;
	return (struct entry){lp_get_le16(at), lp_get_le16(at + 2), lp_get_le32(at + 4)};
}

static void set_perm(void *acl, size_t idx, unsigned perm)
{
	lp_put_le16((uint8_t *)acl + HEAD_BYTES + idx * ENTRY_BYTES + 2, (uint16_t)perm);
}

static bool is_named(const struct entry *entry)
{
	return entry->tag == NAMED_USER || entry->tag == NAMED_GROUP;
}

/* True if an entry may follow another one. As in the kernel (posix_acl_valid()), named users and
 * groups may be in any order, also twice. */
static bool may_follow(const struct entry *entry, const struct entry *last)
{
	return entry->tag > last->tag || (entry->tag == last->tag && is_named(entry));
}

/* No user has this number, and the kernel would not read a list that names it. */
static bool names_nobody(const struct entry *entry)
{
	return is_named(entry) && entry->id == NO_ID;
}

struct lp_bytes lp_acl_access_name(void)
{
	return (struct lp_bytes){LP_ACL_ACCESS, sizeof(LP_ACL_ACCESS) - 1};
}

int lp_acl_check(const void *acl, size_t len)
{
	struct entry last = {.tag = 0};
	unsigned seen = 0;
	if (len < HEAD_BYTES || len > LP_ACL_BYTES_MAX || (len - HEAD_BYTES) % ENTRY_BYTES != 0 ||
	    lp_get_le32(acl) != VERSION)
		return -EINVAL;
	for (size_t i = 0; i < entry_cnt(len); i++) {
		struct entry entry = get(acl, i);
		bool is_tag =
			entry.tag != 0 && (entry.tag & (entry.tag - 1)) == 0 && entry.tag <= OTHERS;
		if (!is_tag || entry.perm > RWX || names_nobody(&entry) ||
		    !may_follow(&entry, &last))
			return -EINVAL;
		seen |= entry.tag;
		last = entry;
	}
	if ((seen & (NAMED_USER | NAMED_GROUP)) != 0 && (seen & MASK) == 0)
		return -EINVAL;
	return (seen & (OWNER | GROUP | OTHERS)) == (OWNER | GROUP | OTHERS) ? 0 : -EINVAL;
}

static bool is_name(struct lp_bytes name, const char *text)
{
	return name.len == strlen(text) && memcmp(name.data, text, name.len) == 0;
}

int lp_acl_check_xattr(struct lp_bytes name, struct lp_bytes value)
{
	bool is_acl = is_name(name, LP_ACL_ACCESS) || is_name(name, LP_ACL_DEFAULT);
	return is_acl ? lp_acl_check(value.data, value.len) : 0;
}

static bool has_mask(const void *acl, size_t len)
{
	for (size_t i = 0; i < entry_cnt(len); i++) {
		if (get(acl, i).tag == MASK)
			return true;
	}
	return false;
}

/* Where in the mode an entry's bits are; -1: nowhere. */
static int shift_of(uint16_t tag, bool masked)
{
	switch (tag) {
	case OWNER:
		return 6;
	case GROUP:
		return masked ? -1 : 3;
	case MASK:
		return 3;
	case OTHERS:
		return 0;
	default:
		return -1;
	}
}

uint16_t lp_acl_mode(const void *acl, size_t len)
{
	bool masked = has_mask(acl, len);
	unsigned mode = 0;
	for (size_t i = 0; i < entry_cnt(len); i++) {
		struct entry entry = get(acl, i);
		int shift = shift_of(entry.tag, masked);
		if (shift >= 0)
			mode |= (unsigned)entry.perm << shift;
	}
	return (uint16_t)mode;
}

bool lp_acl_is_mode(const void *acl, size_t len)
{
	for (size_t i = 0; i < entry_cnt(len); i++) {
		if ((get(acl, i).tag & (NAMED_USER | NAMED_GROUP | MASK)) != 0)
			return false;
	}
	return true;
}

void lp_acl_chmod(void *acl, size_t len, uint16_t mode)
{
	bool masked = has_mask(acl, len);
	for (size_t i = 0; i < entry_cnt(len); i++) {
		int shift = shift_of(get(acl, i).tag, masked);
		if (shift >= 0)
			set_perm(acl, i, ((unsigned)mode >> shift) & RWX);
	}
}

uint16_t lp_acl_create(void *acl, size_t len, uint16_t mode)
{
	bool masked = has_mask(acl, len);
	unsigned bits = mode;
	for (size_t i = 0; i < entry_cnt(len); i++) {
		struct entry entry = get(acl, i);
		int shift = shift_of(entry.tag, masked);
		if (shift < 0)
			continue;
		unsigned perm = entry.perm & (bits >> shift);
		set_perm(acl, i, perm);
		bits = (bits & ~(RWX << shift)) | perm << shift;
	}
	return (uint16_t)bits;
}
