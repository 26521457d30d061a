/* SPDX-License-Identifier: Apache-2.0 */
/* The program lapisd: from its arguments to its exit status.
 *
 * Signals are blocked and read from a descriptor by the control thread's ring. A first SIGTERM or
 * SIGINT stops in order, a second one at once. Acknowledged changes are in the log either way.
 * SIGHUP reads the arguments and the configuration once more. If it comes before the daemon serves,
 * it takes effect then. */
#include <fcntl.h>
#include <grp.h>
#include <liburing.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/stdfds.h"
#include "daemon/config/config.h"
#include "daemon/notify.h"
#include "daemon/report/heap.h"
#include "daemon/resolve.h"
#include "daemon/service.h"

#define EXIT_FAILED 1
#define EXIT_USAGE  2

struct program {
	struct lp_config config;
	struct lp_service *service;
	const char *notify_path;
	char name[64];
	uint32_t uid; /* to change to; UINT32_MAX: no change */
	uint32_t gid;
	int signal_fd;
	struct signalfd_siginfo signal;
	struct lp_io signal_io;
	struct lp_io cancel_io;
	bool is_ended;
	bool wants_reload; /* a reload was requested before it served */
	int argc;
	char **argv;
};

static int fail(int status, const char *why)
{
	char clean[2 * LP_WHY_MAX];
	(void)lp_log_escape(why, strlen(why), clean, sizeof(clean));
	(void)fprintf(stderr, "lapisd: %s\n", clean);
	return status;
}

static int print_help(void)
{
	static char text[8192];
	(void)lp_config_format_help(text, sizeof(text));
	(void)printf("usage: lapisd [OPTION ...] --listen ADDRESS [DEVICE]\n\n"
		     "Serves the Lapis store on DEVICE, in the foreground.\n\n"
		     "  --config FILE             options from a file, NAME = VALUE in each line\n"
		     "%s"
		     "  --help, -h                this text\n"
		     "  --version                 version and memory allocator\n",
		     text);
	return EXIT_SUCCESS;
}

/* --- Signals ---------------------------------------------------------------------------------- */

static void read_signal(struct program *program);

/* Reads the arguments again, and the files that they name as they are now. */
static void reload_config(struct program *program)
{
	static struct lp_config wanted; /* the control thread's */
	struct lp_config_call call = {.help = false};
	char why[LP_WHY_MAX];
	lp_config_init(&wanted);
	if (lp_config_parse_flags(&wanted, program->argc, program->argv, &call, why) < 0)
		LP_LOG_ERROR("reload: the configuration stays as it was: %s", why);
	else
		program->wants_reload = !lp_service_reload(program->service, &wanted);
}

static void reload(struct program *program)
{
	const char *path = lp_config_text(&program->config, LP_OPT_LOG_FILE);
	LP_LOG_NOTICE("reloading, by signal %u", program->signal.ssi_signo);
	int err = path != NULL ? lp_log_open_file(path) : 0;
	if (err < 0)
		LP_LOG_ERROR(
			"reload: log-file: cannot open %.200s: %s: the old log file stays open",
			path, lp_strerror(err));
	else if (path != NULL)
		LP_LOG_NOTICE("reload: the log file is open again");
	reload_config(program);
}

static void got_signal(struct lp_io *io)
{
	static bool is_second;
	struct program *program = LP_CONTAINER_OF(io, struct program, signal_io);
	if (program->is_ended || io->result == -ECANCELED)
		return;
	if (io->result != (int)sizeof(program->signal)) {
		read_signal(program);
		return;
	}
	if (program->signal.ssi_signo == SIGHUP) {
		reload(program);
		read_signal(program);
		return;
	}
	if (is_second) {
		LP_LOG_WARN("stopped at once, by a second signal: the next start recovers");
		_exit(EXIT_FAILED);
	}
	is_second = true;
	LP_LOG_NOTICE("stopping, by signal %u", program->signal.ssi_signo);
	read_signal(program);
	lp_service_stop(program->service);
}

