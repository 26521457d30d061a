#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# variants: release
# timeout: 240
"""Goal: bench/run says in which line an experiment is wrong, does every cell once a round in an order that the seed
gives, loses nothing of it when something fails, writes a report that holds each cell and names each axis; bench/compare
calls a difference a difference, and noise noise, and compares nothing but what is the same.
Method: experiments that are wrong each in one way; a tiny one with the store in memory, whose page is parsed; one of
which the runs are made up here, and fail as they are told; results that are made up, of which what must be said is known."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import types
import xml.etree.ElementTree as ElementTree

SRC = os.environ["LP_TEST_SRC"]
BUILD = os.environ["LP_TEST_BUILD"]
sys.path.insert(0, os.path.join(SRC, "bench"))
sys.dont_write_bytecode = True

if importlib.util.find_spec("yaml") is None:
    print("python3-yaml is not installed")
    sys.exit(77)

import answers
import hostmem
import limits
import noise
import report
import results
import svg
from experiment import Experiment, Wrong, read
from loads import KINDS, Kind, Outcome, curve_of
from results import PartResults

FAILURES = []

TINY = """\
title: A tiny one
question: Does it run?
seed: 7
parts:
  - name: memory
    kind: store
    repetitions: 2
    seconds: 0.3
    device: {kind: none}
    variants:
      store: mem
      write-path: [deferred, direct]
    load:
      op: [overwrite, read]
      size: [4K, 16K]
      depth: 4
      object-size: 1M
    metrics: [iops, p99_us, thread_us]
    baseline: {write-path: direct}
    claims:
      - {factor: write-path, value: deferred, among: [direct], metric: iops, within: 50}
      - {factor: write-path, cross: [deferred, direct], along: size, metric: iops}
    plots:
      - {bars: iops, by: write-path}
      - {lines: p99_us, by: write-path, x: size, panels: op}
      - {heat: iops, x: size, y: op, panels: write-path}
      - {percentiles: latency, by: write-path, panels: [op, size]}
"""

# What is put in place of what, the line that must be named, and a word of what must be said.
WRONGS = [
    ("kind: store", "kind: shop", 6, "no kind of load"),
    ("question: Does it run?", "quest: Does it run?", 2, "not known here"),
    ("repetitions: 2", "repetitions: none", 7, "repetitions is a number"),
    ("repetitions: 2", "repetitions: 0", 7, "from 1 to"),
    ("size: [4K, 16K]", "sice: [4K, 16K]", 15, "not an option"),
    ("depth: 4", "depth: 4\n      depth: 8", 17, "there twice"),
    ("write-path: [deferred, direct]", "write-path: [direct, direct]", 12, "twice"),
    ("write-path: [deferred, direct]", "write-path: []", 12, "no value"),
    ("baseline: {write-path: direct}", "baseline: {path: direct}", 19, "no factor path"),
    ("device: {kind: none}", "device: {kind: tape}", 9, "no device"),
    ("device: {kind: none}", "device: {kind: file}", 9, "needs a path"),
    ("question: Does it run?", "question: [Does it run?", 2, "expected"),
    ("{bars: iops, by: write-path}", "{pie: iops}", 24, "pie is not known"),
]


def say(text):
    FAILURES.append(text)
    print(f"FAILED: {text}")


def must(good, text):
    if not good:
        say(text)


def write(name, text):
    with open(name, "w", encoding="utf-8") as out:
        out.write(text)
    return name


def tool(name, *options):
    return subprocess.run([os.path.join(SRC, "bench", name), *options], capture_output=True, text=True, check=False)


# --- What is wrong is told --------------------------------------------------------------------------------------


def test_wrongs():
    for old, new, line, word in WRONGS:
        assert old in TINY, old
        done = tool("run", "--build", BUILD, "--list", write("wrong.yaml", TINY.replace(old, new, 1)))
        must(done.returncode == 2 and f"wrong.yaml:{line}: " in done.stderr and word in done.stderr,
             f"{new}: status {done.returncode}, {done.stderr.strip()!r}")
    done = tool("run", "--list", "absent.yaml")
    must(done.returncode == 2 and "No such file" in done.stderr, f"an absent file: {done.stderr!r}")


def test_no_truth_values():
    write("words.yaml", "crc: [off, on, yes, 1, 0.5, '1']\n")
    must(read("words.yaml")["crc"] == ["off", "on", "yes", 1, 0.5, "1"], f"words: {read('words.yaml')}")


def test_order():
    path = write("tiny.yaml", TINY)
    plan = [(round_nr, cell.name()) for round_nr, cell in Experiment(path, KINDS, False).parts[0].plan(7)]
    again = [(round_nr, cell.name()) for round_nr, cell in Experiment(path, KINDS, False).parts[0].plan(7)]
    other = [(round_nr, cell.name()) for round_nr, cell in Experiment(path, KINDS, False).parts[0].plan(8)]
    must(plan == again, "one seed gives two orders")
    must(plan != other, "two seeds give one order")
    must(len(plan) == 16 and len(set(plan)) == 16, f"{len(plan)} runs")
    must(sorted(name for nr, name in plan if nr == 1) == sorted(name for nr, name in plan if nr == 2),
         "a round lacks a cell")
    must([nr for nr, _ in plan] == [1] * 8 + [2] * 8, "the rounds are not one after the other")


def test_those_in_the_tree():
    where = os.path.join(SRC, "bench", "experiments")
    names = [name for name in os.listdir(where) if name.endswith(".yaml")]
    must(len(names) > 0, "no experiment")
    for name in names:
        for is_short in (False, True):
            try:
                Experiment(os.path.join(where, name), KINDS, is_short)
            except Wrong as wrong:
                say(f"{name}: {wrong}")


# --- Noise ------------------------------------------------------------------------------------------------------


def test_host_memory():
    """Found by a balloon's feature, unless the kernel keeps what is free for long; and the page says so."""
    sys_of = {}
    for name, features, kept_ms in ("plain", None, None), ("old", "0110", None), ("reports", "01100101" + "0" * 56, None), \
            ("keeps", "00000100", "300000"), ("soon", "00000100", "1000"):
        where = os.path.abspath(f"sys-{name}")
        for path, text in (("bus/virtio/drivers/virtio_balloon/virtio0/features", features),
                           ("module/page_reporting/parameters/min_free_ms", kept_ms)):
            if text is not None:
                os.makedirs(os.path.dirname(f"{where}/{path}"))
                write(f"{where}/{path}", text + "\n")
        sys_of[name] = hostmem.state(where)
    must(sys_of == {"plain": hostmem.KEPT, "old": hostmem.KEPT, "reports": hostmem.GOES_BACK, "keeps": hostmem.KEPT,
                    "soon": hostmem.GOES_BACK}, f"where free memory goes: {sys_of}")
    for state in hostmem.KEPT, hostmem.GOES_BACK:
        shown = report.head(types.SimpleNamespace(is_short=False, unfinished=lambda: "", began=0, seconds=1, title="t", question="q",
                                                  conditions={"free memory": state}))
        must((hostmem.WARNING[:40] in shown) == (state == hostmem.GOES_BACK), f"the page where memory {state}: {shown}")


