"""A fake model with scripted logits: the `TokenCache` that the loop, the drafters and the lanes' rules are tested on.

It is strict where llama.cpp would corrupt memory in silence: too many tokens, rows that were not asked for, and a row
that is read after the next decode are errors here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from specui.config import SPECULATION_MODES, DraftingSettings, SamplingSettings, SpeculationMode, StepSettings
from specui.engine.decoder import Decoder, Task
from specui.engine.drafting import Drafter, DraftModel, NoDrafter
from specui.engine.lookup import PromptLookup
from specui.engine.sampling import Logits
from specui.engine.stats import FinishReason, Stats, TokenOrigin
from specui.errors import DecodeError, RollbackError

Script = Callable[[Sequence[int]], Logits]
"""From the tokens so far to the logits [n_vocab] of the next one."""

MODES: tuple[SpeculationMode, ...] = ("none", "prompt-lookup", "draft-model")
SPECULATIVE: tuple[SpeculationMode, ...] = ("prompt-lookup", "draft-model")
N_VOCAB = 12
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
PATH = Path("fake.gguf")
PLAIN = SamplingSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
"""Sampling without any filter."""


def random_script(seed: int, n_vocab: int = N_VOCAB, order: int = 2, sharpness: float = 3.0) -> Script:
    """Return logits that depend on the last `order` tokens alone, so that texts come to repeat themselves."""
    known: dict[tuple[int, ...], Logits] = {}

    def script(tokens: Sequence[int]) -> Logits:
        key = tuple(tokens[-order:])
        if key not in known:
            rng = np.random.default_rng([seed, *key])
            known[key] = (sharpness * rng.normal(size=n_vocab)).astype(np.float32)
        return known[key]

    return script


def blurred(script: Script, noise: float, seed: int = 1) -> Script:
    """Return a draft of `script`: its logits with fixed noise on them."""
    known: dict[int, Logits] = {}

    def draft(tokens: Sequence[int]) -> Logits:
        row = script(tokens)
        if tokens[-1] not in known:
            rng = np.random.default_rng([seed, tokens[-1]])
            known[tokens[-1]] = (noise * rng.normal(size=len(row))).astype(np.float32)
        return row + known[tokens[-1]]

    return draft


def saying(tokens: Sequence[int], n_vocab: int = 32) -> Script:
    """Return a script that says `tokens` behind a prompt of any length that ends in 0, and 1 for ever after them.

    The place is found by counting what stands behind the last 0, which `tokens` must not hold.
    """
    assert 0 not in tokens

    def script(text: Sequence[int]) -> Logits:
        place = len(text) - 1 - max(i for i, token in enumerate(text) if token == 0)
        row = np.zeros(n_vocab, np.float32)
        row[tokens[place] if place < len(tokens) else 1] = 10.0
        return row

    return script


class FakeCache:
    """A KV cache over a `Script`. `calls` records (tokens, rows) of every decode that worked.

    `fail_decode` maps the number of a decode (from 0) to the code it fails with; `recurrent` refuses every cut but
    to nothing; `fail_truncate` numbers the cuts that are refused.
    """

    def __init__(self, script: Script, n_ctx: int = 4096, n_batch: int = 64, max_rows: int = 64) -> None:
        self.n_ctx = n_ctx
        self.n_batch = min(n_batch, n_ctx)
        self.max_rows = min(max_rows, self.n_batch)
        self.tokens: list[int] = []
        self.calls: list[tuple[tuple[int, ...], int]] = []
        self.clears = 0
        self.recurrent = False
        self.fail_decode: dict[int, int] = {}
        self.fail_truncate: set[int] = set()
        self._script = script
        self._decodes = self._truncates = 0
        self._rows: list[Logits] = []
        self._pristine: list[Logits] = []
        self._kept: tuple[int, Logits] | None = None

    @property
    def num_decoded(self) -> int:
        """How many tokens were evaluated in all."""
        return sum(len(tokens) for tokens, _ in self.calls)

    def decode(self, tokens: Sequence[int], rows: int) -> None:
        """Evaluate as `llama.Context.decode` does."""
        assert 0 < len(tokens) <= self.n_batch, "a batch of a size that llama.cpp cannot take"
        assert 0 <= rows <= min(len(tokens), self.max_rows), "more rows than there is room for"
        assert len(self.tokens) + len(tokens) <= self.n_ctx, "more tokens than the context holds"
        self._spoil()
        code = self.fail_decode.get(self._decodes, 0)
        self._decodes += 1
        if code:
            raise DecodeError(PATH, code)
        self.calls.append((tuple(tokens), rows))
        start = len(self.tokens) + len(tokens) - rows
        self.tokens.extend(tokens)
        self._pristine = [self._script(self.tokens[: start + i + 1]) for i in range(rows)]
        self._rows = [row.copy() for row in self._pristine]

    def _spoil(self) -> None:
        """Make old rows unusable, after a look that nobody left penalties in them."""
        self.check_rows()
        for row in self._rows:
            row[:] = np.nan
        self._rows = []

    def check_rows(self) -> None:
        """Fail where a row is not what the model wrote: penalties must be taken back."""
        for row, pristine in zip(self._rows, self._pristine, strict=False):
            assert np.array_equal(row, pristine), "a row of logits was left changed"

    def logits(self, row: int) -> Logits:
        """Return a view on a row of the last decode."""
        assert 0 <= row < len(self._rows), "a row that the last decode did not make"
        return self._rows[row]

    def truncate(self, length: int) -> None:
        """Cut as `llama.Context.truncate` does."""
        if length >= len(self.tokens):
            return
        refused = self._truncates in self.fail_truncate or (self.recurrent and length > 0)
        self._truncates += 1
        if refused:
            raise RollbackError(PATH, len(self.tokens), length)
        del self.tokens[length:]
        if self._kept is not None and self._kept[0] > length:
            self._kept = None

    def clear(self) -> None:
        """Forget every token."""
        self.clears += 1
        self.tokens.clear()
        self._kept = None

    def keep_row(self) -> None:
        """Keep a copy of row 0, as `llama.Context.keep_row` does."""
        self._kept = (len(self.tokens), self._rows[0].copy())

    def kept_row(self) -> Logits | None:
        """Return the kept copy while the cache ends where it was made."""
        return self._kept[1] if self._kept is not None and self._kept[0] == len(self.tokens) else None


class FakeDrafters:
    """The rules of a lane over fake caches: which drafter serves a mode, and what failed in this answer."""

    def __init__(self, draft: FakeCache | None = None, n_vocab: int = 2**31) -> None:
        self.draft = draft
        self.failed: dict[SpeculationMode, str] = {}
        self.picked: SpeculationMode = "none"
        self._n_vocab = n_vocab
        self._lookup: PromptLookup | None = None

    def begin_answer(self) -> None:
        """Forget the last answer."""
        self._lookup = None
        self.failed.clear()

    def pick(self, drafting: DraftingSettings) -> tuple[Drafter, SpeculationMode, str | None]:
        """Return drafter, mode and reason as a lane does."""
        mode = drafting.speculation
        self.picked = "none"
        if mode == "none" or mode in self.failed:
            return NoDrafter(), "none", self.failed.get(mode)
        self.picked = mode
        if mode == "prompt-lookup":
            self._lookup = self._lookup or PromptLookup(drafting.max_ngram_size)
            return self._lookup, mode, None
        assert self.draft is not None, "this test has no draft"
        return DraftModel(self.draft, self._n_vocab, drafting.draft_p_min), mode, None

    def longest(self, drafting: DraftingSettings, limit: int) -> int:
        """Allow every length."""
        return limit

    def fail(self, reason: str, every_mode: bool = False) -> None:
        """Leave the drafter picked last, or every drafter, out."""
        for mode in SPECULATION_MODES if every_mode else (self.picked,):
            self.failed[mode] = reason


@dataclass(frozen=True)
class Plan:
    """One answer to be had from fakes."""

    prompt: Sequence[int]
    max_tokens: int = 40
    end_tokens: frozenset[int] = frozenset()
    seed: int = 0
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    drafting: DraftingSettings = field(default_factory=lambda: DraftingSettings(draft_p_min=0.0))
    stop_after: int | None = None
    """Number of the emitted token (from 1) at which `on_token` ends the answer, as a stop string does."""

    def with_mode(self, mode: SpeculationMode, max_draft_tokens: int | None = None) -> Plan:
        """Return the plan in another mode."""
        return replace(self, drafting=replace(self.drafting, speculation=mode, max_draft_tokens=max_draft_tokens))


@dataclass(frozen=True)
class Done:
    """An answer that is over."""

    tokens: tuple[int, ...]
    origins: tuple[TokenOrigin, ...]
    finish_reason: FinishReason | None
    stats: Stats
    decoder: Decoder


def answer(
    plan: Plan,
    target: FakeCache,
    drafters: FakeDrafters | None = None,
    settings: Callable[[int], StepSettings] | None = None,
) -> Done:
    """Decode one answer to its end. `settings` may give other settings by the number of tokens emitted so far."""
    emitted: list[tuple[int, TokenOrigin]] = []
    fixed = StepSettings(plan.sampling, plan.drafting)

    def on_token(token: int, origin: TokenOrigin) -> bool:
        emitted.append((token, origin))
        return len(emitted) == plan.stop_after

    task = Task(
        prompt=plan.prompt,
        max_tokens=plan.max_tokens,
        end_tokens=plan.end_tokens,
        seed=plan.seed,
        settings=lambda: settings(len(emitted)) if settings else fixed,
        on_token=on_token,
    )
    drafters = drafters or FakeDrafters()
    drafters.begin_answer()
    decoder = Decoder(target, drafters, task)
    for _ in decoder.prefill():
        pass
    while decoder.step():
        check_cache(decoder, target)
    target.check_rows()
    check_cache(decoder, target)
    return Done(
        tuple(token for token, _ in emitted),
        tuple(origin for _, origin in emitted),
        decoder.finish_reason,
        decoder.stats.snapshot(),
        decoder,
    )


def check_cache(decoder: Decoder, target: FakeCache) -> None:
    """Fail unless the target's cache holds what was committed, without the last token."""
    assert target.tokens == decoder.committed[:-1], "the target's cache is not what was committed"


