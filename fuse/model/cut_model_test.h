/* SPDX-License-Identifier: Apache-2.0 */
/* Model of what may be left of the mount's files after a power cut (rule M1).
 *
 * Only *_test.c files and their headers include this.
 *
 * Each file and directory is an object with versions, one for each step that changed it. A file's
 * version is its content. A directory's version is its names with their inodes. After a cut each
 * object must be in one of its versions, as a whole. It is not older than the last one that was
 * made durable, nor than any that was answered 100 ms before. It is not newer than the last
 * requested change. A name that replaced another one needs the content that its file had by then.
 */
#ifndef LP_FUSE_MODEL_CUT_MODEL_TEST_H
#define LP_FUSE_MODEL_CUT_MODEL_TEST_H

#include "base/crc32c.h"
#include "base/prng.h"
#include "fuse/model/machine_test.h"

#define LPI_CUT_OBJECTS  40u
#define LPI_CUT_VERSIONS 64u
#define LPI_CUT_NAMES    10u
#define LPI_CUT_STEPS    200u
#define LPI_CUT_BYTES    (96u << 10) /* of a file */
#define LPI_CUT_LOST_NS  (100 * LP_NS_PER_MS)

struct lpi_cut_name {
	char name[16];
	uint64_t node;
	uint32_t needs; /* at least this version of the file */
};

struct lpi_cut_version {
	uint32_t step;
	uint32_t size; /* of a file */
	uint32_t crc;
	uint32_t name_cnt; /* of a directory */
	struct lpi_cut_name names[LPI_CUT_NAMES];
};

struct lpi_cut_object {
	uint64_t node;
	uint64_t fh;
	uint32_t parent;
	bool is_dir;
	uint32_t version_cnt;
	struct lpi_cut_version versions[LPI_CUT_VERSIONS];
	uint8_t bytes[LPI_CUT_BYTES];
};

struct lpi_cut_step {
	char what[64];
	uint64_t sent_event;
	uint64_t done_event;
	uint64_t done_ns;
	/* For a sync: these objects, as they were before its answer, are durable. */
	uint32_t synced[LPI_CUT_OBJECTS];
	uint32_t synced_cnt;
};

struct lpi_cut_run {
	struct lpi_machine *machine;
	uint32_t kernel_idx; /* which one asks */
	uint32_t object_cnt; /* the first is the root */
	uint32_t step_cnt;
	struct lpi_cut_object objects[LPI_CUT_OBJECTS];
	struct lpi_cut_step steps[LPI_CUT_STEPS];
};

/* --- Objects ---------------------------------------------------------------------------------- */

static inline struct lpi_cut_version *lpi_cut_now(struct lpi_cut_object *object)
{
	return &object->versions[object->version_cnt - 1];
}

/* A copy of the newest version, to be changed by the step under way. */
static inline struct lpi_cut_version *lpi_cut_change(struct lpi_cut_run *run, uint32_t idx)
{
	struct lpi_cut_object *object = &run->objects[idx];
	assert_true(object->version_cnt < LPI_CUT_VERSIONS);
	struct lpi_cut_version *version = &object->versions[object->version_cnt++];
	if (object->version_cnt > 1)
		*version = version[-1];
	version->step = run->step_cnt - 1;
	return version;
}

static inline uint32_t lpi_cut_object_new(struct lpi_cut_run *run, uint64_t node, bool is_dir,
					  uint32_t parent)
{
	assert_true(run->object_cnt < LPI_CUT_OBJECTS);
	uint32_t idx = run->object_cnt++;
	struct lpi_cut_object *object = &run->objects[idx];
	object->node = node;
	object->is_dir = is_dir;
	object->parent = parent;
	(void)lpi_cut_change(run, idx);
	return idx;
}

static inline struct lpi_cut_object *lpi_cut_find(struct lpi_cut_run *run, uint64_t node)
{
	for (uint32_t i = 0; i < run->object_cnt; i++)
		if (run->objects[i].node == node)
			return &run->objects[i];
	return NULL;
}

static inline struct lpi_cut_name *lpi_cut_find_name(struct lpi_cut_version *version,
						     const char *name)
{
	for (uint32_t i = 0; i < version->name_cnt; i++)
		if (strcmp(version->names[i].name, name) == 0)
			return &version->names[i];
	return NULL;
}

