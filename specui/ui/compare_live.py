"""Follows a race onto a page: its status, and for each lane a head with figures and a text coloured by origin.

Knows no gradio. A `Frame` names only what changes: texts about three times a second, figures about once. The race never
waits for a page.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from specui.bench import conditions
from specui.compare.handle import Race
from specui.compare.history import Record
from specui.compare.records import MAX_LANES, LaneResult, LaneSpec, RaceProgress, RaceRequest
from specui.compare.report import median
from specui.generation import Progress
from specui.ui.answering import FIGURES_SECONDS, LOAD_SHARE, TEXT_SECONDS
from specui.ui.compare_board import spans, title, when
from specui.ui.compare_plots import lane_name
from specui.ui.shared import count, number, percent

PHASES = {
    "loading": "loading the models and making room for every lane",
    "warm-up": "warming up; nothing is measured yet",
    "judging": "comparing the texts",
}


@dataclass(frozen=True, slots=True)
class Frame:
    """What changes: the status, and heads and texts by the place of their lane. `record` comes with the end."""

    status: str | None = None
    heads: Mapping[int, str] = field(default_factory=dict)
    texts: Mapping[int, str] = field(default_factory=dict)
    record: Record | None = None


@dataclass(frozen=True, slots=True)
class _Figures:
    """What stands in a lane's head."""

    speed: float | None = None
    acceptance: float | None = None
    per_pass: float | None = None
    first: float | None = None
    note: str = ""


def finished(record: Record) -> Frame:
    """Return a finished race's lanes: medians of the repeats, and the last repeat's texts."""
    lanes = record.result.lanes
    heads = {place: _head(lane.spec, _medians(lane)) for place, lane in enumerate(lanes)}
    texts = {place: spans(lane.runs[-1]) for place, lane in enumerate(lanes)}
    words = f"{escape(title(record))} · {escape(when(record))}"
    return _whole(Frame(f'<p class="sp-status" role="status">{words}</p>', heads, texts, record))


def empty(request: RaceRequest) -> Frame:
    """Return the lanes of a race that has not begun."""
    return _whole(Frame("", {place: _head(lane, _Figures()) for place, lane in enumerate(request.lanes)}))


def _whole(frame: Frame) -> Frame:
    """Return a frame that also empties the lanes it does not name."""
    places = range(MAX_LANES)
    heads = {place: frame.heads.get(place, "") for place in places}
    return Frame(frame.status, heads, {place: frame.texts.get(place, "") for place in places}, frame.record)


def _medians(lane: LaneResult) -> _Figures:
    repeats = len(lane.runs)
    return _Figures(
        median(lane, lambda stats: stats.decode_tokens_per_second),
        median(lane, lambda stats: stats.acceptance_rate),
        median(lane, lambda stats: stats.mean_acceptance_length),
        median(lane, lambda stats: stats.time_to_first_token_seconds),
        f"median of {count(repeats)}" if repeats > 1 else f"{count(lane.runs[-1].stats.completion_tokens)} tokens",
    )


def _of(progress: Progress) -> _Figures:
    stats = progress.stats
    tokens = f"{count(stats.completion_tokens)} tokens"
    reading = f"reading {count(progress.prefill_done)} of {count(progress.prefill_total)}"
    notes = {"decode": tokens, "done": f"done, {tokens}", "prefill": reading}
    return _Figures(
        stats.decode_tokens_per_second,
        stats.acceptance_rate,
        stats.mean_acceptance_length,
        stats.time_to_first_token_seconds,
        notes.get(progress.phase, ""),
    )


def _head(lane: LaneSpec, figures: _Figures) -> str:
    mode, first = lane.settings.drafting.speculation, figures.first
    tiles = (
        ("acceptance", "Accepted", percent(figures.acceptance)),
        ("per-pass", "Per pass", number(figures.per_pass, 2)),
        ("first", "First token", "–" if first is None else f"{first:.2f} s"),
    )
    told = "".join(f'<div><dt>{label}</dt><dd data-figure="{name}">{value}</dd></div>' for name, label, value in tiles)
    return (
        f'<div class="sp-lane-head sp-mode-{mode}" data-lane="{escape(lane.label)}"><div class="sp-lane-name">'
        f'<span class="sp-key">{escape(lane_name(lane.label))}</span><span class="sp-lane-note">{figures.note}</span>'
        f'</div><div class="sp-lane-speed"><b data-figure="speed">{number(figures.speed)}</b> tok/s</div>'
        f'<dl class="sp-lane-tiles">{told}</dl></div>'
    )


