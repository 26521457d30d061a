/* SPDX-License-Identifier: Apache-2.0 */
/* Users are few, and a connection keeps a pointer to its own: the list is walked only when a
 * connection comes. A user exists as long as it has a connection. */
#include "native/quota.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/endian.h"

#define KEPT_PART  16u /* one part of so many of each kind is kept for the administration */
#define ALONE_PART 8u  /* one part of so many is left free by a user that is alone */
#define NEW_PART   4u  /* one part of so many is for connections that have nothing yet */

/* --- Users ------------------------------------------------------------------------------------ */

struct lp_who lp_who_user(uint32_t uid, bool is_admin)
{
	struct lp_who who = {.kind = LP_WHO_USER, .is_admin = is_admin};
	lp_put_le32(who.id, uid);
	return who;
}

static struct in6_addr in6_of(const uint8_t *id)
{
	struct in6_addr in6;
	memcpy(&in6, id, sizeof(in6));
	return in6;
}

static bool is_this_machine(const uint8_t *id)
{
	const struct in6_addr in6 = in6_of(id);
	return IN6_IS_ADDR_LOOPBACK(&in6) || (IN6_IS_ADDR_V4MAPPED(&in6) && id[12] == 127);
}

struct lp_who lp_who_address(const void *sockaddr)
{
	struct lp_who who = {.kind = LP_WHO_ADDRESS};
	struct sockaddr_in6 in6 = {.sin6_family = AF_UNSPEC};
	struct sockaddr_in in = {.sin_family = AF_UNSPEC};
	memcpy(&in, sockaddr, sizeof(in));
	if (in.sin_family == AF_INET6) {
		memcpy(&in6, sockaddr, sizeof(in6));
		memcpy(who.id, &in6.sin6_addr, sizeof(who.id));
	} else if (in.sin_family == AF_INET) {
		who.id[10] = 0xff;
		who.id[11] = 0xff;
		memcpy(who.id + 12, &in.sin_addr, 4);
	}
	if (is_this_machine(who.id))
		memcpy(who.id, &in6addr_loopback, sizeof(who.id));
	return who;
}

bool lp_who_is_same(const struct lp_who *a, const struct lp_who *b)
{
	return a->kind == b->kind && memcmp(a->id, b->id, sizeof(a->id)) == 0;
}

void lp_who_format(const struct lp_who *who, char *buf, size_t len)
{
	char text[INET6_ADDRSTRLEN] = "?";
	if (who->kind == LP_WHO_USER) {
		(void)snprintf(buf, len, "user %u", lp_get_le32(who->id));
		return;
	}
	if (is_this_machine(who->id)) {
		(void)snprintf(buf, len, "TCP from this machine");
		return;
	}
	const struct in6_addr in6 = in6_of(who->id);
	if (IN6_IS_ADDR_V4MAPPED(&in6))
		(void)inet_ntop(AF_INET, who->id + 12, text, sizeof(text)); /* fits */
	else
		(void)inet_ntop(AF_INET6, who->id, text, sizeof(text)); /* fits */
	(void)snprintf(buf, len, "TCP from %s", text);
}

/* --- Users --------------------------------------------------------------------------------------
 */

void lpi_quota_init(struct lpi_quota *quota, uint32_t share_percent)
{
	memset(quota, 0, sizeof(*quota));
	lpi_quota_users_init(&quota->users);
	quota->share_percent = share_percent;
}

void lpi_quota_fini(struct lpi_quota *quota)
{
	LP_ASSERT(lpi_quota_users_is_empty(&quota->users) && quota->user_cnt == 0);
	for (int kind = 0; kind < LPI_QUOTA_KIND_CNT; kind++)
		LP_ASSERT(quota->used[kind] == 0);
}

static struct lpi_quota_user *find(const struct lpi_quota *quota, const struct lp_who *who)
{
	struct lpi_quota_user *user = NULL;
	LP_LIST_FOREACH (lpi_quota_users, &quota->users, user) {
		if (lp_who_is_same(&user->who, who))
			return user;
	}
	return NULL;
}

int lpi_quota_join(struct lpi_quota *quota, const struct lp_who *who,
		   struct lpi_quota_user **ret_user)
{
	struct lpi_quota_user *user = find(quota, who);
	if (user == NULL) {
		user = calloc(1, sizeof(*user));
		if (user == NULL)
			return -ENOMEM;
		user->who = *who;
		lpi_quota_users_push_back(&quota->users, user);
		quota->user_cnt++;
	}
	user->joined_cnt++;
	*ret_user = user;
	return 0;
}

