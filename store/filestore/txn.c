/* SPDX-License-Identifier: Apache-2.0 */
/* A transaction is evaluated change by change on an overlay of its own, which its group takes over
 * when all have succeeded and which is dropped otherwise. Inodes are decoded once, changed, and
 * encoded at the end.
 *
 * Here is also who evaluates: the operations in their order, until one needs another group. Files
 * that were written directly are synced at the end, once each: before the frame is written that
 * says what is in them (store I1). */
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/error.h"
#include "store/filestore/filestore_impl.h"

/* What a group may hold: a frame has a limit, and one transaction may be 2 MiB of values. */
#define GROUP_BATCH_BYTES (UINT64_C(256) << 10)
#define GROUP_PAYLOADS    160u
#define GROUP_CHANGES     512u
#define INO_STEP          UINT64_C(65536) /* numbers that one record sets aside */
/* What transactions that need space leave free, for the index and for what frees. */
#define ROOM_KEPT_MAX (UINT64_C(256) << 20)
#define ROOM_SHARE    16u

/* --- Inodes ----------------------------------------------------------------------------------- */

int lpi_fstore_inode_read(const struct lpi_fstore_view *view, struct lp_ino ino,
			  struct lpi_fstore_inode *ret_inode)
{
	struct lpi_fstore_value value;
	struct lp_key key;
	ret_inode->ino = ino;
	ret_inode->exists = false;
	ret_inode->is_dirty = false;
	ret_inode->is_newer = false;
	ret_inode->blocks = 0;
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, ino);
	int err = lpi_fstore_get(view, &key, &value);
	if (err < 0)
		return err == -ENOENT ? 0 : err;
	size_t len = value.bytes.len;
	if (len <= sizeof(ret_inode->bytes))
		memcpy(ret_inode->bytes, value.bytes.data, len);
	lpi_fstore_value_release(&value);
	if (len > sizeof(ret_inode->bytes))
		return LP_CORRUPT(LP_OFFSET_NONE, "inode %llu: its record has %zu bytes",
				  (unsigned long long)ino.nr, len);
	err = lp_inode_decode(ret_inode->bytes, len, ino, &ret_inode->rec);
	if (err < 0)
		return err;
	if (ret_inode->rec.map.len == sizeof(uint64_t))
		ret_inode->blocks = lp_get_le64(ret_inode->rec.map.at);
	else if (ret_inode->rec.map.len != 0)
		return LP_CORRUPT(LP_OFFSET_NONE, "inode %llu: its map has %zu bytes",
				  (unsigned long long)ino.nr, ret_inode->rec.map.len);
	ret_inode->exists = true;
	return 0;
}

int lpi_fstore_inode_find(struct lpi_fstore_eval *eval, struct lp_ino ino,
			  struct lpi_fstore_inode **ret_inode)
{
	for (uint32_t i = 0; i < eval->inode_cnt; i++) {
		if (eval->inodes[i].ino.nr == ino.nr) {
			*ret_inode = &eval->inodes[i];
			return 0;
		}
	}
	LP_ASSERT(eval->inode_cnt < LPI_FSTORE_INODES_MAX); /* two for each change at most */
	struct lpi_fstore_inode *inode = &eval->inodes[eval->inode_cnt];
	int err = lpi_fstore_inode_read(&eval->view, ino, inode);
	if (err < 0)
		return err;
	inode->old_flags = inode->exists ? inode->rec.flags : 0;
	eval->inode_cnt++;
	*ret_inode = inode;
	return 0;
}

void lpi_fstore_inode_attrs(const struct lpi_fstore_inode *inode, struct lp_attrs *ret_attrs)
{
	const struct lp_inode *rec = &inode->rec;
	*ret_attrs = (struct lp_attrs){
		.size_bytes = rec->size_bytes,
		.blocks = inode->blocks,
		.version_nr = rec->version_nr,
		.atime_ns = rec->atime_ns,
		.mtime_ns = rec->mtime_ns,
		.ctime_ns = rec->ctime_ns,
		.btime_ns = rec->btime_ns,
		.parent = rec->parent,
		.uid = rec->uid,
		.gid = rec->gid,
		.nlink = rec->nlink,
		.flags = rec->flags & ~(uint32_t)LP_INODE_FLAG_HAS_KEYS,
		.rdev = rec->rdev,
		.mode = rec->mode,
		.type = rec->type,
	};
}

