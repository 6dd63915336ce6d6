"""Something long that is watched from other threads: snapshots at the reader's own pace, waiting, cancelling.

Whoever works publishes snapshots; faces read them with `wait`, so that a slow page never slows the engine. Knows
nothing about what the work is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar


class Snapshot(Protocol):
    """A frozen dataclass that counts its versions and knows whether it is the last."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def version(self) -> int: ...
    @property
    def over(self) -> bool: ...


S = TypeVar("S", bound=Snapshot)


class Watched(Generic[S]):
    """The newest snapshot of some work, and the wish to end it. All methods may be called from any thread."""

    def __init__(self, first: S) -> None:
        self.cancelled = threading.Event()
        self._progress = first
        self._ended = threading.Event()
        self._wanted = False
        self._changed = threading.Condition()
        self._on_cancel: Callable[[], None] | None = None
        # Not the lock of `_changed`: the action may take other locks under which snapshots are published.
        self._cancelling = threading.RLock()

    @property
    def progress(self) -> S:
        """The newest snapshot."""
        return self._progress

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for the next snapshot; fewer are made while nobody does."""
        return self._wanted

    def cancel(self) -> None:
        """End the work at the next possible moment."""
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

    def publish(self, progress: S) -> None:
        """Make `progress` the newest snapshot, one version up."""
        with self._changed:
            self._progress = replace(progress, version=self._progress.version + 1)
            self._wanted = False
            self._changed.notify_all()
        if progress.over:
            self._ended.set()

    def wait(self, seen: int = -1, timeout_seconds: float = 1.0) -> S:
        """Return the newest snapshot once its version is above `seen` or the work is over, or after the time."""
        with self._changed:
            self._wanted = self._progress.version <= seen
            self._changed.wait_for(lambda: self._progress.version > seen or self._progress.over, timeout_seconds)
            return self._progress

    def wait_for_end(self, timeout_seconds: float) -> bool:
        """Return whether the work is over, waiting so long for it; what is published before that wakes nobody."""
        return self._ended.wait(timeout_seconds)

    def _last(self) -> S:
        """Block until the work is over and return its last snapshot."""
        while not self.wait_for_end(timeout_seconds=1.0):
            pass
        return self._progress