static void read_signal(struct program *program)
{
	struct lp_reactor *reactor = lp_service_reactor(program->service);
	struct io_uring_sqe *sqe = lp_reactor_sqe(reactor, &program->signal_io);
	io_uring_prep_read(sqe, program->signal_fd, &program->signal, sizeof(program->signal), 0);
}

static void cancelled(struct lp_io *io)
{
	(void)io; /* the read's own completion has its result */
}

static int watch_signals(struct program *program)
{
	sigset_t set;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	/* nohup(1) has SIGHUP ignored; then it would never arrive. */
	if (signal(SIGHUP, SIG_DFL) == SIG_ERR || signal(SIGPIPE, SIG_IGN) == SIG_ERR ||
	    pthread_sigmask(SIG_BLOCK, &set, NULL) != 0)
		return -errno;
	program->signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	return program->signal_fd < 0 ? -errno : 0;
}

static void unwatch_signals(struct program *program)
{
	struct lp_reactor *reactor = lp_service_reactor(program->service);
	program->is_ended = true;
	struct io_uring_sqe *sqe = lp_reactor_sqe(reactor, &program->cancel_io);
	io_uring_prep_cancel(sqe, &program->signal_io, 0);
	while (!lp_io_is_idle(&program->signal_io) || !lp_io_is_idle(&program->cancel_io))
		(void)lp_reactor_turn(reactor, true);
	(void)close(program->signal_fd); /* it was only read */
}

/* --- Notifications ---------------------------------------------------------------------------- */

static void is_ready(void *arg)
{
	struct program *program = arg;
	(void)printf("lapisd: ready\n");
	(void)fflush(stdout); /* it is lost if there is no reader */
	(void)lpi_notify(program->notify_path, "READY=1");
	if (program->wants_reload)
		reload_config(program);
}

static void is_stopping(void *arg)
{
	struct program *program = arg;
	(void)lpi_notify(program->notify_path, "STOPPING=1");
}

static void found_corruption(const struct lp_corruption *found, void *arg)
{
	char text[LP_WHY_MAX];
	(void)arg;
	(void)lp_corruption_to_text(found, text, sizeof(text));
	LP_LOG_ERROR("damaged: %s", text);
}

/* --- Pidfile and rights ----------------------------------------------------------------------- */

static int write_pidfile(const char *path, char *why)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	ssize_t written = fd < 0 ? -1 : write(fd, text, (size_t)len);
	int err = written == len ? 0 : -errno;
	if (fd >= 0 && close(fd) < 0 && err == 0)
		err = -errno;
	return err < 0 ? lpi_refuse(why, err, "pidfile: %.200s: %s", path, lp_strerror(err)) : 0;
}

static int drop_rights(const struct program *program, char *why)
{
	const char *user = lp_config_text(&program->config, LP_OPT_USER);
	if (user == NULL || program->uid == geteuid())
		return 0;
	if (initgroups(user, program->gid) < 0 || setgid(program->gid) < 0 ||
	    setuid(program->uid) < 0)
		return lpi_refuse(why, -errno, "user: cannot become %.100s: %s", user,
				  lp_strerror(errno));
	return 0;
}

/* --- From start to end ------------------------------------------------------------------------ */

static int parse(struct program *program, int argc, char **argv, struct lp_config_call *call,
		 char *why)
{
	lp_config_init(&program->config);
	int err = lp_config_parse_flags(&program->config, argc, argv, call, why);
	if (err < 0 || call->help || call->version)
		return err;
	const char *user = lp_config_text(&program->config, LP_OPT_USER);
	program->uid = UINT32_MAX;
	program->gid = UINT32_MAX;
	if (user == NULL)
		return 0;
	char reason[LP_WHY_MAX];
	err = lpi_resolve_user(user, &program->uid, &program->gid, reason);
	return err < 0 ? lpi_refuse(why, err, "user: %.300s", reason) : 0;
}

