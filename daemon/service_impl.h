/* SPDX-License-Identifier: Apache-2.0 */
/* Private parts of the service: control thread, threads, shards, and errands between them.
 *
 * Threads: the fields of a thread and its shards are that thread's, those of the service the
 *   control thread's, unless they say otherwise. config, devices and peers are written while no
 *   other thread reads them.
 * Blocking: as the functions say.
 */
#ifndef LP_DAEMON_SERVICE_IMPL_H
#define LP_DAEMON_SERVICE_IMPL_H

#include <pthread.h>

#include "base/loop/workers.h"
#include "daemon/listen.h"
#include "daemon/mount.h"
#include "daemon/report/giveback.h"
#include "daemon/report/health.h"
#include "daemon/report/report.h"
#include "daemon/report/scrubbing.h"
#include "daemon/resident.h"
#include "daemon/service.h"
#include "store/filestore/filestore.h"
#include "store/view.h"
#include "store/volume/devices.h"

#define LPI_SERVICE_SHARDS_MAX 64u
#define LPI_THREADS_MAX        64u
#define LPI_LISTENERS_MAX      16u

struct lpi_checking;
struct lpi_http;

/* A job for a thread, and the report of its end. It belongs to the control thread, except between
 * start and done. Zeroed memory is an idle errand. */
struct lpi_errand {
	struct lp_msg msg;
	struct lpi_thread *thread;               /* NULL: idle */
	void (*run)(struct lpi_errand *errand);  /* on that thread; ends by lpi_errand_end() */
	void (*done)(struct lpi_errand *errand); /* on the control thread, in a later turn */
	void *arg;                               /* the starter's */
	int result;
};

/* A report of a store's state to the control thread. */
struct lpi_told {
	struct lp_msg msg;
	struct lpi_thread *thread; /* NULL: not reported yet */
};

/* State of a structure check, for one shard. */
struct lpi_shard_check {
	struct lp_pause pause;
	bool is_paused;
	struct lpi_errand *errand; /* waits until the shard is at rest; NULL: none */
	struct lp_view *view;      /* NULL: none */
};

struct lpi_shard {
	uint32_t idx;
	struct lpi_thread *thread;
	struct lp_bufs *space; /* data of a store in memory; NULL for other stores */
	struct lp_store *store;
	struct lp_ns *ns;
	struct lp_door *door;
	struct lpi_scrubbing scrubbing;
	struct lpi_damage damage;
	struct lpi_shard_check check;
	bool ns_serves;   /* for all shards or none; also if there is no door */
	bool is_stopping; /* takes no more connections */
	struct lp_store_events store_events;
	struct lpi_told told[LP_STORE_STATE_CNT];
	uint64_t slow_seen_ns;   /* slow requests up to here have been logged */
	struct lpi_errand *wait; /* ends when this shard has ended its part */
};

struct lpi_thread {
	struct lp_service *service;
	uint32_t idx;
	pthread_t pthread;
	bool is_running; /* the control thread's: pthread is valid */
	struct lp_reactor *reactor;
	struct lp_bufs *bufs;
	struct lpi_resident resident;
	struct lp_config config; /* its own copy, because live options change */
	/* Work that turns the reactor, and so cannot be done from inside a turn. */
	struct lpi_errand *outside;
	void (*outside_run)(struct lpi_thread *thread, struct lpi_errand *errand);
	uint32_t left; /* shards that have not ended the errand under way */
	int result;
	uint32_t check_left; /* the same for an errand of a check */
	int check_result;
	uint64_t absences_seen;
	uint64_t slow_seen_ns; /* slow requests of the mount up to here have been logged */
	char why[LP_WHY_MAX];  /* why opening failed; read by the control thread afterwards */
	struct lpi_errand phase;
	struct lpi_errand gather;
	struct lpi_errand look;
	uint64_t asked_ns;      /* the control thread's: when the look began */
	bool look_again;        /* the control thread's: a store has reported since */
	uint64_t lost_bytes;    /* given to it: for each of its stores (giveback.h) */
	bool is_short;          /* given to it: the process has more memory than it was allowed */
	struct lpi_look looked; /* its result */
	struct lpi_look known;  /* the control thread's copy of the last answer */
};

enum lpi_service_state {
	LPI_SERVICE_OPENED,
	LPI_SERVICE_STARTING,
	LPI_SERVICE_SERVING,
	LPI_SERVICE_STOPPING,
	LPI_SERVICE_ENDED
};

/* How --memory is divided; all numbers are for one shard. */
struct lpi_memory_plan {
	uint64_t bufs_bytes;
	uint64_t ring_bytes;  /* for requests of the mount, if they come by io_uring */
	uint64_t share_bytes; /* shared with clients, which may read it */
	uint64_t store_bytes; /* including the data cache */
	uint64_t data_cache_bytes;
	uint64_t deferred_blocks;
	uint64_t mem_bytes; /* for a store in memory, instead of the others: its space */
};

/* A job for all threads; the next step begins when all have ended it. */
struct lpi_phase {
	uint32_t left;
	int result; /* the first failure */
	void (*next)(struct lp_service *service);
};

