/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_session.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/device.h"

#define WORKER_CNT 2u
/* More buffers than that do their I/O the ordinary way. */
#define REGISTERED_GIB_MAX 16u
/* What the store may hold at once: payloads that wait for their place (128 MiB by default), blocks
 * being read and merged. Payloads found in the log come on top. */
#define STORE_BUFS_BYTES (UINT64_C(224) << 20)

bool lpi_session_is_mem(const struct lpi_session *session)
{
	return session->options.path[LP_ROLE_DATA] == NULL;
}

const char *lpi_session_kind(const struct lpi_session_options *options)
{
	if (options->is_file)
		return "file";
	return options->path[LP_ROLE_DATA] == NULL ? "mem" : "block";
}

static bool has_devices(const struct lpi_session *session)
{
	return !lpi_session_is_mem(session) && !session->options.is_file;
}

static const char *subject(const struct lpi_session *session)
{
	return lpi_session_is_mem(session) ? "memory" : session->options.path[LP_ROLE_DATA];
}

static int open_devices(struct lpi_session *session)
{
	for (int i = 0; i < LP_ROLES && has_devices(session); i++) {
		if (session->options.path[i] == NULL)
			continue;
		struct lp_bdev *inner = NULL;
		int err = lpi_device_open(session->options.path[i], false, &inner);
		if (err < 0)
			return err;
		if (session->options.delay == NULL) {
			session->bdev[i] = inner;
			continue;
		}
		err = lp_bdev_open_delay(&inner, session->options.delay, &session->bdev[i]);
		if (err < 0) {
			lp_bdev_close(inner);
			(void)lpi_cli_fail(subject(session), "%s", lp_strerror(err));
			return err;
		}
	}
	return 0;
}

static int open_labels(struct lpi_session *session)
{
	struct lp_devices_options options = {.read_only = false};
	struct lp_label_why why;
	for (int i = 0; i < LP_ROLES; i++)
		options.bdev[i] = session->bdev[i];
	int err = lp_devices_open(&options, &session->devices, &why);
	if (err == -EMEDIUMTYPE)
		(void)lpi_cli_fail(subject(session),
				   "no Lapis store is on it (lapis mkfs makes one)");
	else if (err < 0)
		(void)lpi_cli_fail(subject(session), "%s",
				   why.text[0] != '\0' ? why.text : lp_strerror(err));
	if (err < 0)
		return err;
	uint32_t shard_cnt = session->devices.label[LP_ROLE_DATA].shard_cnt;
	if (session->options.shard_idx < shard_cnt)
		return 0;
	(void)lpi_cli_fail(subject(session), "there is no shard %u: the store has %u",
			   session->options.shard_idx, shard_cnt);
	lp_devices_close(&session->devices);
	return -EINVAL;
}

/* An empty directory becomes a store of one shard. */
static int open_dir(struct lpi_session *session)
{
	const struct lp_file_dir_options options = {.path = subject(session),
						    .default_shard_cnt = 1};
	char why[LP_FILE_DIR_WHY_MAX];
	if (!session->options.is_file)
		return 0;
	int err = lp_file_dir_open(&options, &session->dir, why);
	if (err < 0) {
		(void)lpi_cli_fail("store-bench", "%s", why);
		return err;
	}
	if (session->options.shard_idx < session->dir.shard_cnt)
		return 0;
	(void)lpi_cli_fail(subject(session), "there is no shard %u: the store has %u",
			   session->options.shard_idx, session->dir.shard_cnt);
	return -EINVAL;
}

/* How much a replay may find, in buffers. */
static uint64_t log_bytes(const struct lpi_session *session)
{
	const struct lp_devices *devices = &session->devices;
	const struct lp_disk_label *label = &devices->label[lp_devices_of_log(devices)];
	return lp_label_log_area(label, session->options.shard_idx).cnt * LP_BLOCK_BYTES;
}

static int make_bufs(struct lpi_session *session)
{
	uint64_t bytes = session->options.bufs_bytes;
	uint64_t region_bytes;
	if (has_devices(session))
		bytes += STORE_BUFS_BYTES + log_bytes(session);
	int err = lp_bufs_new(bytes, &session->bufs);
	if (err < 0) {
		(void)lpi_cli_fail(subject(session), "%s", lp_strerror(err));
		return err;
	}
	void *region = lp_bufs_region(session->bufs, &region_bytes);
	/* Optional: without it I/O goes the ordinary way. */
	int ignored = has_devices(session)
			      ? lp_reactor_buffer_add(session->reactor, region, region_bytes)
			      : 0;
	(void)ignored;
	return 0;
}

static int make_reactor(struct lpi_session *session)
{
	const struct lp_reactor_options options = {.name = "store-bench",
						   .ring = !lpi_session_is_mem(session),
						   .files_max = 8,
						   .buffers_max = REGISTERED_GIB_MAX,
						   .spin_max_ns = session->options.spin_ns};
	int err = lp_reactor_new(&options, &session->reactor);
	if (err < 0) {
		char why[512];
		(void)lp_reactor_explain(err, why, sizeof(why));
		(void)lpi_cli_fail("io_uring", "%s", why);
		return err;
	}
	err = lp_reactor_start(session->reactor);
	if (err == 0)
		err = lp_workers_new(WORKER_CNT, &session->workers);
	if (err < 0)
		(void)lpi_cli_fail("threads", "%s", lp_strerror(err));
	return err;
}

