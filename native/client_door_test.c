/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: liblapis and the door understand each other: each operation of the library is done by the
 * real door over a real namespace, on one shard and on several.
 * Method: the door's rig on this thread, functions of the library that wait on another.
 */
#include "native/door_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/un.h>

#include "client/lapis.h"

struct visit {
	struct lapis *lapis;
	void (*play)(struct lapis *lapis);
	atomic_bool has_ended;
};

static void *visit_main(void *arg)
{
	struct visit *visit = arg;
	visit->play(visit->lapis);
	atomic_store(&visit->has_ended, true);
	return NULL;
}

static int listen_at(const char *path)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	(void)snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
	assert_int_equal(listen(fd, 16), 0);
	return fd;
}

static void accept_one(struct lpi_door_rig *rig, int listen_fd)
{
	const struct lp_peer peer = {.is_unix = true, .pid = getpid(), .who = lp_who_user(0, true)};
	int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		lp_test_ok(lp_door_adopt(rig->door[0], fd, &peer, NULL, 0));
}

static uint32_t opens(const struct lpi_door_rig *rig, uint32_t shard_cnt)
{
	struct lp_ns_stats stats;
	uint32_t cnt = 0;
	for (uint32_t i = 0; i < shard_cnt; i++) {
		lp_ns_read_stats(rig->ns[i], &stats);
		cnt += (uint32_t)stats.opens;
	}
	return cnt;
}

static void check_nothing_open(struct lpi_door_rig *rig, uint32_t shard_cnt)
{
	/* What was sent last may not be done yet. */
	for (int i = 0; i < 1000 && opens(rig, shard_cnt) > 0; i++) {
		if (lp_reactor_turn(rig->reactor, false) == 0)
			(void)usleep(20);
	}
	assert_int_equal(opens(rig, shard_cnt), 0);
}

