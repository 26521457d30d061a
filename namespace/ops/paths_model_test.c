/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever operations on paths are under way at once, each ends as it should, and what is
 * left is what a map of keys would have. Method: random operations on few keys with common
 * beginnings, in rounds of some at a time. Those of one round are on keys of which none is the
 * other or above it, so that the map knows what comes of each; but they meet in the directories
 * that are made and vanish. In some rounds one shard is short of buffers, or of slots for payloads
 * of other threads, and while operations wait for them what they are to replace or remove is
 * opened: whoever is told that he has it open has it, and all of it (rule N5). After each round
 * lists with random bounds and the lengths of all objects are held against the map, in which
 * directories are those that somebody made, and all that keys are in. */
#include "base/testing/test_long.h"
#include "namespace/ops/paths_rig_test.h"

#define FILES_MAX 64u
#define KEY_MAX   32u
#define OPS_MAX   6u
#define ROUNDS    60u
#define BUFS_MAX  8192u

struct file {
	char key[KEY_MAX];
	bool is_dir; /* that was made, or renamed when it had been */
	uint32_t length;
};

struct map {
	uint32_t cnt;
	struct file files[FILES_MAX];
};

/* One operation, and what should come of it. */
struct trial {
	char key[KEY_MAX];
	char to[KEY_MAX];
	uint32_t length;
	int expected;
	struct lpi_tp_put put; /* its hand is that of any operation */
	/* What was there before, and may be opened meanwhile; 0: nothing. */
	struct lp_ino old;
	uint32_t old_length;
	bool is_opened;
	struct lpi_ns_hand open;
};

/* What one shard lacks, for a while. */
struct shortage {
	bool is_on;
	bool is_of_bufs;
	uint32_t shard_idx;
	struct lp_buf *bufs[BUFS_MAX];
	struct lpi_transfer *transfers[LPI_TRANSFERS];
	uint32_t buf_cnt;
	uint32_t transfer_cnt;
};

struct model {
	struct lpi_t t;
	struct lp_prng prng;
	struct map map;
	uint32_t trial_cnt;
	struct trial trials[OPS_MAX];
	struct shortage shortage;
};

/* --- The map ---------------------------------------------------------------------------------- */

static bool is_below(const char *key, const char *dir)
{
	size_t len = strlen(dir);
	return strncmp(key, dir, len) == 0 && key[len] == '/';
}

static struct file *find(struct map *map, const char *key)
{
	for (uint32_t i = 0; i < map->cnt; i++) {
		if (strcmp(map->files[i].key, key) == 0)
			return &map->files[i];
	}
	return NULL;
}

static uint32_t length_of(struct map *map, const char *key)
{
	const struct file *file = find(map, key);
	assert_non_null(file);
	return file == NULL ? 0 : file->length;
}

static uint32_t below_cnt(const struct map *map, const char *key)
{
	uint32_t cnt = 0;
	for (uint32_t i = 0; i < map->cnt; i++)
		cnt += is_below(map->files[i].key, key) ? 1 : 0;
	return cnt;
}

static bool is_dir(struct map *map, const char *key)
{
	const struct file *file = find(map, key);
	return (file != NULL && file->is_dir) || below_cnt(map, key) > 0;
}

static bool is_file(struct map *map, const char *key)
{
	const struct file *file = find(map, key);
	return file != NULL && !file->is_dir;
}

static bool is_under_file(const struct map *map, const char *key)
{
	for (uint32_t i = 0; i < map->cnt; i++) {
		if (!map->files[i].is_dir && is_below(key, map->files[i].key))
			return true;
	}
	return false;
}

static void set(struct map *map, const char *key, uint32_t length, bool is_a_dir)
{
	struct file *file = find(map, key);
	if (file == NULL) {
		assert_true(map->cnt < FILES_MAX);
		file = &map->files[map->cnt++];
		lpi_tp_copy(file->key, sizeof(file->key), key);
	}
	file->length = length;
	file->is_dir = is_a_dir;
}

static void forget(struct map *map, const char *key)
{
	struct file *file = find(map, key);
	if (file != NULL)
		*file = map->files[--map->cnt];
}

