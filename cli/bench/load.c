/* SPDX-License-Identifier: Apache-2.0 */
/* The engine: handles, the loop that keeps requests under way, and what is counted.
 *
 * In a closed loop the callback of one request submits the next, which goes out in the same turn of
 * the library with all others that ended in it: one send for many. In an open one the loop looks
 * at the clock, and waits for answers no longer than until the next request is due. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/assert.h"
#include "base/clock.h"
#include "cli/bench/load_impl.h"

#define ERRORS_IN_A_ROW 1000u
#define STOP_NS         (2 * LP_NS_PER_S)    /* how long a stop waits for answers */
#define TURN_NS         (100 * LP_NS_PER_MS) /* the longest that one waits: a signal may be missed */
#define SECONDS_MAX     100000u
#define RECONNECT_MS    200u /* without --reconnect */

static volatile sig_atomic_t is_stopped;

void lpi_load_stop(void)
{
	is_stopped = 1;
}

bool lpi_load_is_stopped(void)
{
	return is_stopped != 0;
}

uint64_t lpi_load_now(const struct lpi_load *load)
{
	return lp_clock_mono_ns(load->clock);
}

/* --- Errors ----------------------------------------------------------------------------------- */

void lpi_load_give_up(struct lpi_load *load, const char *fmt, ...)
{
	va_list ap;
	load->has_ended = true;
	if (load->error != 0)
		return;
	load->error = -EIO;
	va_start(ap, fmt);
	(void)vsnprintf(load->why, sizeof(load->why), fmt, ap); /* a longer one is cut */
	va_end(ap);
}

static struct lpi_load_error *find_error(struct lpi_load *load, enum lpi_load_kind kind, int status)
{
	for (size_t i = 0; i < load->errors_cnt; i++) {
		if (load->errors[i].kind == kind && load->errors[i].status == status)
			return &load->errors[i];
	}
	/* What is more than there is room for counts with the last. */
	if (load->errors_cnt == LPI_LOAD_KINDS_MAX)
		return &load->errors[LPI_LOAD_KINDS_MAX - 1];
	struct lpi_load_error *error = &load->errors[load->errors_cnt++];
	*error = (struct lpi_load_error){.kind = kind, .status = status};
	return error;
}

int lpi_load_note(struct lpi_load *load, const struct lpi_load_slot *slot, int status,
		  const char *fmt, ...)
{
	struct lpi_load_error *error = find_error(load, slot->kind, status);
	va_list ap;
	if (error->cnt++ > 0)
		return status;
	lpi_load_key(load, slot->object, slot->is_new, error->key);
	va_start(ap, fmt);
	(void)vsnprintf(error->text, sizeof(error->text), fmt, ap);
	va_end(ap);
	return status;
}

/* Nobody answers, or it is not known whether. */
static bool is_loss(int status)
{
	return status == -ENOTCONN || status == -ETIMEDOUT || status == -LAPIS_EUNKNOWN;
}

static void judge_error(struct lpi_load *load, int status, const char *text)
{
	/* All that is under way when a daemon goes away may fail in a row. */
	bool is_enough = ++load->row_of_errors >= ERRORS_IN_A_ROW + load->slots_cnt;
	bool goes_on = load->options->reconnect_ms > 0 && !is_enough;
	if (is_loss(status) && !goes_on) {
		load->is_lost = true;
		lpi_load_give_up(load, "the daemon does not answer any more: %s", text);
	} else if (is_enough) {
		lpi_load_give_up(load, "%" PRIu64 " errors in a row", load->row_of_errors);
	}
}

/* --- Counting --------------------------------------------------------------------------------- */

static void count(struct lpi_load_part *part, uint64_t bytes, uint64_t latency_ns, bool is_error)
{
	if (is_error) {
		part->errors++;
		return;
	}
	part->ops++;
	part->bytes += bytes;
	lp_hist_record(&part->latency_ns, latency_ns);
}

