#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The mount as people meet it: a tree copied in and out, objects of the native door seen as files and
# the reverse, a store that is whole afterwards; a daemon that is killed leaves a mount that answers
# an error and can be taken away.
# The image and the mount are in the scratch directory. It needs root and /dev/fuse.
# timeout: 240
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
listen=(--listen "unix:$PWD/sock")
address=${listen[1]}

# same A B: two trees are equal: names, types, modes, times, owners, links, contents.
same()
{
	local format='%P %y %m %U %G %n %l %T@ %s\n'
	diff <(find "$1" -mindepth 1 ! -type d -printf "$format" | sort) \
		<(find "$2" -mindepth 1 ! -type d -printf "$format" | sort) || say "$1 and $2: files differ"
	diff <(find "$1" -mindepth 1 -type d -printf '%P %m %U %G %T@\n' | sort) \
		<(find "$2" -mindepth 1 -type d -printf '%P %m %U %G %T@\n' | sort) || say "$1 and $2: directories differ"
	diff -r -x fifo --no-dereference "$1" "$2" >differ.out || say "$1 and $2: contents differ: $(head -3 differ.out)"
}

make_store 512M

# A tree with all kinds of things in it, in and out again.
mkdir -p tree/deep/er/and/deeper tree/empty "tree/with space"
cp -r "$LP_TEST_SRC/base" "$LP_TEST_SRC/docs" tree/
head -c 3000001 /dev/urandom >tree/large
truncate -s 5M tree/sparse
printf 'in the middle' | dd of=tree/sparse bs=1 seek=2000000 conv=notrunc status=none
ln -s ../deep/er tree/empty/link
ln tree/large tree/deep/hard
mkfifo tree/fifo
chmod 0640 tree/large
chmod 1777 tree/deep
chown 1234:5678 tree/sparse
touch -d '1999-12-31 23:59:59.123456789' tree/large
# When the daemon says it is ready the mount has answered somebody, and nobody but the daemon has asked
# yet (rule M4).
launch first "${listen[@]}"
"$lapis" -s "$address" stats --json >json || say "stats --json"
python3 -c 'import json; assert json.load(open("json"))["mount"]["ops"]["getattr"]["count"] > 0' 2>python.out ||
	say "ready before the mount had answered: $(tail -n 1 python.out)"
cp -a tree mnt/tree
same tree mnt/tree
cp -a mnt/tree back
same tree back
[ "$(stat -c %h mnt/tree/large)" = 2 ] || say "a hard link was not kept"

# A tree that the mount is a part of is stored without it: it would never end.
mkdir -p outer/mnt
echo beside >outer/file
mount --bind mnt outer/mnt || say "no bind mount"
"$lapis" -s "$address" sync outer bucket/outer >out 2>&1 && say "a mount was left out without a word"
grep -q 'mnt: is a mount of Lapis' out || say "of a mount in a tree sync says: $(cat out)"
[ "$(ls mnt/bucket/outer)" = file ] || say "beside a mount sync has stored: $(ls mnt/bucket/outer)"
# Nor is it looked into where the store has a directory of that name: what it has too much is the store's.
quietly -s "$address" put outer/file bucket/outer/mnt/f
"$lapis" -s "$address" sync --delete bucket/outer ./outer >out 2>&1 && say "a mount was left out without a word on the way down"
grep -q 'mnt: is a mount of Lapis' out || say "of a mount in a tree sync says on the way down: $(cat out)"
umount outer/mnt
[ "$(find mnt/tree mnt/bucket/outer | wc -l)" -gt 4 ] || say "a sync has emptied the store that is mounted in its way"
# Nor are directories of the mount and of the store, one in the other, made alike.
nested()
{
	"$lapis" -s "$address" sync --delete "$@" >out 2>&1 && say "sync $*: no failure"
	grep -q 'one is inside the other' out || say "sync $*: $(cat out)"
}
nested ./mnt/bucket/outer bucket/outer/copy/of/it
nested ./mnt copy
nested ./mnt/bucket/outer/mnt bucket/outer
nested bucket/outer ./mnt/bucket/outer/deep
nested bucket/outer ./mnt/bucket
[ "$(find mnt/bucket/outer -type f | LC_ALL=C sort | tr '\n' ' ')" = 'mnt/bucket/outer/file mnt/bucket/outer/mnt/f ' ] ||
	say "nested syncs have left $(find mnt/bucket/outer)"
