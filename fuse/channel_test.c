/* SPDX-License-Identifier: Apache-2.0 */
/* A channel with one end of a socketpair in place of /dev/fuse, which keeps messages apart as that
 * does; the test is the kernel at the other end. The store is in memory. What is asked must be
 * answered once, whatever else comes: messages that are too short, too long or unknown. */
#include "fuse/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/prng.h"
#include "base/test.h"
#include "fuse/request.h"

#define MESSAGE_MAX (256u << 10)
#define TURNS_NS    (30 * LP_NS_PER_S)

struct rig {
	struct lp_reactor *reactor;
	struct lp_bufs *bufs;
	struct lp_store *store;
	struct lp_ns *ns;
	struct lp_fuse_channel *channel;
	int fd; /* the kernel's end */
	uint32_t ready_cnt;
	uint32_t stopped_cnt;
	uint32_t gone_cnt;
	uint64_t unique;
	uint8_t out[MESSAGE_MAX];
	uint32_t out_len;
	uint8_t in[MESSAGE_MAX];
	uint32_t in_len;
};

#define UNTIL(rig, cond)                                                                           \
	do {                                                                                       \
		uint64_t until_ns_ = lp_clock_mono_ns(lp_clock_system()) + TURNS_NS;               \
		while (!(cond)) {                                                                  \
			assert_true(lp_clock_mono_ns(lp_clock_system()) < until_ns_);              \
			(void)lp_reactor_turn((rig)->reactor, false);                              \
		}                                                                                  \
	} while (0)

static void ready(struct lp_ns *ns, int result, void *arg)
{
	struct rig *rig = arg;
	(void)ns;
	lp_test_ok(result);
	rig->ready_cnt++;
}

static void stopped(void *arg)
{
	((struct rig *)arg)->stopped_cnt++;
}

static void ns_stopped(struct lp_ns *ns, void *arg)
{
	(void)ns;
	stopped(arg);
}

static void gone(void *arg)
{
	((struct rig *)arg)->gone_cnt++;
}

static struct rig *rig_new(uint32_t requests_max)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	assert_non_null(rig);
	const struct lp_reactor_options reactor = {.name = "test", .ring = true};
	lp_test_ok(lp_reactor_new(&reactor, &rig->reactor));
	lp_test_ok(lp_reactor_start(rig->reactor));
	lp_test_ok(lp_bufs_new(UINT64_C(16) << 20, &rig->bufs));
	const struct lp_store_options store = {.reactor = rig->reactor, .bufs = rig->bufs};
	lp_test_ok(lp_store_open_mem(&store, &rig->store));
	const struct lp_ns_options ns = {.reactor = rig->reactor,
					 .store = rig->store,
					 .bufs = rig->bufs,
					 .shard_cnt = 1,
					 .ops_max = 64};
	lp_test_ok(lp_ns_open(&ns, &rig->ns));
	lp_ns_start(rig->ns, &rig->ns, ready, rig);
	UNTIL(rig, rig->ready_cnt == 1);
	const struct lp_fuse_channel_options options = {
		.reactor = rig->reactor,
		.bufs = rig->bufs,
		.ns = rig->ns,
		.stores = {rig->store},
		.store_cnt = 1,
		.requests_max = requests_max,
		.behaviour = {.squash_uid = UINT32_MAX, .squash_gid = UINT32_MAX},
		.gone = gone,
		.arg = rig};
	lp_test_ok(lp_fuse_channel_new(&options, &rig->channel));
	int fds[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
	int bytes = 4 * MESSAGE_MAX;
	for (int i = 0; i < 2; i++)
		assert_int_equal(setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)),
				 0);
	rig->fd = fds[1];
	lp_fuse_channel_start(rig->channel, fds[0], &rig->channel, 1);
	return rig;
}

static void rig_free(struct rig *rig)
{
	lp_fuse_channel_stop(rig->channel, stopped, rig);
	UNTIL(rig, rig->stopped_cnt == 1);
	lp_fuse_channel_free(rig->channel);
	lp_ns_stop(rig->ns, ns_stopped, rig);
	UNTIL(rig, rig->stopped_cnt == 2);
	lp_ns_close(rig->ns);
	lp_test_ok(lp_store_close(rig->store, false));
	lp_bufs_free(rig->bufs);
	lp_reactor_free(rig->reactor);
	if (rig->fd >= 0)
		assert_int_equal(close(rig->fd), 0);
	free(rig);
}

/* --- The kernel's side ------------------------------------------------------------------------ */

