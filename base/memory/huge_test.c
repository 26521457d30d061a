/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: exactly the whole huge pages inside of a piece are asked for, and its content stays.
 * Method: pieces with all kinds of ends in one mapping; what the kernel says of it. */
#include "base/testing/test.h"

#include <sys/mman.h>

#include "base/memory/huge.h"

#define HUGE ((size_t)LP_HUGE_BYTES)

/* Four huge pages, at the beginning of one. */
static uint8_t *map(void)
{
	uint8_t *map =
		mmap(NULL, 5 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	size_t lead = (size_t)lp_align_up((uintptr_t)map, HUGE) - (uintptr_t)map;
	if (lead > 0)
		assert_int_equal(munmap(map, lead), 0);
	if (lead < HUGE)
		assert_int_equal(munmap(map + lead + 4 * HUGE, HUGE - lead), 0);
	return map + lead;
}

static void unmap(uint8_t *map)
{
	assert_int_equal(munmap(map, 4 * HUGE), 0);
}

static void test_whole_pages(void **state)
{
	(void)state;
	uint8_t *memory = map();
	assert_int_equal(lp_huge_advise(NULL, 4 * HUGE), 0);
	assert_int_equal(lp_huge_advise(memory, 0), 0);
	assert_int_equal(lp_huge_advise(memory, HUGE - 1), 0);
	assert_int_equal(lp_huge_advise(memory + 1, 2 * HUGE - 2), 0);
	assert_int_equal(lp_huge_advise(memory + 1, 2 * HUGE - 1), HUGE);
	assert_int_equal(lp_huge_advise(memory, HUGE), HUGE);
	assert_int_equal(lp_huge_advise(memory, 4 * HUGE - 1), 3 * HUGE);
	assert_int_equal(lp_huge_advise(memory + HUGE - 1, 3 * HUGE + 1), 3 * HUGE);
	unmap(memory);
}

static void test_content_stays(void **state)
{
	(void)state;
	uint8_t *memory = map();
	for (size_t i = 0; i < 4 * HUGE; i += 4096)
		memory[i] = (uint8_t)(i / 4096 * 7);
	assert_int_equal(lp_huge_advise(memory + 4096, 4 * HUGE - 4096), 3 * HUGE);
	for (size_t i = 0; i < 4 * HUGE; i += 4096)
		assert_int_equal(memory[i], (uint8_t)(i / 4096 * 7));
	unmap(memory);
}

/* Whether the mapping with that address is marked: "hg" among its flags. -1: not known. */
static int is_marked(const void *address)
{
	char line[512];
	int found = -1;
	bool is_here = false;
	FILE *maps = fopen("/proc/self/smaps", "r");
	if (maps == NULL)
		return -1;
	while (fgets(line, sizeof(line), maps) != NULL) {
		char *end = NULL;
		unsigned long long begin = strtoull(line, &end, 16);
		if (*end == '-')
			is_here = begin <= (uintptr_t)address &&
				  strtoull(end + 1, NULL, 16) > (uintptr_t)address;
		else if (is_here && strncmp(line, "VmFlags:", 8) == 0)
			found = strstr(line, " hg") != NULL;
	}
	(void)fclose(maps);
	return found;
}

static void test_the_kernel_knows(void **state)
{
	(void)state;
	uint8_t *memory = map();
	assert_int_equal(lp_huge_advise(memory + HUGE, 2 * HUGE), 2 * HUGE);
	/* A kernel without huge pages has no such flag. */
	if (is_marked(memory + HUGE) == 1) {
		assert_int_equal(is_marked(memory + 3 * HUGE - 1), 1);
		assert_int_equal(is_marked(memory), 0);
		assert_int_equal(is_marked(memory + 3 * HUGE), 0);
	}
	unmap(memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_pages),
		cmocka_unit_test(test_content_stays),
		cmocka_unit_test(test_the_kernel_knows),
	};
	return lp_test_main(tests, "huge");
}