quietly -s "$address" sync ./mnt/bucket/outer bucket/other
[ "$(cat mnt/bucket/other/mnt/f)" = beside ] || say "a sync beside itself: $(find mnt/bucket/other)"

# Both doors show the same, and at once (rule M2).
quietly -s "$address" put tree/large bucket/a/b/large
cmp tree/large mnt/bucket/a/b/large || say "an object does not read as a file"
echo 'from the mount' >mnt/bucket/a/note
"$lapis" -s "$address" cat bucket/a/note | grep -q '^from the mount$' || say "a file is no object"
echo 'replaced' >replaced
quietly -s "$address" put replaced bucket/a/note
grep -q '^replaced$' mnt/bucket/a/note || say "a put is not seen in the mount"
rm -r mnt/bucket/a
expect 1 'No such' -s "$address" stat bucket/a/note

# Large reads come as such.
[ "$(cat "/sys/class/bdi/$(mountpoint -d mnt)/read_ahead_kb")" = 1024 ] || say "the kernel reads less than 1 MiB ahead"
[ "$(cat "/sys/class/bdi/$(mountpoint -d mnt)/max_ratio")" = 100 ] || say "the kernel lets few dirty pages wait"

rmdir mnt/tree 2>/dev/null && say "rmdir of what is not empty"

# What the mount did is told with the rest, to programs as to people.
"$lapis" -s "$address" status | grep -q "^mount     $dir by ${LP_MOUNT_BY:-}.*; requests [1-9]" || say "status: no word of the mount"
"$lapis" -s "$address" stats --prometheus >prometheus || say "stats --prometheus"
"$lapis" -s "$address" stats --json >json || say "stats --json"
PYTHONPATH=$LP_TEST_SRC/tests/wire python3 -B - >python.out 2>&1 <<'END' || say "the mount's numbers: $(cat python.out)"
import json, admin
of_json = json.load(open("json"))["mount"]
metrics = admin.families(open("prometheus").read().rstrip("\n") + "\n")
for op in ("create", "write", "read", "lookup", "unlink"):
    count = of_json["ops"][op]["count"]
    assert count > 0 and of_json["ops"][op]["latency_us"]["p50"] > 0, (op, of_json["ops"][op])
    # Nothing but its names was asked for in between.
    if op in ("create", "write", "unlink"):
        assert admin.total(metrics, "lapis_mount_requests_total", op=op) == count, op
    times = admin.total(metrics, "lapis_mount_request_duration_seconds", op=op, le="+Inf")
    assert times == admin.total(metrics, "lapis_mount_requests_total", op=op) > 0, op
assert sum(op["count"] for op in of_json["ops"].values()) == of_json["requests"]
assert of_json["ops"]["rmdir"]["errors"] > 0 and of_json["written_bytes"] > 3000000
END

# Names of attributes are listed up to what the kernel takes.
python3 - mnt/attributes <<'END' >python.out 2>&1 || say "many attributes: $(cat python.out)"
import errno, os, sys
open(sys.argv[1], "w").close()
names = ["user." + str(i).zfill(250) for i in range(257)]
for i, name in enumerate(names[:256]):
    os.setxattr(sys.argv[1], name, b"")
    if i in (200, 230, 255):
        assert sorted(os.listxattr(sys.argv[1])) == names[:i + 1], i
os.setxattr(sys.argv[1], names[256], b"")
try:
    sys.exit(f"{len(os.listxattr(sys.argv[1]))} names")
except OSError as error:
    assert error.errno == errno.E2BIG, error
END
rm mnt/attributes

