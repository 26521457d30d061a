# SPDX-License-Identifier: Apache-2.0
"""Locks: of flock, of POSIX records, of open file descriptions."""

import errno
import fcntl
import os
import signal
import time

import posix_call as call
from fcntl import F_GETLK, F_RDLCK, F_SETLK, F_SETLKW, F_UNLCK, F_WRLCK, LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN
from posix_call import F_OFD_GETLK, F_OFD_SETLK, lock
from posix_rig import Child, case, check, fails, get, in_child, opened, put, same, together

BUSY = (errno.EAGAIN, errno.EACCES)


def try_flock(how, name="f"):
    """Whether another process gets it."""

    def attempt():
        with opened(name) as fd:
            try:
                fcntl.flock(fd, how | LOCK_NB)
            except OSError as error:
                same(error.errno, errno.EAGAIN, "the error of a lock that is taken")
                return False
        return True

    return in_child(attempt)


def try_record(kind, start=0, length=0, name="f"):
    def attempt():
        with opened(name) as fd:
            try:
                lock(fd, kind, start, length)
            except OSError as error:
                check(error.errno in BUSY, "EAGAIN or EACCES for a lock that is taken")
                return False
        return True

    return in_child(attempt)


@case
def flock_exclusive():
    put("f")
    with opened("f") as fd:
        fcntl.flock(fd, LOCK_EX)
        same((try_flock(LOCK_EX), try_flock(LOCK_SH)), (False, False), "others get it")
        fcntl.flock(fd, LOCK_UN)
        same(try_flock(LOCK_EX), True, "others get it after LOCK_UN")


@case
def flock_shared():
    put("f")
    with opened("f") as fd:
        fcntl.flock(fd, LOCK_SH)
        same((try_flock(LOCK_EX), try_flock(LOCK_SH)), (False, True), "others get it")


@case
def flock_between_descriptors_of_one_process():
    put("f")
    with opened("f") as one, opened("f") as two:
        fcntl.flock(one, LOCK_EX)
        fails(errno.EAGAIN, fcntl.flock, two, LOCK_SH | LOCK_NB)
        again = os.dup(one)
        fcntl.flock(again, LOCK_EX | LOCK_NB)
        os.close(again)
        fails(errno.EAGAIN, fcntl.flock, two, LOCK_SH | LOCK_NB)


@case
def flock_goes_with_the_last_close():
    put("f")
    fd = os.open("f", os.O_RDWR)
    fcntl.flock(fd, LOCK_EX)
    os.close(fd)
    same(try_flock(LOCK_EX), True, "others get it")


@case
def flock_goes_with_the_process():
    put("f")

    def take():
        fcntl.flock(os.open("f", os.O_RDWR), LOCK_EX)

    in_child(take)
    same(try_flock(LOCK_EX), True, "others get it")


@case
def flock_is_inherited():
    put("f")
    with opened("f") as fd:
        fcntl.flock(fd, LOCK_EX)
        in_child(fcntl.flock, fd, LOCK_EX | LOCK_NB)
        same(try_flock(LOCK_EX), False, "others get it")


@case
def flock_up_and_down():
    put("f")
    with opened("f") as fd:
        fcntl.flock(fd, LOCK_SH)
        fcntl.flock(fd, LOCK_EX)
        same(try_flock(LOCK_SH), False, "others share it")
        fcntl.flock(fd, LOCK_SH)
        same(try_flock(LOCK_SH), True, "others share it")


@case
def flock_waits():
    put("f")
    with opened("f") as fd:
        fcntl.flock(fd, LOCK_EX)

        def wait():
            with opened("f") as other:
                start = time.monotonic()
                fcntl.flock(other, LOCK_EX)
                return time.monotonic() - start

        child = Child(wait)
        time.sleep(0.1)
        fcntl.flock(fd, LOCK_UN)
        check(child.result() < 10, "it is woken")


@case
def flock_of_a_directory():
    os.mkdir("d")
    with opened("d", os.O_RDONLY) as one, opened("d", os.O_RDONLY) as two:
        fcntl.flock(one, LOCK_EX)
        fails(errno.EAGAIN, fcntl.flock, two, LOCK_EX | LOCK_NB)


@case
def flock_of_read_only_descriptor():
    put("f")
    with opened("f", os.O_RDONLY) as fd:
        fcntl.flock(fd, LOCK_EX)
        same(try_flock(LOCK_SH), False, "others share it")
        fails(errno.EINVAL, fcntl.flock, fd, 0)