static void begin(struct rig *rig, uint32_t opcode, uint64_t nodeid)
{
	const struct fuse_in_header header = {
		.opcode = opcode, .unique = ++rig->unique, .nodeid = nodeid};
	memcpy(rig->out, &header, sizeof(header));
	rig->out_len = sizeof(header);
}

static void add(struct rig *rig, const void *bytes, size_t len)
{
	assert_true(rig->out_len + len <= MESSAGE_MAX);
	if (len > 0)
		memcpy(rig->out + rig->out_len, bytes, len);
	rig->out_len += (uint32_t)len;
}

static void send_message(struct rig *rig)
{
	memcpy(rig->out, &rig->out_len, sizeof(rig->out_len));
	assert_int_equal(send(rig->fd, rig->out, rig->out_len, 0), rig->out_len);
}

static bool has_come(struct rig *rig)
{
	ssize_t len = recv(rig->fd, rig->in, sizeof(rig->in), 0);
	rig->in_len = len < 0 ? 0 : (uint32_t)len;
	return len > 0;
}

/* The next answer; returns its error. */
static int answer(struct rig *rig, uint64_t *ret_unique)
{
	struct fuse_out_header header;
	UNTIL(rig, has_come(rig));
	assert_true(rig->in_len >= sizeof(header));
	memcpy(&header, rig->in, sizeof(header));
	assert_int_equal(header.len, rig->in_len);
	*ret_unique = header.unique;
	return header.error;
}

static int ask(struct rig *rig)
{
	uint64_t unique = 0;
	send_message(rig);
	int err = answer(rig, &unique);
	assert_int_equal(unique, rig->unique);
	return err;
}

static const void *answered(const struct rig *rig, size_t len)
{
	assert_true(rig->in_len >= sizeof(struct fuse_out_header) + len);
	return rig->in + sizeof(struct fuse_out_header);
}

static uint64_t make_dir(struct rig *rig, uint64_t dir, const char *name)
{
	const struct fuse_mkdir_in in = {.mode = 0755};
	struct fuse_entry_out out;
	begin(rig, FUSE_MKDIR, dir);
	add(rig, &in, sizeof(in));
	add(rig, name, strlen(name) + 1);
	assert_int_equal(ask(rig), 0);
	memcpy(&out, answered(rig, sizeof(out)), sizeof(out));
	return out.nodeid;
}

static uint64_t create(struct rig *rig, uint64_t dir, const char *name)
{
	const struct fuse_create_in in = {
		.flags = O_RDWR | O_CREAT | O_EXCL, .mode = S_IFREG | 0666, .umask = 022};
	struct fuse_entry_out out;
	begin(rig, FUSE_CREATE, dir);
	add(rig, &in, sizeof(in));
	add(rig, name, strlen(name) + 1);
	assert_int_equal(ask(rig), 0);
	memcpy(&out, answered(rig, sizeof(out) + sizeof(struct fuse_open_out)), sizeof(out));
	assert_int_equal(out.attr.mode, S_IFREG | 0644);
	return out.nodeid;
}

static int write_at(struct rig *rig, uint64_t node, uint64_t offset, const void *bytes,
		    uint32_t len)
{
	const struct fuse_write_in in = {.offset = offset, .size = len};
	begin(rig, FUSE_WRITE, node);
	add(rig, &in, sizeof(in));
	add(rig, bytes, len);
	return ask(rig);
}

static void release(struct rig *rig, uint64_t node)
{
	const struct fuse_release_in in = {.fh = 0};
	begin(rig, FUSE_RELEASE, node);
	add(rig, &in, sizeof(in));
	assert_int_equal(ask(rig), 0);
}

/* --- Tests ------------------------------------------------------------------------------------ */

/* Data of all lengths at which another buffer begins, on and off the grid, comes back as it was:
 * its checksums are verified by the store on the way (rule W2: through the mount they begin here).
 */
static void test_data(void **state)
{
	static const uint32_t lengths[] = {1, 4095, 4096, 4097, 69632, 69633, 200000};
	static const uint64_t offsets[] = {0, 1, 4095, 12288, 1000001};
	struct rig *rig = rig_new(0);
	struct lp_prng prng;
	uint8_t *bytes = malloc(200000);
	(void)state;
	assert_non_null(bytes);
	lp_prng_init(&prng, 7);
	lp_prng_fill(&prng, bytes, 200000);
	uint64_t node = create(rig, 1, "file");
	for (size_t l = 0; l < LP_ARRAY_SIZE(lengths); l++) {
		for (size_t o = 0; o < LP_ARRAY_SIZE(offsets); o++) {
			const struct fuse_read_in in = {.offset = offsets[o], .size = lengths[l]};
			assert_int_equal(write_at(rig, node, offsets[o], bytes, lengths[l]), 0);
			begin(rig, FUSE_READ, node);
			add(rig, &in, sizeof(in));
			assert_int_equal(ask(rig), 0);
			assert_memory_equal(answered(rig, lengths[l]), bytes, lengths[l]);
			assert_int_equal(rig->in_len, sizeof(struct fuse_out_header) + lengths[l]);
		}
	}
	release(rig, node);
	free(bytes);
	rig_free(rig);
}

