"""Makes the runs of a plan on a runtime, one after the other in its line, and writes each to the records.

Every run of a prompt begins with the same memory: an empty one, or, where the plan keeps prompts, one that holds the
prompt and nothing else. Knows requests and generations; nothing about llama.cpp, pages or command lines.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from specui.bench.conditions import now
from specui.bench.plan import Plan, Turn
from specui.bench.records import Run, RunLog
from specui.config import DraftingSettings, Limits, StepSettings
from specui.errors import BusyError, SettingError, SpecUIError
from specui.generation import Generation, GenerationRequest, Message, Progress

WARM_UP = (Message("user", "Count from one to ten, in words."),)
WARM_UP_TOKENS = 16
BUSY_SECONDS = 0.25
"""How long to wait before the next try where the line is full."""


class Answering(Protocol):
    """The part of the runtime that a benchmark needs."""

    def start(self, request: GenerationRequest) -> Generation: ...


class Listener(Protocol):
    """What is told of a benchmark's course, on the thread that runs it."""

    def begun(self, turn: Turn | None, generation: Generation) -> None:
        """A run was put in the line; no turn: a warm-up, or a prompt that is read for the runs to come."""
        ...

    def ended(self, turn: Turn, run: Run) -> None:
        """A run is done and recorded."""
        ...

    def failed(self, turn: Turn, error: SpecUIError) -> None:
        """A run could not be made; it is not recorded and is tried again the next time."""
        ...


class Stopped(Exception):  # noqa: N818  # no fault: somebody asked for it
    """The benchmark was stopped; finished runs are recorded."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many runs of a plan are done."""

    done: int
    total: int


class Runner:
    """Runs what a plan has left to do. `stop` may be called from any thread.

    `check` is called behind every run, before it is recorded; it raises Stopped where the run is not worth keeping.
    """

    def __init__(
        self,
        runtime: Answering,
        plan: Plan,
        log: RunLog,
        listener: Listener,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._runtime = runtime
        self._plan = plan
        self._log = log
        self._listener = listener
        self._check = check
        self._stopped = threading.Event()
        self._generation: Generation | None = None
        self._read: str | None = None

    @property
    def count(self) -> Count:
        """How many of the plan's runs are recorded."""
        return Count(sum(self._log.has(turn.key) for turn in self._plan.turns()), len(self._plan))

    def stop(self) -> None:
        """End the running answer; `run` raises Stopped."""
        self._stopped.set()
        generation = self._generation
        if generation is not None:
            generation.cancel()

    def run(self) -> None:
        """Make every run that is not recorded yet.

        Raises Stopped after `stop`, SettingError for a mode that does not work with this pair, and the error of a
        warm-up. A run that fails is told to the listener, and the others go on.
        """
        left = [turn for turn in self._plan.turns() if not self._log.has(turn.key)]
        if left:
            self._warm_up()
        for turn in left:
            try:
                self._measure(turn)
            except SpecUIError as error:
                if isinstance(error, SettingError):  # the records cannot be written
                    raise
                self._read = None  # nobody knows what the memory holds now
                self._listener.failed(turn, error)

    def _warm_up(self) -> None:
        """Load the draft, let `auto` measure the machine, and find out which modes work, all outside the figures."""
        modes = {variant.drafting.speculation for variant in self._plan.variants}
        if "auto" in modes and "draft-model" not in modes:  # auto would begin without the draft, which loads beside it
            self._answer(None, _request(WARM_UP, DraftingSettings("draft-model"), WARM_UP_TOKENS))
        for variant in sorted(self._plan.variants, key=lambda each: each.drafting.speculation == "auto"):
            stats = self._answer(None, _request(WARM_UP, variant.drafting, WARM_UP_TOKENS)).stats
            if stats.speculation_used != stats.speculation and stats.speculation_off_reason:
                expected = f"modes that work with this pair ({stats.speculation_off_reason}); leave it out of the list"
                raise SettingError("--modes", variant.label, expected)

    def _read_prompt(self, turn: Turn) -> None:
        """Evaluate a prompt that the memory does not hold yet, so that not even its first run is the one to do it."""
        if self._plan.keep_prompt and self._read != turn.prompt.key:
            self._answer(None, self._plan.reading(turn))
            self._read = turn.prompt.key

    def _measure(self, turn: Turn) -> None:
        self._read_prompt(turn)
        started = now()
        progress = self._answer(turn, self._plan.request(turn))
        self._check()
        run = _record(turn, started, progress)
        self._log.add(run)
        self._listener.ended(turn, run)

    def _answer(self, turn: Turn | None, request: GenerationRequest) -> Progress:
        """Return the whole answer. Raises Stopped where it was ended early."""
        generation = self._generation = self._join(request)
        if self._stopped.is_set():
            generation.cancel()
        self._listener.begun(turn, generation)
        try:
            progress = generation.result()
        except BaseException:  # interrupted from the keyboard: nobody waits for the answer any more
            generation.cancel()
            raise
        if self._stopped.is_set() or progress.finish_reason == "cancelled":
            raise Stopped
        return progress

    def _join(self, request: GenerationRequest) -> Generation:
        """Put a request in the line, waiting while that is full."""
        while not self._stopped.is_set():
            try:
                return self._runtime.start(request)
            except BusyError:
                time.sleep(BUSY_SECONDS)
        raise Stopped


def _request(messages: tuple[Message, ...], drafting: DraftingSettings, max_tokens: int) -> GenerationRequest:
    settings = replace(StepSettings(), drafting=drafting)
    return GenerationRequest(messages=messages, settings=settings, limits=Limits(max_tokens))


def _record(turn: Turn, started: str, progress: Progress) -> Run:
    return Run(
        prompt=turn.prompt.key,
        kind=turn.prompt.kind,
        split=turn.prompt.split,
        mode=turn.variant.label,
        repeat=turn.repeat,
        started=started,
        seed=progress.seed,
        finish_reason=progress.finish_reason or "",
        stats=progress.stats.to_dict(),
        token_ids=progress.token_ids,
        text=progress.text,
    )
