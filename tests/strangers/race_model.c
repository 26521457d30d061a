/* SPDX-License-Identifier: Apache-2.0 */
/* How a block is judged. Its words are taken one by one, since a block may be torn. Each word must
 * be of a version in the window: data says its version itself; a zero may be any version of zeros,
 * or one that is gone, for who cuts a file off may find a reader between its size and its pages. */
#include "tests/strangers/race.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "client/lapis.h"

#define WORDS         (LPI_BLOCK_BYTES / sizeof(uint64_t))
#define MAGIC         UINT64_C(0x5a)
#define VERSION_BITS  40u
#define BLOCK_BITS    16u
#define VERSION_MASK  ((UINT64_C(1) << VERSION_BITS) - 1)
#define BLOCK_MASK    ((UINT64_C(1) << BLOCK_BITS) - 1)
#define UNSUPPORTED   3
#define EXAMPLE_BYTES 200u

/* What is seen of one word or of the end of the file. */
enum verdict { FINE, STALE, WRONG };

void lpi_race_fail(const struct lpi_actor *actor, const char *what, int err)
{
	(void)fprintf(stderr, "race: %s: %s: %s\n", actor->path, what, lp_strerror(err));
	_exit(1);
}

void lpi_race_unsupported(const struct lpi_actor *actor, int err)
{
	actor->race->unsupported = err;
	_exit(UNSUPPORTED);
}

void lpi_race_open(struct lpi_actor *actor, int flags, bool has_map)
{
	void *buf = NULL;
	actor->fd = open(actor->path, flags | O_CLOEXEC);
	if (actor->fd < 0)
		lpi_race_fail(actor, "open", errno);
	if (posix_memalign(&buf, LPI_BLOCK_BYTES, (size_t)LPI_RUN_MAX * LPI_BLOCK_BYTES) != 0)
		lpi_race_fail(actor, "memory", ENOMEM);
	actor->buf = buf;
	if (!has_map)
		return;
	int prot = PROT_READ | ((flags & O_ACCMODE) == O_RDWR ? PROT_WRITE : 0);
	actor->map = mmap(NULL, LPI_FILE_BYTES, prot, MAP_SHARED, actor->fd, 0);
	if (actor->map == MAP_FAILED)
		lpi_race_fail(actor, "mmap", errno);
}

void lpi_race_open_socket(struct lpi_actor *actor)
{
	struct lapis_options options = {.size = sizeof(options), .address = actor->address};
	struct lapis *lapis = NULL;
	int err = lapis_open(&options, &lapis);
	if (err == 0)
		err = lapis_open_file(lapis, actor->key, &actor->file);
	if (err != 0)
		lpi_race_fail(actor, lapis_error_text(), -err);
}

void lpi_race_begin(const struct lpi_actor *actor, unsigned block, unsigned cnt)
{
	for (unsigned i = block; i < block + cnt; i++)
		actor->race->begun[i]++;
}

void lpi_race_ack(const struct lpi_actor *actor, unsigned block, unsigned cnt)
{
	for (unsigned i = block; i < block + cnt; i++)
		actor->race->acked[i] = actor->race->begun[i];
	actor->race->changes++;
}

static uint64_t word_of(unsigned block, uint64_t version)
{
	return MAGIC << (VERSION_BITS + BLOCK_BITS) | (uint64_t)block << VERSION_BITS | version;
}

void lpi_race_fill(const struct lpi_actor *actor, unsigned char *buf, unsigned block, unsigned cnt)
{
	for (unsigned i = 0; i < cnt; i++) {
		uint64_t word = word_of(block + i, actor->race->begun[block + i]);
		for (unsigned j = 0; j < WORDS; j++)
			memcpy(buf + (size_t)i * LPI_BLOCK_BYTES + j * sizeof(word), &word,
			       sizeof(word));
	}
}

void lpi_race_look(const struct lpi_actor *actor, unsigned block, unsigned cnt,
		   struct lpi_window *ret_window)
{
	ret_window->block = block;
	ret_window->cnt = cnt;
	for (unsigned i = 0; i < cnt; i++)
		ret_window->acked[i] = actor->race->acked[block + i];
}

static enum lpi_state state_of(const struct lpi_changer *changer, uint64_t version)
{
	return version == 0 ? LPI_DATA : changer->states[version % changer->period];
}

