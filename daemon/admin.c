/* SPDX-License-Identifier: Apache-2.0 */
/* Questions wait in one queue; the first of them is at work. All numbers of a shard are copied in
 * one turn of its thread, so they are consistent. */
#include "daemon/admin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "daemon/checking.h"
#include "daemon/explain.h"
#include "fuse/ring.h"

LP_LIST_DEFINE(question_list, struct lpi_question, node);

struct lpi_gather_reports {
	struct lp_service *service;
	struct question_list waiting; /* the first is at work */
	bool is_busy;
	bool wants_score; /* these parts take long */
	bool wants_usage;
	bool wants_under_way;
	/* A page of the list of damage: of one shard, behind this inode. While the question is
	 * under way the page is the shard's thread's. */
	bool wants_list;
	uint64_t list_shard;
	uint64_t list_behind;
	struct lpi_text list;
	uint32_t left;
	int result;
	int refused; /* by a thread: all threads return to `former` */
	struct lp_config former;
	struct lpi_shard_report *shards;
	struct lpi_mount_report *mounts; /* by thread */
	struct lpi_thread_report threads[LPI_THREADS_MAX];
};

#define HEAP_PARTS  32u
#define SCRUB_WORDS "scrub: neither status, start, stop nor list SHARD INODE"

static void work(struct lpi_gather_reports *gather);

/* The question at work. */
static struct lpi_question *current(const struct lpi_gather_reports *gather)
{
	struct lpi_question *question = question_list_first(&gather->waiting);
	LP_ASSERT(question != NULL);
	return question;
}

/* --- On the threads --------------------------------------------------------------------------- */

/* Each part has as many places as the others, so no part crowds out another. */
static void read_under_way(struct lpi_shard_report *report, struct lpi_shard *shard)
{
	report->under_way_cnt = 0;
	report->under_way_all = 0;
	for (int part = 0; part < 3; part++) {
		struct lp_under_way_list list = {.rows = report->under_way + report->under_way_cnt,
						 .max = LP_UNDER_WAY_MAX};
		if (part == 0)
			(void)lp_door_under_way(shard->door, &list);
		else if (part == 1)
			lp_ns_under_way(shard->ns, &list);
		else
			lp_store_under_way(shard->store, &list);
		report->under_way_cnt += list.cnt;
		report->under_way_all += list.all;
	}
}

static void read_mount_under_way(struct lpi_thread_report *report, struct lpi_thread *thread)
{
	struct lp_fuse_channel *channel = thread->service->mount.channels[thread->idx];
	struct lp_under_way_list list = {.rows = report->under_way, .max = LP_UNDER_WAY_MAX};
	if (channel != NULL)
		lp_fuse_channel_under_way(channel, &list);
	report->under_way_cnt = list.cnt;
	report->under_way_all = list.all;
}

static void read_shard(struct lpi_gather_reports *gather, struct lpi_shard *shard)
{
	struct lpi_shard_report *report = &gather->shards[shard->idx];
	report->idx = shard->idx;
	report->thread_idx = shard->thread->idx;
	lp_store_read_health(shard->store, &report->health);
	lp_store_read_bad(shard->store, &report->bad);
	lp_store_read_stats(shard->store, &report->store);
	lp_ns_read_stats(shard->ns, &report->ns);
	lp_door_read_stats(shard->door, &report->door);
	report->time_cnt = lp_store_read_times(shard->store, report->times, LP_STORE_TIMES_MAX);
	report->slow_cnt = lp_door_slow(shard->door, report->slow, LP_SLOW_MAX);
	lpi_scrubbing_report(&shard->scrubbing, &report->scrub);
	lpi_damage_read_stats(&shard->damage, &report->damage);
	if (gather->wants_score)
		report->alloc_score = lp_store_alloc_score(shard->store);
	if (gather->wants_usage)
		lp_store_read_usage(shard->store, &report->usage);
	if (gather->wants_under_way)
		read_under_way(report, shard);
	for (uint32_t op = 0; op < LPI_REPORT_OPCODES; op++) {
		const struct lp_hist *hist = lp_door_latency(shard->door, (uint16_t)op);
		report->has_latency[op] = hist != NULL;
		if (hist != NULL)
			report->latency[op] = *hist;
	}
}

