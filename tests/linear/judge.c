/* SPDX-License-Identifier: Apache-2.0 */
/* The search of Wing and Gong, with Lowe's memory of what was met before.
 *
 * Invocations and returns are a list in the order of time. Any act whose invocation stands before
 * the first return in the list may be the next to happen: it is tried on the state, and if it is
 * possible, both its entries leave the list and the search goes on from its beginning. If none is,
 * the last one that was taken is put back, and the next tried instead. A return whose act has not
 * happened ends the attempts, but for an act of unknown outcome: that is given up there, as one
 * that never happened.
 *
 * Which acts have left the list and in which state that ended is all that matters for what can come
 * of it: both are hashed to 128 bits, and whatever was met before is not tried again. Of the set of
 * acts the hash is the sum of those of its members, so it is kept by one addition. Two that collide
 * would make the judge miss a way, one time in 2^64 or so. */
#include "tests/linear/judge.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/linear/model.h"

#define NONE          UINT32_MAX
#define SHOWN         14u        /* acts before the one that cannot follow */
#define GIVEN_UP      UINT32_MAX /* as a choice: it never happened */
#define SEEN_AT_FIRST 65536u

/* An invocation or a return. Entry 0 is the head of the list; act i has 1 + 2i and 2 + 2i. */
struct entry {
	uint64_t at_ns;
	uint32_t act_idx;
	bool is_return;
	bool is_start; /* of the daemon */
	uint32_t prev;
	uint32_t next;
};

struct taken {
	uint32_t act_idx;
	uint32_t choice;
	struct lpi_group_state before;
};

struct search {
	const struct lpi_act **acts;
	uint64_t *returns_ns; /* when an act had returned, or could not happen any more */
	bool *is_optional;    /* it may have happened */
	struct lpi_act *made; /* the two moments of acts that have them */
	size_t made_cnt;
	size_t cnt;
	struct entry *entries;
	struct taken *stack; /* acts that have happened, in order */
	size_t depth;
	size_t stack_room;
	struct lp_hash128 *seen; /* open addressing; {0, 0}: free */
	size_t seen_cnt;
	size_t seen_room;
	struct lp_hash128 set;
	struct lpi_group_state state;
	uint64_t step_cnt;
	/* The furthest it came. */
	size_t best_depth;
	uint32_t best_shown[SHOWN];
	uint32_t best_shown_cnt;
	uint32_t best_blocked;
	struct lpi_group_state best_state;
};

/* --- Which acts count ------------------------------------------------------------------------- */

/* A look, or a change that says that it changed nothing. */
static bool only_looks(const struct lpi_act *act)
{
	return lpi_act_is_look(act) ||
	       (act->status != 0 && !(act->flags & LPI_UNKNOWN) && act->kind != LPI_START);
}

/* When the daemon was gone that did the acts from here on. */
static uint64_t end_of_life(const struct lpi_acts *acts, size_t from, unsigned group)
{
	for (size_t i = from; i < acts->cnt; i++) {
		if (acts->list[i].kind == LPI_START && acts->list[i].group == group)
			return acts->list[i].invoke_ns;
	}
	return LPI_NEVER;
}

/* From when on something was under way, of what the daemon did from here on, of which nobody knows
 * what became. */
static uint64_t unknown_since(const struct lpi_acts *acts, size_t from, unsigned group)
{
	uint64_t since = LPI_NEVER;
	for (size_t i = from; i < acts->cnt; i++) {
		const struct lpi_act *act = &acts->list[i];
		if (act->group != group)
			continue;
		if (act->kind == LPI_START)
			break;
		if ((act->flags & LPI_UNKNOWN) && !lpi_act_is_look(act))
			since = LP_MIN(since, act->invoke_ns);
	}
	return since;
}

enum reliance {
	NOT_USED,     /* nothing was changed through the handle that this act opened */
	MAYBE_USED,   /* something may have been */
	IS_RELIED_ON, /* and was acknowledged: then what it saw is durable */
};

static enum reliance reliance_on(const struct lpi_acts *acts, size_t idx)
{
	const struct lpi_act *open = &acts->list[idx];
	enum reliance found = NOT_USED;
	for (size_t i = idx + 1; i < acts->cnt; i++) {
		const struct lpi_act *act = &acts->list[i];
		if (act->group != open->group || act->client != open->client)
			continue;
		if (act->kind == LPI_START || act->kind == LPI_OPEN || act->kind == LPI_CREATE)
			break;
		if (!(act->flags & LPI_BY_HANDLE) || only_looks(act) || act->kind == LPI_CLOSE)
			continue;
		if (!(act->flags & LPI_UNKNOWN))
			return IS_RELIED_ON;
		found = MAYBE_USED;
	}
	return found;
}

