#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: on a full mount there is room as soon as something was removed (P6): who writes at once after
# an unlink or a close finds it, though the kernel forgets what has gone, and its space is freed, a
# moment later; and what finds no room harms nobody. Method: a mount is filled; then one file goes for each
# that is written.
# variants: release asan
# timeout: 120
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"

make_store 64M
start daemon --listen "unix:$PWD/sock"
python3 - "$dir" <<'CODE' || say "a full mount"
import errno, os, sys

SIZE = 1 << 20
ROUNDS = 50
os.mkdir(os.path.join(sys.argv[1], "d"))
os.chdir(os.path.join(sys.argv[1], "d"))
content = [os.urandom(SIZE) for _ in range(4)]

def write(name, data):
    with open(name, "wb", buffering=0) as file:
        while data:
            data = data[file.write(data):]

def fill():
    count = 0
    try:
        while True:
            write(f"f{count}", content[count % 4])
            count += 1
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return count

fresh = os.statvfs(".")
count = fill()
full = os.statvfs(".")
# What is kept for the index, and for cuts, is free and not available. (A file's shard was full, the other nearly.)
if not (fresh.f_bavail + 128 <= fresh.f_bfree and full.f_bavail + 128 <= full.f_bfree and full.f_bavail < fresh.f_bavail // 8):
    sys.exit(f"available: {fresh.f_bavail} of {fresh.f_bfree}, then {full.f_bavail} of {full.f_bfree}")
if count < 10:
    sys.exit(f"{count} files only")
for i in range(ROUNDS):
    name = f"f{i % count}"
    opened = os.open(name, os.O_RDONLY)
    if i % 3 == 1:
        os.close(opened)
    os.unlink(name)
    if i % 3 != 1:
        os.close(opened)
    try:
        write(name, content[i % 4])
    except OSError as error:
        sys.exit(f"round {i}: {error}")
for i in range(ROUNDS):
    name = f"f{i % count}"
    if i + count >= ROUNDS and open(name, "rb").read() != content[i % 4]:
        sys.exit(f"{name}: not what was written")

# What is still open, or kept by a descriptor that could open it, has not gone.
kept = os.open("f0", os.O_RDONLY)
path = os.open("f1", os.O_PATH)
os.unlink("f0")
os.unlink("f1")
try:
    write("new", content[0] * 2)
    sys.exit("there is room for what nothing was given up for")
except OSError as error:
    if error.errno != errno.ENOSPC:
        raise
for name in kept, path:
    with open(f"/proc/self/fd/{name}", "rb") as file:
        if file.read() not in content:
            sys.exit("what is still open has gone")
os.close(kept)
os.close(path)
write("new", content[0])
CODE

# A direct write beyond the end that finds no space the kernel takes back, to an end that it remembers; what was
# appended through the socket meanwhile stays.
PYTHONPATH=$LP_TEST_SRC/tests/wire python3 -B - "unix:$PWD/sock" "$dir" <<'CODE' || say "taken back"
import errno, mmap, os, sys
import lapis_wire as wire

os.chdir(os.path.join(sys.argv[2], "d"))
content = mmap.mmap(-1, 1 << 20)
content[:] = b"x" * len(content)
direct = os.open("direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
with open("direct", "r+b", buffering=0) as file:
    file.write(b"0123456789")
    os.fsync(file.fileno())
os.fstat(direct)
# The kernel believes 10 bytes of the one, of which others have written far behind them, and 1 MiB of the other,
# of which they have left less.
longer = os.open("longer", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
with open("longer", "r+b", buffering=0) as file:
    file.write(b"0123456789")
os.fstat(longer)
shorter = os.open("shorter", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
os.truncate("shorter", 1 << 20)
os.fstat(shorter)
with wire.Connection(sys.argv[1]) as lapis:
    lapis(wire.write("d/longer", b"ABCDE", 2 << 20))
    lapis(wire.truncate("d/shorter", 100 << 10))
big = os.open("big", os.O_RDWR | os.O_CREAT)
step, at = 16 << 20, 0
while step >= 4096:
    try:
        os.posix_fallocate(big, at, step)
        at += step
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        step //= 4
wanted = b"0123456789"
with wire.Connection(sys.argv[1]) as lapis:
    for i in range(3):
        lapis(wire.write("d/direct", b"ABCDE", append=True))
        wanted += b"ABCDE"
        try:
            os.pwrite(direct, content, 4096)
            sys.exit("there is room on a full mount")
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EIO):
                raise
        if lapis(wire.get("d/direct")).data[:len(wanted)] != wanted:
            sys.exit("a write that failed took away what was appended")
    for fd, at in ((longer, 4096), (shorter, 512 << 10)):
        try:
            os.pwrite(fd, memoryview(content)[:65536], at)
            sys.exit("there is room in a hole on a full mount")
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EIO):
                raise
    if lapis(wire.get("d/longer", 2 << 20)).data != b"ABCDE":
        sys.exit("a write that failed took away what was written far behind it")
# What the kernel does not take back is no size that is set; python asks again where it is told EINTR.
os.ftruncate(shorter, 50 << 10)
if os.fstat(shorter).st_size != 50 << 10:
    sys.exit("a size that was set after a write had failed")
# Who then sets the size himself is obeyed.
os.ftruncate(direct, 7)
with open("direct", "rb") as file:
    if os.fstat(direct).st_size != 7 or file.read() != wanted[:7]:
        sys.exit("the size that was set")
CODE
stop
whole
finish
