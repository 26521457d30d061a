# SPDX-License-Identifier: Apache-2.0
"""What the figures answer, in sentences, each with how sure it is. Used by the report of one experiment."""
import html

import svg
from metrics import METRICS
from noise import change, median
from results import labels_of

HEADLINES = 3  # figures of which a sentence is made; the table has all
NAMED_MAX = 9  # cells that a sentence names; it says how many there are


def of_part(part):
    """(sentences, a table in HTML or "")"""
    lines, tables = [], []
    for factor, base in part.baseline.items():
        more, table = against(part, factor, str(base))
        lines += more
        tables.append(table)
    for claim in part.claims:
        if "cross" in claim:
            more, table = crossing(part, claim)
            lines += more
            tables.append(table)
        else:
            lines += within(part, claim)
    return lines, "".join(tables)


# --- Against a baseline -----------------------------------------------------------------------------------------


def against(part, factor, base):
    """Each choice of the factor against the baseline, over all cells, for each figure."""
    labels = [label for label in part.factors.get(factor, []) if label != base]
    metrics = part.shown_metrics()
    rows, lines = [], []
    for label in labels:
        found = [part.overall(factor, label, base, metric) for metric in metrics]
        rows.append((label, found))
        said = [f"{METRICS[metric].label} {one.text()}" for metric, one in list(zip(metrics, found))[:HEADLINES] if one]
        if said:
            lines.append(f"{part.name}: {label} against {base}: {'; '.join(said)}.")
    if not any(any(found) for _, found in rows):
        return [], ""
    return lines, against_table(part, factor, base, metrics, rows)


