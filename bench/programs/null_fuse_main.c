/* SPDX-License-Identifier: Apache-2.0 */
/* What the mount could do at most: a FUSE server of which every answer is there at once.
 *
 *   null_fuse [--threads N] [--wait ring|read] [--options O] [--files N] DIR
 *
 * It mounts with the session of the real one, so what the kernel was told is the same, has a cloned
 * descriptor for each thread as the real one has, reads messages and answers them one by one, and
 * takes them apart by the same table. Names, sizes and kinds are kept in a table in memory, so that
 * what was made is there until it is removed; what is written is forgotten, and all that is read is
 * zeros. Two names of one directory with equal hashes would be one file. The kernel may believe
 * names, attributes and pages as long as those of the real one.
 *
 * --files: the root has so many empty files from the beginning, which are listed; what else there
 * is in a directory is not.
 *
 * --wait ring: a poll of the thread's reactor tells of requests, as with the real one; read: each
 * thread waits in its read. It says "null_fuse: ready", and ends with SIGTERM or an unmount. */
#include <fcntl.h>
#include <liburing.h>
#include <linux/xattr.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/loop/reactor.h"
#include "fuse/channel.h"
#include "fuse/mount/session.h"

#define THREADS_MAX    64u
#define NODES_MAX      (UINT32_C(1) << 20) /* a power of 2 */
#define MESSAGE_MAX    (LP_FUSE_WRITE_MAX + 4096u)
#define LISTING_MAX    65536u
#define READS_PER_TURN 16u
#define STOP_NS        (5 * LP_NS_PER_S)

LP_NORETURN static void die(const char *what, int err)
{
	(void)fprintf(stderr, "null_fuse: %s: %s\n", what, lp_strerror(err));
	_exit(1);
}

/* --- What there is ---------------------------------------------------------------------------- */

/* A place of the table; nodeid is its number and 2. */
struct node {
	uint64_t hash; /* of directory and name; 0: never used */
	uint64_t size_bytes;
	uint32_t mode; /* 0: free again */
};

static struct node *nodes;
static pthread_mutex_t nodes_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t hash_of(uint64_t dir, struct lp_bytes name)
{
	uint64_t hash = lp_hash_u64(name.data, name.len, dir);
	return hash == 0 ? 1 : hash;
}

/* The node of that hash; else, with a mode, a new one; 0: there is none. */
static uint64_t find(uint64_t hash, uint32_t mode)
{
	struct node *room = NULL;
	for (uint64_t i = 0; i < NODES_MAX; i++) {
		struct node *node = &nodes[(hash + i) & (NODES_MAX - 1)];
		if (node->hash == hash && node->mode != 0)
			return (uint64_t)(node - nodes) + 2;
		if (node->mode == 0 && room == NULL)
			room = node;
		if (node->hash == 0)
			break;
	}
	if (mode == 0 || room == NULL)
		return 0;
	*room = (struct node){.hash = hash, .mode = mode};
	return (uint64_t)(room - nodes) + 2;
}

/* NULL: the root, or nothing that can be. */
static struct node *node_of(uint64_t nodeid)
{
	return nodeid < 2 || nodeid - 2 >= NODES_MAX ? NULL : &nodes[nodeid - 2];
}

/* --- Answers ---------------------------------------------------------------------------------- */

struct server {
	pthread_t pthread;
	struct lp_reactor *reactor;
	struct lp_io poll;
	int fd;
	bool waits_in_read;
	uint8_t *message;
	uint8_t *listing;
	uint64_t requests;
};

/* Names that the root is listed to have, if they are there. */
static uint64_t files_cnt;

static uint8_t zeros[LP_FUSE_WRITE_MAX];
static struct lp_fuse_behaviour behaviour;

static void answer(const struct server *server, const struct lp_fuse_message *message, int err,
		   const void *bytes, size_t len)
{
	struct fuse_out_header header = {.len = (uint32_t)(sizeof(header) + len),
					 .error = err,
					 .unique = message->header.unique};
	struct iovec iovs[2] = {{&header, sizeof(header)}, {(void *)(uintptr_t)bytes, len}};
	/* Nobody waits for it any more, if it fails. */
	ssize_t n = writev(server->fd, iovs, len > 0 ? 2 : 1);
	(void)n; /* whoever has gone waits for no answer */
}

static void fill(uint64_t nodeid, struct fuse_attr *ret)
{
	const struct node *node = node_of(nodeid);
	*ret = (struct fuse_attr){.ino = nodeid,
				  .size = node == NULL ? 0 : node->size_bytes,
				  .mode = node == NULL ? S_IFDIR | 0755 : node->mode,
				  .nlink = 1,
				  .blksize = 4096};
}

