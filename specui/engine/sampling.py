"""From a row of logits to a token: penalties, filters, temperature, and the distribution that results.

The order is llama.cpp's: logit bias, penalties, top-k, top-p, min-p, temperature. Ties go to the lower token id. Knows
numpy only. Rows are views on llama.cpp's buffer; adjustments are written into them and taken back.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import Protocol

import numpy as np
import numpy.typing as npt

from specui.config import SamplingSettings
from specui.engine.dice import FEW, Dice, Use

Logits = npt.NDArray[np.float32]
Ids = npt.NDArray[np.intp]
Probs = npt.NDArray[np.float64]

_COLUMNS = 1024
"""Columns in which the best of a row are looked for: many more than a usual top-k, many fewer than a vocabulary."""
_CERTAIN: Probs = np.ones(1)
_HEAD = 16.0
"""How far below the best logit tokens are looked for at first where top-p alone says how many are wanted."""
_REACH, _MOST_NEAR = 4.0, 256
"""How far below the best logit tokens count as near it, and how many of them are worth looking at one by one."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution over the tokens that passed the filters: `ids` [n] and their `probs` [n], which sum to 1."""

    ids: Ids
    probs: Probs

    def prob(self, token_id: int) -> float:
        """Return the probability of one token, 0 if it did not pass."""
        (places,) = np.nonzero(self.ids == token_id)
        return float(self.probs[places[0]]) if len(places) else 0.0

    def draw(self, dice: Dice, use: Use, place: int) -> int:
        """Draw the token for `place` of the text, with the numbers that `dice` has for this use there."""
        return int(self.ids[dice.first(use, place, self.ids, self.probs) if len(self.ids) > 1 else 0])

    def without(self, other: Distribution) -> Distribution:
        """Return the residual norm(max(0, self - other)); self where nothing is left of it."""
        probs = self.probs.copy()
        _, mine, theirs = np.intersect1d(self.ids, other.ids, assume_unique=True, return_indices=True)
        probs[mine] = np.maximum(0.0, probs[mine] - other.probs[theirs])
        total = probs.sum()
        return Distribution(self.ids, probs / total) if total > 0 else self


def one_hot(token_id: int) -> Distribution:
    """Return the distribution of a draft without probabilities."""
    return Distribution(np.array([token_id]), _CERTAIN)


@contextmanager
def adjusted(row: Logits, recent: Sequence[int], settings: SamplingSettings) -> Iterator[None]:
    """Write logit bias and the penalties of the `recent` tokens into `row` [n_vocab]; take them back at the end.

    As llama.cpp, bias first: a seen token's logit is then divided (if positive) or multiplied by `repeat_penalty`, and
    lowered by count * frequency_penalty + presence_penalty.
    """
    penalised = recent if settings.penalised else ()
    # A draft's vocabulary may be the shorter one.
    bias = {token: value for token, value in settings.logit_bias if token < len(row)}
    seen = Counter(token for token in penalised if token < len(row))
    if not bias and not seen:
        yield
        return
    ids = np.fromiter({**bias, **seen}, np.intp)
    kept = row[ids]
    values = kept + np.fromiter((bias.get(token, 0.0) for token in ids.tolist()), np.float64)
    counts = np.fromiter((seen[token] for token in ids.tolist()), np.float64)
    scaled = np.where(values > 0, values / settings.repeat_penalty, values * settings.repeat_penalty)
    lowered = scaled - counts * settings.frequency_penalty - settings.presence_penalty
    row[ids] = np.where(counts > 0, lowered, values)
    try:
        yield
    finally:
        row[ids] = kept


