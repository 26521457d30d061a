/* SPDX-License-Identifier: Apache-2.0 */
/* libfuse knows how to mount: as root by itself, else with the help of fusermount3. It opens
 * /dev/fuse and gives us the descriptor; its own loop is never run.
 *
 * The first message is INIT; answer_init() says which features we offer. Locks are not offered. The
 * kernel then keeps them itself, which is exact on one machine. */
#include "fuse/mount/session.h"

#define FUSE_USE_VERSION 31

#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "fuse/mount/guard.h"
#include "fuse/mount/options.h"
#include "fuse/mount/umount.h"
#include "fuse/ring.h"

#define INIT_TIMEOUT_MS 10000
/* How long the mount may take to answer by io_uring for the first time. The same after entries were
 * refused: then it answers by the descriptors at once, or not at all. */
#define RING_TIMEOUT_NS    (30 * LP_NS_PER_S)
#define REFUSED_TIMEOUT_NS (2 * LP_NS_PER_S)
#define PROBE_STEP_MS      100
#define BUSY_PAUSE_NS      (50 * LP_NS_PER_MS)
/* The oldest version that knows all features we rely on (Linux 5.17). */
#define MINOR_MIN     36u
#define CONGESTION    384u
#define MAX_READAHEAD (UINT32_C(1) << 20)
#define DIRTY_PERCENT 100u
/* The kernel's mask of the access-time flags: they are cleared together or not at all. */
#define ATIME_KINDS UINT64_C(0x70)
/* The kernel's from 6.6 on; linux-libc-dev of Debian 12 does not have it. */
#define DIRECT_IO_ALLOW_MMAP (UINT64_C(1) << 36)

struct lp_fuse_session {
	struct fuse_session *fuse;
	char *dir;
	int fd;
	struct lpi_fuse_options options;
	uint64_t ring_bytes;
	const char *no_ring;
	struct lp_fuse_ring *ring; /* NULL: none, or not yet */
	dev_t dev;
	int abort_fd; /* ends the connection; -1: nothing does */
	pid_t guard;  /* ends it when this process is killed; 0: there is none */
	bool is_mounted;
};

static int refuse(char *why, int err, const char *fmt, ...) LP_PRINTF(3, 4);

static int refuse(char *why, int err, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(why, LP_FUSE_WHY_MAX, fmt, ap); /* a longer one is cut */
	va_end(ap);
	return err;
}

/* --- Mounting --------------------------------------------------------------------------------- */

/* 0, or the error of the directory's file system. The kernel may remember the attributes of a dead
 * mount, but not its space. */
static int look_at(const char *dir, struct stat *ret_st)
{
	struct statfs fs;
	return statfs(dir, &fs) == 0 && stat(dir, ret_st) == 0 ? 0 : -errno;
}

/* Refuses a mount over the mount of a living daemon. It would hide that mount from all but programs
 * that have it open. So the operator must first say which of the two shall go. */
static int refuse_living(const char *dir, char *why)
{
	char path[PATH_MAX];
	char source[PATH_MAX];
	int err = lpi_fuse_real_path(dir, path);
	if (err < 0)
		return refuse(why, err, "%s: %s", dir, lp_strerror(err));
	if (!lpi_fuse_is_ours_of(path, source))
		return 0;
	return refuse(why, -EBUSY,
		      "%s: a daemon that is alive has mounted %s there (stop it, or lapis umount "
		      "%s)",
		      dir, source, dir);
}

/* Removes a mount whose daemon was killed, because it would be in the way. */
static int clear_dead(const char *dir, char *why)
{
	struct stat st = {.st_mode = 0};
	int err;
	while ((err = look_at(dir, &st)) == -ENOTCONN) {
		err = lp_fuse_umount(dir, true);
		if (err < 0)
			return refuse(why, err, "%s: a dead mount is there (lapis umount %s)", dir,
				      dir);
		LP_LOG_NOTICE("%s: took away the mount of a daemon that is gone", dir);
	}
	if (err < 0)
		return refuse(why, err, "%s: %s", dir, lp_strerror(err));
	if (!S_ISDIR(st.st_mode))
		return refuse(why, -ENOTDIR, "%s: is no directory", dir);
	return refuse_living(dir, why);
}

/* libfuse writes its reason to standard error, unless a handler is set, which has no argument. */
static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static char said[LP_FUSE_WHY_MAX];

