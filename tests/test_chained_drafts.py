"""Drafts that begin with the draft model's tokens and go on with a copy; how long drafts of `auto` may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from auto_texts import CLIFF_4, FLAT, N_VOCAB, STAIRS, ask, confident, fresh_text, looping_text, outcome, says
from fake_model import FakeCache, Script

from specui.config import DEFAULT_MAX_DRAFT_TOKENS, SamplingSettings
from specui.engine.controller import Auto
from specui.engine.costs import PassCosts
from specui.engine.dice import Dice
from specui.engine.drafting import DraftModel, Judge, Proposal
from specui.engine.economy import LONG_DRAFT, Experience
from specui.engine.lookup import CLASSES, PromptLookup, evidence
from specui.engine.sampling import Logits
from specui.engine.verification import Draft

WORDS = fresh_text(300)
PROMPT, NEW = WORDS[:100], WORDS[200]
TEXT = [*PROMPT, NEW, *PROMPT[5:]]
"""Behind a word that never stood before, what the prompt says comes again."""
COMMITTED = [*PROMPT, NEW]
CAP = DEFAULT_MAX_DRAFT_TOKENS["auto"]


class RememberingModel(DraftModel):
    """A draft model whose last draft can be looked at."""

    last = Draft()

    def propose(self, proposal: Proposal, judge: Judge | None = None) -> Draft:
        self.last = super().propose(proposal, judge)
        return self.last


def trusting(stairs: dict[int, float], token_seconds: float) -> Experience:
    """Return an experience in which guesses were always right, and copies behind more than two matching tokens."""
    know = Experience(PassCosts(stairs), token_seconds)
    for each in range(CLASSES):
        for _ in range(60):
            know.lookup.observe(each, hit=each >= evidence(3, 0))
    for _ in range(60):
        for confidence in (0.6, 0.995):
            know.draft.observe(confidence, hit=True)
    return know


def auto_over(script: Script, know: Experience, coupled: bool = False) -> tuple[Auto, RememberingModel]:
    model = RememberingModel(FakeCache(script), N_VOCAB, coupled=coupled)
    auto = Auto(PromptLookup(4), model, know)
    list(auto.begin(PROMPT))
    return auto, model


def test_a_copy_goes_on_behind_the_models_tokens() -> None:
    auto, model = auto_over(says(TEXT), trusting(STAIRS, 0.1))
    draft = auto.propose(ask(COMMITTED, CAP))
    written = len(model.last)
    assert 3 <= written < 6 < 12 < len(draft)
    assert list(draft.tokens) == TEXT[101 : 101 + len(draft)]
    assert list(model.last.tokens) == list(draft.tokens[:written])
    assert draft.distributions is None
    assert model.rows_decoded == written - 1, "the model writes no more than its own part"


def test_without_something_to_copy_the_model_goes_on_alone() -> None:
    text = [*COMMITTED, *WORDS[201:260]]
    auto, model = auto_over(says(text), trusting(STAIRS, 0.1))
    draft = auto.propose(ask(COMMITTED, CAP))
    assert draft.tokens == model.last.tokens
    assert 3 <= len(draft) <= LONG_DRAFT


def learned(know: Experience, before: Sequence[int]) -> list[int]:
    return [after.seen - seen for after, seen in zip(know.lookup.records, before, strict=True)]


@pytest.mark.parametrize("hits", [None, 0, 3, 11])
def test_a_copys_classes_learn_only_where_it_was_reached_and_up_to_its_first_miss(hits: int | None) -> None:
    know = trusting(STAIRS, 0.1)
    auto, model = auto_over(says(TEXT), know)
    draft = auto.propose(ask(COMMITTED, CAP))
    written = len(model.last)
    assert len(draft) > written + 11
    before = [record.seen for record in know.lookup.records]
    rates = [record.rate for record in know.lookup.records]
    accepted = written - 1 if hits is None else written + hits
    auto.accept(outcome(COMMITTED, draft, accepted))
    auto.propose(ask([*COMMITTED, *draft.tokens[:accepted], WORDS[250]], CAP))
    counts = learned(know, before)
    assert sum(counts) == (0 if hits is None else hits + 1)
    lowered = [place for place, record in enumerate(know.lookup.records) if record.rate < rates[place] - 1e-9]
    assert len(lowered) == (0 if hits is None else 1), "one miss, in one class"


def test_a_copy_that_was_all_right_learns_no_miss() -> None:
    know = trusting(STAIRS, 0.1)
    auto, model = auto_over(says(TEXT), know)
    draft = auto.propose(ask(COMMITTED, CAP))
    before = [record.seen for record in know.lookup.records]
    rates = [record.rate for record in know.lookup.records]
    auto.accept(outcome(COMMITTED, draft, len(draft)))
    place = 101 + len(draft)
    auto.propose(ask(TEXT[: place + 1], CAP))
    assert sum(learned(know, before)) >= len(draft) - len(model.last)
    assert all(record.rate >= rate - 1e-9 for record, rate in zip(know.lookup.records, rates, strict=True))


def test_the_models_rates_learn_from_its_own_tokens_alone() -> None:
    know = trusting(STAIRS, 0.1)
    auto, model = auto_over(says(TEXT), know)
    seen = know.draft.by_confidence.records[-1].seen
    draft = auto.propose(ask(COMMITTED, CAP))
    auto.accept(outcome(COMMITTED, draft, len(draft)))
    read = 1  # the new word, when it was read
    assert know.draft.by_confidence.records[-1].seen - seen == read + len(model.last)


def test_a_draw_that_is_not_what_was_guessed_drops_the_copy() -> None:
    sampling = SamplingSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    chained = alone = 0

    def script(tokens: Sequence[int]) -> Logits:
        return confident(TEXT[len(tokens)], 0.6)

    for seed in range(40):
        auto, model = auto_over(script, trusting(STAIRS, 0.1), coupled=True)
        draft = auto.propose(replace(ask(COMMITTED, CAP), sampling=sampling, dice=Dice(seed)))
        drawn = list(model.last.tokens)
        assert list(draft.tokens[: len(drawn)]) == drawn
        if drawn == TEXT[101 : 101 + len(drawn)]:
            chained += len(draft) > len(drawn)
            assert list(draft.tokens) == TEXT[101 : 101 + len(draft)]
        else:
            alone += 1
            assert len(draft) == len(drawn), "a copy of what follows other words"
        auto.accept(outcome(COMMITTED, draft, 0))
    assert min(chained, alone) > 5


@pytest.mark.parametrize("limit", [1, 2, 5, 16, 40, CAP])
def test_a_chained_draft_keeps_to_the_limit(limit: int) -> None:
    auto, _model = auto_over(says(TEXT), trusting(FLAT, 0.1))
    draft = auto.propose(ask(COMMITTED, limit))
    assert list(draft.tokens) == TEXT[101 : 101 + limit], "where rows cost nothing, all there is room for"


def test_a_chained_draft_lands_on_a_cheap_step() -> None:
    auto, _model = auto_over(says(TEXT), trusting(CLIFF_4, 0.01))
    assert len(auto.propose(ask(COMMITTED, CAP))) == 3


# How long drafts may be.


@pytest.mark.parametrize(("limit", "length"), [(7, 7), (LONG_DRAFT, LONG_DRAFT), (CAP, LONG_DRAFT)])
def test_the_model_writes_so_many_tokens_in_a_row_and_no_more(limit: int, length: int) -> None:
    text = [*COMMITTED, *WORDS[201:290]]
    auto, model = auto_over(says(text), trusting(FLAT, 0.001))
    assert len(auto.propose(ask(COMMITTED, limit))) == length
    assert model.rows_decoded == length - 1


@pytest.mark.parametrize("limit", [15, 40, CAP])
def test_a_long_copy_is_as_long_as_it_may_be_where_rows_cost_nothing(limit: int) -> None:
    text = looping_text(300)
    auto = Auto(PromptLookup(4), None, trusting(FLAT, 1.0))
    list(auto.begin(text[:120]))
    assert list(auto.propose(ask(text[:120], limit)).tokens) == text[120 : 120 + limit]
