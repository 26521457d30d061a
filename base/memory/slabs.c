/* SPDX-License-Identifier: Apache-2.0 */
/* A piece is cut into slabs. Pieces and slabs are aligned to their sizes, so the slab and the piece
 * of an object follow from its address. The head of a piece is in front of the head of its first
 * slab, which has that much less room.
 *
 *   piece  | head | slab 0: head, objects | slab 1: head, objects | ...
 *
 * A slab gives out objects that came back, and then the objects behind those that were ever out. So
 * memory is not touched before it is needed. A class has a list of its slabs with room. Fuller
 * slabs tend to be in front, because a slab that was full and gets an object back comes first. One
 * slab without any objects out stays with its class. So a caller that takes and gives back one
 * object does not cut a slab each time. One free piece stays, too. */
#include "base/memory/slabs.h"

#include <assert.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/memory/huge.h"
#include "base/sanitize.h"

#define GRAIN       32u
#define CLASS_CNT   (LP_SLABS_OBJECT_MAX / GRAIN)
#define SLAB_BYTES  (UINT64_C(32) << 10)
#define SMALL_PIECE (8 * SLAB_BYTES)
#define LARGE_PIECE LP_HUGE_BYTES
#define LARGE_FROM  (32 * LARGE_PIECE) /* from here on less than a page of it is half empty */
#define HEAD_ALIGN  64u

struct slab {
	struct lp_list_node node; /* in its class's list, if it has room; or in its piece's */
	void *back;               /* objects that came back: each begins with the next */
	uint32_t object_bytes;    /* 0: it is a free slab of its piece */
	uint32_t out_cnt;
	uint32_t fresh; /* offset of the objects that were never out */
	uint32_t end;   /* no object fits behind this */
};

LP_LIST_DEFINE(slab_list, struct slab, node);

struct piece {
	struct lp_list_node node; /* in the list of pieces with free slabs */
	struct slab_list free;
	uint32_t free_cnt;
};

LP_LIST_DEFINE(piece_list, struct piece, node);

struct lp_slabs {
	size_t piece_bytes;
	uint32_t slab_cnt; /* slabs of a piece */
	uint64_t out_cnt;
	uint64_t bytes;
	struct piece_list pieces; /* pieces with free slabs */
	struct slab_list classes[CLASS_CNT];
};

int lp_slabs_new(uint64_t expected_bytes, struct lp_slabs **ret_slabs)
{
	struct lp_slabs *slabs = calloc(1, sizeof(*slabs));
	if (slabs == NULL)
		return -ENOMEM;
	slabs->piece_bytes = expected_bytes >= LARGE_FROM ? LARGE_PIECE : SMALL_PIECE;
	slabs->slab_cnt = (uint32_t)(slabs->piece_bytes / SLAB_BYTES);
	piece_list_init(&slabs->pieces);
	for (uint32_t i = 0; i < CLASS_CNT; i++)
		slab_list_init(&slabs->classes[i]);
	*ret_slabs = slabs;
	return 0;
}

/* --- Pieces ----------------------------------------------------------------------------------- */

static struct slab *slab_at(struct piece *piece, uint32_t idx)
{
	uint8_t *at = (uint8_t *)piece + idx * SLAB_BYTES;
	return (struct slab *)(void *)(idx == 0 ? at + HEAD_ALIGN : at);
}

static struct slab *slab_of(const struct lp_slabs *slabs, void *object)
{
	uintptr_t in_piece = (uintptr_t)object & (slabs->piece_bytes - 1);
	struct piece *piece = (struct piece *)(void *)((uint8_t *)object - in_piece);
	return slab_at(piece, (uint32_t)(in_piece / SLAB_BYTES));
}

static struct piece *piece_of(const struct lp_slabs *slabs, struct slab *slab)
{
	uintptr_t in_piece = (uintptr_t)slab & (slabs->piece_bytes - 1);
	return (struct piece *)(void *)((uint8_t *)slab - in_piece);
}

static struct piece *add_piece(struct lp_slabs *slabs)
{
	static_assert(sizeof(struct piece) <= HEAD_ALIGN && sizeof(struct slab) <= HEAD_ALIGN,
		      "heads lie on lines of their own");
	struct piece *piece = aligned_alloc(slabs->piece_bytes, slabs->piece_bytes);
	if (piece == NULL)
		return NULL;
	(void)lp_huge_advise(piece, slabs->piece_bytes);
	*piece = (struct piece){.free_cnt = slabs->slab_cnt};
	slab_list_init(&piece->free);
	for (uint32_t i = 0; i < slabs->slab_cnt; i++) {
		struct slab *slab = slab_at(piece, i);
		*slab = (struct slab){.object_bytes = 0};
		slab_list_push_back(&piece->free, slab);
	}
	LP_ASSERT(slabs->pieces.head.next != NULL); /* the list was initialised */
	piece_list_push_front(&slabs->pieces, piece);
	slabs->bytes += slabs->piece_bytes;
	return piece;
}

static void drop_piece(struct lp_slabs *slabs, struct piece *piece)
{
	LP_ASSERT(piece->free_cnt == slabs->slab_cnt);
	piece_list_remove(piece);
	slabs->bytes -= slabs->piece_bytes;
	lp_san_unpoison(piece, slabs->piece_bytes);
	free(piece);
}

