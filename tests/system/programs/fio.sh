#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: what fio writes is what it reads: buffered, direct, mapped and by io_uring, in blocks of all
# sizes, aligned and not, rewritten, by several at once; also after a start, when nothing is in the
# kernel's cache.
# Method: fio writes blocks with a checksum and its own position in each, and verifies them; after
# a start another fio does it again. All is done without and with the kernel's writeback cache.
# timeout: 240
# variants: release
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
needs fio

# What is written by one job and then verified, one after the other.
cat >jobs.fio <<'END'
[global]
directory=${FIO_DIR}
size=4m
verify=crc32c
verify_fatal=1
do_verify=1
verify_state_save=0
fallocate=none
randseed=7
group_reporting

[buffered]
ioengine=psync
rw=randwrite
bsrange=4k-128k

[buffered-odd]
stonewall
ioengine=psync
rw=randwrite
bs=3331
size=3331000

[appended]
stonewall
ioengine=psync
rw=write
bs=17001
size=3400200
fsync=20

[direct]
stonewall
ioengine=libaio
iodepth=16
direct=1
rw=randwrite
bsrange=4k-64k

[direct-odd]
stonewall
ioengine=psync
direct=1
rw=randwrite
bs=5000
size=4000000

[mapped]
stonewall
ioengine=mmap
rw=randwrite
bsrange=4k-64k

[ring]
stonewall
ioengine=io_uring
iodepth=32
rw=randwrite
bs=4k

[ring-direct]
stonewall
ioengine=io_uring
iodepth=32
direct=1
rw=randwrite
bs=16k
numjobs=2

[allocated]
stonewall
ioengine=io_uring
iodepth=8
direct=1
fallocate=posix
rw=randwrite
bsrange=512-32k
END

# verified ARG...: fio finds nothing wrong.
verified()
{
	FIO_DIR=$dir fio "$@" jobs.fio >fio.out 2>&1 || say "fio $*: $(grep -v '^$' fio.out | head -n 8)"
	grep -Eq 'verify.*(failed|bad)|error=' fio.out && say "fio $*: $(grep -E 'verify|error' fio.out | head -n 8)"
	[ "$(grep -c ': (groupid=' fio.out)" -ge 9 ] || say "fio $*: not all was done: $(tail -n 5 fio.out)"
}

make_store 1G
for options in atime writeback; do
	start "$options" --mount-options "$options"
	verified
	(cd "$dir" && sha256sum -- *) >"$options.sums"
	stop
	start "$options-again" --mount-options "$options"
	(cd "$dir" && sha256sum --quiet -c) <"$options.sums" || say "$options: other data after a start"
	verified --verify_only
	# Over what is there.
	verified --randseed=11 --overwrite=1
	stop
done
[ "$(wc -l <writeback.sums)" -ge 9 ] || say "there are only $(wc -l <writeback.sums) files"
whole
finish