/* The name, which must be there. */
static inline struct lpi_cut_name *lpi_cut_the_name(struct lpi_cut_version *version,
						    const char *name)
{
	struct lpi_cut_name *entry = lpi_cut_find_name(version, name);
	LP_ASSERT(entry != NULL);
	return entry;
}

static inline void lpi_cut_set_name(struct lpi_cut_run *run, uint32_t dir, const char *name,
				    uint64_t node, uint32_t needs)
{
	struct lpi_cut_version *version = lpi_cut_change(run, dir);
	struct lpi_cut_name *entry = lpi_cut_find_name(version, name);
	if (entry == NULL) {
		assert_true(version->name_cnt < LPI_CUT_NAMES);
		entry = &version->names[version->name_cnt++];
	}
	*entry = (struct lpi_cut_name){.node = node, .needs = needs};
	(void)snprintf(entry->name, sizeof(entry->name), "%s", name);
}

static inline void lpi_cut_drop_name(struct lpi_cut_version *version, const char *name)
{
	struct lpi_cut_name *entry = lpi_cut_the_name(version, name);
	*entry = version->names[--version->name_cnt];
}

/* --- Steps ------------------------------------------------------------------------------------ */

static inline struct lpi_kernel *lpi_cut_kernel(struct lpi_cut_run *run)
{
	return &run->machine->kernels[run->kernel_idx];
}

static inline struct lpi_cut_step *lpi_cut_begin(struct lpi_cut_run *run, const char *format, ...)
	LP_PRINTF(2, 3);

static inline struct lpi_cut_step *lpi_cut_begin(struct lpi_cut_run *run, const char *format, ...)
{
	assert_true(run->step_cnt < LPI_CUT_STEPS);
	struct lpi_cut_step *step = &run->steps[run->step_cnt++];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(step->what, sizeof(step->what), format, args);
	va_end(args);
	step->sent_event = lp_sim_event_count(lpi_machine_device(run->machine));
	return step;
}

static inline void lpi_cut_end(struct lpi_cut_run *run)
{
	struct lpi_cut_step *step = &run->steps[run->step_cnt - 1];
	step->done_event = lp_sim_event_count(lpi_machine_device(run->machine));
	step->done_ns = run->machine->sim->clock.now_ns;
}

static inline uint32_t lpi_cut_create(struct lpi_cut_run *run, uint32_t dir, const char *name)
{
	uint64_t in = run->objects[dir].node;
	(void)lpi_cut_begin(run, "create %s", name);
	struct lpi_opened opened = lpi_kernel_create(lpi_cut_kernel(run), FUSE_CREATE, in, name);
	uint32_t file = lpi_cut_object_new(run, opened.node, false, dir);
	run->objects[file].fh = opened.fh;
	lpi_cut_set_name(run, dir, name, opened.node, 0);
	lpi_cut_end(run);
	return file;
}

/* Without a name. */
static inline uint32_t lpi_cut_tmpfile(struct lpi_cut_run *run, uint32_t dir)
{
	uint64_t in = run->objects[dir].node;
	(void)lpi_cut_begin(run, "tmpfile");
	struct lpi_opened opened = lpi_kernel_create(lpi_cut_kernel(run), FUSE_TMPFILE, in, "/");
	uint32_t file = lpi_cut_object_new(run, opened.node, false, dir);
	run->objects[file].fh = opened.fh;
	lpi_cut_end(run);
	return file;
}

static inline uint32_t lpi_cut_mkdir(struct lpi_cut_run *run, uint32_t dir, const char *name)
{
	(void)lpi_cut_begin(run, "mkdir %s", name);
	uint64_t node = lpi_kernel_mkdir(lpi_cut_kernel(run), run->objects[dir].node, name);
	uint32_t made = lpi_cut_object_new(run, node, true, dir);
	lpi_cut_set_name(run, dir, name, node, 0);
	lpi_cut_end(run);
	return made;
}

static inline void lpi_cut_changed_bytes(struct lpi_cut_run *run, uint32_t file, uint32_t size)
{
	struct lpi_cut_version *version = lpi_cut_change(run, file);
	version->size = size;
	version->crc = lp_crc32c(0, run->objects[file].bytes, size);
}

/* With the directories above. */
static inline void lpi_cut_is_synced(const struct lpi_cut_run *run, struct lpi_cut_step *step,
				     uint32_t idx)
{
	step->synced[step->synced_cnt++] = idx;
	while (idx != 0) {
		idx = run->objects[idx].parent;
		step->synced[step->synced_cnt++] = idx;
	}
}

