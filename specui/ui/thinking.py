"""What mode `auto` goes by, as HTML: its choices over time, what passes cost here, how often copies hold.

Knows no gradio; every number comes from a `Thinking`. Colours are those of the modes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specui.config import SpeculationMode
from specui.engine.thinking import Choice, MatchRate, Stair, Thinking
from specui.ui.shared import MODE_NAMES, count, number, percent

STRIP_HEIGHT = 40
LEAST_HEIGHT = 1.5
"""Steps without a draft are seen as a line of this height."""
DRAFTERS: tuple[SpeculationMode, ...] = ("none", "prompt-lookup", "draft-model")
TICK_STEP = 8
"""Kernels work in fours; every second step has its mark below the staircase."""


def render(thinking: Thinking | None) -> str:
    """Return the folded part below the figures; empty where `auto` is not in use."""
    if thinking is None:
        return ""
    return (
        f'<section class="sp-thinking">{_fold(False)}{_fold(True)}<div class="sp-unfolded"><p class="sp-now">'
        f"{_now(thinking)}</p>{strip(thinking.choices)}{staircase(thinking.stairs)}{matches(thinking.matches)}"
        "</div></section>"
    )


def _fold(unfolded: bool) -> str:
    """Return the button of one of the two states; page.css shows the one that is right.

    The panel is written anew every second, so whether it is unfolded is kept in a class of what stands around it.
    """
    other = "previous" if unfolded else "next"
    return (
        f'<button type="button" class="sp-fold-{"out" if unfolded else "in"}" aria-expanded="{str(unfolded).lower()}" '
        f"onclick=\"this.closest('#sp-side').classList.toggle('sp-unfold'); this.{other}ElementSibling.focus()\">"
        "How auto chooses</button>"
    )


def _now(thinking: Thinking) -> str:
    gain, parts = thinking.expected_gain, []
    if gain is not None:
        parts.append(f'expects about <b data-figure="expected">{number(gain, 2)} ×</b> none now')
    if thinking.draft_token_seconds is not None:
        parts.append(
            f"a draft token takes {_ms(thinking.draft_token_seconds)}, {percent(thinking.draft_acceptance)} are right"
        )
    return "; ".join(parts)


def _ms(seconds: float) -> str:
    return f"{number(1000 * seconds)} ms"


def strip(choices: Sequence[Choice]) -> str:
    """Return the choices from the first step to the last: colour tells the drafter, height the draft's length."""
    longest = max((choice.draft_tokens for choice in choices), default=0.0)
    bars = "".join(_columns(choices, max(1.0, longest)))
    keys = "".join(f'<span class="sp-key sp-mode-{drafter}">{MODE_NAMES[drafter]}</span>' for drafter in DRAFTERS)
    width = sum(choice.steps for choice in choices)
    spoken = ", ".join(f"{MODE_NAMES[drafter]} {percent(_share(choices, drafter))}" for drafter in DRAFTERS)
    return (
        f'<figure class="sp-strip"><figcaption><span>draft length, {count(width)} steps</span></figcaption>'
        f'<div class="sp-plot"><svg viewBox="0 0 {max(1, width)} {STRIP_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="Steps by drafter: {spoken}">{bars}</svg>'
        f'<span class="sp-axis sp-axis-top">{longest:.0f}</span></div>'
        f'<span class="sp-strip-keys">{keys}</span></figure>'
    )


def _columns(choices: Sequence[Choice], top: float) -> Iterator[str]:
    left = 0
    for choice in choices:
        height = max(LEAST_HEIGHT, STRIP_HEIGHT * choice.draft_tokens / top)
        yield (
            f'<rect class="sp-choice sp-mode-{choice.drafter}" data-drafter="{choice.drafter}" x="{left}" '
            f'y="{STRIP_HEIGHT - height:.1f}" width="{choice.steps}" height="{height:.1f}"></rect>'
        )
        left += choice.steps


def _share(choices: Sequence[Choice], drafter: SpeculationMode) -> float | None:
    steps = sum(choice.steps for choice in choices)
    return sum(choice.steps for choice in choices if choice.drafter == drafter) / steps if steps else None


def staircase(stairs: Sequence[Stair]) -> str:
    """Return a bar per number of rows; the hatched part is what padding the pass to a longer one saves."""
    top = max((stair.seconds for stair in stairs), default=0.0) or 1.0
    bars = "".join(_stair(stair, top) for stair in stairs)
    ticks = "".join(
        f"<span>{stair.rows if stair.rows == 1 or stair.rows % TICK_STEP == 0 else ''}</span>" for stair in stairs
    )
    spoken = ", ".join(f"{stair.rows}: {_ms(stair.padded_seconds)}" for stair in stairs)
    saved = "; hatched: saved by padding" if any(stair.padded_seconds < stair.seconds for stair in stairs) else ""
    caption = f"cost of a pass by rows, up to {_ms(top)}{saved}"
    return (
        f'<figure class="sp-stairs"><figcaption><span>{caption}</span></figcaption>'
        f'<div class="sp-bars" role="img" aria-label="Cost of a pass by rows: {spoken}">{bars}</div>'
        f'<div class="sp-ticks" aria-hidden="true">{ticks}</div></figure>'
    )


def _stair(stair: Stair, top: float) -> str:
    title = f"{stair.rows} rows: {_ms(stair.seconds)}"
    saved = stair.seconds - stair.padded_seconds
    if saved > 0:
        title += f"; padded to {stair.padded_rows} rows {_ms(stair.padded_seconds)}"
    ghost = f'<span class="sp-saved" style="height:{100 * saved / top:.1f}%"></span>' if saved > 0 else ""
    return f'<i title="{title}">{ghost}<b style="height:{100 * stair.padded_seconds / top:.1f}%"></b></i>'


def matches(rates: Sequence[MatchRate]) -> str:
    """Return a bar per length of match: how often a copied token was right; pale where none was seen yet."""
    names = _names(rates)
    bars = "".join(
        f'<i title="match of {name}: {percent(each.rate)} right, {count(each.seen)} seen"'
        f'{"" if each.seen else " data-unseen"}><b style="height:{100 * each.rate:.0f}%"></b></i>'
        for each, name in zip(rates, names, strict=True)
    )
    ticks = "".join(
        f"<span>{name}<br><small>{_short(each.seen)}</small></span>" for each, name in zip(rates, names, strict=True)
    )
    spoken = ", ".join(f"{name}: {percent(each.rate)}" for each, name in zip(rates, names, strict=True))
    return (
        '<figure class="sp-matches"><figcaption><span>copies right by length of match, and how many were seen</span>'
        f'</figcaption><div class="sp-bars" role="img" aria-label="Copies right by length of match: {spoken}">{bars}'
        f'</div><div class="sp-ticks" aria-hidden="true">{ticks}</div></figure>'
    )


def _names(rates: Sequence[MatchRate]) -> list[str]:
    """Return what each class is called: `1`, `4–5`, `22+`."""
    ends = [each.match_length for each in rates[1:]]
    names = [
        str(each.match_length) if end == each.match_length + 1 else f"{each.match_length}–{end - 1}"
        for each, end in zip(rates, ends, strict=False)
    ]
    return names + [f"{each.match_length}+" for each in rates[-1:]]


def _short(seen: int) -> str:
    """Return a count in little room: `812`, `1.2k`, `34k`."""
    if seen < 1000:
        return str(seen)
    return f"{seen / 1000:.1f}k" if seen < 9950 else f"{seen / 1000:.0f}k"
