/* SPDX-License-Identifier: Apache-2.0 */
/* Devices are opened by their paths. The data device's comes from the command line. The paths of
 * the others come from there, too, or else from the label of the data device, which has the last
 * ones. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "daemon/service_impl.h"

/* The kernel frees the resources of a killed process's rings only some time after its end. A daemon
 * that is started again at once must not fail because of that. */
#define BUSY_TRIES   40u
#define BUSY_WAIT_US 50000u
/* 256 MiB: a larger backlog saves few writes, and makes a start longer. */
#define DEFERRED_MAX UINT64_C(65536)

static const enum lp_option path_options[LP_ROLES] = {
	[LP_ROLE_DATA] = LP_OPT_DEVICE,
	[LP_ROLE_DB] = LP_OPT_DB,
	[LP_ROLE_WAL] = LP_OPT_WAL,
};

static int open_device(struct lp_service *service, int device, const char *path, char *why)
{
	const struct lp_bdev_open_options options = {.exclusive = true,
						     .read_only = lpi_service_is_degraded(service)};
	int err = -EBUSY;
	for (unsigned i = 0; i < BUSY_TRIES && err == -EBUSY; i++) {
		if (i > 0)
			(void)usleep(BUSY_WAIT_US); /* a shorter pause only tries once more */
		err = lp_bdev_open_uring(path, &options, &service->bdev[device]);
	}
	if (err < 0)
		return lpi_refuse(why, err, "%s: %s%s", path, lp_strerror(err),
				  lp_devices_advice(err));
	return 0;
}

static int explain_label(const char *path, int err, const struct lp_label_why *label_why, char *why)
{
	if (err == -EMEDIUMTYPE)
		return lpi_refuse(why, err, "%s: no Lapis store is on it (lapis mkfs makes one)",
				  path);
	return lpi_refuse(why, err, "%s: %s", path,
			  label_why->text[0] != '\0' ? label_why->text : lp_strerror(err));
}

/* The last path of a db or wal device by the data device's label; false: it has none. */
static bool last_path(const struct lp_disk_label *label, int device, char *ret_path, size_t len)
{
	static const uint8_t none[LP_UUID_BYTES];
	bool is_db = device == LP_ROLE_DB;
	const uint8_t *uuid = is_db ? label->db_uuid : label->wal_uuid;
	const uint8_t *path = is_db ? label->db_path : label->wal_path;
	if (memcmp(uuid, none, sizeof(none)) == 0)
		return false;
	(void)snprintf(ret_path, len, "%.*s", (int)sizeof(label->db_path), (const char *)path);
	return true;
}

/* ret_path: the device's path for the label; "" if there is no device, or it has no name. */
static int open_companion(struct lp_service *service, const struct lp_disk_label *label, int device,
			  char *ret_path, char *why)
{
	const char *given = lp_config_text(&service->config, path_options[device]);
	char last[sizeof(label->db_path) + 1];
	char reason[LP_WHY_MAX];
	ret_path[0] = '\0';
	if (given == NULL && !last_path(label, device, last, sizeof(last)))
		return 0;
	const char *path = given != NULL ? given : last;
	int err = open_device(service, device, path, reason);
	if (err < 0 && given == NULL)
		return lpi_refuse(why, err,
				  "the store's %s device was last found at %.350s: --%s "
				  "must say where it is now",
				  lp_options[path_options[device]].name, reason,
				  lp_options[path_options[device]].name);
	if (err < 0)
		return lpi_refuse(why, err, "%s", reason);
	if (lp_devices_absolute_path(path, ret_path, sizeof(label->db_path)) < 0)
		ret_path[0] = '\0'; /* logged below */
	return 0;
}

/* The next start uses the path in the label, unless a path is given. Warns if the label has another
 * path. */
