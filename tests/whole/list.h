/* SPDX-License-Identifier: Apache-2.0 */
/* A sequence of operations: kept in a file, and made shorter as long as it still fails. The file's
 * first line says what the sequence is run on, in the words of who runs it.
 *
 * Threads: one. Errors: what cannot be read or written ends the program.
 */
#ifndef LP_TESTS_WHOLE_LIST_H
#define LP_TESTS_WHOLE_LIST_H

#include <stdio.h>

#include "tests/whole/op.h"

#define LPI_WHOLE_LIST_MAX   4096u
#define LPI_WHOLE_TRIALS_MAX 200u

struct lpi_whole_list {
	char head[LPI_WHOLE_LINE_MAX];
	uint32_t cnt;
	struct lpi_whole_op ops[LPI_WHOLE_LIST_MAX];
};

void lpi_whole_list_add(struct lpi_whole_list *list, const struct lpi_whole_op *op);
/* At once, for the process may die of it. */
void lpi_whole_list_write_op(FILE *file, const struct lpi_whole_op *op);
FILE *lpi_whole_list_open(const char *path, const char *mode);
void lpi_whole_list_print(const struct lpi_whole_list *list, FILE *file);
void lpi_whole_list_save(const struct lpi_whole_list *list, const char *path);
void lpi_whole_list_load(const char *path, struct lpi_whole_list *ret_list);

/* Half of it is left out, a quarter, and so on, as long as it still fails. Returns the trials. */
uint32_t lpi_whole_list_reduce(struct lpi_whole_list *list,
			       bool (*fails)(const struct lpi_whole_list *list, void *arg),
			       void *arg);

#endif