/* What is there, or -ENOENT. */
static int find_there(struct lpi_fstore_eval *eval, struct lp_ino ino,
		      struct lpi_fstore_inode **ret_inode)
{
	int err = lpi_fstore_inode_find(eval, ino, ret_inode);
	if (err < 0)
		return err;
	return (*ret_inode)->exists ? 0 : -ENOENT;
}

/* Its version goes up once in a transaction. */
static void touch(struct lpi_fstore_inode *inode, const struct lp_change *change)
{
	if (lpi_change_is_news(change) && !inode->is_newer) {
		inode->is_newer = true;
		inode->rec.version_nr++;
	}
	inode->rec.version_nr = LP_MAX(inode->rec.version_nr, lpi_change_version(change));
	inode->is_dirty = true;
}

int lpi_fstore_inodes_encode(struct lpi_fstore_eval *eval)
{
	uint8_t bytes[LP_INODE_BYTES_MAX];
	for (uint32_t i = 0; i < eval->inode_cnt; i++) {
		struct lpi_fstore_inode *inode = &eval->inodes[i];
		struct lp_key key;
		if (!inode->is_dirty || !inode->exists)
			continue;
		inode->rec.map = (struct lp_inode_bytes){NULL, 0};
		if (inode->blocks > 0) {
			lp_put_le64(inode->map, inode->blocks);
			inode->rec.map = (struct lp_inode_bytes){inode->map, sizeof(inode->map)};
		}
		lp_key_of_ino(&key, LP_KEY_SPACE_INODE, inode->ino);
		size_t len = lp_inode_encode(&inode->rec, bytes);
		int err = lpi_fstore_overlay_put(&eval->txn, &key, bytes, (uint32_t)len);
		if (err < 0)
			return err;
	}
	return 0;
}

/* --- Fragments and entries -------------------------------------------------------------------- */

int lpi_fstore_fragment(const struct lpi_fstore_view *view, struct lp_ino ino,
			struct lp_fragment_value *ret_value)
{
	struct lpi_fstore_value value;
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_FRAGMENT, ino);
	int err = lpi_fstore_get(view, &key, &value);
	if (err < 0)
		return err;
	err = lp_fragment_read(value.bytes.data, value.bytes.len, &key, ret_value);
	lpi_fstore_value_release(&value);
	return err;
}

/* A new one when there is none. */
static int load_fragment(struct lpi_fstore_eval *eval, struct lp_ino ino,
			 struct lp_fragment_value *ret_value)
{
	int err = lpi_fstore_fragment(&eval->view, ino, ret_value);
	if (err != -ENOENT)
		return err;
	*ret_value = (struct lp_fragment_value){.next_insertion = 1};
	return 0;
}

static int store_fragment(struct lpi_fstore_eval *eval, struct lp_ino ino,
			  const struct lp_fragment_value *value)
{
	uint8_t bytes[LP_FRAGMENT_VALUE_SIZE];
	struct lp_key key;
	struct lp_fragment_value clean = *value;
	clean.version = 0;
	clean.crc = 0;
	lp_key_of_ino(&key, LP_KEY_SPACE_FRAGMENT, ino);
	lp_fragment_write(&clean, &key, bytes);
	return lpi_fstore_overlay_put(&eval->txn, &key, bytes, sizeof(bytes));
}

static int delete_fragment(struct lpi_fstore_eval *eval, struct lp_ino ino)
{
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_FRAGMENT, ino);
	return lpi_fstore_overlay_delete(&eval->txn, &key);
}

static int drop_fragment(struct lpi_fstore_eval *eval, struct lp_ino ino)
{
	struct lp_fragment_value fragment;
	int err = lpi_fstore_fragment(&eval->view, ino, &fragment);
	if (err < 0)
		return err == -ENOENT ? 0 : err;
	return fragment.entries_cnt > 0 ? -ENOTEMPTY : delete_fragment(eval, ino);
}

