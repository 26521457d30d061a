#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: the runner of xfstests tells what passes, fails, hangs and is not run; it compares that with what is expected;
# it gives a test two stores that can be mounted, and leaves nothing behind.
# Method: a directory with a small program in the place of xfstests' own stands for a checkout. Its tests mount the
# stores, and do what each of the outcomes needs.
# timeout: 300
# variants: release
set -u
cd "$LP_TEST_SCRATCH" || exit 1
run=$LP_TEST_SRC/tests/xfstests/run
failures=0

if [ "$(id -u)" != 0 ] || [ ! -c /dev/fuse ]; then
	echo "a mount needs root and /dev/fuse"
	exit 77
fi
if [ ! -w /sbin ]; then
	echo "there can be no mount helper in /sbin"
	exit 77
fi

say()
{
	echo "FAIL: $*"
	failures=$((failures + 1))
}

mkdir -p fake/tests/generic
cat >fake/tests/generic/group.list <<'END'
# of the groups

001 auto quick
002 auto quick
003 auto quick
004 auto
005 auto quick
006 auto quick
007 auto quick
008 auto
END
cat >fake/check <<'END'
#!/bin/bash
. "$HOST_OPTIONS"
[ "$FSTYP" = fuse ] || exit 1
# shellcheck disable=SC2086
do_mount() { mountpoint -q "$2" || mount -t "$FSTYP$FUSE_SUBTYP" $MOUNT_OPTIONS "$1" "$2" || exit 1; }
do_mount "$TEST_DEV" "$TEST_DIR"
[ "$(df -T "$TEST_DIR" | awk 'NR == 2 { print $2 }')" = fuse ] || exit 1
[ "$(df -T -P | tail -n +2 | wc -l)" = 2 ] || exit 1
case $1 in
generic/001)
	do_mount "$SCRATCH_DEV" "$SCRATCH_MNT"
	echo data >"$SCRATCH_MNT/file"
	umount "$SCRATCH_MNT"
	do_mount "$SCRATCH_DEV" "$SCRATCH_MNT"
	[ "$(cat "$SCRATCH_MNT/file")" = data ] && echo "Passed all 1 tests"
	umount "$SCRATCH_MNT"
	;;
generic/002 | generic/006)
	echo "$1 - output mismatch (see /somewhere)"
	echo "    -what should be"
	echo "    +what is"
	;;
generic/003) echo "$1       [not run] it is not there" ;;
generic/004) cat "$TEST_DIR/pipe" ;; # nobody writes to it
generic/005)
	dd if=/dev/zero of="$SCRATCH_DEV" bs=1M count=16 conv=notrunc status=none || exit 1
	echo "Passed all 1 tests"
	;;
generic/007) echo "Passed all 1 tests" ;;
generic/008) [ -b "$TEST_DEV" ] && [ -b "$SCRATCH_DEV" ] && echo "Passed all 1 tests" ;;
esac
[ "$1" != generic/003 ] || mkfifo "$TEST_DIR/pipe"
END
chmod +x fake/check
cat >expected <<'END'
# of this
generic/006 fails: nothing has it
generic/002 either: some have it
generic/007 never: it takes too long
END

# told STATUS ARG...: what the runner says, in the file out.
told()
{
	local status=$1 got=0
	shift
	"$run" fake --build "$LP_TEST_BUILD" --dir "$PWD" --results "$PWD/results" --expected expected "$@" >out 2>&1 || got=$?
	[ "$got" = "$status" ] || say "run $*: exit status $got, not $status: $(cat out)"
}

# line PATTERN: in what it says.
line()
{
	grep -Eq -- "$1" out || say "no line $1 in: $(cat out)"
}

told 0 --list quick
[ "$(wc -l <out)" = 6 ] || say "the group quick is: $(cat out)"
told 0 generic/001 generic/003 generic/005 generic/006 generic/007
line '^passed  generic/001 '
line '^skipped generic/003 .*: it is not there$'
line '^passed  generic/005 '
line '^failed  generic/006 .*\[expected: nothing has it\]: -what should be; \+what is$'
line '^never generic/007: it takes too long$'
line '^xfstests: 2 passed, 1 failed, 1 skipped, 0 hung, 1 as expected, 1 never run$'
told 0 generic/002 generic/001
line '^failed  generic/002 .*\[expected: some have it\]'
if [ -w /dev/loop-control ]; then
	told 0 --loop generic/005 generic/001 generic/008
	line '^passed  generic/005 '
	line '^passed  generic/001 '
	line '^passed  generic/008 '
	losetup --list --noheadings --output BACK-FILE | grep -F "$PWD" && say "a loop device is left"
fi
sed -i '/002/d' expected
told 1 generic/002
line '^failed  generic/002 '
told 1 --seconds 15 generic/003 generic/004 generic/001
line '^hung    generic/004 '
line '^passed  generic/001 '
grep -q 'io_uring' results/generic-004/*/kernel-stacks.txt || say "there are no stacks of a hang"
echo 'generic/001 fails: it is said to' >>expected
told 1 generic/001
line 'it is said to fail: take away its line'
echo 'generic/001 sometimes: it depends' >expected
told 1 generic/001
line 'expected:1: not a line'
told 1 generic/099
line 'there is no test and no group'
grep -q "$PWD" /proc/mounts && say "something is left mounted: $(grep "$PWD" /proc/mounts)"
for link in /sbin/mount.fuse.lapis-*; do
	[ -h "$link" ] && [[ "$(readlink "$link")" == "$PWD"/* ]] && say "the link $link is left"
done
echo "$failures failures"
[ "$failures" = 0 ]
