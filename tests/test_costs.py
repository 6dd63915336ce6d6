"""Costs of passes: the staircase, its padding, drift and outliers, attending, sizes that are hardly known."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest

from specui.engine.calibration import CALIBRATION_ROWS
from specui.engine.costs import LEARNING, PassCosts

STAIRS = {1: 1.0, 2: 1.2, 3: 1.25, 4: 1.3, 6: 2.0, 8: 2.1, 12: 3.0, 16: 4.0, 32: 8.0}


def assert_never_dearer_than_longer(costs: PassCosts) -> None:
    curve = [costs.seconds(rows) for rows in range(2, 65)]
    assert min(costs.seconds(1), curve[0]) > 0
    for rows, (seconds, longer) in enumerate(pairwise(curve), start=2):
        assert seconds <= longer + 1e-12, f"{rows} rows are held dearer than {rows + 1}"


def test_measured_points_are_given_back_and_lines_run_between_them() -> None:
    costs = PassCosts(STAIRS)
    assert {rows: costs.seconds(rows) for rows in STAIRS} == pytest.approx(STAIRS)
    assert costs.seconds(5) == pytest.approx(1.65)
    assert costs.seconds(7) == pytest.approx(2.05)
    assert costs.seconds(9) == pytest.approx(2.1 + 0.9 / 4)


@pytest.mark.parametrize(
    ("points", "rows", "seconds"),
    [
        (STAIRS, 64, 8.0 + 32 * 7.0 / 31),
        ({1: 1.0, 32: 1.0}, 64, 1.0),
        ({1: 1.0, 8: 4.5}, 64, 32.5),
        ({1: 1.0, 12: 6.5, 16: 6.1}, 64, 6.1 + 48 * 5.1 / 15),
        ({1: 1.0, 4: 0.8}, 64, 0.8),
        ({1: 1.0}, 64, 64.0),
        ({4: 2.0}, 64, 32.0),
    ],
    ids=["stairs", "flat", "straight", "a dip at the end", "cheaper than one", "one point", "not of one row"],
)
def test_beyond_the_points_each_row_costs_what_it_does_between_them_in_the_mean(
    points: Mapping[int, float], rows: int, seconds: float
) -> None:
    costs = PassCosts(points)
    assert costs.seconds(rows) == pytest.approx(seconds)
    last = max(points)
    middle = (last + rows) // 2
    part = (middle - last) / (rows - last)
    assert costs.seconds(middle) == pytest.approx(points[last] + part * (seconds - points[last]))


def test_below_the_points_the_cost_shrinks_with_the_rows() -> None:
    assert PassCosts({4: 2.0}).seconds(2) == pytest.approx(1.0)


def test_the_order_of_the_points_does_not_matter() -> None:
    turned = PassCosts(dict(reversed(STAIRS.items())))
    assert [turned.seconds(r) for r in range(1, 20)] == [PassCosts(STAIRS).seconds(r) for r in range(1, 20)]


def test_a_dip_makes_every_shorter_pass_as_cheap() -> None:
    costs = PassCosts({1: 1.0, 2: 1.2, 3: 2.5, 4: 1.5, 6: 2.0, 8: 1.8})
    assert costs.seconds(3) == pytest.approx(1.5), "it could be padded to four rows"
    assert costs.seconds(6) == costs.seconds(7) == pytest.approx(1.8), "they could be padded to eight rows"
    assert costs.seconds(2) == pytest.approx(1.2)


@pytest.mark.parametrize("seed", range(30))
def test_a_pass_is_never_held_dearer_than_a_longer_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.choice(np.arange(1, 33), size=int(rng.integers(1, 9)), replace=False)
    costs = PassCosts({int(r): float(rng.uniform(0.5, 4.0)) for r in rows})
    assert_never_dearer_than_longer(costs)
    for _ in range(40):
        costs.observe(int(rng.integers(1, 33)), float(rng.uniform(0.1, 10.0)))
        assert_never_dearer_than_longer(costs)


FOURS = {1: 21.0, 2: 37.3, 3: 53.4, 4: 37.0, 6: 61.0, 8: 68.7, 12: 99.5, 16: 101.0}
"""Qwen 1.5B Q4_0: kernels that work in fours."""


@pytest.mark.parametrize(
    ("rows", "most", "size"),
    [(2, 64, 4), (3, 64, 4), (4, 64, 4), (5, 64, 5), (3, 3, 3), (2, 3, 2), (64, 64, 64), (9, 4, 9)],
)
def test_a_pass_over_a_draft_is_padded_where_the_longer_one_is_cheaper(rows: int, most: int, size: int) -> None:
    assert PassCosts(FOURS).padded(rows, most) == size


@pytest.mark.parametrize("most", [1, 2, 64])
def test_a_pass_of_one_row_is_never_padded_and_costs_what_it_costs(most: int) -> None:
    costs = PassCosts({1: 5.0, 2: 1.0, 4: 0.5})
    assert costs.padded(1, most) == 1
    assert costs.seconds(1) == pytest.approx(5.0)


@pytest.mark.parametrize("seed", range(10))
def test_the_table_holds_what_the_padded_pass_costs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = PassCosts({rows: float(rng.uniform(0.5, 4.0)) for rows in CALIBRATION_ROWS})
    for _ in range(30):
        costs.observe(int(rng.integers(1, 17)), float(rng.uniform(0.3, 5.0)))
    for rows in range(1, 65):
        assert costs.seconds(rows) == costs.unpadded_seconds(costs.padded(rows, 64))


def test_points_make_the_same_costs_again() -> None:
    costs = PassCosts(FOURS)
    for rows in (1, 1, 4, 5, 1, 16):
        costs.observe(rows, 1.3 * FOURS.get(rows, 50.0))
    assert curve(PassCosts(costs.points)) == pytest.approx(curve(costs))


def curve(costs: PassCosts) -> list[float]:
    return [costs.seconds(rows) for rows in range(1, 65)]


@pytest.mark.parametrize("seed", range(8))
def test_seconds_are_the_lines_between_the_points_times_the_drift_and_the_best_of_all_longer_ones(seed: int) -> None:
    rng, costs = np.random.default_rng(seed), PassCosts({**FOURS, 32: 203.0})
    for _ in range(25):
        rows = int(rng.choice([1, 1, 4, 5, 9, 16, 40, 64]))
        costs.observe(rows, float(rng.uniform(0.5, 2.0)) * costs.unpadded_seconds(rows))
        points = costs.points
        longest = max(points)
        lines = [float(np.interp(rows, list(points), list(points.values()))) for rows in range(1, longest + 1)]
        slope = (points[longest] - points[1]) / (longest - 1)
        lines += [points[longest] + slope * (rows - longest) for rows in range(longest + 1, 65)]
        assert [costs.unpadded_seconds(rows) for rows in range(1, 65)] == pytest.approx(lines)
        assert curve(costs)[1:] == pytest.approx([min(lines[rows - 1 :]) for rows in range(2, 65)])
        assert costs.seconds(1) == pytest.approx(lines[0])


@pytest.mark.parametrize("seconds", [5.0, 13.0, 21.0, 40.0, 500.0])
def test_the_drift_scales_all_rows_alike_and_leaves_the_padding_as_it_is(seconds: float) -> None:
    costs, before = PassCosts(FOURS), PassCosts(FOURS)
    for _ in range(7):
        costs.observe(1, seconds)
    drift = costs.seconds(1) / before.seconds(1)
    assert (drift > 1) is (seconds > 21.0) or seconds == 21.0
    assert curve(costs) == pytest.approx([drift * each for each in curve(before)])
    for rows in range(1, 65):
        assert costs.unpadded_seconds(rows) == pytest.approx(drift * before.unpadded_seconds(rows))
        assert costs.padded(rows, 64) == before.padded(rows, 64)


@pytest.mark.parametrize("slower", [0.6, 1.5, 2.5])
def test_a_machine_that_changes_its_pace_moves_every_point_alike(slower: float) -> None:
    costs = PassCosts(STAIRS)
    rng = np.random.default_rng(0)
    for _ in range(120):
        rows = int(rng.choice([1, 4, 8]))
        costs.observe(rows, slower * STAIRS[rows])
    for rows in (1, 2, 3, 4, 6, 8, 12, 16):
        assert costs.seconds(rows) == pytest.approx(slower * STAIRS[rows], rel=0.25), f"{rows} rows"
    assert costs.seconds(8) / costs.seconds(1) == pytest.approx(STAIRS[8], rel=0.1)


def test_drift_reaches_rows_that_are_not_seen() -> None:
    costs = PassCosts(STAIRS)
    before = costs.seconds(16)
    costs.observe(1, 1.5 * STAIRS[1])
    assert costs.seconds(16) > 1.03 * before
    for _ in range(50):
        costs.observe(1, 1.5 * STAIRS[1])
    ratio = costs.seconds(16) / costs.seconds(1)
    assert ratio == pytest.approx(STAIRS[16], rel=0.1), "a lasting change is the machine's, not the point's"


def test_a_point_that_is_wrong_is_mended_and_the_others_stay() -> None:
    costs = PassCosts({**STAIRS, 4: 2.0})
    for _ in range(100):
        for rows in (1, 2, 4, 8):
            costs.observe(rows, STAIRS[rows])
    for rows in (1, 2, 4, 8):
        assert costs.seconds(rows) == pytest.approx(STAIRS[rows], rel=0.05), f"{rows} rows"


def test_a_length_that_was_never_measured_is_learned() -> None:
    costs = PassCosts(STAIRS)
    for _ in range(60):
        costs.observe(5, 1.95)
        costs.observe(1, 1.0)
    assert costs.seconds(5) / costs.seconds(1) == pytest.approx(1.95, rel=0.03)
    assert costs.seconds(5) <= costs.seconds(6)


@pytest.mark.parametrize("outlier", [0.001, 0.2, 3.0, 10.0, 1000.0])
@pytest.mark.parametrize("rows", [1, 4, 8])
def test_a_single_outlier_barely_bends_ratios(rows: int, outlier: float) -> None:
    costs = PassCosts(STAIRS)
    costs.observe(rows, outlier * STAIRS[rows])
    others = [other for other in STAIRS if other != rows]
    worst = 0.0
    for _ in range(30):
        bends = [costs.seconds(rows) / costs.seconds(other) * STAIRS[other] / STAIRS[rows] for other in others]
        worst = max(worst, *(abs(bend - 1) for bend in bends))
        for usual in (1, 4, 8):
            costs.observe(usual, STAIRS[usual])
    assert worst <= 0.20, f"a single outlier bent a ratio by {worst:.0%}"
    ratio = costs.seconds(8) / costs.seconds(1)
    assert ratio == pytest.approx(STAIRS[8], rel=0.03), "the bend does not last"
    assert costs.seconds(1) == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("outlier", [0.001, 3.0, 10.0, 1000.0])
def test_a_single_outlier_of_plain_decoding_leaves_no_lasting_bend(outlier: float) -> None:
    costs = PassCosts(STAIRS)
    costs.observe(1, outlier)
    for _ in range(40):
        costs.observe(1, 1.0)
    for rows in (2, 4, 8, 16):
        ratio = costs.seconds(rows) / costs.seconds(1)
        assert ratio == pytest.approx(STAIRS[rows], rel=0.05), f"{rows} rows, 40 usual passes later"


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e9])
def test_absurd_readings_leave_costs_that_can_be_divided_by(seconds: float) -> None:
    costs = PassCosts(STAIRS)
    for _ in range(50):
        costs.observe(1, seconds)
    assert 0 < costs.seconds(1) < float("inf")


@pytest.mark.parametrize("length", [0, 200, 3000])
def test_attending_is_counted_by_rows_and_by_tokens_in_front(length: int) -> None:
    costs = PassCosts(STAIRS, cell_seconds=0.001)
    costs.at(length)
    for rows, seconds in STAIRS.items():
        assert costs.seconds(rows) == pytest.approx(seconds + 0.001 * rows * length)
    assert costs.points == pytest.approx(STAIRS), "points are those with nothing in front"


def test_a_size_that_is_held_too_dear_and_never_used_becomes_cheaper_until_it_is_known() -> None:
    costs = PassCosts({**STAIRS, 16: 12.0, 32: 24.0})
    for step in range(3000):
        costs.passed_over(16)
        costs.at(16 * (step % 2))
    assert costs.seconds(16) == pytest.approx(0.5 * 12.0), "and never cheaper than half of what it was read to take"
    for _ in range(10):
        costs.observe(16, STAIRS[16])
    known = costs.seconds(16)
    assert known == pytest.approx(STAIRS[16], rel=0.1)
    for step in range(100):
        costs.passed_over(16)
        costs.at(16 * (step % 2))
    assert costs.seconds(16) == known, "what was read often is not doubted"


def test_a_size_that_is_hardly_known_learns_quickly() -> None:
    costs = PassCosts({**STAIRS, 16: 8.0})
    costs.observe(16, 4.0)
    assert costs.seconds(16) == pytest.approx(8.0 - 0.2 * 4.0)
    often = PassCosts(STAIRS)
    for _ in range(20):
        often.observe(16, STAIRS[16])
    often.observe(16, 2.0)
    assert often.seconds(16) == pytest.approx(STAIRS[16] - LEARNING * 2.0)


def test_the_version_tells_of_every_change_of_the_tables() -> None:
    costs = PassCosts(STAIRS)
    versions = [costs.version]
    costs.at(500)
    versions.append(costs.version)
    costs.observe(4, 2.0)
    versions.append(costs.version)
    costs.doubt(4)
    versions.append(costs.version)
    costs.at(600)
    versions.append(costs.version)
    costs.observe(1, 3.0)
    costs.at(601)
    assert costs.version == versions[-1], "a drift scales all alike, and a few tokens change nothing"
    assert versions[0] < versions[1] < versions[2] == versions[3] < versions[4], "a doubt shows with the next table"
