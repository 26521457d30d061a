/* SPDX-License-Identifier: Apache-2.0 */
/* lapis scrub --list: what is damaged, by name. The daemon knows the inodes, and of most of them
 * one name, which is looked up again here: it may have been renamed. An object of which that is not
 * all has its names found by a walk through all keys, one for all of them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/json.h"
#include "cli/remote/remote.h"

#define ERROR_MAX 80u
#define WORD_MAX  32u

struct object {
	uint64_t ino;
	int64_t since_ns;
	uint64_t offset;
	char error[ERROR_MAX];
	char **names;
	uint32_t name_cnt;
	bool is_to_find; /* there may be other names */
};

struct damaged {
	struct object *objects; /* by their numbers */
	uint32_t cnt;
	uint32_t room;
	bool is_full;
};

static void free_all(struct damaged *damaged)
{
	for (uint32_t i = 0; i < damaged->cnt; i++) {
		for (uint32_t k = 0; k < damaged->objects[i].name_cnt; k++)
			free(damaged->objects[i].names[k]);
		free(damaged->objects[i].names);
	}
	free(damaged->objects);
}

static int add_name(struct object *object, const char *name, size_t len)
{
	char **names = realloc(object->names, (object->name_cnt + 1) * sizeof(*names));
	char *copy = strndup(name, len);
	if (names != NULL)
		object->names = names;
	if (names == NULL || copy == NULL) {
		free(copy);
		return -ENOMEM;
	}
	object->names[object->name_cnt++] = copy;
	return 0;
}

static int add_object(struct damaged *damaged, struct object **ret_object)
{
	if (damaged->cnt == damaged->room) {
		uint32_t room = damaged->room == 0 ? 64 : 2 * damaged->room;
		struct object *objects = realloc(damaged->objects, room * sizeof(*objects));
		if (objects == NULL)
			return -ENOMEM;
		damaged->objects = objects;
		damaged->room = room;
	}
	*ret_object = &damaged->objects[damaged->cnt++];
	**ret_object = (struct object){.ino = 0};
	return 0;
}

/* --- What the daemon knows -------------------------------------------------------------------- */

static const char *word_of(const char *answer, unsigned idx, const char *name, char *buf)
{
	char path[WORD_MAX];
	(void)snprintf(path, sizeof(path), "objects.%u.%s", idx, name);
	return lpi_cli_json_word(answer, path, buf, WORD_MAX);
}

/* The name that the daemon says, if it still leads there; and whether it is the only one. */
static int take_name(struct object *object, const char *answer, unsigned idx)
{
	static char name[LPI_KEY_MAX + 1];
	char path[WORD_MAX];
	struct lapis_attrs attrs = {.ino = 0};
	(void)snprintf(path, sizeof(path), "objects.%u.name", idx);
	(void)lpi_cli_json_text(answer, path, name, sizeof(name));
	object->is_to_find = true;
	if (name[0] == '\0')
		return 0;
	int err = lapis_stat(lpi_remote(), name, &attrs);
	if (err < 0 || attrs.ino != object->ino)
		return 0;
	object->is_to_find = attrs.nlink > 1 && attrs.type != LAPIS_DIR;
	return object->is_to_find ? 0 : add_name(object, name, strlen(name));
}

/* Returns how many there were. */
static int take_page(struct damaged *damaged, const char *answer)
{
	char word[WORD_MAX];
	char path[WORD_MAX];
	unsigned i = 0;
	for (; word_of(answer, i, "ino", word)[0] != '\0'; i++) {
		struct object *object = NULL;
		int err = add_object(damaged, &object);
		if (err < 0)
			return err;
		object->ino = strtoull(word, NULL, 10);
		object->offset = strtoull(word_of(answer, i, "offset", word), NULL, 10);
		object->since_ns = strtoll(word_of(answer, i, "since_ns", word), NULL, 10);
		(void)snprintf(path, sizeof(path), "objects.%u.error", i);
		(void)lpi_cli_json_text(answer, path, object->error, ERROR_MAX);
		err = take_name(object, answer, i);
		if (err < 0)
			return err;
	}
	return (int)i;
}

