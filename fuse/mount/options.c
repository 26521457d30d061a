/* SPDX-License-Identifier: Apache-2.0 */
/* One table: an option is a flag of the mount, or ours, or for programs that read fstab. The last
 * kind is skipped. Of contradicting options the last one counts, as with mount(8). */
#include "fuse/mount/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

#include "base/error.h"
#include "fuse/mount/umount.h"

#define NONE UINT32_MAX
/* Inodes that the kernel shall remember by default: about 40 MB here, and a GB in the kernel. */
#define INODES 1000000u
/* The kernel may cache for long, because it is told of changes through sockets (rule M2). */
#define BELIEVED_NS (86400 * LP_NS_PER_S)
/* The kernel's minimum. */
#define READ_MIN 4096u

enum meaning {
	SET,   /* a flag */
	CLEAR, /* a flag */
	RELATIME,
	IGNORED,
	ASYNC,
	SYNC,
	PRIVATE,
	ALLOW_OTHER,
	SQUASH_UID,
	SQUASH_GID,
	ENTRY_TIME,
	ATTR_TIME,
	INODES_MAX,
	READ_MAX,
	SOURCE,
	SUBTYPE,
	TRANSPORT,
	WRITEBACK,
};

static const struct {
	const char *name;
	enum meaning meaning;
	bool has_value;
	unsigned long flag;
} table[] = {
	{"_netdev", IGNORED, false, 0},
	{"allow_other", ALLOW_OTHER, false, 0}, /* the default of a daemon that runs as root */
	{"async", ASYNC, false, 0},
	{"atime", CLEAR, false, MS_NOATIME | MS_STRICTATIME},
	{"attr_timeout", ATTR_TIME, true, 0},
	{"auto", IGNORED, false, 0},
	{"comment", IGNORED, true, 0},
	{"default_permissions", IGNORED, false, 0}, /* always so */
	{"defaults", IGNORED, false, 0},
	{"dev", CLEAR, false, MS_NODEV},
	{"diratime", CLEAR, false, MS_NODIRATIME},
	{"dirsync", SYNC, false, 0},
	{"entry_timeout", ENTRY_TIME, true, 0},
	{"exec", CLEAR, false, MS_NOEXEC},
	{"fsname", SOURCE, true, 0},
	{"gid", SQUASH_GID, true, 0},
	{"group", IGNORED, false, 0},
	{"lazytime", IGNORED, false, 0}, /* times are kept here, not by the kernel */
	{"max_inodes", INODES_MAX, true, 0},
	{"max_read", READ_MAX, true, 0},
	{"noatime", SET, false, MS_NOATIME},
	{"noauto", IGNORED, false, 0},
	{"nodev", SET, false, MS_NODEV},
	{"nodiratime", SET, false, MS_NODIRATIME},
	{"noexec", SET, false, MS_NOEXEC},
	{"nofail", IGNORED, false, 0},
	{"nogroup", IGNORED, false, 0},
	{"nolazytime", IGNORED, false, 0},
	{"noowner", IGNORED, false, 0},
	{"norelatime", RELATIME, false, 0}, /* the same for the kernel */
	{"nostrictatime", CLEAR, false, MS_STRICTATIME},
	{"nosuid", SET, false, MS_NOSUID},
	{"nouser", IGNORED, false, 0},
	{"nousers", IGNORED, false, 0},
	{"owner", IGNORED, false, 0},
	{"private", PRIVATE, false, 0},
	{"relatime", RELATIME, false, 0},
	{"ro", SET, false, MS_RDONLY},
	{"rw", CLEAR, false, MS_RDONLY},
	{"strictatime", SET, false, MS_STRICTATIME},
	{"subtype", SUBTYPE, true, 0},
	{"suid", CLEAR, false, MS_NOSUID},
	{"sync", SYNC, false, 0},
	{"transport", TRANSPORT, true, 0},
	{"uid", SQUASH_UID, true, 0},
	{"user", IGNORED, false, 0},
	{"users", IGNORED, false, 0},
	{"writeback", WRITEBACK, false, 0},
};

static int refuse(char *why, const char *item, const char *text)
{
	(void)snprintf(why, LP_FUSE_WHY_MAX, "mount option %.100s: %s", item, text);
	return -EINVAL;
}

/* Notes a flag. Access times are of one kind, because noatime and strictatime exclude each other.
 */
