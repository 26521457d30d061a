/* SPDX-License-Identifier: Apache-2.0 */
/* A thread with its shards: its part in each phase of the service's life.
 *
 * Opening and closing a store turn the reactor, so a turn cannot do them. The errand is put aside,
 * the loop ends, and thread_main() does the work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "daemon/service_impl.h"

/* Registered files: a device for each shard. */
#define DAMAGED_ADVICE                                                                             \
	" (lapis fsck says more, lapis salvage copies out whole objects, --degraded on serves "    \
	"the other shards read-only)"
#define FILES_PER_SHARD 4u
/* Files of the process that are kept for uses other than connections. */
#define FILES_KEPT UINT64_C(256)
/* A crash may take the last 100 ms of changes by the mount (rule M1). This time is enough to gather
 * many changes into one write. Callers that need durability do not wait for it. */
#define HOLD_NS LP_NS_PER_MS

static uint32_t shards_on(const struct lpi_thread *thread)
{
	const struct lp_service *service = thread->service;
	return (service->shard_cnt - thread->idx + service->thread_cnt - 1) / service->thread_cnt;
}

/* --- The thread ------------------------------------------------------------------------------- */

/* Reserves for each rank of buffers (rule B1): at least the need of one operation, and in a large
 * region a share, so that many operations can run side by side. */
static void set_aside(struct lp_bufs *bufs, const struct lp_config *config, uint32_t shard_cnt)
{
	uint64_t bytes;
	(void)lp_bufs_region(bufs, &bytes);
	uint32_t slabs = (uint32_t)(bytes / LP_BUF_LARGE);
	uint32_t write_slabs = (uint32_t)(LP_STORE_WRITE_MAX / LP_BUF_LARGE);
	if (lp_config_text(config, LP_OPT_MOUNT) != NULL)
		lp_bufs_reserve(bufs, LP_BUF_MOUNT, LP_MAX(2u, slabs / 16));
	lp_bufs_reserve(bufs, LP_BUF_ANSWER, LP_MAX(2u, slabs / 16));
	if (shard_cnt > 1)
		lp_bufs_reserve(bufs, LP_BUF_CARRY, LP_MAX(write_slabs, slabs / 8));
	lp_bufs_reserve(bufs, LP_BUF_EDGE, LP_MAX(1u, slabs / 64));
	lp_bufs_reserve(bufs, LP_BUF_COPY, LP_MAX(write_slabs, slabs / 32));
}

int lpi_thread_new(struct lpi_thread *thread, char *why)
{
	const struct lp_config *config = &thread->service->config;
	uint32_t files = shards_on(thread) * FILES_PER_SHARD;
	uint64_t spin_us = lp_config_number(config, LP_OPT_SPIN_US);
	uint64_t bytes = thread->service->memory.bufs_bytes * shards_on(thread);
	const struct lp_reactor_options options = {.name = "shard",
						   .ring = true,
						   .sqe128 = thread->service->memory.ring_bytes > 0,
						   .files_max = files,
						   .buffers_max = (uint32_t)((bytes >> 30) + 1),
						   .spin_max_ns = spin_us * LP_NS_PER_US};
	thread->config = *config;
	int err = lp_reactor_new(&options, &thread->reactor);
	if (err < 0) {
		(void)lp_reactor_explain(err, why, LP_WHY_MAX);
		return err;
	}
	err = lp_bufs_new(bytes, &thread->bufs);
	if (err < 0)
		return lpi_refuse(why, err,
				  "out of memory for buffers of %llu MiB (use a smaller --memory)",
				  (unsigned long long)bytes >> 20);
	set_aside(thread->bufs, config, thread->service->shard_cnt);
	return 0;
}

void lpi_thread_free(struct lpi_thread *thread)
{
	lp_bufs_free(thread->bufs);
	lp_reactor_free(thread->reactor);
	thread->bufs = NULL;
	thread->reactor = NULL;
}

static void *thread_main(void *arg)
{
	struct lpi_thread *thread = arg;
	char name[16];
	(void)snprintf(name, sizeof(name), "lapisd-%u", thread->idx);
	(void)pthread_setname_np(pthread_self(), name); /* for display only */
	int err = lp_reactor_start(thread->reactor);
	LP_ASSERT(err == 0); /* made for this thread, and not started before */
	while (true) {
		lp_reactor_run(thread->reactor);
		struct lpi_errand *errand = thread->outside;
		if (errand == NULL)
			return NULL;
		thread->outside = NULL;
		thread->outside_run(thread, errand);
	}
}

