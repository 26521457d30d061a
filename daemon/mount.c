/* SPDX-License-Identifier: Apache-2.0 */
/* A blocking step is a work; a step on the threads is a phase. Each begins when the former has
 * ended. After any failure the same steps follow: unmount, stop, close.
 *
 * A call to the kernel that makes the kernel ask the mount has a thread of its own. The mount may
 * need a helper to answer, and if all helpers waited in such calls none would be free. The session,
 * however, is opened by a helper, because its guard waits for the end of the thread that started
 * it. A thread that waits in the kernel for the mount does not end when the daemon is killed
 * (fuse/mount/guard.h).
 */
#include "daemon/mount.h"

#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "daemon/service_impl.h"
#include "fuse/ring.h"

/* Several, because some may wait for pages that are being read while others have work. */
#define DROPPERS 8u

static void run_work(struct lp_service *service, struct lp_workers *workers,
		     void (*run)(struct lp_work *work), void (*done)(struct lp_work *work))
{
	struct lpi_mount *mount = &service->mount;
	mount->work = (struct lp_work){.run = run, .done = done};
	lp_workers_submit(workers, service->reactor, &mount->work);
}

static struct lpi_mount *mount_of(struct lp_work *work)
{
	return LP_CONTAINER_OF(work, struct lpi_mount, work);
}

/* --- On the threads --------------------------------------------------------------------------- */

/* A service without sockets has no purpose without its mount. */
static void mount_gone(struct lp_reactor *to, struct lp_msg *msg)
{
	struct lp_service *service = LP_CONTAINER_OF(msg, struct lpi_mount, gone)->service;
	(void)to;
	if (service->mount.is_starting)
		return; /* the start will notice */
	if (service->mount.session == NULL || service->stop_wanted)
		return; /* it is being stopped anyway */
	const char *what = lp_fuse_ring_is_broken(lp_fuse_session_ring(service->mount.session))
				   ? "the mount has ended"
				   : "unmounted by somebody else";
	if (service->listener_cnt == 0) {
		LP_LOG_NOTICE("%s, and there is no socket: stopping", what);
		service->calls->stop(service);
	} else {
		LP_LOG_NOTICE("%s; the sockets are still served", what);
	}
}

static void channel_gone(void *arg)
{
	struct lpi_mount *mount = arg;
	/* The threads report this one after the other. */
	if (atomic_exchange(&mount->is_gone, true))
		return;
	mount->gone.deliver = mount_gone;
	lp_reactor_post(mount->service->reactor, &mount->gone);
}

static void make_channel(struct lpi_errand *errand)
{
	struct lpi_thread *thread = errand->thread;
	struct lp_service *service = thread->service;
	struct lp_fuse_channel_options options = {
		.reactor = thread->reactor,
		.bufs = thread->bufs,
		.devices = lpi_service_has_devices(service) ? &service->devices : NULL,
		.gone = channel_gone,
		.arg = &service->mount};
	lp_fuse_session_behaviour(service->mount.session, &options.behaviour);
	options.notifier = service->mount.notifier;
	options.launderer = service->mount.launderer;
	options.dropper = service->mount.dropper;
	options.ring = lp_fuse_session_ring(service->mount.session);
	options.mount_dir = lp_fuse_session_place(service->mount.session, &options.mount_dev);
	options.mount_options = lp_config_text(&service->config, LP_OPT_MOUNT_OPTIONS);
	for (struct lpi_shard *s = lpi_thread_next(thread, NULL); s;
	     s = lpi_thread_next(thread, s)) {
		options.nss[options.store_cnt] = s->ns;
		options.stores[options.store_cnt++] = s->store;
	}
	options.ns = lpi_thread_next(thread, NULL)->ns;
	lpi_errand_end(errand,
		       lp_fuse_channel_new(&options, &service->mount.channels[thread->idx]));
}

static void start_channel(struct lpi_errand *errand)
{
	struct lpi_thread *thread = errand->thread;
	struct lpi_mount *mount = &thread->service->mount;
	int fd = -1;
	int err = lp_fuse_session_clone(mount->session, &fd);
	if (err == 0)
		lp_fuse_channel_start(mount->channels[thread->idx], fd);
	lpi_errand_end(errand, err);
}

