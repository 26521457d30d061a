#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: who lists a directory of many names, or removes them, asks no more than the kernel makes him ask, and
# none of it takes a way through several threads. Of each name: one question of 'ls -l' (for its access list;
# with those for labels there were two); a removal by 'rm -rf' makes no call to another shard (there was one),
# and is handed to no other thread (one was).
# Method: counts of the daemon's own counters, in a bucket, whose names are on both shards. It needs root and
# /dev/fuse.
# timeout: 120
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
needs python3
NAMES=2000
export LAPIS_ADDRESS="unix:$PWD/sock"

# counted NAME: a sum over all of the daemon's statistics.
counted()
{
	"$lapis" stats --json >stats.json || say "no statistics"
	python3 - "$1" stats.json <<'CODE'
import json, sys

with open(sys.argv[2], encoding="utf-8") as file:
    stats = json.load(file)
shards = stats["shards"]
print({
    "getxattr": lambda: stats["mount"]["ops"].get("getxattr", {}).get("count", 0),
    "handed_over": lambda: stats["mount"]["handed_over"],
    "remote_calls": lambda: sum(shard["namespace"]["remote_calls"] for shard in shards),
}[sys.argv[1]]())
CODE
}

# at_most WHAT LIMIT BEFORE: since then.
at_most()
{
	local now
	now=$(counted "$1")
	[ $((now - $3)) -le "$2" ] || say "$1: $((now - $3)) for $NAMES names, more than $2"
}

mkdir src
for ((i = 0; i < NAMES; i++)); do echo "$i" >"src/name-$i"; done
make_store 512M

start first --listen "$LAPIS_ADDRESS"
"$lapis" mb b >/dev/null || say "mb"
"$lapis" sync src b >/dev/null || say "sync"
stop
# All names are there, and nobody remembers any.
start again --listen "$LAPIS_ADDRESS"
before=$(counted getxattr)
ls -l mnt/b >list.out || say "ls -l"
[ "$(wc -l <list.out)" = $((NAMES + 1)) ] || say "ls -l shows $(wc -l <list.out) lines"
grep -q selinuxfs /proc/filesystems || at_most getxattr $((NAMES + NAMES / 10)) "$before"
calls=$(counted remote_calls)
handed=$(counted handed_over)
rm -rf mnt/b || say "rm -rf"
at_most remote_calls $((NAMES / 2)) "$calls"
at_most handed_over $((NAMES / 2)) "$handed"
stop

whole
finish
