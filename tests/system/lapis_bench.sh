#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: each operation of lapis bench is run as often as asked for, checks what it reads, reports it, and
# leaves nothing behind; wrong data, a wrong call, an interrupt and a daemon that goes away are told.
# Method: a daemon on an image file in the scratch directory, few operations, reports as JSON. Data is made
# wrong behind the benchmark's back, the daemon is killed under it.
# One thread: the thread sanitizer has nothing to say about it.
# variants: release asan
set -u
PATH="$LP_TEST_BUILD/bin:$PATH"
. "$LP_TEST_SRC/tests/lib.sh"
export LAPIS_ADDRESS=unix:$PWD/sock
reports=0

start_daemon()
{
	serve --memory 256M --listen "$LAPIS_ADDRESS" a.img
}

# judge NAME CONDITION: the report in the file out is to be one JSON object that makes sense, and of which the
# Python expression holds. judge_all looks at them all at once.
mkdir reports
judge()
{
	reports=$((reports + 1))
	cp out reports/$reports.json
	printf '%s\n%s\n' "$1" "$2" >reports/$reports.case
}

judge_all()
{
	python3 - "$reports" <<'PYTHON' || failures=$((failures + $?))
import json, sys

def check(r, condition):
    lat = r["latency_us"]
    order = [lat[k] for k in ("min", "p50", "p95", "p99", "p999", "p9999", "max")]
    assert order == sorted(order) and lat["min"] <= lat["mean"] <= lat["max"], "latencies"
    assert sum(count for _, _, count in r["histogram_ns"]) == r["ops"], "histogram"
    assert sum(part["ops"] for part in r["by_operation"].values()) == r["ops"], "by operation"
    assert sum(second["ops"] for second in r["series"]) <= r["ops"], "series"
    assert r["seconds"] > 0 and abs(r["iops"] * r["seconds"] - r["ops"]) <= 1 + r["ops"] * 0.01, "rate"
    assert r["client"]["cpu_us_per_op"] > 0, "cpu"
    assert r["server"]["version"] and r["server"]["allocator"] and r["server"]["shards"] == 2, "server"
    assert eval(condition), condition

failures = 0
for i in range(1, int(sys.argv[1]) + 1):
    name, condition = open(f"reports/{i}.case").read().splitlines()
    text = open(f"reports/{i}.json").read()
    try:
        check(json.loads(text), condition)
    except Exception as error:
        print(f"FAIL: {name}: {type(error).__name__} {error}: {text[:1500]}")
        failures += 1
sys.exit(min(failures, 100))
PYTHON
}

# bench CONDITION ARG...: the run succeeds, says nothing else, and the condition holds for its report.
bench()
{
	local condition=$1
	shift
	lapis bench --json "$@" >out 2>err || say "bench $*: exit status $?: $(cat err)"
	[ ! -s err ] || say "bench $*: noise on standard error: $(cat err)"
	judge "bench $*" "r['errors'] == 0 and r['mismatches'] == 0 and $condition"
}

# fails PATTERN ARG...: exit status 1, and one of the lines says so.
fails()
{
	local pattern=$1
	shift
	lapis bench --json "$@" >out 2>err
	local got=$?
	[ "$got" = 1 ] || say "bench $*: exit status $got, not 1"
	grep -Eq -- "$pattern" err || say "bench $*: no '$pattern' in: $(cat err)"
}

empty()
{
	[ -z "$(lapis ls)" ] || say "$1: left behind: $(lapis ls -r | head -3)"
}

# --- Wrong calls, and no daemon ------------------------------------------------------------------------

expect 2 'is not a known name' bench --op frobnicate
expect 2 'not a number or size' bench --size 4X
expect 2 'out of range' bench --depth 5000
expect 2 'only options are allowed here' bench b/k
expect 2 'needs a --rate' bench --poisson
expect 2 'multiples of 64 bytes' bench --verify --size 1000
expect 2 'object-size must be at least' bench --size 1M --object-size 64K
expect 1 'is lapisd running there' bench --ops 1
expect 0 '^usage: lapis bench' bench --help

truncate -s 3G a.img
lapis mkfs --shards 2 a.img >out 2>&1 || say "mkfs: $(cat out)"
start_daemon

# --- Each operation, verified, and as it is --------------------------------------------------------------

for op in write read randwrite randread mixed; do
	files=(--op "$op" --objects 3 --object-size 2560K --ops 400 --depth 8)
	bench "r['ops'] == 400 and r['bytes'] == 400 * 4096" "${files[@]}" --verify
	bench "r['ops'] == 400 and r['bytes'] == 400 * 4096" "${files[@]}" --connections 3
done
for op in put get putget stat delete list; do
	objects=(--op "$op" --objects 60 --ops 60 --depth 8 --items 7)
	bench "r['ops'] == 60" "${objects[@]}" --verify
	bench "r['ops'] == 60" "${objects[@]}"
