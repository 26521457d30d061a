/* SPDX-License-Identifier: Apache-2.0 */
/* Operations under way in a store, for reports of why nothing moves. */
#include "base/struct/sm.h"
#include "store/block/block_parts.h"

/* By the names in both state tables, which agree where both have one. */
static const char *waits_for(const char *state)
{
	static const struct {
		const char *state;
		const char *what;
	} waits[] = {
		{"CLAIM", "an earlier change of the same object or name"},
		{"INDEX", "the index"},
		{"READ", "the device"},
		{"DEVICE", "the device"},
		{"DATA_IO", "the device"},
		{"SPACE", "space"},
		{"ROOM", "room in the log"},
		{"MEMORY", "buffers"},
		{"TRIM", "blocks that are being freed"},
		{"AHEAD", "what is read ahead"},
		{"LOGGED", "the log"},
		{"DURABLE", "the log"},
		{"DONE", "its reader, which has the data"},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(waits); i++) {
		if (strcmp(state, waits[i].state) == 0)
			return waits[i].what;
	}
	return NULL;
}

static uint64_t held_by(const struct lp_store_op *op)
{
	uint64_t bytes = 0;
	if (op->opcode == LP_STORE_READ)
		return op->read.bytes;
	for (uint32_t i = 0; i < op->txn.change_cnt; i++) {
		const struct lp_change *change = &op->txn.changes[i];
		if (change->type != LP_CHANGE_WRITE)
			continue;
		for (uint32_t k = 0; k < change->data.payload.seg_cnt; k++)
			bytes += change->data.payload.segs[k].buf->bytes;
	}
	return bytes;
}

void lpi_begun_show(struct lp_store *store, struct lp_under_way_list *list)
{
	struct lpi_block *block = lpi_block_of(store);
	uint64_t now_ns = lp_reactor_now_ns(block->options.reactor);
	struct lpi_begun *begun = NULL;
	LP_LIST_FOREACH (lpi_begun_list, &block->slots.begun, begun) {
		struct lp_under_way *row = lp_under_way_add(list);
		if (row == NULL)
			continue;
		bool is_read = begun->op->opcode == LP_STORE_READ;
		row->part = "store";
		row->operation = is_read ? "read" : "change";
		row->state = lp_sm_state_name(begun->sm);
		row->waits_for = waits_for(row->state);
		row->age_ns = now_ns - LP_MIN(begun->began_ns, now_ns);
		row->held_bytes = held_by(begun->op);
		row->ino_nr = is_read ? begun->op->read.ino.nr : begun->op->txn.changes[0].ino.nr;
	}
}
