/* SPDX-License-Identifier: Apache-2.0 */
/* Fixed-width numbers to and from bytes at any alignment.
 *
 * Threads: any.
 * Blocking, memory, errors: none.
 *
 * Formats on the device and on the wire are little-endian. Big-endian is for keys, whose order as
 * bytes must be their order as numbers. The caller has made sure that the bytes are there: decoders
 * of input use base/cursor.h.
 */
#ifndef LP_BASE_ENDIAN_H
#define LP_BASE_ENDIAN_H

#include <endian.h>
#include <string.h>

#include "base/compiler.h"

static inline uint16_t lp_get_le16(const void *from)
{
	uint16_t raw;
	memcpy(&raw, from, sizeof(raw));
	return le16toh(raw);
}

static inline uint32_t lp_get_le32(const void *from)
{
	uint32_t raw;
	memcpy(&raw, from, sizeof(raw));
	return le32toh(raw);
}

static inline uint64_t lp_get_le64(const void *from)
{
	uint64_t raw;
	memcpy(&raw, from, sizeof(raw));
	return le64toh(raw);
}

static inline void lp_put_le16(void *to, uint16_t value)
{
	uint16_t raw = htole16(value);
	memcpy(to, &raw, sizeof(raw));
}

static inline void lp_put_le32(void *to, uint32_t value)
{
	uint32_t raw = htole32(value);
	memcpy(to, &raw, sizeof(raw));
}

static inline void lp_put_le64(void *to, uint64_t value)
{
	uint64_t raw = htole64(value);
	memcpy(to, &raw, sizeof(raw));
}

/* cnt numbers, one behind the other. */
static inline void lp_put_le32s(void *to, const uint32_t *values, size_t cnt)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	if (cnt > 0)
		memcpy(to, values, cnt * sizeof(*values));
#else
	for (size_t i = 0; i < cnt; i++)
		lp_put_le32((unsigned char *)to + i * sizeof(*values), values[i]);
#endif
}

static inline uint32_t lp_get_be32(const void *from)
{
	uint32_t raw;
	memcpy(&raw, from, sizeof(raw));
	return be32toh(raw);
}

static inline uint64_t lp_get_be64(const void *from)
{
	uint64_t raw;
	memcpy(&raw, from, sizeof(raw));
	return be64toh(raw);
}

static inline void lp_put_be32(void *to, uint32_t value)
{
	uint32_t raw = htobe32(value);
	memcpy(to, &raw, sizeof(raw));
}

static inline void lp_put_be64(void *to, uint64_t value)
{
	uint64_t raw = htobe64(value);
	memcpy(to, &raw, sizeof(raw));
}

#endif