static void rename_all(struct map *map, const char *key, const char *to)
{
	size_t len = strlen(key);
	forget(map, to);
	for (uint32_t i = 0; i < map->cnt; i++) {
		char *at = map->files[i].key;
		char renamed[KEY_MAX];
		if (strcmp(at, key) != 0 && !is_below(at, key))
			continue;
		assert_true(snprintf(renamed, sizeof(renamed), "%s%s", to, at + len) <
			    (int)KEY_MAX);
		lpi_tp_copy(at, sizeof(renamed), renamed);
	}
}

/* --- What should come of an operation --------------------------------------------------------- */

static int expect_put(struct map *map, const char *key, enum lp_ns_if condition)
{
	if (is_under_file(map, key))
		return -ENOTDIR;
	if (is_dir(map, key))
		return -EISDIR;
	bool is_there = find(map, key) != NULL;
	if (condition == LP_NS_IF_ABSENT && is_there)
		return -EEXIST;
	return condition == LP_NS_IF_EXISTS && !is_there ? -ENOENT : 0;
}

static int expect_delete(struct map *map, const char *key, bool or_dir)
{
	if (is_under_file(map, key))
		return -ENOTDIR;
	if (is_dir(map, key) && !or_dir)
		return -EISDIR;
	if (is_dir(map, key))
		return below_cnt(map, key) > 0 ? -ENOTEMPTY : 0;
	return find(map, key) == NULL ? -ENOENT : 0;
}

static int expect_copy(struct map *map, const char *key, const char *to, enum lp_ns_if condition)
{
	if (is_under_file(map, key))
		return -ENOTDIR;
	if (is_dir(map, key))
		return -EISDIR;
	return find(map, key) == NULL ? -ENOENT : expect_put(map, to, condition);
}

static int expect_move(struct map *map, const char *key, const char *to, enum lp_ns_if condition)
{
	if (is_below(to, key))
		return -EINVAL;
	if (is_under_file(map, key))
		return -ENOTDIR;
	if (!is_file(map, key) && !is_dir(map, key))
		return -ENOENT;
	if (is_under_file(map, to))
		return -ENOTDIR;
	bool is_there = is_file(map, to) || is_dir(map, to);
	if (condition == LP_NS_IF_ABSENT && is_there)
		return -EEXIST;
	if (condition == LP_NS_IF_EXISTS && !is_there)
		return -ENOENT;
	if (!is_there || strcmp(key, to) == 0)
		return 0;
	if (is_below(key, to) && strchr(key + strlen(to) + 1, '/') == NULL)
		return -ENOTEMPTY; /* also of a file whose directory this is */
	if (is_file(map, key))
		return is_dir(map, to) ? -EISDIR : 0;
	if (is_file(map, to))
		return -ENOTDIR;
	return below_cnt(map, to) > 0 ? -ENOTEMPTY : 0;
}

/* --- Operations ------------------------------------------------------------------------------- */

static void random_key(struct model *model, char key[KEY_MAX])
{
	static const char *const names[] = {"a", "b", "a-"};
	uint64_t depth = 1 + lp_prng_below(&model->prng, 3);
	size_t len = 0;
	for (uint64_t i = 0; i < depth; i++) {
		if (i > 0)
			key[len++] = '/';
		len += lpi_tp_copy(key + len, KEY_MAX - len, names[lp_prng_below(&model->prng, 3)]);
	}
}

static bool meet(const char *a, const char *b)
{
	return strcmp(a, b) == 0 || is_below(a, b) || is_below(b, a);
}

static bool is_alone(const struct model *model, const struct trial *trial)
{
	for (uint32_t i = 0; i < model->trial_cnt; i++) {
		const struct trial *other = &model->trials[i];
		if (meet(trial->key, other->key) || meet(trial->key, other->to) ||
		    meet(trial->to, other->key) || meet(trial->to, other->to))
			return false;
	}
	return true;
}

static enum lp_ns_if random_condition(struct model *model)
{
	static const enum lp_ns_if conditions[] = {LP_NS_IF_ANY, LP_NS_IF_ANY, LP_NS_IF_ABSENT,
						   LP_NS_IF_EXISTS};
	return conditions[lp_prng_below(&model->prng, 4)];
}

static void plan_put(struct model *model, struct trial *trial, uint32_t home)
{
	trial->length = (uint32_t)lp_prng_below(&model->prng, 5000);
	lpi_tp_put_fill(&trial->put, &model->t, home, trial->key, trial->length);
	struct lp_ns_op *op = &trial->put.hand.op;
	op->put.condition = random_condition(model);
	trial->expected = expect_put(&model->map, trial->key, op->put.condition);
	if (trial->expected == 0)
		set(&model->map, trial->key, trial->length, false);
}

