#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: what a user reads is what he wrote, whichever way it comes: by shared memory through a unix socket, through
# the socket by TCP; and what is large does come by shared memory, for the command, the library and the load (door D11).
# Method: lapis put and get of a large file, whole and in parts, beside the daemon's counts; daemon_load with and without;
# a daemon that is stopped while many read.
# variants: release asan
set -u
PATH="$LP_TEST_BUILD/bin:$LP_TEST_BUILD/tools:$PATH"
. "$LP_TEST_SRC/tests/lib.sh"
export LAPIS_ADDRESS=unix:$PWD/sock

start()
{
	serve --memory 256M --listen "$LAPIS_ADDRESS" --listen tcp:127.0.0.1:0 a.img
	tcp=tcp:$(grep -o 'listening on tcp:[^ ]*' d.err | cut -d: -f2-)
}

# Replies with data in shared memory so far.
shared()
{
	lapis stats --json | python3 -c '
import json, sys
print(sum(shard["connections"]["shared_replies"] for shard in json.load(sys.stdin)["shards"]))'
}

# get WHAT ARG...: what comes is in the file WHAT.out; says how many replies came by shared memory.
get()
{
	local before
	before=$(shared)
	lapis "${@:2}" "$1.out" 2>err || say "lapis ${*:2}: $(cat err)"
	echo $(($(shared) - before))
}

head -c 25000001 /dev/urandom >data
lapis mkfs --size 256M a.img >/dev/null 2>err || say "mkfs: $(cat err)"
start
lapis put data b/k 2>err || say "put: $(cat err)"

# Not the first ones: that it is worth it shows when one has come.
count=$(get whole get b/k)
cmp data whole.out || say "the whole is another"
[ "$count" -ge 4 ] || say "of 24 pieces $count came by shared memory"
count=$(get range get --range 1000001-20000000 b/k)
cmp <(tail -c +1000002 data | head -c 19000000) range.out || say "a range is another"
[ "$count" -ge 4 ] || say "of 19 pieces $count came by shared memory"
count=$(get small get --range 5-60000 b/k)
cmp <(tail -c +6 data | head -c 59996) small.out || say "a small range is another"
[ "$count" = 0 ] || say "a small range came by shared memory"
count=$(get tcp -s "$tcp" get b/k)
cmp data tcp.out || say "by TCP it is another"
[ "$count" = 0 ] || say "by TCP it came by shared memory"

for share in on off; do
	daemon_load --address "$LAPIS_ADDRESS" --op read --size 4M --depth 4 --object-size 16M --ops 40 --share $share >out 2>err ||
		say "daemon_load --share $share: $(cat err)"
	python3 - $share <<'END' || say "daemon_load --share $share: $(cat out)"
import json, sys
report = json.load(open("out"))
sys.exit(report["errors"] != 0 or report["ops"] != 40 or (report["shared"] > 100) != (sys.argv[1] == "on"))
END
done

# Whoever reads when it is stopped and comes up again reads on; who asks just then is told; none reads anything else.
for number in 1 2 3 4; do
	(
		for ((i = 0; i < 6; i++)); do
			until lapis get b/k "back$number" 2>"back$number.err"; do
				! grep -Eq 'damaged|less than|more than|does not f|shared' "back$number.err" || exit 1
				sleep 0.02
			done
			cmp -s data "back$number" || exit 2
		done
	) &
	readers[number]=$!
done
sleep 0.1
end_daemon TERM
start
for number in 1 2 3 4; do
	wait "${readers[number]}" || say "reader $number: exit status $?: $(cat "back$number.err")"
done
end_daemon TERM
lapis fsck --deep a.img >out 2>&1 || say "fsck: $(tail -n 5 out)"
finish
