/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas of users: what each user of a door holds, and how much more it may take.
 *
 * Threads: the owner's.
 * Blocking: none.
 * Memory: one allocation for each user that joins.
 * Errors: -ENOMEM from joining.
 *
 * `struct lp_who` names a user. Today that is the peer of a unix socket by its number, or all peers
 * of one TCP address. An authenticator may set another name, such as a key's.
 *
 * Of each kind a door has an amount (max). The rules are the same for all kinds:
 *   - A sixteenth is kept for the administration: root and the daemon's own user, by a unix socket.
 *   - A user that holds nothing yet gets the amount that is left.
 *   - A user has at most its share (50 % unless configured) while others are there, and at most
 *     seven eighths while it is alone.
 *   - The last quarter of that is for those of its connections that have nothing yet.
 */
#ifndef LP_NATIVE_QUOTA_H
#define LP_NATIVE_QUOTA_H

#include "base/struct/list.h"

enum lp_who_kind {
	LP_WHO_USER,    /* a user of this machine: id begins with the number, little-endian */
	LP_WHO_ADDRESS, /* an address: IPv6, or IPv4 mapped into it */
};

/* Plain memory. Two are the same if kind and id are. */
struct lp_who {
	enum lp_who_kind kind;
	bool is_admin;
	uint8_t id[16];
};

#define LP_WHO_TEXT_MAX 64u

struct lp_who lp_who_user(uint32_t uid, bool is_admin);
/* sockaddr of IPv4 or IPv6. All addresses of this machine are one user, because a process there can
 * use any of them. */
struct lp_who lp_who_address(const void *sockaddr);
bool lp_who_is_same(const struct lp_who *a, const struct lp_who *b);
/* "user 1000", "TCP from this machine", "TCP from 10.0.0.1": for people. */
void lp_who_format(const struct lp_who *who, char *buf, size_t len);

enum lpi_quota_kind {
	LPI_QUOTA_CONNS,
	LPI_QUOTA_REQUESTS,
	LPI_QUOTA_PIECES, /* of gets, read ahead */
	LPI_QUOTA_OPENS,
	LPI_QUOTA_COMING, /* bytes of data being received */
	LPI_QUOTA_GOING,  /* bytes of data being sent */
	LPI_QUOTA_META,   /* bytes of meta, operations, and answers that are meta */
	LPI_QUOTA_SHARED, /* bytes of memory that clients map */
	LPI_QUOTA_STASH,  /* bytes that were received and cannot be taken yet */
	LPI_QUOTA_KIND_CNT
};

enum lpi_quota_verdict {
	LPI_QUOTA_OK,
	LPI_QUOTA_OWN, /* the user has all of its share */
	LPI_QUOTA_ALL, /* no more is left for such users */
};

struct lpi_quota_user {
	struct lp_list_node node;
	struct lp_who who;
	uint32_t joined_cnt;
	uint64_t used[LPI_QUOTA_KIND_CNT];
	/* The owner's. */
	uint32_t waiting_cnt; /* connections of the user that wait for what its others hold */
	bool is_short;        /* they have waited for LPI_PATIENCE_NS or longer, */
	uint64_t short_ns;    /* noticed then; 0: they have not */
};

LP_LIST_DEFINE(lpi_quota_users, struct lpi_quota_user, node);

struct lpi_quota {
	struct lpi_quota_users users;
	uint32_t user_cnt;
	uint32_t share_percent;
	uint64_t max[LPI_QUOTA_KIND_CNT];
	uint64_t used[LPI_QUOTA_KIND_CNT];
	uint64_t met[LPI_QUOTA_KIND_CNT]; /* how often a limit was met: lpi_quota_note() */
};

void lpi_quota_init(struct lpi_quota *quota, uint32_t share_percent);
/* All users have left. */
void lpi_quota_fini(struct lpi_quota *quota);

/* A connection of this user begins. All connections of a user get the same struct. */
int lpi_quota_join(struct lpi_quota *quota, const struct lp_who *who,
		   struct lpi_quota_user **ret_user) LP_MUST_CHECK;
/* A connection has ended and has given back all that it held. */
void lpi_quota_leave(struct lpi_quota *quota, struct lpi_quota_user *user);

/* Whether the user may take so much more for a connection that has so much already. While nothing
 * of the kind is taken, any amount is granted, so one large message always finds room. */
enum lpi_quota_verdict lpi_quota_ask(const struct lpi_quota *quota,
				     const struct lpi_quota_user *user, enum lpi_quota_kind kind,
				     uint64_t has, uint64_t amount);
/* How much more the user may take at most. */
uint64_t lpi_quota_left(const struct lpi_quota *quota, const struct lpi_quota_user *user,
			enum lpi_quota_kind kind);
void lpi_quota_take(struct lpi_quota *quota, struct lpi_quota_user *user, enum lpi_quota_kind kind,
		    uint64_t amount);
void lpi_quota_give(struct lpi_quota *quota, struct lpi_quota_user *user, enum lpi_quota_kind kind,
		    uint64_t amount);

/* One sentence for a refused client: the limit that was met, whether a user's or of all, and its
 * option. */
void lpi_quota_explain(const struct lpi_quota *quota, const struct lpi_quota_user *user,
		       enum lpi_quota_kind kind, enum lpi_quota_verdict verdict, char *buf,
		       size_t len);

#endif
