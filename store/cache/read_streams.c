/* SPDX-License-Identifier: Apache-2.0 */
/* A table of sets by a hash of the inode; in a set the streams of its inodes. The one that goes out
 * for a new one is the one that was gone on with the longest ago, of those that are not sequential
 * or have been silent for long if there are any. */
#include "store/cache/read_streams.h"

#include "base/assert.h"

#define SEQUENTIAL 2u

static struct lp_stream *set_of(struct lp_streams *streams, struct lp_ino ino)
{
	_Static_assert(LP_STREAMS_SETS == 1u << (64 - 58), "the highest bits of the hash");
	return streams->sets[(ino.nr * UINT64_C(0x9e3779b97f4a7c15)) >> 58];
}

static bool goes_on(const struct lp_stream *stream, uint64_t offset)
{
	if (stream->next == offset)
		return true;
	uint64_t away = LP_MAX(stream->next, offset) - LP_MIN(stream->next, offset);
	return stream->streak >= SEQUENTIAL && away <= LP_STREAMS_NEAR;
}

static struct lp_stream *find(struct lp_streams *streams, struct lp_ino ino, uint64_t offset)
{
	struct lp_stream *set = set_of(streams, ino);
	for (uint32_t i = 0; i < LP_STREAMS_WAYS; i++) {
		if (set[i].ino.nr == ino.nr && goes_on(&set[i], offset))
			return &set[i];
	}
	return NULL;
}

static bool is_worth_keeping(const struct lp_streams *streams, const struct lp_stream *stream)
{
	return stream->streak >= SEQUENTIAL && streams->reads - stream->used_at < LP_STREAMS_LONG;
}

/* NULL: all of the set are worth more than a read that may be the only one. */
static struct lp_stream *victim(struct lp_streams *streams, struct lp_ino ino)
{
	struct lp_stream *set = set_of(streams, ino);
	struct lp_stream *oldest = NULL;
	for (uint32_t i = 0; i < LP_STREAMS_WAYS; i++) {
		if (is_worth_keeping(streams, &set[i]))
			continue;
		if (oldest == NULL || set[i].used_at < oldest->used_at)
			oldest = &set[i];
	}
	return oldest;
}

struct lp_stream *lp_streams_read(struct lp_streams *streams, struct lp_ino ino, uint64_t offset,
				  uint64_t length)
{
	LP_ASSERT(ino.nr != 0 && length <= UINT64_MAX - offset);
	uint64_t end = offset + length;
	struct lp_stream *stream = find(streams, ino, offset);
	streams->reads++;
	if (stream == NULL) {
		stream = victim(streams, ino);
		if (stream != NULL)
			*stream = (struct lp_stream){.ino = ino,
						     .next = end,
						     .used_at = streams->reads,
						     .window = LP_STREAMS_WINDOW_MIN};
		return NULL;
	}
	stream->used_at = streams->reads;
	stream->next = LP_MAX(stream->next, end);
	stream->streak = LP_MIN(stream->streak + 1, SEQUENTIAL);
	return stream->streak >= SEQUENTIAL ? stream : NULL;
}

uint64_t lp_stream_want(const struct lp_stream *stream, uint64_t end_block, uint64_t *ret_first)
{
	uint64_t next = lp_bytes_to_blocks_up(stream->next);
	uint64_t from = LP_MAX(stream->ahead, next);
	uint64_t to = LP_MIN(next + stream->window, end_block);
	if (from - next > stream->mark || from >= to)
		return 0;
	*ret_first = from;
	return to - from;
}

void lp_stream_asked(struct lp_stream *stream, uint64_t first, uint64_t cnt)
{
	LP_ASSERT(cnt > 0 && first >= stream->ahead);
	uint64_t next = lp_bytes_to_blocks_up(stream->next);
	stream->ahead = first + cnt;
	stream->mark = (uint32_t)((stream->ahead - LP_MIN(next, stream->ahead)) / 2);
	stream->window = LP_MIN(2 * stream->window, LP_STREAMS_WINDOW_MAX);
}
