/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a mount, as after -o: which there are, and what they mean.
 *
 * Threads: any. Blocking, allocation: none. Errors: -EINVAL with a sentence.
 */
#ifndef LP_FUSE_OPTIONS_H
#define LP_FUSE_OPTIONS_H

#include "fuse/session.h"

/* How requests are to come. */
enum lpi_fuse_transport {
	LPI_FUSE_TRANSPORT_AUTO, /* by io_uring if that can be */
	LPI_FUSE_TRANSPORT_DEVICE,
	LPI_FUSE_TRANSPORT_IO_URING,
};

struct lpi_fuse_options {
	struct lp_fuse_behaviour behaviour;
	enum lpi_fuse_transport transport;
	bool is_private; /* for the daemon's own user only */
	bool read_only;
	char kernel[LP_FUSE_OPTIONS_MAX]; /* what the kernel is to know, with commas */
};

int lpi_fuse_options_parse(const char *text, struct lpi_fuse_options *ret_options,
			   char *why) LP_MUST_CHECK;

#endif
