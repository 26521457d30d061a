#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: the load that the experiments are made with is what it says: each connection has a file of its own, whatever
# the number of shards, so that layouts are compared over the same bytes; and a rate is that of all connections.
# Method: daemon_load on a daemon of one shard and one of two; the files are looked at by lapis.
# variants: release
set -u
PATH="$LP_TEST_BUILD/bin:$LP_TEST_BUILD/tools:$PATH"
. "$LP_TEST_SRC/tests/lib.sh"
export LAPIS_ADDRESS=unix:$PWD/sock
CONNECTIONS=3
OBJECT_BYTES=1048576

# load OP ARG...: the report is in the file out.
load()
{
	daemon_load --address "$LAPIS_ADDRESS" --op "$1" --connections $CONNECTIONS --object-size $OBJECT_BYTES "${@:2}" >out 2>err ||
		say "daemon_load $*: exit status $?: $(cat err)"
}

full_files()
{
	local key
	for key in $(lapis ls -r); do
		lapis stat "$key"
	done | grep -cw "$OBJECT_BYTES"
}

for shards in 1 2; do
	serve --store mem --memory 256M --shards $shards --threads $shards --listen "$LAPIS_ADDRESS"
	load write --ops 300
	load read --ops 300 # finds what is there
	[ "$(full_files)" = $CONNECTIONS ] || say "$shards shards: $(full_files) files of $OBJECT_BYTES bytes: $(lapis ls -r)"
	load read --ops 300 --rate 1000
	python3 -c 'import json, sys
r = json.load(open("out"))
sys.exit(r["ops"] != 300 or not 0.25 <= r["seconds"] < 3)' || say "$shards shards: 300 at 1,000 a second: $(cat out)"
	end_daemon TERM
done
finish
