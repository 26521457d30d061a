# SPDX-License-Identifier: Apache-2.0
"""Programs that change files on a mount, each its own, and know what may be at each of its names when the
daemon was killed under them (rule M1): what was synced last, and all that was made of it since, in order. A write
happens page by page, as far as is known here: the kernel may cut it there into requests, each of which happens
wholly or not at all. What is moved to a name is there as a whole."""

import errno
import hashlib
import os
import pathlib
import pickle
import random
import signal
import time

PAGE = 4096
SLOTS = 12
SIZES = (1, 700, 2048, 4096, 5000, 40000, 130000)
# What a program is told whose daemon is gone; the last one of what io_uring was just bringing.
GONE = (errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED)


# Longer than anything takes on any machine, if the mount answers.
PATIENCE_S = 180


class Ended(BaseException):
    """A program is asked to end."""


def digest(data):
    return f"{len(data)}:{hashlib.sha256(data).hexdigest()[:12]}"


def end_now(*_):
    raise Ended


class Writer:
    """One program: may_be holds, for each slot, the contents that may be there, oldest first."""

    def __init__(self, top, number, may_be, seed):
        self.dice = random.Random(seed * 100 + number)
        self.directory = top / f"w{number}"
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


def run_child(writer, out):
    """Until the daemon is gone, or it is asked to end; what it knows is left in the file."""
    trouble = None
    try:
        signal.signal(signal.SIGTERM, end_now)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        writer.run()
    except Ended:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except OSError as error:
        if error.errno not in GONE:
            trouble = repr(error)
    except Exception as error:
        trouble = repr(error)
    out.write_bytes(pickle.dumps((writer.may_be, writer.synced, trouble)))


def await_end(pid, patience_s):
    until_s = time.monotonic() + patience_s
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        assert time.monotonic() < until_s, f"a program does not end within {patience_s} s: the mount hangs"
        time.sleep(0.002)


class Writers:
    """Some of them, below a directory; what they know is in files of the present one."""

    def __init__(self, top, cnt):
        self.top = top
        self.states = [{slot: [None] for slot in range(SLOTS)} for _ in range(cnt)]
        self.outs = [pathlib.Path(f"known{number}").absolute() for number in range(cnt)]
        self.pids = []
        self.seed = 0

    def start(self, seed):
        self.seed = seed
        # Not before a child knows what to do then.
        old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        for number, out in enumerate(self.outs):
            out.unlink(missing_ok=True)
            pid = os.fork()
            if pid == 0:
                try:
                    run_child(Writer(self.top, number, self.states[number], seed), out)
                finally:
                    os._exit(0)
            self.pids.append(pid)
        signal.pthread_sigmask(signal.SIG_SETMASK, old)

    def ask_to_end(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGTERM)

    def collect(self, patience_s=PATIENCE_S):
        """Waits for them, and takes what they know; returns how often they synced."""
        while self.pids:
            await_end(self.pids[0], patience_s)
            self.pids.pop(0)
        known = [pickle.loads(out.read_bytes()) for out in self.outs]
        self.states = [may_be for may_be, _, _ in known]
        for _, _, trouble in known:
            assert trouble is None, f"a program in trouble: {trouble}"
        return sum(synced for _, synced, _ in known)

    def judge(self):
        """What is there must be one of what may be; it is the beginning of the next round."""
        for number, may_be in enumerate(self.states):
            writer = Writer(self.top, number, may_be, self.seed)
            for slot, allowed in may_be.items():
                path = writer.path(slot)
                found = digest(path.read_bytes()) if path.exists() else None
                assert found in allowed, f"{path}: {found}, not one of {allowed}"
                may_be[slot] = [found]

    def kill(self):
        """Whatever they are doing, when their daemon is gone."""
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        while self.pids:
            await_end(self.pids.pop(), PATIENCE_S)
