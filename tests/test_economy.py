"""What auto knows by hand: rates of copies with an answer's hazard, the stake, what a draft model costs and gains."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

import numpy as np
import pytest
from auto_texts import EVERY_ROW_COUNTS, FLAT, STAIRS

from specui.engine.costs import PassCosts
from specui.engine.drafting import Outcome
from specui.engine.economy import (
    ACCEPTANCE_CARRIED,
    ACCEPTANCE_PRIOR,
    ALLOWANCE,
    CREDIT_TOKENS,
    HAZARD_MEMORY,
    HAZARD_PRIOR,
    HAZARD_WEIGHT,
    LOOKUP_PRIORS,
    MOST_CREDIT_TOKENS,
    SURE,
    DraftEconomy,
    Experience,
    LookupRates,
    Stake,
)
from specui.engine.lookup import AGREEMENTS, CLASSES, LONGEST_MATCH, MATCH_BOUNDS, evidence
from specui.engine.rates import ANSWER_WEIGHT, MEMORY, SuccessRates
from specui.engine.verification import Draft

PRIORS = [LOOKUP_PRIORS[agreement][place] for place in range(1 + len(MATCH_BOUNDS)) for agreement in AGREEMENTS]
SURE_CLASS = evidence(LONGEST_MATCH, AGREEMENTS.index("agreed"))
DOUBTFUL_CLASS = evidence(1, AGREEMENTS.index("disputed"))
OTHER_CLASS = evidence(9, AGREEMENTS.index("alone"))


# How often copied tokens are right.


def test_a_new_answer_expects_more_misses_than_usual() -> None:
    expected = [max(0.0, 1 - HAZARD_PRIOR * (1 - prior)) for prior in PRIORS]
    assert LookupRates().table == pytest.approx(expected)
    assert len(expected) == CLASSES


@pytest.mark.parametrize("seed", range(6))
def test_the_table_equals_rates_by_hand(seed: int) -> None:
    """The prior weighs the same for ever; each guess weighs less by every later one."""
    rng, known = np.random.default_rng(seed), LookupRates()
    usual = SuccessRates(range(1, CLASSES), PRIORS)
    guesses = [(int(rng.integers(CLASSES)), bool(rng.random() < 0.7)) for _ in range(60)]
    misses, expected = [], []
    for place, (each, hit) in enumerate(guesses, start=1):
        misses.append(float(not hit))
        expected.append(1 - usual.rate(each))
        usual.observe(each, hit)
        known.observe(each, hit)
        weights = HAZARD_MEMORY ** np.arange(place - 1, -1, -1)
        hazard = (HAZARD_PRIOR * HAZARD_WEIGHT + weights @ misses) / (HAZARD_WEIGHT + weights @ expected)
        assert known.table == pytest.approx([max(0.0, 1 - hazard * (1 - rate)) for rate in usual.rates])


@pytest.mark.parametrize("guessed", [SURE_CLASS, OTHER_CLASS, DOUBTFUL_CLASS])
def test_hits_of_one_class_raise_the_others_too(guessed: int) -> None:
    known = LookupRates()
    seen = [known.table[evidence(14, 0)]]
    for _ in range(30):
        known.observe(guessed, hit=True)
        seen.append(known.table[evidence(14, 0)])
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]


def test_misses_of_one_class_lower_the_others_too_and_most_where_they_were_not_expected() -> None:
    after = {}
    for guessed in (SURE_CLASS, OTHER_CLASS, DOUBTFUL_CLASS):
        known = LookupRates()
        before = known.table[evidence(14, 0)]
        for _ in range(5):
            known.observe(guessed, hit=False)
        after[guessed] = known.table[evidence(14, 0)]
    assert after[SURE_CLASS] < after[OTHER_CLASS] < before
    assert after[DOUBTFUL_CLASS] > after[OTHER_CLASS], "a miss that was expected is no surprise"


@pytest.mark.parametrize("hit", [True, False])
def test_the_next_answer_begins_with_the_old_caution_and_what_was_learned(hit: bool) -> None:
    known = LookupRates()
    for _ in range(40):
        known.observe(OTHER_CLASS, hit)
    records = known.records
    bent = known.table
    known.begin_answer()
    assert known.records == records
    assert known.table == pytest.approx([max(0.0, 1 - HAZARD_PRIOR * (1 - record.rate)) for record in records])
    assert known.table != pytest.approx(bent)


def test_surprises_are_forgotten_within_an_answer() -> None:
    known = LookupRates()
    sure = [place for place, prior in enumerate(PRIORS) if prior >= 0.9 and place != OTHER_CLASS]
    for each in sure:
        known.observe(each, hit=False)
    low = known.table[OTHER_CLASS]
    for _ in range(20):
        for each in sure:
            known.observe(each, hit=True)
    assert low < 0.6 < 0.9 < known.table[OTHER_CLASS]


def test_what_faces_show_is_the_usual_rate_by_length_all_agreements_together() -> None:
    known = LookupRates()
    by_hand = SuccessRates(range(len(AGREEMENTS) - 1), [LOOKUP_PRIORS[agreement][3] for agreement in AGREEMENTS])
    for place, times, hit in ((0, 5, False), (1, 20, True), (2, 1, True)):
        for _ in range(times):
            by_hand.observe(place - 0.5, hit)
            known.observe(evidence(5, place), hit)
    rates = known.by_length()
    assert [rate.match_length for rate in rates] == [1, *MATCH_BOUNDS]
    assert [rate.seen for rate in rates] == [0, 0, 0, 26, 0, 0, 0, 0]
    trials = sum(record.trials for record in by_hand.records)
    assert trials == pytest.approx(4 * 8 + sum(MEMORY**n for n in range(5)) + ANSWER_WEIGHT + 1)
    assert rates[3].rate == pytest.approx(sum(record.hits for record in by_hand.records) / trials)
    assert rates[0].rate == pytest.approx(sum(LOOKUP_PRIORS[each][0] for each in AGREEMENTS) / len(AGREEMENTS))


def test_what_is_recalled_holds_at_once() -> None:
    known, other = LookupRates(), LookupRates()
    assert other.table == known.table
    for _ in range(20):
        known.observe(OTHER_CLASS, hit=True)
    other.recall(known.records)
    assert other.records == known.records
    known.begin_answer()
    assert other.table == pytest.approx(known.table)
    other.recall(known.records[:-1])
    assert other.records == known.records, "records of other classes than these are left alone"


# What drafts may lose.

PLAIN = 0.02


def step(drafted: int, accepted: int, seconds: float, draft_seconds: float = 0.0) -> Outcome:
    return Outcome(50, Draft([1] * drafted), accepted, drafted + 1, draft_seconds, seconds)


COSTS = PassCosts({1: PLAIN, 4: 0.05, 16: 0.07})


def test_an_answer_begins_with_a_little_credit() -> None:
    assert Stake(PLAIN).seconds == pytest.approx(CREDIT_TOKENS * PLAIN)


@pytest.mark.parametrize(
    ("outcome", "asked", "won"),
    [
        (step(0, 0, 0.02), False, ALLOWANCE * 0.02),
        (step(0, 0, 0.02, 0.01), True, -0.01),
        (step(3, 0, 0.05), False, 0.02 - 0.05),
        (step(3, 3, 0.05), False, 4 * 0.02 - 0.05),
        (step(3, 1, 0.05, 0.03), True, 2 * 0.02 - 0.08),
    ],
    ids=["plain", "asked in vain", "all wrong", "all right", "the draft's time counts"],
)
def test_each_step_is_settled_against_plain_decoding(outcome: Outcome, asked: bool, won: float) -> None:
    stake = Stake(PLAIN)
    stake.settle(outcome, COSTS, asked)
    assert stake.seconds == pytest.approx(CREDIT_TOKENS * PLAIN + won)


def test_a_busy_moment_is_no_fault_of_the_draft() -> None:
    stake = Stake(PLAIN)
    stake.settle(step(3, 3, 60.0), COSTS, asked=False)
    assert stake.seconds == pytest.approx((CREDIT_TOKENS + 4) * PLAIN - 2 * COSTS.seconds(4))


def test_what_was_won_can_be_lost_again_but_not_all_of_a_long_answers() -> None:
    stake = Stake(PLAIN)
    for _ in range(200):
        stake.settle(step(15, 15, 0.07), COSTS, asked=False)
    assert stake.seconds == pytest.approx(MOST_CREDIT_TOKENS * PLAIN)
    while stake.seconds > 0:
        stake.settle(step(15, 0, 0.07), COSTS, asked=False)
    assert not stake.allows(0.001, 0.0)
    for _ in range(400):
        stake.settle(step(0, 0, 0.02), COSTS, asked=False)
    assert stake.allows(0.001, 0.0), "plain steps earn a little"


def test_a_sure_draft_is_always_allowed_and_a_gamble_only_within_the_stake() -> None:
    stake = Stake(PLAIN)
    assert stake.allows(CREDIT_TOKENS * PLAIN, 0.0)
    assert not stake.allows(1.01 * CREDIT_TOKENS * PLAIN, 0.0)
    stake.seconds = -5.0
    assert stake.allows(0.99 * SURE * 0.1, 0.1)
    assert not stake.allows(1.01 * SURE * 0.1, 0.1)
    assert not stake.allows(0.0, -0.1), "nothing is allowed that is expected to lose"


def survivals(rate: float, length: int) -> list[float]:
    return list(accumulate([rate] * length, mul))


def allows(know: Experience, rate: float, rows: int) -> bool:
    kept = survivals(rate, rows - 1)
    return know.allows(1 + sum(kept), kept, know.costs.seconds(rows))


def test_at_risk_is_what_a_step_costs_where_its_draft_does_not_pay_for_itself() -> None:
    know = Experience(PassCosts(STAIRS))
    know.stake.seconds = 0.0
    assert allows(know, 0.99, 16), "3.6 passes need three tokens, 15 are expected"
    assert not allows(know, 0.5, 16), "most often three are not reached"
    assert allows(know, 0.9, 4), "one in ten times 0.4 passes are lost, 2 won"
    assert not allows(know, 0.5, 4), "every other time 0.4 passes are lost, half a one is won"
    know.stake.seconds = 5.0
    assert allows(know, 0.5, 16)
    risk = (1 - 0.5**3) * 2.6  # 3.6 passes pay for themselves with three tokens kept
    for stake in (0.99 * risk, 1.01 * risk):
        know.stake.seconds = stake
        assert allows(know, 0.5, 16) is (stake > risk)


def test_where_rows_cost_nothing_every_draft_is_allowed() -> None:
    know = Experience(PassCosts(FLAT))
    know.stake.seconds = 0.0
    assert all(allows(know, rate, rows) for rate in (0.01, 0.5, 1.0) for rows in (2, 16, 64))


# What the draft model costs and gains.


def gain_by_hand(token: float, acceptance: float, stairs: Sequence[float]) -> float:
    best = 0.0
    for length in range(1, len(stairs)):
        tokens = sum(acceptance**place for place in range(length + 1))
        best = max(best, tokens / (length * token + stairs[length]))
    return best * stairs[0]


@pytest.mark.parametrize("token", [0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("acceptance", [None, 0.3, 0.95])
def test_the_gain_of_a_draft_model_is_that_of_its_best_length(token: float, acceptance: float | None) -> None:
    for stairs in (STAIRS, EVERY_ROW_COUNTS, FLAT):
        know = Experience(PassCosts(stairs), token)
        expected = gain_by_hand(
            token, ACCEPTANCE_PRIOR if acceptance is None else acceptance, list(stairs.values())[:8]
        )
        assert know.draft_gain(7, acceptance) == pytest.approx(expected)


def test_the_price_of_a_draft_token_follows_what_proposals_take() -> None:
    draft = DraftEconomy(PassCosts(STAIRS), 0.3)
    prices = [draft.token_seconds]
    for _ in range(80):
        draft.observe_time(1, 0.9)
        prices.append(draft.token_seconds)
    assert prices == sorted(prices)
    assert draft.token_seconds == pytest.approx(0.9, rel=0.01)
    draft.observe_time(1, 500.0)
    assert draft.token_seconds < 1.0, "a single hiccup is worth a tenth at the most"
    for _ in range(80):
        draft.observe_time(1, 0.2)
    assert draft.token_seconds == pytest.approx(0.2, rel=0.01)


def test_the_price_of_a_draft_token_keeps_its_place_beside_plain_passes() -> None:
    know = Experience(PassCosts(STAIRS), 0.3)
    for _ in range(200):
        know.costs.observe(1, 2.0 * STAIRS[1])
    assert know.draft.token_seconds == pytest.approx(0.6, rel=0.01), "the machine is half as fast for both"
    start = Experience(PassCosts(STAIRS))
    start.recall(know.known(with_draft=True))
    for _ in range(5):
        again = Experience(PassCosts(STAIRS))
        start.costs.observe(1, 1.2 * STAIRS[1])
        again.recall(start.known(with_draft=True))
        start = again
    assert start.draft.token_seconds == pytest.approx(0.3), "starts that tell another pace do not wear it down"


@pytest.mark.parametrize("tokens", [0, 1, 15, 63, 200])
def test_reading_is_priced_by_what_passes_of_several_rows_take(tokens: int) -> None:
    draft = DraftEconomy(PassCosts(STAIRS), 0.3)
    draft.measured(0.3, 0.3 + 15 * 0.06)
    expected = {0: 0.0, 1: 0.06, 15: 0.9, 63: 3.78, 200: (0.3 + 63 * 0.06) * 201 / 64 - 0.3}
    assert draft.reading_seconds(tokens) == pytest.approx(expected[tokens])


def test_what_reading_takes_is_learned_by_its_length() -> None:
    draft = DraftEconomy(PassCosts(STAIRS), 0.3)
    for _ in range(80):
        draft.observe_time(2, 0.54)
    assert draft.reading_seconds(1) == pytest.approx(0.24, rel=0.02)
    assert draft.token_seconds == pytest.approx(0.3)


def test_rates_outlive_an_answer_and_stake_and_hazard_do_not() -> None:
    know = Experience(PassCosts(STAIRS), 0.3)
    for _ in range(30):
        know.lookup.observe(OTHER_CLASS, hit=False)
        know.observe_step(step(3, 0, 1.4))
    records = know.lookup.records
    assert know.stake.seconds < 0
    know.begin_answer()
    assert know.stake.seconds == pytest.approx(CREDIT_TOKENS * know.costs.seconds(1))
    assert know.lookup.records == records
    assert know.lookup.table == pytest.approx([max(0.0, 1 - HAZARD_PRIOR * (1 - each.rate)) for each in records])


def test_an_answer_begins_with_the_acceptance_that_is_usual() -> None:
    know = Experience(PassCosts(STAIRS), 0.3)
    usual = ACCEPTANCE_PRIOR
    for hit in (False, False, True):
        for _ in range(40):
            know.draft.observe(0.99, hit)
        ended = know.draft.acceptance
        usual += ACCEPTANCE_CARRIED * (ended - usual)
        assert know.known(with_draft=True).acceptance == pytest.approx(usual), "kept as the next answer will find it"
        know.begin_answer()
        assert know.draft.acceptance == pytest.approx(usual)
        know.begin_answer()
        assert know.draft.acceptance == pytest.approx(usual), "an answer without drafts says nothing"
    assert 0.25 < usual < 0.75
    start = Experience(PassCosts(STAIRS))
    start.recall(know.known(with_draft=True))
    start.begin_answer()
    assert start.draft.acceptance == pytest.approx(usual)
    assert start.draft.by_confidence.records == know.draft.by_confidence.records


def test_a_doubt_is_not_kept() -> None:
    kept = {rows: STAIRS[rows] for rows in (1, 4, 12, 16, 64)}
    know = Experience(PassCosts(kept), 0.3)
    for turn in range(2000):
        know.costs.passed_over(16) if turn < 1000 else know.costs.doubt(14)
        know.costs.at(1000 * (turn % 2))
    assert know.costs.seconds(16) == pytest.approx(0.5 * STAIRS[16])
    assert know.costs.seconds(14) >= 0.5 * STAIRS[12], "the floor of a size that was never read is not a doubted one"
    assert know.known(with_draft=True).pass_seconds == pytest.approx(kept)
    know.costs.observe(16, 0.5 * know.costs.seconds(16))
    assert know.known(with_draft=True).pass_seconds[16] == pytest.approx(know.costs.seconds(16)), "a reading is"