/* Copies one page of the list of damage. */
static void list_damage(struct lpi_gather_reports *gather, const struct lpi_shard *shard)
{
	const struct lp_ino behind = {gather->list_behind};
	if (shard->idx != gather->list_shard)
		return;
	lpi_json_open(&gather->list, NULL, '{');
	lpi_json_number(&gather->list, "shards_cnt", gather->service->shard_cnt);
	lpi_damage_json(&shard->damage, behind, &gather->list);
	lpi_json_close(&gather->list, '}');
}

/* Passes the question at work to the scrub. */
static int ask_scrub(struct lpi_gather_reports *gather, struct lpi_shard *shard)
{
	if (gather->wants_list) {
		list_damage(gather, shard);
		return 0;
	}
	const struct lpi_question *question = current(gather);
	return question->opcode == LP_WIRE_OP_SCRUB
		       ? lpi_scrubbing_ask(&shard->scrubbing, question->text)
		       : 0;
}

static void gather_there(struct lpi_errand *errand)
{
	struct lpi_thread *thread = errand->thread;
	struct lpi_gather_reports *gather = thread->service->gather;
	struct lpi_thread_report *report = &gather->threads[thread->idx];
	report->reactor = *lp_reactor_stats(thread->reactor);
	lp_bufs_read_stats(thread->bufs, &report->bufs);
	lpi_mount_report_read(thread->service->mount.channels[thread->idx],
			      &gather->mounts[thread->idx]);
	if (gather->wants_under_way)
		read_mount_under_way(report, thread);
	int result = 0;
	for (struct lpi_shard *s = lpi_thread_next(thread, NULL); s;
	     s = lpi_thread_next(thread, s)) {
		int r = ask_scrub(gather, s);
		result = r < 0 ? r : result;
		read_shard(gather, s);
	}
	lpi_errand_end(errand, result);
}

/* --- Answers ---------------------------------------------------------------------------------- */

static void answer(struct lpi_gather_reports *gather, int result)
{
	struct lpi_question *question = current(gather);
	question_list_remove(question);
	question->result = result;
	if (result == 0 && question->answer.failed) {
		question->result = -ENOMEM;
		lpi_text_fini(&question->answer);
	}
	gather->is_busy = false;
	question->answered(question);
}

static void answer_error(struct lpi_gather_reports *gather, int err, const char *why)
{
	lpi_text_printf(&current(gather)->answer, "%s", why);
	answer(gather, err);
}

static void read_devices(struct lp_service *service, struct lpi_report *report)
{
	uint64_t now_ns = lp_reactor_now_ns(service->reactor);
	uint64_t timeout_ns =
		lp_config_number(&service->config, LP_OPT_DEVICE_TIMEOUT) * LP_NS_PER_S;
	for (uint32_t i = 0; i < LPI_REPORT_DEVICES; i++) {
		const struct lp_bdev *bdev = service->bdev[i];
		const struct lpi_probe *probe = &service->health.probes[i];
		struct lpi_device_report *device = &report->devices[i];
		if (bdev == NULL)
			continue;
		device->name = lp_bdev_name(bdev);
		device->size_bytes = lp_bdev_caps(bdev)->size_bytes;
		device->is_silent = probe->is_asked && now_ns - probe->asked_ns >= timeout_ns;
		lp_bdev_sync_stats(bdev, &device->sync);
	}
}

static uint64_t unleased_bytes(const struct lp_service *service)
{
	if (!service->devices_open)
		return 0;
	const struct lp_chunks *chunks = service->devices.chunks[LP_ROLE_DATA];
	return (uint64_t)lp_chunks_for_objects_cnt(chunks) * lp_chunks_chunk_blocks(chunks) *
	       LP_BLOCK_BYTES;
}

