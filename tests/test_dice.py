"""Numbers by place: the same every time, independent of each other, and distributed as they should be."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from specui.engine.dice import FEW, Dice, Use

USES: tuple[Use, ...] = ("token", "draft", "accept", "residual")
IDS = np.arange(20_000)


def test_a_number_depends_on_seed_use_and_place_alone() -> None:
    first, again = Dice(7), Dice(7)
    places = list(product(USES, range(50)))
    want = {(use, place): first.uniform(use, place) for use, place in places}
    assert {(use, place): again.uniform(use, place) for use, place in reversed(places)} == want
    assert len(set(want.values())) == len(want)
    assert Dice(8).uniform("token", 3) != first.uniform("token", 3)


def test_a_tokens_wait_does_not_depend_on_the_other_tokens() -> None:
    waits = Dice(1).waits("token", 9, IDS)
    some = np.array([17, 4, 19_999])
    assert np.array_equal(Dice(1).waits("token", 9, some), waits[some])


def test_few_tokens_are_drawn_as_many_are() -> None:
    """Worked on one by one they wait as long as in an array, so that two distributions still draw alike."""
    rng = np.random.default_rng(4)
    ids = np.arange(0, 3 * FEW, 3)
    for place in range(300):
        probs = rng.dirichlet(np.full(FEW, 0.3))
        probs[place % FEW] = 0.0
        many_ids, many = np.append(ids, 10**6), np.append(probs, 0.0)
        assert len(many) > FEW
        first = Dice(9).first("token", place, ids, probs)
        assert first == Dice(9).first("token", place, many_ids, many)
        assert probs[first] > 0


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**63 - 1])
def test_waits_are_exponential(seed: int) -> None:
    waits = Dice(seed).waits("token", 5, IDS)
    assert np.isfinite(waits).all()
    assert (waits > 0).all()
    shares = np.histogram(np.exp(-waits), bins=20, range=(0, 1))[0]
    statistic = float((((shares - 1000) ** 2) / 1000).sum())
    assert statistic < 43.8, (
        f"chi-square {statistic:.1f} with 19 degrees of freedom, expected below 43.8 (999 of 1,000)"
    )


@pytest.mark.parametrize("steps", [(1, 0), (0, 1)], ids=["next seed", "next place"])
def test_neighbours_are_not_correlated(steps: tuple[int, int]) -> None:
    seed_step, place_step = steps
    pairs = [
        (
            Dice(n * seed_step).uniform("accept", n * place_step),
            Dice((n + 1) * seed_step).uniform("accept", (n + 1) * place_step),
        )
        for n in range(20_000)
    ]
    correlation = float(np.corrcoef(np.array(pairs).T)[0, 1])
    assert abs(correlation) < 4 / np.sqrt(20_000), f"expected 0 within 0.028, got {correlation:.4f}"


def test_uses_are_not_correlated() -> None:
    numbers = np.array([[Dice(seed).uniform(use, 3) for use in USES] for seed in range(10_000)])
    off = np.corrcoef(numbers.T) - np.eye(len(USES))
    assert np.abs(off).max() < 4 / np.sqrt(10_000), f"expected 0 within 0.04, got {np.abs(off).max():.4f}"
