"""Verification: which drafted tokens the target keeps, and the one token it adds.

The words, for a draft of k tokens judged on k + 1 rows of the target's logits:

* accepted: drafted tokens the target keeps, from the first on;
* recovered: the target's own choice where it rejects one, drawn from the residual (everything behind is ignored);
* bonus: the free token of the last row after a fully accepted draft.

Exact for greedy and for sampling: the emitted tokens are distributed as the target alone would write them. The rule is
Leviathan et al. 2023, Algorithm 1, and Chen et al. 2023, Algorithm 2, which agree: keep token x with probability
min(1, target_probs[x] / draft_probs[x]), else draw from norm(max(0, target_probs - draft_probs)).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from specui.config import SamplingSettings
from specui.engine.sampling import Distribution, Logits, best_token, distribution, one_hot
from specui.engine.stats import TokenOrigin


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens [k] and what each was drawn from [k]; None: without probabilities, that is one-hot."""

    tokens: Sequence[int] = ()
    distributions: Sequence[Distribution] | None = None

    def __len__(self) -> int:
        return len(self.tokens)


EMPTY_DRAFT = Draft()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome: the first `num_accepted` drafted tokens, then `last_token` with its origin."""

    num_accepted: int
    last_token: int
    last_origin: TokenOrigin


class Window:
    """The last tokens that penalties look at, for each position of a draft.

    Position i sees what was committed and draft[:i]; nothing else is ever looked at, so a rejected token leaves no
    trace. Empty when no penalty is set.
    """

    def __init__(self, committed: Sequence[int], draft: Sequence[int], settings: SamplingSettings) -> None:
        self._size = settings.repeat_last_n if settings.penalised else 0
        self._start = min(self._size, len(committed))
        self._tokens = [*committed[len(committed) - self._start :], *draft] if self._size else []

    def at(self, position: int) -> Sequence[int]:
        """Return the window in front of draft position `position`."""
        end = self._start + position
        return self._tokens[max(0, end - self._size) : end]


def verify(
    draft: Draft,
    logits: Callable[[int], Logits],
    committed: Sequence[int],
    settings: SamplingSettings,
    rng: np.random.Generator,
) -> Verdict:
    """Judge `draft` (k tokens) on rows 0..k of the target's `logits`; rows behind a rejection are never read."""
    window = Window(committed, draft.tokens, settings)
    judge = _judge_greedy if settings.greedy else _judge_sampled
    for position in range(len(draft)):
        replacement = judge(draft, position, logits(position), window.at(position), settings, rng)
        if replacement is not None:
            return Verdict(position, replacement, "recovered")
    k = len(draft)
    token = choose(logits(k), window.at(k), settings, rng)
    return Verdict(k, token, "bonus" if k else "target")


def choose(row: Logits, recent: Sequence[int], settings: SamplingSettings, rng: np.random.Generator) -> int:
    """Return the target's own next token: the best one, or a draw."""
    if settings.greedy:
        return best_token(row, recent, settings)
    return distribution(row, recent, settings).draw(rng)


def _judge_greedy(
    draft: Draft,
    position: int,
    row: Logits,
    recent: Sequence[int],
    settings: SamplingSettings,
    _rng: np.random.Generator,
) -> int | None:
    """Return None to accept, or the target's best token."""
    best = best_token(row, recent, settings)
    return None if best == draft.tokens[position] else best


def _judge_sampled(
    draft: Draft,
    position: int,
    row: Logits,
    recent: Sequence[int],
    settings: SamplingSettings,
    rng: np.random.Generator,
) -> int | None:
    """Return None to accept, or a draw from the residual."""
    token = draft.tokens[position]
    target_probs = distribution(row, recent, settings)
    draft_probs = draft.distributions[position] if draft.distributions is not None else one_hot(token)
    if rng.random() * draft_probs.prob(token) < target_probs.prob(token):
        return None
    return target_probs.without(draft_probs).draw(rng)