static void plan_delete(struct model *model, struct trial *trial)
{
	struct lp_ns_op *op = &trial->put.hand.op;
	op->opcode = LP_NS_DELETE;
	op->delete.path = lpi_t_bytes(trial->key);
	op->delete.or_dir = lp_prng_chance(&model->prng, 1, 3);
	trial->expected = expect_delete(&model->map, trial->key, op->delete.or_dir);
	if (trial->expected == 0)
		forget(&model->map, trial->key);
}

static void plan_copy(struct model *model, struct trial *trial, enum lp_ns_opcode opcode)
{
	struct map *map = &model->map;
	struct lp_ns_op *op = &trial->put.hand.op;
	op->opcode = opcode;
	op->copy.path = lpi_t_bytes(trial->key);
	op->copy.to_path = lpi_t_bytes(trial->to);
	op->copy.condition = random_condition(model);
	if (opcode == LP_NS_COPY) {
		trial->expected = expect_copy(map, trial->key, trial->to, op->copy.condition);
		if (trial->expected == 0)
			set(map, trial->to, length_of(map, trial->key), false);
		return;
	}
	trial->expected = expect_move(map, trial->key, trial->to, op->copy.condition);
	if (trial->expected == 0 && strcmp(trial->key, trial->to) != 0)
		rename_all(map, trial->key, trial->to);
}

/* In the root, of which the number is known. */
static void plan_make(struct model *model, struct trial *trial)
{
	struct lp_ns_op *op = &trial->put.hand.op;
	trial->key[strcspn(trial->key, "/")] = '\0';
	lpi_tp_copy(trial->to, sizeof(trial->to), trial->key);
	op->opcode = LP_NS_MAKE;
	op->make.dir = LP_INO_ROOT;
	op->make.name = lpi_t_bytes(trial->key);
	op->make.type = LP_INODE_TYPE_DIR;
	op->make.mode = 0755;
	op->make.spread = lp_prng_chance(&model->prng, 1, 2);
	bool is_there = is_dir(&model->map, trial->key) || is_file(&model->map, trial->key);
	trial->expected = is_there ? -EEXIST : 0;
	if (!is_there)
		set(&model->map, trial->key, 0, true);
}

/* What the operation may replace or remove. */
static void note_old(struct model *model, struct trial *trial)
{
	if (!model->shortage.is_on || !is_file(&model->map, trial->to))
		return;
	trial->old = lpi_tp_find(&model->t, trial->to);
	trial->old_length = length_of(&model->map, trial->to);
}

static void plan(struct model *model)
{
	struct trial *trial = &model->trials[model->trial_cnt];
	struct lp_prng *prng = &model->prng;
	uint32_t home = (uint32_t)lp_prng_below(prng, model->t.rig->shard_cnt);
	/* Who brings data has buffers. */
	if (model->shortage.is_on && home == model->shortage.shard_idx)
		home = (home + 1) % model->t.rig->shard_cnt;
	uint64_t kind = lp_prng_below(prng, 12);
	*trial = (struct trial){.expected = 0};
	random_key(model, trial->key);
	lpi_tp_copy(trial->to, sizeof(trial->to), trial->key);
	if (kind >= 8 && kind < 11)
		random_key(model, trial->to);
	if (kind == 11)
		trial->key[strcspn(trial->key, "/")] = '\0';
	if (!is_alone(model, trial) || (kind == 11 && model->trial_cnt > 0))
		return;
	model->trial_cnt++;
	note_old(model, trial);
	if (kind < 4)
		plan_put(model, trial, home);
	else if (kind < 8)
		plan_delete(model, trial);
	else if (kind == 8)
		plan_copy(model, trial, LP_NS_COPY);
	else if (kind < 11)
		plan_copy(model, trial, LP_NS_MOVE);
	else
		plan_make(model, trial);
	lpi_ns_rig_submit(model->t.rig, home, &trial->put.hand);
	for (uint64_t i = lp_prng_below(prng, 10); i > 0; i--)
		(void)lpi_ns_rig_turn(model->t.rig);
}

/* --- Shortages -------------------------------------------------------------------------------- */

