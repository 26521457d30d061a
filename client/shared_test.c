/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: data in shared memory is as good as data that comes through the socket: whole, verified,
 * in order; it is asked for where it is worth it, and where there is none all goes on without. What
 * is damaged there, or has gone, is read again; what makes no sense ends the connection, not the
 * program.
 * Method: a daemon that shares a file in memory, and does one thing wrong in each test.
 */
#include "client/fake_test.h"

#include <sys/mman.h>
#include <sys/stat.h>

#define MIB         (1u << 20)
#define SHARE_BYTES (UINT64_C(4) << 20)
#define OBJECT_LEN  (2u * MIB + 5000)

/* What the daemon does wrong, as long as faults are left. */
enum fault {
	FAULT_NONE,
	FAULT_REFUSED,     /* there is no memory to be shared */
	FAULT_UNKNOWN,     /* a daemon that does not know of it */
	FAULT_NO_FD,       /* the answer, without a descriptor */
	FAULT_UNSEALED,    /* memory that may become smaller */
	FAULT_SHORT,       /* memory that is smaller than was said */
	FAULT_NO_BYTES,    /* an answer of nothing */
	FAULT_DAMAGED,     /* other bytes than those that were meant */
	FAULT_BEHIND,      /* a part behind the end */
	FAULT_FEWER_PARTS, /* parts that are less than the data */
	FAULT_EMPTY_PART,
	FAULT_HALF_PART, /* a meta that ends in the middle of one */
	FAULT_NO_PARTS,
	FAULT_TOO_MANY_PARTS,
	FAULT_OTHER_FLAG, /* data that is shared of what has none */
	FAULT_CNT
};

struct host {
	struct lpi_fake_rig rig;
	enum fault fault;
	uint32_t faults_left;
	int fd; /* of the file; -1: none is shared */
	uint8_t *memory;
	uint32_t conn_nr;    /* the connection that it is shared with */
	uint64_t shared_cnt; /* on that */
	uint64_t shared_ever;
	uint64_t get_cnt;
};

static struct host host;

static bool is_faulty(enum fault fault)
{
	if (host.fault != fault || host.faults_left == 0)
		return false;
	host.faults_left--;
	return true;
}

static void drop_memory(void)
{
	if (host.memory != NULL)
		(void)munmap(host.memory, SHARE_BYTES);
	if (host.fd >= 0)
		(void)close(host.fd);
	host.memory = NULL;
	host.fd = -1;
	host.shared_cnt = 0;
}

