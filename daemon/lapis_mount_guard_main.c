/* SPDX-License-Identifier: Apache-2.0 */
/* Ends the connection of a mount when its daemon is gone (fuse/mount/guard.h).
 *
 *   lapis_mount_guard PID      PID has started it; the descriptor that ends the connection is
 * standard input
 *
 * It waits for the end of the thread that has started it, and does nothing else. It ignores signals
 * that end the daemon in order, because those may be sent to all processes of a terminal or a
 * service. The daemon ends it when the mount has gone. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static const int others[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
	sigset_t gone;
	int got = 0;
	if (argc != 2)
		return 2;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		(void)signal(others[i], SIG_IGN);
	(void)sigemptyset(&gone);
	(void)sigaddset(&gone, SIGUSR1);
	if (pthread_sigmask(SIG_SETMASK, &gone, NULL) != 0 || chdir("/") < 0 ||
	    prctl(PR_SET_PDEATHSIG, SIGUSR1) < 0)
		return 1;
	/* The parent may have ended before its end could be signalled. */
	if (getppid() == (pid_t)strtol(argv[1], NULL, 10))
		(void)sigwait(&gone, &got);
	return write(STDIN_FILENO, "1", 1) == 1 ? 0 : 1;
}