static void name_flag(struct lpi_fuse_options *options, unsigned long set, unsigned long cleared)
{
	const unsigned long kinds = MS_NOATIME | MS_STRICTATIME;
	if ((set & kinds) != 0)
		cleared |= kinds & ~set;
	options->has_atimes |= (set & kinds) != 0 || (cleared & MS_NOATIME) != 0;
	options->set = (options->set & ~cleared) | set;
	options->cleared = (options->cleared & ~set) | cleared;
}

static int parse_id(const char *item, const char *value, uint32_t *ret, char *why)
{
	char *end = NULL;
	errno = 0;
	unsigned long id = strtoul(value, &end, 10);
	if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 || id >= NONE)
		return refuse(why, item, "is no number of a user or group");
	*ret = (uint32_t)id;
	return 0;
}

static int parse_seconds(const char *item, const char *value, uint64_t *ret_ns, char *why)
{
	char *end = NULL;
	double seconds = strtod(value, &end);
	if (end == value || *end != '\0' || !(seconds >= 0 && seconds <= 86400))
		return refuse(why, item, "is not from 0 to 86400 seconds");
	*ret_ns = (uint64_t)(seconds * (double)LP_NS_PER_S);
	return 0;
}

static int parse_count(const char *item, const char *value, uint64_t *ret, char *why)
{
	char *end = NULL;
	errno = 0;
	unsigned long long count = strtoull(value, &end, 10);
	if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0)
		return refuse(why, item, "is no number");
	*ret = count;
	return 0;
}

static int parse_transport(const char *item, const char *value, enum lpi_fuse_transport *ret,
			   char *why)
{
	static const char *const names[] = {[LPI_FUSE_TRANSPORT_AUTO] = "auto",
					    [LPI_FUSE_TRANSPORT_DEVICE] = "device",
					    [LPI_FUSE_TRANSPORT_IO_URING] = "io_uring"};
	for (size_t i = 0; i < LP_ARRAY_SIZE(names); i++) {
		if (strcmp(names[i], value) != 0)
			continue;
		*ret = (enum lpi_fuse_transport)i;
		return 0;
	}
	return refuse(why, item, "is none of auto, device, io_uring");
}

static int parse_read_max(const char *item, const char *value, uint32_t *ret, char *why)
{
	uint64_t bytes = 0;
	int err = parse_count(item, value, &bytes, why);
	if (err < 0)
		return err;
	if (bytes < READ_MIN || bytes > LP_FUSE_WRITE_MAX)
		return refuse(why, item, "is not from 4096 to 1048576 bytes");
	*ret = (uint32_t)bytes;
	return 0;
}

static int parse_source(const char *item, const char *value, char *ret, char *why)
{
	if (*value == '\0')
		return refuse(why, item, "is no name");
	(void)snprintf(ret, LP_FUSE_OPTIONS_MAX, "%s", value);
	return 0;
}

static int apply(struct lpi_fuse_options *options, uint32_t idx, const char *item,
		 const char *value, char *why)
{
	struct lp_fuse_behaviour *behaviour = &options->behaviour;
	unsigned long flag = table[idx].flag;
	enum meaning meaning = table[idx].meaning;
	switch (meaning) {
	case SET:
		name_flag(options, flag, 0);
		break;
	case CLEAR:
		name_flag(options, 0, flag);
		break;
	case RELATIME:
		options->has_atimes = true;
		break;
	case IGNORED:
		break;
	case ASYNC:
		behaviour->sync = false;
		break;
	case SYNC:
		behaviour->sync = true;
		break;
	case PRIVATE:
		options->is_private = true;
		break;
	case ALLOW_OTHER:
		options->is_private = false;
		break;
	case SQUASH_UID:
		return parse_id(item, value, &behaviour->squash_uid, why);
	case SQUASH_GID:
		return parse_id(item, value, &behaviour->squash_gid, why);
	case TRANSPORT:
		return parse_transport(item, value, &options->transport, why);
	case WRITEBACK:
		behaviour->writeback = true;
		break;
	case ENTRY_TIME:
		return parse_seconds(item, value, &behaviour->entry_ns, why);
	case ATTR_TIME:
		return parse_seconds(item, value, &behaviour->attr_ns, why);
	case INODES_MAX:
		return parse_count(item, value, &behaviour->inodes_max, why);
	case READ_MAX:
		return parse_read_max(item, value, &options->read_max, why);
	case SOURCE:
		return parse_source(item, value, options->source, why);
	case SUBTYPE:
		return strcmp(value, LPI_FUSE_SUBTYPE) == 0
			       ? 0
			       : refuse(why, item, "it is always " LPI_FUSE_SUBTYPE);
	}
	return 0;
}

