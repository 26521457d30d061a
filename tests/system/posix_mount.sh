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
lapisd=$LP_TEST_BUILD/bin/lapisd
suite=$LP_TEST_SRC/tests/posix
address=unix:$PWD/sock
which=--quick
pid=
[ "${1:-}" = --all ] && which=

if [ "$(id -u)" != 0 ] || [ ! -c /dev/fuse ]; then
	echo "a mount needs root and /dev/fuse"
	exit 77
fi

end_all()
{
	umount -l "$PWD/mnt" 2>/dev/null
	[ -n "$pid" ] && kill -KILL "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
}
trap end_all EXIT
trap 'exit 1' TERM INT

# start ARG...: a daemon with the mount.
start()
{
	local i
	rm -f lapisd.out
	"$lapisd" --memory 384M --mount "$PWD/mnt" "$@" a.img >lapisd.out 2>lapisd.err &
	pid=$!
	for ((i = 0; i < 600; i++)); do
		grep -qs '^lapisd: ready$' lapisd.out && return
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.05
	done
	say "not ready: $(cat lapisd.err)"
	exit 1
}

stop()
{
	kill -TERM "$pid"
	wait "$pid"
	local status=$?
	pid=
	[ "$status" = 0 ] || say "exit status $status after SIGTERM: $(cat lapisd.err)"
	expect 0 'clean|no problem|ok' fsck a.img
}

# cases ARG...: none fails.
cases()
{
	"$suite/run" mnt --as lapis "$@" >found 2>&1 || say "cases differ from ext4"
	grep -v '^skip ' found
	[ -z "$(find mnt -mindepth 1 -name 'posix-*')" ] || say "something is left behind"
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
