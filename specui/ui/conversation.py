"""A conversation as the browser keeps it: questions, answers and their figures, to and from JSON.

Knows no gradio. What comes back from a browser is validated; anything else than a conversation gives an empty one.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from specui.engine.stats import RatePoint, Stats, TokenOrigin
from specui.generation import Message, Progress

AnswerStatus = Literal["done", "cut", "stopped", "failed"]

ORIGIN_LETTERS: dict[TokenOrigin, str] = {"target": "t", "accepted": "a", "recovered": "r", "bonus": "b"}

MAX_KEPT_RATES = 240
"""Points of the strip chart that are kept of one answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was written, and how. `origins` holds one letter a token, `lengths` the characters each token gave."""

    text: str = ""
    status: AnswerStatus = "done"
    stats: Stats = field(default_factory=Stats)
    rates: tuple[RatePoint, ...] = ()
    seed: int = 0
    dropped_turns: int = 0
    origins: str = ""
    lengths: tuple[int, ...] = ()
    show_tokens: bool = False

    @classmethod
    def of(cls, progress: Progress, show_tokens: bool = False) -> Answer:
        """Return the answer as far as `progress` shows it."""
        return cls(
            text=progress.text,
            status=_status(progress),
            stats=progress.stats,
            rates=thin(progress.rates),
            seed=progress.seed,
            dropped_turns=progress.dropped_turns,
            origins="".join(ORIGIN_LETTERS[piece.origin] for piece in progress.pieces),
            lengths=tuple(len(piece.text) for piece in progress.pieces),
            show_tokens=show_tokens,
        )


def _status(progress: Progress) -> AnswerStatus:
    if progress.phase == "failed":
        return "failed"
    if progress.finish_reason == "length":
        return "cut"
    return "done" if progress.finish_reason == "stop" else "stopped"


def thin(rates: tuple[RatePoint, ...]) -> tuple[RatePoint, ...]:
    """Return at most MAX_KEPT_RATES points; where there are more, neighbours of one mode are averaged."""
    while len(rates) > MAX_KEPT_RATES:
        rates = tuple(_halved(rates))
    return rates


def _halved(rates: tuple[RatePoint, ...]) -> list[RatePoint]:
    kept: list[RatePoint] = []
    for index, point in enumerate(rates):
        pair = kept[-1] if index % 2 and kept else None
        if pair is not None and pair.speculation_used == point.speculation_used:
            mean = (pair.tokens_per_second + point.tokens_per_second) / 2
            kept[-1] = replace(point, tokens_per_second=mean)
        else:
            kept.append(point)
    return kept if len(kept) < len(rates) else list(rates[-MAX_KEPT_RATES:])


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and, once there is one, its answer. `error` says why there is none, or why it ended early."""

    question: str
    answer: Answer | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The turns of one chat. `id` is empty until the first question."""

    id: str = ""
    turns: tuple[Turn, ...] = ()

    def ask(self, question: str, at: int | None = None) -> Conversation:
        """Return the conversation cut at turn `at` (None: at its end) with a new question there."""
        kept = self.turns if at is None else self.turns[:at]
        return Conversation(self.id or uuid.uuid4().hex, (*kept, Turn(question)))

    def undo(self) -> Conversation:
        """Return the conversation without its last turn."""
        return replace(self, turns=self.turns[:-1])

    def with_turn(self, index: int, turn: Turn) -> Conversation:
        """Return the conversation with turn `index` replaced."""
        return replace(self, turns=(*self.turns[:index], turn, *self.turns[index + 1 :]))

    def flip_tokens(self, index: int) -> Conversation:
        """Return the conversation with the token view of answer `index` shown or hidden."""
        if not 0 <= index < len(self.turns) or (answer := self.turns[index].answer) is None:
            return self
        flipped = replace(answer, show_tokens=not answer.show_tokens)
        return self.with_turn(index, replace(self.turns[index], answer=flipped))

    def messages(self, system: str) -> tuple[Message, ...]:
        """Return the prompt for the last question. Turns without an answer are left out, so that roles alternate."""
        found = [Message("system", system)] if system.strip() else []
        for turn in self.turns[:-1]:
            if turn.answer is not None and turn.answer.text.strip():
                found += [Message("user", turn.question), Message("assistant", turn.answer.text)]
        return (*found, *(Message("user", turn.question) for turn in self.turns[-1:]))

    def to_json(self) -> str:
        """Return the conversation as the browser keeps it."""
        return _json(_CONVERSATION, self)

    @classmethod
    def from_json(cls, text: str | None, partial: str | None = None) -> Conversation:
        """Read what the browser kept, and put the last turn's partial answer of a page that was closed in its place."""
        try:
            conversation = _CONVERSATION.validate_json(text or "{}")
            part = Partial.from_json(partial)
        except ValidationError:
            return cls()
        return part.merged(conversation) if part is not None else conversation


@dataclass(frozen=True, slots=True)
class Partial:
    """The answer in the making, kept apart so that a second's progress costs no rewrite of the whole conversation."""

    id: str
    index: int
    turn: Turn

    def to_json(self) -> str:
        """Return the partial answer as the browser keeps it."""
        return _json(_PARTIAL, self)

    @classmethod
    def from_json(cls, text: str | None) -> Partial | None:
        """Read a partial answer; None where there is none."""
        return _PARTIAL.validate_json(text) if text else None

    def merged(self, conversation: Conversation) -> Conversation:
        """Return `conversation` with this answer, if it still has the same question without an answer there."""
        if self.id != conversation.id or self.index != len(conversation.turns) - 1:
            return conversation
        last = conversation.turns[self.index]
        if last.answer is not None or last.question != self.turn.question:
            return conversation
        return conversation.with_turn(self.index, self.turn)


def _json(adapter: TypeAdapter[Any], value: object) -> str:
    """Return `value` as JSON without an opening angle bracket, which gradio would take for the start of a script."""
    text: str = adapter.dump_json(value).decode()
    return text.replace("<", "\\u003c")


_CONVERSATION = TypeAdapter(Conversation)
_PARTIAL = TypeAdapter(Partial)