/* Whether something that is so was under way at some time in the look's life. */
static bool is_beside(const struct lpi_acts *acts, const struct lpi_act *look, size_t life_idx,
		      bool (*is_so)(const struct lpi_act *act, const struct lpi_act *look))
{
	for (size_t i = life_idx; i < acts->cnt; i++) {
		const struct lpi_act *act = &acts->list[i];
		if (act->group != look->group)
			continue;
		if (act->kind == LPI_START)
			break;
		if (act->invoke_ns <= look->return_ns && act->return_ns >= look->invoke_ns &&
		    is_so(act, look))
			return true;
	}
	return false;
}

/* It may make what is at that cell come or go; or be the reason why the kernel does not take the
 * size that it has just asked for: a write through the mount that ends, or a look at a name, whose
 * answer it takes later than it came. */
static bool moves_the_end(const struct lpi_act *act, const struct lpi_act *read)
{
	if ((act->flags & LPI_MOUNT) && (act->kind == LPI_WRITE || act->kind == LPI_OPEN ||
					 act->kind == LPI_CREATE || act->kind == LPI_LINK))
		return true;
	return act->kind == LPI_TRUNCATE || act->kind == LPI_APPEND ||
	       (act->kind == LPI_WRITE && act->first + act->count > read->first);
}

/* A read through the mount that shows zeros or the end, while somebody changes where that is. The
 * kernel asks for the size, then for the data, and fills up what comes short of the size with
 * zeros. Nothing that was under way is so any more in the next life, which begins at an act. */
static bool is_of_two_sizes(const struct lpi_acts *acts, const struct lpi_act *read,
			    size_t life_idx)
{
	if (!(read->flags & LPI_MOUNT) || read->kind != LPI_READ ||
	    (read->got > 0 && read->cells[0] != 0))
		return false;
	return is_beside(acts, read, life_idx, moves_the_end);
}

/* Where a look belongs that the kernel's memory may have answered. */
static enum lpi_view view_of_cached(const struct lpi_act *act)
{
	switch (act->kind) {
	case LPI_READ:
		return LPI_VIEW_CELLS + LP_MIN(act->first, LPI_CELLS - 1);
	case LPI_STAT:
		return LPI_VIEW_SIZES;
	case LPI_XATTR_GET:
		return LPI_VIEW_XATTRS;
	default:
		return LPI_VIEW_NAMES;
	}
}

static bool is_in_view(const struct lpi_act *act, enum lpi_view view)
{
	bool has_opened = act->kind == LPI_OPEN && act->status == 0;
	if (view == LPI_VIEW_SOCKETS)
		return !(act->flags & LPI_CACHED);
	if (act->flags & LPI_SHARP)
		return false;
	if (only_looks(act) && !(act->flags & LPI_MOUNT) && act->kind != LPI_OPEN)
		return false;
	return !(act->flags & LPI_CACHED) || has_opened || view == view_of_cached(act);
}

bool lpi_view_is_needed(const struct lpi_acts *acts, unsigned group, enum lpi_view view)
{
	for (size_t i = 0; view != LPI_VIEW_SOCKETS && i < acts->cnt; i++) {
		const struct lpi_act *act = &acts->list[i];
		if (act->group == group && (act->flags & LPI_CACHED) && view_of_cached(act) == view)
			return true;
	}
	return view == LPI_VIEW_SOCKETS;
}

static bool changes_data(const struct lpi_act *act, const struct lpi_act *look)
{
	(void)look;
	return act->kind == LPI_WRITE || act->kind == LPI_APPEND || act->kind == LPI_TRUNCATE;
}

static bool changes_names(const struct lpi_act *act, const struct lpi_act *look)
{
	(void)look;
	return act->kind == LPI_PUT || act->kind == LPI_REMOVE || act->kind == LPI_RENAME ||
	       act->kind == LPI_EXCHANGE || act->kind == LPI_LINK || act->kind == LPI_COPY;
}

static bool changes_names_natively(const struct lpi_act *act, const struct lpi_act *look)
{
	return !(act->flags & LPI_MOUNT) && changes_names(act, look);
}

