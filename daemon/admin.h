/* SPDX-License-Identifier: Apache-2.0 */
/* Administration: questions to the daemon as a whole, such as status, stats, options, heap.
 *
 * Threads: lpi_admin_ask() on the shard's; the rest on the control thread.
 * Blocking: none.
 * Memory: allocated for each request; none for data.
 * Errors: the answer's.
 *
 *   1. A request comes in at a shard's door and goes to the control thread.
 *   2. The control thread asks all threads for their numbers where it needs them, one request after
 *      the other.
 *   3. The answer goes back to where the request came from.
 *
 * A request about one object (explain) is answered where it came in.
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
