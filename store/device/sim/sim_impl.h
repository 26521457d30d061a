/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the simulated device, for its own files:
 *   bdev_sim.c   the device: opening, channels, scheduling, blocking calls
 *   device/sim/fault.c  the rules that make operations go wrong
 *   device/sim/event_log.c    the log of events, cutters, cuts
 *   device/sim/cache.c  what is durable and what is pending (device/sim/cache.h)
 *   device/sim/image.c  images that share pages (device/sim/image.h)
 *
 * Threads: functions here want the device's lock held, but for those that make a device.
 */
#ifndef LP_STORE_DEVICE_SIM_SIM_IMPL_H
#define LP_STORE_DEVICE_SIM_SIM_IMPL_H

#include <pthread.h>

#include "base/error.h"
#include "store/device/bdev_driver.h"
#include "store/device/sim/bdev_sim.h"
#include "store/device/sim/cache.h"

struct lpi_event {
	struct lp_sim_event info;
	struct lpi_rec *rec; /* what a replay needs; NULL for reads and without data */
};

struct lpi_log {
	struct lpi_event *events; /* [0] is number `first` */
	uint64_t first;
	uint64_t count; /* number of the next event */
	uint64_t max;   /* size of the array */
	bool metadata_only;
	struct lpi_cache start; /* as of before the first event */
	uint64_t trace_hash;
};

struct lpi_rule {
	struct lp_sim_rule rule;
	uint64_t met_cnt;
	uint64_t fired_cnt;
	struct lpi_image then; /* LP_SIM_STALE: what was there */
};

/* One operation between submission and completion. */
struct lpi_flight {
	struct lp_bdev_op *op; /* NULL for a blocking call */
	const struct iovec *iov;
	uint32_t iov_cnt;
	struct lpi_rec *rec;
	uint64_t due_ns;
	struct lpi_image before; /* reads: as of the submission, or stale */
	/* What the rules want to happen at completion. */
	bool stale;
	uint64_t extra_ns;
	struct lpi_span spoil; /* empty: nothing */
	struct lpi_span rot;
	uint64_t rot_bit_cnt;
	bool foreign; /* another user's flush fails */
};

struct lpi_sim_chan {
	struct lp_bdev_chan base;
	struct lp_source source;
	struct lp_list_node node;
	/* A binary heap: the soonest first, equal times in order of submission. */
	struct lpi_flight **heap;
	size_t heap_cnt;
	size_t heap_max;
	bool polling;
};

LP_LIST_DEFINE(lpi_sim_chans, struct lpi_sim_chan, node);

struct lp_sim {
	struct lp_bdev base;
	pthread_mutex_t lock; /* all below */
	struct lp_sim_profile profile;
	struct lp_prng latency_prng;
	struct lp_prng read_prng;
	struct lp_prng fault_prng;
	struct lp_prng op_prng; /* seeds of operations */
	struct lpi_image current;
	struct lpi_cache cache;
	struct lpi_log log;
	struct lpi_rule *rules;
	uint32_t rule_cnt;
	uint32_t rule_max;
	struct lpi_sim_chans chans;
	uint64_t op_cnt;
	uint64_t now_ns; /* latest time seen on any channel */
	bool vanished;
	bool off; /* after a cut: nothing happens any more */
};

void lpi_sim_lock(const struct lp_sim *sim);
void lpi_sim_unlock(const struct lp_sim *sim);

bool lpi_sim_profile_is_valid(const struct lp_sim_profile *profile);
/* Takes over *take_cache, whose size and sectors it keeps, and shows its view. */
struct lp_sim *lpi_sim_new(const struct lp_sim_profile *profile, uint64_t seed, bool metadata_only,
			   struct lpi_cache *take_cache);
/* Drops what is in flight without completing it. */
void lpi_sim_switch_off(struct lp_sim *sim);

/* A new operation without data and effect; the caller puts it. */
struct lpi_rec *lpi_sim_rec_new(struct lp_sim *sim, enum lp_bdev_opcode opcode,
				uint64_t length_bytes, uint64_t offset_bytes);

/* device/sim/fault.c: decides at submission what will go wrong, and does so at completion. */
void lpi_sim_plan(struct lp_sim *sim, struct lpi_flight *flight);
bool lpi_sim_plan_rot(struct lp_sim *sim, const struct lpi_flight *flight);
void lpi_sim_plan_spoil(struct lp_sim *sim, const struct lpi_flight *flight);
void lpi_sim_fail_flush(const struct lp_sim *sim, struct lpi_rec *rec, bool is_blocking);
void lpi_sim_rules_fini(struct lp_sim *sim);

/* device/sim/event_log.c: takes over *take_start. */
void lpi_log_init(struct lpi_log *log, bool metadata_only, struct lpi_cache *take_start);
void lpi_log_fini(struct lpi_log *log);
/* data_hash: of the operation's data, if it has any. */
void lpi_log_push(struct lp_sim *sim, const struct lp_sim_event *info, struct lpi_rec *rec,
		  uint64_t data_hash);
/* The stamp (device/sim/cache.h) of the event pushed next. */
static inline uint64_t lpi_log_stamp(const struct lpi_log *log)
{
	return log->count + 1;
}

#endif