@case
def flock_survives_rename_and_unlink():
    put("f")
    with opened("f") as fd:
        fcntl.flock(fd, LOCK_EX)
        os.rename("f", "g")
        same(try_flock(LOCK_EX, "g"), False, "others get it by the new name")
        os.unlink("g")
        put("g")
        same(try_flock(LOCK_EX, "g"), True, "others get that of a new file")


@case
def flock_and_records_are_apart():
    put("f")
    with opened("f") as fd:
        fcntl.flock(fd, LOCK_EX)
        same(try_record(F_WRLCK), True, "others get a record")


@case
def records_conflict():
    put("f", bytes(100))
    with opened("f") as fd:
        lock(fd, F_WRLCK, 10, 20)
        same(try_record(F_WRLCK, 10, 20), False, "the same bytes")
        same(try_record(F_RDLCK, 29, 1), False, "the last byte")
        same(try_record(F_WRLCK, 30, 10), True, "those after")
        same(try_record(F_WRLCK, 0, 10), True, "those before")
        same(try_record(F_WRLCK, 0, 0), False, "all")


@case
def read_records_are_shared():
    put("f", bytes(100))
    with opened("f") as fd:
        lock(fd, F_RDLCK, 0, 50)
        same((try_record(F_RDLCK), try_record(F_WRLCK)), (True, False), "others get it")
        same(try_record(F_WRLCK, 50, 10), True, "those after")


@case
def records_to_the_end():
    put("f", bytes(10))
    with opened("f") as fd:
        lock(fd, F_WRLCK, 5, 0)
        same(try_record(F_WRLCK, 1 << 40, 1), False, "far beyond the end")
        same(try_record(F_WRLCK, 0, 5), True, "before it")


@case
def records_from_the_end_and_backwards():
    put("f", bytes(100))
    with opened("f") as fd:
        lock(fd, F_WRLCK, -10, 5, whence=os.SEEK_END)
        same((try_record(F_WRLCK, 90, 1), try_record(F_WRLCK, 95, 1)), (False, True), "from the end")
        lock(fd, F_WRLCK, 50, -10)
        same((try_record(F_WRLCK, 40, 1), try_record(F_WRLCK, 50, 1)), (False, True), "backwards")
        fails(errno.EINVAL, lock, fd, F_WRLCK, -1, 10)


@case
def record_is_split():
    put("f", bytes(100))
    with opened("f") as fd:
        lock(fd, F_WRLCK, 0, 100)
        lock(fd, F_UNLCK, 40, 20)
        same([try_record(F_WRLCK, at, 1) for at in (39, 40, 59, 60)], [False, True, True, False], "which are free")


@case
def record_is_converted():
    put("f", bytes(100))
    with opened("f") as fd:
        lock(fd, F_WRLCK, 0, 100)
        lock(fd, F_RDLCK, 0, 50)
        same((try_record(F_RDLCK, 0, 50), try_record(F_RDLCK, 50, 50)), (True, False), "others share it")


@case
def get_tells_who():
    put("f", bytes(100))
    with opened("f") as fd:
        lock(fd, F_WRLCK, 10, 20)
        parent = os.getpid()

        def ask():
            with opened("f") as other:
                same(lock(other, F_WRLCK, 0, 0, F_GETLK), (F_WRLCK, 10, 20, parent), "who has it")
                same(lock(other, F_WRLCK, 50, 5, F_GETLK)[0], F_UNLCK, "what is free")

        in_child(ask)


@case
def own_records_do_not_conflict():
    put("f", bytes(100))
    with opened("f") as one, opened("f") as two:
        lock(one, F_WRLCK)
        lock(two, F_WRLCK)


@case
def any_close_drops_records():
    put("f", bytes(100))
    with opened("f") as fd:
        lock(fd, F_WRLCK)
        os.close(os.open("f", os.O_RDONLY))
        same(try_record(F_WRLCK), True, "others get it, after another descriptor was closed")


@case
def records_go_with_the_process():
    put("f", bytes(100))
    in_child(lambda: lock(os.open("f", os.O_RDWR), F_WRLCK) and None)
    same(try_record(F_WRLCK), True, "others get it")


@case
def records_are_not_inherited():
    put("f", bytes(100))
    with opened("f") as fd:
        lock(fd, F_WRLCK)

        def attempt():
            fails(BUSY, lock, fd, F_WRLCK)

        in_child(attempt)


