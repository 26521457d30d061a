#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: what was acknowledged is what everybody sees: mappings and reads through the kernel's cache, beside
# writes through it and direct writes by AIO and io_uring; beside a file that grows; and what comes through
# sockets.
# Method: tools/stale on the mount, with sockets and without, as it is and with writeback, each case a moment;
# and on the file system of the scratch directory, which shows that the program itself finds nothing.
# LP_STALE_SECONDS=300 is a long run. It needs root and /dev/fuse.
# timeout: 240
# variants: release
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
seconds=${LP_STALE_SECONDS:-0.7}
stale=$LP_TEST_BUILD/tools/stale
address=unix:$PWD/sock

# look NAME ARG...
look()
{
	local name=$1
	shift
	"$stale" --seconds "$seconds" "$@" >"$name.stale" 2>&1 && return
	say "$name: $(grep -v ', 0 of them' "$name.stale")"
	# Whether somebody was answered before the kernel had been told, which the daemon says.
	[ ! -f "$name.err" ] || grep -E ' (warn|error): ' "$name.err"
}

look control --skip-mixed "$PWD/control"

make_store 512M
for mode in plain writeback; do
	options=()
	skips=()
	socket=(--socket "$address" file)
	# Of two that write one block the kernel hands over the whole block then, and it believes its own end.
	if [ "$mode" = writeback ]; then
		options=(--mount-options writeback)
		skips=(--skip-mixed)
		socket=()
	fi
	start "$mode" "${options[@]}"
	look "$mode" "${skips[@]}" mnt/file
	stop
	start "$mode-sockets" "${options[@]}" --listen "$address"
	look "$mode-sockets" "${skips[@]}" "${socket[@]}" mnt/file
	told=$("$lapis" -s "$address" stats --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["mount"]["dropped"])')
	[ "$told" -gt 0 ] || say "$mode: the kernel was never told to drop anything"
	# With direct handles only nothing is cached, and nothing is told.
	dd if=/dev/zero of=mnt/direct bs=1M count=4 oflag=direct conv=notrunc 2>dd.err || say "dd: $(cat dd.err)"
	dd if=mnt/direct of=/dev/null bs=1M iflag=direct 2>dd.err || say "dd: $(cat dd.err)"
	dd if=/dev/zero of=mnt/direct bs=4k count=64 oflag=direct conv=notrunc 2>dd.err || say "dd: $(cat dd.err)"
	again=$("$lapis" -s "$address" stats --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["mount"]["dropped"])')
	[ "$again" = "$told" ] || say "$mode: direct writes alone: the kernel was told $((again - told)) times"
	stop
done
whole
finish
