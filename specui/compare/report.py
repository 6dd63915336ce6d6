"""What is said about a finished race: one sentence a lane, a table, the JSON of the command line, and files to keep.

Knows results; nothing about how they came about.
"""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from specui.compare.records import LaneResult, RaceRequest, RaceResult
from specui.engine.stats import Stats

NOTHING = "–"
FORMAT = "specui race 1"
"""What a race's file says it is; whoever changes what the file means counts up."""
NO_CELLS = ("accepted_per_position", "translation", "thinking")
"""Figures that are several values and do not fit a cell of the CSV."""


def result_json(result: RaceResult) -> dict[str, Any]:
    """Return the object that `compare --json` prints; `baseline` is the lane that "none" stands for in the keys."""
    return {
        "baseline": result.lanes[result.baseline].spec.label,
        "modes": {lane.spec.label: _lane_json(lane) for lane in result.lanes},
    }


def _lane_json(lane: LaneResult) -> dict[str, Any]:
    speed, difference = lane.speedup, lane.difference
    return {
        "repeats": [run.stats.to_dict() for run in lane.runs],
        "speedup_vs_none": {key: getattr(speed, key) if speed else None for key in ("median", "low", "high")},
        "identical_to_none": lane.identical,
        "first_difference": {"index": difference.index, "top_two_gap": difference.top_two_gap} if difference else None,
    }


def sentences(result: RaceResult) -> list[str]:
    """Return one sentence for each lane but the baseline."""
    base = result.lanes[result.baseline]
    return [f"{_speed(lane, base)}; {_sameness(lane, base)}{_off(lane)}" for lane in result.lanes if lane is not base]


def in_words(label: str) -> str:
    """Return a label as it stands in a sentence: `prompt lookup`, `draft model:8`."""
    return label.replace("-", " ")


def _speed(lane: LaneResult, base: LaneResult) -> str:
    name, other, speed = in_words(lane.spec.label), in_words(base.spec.label), lane.speedup
    if speed is None:
        return f"{name} wrote too little to be measured"
    figure, runs = f"{speed.median:.2f} x", f"{len(speed.ratios)} run{'s' if len(speed.ratios) > 1 else ''}"
    if speed.low is None or speed.high is None:
        return f"{name} ran at {figure} the speed of {other} ({runs}, too little to say how sure that is)"
    interval = f"({speed.low:.2f} to {speed.high:.2f}, {runs})"
    if speed.low > 1:
        return f"{name} is {figure} faster than {other} {interval}"
    if speed.high < 1:
        return f"{name} is slower than {other}: {figure} {interval}"
    return f"{name} is neither faster nor slower than {other} for sure: {figure} {interval}"


def _sameness(lane: LaneResult, base: LaneResult) -> str:
    if lane.identical:
        return "same text"
    difference = lane.difference
    if difference is None:
        return "another text, by another target"
    place = f"another text from token {difference.index} on"
    settings = lane.spec.settings
    if not settings.sampling.greedy or settings.sampling != base.spec.settings.sampling:
        return f"{place}, as sampling may give"
    gap = f"the target's two best are {difference.top_two_gap:.4f} apart and rounding moves them by "
    verdict = "a near tie" if difference.near_tie else "which rounding does not explain"
    return f"{place}, {verdict}: {gap}{difference.kernel_shift:.4f}"


def _off(lane: LaneResult) -> str:
    reasons = dict.fromkeys(run.stats.speculation_off_reason for run in lane.runs)
    return "".join(f"; {in_words(lane.spec.label)} was off: {reason}" for reason in reasons if reason)


def table(result: RaceResult) -> str:
    """Return the lanes as lines of aligned columns; figures are medians of the repeats."""
    head = ["lane", "speed", "interval", "tok/s", "accepted", "per pass", "first token", "text"]
    rows = [head, *(_row(lane, lane is result.lanes[result.baseline]) for lane in result.lanes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _row(lane: LaneResult, is_base: bool) -> list[str]:
    speed = lane.speedup
    has_interval = speed is not None and speed.low is not None and not is_base
    return [
        lane.spec.label,
        f"{speed.median:.2f} x" if speed else NOTHING,
        f"{speed.low:.2f} to {speed.high:.2f}" if speed and has_interval else NOTHING,
        _median(lane, lambda stats: stats.decode_tokens_per_second, "{:.1f}"),
        _median(lane, lambda stats: stats.acceptance_rate, "{:.0%}"),
        _median(lane, lambda stats: stats.mean_acceptance_length, "{:.2f}"),
        _median(lane, lambda stats: stats.time_to_first_token_seconds, "{:.2f} s"),
        "same" if lane.identical else "differs",
    ]


def median(lane: LaneResult, read: Callable[[Stats], float | None]) -> float | None:
    """Return the median of a figure over the repeats that have it, None where none has."""
    values = [value for run in lane.runs if (value := read(run.stats)) is not None]
    return statistics.median(values) if values else None


def _median(lane: LaneResult, read: Callable[[Stats], float | None], form: str) -> str:
    value = median(lane, read)
    return NOTHING if value is None else form.format(value)


def export_json(request: RaceRequest, result: RaceResult, conditions: Mapping[str, Any] | None = None) -> str:
    """Return everything there is to know about a race as JSON text; `conditions` are machine, versions and the like.

    What `compare --json` prints stands in it under the same keys.
    """
    prompt = request.prompt
    values = {
        "format": FORMAT,
        "conditions": dict(conditions or {}),
        **result_json(result),
        "messages": [asdict(message) for message in prompt.messages],
        "prompt": prompt.prompt,
        "limits": asdict(prompt.limits),
        "repeats": request.repeats,
        "cache": request.cache,
        "orders": [[result.lanes[place].spec.label for place in order] for order in result.orders],
        "lanes": [_export_lane(lane) for lane in result.lanes],
    }
    return json.dumps(values, ensure_ascii=False, indent=1) + "\n"


def _export_lane(lane: LaneResult) -> dict[str, Any]:
    spec, difference = lane.spec, lane.difference
    return {
        "label": spec.label,
        "target": spec.files.target.name,
        "draft": spec.files.draft.name if spec.files.draft else None,
        "settings": asdict(spec.settings),
        "speedup": asdict(lane.speedup) if lane.speedup else None,
        "identical": lane.identical,
        "difference": {**asdict(difference), "near_tie": difference.near_tie} if difference else None,
        "repeats": [
            {
                "seed": run.seed,
                "finish_reason": run.finish_reason,
                "text": run.text,
                "token_ids": run.token_ids,
                "token_origins": run.token_origins,
                "token_lengths": [len(piece.text) for piece in run.pieces],
                "rates": [asdict(point) for point in run.rates],
                "stats": run.stats.to_dict(),
            }
            for run in lane.runs
        ],
    }


def export_csv(result: RaceResult) -> str:
    """Return one line for each lane and repeat: which started when, and every figure that is one number or word."""
    rows = [_csv_row(result, lane, place, repeat) for place, lane in enumerate(result.lanes) for repeat in _count(lane)]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _count(lane: LaneResult) -> Sequence[int]:
    return range(len(lane.runs))


def _csv_row(result: RaceResult, lane: LaneResult, place: int, repeat: int) -> dict[str, Any]:
    run = lane.runs[repeat]
    figures = {name: value for name, value in asdict(run.stats).items() if name not in NO_CELLS}
    figures |= {"finish_reason": run.finish_reason, "seed": run.seed}
    started = result.orders[repeat].index(place) + 1
    return {"lane": lane.spec.label, "repeat": repeat + 1, "started_as": started, **figures}
