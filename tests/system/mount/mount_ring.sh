#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: the mount does by FUSE over io_uring what it does without: for people and programs, after kill -9,
# at an unmount under load, and when it ends with files open.
# Method: the mount's other system tests and some POSIX cases run once more, in directories of their own,
# with a daemon in whose kernel io_uring is switched on while it mounts; and what is special about it.
# It needs root, /dev/fuse and Linux 6.14.
# timeout: 400
# variants: release
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
parameter=/sys/module/fuse/parameters/enable_uring
address=unix:$PWD/sock

[ -e "$parameter" ] || modprobe fuse 2>/dev/null
if ! [ -w "$parameter" ]; then
	echo "this kernel has no FUSE over io_uring, or root may not switch it on"
	exit 77
fi

# All programs of the build, but for the daemon.
mkdir -p build/bin
ln -s "$LP_TEST_BUILD"/* build/ 2>/dev/null
ln -s "$LP_TEST_BUILD"/bin/* build/bin/
rm build/bin/lapisd
ln -s "$LP_TEST_SRC/tests/ring_lapisd.py" build/bin/lapisd
export LP_RING_LAPISD=$LP_TEST_BUILD/bin/lapisd
lapisd=$PWD/build/bin/lapisd

# again PATH ARG...: a system test below tests/system, with that daemon.
again()
{
	local path=$1 name=${1##*/} by=bash
	shift
	[ "${name%.py}" = "$name" ] || by=python3
	mkdir "${name%.*}"
	(cd "${name%.*}" && LP_TEST_BUILD=$PWD/../build LP_MOUNT_BY=io_uring \
		"$by" "$LP_TEST_SRC/tests/system/$path" "$@") >"$name.out" 2>&1 ||
		say "$name by io_uring: $(grep -v '^0 failures' "$name.out" | tail -n 20)"
}

# counter NAME: of the mount, over all threads.
counter()
{
	"$lapis" -s "$address" stats --json |
		python3 -c 'import json, sys; print(json.load(sys.stdin)["mount"][sys.argv[1]])' "$1"
}

again mount/mount.sh
again mount/coherence.sh
again mount/mount_kill.py 2
LP_STALE_SECONDS=0.2 again programs/strangers_stale.sh

# What it is by is said, to people and to programs; nearly all comes by it.
make_store 512M
start first --listen "$address" --mount-options transport=io_uring
"$lapis" -s "$address" status | grep -q "^mount     $dir by io_uring, a queue for each CPU" || say "status: no word of io_uring"
"$lapis" -s "$address" stats --prometheus | grep -q '^lapis_mount_by_io_uring 1$' || say "Prometheus: no word of io_uring"
for cases in data. dirs. rename. xattr.; do
	"$LP_TEST_SRC/tests/posix/run" mnt --as lapis --quick --only "$cases" >posix.out 2>&1 ||
		say "cases differ from ext4: $(tail posix.out)"
done
[ "$(counter ring_requests)" -gt 1000 ] || say "only $(counter ring_requests) requests by io_uring"
[ "$(counter refused)" = 0 ] || say "requests that were not understood: $(counter refused)"

# Large and small writes and reads of several at once, checked.
cat >load.py <<'CODE'
"""Threads that write and read their own files until the mount is gone; what is read is what was written."""
import os, random, sys, threading, time
errors = []
def work(number, until):
    dice = random.Random(number)
    path = f"{sys.argv[1]}/load{number}"
    known = bytearray(3 << 20)
    try:
        with open(path, "wb+", buffering=0) as file:
            file.write(known)
            while time.monotonic() < until:
                size = dice.choice((1, 4096, 5000, 300000, 1 << 20))
                at = dice.randrange(len(known) - size)
                data = dice.randbytes(size)
                file.seek(at)
                done = file.write(data)
                known[at:at + done] = data[:done]
                if done < size:
                    raise OSError("a short write")
                # Not what the kernel remembers.
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                at = dice.randrange(len(known) - size)
                file.seek(at)
                data = file.read(size)
                if data != known[at:at + len(data)]:
                    errors.append(f"{path}: {size} bytes at {at} differ")
                if len(data) < size:
                    raise OSError("a short read")
                if dice.random() < 0.1:
                    os.fsync(file.fileno())
    except OSError as error:
        if len(sys.argv) <= 3:
            errors.append(repr(error))
until = time.monotonic() + float(sys.argv[2])
threads = [threading.Thread(target=work, args=(i, until)) for i in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("\n".join(errors))
sys.exit(len(errors) > 0)
CODE
python3 load.py mnt 3 >load.out 2>&1 || say "load: $(head -5 load.out)"

# Detached under load: who has files open goes on, and the daemon ends nevertheless, with errors for them.
python3 load.py mnt 20 ends >load.out 2>&1 &
load=$!
pids+=("$load")
sleep 0.5
umount -l mnt
stop
wait "$load" || say "load when it was detached: $(head -5 load.out)"
whole

# Stopped while in use, with little patience.
start second --stop-timeout 1
python3 load.py mnt 20 ends >load.out 2>&1 &
load=$!
pids+=("$load")
sleep 0.5
stop
wait "$load" || say "load at the end: $(head -5 load.out)"
whole

# Where it is not switched on, or not wanted, the descriptors serve; who insists is told why not.
lapisd=$LP_RING_LAPISD
if [ "$(cat "$parameter")" = N ]; then
	"$lapisd" --mount mnt --mount-options transport=io_uring --listen "$address" a.img >out 2>err && say "no ring, and no error"
	grep -q 'no FUSE over io_uring: it is not switched on' err || say "no ring: $(cat err)"
fi
lapisd=$PWD/build/bin/lapisd
start third --listen "$address" --mount-options transport=device
"$lapis" -s "$address" status | grep -q "^mount     $dir by /dev/fuse" || say "status: no word of /dev/fuse"
[ "$(counter ring_requests)" = 0 ] || say "requests by io_uring"
stop

# What keeps the kernel's FUSE from hearing of the entries leaves it waiting for them: the mount is made
# again without; who insists is told, and nothing stays mounted.
${CC:-cc} -O2 -shared -fPIC -o refuse_ring.so "$LP_TEST_SRC/tests/system/mount/refuse_ring.c" || say "refuse_ring.c"
export LD_PRELOAD=$PWD/refuse_ring.so
start fourth --listen "$address"
echo 'by the descriptors' >mnt/file
[ "$(counter ring_requests)" = 0 ] || say "requests by io_uring, in spite of the policy"
grep -q 'does not answer by io_uring' fourth.err || say "no word of it: $(cat fourth.err)"
stop
[ ! -s fourth.err ] || ! grep -q 'daemon that is gone' fourth.err || say "the first mount was left behind"
"$lapisd" --mount mnt --mount-options transport=io_uring --listen "$address" a.img >out 2>err && say "entries are refused, and no error"
unset LD_PRELOAD
grep -q 'no FUSE over io_uring: something keeps' err || say "entries are refused: $(cat err)"
mountpoint -q mnt && say "it is still mounted"
whole
finish
