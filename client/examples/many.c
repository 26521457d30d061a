/* SPDX-License-Identifier: Apache-2.0 */
/* Puts many small objects at once, from the program's own loop: many BUCKET COUNT.
 * Each reply makes room for the next request, so that DEPTH are always under way. */
#include <lapis.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define DEPTH 64

struct load {
	struct lapis *lapis;
	const char *bucket;
	long next;
	long count;
	long under_way;
	long failed;
};

static void submit_next(struct load *load);

static void put_done(void *arg, const struct lapis_result *result)
{
	struct load *load = arg;
	load->under_way--;
	if (result->status < 0) {
		load->failed++;
		(void)fprintf(stderr, "many: %s\n", result->text);
	}
	submit_next(load);
}

static void submit_next(struct load *load)
{
	static const char data[] = "a small object\n";
	char key[300];
	struct lapis_request request = {0};
	if (load->next == load->count)
		return;
	(void)snprintf(key, sizeof(key), "%.255s/object-%08ld", load->bucket, load->next);
	request.size = sizeof(request);
	request.op = LAPIS_PUT;
	request.path = key; /* is copied */
	request.data = data;
	request.data_bytes = sizeof(data) - 1;
	request.done = put_done;
	request.arg = load;
	if (lapis_submit(load->lapis, &request, NULL) < 0) {
		(void)fprintf(stderr, "many: %s\n", lapis_error_text());
		load->failed++;
		return;
	}
	load->next++;
	load->under_way++;
}

static void run(struct load *load)
{
	struct pollfd poll_fd = {lapis_fd(load->lapis), POLLIN, 0};
	for (int i = 0; i < DEPTH; i++)
		submit_next(load);
	while (load->under_way > 0) {
		/* Other descriptors of the program would stand here, too. */
		if (poll(&poll_fd, 1, -1) > 0)
			lapis_turn(load->lapis, 0);
	}
}

int main(int argc, char **argv)
{
	struct load load = {0};
	if (argc != 3) {
		(void)fprintf(stderr, "usage: many BUCKET COUNT\n");
		return 2;
	}
	load.bucket = argv[1];
	load.count = strtol(argv[2], NULL, 10);
	if (lapis_open(NULL, &load.lapis) < 0) {
		(void)fprintf(stderr, "many: %s\n", lapis_error_text());
		return 1;
	}
	run(&load);
	lapis_close(load.lapis);
	return load.failed > 0 ? 1 : 0;
}
