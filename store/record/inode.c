/* SPDX-License-Identifier: Apache-2.0 */
/* lp_inode_fault() holds all rules about what an inode may say, for both directions. Decoding first
 * checks the frame (magic, lengths, crc), then takes it apart, then asks it. */
#include "store/record/inode.h"

#include "base/assert.h"
#include "base/crc32c.h"
#include "base/cursor.h"

#define INODE_MAGIC UINT32_C(0x6e49504c)
#define CRC_BYTES   sizeof(uint32_t)
/* Of one packed xattr, before its name. */
#define XATTR_HEAD_BYTES 3u

static const uint32_t dir_flags =
	LP_INODE_FLAG_MADE_BY_PUT | LP_INODE_FLAG_SPREAD | LP_INODE_FLAG_SEALED;

/* --- xattrs --------------------------------------------------------------------------------- */

static void get_xattr(struct lp_reader *reader, struct lp_xattr *ret)
{
	ret->name.len = lp_reader_u8(reader);
	ret->value.len = lp_reader_u16(reader);
	ret->name.at = lp_reader_bytes(reader, ret->name.len);
	ret->value.at = lp_reader_bytes(reader, ret->value.len);
}

static void put_xattr(struct lp_writer *writer, const struct lp_inode_bytes *name,
		      const struct lp_inode_bytes *value)
{
	lp_writer_u8(writer, (uint8_t)name->len);
	lp_writer_u16(writer, (uint16_t)value->len);
	lp_writer_bytes(writer, name->at, name->len);
	lp_writer_bytes(writer, value->at, value->len);
}

static int compare_names(const struct lp_inode_bytes *a, const struct lp_inode_bytes *b)
{
	return lp_key_compare(a->at, a->len, b->at, b->len);
}

static bool xattrs_are_valid(struct lp_inode_bytes list)
{
	struct lp_xattr last = {.name = {NULL, 0}};
	struct lp_reader reader;
	if (list.len > LP_INODE_XATTRS_MAX)
		return false;
	lp_reader_init(&reader, list.at, list.len);
	while (lp_reader_remaining(&reader) > 0) {
		struct lp_xattr xattr;
		get_xattr(&reader, &xattr);
		if (lp_reader_failed(&reader))
			return false;
		if (!lp_key_xattr_name_is_valid(xattr.name.at, xattr.name.len))
			return false;
		if (last.name.len > 0 && compare_names(&last.name, &xattr.name) >= 0)
			return false;
		last = xattr;
	}
	return lp_reader_finish(&reader);
}

bool lp_xattrs_next(struct lp_inode_bytes list, size_t *offset, struct lp_xattr *ret)
{
	struct lp_reader reader;
	LP_ASSERT(*offset <= list.len);
	if (*offset == list.len)
		return false;
	lp_reader_init(&reader, list.at + *offset, list.len - *offset);
	get_xattr(&reader, ret);
	LP_ASSERT(!lp_reader_failed(&reader));
	*offset += lp_reader_offset(&reader);
	return true;
}

bool lp_xattrs_find(struct lp_inode_bytes list, const void *name, size_t len, struct lp_xattr *ret)
{
	struct lp_xattr xattr;
	for (size_t offset = 0; lp_xattrs_next(list, &offset, &xattr);) {
		if (lp_key_compare(xattr.name.at, xattr.name.len, name, len) == 0) {
			*ret = xattr;
			return true;
		}
	}
	return false;
}

int lp_xattrs_set(struct lp_inode_bytes from, const struct lp_inode_bytes *name,
		  const struct lp_inode_bytes *value, uint8_t *to)
{
	struct lp_writer writer;
	struct lp_xattr xattr;
	size_t len = 0;
	bool is_due = value != NULL;
	LP_ASSERT(lp_key_xattr_name_is_valid(name->at, name->len));
	LP_ASSERT(xattrs_are_valid(from));
	if (is_due && value->len > LP_INODE_XATTRS_MAX)
		return -ENOSPC;
	lp_writer_init(&writer, to, LP_INODE_XATTRS_MAX);
	for (size_t offset = 0; lp_xattrs_next(from, &offset, &xattr);) {
		int order = compare_names(name, &xattr.name);
		if (order <= 0 && is_due) {
			put_xattr(&writer, name, value);
			is_due = false;
		}
		if (order != 0)
			put_xattr(&writer, &xattr.name, &xattr.value);
	}
	if (is_due)
		put_xattr(&writer, name, value);
	if (!lp_writer_finish(&writer, &len))
		return -ENOSPC;
	return (int)len;
}

