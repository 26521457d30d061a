# SPDX-License-Identifier: Apache-2.0
"""An experiment: what is asked, and which runs answer it. Read from a small YAML file; bench/README.md
says what may stand in it.

Scalars are numbers or text and nothing else: YAML's own idea that `off` is a truth value would make
`crc: [off, all]` a surprise. Whatever is wrong is told with the line it stands in.
"""
import itertools
import random
import re

import yaml

REPETITIONS_MAX = 1000
SECONDS_MAX = 3600
RUNS_MAX = 100000
SIZE = re.compile(r"(\d+)([KMGT]?)")
PLOTS = ("bars", "lines", "heat", "percentiles", "time")
PLOT_KEYS = ("x", "y", "by", "panels", "ratio", "where", "title", "log")


class Wrong(Exception):
    """The experiment makes no sense; the text says where and why."""


class Map(dict):
    """A mapping that knows the line of each of its keys."""

    def __init__(self, path, line):
        super().__init__()
        self.path = path
        self.line = line
        self.lines = {}

    def wrong(self, key, text):
        return Wrong(f"{self.path}:{self.lines.get(key, self.line)}: {text}")

    def only(self, *known):
        for key in self:
            if key not in known:
                raise self.wrong(key, f"{key} is not known here: {', '.join(known)}")

    def must(self, key):
        if key not in self:
            raise self.wrong(None, f"{key} is missing")
        return self[key]

    def number(self, key, usual, least, most):
        value = self.get(key, usual)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise self.wrong(key, f"{key} is a number from {least} to {most}")
        return value

    def map(self, key):
        value = self.get(key)
        if value is None:
            return Map(self.path, self.lines.get(key, self.line))
        if not isinstance(value, Map):
            raise self.wrong(key, f"{key} is a mapping of names to values")
        return value

    def texts(self, key):
        value = self.get(key, [])
        value = value if isinstance(value, list) else [value]
        if not all(isinstance(one, str) for one in value):
            raise self.wrong(key, f"{key} is a name, or a list of names")
        return value


# --- Reading ----------------------------------------------------------------------------------------------------


def scalar(text, is_plain):
    if is_plain and re.fullmatch(r"-?\d+", text):
        return int(text)
    if is_plain and re.fullmatch(r"-?\d+\.\d+", text):
        return float(text)
    return text


def take(node, path):
    line = node.start_mark.line + 1
    if isinstance(node, yaml.ScalarNode):
        return scalar(node.value, node.style is None)
    if isinstance(node, yaml.SequenceNode):
        return [take(one, path) for one in node.value]
    found = Map(path, line)
    for key_node, value_node in node.value:
        key = take(key_node, path)
        found.lines[str(key)] = key_node.start_mark.line + 1
        if str(key) in found:
            raise found.wrong(str(key), f"{key} is there twice")
        found[str(key)] = take(value_node, path)
    return found


