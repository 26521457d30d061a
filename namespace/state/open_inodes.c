/* SPDX-License-Identifier: Apache-2.0 */
/* A chained hash table of counts. It starts small and is doubled when it is full, all chains at
 * once. This takes some milliseconds at a hundred thousand open inodes, and happens once. */
#include "namespace/state/open_inodes.h"

#include <errno.h>
#include <stdlib.h>

#include "base/memory/pool.h"
#include "namespace/state/kernel_holds.h"

#define OPENS_FIRST 1024u

struct open_inode {
	struct open_inode *next_in_bucket;
	struct lp_ino ino;
	uint32_t count;  /* how often it is open, not counting */
	uint32_t mounts; /* opens of a mount */
	bool is_orphan;
	bool is_only_held;        /* an orphan that is not open, but held by a mount */
	bool is_unnamed;          /* an orphan that never had a name */
	bool is_dead;             /* an orphan that is neither open nor held: to be removed */
	struct lp_list_node node; /* in dead, until it is taken */
};

LP_LIST_DEFINE(dead_list, struct open_inode, node);

struct lpi_opens {
	struct lpi_held *held;
	struct lp_pool *pool;
	struct open_inode **buckets;
	uint32_t mask;
	uint32_t inodes;
	uint32_t orphans;
	uint32_t held_orphans;
	struct dead_list dead;
	void (*told)(void *arg, enum lpi_orphan_event event);
	void *arg;
};

int lpi_opens_new(void (*told)(void *arg, enum lpi_orphan_event event), void *arg,
		  struct lpi_opens **ret_opens)
{
	struct lpi_opens *opens = calloc(1, sizeof(*opens));
	if (opens == NULL)
		return -ENOMEM;
	opens->told = told;
	opens->arg = arg;
	dead_list_init(&opens->dead);
	opens->mask = OPENS_FIRST - 1;
	opens->buckets = calloc(OPENS_FIRST, sizeof(struct open_inode *));
	const struct lp_pool_config config = {.name = "open inodes",
					      .object_bytes = sizeof(struct open_inode),
					      .align = 8,
					      .limit = OPENS_FIRST,
					      .limit_max = LPI_OPENS_MAX};
	if (opens->buckets == NULL || lp_pool_new(&config, &opens->pool) < 0 ||
	    lpi_held_new(&opens->held) < 0) {
		lpi_opens_free(opens);
		return -ENOMEM;
	}
	*ret_opens = opens;
	return 0;
}

void lpi_opens_free(struct lpi_opens *opens)
{
	if (opens == NULL)
		return;
	for (uint32_t i = 0; opens->pool != NULL && i <= opens->mask; i++) {
		while (opens->buckets[i] != NULL) {
			struct open_inode *open = opens->buckets[i];
			opens->buckets[i] = open->next_in_bucket;
			lp_pool_put(opens->pool, open);
		}
	}
	lp_pool_free(opens->pool);
	lpi_held_free(opens->held);
	free((void *)opens->buckets);
	free(opens);
}

static struct open_inode **find(const struct lpi_opens *opens, struct lp_ino ino)
{
	uint64_t hash = ino.nr * UINT64_C(0x9e3779b97f4a7c15);
	struct open_inode **link = &opens->buckets[(hash >> 32) & opens->mask];
	while (*link != NULL && (*link)->ino.nr != ino.nr)
		link = &(*link)->next_in_bucket;
	return link;
}

/* Room for twice as many. */
static int grow(struct lpi_opens *opens)
{
	uint32_t buckets = 2 * (opens->mask + 1);
	if (buckets > LPI_OPENS_MAX)
		return -ENFILE;
	struct open_inode **bigger = calloc(buckets, sizeof(struct open_inode *));
	if (bigger == NULL || lp_pool_resize(opens->pool, buckets) < 0) {
		free((void *)bigger);
		return -ENOMEM;
	}
	struct open_inode **old = opens->buckets;
	uint32_t old_cnt = opens->mask + 1;
	opens->buckets = bigger;
	opens->mask = buckets - 1;
	for (uint32_t i = 0; i < old_cnt; i++) {
		while (old[i] != NULL) {
			struct open_inode *open = old[i];
			old[i] = open->next_in_bucket;
			struct open_inode **link = find(opens, open->ino);
			open->next_in_bucket = *link;
			*link = open;
		}
	}
	free((void *)old);
	return 0;
}

