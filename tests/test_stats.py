"""Figures of an answer: counts that add up, nothing measured is None, prefill and decode never mixed."""

from __future__ import annotations

import json

import pytest

from specui.config import SpeculationMode
from specui.engine.stats import SLICE_SECONDS, Stats, StatsRecorder, StepRecord

WORDS_OF_THE_CONTRACT = {
    "num_drafts", "num_draft_tokens", "num_accepted_tokens", "num_rejected_tokens", "num_ignored_tokens",
    "acceptance_rate", "mean_acceptance_length", "accepted_per_position", "max_draft_tokens",
    "time_to_first_token_seconds", "prefill_tokens_per_second", "decode_tokens_per_second",
    "prompt_tokens", "cached_prompt_tokens", "completion_tokens",
    "draft_seconds", "verify_seconds", "prefill_seconds", "decode_seconds",
    "speculation", "speculation_used",
}  # fmt: skip


def record(
    drafted: int, accepted: int, rejected: int = 0, mode: SpeculationMode = "draft-model", seconds: float = 0.1
) -> StepRecord:
    return StepRecord(drafted, accepted, rejected, accepted + 1, seconds, 2 * seconds, seconds, mode)


def test_nothing_measured_is_none_and_never_zero_or_nan() -> None:
    stats = StatsRecorder().snapshot()
    assert stats.acceptance_rate is None
    assert stats.mean_acceptance_length is None
    assert stats.decode_tokens_per_second is None
    assert stats.prefill_tokens_per_second is None
    assert stats.time_to_first_token_seconds is None
    assert stats.accepted_per_position == ()
    assert stats.completion_tokens == 0


def test_one_token_has_no_decode_speed() -> None:
    recorder = StatsRecorder(prompt_tokens=3)
    recorder.prefill(3, 0.5)
    recorder.first_token(0.01)
    stats = recorder.snapshot()
    assert stats.completion_tokens == 1
    assert stats.decode_tokens_per_second is None
    assert stats.time_to_first_token_seconds == pytest.approx(0.51)
    assert stats.prefill_tokens_per_second == pytest.approx(6)


def test_steps_without_drafts_have_no_acceptance_rate() -> None:
    recorder = StatsRecorder()
    recorder.first_token(0.0)
    recorder.step(record(0, 0, mode="none"))
    stats = recorder.snapshot()
    assert stats.acceptance_rate is None
    assert stats.mean_acceptance_length == 1
    assert (stats.num_drafts, stats.num_passes, stats.completion_tokens) == (0, 1, 2)


def test_counts_times_and_rates_of_a_few_steps() -> None:
    recorder = StatsRecorder(prompt_tokens=100, cached_prompt_tokens=60)
    recorder.prefill(40, 2.0)
    recorder.prefill(0, 0.5)
    recorder.first_token(0.1)
    for drafted, accepted, rejected in ((4, 4, 0), (4, 1, 1), (3, 0, 1), (0, 0, 0)):
        recorder.step(record(drafted, accepted, rejected))
    stats = recorder.snapshot()
    assert (stats.num_drafts, stats.num_draft_tokens, stats.num_passes) == (3, 11, 4)
    assert (stats.num_accepted_tokens, stats.num_rejected_tokens, stats.num_ignored_tokens) == (5, 2, 4)
    assert stats.acceptance_rate == pytest.approx(5 / 11)
    assert stats.mean_acceptance_length == pytest.approx(1 + 5 / 4)
    assert stats.accepted_per_position == pytest.approx((2 / 3, 1 / 2, 1.0, 1.0))
    assert stats.completion_tokens == 1 + 5 + 4
    assert stats.decode_seconds == pytest.approx(1.6)
    assert stats.decode_tokens_per_second == pytest.approx(9 / 1.6), "the first token belongs to the prefill"
    assert stats.prefill_tokens_per_second == pytest.approx(40 / 2.5), "cached tokens were not evaluated"
    assert stats.time_to_first_token_seconds == pytest.approx(2.6)
    assert stats.draft_seconds + stats.verify_seconds + stats.sample_seconds == pytest.approx(stats.decode_seconds)


def test_ignored_is_what_lies_behind_a_rejection_or_a_stop() -> None:
    assert record(8, 3, 0).ignored == 5
    assert record(8, 3, 1).ignored == 4
    assert record(8, 8).ignored == 0
    assert record(2, 1, seconds=0.5).seconds == 2.0


def test_json_has_every_word_of_the_contract_and_only_plain_values() -> None:
    values = Stats(accepted_per_position=(0.5,)).to_dict()
    assert set(values) >= WORDS_OF_THE_CONTRACT
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert values["acceptance_rate"] is None


def test_the_reason_stands_only_where_asked_and_done_differ() -> None:
    assert "speculation_off_reason" not in Stats(speculation="auto", speculation_used="auto").to_dict()
    off = Stats(speculation="draft-model", speculation_used="none", speculation_off_reason="broken").to_dict()
    assert off["speculation_off_reason"] == "broken"
    assert (off["speculation"], off["speculation_used"]) == ("draft-model", "none")


def test_a_snapshot_does_not_change_any_more() -> None:
    recorder = StatsRecorder()
    recorder.first_token(0.0)
    recorder.step(record(2, 2))
    before = recorder.snapshot()
    recorder.step(record(2, 0, 1))
    assert before.num_draft_tokens == 2
    assert before.accepted_per_position == (1.0, 1.0)


def test_the_strip_chart_has_a_point_per_slice_of_compute_time() -> None:
    recorder = StatsRecorder()
    recorder.first_token(0.0)
    for _ in range(10):
        recorder.step(record(2, 1, 1, seconds=SLICE_SECONDS / 8))
    assert len(recorder.rates) == 5
    for place, point in enumerate(recorder.rates, start=1):
        assert point.decode_seconds == pytest.approx(place * SLICE_SECONDS)
        assert point.tokens_per_second == pytest.approx(4 / SLICE_SECONDS)
        assert point.acceptance_rate == 0.5


def test_a_switch_closes_the_slice_so_that_no_point_mixes_two_modes() -> None:
    recorder = StatsRecorder()
    recorder.first_token(0.0)
    recorder.step(record(0, 0, mode="none", seconds=0.001))
    recorder.close_slice()
    recorder.step(record(2, 2, mode="draft-model", seconds=0.002))
    recorder.close_slice()
    recorder.close_slice()
    modes = [point.speculation_used for point in recorder.rates]
    assert modes == ["none", "draft-model"]
    assert [point.acceptance_rate for point in recorder.rates] == [None, 1.0]
    assert [point.tokens_per_second for point in recorder.rates] == pytest.approx([1 / 0.004, 3 / 0.008])
