"""Mode `auto` in scripted time: what it chooses from made-up costs, and whole answers on a clock of fake passes.

Time is counted in single target passes. Texts are fixed by place, so that a drafter is right or wrong by plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from fake_clock import Clock
from fake_model import Done, FakeCache, FakeDrafters, Plan, Script, answer

from specui.config import DraftingSettings, SamplingSettings, SpeculationMode
from specui.engine import costs as costs_module
from specui.engine import decoder as decoder_module
from specui.engine.controller import EXPLORATION, Auto, Experience
from specui.engine.costs import PassCosts, calibrate
from specui.engine.dice import Dice
from specui.engine.drafting import Drafter, DraftModel, NoDrafter, Outcome, PromptLookup, Proposal
from specui.engine.sampling import Logits
from specui.engine.verification import EMPTY_DRAFT, Draft
from specui.errors import DecodeError

N_VOCAB = 2048
LENGTH = 500
UNIT = 0.01
"""Seconds of a target pass of one row in the simulations."""
READING_SHARE = 0.25
"""Reading a token costs the fake draft model this share of writing one."""
STAIRS = {1: 1.0, 2: 1.3, 3: 1.35, 4: 1.4, **dict.fromkeys(range(5, 9), 2.2), **dict.fromkeys(range(9, 17), 3.6)}
CLIFF_4 = {**dict.fromkeys(range(1, 5), 1.0), **dict.fromkeys(range(5, 17), 12.0)}
CLIFF_8 = {**dict.fromkeys(range(1, 9), 1.0), **dict.fromkeys(range(9, 17), 9.0)}
FLAT = dict.fromkeys(range(1, 17), 1.0)
HALF_COUNTS = {rows: 0.5 + 0.5 * rows for rows in range(1, 17)}
EVERY_ROW_COUNTS = {rows: float(rows) for rows in range(1, 17)}

Text = Sequence[int]


def fresh_text(length: int) -> list[int]:
    """Return tokens of which none occurs twice, so that lookup never finds a match."""
    return [int(token) for token in np.random.default_rng(5).permutation(N_VOCAB)[:length]]


def misleading_text(length: int, n_vocab: int = 24) -> list[int]:
    """Return a text in which lookup finds a match nearly everywhere, and what it copies is never right."""
    rng, lookup = np.random.default_rng(6), PromptLookup(4)
    text = [0]
    while len(text) < length:
        candidate = lookup.find(text, 1)
        token = int(rng.integers(n_vocab))
        if candidate is None or token != candidate.tokens[0]:
            text.append(token)
    return text


def looping_text(length: int, period: int = 40) -> list[int]:
    return [place % period for place in range(length)]


def always(place: int) -> bool:
    return True


def never(place: int) -> bool:
    return False


def confident(token: int, probability: float) -> Logits:
    """Return a row whose best token is `token` with `probability`."""
    row = np.full(N_VOCAB, np.log((1 - probability) / (N_VOCAB - 1)), np.float32)
    row[token] = np.log(probability)
    return row


def says(text: Text, right: Callable[[int], bool] = always, probability: float = 0.995) -> Script:
    """Return a script that says `text[place]` at every place, or another token where it is not `right`."""

    def script(tokens: Sequence[int]) -> Logits:
        place = len(tokens)
        token = text[place] if place < len(text) else 0
        return confident(token if right(place) else (token + 1) % N_VOCAB, probability)

    return script


class TimedCache(FakeCache):
    """A fake cache whose decodes take scripted time, by number of tokens and of rows."""

    def __init__(self, script: Script, clock: Clock, price: Callable[[int, int], float]) -> None:
        super().__init__(script)
        self.spent = 0.0
        self._clock, self._price = clock, price

    def decode(self, tokens: Sequence[int], rows: int) -> None:
        super().decode(tokens, rows)
        self.spent += self._price(len(tokens), rows)
        self._clock.now += self._price(len(tokens), rows)


class AutoDrafters(FakeDrafters):
    """A lane's rules with mode `auto`: one `Auto` per answer, one experience for all."""

    def __init__(self, experience: Experience, draft: FakeCache | None) -> None:
        super().__init__(draft)
        self.experience = experience
        self._auto: Auto | None = None

    def begin_answer(self) -> None:
        super().begin_answer()
        self._auto = None

    def pick(self, drafting: DraftingSettings) -> tuple[Drafter, SpeculationMode, str | None]:
        if drafting.speculation != "auto" or "auto" in self.failed:
            return NoDrafter(), "none", self.failed.get("auto")
        self.picked = "auto"
        if self._auto is None:
            draft = DraftModel(self.draft, N_VOCAB) if self.draft else None
            self._auto = Auto(PromptLookup(drafting.max_ngram_size), draft, self.experience)
        return self._auto, "auto", None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(costs_module, "time", clock)
    monkeypatch.setattr(decoder_module, "time", clock)
    return clock


