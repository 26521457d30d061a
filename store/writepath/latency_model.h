/* SPDX-License-Identifier: Apache-2.0 */
/* Latency model: decides whether a write is deferred or direct (design 5.7, `auto`).
 *
 * Threads: a struct lp_policy belongs to one.
 * Blocking: none; no I/O.
 * Memory: none is allocated.
 * Errors: only of lp_policy_import(), whose bytes may be any.
 *
 * Measured, for each kind of operation and each power of two of bytes from 4 KiB to 4 MiB, are
 * two numbers. The time of an operation that has p - 1 others beside it is
 *
 *     t(p) = idle + (p - 1) * load
 *
 * idle is the latency of a device with nothing else to do. load is the time that one more
 * operation adds: the device's time per operation when it is saturated. That is idle for a device
 * that does one thing at a time, the bytes over the bandwidth for one that bandwidth limits, and
 * next to nothing for one with many servers. Samples of a shallow queue teach idle, those of a
 * deep one load.
 *
 * Compared is the time per operation of clients that keep d writes of n bytes going for long. It
 * is bounded from below twice, by latency and by demand, and the larger bound is taken (the
 * asymptotic bounds of a closed queueing network). Half of the writes collect while a frame is on
 * its way. So a frame carries k = d / 2 of them, at least one and no more than fit:
 *
 *   deferred  latency  idle of a log write of k (n + meta), over the 2 k on the way
 *             demand   load of that log write / k
 *             and for its share of the later write W, which does not run beside but in between
 *   direct    latency  idle of a data write of n, of a flush, of a log write of k meta, over d
 *             demand   load of the data write  +  (load of the flush + of the log write) / k
 *
 * A third bound is the time that the shard's thread takes for a write. It decides where the
 * device is the quicker of the two. There small deferred writes are the cheaper ones, although
 * the device writes more for them, and so are large direct ones. The thread's time of each path
 * is guessed. The factor by which the guess is wrong here, whatever else the thread does for a
 * write, is learned while the thread is busy.
 *
 * Writes that are not alone wait for operations under way when they come: a part of a frame or
 * flush more (writepath/latency_model.c has the factors). Where they come one by one out of the
 * stage before, as direct ones do, a frame finds half as many.
 *
 * At low depth latency decides: deferred saves a flush and one of two writes in sequence. At high
 * depth demand does: deferred writes each byte twice, and the log's part is the cheaper the more
 * writes share a frame. W is the load of a data write. On a rotational device sorting saves a
 * quarter of the part that is not bytes. W counts at depth 1 too, because a log is bounded and
 * write-back comes in bursts that are in the way. The flush counts only where the cache is
 * volatile. A caller that writes data through says that it is not, and gives the times of those
 * writes as data writes. Write-back does not write through. Its times are given as place writes
 * then, and W is the load of these. Without such samples W is as above.
 *
 * All this is for the beginning, and for writes of which nothing else is seen. The time of whole
 * writes decides as soon as some were seen (store/writepath/trial.h).
 *
 * An ordered write does not wait for the log, so neither bound has the latency of a log write.
 * Deferred then costs the device's time and the thread's, and direct the time of its data beside
 * it.
 *
 * Learning: exponentially weighted, 1/8 for a new sample, more for the first few. A sample is cut
 * to between half and twice what was expected (first ones: a fourth and four times), so one wild
 * sample moves an estimate by an eighth at most. Where there are no samples, those of the
 * neighbours are interpolated. A thread at work does not see completions. So of a sample only the
 * part that the thread waited is certain. An estimate between that part and the whole sample is
 * left as it is. Otherwise a busy thread would find its own time in every operation of the
 * device, and most of it in those of which few are in flight: the log's and write-back's.
 *
 * Deciding: there is a choice for each class of size and depth, which is looked at again after
 * LP_POLICY_EPOCH samples. The other path must be better by LP_POLICY_MARGIN, and for so long
 * that its gain adds up to LP_POLICY_PATIENCE (a cumulative sum, to which one look adds a quarter
 * at most). Noise around the break-even point flips nothing. A real change of the device does,
 * within some hundred operations.
 */
#ifndef LP_STORE_WRITEPATH_LATENCY_MODEL_H
#define LP_STORE_WRITEPATH_LATENCY_MODEL_H

#include "base/error.h"
#include "format/values.h"

enum lp_write_path {
	LP_PATH_AUTO, /* as lp_policy_choose() says */
	LP_PATH_INLINE,
	LP_PATH_DEFERRED,
	LP_PATH_DIRECT,
	LP_PATH_CNT
};

enum lp_policy_kind {
	LP_POLICY_LOG_WRITE,   /* a frame, written through */
	LP_POLICY_DATA_WRITE,  /* a payload to its place */
	LP_POLICY_PLACE_WRITE, /* the same by write-back, where that is another operation */
	LP_POLICY_FLUSH,       /* bytes do not matter */
	LP_POLICY_KIND_CNT
};

