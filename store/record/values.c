/* SPDX-License-Identifier: Apache-2.0 */
/* For each kind: one function that says what is wrong with a value, by the name of the field.
 * Writing asserts that it finds nothing, reading reports what it finds. */
#include "store/record/values.h"

#include "base/assert.h"
#include "base/crc32c.h"
#include "format/inode.h"
#include "store/record/value_head.h"

/* The first 8 bytes are the same in all. */
static_assert(LP_DIRENT_VALUE_CRC_OFF == LPI_VALUE_CRC_OFF, "values begin alike");
static_assert(LP_FRAGMENT_VALUE_CRC_OFF == LPI_VALUE_CRC_OFF, "values begin alike");
static_assert(LP_UNFINISHED_VALUE_CRC_OFF == LPI_VALUE_CRC_OFF, "values begin alike");
static_assert(LP_DEFERRED_VALUE_CRC_OFF == LPI_VALUE_CRC_OFF, "values begin alike");

static uint32_t crc_of(const uint8_t *bytes, size_t len, const struct lp_key *key)
{
	uint32_t crc = lp_crc32c(0, key->bytes, key->len);
	crc = lp_crc32c(crc, bytes, LPI_VALUE_CRC_OFF);
	return lp_crc32c(crc, bytes + LPI_VALUE_HEAD_SIZE, len - LPI_VALUE_HEAD_SIZE);
}

void lpi_value_seal(uint8_t *bytes, size_t len, const struct lp_key *key, enum lp_key_space space)
{
	LP_ASSERT(key->bytes[0] == (uint8_t)space);
	LP_ASSERT(len >= LPI_VALUE_HEAD_SIZE);
	lp_put_le32(bytes + LPI_VALUE_CRC_OFF, crc_of(bytes, len, key));
}

int lpi_value_bad(const struct lp_key *key, const char *fault)
{
	bool has_number = key->len >= 1 + sizeof(uint64_t);
	return LP_CORRUPT(LP_OFFSET_NONE, "value of key %c %llu: %s", key->bytes[0],
			  has_number ? (unsigned long long)lp_get_be64(key->bytes + 1) : 0ULL,
			  fault);
}

int lpi_value_check(const uint8_t *bytes, size_t len, const struct lp_key *key,
		    enum lp_key_space space)
{
	LP_ASSERT(key->bytes[0] == (uint8_t)space);
	LP_ASSERT(len >= LPI_VALUE_HEAD_SIZE);
	uint32_t crc = crc_of(bytes, len, key);
	uint32_t stored = lp_get_le32(bytes + LPI_VALUE_CRC_OFF);
	if (crc != stored)
		return LP_CORRUPT_CRC(LP_OFFSET_NONE, "value of key %c: crc is %08x, stored %08x",
				      key->bytes[0], crc, stored);
	return bytes[0] == LP_VALUE_VERSION ? 0 : lpi_value_bad(key, "version");
}

/* A value of exactly this length. */
static int open_value(const uint8_t *bytes, size_t len, size_t want, const struct lp_key *key,
		      enum lp_key_space space)
{
	if (len != want)
		return lpi_value_bad(key, "length");
	return lpi_value_check(bytes, len, key, space);
}

static const char *dirent_fault(const struct lp_dirent_value *value)
{
	if (!lp_dirent_value_reserved_is_zero(value))
		return "reserved";
	if (lp_inode_type_name(value->type) == NULL)
		return "type";
	if (value->ino == 0)
		return "ino";
	if (value->insertion == 0 || value->insertion >= LP_INSERTION_MAX)
		return "insertion";
	return NULL;
}

static const char *fragment_fault(const struct lp_fragment_value *value)
{
	if (!lp_fragment_value_reserved_is_zero(value))
		return "reserved";
	if (value->is_sealed > 1)
		return "is_sealed";
	if (value->next_insertion == 0 || value->next_insertion > LP_INSERTION_MAX)
		return "next_insertion";
	if (value->entries_cnt >= value->next_insertion)
		return "entries_cnt";
	if (value->is_sealed == 1 && value->entries_cnt > 0)
		return "entries_cnt of a sealed fragment";
	if (value->name_bytes < value->entries_cnt)
		return "name_bytes";
	/* entries_cnt is below 2^56: this cannot overflow. */
	return value->name_bytes > value->entries_cnt * LP_KEY_NAME_MAX ? "name_bytes" : NULL;
}

static const char *unfinished_fault(const struct lp_unfinished_value *value)
{
	if (!lp_unfinished_value_reserved_is_zero(value))
		return "reserved";
	if (lp_unfinished_kind_name(value->kind) == NULL)
		return "kind";
	if (value->kind != LP_UNFINISHED_KIND_TRIM && value->from_block != 0)
		return "from_block";
	return value->from_block > LP_KEY_MAP_BLOCKS_MAX ? "from_block" : NULL;
}

