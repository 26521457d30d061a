/* SPDX-License-Identifier: Apache-2.0 */
/* Findings are told at once and not kept, so their number costs no memory. An inode is named by its
 * path where the hints of rule N3 lead up to the root. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "store/check/fsck_impl.h"

#define TEXT_MAX   256u
#define PATH_MAX_  1024u
#define OBJECT_MAX (PATH_MAX_ + 64u)
#define DEPTH_MAX  128u

static const char *const kind_names[LP_FSCK_KIND_CNT] = {
	[LP_FSCK_LABEL_COPY] = "label-copy",
	[LP_FSCK_CHUNK_SLOT] = "chunk-slot",
	[LP_FSCK_SUPER_COPY] = "super-copy",
	[LP_FSCK_BIT] = "flipped-bit",
	[LP_FSCK_SHARD] = "shard",
	[LP_FSCK_INDEX] = "index",
	[LP_FSCK_KEY] = "key",
	[LP_FSCK_RECORD] = "record",
	[LP_FSCK_VALUE] = "value",
	[LP_FSCK_PLACE] = "place",
	[LP_FSCK_MAP] = "map",
	[LP_FSCK_STRAY] = "stray",
	[LP_FSCK_SIZE] = "size",
	[LP_FSCK_OUTSIDE] = "outside",
	[LP_FSCK_TWICE] = "twice",
	[LP_FSCK_REFS] = "refs",
	[LP_FSCK_LEAK] = "leak",
	[LP_FSCK_UNTAKEN] = "untaken",
	[LP_FSCK_FRAGMENT] = "fragment",
	[LP_FSCK_ENTRY] = "entry",
	[LP_FSCK_ENTRY_TYPE] = "entry-type",
	[LP_FSCK_PARENT] = "parent",
	[LP_FSCK_LOOP] = "loop",
	[LP_FSCK_NLINK] = "nlink",
	[LP_FSCK_UNREACHABLE] = "unreachable",
	[LP_FSCK_ORPHAN] = "orphan",
	[LP_FSCK_UNFINISHED] = "unfinished",
	[LP_FSCK_TXN] = "transaction",
	[LP_FSCK_DATA] = "data",
	[LP_FSCK_DATA_READ] = "data-read",
	[LP_FSCK_DEFERRED] = "deferred",
	[LP_FSCK_BAD_BLOCK] = "bad-block",
};

const char *lp_fsck_kind_name(enum lp_fsck_kind kind)
{
	LP_ASSERT(kind < LP_FSCK_KIND_CNT);
	return kind_names[kind];
}

const char *lpi_fsck_last_corruption(void)
{
	const struct lp_corruption *found = lp_corruption_find(0);
	return found != NULL ? found->what : "cannot be read";
}

/* --- The path of an inode --------------------------------------------------------------------- */

/* Written from its end to its beginning. */
struct path {
	char bytes[PATH_MAX_];
	size_t at; /* the first byte in use */
};

static bool prepend(struct path *path, const void *bytes, size_t len)
{
	if (len > path->at)
		return false;
	path->at -= len;
	memcpy(path->bytes + path->at, bytes, len);
	return true;
}

/* Puts the inode's name before the path and goes on to its parent. */
static bool step_up(struct lpi_fsck *fsck, struct path *path, struct lp_ino *ino)
{
	uint32_t idx = lp_ino_shard(*ino);
	struct lp_key key;
	struct lp_kv_value value;
	struct lp_inode inode;
	if (idx >= fsck->report->shards || !lpi_fsck_is_there(&fsck->shards[idx]))
		return false;
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, *ino);
	if (lpi_fsck_get(&fsck->shards[idx], &key, &value) < 0)
		return false;
	bool ok = lp_inode_decode(value.bytes.data, value.bytes.len, *ino, &inode) == 0 &&
		  inode.name.len > 0 && inode.parent.nr != 0 &&
		  prepend(path, inode.name.at, inode.name.len) && prepend(path, "/", 1);
	if (ok)
		*ino = inode.parent;
	lp_kv_value_release(&value);
	return ok;
}

static bool find_path(struct lpi_fsck *fsck, struct lp_ino ino, struct path *path)
{
	path->at = sizeof(path->bytes) - 1;
	path->bytes[path->at] = '\0';
	if (ino.nr == LP_INO_ROOT.nr)
		return prepend(path, "/", 1);
	for (uint32_t depth = 0; depth < DEPTH_MAX; depth++) {
		if (!step_up(fsck, path, &ino))
			return false;
		if (ino.nr == LP_INO_ROOT.nr)
			return true;
	}
	return false;
}

static void say_object(struct lpi_fsck *fsck, const struct lpi_fsck_at *at, char *buf, size_t len)
{
	struct path path;
	if (at->ino.nr != 0 && find_path(fsck, at->ino, &path))
		(void)snprintf(buf, len, "%s (inode %llu)", path.bytes + path.at,
			       (unsigned long long)at->ino.nr);
	else if (at->ino.nr != 0)
		(void)snprintf(buf, len, "inode %llu", (unsigned long long)at->ino.nr);
	else if (at->shard != NULL)
		(void)snprintf(buf, len, "shard %u", at->shard->idx);
	else
		(void)snprintf(buf, len, "store");
}

/* --- Telling ---------------------------------------------------------------------------------- */

static void count(struct lp_fsck_report *report, const struct lp_fsck_finding *finding)
{
	if (finding->is_repaired)
		report->repaired++;
	else if (finding->severity == LP_FSCK_ERROR)
		report->problems++;
	else
		report->warnings++;
}

void lpi_fsck_found(struct lpi_fsck *fsck, const struct lpi_fsck_at *at, const char *fmt, ...)
{
	char text[TEXT_MAX];
	char object[OBJECT_MAX];
	va_list ap;
	if (fsck->is_over) /* what was not looked at is missing everywhere */
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* a longer one is cut */
	va_end(ap);
	say_object(fsck, at, object, sizeof(object));
	const struct lp_fsck_finding finding = {
		.kind = at->kind,
		.severity = at->is_warning ? LP_FSCK_WARNING : LP_FSCK_ERROR,
		.is_repaired = at->is_repaired,
		.shard_idx = at->shard != NULL ? at->shard->idx : LP_FSCK_NO_SHARD,
		.ino = at->ino,
		.extent = at->extent,
		.offset_bytes = at->has_offset ? at->offset_bytes : LP_OFFSET_NONE,
		.object = object,
		.text = text,
	};
	count(fsck->report, &finding);
	fsck->options->events->found(fsck->options->events, &finding);
}

void lpi_fsck_moved(struct lpi_fsck *fsck)
{
	struct lp_fsck_events *events = fsck->options->events;
	if (events->moved != NULL)
		events->moved(events, fsck->report);
}
