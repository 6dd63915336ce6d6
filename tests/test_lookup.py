"""Prompt lookup: hand-made examples, a plain search as the judge, texts at hand, and what a proposal costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import pytest

from specui.config import MAX_DRAFT_TOKENS_LIMIT, SamplingSettings
from specui.engine.dice import Dice
from specui.engine.drafting import Proposal
from specui.engine.lookup import (
    AGREEMENTS,
    ALONE,
    CLASSES,
    LONGEST_MATCH,
    MATCH_BOUNDS,
    MOST_EDITS,
    MOST_PLACES,
    PART_TOKENS,
    RESUME_MEMORY,
    RESUMED,
    PromptLookup,
    Reference,
    _Edits,
    evidence,
)


def proposal(committed: Sequence[int], limit: int) -> Proposal:
    return Proposal(list(committed), limit, SamplingSettings(), Dice(0))


def look_up(
    text: Sequence[int], limit: int = 4, max_ngram_size: int = 4, reference: Reference | None = None
) -> list[int]:
    return list(PromptLookup(max_ngram_size, reference=reference).propose(proposal(text, limit)).tokens)


def match_length(text: Sequence[int], place: int, tail: Sequence[int]) -> int:
    n = 0
    while n < min(place, LONGEST_MATCH) and text[place - 1 - n] == tail[len(tail) - 1 - n]:
        n += 1
    return n


def follow(text: Sequence[int], place: int, limit: int) -> list[int]:
    """Return what a copy from `place` gives; one that reaches the end goes on into itself."""
    copied = list(text)
    for i in range(limit):
        copied.append(copied[place + i])
    return copied[len(text) :]


def plain_search(text: Sequence[int], limit: int, max_ngram_size: int) -> list[int]:
    """Look at every place for the rule of the docstring; a copy that reaches the end goes on into itself."""
    for n in range(min(max_ngram_size, len(text) - 1), 0, -1):
        every = [end for end in range(len(text) - 1, n - 1, -1) if list(text[end - n : end]) == list(text[-n:])]
        places = every[:MOST_PLACES]
        if not places:
            continue
        longest = max(match_length(text, place, text) for place in places)
        equals = [place for place in places if match_length(text, place, text) == longest]
        votes = [text[place] for place in equals]
        start = max(equals, key=lambda place: (votes.count(text[place]), place))
        return follow(text, start, limit)
    return []


@pytest.mark.parametrize(
    ("text", "copied"),
    [
        ([5, 6, 7, 8, 9, 10, 11, 7, 8], [9, 10, 11, 7]),
        ([1, 2, 3, 1, 2, 4, 1, 2], [4, 1, 2, 4]),
        ([1, 2, 3, 9, 2, 4, 1, 2], [3, 9, 2, 4]),
        ([3, 3, 3, 3], [3, 3, 3, 3]),
        ([3, 3], [3, 3, 3, 3]),
        ([1, 2, 3, 4], []),
        ([1], []),
        ([], []),
        ([1, 2, 1, 2, 1], [2, 1, 2, 1]),
        ([9, 1, 2, 3, 4, 5, 8, 1, 2, 3, 4, 6, 9, 1, 2, 3, 4], [5, 8, 1, 2]),
        ([7, 2, 5, 8, 2, 5, 9, 2, 6, 1, 2], [5, 9, 2, 6]),
    ],
    ids=[
        "match",
        "the latest",
        "the longest first",
        "all equal",
        "two equal",
        "no match",
        "one",
        "none",
        "period 2",
        "longer than the n-grams",
        "what most go on with",
    ],
)
def test_lookup_examples(text: Sequence[int], copied: Sequence[int]) -> None:
    assert look_up(text) == copied


def test_lookup_gives_no_more_than_it_is_asked_for() -> None:
    for limit in range(8):
        assert look_up([5, 6, 7, 8, 9, 10, 11, 7, 8], limit) == [9, 10, 11, 7, 8, 9, 10][:limit]


@pytest.mark.parametrize("seed", range(80))
def test_lookup_equals_a_plain_search_while_the_text_grows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 6))
    text: list[int] = rng.integers(0, rng.integers(2, 8), size=rng.integers(0, 30)).tolist()
    drafter = PromptLookup(size)
    assert list(drafter.begin(text)) == []
    for _ in range(25):
        limit = int(rng.integers(1, 12))
        got = drafter.propose(proposal(text, limit))
        assert list(got.tokens) == plain_search(text, limit, size), f"text {text}, n-grams up to {size}"
        assert got.distributions is None
        assert set(got.tokens) <= set(text), "an id that the text does not hold"
        text += rng.integers(0, 8, size=rng.integers(1, 4)).tolist()


@pytest.mark.parametrize("seed", range(40))
def test_lookup_behind_a_draft_equals_lookup_in_the_text_with_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    text: list[int] = rng.integers(0, 4, size=60).tolist()
    draft: list[int] = rng.integers(0, 4, size=int(rng.integers(1, 4))).tolist()
    drafter = PromptLookup(2)
    drafter.find(text, 5)
    behind = drafter.find_behind(draft, 7)
    assert behind is not None
    assert behind.length == len(text) + len(draft)
    tail = [*text, *draft]
    ends = [end for end in range(len(text) - 1, 1, -1) if text[end - 2 : end] == tail[-2:]][:MOST_PLACES]
    if ends:
        longest = max(match_length(text, end, tail) for end in ends)
        best = [end for end in ends if match_length(text, end, tail) == longest]
        expected = {tuple(follow(tail, end, 7)) for end in best}
        assert tuple(behind.tokens) in expected
    assert drafter._own.tokens == text, "what was only drafted is not part of the text"


def test_a_repetition_goes_on_through_what_was_drafted() -> None:
    drafter = PromptLookup(4)
    drafter.find([1, 2, 3, 1, 2], 4)
    behind = drafter.find_behind([3], 8)
    assert behind is not None
    assert list(behind.tokens) == [1, 2, 3, 1, 2, 3, 1, 2]


@pytest.mark.parametrize(
    ("text", "agreements"),
    [
        ([1, 2, 3, 4, 5, 9, 1, 2], ["alone"] * 3),
        ([1, 2, 3, 4, 8, 1, 2, 3, 4, 9, 1, 2], ["agreed", "agreed", "disputed"]),
        ([1, 2, 3, 7, 8, 1, 2, 3, 4, 9, 1, 2], ["agreed", "disputed", "alone"]),
    ],
    ids=["one place", "both alike, then not", "the other has no say any more"],
)
def test_each_copied_token_is_classed_by_how_the_other_places_go_on(text: list[int], agreements: list[str]) -> None:
    found = PromptLookup(4).find(text, 3)
    assert found is not None
    assert [AGREEMENTS[each % len(AGREEMENTS)] for each in found.classes] == agreements


@pytest.mark.parametrize("limit", [1, 5, MAX_DRAFT_TOKENS_LIMIT])
@pytest.mark.parametrize("match", [1, 3, 8, LONGEST_MATCH])
def test_along_a_copy_the_match_grows_with_each_token(match: int, limit: int) -> None:
    source = list(range(100, 220))
    found = PromptLookup(4).find([*source, 1, *source[40 - match : 40]], limit)
    assert found is not None
    assert found.match_length == match
    assert list(found.classes) == [evidence(match + place, ALONE) for place in range(limit)]


def test_classes_tell_every_length_and_agreement_apart() -> None:
    lengths = (1, *MATCH_BOUNDS)
    classes = [evidence(length, agreement) for length in lengths for agreement in range(len(AGREEMENTS))]
    assert classes == list(range(CLASSES))
    assert evidence(3, 1) != evidence(4, 1) == evidence(5, 1)
    assert evidence(LONGEST_MATCH + 40, RESUMED) == CLASSES - 1, "a long copy goes on in the last class"


SOURCE = list(range(100, 140))


def grow(drafter: PromptLookup, committed: list[int], tokens: Sequence[int]) -> None:
    """Write `tokens` one by one; the drafter looks each time, as it does at each step."""
    for token in tokens:
        drafter.find(committed, 8)
        committed.append(token)


def test_a_copy_that_broke_off_is_taken_up_again_close_behind() -> None:
    committed = [*SOURCE, 1, 113, 2, 1]
    drafter = PromptLookup(4)
    grow(drafter, committed, [*SOURCE[:12], 77, SOURCE[13]])
    found = drafter.find(committed, 4)
    assert found is not None
    assert list(found.tokens) == SOURCE[14:18], "not the 2 that followed the latest 113"
    assert [each % len(AGREEMENTS) for each in found.classes] == [RESUMED] * 4
    assert found.match_length == 1


def test_without_a_long_copy_before_there_is_nothing_to_take_up_again() -> None:
    committed = [*SOURCE, 1, 113, 2, 1]
    drafter = PromptLookup(4)
    grow(drafter, committed, [*SOURCE[:4], 77, SOURCE[13]])
    found = drafter.find(committed, 1)
    assert found is not None
    assert list(found.tokens) == [2]


def test_a_copy_is_not_taken_up_again_after_much_else() -> None:
    committed = [*SOURCE, 1]
    drafter = PromptLookup(4)
    grow(drafter, committed, SOURCE[:12])
    grow(drafter, committed, [*range(1000, 1001 + RESUME_MEMORY), SOURCE[13]])
    found = drafter.find(committed, 2)
    assert found is not None
    assert found.classes[0] % len(AGREEMENTS) != RESUMED


RENAMED = [*range(100, 110), 7, *range(110, 120), 7, *range(120, 130), 7, 130, 131]


def test_what_was_replaced_once_is_expected_to_be_replaced_again() -> None:
    committed = [*RENAMED, 1]
    drafter = PromptLookup(4)
    grow(drafter, committed, [*range(100, 110), 8, 9, *range(110, 116)])
    found = drafter.find(committed, 10)
    assert found is not None
    assert list(found.tokens) == [116, 117, 118, 119, 8, 9, 120, 121, 122, 123]
    assert [each % len(AGREEMENTS) for each in found.classes[4:]] == [RESUMED] * 6


def test_what_was_left_as_it_is_is_not_replaced_any_more() -> None:
    committed = [*RENAMED, 1]
    drafter = PromptLookup(4)
    grow(drafter, committed, [*range(100, 110), 8, *range(110, 120), 7, *range(120, 126)])
    found = drafter.find(committed, 6)
    assert found is not None
    assert list(found.tokens) == [126, 127, 128, 129, 7, 130]


def test_a_long_piece_that_was_left_out_or_put_in_is_no_edit_to_be_repeated() -> None:
    committed = [*RENAMED, 1]
    drafter = PromptLookup(4)
    grow(drafter, committed, [*range(100, 110), *range(500, 510), *range(110, 116)])
    found = drafter.find(committed, 6)
    assert found is not None
    assert list(found.tokens) == [116, 117, 118, 119, 7, 120]


@pytest.mark.parametrize("seed", range(20))
def test_edits_at_random_never_break_a_proposal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    source: list[int] = rng.integers(0, 40, size=80).tolist()
    drafter, committed = PromptLookup(4), [*source, 99]
    for token in source:
        roll = rng.random()
        written = (
            [token] if roll < 0.8 else [] if roll < 0.85 else rng.integers(40, 45, size=rng.integers(1, 4)).tolist()
        )
        for each in written:
            limit = int(rng.integers(1, 20))
            found = drafter.find(committed, limit)
            if found is not None:
                assert len(found.tokens) == len(found.classes) == limit
                assert set(found.tokens) <= set(committed)
            committed.append(each)


def test_a_text_at_hand_is_copied_from_where_the_own_text_has_nothing() -> None:
    reference = Reference([[20, 21, 22, 23, 24, 25], [30, 31, 32, 33]])
    assert len(reference) == 10
    assert look_up([1, 2, 21, 22, 23], reference=reference) == [24, 25], "the end of a text at hand is the end"
    assert look_up([1, 2, 24, 25], reference=reference) == [], "the next text does not follow the last one"
    assert look_up([1, 2, 30, 31], 2, reference=reference) == [32, 33]
    assert look_up([1, 2, 30, 31], 2) == []


def test_the_longer_match_wins_wherever_it_stands() -> None:
    reference = Reference([[1, 2, 3, 4, 5, 6, 7, 8]])
    assert look_up([4, 5, 6, 9, 1, 2, 3, 4, 5, 6], 2, reference=reference) == [7, 8]
    assert look_up([9, 3, 4, 5, 6, 1, 8, 3, 4, 5, 6], 2, reference=reference) == [1, 8], (
        "of equals the own text comes first"
    )


def test_a_text_at_hand_serves_many_answers_and_is_not_changed_by_them() -> None:
    reference = Reference([[1, 2, 3, 4, 5, 6]])
    for own in ([1, 2, 3], [9, 9, 3, 4], [2, 3]):
        assert look_up(own, 2, reference=reference) == list(islice([1, 2, 3, 4, 5, 6], own[-1], own[-1] + 2))
    assert len(reference) == 6


def test_a_text_at_hand_works_with_shorter_ngrams_than_it_was_indexed_with() -> None:
    assert look_up([7, 8, 4], 2, max_ngram_size=1, reference=Reference([[3, 4, 5, 6]])) == [5, 6]


class CountingPlaces:
    """Counts the places that lookup goes through."""

    def __init__(self, drafter: PromptLookup) -> None:
        self.count = 0
        self._places = drafter._own.places
        drafter._own.places = self.places  # type: ignore[method-assign]

    def places(self, ngram: tuple[int, ...]) -> Iterator[int]:
        for place in self._places(ngram):
            self.count += 1
            yield place


@pytest.mark.parametrize("length", [200, 32_000])
def test_a_proposal_costs_the_same_at_any_length(length: int) -> None:
    drafter = PromptLookup(4)
    counting = CountingPlaces(drafter)
    text = np.random.default_rng(0).integers(0, 5, size=length).tolist()
    drafter.propose(proposal(text, 15))
    assert 0 < counting.count <= MOST_PLACES, "of all places with the same n-gram only the latest are looked at"


def test_many_texts_at_hand_cost_no_more_than_one() -> None:
    reference = Reference([[1, 2, 3, 4, place] for place in range(100, 400)])
    drafter = PromptLookup(4, reference=reference)
    assert len(drafter._places([1, 2, 3, 4])) == MOST_PLACES


def test_indexing_can_be_cancelled_between_parts() -> None:
    left = iter([False, False])
    reference = Reference([list(range(3 * PART_TOKENS))], lambda: next(left, True))
    assert len(reference) == 2 * PART_TOKENS


def test_a_copy_that_is_taken_up_again_needs_half_the_match() -> None:
    committed = [*SOURCE, 1]
    drafter = PromptLookup(4, 3)
    grow(drafter, committed, [*SOURCE[:12], 77, SOURCE[13]])
    assert list(drafter.propose(proposal(committed, 5)).tokens) == [], "one token is too little"
    grow(drafter, committed, [SOURCE[14]])
    assert list(drafter.propose(proposal(committed, 5)).tokens) == SOURCE[15:20]


def test_only_the_latest_edits_that_begin_alike_are_remembered() -> None:
    edits = _Edits()
    for each in range(MOST_EDITS + 3):
        edits.learn((1, each), (2,))
    assert edits.replaced([1, 2, 0], 0) is None
    assert edits.replaced([1, MOST_EDITS + 2, 0], 0) == (2, (2,))


@pytest.mark.parametrize(
    ("text", "shortest", "expected"),
    [
        ([5, 6, 7, 8, 9, 10, 11, 7, 8], 3, []),
        ([5, 6, 7, 8, 9, 10, 11, 6, 7, 8], 3, [9, 10, 11]),
        ([5, 6, 7, 8, 9, 10, 11, 5, 6, 7, 8], 3, [9, 10, 11, 5, 6, 7]),
        ([5, 6, 7, 8, 9, 10, 11, 7, 8], 2, [9, 10]),
    ],
)
def test_a_short_match_drafts_nothing_and_one_just_long_enough_no_more_than_itself(
    text: list[int], shortest: int, expected: list[int]
) -> None:
    assert list(PromptLookup(4, shortest).propose(proposal(text, 6)).tokens) == expected


def test_the_shortest_match_is_never_above_the_longest_looked_for() -> None:
    assert list(PromptLookup(1, 3).propose(proposal([5, 6, 7, 5], 3)).tokens) == [6, 7, 5]
