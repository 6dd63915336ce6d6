"""The state of a grammar on a scripted one: masks, forks, the shortcut for a top-k, and what happens at a dead end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from specui.engine.grammar import Grammar, Ids, Logits
from specui.errors import SpecUIError

N_VOCAB = 5000


class Script:
    """A grammar state: at each place of a text a set of tokens. Counts the tokens it is asked about."""

    def __init__(self, places: Sequence[Sequence[int]], asked: list[int] | None = None) -> None:
        self.places = places
        self.place = 0
        self.asked = asked if asked is not None else []

    def clone(self) -> Script:
        copy = Script(self.places, self.asked)
        copy.place = self.place
        return copy

    def accept(self, token: int) -> None:
        assert token in self.places[self.place], "llama.cpp would end the process here"
        self.place += 1

    def allowed(self, ids: Ids) -> np.ndarray:
        self.asked.append(len(ids))
        return np.isin(ids, self.places[self.place])

    def allowed_ids(self) -> Ids:
        return np.array(sorted(self.places[self.place]), np.intp)


def grammar(*places: Sequence[int]) -> Grammar:
    return Grammar(Script(places), N_VOCAB)


def random_row(seed: int = 0, sharpness: float = 4.0) -> Logits:
    return (sharpness * np.random.default_rng(seed).normal(size=N_VOCAB)).astype(np.float32)


def test_push_moves_on_and_a_forbidden_token_changes_nothing() -> None:
    state = grammar([1, 2], [3])
    assert [state.allows(token) for token in (0, 1, 2, 3)] == [False, True, True, False]
    with pytest.raises(ValueError, match="token 3"):
        state.push(3)
    assert state.allows(1)
    state.push(1)
    assert state.allows(3)
    assert not state.allows(1)


@pytest.mark.parametrize("token", [-1, N_VOCAB, 2**31])
def test_ids_outside_the_vocabulary_are_not_allowed(token: int) -> None:
    assert not grammar(range(N_VOCAB)).allows(token)


def test_a_fork_moves_on_alone() -> None:
    state = grammar([1], [2], [3])
    state.push(1)
    fork = state.fork()
    fork.push(2)
    assert fork.allows(3)
    assert state.allows(2)
    state.push(2)
    assert state.allows(3)


def test_masked_leaves_the_allowed_tokens_and_gives_the_row_back() -> None:
    row = random_row()
    before, allowed = row.copy(), [7, 11, 4999]
    with grammar(allowed).masked(row):
        assert np.isneginf(np.delete(row, allowed)).all()
        assert (row[allowed] == before[allowed]).all()
    assert (row == before).all()


def test_the_row_comes_back_after_an_error_too() -> None:
    row = random_row()
    before = row.copy()
    with pytest.raises(ZeroDivisionError), grammar([7]).masked(row):
        raise ZeroDivisionError
    assert (row == before).all()


@pytest.mark.parametrize("best", [1, 5, 40])
@pytest.mark.parametrize("share", [0.001, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("sharpness", [0.1, 4.0, 30.0])
def test_the_best_tokens_are_those_of_the_whole_mask(best: int, share: float, sharpness: float) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        row = np.round(random_row(seed, sharpness), 1)  # rounded: many ties
        allowed = rng.choice(N_VOCAB, max(1, int(share * N_VOCAB)), replace=False).tolist()
        with grammar(allowed).masked(row):
            whole = np.argsort(-row, kind="stable")[: min(best, len(allowed))]
        with grammar(allowed).masked(row, best):
            some = np.argsort(-row, kind="stable")[: min(best, len(allowed))]
        assert some.tolist() == whole.tolist()


def test_a_top_k_asks_about_few_tokens() -> None:
    asked: list[int] = []
    row = random_row(sharpness=8.0)
    with Grammar(Script([range(N_VOCAB)], asked), N_VOCAB).masked(row, best=3):
        pass
    assert 0 < sum(asked) < N_VOCAB / 10


@pytest.mark.parametrize("best", [0, 2])
def test_a_row_may_be_shorter_than_the_vocabulary(best: int) -> None:
    row = random_row()[:100]
    before = row.copy()
    with grammar([7, 9, 100, 4999]).masked(row, best):
        assert np.flatnonzero(np.isfinite(row)).tolist() == [7, 9]
    assert (row == before).all()


def test_reach_counts_the_tokens_that_fit_and_moves_nothing() -> None:
    state = grammar([1, 2], [3], [4], [5])
    assert [state.reach(tokens) for tokens in ([], [3], [1], [2, 3, 5], [1, 3, 4])] == [0, 0, 1, 2, 3]
    assert state.allows(1)


@pytest.mark.parametrize("best", [0, 1])
def test_a_dead_end_is_said_and_leaves_the_row(best: int) -> None:
    row = random_row()
    before = row.copy()
    with pytest.raises(SpecUIError, match="grammar"), grammar([]).masked(row, best):
        pytest.fail("a dead end has no mask")
    assert (row == before).all()
