/* SPDX-License-Identifier: Apache-2.0 */
/* A channel with one end of a socketpair in place of /dev/fuse, which keeps messages apart in the
 * same way. The test is the kernel at the other end. The store is in memory. Each request must be
 * answered once, whatever other messages come: too short, too long or unknown. */
#include "fuse/channel_state.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/prng.h"
#include "base/testing/test.h"
#include "fuse/kernel/notify.h"
#include "fuse/request.h"

#define MESSAGE_MAX (256u << 10)
#define TURNS_NS    (30 * LP_NS_PER_S)
/* Channels on one thread and one reactor, which sends to itself the messages for another one. */
#define CHANNELS_MAX 2u

struct rig {
	struct lp_reactor *reactor;
	struct lp_bufs *bufs;
	uint32_t cnt; /* shards, each with a channel */
	struct lp_store *stores[CHANNELS_MAX];
	struct lp_ns *namespaces[CHANNELS_MAX];
	struct lp_workers *notifier;
	struct lp_fuse_channel *channels[CHANNELS_MAX];
	struct lp_fuse_channel *channel; /* the first */
	int fd;                          /* the kernel's end */
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

static void open_shards(struct rig *rig)
{
	for (uint32_t i = 0; i < rig->cnt; i++) {
		const struct lp_store_options store = {
			.reactor = rig->reactor, .bufs = rig->bufs, .shard_idx = i};
		lp_test_ok(lp_store_open_mem(&store, &rig->stores[i]));
		const struct lp_ns_options ns = {.reactor = rig->reactor,
						 .store = rig->stores[i],
						 .bufs = rig->bufs,
						 .shard_idx = i,
						 .shard_cnt = rig->cnt,
						 .ops_max = 64};
		lp_test_ok(lp_ns_open(&ns, &rig->namespaces[i]));
	}
	for (uint32_t i = 0; i < rig->cnt; i++)
		lp_ns_start(rig->namespaces[i], rig->namespaces, ready, rig);
	UNTIL(rig, rig->ready_cnt == rig->cnt);
}

/* All descriptors are of one socket, as those of a mount are of one queue. */
static void open_channels(struct rig *rig, uint32_t requests_max, uint64_t inodes_max)
{
	lp_test_ok(lp_workers_new(0, &rig->notifier));
	int fds[2];
	int bytes = 4 * MESSAGE_MAX;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)),
				 0);
	rig->fd = fds[1];
	for (uint32_t i = 0; i < rig->cnt; i++) {
		const struct lp_fuse_channel_options options = {
			.reactor = rig->reactor,
			.bufs = rig->bufs,
			.ns = rig->namespaces[i],
			.stores = {rig->stores[i]},
			.nss = {rig->namespaces[i]},
			.store_cnt = 1,
			.requests_max = requests_max,
			.notifier = rig->notifier,
			.behaviour = {.squash_uid = UINT32_MAX,
				      .squash_gid = UINT32_MAX,
				      .inodes_max = inodes_max},
			.gone = gone,
			.arg = rig};
		lp_test_ok(lp_fuse_channel_new(&options, &rig->channels[i]));
	}
	rig->channel = rig->channels[0];
	lp_fuse_channels_join(rig->channels, rig->cnt);
	for (uint32_t i = 0; i < rig->cnt; i++) {
		int fd = i == 0 ? fds[0] : dup(fds[0]);
		assert_true(fd >= 0);
		lp_fuse_channel_start(rig->channels[i], fd);
	}
}

static struct rig *rig_of(uint32_t cnt, uint32_t requests_max, uint64_t inodes_max)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	assert_non_null(rig);
	rig->cnt = cnt;
	const struct lp_reactor_options reactor = {.name = "test", .ring = true};
	lp_test_ok(lp_reactor_new(&reactor, &rig->reactor));
	lp_test_ok(lp_reactor_start(rig->reactor));
	lp_test_ok(lp_bufs_new(UINT64_C(16) << 20, &rig->bufs));
	open_shards(rig);
	open_channels(rig, requests_max, inodes_max);
	return rig;
}