static void channel_stopped(void *arg)
{
	lpi_errand_end(arg, 0);
}

static void stop_channel(struct lpi_errand *errand)
{
	struct lpi_thread *thread = errand->thread;
	struct lp_fuse_channel *channel = thread->service->mount.channels[thread->idx];
	if (channel == NULL)
		lpi_errand_end(errand, 0);
	else
		lp_fuse_channel_stop(channel, channel_stopped, errand);
}

static void free_channel(struct lpi_errand *errand)
{
	struct lpi_thread *thread = errand->thread;
	struct lpi_mount *mount = &thread->service->mount;
	lp_fuse_channel_free(mount->channels[thread->idx]);
	mount->channels[thread->idx] = NULL;
	lpi_errand_end(errand, 0);
}

/* --- Stopping --------------------------------------------------------------------------------- */

static void begin(struct lp_service *service);

/* There is no mount, or it has ended. */
static void over(struct lp_service *service)
{
	struct lpi_mount *mount = &service->mount;
	LP_ASSERT(mount->session == NULL);
	lp_workers_free(mount->waiter);
	mount->waiter = NULL;
	mount->next(service, mount->result);
}

static void all_freed(struct lp_service *service)
{
	struct lpi_mount *mount = &service->mount;
	lp_fuse_session_close(mount->session);
	mount->session = NULL;
	lp_workers_free(mount->notifier);
	mount->notifier = NULL;
	lp_workers_free(mount->launderer);
	mount->launderer = NULL;
	lp_workers_free(mount->dropper);
	mount->dropper = NULL;
	if (mount->is_again)
		begin(service);
	else
		over(service);
}

static void all_stopped(struct lp_service *service)
{
	lpi_run_phase(service, free_channel, all_freed);
}

static void unmounted(struct lp_work *work)
{
	lpi_run_phase(mount_of(work)->service, stop_channel, all_stopped);
}

static void unmount(struct lp_work *work)
{
	struct lpi_mount *mount = mount_of(work);
	const struct lp_config *config = &mount->service->config;
	uint64_t timeout_ns = lp_config_number(config, LP_OPT_STOP_TIMEOUT) * LP_NS_PER_S;
	atomic_store(&mount->is_gone, true);
	mount->is_dead = lp_fuse_session_is_dead(mount->session);
	int err = lp_fuse_session_unmount(mount->session, timeout_ns);
	if (err == -EBUSY)
		LP_LOG_WARN("the mount was still in use; programs that use it get errors now");
	else if (err < 0)
		LP_LOG_ERROR("cannot unmount: %s", lp_strerror(err));
}

static void end(struct lp_service *service)
{
	if (service->mount.session == NULL)
		over(service);
	else
		run_work(service, service->mount.waiter, unmount, unmounted);
}

void lpi_mount_stop(struct lp_service *service,
		    void (*next)(struct lp_service *service, int result))
{
	service->mount.next = next;
	service->mount.result = 0;
	end(service);
}

/* --- Starting --------------------------------------------------------------------------------- */

static const char no_entries[] =
	"something keeps the kernel's FUSE from the commands of its rings (a security policy?)";

bool lpi_mount_wants_ring(const struct lp_config *config)
{
	return lp_config_text(config, LP_OPT_MOUNT) != NULL &&
	       lp_fuse_options_want_ring(lp_config_text(config, LP_OPT_MOUNT_OPTIONS)) &&
	       lp_fuse_ring_is_on() &&
	       /* Each thread has at least one queue. */
	       lp_config_number(config, LP_OPT_THREADS) <= lp_fuse_ring_queues();
}

static void fail(struct lp_service *service, int err, const char *what)
{
	struct lpi_mount *mount = &service->mount;
	mount->result = lpi_refuse(service->why, err, "the mount: %s: %s", what, lp_strerror(err));
	end(service);
}

/* Makes the mount once more, without io_uring. */
static void try_again(struct lp_service *service)
{
	struct lpi_mount *mount = &service->mount;
	LP_LOG_WARN("the mount: it does not answer by io_uring: %s; mounting again", no_entries);
	mount->no_ring = no_entries;
	mount->is_again = true;
	end(service);
}

