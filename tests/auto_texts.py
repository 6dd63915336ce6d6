"""Texts fixed by place, scripts that are right or wrong by plan, and made-up costs, to test mode `auto` on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from fake_clock import Clock
from fake_model import FakeCache, Script

from specui.config import SamplingSettings
from specui.engine.dice import Dice
from specui.engine.drafting import Outcome, Proposal
from specui.engine.lookup import PromptLookup
from specui.engine.sampling import Logits
from specui.engine.verification import Draft

N_VOCAB = 2048
LENGTH = 500
UNIT = 0.01
"""Seconds of a target pass of one row in the simulations."""
READING_SHARE = 0.25
"""Reading a token costs the fake draft model this share of writing one."""
STAIRS = {1: 1.0, 2: 1.3, 3: 1.35, 4: 1.4, **dict.fromkeys(range(5, 9), 2.2), **dict.fromkeys(range(9, 17), 3.6)}
CLIFF_4 = {**dict.fromkeys(range(1, 5), 1.0), **dict.fromkeys(range(5, 17), 12.0)}
CLIFF_8 = {**dict.fromkeys(range(1, 9), 1.0), **dict.fromkeys(range(9, 17), 9.0)}
FLAT = dict.fromkeys(range(1, 17), 1.0)
HALF_COUNTS = {rows: 0.5 + 0.5 * rows for rows in range(1, 17)}
EVERY_ROW_COUNTS = {rows: float(rows) for rows in range(1, 17)}

Text = Sequence[int]


def fresh_text(length: int) -> list[int]:
    """Return tokens of which none occurs twice, so that lookup never finds a match."""
    return [int(token) for token in np.random.default_rng(5).permutation(N_VOCAB)[:length]]


def misleading_text(length: int, n_vocab: int = 24) -> list[int]:
    """Return a text in which lookup finds a match nearly everywhere, and what it copies is never right."""
    rng, lookup = np.random.default_rng(6), PromptLookup(4)
    text = [0]
    while len(text) < length:
        candidate = lookup.find(text, 1)
        token = int(rng.integers(n_vocab))
        if candidate is None or token != candidate.tokens[0]:
            text.append(token)
    return text


def looping_text(length: int, period: int = 40) -> list[int]:
    return [place % period for place in range(length)]


def always(place: int) -> bool:
    return True


def never(place: int) -> bool:
    return False


def confident(token: int, probability: float) -> Logits:
    """Return a row whose best token is `token` with `probability`."""
    row = np.full(N_VOCAB, np.log((1 - probability) / (N_VOCAB - 1)), np.float32)
    row[token] = np.log(probability)
    return row


def says(text: Text, right: Callable[[int], bool] = always, probability: float = 0.995) -> Script:
    """Return a script that says `text[place]` at every place, or another token where it is not `right`."""

    def script(tokens: Sequence[int]) -> Logits:
        place = len(tokens)
        token = text[place] if place < len(text) else 0
        return confident(token if right(place) else (token + 1) % N_VOCAB, probability)

    return script


class TimedCache(FakeCache):
    """A fake cache whose decodes take scripted time, by number of tokens and of rows."""

    def __init__(self, script: Script, clock: Clock, price: Callable[[int, int], float]) -> None:
        super().__init__(script)
        self.spent = 0.0
        self._clock, self._price = clock, price

    def decode(self, tokens: Sequence[int], rows: int) -> None:
        super().decode(tokens, rows)
        self.spent += self._price(len(tokens), rows)
        self._clock.now += self._price(len(tokens), rows)


def ask(committed: Sequence[int], limit: int = 15) -> Proposal:
    return Proposal(list(committed), limit, SamplingSettings(), Dice(0))


def outcome(committed: Sequence[int], draft: Draft, accepted: int, unit: float = 1.0, drafting: float = 0.0) -> Outcome:
    rows = len(draft) + 1
    return Outcome(len(committed), draft, accepted, rows, drafting, unit * STAIRS[rows])