int lpi_thread_start(struct lpi_thread *thread)
{
	int err = -pthread_create(&thread->pthread, NULL, thread_main, thread);
	thread->is_running = err == 0;
	return err;
}

void lpi_thread_join(struct lpi_thread *thread)
{
	if (!thread->is_running)
		return;
	lp_reactor_stop(thread->reactor);
	int err = pthread_join(thread->pthread, NULL);
	LP_ASSERT(err == 0);
	thread->is_running = false;
}

static void do_outside(struct lpi_errand *errand,
		       void (*run)(struct lpi_thread *thread, struct lpi_errand *errand))
{
	struct lpi_thread *thread = errand->thread;
	LP_ASSERT(thread->outside == NULL);
	thread->outside = errand;
	thread->outside_run = run;
	lp_reactor_stop(thread->reactor);
}

/* A shard has ended its part of the errand. */
static void shard_done(struct lpi_shard *shard, int result)
{
	struct lpi_thread *thread = shard->thread;
	struct lpi_errand *errand = shard->wait;
	LP_ASSERT(thread->left > 0);
	if (thread->result == 0)
		thread->result = result;
	shard->wait = NULL;
	if (--thread->left == 0)
		lpi_errand_end(errand, thread->result);
}

static void wait_for_all(struct lpi_errand *errand)
{
	struct lpi_thread *thread = errand->thread;
	LP_ASSERT(thread->left == 0);
	thread->left = shards_on(thread);
	thread->result = 0;
	for (struct lpi_shard *s = lpi_thread_next(thread, NULL); s; s = lpi_thread_next(thread, s))
		s->wait = errand;
}

/* --- Opening ---------------------------------------------------------------------------------- */

static void store_told(struct lp_reactor *to, struct lp_msg *msg)
{
	struct lpi_told *told = LP_CONTAINER_OF(msg, struct lpi_told, msg);
	(void)to;
	told->thread->service->calls->look(told->thread->service);
}

/* The store has failed (rule L7), or has been opened as far as possible. */
static void store_tells(struct lp_store_events *events, const struct lp_store_health *health)
{
	struct lpi_shard *shard = LP_CONTAINER_OF(events, struct lpi_shard, store_events);
	struct lpi_thread *thread = shard->thread;
	/* A store reaches each state once, so this report is not under way. */
	struct lpi_told *told = &shard->told[health->state];
	LP_ASSERT(told->thread == NULL);
	*told = (struct lpi_told){.msg = {.deliver = store_told}, .thread = thread};
	lpi_health_tell(shard->idx, health);
	lp_reactor_send(thread->reactor, thread->service->reactor, &told->msg);
}

static void store_is_damaged(struct lp_store_events *events, struct lp_ino ino, uint64_t offset,
			     int err)
{
	struct lpi_shard *shard = LP_CONTAINER_OF(events, struct lpi_shard, store_events);
	lpi_damage_note(&shard->damage, ino, offset, err);
}

/* The data has buffers of its own. In the buffers that requests pass through it would leave none
 * for the next request. That request would wait for ever, and would not be told that the store is
 * full. */
static int open_mem(struct lpi_shard *shard, const struct lp_store_options *options)
{
	struct lp_store_options own = *options;
	int err = lp_bufs_new(shard->thread->service->memory.mem_bytes, &shard->space);
	own.bufs = shard->space;
	return err < 0 ? err : lp_store_open_mem(&own, &shard->store);
}

/* Requests for this shard's objects fail; the other shards serve. */
static int open_lost(struct lpi_shard *shard, const struct lp_store_options *options, int why,
		     const char *reason)
{
	struct lp_store_health health;
	int err = lp_store_open_lost(options, why, reason, &shard->store);
	if (err < 0)
		return err;
	lp_store_read_health(shard->store, &health);
	lpi_health_tell(shard->idx, &health);
	return 0;
}

