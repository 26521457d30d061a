MODULES += daemon
# client: for client_door_test.c only.
daemon_USES := fuse namespace client wire store base
daemon_PROGS := lapisd
daemon_HELPERS := lapis_mount_guard
