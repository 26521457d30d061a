/* SPDX-License-Identifier: Apache-2.0 */
/* Records out of a table of the index that may be damaged anywhere.
 *
 * Threads: any.
 * Blocking: none.
 * Memory: none is allocated.
 * Errors: only those of the visitor.
 *
 * docs/format/README.md names the library whose tables these are; blocks are not compressed. No
 * footer, index block or filter is needed. Blocks are looked for that begin anywhere, and a block
 * is believed whose checksum is right. So a bit that flipped costs the records of one block. A
 * record that is not of a data block is passed on only if it looks like one. The visitor checks
 * what records say: values have checksums of their own.
 */
#ifndef LP_STORE_SALVAGE_TABLE_H
#define LP_STORE_SALVAGE_TABLE_H

#include "store/index/kv.h"

struct lp_salvage_record {
	struct lp_kv_bytes key; /* valid during the call */
	struct lp_kv_bytes value;
	uint64_t sequence; /* the higher one is the newer, within an index */
	bool is_deletion;
};

struct lp_salvage_visitor {
	/* A negative return ends the scan, and is returned. */
	int (*record)(struct lp_salvage_visitor *visitor, const struct lp_salvage_record *record);
};

struct lp_salvage_table_report {
	uint64_t blocks;  /* whose checksum was right */
	uint64_t records; /* that were passed on */
	uint64_t
		skipped_bytes; /* in no such block: also what an intact table has beside its data */
};

/* Adds to *report. */
int lp_salvage_table_scan(const void *bytes, size_t len, struct lp_salvage_visitor *visitor,
			  struct lp_salvage_table_report *report) LP_MUST_CHECK;

#endif
