/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench/load_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"

#define RUN_NS        (10 * LP_NS_PER_S)
#define WARMUP_MAX_NS (2 * LP_NS_PER_S)
#define FILE_BYTES    (UINT64_C(16) << 20)
#define FILES         UINT64_C(16)
#define OBJECTS       UINT64_C(1000)
#define SMALL_OBJECTS UINT64_C(10000) /* where nothing of them but the name counts */
#define DEPTH         16u
#define ITEMS         1000u
#define THETA         0.99 /* as is usual */
#define TIMEOUT_MS    30000u

enum {
	OPT_OP = 256,
	OPT_SIZE,
	OPT_OBJECTS,
	OPT_OBJECT_SIZE,
	OPT_DIST,
	OPT_READS,
	OPT_ITEMS,
	OPT_DEPTH,
	OPT_CONNECTIONS,
	OPT_SECONDS,
	OPT_OPS,
	OPT_WARMUP,
	OPT_RATE,
	OPT_POISSON,
	OPT_VERIFY,
	OPT_BUCKET,
	OPT_KEEP,
	OPT_PREPARE_ONLY,
	OPT_READY,
	OPT_SEED,
	OPT_CRC,
	OPT_WRITE_PATH,
	OPT_TIMEOUT,
	OPT_RECONNECT,
	OPT_INTERVAL,
	OPT_JSON,
};

