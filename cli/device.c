/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/device.h"

#include <blkid/blkid.h>
#include <stdio.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/cli.h"
#include "store/volume/devices.h"

/* A daemon that was killed has its device until the kernel has ended what it had under way. */
#define BUSY_TRIES   20u
#define BUSY_WAIT_US 25000u

int lpi_device_open(const char *path, bool read_only, struct lp_bdev **ret_bdev)
{
	const struct lp_bdev_open_options options = {.read_only = read_only, .exclusive = true};
	int err = -EBUSY;
	for (unsigned i = 0; i < BUSY_TRIES && err == -EBUSY; i++) {
		if (i > 0)
			(void)usleep(BUSY_WAIT_US); /* a shorter one only asks once more */
		err = lp_bdev_open_uring(path, &options, ret_bdev);
	}
	if (err < 0)
		(void)lpi_cli_fail(path, "%s%s", lp_strerror(err), lp_devices_advice(err));
	return err;
}

int lpi_device_read_label(struct lp_bdev *bdev, bool repair, struct lp_disk_label *ret_label)
{
	struct lp_label_why why = {.text = ""};
	int err = lp_label_read(bdev, repair, ret_label, &why);
	if (err == -EMEDIUMTYPE)
		(void)lpi_cli_fail(lp_bdev_name(bdev),
				   "no Lapis store is on it (lapis mkfs makes one)");
	else if (err < 0)
		(void)lpi_cli_fail(lp_bdev_name(bdev), "%s",
				   why.text[0] != '\0' ? why.text : lp_strerror(err));
	return err;
}

/* What libblkid recognises, or "" when it knows nothing of what is there. */
static int probe_others(const char *path, char *ret_what, size_t len)
{
	const char *what = NULL;
	ret_what[0] = '\0';
	blkid_probe probe = blkid_new_probe_from_filename(path);
	if (probe == NULL)
		return -errno;
	(void)blkid_probe_enable_superblocks(probe, 1); /* fails for no known reason */
	(void)blkid_probe_enable_partitions(probe, 1);
	int found = blkid_do_safeprobe(probe);
	if (found == 0 && (blkid_probe_lookup_value(probe, "TYPE", &what, NULL) == 0 ||
			   blkid_probe_lookup_value(probe, "PTTYPE", &what, NULL) == 0))
		(void)snprintf(ret_what, len, "%s", what);
	else if (found == -2) /* several at once */
		(void)snprintf(ret_what, len, "more than one kind of file system");
	blkid_free_probe(probe);
	return found == -1 ? -EIO : 0;
}

int lpi_device_check_unused(struct lp_bdev *bdev)
{
	struct lp_disk_label label;
	struct lp_label_why why;
	char what[64];
	const char *path = lp_bdev_name(bdev);
	int err = lp_label_read(bdev, false, &label, &why);
	if (err != -EMEDIUMTYPE && err != -EIO) {
		(void)lpi_cli_fail(path, "holds a Lapis store (--force destroys it)");
		return -EEXIST;
	}
	if (err == -EMEDIUMTYPE)
		err = probe_others(path, what, sizeof(what));
	if (err < 0) {
		(void)lpi_cli_fail(path, "cannot be read: %s", lp_strerror(err));
		return err;
	}
	if (what[0] != '\0') {
		(void)lpi_cli_fail(path, "holds data already: %s (--force destroys it)", what);
		return -EEXIST;
	}
	return 0;
}

void lpi_device_format_uuid(const uint8_t *uuid, char *buf)
{
	static const char digits[] = "0123456789abcdef";
	for (unsigned i = 0; i < LP_UUID_BYTES; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*buf++ = '-';
		*buf++ = digits[uuid[i] >> 4];
		*buf++ = digits[uuid[i] & 15];
	}
	*buf = '\0';
}
