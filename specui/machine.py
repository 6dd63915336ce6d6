"""What a lane knows of the machine: what passes cost, what mode `auto` learned, what plain decoding takes.

Measures on the lane's own target, behind what it holds, and cuts that back; keeps what was learned between starts.
Knows the engine; nothing about answers, queues or which mode is in use.
"""

from __future__ import annotations

from pathlib import Path

from specui import experience
from specui.engine.calibration import (
    LEAST_ROOM,
    calibrate,
    few_passes_seconds,
    recalibrate,
    several_rows_seconds,
    single_pass_seconds,
)
from specui.engine.costs import PassCosts
from specui.engine.drafting import TokenCache
from specui.engine.economy import Experience
from specui.engine.llama import Context
from specui.engine.stats import PlainPasses
from specui.engine.thinking import Thinking

KEPT_BELOW = 2.0
"""A kept price of the draft model is believed if it is at most so many times below the one measured."""


class Machine:
    """The knowledge of one lane. Methods that measure raise RollbackError where the target cannot be cut."""

    def __init__(self, target: Context, draft: Path | None) -> None:
        self.plain = PlainPasses()
        self.experience: Experience | None = None
        self._target = target
        self._key = experience.Key.of(target.model.path, draft, target.threads, target.model.gpu_layers)
        self._draft_measured = self._draft_timed = False
        self._plain_timed = False
        self._kept_decode_seconds = 0.0

    @property
    def _room(self) -> int:
        return self._target.n_ctx - len(self._target.tokens)

    def measure(self) -> Experience | None:
        """Return what `auto` goes by, measured at the first call; None while too little room is left for that.

        What was kept of an earlier start needs few passes, which tell today's pace.
        """
        if self.experience is None and self._room >= LEAST_ROOM:
            self.experience = self._recalled() or Experience(calibrate(self._target, self._target.model.attention))
            self.plain.seconds = self.plain.seconds or self.experience.costs.seconds(1)
        return self.experience

    def _recalled(self) -> Experience | None:
        known = experience.load(self._key)
        if known is None:
            return None
        costs = recalibrate(self._target, known.pass_seconds, known.cell_seconds)
        if costs is None:
            return None
        recalled = Experience(costs)
        recalled.recall(known)
        self._draft_measured = known.draft_token_passes is not None
        return recalled

    def draft_may_win(self) -> bool:
        """Return whether the draft model is expected to win, by what is known of it; True while nothing is."""
        if self.experience is not None:
            return not self._draft_measured or self.experience.draft_wins
        known = experience.load(self._key)
        if known is None or known.draft_token_passes is None:
            return True
        kept = Experience(PassCosts(known.pass_seconds, known.cell_seconds))
        kept.recall(known)
        return kept.draft_wins

    def measure_draft(self, cache: TokenCache) -> None:
        """Measure, on its own cache, what the draft model takes to write and to read, once.

        Of what was kept and what is measured the lesser counts: what is held too cheap is used and learned better, what
        is held too dear never is. But nothing makes it more than KEPT_BELOW times as quick as it proves today.
        """
        if self._draft_timed or self.experience is None or cache.n_ctx <= len(cache.tokens):
            return
        draft, single = self.experience.draft, single_pass_seconds(cache)
        kept = draft.token_seconds if self._draft_measured else single
        draft.measured(max(min(kept, single), single / KEPT_BELOW), several_rows_seconds(cache))
        self._draft_measured = self._draft_timed = True

    def time_plain(self) -> None:
        """Time a few passes of one row, once, if nothing else told what they take; never where a cut is dear."""
        if self.plain.seconds is None and not self._plain_timed and self._target.rollback.kind == "cut" and self._room:
            self._plain_timed = True
            self.plain.observe(few_passes_seconds(self._target))

    def padded(self, rows: int, most: int) -> int:
        """Return the size to which a pass over a draft is best padded, where its rows are easily cut off again."""
        if self.experience is None or self._target.rollback.kind != "cut":
            return rows
        return self.experience.costs.padded(rows, most)

    def begin_answer(self) -> None:
        """Keep what the last answer taught, count it among the usual, and begin a new strip of choices."""
        self.keep()
        if self.experience is not None:
            self.experience.begin_answer()

    def thinking(self) -> Thinking | None:
        """Return what `auto` goes by in this answer, or None where it made no step in it."""
        return self.experience.thinking(self._draft_measured) if self.experience is not None else None

    def keep(self) -> None:
        """Write what was learned, if anything was since the last time."""
        known = self.experience
        if known is not None and known.decode_seconds > self._kept_decode_seconds:
            self._kept_decode_seconds = known.decode_seconds
            experience.save(self._key, known.known(self._draft_measured))
