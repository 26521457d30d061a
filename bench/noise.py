# SPDX-License-Identifier: Apache-2.0
"""Whether a difference exceeds the noise, with as few runs as there are.

The test is Mann and Whitney's, exact: of all ways to deal the values to the two sides, in how many do the
ranks lie at least as far apart? It asks nothing of how times are distributed, which are never normal. What it
cannot do is told: with three runs on each side the least p there is is 0.10.
"""
import itertools
import math
import statistics

ALPHA = 0.05
WAYS_MAX = 50000


def median(values):
    return statistics.median(values)


def spread(values):
    """(greatest - least) / median: what a single further run may be off by."""
    middle = median(values)
    return (max(values) - min(values)) / abs(middle) if middle else 0.0


def ranks(values):
    """1 for the least; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    found = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end < len(order) and values[order[end]] == values[order[at]]:
            end += 1
        for i in order[at:end]:
            found[i] = (at + 1 + end) / 2
        at = end
    return found


def p_by_counting(all_ranks, cnt, far):
    middle = cnt * (len(all_ranks) + 1) / 2
    hits = ways = 0
    for chosen in itertools.combinations(all_ranks, cnt):
        ways += 1
        hits += abs(sum(chosen) - middle) >= far - 1e-9
    return hits / ways


def p_by_normal(all_ranks, cnt, far):
    """For many values; the variance takes equal ranks into account."""
    total = len(all_ranks)
    mean = (total + 1) / 2
    spread_of_ranks = sum((rank - mean) ** 2 for rank in all_ranks) / (total - 1)
    deviation = math.sqrt(spread_of_ranks * cnt * (total - cnt) / total)
    return math.erfc(max(0.0, far - 0.5) / deviation / math.sqrt(2)) if deviation > 0 else 1.0


def p_value(ours, other):
    """How often chance alone makes two such samples of one kind differ as much, in either direction."""
    all_ranks = ranks([*ours, *other])
    cnt = len(ours)
    far = abs(sum(all_ranks[:cnt]) - cnt * (len(all_ranks) + 1) / 2)
    if math.comb(len(all_ranks), cnt) <= WAYS_MAX:
        return p_by_counting(all_ranks, cnt, far)
    return p_by_normal(all_ranks, cnt, far)


def p_least(ours_cnt, other_cnt):
    """The least p that so many values can give."""
    return min(1.0, 2 / math.comb(ours_cnt + other_cnt, ours_cnt))


def distance(ratio):
    """How far from 1, equally far for twice as much and for half: what a rate loses a time gains."""
    return abs(math.log(ratio)) if 0 < ratio < math.inf else math.inf


class Difference:
    """Of two samples of one figure, ours against another."""

    SAME, WITHIN, LIKELY, BEYOND, UNKNOWN = "equal", "within", "likely", "beyond", "unknown"

    def __init__(self, ours, other, drift=0.0):
        """drift: by how much the machine itself differed between the two, as a distance()."""
        self.cnts = len(ours), len(other)
        self.drift = drift
        base = median(other)
        self.ratio = median(ours) / base if base else (1.0 if median(ours) == base else math.inf)
        self.p = p_value(ours, other)
        self.least = p_least(*self.cnts)
        self.is_apart = min(ours) > max(other) or max(ours) < min(other)
        self.verdict = self.judge(set(ours) == set(other) and len(set(ours)) == 1)

    def judge(self, is_same):
        if is_same:
            return self.SAME
        if min(self.cnts) < 2:
            return self.UNKNOWN
        if self.is_drift:
            return self.WITHIN
        if self.p <= ALPHA:
            return self.BEYOND
        return self.LIKELY if self.is_apart and self.least > ALPHA else self.WITHIN

    @property
    def is_drift(self):
        return 0 < self.drift and distance(self.ratio) <= self.drift

    @property
    def percent(self):
        return (self.ratio - 1) * 100

    def text(self):
        ours, other = self.cnts
        tested = f"p = {self.p:.2g}, n = {ours} and {other}"
        if self.verdict == self.SAME:
            return f"equal in all runs (n = {ours} and {other})"
        if self.verdict == self.UNKNOWN:
            return "one run cannot say"
        if self.verdict == self.BEYOND:
            return f"exceeds the noise ({tested})"
        if self.verdict == self.LIKELY:
            return f"likely: every run of one side is beyond all of the other, which is as much as so few can say ({tested})"
        why = f"the machine drifted by a factor of {math.exp(self.drift):.2f}" if self.is_drift else tested
        return f"within the noise ({why})"


def sign_p(aboves, cnt):
    """How often a fair coin falls at least as one-sidedly."""
    far = max(aboves, cnt - aboves)
    ways = sum(math.comb(cnt, i) for i in range(far, cnt + 1)) * 2
    return min(1.0, ways / 2**cnt)


TIMES = 3.0  # from here on a ratio is said as so many times


def change(ratio, *ends):
    """A ratio as people say it, and those of the ends after it: in per cent, but 40 times is not +3900 %."""
    if ratio >= TIMES:
        return f"{ratio:.3g} times", " to ".join(f"{one:.3g}" for one in ends)
    return f"{(ratio - 1) * 100:+.1f} %", " to ".join(f"{(one - 1) * 100:+.1f}" for one in ends)


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


class Overall:
    """One choice against the baseline over all cells, round by round: what both met in one round is compared,
    so that what the machine did meanwhile counts for both."""

    def __init__(self, pairs_by_round, compared=0, cells=0):
        """A list of (ours, baseline) for each round, which come from so many of so many cells: the others have none
        to be compared with."""
        self.compared, self.cells = compared, cells
        self.rounds = [geometric_mean([ours / base for ours, base in pairs]) for pairs in pairs_by_round if pairs]
        self.ratio = median(self.rounds)
        self.aboves = sum(one > 1 for one in self.rounds)
        self.unequal = sum(one != 1 for one in self.rounds)  # a round without a difference says nothing
        self.p = sign_p(self.aboves, self.unequal)

    @property
    def is_one_sided(self):
        return self.aboves in (0, self.unequal)

    @property
    def is_sure(self):
        return self.is_one_sided and self.p <= ALPHA

    @property
    def of_cells(self):
        """To be added to what is said, where not all cells are in it."""
        return f" in {self.compared} of {self.cells} cells" if self.compared < self.cells else ""

    def text(self):
        return self.said() + self.of_cells

    def said(self):
        cnt = len(self.rounds)
        middle, ends = change(self.ratio, min(self.rounds), max(self.rounds))
        if all(one == 1 for one in self.rounds):
            return "no difference at all"
        if cnt == 1:
            return f"{middle} in one round, which cannot say how sure"
        if not self.is_one_sided:
            unit = " %" if self.ratio < TIMES else " times"
            return f"no sure difference ({ends}{unit} in {cnt} rounds)"
        perhaps = "" if self.is_sure else "perhaps "
        return f"{perhaps}{middle} ({ends} in {cnt} rounds, p = {self.p:.2g})"
