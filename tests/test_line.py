"""The line around the model: turns, places, leaving, busy at the limit, and an end that runs what waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from specui.errors import BusyError
from specui.line import Job, Line

HANG_SECONDS = 20


class Gate:
    """A job that runs until it is opened, and remembers the places it was told."""

    def __init__(self, log: list[str] | None = None, name: str = "") -> None:
        self.places: list[int] = []
        self.started = threading.Event()
        self.open = threading.Event()
        self._log = log if log is not None else []
        self._name = name
        self.job = Job(self._run, self.places.append)

    def _run(self) -> None:
        self.started.set()
        assert self.open.wait(HANG_SECONDS)
        self._log.append(self._name)


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line(limit=3)
    yield line
    line.close()


def instant(action: Callable[[], None]) -> Job:
    return Job(action, lambda place: None)


def test_jobs_run_one_after_the_other_first_come_first_served(line: Line) -> None:
    log: list[str] = []
    gates = [Gate(log, name) for name in "abc"]
    for gate in gates:
        line.join(gate.job)
    assert gates[0].started.wait(HANG_SECONDS)
    assert not gates[1].started.is_set()
    for gate in gates:
        gate.open.set()
    line.close()
    assert log == ["a", "b", "c"]
    assert len(line) == 0


def test_a_job_that_raises_does_not_end_the_line(line: Line, caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []

    def fail() -> None:
        raise RuntimeError("no such luck")

    line.join(instant(fail))
    line.join(instant(lambda: log.append("next")))
    line.close()
    assert log == ["next"]
    assert "no such luck" in caplog.text


def test_who_waits_is_told_how_many_are_in_front(line: Line) -> None:
    first, second, third = Gate(), Gate(), Gate()
    line.join(first.job)
    assert first.started.wait(HANG_SECONDS)
    line.join(second.job)
    line.join(third.job)
    assert len(line) == 3
    assert second.places[0] == 1
    assert third.places[0] == 2
    first.open.set()
    assert second.started.wait(HANG_SECONDS)
    assert third.places[-1] == 1, "the one in front has started; one is in front still"
    second.open.set()
    third.open.set()


def test_who_leaves_frees_the_place_at_once_and_never_runs(line: Line) -> None:
    first, second, third = Gate(), Gate(), Gate()
    line.join(first.job)
    assert first.started.wait(HANG_SECONDS)
    line.join(second.job)
    line.join(third.job)
    assert line.leave(second.job) is True
    assert third.places[-1] == 1
    assert line.leave(second.job) is False, "gone already"
    assert line.leave(first.job) is False, "running"
    first.open.set()
    third.open.set()
    line.close()
    assert not second.started.is_set()


def test_busy_at_the_limit_of_those_who_wait_and_free_again_after(line: Line) -> None:
    running = Gate()
    line.join(running.job)
    assert running.started.wait(HANG_SECONDS)
    waiting = [Gate() for _ in range(3)]
    for gate in waiting:
        line.join(gate.job)
    with pytest.raises(BusyError) as caught:
        line.join(Gate().job)
    assert caught.value.limit == 3
    assert line.leave(waiting[0].job)
    late = Gate()
    line.join(late.job)
    for gate in (running, *waiting, late):
        gate.open.set()
    line.close()
    assert late.started.is_set()


def test_twenty_at_once_at_a_limit_of_three_are_served_or_told() -> None:
    line, served, busy = Line(limit=3), [], []
    gate = Gate()
    line.join(gate.job)
    assert gate.started.wait(HANG_SECONDS)

    def submit(number: int) -> None:
        try:
            line.join(instant(lambda: served.append(number)))
        except BusyError:
            busy.append(number)

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)
    gate.open.set()
    line.close()
    assert len(served) == 3
    assert sorted([*served, *busy]) == list(range(20))


def test_close_runs_what_waits_and_ends_the_thread() -> None:
    line, log = Line(limit=3), []
    for number in range(3):
        line.join(instant(lambda number=number: log.append(number)))  # type: ignore[misc]
    line.close()
    assert log == [0, 1, 2]
    assert not line._thread.is_alive()
