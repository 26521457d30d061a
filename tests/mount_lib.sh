# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What tests of the mount share: a store in the file a.img, a daemon that has it mounted on mnt, another
# file system to compare with. After lib.sh: `. "$LP_TEST_SRC/tests/mount_lib.sh"`. Whatever the end
# is, nothing stays mounted, and every process whose number is in `pids` is ended.
# shellcheck disable=SC2154 # lib.sh sets lapis
lapisd="$LP_TEST_BUILD/bin/lapisd"
pids=()
dir=$PWD/mnt
ext4=$PWD/ext4
PATH=$PATH:/usr/sbin:/sbin

if [ "$(id -u)" != 0 ] || [ ! -c /dev/fuse ]; then
	echo "a mount needs root and /dev/fuse"
	exit 77
fi

end_all()
{
	local pid
	umount -l "$dir" 2>/dev/null
	for pid in "${pids[@]}"; do
		kill -KILL "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
	done
	umount -l "$ext4" 2>/dev/null
}
trap end_all EXIT
trap 'exit 1' TERM INT

# needs COMMAND...: skips the test where one of them is not installed.
needs()
{
	local command
	for command in "$@"; do
		command -v "$command" >/dev/null && continue
		echo "no $command: scripts/deps --dev"
		exit 77
	done
}

# quietly ARG...: lapis succeeds and says nothing.
quietly()
{
	"$lapis" "$@" >out 2>&1 || say "lapis $*: $(cat out)"
	[ ! -s out ] || say "lapis $*: says something: $(cat out)"
}

# make_store SIZE: with two shards, and where it is to be mounted.
make_store()
{
	expect 0 'shards' mkfs --size "$1" --shards 2 a.img
	mkdir -p "$dir"
}

# launch NAME ARG...: a daemon with the mount, until it says "ready"; its output is in NAME.out and
# NAME.err. Sets $pid.
launch()
{
	local name=$1 i
	shift
	rm -f "$name.out"
	"$lapisd" --memory 256M --mount "$dir" "$@" a.img >"$name.out" 2>"$name.err" &
	pid=$!
	pids+=("$pid")
	for ((i = 0; i < 600; i++)); do
		grep -qs '^lapisd: ready$' "$name.out" && break
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.05
	done
	grep -qs '^lapisd: ready$' "$name.out" || {
		say "$name: not ready: $(cat "$name.err")"
		exit 1
	}
}

# start NAME ARG...: the same, and the mount answers.
start()
{
	launch "$@"
	[ "$(stat -c %i "$dir")" = 1 ] || say "$1: ready, but the mount does not answer"
}

stop()
{
	kill -TERM "$pid"
	wait "$pid"
	local status=$?
	[ "$status" = 0 ] || say "exit status $status after SIGTERM"
	mountpoint -q "$dir" && say "still mounted after SIGTERM"
}

# kill_daemon: kill -9, and the mount says so; the kernel notices a moment later, when it has taken
# the daemon's ring apart.
kill_daemon()
{
	local i
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null
	for ((i = 0; i < 100; i++)); do
		ls "$dir" >ls.out 2>&1
		grep -q 'not connected' ls.out && return
		sleep 0.1
	done
	say "a mount without a daemon does not say so: $(cat ls.out)"
}

# await WHAT COMMAND...: until the command succeeds, for a minute.
await()
{
	local what=$1 i
	shift
	for ((i = 0; i < 1200; i++)); do
		"$@" && return 0
		sleep 0.05
	done
	say "waited for it in vain: $what"
	return 1
}

# is_gone PID: a process that has ended, even where nobody has waited for it yet.
is_gone()
{
	! readlink "/proc/$1/exe" >/dev/null 2>&1
}

# whole: the store is, to its last byte.
whole()
{
	expect 0 'clean|no problem|ok' fsck --deep a.img
}

# mount_ext4 SIZE: an empty one, which is what others take for right; skips where there can be none.
mount_ext4()
{
	needs mkfs.ext4
	truncate -s "$1" ext4.img
	mkfs.ext4 -q -b 4096 -E lazy_itable_init=1,lazy_journal_init=1 ext4.img || exit 1
	mkdir "$ext4"
	if ! mount -o loop ext4.img "$ext4"; then
		echo "no loop devices"
		exit 77
	fi
}
