# SPDX-License-Identifier: Apache-2.0
"""What an experiment found: written by bench/run, read by the report and by bench/compare.

A folder of results has results.json (all of it), raw/NNNN.json (what each run's programs said, with the time
lines), runs.csv (a line for each cell of each run) and report.html. results.json is written anew after each round,
so that a run that ends early leaves what it has done, and says that this is not all.

Of older ones some lack what was not written down then, and this is None here: `options` (of which options each cell
was made), `planned` (how many runs a part should have), `device_bytes`, `device_path`. They have one part of limits,
`of` no part, which was measured in the first.
"""
import csv
import json
import os

from metrics import METRICS
from noise import Difference, Overall, median

FORMAT = 1


class Unreadable(Exception):
    """The folder holds no results."""


def describe(part, planned):
    """What a report needs to know of a part, and what tells whether another one is the same; so many runs are planned."""
    return {"name": part.name, "kind": part.kind.name, "text": part.text, "repetitions": part.repetitions, "planned": planned,
            "seconds": part.seconds if part.kind.has_seconds else None, "device": part.device_kind,
            "device_bytes": part.device_size, "device_path": part.device_path, "limits": part.limits, "metrics": part.metrics,
            "options": [{"factors": cell.factors, "variant": cell.variant, "load": cell.load} for cell in part.cells()],
            "factors": {factor: [choice.label for choice in several] for factor, several in part.factors.items()},
            "fixed": {**part.fixed["variants"], **part.fixed["load"]}, "settings": part.settings,
            "own_factors": list(part.kind.own_factors), "baseline": part.baseline, "plots": part.plots,
            "claims": part.claims, "of": getattr(part, "of", None)}


def save(path, table):
    """All of a file or nothing: what ends this in the middle leaves the one before."""
    with open(f"{path}.new", "w", encoding="utf-8") as out:
        json.dump(table, out, indent=1)
    os.replace(f"{path}.new", path)


class Cell:
    """All runs of one combination."""

    def __init__(self, factors, options=None):
        self.factors = factors
        self.options = options  # {"variant", "load"}, or None where they were not written down
        self.runs = []

    def values(self, metric):
        return [run["metrics"][metric] for run in self.runs if metric in run["metrics"]]

    def of_round(self, metric, repetition):
        for run in self.runs:
            if run["repetition"] == repetition and metric in run["metrics"]:
                return run["metrics"][metric]
        return None

    def range(self, metric):
        """(median, least, greatest), or None."""
        values = self.values(metric)
        return (median(values), min(values), max(values)) if values else None

    def name(self):
        return name_of(self.factors)


def name_of(factors):
    return ", ".join(f"{factor} {label}" for factor, label in factors.items()) or "all"


class PartResults:
    def __init__(self, described, runs):
        self.options = self.planned = self.device_bytes = self.device_path = self.of = None
        self.__dict__.update(described)
        self.runs = [run for run in runs if not run.get("failed") and not run.get("skipped")]
        self.lost = [run for run in runs if run.get("failed") or run.get("skipped")]
        # Of round 0 is what befell the part, and no run. One that measures several cells is several times in it.
        self.done = len({run["order"] for run in runs if run["repetition"] and "order" in run})
        self.cells = {}
        for run in self.runs:
            key = tuple(run["factors"].items())
            self.cells.setdefault(key, Cell(run["factors"], self.options_of(run["factors"]))).runs.append(run)
        for factor in self.own_factors:
            self.factors[factor] = self.labels_seen(factor)
        self.cells = dict(sorted(self.cells.items(), key=lambda item: self.place(item[1])))

    @property
    def is_whole(self):
        return self.planned is None or self.done >= self.planned

    def options_of(self, factors):
        chosen = {name: label for name, label in factors.items() if name not in self.own_factors}
        return next((one for one in self.options or [] if one["factors"] == chosen), None)

    def planned_cells(self, **wanted):
        """The factors of all cells that there should be; of older results and own factors those of which a run is known."""
        if self.options is not None and not self.own_factors:
            known = [one["factors"] for one in self.options]
        else:
            known = [cell.factors for cell in self.cells.values()]
            known += [run["factors"] for run in self.lost if run["factors"] not in known]
        return [one for one in known if all(one.get(factor) == label for factor, label in wanted.items())]

    def cell(self, factors):
        return self.cells.get(tuple(factors.items()))

    def labels_seen(self, factor):
        found = {}
        for cell in self.cells.values():
            if factor in cell.factors:
                found[cell.factors[factor]] = True
        return list(found)

    def place(self, cell):
        return [self.factors[factor].index(cell.factors[factor]) for factor in self.factors if factor in cell.factors]

    def find(self, **wanted):
        """The cells with those labels."""
        return [cell for cell in self.cells.values()
                if all(cell.factors.get(factor) in labels_of(label) for factor, label in wanted.items())]

    def varied(self):
        """The factors that have more than one value."""
        return [factor for factor, labels in self.factors.items() if len(labels) > 1]

    def twin(self, cell, factor, label):
        """The cell that differs in that factor alone."""
        return self.cell({**cell.factors, factor: label})

    def shown_metrics(self):
        return [name for name in self.metrics if name in METRICS and
                any(cell.values(name) for cell in self.cells.values())]

    def overall(self, factor, label, base, metric):
        """One choice against another over all cells, round by round; None where there is nothing to compare."""
        rounds = sorted({run["repetition"] for run in self.runs})
        cells = self.find(**{factor: label})
        pairs, compared = [], set()
        for repetition in rounds:
            found = []
            for number, cell in enumerate(cells):
                other = self.twin(cell, factor, base)
                ours = cell.of_round(metric, repetition)
                theirs = other.of_round(metric, repetition) if other else None
                if ours and theirs and ours > 0 and theirs > 0:
                    found.append((ours, theirs))
                    compared.add(number)
            pairs.append(found)
        return Overall(pairs, len(compared), len(self.planned_cells(**{factor: label}))) if any(pairs) else None


