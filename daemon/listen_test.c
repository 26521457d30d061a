/* SPDX-License-Identifier: Apache-2.0 */
/* Goal (promise P8): addresses of other machines are refused; a socket has its mode; the socket of
 * a dead daemon is replaced, but not that of a living one, and no other file; the lists decide
 * which users may connect; a closed listener leaves no files behind. Method: tables of addresses;
 * sockets in a directory of the test's own. */
#include "base/testing/test.h"

#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/listen.h"

static void test_addresses(void **state)
{
	(void)state;
	static const char *const good[] = {"unix:/run/x", "tcp:127.0.0.1:1", "tcp:127.1.2.3:65535",
					   "tcp:[::1]:7", "tcp:localhost:0"};
	static const char *const bad[] = {"",
					  "unix:",
					  "/run/x",
					  "tcp:127.0.0.1",
					  "tcp:127.0.0.1:65536",
					  "tcp:0.0.0.0:7",
					  "tcp:192.168.0.1:7",
					  "tcp:[::]:7",
					  "tcp:[::1:7",
					  "tcp:example.org:7",
					  "tcp:127.0.0.1:x"};
	struct lp_address address;
	char why[LP_WHY_MAX];
	char longest[256] = "unix:";
	for (size_t i = 0; i < LP_ARRAY_SIZE(good); i++)
		lp_test_ok(lp_address_parse(good[i], &address, why));
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++)
		lp_test_err(-EINVAL, lp_address_parse(bad[i], &address, why));
	memset(longest + 5, 'x', 108);
	lp_test_err(-EINVAL, lp_address_parse(longest, &address, why));
	longest[5 + 107] = '\0';
	lp_test_ok(lp_address_parse(longest, &address, why));
}

static void test_access(void **state)
{
	(void)state;
	static const uint32_t groups[] = {50, 60};
	const struct lp_access all = {.uid_cnt = 0};
	const struct lp_access some = {.uids = {7}, .uid_cnt = 1, .gids = {60, 61}, .gid_cnt = 2};
	uint32_t other = geteuid() + 100;
	assert_true(lp_access_allows(&all, other, groups, 1));
	assert_true(lp_access_allows(&some, 0, groups, 1));
	assert_true(lp_access_allows(&some, geteuid(), groups, 1));
	assert_true(lp_access_allows(&some, 7, NULL, 0));
	assert_true(lp_access_allows(&some, other, groups, 2));
	assert_false(lp_access_allows(&some, other, groups, 1));
}

static void test_access_of_others(void **state)
{
	static const struct {
		struct lp_access access;
		mode_t mode;
		uid_t uid;
		gid_t gid;
		bool is_for_others;
	} cases[] = {
		{{.uid_cnt = 0}, 0660, 0, 0, false},
		{{.uid_cnt = 0}, 0666, 0, 0, true},
		{{.uid_cnt = 0}, 0660, 0, 5, true},
		{{.uid_cnt = 0}, 0600, 0, 5, false},
		{{.uid_cnt = 0}, 0600, 5, 0, true},
		{{.uids = {0}, .uid_cnt = 1}, 0666, 0, 0, false},
		{{.uids = {0, 1000}, .uid_cnt = 2}, 0660, 0, 0, true},
		{{.gids = {100}, .gid_cnt = 1}, 0660, 0, 0, true},
	};
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++)
		assert_int_equal(lp_access_is_for_others(&cases[i].access, cases[i].mode,
							 cases[i].uid, cases[i].gid),
				 cases[i].is_for_others);
}

/* A directory of the test's own, and a listener's options for a socket in one below it. */
struct rig {
	char dir[32];
	char path[64];
	struct lp_listener_options options;
};

static void rig_start(struct rig *rig)
{
	char text[80];
	char why[LP_WHY_MAX];
	*rig = (struct rig){.dir = "listen_test.XXXXXX"};
	assert_non_null(mkdtemp(rig->dir));
	(void)snprintf(rig->path, sizeof(rig->path), "%s/run/s", rig->dir);
	(void)snprintf(text, sizeof(text), "unix:%s", rig->path);
	lp_test_ok(lp_address_parse(text, &rig->options.address, why));
	rig->options.mode = 0600;
	rig->options.uid = (uid_t)-1;
	rig->options.gid = (gid_t)-1;
}

/* Only the directories are left. */
static void rig_stop(struct rig *rig)
{
	char run[64];
	(void)snprintf(run, sizeof(run), "%s/run", rig->dir);
	assert_int_equal(0, rmdir(run));
	assert_int_equal(0, rmdir(rig->dir));
}

static void test_socket(void **state)
{
	(void)state;
	struct rig rig;
	struct lp_listener *listener = NULL;
	struct lp_listener *second = NULL;
	struct stat made;
	char why[LP_WHY_MAX] = "";
	rig_start(&rig);
	lp_test_ok(lp_listener_open(&rig.options, &listener, why));
	assert_int_equal(0, stat(rig.path, &made));
	assert_true(S_ISSOCK(made.st_mode));
	assert_int_equal(0600, made.st_mode & 07777);
	lp_test_err(-EADDRINUSE, lp_listener_open(&rig.options, &second, why));
	assert_null(second);
	assert_non_null(strstr(why, "another daemon listens there"));
	/* The refused listener has removed nothing. */
	assert_int_equal(0, stat(rig.path, &made));
	lp_listener_close(listener);
	rig_stop(&rig);
}

static int bind_there(const struct rig *rig)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(0, bind(fd, &rig->options.address.any, rig->options.address.len));
	return fd;
}

static void *close_later(void *arg)
{
	(void)usleep(100000);
	assert_int_equal(0, close(*(int *)arg));
	return NULL;
}

