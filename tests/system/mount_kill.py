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

A write happens page by page, as far as is known here: the kernel may cut it there into requests, each
of which happens wholly or not at all. What is moved to a name is there as a whole."""

import errno
import hashlib
import os
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import time

PAGE = 4096
WORKERS = 3
SLOTS = 12
SIZES = (1, 700, 2048, 4096, 5000, 40000, 130000)
# What a program is told whose daemon is gone; the last one of what io_uring was just bringing.
GONE = (errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED)
BUILD = pathlib.Path(os.environ["LP_TEST_BUILD"])
MNT = pathlib.Path("mnt").absolute()


def digest(data):
    return f"{len(data)}:{hashlib.sha256(data).hexdigest()[:12]}"


class Worker:
    """One process: may_be holds, for each slot, the contents that may be there, oldest first."""

    def __init__(self, number, may_be, seed):
        self.dice = random.Random(seed * 100 + number)
        self.directory = MNT / f"w{number}"
        self.may_be = may_be
        self.synced = 0

    def bytes(self):
        return self.dice.randbytes(self.dice.choice(SIZES))

    def path(self, slot):
        return self.directory / f"d{slot % 2}" / str(slot)

    def sync(self, slot, path):
        """The newest is durable, and nothing else may be there."""
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        del self.may_be[slot][:-1]
        self.synced += 1

    def replace(self, slot):
        data = self.bytes()
        tmp = self.directory / f"tmp{slot}"
        fd = os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(fd, data)
        os.close(fd)
        self.may_be[slot].append(digest(data))
        os.rename(tmp, self.path(slot))
        if self.dice.random() < 0.5:
            self.sync(slot, self.dice.choice((self.path(slot), self.path(slot).parent)))

    def change(self, slot):
        path = self.path(slot)
        if self.may_be[slot][-1] is None:
            self.may_be[slot].append(digest(b""))  # before it is made: the answer may never come
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        data = os.pread(fd, 1 << 20, 0)
        for _ in range(self.dice.randrange(1, 4)):
            new = self.bytes()
            at = self.dice.randrange(len(data) + 1)
            new = new[: (1 << 20) - at]
            for end in (*range((at // PAGE + 1) * PAGE, at + len(new), PAGE), at + len(new)):
                part = data[:at] + new[: end - at] + data[end:]
                self.may_be[slot].append(digest(part))
            data = part
            os.pwrite(fd, new, at)
        if self.dice.random() < 0.6:
            os.fsync(fd)
            del self.may_be[slot][:-1]
            self.synced += 1
        os.close(fd)

    def remove(self, slot):
        path = self.path(slot)
        if not path.exists():
            return
        self.may_be[slot].append(None)
        os.unlink(path)
        if self.dice.random() < 0.5:
            self.sync(slot, path.parent)

    def run(self):
        for name in ("d0", "d1"):
            os.makedirs(self.directory / name, exist_ok=True)
        while True:
            slot = self.dice.randrange(SLOTS)
            self.dice.choice((self.replace, self.change, self.change, self.remove))(slot)


def child(number, may_be, seed, out):
    worker = Worker(number, may_be, seed)
    trouble = None
    try:
        worker.run()
    except OSError as error:
        if error.errno not in GONE:
            trouble = repr(error)
    except Exception as error:
        trouble = repr(error)
    out.write_bytes(pickle.dumps((worker.may_be, worker.synced, trouble)))
    os._exit(0)


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


def judge(number, may_be, seed):
    """What is there must be one of these; it is the beginning of the next round."""
    worker = Worker(number, may_be, seed)
    for slot, allowed in may_be.items():
        path = worker.path(slot)
        found = digest(path.read_bytes()) if path.exists() else None
        assert found in allowed, f"{path}: {found}, not one of {allowed}"
        may_be[slot] = [found]


def one_round(daemon, states, seed):
    outs = [pathlib.Path(f"known{number}") for number in range(WORKERS)]
    pids = []
    for number, out in enumerate(outs):
        out.unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            child(number, states[number], seed, out)
        pids.append(pid)
    time.sleep(0.2 + random.Random(seed).random() * 0.6)
    daemon.end(signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)
    known = [pickle.loads(out.read_bytes()) for out in outs]
    for _, _, trouble in known:
        assert trouble is None, f"a program in trouble: {trouble}"
    daemon.start()
    for number, (may_be, _, _) in enumerate(known):
        judge(number, may_be, seed)
        states[number] = may_be
    return sum(synced for _, synced, _ in known)


def run(daemon, rounds, seed):
    states = [{slot: [None] for slot in range(SLOTS)} for _ in range(WORKERS)]
    synced = 0
    for number in range(rounds):
        try:
            synced += one_round(daemon, states, seed * 1000 + number)
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
