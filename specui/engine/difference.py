"""Where two answers to one prompt first differ, and whether that is a near tie of the target or a fault.

Greedy answers of two modes may differ only where the target's two best logits lie closer together than passes of
several rows move them on this machine, so both are measured at that very place. Knows a cache to decode with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specui.config import SamplingSettings
from specui.engine.drafting import TokenCache, common_prefix, evaluate, rewind
from specui.engine.sampling import Logits, adjusted
from specui.engine.verification import Window

BATCHED_ROWS = (4, 8, 16)
"""Sizes of pass that are held against passes of one row."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first token in which two answers differ; `left` or `right` is None where that answer had ended.

    `top_two_gap` is how far apart the target's two best logits are there, in passes of one row, penalties included.
    `kernel_shift` is how far a logit of that row moves at most when the answer is read in passes of several rows.
    """

    index: int
    left: int | None
    right: int | None
    top_two_gap: float
    kernel_shift: float

    @property
    def near_tie(self) -> bool:
        """Whether rounding alone explains it: two logits that move towards each other close twice the shift."""
        return self.top_two_gap <= 2 * self.kernel_shift


def first_index(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Return the index of the first difference (the shorter length where one begins the other), None where equal."""
    index = common_prefix(left, right)
    return None if index == len(left) == len(right) else index


def first_difference(
    cache: TokenCache,
    prompt: Sequence[int],
    left: Sequence[int],
    right: Sequence[int],
    sampling: SamplingSettings | None = None,
) -> Difference | None:
    """Return where two answers to `prompt` first differ, None where they do not.

    Reads the answer up to there once token by token and once for each of BATCHED_ROWS. `cache` is the target's; what it
    holds afterwards is a beginning of this text. Raises DecodeError, RollbackError.
    """
    index = first_index(left, right)
    if index is None:
        return None
    text, settings = [*prompt, *left[:index]], sampling or SamplingSettings()
    single = _last_row(cache, text, len(prompt), 1)
    shift = 0.0
    for rows in BATCHED_ROWS:
        if rows <= cache.max_rows:
            shift = max(shift, float(np.abs(_last_row(cache, text, len(prompt), rows) - single).max()))
    with adjusted(single, Window(text, (), settings).at(0), settings):
        second, best = np.partition(single, -2)[-2:]
    return Difference(index, _at(left, index), _at(right, index), float(best - second), shift)


def _last_row(cache: TokenCache, text: Sequence[int], prompt_length: int, rows: int) -> Logits:
    """Return the logits [n_vocab] behind `text`, all behind the prompt evaluated in passes of `rows` rows."""
    # The passes are laid out from the end, so that the last one is full; the first may reach back into the prompt.
    answered = len(text) - prompt_length + 1
    start = max(0, len(text) - rows * -(-answered // rows))
    keep = rewind(cache, text[:start])
    for _ in evaluate(cache, text[keep:start], rows=0):
        pass
    for place in range(start, len(text), rows):
        cache.decode(text[place : place + rows], min(rows, len(text) - place))
    return cache.logits(min(rows, len(text) - start) - 1).copy()


def _at(ids: Sequence[int], index: int) -> int | None:
    return ids[index] if index < len(ids) else None
