#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: a put that fails has changed nothing: the object is as it was, or there is none (rule W3). Method:
# files of all sizes, with and without holes, that grow, shrink or are overwritten while lapis reads them,
# by put, put from standard input and sync -r; a library that is preloaded changes them at one read, the
# first, one in the middle or the last. What is read from is then put again, and is right.
# timeout: 240
# variants: release release-nolto debug
set -u
. "$LP_TEST_SRC/tests/lib.sh"
export LAPIS_ADDRESS=unix:$PWD/sock

cc -std=gnu17 -O1 -D_GNU_SOURCE -U_FORTIFY_SOURCE -shared -fPIC -o change_file.so \
	"$LP_TEST_SRC/tests/system/change_file.c" || say "change_file.c does not compile"
serve --store mem --shards 2 --memory 256M --listen "$LAPIS_ADDRESS"

# changed FILE AT HOW ARG...: lapis, while the file changes at that read. It must fail, and say why.
changed()
{
	local file=$1 at=$2 how=$3 status
	shift 3
	LD_PRELOAD=$PWD/change_file.so LP_CHANGE_FILE=$PWD/$file LP_CHANGE_AT=$at LP_CHANGE_HOW=$how \
		"$lapis" "$@" >out 2>err <"${input:-/dev/null}"
	status=$?
	[ "$status" = 1 ] || say "$how at read $at of $file: lapis $*: exit status $status: $(cat out err)"
	grep -q "it changed while it was read; nothing was stored" err || say "$how at read $at of $file: lapis $*: $(cat err)"
	cases=$((cases + 1))
}

# fresh FILE SIZE: of random bytes.
fresh()
{
	rm -f "$1"
	case $2 in
	sparse)
		truncate -s 20M "$1"
		head -c 300000 /dev/urandom | dd of="$1" bs=1M seek=8 conv=notrunc iflag=fullblock status=none
		head -c 5000 /dev/urandom >>"$1"
		;;
	*) head -c "$2" /dev/urandom >"$1" ;;
	esac
}

# unchanged KEY: is as it was.
unchanged()
{
	"$lapis" cat b/old | cmp -s - before || say "$1: a failed put has replaced the object"
	"$lapis" stat b/new >out 2>&1 && say "$1: a failed put has made an object"
}

cases=0
head -c 3000000 /dev/urandom >before
"$lapis" put before b/old || say "put"
version=$("$lapis" stat --json b/old)
# Of one read; of one message; of several; of many pieces; with holes.
for size in 5 4000 200000 400000 3000000 20000000 sparse; do
	case $size in
	5 | 4000 | 200000) reads='1 2' ;;
	400000) reads='1 2 3' ;;
	*) reads='1 3 6' ;;
	esac
	for how in grow shrink overwrite back; do
		for at in $reads; do
			# By its last read the end of a file has been read, and it changes all the same.
			fresh file "$size"
			changed file "$at" "$how" put file b/old
			fresh file "$size"
			changed file "$at" "$how" put file b/new
			unchanged "$how at read $at of $size bytes"
			fresh file "$size"
			input=./file changed file "$at" "$how" put - b/old
			unchanged "$how at read $at of $size bytes of standard input"
		done
	done
	"$lapis" put file b/again || say "put again of $size bytes"
	"$lapis" cat b/again | cmp -s - file || say "put again of $size bytes: another content"
done
[ "$version" = "$("$lapis" stat --json b/old)" ] || say "b/old: $version is $("$lapis" stat --json b/old)"

# A tree: what changed stays as it was, and all else goes there. Once more, and it is the same.
mkdir -p tree/sub
for name in a sub/b sub/c; do
	fresh "tree/$name" 500000
	cp "tree/$name" "was.${name//\//.}"
done
"$lapis" sync tree b/tree || say "sync"
for name in a sub/b sub/c; do
	fresh "tree/$name" 600000
	touch -d '+1 hour' "tree/$name"
done
changed tree/sub/b 2 grow sync tree b/tree
"$lapis" cat b/tree/sub/b | cmp -s - was.sub.b || say "sync: what changed is not as it was"
for name in a sub/c; do
	"$lapis" cat "b/tree/$name" | cmp -s - "tree/$name" || say "sync: $name is not there"
done
"$lapis" sync tree b/tree || say "sync again"
"$lapis" cat b/tree/sub/b | cmp -s - tree/sub/b || say "sync again: not the same"

# What is put by hand is not so quick: a file that grows all the time, and then does not.
fresh file 20000000
while :; do
	printf x >>file
	sleep 0.002
done &
writer=$!
sleep 0.1
"$lapis" put file b/old 2>err && say "a file that grows was put"
kill "$writer"
wait "$writer" 2>/dev/null
unchanged "a file that grows all the time"
"$lapis" put file b/old || say "put of what has grown: $(cat err)"
"$lapis" cat b/old | cmp -s - file || say "what has grown is not what was put"

# Nothing is left of what was abandoned.
"$lapis" rm -r b || say "rm"
echo "$cases puts of files that change"
end_daemon TERM
finish