done
bench "r['ops'] == 50 and r['checked'] == 50 and r['bytes'] == 50 * 4096" --op put --ops 50 --verify
bench "r['ops'] == 50 and r['bytes'] == 50 * 4096" --op put --ops 50
bench "r['ops'] == 50 and r['bytes'] == 0" --op ping --ops 50
bench "r['items'] > 0" --op list --ops 5 --objects 30
# What there is to delete ends before the operations do.
bench "r['ops'] == 40" --op delete --objects 40 --ops 1000 --verify
empty "each operation"

# Sizes and places of all kinds; few places, so that writes meet.
bench "r['ops'] == 500" --op mixed --ops 500 --size 4K:5,8K-64K:3,64~4K:2 --object-size 128K --objects 2 --verify \
	--depth 16 --dist zipf
bench "r['ops'] == 300" --op randwrite --ops 300 --size 4K --object-size 8K --objects 2 --verify --depth 64
bench "r['ops'] == 200" --op putget --ops 200 --size 64:1,5000:1,1K~1M:1 --objects 9 --reads 40 --verify --depth 16 \
	--dist zipf:1.1
bench "r['ops'] == 6" --op putget --ops 6 --size 5M-9M --objects 3 --depth 2 --verify
bench "r['ops'] == 300 and len(r['by_operation']) == 2" --op mixed --reads 50 --ops 300 --size 1000-7000 \
	--object-size 100000 --objects 2 --crc off --write-path direct

# --- Rates and times -------------------------------------------------------------------------------------

# What was due is begun, or told to be missing.
bench "r['ops'] + r['schedule']['unsent'] == 500 and r['parameters']['rate'] == 1000" --op randread --objects 2 \
	--object-size 1M --rate 1000 --seconds 0.5 --warmup 0 --interval series.csv
grep -q '^from_s,until_s,ops,' series.csv || say "no names in: $(cat series.csv)"
[ "$(wc -l <series.csv)" -ge 2 ] || say "no second in: $(cat series.csv)"
bench "r['ops'] == 200" --op mixed --objects 2 --object-size 1M --rate 2000 --poisson --ops 200 --verify --connections 2

# On a terminal there is a line for each second; the table is for people.
python3 - >seen <<'PYTHON' || say "on a terminal: exit status $?"
import os, pty, sys
call = ["lapis", "bench", "--seconds", "1.2", "--warmup", "0", "--objects", "2", "--object-size", "1M"]
sys.exit(os.waitstatus_to_exitcode(pty.spawn(call)))
PYTHON
grep -Eq '^ +[0-9]+ s +[0-9]+ /s .*p99' seen || say "no second on a terminal: $(cat seen)"
grep -Eq '^operations +[1-9][0-9]* in [0-9]+\.[0-9]+ s, 0 errors' seen || say "no table on a terminal: $(cat seen)"
empty "rates and times"

# --- What an operation costs the client ------------------------------------------------------------------

# allocations OPS ARG...: how often the client allocated in all; 0: it failed.
allocations()
{
	local ops=$1
	shift
	rm -f counts
	if LD_PRELOAD=$PWD/count_calls.so LP_COUNT_FILE=$PWD/counts lapis bench --ops "$ops" --depth 32 "$@" >out 2>err; then
		od -A n -t u8 -j 8 -N 8 counts
	else
		echo 0
	fi
}

# Neither the generator nor liblapis allocates for an operation, once as many as go at a time have been
# under way. A sanitizer has its own allocator.
if [ "$(basename "$LP_TEST_BUILD")" = release ]; then
	cc -std=gnu17 -O1 -D_GNU_SOURCE -shared -fPIC -o count_calls.so "$LP_TEST_SRC/tests/system/count_calls.c" ||
		say "count_calls.c does not compile"
	for op in randwrite randread; do
		file=(--op "$op" --objects 1 --object-size 1M)
		few=$(allocations 200 "${file[@]}")
		many=$(allocations 2200 "${file[@]}")
		if [ "$((many - few))" -gt 50 ] || [ "$few" -lt 32 ]; then
			say "$op: $((many - few)) allocations for 2000 operations, $((few)) for 200"
		fi
	done
fi

# --- A set that stays ------------------------------------------------------------------------------------

