"""The loop at its limits, on fakes: context room, batches, what is evaluated how often, and parts that fail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from fake_model import (
    MODES,
    N_VOCAB,
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
)

from specui.config import DraftingSettings, SpeculationMode
from specui.errors import DecodeError, PromptTooLongError


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cap", [1, 4, 16, 63])
def test_a_context_that_fills_up_is_a_clean_end(mode: SpeculationMode, cap: int) -> None:
    prompt = [1, 2, 3, 4] * 14
    for n_ctx in (57, 58, 60, 64):
        done = answer_at_random(Plan(prompt, max_tokens=1000).with_mode(mode, cap), n_ctx=n_ctx)
        assert done.finish_reason == "length"
        assert len(done.tokens) == n_ctx - len(prompt) + 1, "each cell is used, and the last row gives one token more"
        assert done.tokens == answer_at_random(Plan(prompt, max_tokens=len(done.tokens))).tokens
        assert_counts(done)


@pytest.mark.parametrize(("n_ctx", "max_tokens"), [(16, 100), (64, 8)], ids=["the context is full", "the cap"])
def test_the_strip_chart_goes_to_the_end_however_the_answer_ends(n_ctx: int, max_tokens: int) -> None:
    done = answer_at_random(Plan(PROMPT, max_tokens=max_tokens), n_ctx=n_ctx)
    assert done.decoder.stats.rates
    assert done.decoder.stats.rates[-1].decode_seconds == done.stats.decode_seconds


@pytest.mark.parametrize("draft_ctx", [8, 20, 32, 63])
def test_a_draft_context_that_is_shorter_than_the_targets(draft_ctx: int) -> None:
    script = random_script(3)
    plan = Plan(PROMPT * 2, max_tokens=60)
    want = answer(plan, FakeCache(script))
    drafters = FakeDrafters(FakeCache(script, n_ctx=draft_ctx))
    done = answer(plan.with_mode("draft-model", 16), FakeCache(script), drafters)
    assert done.tokens == want.tokens
    assert drafters.failed == {}


@pytest.mark.parametrize("length", [0, 64, 65, 640])
def test_a_prompt_that_cannot_fit_is_refused_with_both_numbers_and_the_cache_stays_usable(length: int) -> None:
    target = FakeCache(random_script(1), n_ctx=64)
    with pytest.raises(PromptTooLongError) as caught:
        answer(Plan([1] * length), target)
    assert (caught.value.needed, caught.value.limit) == (length + 1, 64)
    assert len(answer(Plan([1] * 63, max_tokens=5), target).tokens) == 2


@pytest.mark.parametrize("mode", MODES)
def test_a_prompt_longer_than_a_batch_is_read_in_batches_with_progress(mode: SpeculationMode) -> None:
    script = random_script(2)
    prompt = [int(x) for x in np.random.default_rng(0).integers(0, N_VOCAB, size=100)]
    target = FakeCache(script, n_batch=16)
    plan = Plan(prompt, max_tokens=20).with_mode(mode, 8)
    done = answer(plan, target, FakeDrafters(FakeCache(script, n_batch=16)))
    assert done.tokens == best_text(script, prompt, 20)
    assert [rows for _, rows in target.calls[:7]] == [0] * 6 + [1], "logits for the last token of a prompt only"


def test_rows_are_limited_by_what_the_context_has_room_for() -> None:
    script = random_script(2)
    target = FakeCache(script, max_rows=4)
    done = answer(Plan(PROMPT, max_tokens=40).with_mode("draft-model", 16), target, FakeDrafters(FakeCache(script)))
    assert done.stats.acceptance_rate == 1
    assert max(rows for _, rows in target.calls) == 4


@pytest.mark.parametrize("p_min", [0.0, 0.5])
def test_the_draft_decodes_each_committed_token_once(p_min: float) -> None:
    script = random_script(4)
    draft = FakeCache(script)
    plan = Plan(PROMPT, max_tokens=101, drafting=DraftingSettings("draft-model", 4, draft_p_min=p_min))
    done = answer(plan, FakeCache(script), FakeDrafters(draft))
    assert done.stats.acceptance_rate == 1
    assert draft.num_decoded == len(draft.tokens), "with all accepted, nothing is evaluated a second time"


@pytest.mark.parametrize("noise", [0.5, 2.0, 8.0])
def test_the_draft_never_runs_over_a_verified_batch_again(noise: float) -> None:
    script = random_script(4)
    draft = FakeCache(blurred(script, noise))
    done = answer(Plan(PROMPT, max_tokens=100).with_mode("draft-model", 4), FakeCache(script), FakeDrafters(draft))
    stats = done.stats
    wasted = stats.num_rejected_tokens + stats.num_ignored_tokens
    assert draft.num_decoded <= len(done.decoder.committed) + wasted


def test_prefixes_are_reused_in_both_caches_between_turns() -> None:
    script = random_script(6)
    target, draft = FakeCache(script), FakeCache(script)
    drafters = FakeDrafters(draft)
    first = answer(Plan(PROMPT).with_mode("draft-model", 4), target, drafters)
    assert first.stats.cached_prompt_tokens == 0
    before, draft_before = target.num_decoded, draft.num_decoded
    kept = len(first.decoder.committed) - 1
    prompt = [*first.decoder.committed, 1, 2, 3]
    second = answer(Plan(prompt, max_tokens=1).with_mode("draft-model", 4), target, drafters)
    assert second.stats.cached_prompt_tokens == kept
    assert second.stats.prompt_tokens == len(prompt)
    assert target.num_decoded - before == len(prompt) - kept
    assert draft.num_decoded - draft_before <= len(prompt) - kept + 1


def test_an_edited_prompt_is_evaluated_from_the_edit_on() -> None:
    target = FakeCache(random_script(6))
    answer(Plan(PROMPT), target)
    edited = [*PROMPT[:4], 11, *PROMPT[5:]]
    done = answer(Plan(edited), target)
    assert done.stats.cached_prompt_tokens == 4
    assert done.tokens == best_text(random_script(6), edited, 40)


def test_the_same_prompt_again_evaluates_none_of_it() -> None:
    target = FakeCache(random_script(6))
    want = answer(Plan(PROMPT), target).tokens
    done = answer(Plan(PROMPT), target)
    assert done.stats.cached_prompt_tokens == len(PROMPT)
    assert done.tokens == want


def test_a_prompt_that_has_grown_evaluates_two_rows_at_least() -> None:
    target = FakeCache(random_script(6))
    answer(Plan(PROMPT), target)
    first = len(target.calls)
    done = answer(Plan([*PROMPT[:-2], 7]), target)
    assert target.calls[first] == ((PROMPT[-3], 7), 1), "one row rounds otherwise than two on some kernels"
    assert done.tokens == best_text(random_script(6), [*PROMPT[:-2], 7], 40)


@pytest.mark.parametrize("place", [0, 1, 4])
@pytest.mark.parametrize("code", [1, -1, -3])
@pytest.mark.parametrize("mode", SPECULATIVE)
def test_a_long_pass_that_fails_is_made_again_with_one_row(mode: SpeculationMode, code: int, place: int) -> None:
    script = random_script(10)

    class LongPassesFail(FakeCache):
        passes = 0

        def decode(self, tokens: Sequence[int], rows: int) -> None:
            if rows > 1:
                self.passes += 1
                if self.passes > place:
                    raise DecodeError(Path("fake.gguf"), code)
            super().decode(tokens, rows)

    drafters = FakeDrafters(FakeCache(blurred(script, 1.0)))
    done = answer(Plan(PROMPT).with_mode(mode, 4), LongPassesFail(script), drafters)
    assert done.tokens == best_text(script, PROMPT, 40)
    assert_counts(done)
    assert done.stats.speculation_used == "none"
    assert f"code {code}" in (done.stats.speculation_off_reason or "")


class TestFailures:
    """What breaks in mid-answer ends the drafting, not the answer."""

    script = staticmethod(random_script(10))
    plan = Plan(PROMPT, max_tokens=40).with_mode("draft-model", 4)
    want = best_text(random_script(10), PROMPT, 40)

    @pytest.mark.parametrize("place", [0, 1, 2, 5, 9, 20])
    @pytest.mark.parametrize("code", [1, -1, -2, -3])
    def test_a_draft_that_dies_leaves_the_answer_whole(self, place: int, code: int) -> None:
        draft = FakeCache(blurred(self.script, 1.0))
        draft.fail_decode = {place: code}
        drafters = FakeDrafters(draft)
        done = answer(self.plan, FakeCache(self.script), drafters)
        assert done.tokens == self.want
        assert_counts(done)
        assert done.stats.speculation == "draft-model"
        assert done.stats.speculation_used == "none"
        assert done.stats.speculation_off_reason is not None
        assert f"code {code}" in done.stats.speculation_off_reason

    @pytest.mark.parametrize("place", [0, 1, 2, 5])
    def test_the_next_answer_drafts_again(self, place: int) -> None:
        draft = FakeCache(self.script)
        draft.fail_decode = {place: 1}
        target, drafters = FakeCache(self.script), FakeDrafters(draft)
        answer(self.plan, target, drafters)
        done = answer(self.plan, target, drafters)
        assert done.tokens == self.want
        assert done.stats.acceptance_rate == 1

    @pytest.mark.parametrize("place", [0, 3, 8])
    def test_an_aborted_draft_ends_the_answer_at_once(self, place: int) -> None:
        draft = FakeCache(self.script)
        draft.fail_decode = {place: 2}
        target = FakeCache(self.script)
        with pytest.raises(DecodeError):
            answer(self.plan, target, FakeDrafters(draft))
        done = answer(self.plan, target, FakeDrafters(draft))
        assert done.tokens == self.want

    @pytest.mark.parametrize("place", [0, 1, 4])
    def test_a_target_that_fails_leaves_a_cache_that_can_be_used(self, place: int) -> None:
        target = FakeCache(self.script)
        target.fail_decode = {place: 2}
        drafters = FakeDrafters(FakeCache(blurred(self.script, 1.0)))
        with pytest.raises(DecodeError):
            answer(self.plan, target, drafters)
        assert answer(self.plan, target, drafters).tokens == self.want

    @pytest.mark.parametrize("mode", SPECULATIVE)
    def test_a_target_without_rollback_goes_on_without_drafts(self, mode: SpeculationMode) -> None:
        target = FakeCache(self.script)
        target.recurrent = True
        drafters = FakeDrafters(FakeCache(blurred(self.script, 4.0)))
        done = answer(self.plan.with_mode(mode, 4), target, drafters)
        assert done.tokens == self.want
        assert_counts(done)
        assert done.stats.speculation_used == "none"
        assert "cannot be cut" in (done.stats.speculation_off_reason or "")
        again = answer(self.plan.with_mode(mode, 4), target, drafters)
        assert again.tokens == self.want, "an edited or repeated prompt is evaluated anew"

    def test_one_refused_cut_rebuilds_the_cache(self) -> None:
        target = FakeCache(self.script)
        target.fail_truncate = {1}
        done = answer(self.plan, target, FakeDrafters(FakeCache(blurred(self.script, 4.0))))
        assert done.tokens == self.want
        assert target.clears == 1

    def test_a_draft_without_rollback_changes_nothing_in_the_text(self) -> None:
        draft = FakeCache(blurred(self.script, 2.0))
        draft.recurrent = True
        assert answer(self.plan, FakeCache(self.script), FakeDrafters(draft)).tokens == self.want