/* Content that no other write has, by a descriptor with these flags. */
static inline struct lpi_cut_step *lpi_cut_write_as(struct lpi_cut_run *run, uint32_t file,
						    uint32_t flags, uint32_t offset, uint32_t len)
{
	struct lpi_cut_object *object = &run->objects[file];
	struct lp_prng prng;
	assert_true(offset + len <= LPI_CUT_BYTES);
	struct lpi_cut_step *step = lpi_cut_begin(run, "write %u of %u at %u", file, len, offset);
	lp_prng_init(&prng, run->step_cnt);
	lp_prng_fill(&prng, object->bytes + offset, len);
	uint32_t size = LP_MAX(lpi_cut_now(object)->size, offset + len);
	lpi_cut_changed_bytes(run, file, size);
	const struct lpi_opened opened = {object->node, object->fh};
	lp_test_ok(lpi_kernel_write_as(lpi_cut_kernel(run), opened, flags, offset,
				       object->bytes + offset, len));
	lpi_cut_end(run);
	return step;
}

static inline void lpi_cut_write(struct lpi_cut_run *run, uint32_t file, uint32_t offset,
				 uint32_t len)
{
	(void)lpi_cut_write_as(run, file, 0, offset, len);
}

/* As with AIO and io_uring: no fsync follows, and once answered the write is durable. */
static inline void lpi_cut_write_durable(struct lpi_cut_run *run, uint32_t file, uint32_t offset,
					 uint32_t len)
{
	struct lpi_cut_step *step = lpi_cut_write_as(run, file, O_DIRECT | O_DSYNC, offset, len);
	lpi_cut_is_synced(run, step, file);
}

static inline void lpi_cut_truncate(struct lpi_cut_run *run, uint32_t file, uint32_t size)
{
	struct lpi_cut_object *object = &run->objects[file];
	uint32_t old = lpi_cut_now(object)->size;
	assert_true(size <= LPI_CUT_BYTES);
	(void)lpi_cut_begin(run, "truncate %u to %u", file, size);
	if (size < old)
		memset(object->bytes + size, 0, old - size);
	lpi_cut_changed_bytes(run, file, size);
	lp_test_ok(lpi_kernel_truncate(lpi_cut_kernel(run), object->node, size));
	lpi_cut_end(run);
}

/* Covers the object, its entry and the directories above. */
static inline void lpi_cut_fsync(struct lpi_cut_run *run, uint32_t idx)
{
	const struct lpi_cut_object *object = &run->objects[idx];
	struct lpi_cut_step *step = lpi_cut_begin(run, "fsync %u", idx);
	lp_test_ok(lpi_kernel_fsync(lpi_cut_kernel(run),
				    object->is_dir ? FUSE_FSYNCDIR : FUSE_FSYNC, object->node,
				    object->fh));
	lpi_cut_is_synced(run, step, idx);
	lpi_cut_end(run);
}

static inline void lpi_cut_link(struct lpi_cut_run *run, uint32_t file, uint32_t dir,
				const char *name)
{
	uint64_t node = run->objects[file].node;
	(void)lpi_cut_begin(run, "link %u as %s", file, name);
	lpi_cut_set_name(run, dir, name, node, 0);
	lp_test_ok(lpi_kernel_link(lpi_cut_kernel(run), node, run->objects[dir].node, name));
	lpi_cut_end(run);
}

static inline void lpi_cut_remove(struct lpi_cut_run *run, uint32_t opcode, uint32_t dir,
				  const char *name)
{
	(void)lpi_cut_begin(run, "remove %s", name);
	lpi_cut_drop_name(lpi_cut_change(run, dir), name);
	lp_test_ok(lpi_kernel_remove(lpi_cut_kernel(run), opcode, run->objects[dir].node, name));
	lpi_cut_end(run);
}

