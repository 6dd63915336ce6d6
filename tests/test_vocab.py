"""Which vocabularies may be paired: the same, or one a padded version of the other."""

from __future__ import annotations

import pytest

from specui.vocab import MAX_PADDING, Vocabulary, first_difference

WORDS = [f"w{i}".encode() for i in range(1000)]


def vocabulary(texts: list[bytes], kind: int = 2) -> Vocabulary:
    return Vocabulary(kind, texts)


def test_the_same_vocabulary_fits() -> None:
    assert first_difference(vocabulary(WORDS), vocabulary(list(WORDS))) is None


@pytest.mark.parametrize("padding", [1, 128, 256, MAX_PADDING])
def test_padding_on_either_side_fits(padding: int) -> None:
    padded = [*WORDS, *[f"[PAD{i}]".encode() for i in range(padding)]]
    assert first_difference(vocabulary(WORDS), vocabulary(padded)) is None
    assert first_difference(vocabulary(padded), vocabulary(WORDS)) is None


def test_far_too_many_tokens_are_no_padding() -> None:
    longer = [*WORDS, *[b"x"] * (MAX_PADDING + 1)]
    reason = first_difference(vocabulary(WORDS), vocabulary(longer))
    assert reason is not None
    assert "1,385" in reason and "1,000" in reason


@pytest.mark.parametrize("place", [0, 500, 999])
def test_one_token_different_is_named(place: int) -> None:
    other = list(WORDS)
    other[place] = b"stranger"
    reason = first_difference(vocabulary(WORDS), vocabulary(other))
    assert reason == f"token {place:,} is 'stranger' and the target's is 'w{place}'"


def test_a_difference_inside_a_padded_vocabulary_is_found() -> None:
    other = [*WORDS[:700], b"\xff\xfe", *WORDS[701:], b"pad"]
    reason = first_difference(vocabulary(WORDS), vocabulary(other))
    assert reason is not None
    assert reason.startswith("token 700 is ")


def test_different_kinds_are_refused_first() -> None:
    reason = first_difference(vocabulary(WORDS, kind=1), vocabulary([b"x"], kind=2))
    assert reason is not None
    assert "kind 2" in reason and "kind 1" in reason
