/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/wire.h"

#include "base/testing/test.h"

#include "base/crc32c.h"

static struct lp_wire_header some_header(void)
{
	return (struct lp_wire_header){.kind = LP_WIRE_KIND_REQUEST,
				       .opcode = LP_WIRE_OP_WRITE,
				       .request_id = 0x1122334455667788,
				       .flags = LP_WIRE_FLAG_ORDERED,
				       .meta_bytes = 24,
				       .data_bytes = 5000,
				       .crc_cnt = 3,
				       .offset = 4000};
}

/* The page's own example. */
static void the_grid_cuts_data_into_pieces(void **state)
{
	(void)state;
	assert_int_equal(lp_wire_piece_cnt(4000, 5000), 3);
	assert_int_equal(lp_wire_piece_len(4000, 5000), 96);
	assert_int_equal(lp_wire_piece_len(4096, 4904), 4096);
	assert_int_equal(lp_wire_piece_len(8192, 808), 808);
	assert_int_equal(lp_wire_piece_cnt(77, 0), 0);
	assert_int_equal(lp_wire_piece_cnt(0, 4096), 1);
	assert_int_equal(lp_wire_piece_cnt(4095, 2), 2);
	assert_int_equal(lp_wire_piece_cnt(1, LP_WIRE_DATA_MAX), LP_WIRE_CRCS_MAX);
}

/* Rule W2: the piece that is damaged is found. */
static void a_damaged_piece_is_found(void **state)
{
	uint8_t data[5000];
	uint32_t crcs[3];
	uint32_t back[3];
	uint8_t bytes[12];
	(void)state;
	memset(data, 7, sizeof(data));
	lp_wire_crcs_make(data, 4000, sizeof(data), crcs);
	assert_int_equal(crcs[0], lp_crc32c(0, data, 96));
	lp_wire_crcs_encode(crcs, 3, bytes);
	lp_wire_crcs_decode(bytes, 3, back);
	assert_memory_equal(crcs, back, sizeof(crcs));
	assert_int_equal(lp_wire_crcs_check(data, 4000, sizeof(data), crcs), 3);
	data[95] ^= 1;
	assert_int_equal(lp_wire_crcs_check(data, 4000, sizeof(data), crcs), 0);
	data[95] ^= 1;
	data[4999] ^= 1;
	assert_int_equal(lp_wire_crcs_check(data, 4000, sizeof(data), crcs), 2);
}

static void a_header_is_read_as_it_was_sealed(void **state)
{
	(void)state;
	for (int mode = LP_WIRE_CRC_OFF; mode <= LP_WIRE_CRC_ALL; mode++) {
		struct lp_wire_header header = some_header();
		struct lp_wire_header back;
		uint8_t rest[36] = {1, 2, 3};
		uint8_t bytes[LP_WIRE_HEADER_SIZE];
		const char *why = NULL;
		lp_wire_header_seal(&header, (enum lp_wire_crc)mode, rest, bytes);
		lp_test_ok(lp_wire_header_read(bytes, (enum lp_wire_crc)mode, LP_WIRE_META_MAX,
					       &back, &why));
		assert_int_equal(back.request_id, header.request_id);
		assert_int_equal(back.offset, 4000);
		assert_int_equal(back.header_crc == 0, mode == LP_WIRE_CRC_OFF);
		lp_test_ok(lp_wire_rest_check(&back, (enum lp_wire_crc)mode, rest));
		rest[35] ^= 1;
		lp_test_err(mode == LP_WIRE_CRC_OFF ? 0 : -EBADMSG,
			    lp_wire_rest_check(&back, (enum lp_wire_crc)mode, rest));
	}
}