static void take_bufs(struct model *model)
{
	static const uint32_t sizes[] = {LP_BUF_LARGE, LP_BUF_MEDIUM, LP_BUF_SMALL};
	struct shortage *shortage = &model->shortage;
	struct lp_bufs *bufs = model->t.rig->bufs[shortage->shard_idx];
	for (size_t i = 0; i < LP_ARRAY_SIZE(sizes); i++) {
		struct lp_buf *buf;
		while ((buf = lp_buf_new(bufs, sizes[i])) != NULL) {
			assert_true(shortage->buf_cnt < BUFS_MAX);
			shortage->bufs[shortage->buf_cnt++] = buf;
		}
	}
}

static void take_transfers(struct model *model)
{
	struct shortage *shortage = &model->shortage;
	struct lp_pool *pool = model->t.rig->ns[shortage->shard_idx]->transfers;
	struct lpi_transfer *transfer;
	while ((transfer = lp_pool_get(pool)) != NULL)
		shortage->transfers[shortage->transfer_cnt++] = transfer;
}

static void shortage_begin(struct model *model)
{
	uint32_t shard_cnt = model->t.rig->shard_cnt;
	struct shortage *shortage = &model->shortage;
	*shortage = (struct shortage){.is_on = false};
	if (shard_cnt == 1 || !lp_prng_chance(&model->prng, 1, 3))
		return;
	shortage->is_on = true;
	shortage->shard_idx = (uint32_t)lp_prng_below(&model->prng, shard_cnt);
	shortage->is_of_bufs = lp_prng_chance(&model->prng, 1, 2);
	if (shortage->is_of_bufs)
		take_bufs(model);
	else
		take_transfers(model);
}

static void shortage_end(struct model *model)
{
	struct shortage *shortage = &model->shortage;
	struct lp_ns *ns = model->t.rig->ns[shortage->shard_idx];
	while (shortage->buf_cnt > 0)
		lp_buf_put(shortage->bufs[--shortage->buf_cnt]);
	while (shortage->transfer_cnt > 0)
		lp_pool_put(ns->transfers, shortage->transfers[--shortage->transfer_cnt]);
}

/* While they wait, or when they are done. */
static void open_old(struct model *model)
{
	struct lp_prng *prng = &model->prng;
	if (!model->shortage.is_on)
		return;
	for (uint32_t i = 0; i < model->trial_cnt; i++) {
		struct trial *trial = &model->trials[i];
		trial->is_opened = trial->old.nr != 0 && lp_prng_chance(prng, 1, 2);
		if (!trial->is_opened)
			continue;
		trial->open = (struct lpi_ns_hand){.op.opcode = LP_NS_OPEN};
		trial->open.op.open.ino = trial->old;
		lpi_ns_rig_submit(model->t.rig,
				  (uint32_t)lp_prng_below(prng, model->t.rig->shard_cnt),
				  &trial->open);
	}
	for (uint64_t i = lp_prng_below(prng, 60); i > 0; i--)
		(void)lpi_ns_rig_turn(model->t.rig);
	shortage_end(model);
}

/* The store in memory keeps data in buffers, too: when the last is gone it is full. Then nothing
 * has happened. */
static bool is_full(struct model *model, const struct trial *trial, int r)
{
	enum lp_ns_opcode opcode = trial->put.hand.op.opcode;
	if (r != -ENOSPC || trial->expected != 0 || !model->shortage.is_of_bufs ||
	    (opcode != LP_NS_PUT && opcode != LP_NS_COPY))
		return false;
	if (trial->old.nr != 0)
		set(&model->map, trial->to, trial->old_length, false);
	else
		forget(&model->map, trial->to);
	return true;
}

static void check_old(struct model *model, struct trial *trial)
{
	if (!trial->is_opened)
		return;
	int r = lpi_ns_rig_wait(model->t.rig, &trial->open);
	assert_true(r == 0 || r == -ESTALE);
	if (r < 0)
		return;
	assert_int_equal(lpi_tp_length_of(&model->t, trial->old), trial->old_length);
	lp_test_ok(lpi_t_close(&model->t, trial->old));
}

/* --- Checks ----------------------------------------------------------------------------------- */

