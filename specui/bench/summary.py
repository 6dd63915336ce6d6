"""From runs to figures: for each mode and kind of work how much faster than none, how fast, and how much accepted.

A speedup is the median of paired ratios: decode speed of a mode over that of none on the same prompt and repeat. Rates
and shares are pooled: all tokens over all seconds, all accepted over all drafted. Knows nothing about files or models.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import comb
from typing import Any

from specui.bench.records import Run
from specui.bench.suite import ALL
from specui.config import BASELINE

CONFIDENCE = 0.95
INTERVAL_NOTE = (
    "Intervals of medians are pairs of order statistics with at least 95 % coverage by the binomial distribution "
    "(David and Nagaraja, Order Statistics, 3rd edition, section 7.1); fewer than six pairs cannot reach that and show "
    "the least and the largest. They say how steady the figure is on these prompts, not how other prompts would do."
)


@dataclass(frozen=True, slots=True)
class Interval:
    """A median with its interval. `coverage` is the probability that such an interval holds the true median."""

    median: float
    low: float
    high: float
    coverage: float
    pairs: int


@dataclass(frozen=True, slots=True)
class Sameness:
    """How many of the compared answers have the token ids of mode none."""

    same: int
    compared: int


@dataclass(frozen=True, slots=True)
class Cell:
    """The figures of one mode on one kind of work; None where nothing was measured."""

    mode: str
    kind: str
    prompts: int
    runs: int
    speedup_vs_none: Interval | None
    decode_tokens_per_second: float | None
    time_to_first_token_seconds: float | None
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    identical_to_none: Sameness | None
    speculation_off_reason: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return asdict(self)


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Return the median with the narrowest symmetric pair of order statistics that covers it with `confidence`.

    The k-th smallest and k-th largest of n cover the median with 1 - 2 P(B < k), B binomial with n and 1/2. Where even
    k = 1 falls short, least and largest are given with the coverage they have. None for no values.
    """
    if not values:
        return None
    ordered, n = sorted(values), len(values)
    k = 1
    while 2 * (k + 1) <= n + 1 and _coverage(n, k + 1) >= confidence:
        k += 1
    return Interval(statistics.median(ordered), ordered[k - 1], ordered[n - k], _coverage(n, k), n)


def _coverage(n: int, k: int) -> float:
    outside: int = 2 * sum(comb(n, i) for i in range(k))
    return 1 - outside / float(2**n)


def summarise(runs: Sequence[Run], greedy: bool) -> list[Cell]:
    """Return a cell for every mode on every kind, in order of appearance with none first, and on all kinds together.

    Answers are compared with those of none only where `greedy`: sampled ones may differ.
    """
    modes = sorted(dict.fromkeys(run.mode for run in runs), key=lambda mode: mode != BASELINE)
    kinds = list(dict.fromkeys(run.kind for run in runs))
    if len(kinds) != 1:
        kinds.append(ALL)
    return [
        _cell(mode, kind, [run for run in runs if kind in (run.kind, ALL)], greedy) for kind in kinds for mode in modes
    ]


def _cell(mode: str, kind: str, runs: Sequence[Run], greedy: bool) -> Cell:
    own, pairs = [run for run in runs if run.mode == mode], paired(runs, mode, BASELINE)
    return Cell(
        mode=mode,
        kind=kind,
        prompts=len({run.prompt for run in own}),
        runs=len(own),
        speedup_vs_none=median_interval(ratios(pairs)) if mode != BASELINE else None,
        decode_tokens_per_second=_pooled_rate(own),
        time_to_first_token_seconds=_median_first(own),
        acceptance_rate=_share(own, "num_accepted_tokens", "num_draft_tokens"),
        mean_acceptance_length=_tokens_per_pass(own),
        identical_to_none=_sameness(pairs) if greedy and mode != BASELINE else None,
        speculation_off_reason=next((run.off_reason for run in own if run.off_reason), None),
    )


def paired(runs: Sequence[Run], mode: str, base_mode: str) -> list[tuple[Run, Run]]:
    """Return the runs of a mode, each with the run of `base_mode` on the same prompt in the same repeat."""
    bases = {(run.prompt, run.repeat): run for run in runs if run.mode == base_mode}
    own = [run for run in runs if run.mode == mode]
    return [(run, base) for run in own if (base := bases.get((run.prompt, run.repeat))) is not None]


def ratios(pairs: Sequence[tuple[Run, Run]]) -> list[float]:
    """Return the decode speed of each run over that of its baseline, where both have one."""
    return [run.rate / base.rate for run, base in pairs if run.rate and base.rate]


def _pooled_rate(runs: Sequence[Run]) -> float | None:
    """Return decoded tokens over decode seconds; the first token of an answer belongs to its prefill."""
    timed = [run.stats for run in runs if run.rate]
    seconds = sum(stats["decode_seconds"] for stats in timed)
    tokens: int = sum(stats["completion_tokens"] - 1 for stats in timed)
    return tokens / seconds if seconds > 0 else None


def _median_first(runs: Sequence[Run]) -> float | None:
    times = [seconds for run in runs if (seconds := run.stats["time_to_first_token_seconds"]) is not None]
    return statistics.median(times) if times else None


def _share(runs: Sequence[Run], part: str, whole: str) -> float | None:
    total: int = sum(run.stats[whole] for run in runs)
    return sum(run.stats[part] for run in runs) / total if total else None


def _tokens_per_pass(runs: Sequence[Run]) -> float | None:
    accepted_per_pass = _share(runs, "num_accepted_tokens", "num_passes")
    return None if accepted_per_pass is None else 1 + accepted_per_pass


def _sameness(pairs: Sequence[tuple[Run, Run]]) -> Sameness:
    return Sameness(sum(run.token_ids == base.token_ids for run, base in pairs), len(pairs))