# What ends is told as it should be.
mkdir mnt/names
(cd mnt/names && touch "$(printf 'n%.0s' $(seq 255))") || say "a name of 255 bytes"
(cd mnt/names && touch "$(printf 'n%.0s' $(seq 256))" 2>&1) | grep -q 'too long' || say "a name of 256 bytes"
rmdir mnt/names 2>&1 | grep -q 'not empty' || say "rmdir of what is not empty"
rm -r mnt/names
exec 9<>mnt/open
echo 'still here' >&9
rm mnt/open
[ "$(cat </proc/$$/fd/9)" = 'still here' ] || say "an open file went with its name"
exec 9>&-
[ "$(df --output=fstype mnt | tail -1)" = fuse.lapis ] || say "df does not know what it is"
stop
expect 0 'clean|no problem|ok' fsck a.img

# A second start finds all of it; somebody who has a file open does not keep the daemon from ending.
start second "${listen[@]}"
same tree mnt/tree
exec 9<mnt/tree/large
stop
exec 9<&-

# The daemon is killed.
start third "${listen[@]}"
# What was synced is there (rule M1).
cp tree/large mnt/synced
sync mnt/synced
kill_daemon
expect 1 'no Lapis store is mounted' umount "$PWD/tree"
quietly umount mnt
mountpoint -q mnt && say "lapis umount left the mount"
start fourth "${listen[@]}"
same tree mnt/tree
cmp tree/large mnt/synced || say "what was synced is gone after kill -9"
kill -KILL "$pid"
wait "$pid" 2>/dev/null
# The dead mount is taken away by the next start.
start fifth "${listen[@]}"
grep -q 'took away the mount' fifth.err || say "no word of the dead mount"

# Unmounted under the daemon: it goes on without.
quietly umount mnt
expect 0 tree -s "$address" ls
for ((i = 0; i < 100; i++)); do
	grep -q 'unmounted by somebody else' fifth.err && break
	sleep 0.1
done
[ "$i" -lt 100 ] || say "no word of the unmount"
stop
expect 0 'clean|no problem|ok' fsck a.img

# As mount(8) does it, and unmounted as umount(8) does it: the daemon ends, and the next waits for it.
export LAPISD=$lapisd
for ((round = 0; round < 2; round++)); do
	"$LP_TEST_SRC/fuse/mount.lapis" a.img mnt -o rw,noatime,lapisd.memory=256M >helper.out 2>&1 ||
		say "mount.lapis: $(cat helper.out)"
	same tree mnt/tree
	umount mnt || umount -l mnt
done
"$LP_TEST_SRC/fuse/mount.lapis" a.img mnt -o nonsense >helper.out 2>&1
[ "$?" = 32 ] || say "mount.lapis takes any option"
grep -q 'nonsense: there is no such option' helper.out || say "mount.lapis says: $(cat helper.out)"
for ((i = 0; i < 100; i++)); do
	"$lapis" fsck a.img >out 2>&1 && break
	sleep 0.1
done
[ "$i" -lt 100 ] || say "the daemon of mount.lapis did not end: $(cat out)"
# The kernel ends the connection, and there is no socket: that is no clean end, and is told as none.
mkdir fusectl
mount -t fusectl none fusectl || say "no fusectl"
start sixth
# Nor does the kernel write to it from inside of it, for want of memory (CAP_SYS_RESOURCE, PF_MEMALLOC_NOIO).
may=$((16#$(sed -n 's/^CapEff:\t//p' /proc/self/status) >> 24 & 1))
for task in /proc/"$pid"/task/*; do
	flags=$(sed 's/.*) //' "$task/stat" | cut -d ' ' -f 7)
	[ "$may" = 0 ] || [ $((flags & 0x80000)) != 0 ] || say "$(cat "$task/comm") may wait for itself"
done
device=$(stat -c %d mnt)
echo 1 >"fusectl/$(((device & 0xff) | (device >> 12 & 0xfff00)))/abort"
umount fusectl
wait "$pid"
status=$?
[ "$status" = 1 ] || say "exit status $status when its connection was ended"
grep -q "the mount's connection has ended" sixth.err || say "no word of the end: $(cat sixth.err)"
mountpoint -q mnt && say "the dead mount is left"
expect 0 'clean|no problem|ok' fsck a.img
finish