def test_noise():
    must(abs(noise.p_value([1, 2, 3], [4, 5, 6]) - 0.1) < 1e-9, "p of three and three apart")
    must(abs(noise.p_value([1, 2, 3, 4], [5, 6, 7, 8]) - 2 / 70) < 1e-9, "p of four and four apart")
    must(noise.p_value([1, 2, 3], [1, 2, 3]) == 1.0, "p of the same")
    must(abs(noise.p_value([1, 3, 5], [2, 4, 6]) - 0.7) < 1e-9, "p of three and three, in turn")
    must(abs(noise.p_value(range(100), range(5, 105)) - 0.2217) < 0.03, "p of many")
    cases = [(([5, 5, 5], [5, 5, 5]), "equal"), (([10, 11, 12, 13], [20, 21, 22, 23]), "beyond"),
             (([10, 11, 12], [20, 21, 22]), "likely"), (([10, 21, 12], [20, 11, 22]), "within"), (([1], [2]), "unknown"),
             (([10, 11, 12, 13], [9, 12.5, 11.5, 14]), "within")]
    for (ours, other), verdict in cases:
        must(noise.Difference(ours, other).verdict == verdict, f"{ours} and {other}: not {verdict}")
    drifted = noise.Difference([100, 101, 102, 103], [110, 111, 112, 113], 0.1)
    must(drifted.verdict == "within" and "drifted" in drifted.text(), "a drift of the machine is not noticed")
    # A machine of half the speed: rates halve, and times double.
    halved = noise.distance(0.5)
    for ours, other in (([50, 51, 52, 53], [100, 102, 104, 106]), ([200, 202, 204, 206], [100, 101, 102, 103])):
        must(noise.Difference(ours, other, halved).verdict == "within", f"{ours} and {other} on a machine of half the speed")
    must(noise.Difference([220, 222, 224, 226], [100, 101, 102, 103], halved).verdict == "beyond", "more than the machine")
    must("drifted" not in noise.Difference([1, 2, 3], [1, 2, 3]).text(), "a drift of nothing")
    overall = noise.Overall([[(2, 1), (8, 4)], [(4, 2)]])
    must(overall.ratio == 2 and overall.is_one_sided, "twice as much in each round")
    must("no sure" in noise.Overall([[(2, 1)], [(1, 2)], [(3, 2)]]).text(), "rounds that disagree")
    must(overall.text().startswith("perhaps +100.0 % (+100.0 to +100.0 in"), f"twice: {overall.text()}")
    many = noise.Overall([[(400, 10)], [(500, 10)]]).text()
    must(many.startswith("perhaps 45 times (40 to 50 in"), f"so many times: {many}")
    must("in 2 of 3 cells" in noise.Overall([[(2, 1), (8, 4)]], 2, 3).text(), "cells that were not compared are not told")
    same = noise.Overall([[(1, 1)]] * 5 + [[(99, 100)]])
    must(not same.is_sure, "rounds without a difference are no signs")
    must(curve_of([[0, 1000, 50], [1000, 2000, 49], [2000, 9000, 1]])[-1] == [100, 9.0], "a curve's end")


