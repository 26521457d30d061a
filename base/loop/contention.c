/* SPDX-License-Identifier: Apache-2.0 */
/* The file has three numbers: time on a processor, time of waiting for one, number of runs. */
#include "base/loop/contention.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define CONTENDED_ONE_IN 20u

static uint64_t read_delay_ns(const struct lp_contention *contention)
{
	char text[80];
	ssize_t len = pread(contention->fd, text, sizeof(text) - 1, 0);
	char *at = text;
	if (len <= 0)
		return contention->delay_ns;
	text[len] = '\0';
	(void)strtoull(at, &at, 10);
	return strtoull(at, NULL, 10);
}

void lp_contention_init(struct lp_contention *contention, const char *path, uint64_t now_ns)
{
	if (path == NULL)
		path = "/proc/thread-self/schedstat";
	*contention =
		(struct lp_contention){.fd = open(path, O_RDONLY | O_CLOEXEC), .looked_ns = now_ns};
	if (contention->fd >= 0)
		contention->delay_ns = read_delay_ns(contention);
}

void lp_contention_fini(struct lp_contention *contention)
{
	if (contention->fd >= 0)
		(void)close(contention->fd);
	contention->fd = -1;
}

bool lp_contention_look(struct lp_contention *contention, uint64_t now_ns)
{
	uint64_t since_ns = now_ns - contention->looked_ns;
	if (contention->fd < 0 || since_ns < LP_CONTENTION_LOOK_NS)
		return contention->is_contended;
	uint64_t delay_ns = read_delay_ns(contention);
	contention->is_contended = (delay_ns - contention->delay_ns) * CONTENDED_ONE_IN > since_ns;
	contention->delay_ns = delay_ns;
	contention->looked_ns = now_ns;
	return contention->is_contended;
}