static void listen_to(enum fuse_log_level level, const char *fmt, va_list args)
{
	if (level <= FUSE_LOG_ERR && said[0] == '\0')
		(void)vsnprintf(said, sizeof(said), fmt, args);
	said[strcspn(said, "\n")] = '\0';
}

/* Our own options; the given ones come behind them. libfuse mounts with nosuid and nodev unless it
 * is told otherwise. */
static const char *special(bool is_root, bool is_for_others)
{
	if (!is_root)
		return "";
	return is_for_others ? ",nodev,nosuid" : ",dev,suid";
}

/* libfuse does not know these flags. The kernel leaves access times to us anyway, so the flags are
 * only shown. Only root may set them. */
static void set_late_flags(const struct lp_fuse_session *session)
{
	unsigned long late = lpi_fuse_options_late(&session->options);
	struct mount_attr attr = {.attr_clr = 0};
	if ((late & MS_NODIRATIME) != 0)
		attr.attr_set |= MOUNT_ATTR_NODIRATIME;
	if ((late & MS_STRICTATIME) != 0) {
		attr.attr_clr |= ATIME_KINDS;
		attr.attr_set |= MOUNT_ATTR_STRICTATIME;
	}
	if (late != 0 && geteuid() == 0 &&
	    mount_setattr(AT_FDCWD, session->dir, AT_SYMLINK_NOFOLLOW, &attr, sizeof(attr)) < 0)
		LP_LOG_DEBUG("%s: its flags: %s", session->dir, lp_strerror(errno));
}

