# SPDX-License-Identifier: Apache-2.0
"""What the runs of an experiment stand on: builds, devices, programs and what they print."""
import contextlib
import json
import os
import pathlib
import platform
import shutil
import subprocess
import tempfile

import hostmem
import loopdev
import storebench

ROOT = pathlib.Path(__file__).resolve().parent.parent
CALL_S = 900
LIMIT_DEVICE_BYTES = 4 << 30  # one that is only measured itself: of a larger store's it need not have all


class Failed(Exception):
    """A run that has no figures; the text says why."""


class Skipped(Exception):
    """What cannot be done on this machine; the text says why."""


def call(command, env=None, good=(0,)):
    """What a command printed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CALL_S,
                              env={**os.environ, **(env or {})})
    except FileNotFoundError:
        raise Failed(f"{command[0]} is not there: `make all tools` builds it") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(command)}: not done after {CALL_S} s") from None
    if done.returncode not in good:
        raise Failed(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


def call_json(command, env=None, good=(0,)):
    text = call(command, env, good)
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise Failed(f"{' '.join(command)}: printed no JSON: {text[:200]}") from None


class Rig:
    """For all runs of one part: devices are made once, for filling them takes long; what is on them is made
    anew for each run."""

    def __init__(self, build, part, scratch):
        self.build = build
        self.part = part
        self.scratch = scratch
        self.stack = contextlib.ExitStack()
        self.devices = {}
        self.loops = []
        self.built = set()

    def __enter__(self):
        self.where = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="lapis-exper-", dir=self.scratch))
        return self

    def __exit__(self, *why):
        return self.stack.__exit__(*why)

    def device(self, number=0, kind=None):
        """The device of that number: 0 and 1 are equal, but for the size (twin_bytes()). Of the part's kind, or of another one."""
        kind = kind or self.part.device_kind
        if kind == "none":  # the limits have one all the same
            kind = "tmpfs"
        if (kind, number) not in self.devices:
            make = {"tmpfs": self.loop, "image": self.image, "file": self.file}[kind]
            self.devices[kind, number] = make(number)
        return self.devices[kind, number]

    def image(self, number):
        path = os.path.join(self.where, f"image{number}")
        with open(path, "xb") as out:
            out.truncate(self.part.device_size)
        return path

    def file(self, number):
        path = f"{self.part.device_path}.{number}"
        if os.path.exists(path):
            raise Failed(f"{path} exists: remove it, or choose another place")
        self.stack.callback(lambda: os.path.exists(path) and os.unlink(path))
        storebench.full_file(path, self.part.device_size)
        return path

    def loop(self, number):
        """Both at once, for they are equally fast only then."""
        if os.geteuid() != 0:
            raise Skipped("loop devices over tmpfs need root")
        if not self.loops:
            size = self.part.device_size >> 20 << 20
            self.loops = self.stack.enter_context(loopdev.filled_loop_devices(size, self.twin_bytes() >> 20 << 20))
        return self.loops[number]

    def twin_bytes(self):
        """Of device 1."""
        return self.part.device_size if self.part.kind.needs_twins else min(self.part.device_size, LIMIT_DEVICE_BYTES)

    def build_of(self, malloc):
        """Where the programs linked with that allocator of memory are; what is not there or is old is built."""
        if malloc == "glibc":
            return self.build
        where = f"{self.build}-{malloc}"
        if malloc not in self.built:  # one that is there may be of older sources
            print(f"  building with {malloc}", flush=True)
            call(["make", "-C", str(ROOT), f"ALLOC={malloc}", f"VARIANT={os.path.basename(self.build)}", "all"])
            self.built.add(malloc)
        if not os.path.exists(f"{where}/bin/lapisd"):
            raise Skipped(f"{where}/bin/lapisd is not there")
        return where

    def tool(self, name):
        return f"{self.build}/tools/{name}"

    def mkfs(self, device, shards=1, log_size=None):
        """A new store, whatever was on the device."""
        more = ["--log-size", str(log_size)] if log_size else []
        call([f"{self.build}/bin/lapis", "mkfs", "--force", "--shards", str(shards), *more, device])

    @contextlib.contextmanager
    def ext4(self, device):
        """A new ext4 on the device, mounted: what it has to write late is written before anything is timed."""
        if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
            raise Skipped("a mounted ext4 needs root and mkfs.ext4")
        where = tempfile.mkdtemp(prefix="ext4-", dir=self.where)
        call(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", device])
        call(["mount", device, where])
        try:
            yield where
        finally:
            call(["umount", where])
            os.rmdir(where)


# --- What it was measured on ------------------------------------------------------------------------------------


def first_line(command):
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        text = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20).stdout
        return text.splitlines()[0].strip() if text.strip() else ""
    return ""


def field_of(path, name):
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return ""


def package_version(name):
    return first_line(["dpkg-query", "-W", "-f=${Version}", name]) if shutil.which("dpkg-query") else ""


def conditions(build):
    """The machine and the programs; no name of the machine, for reports are passed on."""
    memory_kib = int((field_of("/proc/meminfo", "MemTotal") or "0 kB").split()[0])
    found = {
        "processors": f"{os.cpu_count()} x {field_of('/proc/cpuinfo', 'model name') or platform.machine()}",
        "memory": f"{memory_kib / 1048576:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "system": field_of_release(),
        "lapis": first_line([f"{build}/bin/lapisd", "--version"]),
        "commit": commit() + ("" if is_current(build) else "; the programs are not of these sources"),
        "build": os.path.basename(build),
        "fio": first_line(["fio", "--version"]) or "not installed",
        "virtual machine": "yes" if " hypervisor" in field_of("/proc/cpuinfo", "flags") else "no",
        "free memory": hostmem.state(),
        "load average at start": f"{os.getloadavg()[0]:.2f}",
    }
    for name, package in (("RocksDB", "librocksdb-dev"), ("liburing", "liburing-dev"), ("jemalloc", "libjemalloc2"),
                          ("tcmalloc", "libgoogle-perftools-dev"), ("mimalloc", "libmimalloc-dev"), ("libc", "libc6")):
        version = package_version(package)
        if version:
            found[name] = version
    return found


def field_of_release():
    with contextlib.suppress(OSError), open("/etc/os-release", encoding="utf-8") as file:
        for line in file:
            if line.startswith("PRETTY_NAME="):
                return line.split("=", 1)[1].strip().strip('"')
    return platform.system()


def is_current(build):
    """Whether make has nothing to do for the programs of this build."""
    name = os.path.basename(build)
    if os.path.realpath(build) != str(ROOT / "build" / name):
        return False
    options = [f"VARIANT={name.removesuffix('-nolto')}", *(["LTO=no"] if name.endswith("-nolto") else [])]
    done = subprocess.run(["make", "-q", "-C", str(ROOT), *options, "all", "tools"], check=False, capture_output=True,
                          timeout=CALL_S)
    return done.returncode == 0


def commit():
    head = first_line(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"])
    if not head:
        return "unknown"
    changed = first_line(["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"])
    return f"{head} with changes" if changed else head
