/* SPDX-License-Identifier: Apache-2.0 */
/* One function knows the shape of each kind of change, for both directions: which fields it has,
 * and of what sizes. */
#include "namespace/state/pact_record.h"

#include "base/crc32c.h"
#include "base/cursor.h"
#include "base/error.h"
#include "store/record/keys.h"

/* The mask of attributes is that of store.h, number by number. */
static_assert((int)LP_PACT_ATTR_MODE == (int)LP_ATTR_MODE, "as store.h");
static_assert((int)LP_PACT_ATTR_UID == (int)LP_ATTR_UID, "as store.h");
static_assert((int)LP_PACT_ATTR_GID == (int)LP_ATTR_GID, "as store.h");
static_assert((int)LP_PACT_ATTR_NLINK == (int)LP_ATTR_NLINK, "as store.h");
static_assert((int)LP_PACT_ATTR_ATIME == (int)LP_ATTR_ATIME, "as store.h");
static_assert((int)LP_PACT_ATTR_MTIME == (int)LP_ATTR_MTIME, "as store.h");
static_assert((int)LP_PACT_ATTR_CTIME == (int)LP_ATTR_CTIME, "as store.h");
static_assert((int)LP_PACT_ATTR_BTIME == (int)LP_ATTR_BTIME, "as store.h");
static_assert((int)LP_PACT_ATTR_FLAGS == (int)LP_ATTR_FLAGS, "as store.h");
static_assert((int)LP_PACT_ATTR_PARENT == (int)LP_ATTR_PARENT, "as store.h");
static_assert((int)LP_PACT_ATTR_ALL == (int)LP_ATTRS_ALL, "as store.h");

#define DIR_SEAL   1u
#define DIR_UNSEAL 2u
#define DIR_DROP   4u

void lpi_pact_key(uint64_t txid, uint8_t ret_key[LPI_PACT_KEY_BYTES])
{
	ret_key[0] = LP_KEY_SPACE_TXN;
	lp_put_be64(ret_key + 1, txid);
}

int lpi_pact_key_parse(struct lp_bytes key, uint64_t *ret_txid)
{
	const uint8_t *bytes = key.data;
	if (key.len != LPI_PACT_KEY_BYTES || bytes[0] != LP_KEY_SPACE_TXN)
		return LP_CORRUPT(LP_OFFSET_NONE, "key of a change over several shards");
	*ret_txid = lp_get_be64(bytes + 1);
	return 0;
}

static uint32_t crc_of(uint64_t txid, const uint8_t *bytes, size_t len)
{
	uint8_t key[LPI_PACT_KEY_BYTES];
	size_t rest = LP_PACT_HEAD_CRC_OFF + LP_PACT_HEAD_CRC_SIZE;
	lpi_pact_key(txid, key);
	uint32_t crc = lp_crc32c(0, key, sizeof(key));
	crc = lp_crc32c(crc, bytes, LP_PACT_HEAD_CRC_OFF);
	return lp_crc32c(crc, bytes + rest, len - rest);
}

/* --- Writing ---------------------------------------------------------------------------------- */

static void encode_attrs(const struct lp_attrs *attrs, bool is_new, uint8_t *ret)
{
	const struct lp_pact_attrs out = {.atime_ns = attrs->atime_ns,
					  .mtime_ns = attrs->mtime_ns,
					  .ctime_ns = attrs->ctime_ns,
					  .btime_ns = attrs->btime_ns,
					  .parent_ino = attrs->parent.nr,
					  .uid = attrs->uid,
					  .gid = attrs->gid,
					  .nlink = attrs->nlink,
					  .flags = attrs->flags,
					  .rdev = attrs->rdev,
					  .mode = attrs->mode,
					  .type = is_new ? attrs->type : 0};
	lp_pact_attrs_encode(&out, ret);
}

