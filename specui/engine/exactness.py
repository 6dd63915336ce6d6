"""Which sizes of pass leave every bit of the logits as one row leaves it, on this model, machine and settings.

Batched kernels round otherwise than those for one row, and which sizes do so depends on the kind of quantisation. Knows
a cache to decode with; nothing about drafts.
"""

from __future__ import annotations

import numpy as np

from specui.engine.drafting import TokenCache, refill
from specui.errors import RollbackError

LONGEST = 16
"""Sizes are tested up to this many rows; a longer pass is not held to be exact."""

KV_STEP = 256
SINGLE = frozenset({1})

FIRST_TOKENS = 97
"""The test's tokens are the ids from here on, so many apart: any ids would do, but not all the same."""


def identical_rows(cache: TokenCache, n_vocab: int) -> frozenset[int]:
    """Return the numbers of rows, 1 among them, whose logits equal those of passes of one row in every bit.

    Measured behind what `cache` holds, which is there again afterwards. Takes about three seconds per GiB of weights.
    Sizes for which no room is left, or that reach into the next step of the cache, count as different.
    """
    length = len(cache.tokens)
    kept = list(cache.tokens)
    longest = min(LONGEST, cache.max_rows, cache.n_ctx - length, KV_STEP - length % KV_STEP)
    tokens = [(FIRST_TOKENS * (place + 1)) % n_vocab for place in range(longest)]
    try:
        return _measure(cache, length, tokens)
    except RollbackError:  # a memory that cannot be cut takes no drafts anyway
        refill(cache, kept)
        return SINGLE


def _measure(cache: TokenCache, length: int, tokens: list[int]) -> frozenset[int]:
    # The longest pass comes first: in front of it a recurrent state is copied, and each cut below goes back to that. To
    # one from further back, what was written since would be evaluated again in one pass, which rounds otherwise.
    cache.decode(tokens, rows=0)
    cache.truncate(length)
    single = []
    for token in tokens:
        cache.decode([token], rows=1)
        single.append(cache.logits(0).copy())
    same = {1}
    for size in range(2, len(tokens) + 1):
        cache.truncate(length)
        cache.decode(tokens[:size], rows=size)
        if all(np.array_equal(cache.logits(row), single[row]) for row in range(size)):
            same.add(size)
    cache.truncate(length)
    return frozenset(same)


class ExactSizes:
    """The passes on one cache that are exact, measured where they are first asked for.

    llama.cpp looks at its cache in steps of KV_STEP cells and chooses other kernels by that number, so what holds for a
    short text need not hold for a long one: every step is measured, until only passes of one row are left.
    """

    def __init__(self, cache: TokenCache, n_vocab: int) -> None:
        self._cache = cache
        self._n_vocab = n_vocab
        self._known: dict[int, frozenset[int]] = {}

    def here(self) -> frozenset[int]:
        """Return the exact numbers of rows for a pass behind what the cache holds now."""
        step = len(self._cache.tokens) // KV_STEP
        if step not in self._known:
            before = self._known.get(step - 1)
            single_only = before is not None and before == SINGLE
            self._known[step] = SINGLE if single_only else identical_rows(self._cache, self._n_vocab)
        return self._known[step]

    def longest(self, limit: int) -> int:
        """Return the longest draft of at most `limit` tokens that makes an exact pass; 0 where there is none."""
        sizes = self.here()
        in_step = KV_STEP - len(self._cache.tokens) % KV_STEP
        return max((size - 1 for size in sizes if size - 1 <= limit and size <= in_step), default=0)
