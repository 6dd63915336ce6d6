"""The figures beside a chat as HTML: speed, acceptance, and a strip chart in which a switch of mode is visible.

Knows no gradio; every number comes from `Stats` and `RatePoint`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from specui.config import SpeculationMode
from specui.engine.stats import RatePoint, Stats
from specui.ui import thinking
from specui.ui.conversation import thin
from specui.ui.shared import MODE_NAMES, count, number, percent

CHART_WIDTH, CHART_HEIGHT = 300, 84
SHORTEST_SECONDS = 2.0
"""The least time that the strip chart spans."""

RECENT_POINTS = 4
"""Slices that make up the speed shown as `now`: about one second of compute time."""

LOSING, WINNING = 0.97, 1.03
"""Estimated speed-ups between the two are told as none."""

GAIN_HINT = "Estimated from what passes without a draft take here; the Compare tab measures it"
POSITIONS_HINT = "of the drafts that reached this position"
PENDING = '<p class="sp-pending">applies to the next answer</p>'
"""Stands below the switch; page.css shows it while the switch is set otherwise than it was for the shown answer."""


def render(stats: Stats, rates: Sequence[RatePoint], live: bool = False) -> str:
    """Return the panel for one answer; `live` shows the present speed large, else the answer's own."""
    finished = bool(stats.completion_tokens) and not live
    asked = f' data-asked="{stats.speculation}"' if finished else ""
    return (
        f'<div class="sp-figures"{asked}>{PENDING if finished else ""}{_speed(stats, rates, live)}{_tiles(stats)}'
        f"{chart(rates)}{positions(stats)}{thinking.render(stats.thinking)}</div>"
    )


def recent_speed(rates: Sequence[RatePoint]) -> float | None:
    """Return the mean speed of the last slices that share the newest mode."""
    recent = list(rates[-RECENT_POINTS:])
    same = [point.tokens_per_second for point in recent if point.speculation_used == recent[-1].speculation_used]
    return sum(same) / len(same) if same else None


def against_none(stats: Stats) -> str:
    """Say how this answer's speed stands against plain decoding here; empty where that is not known."""
    estimate = stats.estimated_speedup_vs_none
    if estimate is None:
        return ""
    if estimate < LOSING:
        return f"slower than none here: about {number(estimate, 2)}\u00a0×"
    return f"about {number(estimate, 2)}\u00a0×\u00a0none" if estimate > WINNING else "about as fast as none"


def gain(stats: Stats) -> str:
    """Return `against_none` marked for its colour; empty where nothing is known."""
    estimate, words = stats.estimated_speedup_vs_none, against_none(stats)
    losing = " sp-losing" if estimate is not None and estimate < LOSING else ""
    return f'<span class="sp-gain{losing}" title="{GAIN_HINT}">{words}</span>' if words else ""


def _speed(stats: Stats, rates: Sequence[RatePoint], live: bool) -> str:
    mean = stats.decode_tokens_per_second
    speed = (recent_speed(rates) or mean) if live else mean
    mode = MODE_NAMES[stats.speculation_used] if stats.completion_tokens else ""
    if mean is None:
        note = "starting" if live else "no answer yet"
    else:
        note = f"average {number(mean)}" if live else "average of the answer"
    return (
        f'<div class="sp-speed"><span class="sp-big" data-figure="speed">{number(speed)}</span>'
        f'<span class="sp-unit">tok/s</span>{gain(stats)}<span class="sp-note">{note}</span>'
        f'<span class="sp-mode sp-mode-{stats.speculation_used}">{mode}</span></div>{_off(stats)}'
    )


def _off(stats: Stats) -> str:
    if stats.speculation == stats.speculation_used or not stats.speculation_off_reason:
        return ""
    return f'<p class="sp-off">draft off: {escape(stats.speculation_off_reason)}</p>'


def _tiles(stats: Stats) -> str:
    drafted = f"{count(stats.num_accepted_tokens)} of {count(stats.num_draft_tokens)} drafted"
    passes = f"{count(stats.completion_tokens)} tokens, {count(stats.num_passes)} passes"
    first = stats.time_to_first_token_seconds
    prompt = f"{count(stats.prompt_tokens)} tokens, {count(stats.cached_prompt_tokens)} cached"
    return (
        '<dl class="sp-tiles">'
        + _tile("acceptance", percent(stats.acceptance_rate), "Accepted", drafted)
        + _tile("per-pass", number(stats.mean_acceptance_length), "Tokens per pass", passes)
        + _tile("first", "–" if first is None else f"{first:.2f} s", "First token", prompt)
        + "</dl>"
    )


