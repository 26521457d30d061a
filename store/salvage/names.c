/* SPDX-License-Identifier: Apache-2.0 */
/* First the entries, from the root down, a directory after the other. Then all inodes that no entry
 * has led to: of each its directories are followed up, by what the inodes themselves say, to one
 * that was told, or whose inode is lost. From there its path goes down again, and so do the entries
 * of what is a directory.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/endian.h"
#include "store/record/values.h"
#include "store/salvage/salvage_impl.h"

#define ROOT_INO    UINT64_C(1)
#define DEPTH_MAX   4096u /* directories above one: what leads further is a loop, or damage */
#define PATH_MAX_OF (UINT32_C(64) << 10)
#define VISITED_LEN 9u

/* A directory whose entries are still to be looked at. */
struct waiting {
	struct waiting *next;
	struct lp_ino ino;
	char path[];
};

struct walk {
	struct lp_salvage *salvage;
	struct lp_salvage_walker *walker;
	struct waiting *first;
	struct waiting *last; /* unless there is none */
};

/* --- What was told ---------------------------------------------------------------------------- */

static struct lp_kv_bytes visited_key(uint8_t *bytes, struct lp_ino ino)
{
	bytes[0] = LPI_SALVAGE_VISITED;
	lp_put_le64(bytes + 1, ino.nr);
	return (struct lp_kv_bytes){bytes, VISITED_LEN};
}

/* The path it was told under, to be freed; NULL in *ret: it was not. */
static int find_visited(const struct walk *walk, struct lp_ino ino, char **ret_path)
{
	uint8_t bytes[VISITED_LEN];
	struct lp_kv_value value;
	*ret_path = NULL;
	int err = lp_kv_get(walk->salvage->kv, visited_key(bytes, ino), &value);
	if (err < 0)
		return err == -ENOENT ? 0 : err;
	*ret_path = strndup(value.bytes.data, value.bytes.len);
	lp_kv_value_release(&value);
	return *ret_path != NULL ? 0 : -ENOMEM;
}

static int set_visited(const struct walk *walk, struct lp_ino ino, const char *path)
{
	uint8_t bytes[VISITED_LEN];
	return lpi_salvage_put(walk->salvage, visited_key(bytes, ino),
			       (struct lp_kv_bytes){path, strlen(path)});
}

/* --- Inodes ----------------------------------------------------------------------------------- */

struct loaded {
	struct lp_kv_value value;
	struct lp_inode inode;
};

/* To be released, if it is 0; -ENOENT: it is lost. */
static int load(const struct walk *walk, struct lp_ino ino, struct loaded *ret)
{
	struct lp_kv_bytes bytes;
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, ino);
	int err = lpi_salvage_get(walk->salvage, &key, &ret->value, &bytes);
	if (err < 0)
		return err;
	if (lp_inode_decode(bytes.data, bytes.len, ino, &ret->inode) == 0)
		return 0;
	lp_kv_value_release(&ret->value);
	return -ENOENT;
}

/* It was put and never finished, or is about to go. */
static int is_on_its_way(const struct walk *walk, const struct lp_inode *inode)
{
	struct lp_unfinished_value mark;
	struct lp_kv_value value;
	struct lp_kv_bytes bytes;
	struct lp_key key;
	if (inode->nlink == 0 || (inode->flags & LP_INODE_FLAG_REMOVED) != 0)
		return 1;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, inode->ino);
	int err = lpi_salvage_get(walk->salvage, &key, &value, &bytes);
	if (err < 0)
		return err == -ENOENT ? 0 : err;
	bool is_so = lp_unfinished_read(bytes.data, bytes.len, &key, &mark) == 0 &&
		     mark.kind != LP_UNFINISHED_KIND_TRIM;
	lp_kv_value_release(&value);
	return is_so;
}

/* --- Telling ---------------------------------------------------------------------------------- */

static bool is_too_deep(const char *dir, size_t len)
{
	return strlen(dir) + len + 2 > PATH_MAX_OF;
}

static char *join(const char *dir, const uint8_t *name, size_t len)
{
	size_t dir_len = strlen(dir);
	char *path = malloc(dir_len + len + 2);
	if (path == NULL)
		return NULL;
	memcpy(path, dir, dir_len);
	path[dir_len] = '/';
	memcpy(path + dir_len + 1, name, len);
	path[dir_len + 1 + len] = '\0';
	return path;
}

static int wait_for_entries(struct walk *walk, struct lp_ino ino, const char *path)
{
	size_t len = strlen(path) + 1;
	struct waiting *waiting = malloc(sizeof(*waiting) + len);
	if (waiting == NULL)
		return -ENOMEM;
	*waiting = (struct waiting){.ino = ino};
	memcpy(waiting->path, path, len);
	if (walk->first == NULL)
		walk->first = waiting;
	else
		walk->last->next = waiting;
	walk->last = waiting;
	return 0;
}