/* The item's index in the table, or NONE. */
static uint32_t find(const char *item)
{
	size_t len = strcspn(item, "=");
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(table); i++) {
		if (strlen(table[i].name) == len && strncmp(table[i].name, item, len) == 0)
			return i;
	}
	return NONE;
}

static bool is_others(const char *item)
{
	return strncmp(item, "x-", 2) == 0 || strncmp(item, "X-", 2) == 0;
}

static int parse_item(struct lpi_fuse_options *options, const char *item, char *why)
{
	const char *value = strchr(item, '=');
	if (is_others(item))
		return 0;
	uint32_t idx = find(item);
	if (idx == NONE)
		return refuse(why, item, "there is no such option");
	if (table[idx].has_value != (value != NULL))
		return refuse(why, item, value == NULL ? "needs a value" : "takes no value");
	return apply(options, idx, item, value == NULL ? "" : value + 1, why);
}

int lpi_fuse_options_parse(const char *text, struct lpi_fuse_options *ret_options, char *why)
{
	struct lpi_fuse_options options = {.behaviour = {.squash_uid = NONE,
							 .squash_gid = NONE,
							 .entry_ns = BELIEVED_NS,
							 .attr_ns = BELIEVED_NS,
							 .inodes_max = INODES}};
	char item[LP_FUSE_OPTIONS_MAX];
	while (text != NULL && *text != '\0') {
		size_t len = strcspn(text, ",");
		if (len >= sizeof(item))
			return refuse(why, "", "too long");
		memcpy(item, text, len);
		item[len] = '\0';
		int err = len == 0 ? 0 : parse_item(&options, item, why);
		if (err < 0)
			return err;
		text += len;
		text += *text == ',';
	}
	options.behaviour.no_atime = (options.set & (MS_NOATIME | MS_RDONLY)) != 0;
	options.behaviour.no_diratime = (options.set & MS_NODIRATIME) != 0;
	options.behaviour.strict_atime = (options.set & MS_STRICTATIME) != 0;
	*ret_options = options;
	return 0;
}

void lpi_fuse_options_kernel(const struct lpi_fuse_options *options, char *text, size_t size)
{
	static const struct {
		unsigned long flag;
		const char *set;
		const char *cleared;
	} names[] = {{MS_RDONLY, ",ro", ""},
		     {MS_NOSUID, ",nosuid", ",suid"},
		     {MS_NODEV, ",nodev", ",dev"},
		     {MS_NOEXEC, ",noexec", ""},
		     {MS_NOATIME, ",noatime", ""}};
	size_t used = 0;
	text[0] = '\0';
	for (size_t i = 0; i < LP_ARRAY_SIZE(names); i++) {
		const char *name = (options->set & names[i].flag) != 0       ? names[i].set
				   : (options->cleared & names[i].flag) != 0 ? names[i].cleared
									     : "";
		used += (size_t)snprintf(text + used, size - used, "%s", name);
	}
	if (options->read_max > 0)
		(void)snprintf(text + used, size - used, ",max_read=%u", options->read_max);
}

unsigned long lpi_fuse_options_late(const struct lpi_fuse_options *options)
{
	return options->set & (MS_NODIRATIME | MS_STRICTATIME);
}

static bool is_same_behaviour(const struct lp_fuse_behaviour *a, const struct lp_fuse_behaviour *b)
{
	return a->sync == b->sync && a->squash_uid == b->squash_uid &&
	       a->squash_gid == b->squash_gid && a->writeback == b->writeback &&
	       a->entry_ns == b->entry_ns && a->attr_ns == b->attr_ns &&
	       a->inodes_max == b->inodes_max;
}

bool lpi_fuse_options_are_same(const struct lpi_fuse_options *a, const struct lpi_fuse_options *b)
{
	return is_same_behaviour(&a->behaviour, &b->behaviour) && a->transport == b->transport &&
	       a->is_private == b->is_private && a->read_max == b->read_max &&
	       strcmp(a->source, b->source) == 0;
}

int lp_fuse_options_check(const char *options, char *why)
{
	struct lpi_fuse_options parsed;
	return lpi_fuse_options_parse(options, &parsed, why);
}

bool lp_fuse_options_want_ring(const char *options)
{
	struct lpi_fuse_options parsed;
	char why[LP_FUSE_WHY_MAX];
	return lpi_fuse_options_parse(options, &parsed, why) == 0 &&
	       parsed.transport != LPI_FUSE_TRANSPORT_DEVICE;
}
