# SPDX-License-Identifier: Apache-2.0
"""The cells of the matrix: their parameters, what cannot be combined, and the choice that covers all combinations
of two (or three) values.

A cell is one value for each parameter of its door. Its name is these values with dots between, so a name says
all that is needed to run the cell again. The choice depends on the seed and on nothing else."""

import itertools
import random

MIB = 1 << 20
CANDIDATES = 15  # complete cells that are drawn for each cell that is chosen
TRIES = 200  # to draw one cell that is allowed

MOUNT = {
    "engine": ("sync", "psync", "libaio", "io_uring", "mmap"),
    "cache": ("buffered", "direct"),
    "depth": ("d1", "d8", "d32", "d128", "d512"),
    "jobs": ("j1", "j2", "j4", "j16"),
    "block": ("512", "4k", "64k", "128k", "1m", "4m", "512-200k"),
    "rw": ("write", "randwrite", "randrw", "randread"),
    "layout": ("sparse", "allocated", "shared", "overlapping", "truncated"),
    "memory": ("smallest", "1G", "4G"),
    "shards": ("s1", "s2", "s4"),
    "fill": ("empty", "nearly", "full"),
    "options": ("through", "writeback"),
    "beside": ("alone", "sockets"),
}
SOCKET = {
    "op": ("put", "putget", "get", "randwrite", "randread", "mixed", "write", "delete", "list"),
    "block": ("512", "4k", "70k", "128k", "512-200k", "1m", "4m"),
    "depth": ("d1", "d32", "d512", "d2000"),
    "connections": ("c1", "c4", "c16"),
    "memory": MOUNT["memory"],
    "shards": MOUNT["shards"],
    "fill": MOUNT["fill"],
}
DOORS = {"mount": MOUNT, "socket": SOCKET}
# The values of the short form, where they are fewer.
SHORT = {
    "jobs": ("j1", "j4", "j16"),
    "block": ("4k", "128k", "4m", "512-200k"),
    "op": ("put", "putget", "randwrite", "mixed", "list"),
}

# How often a value is drawn, against 1 for the others: what takes long to start is not drawn without need.
WEIGHTS = {"4G": 0.1, "full": 0.5, "nearly": 0.5}
# How much may be under way, in the short and in the whole form.
AT_ONCE_BYTES = {"mount": (192 * MIB, 512 * MIB), "socket": (256 * MIB, 2048 * MIB)}

# Loads that are known to have hung the daemon, or to have made it pause for seconds: always the first to run.
ALWAYS = (
    "mount.libaio.direct.d128.j1.128k.randwrite.sparse.1G.s2.empty.through.alone",
    "socket.put.512-200k.d512.c4.1G.s2.empty",
    "socket.put.70k.d512.c4.1G.s2.empty",
    "socket.put.512-200k.d512.c4.smallest.s2.empty",
    "mount.io_uring.direct.d512.j1.128k.write.truncated.1G.s4.nearly.through.alone",
)


def bytes_of(text):
    """Of a size; of a range of sizes, the largest."""
    text = text.split("-")[-1].lower()
    unit = {"k": 10, "m": 20, "g": 30}.get(text[-1])
    return int(text[:-1]) << unit if unit else int(text)


class Cell:
    """One load: `door`, and a value for each of its parameters, as attributes."""

    def __init__(self, door, values):
        self.door = door
        self.values = values
        for name, value in zip(DOORS[door], values, strict=True):
            setattr(self, name, value)
        self.name = ".".join((door, *values))

    def number(self, name):
        """Of a value such as d32."""
        return int(getattr(self, name)[1:])

    @property
    def block_bytes(self):
        return bytes_of(self.block)

    @property
    def at_once_bytes(self):
        """Of all requests that are under way."""
        jobs = self.number("jobs") if self.door == "mount" else 1
        return self.number("depth") * jobs * self.block_bytes

    def why_not(self, is_short=False):
        """What forbids it, or None."""
        if self.at_once_bytes > AT_ONCE_BYTES[self.door][0 if is_short else 1]:
            return "the client alone would take too much memory"
        return socket_why_not(self) if self.door == "socket" else mount_why_not(self)

    def is_verified(self):
        """Whether fio can hold what it reads against what it wrote."""
        if self.rw == "randread" or self.layout in ("overlapping", "truncated"):
            return False
        # fio's mmap engine takes one job's place for another's then, on ext4 as well.
        if self.engine == "mmap" and self.layout == "shared":
            return False
        # What waits in the kernel's cache when the store is full is lost, and fio is not told of which block.
        may_be_lost = self.fill != "empty" and (self.engine == "mmap" or self.options == "writeback")
        return not may_be_lost