def answer_at_random(plan: Plan, seed: int = 7, noise: float = 1.5, n_ctx: int = 4096) -> Done:
    """Answer on fresh caches of the random script `seed`; the draft is the script with noise."""
    script = random_script(seed, N_VOCAB)
    return answer(plan, FakeCache(script, n_ctx), FakeDrafters(FakeCache(blurred(script, noise), n_ctx)))


def assert_counts(done: Done) -> None:
    """Fail where counts do not add up or do not fit what was emitted."""
    stats, origins = done.stats, done.origins
    total = stats.num_accepted_tokens + stats.num_rejected_tokens + stats.num_ignored_tokens
    assert total == stats.num_draft_tokens
    assert min(stats.num_rejected_tokens, stats.num_ignored_tokens) >= 0
    assert stats.num_accepted_tokens == origins.count("accepted")
    assert stats.num_rejected_tokens == origins.count("recovered")
    assert stats.completion_tokens == len(done.tokens) == len(origins)
    assert (stats.acceptance_rate is None) == (stats.num_draft_tokens == 0)
    if stats.num_draft_tokens:
        assert stats.acceptance_rate == stats.num_accepted_tokens / stats.num_draft_tokens
    if stats.num_passes:
        assert stats.mean_acceptance_length == 1 + stats.num_accepted_tokens / stats.num_passes
    assert all(0 <= share <= 1 for share in stats.accepted_per_position)


def best_text(script: Script, prompt: Sequence[int], count: int) -> tuple[int, ...]:
    """Return what `script` writes greedily, without any engine."""
    text = list(prompt)
    for _ in range(count):
        text.append(int(script(text).argmax()))
    return tuple(text[len(prompt) :])
