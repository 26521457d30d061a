/* SPDX-License-Identifier: Apache-2.0 */
/* Each kind of act has a function that says whether this outcome is possible in the state, and if
 * so makes the next one. An act of unknown outcome is only asked what it leaves if it succeeds:
 * that it fails, or never happens, is the same as if it had not been there. */
#include "tests/linear/model.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"

/* Of all inodes and all that copies have taken. */
#define WORDS_MAX                                                                                  \
	(LPI_NAMES + 3 * LPI_CLIENTS + 4 +                                                         \
	 (LPI_INODES * sizeof(struct lpi_group_inode) +                                            \
	  (LPI_CLIENTS + 1) * sizeof(struct lpi_content)) /                                        \
		 sizeof(uint64_t))

/* --- What acts are made of -------------------------------------------------------------------- */

static int new_inode(struct lpi_group_state *state)
{
	for (int i = 0; i < (int)LPI_INODES; i++) {
		if (state->inodes[i].is_used)
			continue;
		state->inodes[i] = (struct lpi_group_inode){.is_used = 1, .version_min = 1};
		return i;
	}
	/* There is one more than there are names and handles. */
	LP_UNREACHABLE();
}

/* What nothing leads to is gone. */
static void sweep(struct lpi_group_state *state)
{
	bool is_used[LPI_INODES] = {false};
	for (unsigned i = 0; i < LPI_NAMES; i++) {
		if (state->names[i] >= 0)
			is_used[state->names[i]] = true;
	}
	for (unsigned i = 0; i <= LPI_CLIENTS; i++) {
		if (state->handles[i] >= 0)
			is_used[state->handles[i]] = true;
		if (state->found[i] >= 0)
			is_used[state->found[i]] = true;
	}
	for (unsigned i = 0; i < LPI_INODES; i++) {
		if (!is_used[i] && state->inodes[i].is_used)
			state->inodes[i] = (struct lpi_group_inode){0};
	}
}

static struct lpi_group_inode *inode_at(struct lpi_group_state *state, int idx)
{
	return idx < 0 ? NULL : &state->inodes[idx];
}

static struct lpi_group_inode *named(struct lpi_group_state *state, unsigned name)
{
	return inode_at(state, state->names[name]);
}

static int idx_of(const struct lpi_group_state *state, const struct lpi_act *act)
{
	if (act->is_found)
		return state->found[act->client];
	return act->flags & LPI_BY_HANDLE ? state->handles[act->client] : state->names[act->name];
}

static bool has_succeeded(const struct lpi_act *act)
{
	return (act->flags & LPI_UNKNOWN) || act->status == 0;
}

/* It has, or it has failed in the one way in which it can. */
static bool fails_by(const struct lpi_act *act, int err)
{
	return !(act->flags & LPI_UNKNOWN) && act->status == err;
}

/* The version that somebody was told is the one it has. */
static bool agrees(struct lpi_group_inode *inode, uint64_t version)
{
	if (version == 0)
		return true;
	if (inode->version != 0)
		return inode->version == version;
	if (version < inode->version_min)
		return false;
	inode->version = version;
	inode->version_min = version;
	return true;
}

/* Something of the inode has changed; version: what the one who did it was told, or 0. */
static bool is_new_version(struct lpi_group_inode *inode, uint64_t version)
{
	inode->version = 0;
	inode->version_min++;
	return agrees(inode, version);
}

/* Something has changed that may have changed the version. */
static void is_touched(struct lpi_group_inode *inode)
{
	inode->version = 0;
}

static void take_name(struct lpi_group_state *state, unsigned name)
{
	struct lpi_group_inode *inode = named(state, name);
	if (inode != NULL) {
		inode->nlink--;
		is_touched(inode);
	}
	state->names[name] = -1;
}

static void give_name(struct lpi_group_state *state, unsigned name, int idx)
{
	take_name(state, name);
	state->names[name] = (int16_t)idx;
	state->inodes[idx].nlink++;
	is_touched(&state->inodes[idx]);
}