static int change_dir(struct lpi_fstore_eval *eval, const struct lp_change *change)
{
	struct lp_fragment_value fragment;
	if (change->dir.drop)
		return drop_fragment(eval, change->ino);
	int err = load_fragment(eval, change->ino, &fragment);
	if (err < 0)
		return err;
	if (change->dir.seal && fragment.entries_cnt > 0)
		return -ENOTEMPTY;
	fragment.is_sealed = (fragment.is_sealed != 0 || change->dir.seal) && !change->dir.unseal;
	fragment.mtime_ns = lpi_dir_time(fragment.mtime_ns, change->dir.mtime_ns);
	fragment.ctime_ns = lpi_dir_time(fragment.ctime_ns, change->dir.ctime_ns);
	/* If the seal had made it, its directory may never have been. */
	if (change->dir.unseal && lp_fragment_says_nothing(&fragment))
		return delete_fragment(eval, change->ino);
	return store_fragment(eval, change->ino, &fragment);
}

static int read_entry(struct lpi_fstore_eval *eval, const struct lp_key *key,
		      struct lp_dirent_value *ret_entry)
{
	struct lpi_fstore_value value;
	int err = lpi_fstore_get(&eval->view, key, &value);
	if (err < 0)
		return err;
	err = lp_dirent_read(value.bytes.data, value.bytes.len, key, ret_entry);
	lpi_fstore_value_release(&value);
	return err;
}

static void entry_key(struct lp_key *ret, const struct lp_change *change)
{
	lp_key_of_name(ret, LP_KEY_SPACE_DIRENT, change->ino, change->named.name.data,
		       change->named.name.len);
}

static int set_entry(struct lpi_fstore_eval *eval, const struct lp_change *change)
{
	uint8_t bytes[LP_DIRENT_VALUE_SIZE];
	struct lp_fragment_value fragment;
	struct lp_dirent_value old = {.ino = 0};
	struct lp_key key;
	int err = load_fragment(eval, change->ino, &fragment);
	if (err < 0)
		return err;
	if (fragment.is_sealed != 0)
		return -ENOENT;
	entry_key(&key, change);
	err = read_entry(eval, &key, &old);
	if (err < 0 && err != -ENOENT)
		return err;
	struct lp_dirent_value entry = {.type = change->named.target_type,
					.ino = change->named.target.nr,
					.insertion = old.insertion};
	if (err == -ENOENT) {
		entry.insertion = fragment.next_insertion++;
		fragment.entries_cnt++;
		fragment.name_bytes += change->named.name.len;
		err = store_fragment(eval, change->ino, &fragment);
		if (err < 0)
			return err;
	}
	lp_dirent_write(&entry, &key, bytes);
	return lpi_fstore_overlay_put(&eval->txn, &key, bytes, sizeof(bytes));
}

static int remove_entry(struct lpi_fstore_eval *eval, const struct lp_change *change)
{
	struct lp_fragment_value fragment = {.entries_cnt = 0};
	struct lp_dirent_value entry;
	struct lp_key key;
	entry_key(&key, change);
	int err = read_entry(eval, &key, &entry);
	if (err == 0)
		err = load_fragment(eval, change->ino, &fragment);
	if (err < 0)
		return err;
	if (fragment.entries_cnt == 0 || fragment.name_bytes < change->named.name.len)
		return LP_CORRUPT(LP_OFFSET_NONE, "directory %llu has more entries than it says",
				  (unsigned long long)change->ino.nr);
	fragment.entries_cnt--;
	fragment.name_bytes -= change->named.name.len;
	err = store_fragment(eval, change->ino, &fragment);
	return err < 0 ? err : lpi_fstore_overlay_delete(&eval->txn, &key);
}

/* --- Guards ----------------------------------------------------------------------------------- */

/* The record's value is the one that is wanted, if one is. absent: when there is none. */
static int guard_value(struct lpi_fstore_eval *eval, const struct lp_key *key,
		       struct lp_bytes wanted, int absent)
{
	struct lpi_fstore_value value;
	int err = lpi_fstore_get(&eval->view, key, &value);
	if (err < 0)
		return err == -ENOENT ? absent : err;
	bool is_same = wanted.data == NULL || lp_key_compare(value.bytes.data, value.bytes.len,
							     wanted.data, wanted.len) == 0;
	lpi_fstore_value_release(&value);
	return is_same ? 0 : -ECANCELED;
}

static int guard_absent(struct lpi_fstore_eval *eval, const struct lp_key *key)
{
	int err = guard_value(eval, key, (struct lp_bytes){NULL, 0}, -ENOENT);
	if (err == -ENOENT)
		return 0;
	return err == 0 ? -EEXIST : err;
}

