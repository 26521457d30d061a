/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what is shown stays until it is released, in order, and no longer; what is not wholly in
 * shared memory is not shown; the descriptor goes along until it has gone; nothing is left at the
 * end, and a client that releases what it was not shown is told from one that does.
 * Method: a share in the hand, random replies beside a list of what is held, and the freeing of
 * the region, which asserts that all buffers are back. */
#include "base/testing/test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/prng.h"
#include "native/share.h"
#include "wire/wire.h"

#define MIB (UINT64_C(1) << 20)

static struct lpi_share *new_share(uint64_t bytes)
{
	struct lpi_share *share = NULL;
	lp_test_ok(lpi_share_new(bytes, &share));
	return share;
}

static uint64_t used_bytes(struct lpi_share *share)
{
	struct lp_bufs_stats stats;
	lp_bufs_read_stats(lpi_share_bufs(share), &stats);
	return stats.used_bytes;
}

/* A reply of one buffer, or NULL: there is none. The store's reference is given back at once. */
static struct lp_buf *show_one(struct lpi_share *share, uint32_t bytes, uint8_t *ret_meta)
{
	struct lp_writer writer;
	size_t len = 0;
	struct lp_buf *buf = lp_buf_new(lpi_share_bufs(share), bytes);
	if (buf == NULL)
		return NULL;
	const struct lp_seg seg = {.buf = buf, .offset = 17, .len = bytes - 17};
	lp_writer_init(&writer, ret_meta, LP_WIRE_SHARED_SIZE);
	assert_true(lpi_share_show(share, &seg, 1, &writer));
	assert_true(lp_writer_finish(&writer, &len));
	assert_int_equal(len, LP_WIRE_SHARED_SIZE);
	lp_buf_put(buf);
	return buf;
}

static void test_in_order(void **state)
{
	(void)state;
	struct lpi_share *share = new_share(3 * MIB + 5);
	uint8_t meta[LP_WIRE_SHARED_SIZE];
	struct lp_wire_shared part;
	uint64_t bytes = 0;
	const uint8_t *region = lp_bufs_region(lpi_share_bufs(share), &bytes);
	assert_int_equal(lpi_share_bytes(share), 3 * MIB);
	for (int i = 0; i < 3; i++) {
		struct lp_buf *buf = show_one(share, LP_BUF_LARGE, meta);
		lp_wire_shared_decode(meta, &part);
		assert_int_equal(part.offset, buf->data + 17 - region);
		assert_int_equal(part.bytes, LP_BUF_LARGE - 17);
	}
	assert_null(show_one(share, LP_BUF_LARGE, meta));
	assert_int_equal(used_bytes(share), 3 * MIB);
	lp_test_ok(lpi_share_release(share, 0));
	assert_int_equal(used_bytes(share), 3 * MIB);
	lp_test_ok(lpi_share_release(share, 2));
	assert_int_equal(used_bytes(share), MIB);
	assert_int_equal(lpi_share_release(share, 1), -EPROTO);
	assert_int_equal(lpi_share_release(share, 4), -EPROTO);
	assert_int_equal(lpi_share_release(share, UINT64_MAX), -EPROTO);
	assert_int_equal(used_bytes(share), MIB);
	lp_test_ok(lpi_share_release(share, 2));
	assert_non_null(show_one(share, LP_BUF_LARGE, meta));
	lp_test_ok(lpi_share_release(share, 4));
	assert_int_equal(used_bytes(share), 0);
	assert_non_null(show_one(share, LP_BUF_MEDIUM, meta));
	lpi_share_free(share); /* what was never released */
}

