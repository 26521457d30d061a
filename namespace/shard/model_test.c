/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations on few names, several at a time, from random shards, against a model of the
 * tree. What a group of operations that were under way together gave must be what they give one
 * after the other, in some order; then the tree must be what that order leaves, link counts
 * included (namespace NS1). Single operations are groups of one. */
#include "base/prng.h"
#include "namespace/ops/names_rig_test.h"

#define NODES     20u
#define NAMES     4u
#define GROUP_MAX 4u
#define GROUPS    (LP_ASSERT_SLOW_ON ? 300u : 2500u)
#define NONE      UINT8_MAX

static const char *const names[NAMES] = {"a", "b", "c", "d"};

/* --- The model -------------------------------------------------------------------------------- */

struct node {
	uint64_t ino; /* 0: never used */
	uint8_t type;
	bool is_spread;
	bool is_unnamed; /* and never had a name */
	uint8_t opens;
};

struct model {
	struct node nodes[NODES];
	uint8_t entries[NODES][NAMES];
};

struct step {
	enum lp_ns_opcode opcode;
	uint8_t node; /* whose number is used */
	uint8_t dir;
	uint8_t name;
	uint8_t to_dir;
	uint8_t to_name;
	uint8_t slot; /* of what is made */
	uint8_t type;
	bool is_dir;
	bool is_spread;
	bool open;
	bool or_open;
	bool unnamed;
	uint32_t flags;
};

/* What comes of one, as far as it is compared. */
struct outcome {
	int result;
	uint64_t ino;
	uint32_t nlink; /* of a make: 1 if it was made */
};

static bool is_dir(const struct model *m, uint8_t node)
{
	return m->nodes[node].type == LP_INODE_TYPE_DIR;
}

static uint32_t names_of(const struct model *m, uint8_t node)
{
	uint32_t cnt = node == 0 ? 1 : 0;
	for (uint32_t d = 0; d < NODES; d++) {
		for (uint32_t n = 0; n < NAMES; n++)
			cnt += m->entries[d][n] == node;
	}
	return cnt;
}

static uint32_t nlink_of(const struct model *m, uint8_t node)
{
	uint32_t cnt = names_of(m, node);
	if (!is_dir(m, node) || cnt == 0)
		return cnt;
	if (m->nodes[node].is_spread)
		return 1;
	cnt = 2;
	for (uint32_t n = 0; n < NAMES; n++) {
		uint8_t below = m->entries[node][n];
		cnt += below != NONE && is_dir(m, below);
	}
	return cnt;
}

static bool exists(const struct model *m, uint8_t node)
{
	return m->nodes[node].ino != 0 && (names_of(m, node) > 0 || m->nodes[node].opens > 0);
}

static bool is_empty(const struct model *m, uint8_t node)
{
	for (uint32_t n = 0; n < NAMES; n++) {
		if (m->entries[node][n] != NONE)
			return false;
	}
	return true;
}

static int dir_fault(const struct model *m, uint8_t dir)
{
	return !exists(m, dir) || names_of(m, dir) == 0 ? -ENOENT : 0;
}

static struct outcome failed(int result)
{
	return (struct outcome){.result = result};
}

static struct outcome found(const struct model *m, uint8_t node)
{
	return (struct outcome){.ino = m->nodes[node].ino, .nlink = nlink_of(m, node)};
}

/* real: the number that it got. */
static struct outcome model_make(struct model *m, const struct step *s, uint64_t real)
{
	int r = dir_fault(m, s->dir);
	uint8_t there = s->unnamed ? NONE : m->entries[s->dir][s->name];
	if (r < 0)
		return failed(r);
	if (there != NONE && !s->or_open)
		return failed(-EEXIST);
	if (there != NONE && m->nodes[there].type != LP_INODE_TYPE_FILE)
		return failed(is_dir(m, there) ? -EISDIR : -EEXIST);
	if (there != NONE) {
		m->nodes[there].opens = (uint8_t)(m->nodes[there].opens + s->open);
		return (struct outcome){.ino = m->nodes[there].ino};
	}
	m->nodes[s->slot] = (struct node){.ino = real,
					  .type = s->type,
					  .is_spread = s->is_spread,
					  .is_unnamed = s->unnamed,
					  .opens = s->open || s->unnamed};
	memset(m->entries[s->slot], NONE, NAMES);
	if (!s->unnamed)
		m->entries[s->dir][s->name] = s->slot;
	return (struct outcome){.ino = real, .nlink = 1};
}

