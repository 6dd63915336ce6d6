"""One answer in the making, as every face sees it: a request, a running generation, snapshots of its progress.

Knows nothing about llama.cpp, gradio or HTTP. `runtime.py` writes a `Generation` from its engine thread; faces read
it at their own pace with `wait`, so that a slow page never slows the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from specui.config import MAX_REFERENCE_BYTES, Limits, StepSettings
from specui.engine.gbnf import check_gbnf
from specui.engine.stats import FinishReason, RatePoint, Stats, TokenOrigin
from specui.errors import SettingError, SpecUIError
from specui.watched import Watched

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

    `grammar` (GBNF) holds for the whole answer; one that cannot work raises SettingError here. `fresh`: nothing that is
    cached of earlier prompts is used, so that two runs of one prompt cost the same. `references`: texts that modes
    prompt-lookup and auto may copy drafts from; the model never sees them. More than MAX_REFERENCE_BYTES of them raise
    SettingError.
    """

    messages: tuple[Message, ...] = ()
    prompt: str | None = None
    settings: StepSettings = field(default_factory=StepSettings)
    limits: Limits = field(default_factory=Limits)
    grammar: str | None = None
    fresh: bool = False
    references: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.grammar is not None:
            check_gbnf(self.grammar)
        _check_references(self.references)


def _check_references(texts: object) -> None:
    if not isinstance(texts, tuple) or any(not isinstance(text, str) for text in texts):
        raise SettingError("references", type(texts).__name__, "a tuple of texts")
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    if size > MAX_REFERENCE_BYTES:
        raise SettingError("references", f"{size:,} bytes", f"at most {MAX_REFERENCE_BYTES:,} bytes in all together")


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


class Generation(Watched[Progress]):
    """An answer that is queued, running or over. All methods may be called from any thread."""

    def __init__(self, request: GenerationRequest) -> None:
        super().__init__(Progress())
        self.request = request
        self._settings = request.settings

    @property
    def settings(self) -> StepSettings:
        """What the next step will use."""
        return self._settings

    def update(self, settings: StepSettings) -> None:
        """Change sampling and drafting from the next step on."""
        self._settings = settings

    def result(self) -> Progress:
        """Block until the answer is over and return it. Raises the SpecUIError that ended it, if one did."""
        progress = self._last()
        if progress.error is not None:
            raise progress.error
        return progress
