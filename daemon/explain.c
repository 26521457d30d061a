/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/explain.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/types.h"

struct explain {
	struct lp_ns_op op;
	struct lpi_shard *shard;
	struct lp_admin *admin;
	char path[LP_WIRE_PATH_MAX];
};

static const char *type_name(uint8_t type)
{
	static const char *const names[] = {
		"unknown", "file", "directory", "symlink", "fifo", "socket", "character device",
		"block device"};
	return names[type < LP_ARRAY_SIZE(names) ? type : 0];
}

static void describe(const struct explain *explain, const struct lp_ns_found *found,
		     struct lpi_text *text)
{
	char writing[LP_WHY_MAX] = "";
	uint32_t shard_idx = lp_ino_shard(found->ino);
	lpi_json_open(text, NULL, '{');
	lpi_json_number(text, "ino", found->ino.nr);
	lpi_json_number(text, "shard", shard_idx);
	lpi_json_number(text, "asked_shard", explain->shard->idx);
	lpi_json_string(text, "type", type_name(found->attrs.type));
	lpi_json_number(text, "size_bytes", found->attrs.size_bytes);
	lpi_json_number(text, "blocks", found->attrs.blocks);
	lpi_json_number(text, "version", found->attrs.version_nr);
	lpi_json_number(text, "links", found->attrs.nlink);
	/* What a shard has learned of the device the others learn as well. */
	(void)lp_store_explain(explain->shard->store, LP_BLOCK_BYTES, writing, sizeof(writing));
	lpi_json_string(text, "write_4k", writing);
	(void)lp_store_explain(explain->shard->store, found->attrs.size_bytes, writing,
			       sizeof(writing));
	lpi_json_string(text, "write_whole", writing);
	lpi_json_close(text, '}');
}

static void found_it(struct lp_ns_op *op)
{
	struct explain *explain = LP_CONTAINER_OF(op, struct explain, op);
	struct lpi_text text = {.bytes = NULL};
	int result = op->result < 0 ? op->result : 0;
	if (result == 0)
		describe(explain,
			 op->opcode == LP_NS_WALK ? &op->walk.found : &op->stat.found, &text);
	if (text.failed)
		result = -ENOMEM;
	lp_door_answer_admin(explain->shard->door, explain->admin, result,
			     result == 0 ? text.bytes : "", result == 0 ? text.len : 0);
	lpi_text_fini(&text);
	free(explain);
}

static int read_ref(struct explain *explain, struct lp_bytes meta)
{
	struct lp_wire_ref ref;
	struct lp_reader reader;
	lp_reader_init(&reader, meta.data, meta.len);
	if (!lp_wire_part(&reader, lp_wire_ref, &ref))
		return -EINVAL;
	const char *path = lp_wire_bytes(&reader, ref.path_bytes);
	int err = lp_wire_end(&reader);
	if (err < 0 || ref.path_bytes > sizeof(explain->path))
		return -EINVAL;
	if (ref.path_bytes == 0) {
		struct lp_ino ino = ref.ino == 0 ? LP_INO_ROOT : (struct lp_ino){ref.ino};
		explain->op = (struct lp_ns_op){.opcode = LP_NS_STAT, .stat = {.ino = ino}};
		return 0;
	}
	memcpy(explain->path, path, ref.path_bytes);
	struct lp_bytes bytes = {explain->path, ref.path_bytes};
	if (ref.ino != 0)
		return -EOPNOTSUPP;
	explain->op = (struct lp_ns_op){.opcode = LP_NS_WALK, .walk = {.path = bytes}};
	return lp_ns_path_check(bytes);
}

void lpi_explain(struct lpi_shard *shard, struct lp_admin *admin)
{
	struct explain *explain = malloc(sizeof(*explain));
	int err = explain == NULL ? -ENOMEM : read_ref(explain, admin->text);
	if (err < 0) {
		lp_door_answer_admin(shard->door, admin, err, "", 0);
		free(explain);
		return;
	}
	explain->op.complete = found_it;
	explain->shard = shard;
	explain->admin = admin;
	lp_ns_submit(shard->ns, &explain->op);
}