static int open_store(struct lpi_thread *thread, struct lpi_shard *shard)
{
	struct lp_service *service = thread->service;
	const struct lp_config *config = &thread->config;
	const struct lp_store_options options = {
		.reactor = thread->reactor,
		.workers = service->workers,
		.devices = lpi_service_has_devices(service) ? &service->devices : NULL,
		.bufs = thread->bufs,
		.shard_idx = shard->idx,
		.alloc_kind = (enum lp_alloc_kind)lp_config_number(config, LP_OPT_ALLOCATOR),
		.memory_bytes = service->memory.store_bytes,
		.data_cache_bytes = service->memory.data_cache_bytes,
		.deferred_blocks_max = service->memory.deferred_blocks,
		.deferred_store =
			(enum lp_deferred_store)lp_config_number(config, LP_OPT_DEFERRED_STORE),
		.write_path = (enum lp_write_path)lp_config_number(config, LP_OPT_WRITE_PATH),
		.hold_ns = lp_config_text(config, LP_OPT_MOUNT) == NULL ? 0 : HOLD_NS,
		.read_only = lpi_service_is_degraded(service),
		.events = &shard->store_events};
	shard->store_events.health = store_tells;
	shard->store_events.damaged = store_is_damaged;
	const struct lp_store_file_options file = {.dir = &service->file_dir};
	int err;
	if (service->is_mem)
		err = open_mem(shard, &options);
	else if (service->is_file)
		err = lp_store_open_file(&options, &file, &shard->store);
	else
		err = lp_store_open(&options, &shard->store);
	if (err == 0)
		return 0;
	const struct lp_corruption *found = lp_corruption_find(0);
	bool is_corrupt = (err == -EBADMSG || err == -EUCLEAN) && found != NULL;
	const char *reason = is_corrupt ? found->what : lp_strerror(err);
	/* It is damaged, or the device cannot read it. */
	if (options.read_only && err != -ENOMEM)
		return open_lost(shard, &options, err, reason);
	return lpi_refuse(thread->why, err, "shard %u cannot be opened: %s%s", shard->idx, reason,
			  is_corrupt && !service->is_file ? DAMAGED_ADVICE : "");
}

static int open_shard(struct lpi_thread *thread, struct lpi_shard *shard)
{
	int err = open_store(thread, shard);
	if (err < 0)
		return err;
	struct lp_ns_options options = {
		.reactor = thread->reactor,
		.store = shard->store,
		.bufs = thread->bufs,
		.shard_idx = shard->idx,
		.shard_cnt = thread->service->shard_cnt,
		.read_only = lpi_service_is_degraded(thread->service),
		.seed = (uint64_t)lp_clock_wall_ns(lp_reactor_clock(thread->reactor)) + shard->idx};
	err = lp_ns_open(&options, &shard->ns);
	if (err < 0)
		return lpi_refuse(thread->why, err, "shard %u: its namespace cannot be opened: %s",
				  shard->idx, lp_strerror(err));
	thread->service->peers[shard->idx] = shard->ns;
	return 0;
}

static void open_outside(struct lpi_thread *thread, struct lpi_errand *errand)
{
	int err = 0;
	lpi_resident_init(&thread->resident, thread->reactor, thread->bufs,
			  lpi_service_has_devices(thread->service), thread->idx);
	for (struct lpi_shard *s = lpi_thread_next(thread, NULL); s && err == 0;
	     s = lpi_thread_next(thread, s))
		err = open_shard(thread, s);
	lpi_errand_end(errand, err);
}

void lpi_thread_open(struct lpi_errand *errand)
{
	do_outside(errand, open_outside);
}

/* --- Serving ---------------------------------------------------------------------------------- */

struct handover {
	struct lp_msg msg;
	struct lpi_shard *shard;
	int fd;
	struct lp_peer peer;
	uint32_t read;
	uint8_t head[];
};

static void handover_come(struct lp_reactor *to, struct lp_msg *msg)
{
	struct handover *handover = LP_CONTAINER_OF(msg, struct handover, msg);
	struct lpi_shard *shard = handover->shard;
	(void)to;
	if (shard->door == NULL || shard->is_stopping) {
		(void)close(handover->fd); /* nothing was written */
	} else if (lp_door_adopt(shard->door, handover->fd, &handover->peer, handover->head,
				 handover->read) == -ENOMEM) {
		/* If there is no place, the door logs it. */
		LP_LOG_WARN("%s is turned away: no memory", handover->peer.address);
	}
	free(handover);
}

