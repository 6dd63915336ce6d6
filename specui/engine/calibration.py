"""Measures what passes cost, on a cache that is cut back afterwards.

Knows a cache to decode with; nothing about drafters.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from specui.config import DRAFT_ROWS
from specui.engine.costs import PassCosts
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

CHECKED_ROWS = 16
"""The pass that tells whether costs that are kept were learned on a busy machine."""
MOST_DRIFT = 4.0
"""Costs that are kept count as another machine's where one row takes so many times, or that part, of what it took."""

ATTENTION_PRICE = 7.0
"""An operation on the cache takes so many times what one on the weights does in a pass of many rows (CPUs: 5 to 12)."""
LEAST_WEIGHTS = 0.2
"""At least this share of a measured pass is held to be work on the weights."""


def calibrate(cache: TokenCache, attention: float = 0.0, filler: int = 0) -> PassCosts:
    """Measure passes on `cache` behind what it holds, and cut it back; `filler` is any valid token id.

    `attention`: the operations of a row on one token in front, in those on the weights; what that takes is guessed from
    what a row more takes in the longest pass, and learned as it is used. Needs room for LEAST_ROOM tokens. Raises
    RollbackError where the cache cannot be cut.
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
    most = max(seconds_by_rows)
    row_seconds = max(0.0, seconds_by_rows[most] - seconds_by_rows[1]) / max(1, most - 1)
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
    """Return costs that were known before at today's pace, told by few passes; None for another machine's.

    Where a longer pass proves cheaper than it was held, all of them may have been learned while the machine was busy,
    and are held as much cheaper. Needs room for LEAST_ROOM tokens. Raises RollbackError as `calibrate` does.
    """
    length = len(cache.tokens)
    drift = few_passes_seconds(cache) / (points[1] + cell_seconds * length)
    if not 1 / MOST_DRIFT < drift < MOST_DRIFT:
        return None
    costs = PassCosts({rows: drift * seconds for rows, seconds in points.items()}, drift * cell_seconds)
    costs.at(length)
    rows = min(CHECKED_ROWS, cache.max_rows)
    costs.check(rows, _timed_pass(cache, 0, rows, length))
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
