"""What a pass costs on this machine, by its number of rows, and how well guesses come true.

On CPUs the cost of a pass is a staircase (kernels work in fours), so it is measured, not modelled. Knows a cache to
decode with; nothing about drafters.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specui.config import DRAFT_ROWS, MAX_DRAFT_TOKENS_LIMIT
from specui.engine.drafting import TokenCache

CALIBRATION_ROWS = (1, 16, 4, 8, 32, 2, 3, 6, 12)
"""What is measured, the sizes that tell most first: a large model may leave no time for all."""
LEAST_ROOM = 16
"""Tokens that must fit for a calibration to be worth it."""
CALIBRATION_SECONDS = 0.6
CALIBRATION_LIMIT_SECONDS = 2.0
"""Rows are measured twice, again until the first time is spent, never past the second; the least reading counts."""

SINGLE_PASSES = 6
FEW_PASSES = 3
FEW_SECONDS = 1.0
"""Readings of a pass of one row; where only the pace is wanted fewer do, and no more once this time is spent."""

MOST_DRIFT = 4.0
"""Costs that are kept count as another machine's where one row takes so many times, or that part, of what it took."""

LEARNING, QUICK_LEARNING = 0.15, 3.0
"""A reading moves a price by this share of the difference; by 1 / (so much + the readings before) if that is more."""
MOST_SURPRISE = 2.0
"""A pass counts for at most so many times what is expected of it."""

DOUBT = 0.998
"""What is left of a size's price after each pass that was padded in its place, and of one nearly chosen that is hardly
known."""
CALIBRATED_READINGS = 2.0
SURE_READINGS = 4.0
"""A size that was read so often is known; MOST_READINGS are remembered."""
MOST_READINGS = 8.0

ATTENTION_PRICE = 7.0
"""An operation on the cache takes so many times what one on the weights does in a pass of many rows (CPUs: 5 to 12)."""
LEAST_WEIGHTS = 0.2
"""At least this share of a measured pass is held to be work on the weights."""
LENGTH_STEP = 16
"""The tables are worked out anew whenever the text has grown by so many tokens."""

MOST_ROWS = MAX_DRAFT_TOKENS_LIMIT + 1


