"""How the tail of a model's memory is dropped, for each kind of memory that llama.cpp has.

Attention is cut. A recurrent state cannot be: it goes back to one of the last snapshots that llama.cpp keeps of it, or
to a copy made here, from which the kept tokens are evaluated again. Knows lengths and bytes; no tokens, no llama.cpp.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

Buffer = npt.NDArray[np.uint8]
RollbackKind = Literal["cut", "snapshots", "checkpoint", "none"]

UNSAVED = "llama.cpp cannot save this model's state, so rejected tokens could not be dropped"


@dataclass(frozen=True, slots=True)
class Rollback:
    """How the last tokens are dropped; `reason` says why kind none cannot."""

    kind: RollbackKind
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known of a memory when it is made.

    `recurrent`: it holds a state that cannot be cut. `snapshots`: how many states llama.cpp keeps of it. `window`: how
    far back sliding layers look, 0 without such. `drafting`: rows come one at a time and several are dropped at once.
    """

    recurrent: bool
    snapshots: int = 0
    window: int = 0
    drafting: bool = False


class Cells(Protocol):
    """The part of llama.cpp's memory that is used here."""

    def cut(self, length: int) -> bool:
        """Drop all positions from `length` on; False where that cannot be."""
        ...

    def first(self) -> int:
        """Return the earliest position that every attention layer still holds."""
        ...

    def clear(self) -> None: ...

    def state_bytes(self) -> int:
        """Return how long the recurrent state is, written out."""
        ...

    def save(self, buffer: Buffer) -> bool: ...
    def restore(self, buffer: Buffer) -> bool: ...


class _Copy:
    """A copy of the recurrent state behind `length` tokens, in a buffer that is used again."""

    def __init__(self) -> None:
        self.length: int | None = None
        self.buffer: Buffer = np.empty(0, np.uint8)

    def take(self, cells: Cells, length: int) -> bool:
        self.length = None
        size = cells.state_bytes()
        if len(self.buffer) != size:
            self.buffer = np.empty(size, np.uint8)
        if size == 0 or not cells.save(self.buffer):
            return False
        self.length = length
        return True


class Memory:
    """Drops the tail of one memory. Told of every pass; says how many tokens are left after each cut.

    It keeps two copies at most: from before the last pass that may be taken back, and where `anchor` was called.
    """

    def __init__(self, cells: Cells, plan: Plan) -> None:
        self._cells = cells
        self._plan = plan
        self._before = _Copy()
        self._anchor = _Copy()
        self._pass_start = 0
        self._snapshots_left = 0
        self._due = True
        self.seconds = 0.0
        """Seconds spent on copies so far, made and put back."""
        kind: RollbackKind = "cut"
        if plan.recurrent:
            kind = "snapshots" if plan.snapshots else "checkpoint"
        self.rollback = Rollback(kind)

    @property
    def copied_bytes(self) -> int:
        """Bytes that the copies take."""
        return len(self._before.buffer) + len(self._anchor.buffer)

    def probe(self) -> None:
        """Try on a memory that holds a token whether the state can be copied and put back; if not, say so for good."""
        if self._plan.recurrent and not (self._take(self._before, 1) and self._cells.restore(self._before.buffer)):
            self.give_up(UNSAVED)

    def give_up(self, reason: str) -> None:
        """Drop no more tails, for this reason."""
        self.rollback = Rollback("none", reason)

    def before_pass(self, length: int, count: int) -> None:
        """Copy the state behind `length` tokens if the coming pass of `count` tokens needs that."""
        if self._plan.recurrent and self.rollback.kind != "none" and self._wants_copy(count):
            if self._before.length != length:
                self._take(self._before, length)
            self._due = False

    def _wants_copy(self, count: int) -> bool:
        """Passes of one row are taken back in a drafting context only, up to the last cut that was asked for."""
        if self._plan.drafting:
            return self._due
        return count > 1 + self._plan.snapshots

    def after_pass(self, length: int, count: int) -> None:
        """Learn that `count` tokens were evaluated behind `length`."""
        self._pass_start = length
        # llama.cpp writes a snapshot behind each token of a pass; older ones stay and must not be taken for these.
        self._snapshots_left = min(self._plan.snapshots, count - 1)

    def anchor(self, length: int) -> None:
        """Make `length` tokens, which the memory holds now, a place that it can always be cut to."""
        if self._plan.recurrent and self.rollback.kind != "none" and self._anchor.length != length:
            self._take(self._anchor, length)

    def cut(self, held: int, length: int) -> int | None:
        """Drop what is behind `length` of `held` tokens and return how many are left.

        What lacks up to `length` is to be evaluated again. None, with nothing changed, where that cannot be done.
        """
        self._due = True
        if length >= held:
            return held
        if length == 0:
            self.clear()
            return 0
        if self._plan.recurrent:
            return self._cut_state(held, length)
        # llama.cpp drops the tail also where sliding layers no longer hold what the next token looks at.
        if self._plan.window and self._cells.first() > max(0, length - self._plan.window + 1):
            return None
        return length if self._cells.cut(length) else None

    def _cut_state(self, held: int, length: int) -> int | None:
        if held - length <= self._snapshots_left and self._cells.cut(length):
            self._snapshots_left = 0  # one that was gone back to is used up with the next pass
            self._forget(length)
            return length
        return self._go_back(length)

    def _go_back(self, length: int) -> int | None:
        """Put back the longest copy of at most `length` tokens; return its length."""
        copies = [copy for copy in (self._before, self._anchor) if copy.length is not None and copy.length <= length]
        if not copies or self.rollback.kind == "none":
            return None
        best = max(copies, key=lambda copy: copy.length or 0)
        started = time.perf_counter()
        left = best.length or 0
        whole = self._cells.restore(best.buffer) and self._cells.cut(left)
        self.seconds += time.perf_counter() - started
        if not whole:
            self.give_up(UNSAVED)
            self.clear()
            return 0
        self._snapshots_left = 0
        self._forget(length)
        return left

    def undo(self, length: int, touched: bool) -> int:
        """Take back a pass behind `length` tokens that failed; return how many tokens the memory holds now.

        `touched`: the pass had begun. A recurrent state is then half advanced and only a copy of it can be trusted.
        """
        if not touched:
            return length
        left = self._go_back(length) if self._plan.recurrent else None
        if not self._plan.recurrent and length and self._cells.cut(length):
            left = length
        if left is None:
            self.clear()
        return left or 0

    def clear(self) -> None:
        """Forget everything."""
        self._cells.clear()
        self._snapshots_left = 0
        self._due = True
        self._forget(0)

    def _forget(self, length: int) -> None:
        """Forget copies of what is behind `length`."""
        for copy in (self._before, self._anchor):
            if copy.length is not None and copy.length > length:
                copy.length = None

    def _take(self, copy: _Copy, length: int) -> bool:
        if length == 0:
            return False
        started = time.perf_counter()
        done = copy.take(self._cells, length)
        self.seconds += time.perf_counter() - started
        if not done:
            self.give_up(UNSAVED)
        return done
