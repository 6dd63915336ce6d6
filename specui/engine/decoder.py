"""The speculative loop: draft, one target pass, verify, cut to what was committed. Token ids only.

One loop for every mode; mode none is a drafter that proposes nothing. Settings are read anew at each step. Knows
nothing about text, templates, models or threads; whoever owns the caches supplies them with the drafters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from specui.config import DraftingSettings, SpeculationMode, StepSettings
from specui.engine.dice import Dice
from specui.engine.drafting import (
    AdaptiveLength,
    Drafter,
    Outcome,
    Proposal,
    TokenCache,
    evaluate,
    refill,
    rewind,
)
from specui.engine.sampling import Constraint, Logits
from specui.engine.stats import FinishReason, PlainPasses, StatsRecorder, StepRecord, TokenOrigin
from specui.engine.thinking import Thinking
from specui.engine.verification import EMPTY_DRAFT, Draft, Rules, Verdict, choose, verify
from specui.errors import DecodeError, PromptTooLongError, RollbackError

MIN_LAST_ROWS = 2
ABORTED = 2
"""llama.cpp's decode code for a pass that was cancelled."""


class DrafterSource(Protocol):
    """Gives the drafter for the settings of a step."""

    def pick(self, drafting: DraftingSettings) -> tuple[Drafter, SpeculationMode, str | None]:
        """Return the drafter, the mode it really is, and the reason where that is not the mode asked for."""
        ...

    def fail(self, reason: str, every_mode: bool = False) -> None:
        """Learn that the picked drafter, or drafting at all, cannot go on; it is not picked again in this answer."""
        ...

    def longest(self, drafting: DraftingSettings, limit: int) -> int:
        """Return the longest draft of at most `limit` tokens whose pass has a size that these settings allow."""
        ...


@runtime_checkable
class KnowingSource(DrafterSource, Protocol):
    """A source that also knows the machine: what passes cost on it, and which sizes of them are cheap."""

    plain: PlainPasses

    def padded(self, rows: int, most: int) -> int:
        """Return the size, `rows` to `most` rows, to which a pass over a draft is best padded."""
        ...

    def thinking(self) -> Thinking | None:
        """Return what mode auto goes by in this answer, or None where it is not in use."""
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """One answer: the prompt's ids, where it ends, and whom to tell.

    `settings` is called at each step. `on_token` gets every emitted token in order and returns True to end there.
    `constraint` says what may be written and is moved on with it.
    """

    prompt: Sequence[int]
    max_tokens: int
    end_tokens: frozenset[int]
    seed: int
    settings: Callable[[], StepSettings]
    on_token: Callable[[int, TokenOrigin], bool]
    constraint: Constraint | None = None