/* The least key or common prefix behind `after` that a list should have. */
static const char *next_of(struct model *model, const char *prefix, const char *after, bool delimit)
{
	static char best[KEY_MAX + 1];
	const struct map *map = &model->map;
	bool has_best = false;
	for (uint32_t i = 0; i < map->cnt; i++) {
		const struct file *file = &map->files[i];
		char key[KEY_MAX + 1];
		(void)snprintf(key, sizeof(key), "%s%s", file->key, file->is_dir ? "/" : "");
		if (strncmp(key, prefix, strlen(prefix)) != 0 || (file->is_dir && !delimit))
			continue;
		char *slash = strchr(key + strlen(prefix), '/');
		/* Somebody's directory is seen if it is not the one that is listed. */
		if (file->is_dir && slash == NULL)
			continue;
		if (delimit && slash != NULL)
			slash[1] = '\0';
		if (strcmp(key, after) > 0 && (!has_best || strcmp(key, best) < 0)) {
			lpi_tp_copy(best, sizeof(best), key);
			has_best = true;
		}
	}
	return has_best ? best : NULL;
}

static void check_list(struct model *model)
{
	static uint8_t page[8192];
	struct lpi_t *t = &model->t;
	struct lp_ns_item item;
	uint32_t pos = 0;
	char prefix[KEY_MAX];
	char after[KEY_MAX + 1];
	random_key(model, prefix);
	prefix[lp_prng_below(&model->prng, strlen(prefix) + 1)] = '\0';
	random_key(model, after);
	if (lp_prng_chance(&model->prng, 1, 2))
		after[0] = '\0';
	lpi_t_op(t, LP_NS_LIST);
	t->op->list.prefix = lpi_t_bytes(prefix);
	t->op->list.after = lpi_t_bytes(after);
	t->op->list.delimit = lp_prng_chance(&model->prng, 1, 2);
	t->op->list.items_max = 1 + (uint32_t)lp_prng_below(&model->prng, 20);
	t->op->list.buf = page;
	t->op->list.buf_len = sizeof(page);
	t->op->list.with_attrs = true;
	lp_test_ok(lpi_t_do(t));
	while (lp_ns_next(t->op, &pos, &item)) {
		const char *key = next_of(model, prefix, after, t->op->list.delimit);
		assert_non_null(key);
		assert_int_equal(item.name.len, strlen(key));
		assert_memory_equal(item.name.data, key, item.name.len);
		if (item.ino.nr != 0)
			assert_int_equal(item.attrs.size_bytes, length_of(&model->map, key));
		lpi_tp_copy(after, sizeof(after), key);
	}
	const char *key = next_of(model, prefix, after, t->op->list.delimit);
	assert_int_equal(t->op->list.more, key != NULL);
}

static void check_all(struct model *model)
{
	for (uint32_t i = 0; i < model->map.cnt; i++) {
		const struct file *file = &model->map.files[i];
		if (!file->is_dir)
			assert_int_equal(lpi_tp_length(&model->t, file->key), file->length);
	}
	for (uint32_t i = 0; i < 4; i++)
		check_list(model);
}

static void run(uint32_t shard_cnt, uint64_t seed)
{
	static struct model model;
	model = (struct model){.trial_cnt = 0};
	lp_prng_init(&model.prng, seed);
	lpi_t_begin(&model.t, shard_cnt);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		model.trial_cnt = 0;
		shortage_begin(&model);
		for (uint32_t i = 0; i < OPS_MAX; i++)
			plan(&model);
		open_old(&model);
		for (uint32_t i = 0; i < model.trial_cnt; i++) {
			struct trial *trial = &model.trials[i];
			int r = lpi_ns_rig_wait(model.t.rig, &trial->put.hand);
			if (is_full(&model, trial, r))
				r = 0;
			if (r != trial->expected)
				print_error("seed %llu round %u: %d of %s %s: %d, not %d\n",
					    (unsigned long long)seed, round,
					    trial->put.hand.op.opcode, trial->key, trial->to, r,
					    trial->expected);
			assert_int_equal(r, trial->expected);
			lpi_tp_put_drop(&trial->put);
		}
		for (uint32_t i = 0; i < model.trial_cnt; i++)
			check_old(&model, &model.trials[i]);
		check_all(&model);
	}
	lpi_t_end(&model.t);
}

static void test_model(void **state)
{
	(void)state;
	uint64_t first = 1 + lp_test_seed_shift();
	uint64_t cnt = (LP_ASSERT_SLOW_ON ? 6 : 25) * lp_test_factor();
	for (uint64_t seed = first; seed < first + cnt; seed++)
		run(1 + (uint32_t)(seed % 3), seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),
	};
	return lp_test_main(tests, "namespace/ops/paths_model");
}
