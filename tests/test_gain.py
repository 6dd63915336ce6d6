"""What a mode gains over none, estimated on a scripted clock; padded passes; the strip of what auto chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from fake_clock import Clock
from fake_model import Done, FakeCache, FakeDrafters, Plan, Script, answer, assert_counts, random_script, saying

from specui.config import DraftingSettings, SpeculationMode, StepSettings
from specui.engine import decoder as decoder_module
from specui.engine.controller import Auto
from specui.engine.costs import PassCosts
from specui.engine.drafting import Drafter
from specui.engine.economy import Experience
from specui.engine.lookup import PromptLookup
from specui.engine.stats import FEWEST_PLAIN_PASSES, FEWEST_TOKENS, PlainPasses, StatsRecorder, StepRecord
from specui.engine.thinking import MAX_COLUMNS, Choice, ChoiceLog, Thinking

STAIRS = {1: 0.021, 2: 0.0373, 3: 0.0534, 4: 0.037, 8: 0.069, 12: 0.0995, 16: 0.101, 32: 0.2, 64: 0.4}
"""Seconds of kernels that work in fours."""
LOOP = [*range(2, 12)] * 20


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(decoder_module, "time", clock)
    return clock


class TimedCache(FakeCache):
    """A cache whose passes take what PassCosts say of their rows."""

    def __init__(self, script: Script, clock: Clock, stairs: Mapping[int, float], n_ctx: int = 4096) -> None:
        super().__init__(script, n_ctx=n_ctx)
        self._clock, self._costs = clock, PassCosts(stairs)

    def decode(self, tokens: Sequence[int], rows: int) -> None:
        super().decode(tokens, rows)
        self._clock.now += self._costs.unpadded_seconds(len(tokens)) if rows == len(tokens) else 0.0


class Lane(FakeDrafters):
    """A lane's rules with what it knows: plain passes, costs to pad by, and mode `auto` over lookup."""

    def __init__(self, draft: FakeCache | None = None, stairs: Mapping[int, float] | None = None) -> None:
        super().__init__(draft)
        self.plain = PlainPasses()
        self.experience = Experience(PassCosts(stairs or STAIRS), 0.01)
        self._auto: Auto | None = None

    def begin_answer(self) -> None:
        super().begin_answer()
        self.experience.begin_answer()
        self._auto = None

    def pick(self, drafting: DraftingSettings) -> tuple[Drafter, SpeculationMode, str | None]:
        if drafting.speculation != "auto":
            return super().pick(drafting)
        self.picked = "auto"
        self._auto = self._auto or Auto(PromptLookup(drafting.max_ngram_size), None, self.experience)
        return self._auto, "auto", None

    def padded(self, rows: int, most: int) -> int:
        return self.experience.costs.padded(rows, most)

    def thinking(self) -> Thinking | None:
        return self.experience.thinking(with_draft=False)


class Known(FakeDrafters):
    """A lane that knows what plain passes take and never pads."""

    def __init__(self, draft: FakeCache | None = None) -> None:
        super().__init__(draft)
        self.plain = PlainPasses()

    def padded(self, rows: int, most: int) -> int:
        return rows

    def thinking(self) -> Thinking | None:
        return None


def draft_plan(mode: SpeculationMode, count: int = 100, cap: int | None = None) -> Plan:
    return Plan([0], max_tokens=count).with_mode(mode, cap)


def drafted(clock: Clock, lane: Known, token_seconds: float, count: int = 100, cap: int = 3) -> Done:
    """Return an answer with a draft model that is always right and takes `token_seconds` a token."""
    script = saying(LOOP)
    draft = TimedCache(script, clock, {1: token_seconds, 64: 64 * token_seconds})
    lane.draft = draft
    return answer(draft_plan("draft-model", count, cap), TimedCache(script, clock, STAIRS), lane)


@pytest.mark.parametrize("token_seconds", [0.002, 0.01, 0.03])
def test_a_fixed_mode_is_held_against_what_plain_passes_took_in_this_lane(clock: Clock, token_seconds: float) -> None:
    lane = Known()
    plain = answer(draft_plan("none"), TimedCache(saying(LOOP), clock, STAIRS), lane).stats
    stats = drafted(clock, lane, token_seconds).stats
    assert plain.estimated_speedup_vs_none is None, "none is the measure itself"
    assert stats.decode_tokens_per_second is not None and plain.decode_tokens_per_second is not None
    expected = stats.decode_tokens_per_second / plain.decode_tokens_per_second
    assert stats.estimated_speedup_vs_none == pytest.approx(expected, rel=0.01)
    assert (expected < 0.97) is (token_seconds == 0.03)


def test_nothing_is_said_where_plain_passes_were_never_seen(clock: Clock) -> None:
    assert drafted(clock, Known(), 0.01).stats.estimated_speedup_vs_none is None


