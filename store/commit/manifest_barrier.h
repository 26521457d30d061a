/* SPDX-License-Identifier: Apache-2.0 */
/* Manifest barrier: RocksDB's threads wait in it for the log (rule L4).
 *
 * Threads: the reactor's, which says how far the log is. Others ask and wait.
 * Blocking: lp_barrier_wait().
 * Memory: none.
 *
 * They wait before they make anything durable. The log must be durable up to the records that had
 * begun to enter the index when the wait began.
 */
#ifndef LP_STORE_COMMIT_MANIFEST_BARRIER_H
#define LP_STORE_COMMIT_MANIFEST_BARRIER_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

struct lp_barrier {
	_Atomic uint64_t entering_seq;
	_Atomic uint64_t durable_seq;
	_Atomic bool has_failed;
	_Atomic uint32_t waiting_cnt;
	sem_t wake;
};

void lp_barrier_init(struct lp_barrier *barrier, uint64_t entering_seq, uint64_t durable_seq);
/* No thread may be waiting. */
void lp_barrier_fini(struct lp_barrier *barrier);

/* A frame's changes are about to enter the index. */
void lp_barrier_enter(struct lp_barrier *barrier, uint64_t seq);
/* The log is durable up to `seq`. */
void lp_barrier_pass(struct lp_barrier *barrier, uint64_t seq);
/* The log has failed: threads that wait, and any that come later, are told. */
void lp_barrier_fail(struct lp_barrier *barrier);

/* The number to wait for, to be read once. */
uint64_t lp_barrier_entering(const struct lp_barrier *barrier);
/* 0, or -EROFS once the log has failed. */
int lp_barrier_wait(struct lp_barrier *barrier, uint64_t need_seq) LP_MUST_CHECK;

#endif
