/* SPDX-License-Identifier: Apache-2.0 */
/* The door that is a socket: operations on the whole namespace as requests of liblapis, below a
 * directory. What the protocol has no request for is skipped: files without a name, operations on
 * numbers that are to have a version.
 *
 * Threads: one. Errors: what the daemon says, in the answers.
 */
#ifndef LP_TESTS_WHOLE_WIRE_H
#define LP_TESTS_WHOLE_WIRE_H

#include "client/lapis.h"
#include "tests/whole/model.h"

struct lpi_whole_wire {
	struct lpi_whole_door door;
	struct lapis *lapis;
	uint64_t root_ino;
	char root[64]; /* the key of the directory, and a "/" */
};

/* Makes the directory, in the root. An error of lapis_call(). */
int lpi_whole_wire_init(struct lpi_whole_wire *wire, struct lapis *lapis,
			const char *root) LP_MUST_CHECK;
/* As the protocol can say it. */
void lpi_whole_wire_fit(struct lpi_whole_op *op);

#endif