static inline void lpi_cut_rename(struct lpi_cut_run *run, uint32_t dir, const char *name,
				  uint32_t to_dir, const char *to_name)
{
	(void)lpi_cut_begin(run, "rename %s to %s", name, to_name);
	struct lpi_cut_version *from = lpi_cut_now(&run->objects[dir]);
	uint64_t node = lpi_cut_the_name(from, name)->node;
	struct lpi_cut_object *moved = lpi_cut_find(run, node);
	bool replaces = lpi_cut_find_name(lpi_cut_now(&run->objects[to_dir]), to_name) != NULL;
	uint32_t needs = replaces && !moved->is_dir ? moved->version_cnt - 1 : 0;
	lpi_cut_set_name(run, to_dir, to_name, node, needs);
	/* In one directory it is one change. */
	lpi_cut_drop_name(
		dir == to_dir ? lpi_cut_now(&run->objects[dir]) : lpi_cut_change(run, dir), name);
	moved->parent = to_dir;
	lp_test_ok(lpi_kernel_rename(lpi_cut_kernel(run), run->objects[dir].node, name,
				     run->objects[to_dir].node, to_name));
	lpi_cut_end(run);
}

/* --- Checks after a cut ----------------------------------------------------------------------- */

struct lpi_cut_moment {
	struct lpi_cut_run *run;
	uint64_t event; /* an event that did not happen any more */
	uint64_t now_ns;
	struct lpi_machine *found; /* the machine that booted */
	uint8_t *page;
};

static inline bool lpi_cut_must_be(const struct lpi_cut_moment *moment, uint32_t object,
				   uint32_t step_idx)
{
	const struct lpi_cut_run *run = moment->run;
	const struct lpi_cut_step *own = &run->steps[step_idx];
	if (own->done_event <= moment->event && own->done_ns + LPI_CUT_LOST_NS <= moment->now_ns)
		return true;
	for (uint32_t i = step_idx; i < run->step_cnt; i++) {
		const struct lpi_cut_step *step = &run->steps[i];
		for (uint32_t j = 0; j < step->synced_cnt && step->done_event <= moment->event; j++)
			if (step->synced[j] == object)
				return true;
	}
	return false;
}

/* The oldest and the newest version that may be there. */
static inline void lpi_cut_bounds(const struct lpi_cut_moment *moment, uint32_t idx,
				  uint32_t *ret_min, uint32_t *ret_max)
{
	const struct lpi_cut_object *object = &moment->run->objects[idx];
	*ret_min = 0;
	*ret_max = 0;
	for (uint32_t i = 0; i < object->version_cnt; i++) {
		uint32_t step = object->versions[i].step;
		if (moment->run->steps[step].sent_event <= moment->event)
			*ret_max = i;
		if (lpi_cut_must_be(moment, idx, step))
			*ret_min = i;
	}
}

static inline void lpi_cut_wrong(const struct lpi_cut_moment *moment, uint32_t idx,
				 const char *what)
{
	const struct lpi_cut_run *run = moment->run;
	uint32_t min = 0;
	uint32_t max = 0;
	lpi_cut_bounds(moment, idx, &min, &max);
	print_error("cut before event %llu: object %u: %s (versions %u to %u of %u may be there)\n",
		    (unsigned long long)moment->event, idx, what, min, max,
		    run->objects[idx].version_cnt);
	for (uint32_t i = 0; i < run->step_cnt; i++)
		print_error("  %u: %s: events %llu to %llu\n", i, run->steps[i].what,
			    (unsigned long long)run->steps[i].sent_event,
			    (unsigned long long)run->steps[i].done_event);
	fail();
}

/* Returns the newest version that it may be. */
static inline uint32_t lpi_cut_check_file(const struct lpi_cut_moment *moment, uint32_t idx)
{
	const struct lpi_cut_object *object = &moment->run->objects[idx];
	uint32_t min = 0;
	uint32_t max = 0;
	uint32_t len = lpi_kernel_read(&moment->found->kernels[0], FUSE_READ, object->node, 0,
				       moment->page);
	uint32_t crc = lp_crc32c(0, moment->page, len);
	lpi_cut_bounds(moment, idx, &min, &max);
	for (uint32_t i = max + 1; i > min; i--)
		if (object->versions[i - 1].size == len && object->versions[i - 1].crc == crc)
			return i - 1;
	char what[64];
	(void)snprintf(what, sizeof(what), "%u bytes that it never had, or has no more", len);
	lpi_cut_wrong(moment, idx, what);
	return 0;
}

