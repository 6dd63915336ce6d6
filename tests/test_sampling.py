"""Filters, temperature and penalties against plain re-computations of what llama.cpp's samplers do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from specui.config import SamplingSettings
from specui.engine.dice import Dice
from specui.engine.sampling import Distribution, Logits, adjusted, best_token, distribution, one_hot, top_probability

OPEN = SamplingSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def with_settings(**values: float) -> SamplingSettings:
    base: dict[str, float] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    return SamplingSettings(**{**base, **values})  # type: ignore[arg-type]


def plain(row: Logits, recent: Sequence[int], s: SamplingSettings) -> dict[int, float]:
    """Compute the distribution the slow way, in llama.cpp's order: penalties, top-k, top-p, min-p, temperature."""
    logits = {i: float(x) for i, x in enumerate(row)}
    for token, count in Counter(recent).items():
        x = logits[token]
        x = x / s.repeat_penalty if x > 0 else x * s.repeat_penalty
        logits[token] = x - count * s.frequency_penalty - s.presence_penalty
    order = sorted(logits, key=lambda i: (-logits[i], i))
    if s.top_k:
        order = order[: s.top_k]
    weights = [np.exp(logits[i] - logits[order[0]]) for i in order]
    total, reached, keep = sum(weights), 0.0, len(order)
    for n, weight in enumerate(weights, start=1):
        reached += weight
        if reached >= s.top_p * total and s.top_p < 1:
            keep = n
            break
    order = order[:keep]
    order = [i for i in order if s.min_p == 0 or np.exp(logits[i] - logits[order[0]]) >= s.min_p * (1 - 1e-12)]
    heated = [np.exp((logits[i] - logits[order[0]]) / s.temperature) for i in order]
    return {i: weight / sum(heated) for i, weight in zip(order, heated, strict=True)}


