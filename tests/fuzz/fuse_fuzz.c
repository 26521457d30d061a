/* SPDX-License-Identifier: Apache-2.0 */
/* One message of the kernel's FUSE protocol; the header's length is repaired first, unless bit 7 of
 * the opcode's second byte is set, so that what lies behind it is reached.
 *
 * What is decoded lies within the bytes, names have no zero byte in them and are not empty; the
 * value of an access list is read as one. */
#include <stdlib.h>
#include <string.h>

#include "fuse/proto.h"
#include "namespace/state/acl.h"
#include "tests/fuzz/fuzz.h"

static void check_acl(const uint8_t *bytes, uint32_t len)
{
	uint8_t *acl = malloc(len + 1);
	LP_ASSERT(acl != NULL);
	if (len > 0)
		memcpy(acl, bytes, len);
	if (lp_acl_check(acl, len) == 0) {
		uint16_t mode = lp_acl_create(acl, len, 0750);
		LP_ASSERT((mode & ~0750u) == 0 && lp_acl_mode(acl, len) == mode);
		lp_acl_chmod(acl, len, 0604);
		LP_ASSERT(lp_acl_check(acl, len) == 0 && lp_acl_mode(acl, len) == 0604);
	}
	free(acl);
}

static void check(const uint8_t *bytes, uint32_t len)
{
	struct lp_fuse_message message;
	if (lp_fuse_decode(bytes, len, &message) != 0)
		return;
	LP_ASSERT(message.opcode != NULL && message.header.len == len);
	for (uint32_t i = 0; i < message.opcode->name_cnt; i++) {
		const uint8_t *name = message.names[i].data;
		LP_ASSERT(message.names[i].len > 0);
		LP_ASSERT(name > bytes && name + message.names[i].len < bytes + len);
		LP_ASSERT(memchr(name, 0, message.names[i].len) == NULL);
	}
	if (message.data == NULL)
		return;
	LP_ASSERT(message.data > bytes && message.data + message.data_bytes <= bytes + len);
	if (message.header.opcode == FUSE_SETXATTR)
		check_acl(message.data, message.data_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	if (len > 1 << 16)
		return 0;
	uint8_t *copy = malloc(len + 1);
	LP_ASSERT(copy != NULL);
	if (len > 0)
		memcpy(copy, bytes, len);
	uint32_t length = (uint32_t)len;
	if (len >= sizeof(struct fuse_in_header) && (bytes[5] & 0x80) == 0)
		memcpy(copy, &length, sizeof(length));
	check(copy, length);
	free(copy);
	return 0;
}