/* When the kernel needs memory, it may write to a file system that is mounted here, or that lies on
 * a device of ours, and wait for the write. The daemon must not wait for that in turn. All threads
 * inherit the flag. Without CAP_SYS_RESOURCE, or on an older kernel, the flag cannot be set, and
 * the daemon runs without it. */
static void be_io_flusher(void)
{
	(void)prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
}

/* Each connection and each file of a store in files takes a descriptor. The usual soft limit exists
 * for programs that cannot handle larger numbers (select). */
static void take_all_files(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit); /* if it fails there are fewer files */
}

static int open_log(const struct program *program, char *why)
{
	const char *path = lp_config_text(&program->config, LP_OPT_LOG_FILE);
	int err = path != NULL ? lp_log_open_file(path) : 0;
	return err < 0 ? lpi_refuse(why, err, "log-file: %.200s: %s", path, lp_strerror(err)) : 0;
}

static int start(struct program *program, char *why)
{
	const struct lp_service_options options = {.config = &program->config,
						   .server_name = program->name,
						   .uid = program->uid,
						   .gid = program->gid,
						   .ready = is_ready,
						   .stopping = is_stopping,
						   .arg = program};
	const char *pidfile = lp_config_text(&program->config, LP_OPT_PIDFILE);
	int err = lp_service_open(&options, &program->service, why);
	if (err < 0)
		return err;
	if (pidfile != NULL)
		err = write_pidfile(pidfile, why);
	if (err == 0)
		err = drop_rights(program, why);
	if (err == 0)
		err = lp_service_start(program->service, why);
	if (err < 0)
		lp_service_close(program->service);
	if (err < 0 && pidfile != NULL)
		(void)unlink(pidfile); /* it may not have been made */
	return err;
}

static int run(struct program *program, char *why)
{
	const char *pidfile = lp_config_text(&program->config, LP_OPT_PIDFILE);
	program->signal_io.complete = got_signal;
	program->cancel_io.complete = cancelled;
	read_signal(program);
	int err = lp_service_run(program->service, why);
	unwatch_signals(program);
	lp_service_close(program->service);
	if (pidfile != NULL)
		(void)unlink(pidfile); /* another user may not: it names no process then */
	return err;
}

int main(int argc, char **argv)
{
	static struct program program;
	struct lp_config_call call = {.help = false};
	char why[LP_WHY_MAX] = "";
	int err = lp_stdfds_hold();
	if (err < 0)
		return fail(EXIT_FAILED, lp_strerror(err));
	if (parse(&program, argc, argv, &call, why) < 0)
		return fail(EXIT_USAGE, why);
	if (call.help)
		return print_help();
	(void)snprintf(program.name, sizeof(program.name), "lapisd %s (%s)", LAPIS_VERSION,
		       lpi_heap_name());
	if (call.version) {
		(void)puts(program.name);
		return EXIT_SUCCESS;
	}
	/* The environment is read while there is only one thread. */
	const char *journal = getenv("JOURNAL_STREAM"); /* NOLINT(concurrency-mt-unsafe) */
	lp_log_init(lp_clock_system(), STDERR_FILENO, journal);
	lp_log_set_level((enum lp_log_level)lp_config_number(&program.config, LP_OPT_LOG_LEVEL));
	lp_corruption_set_sink(found_corruption, NULL);
	program.notify_path = getenv("NOTIFY_SOCKET"); /* NOLINT(concurrency-mt-unsafe) */
	be_io_flusher();
	take_all_files();
	program.argc = argc;
	program.argv = argv;
	err = watch_signals(&program);
	if (err < 0)
		return fail(EXIT_FAILED, lp_strerror(err));
	if (open_log(&program, why) < 0)
		return fail(EXIT_FAILED, why);
	err = start(&program, why);
	if (err < 0)
		return fail(err == -EINVAL || err == -EOPNOTSUPP ? EXIT_USAGE : EXIT_FAILED, why);
	err = run(&program, why);
	if (err < 0)
		return fail(EXIT_FAILED, why[0] != '\0' ? why : lp_strerror(err));
	LP_LOG_NOTICE("stopped");
	return EXIT_SUCCESS;
}
