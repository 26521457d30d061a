/* SPDX-License-Identifier: Apache-2.0 */
/* Lists what is below a prefix, with sizes: list [PREFIX]. */
#include <lapis.h>

#include <stdio.h>

static int print_all(struct lapis_list *list)
{
	struct lapis_item item;
	int more;
	while ((more = lapis_list_next(list, &item)) > 0)
		(void)printf("%12llu %.*s\n", (unsigned long long)item.attrs.size_bytes,
			     (int)item.name_bytes, item.name);
	return more;
}

int main(int argc, char **argv)
{
	struct lapis *lapis;
	struct lapis_list *list;
	int err = lapis_open(NULL, &lapis);
	if (err < 0) {
		(void)fprintf(stderr, "list: %s\n", lapis_error_text());
		return 1;
	}
	err = lapis_list_open(lapis, argc > 1 ? argv[1] : NULL, NULL, LAPIS_ATTRS | LAPIS_DELIMIT,
			      &list);
	if (err == 0) {
		err = print_all(list);
		lapis_list_close(list);
	}
	if (err < 0)
		(void)fprintf(stderr, "list: %s\n", lapis_error_text());
	lapis_close(lapis);
	return err < 0 ? 1 : 0;
}
