#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: what the daemon says of itself can be read by the programs that want it, and options take
effect. Method: a checker of Prometheus's text format, written from its description; JSON by Python's
parser; counters before and after; clients on loopback TCP."""

import contextlib
import errno
import json
import math
import re
import socket
import subprocess
import sys
import time

import lapis_wire as wire
import rig
from lapis_wire import CRC_ALL

OPTIONS = ["--memory", "192M", "--listen", "tcp:127.0.0.1:0"]
NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\n"])*)"'
LINE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")
TYPES = {"counter", "gauge", "histogram"}
# What a name may not have in it: the units of Prometheus are seconds and bytes.
UNITS = {"ns", "us", "ms", "nanoseconds", "microseconds", "milliseconds", "kib", "kb", "mb", "mib"}
# What JSON calls otherwise, beside what is in another unit there.
RENAMED = {"conns": "open", "conns_total": "accepted", "conns_refused": "refused",
           "conns_gave_way": "gave_way", "failed_cnt": "failed", "ahead_used": "ahead_used_blocks",
           "ahead_wasted": "ahead_wasted_blocks"}  # fmt: skip


def check_series(family, kind, name, labels):
    """Whether a series may be one of its family."""
    ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
    assert name in [family + end for end in ends], f"not of {family}: {name}"
    keys = [label for label, _ in labels]
    assert len(set(keys)) == len(keys), labels
    assert ("le" in keys) == name.endswith("_bucket") and "quantile" not in keys, labels


def check_family(family, kind):
    assert (kind == "counter") == family.endswith("_total"), family
    assert not UNITS & set(family.split("_")), f"not a unit of Prometheus: {family}"
    assert kind == "counter" or not family.endswith(("_count", "_sum", "_bucket")), family
    assert kind != "histogram" or family.endswith(("_seconds", "_bytes")), family


def check_histograms(family, series):
    """Of each: bounds that rise to +Inf, counts that never fall, and the last one is the count."""
    rows = {}
    for (name, labels), value in series.items():
        rest = tuple(label for label in labels if label[0] != "le")
        row = rows.setdefault(rest, {"bounds": []})
        if name == family + "_bucket":
            row["bounds"].append((float(dict(labels)["le"]), value))
        else:
            row[name.removeprefix(family)] = value
    for labels, row in rows.items():
        bounds, counts = zip(*row["bounds"])
        assert list(bounds) == sorted(set(bounds)) and bounds[-1] == math.inf, (family, labels)
        assert list(counts) == sorted(counts) and counts[-1] == row["_count"], (family, labels)
        # Each value is above the bound before the one at which it is counted, or 1/32 below that.
        least = 0
        for before, low, high in zip((0, *counts), (0, *bounds), counts):
            least += (high - before) * low * 31 / 32
        assert row["_sum"] >= least, (family, labels, row)


def families(text):
    """{family: (type, {(name, labels): value})}; AssertionError for what the format, or what is
    usual in it, does not allow."""
    assert text.endswith("\n") and "\r" not in text
    found, helped = {}, None
    for number, line in enumerate(text.splitlines(), 1):
        where = f"line {number}: {line}"
        if line.startswith("# HELP "):
            _, _, helped, words = line.split(" ", 3)
            assert re.fullmatch(r"[A-Z][^\\\n]*\.", words), f"no sentence: {where}"
            continue
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert re.fullmatch(NAME, family) and kind in TYPES, where
            assert family not in found, f"a second time: {where}"
            assert family == helped, f"no help: {where}"
            check_family(family, kind)
            found[family] = (kind, {})
            continue
        assert not line.startswith("#") and line, where
        match = LINE.fullmatch(line)
        assert match, where
        name, labels = match[1], tuple(sorted(re.findall(LABEL, match[2] or "")))
        assert found, f"of no family: {where}"
        kind, series = found[family]
        check_series(family, kind, name, labels)
        assert (name, labels) not in series, f"a second time: {where}"
        series[name, labels] = float(match[match.lastindex])
        assert math.isfinite(series[name, labels]) and series[name, labels] >= 0, where
    for family, (kind, series) in found.items():
        if kind == "histogram":
            check_histograms(family, series)
    return found


def prometheus(daemon):
    with daemon.connect() as lapis:
        return families(lapis(wire.stats("prometheus")).decode())


def total(metrics, family, **labels):
    """The sum of a family's series that have these labels."""
    return sum(
        value
        for (_, has), value in metrics[family][1].items()
        if set(labels.items()) <= set(has)
    )