static bool encode_change(struct lp_writer *writer, const struct lp_change *change)
{
	struct lp_pact_change head = {.ino = change->ino.nr};
	struct lp_bytes name = {0};
	uint8_t attrs[LP_PACT_ATTRS_SIZE];
	uint8_t bytes[LP_PACT_CHANGE_SIZE];
	struct lp_bytes value = {0};
	switch (change->type) {
	case LP_CHANGE_CREATE:
	case LP_CHANGE_SET:
		LP_ASSERT(change->inode.target.data == NULL);
		head.kind = change->type == LP_CHANGE_CREATE ? LP_PACT_CHANGE_KIND_CREATE
							     : LP_PACT_CHANGE_KIND_SET;
		head.extra = change->type == LP_CHANGE_SET ? change->inode.mask : 0;
		encode_attrs(change->inode.attrs, change->type == LP_CHANGE_CREATE, attrs);
		value = (struct lp_bytes){attrs, sizeof(attrs)};
		name = change->inode.name;
		break;
	case LP_CHANGE_LINK:
		head.kind = LP_PACT_CHANGE_KIND_LINK;
		head.target = (uint64_t)(int64_t)change->inode.delta;
		break;
	case LP_CHANGE_REMOVE:
		head.kind = LP_PACT_CHANGE_KIND_REMOVE;
		break;
	case LP_CHANGE_ENTRY_SET:
		head.kind = LP_PACT_CHANGE_KIND_ENTRY_SET;
		head.target = change->named.target.nr;
		head.target_type = change->named.target_type;
		name = change->named.name;
		break;
	case LP_CHANGE_ENTRY_REMOVE:
		head.kind = LP_PACT_CHANGE_KIND_ENTRY_REMOVE;
		name = change->named.name;
		break;
	case LP_CHANGE_DIR:
		head.kind = LP_PACT_CHANGE_KIND_DIR;
		head.target = (uint64_t)change->dir.mtime_ns;
		head.extra = (uint64_t)change->dir.ctime_ns;
		head.target_type = (uint8_t)((change->dir.seal ? DIR_SEAL : 0u) |
					     (change->dir.unseal ? DIR_UNSEAL : 0u) |
					     (change->dir.drop ? DIR_DROP : 0u));
		break;
	case LP_CHANGE_RECORD:
		LP_ASSERT(change->named.value.data == NULL || change->named.value.len > 0);
		head.kind = LP_PACT_CHANGE_KIND_RECORD;
		head.ino = 0;
		head.target = change->named.value.data == NULL;
		name = change->named.name;
		value = change->named.value;
		break;
	default: /* not of the kinds that other shards are asked for */
		return false;
	}
	head.name_bytes = (uint16_t)name.len;
	head.value_bytes = value.len;
	lp_pact_change_encode(&head, bytes);
	lp_writer_bytes(writer, bytes, sizeof(bytes));
	lp_writer_bytes(writer, name.data, name.len);
	lp_writer_bytes(writer, value.data, value.len);
	return true;
}

size_t lpi_pact_record_encode(const struct lpi_pact_record *record, uint64_t txid, uint8_t *buf)
{
	struct lp_writer writer;
	size_t len = 0;
	lp_writer_init(&writer, buf, LPI_PACT_RECORD_BYTES_MAX);
	uint8_t *head_bytes = lp_writer_reserve(&writer, LP_PACT_HEAD_SIZE);
	struct lp_pact_head head = {.version = LP_PACT_VERSION,
				    .kind = (uint8_t)record->kind,
				    .coordinator = record->coordinator,
				    .participants = record->participants,
				    .since_ns = record->since_ns,
				    .sealed_ino = record->sealed.nr};
	for (uint32_t i = 0; i < record->change_cnt; i++) {
		if (record->changes[i].type < LP_CHANGE_CREATE)
			continue;
		bool is_encoded = encode_change(&writer, &record->changes[i]);
		LP_ASSERT(is_encoded);
		head.change_cnt++;
	}
	LP_ASSERT(head.change_cnt <= LPI_PACT_CHANGES_MAX);
	bool fits = lp_writer_finish(&writer, &len);
	LP_ASSERT(fits);
	lp_pact_head_encode(&head, head_bytes);
	lp_put_le32(buf + LP_PACT_HEAD_CRC_OFF, crc_of(txid, buf, len));
	return len;
}

/* --- Reading ---------------------------------------------------------------------------------- */

static const char *decode_attrs(const uint8_t *bytes, bool is_new, struct lp_attrs *ret)
{
	struct lp_pact_attrs in;
	lp_pact_attrs_decode(bytes, &in);
	if (!lp_pact_attrs_reserved_is_zero(&in))
		return "reserved fields of attributes";
	if (is_new ? lp_inode_type_name(in.type) == NULL : in.type != 0)
		return "type of an inode";
	if (in.mode > 07777 || (in.flags & ~(uint32_t)LP_INODE_FLAG_ALL) != 0)
		return "attributes";
	*ret = (struct lp_attrs){.atime_ns = in.atime_ns,
				 .mtime_ns = in.mtime_ns,
				 .ctime_ns = in.ctime_ns,
				 .btime_ns = in.btime_ns,
				 .parent = {in.parent_ino},
				 .uid = in.uid,
				 .gid = in.gid,
				 .nlink = in.nlink,
				 .flags = in.flags,
				 .rdev = in.rdev,
				 .mode = in.mode,
				 .type = in.type};
	return NULL;
}