void lp_slabs_free(struct lp_slabs *slabs)
{
	struct piece *piece = NULL;
	if (slabs == NULL)
		return;
	LP_ASSERT(slabs->out_cnt == 0);
	for (uint32_t i = 0; i < CLASS_CNT; i++) {
		struct slab *slab;
		while ((slab = slab_list_pop_front(&slabs->classes[i])) != NULL) {
			struct piece *home = piece_of(slabs, slab);
			LP_ASSERT(slab->out_cnt == 0);
			if (home->free_cnt++ == 0)
				piece_list_push_front(&slabs->pieces, home);
		}
	}
	while ((piece = piece_list_first(&slabs->pieces)) != NULL)
		drop_piece(slabs, piece);
	LP_ASSERT(slabs->bytes == 0);
	free(slabs);
}

/* --- Slabs ------------------------------------------------------------------------------------ */

static struct slab *cut_slab(struct lp_slabs *slabs, uint32_t class_idx)
{
	struct piece *piece = piece_list_first(&slabs->pieces);
	if (piece == NULL)
		piece = add_piece(slabs);
	if (piece == NULL)
		return NULL;
	struct slab *slab = slab_list_pop_front(&piece->free);
	LP_ASSERT(slab != NULL);
	if (--piece->free_cnt == 0)
		piece_list_remove(piece);
	uint32_t first = HEAD_ALIGN;
	uint32_t room = (uint32_t)SLAB_BYTES - HEAD_ALIGN;
	if ((void *)slab == (void *)((uint8_t *)piece + HEAD_ALIGN))
		room -= HEAD_ALIGN;
	uint32_t object_bytes = (class_idx + 1) * GRAIN;
	*slab = (struct slab){.object_bytes = object_bytes,
			      .fresh = first,
			      .end = first + room / object_bytes * object_bytes};
	lp_san_poison((uint8_t *)slab + first, room);
	LP_ASSERT(slabs->classes[class_idx].head.next != NULL); /* the list was initialised */
	slab_list_push_front(&slabs->classes[class_idx], slab);
	return slab;
}

/* No object of the slab is out. */
static void give_back(struct lp_slabs *slabs, struct slab *slab)
{
	struct piece *piece = piece_of(slabs, slab);
	slab_list_remove(slab);
	slab->object_bytes = 0;
	slab_list_push_front(&piece->free, slab);
	if (piece->free_cnt++ == 0)
		piece_list_push_back(&slabs->pieces, piece);
	/* One free piece stays. Otherwise, frees the piece that would be used last. */
	bool is_only = piece_list_first(&slabs->pieces) == piece_list_last(&slabs->pieces);
	if (piece->free_cnt == slabs->slab_cnt && !is_only)
		drop_piece(slabs, piece);
}

/* --- Objects ---------------------------------------------------------------------------------- */

static uint32_t class_of(size_t bytes)
{
	return ((uint32_t)bytes - 1) / GRAIN;
}

void *lp_slabs_get(struct lp_slabs *slabs, size_t bytes)
{
	LP_ASSERT(bytes > 0);
	if (bytes > LP_SLABS_OBJECT_MAX) {
		void *large = malloc(bytes);
		slabs->out_cnt += large != NULL;
		return large;
	}
	struct slab *slab = slab_list_first(&slabs->classes[class_of(bytes)]);
	if (slab == NULL)
		slab = cut_slab(slabs, class_of(bytes));
	if (slab == NULL)
		return NULL;
	void *object = slab->back;
	if (object != NULL) {
		lp_san_unpoison(object, sizeof(void *));
		slab->back = *(void **)object;
		lp_san_poison(object, sizeof(void *));
	} else {
		object = (uint8_t *)slab + slab->fresh;
		slab->fresh += slab->object_bytes;
	}
	slab->out_cnt++;
	slabs->out_cnt++;
	if (slab->back == NULL && slab->fresh == slab->end)
		slab_list_remove(slab);
	lp_san_unpoison(object, bytes);
	return object;
}

void lp_slabs_put(struct lp_slabs *slabs, void *object, size_t bytes)
{
	if (object == NULL)
		return;
	LP_ASSERT(slabs->out_cnt > 0);
	slabs->out_cnt--;
	if (bytes > LP_SLABS_OBJECT_MAX) {
		free(object);
		return;
	}
	struct slab *slab = slab_of(slabs, object);
	struct slab_list *list = &slabs->classes[class_of(bytes)];
	LP_ASSERT(slab->object_bytes == (class_of(bytes) + 1) * GRAIN && slab->out_cnt > 0);
	bool was_full = slab->back == NULL && slab->fresh == slab->end;
	lp_san_unpoison(object, sizeof(void *));
	*(void **)object = slab->back;
	lp_san_poison(object, slab->object_bytes);
	slab->back = object;
	slab->out_cnt--;
	if (was_full)
		slab_list_push_front(list, slab);
	bool is_only = slab_list_first(list) == slab_list_last(list);
	if (slab->out_cnt == 0 && !is_only)
		give_back(slabs, slab);
}

uint64_t lp_slabs_bytes(const struct lp_slabs *slabs)
{
	return slabs->bytes;
}