def stats(daemon):
    with daemon.connect() as lapis:
        return json.loads(lapis(wire.stats("json")))


def test_prometheus_checker(_):
    """The checker finds what is wrong."""
    good = '# HELP a_total As.\n# TYPE a_total counter\na_total{x="1"} 1\na_total{x="2"} 2e3\n'
    assert families(good)["a_total"][1]["a_total", (("x", "2"),)] == 2000
    for bad in (
        good + 'a_total{x="2"} 5\n', good + "# TYPE a_total counter\n", good + "b 1\n",
        good.replace("2e3", "two"), good.replace('"1"', "1"), good.replace("counter", "count"),
        good[:-1], good.replace('"2"', '"\\2"'), good.replace("2e3", "-1"), good + "\n",
        good.replace("counter", "gauge"), good.replace("# HELP a_total As.\n", ""),
        good.replace("As.", ""), good.replace("_total", ""), good.replace("a_total", "a_ns_total"),
    ):  # fmt: skip
        try:
            families(bad)
        except (AssertionError, ValueError):
            continue
        raise AssertionError(f"accepted: {bad}")
    good = ("# HELP b_seconds Bs.\n# TYPE b_seconds histogram\n"
            'b_seconds_bucket{le="0.1"} 2\nb_seconds_bucket{le="1"} 3\n'
            'b_seconds_bucket{le="+Inf"} 3\nb_seconds_sum 0.5\nb_seconds_count 3\n')  # fmt: skip
    assert families(good)["b_seconds"][1]["b_seconds_count", ()] == 3
    for bad in (
        good.replace("count 3", "count 4"), good.replace("0.5", "0.05"), good.replace("} 2", "} 4"),
        good.replace('"1"', '"0.01"'), good.replace('"+Inf"', '"7"'), good.replace("le", "quantile"),
        good.replace("histogram", "summary"), good.replace("b_seconds", "b"),
    ):  # fmt: skip
        try:
            families(bad)
        except (AssertionError, KeyError, ValueError):
            continue
        raise AssertionError(f"accepted: {bad}")


def test_prometheus(daemon):
    """It is valid, all that JSON has is in it, and it counts what was done."""
    before = prometheus(daemon)
    with daemon.connect(shard=1) as lapis:
        for number in range(10):
            lapis(wire.put(f"metrics/{number}", b"x" * 5000))
            lapis(wire.get(f"metrics/{number}"))
        rig.refused(lapis, wire.get("metrics/none"), "ENOENT")
        rig.refused(lapis, wire.get("metrics"), "EISDIR")
    after = prometheus(daemon)
    for family, labels, more in (
        ("lapis_requests_total", {"op": "put", "shard": "1"}, 10),
        ("lapis_requests_total", {"op": "get", "shard": "1"}, 12),
        ("lapis_request_errors_total", {"op": "get"}, 1),
        ("lapis_request_absent_total", {"op": "get"}, 1),
        ("lapis_request_duration_seconds", {"op": "put", "shard": "1", "le": "+Inf"}, 10),
        ("lapis_request_duration_seconds", {"op": "get", "shard": "1", "le": "+Inf"}, 12),
        ("lapis_namespace_ops_total", {"op": "put"}, 10),
        ("lapis_store_ops_total", {"op": "txn"}, None),
    ):
        grown = total(after, family, **labels) - total(before, family, **labels)
        assert grown == more if more is not None else grown > 0, (family, labels, grown)
    assert total(after, "lapis_up") == 1
    assert total(after, "lapis_health") == total(after, "lapis_health", state="ok") == 1
    assert total(after, "lapis_store_health", state="ok") == 2
    of_json = stats(daemon)
    groups = {"store": of_json["shards"][0]["store"], "namespace": of_json["shards"][0]["namespace"],
              "connections": of_json["shards"][0]["connections"],
              "thread": of_json["threads"][0]["reactor"],
              "buffers": of_json["threads"][0]["buffers"]}  # fmt: skip
    for group, counters in groups.items():
        for name in counters:
            if name.startswith("limits_"):
                label = {"limit": name.removeprefix("limits_")}
                assert any(set(label.items()) <= set(labels)
                           for _, labels in after["lapis_connections_limits_total"][1]), name  # fmt: skip
                continue
            name = RENAMED.get(name, re.sub("_ns$", "_seconds", name))
            names = {f"lapis_{group}_{name}", f"lapis_{group}_{name}_total"}
            names |= {one.replace("_blocks", "_bytes") for one in names}
            assert names & after.keys(), name
    shard = of_json["shards"][0]["store"]
    used = total(after, "lapis_store_used_bytes", shard="0")
    assert used == shard["used_blocks"] * 4096, (used, shard["used_blocks"])