static int guard_inode(struct lpi_fstore_eval *eval, const struct lp_change *guard)
{
	struct lpi_fstore_inode *inode;
	int err = find_there(eval, guard->ino, &inode);
	if (guard->type == LP_GUARD_NO_INODE) {
		if (err == -ENOENT)
			return 0;
		return err == 0 ? -EEXIST : err;
	}
	if (err < 0)
		return err;
	const struct lp_inode *rec = &inode->rec;
	if (!lpi_guard_flags_hold(guard, rec->flags))
		return -EPERM;
	return lpi_guard_inode_holds(guard, rec->version_nr, rec->size_bytes, rec->uid, rec->gid,
				     rec->mode)
		       ? 0
		       : -ECANCELED;
}

static int guard_entry(struct lpi_fstore_eval *eval, const struct lp_change *guard)
{
	struct lp_dirent_value entry = {.ino = 0};
	struct lp_key key;
	entry_key(&key, guard);
	if (guard->type == LP_GUARD_NO_ENTRY)
		return guard_absent(eval, &key);
	int err = read_entry(eval, &key, &entry);
	uint64_t wanted = guard->named.target.nr;
	return err < 0 || wanted == 0 || wanted == entry.ino ? err : -ECANCELED;
}

static int guard_xattr(struct lpi_fstore_eval *eval, const struct lp_change *guard)
{
	struct lpi_fstore_inode *inode;
	struct lp_key key;
	int err = find_there(eval, guard->ino, &inode);
	if (err < 0)
		return err;
	lp_key_of_name(&key, LP_KEY_SPACE_XATTR, guard->ino, guard->named.name.data,
		       guard->named.name.len);
	if (guard->type == LP_GUARD_NO_XATTR)
		return guard_absent(eval, &key);
	return guard_value(eval, &key, guard->named.value, -ENODATA);
}

static void record_key(struct lp_key *ret, struct lp_bytes name)
{
	LP_ASSERT(name.len <= LP_KEY_BYTES_MAX);
	memcpy(ret->bytes, name.data, name.len);
	ret->len = name.len;
}

static int guard_record(struct lpi_fstore_eval *eval, const struct lp_change *guard)
{
	struct lp_key key;
	record_key(&key, guard->named.name);
	if (guard->type == LP_GUARD_NO_RECORD)
		return guard_absent(eval, &key);
	return guard_value(eval, &key, guard->named.value, -ENOENT);
}

static int guard_empty(struct lpi_fstore_eval *eval, const struct lp_change *guard)
{
	struct lp_fragment_value fragment;
	int err = load_fragment(eval, guard->ino, &fragment);
	return err < 0 || fragment.entries_cnt == 0 ? err : -ENOTEMPTY;
}

static int guard_dir(struct lpi_fstore_eval *eval, const struct lp_change *guard)
{
	struct lp_fragment_value fragment;
	struct lp_dirent_value entry;
	struct lp_key key;
	int err = 0;
	if (guard->named.name.data != NULL) {
		entry_key(&key, guard);
		err = read_entry(eval, &key, &entry);
	}
	return err < 0 && err != -ENOENT ? err : load_fragment(eval, guard->ino, &fragment);
}

static int check_guard(struct lpi_fstore_eval *eval, const struct lp_change *guard)
{
	enum lp_change_type type = guard->type;
	if (type == LP_GUARD_INODE || type == LP_GUARD_NO_INODE)
		return guard_inode(eval, guard);
	if (type == LP_GUARD_ENTRY || type == LP_GUARD_NO_ENTRY)
		return guard_entry(eval, guard);
	if (type == LP_GUARD_XATTR || type == LP_GUARD_NO_XATTR)
		return guard_xattr(eval, guard);
	if (type == LP_GUARD_EMPTY)
		return guard_empty(eval, guard);
	if (type == LP_GUARD_DIR)
		return guard_dir(eval, guard);
	return guard_record(eval, guard);
}

/* --- Changes of inodes ------------------------------------------------------------------------ */