void lpi_shard_give(struct lp_reactor *from, struct lpi_shard *shard, int fd,
		    const struct lp_peer *peer, const uint8_t *head, uint32_t read)
{
	struct handover *handover = malloc(sizeof(*handover) + read);
	if (handover == NULL) {
		(void)close(fd); /* nothing was written: the client may try again */
		return;
	}
	*handover = (struct handover){.msg = {.deliver = handover_come},
				      .shard = shard,
				      .fd = fd,
				      .peer = *peer,
				      .read = read};
	if (read > 0)
		memcpy(handover->head, head, read);
	lp_reactor_send(from, shard->thread->reactor, &handover->msg);
}

static void door_hands_over(void *arg, uint32_t shard_idx, int fd, const struct lp_peer *peer,
			    const uint8_t *head, uint32_t read)
{
	struct lpi_shard *shard = arg;
	struct lp_service *service = shard->thread->service;
	LP_ASSERT(shard_idx < service->shard_cnt);
	lpi_shard_give(shard->thread->reactor, &service->shards[shard_idx], fd, peer, head, read);
}

static void door_asks(void *arg, struct lp_admin *admin)
{
	struct lpi_shard *shard = arg;
	shard->thread->service->calls->ask(shard, admin);
}

/* At most as many as the process may have files. Otherwise the listener would wait for a
 * descriptor, and no client could connect. */
static uint32_t conns_max(const struct lpi_thread *thread)
{
	struct rlimit limit;
	uint64_t wanted = lp_config_number(&thread->config, LP_OPT_CONNECTIONS_MAX);
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return (uint32_t)wanted;
	/* A store in files has open files, too. */
	uint64_t kept = thread->service->is_file ? limit.rlim_cur / 2 : FILES_KEPT;
	uint64_t most = (limit.rlim_cur - LP_MIN(kept, (uint64_t)limit.rlim_cur)) /
			thread->service->shard_cnt;
	return (uint32_t)LP_MIN(wanted, LP_MAX(most, UINT64_C(1)));
}

static int open_door(struct lpi_shard *shard)
{
	struct lpi_thread *thread = shard->thread;
	struct lp_service *service = thread->service;
	const struct lp_config *config = &thread->config;
	struct lp_door_options options = {
		.reactor = thread->reactor,
		.bufs = thread->bufs,
		.bufs_bytes = service->memory.bufs_bytes,
		.share_bytes = service->memory.share_bytes,
		.ns = shard->ns,
		.shard_idx = shard->idx,
		.shard_cnt = service->shard_cnt,
		.server_name = service->options.server_name,
		.bdev = service->bdev[LP_ROLE_DATA],
		.conns_max = conns_max(thread),
		.opens_max = (uint32_t)lp_config_number(config, LP_OPT_OPENS_MAX),
		.share_percent = (uint32_t)lp_config_number(config, LP_OPT_USER_SHARE),
		.requests_max = (uint32_t)lp_config_number(config, LP_OPT_REQUESTS_MAX),
		.credits_max = (uint32_t)lp_config_number(config, LP_OPT_CREDITS),
		.credit_bytes_max = lp_config_number(config, LP_OPT_CREDIT_BYTES),
		.crc_min = (enum lp_wire_crc)lp_config_number(config, LP_OPT_CRC),
		.send_timeout_ns = lp_config_number(config, LP_OPT_SEND_TIMEOUT) * LP_NS_PER_S,
		.without_batching = lp_config_number(config, LP_OPT_REPLIES) != 0,
		.without_pool = lp_config_number(config, LP_OPT_REQUEST_MEMORY) != 0,
		.hand_over = door_hands_over,
		.admin = door_asks,
		.arg = shard};
	memcpy(options.store_uuid, service->store_uuid, sizeof(options.store_uuid));
	int err = lp_door_new(&options, &shard->door);
	if (err < 0)
		return lpi_refuse(thread->why, err, "shard %u: no door: %s", shard->idx,
				  lp_strerror(err));
	return 0;
}