def test_json(daemon):
    """Strings are escaped once, numbers are numbers, whatever an object is called."""
    name = 'quote" back\\slash \x01\x7f é €'
    with daemon.connect() as lapis:
        lapis(wire.config_set("slow-ms=0"))
        for key in (name.encode(), b"not utf-8 \xff"):
            lapis(wire.put(key, b"x"))
            slow = json.loads(lapis(wire.slow()))
            shown = key.decode("utf-8", "replace")
            assert shown in [item["object"] for item in slow], (shown, slow)
        lapis(wire.config_set("slow-ms=1000"))
        text = lapis(wire.status()).decode()
        status = json.loads(text)
        assert re.search(r'"state_since": \d{10},', text), text
        assert isinstance(status["state_since"], int) and status["state"] == "ok"
        # Every number is written out; only a number is looked at, for a uuid may read "1e-2".
        fractions = []
        json.loads(lapis(wire.stats("json")).decode(), parse_float=fractions.append)
        assert not [text for text in fractions if "e" in text.lower()], fractions


def test_config(daemon):
    """Each option that is live can be set to what it is, and read; the others say why not."""
    with daemon.connect() as lapis:
        values = json.loads(lapis(wire.config_get()))
        live = set()
        for name, value in values.items():
            assert json.loads(lapis(wire.config_get(name))) == value, name
            if value == "":
                continue
            try:
                assert json.loads(lapis(wire.config_set(f"{name}={value}"))) == value, name
                live.add(name)
            except wire.Refused as refusal:
                assert refusal.errno == errno.EPERM, (name, refusal)
        assert live == {
            "connections-max", "crc", "credit-bytes", "credits", "deferred-store", "device-timeout",
            "log-level", "memory-idle", "requests-max", "scrub-interval", "scrub-rate", "send-timeout", "slow-ms",
            "stop-timeout", "user-share", "write-path",
        }, live  # fmt: skip


def test_credits(daemon):
    with daemon.connect() as old, daemon.connect() as lapis:
        assert old.welcome.credits == 256
        lapis(wire.config_set("credits=3"))
        with daemon.connect() as fresh:
            assert fresh.welcome.credits == 3, fresh.welcome
            calls = [fresh.start(wire.put(f"credits/{n}", b"x" * 9000)) for n in range(20)]
            for call in calls:
                fresh.wait(call)
        lapis(wire.config_set("credits=256"))


def test_live_limits(daemon):
    """Checksums, connections and silence are as they are set, from then on."""
    with daemon.connect(shard=0) as lapis, daemon.connect(shard=0, crc=wire.CRC_OFF) as old:
        lapis(wire.config_set("crc=all"))
        with daemon.connect(shard=0, crc=wire.CRC_OFF) as fresh:
            assert fresh.welcome.crc_mode == CRC_ALL, fresh.welcome
            fresh(wire.put("limits", b"x"))
        assert old(wire.get("limits")).data == b"x"
        lapis(wire.config_set("crc=off"))
        lapis(wire.config_set("connections-max=2"))
        try:
            daemon.connect(shard=0)
            raise AssertionError("a connection more than there may be")
        except wire.Refused as refused:
            assert refused.errno == errno.EUSERS and "connections-max" in refused.text, refused
        lapis(wire.config_set("connections-max=1024"))
        lapis(wire.config_set("send-timeout=1"))
        begin = time.monotonic()
        with daemon.connect(shard=0) as silent:
            silent.send(wire.message("ping", 1)[:40])
            while silent.sock.recv(4096):
                pass
        assert 0.9 < time.monotonic() - begin < rig.PATIENCE_S
        assert old(wire.get("limits")).data == b"x"
        lapis(wire.config_set("send-timeout=30"))


