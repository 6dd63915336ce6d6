"""Fetches and loads a pair in the background while the page stays usable, and says how far it is.

Knows no gradio. One job at a time; a job that fails or is cancelled leaves the loaded pair as it was.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from specui.catalog import Cancelled, OnProgress, PairFiles
from specui.errors import BusyError, SpecUIError
from specui.pace import Pace
from specui.ui.shared import ModelRuntime

LoadPhase = Literal["idle", "fetching", "loading", "ready", "failed", "cancelled"]
Fetch = Callable[[OnProgress, Cancelled], PairFiles]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadState:
    """How far the job is; `done` of `total` bytes of the present stage, total 0 where it is not known.

    `pace` says the same in words, with the speed and the time left.
    `dismissed` says that an answer was written since the job failed, so that the failure is no news any more.
    """

    phase: LoadPhase = "idle"
    name: str = ""
    title: str = ""
    stage: str = ""
    done: int = 0
    total: int = 0
    pace: str = ""
    error: str = ""
    dismissed: bool = False

    @property
    def busy(self) -> bool:
        """Whether the job goes on."""
        return self.phase in ("fetching", "loading")

    @property
    def failure(self) -> str:
        """Why the job failed; empty where it did not."""
        return self.error if self.phase == "failed" else ""

    @property
    def line(self) -> str:
        """The state in a few words."""
        if self.phase == "fetching":
            return f"{self.stage or 'preparing ' + self.title}… {self.pace}".rstrip()
        words = {"loading": f"loading {self.title}…", "failed": self.error, "cancelled": "cancelled"}
        return words.get(self.phase, "")


class PairLoader:
    """Runs one fetch-and-load job at a time."""

    def __init__(self, runtime: ModelRuntime) -> None:
        self._runtime = runtime
        self._state = LoadState()
        self._pace = Pace()
        self._cancelled = threading.Event()
        self._lock = threading.Lock()

    @property
    def state(self) -> LoadState:
        """The newest snapshot."""
        return self._state

    def start(self, name: str, title: str, fetch: Fetch) -> None:
        """Begin to fetch and load a pair. Raises BusyError while another job runs."""
        with self._lock:
            if self._state.busy:
                raise BusyError(1)
            self._cancelled, self._pace = threading.Event(), Pace()
            self._state = LoadState("fetching", name, title)
        threading.Thread(target=self._run, args=(fetch,), name="pair-loader", daemon=True).start()

    def cancel(self) -> None:
        """End the fetching at the next possible moment; loading itself cannot be ended."""
        self._cancelled.set()

    def dismiss(self) -> None:
        """Stop to show a failure at the top of the page: an answer was completed, so there is a model that works."""
        with self._lock:
            if self._state.failure:
                self._state = replace(self._state, dismissed=True)

    def _run(self, fetch: Fetch) -> None:
        try:
            files = fetch(self._on_progress, self._cancelled.is_set)
            if self._cancelled.is_set():
                self._state = replace(self._state, phase="cancelled")
                return
            self._state = replace(self._state, phase="loading")
            self._runtime.load(files)
            self._state = replace(self._state, phase="ready")
        except SpecUIError as error:
            phase: LoadPhase = "cancelled" if self._cancelled.is_set() else "failed"
            self._state = replace(self._state, phase=phase, error=str(error))
            if phase == "failed":
                log.warning("%s could not be loaded: %s", self._state.title, error)
        except Exception as error:  # the thread's last stop: without this the page would wait forever
            log.exception("loading %s failed", self._state.name)
            self._state = replace(self._state, phase="failed", error=f"{type(error).__name__}: {error}")

    def _on_progress(self, stage: str, done: int, total: int) -> None:
        self._pace.at(time.monotonic(), done, total)
        self._state = replace(self._state, stage=stage, done=done, total=total, pace=self._pace.words)