static void answer_attrs(const struct server *server, const struct lp_fuse_message *message)
{
	struct fuse_attr_out out = {.attr_valid = behaviour.attr_ns / LP_NS_PER_S};
	fill(message->header.nodeid, &out.attr);
	answer(server, message, 0, &out, sizeof(out));
}

static void answer_entry(const struct server *server, const struct lp_fuse_message *message,
			 uint32_t mode)
{
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} out = {.entry = {.entry_valid = behaviour.entry_ns / LP_NS_PER_S,
			   .attr_valid = behaviour.attr_ns / LP_NS_PER_S}};
	bool is_open = message->header.opcode == FUSE_CREATE;
	(void)pthread_mutex_lock(&nodes_lock);
	out.entry.nodeid = find(hash_of(message->header.nodeid, message->names[0]), mode);
	(void)pthread_mutex_unlock(&nodes_lock);
	if (out.entry.nodeid == 0 && mode == 0) {
		answer(server, message, 0, &out,
		       sizeof(out.entry)); /* there is none: believed, too */
		return;
	}
	if (out.entry.nodeid == 0) {
		answer(server, message, -ENOSPC, NULL, 0);
		return;
	}
	fill(out.entry.nodeid, &out.entry.attr);
	answer(server, message, 0, &out, is_open ? sizeof(out) : sizeof(out.entry));
}

static void answer_remove(const struct server *server, const struct lp_fuse_message *message)
{
	(void)pthread_mutex_lock(&nodes_lock);
	struct node *node = node_of(find(hash_of(message->header.nodeid, message->names[0]), 0));
	if (node != NULL)
		node->mode = 0;
	(void)pthread_mutex_unlock(&nodes_lock);
	answer(server, message, node == NULL ? -ENOENT : 0, NULL, 0);
}

static void answer_write(const struct server *server, const struct lp_fuse_message *message)
{
	const struct fuse_write_in *in = &message->in.write;
	const struct fuse_write_out out = {.size = in->size};
	struct node *node = node_of(message->header.nodeid);
	(void)pthread_mutex_lock(&nodes_lock);
	if (node != NULL)
		node->size_bytes = LP_MAX(node->size_bytes, in->offset + in->size);
	(void)pthread_mutex_unlock(&nodes_lock);
	answer(server, message, 0, &out, sizeof(out));
}

static void answer_read(const struct server *server, const struct lp_fuse_message *message)
{
	const struct fuse_read_in *in = &message->in.read;
	const struct node *node = node_of(message->header.nodeid);
	uint64_t left =
		node == NULL || in->offset >= node->size_bytes ? 0 : node->size_bytes - in->offset;
	answer(server, message, 0, zeros, LP_MIN(LP_MIN(left, in->size), sizeof(zeros)));
}

static void set_attrs(const struct server *server, const struct lp_fuse_message *message)
{
	const struct fuse_setattr_in *in = &message->in.setattr;
	struct node *node = node_of(message->header.nodeid);
	(void)pthread_mutex_lock(&nodes_lock);
	if (node != NULL && (in->valid & FATTR_SIZE) != 0)
		node->size_bytes = in->size;
	(void)pthread_mutex_unlock(&nodes_lock);
	answer_attrs(server, message);
}

static uint32_t write_file_name(uint64_t i, char name[16])
{
	return (uint32_t)snprintf(name, 16, "f%07u", (unsigned)i);
}

/* What file i takes in a listing; 0: it is not there, or has no room. */
static size_t list_one(uint64_t i, bool is_plus, uint8_t *to, size_t room)
{
	char name[16];
	uint32_t len = write_file_name(i, name);
	size_t head = is_plus ? FUSE_NAME_OFFSET_DIRENTPLUS : FUSE_NAME_OFFSET;
	size_t bytes = FUSE_DIRENT_ALIGN(head + len);
	struct fuse_direntplus plus = {
		.entry_out = {.entry_valid = behaviour.entry_ns / LP_NS_PER_S,
			      .attr_valid = behaviour.attr_ns / LP_NS_PER_S},
		.dirent = {.off = i + 1, .namelen = len, .type = S_IFREG >> 12}};
	(void)pthread_mutex_lock(&nodes_lock);
	plus.entry_out.nodeid =
		find(hash_of(FUSE_ROOT_ID, (struct lp_bytes){name, (uint32_t)len}), 0);
	(void)pthread_mutex_unlock(&nodes_lock);
	if (plus.entry_out.nodeid == 0 || bytes > room)
		return 0;
	plus.dirent.ino = plus.entry_out.nodeid;
	fill(plus.entry_out.nodeid, &plus.entry_out.attr);
	memset(to, 0, bytes);
	if (is_plus)
		memcpy(to, &plus, head);
	else
		memcpy(to, &plus.dirent, head);
	memcpy(to + head, name, len);
	return bytes;
}