/* type: of the entry, for one whose inode is lost. */
static int tell(struct walk *walk, struct lp_ino ino, const char *path, uint8_t type, bool guessed)
{
	struct lp_salvage_object object = {.path = path, .ino = ino, .is_guessed = guessed};
	struct loaded loaded;
	char *first_path = NULL;
	int err = load(walk, ino, &loaded);
	bool is_loaded = err == 0;
	if (err < 0 && err != -ENOENT)
		return err;
	if (is_loaded)
		object.inode = &loaded.inode;
	object.is_dir = (is_loaded ? loaded.inode.type : type) == LP_INODE_TYPE_DIR;
	err = find_visited(walk, ino, &first_path);
	object.first_path = first_path;
	/* A directory has one name: what leads to it again is damage, and would go round. */
	if (err == 0 && !(object.is_dir && first_path != NULL))
		err = walk->walker->object(walk->walker, &object);
	if (err >= 0 && first_path == NULL)
		err = set_visited(walk, ino, path);
	if (err >= 0 && object.is_dir && first_path == NULL)
		err = wait_for_entries(walk, ino, path);
	if (is_loaded)
		lp_kv_value_release(&loaded.value);
	free(first_path);
	return err;
}

/* Where an inode without a name goes, and the directory of one that is lost. */
static int tell_lost(struct walk *walk, struct lp_ino ino, uint8_t type)
{
	char path[64];
	(void)snprintf(path, sizeof(path), "%s/inode-%" PRIu64, LP_SALVAGE_LOST, ino.nr);
	return tell(walk, ino, path, type, true);
}

/* --- Entries ---------------------------------------------------------------------------------- */

static int tell_entry(struct walk *walk, const char *dir, const struct lp_kv_bytes *bytes,
		      struct lp_kv_bytes value)
{
	struct lp_dirent_value entry;
	struct lp_key_view view;
	struct lp_key key = {.len = bytes->len};
	if (bytes->len > sizeof(key.bytes) || lp_key_parse(bytes->data, bytes->len, &view) < 0)
		return 0;
	memcpy(key.bytes, bytes->data, bytes->len);
	if (lp_dirent_read(value.data, value.len, &key, &entry) < 0)
		return 0;
	/* A path of that length would take too much memory. What is below begins anew. */
	if (is_too_deep(dir, view.name_len))
		return tell_lost(walk, (struct lp_ino){entry.ino}, entry.type);
	char *path = join(dir, view.name, view.name_len);
	if (path == NULL)
		return -ENOMEM;
	int err = tell(walk, (struct lp_ino){entry.ino}, path, entry.type, false);
	free(path);
	return err;
}

static int tell_entries(struct walk *walk, const struct waiting *dir)
{
	struct lp_kv_iter *iter = NULL;
	struct lp_key_range range;
	lp_key_range_of_ino(&range, LP_KEY_SPACE_DIRENT, dir->ino);
	int err = lp_kv_iter_open(
		walk->salvage->kv, (struct lp_kv_bytes){range.first.bytes, range.first.len},
		(struct lp_kv_bytes){range.end.bytes, range.end.len}, false, &iter);
	if (err < 0)
		return err;
	for (err = lp_kv_iter_seek_first(iter); err == 0; err = lp_kv_iter_next(iter)) {
		struct lp_kv_bytes key = lp_kv_iter_key(iter);
		struct lp_kv_bytes value = lpi_salvage_strip(lp_kv_iter_value(iter));
		int told = value.data != NULL ? tell_entry(walk, dir->path, &key, value) : 0;
		if (told < 0) {
			err = told;
			break;
		}
	}
	lp_kv_iter_close(iter);
	return err == -ENOENT ? 0 : err;
}

static int tell_waiting(struct walk *walk)
{
	int err = 0;
	while (err == 0 && walk->first != NULL) {
		struct waiting *dir = walk->first;
		err = tell_entries(walk, dir);
		walk->first = dir->next;
		free(dir);
	}
	return err;
}

/* --- What no entry leads to ------------------------------------------------------------------- */

/* Up from an inode to one that was told: its number, or that of the topmost directory that is
 * known, with *ret_below the one below it on the way. */
static int climb(const struct walk *walk, struct lp_ino from, struct lp_ino *ret_top,
		 struct lp_ino *ret_below)
{
	struct lp_ino ino = from;
	*ret_below = (struct lp_ino){0};
	for (unsigned depth = 0; depth < DEPTH_MAX; depth++) {
		struct loaded loaded;
		char *path = NULL;
		int err = find_visited(walk, ino, &path);
		bool is_told = path != NULL;
		free(path);
		if (err < 0 || is_told) {
			*ret_top = ino;
			return err;
		}
		err = load(walk, ino, &loaded);
		struct lp_ino parent = err == 0 ? loaded.inode.parent : (struct lp_ino){0};
		if (err == 0)
			lp_kv_value_release(&loaded.value);
		if (err < 0 && err != -ENOENT)
			return err;
		*ret_top = ino;
		if (parent.nr == 0 || parent.nr == ino.nr || parent.nr == from.nr)
			return 0;
		*ret_below = ino;
		ino = parent;
	}
	return 0;
}

