/* SPDX-License-Identifier: Apache-2.0 */
/* Which shard a request is for.
 *
 * Each reply says on which shard its request is answered best. That is kept for the object, and for
 * the directory it is in until two of its entries differ: then its entries are spread. The table
 * has one place for each hash, which the last one takes: forgetting costs a detour, no more.
 */
#include "base/hash.h"
#include "client/connection.h"
#include "client/handle.h"
#include "client/op.h"

uint64_t lpi_route_hash(uint64_t ino, const char *path, size_t len)
{
	return lp_hash_u64(path, len, ino) | 1;
}

static struct lpi_route *route_at(struct lapis *lapis, uint64_t hash)
{
	return &lapis->routes[(hash >> 8) % LPI_ROUTES];
}

static void learn(struct lapis *lapis, uint64_t hash, uint32_t shard, bool mixes)
{
	struct lpi_route *route = route_at(lapis, hash);
	if (hash == 0)
		return;
	if (route->hash != hash)
		*route = (struct lpi_route){.hash = hash, .shard = shard};
	else if (!mixes)
		route->shard = shard;
	else if (route->shard != shard)
		route->shard = LPI_ANY_SHARD;
}

void lpi_route_learn(struct lpi_op *op, uint32_t shard)
{
	struct lapis *lapis = op->lapis;
	lpi_counter_add(op->conn->shard == shard ? &lapis->counters.hits : &lapis->counters.misses);
	if (shard >= lapis->shard_cnt || lapis->shard_cnt == 1)
		return;
	learn(lapis, op->exact_hash, shard, false);
	learn(lapis, op->dir_hash, shard, true);
}

uint32_t lpi_route_find(const struct lpi_op *op)
{
	const struct lpi_route *exact = route_at(op->lapis, op->exact_hash);
	const struct lpi_route *dir = route_at(op->lapis, op->dir_hash);
	if (op->exact_hash != 0 && exact->hash == op->exact_hash)
		return exact->shard;
	if (op->dir_hash != 0 && dir->hash == op->dir_hash)
		return dir->shard;
	return LPI_ANY_SHARD;
}
