"""Whether a draft speaks the target's vocabulary: kind, size and every shared token's spelling.

Compares what is given; reads no files. One vocabulary may be a padded version of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer kind (llama.cpp's number) and its tokens' spellings [n_vocab]."""

    kind: int
    texts: Sequence[bytes]


MAX_PADDING = 128 + 256
"""How many tokens the larger vocabulary may have more: makers pad to a multiple of 128 or 256."""


def first_difference(target: Vocabulary, draft: Vocabulary) -> str | None:
    """Return why `draft` cannot draft for `target`, naming the first differing token, or None where it can."""
    if target.kind != draft.kind:
        return f"tokenizer kind {draft.kind} is not the target's kind {target.kind}"
    if abs(len(target.texts) - len(draft.texts)) > MAX_PADDING:
        return f"{len(draft.texts):,} tokens are not the target's {len(target.texts):,}"
    if target.texts[: len(draft.texts)] == draft.texts[: len(target.texts)]:
        return None
    place = next(i for i, (ours, theirs) in enumerate(zip(target.texts, draft.texts, strict=False)) if ours != theirs)
    ours, theirs = (v.texts[place].decode("utf-8", "replace") for v in (target, draft))
    return f"token {place:,} is {theirs!r} and the target's is {ours!r}"