/* Numbers below the bound may be in use after a crash: the record goes with the first beyond it. */
static int set_aside(struct lpi_fstore_store *store, struct lp_ino ino)
{
	struct lpi_fstore_eval *eval = store->eval;
	uint64_t counter = ino.nr & (LP_INO_COUNTER_END - 1);
	uint8_t value[sizeof(uint64_t)];
	struct lp_key key;
	if (lp_ino_shard(ino) != store->options.shard_idx || counter < eval->ino_bound)
		return 0;
	eval->ino_bound = counter + INO_STEP;
	lp_key_of_store(&key, "inodes");
	lp_put_le64(value, eval->ino_bound);
	return lpi_fstore_overlay_put(&eval->txn, &key, value, sizeof(value));
}

/* A number that was used before may have files and records that are still to be freed. */
static int free_before(struct lpi_fstore_store *store, struct lp_ino ino)
{
	struct lpi_fstore_eval *eval = store->eval;
	struct lpi_fstore_value value;
	struct lp_key key;
	if (lp_ino_shard(ino) == store->options.shard_idx &&
	    (ino.nr & (LP_INO_COUNTER_END - 1)) > eval->ino_top)
		return 0;
	lp_key_of_store_number(&key, "gone", ino.nr);
	int err = lpi_fstore_get(&eval->view, &key, &value);
	if (err < 0)
		return err == -ENOENT ? 0 : err;
	lpi_fstore_value_release(&value);
	/* What is under way for it must end first. */
	if (eval->view.layer_cnt > 2 || store->open->is_used)
		return LPI_FSTORE_LATER;
	return lpi_fstore_free_ino(store, ino);
}

static void set_name(struct lpi_fstore_inode *inode, const struct lp_change *change)
{
	inode->rec.parent = change->inode.attrs->parent;
	inode->rec.name = (struct lp_inode_bytes){NULL, 0};
	if (change->inode.name.len > 0)
		inode->rec.name =
			(struct lp_inode_bytes){change->inode.name.data, change->inode.name.len};
}

static int create_inode(struct lpi_fstore_store *store, const struct lp_change *change,
			struct lpi_fstore_inode *inode)
{
	struct lpi_fstore_eval *eval = store->eval;
	const struct lp_attrs *attrs = change->inode.attrs;
	struct lp_bytes target = change->inode.target;
	if (inode->exists)
		return -EEXIST;
	int err = free_before(store, change->ino);
	if (err != 0)
		return err;
	inode->exists = true;
	inode->blocks = 0;
	inode->rec = (struct lp_inode){.ino = change->ino,
				       .size_bytes = target.len,
				       .atime_ns = attrs->atime_ns,
				       .mtime_ns = attrs->mtime_ns,
				       .ctime_ns = attrs->ctime_ns,
				       .btime_ns = attrs->btime_ns,
				       .uid = attrs->uid,
				       .gid = attrs->gid,
				       .nlink = attrs->nlink,
				       .flags = attrs->flags,
				       .rdev = attrs->rdev,
				       .mode = attrs->mode,
				       .type = attrs->type};
	set_name(inode, change);
	if (target.len > 0) {
		inode->rec.target = (struct lp_inode_bytes){target.data, target.len};
		inode->rec.content_crc = lp_crc32c(0, target.data, target.len);
	}
	uint64_t counter = change->ino.nr & (LP_INO_COUNTER_END - 1);
	if (lp_ino_shard(change->ino) == store->options.shard_idx)
		eval->ino_top = LP_MAX(eval->ino_top, counter);
	return set_aside(store, change->ino);
}

static int set_attrs(const struct lp_change *change, struct lpi_fstore_inode *inode)
{
	const struct lp_attrs *attrs = change->inode.attrs;
	struct lp_inode *rec = &inode->rec;
	uint32_t mask = change->inode.mask;
	int err = lpi_store_check_set(change, rec->type);
	if (err < 0)
		return err;
	rec->mode = (mask & LP_ATTR_MODE) != 0 ? attrs->mode : rec->mode;
	rec->uid = (mask & LP_ATTR_UID) != 0 ? attrs->uid : rec->uid;
	rec->gid = (mask & LP_ATTR_GID) != 0 ? attrs->gid : rec->gid;
	rec->nlink = (mask & LP_ATTR_NLINK) != 0 ? attrs->nlink : rec->nlink;
	rec->atime_ns = (mask & LP_ATTR_ATIME) != 0 ? attrs->atime_ns : rec->atime_ns;
	rec->mtime_ns = (mask & LP_ATTR_MTIME) != 0 ? attrs->mtime_ns : rec->mtime_ns;
	rec->ctime_ns = (mask & LP_ATTR_CTIME) != 0 ? attrs->ctime_ns : rec->ctime_ns;
	rec->btime_ns = (mask & LP_ATTR_BTIME) != 0 ? attrs->btime_ns : rec->btime_ns;
	if ((mask & LP_ATTR_FLAGS) != 0)
		rec->flags = (rec->flags & LP_INODE_FLAG_HAS_KEYS) | attrs->flags;
	if ((mask & LP_ATTR_PARENT) != 0)
		set_name(inode, change);
	return 0;
}

