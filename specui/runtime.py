"""What is loaded, and the one line of work around it.

Loads a pair (the target once, the draft when it is needed), swaps it for another without losing the current one when
that fails, and runs generations in turn. Knows the jobs below it; nothing about gradio, HTTP or the command line.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from specui.answer import Answer, check_request, render_prompt
from specui.catalog import PairFiles
from specui.config import MAX_QUEUE_LENGTH, LoadSettings
from specui.engine.chat import ChatTemplate
from specui.errors import NothingLoadedError, SpecUIError
from specui.generation import Generation, GenerationRequest, Progress
from specui.lane import Lane
from specui.line import Job, Line
from specui.reference_index import ReferenceIndex
from specui.weights import Shelf

log = logging.getLogger("specui")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """What is loaded now, for faces to show."""

    name: str
    title: str
    target: Path
    draft: Path | None
    ctx_size: int
    threads: int
    target_bytes: int
    draft_bytes: int
    has_chat_template: bool
    draft_off_reason: str | None


class _Pair:
    """A loaded pair: weights, lane and template."""

    def __init__(self, files: PairFiles, settings: LoadSettings, shelf: Shelf) -> None:
        self.files = files
        settings = replace(settings, ctx_size=settings.ctx_size or files.ctx_size)
        self.lane = Lane(shelf, files.target, files.draft, settings)
        self.model = self.lane.model
        self.references = ReferenceIndex(self.model)

    def describe(self) -> LoadedPair:
        draft = self.lane.draft
        model = draft.model
        return LoadedPair(
            name=self.files.name,
            title=self.files.title,
            target=self.files.target,
            draft=self.files.draft,
            ctx_size=self.lane.target.n_ctx,
            threads=self.lane.target.threads,
            target_bytes=self.model.size_bytes,
            draft_bytes=model.size_bytes if model else 0,
            has_chat_template=bool(self.files.chat_template or self.model.chat_template),
            draft_off_reason=draft.off_reason,
        )

    @cached_property
    def template(self) -> ChatTemplate:
        """The chat template, read when a chat first needs it; raises TemplateError where there is none that works."""
        return ChatTemplate(self.model, self.files.chat_template)

    def close(self) -> None:
        self.lane.close()


class Runtime:
    """The loaded pair and the line of jobs. All methods may be called from any thread.

    `join` and `leave` are for jobs of other kinds than an answer: they take turns with answers on the engine's thread
    and may use `shelf` there.
    """

    def __init__(self, settings: LoadSettings) -> None:
        self.settings = settings
        self.shelf = Shelf(settings.gpu_layers)
        self._pair: _Pair | None = None
        self._line = Line(MAX_QUEUE_LENGTH)

    @property
    def loaded(self) -> LoadedPair | None:
        """What is loaded, or None."""
        pair = self._pair
        return pair.describe() if pair else None

    @property
    def files(self) -> PairFiles | None:
        """The files of what is loaded, or None."""
        pair = self._pair
        return pair.files if pair else None

    def queue_length(self) -> int:
        """How many jobs wait or run."""
        return len(self._line)

    def load(self, files: PairFiles) -> LoadedPair:
        """Load a pair in turn and make it the current one; blocks. Where that fails this raises and the old stays."""
        return self._in_turn(lambda: self._load(files))

    def _load(self, files: PairFiles) -> LoadedPair:
        old, new = self._pair, _Pair(files, self.settings, self.shelf)
        self._pair = new
        if old is not None:
            old.close()
        return new.describe()

    def unload(self) -> None:
        """Free the pair, in turn; nothing is loaded afterwards."""

        def free() -> None:
            old, self._pair = self._pair, None
            if old is not None:
                old.close()

        self._in_turn(free)

    def unload_draft(self) -> None:
        """Free the draft's memory, in turn; it loads again when a mode needs it."""

        def free() -> None:
            if self._pair is not None:
                self._pair.lane.draft.close()

        self._in_turn(free)

    def _in_turn(self, action: Callable[[], T]) -> T:
        """Run `action` on the engine's thread and return or raise what it does."""
        done = threading.Event()
        result: list[T] = []
        failure: list[BaseException] = []

        def run() -> None:
            try:
                result.append(action())
            except BaseException as error:  # handed to the caller, whatever it is
                failure.append(error)
            done.set()

        self.join(Job(run, on_place=lambda place: None))
        done.wait()
        if failure:
            raise failure[0]
        return result[0]

    def join(self, job: Job) -> None:
        """Put a job in the line. Raises BusyError."""
        self._line.join(job)

    def leave(self, job: Job) -> bool:
        """Take a waiting job out of the line; False when it runs or ran already."""
        return self._line.leave(job)

    def start(self, request: GenerationRequest) -> Generation:
        """Put a request in the line and return its handle. Raises BlankPromptError, BusyError, NothingLoadedError."""
        check_request(request)
        if self._pair is None:
            raise NothingLoadedError
        generation = Generation(request)
        job = Job(
            run=lambda: self._run(generation),
            on_place=lambda place: generation.publish(replace(generation.progress, place=place)),
        )

        def leave() -> None:
            if self.leave(job):
                generation.publish(Progress(phase="done", finish_reason="cancelled"))

        generation.when_cancelled(leave)
        self.join(job)
        return generation

    def _run(self, generation: Generation) -> None:
        try:
            self._answer(generation)
        except SpecUIError as error:
            self._fail(generation, error)
        except Exception as error:
            log.exception("The engine failed")
            self._fail(generation, SpecUIError(f"The engine failed: {error!r}; the log has the details"))

    def _fail(self, generation: Generation, error: SpecUIError) -> None:
        generation.publish(replace(generation.progress, phase="failed", error=error))

    def _answer(self, generation: Generation) -> None:
        """Write an answer. What it may copy from is read before its clock starts."""
        pair = self._pair
        if pair is None:
            raise NothingLoadedError
        generation.publish(replace(generation.progress, place=0))
        lane = pair.lane
        generation.when_cancelled(lane.abort.set)
        try:
            prompt = render_prompt(generation.request, pair.model, lambda: pair.template, lane.target.n_ctx)
            if generation.request.fresh:
                lane.reset()
            cancelled = generation.cancelled.is_set
            reference = pair.references.of(generation.request.references, cancelled)
            lane.begin_answer(generation.settings.drafting, cancelled, reference)
            Answer(generation, lane, prompt).run()
        finally:
            generation.when_cancelled(None)
            lane.abort.clear()

    def close(self) -> None:
        """Finish what waits and free everything."""
        self._line.close()
        if self._pair is not None:
            self._pair.close()
            self._pair = None
