# SPDX-License-Identifier: Apache-2.0
"""Plots as SVG for our reports: bars with their spread, lines, percentile curves, time lines, heat maps.

Colours are variables of the page (--s0 ... for series, --ink, --dim, --grid), so that one plot reads well on light
and on dark ground. Every axis has a name with its unit. What has several series comes with a legend in HTML, for
text in SVG does not wrap.
"""
import html
import math

SERIES = 8
DASHES = ("", "6 3", "2 3", "8 3 2 3")
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 30, 46
CHAR = 6.6  # width of a letter of 12 px, about
LABEL_LINES = 3


def esc(text):
    return html.escape(str(text))


def colour(number):
    return f"var(--s{number % SERIES})"


def dash(number):
    style = DASHES[number // SERIES % len(DASHES)]
    return f' stroke-dasharray="{style}"' if style else ""


def short_number(value):
    """Three digits: 1.5k, 12M, 0.04."""
    size = abs(value)
    if size == 0:
        return "0"
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= limit * 0.9995:
            return trim(f"{value / limit:.3g}") + letter
    if size < 0.001:
        return f"{value:.1e}"
    return trim(f"{value:.3g}")


def trim(text):
    if "e" in text:
        return f"{float(text):.0f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def nice_step(span, wanted):
    raw = span / max(1, wanted)
    power = 10 ** math.floor(math.log10(raw))
    for times in (1, 2, 2.5, 5, 10):
        if raw <= times * power:
            return times * power
    return 10 * power


class Scale:
    """Values to pixels, linear or logarithmic, with ticks."""

    def __init__(self, low, high, begin, end, is_log=False, wanted=5):
        self.is_log = is_log and low > 0
        self.begin, self.end = begin, end
        if self.is_log:
            self.set_log(low, high)
        else:
            self.set_linear(low, high, wanted)

    def set_linear(self, low, high, wanted):
        high = high if high > low else low + (abs(low) or 1)
        step = nice_step(high - low, wanted)
        self.low = math.floor(low / step + 1e-9) * step
        self.high = math.ceil(high / step - 1e-9) * step
        cnt = round((self.high - self.low) / step)
        self.ticks = [self.low + i * step for i in range(cnt + 1)]

    def set_log(self, low, high):
        high = max(high, low * 1.5)
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1,) if len(powers) > 4 else (1, 2, 5)
        every = [times * 10.0 ** power for power in powers for times in steps]
        self.low = max([one for one in every if one <= low * 1.0001], default=low)
        self.high = min([one for one in every if one >= high * 0.9999], default=high)
        self.ticks = [one for one in every if self.low <= one <= self.high * 1.0001]

    def __call__(self, value):
        if self.is_log:
            value = max(value, self.low)
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)


class Canvas:
    def __init__(self, width, height, label):
        self.width, self.height = width, height
        self.parts = [f'<svg viewBox="0 0 {width:g} {height:g}" style="max-width:{width:g}px" role="img" '
                      f'xmlns="http://www.w3.org/2000/svg" aria-label="{esc(label)}">']

    def add(self, text):
        self.parts.append(text)

    def line(self, x1, y1, x2, y2, style, width=1.0):
        self.add(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" style="stroke:{style}" '
                 f'stroke-width="{width:g}"/>')

    def text(self, x, y, text, anchor="middle", css="t", turn=None):
        rotated = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn is not None else ""
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{css}"{rotated}>{esc(text)}</text>')

    def path(self, points, number, width=2.0, opacity=1.0):
        at = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.add(f'<polyline points="{at}" fill="none" style="stroke:{colour(number)}" stroke-width="{width:g}" '
                 f'stroke-linejoin="round" opacity="{opacity:g}"{dash(number)}/>')

    def dot(self, x, y, number, radius=3.0, tip=""):
        title = f"<title>{esc(tip)}</title>" if tip else ""
        self.add(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" style="fill:{colour(number)}">{title}</circle>')

    def done(self):
        return "".join([*self.parts, "</svg>"])


class Frame(Canvas):
    """A canvas with a plot area and its two axes."""

    def __init__(self, size, label, x_name, y_name, bottom=BOTTOM):
        super().__init__(size[0], size[1], label)
        self.x0, self.x1 = LEFT, size[0] - RIGHT
        self.y0, self.y1 = size[1] - bottom, TOP
        self.text((self.x0 + self.x1) / 2, size[1] - 8, x_name, css="t name x-axis")
        # Above the axis, not along it: a long name stays whole, and nobody has to tilt the head.
        self.text(4, 13, y_name, "start", css="t name y-axis")

    def draw_y(self, scale):
        for tick in scale.ticks:
            y = scale(tick)
            self.line(self.x0, y, self.x1, y, "var(--grid)")
            self.text(self.x0 - 6, y + 4, short_number(tick), "end")
        self.line(self.x0, self.y0, self.x1, self.y0, "var(--dim)")

    def draw_x(self, scale, label=short_number):
        last = -1e9
        for tick in scale.ticks:
            x, text = scale(tick), label(tick)
            if x - last < CHAR * (len(text) + 1.5):
                continue
            last = x
            self.line(x, self.y0, x, self.y0 + 4, "var(--dim)")
            self.text(x, self.y0 + 18, text)


def wrap(text, chars):
    """Lines of at most so many letters, cut where words end if that can be."""
    lines, line = [], ""
    for word in str(text).split():
        while len(word) > chars:
            head, word = word[:chars], word[chars:]
            if line:
                lines.append(line)
            lines.append(head)
            line = ""
        if line and len(line) + 1 + len(word) > chars:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line] if line else lines


