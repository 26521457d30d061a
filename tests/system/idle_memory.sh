#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: a daemon that does nothing has little memory, whatever it may have; a load gets what it needs, and a
# while after it that is given back, also with little to be had (promise P5).
# Method: the resident set of lapisd on a fresh store, under load by both kinds of requests, and at rest.
# timeout: 300
# variants: release release-nolto
set -u
. "$LP_TEST_SRC/tests/lib.sh"

export LAPIS_ADDRESS="unix:$PWD/s"
mib=1024 # of kB

# resident: kB. The parts of the daemon's own that are told beside it, when there is too much.
resident()
{
	awk '/^VmRSS:/ { print $2 }' "/proc/$daemon/status"
}

# at_most KB WHAT: within a while.
at_most()
{
	local i kb=
	for ((i = 0; i < 60; i++)); do
		kb=$(resident)
		[ "$kb" -le "$1" ] && break
		sleep 0.5
	done
	echo "$2: $kb kB"
	[ "$kb" -le "$1" ] || say "$2: $kb kB are resident, more than $1: $("$lapis" heap stats 2>&1)"
}

# load ARG...: of lapis bench.
load()
{
	"$lapis" bench --warmup 0 "$@" >bench.out 2>&1 || say "bench $*: $(cat bench.out)"
}

fresh()
{
	rm -f store.img
	truncate -s 6G store.img
	"$lapis" mkfs store.img >/dev/null || say "mkfs"
}

fresh
serve --listen "unix:$PWD/s" --memory-idle 2 store.img
at_most $((64 * mib)) "nothing done yet"
kb=$(resident)
[ "$kb" -ge $((4 * mib)) ] || say "$kb kB cannot be: this looks at something else"
expect 0 'buffers registered' heap stats
load --op put --size 1M --ops 400
load --op put --size 4K --ops 20000 --depth 64
load --op randread --size 4K --ops 20000 --depth 32 --object-size 4M
busy=$(resident)
echo "after a load: $busy kB"
[ "$busy" -ge $((80 * mib)) ] || say "the load took $busy kB: it shows nothing"
at_most $((64 * mib)) "at rest"
# And all comes back.
load --op put --size 1M --ops 100 --verify
load --op randwrite --size 4K --ops 5000 --depth 32 --object-size 4M --verify
at_most $((64 * mib)) "at rest again"
end_daemon TERM

# Never, if nobody wants it.
serve --listen "unix:$PWD/s" --memory-idle 0 store.img
load --op put --size 1M --ops 400
before=$(resident)
sleep 6
kb=$(resident)
[ "$kb" -ge $((before - 8 * mib)) ] || say "$kb kB of $before kB are left, with --memory-idle 0"
end_daemon TERM

# Little memory: under load it is exceeded by a moment's worth, not by half.
fresh
serve --listen "unix:$PWD/s" --memory 128M store.img
load --op put --size 1M --ops 1000
load --op put --size 4K --ops 40000 --depth 64
load --op randwrite --size 4K --ops 40000 --depth 32 --object-size 4M
load --op stat --ops 60000 --depth 128 --objects 20000
at_most $((147 * mib)) "128M under load" # 1.15 times
end_daemon TERM
finish
