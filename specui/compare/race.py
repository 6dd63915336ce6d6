"""Runs a race: opens a lane for each entry, warms them up, lets them answer side by side, and judges what came of it.

Each lane has contexts of its own on shared weights. Only a lane's own drafting, passes and sampling are in its figures.
Runs as one job on the engine's thread; knows nothing about faces.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice

from specui.answer import Answer, check_request, render_prompt
from specui.compare.drawing import Drawing
from specui.compare.handle import Race
from specui.compare.judge import judge
from specui.compare.records import LaneSpec, RaceProgress, RaceRequest, RaceResult
from specui.compare.schedule import rotated, take_turns
from specui.config import StepSettings
from specui.engine.chat import ChatTemplate, Prompt
from specui.engine.decoder import ABORTED
from specui.engine.drafting import common_prefix
from specui.engine.llama import Model
from specui.engine.lookup import Reference
from specui.errors import DecodeError, SpecUIError
from specui.generation import Generation, GenerationRequest, Progress
from specui.lane import Lane
from specui.line import Job
from specui.reference_index import ReferenceIndex
from specui.runtime import Runtime

log = logging.getLogger("specui")

WARM_UP_PROMPT_TOKENS = 64
WARM_UP_STEPS = 16
"""How much of the prompt a lane reads, and how many steps it makes, before anything is measured."""

OTHER_TEXT = "?"
"""Stands in for the last turn where the rest of a conversation is wanted."""


def start_race(runtime: Runtime, request: RaceRequest) -> Race:
    """Put a race in the runtime's line and return its handle. Raises BlankPromptError, BusyError."""
    check_request(request.prompt)
    race = Race(request)
    job = Job(
        run=lambda: _Run(race, runtime).run(),
        on_place=lambda place: race.publish(replace(race.progress, place=place)),
    )

    def leave() -> None:
        if runtime.leave(job):
            race.publish(RaceProgress(phase="done"))

    race.when_cancelled(leave)
    runtime.join(job)
    return race


class _Cancelled(Exception):  # noqa: N818  (not an error: whoever started the race ended it)
    """The race was cancelled."""


class _LaneFailed(Exception):  # noqa: N818  (carries an error to where it is published)
    """A lane raised `error`."""

    def __init__(self, label: str, error: SpecUIError) -> None:
        super().__init__(label)
        self.label = label
        self.error = error


@contextmanager
def _named(label: str) -> Iterator[None]:
    """Put the lane's label on what is raised inside."""
    try:
        yield
    except SpecUIError as error:
        if isinstance(error, DecodeError) and error.code == ABORTED:
            raise _Cancelled from None
        raise _LaneFailed(label, error) from error


@dataclass(frozen=True, slots=True)
class _Entry:
    """A lane that is ready to run: what its caches start with, the prompt it answers, and what it may copy from."""

    spec: LaneSpec
    lane: Lane
    request: GenerationRequest
    prompt: Prompt
    prefix: Sequence[int]
    reference: Reference | None


class _Running:
    """One lane's answer in one repeat, to be stepped by the schedule."""

    def __init__(self, entry: _Entry, answer: Answer) -> None:
        self.compute_seconds = 0.0
        self._label = entry.spec.label
        self._answer = answer
        self._prefill: Iterator[Progress] | None = answer.begin()
        self._last: Progress | None = None

    def advance(self) -> bool:
        """Evaluate a batch of the prompt, or make a decoding step."""
        with _named(self._label):
            going = self._step()
        self.compute_seconds = self._answer.compute_seconds
        if not going:
            self._last = self._answer.finish()
        return going

    def _step(self) -> bool:
        if self._prefill is None:
            return self._answer.step()
        if next(self._prefill, None) is None:
            self._prefill = None
        return True

    @property
    def progress(self) -> Progress:
        """The newest snapshot; the last one once the answer is over."""
        return self._last or self._answer.progress()


