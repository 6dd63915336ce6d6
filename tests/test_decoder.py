"""The loop on fakes: the same text in every mode, exact ends, counts that add up, settings read at every step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fake_model import (
    MODES,
    PLAIN,
    PROMPT,
    SPECULATIVE,
    FakeCache,
    FakeDrafters,
    Plan,
    answer,
    answer_at_random,
    assert_counts,
    best_text,
    blurred,
    random_script,
    saying,
)

from specui.config import DraftingSettings, SamplingSettings, SpeculationMode, StepSettings
from specui.engine.stats import Stats


@pytest.mark.parametrize("mode", SPECULATIVE)
@pytest.mark.parametrize("cap", [1, 2, 5, 16])
def test_greedy_equals_mode_none_on_hundreds_of_random_models(mode: SpeculationMode, cap: int) -> None:
    accepted = 0
    for seed in range(60):
        plan = Plan(PROMPT, max_tokens=50)
        want = answer_at_random(plan, seed)
        got = answer_at_random(plan.with_mode(mode, cap), seed)
        assert got.tokens == want.tokens, f"model {seed}"
        assert got.finish_reason == want.finish_reason == "length"
        assert_counts(got)
        accepted += got.stats.num_accepted_tokens
    assert accepted > 100, "a test in which nothing is accepted tests nothing"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cap", range(2, 9))
def test_an_end_token_is_honoured_at_each_position_of_a_block(mode: SpeculationMode, cap: int) -> None:
    words = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    prompt = [*words, 0]
    for place, end in enumerate(words):
        plan = Plan(prompt, end_tokens=frozenset({end})).with_mode(mode, cap)
        target, draft = FakeCache(saying(words)), FakeCache(saying(words))
        done = answer(plan, target, FakeDrafters(draft))
        assert done.tokens == tuple(words[: place + 1])
        assert done.finish_reason == "stop"
        assert_counts(done)
        assert target.tokens == [*prompt, *words[:place]], "nothing behind the end is cached"
        stale = [token for token in draft.tokens[len(prompt) :] if token not in words[: place + 1]]
        assert stale == [], "the draft's cache holds nothing behind the end"


@pytest.mark.parametrize("mode", MODES)
def test_every_end_token_of_the_set_ends_the_answer(mode: SpeculationMode) -> None:
    words = [5, 6, 7, 8]
    for end in words:
        done = answer(
            Plan([0], end_tokens=frozenset({end, 30, 31})).with_mode(mode, 4),
            FakeCache(saying(words)),
            FakeDrafters(FakeCache(saying([end, *words]))),
        )
        assert done.tokens[-1] == end
        assert done.tokens == tuple(words[: words.index(end) + 1])


def test_the_drafts_own_end_is_only_a_token() -> None:
    done = answer(
        Plan([0], max_tokens=6, end_tokens=frozenset({30})).with_mode("draft-model", 4),
        FakeCache(saying([5, 6, 7, 8, 9, 10])),
        FakeDrafters(FakeCache(saying([5, 30, 30, 30]))),
    )
    assert done.tokens == (5, 6, 7, 8, 9, 10)
    assert done.finish_reason == "length"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("k", [1, 4, 8])
@pytest.mark.parametrize("past", [None, -1, 0, 1])
def test_never_more_tokens_than_the_cap(mode: SpeculationMode, k: int, past: int | None) -> None:
    for cap in {1, 2} if past is None else {max(1, k + past)}:
        plan = Plan([1, 2, 3] * 6, max_tokens=cap).with_mode(mode, k)
        target = FakeCache(lambda text: np.eye(8, dtype=np.float32)[text[-1] % 3 + 1])
        done = answer(plan, target, FakeDrafters(FakeCache(lambda text: np.eye(8, dtype=np.float32)[text[-1] % 3 + 1])))
        assert len(done.tokens) == cap
        assert done.finish_reason == "length"
        assert_counts(done)
        if cap <= 2:
            assert done.stats.num_draft_tokens == 0, "no draft can help with the last token"
            assert done.stats.acceptance_rate is None
        assert target.num_decoded == 18 + cap - 1, "no token is evaluated that cannot be emitted"


@pytest.mark.parametrize("stop_after", range(1, 12))
def test_a_stop_inside_a_block_counts_what_was_tested(stop_after: int) -> None:
    words = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    plan = Plan([0], stop_after=stop_after).with_mode("draft-model", 8)
    done = answer(plan, FakeCache(saying(words)), FakeDrafters(FakeCache(saying(words))))
    assert_counts(done)
    assert len(done.tokens) == stop_after
    if stop_after == 4:
        counts = (done.stats.num_accepted_tokens, done.stats.num_rejected_tokens, done.stats.num_ignored_tokens)
        assert counts == (3, 0, 5), "three of the draft's eight were emitted, the rest lies behind the stop"
        assert done.stats.accepted_per_position == (1.0, 1.0, 1.0)


def test_a_rejection_behind_accepted_tokens_is_counted_by_position() -> None:
    target, draft = FakeCache(saying([5, 6, 7, 8])), FakeCache(saying([5, 6, 9, 9, 9]))
    done = answer(Plan([0], max_tokens=4).with_mode("draft-model", 3), target, FakeDrafters(draft))
    assert done.origins == ("target", "accepted", "recovered", "target")
    stats = done.stats
    assert (stats.num_drafts, stats.num_draft_tokens, stats.num_accepted_tokens) == (1, 2, 1)
    assert stats.accepted_per_position == (1.0, 0.0)


def test_a_target_as_its_own_draft_is_always_right() -> None:
    script = random_script(5)
    for sampling in (SamplingSettings(), PLAIN):
        plan = Plan(PROMPT, max_tokens=101, sampling=sampling).with_mode("draft-model", 4)
        done = answer(plan, FakeCache(script), FakeDrafters(FakeCache(script)))
        assert done.stats.acceptance_rate == 1
        assert done.stats.mean_acceptance_length == 5
        assert set(done.origins) == {"target", "accepted", "bonus"}


PENALTIES = [
    SamplingSettings(repeat_penalty=1.4),
    SamplingSettings(presence_penalty=4.0, repeat_last_n=6),
    SamplingSettings(frequency_penalty=0.7),
    SamplingSettings(repeat_penalty=1.2, presence_penalty=0.4, frequency_penalty=0.2, repeat_last_n=5),
]


@pytest.mark.parametrize("sampling", PENALTIES, ids=["repeat", "presence", "frequency", "all, short window"])
@pytest.mark.parametrize("mode", SPECULATIVE)
@pytest.mark.parametrize("cap", [2, 8, 48])
def test_penalties_give_the_text_of_mode_none(sampling: SamplingSettings, mode: SpeculationMode, cap: int) -> None:
    mattered = 0
    for seed in range(12):
        plan = Plan(PROMPT, max_tokens=80, sampling=sampling)
        got, want = answer_at_random(plan.with_mode(mode, cap), seed), answer_at_random(plan, seed)
        assert got.tokens == want.tokens, f"model {seed}"
        mattered += want.tokens != answer_at_random(Plan(PROMPT, max_tokens=80), seed).tokens
    assert mattered > 6, "a penalty that changes nothing tests nothing"


@pytest.mark.parametrize("mode", MODES)
def test_a_seed_gives_the_same_text_again_with_another_answer_in_between(mode: SpeculationMode) -> None:
    script = random_script(8)
    target, drafters = FakeCache(script), FakeDrafters(FakeCache(blurred(script, 1.0)))
    plan = Plan(PROMPT, sampling=PLAIN, seed=42).with_mode(mode, 4)
    texts = [answer(plan, target, drafters).tokens]
    for n in range(3):
        answer(replace(plan, prompt=[7, 7, n], seed=n), target, drafters)
        texts.append(answer(plan, target, drafters).tokens)
    assert len(set(texts)) == 1
    assert answer(replace(plan, seed=43), target, drafters).tokens != texts[0]


@pytest.mark.parametrize("mode", SPECULATIVE)
def test_the_loop_keeps_the_targets_distribution_over_two_tokens(mode: SpeculationMode) -> None:
    """5,000 whole answers of 3 tokens: the pairs behind the first token, against the script's own probabilities."""
    script = random_script(11, n_vocab=4, order=1, sharpness=0.7)
    draft = blurred(script, 1.5)
    counts = np.zeros((4, 4))
    prompt = [0, 1, 0, 2, 0, 3, 0]
    for seed in range(5000):
        plan = Plan(prompt, max_tokens=4, sampling=PLAIN, seed=seed).with_mode(mode, 2)
        done = answer(plan, FakeCache(script), FakeDrafters(FakeCache(draft)))
        counts[done.tokens[1], done.tokens[2]] += 1
    table = np.array([np.exp(script([token])) for token in range(4)], np.float64)
    table /= table.sum(axis=1, keepdims=True)
    first = table[0] @ table
    expected = 5000 * first[:, None] * table
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert statistic < 37.7, f"chi-square {statistic:.1f} with 15 degrees of freedom, expected below 37.7"


