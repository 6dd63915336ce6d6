"""Whole answers of mode `auto` in scripted time, counted in single target passes.

Texts are fixed by place, so that a drafter is right or wrong by plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from auto_simulation import Pair, Simulation, ahead_of
from auto_texts import (
    CLIFF_4,
    CLIFF_8,
    EVERY_ROW_COUNTS,
    FLAT,
    LENGTH,
    N_VOCAB,
    READING_SHARE,
    STAIRS,
    UNIT,
    ask,
    fresh_text,
    looping_text,
    misleading_text,
    never,
    outcome,
)
from fake_clock import Clock, clock_in
from fake_model import Plan, answer

from specui.engine import calibration as calibration_module
from specui.engine import decoder as decoder_module
from specui.engine import drafting as drafting_module
from specui.engine.controller import EXPLORATION, Auto
from specui.engine.drafting import DraftModel
from specui.engine.economy import LONG_DRAFT
from specui.engine.lookup import PromptLookup
from specui.errors import DecodeError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return clock_in(monkeypatch, calibration_module, decoder_module, drafting_module)


@pytest.mark.parametrize("prompt_length", [10, 40, 200, 1000])
@pytest.mark.parametrize("share", [0.03, 0.1])
def test_a_perfect_cheap_draft_ends_clearly_faster_than_plain(clock: Clock, prompt_length: int, share: float) -> None:
    simulation = Simulation(clock, Pair(fresh_text(ahead_of(prompt_length)), share))
    ratio = simulation.against_plain(prompt_length)
    assert ratio <= 0.7, f"expected at most 70 % of the time of plain decoding, took {ratio:.0%}"


@pytest.mark.parametrize("probability", [0.3, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("share", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("prompt_length", [10, 200])
def test_a_draft_that_is_never_right_costs_next_to_nothing(
    clock: Clock, share: float, probability: float, prompt_length: int
) -> None:
    pair = Pair(fresh_text(ahead_of(prompt_length)), share, never, probability)
    ratio = Simulation(clock, pair).against_plain(prompt_length)
    reading = READING_SHARE * share * prompt_length / LENGTH  # whoever would ever draft must read the prompt once
    allowed = 0.03 + (reading if prompt_length > 100 else 0.0)
    assert ratio <= 1 + allowed, f"expected at most {allowed:.1%} over plain decoding, took {ratio - 1:.1%}"


@pytest.mark.parametrize("stairs", [STAIRS, EVERY_ROW_COUNTS, FLAT], ids=["stairs", "every row counts", "flat"])
@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
def test_a_draft_that_is_right_by_chance_costs_next_to_nothing(
    clock: Clock, share: float, stairs: Mapping[int, float]
) -> None:
    rng = np.random.default_rng(1)
    right = rng.random(1000) < 0.3
    pair = Pair(fresh_text(ahead_of(20)), share, lambda place: bool(right[place]), 0.8, stairs)
    ratio = Simulation(clock, pair).against_plain(20)
    assert ratio <= 1.03, f"expected at most 3 % over plain decoding, took {ratio - 1:.1%}"


@pytest.mark.parametrize("stairs", [STAIRS, EVERY_ROW_COUNTS], ids=["stairs", "every row counts"])
@pytest.mark.parametrize("prompt_length", [10, 200])
@pytest.mark.parametrize("n_vocab", [8, 24, 200])
def test_lookup_candidates_that_are_never_right_cost_next_to_nothing(
    clock: Clock, prompt_length: int, n_vocab: int, stairs: Mapping[int, float]
) -> None:
    pair = Pair(misleading_text(ahead_of(prompt_length), n_vocab), stairs=stairs)
    ratio = Simulation(clock, pair).against_plain(prompt_length)
    assert ratio <= 1.03, f"expected at most 3 % over plain decoding, took {ratio - 1:.1%}"


def test_lookup_and_a_draft_that_are_never_right_cost_next_to_nothing_together(clock: Clock) -> None:
    pair = Pair(misleading_text(ahead_of(20)), 0.1, never)
    ratio = Simulation(clock, pair).against_plain(20)
    assert ratio <= 1.04, f"both must be found out: expected at most 4 % over plain decoding, took {ratio - 1:.1%}"


def test_a_text_that_repeats_is_written_by_lookup(clock: Clock) -> None:
    simulation = Simulation(clock, Pair(looping_text(ahead_of(90))))
    ratio = simulation.against_plain(90)
    assert ratio <= 0.4, f"16 rows cost 3.6 passes: expected well under half of plain decoding, took {ratio:.0%}"


@pytest.mark.parametrize(("share", "reads"), [(0.5, True), (1.0, False)])
def test_lookup_writes_what_repeats_where_the_draft_is_dear(clock: Clock, share: float, reads: bool) -> None:
    simulation = Simulation(clock, Pair(looping_text(ahead_of(90)), share))
    assert simulation.against_plain(90) <= 0.4
    assert simulation.draft is not None
    assert bool(simulation.draft.calls) is reads, "a model that can win reads the prompt, another never does"
    assert all(rows == 0 for _, rows in simulation.draft.calls), "the match is long and free: the model is not asked"


def test_a_draft_that_goes_bad_in_the_middle_is_left(clock: Clock) -> None:
    pair = Pair(fresh_text(ahead_of(20, 1000)), 0.1, lambda place: place < 270)
    simulation = Simulation(clock, pair)
    _, good = simulation.answer(20, "auto", 250)
    _, all_of_it = simulation.answer(20, "auto", 1000)
    assert good <= 175
    assert all_of_it - good <= 750 * 1.08, "at most a few drafts until it is noticed, and exploration"


def test_a_draft_that_comes_good_is_tried_again(clock: Clock) -> None:
    pair = Pair(fresh_text(ahead_of(20, 1500)), 0.02, lambda place: place >= 320)
    simulation = Simulation(clock, pair)
    simulation.answer(20, "auto", 300)
    _, time = simulation.answer(20, "auto", 1500)
    assert time <= 1400, "1,200 of 1,500 tokens could be drafted rightly: exploration should have found it"


@pytest.mark.parametrize("stairs", [CLIFF_4, CLIFF_8], ids=["4 rows", "8 rows"])
def test_whole_answers_stay_on_the_cheap_step(clock: Clock, stairs: Mapping[int, float]) -> None:
    simulation = Simulation(clock, Pair(fresh_text(ahead_of(20)), 0.02, stairs=stairs))
    simulation.answer(20)
    verified = [len(tokens) for tokens, rows in simulation.target.calls[-40:] if rows == len(tokens)]
    step = sum(seconds == 1.0 for seconds in stairs.values())
    assert max(verified) <= step
    assert verified.count(step) >= len(verified) // 2, f"expected passes of {step} rows, saw {verified}"


def test_exploration_stays_within_its_share(clock: Clock) -> None:
    pair = Pair(fresh_text(ahead_of(10, 1500)), 0.03, never, 0.6)
    simulation = Simulation(clock, pair)
    simulation.answer(10, count=300)
    assert simulation.draft is not None
    before, started = simulation.draft.spent, simulation.clock.now
    simulation.answer(10, count=1500)
    spent, time = simulation.draft.spent - before, simulation.clock.now - started
    experience = simulation.experience
    assert 0 < experience.explored_seconds <= EXPLORATION * experience.decode_seconds + 2 * UNIT
    assert spent <= 2 * EXPLORATION * time, "what is known to be bad is asked only to explore"


def test_no_exploring_where_a_draft_could_not_win_at_its_best(clock: Clock) -> None:
    simulation = Simulation(clock, Pair(fresh_text(ahead_of(10)), 1.2, stairs=EVERY_ROW_COUNTS))
    assert simulation.against_plain(10) == pytest.approx(1.0)
    assert simulation.draft is not None
    assert simulation.draft.calls == []


def test_what_was_learned_outlives_the_answer(clock: Clock) -> None:
    simulation = Simulation(clock, Pair(fresh_text(ahead_of(10)), 0.1, never))
    for _ in range(3):
        _, time = simulation.answer(10, count=200)
    assert time <= 200 * 1.03, "by the third answer the draft is known"


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_after_another_conversation_behind_is_never_negative(clock: Clock, share: float) -> None:
    text = fresh_text(1200)
    simulation = Simulation(clock, Pair(text, share))
    assert simulation.draft is not None
    seen: list[tuple[int, int]] = []

    class Watched(DraftModel):
        def behind(self, committed: Sequence[int]) -> int:
            behind = super().behind(committed)
            seen.append((behind, len(committed)))
            return behind

    for prompt in (text[:400], text[:30], [*text[5:30], *text[:5]], text[:2], text[:400]):
        auto = Auto(PromptLookup(4), Watched(simulation.draft, N_VOCAB), simulation.experience)
        list(auto.begin(prompt))
        committed = list(prompt)
        for _ in range(30):
            draft = auto.propose(ask(committed, 15))
            auto.accept(outcome(committed, draft, len(draft), UNIT))
            committed += [*draft.tokens, text[len(committed) + len(draft)]]
    assert seen
    assert all(1 <= behind <= length for behind, length in seen)


@pytest.mark.parametrize("prompt_length", [1, 2, 10])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 17])
def test_short_answers_are_the_targets_own(clock: Clock, prompt_length: int, count: int) -> None:
    simulation = Simulation(clock, Pair(fresh_text(100), 0.05))
    auto, _ = simulation.answer(prompt_length, "auto", count)
    plain, _ = simulation.answer(prompt_length, "none", count)
    assert auto.tokens == plain.tokens


@pytest.mark.parametrize("cap", [1, 2, 7, 15])
def test_the_cap_is_kept(clock: Clock, cap: int) -> None:
    for text in (fresh_text(300), looping_text(300)):
        simulation = Simulation(clock, Pair(text, 0.02))
        start = len(simulation.target.calls)
        done = answer(Plan(text[:80], 100).with_mode("auto", cap), simulation.target, simulation.drafters)
        assert list(done.tokens) == text[80:180]
        rows = [rows for _, rows in simulation.target.calls[start:]]
        assert max(rows) == cap + 1, "drafts as long as they may be, never longer"


def test_without_a_cap_a_copy_fills_the_longest_pass_and_the_draft_model_writes_no_more_than_its_share(
    clock: Clock,
) -> None:
    for text, longest in ((looping_text(600), 64), (fresh_text(600), LONG_DRAFT + 1)):
        simulation = Simulation(clock, Pair(text, 0.02, stairs=FLAT))
        start = len(simulation.target.calls)
        done, _ = simulation.answer(80, count=400)
        rows = [rows for _, rows in simulation.target.calls[start:]]
        assert max(rows) == longest
        assert done.stats.max_draft_tokens == 63


@pytest.mark.parametrize("failing", [0, 1, 2, 5])
def test_a_draft_that_fails_is_given_up_and_the_answer_goes_on(clock: Clock, failing: int) -> None:
    simulation = Simulation(clock, Pair(fresh_text(ahead_of(10)), 0.05))
    assert simulation.draft is not None
    simulation.draft.fail_decode = {failing: 1}
    simulation.answer(10, count=60)
    assert "auto" in simulation.drafters.failed
    simulation.answer(10, count=60)
    assert simulation.drafters.failed == {}


@pytest.mark.parametrize("failing", [0, 1, 2, 5])
def test_an_answer_after_an_aborted_one_is_the_targets_own(clock: Clock, failing: int) -> None:
    simulation = Simulation(clock, Pair(fresh_text(ahead_of(10)), 0.05))
    assert simulation.draft is not None
    simulation.draft.fail_decode = {failing: 2}
    with pytest.raises(DecodeError):
        simulation.answer(10)
    ratio = simulation.against_plain(10)
    assert ratio <= 0.7