static void answer_list(const struct server *server, const struct lp_fuse_message *message)
{
	bool is_plus = message->header.opcode == FUSE_READDIRPLUS;
	size_t room = LP_MIN(message->in.read.size, LISTING_MAX);
	uint64_t i = message->in.read.offset;
	uint64_t end = message->header.nodeid == FUSE_ROOT_ID ? files_cnt : 0;
	size_t used = 0;
	while (i < end && room - used >= FUSE_NAME_OFFSET_DIRENTPLUS + 16)
		used += list_one(i++, is_plus, server->listing + used, room - used);
	answer(server, message, 0, server->listing, used);
}

static void make_files(void)
{
	char name[16];
	for (uint64_t i = 0; i < files_cnt; i++) {
		uint32_t len = write_file_name(i, name);
		uint64_t node =
			find(hash_of(FUSE_ROOT_ID, (struct lp_bytes){name, len}), S_IFREG | 0644);
		if (node == 0)
			die("so many files", -ENOSPC);
	}
}

/* As the real one says it of files without any (fuse/ops/ops_xattr.c). */
static bool is_label(struct lp_bytes name)
{
	return name.len == strlen(XATTR_NAME_SELINUX) &&
	       memcmp(name.data, XATTR_NAME_SELINUX, name.len) == 0;
}

static void serve(const struct server *server, const struct lp_fuse_message *message)
{
	const struct fuse_open_out opened = {
		.open_flags = message->header.opcode == FUSE_OPEN ? FOPEN_KEEP_CACHE : 0};
	static const struct fuse_statfs_out room = {.st = {.bsize = 4096, .namelen = 255}};
	switch (message->header.opcode) {
	case FUSE_LOOKUP:
		answer_entry(server, message, 0);
		break;
	case FUSE_CREATE:
		answer_entry(server, message, message->in.create.mode);
		break;
	case FUSE_MKNOD:
		answer_entry(server, message, message->in.mknod.mode);
		break;
	case FUSE_MKDIR:
		answer_entry(server, message, S_IFDIR | message->in.mkdir.mode);
		break;
	case FUSE_UNLINK:
	case FUSE_RMDIR:
		answer_remove(server, message);
		break;
	case FUSE_GETATTR:
		answer_attrs(server, message);
		break;
	case FUSE_SETATTR:
		set_attrs(server, message);
		break;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		answer(server, message, 0, &opened, sizeof(opened));
		break;
	case FUSE_READ:
		answer_read(server, message);
		break;
	case FUSE_WRITE:
		answer_write(server, message);
		break;
	case FUSE_STATFS:
		answer(server, message, 0, &room, sizeof(room));
		break;
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
		answer_list(server, message);
		break;
	case FUSE_GETXATTR:
		answer(server, message, is_label(message->names[0]) ? -EOPNOTSUPP : -ENODATA, NULL,
		       0);
		break;
	case FUSE_FSYNC:
	case FUSE_FSYNCDIR:
	case FUSE_SYNCFS:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_DESTROY:
		answer(server, message, 0, NULL, 0);
		break;
	default:
		answer(server, message, -ENOSYS, NULL, 0);
	}
}

/* --- Reading ---------------------------------------------------------------------------------- */

/* 1: a message was read; 0: there is none; negative: the mount has ended. */
static int read_one(struct server *server)
{
	struct lp_fuse_message message;
	ssize_t len = read(server->fd, server->message, MESSAGE_MAX);
	if (len < 0 && errno == EAGAIN)
		return 0;
	if (len < 0 && (errno == EINTR || errno == ENOENT))
		return 1;
	if (len < 0)
		return -errno;
	server->requests++;
	int err = lp_fuse_decode(server->message, (uint32_t)len, &message);
	if (message.opcode != NULL && message.opcode->is_silent)
		return 1;
	if (err < 0)
		answer(server, &message, err, NULL, 0);
	else
		serve(server, &message);
	return 1;
}

static void polled(struct lp_io *io)
{
	struct server *server = LP_CONTAINER_OF(io, struct server, poll);
	int r = 1;
	/* Edges tell of arrivals, so all there is must be read; nothing else is on this thread. */
	while (r == 1)
		r = read_one(server);
	if (r < 0 || io->result < 0) {
		lp_reactor_stop(server->reactor);
		return;
	}
	if (lp_io_is_idle(io))
		io_uring_prep_poll_multishot(lp_reactor_sqe(server->reactor, io), server->fd,
					     POLLIN);
}