static const char *decode_inode(const struct lp_pact_change *head, struct lp_bytes name,
				struct lp_bytes value, struct lp_attrs *attrs,
				struct lp_change *ret)
{
	if (value.len != LP_PACT_ATTRS_SIZE)
		return "size of attributes";
	bool is_new = head->kind == LP_PACT_CHANGE_KIND_CREATE;
	if (head->extra > (is_new ? 0 : LP_ATTRS_ALL) || head->target != 0 ||
	    head->target_type != 0)
		return "fields of an inode's change";
	if (name.len > 0 && !lp_key_name_is_valid(name.data, name.len))
		return "name";
	ret->type = is_new ? LP_CHANGE_CREATE : LP_CHANGE_SET;
	ret->inode.attrs = attrs;
	ret->inode.mask = (uint32_t)head->extra;
	if (name.len > 0)
		ret->inode.name = name;
	return decode_attrs(value.data, is_new, attrs);
}

static const char *decode_dir(const struct lp_pact_change *head, struct lp_change *ret)
{
	bool does_more = head->target != 0 || head->extra != 0 || head->target_type != DIR_DROP;
	if (head->target_type > DIR_DROP || head->target_type == (DIR_SEAL | DIR_UNSEAL) ||
	    (head->target_type == DIR_DROP && does_more))
		return "flags of a directory";
	ret->type = LP_CHANGE_DIR;
	ret->dir.mtime_ns = (int64_t)head->target;
	ret->dir.ctime_ns = (int64_t)head->extra;
	ret->dir.seal = (head->target_type & DIR_SEAL) != 0;
	ret->dir.unseal = (head->target_type & DIR_UNSEAL) != 0;
	ret->dir.drop = (head->target_type & DIR_DROP) != 0;
	return NULL;
}

static const char *decode_entry(const struct lp_pact_change *head, struct lp_bytes name,
				struct lp_change *ret)
{
	bool is_set = head->kind == LP_PACT_CHANGE_KIND_ENTRY_SET;
	if (!lp_key_name_is_valid(name.data, name.len))
		return "name of an entry";
	if (is_set ? head->target == 0 || lp_inode_type_name(head->target_type) == NULL
		   : head->target != 0 || head->target_type != 0)
		return "target of an entry";
	ret->type = is_set ? LP_CHANGE_ENTRY_SET : LP_CHANGE_ENTRY_REMOVE;
	ret->named.name = name;
	ret->named.target.nr = head->target;
	ret->named.target_type = head->target_type;
	return NULL;
}

static const char *decode_record(const struct lp_pact_change *head, struct lp_bytes name,
				 struct lp_bytes value, struct lp_change *ret)
{
	const uint8_t *key = name.data;
	if (!lp_key_record_is_valid(name.data, name.len) || key[0] != LP_KEY_SPACE_UNFINISHED)
		return "key of a record";
	if (head->target > 1 || (head->target == 1) != (value.len == 0))
		return "value of a record";
	ret->type = LP_CHANGE_RECORD;
	ret->named.name = name;
	if (head->target == 0)
		ret->named.value = value;
	return NULL;
}

/* Fields that its kind has no use for must be zero: a later format may give them a meaning. */
static bool has_only_its_fields(const struct lp_pact_change *head)
{
	switch (head->kind) {
	case LP_PACT_CHANGE_KIND_LINK:
	case LP_PACT_CHANGE_KIND_RECORD:
		return head->target_type == 0 && head->extra == 0;
	case LP_PACT_CHANGE_KIND_REMOVE:
		return head->target_type == 0 && head->target == 0 && head->extra == 0;
	case LP_PACT_CHANGE_KIND_ENTRY_SET:
	case LP_PACT_CHANGE_KIND_ENTRY_REMOVE:
		return head->extra == 0;
	default: /* looked at where the kind is */
		return true;
	}
}

