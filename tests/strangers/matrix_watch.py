# SPDX-License-Identifier: Apache-2.0
"""The watchdog of the matrix: sees whether a load moves, measures its pauses, and saves what is known of a hang.

A load moves when the daemon's count of answered requests changes, or what fio says it has done. When neither
changes for STILL_S seconds the load hangs. A pause is a time in which requests are under way and none is answered.
It is known from samples, so what is told is the least that it can have been.

A pause is explained as far as the device was busy, or threads of the daemon could run and were not let: the kernel
counts that time. Where others use the machine as well, much is explained, and where they do not, nothing but the
device is. What is left over is the daemon's own."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import time

STILL_S = 10
SAMPLE_S = 0.25
ASK_S = 2  # that the daemon has to tell its counters
PAUSE_S = 1  # no load may pause for longer, but for what explains it
GDB_S = 60
OWN_OPS = {"hello", "stats", "status", "stuck"}  # what the watchdog itself asks


def counters_of(stats):
    """How many requests the daemon has answered, and how many are under way, without the watchdog's own."""
    done = sum(op["count"] for name, op in stats["ops"].items() if name not in OWN_OPS)
    under_way = sum(shard["connections"]["requests_under_way"] for shard in stats["shards"]) - 1
    if "mount" in stats:
        done += sum(op["count"] for op in stats["mount"]["ops"].values())
        under_way += stats["mount"]["under_way"]
    return done, under_way


def fio_total(text):
    """What fio has done by the last whole report in its output, or None."""
    end = text.rfind("\n}")
    begin = text.rfind("\n{\n", 0, max(end, 0)) if end >= 0 else -1
    report = text[max(begin, 0) : end] if end >= 0 else ""
    counts = re.findall(r'"total_ios" : (\d+)', report)
    return sum(map(int, counts)) if counts else None


class Device:
    """The device that has the store's image, to see whether it is busy."""

    def __init__(self, image):
        number = os.stat(image).st_dev
        self.inflight = pathlib.Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/inflight")

    def is_busy(self):
        try:
            return any(int(count) for count in self.inflight.read_text().split())
        except OSError:  # a tmpfs has none, and never waits
            return False


def kept_waiting_s(pid):
    """How long threads of a process could run and had no processor, all together since they began."""
    waited_ns = 0
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
            waited_ns += int(path.read_text().split()[1])
    return waited_ns / 1e9


class Pause:
    """The pauses of a load: the longest, and the one of which most is not explained."""

    def __init__(self):
        self.longest_s = 0.0
        self.busy_share = 0.0  # how much of it the device was busy
        self.unexplained_s = 0.0
        self.begin(0.0)

    def begin(self, waiting_s):
        self.began_s = self.seen_s = time.monotonic()
        self.began_waiting_s = waiting_s
        self.busy_s = 0.0

    def see(self, is_busy, until_s, waiting_s):
        """Nothing was answered until then; waiting_s is kept_waiting_s() of the daemon."""
        if is_busy:
            self.busy_s += max(until_s - self.seen_s, 0)
        self.seen_s = max(until_s, self.seen_s)
        took_s = until_s - self.began_s
        # Threads come and go, so it may be less than before.
        delayed_s = max(waiting_s - self.began_waiting_s, 0)
        self.unexplained_s = max(self.unexplained_s, took_s - self.busy_s - delayed_s)
        if took_s > self.longest_s:
            self.longest_s = took_s
            self.busy_share = min(self.busy_s / took_s, 1)