/* The kernel finds a name in its memory, or asks the daemon for it, or for a change of it. While a
 * change through a socket is not answered these may differ. */
static bool is_of_two_names(const struct lpi_acts *acts, const struct lpi_act *act,
			    enum lpi_view view, size_t life_idx)
{
	return view != LPI_VIEW_SOCKETS && (act->flags & LPI_CACHED) &&
	       view_of_cached(act) == LPI_VIEW_NAMES &&
	       is_beside(acts, act, life_idx, changes_names_natively);
}

/* Of a cell of several pages the kernel may show an old page beside a new one, while the change is
 * not answered. */
static bool is_torn_beside_change(const struct lpi_acts *acts, const struct lpi_act *read,
				  size_t life_idx)
{
	return (read->flags & LPI_CACHED) && read->kind == LPI_READ && read->got > 0 &&
	       read->cells[0] == LPI_TORN && is_beside(acts, read, life_idx, changes_data);
}

/* As this view has it. Who removes a name is answered when the kernel knows of the lost link, but
 * another one may have used the name before that. So the number of links is not looked at then. */
static void blur(const struct lpi_acts *acts, size_t life_idx, struct lpi_act *act)
{
	if (act->kind == LPI_STAT && is_beside(acts, act, life_idx, changes_names))
		act->nlink = 0;
	act->version = 0;
	act->if_version = 0;
}

struct chosen {
	bool has_lost_handle[LPI_CLIENTS + 1];
	bool may_lose;
	uint64_t unknown_since_ns;
	uint64_t end_ns;
	size_t life_idx; /* of the first act of this life */
};

static void begin_life(const struct lpi_acts *acts, size_t from, unsigned group,
		       struct chosen *chosen)
{
	memset(chosen->has_lost_handle, 0, sizeof(chosen->has_lost_handle));
	chosen->unknown_since_ns = unknown_since(acts, from, group);
	chosen->end_ns = end_of_life(acts, from, group);
	chosen->life_idx = from;
}

/* 0: it does not count; else how. */
static enum reliance counts(const struct lpi_acts *acts, size_t idx, enum lpi_view view,
			    struct chosen *chosen)
{
	const struct lpi_act *act = &acts->list[idx];
	enum reliance how = act->flags & LPI_UNKNOWN ? MAYBE_USED : IS_RELIED_ON;
	if (!is_in_view(act, view) || is_of_two_sizes(acts, act, chosen->life_idx) ||
	    is_torn_beside_change(acts, act, chosen->life_idx) ||
	    is_of_two_names(acts, act, view, chosen->life_idx))
		how = NOT_USED;
	if ((act->flags & LPI_UNKNOWN) &&
	    (lpi_act_is_look(act) || act->kind == LPI_CLOSE || act->kind == LPI_SYNC))
		how = NOT_USED;
	if (how != NOT_USED && (act->flags & LPI_MOUNT) && only_looks(act) && !chosen->may_lose &&
	    act->return_ns >= chosen->unknown_since_ns)
		how = act->kind == LPI_OPEN && act->status == 0 ? reliance_on(acts, idx) : NOT_USED;
	/* What is done by a handle counts only with the act that opened it. */
	if ((act->kind == LPI_OPEN || act->kind == LPI_CREATE) &&
	    (act->status == 0 || (act->flags & LPI_UNKNOWN)))
		chosen->has_lost_handle[act->client] = how == NOT_USED;
	if ((act->flags & LPI_BY_HANDLE) && chosen->has_lost_handle[act->client])
		how = NOT_USED;
	return how;
}

/* An act through a socket that finds an object by its name, and does what it does at a later
 * moment. */
static bool is_by_found(const struct lpi_act *act)
{
	if ((act->flags & (LPI_MOUNT | LPI_BY_HANDLE)) != 0 ||
	    (act->status != 0 && act->status != -ENODATA))
		return false;
	return act->kind == LPI_READ || act->kind == LPI_STAT || act->kind == LPI_WRITE ||
	       act->kind == LPI_APPEND || act->kind == LPI_TRUNCATE || act->kind == LPI_COPY ||
	       act->kind == LPI_XATTR_SET || act->kind == LPI_XATTR_GET ||
	       (act->kind == LPI_LINK && act->status == 0);
}

static void add(struct search *search, const struct lpi_act *act, uint64_t return_ns,
		bool is_optional)
{
	search->is_optional[search->cnt] = is_optional;
	search->returns_ns[search->cnt] = return_ns;
	search->acts[search->cnt++] = act;
}

