#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Goal: a benchmark that is asked to end leaves no loop device and no file system behind.
# Method: one that has made both is sent SIGTERM while it waits.
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
with loopdev.filled_loop_devices(1, 4 << 20) as devices:
    print(devices[0], flush=True)
    time.sleep(60)
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
    return 0


sys.exit(main())
