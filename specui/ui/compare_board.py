"""What came of a race as HTML: one sentence a lane, a table, plots, where texts differ, and what it was run on.

Knows no gradio; the page and the saved report show the same. Every figure is read from the record, whose file has the
same ones; words in it may be anybody's and are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from statistics import median as middle
from typing import Any

from specui.compare.history import Record
from specui.compare.records import LaneResult
from specui.compare.report import NOTHING, median, sentences
from specui.config import SamplingSettings
from specui.engine.difference import Difference
from specui.generation import Progress
from specui.ui import compare_plots as plots
from specui.ui.compare_plots import key, lane_name, rates
from specui.ui.conversation import ORIGIN_LETTERS
from specui.ui.shared import count, number, percent

CONTEXT_CHARACTERS = 90
"""So much of the common text is shown in front of a difference."""
TITLE_LENGTH = 72
HEADS = ("", "times baseline", "interval", "tok/s", "slowest to fastest", "accepted", "per pass", "first token", "text")
SAVES = (("json", "JSON"), ("csv", "CSV"), ("html", "Report"))


def board(record: Record) -> str:
    """Return everything about a finished race but its texts, with buttons to save it."""
    buttons = "".join(
        f'<button type="button" class="sp-button" data-save="{kind}">{label}</button>' for kind, label in SAVES
    )
    return (
        f'<div class="sp-race-board">{said(record)}{table(record)}{drawn(record)}{differences(record)}{ran_on(record)}'
        f'<div class="sp-race-save"><span>Save</span>{buttons}</div></div>'
    )


def said(record: Record) -> str:
    """Return the sentences."""
    lines = "".join(f"<p>{escape(line)}</p>" for line in sentences(record.result))
    return f'<div class="sp-race-said" role="status">{lines}</div>'


def drawn(record: Record) -> str:
    """Return the plots."""
    lanes = record.result.lanes
    return (
        f'<div class="sp-race-plots">{plots.speeds(lanes, plots.top_speed(lanes))}{plots.timeline(lanes)}'
        f"{plots.split(lanes)}{plots.positions(lanes)}</div>"
    )


def table(record: Record) -> str:
    """Return a line a lane; figures are medians of the repeats."""
    heads = "".join(f"<th>{head}</th>" for head in HEADS)
    base = record.result.lanes[record.result.baseline]
    rows = "".join(_line(lane, lane is base) for lane in record.result.lanes)
    return (
        f'<div class="sp-race-table"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
        f'<p class="sp-plot-note">medians of {_repeats(record)}; {_order(record)}</p>'
    )


def _repeats(record: Record) -> str:
    repeats = len(record.result.orders)
    return "one run" if repeats == 1 else f"{count(repeats)} repeats"


def _order(record: Record) -> str:
    held = "empty caches" if record.request.cache == "cleared" else "the conversation but its last turn in the caches"
    return f"each repeat began with {held}; the lanes took turns step by step, another one first each time"


def _line(lane: LaneResult, is_base: bool) -> str:
    speed, first = lane.speedup, median(lane, lambda stats: stats.time_to_first_token_seconds)
    found = rates(lane)
    sure = speed is not None and speed.low is not None and not is_base
    cells = (
        ("times", f"{speed.median:.2f} ×" if speed else NOTHING),
        ("interval", f"{speed.low:.2f}–{speed.high:.2f}" if speed and sure else NOTHING),
        ("speed", number(middle(found) if found else None)),
        ("spread", f"{number(min(found))}–{number(max(found))}" if found else NOTHING),
        ("acceptance", percent(median(lane, lambda stats: stats.acceptance_rate))),
        ("per-pass", number(median(lane, lambda stats: stats.mean_acceptance_length), 2)),
        ("first", NOTHING if first is None else f"{first:.2f} s"),
        ("text", "baseline" if is_base else ("same" if lane.identical else "differs")),
    )
    columns = "".join(f'<td data-figure="{name}">{value}</td>' for name, value in cells)
    return f'<tr data-lane="{escape(lane.spec.label)}"><th>{key(lane)}</th>{columns}</tr>'


def differences(record: Record) -> str:
    """Return for each lane whose text is another where it first differs, and what the target's logits say to that."""
    base = record.result.lanes[record.result.baseline]
    found = "".join(_difference(lane, base) for lane in record.result.lanes if not lane.identical)
    return f'<section class="sp-race-differs"><h3>Where texts differ</h3>{found}</section>' if found else ""