def made_up_part(rates, depth=64, planned=None):
    """A part whose cells have these rates, round by round: {(path, size): [...]}; planned: all that it should have."""
    runs = [{"factors": {"path": path, "size": size}, "repetition": nr, "metrics": {"iops": value, "log_writes": 1.0}}
            for (path, size), values in rates.items() for nr, value in enumerate(values, 1)]
    labels = [list(dict.fromkeys(key[at] for key in rates)) for at in (0, 1)]
    options = planned and [{"factors": {"path": path, "size": size}, "variant": {}, "load": {}} for path, size in planned]
    return PartResults({"name": "p", "factors": {"path": labels[0], "size": labels[1]}, "own_factors": [],
                        "metrics": ["iops"], "fixed": {"depth": depth}, "options": options}, runs)


def test_within():
    """The better one of two is that of all rounds; a claim is broken where every round breaks it."""
    claim = {"factor": "path", "value": "auto", "among": ["a", "b"], "metric": "iops", "within": 5}
    noisy = {("a", "4K"): [100, 110, 100], ("b", "4K"): [110, 99, 99], ("auto", "4K"): [102, 106, 99]}
    said, = answers.within(made_up_part(noisy), claim)
    must("holds in all 1 cells" in said, f"noise breaks a claim: {said}")
    broken = {**noisy, ("a", "8K"): [100, 101, 102], ("b", "8K"): [50, 50, 50], ("auto", "8K"): [90, 91, 92]}
    said, = answers.within(made_up_part(broken), claim)
    must("broken in 1 of 2 cells, in every round" in said and "depends" not in said, f"broken: {said}")
    doubtful = {("a", "4K"): [100, 100, 100], ("auto", "4K"): [90, 94, 99]}
    said, = answers.within(made_up_part(doubtful), claim)
    must("in 1 of 1 cells it depends on the round" in said and "broken" not in said, f"doubtful: {said}")


def test_within_of_what_is_lost():
    """A claim does not hold in cells of which nothing is known; what was left out on purpose is not asked."""
    claim = {"factor": "path", "value": "auto", "among": ["a", "b"], "metric": "iops", "within": 5}
    rates = {("a", "4K"): [100, 101], ("auto", "4K"): [102, 103], ("a", "8K"): [100, 101], ("auto", "16K"): [1, 1]}
    planned = [*rates, ("auto", "8K"), ("auto", "64K")]
    said, = answers.within(made_up_part(rates, planned=planned), claim)
    must("holds in all 1 cells that have figures" in said and "nothing is known of 1 of 2 cells" in said and "size 8K" in said,
         f"a lost cell: {said}")
    must("16K" not in said and "64K" not in said, f"cells that were to be compared with nothing: {said}")
    said, = answers.within(made_up_part({("a", "4K"): [100], ("a", "8K"): [0]}, planned=[("a", "4K"), ("auto", "4K")]), claim)
    must("cannot be said" in said, f"all is lost: {said}")
    old = made_up_part(rates)
    old.lost.append({"factors": {"path": "auto", "size": "8K"}, "failed": "x"})
    said, = answers.within(old, claim)
    must("nothing is known of 1 of 2 cells" in said, f"a lost cell of an older result: {said}")


def test_crossing():
    claim = {"factor": "path", "cross": ["a", "b"], "along": "size", "metric": "iops"}
    rates = {("a", "4K"): [100, 101], ("b", "4K"): [50, 51], ("b", "8K"): [50, 51]}
    (said,), _ = answers.crossing(made_up_part(rates, planned=[*rates, ("a", "8K"), ("a", "16K")]), claim)
    must("in 1 of 1 cells" in said and "nothing is known of 1 more" in said, f"a crossing with a lost cell: {said}")


# --- Plots and pages --------------------------------------------------------------------------------------------


def texts(drawn, css):
    return ["".join(one.itertext()) for one in drawn.iter() if css in one.get("class", "").split()]


def check_axes(page):
    """Every plot has both axes named, one at least with its unit; returns how many plots there are."""
    plots = [one for one in page.iter() if one.tag.endswith("svg") and one.get("role") == "img"]
    for plot in plots:
        names = texts(plot, "x-axis") + texts(plot, "y-axis")
        must(len(names) == 2 and all(names), f"axes {names} of {plot.get('aria-label')}")
        must(any(re.search(r"\(.+\)", name) for name in names + [plot.get("aria-label")]), f"no unit: {names}")
    return len(plots)


