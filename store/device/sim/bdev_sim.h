/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated block device: loses, tears and delays what a real one may.
 *
 * Threads: the channels of one device belong to reactors of one thread. The blocking calls of
 * store/device/bdev.h and everything below may come from any thread (one lock per device), but
 * only calls in a fixed order give a fixed run.
 * Blocking: none; blocking calls take no simulated time.
 * Memory: devices that a cut makes share memory with the old one. A cut costs about the unflushed
 * data, whatever the size of the device.
 * Errors: as said per call. It is a test instrument: when the host has no memory left, it aborts.
 *
 * store/device/sim/README.md is the fault model, clause by clause (SIM1, SIM2, ...). This header
 * is the way to it. A device is opened like any other and used through store/device/bdev.h. It
 * runs under reactors without a ring and draws every choice from one seed: the same seed and the
 * same calls give the same run, down to the byte (lp_sim_trace_hash()).
 *
 * Every submission and completion is an event in the device's log. A cut takes the events up to
 * one of them and makes a new device that holds what the power could have left.
 */
#ifndef LP_STORE_DEVICE_SIM_BDEV_SIM_H
#define LP_STORE_DEVICE_SIM_BDEV_SIM_H

#include "store/device/bdev.h"

struct lp_sim;

/* --- What kind of device ---------------------------------------------------------------------- */

struct lp_sim_latency {
	uint64_t low_ns; /* uniform in [low, high]; at least 1 ns passes */
	uint64_t high_ns;
};

struct lp_sim_profile {
	const char *name; /* static */
	struct lp_sim_latency latency[LP_BDEV_OPCODE_CNT];
	struct lp_sim_latency slow;  /* of the slow ones, added to the usual */
	uint32_t slow_ppm;           /* of a million operations this many are slow */
	uint32_t sector_bytes;       /* caps.block_bytes; what is kept or lost as one */
	uint32_t physical_bytes;     /* caps.physical_bytes; 0: sector_bytes */
	uint32_t atomic_write_bytes; /* caps.atomic_write_bytes; 0: sector_bytes */
	bool power_protected;        /* a completed write is durable */
	bool tears_sectors;          /* a cut may leave half of a sector old */
	bool leaves_garbage;         /* a cut may leave nonsense in a sector */
	bool drops_on_failed_flush;  /* what was unflushed is then gone */
	bool through_flushes;        /* a write-through is a write and a flush */
	bool no_discard;             /* discards give -EOPNOTSUPP and change nothing */
	bool rotational;
	bool is_file;
};

/* Typical devices, for tests that go through all of them: a desktop SSD, a data centre SSD with
 * power-loss protection, a disk of 512-byte sectors, and one that does everything it may not. */
enum lp_sim_preset {
	LP_SIM_CONSUMER,
	LP_SIM_PROTECTED,
	LP_SIM_DISK,
	LP_SIM_HOSTILE,
	LP_SIM_PRESET_CNT
};
const struct lp_sim_profile *lp_sim_preset(enum lp_sim_preset preset);

struct lp_sim_options {
	const struct lp_sim_profile *profile; /* copied */
	uint64_t size_bytes;                  /* a multiple of the sector */
	uint64_t seed;
	bool log_metadata_only; /* keep no data in the log: no cuts in the past */
};

/* -EINVAL for a profile or size that makes no sense. */
int lp_bdev_open_sim(const struct lp_sim_options *options, struct lp_bdev **ret_bdev) LP_MUST_CHECK;
/* The device must be a simulated one (asserted). */
struct lp_sim *lp_sim_of(struct lp_bdev *bdev);

/* --- Faults while running --------------------------------------------------------------------- */

enum lp_sim_fault {
	LP_SIM_EIO,       /* any operation; a failed flush: see drops_on_failed_flush */
	LP_SIM_LATENT,    /* reads: the sectors become unreadable until rewritten */
	LP_SIM_ROT,       /* reads and writes: `arg` bits flip in what is stored there */
	LP_SIM_MISDIRECT, /* writes: stored at offset `arg` instead */
	LP_SIM_LOST,      /* writes: acknowledged, never stored */
	LP_SIM_STALE,     /* reads: what was there when the rule was added */
	LP_SIM_SLOW,      /* any operation: takes `arg` ns longer */
	LP_SIM_ENOSPC,    /* writes */
	LP_SIM_VANISH,    /* any operation; it and all that follow give -ENODEV */
	LP_SIM_FOREIGN,   /* any operation: just before its end another user's flush fails */
	LP_SIM_FAULT_CNT
};

#define LP_SIM_OP(opcode) (1u << (opcode))

/* An operation meets the rule when its opcode is in the mask and its range overlaps. Of those
 * that meet it, skip_cnt pass; then fire_cnt are hit, each with the chance given. */