static int mount_it(struct lp_fuse_session *session, const struct lp_fuse_session_options *options,
		    char *why)
{
	const struct lpi_fuse_options *wanted = &session->options;
	const char *source = wanted->source[0] != '\0' ? wanted->source : options->source;
	static const struct fuse_lowlevel_ops no_ops;
	char text[LP_FUSE_OPTIONS_MAX + PATH_MAX];
	char flags[LP_FUSE_OPTIONS_MAX];
	char name[] = "lapisd";
	char flag[] = "-o";
	char *argv[] = {name, flag, text, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	bool is_root = geteuid() == 0;
	/* A comma in a name would begin another option. */
	lpi_fuse_options_kernel(wanted, flags, sizeof(flags));
	(void)snprintf(text, sizeof(text),
		       "fsname=%s,subtype=" LPI_FUSE_SUBTYPE ",default_permissions%s%s%s",
		       strchr(source, ',') != NULL ? "lapis" : source,
		       special(is_root, options->is_for_others),
		       is_root && !wanted->is_private ? ",allow_other" : "", flags);
	(void)pthread_mutex_lock(&said_lock);
	said[0] = '\0';
	fuse_set_log_func(listen_to);
	int err = 0;
	session->fuse = fuse_session_new(&args, &no_ops, sizeof(no_ops), NULL);
	if (session->fuse == NULL || fuse_session_mount(session->fuse, session->dir) != 0)
		err = refuse(why, -EIO, "%s: cannot be mounted: %s", session->dir,
			     said[0] == '\0' ? "libfuse does not say why" : said);
	fuse_set_log_func(NULL);
	(void)pthread_mutex_unlock(&said_lock);
	fuse_opt_free_args(&args);
	if (err < 0)
		return err;
	session->is_mounted = true;
	session->fd = fuse_session_fd(session->fuse);
	set_late_flags(session);
	return 0;
}

/* Without the guard, the mount of a killed daemon may hang. The daemon mounts without it
 * nevertheless. */
static void guard_it(struct lp_fuse_session *session)
{
	int err = session->abort_fd < 0 ? -ENOENT
					: lpi_fuse_guard_start(session->abort_fd, &session->guard);
	if (err < 0)
		LP_LOG_WARN("%s: nothing will end the mount's connection if lapisd is killed: %s",
			    session->dir, session->abort_fd < 0 ? "no fusectl" : lp_strerror(err));
}

/* --- FUSE over io_uring ----------------------------------------------------------------------- */

/* The kernel's file system of FUSE connections, without mounting it. -1: only root may do that. */
static int open_control(void)
{
	int dir = -1;
	int fs = fsopen("fusectl", FSOPEN_CLOEXEC);
	if (fs < 0)
		return -1;
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		dir = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	(void)close(fs); /* nothing was written */
	return dir;
}

/* The kernel gives entries back at the end of the connection only. A mount that is detached, but in
 * use, does not end by itself. So without a way to end the connection there is no ring. */
static int open_abort(struct lp_fuse_session *session)
{
	struct statx st;
	char path[64];
	LP_ASSERT(session->dir != NULL);
	/* The mount must not be asked for attributes: it does not answer yet. */
	if (statx(AT_FDCWD, session->dir, AT_STATX_DONT_SYNC, 0, &st) < 0 || st.stx_dev_major != 0)
		return -1;
	session->dev = makedev(st.stx_dev_major, st.stx_dev_minor);
	(void)snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u/abort", st.stx_dev_minor);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	int dir = open_control();
	if (dir < 0)
		return -1;
	(void)snprintf(path, sizeof(path), "%u/abort", st.stx_dev_minor);
	fd = openat(dir, path, O_WRONLY | O_CLOEXEC);
	(void)close(dir); /* nothing was written */
	return fd;
}

/* Makes the kernel give back all that it was given. It waits for no request. */
static void end_connection(void *arg)
{
	const struct lp_fuse_session *session = arg;
	if (write(session->abort_fd, "1", 1) < 0)
		LP_LOG_ERROR("%s: the connection cannot be ended: %s", session->dir,
			     lp_strerror(errno));
}

/* The reason why there is no ring; NULL: there is one. */
static const char *make_ring(struct lp_fuse_session *session, uint64_t offered)
{
	uint32_t queue_cnt = lp_fuse_ring_queues();
	if (session->no_ring != NULL)
		return session->no_ring;
	if ((offered & LPI_FUSE_OVER_IO_URING) == 0 || session->ring_bytes == 0)
		return "it is not switched on (/sys/module/fuse/parameters/enable_uring, from "
		       "Linux 6.14 on)";
	if (queue_cnt == 0)
		return "the kernel does not say how many CPUs there could be";
	if (session->abort_fd < 0)
		return "the connection could not be ended (no fusectl)";
	int err = lp_fuse_ring_new(session->ring_bytes, queue_cnt, &session->ring);
	if (err == -EOPNOTSUPP)
		return "its buffers would take too much memory (--memory)";
	if (err < 0)
		return "no memory";
	session->ring->end = end_connection;
	session->ring->end_arg = session;
	return NULL;
}

struct lp_fuse_ring *lp_fuse_session_ring(const struct lp_fuse_session *session)
{
	return session->ring;
}

/* --- INIT ------------------------------------------------------------------------------------- */

/* Where the kernel is asked to cache nothing (FOPEN_DIRECT_IO), an append by AIO would come in
 * several requests at a time, in any order. Each goes to the end (mount F6). Without FUSE_ASYNC_DIO
 * the kernel waits for each request. */
static bool wants_order(const struct lp_fuse_behaviour *behaviour, uint64_t offered)
{
	return (offered & DIRECT_IO_ALLOW_MMAP) != 0 && behaviour->attr_ns == 0 &&
	       !behaviour->is_only_door && !behaviour->writeback;
}

/* Makes the kernel drop cached data only when told to. Otherwise it drops it whenever it sees
 * another time or size, including pages whose write is still on its way to us. Such pages would
 * then be read back with the old data, and would stay. A kernel without the one flag has the other.
 */
static uint64_t keeps_data(uint64_t offered)
{
	bool is_told = (offered & FUSE_EXPLICIT_INVAL_DATA) != 0;
	return is_told ? FUSE_EXPLICIT_INVAL_DATA : FUSE_AUTO_INVAL_DATA;
}

static uint64_t flags_of(const struct lp_fuse_session *session, uint64_t offered)
{
	const struct lp_fuse_behaviour *behaviour = &session->options.behaviour;
	return (behaviour->writeback ? FUSE_WRITEBACK_CACHE : 0) | FUSE_ASYNC_READ |
	       (wants_order(behaviour, offered) ? 0 : FUSE_ASYNC_DIO) | FUSE_BIG_WRITES |
	       FUSE_EXPORT_SUPPORT | FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO |
	       FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES | FUSE_INIT_EXT | FUSE_SETXATTR_EXT |
	       FUSE_POSIX_ACL | FUSE_DONT_MASK | FUSE_HANDLE_KILLPRIV_V2 |
	       (DIRECT_IO_ALLOW_MMAP | keeps_data(offered));
}

static int write_init(struct lp_fuse_session *session, const struct lp_fuse_message *message,
		      const struct fuse_init_out *out, int err)
{
	struct fuse_out_header header = {
		.len = sizeof(header), .error = err, .unique = message->header.unique};
	struct iovec iovs[2] = {{&header, sizeof(header)}, {(void *)(uintptr_t)out, sizeof(*out)}};
	if (err == 0)
		header.len += (uint32_t)sizeof(*out);
	return writev(session->fd, iovs, err == 0 ? 2 : 1) < 0 ? -errno : 0;
}

static int refuse_init(struct lp_fuse_session *session, const struct lp_fuse_message *message,
		       const char *what, char *why)
{
	(void)write_init(session, message, NULL, -EPROTO); /* the connection is closed anyway */
	return refuse(why, -EOPNOTSUPP, "%s: no FUSE over io_uring: %s", session->dir, what);
}

static int answer_init(struct lp_fuse_session *session, const struct lp_fuse_message *message,
		       char *why)
{
	const struct fuse_init_in *in = &message->in.init;
	uint64_t offered = in->flags;
	if ((in->flags & FUSE_INIT_EXT) != 0)
		offered |= (uint64_t)in->flags2 << 32;
	if (in->major != FUSE_KERNEL_VERSION || in->minor < MINOR_MIN) {
		(void)write_init(session, message, NULL,
				 -EPROTO); /* the connection is closed anyway */
		return refuse(why, -EPROTO,
			      "this kernel's FUSE is %u.%u, and 7.%u is the least that will do "
			      "(Linux 5.17)",
			      in->major, in->minor, MINOR_MIN);
	}
	uint64_t flags = offered & flags_of(session, offered);
	if (session->options.transport != LPI_FUSE_TRANSPORT_DEVICE) {
		const char *no_ring = make_ring(session, offered);
		if (no_ring == NULL)
			flags |= LPI_FUSE_OVER_IO_URING;
		else if (session->options.transport == LPI_FUSE_TRANSPORT_IO_URING)
			return refuse_init(session, message, no_ring, why);
	}
	struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
				    .minor = LP_MIN(in->minor, FUSE_KERNEL_MINOR_VERSION + 1),
				    .max_readahead = LP_MIN(in->max_readahead, MAX_READAHEAD),
				    .flags = (uint32_t)flags,
				    .flags2 = (uint32_t)(flags >> 32),
				    .max_background = LP_FUSE_BACKGROUND_MAX,
				    .congestion_threshold = CONGESTION,
				    .max_write = LP_FUSE_WRITE_MAX,
				    .time_gran = 1,
				    .max_pages =
					    lp_fuse_pages_max((uint64_t)sysconf(_SC_PAGESIZE))};
	session->options.behaviour.maps_direct = (flags & DIRECT_IO_ALLOW_MMAP) != 0;
	int err = write_init(session, message, &out, 0);
	return err < 0 ? refuse(why, err, "%s: the kernel refuses the mount: %s", session->dir,
				lp_strerror(err))
		       : 0;
}

