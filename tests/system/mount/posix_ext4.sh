#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: the cases of tests/posix are right: on ext4 each passes or is argued; and they can fail.
# Method: all of them on an ext4 image on a loop device. Then the same file system is mounted
# noatime, where the cases of reading must fail, and only these; the comparison of both results
# names them. A case that differences.md argues, but which passes, must count as failed.
# timeout: 240
# variants: release
set -u
cd "$LP_TEST_SCRATCH" || exit 1
suite=$LP_TEST_SRC/tests/posix

if [ "$(id -u)" != 0 ]; then
	echo "only root can mount"
	exit 77
fi
if ! command -v mkfs.ext4 >/dev/null; then
	echo "no mkfs.ext4: scripts/deps --dev"
	exit 77
fi

stop()
{
	mountpoint -q m && umount m
	true
}
trap stop EXIT
trap 'exit 1' TERM INT

fail()
{
	echo "$*"
	exit 1
}

truncate -s 1G image
mkfs.ext4 -q -E lazy_itable_init=1,lazy_journal_init=1 image || exit 1
mkdir m
if ! mount -o loop,relatime image m; then
	echo "no loop devices"
	exit 77
fi

"$suite/run" m --json all.json || fail "a case fails on ext4"
[ -z "$(find m -mindepth 1 -name 'posix-*')" ] || fail "something is left behind"

"$suite/run" m --only times.read --json relatime.json >/dev/null || fail "times.read fails"
mount -o remount,noatime m || exit 1
"$suite/run" m --only times.read --json noatime.json >found && fail "it does not notice noatime"
grep -q '^FAIL times.read_after_a_write: atime of f changed: expected True, found False' found ||
	fail "it does not say what is wrong: $(cat found)"
"$suite/run" --compare relatime.json noatime.json >found && fail "the comparison finds nothing"
grep -q '^times.read_after_a_write:' found || fail "the comparison does not name it: $(cat found)"
grep -q '^times.read_with_noatime:' found && fail "the comparison names what is alike"

# As if it were xfs, for which this case is argued.
"$suite/run" m --as xfs --only link.symlink_reads_back >found &&
	fail "what is argued but passes goes unnoticed"
grep -q '^0 passed, 1 failed, 0 skipped$' found || fail "the last line is wrong: $(cat found)"
"$suite/run" m --as tmpfs --only link.symlink_reads_back || fail "the case itself fails"