static void reset_result(struct lpi_load *load)
{
	/* What verify found before is not forgotten. */
	load->result = (struct lpi_load_result){.mismatches = load->result.mismatches};
	lp_hist_reset(&load->result.all.latency_ns);
	for (int i = 0; i < LPI_LOAD_KIND_CNT; i++)
		lp_hist_reset(&load->result.kinds[i].latency_ns);
	load->then = load->result.all;
	load->then_ns = load->begin_ns;
	load->seconds_cnt = 0;
}

/* The series grows once a second: by doubling. */
static struct lpi_load_second *new_second(struct lpi_load *load)
{
	size_t cnt = load->seconds_cnt;
	if (cnt >= SECONDS_MAX)
		return NULL;
	if (cnt == 0 || (cnt >= 64 && lp_is_power_of_two(cnt))) {
		size_t room = cnt == 0 ? 64 : cnt * 2;
		struct lpi_load_second *more = realloc(load->seconds, room * sizeof(*more));
		if (more == NULL)
			return NULL;
		load->seconds = more;
	}
	return &load->seconds[load->seconds_cnt++];
}

/* What happened since the last one. */
static void end_second(struct lpi_load *load, uint64_t now_ns)
{
	const struct lpi_load_part *all = &load->result.all;
	struct lp_hist *hist = &load->then.latency_ns;
	struct lpi_load_second *second = new_second(load);
	if (second == NULL)
		return;
	/* `then` becomes what came behind it, and then what is now. */
	struct lp_hist recent = all->latency_ns;
	lp_hist_subtract(&recent, hist);
	*second = (struct lpi_load_second){
		.from_s = (double)(load->then_ns - load->begin_ns) / (double)LP_NS_PER_S,
		.until_s = (double)(now_ns - load->begin_ns) / (double)LP_NS_PER_S,
		.ops = all->ops - load->then.ops,
		.errors = all->errors - load->then.errors,
		.bytes = all->bytes - load->then.bytes,
		.p50_ns = lp_hist_percentile(&recent, LP_HIST_P50),
		.p99_ns = lp_hist_percentile(&recent, LP_HIST_P99),
		.max_ns = lp_hist_percentile(&recent, LP_HIST_P100),
	};
	load->then = *all;
	load->then_ns = now_ns;
}

static void tick(struct lpi_load *load, uint64_t now_ns)
{
	if (now_ns < load->tick_ns)
		return;
	/* One that was missed is not made up for. */
	load->tick_ns += (1 + (now_ns - load->tick_ns) / LP_NS_PER_S) * LP_NS_PER_S;
	if (load->step->is_measured)
		end_second(load, now_ns);
	if (load->tick != NULL)
		load->tick(load->tick_arg, load);
}

/* --- The loop --------------------------------------------------------------------------------- */

static void begin_more(struct lpi_load *load, uint64_t now_ns);

static void ended(void *arg, const struct lapis_result *result)
{
	struct lpi_load_slot *slot = arg;
	struct lpi_load *load = slot->load;
	uint64_t now_ns = lpi_load_now(load);
	int err = load->step->done(load, slot, result);
	if (err < 0)
		judge_error(load, result->status, result->text);
	else
		load->row_of_errors = 0;
	if (load->step->is_measured) {
		uint64_t took_ns = now_ns - slot->begin_ns;
		count(&load->result.all, slot->length, took_ns, err < 0);
		count(&load->result.kinds[slot->kind], slot->length, took_ns, err < 0);
	}
	load->ended++;
	load->under_way--;
	slot->is_under_way = false;
	load->free_slots[load->free_cnt++] = slot;
	begin_more(load, now_ns);
}

static bool must_end(const struct lpi_load *load, uint64_t now_ns)
{
	if (lpi_load_is_stopped() && !load->step->ignores_stop)
		return true;
	if (load->ops_max > 0 && load->begun >= load->ops_max)
		return true;
	return load->end_ns > 0 && now_ns >= load->end_ns;
}

