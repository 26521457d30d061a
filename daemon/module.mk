MODULES += daemon
daemon_USES := namespace wire store base
daemon_PROGS := lapisd