def mount_why_not(cell):
    depth, jobs = cell.number("depth"), cell.number("jobs")
    if cell.engine in ("sync", "psync", "mmap") and depth > 1:
        return "this engine has one request under way"
    if cell.engine == "mmap" and cell.cache == "direct":
        return "a mapping is never direct"
    if cell.engine == "mmap" and cell.layout == "truncated":
        return "a store behind the end of a file is a SIGBUS"
    if cell.layout in ("shared", "overlapping") and jobs == 1:
        return "one job shares with nobody"
    if cell.layout == "truncated" and cell.rw in ("randrw", "randread"):
        return "fio takes a short read for an error"
    return None


def socket_why_not(cell):
    if cell.number("connections") > cell.number("depth"):
        return "a connection would have nothing to do"
    return None


def parse(name):
    """The cell of this name; ValueError if there can be none."""
    door, *values = name.split(".")
    if door not in DOORS or len(values) != len(DOORS[door]):
        raise ValueError(f"{name}: not the name of a cell")
    for parameter, value in zip(DOORS[door], values, strict=True):
        if value not in DOORS[door][parameter]:
            raise ValueError(f"{name}: {parameter} cannot be {value}")
    cell = Cell(door, tuple(values))
    if cell.why_not():
        raise ValueError(f"{name}: {cell.why_not()}")
    return cell


def groups_of(values, strength):
    """The combinations of `strength` values that a cell has, each with the places of its values."""
    return itertools.combinations(enumerate(values), strength)


class Chooser:
    """Chooses cells of one door, greedily, until every combination that some allowed cell has is in one of them."""

    def __init__(self, door, is_short, strength, seed):
        self.door = door
        self.is_short = is_short
        self.strength = strength
        self.dice = random.Random(f"{seed} {door} {strength}")
        self.domains = domains_of(door, is_short)
        self.missing = {}  # in the order of insertion, which a set has not
        for places in itertools.combinations(range(len(self.domains)), strength):
            for values in itertools.product(*(self.domains[place] for place in places)):
                self.missing[tuple(zip(places, values, strict=True))] = None

    def drawn(self, fixed):
        """A cell that is allowed and has these values, with the others by chance; None if none was found."""
        for _ in range(TRIES):
            values = [self.one_of(domain) for domain in self.domains]
            for place, value in fixed:
                values[place] = value
            cell = Cell(self.door, tuple(values))
            if not cell.why_not(self.is_short):
                return cell
        return None

    def one_of(self, domain):
        return self.dice.choices(domain, [WEIGHTS.get(value, 1) for value in domain])[0]

    def gain(self, cell):
        return sum(group in self.missing for group in groups_of(cell.values, self.strength))

    def take(self, cell):
        for group in groups_of(cell.values, self.strength):
            self.missing.pop(group, None)

    def cells(self):
        while self.missing:
            wanted = next(iter(self.missing))
            candidates = [self.drawn(wanted) for _ in range(CANDIDATES)]
            candidates = [cell for cell in candidates if cell]
            if not candidates:
                del self.missing[wanted]  # what cannot be combined
                continue
            best = max(candidates, key=self.gain)
            self.take(best)
            yield best


def domains_of(door, is_short):
    return [SHORT.get(name, domain) if is_short else domain for name, domain in DOORS[door].items()]


def chosen(is_short, strength, seed):
    """The cells of a run, in its order: those that always run first, then the doors in turn."""
    first = [parse(name) for name in ALWAYS]
    rows = []
    for door in DOORS:
        chooser = Chooser(door, is_short, strength, seed)
        for cell in first:
            if cell.door == door:
                chooser.take(cell)
        rows.append(list(chooser.cells()))
    # So that a run that is cut short has seen both doors.
    mixed = [(place / len(row), cell.name) for row in rows for place, cell in enumerate(row)]
    return first + [parse(name) for _, name in sorted(mixed)]
