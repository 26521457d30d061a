#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: on the mount programs find what they find on ext4, where posix_ext4.sh holds that each of the
# cases of tests/posix passes.
# Method: the cases of tests/posix, but for those of thousands of system calls, on a mount of a store
# of two shards: none may fail but what tests/posix/differences.md argues. Without sockets the kernel
# caches more, so some are run again in that way. Whatever they did, the store is whole afterwards.
# With --all all cases are run, as by `make posix`.
# timeout: 480
# variants: release
set -u
. "$LP_TEST_SRC/tests/lib.sh"
suite=$LP_TEST_SRC/tests/posix
address=unix:$PWD/sock
which=--quick
[ "${1:-}" = --all ] && which=

if [ "$(id -u)" != 0 ] || [ ! -c /dev/fuse ]; then
	echo "a mount needs root and /dev/fuse"
	exit 77
fi

trap 'umount -l "$PWD/mnt" 2>/dev/null; end_daemon' EXIT
trap 'exit 1' TERM INT

# start ARG...: a daemon with the mount.
start()
{
	serve --memory 384M --mount "$PWD/mnt" "$@" a.img
}

stop()
{
	end_daemon TERM
	expect 0 'clean|no problem|ok' fsck a.img
}

# cases ARG...: none fails.
cases()
{
	"$suite/run" mnt --as lapis "$@" >found 2>&1 || say "cases differ from ext4"
	grep -v '^skip ' found
	[ -z "$(find mnt -mindepth 1 -name 'posix-*')" ] || say "something is left behind"
	# Here they are, and are not skipped as on a file system that has none.
	! grep '^skip flags\.' found || say "flags of inodes are not kept"
}

mkdir mnt
expect 0 'shards' mkfs --size 1G --shards 2 a.img
start --listen "$address"
cases $which
stop
# The kernel is told to believe for a day what it has asked for.
start
cases --quick --only dirs.
cases --quick --only rename.
stop
finish
