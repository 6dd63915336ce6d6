"""Measuring what passes cost: the staircase on a fake clock, its limits, and going on from what was kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest
from fake_clock import Clock, clock_in
from fake_model import FakeCache, random_script

from specui.engine import calibration
from specui.engine.calibration import (
    ATTENTION_PRICE,
    CALIBRATION_LIMIT_SECONDS,
    CALIBRATION_ROWS,
    CALIBRATION_SECONDS,
    FEW_PASSES,
    FEW_SECONDS,
    LEAST_ROOM,
    MOST_DRIFT,
    calibrate,
    few_passes_seconds,
    recalibrate,
    several_rows_seconds,
)
from specui.errors import RollbackError

STAIRS = {1: 1.0, 2: 1.2, 3: 1.25, 4: 1.3, 6: 2.0, 8: 2.1, 12: 3.0, 16: 4.0, 32: 8.0}


class TimedCache(FakeCache):
    """A fake cache whose passes take `seconds[rows]`, times what `slower` says of the number of the pass."""

    def __init__(self, clock: Clock, seconds: Mapping[int, float], n_ctx: int = 4096, max_rows: int = 64) -> None:
        super().__init__(random_script(1), n_ctx=n_ctx, max_rows=max_rows)
        self.slower: dict[int, float] = {}
        self._clock, self._seconds = clock, seconds

    def decode(self, tokens: Sequence[int], rows: int) -> None:
        super().decode(tokens, rows)
        self._clock.now += self._seconds[len(tokens)] * self.slower.get(len(self.calls) - 1, 1.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return clock_in(monkeypatch, calibration)


def scaled(unit: float) -> dict[int, float]:
    return {rows: unit * seconds for rows, seconds in STAIRS.items()}


HELD = [1, 2, 3, 4, 5]


def test_calibrate_measures_the_staircase_and_leaves_the_cache_as_it_was(clock: Clock) -> None:
    cache = TimedCache(clock, scaled(0.01))
    cache.tokens = list(HELD)
    costs = calibrate(cache, filler=7)
    assert cache.tokens == HELD
    assert cache.clears == 0
    assert {tuple(set(tokens)) for tokens, _ in cache.calls} == {(7,)}, "only the filler is decoded"
    assert all(rows == len(tokens) for tokens, rows in cache.calls), "every row asks for its logits, as verifying does"
    for rows in CALIBRATION_ROWS:
        assert costs.seconds(rows) == pytest.approx(0.01 * STAIRS[rows])


def test_calibrate_on_a_quick_machine_uses_its_time_and_no_more(clock: Clock) -> None:
    calibrate(TimedCache(clock, scaled(0.001)))
    a_round = 0.001 * sum(STAIRS[rows] for rows in CALIBRATION_ROWS)
    assert CALIBRATION_SECONDS <= clock.now <= CALIBRATION_SECONDS + a_round


@pytest.mark.parametrize("unit", [0.03, 0.08, 0.1, 0.12])
def test_calibrate_on_a_slow_machine_stops_within_its_limit(clock: Clock, unit: float) -> None:
    cache = TimedCache(clock, scaled(unit))
    calibrate(cache)
    assert clock.now <= CALIBRATION_LIMIT_SECONDS + unit * STAIRS[32], "a pass that has begun may end, no more"
    assert len(cache.calls) <= 1 + 2 * len(CALIBRATION_ROWS), "two rounds at the most"


@pytest.mark.parametrize(("unit", "measured"), [(0.9, 2), (0.3, 3), (0.2, 5)])
def test_on_a_slow_machine_the_sizes_that_tell_most_are_measured(clock: Clock, unit: float, measured: int) -> None:
    cache = TimedCache(clock, scaled(unit))
    costs = calibrate(cache)
    assert list(costs.points) == sorted(CALIBRATION_ROWS[: len(costs.points)])
    assert len(costs.points) == measured
    assert [rows for _, rows in cache.calls] == [1, *CALIBRATION_ROWS[:measured]]


def test_calibrate_on_a_very_slow_machine_ends_before_its_round_is_over(clock: Clock) -> None:
    cache = TimedCache(clock, scaled(0.9))
    costs = calibrate(cache)
    assert clock.now <= CALIBRATION_LIMIT_SECONDS + 0.9 * STAIRS[16]
    assert costs.seconds(1) == pytest.approx(0.9)


def test_calibrate_where_one_pass_takes_longer_than_the_limit_still_gives_costs(clock: Clock) -> None:
    cache = TimedCache(clock, scaled(CALIBRATION_LIMIT_SECONDS + 1))
    costs = calibrate(cache)
    assert 0 < costs.seconds(1) <= costs.seconds(16) < float("inf")


ONE_ROUND = range(1, 1 + len(CALIBRATION_ROWS))
LATER_ROUNDS = range(1 + len(CALIBRATION_ROWS), 1000)


@pytest.mark.parametrize("slow", [ONE_ROUND, LATER_ROUNDS], ids=["first round", "later rounds"])
def test_calibrate_takes_the_least_reading(clock: Clock, slow: Iterable[int]) -> None:
    cache = TimedCache(clock, scaled(0.01))
    cache.slower = dict.fromkeys(slow, 1.7)
    costs = calibrate(cache)
    for rows in CALIBRATION_ROWS:
        assert costs.seconds(rows) == pytest.approx(0.01 * STAIRS[rows])


@pytest.mark.parametrize(("n_ctx", "max_rows", "longest"), [(64, 4, 4), (21, 64, 16), (13, 64, 8), (64, 2, 2)])
def test_calibrate_asks_for_no_more_than_there_is_room_for(
    clock: Clock, n_ctx: int, max_rows: int, longest: int
) -> None:
    cache = TimedCache(clock, scaled(0.02), n_ctx=n_ctx, max_rows=max_rows)
    cache.tokens = list(HELD)
    calibrate(cache)
    assert max(len(tokens) for tokens, _ in cache.calls) == longest
    assert cache.tokens == HELD


def test_calibrate_tells_of_a_cache_that_cannot_be_cut(clock: Clock) -> None:
    cache = TimedCache(clock, scaled(0.01))
    cache.tokens = list(HELD)
    cache.recurrent = True
    with pytest.raises(RollbackError):
        calibrate(cache)
    assert len(cache.calls) == 1, "the first cut that is refused ends it"
    assert cache.tokens[: len(HELD)] == HELD, "what it held still stands in front, to be restored"


@pytest.mark.parametrize("pace", [0.5, 1.0, 3.0])
def test_what_is_known_needs_few_passes(clock: Clock, pace: float) -> None:
    cache = TimedCache(clock, scaled(0.01 * pace))
    cache.tokens = list(HELD)
    costs = recalibrate(cache, scaled(0.01), 0.0)
    assert costs is not None
    assert [len(tokens) for tokens, _ in cache.calls] == [*[1] * FEW_PASSES, LEAST_ROOM], "and one that is long"
    assert cache.tokens == HELD
    assert {rows: costs.seconds(rows) for rows in STAIRS} == pytest.approx(scaled(0.01 * pace))


@pytest.mark.parametrize("pace", [0.9 / MOST_DRIFT, 1.1 * MOST_DRIFT])
def test_a_pace_that_cannot_be_this_machines_is_refused(clock: Clock, pace: float) -> None:
    assert recalibrate(TimedCache(clock, scaled(0.01 * pace)), scaled(0.01), 0.0) is None


@pytest.mark.parametrize("dearer", [0.5, 0.9, 1.0, 1.3, 3.0])
def test_what_was_learned_on_a_busy_machine_is_held_as_much_cheaper_as_a_long_pass_proves(
    clock: Clock, dearer: float
) -> None:
    kept = {rows: seconds * (dearer if rows > 1 else 1.0) for rows, seconds in scaled(0.01).items()}
    costs = recalibrate(TimedCache(clock, scaled(0.01)), kept, 0.0)
    assert costs is not None
    for rows, seconds in kept.items():
        expected = seconds / min(2.0, max(1.0, dearer)) if rows > 1 else seconds
        assert costs.seconds(rows) == pytest.approx(expected), "what is held too cheap is used, and so learned"


class AttendingCache(TimedCache):
    """A fake cache whose rows take `cell_seconds` more for every token in front."""

    cell_seconds = 0.0

    def decode(self, tokens: Sequence[int], rows: int) -> None:
        in_front = len(self.tokens)
        super().decode(tokens, rows)
        self._clock.now += self.cell_seconds * len(tokens) * in_front


def attending_cache(clock: Clock, unit: float, cell_seconds: float, length: int) -> AttendingCache:
    """Return one that holds `length` tokens; `unit`: seconds of a pass of one row with nothing in front."""
    cache = AttendingCache(clock, scaled(unit))
    cache.cell_seconds = cell_seconds
    cache.tokens = list(range(length))
    return cache


def test_behind_a_long_text_only_what_is_not_attending_was_held_too_dear(clock: Clock) -> None:
    cache = attending_cache(clock, 0.01, 2e-6, 1500)
    kept = {rows: seconds * (1.5 if rows > 1 else 1.0) for rows, seconds in scaled(0.01).items()}
    costs = recalibrate(cache, kept, 2e-6)
    assert costs is not None
    assert costs.points == pytest.approx(scaled(0.01))
    assert costs.cell_seconds == pytest.approx(2e-6)


def test_a_pass_that_mostly_attends_tells_nothing_of_the_rest(clock: Clock) -> None:
    cache = attending_cache(clock, 0.01, 1.6e-6, 3000)
    costs = recalibrate(cache, scaled(0.01), 2e-6)
    assert costs is not None
    for rows in (4, 16):
        assert costs.points[rows] / costs.points[1] == pytest.approx(STAIRS[rows])


@pytest.mark.parametrize("length", [0, 100, 1000])
@pytest.mark.parametrize("guess", [0.5, 1.0, 2.0])
def test_calibrate_takes_attending_out_as_far_as_it_is_guessed_and_use_teaches_it(
    clock: Clock, length: int, guess: float
) -> None:
    cache = attending_cache(clock, 0.01, 2e-6, length)
    row_seconds = 0.01 * (STAIRS[32] - STAIRS[1]) / 31
    costs = calibrate(cache, attention=guess * cache.cell_seconds / (ATTENTION_PRICE * row_seconds))
    for rows in CALIBRATION_ROWS:
        assert costs.seconds(rows) == pytest.approx(0.01 * STAIRS[rows] + 2e-6 * rows * length), "as it was measured"
    if guess == 1.0:
        assert costs.cell_seconds == pytest.approx(2e-6)
        assert costs.points == pytest.approx(scaled(0.01))
    for far in [2000, 3000] * 40:
        costs.at(far)
        for rows in (1, 8, 16):
            costs.observe(rows, 0.01 * STAIRS[rows] + 2e-6 * rows * far)
    for rows in (8, 16):
        expected = (STAIRS[rows] + 2e-4 * rows * 3000) / (1 + 2e-4 * 3000)
        assert costs.seconds(rows) / costs.seconds(1) == pytest.approx(expected, rel=0.05), f"{rows} rows"


@pytest.mark.parametrize("max_rows", [2, 4, 12, 24])
def test_what_attending_takes_is_never_guessed_to_be_nothing(clock: Clock, max_rows: int) -> None:
    steps = {rows: 0.01 * (1 if rows == 1 else 2 + rows // 16) for rows in range(1, 65)}
    cache = TimedCache(clock, steps, max_rows=max_rows)
    assert calibrate(cache, attention=1e-4).cell_seconds > 0, "two sizes on one step of a staircase say nothing"


def test_costs_that_attend_are_known_again_at_any_length(clock: Clock) -> None:
    cache = attending_cache(clock, 0.02, 4e-6, 1500)
    costs = recalibrate(cache, scaled(0.01), 2e-6)
    assert costs is not None
    assert costs.cell_seconds == pytest.approx(4e-6), "twice as slow today"
    assert costs.seconds(16) == pytest.approx(0.02 * STAIRS[16] + 4e-6 * 16 * 1500)


def test_a_few_passes_take_the_least_and_end_early_where_they_are_long(clock: Clock) -> None:
    cache = TimedCache(clock, scaled(0.01))
    cache.slower = {0: 3.0, 2: 1.5}
    assert few_passes_seconds(cache) == pytest.approx(0.01)
    slow = TimedCache(clock, scaled(1.1 * FEW_SECONDS))
    assert few_passes_seconds(slow) == pytest.approx(1.1 * FEW_SECONDS)
    assert len(slow.calls) == 1


def test_a_pass_of_several_rows_is_measured_twice(clock: Clock) -> None:
    cache = TimedCache(clock, {16: 0.055})
    cache.slower = {0: 1.4}
    assert several_rows_seconds(cache) == pytest.approx(0.055)
    assert cache.tokens == [], "what was measured with is cut off again"


def test_several_rows_are_not_measured_without_room(clock: Clock) -> None:
    cache = TimedCache(clock, {16: 0.055})
    cache.n_ctx = 15
    assert several_rows_seconds(cache) is None
    assert cache.calls == []
