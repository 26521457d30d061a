/* SPDX-License-Identifier: Apache-2.0 */
/* A file of acts is the acts as they are in memory, behind a head that says how long one is: it is
 * read by the build that wrote it. */
#include "tests/linear/act.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"

#define HEAD_MAGIC UINT64_C(0x7374636173697061)

struct head {
	uint64_t magic;
	uint64_t act_bytes;
};

static const char *const kind_names[LPI_KINDS] = {
	"put",       "read", "stat",   "remove", "rename", "exchange", "link",
	"take",      "find", "copy",   "write",  "append", "truncate", "xattr set",
	"xattr get", "open", "create", "close",  "sync",   "start",
};

static void print_result(const struct lpi_act *act, FILE *file)
{
	if (act->flags & LPI_UNKNOWN) {
		(void)fputs("unknown", file);
		return;
	}
	if (act->status < 0) {
		(void)fputs(lp_strerror(act->status), file);
		return;
	}
	(void)fputs("ok", file);
	if (act->kind == LPI_READ) {
		for (unsigned i = 0; i < act->got && i < LPI_CELLS; i++)
			(void)fprintf(file, " %" PRIx64, act->cells[i]);
		if (act->got == 0)
			(void)fputs(" nothing", file);
	}
	if (act->kind == LPI_STAT)
		(void)fprintf(file, " size %u nlink %u", act->got, act->nlink);
	if (act->kind == LPI_XATTR_GET)
		(void)fprintf(file, " %" PRIx64, act->value);
	if (act->flags & LPI_TOLD)
		(void)fprintf(file, " at %u", act->first);
	if (act->version != 0)
		(void)fprintf(file, " version %" PRIu64, act->version);
}

void lpi_act_print(const struct lpi_act *act, uint64_t base_ns, FILE *file)
{
	static const char *const conditions[] = {"", " if absent", " if there", " if version"};
	double began = (double)(act->invoke_ns - base_ns) / LP_NS_PER_MS;
	if (act->return_ns == LPI_NEVER)
		(void)fprintf(file, "%10.3f - ?          ", began);
	else
		(void)fprintf(file, "%10.3f - %-10.3f ", began,
			      (double)(act->return_ns - base_ns) / LP_NS_PER_MS);
	(void)fprintf(file, "client %u, %s: %s", act->client,
		      act->flags & LPI_MOUNT ? "mount" : "native", kind_names[act->kind]);
	if (act->flags & LPI_BY_HANDLE)
		(void)fputs(" of its handle", file);
	else if (act->kind != LPI_START)
		(void)fprintf(file, " g%u/n%u", act->group, act->name);
	if (act->kind >= LPI_RENAME && act->kind <= LPI_COPY)
		(void)fprintf(file, " to n%u", act->to_name);
	if (act->kind == LPI_READ || act->kind == LPI_WRITE)
		(void)fprintf(file, " [%u,%u)", act->first, act->first + act->count);
	else if (act->kind == LPI_PUT || act->kind == LPI_APPEND || act->kind == LPI_TRUNCATE)
		(void)fprintf(file, " %u cells", act->count);
	if (act->kind == LPI_PUT || act->kind == LPI_WRITE || act->kind == LPI_APPEND)
		(void)fprintf(file, " of %" PRIx64, lpi_act_cell(act, 0));
	else if (act->kind == LPI_XATTR_SET)
		(void)fprintf(file, " %" PRIx64, act->value);
	if (act->condition <= LPI_IF_VERSION)
		(void)fputs(conditions[act->condition], file);
	if (act->condition == LPI_IF_VERSION)
		(void)fprintf(file, " %" PRIu64, act->if_version);
	(void)fputs(" -> ", file);
	print_result(act, file);
	(void)fputc('\n', file);
}

int lpi_acts_add(struct lpi_acts *acts, const struct lpi_act *act)
{
	if (acts->cnt == acts->room) {
		size_t room = acts->room == 0 ? 1024 : acts->room * 2;
		struct lpi_act *list = realloc(acts->list, room * sizeof(*list));
		if (list == NULL)
			return -ENOMEM;
		acts->list = list;
		acts->room = room;
	}
	acts->list[acts->cnt++] = *act;
	return 0;
}

static bool is_sane(const struct lpi_act *act)
{
	return act->kind < LPI_KINDS && act->group < LPI_GROUPS && act->client <= LPI_CLIENTS &&
	       act->name < LPI_NAMES && act->to_name < LPI_NAMES && act->got <= LPI_CELLS &&
	       act->first <= LPI_CELLS && act->count <= LPI_CELLS &&
	       act->condition <= LPI_IF_VERSION && act->invoke_ns <= act->return_ns;
}

static int load(struct lpi_acts *acts, FILE *file)
{
	struct head head;
	struct lpi_act act;
	if (fread(&head, sizeof(head), 1, file) != 1 || head.magic != HEAD_MAGIC ||
	    head.act_bytes != sizeof(act))
		return -EUCLEAN;
	while (fread(&act, sizeof(act), 1, file) == 1) {
		int err = is_sane(&act) ? lpi_acts_add(acts, &act) : -EUCLEAN;
		if (err < 0)
			return err;
	}
	return ferror(file) ? -EIO : 0;
}

int lpi_acts_load(struct lpi_acts *acts, const char *path)
{
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return -errno;
	int err = load(acts, file);
	(void)fclose(file); /* it was read only */
	return err;
}

int lpi_acts_save(const struct lpi_acts *acts, const char *path)
{
	const struct head head = {HEAD_MAGIC, sizeof(struct lpi_act)};
	FILE *file = fopen(path, "we");
	if (file == NULL)
		return -errno;
	bool is_good = fwrite(&head, sizeof(head), 1, file) == 1 &&
		       fwrite(acts->list, sizeof(*acts->list), acts->cnt, file) == acts->cnt;
	return fclose(file) == 0 && is_good ? 0 : -EIO;
}

void lpi_acts_fini(struct lpi_acts *acts)
{
	free(acts->list);
	*acts = (struct lpi_acts){0};
}
