/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas of users: what each user of a door holds, and how much more it may take.
 *
 * Threads: the owner's.
 * Blocking: none.
 * Memory: one allocation for each user that joins.
 * Errors: -ENOMEM from joining.
 *
 * A user is what `struct lp_who` names: today the peer of a unix socket by its number, and all
 * peers that come by TCP from one address. An authenticator may set another name, such as a key's.
 *
 * Of each kind a door has an amount (max). The rules are the same for all kinds:
 *   - A sixteenth is kept for the administration: root and the daemon's own user, by a unix socket.
 *   - A user with nothing yet gets what is left.
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
/* sockaddr of IPv4 or IPv6. All addresses of this machine are one: who has one has them all. */
struct lp_who lp_who_address(const void *sockaddr);
bool lp_who_is_same(const struct lp_who *a, const struct lp_who *b);
/* "user 1000", "TCP from this machine", "TCP from 10.0.0.1": for people. */
void lp_who_format(const struct lp_who *who, char *buf, size_t len);

enum lpi_quota_kind {
	LPI_QUOTA_CONNS,
	LPI_QUOTA_REQUESTS,
	LPI_QUOTA_PIECES, /* of gets that are read ahead */
	LPI_QUOTA_OPENS,
	LPI_QUOTA_COMING, /* bytes of data that comes */
	LPI_QUOTA_GOING,  /* bytes of data that goes */
	LPI_QUOTA_META,   /* bytes of meta, operations, and answers that are meta */
	LPI_QUOTA_SHARED, /* bytes of memory that clients map */
	LPI_QUOTA_STASH,  /* bytes that were received and cannot be taken yet */
	LPI_QUOTA_KIND_CNT
};

enum lpi_quota_verdict {
	LPI_QUOTA_OK,
	LPI_QUOTA_OWN, /* the user has all that he may have */
	LPI_QUOTA_ALL, /* all is taken that there is for such users */
};

struct lpi_quota_user {
	struct lp_list_node node;
	struct lp_who who;
	uint32_t joined_cnt;
	uint64_t used[LPI_QUOTA_KIND_CNT];
	/* The owner's. */
	uint32_t waiting_cnt; /* of his connections wait for what his others hold */
	bool is_short;        /* and have done so for a while, since then: */
	uint64_t short_ns;    /* 0: they have not */
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
/* Everybody has left. */
void lpi_quota_fini(struct lpi_quota *quota);

/* A connection of this user comes: the same user for all that are his. */
int lpi_quota_join(struct lpi_quota *quota, const struct lp_who *who,
		   struct lpi_quota_user **ret_user) LP_MUST_CHECK;
/* It has gone, and has given back what it held. */
void lpi_quota_leave(struct lpi_quota *quota, struct lpi_quota_user *user);

/* Whether he may take so much more, for a connection that has so much already. Whoever asks when
 * nothing is taken gets it, however much it is: one large message always finds room. */
enum lpi_quota_verdict lpi_quota_ask(const struct lpi_quota *quota,
				     const struct lpi_quota_user *user, enum lpi_quota_kind kind,
				     uint64_t has, uint64_t amount);
/* How much that is at most. */
uint64_t lpi_quota_left(const struct lpi_quota *quota, const struct lpi_quota_user *user,
			enum lpi_quota_kind kind);
void lpi_quota_take(struct lpi_quota *quota, struct lpi_quota_user *user, enum lpi_quota_kind kind,
		    uint64_t amount);
void lpi_quota_give(struct lpi_quota *quota, struct lpi_quota_user *user, enum lpi_quota_kind kind,
		    uint64_t amount);

/* One sentence for who was refused: which limit of whom was met, and which option it is. */
void lpi_quota_explain(const struct lpi_quota *quota, const struct lpi_quota_user *user,
		       enum lpi_quota_kind kind, enum lpi_quota_verdict verdict, char *buf,
		       size_t len);

#endif