def _tile(key: str, value: str, label: str, detail: str) -> str:
    return f'<div title="{label}: {detail}"><dt>{label}</dt><dd data-figure="{key}">{value}</dd></div>'


def ceiling(value: float) -> float:
    """Return the next of 1, 2, 3, 5 and 8 times a power of ten that is not below `value`; a scale so rarely moves."""
    scale = 1.0
    while scale * 10 < value:
        scale *= 10
    return next((step * scale for step in (1, 2, 3, 5, 8) if step * scale >= value), 10 * scale)


def chart(rates: Sequence[RatePoint]) -> str:
    """Return the strip chart: tokens/s over compute time, filled in the colour of the mode that was in use."""
    points = thin(tuple(rates))
    top = ceiling(max((point.tokens_per_second for point in points), default=10.0))
    end = max(SHORTEST_SECONDS, points[-1].decode_seconds if points else 0.0)
    areas = "".join(_areas(points, end, top))
    return (
        f'<figure class="sp-chart"><figcaption><span>tok/s over compute time</span></figcaption>'
        f'<div class="sp-plot"><svg viewBox="0 0 {CHART_WIDTH} {CHART_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{_spoken(points)}"><line class="sp-grid" x1="0" x2="{CHART_WIDTH}" y1="{CHART_HEIGHT / 2}" '
        f'y2="{CHART_HEIGHT / 2}"></line>{areas}</svg>'
        f'<span class="sp-axis sp-axis-top">{top:,.0f}</span><span class="sp-axis sp-axis-end">{end:.0f} s</span>'
        f"</div>{_legend(points)}</figure>"
    )


def _areas(points: Sequence[RatePoint], end: float, top: float) -> Iterator[str]:
    start = 0.0
    for mode, group in groupby(points, key=lambda point: point.speculation_used):
        first, edge = start, []
        for point in group:
            x, y = CHART_WIDTH * start / end, CHART_HEIGHT * (1 - point.tokens_per_second / top)
            edge.append(f"L{x:.1f} {y:.1f}L{CHART_WIDTH * point.decode_seconds / end:.1f} {y:.1f}")
            start = point.decode_seconds
        left, right = CHART_WIDTH * first / end, CHART_WIDTH * start / end
        path = f"M{left:.1f} {CHART_HEIGHT}{''.join(edge)}L{right:.1f} {CHART_HEIGHT}Z"
        yield f'<path class="sp-area sp-mode-{mode}" data-mode="{mode}" d="{path}"></path>'


def used_modes(points: Sequence[RatePoint]) -> list[SpeculationMode]:
    """Return the modes in the order in which they were first used."""
    return list(dict.fromkeys(point.speculation_used for point in points))


def _legend(points: Sequence[RatePoint]) -> str:
    items = (f'<span class="sp-key sp-mode-{mode}">{MODE_NAMES[mode]}</span>' for mode in used_modes(points))
    return f'<span class="sp-keys">{"".join(items)}</span>'


def _spoken(points: Sequence[RatePoint]) -> str:
    if not points:
        return "Speed chart, empty"
    modes = ", then ".join(MODE_NAMES[mode] for mode, _ in groupby(point.speculation_used for point in points))
    return f"Speed chart: {modes}; now {points[-1].tokens_per_second:.0f} tokens per second"


def positions(stats: Stats) -> str:
    """Return a bar per draft position: how often a draft that came so far was right there."""
    shares = stats.accepted_per_position
    bars = "".join(
        f'<i title="position {place}: {percent(share)}"><b style="height:{100 * share:.0f}%"></b></i>'
        for place, share in enumerate(shares, start=1)
    )
    step = 1 if len(shares) <= 12 else 5
    marks = (place if place == 1 or place % step == 0 else "" for place in range(1, len(shares) + 1))
    ticks = "".join(f"<span>{mark}</span>" for mark in marks)
    spoken = ", ".join(f"{place}: {percent(share)}" for place, share in enumerate(shares, start=1)) or "nothing drafted"
    return (
        f'<figure class="sp-positions"><figcaption><span title="{POSITIONS_HINT}">accepted by draft position</span>'
        "</figcaption>"
        f'<div class="sp-bars" role="img" aria-label="Accepted by draft position: {spoken}">'
        f"{bars or '<em>nothing drafted</em>'}</div>"
        f'<div class="sp-ticks" aria-hidden="true">{ticks}</div></figure>'
    )