@dataclass(frozen=True)
class Pair:
    """A text to be written, the draft model's part in it, and what passes cost in single target passes."""

    text: Text
    draft_share: float | None = None
    right: Callable[[int], bool] = always
    probability: float = 0.995
    stairs: Mapping[int, float] = field(default_factory=lambda: STAIRS)


class Simulation:
    """A target and a draft in scripted time. Reading a prompt is free for the target, not for the draft."""

    def __init__(self, clock: Clock, pair: Pair) -> None:
        self.clock, self.pair = clock, pair

        def target_price(tokens: int, rows: int) -> float:
            return UNIT * pair.stairs[rows] if rows == tokens else 0.0

        self.target = TimedCache(says(pair.text), clock, target_price)
        self.draft: TimedCache | None = None
        share = pair.draft_share
        if share is not None:
            self.draft = TimedCache(
                says(pair.text, pair.right, pair.probability),
                clock,
                lambda tokens, _rows: UNIT * share * max(1.0, READING_SHARE * tokens),
            )
        costs = calibrate(self.target)
        self.experience = Experience(costs, costs.seconds(1) * (share or 1.0))
        self.drafters = AutoDrafters(self.experience, self.draft)

    def answer(self, prompt_length: int, mode: SpeculationMode = "auto", count: int = LENGTH) -> tuple[Done, float]:
        """Return an answer with its time in single target passes; its ids must be those of the text."""
        text = self.pair.text
        plan = Plan(text[:prompt_length], max_tokens=count).with_mode(mode)
        self.target.clear()
        started = self.clock.now
        done = answer(plan, self.target, self.drafters)
        assert list(done.tokens) == list(text[prompt_length : prompt_length + count]), "the ids are not the target's"
        return done, (self.clock.now - started) / UNIT

    def against_plain(self, prompt_length: int, count: int = LENGTH) -> float:
        """Return the time of an answer in `auto` as a share of the same answer's in `none`."""
        plain, plain_time = self.answer(prompt_length, "none", count)
        done, time = self.answer(prompt_length, "auto", count)
        assert plain.tokens == done.tokens
        return time / plain_time


def ahead_of(prompt_length: int, count: int = LENGTH) -> int:
    return prompt_length + count + 80


# Whole answers in scripted time.


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


def test_lookup_writes_what_repeats_where_the_draft_is_dear(clock: Clock) -> None:
    simulation = Simulation(clock, Pair(looping_text(ahead_of(90)), 0.5))
    assert simulation.against_plain(90) <= 0.4
    assert simulation.draft is not None
    assert simulation.draft.calls == [], "the match is long and free"


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
    pair = Pair(fresh_text(ahead_of(10, 1500)), 0.1, never, 0.6)
    simulation = Simulation(clock, pair)
    simulation.answer(10, count=300)
    assert simulation.draft is not None
    before, started = simulation.draft.spent, simulation.clock.now
    simulation.answer(10, count=1500)
    spent, time = simulation.draft.spent - before, simulation.clock.now - started
    experience = simulation.experience
    assert 0 < experience.explored_seconds <= EXPLORATION * experience.decode_seconds
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


