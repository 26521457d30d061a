#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: what was written by earlier code of the same format is read, checked and served as it was: the
# format does not change without a new version.
# Method: each image of tests/golden is checked (fsck --deep), its records and contents are printed and
# held against what is recorded; then it is opened for writing, which ends what was under way in it, and
# checked and printed once more.
set -u
. "$LP_TEST_SRC/tests/lib.sh"
golden="$LP_TEST_BUILD/tools/golden"
recorded="$LP_TEST_SRC/tests/golden"

# check NAME WHEN: a deep fsck finds nothing.
check()
{
	local image="$1.img" devices=()
	[ ! -e "$image.db" ] || devices+=(--db "$image.db")
	[ ! -e "$image.wal" ] || devices+=(--wal "$image.wal")
	"$lapis" fsck --deep "${devices[@]}" "$image" >out 2>&1 || say "$1, $2: fsck: $(cat out)"
	grep -q ': clean$' out || say "$1, $2: $(cat out)"
}

# same NAME VERB WHAT: the tool prints what is recorded.
same()
{
	"$golden" "$2" "$1.img" >out 2>err || say "$1: golden $2: $(cat err)"
	diff -u "$recorded/$1.$3" out >differences || say "$1: golden $2: $(head -20 differences)"
}

names=$("$recorded/images" --unpack .) || say "cannot unpack"
[ "$(echo "$names" | wc -w)" -ge 3 ] || say "only these images: $names"
for name in $names; do
	check "$name" "as it was"
	same "$name" records records
	same "$name" contents contents
	same "$name" serve contents
	check "$name" "after it was served"
	same "$name" contents contents
done

finish
