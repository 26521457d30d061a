#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What is changed through a socket is seen in the mount when it has been acknowledged, whatever the
# kernel remembers (rule M2); and it does remember. What is changed in the mount is seen through a socket
# when it is closed or synced. It needs root and /dev/fuse. Both doors race for LP_DOORS_SECONDS, if that
# is set (`make coherence`: for a minute).
# variants: release asan
# timeout: 300
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
listen=(--listen "unix:$PWD/sock")
address=${listen[1]}

# sum NAME: of a counter of the namespaces of all shards.
sum()
{
	"$lapis" -s "$address" stats --json | python3 -c '
import json, sys
print(sum(shard["namespace"][sys.argv[1]] for shard in json.load(sys.stdin)["shards"]))' "$1"
}

make_store 512M
start first "${listen[@]}"
PYTHONPATH=$LP_TEST_SRC/tests/wire timeout 250 python3 -B "$LP_TEST_SRC/tests/wire/two_doors.py" "$address" "$dir" "${LP_DOORS_SECONDS:-0}" \
	>doors.out 2>&1 || say "$(tail -n 12 doors.out)"
cat doors.out
[ "$(sum told)" -gt 100 ] || say "the kernel was told of $(sum told) things"
# Who had to wait for the other door would have waited for the limit (rule M3).
[ "$(sum told_late)" -lt 3 ] || say "told_late: $(sum told_late)"
for name in untold held_unbalanced; do
	[ "$(sum "$name")" = 0 ] || say "$name: $(sum "$name")"
done

# Unmounted by somebody else: the sockets are served as if there had never been a mount.
umount mnt || say "umount"
echo 'after' >after
quietly -s "$address" put after bucket/after
[ "$("$lapis" -s "$address" cat bucket/after)" = after ] || say "a put after the unmount"
stop

# Where the kernel is to remember nothing it is told of nothing but data, which may be mapped.
start second "${listen[@]}" --mount-options entry_timeout=0,attr_timeout=0
stat mnt/bucket/after >out || say "what was put is not there"
quietly -s "$address" put after bucket/later
stat mnt/bucket/later >out || say "a put is not seen where nothing is remembered"
[ "$(sum told)" = 0 ] || say "told of what it does not remember: $(sum told)"
PYTHONPATH=$LP_TEST_SRC/tests/wire timeout 100 python3 -B "$LP_TEST_SRC/tests/wire/two_doors.py" "$address" "$dir" nothing \
	>doors.out 2>&1 || say "believing nothing: $(tail -n 12 doors.out)"
cat doors.out
stop
whole
finish
