/* SPDX-License-Identifier: Apache-2.0 */
/* Text of all that the stores of a namespace hold, except times, for comparisons.
 *
 * Only *_test.c files and their headers include this.
 */
#ifndef LP_NAMESPACE_SHARD_NS_TEXT_TEST_H
#define LP_NAMESPACE_SHARD_NS_TEXT_TEST_H

#include "store/model/store_test.h"

struct lpi_ns_hands {
	uint32_t cnt;
	const struct lpi_hand *hand; /* of each shard's store */
};

struct lpi_ns_text {
	size_t len;
	char bytes[16384];
};

static inline void lpi_ns_say(struct lpi_ns_text *text, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static inline void lpi_ns_say(struct lpi_ns_text *text, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int len = vsnprintf(text->bytes + text->len, sizeof(text->bytes) - text->len, format, args);
	va_end(args);
	assert_true(len >= 0 && (size_t)len < sizeof(text->bytes) - text->len);
	text->len += (size_t)len;
}

struct lpi_ns_span {
	enum lp_store_space space;
	struct lp_ino ino; /* whose entries */
	char prefix;       /* of records */
};

/* All items of a span on a shard. */
static inline void lpi_ns_walk(const struct lpi_ns_hands *hands, uint32_t shard,
			       struct lpi_ns_span span,
			       void (*item)(const struct lpi_ns_hands *hands, uint32_t shard,
					    const struct lp_list_item *item, void *arg),
			       void *arg)
{
	static _Thread_local uint8_t pages[2][32768]; /* walks are at most two deep */
	static _Thread_local uint32_t depth;
	struct lp_store_op op = {.opcode = LP_STORE_LIST,
				 .list = {.space = span.space,
					  .ino = span.ino,
					  .buf = pages[depth],
					  .buf_len = sizeof(pages[0]),
					  .with_values = span.space == LP_STORE_RECORDS}};
	struct lp_list_item one;
	uint32_t pos = 0;
	if (span.prefix != 0)
		op.list.prefix = (struct lp_bytes){&span.prefix, 1};
	depth++;
	lp_test_ok(lpi_hand_do(&hands->hand[shard], &op));
	assert_false(op.list.more);
	while (lp_store_list_next(&op, &pos, &one))
		item(hands, shard, &one, arg);
	depth--;
}

static inline void lpi_ns_say_entry(const struct lpi_ns_hands *hands, uint32_t shard,
				    const struct lp_list_item *item, void *arg)
{
	(void)hands;
	lpi_ns_say(arg, "  %u: %.*s -> %llx\n", shard, (int)item->name.len,
		   (const char *)item->name.data, (unsigned long long)item->ino.nr);
}

static inline void lpi_ns_say_inode(const struct lpi_ns_hands *hands, uint32_t shard,
				    const struct lp_list_item *item, void *arg)
{
	struct lp_ino ino = {lp_get_be64(item->name.data)};
	struct lp_attrs attrs;
	(void)shard;
	lp_test_ok(lpi_hand_stat(&hands->hand[shard], ino, &attrs));
	lpi_ns_say(arg, "%llx: type %u links %u parent %llx size %llu\n",
		   (unsigned long long)ino.nr, attrs.type, attrs.nlink,
		   (unsigned long long)attrs.parent.nr, (unsigned long long)attrs.size_bytes);
	for (uint32_t i = 0; attrs.type == LP_INODE_TYPE_DIR && i < hands->cnt; i++) {
		struct lp_store_op op = {.opcode = LP_STORE_DIR, .dir = {.ino = ino}};
		lp_test_ok(lpi_hand_do(&hands->hand[i], &op));
		lpi_ns_say(arg, " fragment %u: %llu entries%s\n", i,
			   (unsigned long long)op.dir.entries_cnt,
			   op.dir.is_sealed ? ", sealed" : "");
		const struct lpi_ns_span entries = {LP_STORE_ENTRIES, .ino = ino};
		lpi_ns_walk(hands, i, entries, lpi_ns_say_entry, arg);
	}
}

static inline void lpi_ns_say_record(const struct lpi_ns_hands *hands, uint32_t shard,
				     const struct lp_list_item *item, void *arg)
{
	(void)hands;
	(void)item;
	lpi_ns_say(arg, "record %c on %u\n", *(const char *)item->name.data, shard);
}

static inline void lpi_ns_describe(const struct lpi_ns_hands *hands, struct lpi_ns_text *text)
{
	const struct lpi_ns_span inodes = {.space = LP_STORE_INODES};
	const struct lpi_ns_span pacts = {LP_STORE_RECORDS, .prefix = 'T'};
	const struct lpi_ns_span unfinished = {LP_STORE_RECORDS, .prefix = 'U'};
	text->len = 0;
	for (uint32_t i = 0; i < hands->cnt; i++) {
		lpi_ns_walk(hands, i, inodes, lpi_ns_say_inode, text);
		lpi_ns_walk(hands, i, pacts, lpi_ns_say_record, text);
		lpi_ns_walk(hands, i, unfinished, lpi_ns_say_record, text);
	}
}

static inline bool lpi_ns_text_is_same(const struct lpi_ns_text *a, const struct lpi_ns_text *b)
{
	return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

#endif
