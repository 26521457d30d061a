#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: a direct write that finds the store full says that there is no space, also where a part of it had room.
# Method: a store is filled, and a little of it given back. Then direct writes of 1 MiB go on until long after that is
# used up. Each is done as a whole or says ENOSPC. The kernel makes EIO of a direct write that came short.
# timeout: 120
# variants: release
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"

expect 0 'shard' mkfs --size 512M --shards 1 a.img
mkdir "$dir"
start daemon
python3 - "$dir" <<'CODE' || say "see above"
import errno, mmap, os, sys

os.chdir(sys.argv[1])
content = mmap.mmap(-1, 1 << 20)
content[:] = b"x" * len(content)
filler = os.open("filler", os.O_RDWR | os.O_CREAT)
step, end = 16 << 20, 0
while step >= 4096:
    try:
        end += os.pwrite(filler, b"y" * step, end)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        step //= 4
direct = os.open("direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
refused = 0
for kib in range(100, 1000, 100):
    end -= kib << 10
    os.ftruncate(filler, end)
    os.fsync(filler)
    for i in range(4):
        try:
            if os.pwrite(direct, content, i << 20) != len(content):
                sys.exit("a direct write came short")
        except OSError as error:
            if error.errno != errno.ENOSPC:
                sys.exit(f"{kib} KiB were given back: {error}")
            refused += 1
    os.ftruncate(direct, 0)
    try:
        while True:
            end += os.pwrite(filler, b"y" * 65536, end)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
if refused == 0:
    sys.exit("the store was never full")
CODE
stop
whole
finish
