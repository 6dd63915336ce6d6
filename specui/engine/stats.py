"""Counts and times of one answer: what was drafted, accepted and emitted, and how long the computing took.

Time is compute time: a clock that runs only while the engine drafts, verifies and samples, so that queues, pages and
downloads are in no figure. Prefill (prompt processing) and decode (generation) are never mixed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from specui.config import SpeculationMode

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


@dataclass(frozen=True, slots=True)
class Stats:
    """The figures of one answer so far. Names are the contract of CLI, JSON and page; None: nothing was measured."""

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
    translation: TranslationCounts | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for JSON; the reason stands only where asked and done differ, translation where it was."""
        values = asdict(self)
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


@dataclass(slots=True)
class StatsRecorder:
    """Collects one answer's steps. Written by the engine's thread only; `snapshot` gives an immutable copy."""

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    speculation: SpeculationMode = "none"
    speculation_used: SpeculationMode = "none"
    speculation_off_reason: str | None = None
    max_draft_tokens: int = 0
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

    def prefill(self, tokens: int, seconds: float) -> None:
        """Count `tokens` of the prompt evaluated by the target in `seconds` (0 tokens for the draft's own prefill)."""
        self._evaluated += tokens
        self._prefill_seconds += seconds

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
        self._count_positions(record.accepted, record.accepted + record.rejected)
        self._count_slice(record)

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
            self.close_slice()

    def close_slice(self) -> None:
        """End the running slice of the strip chart; the loop calls it when the mode changes and at the end."""
        part = self._slice
        if part.tokens and part.seconds > 0:
            rate = part.accepted / part.drafted if part.drafted else None
            point = RatePoint(self._decode_seconds, part.tokens / part.seconds, rate, self.speculation_used)
            self.rates.append(point)
        self._slice = _Slice()

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
        )
