#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: `lapis check` looks at the structure of a store that is being changed through both doors, calls
# nothing wrong that is not, lets changes wait for a moment only, and neither a stop nor a kill of
# the daemon waits for it (P1, P2, N1).
# Method: programs that make, move and remove through the mount and the socket, and checks meanwhile; in
# the end lapis fsck, which must find the same: nothing.
# variants: release asan tsan
set -u
. "$LP_TEST_SRC/tests/lib.sh"

export LAPIS_ADDRESS=unix:$PWD/s
loads=
trap 'for p in $loads; do kill -KILL "$p" 2>/dev/null; done
end_daemon
umount -l mnt 2>/dev/null' EXIT

up()
{
	serve --listen "$LAPIS_ADDRESS" --memory 256M "$@"
}

field() {
	python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$1" "$2"
}

# --- Idle ---

"$lapis" mkfs --size 1G --shards 3 a.img >/dev/null || exit 1
mkdir -p mnt
up --mount "$PWD/mnt" a.img
"$lapis" check status | grep -q '^not checked' || say "before the first: $("$lapis" check status)"
"$lapis" check | grep -q ': 1 inodes, 0 entries, 0 blocks: clean$' || say "an empty store: $("$lapis" check)"
"$lapis" check frobnicate 2>err2 && say "a word that is none"
grep -q 'not one of status, start, stop' err2 || say "a word that is none: $(cat err2)"
"$lapis" check --help | grep -q 'lapis scrub' || say "no help"

# --- Under load ---

through_mount()
{
	while :; do
		mkdir -p mnt/m/a/b mnt/m/c
		for i in 1 2 3 4 5 6 7 8; do
			head -c $((i * 3000)) /dev/zero >"mnt/m/a/$i"
			ln "mnt/m/a/$i" "mnt/m/c/$i" && mv "mnt/m/a/$i" "mnt/m/a/b/n$i"
		done
		cp --reflink=auto mnt/m/c/8 mnt/m/c/9
		mv mnt/m/a/b mnt/m/b
		rm -rf mnt/m
	done 2>/dev/null
}

through_socket()
{
	while :; do
		"$lapis" sync "$LP_TEST_SRC/namespace" bucket/tree
		"$lapis" cp bucket/tree/ns.c bucket/copy
		"$lapis" mv bucket/tree/ns.h bucket/other/place/ns.h
		"$lapis" rm -r bucket/tree bucket/other
	done >/dev/null 2>&1
}

through_mount &
loads=$!
through_socket &
loads="$loads $!"
sleep 0.5
seen=0
for i in $(seq 15); do
	"$lapis" check --json >"c$i" || say "check $i: $(cat "c$i")"
	[ "$(field "c$i" warnings)" = 0 ] || say "check $i: $(cat "c$i")"
	seen=$((seen + $(field "c$i" inodes)))
	sleep 0.1
done
[ "$seen" -gt 100 ] || say "only $seen inodes seen"
"$lapis" status | grep -q '^ok' || say "$("$lapis" status)"

# --- A stop and a kill in the middle of it ---

for p in $loads; do kill -KILL "$p" && wait "$p" 2>/dev/null; done
loads=
mkdir -p mnt/many
for i in $(seq 40); do printf '%s\n' "$i" >"mnt/many/$i"; done
sync mnt/many
"$lapis" check start >/dev/null || say start
end_daemon TERM
"$lapis" fsck --deep a.img >log || say "after a stop: $(cat log)"
up a.img
"$lapis" check start >/dev/null || say start
end_daemon KILL
"$lapis" fsck --deep a.img >log || say "after a kill: $(cat log)"

# --- Where there is none ---

up --store mem --shards 2
"$lapis" check >log && say "a store in memory was checked"
grep -q 'a store of this kind has no such check' log || say "a store in memory: $(cat log)"
"$lapis" put log b/x || say "after a check that was none"
end_daemon TERM

finish