void lpi_quota_leave(struct lpi_quota *quota, struct lpi_quota_user *user)
{
	LP_ASSERT(user->joined_cnt > 0);
	if (--user->joined_cnt > 0)
		return;
	for (int kind = 0; kind < LPI_QUOTA_KIND_CNT; kind++)
		LP_ASSERT(user->used[kind] == 0);
	LP_ASSERT(quota->user_cnt > 0);
	quota->user_cnt--;
	lpi_quota_users_remove(user);
	free(user);
}

/* --- How much -----------------------------------------------------------------------------------
 */

static uint64_t room_for(const struct lpi_quota *quota, const struct lpi_quota_user *user,
			 enum lpi_quota_kind kind)
{
	uint64_t max = quota->max[kind];
	return user->who.is_admin ? max : max - (max + KEPT_PART - 1) / KEPT_PART;
}

static bool is_alone(const struct lpi_quota *quota)
{
	return quota->user_cnt <= 1;
}

static uint64_t share_of(const struct lpi_quota *quota, uint64_t room)
{
	if (is_alone(quota))
		return room - room / ALONE_PART;
	/* In an order that does not overflow. */
	return room / 100 * quota->share_percent + room % 100 * quota->share_percent / 100;
}

enum lpi_quota_verdict lpi_quota_ask(const struct lpi_quota *quota,
				     const struct lpi_quota_user *user, enum lpi_quota_kind kind,
				     uint64_t has, uint64_t amount)
{
	uint64_t room = room_for(quota, user, kind);
	uint64_t share = share_of(quota, room);
	if (quota->used[kind] == 0)
		return LPI_QUOTA_OK;
	if (amount > room - LP_MIN(quota->used[kind], room))
		return LPI_QUOTA_ALL;
	if (user->used[kind] == 0)
		return LPI_QUOTA_OK;
	if (has > 0)
		share = is_alone(quota) ? room - room / NEW_PART : share - share / NEW_PART;
	if (amount > share - LP_MIN(user->used[kind], share))
		return LPI_QUOTA_OWN;
	return LPI_QUOTA_OK;
}

uint64_t lpi_quota_left(const struct lpi_quota *quota, const struct lpi_quota_user *user,
			enum lpi_quota_kind kind)
{
	uint64_t room = room_for(quota, user, kind);
	uint64_t share = share_of(quota, room);
	uint64_t left = room - LP_MIN(quota->used[kind], room);
	return LP_MIN(left, share - LP_MIN(user->used[kind], share));
}

void lpi_quota_take(struct lpi_quota *quota, struct lpi_quota_user *user, enum lpi_quota_kind kind,
		    uint64_t amount)
{
	quota->used[kind] += amount;
	user->used[kind] += amount;
}

void lpi_quota_give(struct lpi_quota *quota, struct lpi_quota_user *user, enum lpi_quota_kind kind,
		    uint64_t amount)
{
	LP_ASSERT(user->used[kind] >= amount && quota->used[kind] >= amount);
	quota->used[kind] -= amount;
	user->used[kind] -= amount;
}

/* --- In words -----------------------------------------------------------------------------------
 */

struct words {
	const char *what;
	const char *option; /* "": none has it */
	bool is_bytes;
};

static const struct words words[LPI_QUOTA_KIND_CNT] = {
	[LPI_QUOTA_CONNS] = {"connections", "connections-max, ", false},
	[LPI_QUOTA_REQUESTS] = {"requests", "requests-max, ", false},
	[LPI_QUOTA_PIECES] = {"pieces read ahead", "", false},
	[LPI_QUOTA_OPENS] = {"open objects", "opens-max, ", false},
	[LPI_QUOTA_COMING] = {"KiB of data that comes", "memory, ", true},
	[LPI_QUOTA_GOING] = {"KiB of data that goes", "memory, ", true},
	[LPI_QUOTA_META] = {"KiB for names and lists", "memory, ", true},
	[LPI_QUOTA_SHARED] = {"KiB of shared memory", "memory, ", true},
	[LPI_QUOTA_STASH] = {"KiB of messages that wait", "", true},
};

void lpi_quota_explain(const struct lpi_quota *quota, const struct lpi_quota_user *user,
		       enum lpi_quota_kind kind, enum lpi_quota_verdict verdict, char *buf,
		       size_t len)
{
	char who[LP_WHO_TEXT_MAX];
	const struct words *w = &words[kind];
	unsigned shift = w->is_bytes ? 10 : 0;
	unsigned long long max = quota->max[kind] >> shift;
	lp_who_format(&user->who, who, sizeof(who));
	if (verdict == LPI_QUOTA_OWN)
		(void)snprintf(buf, len,
			       "%s has %llu of this shard's %llu %s, its limit (%suser-share)", who,
			       (unsigned long long)(user->used[kind] >> shift), max, w->what,
			       w->option);
	else
		(void)snprintf(buf, len,
			       "all users together have this shard's %llu %s (%suser-share)", max,
			       w->what, w->option);
}
