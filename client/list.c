/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of any length: one reply is walked after another, each asked for behind the last item of
 * the one before. */
#include <stdlib.h>
#include <string.h>

#include "client/call.h"

struct lapis_list {
	struct lapis *lapis;
	struct lapis_request request;
	char *path;
	char *name;
	char *after;
	struct lapis_result result;
	size_t pos;
	bool has_result;
	uint64_t cookie;
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

/* Where the next reply is to begin. */
static int note_last(struct lapis_list *list, const char *name, size_t len, uint64_t cookie)
{
	char *after = malloc(len + 1);
	if (after == NULL)
		return lpi_set_error(-ENOMEM, NULL);
	memcpy(after, name, len);
	after[len] = '\0';
	free(list->after);
	list->after = after;
	list->request.after = after;
	list->request.after_bytes = len;
	list->request.cookie = cookie;
	return 0;
}

/* 1 when there is another reply to walk. */
static int next_reply(struct lapis_list *list)
{
	struct lpi_await call = {.result = &list->result};
	if (list->has_result && list->result.more == 0)
		return 0;
	lapis_result_fini(&list->result);
	list->result = (struct lapis_result){0};
	list->has_result = false;
	list->pos = 0;
	int err = lpi_await(list->lapis, &list->request, &call);
	if (err < 0)
		return err;
	list->has_result = true;
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
	if (list->pos < list->result.value_bytes || list->result.more == 0)
		return 1;
	int err = note_last(list, ret_item->name, ret_item->name_bytes, ret_item->cookie);
	return err < 0 ? err : 1;
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
	if (list->pos < list->result.value_bytes || list->result.more == 0)
		return 1;
	int err = note_last(list, ret_pair->name, ret_pair->name_bytes, 0);
	return err < 0 ? err : 1;
}

void lapis_list_close(struct lapis_list *list)
{
	if (list == NULL)
		return;
	lapis_result_fini(&list->result);
	free(list->path);
	free(list->name);
	free(list->after);
	free(list);
}