/* --- rules ---------------------------------------------------------------------------------- */

static const char *identity_fault(const struct lp_inode *inode)
{
	bool is_dir = inode->type == LP_INODE_TYPE_DIR;
	if (inode->ino.nr == 0)
		return "ino";
	if (lp_inode_type_name(inode->type) == NULL)
		return "type";
	if (inode->mode > 07777)
		return "mode";
	if ((inode->flags & ~LP_INODE_FLAG_ALL) != 0 ||
	    (!is_dir && (inode->flags & dir_flags) != 0))
		return "flags";
	/* Rule N3. */
	if (is_dir && inode->parent.nr == 0)
		return "parent_ino";
	if (inode->name.len > 0 && inode->parent.nr == 0)
		return "name without parent_ino";
	if (!is_dir && inode->parent.nr != 0 && inode->name.len == 0)
		return "parent_ino without name";
	if (inode->name.len > 0 && !lp_key_name_is_valid(inode->name.at, inode->name.len))
		return "name";
	return xattrs_are_valid(inode->xattrs) ? NULL : "xattrs";
}

static const char *file_fault(const struct lp_inode *inode)
{
	if (inode->size_bytes > LP_INODE_SIZE_MAX)
		return "size_bytes";
	if (inode->content.len > LP_INODE_INLINE_MAX || inode->content.len > inode->size_bytes)
		return "inline_data";
	if (inode->map.len > LP_INODE_MAP_MAX)
		return "map";
	return inode->content.len > 0 && inode->map.len > 0 ? "inline_data and map" : NULL;
}

static const char *symlink_fault(const struct lp_inode *inode)
{
	const struct lp_inode_bytes *target = &inode->target;
	if (target->len == 0 || target->len > LP_INODE_TARGET_MAX)
		return "target";
	if (memchr(target->at, '\0', target->len) != NULL)
		return "target";
	return target->len == inode->size_bytes ? NULL : "size_bytes";
}

const char *lp_inode_fault(const struct lp_inode *inode)
{
	bool is_file = inode->type == LP_INODE_TYPE_FILE;
	bool is_symlink = inode->type == LP_INODE_TYPE_SYMLINK;
	bool is_device =
		inode->type == LP_INODE_TYPE_CHARDEV || inode->type == LP_INODE_TYPE_BLOCKDEV;
	const char *fault = identity_fault(inode);
	if (fault != NULL)
		return fault;
	if (!is_file && (inode->content.len > 0 || inode->map.len > 0))
		return "data of what is no file";
	if (!is_symlink && inode->target.len > 0)
		return "target of what is no symlink";
	if (!is_device && inode->rdev != 0)
		return "rdev of what is no device";
	if (inode->content.len == 0 && inode->target.len == 0 && inode->content_crc != 0)
		return "content_crc";
	if (is_file)
		return file_fault(inode);
	if (is_symlink)
		return symlink_fault(inode);
	return inode->size_bytes == 0 ? NULL : "size_bytes";
}

/* --- encoding ------------------------------------------------------------------------------- */

static void put_section(struct lp_writer *writer, enum lp_inode_section_kind kind, size_t len)
{
	struct lp_inode_section head = {.kind = (uint8_t)kind, .bytes = (uint16_t)len};
	uint8_t *at = lp_writer_reserve(writer, LP_INODE_SECTION_SIZE);
	LP_ASSERT(len > 0 && len <= UINT16_MAX);
	LP_ASSERT(at != NULL);
	lp_inode_section_encode(&head, at);
}

static void put_plain(struct lp_writer *writer, enum lp_inode_section_kind kind,
		      const struct lp_inode_bytes *bytes)
{
	if (bytes->len == 0)
		return;
	put_section(writer, kind, bytes->len);
	lp_writer_bytes(writer, bytes->at, bytes->len);
}

static void put_summed(struct lp_writer *writer, enum lp_inode_section_kind kind,
		       const struct lp_inode_bytes *bytes, uint32_t crc)
{
	if (bytes->len == 0)
		return;
	put_section(writer, kind, CRC_BYTES + bytes->len);
	lp_writer_u32(writer, crc);
	lp_writer_bytes(writer, bytes->at, bytes->len);
}

