/* SPDX-License-Identifier: Apache-2.0 */
/* Each thread keeps its last findings in a ring in thread-local storage, because a message about
 * corruption must not need memory or a lock. The process-wide count is one relaxed atomic, because
 * this path is never hot. */
#include "base/error.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

static _Thread_local struct lp_corruption ring[LP_CORRUPTION_RING_SIZE];
static _Thread_local uint64_t ring_total;
static _Atomic uint64_t total;
static lp_corruption_sink_fn *sink_fn;
static void *sink_arg;

int lp_corrupt(int err, const char *file, int line, uint64_t offset, const char *fmt, ...)
{
	LP_ASSERT(err == -EBADMSG || err == -EUCLEAN);
	struct lp_corruption *found = &ring[ring_total++ % LP_CORRUPTION_RING_SIZE];
	*found = (struct lp_corruption){.err = err, .line = line, .file = file, .offset = offset};

	va_list ap;
	va_start(ap, fmt);
	/* A longer text is cut; the place and the offset are always kept. */
	(void)vsnprintf(found->what, sizeof(found->what), fmt, ap);
	va_end(ap);

	atomic_fetch_add_explicit(&total, 1, memory_order_relaxed);
	if (sink_fn != NULL)
		sink_fn(found, sink_arg);
	return err;
}

const struct lp_corruption *lp_corruption_find(unsigned idx)
{
	if (idx >= LP_CORRUPTION_RING_SIZE || idx >= ring_total)
		return NULL;
	return &ring[(ring_total - 1 - idx) % LP_CORRUPTION_RING_SIZE];
}

uint64_t lp_corruption_count(void)
{
	return atomic_load_explicit(&total, memory_order_relaxed);
}

void lp_corruption_set_sink(lp_corruption_sink_fn *sink, void *arg)
{
	sink_fn = sink;
	sink_arg = arg;
}

int lp_corruption_to_text(const struct lp_corruption *found, char *buf, size_t len)
{
	const char *kind = found->err == -EBADMSG ? "checksum mismatch" : "broken structure";
	if (found->offset == LP_OFFSET_NONE)
		return snprintf(buf, len, "%s: %s (found at %s:%d)", kind, found->what, found->file,
				found->line);
	return snprintf(buf, len, "%s at offset %llu: %s (found at %s:%d)", kind,
			(unsigned long long)found->offset, found->what, found->file, found->line);
}

const char *lp_strerror(int err)
{
	static _Thread_local char unknown[32];
	const char *text = strerrordesc_np(err < 0 ? -err : err);
	if (text != NULL)
		return text;
	(void)snprintf(unknown, sizeof(unknown), "error %d", err);
	return unknown;
}
