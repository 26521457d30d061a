/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the golden images of tests/golden, and prints what is in one.
 *
 *   golden list                 the stores it can make, and in which version: "v1/NAME"
 *   golden make NAME IMAGE      the store NAME, as an image
 *   golden contents IMAGE       what users see of a store; the image stays as it is
 *   golden serve IMAGE          the same, and what opening and closing changed is written back
 *   golden records IMAGE        what a store is made of, opened read-only
 *
 * IMAGE stands for IMAGE.db and IMAGE.wal, too, where there are such. */
#include <stdio.h>
#include <string.h>

#include "tests/golden/golden.h"

static struct lpi_golden golden;

static int list(void)
{
	for (size_t i = 0; lpi_golden_names[i] != NULL; i++)
		(void)printf("v%u/%s\n", LP_DISK_VERSION, lpi_golden_names[i]);
	return 0;
}

static int make(const char *name, const char *path)
{
	lpi_golden_make(&golden, name);
	lpi_golden_save(&golden, path);
	lpi_golden_end(&golden);
	return 0;
}

static int contents(const char *path, bool saves)
{
	lpi_golden_load(&golden, path);
	lpi_golden_open(&golden);
	lpi_golden_print_contents(&golden);
	lpi_golden_close(&golden, false);
	if (saves)
		lpi_golden_save(&golden, path);
	lpi_golden_end(&golden);
	return 0;
}

static int records(const char *path)
{
	lpi_golden_load(&golden, path);
	lpi_golden_open_shards(&golden);
	lpi_golden_print_records(&golden);
	lpi_golden_close_shards(&golden);
	lpi_golden_end(&golden);
	return 0;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";
	if (strcmp(verb, "list") == 0 && argc == 2)
		return list();
	if (strcmp(verb, "make") == 0 && argc == 4)
		return make(argv[2], argv[3]);
	if (strcmp(verb, "contents") == 0 && argc == 3)
		return contents(argv[2], false);
	if (strcmp(verb, "serve") == 0 && argc == 3)
		return contents(argv[2], true);
	if (strcmp(verb, "records") == 0 && argc == 3)
		return records(argv[2]);
	(void)fputs("usage: golden list | make NAME IMAGE | contents|serve|records IMAGE\n",
		    stderr);
	return 2;
}
