#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: an sqlite database on the mount keeps every transaction that it acknowledged (rule M1), whether
# sqlite is killed or the daemon beneath it, with a rollback journal and with a write-ahead log.
# Method: two processes at one database, which note what was acknowledged outside of the mount; both
# are killed, or the daemon is, in the middle of it; then tests/real/sqlite_client.py judges what is
# there, and they go on. The rollback journal is tried beside sockets, the log without and with the
# kernel's writeback cache.
# timeout: 240
# variants: release
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
client=$LP_TEST_SRC/tests/real/sqlite_client.py
transactions=30
workers=()

# begin MODE: two workers, each with a log of its own.
begin()
{
	local i
	workers=()
	for i in 1 2; do
		touch "$1.log$i"
		python3 "$client" work "$dir/$1.db" "$i" "$PWD/$1.log$i" >"$1.out$i" 2>&1 &
		workers+=("$!")
		pids+=("$!")
	done
}

# has_lines FILE COUNT
has_lines()
{
	[ "$(wc -l <"$1")" -ge "$2" ]
}

# let_work MODE: until each has done something.
let_work()
{
	local i wanted=()
	begin "$1"
	for i in 1 2; do
		wanted[i]=$(($(wc -l <"$1.log$i") + transactions))
	done
	for i in 1 2; do
		await "$1: transactions of worker $i" has_lines "$1.log$i" "${wanted[i]}" || cat "$1.out$i"
	done
}

check()
{
	python3 "$client" check "$dir/$1.db" 1 "$1.log1" 2 "$1.log2" >check.out 2>&1 ||
		say "$2: $(head -n 5 check.out)"
	grep -l WRONG "$1".out* && say "$2: $(cat "$1".out*)"
}

# rounds MODE ARG...: of kills of sqlite, and of the daemon.
rounds()
{
	local mode=$1 round worker
	shift
	for ((round = 1; round <= 3; round++)); do
		let_work "$mode"
		kill -KILL "${workers[@]}"
		wait "${workers[@]}" 2>/dev/null
		check "$mode" "$mode: sqlite was killed, $round"
	done
	for ((round = 1; round <= 2; round++)); do
		let_work "$mode"
		kill_daemon
		# They are told so: by an error, or by SIGBUS where they use what they have mapped.
		for worker in "${workers[@]}"; do
			await "$mode: the end of a worker whose mount is dead" is_gone "$worker" || exit 1
			wait "$worker" && say "$mode: a worker succeeds on a dead mount"
		done
		quietly umount "$dir"
		start "$mode-again$round" "$@"
		check "$mode" "$mode: the daemon was killed, $round"
	done
}

python3 -c 'import sqlite3' 2>/dev/null || {
	echo "this Python has no sqlite3"
	exit 77
}
make_store 512M
listen=(--listen "unix:$PWD/sock")
start first "${listen[@]}"
python3 "$client" make "$dir/delete.db" delete || say "cannot make a database"
rounds delete "${listen[@]}"
stop
start second
python3 "$client" make "$dir/wal.db" wal || say "cannot make a database"
rounds wal
stop
start third --mount-options writeback
python3 "$client" make "$dir/back.db" wal || say "cannot make a database"
rounds back --mount-options writeback
check wal "the database of before"
check delete "the first database"
stop
whole
finish
