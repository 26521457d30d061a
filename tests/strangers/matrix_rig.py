# SPDX-License-Identifier: Apache-2.0
"""What the cells of the matrix run on: stores, daemons with a mount, and the programs that are their load."""

import contextlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import threading
import time

import matrix_cells
import matrix_watch

MIB = matrix_cells.MIB
READY_S = 60
END_S = 60
EMPTY_SIZE = "3G"
NEARLY_SHARE = 0.1  # of a store that is nearly full is free
CONTENT = random.Random(1).randbytes(4 * MIB)
OLD_BYTES = 64 * MIB  # of the file that a filled store has


class Failed(Exception):
    """What was found."""


def smallest_memory(shards):
    """What --memory must have at least, see lapisd(8)."""
    return f"{max(128, 64 * shards)}M"


def memory_of(cell):
    return smallest_memory(cell.number("shards")) if cell.memory == "smallest" else cell.memory


class Daemon:
    """lapisd with a mount and a socket, in its own directory."""

    def __init__(self, build, where, image, memory, options=""):
        self.lapis = build / "bin/lapis"
        self.image = image
        self.mnt = where / "mnt"
        self.address = f"unix:{where}/s"
        self.log = where / "daemon.log"
        self.mnt.mkdir(exist_ok=True)
        argv = [build / "bin/lapisd", "--listen", self.address, "--mount", self.mnt, "--memory", memory]
        argv += ["--mount-options", options] if options else []
        self.argv = [str(arg) for arg in [*argv, image]]
        self.process = None

    def start(self):
        out = self.log.with_suffix(".out")
        with open(self.log, "w", encoding="utf-8") as log, open(out, "w", encoding="utf-8") as to:
            self.process = subprocess.Popen(self.argv, stdout=to, stderr=log)
        until_s = time.monotonic() + READY_S
        while "lapisd: ready" not in out.read_text(encoding="utf-8"):
            if self.process.poll() is not None or time.monotonic() > until_s:
                raise Failed(f"the daemon is not ready: {self.log.read_text(encoding='utf-8')[-500:]}")
            time.sleep(0.02)

    def stop(self):
        """Cleanly, and the store is whole afterwards."""
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"the daemon does not end within {END_S} s of SIGTERM") from None
        if status != 0:
            raise Failed(f"the daemon's exit status is {status}: {self.log.read_text(encoding='utf-8')[-500:]}")
        for _ in range(100):
            said = subprocess.run([self.lapis, "fsck", self.image], capture_output=True, text=True, check=False)
            if said.returncode == 0:
                return
            if "busy" not in said.stderr:  # the kernel takes its ring apart a moment later
                break
            time.sleep(0.05)
        raise Failed(f"fsck: {said.stdout[-500:]}{said.stderr[-500:]}")

    def end(self):
        """Whatever state it is in; what waits for it on the mount gets an error then."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        subprocess.run(["umount", "-l", self.mnt], stderr=subprocess.DEVNULL, check=False)


class Stores:
    """Makes the image of each cell; those that are filled are made once and copied."""

    def __init__(self, build, where, fill_size):
        self.build = build
        self.where = where
        self.fill_size = fill_size
        self.made = {}

    def mkfs(self, image, size, shards):
        argv = [self.build / "bin/lapis", "mkfs", "--size", size, "--shards", str(shards), image]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"mkfs: {done.stderr}")

    def make(self, cell, image):
        shards = cell.number("shards")
        if cell.fill == "empty":
            self.mkfs(image, EMPTY_SIZE, shards)
            return
        if (cell.fill, shards) not in self.made:
            self.fill(shards)
        subprocess.run(["cp", "--sparse=always", "--reflink=auto", self.made[cell.fill, shards], image], check=True)

    def fill(self, shards):
        """Both stores of so many shards that are not empty."""
        full = self.where / f"full-{shards}.img"
        nearly = self.where / f"nearly-{shards}.img"
        self.mkfs(full, self.fill_size, shards)
        self.with_daemon(full, shards, fill_nearly)
        subprocess.run(["cp", "--sparse=always", "--reflink=auto", full, nearly], check=True)
        self.with_daemon(full, shards, fill_wholly)
        self.made["full", shards] = full
        self.made["nearly", shards] = nearly

    def with_daemon(self, image, shards, call):
        daemon = Daemon(self.build, self.where, image, "512M")
        try:
            daemon.start()
            call(daemon.mnt)
            daemon.stop()
        finally:
            daemon.end()


def put(path, size):
    """Makes a file; False if there is no space for it, and then there is no file."""
    try:
        with open(path, "wb", buffering=0) as file:
            for begin in range(0, size, len(CONTENT)):
                file.write(CONTENT[: size - begin])
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        return False
    return True


def fill_nearly(mnt):
    old = mnt / "fio" / "old"
    old.parent.mkdir()
    if not put(old, OLD_BYTES):
        raise Failed("no space for the file that filled stores have")
    number = 0
    while True:
        state = os.statvfs(mnt)
        if state.f_bavail < NEARLY_SHARE * state.f_blocks or not put(mnt / f"fill-{number}", 8 * MIB):
            return
        number += 1


def fill_wholly(mnt):
    """Until files of no size can be made any more."""
    number = 0
    for size in (8 * MIB, MIB, 128 << 10, 16 << 10, 4 << 10):
        refused = 0
        while refused < 8:  # one shard may be full before the others are
            refused += not put(mnt / f"more-{number}", size)
            number += 1


class Program:
    """One program of a load; output and errors are files."""

    def __init__(self, name, argv, where):
        self.name = name
        self.argv = [str(arg) for arg in argv]
        self.out = where / f"{name}.out"
        self.err = where / f"{name}.err"
        self.process = None
        self.where = where

    def start(self):
        with open(self.out, "w", encoding="utf-8") as out, open(self.err, "w", encoding="utf-8") as err:
            self.process = subprocess.Popen(self.argv, stdout=out, stderr=err, cwd=self.where)

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def end(self):
        if self.process is None:
            return
        if self.is_running():
            for pid in matrix_watch.family_of(self.process.pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_S)


class Truncator(threading.Thread):
    """Makes the files below a directory shorter and longer again, until it is told to stop."""

    def __init__(self, directory, size, seed):
        super().__init__(daemon=True)
        self.directory = directory
        self.size = size
        self.dice = random.Random(seed)
        self.is_over = threading.Event()

    def run(self):
        while not self.is_over.wait(self.dice.uniform(0.005, 0.05)):
            with contextlib.suppress(OSError):  # no space; or the daemon is gone, which others notice
                files = sorted(self.directory.glob("load.*"))
                if files:
                    self.change(self.dice.choice(files))

    def change(self, path):
        os.truncate(path, self.dice.randrange(self.size))
        if self.dice.random() < 0.5:
            os.truncate(path, self.size)


def room_for(directory, size):
    """Whether the file system of this directory has so much space."""
    return shutil.disk_usage(directory).free > size


def memory_bytes():
    """Of this machine, that can be had."""
    for line in pathlib.Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0


def cannot_run():
    """Why there can be no matrix here, or None."""
    if os.getuid() != 0 or not os.path.exists("/dev/fuse"):
        return "a mount needs root and /dev/fuse"
    if not shutil.which("fio"):
        return "no fio: scripts/deps --dev"
    return None