static int begin_scrubbing(struct lpi_shard *shard)
{
	struct lpi_thread *thread = shard->thread;
	int err = lpi_scrubbing_begin(&shard->scrubbing, thread->reactor, shard->store, shard->idx);
	if (err == 0)
		err = lpi_damage_begin(&shard->damage, thread->reactor, shard->store, shard->ns,
				       shard->idx);
	if (err < 0)
		return lpi_refuse(thread->why, err, "shard %u: %s", shard->idx, lp_strerror(err));
	shard->scrubbing.damage = &shard->damage;
	lpi_scrubbing_configure(&shard->scrubbing, &thread->config, thread->service->shard_cnt);
	return 0;
}

static void ns_ready(struct lp_ns *ns, int result, void *arg)
{
	struct lpi_shard *shard = arg;
	(void)ns;
	shard->ns_serves = result >= 0;
	if (result < 0)
		(void)lpi_refuse(
			shard->thread->why, result,
			"shard %u: cannot finish the changes that a crash left unfinished: %s",
			shard->idx, lp_strerror(result));
	else
		result = open_door(shard);
	if (result == 0)
		result = begin_scrubbing(shard);
	shard_done(shard, result);
}

void lpi_thread_begin(struct lpi_errand *errand)
{
	struct lpi_thread *thread = errand->thread;
	wait_for_all(errand);
	for (struct lpi_shard *s = lpi_thread_next(thread, NULL); s; s = lpi_thread_next(thread, s))
		lp_ns_start(s->ns, thread->service->peers, ns_ready, s);
}

void lpi_thread_configure(struct lpi_errand *errand)
{
	struct lpi_thread *thread = errand->thread;
	const struct lp_config *config = &thread->config;
	int result = 0;
	/* The control thread waits for the end of this errand before it changes its own again. */
	thread->config = thread->service->config;
	for (struct lpi_shard *s = lpi_thread_next(thread, NULL); s;
	     s = lpi_thread_next(thread, s)) {
		uint64_t requests_max = lp_config_number(config, LP_OPT_REQUESTS_MAX);
		lp_store_set_write_path(
			s->store, (enum lp_write_path)lp_config_number(config, LP_OPT_WRITE_PATH));
		lp_store_set_deferred_store(s->store, (enum lp_deferred_store)lp_config_number(
							      config, LP_OPT_DEFERRED_STORE));
		lp_door_set_credits(s->door, (uint32_t)lp_config_number(config, LP_OPT_CREDITS),
				    lp_config_number(config, LP_OPT_CREDIT_BYTES));
		lp_door_set_share_percent(s->door,
					  (uint32_t)lp_config_number(config, LP_OPT_USER_SHARE));
		lp_door_set_limits(s->door, conns_max(thread),
				   lp_config_number(config, LP_OPT_SEND_TIMEOUT) * LP_NS_PER_S,
				   (enum lp_wire_crc)lp_config_number(config, LP_OPT_CRC));
		lpi_scrubbing_configure(&s->scrubbing, config, thread->service->shard_cnt);
		int r = lp_door_set_requests_max(s->door, (uint32_t)requests_max);
		result = r < 0 ? r : result;
	}
	lpi_errand_end(errand, result);
}

/* --- How it is -------------------------------------------------------------------------------- */

/* Logs slow requests that ended since the last look: of a shard's door, or of the thread's part of
 * the mount. */
static void tell_slow(const struct lpi_thread *thread, const char *door, uint32_t idx,
		      const struct lp_slow_request *slow, uint32_t cnt, uint64_t *seen_ns)
{
	uint64_t least_ns = lp_config_number(&thread->config, LP_OPT_SLOW_MS) * LP_NS_PER_MS;
	uint64_t last_ns = *seen_ns;
	for (uint32_t i = 0; i < cnt && least_ns > 0; i++) {
		uint64_t ended_ns = slow[i].began_ns + slow[i].took_ns;
		if (slow[i].took_ns < least_ns || ended_ns <= *seen_ns)
			continue;
		last_ns = LP_MAX(last_ns, ended_ns);
		LP_LOG_WARN("%s %u: slow: %s of %s took %llu ms", door, idx,
			    lpi_report_slow_op(&slow[i]), slow[i].object,
			    (unsigned long long)(slow[i].took_ns / LP_NS_PER_MS));
	}
	*seen_ns = last_ns;
}

