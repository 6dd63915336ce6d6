"""Speed and time left of a transfer."""

from __future__ import annotations

import pytest

from specui.pace import WINDOW_SECONDS, Pace, duration, size


def test_speed_and_time_left_come_from_the_last_seconds() -> None:
    pace = Pace()
    pace.at(0.0, 0, 1_000_000_000)
    assert (pace.bytes_per_second, pace.words) == (None, "0 % of 1.00 GB")
    pace.at(0.1, 5_000_000, 1_000_000_000)
    assert pace.bytes_per_second is None
    for second in range(1, 11):
        pace.at(float(second), 10_000_000 * second, 1_000_000_000)
    assert pace.bytes_per_second == pytest.approx(10_000_000)
    assert pace.words == "10 % of 1.00 GB · 10 MB/s · 1 min 30 s left"
    for second in range(11, 11 + 2 * int(WINDOW_SECONDS)):
        pace.at(float(second), 100_000_000 + 40_000_000 * (second - 10), 1_000_000_000)
    assert pace.bytes_per_second == pytest.approx(40_000_000)


def test_a_standstill_has_no_time_left_and_the_end_no_speed() -> None:
    pace = Pace()
    for second in range(12):
        pace.at(float(second), 500, 1_000)
    assert (pace.bytes_per_second, pace.seconds_left) == (0, None)
    pace.at(13.0, 1_000, 1_000)
    assert pace.words == "100 % of 1 kB"


def test_a_new_total_or_a_step_back_begins_anew() -> None:
    pace = Pace()
    pace.at(0.0, 0, 1_000)
    pace.at(1.0, 900, 1_000)
    speeds = []
    for second, done, total in ((2.0, 100, 1_000), (3.0, 300, 1_000), (4.0, 400, 5_000)):
        pace.at(second, done, total)
        speeds.append(pace.bytes_per_second)
    assert speeds == [None, 200, None]


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 kB"), (1_499, "1 kB"), (999_499, "999 kB"), (1_260_000, "1.3 MB"), (986e6, "986 MB"), (42.5e9, "42.50 GB")],
)
def test_sizes(count: float, said: str) -> None:
    assert size(count) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (65, "1 min 5 s"), (7_800, "2 h 10 min")]
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said
