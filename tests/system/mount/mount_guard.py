#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
# variants: release asan
"""Goal: after kill -9 of the daemon whoever looks at the mount gets an error, even if the kernel keeps the
connection (mount F7); and what sees to that goes with the daemon, and not before. Method: another process,
this one, has the daemon's connection open, too, as a thread of the daemon has that the kernel does not let
go: so it does not end by itself. All signals of a terminal or a service that ends leave a mount in peace."""

import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import time

BUILD = pathlib.Path(os.environ["LP_TEST_BUILD"])
MNT = pathlib.Path("mnt").absolute()
PATIENCE_S = 20
PIDFD_GETFD = 438


def check(is_right, what):
    if not is_right:
        raise SystemExit(f"FAIL {what}")


def start():
    process = subprocess.Popen([BUILD / "bin/lapisd", "--mount", MNT, "--listen", "unix:s", "a.img"],
                               stdout=subprocess.PIPE, encoding="utf-8")  # fmt: skip
    check(process.stdout.readline() == "lapisd: ready\n", "the daemon starts")
    return process


def guards_of(pid):
    return [int(name) for name in pathlib.Path(f"/proc/{pid}/task").glob("*/children")
            for name in name.read_text(encoding="ascii").split()]  # fmt: skip


def connections_of(pid):
    """Copies of its descriptors of /dev/fuse."""
    found = []
    pidfd = os.pidfd_open(pid)
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        if link.is_symlink() and os.readlink(link) == "/dev/fuse":
            found.append(ctypes.CDLL(None).syscall(PIDFD_GETFD, pidfd, int(link.name), 0))
    os.close(pidfd)
    return [fd for fd in found if fd >= 0]


def look(name):
    """What a look says, by a process that may hang."""
    with subprocess.Popen(["stat", MNT / name], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          encoding="utf-8", env={**os.environ, "LC_ALL": "C"}) as done:  # fmt: skip
        try:
            return done.communicate(timeout=PATIENCE_S)[1]
        except subprocess.TimeoutExpired:
            done.kill()
            subprocess.run(["umount", "-f", MNT], check=False)
            return "it hangs"


def ends(pid):
    for _ in range(PATIENCE_S * 100):
        if not os.path.exists(f"/proc/{pid}") or pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
            return True
        time.sleep(0.01)
    return False


def killed():
    daemon = start()
    with open(MNT / "file", "w", encoding="ascii") as file:
        file.write("text")
        file.flush()
        os.fsync(file.fileno())  # else what was written a moment before a kill may be lost (rule M1)
    guard = guards_of(daemon.pid)
    check(len(guard) == 1, f"one process more, not {guard}")
    kept = connections_of(daemon.pid)
    check(kept, "the connection can be kept open")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(guard[0], number)
    check("No such file" in look("none"), "it serves")
    daemon.kill()
    daemon.wait()
    said = look("other")
    # ENOTCONN, or ECONNABORTED to who was waiting when the connection was ended.
    check("not connected" in said or "connection abort" in said, f"after kill -9: {said!r}")
    check(ends(guard[0]), "the guard ends, too")
    for fd in kept:
        os.close(fd)


def stopped():
    daemon = start()  # over the dead mount
    check((MNT / "file").read_text(encoding="ascii") == "text", "what was there is there")
    guard = guards_of(daemon.pid)
    daemon.send_signal(signal.SIGTERM)
    check(daemon.wait(PATIENCE_S) == 0, "a clean stop")
    check(ends(guard[0]), "the guard goes with it")
    check(not os.path.ismount(MNT), "nothing is mounted")


def main():
    if os.getuid() != 0 or not os.path.exists("/dev/fuse"):
        print("a mount needs root and /dev/fuse")
        return 77
    subprocess.run([BUILD / "bin/lapis", "mkfs", "--size", "256M", "a.img"], check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    MNT.mkdir()
    try:
        killed()
        stopped()
    finally:
        subprocess.run(["umount", "-l", MNT], check=False, stderr=subprocess.DEVNULL)
    return 0


sys.exit(main())
