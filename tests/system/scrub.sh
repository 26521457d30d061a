#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: what is damaged on the device while the daemon runs is found and named by `lapis scrub`, though
# a cache has it, and nothing else is; it keeps to its rate, begins and ends when it is told to, and
# a stop does not wait for it (P4).
# Method: objects, a byte of one changed in the image behind the daemon's back.
# variants: release asan tsan
set -u
. "$LP_TEST_SRC/tests/lib.sh"

export LAPIS_ADDRESS=unix:$PWD/s

up()
{
	serve --listen "$LAPIS_ADDRESS" --memory 256M "$@" a.img
}

"$lapis" mkfs --size 512M --shards 2 a.img >/dev/null || exit 1
up --scrub-rate 0

# Changes a byte of the file other, wherever the device has it.
rot() {
	python3 - a.img other <<'END' || say "not found in the image"
import mmap, sys
block = open(sys.argv[2], "rb").read()[40960:45056]
with open(sys.argv[1], "r+b") as image:
    view = mmap.mmap(image.fileno(), 0)
    at = view.find(block)
    if at < 0:
        sys.exit(1)
    while at >= 0:
        view[at + 99] ^= 16
        at = view.find(block)
    view.flush()
END
}

head -c 3000000 /dev/urandom >large
for i in 1 2 3 4 5 6; do "$lapis" put large "b/$i" || say "put $i"; done
head -c 90 large | "$lapis" put - b/small || say "put small"
head -c 2000000 /dev/urandom >other
"$lapis" put other b/other || say "put other"

"$lapis" scrub | grep -q '^shard 0 *never' || say "before the first: $("$lapis" scrub)"
"$lapis" scrub start >/dev/null || say start
"$lapis" scrub wait >log || say "wait: $(cat log)"
[ "$(grep -c 'done .*nothing damaged' log)" = 2 ] || say "sound: $(cat log)"

# The first is read once more, so that a cache has it, and then changed below.
"$lapis" get b/other got || say get
rot
"$lapis" scrub start >/dev/null || say "start again"
if "$lapis" scrub wait >log; then say "damage is no failure: $(cat log)"; fi
[ "$(grep -c 'offset 40960: checksum mismatch' log)" = 1 ] || say "not named: $(cat log)"
[ "$(grep -c 'inode' log)" = 1 ] || say "more than that: $(cat log)"
[ "$("$lapis" scrub --json | grep -c '"damaged": 1')" = 1 ] || say "json: $("$lapis" scrub --json)"
"$lapis" status | grep -q '^scrub .*, 1 damaged' || say "status: $("$lapis" status)"
"$lapis" stats --prometheus | grep -q '^lapis_scrub_damaged_total.* 1$' || say "not counted"
grep -q 'error: damaged: checksum mismatch' d.err || say "not in the log"
for i in 1 2 3 4 5 6; do
	if ! "$lapis" get "b/$i" got || ! cmp large got; then say "b/$i"; fi
done

if "$lapis" get b/other got 2>/dev/null; then say "it is given out"; fi

# Written anew it is sound; whatever is written and removed meanwhile is no damage.
"$lapis" put other b/other || say "put other again"
for i in 1 2 3 4 5; do
	"$lapis" scrub start >/dev/null || say "start under load"
	for name in large other; do
		"$lapis" put "$name" "b/load-$i-$name" || say "put under load"
		"$lapis" rm "b/load-$i-$name" || say "rm under load"
	done
	"$lapis" scrub wait >log || say "under load: $(cat log)"
done
"$lapis" status | grep -q '^scrub .*, nothing damaged' || say "status: $("$lapis" status)"

# Slow, it can be ended, and so can the daemon meanwhile.
rot
"$lapis" config set scrub-rate 100K >/dev/null || say "config set"
"$lapis" scrub start >/dev/null
"$lapis" scrub | grep -q running || say "it is over: $("$lapis" scrub)"
"$lapis" scrub stop >/dev/null || say stop
for _ in $(seq 100); do
	"$lapis" scrub | grep -q running || break
	sleep 0.1
done
"$lapis" scrub | grep -q stopped || say "not stopped: $("$lapis" scrub)"
if "$lapis" scrub wait >log; then say "nobody says that it was stopped: $(cat log)"; fi
"$lapis" scrub start >/dev/null
if "$lapis" scrub frobnicate 2>log; then say "a wrong word"; fi
end_daemon TERM
"$lapis" fsck a.img >/dev/null || say fsck

# What a stop has cut short goes on after the start, and remembers what it had found.
up --scrub-rate 100K
for _ in $(seq 100); do
	[ "$("$lapis" scrub | grep -c running)" = 2 ] && break
	sleep 0.1
done
[ "$("$lapis" scrub | grep -c running)" = 2 ] || say "it does not go on: $("$lapis" scrub)"
"$lapis" config set scrub-rate 0 >/dev/null
if "$lapis" scrub wait >log; then say "damage is forgotten: $(cat log)"; fi
[ "$(grep -c 'done' log)" = 2 ] || say "not ended: $(cat log)"
end_daemon KILL
up
sleep 1.5
[ "$("$lapis" scrub | grep -c 'idle, all checked .*: .* damaged; the next begins in 16[78]')" = 2 ] || say "again: $("$lapis" scrub)"
end_daemon TERM
finish
