/* SPDX-License-Identifier: Apache-2.0 */
/* What of a simulated device is durable, what is pending, and what a cut makes of it. Private to
 * the simulated device; the rules are in store/device/sim/README.md.
 *
 * A cache is a base image (durable for certain) and versions on top of it: writes, discards and
 * flipped bits that completed but may yet be lost, oldest first, and those in flight. It is fed
 * events, by the running device and again by a cutter that replays the log, and must come to the
 * same state both times: so nothing here draws from a running generator but cut and crash, which
 * are given one. Choices that belong to an operation are drawn from the operation's own seed.
 *
 * Threads: a cache belongs to one (or to whoever holds the device's lock). Out of memory: aborts.
 */
#ifndef LP_STORE_DEVICE_SIM_CACHE_H
#define LP_STORE_DEVICE_SIM_CACHE_H

#include "base/prng.h"
#include "base/struct/list.h"
#include "store/device/sim/bdev_sim.h"
#include "store/device/sim/image.h"

/* What an operation does to the medium. */
enum lpi_effect {
	LPI_NOTHING,
	LPI_STORE,
	LPI_ZERO, /* a discard: each sector becomes zero or stays */
	LPI_FLIP, /* bit rot: data is the mask */
};

/* An operation as the medium sees it. Immutable from its submission on; shared by the log, the
 * running device and any number of cutters. */
struct lpi_rec {
	_Atomic uint32_t refs;
	enum lp_bdev_opcode opcode;
	enum lpi_effect effect;
	int result;           /* what it will complete with */
	bool atomic;          /* never torn */
	bool drops;           /* a failed flush that loses what was unflushed, */
	bool drops_flying;    /* and of what is in flight, some */
	uint64_t seq;         /* 1, 2, ...: of the device */
	uint64_t stamp;       /* its submission's event number + 1 */
	uint64_t seed;        /* of its own draws */
	uint64_t media_bytes; /* where it goes: differs from offset if misdirected */
	uint64_t offset_bytes;
	uint64_t length_bytes;
	unsigned char *data; /* owned; NULL for all but STORE and FLIP */
};

struct lpi_rec *lpi_rec_get(struct lpi_rec *rec);
/* Accepts NULL. */
void lpi_rec_put(struct lpi_rec *rec);
/* What a draw of 64 bits from the operation's own seed gives for one of its sectors. */
uint64_t lpi_rec_draw(const struct lpi_rec *rec, uint64_t sector_idx);

/* One pending operation; bit i of live: its sector i has not been overtaken by a durable one. */
struct lpi_version {
	struct lp_list_node node;
	struct lpi_rec *rec;
	uint64_t stamp; /* of its completion; 0: completed before the first event */
	uint64_t sector_cnt;
	uint64_t live_cnt;
	uint64_t live[];
};

LP_LIST_DEFINE(lpi_versions, struct lpi_version, node);

struct lpi_span {
	uint64_t start_bytes;
	uint64_t end_bytes;
};

struct lpi_cache {
	struct lpi_image base;
	uint32_t sector_bytes;
	bool power_protected;
	struct lpi_versions done;   /* in order of completion */
	struct lpi_versions flying; /* in order of submission */
	struct lpi_span *bad;       /* unreadable until rewritten */
	uint32_t bad_cnt;
	uint32_t bad_max;
};

/* Discards keep their choice open until rewritten; beyond this many the oldest are settled. */
#define LPI_OPEN_DISCARDS_MAX 256u

void lpi_cache_init(struct lpi_cache *cache, uint64_t size_bytes, uint32_t sector_bytes,
		    bool power_protected);
void lpi_cache_clone(const struct lpi_cache *cache, struct lpi_cache *ret_clone);
void lpi_cache_fini(struct lpi_cache *cache);
/* What completed becomes durable, if the device is power protected now and was not before. */
void lpi_cache_protect(struct lpi_cache *cache, bool power_protected);

/* Events. The stamp is the event's number + 1. False: a flush that failed meanwhile took all of it,
 * so nothing of it is to be applied. */
void lpi_cache_submit(struct lpi_cache *cache, struct lpi_rec *rec);
bool lpi_cache_complete(struct lpi_cache *cache, struct lpi_rec *rec, uint64_t stamp);
/* rec->effect is LPI_FLIP. */
void lpi_cache_rot(struct lpi_cache *cache, struct lpi_rec *rec, uint64_t stamp);
void lpi_cache_spoil(struct lpi_cache *cache, uint64_t length_bytes, uint64_t offset_bytes);

bool lpi_cache_is_bad(const struct lpi_cache *cache, uint64_t length_bytes, uint64_t offset_bytes);

/* Applies to an image what a completed operation stored: what reads see from then on. */
void lpi_cache_apply(const struct lpi_cache *cache, const struct lpi_rec *rec,
		     struct lpi_image *image);
/* What reads see, from scratch. */
void lpi_cache_view(const struct lpi_cache *cache, struct lpi_image *ret_image);
/* Whether something in flight is for that range. */
bool lpi_cache_flies(const struct lpi_cache *cache, uint64_t length_bytes, uint64_t offset_bytes);
/* Replaces sectors in buf by what is in flight, each by chance. */
void lpi_cache_mix(const struct lpi_cache *cache, void *buf, uint64_t length_bytes,
		   uint64_t offset_bytes, struct lp_prng *prng);

/* The power fails: what is left, with nothing pending. */
void lpi_cache_cut(const struct lpi_cache *cache, const struct lp_sim_profile *profile,
		   struct lp_prng *prng, struct lpi_cache *ret_cache);
/* The process dies: what was in flight happens or not; the rest stays as it is. Stamps restart. */
void lpi_cache_crash(struct lpi_cache *cache, struct lp_prng *prng);

#endif