@pytest.mark.parametrize("count", [FEWEST_TOKENS - 1, FEWEST_TOKENS])
def test_nothing_is_said_of_a_short_answer(clock: Clock, count: int) -> None:
    lane = Known()
    lane.plain.observe(0.021)
    stats = drafted(clock, lane, 0.01, count).stats
    assert (stats.estimated_speedup_vs_none is None) is (count < FEWEST_TOKENS)


def recorded(plain_steps: int, lane_seconds: float | None = 1.0) -> float | None:
    """Return the estimate of 10 drafted steps of 8 tokens, and plain ones of 2 s; drawing a token takes 0.5 s."""
    recorder = StatsRecorder()
    if lane_seconds is not None:
        recorder.plain.observe(lane_seconds)
    recorder.first_token(0.0)
    for _ in range(10):
        recorder.step(StepRecord(7, 7, 0, 8, 1.0, 3.0, 8 * 0.5, "draft-model"))
    for _ in range(plain_steps):
        recorder.step(StepRecord(0, 0, 0, 1, 0.25, 2.0, 0.5, "draft-model"))
    return recorder.snapshot().estimated_speedup_vs_none


def test_an_answers_own_plain_passes_come_first() -> None:
    steps = FEWEST_PLAIN_PASSES
    tokens, seconds = 80 + steps, 10 * 8.0 + steps * 2.75
    assert recorded(steps) == pytest.approx((2.0 + 0.5) * tokens / seconds)
    assert recorded(steps, lane_seconds=None) == pytest.approx((2.0 + 0.5) * tokens / seconds)


def test_few_of_its_own_do_not_outweigh_the_lanes() -> None:
    assert recorded(0) == pytest.approx((1.0 + 0.5) * 80 / 80)
    assert recorded(FEWEST_PLAIN_PASSES - 1, lane_seconds=None) is not None, "the lane learns from them all the same"


def test_a_mode_that_was_off_is_none() -> None:
    recorder = StatsRecorder(speculation="draft-model")
    recorder.first_token(0.0)
    for _ in range(50):
        recorder.step(StepRecord(0, 0, 0, 1, 0.0, 1.0, 0.0, "none"))
    assert recorder.snapshot().estimated_speedup_vs_none is None


def test_a_slow_pass_moves_what_plain_passes_take_little() -> None:
    plain = PlainPasses()
    for seconds in (1.0, 1.0, 50.0):
        plain.observe(seconds)
    assert plain.seconds == pytest.approx(1.1)


def test_json_has_the_estimate_and_not_the_thinking() -> None:
    recorder = StatsRecorder(think=lambda: Thinking(expected_gain=1.5))
    stats = recorder.snapshot()
    assert stats.thinking == Thinking(expected_gain=1.5)
    assert "thinking" not in stats.to_dict()
    assert stats.to_dict()["estimated_speedup_vs_none"] is None


def test_the_thinking_is_asked_for_at_most_twice_a_second_and_at_the_end() -> None:
    asked: list[int] = []

    def think() -> Thinking:
        asked.append(1)
        return Thinking()

    recorder = StatsRecorder(think=think)
    for _ in range(100):
        recorder.snapshot()
    assert len(asked) == 1
    recorder.close_slice()
    recorder.snapshot()
    assert len(asked) == 2, "the last snapshot shows the last step"


# Padding.


def verified(cache: FakeCache) -> list[int]:
    """Return the sizes of all passes that were verified."""
    return [rows for tokens, rows in cache.calls if rows == len(tokens)]


def texts(mode: SpeculationMode, lane: FakeDrafters, n_ctx: int = 4096, count: int = 120) -> tuple[Done, FakeCache]:
    target = FakeCache(random_script(3), n_ctx=n_ctx)
    done = answer(Plan([3, 1, 4, 1, 5], max_tokens=count).with_mode(mode, 2), target, lane)
    assert_counts(done)
    return done, target


def test_a_padded_pass_writes_what_an_unpadded_one_writes() -> None:
    plain, plain_target = texts("prompt-lookup", FakeDrafters())
    padded, target = texts("prompt-lookup", Lane())
    assert padded.tokens == plain.tokens
    assert padded.stats.num_draft_tokens == plain.stats.num_draft_tokens, "padding is no draft"
    assert set(verified(plain_target)) == {1, 3}
    assert set(verified(target)) == {1, 4}, "plain steps stay as they are, drafts are padded"


def test_padding_keeps_to_the_room_that_is_left() -> None:
    """The cache is full at the end; FakeCache refuses any pass beyond."""
    n_ctx = 60
    plain, _ = texts("prompt-lookup", FakeDrafters(), n_ctx)
    done, target = texts("prompt-lookup", Lane(), n_ctx)
    assert done.tokens == plain.tokens
    assert done.finish_reason == "length"
    assert 4 in verified(target)