static struct outcome model_lookup(const struct model *m, const struct step *s)
{
	uint8_t there = m->entries[s->dir][s->name];
	if (!exists(m, s->dir) || there == NONE)
		return failed(-ENOENT);
	return (struct outcome){.ino = m->nodes[there].ino};
}

static struct outcome model_remove(struct model *m, const struct step *s)
{
	uint8_t there = m->entries[s->dir][s->name];
	if (!exists(m, s->dir) || there == NONE)
		return failed(-ENOENT);
	if (is_dir(m, there) != s->is_dir)
		return failed(s->is_dir ? -ENOTDIR : -EISDIR);
	if (s->is_dir && !is_empty(m, there))
		return failed(-ENOTEMPTY);
	m->entries[s->dir][s->name] = NONE;
	return (struct outcome){.ino = m->nodes[there].ino};
}

static struct outcome model_link(struct model *m, const struct step *s)
{
	if (!exists(m, s->node))
		return failed(-ENOENT);
	if (is_dir(m, s->node))
		return failed(-EPERM);
	if (names_of(m, s->node) == 0 && !m->nodes[s->node].is_unnamed)
		return failed(-ENOENT);
	if (dir_fault(m, s->dir) < 0)
		return failed(-ENOENT);
	if (m->entries[s->dir][s->name] != NONE)
		return failed(-EEXIST);
	m->entries[s->dir][s->name] = s->node;
	m->nodes[s->node].is_unnamed = false;
	return found(m, s->node);
}

/* Whether dir is node, or below it. */
static bool is_below(const struct model *m, uint8_t dir, uint8_t node)
{
	for (uint32_t steps = 0; dir != node; steps++) {
		uint8_t above = NONE;
		assert_true(steps < NODES);
		for (uint32_t d = 0; d < NODES; d++) {
			for (uint32_t n = 0; n < NAMES; n++) {
				if (m->entries[d][n] == dir)
					above = (uint8_t)d;
			}
		}
		if (dir == 0 || above == NONE)
			return false;
		dir = above;
	}
	return true;
}

static int rename_fault(const struct model *m, const struct step *s, uint8_t from, uint8_t to)
{
	bool is_exchange = (s->flags & LP_NS_RENAME_EXCHANGE) != 0;
	if (to != NONE && !is_exchange) {
		if (to == s->dir)
			return -ENOTEMPTY;
		if (is_dir(m, from) != is_dir(m, to))
			return is_dir(m, from) ? -ENOTDIR : -EISDIR;
	}
	if (dir_fault(m, s->to_dir) < 0)
		return -ENOENT;
	if (is_dir(m, from) && is_below(m, s->to_dir, from))
		return -EINVAL;
	if (is_exchange && is_dir(m, to) && is_below(m, s->dir, to))
		return -EINVAL;
	if (to != NONE && !is_exchange && is_dir(m, to) && !is_empty(m, to))
		return -ENOTEMPTY;
	return 0;
}

static struct outcome model_rename(struct model *m, const struct step *s)
{
	uint8_t from = m->entries[s->dir][s->name];
	uint8_t to = m->entries[s->to_dir][s->to_name];
	bool is_exchange = (s->flags & LP_NS_RENAME_EXCHANGE) != 0;
	if (!exists(m, s->dir) || from == NONE)
		return failed(-ENOENT);
	if (to != NONE && (s->flags & LP_NS_RENAME_NOREPLACE) != 0)
		return failed(-EEXIST);
	if (to == NONE && is_exchange)
		return failed(-ENOENT);
	struct outcome done = {.ino = m->nodes[from].ino};
	if (from == to)
		return done;
	int r = rename_fault(m, s, from, to);
	if (r < 0)
		return failed(r);
	m->entries[s->dir][s->name] = is_exchange ? to : NONE;
	m->entries[s->to_dir][s->to_name] = from;
	return done;
}

static struct outcome model_open(struct model *m, const struct step *s)
{
	if (!exists(m, s->node))
		return failed(-ENOENT);
	m->nodes[s->node].opens++;
	return failed(0);
}

static struct outcome model_close(struct model *m, const struct step *s)
{
	if (m->nodes[s->node].opens == 0)
		return failed(-EINVAL);
	m->nodes[s->node].opens--;
	return failed(0);
}

