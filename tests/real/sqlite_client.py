#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A bank in an sqlite database.

    sqlite_client.py make DB MODE            the tables; MODE is that of the journal: delete, wal
    sqlite_client.py work DB WORKER LOG      transactions for ever; LOG gets the number of each
                                             that was acknowledged
    sqlite_client.py check DB WORKER LOG...  is the database whole, and all of that in it?

Each transaction moves an amount between accounts and keeps a record of it, with some bytes and their
digest; what is long past loses its bytes, so that pages are freed and used again. The log is written
by a single system call, so a process that is killed has noted what it was told, but for the last."""

import hashlib
import os
import random
import sqlite3
import sys

ACCOUNTS = 50
BALANCE = 1000
BYTES_MAX = 20000
KEPT = 40  # so many of a worker's last transactions still have their bytes
WAIT_S = 60


def opened(path):
    db = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)
    db.execute("pragma synchronous = full")
    db.execute("pragma wal_autocheckpoint = 40")
    return db


def make(path, mode):
    db = opened(path)
    found = db.execute(f"pragma journal_mode = {mode}").fetchone()[0]
    if found != mode:
        sys.exit(f"the journal's mode is {found}, not {mode}")
    db.executescript(
        "create table account (id integer primary key, balance integer not null);"
        "create table move (worker, n, source, target, amount, bytes, digest,"
        " primary key (worker, n));"
        "create index by_digest on move (digest);"
    )
    db.executemany("insert into account values (?, ?)", [(i, BALANCE) for i in range(ACCOUNTS)])
    db.close()


def last_of(db, worker):
    return db.execute("select max(n) from move where worker = ?", (worker,)).fetchone()[0] or 0


def total(db):
    return db.execute("select sum(balance) from account").fetchone()[0]


def work(path, worker, log_path):
    db = opened(path)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    n = last_of(db, worker)
    chance = random.Random(f"{worker} {n}")
    while True:
        n += 1
        source, target = chance.sample(range(ACCOUNTS), 2)
        amount = chance.randrange(100)
        data = chance.randbytes(chance.randrange(BYTES_MAX))
        digest = hashlib.sha256(data).hexdigest()
        db.execute("begin immediate")
        if total(db) != ACCOUNTS * BALANCE:
            sys.exit(f"WRONG: before {n} the balances are {total(db)} in all")
        change = "update account set balance = balance + ? where id = ?"
        db.execute(change, (-amount, source))
        db.execute(change, (amount, target))
        row = (worker, n, source, target, amount, data, digest)
        db.execute("insert into move values (?, ?, ?, ?, ?, ?, ?)", row)
        forget = "update move set bytes = null where worker = ? and n = ?"
        db.execute(forget, (worker, n - KEPT))
        db.execute("commit")
        os.write(log, f"{n}\n".encode())


def check_worker(db, worker, log_path):
    """Of this worker there is all that its log has, in order, and at most one transaction more."""
    with open(log_path, encoding="ascii") as file:
        noted = int(file.read().split()[-1])
    rows = db.execute("select n, bytes, digest from move where worker = ? order by n", (worker,))
    kept_from = last_of(db, worker) - KEPT + 1
    last = 0
    for n, data, digest in rows.fetchall():
        if n != last + 1:
            yield f"worker {worker}: after {last} comes {n}"
        last = n
        if data is not None and hashlib.sha256(data).hexdigest() != digest:
            yield f"worker {worker}: the bytes of {n} are others"
        if (data is None) != (n < kept_from):
            yield f"worker {worker}: the bytes of {n} are there or gone when they should not be"
    if not noted <= last <= noted + 1:
        yield f"worker {worker}: {noted} was acknowledged, the last one is {last}"


def check_balances(db):
    balances = [BALANCE] * ACCOUNTS
    for source, target, amount in db.execute("select source, target, amount from move"):
        balances[source] -= amount
        balances[target] += amount
    found = [row[0] for row in db.execute("select balance from account order by id")]
    if found != balances:
        yield "the balances are not what the moves make of them"


def check(path, workers):
    db = opened(path)
    answer = db.execute("pragma integrity_check").fetchall()
    problems = [] if answer == [("ok",)] else [str(row[0]) for row in answer]
    for worker, log_path in zip(workers[::2], workers[1::2]):
        problems += check_worker(db, int(worker), log_path)
    problems += check_balances(db)
    count = db.execute("select count(*) from move").fetchone()[0]
    print("\n".join([*problems, f"{count} transactions"]))
    return 1 if problems or count == 0 else 0


def main():
    command, path, *rest = sys.argv[1:] + ["", ""]
    rest = rest[:-2]
    if command == "make":
        make(path, rest[0])
    elif command == "work":
        work(path, int(rest[0]), rest[1])
    elif command == "check":
        return check(path, rest)
    else:
        print(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