def test_plots():
    three = (2.0, 1.0, 3.0)
    drawn = [
        svg.bars(["a <b>", "c"], ["x", "y"], [[three, None], [three, (0.0, 0.0, 0.0)]], "groups", "rate (1/s)", "l"),
        svg.bars(["a"], ["x"], [[(1e6, 1e6, 1e6)]], "groups", "rate (1/s)", "l", is_log=True),
        svg.lines(["4K", "8K"], ["x"], [[three, None]], "size (bytes)", "rate (1/s)", "l", is_log=True),
        svg.percentiles(["x", "y"], [[(50, 1.0), (99, 5.0), (100, 900.0)], []], "l"),
        svg.time_lines(["x"], [[[(0.0, 1.0), (1.0, 0.0)]]], "memory (MiB)", "l"),
        svg.heat(["1", "2"], ["4K"], [[0.5, None]], ["depth (operations)", "size (bytes)"], "l", True),
    ]
    for one in drawn:
        must(check_axes(ElementTree.fromstring(f"<p>{one}</p>")) == 1, f"no plot: {one[:80]}")
        must("nan" not in one and "inf" not in one, f"a number that is none: {one[:200]}")
    for empty in (svg.bars(["a"], ["x"], [[None]], "g", "r", "l"), svg.percentiles(["x"], [[]], "l")):
        must(empty == "", "a plot of nothing")


def test_tiny_run():
    path = write("tiny.yaml", TINY)
    done = tool("run", "--build", BUILD, "--out", "out", "--without-limits", path)
    must(done.returncode == 0, f"the tiny experiment: status {done.returncode}: {done.stderr}")
    with open("out/tiny/report.html", encoding="utf-8") as file:
        text = file.read()
    page = ElementTree.fromstring(text.split("\n", 1)[1])
    must(check_axes(page) == 1 + 2 + 2 + 4, f"{check_axes(page)} plots")
    rows = ["|".join("".join(cell.itertext()) for cell in row) for row in page.iter("tr")]
    for write_path in ("deferred", "direct"):
        for op in ("overwrite", "read"):
            for size in ("4K", "16K"):
                cells = [row for row in rows if row.startswith(f"{write_path}|{op}|{size}|2|")]
                must(len(cells) == 1, f"{write_path}, {op}, {size} is {len(cells)} times in the table")
    must("http" not in text.replace("http://www.w3.org/2000/svg", ""), "the page needs the network")
    must(os.path.exists("out/index.html") and "tiny/report.html" in open("out/index.html", encoding="utf-8").read(), "no index")
    with open("out/tiny/runs.csv", encoding="utf-8") as file:
        must(len(file.readlines()) == 1 + 16, "lines of the CSV")
    must(len(os.listdir("out/tiny/raw")) == 16, "raw results")
    done = tool("compare", "out/tiny", "out/tiny")
    must(done.returncode == 0 and "cells beyond the noise" in done.stdout, f"compare: {done.stdout}{done.stderr}")


def test_failing_run():
    path = write("broken.yaml", TINY.replace("[4K, 16K]", "[4K, 5000]").replace("repetitions: 2", "repetitions: 1"))
    done = tool("run", "--build", BUILD, "--out", "out", "--without-limits", path)
    must(done.returncode == 1 and "multiple of 4 KiB" in done.stderr, f"a run that fails: {done.returncode}: {done.stderr}")
    with open("out/broken/report.html", encoding="utf-8") as file:
        must("4 runs have no figures" in file.read(), "the report hides what failed")