# Single choices from made-up costs; a plain pass takes 1 second.


def ask(committed: Sequence[int], limit: int = 15) -> Proposal:
    return Proposal(list(committed), limit, SamplingSettings(), Dice(0))


def outcome(committed: Sequence[int], draft: Draft, accepted: int, unit: float = 1.0, drafting: float = 0.0) -> Outcome:
    rows = len(draft) + 1
    return Outcome(len(committed), draft, accepted, rows, drafting, unit * STAIRS[rows])


def experience_of(stairs: Mapping[int, float], draft_seconds: float = 1.0) -> Experience:
    return Experience(PassCosts(stairs), draft_seconds)


def auto_on(prompt: Sequence[int], know: Experience, draft: FakeCache | None = None) -> Auto:
    auto = Auto(PromptLookup(4), DraftModel(draft, N_VOCAB) if draft else None, know)
    assert list(auto.begin(prompt)) == [], "the draft model reads the prompt when it is first used"
    return auto


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
    assert cache.calls == [], "lookup has a match of 32 tokens: the model is not asked"
    cache = FakeCache(says(fresh))
    draft = auto_on(fresh[:10], know, cache).propose(ask(fresh[:10]))
    assert list(draft.tokens) == fresh[10 : 10 + len(draft)]
    assert cache.num_decoded >= 10


def test_a_short_match_that_was_often_wrong_goes_to_the_draft_model() -> None:
    text = [*fresh_text(20), fresh_text(20)[3]]
    know = experience_of(STAIRS, 0.05)
    for _ in range(60):
        know.by_match.observe(1, hit=False)
    cache = FakeCache(lambda tokens: confident(1000 + len(tokens), 0.995))
    draft = auto_on(text, know, cache).propose(ask(text))
    assert list(draft.tokens)[:2] == [1021, 1022], "the model's words, not the copied ones"


def test_nothing_is_drafted_where_acceptance_is_low() -> None:
    loop = looping_text(200)
    know = experience_of(STAIRS, 0.1)
    for _ in range(150):
        for match in range(1, 40):
            know.by_match.observe(match, hit=False)
        for confidence in (0.1, 0.4, 0.6, 0.75, 0.85, 0.92, 0.97, 0.999):
            know.draft.observe(confidence, hit=False)
    cache = FakeCache(says(loop))
    auto = auto_on(loop[:100], know, cache)
    assert auto.propose(ask(loop[:100])) is EMPTY_DRAFT
    assert cache.calls == []


def test_no_draft_model_and_no_match_make_a_plain_step() -> None:
    text = fresh_text(20)
    assert len(auto_on(text, experience_of(FLAT)).propose(ask(text))) == 0


def test_a_long_prompt_is_read_by_the_draft_model_only_after_enough_was_written() -> None:
    text = fresh_text(1600)
    waited = {}
    for prompt_length in (10, 300, 1000):
        cache = FakeCache(says(text))
        auto = auto_on(text[:prompt_length], experience_of(STAIRS, 0.1), cache)
        waited[prompt_length] = plain_steps(auto, text[:prompt_length], text, 500)
        assert (cache.num_decoded > 0) is (waited[prompt_length] < 500)
    assert waited[10] == 0, "next to nothing is to be read"
    assert 0 < waited[1000] < 300, "not at once, and not never"
    assert waited[300] <= waited[1000]


def test_a_rate_that_drafting_reached_is_not_given_up_for_a_worse_draft() -> None:
    know = experience_of(STAIRS)
    assert know.value(1, 0.0) == pytest.approx(1.0)
    for _ in range(30):
        know.observe_step(Outcome(10, Draft([1] * 15), 15, 16, 0.4, STAIRS[16]))
    assert know.value(1, 0.0) == pytest.approx((STAIRS[16] + 0.4) / 16, rel=0.1), "what a token costs by now"
    for _ in range(100):
        know.observe_step(Outcome(10, Draft([1] * 15), 0, 16, 0.4, STAIRS[16]))
    assert know.value(1, 0.0) == pytest.approx(know.costs.seconds(1), rel=0.05), (
        "never held dearer than in plain decoding"
    )