static struct rig *rig_new(uint32_t requests_max)
{
	return rig_of(1, requests_max, 0);
}

/* Its channels have stopped. */
static void rig_end(struct rig *rig)
{
	for (uint32_t i = 0; i < rig->cnt; i++)
		lp_fuse_channel_free(rig->channels[i]);
	lp_workers_free(rig->notifier);
	for (uint32_t i = 0; i < rig->cnt; i++)
		lp_ns_stop(rig->namespaces[i], ns_stopped, rig);
	UNTIL(rig, rig->stopped_cnt == 2 * rig->cnt);
	for (uint32_t i = 0; i < rig->cnt; i++) {
		lp_ns_close(rig->namespaces[i]);
		lp_test_ok(lp_store_close(rig->stores[i], false));
	}
	lp_bufs_free(rig->bufs);
	lp_reactor_free(rig->reactor);
	if (rig->fd >= 0)
		assert_int_equal(close(rig->fd), 0);
	free(rig);
}

static void rig_free(struct rig *rig)
{
	for (uint32_t i = 0; i < rig->cnt; i++)
		lp_fuse_channel_stop(rig->channels[i], stopped, rig);
	UNTIL(rig, rig->stopped_cnt == rig->cnt);
	rig_end(rig);
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

/* Data of all lengths at which another buffer begins, on and off the grid, comes back as it was.
 * The store verifies its checksums on the way (rule W2: through the mount they begin here). */
static void write_and_read(struct rig *rig, uint64_t node)
{
	static const uint32_t lengths[] = {1, 4095, 4096, 4097, 69632, 69633, 200000};
	static const uint64_t offsets[] = {0, 1, 4095, 12288, 1000001};
	struct lp_prng prng;
	uint8_t *bytes = malloc(200000);
	assert_non_null(bytes);
	lp_prng_init(&prng, 7);
	lp_prng_fill(&prng, bytes, 200000);
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
	free(bytes);
}

static void test_data(void **state)
{
	struct rig *rig = rig_new(0);
	(void)state;
	uint64_t node = create(rig, 1, "file");
	write_and_read(rig, node);
	release(rig, node);
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

/* The entries told of a directory, in that order. */
struct told {
	uint32_t cnt;
	struct {
		uint64_t offset;
		uint32_t nr; /* of a file; FILES: another entry */
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

/* The files that stay, the even ones, must come once each behind the entry `first` of those told.
 */
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

/* All entries from an offset on. Odd files that were told are removed meanwhile, and others are
 * made. */
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
		/* Without a handle each new one would be told in its turn, for ever. */
		(void)snprintf(name, sizeof(name), "%c%u", changes ? 'z' : 'a', made++);
		if (fh != 0)
			release(rig, create(rig, dir, name));
		if (ret->cnt > 0)
			offset = ret->entries[ret->cnt - 1].offset;
	} while (ret->cnt > before);
}

/* Rule N4, at the kernel's offsets: whatever is made and removed, each entry that stays is told
 * once, also from an offset that was told long ago with an entry that is gone. */
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
	/* From the beginning again: entries made since then are told. */
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
	/* Without a handle, by cookies, which needs no memory. */
	read_all(rig, dir, 0, 0, false, &found);
	check_stay(&all, 0, &found);
	rig_free(rig);
}

/* A write by a user that is not root clears the set-user-ID bit of a program. */
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

/* A message that breaks the protocol is refused by its number, and other requests do not suffer. */
static void test_hostile(void **state)
{
	struct rig *rig = rig_new(0);
	struct lp_fuse_channel_stats stats;
	uint64_t unique = 0;
	(void)state;
	assert_int_equal(send(rig->fd, "short", 5, 0), 5);
	begin(rig, 4711, 1);
	assert_int_equal(ask(rig), -ENOSYS);
	/* The kernel asks once whether closes need a message, and not for each file. */
	const struct fuse_flush_in flush = {.fh = 0};
	begin(rig, FUSE_FLUSH, 1);
	add(rig, &flush, sizeof(flush));
	assert_int_equal(ask(rig), -ENOSYS);
	begin(rig, FUSE_GETATTR, 1);
	assert_int_equal(ask(rig), -EINVAL);
	/* A write that claims more data than came. */
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
	/* Wrong messages without an answer get none. */
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

static uint64_t held(struct rig *rig)
{
	struct lp_ns_stats stats;
	lp_ns_read_stats(rig->namespaces[0], &stats);
	assert_int_equal(stats.held_unbalanced, 0);
	return stats.held;
}

static uint64_t lookup(struct rig *rig, uint64_t dir, const char *name)
{
	struct fuse_entry_out out;
	begin(rig, FUSE_LOOKUP, dir);
	add(rig, name, strlen(name) + 1);
	assert_int_equal(ask(rig), 0);
	memcpy(&out, answered(rig, sizeof(out)), sizeof(out));
	return out.nodeid;
}

static void forget(struct rig *rig, uint64_t node, uint64_t count)
{
	const struct fuse_forget_in in = {.nlookup = count};
	begin(rig, FUSE_FORGET, node);
	add(rig, &in, sizeof(in));
	send_message(rig);
}

/* Rule N5: the kernel's references to an inode are counted. The inode stays until the kernel has
 * forgotten it as often, by one message each, or by batches of all lengths at which another buffer
 * begins. */
static void test_forget(void **state)
{
	static const uint32_t batches[] = {1, 2, 3, 258, 259, 5000};
	static struct fuse_forget_one items[5000];
	struct rig *rig = rig_new(0);
	const struct fuse_getattr_in get = {.getattr_flags = 0};
	(void)state;
	uint64_t node = create(rig, 1, "file");
	release(rig, node);
	assert_int_equal(lookup(rig, 1, "file"), node);
	begin(rig, FUSE_UNLINK, 1);
	add(rig, "file", 5);
	assert_int_equal(ask(rig), 0);
	forget(rig, node, 1);
	begin(rig, FUSE_GETATTR, node);
	add(rig, &get, sizeof(get));
	assert_int_equal(ask(rig), 0);
	forget(rig, node, 1);
	/* The inode is removed in a later turn, with others. */
	struct lp_ns_stats stats;
	UNTIL(rig, (lp_ns_read_stats(rig->namespaces[0], &stats), stats.held + stats.orphans) == 0);
	begin(rig, FUSE_GETATTR, node);
	add(rig, &get, sizeof(get));
	assert_int_equal(ask(rig), -ESTALE);
	for (size_t b = 0; b < LP_ARRAY_SIZE(batches); b++) {
		const struct fuse_batch_forget_in in = {.count = batches[b]};
		uint64_t dir = make_dir(rig, 1, "dir");
		for (uint32_t i = 0; i < batches[b]; i++)
			items[i] = (struct fuse_forget_one){
				.nodeid = i % 7 == 0 ? lookup(rig, 1, "dir") : dir,
				.nlookup = i % 7 == 0 ? 1 : 0};
		items[batches[b] - 1].nlookup++;
		assert_int_equal(held(rig), 1);
		begin(rig, FUSE_BATCH_FORGET, 0);
		add(rig, &in, sizeof(in));
		add(rig, items, batches[b] * sizeof(items[0]));
		send_message(rig);
		UNTIL(rig, held(rig) == 0);
		begin(rig, FUSE_RMDIR, 1);
		add(rig, "dir", 4);
		assert_int_equal(ask(rig), 0);
	}
	rig_free(rig);
}

/* Names without room in the answer to a readdirplus are not known to the kernel. After the kernel
 * has gone, no name is. */
static void test_held(void **state)
{
	struct rig *rig = rig_new(0);
	const struct fuse_read_in in = {.size = 1000};
	(void)state;
	uint64_t dir = make_dir(rig, 1, "dir");
	for (uint32_t i = 0; i < 20; i++) {
		char name[] = "a";
		name[0] = (char)('a' + i);
		uint64_t node = create(rig, dir, name);
		release(rig, node);
		forget(rig, node, 1);
	}
	UNTIL(rig, held(rig) == 1);
	begin(rig, FUSE_READDIRPLUS, dir);
	add(rig, &in, sizeof(in));
	assert_int_equal(ask(rig), 0);
	/* ".", "..", and those that have an inode: 160 bytes each. */
	assert_int_equal(rig->in_len, sizeof(struct fuse_out_header) + UINT64_C(6) * 160);
	UNTIL(rig, held(rig) == 5);
	assert_int_equal(close(rig->fd), 0);
	rig->fd = -1;
	UNTIL(rig, held(rig) == 0);
	rig_free(rig);
}

/* The next message: the request's answer, or an unasked list of inodes. Then returns the list's
 * length. */
static uint32_t prune_or_answer(struct rig *rig, bool *seen, bool *ret_is_answer)
{
	struct lpi_fuse_prune_out out;
	UNTIL(rig, has_come(rig));
	memcpy(&out, rig->in, LP_MIN(rig->in_len, sizeof(out)));
	*ret_is_answer = out.header.unique == rig->unique;
	if (*ret_is_answer)
		return 0;
	assert_int_equal(out.header.unique, 0);
	assert_int_equal(out.header.error, LPI_FUSE_NOTIFY_PRUNE);
	assert_int_equal(rig->in_len, 32 + out.count * UINT64_C(8));
	for (uint32_t i = 0; i < out.count; i++)
		seen[out.nodeids[i]] = true;
	return out.count;
}

/* The kernel remembers too many inodes. It is told to forget some, and none of them twice before
 * the others, by a thread that serves no requests (rule M3: here, without threads, between two
 * turns). */
static void test_crowd(void **state)
{
	const uint32_t files = 300;
	const struct fuse_mknod_in in = {.mode = S_IFREG | 0644};
	static bool seen[1000];
	struct rig *rig = rig_of(1, 0, 100);
	uint32_t told = 0;
	(void)state;
	for (uint32_t i = 0; i < files; i++) {
		char name[16];
		bool is_answer = false;
		(void)snprintf(name, sizeof(name), "file%u", i);
		begin(rig, FUSE_MKNOD, 1);
		add(rig, &in, sizeof(in));
		add(rig, name, strlen(name) + 1);
		send_message(rig);
		while (!is_answer)
			told += prune_or_answer(rig, seen, &is_answer);
	}
	/* At 128, 192 and 256 requests, or one later. */
	assert_in_range(told, 127 + 191 + 255, 128 + 192 + 256);
	assert_int_equal(held(rig), files);
	uint32_t seen_cnt = 0;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(seen); i++)
		seen_cnt += seen[i] ? 1 : 0;
	assert_in_range(seen_cnt, 250, files);
	rig_free(rig);
}

/* The reader stops while another channel is still telling the kernel a change. That channel answers
 * the kernel's requests meanwhile (mount F5). */
static void test_stops_while_telling(void **state)
{
	(void)state;
	struct rig *rig = rig_of(2, 0, 0);
	struct lp_fuse_channel *telling = rig->channels[1];
	telling->prune.work.workers = rig->notifier;
	for (uint32_t i = 0; i < rig->cnt; i++)
		lp_fuse_channel_stop(rig->channels[i], stopped, rig);
	UNTIL(rig, rig->stopped_cnt == 1);
	begin(rig, FUSE_STATFS, 1);
	assert_int_equal(ask(rig), 0);
	telling->prune.work.workers = NULL;
	lpi_fuse_channel_told(telling);
	UNTIL(rig, rig->stopped_cnt == rig->cnt);
	rig_end(rig);
}

/* The kernel did not take the answer: its references are dropped, and the opened file is closed. */
static void test_unheard(void **state)
{
	struct rig *rig = rig_new(0);
	struct lp_ns_stats stats;
	const struct fuse_create_in in = {
		.flags = O_RDWR | O_CREAT | O_EXCL, .mode = S_IFREG | 0666, .umask = 022};
	(void)state;
	uint64_t node = create(rig, 1, "file");
	release(rig, node);
	forget(rig, node, 1);
	UNTIL(rig, held(rig) == 0);
	begin(rig, FUSE_CREATE, 1);
	add(rig, &in, sizeof(in));
	add(rig, "unheard", 8);
	send_message(rig);
	begin(rig, FUSE_LOOKUP, 1);
	add(rig, "file", 5);
	send_message(rig);
	/* The kernel still sends, but does not read. */
	assert_int_equal(shutdown(rig->fd, SHUT_RD), 0);
	UNTIL(rig, (lp_ns_read_stats(rig->namespaces[0], &stats), stats.ops[LP_NS_FORGET]) == 3);
	assert_int_equal(stats.held, 0);
	assert_int_equal(stats.opens, 0);
	assert_int_equal(stats.held_unbalanced, 0);
	rig_free(rig);
}

/* Two requests at a time, with fifty waiting: each is answered once. */
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

/* Requests are counted by opcode, with errors and times. */
static void test_counts(void **state)
{
	struct rig *rig = rig_new(0);
	struct lp_fuse_channel_stats stats;
	(void)state;
	uint64_t node = create(rig, 1, "file");
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(write_at(rig, node, 0, "four", 4), 0);
	begin(rig, FUSE_LOOKUP, 1);
	add(rig, "none", 5);
	assert_int_equal(ask(rig), -ENOENT);
	begin(rig, 4711, 1);
	assert_int_equal(ask(rig), -ENOSYS);
	lp_fuse_channel_read_stats(rig->channel, &stats);
	assert_int_equal(stats.requests[FUSE_CREATE], 1);
	assert_int_equal(stats.requests[FUSE_WRITE], 3);
	assert_int_equal(stats.errors[FUSE_WRITE], 0);
	assert_int_equal(stats.written_bytes, 12);
	assert_int_equal(stats.requests[FUSE_LOOKUP], 1);
	assert_int_equal(stats.errors[FUSE_LOOKUP], 1);
	assert_int_equal(stats.requests[0], 1);
	assert_int_equal(stats.errors[0], 1);
	assert_int_equal(lp_fuse_channel_latency(rig->channel, FUSE_WRITE)->count, 3);
	assert_true(lp_fuse_channel_latency(rig->channel, FUSE_WRITE)->min > 0);
	assert_null(lp_fuse_channel_latency(rig->channel, FUSE_READ));
	release(rig, node);
	rig_free(rig);
}

static uint64_t handed_over(struct rig *rig)
{
	uint64_t cnt = 0;
	for (uint32_t i = 0; i < rig->cnt; i++) {
		struct lp_fuse_channel_stats stats;
		lp_fuse_channel_read_stats(rig->channels[i], &stats);
		cnt += stats.handed_over;
	}
	return cnt;
}

/* Whichever thread reads a request, the one that has the inode does the work. That thread also
 * reads the next requests, so a program that stays with one file is handed over once. */
static void test_handed_over(void **state)
{
	struct rig *rig = rig_of(2, 0, 0);
	uint64_t nodes[4];
	struct lp_fuse_channel_stats stats;
	(void)state;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(nodes); i++) {
		const char name[] = {'d', (char)('0' + i), '\0'};
		nodes[i] = create(rig, make_dir(rig, 1, name), "file");
	}
	/* Directories go round the shards, and files are where their entries are. */
	assert_int_not_equal(lp_ino_shard((struct lp_ino){nodes[0]}),
			     lp_ino_shard((struct lp_ino){nodes[1]}));
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(nodes); i++) {
		uint64_t before = handed_over(rig);
		write_and_read(rig, nodes[i]);
		assert_true(handed_over(rig) - before <= 1);
		release(rig, nodes[i]);
	}
	assert_true(handed_over(rig) >= LP_ARRAY_SIZE(nodes) - 1);
	/* The work was counted on its thread, and all requests are back. */
	for (uint32_t i = 0; i < rig->cnt; i++) {
		lp_fuse_channel_read_stats(rig->channels[i], &stats);
		assert_true(stats.requests[FUSE_WRITE] >= 35);
		assert_int_equal(stats.under_way, 0);
	}
	rig_free(rig);
}

