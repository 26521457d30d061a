#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: who closes standard input, output or error of a program of ours harms no store and no data: nothing that is
# opened gets their numbers. Output that was asked for and not written is a failure of both programs that are
# `lapis`, said on standard error, whether the device is full or it was closed; who has nothing to
# print succeeds, and an input that is closed is not an empty one. Method: each of them closed, and all.
# timeout: 120
set -u
. "$LP_TEST_SRC/tests/lib.sh"
export LAPIS_ADDRESS=unix:$PWD/sock
offline=$LP_TEST_BUILD/libexec/lapis_offline
pid= # of what is looked at

end_all()
{
	[ -n "$pid" ] && kill -KILL "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
	end_daemon KILL
}
trap end_all EXIT

# closed WHICH COMMAND...: what it says is in out and err.
closed()
{
	local which=$1
	shift
	: >out
	: >err
	case $which in
	0) "$@" <&- >out 2>err ;;
	1) "$@" >&- 2>err ;;
	2) "$@" >out 2>&- ;;
	all) "$@" <&- >&- 2>&- ;;
	esac
}

# is STATUS WHICH COMMAND...: its exit status, and where that is 1 because of standard output, the words.
is()
{
	local status=$1 which=$2
	shift 2
	closed "$which" "$@"
	local got=$?
	[ "$got" = "$status" ] || say "$which closed: $*: exit status $got, not $status: $(cat out err)"
	[ "$which" = 1 ] && [ "$status" = 1 ] || return
	[ "$(cat err)" = 'lapis: standard output: Bad file descriptor' ] || say "$which closed: $*: says $(cat err)"
}

# start WHICH COMMAND...: as closed, in the background.
start()
{
	local which=$1
	shift
	case $which in
	0) "$@" <&- >d.out 2>d.err & ;;
	1) "$@" >&- 2>d.err & ;;
	2) "$@" >d.out 2>&- & ;;
	all) "$@" <&- >&- 2>&- & ;;
	esac
	pid=$!
}

# none_is WHICH WHO: what was closed is nothing that the program that runs has opened itself.
none_is()
{
	local fd is
	for fd in 0 1 2; do
		[ "$1" = $fd ] || [ "$1" = all ] || continue
		is=$(readlink "/proc/$pid/fd/$fd")
		[ "$is" = /dev/null ] || say "$1 closed: $2 has $is as $fd"
	done
}

# The label; what follows is changed by who opens the store to repair it.
image_sum()
{
	head -c 4096 a.img | sha256sum
}

"$lapis" mkfs --size 256M --shards 1 a.img >out || say "mkfs: $(cat out)"
"$lapis" fsck --repair a.img >out || say "fsck: $(cat out)"
sum=$(image_sum)
for program in "$lapis" "$offline"; do
	for which in 0 1 2 all; do
		case $which in 1 | all) status=1 ;; *) status=0 ;; esac
		is $status $which "$program" fsck --repair a.img
		[ "$(image_sum)" = "$sum" ] || say "$which closed: fsck --repair has written over the store"
		is $status $which "$program" info --json a.img
		rm -f new.img
		is $status $which "$program" mkfs --size 256M --shards 1 new.img
		"$lapis" fsck new.img >out 2>&1 || say "$which closed: mkfs: $(cat out)"
		# Nothing to print: what is wrong with the call.
		closed $which "$program" mkfs a.img && say "$which closed: mkfs over a store"
		[ "$(image_sum)" = "$sum" ] || say "$which closed: mkfs has written over the store"
	done
	for call in "info --json a.img" "info a.img" "fsck a.img" "mkfs --help"; do
		# shellcheck disable=SC2086 # several words
		"$program" $call >/dev/full 2>err
		[ $? = 1 ] || say "$call to a full device: exit status is not 1"
		[ "$(cat err)" = 'lapis: standard output: No space left on device' ] || say "$call to a full device: $(cat err)"
	done
done
for call in --help --version; do
	"$lapis" $call >/dev/full 2>err && say "$call to a full device succeeded"
	is 1 1 "$lapis" $call
done

# While it has the device open.
"$lapis" mkfs --size 256M --shards 1 bench.img >out || say "mkfs: $(cat out)"
# bench_closed WHICH PROGRAM: so is a measurement that goes on.
bench_closed()
{
	start "$1" "$2" store-bench --seconds 60 bench.img
	for ((i = 0; i < 600; i++)); do
		[ -n "$(find "/proc/$pid/fd" -lname '*/bench.img' 2>/dev/null)" ] && break
		sleep 0.05
	done
	[ "$i" -lt 600 ] || say "$1 closed: $2 store-bench has no device open"
	none_is "$1" "$2 store-bench"
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null
	pid=
}
for which in 0 1 2 all; do
	bench_closed $which "$lapis"
	bench_closed $which "$offline"
done

# The daemon: what it logs, and that it is ready.
for which in 0 1 2 all; do
	start $which "$LP_TEST_BUILD/bin/lapisd" --memory 256M --listen "$LAPIS_ADDRESS" a.img
	for ((i = 0; i < 1200; i++)); do
		"$lapis" status >out 2>&1 && break
		sleep 0.05
	done
	none_is $which lapisd
	[ "$which" = 0 ] && "$lapis" mb b
	echo "closed $which" | "$lapis" put - "b/$which" || say "$which closed: put"
	kill -TERM "$pid"
	wait "$pid" || say "$which closed: lapisd: exit status $?"
	pid=
	"$lapis" fsck --deep a.img >out 2>&1 || say "$which closed: lapisd has harmed the store: $(cat out)"
	[ "$(image_sum)" = "$sum" ] || say "$which closed: lapisd has written over the store"
done

serve --memory 256M --listen "$LAPIS_ADDRESS" a.img
mkdir tree
echo content >file
echo content >tree/file
for which in 0 1 2 all; do
	rm -rf got tree.back
	is 0 $which "$lapis" put file b/file
	is 0 $which "$lapis" get b/file got
	cmp file got || say "$which closed: get"
	is 0 $which "$lapis" sync ./tree b/tree
	is 0 $which "$lapis" sync b/tree ./tree.back
	diff -r tree tree.back || say "$which closed: sync"
	case $which in 1 | all) status=1 ;; *) status=0 ;; esac
	is $status $which "$lapis" ls b
	is $status $which "$lapis" cat b/file
	is $status $which "$lapis" get b/file -
	is $status $which "$lapis" status
done
for which in 0 all; do
	closed $which "$lapis" put - b/file && say "$which closed: put of it succeeded"
	expect 0 '^content$' cat b/file
done
for call in "ls b" "status" "stats --json" "ls --help"; do
	# shellcheck disable=SC2086 # several words
	"$lapis" $call >/dev/full 2>err
	[ $? = 1 ] || say "$call to a full device: exit status is not 1"
	grep -Eqx 'lapis: standard output: (No space left on device|only a part of the output could be written)' err ||
		say "$call to a full device: $(cat err)"
done

finish
