/* SPDX-License-Identifier: Apache-2.0 */
/* Kills a store while it works, and judges what is left. (tests/system/store_kill.sh)
 *
 *   store_kill IMAGE|DIRECTORY ROUNDS SEED
 *
 * In each round a child opens the store on IMAGE and runs random transactions, DEPTH at a time, at
 * most one at a time for each object. Before one is submitted, and after it was acknowledged, the
 * child says so through a pipe. The parent kills it at a random moment, opens the store, and reads
 * everything: an object is as its acknowledged transactions left it; one that was under way when
 * the child died may have happened or not, but wholly. What a transaction does follows from the
 * seed and its number alone, so both know.
 *
 * Of each object: its blocks each hold a generation, from which their bytes follow; an xattr and an
 * omap value hold the number of the transaction that set them. A transaction changes several of
 * these together. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/crc32c.h"
#include "base/prng.h"
#include "bench/programs/machine.h"

#define DEPTH       16u
#define OBJECTS     100u
#define BLOCKS      48u /* of an object */
#define WRITE_MAX   24u /* blocks */
#define BUFS_BYTES  (UINT64_C(256) << 20)
#define MEM_BYTES   (UINT64_C(64) << 20)
#define INO_FIRST   UINT64_C(1000000) /* plus the number of the transaction that made it */
#define LIFE_MS_MIN 20u
#define LIFE_MS_MAX 700u

/* What an object is. */
struct object {
	uint64_t generation[BLOCKS]; /* 0: zeros */
	uint64_t tag;                /* in xattr and omap; 0: neither */
	uint64_t made;               /* by this transaction, which gave it its inode's number */
	uint32_t block_cnt;          /* its size */
	bool exists;
};

/* What may be true of it: before and after the transaction under way. */
struct belief {
	struct object is;
	uint64_t pending; /* number of the transaction under way; 0: none */
};

enum action { CREATE, OVERWRITE, APPEND, TRUNCATE, CLONE, TAG, PUNCH, REMOVE, ACTIONS };

static struct belief beliefs[OBJECTS];
static uint64_t seed;

/* --- What a transaction does ------------------------------------------------------------------ */

struct plan {
	enum action action;
	uint32_t object_idx;
	uint32_t first;
	uint32_t cnt;
	bool tags; /* sets xattr and omap, too */
};

/* From the number of the transaction, and the object as it is; free of side effects. */
static struct plan plan_of(uint64_t number, uint32_t object_idx, const struct object *is)
{
	struct lp_prng prng;
	lp_prng_init(&prng, seed * UINT64_C(1000003) + number);
	struct plan plan = {.object_idx = object_idx};
	plan.action =
		is->exists ? OVERWRITE + (enum action)lp_prng_below(&prng, ACTIONS - 1) : CREATE;
	if (plan.action == REMOVE && lp_prng_below(&prng, 2) == 0)
		plan.action = OVERWRITE;
	if (is->block_cnt == 0 && plan.action != CREATE && plan.action != TAG &&
	    plan.action != REMOVE)
		plan.action = APPEND;
	if (plan.action == APPEND && is->block_cnt == BLOCKS)
		plan.action = OVERWRITE;
	plan.tags = plan.action == CREATE || plan.action == TAG || lp_prng_below(&prng, 3) == 0;
	uint32_t size = plan.action == CREATE ? BLOCKS : is->block_cnt;
	plan.first = plan.action == APPEND ? is->block_cnt
		     : size > 0            ? (uint32_t)lp_prng_below(&prng, size)
					   : 0;
	uint32_t end = plan.action == APPEND || plan.action == CREATE ? BLOCKS : size;
	plan.cnt = end > plan.first ? 1 + (uint32_t)lp_prng_below(&prng, end - plan.first) : 0;
	if (lp_prng_below(&prng, 2) == 0)
		plan.cnt = LP_MIN(plan.cnt, 2);
	plan.cnt = LP_MIN(plan.cnt, WRITE_MAX);
	plan.tags |= plan.action == CLONE && is->block_cnt == BLOCKS; /* else it does nothing */
	return plan;
}

