"""Chat templates: from messages to a prompt's token ids, and what to leave out when they do not fit.

Renders the Jinja template of the GGUF file (or an override) with llama-cpp-python's sandboxed formatter. Knows
messages and the tokeniser of a `Model`; nothing about caches or decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from llama_cpp.llama_chat_format import Jinja2ChatFormatter

from specui.engine.llama import Model
from specui.errors import PromptTooLongError, TemplateError

Turn = tuple[str, str]
"""Role and content."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt: its token ids, and how many old turns were left out so that it fits."""

    token_ids: list[int]
    dropped_turns: int = 0


class ChatTemplate:
    """The chat template of a model. Raises TemplateError where there is none or it cannot be compiled."""

    def __init__(self, model: Model, override: str | None = None) -> None:
        text = override or model.chat_template
        if not text:
            raise TemplateError(model.path.name, "the file holds no chat template")
        self._model = model
        try:
            self._formatter = Jinja2ChatFormatter(text, eos_token=model.eos_text, bos_token=model.bos_text)
        except jinja2.TemplateError as error:
            raise TemplateError(model.path.name, f"its chat template cannot be read ({error})") from None

    def tokens(self, turns: Sequence[Turn]) -> list[int]:
        """Return the prompt's ids, with exactly the BOS tokens that the model wants."""
        text = self.render(turns)
        bos = self._model.bos_text
        written = bool(bos) and text.startswith(bos)
        return self._model.tokenize(text, add_special=not written, parse_special=True)

    def render(self, turns: Sequence[Turn]) -> str:
        """Return the prompt's text. A template that knows no system role gets it in the first user turn."""
        try:
            return self._format(turns)
        except (ValueError, TypeError, jinja2.TemplateError) as first:
            merged = merge_system(turns)
            if merged == list(turns):
                raise self._error(first) from None
        try:
            return self._format(merged)
        except (ValueError, TypeError, jinja2.TemplateError) as second:
            raise self._error(second) from None

    def _format(self, turns: Sequence[Turn]) -> str:
        messages: list[Any] = [{"role": role, "content": content} for role, content in turns]
        return self._formatter(messages=messages).prompt

    def _error(self, error: Exception) -> TemplateError:
        return TemplateError(self._model.path.name, f"its chat template refuses these messages ({error})")

    def fit(self, turns: Sequence[Turn], limit: int) -> Prompt:
        """Return the prompt of at most `limit` tokens, whole old turns left out first.

        The system turn and the last user turn are always kept. Raises PromptTooLongError when those alone do not fit.
        """
        kept, dropped = list(turns), 0
        while len(ids := self.tokens(kept)) > limit:
            first = 1 if kept[0][0] == "system" else 0
            exchange = _length_of_exchange(kept, first)
            if first + exchange >= len(kept):
                raise PromptTooLongError(len(ids) + 1, limit + 1)
            del kept[first : first + exchange]
            dropped += exchange
        return Prompt(ids, dropped)


def merge_system(turns: Sequence[Turn]) -> list[Turn]:
    """Put a leading system turn in front of the first user turn."""
    if len(turns) < 2 or turns[0][0] != "system" or turns[1][0] != "user":
        return list(turns)
    return [("user", f"{turns[0][1]}\n\n{turns[1][1]}"), *turns[2:]]


def _length_of_exchange(turns: Sequence[Turn], first: int) -> int:
    """Return how many turns from `first` on make one exchange: a user turn and all up to the next user turn."""
    for length in range(1, len(turns) - first):
        if turns[first + length][0] == "user":
            return length
    return len(turns) - first
