"""A clock for the engine's modules, which time their passes with the module `time`."""

from __future__ import annotations


class Clock:
    """Stands in for the module `time`: it passes only where a test, or a fake pass, says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now