#define LP_POLICY_CLASS_CNT     11u              /* 4 KiB to 4 MiB */
#define LP_POLICY_DEPTH_CNT     8u               /* 1 to 128 */
#define LP_POLICY_PAYLOAD_BYTES UINT32_C(786432) /* 768 KiB: what a frame of 1 MiB has room for */
#define LP_POLICY_META_BYTES    320u             /* of a frame, per operation */
#define LP_POLICY_ORDERED_BYTES UINT64_C(16384)
#define LP_POLICY_EPOCH         16u
#define LP_POLICY_MARGIN        0.02
#define LP_POLICY_PATIENCE      1.0

/* All fields are private. */
struct lp_policy_estimate {
	double ns;
	uint8_t cnt; /* samples, up to what the weights depend on; 0: ns means nothing */
};

struct lp_policy_cell {
	struct lp_policy_estimate idle;
	struct lp_policy_estimate load;
};

struct lp_policy_choice {
	enum lp_write_path path;
	double lean; /* towards the other */
	uint64_t seen_epoch;
};

struct lp_policy {
	bool is_rotational;
	bool volatile_cache;
	uint32_t payload_bytes;
	double place_share;
	uint64_t sample_cnt;
	double thread_factor; /* of what a busy thread takes for a write to what is guessed */
	enum lp_policy_kind run_kind; /* of the last samples */
	uint32_t run_class;
	uint32_t run_cnt;
	struct lp_policy_cell cells[LP_POLICY_KIND_CNT][LP_POLICY_CLASS_CNT];
	uint32_t flips; /* choices that were changed */
	/* Of writes that wait for the log, and of those that are only ordered. */
	struct lp_policy_choice choices[2][LP_POLICY_CLASS_CNT][LP_POLICY_DEPTH_CNT];
};

/* Without samples yet: what one expects of a disk or of flash. */
void lp_policy_init(struct lp_policy *policy, bool is_rotational, bool volatile_cache);
/* Longer payloads are always direct. For logs whose frames are smaller than usual. */
void lp_policy_set_payload_max(struct lp_policy *policy, uint32_t payload_bytes);

/* So many writes of write-back there are for each payload: fewer than 1 where payloads are
 * rewritten while they wait, or have neighbours that wait. 1 until told otherwise. */
void lp_policy_set_place_share(struct lp_policy *policy, double share);

/* An operation took ns as the thread saw it, which had nothing else to do but wait for waited_ns of
 * it, with `depth` in flight on the device when it was submitted, itself included. bytes > 0 but
 * for flushes. */
void lp_policy_observe(struct lp_policy *policy, enum lp_policy_kind kind, uint64_t bytes,
		       uint32_t depth, uint64_t ns, uint64_t waited_ns);

/* What a write is guessed to take of the shard's thread, on a path of these two. */
double lp_policy_thread_ns(enum lp_write_path path, uint64_t bytes);
/* A thread was busy for busy_ns with writes that were guessed to take guessed_ns > 0 of it. If it
 * waited much (is_idle), part of that was waking: then it tells only how little they take at most.
 */
void lp_policy_observe_thread(struct lp_policy *policy, double guessed_ns, uint64_t busy_ns,
			      bool is_idle);

/* Which class such a write belongs to: of LP_POLICY_CLASS_CNT, and of LP_POLICY_DEPTH_CNT. */
uint32_t lp_policy_class_idx(uint64_t bytes);
uint32_t lp_policy_depth_idx(uint32_t depth);

/* LP_PATH_DEFERRED or LP_PATH_DIRECT for a write of bytes > 0, where about depth_hint writes are
 * going on at once (0 is taken as 1). May look at the choice again, and change it. */
enum lp_write_path lp_policy_choose(struct lp_policy *policy, uint64_t bytes, uint32_t depth_hint);

/* The same for a write whose client goes on when it is ordered (LP_ACK_ORDERED): a deferred one
 * does not wait for the device at all then, a direct one for its data only. For small ones: large
 * ones come one behind the other, as a copied file's do, are limited by what deferring takes of the
 * thread and of the log, and choose as if they waited. */
enum lp_write_path lp_policy_choose_ordered(struct lp_policy *policy, uint64_t bytes,
					    uint32_t depth_hint);

/* Makes every choice anew, without patience: after samples of which none was there before.
 * lp_policy_import() does it itself. */
void lp_policy_settle(struct lp_policy *policy);

/* One line for people: the choice for a write like this, and the numbers it rests on. Changes
 * nothing. Returns as snprintf(). */
int lp_policy_explain(const struct lp_policy *policy, uint64_t bytes, uint32_t depth_hint,
		      char *buf, size_t len);
const char *lp_write_path_name(enum lp_write_path path);

/* What was learned, as the value of `S policy` (docs/format/values.md). Import keeps what init was
 * told; -EBADMSG, -EUCLEAN by lp_corrupt(), and the policy untouched then. */
void lp_policy_export(const struct lp_policy *policy, uint8_t ret_bytes[LP_POLICY_VALUE_SIZE]);
int lp_policy_import(struct lp_policy *policy, const void *bytes, size_t len) LP_MUST_CHECK;

#endif