@case
def records_need_the_right_mode():
    put("f", bytes(100))
    with opened("f", os.O_RDONLY) as fd:
        lock(fd, F_RDLCK)
        fails(errno.EBADF, lock, fd, F_WRLCK)
    with opened("f", os.O_WRONLY) as fd:
        lock(fd, F_WRLCK)
        fails(errno.EBADF, lock, fd, F_RDLCK)


@case
def record_waits():
    put("f", bytes(100))
    with opened("f") as fd:
        lock(fd, F_WRLCK)

        def wait():
            with opened("f") as other:
                lock(other, F_WRLCK, 0, 0, F_SETLKW)
                return True

        child = Child(wait)
        time.sleep(0.1)
        lock(fd, F_UNLCK)
        same(child.result(), True, "it gets it")


@case
def wait_is_interrupted():
    put("f", bytes(100))
    with opened("f") as fd:
        lock(fd, F_WRLCK)

        class Rung(Exception):
            pass

        def wait():
            def ring(*_):
                raise Rung

            signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with opened("f") as other:
                try:
                    lock(other, F_WRLCK, 0, 0, F_SETLKW)
                except Rung:
                    return True
            return False

        same(in_child(wait), True, "a signal ends the wait")


@case
def deadlock_is_found():
    put("f", bytes(100))
    read, write = os.pipe()
    with opened("f") as fd:
        lock(fd, F_WRLCK, 0, 1)

        def cross():
            with opened("f") as other:
                lock(other, F_WRLCK, 1, 1)
                os.write(write, b"x")
                lock(other, F_WRLCK, 0, 1, F_SETLKW)

        child = Child(cross)
        os.read(read, 1)
        time.sleep(0.1)
        fails(errno.EDEADLK, lock, fd, F_WRLCK, 1, 1, F_SETLKW)
        lock(fd, F_UNLCK, 0, 1)
        child.result()


@case
def ofd_between_descriptors_of_one_process():
    put("f", bytes(100))
    with opened("f") as one, opened("f") as two:
        lock(one, F_WRLCK, 0, 10, F_OFD_SETLK)
        fails(BUSY, lock, two, F_WRLCK, 5, 10, F_OFD_SETLK)
        same(lock(two, F_WRLCK, 0, 0, F_OFD_GETLK), (F_WRLCK, 0, 10, -1), "who has it")
        lock(two, F_WRLCK, 10, 10, F_OFD_SETLK)


@case
def ofd_stays_with_the_description():
    put("f", bytes(100))
    fd = os.open("f", os.O_RDWR)
    lock(fd, F_WRLCK, 0, 0, F_OFD_SETLK)
    again = os.dup(fd)
    os.close(os.open("f", os.O_RDONLY))
    os.close(fd)
    same(try_record(F_WRLCK), False, "others get it while a duplicate is open")
    os.close(again)
    same(try_record(F_WRLCK), True, "others get it after that")


@case
def ofd_is_inherited():
    put("f", bytes(100))
    with opened("f") as fd:
        lock(fd, F_WRLCK, 0, 0, F_OFD_SETLK)
        in_child(lambda: lock(fd, F_WRLCK, 0, 0, F_OFD_SETLK) and None)
        same(try_record(F_WRLCK), False, "others get it")


@case
def ofd_and_records_conflict():
    put("f", bytes(100))
    with opened("f") as one, opened("f") as two:
        lock(one, F_WRLCK, 0, 0, F_OFD_SETLK)
        fails(BUSY, lock, two, F_WRLCK, 0, 0, F_SETLK)


@case
def many_records():
    put("f")
    with opened("f") as fd:
        for number in range(500):
            lock(fd, F_WRLCK, number * 10, 5)
        same([try_record(F_WRLCK, at, 1) for at in (2500, 2505, 4990, 4995)], [False, True, False, True], "free")


@case
def locked_counter():
    put("f", b"0")

    def count():
        with opened("f") as fd:
            for _ in range(100):
                lock(fd, F_WRLCK, 0, 0, F_SETLKW)
                value = int(os.pread(fd, 20, 0))
                os.pwrite(fd, b"%d" % (value + 1), 0)
                lock(fd, F_UNLCK)

    together([count] * 4)
    same(int(get("f")), 400, "the counter")


@case
def lock_of_special_files():
    os.mkfifo("p")
    with opened("p", os.O_RDWR) as one, opened("p", os.O_RDWR) as two:
        fcntl.flock(one, LOCK_EX)
        fails(errno.EAGAIN, fcntl.flock, two, LOCK_EX | LOCK_NB)
    fails(errno.EBADF, call.libc_call, "flock", 999, LOCK_EX)
