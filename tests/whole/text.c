/* SPDX-License-Identifier: Apache-2.0 */
/* The model as text, and its keys in their order. A text's hash is the sum of its lines', so that
 * nobody has to bring them in order who only compares. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/hash.h"
#include "tests/whole/model.h"

/* --- Lines ------------------------------------------------------------------------------------ */

static void keep(struct lpi_whole_text *text, const char *line, size_t len)
{
	if (text->len + len + 1 > text->max) {
		text->max = LP_MAX(text->max * 2, text->len + len + 4096);
		text->bytes = realloc(text->bytes, text->max);
		LP_ASSERT(text->bytes != NULL);
	}
	memcpy(text->bytes + text->len, line, len);
	text->bytes[text->len + len] = '\0';
	text->len += len + 1;
}

static void say_line(struct lpi_whole_text *text, const char *line, size_t len)
{
	text->hash += lp_hash_u64(line, len, 1);
	if (text->is_kept)
		keep(text, line, len);
}

void lpi_whole_say(struct lpi_whole_text *text, const char *format, ...)
{
	char line[512];
	va_list args;
	va_start(args, format);
	int len = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	LP_ASSERT(len >= 0 && (size_t)len < sizeof(line));
	say_line(text, line, (size_t)len);
}

void lpi_whole_say_inode(struct lpi_whole_text *text, const struct lpi_whole_line *line)
{
	lpi_whole_say(text,
		      "inode %llx type %u links %u in %llx mode %o uid %u gid %u rdev %u flags %x "
		      "size %llu time %lld data %llx items %llx target %llx",
		      (unsigned long long)line->ino, line->type, line->nlink,
		      (unsigned long long)line->parent, line->mode, line->uid, line->gid,
		      line->rdev, line->flags, (unsigned long long)line->size_bytes,
		      (long long)line->mtime_ns, (unsigned long long)line->data_hash,
		      (unsigned long long)line->items_hash, (unsigned long long)line->target_hash);
}

void lpi_whole_say_entry(struct lpi_whole_text *text, uint64_t dir,
			 const struct lpi_whole_bytes *name, uint64_t ino, uint32_t type)
{
	lpi_whole_say(text, "entry in %llx: %.*s -> %llx type %u", (unsigned long long)dir,
		      (int)name->len, name->bytes, (unsigned long long)ino, type);
}

void lpi_whole_text_fini(struct lpi_whole_text *text)
{
	free(text->bytes);
	*text = (struct lpi_whole_text){.hash = 0};
}

static bool has_line(const struct lpi_whole_text *text, const char *line)
{
	for (size_t at = 0; at < text->len; at += strlen(text->bytes + at) + 1)
		if (strcmp(text->bytes + at, line) == 0)
			return true;
	return false;
}

static uint32_t missing_cnt(const struct lpi_whole_text *from, const struct lpi_whole_text *other)
{
	uint32_t cnt = 0;
	for (size_t at = 0; at < from->len; at += strlen(from->bytes + at) + 1)
		cnt += has_line(other, from->bytes + at) ? 0 : 1;
	return cnt;
}

uint32_t lpi_whole_text_distance(const struct lpi_whole_text *a, const struct lpi_whole_text *b)
{
	return missing_cnt(a, b) + missing_cnt(b, a);
}

static void tell_missing(const struct lpi_whole_text *from, const struct lpi_whole_text *other,
			 const char *what)
{
	for (size_t at = 0; at < from->len; at += strlen(from->bytes + at) + 1)
		if (!has_line(other, from->bytes + at))
			(void)fprintf(stderr, "  %s: %s\n", what, from->bytes + at);
}

void lpi_whole_text_compare(const struct lpi_whole_text *found, const struct lpi_whole_text *want)
{
	tell_missing(found, want, "only found");
	tell_missing(want, found, "not found ");
}

/* --- Hashes ----------------------------------------------------------------------------------- */

uint64_t lpi_whole_hash_block(uint64_t idx, uint32_t crc)
{
	const uint64_t words[2] = {idx, crc};
	return lp_hash_u64(words, sizeof(words), 2);
}

uint64_t lpi_whole_hash_item(bool is_omap, struct lp_bytes name, struct lp_bytes value)
{
	const uint64_t words[3] = {is_omap, lp_hash_u64(name.data, name.len, 0),
				   lp_hash_u64(value.data, value.len, 0)};
	return lp_hash_u64(words, sizeof(words), 3);
}

uint64_t lpi_whole_hash_target(const void *bytes, size_t len)
{
	return lp_hash_u64(bytes, len, 4);
}

uint64_t lpi_whole_hash_name(struct lp_bytes name, uint64_t ino, uint32_t type)
{
	const uint64_t words[3] = {lp_hash_u64(name.data, name.len, 0), ino, type};
	return lp_hash_u64(words, sizeof(words), 5);
}