static struct outcome model_do(struct model *m, const struct step *s, uint64_t real)
{
	switch (s->opcode) {
	case LP_NS_MAKE:
		return model_make(m, s, real);
	case LP_NS_LOOKUP:
		return model_lookup(m, s);
	case LP_NS_REMOVE:
		return model_remove(m, s);
	case LP_NS_LINK:
		return model_link(m, s);
	case LP_NS_RENAME:
		return model_rename(m, s);
	case LP_NS_OPEN:
		return model_open(m, s);
	case LP_NS_CLOSE:
		return model_close(m, s);
	case LP_NS_STAT:
		return exists(m, s->node) ? found(m, s->node) : failed(-ENOENT);
	default:
		break;
	}
	fail();
	return failed(0);
}

/* --- The same of the namespace ---------------------------------------------------------------- */

static void fill(const struct model *m, const struct step *s, struct lp_ns_op *op)
{
	struct lp_ino node = {m->nodes[s->node].ino};
	struct lp_ino dir = {m->nodes[s->dir].ino};
	struct lp_bytes name = lpi_t_bytes(names[s->name]);
	op->opcode = s->opcode;
	switch (s->opcode) {
	case LP_NS_MAKE:
		op->make.dir = dir;
		op->make.name = name;
		op->make.type = s->type;
		op->make.spread = s->is_spread;
		op->make.open = s->open;
		op->make.or_open = s->or_open;
		op->make.unnamed = s->unnamed;
		op->make.target = lpi_t_bytes("x");
		break;
	case LP_NS_LOOKUP:
		op->lookup.dir = dir;
		op->lookup.name = name;
		break;
	case LP_NS_REMOVE:
		op->remove.dir = dir;
		op->remove.name = name;
		op->remove.is_dir = s->is_dir;
		break;
	case LP_NS_LINK:
		op->link.ino = node;
		op->link.dir = dir;
		op->link.name = name;
		break;
	case LP_NS_RENAME:
		op->rename.dir = dir;
		op->rename.name = name;
		op->rename.to_dir.nr = m->nodes[s->to_dir].ino;
		op->rename.to_name = lpi_t_bytes(names[s->to_name]);
		op->rename.flags = s->flags;
		break;
	case LP_NS_STAT:
		op->stat.ino = node;
		break;
	default:
		op->open.ino = node;
		op->open.count = 1;
		break;
	}
}

static struct outcome take(const struct lp_ns_op *op)
{
	struct outcome out = {.result = op->result == -ESTALE ? -ENOENT : op->result};
	if (op->result < 0)
		return out;
	if (op->opcode == LP_NS_MAKE)
		out = (struct outcome){.ino = op->make.found.ino.nr, .nlink = op->make.created};
	else if (op->opcode == LP_NS_LOOKUP)
		out.ino = op->lookup.found.ino.nr;
	else if (op->opcode == LP_NS_REMOVE)
		out.ino = op->remove.ino.nr;
	else if (op->opcode == LP_NS_RENAME)
		out.ino = op->rename.moved.nr;
	const struct lp_ns_found *told = op->opcode == LP_NS_STAT   ? &op->stat.found
					 : op->opcode == LP_NS_LINK ? &op->link.found
								    : NULL;
	if (told != NULL) {
		out.ino = told->ino.nr;
		out.nlink = told->attrs.nlink;
	}
	return out;
}

static bool is_same(const struct step *s, const struct outcome *want, const struct outcome *got)
{
	/* One that is being removed since it was closed may be seen still. */
	if (s->opcode == LP_NS_STAT && want->result < 0 && got->result >= 0)
		return got->nlink == 0;
	return want->result == got->result && want->ino == got->ino && want->nlink == got->nlink;
}

/* --- The whole tree --------------------------------------------------------------------------- */

/* All names by readdir, all attributes by stat. */
static bool dir_is_as(struct lpi_t *t, const struct model *m, uint8_t dir)
{
	static uint8_t buf[4096];
	uint32_t cnt = 0;
	uint32_t want = 0;
	struct lp_ns_item item;
	lpi_t_op(t, LP_NS_READDIR);
	t->op->readdir.dir.nr = m->nodes[dir].ino;
	t->op->readdir.buf = buf;
	t->op->readdir.buf_len = sizeof(buf);
	lp_test_ok(lpi_t_do(t));
	for (uint32_t pos = 0; lp_ns_next(t->op, &pos, &item); cnt++) {
		uint8_t node = m->entries[dir][*(const char *)item.name.data - 'a'];
		if (node == NONE || m->nodes[node].ino != item.ino.nr ||
		    m->nodes[node].type != item.type)
			return false;
	}
	for (uint32_t n = 0; n < NAMES; n++)
		want += m->entries[dir][n] != NONE;
	return cnt == want;
}