static inline void lpi_cut_list(const struct lpi_cut_moment *moment, uint64_t node,
				struct lpi_cut_version *ret)
{
	struct lpi_kernel *kernel = &moment->found->kernels[1];
	uint32_t len = lpi_kernel_read(kernel, FUSE_READDIR, node, 0, moment->page);
	ret->name_cnt = 0;
	for (uint32_t at = 0; at < len;) {
		struct fuse_dirent dirent;
		memcpy(&dirent, moment->page + at, sizeof(dirent));
		const char *name = (const char *)moment->page + at + FUSE_NAME_OFFSET;
		at += (uint32_t)FUSE_DIRENT_SIZE(&dirent);
		if (name[0] == '.')
			continue;
		assert_true(ret->name_cnt < LPI_CUT_NAMES);
		struct lpi_cut_name *entry = &ret->names[ret->name_cnt++];
		*entry = (struct lpi_cut_name){.node = dirent.ino};
		(void)snprintf(entry->name, sizeof(entry->name), "%.*s", (int)dirent.namelen, name);
	}
}

struct lpi_cut_found {
	struct lpi_cut_version version; /* a directory's */
	uint32_t newest[LPI_CUT_NAMES]; /* that each file in it may be */
};

/* Whether the names are those of the version, and the files have the needed content. */
static inline bool lpi_cut_is_version(struct lpi_cut_found *found, struct lpi_cut_version *version)
{
	if (found->version.name_cnt != version->name_cnt)
		return false;
	for (uint32_t i = 0; i < found->version.name_cnt; i++) {
		const struct lpi_cut_name *entry =
			lpi_cut_find_name(version, found->version.names[i].name);
		if (entry == NULL || entry->node != found->version.names[i].node ||
		    entry->needs > found->newest[i])
			return false;
	}
	return true;
}

static inline void lpi_cut_check_dir(const struct lpi_cut_moment *moment, uint32_t idx);

static inline void lpi_cut_check_names(const struct lpi_cut_moment *moment, uint32_t idx,
				       struct lpi_cut_found *found)
{
	const struct lpi_cut_object *dir = &moment->run->objects[idx];
	for (uint32_t i = 0; i < found->version.name_cnt; i++) {
		const struct lpi_cut_name *entry = &found->version.names[i];
		struct lpi_cut_object *object = lpi_cut_find(moment->run, entry->node);
		uint64_t node =
			lpi_kernel_lookup(&moment->found->kernels[0], dir->node, entry->name);
		if (object == NULL || node != entry->node) {
			lpi_cut_wrong(moment, idx, "a name that leads to nothing known");
			return;
		}
		uint32_t object_idx = (uint32_t)(object - moment->run->objects);
		if (object->is_dir)
			lpi_cut_check_dir(moment, object_idx);
		else
			found->newest[i] = lpi_cut_check_file(moment, object_idx);
	}
}

/* With all that is below. */
static inline void lpi_cut_check_dir(const struct lpi_cut_moment *moment, uint32_t idx)
{
	struct lpi_cut_object *object = &moment->run->objects[idx];
	struct lpi_cut_found found = {.version = {.name_cnt = 0}};
	uint32_t min = 0;
	uint32_t max = 0;
	lpi_cut_list(moment, object->node, &found.version);
	lpi_cut_check_names(moment, idx, &found);
	lpi_cut_bounds(moment, idx, &min, &max);
	for (uint32_t i = max + 1; i > min; i--)
		if (lpi_cut_is_version(&found, &object->versions[i - 1]))
			return;
	for (uint32_t i = 0; i < found.version.name_cnt; i++)
		print_error("  found %s -> %llx, version %u\n", found.version.names[i].name,
			    (unsigned long long)found.version.names[i].node, found.newest[i]);
	lpi_cut_wrong(moment, idx, "names that it never had together, or has no more");
}

/* Boots a machine with the data that the cut has left, and checks it. */
static inline void lpi_cut_judge(struct lpi_cut_run *run, struct lp_bdev *left, uint64_t event,
				 uint64_t now_ns, bool with_fsck)
{
	struct lpi_cut_moment moment = {.run = run, .event = event, .now_ns = now_ns};
	moment.page = malloc(LPI_KERNEL_BYTES);
	assert_non_null(moment.page);
	moment.found = lpi_machine_boot(left);
	lpi_cut_check_dir(&moment, 0);
	lp_test_ok(lpi_machine_stop(moment.found));
	if (with_fsck)
		lpi_ns_sim_fsck(moment.found->sim);
	lpi_machine_free(moment.found);
	free(moment.page);
}

#endif
