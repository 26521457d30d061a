/* SPDX-License-Identifier: Apache-2.0 */
#include "namespace/change/dir_kinds.h"

#include "namespace/change/ns_state.h"

static struct lpi_dir_kind *dir_kind_slot(const struct lp_ns *ns, struct lp_ino dir)
{
	uint64_t hash = dir.nr * UINT64_C(0x9e3779b97f4a7c15);
	return &ns->dir_kinds[(hash >> 32) & (LPI_DIR_KINDS - 1)];
}

bool lpi_dir_kind_find(const struct lp_ns *ns, struct lp_ino dir, bool *ret_is_spread)
{
	const struct lpi_dir_kind *slot = dir_kind_slot(ns, dir);
	if (slot->ino.nr != dir.nr)
		return false;
	*ret_is_spread = slot->is_spread;
	return true;
}

void lpi_dir_kind_learn(struct lp_ns *ns, struct lp_ino dir, bool is_spread)
{
	struct lpi_dir_kind *slot = dir_kind_slot(ns, dir);
	if (slot->ino.nr != dir.nr)
		*slot = (struct lpi_dir_kind){.ino = dir, .is_spread = is_spread};
}

bool lpi_dir_is_alive(const struct lp_ns *ns, struct lp_ino dir)
{
	const struct lpi_dir_kind *slot = dir_kind_slot(ns, dir);
	return slot->ino.nr == dir.nr && slot->is_alive;
}

/* Only if the directory has a place: its kind is known then. */
void lpi_dir_alive_learn(struct lp_ns *ns, struct lp_ino dir)
{
	struct lpi_dir_kind *slot = dir_kind_slot(ns, dir);
	if (slot->ino.nr == dir.nr)
		slot->is_alive = true;
}

void lpi_dir_alive_forget(struct lp_ns *ns, struct lp_ino dir)
{
	struct lpi_dir_kind *slot = dir_kind_slot(ns, dir);
	if (slot->ino.nr == dir.nr)
		slot->is_alive = false;
}