static bool tree_is_as(struct lpi_t *t, const struct model *m)
{
	for (uint8_t i = 0; i < NODES; i++) {
		if (!exists(m, i))
			continue;
		if (lpi_t_stat(t, (struct lp_ino){m->nodes[i].ino}) < 0)
			return false;
		const struct lp_ns_found said = t->op->stat.found;
		if (said.attrs.nlink != nlink_of(m, i))
			return false;
		if (is_dir(m, i) && !dir_is_as(t, m, i))
			return false;
		/* Rule N3. */
		uint64_t parent = said.attrs.parent.nr;
		for (uint32_t d = 0; d < NODES && is_dir(m, i) && i != 0; d++) {
			for (uint32_t n = 0; n < NAMES; n++) {
				if (m->entries[d][n] == i && m->nodes[d].ino != parent)
					return false;
			}
		}
	}
	return true;
}

/* --- Groups ----------------------------------------------------------------------------------- */

struct run {
	struct lpi_t t;
	struct lp_prng prng;
	struct model model;
	uint8_t next_slot;
	struct step steps[GROUP_MAX];
	struct lpi_ns_hand hands[GROUP_MAX];
	struct outcome got[GROUP_MAX];
	uint32_t cnt;
	uint64_t linked; /* operations that changed something */
};

static uint32_t pick(struct run *run, uint32_t below)
{
	return (uint32_t)lp_prng_below(&run->prng, below);
}

static uint8_t pick_dir(struct run *run)
{
	for (uint32_t i = 0; i < 30; i++) {
		uint8_t node = (uint8_t)pick(run, NODES);
		bool may_be_gone = i == 0 && pick(run, 4) == 0;
		if (is_dir(&run->model, node) && (may_be_gone || exists(&run->model, node)))
			return node;
	}
	return 0;
}

/* Of any number that was ever given. */
static uint8_t pick_node(struct run *run)
{
	uint8_t node = (uint8_t)pick(run, NODES);
	return run->model.nodes[node].ino == 0 ? 0 : node;
}

/* One that is nobody's; NONE: there is none. */
static uint8_t pick_slot(struct run *run)
{
	for (uint32_t i = 0; i < NODES; i++) {
		run->next_slot = (uint8_t)((run->next_slot + 1) % NODES);
		bool is_used = exists(&run->model, run->next_slot);
		for (uint32_t k = 0; k < run->cnt; k++) {
			const struct step *s = &run->steps[k];
			is_used = is_used || s->slot == run->next_slot ||
				  s->node == run->next_slot || s->dir == run->next_slot ||
				  s->to_dir == run->next_slot;
		}
		if (!is_used)
			return run->next_slot;
	}
	return NONE;
}

static void choose_make(struct run *run, struct step *s)
{
	uint32_t kind = pick(run, 10);
	s->opcode = LP_NS_MAKE;
	s->type = LP_INODE_TYPE_FILE;
	s->slot = pick_slot(run);
	if (s->slot == NONE) {
		s->opcode = LP_NS_LOOKUP;
		return;
	}
	if (kind < 5) {
		s->type = LP_INODE_TYPE_DIR;
		s->is_spread = kind < 2;
	} else if (kind == 5) {
		s->type = LP_INODE_TYPE_SYMLINK;
	} else if (kind == 6) {
		s->unnamed = true;
		s->dir = 0;
	} else {
		s->open = kind == 7;
		s->or_open = pick(run, 2) == 0;
	}
}

static void choose_close(struct run *run, struct step *s)
{
	for (uint32_t i = 0; i < NODES; i++) {
		uint8_t node = (uint8_t)((s->node + i) % NODES);
		uint32_t closes = 0;
		for (uint32_t k = 0; k < run->cnt; k++)
			closes += run->steps[k].opcode == LP_NS_CLOSE && run->steps[k].node == node;
		if (run->model.nodes[node].opens > closes) {
			s->opcode = LP_NS_CLOSE;
			s->node = node;
			return;
		}
	}
	s->opcode = LP_NS_STAT;
}