/* As the inode says. Another one may have the name by now: then it is lost. */
static int tell_below(struct walk *walk, struct lp_ino ino, const char *dir)
{
	struct lp_kv_value value;
	struct lp_kv_bytes bytes;
	struct loaded loaded;
	struct lp_key key;
	int err = load(walk, ino, &loaded);
	if (err < 0)
		return err == -ENOENT ? tell_lost(walk, ino, LP_INODE_TYPE_DIR) : err;
	struct lp_inode_bytes name = loaded.inode.name;
	bool has_name = name.len > 0 && lp_key_name_is_valid(name.at, name.len) &&
			!is_too_deep(dir, name.len);
	char *path = has_name ? join(dir, name.at, name.len) : NULL;
	if (has_name && path == NULL) {
		lp_kv_value_release(&loaded.value);
		return -ENOMEM;
	}
	if (has_name) {
		lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, loaded.inode.parent, name.at, name.len);
		err = lpi_salvage_get(walk->salvage, &key, &value, &bytes);
		has_name = err == -ENOENT;
		if (err == 0)
			lp_kv_value_release(&value);
	}
	uint8_t type = loaded.inode.type;
	lp_kv_value_release(&loaded.value);
	if (err < 0 && err != -ENOENT) {
		free(path);
		return err;
	}
	err = has_name ? tell(walk, ino, path, type, true) : tell_lost(walk, ino, type);
	free(path);
	return err;
}

/* Each step tells one more, from the top down, until it is the inode itself. */
static int tell_from_above(struct walk *walk, struct lp_ino ino)
{
	for (unsigned depth = 0; depth <= DEPTH_MAX; depth++) {
		struct lp_ino top = ino;
		struct lp_ino below = {0};
		char *path = NULL;
		int err = find_visited(walk, ino, &path);
		bool is_told = path != NULL;
		free(path);
		if (err < 0 || is_told)
			return err;
		err = climb(walk, ino, &top, &below);
		if (err == 0)
			err = find_visited(walk, top, &path);
		if (err == 0 && path == NULL)
			err = tell_lost(walk, top, LP_INODE_TYPE_DIR);
		else if (err == 0)
			err = tell_below(walk, below, path);
		free(path);
		if (err == 0)
			err = tell_waiting(walk);
		if (err < 0)
			return err;
	}
	return 0;
}

static int tell_one_left(struct walk *walk, const struct lp_key_view *view,
			 struct lp_kv_bytes value)
{
	struct lp_inode inode;
	if (lp_inode_decode(value.data, value.len, view->ino, &inode) < 0)
		return 0;
	int is_going = is_on_its_way(walk, &inode);
	if (is_going != 0)
		return is_going < 0 ? is_going : 0;
	return tell_from_above(walk, view->ino);
}

static int tell_the_rest(struct walk *walk)
{
	struct lp_kv_iter *iter = NULL;
	struct lp_key_range range;
	lp_key_range_of_space(&range, LP_KEY_SPACE_INODE);
	int err = lp_kv_iter_open(
		walk->salvage->kv, (struct lp_kv_bytes){range.first.bytes, range.first.len},
		(struct lp_kv_bytes){range.end.bytes, range.end.len}, false, &iter);
	if (err < 0)
		return err;
	for (err = lp_kv_iter_seek_first(iter); err == 0; err = lp_kv_iter_next(iter)) {
		struct lp_kv_bytes key = lp_kv_iter_key(iter);
		struct lp_kv_bytes value = lpi_salvage_strip(lp_kv_iter_value(iter));
		struct lp_key_view view;
		if (value.data == NULL || lp_key_parse(key.data, key.len, &view) < 0)
			continue;
		int told = tell_one_left(walk, &view, value);
		if (told < 0) {
			err = told;
			break;
		}
	}
	lp_kv_iter_close(iter);
	return err == -ENOENT ? 0 : err;
}

int lp_salvage_walk(struct lp_salvage *salvage, struct lp_salvage_walker *walker)
{
	struct walk walk = {.salvage = salvage, .walker = walker};
	int err = tell(&walk, (struct lp_ino){ROOT_INO}, LP_SALVAGE_OBJECTS, LP_INODE_TYPE_DIR,
		       false);
	if (err == 0)
		err = tell_waiting(&walk);
	if (err == 0)
		err = tell_the_rest(&walk);
	while (walk.first != NULL) {
		struct waiting *dir = walk.first;
		walk.first = dir->next;
		free(dir);
	}
	return err;
}
