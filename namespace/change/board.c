/* SPDX-License-Identifier: Apache-2.0 */
/* A place has a number that is even while the place is valid. A reader copies the place word by
 * word. The copy is good if the number was even and is the same afterwards.
 *
 * For each place the shard's thread counts the transactions under way that may change its
 * directory, and all changes of it so far. A look at the directory is used only if the directory
 * did not change since the look began.
 *
 * The thread that makes a change writes the place, then reads whether the mount's kernel may know
 * the directory. The mount's thread first notes that its kernel will know it
 * (state/kernel_holds.h), then reads the place. So each has a fence between its write and its read.
 */
#include "namespace/change/board.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "namespace/change/ns_state.h"

#define LOOKS    8u /* under way at a time */
#define VAIN_MAX 8u /* consecutive looks that a change has overtaken */

#define WORDS (sizeof(struct lpi_board_view) / sizeof(uint64_t))

static_assert(sizeof(struct lpi_board_view) % sizeof(uint64_t) == 0, "whole words");

struct place {
	struct lp_ino dir;       /* nr 0: the place is free */
	struct lp_ino asked_for; /* once */
	uint64_t changes;
	uint32_t under_way; /* transactions */
	uint32_t vain;
	bool is_looked_at;
	bool is_wanted; /* again, when nothing is under way */
	bool was_asked; /* by a message, since the last change */
	/* Read by any thread. */
	_Atomic uint64_t seq;
	_Atomic bool is_read; /* since it was written */
	_Atomic uint64_t words[WORDS];
};

struct look {
	struct lpi_board *board;
	struct place *place; /* NULL: idle */
	uint64_t changes;    /* of the place, when it began */
	struct lpi_board_view view;
	struct lpi_call call;
	struct lp_store_op op;
};

struct lpi_board {
	struct lp_ns *ns;
	struct look looks[LOOKS];
	struct place places[LPI_BOARD_PLACES];
};

static struct place *place_of(struct lpi_board *board, struct lp_ino ino)
{
	/* All bits of a number count, those of its shard, too. */
	static_assert(LPI_BOARD_PLACES == 1u << 8, "the upper eight bits");
	return &board->places[ino.nr * UINT64_C(0x9e3779b97f4a7c15) >> 56];
}

/* --- Reading and writing a place -------------------------------------------------------------- */

static bool says_something(const struct place *place)
{
	return atomic_load_explicit(&place->seq, memory_order_relaxed) % 2 == 0;
}

static void wipe(struct place *place)
{
	if (!says_something(place))
		return;
	atomic_fetch_add(&place->seq, 1);
	atomic_thread_fence(memory_order_seq_cst);
}

static void write(struct place *place, const struct lpi_board_view *view)
{
	uint64_t words[WORDS];
	LP_ASSERT(!says_something(place));
	memcpy(words, view, sizeof(words));
	for (uint32_t i = 0; i < WORDS; i++)
		atomic_store_explicit(&place->words[i], words[i], memory_order_relaxed);
	atomic_store_explicit(&place->is_read, false, memory_order_relaxed);
	atomic_fetch_add_explicit(&place->seq, 1, memory_order_release);
}

bool lpi_board_read(struct lpi_board *board, struct lp_ino dir, struct lpi_board_view *ret_view)
{
	struct place *place = place_of(board, dir);
	uint64_t words[WORDS];
	atomic_thread_fence(memory_order_seq_cst);
	uint64_t seq = atomic_load_explicit(&place->seq, memory_order_acquire);
	if (seq % 2 != 0)
		return false;
	for (uint32_t i = 0; i < WORDS; i++)
		words[i] = atomic_load_explicit(&place->words[i], memory_order_relaxed);
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&place->seq, memory_order_relaxed) != seq)
		return false;
	memcpy(ret_view, words, sizeof(words));
	if (ret_view->ino_nr != dir.nr)
		return false;
	if (!atomic_load_explicit(&place->is_read, memory_order_relaxed))
		atomic_store_explicit(&place->is_read, true, memory_order_relaxed);
	return true;
}

/* --- Looks ------------------------------------------------------------------------------------ */

static void look_at_fragment(struct look *look);

static bool is_of_now(const struct look *look)
{
	const struct lp_ns *ns = look->board->ns;
	const struct place *place = look->place;
	return look->changes == place->changes && place->under_way == 0 &&
	       place->dir.nr == look->view.ino_nr && lpi_locks_hard(ns->locks) == 0 &&
	       lp_store_error(ns->options.store) == 0;
}

static void look_if_wanted(struct lpi_board *board, struct place *place);

static void end_look(struct look *look, int result)
{
	struct place *place = look->place;
	struct lp_ns *ns = look->board->ns;
	look->place = NULL;
	place->is_looked_at = false;
	if (result < 0)
		place->is_wanted = false;
	else
		look_if_wanted(look->board, place);
	lpi_ns_left(ns);
}

static void fragment_known(struct lpi_call *call)
{
	struct look *look = LP_CONTAINER_OF(call, struct look, call);
	int r = call->result;
	look->view.fragment = lpi_fragment_view(&look->op);
	if (r >= 0 && is_of_now(look)) {
		look->place->vain = 0;
		look->place->is_wanted = false;
		write(look->place, &look->view);
	}
	end_look(look, r);
}

