/* SPDX-License-Identifier: Apache-2.0 */
/* Program that mount.lapis runs when mount(8) asks for -o remount.
 *
 *   lapis_remount DIR OPTION,...      0: done; 32: failed, with one line; 1: a wrong call */
#include <stdio.h>

#include "fuse/mount/remount.h"
#include "fuse/mount/session.h"

int main(int argc, char **argv)
{
	char why[LP_FUSE_WHY_MAX];
	if (argc != 3) {
		(void)fprintf(stderr, "usage: lapis_remount DIR OPTION,...\n");
		return 1;
	}
	if (lp_fuse_remount(argv[1], argv[2], why) == 0)
		return 0;
	(void)fprintf(stderr, "mount.lapis: %s\n", why);
	return 32;
}
