"""The plots of a finished race as SVG: speeds with their spread, acceptance, where the time went, a timeline.

Knows no gradio. Widths are percentages, so that a plot fits a phone, a page and a saved report alike; colours come from
the classes of the modes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from statistics import fmean, median

from specui.compare.records import LaneResult
from specui.config import SPECULATION_MODES, parse_mode
from specui.engine.stats import Stats
from specui.generation import Progress
from specui.ui.figures import ceiling
from specui.ui.shared import MODE_NAMES, number, percent

WIDTH, HEIGHT = 1000, 240
"""The drawing of the timeline, stretched to whatever room there is."""
MAX_POSITIONS = 16
"""Draft positions that are shown; behind them next to nothing is drafted."""
DASHES = ("none", "7 4", "2 3", "10 3 2 3")
"""Lines of lanes with the same mode, told apart."""


def lane_name(label: str) -> str:
    """Return a lane's label for people: `draft model, 8`, `none, again`; what is no mode stays as it is."""
    plain, _, twin = label.partition("#")
    mode, _, length = plain.partition(":")
    if mode not in SPECULATION_MODES:  # a label in a file may be anything
        return label
    name = MODE_NAMES[parse_mode(mode)]
    return name + (f", {length}" if length else "") + (", again" if twin == "2" else f", {twin}" if twin else "")


def mode_class(lane: LaneResult) -> str:
    """Return the class that colours what belongs to a lane."""
    return f"sp-mode-{parse_mode(lane.spec.settings.drafting.speculation)}"


def key(lane: LaneResult) -> str:
    """Return a lane's name with its colour."""
    return f'<span class="sp-key {mode_class(lane)}">{escape(lane_name(lane.spec.label))}</span>'


def rates(lane: LaneResult) -> list[float]:
    """Return the tokens/s of each repeat that has them."""
    return [rate for run in lane.runs if (rate := run.stats.decode_tokens_per_second) is not None]


def plot(name: str, title: str, body: str, note: str = "") -> str:
    """Return a plot under its title."""
    below = f'<p class="sp-plot-note">{note}</p>' if note else ""
    return f'<figure class="sp-race-plot" data-plot="{name}"><figcaption>{title}</figcaption>{body}{below}</figure>'


def _row(lane: LaneResult, svg: str, value: str) -> str:
    return f'<div class="sp-plot-row">{key(lane)}{svg}<span class="sp-plot-value">{value}</span></div>'


def _svg(words: str, inside: str, lane: LaneResult) -> str:
    return f'<svg class="{mode_class(lane)}" width="100%" height="18" role="img" aria-label="{words}">{inside}</svg>'


def top_speed(lanes: Sequence[LaneResult]) -> float:
    """Return the end of the axis of speeds."""
    return ceiling(max((rate for lane in lanes for rate in rates(lane)), default=1.0))


def speeds(lanes: Sequence[LaneResult], top: float) -> str:
    """Return a bar per lane: the median, a line from the slowest to the fastest repeat, a dot for each."""
    rows = "".join(_speed(lane, top) for lane in lanes)
    return plot("speeds", "Tokens per second", rows, "bar: median of the repeats; dots: each repeat")


def _speed(lane: LaneResult, top: float) -> str:
    found = rates(lane)
    if not found:
        return _row(lane, _svg("nothing measured", "", lane), "–")
    middle, low, high = (100 * value / top for value in (median(found), min(found), max(found)))
    dots = "".join(f'<circle cx="{100 * rate / top:.2f}%" cy="9" r="2.5" class="sp-dot"></circle>' for rate in found)
    spread = f'<line x1="{low:.2f}%" x2="{high:.2f}%" y1="9" y2="9" class="sp-spread"></line>'
    bar = f'<rect width="{middle:.2f}%" y="2" height="14" rx="3" class="sp-fill"></rect>'
    words = f"{number(median(found))} tokens per second, {number(min(found))} to {number(max(found))}"
    return _row(lane, _svg(words, bar + spread + dots, lane), number(median(found)))


def split(lanes: Sequence[LaneResult]) -> str:
    """Return a stacked bar per lane: seconds of drafting, verifying and the rest, means of the repeats."""
    parts = [_parts(lane) for lane in lanes]
    top = max((sum(each) for each in parts), default=0.0) or 1.0
    rows = "".join(_split(lane, each, top) for lane, each in zip(lanes, parts, strict=True))
    keys = "".join(f'<span class="sp-part-{name}">{name}</span>' for name in ("draft", "verify", "other"))
    return plot("split", "Where the time of an answer went", rows, f'<span class="sp-parts">{keys}</span>')


def _parts(lane: LaneResult) -> tuple[float, float, float]:
    def mean(read: Callable[[Stats], float]) -> float:
        return fmean(read(run.stats) for run in lane.runs)

    draft, verify = mean(lambda stats: stats.draft_seconds), mean(lambda stats: stats.verify_seconds)
    return draft, verify, max(0.0, mean(lambda stats: stats.decode_seconds) - draft - verify)