/* Before the content changes: what was there may come back, if this is not durable. */
static bool keep_past(struct lpi_group_state *state, const struct lpi_act *act,
		      const struct lpi_group_inode *inode)
{
	if (!state->may_lose)
		return true;
	if ((act->flags & LPI_DURABLE) && !(act->flags & LPI_UNKNOWN)) {
		state->past_cnt = 0;
		return true;
	}
	if (state->past_cnt == LPI_PAST)
		return false;
	state->past[state->past_cnt++] = inode->content;
	return true;
}

/* --- Looks ------------------------------------------------------------------------------------ */

static bool looks(struct lpi_group_state *state, const struct lpi_act *act)
{
	struct lpi_group_inode *inode = inode_at(state, idx_of(state, act));
	if (inode == NULL)
		return fails_by(act, -ENOENT) && !(act->flags & LPI_BY_HANDLE) && !act->is_found;
	const struct lpi_content *content = &inode->content;
	if (act->kind == LPI_XATTR_GET) {
		if (!(fails_by(act, -ENODATA) ? content->xattr == 0
					      : act->status == 0 && act->value == content->xattr))
			return false;
	} else if (act->status != 0) {
		return false;
	} else if (act->kind == LPI_STAT) {
		if (act->got != content->cell_cnt ||
		    (act->nlink != 0 && act->nlink != inode->nlink))
			return false;
	} else {
		unsigned first = LP_MIN(act->first, content->cell_cnt);
		unsigned got = LP_MIN(act->count, content->cell_cnt - first);
		if (act->got != got ||
		    memcmp(act->cells, content->cells + first, got * sizeof(uint64_t)) != 0)
			return false;
	}
	if (state->may_lose && (act->flags & LPI_DURABLE))
		state->past_cnt = 0;
	return agrees(inode, act->version);
}

/* --- Names ------------------------------------------------------------------------------------ */

/* Whether the condition on a name lets the act through: 1 or 0, or -1 if its outcome is not
 * possible here. */
static int passes(struct lpi_group_state *state, const struct lpi_act *act)
{
	struct lpi_group_inode *inode = named(state, act->name);
	switch ((enum lpi_act_if)act->condition) {
	case LPI_IF_ANY:
		break;
	case LPI_IF_ABSENT:
		if (inode != NULL)
			return fails_by(act, -EEXIST) ? 0 : -1;
		break;
	case LPI_IF_EXISTS:
		if (inode == NULL)
			return fails_by(act, -ENOENT) ? 0 : -1;
		break;
	case LPI_IF_VERSION:
		if (inode == NULL)
			return fails_by(act, -ECANCELED) || fails_by(act, -ENOENT) ? 0 : -1;
		if (fails_by(act, -ECANCELED))
			return inode->version == act->if_version ? -1 : 0;
		if (!agrees(inode, act->if_version))
			return -1;
		break;
	}
	return has_succeeded(act) ? 1 : -1;
}

static bool puts_object(struct lpi_group_state *state, const struct lpi_act *act)
{
	int pass = passes(state, act);
	if (pass <= 0)
		return pass == 0;
	const struct lpi_group_inode *old = named(state, act->name);
	uint64_t above = old == NULL ? 0 : old->version_min;
	int idx = new_inode(state);
	struct lpi_group_inode *inode = &state->inodes[idx];
	inode->version_min = above + 1; /* rule W3: also than what it replaces */
	inode->content.cell_cnt = act->count;
	for (unsigned i = 0; i < act->count; i++)
		inode->content.cells[i] = lpi_act_cell(act, i);
	give_name(state, act->name, idx);
	return agrees(inode, act->version);
}

static bool removes(struct lpi_group_state *state, const struct lpi_act *act)
{
	if (named(state, act->name) == NULL)
		return fails_by(act, -ENOENT);
	take_name(state, act->name);
	return has_succeeded(act);
}