/* NULL: -ENOMEM, -ENFILE in *ret_err. */
static struct open_inode *insert(struct lpi_opens *opens, struct lp_ino ino, int *ret_err)
{
	struct open_inode *open = lp_pool_get(opens->pool);
	if (open == NULL) {
		*ret_err = grow(opens);
		if (*ret_err < 0)
			return NULL;
		open = lp_pool_get(opens->pool);
		LP_ASSERT(open != NULL);
	}
	struct open_inode **link = find(opens, ino);
	*open = (struct open_inode){.ino = ino};
	*link = open;
	opens->inodes++;
	return open;
}

static void set_only_held(struct lpi_opens *opens, struct open_inode *open, bool is_only_held)
{
	if (open->is_only_held == is_only_held)
		return;
	open->is_only_held = is_only_held;
	if (is_only_held)
		opens->held_orphans++;
	else
		opens->held_orphans--;
}

static bool is_open(const struct open_inode *open)
{
	return open->count > 0 || open->mounts > 0;
}

static int add(struct lpi_opens *opens, struct lp_ino ino, uint32_t count, uint32_t mounts)
{
	int err = 0;
	struct open_inode *open = *find(opens, ino);
	if (open == NULL)
		open = insert(opens, ino, &err);
	if (open == NULL)
		return err;
	if (open->is_dead)
		return -ESTALE;
	if (open->count > UINT32_MAX - count || open->mounts > UINT32_MAX - mounts)
		return -ENFILE;
	open->count += count;
	open->mounts += mounts;
	set_only_held(opens, open, false);
	return 0;
}

int lpi_opens_add(struct lpi_opens *opens, struct lp_ino ino, uint32_t count)
{
	LP_ASSERT(count > 0);
	return add(opens, ino, count, 0);
}

int lpi_opens_add_mounts(struct lpi_opens *opens, struct lp_ino ino)
{
	return add(opens, ino, 0, 1);
}

static void forget(struct lpi_opens *opens, struct lp_ino ino)
{
	struct open_inode **link = find(opens, ino);
	struct open_inode *open = *link;
	LP_ASSERT(open != NULL);
	*link = open->next_in_bucket;
	lp_pool_put(opens->pool, open);
	opens->inodes--;
}

/* An orphan that is neither open nor held is to be removed; one that is only held may be soon. */
static void check_orphan(struct lpi_opens *opens, struct open_inode *open,
			 enum lpi_orphan_event event)
{
	if (!open->is_orphan || open->is_dead || is_open(open))
		return;
	bool is_held = lpi_held_cnt(opens->held, open->ino) > 0;
	bool is_news = is_held && !open->is_only_held;
	set_only_held(opens, open, is_held);
	if (!is_held) {
		open->is_dead = true;
		dead_list_push_back(&opens->dead, open);
		opens->told(opens->arg, event);
	} else if (is_news) {
		opens->told(opens->arg, LPI_ORPHAN_HELD);
	}
}

static void dropped(struct lpi_opens *opens, struct open_inode *open)
{
	if (is_open(open))
		return;
	if (open->is_orphan)
		check_orphan(opens, open, LPI_ORPHAN_CLOSED);
	else
		forget(opens, open->ino);
}

void lpi_opens_drop(struct lpi_opens *opens, struct lp_ino ino, uint32_t count)
{
	struct open_inode *open = *find(opens, ino);
	LP_ASSERT(open != NULL && open->count >= count);
	open->count -= count;
	dropped(opens, open);
}

bool lpi_opens_drop_mounts(struct lpi_opens *opens, struct lp_ino ino, uint32_t count)
{
	struct open_inode *open = *find(opens, ino);
	if (open == NULL || open->mounts < count)
		return false;
	open->mounts -= count;
	dropped(opens, open);
	return true;
}

int lpi_opens_hold(struct lpi_opens *opens, struct lp_ino ino)
{
	const struct open_inode *open = *find(opens, ino);
	if (open != NULL && open->is_dead)
		return -ESTALE;
	lpi_held_add(opens->held, ino);
	return 0;
}

void lpi_opens_let_go(struct lpi_opens *opens, struct lp_ino ino, uint64_t count)
{
	if (!lpi_held_drop(opens->held, ino, count))
		return;
	struct open_inode *open = *find(opens, ino);
	if (open != NULL)
		check_orphan(opens, open, LPI_ORPHAN_FORGOTTEN);
}

void lpi_opens_miss(struct lpi_opens *opens)
{
	lpi_held_miss(opens->held);
}