def status(progress: RaceProgress, request: RaceRequest) -> str:
    """Return how far a race is, in a line with a bar."""
    if progress.phase == "failed":
        lane = f"lane {progress.failed_lane}: " if progress.failed_lane else ""
        return f'<p class="sp-error" role="alert">{escape(f"{lane}{progress.error}")}</p>'
    if progress.over:
        return '<p class="sp-status" role="status">stopped; nothing is kept of it</p>'
    share = 100 * _share(progress, request)
    return (
        f'<div class="sp-race-running" data-racing><p class="sp-status" role="status">{_words(progress, request)}</p>'
        f'<div class="sp-bar"><b style="width:{share:.1f}%"></b></div></div>'
    )


def _words(progress: RaceProgress, request: RaceRequest) -> str:
    if progress.phase == "queued":
        jobs = "1 job" if progress.place == 1 else f"{count(progress.place)} jobs"
        return f"waiting, {jobs} ahead" if progress.place else "starting"
    if progress.phase == "racing":
        return f"repeat {count(progress.repeat)} of {count(request.repeats)}; the lanes take turns, step by step"
    return PHASES.get(progress.phase, progress.phase)


def _share(progress: RaceProgress, request: RaceRequest) -> float:
    """Return how much of the race is done; answers are taken to reach their limit."""
    if progress.phase != "racing" or not progress.lanes:
        return 1.0 if progress.phase == "judging" else 0.0
    limit = request.prompt.limits.max_tokens
    lanes = [1.0 if lane.over else min(1.0, lane.stats.completion_tokens / limit) for lane in progress.lanes]
    return (progress.repeat - 1 + sum(lanes) / len(lanes)) / request.repeats


@dataclass(slots=True)
class Stream:
    """One race on its way to one page. `shown` says whether the page still wants it."""

    race: Race
    known: Mapping[str, Any]
    shown: Callable[[], bool]
    _seen: int = -1
    _figures_at: float = 0.0
    _repeat: int = 0
    _texts: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    _heads: dict[int, str] = field(default_factory=dict)

    def frames(self) -> Iterator[Frame]:
        """Yield what changes until the race is over; a race that nobody wants any more is cancelled."""
        try:
            yield empty(self.race.request)
            while not (progress := self.race.wait(self._seen, 2 * TEXT_SECONDS)).over and self.shown():
                if progress.version != self._seen:
                    started = time.monotonic()
                    yield self._live(progress)
                    self._pause(time.monotonic() - started)
            if self.shown():
                yield self._end()
        finally:
            if not self.race.progress.over:
                self.race.cancel()

    def _pause(self, rendered_seconds: float) -> None:
        self.race.wait_for_end(max(TEXT_SECONDS, rendered_seconds / LOAD_SHARE))

    def _live(self, progress: RaceProgress) -> Frame:
        self._seen = progress.version
        heads: dict[int, str] = {}
        if time.monotonic() - self._figures_at >= FIGURES_SECONDS or progress.repeat != self._repeat:
            self._figures_at, self._repeat = time.monotonic(), progress.repeat
            heads = self._changed_heads(progress)
        return Frame(status(progress, self.race.request), heads, self._changed_texts(progress))

    def _changed_heads(self, progress: RaceProgress) -> dict[int, str]:
        pairs = enumerate(zip(self.race.request.lanes, progress.lanes, strict=False))
        heads = {place: _head(spec, _of(lane)) for place, (spec, lane) in pairs}
        changed = {place: head for place, head in heads.items() if self._heads.get(place) != head}
        self._heads |= changed
        return changed

    def _changed_texts(self, progress: RaceProgress) -> dict[int, str]:
        changed = {}
        for place, lane in enumerate(progress.lanes):
            if self._texts.get(place) != lane.pieces:
                self._texts[place] = lane.pieces
                changed[place] = spans(lane)
        return changed

    def _end(self) -> Frame:
        self.race.wait_for_end(timeout_seconds=1.0)
        progress = self.race.progress
        if progress.result is None:
            return Frame(status(progress, self.race.request), self._changed_heads(progress))
        known = {"finished": conditions.now(), **self.known}
        return finished(Record(self.race.request, progress.result, known))
