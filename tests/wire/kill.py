#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: whatever was acknowledged is there after kill -9, and of the rest nothing is half there
(promises P1, P2, P3). Method: several client processes change objects, many at a time, each of them
its own; the daemon is killed; each client hands over what was acknowledged of each object and what
was under way. Started again, each object is as acknowledged, or as what was under way makes it; its
names are listed, no others; after a clean stop `lapis fsck --deep` finds nothing.

    python3 kill.py [ROUNDS] [SEED] [CLIENTS]     5 rounds, 4 clients unless told otherwise

An object is looked at as a slot: two paths, in different directories, of which each operation makes
one state out of another. At most one operation of a slot is under way."""

import errno
import hashlib
import os
import pathlib
import pickle
import random
import sys
import time
import traceback

import lapis_wire as wire
import rig
from lapis_wire import change

SLOTS = 24
WINDOW = 16
SIZES = (0, 1, 100, 2048, 2049, 4096, 5000, 16384, 40000, 70000)


class Object:
    """What is at one path."""

    def __init__(self, data, xattrs=(), omap=()):
        self.data, self.xattrs, self.omap = data, dict(xattrs), dict(omap)

    def __eq__(self, other):
        return isinstance(other, Object) and vars(self) == vars(other)

    def __repr__(self):
        digest = hashlib.sha256(self.data).hexdigest()[:8]
        return f"<{len(self.data)} bytes {digest}, {self.xattrs}, {self.omap}>"

    def but(self, **changed):
        return Object(**{**vars(self), **changed})


def paths_of(worker, slot):
    return f"a{worker}/dir{slot % 3}/{slot}", f"b{worker}/{slot}"


class Plan:
    """One operation on a slot: requests one after the other, and the state that it leads to."""

    def __init__(self, name, steps, state):
        self.name, self.steps, self.state = name, steps, state


def plan(dice, paths, state, serial):
    """Chooses an operation that can succeed in this state: its steps are requests, or make one of
    the number that the first has got."""
    there = [index for index in (0, 1) if state[index] is not None]
    at = dice.choice(there) if there and dice.random() < 0.9 else dice.randrange(2)
    path, now = paths[at], state[at]

    def become(new, index=at):
        return tuple(new if i == index else old for i, old in enumerate(state))

    size = dice.choice(SIZES)
    data = wire.random_bytes(size, serial)
    tag = str(serial).encode()
    xattrs = {b"user.tag": tag} if dice.random() < 0.5 else {}
    path_choice = dice.choice(list(wire.PATH))
    kinds = ["put", "upload", "ordered"]
    if now is not None:
        kinds += ["copy", "move", "write", "compound", "compound", "delete", "truncate", "append", "xattr", "punch"]
        if state[1 - at] is None:
            kinds += ["rename", "rename", "rename"]
        else:
            kinds += ["exchange"]
    kind = dice.choice(kinds)
    if kind == "put":
        request = wire.put(path, data, xattrs=xattrs, write_path=path_choice)
        return Plan(kind, [request], become(Object(data, xattrs)))
    if kind == "ordered":
        request = wire.put(path, data, xattrs=xattrs, write_path=path_choice).ordered()
        return Plan(kind, [request, wire.sync()], become(Object(data, xattrs)))
    if kind == "upload":
        return Plan(kind, _upload(path, data, xattrs), become(Object(data, xattrs)))
    if kind == "delete":
        return Plan(kind, [wire.delete(path)], become(None))
    if kind in ("rename", "exchange"):
        flag = "noreplace" if kind == "rename" else "exchange"
        new = (state[1], state[0])
        steps = [wire.rename(path, paths[1 - at], flag)]
        return Plan(kind, steps, new)
    if kind == "copy":
        return Plan(kind, [wire.copy(path, paths[1 - at])], (now, now))
    if kind == "move":  # over what is there
        new = (None, now) if at == 0 else (now, None)
        return Plan(kind, [wire.move(path, paths[1 - at])], new)
    if kind == "write":
        offset = dice.randrange(len(now.data) + 5000)
        patch = data or b"x"
        request = wire.write(path, patch, offset, write_path=path_choice)
        return Plan(kind, [request], become(now.but(data=_patched(now.data, offset, patch))))
    if kind == "append":
        patch = data or b"y"
        return Plan(
            kind, [wire.write(path, patch, append=True)], become(now.but(data=now.data + patch))
        )
    if kind == "truncate":
        end = dice.randrange(len(now.data) + 5000)
        new = now.data[:end] + bytes(max(0, end - len(now.data)))
        return Plan(kind, [wire.truncate(path, end)], become(now.but(data=new)))
    if kind == "punch":
        offset, length = dice.randrange(len(now.data) + 1), 1 + dice.randrange(20000)
        end = min(len(now.data), offset + length)
        new = now.data[:offset] + bytes(max(0, end - offset)) + now.data[end:]
        return Plan(kind, [wire.punch(path, offset, length)], become(now.but(data=new)))
    if kind == "xattr":
        new = now.but(xattrs={**now.xattrs, b"user.more": tag})
        return Plan(kind, [wire.xattr_set(path, "user.more", tag)], become(new))
    offset = dice.randrange(len(now.data) + 1)
    patch = data or b"z"
    request = wire.compound(
        path,
        change("write", offset=offset, length=len(patch)),
        change("xattr_set", "user.tag", tag),
        change("omap_set", "tag", tag),
        change("omap_set", f"k{serial % 7}", tag * 20),
        data=patch,
        offset=offset,
    )
    new = Object(
        _patched(now.data, offset, patch),
        {**now.xattrs, b"user.tag": tag},
        {**now.omap, b"tag": tag, f"k{serial % 7}".encode(): tag * 20},
    )
    return Plan("compound", [request], become(new))


def _patched(old, offset, patch):
    old = old + bytes(max(0, offset - len(old)))
    return old[:offset] + patch + old[offset + len(patch) :]


def _upload(path, data, xattrs):
    """Steps that need the answer of the first."""
    cut = len(data) // 2
    steps = [wire.upload(path)]
    steps.append(lambda ino: wire.write(ino, data[:cut], 0).ordered())
    steps.append(lambda ino: wire.write(ino, data[cut:], cut).ordered())
    steps.append(lambda ino: wire.commit(ino, path, xattrs=xattrs))
    # A write of nothing is none.
    return [step for step, of in zip(steps, (b"x", data[:cut], data[cut:], b"x")) if of]


class Work:
    """One client process: what it has under way and what was acknowledged."""

    def __init__(self, address, number, states, seed):
        self.dice = random.Random(f"{seed} {number}")
        self.number, self.states = number, states
        self.under_way = {}  # slot -> Plan
        self.calls = {}  # request_id -> (slot, call)
        self.acknowledged = 0
        self.serial = seed * 10_000_000 + number * 1_000_000
        crc = (wire.CRC_ALL, wire.CRC_HEADER, wire.CRC_OFF)[number % 3]
        shard = (0, 1, wire.ANY_SHARD)[number % 3]
        self.lapis = wire.Connection(address, crc=crc, shard=shard, timeout_s=rig.PATIENCE_S)

    def begin(self):
        slot = self.dice.choice([s for s in range(SLOTS) if s not in self.under_way])
        self.serial += 1
        paths = paths_of(self.number, slot)
        self.under_way[slot] = plan(self.dice, paths, self.states[slot], self.serial)
        self.step(slot, None)

    def step(self, slot, answer):
        work = self.under_way[slot]
        if hasattr(answer, "ino") and work.name == "upload":
            work.ino = answer.ino
        request = work.steps.pop(0)
        call = self.lapis.start(request(work.ino) if callable(request) else request)
        self.calls[call.request_id] = (slot, call)

    def run(self):
        while True:
            while len(self.under_way) < WINDOW:
                self.begin()
            for done in self.lapis.wait_any():
                slot, call = self.calls.pop(done.request_id)
                work = self.under_way[slot]
                answer = self.lapis.wait(call)
                if work.steps:
                    self.step(slot, answer)
                    continue
                self.states[slot] = work.state
                self.acknowledged += 1
                del self.under_way[slot]


def child(address, number, states, seed, out):
    """Works until the daemon is gone, and writes down what it knows."""
    trouble, work = None, None
    try:
        work = Work(address, number, states, seed)
        work.run()
    except (wire.Closed, ConnectionError):
        pass
    except BaseException:
        trouble = traceback.format_exc()
    known = (trouble, states, {}, 0)
    if work is not None:
        names = {slot: (plan.name, plan.state) for slot, plan in work.under_way.items()}
        known = (trouble, work.states, names, work.acknowledged)
    out.write_bytes(pickle.dumps(known))
    os._exit(0)


def look(lapis, path):
    try:
        data = lapis(wire.get(path)).data
    except wire.Refused as refusal:
        assert refusal.errno == errno.ENOENT, refusal
        return None
    return Object(data, lapis(wire.xattr_list(path)).items, lapis(wire.omap_list(path)).items)


def names_in(lapis, path):
    """All names below, by readdir."""
    names, cookie = set(), 0
    while True:
        page = lapis(wire.readdir(path, cookie))
        for item in page.items:
            name = f"{path}/{item.name.decode()}"
            assert name not in names, f"{name} twice"
            names.add(name)
            if item.type == wire.DIRECTORY:
                names |= names_in(lapis, name)
        if not page.more:
            return names
        cookie = page.items[-1].cookie


def judge(lapis, known):
    """Each slot is in a state it may be in; returns the states found."""
    found = []
    for number, (_, states, under_way, _) in enumerate(known):
        mine, expected = {}, {f"a{number}/keep", f"b{number}/keep"}
        expected |= {f"a{number}/dir{i}" for i in range(3)}
        expected |= {f"a{number}/dir{i}/keep" for i in range(3)}
        for slot in range(SLOTS):
            paths = paths_of(number, slot)
            mine[slot] = tuple(look(lapis, path) for path in paths)
            may_be = [states[slot]] + ([under_way[slot][1]] if slot in under_way else [])
            assert mine[slot] in may_be, (
                f"{paths}: {mine[slot]}, acknowledged {states[slot]}, under way {under_way.get(slot)}"
            )
            expected |= {path for path, there in zip(paths, mine[slot]) if there is not None}
        found.append(mine)
        names = names_in(lapis, f"a{number}") | names_in(lapis, f"b{number}")
        assert names == expected, names ^ expected
    return found


def prepare(lapis, clients):
    """A name that stays in each directory: else they come and go, and a rename finds none."""
    for number in range(clients):
        for directory in (f"a{number}", f"b{number}", *(f"a{number}/dir{i}" for i in range(3))):
            lapis(wire.put(f"{directory}/keep", b"keep"))
    return [{slot: (None, None) for slot in range(SLOTS)} for _ in range(clients)]


def one_round(daemon, states, dice, seed):
    """Load, kill, start, judge. Returns what was acknowledged, under way, and is there now."""
    outs, pids = [], []
    for number in range(len(states)):
        out = daemon.directory / f"known{number}"
        out.unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            child(daemon.address, number, states[number], seed, out)
        outs.append(out)
        pids.append(pid)
    time.sleep(0.3 + dice.random() * 1.2)
    daemon.kill()
    for pid in pids:
        os.waitpid(pid, 0)
    known = [pickle.loads(out.read_bytes()) for out in outs]
    for trouble, *_ in known:
        assert trouble is None, f"a client in trouble:\n{trouble}"
    daemon.start()
    with daemon.connect() as lapis:
        found = judge(lapis, known)
    return sum(entry[3] for entry in known), sum(len(entry[2]) for entry in known), found


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    clients = int(sys.argv[3]) if len(sys.argv) > 3 else 4
    dice = random.Random(seed)
    directory = pathlib.Path(os.environ.get("TMPDIR", ".")) / f"kill{os.getpid()}"
    total = 0
    with rig.running(directory, "block", "--memory", "192M") as daemon:
        with daemon.connect() as lapis:
            states = prepare(lapis, clients)
        for number in range(rounds):
            try:
                done, under_way, states = one_round(daemon, states, dice, seed * 1000 + number)
                daemon.stop()
                checked = daemon.fsck().splitlines()[-1]
            except Exception:
                print(f"seed {seed}, round {number}; the end of the log:\n{daemon.log_tail()}")
                raise
            daemon.start()
            total += done
            print(f"round {number}: {done} acknowledged, {under_way} under way; {checked}", flush=True)
    assert total > 50 * rounds, f"only {total} operations: this shows nothing"
    print(f"{rounds} kills under {clients} clients, {total} operations acknowledged")
    return 0


if __name__ == "__main__":
    sys.exit(main())