static void format_uuid(const uint8_t *uuid, char *buf, size_t len)
{
	size_t used = 0;
	for (int i = 0; i < 16; i++)
		used += (size_t)snprintf(buf + used, len - used, "%s%02x",
					 i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

static void fill_report(struct lpi_gather_reports *gather, struct lpi_report *report)
{
	struct lp_service *service = gather->service;
	bool is_mounted = service->mount.session != NULL && !atomic_load(&service->mount.is_gone);
	*report = (struct lpi_report){.server = service->options.server_name,
				      .allocator = lpi_heap_name(),
				      .store_kind = lpi_service_store_kind(service),
				      .state = lpi_health_name(service->health.state),
				      .reason = service->health.reason,
				      .state_since_ns = service->health.since_ns,
				      .still_ns = lpi_health_still_ns(&service->health),
				      .uptime_ns = lp_reactor_now_ns(service->reactor) -
						   service->began_ns,
				      .corruptions = lp_corruption_count(),
				      .shard_cnt = service->shard_cnt,
				      .thread_cnt = service->thread_cnt,
				      .shards = gather->shards,
				      .threads = gather->threads,
				      .mounts = gather->mounts};
	if (is_mounted) {
		report->mount_dir = lp_config_text(&service->config, LP_OPT_MOUNT);
		report->mount_by_ring =
			lp_fuse_ring_serves(lp_fuse_session_ring(service->mount.session));
	}
	format_uuid(service->store_uuid, report->store_uuid, sizeof(report->store_uuid));
	for (uint32_t i = 0; i < service->listener_cnt; i++)
		report->peers_refused += lp_listener_refused(service->listeners[i]);
	report->unleased_bytes = unleased_bytes(service);
	if (service->bdev[LP_ROLE_DATA] != NULL)
		report->host_lack_bytes = lp_bdev_host_lack_bytes(service->bdev[LP_ROLE_DATA]);
	lpi_heap_read_stats(&report->heap);
	report->heap_givebacks = service->giveback.cnt;
	lp_workers_read_stats(service->workers, &report->workers);
	lp_log_read_stats(&report->log);
	read_devices(service, report);
}

static void answer_report(struct lpi_gather_reports *gather)
{
	static struct lpi_report report; /* the control thread's */
	struct lpi_question *question = current(gather);
	const struct lp_config *config = &gather->service->config;
	struct lpi_text *text = &question->answer;
	if (gather->wants_list) {
		*text = gather->list;
		gather->list = (struct lpi_text){.bytes = NULL};
		answer(gather, 0);
		return;
	}
	fill_report(gather, &report);
	if (question->opcode == LP_WIRE_OP_SCRUB)
		lpi_report_scrub(&report, text);
	else if (question->opcode == LP_WIRE_OP_STATUS)
		lpi_report_status(&report, text);
	else if (question->opcode == LP_WIRE_OP_SLOW)
		lpi_report_slow(&report, lp_config_number(config, LP_OPT_SLOW_MS) * LP_NS_PER_MS,
				text);
	else if (question->opcode == LP_WIRE_OP_ALLOC && gather->wants_usage)
		lpi_report_dump(&report, text);
	else if (question->opcode == LP_WIRE_OP_ALLOC)
		lpi_report_alloc(&report, text);
	else if (gather->wants_under_way)
		lpi_report_stuck(&report, text);
	else if (strcmp(question->text, "prometheus") == 0)
		lpi_report_prometheus(&report, text);
	else
		lpi_report_json(&report, text);
	answer(gather, 0);
}

/* --- Options ---------------------------------------------------------------------------------- */

static void json_option(const struct lp_config *config, enum lp_option option, const char *key,
			struct lpi_text *text)
{
	char value[LP_CONFIG_TEXT_MAX];
	enum lp_option_type type = lp_options[option].type;
	(void)lp_config_format(config, option, value, sizeof(value));
	if (type == LP_OPTION_NUMBER || type == LP_OPTION_BYTES)
		lpi_json_number(text, key, lp_config_number(config, option));
	else
		lpi_json_string(text, key, value);
}

static void config_get(struct lpi_gather_reports *gather)
{
	struct lpi_question *question = current(gather);
	const struct lp_config *config = &gather->service->config;
	enum lp_option option;
	if (question->text[0] != '\0') {
		if (lp_config_find(question->text, &option) == NULL) {
			answer_error(gather, -EINVAL, "there is no such option");
			return;
		}
		json_option(config, option, NULL, &question->answer);
		answer(gather, 0);
		return;
	}
	lpi_json_open(&question->answer, NULL, '{');
	for (int i = 0; i < LP_OPT_CNT; i++)
		json_option(config, (enum lp_option)i, lp_options[i].name, &question->answer);
	lpi_json_close(&question->answer, '}');
	answer(gather, 0);
}

/* The new configuration, if name=value is one that may be set now. */
static int change_config(const struct lp_config *config, char *text, enum lp_option *ret_option,
			 struct lp_config *ret_config, char *why)
{
	char *equals = strchr(text, '=');
	if (equals == NULL)
		return lpi_refuse(why, -EINVAL, "the request is not of the form NAME=VALUE");
	*equals = '\0';
	const struct lp_option_info *info = lp_config_find(text, ret_option);
	if (info == NULL)
		return lpi_refuse(why, -EINVAL, "%.100s: there is no such option", text);
	if (!info->is_live)
		return lpi_refuse(why, -EPERM,
				  "%s: can only be set when the daemon starts (in its "
				  "configuration file)",
				  info->name);
	*ret_config = *config;
	return lp_config_set(ret_config, *ret_option, equals + 1, why);
}

/* The memory that the daemon knows of, by name; of all shards, as of their last look. */
static void heap_parts(struct lpi_text *text)
{
	struct lp_account_sum rows[HEAP_PARTS];
	size_t cnt = LP_MIN(lp_account_list(rows, HEAP_PARTS), (size_t)HEAP_PARTS);
	lpi_json_open(text, "parts", '{');
	for (size_t i = 0; i < cnt; i++) {
		lpi_json_open(text, rows[i].name, '{');
		lpi_json_number(text, "bytes", rows[i].bytes);
		if (rows[i].limit_bytes != LP_ACCOUNT_NO_LIMIT)
			lpi_json_number(text, "limit_bytes", rows[i].limit_bytes);
		lpi_json_close(text, '}');
	}
	lpi_json_close(text, '}');
}

static void heap(struct lpi_gather_reports *gather)
{
	struct lpi_question *question = current(gather);
	struct lpi_heap_stats stats;
	bool wants_release = strcmp(question->text, "release") == 0;
	if (!wants_release && strcmp(question->text, "stats") != 0) {
		answer_error(gather, -EINVAL, "heap: neither stats nor release");
		return;
	}
	bool is_released = wants_release && lpi_heap_release();
	lpi_heap_read_stats(&stats);
	lpi_json_open(&question->answer, NULL, '{');
	lpi_json_string(&question->answer, "allocator", lpi_heap_name());
	lpi_json_bool(&question->answer, "released", is_released);
	lpi_json_number(&question->answer, "used_bytes", stats.used_bytes);
	lpi_json_number(&question->answer, "held_bytes", stats.held_bytes);
	lpi_json_number(&question->answer, "rss_bytes", stats.rss_bytes);
	lpi_json_number(&question->answer, "file_bytes", stats.file_bytes);
	heap_parts(&question->answer);
	lpi_json_close(&question->answer, '}');
	answer(gather, 0);
}

static void check(struct lpi_gather_reports *gather)
{
	struct lpi_question *question = current(gather);
	struct lpi_checking *checking = gather->service->checking;
	if (lpi_checking_ask(checking, question->text) < 0) {
		answer_error(gather, -EINVAL, "check: neither status, start nor stop");
		return;
	}
	lpi_checking_json(checking, &question->answer);
	answer(gather, 0);
}

/* --- The queue -------------------------------------------------------------------------------- */

static void config_set_done(struct lpi_gather_reports *gather);

static void thread_done(struct lpi_errand *errand)
{
	struct lpi_thread *thread = LP_CONTAINER_OF(errand, struct lpi_thread, gather);
	struct lpi_gather_reports *gather = thread->service->gather;
	if (gather->result == 0)
		gather->result = errand->result;
	if (--gather->left > 0)
		return;
	if (current(gather)->opcode == LP_WIRE_OP_CONFIG_SET)
		config_set_done(gather);
	else if (gather->result < 0)
		answer_error(gather, gather->result, SCRUB_WORDS);
	else
		answer_report(gather);
	work(gather);
}

static void ask_threads(struct lpi_gather_reports *gather, void (*run)(struct lpi_errand *errand))
{
	struct lp_service *service = gather->service;
	gather->left = service->thread_cnt;
	gather->result = 0;
	for (uint32_t i = 0; i < service->thread_cnt; i++) {
		struct lpi_errand *errand = &service->threads[i].gather;
		errand->run = run;
		errand->done = thread_done;
		lpi_errand_start(&service->threads[i], errand);
	}
}

/* --- Options that are set ----------------------------------------------------------------------
 */

static void take_config(struct lp_service *service, const struct lp_config *config)
{
	service->config = *config;
	lp_log_set_level((enum lp_log_level)lp_config_number(config, LP_OPT_LOG_LEVEL));
}

static void config_set(struct lpi_gather_reports *gather)
{
	static struct lp_config changed; /* the control thread's */
	struct lpi_question *question = current(gather);
	struct lp_service *service = gather->service;
	enum lp_option option = LP_OPT_CNT;
	char why[LP_WHY_MAX];
	int err = change_config(&service->config, question->text, &option, &changed, why);
	if (err < 0) {
		answer_error(gather, err, why);
		return;
	}
	/* Done now, before any change, because memory may lack for it. */
	json_option(&changed, option, NULL, &question->answer);
	if (question->answer.failed) {
		answer(gather, 0);
		return;
	}
	gather->former = service->config;
	gather->refused = 0;
	take_config(service, &changed);
	ask_threads(gather, lpi_thread_configure);
}

/* Returns to the former options after one thread refused, because others may have taken the new
 * ones. Not while stopping. */
static bool go_back(struct lpi_gather_reports *gather)
{
	struct lp_service *service = gather->service;
	if (gather->result == 0 || gather->refused < 0)
		return false;
	gather->refused = gather->result;
	take_config(service, &gather->former);
	if (service->state != LPI_SERVICE_SERVING)
		return false;
	ask_threads(gather, lpi_thread_configure);
	return true;
}

static void config_set_done(struct lpi_gather_reports *gather)
{
	struct lpi_question *question = current(gather);
	enum lp_option option;
	char value[LP_CONFIG_TEXT_MAX];
	if (go_back(gather))
		return;
	if (gather->refused < 0) {
		lpi_text_fini(&question->answer);
		answer_error(gather, gather->refused, lp_strerror(gather->refused));
		return;
	}
	/* The text was cut at the '='. */
	const struct lp_option_info *info = lp_config_find(question->text, &option);
	LP_ASSERT(info != NULL);
	(void)lp_config_format(&gather->service->config, option, value, sizeof(value));
	LP_LOG_NOTICE("config: %s is %s now", info->name, value);
	answer(gather, 0);
}

/* --- Which question it is -----------------------------------------------------------------------
 */

static bool is_one_of(const char *text, const char *one, const char *other)
{
	return strcmp(text, one) == 0 || strcmp(text, other) == 0;
}

/* Parses "list SHARD INODE"; the shard must exist. False: another form. */
static bool wants_list(struct lpi_gather_reports *gather, const struct lpi_question *question)
{
	static const char word[] = "list ";
	const char *text = question->text;
	char *end = NULL;
	if (question->opcode != LP_WIRE_OP_SCRUB || strncmp(text, word, sizeof(word) - 1) != 0)
		return false;
	gather->list_shard = strtoull(text + sizeof(word) - 1, &end, 10);
	if (*end != ' ' || gather->list_shard >= gather->service->shard_cnt)
		return false;
	gather->list_behind = strtoull(end + 1, &end, 10);
	return *end == '\0';
}

static void begin(struct lpi_gather_reports *gather)
{
	struct lpi_question *question = current(gather);
	gather->wants_list = wants_list(gather, question);
	gather->wants_usage =
		question->opcode == LP_WIRE_OP_ALLOC && strcmp(question->text, "dump") == 0;
	gather->wants_score = question->opcode == LP_WIRE_OP_ALLOC && !gather->wants_usage;
	gather->wants_under_way =
		question->opcode == LP_WIRE_OP_STATS && strcmp(question->text, "stuck") == 0;
	switch (question->opcode) {
	case LP_WIRE_OP_CONFIG_GET:
		config_get(gather);
		return;
	case LP_WIRE_OP_CONFIG_SET:
		config_set(gather);
		return;
	case LP_WIRE_OP_HEAP:
		heap(gather);
		return;
	case LP_WIRE_OP_STATS:
		if (!gather->wants_under_way && !is_one_of(question->text, "json", "prometheus"))
			answer_error(gather, -EINVAL, "stats: not json, prometheus or stuck");
		else
			ask_threads(gather, gather_there);
		return;
	case LP_WIRE_OP_ALLOC:
		if (!is_one_of(question->text, "score", "dump"))
			answer_error(gather, -EOPNOTSUPP, "alloc: neither score nor dump");
		else
			ask_threads(gather, gather_there);
		return;
	case LP_WIRE_OP_CHECK:
		check(gather);
		return;
	case LP_WIRE_OP_STATUS:
	case LP_WIRE_OP_SLOW:
	case LP_WIRE_OP_SCRUB:
		ask_threads(gather, gather_there);
		return;
	default:
		answer_error(gather, -ENOSYS, "there is no such request");
	}
}

static void work(struct lpi_gather_reports *gather)
{
	while (!gather->is_busy && !question_list_is_empty(&gather->waiting)) {
		gather->is_busy = true;
		if (gather->service->state == LPI_SERVICE_SERVING) {
			begin(gather);
			continue;
		}
		answer_error(gather, -EAGAIN, "the daemon does not serve");
	}
}

void lpi_gather_ask(struct lpi_gather_reports *gather, struct lpi_question *question)
{
	question_list_push_back(&gather->waiting, question);
	work(gather);
}

bool lpi_gather_is_idle(const struct lpi_gather_reports *gather)
{
	return question_list_is_empty(&gather->waiting);
}

int lpi_gather_new(struct lp_service *service, struct lpi_gather_reports **ret_gather)
{
	struct lpi_gather_reports *gather = calloc(1, sizeof(*gather));
	if (gather == NULL)
		return -ENOMEM;
	/* Large, but only the used parts take memory. */
	gather->shards = calloc(service->shard_cnt, sizeof(*gather->shards));
	gather->mounts = calloc(service->thread_cnt, sizeof(*gather->mounts));
	if (gather->shards == NULL || gather->mounts == NULL) {
		free(gather->shards);
		free(gather->mounts);
		free(gather);
		return -ENOMEM;
	}
	gather->service = service;
	question_list_init(&gather->waiting);
	*ret_gather = gather;
	return 0;
}

void lpi_gather_free(struct lpi_gather_reports *gather)
{
	if (gather == NULL)
		return;
	LP_ASSERT(lpi_gather_is_idle(gather));
	free(gather->shards);
	free(gather->mounts);
	free(gather);
}

/* --- From a door and back --------------------------------------------------------------------- */

struct call {
	struct lp_msg msg;
	struct lpi_shard *shard;
	struct lp_admin *admin;
	struct lpi_question question;
};

static void call_back(struct lp_reactor *to, struct lp_msg *msg)
{
	struct call *call = LP_CONTAINER_OF(msg, struct call, msg);
	struct lpi_question *question = &call->question;
	const char *text = question->answer.bytes != NULL ? question->answer.bytes : "";
	(void)to;
	lp_door_answer_admin(call->shard->door, call->admin, question->result, text,
			     question->answer.len);
	lpi_text_fini(&question->answer);
	free(call);
}

static void call_answered(struct lpi_question *question)
{
	struct call *call = LP_CONTAINER_OF(question, struct call, question);
	struct lpi_thread *thread = call->shard->thread;
	call->msg.deliver = call_back;
	lp_reactor_send(thread->service->reactor, thread->reactor, &call->msg);
}

static void call_come(struct lp_reactor *to, struct lp_msg *msg)
{
	struct call *call = LP_CONTAINER_OF(msg, struct call, msg);
	(void)to;
	lpi_gather_ask(call->shard->thread->service->gather, &call->question);
}

void lpi_admin_ask(struct lpi_shard *shard, struct lp_admin *admin)
{
	struct lpi_thread *thread = shard->thread;
	static const char too_long[] = "longer than any such request";
	if (admin->text.len > LP_WIRE_PATH_MAX) {
		lp_door_answer_admin(shard->door, admin, -EINVAL, too_long, sizeof(too_long) - 1);
		return;
	}
	if (admin->opcode == LP_WIRE_OP_EXPLAIN) {
		lpi_explain(shard, admin);
		return;
	}
	struct call *call = calloc(1, sizeof(*call));
	if (call == NULL) {
		lp_door_answer_admin(shard->door, admin, -ENOMEM, "", 0);
		return;
	}
	*call = (struct call){.msg = {.deliver = call_come}, .shard = shard, .admin = admin};
	call->question.opcode = admin->opcode;
	call->question.text_len = admin->text.len;
	call->question.answered = call_answered;
	if (admin->text.len > 0)
		memcpy(call->question.text, admin->text.data, admin->text.len);
	lp_reactor_send(thread->reactor, thread->service->reactor, &call->msg);
}
