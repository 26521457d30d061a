# SPDX-License-Identifier: Apache-2.0
"""report.html: the page of one experiment, complete in itself."""
import html
import os
import time

import answers
import hostmem
import svg
from metrics import METRICS, SERIES
from noise import spread
from results import labels_of, name_of, series_of, why_lost

LOST_MAX = 40  # runs that are named
UNITS = {40: "T", 30: "G", 20: "M", 10: "K", 0: ""}

STYLE = """
:root{--bg:#fff;--ink:#1b1f24;--dim:#59636e;--grid:#e3e6ea;--card:#f6f7f9;--more:#1f6fb2;--less:#c2571a;
--s0:#1f6fb2;--s1:#d9741a;--s2:#2b8a5b;--s3:#b8417f;--s4:#7a5bb5;--s5:#8a7a12;--s6:#12838a;--s7:#8a5a44;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--bg:#14171b;--ink:#e6e9ed;--dim:#9aa4af;--grid:#2c3239;--card:#1d2127;
--more:#4d9de0;--less:#e8843c;--s0:#5aa9e6;--s1:#f2994a;--s2:#58c48f;--s3:#e57fb3;--s4:#ab93e3;--s5:#cdbb4a;--s6:#4fc3cb;--s7:#c79378}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:24px 20px 60px}h1{font-size:26px;margin:0 0 6px}h2{font-size:20px;margin:36px 0 8px}
h3{font-size:16px;margin:24px 0 6px}p{margin:6px 0 10px;max-width:80ch}a{color:var(--more)}.question{font-size:17px;color:var(--dim)}
.note{background:var(--card);border-left:4px solid var(--less);padding:8px 12px;margin:12px 0;max-width:90ch}
.panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(330px,1fr));gap:14px 18px;align-items:start}
figure{margin:12px 0;min-width:0}figure.wide{grid-column:1/-1}figcaption{font-weight:600;font-size:14px;margin-bottom:4px}
svg{width:100%;height:auto;display:block}.legend svg{width:22px;height:12px;display:inline-block;margin-right:5px;vertical-align:middle}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 14px;margin:4px 0;padding:0;font-size:13px;color:var(--ink)}
svg text{font:12px system-ui,sans-serif;fill:var(--dim)}svg text.name,svg text.strong{fill:var(--ink)}
svg rect.more{fill:var(--more)}svg rect.less{fill:var(--less)}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px;margin:8px 0;font-variant-numeric:tabular-nums}
th,td{padding:4px 9px;text-align:right;border-bottom:1px solid var(--grid);vertical-align:top;white-space:nowrap}
th{font-weight:600;background:var(--card);white-space:normal}th.key,td.key{text-align:left}td small{color:var(--dim)}
td.wrap{white-space:normal;min-width:150px}
li{margin:3px 0;max-width:90ch}details{margin:10px 0}summary{cursor:pointer;font-weight:600}
"""


def esc(text):
    return html.escape(str(text))


def page(title, body):
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><meta name="viewport" '
            f'content="width=device-width,initial-scale=1"/><title>{esc(title)}</title><style>{STYLE}</style></head>'
            f'<body><main>{body}</main></body></html>\n')


def table(heads, rows, keys=1):
    """Rows of HTML; the first `keys` columns are text."""
    def line(tag, cells):
        css = [' class="key"' if i < keys else "" for i in range(len(cells))]
        return "<tr>" + "".join(f"<{tag}{css[i]}>{cell}</{tag}>" for i, cell in enumerate(cells)) + "</tr>"

    return (f'<div class="scroll"><table><thead>{line("th", heads)}</thead><tbody>'
            f'{"".join(line("td", row) for row in rows)}</tbody></table></div>')


def capital(text):
    return text[:1].upper() + text[1:]


def ranged(value):
    if value is None:
        return "–"
    mid, low, high = (svg.short_number(one) for one in value)
    return mid if low == high else f"{mid} <small>{low}–{high}</small>"


# --- Plots ------------------------------------------------------------------------------------------------------