static void apply(const struct plan *plan, uint64_t number, struct object *object)
{
	if (plan->action == CREATE)
		*object = (struct object){.exists = true, .made = number};
	switch (plan->action) {
	case CREATE:
	case OVERWRITE:
	case APPEND:
		for (uint32_t i = 0; i < plan->cnt; i++)
			object->generation[plan->first + i] = number;
		object->block_cnt = LP_MAX(object->block_cnt, plan->first + plan->cnt);
		break;
	case TRUNCATE:
		for (uint32_t i = plan->first; i < BLOCKS; i++)
			object->generation[i] = 0;
		object->block_cnt = plan->first;
		break;
	case CLONE: /* of its own first half behind its end, as far as there is room */
	case TAG:
	case ACTIONS:
		break;
	case PUNCH:
		for (uint32_t i = 0; i < plan->cnt; i++)
			object->generation[plan->first + i] = 0;
		break;
	case REMOVE:
		*object = (struct object){.exists = false, .made = object->made};
		return;
	}
	if (plan->action == CLONE) {
		uint32_t room = BLOCKS - object->block_cnt;
		uint32_t cnt = LP_MIN(LP_MIN(plan->cnt, object->block_cnt - plan->first), room);
		for (uint32_t i = 0; i < cnt; i++)
			object->generation[object->block_cnt + i] =
				object->generation[plan->first + i];
		object->block_cnt += cnt;
	}
	if (plan->tags)
		object->tag = number;
}

/* A block's bytes follow from its generation alone: a clone takes them along. */
static void fill_of(uint8_t *block, uint64_t generation)
{
	uint64_t word = generation * UINT64_C(0x9e3779b97f4a7c15);
	for (size_t i = 0; i < LP_BLOCK_BYTES; i += 8) {
		word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		memcpy(block + i, &word, 8);
	}
	if (generation == 0)
		memset(block, 0, LP_BLOCK_BYTES);
}

/* --- The child: works until it is killed ------------------------------------------------------ */

/* What goes through the pipe: under way, or acknowledged. */
struct message {
	uint64_t number;
	uint32_t object_idx;
	uint32_t acknowledged;
};

struct slot {
	struct lp_store_op op;
	struct lp_change changes[4];
	struct lp_attrs attrs;
	struct lp_seg segs[WRITE_MAX];
	uint32_t crcs[WRITE_MAX];
	struct plan plan;
	uint64_t number;
	uint32_t seg_cnt;
};

static struct slot slots[DEPTH];
static struct lpi_machine machine;
static int pipe_fd;
static uint64_t next_number;
static struct lp_prng choice;

static void start(const char *path)
{
	const struct lpi_machine_options options = {
		.path = path, .bufs_bytes = BUFS_BYTES, .memory_bytes = MEM_BYTES};
	lpi_machine_open(&machine, &options);
}

static void say(const struct slot *slot, bool acknowledged)
{
	const struct message message = {slot->number, slot->plan.object_idx, acknowledged};
	LPI_MACHINE_CHECK(write(pipe_fd, &message, sizeof(message)) == (ssize_t)sizeof(message));
}

static struct lp_ino ino_of(const struct object *object)
{
	return (struct lp_ino){INO_FIRST + object->made};
}

