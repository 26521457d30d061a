/* SPDX-License-Identifier: Apache-2.0 */
/* What the administration asks of the daemon as a whole: status, stats, slow requests, options,
 * explain, the allocator, the heap.
 *
 * A request comes in at a shard's door and goes to the control thread, which asks all threads for
 * their numbers where it needs them, one request after the other, and sends the answer back to
 * where it came from. What is about one object is answered where it came in.
 *
 * Threads: lpi_admin_ask() on the shard's; the rest on the control thread. Blocking: none.
 * Allocation: per request; none for data. Errors: the answer's.
 */
#ifndef LP_DAEMON_ADMIN_H
#define LP_DAEMON_ADMIN_H

#include "daemon/service_impl.h"

/* The door's admin(). */
void lpi_admin_ask(struct lpi_shard *shard, struct lp_admin *admin);

/* Someone who wants an answer, on the control thread. */
struct lpi_question {
	struct lp_list_node node;
	uint16_t opcode; /* LP_WIRE_OP_STATUS and those behind it */
	uint32_t text_len;
	char text[LP_WIRE_PATH_MAX + 1]; /* NUL-terminated */
	int result;
	struct lpi_text answer; /* JSON, or, with an error, a sentence */
	/* The question is the asker's again. */
	void (*answered)(struct lpi_question *question);
};

int lpi_gather_new(struct lp_service *service,
		   struct lpi_gather_reports **ret_gather) LP_MUST_CHECK;
/* Nobody waits. Accepts NULL. */
void lpi_gather_free(struct lpi_gather_reports *gather);
/* Answered in a later turn, unless nothing has to be asked. */
void lpi_gather_ask(struct lpi_gather_reports *gather, struct lpi_question *question);
/* Nobody waits for an answer. */
bool lpi_gather_is_idle(const struct lpi_gather_reports *gather);

#endif