/* The clock's times are not compared, nor those of directories, which their fragments have. */
static int64_t told_time(const struct lp_attrs *attrs)
{
	bool is_told = attrs->type != LP_INODE_TYPE_DIR && attrs->mtime_ns < LPI_WHOLE_TIME_END;
	return is_told ? attrs->mtime_ns : 0;
}

uint64_t lpi_whole_hash_attrs(const struct lp_attrs *attrs, uint64_t ino, uint64_t entries_cnt)
{
	const uint64_t words[] = {
		ino,
		entries_cnt,
		attrs->type,
		attrs->nlink,
		attrs->mode,
		attrs->uid,
		attrs->gid,
		attrs->rdev,
		attrs->size_bytes,
		attrs->flags & (LP_INODE_FLAG_SPREAD | LP_INODE_FLAG_MADE_BY_PUT),
		(uint64_t)told_time(attrs),
	};
	return lp_hash_u64(words, sizeof(words), 6);
}

static void hash_body(struct lpi_whole_body *body)
{
	struct lpi_whole_bytes name;
	uint8_t *value = malloc(LPI_WHOLE_VALUE_MAX);
	LP_ASSERT(value != NULL);
	body->data_hash = 0;
	body->items_hash = 0;
	for (uint32_t i = 0; i < body->block_cnt; i++)
		body->data_hash +=
			lpi_whole_hash_block(body->blocks[i].idx, body->blocks[i].page->crc);
	for (uint32_t i = 0; i < body->item_cnt; i++) {
		const struct lpi_whole_item *item = &body->items[i];
		if (item->is_omap)
			lpi_whole_omap_name(item->name, &name);
		else
			lpi_whole_xattr_name(item->name, &name);
		lpi_whole_item_value(item, value);
		body->items_hash +=
			lpi_whole_hash_item(item->is_omap, (struct lp_bytes){name.bytes, name.len},
					    (struct lp_bytes){value, item->len});
	}
	body->is_hashed = true;
	free(value);
}

/* --- The whole -------------------------------------------------------------------------------- */

static uint64_t target_hash(const struct lpi_whole_node *node)
{
	uint8_t bytes[LP_INODE_TARGET_MAX];
	uint32_t len = lpi_whole_target_len(node->target);
	if (node->type != LP_INODE_TYPE_SYMLINK)
		return 0;
	lpi_whole_target(node->target, bytes);
	return lpi_whole_hash_target(bytes, len);
}

static void describe_node(const struct lpi_whole *whole, const struct lpi_whole_node *node,
			  struct lpi_whole_text *text)
{
	bool is_dir = node->type == LP_INODE_TYPE_DIR;
	if (!node->body->is_hashed)
		hash_body(node->body);
	const struct lpi_whole_line line = {
		.ino = lpi_whole_ino(whole, node->slot),
		.parent = is_dir ? lpi_whole_ino(whole, lpi_whole_parent(whole, node->slot)) : 0,
		.size_bytes = node->size_bytes,
		.data_hash = node->body->data_hash,
		.items_hash = node->body->items_hash,
		.target_hash = target_hash(node),
		.mtime_ns = is_dir ? 0 : node->mtime_ns,
		.type = node->type,
		.nlink = lpi_whole_nlink(whole, node),
		.mode = node->mode,
		.uid = node->uid,
		.gid = node->gid,
		.rdev = node->rdev,
		.flags = node->flags,
	};
	lpi_whole_say_inode(text, &line);
}

void lpi_whole_describe(const struct lpi_whole *whole, struct lpi_whole_text *text)
{
	text->hash = 0;
	text->len = 0;
	for (uint32_t i = 0; i < whole->node_cnt; i++)
		if (whole->nodes[i].names > 0)
			describe_node(whole, &whole->nodes[i], text);
	for (uint32_t i = 0; i < whole->entry_cnt; i++) {
		const struct lpi_whole_entry *entry = &whole->entries[i];
		struct lpi_whole_bytes name;
		lpi_whole_name(entry->name, &name);
		lpi_whole_say_entry(text, lpi_whole_ino(whole, entry->dir), &name,
				    lpi_whole_ino(whole, entry->node),
				    lpi_whole_find(whole, entry->node)->type);
	}
}

/* --- Keys ------------------------------------------------------------------------------------- */

void lpi_whole_path(const uint32_t *names, uint32_t depth, struct lpi_whole_path *ret)
{
	ret->len = 0;
	for (uint32_t i = 0; i < depth; i++) {
		struct lpi_whole_bytes name;
		lpi_whole_name(names[i], &name);
		if (i > 0)
			ret->bytes[ret->len++] = '/';
		memcpy(ret->bytes + ret->len, name.bytes, name.len);
		ret->len += name.len;
	}
}

