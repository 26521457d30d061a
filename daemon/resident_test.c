/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a thread's buffers are registered up to the highest used one, and no farther. Memory that
 * was unused for a period, and no less, is neither registered nor resident any more. A thread is at
 * rest when for a period no request has ended and none was under way. Method: a simulated clock, no
 * ring, real memory whose pages are counted. */
#include "base/testing/test.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "daemon/resident.h"

#define MIB     (UINT64_C(1) << 20)
#define REGION  (UINT64_C(64) * MIB)
#define IDLE_NS (10 * LP_NS_PER_S)

struct rig {
	struct lp_clock_sim sim;
	struct lp_reactor *reactor;
	struct lp_bufs *bufs;
	struct lpi_resident *resident;
	struct lpi_resident_look look;
	struct lp_buf *out[64];
};

static struct rig *rig_new(bool registers)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	assert_non_null(rig);
	lp_clock_sim_init(&rig->sim, LP_NS_PER_S, 0);
	const struct lp_reactor_options options = {
		.name = "test", .clock = &rig->sim.clock, .sim = &rig->sim, .buffers_max = 1};
	lp_test_ok(lp_reactor_new(&options, &rig->reactor));
	lp_test_ok(lp_reactor_start(rig->reactor));
	lp_test_ok(lp_bufs_new(REGION, &rig->bufs));
	rig->resident = aligned_alloc(_Alignof(struct lpi_resident), sizeof(*rig->resident));
	assert_non_null(rig->resident);
	lpi_resident_init(rig->resident, rig->reactor, rig->bufs, registers, 0);
	rig->look = (struct lpi_resident_look){.idle_ns = IDLE_NS};
	return rig;
}

static void rig_free(struct rig *rig)
{
	struct lp_account_sum sum;
	lpi_resident_fini(rig->resident);
	lpi_resident_fini(rig->resident); /* nothing is registered any more */
	assert_false(lp_account_find_sum("buffers", &sum));
	free(rig->resident);
	lp_bufs_free(rig->bufs);
	lp_reactor_free(rig->reactor);
	free(rig);
}

static bool look_after(struct rig *rig, uint64_t ns)
{
	lp_clock_sim_advance_to(&rig->sim, rig->sim.now_ns + ns);
	(void)lp_reactor_turn(rig->reactor, false);
	return lpi_resident_look(rig->resident, &rig->look);
}

/* Uses so many MiB, and gives them back. */
static void use(struct rig *rig, uint32_t mib)
{
	for (uint32_t i = 0; i < mib; i++) {
		rig->out[i] = lp_buf_new(rig->bufs, LP_BUF_LARGE);
		assert_non_null(rig->out[i]);
		memset(rig->out[i]->data, 1, LP_BUF_LARGE);
	}
	for (uint32_t i = 0; i < mib; i++)
		lp_buf_put(rig->out[i]);
}

static uint64_t registered_mib(struct rig *rig)
{
	uint64_t bytes;
	uint64_t mib = 0;
	const uint8_t *region = lp_bufs_region(rig->bufs, &bytes);
	while (mib < REGION / MIB &&
	       lp_reactor_buffer_find(rig->reactor, region + mib * MIB, MIB) >= 0)
		mib++;
	return mib;
}

static uint64_t resident_mib(struct rig *rig)
{
	static unsigned char pages[REGION / 4096];
	uint64_t bytes;
	uint64_t cnt = 0;
	void *region = lp_bufs_region(rig->bufs, &bytes);
	assert_int_equal(mincore(region, bytes, pages), 0);
	for (size_t i = 0; i < LP_ARRAY_SIZE(pages); i++)
		cnt += pages[i] & 1;
	return cnt / 256;
}

static void test_registered_as_used(void **state)
{
	(void)state;
	struct rig *rig = rig_new(true);
	struct lp_account_sum sum;
	assert_int_equal(registered_mib(rig), 0);
	(void)look_after(rig, LP_NS_PER_S);
	assert_int_equal(registered_mib(rig), 0);
	use(rig, 3);
	assert_int_equal(registered_mib(rig), 0);
	(void)look_after(rig, LP_NS_PER_S);
	assert_int_equal(registered_mib(rig), 4); /* whole huge pages */
	use(rig, 64);
	(void)look_after(rig, LP_NS_PER_S);
	assert_int_equal(registered_mib(rig), 64);
	assert_true(lp_account_find_sum("buffers", &sum));
	assert_int_equal(sum.bytes, REGION);
	assert_true(lp_account_find_sum("buffers registered", &sum));
	assert_int_equal(sum.bytes, REGION);
	rig_free(rig);
	/* Where I/O bypasses the ring. */
	rig = rig_new(false);
	use(rig, 64);
	(void)look_after(rig, LP_NS_PER_S);
	assert_int_equal(registered_mib(rig), 0);
	rig_free(rig);
}