/* False: nothing more for now. */
static bool begin_one(struct lpi_load *load, uint64_t now_ns)
{
	char key[LPI_LOAD_KEY_MAX];
	struct lpi_load_slot *slot = load->free_slots[load->free_cnt - 1];
	struct lapis_request request = {
		.size = sizeof(request), .path = key, .done = ended, .arg = slot};
	slot->length = 0;
	slot->offset = 0;
	slot->is_new = false;
	slot->page_cnt = 0;
	enum lpi_load_next next = load->step->next(load, slot, &request);
	load->has_ended = load->has_ended || next == LPI_LOAD_END;
	if (next != LPI_LOAD_GO)
		return false;
	if (request.path == key)
		lpi_load_key(load, slot->object, slot->is_new, key);
	slot->begin_ns = load->is_paced ? lpi_load_pace_take(&load->pace, now_ns) : now_ns;
	int err = lapis_submit(slot->lapis, &request, &slot->id);
	if (err < 0) {
		lpi_load_give_up(load, "a request could not be made: %s", lapis_error_text());
		return false;
	}
	slot->is_under_way = true;
	load->free_cnt--;
	load->under_way++;
	load->begun++;
	return true;
}

static void begin_more(struct lpi_load *load, uint64_t now_ns)
{
	bool goes_on = true;
	while (goes_on && load->free_cnt > 0 && !load->has_ended) {
		if (must_end(load, now_ns))
			load->has_ended = true;
		else if (load->is_paced && lpi_load_pace_next_ns(&load->pace) > now_ns)
			goes_on = false;
		else
			goes_on = begin_one(load, now_ns);
	}
}

/* Who stops does not want to wait for a daemon that does not answer. */
static void cancel_late(struct lpi_load *load, uint64_t now_ns)
{
	if (!lpi_load_is_stopped() || load->step->ignores_stop)
		return;
	if (load->cancel_ns == 0)
		load->cancel_ns = now_ns + STOP_NS;
	if (now_ns < load->cancel_ns)
		return;
	load->cancel_ns = UINT64_MAX;
	load->is_lost = true;
	for (uint32_t i = 0; i < load->slots_cnt; i++) {
		if (load->slots[i].is_under_way)
			lapis_cancel(load->slots[i].lapis, load->slots[i].id);
	}
}

/* Until when nothing is to be done but to take answers. */
static uint64_t wait_until(const struct lpi_load *load, uint64_t now_ns)
{
	uint64_t until_ns = LP_MIN(load->tick_ns, now_ns + TURN_NS);
	if (load->end_ns > now_ns)
		until_ns = LP_MIN(until_ns, load->end_ns);
	if (load->is_paced && !load->has_ended && load->free_cnt > 0)
		until_ns = LP_MIN(until_ns, lpi_load_pace_next_ns(&load->pace));
	return until_ns;
}

static void wait_for_one(struct lpi_load *load, uint64_t left_ns)
{
	(void)lapis_turn(load->handles[0], (int)((left_ns + LP_NS_PER_MS - 1) / LP_NS_PER_MS));
}

static void wait_for_any(struct lpi_load *load, uint64_t left_ns)
{
	struct pollfd fds[LPI_LOAD_CONNS_MAX];
	const struct timespec wait = {.tv_sec = (time_t)(left_ns / LP_NS_PER_S),
				      .tv_nsec = (long)(left_ns % LP_NS_PER_S)};
	uint32_t cnt = load->options->conns_cnt;
	for (uint32_t i = 0; i < cnt; i++)
		fds[i] = (struct pollfd){.fd = lapis_fd(load->handles[i]), .events = POLLIN};
	if (ppoll(fds, cnt, &wait, NULL) < 0)
		return; /* a signal: there may be something else to do */
	for (uint32_t i = 0; i < cnt; i++) {
		if (fds[i].revents != 0)
			(void)lapis_turn(load->handles[i], 0);
	}
}

static void turn(struct lpi_load *load)
{
	uint64_t now_ns = lpi_load_now(load);
	uint64_t begun = load->begun;
	begin_more(load, now_ns);
	if (load->has_ended && load->under_way == 0)
		return;
	uint64_t until_ns = wait_until(load, now_ns);
	uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
	/* Its wait is of whole milliseconds, which is too coarse for a pace; but there is nothing
	 * to wait for before what has just begun is sent. */
	if (load->options->conns_cnt == 1 && !load->is_paced)
		wait_for_one(load, left_ns);
	else if (load->options->conns_cnt == 1 && load->begun != begun)
		wait_for_one(load, 0);
	else
		wait_for_any(load, left_ns);
	now_ns = lpi_load_now(load);
	cancel_late(load, now_ns);
	tick(load, now_ns);
}

