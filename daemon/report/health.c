/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/report/health.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "store/record/types.h"

static void probe_done(struct lp_bdev_op *op)
{
	struct lpi_probe *probe = LP_CONTAINER_OF(op, struct lpi_probe, op);
	probe->is_asked = false;
	probe->result = op->result;
}

int lpi_health_init(struct lpi_health *health, struct lp_reactor *reactor,
		    struct lp_bdev *const bdev[LPI_HEALTH_DEVICES])
{
	*health = (struct lpi_health){.reactor = reactor};
	health->since_ns = (uint64_t)lp_clock_wall_ns(lp_reactor_clock(reactor));
	for (uint32_t i = 0; i < LPI_HEALTH_DEVICES; i++) {
		struct lpi_probe *probe = &health->probes[i];
		if (bdev[i] == NULL)
			continue;
		probe->block = aligned_alloc(LP_BLOCK_BYTES, LP_BLOCK_BYTES);
		int err = probe->block == NULL ? -ENOMEM
					       : lp_bdev_attach(bdev[i], reactor, &probe->chan);
		if (err < 0) {
			lpi_health_fini(health);
			return err;
		}
	}
	return 0;
}

void lpi_health_fini(struct lpi_health *health)
{
	LP_ASSERT(lpi_health_is_idle(health));
	for (uint32_t i = 0; i < LPI_HEALTH_DEVICES; i++) {
		lp_bdev_detach(health->probes[i].chan);
		free(health->probes[i].block);
		health->probes[i] = (struct lpi_probe){.chan = NULL};
	}
}

bool lpi_health_is_idle(const struct lpi_health *health)
{
	for (uint32_t i = 0; i < LPI_HEALTH_DEVICES; i++) {
		if (health->probes[i].is_asked || health->probes[i].host_work.workers != NULL)
			return false;
	}
	return true;
}

/* --- The hosts of images ---------------------------------------------------------------------- */

/* Less free space than this counts as none: an index of any size needs more to be written. */
#define HOST_NOTHING_BYTES (UINT64_C(1) << 20)
/* The file system has space again when it has twice as much, and no write has failed for this time.
 * (A quota does not show in the free space.) */
#define HOST_AGAIN_NS (3 * LP_NS_PER_S)

static void read_host(struct lp_work *work)
{
	struct lpi_probe *probe = LP_CONTAINER_OF(work, struct lpi_probe, host_work);
	struct lp_bdev *bdev = lp_bdev_of(probe->chan);
	probe->size_result = lp_bdev_read_size(bdev, &probe->size_bytes);
	if (lp_bdev_caps(bdev)->is_file)
		probe->host_result = lp_bdev_read_host(bdev, &probe->host);
}

static void host_is_read(struct lp_work *work)
{
	(void)work; /* the next look finds it */
}

void lpi_health_watch_hosts(struct lpi_health *health, struct lp_workers *workers)
{
	health->workers = workers;
	for (uint32_t i = 0; i < LPI_HEALTH_DEVICES; i++) {
		health->probes[i].host_result = -ENOTTY;
		health->probes[i].size_result = -ENOTTY;
	}
}

void lpi_health_set_needs(struct lpi_health *health, uint32_t device, uint64_t bytes)
{
	LP_ASSERT(device < LPI_HEALTH_DEVICES);
	health->probes[device].needs_bytes = bytes;
}

static void ask_host(struct lpi_health *health, struct lpi_probe *probe)
{
	if (health->workers == NULL || probe->host_work.workers != NULL)
		return;
	probe->host_work = (struct lp_work){.run = read_host, .done = host_is_read};
	lp_workers_submit(health->workers, health->reactor, &probe->host_work);
}

static bool has_nothing(const struct lpi_probe *probe, uint64_t bytes)
{
	return probe->host_result == 0 && probe->host.absent_bytes > 0 &&
	       probe->host.free_bytes < bytes;
}

