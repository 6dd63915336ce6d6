"""Whose turn it is: one engine step at a time, never two at once, the next for the lane that has computed the least.

Every lane so meets the same machine at the same moments: what disturbs one disturbs the others alike. Knows nothing
about what a step is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Stepped(Protocol):
    """Something that is run step by step and measures its own time."""

    @property
    def compute_seconds(self) -> float:
        """The time its steps have taken so far."""
        ...

    def advance(self) -> bool:
        """Make one step. Returns False when that was the last."""
        ...


def take_turns(lanes: Sequence[Stepped], go_on: Callable[[], bool]) -> None:
    """Step `lanes` until all are over, or until `go_on`, asked after each step, returns False.

    Of lanes that have computed as much, the first in the sequence goes first.
    """
    running = list(lanes)
    while running:
        lane = min(running, key=lambda each: each.compute_seconds)
        if not lane.advance():
            running.remove(lane)
        if not go_on():
            return


def rotated(items: Sequence[T], by: int) -> tuple[T, ...]:
    """Return the items with number `by` first, counted around."""
    first = by % len(items)
    return (*items[first:], *items[:first])
