MODULES += daemon
daemon_USES := namespace wire store base