def legend(names):
    """Of a plot's series, in HTML."""
    if len(names) < 2:
        return ""
    items = "".join(f'<li><svg width="22" height="12" aria-hidden="true"><line x1="1" y1="6" x2="21" y2="6" '
                    f'style="stroke:{colour(i)}" stroke-width="4"{dash(i)}/></svg>{esc(name)}</li>'
                    for i, name in enumerate(names))
    return f'<ul class="legend">{items}</ul>'


def y_scale(frame, values, is_log, from_zero):
    low, high = min(values), max(values)
    is_log = is_log and low > 0
    return Scale(0 if from_zero and not is_log and low >= 0 else low, high, frame.y0, frame.y1, is_log)


# --- The plots: each value is (median, least, greatest) ---------------------------------------------------------


def bars(groups, series, values, x_name, y_name, label, size=(880, 300), is_log=False):
    """values[group][series]; None where there is none. The thin line is the range of all runs. A logarithmic
    axis has no zero that a bar could stand on: there are points on it."""
    room = (size[0] - LEFT - RIGHT) / max(1, len(groups))
    lines = [wrap(group, max(4, int(room / CHAR))) for group in groups]
    deep = min(LABEL_LINES, max(len(one) for one in lines))
    frame = Frame((size[0], size[1] + 14 * (deep - 1)), label, x_name, y_name, BOTTOM + 14 * (deep - 1))
    flat = [value for row in values for value in row if value is not None]
    if not flat:
        return ""
    scale = y_scale(frame, [one for value in flat for one in value], is_log, True)
    frame.draw_y(scale)
    width = min(46, room * 0.8 / max(1, len(series)))
    for g, group in enumerate(groups):
        middle = frame.x0 + room * (g + 0.5)
        for i, line in enumerate(lines[g][:LABEL_LINES]):
            frame.text(middle, frame.y0 + 18 + 14 * i, line)
        for s, name in enumerate(series):
            if values[g][s] is None:
                continue
            x = middle + (s - len(series) / 2) * width
            draw_bar(frame, scale, x, width, s, values[g][s], f"{group}, {name}")
    return frame.done()


def draw_bar(frame, scale, x, width, number, value, tip):
    mid, low, high = value
    y, middle = scale(mid), x + width / 2
    tip = f"{tip}: {short_number(mid)} ({short_number(low)} to {short_number(high)})"
    if scale.is_log:
        frame.dot(middle, y, number, 5, tip)
    else:
        frame.add(f'<rect x="{x + 1:.1f}" y="{min(y, frame.y0):.1f}" width="{max(1, width - 2):.1f}" '
                  f'height="{abs(frame.y0 - y):.1f}" style="fill:{colour(number)}"><title>{esc(tip)}</title></rect>')
    frame.line(middle, scale(low), middle, scale(high), "var(--ink)", 1.5)
    for end in (low, high):
        frame.line(middle - 3, scale(end), middle + 3, scale(end), "var(--ink)", 1.5)


def lines(ticks, series, values, x_name, y_name, label, size=(430, 270), is_log=False):
    """values[series][tick]; the x axis is a row of labels at equal distances, as powers of two want it."""
    frame = Frame(size, label, x_name, y_name)
    flat = [one for row in values for value in row if value is not None for one in value]
    if not flat:
        return ""
    scale = y_scale(frame, flat, is_log, not is_log)
    frame.draw_y(scale)
    step = (frame.x1 - frame.x0) / len(ticks)
    every = max(1, math.ceil(max(len(str(tick)) + 1 for tick in ticks) * CHAR / step))
    at = [frame.x0 + step * (i + 0.5) for i in range(len(ticks))]
    for i, tick in enumerate(ticks):
        if i % every == 0:
            frame.text(at[i], frame.y0 + 18, tick)
    for s, row in enumerate(values):
        known = [(at[i], value) for i, value in enumerate(row) if value is not None]
        for x, (mid, low, high) in known:
            frame.line(x, scale(low), x, scale(high), colour(s), 1.5)
            frame.dot(x, scale(mid), s, tip=f"{series[s]}: {short_number(mid)} ({short_number(low)} to {short_number(high)})")
        frame.path([(x, scale(value[0])) for x, value in known], s)
    return frame.done()


