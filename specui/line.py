"""One line around the model: jobs run one after the other, on one thread, first come first served.

Knows nothing about what a job does. Whoever waits is told its place; whoever leaves frees it at once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from specui.errors import BusyError

log = logging.getLogger("specui")


@dataclass(frozen=True, eq=False)
class Job:
    """Something to run in turn; `on_place` hears how many jobs are in front, each time that changes."""

    run: Callable[[], None]
    on_place: Callable[[int], None]


class Line:
    """A queue with one worker thread. What `run` of a job raises is logged, and the next has its turn."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: deque[Job] = deque()
        self._running = False
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="specui-engine", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        with self._changed:
            return len(self._waiting) + self._running

    def join(self, job: Job) -> None:
        """Put `job` at the end. Raises BusyError when `limit` jobs wait already, RuntimeError after `close`."""
        with self._changed:
            if self._closed:
                raise RuntimeError("the line is closed")
            if len(self._waiting) >= self._limit:
                raise BusyError(self._limit)
            self._waiting.append(job)
            self._tell_places()
            self._changed.notify()

    def leave(self, job: Job) -> bool:
        """Take a waiting job out; False when it runs or ran already."""
        with self._changed:
            if job not in self._waiting:
                return False
            self._waiting.remove(job)
            self._tell_places()
            return True

    def close(self) -> None:
        """Run what waits, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _tell_places(self) -> None:
        for place, job in enumerate(self._waiting, start=int(self._running)):
            if place:
                job.on_place(place)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                job.run()
            except Exception:  # a job tells its own failures; one that cannot must not take the others with it
                log.exception("A job failed")
            with self._changed:
                self._running = False

    def _next(self) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return None
            job = self._waiting.popleft()
            self._running = True
            self._tell_places()
            return job
