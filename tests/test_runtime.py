"""Answers of the bundled pair: the same text in every mode, exact ends, whole characters, settings that switch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from asking import MODES, SEA, SPECULATIVE, Judge, ask, assert_counts, request, watch

from specui.catalog import PairFiles
from specui.config import DraftingSettings, LoadSettings, SamplingSettings, SpeculationMode, StepSettings
from specui.engine.llama import Model
from specui.generation import Progress
from specui.runtime import Runtime

pytestmark = pytest.mark.slow

LONG_PROMPTS = {
    "prose": "Explain in detail how a bicycle works and why it stays upright.",
    "repetition": "Write the line 'one two three four' twenty times, each on its own line.",
    "code": "Write a Python function that sorts a list with merge sort, with comments.",
}
REPETITIVE = "red green blue red green blue red green blue red green blue"
KOREAN = "안녕하세요 세계! 👨‍👩‍👧‍👦\n" * 6


@pytest.fixture(scope="module")
def judge(bundled_pair: PairFiles) -> Iterator[Judge]:
    model = Model(bundled_pair.target)
    judge = Judge(model)
    yield judge
    judge.close()
    model.close()


@pytest.fixture(scope="module")
def plain(runtime: Runtime) -> dict[str, Progress]:
    """The long answers of mode none."""
    return {name: ask(runtime, prompt, max_tokens=200) for name, prompt in LONG_PROMPTS.items()}


@pytest.mark.parametrize("mode", SPECULATIVE)
@pytest.mark.parametrize("name", LONG_PROMPTS)
def test_greedy_equals_mode_none(
    runtime: Runtime, plain: dict[str, Progress], judge: Judge, name: str, mode: SpeculationMode
) -> None:
    got = ask(runtime, LONG_PROMPTS[name], mode, max_tokens=200)
    judge.assert_same(got, plain[name])
    assert got.stats.speculation_used == mode
    assert_counts(got)


@pytest.mark.parametrize("mode", MODES)
def test_the_first_answer_after_loading_is_right_too(
    bundled_pair: PairFiles, judge: Judge, mode: SpeculationMode
) -> None:
    """What a mode sets up on its first use (a draft to load, costs to measure) must leave no trace in the text."""
    runtime = Runtime(LoadSettings())
    try:
        runtime.load(bundled_pair)
        first = ask(runtime, SEA, mode)
        judge.assert_same(first, ask(runtime, SEA))
    finally:
        runtime.close()


@pytest.mark.parametrize("cap", range(2, 9))
def test_an_end_token_inside_a_block(
    runtime: Runtime, plain: dict[str, Progress], monkeypatch: pytest.MonkeyPatch, cap: int
) -> None:
    """A token of the real text is made an end: it lands at each place of a block as the cap changes."""
    ids = plain["prose"].token_ids
    firsts = [place for place, token in enumerate(ids) if token not in ids[:place]]
    place = firsts[8 + cap]
    pair = runtime._pair
    assert pair is not None
    monkeypatch.setattr(pair.model, "end_tokens", pair.model.end_tokens | {ids[place]})
    for mode in SPECULATIVE:
        got = ask(runtime, LONG_PROMPTS["prose"], mode, max_tokens=100, cap=cap)
        assert got.token_ids == ids[: place + 1]
        assert got.finish_reason == "stop"
        assert_counts(got)
        committed = [*got.prompt_token_ids, *got.token_ids]
        assert pair.lane.target.tokens == committed[:-1], "nothing behind the end is cached"


@pytest.mark.parametrize("mode", MODES)
def test_never_more_tokens_than_the_cap(runtime: Runtime, mode: SpeculationMode) -> None:
    for max_tokens in (1, 2, 3, 4, 5):
        got = ask(runtime, REPETITIVE, mode, max_tokens, cap=4 if mode != "none" else None, raw=True)
        assert len(got.token_ids) == max_tokens
        assert got.finish_reason == "length"
        assert_counts(got)
        if max_tokens <= 2:
            assert got.stats.num_draft_tokens == 0
            assert got.stats.acceptance_rate is None


@pytest.mark.parametrize("mode", MODES)
def test_streamed_text_has_whole_characters_only(runtime: Runtime, mode: SpeculationMode) -> None:
    seen = watch(runtime.start(request(KOREAN, mode, 48, raw=True)))
    whole = seen[-1].text
    assert "안녕하세요 세계" in whole and "👨‍👩‍👧‍👦" in whole
    for before, after in pairwise(seen):
        assert "\N{REPLACEMENT CHARACTER}" not in after.text
        assert after.text.startswith(before.text)
        assert "".join(piece.text for piece in after.pieces) == after.text


def test_a_character_cut_by_the_cap_is_left_out(runtime: Runtime) -> None:
    whole = ask(runtime, KOREAN, max_tokens=24, raw=True).text
    for max_tokens in range(1, 24, 2):
        got = ask(runtime, KOREAN, "prompt-lookup", max_tokens, raw=True)
        assert whole.startswith(got.text)
        assert "\N{REPLACEMENT CHARACTER}" not in got.text


@pytest.mark.parametrize("mode", MODES)
def test_a_stop_string_that_spans_tokens_is_never_shown(
    runtime: Runtime, plain: dict[str, Progress], mode: SpeculationMode
) -> None:
    whole = plain["prose"].text
    stop = whole[60:72]
    seen = watch(runtime.start(request(LONG_PROMPTS["prose"], mode, 100, stop=(stop, "never said"))))
    assert seen[-1].finish_reason == "stop"
    assert seen[-1].text == whole[: whole.index(stop)]
    assert all(seen[-1].text.startswith(each.text) for each in seen)
    assert_counts(seen[-1])


@pytest.mark.parametrize("mode", MODES)
def test_a_seed_gives_the_same_text_with_another_chat_in_between(runtime: Runtime, mode: SpeculationMode) -> None:
    sampling = SamplingSettings(temperature=0.8, seed=11)
    first = ask(runtime, SEA, mode, 24, sampling=sampling)
    assert first.seed == 11
    for _ in range(3):
        ask(runtime, "Name a colour.", mode, 6, sampling=SamplingSettings(temperature=1.0))
        again = ask(runtime, SEA, mode, 24, sampling=sampling)
        assert again.token_ids == first.token_ids
    assert ask(runtime, SEA, mode, 24, sampling=SamplingSettings(temperature=0.8, seed=12)).token_ids != first.token_ids


def test_a_seed_is_told_where_none_was_given(runtime: Runtime) -> None:
    first = ask(runtime, SEA, max_tokens=12, sampling=SamplingSettings(temperature=1.0))
    again = ask(runtime, SEA, max_tokens=12, sampling=SamplingSettings(temperature=1.0, seed=first.seed))
    assert again.token_ids == first.token_ids


@pytest.mark.parametrize("temperature", [1e-6, 1e-4, 0.01])
def test_tiny_temperatures_are_greedy_and_still_draft(
    runtime: Runtime, plain: dict[str, Progress], judge: Judge, temperature: float
) -> None:
    want = ask(runtime, LONG_PROMPTS["prose"], max_tokens=24)
    for extra in ({"top_p": 0.0}, {"top_p": 1.0, "top_k": 0}, {"top_k": 1}):
        sampling = SamplingSettings(temperature=temperature, seed=1, **extra)
        got = ask(runtime, LONG_PROMPTS["prose"], "draft-model", 24, sampling=sampling)
        assert got.stats.acceptance_rate is not None and got.stats.acceptance_rate > 0.3
        if temperature <= 1e-4 or sampling.top_k == 1 or sampling.top_p == 0:
            judge.assert_same(got, want)


@pytest.mark.parametrize(
    "sampling",
    [SamplingSettings(repeat_penalty=1.3), SamplingSettings(presence_penalty=0.8, frequency_penalty=0.3)],
    ids=["repeat", "presence and frequency"],
)
def test_penalties_give_the_text_of_mode_none(runtime: Runtime, judge: Judge, sampling: SamplingSettings) -> None:
    want = ask(runtime, REPETITIVE, max_tokens=24, sampling=sampling)
    assert want.token_ids != ask(runtime, REPETITIVE, max_tokens=24).token_ids
    for mode in ("prompt-lookup", "draft-model"):
        for cap in (2, 8, 48):
            got = ask(runtime, REPETITIVE, mode, 24, cap=cap, sampling=sampling)
            assert got.token_ids == want.token_ids, f"{mode} with drafts of {cap}"


@pytest.mark.parametrize("mode", MODES)
def test_a_grammar_holds_in_every_mode(runtime: Runtime, mode: SpeculationMode) -> None:
    asked = replace(request("Is the sky blue?", mode, 12), grammar='root ::= ("yes" | "no") "!" [a-z]*')
    assert re.fullmatch("(yes|no)![a-z]*", runtime.start(asked).result().text)


def test_a_switch_in_mid_answer_takes_effect_and_keeps_the_text(
    runtime: Runtime, plain: dict[str, Progress], judge: Judge
) -> None:
    generation = runtime.start(request(LONG_PROMPTS["prose"], "none", 200))
    used = set()
    seen = -1
    while not (progress := generation.wait(seen)).over:
        seen = progress.version
        used.add(progress.stats.speculation_used)
        written = len(progress.token_ids)
        mode: SpeculationMode = "none" if written < 30 else "draft-model" if written < 90 else "prompt-lookup"
        generation.update(StepSettings(drafting=DraftingSettings(mode)))
    judge.assert_same(generation.result(), plain["prose"])
    assert {point.speculation_used for point in progress.rates} == {"none", "draft-model", "prompt-lookup"}
    assert used == {"none", "draft-model", "prompt-lookup"}
    assert progress.stats.num_accepted_tokens > 20
    assert {"target", "accepted"} <= set(progress.token_origins)
    assert_counts(progress)


def test_the_next_turn_reuses_both_caches(runtime: Runtime) -> None:
    turns = [("user", SEA)]
    first = ask(runtime, turns, "draft-model", 40)
    turns += [("assistant", first.text), ("user", "Now about the sky.")]
    pair = runtime._pair
    assert pair is not None and pair.lane.draft.context is not None
    draft_before = list(pair.lane.draft.context.tokens)
    second = ask(runtime, turns, "draft-model", 10)
    kept = second.stats.cached_prompt_tokens
    assert kept >= len(first.prompt_token_ids) + len(first.token_ids) - 4
    assert kept < second.stats.prompt_tokens
    assert draft_before[: kept - 4] == list(second.prompt_token_ids[: kept - 4]), "the draft had the same prefix"
    edited = [("user", "Write three sentences about the land."), *turns[1:]]
    third = ask(runtime, edited, "draft-model", 10)
    assert third.stats.cached_prompt_tokens < len(first.prompt_token_ids)


def test_the_target_as_its_own_draft_is_accepted(bundled_pair: PairFiles) -> None:
    assert bundled_pair.draft is not None
    runtime = Runtime(LoadSettings(ctx_size=1024))
    try:
        runtime.load(PairFiles("self", "self", bundled_pair.draft, bundled_pair.draft))
        got = ask(runtime, LONG_PROMPTS["prose"], "draft-model", 150, cap=4)
        assert got.stats.acceptance_rate is not None and got.stats.acceptance_rate > 0.95
        pair = runtime._pair
        assert pair is not None
        assert pair.lane.draft.model is pair.model, "one file is loaded once"
    finally:
        runtime.close()
