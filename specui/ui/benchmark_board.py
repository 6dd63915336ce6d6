"""The figures of a benchmark as HTML: how far it is, and for each kind of work a bar per mode with its interval.

Knows no gradio. Names of suites and prompts may be anybody's words and are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import groupby

from specui.bench.fixed import AgainstFixed, against_best_fixed
from specui.bench.job import BenchProgress
from specui.bench.plan import Turn
from specui.bench.records import Run
from specui.bench.suite import ALL
from specui.bench.summary import INTERVAL_NOTE, Cell, summarise
from specui.config import BASELINE, parse_mode
from specui.ui.shared import MODE_NAMES, count, number, percent

KIND_NAMES = {
    "edit": "Edit a file",
    "code": "Complete code",
    "summarise": "Summarise with quotes",
    "answer": "Answer from a passage",
    "translate": "Translate",
    "json": "Extract JSON",
    "story": "Free story",
    "chat": "Chat of several turns",
    ALL: "All kinds together",
}
LEAST_SCALE = 1.5
"""The shortest axis of the bars, in times none."""

EMPTY = (
    '<div class="sp-bench-empty"><p>Each prompt is answered with mode none and with every chosen mode, one right after '
    "the other and each from an empty memory, so that the speeds can be divided by each other. Evaluated once, a "
    "prompt is what every mode goes on from, which takes less time and tells the speed of decoding alone. While it "
    "runs, the chat stays usable; its answers take their turn between two runs, and are better left for later if "
    "figures are to be steady.</p></div>"
)
HEADS = ("", "times none", "", "interval", "tok/s", "accepted", "per pass", "runs")


def mode_name(label: str) -> str:
    """Return a mode's label for people: `draft model, 3`."""
    mode, _, length = label.partition(":")
    return MODE_NAMES[parse_mode(mode)] + (f", {length}" if length else "")


def kind_name(kind: str) -> str:
    """Return a kind of work for people."""
    return KIND_NAMES.get(kind, kind)


def status(progress: BenchProgress | None) -> str:
    """Return how far the benchmark is, in a line with a bar; empty before the first."""
    if progress is None:
        return ""
    share = 100 * progress.done / progress.total if progress.total else 0
    running = "" if progress.over else " data-bench-running"
    failed = "".join(f'<p class="sp-error">{escape(text)}</p>' for text in progress.failures[:3])
    if len(progress.failures) > 3:
        failed += f'<p class="sp-error">and {len(progress.failures) - 3} more failed</p>'
    error = f'<p class="sp-error" role="alert">{escape(progress.error)}</p>' if progress.error else ""
    return (
        f'<div class="sp-bench-status"{running}><p class="sp-status" role="status">{_line(progress)}</p>'
        f'<div class="sp-bar"><b style="width:{share:.1f}%"></b></div>{error}{failed}</div>'
    )


def _line(progress: BenchProgress) -> str:
    counted = f"{count(progress.done)} of {count(progress.total)} runs"
    words = {"done": f"done: {counted}", "stopped": f"stopped after {counted}", "failed": f"ended after {counted}"}
    if progress.over:
        return words[progress.phase]
    doing = "warming up" if progress.turn is None else _turn(progress.turn)
    waits = f"{progress.place} before it in the line" if progress.place else f"{count(progress.tokens)} tokens"
    return f"{counted} · {doing} · {waits}"


def _turn(turn: Turn) -> str:
    return f"{escape(turn.prompt.key)} · {escape(mode_name(turn.variant.label))}"


def board(runs: Sequence[Run], greedy: bool = True) -> str:
    """Return the bars and figures of all runs so far; an introduction where there are none."""
    if not runs:
        return EMPTY
    cells = summarise(runs, greedy)
    if cells[-1].kind == ALL:  # what most people look for stands on top
        cells = sorted(cells, key=lambda cell: cell.kind != ALL)
    top = _scale(cells)
    against = {each.kind: _against(each) for each in against_best_fixed(runs, cells)}
    groups = "".join(
        _group(kind, list(group), top, against.get(kind, ""))
        for kind, group in groupby(cells, key=lambda cell: cell.kind)
    )
    heads = "".join(f"<span>{head}</span>" for head in HEADS)
    save = "".join(
        f'<button type="button" class="sp-button" data-save="{kind}">{label}</button>'
        for kind, label in (("jsonl", "JSONL"), ("csv", "CSV"), ("md", "Markdown"))
    )
    return (
        f'<div class="sp-bench-board"><div class="sp-bench-row sp-bench-heads" aria-hidden="true">{heads}</div>{groups}'
        f'<p class="sp-bench-note">{escape(INTERVAL_NOTE)}</p><div class="sp-bench-save"><span>Download</span>{save}'
        "</div></div>"
    )