class _Run:
    """The job of one race."""

    def __init__(self, race: Race, runtime: Runtime) -> None:
        self._race = race
        self._runtime = runtime
        self._lanes: list[Lane] = []
        self._references: dict[Model, ReferenceIndex] = {}
        self._drawing = Drawing(race)
        self._seed = secrets.randbits(32)

    def run(self) -> None:
        """Run to the end, free every lane, then publish how it ended; what the race raises is in its last snapshot."""
        race = self._race
        race.when_cancelled(self._abort)
        try:
            result = self._result()
            last = replace(race.progress, phase="done", result=result)
        except _Cancelled:
            last = replace(race.progress, phase="done")
        except _LaneFailed as failure:
            last = replace(race.progress, phase="failed", error=failure.error, failed_lane=failure.label)
        except Exception as error:
            log.exception("The race failed")
            wrapped = SpecUIError(f"The race failed: {error!r}; the log has the details")
            last = replace(race.progress, phase="failed", error=wrapped)
        race.when_cancelled(None)
        try:
            for lane in self._lanes:
                lane.close()
        finally:  # whatever happens here, nobody may wait for the end for ever
            race.publish(last)

    def _abort(self) -> None:
        for lane in list(self._lanes):
            lane.abort.set()

    def _go_on(self) -> bool:
        return not self._race.cancelled.is_set()

    def _check(self) -> None:
        if not self._go_on():
            raise _Cancelled

    def _show(self, **changes: object) -> None:
        self._check()
        self._race.publish(replace(self._race.progress, **changes))  # type: ignore[arg-type]  # names of its fields

    def _result(self) -> RaceResult:
        request = self._race.request
        self._show(phase="loading", place=0)
        entries = [self._open(spec) for spec in request.lanes]
        self._show(phase="warm-up")
        for entry in entries:
            self._warm_up(entry)
        runs, orders = [], []
        for repeat in range(request.repeats):
            orders.append(rotated(range(len(entries)), repeat))
            runs.append(self._repeat(entries, orders[-1], repeat + 1))
        self._show(phase="judging")
        baseline = entries[request.baseline]
        with _named(baseline.spec.label):
            lanes = judge(request, [list(each) for each in zip(*runs, strict=True)], baseline.lane.target)
        return RaceResult(lanes, request.baseline, tuple(orders))

    def _open(self, spec: LaneSpec) -> _Entry:
        self._check()
        files, settings = spec.files, self._runtime.settings
        with _named(spec.label):
            settings = replace(settings, ctx_size=settings.ctx_size or files.ctx_size)
            lane = Lane(self._runtime.shelf, files.target, files.draft, settings)
            self._lanes.append(lane)
            if spec.settings.drafting.speculation in ("draft-model", "auto"):
                lane.draft.load(self._race.cancelled.is_set)
            self._check()
            request = replace(self._race.request.prompt, settings=self._seeded(spec.settings))
            template = None if request.prompt is not None else ChatTemplate(lane.model, files.chat_template)
            return self._entry(spec, lane, request, template)

    def _entry(self, spec: LaneSpec, lane: Lane, request: GenerationRequest, template: ChatTemplate | None) -> _Entry:
        def known() -> ChatTemplate:
            return template or ChatTemplate(lane.model)

        prompt = render_prompt(request, lane.model, known, lane.target.n_ctx)
        prefix: list[int] = []
        if self._race.request.cache == "conversation" and template is not None:
            turns = [(message.role, message.content) for message in request.messages]
            other = template.tokens([*turns[:-1], (turns[-1][0], OTHER_TEXT)])
            prefix = prompt.token_ids[: min(common_prefix(other, prompt.token_ids), len(prompt.token_ids) - 1)]
        return _Entry(spec, lane, request, prompt, prefix, self._reference(lane.model, request.references))

    def _reference(self, model: Model, texts: Sequence[str]) -> Reference | None:
        """Return the reference texts, indexed once for all lanes on one model."""
        index = self._references.setdefault(model, ReferenceIndex(model))
        return index.of(texts, self._race.cancelled.is_set)

    def _seeded(self, settings: StepSettings) -> StepSettings:
        """Return the settings with the race's seed where they have none: lanes and repeats share it."""
        sampling = settings.sampling
        return settings if sampling.seed is not None else replace(settings, sampling=replace(sampling, seed=self._seed))

    def _warm_up(self, entry: _Entry) -> None:
        """Let a lane make a few steps: pages are read, threads started, and what `auto` measures is measured."""
        short = Prompt(entry.prompt.token_ids[:WARM_UP_PROMPT_TOKENS])
        running = self._begin(replace(entry, prompt=short, prefix=()))
        for _ in islice(iter(running.advance, False), WARM_UP_STEPS):
            self._check()

    def _begin(self, entry: _Entry) -> _Running:
        with _named(entry.spec.label):
            entry.lane.reset(entry.prefix)
            drafting, cancelled = entry.request.settings.drafting, self._race.cancelled.is_set
            entry.lane.begin_answer(drafting, cancelled, entry.reference)
            return _Running(entry, Answer(Generation(entry.request), entry.lane, entry.prompt))

    def _repeat(self, entries: Sequence[_Entry], order: Sequence[int], repeat: int) -> list[Progress]:
        """Run all lanes side by side once and return their last snapshots, in the order of the request."""
        self._check()
        running = [self._begin(entry) for entry in entries]

        def show() -> None:
            self._drawing.show(repeat, [each.progress for each in running])

        def go_on() -> bool:
            if self._go_on() and self._drawing.due:
                show()
            return self._go_on()

        show()
        take_turns([running[place] for place in order], go_on)
        self._check()
        show()
        return [each.progress for each in running]
