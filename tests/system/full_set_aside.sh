#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: what a program has set aside by fallocate, or has written, it can write on a full mount (P6), as
# databases and those who fetch files in pieces rely on: by halves, at odd places, all of it once more,
# behind the end, with O_DIRECT, by a mapping, and by copying; also through a log as small as there may
# be. Who has nothing set aside is refused.
# Method: files are set aside, the rest of a small store is filled; then they are written, read and
# compared, also after a restart, and the store is checked.
# variants: release debug asan
# timeout: 300
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"

cat >writer.py <<'CODE'
import ctypes, errno, hashlib, json, mmap, os, random, sys

SIZE = 6 << 20
HALF = SIZE // 2 + 1717
KEEP_SIZE = 1
libc = ctypes.CDLL(None, use_errno=True)
should = {}

def write(name, offset, data, flags=0):
    fd = os.open(name, os.O_RDWR | flags)
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:], offset + done)
    os.close(fd)
    if flags & os.O_APPEND:
        offset = len(should[name])
    old = should[name]
    should[name] = old[:offset] + bytes(data) + old[offset + len(data):]

def compare(when):
    for name, data in should.items():
        with open(name, "rb") as file:
            if file.read() != data:
                sys.exit(f"{when}: {name}: not what was written")

def set_aside(name, mode, offset, length):
    fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
    if mode == 0:
        os.posix_fallocate(fd, offset, length)
    else:
        call = libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length))
        if call != 0:
            sys.exit(f"{name}: fallocate: {os.strerror(ctypes.get_errno())}")
    should[name] = bytes(os.fstat(fd).st_size)
    os.close(fd)

def refused(what, *args):
    try:
        what(*args)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return
        raise
    sys.exit("there is room for what nothing was set aside for")

def fill():
    fd = os.open("filler", os.O_WRONLY | os.O_CREAT)
    at = 0
    step = 1 << 20
    while step >= 4096:
        try:
            at += os.pwrite(fd, random.randbytes(step), at)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            step //= 4
    os.close(fd)

def more():
    should["more"] = b""
    write("more", 0, random.randbytes(65536))

random.seed(1)
os.chdir(sys.argv[1])
os.mkdir("d")
os.chdir("d")
for name in "halves", "whole", "pieces", "direct", "mapped", "target":
    set_aside(name, 0, 0, SIZE)
set_aside("behind", KEEP_SIZE, 0, SIZE)
with open("source", "wb") as file:
    should["source"] = random.randbytes(SIZE)
    file.write(should["source"])
open("more", "w").close()
os.sync()
fill()
refused(more)
del should["more"]

write("halves", 0, random.randbytes(HALF))
write("halves", HALF, random.randbytes(SIZE - HALF))
compare("by halves")
write("halves", 0, random.randbytes(SIZE))
compare("once more")
write("whole", 0, random.randbytes(SIZE))
write("whole", 1, random.randbytes(SIZE - 2))
compare("as a whole")
for i in range(300):
    length = 1 + random.randrange(1 << random.randrange(6, 21))
    offset = random.randrange(SIZE)
    write("pieces", offset, random.randbytes(min(length, SIZE - offset)))
compare("in pieces")
aligned = mmap.mmap(-1, SIZE)
for part in (slice(SIZE // 3 // 4096 * 4096, SIZE // 2), slice(0, SIZE)):
    aligned[:] = random.randbytes(SIZE)
    write("direct", part.start, memoryview(aligned)[part], os.O_DIRECT)
compare("directly")
for _ in range(2):
    fd = os.open("mapped", os.O_RDWR)
    with mmap.mmap(fd, SIZE) as mapped:
        should["mapped"] = random.randbytes(SIZE)
        mapped[:] = should["mapped"]
        mapped.flush()
    os.fsync(fd)
    os.close(fd)
compare("by a mapping")
for length in 1717, 100000, 1 << 20, SIZE - 1717 - 100000 - (1 << 20):
    write("behind", 0, random.randbytes(length), os.O_APPEND)
compare("behind the end")
source = os.open("source", os.O_RDONLY)
target = os.open("target", os.O_RDWR)
at = 0
for _ in range(2): # over what was set aside, and over what was written
    at = 0
    while at < SIZE - 8192:
        at += os.copy_file_range(source, target, SIZE - 8192 - at, at + 1, at + 4098)
should["target"] = bytes(4098) + should["source"][1:SIZE - 8191] + bytes(4094)
compare("copied")
refused(more)
del should["more"]
os.sync()
with open("../../should.json", "w") as file:
    json.dump({name: hashlib.sha256(data).hexdigest() for name, data in should.items()}, file)
CODE

# run NAME MKFS_ARG...: all of it, on one store.
run()
{
	local name=$1
	shift
	rm -f a.img
	expect 0 'shards' mkfs "$@" a.img
	mkdir -p "$dir"
	start "$name" --listen "unix:$PWD/sock"
	python3 writer.py "$dir" || say "$name: a full mount"
	stop
	start "$name" --listen "unix:$PWD/sock"
	python3 - "$dir" <<'CODE' || say "$name: after a restart"
import hashlib, json, sys
for name, digest in json.load(open("should.json")).items():
    if hashlib.sha256(open(f"{sys.argv[1]}/d/{name}", "rb").read()).hexdigest() != digest:
        sys.exit(f"{name}: not what was written")
CODE
	stop
	whole
}

run usual --size 128M --shards 2
run little --size 128M --shards 2 --log-size 1M
finish
