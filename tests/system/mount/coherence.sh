#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the kernel remembers of a mount: counted exactly (rule N5), and gone when it has forgotten it;
# and there as long as somebody may ask for it, whatever falls of its names.
# It needs root and /dev/fuse.
# variants: release asan
# timeout: 120
set -u
. "$LP_TEST_SRC/tests/lib.sh"
dir=$PWD/mnt
address=unix:$PWD/sock

if [ "$(id -u)" != 0 ] || [ ! -c /dev/fuse ]; then
	echo "a mount needs root and /dev/fuse"
	exit 77
fi

trap 'umount -l "$dir" 2>/dev/null; end_daemon' EXIT

# start OPTION...: a daemon with the mount.
start()
{
	serve --memory 256M --listen "$address" --mount "$dir" "$@" a.img
}

# sum NAME: of a counter of the namespaces of all shards.
sum()
{
	"$lapis" -s "$address" stats --json | python3 -c '
import json, sys
print(sum(shard["namespace"][sys.argv[1]] for shard in json.load(sys.stdin)["shards"]))' "$1"
}

# falls NAME VALUE WHAT: waits for a counter; what the kernel forgets it says a little later, and it may
# forget more than it has to.
falls()
{
	local i
	for ((i = 0; i < 100; i++)); do
		[ "$(sum "$1")" -le "$2" ] && return
		sleep 0.1
	done
	say "$3: $1 is $(sum "$1"), not $2"
}

expect 0 'shards' mkfs --size 256M --shards 2 a.img
mkdir mnt
start

# Counts: each inode that was seen is there, those that were removed are not, and none at all when
# the kernel drops what it does not use.
for ((i = 0; i < 200; i++)); do echo "$i" >"mnt/file$i"; done
ls -l mnt >ls.out
[ "$(wc -l <ls.out)" = 201 ] || say "ls: $(tail -1 ls.out)"
rm mnt/file1*
falls held 89 "after rm"
falls orphans 0 "after rm"
if [ -w /proc/sys/vm/drop_caches ]; then
	echo 2 >/proc/sys/vm/drop_caches
	echo 2 >/proc/sys/vm/drop_caches
	falls held 0 "after drop_caches"
fi

# Names that change under those who use them: no error, ever. And a descriptor of what has no name
# any more and was never open is as good as any other.
python3 - mnt <<'CODE' || say "rename over a name beside stat and open"
import os, sys, threading

os.chdir(sys.argv[1])
RENAMES = 500
errors = []
done = threading.Event()

def make(name):
    with open(name, "w") as file:
        file.write("content")

def look():
    while not done.is_set():
        try:
            os.stat("name")
            with open("name") as file:
                if os.fstat(file.fileno()).st_nlink > 1 or file.read() != "content":
                    errors.append("no such content")
        except OSError as error:
            errors.append(repr(error))

make("name")
lookers = [threading.Thread(target=look) for _ in range(3)]
for looker in lookers:
    looker.start()
for i in range(RENAMES):
    make(f"new{i % 3}")
    os.rename(f"new{i % 3}", "name")
done.set()
for looker in lookers:
    looker.join()

path = os.open("name", os.O_PATH)
before = os.fstat(path)
make("new")
os.rename("new", "name")
after = os.fstat(path)
if (after.st_ino, after.st_size, after.st_nlink) != (before.st_ino, before.st_size, 0):
    errors.append(f"a descriptor of what was replaced: {after}")
with open(f"/proc/self/fd/{path}") as file:
    if file.read() != "content":
        errors.append("what was replaced cannot be opened by its descriptor")
os.mkdir("dir")
gone = os.open("dir", os.O_PATH)
os.rmdir("dir")
os.fstat(gone)
print("\n".join(errors[:5]))
sys.exit(len(errors) > 0)
CODE
falls orphans 0 "after the renames"

# Unmounted: what only the kernel knew of is nobody's, and nothing was forgotten that was not told.
ls -l mnt >ls.out
quiet=$("$lapis" umount mnt 2>&1) || say "umount: $quiet"
falls held 0 "after the unmount"
[ "$(sum held_unbalanced)" = 0 ] || say "forgotten more often than told: $(sum held_unbalanced)"
[ "$(sum opens)" = 0 ] || say "still open: $(sum opens)"
end_daemon TERM

# Too many: the kernel is asked to forget (rule N5), and does, if it knows how; what is in use stays.
start --mount-options max_inodes=200
python3 - mnt <<'CODE' || say "names and descriptors beside a kernel that is asked to forget"
import os, sys

os.chdir(sys.argv[1])
os.mkdir("many")
kept = []
for i in range(900):
    os.mknod(f"many/{i}")
    if i % 50 == 0:
        kept.append(os.open(f"many/{i}", os.O_PATH))
        os.unlink(f"many/{i}")
for fd in kept:
    assert os.fstat(fd).st_nlink == 0
assert len(os.listdir("many")) == 882
for fd in kept:
    os.close(fd)
CODE
if grep -q 'does not forget inodes' d.err; then
	echo "this kernel does not forget what it is asked to"
else
	held=$(sum held)
	[ "$held" -lt 600 ] || say "$held inodes are held, of which 200 were to be"
fi
[ "$(sum held_unbalanced)" = 0 ] || say "forgotten more often than told: $(sum held_unbalanced)"
end_daemon TERM
expect 0 'clean|no problem|ok' fsck a.img
finish
