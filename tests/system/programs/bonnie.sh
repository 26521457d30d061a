#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: bonnie++ (writing, rewriting, seeking, thousands of files in directories) ends without an error
# on the mount, and gives back the space it took.
# Method: two runs at once, of a user and of root, as fast as they can; each must say a result for
# every phase. Then the directory is empty, and the store has as much free space as before.
# timeout: 120
# variants: release
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
needs bonnie++

# run USER: its last line has all figures, with commas between them.
run()
{
	mkdir "$dir/$1"
	chown "$1" "$dir/$1"
	bonnie++ -d "$dir/$1" -u "$1" -f -s 64 -r 32 -n 2:5000:0:5 -m here -q >"$1.out" 2>"$1.err" || say "bonnie++: $(tail -n 3 "$1.err")"
	grep -Eiq 'error|fail|can.t' "$1.err" && say "bonnie++ says: $(tail -n 3 "$1.err")"
	[ "$(tail -n 1 "$1.out" | tr , '\n' | wc -l)" -ge 40 ] || say "bonnie++ has no results: $(tail -n 2 "$1.out")"
	[ -z "$(ls -A "$dir/$1")" ] || say "bonnie++ leaves something: $(find "$dir/$1" | head -n 3)"
}

free_space()
{
	stat -f -c %a "$dir"
}

make_store 1G
start first
chmod 755 "$dir"
before=$(free_space)
(run nobody && [ "$failures" = 0 ]) >nobody.said 2>&1 &
other=$!
pids+=("$other")
run root
wait "$other" || say "at the same time: $(cat nobody.said)"
stop
start second
# Of some 150 MiB; the index is compacted when it likes, and takes its space by the MiB.
[ "$(free_space)" -ge $((before - 4096)) ] || say "of $before blocks $(free_space) are free again"
stop
whole
finish
