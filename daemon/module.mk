MODULES += daemon
daemon_ROOMS := config report .
daemon_USES := native fuse namespace wire store base
daemon_PROGS := lapisd
daemon_HELPERS := lapis_mount_guard
