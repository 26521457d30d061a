#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: what is damaged has a name. A read, through a socket or the mount, or a check of all data, that
# meets damage puts the object on the list of `lapis scrub --list`, with all its names, under what it is
# called now; status, health and metrics say how many there are; all of it is so after a stop, and after
# kill -9. What is overwritten or removed leaves the list by itself. The log names each object once.
# Method: a byte of objects changed in the image behind the daemon's back. Links need the mount.
# variants: release release-nolto debug asan
# timeout: 240
set -u
. "$LP_TEST_SRC/tests/lib.sh"
export LAPIS_ADDRESS=unix:$PWD/sock
fuse=()
mkdir -p mnt
[ ! -c /dev/fuse ] || fuse=(--mount "$PWD/mnt")
end_all()
{
	umount -l mnt 2>/dev/null
	end_daemon
}
trap end_all EXIT
trap 'exit 1' TERM INT

up()
{
	serve --memory 192M --scrub-rate 0 --listen "$LAPIS_ADDRESS" "${fuse[@]}" "$@" a.img
}

# rot FILE...: a byte of each, wherever the device has it.
rot()
{
	python3 - a.img "$@" <<'END' || say "not found in the image"
import mmap, sys
with open(sys.argv[1], "r+b") as image:
    view = mmap.mmap(image.fileno(), 0)
    for name in sys.argv[2:]:
        block = open(name, "rb").read()[40960:45056]
        at = view.find(block)
        if at < 0:
            sys.exit(name + " is not there")
        while at >= 0:
            view[at + 99] ^= 16
            at = view.find(block)
    view.flush()
END
}

# becomes PATTERN: within 20 seconds that is what the status says.
becomes()
{
	local i
	for ((i = 0; i < 200; i++)); do
		"$lapis" status >said 2>&1
		head -n 1 said | grep -Eq -- "$1" && return
		sleep 0.1
	done
	say "the status does not become $1: $(head -n 1 said)"
}

# listed NAMES: exactly these are on the list, in any order.
listed()
{
	"$lapis" scrub --list >list 2>err
	local status=$?
	local want=0
	[ -z "$1" ] || want=1
	[ "$status" = "$want" ] || say "scrub --list ends with $status, not $want: $(cat err)"
	local names
	names=$(grep -v '^ ' list | sort | tr '\n' ' ')
	local wanted
	wanted=$(tr ' ' '\n' <<<"$1" | sed '/^$/d' | sort | tr '\n' ' ')
	[ "$names" = "$wanted" ] || say "listed: '$names', wanted: '$wanted'"
}

metric()
{
	"$lapis" stats --prometheus | awk -v name="$1" '$1 ~ "^" name "[{]" { sum += $2 } END { print sum + 0 }'
}

"$lapis" mkfs --size 512M --shards 2 a.img >/dev/null || exit 1
up
for i in 1 2 3 4 5 6; do
	head -c 300000 /dev/urandom >"f$i"
	"$lapis" put "f$i" "b/dir/f$i" || say "put $i"
done
head -c 300000 /dev/urandom >whole
"$lapis" put whole b/whole || say put
becomes '^ok since'
listed ""
[ "$(metric lapis_damaged_objects)" = 0 ] || say "the metric says $(metric lapis_damaged_objects)"
links=""
if [ "${#fuse[@]}" -gt 0 ]; then
	mkdir mnt/b/other
	ln mnt/b/dir/f1 mnt/b/other/link1
	ln mnt/b/dir/f1 mnt/b/link2
	links="b/link2 b/other/link1 "
fi
end_daemon TERM

# A reader meets it: by a socket the first, by the mount the second, a check the others.
rot f1 f2 f3 f4
up
becomes '^ok since'
for i in 1 2 3; do
	"$lapis" get b/dir/f1 got 2>/dev/null && say "damage is given out"
done
becomes '^damaged since .*: 1 object is damaged \(lapis scrub --list names it\)'
grep -q 'error: health: damaged: 1 object is damaged' d.err || say "health is not in the log"
listed "b/dir/f1 $links"
grep -q '^          inode [0-9]*, offset 40960: checksum mismatch, found 20' list || say "list: $(cat list)"
if [ "${#fuse[@]}" -gt 0 ]; then
	cat mnt/b/dir/f2 >got 2>/dev/null && say "the mount gives damage out"
else
	"$lapis" get b/dir/f2 got 2>/dev/null
fi
becomes '^damaged since .*: 2 objects are damaged'
listed "b/dir/f1 b/dir/f2 $links"