class PassCosts:
    """Seconds of a pass by number of rows and tokens in front of it.

    Measured points, straight lines between them; and each row takes `cell_seconds` more for every token in front, since
    it attends to all of them. A pass over a draft is never held to cost more than a longer one: `padded` says to which
    length it is padded. Passes of one row are not padded, since other kernels could round them otherwise. Readings of
    one row move a drift that scales all alike (the machine got busier or clocked down); readings of more rows move
    their own point and, by its share of the pass, what attending costs. Choices depend on ratios only, which a short
    disturbance must not bend.

    A price that is too low corrects itself, since the size is used and read. One that is too high would not; so a size
    that was nearly chosen and is hardly known is held a little cheaper each time.
    """

    def __init__(self, seconds_by_rows: Mapping[int, float], cell_seconds: float = 0.0) -> None:
        """`seconds_by_rows` are those of passes with nothing in front."""
        self._points = dict(sorted(seconds_by_rows.items()))
        self._readings = dict.fromkeys(self._points, CALIBRATED_READINGS)
        self._cell_seconds = cell_seconds
        self._length = 0
        self._drift = 1.0
        self.version = 0
        """Counts the changes of the tables; the drift is no change, since it scales all alike."""
        self._fill_tables()

    def at(self, length: int) -> None:
        """From now on passes have about `length` tokens in front."""
        if abs(length - self._length) >= LENGTH_STEP:
            self._length = length
            self._fill_tables()

    def seconds(self, rows: int) -> float:
        """Return the expected seconds of a pass of 1 to MOST_ROWS rows, drift and padding included."""
        return self._drift * self._padded[rows]

    def unpadded_seconds(self, rows: int) -> float:
        """Return the expected seconds of a pass that is left as it is."""
        return self._drift * self._plain[rows]

    def padded(self, rows: int, most: int) -> int:
        """Return the cheapest size of `rows` to `most` rows for a pass over `rows` tokens, the shortest of equals."""
        if rows < 2:
            return rows
        return min(range(rows, max(rows, min(most, MOST_ROWS)) + 1), key=self._plain.__getitem__)

    @property
    def points(self) -> dict[int, float]:
        """What passes with nothing in front take, drift included: seconds by number of rows."""
        return {rows: self._drift * seconds for rows, seconds in sorted(self._points.items())}

    @property
    def cell_seconds(self) -> float:
        """What a row takes more for each token in front, drift included."""
        return self._drift * self._cell_seconds

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from one pass."""
        expected = self._plain[rows]
        if rows == 1:
            ratio = min(4.0, max(0.25, seconds / expected))
            self._drift += 0.1 * (ratio - self._drift)
            return
        attending = self._attending(rows)
        seen = self._readings.get(rows, 0.0)
        ratio = min(MOST_SURPRISE, max(0.25, seconds / (self._drift * expected)))
        step, share = (ratio - 1) * max(LEARNING, 1 / (QUICK_LEARNING + seen)), attending / expected
        self._points[rows] = (expected - attending) * (1 + step * (1 - share))
        self._cell_seconds *= 1 + LEARNING * (ratio - 1) * share
        self._readings[rows] = min(MOST_READINGS, seen + 1)
        self._fill_tables()

    def _attending(self, rows: int) -> float:
        return self._cell_seconds * rows * self._length

    def doubt(self, rows: int) -> None:
        """Hold a size a little cheaper: its passes are padded, so that no reading could tell if it is held too dear.

        In the end it is tried again. Where it is as dear as thought, that costs about a hundredth of the time.
        """
        self._cheapen(rows, DOUBT)

    def passed_over(self, rows: int) -> None:
        """A draft of so many rows was nearly made: hold its pass a little cheaper, the more the less it is known."""
        rows = self.padded(rows, MOST_ROWS)
        seen = self._readings.get(rows, 0.0)
        if seen < SURE_READINGS:
            self._cheapen(rows, 1 - (1 - DOUBT) * (1 - seen / SURE_READINGS))
        self._readings[rows] = DOUBT * seen

    def cheapen_all(self, factor: float) -> None:
        """Hold passes of several rows cheaper by `factor`, if it is below 1."""
        for rows in self._points:
            self._points[rows] *= min(1.0, factor) if rows > 1 else 1.0
        self._fill_tables()

    def _cheapen(self, rows: int, factor: float) -> None:
        """Hold a size cheaper; the tables show it once the text has grown a little, since it is a small change."""
        self._points[rows] = factor * self._points.get(rows, self._plain[rows] - self._attending(rows))
        self._readings.setdefault(rows, 0.0)

    def _fill_tables(self) -> None:
        """Work out the seconds by number of rows, without drift: as they are, and padded. Place 0 is not used."""
        self._plain = [0.0, *self._lines()]
        if self._cell_seconds:
            cells = self._cell_seconds * self._length
            self._plain = [seconds + rows * cells for rows, seconds in enumerate(self._plain)]
        table = self._plain.copy()
        for rows in range(MOST_ROWS - 1, 1, -1):
            table[rows] = min(table[rows], table[rows + 1])
        self._padded = table
        self.version += 1

    def _lines(self) -> list[float]:
        """Return the seconds of 1 to MOST_ROWS rows along the lines between the points, without drift.

        Behind the last point each row costs what it does from the first point to the last, in the mean.
        """
        known = sorted(self._points.items())
        (row, seconds), *rest = known
        line = [seconds * each / row for each in range(1, row + 1)]
        for next_row, next_seconds in rest:
            slope = (next_seconds - seconds) / (next_row - row)
            line += [seconds + slope * (each - row) for each in range(row + 1, next_row + 1)]
            row, seconds = next_row, next_seconds
        (first, least), (last, most) = known[0], known[-1]
        slope = max(0.0, (most - least) / (last - first)) if rest else seconds / row
        return line + [seconds + slope * (each - row) for each in range(row + 1, MOST_ROWS + 1)]


def calibrate(cache: TokenCache, attention: float = 0.0, filler: int = 0) -> PassCosts:
    """Measure passes on `cache` behind what it holds, and cut it back; `filler` is any valid token id.

    `attention`: the operations of a row on one token in front, in those on the weights; what that takes is guessed from
    the longest passes, and learned as it is used. Needs room for LEAST_ROOM tokens. Raises RollbackError where the
    cache cannot be cut.
    """
    length = len(cache.tokens)
    sizes = [rows for rows in CALIBRATION_ROWS if rows <= min(cache.max_rows, cache.n_ctx - length)]
    best: dict[int, float] = {}
    started = time.perf_counter()
    _timed_pass(cache, filler, 1, length)
    rounds = 0
    while (
        not best
        or (elapsed := time.perf_counter() - started) < CALIBRATION_SECONDS
        or (rounds < 2 and elapsed < CALIBRATION_LIMIT_SECONDS)
    ):
        rounds += 1
        for rows in sizes:
            if best and time.perf_counter() - started >= CALIBRATION_LIMIT_SECONDS:
                break
            seconds = _timed_pass(cache, filler, rows, length)
            best[rows] = min(seconds, best.get(rows, seconds))
    return _costs_behind(length, best, attention)


def _costs_behind(length: int, seconds_by_rows: Mapping[int, float], attention: float) -> PassCosts:
    """Return costs by what passes behind `length` tokens took."""
    *_, (fewer, less), (most, seconds) = [(0, 0.0), *sorted(seconds_by_rows.items())]
    row_seconds = max(0.0, seconds - less) / (most - fewer)
    price = ATTENTION_PRICE * attention
    cell_seconds = price * row_seconds / (1 + price * length)
    points = {
        rows: max(seconds - cell_seconds * rows * length, LEAST_WEIGHTS * seconds)
        for rows, seconds in seconds_by_rows.items()
    }
    costs = PassCosts(points, cell_seconds)
    costs.at(length)
    return costs


def recalibrate(cache: TokenCache, points: Mapping[int, float], cell_seconds: float) -> PassCosts | None:
    """Return costs that were known before at today's pace, told by passes of one row; None for another machine's.

    Where a longer pass proves cheaper than it was held, all of them were learned while the machine was busy, and are
    held as much cheaper. Needs room for LEAST_ROOM tokens. Raises RollbackError as `calibrate` does.
    """
    length = len(cache.tokens)
    drift = few_passes_seconds(cache) / (points[1] + cell_seconds * length)
    if not 1 / MOST_DRIFT < drift < MOST_DRIFT:
        return None
    costs = PassCosts({rows: drift * seconds for rows, seconds in points.items()}, drift * cell_seconds)
    costs.at(length)
    rows = min(LEAST_ROOM, cache.max_rows)
    costs.cheapen_all(_timed_pass(cache, 0, rows, length) / costs.unpadded_seconds(rows))
    return costs


def single_pass_seconds(cache: TokenCache, filler: int = 0) -> float:
    """Measure a pass of one row on `cache` (needs room for one token), the least of a few readings."""
    length = len(cache.tokens)
    return min(_timed_pass(cache, filler, 1, length) for _ in range(SINGLE_PASSES))


def several_rows_seconds(cache: TokenCache, filler: int = 0) -> float | None:
    """Measure a pass of DRAFT_ROWS rows on `cache`, the lesser of two readings; None where they do not fit."""
    length = len(cache.tokens)
    if min(cache.n_ctx - length, cache.max_rows) < DRAFT_ROWS:
        return None
    return min(_timed_pass(cache, filler, DRAFT_ROWS, length) for _ in range(2))


def few_passes_seconds(cache: TokenCache, filler: int = 0) -> float:
    """Measure a pass of one row quickly: the least of at most FEW_PASSES readings, within about FEW_SECONDS."""
    length, spent = len(cache.tokens), 0.0
    least = float("inf")
    for _ in range(FEW_PASSES):
        if spent < FEW_SECONDS:
            seconds = _timed_pass(cache, filler, 1, length)
            least, spent = min(least, seconds), spent + seconds
    return least


def _timed_pass(cache: TokenCache, filler: int, rows: int, length: int) -> float:
    started = time.perf_counter()
    cache.decode([filler] * rows, rows)
    seconds = time.perf_counter() - started
    cache.truncate(length)
    return seconds


@dataclass(frozen=True, slots=True)
class Record:
    """How guesses of one class fared: weighted hits and trials, a prior among them, and how many guesses there were."""

    hits: float
    trials: float
    seen: int = 0

    @property
    def rate(self) -> float:
        """The estimate."""
        return self.hits / self.trials

    def plus(self, hit: bool) -> Record:
        """Return the record with one more guess, the older ones weighing a little less."""
        return Record(0.985 * self.hits + hit, 0.985 * self.trials + 1, self.seen + 1)


class SuccessRates:
    """Running estimates of how often a guess comes true, by class of guess, with a prior and slow forgetting."""

    def __init__(self, bounds: Sequence[float], priors: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._records = [Record(8.0 * prior, 8.0) for prior in priors]

    def _class(self, value: float) -> int:
        return bisect_right(self._bounds, value)

    def rate(self, value: float) -> float:
        """Return the estimate for guesses like `value`."""
        return self._records[self._class(value)].rate

    def observe(self, value: float, hit: bool) -> None:
        """Learn from one guess."""
        place = self._class(value)
        self._records[place] = self._records[place].plus(hit)

    @property
    def records(self) -> tuple[Record, ...]:
        """What is known, class by class, the lowest values first."""
        return tuple(self._records)

    def recall(self, records: Sequence[Record]) -> None:
        """Go on from what was known before; records of other classes than these are left alone."""
        if len(records) == len(self._records):
            self._records = list(records)
