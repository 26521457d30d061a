#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: Lapis can be built on the mount: compilers and linkers, with their temporary files, mappings and
# renames, make's times, a program that is run from there.
# Method: a module with one of its tests and the program that needs the least are built from a copy of
# the tree. The objects must be those of the build under test but for what a debugger reads, the
# test must pass, and make must then have nothing to do; after a touch, only what depends on it.
# timeout: 240
# variants: release
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
needs make gcc objcopy

targets=(build/release/test/base/crc32c_test build/release/test/base/struct/list_test)
tree=$dir/tree

build()
{
	env -u MAKEFLAGS -u MAKELEVEL make -C "$tree" -j2 VARIANT=release CC=gcc CXX=g++ "${targets[@]}" >make.out 2>&1 || {
		say "make: $(tail -n 5 make.out)"
		exit 1
	}
}

# same_object A B: but for what a debugger reads, which has the directory's name in it.
same_object()
{
	objcopy --strip-debug --wildcard --remove-section='.gnu.*lto_*' "$1" one.o &&
		objcopy --strip-debug --wildcard --remove-section='.gnu.*lto_*' "$2" two.o && cmp one.o two.o
}

make_store 1G
start first
mkdir "$tree"
(cd "$LP_TEST_SRC" && tar --exclude=./build --exclude=./.git -cf - .) | tar -xf - -C "$tree"
build
stop

# What the next daemon reads is what the compiler wrote.
start second
count=0
for object in "$tree"/build/release/obj/base/*.o; do
	same_object "$object" "$LP_TEST_BUILD/obj/base/${object##*/}" || say "${object##*/} is another than outside"
	count=$((count + 1))
done
[ "$count" -gt 10 ] || say "$count objects"
for target in "${targets[@]}"; do
	(cd "$dir" && "$tree/$target") >test.out 2>&1 || say "$target: $(tail -n 5 test.out)"
done
env -u MAKEFLAGS -u MAKELEVEL make -C "$tree" -q VARIANT=release CC=gcc CXX=g++ "${targets[@]}" || say "make has something to do"
touch "$tree/base/struct/list_test.c"
find "$tree/build" -type f -printf '%p %T@\n' | sort >before
build
find "$tree/build" -type f -printf '%p %T@\n' | sort >after
diff before after | sed -n 's/^> .*build\/release\/\([^ ]*\) .*/\1/p' >changed
grep -q '^obj/base/struct/list_test.o$' changed || say "what was touched is not built: $(cat changed)"
grep -q 'crc32c' changed && say "more is built than what was touched: $(cat changed)"
stop
whole
finish
