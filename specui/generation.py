"""One answer in the making, as every face sees it: a request, a running generation, snapshots of its progress.

Knows nothing about llama.cpp, gradio or HTTP. `runtime.py` writes a `Generation` from its engine thread; faces read
it at their own pace with `wait`, so that a slow page never slows the engine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from specui.config import Limits, StepSettings
from specui.engine.gbnf import check_gbnf
from specui.engine.stats import FinishReason, RatePoint, Stats, TokenOrigin
from specui.errors import SpecUIError

Role = Literal["system", "user", "assistant"]
Phase = Literal["queued", "prefill", "decode", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What to answer: `messages` through the chat template, or `prompt` sent as it is (exactly one of the two).

    `grammar` (GBNF) holds for the whole answer; one that cannot work raises SettingError here.
    """

    messages: tuple[Message, ...] = ()
    prompt: str | None = None
    settings: StepSettings = field(default_factory=StepSettings)
    limits: Limits = field(default_factory=Limits)
    grammar: str | None = None

    def __post_init__(self) -> None:
        if self.grammar is not None:
            check_gbnf(self.grammar)


@dataclass(frozen=True, slots=True)
class TokenPiece:
    """One emitted token: its id, the text it completed (may be empty in mid-character) and where it came from."""

    token_id: int
    text: str
    origin: TokenOrigin


@dataclass(frozen=True, slots=True)
class Progress:
    """A snapshot of an answer. `text` is what may be shown; joined piece texts equal it.

    `place` counts the answers before this one while queued; `prefill_done` of `prefill_total` prompt tokens are
    evaluated; `dropped_turns` old turns did not fit the context and were left out of the prompt.
    """

    version: int = 0
    phase: Phase = "queued"
    place: int = 0
    prefill_done: int = 0
    prefill_total: int = 0
    dropped_turns: int = 0
    seed: int = 0
    text: str = ""
    pieces: tuple[TokenPiece, ...] = ()
    prompt_token_ids: tuple[int, ...] = ()
    stats: Stats = field(default_factory=Stats)
    rates: tuple[RatePoint, ...] = ()
    finish_reason: FinishReason | None = None
    error: SpecUIError | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.phase in ("done", "failed")

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The ids of every emitted token, an end-of-generation token included."""
        return tuple(piece.token_id for piece in self.pieces)

    @property
    def token_origins(self) -> tuple[TokenOrigin, ...]:
        """The origin of every emitted token."""
        return tuple(piece.origin for piece in self.pieces)


class Generation:
    """An answer that is queued, running or over. All methods may be called from any thread."""

    def __init__(self, request: GenerationRequest) -> None:
        self.request = request
        self.cancelled = threading.Event()
        self._ended = threading.Event()
        self._wanted = False
        self._settings = request.settings
        self._progress = Progress()
        self._changed = threading.Condition()
        self._on_cancel: Callable[[], None] | None = None
        # Not the lock of `_changed`: the action may take other locks under which snapshots are published.
        self._cancelling = threading.RLock()

    @property
    def settings(self) -> StepSettings:
        """What the next step will use."""
        return self._settings

    def update(self, settings: StepSettings) -> None:
        """Change sampling and drafting from the next step on."""
        self._settings = settings

    def cancel(self) -> None:
        """End the answer at the next possible moment, also in prefill; what was written stays."""
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

    def publish(self, progress: Progress) -> None:
        """Make `progress` the newest snapshot, one version up (called by the runtime)."""
        with self._changed:
            self._progress = replace(progress, version=self._progress.version + 1)
            self._wanted = False
            self._changed.notify_all()
        if progress.over:
            self._ended.set()

    @property
    def progress(self) -> Progress:
        """The newest snapshot."""
        return self._progress

    def wait(self, seen: int = -1, timeout_seconds: float = 1.0) -> Progress:
        """Return the newest snapshot once its version is above `seen` or the answer is over, or after the time."""
        with self._changed:
            self._wanted = self._progress.version <= seen
            self._changed.wait_for(lambda: self._progress.version > seen or self._progress.over, timeout_seconds)
            return self._progress

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for the next snapshot; the runtime makes fewer while nobody does."""
        return self._wanted

    def wait_for_end(self, timeout_seconds: float) -> bool:
        """Return whether the answer is over, waiting so long for it; what is published before that wakes nobody."""
        return self._ended.wait(timeout_seconds)

    def result(self) -> Progress:
        """Block until the answer is over and return it. Raises the SpecUIError that ended it, if one did."""
        while not self.wait_for_end(timeout_seconds=1.0):
            pass
        if self._progress.error is not None:
            raise self._progress.error
        return self._progress