int lpi_session_start(const struct lpi_session_options *options, struct lpi_session *ret_session)
{
	struct lpi_session *session = ret_session;
	*session = (struct lpi_session){.options = *options, .dir = {.fd = -1}};
	int err = make_reactor(session);
	if (err == 0)
		err = open_devices(session);
	if (err == 0)
		err = open_dir(session);
	if (err == 0 && has_devices(session)) {
		err = open_labels(session);
		if (err == 0)
			err = make_bufs(session);
		lp_devices_close(&session->devices);
	} else if (err == 0) {
		err = make_bufs(session);
	}
	if (err < 0)
		lpi_session_stop(session);
	return err;
}

void lpi_session_stop(struct lpi_session *session)
{
	LP_ASSERT(session->store == NULL);
	for (int i = 0; i < LP_ROLES; i++)
		lp_bdev_close(session->bdev[i]);
	lp_file_dir_close(&session->dir);
	if (session->bufs != NULL) {
		uint64_t bytes;
		void *region = lp_bufs_region(session->bufs, &bytes);
		if (lp_reactor_buffer_find(session->reactor, region, 1) >= 0)
			lp_reactor_buffer_remove(session->reactor, region);
	}
	lp_workers_free(session->workers);
	lp_bufs_free(session->bufs);
	lp_reactor_free(session->reactor);
}

static void store_failed(const struct lpi_session *session, const char *what, int err)
{
	const struct lp_corruption *found = lp_corruption_find(0);
	bool is_corrupt = (err == -EBADMSG || err == -EUCLEAN) && found != NULL;
	(void)lpi_cli_fail(subject(session), "cannot %s the store: %s", what,
			   is_corrupt ? found->what : lp_strerror(err));
}

int lpi_session_open(struct lpi_session *session)
{
	const struct lpi_session_options *options = &session->options;
	const struct lp_store_file_options file = {.dir = &session->dir};
	const struct lp_store_options store = {
		.reactor = session->reactor,
		.workers = session->workers,
		.devices = has_devices(session) ? &session->devices : NULL,
		.bufs = session->bufs,
		.shard_idx = options->shard_idx,
		.alloc_kind = options->alloc_kind,
		.memory_bytes = options->memory_bytes,
		.data_cache_bytes = options->data_cache_bytes,
		.write_path = options->write_path,
		.deferred_store = options->deferred_store,
	};
	LP_ASSERT(session->store == NULL);
	const struct lp_clock *clock = lp_reactor_clock(session->reactor);
	uint64_t start_ns = lp_clock_mono_ns(clock);
	int err = has_devices(session) ? open_labels(session) : 0;
	if (err < 0)
		return err;
	if (options->is_file)
		err = lp_store_open_file(&store, &file, &session->store);
	else if (has_devices(session))
		err = lp_store_open(&store, &session->store);
	else
		err = lp_store_open_mem(&store, &session->store);
	session->open_ns = lp_clock_mono_ns(clock) - start_ns;
	if (err < 0) {
		store_failed(session, "open", err);
		if (has_devices(session))
			lp_devices_close(&session->devices);
	}
	return err;
}

int lpi_session_close(struct lpi_session *session, bool abandon)
{
	int err = lp_store_close(session->store, abandon);
	session->store = NULL;
	if (err < 0)
		store_failed(session, "close", err);
	if (has_devices(session))
		lp_devices_close(&session->devices);
	return err;
}

static void add_stats(struct lp_bdev_stats *sum, const struct lp_bdev_stats *more)
{
	for (int i = 0; i < LP_BDEV_OPCODE_CNT; i++) {
		sum->ops[i] += more->ops[i];
		sum->bytes[i] += more->bytes[i];
	}
	sum->errors += more->errors;
	sum->shorts += more->shorts;
	sum->late += more->late;
}

void lpi_session_sync_stats(const struct lpi_session *session, struct lp_bdev_stats *ret_stats)
{
	*ret_stats = (struct lp_bdev_stats){0};
	for (int i = 0; i < LP_ROLES; i++) {
		struct lp_bdev_stats one;
		if (session->bdev[i] == NULL)
			continue;
		lp_bdev_sync_stats(session->bdev[i], &one);
		add_stats(ret_stats, &one);
	}
}

void lpi_session_past_stats(const struct lpi_session *session, struct lp_bdev_stats *ret_stats)
{
	*ret_stats = (struct lp_bdev_stats){0};
	for (int i = 0; i < LP_ROLES; i++) {
		struct lp_bdev_stats one;
		if (session->bdev[i] == NULL)
			continue;
		lp_bdev_past_stats(session->bdev[i], &one);
		add_stats(ret_stats, &one);
	}
}
