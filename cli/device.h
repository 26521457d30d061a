/* SPDX-License-Identifier: Apache-2.0 */
/* Devices as the offline commands see them: opened with the errors said in a person's words.
 *
 * Threads: the main thread; all calls block.
 */
#ifndef LP_CLI_DEVICE_H
#define LP_CLI_DEVICE_H

#include "store/device/bdev.h"
#include "store/volume/label.h"

/* Opens a device; on failure says why ("PATH: in use ..."), and returns the error. */
int lpi_device_open(const char *path, bool read_only, struct lp_bdev **ret_bdev) LP_MUST_CHECK;

/* Reads the label; on failure says why. */
int lpi_device_read_label(struct lp_bdev *bdev, bool repair,
			  struct lp_disk_label *ret_label) LP_MUST_CHECK;

/* Refuses a device that something lives on already: a Lapis store, a file system, a partition
 * table. Says what it is. 0 when there is nothing that is known. */
int lpi_device_check_unused(struct lp_bdev *bdev) LP_MUST_CHECK;

/* "8-4-4-4-12" form; buf holds 37 bytes. */
void lpi_device_format_uuid(const uint8_t *uuid, char *buf);

#endif
