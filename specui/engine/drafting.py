"""Drafters: what proposes tokens for the target to verify.

`NoDrafter` proposes nothing, `DraftModel` asks a small model; `lookup.py` has the one that copies. Knows token ids and
a cache to decode with; nothing about the target, its logits, or text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from specui.config import SamplingSettings
from specui.engine.dice import Dice
from specui.engine.sampling import Constraint, Distribution, Logits, best_token, distribution, top_probability
from specui.engine.verification import EMPTY_DRAFT, Draft, Window
from specui.errors import RollbackError


class TokenCache(Protocol):
    """The part of `llama.Context` that the loop and the drafters use."""

    n_ctx: int
    n_batch: int
    max_rows: int
    tokens: list[int]

    def decode(self, tokens: Sequence[int], rows: int) -> None: ...
    def logits(self, row: int) -> Logits: ...
    def truncate(self, length: int) -> None: ...
    def clear(self) -> None: ...
    def keep_row(self) -> None: ...
    def kept_row(self) -> Logits | None: ...


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a drafter is asked: a draft of at most `limit` tokens to follow `committed`.

    A draft that breaks `constraint` is not wrong, only in vain.
    """

    committed: Sequence[int]
    limit: int
    sampling: SamplingSettings
    dice: Dice
    constraint: Constraint | None = None

    def at_most(self, limit: int) -> Proposal:
        """Return the same for drafts of at most `limit` tokens."""
        return replace(self, limit=min(limit, self.limit))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a draft behind `length` committed tokens, and what the step cost in seconds of compute.

    `rows` is the size of the target pass.
    """

    length: int
    draft: Draft
    num_accepted: int
    rows: int
    draft_seconds: float
    verify_seconds: float


class Drafter(Protocol):
    """What proposes draft tokens and is told the outcome."""

    def begin(self, prompt: Sequence[int]) -> Iterator[int]:
        """Read a new prompt, yielding now and then how many of its tokens are done."""
        ...

    def propose(self, proposal: Proposal) -> Draft:
        """Return at most `proposal.limit` tokens; an empty draft makes a plain step."""
        ...

    def accept(self, outcome: Outcome) -> None:
        """Learn what the target made of the last draft."""
        ...


class NoDrafter:
    """Mode none: proposes nothing, which makes the speculative loop plain decoding."""

    def begin(self, prompt: Sequence[int]) -> Iterator[int]:
        """Nothing to read."""
        return iter(())

    def propose(self, proposal: Proposal) -> Draft:
        """Return an empty draft."""
        return EMPTY_DRAFT

    def accept(self, outcome: Outcome) -> None:
        """Nothing to learn."""


Take = Literal["leave", "last", "go-on"]
"""What to do with a drafted token: leave it out and end, take it and end, take it and draft another."""


@dataclass(frozen=True, slots=True)
class Guess:
    """The draft model's next token as a judge sees it: its best token with its probability, at a draft position."""

    position: int
    token: int
    probability: float
    limit: int


Judge = Callable[[Guess], Take]