static int greet(struct lp_fuse_session *session, char *why)
{
	static const char what[] = "the kernel does not begin";
	struct lp_fuse_message message = {.opcode = NULL};
	size_t size = LP_FUSE_WRITE_MAX + LP_BUF_SMALL;
	struct pollfd fd = {.fd = session->fd, .events = POLLIN};
	int cnt = poll(&fd, 1, INIT_TIMEOUT_MS);
	if (cnt <= 0)
		return refuse(why, -ETIMEDOUT, "%s: %s", session->dir, what);
	void *bytes = malloc(size);
	if (bytes == NULL)
		return refuse(why, -ENOMEM, "no memory");
	ssize_t len = read(session->fd, bytes, size);
	int err = len < 0 ? -errno : lp_fuse_decode(bytes, (uint32_t)len, &message);
	if (err == 0 && message.header.opcode != FUSE_INIT)
		err = -EPROTO;
	if (err < 0)
		(void)refuse(why, err, "%s: %s: %s", session->dir, what, lp_strerror(err));
	else
		err = answer_init(session, &message, why);
	free(bytes);
	return err;
}

/* --- From open to close ----------------------------------------------------------------------- */

/* Another process may have unmounted it, and mounted something else there. */
static bool is_gone(const struct lp_fuse_session *session)
{
	struct pollfd fd = {.fd = session->fd};
	return poll(&fd, 1, 0) == 1 && (fd.revents & POLLERR) != 0;
}

bool lp_fuse_session_is_dead(const struct lp_fuse_session *session)
{
	struct statx st;
	/* The attributes that the kernel remembers prove nothing. */
	return is_gone(session) &&
	       statx(AT_FDCWD, session->dir, AT_STATX_FORCE_SYNC, STATX_MODE, &st) < 0 &&
	       errno == ENOTCONN;
}