static bool renames(struct lpi_group_state *state, const struct lpi_act *act)
{
	int from = state->names[act->name];
	int to = state->names[act->to_name];
	if (from < 0)
		return fails_by(act, -ENOENT) ||
		       (act->condition == LPI_IF_ABSENT && to >= 0 && fails_by(act, -EEXIST));
	if (act->condition == LPI_IF_ABSENT && to >= 0)
		return fails_by(act, -EEXIST);
	if (!has_succeeded(act))
		return false;
	/* Two names of one inode: POSIX wants nothing to happen. */
	if (from == to)
		return true;
	give_name(state, act->to_name, from);
	take_name(state, act->name);
	return true;
}

static bool exchanges(struct lpi_group_state *state, const struct lpi_act *act)
{
	int from = state->names[act->name];
	int to = state->names[act->to_name];
	if (from < 0 || to < 0)
		return fails_by(act, -ENOENT);
	state->names[act->name] = (int16_t)to;
	state->names[act->to_name] = (int16_t)from;
	is_touched(&state->inodes[from]);
	is_touched(&state->inodes[to]);
	return has_succeeded(act);
}

static bool links(struct lpi_group_state *state, const struct lpi_act *act)
{
	int from = idx_of(state, act);
	bool is_gone = from < 0 || state->inodes[from].nlink == 0;
	bool is_taken = state->names[act->to_name] >= 0;
	if (from < 0 && (act->flags & LPI_BY_HANDLE))
		return false;
	if (is_gone || is_taken)
		return (is_gone && fails_by(act, -ENOENT)) || (is_taken && fails_by(act, -EEXIST));
	give_name(state, act->to_name, from);
	return has_succeeded(act);
}

/* A copy is of what was there at one moment, and is put where it goes at a later one. */
static bool takes(struct lpi_group_state *state, const struct lpi_act *act)
{
	const struct lpi_group_inode *from = inode_at(state, idx_of(state, act));
	if (from == NULL)
		return false;
	state->taken[act->client] = from->content;
	state->has_taken[act->client] = 1;
	return true;
}

static bool copies(struct lpi_group_state *state, const struct lpi_act *act)
{
	if (fails_by(act, -ENOENT))
		return named(state, act->name) == NULL;
	if (!has_succeeded(act) || !state->has_taken[act->client])
		return false;
	int idx = new_inode(state);
	state->inodes[idx].content = state->taken[act->client];
	state->taken[act->client] = (struct lpi_content){.cell_cnt = 0};
	state->has_taken[act->client] = 0;
	give_name(state, act->to_name, idx);
	return agrees(&state->inodes[idx], act->version);
}

static bool finds(struct lpi_group_state *state, const struct lpi_act *act)
{
	state->found[act->client] = state->names[act->name];
	return state->names[act->name] >= 0;
}

static bool opens(struct lpi_group_state *state, const struct lpi_act *act)
{
	int idx = state->names[act->name];
	bool is_new = act->kind == LPI_CREATE && idx < 0;
	if (act->kind == LPI_OPEN && idx < 0)
		return fails_by(act, -ENOENT);
	if (act->kind == LPI_CREATE && idx >= 0 && act->condition == LPI_IF_ABSENT)
		return fails_by(act, -EEXIST);
	if (!has_succeeded(act))
		return false;
	if (is_new) {
		idx = new_inode(state);
		give_name(state, act->name, idx);
	}
	state->handles[act->client] = (int16_t)idx;
	return true;
}

/* --- Data ------------------------------------------------------------------------------------- */

