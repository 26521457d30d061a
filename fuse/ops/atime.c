/* SPDX-License-Identifier: Apache-2.0 */
/* Access times, which the kernel leaves to the file system. By the rules of relatime, the first
 * read after a change counts, and one a day.
 *
 * We do not see reads that the kernel serves from its cache. So when a file is opened that has not
 * been read for a day, the kernel drops its cached data. The next read then comes to us and counts.
 * This is not done after a change, because a program that writes a file and reads it would fetch it
 * each time.
 *
 * To know whether a read counts, the inode must be looked at. Inodes looked at within the last
 * second are remembered. So a program that reads and writes in turn does not set the time with each
 * read.
 *
 * With strictatime each read that comes to us counts, without a look, by a transaction of its own.
 * At most one in a millisecond counts, because the kernel's own clock for these times is no finer.
 * And each open drops the cached data, so the first read after it comes to us. */
#include <errno.h>
#include <fcntl.h>

#include "base/hash.h"
#include "fuse/channel_state.h"

#define DAY_NS  (86400 * LP_NS_PER_S)
#define SEEN_NS LP_NS_PER_S
#define EACH_NS LP_NS_PER_MS

static struct lpi_fuse_seen *seen_of(struct lpi_fuse_request *request)
{
	uint64_t nr = lpi_fuse_own(request).nr;
	uint64_t hash = lp_hash_u64(&nr, sizeof(nr), 0);
	return &request->channel->seen[hash % LPI_FUSE_SEEN];
}

static bool is_a_day_old(const struct lp_attrs *attrs, int64_t now_ns)
{
	return now_ns - attrs->atime_ns >= (int64_t)DAY_NS;
}

static bool counts(const struct lp_attrs *attrs, int64_t now_ns)
{
	return attrs->atime_ns <= attrs->mtime_ns || attrs->atime_ns <= attrs->ctime_ns ||
	       is_a_day_old(attrs, now_ns);
}

bool lpi_fuse_is_read_due(const struct lpi_fuse_request *request, uint32_t flags,
			  const struct lp_attrs *attrs)
{
	return lpi_fuse_atimes(request->channel) != LPI_FUSE_KEEP_NO_ATIMES &&
	       (flags & O_NOATIME) == 0 && (flags & O_ACCMODE) != O_WRONLY &&
	       (lpi_fuse_keeps_each_atime(request->channel) ||
		is_a_day_old(attrs, lpi_fuse_wall_ns(request)));
}

void lpi_fuse_atime_is_set(struct lpi_fuse_request *request)
{
	struct lpi_fuse_seen *seen = seen_of(request);
	if (seen->ino.nr == lpi_fuse_own(request).nr)
		*seen = (struct lpi_fuse_seen){.at_ns = 0};
}

static void touched(struct lp_ns_op *op)
{
	struct lpi_fuse_request *request = LP_CONTAINER_OF(op, struct lpi_fuse_request, source);
	request->after(request);
}

static void touch(struct lpi_fuse_request *request)
{
	struct lp_ns_op *op = &request->source;
	struct lp_ino ino = lpi_fuse_own(request);
	request->attrs.atime_ns = lpi_fuse_wall_ns(request);
	request->changes[0] = (struct lp_change){.type = LP_CHANGE_SET, .ino = ino};
	request->changes[0].inode.attrs = &request->attrs;
	request->changes[0].inode.mask = LP_ATTR_ATIME;
	*op = (struct lp_ns_op){.opcode = LP_NS_STORE,
				.complete = touched,
				.ack = LP_ACK_ORDERED,
				.is_mounts = true};
	op->store.ino = ino;
	op->store.op.opcode = LP_STORE_TXN;
	op->store.op.txn.changes = request->changes;
	op->store.op.txn.change_cnt = 1;
	op->store.op.txn.ack = LP_ACK_ORDERED;
	lp_ns_submit(request->channel->options.ns, op);
}

static void looked_at(struct lp_ns_op *op)
{
	struct lpi_fuse_request *request = LP_CONTAINER_OF(op, struct lpi_fuse_request, source);
	if (op->result >= 0 && counts(&op->stat.found.attrs, lpi_fuse_wall_ns(request)))
		touch(request);
	else
		request->after(request);
}

void lpi_fuse_touch(struct lpi_fuse_request *request, lpi_fuse_step_fn *next)
{
	struct lp_fuse_channel *channel = request->channel;
	struct lpi_fuse_seen *seen = seen_of(request);
	uint64_t now_ns = lp_reactor_now_ns(channel->options.reactor);
	struct lp_ino ino = lpi_fuse_own(request);
	bool is_each = lpi_fuse_keeps_each_atime(channel);
	bool is_recent =
		seen->ino.nr == ino.nr && now_ns - seen->at_ns < (is_each ? EACH_NS : SEEN_NS);
	if (is_recent || lpi_fuse_atimes(channel) == LPI_FUSE_KEEP_NO_ATIMES) {
		next(request);
		return;
	}
	*seen = (struct lpi_fuse_seen){.ino = ino, .at_ns = now_ns};
	request->after = next;
	if (is_each) {
		touch(request);
		return;
	}
	struct lp_ns_op *op = &request->source;
	*op = (struct lp_ns_op){.opcode = LP_NS_STAT, .complete = looked_at, .ack = LP_ACK_ORDERED};
	op->stat.ino = ino;
	lp_ns_submit(channel->options.ns, op);
}