static void put_head(uint8_t *buf, const struct lp_inode *inode, size_t record_bytes)
{
	struct lp_inode_head head = {
		.magic = INODE_MAGIC,
		.version = 1,
		.type = inode->type,
		.head_bytes = LP_INODE_HEAD_SIZE,
		.record_bytes = (uint32_t)record_bytes,
		.flags = inode->flags,
		.ino = inode->ino.nr,
		.version_nr = inode->version_nr,
		.size_bytes = inode->size_bytes,
		.atime_ns = inode->atime_ns,
		.mtime_ns = inode->mtime_ns,
		.ctime_ns = inode->ctime_ns,
		.btime_ns = inode->btime_ns,
		.parent_ino = inode->parent.nr,
		.uid = inode->uid,
		.gid = inode->gid,
		.nlink = inode->nlink,
		.mode = inode->mode,
	};
	lp_inode_head_encode(&head, buf);
}

size_t lp_inode_encode(const struct lp_inode *inode, uint8_t *buf)
{
	struct lp_writer writer;
	size_t len = 0;
	bool is_device =
		inode->type == LP_INODE_TYPE_CHARDEV || inode->type == LP_INODE_TYPE_BLOCKDEV;
	LP_ASSERT(lp_inode_fault(inode) == NULL);
	lp_writer_init(&writer, buf, LP_INODE_BYTES_MAX - CRC_BYTES);
	(void)lp_writer_reserve(&writer, LP_INODE_HEAD_SIZE); /* filled below */
	put_plain(&writer, LP_INODE_SECTION_KIND_NAME, &inode->name);
	put_summed(&writer, LP_INODE_SECTION_KIND_TARGET, &inode->target, inode->content_crc);
	put_summed(&writer, LP_INODE_SECTION_KIND_INLINE_DATA, &inode->content, inode->content_crc);
	put_plain(&writer, LP_INODE_SECTION_KIND_XATTRS, &inode->xattrs);
	put_plain(&writer, LP_INODE_SECTION_KIND_MAP, &inode->map);
	if (is_device) {
		put_section(&writer, LP_INODE_SECTION_KIND_RDEV, sizeof(inode->rdev));
		lp_writer_u32(&writer, inode->rdev);
	}
	bool fits = lp_writer_finish(&writer, &len);
	LP_ASSERT(fits);
	put_head(buf, inode, len + CRC_BYTES);
	lp_put_le32(buf + len, lp_crc32c(0, buf, len));
	return len + CRC_BYTES;
}

/* --- decoding ------------------------------------------------------------------------------- */

static int bad_inode(struct lp_ino ino, const char *fault)
{
	return LP_CORRUPT(LP_OFFSET_NONE, "inode %llu: %s", (unsigned long long)ino.nr, fault);
}

static const char *head_fault(const struct lp_inode_head *head, size_t len, struct lp_ino ino)
{
	if (head->magic != INODE_MAGIC)
		return "magic";
	if (head->version != 1)
		return "version";
	if (head->head_bytes != LP_INODE_HEAD_SIZE)
		return "head_bytes";
	if (head->record_bytes != len)
		return "record_bytes";
	if (head->ino != ino.nr)
		return "ino";
	return lp_inode_head_reserved_is_zero(head) ? NULL : "reserved";
}

static void take_head(const struct lp_inode_head *head, struct lp_inode *ret)
{
	*ret = (struct lp_inode){
		.ino = {head->ino},
		.parent = {head->parent_ino},
		.version_nr = head->version_nr,
		.size_bytes = head->size_bytes,
		.atime_ns = head->atime_ns,
		.mtime_ns = head->mtime_ns,
		.ctime_ns = head->ctime_ns,
		.btime_ns = head->btime_ns,
		.uid = head->uid,
		.gid = head->gid,
		.nlink = head->nlink,
		.flags = head->flags,
		.mode = head->mode,
		.type = head->type,
	};
}

static void take_bytes(struct lp_reader *reader, struct lp_inode_bytes *ret)
{
	ret->len = lp_reader_remaining(reader);
	ret->at = lp_reader_bytes(reader, ret->len);
}