def test_lookup_learns_from_steps_that_drafted_nothing() -> None:
    text = looping_text(400)
    know = experience_of({1: 1.0, 2: 9.0, 16: 90.0})
    auto, committed = auto_on(text[:41], know), text[:41]
    before = [know.by_match.rate(match) for match in (1, 2, 3, 5, 8, 12, 20, 32)]
    for _ in range(150):
        draft = auto.propose(ask(committed))
        assert len(draft) == 0, "nine passes for a second row: never worth it"
        auto.accept(Outcome(len(committed), draft, 0, 1, 0.0, 1.0))
        committed.append(text[len(committed)])
    after = [know.by_match.rate(match) for match in (1, 2, 3, 5, 8, 12, 20, 32)]
    assert after[-1] > 0.98 > before[-1]
    assert all(new >= old for new, old in zip(after, before, strict=True))


def test_lookup_unlearns_from_steps_that_drafted_nothing_and_then_learns_to_draft_again() -> None:
    know = experience_of(STAIRS)
    wrong = misleading_text(400)
    auto, committed = auto_on(wrong[:50], know), wrong[:50]
    plain_steps(auto, committed, wrong, 200)
    low = know.by_match.rate(1)
    assert low < 0.1
    loop = looping_text(300)
    auto, committed = auto_on(loop[:41], know), loop[:41]
    assert plain_steps(auto, committed, loop, 100) < 60, "a repetition is taken up after a while"


def test_a_candidate_trains_up_to_its_first_miss_and_no_further() -> None:
    know = experience_of({1: 1.0, 2: 9.0, 16: 90.0})
    text = [1, 2, 3, 4, 5, 6, 7, 8, 1]
    auto = auto_on(text, know)
    assert len(auto.propose(ask(text, 6))) == 0
    before = [know.by_match.rate(match) for match in (1, 2, 3, 4)]
    auto.propose(ask([*text, 2, 3, 99, 5], 6))
    after = [know.by_match.rate(match) for match in (1, 2, 3, 4)]
    assert after[0] > before[0]
    assert after[1] > before[1]
    assert after[2] < before[2]
    assert after[3] == before[3], "what follows a miss tells nothing"


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


def test_a_draft_token_that_proves_dearer_than_thought_is_learned() -> None:
    text = fresh_text(600)
    know = experience_of(STAIRS, 0.02)
    auto, committed = auto_on(text[:10], know, FakeCache(says(text))), text[:10]
    for _ in range(80):
        draft = auto.propose(ask(committed))
        auto.accept(outcome(committed, draft, len(draft), drafting=0.9 * len(draft)))
        committed += text[len(committed) : len(committed) + len(draft) + 1]
    assert know.draft.token_seconds == pytest.approx(0.9, rel=0.4)
    assert know.value(1, 0.0) >= 0.8


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
    cache.fail_decode = {failing: 2}
    before = (know.draft.acceptance, know.draft.by_confidence.rate(0.995), know.decode_seconds)
    with pytest.raises(DecodeError):
        auto.propose(ask(text[:10]))
    draft = auto.propose(ask(text[:13]))
    assert (know.draft.acceptance, know.draft.by_confidence.rate(0.995), know.decode_seconds) == before
    assert list(draft.tokens) == text[13:20]
    auto.accept(outcome(text[:13], draft, 7))
    assert know.draft.acceptance > before[0]


@pytest.mark.parametrize("failing", [0, 1])
def test_an_outcome_after_a_proposal_that_failed_is_taken(failing: int) -> None:
    text = fresh_text(60)
    know = experience_of(CLIFF_8, 0.02)
    cache = FakeCache(says(text))
    auto = auto_on(text[:2], know, cache)
    cache.fail_decode = {failing: 1}
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
    assert cache.calls == []
