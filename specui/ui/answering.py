"""Writes one answer into a page: starts it, follows it two or three times a second, and hands out what has changed.

Knows no gradio. A `Frame` names only the parts of the page that change; what the engine does is never waited for here
longer than a second, and a page that reads slowly costs the engine nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from specui.errors import SpecUIError
from specui.generation import Generation, GenerationRequest, Progress
from specui.ui import figures, thread
from specui.ui.conversation import Answer, Conversation, Partial, Turn
from specui.ui.form import ChatSettings
from specui.ui.markdown import LiveMarkdown
from specui.ui.sessions import Session
from specui.ui.shared import ModelRuntime

TEXT_SECONDS = 0.4
FIGURES_SECONDS = 1.2
KEEP_SECONDS = 1.0
LOAD_SHARE = 0.05
"""The part of one core that rendering may take; long texts are shown less often."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What changes on the page; None leaves a part as it is."""

    thread: str | None = None
    live: str | None = None
    figures: str | None = None
    conversation: str | None = None
    partial: str | None = None
    notice: str | None = None
    box: str | None = None


def notice(text: str) -> Frame:
    """Return a frame that says what went wrong and changes nothing else."""
    return Frame(notice=thread.error(text))


RUNNING = "An answer is being written; stop it or wait for its end. Your text is kept."


def answer(
    runtime: ModelRuntime, session: Session, conversation: Conversation, settings: ChatSettings, clear_box: bool = False
) -> Iterator[Frame]:
    """Answer the last question of `conversation`. Errors become frames; the box is cleared once all is accepted."""
    if session.running:
        yield notice(RUNNING)
        return
    request = GenerationRequest(
        messages=conversation.messages(settings.system),
        settings=settings.step,
        limits=settings.limits,
        references=session.references.texts,
    )
    try:
        generation = runtime.start(request)
    except SpecUIError as error:
        yield notice(str(error))
        return
    session.generation = generation
    try:
        yield from _Stream(session, conversation, generation).frames(clear_box)
    finally:
        if not generation.progress.over:
            generation.cancel()


@dataclass(slots=True)
class _Stream:
    """One answer on its way to one page."""

    session: Session
    conversation: Conversation
    generation: Generation
    markdown: LiveMarkdown = field(default_factory=LiveMarkdown)
    _figures_at: float = 0.0
    _kept_at: float = 0.0
    _view: tuple[int, bool] = (-1, False)

    def frames(self, clear_box: bool) -> Iterator[Frame]:
        index = len(self.conversation.turns) - 1
        progress = self.generation.progress
        yield Frame(
            thread=thread.render(self.conversation, upto=index),
            live=thread.live(progress, self.session.show_tokens, self.markdown),
            figures=figures.render(progress.stats, progress.rates, live=True),
            conversation=self.conversation.to_json(),
            notice="",
            box="" if clear_box else None,
        )
        self._kept_at = time.monotonic()
        while not (progress := self._next()).over:
            if not self._shown:
                break
            if (progress.version, self.session.show_tokens) != self._view:
                started = time.monotonic()
                yield self._live(progress)
                self._pause(time.monotonic() - started)
        yield self._end(index)

    @property
    def _shown(self) -> bool:
        """Whether the page still shows this conversation."""
        return self.session.generation is self.generation

    def _next(self) -> Progress:
        """Wait for news, but not so long that a change of the view would be late."""
        return self.generation.wait(self._view[0], timeout_seconds=2 * TEXT_SECONDS)

    def _pause(self, rendered_seconds: float) -> None:
        """Wait until the next frame is due, or the answer is over."""
        self.generation.wait_for_end(max(TEXT_SECONDS, rendered_seconds / LOAD_SHARE))

    def _live(self, progress: Progress) -> Frame:
        now = time.monotonic()
        show_tokens = self.session.show_tokens
        self._view = (progress.version, show_tokens)
        panel = partial = None
        if now - self._figures_at >= FIGURES_SECONDS:
            self._figures_at = now
            panel = figures.render(progress.stats, progress.rates, live=True)
        if now - self._kept_at >= KEEP_SECONDS:
            self._kept_at = now
            partial = self._partial(progress)
        return Frame(live=thread.live(progress, show_tokens, self.markdown), figures=panel, partial=partial)

    def _turn(self, progress: Progress) -> Turn:
        error = "" if progress.error is None else str(progress.error)
        question = self.conversation.turns[-1].question
        if not progress.text:
            return Turn(question, None, error or "Stopped before the first token.")
        return Turn(question, Answer.of(progress, self.session.show_tokens), error)

    def _partial(self, progress: Progress) -> str:
        return Partial(self.conversation.id, len(self.conversation.turns) - 1, self._turn(progress)).to_json()

    def _end(self, index: int) -> Frame:
        self.generation.wait_for_end(timeout_seconds=1.0)
        progress = self.generation.progress
        if not self._shown:
            return Frame(partial=self._partial(progress))
        done = self.conversation.with_turn(index, self._turn(progress))
        return Frame(
            thread=thread.render(done),
            live="",
            figures=figures.render(progress.stats, progress.rates),
            conversation=done.to_json(),
            partial="",
        )
