"""A race as every face sees it: queued, running or over, with snapshots that are read at the reader's own pace.

Knows nothing about how a race is run; `race.py` writes it from the engine's thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from specui.compare.records import RaceProgress, RaceRequest
from specui.errors import SpecUIError


class Race:
    """A race and its newest snapshot. All methods may be called from any thread."""

    def __init__(self, request: RaceRequest) -> None:
        self.request = request
        self.cancelled = threading.Event()
        self._wanted = False
        self._progress = RaceProgress()
        self._changed = threading.Condition()
        self._on_cancel: Callable[[], None] | None = None
        # Not the lock of `_changed`: the action may take other locks under which snapshots are published.
        self._cancelling = threading.RLock()

    @property
    def progress(self) -> RaceProgress:
        """The newest snapshot."""
        return self._progress

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for the next snapshot; fewer are made while nobody does."""
        return self._wanted

    def cancel(self) -> None:
        """End the race within a step; it is then done without a result."""
        with self._cancelling:
            self.cancelled.set()
            if self._on_cancel is not None:
                self._on_cancel()

    def when_cancelled(self, action: Callable[[], None] | None) -> None:
        """Set what `cancel` does besides raising the flag (at once if it is raised already); None: nothing more.

        The action must not wait for anything. After `when_cancelled(None)` returns it is not running and never will.
        """
        with self._cancelling:
            self._on_cancel = action
            if action is not None and self.cancelled.is_set():
                action()

    def publish(self, progress: RaceProgress) -> None:
        """Make `progress` the newest snapshot, one version up."""
        with self._changed:
            self._progress = replace(progress, version=self._progress.version + 1)
            self._wanted = False
            self._changed.notify_all()

    def wait(self, seen: int = -1, timeout_seconds: float = 1.0) -> RaceProgress:
        """Return the newest snapshot once its version is above `seen` or the race is over, or after the time."""
        with self._changed:
            self._wanted = self._progress.version <= seen
            self._changed.wait_for(lambda: self._progress.version > seen or self._progress.over, timeout_seconds)
            return self._progress

    def result(self) -> RaceProgress:
        """Block until the race is over and return its last snapshot. Raises what ended it, named after its lane."""
        with self._changed:
            while not self._progress.over:
                self._changed.wait(timeout=1.0)
        progress = self._progress
        if progress.error is None:
            return progress
        if progress.failed_lane is None:
            raise progress.error
        raise SpecUIError(f"lane {progress.failed_lane}: {progress.error}") from progress.error
