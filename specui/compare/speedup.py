"""How many times as fast as the baseline, with an interval that a noisy machine does not make a liar of.

Ratios are paired: a lane's rate over the baseline's in the same repeat, in which both met the same machine. Knows rates
and nothing else.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from specui.compare.records import Speedup

T_QUANTILES = (31.821, 6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896, 2.821, 2.764, 2.718, 2.681, 2.650, 2.624, 2.602)
"""The 0.99 quantile of Student's t for 1, 2, … degrees of freedom: a two-sided interval of 98 %."""


def speedup(ratios: Sequence[float]) -> Speedup | None:
    """Return the median of paired ratios with an interval of 98 % from Student's t on their logarithms."""
    if not ratios:
        return None
    median = statistics.median(ratios)
    logs = [math.log(ratio) for ratio in ratios]
    if len(logs) == 1:
        return Speedup(median, median, median, tuple(ratios))
    half = T_QUANTILES[min(len(logs) - 1, len(T_QUANTILES)) - 1] * statistics.stdev(logs) / math.sqrt(len(logs))
    middle = statistics.fmean(logs)
    return Speedup(median, min(median, math.exp(middle - half)), max(median, math.exp(middle + half)), tuple(ratios))