static void make_memory(void)
{
	off_t bytes = (off_t)(is_faulty(FAULT_SHORT) ? SHARE_BYTES / 2 : SHARE_BYTES);
	drop_memory();
	host.fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(host.fd >= 0);
	assert_int_equal(ftruncate(host.fd, bytes), 0);
	if (!is_faulty(FAULT_UNSEALED))
		assert_int_equal(fcntl(host.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	host.memory = mmap(NULL, SHARE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, host.fd, 0);
	assert_true(host.memory != MAP_FAILED);
}

static void answer_share(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	uint8_t meta[LP_WIRE_SHARE_SIZE];
	struct lp_wire_share share;
	lp_wire_share_decode(req->meta, &share);
	assert_true(share.bytes >= MIB && share.bytes <= LP_WIRE_SHARE_MAX);
	if (is_faulty(FAULT_REFUSED)) {
		lpi_fake_error(fake, req, ENOMEM, "none is left");
		return;
	}
	if (is_faulty(FAULT_UNKNOWN)) {
		lpi_fake_error(fake, req, ENOSYS, "this opcode is not known");
		return;
	}
	make_memory();
	host.conn_nr = fake->conns_ever;
	share.bytes = is_faulty(FAULT_NO_BYTES) ? 0 : SHARE_BYTES;
	lp_wire_share_encode(&share, meta);
	lpi_fake_plain(fake, req, meta, sizeof(meta));
	req->conn->passes_fd = !is_faulty(FAULT_NO_FD);
	req->conn->passed_fd = host.fd;
}

/* Where the next piece goes: another place each time. */
static uint32_t place(void)
{
	return (uint32_t)(host.shared_cnt % 3) * (MIB + 4096);
}

static uint32_t put_parts(struct lp_wire_shared *parts, uint32_t len)
{
	uint32_t at = place();
	uint32_t first = LP_MIN(len, 10000u);
	uint32_t cnt = 0;
	parts[cnt++] = (struct lp_wire_shared){.offset = at, .bytes = first};
	if (len > first)
		parts[cnt++] = (struct lp_wire_shared){.offset = at + first, .bytes = len - first};
	if (is_faulty(FAULT_BEHIND))
		parts[cnt - 1].offset = (uint32_t)SHARE_BYTES - parts[cnt - 1].bytes + 1;
	if (is_faulty(FAULT_FEWER_PARTS))
		parts[0].bytes--;
	if (is_faulty(FAULT_EMPTY_PART))
		parts[cnt++] = (struct lp_wire_shared){.offset = 0};
	if (is_faulty(FAULT_NO_PARTS))
		cnt = 0;
	while (is_faulty(FAULT_TOO_MANY_PARTS)) {
		for (cnt = 0; cnt <= LP_WIRE_PARTS_MAX; cnt++)
			parts[cnt] = (struct lp_wire_shared){.offset = at + cnt, .bytes = 1};
		parts[cnt - 1].bytes = len - (cnt - 1);
		break;
	}
	return cnt;
}

static void show(struct lpi_fake *fake, struct lpi_fake_request *req, struct lp_wire_header header,
		 const struct lp_wire_got *got, const uint8_t *data)
{
	struct lp_wire_shared parts[LP_WIRE_PARTS_MAX + 2];
	uint8_t meta[LP_WIRE_GOT_SIZE + sizeof(parts)];
	memcpy(host.memory + place(), data, header.data_bytes);
	if (is_faulty(FAULT_DAMAGED))
		host.memory[place() + header.data_bytes / 2] ^= 1;
	uint32_t cnt = put_parts(parts, header.data_bytes);
	lp_wire_got_encode(got, meta);
	for (uint32_t i = 0; i < cnt; i++)
		lp_wire_shared_encode(&parts[i],
				      meta + LP_WIRE_GOT_SIZE + (size_t)i * LP_WIRE_SHARED_SIZE);
	header.meta_bytes = LP_WIRE_GOT_SIZE + cnt * LP_WIRE_SHARED_SIZE;
	if (is_faulty(FAULT_HALF_PART))
		header.meta_bytes -= 3;
	header.flags |= LP_WIRE_FLAG_SHARED;
	host.shared_cnt++;
	host.shared_ever++;
	lpi_fake_send(fake, req, header, meta, data);
	req->conn->out_len -= header.data_bytes; /* it is there already */
}

static void answer_get(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	struct lp_wire_get get;
	lp_wire_get_decode(req->meta, &get);
	int idx = lpi_fake_find(fake, get.ref, req->meta + LP_WIRE_GET_SIZE);
	assert_true(idx >= 0);
	const struct lpi_fake_object *obj = &fake->objects[idx];
	const struct lp_wire_got got = {.size_bytes = obj->len, .version_nr = obj->version};
	uint64_t left = LP_MIN(get.length, obj->len - get.offset);
	while (left > 0) {
		uint32_t len = (uint32_t)LP_MIN(left, (uint64_t)fake->piece_max);
		const struct lp_wire_header header = {.data_bytes = len,
						      .offset = get.offset,
						      .flags = left > len ? LP_WIRE_FLAG_MORE : 0};
		show(fake, req, header, &got, obj->data + get.offset);
		get.offset += len;
		left -= len;
	}
}

static bool hook(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	if (req->header.opcode == LP_WIRE_OP_SHARE) {
		answer_share(fake, req);
		return true;
	}
	if (req->header.opcode == LP_WIRE_OP_PING && is_faulty(FAULT_OTHER_FLAG)) {
		lpi_fake_send(fake, req, (struct lp_wire_header){.flags = LP_WIRE_FLAG_SHARED},
			      NULL, NULL);
		return true;
	}
	if (req->header.opcode != LP_WIRE_OP_GET)
		return false;
	host.get_cnt++;
	if (host.memory == NULL || host.conn_nr != fake->conns_ever)
		return false;
	answer_get(fake, req);
	return true;
}

static uint8_t *setup(enum fault fault, uint32_t fault_cnt)
{
	host = (struct host){.fault = fault, .faults_left = fault_cnt, .fd = -1};
	lpi_fake_rig_init(&host.rig);
	host.rig.fake.hook = hook;
	uint8_t *data = lpi_fake_rig_pattern(OBJECT_LEN);
	assert_int_equal(lpi_fake_rig_ask(&host.rig, lpi_fake_rig_put_of("a/b", data, OBJECT_LEN)),
			 0);
	return data;
}

static void teardown(uint8_t *data)
{
	lpi_fake_rig_fini(&host.rig);
	drop_memory();
	free(data);
}

static uint32_t asked(void)
{
	return host.rig.fake.requests[LP_WIRE_OP_SHARE];
}

static void wait_released(uint64_t cnt)
{
	for (int i = 0; i < 1000 && host.rig.fake.conns[0].released_cnt < cnt; i++)
		lpi_fake_rig_turn(&host.rig);
	assert_int_equal(host.rig.fake.conns[0].released_cnt, cnt);
}

/* Returns the status. */
static int read_all(const uint8_t *data)
{
	uint8_t *buf = calloc(1, OBJECT_LEN);
	int status = lpi_fake_rig_ask(&host.rig, lpi_fake_rig_get_of("a/b", buf, OBJECT_LEN));
	if (status == 0)
		assert_memory_equal(buf, data, OBJECT_LEN);
	free(buf);
	return status;
}

/* The first one comes through the socket, and shows that it is worth it. */
static void read_first(const uint8_t *data)
{
	assert_int_equal(read_all(data), 0);
	for (int i = 0; i < 1000 && asked() == 0; i++)
		lpi_fake_rig_turn(&host.rig);
	assert_int_equal(asked(), 1);
	lpi_fake_rig_turns(&host.rig, 10);
	assert_int_equal(host.shared_ever, 0);
}

static void test_into_a_buffer(void **state)
{
	(void)state;
	uint8_t *data = setup(FAULT_NONE, 0);
	read_first(data);
	for (int i = 0; i < 5; i++)
		assert_int_equal(read_all(data), 0);
	assert_int_equal(asked(), 1);
	assert_int_equal(host.rig.fake.conns_ever, 1);
	assert_int_equal(host.shared_cnt, 3 * 5);
	wait_released(host.shared_cnt);
	teardown(data);
}

struct sunk {
	const uint8_t *data;
	uint64_t at;
	uint64_t until;
};

static int sink(void *arg, uint64_t offset, const void *bytes, size_t len)
{
	struct sunk *sunk = arg;
	assert_int_equal(offset, sunk->at);
	assert_memory_equal(bytes, sunk->data + offset, len);
	sunk->at += len;
	return sunk->at > sunk->until ? -EINTR : 0;
}

static void test_into_a_sink(void **state)
{
	(void)state;
	uint8_t *data = setup(FAULT_NONE, 0);
	for (int i = 0; i < 3; i++) {
		struct sunk sunk = {.data = data, .until = i == 1 ? MIB / 2 : OBJECT_LEN};
		struct lapis_request get = {.op = LAPIS_GET,
					    .path = "a/b",
					    .length = LAPIS_TO_END,
					    .sink = sink,
					    .sink_arg = &sunk};
		assert_int_equal(lpi_fake_rig_ask(&host.rig, get), i == 1 ? -EINTR : 0);
		assert_int_equal(sunk.at, i == 1 ? MIB : OBJECT_LEN);
	}
	/* Not the first one; of what nobody wants any more all is released, too. */
	assert_int_equal(asked(), 1);
	assert_int_equal(host.shared_cnt, 2 * 3);
	wait_released(host.shared_cnt);
	teardown(data);
}

static void test_not_for_little(void **state)
{
	(void)state;
	uint8_t buf[65536];
	uint8_t *data = setup(FAULT_NONE, 0);
	assert_int_equal(lpi_fake_rig_ask(&host.rig, lpi_fake_rig_put_of("a/c", data, 5000)), 0);
	for (int i = 0; i < 10; i++) {
		struct lapis_request get = lpi_fake_rig_get_of("a/b", buf, sizeof(buf));
		assert_int_equal(lpi_fake_rig_ask(&host.rig, get), 0);
		struct sunk sunk = {.data = data, .until = OBJECT_LEN};
		struct lapis_request all = {.op = LAPIS_GET,
					    .path = "a/c",
					    .length = LAPIS_TO_END,
					    .sink = sink,
					    .sink_arg = &sunk};
		assert_int_equal(lpi_fake_rig_ask(&host.rig, all), 0);
	}
	assert_int_equal(asked(), 0);
	teardown(data);
}

/* Who has no memory to give is asked once, and gives the data all the same. */
static void test_without(void **state)
{
	(void)state;
	const enum fault faults[] = {FAULT_REFUSED, FAULT_UNKNOWN};
	for (size_t i = 0; i < LP_ARRAY_SIZE(faults); i++) {
		uint8_t *data = setup(faults[i], UINT32_MAX);
		for (int n = 0; n < 3; n++)
			assert_int_equal(read_all(data), 0);
		assert_int_equal(asked(), 1);
		assert_int_equal(host.rig.fake.conns_ever, 1);
		teardown(data);
	}
}

/* What does not match is asked for again, a few times, and nothing else suffers from it. */
static void test_damaged(void **state)
{
	(void)state;
	const uint32_t often[] = {1, 3, UINT32_MAX};
	for (size_t i = 0; i < LP_ARRAY_SIZE(often); i++) {
		struct lpi_fake_ending ping;
		uint8_t *data = setup(FAULT_DAMAGED, often[i]);
		read_first(data);
		lpi_fake_rig_submit(&host.rig, lpi_fake_rig_ping, &ping);
		assert_int_equal(read_all(data), often[i] > 3 ? -EBADMSG : 0);
		assert_int_equal(ping.status, 0);
		assert_int_equal(ping.ended, 1);
		assert_int_equal(host.rig.fake.conns_ever, 1);
		wait_released(host.shared_cnt);
		host.faults_left = 0;
		assert_int_equal(read_all(data), 0);
		teardown(data);
	}
}

/* What came before the end of a connection counts, also if data in shared memory was read too late:
 * the get goes on, on the next one. */
static void test_gone_with_the_connection(void **state)
{
	(void)state;
	struct lpi_fake_ending get;
	struct lpi_fake_ending write;
	uint8_t *data = setup(FAULT_NONE, 0);
	uint8_t *buf = calloc(1, OBJECT_LEN);
	read_first(data);
	lpi_fake_rig_submit(&host.rig, lpi_fake_rig_get_of("a/b", buf, OBJECT_LEN), &get);
	lpi_fake_rig_submit(&host.rig, lpi_fake_rig_put_of("a/c", "x", 1), &write);
	(void)lapis_turn(host.rig.lapis, 0);
	lpi_fake_step(&host.rig.fake, 0); /* both are answered */
	assert_true(host.shared_cnt > 0);
	memset(host.memory, 0, SHARE_BYTES);
	lpi_fake_drop_all(&host.rig.fake);
	drop_memory();
	lpi_fake_rig_wait_for(&host.rig, &get);
	assert_int_equal(write.status, 0);
	assert_int_equal(get.status, 0);
	assert_memory_equal(buf, data, OBJECT_LEN);
	assert_int_equal(host.rig.fake.conns_ever, 2);
	free(buf);
	teardown(data);
}

/* What cannot be mapped is not asked for again. */
static void test_bad_memory(void **state)
{
	(void)state;
	for (enum fault fault = FAULT_NO_FD; fault <= FAULT_NO_BYTES; fault++) {
		uint8_t *data = setup(fault, UINT32_MAX);
		read_first(data);
		for (int i = 0; i < 3; i++)
			assert_int_equal(read_all(data), 0);
		assert_int_equal(host.rig.fake.conns_ever, 2);
		assert_int_equal(asked(), 1);
		assert_int_equal(host.shared_ever, 0);
		teardown(data);
	}
}

/* One that makes no sense, always, is given up; the program goes on. */
static void test_nonsense(void **state)
{
	(void)state;
	for (enum fault fault = FAULT_BEHIND; fault < FAULT_OTHER_FLAG; fault++) {
		uint8_t *data = setup(fault, UINT32_MAX);
		read_first(data);
		int status = -ENOTCONN;
		for (int i = 0; i < 20 && status != 0; i++) {
			/* On a new connection the first get is not shared. */
			status = read_all(data);
			assert_true(status == 0 || status == -ENOTCONN);
		}
		assert_true(host.shared_ever > 0);
		assert_true(host.rig.fake.conns_ever >= 2);
		host.faults_left = 0;
		assert_int_equal(read_all(data), 0);
		teardown(data);
	}
	uint8_t *data = setup(FAULT_OTHER_FLAG, 1);
	assert_int_equal(lpi_fake_rig_ask(&host.rig, lpi_fake_rig_ping), 0);
	assert_int_equal(host.rig.fake.conns_ever, 2);
	teardown(data);
}

/* Nobody waits for it any more: it is not copied, but released. */
static void test_cancelled(void **state)
{
	(void)state;
	uint8_t *data = setup(FAULT_NONE, 0);
	uint8_t *buf = calloc(1, OBJECT_LEN);
	struct lpi_fake_ending ending;
	read_first(data);
	uint64_t before = host.shared_cnt;
	memset(buf, 0xee, OBJECT_LEN);
	lpi_fake_rig_submit(&host.rig, lpi_fake_rig_get_of("a/b", buf, OBJECT_LEN), &ending);
	(void)lapis_turn(host.rig.lapis, 0);
	lapis_cancel(host.rig.lapis, ending.id);
	lpi_fake_rig_wait_for(&host.rig, &ending);
	assert_int_equal(ending.status, -ECANCELED);
	for (int i = 0; i < 1000 && host.shared_cnt == before; i++)
		lpi_fake_rig_turn(&host.rig);
	wait_released(host.shared_cnt);
	assert_true(host.shared_cnt > before);
	for (size_t i = 0; i < OBJECT_LEN; i++)
		assert_int_equal(buf[i], 0xee);
	free(buf);
	teardown(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_into_a_buffer),
		cmocka_unit_test(test_into_a_sink),
		cmocka_unit_test(test_not_for_little),
		cmocka_unit_test(test_without),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_gone_with_the_connection),
		cmocka_unit_test(test_bad_memory),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_cancelled),
	};
	return lp_test_main(tests, "client/shared");
}