class DraftModel:
    """A small model that writes the draft token by token (Leviathan et al. 2023; Chen et al. 2023).

    Its cache decodes each committed token once: what the target accepted is there already, what it rejected is cut off.
    A draft ends early where the model's best token has less than `p_min` probability. Ids from the target's `n_vocab`
    on (a padded vocabulary) are never proposed.

    `coupled`: sampled drafts are drawn with the numbers that the target's own tokens are drawn with, and handed over
    without probabilities (Daliri et al. 2024, "Coupling without communication and drafter-invariant speculative
    decoding", Algorithm 1). Fewer are kept than the rejection rule keeps, but the text no longer depends on the drafts.
    """

    def __init__(self, cache: TokenCache, n_vocab: int, p_min: float = 0.0, coupled: bool = False) -> None:
        self._cache = cache
        self._n_vocab = n_vocab
        self._p_min = p_min
        self._coupled = coupled
        self.rows_decoded = 0
        """Rows that the last proposal decoded, one after the other."""
        self.rows_caught_up = 0
        """Committed tokens that the last proposal read first."""
        self.catch_up_seconds = 0.0
        """What that took, guesses at them included."""
        self.watch: Callable[[float, bool], None] | None = None
        """Told of guesses at tokens that were read: the confidence in the best token, and whether it was right."""

    def begin(self, prompt: Sequence[int]) -> Iterator[int]:
        """Evaluate all of the prompt but its last token, which the first proposal evaluates with what follows."""
        if len(prompt) > self._cache.n_ctx:
            return
        keep = rewind(self._cache, prompt[:-1])
        for done in evaluate(self._cache, prompt[keep:-1], rows=0):
            yield keep + done

    def behind(self, committed: Sequence[int]) -> int:
        """Cut the cache to what it shares with `committed`; return how many tokens it lacks."""
        return len(committed) - rewind(self._cache, committed[:-1])

    def propose(self, proposal: Proposal, judge: Judge | None = None) -> Draft:
        """Return a draft with the distributions it was drawn from (greedy, coupled: without); `judge` may end it."""
        committed, cache = proposal.committed, self._cache
        self.rows_decoded = self.rows_caught_up = 0
        self.catch_up_seconds = 0.0
        limit = min(proposal.limit, cache.n_ctx - len(committed))
        if limit < 1:
            return EMPTY_DRAFT
        started = time.perf_counter()
        last_row = self._catch_up(committed)
        self.catch_up_seconds = time.perf_counter() - started
        if judge is None and self._p_min > 0:
            judge = self._judge_by_p_min
        return self._write(proposal, limit, judge, last_row)

    def _catch_up(self, committed: Sequence[int]) -> int:
        """Read what was committed; return the row with the logits behind it."""
        cache = self._cache
        keep = rewind(cache, committed[:-1])
        missing = len(committed) - keep
        last_part = (missing - 1) % cache.n_batch + 1
        rows = 1 if self.watch is None else min(last_part, cache.max_rows)
        for _ in evaluate(cache, committed[keep:], rows):
            pass
        self.rows_caught_up = missing
        if self.watch is not None:
            for row, token in enumerate(committed[len(committed) - rows + 1 :]):
                guess = _guess(cache.logits(row)[: self._n_vocab], 0, 1)
                self.watch(guess.probability, guess.token == token)
        return rows - 1

    def _judge_by_p_min(self, guess: Guess) -> Take:
        return "leave" if guess.probability < self._p_min else "go-on"

    def _write(self, proposal: Proposal, limit: int, judge: Judge | None, last_row: int) -> Draft:
        tokens: list[int] = []
        distributions: list[Distribution] = []
        sampling = proposal.sampling
        constraint = proposal.constraint.fork() if proposal.constraint is not None else None
        while True:
            row = self._cache.logits(0 if tokens else last_row)[: self._n_vocab]
            take = judge(_guess(row, len(tokens), limit)) if judge else "go-on"
            if take == "leave":
                break
            recent = Window(proposal.committed, tokens, sampling).at(len(tokens))
            if sampling.greedy:
                tokens.append(best_token(row, recent, sampling, constraint))
            else:
                place = len(proposal.committed) + len(tokens)
                distributions.append(distribution(row, recent, sampling, constraint))
                tokens.append(distributions[-1].draw(proposal.dice, "token" if self._coupled else "draft", place))
            if constraint is not None:
                constraint.push(tokens[-1])
            if take == "last" or len(tokens) == limit:
                break
            self._cache.decode(tokens[-1:], rows=1)
            self.rows_decoded += 1
        return Draft(tokens, None if sampling.greedy or self._coupled else distributions)

    def accept(self, outcome: Outcome) -> None:
        """Cut the cache to what was committed; the last token is evaluated by the next proposal."""
        keep = outcome.length + outcome.num_accepted
        if keep < len(self._cache.tokens):
            truncate_or_clear(self._cache, keep)


def _guess(row: Logits, position: int, limit: int) -> Guess:
    token = int(row.argmax())
    return Guess(position, token, top_probability(row), limit)


class AdaptiveLength:
    """The classic adaptive draft length of Hugging Face assisted generation: +2 when all were accepted, else -1."""

    def __init__(self, start: int = 5) -> None:
        self.length = start

    def update(self, drafted: int, accepted: int, cap: int) -> None:
        """Learn from one draft; `cap` is the longest length allowed."""
        if drafted:
            step = 2 if accepted == drafted else -1
            self.length = min(cap, max(1, self.length + step))


def rewind(cache: TokenCache, tokens: Sequence[int]) -> int:
    """Cut `cache` to its longest common prefix with `tokens` and return what is kept (0 where it cannot be cut)."""
    truncate_or_clear(cache, common_prefix(cache.tokens, tokens))
    return len(cache.tokens)


def truncate_or_clear(cache: TokenCache, length: int) -> None:
    """Cut `cache` to `length` tokens; a memory that cannot drop its tail is emptied, to be filled anew."""
    try:
        cache.truncate(length)
    except RollbackError:
        cache.clear()


def refill(cache: TokenCache, tokens: Sequence[int]) -> None:
    """Make `cache` hold `tokens` and nothing else, evaluated anew."""
    cache.clear()
    for _ in evaluate(cache, tokens, rows=0):
        pass


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Return the length of the longest common prefix."""
    length = min(len(left), len(right))
    if left[:length] == right[:length]:
        return length
    return next((i for i in range(length) if left[i] != right[i]), length)  # a list never equals a tuple


def evaluate(cache: TokenCache, tokens: Sequence[int], rows: int) -> Iterator[int]:
    """Decode `tokens` in batches, with `rows` rows of logits for the last batch; yield how many are done."""
    for start in range(0, len(tokens), cache.n_batch):
        part = tokens[start : start + cache.n_batch]
        last = start + len(part) == len(tokens)
        cache.decode(part, rows if last else 0)
        yield start + len(part)