#define TURNS_WORTH 16u

struct burst {
	struct lp_task task;
	struct rig *rig;
	uint64_t node;
};

static void ask_for_attrs(struct lp_task *task)
{
	const struct burst *burst = LP_CONTAINER_OF(task, struct burst, task);
	const struct fuse_getattr_in get = {.getattr_flags = 0};
	for (uint32_t i = 0; i < TURNS_WORTH; i++) {
		begin(burst->rig, FUSE_GETATTR, burst->node);
		add(burst->rig, &get, sizeof(get));
		send_message(burst->rig);
	}
}

static uint64_t reads_of_first(struct rig *rig)
{
	struct lp_fuse_channel_stats stats;
	lp_fuse_channel_read_stats(rig->channel, &stats);
	return stats.reads;
}

/* A turn's worth of requests comes for the channel that is not the reader, which is invited. When
 * the reader finds no more, it makes that channel the reader. Before the channel has followed the
 * invitation, another turn's worth has come. So it is armed with its task still queued, and must
 * not arm once more. */
static void test_invited(void **state)
{
	struct rig *rig = rig_of(2, 0, 0);
	(void)state;
	uint64_t file = create(rig, make_dir(rig, 1, "a"), "file");
	struct burst burst = {.task.run = ask_for_attrs, .rig = rig};
	burst.node = make_dir(rig, 1, "b");
	assert_int_not_equal(lp_ino_shard((struct lp_ino){burst.node}),
			     lp_ino_shard((struct lp_ino){file}));
	/* The root's shard is the first one's, and so is the reader. */
	for (uint32_t i = 0; i < 2; i++) {
		begin(rig, FUSE_LOOKUP, 1);
		add(rig, "none", 5);
		assert_int_equal(ask(rig), -ENOENT);
	}
	if (lp_ino_shard((struct lp_ino){burst.node}) == 0)
		burst.node = file;
	uint64_t reads = reads_of_first(rig);
	ask_for_attrs(&burst.task);
	UNTIL(rig, reads_of_first(rig) >= reads + TURNS_WORTH);
	lp_task_queue(rig->reactor, &burst.task);
	for (uint32_t i = 0; i < 2 * TURNS_WORTH; i++) {
		uint64_t unique = 0;
		assert_int_equal(answer(rig, &unique), 0);
	}
	release(rig, file);
	rig_free(rig);
}

