"""Reference texts as a model's tokens, ready to be copied from; indexed once while model and texts stay the same.

Knows one model's tokenizer and the index; nothing about files, lanes or faces. What it takes stands in front of an
answer, outside every figure of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from specui.engine.llama import Model
from specui.engine.lookup import Reference

PART_CHARACTERS = 16_000
"""Texts are split into tokens in parts of about this length, whole lines where there are any: some tokenizers take ten
times as long for a long text in one piece, and none can be interrupted."""


class ReferenceIndex:
    """The texts that one model's answers copied from last. Used by one thread at a time."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._texts: Sequence[str] = ()
        self._known: Reference | None = None

    def of(self, texts: Sequence[str], cancelled: Callable[[], bool]) -> Reference | None:
        """Return `texts` indexed; None where there are none, or where `cancelled` came true meanwhile.

        Raises ModelError where the tokenizer fails.
        """
        if not texts:
            return None
        if texts != self._texts:
            self._texts, self._known = (), None
            tokens = [self._tokens(text, cancelled) for text in texts]
            reference = Reference(tokens, cancelled)
            if cancelled():
                return None
            self._texts, self._known = texts, reference
        return self._known

    def _tokens(self, text: str, cancelled: Callable[[], bool]) -> list[int]:
        """Return the tokens of `text` as it would stand within another; a part of them once `cancelled`."""
        tokens: list[int] = []
        for part in _parts(text):
            if cancelled():
                break
            tokens += self._model.tokenize(part, add_special=False, parse_special=False)
        return tokens


def _parts(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = start + PART_CHARACTERS
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end
