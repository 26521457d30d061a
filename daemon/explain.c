/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/explain.h"

#include <stdlib.h>

#include "base/error.h"
#include "store/record/types.h"

struct explain {
	struct lp_ns_op op;
	struct lpi_shard *shard;
	struct lp_admin *admin;
};

static const char *type_name(uint8_t type)
{
	static const char *const names[] = {"unknown",          "file",        "directory",
					    "symlink",          "fifo",        "socket",
					    "character device", "block device"};
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
	/* The figures that one shard has learned of the device the others learn as well. */
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
		describe(explain, &op->stat.found, &text);
	if (text.failed)
		result = -ENOMEM;
	lp_door_answer_admin(explain->shard->door, explain->admin, result,
			     result == 0 ? text.bytes : "", result == 0 ? text.len : 0);
	lpi_text_fini(&text);
	free(explain);
}

void lpi_explain(struct lpi_shard *shard, struct lp_admin *admin)
{
	struct explain *explain = malloc(sizeof(*explain));
	if (explain == NULL) {
		lp_door_answer_admin(shard->door, admin, -ENOMEM, "", 0);
		return;
	}
	explain->op = (struct lp_ns_op){
		.opcode = LP_NS_STAT, .complete = found_it, .stat = {.ino = admin->ino}};
	explain->shard = shard;
	explain->admin = admin;
	lp_ns_submit(shard->ns, &explain->op);
}
