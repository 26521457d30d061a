/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the service, in phases; a phase is one errand for each thread, and the next begins
 * when all have ended theirs.
 *
 *   open     stores and namespaces are opened
 *   begin    what a crash left is ended; doors are made
 *   mount    if there is to be one (mount.h); then: ready, sockets are answered
 *   unmount  the mount's users have gone, or were left behind
 *   doors    no new requests; those under way are answered, then connections are closed
 *   names    the namespace has nothing under way
 *   close    stores are closed, all is durable; then the threads end
 *
 * A stop takes effect between phases. After a failed phase the last three phases end all parts that
 * were made: one shard may have its door when another has none. */
#include "daemon/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "daemon/admin.h"
#include "daemon/checking.h"
#include "daemon/http.h"
#include "daemon/reload.h"
#include "daemon/resolve.h"
#include "daemon/service_impl.h"

#define FILES_MAX    8u
#define IDLE_LOOK_NS (10 * LP_NS_PER_MS)

static void close_down(struct lp_service *service);

struct lp_reactor *lp_service_reactor(struct lp_service *service)
{
	return service->reactor;
}

/* --- Health ----------------------------------------------------------------------------------- */

static void judge(struct lp_service *service)
{
	struct lpi_look looks[LPI_THREADS_MAX];
	uint64_t asked_ns[LPI_THREADS_MAX];
	uint64_t timeout_s = lp_config_number(&service->config, LP_OPT_DEVICE_TIMEOUT);
	for (uint32_t i = 0; i < service->thread_cnt; i++) {
		asked_ns[i] = service->threads[i].asked_ns;
		looks[i] = service->threads[i].known;
	}
	lpi_health_judge(&service->health, looks, asked_ns, service->thread_cnt,
			 timeout_s * LP_NS_PER_S);
}

static void look_done(struct lpi_errand *errand);

static void ask_thread(struct lpi_thread *thread)
{
	thread->asked_ns = lp_reactor_now_ns(thread->service->reactor);
	thread->look_again = false;
	thread->lost_bytes = thread->service->giveback.lost_bytes / thread->service->shard_cnt;
	thread->is_short = lpi_giveback_is_short(&thread->service->giveback);
	thread->look.run = lpi_thread_look;
	thread->look.done = look_done;
	lpi_errand_start(thread, &thread->look);
}

static void look_done(struct lpi_errand *errand)
{
	struct lpi_thread *thread = LP_CONTAINER_OF(errand, struct lpi_thread, look);
	thread->asked_ns = 0;
	thread->known = thread->looked;
	if (thread->service->state != LPI_SERVICE_SERVING)
		return;
	if (thread->look_again)
		ask_thread(thread);
	judge(thread->service);
}

static void look_now(struct lp_service *service)
{
	if (service->state != LPI_SERVICE_SERVING)
		return;
	for (uint32_t i = 0; i < service->thread_cnt; i++) {
		struct lpi_thread *thread = &service->threads[i];
		if (thread->asked_ns == 0)
			ask_thread(thread);
		else
			/* Its answer may be older than the report. */
			thread->look_again = true;
	}
}

static void look(struct lp_timer *timer)
{
	struct lp_service *service = LP_CONTAINER_OF(timer, struct lp_service, look_timer);
	uint64_t now_ns = lp_reactor_now_ns(service->reactor);
	judge(service);
	lpi_health_ask(&service->health);
	bool has_given = false;
	for (uint32_t i = 0; i < service->thread_cnt; i++)
		has_given |= service->threads[i].known.given_back;
	lpi_giveback_rest(&service->giveback, has_given, service->workers, service->reactor);
	lpi_giveback_look(&service->giveback, service->workers, service->reactor);
	for (uint32_t i = 0; i < service->thread_cnt; i++) {
		if (service->threads[i].asked_ns == 0)
			ask_thread(&service->threads[i]);
	}
	lp_timer_start(service->reactor, &service->look_timer, now_ns + LPI_HEALTH_LOOK_NS);
}

/* --- Serving ---------------------------------------------------------------------------------- */

