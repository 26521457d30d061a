#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: every operation of lapis store-bench runs, checks what it reads, counts what it was asked to
# do, and reports it; and a call that makes no sense is refused in one line.
# Method: the store in memory, few operations; the report is parsed.
set -u
. "$LP_TEST_SRC/tests/lib.sh"

# bench OPS ARG...: the run succeeds, and its report has OPS operations without an error.
bench()
{
	local ops=$1
	shift
	if ! "$lapis" store-bench --store mem --json "$@" >out 2>err; then
		say "store-bench $*: $(cat err)"
		return
	fi
	[ ! -s err ] || say "store-bench $*: noise on standard error: $(cat err)"
	python3 - "$ops" <<'PYTHON' || say "store-bench $*: $(cat out)"
import json, sys
r = json.load(open("out"))
want = int(sys.argv[1])
assert r["ops"] == want, "operations"
assert r["errors"] == 0, "errors"
assert r["seconds"] > 0 and r["iops"] > 0, "rate"
lat = r["latency_us"]
order = [lat[k] for k in ("p50", "p95", "p99", "p999", "max")]
assert order == sorted(order) and lat["mean"] <= lat["max"], "latencies"
assert sum(bucket[2] for bucket in r["histogram_ns"]) == want, "histogram"
assert r["cpu_us_per_op"]["thread"] > 0, "cpu"
data = r["op"] not in ("stat", "delete")
bytes = r["ops"] * r["size"] if data else 0
# The time is rounded to microseconds, and a run may take some tens of them.
assert abs(r["bytes_per_s"] * r["seconds"] - bytes) <= bytes * 0.05, "bytes"
writes = {"read": 0, "seqread": 0, "stat": 0}.get(r["op"], r["ops"])
assert r["writes"] == writes or (r["op"] == "mixed" and 0 < r["writes"] < r["ops"]), "writes"
assert r["device"]["log_writes"] == 0, "a store in memory has no device"
PYTHON
}

# refuse PATTERN ARG...: exit status 2 and one line that says why.
refuse()
{
	local pattern=$1
	shift
	"$lapis" store-bench "$@" >out 2>err
	local got=$?
	[ "$got" = 2 ] || say "store-bench $*: exit status $got, not 2"
	[ "$(wc -l <err)" = 1 ] || say "store-bench $*: not one line: $(cat err)"
	grep -Eq -- "$pattern" err || say "store-bench $*: no '$pattern' in: $(cat err)"
}

for op in overwrite create read seqwrite seqread delete stat mixed; do
	call=(--op "$op" --ops 1000)
	case $op in
	create | delete | stat) ;;
	*) call+=(--object-size 2M --objects 3) ;;
	esac
	for depth in 1 64; do
		bench 1000 "${call[@]}" --depth "$depth"
		bench 1000 "${call[@]}" --depth "$depth" --verify
	done
done

# Shorter than a block, inline or not; longer than a read may be; whole objects.
bench 500 --op mixed --ops 500 --size 512 --object-size 64K --objects 5 --depth 16 --verify
bench 500 --op mixed --ops 500 --size 512 --object-size 2048 --objects 50 --depth 16 --verify
bench 50 --op create --ops 50 --size 2048 --depth 4 --verify
bench 20 --op mixed --ops 20 --size 4M --object-size 8M --depth 4 --verify
bench 20 --op seqread --ops 20 --size 4M --object-size 8M
bench 20 --op create --ops 20 --size 1M --depth 4 --verify
bench 300 --op mixed --ops 300 --size 12K --object-size 36K --objects 7 --depth 32 --verify

# What there is to delete ends before the operations do.
bench 100 --op delete --ops 1000 --objects 100 --depth 8 --verify

# By time, with the table for people.
"$lapis" store-bench --store mem --seconds 0.2 --op mixed --object-size 2M >out 2>err || say "by time: $(cat err)"
grep -Eq '^operations +[1-9][0-9]* in 0\.[0-9]+ s, 0 errors$' out || say "by time: $(cat out)"
grep -Eq '^latency us +mean' out || say "by time: no latencies in $(cat out)"

# What was asked for on top.
"$lapis" store-bench --store mem --ops 100 --object-size 2M --explain --states >out 2>err || say "explain: $(cat err)"
grep -Eq '^write path +4096 bytes: kept in memory' out || say "explain: $(cat out)"
bench 100 --op overwrite --ops 100 --object-size 2M --explain --states

refuse 'exactly one DEVICE'
refuse 'exactly one DEVICE' a b
refuse 'store mem takes no DEVICE' --store mem a
refuse 'store mem takes no DEVICE' --store mem --wal a
refuse 'not a known name' --op frobnicate --store mem
refuse 'not a known name' --delay floppy a
refuse 'not a known name' --write-path scenic a
refuse 'out of range' --depth 1025 a
refuse 'out of range' --depth 0 a
refuse 'not a number' --seconds soon a
refuse 'needs a value' --ops
refuse 'unknown option' --bogus
refuse 'multiple of 4 KiB' --size 5000 --store mem
refuse 'from 64 bytes to 4 MiB' --size 8M --store mem
refuse 'multiple of --size' --size 12K --object-size 16K --store mem

# A device that is none, and one without a store.
"$lapis" store-bench nowhere.img >out 2>err
[ $? = 1 ] || say "a missing device: not exit status 1"
grep -q '^lapis: nowhere.img: ' err || say "a missing device: $(cat err)"
truncate -s 64M zeros.img
"$lapis" store-bench zeros.img >out 2>err
[ $? = 1 ] || say "no store: not exit status 1"
grep -q 'no Lapis store is on it' err || say "no store: $(cat err)"

finish
