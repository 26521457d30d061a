/* SPDX-License-Identifier: Apache-2.0 */
/* The error model: 0 or positive is success, a negative errno is failure.
 *
 * Threads: any.
 * Blocking: only if the sink blocks.
 * Memory: none.
 *
 * Fixed meanings (house style 3.6):
 *   -EBADMSG  a checksum did not match          -EUCLEAN  a structure breaks its own rules
 *   -EIO      the device said no                -ENOSPC   full
 *   -EAGAIN   no slot: wait and try again       -ECANCELED, -ETIMEDOUT  as they say
 * The first two are made in one place only, lp_corrupt() below. It records where corruption was
 * found: in a ring of the calling thread, in a process-wide count, and through a sink that the
 * daemon sets to log each once.
 */
#ifndef LP_BASE_ERROR_H
#define LP_BASE_ERROR_H

#include <errno.h>

#include "base/compiler.h"

#define LP_CORRUPTION_TEXT_MAX  120
#define LP_CORRUPTION_RING_SIZE 16

struct lp_corruption {
	int err;          /* -EBADMSG or -EUCLEAN */
	int line;         /* where our code noticed it */
	const char *file; /* static string */
	uint64_t offset;  /* bytes into the device, file or message; LP_OFFSET_NONE if none */
	char what[LP_CORRUPTION_TEXT_MAX]; /* the object, and its fault */
};

#define LP_OFFSET_NONE UINT64_MAX

typedef void lp_corruption_sink_fn(const struct lp_corruption *found, void *arg);

/* Checksum mismatch: records and returns -EBADMSG. */
#define LP_CORRUPT_CRC(offset, ...) lp_corrupt(-EBADMSG, __FILE__, __LINE__, (offset), __VA_ARGS__)

/* A structure breaks its rules: records and returns -EUCLEAN. */
#define LP_CORRUPT(offset, ...) lp_corrupt(-EUCLEAN, __FILE__, __LINE__, (offset), __VA_ARGS__)

#ifdef __cplusplus
extern "C" {
#endif

/* Returns err, which is -EBADMSG or -EUCLEAN. */
int lp_corrupt(int err, const char *file, int line, uint64_t offset, const char *fmt, ...)
	LP_PRINTF(5, 6) LP_MUST_CHECK;

/* The idx-th newest corruption this thread found (0 is the newest), or NULL. Valid until this
 * thread finds LP_CORRUPTION_RING_SIZE more. */
const struct lp_corruption *lp_corruption_find(unsigned idx);

/* The number that all threads have found since the start. */
uint64_t lp_corruption_count(void);

/* sink NULL switches it off. Set before threads start; the sink runs on the finder's thread. */
void lp_corruption_set_sink(lp_corruption_sink_fn *sink, void *arg);

int lp_corruption_to_text(const struct lp_corruption *found, char *buf, size_t len);

/* "No space left on device" for -ENOSPC or ENOSPC. Thread safe; never NULL. The text for a known
 * errno is static; for an unknown one it lives in a buffer of the calling thread. */
const char *lp_strerror(int err);

#ifdef __cplusplus
}
#endif

#endif
