/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a file of this machine has stayed as it was while it was read.
 *
 * Threads: any.
 * Blocking: begin() may sleep, a tick of the kernel's clock at most.
 * Memory: none.
 *
 * The file's size and both of its times of change tell. Each write sets the times, and no program
 * can set both back together. A write to a mapping may set them late, or not at all.
 */
#ifndef LP_BASE_UNCHANGED_H
#define LP_BASE_UNCHANGED_H

#include <sys/stat.h>

#include "base/compiler.h"

/* Before the first byte is read. Where there is nothing to be compared, as of a pipe, it only says
 * what fd is. A negative error number. */
int lp_unchanged_begin(int fd, struct stat *ret_st) LP_MUST_CHECK;
/* Behind the last byte: true if it is as it was, or if that cannot be asked. */
bool lp_unchanged_is(int fd, const struct stat *st);

#endif