static void accepted(void *arg, int fd, const struct lp_peer *peer)
{
	struct lp_service *service = arg;
	struct lpi_shard *shard = &service->shards[service->next_shard];
	service->next_shard = (service->next_shard + 1) % service->shard_cnt;
	lpi_shard_give(service->reactor, shard, fd, peer, NULL, 0);
}

static int start_listeners(struct lp_service *service)
{
	for (uint32_t i = 0; i < service->listener_cnt; i++) {
		struct lp_listener *listener = service->listeners[i];
		int err = lp_listener_start(listener, service->reactor, accepted, service);
		if (err < 0)
			return lpi_refuse(service->why, err, "%s: %s", lp_listener_name(listener),
					  lp_strerror(err));
		LP_LOG_NOTICE("listening on %s", lp_listener_name(listener));
		if (!lp_listener_is_unix(listener))
			LP_LOG_WARN("%s: any program on this machine can connect (there is no "
				    "authentication)",
				    lp_listener_name(listener));
	}
	return service->http == NULL ? 0 : lpi_http_start(service->http);
}

static void serve(struct lp_service *service, int result)
{
	if (result == 0 && !service->stop_wanted)
		result = start_listeners(service);
	service->phase.result = result;
	if (result < 0 || service->stop_wanted) {
		close_down(service);
		return;
	}
	service->state = LPI_SERVICE_SERVING;
	uint64_t took_ns = lp_reactor_now_ns(service->reactor) - service->began_ns;
	LP_LOG_NOTICE("%s serves %u shard%s on %u thread%s, opened in %.3f s",
		      service->options.server_name, service->shard_cnt,
		      service->shard_cnt == 1 ? "" : "s", service->thread_cnt,
		      service->thread_cnt == 1 ? "" : "s", (double)took_ns / 1e9);
	/* Free memory that opening left in the allocator is given back with the next look. */
	lpi_giveback_rest(&service->giveback, true, service->workers, service->reactor);
	look(&service->look_timer);
	service->options.ready(service->options.arg);
}

static void mount(struct lp_service *service)
{
	if (service->phase.result < 0 || service->stop_wanted)
		close_down(service);
	else
		lpi_mount_start(service, serve);
}

static void begin(struct lp_service *service)
{
	if (service->phase.result < 0 || service->stop_wanted)
		close_down(service);
	else
		lpi_run_phase(service, lpi_thread_begin, mount);
}

/* --- Stopping --------------------------------------------------------------------------------- */

static bool is_idle(const struct lp_service *service)
{
	for (uint32_t i = 0; i < service->listener_cnt; i++) {
		if (!lp_listener_is_idle(service->listeners[i]))
			return false;
	}
	for (uint32_t i = 0; i < service->thread_cnt; i++) {
		if (service->threads[i].asked_ns != 0)
			return false;
	}
	return lpi_gather_is_idle(service->gather) && lpi_health_is_idle(&service->health) &&
	       lpi_giveback_is_idle(&service->giveback) &&
	       (service->http == NULL || lpi_http_is_idle(service->http));
}

static void end_when_idle(struct lp_timer *timer)
{
	struct lp_service *service = LP_CONTAINER_OF(timer, struct lp_service, idle_timer);
	if (is_idle(service)) {
		service->state = LPI_SERVICE_ENDED;
		lp_reactor_stop(service->reactor);
		return;
	}
	lp_timer_start(service->reactor, timer, lp_reactor_now_ns(service->reactor) + IDLE_LOOK_NS);
}

static void all_closed(struct lp_service *service)
{
	if (service->result == 0)
		service->result = service->phase.result;
	if (service->result == 0 && service->mount.is_dead && service->listener_cnt == 0)
		service->result = lpi_refuse(service->why, -ENOTCONN,
					     "the mount's connection has ended, by no unmount");
	for (uint32_t i = 0; i < service->thread_cnt; i++)
		lpi_thread_join(&service->threads[i]);
	end_when_idle(&service->idle_timer);
}

static void close_stores(struct lp_service *service)
{
	lpi_run_phase(service, lpi_thread_close, all_closed);
}

static void stop_names(struct lp_service *service)
{
	lpi_run_phase(service, lpi_thread_stop_ns, close_stores);
}