/* Two requests at a time on each of two threads, with a hundred waiting for both of them. */
static void test_two_throttled(void **state)
{
	struct rig *rig = rig_of(2, 2, 0);
	const struct fuse_getattr_in get = {.getattr_flags = 0};
	const struct fuse_fsync_in sync = {.fh = 0};
	bool seen[128] = {false};
	(void)state;
	const uint64_t dirs[] = {make_dir(rig, 1, "a"), make_dir(rig, 1, "b")};
	uint64_t first = rig->unique + 1;
	for (uint32_t i = 0; i < 100; i++) {
		begin(rig, i % 3 == 0 ? FUSE_FSYNC : FUSE_GETATTR, dirs[i % 2]);
		add(rig, i % 3 == 0 ? (const void *)&sync : &get, sizeof(get));
		send_message(rig);
	}
	for (uint32_t i = 0; i < 100; i++) {
		uint64_t unique = 0;
		assert_int_equal(answer(rig, &unique), 0);
		assert_true(unique - first < 100 && !seen[unique - first]);
		seen[unique - first] = true;
	}
	rig_free(rig);
}

/* The other end closes: this is reported once, and requests under way end. */
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
		cmocka_unit_test(test_names),       cmocka_unit_test(test_privileges),
		cmocka_unit_test(test_hostile),     cmocka_unit_test(test_throttled),
		cmocka_unit_test(test_counts),      cmocka_unit_test(test_gone),
		cmocka_unit_test(test_handed_over), cmocka_unit_test(test_two_throttled),
		cmocka_unit_test(test_forget),      cmocka_unit_test(test_held),
		cmocka_unit_test(test_unheard),     cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_directories), cmocka_unit_test(test_stops_while_telling),
		cmocka_unit_test(test_invited),
	};
	(void)signal(SIGPIPE, SIG_IGN);
	return lp_test_main(tests, "fuse/channel");
}
