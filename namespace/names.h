/* SPDX-License-Identifier: Apache-2.0 */
/* What operations on names, in ns_names.c and elsewhere, are made of.
 *
 * Threads: the shard's. Blocking, allocation: none.
 */
#ifndef LP_NAMESPACE_NAMES_H
#define LP_NAMESPACE_NAMES_H

#include "namespace/job.h"

static inline struct lp_bytes lpi_entry_name(const struct lpi_entry *entry)
{
	return (struct lp_bytes){entry->name, entry->name_len};
}

/* Copies the name. -EINVAL, -ENAMETOOLONG. */
int lpi_entry_set(struct lpi_entry *entry, struct lp_ino dir, struct lp_bytes name) LP_MUST_CHECK;
/* Finds the shards of job->entry and, with cnt 2, of job->to; or ends the job: -ESTALE, -ENOTDIR. */
void lpi_names_place(struct lpi_job *job, uint32_t cnt, lpi_step_fn *next);
/* Looks an entry up by asks[idx], and takes what was found: ino.nr 0 if there is none. */
void lpi_entry_ask(struct lpi_job *job, struct lpi_entry *entry, uint32_t idx, bool is_locked);
int lpi_entry_take(struct lpi_job *job, struct lpi_entry *entry, uint32_t idx) LP_MUST_CHECK;

#endif