def _difference(lane: LaneResult, base: LaneResult) -> str:
    difference = lane.difference
    if difference is None:
        return f'<div class="sp-race-differ">{key(lane)}<p>another text, by another target</p></div>'
    mine, theirs = next(
        (pair for pair in zip(lane.runs, base.runs, strict=True) if pair[0].token_ids != pair[1].token_ids),
        (lane.runs[0], base.runs[0]),
    )
    common = "".join(piece.text for piece in theirs.pieces[: difference.index])[-CONTEXT_CHARACTERS:]
    return (
        f'<div class="sp-race-differ" data-lane="{escape(lane.spec.label)}">{key(lane)}'
        f'<p class="sp-race-common">…{escape(common)}'
        f'<b>{_token(mine, difference.index)}</b> <b class="sp-theirs">{_token(theirs, difference.index)}</b></p>'
        f'<p class="sp-plot-note">token {count(difference.index)}: the bold one here, the other by '
        f"{escape(lane_name(base.spec.label))}; {_verdict(difference, lane.spec.settings.sampling)}</p></div>"
    )


def _token(run: Progress, index: int) -> str:
    if index >= len(run.pieces):
        return "(end)"
    return escape(run.pieces[index].text) or "(part of a character)"


def _verdict(difference: Difference, sampling: SamplingSettings) -> str:
    gap = f"the target's two best are {difference.top_two_gap:.4f} apart, rounding moves them by "
    measured = f"{gap}{difference.kernel_shift:.4f}"
    if not sampling.greedy:
        return f"sampled texts may differ ({measured})"
    words = "a near tie" if difference.near_tie else "a fault: rounding does not explain it"
    return f'<strong data-verdict="{"tie" if difference.near_tie else "fault"}">{words}</strong> ({measured})'


def title(record: Record) -> str:
    """Return a race's first words for a list."""
    line = " ".join(record.question.split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"


def when(record: Record) -> str:
    """Return when a race ended: `2026-03-01 12:30 UTC`."""
    return record.finished[:16].replace("T", " ") + " UTC" if record.finished else "at an unknown time"


def ran_on(record: Record) -> str:
    """Return machine, versions, files and settings, folded away."""
    facts = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in _facts(record) if text and text != "{}"
    )
    return f'<details class="sp-race-ran"><summary>Machine, versions, settings</summary><dl>{facts}</dl></details>'


def _facts(record: Record) -> Sequence[tuple[str, str]]:
    known, request = record.conditions, record.request
    lane = request.lanes[0]
    sampling, drafting = lane.settings.sampling, [_drafting(each) for each in record.result.lanes]
    temperature = "greedy" if sampling.greedy else f"temperature {sampling.temperature:g}"
    seeds = sorted({run.seed for each in record.result.lanes for run in each.runs})
    return (
        ("ended", when(record)),
        ("machine", _plain(known.get("machine"))),
        ("versions", _plain(known.get("versions"))),
        ("model", _plain(known.get("model")) or lane.files.target.name),
        ("sampling", temperature + ("" if sampling.greedy else f", seeds {', '.join(map(str, seeds))}")),
        ("longest drafts", "; ".join(drafting)),
        ("answer limit", f"{count(request.prompt.limits.max_tokens)} tokens"),
        ("drafts also from", _plain(known.get("references"))),
        ("prompt", record.question),
    )


def _drafting(lane: LaneResult) -> str:
    return f"{lane_name(lane.spec.label)}: {lane.spec.settings.drafting.draft_cap}"


def _plain(values: Any) -> str:
    """Return values from a file as words: `processor X, cores 2`."""
    if not isinstance(values, Mapping):
        return "" if values is None else str(values)
    return ", ".join(
        f"{name} {value if not isinstance(value, Mapping | list) else json.dumps(value, ensure_ascii=False)}"
        for name, value in values.items()
        if value is not None
    )


def beside(left: Record, right: Record) -> str:
    """Return two races side by side, their speeds on one axis."""
    top = max(plots.top_speed(record.result.lanes) for record in (left, right))
    both = "".join(
        f'<section class="sp-race-board"><h3>{escape(title(record))}</h3><p class="sp-plot-note">{_head(record)}</p>'
        f"{said(record)}{plots.speeds(record.result.lanes, top)}{table(record)}"
        f"{plots.split(record.result.lanes)}{plots.positions(record.result.lanes)}{ran_on(record)}</section>"
        for record in (left, right)
    )
    return f'<div class="sp-race-beside">{both}</div>'


def _head(record: Record) -> str:
    return f"{escape(when(record))} · {escape(record.request.lanes[0].files.target.name)}"


def spans(run: Progress) -> str:
    """Return an answer's tokens, each marked by its origin. Where an answer grew, so did what is returned."""
    return "".join(
        f'<i class="sp-tok-{ORIGIN_LETTERS[piece.origin]}">{escape(piece.text)}</i>'
        for piece in run.pieces
        if piece.text
    )
