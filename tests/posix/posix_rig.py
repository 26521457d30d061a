# SPDX-License-Identifier: Apache-2.0
"""What cases are made of: the register, the checks, children as other users and many at once.

A case is a function without arguments, marked @case or @long_case. It runs in a process of its own, as root, with
an empty directory of its own as working directory (mode 0755), umask 022 and signals as they come.
It may leave anything behind in there. Its name is that of its file without "case_", a full stop and
the function's. The first check that does not hold ends it."""

import errno
import os
import pickle
import struct
import sys
import time

CASES = {}  # name -> function
LONG_CASES = set()  # names

USER = 65534  # who is not root in these cases, and the group of that user
OTHER = 65533  # another one
TICK_S = 0.012  # longer than the coarse clock's step (10 ms at most)


class Mismatch(Exception):
    """A check did not hold: args are (what, expected, found)."""

    def __str__(self):
        what, expected, found = self.args
        return f"{what}: expected {expected}, found {found}"


class Skipped(Exception):
    """The file system does not have what the case is about; the argument says what."""


def case(function):
    name = f"{function.__module__.removeprefix('case_')}.{function.__name__}"
    if name in CASES:
        raise ValueError(f"two cases are called {name}")
    CASES[name] = function
    return function


def long_case(function):
    """Like case, for one of thousands of system calls: run --quick leaves it out."""
    case(function)
    LONG_CASES.add(next(name for name, known in CASES.items() if known is function))
    return function


def shown(value):
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:80]}...{text[-20:]} ({len(value)} long)"


def error_name(number):
    return errno.errorcode.get(number, str(number))


def same(found, expected, what):
    if found != expected:
        raise Mismatch(what, shown(expected), shown(found))


def check(holds, what):
    if not holds:
        raise Mismatch(what, "yes", "no")


def call_text(call, args):
    name = getattr(call, "__name__", str(call))
    return f"{name}({', '.join(shown(arg)[:60] for arg in args)})"


def fails(numbers, call, *args, **options):
    """The call fails with one of these error numbers."""
    numbers = (numbers,) if isinstance(numbers, int) else numbers
    expected = " or ".join(error_name(number) for number in numbers)
    try:
        result = call(*args, **options)
    except OSError as error:
        if error.errno not in numbers:
            found = error_name(error.errno)
            raise Mismatch(call_text(call, args), expected, found) from None
        return
    raise Mismatch(call_text(call, args), expected, f"success ({shown(result)})")


def needs(call, *args, without=(errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS)):
    """Makes the call; skips the case if the file system does not have it."""
    try:
        return call(*args)
    except OSError as error:
        if error.errno in without:
            raise Skipped(f"{call_text(call, args)}: {error_name(error.errno)}") from None
        raise


def tick():
    """Waits until the clock of time stamps has moved."""
    time.sleep(TICK_S)


# Files


def put(name, data=b"", mode=0o644):
    """Makes or replaces a file."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def write_all(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def get(name):
    fd = os.open(name, os.O_RDONLY)
    try:
        return get_fd(fd)
    finally:
        os.close(fd)


def get_fd(fd):
    """All of a file, by pread."""
    parts = []
    offset = 0
    while part := os.pread(fd, 1 << 20, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


class opened:
    """with opened(name, flags) as fd"""

    def __init__(self, name, flags=os.O_RDWR, mode=0o644, **options):
        self.fd = os.open(name, flags, mode, **options)

    def __enter__(self):
        return self.fd

    def __exit__(self, *_):
        os.close(self.fd)


def pattern(length, seed=1):
    """Bytes of which no two blocks are alike."""
    words = (length + 7) // 8
    return struct.pack(f"<{words}Q", *range(seed << 40, (seed << 40) + words))[:length]


def mode_of(name):
    return os.lstat(name).st_mode & 0o7777


def exists(name):
    return os.path.lexists(name)


# Other processes


class Child:
    """A forked process that runs call(*args); result() gives what it returned or raises what it
    raised."""

    def __init__(self, call, *args, ids=None):
        self.from_child, to_parent = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.from_child)
            self._run(call, args, ids, to_parent)
        os.close(to_parent)

    @staticmethod
    def _run(call, args, ids, to_parent):
        status = 1
        try:
            try:
                if ids:
                    become(*ids)
                answer = (True, call(*args))
            except BaseException as error:
                answer = (False, as_portable(error))
            with os.fdopen(to_parent, "wb") as pipe:
                pickle.dump(answer, pipe)
            status = 0
        finally:
            os._exit(status)

    def result(self):
        with os.fdopen(self.from_child, "rb") as pipe:
            data = pipe.read()
        _, status = os.waitpid(self.pid, 0)
        if not data:
            raise Mismatch("a process of the case", "a result", f"wait status {status:#x}")
        fine, answer = pickle.loads(data)
        if not fine:
            raise answer
        return answer


def as_portable(error):
    """The same, or what pickle can carry of it."""
    if isinstance(error, (Mismatch, Skipped, OSError)):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")


def become(uid, gid, groups=()):
    os.setgroups(list(groups))
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def as_user(call, *args, uid=USER, gid=USER, groups=()):
    """What call(*args) gives when that user makes it."""
    return Child(call, *args, ids=(uid, gid, groups)).result()


def refused(numbers, call, *args, uid=USER, gid=USER, groups=()):
    """As `fails`, as that user."""
    fails(numbers, as_user, call, *args, uid=uid, gid=gid, groups=groups)


def in_child(call, *args):
    return Child(call, *args).result()


def together(calls):
    """Runs them all at once, each in a process of its own; their results."""
    return [child.result() for child in [Child(call) for call in calls]]


def death_of(call):
    """The signal that ends a process that makes this call; 0 if it returned."""
    pid = os.fork()
    if pid == 0:
        try:
            call()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
