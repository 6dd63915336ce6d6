"""Verification: which drafted tokens the target keeps, and the one token it adds.

The words, for a draft of k tokens judged on k + 1 rows of the target's logits:

* accepted: drafted tokens the target keeps, from the first on;
* recovered: the target's own choice where it rejects one (everything behind is ignored);
* bonus: the free token of the last row after a fully accepted draft.

Exact for greedy and for sampling: the emitted tokens are distributed as the target alone would write them.

A draft with probabilities is judged by the rule of Leviathan et al. 2023, Algorithm 1, and Chen et al. 2023,
Algorithm 2, which agree: keep token x with probability min(1, target_probs[x] / draft_probs[x]), else draw from
norm(max(0, target_probs - draft_probs)). It keeps sum(min(target_probs, draft_probs)) of all drafts, the most possible.

A draft without probabilities is one-hot. For it the rule says: keep x with probability target_probs[x], else draw from
the others. Drawing the target's own token and keeping x where it is that token is the same thing, and the draw is then
the one that no draft at all would have led to: with one seed the text does not depend on the drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specui.config import SamplingSettings
from specui.engine.dice import Dice
from specui.engine.sampling import Constraint, Distribution, Logits, best_token, distribution
from specui.engine.stats import TokenOrigin


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens [k] and what each was drawn from [k]; None: without probabilities, that is one-hot."""

    tokens: Sequence[int] = ()
    distributions: Sequence[Distribution] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def first(self, count: int) -> Draft:
        """Return the draft's first `count` tokens."""
        if count >= len(self):
            return self
        return Draft(self.tokens[:count], self.distributions[:count] if self.distributions is not None else None)


EMPTY_DRAFT = Draft()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome: the first `num_accepted` drafted tokens, then `last_token` with its origin."""

    num_accepted: int
    last_token: int
    last_origin: TokenOrigin


class Window:
    """The last tokens that penalties look at, for each position of a draft.

    Position i sees what was committed and draft[:i]; nothing else is ever looked at, so a rejected token leaves no
    trace. Empty when no penalty is set.
    """

    def __init__(self, committed: Sequence[int], draft: Sequence[int], settings: SamplingSettings) -> None:
        self._size = settings.repeat_last_n if settings.penalised else 0
        self._start = min(self._size, len(committed))
        self._tokens = [*committed[len(committed) - self._start :], *draft] if self._size else []

    def at(self, position: int) -> Sequence[int]:
        """Return the window in front of draft position `position`."""
        end = self._start + position
        return self._tokens[max(0, end - self._size) : end]


@dataclass(frozen=True, slots=True)
class Rules:
    """How tokens are chosen in a step: sampling settings, random numbers, and a constraint if there is one."""

    sampling: SamplingSettings
    dice: Dice
    constraint: Constraint | None = None

    def target(self, row: Logits, recent: Sequence[int]) -> Distribution:
        """Return what the target's token is drawn from (greedy: its one token)."""
        return distribution(row, recent, self.sampling, self.constraint)

    def own(self, row: Logits, recent: Sequence[int], place: int) -> int:
        """Return the target's own token for `place` of the text: the best one, or a draw."""
        if self.sampling.greedy:
            return best_token(row, recent, self.sampling, self.constraint)
        return self.target(row, recent).draw(self.dice, "token", place)

    def ahead(self, draft: Draft) -> Rules:
        """Return rules whose constraint may be moved on over the draft."""
        if self.constraint is None or not draft:
            return self
        return Rules(self.sampling, self.dice, self.constraint.fork())

    def push(self, token: int) -> None:
        """Move the constraint on over a token."""
        if self.constraint is not None:
            self.constraint.push(token)


def verify(draft: Draft, logits: Callable[[int], Logits], committed: Sequence[int], rules: Rules) -> Verdict:
    """Judge `draft` (k tokens) on rows 0..k of the target's `logits`; rows behind a rejection are never read."""
    window, rules = Window(committed, draft.tokens, rules.sampling), rules.ahead(draft)
    place, k = len(committed), len(draft)
    for position, token in enumerate(draft.tokens):
        row, recent = logits(position), window.at(position)
        if draft.distributions is None:
            kept = rules.own(row, recent, place + position)
        else:
            kept = _judge(token, draft.distributions[position], rules.target(row, recent), place + position, rules.dice)
        if kept != token:
            return Verdict(position, kept, "recovered")
        rules.push(token)
    return Verdict(k, rules.own(logits(k), window.at(k), place + k), "bonus" if k else "target")


def choose(row: Logits, committed: Sequence[int], rules: Rules) -> int:
    """Return the target's own next token behind `committed`: the best one, or a draw."""
    recent = Window(committed, (), rules.sampling).at(0)
    return rules.own(row, recent, len(committed))


def _judge(token: int, draft_probs: Distribution, target_probs: Distribution, place: int, dice: Dice) -> int:
    """Return a drafted `token` where it is accepted, else the token that takes its place."""
    if dice.uniform("accept", place) * draft_probs.prob(token) < target_probs.prob(token):
        return token
    return target_probs.without(draft_probs).draw(dice, "residual", place)