def test_settings_are_read_at_every_step() -> None:
    script = random_script(9)
    by_mode: dict[SpeculationMode, StepSettings] = {
        mode: StepSettings(drafting=DraftingSettings(mode, 4 if mode != "none" else None)) for mode in MODES
    }
    drafters = FakeDrafters(FakeCache(blurred(script, 1.0)))
    used = []

    def settings(emitted: int) -> StepSettings:
        mode = MODES[(emitted // 15) % 3]
        used.append(mode)
        return by_mode[mode]

    done = answer(Plan(PROMPT, max_tokens=120), FakeCache(script), drafters, settings)
    assert done.tokens == best_text(script, PROMPT, 120)
    assert set(used) == set(MODES)
    assert {point.speculation_used for point in done.decoder.stats.rates} == set(MODES)
    assert {"target", "accepted"} <= set(done.origins)


def test_a_switch_to_sampling_in_mid_answer() -> None:
    script = random_script(9)
    drafting = DraftingSettings("draft-model", 4, draft_p_min=0.0)
    done = answer(
        Plan(PROMPT, max_tokens=60),
        FakeCache(script),
        FakeDrafters(FakeCache(blurred(script, 1.0))),
        lambda emitted: StepSettings(PLAIN if emitted >= 30 else SamplingSettings(), drafting),
    )
    want = best_text(script, PROMPT, 60)
    assert done.tokens[:30] == want[:30]
    assert done.tokens != want


def test_adaptive_length_starts_at_five_and_learns() -> None:
    script = random_script(12)
    drafting = DraftingSettings("draft-model", 16, draft_p_min=0.0, adaptive_length=True)
    target = FakeCache(script)
    answer(Plan(PROMPT, max_tokens=80, drafting=drafting), target, FakeDrafters(FakeCache(script)))
    assert [rows for _, rows in target.calls[1:6]] == [6, 8, 10, 12, 14]
    target = FakeCache(script)
    answer(Plan(PROMPT, max_tokens=60, drafting=drafting), target, FakeDrafters(FakeCache(blurred(script, 1000.0))))
    assert min(rows for _, rows in target.calls[1:40]) == 2


def test_the_figures_say_what_was_asked_and_what_was_done() -> None:
    stats: Stats = answer_at_random(Plan(PROMPT).with_mode("prompt-lookup", 6)).stats
    assert (stats.speculation, stats.speculation_used, stats.max_draft_tokens) == ("prompt-lookup", "prompt-lookup", 6)
    assert stats.speculation_off_reason is None
    plain = answer_at_random(Plan(PROMPT)).stats
    assert (plain.speculation, plain.max_draft_tokens, plain.num_passes) == ("none", 0, 39)
    assert plain.acceptance_rate is None
    assert plain.mean_acceptance_length == 1