static bool alters(struct lpi_content *content, const struct lpi_act *act)
{
	unsigned first = act->kind == LPI_APPEND ? content->cell_cnt : act->first;
	if (act->kind == LPI_XATTR_SET) {
		content->xattr = act->value;
		return true;
	}
	if (act->kind == LPI_TRUNCATE) {
		/* What lies behind the end is 0, and so is what is grown. */
		for (unsigned i = act->count; i < LPI_CELLS; i++)
			content->cells[i] = 0;
		content->cell_cnt = act->count;
		return true;
	}
	if (first + act->count > LPI_CELLS || ((act->flags & LPI_TOLD) && act->first != first))
		return false;
	for (unsigned i = 0; i < act->count; i++)
		content->cells[first + i] = lpi_act_cell(act, i);
	content->cell_cnt = LP_MAX(content->cell_cnt, first + act->count);
	return true;
}

static bool changes(struct lpi_group_state *state, const struct lpi_act *act)
{
	struct lpi_group_inode *inode = inode_at(state, idx_of(state, act));
	if (inode == NULL)
		return fails_by(act, -ENOENT) && !(act->flags & LPI_BY_HANDLE) && !act->is_found;
	return has_succeeded(act) && keep_past(state, act, inode) && alters(&inode->content, act) &&
	       is_new_version(inode, act->version);
}

/* --- All -------------------------------------------------------------------------------------- */

static enum lpi_step starts(struct lpi_group_state *state, const struct lpi_act *act,
			    unsigned choice)
{
	if (choice > state->past_cnt)
		return LPI_STEP_END;
	for (unsigned i = 0; i <= LPI_CLIENTS; i++)
		state->handles[i] = state->found[i] = -1;
	memset(state->has_taken, 0, sizeof(state->has_taken));
	memset(state->taken, 0, sizeof(state->taken));
	if (choice > 0) {
		state->inodes[state->names[0]].content = state->past[choice - 1];
		/* Numbers that were given to what is lost may be given again. */
		state->inodes[state->names[0]].version_min = 1;
		is_touched(&state->inodes[state->names[0]]);
	}
	state->past_cnt = 0;
	state->may_lose |= (act->flags & LPI_LOSSY) != 0;
	return LPI_STEP_YES;
}

static bool happens(struct lpi_group_state *state, const struct lpi_act *act)
{
	switch ((enum lpi_act_kind)act->kind) {
	case LPI_PUT:
		return puts_object(state, act);
	case LPI_READ:
	case LPI_STAT:
	case LPI_XATTR_GET:
		return looks(state, act);
	case LPI_REMOVE:
		return removes(state, act);
	case LPI_RENAME:
		return renames(state, act);
	case LPI_EXCHANGE:
		return exchanges(state, act);
	case LPI_LINK:
		return links(state, act);
	case LPI_TAKE:
		return takes(state, act);
	case LPI_FIND:
		return finds(state, act);
	case LPI_COPY:
		return copies(state, act);
	case LPI_WRITE:
	case LPI_APPEND:
	case LPI_TRUNCATE:
	case LPI_XATTR_SET:
		return changes(state, act);
	case LPI_OPEN:
	case LPI_CREATE:
		return opens(state, act);
	case LPI_CLOSE:
		state->handles[act->client] = -1;
		return true;
	case LPI_SYNC:
		if (act->status == 0)
			state->past_cnt = 0;
		return act->status == 0;
	case LPI_START:
	case LPI_KINDS:
		break;
	}
	LP_UNREACHABLE();
}

void lpi_state_init(struct lpi_group_state *state)
{
	*state = (struct lpi_group_state){0};
	for (unsigned i = 0; i < LPI_NAMES; i++)
		state->names[i] = -1;
	for (unsigned i = 0; i <= LPI_CLIENTS; i++)
		state->handles[i] = state->found[i] = -1;
}

enum lpi_step lpi_state_step(const struct lpi_group_state *state, const struct lpi_act *act,
			     unsigned choice, struct lpi_group_state *ret_next)
{
	*ret_next = *state;
	enum lpi_step step = LPI_STEP_END;
	if (act->kind == LPI_START)
		step = starts(ret_next, act, choice);
	else if (choice == 0)
		step = happens(ret_next, act) ? LPI_STEP_YES : LPI_STEP_NO;
	if (act->is_found)
		ret_next->found[act->client] = -1;
	if (step == LPI_STEP_YES)
		sweep(ret_next);
	return step;
}