static int link_inode(const struct lp_change *change, struct lpi_fstore_inode *inode)
{
	int64_t nlink = (int64_t)inode->rec.nlink + change->inode.delta;
	if (nlink < 0 || nlink > (int64_t)UINT32_MAX)
		return -EOVERFLOW;
	inode->rec.nlink = (uint32_t)nlink;
	return 0;
}

static int remove_inode(struct lpi_fstore_store *store, const struct lp_change *change,
			struct lpi_fstore_inode *inode)
{
	struct lpi_fstore_eval *eval = store->eval;
	bool has_more = inode->rec.type == LP_INODE_TYPE_FILE ||
			(inode->rec.flags & LP_INODE_FLAG_HAS_KEYS) != 0;
	struct lp_key key;
	int err = inode->rec.type == LP_INODE_TYPE_DIR ? drop_fragment(eval, change->ino) : 0;
	if (err == 0 && inode->rec.nlink == 0) {
		lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, change->ino);
		err = lpi_fstore_overlay_delete(&eval->txn, &key);
	}
	if (err == 0 && has_more) {
		lp_key_of_store_number(&key, "gone", change->ino.nr);
		err = lpi_fstore_overlay_put(&eval->txn, &key, "", 0);
		eval->gone_is_left = true;
	}
	if (err == 0 && inode->rec.type == LP_INODE_TYPE_FILE)
		err = lpi_fstore_drop_payloads(store, change->ino, 0);
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, change->ino);
	if (err == 0)
		err = lpi_fstore_overlay_delete(&eval->txn, &key);
	if (err == 0)
		inode->exists = false;
	return err;
}

static int change_named(struct lpi_fstore_eval *eval, const struct lp_change *change,
			struct lpi_fstore_inode *inode)
{
	bool is_xattr =
		change->type == LP_CHANGE_XATTR_SET || change->type == LP_CHANGE_XATTR_REMOVE;
	struct lp_bytes value = change->named.value;
	struct lp_key key;
	lp_key_of_name(&key, is_xattr ? LP_KEY_SPACE_XATTR : LP_KEY_SPACE_OMAP, change->ino,
		       change->named.name.data, change->named.name.len);
	if (change->type == LP_CHANGE_XATTR_SET || change->type == LP_CHANGE_OMAP_SET) {
		inode->rec.flags |= LP_INODE_FLAG_HAS_KEYS;
		return lpi_fstore_overlay_put(&eval->txn, &key, value.len > 0 ? value.data : "",
					      value.len);
	}
	if (is_xattr) {
		int err = guard_value(eval, &key, (struct lp_bytes){NULL, 0}, -ENODATA);
		if (err < 0)
			return err;
	}
	return lpi_fstore_overlay_delete(&eval->txn, &key);
}

static int change_record(struct lpi_fstore_eval *eval, const struct lp_change *change)
{
	struct lp_bytes value = change->named.value;
	struct lp_key key;
	record_key(&key, change->named.name);
	return value.data == NULL ? lpi_fstore_overlay_delete(&eval->txn, &key)
				  : lpi_fstore_overlay_put(&eval->txn, &key, value.data, value.len);
}

/* Of what is there before the transaction. What is no file is refused data for that. */
static int heed_flags(const struct lp_store_op *op, const struct lp_change *change,
		      const struct lpi_fstore_inode *inode)
{
	if (change->type == LP_CHANGE_CREATE ||
	    (lpi_change_is_data(change->type) && inode->rec.type != LP_INODE_TYPE_FILE))
		return 0;
	return lpi_store_heed_flags(op, change, inode->old_flags, inode->rec.size_bytes);
}