class Decoder:
    """Decodes one answer on a target cache. Call `prefill` to its end, then `step` until it returns False.

    Invariant between calls: the target's cache is the committed tokens without the last one.
    """

    def __init__(self, target: TokenCache, drafters: DrafterSource, task: Task) -> None:
        if not 0 < len(task.prompt) < target.n_ctx:
            raise PromptTooLongError(len(task.prompt) + 1, target.n_ctx)
        self.committed = list(task.prompt)
        self.finish_reason: FinishReason | None = None
        self.stats = StatsRecorder(prompt_tokens=len(task.prompt))
        self._knowing = drafters if isinstance(drafters, KnowingSource) else None
        if self._knowing is not None:
            self.stats.plain, self.stats.think = self._knowing.plain, self._knowing.thinking
        self._target = target
        self._drafters = drafters
        self._task = task
        self._dice = Dice(task.seed)
        self._adaptive: dict[SpeculationMode, AdaptiveLength] = {}
        self._emitted = 0

    def prefill(self) -> Iterator[int]:
        """Evaluate the prompt in both caches, yielding how many of its tokens are done; then emit the first token."""
        settings = self._task.settings()
        yield from self._prefill_target()
        started = time.perf_counter()
        token = choose(self._first_row(), self.committed, self._rules(settings))
        seconds = time.perf_counter() - started
        yield from self._prefill_drafter(settings)
        self.stats.first_token(seconds)
        self._emit_token(token, "target")

    def _rules(self, settings: StepSettings) -> Rules:
        return Rules(settings.sampling, self._dice, self._task.constraint)

    def _prefill_target(self) -> Iterator[int]:
        target, prompt = self._target, self._task.prompt
        started = time.perf_counter()
        # A prompt that is all there, with the logits behind it, starts from the same numbers as the first time.
        keep = rewind(target, prompt)
        if keep < len(prompt) or target.kept_row() is None:
            # The last pass has two rows at least: kernels round one row otherwise, and a retry should not differ.
            keep = rewind(target, prompt[: max(0, len(prompt) - MIN_LAST_ROWS)])
        self.stats.cached_prompt_tokens = keep
        done_before = 0
        for done in evaluate(target, prompt[keep:], rows=1):
            self.stats.prefill(done - done_before, time.perf_counter() - started)
            yield keep + done
            done_before, started = done, time.perf_counter()
        if done_before:
            target.keep_row()

    def _first_row(self) -> Logits:
        row = self._target.kept_row()
        return self._target.logits(0) if row is None else row

    def _prefill_drafter(self, settings: StepSettings) -> Iterator[int]:
        drafter = self._pick(settings)
        started = time.perf_counter()
        try:
            for _ in drafter.begin(self._task.prompt):
                self.stats.prefill(0, time.perf_counter() - started)
                yield len(self._task.prompt)
                started = time.perf_counter()
        except DecodeError as error:
            self._give_up(error)
        self.stats.prefill(0, time.perf_counter() - started)

    def step(self) -> bool:
        """Make one target pass and emit what it gives. Returns False when the answer is over."""
        if self.finish_reason is not None:
            return False
        if self._target.n_ctx - len(self._target.tokens) < 1:
            self.finish_reason = "length"
            self.stats.close_slice()
            return False
        settings = self._task.settings()
        drafter, used, length = self._pick(settings), self.stats.speculation_used, len(self.committed)
        # 1. Draft: as much as the caps, the room in the cache and the remaining tokens allow.
        t0 = time.perf_counter()
        draft = self._propose(drafter, settings)
        t1 = time.perf_counter()
        # 2. One target pass over the last committed token and the draft.
        draft, rows = self._decode(draft, self._rows(draft, settings))
        t2 = time.perf_counter()
        # 3. Verify; emit until an end.
        verdict = verify(draft, self._target.logits, self.committed, self._rules(settings))
        t3 = time.perf_counter()
        emitted = self._emit(draft, verdict)
        # 4. Cut both caches to what was committed, without its last token, which the next step evaluates.
        t4 = time.perf_counter()
        accepted = min(emitted, verdict.num_accepted)
        self._truncate(len(self.committed) - 1)
        t5 = time.perf_counter()
        verify_seconds = t2 - t1 + t5 - t4  # to cut some memories is to evaluate again
        drafter.accept(Outcome(length, draft, accepted, rows, t1 - t0, verify_seconds))
        t6 = time.perf_counter()
        rejected = int(verdict.last_origin == "recovered" and emitted > accepted)
        self._count(
            StepRecord(len(draft), accepted, rejected, emitted, t1 - t0, verify_seconds, t3 - t2 + t6 - t5, used)
        )
        return self.finish_reason is None

    def _rows(self, draft: Draft, settings: StepSettings) -> int:
        """Return the size of the pass: kernels work in fours, so that a longer pass may be the cheaper one."""
        rows = len(draft) + 1
        if self._knowing is None or not draft or settings.drafting.exact:
            return rows
        room = self._target.n_ctx - len(self._target.tokens)
        return self._knowing.padded(rows, min(room, self._target.max_rows))

    def _decode(self, draft: Draft, rows: int) -> tuple[Draft, int]:
        """Evaluate the last committed token and the draft in `rows` rows; what is behind the draft is cut off later.

        Return what was evaluated, and in how many rows: no draft where that failed.
        """
        tokens = [self.committed[-1], *draft.tokens]
        try:
            self._target.decode([*tokens, *tokens[-1:] * (rows - len(tokens))], rows)
        except DecodeError as error:
            if error.code == ABORTED or not draft:
                raise
            self._drafters.fail(str(error), every_mode=True)
        else:
            return draft, rows
        # A long pass found no room or memory; one row may. The memory may have been emptied.
        cached = self.committed[len(self._target.tokens) : -1]
        for _ in evaluate(self._target, cached, rows=0):
            pass
        self._target.decode(self.committed[-1:], rows=1)
        return EMPTY_DRAFT, 1

    def _pick(self, settings: StepSettings) -> Drafter:
        drafter, used, reason = self._drafters.pick(settings.drafting)
        stats = self.stats
        if used != stats.speculation_used:
            stats.close_slice()
        stats.speculation, stats.speculation_used = settings.drafting.speculation, used
        stats.speculation_off_reason = reason
        stats.max_draft_tokens = settings.drafting.draft_cap if used != "none" else 0
        return drafter

    def _propose(self, drafter: Drafter, settings: StepSettings) -> Draft:
        limit = self._limit(settings.drafting)
        if limit < 1:
            return EMPTY_DRAFT
        try:
            draft = drafter.propose(
                Proposal(self.committed, limit, settings.sampling, self._dice, self._task.constraint)
            )
        except DecodeError as error:
            self._give_up(error)
            return EMPTY_DRAFT
        return draft.first(self._drafters.longest(settings.drafting, len(draft)))

    def _give_up(self, error: DecodeError) -> None:
        """Go on without the drafter whose own decode failed; a cancelled decode ends the answer instead."""
        if error.code == ABORTED:
            raise error
        self._drafters.fail(str(error))

    def _limit(self, drafting: DraftingSettings) -> int:
        """Return the longest draft this step can use: k drafted tokens give at most k + 1."""
        mode = self.stats.speculation_used
        cap = drafting.draft_cap
        if not cap:
            return 0
        if drafting.adaptive_length:
            cap = min(cap, self._adaptive.setdefault(mode, AdaptiveLength()).length)
        remaining = self._task.max_tokens - self._emitted
        room = self._target.n_ctx - len(self._target.tokens)
        limit = min(cap, remaining - 1, room - 1, self._target.max_rows - 1)
        return self._drafters.longest(drafting, limit)

    def _truncate(self, length: int) -> None:
        """Cut the target's cache; where it cannot be cut, rebuild it and draft no more in this answer."""
        try:
            self._target.truncate(length)
        except RollbackError as error:
            refill(self._target, self._target.tokens[:length])
            self._drafters.fail(str(error), every_mode=True)

    def _emit(self, draft: Draft, verdict: Verdict) -> int:
        """Commit and tell tokens up to the first end; return how many."""
        for position in range(verdict.num_accepted):
            self._emit_token(draft.tokens[position], "accepted")
            if self.finish_reason is not None:
                return position + 1
        self._emit_token(verdict.last_token, verdict.last_origin)
        return verdict.num_accepted + 1

    def _emit_token(self, token: int, origin: TokenOrigin) -> None:
        self.committed.append(token)
        self._emitted += 1
        if self._task.constraint is not None:
            self._task.constraint.push(token)
        if self._task.on_token(token, origin) or token in self._task.end_tokens:
            self.finish_reason = "stop"
        elif self._emitted >= self._task.max_tokens:
            self.finish_reason = "length"

    def _count(self, record: StepRecord) -> None:
        self.stats.step(record)
        if record.speculation_used in self._adaptive:
            adaptive = self._adaptive[record.speculation_used]
            adaptive.update(record.draft_tokens, record.accepted, self.stats.max_draft_tokens)
        if self.finish_reason is not None:
            self.stats.close_slice()