static void choose(struct search *search, const struct lpi_acts *acts, unsigned group,
		   enum lpi_view view, struct lpi_verdict *verdict)
{
	struct chosen chosen = {.may_lose = false};
	begin_life(acts, 0, group, &chosen);
	for (size_t i = 0; i < acts->cnt; i++) {
		const struct lpi_act *act = &acts->list[i];
		if (act->group != group)
			continue;
		enum reliance how = IS_RELIED_ON;
		if (act->kind == LPI_START) {
			chosen.may_lose |= (act->flags & LPI_LOSSY) != 0;
			begin_life(acts, i + 1, group, &chosen);
		} else {
			how = counts(acts, i, view, &chosen);
		}
		if (how == NOT_USED) {
			verdict->left_out++;
			continue;
		}
		uint64_t return_ns = act->flags & LPI_UNKNOWN ? chosen.end_ns : act->return_ns;
		if (view != LPI_VIEW_SOCKETS) {
			struct lpi_act *blurred = &search->made[search->made_cnt++];
			*blurred = *act;
			blur(acts, chosen.life_idx, blurred);
			act = blurred;
		}
		if (is_by_found(act)) {
			struct lpi_act *made = &search->made[search->made_cnt];
			made[0] = made[1] = *act;
			made[0].kind = LPI_FIND;
			made[1].is_found = 1;
			add(search, &made[0], return_ns, how == MAYBE_USED);
			search->made_cnt += 2;
			if (act->kind == LPI_COPY) {
				made[1].kind = LPI_TAKE;
				add(search, &made[1], return_ns, how == MAYBE_USED);
			} else {
				act = &made[1];
			}
		}
		add(search, act, return_ns, how == MAYBE_USED);
	}
	verdict->act_cnt = search->cnt;
}

/* --- The list --------------------------------------------------------------------------------- */

static int by_time(const void *left, const void *right)
{
	const struct entry *a = left;
	const struct entry *b = right;
	if (a->at_ns != b->at_ns)
		return a->at_ns < b->at_ns ? -1 : 1;
	/* What touches in time may be in either order: invocations come first. But what ends with
	 * a life has happened by then, or never. */
	if (a->is_start != b->is_start)
		return a->is_start ? 1 : -1;
	if (a->is_return != b->is_return)
		return a->is_return ? 1 : -1;
	return a->act_idx < b->act_idx ? -1 : a->act_idx > b->act_idx;
}

static int make_list(struct search *search)
{
	size_t cnt = search->cnt * 2;
	struct entry *sorted = calloc(cnt + 1, sizeof(*sorted));
	if (sorted == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < search->cnt; i++) {
		struct entry *two = sorted + 2 * (size_t)i;
		bool is_start = search->acts[i]->kind == LPI_START;
		two[0] = (struct entry){
			.at_ns = search->acts[i]->invoke_ns, .act_idx = i, .is_start = is_start};
		two[1] = (struct entry){.at_ns = search->returns_ns[i],
					.act_idx = i,
					.is_return = true,
					.is_start = is_start};
	}
	qsort(sorted, cnt, sizeof(*sorted), by_time);
	uint32_t prev = 0;
	for (size_t i = 0; i < cnt; i++) {
		uint32_t place = 1 + 2 * sorted[i].act_idx + sorted[i].is_return;
		search->entries[place] = sorted[i];
		search->entries[place].prev = prev;
		search->entries[prev].next = place;
		prev = place;
	}
	search->entries[prev].next = NONE;
	free(sorted);
	return 0;
}

static void unlink_entry(struct search *search, uint32_t place)
{
	struct entry *entry = &search->entries[place];
	search->entries[entry->prev].next = entry->next;
	if (entry->next != NONE)
		search->entries[entry->next].prev = entry->prev;
}

static void relink_entry(struct search *search, uint32_t place)
{
	struct entry *entry = &search->entries[place];
	search->entries[entry->prev].next = place;
	if (entry->next != NONE)
		search->entries[entry->next].prev = place;
}

/* --- What was met before ---------------------------------------------------------------------- */

/* Any fixed function of the index that spreads well: splitmix64. */
static uint64_t spread(uint64_t value)
{
	value += UINT64_C(0x9e3779b97f4a7c15);
	value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
	return value ^ (value >> 31);
}

static struct lp_hash128 hash_of_act(uint32_t act_idx)
{
	return (struct lp_hash128){spread(2 * (uint64_t)act_idx),
				   spread(2 * (uint64_t)act_idx + 1)};
}

