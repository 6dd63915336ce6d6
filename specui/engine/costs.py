"""What a pass costs on this machine, by its number of rows, and how well guesses come true.

On CPUs the cost of a pass is a staircase (kernels work in fours), so it is measured, not modelled. Knows a cache to
decode with; nothing about drafters.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from specui.config import MAX_DRAFT_TOKENS_LIMIT
from specui.engine.drafting import TokenCache

CALIBRATION_ROWS = (1, 2, 3, 4, 6, 8, 12, 16)
CALIBRATION_SECONDS = 0.6
CALIBRATION_LIMIT_SECONDS = 2.0
"""Rows are measured twice, again until the first time is spent, never past the second; the least reading counts."""


MOST_ROWS = MAX_DRAFT_TOKENS_LIMIT + 1


class PassCosts:
    """Seconds of a pass by number of rows: measured points, straight lines between them.

    A pass is never held to cost more than a longer one: it could be padded to that length. Readings of one row move a
    drift that scales all points alike (the machine got busier or clocked down, the context longer); readings of more
    rows move their own point. Choices depend on ratios only, which a short disturbance must not bend.
    """

    def __init__(self, seconds_by_rows: Mapping[int, float]) -> None:
        self._points = dict(sorted(seconds_by_rows.items()))
        self._drift = 1.0
        self.table: list[float] = []
        """Expected seconds by number of rows, drift included; place 0 is not used."""
        self._fill_table()

    def seconds(self, rows: int) -> float:
        """Return the expected seconds of a pass of 1 to MOST_ROWS rows, drift included."""
        return self.table[rows]

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from one pass."""
        point = self._points.setdefault(rows, self._between(rows))
        ratio = min(4.0, max(0.25, seconds / point))
        if rows == 1:
            self._drift += 0.1 * (ratio - self._drift)
        else:
            self._points[rows] = point * (1 + 0.15 * (min(2.0, ratio / self._drift) - 1))
        self._fill_table()

    def _fill_table(self) -> None:
        table = [0.0] + [self._drift * seconds for seconds in self._lines()]
        for rows in range(MOST_ROWS - 1, 0, -1):
            table[rows] = min(table[rows], table[rows + 1])
        self.table = table

    def _lines(self) -> list[float]:
        """Return the seconds of 1 to MOST_ROWS rows along the lines between the points, without drift."""
        known = sorted(self._points.items())
        (row, seconds), *rest = known
        line = [seconds * each / row for each in range(1, row + 1)]
        for next_row, next_seconds in rest:
            slope = (next_seconds - seconds) / (next_row - row)
            line += [seconds + slope * (each - row) for each in range(row + 1, next_row + 1)]
            row, seconds = next_row, next_seconds
        return line + [seconds * each / row for each in range(row + 1, MOST_ROWS + 1)]

    def _between(self, rows: int) -> float:
        return self._lines()[rows - 1]


def calibrate(cache: TokenCache, filler: int = 0) -> PassCosts:
    """Measure passes on `cache` behind what it holds, and cut it back; `filler` is any valid token id.

    Needs room for CALIBRATION_ROWS[-1] tokens. Raises RollbackError where the cache cannot be cut.
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
    return PassCosts(best)


def single_pass_seconds(cache: TokenCache, filler: int = 0) -> float:
    """Measure a pass of one row on `cache` (needs room for one token), the least of a few readings."""
    length = len(cache.tokens)
    return min(_timed_pass(cache, filler, 1, length) for _ in range(SINGLE_PASSES))


SINGLE_PASSES = 6


def _timed_pass(cache: TokenCache, filler: int, rows: int, length: int) -> float:
    started = time.perf_counter()
    cache.decode([filler] * rows, rows)
    seconds = time.perf_counter() - started
    cache.truncate(length)
    return seconds


class SuccessRates:
    """Running estimates of how often a guess comes true, by class of guess, with a prior and slow forgetting."""

    def __init__(self, bounds: Sequence[float], priors: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._trials = [8.0] * len(priors)
        self._hits = [8.0 * prior for prior in priors]

    def _class(self, value: float) -> int:
        return bisect_right(self._bounds, value)

    def rate(self, value: float) -> float:
        """Return the estimate for guesses like `value`."""
        place = self._class(value)
        return self._hits[place] / self._trials[place]

    def observe(self, value: float, hit: bool) -> None:
        """Learn from one guess."""
        place = self._class(value)
        self._trials[place] = 0.97 * self._trials[place] + 1
        self._hits[place] = 0.97 * self._hits[place] + hit