/* With checksums each bit of a header is covered; without, what makes no sense is refused. */
static void a_bent_header_is_refused(void **state)
{
	struct lp_wire_header header = some_header();
	struct lp_wire_header back;
	uint8_t rest[36] = {0};
	uint8_t bytes[LP_WIRE_HEADER_SIZE];
	const char *why = NULL;
	(void)state;
	lp_wire_header_seal(&header, LP_WIRE_CRC_HEADER, rest, bytes);
	for (uint32_t bit = 0; bit < LP_WIRE_HEADER_SIZE * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		why = NULL;
		assert_true(lp_wire_header_read(bytes, LP_WIRE_CRC_HEADER, LP_WIRE_META_MAX, &back,
						&why) < 0);
		assert_non_null(why);
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	header.crc_cnt = 2;
	lp_wire_header_seal(&header, LP_WIRE_CRC_OFF, rest, bytes);
	lp_test_err(-EMSGSIZE,
		    lp_wire_header_read(bytes, LP_WIRE_CRC_OFF, LP_WIRE_META_MAX, &back, &why));
	header.crc_cnt = 0;
	header.data_bytes = LP_WIRE_DATA_MAX + 1;
	lp_wire_header_seal(&header, LP_WIRE_CRC_OFF, rest, bytes);
	lp_test_err(-EMSGSIZE,
		    lp_wire_header_read(bytes, LP_WIRE_CRC_OFF, LP_WIRE_META_MAX, &back, &why));
	header.data_bytes = 0;
	header.meta_bytes = LP_WIRE_META_MAX + 1;
	lp_wire_header_seal(&header, LP_WIRE_CRC_OFF, rest, bytes);
	lp_test_err(-EMSGSIZE,
		    lp_wire_header_read(bytes, LP_WIRE_CRC_OFF, LP_WIRE_META_MAX, &back, &why));
	header.meta_bytes = 0;
	header.kind = 0;
	lp_wire_header_seal(&header, LP_WIRE_CRC_OFF, rest, bytes);
	lp_test_err(-EPROTO,
		    lp_wire_header_read(bytes, LP_WIRE_CRC_OFF, LP_WIRE_META_MAX, &back, &why));
}

static void a_meta_is_read_to_its_end(void **state)
{
	static const uint8_t path[5] = {'a', '/', 'b', '/', 'c'};
	uint8_t bytes[LP_WIRE_REF_SIZE + sizeof(path)];
	struct lp_wire_ref ref = {.ino = 1, .path_bytes = 5};
	struct lp_reader reader;
	(void)state;
	lp_wire_ref_encode(&ref, bytes);
	memcpy(bytes + LP_WIRE_REF_SIZE, path, sizeof(path));
	lp_reader_init(&reader, bytes, sizeof(bytes));
	assert_true(lp_wire_part(&reader, lp_wire_ref, &ref));
	assert_memory_equal(lp_wire_bytes(&reader, ref.path_bytes), path, sizeof(path));
	lp_test_ok(lp_wire_end(&reader));
	/* A byte is left over; then one is missing; then a reserved field is not zero. */
	lp_reader_init(&reader, bytes, sizeof(bytes));
	assert_true(lp_wire_part(&reader, lp_wire_ref, &ref));
	assert_non_null(lp_wire_bytes(&reader, 4));
	lp_test_err(-EINVAL, lp_wire_end(&reader));
	lp_reader_init(&reader, bytes, sizeof(bytes) - 1);
	assert_true(lp_wire_part(&reader, lp_wire_ref, &ref));
	assert_null(lp_wire_bytes(&reader, ref.path_bytes));
	lp_test_err(-EINVAL, lp_wire_end(&reader));
	bytes[LP_WIRE_REF_RESERVED_OFF] = 1;
	lp_reader_init(&reader, bytes, sizeof(bytes));
	assert_false(lp_wire_part(&reader, lp_wire_ref, &ref));
	lp_test_err(-EINVAL, lp_wire_end(&reader));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_grid_cuts_data_into_pieces),
		cmocka_unit_test(a_damaged_piece_is_found),
		cmocka_unit_test(a_header_is_read_as_it_was_sealed),
		cmocka_unit_test(a_bent_header_is_refused),
		cmocka_unit_test(a_meta_is_read_to_its_end),
	};
	return lp_test_main(tests, "wire");
}
