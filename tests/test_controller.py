"""Single choices of mode `auto` from made-up costs, and what it learns from what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from auto_texts import (
    CLIFF_4,
    CLIFF_8,
    EVERY_ROW_COUNTS,
    FLAT,
    HALF_COUNTS,
    N_VOCAB,
    STAIRS,
    Text,
    always,
    ask,
    confident,
    fresh_text,
    looping_text,
    misleading_text,
    never,
    outcome,
    says,
)
from fake_model import FakeCache

from specui.engine.controller import Auto
from specui.engine.costs import PassCosts
from specui.engine.drafting import DraftModel, Outcome
from specui.engine.economy import CREDIT_TOKENS, LONG_DRAFT, MARGIN, Experience
from specui.engine.lookup import AGREEMENTS, CLASSES, PromptLookup, evidence
from specui.engine.sampling import Logits
from specui.engine.verification import EMPTY_DRAFT
from specui.errors import DecodeError

# Single choices from made-up costs; a plain pass takes 1 second.


def experience_of(stairs: Mapping[int, float], draft_seconds: float = 1.0) -> Experience:
    return Experience(PassCosts(stairs), draft_seconds)


def auto_on(prompt: Sequence[int], know: Experience, draft: FakeCache | None = None, begin: bool = True) -> Auto:
    """Return `auto` behind a prompt; without `begin` as one that was switched to within an answer."""
    auto = Auto(PromptLookup(4), DraftModel(draft, N_VOCAB) if draft else None, know)
    if begin:
        list(auto.begin(prompt))
    return auto


def asked(draft: FakeCache) -> bool:
    """Return whether the draft model was asked for tokens, not only let read."""
    return any(rows for _, rows in draft.calls)


def rate(know: Experience, match_length: int, agreement: str = "alone") -> float:
    return know.lookup.table[evidence(match_length, AGREEMENTS.index(agreement))]


def learn_matches(know: Experience, hit: bool, times: int, classes: Sequence[int] = range(CLASSES)) -> None:
    for _ in range(times):
        for each in classes:
            know.lookup.observe(each, hit)


def plain_steps(auto: Auto, committed: list[int], text: Text, count: int, unit: float = 1.0) -> int:
    """Write along `text` as long as nothing is drafted, at most `count` steps; return how many there were."""
    for step in range(count):
        draft = auto.propose(ask(committed))
        if len(draft):
            return step
        auto.accept(outcome(committed, draft, 0, unit))
        committed.append(text[len(committed)])
    return count


@pytest.mark.parametrize(
    ("stairs", "limit", "length"),
    [
        (CLIFF_4, 15, 3),
        (CLIFF_8, 15, 7),
        (CLIFF_4, 2, 2),
        ({**dict.fromkeys(range(1, 5), 1.0), **dict.fromkeys(range(5, 9), 1.9)}, 7, 7),
        ({**dict.fromkeys(range(1, 5), 1.0), **dict.fromkeys(range(5, 9), 3.0)}, 5, 3),
        (FLAT, 15, 15),
        (EVERY_ROW_COUNTS, 15, 0),
    ],
    ids=["cliff at 4", "cliff at 8", "limit", "second step", "second step half used", "flat", "every row counts"],
)
def test_lookups_length_lands_on_a_cheap_step(stairs: Mapping[int, float], limit: int, length: int) -> None:
    text = looping_text(200)
    draft = auto_on(text[:100], experience_of(stairs)).propose(ask(text[:100], limit))
    assert list(draft.tokens) == text[100 : 100 + length]


@pytest.mark.parametrize(
    ("stairs", "limit", "length"),
    [(CLIFF_4, 15, 3), (CLIFF_8, 15, 7), (CLIFF_8, 2, 2), (FLAT, 15, 15), (EVERY_ROW_COUNTS, 15, 0)],
    ids=["cliff at 4", "cliff at 8", "limit", "flat", "every row counts"],
)
def test_the_draft_models_length_lands_on_a_cheap_step(stairs: Mapping[int, float], limit: int, length: int) -> None:
    text = fresh_text(40)
    auto = auto_on(text[:10], experience_of(stairs, 0.01), FakeCache(says(text)))
    draft = auto.propose(ask(text[:10], limit))
    assert list(draft.tokens) == text[10 : 10 + length]


def test_an_unsure_draft_ends_early_and_a_sure_one_goes_on() -> None:
    text = fresh_text(40)

    def script(tokens: Sequence[int]) -> Logits:
        return confident(text[len(tokens)], 0.995 if len(tokens) < 12 else 0.1)

    auto = auto_on(text[:10], experience_of(HALF_COUNTS, 0.05), FakeCache(script))
    assert list(auto.propose(ask(text[:10])).tokens) == text[10:12]


def test_the_long_match_goes_to_lookup_and_the_sure_draft_to_the_model() -> None:
    loop, fresh = looping_text(200), fresh_text(200)
    cache = FakeCache(says(loop))
    know = experience_of(STAIRS, 0.15)
    draft = auto_on(loop[:100], know, cache).propose(ask(loop[:100]))
    assert len(draft) > 0
    assert not asked(cache), "lookup has a match of 32 tokens: the model is not asked"
    cache = FakeCache(says(fresh))
    draft = auto_on(fresh[:10], know, cache).propose(ask(fresh[:10]))
    assert list(draft.tokens) == fresh[10 : 10 + len(draft)]
    assert cache.num_decoded >= 10


def test_a_short_match_that_was_often_wrong_goes_to_the_draft_model() -> None:
    text = [*fresh_text(20), fresh_text(20)[3]]
    know = experience_of(STAIRS, 0.05)
    learn_matches(know, False, 60, [evidence(1, 0)])
    cache = FakeCache(lambda tokens: confident(1000 + len(tokens), 0.995))
    draft = auto_on(text, know, cache).propose(ask(text))
    assert list(draft.tokens)[:2] == [1021, 1022], "the model's words, not the copied ones"


def test_nothing_is_drafted_where_acceptance_is_low() -> None:
    loop = looping_text(200)
    know = experience_of(STAIRS, 0.1)
    learn_matches(know, False, 150)
    for _ in range(150):
        for confidence in (0.1, 0.4, 0.6, 0.75, 0.85, 0.92, 0.97, 0.999):
            know.draft.observe(confidence, hit=False)
    cache = FakeCache(says(loop))
    auto = auto_on(loop[:100], know, cache)
    assert auto.propose(ask(loop[:100])) is EMPTY_DRAFT
    assert cache.calls == []


def test_no_draft_model_and_no_match_make_a_plain_step() -> None:
    text = fresh_text(20)
    assert len(auto_on(text, experience_of(FLAT)).propose(ask(text))) == 0


@pytest.mark.parametrize(("draft_seconds", "reads"), [(0.1, True), (0.5, True), (0.9, False)])
def test_a_draft_model_that_is_expected_to_win_reads_the_prompt_at_the_beginning(
    draft_seconds: float, reads: bool
) -> None:
    text, cache = fresh_text(200), FakeCache(says(fresh_text(200)))
    know = experience_of(STAIRS, draft_seconds)
    assert (know.draft_gain(LONG_DRAFT) > MARGIN) is reads
    done = list(Auto(PromptLookup(4), DraftModel(cache, N_VOCAB), know).begin(text[:150]))
    assert done == ([64, 128, 149] if reads else []), "in batches, all but the last token"
    assert cache.tokens == (text[:149] if reads else [])


def test_what_was_learned_of_a_draft_model_decides_whether_it_reads_the_prompt() -> None:
    text, know = fresh_text(40), experience_of(STAIRS, 0.3)
    for hit in (False, True):
        for _ in range(100):
            know.draft.observe(0.9, hit)
        cache = FakeCache(says(text))
        auto_on(text[:20], know, cache)
        assert bool(cache.calls) is hit


@pytest.mark.parametrize(
    ("length", "stake", "reads"),
    [(100, CREDIT_TOKENS, True), (300, CREDIT_TOKENS, False), (300, 60.0, True), (1000, 60.0, False)],
    ids=["little", "more than drafts may lose", "much was won", "more than a draft can bring"],
)
def test_within_an_answer_the_draft_model_reads_what_it_missed_only_where_the_stake_bears_it(
    length: int, stake: float, reads: bool
) -> None:
    text = fresh_text(1400)
    know, cache = experience_of(STAIRS, 0.05), FakeCache(says(text))
    know.stake.seconds = stake
    auto = auto_on(text[:length], know, cache, begin=False)
    assert plain_steps(auto, text[:length], text, 50) == (0 if reads else 50)
    assert bool(cache.calls) is reads


def test_lookup_learns_from_steps_that_drafted_nothing() -> None:
    text = looping_text(400)
    know = experience_of({1: 1.0, 2: 9.0, 64: 900.0})
    auto, committed = auto_on(text[:41], know), text[:41]
    before = know.lookup.by_length()
    for _ in range(150):
        draft = auto.propose(ask(committed))
        assert len(draft) == 0, "eight passes for a second row: never worth it"
        auto.accept(Outcome(len(committed), draft, 0, 1, 0.0, 1.0))
        committed.append(text[len(committed)])
    after = know.lookup.by_length()
    assert after[-1].rate > 0.975 > before[-1].rate
    assert all(new.rate >= old.rate for new, old in zip(after, before, strict=True))
    assert sum(each.seen for each in after) == 149, "one token a step was written"
    assert rate(know, 32, "agreed") > 0.99


def test_lookup_unlearns_from_steps_that_drafted_nothing_and_then_learns_to_draft_again() -> None:
    know = experience_of(STAIRS)
    wrong = misleading_text(400)
    auto, committed = auto_on(wrong[:50], know), wrong[:50]
    plain_steps(auto, committed, wrong, 200)
    assert rate(know, 1, "disputed") < 0.02
    know.begin_answer()
    loop = looping_text(300)
    auto, committed = auto_on(loop[:41], know), loop[:41]
    assert plain_steps(auto, committed, loop, 100) < 60, "a repetition is taken up after a while"


def test_a_candidate_trains_up_to_its_first_miss_and_no_further() -> None:
    know = experience_of({1: 1.0, 2: 9.0, 64: 900.0})
    text = [1, 2, 3, 4, 5, 6, 7, 8, 1]
    auto = auto_on(text, know)
    assert len(auto.propose(ask(text, 6))) == 0
    before = know.lookup.records
    auto.propose(ask([*text, 2, 3, 99, 5], 6))
    after = know.lookup.records
    seen = {place: after[place].rate > before[place].rate for place in range(CLASSES) if after[place] != before[place]}
    assert seen == {evidence(1, 0): True, evidence(2, 0): True, evidence(3, 0): False}, "behind a miss nothing is told"


def test_the_guess_left_out_trains_the_draft_model() -> None:
    text = fresh_text(40)
    for hit in (True, False):
        know = experience_of(HALF_COUNTS, 0.05)
        auto = auto_on(text[:10], know, FakeCache(says(text, always if hit else never, 0.1)))
        before = know.draft.by_confidence.rate(0.1)
        assert len(auto.propose(ask(text[:10]))) == 0, "too unsure to be taken"
        auto.accept(outcome(text[:10], EMPTY_DRAFT, 0))
        auto.propose(ask(text[:11]))
        assert (know.draft.by_confidence.rate(0.1) > before) is hit


def test_a_guess_left_out_behind_a_miss_teaches_nothing_even_if_other_steps_come_between() -> None:
    text = fresh_text(40)

    def script(tokens: Sequence[int]) -> Logits:
        return confident(text[len(tokens)], 0.995 if len(tokens) < 12 else 0.1)

    know = experience_of(HALF_COUNTS, 0.05)
    auto = auto_on(text[:10], know, FakeCache(script))
    draft = auto.propose(ask(text[:10]))
    assert len(draft) == 2
    auto.accept(outcome(text[:10], draft, 0))
    before = know.draft.by_confidence.rate(0.1)
    auto.propose(ask([*text[:10], *range(10)], 0))
    assert know.draft.by_confidence.rate(0.1) == before


@pytest.mark.parametrize("accepted", [0, 1, 3])
def test_the_draft_models_rates_learn_from_what_was_verified_alone(accepted: int) -> None:
    text = fresh_text(40)
    know = experience_of(CLIFF_4, 0.01)
    auto = auto_on(text[:10], know, FakeCache(says(text)))
    draft = auto.propose(ask(text[:10]))
    assert len(draft) == 3
    expected = experience_of(CLIFF_4, 0.01).draft
    for position in range(min(3, accepted + 1)):
        expected.observe(0.995, position < accepted)
    auto.accept(outcome(text[:10], draft, accepted))
    assert know.draft.by_confidence.rate(0.995) == pytest.approx(expected.by_confidence.rate(0.995))
    assert know.draft.acceptance == pytest.approx(expected.acceptance)


def test_a_draft_token_that_proves_dearer_than_thought_is_learned_and_costs_little_until_then() -> None:
    text = fresh_text(1600)
    know = experience_of(STAIRS, 0.3)
    auto, committed = auto_on(text[:10], know, FakeCache(says(text))), text[:10]
    seconds = drafted = 0.0
    while len(committed) < 1500:
        draft = auto.propose(ask(committed))
        done = outcome(committed, draft, len(draft), drafting=0.9 * len(draft))
        auto.accept(done)
        seconds, drafted = seconds + done.verify_seconds + done.draft_seconds, drafted + len(draft)
        committed += text[len(committed) : len(committed) + len(draft) + 1]
    assert drafted > 30
    assert 0.4 < know.draft.token_seconds < 0.95
    assert seconds < 1.02 * 1490, f"1,490 tokens took {seconds:.0f} single passes"


def test_a_limit_of_nothing_makes_a_plain_step_and_harms_nothing() -> None:
    text = looping_text(300)
    auto, other = (auto_on(text[:100], experience_of(STAIRS, 0.1), FakeCache(says(text))) for _ in range(2))
    for length in range(100, 110):
        draft = auto.propose(ask(text[:length], 0))
        assert len(draft) == 0
        auto.accept(outcome(text[:length], draft, 0))
    assert list(auto.propose(ask(text[:110])).tokens) == list(other.propose(ask(text[:110])).tokens)


@pytest.mark.parametrize("text", [looping_text(300), fresh_text(300)], ids=["lookup", "draft model"])
def test_a_limit_of_one_gives_at_most_one_token(text: Text) -> None:
    know = experience_of(FLAT, 0.05)
    auto, committed = auto_on(text[:100], know, FakeCache(says(text))), list(text[:100])
    drafted = 0
    for _ in range(80):
        draft = auto.propose(ask(committed, 1))
        assert len(draft) <= 1
        drafted += len(draft)
        auto.accept(outcome(committed, draft, len(draft)))
        committed += text[len(committed) : len(committed) + len(draft) + 1]
    assert drafted > 20


@pytest.mark.parametrize("failing", [0, 1, 3])
def test_an_aborted_proposal_leaves_a_drafter_that_works(failing: int) -> None:
    text = fresh_text(60)
    know = experience_of(CLIFF_8, 0.02)
    cache = FakeCache(says(text))
    auto = auto_on(text[:10], know, cache)
    cache.fail_decode = {len(cache.calls) + failing: 2}
    with pytest.raises(DecodeError):
        auto.propose(ask(text[:10]))
    draft = auto.propose(ask(text[:13]))
    expected = experience_of(CLIFF_8).draft
    for _ in range(3 - failing):
        expected.observe(0.995, hit=True)  # what was read only now was guessed too
    assert know.draft.acceptance == pytest.approx(expected.acceptance), "what was drafted in vain teaches nothing"
    assert know.draft.by_confidence.records[-1].seen == 3 - failing
    assert know.decode_seconds == 0.0
    assert list(draft.tokens) == text[13:20]
    auto.accept(outcome(text[:13], draft, 7))
    assert know.draft.acceptance > expected.acceptance


@pytest.mark.parametrize("failing", [0, 1])
def test_an_outcome_after_a_proposal_that_failed_is_taken(failing: int) -> None:
    text = fresh_text(60)
    know = experience_of(CLIFF_8, 0.02)
    cache = FakeCache(says(text))
    auto = auto_on(text[:2], know, cache)
    cache.fail_decode = {len(cache.calls) + failing: 1}
    with pytest.raises(DecodeError):
        auto.propose(ask(text[:2]))
    auto.accept(outcome(text[:2], EMPTY_DRAFT, 0))
    assert 0 < know.draft.token_seconds < 1


def test_a_full_draft_context_makes_plain_steps() -> None:
    text = fresh_text(60)
    cache = FakeCache(says(text), n_ctx=20)
    auto = auto_on(text[:20], experience_of(CLIFF_8, 0.02), cache)
    draft = auto.propose(ask(text[:20]))
    assert len(draft) == 0
    auto.accept(outcome(text[:20], draft, 0))
    assert not asked(cache)


def test_tokens_that_were_cut_off_the_draft_teach_nothing() -> None:
    text = fresh_text(40)
    know = experience_of(CLIFF_8, 0.01)
    auto = auto_on(text[:10], know, FakeCache(says(text)))
    draft = auto.propose(ask(text[:10]))
    assert len(draft) == 7
    seen = sum(record.seen for record in know.draft.by_confidence.records)
    auto.accept(outcome(text[:10], draft.first(3), 3))
    assert sum(record.seen for record in know.draft.by_confidence.records) == seen + 3
    assert know.draft.acceptance > experience_of(CLIFF_8).draft.acceptance, "three hits, no miss"


def test_a_draft_of_the_model_ends_where_it_would_risk_more_than_the_stake() -> None:
    text = fresh_text(60)
    lengths = []
    for stake in (100.0, 0.05):
        know = experience_of(HALF_COUNTS, 0.05)
        know.draft.acceptance = 0.97
        know.stake.seconds = stake
        auto = auto_on(text[:10], know, FakeCache(says(text, always, 0.92)))
        lengths.append(len(auto.propose(ask(text[:10]))))
    assert lengths[1] < lengths[0], f"{lengths} tokens with much and with little to lose"


class OnlyFirst:
    """A constraint that lets two tokens come next and then no more."""

    def reach(self, tokens: Sequence[int]) -> int:
        return min(2, len(tokens))


def test_a_copy_is_no_longer_than_what_the_grammar_allows() -> None:
    text = looping_text(200)
    auto = auto_on(text[:100], experience_of(FLAT))
    constraint: Any = OnlyFirst()
    proposal = replace(ask(text[:100]), constraint=constraint)
    assert list(auto.propose(proposal).tokens) == text[100:102]
