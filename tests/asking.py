"""Short ways to ask a runtime for an answer, and to judge two greedy answers that should be the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from specui import pairs
from specui.catalog import PairFiles
from specui.config import (
    SPECULATION_MODES,
    DraftingSettings,
    Limits,
    LoadSettings,
    SamplingSettings,
    SpeculationMode,
    StepSettings,
)
from specui.engine.llama import AbortFlag, Context, ContextSize, Model
from specui.generation import Generation, GenerationRequest, Message, Progress
from specui.runtime import Runtime

MODES = SPECULATION_MODES
SPECULATIVE: tuple[SpeculationMode, ...] = tuple(mode for mode in MODES if mode != "none")
HANG_SECONDS = 60
SEA = "Write three sentences about the sea."


@contextmanager
def own_draft(pair: PairFiles, settings: LoadSettings) -> Iterator[Runtime]:
    """Give a runtime whose target and draft are the pair's draft: right nearly always, and exact on short texts."""
    assert pair.draft is not None
    runtime = Runtime(settings)
    runtime.load(pairs.from_paths(pair.draft, pair.draft))
    yield runtime
    runtime.close()


def request(
    prompt: str | Sequence[tuple[str, str]],
    mode: SpeculationMode = "none",
    max_tokens: int = 32,
    *,
    raw: bool = False,
    cap: int | None = None,
    stop: tuple[str, ...] = (),
    sampling: SamplingSettings | None = None,
) -> GenerationRequest:
    """Return a request: one user turn, or turns, or raw text."""
    settings = StepSettings(sampling or SamplingSettings(), DraftingSettings(mode, cap))
    limits = Limits(max_tokens, stop)
    if raw:
        assert isinstance(prompt, str)
        return GenerationRequest(prompt=prompt, settings=settings, limits=limits)
    turns: Any = [("user", prompt)] if isinstance(prompt, str) else prompt
    return GenerationRequest(tuple(Message(role, text) for role, text in turns), settings=settings, limits=limits)


def ask(
    runtime: Runtime,
    prompt: str | Sequence[tuple[str, str]],
    mode: SpeculationMode = "none",
    max_tokens: int = 32,
    **more: Any,
) -> Progress:
    """Return the whole answer."""
    return runtime.start(request(prompt, mode, max_tokens, **more)).result()


def watch(generation: Generation) -> list[Progress]:
    """Return every snapshot that could be seen, the last one included."""
    seen = [generation.wait(-1)]
    while not seen[-1].over:
        seen.append(generation.wait(seen[-1].version))
    return seen


def assert_counts(progress: Progress) -> None:
    """Fail where counts do not add up or do not fit the tokens."""
    stats, origins = progress.stats, progress.token_origins
    drafted = stats.num_accepted_tokens + stats.num_rejected_tokens + stats.num_ignored_tokens
    assert drafted == stats.num_draft_tokens
    assert stats.num_accepted_tokens == origins.count("accepted")
    assert stats.num_rejected_tokens == origins.count("recovered")
    assert stats.completion_tokens == len(progress.token_ids)
    assert (stats.acceptance_rate is None) == (stats.num_draft_tokens == 0)
    assert "".join(piece.text for piece in progress.pieces) == progress.text


class Judge:
    """Says whether a difference between two greedy answers is a near tie of the target, by measuring."""

    def __init__(self, model: Model) -> None:
        self._context = Context(model, ContextSize(2048, 512, 64), None, AbortFlag())

    def close(self) -> None:
        """Free the context."""
        self._context.close()

    def assert_same(self, got: Progress, want: Progress) -> None:
        """Fail unless the ids are equal, or first differ where batching moves the logits by more than their gap."""
        place = next((i for i, (a, b) in enumerate(zip(got.token_ids, want.token_ids, strict=False)) if a != b), None)
        if place is None:
            assert len(got.token_ids) == len(want.token_ids)
            return
        text = [*want.prompt_token_ids, *want.token_ids[:place]]
        gap, moved = self._gap_and_moved(text)
        assert gap <= 2 * moved, (
            f"token {place}: {got.token_ids[place]} for {want.token_ids[place]}; their logits are {gap:.4f} apart, "
            f"and passes of several rows move them by {moved:.4f} at most"
        )

    def _gap_and_moved(self, text: Sequence[int]) -> tuple[float, float]:
        context = self._context
        context.clear()
        for start in range(0, len(text) - 1, 512):
            context.decode(text[start : min(start + 512, len(text) - 1)], 0)
        context.decode(text[-1:], 1)
        single = context.logits(0).copy()
        moved = 0.0
        for rows in (2, 3, 4, 8, 16):
            context.truncate(len(text) - 1)
            context.decode([text[-1]] * rows, rows)
            moved = max(moved, float(np.abs(context.logits(0) - single).max()))
        best = np.sort(single)[-2:]
        return float(best[1] - best[0]), moved