/* A crc and what it is of, which is not empty. */
static void take_summed(struct lp_reader *reader, struct lp_inode_bytes *ret, uint32_t *ret_crc)
{
	*ret_crc = lp_reader_u32(reader);
	if (lp_reader_remaining(reader) == 0)
		lp_reader_fail(reader);
	take_bytes(reader, ret);
}

/* One section into *inode; false when it is of no known kind or not whole. */
static bool take_section(struct lp_reader *reader, unsigned kind, struct lp_inode *inode)
{
	switch (kind) {
	case LP_INODE_SECTION_KIND_NAME:
		take_bytes(reader, &inode->name);
		break;
	case LP_INODE_SECTION_KIND_TARGET:
		take_summed(reader, &inode->target, &inode->content_crc);
		break;
	case LP_INODE_SECTION_KIND_INLINE_DATA:
		take_summed(reader, &inode->content, &inode->content_crc);
		break;
	case LP_INODE_SECTION_KIND_XATTRS:
		take_bytes(reader, &inode->xattrs);
		break;
	case LP_INODE_SECTION_KIND_MAP:
		take_bytes(reader, &inode->map);
		break;
	case LP_INODE_SECTION_KIND_RDEV:
		inode->rdev = lp_reader_u32(reader);
		break;
	default:
		return false;
	}
	return lp_reader_finish(reader);
}

static const char *take_sections(struct lp_reader *reader, struct lp_inode *inode)
{
	unsigned last_kind = 0;
	while (lp_reader_remaining(reader) > 0) {
		struct lp_inode_section head;
		struct lp_reader body;
		const uint8_t *at = lp_reader_bytes(reader, LP_INODE_SECTION_SIZE);
		if (at == NULL)
			return "section: length";
		lp_inode_section_decode(at, &head);
		if (!lp_inode_section_reserved_is_zero(&head) || head.bytes == 0)
			return "section: head";
		if (head.kind <= last_kind)
			return "section: order";
		last_kind = head.kind;
		lp_reader_sub(reader, head.bytes, &body);
		if (lp_reader_failed(reader))
			return "section: length";
		if (!take_section(&body, head.kind, inode))
			return "section: contents";
	}
	bool has_rdev = last_kind == LP_INODE_SECTION_KIND_RDEV;
	bool is_device =
		inode->type == LP_INODE_TYPE_CHARDEV || inode->type == LP_INODE_TYPE_BLOCKDEV;
	return has_rdev == is_device ? NULL : "rdev";
}

static int check_content(const struct lp_inode *inode)
{
	const struct lp_inode_bytes *bytes =
		inode->target.len > 0 ? &inode->target : &inode->content;
	uint32_t crc = bytes->len == 0 ? 0 : lp_crc32c(0, bytes->at, bytes->len);
	if (crc == inode->content_crc)
		return 0;
	return LP_CORRUPT_CRC(LP_OFFSET_NONE,
			      "inode %llu: crc of its contents is %08x, stored %08x",
			      (unsigned long long)inode->ino.nr, crc, inode->content_crc);
}

int lp_inode_decode(const void *bytes, size_t len, struct lp_ino ino, struct lp_inode *ret)
{
	struct lp_inode_head head;
	struct lp_inode inode;
	struct lp_reader reader;
	if (len < LP_INODE_HEAD_SIZE + CRC_BYTES || len > LP_INODE_BYTES_MAX)
		return bad_inode(ino, "length");
	lp_reader_init(&reader, bytes, len - CRC_BYTES);
	const uint8_t *at = lp_reader_bytes(&reader, LP_INODE_HEAD_SIZE);
	uint32_t stored = lp_get_le32(at + len - CRC_BYTES);
	uint32_t crc = lp_crc32c(0, bytes, len - CRC_BYTES);
	if (crc != stored)
		return LP_CORRUPT_CRC(LP_OFFSET_NONE, "inode %llu: crc is %08x, stored %08x",
				      (unsigned long long)ino.nr, crc, stored);
	lp_inode_head_decode(at, &head);
	const char *fault = head_fault(&head, len, ino);
	if (fault != NULL)
		return bad_inode(ino, fault);
	take_head(&head, &inode);
	fault = take_sections(&reader, &inode);
	if (fault == NULL)
		fault = lp_inode_fault(&inode);
	if (fault != NULL)
		return bad_inode(ino, fault);
	int err = check_content(&inode);
	if (err == 0)
		*ret = inode;
	return err;
}