static int change_inode(struct lpi_fstore_store *store, const struct lp_store_op *op,
			const struct lp_change *change)
{
	struct lpi_fstore_eval *eval = store->eval;
	struct lpi_fstore_inode *inode;
	enum lp_change_type type = change->type;
	int err = lpi_fstore_inode_find(eval, change->ino, &inode);
	if (err < 0)
		return err;
	if (type != LP_CHANGE_CREATE && !inode->exists)
		return -ENOENT;
	err = heed_flags(op, change, inode);
	if (err < 0)
		return err;
	if (lpi_change_is_data(type))
		err = lpi_fstore_data(store, change, inode);
	else if (type == LP_CHANGE_CREATE)
		err = create_inode(store, change, inode);
	else if (type == LP_CHANGE_SET)
		err = set_attrs(change, inode);
	else if (type == LP_CHANGE_LINK)
		err = link_inode(change, inode);
	else if (type == LP_CHANGE_REMOVE)
		err = remove_inode(store, change, inode);
	else
		err = change_named(eval, change, inode);
	if (err == 0)
		touch(inode, change);
	return err;
}

static int change_one(struct lpi_fstore_store *store, const struct lp_store_op *op,
		      const struct lp_change *change)
{
	if (lpi_change_is_guard(change->type))
		return check_guard(store->eval, change);
	if (lpi_change_is_inode(change->type))
		return change_inode(store, op, change);
	if (change->type == LP_CHANGE_ENTRY_SET)
		return set_entry(store->eval, change);
	if (change->type == LP_CHANGE_ENTRY_REMOVE)
		return remove_entry(store->eval, change);
	if (change->type == LP_CHANGE_DIR)
		return change_dir(store->eval, change);
	return change_record(store->eval, change);
}

/* --- A transaction ---------------------------------------------------------------------------- */

/* Of the data change, or of the first change to an inode. */
static void give_version(const struct lpi_fstore_eval *eval, struct lp_store_op *op)
{
	const struct lp_change *told = NULL;
	for (uint32_t i = op->txn.change_cnt; i-- > 0;) {
		const struct lp_change *change = &op->txn.changes[i];
		bool is_data = lpi_change_is_data(change->type);
		if (is_data || lpi_change_is_inode(change->type))
			told = change;
		if (is_data)
			break;
	}
	for (uint32_t i = 0; told != NULL && i < eval->inode_cnt; i++)
		if (eval->inodes[i].ino.nr == told->ino.nr && eval->inodes[i].exists)
			op->txn.version_nr = eval->inodes[i].rec.version_nr;
	if (told != NULL && told->type == LP_CHANGE_WRITE) {
		op->txn.offset = eval->offset;
		op->txn.path = eval->path;
	}
}

/* It needs space that the host has not, beyond what is kept for the index. */
static bool is_too_full(const struct lpi_fstore_eval *eval)
{
	return eval->need_bytes > eval->room_bytes;
}

static bool does_grow(const struct lp_store_op *op)
{
	if (op->txn.room != LP_ROOM_OWN)
		return op->txn.room == LP_ROOM_GROWS;
	for (uint32_t i = 0; i < op->txn.change_cnt; i++) {
		enum lp_change_type type = op->txn.changes[i].type;
		if (type == LP_CHANGE_CREATE || type == LP_CHANGE_XATTR_SET ||
		    type == LP_CHANGE_OMAP_SET || type == LP_CHANGE_ENTRY_SET)
			return true;
	}
	return false;
}

int lpi_fstore_txn(struct lpi_fstore_store *store, struct lp_store_op *op)
{
	struct lpi_fstore_eval *eval = store->eval;
	uint64_t ino_bound = eval->ino_bound;
	uint64_t need_bytes = eval->need_bytes;
	int err = 0;
	eval->inode_cnt = 0;
	eval->trim_wanted = 0;
	op->txn.failed_idx = op->txn.change_cnt;
	if (does_grow(op))
		eval->need_bytes += LP_BLOCK_BYTES;
	for (uint32_t i = 0; i < op->txn.change_cnt && err == 0; i++) {
		err = change_one(store, op, &op->txn.changes[i]);
		if (err != 0)
			op->txn.failed_idx = i;
	}
	if (err == 0)
		err = lpi_fstore_inodes_encode(eval);
	if (err == 0 && eval->need_bytes > need_bytes && is_too_full(eval))
		err = -ENOSPC;
	if (err != 0) {
		eval->ino_bound = ino_bound;
		eval->need_bytes = need_bytes;
		lpi_fstore_overlay_clear(&eval->txn);
		return err;
	}
	give_version(eval, op);
	eval->trim_ino = eval->trim_wanted;
	lpi_fstore_overlay_merge(&store->open->overlay, &eval->txn);
	store->open->is_used = true;
	return 0;
}

