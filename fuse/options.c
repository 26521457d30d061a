/* SPDX-License-Identifier: Apache-2.0 */
/* One table: an option is the kernel's and handed on, ours, or for those who read fstab, and then
 * it is passed over. */
#include "fuse/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define NONE UINT32_MAX
/* That the kernel shall remember, if nothing is said: some 40 MB here, and a GB there. */
#define INODES 1000000u
/* The kernel knows all there is to know: what is changed through sockets it is told (rule M2). */
#define BELIEVED_NS (86400 * LP_NS_PER_S)

enum meaning {
	KERNEL, /* handed on */
	IGNORED,
	SYNC,
	PRIVATE,
	READ_ONLY,
	SQUASH_UID,
	SQUASH_GID,
	ENTRY_TIME,
	ATTR_TIME,
	INODES_MAX,
	NO_ATIME,
	NO_DIRATIME,
	TRANSPORT,
	WRITEBACK,
};

static const struct {
	const char *name;
	enum meaning meaning;
	bool has_value;
} table[] = {
	{"allow_other", IGNORED, false}, /* the default of a daemon of root's */
	{"async", IGNORED, false},
	{"atime", KERNEL, false},
	{"attr_timeout", ATTR_TIME, true},
	{"auto", IGNORED, false},
	{"defaults", IGNORED, false},
	{"dev", KERNEL, false},
	{"diratime", KERNEL, false},
	{"dirsync", SYNC, false},
	{"entry_timeout", ENTRY_TIME, true},
	{"exec", KERNEL, false},
	{"gid", SQUASH_GID, true},
	{"max_inodes", INODES_MAX, true},
	{"noatime", NO_ATIME, false},
	{"noauto", IGNORED, false},
	{"nodev", KERNEL, false},
	{"nodiratime", NO_DIRATIME, false},
	{"noexec", KERNEL, false},
	{"nofail", IGNORED, false},
	{"nosuid", KERNEL, false},
	{"nouser", IGNORED, false},
	{"private", PRIVATE, false},
	{"relatime", KERNEL, false},
	{"ro", READ_ONLY, false},
	{"rw", IGNORED, false},
	{"suid", KERNEL, false},
	{"sync", SYNC, false},
	{"transport", TRANSPORT, true},
	{"uid", SQUASH_UID, true},
	{"writeback", WRITEBACK, false},
	{"_netdev", IGNORED, false},
};

static int refuse(char *why, const char *item, const char *text)
{
	(void)snprintf(why, LP_FUSE_WHY_MAX, "mount option %.100s: %s", item, text);
	return -EINVAL;
}

static void hand_on(struct lpi_fuse_options *options, const char *item)
{
	size_t used = strlen(options->kernel);
	(void)snprintf(options->kernel + used, sizeof(options->kernel) - used, "%s%s",
		       used == 0 ? "" : ",", item);
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

static int apply(struct lpi_fuse_options *options, enum meaning meaning, const char *item,
		 const char *value, char *why)
{
	struct lp_fuse_behaviour *behaviour = &options->behaviour;
	switch (meaning) {
	case KERNEL:
		hand_on(options, item);
		break;
	case IGNORED:
		break;
	case SYNC:
		behaviour->sync = true;
		break;
	case PRIVATE:
		options->is_private = true;
		break;
	case READ_ONLY:
		options->read_only = true;
		behaviour->no_atime = true;
		hand_on(options, item);
		break;
	case SQUASH_UID:
		return parse_id(item, value, &behaviour->squash_uid, why);
	case SQUASH_GID:
		return parse_id(item, value, &behaviour->squash_gid, why);
	case NO_ATIME:
		behaviour->no_atime = true;
		hand_on(options, item);
		break;
	case NO_DIRATIME:
		behaviour->no_diratime = true;
		hand_on(options, item);
		break;
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
	}
	return 0;
}

static int parse_item(struct lpi_fuse_options *options, const char *item, char *why)
{
	const char *value = strchr(item, '=');
	size_t len = value == NULL ? strlen(item) : (size_t)(value - item);
	if (strncmp(item, "x-", 2) == 0)
		return 0;
	for (size_t i = 0; i < LP_ARRAY_SIZE(table); i++) {
		if (strlen(table[i].name) != len || strncmp(table[i].name, item, len) != 0)
			continue;
		if (table[i].has_value != (value != NULL))
			return refuse(why, item,
				      value == NULL ? "needs a value" : "takes no value");
		return apply(options, table[i].meaning, item, value == NULL ? "" : value + 1, why);
	}
	return refuse(why, item, "there is no such option");
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
	*ret_options = options;
	return 0;
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