static void add_data(struct slot *slot, struct lp_change *change, const struct object *is,
		     struct lp_ino ino)
{
	const struct plan *plan = &slot->plan;
	uint64_t at = (uint64_t)plan->first * LP_BLOCK_BYTES;
	uint64_t len = (uint64_t)plan->cnt * LP_BLOCK_BYTES;
	change->ino = ino;
	change->data.offset = at;
	change->data.length = len;
	if (plan->action == TRUNCATE) {
		change->type = LP_CHANGE_TRUNCATE;
		return;
	}
	if (plan->action == PUNCH) {
		change->type = LP_CHANGE_PUNCH;
		return;
	}
	if (plan->action == CLONE) {
		uint32_t cnt = LP_MIN(LP_MIN(plan->cnt, is->block_cnt - plan->first),
				      BLOCKS - is->block_cnt);
		*change = (struct lp_change){.type = LP_CHANGE_CLONE, .ino = ino};
		change->clone.src = change->ino;
		change->clone.src_offset = at;
		change->clone.offset = (uint64_t)is->block_cnt * LP_BLOCK_BYTES;
		change->clone.length = (uint64_t)cnt * LP_BLOCK_BYTES;
		return;
	}
	for (uint32_t i = 0; i < plan->cnt; i++) {
		struct lp_buf *buf = lp_buf_new(machine.bufs, LP_BUF_SMALL);
		LPI_MACHINE_CHECK(buf != NULL);
		fill_of(buf->data, slot->number);
		slot->segs[i] = (struct lp_seg){buf, 0, LP_BUF_SMALL};
		slot->crcs[i] = lp_crc32c(0, buf->data, LP_BLOCK_BYTES);
	}
	slot->seg_cnt = plan->cnt;
	change->type = LP_CHANGE_WRITE;
	change->data.payload = (struct lp_payload){
		.segs = slot->segs, .crcs = slot->crcs, .seg_cnt = plan->cnt, .crc_cnt = plan->cnt};
	if (plan->action == APPEND)
		change->data.offset = LP_STORE_APPEND;
}

static bool has_data(const struct plan *plan, const struct object *is)
{
	if (plan->action == CLONE)
		return is->block_cnt < BLOCKS;
	return plan->action != TAG && plan->action != REMOVE;
}

static uint32_t make_changes(struct slot *slot, const struct object *is)
{
	const struct plan *plan = &slot->plan;
	struct lp_ino ino =
		plan->action == CREATE ? (struct lp_ino){INO_FIRST + slot->number} : ino_of(is);
	uint32_t cnt = 0;
	memset(slot->changes, 0, sizeof(slot->changes));
	slot->seg_cnt = 0;
	if (plan->action == REMOVE) {
		slot->changes[0] = (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = ino};
		return 1;
	}
	slot->attrs = (struct lp_attrs){.mode = 0644, .nlink = 1, .type = LP_INODE_TYPE_FILE};
	if (plan->action == CREATE)
		slot->changes[cnt++] = (struct lp_change){
			.type = LP_CHANGE_CREATE, .ino = ino, .inode = {.attrs = &slot->attrs}};
	if (has_data(plan, is))
		add_data(slot, &slot->changes[cnt++], is, ino);
	if (plan->tags) {
		const struct lp_bytes value = {&slot->number, 8};
		slot->changes[cnt++] =
			(struct lp_change){.type = LP_CHANGE_XATTR_SET,
					   .ino = ino,
					   .named = {.name = {"user.tag", 8}, .value = value}};
		slot->changes[cnt++] =
			(struct lp_change){.type = LP_CHANGE_OMAP_SET,
					   .ino = ino,
					   .named = {.name = {"tag", 3}, .value = value}};
	}
	return cnt;
}

static void submit(struct slot *slot);

static void complete(struct lp_store_op *op)
{
	struct slot *slot = LP_CONTAINER_OF(op, struct slot, op);
	if (op->result < 0)
		(void)fprintf(stderr, "store_kill: action %d: %s\n", (int)slot->plan.action,
			      lp_strerror(op->result));
	LPI_MACHINE_CHECK(op->result == 0);
	for (uint32_t i = 0; i < slot->seg_cnt; i++)
		lp_buf_put(slot->segs[i].buf);
	struct belief *belief = &beliefs[slot->plan.object_idx];
	apply(&slot->plan, slot->number, &belief->is);
	belief->pending = 0;
	say(slot, true);
	submit(slot);
}

