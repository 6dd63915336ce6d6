"""Whose turn it is in a race, and what its ratios are worth: fakes, a scripted clock, and numbers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from fake_clock import Clock
from fake_model import FakeCache, FakeDrafters, random_script

from specui.catalog import PairFiles
from specui.compare.records import (
    Speedup,
)
from specui.compare.schedule import rotated, take_turns
from specui.compare.speedup import speedup
from specui.config import DraftingSettings, SpeculationMode, StepSettings
from specui.engine import decoder
from specui.engine.decoder import Decoder, Task
from specui.generation import GenerationRequest, Message

FILES = PairFiles("p", "P", Path("t.gguf"), Path("d.gguf"))
PROMPT = GenerationRequest(messages=(Message("user", "Hi"),))
HANG_SECONDS = 20


# Turns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(decoder, "time", clock)
    return clock


class SlowCache(FakeCache):
    """A fake cache whose passes take time; `log` hears of each."""

    def __init__(self, name: str, seconds: Callable[[int], float], clock: Clock, log: list[str]) -> None:
        super().__init__(random_script(7))
        self._name, self._seconds, self._clock, self._log = name, seconds, clock, log

    def decode(self, tokens: Sequence[int], rows: int) -> None:
        self._clock.now += self._seconds(len(self.calls))
        self._log.append(self._name)
        super().decode(tokens, rows)


class DecoderLane:
    """The real loop on a fake cache, as a lane of the schedule."""

    def __init__(self, cache: FakeCache, max_tokens: int = 40, mode: SpeculationMode = "none") -> None:
        settings = StepSettings(drafting=DraftingSettings(mode))
        task = Task([3, 1, 4, 1, 5], max_tokens, frozenset(), 0, lambda: settings, lambda _token, _origin: False)
        self.decoder = Decoder(cache, FakeDrafters(), task)
        self._prefill = self.decoder.prefill()
        self._reading = True

    @property
    def compute_seconds(self) -> float:
        stats = self.decoder.stats.snapshot()
        return stats.prefill_seconds + stats.decode_seconds

    def advance(self) -> bool:
        if self._reading:
            self._reading = next(self._prefill, None) is not None
            return True
        return self.decoder.step()


def test_the_next_step_goes_to_the_lane_that_computed_least(clock: Clock) -> None:
    log: list[str] = []
    slow = DecoderLane(SlowCache("slow", lambda _: 3.0, clock, log))
    fast = DecoderLane(SlowCache("fast", lambda _: 1.0, clock, log))
    widest = 0.0

    def look() -> bool:
        nonlocal widest
        if log.count("fast") < 30:
            widest = max(widest, abs(slow.compute_seconds - fast.compute_seconds))
        return True

    take_turns([slow, fast], look)
    assert log[:9] == ["slow", "fast", "fast", "fast", "slow", "fast", "fast", "fast", "slow"]
    assert widest <= 3.0, "no lane is ever ahead by more than a step"
    assert log.count("slow") == log.count("fast") == 40, "both wrote all of their answer"


def test_only_a_lanes_own_time_is_in_its_figures(clock: Clock) -> None:
    def rate(seconds_of_the_other: float) -> float | None:
        log: list[str] = []
        mine = DecoderLane(SlowCache("mine", lambda _: 0.5, clock, log))
        other = DecoderLane(SlowCache("other", lambda _: seconds_of_the_other, clock, log))

        def page() -> bool:
            clock.now += 100.0  # a snapshot is made between two steps
            return True

        take_turns([mine, other], page)
        return mine.decoder.stats.snapshot().decode_tokens_per_second

    assert rate(0.01) == rate(7.0) == pytest.approx(2.0)


def test_a_slowdown_meets_both_lanes_alike(clock: Clock) -> None:
    """The machine turns ten times slower in the middle: equal lanes come out within one step of each other."""

    def seconds(_call: int) -> float:
        return 1.0 if clock.now < 30 else 10.0

    log: list[str] = []
    lanes = [DecoderLane(SlowCache(name, seconds, clock, log)) for name in ("left", "right")]
    take_turns(lanes, lambda: True)
    left, right = (lane.decoder.stats.snapshot().decode_seconds for lane in lanes)
    assert abs(left - right) <= 10.0 and left > 200


def test_lanes_of_equal_time_go_in_the_order_given(clock: Clock) -> None:
    for order in ([0, 1], [1, 0]):
        log: list[str] = []
        lanes = [DecoderLane(SlowCache(str(place), lambda _: 1.0, clock, log)) for place in (0, 1)]
        take_turns([lanes[place] for place in order], lambda: True)
        assert log[:4] == [str(place) for place in order] * 2


def test_turns_end_at_once_when_they_should_not_go_on(clock: Clock) -> None:
    log: list[str] = []
    lanes = [DecoderLane(SlowCache(name, lambda _: 1.0, clock, log)) for name in ("left", "right")]
    take_turns(lanes, lambda: len(log) < 7)
    assert len(log) == 7


def test_every_lane_starts_first_once() -> None:
    orders = [rotated(range(3), repeat) for repeat in range(4)]
    assert orders == [(0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 1, 2)]


# The interval


def test_the_interval_holds_the_ratios_of_equal_lanes() -> None:
    """None against none on a machine that stalls now and then: nine of ten intervals and more hold 1."""
    rng = random.Random(5)

    def run_seconds() -> float:
        return sum(
            0.01 * (rng.lognormvariate(0, 0.1) + (rng.random() < 0.02) * rng.expovariate(0.1)) for _ in range(60)
        )

    for repeats in (3, 5, 8):
        held = 0
        for _ in range(300):
            found = speedup([run_seconds() / run_seconds() for _ in range(repeats)])
            assert found is not None and found.low is not None and found.high is not None
            held += found.low <= 1 <= found.high
        assert held >= 0.95 * 300, f"{held} of 300 intervals of {repeats} repeats hold 1"


def test_a_real_speedup_is_told_from_1_with_five_repeats() -> None:
    found = speedup([1.58, 1.62, 1.63, 1.60, 1.65])
    assert found is not None and found.low is not None and found.high is not None
    assert found.median == 1.62
    assert 1.5 < found.low < 1.58 and 1.65 < found.high < 1.72


def test_the_interval_narrows_with_repeats_and_holds_the_median() -> None:
    widths = []
    for repeats in (3, 6, 12, 24):
        found = speedup([1.0, 1.02, 1.04] * (repeats // 3))
        assert found is not None and found.low is not None and found.high is not None
        widths.append(found.high - found.low)
    assert widths == sorted(widths, reverse=True)
    skewed = speedup([1.0] * 9 + [1e6] * 8)
    assert skewed is not None and skewed.low is not None and skewed.low <= skewed.median


def test_one_or_two_repeats_ask_the_slices_or_say_nothing() -> None:
    alone = speedup([1.3])
    assert alone == Speedup(1.3, None, None, (1.3,))
    sliced = speedup([1.3], [1.2, 1.3, 1.4, 1.3, 1.2, 1.4])
    assert sliced is not None and sliced.low is not None and sliced.high is not None
    assert sliced.low < 1.3 < sliced.high
    assert math.sqrt(sliced.low * sliced.high) == pytest.approx(1.3)
    assert speedup([]) is None


# What is asked
