"""Contexts on tiny models, drafters with a script, and a judge of greedy texts, for the tests of kinds of memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from tiny_models import N_VOCAB, Kind

from specui.config import DraftingSettings, SpeculationMode, StepSettings
from specui.engine.decoder import Decoder, Task
from specui.engine.drafting import Drafter, NoDrafter, Outcome, Proposal
from specui.engine.llama import AbortFlag, Context, ContextSize, Logits, Model
from specui.engine.verification import EMPTY_DRAFT, Draft

DRAFT = 16
PROMPT = [1, *((37 * place) % 300 + 10 for place in range(99))]
"""Longer than a batch of 64, and than the sliding window."""
RECURRENT: tuple[Kind, ...] = ("mamba", "jamba", "lfm2", "qwen35")
SIZE = ContextSize(n_ctx=1024, n_batch=64, max_rows=DRAFT + 1)
NEAR_TIE = 0.1
"""Logits of these models differ by about 5; passes of several rows move them by up to 0.02."""

Quality = Literal["wrong", "half", "right", "mixed"]


def open_context(model: Model, size: ContextSize = SIZE, abort: AbortFlag | None = None) -> Context:
    """Return a context of one thread, which suits a tiny model best."""
    return Context(model, size, 1, abort or AbortFlag())


class Scripted:
    """Drafts from a known text: right, wrong from the first token, right up to the middle, or each in turn."""

    def __init__(self, text: Sequence[int], quality: Quality) -> None:
        self._text = text
        self._quality = quality
        self._turn = 0

    def begin(self, prompt: Sequence[int]) -> Iterator[int]:
        """Nothing to read."""
        return iter(())

    def propose(self, proposal: Proposal) -> Draft:
        """Return a full draft while the text lasts."""
        length = len(proposal.committed)
        tokens = list(self._text[length : length + proposal.limit])
        self._turn += 1
        right = {"wrong": 0, "half": len(tokens) // 2, "right": len(tokens), "mixed": self._turn % (len(tokens) + 1)}
        for place in range(right[self._quality], len(tokens)):
            tokens[place] = (tokens[place] + 1 + place) % N_VOCAB
        return Draft(tokens) if tokens else EMPTY_DRAFT

    def accept(self, outcome: Outcome) -> None:
        """Nothing to learn."""


class OneDrafter:
    """Gives one drafter for every step, and remembers why it may not be used any more."""

    def __init__(self, drafter: Drafter | None) -> None:
        self._drafter = drafter
        self.failed: list[str] = []

    def pick(self, drafting: DraftingSettings) -> tuple[Drafter, SpeculationMode, str | None]:
        """Return the drafter, or none once it failed."""
        if self._drafter is None or self.failed:
            return NoDrafter(), "none", self.failed[0] if self.failed else None
        return self._drafter, "draft-model", None

    def fail(self, reason: str, every_mode: bool = False) -> None:
        """Remember the reason."""
        self.failed.append(reason)

    def longest(self, drafting: DraftingSettings, limit: int) -> int:
        """Allow every length."""
        return limit


@dataclass(frozen=True)
class Text:
    """What was written behind a prompt."""

    ids: list[int]
    accepted: int
    drafted: int
    finish_reason: str | None
    failed: list[str]


def write(target: Context, prompt: Sequence[int], drafter: Drafter | None = None, max_tokens: int = 300) -> Text:
    """Write with the loop as the program does, and fail where the cache is not what was committed."""
    ids: list[int] = []
    settings = StepSettings(drafting=DraftingSettings("draft-model", DRAFT, draft_p_min=0.0))

    def on_token(token: int, _origin: str) -> bool:
        ids.append(token)
        return False

    drafters = OneDrafter(drafter)
    decoder = Decoder(target, drafters, Task(prompt, max_tokens, frozenset(), 0, lambda: settings, on_token))
    for _ in decoder.prefill():
        pass
    while decoder.step():
        assert target.tokens == decoder.committed[:-1]
    assert target.tokens == decoder.committed[: len(target.tokens)]
    stats = decoder.stats.snapshot()
    reason = decoder.finish_reason
    return Text(ids, stats.num_accepted_tokens, stats.num_draft_tokens, reason, drafters.failed)


def row_behind(context: Context, tokens: Sequence[int]) -> Logits:
    """Return the logits [n_vocab] behind `tokens`, evaluated afresh, one row at a time."""
    context.clear()
    for token in tokens:
        context.decode([token], 1)
    return context.logits(0).copy()


def assert_same(
    reference: Context, prompt: Sequence[int], got: Sequence[int], want: Sequence[int], near_tie: float = NEAR_TIE
) -> None:
    """Fail unless two greedy texts are equal, or part where the best two tokens are nearly tied."""
    place = next((i for i, (a, b) in enumerate(zip(got, want, strict=False)) if a != b), None)
    if place is None:
        assert len(got) == len(want)
        return
    row = row_behind(reference, [*prompt, *want[:place]])
    gap = float(row.max() - min(row[got[place]], row[want[place]]))
    assert gap < near_tie, f"token {place} is {got[place]} and not {want[place]}; their logits are {gap:.3f} apart"


def assert_holds_what_it_says(context: Context, reference: Context) -> None:
    """Fail where the next row is not that of `context.tokens` evaluated afresh."""
    said = list(context.tokens)
    context.decode([7], 1)
    moved = np.abs(context.logits(0) - row_behind(reference, [*said, 7])).max()
    assert moved < NEAR_TIE, f"the memory does not hold its {len(said)} tokens: a logit is {moved:.3f} off"
