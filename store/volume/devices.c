/* SPDX-License-Identifier: Apache-2.0 */
#include "store/volume/devices.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const char *const role_names[LP_ROLES] = {
	[LP_ROLE_DATA] = "data",
	[LP_ROLE_DB] = "db",
	[LP_ROLE_WAL] = "wal",
};

static const uint32_t roles[LP_ROLES] = {
	[LP_ROLE_DATA] = LP_DISK_ROLE_DATA,
	[LP_ROLE_DB] = LP_DISK_ROLE_DB,
	[LP_ROLE_WAL] = LP_DISK_ROLE_WAL,
};

static bool is_zero(const uint8_t *uuid)
{
	static const uint8_t zero[LP_UUID_BYTES];
	return memcmp(uuid, zero, LP_UUID_BYTES) == 0;
}

/* What the data device says of a db or wal device. */
static const uint8_t *named_uuid(const struct lp_disk_label *data, int device)
{
	return device == LP_ROLE_DB ? data->db_uuid : data->wal_uuid;
}

/* Sets the sentence and returns err. */
static int say(struct lp_label_why *why, int err, const char *fmt, ...) LP_PRINTF(3, 4);

static int say(struct lp_label_why *why, int err, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(why->text, sizeof(why->text), fmt, ap); /* a longer one is cut */
	va_end(ap);
	return err;
}

/* The device that was given, or not, is the one that the data device names. */
static int check_companion(const struct lp_devices *devices, int device, struct lp_label_why *why)
{
	const uint8_t *uuid = named_uuid(&devices->label[LP_ROLE_DATA], device);
	const char *role = role_names[device];
	if (devices->bdev[device] == NULL) {
		if (is_zero(uuid))
			return 0;
		const struct lp_disk_label *data = &devices->label[LP_ROLE_DATA];
		const uint8_t *path = device == LP_ROLE_DB ? data->db_path : data->wal_path;
		return say(why, -ENXIO, "the store has a %s device, last found at %.100s: give it",
			   role, (const char *)path);
	}
	const char *name = lp_bdev_name(devices->bdev[device]);
	if (is_zero(uuid))
		return say(why, -EXDEV, "the store has no %s device, but %.100s was given", role,
			   name);
	if (memcmp(devices->label[device].device_uuid, uuid, LP_UUID_BYTES) != 0)
		return say(why, -EXDEV, "the store's %s device is another one than %.100s", role,
			   name);
	return 0;
}

static int read_label(struct lp_devices *devices, int device, struct lp_label_why *why)
{
	struct lp_disk_label *label = &devices->label[device];
	if (devices->bdev[device] == NULL)
		return 0;
	int err = lp_label_read(devices->bdev[device], !devices->read_only, label, why);
	if (err < 0)
		return err;
	if (label->role != roles[device])
		return say(why, -EXDEV, "not a %s device of a store: %.100s", role_names[device],
			   lp_bdev_name(devices->bdev[device]));
	return 0;
}

static int open_chunks(struct lp_devices *devices, int device,
		       const struct lp_devices_options *options, struct lp_label_why *why)
{
	const struct lp_disk_label *label = &devices->label[device];
	if (devices->bdev[device] == NULL || label->chunk_cnt == 0)
		return 0;
	uint64_t chunk_bytes = label->chunk_blocks * LP_BLOCK_BYTES;
	const struct lp_chunks_options chunks = {
		.label = label,
		.files_reserve_cnt =
			(uint32_t)((options->files_reserve_bytes + chunk_bytes - 1) / chunk_bytes),
		.read_only = options->read_only,
	};
	int err = lp_chunks_open(devices->bdev[device], &chunks, &devices->chunks[device]);
	if (err == -EBADMSG || err == -EUCLEAN)
		return say(why, err,
			   "both copies of the chunk table on the %s device are damaged (lapis "
			   "salvage takes out what is whole): %.50s",
			   role_names[device], lp_bdev_name(devices->bdev[device]));
	return err;
}

/* True when the field says another one from now on. */
static bool set_path(uint8_t *field, size_t size, const char *path)
{
	if (path == NULL || strlen(path) >= size || strcmp((const char *)field, path) == 0)
		return false;
	memset(field, 0, size);
	memcpy(field, path, strlen(path));
	return true;
}

/* Each copy of the label is whole or the other one is, and both say where the devices are or were.
 * An error is nobody's: if it takes others' writes with it, the device says so to whoever opens a
 * shard (rule L7). */