/* Whether the kernel lacks SELinux. If the kernel has it, it has its file system, whether or not
 * that is mounted. False: the kernel has it, or that cannot be seen. */
static bool lacks_selinux(void)
{
	FILE *file = fopen("/proc/filesystems", "re");
	char line[128];
	bool has_it = file == NULL;
	bool has_any = false;
	while (!has_it && fgets(line, sizeof(line), file) != NULL) {
		has_any = true;
		has_it = strstr(line, "selinuxfs") != NULL;
	}
	if (file != NULL)
		(void)fclose(file); /* it was only read */
	return has_any && !has_it;
}

int lp_fuse_session_open(const struct lp_fuse_session_options *options,
			 struct lp_fuse_session **ret_session, char *why)
{
	struct lp_fuse_session *session = calloc(1, sizeof(*session));
	if (session == NULL)
		return refuse(why, -ENOMEM, "no memory");
	session->fd = -1;
	session->abort_fd = -1;
	session->ring_bytes = options->ring_bytes;
	session->no_ring = options->no_ring;
	int err = lpi_fuse_options_parse(options->options, &session->options, why);
	session->options.behaviour.is_only_door = options->is_only_door;
	session->options.behaviour.no_selinux = lacks_selinux();
	if (err == 0)
		err = clear_dead(options->dir, why);
	if (err == 0) {
		session->dir = realpath(options->dir, NULL);
		if (session->dir == NULL)
			err = refuse(why, -errno, "%s: %s", options->dir, lp_strerror(errno));
	}
	if (err == 0)
		err = mount_it(session, options, why);
	if (err == 0) {
		session->abort_fd = open_abort(session);
		err = greet(session, why);
	}
	if (err == 0)
		guard_it(session);
	if (err < 0) {
		if (session->is_mounted && lpi_fuse_unmount(session->dir, true) < 0)
			LP_LOG_ERROR("%s: the mount that failed is still there", session->dir);
		lp_fuse_session_close(session);
		return err;
	}
	*ret_session = session;
	return 0;
}

int lp_fuse_session_clone(struct lp_fuse_session *session, int *ret_fd)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	uint32_t source = (uint32_t)session->fd;
	if (fd < 0)
		return -errno;
	if (ioctl(fd, FUSE_DEV_IOC_CLONE, &source) < 0) {
		int err = -errno;
		(void)close(fd); /* nothing was written */
		return err;
	}
	*ret_fd = fd;
	return 0;
}

void lp_fuse_session_behaviour(const struct lp_fuse_session *session,
			       struct lp_fuse_behaviour *ret_behaviour)
{
	*ret_behaviour = session->options.behaviour;
}

const char *lp_fuse_session_place(const struct lp_fuse_session *session, dev_t *ret_dev)
{
	*ret_dev = session->dev;
	return geteuid() == 0 ? session->dir : NULL;
}

/* Sets a figure that the kernel keeps for a device, in the device's directory; only root may. */
static void set_figure(dev_t device, const char *name, uint32_t figure)
{
	char path[64];
	char value[16];
	(void)snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/%s", major(device), minor(device),
		       name);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	int len = snprintf(value, sizeof(value), "%u\n", figure);
	if (write(fd, value, (size_t)len) < 0)
		LP_LOG_DEBUG("%s: %s", path, lp_strerror(errno));
	(void)close(fd); /* the result was write's */
}

/* By default the kernel reads 128 KiB ahead on any file system, and asks for no more at a time,
 * whatever INIT has agreed on. And it lets no more than a hundredth of its dirty pages wait for a
 * server that any user could have started, so it would write a few at a time. Our server is root's.
 */
static void set_figures(dev_t device)
{
	set_figure(device, "read_ahead_kb", MAX_READAHEAD / 1024);
	set_figure(device, "max_ratio", DIRTY_PERCENT);
}

static int ask_for_root(const struct lp_fuse_session *session)
{
	struct stat st;
	if (stat(session->dir, &st) < 0)
		return -errno;
	if (st.st_ino != LP_INO_ROOT.nr)
		return -EIO;
	set_figures(st.st_dev);
	return 0;
}

/* A request for the root on a thread of its own, so that the waiting thread can give up. */
struct probe {
	const struct lp_fuse_session *session;
	int done_fd;
	int result;
};

