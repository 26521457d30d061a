#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: through the mount the namespace does what the model of it does (tests/whole_model.h), whatever
# operations come, and with the kernel's caches of data and names in between.
# Method: random operations as system calls, the same that tests/whole_test.c runs inside: types, links,
# renames with their flags, files without a name or that lost it, data at the edges, holes, attributes;
# each answer is compared, and in the end all that is there; also with what is written kept by the kernel.
# variants: release asan
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
seeds=${LP_WHOLE_SEEDS:-12}
first=${LP_WHOLE_SEED:-1}

# run FIRST: as many seeds from there on.
run()
{
	"$LP_TEST_BUILD/tools/whole" "$dir" "$1" "$seeds" 150 >whole.out 2>whole.err || say "$(head -c 4000 whole.err)"
	[ "$(grep -c '^seed' whole.out)" = "$seeds" ] || say "not all seeds were run: $(cat whole.out)"
	rm -r "$dir"/whole* || say "what it left cannot be removed"
}

make_store 1G
start first
run "$first"
stop
start second --mount-options writeback
run $((first + seeds))
stop
whole
finish