static void tell_slow_shard(struct lpi_shard *shard)
{
	struct lp_slow_request slow[LP_SLOW_MAX];
	uint32_t cnt = lp_door_slow(shard->door, slow, LP_SLOW_MAX);
	tell_slow(shard->thread, "shard", shard->idx, slow, cnt, &shard->slow_seen_ns);
}

static void tell_slow_mount(struct lpi_thread *thread)
{
	struct lp_slow_request slow[LP_SLOW_MAX];
	struct lp_fuse_channel *channel = thread->service->mount.channels[thread->idx];
	if (channel == NULL)
		return;
	uint32_t cnt = lp_fuse_channel_slow(channel, slow, LP_SLOW_MAX);
	tell_slow(thread, "the mount, thread", thread->idx, slow, cnt, &thread->slow_seen_ns);
}

/* Operations that have ended on the shard, and work of its devices. */
static uint64_t movements_of(struct lpi_shard *shard)
{
	struct lp_ns_stats names;
	struct lp_store_stats store;
	uint64_t sum = 0;
	lp_ns_read_stats(shard->ns, &names);
	lp_store_read_stats(shard->store, &store);
	for (uint32_t i = 0; i < LP_NS_OPCODE_CNT; i++)
		sum += names.ops[i];
	for (uint32_t i = 0; i < LP_STORE_OPCODE_CNT; i++)
		sum += store.ops[i];
	return sum + store.log_writes + store.data_writes + store.data_reads + store.index_reads +
	       store.flushes + store.index_flushes + store.index_compactions;
}

static void look_at_movement(struct lpi_thread *thread, struct lpi_look *look)
{
	struct lp_fuse_channel *channel = thread->service->mount.channels[thread->idx];
	struct lp_under_way_list none = {.max = 0};
	for (struct lpi_shard *s = lpi_thread_next(thread, NULL); s; s = lpi_thread_next(thread, s))
		look->under_way += lp_door_under_way(s->door, &none);
	if (channel != NULL) {
		struct lp_fuse_channel_stats stats;
		lp_fuse_channel_read_stats(channel, &stats);
		look->under_way += stats.under_way;
	}
	for (struct lpi_shard *s = lpi_thread_next(thread, NULL); s; s = lpi_thread_next(thread, s))
		look->moved += movements_of(s);
}

/* Only requests count: a check of all data is not a load, and needs no cache. */
static bool is_at_rest(struct lpi_thread *thread, uint64_t under_way)
{
	uint64_t idle_s = lp_config_number(&thread->config, LP_OPT_MEMORY_IDLE);
	struct lpi_resident_look look = {.idle_ns = idle_s * LP_NS_PER_S,
					 .is_short = thread->is_short,
					 .under_way = under_way};
	for (struct lpi_shard *s = lpi_thread_next(thread, NULL); s;
	     s = lpi_thread_next(thread, s)) {
		struct lp_ns_stats names;
		lp_ns_read_stats(s->ns, &names);
		for (uint32_t i = 0; i < LP_NS_OPCODE_CNT; i++)
			look.moved += names.ops[i];
	}
	return lpi_resident_look(&thread->resident, &look);
}

static void give_back(struct lpi_thread *thread, struct lpi_look *look)
{
	struct lp_fuse_channel *channel = thread->service->mount.channels[thread->idx];
	if (!is_at_rest(thread, look->under_way))
		return;
	if (channel != NULL)
		lp_fuse_channel_rest(channel);
	for (struct lpi_shard *s = lpi_thread_next(thread, NULL); s;
	     s = lpi_thread_next(thread, s)) {
		lp_door_rest(s->door);
		lp_ns_rest(s->ns);
		look->given_back |= lp_store_rest(s->store);
	}
}