static void test_names(void **state)
{
	struct rig *rig = rig_new(0);
	const struct fuse_read_in in = {.size = 4096};
	(void)state;
	uint64_t dir = make_dir(rig, 1, "dir");
	release(rig, create(rig, dir, "a"));
	release(rig, create(rig, dir, "b"));
	begin(rig, FUSE_LOOKUP, dir);
	add(rig, "a", 2);
	assert_int_equal(ask(rig), 0);
	begin(rig, FUSE_LOOKUP, dir);
	add(rig, "c", 2);
	assert_int_equal(ask(rig), -ENOENT);
	begin(rig, FUSE_READDIR, dir);
	add(rig, &in, sizeof(in));
	assert_int_equal(ask(rig), 0);
	/* ".", "..", "a", "b": 32 bytes each. */
	assert_int_equal(rig->in_len, sizeof(struct fuse_out_header) + UINT64_C(4) * 32);
	struct fuse_dirent last;
	memcpy(&last, rig->in + sizeof(struct fuse_out_header) + 32, sizeof(last));
	assert_int_equal(last.ino, 1);
	begin(rig, FUSE_RMDIR, 1);
	add(rig, "dir", 4);
	assert_int_equal(ask(rig), -ENOTEMPTY);
	begin(rig, FUSE_STATFS, 1);
	assert_int_equal(ask(rig), 0);
	rig_free(rig);
}

#define FILES 200u

/* What was told of a directory, in that order. */
struct told {
	uint32_t cnt;
	struct {
		uint64_t offset;
		uint32_t nr; /* of a file; FILES: something else */
	} entries[8 * FILES];
};

static void take_entry(struct told *told, const struct fuse_dirent *entry, const char *name)
{
	uint32_t nr = FILES;
	assert_true(told->cnt < LP_ARRAY_SIZE(told->entries));
	if (entry->namelen == 4 && name[0] == 'f')
		nr = (uint32_t)(name[1] - '0') * 100 + (uint32_t)(name[2] - '0') * 10 +
		     (uint32_t)(name[3] - '0');
	told->entries[told->cnt].offset = entry->off;
	told->entries[told->cnt++].nr = nr;
}

/* One answer; returns its error. An end is an answer that adds nothing. */
static int read_dir(struct rig *rig, uint64_t dir, uint64_t fh, uint64_t offset, bool is_plus,
		    struct told *told)
{
	const struct fuse_read_in in = {.fh = fh, .offset = offset, .size = 1000};
	begin(rig, is_plus ? FUSE_READDIRPLUS : FUSE_READDIR, dir);
	add(rig, &in, sizeof(in));
	int err = ask(rig);
	size_t head = is_plus ? sizeof(struct fuse_entry_out) : 0;
	assert_true(rig->in_len <= sizeof(struct fuse_out_header) + in.size);
	for (size_t at = sizeof(struct fuse_out_header); err == 0 && at < rig->in_len;) {
		struct fuse_dirent entry;
		memcpy(&entry, rig->in + at + head, FUSE_NAME_OFFSET);
		take_entry(told, &entry, (const char *)rig->in + at + head + FUSE_NAME_OFFSET);
		at += FUSE_DIRENT_ALIGN(head + FUSE_NAME_OFFSET + entry.namelen);
	}
	return err;
}

static uint64_t open_dir(struct rig *rig, uint64_t dir)
{
	const struct fuse_open_in in = {.flags = O_RDONLY};
	struct fuse_open_out out;
	begin(rig, FUSE_OPENDIR, dir);
	add(rig, &in, sizeof(in));
	assert_int_equal(ask(rig), 0);
	memcpy(&out, answered(rig, sizeof(out)), sizeof(out));
	return out.fh;
}

static void remove_file(struct rig *rig, uint64_t dir, uint32_t nr)
{
	char name[16];
	(void)snprintf(name, sizeof(name), "f%03u", nr);
	begin(rig, FUSE_UNLINK, dir);
	add(rig, name, strlen(name) + 1);
	int err = ask(rig);
	assert_true(err == 0 || err == -ENOENT);
}

