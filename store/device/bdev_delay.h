/* SPDX-License-Identifier: Apache-2.0 */
/* Delayed block device: wraps an open device and makes it as slow as another one.
 *
 * Threads: as in store/device/bdev.h. A mutex is held for the few instructions of the model; so
 * this is for measuring only.
 * Blocking: as in store/device/bdev.h.
 * Memory: allocated at open and attach.
 * Errors: as said per call. Capabilities, contents, errors and faults are the inner device's,
 * except that a device with seeks is rotational. The counters count what was asked of this
 * device, once.
 *
 * It is for measuring and testing on devices one does not have: tmpfs makes flushes free, a disk
 * makes them expensive. Each operation goes to the inner device at once. complete() is called
 * when the inner device is done and the modelled time is over.
 *
 * The model: an operation waits for one of queue_depth servers, first come, first served. Then it
 * waits for the one path that all bytes take (bytes times ns_per_kib). Then its fixed time
 * passes. Reads and writes that do not begin where the last one ended take seek_ns more. A
 * discard takes as long as a write of no bytes. Servers, path and head belong to the device: all
 * channels and blocking calls share them. The inner device's time is hidden behind the model's,
 * so it should be the faster of the two. Operations for which it was not are counted as late.
 *
 * Time: on a free core a completion is less than 1 us late, because the reactor does not sleep
 * while one is due within LP_BDEV_DELAY_LEAD_NS. This costs CPU time, which is no figure of the
 * store. Blocking calls sleep, and are some 20 us late. With the clock of a simulation channels
 * delay in simulated time. Blocking calls then take none, because such a clock stands still
 * during them.
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
