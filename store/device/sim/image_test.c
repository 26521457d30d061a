/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an image reads back what was put there, zeros elsewhere, and a copy never feels what
 * happens to the other. Method: random operations on several images that were copied from each
 * other, beside plain arrays; edges by hand. */
#include "base/testing/test.h"

#include "base/prng.h"
#include "store/device/sim/image.h"

#define SIZE      (300 * UINT64_C(4096) + 512)
#define IMAGE_CNT 4

static void test_edges(void **state)
{
	(void)state;
	struct lpi_image image;
	unsigned char buf[8192];
	lpi_image_init(&image, UINT64_C(1) << 50);
	lpi_image_read(&image, buf, sizeof(buf), (UINT64_C(1) << 50) - sizeof(buf));
	assert_int_equal(buf[0] | buf[sizeof(buf) - 1], 0);
	/* Zeroing what was never there takes no memory. */
	lpi_image_zero(&image, 4096, 0);
	assert_null(image.root);
	memset(buf, 7, sizeof(buf));
	lpi_image_write(&image, buf, 100, (UINT64_C(1) << 50) - 100);
	lpi_image_read(&image, buf, sizeof(buf), (UINT64_C(1) << 50) - sizeof(buf));
	assert_int_equal(buf[sizeof(buf) - 101], 0);
	assert_int_equal(buf[sizeof(buf) - 100], 7);
	lpi_image_fini(&image);
	lpi_image_fini(&image); /* of nothing */
	lpi_image_init(&image, 512);
	assert_int_equal(image.height, 0);
	lpi_image_write(&image, buf, 512, 0);
	lpi_image_fini(&image);
}

/* Whole pages of zeros that are written take no memory, and hide what was there. */
static void test_zeros_are_not_kept(void **state)
{
	(void)state;
	struct lpi_image image;
	struct lpi_image before;
	static unsigned char buf[2 * LPI_PAGE_BYTES];
	lpi_image_init(&image, SIZE);
	lpi_image_write(&image, buf, sizeof(buf), LPI_PAGE_BYTES);
	assert_null(image.root);
	memset(buf, 7, sizeof(buf));
	lpi_image_write(&image, buf, sizeof(buf), LPI_PAGE_BYTES);
	lpi_image_clone(&image, &before);
	/* The first page wholly, of the second a part; in the other image nothing. */
	memset(buf, 0, sizeof(buf));
	lpi_image_write(&image, buf, LPI_PAGE_BYTES + 100, LPI_PAGE_BYTES);
	lpi_image_read(&image, buf, sizeof(buf), LPI_PAGE_BYTES);
	assert_int_equal(buf[0] | buf[LPI_PAGE_BYTES - 1] | buf[LPI_PAGE_BYTES + 99], 0);
	assert_int_equal(buf[LPI_PAGE_BYTES + 100], 7);
	lpi_image_read(&before, buf, sizeof(buf), LPI_PAGE_BYTES);
	assert_int_equal(buf[0] & buf[LPI_PAGE_BYTES - 1] & buf[LPI_PAGE_BYTES + 99], 7);
	/* A page that only begins and ends with zeros is none of them. */
	memset(buf, 0, sizeof(buf));
	buf[LPI_PAGE_BYTES / 2] = 1;
	lpi_image_write(&image, buf, LPI_PAGE_BYTES, 0);
	buf[LPI_PAGE_BYTES / 2] = 0;
	lpi_image_read(&image, buf, LPI_PAGE_BYTES, 0);
	assert_int_equal(buf[LPI_PAGE_BYTES / 2], 1);
	lpi_image_fini(&image);
	lpi_image_fini(&before);
}

static void change(struct lpi_image *image, unsigned char *model, struct lp_prng *prng)
{
	static unsigned char data[20000];
	uint64_t len = lp_prng_between(prng, 0, sizeof(data));
	uint64_t at = lp_prng_below(prng, SIZE - len + 1);
	lp_prng_fill(prng, data, 64);
	switch (lp_prng_below(prng, 3)) {
	case 0:
		lpi_image_write(image, data, len, at);
		memcpy(model + at, data, len);
		break;
	case 1:
		lpi_image_zero(image, len, at);
		memset(model + at, 0, len);
		break;
	default:
		lpi_image_flip(image, data, len, at);
		for (uint64_t i = 0; i < len; i++)
			model[at + i] ^= data[i];
		break;
	}
}

static void test_copies_are_apart(void **state)
{
	(void)state;
	struct lpi_image images[IMAGE_CNT];
	unsigned char *models[IMAGE_CNT];
	unsigned char *got = malloc(SIZE);
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	for (int i = 0; i < IMAGE_CNT; i++) {
		lpi_image_init(&images[i], SIZE);
		models[i] = calloc(1, SIZE);
		assert_non_null(models[i]);
	}
	for (int n = 0; n < 600; n++) {
		uint64_t at = lp_prng_below(&prng, IMAGE_CNT);
		uint64_t from = lp_prng_below(&prng, IMAGE_CNT);
		if (lp_prng_chance(&prng, 1, 20) && at != from) {
			lpi_image_fini(&images[at]);
			lpi_image_clone(&images[from], &images[at]);
			memcpy(models[at], models[from], SIZE);
		}
		change(&images[at], models[at], &prng);
		if (n % 10 != 0)
			continue;
		for (int i = 0; i < IMAGE_CNT; i++) {
			lpi_image_read(&images[i], got, SIZE, 0);
			assert_memory_equal(got, models[i], SIZE);
		}
	}
	for (int i = 0; i < IMAGE_CNT; i++) {
		lpi_image_fini(&images[i]);
		free(models[i]);
	}
	free(got);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_edges),
		cmocka_unit_test(test_zeros_are_not_kept),
		cmocka_unit_test(test_copies_are_apart),
	};
	return lp_test_main(tests, "store/device/sim/image");
}
