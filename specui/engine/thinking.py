"""What mode `auto` goes by, as frozen values for faces to show: its choices, what passes cost, how often guesses hold.

Knows nothing about how it is measured or chosen, or how it is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specui.config import SpeculationMode

MAX_COLUMNS = 96
"""Columns of the strip of choices; when they are full, neighbours are put together."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One column of the strip: what most of its `steps` steps drafted with, and the mean length of their drafts."""

    drafter: SpeculationMode
    draft_tokens: float
    steps: int


@dataclass(frozen=True, slots=True)
class Stair:
    """What a pass of `rows` rows costs as it is, and padded to `padded_rows` (the same where that saves nothing)."""

    rows: int
    seconds: float
    padded_rows: int
    padded_seconds: float


@dataclass(frozen=True, slots=True)
class MatchRate:
    """How often a copied token is right behind a match of `match_length` tokens or more; `seen` guesses tell it."""

    match_length: int
    rate: float
    seen: int


@dataclass(frozen=True, slots=True)
class Thinking:
    """What `auto` knows and does. `expected_gain`: tokens/s against plain decoding that its last choices promise."""

    choices: tuple[Choice, ...] = ()
    stairs: tuple[Stair, ...] = ()
    matches: tuple[MatchRate, ...] = ()
    draft_token_seconds: float | None = None
    draft_acceptance: float | None = None
    expected_gain: float | None = None


@dataclass(slots=True)
class _Column:
    """Steps put together: how many each drafter had, and their drafted tokens."""

    steps: dict[SpeculationMode, int] = field(default_factory=dict)
    tokens: int = 0

    def add(self, drafter: SpeculationMode, steps: int) -> None:
        self.steps[drafter] = self.steps.get(drafter, 0) + steps

    def choice(self) -> Choice:
        count = sum(self.steps.values())
        most = max(self.steps, key=lambda drafter: (self.steps[drafter], drafter != "none"))
        return Choice(most, self.tokens / count, count)


class ChoiceLog:
    """The choices of one answer in at most MAX_COLUMNS columns of equally many steps each."""

    def __init__(self) -> None:
        self._columns: list[_Column] = []
        self._width = 1
        self._left = 0

    def __len__(self) -> int:
        return len(self._columns)

    def add(self, drafter: SpeculationMode, draft_tokens: int) -> None:
        """Note one step."""
        if self._left == 0:
            self._begin_column()
        column = self._columns[-1]
        column.add(drafter, 1)
        column.tokens += draft_tokens
        self._left -= 1

    def _begin_column(self) -> None:
        if len(self._columns) == MAX_COLUMNS:
            self._halve()
        self._columns.append(_Column())
        self._left = self._width

    def _halve(self) -> None:
        for left, right in zip(self._columns[::2], self._columns[1::2], strict=True):
            for drafter, steps in right.steps.items():
                left.add(drafter, steps)
            left.tokens += right.tokens
        self._columns = self._columns[::2]
        self._width *= 2

    def choices(self) -> tuple[Choice, ...]:
        """Return the strip so far, the oldest first."""
        return tuple(column.choice() for column in self._columns)
