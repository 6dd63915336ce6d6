"""A race as every face sees it: queued, running or over, with snapshots of its lanes.

Knows nothing about how a race is run; `race.py` writes it from the engine's thread.
"""

from __future__ import annotations

from specui.compare.records import RaceProgress, RaceRequest
from specui.errors import SpecUIError
from specui.watched import Watched


class Race(Watched[RaceProgress]):
    """A race and its newest snapshot. One that is cancelled is done within a step, without a result."""

    def __init__(self, request: RaceRequest) -> None:
        super().__init__(RaceProgress())
        self.request = request

    def result(self) -> RaceProgress:
        """Block until the race is over and return its last snapshot. Raises what ended it, named after its lane."""
        progress = self._last()
        if progress.error is None:
            return progress
        if progress.failed_lane is None:
            raise progress.error
        raise SpecUIError(f"lane {progress.failed_lane}: {progress.error}") from progress.error
