/* SPDX-License-Identifier: Apache-2.0 */
/* An opcode of the native protocol, as the door and its requests see it: from request to reply.
 *
 * The opcodes themselves are above (ops.h), and the door is given their table.
 *
 * Threads: the door's.
 * Blocking, memory: none.
 *
 * How an opcode works:
 *   1. begin() reads the meta and prepares request->piece.op, without the inode or directory that
 *      the reference leads to.
 *   2. The reference is looked up and filled in, in the same way for all opcodes.
 *   3. The operation is submitted. An opcode that works differently has run(), which is called
 *      instead.
 *   4. answer() is called when the operation has succeeded, and writes the reply's meta.
 */
#ifndef LP_NATIVE_OPCODE_H
#define LP_NATIVE_OPCODE_H

#include "native/request.h"

struct lpi_opcode {
	const char *name;
	uint16_t code;
	bool has_data;       /* may bring data */
	bool is_change;      /* waits for earlier ones on the same name, and later ones for it */
	uint32_t held_bytes; /* of buffers that its operation and an answer in one part take */
	/* 0, or the error of refusing the request: -EINVAL and others. */
	int (*begin)(struct lpi_request *request, struct lp_reader *reader);
	/* Called instead of submitting the operation; NULL: submit it. */
	void (*run)(struct lpi_request *request);
	/* Makes the reply. NULL: a reply without meta. */
	void (*answer)(struct lpi_request *request);
	/* The request has failed, or its client has gone, after begin(): gives back what begin()
	 * took. May be NULL. */
	void (*undo)(struct lpi_request *request);
	/* A reply has been sent or dropped. NULL: this was the only one, and the request ends. */
	void (*sent)(struct lpi_request *request, struct lpi_piece *piece);
	/* A number that increases while its operation progresses. The client is told of that (then
	 * sent() is lpi_sent_sign()). NULL: it does not take long, or reports in another way. */
	uint64_t (*steps)(const struct lpi_request *request);
	/* Called when there is room for replies, for which the request waited
	 * (lp_door.short_of_room). NULL: it never waits for that. */
	void (*pump)(struct lpi_request *request);
	/* A number that it names beside its references. NULL: it names none. */
	struct lp_ino (*other_number)(const struct lpi_request *request);
};

struct lpi_opcodes {
	const struct lpi_opcode *all; /* in the order of the codes */
	uint32_t cnt;
	/* Words for an error of the namespace, or "". */
	const char *(*why_refused)(const struct lpi_request *request, int err);
};

/* NULL: unknown. */
const struct lpi_opcode *lpi_opcode_find(const struct lpi_opcodes *opcodes, uint16_t code);

#endif
