/* SPDX-License-Identifier: Apache-2.0 */
/* A block device that is as slow as another one: it wraps an open device and delays completions.
 *
 * For measuring and testing on devices one does not have: tmpfs makes flushes free, a disk makes
 * them dear. Each operation goes to the inner device at once; complete() is called when both have
 * happened: the inner device is done, and the modelled time is over.
 *
 * The model: an operation waits for one of queue_depth servers, first come, first served, then
 * for the one path all bytes take (bytes times ns_per_kib); then its fixed time passes. Reads and
 * writes that do not begin where the last one ended take seek_ns more. A discard takes what a
 * write of no bytes takes. Servers, path and head are the device's: all channels and blocking
 * calls share them. What the inner device takes is hidden behind the model's time, so it should be
 * the faster of the two: operations for which it was not are counted as late.
 *
 * Time: on a free core a completion is less than 1 us late, for the reactor does not sleep while
 * one is due within LP_BDEV_DELAY_LEAD_NS: this costs CPU time, which is no figure of the store.
 * Blocking calls sleep, and are late by some 20 us. With the clock of a simulation channels delay
 * in simulated time; blocking calls, during which such a clock stands still, then take none.
 *
 * Capabilities, contents, errors and faults are the inner device's, but that one with seeks is
 * rotational; the counters count what was asked of this one, once.
 *
 * Threads: as in store/device/bdev.h; a mutex is held for the few instructions of the model, which
 * is why this is for measuring only. Allocation: at open and attach. Errors: as said per call.
 */
#ifndef LP_STORE_DEVICE_BDEV_DELAY_H
#define LP_STORE_DEVICE_BDEV_DELAY_H

#include "base/clock.h"
#include "store/device/bdev.h"

#define LP_BDEV_DELAY_NS_MAX    (10 * LP_NS_PER_S) /* of each time below */
#define LP_BDEV_DELAY_KIB_MAX   (10 * LP_NS_PER_MS)
#define LP_BDEV_DELAY_DEPTH_MAX 256u
#define LP_BDEV_DELAY_LEAD_NS   (50 * LP_NS_PER_US)
/* Of one channel at once; those beyond wait in order, and their time begins when they go. */
#define LP_BDEV_DELAY_FLIGHT_MAX 1024u
/* As fua_ns: a write-through is a write and a flush, as where FUA is not had. */
#define LP_BDEV_DELAY_AS_FLUSH UINT64_MAX

struct lp_bdev_delay_options {
	uint64_t read_ns;
	uint64_t write_ns;
	uint64_t flush_ns;
	uint64_t fua_ns;              /* a write-through takes so much longer than a write */
	uint64_t seek_ns;             /* of a read or write that is not where the last one ended */
	uint64_t read_ns_per_kib;     /* the bandwidth: shared by all that is in flight */
	uint64_t write_ns_per_kib;    /* at most LP_BDEV_DELAY_KIB_MAX */
	uint32_t queue_depth;         /* served at once, at most LP_BDEV_DELAY_DEPTH_MAX; 0: all */
	const struct lp_clock *clock; /* NULL: the system's; else that of all its reactors */
};

/* "none" passes everything on; "target" is what docs/targets.md wants; the others are typical of
 * their kind. Where one has no limit of its own, of bandwidth or of what is served at once, the
 * inner device's holds: at great depth small writes are late there. */
enum lp_bdev_delay_kind {
	LP_BDEV_DELAY_NONE,
	LP_BDEV_DELAY_NVME,
	LP_BDEV_DELAY_TARGET,
	LP_BDEV_DELAY_SATA_SSD,
	LP_BDEV_DELAY_HDD,
	LP_BDEV_DELAY_KIND_CNT
};

/* Static. */
const struct lp_bdev_delay_options *lp_bdev_delay_preset(enum lp_bdev_delay_kind kind);
/* "none", "nvme", "target", "sata-ssd", "hdd". */
const char *lp_bdev_delay_kind_name(enum lp_bdev_delay_kind kind);
/* The preset of that name, or NULL. */
const struct lp_bdev_delay_options *lp_bdev_delay_profile(const char *name);

/* Takes the inner device, which has no channels; it is closed with this one. On failure it stays
 * the caller's: -EINVAL for options beyond their limits, -ENOMEM. The options are copied. */
int lp_bdev_open_delay(struct lp_bdev **take_inner, const struct lp_bdev_delay_options *options,
		       struct lp_bdev **ret_bdev) LP_MUST_CHECK;

#endif
