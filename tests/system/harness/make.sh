#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# variants: release
# Goal: the Makefile builds what module.mk files say, again when and only when something changed,
# for each allocator, below build/ only; and refuses what it does not know.
# Method: our Makefile over a small tree of two modules, a program, a test and a format page.
set -euo pipefail

mkdir -p base app scripts docs/format man
cp "$LP_TEST_SRC/Makefile" .
cp "$LP_TEST_SRC/scripts/gen-format" scripts/
printf 'MODULES += base\nbase_USES :=\n' >base/module.mk
printf 'MODULES += app\napp_USES := base\napp_PROGS := hello\napp_GEN := format/disk.h\n' >app/module.mk
cat >docs/format/disk.md <<'FILE'
Struct: lp_disk size 4
| offset | size | type | name | meaning | since |
|---|---|---|---|---|---|
| 0 | 4 | u32 | magic | | 1 |
FILE
cat >base/endian.h <<'FILE'
#pragma once
#include <stdint.h>
uint32_t lp_get_le32(const void *from);
void lp_put_le32(void *to, uint32_t value);
FILE
cat >base/endian.c <<'FILE'
#include "base/endian.h"
uint32_t lp_get_le32(const void *from)
{
	return from != 0;
}
void lp_put_le32(void *to, uint32_t value)
{
	(void)to;
	(void)value;
}
FILE
cat >base/endian_test.c <<'FILE'
int main(void)
{
	return 0;
}
FILE
cat >app/hello_main.c <<'FILE'
#include "format/disk.h"
#include <stdio.h>
extern const char lp_allocator_name[];
int main(void)
{
	(void)printf("%s %d %s\n", lp_allocator_name, LP_DISK_SIZE, LAPIS_VERSION);
	return 0;
}
FILE
echo '.Dd' >man/hello.1

fail()
{
	echo "$*"
	exit 1
}
# Without the jobs and flags of a make that may have called this test.
mk()
{
	env -u MAKEFLAGS -u MAKELEVEL make --no-print-directory -j2 WERROR=1 "$@"
}
# made PATTERN ARGS...: what make would do, it does to what PATTERN finds.
made()
{
	mk VERBOSE=1 "${@:2}" >out
	grep -q -- "$1" out || fail "expected $1 in: $(cat out)"
}

before=$(find . -type f | sort)
mk tests
[ -x build/release/test/base/endian_test ] || fail "no test program"
[[ $(build/release/bin/hello) =~ ^'glibc 4 '[0-9.]+$ ]] || fail "hello: $(build/release/bin/hello)"
[ "$(find . -type f -not -path './build/*' | sort)" = "$before" ] || fail "output outside of build/"

mk -q tests || fail "a second make has something to do"
sleep 0.05
touch base/endian.h
made 'endian.c' tests
mk -q tests || fail "make is never done after a change"
# A page that changes makes its header and what includes it again.
sed -i 's/size 4$/size 8/;$a | 4 | 4 | u32 | more | | 1 |' docs/format/disk.md
mk all
[[ $(build/release/bin/hello) =~ ^'glibc 8 ' ]] || fail "hello does not follow its format page"
# A page with a mistake stops the build and leaves no header.
sed -i '$d' docs/format/disk.md
! mk all 2>out || fail "a wrong page was accepted"
grep -q 'fields end at 4' out || fail "no word of the mistake: $(cat out)"
sed -i 's/size 8$/size 4/' docs/format/disk.md

mk allocators
for allocator in jemalloc tcmalloc mimalloc; do
	program=build/release-$allocator/bin/hello
	[[ $($program) =~ ^"$allocator 4 " ]] || fail "$program: $($program)"
	ldd "$program" >out # not into grep -q, which may leave before ldd has done
	grep -q "lib$allocator" out || fail "$program is not linked with $allocator"
done
ldd build/release/bin/hello >out
! grep -q malloc out || fail "release is linked with an allocator: $(cat out)"

for variant in asan tsan; do
	mk SAN=$variant all
	[ -x build/$variant/bin/hello ] || fail "no build/$variant/bin/hello"
done
mk VARIANT=cov all

mk install DESTDIR="$PWD/root" PREFIX=/opt
[ -x root/opt/bin/hello ] || fail "install: $(find root)"
[ -f root/opt/share/man/man1/hello.1 ] || fail "install: $(find root)"

! mk ALLOC=none all 2>out || fail "ALLOC=none was accepted"
grep -q 'is not one of' out || fail "ALLOC=none: $(cat out)"
! mk SAN=asan ALLOC=jemalloc all 2>out || fail "asan with jemalloc was accepted"
! mk VARIANT=fast all 2>out || fail "VARIANT=fast was accepted"

# WERROR=1 makes a warning an error.
echo 'static int unused;' >>base/endian.c
! mk all 2>out || fail "a warning was no error"
env -u MAKEFLAGS -u MAKELEVEL make -s all 2>out || fail "a warning stops a build without WERROR"
mk clean
[ ! -e build ] || fail "clean leaves build/"