static void test_stale(void **state)
{
	(void)state;
	struct rig rig;
	struct lp_listener *listener = NULL;
	char why[LP_WHY_MAX] = "";
	rig_start(&rig);
	lp_test_ok(lp_listener_open(&rig.options, &listener, why));
	lp_listener_close(listener);
	/* A socket whose owner has ended. */
	assert_int_equal(0, close(bind_there(&rig)));
	lp_test_ok(lp_listener_open(&rig.options, &listener, why));
	lp_listener_close(listener);
	/* A socket of a process that does not use the lock. */
	int fd = bind_there(&rig);
	assert_int_equal(0, listen(fd, 1));
	lp_test_err(-EADDRINUSE, lp_listener_open(&rig.options, &listener, why));
	assert_non_null(strstr(why, "another program listens there"));
	/* A killed daemon: its io_uring frees the socket only some time later. */
	pthread_t closer;
	assert_int_equal(0, pthread_create(&closer, NULL, close_later, &fd));
	lp_test_ok(lp_listener_open(&rig.options, &listener, why));
	assert_int_equal(0, pthread_join(closer, NULL));
	lp_listener_close(listener);
	/* A file of another kind stays where it is. */
	FILE *file = fopen(rig.path, "w");
	assert_non_null(file);
	assert_int_equal(0, fclose(file));
	lp_test_err(-EEXIST, lp_listener_open(&rig.options, &listener, why));
	assert_int_equal(0, unlink(rig.path));
	rig_stop(&rig);
}

static void test_tcp(void **state)
{
	(void)state;
	struct lp_listener_options options = {.uid = (uid_t)-1, .gid = (gid_t)-1};
	struct lp_listener *listener = NULL;
	struct lp_listener *second = NULL;
	char why[LP_WHY_MAX] = "";
	lp_test_ok(lp_address_parse("tcp:127.0.0.1:0", &options.address, why));
	lp_test_ok(lp_listener_open(&options, &listener, why));
	assert_string_not_equal("tcp:127.0.0.1:0", lp_listener_name(listener));
	lp_test_ok(lp_address_parse(lp_listener_name(listener), &options.address, why));
	lp_test_err(-EADDRINUSE, lp_listener_open(&options, &second, why));
	assert_non_null(strstr(why, "in use"));
	lp_listener_close(listener);
}

/* Options of a connection's socket once it is accepted. */
struct accepted {
	bool has_come;
	int nodelay;
	int send_bytes;
	int receive_bytes;
};

static int option_of(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);
	assert_int_equal(0, getsockopt(fd, level, name, &value, &len));
	return value;
}

static void note_accepted(void *arg, int fd, const struct lp_peer *peer)
{
	struct accepted *accepted = arg;
	accepted->has_come = true;
	if (!peer->is_unix)
		accepted->nodelay = option_of(fd, IPPROTO_TCP, TCP_NODELAY);
	accepted->send_bytes = option_of(fd, SOL_SOCKET, SO_SNDBUF);
	accepted->receive_bytes = option_of(fd, SOL_SOCKET, SO_RCVBUF);
	assert_int_equal(0, close(fd));
}

/* Listens with these options on a reactor, and takes one connection. */
static struct accepted accept_one(const struct lp_listener_options *options)
{
	const struct lp_reactor_options reactor_options = {.name = "listen", .ring = true};
	struct lp_reactor *reactor = NULL;
	struct lp_listener *listener = NULL;
	struct lp_address address;
	struct accepted accepted = {0};
	char why[LP_WHY_MAX] = "";
	lp_test_ok(lp_reactor_new(&reactor_options, &reactor));
	lp_test_ok(lp_reactor_start(reactor));
	lp_test_ok(lp_listener_open(options, &listener, why));
	lp_test_ok(lp_listener_start(listener, reactor, note_accepted, &accepted));
	lp_test_ok(lp_address_parse(lp_listener_name(listener), &address, why));
	int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(0, connect(fd, &address.any, address.len));
	while (!accepted.has_come)
		(void)lp_reactor_turn(reactor, true);
	lp_listener_stop(listener);
	while (!lp_listener_is_idle(listener))
		(void)lp_reactor_turn(reactor, true);
	assert_int_equal(0, close(fd));
	lp_listener_close(listener);
	lp_reactor_stop(reactor);
	lp_reactor_free(reactor);
	return accepted;
}

/* tcp-nodelay and socket-buffer. The kernel doubles a size, for its own data beside the bytes. */
static void test_sockets(void **state)
{
	(void)state;
	enum { BYTES = 65536 };
	struct lp_listener_options options = {.uid = (uid_t)-1, .gid = (gid_t)-1};
	struct rig rig;
	char why[LP_WHY_MAX] = "";
	lp_test_ok(lp_address_parse("tcp:127.0.0.1:0", &options.address, why));
	struct accepted accepted = accept_one(&options);
	assert_int_equal(1, accepted.nodelay);
	assert_int_not_equal(2 * BYTES, accepted.send_bytes);
	options.waits_for_acks = true;
	options.buffer_bytes = BYTES;
	accepted = accept_one(&options);
	assert_int_equal(0, accepted.nodelay);
	assert_int_equal(2 * BYTES, accepted.send_bytes);
	assert_int_equal(2 * BYTES, accepted.receive_bytes);
	rig_start(&rig);
	rig.options.buffer_bytes = BYTES;
	accepted = accept_one(&rig.options);
	assert_int_equal(2 * BYTES, accepted.send_bytes);
	assert_int_equal(2 * BYTES, accepted.receive_bytes);
	rig_stop(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_access),
		cmocka_unit_test(test_access_of_others),
		cmocka_unit_test(test_socket),
		cmocka_unit_test(test_stale),
		cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_sockets),
	};
	return lp_test_main(tests, "daemon/listen");
}
