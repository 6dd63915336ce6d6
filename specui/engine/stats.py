"""Counts and times of one answer: what was drafted, accepted and emitted, and how long the computing took.

Time is compute time: a clock that runs only while the engine drafts, verifies and samples, so that queues, pages and
downloads are in no figure. Prefill (prompt processing) and decode (generation) are never mixed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from specui.config import SpeculationMode
from specui.engine.thinking import Thinking

TokenOrigin = Literal["target", "accepted", "recovered", "bonus"]
FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One target pass and what came of it. accepted + rejected + ignored = draft_tokens; seconds are compute time."""

    draft_tokens: int
    accepted: int
    rejected: int
    emitted: int
    draft_seconds: float
    verify_seconds: float
    sample_seconds: float
    speculation_used: SpeculationMode

    @property
    def ignored(self) -> int:
        """Drafted tokens behind the first rejection or behind a stop."""
        return self.draft_tokens - self.accepted - self.rejected

    @property
    def seconds(self) -> float:
        """Compute time of the whole step."""
        return self.draft_seconds + self.verify_seconds + self.sample_seconds


@dataclass(frozen=True, slots=True)
class RatePoint:
    """Decode speed over one slice of compute time, for the strip chart."""

    decode_seconds: float
    tokens_per_second: float
    acceptance_rate: float | None
    speculation_used: SpeculationMode


@dataclass(frozen=True, slots=True)
class TranslationCounts:
    """What translation came to in one answer; a dropped text is one the draft wrote and no id was proposed of."""

    draft_tokens_written: int = 0
    target_tokens_proposed: int = 0
    texts_dropped: int = 0

    def plus(self, written: int, proposed: int) -> TranslationCounts:
        """Return the counts with one more draft in them."""
        dropped = int(written > 0 and not proposed)
        return TranslationCounts(
            self.draft_tokens_written + written, self.target_tokens_proposed + proposed, self.texts_dropped + dropped
        )


class PlainPasses:
    """What a target pass without a draft takes at present, in seconds. Outlives an answer; None: never measured."""

    def __init__(self) -> None:
        self.seconds: float | None = None

    def observe(self, seconds: float) -> None:
        """Learn from one pass; a single slow one moves it little."""
        known = self.seconds
        self.seconds = seconds if known is None else known + 0.1 * (min(seconds, 2 * known) - known)


