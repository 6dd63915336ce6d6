"""How often guesses come true: running estimates by class, slow forgetting, and going on from what was kept."""

from __future__ import annotations

import numpy as np
import pytest

from specui.engine.rates import ANSWER_WEIGHT, MOST_WEIGHT, Record, SuccessRates


def rates() -> SuccessRates:
    return SuccessRates((2, 4, 8), (0.1, 0.4, 0.7, 0.95))


def test_rates_start_at_the_prior_of_their_class() -> None:
    assert [rates().rate(value) for value in (0, 1.9, 2, 3, 4, 7, 8, 100)] == pytest.approx(
        [0.1, 0.1, 0.4, 0.4, 0.7, 0.7, 0.95, 0.95]
    )


def test_rates_learn_class_by_class() -> None:
    known = rates()
    for _ in range(200):
        known.observe(3, hit=True)
        known.observe(9, hit=False)
    assert known.rate(2) > 0.98
    assert known.rate(8) < 0.02
    assert (known.rate(1), known.rate(5)) == pytest.approx((0.1, 0.7)), "the others are as they were"


def test_one_reading_moves_a_rate_a_little_towards_it() -> None:
    for hit in (True, False):
        known = rates()
        known.observe(5, hit)
        assert 0.02 < abs(known.rate(5) - 0.7) < 0.1
        assert (known.rate(5) > 0.7) is hit


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9])
def test_rates_come_to_the_true_share(share: float) -> None:
    known, rng = rates(), np.random.default_rng(3)
    seen = []
    for _ in range(2000):
        known.observe(5, bool(rng.random() < share))
        seen.append(known.rate(5))
    assert float(np.mean(seen[200:])) == pytest.approx(share, abs=0.04), f"expected {share} in the mean"
    assert all(0 <= rate <= 1 for rate in seen)


def test_rates_forget_slowly() -> None:
    known = rates()
    for _ in range(500):
        known.observe(5, hit=True)
    known.observe(5, hit=False)
    assert known.rate(5) > 0.9, "one miss is not the end of trust"
    for _ in range(50):
        known.observe(5, hit=False)
    assert known.rate(5) > 0.4, "what was seen long ago still counts"
    for _ in range(150):
        known.observe(5, hit=False)
    assert known.rate(5) < 0.06


def test_rates_count_what_they_saw_and_go_on_from_records() -> None:
    known, other = rates(), rates()
    for hit in (True, True, False):
        known.observe(5, hit)
    assert [record.seen for record in known.records] == [0, 0, 3, 0]
    other.recall(known.records)
    assert other.records == known.records
    other.observe(5, hit=True)
    assert other.rate(5) > known.rate(5), "a copy learns alone"
    assert other.records[2].seen == 4


def test_records_of_other_classes_are_left_alone() -> None:
    known = rates()
    known.recall([Record(1.0, 2.0)] * 3)
    assert known.records == rates().records


@pytest.mark.parametrize("hit", [True, False])
def test_a_long_answer_does_not_speak_for_the_others(hit: bool) -> None:
    known, prior = rates(), rates().rate(5)
    for _ in range(500):
        known.observe(5, hit)
    assert known.rate(5) == pytest.approx(float(hit), abs=0.01), "this answer is as it is"
    known.begin_answer()
    weight = 8.0 + ANSWER_WEIGHT
    assert known.rate(5) == pytest.approx((8.0 * prior + ANSWER_WEIGHT * hit) / weight)
    assert known.records[2].trials == pytest.approx(weight)


def test_many_answers_speak_for_themselves_and_the_latest_loudest() -> None:
    known = rates()
    for hit in [False] * 20 + [True] * 5:
        for _ in range(100):
            known.observe(5, hit)
        known.begin_answer()
    assert 0.5 < known.rate(5) < 0.8
    assert known.records[2].trials == pytest.approx(MOST_WEIGHT)
    assert known.records[2].seen == 2500


def test_an_answer_without_guesses_changes_nothing() -> None:
    known = rates()
    for _ in range(3):
        known.observe(5, hit=False)
    records = known.records
    for _ in range(5):
        known.begin_answer()
        assert known.records == records
        assert known.rates == pytest.approx([record.rate for record in records])
