#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: lapisd serves a store in files of a directory: what was put is there after a stop, and after
# kill -9; a directory in use, or of something else, is refused; on a full file system it says so,
# still reads and still deletes (P6); and a store that is killed while it works has every
# transaction it acknowledged.
# Method: the daemon and the commands on a directory, and on a small tmpfs where that can be mounted;
# store_kill on a directory, 8 rounds; the protocol's second client.
# variants: release asan
set -u
. "$LP_TEST_SRC/tests/lib.sh"

mkdir store
export LAPIS_ADDRESS=unix:$PWD/s
trap 'end_daemon; umount full 2>/dev/null' EXIT

up()
{
	serve --store file --listen "$LAPIS_ADDRESS" --memory 256M "$@"
}

# same KEY FILE WHAT: the object has what the file has.
same()
{
	if ! "$lapis" get "$1" got || ! cmp "$2" got; then say "$1, $3: $(cat d.err)"; fi
}

head -c 3000000 /dev/urandom >large
head -c 5000 /dev/urandom >small
up --shards 2 store
"$lapis" mb b || say mb
"$lapis" put large b/large || say "put large"
for i in $(seq 40); do "$lapis" put small "b/dir/$i"; done || say "put small"
"$lapis" cp b/large b/copy || say cp
"$lapis" xattr set b/large user.k v || say xattr
"$lapis" status >status.txt || say status
grep -q '"store": "file"' <("$lapis" stats --json) || say "stats: no store kind"

# A second daemon is refused, and so is another number of shards later.
if "$LP_TEST_BUILD/bin/lapisd" --store file --listen unix:s2 store >out2 2>err2; then say "a second one"; fi
grep -q 'another process has this store open' err2 || say "a second one: $(cat err2)"
end_daemon KILL

check()
{
	same b/large large "$1"
	same b/copy large "$1"
	for i in 1 17 40; do
		same "b/dir/$i" small "$1"
	done
	[ "$("$lapis" ls -r b | wc -l)" = "$2" ] || say "ls, $1: $("$lapis" ls -r b | wc -l)"
	[ "$("$lapis" xattr get b/large user.k)" = v ] || say "xattr, $1"
}

up store
check "after kill -9" 42
"$lapis" put small b/copy || say "put over"
"$lapis" rm b/dir/2 || say rm
"$lapis" put large b/copy || say "put over again"
end_daemon TERM
up store
check "after a stop" 41
end_daemon TERM
if "$LP_TEST_BUILD/bin/lapisd" --store file --shards 3 --listen unix:s2 store >out2 2>err2; then say "3 shards"; fi
grep -q 'the store has 2 shards' err2 || say "3 shards: $(cat err2)"

# Full (P6).
full()
{
	mkdir full
	mount -t tmpfs -o size=160m none full 2>/dev/null || return 0
	up --shards 1 full
	local i=0
	"$lapis" mb b || say "full: mb"
	while [ $i -lt 60 ] && "$lapis" put large "b/$i" 2>err3; do i=$((i + 1)); done
	if [ $i -le 5 ] || [ $i -ge 60 ]; then say "full: $i objects"; fi
	grep -q 'No space left' err3 || say "full: $(cat err3)"
	same b/1 large full
	for j in 1 2 3 4 5; do "$lapis" rm b/$j || say "full: rm $j"; done
	for j in $(seq 100); do "$lapis" put large b/again 2>err3 && break; sleep 0.05; done
	same b/again large "written again ($(cat err3))"
	end_daemon TERM
	umount full || say "full: umount"
}
full

if [ -x "$LP_TEST_BUILD/tools/store_kill" ]; then
	mkdir kill
	"$LP_TEST_BUILD/tools/store_kill" kill 8 "${LP_KILL_SEED:-1}" >kill.log || say "$(tail -n 3 kill.log)"
fi
# The whole of the protocol, as on the other stores.
python3 "$LP_TEST_SRC/tests/wire/opcodes.py" file >wire.log 2>&1 || say "wire: $(grep -v '^ok' wire.log | tail -n 5)"
# And by the bench, which reads everything back.
mkdir bench
"$lapis" store-bench --store file --op overwrite --size 4K --depth 16 --ops 500 --verify bench >bench.log 2>&1 ||
	say "store-bench: $(cat bench.log)"
finish
