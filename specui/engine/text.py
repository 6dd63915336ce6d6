"""From token ids to text that may be shown: whole characters only, never a part of a stop string.

Knows bytes and strings, nothing about models: the caller supplies each token's bytes.
"""

from __future__ import annotations

import codecs
from bisect import bisect_right
from collections.abc import Sequence


class TextStream:
    """Joins the bytes of tokens into text as it is written.

    Bytes that do not yet form a character are held back, and so is any tail that could begin a stop string.
    An unfinished character at the very end is dropped. Bytes that can never be UTF-8 become U+FFFD.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._stop = tuple(stop)
        self._longest_stop = max(map(len, self._stop), default=0)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._shown = 0
        self._piece_ends: list[int] = []
        self.stopped = False

    @property
    def text(self) -> str:
        """What may be shown so far."""
        return self._text[: self._shown]

    def push(self, raw: bytes) -> bool:
        """Add one token's bytes; return True when a stop string is complete (it and what follows is cut)."""
        before = len(self._text)
        self._text += self._decoder.decode(raw)
        self._piece_ends.append(len(self._text))
        self._shown = len(self._text)
        if self._stop:
            self.stopped = self._cut_at_stop(before)
            self._shown = len(self._text) - (0 if self.stopped else self._held())
        return self.stopped

    def finish(self) -> str:
        """Show what was held back for a stop string that never came; return the whole text."""
        self._shown = len(self._text)
        return self._text

    def pieces(self, first: int = 0) -> list[str]:
        """Return the shown text of every token pushed, from the `first` on; joined they equal `text`."""
        starts = [self._piece_ends[first - 1] if first else 0, *self._piece_ends[first:]]
        ends = self._piece_ends[first:]
        return [self._text[a : min(b, self._shown)] for a, b in zip(starts, ends, strict=False)]

    @property
    def num_final_pieces(self) -> int:
        """How many pieces are wholly shown: those never change."""
        return bisect_right(self._piece_ends, self._shown)

    def _cut_at_stop(self, before: int) -> bool:
        window = max(0, before - self._longest_stop + 1)
        hits = [at for each in self._stop if (at := self._text.find(each, window)) >= 0]
        if hits:
            self._text = self._text[: min(hits)]
            self._piece_ends = [min(end, len(self._text)) for end in self._piece_ends]
        return bool(hits)

    def _held(self) -> int:
        """Length of the longest tail of the text that begins a stop string."""
        held = 0
        for each in self._stop:
            for length in range(min(len(each) - 1, len(self._text)), held, -1):
                if self._text.endswith(each[:length]):
                    held = length
                    break
        return held
