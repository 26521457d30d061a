/* SPDX-License-Identifier: Apache-2.0 */
/* The clock of a file system moves in ticks of 1 to 10 ms. Two changes of a file in the same tick
 * have the same time, so the second could not be detected. So begin() waits for the end of the tick
 * before data is read. If the last change was long ago, it does not wait. */
#include "base/unchanged.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"

#define LOOK_NS   1000000L
#define LOOKS_MAX 12

static bool is_same_time(const struct timespec *one, const struct timespec *other)
{
	return one->tv_sec == other->tv_sec && one->tv_nsec == other->tv_nsec;
}

/* Whether the time is in the present tick. A time further ahead is from another machine's clock. */
static bool is_of_now(const struct timespec *time)
{
	struct timespec now;
	if (clock_gettime(CLOCK_REALTIME_COARSE, &now) < 0)
		return false;
	if (time->tv_sec < now.tv_sec || time->tv_sec > now.tv_sec + 1)
		return false;
	int64_t ahead_ns =
		(time->tv_sec - now.tv_sec) * (int64_t)LP_NS_PER_S + time->tv_nsec - now.tv_nsec;
	return ahead_ns >= 0 && ahead_ns <= LOOKS_MAX * LOOK_NS;
}

int lp_unchanged_begin(int fd, struct stat *ret_st)
{
	const struct timespec pause = {.tv_nsec = LOOK_NS};
	if (fstat(fd, ret_st) < 0)
		return -errno;
	for (int i = 0; i < LOOKS_MAX && S_ISREG(ret_st->st_mode) && is_of_now(&ret_st->st_ctim);
	     i++) {
		(void)nanosleep(&pause, NULL); /* after a signal it checks earlier */
		if (fstat(fd, ret_st) < 0)
			return -errno;
	}
	return 0;
}

bool lp_unchanged_is(int fd, const struct stat *st)
{
	struct stat now;
	if (!S_ISREG(st->st_mode))
		return true;
	return fstat(fd, &now) == 0 && now.st_size == st->st_size &&
	       is_same_time(&now.st_mtim, &st->st_mtim) && is_same_time(&now.st_ctim, &st->st_ctim);
}