def against_table(part, factor, base, metrics, rows):
    heads = "".join(f"<th>{html.escape(METRICS[metric].label)}</th>" for metric in metrics)
    body = ""
    for label, found in rows:
        cells = "".join(f'<td class="wrap">{short(one)}</td>' for one in found)
        body += f'<tr><td class="key">{html.escape(label)}</td>{cells}</tr>'
    return (f"<h3>{html.escape(part.name)}: {html.escape(factor)}, each against {html.escape(base)}, over all cells that both have</h3>"
            f'<div class="scroll"><table><thead><tr><th class="key">{html.escape(factor)}</th>{heads}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>")


def short(one):
    if one is None:
        return "–"
    middle, ends = change(one.ratio, min(one.rounds), max(one.rounds))
    sure = "" if one.is_sure else "perhaps " if one.is_one_sided and len(one.rounds) > 1 else "not sure: "
    if all(value == 1 for value in one.rounds):
        return "the same"
    return f"{sure}{middle} <small>{ends}{one.of_cells}</small>"


# --- Claims -----------------------------------------------------------------------------------------------------


def within(part, claim):
    """That one choice is nowhere worse than the best of others by more than so many per cent. It is broken in a cell
    where that is so in every round; where it is so in the middle of them, it may be."""
    metric, factor, value = claim["metric"], claim["factor"], str(claim["value"])
    limit = float(claim.get("within", 5))
    better = METRICS[metric].better or 1
    worst, broken, doubtful, cnt, blind = None, 0, 0, 0, []
    for factors in claimed(part, claim):
        cell = part.cell(factors)
        ratios = ratios_to_best(part, cell, claim, better) if cell is not None else []
        if not ratios:
            blind.append(others_of(factors, factor))
            continue
        cnt += 1
        behind = (1 - median(ratios)) * 100
        if worst is None or behind > worst[0]:
            worst = (behind, cell, ratios)
        if all((1 - one) * 100 > limit for one in ratios):
            broken += 1
        elif behind > limit:
            doubtful += 1
    among = " and ".join(labels_of(claim["among"]))
    head = f"{part.name}: {factor} {value} within {limit:g} % of the better of {among} in {METRICS[metric].label}: "
    if worst is None:
        return [f"{head}cannot be said, for none of {len(blind)} cells has figures of both."] if blind else []
    tail = (f"the worst is {worst[0]:.1f} % behind ({others_of(worst[1].factors, factor)}; in each round "
            f"{', '.join(f'{(1 - one) * 100:.1f}' for one in worst[2][:9])})")
    if blind:
        more = f" and {len(blind) - NAMED_MAX} more" if len(blind) > NAMED_MAX else ""
        tail += (f"; nothing is known of {len(blind)} of {cnt + len(blind)} cells, which have no figures of both: "
                 f"{'; '.join(blind[:NAMED_MAX])}{more}")
    said = [f"broken in {broken} of {cnt} cells, in every round"] if broken else []
    said += [f"in {doubtful} of {cnt} cells it depends on the round"] if doubtful else []
    holds = f"holds in all {cnt} cells{' that have figures' if blind else ''}"
    return [f"{head}{'; '.join(said) or holds}; {tail}."]


def claimed(part, claim):
    """The factors of all cells that the claim is about, also of those of which every run is lost: cells of the value
    that there should be beside at least one of the others."""
    factor = claim["factor"]
    planned = part.planned_cells()
    return [one for one in planned if one.get(factor) == str(claim["value"]) and
            any({**one, factor: label} in planned for label in labels_of(claim["among"]))]


def others_of(factors, factor):
    return ", ".join(f"{name} {label}" for name, label in factors.items() if name != factor) or "all"


def ratios_to_best(part, cell, claim, better):
    """In each round: how much of the better of the others was reached; above 1 is better than both. The better one
    is that of all rounds together: the best of several in each round is better than any of them by their noise."""
    metric = claim["metric"]
    others = [part.twin(cell, claim["factor"], label) for label in labels_of(claim["among"])]
    others = [one for one in others if one is not None and one.values(metric)]
    if not others:
        return []
    best = (max if better > 0 else min)(others, key=lambda one: one.range(metric)[0])
    found = []
    for run in cell.runs:
        ours, theirs = run["metrics"].get(metric), best.of_round(metric, run["repetition"])
        if ours and theirs:
            found.append(ours / theirs if better > 0 else theirs / ours)
    return found


def crossing(part, claim):
    """Where, along one factor, the one of two choices stops to be the better one: (sentences, a table)."""
    first, second = labels_of(claim["cross"])
    metric, factor, along = claim["metric"], claim["factor"], claim["along"]
    rest = [name for name in part.varied() if name not in (factor, along)]
    rows = {}
    for cell in part.find(**{factor: first}):
        found = lead_of(part, cell, factor, second, metric)
        if found is not None:
            rows.setdefault(tuple(cell.factors.get(name) for name in rest), {})[cell.factors[along]] = found
    if not rows:
        return [], ""
    leads = [lead for row in rows.values() for lead, _ in row.values()]
    line = (f"{part.name}: by {METRICS[metric].label} {first} is better in {leads.count(1)} of {len(leads)} cells, {second} in "
            f"{leads.count(-1)}; in {leads.count(0)} their runs overlap.")
    blind = len(claimed(part, {"factor": factor, "value": first, "among": [second]})) - len(leads)
    if blind > 0:
        line += f" Of these nothing is known of {blind} more, which have no figures of both."
    return [line], crossing_table(part, rest, along, rows, (f"{factor} {first}", second, METRICS[metric].label))


def lead_of(part, cell, factor, second, metric):
    """(1 where every run is better than all of the other's, -1 where worse, 0 for neither; the ratio)"""
    twin = part.twin(cell, factor, second)
    if twin is None or not cell.values(metric) or not twin.values(metric):
        return None
    ours, theirs = cell.range(metric), twin.range(metric)
    is_apart = ours[1] > theirs[2] or ours[2] < theirs[1]
    sign = (METRICS[metric].better or 1) * (1 if ours[0] > theirs[0] else -1)
    return sign if is_apart else 0, ours[0] / theirs[0] if theirs[0] else 1.0


def crossing_table(part, rest, along, rows, names):
    columns = [label for label in part.factors[along] if any(label in row for row in rows.values())]
    heads = "".join(f"<th>{html.escape(along)} {html.escape(label)}</th>" for label in columns)
    keys = "".join(f'<th class="key">{html.escape(name)}</th>' for name in rest)
    body = ""
    for labels, row in rows.items():
        cells = "".join(f"<td>{lead_text(row.get(label))}</td>" for label in columns)
        body += "<tr>" + "".join(f'<td class="key">{html.escape(label)}</td>' for label in labels) + cells + "</tr>"
    first, second, label = (html.escape(name) for name in names)
    return (f"<h3>{html.escape(part.name)}: {first} divided by {second}, {label}</h3>"
            f"<p>Marked where every run of the one is better than all of the other: ▲ {first}, ▼ {second}.</p>"
            f'<div class="scroll"><table><thead><tr>{keys}{heads}</tr></thead><tbody>{body}</tbody></table></div>')


def lead_text(found):
    if found is None:
        return ""
    sign, ratio = found
    return f"{svg.short_number(ratio)} {'▲' if sign > 0 else '▼' if sign < 0 else '·'}"
