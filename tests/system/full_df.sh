#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: df says what can be written, and what it says can be had by whoever needs it (rule S5): by one
# fallocate, by one file, by small files, on one to four shards, on an empty store and on one whose free
# space lies in pieces. A fallocate that fails gives back what it took. Method: stores are filled in these
# ways through the mount, and through the socket; each time df is asked, and again after a removal.
# variants: release asan
# timeout: 280
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
export LAPIS_ADDRESS=unix:$PWD/sock

cat >df.py <<'CODE'
import ctypes, errno, os, random, sys, time

MIB = 1 << 20
ROUNDING = MIB // 4  # what may be left: a write that does not fit wholly is refused wholly
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
failed = 0


def say(what):
    global failed
    failed += 1
    print(f"FAIL: {sys.argv[3]}: {what}")


def available():
    st = os.statvfs(".")
    return st.f_bavail * st.f_frsize


def soon(want, what):
    """It is so within a second: a removal is freed step by step."""
    until = time.monotonic() + (1 if sys.argv[4] == "release" else 10)
    while available() < want and time.monotonic() < until:
        time.sleep(0.01)
    if available() < want:
        say(f"{what}: {available()} bytes are available, not {want}")


def empty_now(what):
    if available() > ROUNDING:
        say(f"{what}: {available()} bytes are available, and writes say ENOSPC")


def set_aside(name, length):
    """What fallocate says, and how many bytes the file has."""
    file = os.open(name, os.O_RDWR | os.O_CREAT)
    error = ctypes.get_errno() if libc.fallocate(file, 0, 0, length) < 0 else 0
    took = os.fstat(file).st_blocks * 512
    os.close(file)
    return error, took


def write(name, length):
    """How many bytes of so many went into a file."""
    done, data = 0, bytes(min(length, MIB))
    file = os.open(name, os.O_RDWR | os.O_CREAT)
    try:
        while done < length:
            done += os.write(file, data[: length - done])
    except OSError as why:
        if why.errno != errno.ENOSPC:
            raise
    os.close(file)
    return done


def fill_small(name):
    """Files of 3 KB, in directories of both shards."""
    made = refused = 0
    while refused < 8:
        short = write(f"{made % 4}/{name}{made}.{refused}", 3000) < 3000
        refused += short
        made += not short
    return made


def on_an_empty_store():
    fresh = available()
    error, took = set_aside("all", fresh)
    if error or took < fresh:
        say(f"of {fresh} bytes fallocate takes {took}: {os.strerror(error)}")
    empty_now("all is set aside")
    os.unlink("all")
    soon(fresh, "that was removed")
    error, took = set_aside("more", fresh + MIB)
    if error != errno.ENOSPC or took != 0:
        say(f"a fallocate of too much keeps {took} bytes: {os.strerror(error)}")
    soon(fresh, "a fallocate failed")
    os.unlink("more")


def one_file_and_small_ones():
    fresh = available()
    done = write("0/one", 1 << 40)
    if done + MIB < fresh:
        say(f"one file takes {done} of {fresh} bytes")
    fill_small("f")
    empty_now("one file and small ones")
    os.unlink("0/one")
    soon(fresh - 8 * MIB, "the file was removed")


def in_pieces():
    made, done = [], True
    while done:
        name = f"{len(made) % 4}/p{len(made)}"
        length = random.choice([3000, 8000, 20000, 70000, 200000])
        done = write(name, length) == length
        made.append(name)
    for name in random.sample(made, len(made) // 2):
        os.unlink(name)
    time.sleep(0.2)
    there = available()
    done = write("1/one", 1 << 40)
    if done + MIB < there:
        say(f"in pieces: one file takes {done} of {there} bytes")
    fill_small("g")
    empty_now("in pieces")


random.seed(33)
os.chdir(sys.argv[1])
for name in "0123":
    os.mkdir(name)
{"empty": on_an_empty_store, "one": one_file_and_small_ones, "pieces": in_pieces}[sys.argv[2]]()
sys.exit(failed != 0)
CODE

# kind: of this build, for how long a removal may take.
kind=release
[ "$(basename "$LP_TEST_BUILD" | cut -c1-4)" = asan ] && kind=asan

# look SHARDS HOW: on a store of its own, with a daemon that stays.
look()
{
	rm -f a.img
	expect 0 'shard' mkfs --size 192M --shards "$1" a.img
	mkdir -p "$dir"
	start daemon --listen "unix:$PWD/sock"
	python3 df.py "$dir" "$2" "$1 shards, $2" "$kind" || say "$1 shards, $2"
}

# leave: the store is sound.
leave()
{
	umount "$dir" || say "cannot be unmounted"
	kill -TERM "$pid" && wait "$pid"
	"$lapis" fsck --deep a.img >fsck.out || say "fsck: $(cat fsck.out)"
}

# native: bytes that the socket says are available.
native()
{
	"$lapis" status --json | grep -Eo '"available_bytes": ?[0-9]+' | grep -Eo '[0-9]+$'
}

for shards in 1 2 4; do
	look "$shards" empty
	leave
done
look 2 one
leave
look 2 pieces
[ "$(native)" -le 262144 ] || say "the socket: $(native) bytes are available on a full store"
head -c 60000 /dev/zero >data
"$lapis" mb b 2>mb.err || say "a full store takes no bucket: $(cat mb.err)"
"$lapis" put data b/one 2>put.err && say "more was put than was available"
grep -q 'No space left' put.err || say "put: $(cat put.err)"
rm "$dir/1/one"
for ((i = 0; i < 50; i++)); do
	"$lapis" put data b/one 2>put.err && break
	sleep 0.02
done
"$lapis" get b/one - | cmp - data || say "no room after a removal: $(cat put.err)"
[ "$(native)" -gt 16777216 ] || say "the socket: $(native) bytes are available after a removal"
leave
finish