set_of=(--bucket kept --objects 20 --size 10000 --verify)
lapis bench --op get --prepare-only "${set_of[@]}" >out 2>err || say "prepare: $(cat err)"
[ -z "$(cat out err)" ] || say "prepare: noise: $(cat out err)"
[ "$(lapis ls kept | wc -l)" = 20 ] || say "prepare: $(lapis ls kept)"
# How many requests of this kind the daemon has answered.
count_of()
{
	lapis stats --json | grep -o "\"$1\": {\"count\": [0-9]*" | head -1 | grep -o '[0-9]*$'
}
# Those that are known to be there are not looked for.
looked=$(count_of stat)
lapis bench --op get --ready --ops 40 "${set_of[@]}" >out 2>err || say "ready: $(cat err)"
[ "$(count_of stat)" = "$looked" ] || say "ready: looked for them: $looked, $(count_of stat)"
[ "$(lapis ls kept | wc -l)" = 20 ] || say "ready: $(lapis ls kept)"
written=$(count_of put)
bench "r['ops'] == 100" --op get --ops 100 "${set_of[@]}"
bench "r['ops'] == 100" --op get --ops 100 --keep --seed 77 "${set_of[@]}"
[ "$written" = "$(count_of put)" ] || say "objects that were there were made again: $written, then $(count_of put) puts"

# Wrong bytes in one object; one that is another object's; one that is gone.
head -c 10000 /dev/zero >zeros
lapis put zeros kept/vobj.0000000007 || say "put"
fails 'vobj.0000000007: get: wrong data at offset 0: no data of this' --op get --dist sequential --ops 20 "${set_of[@]}"
judge "zeros" "r['errors'] == 1 and r['mismatches'] == 1 and r['ops'] == 19"
lapis cp kept/vobj.0000000003 kept/vobj.0000000007 || say "cp"
fails 'vobj.0000000007: get: wrong data at offset 0: data of another object' --op get --dist sequential --ops 20 \
	"${set_of[@]}"
lapis get kept/vobj.0000000003 three || say "get"
{
	head -c 4096 three
	lapis cat kept/vobj.0000000005 | tail -c 5904
} | lapis put - kept/vobj.0000000003 || say "put"
fails 'vobj.0000000003: get: wrong data at offset 4096: not what belongs' --op get --dist sequential --ops 5 \
	"${set_of[@]}"
lapis rm kept/vobj.0000000007 kept/vobj.0000000003
bench "r['ops'] == 20" --op get --ops 20 --keep "${set_of[@]}"
lapis rm -r kept

# The same in a file.
file_of=(--bucket kept --objects 2 --object-size 64K --verify)
lapis bench --op randread --prepare-only "${file_of[@]}" >out 2>err || say "prepare: $(cat err)"
lapis get kept/vfile.0000000001 file || say "get"
dd if=/dev/zero of=file bs=4096 seek=2 count=1 conv=notrunc status=none
lapis put file kept/vfile.0000000001 || say "put"
fails 'vfile.0000000001: read: wrong data at offset 8192: no data' --op read --ops 32 "${file_of[@]}"
judge "a block of zeros" "r['errors'] == 1 and r['ops'] == 31"
lapis rm -r kept
empty "a set that stays"

# --- Ends ------------------------------------------------------------------------------------------------

# wait_for COMMAND...: until it succeeds.
wait_for()
{
	local i
	for ((i = 0; i < 600; i++)); do
		"$@" && return 0
		sleep 0.05
	done
	say "did not come: $*"
}

is_putting()
{
	lapis ls lapis-bench 2>/dev/null | grep -q .
}

# An interrupt: the result so far, and nothing left.
lapis bench --json --op put --seconds 100 --warmup 0 --verify >out 2>err &
pid=$!
wait_for is_putting
kill -INT "$pid"
wait "$pid" || say "interrupted: exit status $?: $(cat err)"
[ ! -s err ] || say "interrupted: $(cat err)"
judge "interrupted" "r['interrupted'] and r['ops'] > 0 and r['errors'] == 0"
empty "interrupted"

# The daemon is killed: told, and not waited for.
lapis bench --json --op put --seconds 100 --warmup 0 >out 2>err &
pid=$!
wait_for is_putting
end_daemon KILL
wait "$pid" && say "killed: exit status 0"
grep -q 'the daemon does not answer any more' err || say "killed: $(cat err)"
grep -q 'made is left in lapis-bench/' err || say "killed: what is left is not told: $(cat err)"
judge "killed" "r['ops'] > 0 and r['errors'] > 0"

# It comes back, and what it had acknowledged is there. Puts in several messages that it breaks are not done,
# which is no reason to end either.
start_daemon
lapis rm -r lapis-bench
lapis bench --json --op putget --size 64K:1,5M:2 --objects 4 --seconds 3 --warmup 0 --depth 3 --verify --reconnect 60 \
	>out 2>err &
pid=$!
is_reading()
{
	local cnt
	cnt=$(count_of get)
	[ "${cnt:-0}" -ge 1 ]
}
wait_for is_reading
end_daemon KILL
start_daemon
wait "$pid"
! grep 'does not answer' err || say "came back: ended early"
judge "came back" "r['seconds'] >= 3 and r['mismatches'] == 0 and r['ops'] > 0 and r['client']['connects'] >= 2 and r['checked'] == 4"
empty "came back"

judge_all
end_daemon TERM
finish
