"""The conversation as HTML: questions as they were typed, answers as Markdown or token by token, one line of figures.

Knows no gradio. Everything that a person or a model wrote is escaped here or in `markdown.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import groupby

from specui.engine.stats import RatePoint
from specui.generation import Progress
from specui.ui import figures, markdown
from specui.ui.conversation import Answer, Conversation, Turn
from specui.ui.markdown import LiveMarkdown
from specui.ui.shared import MODE_NAMES, count, number, percent
from specui.ui.starters import STARTERS

LEGEND = (
    ("a", "accepted", "drafted, and the target agreed"),
    ("r", "recovered", "the target's own choice where the draft was wrong"),
    ("b", "bonus", "the free token after a fully accepted draft"),
    ("t", "target", "written without a draft"),
)


HINTS = {
    "Tokens": "Show token by token where each came from, or the text again",
    "Figures": "Show this answer's figures and chart in the panel",
}
MAX_SHOWN_MODES = 5
"""Modes that the line under an answer names before it breaks off."""


def render(conversation: Conversation, upto: int | None = None) -> str:
    """Return the finished turns; of the turn at `upto`, which is being answered, only its question."""
    if not conversation.turns:
        return _empty()
    last = len(conversation.turns) - 1
    parts = [
        _question(index, turn) + ("" if index == upto else _answered(index, turn, last=index == last))
        for index, turn in enumerate(conversation.turns)
    ]
    return f'<div class="sp-turns">{"".join(parts)}</div>'


def _empty() -> str:
    buttons = "".join(
        f'<button type="button" class="sp-example" data-act="example" data-index="{index}">'
        f"<b>{escape(starter.title)}</b><span>{escape(starter.hint)}</span></button>"
        for index, starter in enumerate(STARTERS)
    )
    return (
        '<div class="sp-empty"><h2>Ask something, and flip the switch while it writes</h2>'
        f'<p>Everything runs on this machine.</p><div class="sp-examples">{buttons}</div></div>'
    )


def _button(act: str, index: int, label: str, pressed: bool | None = None) -> str:
    state = "" if pressed is None else f' aria-pressed="{str(pressed).lower()}"'
    title = f' title="{HINTS[label]}"' if label in HINTS else ""
    named = f'data-act="{act}" data-index="{index}"{state}{title}'
    return f'<button type="button" class="sp-quiet" {named}>{label}</button>'


def _question(index: int, turn: Turn) -> str:
    actions = _button("copy-question", index, "Copy") + _button("edit", index, "Edit")
    return (
        f'<section class="sp-user" aria-label="You"><div class="sp-bubble">{escape(turn.question)}</div>'
        f'<div class="sp-actions">{actions}</div></section>'
    )


def _answered(index: int, turn: Turn, last: bool) -> str:
    actions = _button("retry", index, "Retry") + _button("undo", index, "Undo") if last else ""
    answer = turn.answer
    if answer is None:
        reason = error(turn.error) if turn.error else '<p class="sp-status">No answer was written.</p>'
        return _assistant(reason + f'<div class="sp-actions">{actions}</div>')
    view = _button("tokens", index, "Tokens", answer.show_tokens) + _button("figures", index, "Figures")
    foot = f'<div class="sp-actions">{_button("copy-answer", index, "Copy")}{actions}{view}</div>'
    body = tokens(answer) if answer.show_tokens else _said(answer.text, markdown.render, live=False)
    return _assistant(dropped(answer.dropped_turns) + body + _marks(answer, turn.error) + line(answer) + foot)


def _assistant(inside: str) -> str:
    return f'<section class="sp-answer" aria-label="Answer">{inside}</section>'


def error(text: str) -> str:
    """Return an error line."""
    return f'<p class="sp-error" role="alert">{escape(text)}</p>'


def _marks(answer: Answer, failure: str) -> str:
    words = {"stopped": "stopped", "cut": f"cut at the token limit ({count(answer.stats.completion_tokens)})"}
    mark = words.get(answer.status)
    return (f'<p class="sp-mark">{mark}</p>' if mark else "") + (error(failure) if failure else "")


def dropped(turns: int) -> str:
    """Return the note that old turns were left out of the prompt; empty where none was."""
    if not turns:
        return ""
    what = "1 old turn did" if turns == 1 else f"{count(turns)} old turns did"
    return f'<p class="sp-status">{what} not fit the context and was left out of the prompt.</p>'.replace(
        "turns did not fit the context and was", "turns did not fit the context and were"
    )


def _said(text: str, to_html: markdown.ToHtml, live: bool) -> str:
    parts = markdown.split_thoughts(text)
    said = f'<div class="sp-text">{to_html(parts.said)}</div>' if parts.said or parts.thoughts is None else ""
    if not parts.thoughts:
        return said
    title = "Thoughts" if parts.closed else ("Thinking…" if live else "Thoughts (unfinished)")
    return (
        f'<details class="sp-thoughts"><summary>{title}</summary>'
        f'<div class="sp-thought">{escape(parts.thoughts)}</div></details>{said}'
    )


def legend() -> str:
    """Return the legend of the token view."""
    keys = "".join(f'<i class="sp-tok-{letter}" title="{hint}">{name}</i>' for letter, name, hint in LEGEND)
    return f'<div class="sp-legend">{keys}</div>'


def tokens(answer: Answer) -> str:
    """Return the answer token by token, each marked by its origin."""
    return f'{legend()}<div class="sp-tokens">{"".join(_spans(answer))}</div>'


def _spans(answer: Answer) -> Iterable[str]:
    start = 0
    for letter, length in zip(answer.origins, answer.lengths, strict=False):
        if length:
            yield f'<i class="sp-tok-{letter}">{escape(answer.text[start : start + length])}</i>'
        start += length
    if start < len(answer.text):
        yield escape(answer.text[start:])


def line(answer: Answer) -> str:
    """Return the one line under an answer."""
    stats = answer.stats
    if not stats.completion_tokens:
        return ""
    first = stats.time_to_first_token_seconds
    parts = [
        f"{number(stats.decode_tokens_per_second)} tok/s",
        _acceptance(answer),
        f"{number(stats.mean_acceptance_length)} tokens per pass",
        f"first token {'–' if first is None else f'{first:.2f} s'}",
        f"seed {answer.seed}",
    ]
    if stats.translation is not None:
        written, proposed = stats.translation.draft_tokens_written, stats.translation.target_tokens_proposed
        parts.append(f"{count(written)} draft tokens translated into {count(proposed)}")
    used = " → ".join(_modes(answer.rates)) or MODE_NAMES[stats.speculation_used]
    reason = stats.speculation_off_reason if stats.speculation != stats.speculation_used else None
    off = f'<span class="sp-off">draft off: {escape(reason)}</span>' if reason else ""
    mode = f'<span class="sp-key sp-mode-{stats.speculation_used}">{used}</span>'
    return f'<p class="sp-line">{mode}<span>{" · ".join(parts)}</span>{figures.gain(stats)}{off}</p>'


def _acceptance(answer: Answer) -> str:
    stats = answer.stats
    if stats.acceptance_rate is None:
        return "– accepted"
    return f"{percent(stats.acceptance_rate)} accepted ({stats.num_accepted_tokens}/{stats.num_draft_tokens})"


def _modes(rates: tuple[RatePoint, ...]) -> list[str]:
    found = [MODE_NAMES[mode] for mode, _ in groupby(point.speculation_used for point in rates)]
    return found if len(found) <= MAX_SHOWN_MODES else [*found[:MAX_SHOWN_MODES], "…"]


def live(progress: Progress, show_tokens: bool, rendered: LiveMarkdown) -> str:
    """Return the answer in the making."""
    body = dropped(progress.dropped_turns)
    if progress.phase == "decode" and progress.text:
        body += (
            tokens(Answer.of(progress)) if show_tokens else _said(progress.text, rendered.render, live=True)
        ) + f'<div class="sp-actions">{_button("tokens-live", -1, "Tokens", show_tokens)}</div>'
    else:
        body += _waiting(progress)
    return f'<div class="sp-turns" data-running>{_assistant(body)}</div>'


def _waiting(progress: Progress) -> str:
    share = 0.0
    if progress.phase == "queued":
        text = f"waiting, {_answers(progress.place)} ahead" if progress.place else "starting"
    elif progress.prefill_total:
        text = f"reading the prompt {count(progress.prefill_done)}/{count(progress.prefill_total)}"
        share = progress.prefill_done / progress.prefill_total
    else:
        text = "reading the prompt"
    bar = f'<div class="sp-bar"><b style="width:{100 * share:.0f}%"></b></div>' if share else ""
    return f'<div class="sp-status" role="status">{text}{bar}</div>'


def _answers(number_ahead: int) -> str:
    return "1 answer" if number_ahead == 1 else f"{count(number_ahead)} answers"
