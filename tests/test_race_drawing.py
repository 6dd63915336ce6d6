"""When a race is shown: to whoever waits, not too often, and standing still while it is drawn; never for nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from asking import SEA
from fake_clock import Clock

from specui.catalog import PairFiles
from specui.compare import drawing
from specui.compare.drawing import DRAWING_SECONDS, SHOW_SECONDS, Drawing
from specui.compare.handle import Race
from specui.compare.race import start_race
from specui.compare.records import LaneSpec, RaceRequest, parse_modes
from specui.config import DraftingSettings, Limits, LoadSettings, StepSettings
from specui.generation import GenerationRequest, Message, Progress
from specui.runtime import Runtime

HANG_SECONDS = 30


def request(files: PairFiles, max_tokens: int = 40) -> RaceRequest:
    modes = parse_modes("none,prompt-lookup", DraftingSettings())
    lanes = tuple(LaneSpec(label, StepSettings(drafting=each), files) for label, each in modes.items())
    asked = GenerationRequest(messages=(Message("user", SEA),), limits=Limits(max_tokens))
    return RaceRequest(asked, lanes, repeats=1)


class Pauses(threading.Event):
    """A race's cancel flag that writes down how long it was waited for, and waits for nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.asked.append(timeout)
        return self.is_set()


@pytest.fixture
def race() -> Race:
    race = Race(request(PairFiles("pair", "pair", Path("t.gguf"), None)))
    race.cancelled = Pauses()
    return race


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(drawing, "time", clock)
    return clock


def pauses(race: Race) -> list[float | None]:
    assert isinstance(race.cancelled, Pauses)
    return race.cancelled.asked


def look(race: Race) -> None:
    """Want the next snapshot, as a page does that has drawn the last one."""
    race.wait(race.progress.version, timeout_seconds=0)


def test_a_watched_race_stands_still_behind_each_snapshot(race: Race) -> None:
    shown = Drawing(race)
    for repeat in (1, 2):
        look(race)
        shown.show(repeat, [Progress(), Progress()])
    assert pauses(race) == [DRAWING_SECONDS] * 2
    assert (race.progress.phase, race.progress.repeat, len(race.progress.lanes)) == ("racing", 2, 2)


def test_a_race_that_nobody_watches_never_does(race: Race) -> None:
    shown = Drawing(race)
    for repeat in (1, 2):
        shown.show(repeat, [Progress()])
        assert not shown.due
    assert pauses(race) == []
    assert race.progress.repeat == 2


def test_a_face_that_asks_all_the_time_is_not_shown_more_than_it_can_draw(race: Race, clock: Clock) -> None:
    shown, times = Drawing(race), []
    for _ in range(200):
        look(race)
        clock.now += 0.025
        if shown.due:
            times.append(clock.now)
            shown.show(1, [Progress()])
    assert len(times) == pytest.approx(200 * 0.025 / SHOW_SECONDS, abs=1)
    assert all(later - earlier >= SHOW_SECONDS for earlier, later in pairwise(times))


def test_a_cancel_ends_a_pause_at_once(race: Race, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "DRAWING_SECONDS", HANG_SECONDS)
    race.cancelled = threading.Event()
    look(race)
    threading.Timer(0.05, race.cancel).start()
    began = time.monotonic()
    Drawing(race).show(1, [Progress()])
    assert time.monotonic() - began < HANG_SECONDS / 2


@pytest.fixture(scope="module")
def one_thread() -> Iterator[Runtime]:
    runtime = Runtime(LoadSettings(ctx_size=512, threads=1))
    yield runtime
    runtime.close()


@pytest.mark.slow
def test_nobody_waits_for_a_race_that_nobody_watches(
    one_thread: Runtime, bundled_pair: PairFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "DRAWING_SECONDS", HANG_SECONDS)
    race = start_race(one_thread, request(bundled_pair))
    assert race.wait_for_end(HANG_SECONDS)
    assert race.progress.result is not None
    assert race.progress.version < 20, "snapshots of the lanes at both ends of the repeat, and nothing between"


@pytest.mark.slow
def test_a_pause_is_in_no_lanes_figures(
    one_thread: Runtime, bundled_pair: PairFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "SHOW_SECONDS", 0.0)
    race = start_race(one_thread, request(bundled_pair, max_tokens=8))
    began, seen = 0.0, race.wait(-1)
    while not seen.over:
        began = began or (time.monotonic() if seen.phase == "racing" else 0.0)
        seen = race.wait(seen.version)
    passed = time.monotonic() - began
    assert seen.result is not None
    computed = sum(
        run.stats.prefill_seconds + run.stats.decode_seconds for lane in seen.result.lanes for run in lane.runs
    )
    assert passed - computed > 10 * DRAWING_SECONDS, "a pause for nearly every one of sixteen steps"
