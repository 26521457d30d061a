/* SPDX-License-Identifier: Apache-2.0 */
/* State of health of the daemon: ok, damaged, degraded, read-only or failed, and why.
 *
 * Threads: the control thread's.
 * Blocking: none.
 * Memory: allocated by init only.
 * Errors: -ENOMEM, and what attaching to a device says.
 *
 * The state is that of the worst of these:
 *   - Each second, and at once when a store says that it has failed, every thread is asked how its
 *     stores are. Each second each device is asked to read its first block, because a device that
 *     hangs gives no error by itself. A thread or device that does not answer for as long as the
 *     configuration allows is reported once, and once more when it answers again.
 *   - A change over several shards that cannot be ended before the next start degrades the daemon,
 *     because what it is about is refused.
 *   - So do requests that are under way while nothing at all has moved for LPI_HEALTH_STILL_NS.
 *     They may wait for each other; `lapis stuck` shows them.
 *
 * A failure of a shard's store is logged by the shard (lpi_health_tell()). All other changes are
 * logged here.
 */
#ifndef LP_DAEMON_REPORT_HEALTH_H
#define LP_DAEMON_REPORT_HEALTH_H

#include "base/loop/workers.h"
#include "daemon/config/why.h"
#include "store/device/bdev.h"
#include "store/store.h"

#define LPI_HEALTH_DEVICES 3u
#define LPI_HEALTH_LOOK_NS LP_NS_PER_S
/* After so long without any movement the requests under way count as stuck. */
#define LPI_HEALTH_STILL_NS (10 * LP_NS_PER_S)

/* Report of one thread. */
struct lpi_look {
	struct lp_store_health store; /* of the worst of its stores */
	uint32_t shard_idx;           /* which */
	uint64_t damaged;             /* objects that are known to be */
	bool has_more_damaged;        /* there may be more of them than are known */
	uint64_t stuck;               /* changes over several shards that cannot end (rule N1) */
	uint64_t under_way;           /* requests at work, of both doors */
	uint64_t moved;               /* changes whenever an operation ends or a device works */
	bool given_back;              /* at rest, its stores gave memory back to the allocator */
	uint64_t absences;            /* of more than a millisecond, since the last look */
	uint64_t away_max_ns;         /* the longest ever */
};

enum lpi_health_state {
	LPI_HEALTH_OK,
	LPI_HEALTH_DAMAGED,   /* all is served except damaged parts of some objects */
	LPI_HEALTH_DEGRADED,  /* all is served, perhaps late; an operator should look */
	LPI_HEALTH_READ_ONLY, /* a shard cannot be changed any more */
	LPI_HEALTH_FAILED,    /* a shard cannot be read either */
	LPI_HEALTH_STATE_CNT
};

/* A device that is watched. */
struct lpi_probe {
	struct lp_bdev_chan *chan; /* NULL: there is none */
	struct lp_bdev_op op;
	void *block;
	uint64_t asked_ns;
	bool is_asked;
	int result; /* of the last answer */
	/* The first write or flush that failed, for any caller. It is reported until the end,
	 * because a device that has failed once may fail again. */
	bool has_failed;
	struct lp_bdev_failure failure;
	/* The device's present size; a helper's while host_work is under way. */
	uint64_t size_bytes;
	int size_result;
	uint64_t needs_bytes; /* needed by the store on it; 0: not known */
	uint64_t seen_bytes;  /* at the last check */
	bool is_cut_off;      /* seen_bytes is less than the store needs */
	/* State of the file system of an image file. */
	struct lp_work host_work;
	struct lp_bdev_host host; /* valid with host_result 0; a helper's while host_work is under
				   * way */
	int host_result;
	uint64_t no_space_cnt; /* writes that had failed for lack of space at the last check */
	uint64_t no_space_ns;  /* when no_space_cnt last grew */
	bool is_host_full;
};

struct lpi_health {
	struct lp_reactor *reactor;
	struct lp_workers *workers; /* NULL: file systems of images are not watched */
	struct lpi_probe probes[LPI_HEALTH_DEVICES];
	enum lpi_health_state state;
	char reason[LP_WHY_MAX];
	uint64_t since_ns; /* of the day */
	uint64_t moved;    /* sum over all threads at its last change */
	uint64_t moved_ns; /* when `moved` last changed, or when there was no request under way */
	uint64_t under_way;
};

/* bdev may be NULL. */
int lpi_health_init(struct lpi_health *health, struct lp_reactor *reactor,
		    struct lp_bdev *const bdev[LPI_HEALTH_DEVICES]) LP_MUST_CHECK;
/* From now on, helpers check at each look the size of each device, and the file systems that hold
 * images. A file system without space degrades the daemon until it has some again. So does a device
 * that is smaller than the store on it, until it is as large again. */
void lpi_health_watch_hosts(struct lpi_health *health, struct lp_workers *workers);
/* Sets the bytes of this device that the store needs. */
void lpi_health_set_needs(struct lpi_health *health, uint32_t device, uint64_t bytes);
/* No more checks begin. The end is known by lpi_health_is_idle(). Zeroed memory is fine. */
void lpi_health_fini(struct lpi_health *health);
bool lpi_health_is_idle(const struct lpi_health *health);

/* Checks each device whose last check has ended. */
void lpi_health_ask(struct lpi_health *health);
/* The verdict over all threads' looks. asked_ns[i]: since when thread i has not answered; 0: it
 * has. */
void lpi_health_judge(struct lpi_health *health, const struct lpi_look *looks,
		      const uint64_t *asked_ns, uint32_t thread_cnt, uint64_t timeout_ns);
/* For how long nothing has moved although an operation is under way. */
uint64_t lpi_health_still_ns(const struct lpi_health *health);
const char *lpi_health_name(enum lpi_health_state state);
/* Logs a change of a store's state. Any thread. */
void lpi_health_tell(uint32_t shard_idx, const struct lp_store_health *health);

#endif