/* Whether the file system that holds the image has no space. */
static bool look_at_host(const struct lpi_health *health, struct lpi_probe *probe)
{
	struct lp_bdev *bdev = lp_bdev_of(probe->chan);
	uint64_t now_ns = lp_reactor_now_ns(health->reactor);
	uint64_t cnt = lp_bdev_no_space_cnt(bdev);
	bool is_new = cnt != probe->no_space_cnt;
	if (is_new)
		probe->no_space_ns = now_ns;
	probe->no_space_cnt = cnt;
	/* A helper is at work on it, so the last result stays. */
	if (probe->host_work.workers != NULL)
		return probe->is_host_full || is_new;
	if (is_new || has_nothing(probe, HOST_NOTHING_BYTES)) {
		probe->is_host_full = true;
	} else if (probe->is_host_full && !has_nothing(probe, 2 * HOST_NOTHING_BYTES) &&
		   now_ns - probe->no_space_ns >= HOST_AGAIN_NS) {
		probe->is_host_full = false;
		lp_bdev_host_has_space(bdev);
		LP_LOG_NOTICE("%s: the file system that holds the image has space again",
			      lp_bdev_name(bdev));
	}
	return probe->is_host_full;
}

/* The device was made smaller, or the image was cut off: data behind the end is lost. While a
 * helper is at work the last result stays. */
static bool is_cut_off(struct lpi_probe *probe)
{
	if (probe->host_work.workers == NULL) {
		probe->is_cut_off =
			probe->size_result == 0 && probe->size_bytes < probe->needs_bytes;
		probe->seen_bytes = probe->size_bytes;
	}
	return probe->is_cut_off;
}

static void say_cut_off(const struct lpi_probe *probe, char *why)
{
	(void)lpi_refuse(why, 0,
			 "%s: the device has become smaller than the store on it: %llu bytes of "
			 "%llu (data behind its end cannot be read; make it as large as it "
			 "was, then run lapis scrub start)",
			 lp_bdev_name(lp_bdev_of(probe->chan)),
			 (unsigned long long)probe->seen_bytes,
			 (unsigned long long)probe->needs_bytes);
}

void lpi_health_ask(struct lpi_health *health)
{
	for (uint32_t i = 0; i < LPI_HEALTH_DEVICES; i++) {
		struct lpi_probe *probe = &health->probes[i];
		if (probe->chan == NULL)
			continue;
		ask_host(health, probe);
		if (probe->is_asked)
			continue;
		probe->is_asked = true;
		probe->asked_ns = lp_reactor_now_ns(health->reactor);
		probe->op = (struct lp_bdev_op){.complete = probe_done};
		lp_bdev_op_prep(&probe->op, LP_BDEV_READ, probe->block, LP_BLOCK_BYTES, 0);
		lp_bdev_submit(probe->chan, &probe->op);
	}
}

const char *lpi_health_name(enum lpi_health_state state)
{
	static const char *const names[] = {[LPI_HEALTH_OK] = "ok",
					    [LPI_HEALTH_DAMAGED] = "damaged",
					    [LPI_HEALTH_DEGRADED] = "degraded",
					    [LPI_HEALTH_READ_ONLY] = "read-only",
					    [LPI_HEALTH_FAILED] = "failed"};
	return names[state];
}

/* The message for an operator about the state of a shard's store, behind "shard N". */
static const char *meaning(enum lp_store_state state)
{
	static const char *const meanings[LP_STORE_STATE_CNT] = {
		[LP_STORE_OK] = "is well",
		[LP_STORE_DEGRADED] = "serves everything, but has a problem",
		[LP_STORE_REOPENING] = "cannot be changed any more, and reads wait until it is "
				       "open again",
		[LP_STORE_READ_ONLY] = "cannot be changed any more; durable data can be read "
				       "(check the device, then start again)",
		[LP_STORE_DEAD] = "can neither be changed nor read (check the device, then start "
				  "again)",
	};
	return meanings[state];
}

void lpi_health_tell(uint32_t shard_idx, const struct lp_store_health *health)
{
	LP_LOG_ERROR("health: shard %u %s: %s", shard_idx, meaning(health->state), health->reason);
}

/* A failed write fails only its own request, so no store reports it. */
static bool look_for_failure(struct lpi_probe *probe)
{
	struct lp_bdev_failure failure;
	if (probe->has_failed)
		return true;
	/* The file system of an image file is full, so the store is full. This is no failure of the
	 * device. */
	if (!lp_bdev_last_failure(lp_bdev_of(probe->chan), &failure) || failure.result == -ENOSPC)
		return false;
	probe->failure = failure;
	probe->has_failed = true;
	return true;
}

