#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: the page of metrics is as users of Prometheus expect it: promtool finds nothing, each metric has its help and
# its type, units are seconds and bytes, and histograms count exactly the operations that were done.
# Method: a store on an image with two shards; a known number of operations; the page over HTTP and by lapis stats;
# promtool check metrics, which must say nothing; a parser of its own (tests/wire/admin.py) holds the counts.
set -u
. "$LP_TEST_SRC/tests/lib.sh"
cd "$LP_TEST_SCRATCH" || exit 1
if ! command -v promtool >/dev/null; then
	echo "no promtool: scripts/deps --dev"
	exit 77
fi
export LAPIS_ADDRESS="unix:$PWD/s"
"$lapis" mkfs --size 256M --shards 2 img >/dev/null 2>mkfs.err || say "mkfs: $(cat mkfs.err)"
serve --listen "$LAPIS_ADDRESS" --metrics tcp:127.0.0.1:0 img
http=$(sed -n 's/.*metrics on tcp:\(.*\)/\1/p' d.err)

# scrape FILE: the page as Prometheus gets it.
scrape()
{
	python3 -c 'import sys, urllib.request as u
answer = u.urlopen("http://" + sys.argv[1] + "/metrics", timeout=30)
assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), answer.headers
sys.stdout.buffer.write(answer.read())' "$http" >"$1" || say "metrics over HTTP"
}

scrape before
head -c 100000 /dev/urandom >data
"$lapis" mb b || say "mb"
for i in 1 2 3 4 5 6 7; do
	"$lapis" put data "b/$i" || say "put"
	"$lapis" get "b/$i" got || say "get"
done
for i in 1 2 3; do
	expect 1 'No such file' cat "b/none$i"
done
scrape after
"$lapis" stats --prometheus >again || say "stats --prometheus"

for page in before after again; do
	promtool check metrics <"$page" >promtool.out 2>&1 || say "$page: promtool: $(head -n 20 promtool.out)"
	[ ! -s promtool.out ] || say "$page: promtool says: $(head -n 20 promtool.out)"
done

LAPIS_VERSION=$("$lapis" --version) PYTHONPATH="$LP_TEST_SRC/tests/wire" python3 -B - <<'END' >python.out 2>&1 || say "the page: $(cat python.out)"
import os
import admin

pages = {name: admin.families(open(name, encoding="utf-8").read().rstrip() + "\n") for name in ("before", "after", "again")}
before, after = pages["before"], pages["after"]
# Nothing is left out when nothing was done yet.
assert before.keys() == after.keys() == pages["again"].keys()
assert len(after) > 100, len(after)
for family, (kind, _) in after.items():
    assert family.startswith("lapis_"), family


def grown(family, **labels):
    return admin.total(after, family, **labels) - admin.total(before, family, **labels)


for op, count in (("put", 7), ("get", 10)):
    requests = grown("lapis_requests_total", op=op)
    times = grown("lapis_request_duration_seconds", op=op, le="+Inf")
    assert requests == times == count, (op, requests, times, count)
assert grown("lapis_request_absent_total", op="get") == 3
# Of every operation of every shard as many times were taken as requests were answered; but for the question itself,
# which is answered when the page is made.
for (_, labels), count in after["lapis_requests_total"][1].items():
    if dict(labels)["op"] != "stats":
        times = admin.total(after, "lapis_request_duration_seconds", **dict(labels), le="+Inf")
        assert times == count, (labels, times, count)
# Not all of them are in one bucket: the bounds fit what there is to measure.
series = {dict(labels)["le"]: value for (_, labels), value in after["lapis_request_duration_seconds"][1].items()
          if dict(labels).get("op") == "put" and "le" in dict(labels)}
assert len(series) == 21 and series["0.00001"] == 0, series
assert grown("lapis_store_written_bytes_total") == 7 * 100000
assert 7 * 100000 < grown("lapis_store_used_bytes") < 8 << 20, grown("lapis_store_used_bytes")
assert grown("lapis_connections_accepted_total") > 0 and admin.total(after, "lapis_connections_limits_total") == 0
info = dict(next(iter(after["lapis_build_info"][1]))[1])
assert info["version"] in os.environ["LAPIS_VERSION"], info
END
end_daemon TERM
finish
