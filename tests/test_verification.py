"""The rejection rule keeps the target's distribution: tested with 50,000 draws each, fixed seeds, stated expectations.

A wrong rule misses the chi-square limits by orders of magnitude; a right one passes 999 seeds of 1,000.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TypeVar

import numpy as np
import pytest
from fake_model import PLAIN

from specui.config import SamplingSettings
from specui.engine.dice import Dice
from specui.engine.sampling import Distribution, Logits, distribution
from specui.engine.verification import EMPTY_DRAFT, Draft, Rules, Verdict, Window, verify

K = TypeVar("K")
DRAWS = 50_000
CHI_SQUARE_LIMITS = {1: 10.8, 2: 13.8, 3: 16.3, 7: 24.3, 8: 26.1, 15: 37.7}
"""By degrees of freedom: passed by 999 right samplers of 1,000."""

TARGET = np.log(np.array([0.45, 0.30, 0.20, 0.05], np.float32))
DRAFT = np.log(np.array([0.10, 0.35, 0.15, 0.40], np.float32))
AFTER = np.log(np.array([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.4, 0.1], [0.05, 0.5, 0.05, 0.4]]))
AFTER_DRAFT = np.log(np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.4, 0.4, 0.1], [0.2, 0.3, 0.4, 0.1], [0.3, 0.3, 0.3, 0.1]]))
FILTERS = {
    "no filter": PLAIN,
    "top-k 3, then top-p 0.75, temperature 0.7": replace(PLAIN, top_k=3, top_p=0.75, temperature=0.7),
}


def probs(row: Logits, settings: SamplingSettings) -> dict[int, float]:
    d = distribution(row.copy(), (), settings)
    return dict(zip(d.ids.tolist(), d.probs.tolist(), strict=True))


def assert_distributed(counts: Mapping[K, int], expected: Mapping[K, float]) -> None:
    """Fail where a chi-square test tells `counts` from `expected`."""
    total = sum(counts.values())
    expected = {key: p for key, p in expected.items() if p > 0}
    assert set(counts) <= set(expected), f"tokens came that must not: {set(counts) - set(expected)}"
    statistic = sum((counts.get(key, 0) - total * p) ** 2 / (total * p) for key, p in expected.items())
    limit = CHI_SQUARE_LIMITS[len(expected) - 1]
    shares = {key: f"expected {p:.4f}, got {counts.get(key, 0) / total:.4f}" for key, p in expected.items()}
    assert statistic < limit, f"chi-square {statistic:.1f}, expected below {limit}: {shares}"


def rules(seed: int, settings: SamplingSettings = PLAIN) -> Rules:
    return Rules(settings, Dice(seed))


def drawn(d: Distribution, seed: int) -> Draft:
    """Return a draft of one token behind one committed token, drawn from `d`."""
    return Draft([d.draw(Dice(seed), "draft", 1)], [d])


def rows(*values: Logits) -> Callable[[int], Logits]:
    copies = [value.astype(np.float32) for value in values]
    return lambda row: copies[row]


@pytest.mark.parametrize("one_hot", [False, True], ids=["draft probabilities", "one-hot"])
@pytest.mark.parametrize("name", FILTERS)
def test_first_token_is_distributed_as_the_target(name: str, one_hot: bool) -> None:
    settings = FILTERS[name]
    logits, draft_row = rows(TARGET, TARGET), DRAFT.copy()
    d = distribution(draft_row, (), settings)
    counts: Counter[int] = Counter()
    for seed in range(DRAWS):
        dice = Dice(seed)
        draft = Draft([1]) if one_hot else Draft([d.draw(dice, "draft", 1)], [d])
        verdict = verify(draft, logits, [0], Rules(settings, dice))
        counts[draft.tokens[0] if verdict.num_accepted else verdict.last_token] += 1
    assert_distributed(counts, probs(TARGET, settings))


@pytest.mark.parametrize("one_hot", [False, True], ids=["draft probabilities", "one-hot"])
def test_first_two_tokens_are_distributed_jointly_as_the_target(one_hot: bool) -> None:
    settings = PLAIN
    after = [distribution(row.astype(np.float32), (), settings) for row in AFTER]
    first_draft = distribution(DRAFT.copy(), (), settings)
    second_draft = [distribution(row.astype(np.float32), (), settings) for row in AFTER_DRAFT]
    logits = [rows(TARGET, row, AFTER[0]) for row in AFTER]
    counts: Counter[tuple[int, int]] = Counter()
    for seed in range(DRAWS):
        dice = Dice(seed)
        a = 1 if one_hot else first_draft.draw(dice, "draft", 1)
        b = 3 if one_hot else second_draft[a].draw(dice, "draft", 2)
        draft = Draft([a, b], None if one_hot else [first_draft, second_draft[a]])
        verdict = verify(draft, logits[a], [0], Rules(settings, dice))
        first, *more = [*draft.tokens[: verdict.num_accepted], verdict.last_token]
        counts[first, more[0] if more else after[first].draw(dice, "token", 2)] += 1
    p, q = np.exp(TARGET.astype(np.float64)), np.exp(AFTER)
    assert_distributed(counts, {(i, j): p[i] * q[i][j] for i, j in product(range(4), repeat=2)})


def test_acceptance_is_the_overlap_and_not_the_chance_of_two_equal_draws() -> None:
    logits, d = rows(TARGET, TARGET), distribution(DRAFT.copy(), (), PLAIN)
    hits = sum(verify(drawn(d, seed), logits, [0], rules(seed)).num_accepted for seed in range(DRAWS))
    target_probs, draft_probs = np.exp(TARGET.astype(np.float64)), np.exp(DRAFT.astype(np.float64))
    overlap = float(np.minimum(target_probs, draft_probs).sum())
    product_sum = float((target_probs * draft_probs).sum())
    sigma = np.sqrt(overlap * (1 - overlap) / DRAWS)
    assert abs(hits / DRAWS - overlap) < 4 * sigma, (
        f"expected sum min(target, draft) = {overlap:.4f}, got {hits / DRAWS:.4f}; "
        f"sum target * draft = {product_sum:.4f} would be the rate of drawing twice"
    )


def test_a_one_hot_draft_is_accepted_with_the_targets_probability() -> None:
    logits = rows(TARGET, TARGET)
    hits = sum(verify(Draft([2]), logits, [0], rules(seed)).num_accepted for seed in range(DRAWS))
    assert abs(hits / DRAWS - 0.20) < 4 * np.sqrt(0.2 * 0.8 / DRAWS), f"expected 0.20, got {hits / DRAWS:.4f}"


def test_a_coupled_draft_is_accepted_at_least_as_often_as_theory_says_and_less_often_than_the_rejection_rule() -> None:
    logits, d = rows(TARGET, TARGET), distribution(DRAFT.copy(), (), PLAIN)
    hits = sum(
        verify(Draft([d.draw(Dice(seed), "token", 1)]), logits, [0], rules(seed)).num_accepted for seed in range(DRAWS)
    )
    distance = 1 - float(np.minimum(np.exp(TARGET.astype(np.float64)), np.exp(DRAFT.astype(np.float64))).sum())
    low, high = (1 - distance) / (1 + distance), 1 - distance
    assert low - 0.01 < hits / DRAWS < high, f"expected {low:.4f} to {high:.4f}, got {hits / DRAWS:.4f}"


@pytest.mark.parametrize("tokens", [[0], [1], [2, 3], [3, 2, 1]])
def test_without_draft_probabilities_one_seed_gives_one_text_whatever_was_drafted(tokens: Sequence[int]) -> None:
    logits = rows(TARGET, AFTER[0], AFTER[1], AFTER[2])
    for seed in range(500):
        verdict = verify(Draft(tokens), logits, [0], rules(seed))
        got = [*tokens[: verdict.num_accepted], verdict.last_token]
        alone = [
            verify(EMPTY_DRAFT, lambda row, place=place: logits(place), [0] * (1 + place), rules(seed)).last_token  # type: ignore[misc]
            for place in range(len(got))
        ]
        assert got == alone


def test_a_draft_that_is_the_target_is_always_accepted() -> None:
    logits, d = rows(TARGET, TARGET), distribution(TARGET.copy(), (), PLAIN)
    assert all(verify(drawn(d, seed), logits, [0], rules(seed)).num_accepted == 1 for seed in range(3000))


def test_a_token_the_targets_filters_forbid_is_never_accepted() -> None:
    settings, logits = replace(PLAIN, top_k=2), rows(TARGET, TARGET)
    verdicts = [verify(Draft([3]), logits, [0], rules(seed, settings)) for seed in range(2000)]
    assert {v.num_accepted for v in verdicts} == {0}
    assert_distributed(Counter(v.last_token for v in verdicts), {0: 0.6, 1: 0.4})


def peaked(*best: int, n_vocab: int = 6) -> Callable[[int], Logits]:
    return rows(*[np.eye(n_vocab)[token] for token in best])


@pytest.mark.parametrize(
    ("tokens", "verdict"),
    [
        ([1, 2, 3], Verdict(3, 4, "bonus")),
        ([1, 2, 5], Verdict(2, 3, "recovered")),
        ([1, 5, 3], Verdict(1, 2, "recovered")),
        ([5, 2, 3], Verdict(0, 1, "recovered")),
        ([], Verdict(0, 1, "target")),
    ],
)
def test_greedy_accepts_up_to_the_first_difference(tokens: Sequence[int], verdict: Verdict) -> None:
    assert verify(Draft(tokens), peaked(1, 2, 3, 4), [0], rules(0, SamplingSettings())) == verdict


def test_rows_behind_a_rejection_are_never_read() -> None:
    def logits(row: int) -> Logits:
        assert row <= 1, "row 1 rejects; nothing behind it may be looked at"
        return peaked(1, 2, 3)(row)

    for settings in (SamplingSettings(), PLAIN):
        verdict = verify(Draft([1, 5, 3]), logits, [0], rules(0, replace(settings, top_k=1)))
        assert verdict == Verdict(1, 2, "recovered")


def test_each_position_sees_what_was_committed_and_the_draft_before_it() -> None:
    settings = SamplingSettings(repeat_penalty=1.1, repeat_last_n=3)
    window = Window([7, 8], [1, 2, 3, 4], settings)
    assert [list(window.at(i)) for i in range(5)] == [[7, 8], [7, 8, 1], [8, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert list(Window([7, 8], [1, 2], SamplingSettings()).at(2)) == [], "no penalty, no window"
    assert list(Window(range(100), [], settings).at(0)) == [97, 98, 99]


def test_a_penalty_on_a_drafted_token_counts_behind_it() -> None:
    row = np.array([0.0, 1.0, 0.9], np.float32)
    settings = SamplingSettings(presence_penalty=0.5)
    verdict = verify(Draft([1, 1]), rows(row, row, row), [0], rules(0, settings))
    assert verdict == Verdict(1, 2, "recovered"), "the second 1 is penalised by the first"


def test_the_residual_is_taken_after_penalties_and_filters() -> None:
    settings = replace(PLAIN, presence_penalty=2.0, top_k=3)
    logits = rows(TARGET, TARGET)
    want = distribution(TARGET.copy(), [0, 1], settings)
    counts: Counter[int] = Counter()
    for seed in range(20_000):
        verdict = verify(Draft([2]), logits, [0, 1], rules(seed, settings))
        counts[2 if verdict.num_accepted else verdict.last_token] += 1
    assert_distributed(counts, dict(zip(want.ids.tolist(), want.probs.tolist(), strict=True)))


def test_an_empty_draft_has_no_length() -> None:
    assert len(EMPTY_DRAFT) == 0
    assert isinstance(distribution(TARGET.copy(), (), SamplingSettings()), Distribution)