static const char *damaged_fault(const struct lp_damaged_value *value)
{
	if (!lp_damaged_value_reserved_is_zero(value))
		return "reserved";
	if (lp_damaged_kind_name(value->kind) == NULL)
		return "kind";
	return value->since_ns < 0 ? "since_ns" : NULL;
}

static const char *scrub_fault(const struct lp_scrub_value *value)
{
	if (!lp_scrub_value_reserved_is_zero(value))
		return "reserved";
	if (value->is_under_way > 1)
		return "is_under_way";
	if (value->is_under_way == 0 && value->behind != 0)
		return "behind";
	if (value->since_ns < 0)
		return "since_ns";
	return value->whole_ns < 0 ? "whole_ns" : NULL;
}

static const char *deferred_fault(const struct lp_deferred_value *value)
{
	if (!lp_deferred_value_reserved_is_zero(value))
		return "reserved";
	if (value->file_block >= LP_KEY_MAP_BLOCKS_MAX ||
	    (value->ino == 0 && value->file_block != 0))
		return "file_block";
	return value->device_block >= LP_DEVICE_BLOCKS_MAX ? "device_block" : NULL;
}

void lp_dirent_write(const struct lp_dirent_value *value, const struct lp_key *key,
		     uint8_t ret_bytes[LP_DIRENT_VALUE_SIZE])
{
	struct lp_dirent_value out = *value;
	LP_ASSERT(dirent_fault(value) == NULL);
	out.version = LP_VALUE_VERSION;
	lp_dirent_value_encode(&out, ret_bytes);
	lpi_value_seal(ret_bytes, LP_DIRENT_VALUE_SIZE, key, LP_KEY_SPACE_DIRENT);
}

int lp_dirent_read(const void *bytes, size_t len, const struct lp_key *key,
		   struct lp_dirent_value *ret)
{
	struct lp_dirent_value value;
	int err = open_value(bytes, len, LP_DIRENT_VALUE_SIZE, key, LP_KEY_SPACE_DIRENT);
	if (err != 0)
		return err;
	lp_dirent_value_decode(bytes, &value);
	const char *fault = dirent_fault(&value);
	if (fault != NULL)
		return lpi_value_bad(key, fault);
	*ret = value;
	return 0;
}

void lp_fragment_write(const struct lp_fragment_value *value, const struct lp_key *key,
		       uint8_t ret_bytes[LP_FRAGMENT_VALUE_SIZE])
{
	struct lp_fragment_value out = *value;
	LP_ASSERT(fragment_fault(value) == NULL);
	out.version = LP_VALUE_VERSION;
	lp_fragment_value_encode(&out, ret_bytes);
	lpi_value_seal(ret_bytes, LP_FRAGMENT_VALUE_SIZE, key, LP_KEY_SPACE_FRAGMENT);
}

int lp_fragment_read(const void *bytes, size_t len, const struct lp_key *key,
		     struct lp_fragment_value *ret)
{
	struct lp_fragment_value value;
	int err = open_value(bytes, len, LP_FRAGMENT_VALUE_SIZE, key, LP_KEY_SPACE_FRAGMENT);
	if (err != 0)
		return err;
	lp_fragment_value_decode(bytes, &value);
	const char *fault = fragment_fault(&value);
	if (fault != NULL)
		return lpi_value_bad(key, fault);
	*ret = value;
	return 0;
}

bool lp_fragment_says_nothing(const struct lp_fragment_value *value)
{
	return value->next_insertion == 1 && value->entries_cnt == 0 && value->is_sealed == 0 &&
	       value->mtime_ns == 0 && value->ctime_ns == 0;
}

void lp_unfinished_write(const struct lp_unfinished_value *value, const struct lp_key *key,
			 uint8_t ret_bytes[LP_UNFINISHED_VALUE_SIZE])
{
	struct lp_unfinished_value out = *value;
	LP_ASSERT(unfinished_fault(value) == NULL);
	out.version = LP_VALUE_VERSION;
	lp_unfinished_value_encode(&out, ret_bytes);
	lpi_value_seal(ret_bytes, LP_UNFINISHED_VALUE_SIZE, key, LP_KEY_SPACE_UNFINISHED);
}

bool lp_unfinished_is_mark(const void *bytes, size_t len, const struct lp_key *key)
{
	struct lp_unfinished_value value;
	LP_ASSERT(key->bytes[0] == LP_KEY_SPACE_UNFINISHED);
	if (len != LP_UNFINISHED_VALUE_SIZE)
		return false;
	lp_unfinished_value_decode(bytes, &value);
	return value.version == LP_VALUE_VERSION && value.crc == crc_of(bytes, len, key) &&
	       unfinished_fault(&value) == NULL &&
	       (value.kind == LP_UNFINISHED_KIND_ORPHAN || value.kind == LP_UNFINISHED_KIND_UPLOAD);
}