static void *run_server(void *arg)
{
	struct server *server = arg;
	int r = 1;
	if (server->waits_in_read) {
		while (r >= 0)
			r = read_one(server);
		return NULL;
	}
	if (lp_reactor_start(server->reactor) < 0)
		return NULL;
	server->poll.complete = polled;
	io_uring_prep_poll_multishot(lp_reactor_sqe(server->reactor, &server->poll), server->fd,
				     POLLIN);
	lp_reactor_run(server->reactor);
	return NULL;
}

/* --- From mount to unmount -------------------------------------------------------------------- */

struct options {
	const char *dir;
	const char *mount_options;
	uint32_t threads;
	bool waits_in_read;
};

static void parse(int argc, char **argv, struct options *ret)
{
	*ret = (struct options){.threads = 2};
	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";
		if (argv[i][0] != '-') {
			ret->dir = argv[i];
			continue;
		}
		if (strcmp(argv[i], "--threads") == 0)
			ret->threads = (uint32_t)strtoul(value, NULL, 10);
		else if (strcmp(argv[i], "--files") == 0)
			files_cnt = strtoull(value, NULL, 10);
		else if (strcmp(argv[i], "--options") == 0)
			ret->mount_options = value;
		else if (strcmp(argv[i], "--wait") == 0)
			ret->waits_in_read = strcmp(value, "read") == 0;
		else
			die(argv[i], -EINVAL);
		i++;
	}
	if (ret->dir == NULL || ret->threads == 0 || ret->threads > THREADS_MAX)
		die("a directory and 1 to 64 threads", -EINVAL);
}

static void start_server(struct server *server, struct lp_fuse_session *session,
			 const struct options *options)
{
	const struct lp_reactor_options reactor = {.name = "null", .ring = true};
	server->waits_in_read = options->waits_in_read;
	server->message = malloc(MESSAGE_MAX);
	server->listing = malloc(LISTING_MAX);
	if (server->message == NULL || server->listing == NULL)
		die("memory", -ENOMEM);
	int err = lp_fuse_session_clone(session, &server->fd);
	if (err == 0 && server->waits_in_read &&
	    fcntl(server->fd, F_SETFL, fcntl(server->fd, F_GETFL) & ~O_NONBLOCK) < 0)
		err = -errno;
	if (err == 0 && !server->waits_in_read)
		err = lp_reactor_new(&reactor, &server->reactor);
	if (err == 0)
		err = -pthread_create(&server->pthread, NULL, run_server, server);
	if (err < 0)
		die("a thread", err);
}

/* Somebody else may have unmounted it: then the threads have ended by themselves, and main() sends
 * the signal. */
static void *wait_for_signal(void *arg)
{
	struct lp_fuse_session *session = arg;
	sigset_t set;
	int got = 0;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigwait(&set, &got);
	int err = lp_fuse_session_unmount(session, STOP_NS);
	if (err < 0)
		(void)fprintf(stderr, "null_fuse: unmount: %s\n", lp_strerror(err));
	return NULL;
}

static void block_signals(void)
{
	sigset_t set;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

int main(int argc, char **argv)
{
	static struct server servers[THREADS_MAX];
	struct options options;
	struct lp_fuse_session *session = NULL;
	char why[LP_FUSE_WHY_MAX];
	pthread_t waiter;
	parse(argc, argv, &options);
	block_signals();
	nodes = calloc(NODES_MAX, sizeof(*nodes));
	if (nodes == NULL)
		die("memory", -ENOMEM);
	make_files();
	const struct lp_fuse_session_options mount = {
		.dir = options.dir, .source = "null", .options = options.mount_options};
	int err = lp_fuse_session_open(&mount, &session, why);
	if (err < 0)
		die(why, err);
	lp_fuse_session_behaviour(session, &behaviour);
	for (uint32_t i = 0; i < options.threads; i++)
		start_server(&servers[i], session, &options);
	err = lp_fuse_session_probe(session);
	if (err < 0)
		die("the mount does not answer", err);
	if (pthread_create(&waiter, NULL, wait_for_signal, session) != 0)
		die("a thread", -ENOMEM);
	(void)printf("null_fuse: ready\n");
	(void)fflush(stdout);
	for (uint32_t i = 0; i < options.threads; i++)
		(void)pthread_join(servers[i].pthread, NULL);
	(void)pthread_kill(waiter, SIGINT);
	(void)pthread_join(waiter, NULL);
	uint64_t requests = 0;
	for (uint32_t i = 0; i < options.threads; i++)
		requests += servers[i].requests;
	(void)printf("null_fuse: %llu requests\n", (unsigned long long)requests);
	lp_fuse_session_close(session);
	return 0;
}
