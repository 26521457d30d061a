# SPDX-License-Identifier: Apache-2.0
"""Many at once: processes and threads that append, create, rename, remove; invariants of each."""

import errno
import mmap
import os
import signal
import threading

import posix_call as call
from posix_rig import (
    Child, case, check, exists, get, get_fd, long_case, opened, pattern, put, same, together,
)

WORKERS = 4


def workers(work):
    """work(number) in several processes at once"""
    return together([lambda number=number: work(number) for number in range(WORKERS)])


def threads(work, count=WORKERS):
    """work(number) in several threads of this process at once"""
    errors = []

    def run(number):
        try:
            work(number)
        except Exception as error:
            errors.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]


def attempt(allowed, function, *args):
    """Whether it worked; an error must be one of those allowed."""
    try:
        function(*args)
        return True
    except OSError as error:
        if error.errno not in allowed:
            raise
        return False


def record(number, index, length=101):
    return b"%d:%d:" % (number, index) + b"x" * (length - 1 - len(b"%d:%d:" % (number, index))) + b"\n"


def check_records(data, count, length=101):
    same(len(data), WORKERS * count * length, "the size")
    seen = [data[at : at + length] for at in range(0, len(data), length)]
    expected = {record(n, i, length) for n in range(WORKERS) for i in range(count)}
    same(len(set(seen)), len(seen), "records, each once")
    same(set(seen) == expected, True, "the records are whole")
    for number in range(WORKERS):
        mine = [r for r in seen if r.startswith(b"%d:" % number)]
        same(mine, [record(number, i, length) for i in range(count)], "a writer's order")


@case
def appends_of_processes():
    put("f")

    def work(number):
        with opened("f", os.O_WRONLY | os.O_APPEND) as fd:
            for index in range(300):
                same(os.write(fd, record(number, index)), 101, "bytes written")

    workers(work)
    check_records(get("f"), 300)


@case
def appends_of_threads():
    put("f")

    def work(number):
        with opened("f", os.O_WRONLY | os.O_APPEND) as fd:
            for index in range(200):
                os.write(fd, record(number, index))

    threads(work)
    check_records(get("f"), 200)


@case
def appends_through_one_descriptor():
    put("f")
    with opened("f", os.O_WRONLY) as fd:

        def work(number):
            for index in range(200):
                os.write(fd, record(number, index))

        workers(work)
    check_records(get("f"), 200)


@case
def large_appends():
    put("f")

    def work(number):
        with opened("f", os.O_WRONLY | os.O_APPEND) as fd:
            for index in range(10):
                os.write(fd, record(number, index, 200_003))

    workers(work)
    check_records(get("f"), 10, 200_003)


@case
def appends_of_vectors():
    put("f")

    def work(number):
        with opened("f", os.O_WRONLY | os.O_APPEND) as fd:
            for index in range(100):
                data = record(number, index)
                os.writev(fd, [data[:3], data[3:50], data[50:]])

    workers(work)
    check_records(get("f"), 100)


@case
def synchronous_appends():
    put("f")

    def work(number):
        with opened("f", os.O_WRONLY | os.O_APPEND | os.O_DSYNC) as fd:
            for index in range(10):
                os.write(fd, record(number, index))

    workers(work)
    check_records(get("f"), 10)


@case
def exclusive_creates_have_one_winner():
    def work(_):
        won = 0
        for index in range(200):
            flags = os.O_CREAT | os.O_EXCL | os.O_RDWR
            won += attempt((errno.EEXIST,), lambda: os.close(os.open(f"f{index}", flags)))
        return won

    same(sum(workers(work)), 200, "winners")


@case
def mkdirs_have_one_winner():
    def work(_):
        return sum(attempt((errno.EEXIST,), os.mkdir, f"d{index}") for index in range(200))

    before = os.stat(".").st_nlink
    same(sum(workers(work)), 200, "winners")
    if before > 1:
        same(os.stat(".").st_nlink, before + 200, "links")


@case
def unlinks_have_one_winner():
    for index in range(200):
        put(f"f{index}")

    def work(_):
        return sum(attempt((errno.ENOENT,), os.unlink, f"f{index}") for index in range(200))

    same((sum(workers(work)), os.listdir(".")), (200, []), "winners, and what is left")