/* Which of two errors comes first is nobody's business. */
static void choose_link(struct run *run, struct step *s)
{
	s->opcode = LP_NS_LINK;
	if (is_dir(&run->model, s->node))
		s->dir = 0;
}

static struct step choose(struct run *run)
{
	static const uint32_t flags[] = {0, 0, 0, LP_NS_RENAME_NOREPLACE, LP_NS_RENAME_EXCHANGE};
	struct step s = {.dir = pick_dir(run),
			 .to_dir = pick_dir(run),
			 .name = (uint8_t)pick(run, NAMES),
			 .to_name = (uint8_t)pick(run, NAMES),
			 .node = pick_node(run),
			 .slot = NONE,
			 .is_dir = pick(run, 2) == 0,
			 .flags = flags[pick(run, 5)]};
	uint32_t kind = pick(run, 20);
	if (kind < 6)
		choose_make(run, &s);
	else if (kind < 11)
		s.opcode = LP_NS_RENAME;
	else if (kind < 14)
		s.opcode = LP_NS_REMOVE;
	else if (kind < 16)
		choose_link(run, &s);
	else if (kind < 17)
		s.opcode = LP_NS_LOOKUP;
	else if (kind < 18)
		s.opcode = LP_NS_OPEN;
	else if (kind < 19)
		choose_close(run, &s);
	else
		s.opcode = LP_NS_STAT;
	return s;
}

/* One after the other in this order: false if that does not give what they gave. */
static bool try_order(const struct run *run, const uint8_t *order, struct model *m)
{
	*m = run->model;
	for (uint32_t i = 0; i < run->cnt; i++) {
		uint8_t k = order[i];
		const struct outcome want = model_do(m, &run->steps[k], run->got[k].ino);
		if (!is_same(&run->steps[k], &want, &run->got[k]))
			return false;
	}
	return true;
}

/* The nr-th of all orders. */
static void order_of(uint32_t nr, uint32_t cnt, uint8_t *ret)
{
	for (uint32_t i = 0; i < cnt; i++) {
		uint32_t at = nr % (i + 1);
		nr /= i + 1;
		memmove(ret + at + 1, ret + at, i - at);
		ret[at] = (uint8_t)i;
	}
}

static void explain(const struct run *run, uint32_t group)
{
	print_error("group %u on %u shards fits no order:\n", group, run->t.rig->shard_cnt);
	for (uint32_t i = 0; i < run->cnt; i++) {
		const struct step *s = &run->steps[i];
		print_error("  op %d node %u dir %u/%s to %u/%s type %u flags %u is_dir %d open "
			    "%d or_open %d: %d, ino %llx, nlink %u\n",
			    s->opcode, s->node, s->dir, names[s->name], s->to_dir,
			    names[s->to_name], s->type, s->flags, s->is_dir, s->open, s->or_open,
			    run->got[i].result, (unsigned long long)run->got[i].ino,
			    run->got[i].nlink);
	}
	for (uint32_t i = 0; i < NODES; i++) {
		const uint8_t *e = run->model.entries[i];
		print_error("  node %u ino %llx type %u spread %d opens %u: %d %d %d %d\n", i,
			    (unsigned long long)run->model.nodes[i].ino, run->model.nodes[i].type,
			    run->model.nodes[i].is_spread, run->model.nodes[i].opens, (int8_t)e[0],
			    (int8_t)e[1], (int8_t)e[2], (int8_t)e[3]);
	}
}

static bool is_same_model(const struct model *a, const struct model *b)
{
	for (uint32_t i = 0; i < NODES; i++) {
		const struct node *x = &a->nodes[i];
		const struct node *y = &b->nodes[i];
		if (x->ino != y->ino || x->type != y->type || x->opens != y->opens ||
		    x->is_spread != y->is_spread || x->is_unnamed != y->is_unnamed)
			return false;
	}
	return memcmp(a->entries, b->entries, sizeof(a->entries)) == 0;
}

/* Takes on what one of the orders leaves that the results allow; with several that differ the tree
 * says which. */