/* True if it was not there. */
static bool put_in(struct lp_hash128 *table, size_t room, struct lp_hash128 key)
{
	size_t at = key.low & (room - 1);
	while (table[at].low != 0 || table[at].high != 0) {
		if (table[at].low == key.low && table[at].high == key.high)
			return false;
		at = (at + 1) & (room - 1);
	}
	table[at] = key;
	return true;
}

static int grow_seen(struct search *search)
{
	size_t room = search->seen_room == 0 ? SEEN_AT_FIRST : search->seen_room * 4;
	struct lp_hash128 *table = calloc(room, sizeof(*table));
	if (table == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < search->seen_room; i++) {
		if (search->seen[i].low != 0 || search->seen[i].high != 0)
			(void)put_in(table, room, search->seen[i]); /* each is there once */
	}
	free(search->seen);
	search->seen = table;
	search->seen_room = room;
	return 0;
}

/* 1: this set of acts has not led to this state before; it has now. */
static int is_new(struct search *search, struct lp_hash128 set, const struct lpi_group_state *state)
{
	if (search->seen_cnt * 2 >= search->seen_room) {
		int err = grow_seen(search);
		if (err < 0)
			return err;
	}
	struct lp_hash128 key = lpi_state_hash(state);
	key.low = spread(key.low ^ set.low) | 1;
	key.high ^= spread(set.high);
	if (!put_in(search->seen, search->seen_room, key))
		return 0;
	search->seen_cnt++;
	return 1;
}

/* --- The search ------------------------------------------------------------------------------- */

static int push(struct search *search, uint32_t act_idx, uint32_t choice)
{
	if (search->depth == search->stack_room) {
		size_t room = search->stack_room == 0 ? 256 : search->stack_room * 2;
		struct taken *stack = realloc(search->stack, room * sizeof(*stack));
		if (stack == NULL)
			return -ENOMEM;
		search->stack = stack;
		search->stack_room = room;
	}
	struct taken *taken = &search->stack[search->depth++];
	taken->act_idx = act_idx;
	taken->choice = choice;
	taken->before = search->state;
	return 0;
}

/* The act happens, and this is what it leaves: 1, or 0 if that was tried before. */
static int take(struct search *search, uint32_t act_idx, uint32_t choice,
		const struct lpi_group_state *next)
{
	struct lp_hash128 own = hash_of_act(act_idx);
	struct lp_hash128 set = {search->set.low + own.low, search->set.high + own.high};
	int r = is_new(search, set, next);
	if (r <= 0)
		return r;
	int err = push(search, act_idx, choice);
	if (err < 0)
		return err;
	search->set = set;
	search->state = *next;
	unlink_entry(search, 1 + 2 * act_idx);
	unlink_entry(search, 2 + 2 * act_idx);
	return 1;
}

static void take_back(struct search *search)
{
	struct taken *taken = &search->stack[--search->depth];
	struct lp_hash128 own = hash_of_act(taken->act_idx);
	search->set.low -= own.low;
	search->set.high -= own.high;
	search->state = taken->before;
	relink_entry(search, 2 + 2 * taken->act_idx);
	relink_entry(search, 1 + 2 * taken->act_idx);
}

/* Tries this act from this choice on: 1, or 0 if none of its outcomes is possible and new. */
static int try_act(struct search *search, uint32_t act_idx, uint32_t choice)
{
	for (;; choice++) {
		struct lpi_group_state next;
		search->step_cnt++;
		enum lpi_step step =
			lpi_state_step(&search->state, search->acts[act_idx], choice, &next);
		if (step == LPI_STEP_END)
			return 0;
		int r = step == LPI_STEP_YES ? take(search, act_idx, choice, &next) : 0;
		if (r != 0)
			return r;
	}
}

static void note_best(struct search *search, uint32_t blocked)
{
	if (search->depth < search->best_depth || (search->depth == 0 && search->best_depth > 0))
		return;
	search->best_depth = search->depth;
	search->best_blocked = blocked;
	search->best_state = search->state;
	search->best_shown_cnt = (uint32_t)LP_MIN(search->depth, (size_t)SHOWN);
	for (uint32_t i = 0; i < search->best_shown_cnt; i++) {
		const struct taken *taken =
			&search->stack[search->depth - search->best_shown_cnt + i];
		search->best_shown[i] = taken->act_idx;
	}
}