int lpi_load_run(struct lpi_load *load, const struct lpi_load_step *step, uint32_t depth)
{
	LP_ASSERT(load->under_way == 0 && depth > 0 && depth <= load->slots_cnt);
	load->step = step;
	load->has_ended = false;
	load->error = 0;
	load->begun = 0;
	load->ended = 0;
	load->cancel_ns = 0;
	load->row_of_errors = 0;
	load->free_cnt = 0;
	/* The first ones last: they are taken first. */
	for (uint32_t i = depth; i > 0; i--)
		load->free_slots[load->free_cnt++] = &load->slots[i - 1];
	load->begin_ns = lpi_load_now(load);
	load->end_ns = load->run_ns == 0 ? 0 : load->begin_ns + load->run_ns;
	load->tick_ns = load->begin_ns + LP_NS_PER_S;
	if (load->is_paced)
		lpi_load_pace_start(&load->pace, load->begin_ns);
	if (step->is_measured)
		reset_result(load);
	while (!load->has_ended || load->under_way > 0)
		turn(load);
	if (load->error == 0 && lpi_load_is_stopped() && !step->ignores_stop)
		load->error = -EINTR;
	return load->error;
}

/* --- Warming up, measuring -------------------------------------------------------------------- */

/* So that it is asked for as often as it is measured, and nothing of it is. */
static int run_measured(struct lpi_load *load, uint64_t run_ns, uint64_t ops_max)
{
	const struct lpi_load_options *options = load->options;
	load->is_paced = options->rate > 0;
	load->run_ns = run_ns;
	load->ops_max = ops_max;
	load->all = ops_max;
	int err = lpi_load_run(load, &lpi_load_measured, options->depth);
	uint64_t now_ns = lpi_load_now(load);
	load->result.took_ns = now_ns - load->begin_ns;
	load->result.late_cnt = load->pace.late_cnt;
	load->result.late_max_ns = load->pace.late_max_ns;
	/* What was due before the end and not begun has a latency that nobody knows. */
	if (load->is_paced && err == 0 && load->end_ns > 0 && now_ns >= load->end_ns)
		load->result.unsent_cnt = lpi_load_pace_drop(&load->pace, load->end_ns);
	load->is_paced = false;
	load->run_ns = 0;
	load->ops_max = 0;
	load->all = 0;
	return err;
}

int lpi_load_warm(struct lpi_load *load)
{
	if (load->options->warmup_ns == 0)
		return 0;
	int err = run_measured(load, load->options->warmup_ns, 0);
	load->result.took_ns = 0;
	return err;
}

static uint64_t to_ns(const struct timeval *time)
{
	return (uint64_t)time->tv_sec * LP_NS_PER_S + (uint64_t)time->tv_usec * LP_NS_PER_US;
}

/* Of all handles, so far. */
static struct lapis_stats client_stats(const struct lpi_load *load)
{
	struct lapis_stats all = {.size = sizeof(all)};
	struct lapis_stats *sum = &all;
	for (uint32_t i = 0; i < load->options->conns_cnt; i++) {
		struct lapis_stats one = {.size = sizeof(one)};
		lapis_read_stats(load->handles[i], &one);
		sum->sends += one.sends;
		sum->receives += one.receives;
		sum->connects += one.connects;
		sum->retries += one.retries;
		sum->shard_misses += one.shard_misses;
	}
	return all;
}