void lpi_opens_let_go_all(struct lpi_opens *opens)
{
	lpi_held_clear(opens->held);
	for (uint32_t i = 0; i <= opens->mask; i++) {
		struct open_inode *next = NULL;
		for (struct open_inode *open = opens->buckets[i]; open != NULL; open = next) {
			bool was_open = open->mounts > 0;
			next = open->next_in_bucket;
			open->mounts = 0;
			if (was_open)
				dropped(opens, open);
			else
				check_orphan(opens, open, LPI_ORPHAN_FORGOTTEN);
		}
	}
}

uint32_t lpi_opens_some_held(struct lpi_opens *opens, struct lp_ino *ret_inos, uint32_t inos_max)
{
	return lpi_held_some(opens->held, ret_inos, inos_max);
}

void lpi_opens_read_held(const struct lpi_opens *opens, struct lpi_held_stats *ret_stats)
{
	lpi_held_read_stats(opens->held, ret_stats);
}

bool lpi_opens_is_held(const struct lpi_opens *opens, struct lp_ino ino, bool if_unknown)
{
	return if_unknown ? lpi_held_is(opens->held, ino) : lpi_held_cnt(opens->held, ino) > 0;
}

bool lpi_opens_may_hold(const struct lpi_opens *opens, struct lp_ino ino)
{
	return lpi_held_may(opens->held, ino);
}

bool lpi_opens_is_needed(const struct lpi_opens *opens, struct lp_ino ino)
{
	const struct open_inode *open = *find(opens, ino);
	return (open != NULL && is_open(open)) || lpi_held_cnt(opens->held, ino) > 0;
}

uint32_t lpi_opens_cnt(const struct lpi_opens *opens, struct lp_ino ino)
{
	const struct open_inode *open = *find(opens, ino);
	return open == NULL ? 0 : open->count;
}

void lpi_opens_orphan(struct lpi_opens *opens, struct lp_ino ino)
{
	int err = 0;
	struct open_inode *open = *find(opens, ino);
	if (open == NULL)
		open = insert(opens, ino, &err);
	if (open == NULL || open->is_orphan)
		return;
	open->is_orphan = true;
	opens->orphans++;
	check_orphan(opens, open, LPI_ORPHAN_CLOSED);
}

void lpi_opens_orphan_unnamed(struct lpi_opens *opens, struct lp_ino ino)
{
	struct open_inode *open = *find(opens, ino);
	if (open != NULL)
		open->is_unnamed = true;
	lpi_opens_orphan(opens, ino);
}

bool lpi_opens_is_orphan(const struct lpi_opens *opens, struct lp_ino ino)
{
	const struct open_inode *open = *find(opens, ino);
	return open != NULL && open->is_orphan;
}

bool lpi_opens_is_unnamed(const struct lpi_opens *opens, struct lp_ino ino)
{
	const struct open_inode *open = *find(opens, ino);
	return open != NULL && open->is_unnamed && is_open(open);
}

void lpi_opens_adopt(struct lpi_opens *opens, struct lp_ino ino)
{
	struct open_inode *open = *find(opens, ino);
	LP_ASSERT(open != NULL && open->is_orphan && open->is_unnamed);
	LP_ASSERT(is_open(open));
	open->is_orphan = false;
	open->is_unnamed = false;
	opens->orphans--;
}

struct lp_ino lpi_opens_take_dead(struct lpi_opens *opens)
{
	const struct open_inode *open = dead_list_pop_front(&opens->dead);
	return open == NULL ? (struct lp_ino){0} : open->ino;
}

void lpi_opens_forget_dead(struct lpi_opens *opens, struct lp_ino ino)
{
	struct open_inode *open = *find(opens, ino);
	LP_ASSERT(open != NULL && open->is_dead && !dead_list_is_linked(open));
	opens->orphans--;
	forget(opens, ino);
}

uint32_t lpi_opens_inodes(const struct lpi_opens *opens)
{
	return opens->inodes;
}

uint32_t lpi_opens_orphans(const struct lpi_opens *opens)
{
	return opens->orphans;
}

uint32_t lpi_opens_held_orphans(const struct lpi_opens *opens)
{
	return opens->held_orphans;
}

void lpi_unfinished_fill(struct lp_ino ino, enum lp_unfinished_kind kind, int64_t now_ns,
			 uint8_t ret_key[1 + 8], uint8_t ret_value[LP_UNFINISHED_VALUE_SIZE])
{
	struct lp_key key;
	const struct lp_unfinished_value value = {.kind = (uint8_t)kind, .since_ns = now_ns};
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, ino);
	LP_ASSERT(key.len == 1 + sizeof(uint64_t));
	memcpy(ret_key, key.bytes, key.len);
	lp_unfinished_write(&value, &key, ret_value);
}
