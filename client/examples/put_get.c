/* SPDX-License-Identifier: Apache-2.0 */
/* Stores a file and writes it to standard output again: put_get KEY FILE.
 * cc put_get.c $(pkg-config --cflags --libs lapis) */
#include <lapis.h>

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int put_and_get(struct lapis *lapis, const char *key, int fd)
{
	struct lapis_attrs attrs;
	int err = lapis_put_fd(lapis, key, fd, NULL, &attrs);
	if (err < 0)
		return err;
	(void)fprintf(stderr, "%s: %llu bytes, version %llu\n", key,
		      (unsigned long long)attrs.size_bytes, (unsigned long long)attrs.version);
	return lapis_get_fd(lapis, key, 0, LAPIS_TO_END, STDOUT_FILENO);
}

int main(int argc, char **argv)
{
	struct lapis *lapis;
	int fd = argc == 3 ? open(argv[2], O_RDONLY) : -1;
	if (fd < 0) {
		(void)fprintf(stderr, "usage: put_get KEY FILE\n");
		return 2;
	}
	int err = lapis_open(NULL, &lapis);
	if (err == 0) {
		err = put_and_get(lapis, argv[1], fd);
		lapis_close(lapis);
	}
	if (err < 0)
		(void)fprintf(stderr, "put_get: %s: %s\n", argv[1], lapis_error_text());
	(void)close(fd);
	return err < 0 ? 1 : 0;
}