# It is known after kill -9, and after a stop, before anybody reads.
end_daemon KILL
[ "${#fuse[@]}" = 0 ] || umount -l mnt 2>/dev/null
up
becomes '^damaged since .*: 2 objects are damaged'
listed "b/dir/f1 b/dir/f2 $links"
"$lapis" scrub start >/dev/null || say start
"$lapis" scrub wait >/dev/null && say "a check that finds nothing"
becomes '^damaged since .*: 4 objects are damaged'
listed "b/dir/f1 b/dir/f2 b/dir/f3 b/dir/f4 $links"
[ "$(metric lapis_damaged_objects)" = 4 ] || say "the metric says $(metric lapis_damaged_objects)"
[ "$(metric lapis_damaged_found_total)" = 2 ] || say "the counter says $(metric lapis_damaged_found_total)"
"$lapis" stats --prometheus | grep -q '^lapis_health{state="damaged"} 1$' || say "the health's metric"
"$lapis" status | grep -q '^damaged   4 objects (see lapis scrub --list)' || say "status: $("$lapis" status)"
# Each once by name, however often it was read.
for ((i = 0; i < 100; i++)); do
	[ "$(grep -c 'error: shard [01]: damaged object: b/dir/f[1-4] (inode .*, offset 40960): checksum mismatch' d.err)" -lt 4 ] || break
	sleep 0.1
done
for i in 1 2 3 4; do
	"$lapis" get "b/dir/f$i" got 2>/dev/null
	[ "$(grep -c "error: shard [01]: damaged object: .* (inode $("$lapis" stat --json "b/dir/f$i" | grep -o '"ino": [0-9]*' | cut -d ' ' -f 2)," d.err)" = 1 ] || say "f$i is not in the log once"
done
end_daemon TERM
up
becomes '^damaged since .*: 4 objects are damaged'

# A name is what it is now.
"$lapis" mv b/dir/f4 b/renamed || say mv
listed "b/dir/f1 b/dir/f2 b/dir/f3 b/renamed $links"
"$lapis" scrub --list --json | python3 -c '
import json, sys
objects = json.load(sys.stdin)
assert len(objects) == 4, objects
assert sorted(n for o in objects for n in o["names"] if n.endswith("renamed")) == ["b/renamed"], objects
assert all(o["offset"] == 40960 and o["error"] == "checksum mismatch" for o in objects), objects
' || say "json: $("$lapis" scrub --list --json)"

# Mended: put anew, removed, and written over where it was.
"$lapis" put f3 b/dir/f3 || say "put again"
"$lapis" rm b/renamed || say rm
becomes '^damaged since .*: 2 objects are damaged'
listed "b/dir/f1 b/dir/f2 $links"
if [ "${#fuse[@]}" -gt 0 ]; then
	# What is damaged still is so after a change elsewhere in it.
	dd if=f1 of=mnt/b/dir/f1 bs=4096 seek=50 skip=50 count=1 conv=notrunc,fsync 2>/dev/null || say "dd beside it"
	sleep 2.5
	listed "b/dir/f1 b/dir/f2 $links"
	dd if=f1 of=mnt/b/dir/f1 bs=4096 seek=10 skip=10 count=1 conv=notrunc,fsync 2>/dev/null || say "dd"
	becomes '^damaged since .*: 1 object is damaged'
	cmp f1 mnt/b/other/link1 || say "f1 is another thing"
	# One without a name.
	exec 9<mnt/b/dir/f2
	rm mnt/b/dir/f2
	sleep 0.3
	[ "$("$lapis" scrub --list | head -n 1)" = "(no name)" ] || say "without a name: $("$lapis" scrub --list)"
	exec 9<&-
else
	"$lapis" put f1 b/dir/f1 || say put
	"$lapis" rm b/dir/f2 || say rm
fi
becomes '^ok since'
listed ""
[ "$(metric lapis_damaged_objects)" = 0 ] || say "the metric says $(metric lapis_damaged_objects) at the end"
end_daemon TERM
up
becomes '^ok since'
listed ""
"$lapis" scrub start >/dev/null || say start
"$lapis" scrub wait >/dev/null || say "something is left: $("$lapis" scrub)"
end_daemon TERM
expect 0 'clean' fsck --deep a.img

# Nothing can be written: the list is in memory.
rot f5
up --degraded on
"$lapis" get b/dir/f5 got 2>/dev/null && say "damage is given out"
listed "b/dir/f5 "
end_daemon TERM
finish