static void probed(struct lp_work *work)
{
	struct lpi_mount *mount = mount_of(work);
	struct lp_service *service = mount->service;
	if (mount->result == -ETIMEDOUT && mount->no_ring == NULL) {
		try_again(service);
		return;
	}
	if (mount->result < 0) {
		fail(service, mount->result, "it does not answer");
		return;
	}
	LP_LOG_NOTICE("mounted on %s", lp_config_text(&service->config, LP_OPT_MOUNT));
	struct lp_fuse_behaviour behaviour;
	lp_fuse_session_behaviour(service->mount.session, &behaviour);
	if (behaviour.writeback && !behaviour.is_only_door)
		LP_LOG_WARN("the mount: with writeback the kernel does not see that a socket "
			    "changes a file's "
			    "size, and its appends overwrite what the socket appended");
	mount->is_starting = false;
	mount->next(service, 0);
	if (atomic_load(&mount->is_gone))
		mount_gone(service->reactor, &mount->gone);
}

static void probe(struct lp_work *work)
{
	struct lpi_mount *mount = mount_of(work);
	mount->result = lp_fuse_session_probe(mount->session);
}

static void all_started(struct lp_service *service)
{
	if (service->phase.result < 0)
		fail(service, service->phase.result, "no descriptor for each thread");
	else
		run_work(service, service->mount.waiter, probe, probed);
}

static void all_made(struct lp_service *service)
{
	if (service->phase.result < 0) {
		fail(service, service->phase.result, "no memory for its requests");
		return;
	}
	lp_fuse_channels_join(service->mount.channels, service->thread_cnt);
	lpi_run_phase(service, start_channel, all_started);
}

static void opened(struct lp_work *work)
{
	struct lpi_mount *mount = mount_of(work);
	struct lp_service *service = mount->service;
	if (mount->result < 0) {
		memcpy(service->why, mount->why, sizeof(service->why));
		over(service);
		return;
	}
	mount->result = lp_workers_new(1, &mount->notifier);
	if (mount->result == 0)
		mount->result = lp_workers_new(1, &mount->launderer);
	if (mount->result == 0)
		mount->result = lp_workers_new(DROPPERS, &mount->dropper);
	if (mount->result < 0)
		fail(service, mount->result, "no thread for what the kernel is to be told");
	else
		lpi_run_phase(service, make_channel, all_made);
}

static bool lets_others_in(const struct lp_service *service)
{
	for (uint32_t i = 0; i < service->listener_cnt; i++) {
		if (lp_listener_lets_others_in(service->listeners[i]))
			return true;
	}
	return false;
}

static void open_session(struct lp_work *work)
{
	struct lpi_mount *mount = mount_of(work);
	const struct lp_config *config = &mount->service->config;
	const char *device = lp_config_text(config, LP_OPT_DEVICE);
	const struct lp_fuse_session_options options = {
		.dir = lp_config_text(config, LP_OPT_MOUNT),
		.source = device == NULL ? "lapis" : device,
		.options = lp_config_text(config, LP_OPT_MOUNT_OPTIONS),
		.is_only_door = lp_config_text(config, LP_OPT_LISTEN) == NULL,
		.is_for_others = lets_others_in(mount->service),
		.ring_bytes = mount->service->memory.ring_bytes * mount->service->shard_cnt,
		.no_ring = mount->no_ring};
	mount->result = lp_fuse_session_open(&options, &mount->session, mount->why);
}

static void begin(struct lp_service *service)
{
	struct lpi_mount *mount = &service->mount;
	mount->is_again = false;
	mount->is_starting = true;
	atomic_store(&mount->is_gone, false);
	run_work(service, service->workers, open_session, opened);
}

void lpi_mount_start(struct lp_service *service,
		     void (*next)(struct lp_service *service, int result))
{
	struct lpi_mount *mount = &service->mount;
	mount->service = service;
	mount->next = next;
	if (lp_config_text(&service->config, LP_OPT_MOUNT) == NULL) {
		next(service, 0);
		return;
	}
	mount->result = lp_workers_new(1, &mount->waiter);
	if (mount->result < 0)
		fail(service, mount->result, "no thread to mount it");
	else
		begin(service);
}