int lpi_load_measure(struct lpi_load *load)
{
	struct rusage before;
	struct rusage after;
	/* A wait until the next request is due ends then, not a little later. */
	if (load->options->rate > 0)
		(void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
	const struct lapis_stats client = client_stats(load);
	(void)getrusage(RUSAGE_SELF, &before); /* cannot fail with these arguments */
	int err = run_measured(load, load->options->run_ns, load->options->ops_max);
	(void)getrusage(RUSAGE_SELF, &after);
	load->result.user_ns = to_ns(&after.ru_utime) - to_ns(&before.ru_utime);
	load->result.system_ns = to_ns(&after.ru_stime) - to_ns(&before.ru_stime);
	/* The last one, unless it is too short to say anything. */
	uint64_t now_ns = load->begin_ns + load->result.took_ns;
	if (now_ns - load->then_ns > LP_NS_PER_S / 10)
		end_second(load, now_ns);
	const struct lapis_stats all = client_stats(load);
	load->result.sends = all.sends - client.sends;
	load->result.receives = all.receives - client.receives;
	load->result.retries = all.retries - client.retries;
	load->result.connects = all.connects;
	load->result.shard_misses = all.shard_misses - client.shard_misses;
	return err;
}

/* --- From birth to death ---------------------------------------------------------------------- */

static int new_slots(struct lpi_load *load)
{
	const struct lpi_load_options *options = load->options;
	uint64_t bytes = LP_MAX(options->sizes.high_bytes, LPI_LOAD_CHUNK);
	uint64_t floors = lpi_load_uses_files(options->op) ? bytes / load->unit_bytes : 1;
	load->slots_cnt = LP_MAX(options->depth, LPI_LOAD_PREP_DEPTH);
	load->slots = calloc(load->slots_cnt, sizeof(*load->slots));
	load->free_slots = calloc(load->slots_cnt, sizeof(struct lpi_load_slot *));
	if (load->slots == NULL || load->free_slots == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < load->slots_cnt; i++) {
		struct lpi_load_slot *slot = &load->slots[i];
		slot->load = load;
		if (!options->is_verified)
			continue;
		/* Of these pages none is there before it is used. */
		slot->buf = malloc(bytes);
		slot->floors = calloc(floors, sizeof(*slot->floors));
		if (slot->buf == NULL || slot->floors == NULL)
			return -ENOMEM;
	}
	return 0;
}

static int new_pattern(struct lpi_load *load)
{
	const struct lpi_load_options *options = load->options;
	uint64_t bytes = LP_MAX(options->sizes.high_bytes, LPI_LOAD_CHUNK);
	if (options->is_verified)
		return 0;
	bytes += (uint64_t)LPI_LOAD_STARTS * LPI_LOAD_CELL_BYTES;
	load->pattern = malloc(bytes);
	if (load->pattern == NULL)
		return -ENOMEM;
	lp_prng_fill(&load->prng, load->pattern, bytes);
	return 0;
}

static int new_objects(struct lpi_load *load)
{
	const struct lpi_load_options *options = load->options;
	bool uses_files = lpi_load_uses_files(options->op);
	load->pages_per_object = uses_files ? options->object_bytes / load->unit_bytes : 1;
	if (options->objects_cnt == 0) {
		load->failed_new = calloc(LPI_LOAD_FAILED_NEW_MAX, sizeof(*load->failed_new));
		return load->failed_new != NULL ? 0 : -ENOMEM;
	}
	load->flags = calloc(options->objects_cnt, 1);
	if (load->flags == NULL)
		return -ENOMEM;
	if (uses_files) {
		load->inos = calloc(options->objects_cnt, sizeof(*load->inos));
		if (load->inos == NULL)
			return -ENOMEM;
	}
	return !options->is_verified
		       ? 0
		       : lpi_load_book_init(&load->book,
					    options->objects_cnt * load->pages_per_object);
}

static void init_places(struct lpi_load *load)
{
	const struct lpi_load_options *options = load->options;
	uint64_t cnt = LP_MAX(options->objects_cnt, UINT64_C(1));
	uint64_t bits = options->sizes.unit_bytes;
	bool is_fixed = options->sizes.low_bytes == options->sizes.high_bytes;
	load->unit_bytes = bits;
	if (lpi_load_uses_files(options->op)) {
		bits |= options->object_bytes;
		load->unit_bytes = bits & (~bits + 1);
		load->grain_bytes = is_fixed ? options->sizes.low_bytes : load->unit_bytes;
		cnt *= options->object_bytes / load->grain_bytes;
	}
	lpi_load_places_init(&load->places, options->order, options->theta, cnt);
}

int lpi_load_new(const struct lpi_load_options *options, struct lpi_load **ret_load)
{
	LP_ASSERT(lpi_load_fault(options) == NULL);
	struct lpi_load *load = calloc(1, sizeof(*load));
	if (load == NULL)
		return -ENOMEM;
	load->options = options;
	load->clock = lp_clock_system();
	load->run = (uint64_t)lp_clock_wall_ns(load->clock);
	lp_prng_init(&load->prng, options->seed);
	lpi_load_name(load);
	init_places(load);
	reset_result(load);
	if (options->rate > 0)
		lpi_load_pace_init(&load->pace, options->rate, options->is_poisson, options->seed);
	int err = new_pattern(load);
	if (err == 0)
		err = new_slots(load);
	if (err == 0)
		err = new_objects(load);
	if (err < 0) {
		lpi_load_free(load);
		return err;
	}
	*ret_load = load;
	return 0;
}

void lpi_load_free(struct lpi_load *load)
{
	if (load == NULL)
		return;
	for (uint32_t i = 0; i < load->options->conns_cnt; i++)
		lapis_close(load->handles[i]);
	for (uint32_t i = 0; load->slots != NULL && i < load->slots_cnt; i++) {
		free(load->slots[i].buf);
		free(load->slots[i].floors);
	}
	free(load->slots);
	free((void *)load->free_slots);
	free(load->pattern);
	free(load->flags);
	free(load->inos);
	free(load->failed_new);
	free(load->seconds);
	lpi_load_book_fini(&load->book);
	free(load);
}

static int make_bucket(struct lpi_load *load)
{
	const char *bucket = load->options->bucket;
	int err = lapis_mkdir(load->handles[0], bucket, 0755, LAPIS_SPREAD);
	load->is_bucket_ours = err == 0;
	if (err == -EEXIST)
		err = 0;
	if (err < 0)
		lpi_load_give_up(load, "%s", lapis_error_text());
	return err < 0 ? -EIO : 0;
}

int lpi_load_open(struct lpi_load *load)
{
	const struct lpi_load_options *options = load->options;
	const struct lapis_options lapis = {
		.size = sizeof(lapis),
		.address = options->address,
		.name = "lapis bench",
		.crc = options->crc,
		.timeout_ms = options->timeout_ms,
		.reconnect_ms = options->reconnect_ms > 0 ? options->reconnect_ms : RECONNECT_MS,
	};
	LP_ASSERT(options->conns_cnt > 0);
	for (uint32_t i = 0; i < options->conns_cnt; i++) {
		if (lapis_open(&lapis, &load->handles[i]) < 0) {
			lpi_load_give_up(load, "%s", lapis_error_text());
			return -EIO;
		}
	}
	for (uint32_t i = 0; i < load->slots_cnt; i++)
		load->slots[i].lapis = load->handles[i % options->conns_cnt];
	return make_bucket(load);
}

/* --- Looking at it ---------------------------------------------------------------------------- */

void lpi_load_set_tick(struct lpi_load *load, lpi_load_tick_fn *tick_fn, void *arg)
{
	load->tick = tick_fn;
	load->tick_arg = arg;
}

const struct lpi_load_result *lpi_load_result(const struct lpi_load *load)
{
	return &load->result;
}

const struct lpi_load_options *lpi_load_options(const struct lpi_load *load)
{
	return load->options;
}

const char *lpi_load_why(const struct lpi_load *load)
{
	return load->why;
}

const struct lpi_load_error *lpi_load_errors(const struct lpi_load *load, size_t *ret_cnt)
{
	*ret_cnt = load->errors_cnt;
	return load->errors;
}

const struct lpi_load_second *lpi_load_seconds(const struct lpi_load *load, size_t *ret_cnt)
{
	*ret_cnt = load->seconds_cnt;
	return load->seconds;
}

const char *lpi_load_phase(const struct lpi_load *load, uint64_t *ret_done, uint64_t *ret_all)
{
	*ret_done = load->ended;
	*ret_all = load->all;
	return load->step->name;
}

char *lpi_load_ask_stats(struct lpi_load *load)
{
	char *text = NULL;
	return lapis_admin(load->handles[0], LAPIS_STATS, "json", &text) < 0 ? NULL : text;
}
