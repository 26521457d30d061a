/* SPDX-License-Identifier: Apache-2.0 */
/* Administration: questions to the whole daemon, such as status, stats, options, heap.
 *
 * Threads: lpi_admin_ask() on the shard's; the rest on the control thread.
 * Blocking: none.
 * Memory: allocated for each request; none for data.
 * Errors: the answer's.
 *
 *   1. A request comes in at a shard's door and goes to the control thread.
 *   2. The control thread asks all threads for their numbers where it needs them, one request after
 *      the other.
 *   3. The answer goes back to the door that the request came from.
 *
 * A request about one object (explain) is answered by the shard where it came in.
 */
#ifndef LP_DAEMON_ADMIN_H
#define LP_DAEMON_ADMIN_H

#include "daemon/service_impl.h"

/* The door's admin(). */
void lpi_admin_ask(struct lpi_shard *shard, struct lp_admin *admin);

/* A question that waits for an answer, on the control thread. */
struct lpi_question {
	struct lp_list_node node;
	uint16_t opcode; /* LP_WIRE_OP_STATUS or a later one */
	uint32_t text_len;
	char text[LP_WIRE_PATH_MAX + 1]; /* NUL-terminated */
	int result;
	struct lpi_text answer; /* JSON; with an error, a sentence */
	/* Called when the question belongs to the asker again. */
	void (*answered)(struct lpi_question *question);
};

int lpi_gather_new(struct lp_service *service,
		   struct lpi_gather_reports **ret_gather) LP_MUST_CHECK;
/* No question is under way. Accepts NULL. */
void lpi_gather_free(struct lpi_gather_reports *gather);
/* The answer comes in a later turn, or at once if no thread has to be asked. */
void lpi_gather_ask(struct lpi_gather_reports *gather, struct lpi_question *question);
/* Whether no question is under way. */
bool lpi_gather_is_idle(const struct lpi_gather_reports *gather);

#endif