def _split(lane: LaneResult, parts: tuple[float, float, float], top: float) -> str:
    start, bars = 0.0, ""
    for name, seconds in zip(("draft", "verify", "other"), parts, strict=True):
        title = f"<title>{name} {seconds:.2f} s</title>"
        place = f'x="{100 * start / top:.2f}%" width="{100 * seconds / top:.2f}%" y="2" height="14"'
        bars += f'<rect {place} class="sp-part-{name}">{title}</rect>' if seconds else ""
        start += seconds
    words = "draft {:.2f} s, verify {:.2f} s, other {:.2f} s".format(*parts)
    return _row(lane, _svg(words, bars, lane), f"{sum(parts):.2f} s")


def positions(lanes: Sequence[LaneResult]) -> str:
    """Return for each lane that drafted the share accepted at each position, medians of the repeats."""
    drafted = [lane for lane in lanes if _shares(lane)]
    if not drafted:
        return plot("positions", "Accepted by draft position", '<p class="sp-plot-none">nothing was drafted</p>')
    longest = max(min(len(_shares(lane)), MAX_POSITIONS) for lane in drafted)
    rows = "".join(_positions(lane, longest) for lane in drafted)
    note = f"of the drafts that came so far; positions 1 to {longest} from left to right"
    return plot("positions", "Accepted by draft position", rows, note)


def _shares(lane: LaneResult) -> list[float]:
    runs = [run.stats.accepted_per_position for run in lane.runs]
    longest = max((len(run) for run in runs), default=0)
    return [median([run[place] for run in runs if place < len(run)]) for place in range(longest)]


def _positions(lane: LaneResult, longest: int) -> str:
    shares, step = _shares(lane)[:MAX_POSITIONS], 100 / longest
    bars = "".join(
        f'<rect x="{step * place:.2f}%" width="{0.86 * step:.2f}%" y="0" height="34" class="sp-back"></rect>'
        f'<rect x="{step * place:.2f}%" width="{0.86 * step:.2f}%" y="{34 * (1 - share):.1f}" '
        f'height="{34 * share:.1f}" class="sp-fill"><title>position {place + 1}: {percent(share)}</title></rect>'
        for place, share in enumerate(shares)
    )
    spoken = ", ".join(f"{place}: {percent(share)}" for place, share in enumerate(shares, start=1))
    svg = f'<svg class="{mode_class(lane)}" width="100%" height="34" role="img" aria-label="{spoken}">{bars}</svg>'
    return _row(lane, svg, "")


def timeline(lanes: Sequence[LaneResult]) -> str:
    """Return tokens against compute time, one line per lane, of the last repeat."""
    paths = [list(_path(lane.runs[-1])) for lane in lanes]
    end = max((x for path in paths for x, _ in path), default=0.0) or 1.0
    top = max((y for path in paths for _, y in path), default=0.0) or 1.0
    lines = "".join(_line(lane, path, end, top, lanes) for lane, path in zip(lanes, paths, strict=True))
    keys = "".join(_time_key(lane, lanes) for lane in lanes)
    body = (
        f'<div class="sp-race-time"><svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="Tokens against compute time">{lines}</svg>'
        f'<span class="sp-axis sp-axis-top">{top:,.0f} tokens</span>'
        f'<span class="sp-axis sp-axis-end">{end:.1f} s</span></div><div class="sp-race-keys">{keys}</div>'
    )
    return plot("timeline", "Tokens against compute time, prompt included; the last repeat", body)


def _path(run: Progress) -> Iterator[tuple[float, float]]:
    """Yield (seconds, tokens): where the first token came, then the end of each slice of compute time."""
    first = run.stats.time_to_first_token_seconds
    if first is None:
        return
    yield 0.0, 0.0
    yield first, 0.0
    tokens, before = 1.0, 0.0
    yield first, tokens
    for point in run.rates:
        tokens += point.tokens_per_second * (point.decode_seconds - before)
        before = point.decode_seconds
        yield first + before, tokens


def _line(
    lane: LaneResult, path: Sequence[tuple[float, float]], end: float, top: float, lanes: Sequence[LaneResult]
) -> str:
    points = " ".join(f"{WIDTH * x / end:.1f},{HEIGHT * (1 - y / top):.1f}" for x, y in path)
    title = f"<title>{escape(lane_name(lane.spec.label))}</title>"
    named = f'class="sp-race-line {mode_class(lane)}" stroke-dasharray="{_dash(lane, lanes)}"'
    return f'<polyline {named} points="{points}">{title}</polyline>'


def _dash(lane: LaneResult, lanes: Sequence[LaneResult]) -> str:
    alike = [each for each in lanes if mode_class(each) == mode_class(lane)]
    return DASHES[next(place for place, each in enumerate(alike) if each is lane) % len(DASHES)]


def _time_key(lane: LaneResult, lanes: Sequence[LaneResult]) -> str:
    """Return a lane's name with its line."""
    stroke = f'class="sp-race-stroke" stroke-dasharray="{_dash(lane, lanes)}"'
    line = f'<svg width="24" height="8" aria-hidden="true"><line x2="24" y1="4" y2="4" {stroke}></line></svg>'
    return f'<span class="sp-time-key {mode_class(lane)}">{line}{escape(lane_name(lane.spec.label))}</span>'
