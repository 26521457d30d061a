/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a mount, as after -o: the table of them, and what they mean.
 *
 * Threads: any.
 * Blocking, memory: none.
 * Errors: -EINVAL with a sentence.
 */
#ifndef LP_FUSE_MOUNT_OPTIONS_H
#define LP_FUSE_MOUNT_OPTIONS_H

#include "fuse/mount/session.h"

/* How requests shall come. */
enum lpi_fuse_transport {
	LPI_FUSE_TRANSPORT_AUTO, /* by io_uring if possible */
	LPI_FUSE_TRANSPORT_DEVICE,
	LPI_FUSE_TRANSPORT_IO_URING,
};

struct lpi_fuse_options {
	struct lp_fuse_behaviour behaviour;
	enum lpi_fuse_transport transport;
	bool is_private; /* for the daemon's own user only */
	/* The mount's own flags, MS_RDONLY and so on: those to be set, and those to be cleared. The
	 * last mention of a flag counts. MS_RELATIME is in neither, because it is the default. */
	unsigned long set;
	unsigned long cleared;
	bool has_atimes;                  /* an option for access times was given */
	uint32_t read_max;                /* bytes that the kernel asks for in one read; 0: all */
	char source[LP_FUSE_OPTIONS_MAX]; /* source in the table of mounts; "": the device */
};

int lpi_fuse_options_parse(const char *text, struct lpi_fuse_options *ret_options,
			   char *why) LP_MUST_CHECK;
/* The options for libfuse and fusermount3, with commas, as far as they know them. The other flags
 * are set after the mount: lpi_fuse_options_late(). */
void lpi_fuse_options_kernel(const struct lpi_fuse_options *options, char *text, size_t size);
unsigned long lpi_fuse_options_late(const struct lpi_fuse_options *options);
/* Compares all but the flags. */
bool lpi_fuse_options_are_same(const struct lpi_fuse_options *a, const struct lpi_fuse_options *b);

#endif