static void warn_if_forgotten(const struct lp_service *service, int device, const char *path)
{
	char last[sizeof(service->devices.label[0].db_path) + 1];
	if (service->bdev[device] == NULL ||
	    !last_path(&service->devices.label[LP_ROLE_DATA], device, last, sizeof(last)) ||
	    strcmp(last, path) == 0)
		return;
	LP_LOG_WARN("the store still records its %s device at %s: give --%s again next time",
		    lp_options[path_options[device]].name, last,
		    lp_options[path_options[device]].name);
}

int lpi_service_open_devices(struct lp_service *service, char *why)
{
	const char *path = lp_config_text(&service->config, LP_OPT_DEVICE);
	struct lp_label_why label_why = {.text = ""};
	bool read_only = lpi_service_is_degraded(service);
	struct lp_devices_options options = {.read_only = read_only};
	struct lp_disk_label label;
	char found[LP_ROLES][sizeof(label.db_path)];
	int err = open_device(service, LP_ROLE_DATA, path, why);
	if (err < 0)
		return err;
	err = lp_label_read(service->bdev[LP_ROLE_DATA], !read_only, &label, &label_why);
	if (err < 0)
		return explain_label(path, err, &label_why, why);
	for (int i = 0; i < LP_ROLES && err == 0; i++) {
		if (i != LP_ROLE_DATA) {
			err = open_companion(service, &label, i, found[i], why);
			options.path[i] = found[i][0] != '\0' ? found[i] : NULL;
		}
		options.bdev[i] = service->bdev[i];
	}
	if (err < 0)
		return err;
	err = lp_devices_open(&options, &service->devices, &label_why);
	if (err < 0)
		return explain_label(path, err, &label_why, why);
	service->devices_open = true;
	for (int i = LP_ROLE_DB; i < LP_ROLES; i++)
		warn_if_forgotten(service, i, found[i]);
	service->shard_cnt = label.shard_cnt;
	memcpy(service->store_uuid, label.store_uuid, sizeof(service->store_uuid));
	return 0;
}

void lpi_service_close_devices(struct lp_service *service)
{
	if (service->devices_open)
		lp_devices_close(&service->devices);
	service->devices_open = false;
	for (int i = 0; i < LP_ROLES; i++) {
		lp_bdev_close(service->bdev[i]);
		service->bdev[i] = NULL;
	}
}

/* Three eighths of a shard's part are buffers that requests and deferred data pass through. One
 * eighth is for cached data, which is in buffers, too. Four are the store's, for index and nodes.
 * Deferred data may fill a third of the first. A store in memory has its data in its half. Half an
 * eighth of the buffers' part is memory that is shared with clients. As much goes to the mount, if
 * its requests come by io_uring. */
int lpi_service_divide_memory(uint64_t bytes, uint32_t shard_cnt, bool has_ring,
			      struct lpi_memory_plan *ret_plan, char *why)
{
	char given[32];
	char needed[32];
	uint64_t part = bytes / shard_cnt;
	if (part < LPI_SHARD_MEMORY_MIN) {
		(void)lp_format_bytes(bytes, given, sizeof(given));
		(void)lp_format_bytes(LPI_SHARD_MEMORY_MIN * shard_cnt, needed, sizeof(needed));
		return lpi_refuse(why, -ENOMEM,
				  "memory: %s is too little for %u shard%s: at least "
				  "%s (--memory)",
				  given, shard_cnt, shard_cnt == 1 ? "" : "s", needed);
	}
	uint64_t eighth = part / 8;
	uint64_t ring_bytes = has_ring ? eighth / 2 : 0;
	uint64_t share_bytes = lp_align_down(eighth / 2, LP_BUF_LARGE);
	*ret_plan = (struct lpi_memory_plan){.bufs_bytes = 4 * eighth - ring_bytes - share_bytes,
					     .ring_bytes = ring_bytes,
					     .share_bytes = share_bytes,
					     .store_bytes = 5 * eighth - eighth % LP_BLOCK_BYTES,
					     .data_cache_bytes = eighth,
					     .deferred_blocks =
						     LP_MIN(eighth / LP_BLOCK_BYTES, DEFERRED_MAX),
					     .mem_bytes = 4 * eighth};
	return 0;
}