class Plot:
    """One entry of `plots`: small multiples of one kind."""

    def __init__(self, part, spec):
        self.part = part
        self.spec = spec
        self.kind = next(kind for kind in ("bars", "lines", "heat", "percentiles", "time") if kind in spec)
        self.metric = spec[self.kind]
        self.where = {factor: labels_of(label) for factor, label in spec.get("where", {}).items()}
        self.by = spec.get("by")
        self.panels = [factor for factor in labels_of(spec.get("panels", []))]
        self.is_log = str(spec.get("log", "no")) == "yes"

    def cells(self, **more):
        return [cell for cell in self.part.find(**self.where) if
                all(cell.factors.get(factor) == label for factor, label in more.items())]

    def labels(self, factor):
        here = {cell.factors.get(factor) for cell in self.cells()}
        return [label for label in self.part.factors.get(factor, []) if label in here]

    def rest(self, *used):
        """Factors that vary and are neither on an axis nor a series."""
        return [factor for factor in self.part.varied() if factor not in used and len(self.labels(factor)) > 1]

    def combinations(self, factors):
        """Labels of those factors that occur together."""
        seen = {}
        for cell in self.cells():
            seen[tuple(cell.factors.get(factor) for factor in factors)] = True
        return [dict(zip(factors, labels)) for labels in seen]

    def heading(self):
        if "title" in self.spec:
            return self.spec["title"]
        if self.kind == "percentiles":
            return "Latency by share of operations"
        if self.kind == "time":
            return capital(SERIES.get(self.metric, (self.metric, ""))[0])
        return capital(METRICS[self.metric].label)

    def unit_name(self):
        if self.kind == "time":
            name, unit = SERIES.get(self.metric, (self.metric, ""))
            return f"{name} ({unit})"
        return METRICS[self.metric].heading

    def draw(self):
        """(panels, legend): a panel is its name, its SVG, and whether it wants the whole width."""
        if self.kind not in ("percentiles", "time") and self.metric not in METRICS:
            return [], ""
        drawn = {"bars": self.draw_bars, "lines": self.draw_lines, "heat": self.draw_heat,
                 "percentiles": self.draw_percentiles, "time": self.draw_time}[self.kind]()
        found = [(name, text, is_wide) for name, text, is_wide in drawn if text]
        names = self.labels(self.by) if self.by else []
        keys = svg.legend([f"{self.by} {name}" for name in names]) if self.kind != "heat" else ""
        return found, keys

    def explain(self):
        if self.kind == "bars":
            return "<p>Medians; the thin line is from the least to the greatest of all runs.</p>"
        if self.kind == "heat" and "ratio" in self.spec:
            first, second = self.spec["ratio"]
            return (f"<p>{esc(capital(METRICS[self.metric].label))} of {esc(first)} divided by that of {esc(second)}, medians. "
                    f"Blue: {esc(first)} is greater; orange: {esc(second)} is.</p>")
        return ""

    def panel_name(self, chosen):
        return ", ".join(f"{factor} {label}" for factor, label in chosen.items()) or self.heading()

    def one(self, **chosen):
        """The cell of these labels; of several, which differ in what is not shown, none."""
        found = self.cells(**chosen)
        return found[0] if len(found) == 1 else None

    def draw_bars(self):
        series = self.labels(self.by) if self.by else [""]
        across = labels_of(self.spec["x"]) if "x" in self.spec else self.rest(self.by, *self.panels)
        found = []
        for chosen in self.combinations(self.panels):
            groups = [one for one in self.combinations(across) if self.cells(**chosen, **one)]
            values = [[self.range_of({**chosen, **group, **({self.by: name} if self.by else {})}) for name in series]
                      for group in groups]
            names = [" ".join(group.values()) or "all" for group in groups]
            x_name = ", ".join(across) or " "
            drawn = svg.bars(names, series, values, x_name, self.unit_name(), self.label(chosen), is_log=self.is_log,
                             size=(880, 290) if len(names) * len(series) > 8 else (430, 270))
            found.append((self.panel_name(chosen), drawn, len(names) * len(series) > 8))
        return found

    def label(self, chosen):
        return f"{self.unit_name()}: {self.panel_name(chosen)}"

    def range_of(self, chosen):
        cell = self.one(**chosen)
        return cell.range(self.metric) if cell else None

    def draw_lines(self):
        series, ticks = self.labels(self.by) if self.by else [""], self.labels(self.spec["x"])
        found = []
        for chosen in self.combinations(self.panels or self.rest(self.by, self.spec["x"])):
            values = [[self.range_of({**chosen, self.spec["x"]: tick, **({self.by: name} if self.by else {})})
                       for tick in ticks] for name in series]
            found.append((self.panel_name(chosen), svg.lines(ticks, series, values, self.axis(self.spec["x"]),
                                                              self.unit_name(), self.label(chosen), is_log=self.is_log), False))
        return found

    @staticmethod
    def axis(factor):
        return {"size": "size (bytes)", "depth": "depth (operations under way)", "fill": "fill (%)",
                "threads": "threads (number)", "shards": "shards (number)"}.get(factor, factor)

    def draw_heat(self):
        columns, rows = self.labels(self.spec["x"]), self.labels(self.spec["y"])
        ratio = self.spec.get("ratio")
        used = [self.spec["x"], self.spec["y"], *([self.by] if ratio else [])]
        found = []
        for chosen in self.combinations(self.panels or self.rest(*used)):
            values = [[self.heat_value({**chosen, self.spec["x"]: column, self.spec["y"]: row}, ratio)
                       for column in columns] for row in rows]
            drawn = svg.heat(columns, rows, values, [self.axis(self.spec["x"]), self.axis(self.spec["y"])],
                             self.label(chosen), ratio is not None)
            what = "ratio" if ratio else self.unit_name()
            found.append((f"{self.panel_name(chosen)}: {what}", drawn, False))
        return found

    def heat_value(self, chosen, ratio):
        if not ratio:
            value = self.range_of(chosen)
            return value[0] if value else None
        two = [self.range_of({**chosen, self.by: label}) for label in labels_of(ratio)]
        return two[0][0] / two[1][0] if all(two) and two[1][0] else None

    def draw_percentiles(self):
        series = self.labels(self.by) if self.by else [""]
        found = []
        for chosen in self.combinations(self.panels or self.rest(self.by)):
            curves = [self.curve(self.one(**chosen, **({self.by: name} if self.by else {}))) for name in series]
            found.append((self.panel_name(chosen), svg.percentiles(series, curves, f"latency: {self.panel_name(chosen)}"), False))
        return found

    @staticmethod
    def curve(cell):
        """The median of the runs at each share."""
        if cell is None:
            return []
        points = {}
        for run in cell.runs:
            for percent, us in run["percentiles"]:
                points.setdefault(percent, []).append(us)
        return [(percent, sorted(several)[len(several) // 2]) for percent, several in sorted(points.items())
                if len(several) == len(cell.runs)]

    def draw_time(self):
        series = self.labels(self.by) if self.by else [""]
        found = []
        for chosen in self.combinations(self.panels or self.rest(self.by)):
            runs = []
            for name in series:
                cell = self.one(**chosen, **({self.by: name} if self.by else {}))
                runs.append([series_of(run).get(self.metric, []) for run in cell.runs] if cell else [])
            found.append((self.panel_name(chosen), svg.time_lines(series, runs, self.unit_name(),
                                                                  f"{self.unit_name()}: {self.panel_name(chosen)}"), False))
        return found


def figure(name, text, is_wide):
    css = ' class="wide"' if is_wide else ""
    return f"<figure{css}><figcaption>{esc(name)}</figcaption>{text}</figure>"


def draw_all(part, specs):
    """Plots of one panel each that have the same legend stand side by side below it; others have a heading."""
    groups = []
    for spec in specs:
        plot = Plot(part, spec)
        panels, keys = plot.draw()
        if not panels:
            continue
        figures = "".join(figure(*panel) for panel in panels)
        is_small = len(panels) == 1
        if is_small and groups and groups[-1][:2] == (keys, plot.explain()):
            groups[-1][2].append(figures)
        else:
            head = "" if is_small else f"<h3>{esc(plot.heading())}</h3>"
            groups.append((keys if is_small else None, plot.explain(), [figures], f"{head}{plot.explain()}{keys}"))
    return "".join(f'{head}<div class="panels">{"".join(figures)}</div>' for _, _, figures, head in groups)


# --- Sections ---------------------------------------------------------------------------------------------------


def cells_table(part):
    factors = [*part.factors]
    metrics = part.shown_metrics()
    if any(cell.values("raw_ratio") for cell in part.cells.values()) and "raw_ratio" not in metrics:
        metrics = [*metrics, "raw_ratio"]
    heads = [*(esc(factor) for factor in factors), "runs", *(esc(METRICS[name].heading) for name in metrics)]
    rows = [[*(esc(cell.factors.get(factor, "")) for factor in factors), str(len(cell.runs)),
             *(ranged(cell.range(name)) for name in metrics)] for cell in part.cells.values()]
    return table(heads, rows, len(factors))


def device_text(part):
    """Its kind and size, as an experiment has them."""
    if part.device == "none" or part.device_bytes is None:
        return part.device
    unit = next((shift for shift in UNITS if part.device_bytes % (1 << shift) == 0), 0)
    return f"{part.device} {part.device_bytes >> unit}{UNITS[unit]}"


def same_for_all(part):
    named = {**part.fixed, **part.settings, "device": device_text(part)}
    return ", ".join(f"{name} {value}" for name, value in named.items() if not isinstance(value, dict))


def section(part):
    text = f"<p>{esc(part.text)}</p>" if part.text else ""
    text += f"<p>The same in all cells: {esc(same_for_all(part))}.</p>"
    if not part.is_whole:
        text += f'<p class="note">Not all of it: {part.done} of {part.planned} runs were done.</p>'
    plots = draw_all(part, part.plots)
    if not part.cells:
        return f'<h2>{esc(part.name)}</h2>{text}<p class="note">No run of this part has figures.</p>'
    open_ = ' open="open"' if len(part.cells) <= 24 else ""
    return (f"<h2>{esc(part.name)}</h2>{text}{plots}<details{open_}><summary>All {len(part.cells)} cells: median, and least to "
            f"greatest of {part.repetitions} runs{f' of {part.seconds:g} s' if part.seconds else ''}</summary>{cells_table(part)}</details>")


def limits_section(results):
    rows = [[esc(part.of or results.experiments[0].name), esc(cell.factors["limit"]), str(len(cell.runs)),
             ranged(cell.range("iops")), ranged(cell.range("cpu_us"))]
            for part in results.limits for cell in part.cells.values()]
    if not rows:
        return '<h2>Limits of the machine</h2><p class="note">None was measured.</p>'
    return ("<h2>Limits of the machine</h2><p>What this machine does at most, measured among the runs of the part that is named "
            "and in rounds of it. Figures of two days are only comparable as far as these are the same. Those by fio are "
            "made by programs of others; a change of our own code may be in the rest.</p>"
            + table(["among the runs of", "what", "runs", "operations/s", "CPU of the measuring thread (µs/operation)"], rows, 2))


def conditions_section(results):
    rows = [[esc(name), esc(value)] for name, value in results.conditions.items()]
    return "<h2>Conditions</h2>" + table(["what", "value"], rows, 2)


def sureness_section(results):
    rows = []
    for part in results.experiments:
        for name in part.shown_metrics():
            several = sorted(spread(cell.values(name)) for cell in part.cells.values() if len(cell.values(name)) > 1)
            if several:
                rows.append([esc(part.name), esc(METRICS[name].label), str(part.repetitions),
                             f"{several[len(several) // 2] * 100:.1f} %", f"{several[-1] * 100:.1f} %"])
    return ("<h2>How sure</h2><p>Every run began with a fresh store. Each repetition is a round in which every cell has its turn "
            f"in random order (seed {results.seed}), so that what else the machine did met all alike. Spread is (greatest - least) / "
            "median of the runs of one cell: a difference smaller than that means little by itself. Differences over all "
            "cells are compared round by round; n rounds of the same sign happen by chance with p = 2 / 2<sup>n</sup>, "
            "so that three rounds cannot say more than p = 0.25, and six say 0.03. Where many figures are compared, one in "
            "so many seems to differ by chance: with six rounds one in 32.</p>"
            + table(["part", "figure", "runs", "spread of the middle cell", "of the worst cell"], rows, 2) + lost_list(results))


def lost_list(results):
    found = ""
    if results.unfinished():
        found += f'<p class="note">{esc(results.unfinished())}</p>'
    found += losses("runs have no figures", [(run, why_lost(run)) for run in results.lost()])
    found += losses("runs are without a ratio to the raw device", results.without_ratio())
    if found or all(part.planned is not None for part in results.parts):
        return found or "<p>No run failed, none was left out.</p>"
    return "<p>None of these runs failed. How many there should be was not written down.</p>"


def losses(what, lost):
    """Runs and why, by name."""
    if not lost:
        return ""
    items = "".join(f"<li>{esc(run['part'])}: {esc(name_of(run['factors']))}, repetition {run['repetition']}: {esc(why)}</li>"
                    for run, why in lost[:LOST_MAX])
    more = f"<li>and {len(lost) - LOST_MAX} more</li>" if len(lost) > LOST_MAX else ""
    return f'<p class="note">{len(lost)} {what}:</p><ul>{items}{more}</ul>'


def order_section(results):
    rows = [[str(run["order"]), esc(run["part"]), str(run["repetition"]),
             esc(", ".join(f"{factor} {label}" for factor, label in run["factors"].items())),
             esc(why_lost(run))] for run in results.runs]
    return ("<details><summary>All runs, in the order in which they were done</summary>"
            + table(["nr", "part", "round", "cell", "lost"], rows, 5) + "</details>")


def head(results):
    short = ('<p class="note">Short form: few and short runs, for a look at how things are. What is to be believed is run without '
             "<code>--short</code>.</p>" if results.is_short else "")
    if results.unfinished():
        short += f'<p class="note">{esc(results.unfinished())} What is said below is of those.</p>'
    if results.conditions.get("free memory") == hostmem.GOES_BACK:
        short += f'<p class="note">{esc(hostmem.WARNING)}</p>'
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(results.began))
    return (f'<h1>{esc(results.title)}</h1><p class="question">{esc(results.question)}</p>{short}'
            f"<p>Measured {when}, in {results.seconds / 60:.1f} minutes; {esc(results.conditions.get('processors', ''))}, "
            f"{esc(results.conditions.get('kernel', ''))}.</p>")


def answer_section(results):
    found = [answers.of_part(part) for part in results.experiments]
    lines = [line for sentences, _ in found for line in sentences]
    tables = "".join(one for _, one in found)
    if not lines and not tables:
        return ""
    return f"<h2>Answer</h2><ul>{''.join(f'<li>{esc(line)}</li>' for line in lines)}</ul>{tables}"


def write(where, results):
    body = (head(results) + answer_section(results) + "".join(section(part) for part in results.experiments)
            + limits_section(results) + conditions_section(results) + sureness_section(results) + order_section(results))
    with open(os.path.join(where, "report.html"), "w", encoding="utf-8") as out:
        out.write(page(results.title, body))


def write_index(path, folders):
    """The page of several experiments: folders are (name, results)."""
    parts = ["<h1>Experiments</h1>"]
    done = [results for _, results in folders]
    if done:
        conditions = done[0].conditions
        parts.append(f"<p>{esc(conditions.get('processors', ''))}, {esc(conditions.get('kernel', ''))}, {esc(conditions.get('lapis', ''))}, "
                     f"commit {esc(conditions.get('commit', ''))}; {sum(one.seconds for one in done) / 60:.1f} minutes in all.</p>")
    if any(one.is_short for one in done):
        parts.append('<p class="note">Short form: few and short runs, for a look at how things are.</p>')
    parts.append("<ol>" + "".join(f'<li><a href="#{esc(name)}">{esc(results.title)}</a></li>'
                                  for name, results in folders) + "</ol>")
    for name, results in folders:
        parts.append(index_entry(name, results))
    with open(path, "w", encoding="utf-8") as out:
        out.write(page("Experiments", "".join(parts)))


def index_entry(name, results):
    lines = [line for part in results.experiments for line in answers.of_part(part)[0]]
    plot = next((drawn for part in results.experiments for spec in part.plots if (drawn := draw_all(part, [spec]))), "")
    lost = len(results.failed())
    note = f'<p class="note">{lost} runs failed: see the report.</p>' if lost else ""
    if results.unfinished():
        note += f'<p class="note">{esc(results.unfinished())}</p>'
    return (f'<h2 id="{esc(name)}">{esc(results.title)}</h2><p class="question">{esc(results.question)}</p>{note}'
            f"<ul>{''.join(f'<li>{esc(line)}</li>' for line in lines)}</ul>{plot}"
            f'<p><a href="{esc(name)}/report.html">All tables and plots, limits, conditions and how sure</a></p>')