static void say_failure(const struct lpi_probe *probe, char *why)
{
	const struct lp_bdev_failure *failure = &probe->failure;
	const char *name = lp_bdev_name(lp_bdev_of(probe->chan));
	const char *what = lp_bdev_opcode_name(failure->opcode);
	if (failure->opcode == LP_BDEV_FLUSH)
		(void)lpi_refuse(why, 0, "%s: a %s has failed: %s (check the device)", name, what,
				 lp_strerror(failure->result));
	else
		(void)lpi_refuse(why, 0,
				 "%s: a %s of %llu bytes at %llu has failed: %s (see to the "
				 "device)",
				 name, what, (unsigned long long)failure->length_bytes,
				 (unsigned long long)failure->offset_bytes,
				 lp_strerror(failure->result));
}

static enum lpi_health_state judge_devices(struct lpi_health *health, uint64_t timeout_ns,
					   char *why)
{
	uint64_t now_ns = lp_reactor_now_ns(health->reactor);
	for (uint32_t i = 0; i < LPI_HEALTH_DEVICES; i++) {
		struct lpi_probe *probe = &health->probes[i];
		if (probe->chan == NULL)
			continue;
		const char *name = lp_bdev_name(lp_bdev_of(probe->chan));
		if (probe->is_asked && now_ns - probe->asked_ns >= timeout_ns) {
			(void)lpi_refuse(why, 0, "%s: the device does not answer", name);
			return LPI_HEALTH_DEGRADED;
		}
		if (probe->result < 0) {
			(void)lpi_refuse(why, 0, "%s: the device cannot be read: %s", name,
					 lp_strerror(probe->result));
			return LPI_HEALTH_DEGRADED;
		}
		if (is_cut_off(probe)) {
			say_cut_off(probe, why);
			return LPI_HEALTH_DEGRADED;
		}
		if (look_at_host(health, probe)) {
			(void)lpi_refuse(
				why, 0,
				"%s: the file system that holds the image has no space "
				"(make room there; removing objects here also returns space to it)",
				name);
			return LPI_HEALTH_DEGRADED;
		}
		if (look_for_failure(probe)) {
			say_failure(probe, why);
			return LPI_HEALTH_DEGRADED;
		}
	}
	return LPI_HEALTH_OK;
}

static enum lpi_health_state judge_store(enum lp_store_state state)
{
	static const enum lpi_health_state verdicts[LP_STORE_STATE_CNT] = {
		[LP_STORE_OK] = LPI_HEALTH_OK,
		[LP_STORE_DEGRADED] = LPI_HEALTH_DEGRADED,
		[LP_STORE_REOPENING] = LPI_HEALTH_READ_ONLY,
		[LP_STORE_READ_ONLY] = LPI_HEALTH_READ_ONLY,
		[LP_STORE_DEAD] = LPI_HEALTH_FAILED,
	};
	return verdicts[state];
}

/* The worst store of all. */
static enum lpi_health_state judge_stores(const struct lpi_look *looks, uint32_t thread_cnt,
					  char *why)
{
	const struct lpi_look *worst = &looks[0];
	for (uint32_t i = 1; i < thread_cnt; i++) {
		if (looks[i].store.state > worst->store.state)
			worst = &looks[i];
	}
	enum lpi_health_state state = judge_store(worst->store.state);
	if (state != LPI_HEALTH_OK)
		(void)lpi_refuse(why, 0, "shard %u %s: %s", worst->shard_idx,
				 meaning(worst->store.state), worst->store.reason);
	return state;
}

/* Changes that cannot end are the namespace's; no store knows of them. */
static enum lpi_health_state judge_names(const struct lpi_look *looks, uint32_t thread_cnt,
					 char *why)
{
	uint64_t stuck = 0;
	for (uint32_t i = 0; i < thread_cnt; i++)
		stuck += looks[i].stuck;
	if (stuck == 0)
		return LPI_HEALTH_OK;
	(void)lpi_refuse(why, 0,
			 "%llu change%s over several shards cannot be ended, and what %s about is "
			 "refused (start again)",
			 (unsigned long long)stuck, stuck == 1 ? "" : "s",
			 stuck == 1 ? "it is" : "they are");
	return LPI_HEALTH_DEGRADED;
}

/* Damaged objects. */
static enum lpi_health_state judge_damage(const struct lpi_look *looks, uint32_t thread_cnt,
					  char *why)
{
	uint64_t damaged = 0;
	bool has_more = false;
	for (uint32_t i = 0; i < thread_cnt; i++) {
		damaged += looks[i].damaged;
		has_more |= looks[i].has_more_damaged;
	}
	if (damaged == 0)
		return LPI_HEALTH_OK;
	(void)lpi_refuse(why, 0, "%llu%s object%s damaged (lapis scrub --list names %s)",
			 (unsigned long long)damaged, has_more ? " or more" : "",
			 damaged == 1 ? " is" : "s are", damaged == 1 ? "it" : "them");
	return LPI_HEALTH_DAMAGED;
}