static void judge(struct run *run, uint32_t group, bool look)
{
	static const uint32_t factorial[GROUP_MAX + 1] = {1, 1, 2, 6, 24};
	static struct model fits[24];
	uint32_t fits_cnt = 0;
	uint8_t order[GROUP_MAX] = {0};
	for (uint32_t nr = 0; nr < factorial[run->cnt]; nr++) {
		bool is_new = true;
		order_of(nr, run->cnt, order);
		if (!try_order(run, order, &fits[fits_cnt]))
			continue;
		for (uint32_t i = 0; i < fits_cnt; i++)
			is_new = is_new && !is_same_model(&fits[i], &fits[fits_cnt]);
		fits_cnt += is_new;
	}
	for (uint32_t i = 0; i < fits_cnt; i++) {
		if ((fits_cnt == 1 && !look) || tree_is_as(&run->t, &fits[i])) {
			run->model = fits[i];
			return;
		}
	}
	explain(run, group);
	fail();
}

/* One shard at a time, in any order: what is on its way between two of them takes any time. */
static void turn_one(struct run *run)
{
	const struct lpi_ns_rig *rig = run->t.rig;
	(void)lp_reactor_turn(rig->reactor[pick(run, rig->shard_cnt)], false);
}

static void wait_for(struct run *run, const struct lpi_ns_hand *hand)
{
	for (uint32_t turns = 0; !hand->is_done; turns++) {
		assert_true(turns < LPI_T_TURNS_MAX);
		turn_one(run);
	}
}

static void run_group(struct run *run, uint32_t group)
{
	struct lpi_t *t = &run->t;
	uint32_t cnt = pick(run, 2) == 0 ? 1 : 1 + pick(run, GROUP_MAX);
	for (run->cnt = 0; run->cnt < cnt; run->cnt++)
		run->steps[run->cnt] = choose(run);
	for (uint32_t i = 0; i < cnt; i++) {
		run->hands[i] = (struct lpi_ns_hand){0};
		fill(&run->model, &run->steps[i], &run->hands[i].op);
		lpi_ns_rig_submit(t->rig, pick(run, t->rig->shard_cnt), &run->hands[i]);
		for (uint32_t turns = pick(run, 4); turns > 0 && pick(run, 2) == 0; turns--)
			turn_one(run);
	}
	for (uint32_t i = 0; i < cnt; i++) {
		wait_for(run, &run->hands[i]);
		run->got[i] = take(&run->hands[i].op);
		run->linked += run->got[i].result >= 0;
	}
	judge(run, group, group % 20 == 0);
}

static void run_model(uint32_t shard_cnt, uint64_t seed)
{
	static struct run run;
	memset(&run, 0, sizeof(run));
	lpi_t_begin(&run.t, shard_cnt);
	lp_prng_init(&run.prng, seed);
	memset(run.model.entries, NONE, sizeof(run.model.entries));
	run.model.nodes[0] = (struct node){.ino = 1, .type = LP_INODE_TYPE_DIR};
	for (uint32_t group = 1; group <= GROUPS; group++)
		run_group(&run, group);
	lpi_t_idle(&run.t);
	assert_true(tree_is_as(&run.t, &run.model));
	/* Most of what was chosen can be done: else this tests little. */
	assert_true(run.linked > GROUPS / 2);
	/* What is still open is what the model says, and nothing else is an orphan. */
	uint32_t orphans = 0;
	uint32_t found_cnt = 0;
	for (uint8_t i = 0; i < NODES; i++)
		orphans += exists(&run.model, i) && names_of(&run.model, i) == 0;
	for (uint32_t i = 0; i < shard_cnt; i++)
		found_cnt += lpi_opens_orphans(run.t.rig->ns[i]->opens);
	assert_int_equal(found_cnt, orphans);
	lpi_t_end(&run.t);
}

static void test_one_shard(void **state)
{
	(void)state;
	run_model(1, 1);
}

static void test_two_shards(void **state)
{
	(void)state;
	run_model(2, 2);
	run_model(2, 20);
	/* Found a link into a directory that had been removed, and was open, on whose shard it was
	 * only prepared. */
	run_model(2, 1015);
}

static void test_three_shards(void **state)
{
	(void)state;
	run_model(3, 3);
	run_model(3, 30);
	run_model(3, 31);
	/* Found a rename and a removal that waited for each other (namespace NS2). */
	run_model(3, 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_shard),
		cmocka_unit_test(test_two_shards),
		cmocka_unit_test(test_three_shards),
	};
	return lp_test_main(tests, "namespace/shard/model");
}
