# SPDX-License-Identifier: Apache-2.0
"""Loop devices over a tmpfs file, for benchmarks and system tests. Needs root.

A device made here is filled once, so that no figure contains the allocation of pages, and goes
away with its context, also on failure.
"""
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

SPARE_BYTES = 1 << 30  # for the programs that use the devices


def end_by_signal():
    """A program that is asked to end, or whose terminal goes away, takes away what it has made."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda taken, _: sys.exit(128 + taken))


@contextlib.contextmanager
def tmpfs(size_bytes):
    """A directory that is a tmpfs of its own."""
    end_by_signal()
    where = tempfile.mkdtemp(prefix="lapis-tmpfs-")
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "lapis", where], check=True)
        try:
            yield where
        finally:
            subprocess.run(["umount", "-l", where], check=True)
    finally:
        shutil.rmtree(where, ignore_errors=True)


@contextlib.contextmanager
def loop_device(image):
    """A loop device with direct I/O over the file `image`."""
    found = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", image],
                           check=True, capture_output=True, text=True)
    device = found.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def need_memory(size_bytes):
    """What is in tmpfs cannot be thrown away: a machine without room for it ends other programs."""
    with open("/proc/meminfo", encoding="ascii") as meminfo:
        kib = next(int(line.split()[1]) for line in meminfo if line.startswith("MemAvailable:"))
    if size_bytes + SPARE_BYTES > kib << 10:
        sys.exit(f"devices in tmpfs of {size_bytes / (1 << 30):.1f} GiB in all need as much memory, and {SPARE_BYTES >> 30} GiB "
                 f"besides: {kib / (1 << 20):.1f} GiB are available")


@contextlib.contextmanager
def filled_loop_devices(*sizes_bytes):
    """A loop device of each size, every block written, the MiB of all by turns and in a mixed order: memory of
    one machine is not equally fast everywhere, and so each part of each has the same share of it."""
    need_memory(sum(sizes_bytes))
    with contextlib.ExitStack() as stack:
        where = stack.enter_context(tmpfs(sum(sizes_bytes) + (64 << 20)))
        images = [os.path.join(where, f"image{n}") for n in range(len(sizes_bytes))]
        chunk = os.urandom(1 << 20)
        with contextlib.ExitStack() as files:
            outs = [(files.enter_context(open(image, "wb")), size) for image, size in zip(images, sizes_bytes)]
            most = max(sizes_bytes) >> 20
            for place in random.Random(1).sample(range(most), most):
                for out, size in outs:
                    if place < size >> 20:
                        out.seek(place << 20)
                        out.write(chunk)
        devices = [stack.enter_context(loop_device(image)) for image in images]
        yield devices