void lpi_thread_look(struct lpi_errand *errand)
{
	struct lpi_thread *thread = errand->thread;
	const struct lp_reactor_stats *stats = lp_reactor_stats(thread->reactor);
	struct lpi_look look = {.absences = stats->absences - thread->absences_seen,
				.away_max_ns = stats->absence_max_ns};
	thread->absences_seen = stats->absences;
	look_at_movement(thread, &look);
	give_back(thread, &look);
	tell_slow_mount(thread);
	for (struct lpi_shard *s = lpi_thread_next(thread, NULL); s;
	     s = lpi_thread_next(thread, s)) {
		struct lp_store_health health;
		struct lp_ns_stats names;
		lp_store_set_lost_bytes(s->store, thread->lost_bytes);
		lp_store_read_health(s->store, &health);
		lp_ns_read_stats(s->ns, &names);
		look.stuck += names.stuck;
		tell_slow_shard(s);
		lpi_scrubbing_look(&s->scrubbing);
		lpi_damage_look(&s->damage);
		look.damaged += lpi_damage_cnt(&s->damage);
		look.has_more_damaged |= lpi_damage_is_full(&s->damage);
		if (s->idx != thread->idx && health.state <= look.store.state)
			continue;
		look.store = health;
		look.shard_idx = s->idx;
	}
	thread->looked = look;
	lpi_errand_end(errand, 0);
}

/* --- Stopping --------------------------------------------------------------------------------- */

static void names_not_asked(void *arg)
{
	shard_done(arg, 0);
}

static void door_stopped(void *arg)
{
	struct lpi_shard *shard = arg;
	lpi_damage_quiet(&shard->damage, names_not_asked, shard);
}

void lpi_thread_stop_doors(struct lpi_errand *errand)
{
	struct lpi_thread *thread = errand->thread;
	uint64_t timeout_ns = lp_config_number(&thread->config, LP_OPT_STOP_TIMEOUT) * LP_NS_PER_S;
	wait_for_all(errand);
	struct lpi_shard *shard = lpi_thread_next(thread, NULL);
	while (shard != NULL) {
		struct lpi_shard *next = lpi_thread_next(thread, shard);
		shard->is_stopping = true;
		if (shard->door != NULL)
			lp_door_stop(shard->door, timeout_ns, door_stopped, shard);
		else
			door_stopped(shard);
		shard = next;
	}
}

static void damage_stopped(void *arg)
{
	shard_done(arg, 0);
}

static void scrubbing_stopped(void *arg)
{
	struct lpi_shard *shard = arg;
	lpi_damage_stop(&shard->damage, damage_stopped, shard);
}

static void ns_stopped(struct lp_ns *ns, void *arg)
{
	struct lpi_shard *shard = arg;
	(void)ns;
	lpi_scrubbing_stop(&shard->scrubbing, scrubbing_stopped, shard);
}

void lpi_thread_stop_ns(struct lpi_errand *errand)
{
	struct lpi_thread *thread = errand->thread;
	wait_for_all(errand);
	struct lpi_shard *shard = lpi_thread_next(thread, NULL);
	while (shard != NULL) {
		struct lpi_shard *next = lpi_thread_next(thread, shard);
		if (shard->ns_serves)
			lp_ns_stop(shard->ns, ns_stopped, shard);
		else
			shard_done(shard, 0);
		shard = next;
	}
}

static int close_shard(struct lpi_shard *shard)
{
	int err = 0;
	if (shard->store != NULL) {
		lp_door_free(shard->door);
		lpi_scrubbing_fini(&shard->scrubbing);
		lpi_damage_fini(&shard->damage);
		lp_ns_close(shard->ns);
		err = lp_store_close(shard->store, !shard->ns_serves);
	}
	lp_bufs_free(shard->space);
	shard->door = NULL;
	shard->ns = NULL;
	shard->store = NULL;
	shard->space = NULL;
	if (err < 0)
		LP_LOG_ERROR("shard %u: cannot be closed cleanly: %s (the next start recovers it "
			     "from its log)",
			     shard->idx, lp_strerror(err));
	return err;
}

static void close_outside(struct lpi_thread *thread, struct lpi_errand *errand)
{
	int result = 0;
	for (struct lpi_shard *s = lpi_thread_next(thread, NULL); s;
	     s = lpi_thread_next(thread, s)) {
		int err = close_shard(s);
		result = result == 0 ? err : result;
	}
	lpi_resident_fini(&thread->resident);
	lpi_errand_end(errand, result);
}

void lpi_thread_close(struct lpi_errand *errand)
{
	do_outside(errand, close_outside);
}