struct lp_sim_rule {
	enum lp_sim_fault fault;
	uint32_t opcode_mask;  /* LP_SIM_OP(); 0: all the fault is for */
	uint64_t offset_bytes; /* flushes have no range and meet any */
	uint64_t length_bytes; /* 0: to the end of the device */
	uint32_t skip_cnt;
	uint32_t fire_cnt;   /* 0: no limit */
	uint32_t chance_ppm; /* 0: always */
	uint64_t arg;
};

/* Returns the rule's number. */
uint32_t lp_sim_rule_add(struct lp_sim *sim, const struct lp_sim_rule *rule);
uint64_t lp_sim_rule_fired(struct lp_sim *sim, uint32_t rule_idx);
/* Forgets all rules; what they did to the medium remains. */
void lp_sim_rules_clear(struct lp_sim *sim);

/* Flips bits in what is stored, at once. */
void lp_sim_rot(struct lp_sim *sim, uint64_t length_bytes, uint64_t offset_bytes, uint64_t bit_cnt);
/* Makes sectors unreadable until rewritten, at once. */
void lp_sim_spoil(struct lp_sim *sim, uint64_t length_bytes, uint64_t offset_bytes);

/* --- The log -----------------------------------------------------------------------------------
 */

enum lp_sim_event_type {
	LP_SIM_SUBMIT,
	LP_SIM_COMPLETE,
	LP_SIM_ROTTED,
	LP_SIM_SPOILED,
};

struct lp_sim_event {
	enum lp_sim_event_type type;
	enum lp_bdev_opcode opcode; /* submit, complete */
	int result;                 /* complete */
	uint64_t op_seq;            /* the same in an operation's two events */
	uint64_t offset_bytes;      /* as asked for, even if misdirected */
	uint64_t length_bytes;
	uint64_t time_ns;
};

/* Events are numbered from 0 and keep their numbers when the log is trimmed: the log holds
 * [first, count). */
uint64_t lp_sim_event_count(const struct lp_sim *sim);
uint64_t lp_sim_event_first(const struct lp_sim *sim);
void lp_sim_event_get(const struct lp_sim *sim, uint64_t event_idx, struct lp_sim_event *ret_event);
/* Over all events with their times, what was written, and what was read where chance had a say in
 * it: other reads follow from the writes, and hashing them was a third of all that a recovery
 * costs. Equal runs have equal hashes. */
uint64_t lp_sim_trace_hash(const struct lp_sim *sim);
/* Forgets the past, to save memory in long runs. What is pending stays pending. */
void lp_sim_trim_log(struct lp_sim *sim);

/* --- Cuts --------------------------------------------------------------------------------------
 */

/* A device as a power cut right after that event could have left it; its log is empty and all it
 * holds is durable. The log is replayed under `profile` (NULL: the device's own; sector sizes must
 * match), which the new device also has. Other seeds give other outcomes. -EINVAL when the event
 * is not in the log, -ENOTSUP when the log has no data. Takes time for every event before this
 * one: to cut at many, use a cutter. */
int lp_sim_image_at(const struct lp_sim *sim, uint64_t event_idx,
		    const struct lp_sim_profile *profile, uint64_t seed,
		    struct lp_bdev **ret_bdev) LP_MUST_CHECK;

/* Cuts now. Operations in flight are dropped without completion: their owners are the caller's
 * to tear down. The old device is off: it can be detached from and closed, submissions to it never
 * complete, blocking calls give -ENODEV. May be called from a completion; channels are detached
 * after that has returned. */
struct lp_bdev *lp_sim_power_cut(struct lp_sim *sim, uint64_t seed);
/* The process dies, the machine lives. As power_cut, but completed writes all survive, operations
 * in flight happen or not, and what was unflushed still is (a later power cut may lose it). */
struct lp_bdev *lp_sim_process_crash(struct lp_sim *sim, uint64_t seed);

/* Walks the log once and can cut at each step. The device must outlive it and not be trimmed
 * meanwhile; it may run on. */
struct lp_sim_cutter;
/* Stands before the first event. Errors as lp_sim_image_at(). */
int lp_sim_cutter_new(const struct lp_sim *sim, const struct lp_sim_profile *profile,
		      struct lp_sim_cutter **ret_cutter) LP_MUST_CHECK;
/* Steps over one event. False at the end. */
bool lp_sim_cutter_next(struct lp_sim_cutter *cutter);
/* The number of the event it stands before. */
uint64_t lp_sim_cutter_event(const struct lp_sim_cutter *cutter);
/* The power fails here; the process dies here. May be called again with another seed. */
struct lp_bdev *lp_sim_cutter_cut(const struct lp_sim_cutter *cutter, uint64_t seed);
struct lp_bdev *lp_sim_cutter_crash(const struct lp_sim_cutter *cutter, uint64_t seed);
/* Accepts NULL. */
void lp_sim_cutter_free(struct lp_sim_cutter *cutter);

#endif
