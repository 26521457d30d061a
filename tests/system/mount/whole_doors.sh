#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: through the mount and through the socket the namespace does what the model of it does
# (tests/whole/model.h), whatever operations come, and with the kernel's caches of data and names in between.
# Method: random operations, the same that tests/whole/whole_test.c runs inside, as system calls and as requests of
# liblapis: types, links, renames with their flags, files without a name or that lost it, puts, copies, moves,
# data at the edges, holes, attributes, lists. Each answer is compared, and in the end all that is there; also
# with what is written kept by the kernel. What came through the socket is removed through the mount.
# variants: release asan
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
seeds=${LP_WHOLE_SEEDS:-10}
first=${LP_WHOLE_SEED:-1}

# run PLACE FIRST: as many seeds from there on.
run()
{
	"$LP_TEST_BUILD/tools/whole" "$1" "$2" "$seeds" 150 >whole.out 2>whole.err || say "$1: $(head -c 4000 whole.err)"
	[ "$(grep -c '^seed' whole.out)" = "$seeds" ] || say "$1: not all seeds were run: $(cat whole.out)"
}

make_store 1G
start first --listen "unix:$PWD/sock"
run "$dir" "$first"
run "unix:$PWD/sock" "$first"
[ "$(find "$dir" -maxdepth 1 -name 'whole*' | wc -l)" = $((2 * seeds)) ] || say "not all is seen: $(ls "$dir")"
rm -r "$dir"/whole* || say "what they left cannot be removed"
stop
start second --mount-options writeback
run "$dir" $((first + seeds))
rm -r "$dir"/whole* || say "what it left cannot be removed"
stop
whole
finish
