"""Random numbers by place: the same seed gives the same number for the same use at the same place in the text.

A generator that is drawn from in turn would hand out other numbers as soon as a draft is longer, later or absent. Here
nothing depends on how often was drawn before, so a seed reproduces an answer in every mode. Knows numpy only.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

Use = Literal["token", "draft", "accept", "residual"]
"""What a number is for; numbers of different uses are independent."""

FEW = 32
"""So few tokens are drawn from one by one, which takes less time than calls of numpy do."""

_USES: dict[Use, int] = {"token": 1, "draft": 2, "accept": 3, "residual": 4}
_MASK = 2**64 - 1
_STEP = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def _mix(value: int) -> int:
    """Return 64 well-mixed bits (the output function of SplitMix64; Steele, Lea and Flood 2014)."""
    return _stir((value + _STEP) & _MASK)


def _stir(value: int) -> int:
    value = ((value ^ (value >> 30)) * _FIRST) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND) & _MASK
    return value ^ (value >> 31)


class Dice:
    """All random numbers of one answer."""

    def __init__(self, seed: int) -> None:
        self._state = _mix(seed & _MASK) ^ _mix(seed >> 64)

    def uniform(self, use: Use, place: int) -> float:
        """Return a number in (0, 1) for the token at `place` of the text."""
        return ((_mix(self._key(use, place)) >> 11) + 0.5) / 2**53

    def waits(self, use: Use, place: int, ids: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """Return one exponential number [n] for each token id [n] that could stand at `place`.

        The token with the least wait / probability is a draw from the probabilities (an exponential race, which is the
        Gumbel-max trick). Two distributions that race with the same waits mostly draw the same token.
        """
        with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is what is wanted
            value = np.uint64(self._key(use, place)) + (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(_STEP)
            value = (value ^ (value >> np.uint64(30))) * np.uint64(_FIRST)
            value = (value ^ (value >> np.uint64(27))) * np.uint64(_SECOND)
            value ^= value >> np.uint64(31)
        waits: npt.NDArray[np.float64] = -np.log(((value >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53)
        return waits

    def first(self, use: Use, place: int, ids: npt.NDArray[np.intp], probs: npt.NDArray[np.float64]) -> int:
        """Return which of the `ids` [n] that could stand at `place` is drawn from their `probs` [n]: its index."""
        if len(ids) > FEW:
            with np.errstate(divide="ignore", over="ignore"):  # a token of no probability waits for ever
                return int(np.argmin(self.waits(use, place, ids) / probs))
        key = self._key(use, place)
        best, first = math.inf, 0
        for index, (token, prob) in enumerate(zip(ids.tolist(), probs.tolist(), strict=True)):
            value = _stir((key + (token + 1) * _STEP) & _MASK)
            wait = -math.log(((value >> 11) + 0.5) / 2**53) / prob if prob else math.inf
            if wait < best:
                best, first = wait, index
        return first

    def _key(self, use: Use, place: int) -> int:
        return _mix(_mix(self._state + _USES[use]) + place)