def _scale(cells: Sequence[Cell]) -> float:
    """Return the end of the axis: the largest upper end of an interval, rounded up to halves."""
    ends = [cell.speedup_vs_none.high for cell in cells if cell.speedup_vs_none is not None]
    return max(LEAST_SCALE, math.ceil(2 * max(ends, default=1.0)) / 2)


def _against(found: AgainstFixed) -> str:
    """Return the line on auto and the best of the modes that could have been chosen by hand."""
    ratio = found.ratio
    between = f" ({ratio.low:.2f} to {ratio.high:.2f})" if ratio.pairs > 1 else ""
    best = escape(mode_name(found.mode))
    return f'<p class="sp-bench-fixed">auto against the best fixed mode here, {best}: {ratio.median:.2f} ×{between}</p>'


def _group(kind: str, cells: Sequence[Cell], top: float, against: str) -> str:
    rows = "".join(_row(cell, top) for cell in cells)
    reasons = {cell.mode: cell.speculation_off_reason for cell in cells if cell.speculation_off_reason}
    off = "".join(f'<p class="sp-off">{mode_name(mode)} off: {escape(why)}</p>' for mode, why in reasons.items())
    title = f"<h3>{escape(kind_name(kind))}</h3>"
    return f'<section class="sp-bench-kind" data-kind="{escape(kind)}">{title}{rows}{against}{off}</section>'


def _row(cell: Cell, top: float) -> str:
    mode, speed = cell.mode.partition(":")[0], cell.speedup_vs_none
    times = 1.0 if cell.mode == BASELINE else (speed.median if speed else None)
    same = cell.identical_to_none
    differs = "" if same is None or same.same == same.compared else f", {same.compared - same.same} with other tokens"
    figures = (
        f"{times:.2f} ×" if times is not None else "–",
        f"{speed.low:.2f}–{speed.high:.2f}" if speed is not None and speed.pairs > 1 else "",
        number(cell.decode_tokens_per_second),
        percent(cell.acceptance_rate),
        number(cell.mean_acceptance_length, 2),
        f"{cell.runs}{'*' if differs else ''}",
    )
    spoken = f"{cell.runs} runs{differs}"
    columns = "".join(f"<span>{figure}</span>" for figure in figures)
    key = f'<span class="sp-key sp-mode-{mode}">{escape(mode_name(cell.mode))}</span>'
    return (
        f'<div class="sp-bench-row" data-mode="{escape(cell.mode)}" title="{spoken}">'
        f"{key}{_bar(cell, times, top)}{columns}</div>"
    )


def _bar(cell: Cell, times: float | None, top: float) -> str:
    """Return the bar from 0 to the speedup, a line over its interval, and a mark at 1."""
    speed, mode = cell.speedup_vs_none, cell.mode.partition(":")[0]
    fill = f'<b style="width:{100 * times / top:.1f}%"></b>' if times is not None else ""
    line, words = "", "no pair yet"
    if speed is not None:
        left, right = 100 * speed.low / top, 100 * speed.high / top
        line = f'<u style="left:{left:.1f}%;width:{right - left:.1f}%"></u>' if speed.pairs > 1 else ""
        between = f", {speed.low:.2f} to {speed.high:.2f}, {speed.pairs} pairs" if speed.pairs > 1 else ", one pair"
        words = f"{speed.median:.2f} times none{between}"
    elif cell.mode == BASELINE:
        words = "the measure of the others"
    return (
        f'<span class="sp-bench-bar sp-mode-{mode}" role="img" aria-label="{words}" title="{words}">{fill}{line}'
        f'<i style="left:{100 / top:.1f}%"></i></span>'
    )