static void stop_listeners(struct lp_service *service)
{
	for (uint32_t i = 0; i < service->listener_cnt; i++)
		lp_listener_stop(service->listeners[i]);
	if (service->http != NULL)
		lpi_http_stop(service->http);
	lp_timer_stop(service->reactor, &service->look_timer);
}

static void stop_doors(struct lp_service *service, int result)
{
	(void)result; /* the mount's result was logged at its start */
	lpi_run_phase(service, lpi_thread_stop_doors, stop_names);
}

static void stop_mount(struct lp_service *service)
{
	lpi_mount_stop(service, stop_doors);
}

/* Called between two phases, or while serving. */
static void close_down(struct lp_service *service)
{
	service->state = LPI_SERVICE_STOPPING;
	service->result = service->phase.result;
	stop_listeners(service);
	lpi_checking_stop(service->checking, stop_mount);
}

void lp_service_stop(struct lp_service *service)
{
	if (service->stop_wanted)
		return;
	service->stop_wanted = true;
	service->options.stopping(service->options.arg);
	if (service->state == LPI_SERVICE_SERVING)
		close_down(service);
}

bool lp_service_reload(struct lp_service *service, const struct lp_config *config)
{
	if (service->state != LPI_SERVICE_SERVING)
		return false;
	lpi_reload_begin(service->reload, config);
	return true;
}

/* --- Opening ---------------------------------------------------------------------------------- */

static int check_config(const struct lp_config *config, char *why)
{
	uint64_t kind = lp_config_number(config, LP_OPT_STORE);
	bool is_mem = kind == LPI_STORE_MEM;
	const char *device = lp_config_text(config, LP_OPT_DEVICE);
	const char *mount_options = lp_config_text(config, LP_OPT_MOUNT_OPTIONS);
	if (mount_options != NULL && lp_config_text(config, LP_OPT_MOUNT) == NULL)
		return lpi_refuse(why, -EINVAL, "--mount-options needs --mount");
	if (lp_fuse_options_check(mount_options, why) < 0)
		return -EINVAL;
	if (is_mem && device != NULL)
		return lpi_refuse(why, -EINVAL, "%s: --store mem takes no DEVICE", device);
	if (!is_mem && device == NULL)
		return lpi_refuse(why, -EINVAL, "no %s given (see lapisd --help)",
				  kind == LPI_STORE_FILE ? "directory" : "DEVICE");
	if (kind == LPI_STORE_BLOCK && lp_config_number(config, LP_OPT_SHARDS) != 0)
		return lpi_refuse(
			why, -EINVAL,
			"--shards works only for --store mem and file (lapis mkfs --shards "
			"sets it for a device)");
	if (kind != LPI_STORE_BLOCK && (lp_config_text(config, LP_OPT_DB) != NULL ||
					lp_config_text(config, LP_OPT_WAL) != NULL))
		return lpi_refuse(why, -EINVAL, "--db and --wal work only for --store block");
	if (lp_config_text(config, LP_OPT_LISTEN) == NULL &&
	    lp_config_text(config, LP_OPT_MOUNT) == NULL)
		return lpi_refuse(
			why, -EINVAL,
			"no address to listen on (give --listen unix:PATH or tcp:HOST:PORT)");
	return 0;
}

static uint32_t cpu_cnt(void)
{
	long cnt = sysconf(_SC_NPROCESSORS_ONLN);
	return cnt < 1 ? 1 : (uint32_t)LP_MIN(cnt, (long)LPI_SERVICE_SHARDS_MAX);
}

static void choose_threads(struct lp_service *service)
{
	uint32_t wanted = (uint32_t)lp_config_number(&service->config, LP_OPT_THREADS);
	service->thread_cnt = LP_MIN(wanted == 0 ? cpu_cnt() : wanted, service->shard_cnt);
	for (uint32_t i = 0; i < service->shard_cnt; i++) {
		service->shards[i].idx = i;
		service->shards[i].thread = NULL;
	}
}

/* Makes a store in an empty directory. */
static int open_file_dir(struct lp_service *service, uint32_t wanted, char *why)
{
	char reason[LP_FILE_DIR_WHY_MAX];
	const struct lp_file_dir_options options = {
		.path = lp_config_text(&service->config, LP_OPT_DEVICE),
		.shard_cnt = wanted,
		.default_shard_cnt = cpu_cnt()};
	int err = lp_file_dir_open(&options, &service->file_dir, reason);
	if (err < 0)
		return lpi_refuse(why, err, "%s", reason);
	service->shard_cnt = service->file_dir.shard_cnt;
	memcpy(service->store_uuid, service->file_dir.uuid, sizeof(service->store_uuid));
	return 0;
}