/* Those that stay, the even ones, must come once each behind the entry `first` of what was told. */
static void check_stay(const struct told *all, uint32_t first, const struct told *found)
{
	uint8_t expected[FILES + 1] = {0};
	uint8_t times[FILES + 1] = {0};
	for (uint32_t i = first; i < all->cnt; i++)
		expected[all->entries[i].nr]++;
	for (uint32_t i = 0; i < found->cnt; i++)
		times[found->entries[i].nr]++;
	for (uint32_t nr = 0; nr < FILES; nr += 2)
		assert_int_equal(times[nr], expected[nr]);
	for (uint32_t nr = 1; nr < FILES; nr += 2)
		assert_true(times[nr] <= 1);
}

/* All from an offset on. What has been told of odd ones goes meanwhile, and others come. */
static void read_all(struct rig *rig, uint64_t dir, uint64_t fh, uint64_t offset, bool changes,
		     struct told *ret)
{
	static uint32_t made;
	char name[16];
	uint32_t before = 0;
	ret->cnt = 0;
	do {
		before = ret->cnt;
		assert_int_equal(read_dir(rig, dir, fh, offset, made % 2 == 1, ret), 0);
		for (uint32_t i = before; changes && i < ret->cnt; i++) {
			if (ret->entries[i].nr % 2 == 1)
				remove_file(rig, dir, ret->entries[i].nr);
		}
		/* Without a handle each would be told in its turn, for ever. */
		(void)snprintf(name, sizeof(name), "%c%u", changes ? 'z' : 'a', made++);
		if (fh != 0)
			release(rig, create(rig, dir, name));
		if (ret->cnt > 0)
			offset = ret->entries[ret->cnt - 1].offset;
	} while (ret->cnt > before);
}

/* Rule N4, at the kernel's offsets: whatever comes and goes, what stays is told once, also from an
 * offset that was told long ago with an entry that is gone. */
static void test_directories(void **state)
{
	static struct told all;
	static struct told found;
	struct rig *rig = rig_new(0);
	char name[16];
	(void)state;
	uint64_t dir = make_dir(rig, 1, "dir");
	for (uint32_t i = 0; i < FILES; i++) {
		(void)snprintf(name, sizeof(name), "f%03u", i * 7 % FILES);
		release(rig, create(rig, dir, name));
	}
	uint64_t fh = open_dir(rig, dir);
	assert_int_not_equal(fh, 0);
	read_all(rig, dir, fh, 0, true, &all);
	assert_true(all.cnt >= FILES + 2 && all.cnt <= FILES + 4);
	for (uint32_t i = 0; i < all.cnt; i += 13) {
		read_all(rig, dir, fh, all.entries[i].offset, false, &found);
		check_stay(&all, i + 1, &found);
	}
	/* From the beginning again: those that have come since are told. */
	read_all(rig, dir, fh, 0, false, &found);
	check_stay(&all, 0, &found);
	assert_true(found.cnt > FILES / 2 + 20);
	assert_int_equal(read_dir(rig, dir, fh, UINT64_C(5) << 60, false, &found), -EINVAL);
	assert_int_equal(read_dir(rig, 1, fh, 0, false, &found), -EBADF);
	assert_int_equal(read_dir(rig, dir, fh ^ UINT64_C(1) << 50, 0, false, &found), -EBADF);
	const struct fuse_release_in in = {.fh = fh};
	begin(rig, FUSE_RELEASEDIR, dir);
	add(rig, &in, sizeof(in));
	assert_int_equal(ask(rig), 0);
	assert_int_equal(read_dir(rig, dir, fh, 0, false, &found), -EBADF);
	/* Without a handle, by cookies: what is told needs nothing remembered. */
	read_all(rig, dir, 0, 0, false, &found);
	check_stay(&all, 0, &found);
	rig_free(rig);
}

