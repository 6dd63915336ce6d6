"""Whether a draft speaks the target's vocabulary, and how alike two vocabularies are.

Compares what it is given: tokenizer kind, size, every shared id's spelling, and the ids of special tokens. One
vocabulary may be a padded version of the other. Reads no files and knows no model.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer kind, its tokens' spellings [n_vocab], and the ids of special tokens by name ("bos", "eos", …).

    A loaded model gives the kind as llama.cpp's number, a file's header as a word; two vocabularies can be compared
    only if both come from the same kind of source, because several words share a number. Give a "bos" only where the
    model has it put in front of a prompt: elsewhere files name any id.
    """

    kind: int | str
    texts: Sequence[bytes]
    special: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Whether a draft can draft for a target, the first reason why not, and the share of ids spelled alike."""

    compatible: bool
    reason: str | None
    share_equal: float


MAX_PADDING = 512
"""How many tokens the larger vocabulary may have more.

Makers round a vocabulary up to a multiple of 64 to 512, each size of a family in its own way (Qwen2.5: 151,936 and
152,064, and 151,665 where a file leaves the padding out: 399 apart). One that was extended by words of another
language has thousands more, and a draft without them fails at the first.
"""

COMPARED_SPECIALS = ("bos", "eos", "eot")
"""Special tokens that must be the same id. Others (padding, unknown, separator) occur in no chat, and files of one
model made by different people disagree about them."""


def compare(target: Vocabulary, draft: Vocabulary) -> Comparison:
    """Return whether `draft` can draft for `target`, the reason and the likeness (262,144 tokens: less than 0.1 s)."""
    reason = first_difference(target, draft)
    return Comparison(reason is None, reason, likeness(target, draft))


def likeness(target: Vocabulary, draft: Vocabulary) -> float:
    """Return the share of ids that both spell alike, of all ids of the larger vocabulary: 0 to 1."""
    larger = max(len(target.texts), len(draft.texts))
    return sum(map(operator.eq, target.texts, draft.texts)) / larger if larger else 1.0


def first_difference(target: Vocabulary, draft: Vocabulary) -> str | None:
    """Return why `draft` cannot draft for `target`, naming the first differing token, or None where it can.

    Raises TypeError where one kind is a number and the other a word.
    """
    if isinstance(target.kind, str) != isinstance(draft.kind, str):
        raise TypeError(f"kinds from different sources cannot be compared: {target.kind!r} and {draft.kind!r}")
    if target.kind != draft.kind:
        return f"tokenizer kind {draft.kind} is not the target's kind {target.kind}"
    if abs(len(target.texts) - len(draft.texts)) > MAX_PADDING:
        return f"{len(draft.texts):,} tokens are not the target's {len(target.texts):,}"
    return _differing_text(target, draft) or _differing_special(target, draft)


def _differing_text(target: Vocabulary, draft: Vocabulary) -> str | None:
    alike = map(operator.eq, target.texts, draft.texts)
    place = next((i for i, same in enumerate(alike) if not same), None)
    if place is None:
        return None
    return f"token {place:,} is {_spelling(draft, place)} and the target's is {_spelling(target, place)}"


def _differing_special(target: Vocabulary, draft: Vocabulary) -> str | None:
    for name in COMPARED_SPECIALS:
        ours, theirs = target.special.get(name), draft.special.get(name)
        if ours is None:
            continue
        if ours >= len(draft.texts):
            known = f"this vocabulary ends at {len(draft.texts) - 1:,}"
            return f"the target's {name.upper()} is token {ours:,} {_spelling(target, ours)} and {known}"
        if theirs is not None and theirs != ours:
            mine = f"{name.upper()} is token {theirs:,} {_spelling(draft, theirs)}"
            return f"{mine} and the target's is {ours:,} {_spelling(target, ours)}"
    return None


def _spelling(vocabulary: Vocabulary, token_id: int) -> str:
    texts = vocabulary.texts
    return repr(texts[token_id].decode("utf-8", "replace")) if 0 <= token_id < len(texts) else "(not in it)"
