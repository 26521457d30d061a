/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of any length: one reply is walked after another, each asked for behind the last item of
 * the one before, as soon as that has come: so the daemon is at the next while the caller is at
 * this one. */
#include <stdlib.h>
#include <string.h>

#include "client/call.h"
#include "client/handle.h"
#include "client/public.h"

/* A reply that was asked for. Once nobody waits for it, it is its own. */
struct page {
	struct lpi_await call;
	struct lapis_result result;
};

struct lapis_list {
	struct lapis *lapis;
	struct lapis_request request;
	char *path;
	char *name;
	char *after;
	struct lapis_result result; /* that is walked */
	size_t pos;
	bool has_result;
	struct page *ahead; /* behind it, under way; NULL: none */
};

static char *copy_text(const char *text)
{
	return text == NULL ? NULL : strdup(text);
}

static int list_new(struct lapis *lapis, const struct lapis_request *request,
		    struct lapis_list **ret_list)
{
	struct lapis_list *list = calloc(1, sizeof(*list));
	if (list == NULL)
		return lpi_set_error(-ENOMEM, NULL);
	list->lapis = lapis;
	list->request = *request;
	list->path = copy_text(request->path);
	list->name = copy_text(request->name);
	list->after = copy_text(request->after);
	list->request.path = list->path;
	list->request.name = list->name;
	list->request.after = list->after;
	if ((request->path != NULL && list->path == NULL) ||
	    (request->name != NULL && list->name == NULL) ||
	    (request->after != NULL && list->after == NULL)) {
		lapis_list_close(list);
		return lpi_set_error(-ENOMEM, NULL);
	}
	*ret_list = list;
	return 0;
}

int lapis_list_open(struct lapis *lapis, const char *prefix, const char *after, uint32_t flags,
		    struct lapis_list **ret_list)
{
	const struct lapis_request request = {.op = LAPIS_LIST,
					      .name = prefix,
					      .after = after,
					      .flags = flags & (LAPIS_DELIMIT | LAPIS_ATTRS)};
	return list_new(lapis, &request, ret_list);
}

int lapis_opendir(struct lapis *lapis, const char *key, uint32_t flags,
		  struct lapis_list **ret_list)
{
	const struct lapis_request request = {
		.op = LAPIS_READDIR, .path = key, .flags = (flags & LAPIS_ATTRS) | LAPIS_BY_NAME};
	return list_new(lapis, &request, ret_list);
}

int lapis_pairs_open(struct lapis *lapis, const char *key, uint32_t op, uint32_t flags,
		     struct lapis_list **ret_list)
{
	const struct lapis_request request = {.op = op, .path = key, .flags = flags & LAPIS_VALUES};
	if (op != LAPIS_XATTR_LIST && op != LAPIS_OMAP_LIST)
		return lpi_set_error(-EINVAL, "this is no list of pairs");
	return list_new(lapis, &request, ret_list);
}

/* Behind the last item of the reply that has come. */
static int set_after(struct lapis_list *list, size_t last_pos)
{
	struct lapis_item item = {.cookie = 0};
	struct lapis_pair pair = {.name = NULL};
	bool has_items = list->request.op == LAPIS_LIST || list->request.op == LAPIS_READDIR;
	int found = has_items ? lapis_next_item(&list->result, &last_pos, &item)
			      : lapis_next_pair(&list->result, &last_pos, &pair);
	LP_ASSERT(found == 1); /* walked when it came */
	const char *name = has_items ? item.name : pair.name;
	size_t len = has_items ? item.name_bytes : pair.name_bytes;
	char *after = malloc(len + 1);
	if (after == NULL)
		return -ENOMEM;
	memcpy(after, name, len);
	after[len] = '\0';
	free(list->after);
	list->after = after;
	list->request.after = after;
	list->request.after_bytes = len;
	list->request.cookie = item.cookie;
	return 0;
}

static void page_left(struct lpi_await *call)
{
	struct page *page = LP_CONTAINER_OF(call, struct page, call);
	lapis_result_fini(&page->result);
	free(page);
}

static int ask(struct lapis_list *list)
{
	struct page *page = calloc(1, sizeof(*page));
	if (page == NULL)
		return -ENOMEM;
	page->call.result = &page->result;
	int err = lpi_await_start(list->lapis, &list->request, &page->call);
	if (err < 0) {
		free(page);
		return err;
	}
	list->ahead = page;
	return 0;
}

/* If it cannot be now it is when the reply is needed, and then it is an error. */
static void ask_ahead(struct lapis_list *list)
{
	if (ask(list) == 0 && !list->lapis->has_thread)
		(void)lapis_turn(list->lapis, 0);
}

/* 1 when there is another reply to walk. */
static int next_reply(struct lapis_list *list)
{
	if (list->has_result && list->result.more == 0)
		return 0;
	if (lpi_is_running(list->lapis))
		return lpi_set_error(-EDEADLK, "a callback may not wait");
	lapis_result_fini(&list->result);
	list->result = (struct lapis_result){0};
	list->has_result = false;
	list->pos = 0;
	int err = list->ahead == NULL ? ask(list) : 0;
	if (err < 0)
		return lpi_set_error(err, NULL);
	struct page *page = list->ahead;
	list->ahead = NULL;
	err = lpi_await_end(list->lapis, &page->call);
	size_t last_pos = page->call.last_pos;
	list->result = page->result;
	free(page);
	if (err < 0)
		return err;
	if (list->result.more == 1)
		err = set_after(list, last_pos);
	if (err < 0)
		return lpi_set_error(err, NULL);
	list->has_result = true;
	if (list->result.more == 1)
		ask_ahead(list);
	return 1;
}

int lapis_list_next(struct lapis_list *list, struct lapis_item *ret_item)
{
	if (list->request.op != LAPIS_LIST && list->request.op != LAPIS_READDIR)
		return lpi_set_error(-EINVAL, "this is no list of items");
	while (!list->has_result || lapis_next_item(&list->result, &list->pos, ret_item) == 0) {
		int more = next_reply(list);
		if (more <= 0)
			return more;
	}
	return 1;
}

int lapis_pairs_next(struct lapis_list *list, struct lapis_pair *ret_pair)
{
	if (list->request.op != LAPIS_XATTR_LIST && list->request.op != LAPIS_OMAP_LIST)
		return lpi_set_error(-EINVAL, "this is no list of pairs");
	while (!list->has_result || lapis_next_pair(&list->result, &list->pos, ret_pair) == 0) {
		int more = next_reply(list);
		if (more <= 0)
			return more;
	}
	return 1;
}

void lapis_list_close(struct lapis_list *list)
{
	if (list == NULL)
		return;
	if (list->ahead != NULL)
		lpi_await_leave(list->lapis, &list->ahead->call, page_left);
	lapis_result_fini(&list->result);
	free(list->path);
	free(list->name);
	free(list->after);
	free(list);
}