static void remember_paths(struct lp_devices *devices, const struct lp_devices_options *options)
{
	struct lp_disk_label label = devices->label[LP_ROLE_DATA];
	bool is_new = false;
	if (devices->bdev[LP_ROLE_DB] != NULL)
		is_new = set_path(label.db_path, sizeof(label.db_path), options->path[LP_ROLE_DB]);
	if (devices->bdev[LP_ROLE_WAL] != NULL &&
	    set_path(label.wal_path, sizeof(label.wal_path), options->path[LP_ROLE_WAL]))
		is_new = true;
	if (is_new && lp_label_update(devices->bdev[LP_ROLE_DATA], &label) == 0)
		devices->label[LP_ROLE_DATA] = label;
}

/* To the data device, which is always there. */
static void tie(struct lp_devices *devices, bool are_tied)
{
	struct lp_bdev *to = are_tied ? devices->bdev[LP_ROLE_DATA] : NULL;
	for (int i = 0; i < LP_ROLES; i++) {
		if (i != LP_ROLE_DATA && devices->bdev[i] != NULL)
			lp_bdev_tie(devices->bdev[i], to);
	}
	devices->are_tied = are_tied;
}

int lp_devices_open(const struct lp_devices_options *options, struct lp_devices *ret_devices,
		    struct lp_label_why *why)
{
	struct lp_devices devices = {.files_reserve_bytes = options->files_reserve_bytes,
				     .read_only = options->read_only};
	int err = 0;
	*why = (struct lp_label_why){.text = ""};
	LP_ASSERT(options->bdev[LP_ROLE_DATA] != NULL);
	/* Before the first flush, which is that of the label: from here on no shard that is opened
	 * believes one after another one's has failed (rule L7). */
	for (int i = 0; i < LP_ROLES && !options->read_only; i++) {
		if (options->bdev[i] != NULL)
			lp_bdev_trust(options->bdev[i]);
	}
	for (int i = 0; i < LP_ROLES && err == 0; i++) {
		devices.bdev[i] = options->bdev[i];
		err = read_label(&devices, i, why);
		if (err == 0 && i != LP_ROLE_DATA)
			err = check_companion(&devices, i, why);
	}
	for (int i = 0; i < LP_ROLES && err == 0; i++)
		err = open_chunks(&devices, i, options, why);
	if (err < 0) {
		lp_devices_close(&devices);
		return err;
	}
	if (!devices.read_only) {
		remember_paths(&devices, options);
		tie(&devices, true);
	}
	*ret_devices = devices;
	return 0;
}

void lp_devices_close(struct lp_devices *devices)
{
	if (devices->are_tied)
		tie(devices, false);
	for (int i = 0; i < LP_ROLES; i++) {
		lp_chunks_close(devices->chunks[i]);
		devices->chunks[i] = NULL;
	}
}

enum lp_device_role lp_devices_of_log(const struct lp_devices *devices)
{
	return devices->bdev[LP_ROLE_WAL] != NULL ? LP_ROLE_WAL : LP_ROLE_DATA;
}

enum lp_device_role lp_devices_of_files(const struct lp_devices *devices)
{
	return devices->bdev[LP_ROLE_DB] != NULL ? LP_ROLE_DB : LP_ROLE_DATA;
}

/* Joined; dir may be "/". */
static int join(const char *dir, const char *name, char *ret_path, size_t len)
{
	const char *before = strcmp(dir, "/") == 0 ? "" : dir;
	if (strlen(before) + 1 + strlen(name) >= len)
		return -ENAMETOOLONG;
	(void)snprintf(ret_path, len, "%s/%s", before, name); /* it fits */
	return 0;
}

int lp_devices_absolute_path(const char *path, char *ret_path, size_t len)
{
	const char *slash = strrchr(path, '/');
	if (path[0] == '/')
		return join("/", path + 1, ret_path, len);
	char *dir = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path));
	if (dir == NULL)
		return -ENOMEM;
	char *real = realpath(dir, NULL);
	int err =
		real != NULL ? join(real, slash == NULL ? path : slash + 1, ret_path, len) : -errno;
	free(real);
	free(dir);
	return err;
}

const char *lp_devices_advice(int err)
{
	switch (err) {
	case -EBUSY:
		return " (a daemon, another command or a mount has it: stop that first)";
	case -ENOTBLK:
		return " (give a block device or an image file)";
	case -EINVAL:
		return " (this file system may not support direct I/O: put the image on another)";
	case -ENOTSUP:
		return " (direct I/O on it is in units of more than 4096 bytes, which are too "
		       "large)";
	case -EROFS:
		return " (the device, or what it is on, is set read-only: see blockdev --setrw)";
	case -EACCES:
	case -EPERM:
		return " (run as root, or as a member of the group that owns the device)";
	default:
		return "";
	}
}
