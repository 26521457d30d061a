/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/whole/list.h"

#include <stdlib.h>
#include <string.h>

void lpi_whole_list_add(struct lpi_whole_list *list, const struct lpi_whole_op *op)
{
	LP_ASSERT(list->cnt < LPI_WHOLE_LIST_MAX);
	list->ops[list->cnt++] = *op;
}

/* --- Files ------------------------------------------------------------------------------------ */

static _Noreturn void file_failed(const char *path)
{
	perror(path);
	exit(2); /* NOLINT(concurrency-mt-unsafe): there is one thread */
}

void lpi_whole_list_write_op(FILE *file, const struct lpi_whole_op *op)
{
	char line[LPI_WHOLE_LINE_MAX];
	(void)lpi_whole_op_write(op, line);
	if (fprintf(file, "%s\n", line) < 0 || fflush(file) != 0)
		file_failed("a list of operations");
}

FILE *lpi_whole_list_open(const char *path, const char *mode)
{
	FILE *file = fopen(path, mode);
	if (file == NULL)
		file_failed(path);
	return file;
}

void lpi_whole_list_print(const struct lpi_whole_list *list, FILE *file)
{
	if (fprintf(file, "%s\n", list->head) < 0)
		file_failed("a list of operations");
	for (uint32_t i = 0; i < list->cnt; i++)
		lpi_whole_list_write_op(file, &list->ops[i]);
}

void lpi_whole_list_save(const struct lpi_whole_list *list, const char *path)
{
	FILE *file = lpi_whole_list_open(path, "w");
	lpi_whole_list_print(list, file);
	if (fclose(file) != 0)
		file_failed(path);
}

void lpi_whole_list_load(const char *path, struct lpi_whole_list *ret_list)
{
	char line[LPI_WHOLE_LINE_MAX];
	FILE *file = lpi_whole_list_open(path, "r");
	ret_list->cnt = 0;
	if (fgets(ret_list->head, sizeof(ret_list->head), file) == NULL)
		file_failed(path);
	ret_list->head[strcspn(ret_list->head, "\n")] = '\0';
	while (fgets(line, sizeof(line), file) != NULL) {
		struct lpi_whole_op op;
		if (lpi_whole_op_read(line, &op) < 0) {
			(void)fprintf(stderr, "%s: no operation: %s", path, line);
			exit(2); /* NOLINT(concurrency-mt-unsafe) */
		}
		lpi_whole_list_add(ret_list, &op);
	}
	(void)fclose(file); /* it was only read */
}

/* --- Made shorter ----------------------------------------------------------------------------- */

static void without(const struct lpi_whole_list *list, uint32_t from, uint32_t cnt,
		    struct lpi_whole_list *ret)
{
	memcpy(ret->head, list->head, sizeof(ret->head));
	ret->cnt = 0;
	for (uint32_t i = 0; i < list->cnt; i++)
		if (i < from || i >= from + cnt)
			lpi_whole_list_add(ret, &list->ops[i]);
}

uint32_t lpi_whole_list_reduce(struct lpi_whole_list *list,
			       bool (*fails)(const struct lpi_whole_list *list, void *arg),
			       void *arg)
{
	static struct lpi_whole_list shorter;
	uint32_t trials = 0;
	for (uint32_t cnt = LP_MAX(list->cnt / 2, 1); cnt > 0; cnt = cnt == 1 ? 0 : cnt / 2) {
		for (uint32_t from = 0; from < list->cnt && trials < LPI_WHOLE_TRIALS_MAX;
		     trials++) {
			without(list, from, cnt, &shorter);
			if (fails(&shorter, arg))
				*list = shorter;
			else
				from += cnt;
		}
	}
	return trials;
}