static void test_given_back_after_rest(void **state)
{
	(void)state;
	struct rig *rig = rig_new(true);
	use(rig, 32);
	/* Memory that is used at intervals stays, however little is used in between. */
	for (uint32_t i = 0; i < 60; i++) {
		use(rig, i % 9 == 0 ? 32 : 1);
		(void)look_after(rig, LP_NS_PER_S);
		assert_int_equal(registered_mib(rig), 32);
		assert_int_equal(resident_mib(rig), 32);
	}
	/* It was used last six seconds ago: it stays for the rest of a period. */
	for (uint32_t i = 6; i < 10; i++) {
		(void)look_after(rig, LP_NS_PER_S);
		assert_int_equal(resident_mib(rig), 32);
	}
	for (uint32_t i = 0; i < 16; i++) {
		use(rig, 3);
		(void)look_after(rig, LP_NS_PER_S);
		/* The period in which it was used ended less than another one ago. */
		assert_int_equal(registered_mib(rig), i < 15 ? 32 : 4);
	}
	assert_int_equal(registered_mib(rig), 4);
	assert_int_equal(resident_mib(rig), 4);
	/* Buffers that are out stay, at any address. */
	for (uint32_t i = 0; i < 12; i++)
		rig->out[i] = lp_buf_new(rig->bufs, LP_BUF_LARGE);
	memset(rig->out[11]->data, 77, LP_BUF_LARGE);
	for (uint32_t i = 0; i < 11; i++)
		lp_buf_put(rig->out[i]);
	for (uint32_t i = 0; i < 40; i++)
		(void)look_after(rig, LP_NS_PER_S);
	assert_int_equal(registered_mib(rig), 12);
	assert_int_equal(rig->out[11]->data[0], 77);
	lp_buf_put(rig->out[11]);
	for (uint32_t i = 0; i < 30; i++)
		(void)look_after(rig, LP_NS_PER_S);
	assert_int_equal(registered_mib(rig), 0);
	assert_int_equal(resident_mib(rig), 0);
	rig_free(rig);
}

static void test_never(void **state)
{
	(void)state;
	struct rig *rig = rig_new(true);
	rig->look.idle_ns = 0;
	use(rig, 32);
	for (uint32_t i = 0; i < 100; i++)
		assert_false(look_after(rig, 10 * LP_NS_PER_S));
	assert_int_equal(registered_mib(rig), 32);
	/* But no more than the process may have. */
	rig->look.is_short = true;
	for (uint32_t i = 0; i < 3; i++)
		(void)look_after(rig, LPI_RESIDENT_SHORT_NS);
	assert_int_equal(registered_mib(rig), 0);
	assert_int_equal(resident_mib(rig), 0);
	rig_free(rig);
}

static void test_at_rest(void **state)
{
	(void)state;
	struct rig *rig = rig_new(true);
	for (uint32_t i = 1; i < 10; i++)
		assert_false(look_after(rig, LP_NS_PER_S));
	assert_true(look_after(rig, LP_NS_PER_S));
	rig->look.moved = 1;
	assert_false(look_after(rig, LP_NS_PER_S));
	for (uint32_t i = 1; i < 10; i++)
		assert_false(look_after(rig, LP_NS_PER_S));
	assert_true(look_after(rig, LP_NS_PER_S));
	/* A thread with a long request is not at rest. */
	rig->look.under_way = 1;
	for (uint32_t i = 0; i < 30; i++)
		assert_false(look_after(rig, LP_NS_PER_S));
	rig->look.under_way = 0;
	rig->look.moved = 2;
	for (uint32_t i = 0; i < 10; i++)
		assert_false(look_after(rig, LP_NS_PER_S));
	assert_true(look_after(rig, LP_NS_PER_S));
	rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_registered_as_used),
		cmocka_unit_test(test_given_back_after_rest),
		cmocka_unit_test(test_never),
		cmocka_unit_test(test_at_rest),
	};
	return lp_test_main(tests, "daemon/resident");
}
