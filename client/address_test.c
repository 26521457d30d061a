/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a host of several addresses is reached wherever a daemon listens. Method: the scripted
 * daemon on TCP, and a getaddrinfo() of the test's own, put in place by the linker.
 */
#include <netdb.h>
#include <netinet/in.h>

#include "base/clock.h"
#include "client/fake_test.h"

#define ADDRESSES_MAX 12

/* What the host has, in this order. */
static struct sockaddr_in addresses[ADDRESSES_MAX];
static struct addrinfo found[ADDRESSES_MAX];
static int address_cnt;

/* The linker's names. NOLINTBEGIN(bugprone-reserved-identifier) */
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
		       struct addrinfo **ret_found);
void __wrap_freeaddrinfo(struct addrinfo *first);

int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
		       struct addrinfo **ret_found)
{
	assert_string_equal(node, "several");
	assert_string_equal(service, "1");
	assert_int_equal(hints->ai_socktype, SOCK_STREAM);
	for (int i = 0; i < address_cnt; i++)
		found[i] = (struct addrinfo){.ai_family = AF_INET,
					     .ai_addr = (struct sockaddr *)&addresses[i],
					     .ai_addrlen = sizeof(addresses[i]),
					     .ai_next = i + 1 < address_cnt ? &found[i + 1] : NULL};
	*ret_found = found;
	return 0;
}

void __wrap_freeaddrinfo(struct addrinfo *first)
{
	assert_ptr_equal(first, found);
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* One more address of the host, where nothing listens yet. */
static int add_address(void)
{
	struct sockaddr_in *in = &addresses[address_cnt++];
	socklen_t len = sizeof(*in);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	*in = (struct sockaddr_in){.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	assert_int_equal(bind(fd, (struct sockaddr *)in, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)in, &len), 0);
	return fd;
}

/* The daemon listens there. */
static void listen_at(struct lpi_fake *fake, int fd)
{
	(void)close(fake->listen_fd);
	assert_int_equal(listen(fd, 16), 0);
	fake->listen_fd = fd;
}

static void open_several(struct lpi_fake_rig *rig)
{
	struct lapis_options options = lpi_fake_rig_options(rig);
	options.address = "tcp:several:1";
	options.connect_ms = 100;
	lp_test_ok(lapis_open(&options, &rig->lapis));
}

static void test_second_address(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	lpi_fake_init(&rig.fake);
	address_cnt = 0;
	int first = add_address();
	listen_at(&rig.fake, add_address());
	open_several(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	/* It was there: so it is tried first. */
	assert_int_equal(listen(first, 16), 0);
	lpi_fake_drop_all(&rig.fake);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	assert_int_equal(rig.fake.conns_ever, 2);
	/* It has moved: the others are tried behind it, from the beginning. */
	lpi_fake_drop_all(&rig.fake);
	listen_at(&rig.fake, first);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	assert_int_equal(rig.fake.conns_ever, 3);
	lpi_fake_rig_fini(&rig);
}

/* One that does not answer at all has its time, and is not all there is. */
static void test_silent_address(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	lpi_fake_init(&rig.fake);
	address_cnt = 0;
	int first = add_address();
	int filler = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(filler >= 0);
	/* There is room for one that nobody accepts; the kernel lets others wait. */
	assert_int_equal(listen(first, 0), 0);
	assert_int_equal(connect(filler, (struct sockaddr *)&addresses[0], sizeof(addresses[0])),
			 0);
	listen_at(&rig.fake, add_address());
	open_several(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	assert_int_equal(rig.fake.conns_ever, 1);
	(void)close(filler);
	(void)close(first);
	lpi_fake_rig_fini(&rig);
}

/* Each is tried once, and no more of them than there is room for. */
static void test_no_address(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	int fds[ADDRESSES_MAX];
	lpi_fake_init(&rig.fake);
	address_cnt = 0;
	for (int i = 0; i < ADDRESSES_MAX; i++)
		fds[i] = add_address();
	open_several(&rig);
	lp_test_err(-ENOTCONN, lapis_ping(rig.lapis));
	assert_non_null(strstr(lapis_error_text(), "is lapisd running there?"));
	for (int i = 0; i < ADDRESSES_MAX; i++)
		(void)close(fds[i]);
	lpi_fake_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_second_address),
		cmocka_unit_test(test_silent_address),
		cmocka_unit_test(test_no_address),
	};
	return lp_test_main(tests, "client/address");
}
