#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
# variants: release asan
"""Goal: what programs synced on the mount is there after kill -9 of the daemon, and a name that
replaced another one leads to the old or the new content (rule M1); with the real kernel between.
Method: some processes change files, each its own; the daemon is killed; each process hands over what
may be at each of its names: what was synced last, and all that it made of it since, in order. Started
again, with the dead mount still there, each name is one of these. After a clean stop fsck is content.

    mount_kill.py [ROUNDS] [SEED]     6 rounds unless told otherwise

The programs, and what may be there, are in tests/mount_writers.py."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ["LP_TEST_SRC"], "tests"))
import mount_writers

WRITERS = 3
BUILD = pathlib.Path(os.environ["LP_TEST_BUILD"])
MNT = pathlib.Path("mnt").absolute()


class Daemon:
    def __init__(self):
        self.process = None

    def start(self):
        command = [BUILD / "bin/lapisd", "--memory", "192M", "--mount", MNT, "a.img"]
        with open("lapisd.err", "ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        line = self.process.stdout.readline()
        assert line == b"lapisd: ready\n", f"{line} {pathlib.Path('lapisd.err').read_text()[-500:]}"

    def end(self, number):
        self.process.send_signal(number)
        status = self.process.wait()
        self.process = None
        return status


def one_round(daemon, writers, seed):
    writers.start(seed)
    time.sleep(0.2 + random.Random(seed).random() * 0.6)
    daemon.end(signal.SIGKILL)
    synced = writers.collect()
    daemon.start()
    writers.judge()
    return synced


def run(daemon, rounds, seed):
    writers = mount_writers.Writers(MNT, WRITERS)
    synced = 0
    for number in range(rounds):
        try:
            synced += one_round(daemon, writers, seed * 1000 + number)
        except Exception:
            print(f"seed {seed}, round {number}")
            raise
    assert daemon.end(signal.SIGTERM) == 0
    subprocess.run([BUILD / "bin/lapis", "fsck", "--deep", "a.img"], check=True)
    print(f"{rounds} kills, {synced} syncs")
    assert synced > 5 * rounds, "this shows nothing"


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    if os.getuid() != 0 or not os.path.exists("/dev/fuse"):
        print("a mount needs root and /dev/fuse")
        return 77
    command = [BUILD / "bin/lapis", "mkfs", "--size", "512M", "--shards", "2", "a.img"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    MNT.mkdir()
    daemon = Daemon()
    try:
        daemon.start()
        run(daemon, rounds, seed)
    finally:
        if daemon.process is not None:
            daemon.process.kill()
            daemon.process.wait()
        subprocess.run(["umount", "-l", MNT], stderr=subprocess.DEVNULL, check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
