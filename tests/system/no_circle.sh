#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: requests never wait for each other's buffers in a circle (rule B1): with far more data under way
# than there is memory, every request ends, at both doors, and the daemon says how it is meanwhile.
# Method: a daemon with the smallest memory and two shards. lapis bench and fio ask for much more at a time
# than the buffers hold, in sizes that are off the grid of blocks. Before ranks of buffers the daemon stopped
# for ever at the first of these loads.
# The thread sanitizer would see the same code as in the unit tests, much slower.
# variants: release asan
# timeout: 240
set -u
PATH="$LP_TEST_BUILD/bin:$PATH"
. "$LP_TEST_SRC/tests/lib.sh"
export LAPIS_ADDRESS=unix:$PWD/sock

cleanup()
{
	mountpoint -q mnt 2>/dev/null && fusermount3 -u -z mnt
	end_daemon
}
trap cleanup EXIT

# ask: status and stuck are answered within two seconds while the load is at work.
ask()
{
	timeout 2 lapis status >out 2>err || say "status beside $*: $(cat out err)"
	grep -q '^ok ' out || say "status beside $*: $(cat out err)"
	timeout 2 lapis stuck --json >out 2>err || say "stuck beside $*: $(cat out err)"
	grep -q '"under_way"' out || say "stuck beside $*: $(cat out err)"
}

# load OPERATIONS ARG...: lapis bench ends, without an error.
load()
{
	local ops=$1
	shift
	timeout 60 lapis bench --json --ops "$ops" --connections 4 "$@" >report 2>report.err &
	local bench=$!
	sleep 0.5
	kill -0 "$bench" 2>/dev/null && ask "$@"
	wait "$bench" || say "lapis bench $*: ended with $?: $(cat report.err)"
	grep -q '"errors": 0' report || say "lapis bench $*: $(head -c 300 report)"
}

lapis mkfs --shards 2 --size 3G a.img >out || say "mkfs: $(cat out)"
mounted=()
if [ -c /dev/fuse ] && [ "$(id -u)" = 0 ]; then
	mkdir mnt
	mounted=(--mount "$PWD/mnt")
fi
serve --memory 128M --listen "$LAPIS_ADDRESS" "${mounted[@]}" a.img

load 1500 --op put --size 512-200K --depth 512
load 1500 --op put --size 70K --depth 2000
load 300 --op put --size 3M --depth 256
load 1000 --op putget --size 100K --depth 1000
load 3000 --op mixed --size 4K-1M --depth 512

# What lapis stuck shows of a load that does not end by itself: requests of the socket, what they wait for.
lapis bench --op put --size 1M --depth 256 --connections 4 --seconds 4 >out 2>err &
bench=$!
sleep 2
lapis stuck >shown 2>&1 || say "stuck: $(cat shown)"
grep -q 'socket  put ' shown || say "stuck shows no put: $(head -5 shown)"
kill "$bench" 2>/dev/null
wait "$bench" 2>/dev/null

if [ "${#mounted[@]}" != 0 ] && command -v fio >/dev/null; then
	timeout 60 fio --name=w --directory="$PWD/mnt" --ioengine=libaio --iodepth=128 --direct=1 \
		--rw=randwrite --bs=128k --filesize=100m --fallocate=none --runtime=4 --time_based \
		--minimal >fio.out 2>fio.err || say "fio: $(cat fio.out fio.err)"
	timeout 10 ls mnt >out 2>&1 || say "ls of the mount: $(cat out)"
fi
timeout 10 lapis status | grep -q '^ok ' || say "status in the end: $(lapis status)"
end_daemon TERM
finish