class Constraint(Protocol):
    """What may stand at a place besides what sampling allows, such as a grammar in one of its states."""

    def fork(self) -> Constraint:
        """Return a copy that can be moved on without this one."""
        ...

    def push(self, token: int) -> None:
        """Move on over a token."""
        ...

    def allows(self, token: int) -> bool:
        """Return whether `token` may come next."""
        ...

    def reach(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens`, from the first on, may come next."""
        ...

    def masked(self, row: Logits, best: int = 0) -> AbstractContextManager[None]:
        """Write minus infinity into the tokens of `row` [n_vocab] that may not come next; take it back at the end.

        With `best` only that many of the best allowed tokens need stay: all that top-k would keep.
        """
        ...


def _untouched(settings: SamplingSettings, constraint: Constraint | None) -> bool:
    """Return whether rows are taken as they are."""
    return constraint is None and not settings.logit_bias and not settings.penalised


def best_token(
    row: Logits, recent: Sequence[int], settings: SamplingSettings, constraint: Constraint | None = None
) -> int:
    """Return the allowed id with the largest adjusted logit (the lowest id among equals)."""
    if _untouched(settings, constraint):
        return int(row.argmax())
    with adjusted(row, recent, settings):
        best = int(row.argmax())
        if constraint is None or constraint.allows(best):
            return best
        with constraint.masked(row, 1):
            return int(row.argmax())


def distribution(
    row: Logits, recent: Sequence[int], settings: SamplingSettings, constraint: Constraint | None = None
) -> Distribution:
    """Return what a token is drawn from, after constraint, penalties, filters and temperature (greedy: one token)."""
    if settings.greedy:
        return one_hot(best_token(row, recent, settings, constraint))
    if _untouched(settings, constraint):
        return _filtered(row, settings)
    with adjusted(row, recent, settings), constraint.masked(row, settings.top_k) if constraint else nullcontext():
        return _filtered(row, settings)


def _filtered(row: Logits, settings: SamplingSettings) -> Distribution:
    """Return the distribution over what passes the filters."""
    if settings.min_p > 0 and (near := _near(row, settings)) is not None:
        return Distribution(np.array(near[0]), _few_probs(near[1], settings.temperature))
    ids, logits = _candidates(row, settings)
    if len(ids) <= FEW:
        return Distribution(ids, _few_probs(logits.tolist(), settings.temperature))
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the best to minus infinity, as it should
        weights = np.exp((logits - logits[0]) / settings.temperature)
    return Distribution(ids, weights / weights.sum())


def _few_probs(logits: Sequence[float], temperature: float) -> Probs:
    """Return the probabilities of `logits` [n], best first."""
    if len(logits) == 1:
        return _CERTAIN
    best, *others = logits
    few = [1.0, *(math.exp((each - best) / temperature) for each in others)]
    total = sum(few)
    return np.array([each / total for each in few])


def top_probability(row: Logits) -> float:
    """Return the softmax probability of the largest logit of `row` [n_vocab]."""
    below = row - row[row.argmax()]
    return 1.0 / float(np.exp(below, out=below).sum())


def _candidates(row: Logits, settings: SamplingSettings) -> tuple[Ids, Probs]:
    """Return ids and logits that pass the filters, best first."""
    k, left_out = settings.top_k, 0.0
    if 0 < k < len(row):
        ids, logits = _best_first(row, _at_least_k_best(row, k))
        ids, logits = ids[:k], logits[:k]
    else:
        likely, left_out = _likely(row, settings)
        ids, logits = _best_first(row, likely)
    if settings.top_p < 1:
        ids, logits = _top_p(ids, logits, settings.top_p, left_out)
    if settings.min_p > 0:
        keep = max(1, int(np.searchsorted(-logits, -(logits[0] + math.log(settings.min_p)), side="right")))
        ids, logits = ids[:keep], logits[:keep]
    return ids, logits


def _near(row: Logits, settings: SamplingSettings) -> tuple[list[int], list[float]] | None:
    """Return ids and logits that pass the filters, best first, where the tokens near the best say which; needs min-p.

    The others weigh at most exp(-reach) each in units of the best, which mostly is too little to matter for top-p.
    """
    reach = max(_REACH, -math.log(settings.min_p))
    near = _within(row, reach)
    if not 0 < len(near) <= _MOST_NEAR:
        return None
    k = min(settings.top_k or len(row), len(row))
    found = sorted(zip(row[near].tolist(), near.tolist(), strict=True), key=itemgetter(0), reverse=True)[:k]
    values = [value for value, _ in found]
    least = values[0] + math.log(settings.min_p)
    keep = sum(value >= least for value in values)
    if keep > 1 and settings.top_p < 1:
        weights = list(accumulate(math.exp(value - values[0]) for value in values))
        others = (k - len(values)) * math.exp(-reach)
        fewest, most = (1 + bisect_left(weights, settings.top_p * (weights[-1] + more)) for more in (0.0, others))
        if fewest < min(keep, most):
            return None
        keep = min(keep, fewest)
    return [token for _, token in found[:keep]], values[:keep]


def _best_first(row: Logits, ids: Ids) -> tuple[Ids, Probs]:
    """Return ascending `ids` in the order of their logits, with these."""
    values = row[ids].astype(np.float64)
    order = np.argsort(-values, kind="stable")
    return ids[order], values[order]


def _at_least_k_best(row: Logits, k: int) -> Ids:
    """Return, ascending, ids that hold the k best and all that equal the last of them.

    Laid out in columns, the row has k tokens at least that reach the k-th best of the columns' maxima.
    """
    whole = len(row) - len(row) % _COLUMNS
    values = row[:whole].reshape(-1, _COLUMNS).max(axis=0) if k <= _COLUMNS <= whole else row
    floor = np.partition(values, len(values) - k)[len(values) - k]
    return np.flatnonzero(row >= floor if floor > -np.inf else row > -np.inf)


def _within(row: Logits, distance: float) -> Ids:
    """Return, ascending, the ids of logits at most `distance` below the best."""
    ids: Ids = (row >= float(row[row.argmax()]) - distance).nonzero()[0]
    return ids


def _likely(row: Logits, settings: SamplingSettings) -> tuple[Ids, float]:
    """Return, ascending, ids that hold all that top-p and min-p can keep, and the weight of the others (the best's: 1).

    They are few as a rule, and to sort a whole vocabulary costs more than a pass of a small model.
    """
    ids = _within(row, -math.log(settings.min_p) if settings.min_p > 0 else _HEAD)
    best = np.float64(row.max())
    total = float(np.exp(row - best).sum()) if settings.top_p < 1 else 0.0
    head = float(np.exp(row[ids] - best).sum())
    if settings.min_p > 0 or (settings.top_p < 1 and head > settings.top_p * total):
        return ids, max(0.0, total - head)
    return np.flatnonzero(row > -np.inf), 0.0


def _top_p(ids: Ids, logits: Probs, top_p: float, left_out: float) -> tuple[Ids, Probs]:
    """Keep the fewest best ids that have the share `top_p` of all weight; `left_out` of it is of worse ones."""
    weights = np.exp(logits - logits[0])
    reached = np.cumsum(weights) >= top_p * (weights.sum() + left_out)
    keep = int(reached.argmax()) + 1 if reached.any() else len(ids)
    return ids[:keep], logits[:keep]