def labels_of(value):
    return [str(one) for one in (value if isinstance(value, list) else [value])]


class Results:
    def __init__(self, table):
        self.title = table["title"]
        self.question = table["question"]
        self.seed = table["seed"]
        self.is_short = table["short"]
        self.began = table["began"]
        self.seconds = table["seconds"]
        self.is_interrupted = table.get("interrupted", False)
        self.conditions = table["conditions"]
        self.runs = table["runs"]
        self.parts = [PartResults(part, [run for run in self.runs if run["part"] == part["name"]])
                      for part in table["parts"]]

    @property
    def experiments(self):
        return [part for part in self.parts if part.kind != "limit"]

    @property
    def limits(self):
        return [part for part in self.parts if part.kind == "limit"]

    def limits_of(self, name):
        """Those measured among the runs of that part; in older results those of the first part; or None."""
        return next((part for part in self.limits if part.of in (name, None)), None)

    @property
    def says_options(self):
        return all(part.options is not None for part in self.parts)

    def unfinished(self):
        """A sentence on what was planned and not done, or nothing."""
        parts = [part for part in self.parts if not part.is_whole]
        if not parts and not self.is_interrupted:
            return ""
        why = "Interrupted, or not at its end yet" if self.is_interrupted else "Not all was done"
        counted = [part for part in self.parts if part.planned is not None]
        done, planned = sum(part.done for part in counted), sum(part.planned for part in counted)
        each = ", ".join(f"{part.done} of {part.planned} of {part.name}" for part in parts)
        return f"{why}: {done} of {planned} runs{f' ({each})' if each else ''}."

    def part(self, name):
        return next((part for part in self.parts if part.name == name), None)

    def lost(self):
        return [run for part in self.parts for run in part.lost]

    def without_ratio(self):
        """Runs that have figures, but none of the raw device to be held against: [(run, why)]"""
        return [(run, why) for run in self.runs if (why := run.get("raw_failed") or run.get("raw_skipped"))]

    def failed(self):
        """What could not be measured, though it can be here."""
        return [run for run in self.runs if run.get("failed") or run.get("raw_failed")]


def load(where):
    path = os.path.join(where, "results.json")
    try:
        with open(path, encoding="utf-8") as file:
            table = json.load(file)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise Unreadable(f"{path}: {error}") from None
    if table.get("format") != FORMAT:
        raise Unreadable(f"{path}: format {table.get('format')} is not {FORMAT}")
    results = Results(table)
    for run in results.runs:
        raw = os.path.join(where, "raw", f"{run['order']:04}.json")
        run["raw"] = raw if os.path.exists(raw) else None
    return results


def series_of(run):
    """The time lines of a run: {name: [(seconds, value)]}"""
    if not run.get("raw"):
        return {}
    with open(run["raw"], encoding="utf-8") as file:
        outcomes = json.load(file)["outcomes"]
    series = outcomes[run["outcome"]].get("series", {})
    found = {}
    for prefix, columns in (("", series), ("daemon.", series.get("daemon", {}))):
        for name, values in columns.items():
            if name not in ("t_s", "daemon"):
                found[prefix + name] = list(zip(columns["t_s"], values))
    return found


def write_csv(path, results):
    factors = {factor: True for run in results.runs for factor in run["factors"]}
    names = [name for name in METRICS if any(name in run["metrics"] for run in results.runs)]
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["order", "part", "repetition", *factors, *names, "lost"])
        for run in results.runs:
            out.writerow([run["order"], run["part"], run["repetition"], *(run["factors"].get(one, "") for one in factors),
                          *(run["metrics"].get(name, "") for name in names), why_lost(run)])


def why_lost(run):
    return run.get("failed") or run.get("skipped") or ""


# --- Two folders ------------------------------------------------------------------------------------------------


def is_foreign(limit):
    """Whether programs measured it that are not of this tree, by its name: results do not say more."""
    return limit.startswith("fio, ")


def limit_differences(ours, other):
    """By how much the machine itself differed, of two parts of limits or None: [(limit, difference)]"""
    if ours is None or other is None:
        return []
    found = []
    for key, cell in ours.cells.items():
        twin = other.cells.get(key)
        if twin is not None and cell.values("iops") and twin.values("iops"):
            found.append((cell.factors["limit"], Difference(cell.values("iops"), twin.values("iops"))))
    return found