def percentiles(series, curves, label, size=(430, 270)):
    """curves[series]: points (percent, microseconds). The greatest stands at the end, whatever share it is."""
    frame = Frame(size, label, "share of operations (%)", "latency (µs)")
    places = {"0": 1.0, "50": 0.5, "90": 0.1, "99": 0.01, "99.9": 0.001, "99.99": 0.0001}
    last = 0.00001
    points = [[(max(last, 1 - percent / 100), us) for percent, us in curve if us > 0] for curve in curves]
    flat = [us for curve in points for _, us in curve]
    if not flat:
        return ""
    scale = y_scale(frame, flat, True, False)
    frame.draw_y(scale)
    least = min(share for curve in points for share, _ in curve)
    begin = max(share for curve in points for share, _ in curve)
    across = Scale(0, math.log10(begin / least) or 1, frame.x0, frame.x1 - 14)
    across.low, across.high = 0, math.log10(begin / least) or 1
    for name, share in places.items():
        if least * 1.01 < share <= begin * 1.001:
            x = across(math.log10(begin / share))
            frame.line(x, frame.y0, x, frame.y0 + 4, "var(--dim)")
            frame.text(x, frame.y0 + 18, name)
    if least <= last:
        frame.text(frame.x1 - 14, frame.y0 + 18, "max")
    for s, curve in enumerate(points):
        placed = [(across(math.log10(begin / share)), scale(us)) for share, us in curve]
        frame.path(placed, s)
        for (x, y), (_, us) in zip(placed, curve):
            if len(curve) <= 12:
                frame.dot(x, y, s, 2.5, f"{series[s]}: {short_number(us)} µs")
    return frame.done()


def time_lines(series, runs, y_name, label, size=(430, 270)):
    """runs[series]: a list of lists of points (seconds, value), one for each run."""
    frame = Frame(size, label, "time (s)", y_name)
    flat = [point for several in runs for points in several for point in points]
    if not flat:
        return ""
    scale = y_scale(frame, [value for _, value in flat], False, True)
    across = Scale(0, max(t for t, _ in flat), frame.x0, frame.x1)
    frame.draw_y(scale)
    frame.draw_x(across)
    for s, several in enumerate(runs):
        for points in several:
            frame.path([(across(t), scale(value)) for t, value in points], s, 1.5, 0.8)
    return frame.done()


def heat(columns, rows, values, names, label, is_ratio=False):
    """values[row][column], a number or None. For ratios the middle of the colours is 1, and the same distance
    above and below is as strong; else the strongest colour is the greatest value."""
    cell_w, cell_h, left, top = 58, 30, 88, 28
    width = max(left + cell_w * len(columns), left + CHAR * len(names[0])) + 10
    canvas = Canvas(width, top + cell_h * len(rows) + 36, label)
    flat = [value for row in values for value in row if value is not None and value > 0]
    if not flat:
        return ""
    for c, column in enumerate(columns):
        canvas.text(left + cell_w * (c + 0.5), top - 8, column)
    for r, row in enumerate(rows):
        canvas.text(left - 8, top + cell_h * (r + 0.5) + 4, row, "end")
        for c in range(len(columns)):
            draw_cell(canvas, (left + cell_w * c, top + cell_h * r, cell_w, cell_h), values[r][c], flat, is_ratio)
    canvas.text(left, top + cell_h * len(rows) + 24, names[0], "start", css="t name x-axis")
    canvas.text(4, top - 8, names[1], "start", css="t name y-axis")
    return canvas.done()


def draw_cell(canvas, place, value, flat, is_ratio):
    x, y, width, height = place
    if value is None or value <= 0:
        canvas.text(x + width / 2, y + height / 2 + 4, "–")
        return
    if is_ratio:
        most = max(abs(math.log(one)) for one in flat) or 1
        share, css = abs(math.log(value)) / most, "more" if value >= 1 else "less"
    else:
        span = math.log(max(flat) / min(flat)) or 1
        share, css = 0.1 + 0.9 * math.log(value / min(flat)) / span, "more"
    text = f"{value:.2f}" if is_ratio else short_number(value)
    canvas.add(f'<rect x="{x + 1}" y="{y + 1}" width="{width - 2}" height="{height - 2}" rx="2" class="{css}" '
               f'fill-opacity="{share * 0.75:.2f}"/>')
    canvas.text(x + width / 2, y + height / 2 + 4, text, css="t strong")
