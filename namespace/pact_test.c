/* SPDX-License-Identifier: Apache-2.0 */
#include "namespace/ns_test.h"

/* A job of the test's own: a transaction over two shards. */
struct trial {
	struct lp_ns_op op;
	bool is_done;
	struct lp_ino dir;
	struct lp_ino ino;
	bool expect_absent;
};

static void done(struct lp_ns_op *op)
{
	LP_CONTAINER_OF(op, struct trial, op)->is_done = true;
}

static void committed(struct lpi_job *job)
{
	lpi_job_end(job, job->pact.result);
}

/* An inode on one shard, its entry on the other. */
static void make_both(struct lpi_job *job)
{
	struct trial *trial = LP_CONTAINER_OF(job->op, struct trial, op);
	struct lp_attrs *attrs = lpi_job_attrs(job);
	uint32_t of_dir = lp_ino_shard(trial->dir);
	uint32_t of_ino = lp_ino_shard(trial->ino);
	*attrs = (struct lp_attrs){.type = LP_INODE_TYPE_FILE, .nlink = 1, .mode = 0644};
	lpi_job_change(job, of_ino, LP_CHANGE_CREATE, trial->ino)->inode.attrs = attrs;
	struct lp_change *entry = lpi_job_change(job, of_dir, LP_CHANGE_ENTRY_SET, trial->dir);
	entry->named.name = LPI_NS_RIG_BYTES("both");
	entry->named.target = trial->ino;
	entry->named.target_type = LP_INODE_TYPE_FILE;
	struct lp_change *guard = lpi_job_change(job, of_dir, LP_GUARD_NO_ENTRY, trial->dir);
	guard->named.name = LPI_NS_RIG_BYTES("both");
	lpi_job_commit(job, committed);
}

static void begin_both(struct lpi_job *job)
{
	struct trial *trial = LP_CONTAINER_OF(job->op, struct trial, op);
	job->entry = (struct lpi_entry){.dir = trial->dir, .name_len = 4, .name = "both"};
	job->entry.shard_idx = lp_ino_shard(trial->dir);
	lpi_job_lock_name(job, &job->entry);
	lpi_job_lock_inode(job, trial->ino);
	lpi_job_lock(job, make_both);
}

static int run_trial(struct lpi_ns_rig *rig, uint32_t home, struct trial *trial)
{
	struct lp_ns *ns = rig->ns[home];
	struct lpi_job *job = lp_pool_get(ns->jobs);
	trial->op.complete = done;
	trial->is_done = false;
	ns->under_way++;
	lpi_job_begin(ns, job, &trial->op, begin_both);
	for (uint32_t i = 0; !trial->is_done; i++) {
		assert_true(i < LPI_NS_RIG_TURNS_MAX);
		(void)lpi_ns_rig_turn(rig);
	}
	return trial->op.result;
}

static void test_two_shards(void **state)
{
	(void)state;
	for (uint32_t home = 0; home < 3; home++) {
		struct lpi_ns_rig *rig = lpi_ns_rig_new(3);
		struct trial trial = {.dir = LP_INO_ROOT,
				      .ino = lp_store_new_ino(rig->store[1])};
		assert_int_equal(run_trial(rig, home, &trial), 0);
		/* The guard of the entry's shard, whichever it is, stops both. */
		trial.ino = lp_store_new_ino(rig->store[2]);
		assert_int_equal(run_trial(rig, home, &trial), -EEXIST);
		lpi_ns_rig_free(rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_shards),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