/* Every end of an operation, and all work of a device, is a movement, on any thread, because an
 * operation on one thread may wait for another thread. */
static void note_movement(struct lpi_health *health, const struct lpi_look *looks,
			  uint32_t thread_cnt)
{
	uint64_t moved = 0;
	health->under_way = 0;
	for (uint32_t i = 0; i < thread_cnt; i++) {
		moved += looks[i].moved;
		health->under_way += looks[i].under_way;
	}
	if (health->moved_ns != 0 && moved == health->moved && health->under_way > 0)
		return;
	health->moved = moved;
	health->moved_ns = lp_reactor_now_ns(health->reactor);
}

uint64_t lpi_health_still_ns(const struct lpi_health *health)
{
	uint64_t now_ns = lp_reactor_now_ns(health->reactor);
	return now_ns - LP_MIN(health->moved_ns, now_ns);
}

static enum lpi_health_state judge_movement(const struct lpi_health *health, char *why)
{
	if (lpi_health_still_ns(health) < LPI_HEALTH_STILL_NS)
		return LPI_HEALTH_OK;
	/* The text must stay the same, because each other text would be logged as a change. */
	(void)lpi_refuse(why, 0,
			 "nothing has moved for %llu seconds, though requests are under way (lapis "
			 "stuck shows them)",
			 (unsigned long long)(LPI_HEALTH_STILL_NS / LP_NS_PER_S));
	return LPI_HEALTH_DEGRADED;
}

static enum lpi_health_state judge_threads(const struct lpi_health *health,
					   const uint64_t *asked_ns, uint32_t thread_cnt,
					   uint64_t timeout_ns, char *why)
{
	uint64_t now_ns = lp_reactor_now_ns(health->reactor);
	for (uint32_t i = 0; i < thread_cnt; i++) {
		if (asked_ns[i] == 0 || now_ns - asked_ns[i] < timeout_ns)
			continue;
		(void)lpi_refuse(why, 0, "thread %u does not answer", i);
		return LPI_HEALTH_DEGRADED;
	}
	return LPI_HEALTH_OK;
}

void lpi_health_judge(struct lpi_health *health, const struct lpi_look *looks,
		      const uint64_t *asked_ns, uint32_t thread_cnt, uint64_t timeout_ns)
{
	char why[LP_WHY_MAX] = "";
	enum lpi_health_state state = judge_stores(looks, thread_cnt, why);
	note_movement(health, looks, thread_cnt);
	/* The shards log these lines themselves (lpi_health_tell()). */
	bool is_told = state > LPI_HEALTH_DEGRADED;
	/* If no store is worse than degraded, a silent device or thread is the reason. */
	if (state <= LPI_HEALTH_DEGRADED) {
		char silence[LP_WHY_MAX] = "";
		enum lpi_health_state other = judge_devices(health, timeout_ns, silence);
		if (other == LPI_HEALTH_OK)
			other = judge_threads(health, asked_ns, thread_cnt, timeout_ns, silence);
		if (other == LPI_HEALTH_OK)
			other = judge_names(looks, thread_cnt, silence);
		if (other == LPI_HEALTH_OK)
			other = judge_movement(health, silence);
		if (other == LPI_HEALTH_OK && state == LPI_HEALTH_OK)
			other = judge_damage(looks, thread_cnt, silence);
		if (other != LPI_HEALTH_OK)
			memcpy(why, silence, sizeof(silence));
		state = LP_MAX(state, other);
	}
	if (state == health->state && strcmp(why, health->reason) == 0)
		return;
	/* Each damaged object has a log line of its own, so a larger number of them needs none. */
	bool is_more = state == LPI_HEALTH_DAMAGED && health->state == LPI_HEALTH_DAMAGED;
	health->state = state;
	memcpy(health->reason, why, sizeof(why));
	if (is_more)
		return;
	health->since_ns = (uint64_t)lp_clock_wall_ns(lp_reactor_clock(health->reactor));
	if (state == LPI_HEALTH_OK)
		LP_LOG_NOTICE("health: ok again");
	else if (!is_told)
		LP_LOG_ERROR("health: %s: %s", lpi_health_name(state), why);
}