/* They may end within a name. */
void lpi_whole_list_bounds(const struct lpi_whole_op *op, struct lpi_whole_path *ret_prefix,
			   struct lpi_whole_path *ret_after)
{
	lpi_whole_path(op->names, op->depth, ret_prefix);
	lpi_whole_path(op->to_names, op->to_depth, ret_after);
	ret_prefix->len = (uint32_t)LP_MIN(ret_prefix->len, op->offset);
	ret_after->len = (uint32_t)LP_MIN(ret_after->len, op->src_offset);
}

struct key {
	uint32_t len;
	char bytes[];
};

struct keys {
	struct key **items;
	uint32_t cnt;
	uint32_t max;
};

static int compare_bytes(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int order = memcmp(a, b, LP_MIN(a_len, b_len));
	if (order != 0)
		return order;
	return a_len < b_len ? -1 : a_len > b_len ? 1 : 0;
}

static int compare_keys(const void *a, const void *b)
{
	const struct key *one = *(struct key *const *)a;
	const struct key *two = *(struct key *const *)b;
	return compare_bytes(one->bytes, one->len, two->bytes, two->len);
}

/* The path of an entry, from its end; a directory's ends in '/'. */
static struct key *key_of(const struct lpi_whole *whole, const struct lpi_whole_entry *entry)
{
	struct lpi_whole_bytes name;
	char path[LP_NS_PATH_MAX + LPI_WHOLE_NAME_MAX];
	size_t at = sizeof(path);
	if (lpi_whole_is_dir(lpi_whole_find(whole, entry->node)))
		path[--at] = '/';
	for (uint32_t slot = entry->dir;; slot = entry->dir) {
		lpi_whole_name(entry->name, &name);
		LP_ASSERT(at > name.len + 1);
		at -= name.len;
		memcpy(path + at, name.bytes, name.len);
		if (slot == LPI_WHOLE_ROOT)
			break;
		path[--at] = '/';
		for (uint32_t i = 0; i < whole->entry_cnt; i++)
			if (whole->entries[i].node == slot)
				entry = &whole->entries[i];
	}
	struct key *key = malloc(sizeof(*key) + sizeof(path) - at);
	LP_ASSERT(key != NULL);
	key->len = (uint32_t)(sizeof(path) - at);
	memcpy(key->bytes, path + at, key->len);
	return key;
}

/* As it is listed; false: it is not. */
static bool fit_key(struct key *key, const struct lpi_whole_op *op,
		    const struct lpi_whole_path *prefix, const struct lpi_whole_path *after)
{
	bool delimits = (op->flags & LPI_WHOLE_DELIMIT) != 0;
	bool is_dir = key->bytes[key->len - 1] == '/';
	if (key->len < prefix->len || memcmp(key->bytes, prefix->bytes, prefix->len) != 0)
		return false;
	if (is_dir && !delimits)
		return false;
	const char *slash = memchr(key->bytes + prefix->len, '/', key->len - prefix->len);
	if (is_dir && slash == NULL) /* it is the one that is listed */
		return false;
	if (delimits && slash != NULL)
		key->len = (uint32_t)(slash - key->bytes) + 1;
	return after->len == 0 || compare_bytes(key->bytes, key->len, after->bytes, after->len) > 0;
}

static void keys_fini(struct keys *keys)
{
	for (uint32_t i = 0; i < keys->cnt; i++)
		free(keys->items[i]);
	free(keys->items);
}

/* All that are listed, in order; some several times. */
static void keys_init(struct keys *keys, const struct lpi_whole *whole,
		      const struct lpi_whole_op *op)
{
	struct lpi_whole_path prefix;
	struct lpi_whole_path after;
	lpi_whole_list_bounds(op, &prefix, &after);
	*keys = (struct keys){.max = whole->entry_cnt + 1};
	keys->items = malloc(keys->max * sizeof(struct key *));
	LP_ASSERT(keys->items != NULL);
	for (uint32_t i = 0; i < whole->entry_cnt; i++) {
		struct key *key = key_of(whole, &whole->entries[i]);
		if (fit_key(key, op, &prefix, &after))
			keys->items[keys->cnt++] = key;
		else
			free(key);
	}
	qsort(keys->items, keys->cnt, sizeof(struct key *), compare_keys);
}

uint64_t lpi_whole_hash_key(uint64_t hash, struct lp_bytes key)
{
	return lp_hash_u64(key.data, key.len, hash + 7);
}

int lpi_whole_list(const struct lpi_whole *whole, const struct lpi_whole_op *op,
		   struct lpi_whole_answer *ret)
{
	struct keys keys;
	keys_init(&keys, whole, op);
	for (uint32_t i = 0; i < keys.cnt; i++) {
		if (i > 0 && compare_keys(&keys.items[i - 1], &keys.items[i]) == 0)
			continue;
		if (ret->cnt == op->items) {
			ret->more = 1;
			break;
		}
		ret->cnt++;
		ret->hash = lpi_whole_hash_key(
			ret->hash, (struct lp_bytes){keys.items[i]->bytes, keys.items[i]->len});
	}
	keys_fini(&keys);
	return 0;
}
