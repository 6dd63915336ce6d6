"""A clock for the engine's modules, which time their passes with the module `time`."""

from __future__ import annotations

import pytest


class Clock:
    """Stands in for the module `time`: it passes only where a test, or a fake pass, says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


def clock_in(monkeypatch: pytest.MonkeyPatch, *modules: object) -> Clock:
    """Put one clock in the place of `time` in these modules and return it."""
    clock = Clock()
    for module in modules:
        monkeypatch.setattr(module, "time", clock)
    return clock