static void inode_known(struct lpi_call *call)
{
	struct look *look = LP_CONTAINER_OF(call, struct look, call);
	look->view.attrs = look->op.stat.attrs;
	if (call->result < 0)
		end_look(look, call->result);
	else
		look_at_fragment(look);
}

static void ask(struct look *look, void (*done)(struct lpi_call *call))
{
	struct lp_ns *ns = look->board->ns;
	look->op.sees_ordered = true;
	look->call.done = done;
	lpi_call_store(ns, ns->options.shard_idx, &look->call, &look->op, true);
}

static void look_at_fragment(struct look *look)
{
	look->op =
		(struct lp_store_op){.opcode = LP_STORE_DIR, .dir = {.ino = {look->view.ino_nr}}};
	ask(look, fragment_known);
}

static struct look *find_idle(struct lpi_board *board)
{
	for (uint32_t i = 0; i < LOOKS; i++) {
		if (board->looks[i].place == NULL)
			return &board->looks[i];
	}
	return NULL;
}

static void look_if_wanted(struct lpi_board *board, struct place *place)
{
	struct lp_ns *ns = board->ns;
	struct look *look = NULL;
	if (!place->is_wanted || place->is_looked_at || place->under_way > 0 ||
	    says_something(place) || ns->state != LPI_NS_SERVING)
		return;
	look = lpi_locks_hard(ns->locks) == 0 ? find_idle(board) : NULL;
	/* The next request for the directory makes it wanted again. */
	if (look == NULL || ++place->vain > VAIN_MAX) {
		place->is_wanted = false;
		place->vain = 0;
		return;
	}
	ns->under_way++;
	place->is_looked_at = true;
	look->place = place;
	look->changes = place->changes;
	look->view = (struct lpi_board_view){.ino_nr = place->dir.nr};
	if (lp_ino_shard(place->dir) != ns->options.shard_idx) {
		look_at_fragment(look);
		return;
	}
	look->op = (struct lp_store_op){.opcode = LP_STORE_STAT, .stat = {.ino = place->dir}};
	ask(look, inode_known);
}

void lpi_board_want(struct lpi_board *board, struct lp_ino dir)
{
	struct place *place = place_of(board, dir);
	if (place->dir.nr != dir.nr && place->asked_for.nr != dir.nr) {
		place->asked_for = dir;
		return;
	}
	if (place->dir.nr != dir.nr) {
		wipe(place);
		place->dir = dir;
		place->changes++;
	}
	place->is_wanted = true;
	place->was_asked = true;
	look_if_wanted(board, place);
}

/* --- Changes ---------------------------------------------------------------------------------- */

#define BIT(type) (UINT32_C(1) << (type))

/* Guards change nothing, and a directory has no data. */
static bool may_change_dir(const struct lp_change *change)
{
	const uint32_t others = BIT(LP_CHANGE_WRITE) | BIT(LP_CHANGE_TRUNCATE) |
				BIT(LP_CHANGE_PUNCH) | BIT(LP_CHANGE_PREALLOC) |
				BIT(LP_CHANGE_CLONE) | BIT(LP_CHANGE_RECORD);
	static_assert(LP_CHANGE_CNT <= 32, "a bit for each");
	return change->type >= LP_CHANGE_CREATE && (BIT(change->type) & others) == 0;
}

static void begins(struct place *place)
{
	place->under_way++;
	place->changes++;
	if (place->dir.nr == 0 || !says_something(place))
		return;
	place->is_wanted =
		place->was_asked || atomic_load_explicit(&place->is_read, memory_order_relaxed);
	place->was_asked = false;
	wipe(place);
}

void lpi_board_begins(struct lpi_board *board, const struct lp_store_op *op)
{
	if (op->opcode != LP_STORE_TXN)
		return;
	for (uint32_t i = 0; i < op->txn.change_cnt; i++) {
		if (may_change_dir(&op->txn.changes[i]))
			begins(place_of(board, op->txn.changes[i].ino));
	}
}

void lpi_board_ended(struct lpi_board *board, const struct lp_store_op *op)
{
	if (op->opcode != LP_STORE_TXN)
		return;
	for (uint32_t i = 0; i < op->txn.change_cnt; i++) {
		if (!may_change_dir(&op->txn.changes[i]))
			continue;
		struct place *place = place_of(board, op->txn.changes[i].ino);
		LP_ASSERT(place->under_way > 0);
		place->under_way--;
		look_if_wanted(board, place);
	}
}

void lpi_board_doubt(struct lpi_board *board)
{
	for (uint32_t i = 0; i < LPI_BOARD_PLACES; i++) {
		board->places[i].changes++;
		wipe(&board->places[i]);
	}
}

/* --- From birth to death ---------------------------------------------------------------------- */

int lpi_board_new(struct lp_ns *ns, struct lpi_board **ret_board)
{
	struct lpi_board *board = calloc(1, sizeof(*board));
	if (board == NULL)
		return -ENOMEM;
	board->ns = ns;
	for (uint32_t i = 0; i < LOOKS; i++)
		board->looks[i].board = board;
	for (uint32_t i = 0; i < LPI_BOARD_PLACES; i++)
		atomic_init(&board->places[i].seq, 1);
	*ret_board = board;
	return 0;
}

void lpi_board_free(struct lpi_board *board)
{
	free(board);
}
