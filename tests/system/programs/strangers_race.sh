#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: who reads a file on the mount or through a socket sees what was acknowledged before, in whatever way it is
# read and changed.
# Method: tools/race runs each way to read beside each way to change, a moment each, with a model in shared memory;
# what ext4 shows as well is no fault. With sockets and without, and with the kernel's writeback cache. The program
# itself must see stale data: on a file that something else changes meanwhile everything is wrong.
# timeout: 480
# variants: release
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
race="$LP_TEST_BUILD/tools/race"
address=unix:$PWD/sock
seconds=${LP_RACE_SECONDS:-0.12}

# judged NAME ARG...: no pair is bad.
judged()
{
	local name=$1
	shift
	mkdir -p "$dir/race" "$ext4/race"
	"$race" --seconds "$seconds" "$@" "$dir/race" >"$name.out" 2>"$name.err" ||
		say "$name: $(grep -E '^FAIL|HANG|FAILED|^race: [0-9]' "$name.out"; head -n 5 "$name.err")"
}

mount_ext4 256M
mkdir "$ext4/race"

# It can see what is wrong: the file's blocks are each other's.
(
	for ((i = 0; i < 200; i++)); do
		dd if=/dev/zero of="$ext4/race/pread-pwrite" bs=4096 count=64 conv=notrunc status=none
	done
) &
disturbing=$!
"$race" --seconds 0.5 --pairs pread:pwrite "$ext4/race" >disturbed.out 2>&1 && say "zeros over data go unnoticed"
grep -q '^FAIL pread:pwrite' disturbed.out || say "it does not say what is bad: $(cat disturbed.out)"
kill "$disturbing" 2>/dev/null
wait "$disturbing" 2>/dev/null

make_store 1G
start sockets --listen "$address"
judged sockets --control "$ext4/race" --socket "$address" --key race
stop
start alone
judged alone --seed 2
stop
start writeback --listen "$address" --mount-options writeback
judged writeback --seed 3 --socket "$address" --key race --synced
stop
whole
finish