/* Calls from threads and the mount to the files above them; set when a service is opened. */
struct lpi_service_calls {
	/* On the control thread: checks health now, not only each second. */
	void (*look)(struct lp_service *service);
	/* On the control thread: as lp_service_stop(). */
	void (*stop)(struct lp_service *service);
	/* On the shard's thread: a client's request to the administration. */
	void (*ask)(struct lpi_shard *shard, struct lp_admin *admin);
};

struct lp_service {
	struct lp_service_options options;
	const struct lpi_service_calls *calls;
	struct lp_config config;
	enum lpi_service_state state;
	bool stop_wanted;
	int result;
	char why[LP_WHY_MAX];
	uint64_t began_ns;
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	bool is_mem;
	bool is_file; /* the store is a directory on a host file system: file_dir */
	struct lp_file_dir file_dir;
	struct lp_bdev *bdev[LP_ROLES];
	struct lp_devices devices;
	bool devices_open;
	uint8_t store_uuid[16];
	struct lpi_memory_plan memory;
	uint32_t shard_cnt;
	uint32_t thread_cnt;
	struct lpi_shard shards[LPI_SERVICE_SHARDS_MAX];
	struct lpi_thread *threads;
	struct lp_ns *peers[LPI_SERVICE_SHARDS_MAX];
	struct lpi_phase phase;
	/* The control thread's fields. */
	struct lp_listener *listeners[LPI_LISTENERS_MAX];
	uint32_t listener_cnt;
	uint32_t next_shard; /* gets the next connection */
	struct lpi_http *http;
	struct lpi_mount mount;
	struct lpi_health health;
	struct lpi_giveback giveback;
	struct lpi_gather_reports *gather;
	struct lpi_checking *checking;
	struct lpi_reload *reload;
	struct lp_timer look_timer;
	struct lp_timer idle_timer;
};

/* The choices of --store. */
enum lpi_store_kind { LPI_STORE_BLOCK, LPI_STORE_MEM, LPI_STORE_FILE };

static inline bool lpi_service_has_devices(const struct lp_service *service)
{
	return !service->is_mem && !service->is_file;
}

/* Degraded mode: shards that do not open do not keep the others from serving, and nothing is
 * written. */
static inline bool lpi_service_is_degraded(const struct lp_service *service)
{
	return lp_config_number(&service->config, LP_OPT_DEGRADED) != 0 &&
	       lp_config_number(&service->config, LP_OPT_STORE) == LPI_STORE_BLOCK;
}

static inline const char *lpi_service_store_kind(const struct lp_service *service)
{
	if (service->is_file)
		return "file";
	return service->is_mem ? "mem" : "block";
}

/* --- Errands (errand.c) ----------------------------------------------------------------------- */

/* The shards on a thread: idx, idx + thread_cnt, ... NULL: no more. */
struct lpi_shard *lpi_thread_next(struct lpi_thread *thread, const struct lpi_shard *shard);
/* Called on the control thread. */
void lpi_errand_start(struct lpi_thread *thread, struct lpi_errand *errand);
/* Called on the thread, once for each run(). */
void lpi_errand_end(struct lpi_errand *errand, int result);

/* Runs a job on all threads, then calls next(). phase.result is the first failure. */
void lpi_run_phase(struct lp_service *service, void (*run)(struct lpi_errand *errand),
		   void (*next)(struct lp_service *service));

/* --- Work of threads (thread.c) --------------------------------------------------------------- */

int lpi_thread_new(struct lpi_thread *thread, char *why) LP_MUST_CHECK;
int lpi_thread_start(struct lpi_thread *thread) LP_MUST_CHECK;
/* All shards of the thread are closed. */
void lpi_thread_join(struct lpi_thread *thread);
void lpi_thread_free(struct lpi_thread *thread);

/* Phases, in this order; each is run() of an errand. */
void lpi_thread_open(struct lpi_errand *errand);
void lpi_thread_begin(struct lpi_errand *errand);
void lpi_thread_stop_doors(struct lpi_errand *errand);
void lpi_thread_stop_ns(struct lpi_errand *errand);
void lpi_thread_close(struct lpi_errand *errand);
/* Called at any time while serving. */
void lpi_thread_configure(struct lpi_errand *errand);
void lpi_thread_look(struct lpi_errand *errand);

/* Gives a connected socket to a shard, from the control thread or another shard's. */
void lpi_shard_give(struct lp_reactor *from, struct lpi_shard *shard, int fd,
		    const struct lp_peer *peer, const uint8_t *head, uint32_t read);

/* --- Devices and memory (devices.c) ----------------------------------------------------------- */

#define LPI_SHARD_MEMORY_MIN (UINT64_C(64) << 20)

int lpi_service_open_devices(struct lp_service *service, char *why) LP_MUST_CHECK;
void lpi_service_close_devices(struct lp_service *service);
int lpi_service_divide_memory(uint64_t bytes, uint32_t shard_cnt, bool has_ring,
			      struct lpi_memory_plan *ret_plan, char *why) LP_MUST_CHECK;

#endif