static void play(uint32_t shard_cnt, uint32_t flags, void (*script)(struct lapis *lapis))
{
	char dir[] = "/tmp/lapis-client-door-XXXXXX";
	char address[64];
	pthread_t thread;
	struct visit visit = {.play = script};
	struct lpi_door_rig *rig = lpi_door_rig_new(shard_cnt, 64u << 20, NULL);
	assert_non_null(mkdtemp(dir));
	(void)snprintf(address, sizeof(address), "unix:%s/s", dir);
	int listen_fd = listen_at(address + 5);
	const struct lapis_options options = {
		.size = sizeof(options), .address = address, .flags = flags};
	lp_test_ok(lapis_open(&options, &visit.lapis));
	assert_int_equal(pthread_create(&thread, NULL, visit_main, &visit), 0);
	while (!atomic_load(&visit.has_ended)) {
		accept_one(rig, listen_fd);
		/* The other thread may need this CPU. */
		if (lp_reactor_turn(rig->reactor, false) == 0)
			(void)usleep(20);
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
	/* Before the end of the connection closes it. */
	check_nothing_open(rig, shard_cnt);
	lapis_close(visit.lapis);
	lpi_door_rig_free(rig);
	(void)close(listen_fd);
	assert_int_equal(unlink(address + 5), 0);
	assert_int_equal(rmdir(dir), 0);
}

/* cmocka's asserts do not cross threads: a failed one ends the program, with its place. */
#define MUST(expr)                                                                                 \
	do {                                                                                       \
		long long got_ = (long long)(expr);                                                \
		if (got_ < 0) {                                                                    \
			(void)fprintf(stderr, "%s:%d: %s: %lld %s\n", __FILE__, __LINE__, #expr,   \
				      got_, lapis_error_text());                                   \
			abort();                                                                   \
		}                                                                                  \
	} while (0)
#define MUST_BE(want, expr)                                                                        \
	do {                                                                                       \
		long long got_ = (long long)(expr);                                                \
		if (got_ != (want)) {                                                              \
			(void)fprintf(stderr, "%s:%d: %s: %lld %s\n", __FILE__, __LINE__, #expr,   \
				      got_, lapis_error_text());                                   \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

static uint8_t *pattern(size_t len)
{
	uint8_t *data = malloc(len);
	MUST(data != NULL ? 0 : -1);
	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(i * 13 + (i >> 12));
	return data;
}

static void check_round_trip(struct lapis *lapis, const char *key, size_t len)
{
	uint8_t *data = pattern(len + 1);
	uint8_t *back = malloc(len + 1);
	size_t got = 0;
	struct lapis_attrs attrs;
	MUST(lapis_put(lapis, key, data, len, NULL, &attrs));
	MUST_BE((long long)len, attrs.size_bytes);
	MUST(lapis_get(lapis, key, 0, back, len + 1, &got));
	MUST_BE((long long)len, got);
	MUST_BE(0, memcmp(data, back, len));
	if (len > 5000) {
		MUST(lapis_get(lapis, key, 4001, back, 900, &got));
		MUST_BE(900, got);
		MUST_BE(0, memcmp(data + 4001, back, 900));
	}
	free(back);
	free(data);
}

static void play_objects(struct lapis *lapis)
{
	static const size_t sizes[] = {0,        1,       4095,     4096,           5000,   65536,
				       1u << 20, 1500000, 4u << 20, (4u << 20) + 1, 9000001};
	struct lapis_attrs attrs;
	char key[32];
	for (size_t i = 0; i < LP_ARRAY_SIZE(sizes); i++) {
		(void)snprintf(key, sizeof(key), "b/%02zu", i);
		check_round_trip(lapis, key, sizes[i]);
		check_round_trip(lapis, key, sizes[LP_ARRAY_SIZE(sizes) - 1 - i]);
	}
	const struct lapis_put_options absent = {.size = sizeof(absent),
						 .condition = LAPIS_IF_ABSENT};
	MUST_BE(-EEXIST, lapis_put(lapis, "b/01", "x", 1, &absent, NULL));
	const struct lapis_put_options version = {
		.size = sizeof(version), .condition = LAPIS_IF_VERSION, .version = 999999};
	MUST_BE(-ECANCELED, lapis_put(lapis, "b/01", "x", 1, &version, NULL));
	/* Too large for one message: refused when it is to be committed. */
	uint8_t *large = pattern(5u << 20);
	MUST_BE(-EEXIST, lapis_put(lapis, "b/01", large, 5u << 20, &absent, NULL));
	MUST_BE(-ECANCELED, lapis_put(lapis, "b/01", large, 5u << 20, &version, NULL));
	free(large);
	MUST(lapis_stat(lapis, "b/04", &attrs));
	MUST(lapis_delete(lapis, "b/04"));
	MUST_BE(-ENOENT, lapis_stat(lapis, "b/04", &attrs));
	MUST_BE(-ENOENT, lapis_delete(lapis, "b/none"));
	MUST(lapis_ping(lapis));
	MUST(lapis_sync(lapis));
}

/* Gives this much of what would be an object, and then an error. */
struct broken_source {
	size_t left;
};

static int64_t give_and_fail(void *arg, void *buf, size_t len)
{
	struct broken_source *source = arg;
	size_t n = len < source->left ? len : source->left;
	memset(buf, 'n', n);
	source->left -= n;
	return n > 0 ? (int64_t)n : -ENETDOWN;
}

static int64_t no_hole(void *arg)
{
	(void)arg;
	return 0;
}

static void check_still_old(struct lapis *lapis, const uint8_t *old, size_t len, uint64_t version)
{
	uint8_t *back = malloc(len + 1);
	struct lapis_attrs attrs;
	size_t got = 0;
	MUST(lapis_get(lapis, "b/kept", 0, back, len + 1, &got));
	MUST_BE((long long)len, got);
	MUST_BE(0, memcmp(old, back, len));
	MUST(lapis_stat(lapis, "b/kept", &attrs));
	MUST_BE((long long)version, attrs.version);
	MUST_BE(-ENOENT, lapis_stat(lapis, "b/never", &attrs));
	free(back);
}

/* A put that fails has changed nothing, however much of it the daemon has had. */
static void play_failed_puts(struct lapis *lapis)
{
	static const size_t given[] = {0,        1,       4096,           300000,
				       1u << 20, 4194304, (4u << 20) + 1, 9000001};
	static const char *const keys[] = {"b/kept", "b/never"};
	const size_t len = 70001;
	uint8_t *old = pattern(len);
	struct lapis_attrs attrs;
	MUST(lapis_put(lapis, "b/kept", old, len, NULL, &attrs));
	for (size_t i = 0; i < LP_ARRAY_SIZE(given) * 2; i++) {
		struct broken_source source = {.left = given[i / 2]};
		struct lapis_result result = {.size = sizeof(result)};
		MUST_BE(-ENETDOWN,
			lapis_put_from(lapis, keys[i % 2], give_and_fail, &source, NULL, NULL));
		source.left = given[i / 2];
		const struct lapis_request request = {.size = sizeof(request),
						      .op = LAPIS_PUT,
						      .path = keys[i % 2],
						      .source = give_and_fail,
						      .source_arg = &source,
						      .hole = no_hole};
		MUST_BE(-ENETDOWN, lapis_call(lapis, &request, &result));
		lapis_result_fini(&result);
		check_still_old(lapis, old, len, attrs.version);
	}
	free(old);
}

struct grower {
	int file;
	atomic_bool is_over;
};

static void *grow_main(void *arg)
{
	struct grower *grower = arg;
	while (!atomic_load(&grower->is_over)) {
		MUST_BE(1, pwrite(grower->file, "x", 1, lseek(grower->file, 0, SEEK_END)));
		(void)usleep(100);
	}
	return NULL;
}

/* A file that somebody writes to all the time. Then he stops, and it is put. */
static void play_growing_file(struct lapis *lapis)
{
	char path[] = "/tmp/lapis-grows-XXXXXX";
	const size_t len = 9000001;
	uint8_t *old = pattern(70001);
	struct grower grower = {.file = mkstemp(path)};
	struct lapis_attrs attrs;
	pthread_t thread;
	MUST(unlink(path));
	MUST(ftruncate(grower.file, (off_t)len));
	MUST(lapis_put(lapis, "b/kept", old, 70001, NULL, &attrs));
	char link[64];
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", grower.file);
	int file = open(link, O_RDONLY | O_CLOEXEC);
	MUST(file);
	MUST_BE(0, pthread_create(&thread, NULL, grow_main, &grower));
	MUST_BE(-EBUSY, lapis_put_fd(lapis, "b/kept", file, NULL, NULL));
	MUST_BE(0, strcmp(lapis_error_text(),
			  "the file changed while it was read; nothing was stored"));
	check_still_old(lapis, old, 70001, attrs.version);
	atomic_store(&grower.is_over, true);
	MUST_BE(0, pthread_join(thread, NULL));
	MUST_BE(0, lseek(file, 0, SEEK_SET));
	MUST(lapis_put_fd(lapis, "b/kept", file, NULL, &attrs));
	MUST_BE(1, attrs.size_bytes > len);
	MUST_BE(-EBADF, lapis_put_fd(lapis, "b/kept", -1, NULL, NULL));
	(void)close(file);
	(void)close(grower.file);
	free(old);
}

static void play_lists(struct lapis *lapis)
{
	struct lapis_list *list = NULL;
	struct lapis_item item;
	char key[32];
	int cnt = 0;
	int more;
	MUST(lapis_mkdir(lapis, "many", 0755, LAPIS_SPREAD));
	for (int i = 0; i < 300; i++) {
		(void)snprintf(key, sizeof(key), "many/%04d", i);
		MUST(lapis_put(lapis, key, key, 9, NULL, NULL));
	}
	MUST(lapis_opendir(lapis, "many", LAPIS_ATTRS, &list));
	for (cnt = 0; (more = lapis_list_next(list, &item)) > 0; cnt++)
		MUST_BE(13, item.name_bytes + item.attrs.size_bytes);
	MUST(more);
	MUST_BE(300, cnt);
	lapis_list_close(list);
	struct lapis_pair pair;
	for (int i = 0; i < 50; i++) {
		(void)snprintf(key, sizeof(key), "k%03d", i);
		MUST(lapis_omap_set(lapis, "many/0001", key, key, 4));
	}
	MUST(lapis_pairs_open(lapis, "many/0001", LAPIS_OMAP_LIST, LAPIS_VALUES, &list));
	for (cnt = 0; (more = lapis_pairs_next(list, &pair)) > 0; cnt++)
		MUST_BE(0, memcmp(pair.name, pair.value, 4));
	MUST(more);
	MUST_BE(50, cnt);
	lapis_list_close(list);
	char value[8];
	MUST_BE(4, lapis_omap_get(lapis, "many/0001", "k007", value, sizeof(value)));
	MUST(lapis_omap_remove(lapis, "many/0001", "k007"));
	MUST_BE(-ENODATA, lapis_omap_get(lapis, "many/0001", "k007", value, sizeof(value)));
	MUST(lapis_xattr_set(lapis, "many/0001", "user.a", "v", 1));
	MUST_BE(1, lapis_xattr_get(lapis, "many/0001", "user.a", value, sizeof(value)));
	MUST(lapis_xattr_remove(lapis, "many/0001", "user.a"));
}

/* All or nothing; and which it was that did not hold, with what the door says of it. */
static void play_compound(struct lapis *lapis)
{
	struct lapis_change changes[] = {
		{.kind = LAPIS_GUARD_NO_XATTR, .name = "user.a", .name_bytes = 6},
		{.kind = LAPIS_GUARD_XATTR, .name = "user.none", .name_bytes = 9},
		{.kind = LAPIS_CHANGE_WRITE, .length = 5},
		{.kind = LAPIS_CHANGE_XATTR_SET,
		 .name = "user.a",
		 .name_bytes = 6,
		 .value = "v",
		 .value_bytes = 1},
	};
	struct lapis_request request = {.size = sizeof(request),
					.op = LAPIS_COMPOUND,
					.path = "c/k",
					.data = "HELLO",
					.data_bytes = 5,
					.changes = changes,
					.change_cnt = LP_ARRAY_SIZE(changes)};
	struct lapis_result result = {.size = sizeof(result)};
	char back[5];
	size_t got = 0;
	MUST(lapis_put(lapis, "c/k", "hello", 5, NULL, NULL));
	MUST_BE(-ENODATA, lapis_call(lapis, &request, &result));
	MUST_BE(1, result.failed_idx);
	lapis_result_fini(&result);
	MUST(lapis_get(lapis, "c/k", 0, back, sizeof(back), &got));
	MUST_BE(0, memcmp(back, "hello", 5));
	request.changes = changes + 2;
	request.change_cnt = 2;
	MUST(lapis_call(lapis, &request, &result));
	lapis_result_fini(&result);
	MUST(lapis_get(lapis, "c/k", 0, back, sizeof(back), &got));
	MUST_BE(0, memcmp(back, "HELLO", 5));
	request.changes = changes;
	request.change_cnt = LP_ARRAY_SIZE(changes);
	MUST_BE(-EEXIST, lapis_call(lapis, &request, &result));
	MUST_BE(0, result.failed_idx);
	lapis_result_fini(&result);
	changes[1].kind = LAPIS_CHANGE_PUNCH;
	changes[2].kind = LAPIS_GUARD_VERSION;
	MUST_BE(-EINVAL, lapis_call(lapis, &request, &result));
	MUST(strstr(lapis_error_text(), "guards come first") != NULL ? 0 : -1);
	lapis_result_fini(&result);
}

/* Of d/f, which is there. */
static void check_names(struct lapis *lapis)
{
	char target[16];
	MUST(lapis_link(lapis, "d/f", "d/g"));
	MUST(lapis_rename(lapis, "d/g", "d/h", LAPIS_RENAME_NOREPLACE));
	MUST(lapis_unlink(lapis, "d/h"));
	MUST(lapis_symlink(lapis, "f", "d/s"));
	MUST(lapis_readlink(lapis, "d/s", target, sizeof(target)));
	MUST_BE(0, strcmp(target, "f"));
	MUST(lapis_unlink(lapis, "d/s"));
}

/* Of a file of 6 MiB. */
static void check_space(struct lapis_file *file)
{
	struct lapis_attrs attrs;
	uint64_t offset = 0;
	MUST(lapis_append(file, "end", 3, &offset));
	MUST_BE(6 << 20, offset);
	MUST(lapis_punch(file, 1u << 20, 1u << 20));
	MUST(lapis_seek(file, 0, LAPIS_HOLE, &offset));
	MUST_BE(1 << 20, offset);
	MUST(lapis_seek(file, offset, 0, &offset));
	MUST_BE(2 << 20, offset);
	MUST(lapis_truncate(file, 5000));
	MUST(lapis_fstat(file, &attrs));
	MUST_BE(5000, attrs.size_bytes);
	MUST(lapis_prealloc(file, 0, 40u << 20));
}

static void play_files(struct lapis *lapis)
{
	struct lapis_file *file = NULL;
	struct lapis_file *other = NULL;
	struct lapis_attrs attrs;
	uint8_t *data = pattern(6u << 20);
	uint8_t *back = malloc(6u << 20);
	MUST(lapis_mkdir(lapis, "d", 0755, 0));
	MUST(lapis_create_file(lapis, "d/f", 0600, &file));
	MUST(lapis_pwrite(file, data, 6u << 20, 0, 0));
	MUST(lapis_pwrite(file, data, 10000, 777, LAPIS_ORDERED));
	MUST_BE(10000, lapis_pread(file, back, 10000, 777));
	MUST_BE(0, memcmp(data, back, 10000));
	MUST_BE(6 << 20, lapis_pread(file, back, 6u << 20, 0));
	check_space(file);
	check_names(lapis);
	/* Only what the mask names is sent. */
	attrs = (struct lapis_attrs){.mode = 0640, .flags = UINT32_MAX, .uid = 77};
	MUST(lapis_set(lapis, "d/f", &attrs, LAPIS_SET_MODE, &attrs));
	MUST_BE(0640, attrs.mode);
	/* It lives on without a name, until it is closed. */
	MUST(lapis_unlink(lapis, "d/f"));
	MUST_BE(100, lapis_pread(file, back, 100, 0));
	MUST(lapis_open_file(lapis, "d/f", &other) == -ENOENT ? 0 : -1);
	MUST(lapis_close_file(file));
	MUST(lapis_rmdir(lapis, "d"));
	free(back);
	free(data);
}

static void note_status(void *arg, const struct lapis_result *result)
{
	atomic_store((atomic_int *)arg, result->status == 0 ? 1 : result->status);
}

/* A put that is given up at any moment: whatever of it is under way then, nothing stays open. */
static void play_given_up(struct lapis *lapis)
{
	const size_t bytes = 12u << 20;
	const struct lapis_put_options absent = {.size = sizeof(absent),
						 .condition = LAPIS_IF_ABSENT};
	uint8_t *data = pattern(bytes);
	MUST(lapis_put(lapis, "g/there", "x", 1, NULL, NULL));
	for (useconds_t i = 0; i < 60; i++) {
		atomic_int status = 0;
		uint64_t id = 0;
		const struct lapis_request request = {.size = sizeof(request),
						      .op = LAPIS_PUT,
						      .path = "g/there",
						      .data = data,
						      .data_bytes = bytes,
						      .condition = absent.condition,
						      .done = note_status,
						      .arg = &status};
		MUST(lapis_submit(lapis, &request, &id));
		(void)usleep(i * 500);
		lapis_cancel(lapis, id);
		while (atomic_load(&status) == 0)
			(void)usleep(20);
		MUST(atomic_load(&status) < 0 ? 0 : -1);
	}
	free(data);
}

static void test_given_up(void **state)
{
	(void)state;
	play(1, LAPIS_THREAD, play_given_up);
	play(4, LAPIS_THREAD, play_given_up);
}

static void test_one_shard(void **state)
{
	(void)state;
	play(1, 0, play_objects);
	play(1, 0, play_failed_puts);
	play(1, 0, play_growing_file);
	play(1, LAPIS_THREAD, play_lists);
	play(1, 0, play_compound);
	play(1, 0, play_files);
}

static void test_four_shards(void **state)
{
	(void)state;
	play(4, LAPIS_THREAD, play_objects);
	play(4, LAPIS_THREAD, play_failed_puts);
	play(4, LAPIS_THREAD, play_growing_file);
	play(4, 0, play_lists);
	play(4, 0, play_compound);
	play(4, 0, play_files);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_shard),
		cmocka_unit_test(test_four_shards),
		cmocka_unit_test(test_given_up),
	};
	return lp_test_main(tests, "native/client_door");
}