def as_dict(d: Distribution) -> dict[int, float]:
    return dict(zip(d.ids.tolist(), d.probs.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(60))
def test_filters_equal_a_plain_computation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    row = (4 * rng.normal(size=50)).astype(np.float32)
    recent = rng.integers(0, 50, size=20).tolist()
    settings = SamplingSettings(
        temperature=float(rng.choice([0.01, 0.7, 1.0, 2.5])),
        top_k=int(rng.choice([0, 1, 5, 40, 50, 1000])),
        top_p=float(rng.choice([0.0, 1e-4, 0.3, 0.95, 1.0])),
        min_p=float(rng.choice([0.0, 0.05, 0.5, 1.0])),
        repeat_penalty=float(rng.choice([0.8, 1.0, 1.3])),
        presence_penalty=float(rng.choice([0.0, 0.5])),
        frequency_penalty=float(rng.choice([0.0, 0.2])),
    )
    kept = row.copy()
    got = as_dict(distribution(row, recent, settings))
    want = plain(row.astype(np.float64).astype(np.float32), recent, settings)
    assert set(got) == set(want), f"expected the tokens {sorted(want)}"
    assert got == pytest.approx(want, rel=1e-4)
    assert sum(got.values()) == pytest.approx(1)
    assert np.array_equal(row, kept), "penalties must be taken back"


@pytest.mark.parametrize("top_k", [0, 1, 40, 1000, 2000])
@pytest.mark.parametrize(
    ("top_p", "min_p"), [(1.0, 0.0), (0.95, 0.0), (0.0, 0.0), (0.95, 0.05), (1.0, 0.05), (0.3, 1.0)]
)
@pytest.mark.parametrize(("spread", "lead"), [(3.0, 0.0), (3.0, 12.0), (0.01, 0.0), (40.0, 0.0)])
def test_shortcuts_for_long_rows_change_nothing(
    top_k: int, top_p: float, min_p: float, spread: float, lead: float
) -> None:
    """Rows longer than the columns in which the best are looked for, with many ties; with and without a clear best."""
    row = np.round(spread * np.random.default_rng(7).normal(size=2500), 1).astype(np.float32)
    row[1234] = row.max() + lead
    settings = with_settings(top_k=top_k, top_p=top_p, min_p=min_p)
    got, want = distribution(row, (), settings), plain(row, (), settings)
    assert got.ids.tolist() == list(want), "the same tokens in the same order"
    assert got.probs == pytest.approx(list(want.values()), rel=1e-9)


@pytest.mark.parametrize("temperature", [0, 1e-300, 1e-6, 1e-4, 0.01, 100])
@pytest.mark.parametrize("top_p", [0, 1e-4, 1])
@pytest.mark.parametrize("top_k", [0, 1, 40])
@pytest.mark.parametrize("min_p", [0.0, 1e-3])
def test_extreme_settings_give_a_usable_distribution(
    temperature: float, top_p: float, top_k: int, min_p: float
) -> None:
    row = np.array([1.0, 3.0, 3.0, -2.0, 0.5], np.float32)
    d = distribution(row, (), with_settings(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p))
    assert np.isfinite(d.probs).all() and d.probs.sum() == pytest.approx(1)
    assert d.ids[0] == 1, "the lower id comes first among equals"
    if temperature == 0 or top_k == 1 or top_p <= 1e-4:
        assert as_dict(d) == {1: 1.0}


def test_tiny_temperature_keeps_only_the_best() -> None:
    row = np.array([1.0, 3.0, 2.9999, -2.0], np.float32)
    assert as_dict(distribution(row, (), with_settings(temperature=1e-6)))[1] == pytest.approx(1)


@pytest.mark.parametrize("min_p", [0.0, 1e-3])
@pytest.mark.parametrize(("top_p", "kept"), [(0.25, 1), (0.5, 2), (0.75, 3), (0.76, 4)])
def test_top_p_ends_at_the_token_that_reaches_it(top_p: float, kept: int, min_p: float) -> None:
    row = np.zeros(4, np.float32)
    assert len(distribution(row, (), with_settings(top_p=top_p, min_p=min_p)).ids) == kept


def test_top_p_finds_its_share_far_below_the_best() -> None:
    row = np.zeros(200_000, np.float32)
    row[5] = 16.5
    rest = 0.999 * (1 + 199_999 * np.exp(-16.5)) - 1
    assert len(distribution(row, (), with_settings(top_p=0.999)).ids) == pytest.approx(1 + rest / np.exp(-16.5), abs=2)


def test_many_ties_are_ordered_by_id() -> None:
    row = np.random.default_rng(0).integers(0, 3, size=5000).astype(np.float32)
    d = distribution(row, (), OPEN)
    assert d.ids.tolist() == sorted(range(5000), key=lambda i: (-row[i], i))


def test_equal_logits_beyond_top_k_lose_by_id() -> None:
    d = distribution(np.zeros(1000, np.float32), (), with_settings(top_k=3))
    assert as_dict(d) == pytest.approx({0: 1 / 3, 1: 1 / 3, 2: 1 / 3})


@pytest.mark.parametrize("spread", [0.1, 3.0, 30.0, 1000.0])
@pytest.mark.parametrize("k", [1, 40, 499])
def test_top_k_keeps_the_k_best_of_any_spread(spread: float, k: int) -> None:
    row = (spread * np.random.default_rng(3).normal(size=500)).astype(np.float32)
    d = distribution(row, (), with_settings(top_k=k, temperature=100))
    assert sorted(d.ids.tolist()) == sorted(np.argsort(-row, kind="stable")[:k].tolist())


def test_masked_logits_get_no_probability() -> None:
    row = np.array([-np.inf, 1.0, -np.inf, 0.0], np.float32)
    d = distribution(row, (), OPEN)
    assert d.prob(0) == d.prob(2) == 0
    assert d.probs.sum() == pytest.approx(1)


def test_greedy_takes_the_lowest_id_among_equals_and_heeds_penalties() -> None:
    row = np.array([1.0, 2.0, 2.0], np.float32)
    assert best_token(row, (), SamplingSettings()) == 1
    assert best_token(row, [1], SamplingSettings(repeat_penalty=1.1)) == 2
    assert best_token(row, [1, 2], SamplingSettings(presence_penalty=1.5)) == 0
    assert best_token(row, [1, 1, 2], SamplingSettings(frequency_penalty=0.1)) == 2
    assert row.tolist() == [1.0, 2.0, 2.0]


def test_a_repeat_penalty_pushes_negative_logits_down_too() -> None:
    row = np.array([-1.0, -1.5], np.float32)
    with adjusted(row, [0], SamplingSettings(repeat_penalty=2.0)):
        assert row.tolist() == [-2.0, -1.5]
    assert row.tolist() == [-1.0, -1.5]


def test_penalties_are_taken_back_after_an_error() -> None:
    row = np.array([1.0, 2.0], np.float32)
    with pytest.raises(ZeroDivisionError), adjusted(row, [1], SamplingSettings(presence_penalty=1.0)):
        raise ZeroDivisionError
    assert row.tolist() == [1.0, 2.0]


def test_no_window_no_penalty() -> None:
    assert not SamplingSettings(repeat_penalty=1.5, repeat_last_n=0).penalised


def test_residual_is_what_the_draft_left_over() -> None:
    target = Distribution(np.array([0, 1, 2]), np.array([0.5, 0.3, 0.2]))
    draft = Distribution(np.array([2, 0, 7]), np.array([0.1, 0.6, 0.3]))
    assert as_dict(target.without(draft)) == pytest.approx({0: 0.0, 1: 0.75, 2: 0.25})
    assert as_dict(target.without(one_hot(1))) == pytest.approx({0: 5 / 7, 1: 0.0, 2: 2 / 7})
    assert as_dict(target.without(target)) == as_dict(target), "nothing left over: the target's own choice"
    assert as_dict(target.without(one_hot(9))) == as_dict(target)


def test_draw_never_takes_a_token_without_probability() -> None:
    d = Distribution(np.array([4, 5, 6, 7]), np.array([0.0, 0.5, 0.0, 0.5]))
    counts = Counter(d.draw(Dice(seed), "token", 5) for seed in range(4000))
    assert set(counts) == {5, 7}
    assert abs(counts[5] - 2000) < 5 * np.sqrt(1000), f"expected about 2000 of 4000, got {counts[5]}"


def test_a_token_of_no_probability_is_never_drawn() -> None:
    d = Distribution(np.array([4, 5, 6]), np.array([0.0, 0.7, 0.3]))
    assert {d.draw(Dice(seed), "token", 1) for seed in range(2000)} == {5, 6}


def test_top_probability_is_the_softmax_of_the_best() -> None:
    row = np.log(np.array([0.1, 0.6, 0.3], np.float32))
    assert top_probability(row) == pytest.approx(0.6, rel=1e-6)
    assert top_probability(np.array([1e4, 0.0], np.float32)) == pytest.approx(1)


def test_top_probability_of_a_long_row_is_right_to_a_millionth_and_leaves_the_row_alone() -> None:
    row = (3 * np.random.default_rng(5).normal(size=150_000)).astype(np.float32)
    kept = row.copy()
    exact = 1 / np.exp(row.astype(np.float64) - float(row.max())).sum()
    assert top_probability(row) == pytest.approx(exact, rel=1e-6)
    assert np.array_equal(row, kept)


def test_a_missing_token_has_probability_zero() -> None:
    assert one_hot(3).prob(3) == 1
    assert one_hot(3).prob(4) == 0


def test_a_bias_moves_a_token_before_penalties_and_filters() -> None:
    row = np.array([1.0, 2.0, 3.0, -1.0], np.float32)
    settings = SamplingSettings(logit_bias=((0, 4.0), (2, -100.0), (9, 5.0)), repeat_penalty=2.0)
    with adjusted(row, [0, 1], settings):
        assert row.tolist() == [2.5, 1.0, -97.0, -1.0], "(1 + 4) / 2, 2 / 2, 3 - 100; token 9 does not exist"
    assert row.tolist() == [1.0, 2.0, 3.0, -1.0]
    assert best_token(row, [], SamplingSettings(logit_bias=((3, 10.0),))) == 3
    banned = SamplingSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, logit_bias=((2, -100.0),))
    assert distribution(row, [], banned).prob(2) < 1e-30
