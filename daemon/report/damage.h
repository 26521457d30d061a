/* SPDX-License-Identifier: Apache-2.0 */
/* List of the damaged objects of a shard, with names, until they are mended or removed.
 *
 * Threads: the shard's.
 * Blocking: none.
 * Memory: an entry for each object, and its name; without memory the object is not listed.
 * Errors: none, except -ENOMEM at the beginning.
 * Limits: LPI_DAMAGE_MAX objects of a shard. What is found beyond them is counted in the log of
 *   corruptions only, and is found again when there is a place.
 *
 *   1. A read that meets damage adds its object, whether it comes through a socket, the mount, or
 *      the check of all data. The store keeps one small record for each (docs/format/values.md), so
 *      the list is known after a restart. A store that cannot be written has it in memory only. The
 *      same object is written once, however often it is read.
 *   2. The name is found by the names that inodes have of themselves, and is looked up to see that
 *      it is right. Each object is logged once, with its name, few enough a second that the log
 *      suppresses none.
 *   3. Each second a few objects are looked at. One that is gone is taken off the list. One that
 *      has changed is read at the damaged place. If that is right, all of it is read; if it is
 *      whole, it is taken off. A check of all data that finds it whole takes it off as well.
 */
#ifndef LP_DAEMON_REPORT_DAMAGE_H
#define LP_DAEMON_REPORT_DAMAGE_H

#include "daemon/report/text.h"
#include "namespace/ns.h"
#include "store/check/scrub.h"
#include "store/record/values.h"

#define LPI_DAMAGE_MAX       1024u
#define LPI_DAMAGE_PAGE      64u   /* objects of one answer */
#define LPI_DAMAGE_NAME_MAX  4096u /* bytes of a name that is remembered, its NUL included */
#define LPI_DAMAGE_DEPTH_MAX 256u  /* directories above an object */
#define LPI_DAMAGE_LIST      16384u

enum lpi_damage_naming { LPI_DAMAGE_UNNAMED, LPI_DAMAGE_NAMED, LPI_DAMAGE_NO_NAME };

struct lpi_damaged {
	struct lp_ino ino;
	uint64_t offset;
	int64_t since_ns;
	uint64_t version_nr; /* the inode's, when it was damaged last; 0: not known */
	char *name;          /* NULL: not known */
	enum lpi_damage_naming naming;
	uint8_t kind;   /* enum lp_damaged_kind */
	bool is_dirty;  /* its record is to be written */
	bool is_gone;   /* its record is to be removed, and it with that */
	bool is_logged; /* by this run of the daemon */
};

struct lpi_damage {
	struct lp_scrub *scrub; /* of one object; NULL: not begun */
	struct lp_reactor *reactor;
	struct lp_store *store;
	struct lp_ns *ns;
	uint32_t shard_idx;
	struct lpi_damaged *items; /* by their numbers */
	uint32_t cnt;              /* with those that are gone */
	uint32_t gone_cnt;
	uint32_t room;
	uint64_t found;  /* since the daemon started */
	uint64_t beyond; /* found while the list was full */
	struct lp_ino cursor;
	uint32_t looks_left; /* until the next look of the daemon */
	struct lp_ino at;    /* the object that is worked at */
	uint64_t at_version;
	struct lp_ino scrubbed; /* the object that is read wholly */
	uint64_t scrubbed_version;
	uint64_t write_not_before_ns; /* a write has failed */
	/* One question at a time. */
	bool is_asking;
	bool is_naming; /* the question is one to the namespace */
	bool is_loaded;
	bool is_quiet; /* the namespace is asked no more */
	bool is_stopping;
	struct lp_store_op op;
	struct lp_ns_op ns_op;
	struct lp_change change;
	struct lp_key key;
	uint8_t value[LP_DAMAGED_VALUE_SIZE];
	uint8_t *list; /* while it is loaded */
	uint8_t last[LP_KEY_BYTES_MAX];
	uint32_t last_len;
	/* A path as it is found, from its end. */
	struct lp_ino child;
	struct lp_ino parent;
	uint32_t depth;
	uint32_t path_at;
	char hint[LP_KEY_NAME_MAX];
	char path[LPI_DAMAGE_NAME_MAX];
	void (*quiet)(void *arg);
	void (*stopped)(void *arg);
	void *arg;
};

/* ns NULL: names are not looked for. */
int lpi_damage_begin(struct lpi_damage *damage, struct lp_reactor *reactor, struct lp_store *store,
		     struct lp_ns *ns, uint32_t shard_idx) LP_MUST_CHECK;
/* How fast an object that has changed is read again; LP_SCRUB_RATE_NOLIMIT. */
void lpi_damage_set_rate(struct lpi_damage *damage, uint64_t bytes_per_s);

/* A read has met damage. Also before it has begun, on zeroed memory: then nothing is noted. */
void lpi_damage_note(struct lpi_damage *damage, struct lp_ino ino, uint64_t offset, int err);
/* A check of all data has passed this inode. */
void lpi_damage_passed(struct lpi_damage *damage, const struct lp_scrub_verdict *verdict);
/* Each second. */
void lpi_damage_look(struct lpi_damage *damage);

struct lpi_damage_stats {
	uint64_t objects; /* that are known to be damaged now */
	uint64_t found;   /* since the daemon started, those that it knew of not counted */
	uint64_t beyond;  /* found and not listed, for there was no place; perhaps several times */
	bool is_full;
};

void lpi_damage_read_stats(const struct lpi_damage *damage, struct lpi_damage_stats *ret_stats);
/* How many objects are known to be damaged. */
uint64_t lpi_damage_cnt(const struct lpi_damage *damage);
/* There may be more. */
bool lpi_damage_is_full(const struct lpi_damage *damage);
/* Members "objects", "more" and "full" of the object that is open: up to LPI_DAMAGE_PAGE behind
 * this one.
 */
void lpi_damage_json(const struct lpi_damage *damage, struct lp_ino behind, struct lpi_text *text);

/* Asks the namespace no more; quiet(arg) when it does not, perhaps at once. */
void lpi_damage_quiet(struct lpi_damage *damage, void (*quiet)(void *arg), void *arg);
/* The same of the store, after that. */
void lpi_damage_stop(struct lpi_damage *damage, void (*stopped)(void *arg), void *arg);
/* Stopped, or never begun. */
void lpi_damage_fini(struct lpi_damage *damage);

#endif