@case
def links_have_one_winner():
    put("f")

    def work(_):
        return sum(attempt((errno.EEXIST,), os.link, "f", f"l{index}") for index in range(100))

    same(sum(workers(work)), 100, "winners")
    same(os.stat("f").st_nlink, 101, "links")


@case
def noreplace_has_one_winner():
    def work(number):
        won = 0
        for index in range(100):
            put(f"mine{number}")
            flag = call.RENAME_NOREPLACE
            won += attempt((errno.EEXIST,), call.renameat2, f"mine{number}", f"f{index}", flag)
        return won

    same(sum(workers(work)), 100, "winners")


@case
def renames_of_one_file():
    os.mkdir("a")
    os.mkdir("b")
    put("a/f", b"abc")

    def work(_):
        for _ in range(100):
            attempt((errno.ENOENT,), os.rename, "a/f", "b/f")
            attempt((errno.ENOENT,), os.rename, "b/f", "a/f")

    workers(work)
    same(len(os.listdir("a")) + len(os.listdir("b")), 1, "one name is left")


@case
def replaced_file_is_always_there():
    put("f", b"0" * 1000)
    read, write = os.pipe()
    os.set_blocking(read, False)

    def replace():
        for number in range(300):
            put("tmp", b"%d" % (number % 10) * 1000)
            os.rename("tmp", "f")
        os.write(write, b"x")

    child = Child(replace)
    looked = 0
    while not attempt((errno.EAGAIN,), os.read, read, 1):
        data = get("f")
        same(len(data), 1000, "the size")
        same(len(set(data)), 1, "different bytes in it")
        looked += 1
    child.result()
    check(looked > 0, "it was looked at")


@case
def exchange_is_atomic():
    put("a", b"a")
    put("b", b"b")
    read, write = os.pipe()
    os.set_blocking(read, False)

    def swap():
        for _ in range(300):
            call.renameat2("a", "b", call.RENAME_EXCHANGE)
        os.write(write, b"x")

    child = Child(swap)
    while not attempt((errno.EAGAIN,), os.read, read, 1):
        check(get("a") in (b"a", b"b"), "one of them is there")
        check(exists("b"), "the other, too")
    child.result()
    same((get("a"), get("b")), (b"a", b"b"), "after an even number")


@case
def directories_that_move_into_each_other():
    os.makedirs("a/x")
    os.makedirs("b/y")
    allowed = (errno.ENOENT, errno.EINVAL, errno.ENOTEMPTY, errno.EBUSY)

    def work(number):
        for _ in range(100):
            if number % 2:
                attempt(allowed, os.rename, "a", "b/y/a")
                attempt(allowed, os.rename, "b/y/a", "a")
            else:
                attempt(allowed, os.rename, "b", "a/x/b")
                attempt(allowed, os.rename, "a/x/b", "b")

    workers(work)
    found = sorted(name for _, names, _ in os.walk(".") for name in names)
    same(found, ["a", "b", "x", "y"], "directories that can be reached")


@long_case
def creates_and_removes_keep_count():
    def work(number):
        for index in range(150):
            put(f"f{number}_{index}")
            os.mkdir(f"d{number}_{index}")
            if index % 3:
                os.unlink(f"f{number}_{index}")
                os.rmdir(f"d{number}_{index}")

    before = os.stat(".").st_nlink
    workers(work)
    same(len(os.listdir(".")), WORKERS * 100, "names")
    if before > 1:
        same(os.stat(".").st_nlink, before + WORKERS * 50, "links")


@case
def rmdir_against_create():
    def work(number):
        made = 0
        for index in range(200):
            if number % 2:
                attempt((errno.EEXIST,), os.mkdir, "d")
                attempt((errno.ENOTEMPTY, errno.ENOENT), os.rmdir, "d")
            else:
                made += attempt((errno.ENOENT,), put, f"d/f{number}_{index}")
        return made

    made = sum(workers(work))
    left = len(os.listdir("d")) if exists("d") else 0
    same(left, made, "files that were made are there")