/* A service with many shards takes as much memory as they need, unless --memory was given. */
static uint64_t choose_memory(struct lp_service *service)
{
	uint64_t *bytes = &service->config.values[LP_OPT_MEMORY].number;
	if (!lp_config_is_given(&service->config, LP_OPT_MEMORY))
		*bytes = LP_MAX(*bytes, LPI_SHARD_MEMORY_MIN * service->shard_cnt);
	lpi_giveback_init(&service->giveback, *bytes);
	return *bytes;
}

static int open_store(struct lp_service *service, char *why)
{
	uint32_t wanted = (uint32_t)lp_config_number(&service->config, LP_OPT_SHARDS);
	int err = 0;
	if (service->is_file)
		err = open_file_dir(service, wanted, why);
	else if (!service->is_mem)
		err = lpi_service_open_devices(service, why);
	else
		service->shard_cnt = wanted == 0 ? cpu_cnt() : wanted;
	if (err < 0)
		return err;
	choose_threads(service);
	return lpi_service_divide_memory(choose_memory(service), service->shard_cnt,
					 lpi_mount_wants_ring(&service->config), &service->memory,
					 why);
}

static int open_listener(struct lp_service *service, const char *text,
			 const struct lp_access *access, char *why)
{
	struct lp_listener_options options = {
		.mode = (mode_t)lp_config_number(&service->config, LP_OPT_SOCKET_MODE),
		.uid = service->options.uid,
		.gid = service->options.gid,
		.access = *access,
		.buffer_bytes = (uint32_t)lp_config_number(&service->config, LP_OPT_SOCKET_BUFFER),
		.waits_for_acks = lp_config_number(&service->config, LP_OPT_TCP_NODELAY) != 0};
	if (service->listener_cnt == LPI_LISTENERS_MAX)
		return lpi_refuse(why, -E2BIG, "more than %u addresses", LPI_LISTENERS_MAX);
	int err = lp_address_parse(text, &options.address, why);
	if (err == 0)
		err = lp_listener_open(&options, &service->listeners[service->listener_cnt], why);
	if (err == 0)
		service->listener_cnt++;
	return err;
}

static int open_listeners(struct lp_service *service, char *why)
{
	char text[LP_CONFIG_TEXT_MAX];
	struct lp_access access;
	size_t pos = 0;
	int err = lpi_resolve_access(&service->config, &access, why);
	while (err == 0 &&
	       lp_config_item(&service->config, LP_OPT_LISTEN, &pos, text, sizeof(text)))
		err = open_listener(service, text, &access, why);
	const char *metrics = lp_config_text(&service->config, LP_OPT_METRICS);
	if (err == 0 && metrics != NULL)
		err = lpi_http_new(service, metrics, &service->http, why);
	return err;
}

static void watch_devices(struct lp_service *service)
{
	lpi_health_watch_hosts(&service->health, service->workers);
	for (uint32_t i = 0; i < LP_ROLES && service->devices_open; i++) {
		const struct lp_disk_label *label = &service->devices.label[i];
		if (service->bdev[i] != NULL)
			lpi_health_set_needs(&service->health, i,
					     label->size_blocks * LP_BLOCK_BYTES);
	}
}