def read(path):
    """The file as mappings, lists, numbers and text."""
    try:
        with open(path, encoding="utf-8") as file:
            node = yaml.compose(file, Loader=yaml.SafeLoader)
    except OSError as error:
        raise Wrong(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        raise Wrong(f"{where}: {getattr(error, 'problem', None) or error}") from None
    if not isinstance(node, yaml.MappingNode):
        raise Wrong(f"{path}:1: a mapping is expected: question, parts, ...")
    return take(node, path)


def size_bytes(value):
    """Of 4096, 4K, 1G; None for what is no size."""
    found = SIZE.fullmatch(str(value))
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[found[2]] if found else None


# --- The matrix -------------------------------------------------------------------------------------------------


class Choice:
    """One value of a factor: its label, and the options it stands for."""

    def __init__(self, label, options):
        self.label = label
        self.options = options


def choices(table, factor, known):
    """A scalar is a choice of the option with the factor's name; a mapping {label: {option: value}} may set several."""
    values = table[factor] if isinstance(table[factor], list) else [table[factor]]
    if not values:
        raise table.wrong(factor, f"{factor} has no value")
    found = []
    for value in values:
        if isinstance(value, Map):
            if len(value) != 1 or not all(isinstance(one, Map) for one in value.values()):
                raise value.wrong(None, "a choice with a name is written {NAME: {OPTION: VALUE, ...}}")
            (label, options), = value.items()
        else:
            label, options = str(value), Map(table.path, table.lines[factor])
            options[factor] = value
            options.lines[factor] = table.lines[factor]
        for name in options:
            if name not in known:
                raise options.wrong(name, f"{name} is not an option of this: {', '.join(sorted(known))}")
        found.append(Choice(label, options))
    labels = [one.label for one in found]
    if len(set(labels)) < len(labels):
        raise table.wrong(factor, f"{factor} has a value twice")
    return found


class Cell:
    """One combination of choices."""

    def __init__(self, chosen, variant_factors, fixed):
        self.factors = {factor: choice.label for factor, choice in chosen.items()}
        self.variant = dict(fixed["variants"])
        self.load = dict(fixed["load"])
        for factor, choice in chosen.items():
            (self.variant if factor in variant_factors else self.load).update(choice.options)

    def name(self):
        return ", ".join(f"{factor} {label}" for factor, label in self.factors.items()) or "all"


class Part:
    """Runs of one kind of load, over a matrix."""

    def __init__(self, table, kinds, is_short):
        short = table.map("short")
        short.only("repetitions", "seconds", "variants", "load", "device", "limits", "skip", "settings")
        self.table = table
        table.only("name", "kind", "text", "repetitions", "seconds", "device", "variants", "load", "metrics", "baseline",
                   "plots", "claims", "limits", "short", "settings", "without")
        self.name = str(table.must("name"))
        if table.must("kind") not in kinds:
            raise table.wrong("kind", f"{table['kind']} is no kind of load: {', '.join(sorted(kinds))}")
        self.kind = kinds[table["kind"]]()
        self.text = table.get("text", "")
        self.is_skipped = is_short and str(short.get("skip", "no")) == "yes"
        place = self.place(short, is_short)
        self.repetitions = place("repetitions").number("repetitions", 5, 1, REPETITIONS_MAX)
        self.seconds = place("seconds").number("seconds", 3, 0.01, SECONDS_MAX)
        self.take_device(place("device").map("device"))
        self.settings = place("settings").map("settings")
        self.settings.only(*self.kind.settings)
        self.limits = place("limits").texts("limits")
        self.factors = {}
        self.take_factors(table, short if is_short else None)
        self.take_questions(table)
        self.check_size()

    def place(self, short, is_short):
        return lambda key: short if is_short and key in short else self.table

    def take_device(self, device):
        device.only("kind", "size", "path")
        self.device_kind = device.get("kind", "tmpfs")
        self.device_size = size_bytes(device.get("size", "512M" if self.device_kind == "none" else "2G"))
        self.device_path = device.get("path", "")
        if self.device_size is None:
            raise device.wrong("size", "size is a number of bytes, as 4096, 64M, 2G")

    def take_factors(self, table, short):
        """A list of values is a factor of the matrix; a single value is an option of every cell."""
        self.fixed = {"variants": {}, "load": {}}
        variants, load = table.map("variants"), table.map("load")
        if short is not None:
            # Factor by factor: the short form has fewer values of the same.
            for name, whole in (("variants", variants), ("load", load)):
                for factor in short.map(name):
                    if factor not in whole:
                        raise short.map(name).wrong(factor, f"{factor} is only in the short form")
        self.variant_factors = set(variants)
        for name, whole, known in (("variants", variants, self.kind.variant_options),
                                   ("load", load, self.kind.load_options)):
            fewer = short.map(name) if short is not None else {}
            for factor in whole:
                if factor in self.factors:
                    raise whole.wrong(factor, f"{factor} is in variants and in load")
                place = fewer if factor in fewer else whole
                found = choices(place, factor, known)
                if isinstance(whole[factor], list):
                    self.factors[factor] = found
                else:
                    self.fixed[name].update(found[0].options)
        self.without = table.get("without", [])
        if not isinstance(self.without, list) or not all(isinstance(one, Map) for one in self.without):
            raise table.wrong("without", "without is a list of mappings of factors to labels")
        for one in self.without:
            for factor in one:
                if factor not in self.factors:
                    raise one.wrong(factor, f"there is no factor {factor}")

    def take_questions(self, table):
        self.metrics = table.texts("metrics") or list(self.kind.metrics)
        self.baseline = table.map("baseline")
        self.plots = table.get("plots", [])
        self.claims = table.get("claims", [])
        for name, several in (("plots", self.plots), ("claims", self.claims)):
            if not isinstance(several, list) or not all(isinstance(one, Map) for one in several):
                raise table.wrong(name, f"{name} is a list of mappings")
        for plot in self.plots:
            plot.only(*PLOTS, *PLOT_KEYS)
            if len([name for name in PLOTS if name in plot]) != 1:
                raise plot.wrong(None, f"a plot is one of: {', '.join(PLOTS)}")
        for claim in self.claims:
            claim.only("factor", "value", "among", "metric", "within", "cross", "along")
            for key in ("factor", "metric"):
                claim.must(key)
        factors = {**self.factors, **dict.fromkeys(self.kind.own_factors)}
        for one in [self.baseline, *({claim["factor"]: 0} for claim in self.claims)]:
            for factor in one:
                if factor not in factors:
                    raise table.wrong("baseline", f"there is no factor {factor}")

    def check_size(self):
        kinds = {self.device_kind, *(str(cell.variant.get("device", "tmpfs")) for cell in self.cells())}
        for kind in kinds - {"tmpfs", "image", "file", "none"}:
            raise self.table.wrong("device" if kind == self.device_kind else "variants",
                                   f"{kind} is no device: tmpfs, image, file, none")
        if "file" in kinds and not self.device_path:
            raise self.table.wrong("device", "a device that is a file needs a path")
        runs = len(self.cells()) * self.repetitions
        if not 0 < runs <= RUNS_MAX:
            raise self.table.wrong("variants", f"that makes {runs} runs")

    def cells(self):
        names = list(self.factors)
        found = []
        for combination in itertools.product(*self.factors.values()):
            cell = Cell(dict(zip(names, combination)), self.variant_factors, self.fixed)
            if not any(all(cell.factors[factor] in self.labels(one[factor]) for factor in one) for one in self.without):
                found.append(cell)
        return found

    @staticmethod
    def labels(value):
        return [str(one) for one in (value if isinstance(value, list) else [value])]

    def plan(self, seed):
        """All runs: each repetition is a round of its own in which every cell has its turn, in random order."""
        order = random.Random(f"{seed}/{self.name}")
        runs = []
        for repetition in range(1, self.repetitions + 1):
            cells = self.cells()
            order.shuffle(cells)
            runs += [(repetition, cell) for cell in cells]
        return runs


class Experiment:
    def __init__(self, path, kinds, is_short):
        table = read(path)
        table.only("title", "question", "seed", "parts", "page")
        self.path = path
        self.title = str(table.must("title"))
        self.question = str(table.must("question"))
        self.seed = table.number("seed", 1, 0, 2**32)
        parts = table.must("parts")
        if not isinstance(parts, list) or not parts or not all(isinstance(one, Map) for one in parts):
            raise table.wrong("parts", "parts is a list of mappings")
        self.parts = [Part(one, kinds, is_short) for one in parts]
        names = [part.name for part in self.parts]
        if len(set(names)) < len(names):
            raise table.wrong("parts", "two parts have one name")
        self.parts = [part for part in self.parts if not part.is_skipped]
