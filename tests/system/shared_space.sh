#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One object may fill the device, whichever of two shards it is on, and wherever the one was that is
# gone: a shard gives chunks back that another one lacks, also when it is idle (rule S5).
# variants: release asan
# timeout: 240
set -u
. "$LP_TEST_SRC/tests/lib.sh"
export LAPIS_ADDRESS=unix:$PWD/sock

"$lapis" mkfs --size 512M --shards 2 a.img >/dev/null || exit 1
serve --memory 256M --listen "$LAPIS_ADDRESS" a.img
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

end_daemon TERM
"$lapis" fsck a.img >fsck.out || say "fsck: $(cat fsck.out)"
finish
