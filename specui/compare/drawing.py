"""When a race that runs is shown: to a face that waits for it, at a pace a page can draw, while no lane computes.

Server and browser draw on the cores that the lanes compute on, and what they take from a lane is in its figures. So the
race stands still for a moment behind every snapshot that somebody asked for. Knows nothing about how lanes are run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from specui.compare.handle import Race
from specui.generation import Progress

SHOW_SECONDS = 0.4
"""The least time from one snapshot to the next; with more of them the pauses would take more time than the lanes."""

DRAWING_SECONDS = 0.1
"""How long the race stands still behind a snapshot that is waited for: what a page needs to draw it."""


class Drawing:
    """Publishes the snapshots of a race's lanes. A race that nobody watches never stands still."""

    def __init__(self, race: Race) -> None:
        self._race = race
        self._shown_at = float("-inf")

    @property
    def due(self) -> bool:
        """Whether somebody waits for a snapshot and the last one is old enough."""
        return self._race.wanted and time.perf_counter() - self._shown_at >= SHOW_SECONDS

    def show(self, repeat: int, lanes: Sequence[Progress]) -> None:
        """Publish the lanes; where they were waited for, return once they can have been drawn, or on a cancel."""
        race, watched = self._race, self._race.wanted
        self._shown_at = time.perf_counter()
        race.publish(replace(race.progress, phase="racing", repeat=repeat, lanes=tuple(lanes)))
        if watched:
            race.cancelled.wait(DRAWING_SECONDS)
