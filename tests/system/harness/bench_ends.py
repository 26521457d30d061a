#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Goal: a benchmark that is asked to end leaves no loop device and no file system behind, and one for which there is not the
#   memory says so before it takes any.
# Method: one that has made both is sent SIGTERM while it waits; one asks for a device of a PiB.
# variants: release
"""What a benchmark leaves when it is ended."""
import os
import signal
import subprocess
import sys

SRC = os.environ["LP_TEST_SRC"]
WAITS = """
import sys, time
sys.path.insert(0, sys.argv[1])
import loopdev
with loopdev.filled_loop_devices(4 << 20) as devices:
    print(devices[0], flush=True)
    time.sleep(60)
"""
TOO_LARGE = """
import sys
sys.path.insert(0, sys.argv[1])
import loopdev
with loopdev.filled_loop_devices(4 << 20, 1 << 50) as devices:
    print(devices)
"""


def main():
    if os.geteuid() != 0:
        print("only root makes loop devices")
        return 77
    with subprocess.Popen([sys.executable, "-c", WAITS, f"{SRC}/bench"], stdout=subprocess.PIPE, text=True) as bench:
        device = bench.stdout.readline().strip()
        used = subprocess.run(["losetup", "--noheadings", "--output", "BACK-FILE", device],
                              check=True, capture_output=True, text=True).stdout.strip()
        bench.send_signal(signal.SIGTERM)
        status = bench.wait(timeout=60)
    left = subprocess.run(["losetup", "--noheadings", "--output", "BACK-FILE", device],
                          check=False, capture_output=True, text=True).stdout.strip()
    if status != 128 + signal.SIGTERM:
        print(f"FAIL: exit status {status}")
        return 1
    if not used or left == used or os.path.exists(os.path.dirname(used)):
        print(f"FAIL: {device} of {used} is left: {left}")
        return 1
    done = subprocess.run([sys.executable, "-c", TOO_LARGE, f"{SRC}/bench"], check=False, capture_output=True, text=True)
    if done.returncode != 1 or "1048576.0 GiB" not in done.stderr or "are available" not in done.stderr:
        print(f"FAIL: a device for which there is no memory: exit status {done.returncode}: {done.stdout} {done.stderr}")
        return 1
    return 0


sys.exit(main())
