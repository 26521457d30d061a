/* SPDX-License-Identifier: Apache-2.0 */
/* Check that a file of this machine did not change while it was read.
 *
 * Threads: any.
 * Blocking: begin() may sleep, a tick of the kernel's clock at most.
 * Memory: none.
 *
 * The file's size and both of its times of change are compared. Each write sets the times, and no
 * program can set both back together. A write to a mapping may set them late, or not at all.
 */
#ifndef LP_BASE_UNCHANGED_H
#define LP_BASE_UNCHANGED_H

#include <sys/stat.h>

#include "base/compiler.h"

/* Called before the first byte is read. If there is nothing to compare, as for a pipe, it only
 * gives fd's stat. A negative error number. */
int lp_unchanged_begin(int fd, struct stat *ret_st) LP_MUST_CHECK;
/* Called after the last byte: true if the file is unchanged, or if that cannot be known. */
bool lp_unchanged_is(int fd, const struct stat *st);

#endif
