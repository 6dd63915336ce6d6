"""What auto learned, between starts: kept and found again; never half a file, never an error for a file of others."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_clock import Clock
from fake_model import FakeCache, random_script

from specui import experience
from specui.config import DRAFT_ROWS
from specui.engine import calibration as calibration_module
from specui.engine.calibration import CALIBRATION_ROWS, FEW_PASSES, LEAST_ROOM
from specui.engine.checkpoint import Rollback
from specui.engine.costs import PassCosts
from specui.engine.drafting import Outcome
from specui.engine.economy import Experience, Known
from specui.engine.lookup import CLASSES
from specui.engine.rates import Record
from specui.engine.verification import Draft
from specui.errors import RollbackError
from specui.experience import Key, load, save
from specui.machine import Machine

STAIRS = {1: 21.0, 2: 37.3, 3: 53.4, 4: 37.0, 6: 61.0, 8: 68.7, 12: 99.5, 16: 101.0, 32: 199.0}
"""Milliseconds of kernels that work in fours."""
KNOWN = Known(
    pass_seconds={1: 0.021, 3: 0.05, 4: 0.037},
    cell_seconds=2e-6,
    by_match=tuple(Record(4.0 + place / 2, 20.0, place) for place in range(CLASSES)),
    by_confidence=tuple(Record(1.0 + place, 10.0, place) for place in range(8)),
    acceptance=0.6,
    draft_token_passes=0.4,
)


FOLDER = experience.folder
"""The real one; other tests keep what they learn elsewhere."""


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(experience, "folder", FOLDER)
    monkeypatch.setenv("SPECUI_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def key(tmp_path: Path) -> Key:
    target, draft = tmp_path / "target.gguf", tmp_path / "draft.gguf"
    target.write_bytes(b"x" * 10)
    draft.write_bytes(b"x" * 5)
    return Key.of(target, draft, threads=2, gpu_layers=0)


def test_what_is_kept_is_found_again(key: Key, home: Path) -> None:
    assert load(key) is None
    for known in (KNOWN, replace(KNOWN, draft_token_passes=None)):
        save(key, known)
        assert load(key) == known
    assert [path.parent for path in home.rglob("*.*")] == [home / "experience"], "one file, and no leftovers"


@pytest.mark.parametrize(
    "change",
    [
        {"target": "target.gguf (11 bytes)"},
        {"draft": ""},
        {"threads": 3},
        {"gpu_layers": -1},
        {"processor": "another"},
    ],
)
def test_what_was_learned_elsewhere_is_not_used(key: Key, change: dict[str, Any]) -> None:
    save(key, KNOWN)
    other = replace(key, **change)
    assert load(other) is None
    other.path.write_bytes(key.path.read_bytes())
    assert load(other) is None, "a file of another key under this name"


def test_a_file_of_other_size_is_another_model(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"x")
    first = Key.of(path, None, 2, 0)
    path.write_bytes(b"xx")
    assert Key.of(path, None, 2, 0).path != first.path
    assert Key.of(path, tmp_path / "missing.gguf", 2, 0) != Key.of(path, None, 2, 0)


def _set(*places: Any) -> Callable[[dict[str, Any]], None]:
    *path, value = places

    def change(content: Any) -> None:
        for place in path[:-1]:
            content = content[place]
        content[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("version", 0),
        _set("version", "1"),
        _set("key", {}),
        _set("pass_seconds", {}),
        _set("pass_seconds", {"2": 0.1}),
        _set("pass_seconds", "1", 0.0),
        _set("pass_seconds", "1", float("nan")),
        _set("pass_seconds", "1", float("inf")),
        _set("pass_seconds", "1", -1.0),
        _set("pass_seconds", "1", True),
        _set("pass_seconds", "1", "0.1"),
        _set("pass_seconds", "0", 0.1),
        _set("pass_seconds", "100000000", 0.1),
        _set("pass_seconds", [1, 2]),
        _set("pass_seconds", "one", 0.1),
        _set("by_match", 0, "trials", 0.0),
        _set("by_match", 0, "hits", 30.0),
        _set("by_match", 0, {}),
        _set("by_match", None),
        _set("by_confidence", 3, "seen", -1),
        _set("acceptance", 1.5),
        _set("acceptance", None),
        _set("acceptance", 10**400),
        _set("cell_seconds", -1e-6),
        _set("cell_seconds", float("nan")),
        _set("draft_token_passes", 0),
        lambda content: content.pop("by_match"),
    ],
)
def test_a_file_with_wrong_values_is_as_good_as_none(key: Key, change: Callable[[dict[str, Any]], None]) -> None:
    save(key, KNOWN)
    content = json.loads(key.path.read_text())
    change(content)
    key.path.write_text(json.dumps(content))
    assert load(key) is None
    save(key, KNOWN)
    assert load(key) == KNOWN, "it is written anew"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[]", b"7", b"\xff\xfe", b"[" * 60_000, b"<html>", b'{"version": 1}', b" " * 200_000],
    ids=range(10),
)
def test_a_damaged_file_is_as_good_as_none(key: Key, content: bytes) -> None:
    key.path.parent.mkdir(parents=True)
    key.path.write_bytes(content)
    assert load(key) is None


def test_every_half_of_a_file_is_as_good_as_none(key: Key) -> None:
    save(key, KNOWN)
    whole = key.path.read_bytes()
    for length in range(0, len(whole), 7):
        key.path.write_bytes(whole[:length])
        assert load(key) is None


def test_a_folder_that_cannot_be_written_is_logged_once(key: Key, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    experience._complain.cache_clear()
    caplog.set_level(logging.WARNING)
    home.write_text("a file where the folder should be")
    for _ in range(3):
        save(key, KNOWN)
    assert load(key) is None
    assert len(caplog.messages) == 1
    assert str(home / "experience") in caplog.messages[0]


def test_writers_at_once_leave_a_whole_file(key: Key) -> None:
    values = [replace(KNOWN, acceptance=place / 10) for place in range(8)]
    stop, seen = threading.Event(), []

    def write(known: Known) -> None:
        for _ in range(40):
            save(key, known)

    def read() -> None:
        while not stop.is_set():
            seen.append(load(key))

    save(key, values[0])
    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=[known]) for known in values]
    reader.start()
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stop.set()
    reader.join()
    assert seen and all(known in values for known in seen), "a reader met half a file"
    assert [path.suffix for path in key.path.parent.iterdir()] == [".json"]


def test_the_folder_stays_small(key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experience, "MAX_FILES", 3)
    keys = [replace(key, threads=threads) for threads in range(1, 6)]
    for age, each in enumerate(keys):
        save(each, KNOWN)
        os.utime(each.path, (age, age))
    save(keys[2], KNOWN)
    assert [load(each) is not None for each in keys] == [False, False, True, True, True]


# A lane's knowledge, on a cache in scripted time.


class Target(FakeCache):
    """A target whose passes take STAIRS times `pace`."""

    threads = 2

    def __init__(self, clock: Clock, path: Path, pace: float = 1.0) -> None:
        super().__init__(random_script(1))
        self.tokens = [1, 2, 3]
        self.model = type("Weights", (), {"path": path, "gpu_layers": 0, "attention": 1e-5})()
        self.rollback = Rollback("cut")
        self.pace = pace
        self._clock = clock

    def decode(self, tokens: Any, rows: int) -> None:
        super().decode(tokens, rows)
        self._clock.now += self.pace * STAIRS[len(tokens)] / 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(calibration_module, "time", clock)
    return clock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "target.gguf"
    path.write_bytes(b"weights")
    return path


def machine_on(target: Target, draft: Path | None = None) -> Machine:
    return Machine(target, draft)  # type: ignore[arg-type]  # the part of a Context that it uses


def learned(clock: Clock, path: Path) -> Experience:
    """Let a lane learn, and close it."""
    first = machine_on(Target(clock, path))
    know = first.measure()
    assert know is not None
    for _ in range(50):
        know.lookup.observe(CLASSES - 1, hit=False)
        know.observe_step(Outcome(9, Draft([1] * 3), 3, 4, 0.0, 0.037))
    first.keep()
    return know


@pytest.mark.parametrize("pace", [0.7, 1.0, 2.0])
def test_a_second_start_measures_few_passes_and_knows_the_rest(clock: Clock, path: Path, pace: float) -> None:
    before = learned(clock, path)
    target = Target(clock, path, pace)
    know = machine_on(target).measure()
    assert know is not None
    assert [len(tokens) for tokens, _ in target.calls] == [*[1] * FEW_PASSES, LEAST_ROOM]
    assert target.tokens == [1, 2, 3]
    assert know.lookup.records == before.lookup.records
    for rows in (1, 2, 4, 8, 16):
        assert know.costs.seconds(rows) == pytest.approx(pace * before.costs.seconds(rows))


def test_a_first_start_measures_all_sizes(clock: Clock, path: Path) -> None:
    target = Target(clock, path)
    machine_on(target).measure()
    assert {len(tokens) for tokens, _ in target.calls} == set(CALIBRATION_ROWS)


def test_a_pace_beyond_belief_is_measured_anew(clock: Clock, path: Path) -> None:
    learned(clock, path)
    target = Target(clock, path, pace=5.0)
    know = machine_on(target).measure()
    assert max(len(tokens) for tokens, _ in target.calls) > 1
    assert know is not None and know.lookup.records[-1].seen == 0, "nothing else of it is used either"


@pytest.mark.parametrize(
    ("first", "then", "believed"), [(0.5, 0.5, 0.5), (0.5, 0.8, 0.5), (0.9, 0.4, 0.4), (0.05, 0.9, 0.45)]
)
def test_a_draft_is_measured_once_a_start_and_the_lesser_price_is_believed(
    clock: Clock, path: Path, first: float, then: float, believed: float
) -> None:
    for start, share in enumerate((first, then)):
        pace = 1.0 + start
        draft, lane = Target(clock, path, pace=share * pace), machine_on(Target(clock, path, pace=pace))
        know = lane.measure()
        assert know is not None
        lane.measure_draft(draft)
        assert {len(tokens) for tokens, _ in draft.calls} == {1, DRAFT_ROWS}
        asked = len(draft.calls)
        lane.measure_draft(draft)
        assert len(draft.calls) == asked
        expected = believed if start else first
        assert know.draft.token_seconds == pytest.approx(0.021 * pace * expected), "at the pace of today"
        know.observe_step(Outcome(9, Draft(), 0, 1, 0.0, 0.021 * pace))
        lane.keep()


@pytest.mark.parametrize(("passes", "acceptance", "may"), [(0.1, 0.9, True), (0.9, 0.9, False), (0.1, 0.2, False)])
def test_an_answer_waits_for_the_draft_where_it_may_win(
    clock: Clock, path: Path, passes: float, acceptance: float, may: bool
) -> None:
    draft = path.with_name("draft.gguf")
    assert machine_on(Target(clock, path), draft).draft_may_win(), "nothing is known yet"
    save(Key.of(path, draft, threads=2, gpu_layers=0), replace(KNOWN, draft_token_passes=None))
    assert machine_on(Target(clock, path), draft).draft_may_win(), "nothing is known of the draft"
    known = replace(KNOWN, draft_token_passes=passes, acceptance=acceptance)
    save(Key.of(path, draft, threads=2, gpu_layers=0), known)
    lane = machine_on(Target(clock, path), draft)
    assert lane.draft_may_win() is may
    know = lane.measure()
    assert know is not None
    assert lane.draft_may_win() is may
    know.draft.acceptance = 1.0 - acceptance
    assert lane.draft_may_win() is (passes == 0.1 and acceptance == 0.2), "what was learned since counts"


def test_the_file_is_written_at_most_once_an_answer(clock: Clock, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Known] = []
    monkeypatch.setattr(experience, "save", lambda _key, known: written.append(known))
    lane = machine_on(Target(clock, path))
    know = lane.measure()
    assert know is not None
    for answers in range(3):
        lane.begin_answer()
        assert len(written) == answers
        for _ in range(5):
            know.observe_step(Outcome(9, Draft(), 0, 1, 0.0, 0.021))
    lane.begin_answer()
    lane.begin_answer()
    lane.keep()
    assert len(written) == 3, "nothing new, nothing written"


def test_passes_of_one_row_are_timed_once_and_cut_back(clock: Clock, path: Path) -> None:
    target = Target(clock, path)
    lane = machine_on(target)
    lane.time_plain()
    lane.time_plain()
    assert [len(tokens) for tokens, _ in target.calls] == [1] * FEW_PASSES
    assert target.tokens == [1, 2, 3]
    assert lane.plain.seconds == pytest.approx(0.021)


@pytest.mark.parametrize("kind", ["snapshots", "checkpoint", "none"])
def test_nothing_is_timed_or_padded_where_a_cut_is_dear(clock: Clock, path: Path, kind: Any) -> None:
    target = Target(clock, path)
    target.rollback = Rollback(kind)
    lane = machine_on(target)
    lane.time_plain()
    assert target.calls == []
    assert lane.plain.seconds is None
    assert lane.measure() is not None
    assert lane.padded(3, 16) == 3


def test_nothing_is_timed_where_plain_passes_were_seen(clock: Clock, path: Path) -> None:
    target = Target(clock, path)
    lane = machine_on(target)
    lane.plain.observe(0.5)
    lane.time_plain()
    assert target.calls == []


def test_passes_are_padded_once_the_machine_is_known(clock: Clock, path: Path) -> None:
    lane = machine_on(Target(clock, path))
    assert lane.padded(3, 16) == 3
    lane.measure()
    assert lane.padded(3, 16) == 4
    assert lane.padded(3, 3) == 3


def test_a_cache_that_refuses_the_cut_is_told(clock: Clock, path: Path) -> None:
    target = Target(clock, path)
    target.recurrent = True
    for measure in (machine_on(target).measure, machine_on(target).time_plain):
        with pytest.raises(RollbackError):
            measure()


def test_the_module_keeps_what_the_lane_keeps(key: Key) -> None:
    know = Experience(PassCosts({1: 0.02, 4: 0.03}), 0.01)
    know.recall(KNOWN)
    assert know.draft.token_seconds == pytest.approx(0.4 * 0.02), "in passes of today"
    assert know.known(with_draft=False).draft_token_passes is None
    save(key, know.known(with_draft=True))
    found = load(key)
    assert found is not None
    assert (found.by_match, found.by_confidence, found.acceptance) == (KNOWN.by_match, KNOWN.by_confidence, 0.6)