static int ask_shard(struct damaged *damaged, unsigned shard, unsigned *ret_shard_cnt)
{
	uint64_t behind = 0;
	char what[80];
	char word[WORD_MAX];
	int cnt = 1;
	for (bool more = true; more && cnt > 0;) {
		char *answer = NULL;
		(void)snprintf(what, sizeof(what), "list %u %" PRIu64, shard, behind);
		int err = lapis_admin(lpi_remote(), LAPIS_SCRUB, what, &answer);
		if (err < 0)
			return err;
		cnt = take_page(damaged, answer);
		*ret_shard_cnt = (unsigned)lpi_cli_json_number(answer, "shards_cnt");
		more = strcmp(lpi_cli_json_word(answer, "more", word, WORD_MAX), "true") == 0;
		damaged->is_full |=
			strcmp(lpi_cli_json_word(answer, "full", word, WORD_MAX), "true") == 0;
		free(answer);
		if (cnt > 0)
			behind = damaged->objects[damaged->cnt - 1].ino;
	}
	return cnt < 0 ? cnt : 0;
}

/* --- Names ------------------------------------------------------------------------------------ */

static int by_number(const void *key, const void *object)
{
	uint64_t a = *(const uint64_t *)key;
	uint64_t b = ((const struct object *)object)->ino;
	return a < b ? -1 : a > b;
}

static int find_names(struct damaged *damaged)
{
	struct lapis_list *list = NULL;
	struct lapis_item item;
	bool is_wanted = false;
	for (uint32_t i = 0; i < damaged->cnt; i++)
		is_wanted |= damaged->objects[i].is_to_find;
	if (!is_wanted)
		return 0;
	int err = lapis_list_open(lpi_remote(), "", NULL, 0, &list);
	while (err >= 0 && (err = lapis_list_next(list, &item)) > 0) {
		struct object *object = bsearch(&item.ino, damaged->objects, damaged->cnt,
						sizeof(*object), by_number);
		if (object != NULL && object->is_to_find)
			err = add_name(object, item.name, item.name_bytes);
	}
	lapis_list_close(list);
	return err;
}

/* --- What is shown ---------------------------------------------------------------------------- */

static void print_object(const struct object *object)
{
	char when[40];
	lpi_format_time(object->since_ns, when, sizeof(when));
	for (uint32_t i = 0; i < object->name_cnt; i++)
		lpi_print_name(stdout, object->names[i], '\n');
	if (object->name_cnt == 0)
		(void)puts("(no name)");
	(void)printf("          inode %" PRIu64 ", offset %" PRIu64 ": ", object->ino,
		     object->offset);
	lpi_cli_print_escaped(stdout, object->error);
	(void)printf(", found %s\n", when);
}

static void print_json(const struct object *object)
{
	(void)printf("{\"ino\": %" PRIu64 ", \"offset\": %" PRIu64 ", \"since_ns\": %" PRId64
		     ", \"error\": ",
		     object->ino, object->offset, object->since_ns);
	lpi_cli_print_json(stdout, object->error);
	(void)fputs(", \"names\": [", stdout);
	for (uint32_t i = 0; i < object->name_cnt; i++) {
		(void)fputs(i == 0 ? "" : ", ", stdout);
		lpi_cli_print_json(stdout, object->names[i]);
	}
	(void)fputs("]}", stdout);
}

static void print_all(const struct damaged *damaged, bool is_json)
{
	if (is_json)
		(void)putchar('[');
	for (uint32_t i = 0; i < damaged->cnt; i++) {
		if (is_json && i > 0)
			(void)fputs(",\n ", stdout);
		if (is_json)
			print_json(&damaged->objects[i]);
		else
			print_object(&damaged->objects[i]);
	}
	if (is_json)
		(void)puts("]");
	if (damaged->is_full)
		(void)fprintf(stderr,
			      "lapis: scrub: a shard lists at most %u objects, and there may "
			      "be more (repair or remove some, then run lapis scrub start)\n",
			      1024u);
}

int lpi_damaged_list(bool is_json)
{
	struct damaged damaged = {.cnt = 0};
	unsigned shard_cnt = 1;
	int err = lpi_remote() == NULL ? -ENOTCONN : 0;
	if (err < 0)
		return LP_EXIT_FAILED; /* said already */
	for (unsigned shard = 0; shard < shard_cnt && err == 0; shard++)
		err = ask_shard(&damaged, shard, &shard_cnt);
	if (err == 0)
		err = find_names(&damaged);
	if (err == 0)
		print_all(&damaged, is_json);
	uint32_t cnt = damaged.cnt;
	free_all(&damaged);
	if (err < 0)
		return lpi_remote_fail("scrub", err);
	return cnt > 0 ? LP_EXIT_FAILED : LP_EXIT_OK;
}
