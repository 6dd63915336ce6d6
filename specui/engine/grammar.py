"""The state of a grammar while one answer is written: which tokens may come next.

Works on any `GrammarState`; llama.cpp's is `llama.NativeGrammar`. Knows token ids and rows of logits, nothing about
text or drafts. To ask about one token costs microseconds, about a whole vocabulary milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from specui.errors import SpecUIError

Logits = npt.NDArray[np.float32]
Ids = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

_DISTANCES = (4.0, 8.0, 16.0)
"""How far below the best logit the likely candidates reach, tried in turn."""

_FEW = 1024
"""More candidates than that cost more than what they might save."""


class GrammarState(Protocol):
    """A grammar at one place of a text."""

    def clone(self) -> Self:
        """Return a copy that can be moved on without this one."""
        ...

    def accept(self, token: int) -> None:
        """Move on over a token that is allowed; for any other the outcome is undefined."""
        ...

    def allowed(self, ids: Ids) -> Flags:
        """Return which of the tokens `ids` [n] may come next [n]."""
        ...

    def allowed_ids(self) -> Ids:
        """Return, ascending, every token that may come next."""
        ...


class Grammar:
    """What may be written next, moved on token by token. End tokens are allowed where the grammar can end."""

    def __init__(self, state: GrammarState, n_vocab: int) -> None:
        self._state = state
        self._n_vocab = n_vocab

    def fork(self) -> Grammar:
        """Return a copy that can be moved on without this one."""
        return Grammar(self._state.clone(), self._n_vocab)

    def push(self, token: int) -> None:
        """Move on over `token`. Raises ValueError, with nothing changed, where the grammar forbids it."""
        if not self.allows(token):
            raise ValueError(f"token {token} may not come next")
        self._state.accept(token)

    def allows(self, token: int) -> bool:
        """Return whether `token` may come next."""
        return 0 <= token < self._n_vocab and bool(self._state.allowed(np.array([token]))[0])

    def reach(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens`, from the first on, may come next in turn; nothing is moved on."""
        state = self.fork()
        for count, token in enumerate(tokens):
            if not state.allows(token):
                return count
            state._state.accept(token)
        return len(tokens)

    @contextmanager
    def masked(self, row: Logits, best: int = 0) -> Iterator[None]:
        """Write minus infinity into the tokens of `row` that may not come next; take it back at the end.

        `row` [n_vocab] may be shorter, as a draft's may be, and knows fewer tokens then.
        With `best` only so many of the best allowed tokens are sure to keep their logits, which is what a filter of
        that top-k looks at and often costs a hundredth; the row must then hold penalties and biases already.
        Raises SpecUIError where no token may come next.
        """
        keep = self._best_allowed(row, best)
        kept = row.copy()
        row.fill(-np.inf)
        row[keep] = kept[keep]
        try:
            yield
        finally:
            row[:] = kept

    def _best_allowed(self, row: Logits, best: int) -> Ids:
        """Return, ascending, allowed ids: the `best` of them and those that equal the last, or all."""
        top = row.max() if best else 0.0
        for distance in _DISTANCES if best else ():
            (ids,) = np.nonzero(row >= top - distance)
            if len(ids) > _FEW:
                break
            found = ids[self._state.allowed(ids)]
            if len(found) >= best:
                return found
        found = self._state.allowed_ids()
        found = found[found < len(row)]
        if len(found) == 0:
            raise SpecUIError("No token of this model fits what the grammar wants next; change the grammar")
        return found