def drop_for_ever(fd):
    """Entries and inodes that nobody uses: the kernel forgets them, and tells who serves them."""
    while True:
        os.pwrite(fd, b"2\n", 0)


@long_case
def caches_are_dropped_all_the_time():
    try:
        drop = os.open("/proc/sys/vm/drop_caches", os.O_WRONLY)
    except OSError as error:
        raise Skipped(f"the kernel's caches: {error}") from error
    dropper = Child(drop_for_ever, drop)
    for round_no in range(100):
        os.makedirs("d/e")
        for number in range(5):
            put(f"d/e/f{number}", b"%d" % round_no)
        with opened("d/e/f0", os.O_RDWR) as fd:
            os.rename("d/e/f1", "d/e/f0")
            same(os.pread(fd, 10, 0), b"%d" % round_no, "what was open when it was replaced")
        same(sorted(os.listdir("d/e")), ["f0", "f2", "f3", "f4"], "names")
        for number in (0, 2, 3, 4):
            same(get(f"d/e/f{number}"), b"%d" % round_no, "the content")
            os.unlink(f"d/e/f{number}")
        os.rmdir("d/e")
        os.rmdir("d")
    os.kill(dropper.pid, signal.SIGKILL)
    os.waitpid(dropper.pid, 0)


@case
def link_counts_under_load():
    put("f")

    def work(number):
        for index in range(100):
            os.link("f", f"l{number}_{index}")
            if index % 2:
                os.unlink(f"l{number}_{index}")

    workers(work)
    same(os.stat("f").st_nlink, 1 + WORKERS * 50, "links")
    same(len(os.listdir(".")), 1 + WORKERS * 50, "names")


@case
def writers_of_own_blocks():
    put("f")

    def work(number):
        with opened("f") as fd:
            for index in range(100):
                os.pwrite(fd, bytes([number + 1]) * 4096, (index * WORKERS + number) * 4096)

    workers(work)
    expected = b"".join(bytes([n % WORKERS + 1]) * 4096 for n in range(100 * WORKERS))
    same(get("f"), expected, "the content")


@case
def writers_of_own_bytes():
    put("f", bytes(40_000))

    def work(number):
        with opened("f") as fd:
            for index in range(1000):
                os.pwrite(fd, bytes([number + 1]), index * WORKERS + number)

    workers(work)
    same(get("f")[: 1000 * WORKERS], bytes(range(1, WORKERS + 1)) * 1000, "the content")


@case
def write_and_mapping_side_by_side():
    put("f", bytes(64 * 4096))

    def work(number):
        with opened("f") as fd, mmap.mmap(fd, 64 * 4096) as mapped:
            for page in range(64):
                at = page * 4096 + number * 1024
                data = bytes([number + 1]) * 1024
                if number % 2:
                    os.pwrite(fd, data, at)
                else:
                    mapped[at : at + 1024] = data

    workers(work)
    page = b"".join(bytes([n + 1]) * 1024 for n in range(WORKERS))
    same(get("f"), page * 64, "the content")


@case
def direct_and_buffered_side_by_side():
    put("f", bytes(128 * 4096))

    def work(number):
        flags = os.O_RDWR | (os.O_DIRECT if number % 2 else 0)
        with opened("f", flags) as fd:
            for index in range(number, 128, WORKERS):
                call.pwrite_from(fd, bytes([number + 1]) * 4096, index * 4096)
            if number % 2 == 0:
                os.fsync(fd)

    workers(work)
    expected = b"".join(bytes([n % WORKERS + 1]) * 4096 for n in range(128))
    same(get("f"), expected, "the content")


@case
def reads_while_it_is_written():
    put("f", b"a" * 512)
    read, write = os.pipe()
    os.set_blocking(read, False)

    def change():
        with opened("f") as fd:
            for number in range(2000):
                os.pwrite(fd, bytes([97 + number % 26]) * 512, 0)
        os.write(write, b"x")

    child = Child(change)
    with opened("f") as fd:
        while not attempt((errno.EAGAIN,), os.read, read, 1):
            same(len(os.pread(fd, 512, 0)), 512, "bytes read")
    child.result()
    same(get("f"), bytes([97 + 1999 % 26]) * 512, "the content")


