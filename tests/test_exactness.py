"""Which passes are exact: found by measuring, and drafts are cut to them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from fake_model import FakeCache, random_script

from specui.engine.exactness import KV_STEP, SINGLE, ExactSizes, identical_rows
from specui.engine.sampling import Logits

N_VOCAB = 12


class Rounding(FakeCache):
    """A cache whose passes of some sizes round otherwise, as kernels do."""

    def __init__(self, exact: Sequence[int], long_exact: Sequence[int] = ()) -> None:
        super().__init__(random_script(3))
        self.exact, self.long_exact = {1, *exact}, {1, *long_exact}
        self.measured = 0
        self._size = 0

    def decode(self, tokens: Sequence[int], rows: int) -> None:
        super().decode(tokens, rows)
        self._size = rows
        self.measured += rows > 1

    def logits(self, row: int) -> Logits:
        view = super().logits(row)
        sizes = self.exact if len(self.tokens) <= KV_STEP else self.long_exact
        return view if self._size in sizes else np.nextafter(view, np.float32(np.inf))


@pytest.mark.parametrize("exact", [[], [2, 3], [2, 4, 8, 16], list(range(2, 17))])
def test_the_sizes_that_change_no_bit_are_found(exact: list[int]) -> None:
    cache = Rounding(exact)
    cache.decode([1, 2, 3], rows=1)
    assert identical_rows(cache, N_VOCAB) == {1, *exact}
    assert cache.tokens == [1, 2, 3], "what was there is there again"


def test_the_longest_exact_draft_is_taken() -> None:
    sizes = ExactSizes(Rounding([2, 4, 8]), N_VOCAB)
    assert [sizes.longest(limit) for limit in (0, 1, 2, 3, 6, 7, 63)] == [0, 1, 1, 3, 3, 7, 7]


def test_no_pass_reaches_into_the_next_step_of_the_cache() -> None:
    cache = Rounding(range(2, 17))
    cache.tokens = [1] * (KV_STEP - 5)
    sizes = ExactSizes(cache, N_VOCAB)
    assert sizes.longest(63) == 4
    cache.tokens = [1] * (KV_STEP - 1)
    assert sizes.longest(63) == 0


def test_each_step_is_measured_until_only_single_rows_are_left() -> None:
    cache = Rounding([2, 3], [])
    sizes = ExactSizes(cache, N_VOCAB)
    assert sizes.here() == {1, 2, 3}
    cache.tokens = [1] * KV_STEP
    assert sizes.here() == SINGLE
    measured = cache.measured
    cache.tokens = [1] * (2 * KV_STEP)
    assert sizes.here() == SINGLE
    assert cache.measured == measured, "a longer text was never found to be more exact"


def test_a_memory_that_cannot_be_cut_takes_single_rows_and_is_filled_again() -> None:
    cache = Rounding([2])
    cache.recurrent = True
    cache.decode([1, 2, 3], rows=1)
    assert identical_rows(cache, N_VOCAB) == SINGLE
    assert cache.tokens == [1, 2, 3]


def test_too_little_room_counts_as_different() -> None:
    cache = Rounding(range(2, 17))
    cache.n_ctx = 6
    cache.decode([1, 2, 3], rows=1)
    assert identical_rows(cache, N_VOCAB) == {1, 2, 3}
