/* SPDX-License-Identifier: Apache-2.0 */
/* Open counts of the inodes of this shard, and orphans: inodes without a name.
 *
 * Threads: the shard's.
 * Blocking: none.
 * Memory: the table grows while more and more inodes are open.
 * Errors: -ENOMEM.
 * Limits: LPI_OPENS_MAX.
 *
 * An inode that is open, or held by a mount whose kernel remembers it (state/kernel_holds.h), is
 * not removed when it loses its last name (namespace NS5). It becomes an orphan with a `U` record.
 * The orphan is removed when it is neither open nor held any more, or at the next start.
 */
#ifndef LP_NAMESPACE_STATE_OPEN_INODES_H
#define LP_NAMESPACE_STATE_OPEN_INODES_H

#include "store/record/values.h"
#include "store/store.h"

#define LPI_OPENS_MAX (UINT32_C(1) << 20)

struct lpi_opens;
struct lpi_held_stats;

/* Events of orphans. */
enum lpi_orphan_event {
	LPI_ORPHAN_HELD,     /* no longer open, but a mount holds it */
	LPI_ORPHAN_CLOSED,   /* neither open nor held, since it was closed */
	LPI_ORPHAN_FORGOTTEN /* the same, since a mount has let it go */
};

/* told() may take the orphans that are no longer needed, also from inside. */
int lpi_opens_new(void (*told)(void *arg, enum lpi_orphan_event event), void *arg,
		  struct lpi_opens **ret_opens) LP_MUST_CHECK;
/* Accepts NULL. Opens that are left are forgotten. */
void lpi_opens_free(struct lpi_opens *opens);

/* -ENOMEM, -ENFILE; -ESTALE: an orphan that is being removed. */
int lpi_opens_add(struct lpi_opens *opens, struct lp_ino ino, uint32_t count) LP_MUST_CHECK;
/* count is at most the number of opens added. */
void lpi_opens_drop(struct lpi_opens *opens, struct lp_ino ino, uint32_t count);
uint32_t lpi_opens_cnt(const struct lpi_opens *opens, struct lp_ino ino);

/* The same for opens of a mount, which are counted by themselves, because lpi_opens_let_go_all()
 * closes them. So a drop may come too late; then it drops nothing and returns false. */
int lpi_opens_add_mounts(struct lpi_opens *opens, struct lp_ino ino) LP_MUST_CHECK;
bool lpi_opens_drop_mounts(struct lpi_opens *opens, struct lp_ino ino, uint32_t count);

/* The kernel will be told of the inode once. -ESTALE as above. */
int lpi_opens_hold(struct lpi_opens *opens, struct lp_ino ino) LP_MUST_CHECK;
/* The kernel is told of an inode that is not counted: lpi_held_miss(). */
void lpi_opens_miss(struct lpi_opens *opens);
/* The kernel has forgotten the inode so often. Or it has forgotten all inodes, and has none open
 * any more. */
void lpi_opens_let_go(struct lpi_opens *opens, struct lp_ino ino, uint64_t count);
void lpi_opens_let_go_all(struct lpi_opens *opens);
uint32_t lpi_opens_some_held(struct lpi_opens *opens, struct lp_ino *ret_inos, uint32_t inos_max);
void lpi_opens_read_held(const struct lpi_opens *opens, struct lpi_held_stats *ret_stats);

/* True if a mount holds it: lpi_held_is(). */
bool lpi_opens_is_held(const struct lpi_opens *opens, struct lp_ino ino, bool if_unknown);
/* False only if no mount holds it: lpi_held_may(). Any thread. */
bool lpi_opens_may_hold(const struct lpi_opens *opens, struct lp_ino ino);

/* Open or held. */
bool lpi_opens_is_needed(const struct lpi_opens *opens, struct lp_ino ino);
/* The inode has lost its last name. It is to be removed at once if it is neither open nor held.
 * Without memory for this it stays as it is until the next start. An orphan stays one. */
void lpi_opens_orphan(struct lpi_opens *opens, struct lp_ino ino);
bool lpi_opens_is_orphan(const struct lpi_opens *opens, struct lp_ino ino);

/* An orphan that never had a name, and may be given one, once (adopt). It is open, unless the mount
 * that asked for it has gone meanwhile. */
void lpi_opens_orphan_unnamed(struct lpi_opens *opens, struct lp_ino ino);
bool lpi_opens_is_unnamed(const struct lpi_opens *opens, struct lp_ino ino);
void lpi_opens_adopt(struct lpi_opens *opens, struct lp_ino ino);

/* Takes the first orphan that is neither open nor held, or nr 0. It stays an orphan until it was
 * removed, or cannot be removed before the next start: then the caller forgets it. */
struct lp_ino lpi_opens_take_dead(struct lpi_opens *opens);
void lpi_opens_forget_dead(struct lpi_opens *opens, struct lp_ino ino);

uint32_t lpi_opens_inodes(const struct lpi_opens *opens);
uint32_t lpi_opens_orphans(const struct lpi_opens *opens);
/* The orphans that a mount holds and that are not open. */
uint32_t lpi_opens_held_orphans(const struct lpi_opens *opens);

/* Key and value of a `U` record. */
void lpi_unfinished_fill(struct lp_ino ino, enum lp_unfinished_kind kind, int64_t now_ns,
			 uint8_t ret_key[1 + 8], uint8_t ret_value[LP_UNFINISHED_VALUE_SIZE]);

#endif