@dataclass(frozen=True, slots=True)
class Stats:
    """The figures of one answer so far. Names are the contract of CLI, JSON and page; None: nothing was measured.

    `estimated_speedup_vs_none`: decode speed of this answer against what plain passes cost here, which is an estimate
    where `compare` measures. `thinking` is for the page and in no JSON.
    """

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    completion_tokens: int = 0
    num_passes: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_rejected_tokens: int = 0
    num_ignored_tokens: int = 0
    acceptance_rate: float | None = None
    mean_acceptance_length: float | None = None
    accepted_per_position: tuple[float, ...] = ()
    time_to_first_token_seconds: float | None = None
    prefill_seconds: float = 0.0
    prefill_tokens_per_second: float | None = None
    decode_seconds: float = 0.0
    decode_tokens_per_second: float | None = None
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    sample_seconds: float = 0.0
    max_draft_tokens: int = 0
    speculation: SpeculationMode = "none"
    speculation_used: SpeculationMode = "none"
    speculation_off_reason: str | None = None
    estimated_speedup_vs_none: float | None = None
    translation: TranslationCounts | None = None
    thinking: Thinking | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for JSON; the reason stands only where asked and done differ, translation where it was."""
        values = asdict(replace(self, thinking=None))
        del values["thinking"]
        values["accepted_per_position"] = list(self.accepted_per_position)
        if self.translation is None:
            del values["translation"]
        if self.speculation == self.speculation_used:
            del values["speculation_off_reason"]
        return values


@dataclass(slots=True)
class _Slice:
    """The slice of compute time that is being filled."""

    seconds: float = 0.0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0


SLICE_SECONDS = 0.25
"""Length of one slice of the strip chart, in compute time."""

FEWEST_PLAIN_PASSES = 8
"""An answer with so many passes without a draft tells by itself what those cost."""
FEWEST_TOKENS = 32
"""A shorter answer is too short for an estimate of the speed-up."""
THINKING_SECONDS = 0.5
"""How old the shown thinking of mode auto may be."""


@dataclass(slots=True)
class StatsRecorder:
    """Collects one answer's steps. Written by the engine's thread only; `snapshot` gives an immutable copy."""

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    speculation: SpeculationMode = "none"
    speculation_used: SpeculationMode = "none"
    speculation_off_reason: str | None = None
    max_draft_tokens: int = 0
    plain: PlainPasses = field(default_factory=PlainPasses)
    think: Callable[[], Thinking | None] = lambda: None
    rates: list[RatePoint] = field(default_factory=list)
    _evaluated: int = 0
    _prefill_seconds: float = 0.0
    _first_token_seconds: float | None = None
    _decode_seconds: float = 0.0
    _emitted: int = 0
    _passes: int = 0
    _drafts: int = 0
    _drafted: int = 0
    _accepted: int = 0
    _rejected: int = 0
    _draft_seconds: float = 0.0
    _verify_seconds: float = 0.0
    _sample_seconds: float = 0.0
    _reached_at: list[int] = field(default_factory=list)
    _accepted_at: list[int] = field(default_factory=list)
    _slice: _Slice = field(default_factory=_Slice)
    _plain_passes: int = 0
    _plain_seconds: float = 0.0
    _speculative_passes: int = 0
    _thinking: Thinking | None = None
    _thinking_until: float = 0.0

    def prefill(self, tokens: int, seconds: float) -> None:
        """Count `tokens` of the prompt evaluated by the target in `seconds` (0 tokens for the draft's own prefill)."""
        self._evaluated += tokens
        self._prefill_seconds += seconds

    @property
    def compute_seconds(self) -> float:
        """What the answer has cost so far: prefill and decode."""
        return self._prefill_seconds + self._decode_seconds

    def first_token(self, sample_seconds: float) -> None:
        """Count the token that the prefill's last row gives."""
        self._first_token_seconds = self._prefill_seconds + sample_seconds
        self._emitted = 1

    def step(self, record: StepRecord) -> None:
        """Count one target pass."""
        self._passes += 1
        self._emitted += record.emitted
        self._drafts += record.draft_tokens > 0
        self._drafted += record.draft_tokens
        self._accepted += record.accepted
        self._rejected += record.rejected
        self._draft_seconds += record.draft_seconds
        self._verify_seconds += record.verify_seconds
        self._sample_seconds += record.sample_seconds
        self._decode_seconds += record.seconds
        self.speculation_used = record.speculation_used
        self._count_plain(record)
        self._count_positions(record.accepted, record.accepted + record.rejected)
        self._count_slice(record)

    def _count_plain(self, record: StepRecord) -> None:
        self._speculative_passes += record.speculation_used != "none"
        if not record.draft_tokens:
            self._plain_passes += 1
            self._plain_seconds += record.verify_seconds
            self.plain.observe(record.verify_seconds)

    def _count_positions(self, accepted: int, reached: int) -> None:
        while len(self._reached_at) < reached:
            self._reached_at.append(0)
            self._accepted_at.append(0)
        for position in range(reached):
            self._reached_at[position] += 1
            self._accepted_at[position] += position < accepted

    def _count_slice(self, record: StepRecord) -> None:
        part = self._slice
        part.seconds += record.seconds
        part.tokens += record.emitted
        part.drafted += record.draft_tokens
        part.accepted += record.accepted
        if part.seconds >= SLICE_SECONDS:
            self._end_slice()

    def close_slice(self) -> None:
        """End the running slice of the strip chart; the loop calls it when the mode changes and at the end."""
        self._end_slice()
        self._thinking_until = 0.0

    def _end_slice(self) -> None:
        part = self._slice
        if part.tokens and part.seconds > 0:
            rate = part.accepted / part.drafted if part.drafted else None
            point = RatePoint(self._decode_seconds, part.tokens / part.seconds, rate, self.speculation_used)
            self.rates.append(point)
        self._slice = _Slice()

    def _speedup(self) -> float | None:
        """Return this answer's decode speed against that of passes of one row, if both are known."""
        own = self._plain_passes >= FEWEST_PLAIN_PASSES
        plain = self._plain_seconds / self._plain_passes if own else self.plain.seconds
        if plain is None or not self._speculative_passes or self._emitted < FEWEST_TOKENS or self._decode_seconds <= 0:
            return None
        # A token is drawn once in every mode; only its share of the passes and the drafting differ.
        return (plain * (self._emitted - 1) + self._sample_seconds) / self._decode_seconds

    def _recent_thinking(self) -> Thinking | None:
        now = time.monotonic()
        if now >= self._thinking_until:
            self._thinking, self._thinking_until = self.think(), now + THINKING_SECONDS
        return self._thinking

    def snapshot(self) -> Stats:
        """Return the figures so far."""
        decoded = self._emitted - 1
        prefill, decode = self._prefill_seconds, self._decode_seconds
        return Stats(
            prompt_tokens=self.prompt_tokens,
            cached_prompt_tokens=self.cached_prompt_tokens,
            completion_tokens=self._emitted,
            num_passes=self._passes,
            num_drafts=self._drafts,
            num_draft_tokens=self._drafted,
            num_accepted_tokens=self._accepted,
            num_rejected_tokens=self._rejected,
            num_ignored_tokens=self._drafted - self._accepted - self._rejected,
            acceptance_rate=self._accepted / self._drafted if self._drafted else None,
            mean_acceptance_length=1 + self._accepted / self._passes if self._passes else None,
            accepted_per_position=tuple(
                hit / reached for hit, reached in zip(self._accepted_at, self._reached_at, strict=True)
            ),
            time_to_first_token_seconds=self._first_token_seconds,
            prefill_seconds=prefill,
            prefill_tokens_per_second=self._evaluated / prefill if self._evaluated and prefill > 0 else None,
            decode_seconds=decode,
            decode_tokens_per_second=decoded / decode if decoded > 0 and decode > 0 else None,
            draft_seconds=self._draft_seconds,
            verify_seconds=self._verify_seconds,
            sample_seconds=self._sample_seconds,
            max_draft_tokens=self.max_draft_tokens,
            speculation=self.speculation,
            speculation_used=self.speculation_used,
            speculation_off_reason=self.speculation_off_reason,
            estimated_speedup_vs_none=self._speedup(),
            thinking=self._recent_thinking(),
        )
