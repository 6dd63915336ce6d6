"""How well guesses come true, by class of guess. Knows nothing about what is guessed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

MEMORY = 0.985
"""What is left of a guess after each later one of its class in an answer."""


@dataclass(frozen=True, slots=True)
class Record:
    """How guesses of one class fared: weighted hits and trials, a prior among them, and how many guesses there were."""

    hits: float
    trials: float
    seen: int = 0

    @property
    def rate(self) -> float:
        """The estimate."""
        return self.hits / self.trials

    def plus(self, hit: bool) -> Record:
        """Return the record with one more guess, the older ones weighing a little less."""
        return Record(MEMORY * self.hits + hit, MEMORY * self.trials + 1, self.seen + 1)


USUAL_WEIGHT = 12.0
"""What is usual weighs like so many guesses when an answer begins, and less with each that follows."""
ANSWER_WEIGHT, MOST_WEIGHT = 16.0, 80.0
"""An answer counts for at most so many guesses of a class in what is usual, all answers together for so many: a long
one that repeats itself must not speak for the others."""


class SuccessRates:
    """Running estimates of how often a guess comes true, by class of guess.

    An answer begins with what is usual (before the first, a prior), and forgets it slowly for what it sees itself.
    """

    def __init__(self, bounds: Sequence[float], priors: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._usual = [Record(8.0 * prior, 8.0) for prior in priors]
        self._begin()

    def begin_answer(self) -> None:
        """Let the last answer count among the usual, and begin another."""
        self._usual = list(self.records)
        self._begin()

    def _begin(self) -> None:
        self._now = [Record(USUAL_WEIGHT * usual.rate, USUAL_WEIGHT, usual.seen) for usual in self._usual]

    def _class(self, value: float) -> int:
        return bisect_right(self._bounds, value)

    def rate(self, value: float) -> float:
        """Return the estimate for guesses like `value` in this answer."""
        return self._now[self._class(value)].rate

    @property
    def rates(self) -> list[float]:
        """The estimates of all classes in this answer, the lowest values first."""
        return [record.rate for record in self._now]

    def observe(self, value: float, hit: bool) -> None:
        """Learn from one guess."""
        place = self._class(value)
        self._now[place] = self._now[place].plus(hit)

    @property
    def records(self) -> tuple[Record, ...]:
        """What is usual, class by class, this answer counted in."""
        return tuple(_with(usual, now) for usual, now in zip(self._usual, self._now, strict=True))

    def recall(self, records: Sequence[Record]) -> None:
        """Go on from what was known before; records of other classes than these are left alone."""
        if len(records) == len(self._usual):
            self._usual = list(records)
            self._begin()


def _with(usual: Record, answer: Record) -> Record:
    """Return `usual` with an answer counted in that began with it."""
    seen = answer.seen - usual.seen
    borrowed = USUAL_WEIGHT * MEMORY**seen
    hits, trials = answer.hits - borrowed * usual.rate, answer.trials - borrowed
    counted = min(1.0, ANSWER_WEIGHT / trials) if seen else 0.0
    total = usual.trials + counted * trials
    kept = min(1.0, MOST_WEIGHT / total)
    return Record(kept * (usual.hits + counted * min(trials, max(0.0, hits))), kept * total, answer.seen)