static void test_what_is_not_shown(void **state)
{
	(void)state;
	struct lpi_share *share = new_share(2 * MIB);
	struct lp_bufs *others = NULL;
	struct lp_seg segs[LP_WIRE_PARTS_MAX + 1];
	uint8_t meta[sizeof(segs)];
	struct lp_writer writer;
	lp_test_ok(lp_bufs_new(MIB, &others));
	lp_writer_init(&writer, meta, sizeof(meta));
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(segs); i++)
		segs[i] = (struct lp_seg){.buf = lp_buf_new(lpi_share_bufs(share), LP_BUF_MEDIUM),
					  .len = 4096};
	assert_false(lpi_share_show(share, segs, 0, &writer));
	assert_false(lpi_share_show(share, segs, LP_WIRE_PARTS_MAX + 1, &writer));
	struct lp_buf *own = segs[3].buf;
	segs[3].buf = lp_buf_new(others, LP_BUF_MEDIUM);
	assert_false(lpi_share_show(share, segs, 5, &writer));
	lp_buf_put(segs[3].buf);
	segs[3].buf = own;
	assert_int_equal(lpi_share_release(share, 1), -EPROTO);
	assert_true(lpi_share_show(share, segs, LP_WIRE_PARTS_MAX, &writer));
	lp_test_ok(lpi_share_release(share, 1));
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(segs); i++)
		lp_buf_put(segs[i].buf);
	assert_int_equal(used_bytes(share), 0);
	lp_bufs_free(others);
	lpi_share_free(share);
}

/* Replies of one or two buffers of either size, released now and then. */
static void test_random_run(void **state)
{
	(void)state;
	struct lpi_share *share = new_share(4 * MIB);
	struct lp_prng prng;
	uint64_t shown = 0;
	uint64_t released = 0;
	uint64_t held[4096];
	uint64_t used = 0;
	lp_prng_init(&prng, 5);
	for (int i = 0; i < 20000; i++) {
		uint8_t meta[2 * LP_WIRE_SHARED_SIZE];
		struct lp_seg segs[2];
		uint32_t cnt = 0;
		if (lp_prng_below(&prng, 3) == 0) {
			uint64_t upto = released + lp_prng_below(&prng, shown - released + 1);
			for (; released < upto; released++)
				used -= held[released % LP_ARRAY_SIZE(held)];
			lp_test_ok(lpi_share_release(share, released));
			assert_int_equal(used_bytes(share), used);
			continue;
		}
		for (uint32_t n = 1 + (uint32_t)lp_prng_below(&prng, 2); cnt < n; cnt++) {
			uint32_t bytes =
				lp_prng_below(&prng, 2) == 0 ? LP_BUF_MEDIUM : LP_BUF_LARGE;
			struct lp_buf *buf = lp_buf_new(lpi_share_bufs(share), bytes);
			if (buf == NULL)
				break;
			segs[cnt] = (struct lp_seg){.buf = buf, .len = bytes};
		}
		if (cnt > 0) {
			struct lp_writer writer;
			lp_writer_init(&writer, meta, sizeof(meta));
			assert_true(lpi_share_show(share, segs, cnt, &writer));
			held[shown % LP_ARRAY_SIZE(held)] = 0;
			for (uint32_t n = 0; n < cnt; n++) {
				held[shown % LP_ARRAY_SIZE(held)] += segs[n].buf->bytes;
				lp_buf_put(segs[n].buf);
			}
			used += held[shown++ % LP_ARRAY_SIZE(held)];
		}
		assert_int_equal(used_bytes(share), used);
	}
	lpi_share_free(share);
}

static void test_descriptor(void **state)
{
	(void)state;
	struct lpi_share *share = new_share(MIB);
	struct msghdr msg = {0};
	struct stat stat;
	int fd = -1;
	for (int i = 0; i < 2; i++) { /* nothing of the first one went */
		msg = (struct msghdr){0};
		lpi_share_attach(share, &msg);
		struct cmsghdr head;
		assert_true(msg.msg_controllen >= CMSG_LEN(sizeof(int)));
		memcpy(&head, msg.msg_control, sizeof(head));
		assert_int_equal(head.cmsg_type, SCM_RIGHTS);
		memcpy(&fd, (uint8_t *)msg.msg_control + CMSG_LEN(0), sizeof(fd));
		assert_int_equal(fstat(fd, &stat), 0);
		assert_int_equal(stat.st_size, MIB);
	}
	lpi_share_sent(share);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	msg = (struct msghdr){0};
	lpi_share_attach(share, &msg);
	assert_int_equal(msg.msg_controllen, 0);
	lpi_share_free(share);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_order),
		cmocka_unit_test(test_what_is_not_shown),
		cmocka_unit_test(test_random_run),
		cmocka_unit_test(test_descriptor),
	};
	return lp_test_main(tests, "native/share");
}