/* --- To compare and show ---------------------------------------------------------------------- */

/* Inodes in the order in which names and handles lead to them: which place one has is no part of
 * the state. */
struct lp_hash128 lpi_state_hash(const struct lpi_group_state *state)
{
	uint64_t words[WORDS_MAX];
	int16_t order[LPI_INODES];
	size_t cnt = 0;
	uint64_t seen = 0;
	memset(order, -1, sizeof(order));
	int16_t leads[LPI_NAMES + 2 * (LPI_CLIENTS + 1)];
	memcpy(leads, state->names, sizeof(state->names));
	memcpy(leads + LPI_NAMES, state->handles, sizeof(state->handles));
	memcpy(leads + LPI_NAMES + LPI_CLIENTS + 1, state->found, sizeof(state->found));
	for (size_t i = 0; i < LP_ARRAY_SIZE(leads); i++) {
		int idx = leads[i];
		bool is_new = idx >= 0 && order[idx] < 0;
		if (is_new)
			order[idx] = (int16_t)seen++;
		words[cnt++] = idx < 0 ? UINT64_MAX : (uint64_t)order[idx];
		if (is_new) {
			memcpy(words + cnt, &state->inodes[idx], sizeof(struct lpi_group_inode));
			cnt += sizeof(struct lpi_group_inode) / sizeof(uint64_t);
		}
	}
	for (unsigned i = 0; i <= LPI_CLIENTS; i++) {
		if (!state->has_taken[i])
			continue;
		words[cnt++] = i;
		memcpy(words + cnt, &state->taken[i], sizeof(struct lpi_content));
		cnt += sizeof(struct lpi_content) / sizeof(uint64_t);
	}
	words[cnt++] = state->may_lose;
	struct lp_hash128 hash = lp_hash_u128(words, cnt * sizeof(uint64_t), state->past_cnt);
	if (state->past_cnt > 0) {
		struct lp_hash128 past = lp_hash_u128(
			state->past, state->past_cnt * sizeof(state->past[0]), hash.low);
		hash.low ^= past.low;
		hash.high ^= past.high;
	}
	return hash;
}

static void print_content(const struct lpi_content *content, FILE *file)
{
	for (unsigned i = 0; i < content->cell_cnt; i++)
		(void)fprintf(file, " %" PRIx64, content->cells[i]);
	if (content->cell_cnt == 0)
		(void)fputs(" nothing", file);
	if (content->xattr != 0)
		(void)fprintf(file, ", xattr %" PRIx64, content->xattr);
}

static void print_inode(const struct lpi_group_state *state, int idx, FILE *file)
{
	if (idx < 0) {
		(void)fputs("-\n", file);
		return;
	}
	const struct lpi_group_inode *inode = &state->inodes[idx];
	(void)fprintf(file, "inode %d nlink %u version %" PRIu64 " (%" PRIu64 "+):", idx,
		      inode->nlink, inode->version, inode->version_min);
	print_content(&inode->content, file);
	(void)fputc('\n', file);
}

void lpi_state_print(const struct lpi_group_state *state, FILE *file)
{
	for (unsigned i = 0; i < LPI_NAMES; i++) {
		(void)fprintf(file, "  n%u: ", i);
		print_inode(state, state->names[i], file);
	}
	for (unsigned i = 0; i <= LPI_CLIENTS; i++) {
		if (state->handles[i] < 0)
			continue;
		(void)fprintf(file, "  open by client %u: ", i);
		print_inode(state, state->handles[i], file);
	}
	for (unsigned i = 0; i < state->past_cnt; i++) {
		(void)fputs("  a crash may leave:", file);
		print_content(&state->past[i], file);
		(void)fputc('\n', file);
	}
}
