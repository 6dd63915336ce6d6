"""`exact` on real weights: the ids of mode none without any allowance for near ties, and what that leaves of drafts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from asking import SPECULATIVE, assert_counts, own_draft, request

from specui.catalog import PairFiles
from specui.config import LoadSettings, SpeculationMode
from specui.generation import GenerationRequest, Progress
from specui.lane import ONLY_SINGLE
from specui.runtime import Runtime

LIST = "Write the numbers from one to twenty in words, one per line. Then write the same list again."
LONG = LIST + " Here is a list of the months to warm up: " + "January, February, March, April, May, June, July. " * 30


@pytest.fixture(scope="module")
def small(bundled_pair: PairFiles) -> Iterator[Runtime]:
    """A runtime whose target and draft are the bundled Q4_1 weights, whose short passes are exact at any size."""
    with own_draft(bundled_pair, LoadSettings(ctx_size=2048, threads=2)) as runtime:
        yield runtime


def exactly(wanted: GenerationRequest) -> GenerationRequest:
    drafting = replace(wanted.settings.drafting, exact=True)
    return replace(wanted, settings=replace(wanted.settings, drafting=drafting))


def ask_exactly(runtime: Runtime, prompt: str, mode: SpeculationMode, max_tokens: int) -> Progress:
    return runtime.start(exactly(request(prompt, mode, max_tokens))).result()


@pytest.mark.parametrize("mode", SPECULATIVE)
def test_a_short_text_is_drafted_in_passes_that_change_no_bit(small: Runtime, mode: SpeculationMode) -> None:
    want = small.start(request(LIST, "none", 120)).result()
    got = ask_exactly(small, LIST, mode, 120)
    assert got.token_ids == want.token_ids
    assert_counts(got)
    if mode != "auto":  # which drafts nothing where that would not pay
        assert got.stats.num_draft_tokens > 0
        assert got.stats.num_accepted_tokens > 0


def test_behind_the_first_step_of_the_cache_only_single_rows_are_left_and_the_reason_is_shown(small: Runtime) -> None:
    want = small.start(request(LONG, "none", 60)).result()
    got = ask_exactly(small, LONG, "draft-model", 60)
    assert len(got.prompt_token_ids) > 256
    assert got.token_ids == want.token_ids
    assert got.stats.num_draft_tokens == 0
    assert (got.stats.speculation_used, got.stats.speculation_off_reason) == ("none", ONLY_SINGLE)


@pytest.mark.parametrize("mode", SPECULATIVE)
def test_full_precision_rounds_every_pass_of_several_rows_otherwise(runtime: Runtime, mode: SpeculationMode) -> None:
    want = runtime.start(request(LIST, "none", 60)).result()
    got = ask_exactly(runtime, LIST, mode, 60)
    assert got.token_ids == want.token_ids
    assert (got.stats.speculation, got.stats.speculation_used) == (mode, "none")
    assert got.stats.speculation_off_reason == ONLY_SINGLE
