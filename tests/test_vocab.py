"""Which vocabularies may be paired: the same, or one a padded version of the other; and how alike two are."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import pytest

from specui.catalog import PairFiles
from specui.engine.llama import Model
from specui.vocab import MAX_PADDING, Comparison, Vocabulary, compare, first_difference, likeness

WORDS = [f"w{i}".encode() for i in range(1000)]


def vocabulary(texts: Sequence[bytes], kind: int | str = 2, special: Mapping[str, int] | None = None) -> Vocabulary:
    return Vocabulary(kind, texts, special or {})


def test_the_same_vocabulary_fits() -> None:
    assert first_difference(vocabulary(WORDS), vocabulary(list(WORDS))) is None
    assert compare(vocabulary(WORDS), vocabulary(list(WORDS))) == Comparison(True, None, 1.0)


def test_a_list_and_a_tuple_of_the_same_texts_are_the_same() -> None:
    assert first_difference(vocabulary(WORDS), vocabulary(tuple(WORDS))) is None


@pytest.mark.parametrize("padding", [1, 128, 256, 399, MAX_PADDING])
def test_padding_on_either_side_fits(padding: int) -> None:
    padded = [*WORDS, *[f"[PAD{i}]".encode() for i in range(padding)]]
    assert first_difference(vocabulary(WORDS), vocabulary(padded)) is None
    assert first_difference(vocabulary(padded), vocabulary(WORDS)) is None


@pytest.mark.parametrize("sizes", [(152_064, 151_936), (152_064, 151_665), (262_208, 262_144)])
def test_sizes_within_families_fit(sizes: tuple[int, int]) -> None:
    larger, smaller = (vocabulary([b"x"] * size) for size in sizes)
    assert compare(larger, smaller).compatible
    assert compare(smaller, larger).compatible


def test_far_too_many_tokens_are_no_padding() -> None:
    longer = [*WORDS, *[b"x"] * (MAX_PADDING + 1)]
    reason = first_difference(vocabulary(WORDS), vocabulary(longer))
    assert reason == f"{1000 + MAX_PADDING + 1:,} tokens are not the target's 1,000"


@pytest.mark.parametrize("place", [0, 500, 999])
def test_one_token_different_is_named(place: int) -> None:
    other = list(WORDS)
    other[place] = b"stranger"
    found = compare(vocabulary(WORDS), vocabulary(other))
    assert found == Comparison(False, f"token {place:,} is 'stranger' and the target's is 'w{place}'", 0.999)


def test_two_ids_swapped_are_found() -> None:
    other = list(WORDS)
    other[200], other[700] = other[700], other[200]
    assert first_difference(vocabulary(WORDS), vocabulary(other)) == "token 200 is 'w700' and the target's is 'w200'"


def test_a_difference_inside_a_padded_vocabulary_is_found() -> None:
    other = [*WORDS[:700], b"\xff\xfe", *WORDS[701:], b"pad"]
    reason = first_difference(vocabulary(WORDS), vocabulary(other))
    assert reason is not None
    assert reason.startswith("token 700 is ")


@pytest.mark.parametrize("kinds", [(1, 2), ("llama", "gpt2")])
def test_different_kinds_are_refused_first(kinds: tuple[int | str, int | str]) -> None:
    reason = first_difference(vocabulary(WORDS, kinds[0]), vocabulary([b"x"], kinds[1]))
    assert reason == f"tokenizer kind {kinds[1]} is not the target's kind {kinds[0]}"


def test_kinds_from_different_sources_are_no_answer_but_a_mistake() -> None:
    with pytest.raises(TypeError, match="different sources"):
        compare(vocabulary(WORDS, 2), vocabulary(WORDS, "gpt2"))


@pytest.mark.parametrize("name", ["bos", "eos", "eot"])
def test_a_special_token_with_another_id_is_named(name: str) -> None:
    reason = first_difference(vocabulary(WORDS, special={name: 1}), vocabulary(WORDS, special={name: 2}))
    assert reason == f"{name.upper()} is token 2 'w2' and the target's is 1 'w1'"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [({"pad": 1, "unk": 2}, {"pad": 3, "unk": 4}), ({}, {"bos": 1}), ({"eot": 5}, {}), ({"eos": 7}, {"eos": 7})],
    ids=["padding and unknown", "only the draft has it", "only the target has it", "the same"],
)
def test_special_tokens_that_do_not_matter(ours: Mapping[str, int], theirs: Mapping[str, int]) -> None:
    assert first_difference(vocabulary(WORDS, special=ours), vocabulary(WORDS, special=theirs)) is None


def test_an_end_that_the_draft_cannot_read_is_refused() -> None:
    longer = vocabulary([*WORDS, b"<end>"], special={"eos": 1000})
    assert first_difference(longer, vocabulary(WORDS)) == (
        "the target's EOS is token 1,000 '<end>' and this vocabulary ends at 999"
    )
    assert first_difference(vocabulary(WORDS, special={"eos": 999}), vocabulary(WORDS)) is None


@pytest.mark.parametrize(
    ("left", "right", "share"),
    [
        ([b"a", b"b"], [b"a", b"b"], 1.0),
        ([b"a", b"b"], [b"b", b"a"], 0.0),
        ([b"a", b"b", b"c", b"d"], [b"a", b"b"], 0.5),
        ([b"a", b"b"], [b"a", b"x", b"c", b"d"], 0.25),
        ([], [], 1.0),
        ([], [b"a"], 0.0),
    ],
)
def test_likeness_is_the_share_of_the_larger_vocabulary(left: list[bytes], right: list[bytes], share: float) -> None:
    assert likeness(vocabulary(left), vocabulary(right, kind=5)) == share


def test_262_144_tokens_take_well_under_a_second() -> None:
    ours, theirs = ([f"token {i}".encode() for i in range(262_144)] for _ in range(2))
    theirs[-1] = b"other"
    started = time.perf_counter()
    found = compare(vocabulary(ours), vocabulary(theirs))
    assert time.perf_counter() - started < 0.5
    assert found.reason == "token 262,143 is 'other' and the target's is 'token 262143'"


@pytest.fixture(scope="module")
def models(bundled_pair: PairFiles) -> Iterator[list[Model]]:
    assert bundled_pair.draft is not None
    loaded = [Model(path, vocab_only=True) for path in (bundled_pair.target, bundled_pair.draft)]
    yield loaded
    for model in loaded:
        model.close()


def test_the_bundled_pair_fits_and_one_token_changed_does_not(models: list[Model]) -> None:
    target, draft = (Vocabulary(model.vocab_type, model.token_texts()) for model in models)
    assert compare(target, draft) == Comparison(True, None, 1.0)
    changed = list(draft.texts)
    changed[5000] = b"stranger"
    reason = first_difference(target, Vocabulary(draft.kind, changed))
    assert reason == f"token 5,000 is 'stranger' and the target's is {target.texts[5000].decode()!r}"