static void submit(struct slot *slot)
{
	uint32_t idx;
	do {
		idx = (uint32_t)lp_prng_below(&choice, OBJECTS);
	} while (beliefs[idx].pending != 0);
	slot->number = next_number++;
	slot->plan = plan_of(slot->number, idx, &beliefs[idx].is);
	uint32_t cnt = make_changes(slot, &beliefs[idx].is);
	beliefs[idx].pending = slot->number;
	slot->op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					.complete = complete,
					.txn = {.changes = slot->changes, .change_cnt = cnt}};
	say(slot, false);
	lp_store_submit(machine.store, &slot->op);
}

static void work(const char *path)
{
	start(path);
	for (uint32_t i = 0; i < DEPTH; i++)
		submit(&slots[i]);
	for (;;)
		(void)lp_reactor_turn(machine.reactor, true);
}

/* --- The parent: judges ----------------------------------------------------------------------- */

static uint64_t tag_of(enum lp_store_space space, struct lp_ino ino, struct lp_bytes name)
{
	uint64_t tag = 0;
	struct lp_store_op op = {
		.opcode = LP_STORE_GET,
		.get = {.space = space, .ino = ino, .name = name, .buf = &tag, .buf_len = 8}};
	int err = lpi_machine_do(&machine, &op);
	LPI_MACHINE_CHECK(err == -ENODATA || (err == 0 && op.get.value_len == 8));
	return err == 0 ? tag : 0;
}

/* All bytes of it, checked against their crcs by the store. */
static uint32_t read_all(struct lp_ino ino, uint8_t *bytes)
{
	struct lp_store_op op = {.opcode = LP_STORE_READ,
				 .read = {.ino = ino, .length = BLOCKS * LP_BLOCK_BYTES}};
	uint64_t at = 0;
	LPI_MACHINE_CHECK(lpi_machine_do(&machine, &op) == 0);
	for (uint32_t i = 0; i < op.read.seg_cnt; i++) {
		const struct lp_seg *seg = &op.read.segs[i];
		memcpy(bytes + at, seg->buf->data + seg->offset, seg->len);
		at += seg->len;
	}
	LPI_MACHINE_CHECK(at == op.read.size_bytes && at % LP_BLOCK_BYTES == 0);
	lp_store_end(machine.store, &op);
	return (uint32_t)(at / LP_BLOCK_BYTES);
}

static bool equals(struct lp_ino ino, const struct object *want)
{
	static uint8_t bytes[BLOCKS * LP_BLOCK_BYTES];
	static uint8_t block[LP_BLOCK_BYTES];
	struct lp_store_op op = {.opcode = LP_STORE_STAT, .stat = {.ino = ino}};
	int err = lpi_machine_do(&machine, &op);
	LPI_MACHINE_CHECK(err == 0 || err == -ENOENT);
	if (!want->exists || err < 0)
		return !want->exists && err == -ENOENT;
	uint64_t size = (uint64_t)want->block_cnt * LP_BLOCK_BYTES;
	if (op.stat.attrs.size_bytes != size || read_all(ino, bytes) != want->block_cnt)
		return false;
	for (uint32_t i = 0; i < want->block_cnt; i++) {
		fill_of(block, want->generation[i]);
		if (memcmp(block, bytes + (uint64_t)i * LP_BLOCK_BYTES, LP_BLOCK_BYTES) != 0)
			return false;
	}
	return tag_of(LP_STORE_XATTRS, ino, (struct lp_bytes){"user.tag", 8}) == want->tag &&
	       tag_of(LP_STORE_OMAP, ino, (struct lp_bytes){"tag", 3}) == want->tag;
}

