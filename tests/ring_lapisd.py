#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""In the place of lapisd, for tests: FUSE over io_uring is switched on in the kernel from before it mounts until
it says to the service manager that it is ready, or has ended. Others who do the same meanwhile wait.

The daemon's memory is made large enough for a queue for each CPU there could be."""
import fcntl
import os
import re
import socket
import sys
import time

PARAMETER = "/sys/module/fuse/parameters/enable_uring"
READY_S = 60


def switch(value):
    with open(PARAMETER, "w", encoding="ascii") as file:
        file.write(value)


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def watch(pid, listener, before):
    """Ends when the daemon is ready or gone."""
    until = time.monotonic() + READY_S
    listener.settimeout(0.1)
    try:
        while time.monotonic() < until and is_there(pid):
            try:
                if b"READY=1" in listener.recv(4096):
                    break
            except TimeoutError:
                pass
    finally:
        switch(before)


def with_memory(args):
    """What --memory says, but no less than the queues need."""
    with open("/sys/devices/system/cpu/possible", encoding="ascii") as file:
        cpus = int(re.split("[-,]", file.read().strip())[-1]) + 1
    for i, arg in enumerate(args[:-1]):
        if arg == "--memory" and re.fullmatch(r"\d+M", args[i + 1]):
            args[i + 1] = f"{max(int(args[i + 1][:-1]), 96 * cpus)}M"
    return args


def main():
    lapisd = os.environ["LP_RING_LAPISD"]
    args = with_memory(sys.argv[1:])
    pid = os.getpid()
    lock = open(PARAMETER, encoding="ascii")
    fcntl.flock(lock, fcntl.LOCK_EX)
    before = lock.read().strip()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(f"\0lapis-ring-{pid}")
    switch("Y")
    # The grandchild has the lock; nobody has to wait for it.
    if os.fork() == 0:
        if os.fork() == 0:
            watch(pid, listener, before)
        os._exit(0)
    os.wait()
    os.environ["NOTIFY_SOCKET"] = f"@lapis-ring-{pid}"
    os.execv(lapisd, [lapisd, *args])


if __name__ == "__main__":
    main()