def test_told_to_end():
    """By the end of its terminal, too; what was done until then is there, and is not called all."""
    path = write("long.yaml", TINY.replace("repetitions: 2", "repetitions: 200"))
    # Under nohup the signal would be left alone, on purpose.
    process = subprocess.Popen([os.path.join(SRC, "bench", "run"), "--build", BUILD, "--out", "out", "--without-limits", path],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
    until = time.monotonic() + 60
    while not os.path.exists("out/long/results.json") and process.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(signal.SIGHUP)
    said = process.communicate(timeout=60)[1]
    must(process.returncode == 130 and "interrupted" in said, f"told to end: {process.returncode}: {said}")
    found = results.load("out/long")
    must(found.is_interrupted and 8 <= len(found.runs) < 1600, f"{len(found.runs)} runs of a run that was ended")
    with open("out/long/report.html", encoding="utf-8") as file:
        text = file.read()
    must(f"{len(found.runs)} of 1600 runs" in text and "No run failed" not in text, "the report of a part calls itself whole")
    with open("out/index.html", encoding="utf-8") as file:
        must(f"{len(found.runs)} of 1600 runs" in file.read(), "the page above the reports does not have what was done")


# --- Runs that are made up --------------------------------------------------------------------------------------

FAKE = """\
title: Made up
question: What becomes of it?
seed: 3
parts:
  - {name: first, kind: fake, repetitions: 6, device: {kind: none}, load: {size: [4K, 8K, 16K]}}
  - {name: second, kind: fake, repetitions: 5, device: {kind: none}, load: {size: [4K, 8K]}}
  - {name: third, kind: fake, repetitions: 2, device: {kind: none}, load: {size: 4K}, limits: [raw]}
"""


class Fake(Kind):
    """A run that takes no time, and does what the test wants."""
    name = "fake"
    load_options = ("size", "depth")
    metrics = ("iops",)
    then = None

    def run(self, rig, cell, seconds, seed):
        if Fake.then is not None:
            Fake.then(rig, cell, seed % 1000)
        return [Outcome({"iops": 100.0})]

    def raw_of(self, cell):
        return ("read", cell.load["size"], 1)


def bench_run():
    path = os.path.join(SRC, "bench", "run")
    loader = importlib.machinery.SourceFileLoader("bench_run", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_run", loader))
    loader.exec_module(module)
    return module


def fake_run(where, then=None, raw=lambda *_: {"iops": 200.0}, text=FAKE):
    """(what was found, what was said on standard error) of a run whose loads and limits are made up."""
    Fake.then = then
    limits.raw = raw
    limits.Limit.run = lambda *_: [Outcome({"iops": 1.0})]
    args = types.SimpleNamespace(build=BUILD, scratch=None, verbose=False, short=False, without_limits=False)
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        found = bench_run().Runner(args, Experiment(write("fake.yaml", text), {"fake": Fake}, False), where).run()
    return found, said.getvalue()


def test_limits_by_part():
    """All rounds of the first part and of those with limits, three of any other; kept and shown by part."""
    found, said = fake_run("fakes")
    must(not said and not found.lost() and not found.unfinished(), f"a run without failures: {said}")
    rounds = {part.of: sorted({run["repetition"] for run in part.runs}) for part in found.limits}
    must(rounds == {"first": [1, 2, 3, 4, 5, 6], "second": [1, 3, 5], "third": [1, 2]}, f"rounds of the limits: {rounds}")
    must(all(len(part.cells) == len(limits.LIMITS) and part.is_whole for part in found.limits), "a limit is missing")
    for part in found.experiments:
        beside = {part.name, f"limits of {part.name}"}
        orders = [run["order"] for run in found.runs if run["part"] in beside]
        must(orders == list(range(orders[0], orders[0] + len(orders))), f"the limits of {part.name} are not among its runs")
        own = found.limits_of(part.name)
        must(own.of == part.name and (own.device, own.device_bytes) == (part.device, part.device_bytes), "limits of another")
    with open("fakes/report.html", encoding="utf-8") as file:
        rows = re.findall(r'<tr><td class="key">(\w+)</td><td class="key">fio, 4K read', file.read())
    must(rows == ["first", "second", "third"], f"limits in the report: {rows}")
    first, = (part for part in Experiment("fake.yaml", {"fake": Fake}, False).parts if part.name == "first")
    must(limits.rounds_of(first, True, True) == {1, 6}, "rounds of the limits in the short form")
    must([limits.part_of_limits(first, True, is_short).seconds for is_short in (False, True)] == [3, 0.5], "seconds of the limits")
    for name, (how, *_) in limits.LIMITS.items():
        must(results.is_foreign(name) == (how == "fio"), f"{name}: whose program is it?")


def test_list():
    """--list is what is run, in its order, with the limits."""
    path = write("listed.yaml", FAKE.replace("kind: fake", "kind: store"))
    listed = tool("run", "--list", path).stdout.splitlines()
    found, _ = fake_run("listed")
    names = [f"Made up: {run['part']}: {run['repetition']}: {results.name_of(run['factors'])}" for run in found.runs]
    must(listed == names, f"listed: {listed[:4]}, run: {names[:4]}")
    alone = tool("run", "--list", "--without-limits", path).stdout.splitlines()
    must(len(alone) == 30 and not any("limits of" in line for line in alone), f"{len(alone)} lines without limits")


def test_nothing_is_lost():
    """Whatever one run does, the others are there; each round is saved; what an earlier run left is not."""
    os.makedirs("kept/raw")
    for name in ("kept/raw/0999.json", "kept/results.json"):
        write(name, "{}")
    seen = {}

    def then(rig, _cell, repetition):
        if rig.part.name == "first" and "first" not in seen:
            seen["first"] = os.path.exists("kept/results.json")
        if rig.part.name == "second" and repetition == 2:
            seen.setdefault("second", results.load("kept"))
            raise ZeroDivisionError("of a new kind")
        if rig.part.name == "first" and repetition == 6:
            os.makedirs("kept/raw/0072.json", exist_ok=True)  # what cannot be written ends nothing
        if rig.part.name == "third":
            rig.stack.callback(lambda: int("no device"))

    found, said = fake_run("kept", then)
    must(seen["first"] is False and not os.path.exists("kept/raw/0999.json"), "what an earlier run left is still there")
    must("what was found is not written" in said, f"a file that cannot be written: {said}")
    saved = seen["second"]
    must([part.done for part in saved.experiments] == [18, 2, 0] and saved.is_interrupted, "rounds that were done are not saved")
    must("Interrupted" in saved.unfinished() and "2 of 10 of second" in saved.unfinished(), f"what is said of them: {saved.unfinished()}")
    must([part.done for part in found.experiments] == [18, 10, 2] and not found.is_interrupted, "runs are lost")
    lost = [(run["part"], run["repetition"], run["failed"]) for run in found.failed()]
    must(lost[:2] == [("second", 2, "ZeroDivisionError of a new kind")] * 2 and "of a new kind" in said, f"what failed: {lost}")
    must(len(lost) == 3 and lost[2][:2] == ("third", 0) and "no device" in lost[2][2], f"what befell the part: {lost}")
    must(not [name for name in os.listdir("kept") if name.endswith(".new")], "a file of which half may be written")


def test_raw_fails():
    """The cell has its own figures all the same, and what it is without is said."""
    def raw(_rig, _seconds, _op, _size, _depth):
        raise ValueError("no raw device")

    found, _ = fake_run("rawless", raw=raw)
    third, = found.part("third").cells.values()
    must(third.values("iops") == [100.0, 100.0] and not third.values("raw_ratio"), "a run is lost with its raw device")
    must(len(found.failed()) == 2 and not found.lost(), "a raw device that failed is not told")
    with open("rawless/report.html", encoding="utf-8") as file:
        text = file.read()
    must("2 runs are without a ratio" in text and "ValueError no raw device" in text, "nor is it in the report")


def test_ended_in_a_run():
    """To be told to end is to end, also where what takes a daemon away fails on the way."""
    def then(rig, _cell, repetition):
        if rig.part.name == "second" and repetition == 2:
            try:
                raise KeyboardInterrupt
            finally:
                raise RuntimeError("it does not stop")

    try:
        fake_run("ended", then)
        say("told to end in a run, it goes on")
    except KeyboardInterrupt:
        pass
    found = results.load("ended")
    must(found.part("second").done == 2, f"ended: {found.unfinished()}")
    with open("ended/report.html", encoding="utf-8") as file:
        text = file.read()
    must(text.count("Interrupted, or not at its end yet") == 2 and "2 of 10 runs were done" in text, "the report calls itself whole")
    report.write_index("ended/index.html", [("ended", found)])
    with open("ended/index.html", encoding="utf-8") as file:
        must("Interrupted" in file.read(), "the index calls it whole")


# --- Two folders ------------------------------------------------------------------------------------------------

FIO = "fio, 4K read, depth 128"
RAW = "raw device, 4K read, depth 128"


def runs_of(part, factor, values, metric):
    return [{"part": part, "repetition": nr, "factors": {factor: label}, "metrics": {metric: value}, "percentiles": [], "outcome": 0}
            for label, several in values.items() for nr, value in enumerate(several, 1)]


def made_up(where, rates, machine, metric="iops", change=lambda table: None):
    """Results of one part with one factor, and of its limits: those of fio, or several by name; change() alters them."""
    machine = machine if isinstance(machine, dict) else {FIO: machine}
    runs = runs_of("part", "size", rates, metric) + runs_of("limits of part", "limit", machine, "iops")
    described = {"text": "", "repetitions": 4, "seconds": 1, "device": "tmpfs", "device_bytes": 1 << 30, "device_path": "",
                 "metrics": [metric], "own_factors": [], "baseline": {}, "plots": [], "claims": [], "fixed": {}, "settings": {}}
    parts = [{**described, "name": "part", "kind": "store", "factors": {"size": list(rates)}, "planned": 4 * len(rates),
              "options": [{"factors": {"size": label}, "variant": {}, "load": {"size": label}} for label in rates]},
             {**described, "name": "limits of part", "kind": "limit", "of": "part", "factors": {"limit": list(machine)},
              "planned": 4 * len(machine), "options": []}]
    table = {"format": 1, "title": "t", "question": "q", "seed": 1, "short": False, "began": 0, "seconds": 1,
             "interrupted": False, "conditions": {}, "parts": parts, "runs": runs}
    change(table)
    for order, run in enumerate(table["runs"], 1):
        run["order"] = order
    os.makedirs(where)
    results.save(os.path.join(where, "results.json"), table)


TWO = {"4K": [100, 101, 102, 103], "8K": [50, 51, 52, 53]}
TWO_SAME = {"4K": [100.5, 101.5, 102.5, 99], "8K": [49, 51.5, 52.5, 54]}
TWO_LESS = {"4K": [80, 81, 82, 83], "8K": [40, 41, 42, 43]}
QUICK, QUICK_SAME, SLOW = [200, 201, 202, 203], [199, 201.5, 202.5, 204], [150, 151, 152, 153]


def compared(a, b, *options):
    done = tool("compare", *options, a, b)
    return done.returncode, done.stdout + done.stderr


def test_compare():
    made_up("a", TWO, QUICK)
    made_up("same", TWO_SAME, QUICK_SAME)
    made_up("slower", {"4K": [80, 81, 82, 83], "8K": [50.5, 51.5, 52.5, 49]}, QUICK_SAME)
    made_up("drifted", TWO_LESS, SLOW)
    status, said = compared("a", "same", "--fail")
    must(status == 0 and "exceeds" not in said and "0 of 2 cells" in said, f"the same: {said}")
    status, said = compared("a", "slower", "--fail")
    must(status == 1 and said.count("exceeds the noise") == 1 and "-19.7 %" in said and "1 of 2 cells" in said,
         f"one slower: {said}")
    status, said = compared("a", "drifted", "--fail")
    must(status == 0 and "machine differed by a factor of up to 1.33" in said and "0 of 2 cells" in said,
         f"a slower machine: {said}")
    must(tool("compare", "a", "absent").returncode == 2, "a folder that is absent")


def test_drift_is_not_ours():
    """A loop of ours that is slower is no slower machine; and a slower machine takes no more memory."""
    made_up("ours", TWO, {FIO: QUICK, RAW: QUICK})
    made_up("ours-slower", TWO_LESS, {FIO: QUICK_SAME, RAW: SLOW})
    status, said = compared("ours", "ours-slower", "--fail")
    must(status == 1 and "2 of 2 cells" in said and "our own code" in said, f"a slower loop of ours: {status}: {said}")
    made_up("loop", TWO, {RAW: QUICK})
    made_up("loop-slower", TWO_LESS, {RAW: SLOW})
    said = compared("loop", "loop-slower")[1]
    must("is not known" in said, f"only our own limits: {said}")
    for metric, status in (("rss_max_mib", 1), ("raw_ratio", 0), ("p99_us", 0)):
        made_up(f"{metric}-a", TWO_LESS, QUICK, metric)
        made_up(f"{metric}-b", TWO, SLOW, metric)
        must(compared(f"{metric}-a", f"{metric}-b", "--fail")[0] == status, f"{metric} on a slower machine")
    said = compared("raw_ratio-a", "raw_ratio-b")[1]
    must("2 of 2 cells" in said, f"a ratio to the raw device on a slower machine: {said}")


def second_part(rates, machine):
    """Another part, with limits of its own."""
    def change(table):
        table["parts"] += [{**part, "name": part["name"].replace("part", "other"), "of": part.get("of") and "other"}
                           for part in table["parts"]]
        table["runs"] += runs_of("other", "size", rates, "iops") + runs_of("limits of other", "limit", {FIO: machine}, "iops")
    return change


def test_drift_by_part():
    made_up("parts-a", TWO, QUICK, change=second_part(TWO, QUICK))
    made_up("parts-b", TWO_LESS, QUICK_SAME, change=second_part(TWO_LESS, SLOW))
    status, said = compared("parts-a", "parts-b", "--fail")
    first, second = said.split("== other")
    must(status == 1 and "2 of 2 cells" in first and "differed by a factor" not in first, f"the first part: {first}")
    must("0 of 2 cells" in second and "differed by a factor of up to 1.33" in second, f"the second part: {second}")


def options_of(**options):
    """Cells of the same names that are made of other options."""
    def change(table):
        for one in table["parts"][0]["options"]:
            one["load"].update(options)
    return change


def test_another_experiment():
    """What only has the same name is not compared, and that is said."""
    def only_8k(table):
        table["parts"][0]["options"][1]["load"]["objects"] = 2

    made_up("e", TWO, QUICK)
    cases = [
        ("short", lambda table: table.update(short=True), "short form no | yes"),
        ("seconds", lambda table: table["parts"][0].update(seconds=3), "seconds 1 | 3"),
        ("settings", lambda table: table["parts"][0].update(settings={"warm-up": 1}), "settings {} | "),
        ("kind", lambda table: table["parts"][0].update(kind="daemon"), "kind store | daemon"),
        ("device", lambda table: table["parts"][0].update(device="image"), "device tmpfs | image"),
        ("larger", lambda table: table["parts"][0].update(device_bytes=2 << 30), f"device_bytes {1 << 30} | {2 << 30}"),
        ("depth", options_of(depth=64), "2 cells (size 4K; size 8K): load: depth - | 64"),
        ("cell", only_8k, "1 cell (size 8K): load: objects - | 2"),
    ]
    for name, change, words in cases:
        made_up(f"e-{name}", TWO_SAME, QUICK, change=change)
        status, said = compared("e", f"e-{name}", "--fail")
        must(status == 1 and "not compared" in said and words in said, f"another {name}: {status}: {said}")
        status, said = compared("e", f"e-{name}")
        must(status == (0 if name == "cell" else 2), f"another {name}, without --fail: {status}: {said}")


def older(table):
    """As it was written before cells were described."""
    part, machine = table["parts"]
    machine["name"] = "limits"
    for one in (part, machine):
        for name in ("options", "planned", "device_bytes", "device_path", "of"):
            one.pop(name, None)
    for run in table["runs"]:
        run["part"] = run["part"].replace("limits of part", "limits")
    del table["interrupted"]


def test_older_results():
    made_up("new", TWO, QUICK)
    made_up("old", TWO_SAME, QUICK, change=older)
    for a, b in (("old", "new"), ("new", "old"), ("old", "old")):
        status, said = compared(a, b, "--fail")
        must(status == 0 and "0 of 2 cells" in said, f"an older result: {status}: {said}")
        for name, where in (("A", a), ("B", b)):
            must((f"{name} does not say what its cells were" in said) == (where == "old"), f"what {name} does not say: {said}")
    must(tool("run", "--report", "old").returncode == 0, "no report of an older result")
    with open("old/report.html", encoding="utf-8") as file:
        text = file.read()
    must("was not written down" in text and "No run failed, none" not in text and FIO in text, "the report of an older result")

    def fixed(table):
        older(table)
        table["parts"][0]["fixed"] = {"depth": 8}

    made_up("old-deep", TWO_SAME, QUICK, change=fixed)
    must("depth - | 8" in compared("old", "old-deep", "--fail")[1], "older results with other options for all cells")


def test_lost_in_b():
    """--fail does not pass what is no longer there."""
    def failing(table):
        table["runs"].append({**table["runs"][0], "repetition": 5, "metrics": {}, "failed": "Failed for the test"})

    def rawless(table):
        table["runs"][0]["raw_failed"] = "for the test"

    def interrupted(table):
        table["runs"] = [run for run in table["runs"] if run["repetition"] < 4]
        table["interrupted"] = True

    def figureless(table):
        for run in table["runs"]:
            if run["factors"] == {"size": "4K"}:
                run["metrics"] = {"p99_us": 1.0}

    def renamed(table):
        second_part(TWO_SAME, QUICK)(table)
        table["parts"] = [part for part in table["parts"] if "other" in part["name"]]

    made_up("all", TWO, QUICK)
    cases = [
        ("cell", {"4K": TWO_SAME["4K"]}, lambda table: None, "in A and not in B: 1 cell or figure (size 8K)"),
        ("figure", TWO_SAME, figureless, "in A and not in B: 1 cell or figure (rate of size 4K)"),
        ("run", TWO_SAME, failing, "B: failed: 1 run (part, size 4K, repetition 5)"),
        ("ratio", TWO_SAME, rawless, "B: failed: 1 run (part, size 4K, repetition 1)"),
        ("end", TWO_SAME, interrupted, "B: Interrupted, or not at its end yet: 9 of 12 runs"),
        ("part", TWO_SAME, renamed, "part: in A and not in B"),
    ]
    for name, rates, change, words in cases:
        made_up(f"no-{name}", rates, QUICK_SAME, change=change)
        status, said = compared("all", f"no-{name}", "--fail")
        must(status == 1 and words in said, f"a {name} is lost: {status}: {said}")
        status, said = compared(f"no-{name}", "all", "--fail")
        must(status == 1 if name == "part" else status == 0, f"a {name} more than before: {status}: {said}")
    status, said = compared("all", "all", "--metric", "iop")
    must(status == 2 and "iop is no figure" in said, f"a figure that there is not: {status}: {said}")
    status, said = compared("all", "all", "--metric", "p99_us")
    must(status == 2 and "nothing to compare" in said, f"a figure that neither has: {status}: {said}")


def test_depth_in_a_choice():
    """How many sends there are follows from the machine where many requests are under way, whatever that is called."""
    more = {"4K": [1.0, 1.0, 1.0, 1.0]}, {"4K": [1.03, 1.03, 1.03, 1.03]}
    for name, change, status in (("alone", options_of(depth=1), 1), ("many", options_of(depth=64), 0),
                                 ("conns", options_of(connections=4), 0), ("both", options_of(op="mixed"), 0), ("unknown", older, 0)):
        made_up(f"sends-{name}-a", more[0], QUICK, "door_sends", change)
        made_up(f"sends-{name}-b", more[1], SLOW, "door_sends", change)
        must(compared(f"sends-{name}-a", f"sends-{name}-b", "--fail")[0] == status, f"sends, {name}")


def main():
    for test in (test_wrongs, test_no_truth_values, test_order, test_those_in_the_tree, test_noise, test_within, test_within_of_what_is_lost,
                 test_crossing, test_plots, test_tiny_run, test_failing_run, test_told_to_end, test_limits_by_part, test_list, test_nothing_is_lost,
                 test_raw_fails, test_ended_in_a_run, test_compare, test_drift_is_not_ours, test_drift_by_part, test_another_experiment,
                 test_older_results, test_lost_in_b, test_depth_in_a_choice, test_host_memory):
        print(test.__name__, flush=True)
        test()
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