def test_slow(daemon):
    """Each slow request says where its time went, and the states together make up for it."""
    with daemon.connect(shard=0) as lapis:
        lapis(wire.config_set("slow-ms=0"))
        lapis(wire.put("slow/one", b"x" * 3000000))
        assert len(lapis(wire.get("slow/one")).data) == 3000000
        slow = json.loads(lapis(wire.slow()))
        lapis(wire.config_set("slow-ms=1000"))
    states = ["REST", "DATA", "WAIT", "FIND", "WORK", "CLOSE", "REPLY"]
    assert "slow/one" in [item["object"] for item in slow], slow
    for item in slow:
        line = item["timeline"]
        places = [states.index(step["state"]) for step in line]
        assert places == sorted(set(places)) and all(step["ms"] > 0 for step in line), item
        # The first begins with the turn in which the message came to its end.
        within = sum(step["ms"] for step in line if step["state"] not in ("REST", "DATA"))
        assert within > item["took_ms"] - 0.1, item
    assert any(step["state"] == "WORK" for item in slow for step in item["timeline"]), slow


def test_deferred_store(daemon):
    """Payloads go into the index from then on, and back to the log; what is read is right."""
    if daemon.kind == "mem":
        return
    with daemon.connect(shard=0) as lapis:
        lapis(wire.put("deferred", b"a" * 65536))

        def records(kind):
            lapis(wire.config_set(f"deferred-store={kind}"))
            before = sum(shard["store"]["deferred_records"] for shard in stats(daemon)["shards"])
            for number in range(8):
                lapis(wire.write("deferred", kind.encode() * 2048, number * 8192 % 65536,
                                 write_path="deferred"))  # fmt: skip
            after = sum(shard["store"]["deferred_records"] for shard in stats(daemon)["shards"])
            return after - before

        assert records("kv") > 0
        assert lapis(wire.get("deferred", 0, 4096)).data == b"kv" * 2048
        assert records("log") == 0
        assert lapis(wire.get("deferred", 0, 6144)).data == b"log" * 2048


def tcp_address(daemon):
    return re.search(r"listening on (tcp:127\.0\.0\.1:\d+)", daemon.log.read_text("utf-8"))[1]


def test_tcp(daemon):
    """The same over TCP: whole objects, another shard, and clients that break the rules."""
    address = tcp_address(daemon)
    for shard in (0, 1):
        with wire.Connection(address, crc=CRC_ALL, shard=shard, timeout_s=rig.PATIENCE_S) as lapis:
            data = wire.random_bytes(3000000, f"tcp {shard}")
            lapis(wire.put(f"tcp/{shard}", data))
            assert lapis(wire.get(f"tcp/{shard}")).data == data
            rig.refused(lapis, wire.get("tcp/none"), "ENOENT")
    host, port = address.removeprefix("tcp:").rsplit(":", 1)
    put = wire.put("tcp/hostile", b"")
    whole = wire.message("put", 1, put.meta, b"x" * 100000)
    with wire.Connection(address, timeout_s=rig.PATIENCE_S) as lapis:
        for raw in (b"GET / HTTP/1.1\r\n\r\n" * 20, bytes(4096), whole, b"\xff" * 64):
            with socket.create_connection((host, int(port)), rig.PATIENCE_S) as sock:
                with contextlib.suppress(ConnectionError):
                    sock.sendall(raw)
                    while sock.recv(65536):
                        pass
        for cut in (1, 64, 70, 5000):
            half = wire.Connection(address, timeout_s=rig.PATIENCE_S)
            half.send(whole[:cut])
            half.close()
        assert lapis(wire.get("tcp/0")).data == wire.random_bytes(3000000, "tcp 0")
        rig.refused(lapis, wire.stat("tcp/hostile"), "ENOENT")


def test_addresses_of_others(daemon):
    """Nobody is authenticated: what others can reach is refused, with the reason."""
    for address in ("tcp:0.0.0.0:0", "tcp:[::]:0", "tcp:192.0.2.1:7000"):
        done = subprocess.run(
            [str(rig.BUILD / "bin" / "lapisd"), "--store", "mem", "--listen", address],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=rig.PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 2 and done.stdout == b"", (address, done)
        assert b"only 127.0.0.1 and [::1]" in done.stderr, (address, done.stderr)
    assert daemon.alive()


if __name__ == "__main__":
    sys.exit(rig.main(globals()))