/* Bit 6 of a set-user-id program goes with the write of somebody who is not root. */
static void test_privileges(void **state)
{
	struct rig *rig = rig_new(0);
	const struct fuse_setattr_in mode = {.valid = FATTR_MODE, .mode = 06755};
	const struct fuse_write_in write = {.size = 1, .write_flags = FUSE_WRITE_KILL_SUIDGID};
	const struct fuse_getattr_in get = {.getattr_flags = 0};
	struct fuse_attr_out out;
	(void)state;
	uint64_t node = create(rig, 1, "program");
	begin(rig, FUSE_SETATTR, node);
	add(rig, &mode, sizeof(mode));
	assert_int_equal(ask(rig), 0);
	assert_int_equal(write_at(rig, node, 0, "x", 1), 0);
	begin(rig, FUSE_GETATTR, node);
	add(rig, &get, sizeof(get));
	assert_int_equal(ask(rig), 0);
	memcpy(&out, answered(rig, sizeof(out)), sizeof(out));
	assert_int_equal(out.attr.mode, S_IFREG | 06755);
	begin(rig, FUSE_WRITE, node);
	add(rig, &write, sizeof(write));
	add(rig, "y", 1);
	assert_int_equal(ask(rig), 0);
	begin(rig, FUSE_GETATTR, node);
	add(rig, &get, sizeof(get));
	assert_int_equal(ask(rig), 0);
	memcpy(&out, answered(rig, sizeof(out)), sizeof(out));
	assert_int_equal(out.attr.mode, S_IFREG | 0755);
	release(rig, node);
	rig_free(rig);
}

/* What breaks the protocol is refused by its number, and nothing else suffers. */
static void test_hostile(void **state)
{
	struct rig *rig = rig_new(0);
	struct lp_fuse_channel_stats stats;
	uint64_t unique = 0;
	(void)state;
	assert_int_equal(send(rig->fd, "short", 5, 0), 5);
	begin(rig, 4711, 1);
	assert_int_equal(ask(rig), -ENOSYS);
	begin(rig, FUSE_GETATTR, 1);
	assert_int_equal(ask(rig), -EINVAL);
	/* A write that says it has more than came. */
	const struct fuse_write_in in = {.size = 100};
	begin(rig, FUSE_WRITE, 1);
	add(rig, &in, sizeof(in));
	add(rig, "only this", 9);
	assert_int_equal(ask(rig), -EINVAL);
	/* Longer than its header says. */
	begin(rig, FUSE_STATFS, 1);
	memcpy(rig->out, &rig->out_len, sizeof(rig->out_len));
	assert_int_equal(send(rig->fd, rig->out, rig->out_len + 8, 0), rig->out_len + 8);
	assert_int_equal(answer(rig, &unique), -EINVAL);
	assert_int_equal(unique, rig->unique);
	/* Silent ones that are wrong stay so. */
	begin(rig, FUSE_INTERRUPT, 1);
	send_message(rig);
	begin(rig, FUSE_STATFS, 77);
	assert_int_equal(ask(rig), 0);
	const struct fuse_getattr_in get = {.getattr_flags = 0};
	begin(rig, FUSE_GETATTR, 77);
	add(rig, &get, sizeof(get));
	assert_int_equal(ask(rig), -ESTALE);
	lp_fuse_channel_read_stats(rig->channel, &stats);
	assert_int_equal(stats.refused, 4);
	assert_int_equal(stats.under_way, 0);
	rig_free(rig);
}

/* Two requests at a time, and fifty are waiting: each is answered, once. */
static void test_throttled(void **state)
{
	struct rig *rig = rig_new(2);
	const struct fuse_fsync_in in = {.fh = 0};
	bool seen[64] = {false};
	(void)state;
	for (uint32_t i = 0; i < 50; i++) {
		begin(rig, FUSE_FSYNC, 1);
		add(rig, &in, sizeof(in));
		send_message(rig);
	}
	for (uint32_t i = 0; i < 50; i++) {
		uint64_t unique = 0;
		assert_int_equal(answer(rig, &unique), 0);
		assert_true(unique < LP_ARRAY_SIZE(seen) && !seen[unique]);
		seen[unique] = true;
	}
	rig_free(rig);
}

/* The other end goes away: told once, and what was under way ends. */
static void test_gone(void **state)
{
	struct rig *rig = rig_new(0);
	(void)state;
	begin(rig, FUSE_STATFS, 1);
	send_message(rig);
	assert_int_equal(close(rig->fd), 0);
	rig->fd = -1;
	UNTIL(rig, rig->gone_cnt > 0);
	rig_free(rig);
}

static void test_states(void **state)
{
	char why[256] = "";
	(void)state;
	assert_int_equal(lp_sm_table_check(&lpi_fuse_request_table, why, sizeof(why)), 0);
	assert_string_equal(why, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_states),      cmocka_unit_test(test_data),
		cmocka_unit_test(test_directories), cmocka_unit_test(test_names),
		cmocka_unit_test(test_privileges),  cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_throttled),   cmocka_unit_test(test_gone),
	};
	(void)signal(SIGPIPE, SIG_IGN);
	return lp_test_main(tests, "fuse/channel");
}