static int open_threads(struct lp_service *service, char *why)
{
	size_t threads_bytes = service->thread_cnt * sizeof(*service->threads);
	service->threads = aligned_alloc(_Alignof(struct lpi_thread), threads_bytes);
	if (service->threads == NULL)
		return lpi_refuse(why, -ENOMEM, "out of memory for threads");
	memset(service->threads, 0, threads_bytes);
	for (uint32_t i = 0; i < service->shard_cnt; i++)
		service->shards[i].thread = &service->threads[i % service->thread_cnt];
	for (uint32_t i = 0; i < service->thread_cnt; i++) {
		service->threads[i].service = service;
		service->threads[i].idx = i;
	}
	for (uint32_t i = 0; i < service->thread_cnt; i++) {
		int err = lpi_thread_new(&service->threads[i], why);
		if (err < 0)
			return err;
	}
	uint32_t workers = (uint32_t)lp_config_number(&service->config, LP_OPT_WORKERS);
	int err = lp_workers_new(workers, &service->workers);
	if (err == 0)
		err = lpi_gather_new(service, &service->gather);
	if (err == 0)
		err = lpi_checking_new(service, &service->checking);
	if (err == 0)
		err = lpi_health_init(&service->health, service->reactor, service->bdev);
	if (err == 0)
		watch_devices(service);
	return err < 0 ? lpi_refuse(why, err, "threads: %s", lp_strerror(err)) : 0;
}

static int open_reactor(struct lp_service *service, char *why)
{
	const struct lp_reactor_options options = {
		.name = "control", .ring = true, .files_max = FILES_MAX};
	int err = lp_reactor_new(&options, &service->reactor);
	if (err == 0)
		err = lp_reactor_start(service->reactor);
	if (err < 0)
		(void)lp_reactor_explain(err, why, LP_WHY_MAX);
	return err;
}

static const struct lpi_service_calls calls = {
	.look = look_now,
	.stop = lp_service_stop,
	.ask = lpi_admin_ask,
};

int lp_service_open(const struct lp_service_options *options, struct lp_service **ret_service,
		    char *why)
{
	int err = check_config(options->config, why);
	if (err < 0)
		return err;
	struct lp_service *service = calloc(1, sizeof(*service));
	if (service == NULL)
		return lpi_refuse(why, -ENOMEM, "no memory");
	service->options = *options;
	service->calls = &calls;
	service->config = *options->config;
	service->options.config = NULL;
	service->is_mem = lp_config_number(&service->config, LP_OPT_STORE) == LPI_STORE_MEM;
	service->is_file = lp_config_number(&service->config, LP_OPT_STORE) == LPI_STORE_FILE;
	service->file_dir.fd = -1;
	service->look_timer.fire = look;
	service->idle_timer.fire = end_when_idle;
	if (lpi_reload_new(service, options->config, &service->reload) < 0)
		err = lpi_refuse(why, -ENOMEM, "no memory");
	if (err == 0)
		err = open_reactor(service, why);
	if (err == 0)
		err = open_store(service, why);
	if (err == 0)
		err = open_threads(service, why);
	if (err == 0)
		err = open_listeners(service, why);
	if (err < 0) {
		lp_service_close(service);
		return err;
	}
	*ret_service = service;
	return 0;
}

void lp_service_close(struct lp_service *service)
{
	if (service == NULL)
		return;
	for (uint32_t i = 0; i < service->listener_cnt; i++)
		lp_listener_close(service->listeners[i]);
	lpi_http_free(service->http);
	lpi_health_fini(&service->health);
	lpi_gather_free(service->gather);
	lpi_checking_free(service->checking);
	lpi_reload_free(service->reload);
	lp_workers_free(service->workers);
	for (uint32_t i = 0; service->threads != NULL && i < service->thread_cnt; i++)
		lpi_thread_free(&service->threads[i]);
	free(service->threads);
	lpi_service_close_devices(service);
	lp_file_dir_close(&service->file_dir);
	lp_reactor_free(service->reactor);
	free(service);
}

int lp_service_start(struct lp_service *service, char *why)
{
	service->state = LPI_SERVICE_STARTING;
	service->began_ns = lp_clock_mono_ns(lp_reactor_clock(service->reactor));
	for (uint32_t i = 0; i < service->thread_cnt; i++) {
		int err = lpi_thread_start(&service->threads[i]);
		if (err == 0)
			continue;
		while (i-- > 0)
			lpi_thread_join(&service->threads[i]);
		return lpi_refuse(why, err, "cannot start a thread: %s", lp_strerror(err));
	}
	lpi_run_phase(service, lpi_thread_open, begin);
	return 0;
}

int lp_service_run(struct lp_service *service, char *why)
{
	while (service->state != LPI_SERVICE_ENDED)
		lp_reactor_run(service->reactor);
	if (service->result < 0)
		memcpy(why, service->why, sizeof(service->why));
	return service->result;
}