/* --- Evaluating ------------------------------------------------------------------------------- */

static bool is_group_full(const struct lpi_fstore_group *group)
{
	return group->overlay.batch_bytes >= GROUP_BATCH_BYTES ||
	       group->overlay.payload_cnt >= GROUP_PAYLOADS || group->change_cnt >= GROUP_CHANGES;
}

void lpi_fstore_read_room(struct lpi_fstore_store *store)
{
	struct lpi_fstore_eval *eval = store->eval;
	struct statvfs st;
	eval->need_bytes = 0;
	eval->room_bytes = 0;
	if (fstatvfs(store->objects.fd, &st) < 0)
		return;
	uint64_t free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
	uint64_t all_bytes = (uint64_t)st.f_blocks * st.f_frsize;
	uint64_t kept_bytes = LP_MIN(all_bytes / ROOM_SHARE, ROOM_KEPT_MAX);
	eval->room_bytes = free_bytes > kept_bytes ? free_bytes - kept_bytes : 0;
	/* Each shard says its part, for people add them up. */
	eval->free_blocks = (free_bytes >> LP_BLOCK_SHIFT) / store->shard_cnt;
	uint64_t used_bytes = all_bytes - (uint64_t)st.f_bfree * st.f_frsize;
	eval->used_blocks = (used_bytes >> LP_BLOCK_SHIFT) / store->shard_cnt;
}

static void begin(struct lpi_fstore_store *store)
{
	struct lpi_fstore_eval *eval = store->eval;
	eval->view = (struct lpi_fstore_view){
		.layers = {&eval->txn, &store->open->overlay}, .layer_cnt = 2, .kv = store->kv};
	if (store->sealed != NULL)
		eval->view.layers[eval->view.layer_cnt++] = &store->sealed->overlay;
	/* What was written directly by transactions that failed: nothing is named there. */
	if (!store->open->is_used)
		store->open->change_cnt = 0;
	eval->is_later = false;
	eval->is_full = false;
	eval->fatal = 0;
	eval->sync_cnt = 0;
	lpi_fstore_read_room(store);
}

static int evaluate_one(struct lpi_fstore_store *store, struct lp_store_op *op)
{
	struct lpi_fstore_eval *eval = store->eval;
	if (op->opcode == LP_STORE_TXN)
		return lpi_fstore_txn(store, op);
	if (op->opcode == LP_STORE_READ)
		return lpi_fstore_read_data(store, &eval->view, op);
	return lpi_fstore_ask(&eval->view, op);
}

static void evaluate_all(struct lpi_fstore_store *store)
{
	struct lpi_fstore_eval *eval = store->eval;
	struct lp_store_op *op;
	/* A map that is being cut comes first; after a failure it stays as it is. */
	while ((op = lpi_fstore_ops_first(&eval->todo)) != NULL &&
	       (eval->trim_ino == 0 || eval->is_read_only)) {
		eval->is_full = is_group_full(store->open);
		if (eval->is_full)
			return;
		int result = evaluate_one(store, op);
		eval->is_later = result == LPI_FSTORE_LATER;
		if (eval->is_later)
			return;
		op->result = result;
		lpi_fstore_ops_remove(op);
		lpi_fstore_ops_push_back(&eval->done, op);
	}
}

void lpi_fstore_evaluate(struct lpi_fstore_store *store)
{
	struct lpi_fstore_eval *eval = store->eval;
	begin(store);
	int err = eval->is_read_only ? 0 : lpi_fstore_free_some(store);
	if (err == 0)
		evaluate_all(store);
	for (uint32_t i = 0; i < eval->sync_cnt && err == 0; i++)
		err = lpi_objects_sync(&store->objects, &eval->syncs[i]);
	eval->fatal = err;
}
