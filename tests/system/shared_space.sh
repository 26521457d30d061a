#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One object may fill the device, whichever of two shards it is on, and wherever the one was that is
# gone: a shard gives chunks back that another one lacks, also when it is idle (rule S5).
# variants: release asan
# timeout: 240
set -u
. "$LP_TEST_SRC/tests/lib.sh"
lapis="$LP_TEST_BUILD/bin/lapis"
lapisd="$LP_TEST_BUILD/bin/lapisd"
pid=
export LAPIS_ADDRESS=unix:$PWD/sock

end_all()
{
	[ -n "$pid" ] && kill -KILL "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
}
trap end_all EXIT

"$lapis" mkfs --size 512M --shards 2 a.img >/dev/null || exit 1
"$lapisd" --memory 256M --listen "$LAPIS_ADDRESS" a.img >d.out 2>d.err &
pid=$!
for ((i = 0; i < 600; i++)); do
	grep -qs '^lapisd: ready$' d.out && break
	sleep 0.05
done
"$lapis" mb b >/dev/null || say "no bucket"
head -c 260M /dev/urandom >data

shards=
for name in a b c d e f; do
	# What was removed is freed step by step.
	for ((i = 0; i < 50; i++)); do
		"$lapis" put data "b/$name" 2>put.err && break
		sleep 0.1
	done
	"$lapis" get "b/$name" - | cmp - data || say "$name: $(cat put.err)"
	ino=$("$lapis" stat --json "b/$name" | python3 -c 'import json, sys; print(json.load(sys.stdin)["ino"])')
	shards+="$((ino >> 56)) "
	"$lapis" rm "b/$name" || say "$name: cannot be removed"
done
case " $shards" in
*" 0 "*" 1 "*" 0 "* | *" 1 "*" 0 "*" 1 "*) ;;
*) say "the objects did not change between the shards: $shards" ;;
esac

kill -TERM "$pid"
wait "$pid" || say "exit status $? after SIGTERM"
pid=
"$lapis" fsck a.img >fsck.out || say "fsck: $(cat fsck.out)"
finish
