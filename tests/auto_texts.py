"""Texts fixed by place, scripts that are right or wrong by plan, and made-up costs, to test mode `auto` on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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


def steps(prices: Mapping[int, float]) -> dict[int, float]:
    """Return the price of 1 to 64 rows, in single passes; `prices` hold those of up to so many rows."""
    bounds = sorted(prices)
    return {rows: prices[next(bound for bound in bounds if rows <= bound)] for rows in range(1, 65)}


STAIRS = steps({1: 1.0, 2: 1.3, 3: 1.35, 4: 1.4, 8: 2.2, 16: 3.6, 32: 7.2, 48: 10.8, 64: 14.4})
CLIFF_4 = steps({4: 1.0, 16: 12.0, 32: 24.0, 64: 48.0})
CLIFF_8 = steps({8: 1.0, 16: 9.0, 32: 18.0, 64: 36.0})
FLAT = steps({64: 1.0})
HALF_COUNTS = {rows: 0.5 + 0.5 * rows for rows in range(1, 65)}
EVERY_ROW_COUNTS = {rows: float(rows) for rows in range(1, 65)}
MEASURED_ROWS = (1, 2, 3, 4, 5, 8, 12, 16, 32, 64)
Q4_K_M = {
    rows: float(np.interp(rows, MEASURED_ROWS, (1.0, 1.92, 2.58, 3.13, 3.81, 5.21, 6.51, 6.09, 11.0, 22.0)))
    for rows in range(1, 65)
}
"""What a model of 1.5 B parameters in Q4_K_M takes on two cores; 12 rows are dearer than 16."""

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


def copying_text(prompt_length: int, length: int, every: int = 50) -> list[int]:
    """Return a prompt, and behind it the prompt again and again, with a new word in place of one here and there."""
    words = fresh_text(N_VOCAB)
    prompt, spare = words[:prompt_length], iter(words[prompt_length:])
    again = [prompt[place % prompt_length] for place in range(length - prompt_length)]
    return [*prompt, *(next(spare) if place % every == every - 1 else word for place, word in enumerate(again))]


def pieced_text(prompt_length: int, length: int, piece: int = 16) -> list[int]:
    """Return a prompt, and behind it pieces of it in no order."""
    text, rng = fresh_text(prompt_length), np.random.default_rng(2)
    while len(text) < length:
        start = int(rng.integers(prompt_length - piece))
        text += text[start : start + piece]
    return text


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