/* One act more from this entry of the list on, the first of them from this choice on: 1, or 0. */
static int advance(struct search *search, uint32_t place, uint32_t choice)
{
	while (place != NONE) {
		const struct entry *entry = &search->entries[place];
		uint32_t act_idx = entry->act_idx;
		if (entry->is_return) {
			if (search->is_optional[act_idx])
				return take(search, act_idx, GIVEN_UP, &search->state);
			note_best(search, act_idx);
			return 0;
		}
		int r = try_act(search, act_idx, choice);
		if (r != 0)
			return r;
		choice = 0;
		place = entry->next;
	}
	return 0;
}

/* 1: all acts have happened, or were given up; 0: there is no order; -E2BIG: none was found. */
static int explore(struct search *search)
{
	uint32_t place = search->entries[0].next;
	uint32_t choice = 0;
	while (search->entries[0].next != NONE) {
		if (search->step_cnt > LPI_JUDGE_STEPS_MAX)
			return -E2BIG;
		int r = advance(search, place, choice);
		if (r < 0)
			return r;
		while (r == 0) {
			if (search->depth == 0)
				return 0;
			choice = search->stack[search->depth - 1].choice;
			place = 1 + 2 * search->stack[search->depth - 1].act_idx;
			take_back(search);
			/* To give it up was its last way. */
			if (choice != GIVEN_UP) {
				choice++;
				break;
			}
		}
		if (r > 0) {
			place = search->entries[0].next;
			choice = 0;
		}
	}
	return 1;
}

/* --- What it says ----------------------------------------------------------------------------- */

static void tell(const struct search *search, unsigned group, bool has_given_up, FILE *file)
{
	const struct lpi_act *blocked = search->acts[search->best_blocked];
	uint64_t base_ns = search->acts[0]->invoke_ns;
	(void)fprintf(
		file,
		"g%u: no order of the acts %s: at most %zu of %zu could happen; times in ms\n",
		group, has_given_up ? "was found in time" : "explains what was seen",
		search->best_depth, search->cnt);
	(void)fputs(" the last that happened, in this order:\n", file);
	for (uint32_t i = 0; i < search->best_shown_cnt; i++)
		lpi_act_print(search->acts[search->best_shown[i]], base_ns, file);
	(void)fputs(" then there was:\n", file);
	lpi_state_print(&search->best_state, file);
	(void)fputs(" and this one had to happen next:\n", file);
	lpi_act_print(blocked, base_ns, file);
	(void)fputs(" others under way with it, taken or not:\n", file);
	for (size_t i = 0; i < search->cnt; i++) {
		const struct lpi_act *act = search->acts[i];
		if (act != blocked && act->invoke_ns <= blocked->return_ns &&
		    search->returns_ns[i] >= blocked->invoke_ns)
			lpi_act_print(act, base_ns, file);
	}
}

static void end_search(struct search *search)
{
	free(search->acts);
	free(search->returns_ns);
	free(search->is_optional);
	free(search->made);
	free(search->entries);
	free(search->stack);
	free(search->seen);
}

int lpi_judge(const struct lpi_acts *acts, unsigned group, enum lpi_view view, FILE *file,
	      struct lpi_verdict *ret_verdict)
{
	size_t room = 3 * acts->cnt + 1; /* a copy has three moments, or two and what is blurred */
	struct search search = {
		.acts = calloc(room, sizeof(const struct lpi_act *)),
		.returns_ns = calloc(room, sizeof(uint64_t)),
		.is_optional = calloc(room, sizeof(bool)),
		.made = calloc(room, sizeof(struct lpi_act)),
		.entries = calloc(2 * room, sizeof(struct entry)),
	};
	struct lpi_verdict verdict = {0};
	int r = -ENOMEM;
	if (search.acts == NULL || search.returns_ns == NULL || search.is_optional == NULL ||
	    search.made == NULL || search.entries == NULL)
		goto out;
	choose(&search, acts, group, view, &verdict);
	r = make_list(&search);
	if (r < 0)
		goto out;
	lpi_state_init(&search.state);
	r = explore(&search);
	if (r < 0 && r != -E2BIG)
		goto out;
	verdict.is_good = r == 1;
	verdict.has_given_up = r == -E2BIG;
	verdict.step_cnt = search.step_cnt;
	if (!verdict.is_good && file != NULL)
		tell(&search, group, verdict.has_given_up, file);
	*ret_verdict = verdict;
	r = 0;
out:
	end_search(&search);
	return r;
}
