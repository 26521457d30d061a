#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: no load of fio on the mount, nor of `lapis bench` on the sockets, makes the daemon hang, give an error or
# wrong data, or leaves a store that is not whole.
# Method: the short form of tests/strangers/matrix: every two values of its parameters meet in some cell. Before
# that the watchdog shows that it can see a hang, and a pause: in one cell the daemon is stopped in the middle of the
# load, and goes on after a moment, or does not.
# timeout: 420
# variants: release
set -u
cd "$LP_TEST_SCRATCH" || exit 1
matrix=$LP_TEST_SRC/tests/strangers/matrix

if [ "$(id -u)" != 0 ] || [ ! -c /dev/fuse ]; then
	echo "a mount needs root and /dev/fuse"
	exit 77
fi
if ! command -v fio >/dev/null; then
	echo "no fio: scripts/deps --dev"
	exit 77
fi

fail()
{
	echo "FAIL: $*"
	exit 1
}

frozen=mount.psync.direct.d1.j4.4k.randwrite.sparse.smallest.s2.empty.through.alone
"$matrix" --short --build "$LP_TEST_BUILD" --results frozen --only $frozen --freeze 0 >out &&
	fail "a daemon that does not run goes unnoticed: $(cat out)"
grep -q "^FAIL $frozen .*HANG: nothing moved" out || fail "it does not say what hangs: $(cat out)"
for file in report.txt stats.json stuck.txt kernel-stacks.txt stacks.txt daemon.log; do
	[ -s "frozen/$frozen/$file" ] || fail "of a hang there is no $file"
done
grep -q -- "--only $frozen" "frozen/$frozen/report.txt" || fail "the report does not say how to see it again"
grep -q 'state T' "frozen/$frozen/kernel-stacks.txt" || fail "the report does not show the daemon's threads"
grep -q "$PWD" /proc/mounts && fail "a hang leaves a mount"

"$matrix" --short --build "$LP_TEST_BUILD" --results paused --only $frozen --freeze 0 --thaw 3 >out &&
	fail "a pause is no failure: $(cat out)"
grep -q "^slow $frozen .*PAUSE: for" out || fail "it does not say what pauses: $(cat out)"
grep -q "^again $frozen" out || fail "what has paused is not run again: $(cat out)"
grep -q "^FAIL $frozen .*PAUSE: for" out || fail "what pauses each time has not failed: $(cat out)"

"$matrix" --short --build "$LP_TEST_BUILD" --results results --minutes 1.5 || fail "see above"