static void *run_probe(void *arg)
{
	struct probe *probe = arg;
	probe->result = ask_for_root(probe->session);
	if (eventfd_write(probe->done_fd, 1) < 0)
		probe->result = -errno;
	return NULL;
}

static uint64_t mono_ns(void)
{
	return lp_clock_mono_ns(lp_clock_system());
}

/* False: it did not end in time. */
static bool wait_for_probe(const struct probe *probe)
{
	struct pollfd fd = {.fd = probe->done_fd, .events = POLLIN};
	uint64_t from_ns = mono_ns();
	for (;;) {
		bool is_refused = lp_fuse_ring_is_refused(probe->session->ring);
		if (poll(&fd, 1, PROBE_STEP_MS) == 1)
			return true;
		if (mono_ns() - from_ns > (is_refused ? REFUSED_TIMEOUT_NS : RING_TIMEOUT_NS))
			return false;
	}
}

/* After the answer to INIT the kernel holds back all requests until each queue has an entry. If the
 * kernel's FUSE has heard that an entry cannot be had, the descriptors serve. It never hears of
 * entries that another part of the kernel, such as a security policy, has refused. */
static int probe_ring(struct lp_fuse_session *session)
{
	struct probe probe = {.session = session, .done_fd = eventfd(0, EFD_CLOEXEC)};
	pthread_t thread;
	if (probe.done_fd < 0)
		return -errno;
	int err = -pthread_create(&thread, NULL, run_probe, &probe);
	if (err == 0) {
		bool is_late = !wait_for_probe(&probe);
		if (is_late) {
			session->is_mounted = lpi_fuse_unmount(session->dir, true) < 0;
			end_connection(session);
		}
		(void)pthread_join(thread, NULL); /* it is ours */
		err = is_late ? -ETIMEDOUT : probe.result;
	}
	(void)close(probe.done_fd); /* no thread reads it */
	return err;
}

int lp_fuse_session_probe(struct lp_fuse_session *session)
{
	return session->ring == NULL ? ask_for_root(session) : probe_ring(session);
}

static int unmount(const struct lp_fuse_session *session, uint64_t timeout_ns)
{
	const struct timespec pause = {.tv_nsec = (long)BUSY_PAUSE_NS};
	uint64_t waited_ns = 0;
	while (!is_gone(session)) {
		int err = lpi_fuse_unmount(session->dir, false);
		if (err != -EBUSY)
			return err == -EINVAL ? 0 : err;
		if (waited_ns >= timeout_ns) {
			err = lpi_fuse_unmount(session->dir, true);
			return err == 0 ? -EBUSY : err;
		}
		(void)nanosleep(&pause, NULL); /* a shorter pause will do */
		waited_ns += BUSY_PAUSE_NS;
	}
	return 0;
}

int lp_fuse_session_unmount(struct lp_fuse_session *session, uint64_t timeout_ns)
{
	if (!session->is_mounted)
		return 0;
	session->is_mounted = false;
	/* An ended connection looks like one whose mount has gone. */
	if (lp_fuse_ring_is_broken(session->ring) || lp_fuse_session_is_dead(session))
		return lp_fuse_umount(session->dir, true);
	int err = unmount(session, timeout_ns);
	/* The mount is in use, or also mounted where we cannot see it. */
	if (session->ring != NULL && !is_gone(session))
		end_connection(session);
	return err;
}

/* A detached mount with open files is not gone. Closing its descriptor ends it. The descriptor is
 * replaced by one that looks like a dead connection: the end of a pipe that has no reader. */
static void sever(const struct lp_fuse_session *session)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) < 0)
		return;
	(void)close(ends[0]);                        /* nothing was written */
	(void)dup3(ends[1], session->fd, O_CLOEXEC); /* if this fails a path is lost: no harm */
	(void)close(ends[1]);
}

void lp_fuse_session_close(struct lp_fuse_session *session)
{
	if (session == NULL)
		return;
	if (session->fd >= 0 && !is_gone(session))
		sever(session);
	/* libfuse closes the descriptor and forgets the path. It would also unmount any mount
	 * there, if ours were not gone. */
	if (session->fd >= 0 && is_gone(session))
		fuse_session_unmount(session->fuse);
	if (session->fuse != NULL)
		fuse_session_destroy(session->fuse);
	lpi_fuse_guard_stop(session->guard);
	if (session->abort_fd >= 0)
		(void)close(session->abort_fd); /* the result was write's */
	lp_fuse_ring_free(session->ring);
	free(session->dir);
	free(session);
}