/* An operation without an answer happened or not: from now on it is known which. */
static void judge(uint32_t round)
{
	uint32_t happened = 0;
	uint32_t open_cnt = 0;
	for (uint32_t i = 0; i < OBJECTS; i++) {
		struct belief *belief = &beliefs[i];
		struct object after = belief->is;
		struct plan plan = {.action = TAG};
		bool was_open = belief->pending != 0;
		if (was_open) {
			plan = plan_of(belief->pending, i, &belief->is);
			apply(&plan, belief->pending, &after);
		}
		/* What was not made is not there either. */
		struct lp_ino ino = ino_of(plan.action == CREATE ? &after : &belief->is);
		if (equals(ino, &belief->is)) {
			open_cnt += belief->pending != 0;
			belief->pending = 0;
			continue;
		}
		if (!was_open || !equals(ino, &after)) {
			(void)fprintf(stderr, "store_kill: round %u: object %u is wrong (%s)\n",
				      round, i, was_open ? "one under way" : "none under way");
			_exit(1);
		}
		belief->is = after;
		belief->pending = 0;
		open_cnt++;
		happened++;
	}
	(void)printf("round %u: up to transaction %llu; %u without an answer, %u of them there\n",
		     round, (unsigned long long)next_number - 1, open_cnt, happened);
	(void)fflush(stdout);
}

static void take_message(const struct message *message)
{
	struct belief *belief = &beliefs[message->object_idx];
	next_number = LP_MAX(next_number, message->number + 1);
	if (!message->acknowledged) {
		LPI_MACHINE_CHECK(belief->pending == 0);
		belief->pending = message->number;
		return;
	}
	LPI_MACHINE_CHECK(belief->pending == message->number);
	struct plan plan = plan_of(message->number, message->object_idx, &belief->is);
	apply(&plan, message->number, &belief->is);
	belief->pending = 0;
}

static void take_messages(int fd)
{
	struct message message;
	ssize_t got;
	/* What is shorter than PIPE_BUF is written whole or not at all. */
	while ((got = read(fd, &message, sizeof(message))) == (ssize_t)sizeof(message))
		take_message(&message);
	LPI_MACHINE_CHECK(got == 0);
}

/* Kills it when its time has come, and not before it has begun to work. */
static void kill_later(pid_t child, int fd, struct lp_prng *prng)
{
	uint64_t ms = LIFE_MS_MIN + lp_prng_below(prng, LIFE_MS_MAX - LIFE_MS_MIN);
	pid_t killer = fork();
	LPI_MACHINE_CHECK(killer >= 0);
	if (killer == 0) {
		const struct timespec rest = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
		(void)close(fd);
		(void)nanosleep(&rest, NULL);
		(void)kill(child, SIGKILL);
		_exit(0);
	}
	take_messages(fd);
	int status = 0;
	LPI_MACHINE_CHECK(waitpid(killer, NULL, 0) == killer);
	LPI_MACHINE_CHECK(waitpid(child, &status, 0) == child);
	LPI_MACHINE_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void run_round(const char *path, uint32_t round, struct lp_prng *prng)
{
	int fds[2];
	LPI_MACHINE_CHECK(pipe(fds) == 0);
	pid_t child = fork();
	LPI_MACHINE_CHECK(child >= 0);
	if (child == 0) {
		(void)close(fds[0]);
		pipe_fd = fds[1];
		lp_prng_init(&choice, seed + round);
		work(path);
	}
	(void)close(fds[1]);
	kill_later(child, fds[0], prng);
	(void)close(fds[0]);
	start(path);
	judge(round);
	lpi_machine_close(&machine, false);
}

int main(int argc, char **argv)
{
	struct lp_prng prng;
	if (argc != 4) {
		(void)fprintf(stderr, "store_kill IMAGE ROUNDS SEED\n");
		return 2;
	}
	uint32_t rounds = (uint32_t)strtoul(argv[2], NULL, 10);
	seed = strtoull(argv[3], NULL, 10);
	next_number = 1;
	lp_prng_init(&prng, seed);
	for (uint32_t round = 1; round <= rounds; round++)
		run_round(argv[1], round, &prng);
	return 0;
}
