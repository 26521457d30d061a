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
TYPES = {"counter", "gauge", "histogram", "summary", "untyped"}


def families(text):
    """{family: (type, {(name, labels): value})}; AssertionError for what the format does not allow."""
    assert text.endswith("\n") and "\r" not in text
    found, family = {}, None
    for number, line in enumerate(text.splitlines(), 1):
        where = f"line {number}: {line}"
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert re.fullmatch(NAME, family) and kind in TYPES, where
            assert family not in found, f"a second time: {where}"
            found[family] = (kind, {})
            continue
        assert not line.startswith("#") and line, where
        match = LINE.fullmatch(line)
        assert match, where
        name, labels = match[1], tuple(sorted(re.findall(LABEL, match[2] or "")))
        kind, series = found[family]
        ends = ("", "_sum", "_count") if kind == "summary" else ("",)
        assert name in [family + end for end in ends], f"not of {family}: {where}"
        assert len({label for label, _ in labels}) == len(labels), where
        assert kind != "summary" or name != family or "quantile" in dict(labels), where
        assert kind != "counter" or name.endswith("_total"), where
        assert (name, labels) not in series, f"a second time: {where}"
        series[name, labels] = float(match[match.lastindex])
        assert math.isfinite(series[name, labels]) and series[name, labels] >= 0, where
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
    good = '# TYPE a_total counter\na_total{x="1"} 1\na_total{x="2"} 2e3\n'
    assert families(good)["a_total"][1]["a_total", (("x", "2"),)] == 2000
    for bad in (
        good + 'a_total{x="2"} 5\n', good + "# TYPE a_total counter\n", good + "b 1\n",
        good.replace("2e3", "two"), good.replace('"1"', "1"), good.replace("counter", "count"),
        good[:-1], good.replace('"2"', '"\\2"'), good.replace("2e3", "-1"), good + "\n",
    ):  # fmt: skip
        try:
            families(bad)
        except (AssertionError, ValueError):
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
        ("lapis_request_seconds", {"op": "put", "quantile": "0.5"}, None),
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
            assert {f"lapis_{group}_{name}", f"lapis_{group}_{name}_total"} & after.keys(), name


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
            "log-level", "requests-max", "scrub-interval", "scrub-rate", "send-timeout", "slow-ms",
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