/* Whether a version from first to last is like this. */
static bool may_be(const struct lpi_changer *changer, uint64_t first, uint64_t last,
		   enum lpi_state state)
{
	for (uint64_t i = first; i <= last && i <= first + changer->period; i++) {
		if (state_of(changer, i) == state)
			return true;
	}
	return false;
}

static enum verdict judge_word(const struct lpi_changer *changer, unsigned block, uint64_t word,
			       uint64_t first, uint64_t last)
{
	if (word == 0) {
		bool is_fine = may_be(changer, first, last, LPI_ZEROS) ||
			       may_be(changer, first, last, LPI_GONE);
		return is_fine ? FINE : STALE;
	}
	uint64_t version = word & VERSION_MASK;
	if (word != word_of(block, version) || version > last ||
	    state_of(changer, version) != LPI_DATA)
		return WRONG;
	return version < first ? STALE : FINE;
}

struct block_view {
	unsigned block;
	uint64_t first; /* acknowledged before the read */
	uint64_t last;  /* begun after it */
	uint64_t bad;   /* a word that is not fine */
};

static enum verdict judge_block(const struct lpi_actor *actor, const unsigned char *data,
				struct block_view *view, bool *ret_torn)
{
	uint64_t words[WORDS];
	enum verdict worst = FINE;
	memcpy(words, data, sizeof(words));
	*ret_torn = false;
	for (unsigned i = 0; i < WORDS; i++) {
		*ret_torn |= words[i] != words[0];
		enum verdict verdict =
			judge_word(actor->changer, view->block, words[i], view->first, view->last);
		if (verdict > worst) {
			worst = verdict;
			view->bad = words[i];
		}
	}
	return worst;
}

static void show(const struct block_view *view, const char *what, bool is_gone)
{
	char text[EXAMPLE_BYTES];
	if (is_gone)
		(void)snprintf(text, sizeof(text), "nothing");
	else if (view->bad == 0)
		(void)snprintf(text, sizeof(text), "zeros");
	else
		(void)snprintf(text, sizeof(text), "version %llu of block %llu",
			       (unsigned long long)(view->bad & VERSION_MASK),
			       (unsigned long long)(view->bad >> VERSION_BITS & BLOCK_MASK));
	(void)fprintf(stderr, "race: %s: block %u: %s; acknowledged before: %llu, begun: %llu\n",
		      what, view->block, text, (unsigned long long)view->first,
		      (unsigned long long)view->last);
}

/* One block of a read, of which `len` bytes came. */
static enum verdict judge_one(const struct lpi_actor *actor, const unsigned char *data, int64_t len,
			      struct block_view *view, struct lpi_found *found)
{
	bool is_torn = false;
	enum verdict verdict;
	bool is_gone = len <= 0;
	if (is_gone) {
		bool is_fine = actor->changer->is_end_late ||
			       may_be(actor->changer, view->first, view->last, LPI_GONE);
		verdict = is_fine ? FINE : STALE;
	} else if (len < (int64_t)LPI_BLOCK_BYTES) {
		verdict = WRONG; /* ends are at the edges of blocks */
	} else {
		verdict = judge_block(actor, data, view, &is_torn);
	}
	found->reads++;
	found->torn += is_torn;
	if (verdict == FINE)
		return verdict;
	_Atomic uint64_t *count = verdict == WRONG    ? &found->wrong
				  : actor->is_at_rest ? &found->at_rest
						      : &found->stale;
	if ((*count)++ < LPI_EXAMPLES)
		show(view, verdict == STALE ? "stale" : "wrong", is_gone);
	return verdict;
}

bool lpi_race_judge(const struct lpi_actor *actor, const struct lpi_window *window, int64_t got,
		    struct lpi_found *found)
{
	uint64_t last[LPI_RUN_MAX];
	bool is_stale = false;
	for (unsigned i = 0; i < window->cnt; i++)
		last[i] = actor->race->begun[window->block + i];
	for (unsigned i = 0; i < window->cnt; i++) {
		struct block_view view = {
			.block = window->block + i, .first = window->acked[i], .last = last[i]};
		int64_t begin = (int64_t)i * LPI_BLOCK_BYTES;
		int64_t len = got - begin;
		is_stale |= judge_one(actor, actor->buf + begin,
				      len < (int64_t)LPI_BLOCK_BYTES ? len : LPI_BLOCK_BYTES, &view,
				      found) == STALE;
	}
	return is_stale;
}
