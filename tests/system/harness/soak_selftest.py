#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# variants: release
"""Goal: the soak takes a bench that died for a failure, though the daemon was killed under it, and only one that says
that it lost its connection for one that gave up; and a mount that hangs ends it. Method: ends of benches that are made
up; a program that does not end."""

import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import sys
import time
import types

TESTS = pathlib.Path(os.environ["LP_TEST_SRC"]) / "tests"
sys.path.insert(0, str(TESTS))
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("soak", str(TESTS / "soak"))
soak = importlib.util.module_from_spec(importlib.util.spec_from_loader("soak", loader))
loader.exec_module(soak)
import mount_writers

REPORT = json.dumps({"error_kinds": [], "mismatches": 0, "ops": 1, "bytes": 1, "checked": 1})
LOST = "lapis: bench: the connection broke before the answer came: whether it was done is unknown"


def bench(status, out, err):
    made = soak.Bench.__new__(soak.Bench)
    made.name, made.out, made.err = "files", io.StringIO(out), io.StringIO(err)
    made.process = types.SimpleNamespace(returncode=status)
    return made


def fails(error, call, *args):
    try:
        call(*args)
    except error:
        return
    raise AssertionError(f"nothing is wrong with {args}")


def main():
    assert bench(1, "", LOST).result(True) is None
    assert bench(0, REPORT, "").result(True)["ops"] == 1
    assert bench(1, REPORT, LOST).result(True)["ops"] == 1
    for status, out, err in ((-11, "", ""), (-11, "", LOST), (-6, REPORT, ""), (1, "", ""), (0, "", LOST),
                             (1, "", "ERROR: AddressSanitizer: heap-use-after-free")):  # fmt: skip
        fails(soak.Failed, bench(status, out, err).result, True)
    fails(soak.Failed, bench(1, "", LOST).result, False)
    writers = mount_writers.Writers(pathlib.Path("mnt"), 1)
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    writers.pids = [pid]
    fails(AssertionError, writers.collect, 0.05)
    assert writers.pids == [pid]
    writers.kill()
    assert not writers.pids


if __name__ == "__main__":
    main()
