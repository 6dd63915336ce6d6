"""What all tabs share: the runtime they talk to, the open pages, and a few words and colours.

Knows no gradio. `ModelRuntime` is the part of `specui.runtime.Runtime` that the page needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from specui.catalog import Cancelled, OnProgress, Pair, PairFiles
from specui.config import SpeculationMode
from specui.generation import Generation, GenerationRequest


class Loaded(Protocol):
    """The pair in memory."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def target(self) -> Path: ...
    @property
    def draft(self) -> Path | None: ...
    @property
    def ctx_size(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def target_bytes(self) -> int: ...
    @property
    def draft_bytes(self) -> int: ...
    @property
    def draft_off_reason(self) -> str | None: ...


class ModelRuntime(Protocol):
    """Whatever holds a model and answers; all methods may be called from any thread."""

    @property
    def loaded(self) -> Loaded | None: ...
    @property
    def files(self) -> PairFiles | None: ...
    def load(self, files: PairFiles) -> Loaded: ...
    def start(self, request: GenerationRequest) -> Generation: ...
    def queue_length(self) -> int: ...
    def close(self) -> None: ...


class PairFinder(Protocol):
    """Whatever knows where a pair's files are; the module `specui.pairs` is one."""

    def resolve(self, pair: Pair, on_progress: OnProgress, cancelled: Cancelled) -> PairFiles: ...
    def on_disk(self, pair: Pair) -> PairFiles | None: ...


QUIET: dict[str, Any] = {
    "concurrency_limit": None,
    "show_progress": "hidden",
    "show_progress_on": [],  # else every output runs a timer of 60 frames a second, hidden or not
    "api_visibility": "private",
    "trigger_mode": "multiple",
}
"""How every event of the page runs: the only line is the one around the model."""

DIRECT: dict[str, Any] = {**QUIET, "queue": False}
"""For events that must not wait behind anything, such as the switch and stop."""


MODE_NAMES: dict[SpeculationMode, str] = {
    "none": "none",
    "prompt-lookup": "prompt lookup",
    "draft-model": "draft model",
    "auto": "auto",
}


def count(value: int) -> str:
    """Return a whole number for people: 2,048."""
    return f"{value:,}"


def percent(share: float | None) -> str:
    """Return a share as a percentage, a dash where nothing was measured."""
    return "–" if share is None else f"{100 * share:.0f} %"


def number(value: float | None, digits: int = 1) -> str:
    """Return a number with fixed decimals, a dash where nothing was measured."""
    return "–" if value is None else f"{value:,.{digits}f}"