int lp_unfinished_read(const void *bytes, size_t len, const struct lp_key *key,
		       struct lp_unfinished_value *ret)
{
	struct lp_unfinished_value value;
	int err = open_value(bytes, len, LP_UNFINISHED_VALUE_SIZE, key, LP_KEY_SPACE_UNFINISHED);
	if (err != 0)
		return err;
	lp_unfinished_value_decode(bytes, &value);
	const char *fault = unfinished_fault(&value);
	if (fault != NULL)
		return lpi_value_bad(key, fault);
	*ret = value;
	return 0;
}

void lp_scrub_write(const struct lp_scrub_value *value, const struct lp_key *key,
		    uint8_t ret_bytes[LP_SCRUB_VALUE_SIZE])
{
	struct lp_scrub_value out = *value;
	LP_ASSERT(scrub_fault(value) == NULL);
	out.version = LP_VALUE_VERSION;
	lp_scrub_value_encode(&out, ret_bytes);
	lpi_value_seal(ret_bytes, LP_SCRUB_VALUE_SIZE, key, LP_KEY_SPACE_STORE);
}

int lp_scrub_read(const void *bytes, size_t len, const struct lp_key *key,
		  struct lp_scrub_value *ret)
{
	struct lp_scrub_value value;
	int err = open_value(bytes, len, LP_SCRUB_VALUE_SIZE, key, LP_KEY_SPACE_STORE);
	if (err != 0)
		return err;
	lp_scrub_value_decode(bytes, &value);
	const char *fault = scrub_fault(&value);
	if (fault != NULL)
		return lpi_value_bad(key, fault);
	*ret = value;
	return 0;
}

void lp_damaged_write(const struct lp_damaged_value *value, const struct lp_key *key,
		      uint8_t ret_bytes[LP_DAMAGED_VALUE_SIZE])
{
	struct lp_damaged_value out = *value;
	LP_ASSERT(damaged_fault(value) == NULL);
	out.version = LP_VALUE_VERSION;
	lp_damaged_value_encode(&out, ret_bytes);
	lpi_value_seal(ret_bytes, LP_DAMAGED_VALUE_SIZE, key, LP_KEY_SPACE_STORE);
}

int lp_damaged_read(const void *bytes, size_t len, const struct lp_key *key,
		    struct lp_damaged_value *ret)
{
	struct lp_damaged_value value;
	int err = open_value(bytes, len, LP_DAMAGED_VALUE_SIZE, key, LP_KEY_SPACE_STORE);
	if (err != 0)
		return err;
	lp_damaged_value_decode(bytes, &value);
	const char *fault = damaged_fault(&value);
	if (fault != NULL)
		return lpi_value_bad(key, fault);
	*ret = value;
	return 0;
}

void lp_deferred_write(const struct lp_deferred_value *value, const struct lp_key *key,
		       uint8_t ret_bytes[LP_DEFERRED_VALUE_SIZE])
{
	struct lp_deferred_value out = *value;
	LP_ASSERT(deferred_fault(value) == NULL);
	out.version = LP_VALUE_VERSION;
	lp_deferred_value_encode(&out, ret_bytes);
	lpi_value_seal(ret_bytes, LP_DEFERRED_VALUE_SIZE, key, LP_KEY_SPACE_DEFERRED);
}

int lp_deferred_read(const void *bytes, size_t len, const struct lp_key *key,
		     struct lp_deferred_value *ret)
{
	struct lp_deferred_value value;
	if (len != LP_DEFERRED_RECORD_BYTES)
		return lpi_value_bad(key, "length");
	int err = lpi_value_check(bytes, LP_DEFERRED_VALUE_SIZE, key, LP_KEY_SPACE_DEFERRED);
	if (err != 0)
		return err;
	lp_deferred_value_decode(bytes, &value);
	const char *fault = deferred_fault(&value);
	if (fault != NULL)
		return lpi_value_bad(key, fault);
	uint32_t crc =
		lp_crc32c(0, (const uint8_t *)bytes + LP_DEFERRED_VALUE_SIZE, LP_BLOCK_BYTES);
	if (crc != value.block_crc)
		return LP_CORRUPT_CRC(LP_OFFSET_NONE,
				      "a deferred payload of block %llu: crc is %08x, stored %08x",
				      (unsigned long long)value.device_block, crc, value.block_crc);
	*ret = value;
	return 0;
}
