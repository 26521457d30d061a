/* SPDX-License-Identifier: Apache-2.0 */
/* List of the damaged objects of a shard, with names, until they are mended or removed.
 *
 * Threads: the shard's.
 * Blocking: none.
 * Memory: an entry for each object, and its name; without memory the object is not listed.
 * Errors: none, except -ENOMEM at the beginning.
 * Limits: LPI_DAMAGE_MAX objects of a shard. Further objects are only counted in the log
 *   of corruptions, and are found again when there is a place.
 *
 *   1. A read that meets damage adds its object, whether it comes through a socket, the mount, or
 *      the check of all data. The store keeps one small record for each (docs/format/values.md), so
 *      the list is known after a restart. A store that cannot be written has it in memory only. The
 *      same object is written once, however often it is read.
 *   2. The name comes from the names that inodes hold of themselves, and is looked up to check it.
 *      Each object is logged once, with its name, few enough a second that the log
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
	uint64_t version_nr; /* the inode's at its last damage; 0: not known */
	char *name;          /* NULL: not known */
	enum lpi_damage_naming naming;
	uint8_t kind;   /* enum lp_damaged_kind */
	bool is_dirty;  /* its record must be written */
	bool is_gone;   /* its record must be removed, and then the entry */
	bool is_logged; /* by this run of the daemon */
};

struct lpi_damage {
	struct lp_scrub *scrub; /* of one object; NULL: not begun */
	struct lp_reactor *reactor;
	struct lp_store *store;
	struct lp_ns *ns;
	uint32_t shard_idx;
	struct lpi_damaged *items; /* sorted by number */
	uint32_t cnt;              /* including those that are gone */
	uint32_t gone_cnt;
	uint32_t room;
	uint64_t found;  /* since the daemon started */
	uint64_t beyond; /* found while the list was full */
	struct lp_ino cursor;
	uint32_t looks_left; /* objects to look at before the daemon's next look */
	struct lp_ino at;    /* the object under work */
	uint64_t at_version;
	struct lp_ino scrubbed; /* the object whose data is being read wholly */
	uint64_t scrubbed_version;
	uint64_t write_not_before_ns; /* set after a failed write */
	/* One operation at a time. */
	bool is_asking;
	bool is_naming; /* the operation is one of the namespace */
	bool is_loaded;
	bool is_quiet; /* no more operations of the namespace begin */
	bool is_stopping;
	struct lp_store_op op;
	struct lp_ns_op ns_op;
	struct lp_change change;
	struct lp_key key;
	uint8_t value[LP_DAMAGED_VALUE_SIZE];
	uint8_t *list; /* while the records are loaded */
	uint8_t last[LP_KEY_BYTES_MAX];
	uint32_t last_len;
	/* A path while it is being found, from its end. */
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

/* ns NULL: names are not searched for. */
int lpi_damage_begin(struct lpi_damage *damage, struct lp_reactor *reactor, struct lp_store *store,
		     struct lp_ns *ns, uint32_t shard_idx) LP_MUST_CHECK;
/* The rate at which a changed object is read again; LP_SCRUB_RATE_NOLIMIT. */
void lpi_damage_set_rate(struct lpi_damage *damage, uint64_t bytes_per_s);

/* A read has met damage. Before begin(), on zeroed memory, nothing is noted. */
void lpi_damage_note(struct lpi_damage *damage, struct lp_ino ino, uint64_t offset, int err);
/* A check of all data has passed this inode. */
void lpi_damage_passed(struct lpi_damage *damage, const struct lp_scrub_verdict *verdict);
/* Called each second. */
void lpi_damage_look(struct lpi_damage *damage);

struct lpi_damage_stats {
	uint64_t objects; /* known to be damaged now */
	uint64_t found;   /* since the daemon started, without those already known then */
	uint64_t beyond;  /* found and not listed for lack of a place; one object may count several
			     times */
	bool is_full;
};

void lpi_damage_read_stats(const struct lpi_damage *damage, struct lpi_damage_stats *ret_stats);
/* How many objects are known to be damaged. */
uint64_t lpi_damage_cnt(const struct lpi_damage *damage);
/* There may be more damaged objects than are listed. */
bool lpi_damage_is_full(const struct lpi_damage *damage);
/* Adds members "objects", "more" and "full" to the open object: up to LPI_DAMAGE_PAGE objects
 * behind this inode. */
void lpi_damage_json(const struct lpi_damage *damage, struct lp_ino behind, struct lpi_text *text);

/* Begins no more operations of the namespace. Calls quiet(arg) when none is under way, perhaps at
 * once. */
void lpi_damage_quiet(struct lpi_damage *damage, void (*quiet)(void *arg), void *arg);
/* The same for operations of the store; called after that. */
void lpi_damage_stop(struct lpi_damage *damage, void (*stopped)(void *arg), void *arg);
/* It has stopped, or never begun. */
void lpi_damage_fini(struct lpi_damage *damage);

#endif
