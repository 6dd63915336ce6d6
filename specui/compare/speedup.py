"""How many times as fast as the baseline, with an interval that a noisy machine does not make a liar of.

Ratios are paired: a lane's rate over the baseline's in the same repeat, in which both met the same machine. Knows
numbers and nothing else.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from specui.compare.records import Speedup

T_QUANTILES = (31.821, 6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896, 2.821, 2.764, 2.718, 2.681, 2.650, 2.624, 2.602)
"""The 0.99 quantile of Student's t for 1, 2, … degrees of freedom: a two-sided interval of 98 %.

Not 95 %, so that of ten intervals around two equal lanes nine hold 1 nearly always (98 % of the time, not 91 %).
"""
FEWEST_RATIOS = 3
"""From so many repeats on they speak for themselves; below, slices of the repeats say how far the ratio scatters."""
FEWEST_SLICES = 4


def speedup(ratios: Sequence[float], slice_ratios: Sequence[float] = ()) -> Speedup | None:
    """Return the median of paired ratios with an interval of 98 % from Student's t on their logarithms.

    `slice_ratios` are ratios over slices of compute time, in which the lanes took turns step by step. They also hold
    how the text changes from slice to slice, so what they give is rather too wide. Without enough of either there is no
    interval. None without any ratio.
    """
    if not ratios:
        return None
    median = statistics.median(ratios)
    if len(ratios) >= FEWEST_RATIOS:
        middle, half = _interval(ratios)
    elif len(slice_ratios) >= FEWEST_SLICES:
        middle, half = math.log(median), _interval(slice_ratios)[1]
    else:
        return Speedup(median, None, None, tuple(ratios))
    low, high = math.exp(middle - half), math.exp(middle + half)
    return Speedup(median, min(median, low), max(median, high), tuple(ratios))


def _interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the middle of the logarithms and half the width of its interval."""
    logs = [math.log(ratio) for ratio in ratios]
    quantile = T_QUANTILES[min(len(logs) - 1, len(T_QUANTILES)) - 1]
    return statistics.fmean(logs), quantile * statistics.stdev(logs) / math.sqrt(len(logs))
