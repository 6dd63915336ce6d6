"""A benchmark on a thread of its own, which a page can start, look at and stop.

Knows the runner and the loaded pair; nothing about gradio. Between two runs others may have their turn in the line.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from specui.bench.plan import Plan, Turn
from specui.bench.records import Run, RunLog
from specui.bench.runner import Runner, Stopped
from specui.errors import SpecUIError
from specui.generation import Generation, GenerationRequest

Phase = Literal["warming", "running", "done", "stopped", "failed"]
log = logging.getLogger("specui")


class Pair(Protocol):
    """The files of a loaded pair."""

    @property
    def target(self) -> Path: ...
    @property
    def draft(self) -> Path | None: ...


class PairRuntime(Protocol):
    """A runtime whose pair may be changed by somebody else."""

    @property
    def loaded(self) -> Pair | None: ...
    def start(self, request: GenerationRequest) -> Generation: ...


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """A snapshot. `version` grows with every finished run and at the end; `turn`, `place` and `tokens` change between.

    `turn` is the run in the line or being made, None in a warm-up; `place` counts the jobs in front of it.
    """

    version: int = 0
    phase: Phase = "warming"
    done: int = 0
    total: int = 0
    runs: tuple[Run, ...] = ()
    failures: tuple[str, ...] = ()
    error: str = ""
    turn: Turn | None = None
    place: int = 0
    tokens: int = 0

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.phase in ("done", "stopped", "failed")


class BenchJob:
    """One benchmark, begun when it is made. All methods may be called from any thread.

    `on_generation` is given every answer that is put in the line, so that others can end it.
    """

    def __init__(
        self, runtime: PairRuntime, plan: Plan, log: RunLog, on_generation: Callable[[Generation], None]
    ) -> None:
        self.log = log
        self._runtime = runtime
        self._pair = _files(runtime)
        self._on_generation = on_generation
        self._generation: Generation | None = None
        self._runner = Runner(runtime, plan, log, self, self._check_pair)
        count = self._runner.count
        self._progress = BenchProgress(done=count.done, total=count.total, runs=tuple(log.runs))
        self._thread = threading.Thread(target=self._run, name="specui-bench", daemon=True)
        self._thread.start()

    @property
    def progress(self) -> BenchProgress:
        """The newest snapshot."""
        progress, generation = self._progress, self._generation
        if progress.over or generation is None:
            return progress
        answer = generation.progress
        return replace(progress, place=answer.place, tokens=answer.stats.completion_tokens)

    def stop(self) -> None:
        """End the benchmark within a second; finished runs stay recorded."""
        self._runner.stop()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Return whether the benchmark is over, waiting so long for it."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._runner.run()
            self._end("done")
        except Stopped:
            self._end("failed" if self._progress.error else "stopped")
        except SpecUIError as error:
            self._end("failed", str(error))
        except Exception as error:  # the thread's last stop: without this a page would wait for ever
            log.exception("The benchmark failed")
            self._end("failed", f"The benchmark failed: {error!r}; the log has the details")

    def _end(self, phase: Phase, error: str = "") -> None:
        self._publish(replace(self._progress, phase=phase, error=error or self._progress.error, turn=None))

    def _publish(self, progress: BenchProgress) -> None:
        self._progress = replace(progress, version=progress.version + 1)

    def _check_pair(self) -> None:
        """End the benchmark where another pair was loaded meanwhile."""
        if _files(self._runtime) != self._pair:
            error = "Another pair was loaded meanwhile, and figures of two pairs are not to be mixed; start again"
            self._progress = replace(self._progress, error=error)
            raise Stopped

    def begun(self, turn: Turn | None, generation: Generation) -> None:
        """A run or a warm-up was put in the line (called by the runner)."""
        self._generation = generation
        self._on_generation(generation)
        if turn is not None:
            self._progress = replace(self._progress, phase="running", turn=turn)

    def ended(self, turn: Turn, run: Run) -> None:
        """A run is recorded (called by the runner)."""
        self._publish(replace(self._progress, done=self._progress.done + 1, runs=tuple(self.log.runs)))

    def failed(self, turn: Turn, error: SpecUIError) -> None:
        """A run could not be made (called by the runner)."""
        failure = f"{turn.prompt.key} with {turn.variant.label}: {error}"
        self._publish(replace(self._progress, failures=(*self._progress.failures, failure)))


def _files(runtime: PairRuntime) -> tuple[Path, Path | None] | None:
    pair = runtime.loaded
    return None if pair is None else (pair.target, pair.draft)