@case
def truncate_against_append():
    put("f", b"x" * 50)

    def work(number):
        with opened("f", os.O_RDWR | os.O_APPEND) as fd:
            for _ in range(200):
                if number:
                    os.write(fd, b"x" * 100)
                else:
                    os.ftruncate(fd, 50)

    workers(work)
    data = get("f")
    same(set(data), {ord("x")}, "the bytes in it")
    same(len(data) % 100, 50, "the size, of which each append has 100")


@case
def grow_and_shrink_never_shows_old_bytes():
    put("f", b"S" * 100_000)

    def work(number):
        with opened("f") as fd:
            for _ in range(100):
                if number == 0:
                    os.ftruncate(fd, 10)
                    os.ftruncate(fd, 100_000)
                else:
                    data = os.pread(fd, 100_000, 0)
                    check(set(data) <= {83, 0}, "only what was written, or zeroes")

    workers(work)
    same(get("f"), b"S" * 10 + bytes(99_990), "the content")


@case
def fsyncs_of_many():
    def work(number):
        with opened(f"f{number}", os.O_CREAT | os.O_RDWR) as fd:
            for index in range(10):
                os.pwrite(fd, pattern(5000, index + 1), index * 5000)
                os.fsync(fd)
            return get_fd(fd) == b"".join(pattern(5000, i + 1) for i in range(10))

    same(workers(work), [True] * WORKERS, "the contents")


@case
def fsync_of_one_by_many():
    put("f")

    def work(number):
        with opened("f") as fd:
            for index in range(10):
                os.pwrite(fd, bytes([number + 1]) * 100, (index * WORKERS + number) * 100)
                os.fdatasync(fd)

    workers(work)
    same(get("f"), b"".join(bytes([n % WORKERS + 1]) * 100 for n in range(10 * WORKERS)), "the content")


@case
def readers_of_a_changing_directory():
    stay = {f"stay{number}" for number in range(300)}
    for name in stay:
        put(name)

    def work(number):
        if number < 2:
            for index in range(300):
                put(f"come{number}_{index}")
                os.unlink(f"come{number}_{index}")
            return True
        for _ in range(20):
            names = os.listdir(".")
            same(len(names), len(set(names)), "names, each once")
            check(stay <= set(names), "each name that stays is found")
        return True

    workers(work)


@case
def xattrs_at_once():
    put("f")

    def work(number):
        for index in range(50):
            os.setxattr("f", f"user.w{number}", b"%d" % index * 20)
            value = os.getxattr("f", f"user.w{number}")
            same(value, b"%d" % index * 20, "the own value")

    workers(work)
    same(len(os.listxattr("f")), WORKERS, "names")


@case
def open_unlink_at_once():
    def work(number):
        for index in range(100):
            with opened(f"f{number}", os.O_CREAT | os.O_RDWR | os.O_EXCL) as fd:
                os.unlink(f"f{number}")
                os.write(fd, b"%d" % index)
                same(os.pread(fd, 10, 0), b"%d" % index, "the content")

    workers(work)
    same(os.listdir("."), [], "names")


@case
def lookups_of_a_name_that_comes_and_goes():
    def work(number):
        for index in range(300):
            if number == 0:
                put("f", b"abc")
                os.unlink("f")
            else:
                attempt((errno.ENOENT,), lambda: check(get("f") in (b"", b"abc"), "its content"))

    workers(work)
    check(not exists("f"), "it is gone")


@case
def tree_is_made_and_removed_by_many():
    def work(number):
        top = f"t{number}"
        for index in range(15):
            os.makedirs(f"{top}/{index}/a/b/c")
            put(f"{top}/{index}/a/b/f", b"x" * 100)
        for path, directories, files in os.walk(top, topdown=False):
            for name in files:
                os.unlink(f"{path}/{name}")
            for name in directories:
                os.rmdir(f"{path}/{name}")
        os.rmdir(top)

    workers(work)
    same(os.listdir("."), [], "names")