def test_padding_keeps_to_the_rows_there_are() -> None:
    target = FakeCache(random_script(3), max_rows=3)
    answer(Plan([3, 1, 4, 1, 5], max_tokens=120).with_mode("prompt-lookup", 2), target, Lane())
    assert max(verified(target)) == 3


def test_exact_passes_are_not_padded() -> None:
    target = FakeCache(random_script(3))
    settings = StepSettings(drafting=DraftingSettings("prompt-lookup", 2, exact=True))
    answer(Plan([3, 1, 4, 1, 5], max_tokens=120), target, Lane(), lambda _emitted: settings)
    assert set(verified(target)) == {1, 3}


def test_auto_pads_and_learns_the_price_of_the_padded_size(clock: Clock) -> None:
    stairs = {1: 1.0, 2: 1.5, 3: 3.0, 4: 1.4, 5: 9.0, 64: 99.0}
    target, lane = TimedCache(saying(LOOP), clock, stairs), Lane(stairs=stairs)
    before = lane.experience.costs.unpadded_seconds(3)
    done = answer(draft_plan("auto", cap=2), target, lane)
    assert verified(target).count(4) > 20
    assert 3 not in verified(target)
    assert lane.experience.costs.unpadded_seconds(4) == pytest.approx(1.4, rel=0.05)
    assert lane.experience.costs.unpadded_seconds(3) == pytest.approx(before, rel=0.1), "never seen, little judged"
    assert done.stats.estimated_speedup_vs_none is not None
    assert done.stats.estimated_speedup_vs_none > 1.5, "three tokens for 1.4 passes"


@pytest.mark.parametrize("true_seconds", [1.2, 1.9], ids=["cheaper", "as dear as thought"])
def test_a_size_that_is_held_too_dear_is_tried_again(clock: Clock, true_seconds: float) -> None:
    stairs = {1: 1.0, 2: 1.1, 3: true_seconds, 4: 1.4, 5: 9.0, 64: 99.0}
    lane = Lane(stairs={**stairs, 3: 1.9})
    target = TimedCache(saying([*range(2, 12)] * 300), clock, stairs)
    answer(draft_plan("auto", count=2900, cap=2), target, lane)
    sizes = verified(target)
    assert 3 in sizes
    if true_seconds < 1.4:
        assert sizes[-100:].count(3) > 95, "in the end it is found to be the cheaper one"
    else:
        assert sizes.count(3) < 0.05 * sizes.count(4), "trying costs next to nothing"


# What auto thinks.


def test_the_strip_tells_drafter_and_length(clock: Clock) -> None:
    lane = Lane()
    stats = answer(draft_plan("auto"), TimedCache(saying(LOOP), clock, STAIRS), lane).stats
    thinking = stats.thinking
    assert thinking is not None
    assert sum(choice.steps for choice in thinking.choices) == stats.num_passes
    assert thinking.choices[0] == Choice("none", 0.0, 1), "nothing repeats yet"
    assert thinking.choices[-2].drafter == "prompt-lookup"
    total = sum(choice.draft_tokens * choice.steps for choice in thinking.choices)
    assert total == pytest.approx(stats.num_draft_tokens)
    assert thinking.expected_gain is not None and thinking.expected_gain > 1.2
    assert sum(each.seen for each in thinking.matches) > 20
    assert [stair.padded_rows for stair in thinking.stairs[:5]] == [1, 4, 4, 4, 5]
    assert thinking.draft_token_seconds is None


def test_the_next_answer_has_a_strip_of_its_own(clock: Clock) -> None:
    lane, target = Lane(), TimedCache(saying(LOOP), clock, STAIRS)
    answer(draft_plan("auto"), target, lane)
    target.clear()
    done = answer(draft_plan("none"), target, lane)
    assert done.stats.thinking is None
    target.clear()
    again = answer(draft_plan("auto", count=20), target, lane).stats
    assert again.thinking is not None
    assert sum(choice.steps for choice in again.thinking.choices) == again.num_passes


@pytest.mark.parametrize("steps", [1, MAX_COLUMNS, MAX_COLUMNS + 1, 5 * MAX_COLUMNS, 7777])
def test_the_strip_stays_short_and_loses_no_step(steps: int) -> None:
    log = ChoiceLog()
    for place in range(steps):
        log.add("prompt-lookup" if place % 3 else "none", 4 if place % 3 else 0)
    choices = log.choices()
    assert 0 < len(choices) <= MAX_COLUMNS
    assert sum(choice.steps for choice in choices) == steps
    total = sum(choice.draft_tokens * choice.steps for choice in choices)
    assert total == pytest.approx(4 * sum(place % 3 > 0 for place in range(steps)))


def test_a_column_has_the_drafter_of_most_steps_and_of_a_tie_the_one_that_drafts() -> None:
    log = ChoiceLog()
    for place in range(2 * MAX_COLUMNS):
        log.add("none" if place % 2 else "draft-model", 0 if place % 2 else 3)
    assert log.choices()[0] == Choice("draft-model", 1.5, 2)
