"""How well guesses come true, by class of guess. Knows nothing about what is guessed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


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
        return Record(0.985 * self.hits + hit, 0.985 * self.trials + 1, self.seen + 1)


class SuccessRates:
    """Running estimates of how often a guess comes true, by class of guess, with a prior and slow forgetting."""

    def __init__(self, bounds: Sequence[float], priors: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._records = [Record(8.0 * prior, 8.0) for prior in priors]

    def _class(self, value: float) -> int:
        return bisect_right(self._bounds, value)

    def rate(self, value: float) -> float:
        """Return the estimate for guesses like `value`."""
        return self._records[self._class(value)].rate

    def observe(self, value: float, hit: bool) -> None:
        """Learn from one guess."""
        place = self._class(value)
        self._records[place] = self._records[place].plus(hit)

    @property
    def records(self) -> tuple[Record, ...]:
        """What is known, class by class, the lowest values first."""
        return tuple(self._records)

    def recall(self, records: Sequence[Record]) -> None:
        """Go on from what was known before; records of other classes than these are left alone."""
        if len(records) == len(self._records):
            self._records = list(records)