static const struct option longs[] = {
	{"op", required_argument, NULL, OPT_OP},
	{"size", required_argument, NULL, OPT_SIZE},
	{"objects", required_argument, NULL, OPT_OBJECTS},
	{"object-size", required_argument, NULL, OPT_OBJECT_SIZE},
	{"dist", required_argument, NULL, OPT_DIST},
	{"reads", required_argument, NULL, OPT_READS},
	{"items", required_argument, NULL, OPT_ITEMS},
	{"depth", required_argument, NULL, OPT_DEPTH},
	{"connections", required_argument, NULL, OPT_CONNECTIONS},
	{"seconds", required_argument, NULL, OPT_SECONDS},
	{"ops", required_argument, NULL, OPT_OPS},
	{"warmup", required_argument, NULL, OPT_WARMUP},
	{"rate", required_argument, NULL, OPT_RATE},
	{"poisson", no_argument, NULL, OPT_POISSON},
	{"verify", no_argument, NULL, OPT_VERIFY},
	{"bucket", required_argument, NULL, OPT_BUCKET},
	{"keep", no_argument, NULL, OPT_KEEP},
	{"prepare-only", no_argument, NULL, OPT_PREPARE_ONLY},
	{"ready", no_argument, NULL, OPT_READY},
	{"seed", required_argument, NULL, OPT_SEED},
	{"crc", required_argument, NULL, OPT_CRC},
	{"write-path", required_argument, NULL, OPT_WRITE_PATH},
	{"timeout", required_argument, NULL, OPT_TIMEOUT},
	{"reconnect", required_argument, NULL, OPT_RECONNECT},
	{"interval", required_argument, NULL, OPT_INTERVAL},
	{"json", no_argument, NULL, OPT_JSON},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* Each takes the value of one option: 0, or -EINVAL, -ERANGE. */

static int take_real(const char *text, double low, double high, double *ret)
{
	char *end;
	double value = strtod(text, &end);
	if (end == text || *end != '\0')
		return -EINVAL;
	if (!(value >= low && value <= high))
		return -ERANGE;
	*ret = value;
	return 0;
}

static int take_seconds(const char *text, uint64_t *ret_ns)
{
	double value = 0;
	int err = take_real(text, 0, 1e7, &value);
	if (err == 0)
		*ret_ns = (uint64_t)(value * (double)LP_NS_PER_S);
	return err;
}

static int take_ms(const char *text, uint32_t *ret_ms)
{
	double value = 0;
	int err = take_real(text, 0, 1e6, &value);
	if (err == 0)
		*ret_ms = (uint32_t)(value * 1000);
	return err;
}

static int take_count(const char *text, uint64_t low, uint64_t high, uint32_t *ret)
{
	uint64_t value = 0;
	int err = lpi_cli_parse_number(text, low, high, &value);
	if (err == 0)
		*ret = (uint32_t)value;
	return err;
}

static int take_dist(const char *text, struct lpi_load_options *options)
{
	if (strcmp(text, "uniform") == 0)
		options->order = LPI_LOAD_UNIFORM;
	else if (strcmp(text, "sequential") == 0)
		options->order = LPI_LOAD_SEQUENTIAL;
	else if (strncmp(text, "zipf", 4) == 0 && (text[4] == '\0' || text[4] == ':'))
		options->order = LPI_LOAD_ZIPF;
	else
		return -EINVAL;
	if (options->order != LPI_LOAD_ZIPF || text[4] == '\0')
		return 0;
	return take_real(text + 5, 0.01, 10, &options->theta);
}

/* The index of a name in a list that ends in NULL. */
static int take_name(const char *text, const char *const *names, int *ret)
{
	for (int i = 0; names[i] != NULL; i++) {
		if (strcmp(names[i], text) == 0) {
			*ret = i;
			return 0;
		}
	}
	return -EINVAL;
}

static int take_op(const char *text, enum lpi_load_op *ret_op)
{
	int op = lpi_load_op_parse(text);
	if (op < 0)
		return -EINVAL;
	*ret_op = (enum lpi_load_op)op;
	return 0;
}

/* -ENOENT: it is none of these. */
static int take_number(struct lpi_load_call *call, int c, const char *text)
{
	struct lpi_load_options *load = &call->load;
	switch (c) {
	case OPT_SIZE:
		return lpi_load_sizes_parse(text, &load->sizes);
	case OPT_OBJECTS:
		call->has_objects = true;
		return lpi_cli_parse_number(text, 1, LPI_LOAD_OBJECTS_MAX, &load->objects_cnt);
	case OPT_OBJECT_SIZE:
		call->has_object_size = true;
		return lpi_cli_parse_size(text, &load->object_bytes);
	case OPT_READS:
		return take_count(text, 0, 100, &load->reads_percent);
	case OPT_ITEMS:
		return take_count(text, 1, 1000000, &load->items_max);
	case OPT_DEPTH:
		return take_count(text, 1, LPI_LOAD_DEPTH_MAX, &load->depth);
	case OPT_CONNECTIONS:
		return take_count(text, 1, LPI_LOAD_CONNS_MAX, &load->conns_cnt);
	case OPT_SECONDS:
		call->has_seconds = true;
		return take_seconds(text, &load->run_ns);
	case OPT_OPS:
		return lpi_cli_parse_number(text, 1, UINT64_MAX / 2, &load->ops_max);
	case OPT_WARMUP:
		call->has_warmup = true;
		return take_seconds(text, &load->warmup_ns);
	case OPT_RATE:
		return take_real(text, 0.001, 1e9, &load->rate);
	case OPT_SEED:
		return lpi_cli_parse_number(text, 0, UINT64_MAX, &load->seed);
	case OPT_TIMEOUT:
		return take_ms(text, &load->timeout_ms);
	case OPT_RECONNECT:
		return take_ms(text, &load->reconnect_ms);
	default:
		return -ENOENT;
	}
}

static int take_word(struct lpi_load_call *call, int c, const char *text)
{
	static const char *const crcs[] = {"all", "header", "off", NULL};
	static const char *const paths[] = {"auto", "inline", "deferred", "direct", NULL};
	struct lpi_load_options *load = &call->load;
	int found = 0;
	int err = 0;
	switch (c) {
	case OPT_OP:
		return take_op(text, &load->op);
	case OPT_DIST:
		call->has_order = true;
		return take_dist(text, load);
	case OPT_CRC:
		err = take_name(text, crcs, &found);
		load->crc = (enum lapis_crc)found;
		return err;
	case OPT_WRITE_PATH:
		err = take_name(text, paths, &found);
		load->write_path = (uint8_t)found;
		return err;
	default:
		return -ENOENT;
	}
}

static void take_flag(struct lpi_load_call *call, int c, const char *text)
{
	switch (c) {
	case OPT_BUCKET:
		call->load.bucket = text;
		break;
	case OPT_INTERVAL:
		call->interval_path = text;
		break;
	case OPT_POISSON:
		call->load.is_poisson = true;
		break;
	case OPT_VERIFY:
		call->load.is_verified = true;
		break;
	case OPT_KEEP:
		call->load.is_kept = true;
		break;
	case OPT_PREPARE_ONLY:
		call->load.only_prepares = true;
		call->load.is_kept = true;
		break;
	case OPT_READY:
		call->load.is_ready = true;
		call->load.is_kept = true;
		break;
	default:
		call->is_json = true;
		break;
	}
}

static int take_option(const struct lpi_cli_command *self, struct lpi_load_call *call, int c,
		       const char *text)
{
	const char *name = "";
	for (size_t i = 0; longs[i].name != NULL; i++) {
		if (longs[i].val == c)
			name = longs[i].name;
	}
	int err = take_number(call, c, text);
	if (err == -ERANGE)
		return lpi_cli_usage(self, "--%s: %s is out of range", name, text);
	if (err == -EINVAL)
		return lpi_cli_usage(self, "--%s: %s is not a number or size", name, text);
	if (err == 0)
		return LP_EXIT_OK;
	err = take_word(call, c, text);
	if (err == -EINVAL)
		return lpi_cli_usage(self, "--%s: %s is not a known name", name, text);
	if (err == -ERANGE)
		return lpi_cli_usage(self, "--%s: %s is out of range", name, text);
	if (err == -ENOENT)
		take_flag(call, c, text);
	return LP_EXIT_OK;
}

/* --- What was not given ----------------------------------------------------------------------- */

static uint64_t default_objects(const struct lpi_load_options *load)
{
	switch (load->op) {
	case LPI_LOAD_PUT:
	case LPI_LOAD_PING:
		return 0;
	case LPI_LOAD_STAT:
	case LPI_LOAD_LIST:
		return SMALL_OBJECTS;
	case LPI_LOAD_DELETE:
		return load->ops_max > 0 ? load->ops_max : SMALL_OBJECTS;
	case LPI_LOAD_GET:
	case LPI_LOAD_PUTGET:
		return OBJECTS;
	default:
		return FILES;
	}
}

static void set_defaults(struct lpi_load_call *call)
{
	struct lpi_load_options *load = &call->load;
	bool in_order = load->op == LPI_LOAD_WRITE || load->op == LPI_LOAD_READ;
	if (!call->has_objects || load->op == LPI_LOAD_PING)
		load->objects_cnt = default_objects(load);
	if (!call->has_object_size)
		load->object_bytes = LP_MAX(FILE_BYTES, load->sizes.high_bytes);
	if (!call->has_order)
		load->order = in_order ? LPI_LOAD_SEQUENTIAL : LPI_LOAD_UNIFORM;
	/* What there is to delete comes to an end by itself. */
	if (load->op == LPI_LOAD_DELETE && load->ops_max == 0)
		load->ops_max = load->objects_cnt;
	if (!call->has_seconds && load->ops_max == 0)
		load->run_ns = RUN_NS;
	if (!call->has_warmup && load->ops_max == 0)
		load->warmup_ns = LP_MIN(load->run_ns / 10, WARMUP_MAX_NS);
}

int lpi_load_call_parse(const struct lpi_cli_command *self, int argc, char **argv,
			struct lpi_load_call *ret_call)
{
	struct lpi_load_call call = {
		.load = {.bucket = "lapis-bench",
			 .op = LPI_LOAD_RANDWRITE,
			 .reads_percent = 70,
			 .theta = THETA,
			 .items_max = ITEMS,
			 .depth = DEPTH,
			 .conns_cnt = 1,
			 .seed = 1,
			 .timeout_ms = TIMEOUT_MS},
	};
	int status = LP_EXIT_OK;
	int c;
	LP_ASSERT(lpi_load_sizes_parse("4K", &call.load.sizes) == 0);
	while ((c = lpi_cli_next_option(self, argc, argv, longs, &status)) > 0) {
		status = take_option(self, &call, c, optarg);
		if (status != LP_EXIT_OK)
			return status;
	}
	if (c == 0)
		return status;
	if (optind < argc)
		return lpi_cli_usage(self, "%s: only options are allowed here", argv[optind]);
	set_defaults(&call);
	const char *fault = lpi_load_fault(&call.load);
	if (fault != NULL)
		return lpi_cli_usage(self, "%s", fault);
	*ret_call = call;
	return -1;
}