/* The error, or NULL. */
static const char *decode_change(const struct lp_pact_change *head, struct lp_bytes name,
				 struct lp_bytes value, struct lp_attrs *attrs,
				 struct lp_change *ret)
{
	bool is_record = head->kind == LP_PACT_CHANGE_KIND_RECORD;
	*ret = (struct lp_change){.ino = {head->ino}};
	if ((head->ino == 0) != is_record)
		return "inode of a change";
	if (!has_only_its_fields(head))
		return "fields of a change";
	switch (head->kind) {
	case LP_PACT_CHANGE_KIND_CREATE:
	case LP_PACT_CHANGE_KIND_SET:
		return decode_inode(head, name, value, attrs, ret);
	case LP_PACT_CHANGE_KIND_RECORD:
		return decode_record(head, name, value, ret);
	default:
		break;
	}
	if (value.len != 0)
		return "value";
	switch (head->kind) {
	case LP_PACT_CHANGE_KIND_LINK:
		if ((int64_t)head->target != (int32_t)head->target)
			return "change of a link count";
		ret->type = LP_CHANGE_LINK;
		ret->inode.delta = (int32_t)head->target;
		break;
	case LP_PACT_CHANGE_KIND_REMOVE:
		ret->type = LP_CHANGE_REMOVE;
		break;
	case LP_PACT_CHANGE_KIND_ENTRY_SET:
	case LP_PACT_CHANGE_KIND_ENTRY_REMOVE:
		return decode_entry(head, name, ret);
	case LP_PACT_CHANGE_KIND_DIR:
		return name.len != 0 ? "name" : decode_dir(head, ret);
	default:
		return "kind of a change";
	}
	return name.len != 0 ? "name" : NULL;
}

static const char *decode_head(const struct lp_pact_head *head, uint32_t shard_cnt)
{
	uint64_t shards = shard_cnt == 64 ? UINT64_MAX : (UINT64_C(1) << shard_cnt) - 1;
	if (head->version != LP_PACT_VERSION)
		return "version";
	if (lp_pact_kind_name(head->kind) == NULL)
		return "kind";
	if (!lp_pact_head_reserved_is_zero(head))
		return "reserved fields";
	if (head->change_cnt > LPI_PACT_CHANGES_MAX)
		return "number of changes";
	if (head->coordinator >= shard_cnt)
		return "coordinator";
	if (head->kind == LP_PACT_KIND_DECIDED
		    ? head->change_cnt != 0 || head->participants == 0 || head->sealed_ino != 0
		    : head->participants != 0)
		return "participants";
	return (head->participants & ~shards) != 0 ? "participants" : NULL;
}

int lpi_pact_record_decode(struct lp_bytes value, uint64_t txid, uint32_t shard_cnt,
			   struct lpi_pact_decoded *ret)
{
	struct lp_pact_head head;
	struct lp_reader reader;
	unsigned long long nr = (unsigned long long)txid;
	if (value.len < LP_PACT_HEAD_SIZE)
		return LP_CORRUPT(LP_OFFSET_NONE, "change %llx over several shards: length", nr);
	lp_reader_init(&reader, value.data, value.len);
	lp_pact_head_decode(lp_reader_bytes(&reader, LP_PACT_HEAD_SIZE), &head);
	if (crc_of(txid, value.data, value.len) != head.crc)
		return LP_CORRUPT_CRC(LP_OFFSET_NONE, "change %llx over several shards", nr);
	const char *fault = decode_head(&head, shard_cnt);
	for (uint32_t i = 0; fault == NULL && i < head.change_cnt; i++) {
		struct lp_pact_change change = {0};
		const uint8_t *bytes = lp_reader_bytes(&reader, LP_PACT_CHANGE_SIZE);
		if (bytes != NULL)
			lp_pact_change_decode(bytes, &change);
		struct lp_bytes name = {.len = change.name_bytes};
		name.data = lp_reader_bytes(&reader, name.len);
		struct lp_bytes data = {.len = change.value_bytes};
		data.data = lp_reader_bytes(&reader, data.len);
		if (lp_reader_failed(&reader))
			break;
		fault = decode_change(&change, name, data, &ret->attrs[i], &ret->changes[i]);
	}
	if (fault == NULL && !lp_reader_finish(&reader))
		fault = "length";
	if (fault != NULL)
		return LP_CORRUPT(LP_OFFSET_NONE, "change %llx over several shards: %s", nr, fault);
	ret->record = (struct lpi_pact_record){.kind = (enum lp_pact_kind)head.kind,
					       .coordinator = head.coordinator,
					       .participants = head.participants,
					       .since_ns = head.since_ns,
					       .sealed = {head.sealed_ino},
					       .change_cnt = head.change_cnt,
					       .changes = ret->changes};
	return 0;
}