class Watch:
    """Of one load: sample() now and then; still_s says for how long nothing has moved."""

    def __init__(self, daemon, where, image, fio_output=None):
        self.daemon = daemon
        self.where = where
        self.argv = [daemon.lapis, "-s", daemon.address, "stats", "--json"]
        self.device = Device(image)
        self.fio_output = fio_output
        self.pause = Pause()
        self.done = self.fio_done = None
        self.silent_s = 0.0  # the longest that the daemon took to tell its counters
        self.silent_unexplained_s = 0.0
        self.has_saved = False
        self.moved_s = time.monotonic()

    @property
    def still_s(self):
        return time.monotonic() - self.moved_s

    @property
    def unexplained_s(self):
        """The longest time in which nothing was answered, the question for counters included, and for no reason."""
        return max(self.pause.unexplained_s, self.silent_unexplained_s)

    def sample(self):
        waiting_s = kept_waiting_s(self.daemon.process.pid)
        asked_s = time.monotonic()
        stats = self.ask()
        self.see_silence(time.monotonic() - asked_s, waiting_s)
        if stats:
            self.see_daemon(asked_s, waiting_s, *counters_of(stats))
        if self.fio_output:
            self.see_fio()
        if stats and self.unexplained_s > PAUSE_S and not self.has_saved:
            self.has_saved = True
            save_answers(self.where, self.daemon.lapis, self.daemon.address)

    def see_silence(self, took_s, waiting_s):
        self.silent_s = max(self.silent_s, took_s)
        if took_s <= PAUSE_S:
            return
        # The same program, asked for what no daemon has to tell: a machine that is slow now is slow for both.
        began_s = time.monotonic()
        run_for([self.daemon.lapis, "--version"], ASK_S)
        own_s = time.monotonic() - began_s
        delayed_s = max(kept_waiting_s(self.daemon.process.pid) - waiting_s, 0)
        self.silent_unexplained_s = max(self.silent_unexplained_s, took_s - own_s - delayed_s)

    def ask(self):
        try:
            done = subprocess.run(self.argv, capture_output=True, timeout=ASK_S, check=False)
            return json.loads(done.stdout) if done.returncode == 0 else None
        except (subprocess.TimeoutExpired, ValueError):
            return None

    def see_daemon(self, asked_s, waiting_s, done, under_way):
        if done != self.done:
            self.done = done
            self.moved_s = time.monotonic()
            self.pause.begin(waiting_s)
        elif under_way > 0:
            self.pause.see(self.device.is_busy(), asked_s, waiting_s)
        else:
            self.pause.begin(waiting_s)

    def see_fio(self):
        try:
            total = fio_total(self.fio_output.read_text(encoding="utf-8"))
        except OSError:
            return
        if total is not None and total != self.fio_done:
            self.fio_done = total
            self.moved_s = time.monotonic()


# --- What is saved of a hang ---


def run_for(argv, seconds):
    """What a command says, or why it says nothing."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as late:
        return f"{late.output or b''!r}\nno end within {seconds} s\n"
    except OSError as error:
        return f"{argv[0]}: {error}\n"
    return done.stdout.decode("utf-8", "replace")


def read_or_why(path):
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        return f"({error.strerror})"


def kernel_stacks(pid):
    """Where the kernel has each thread of a process."""
    lines = []
    try:
        tasks = sorted(pathlib.Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return f"process {pid} has ended\n"
    for task in tasks:
        state = re.search(r"^State:\s*(\S)", read_or_why(task / "status"), re.MULTILINE)
        lines.append(f"{pid}/{task.name} {read_or_why(task / 'comm')}: state {state[1] if state else '?'}, "
                     f"in {read_or_why(task / 'wchan')}")  # fmt: skip
        lines.extend(f"    {line}" for line in read_or_why(task / "stack").splitlines())
    return "\n".join(lines) + "\n"


def family_of(pid):
    """A process and all that it and its children have started: fio gives each job a session of its own."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            found = re.search(r"^PPid:\s*(\d+)", read_or_why(entry / "status"), re.MULTILINE)
            parents[int(entry.name)] = int(found[1]) if found else 0
    family = [pid] if pid in parents else []
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family


def save_hang(where, lapis, address, daemon_pid, load_pids):
    """All that may say why nothing moves: of the daemon, and of the programs of the load."""
    save_answers(where, lapis, address)
    save_stacks(where, daemon_pid, load_pids)


def save_answers(where, lapis, address):
    """What the daemon says of itself."""
    for name, command in (("stuck.txt", ["stuck"]), ("stats.json", ["stats", "--json"]), ("status.txt", ["status"]),
                          ("slow.txt", ["slow"])):  # fmt: skip
        (where / name).write_text(run_for([lapis, "-s", address, *command], 5), encoding="utf-8")


def save_stacks(where, daemon_pid, load_pids):
    """Where the threads of the daemon are, and those of the load and of what it has started."""
    programs = [member for pid in load_pids for member in family_of(pid)]
    (where / "kernel-stacks.txt").write_text(
        "\n".join(kernel_stacks(pid) for pid in [daemon_pid, *programs]), encoding="utf-8"
    )
    gdb = ["gdb", "-p", str(daemon_pid), "-batch", "-ex", "set pagination off", "-ex", "thread apply all bt"]
    (where / "stacks.txt").write_text(run_for(gdb, GDB_S), encoding="utf-8")
