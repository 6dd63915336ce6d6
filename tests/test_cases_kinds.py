"""Every architecture in every mode: 300 tokens, a second turn and an edited first one, through a runtime.

On tiny random models (`tiny_models.py`) that are their own drafts. With `exact` no difference at all is allowed for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import get_args

import llama_cpp
import numpy as np
import pytest
from asking import SPECULATIVE, assert_counts, request
from tiny_models import N_VOCAB, Kind, write_tiny
from tiny_texts import assert_same, open_context

from specui import pairs
from specui.answer import Answer, render_prompt
from specui.config import DraftingSettings, LoadSettings, SamplingSettings, SpeculationMode, StepSettings
from specui.engine.llama import Context, Logits, Model
from specui.generation import Generation, Progress
from specui.runtime import Runtime

KINDS: tuple[Kind, ...] = get_args(Kind)
NO_END = SamplingSettings(logit_bias=((2, -100.0),))
"""Keeps a random model from ending its text."""
OPENING = "the quick brown fox jumps over the lazy dog. the quick brown fox "
TURNS = {OPENING: 300, OPENING + "and again the quick brown ": 60, OPENING.replace("quick", "slow", 1): 60}


@dataclass(frozen=True)
class Pair:
    """A runtime on a tiny model, and a context of its own to judge near ties with."""

    runtime: Runtime
    plain: Context
    wanted: dict[str, Progress]

    def write(self, prompt: str, drafting: DraftingSettings) -> Progress:
        asked = request(prompt, max_tokens=TURNS[prompt], raw=True)
        return self.runtime.start(replace(asked, settings=StepSettings(NO_END, drafting))).result()


def quantized(path: Path) -> Path:
    """Return a Q4_1 copy of a model: its kernels round passes of several rows as one row, where F32 does not."""
    copy = path.with_name(f"q4_1-{path.name}")
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_1, 1
    Model(path, vocab_only=True).close()  # llama.cpp's log goes where the program has it
    assert llama_cpp.llama_model_quantize(str(path).encode(), str(copy).encode(), ctypes.byref(params)) == 0
    return copy


@pytest.fixture(scope="module", params=[*KINDS, *(f"{kind} Q4_1" for kind in KINDS)])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    kind, _, quantization = request.param.partition(" ")
    path = write_tiny(tmp_path_factory.mktemp("tiny") / f"{kind}.gguf", kind)
    path = quantized(path) if quantization else path
    runtime, model = Runtime(LoadSettings(ctx_size=1024, batch_size=64, threads=1)), Model(path)
    runtime.load(pairs.from_paths(path, path))
    pair = Pair(runtime, open_context(model), {})
    pair.wanted.update((prompt, pair.write(prompt, DraftingSettings())) for prompt in TURNS)
    yield pair
    runtime.close()
    pair.plain.close()
    model.close()


@pytest.mark.parametrize("mode", SPECULATIVE)
def test_three_turns_are_those_of_mode_none(pair: Pair, mode: SpeculationMode) -> None:
    for prompt, count in TURNS.items():
        want, got = pair.wanted[prompt], pair.write(prompt, DraftingSettings(mode, draft_p_min=0.0))
        assert len(want.token_ids) == len(got.token_ids) == count
        assert_same(pair.plain, want.prompt_token_ids, got.token_ids, want.token_ids)
        assert (got.stats.speculation_used, got.stats.speculation_off_reason) == (mode, None)
        assert_counts(got)
        if mode == "draft-model":
            assert got.stats.acceptance_rate is not None and got.stats.acceptance_rate > 0.9


def written_afresh(pair: Pair, drafting: DraftingSettings, after: int = 0) -> tuple[Progress, Logits]:
    """Return an answer from an empty cache, and the row [n_vocab] that the memory it leaves gives behind one token.

    The first `after` tokens are written in mode none. What was rounded long ago, a state forgets: hence late switches.
    """
    loaded = pair.runtime._pair
    assert loaded is not None
    lane = loaded.lane
    lane.reset()
    asked = replace(request(OPENING, max_tokens=300, raw=True), settings=StepSettings(NO_END))
    generation = Generation(asked)
    lane.begin_answer(drafting, lambda: False)
    prompt = render_prompt(asked, lane.model, lambda: loaded.template, lane.target.n_ctx)
    answer = Answer(generation, lane, prompt)
    for place, _ in enumerate(chain(answer.begin(), iter(answer.step, False))):
        if place >= after:
            generation.update(StepSettings(NO_END, drafting))
    lane.target.decode([7], 1)
    return answer.finish(), lane.target.logits(0).copy()


@pytest.mark.parametrize("after", [0, 290], ids=["from the start", "near the end"])
@pytest.mark.parametrize("mode", SPECULATIVE)
def test_exact_leaves_the_memory_of_mode_none_in_every_bit(pair: Pair, mode: SpeculationMode, after: int) -> None:
    """The gaps between these models' best tokens hide rounding; the row behind the whole answer does not."""
    want, row_wanted = written_afresh(pair, DraftingSettings())
    got, row = written_afresh(pair, DraftingSettings(mode, draft_p_min=0.0, exact=True), after)
    assert got.token_ids == want.token_ids
    assert np.array_equal(row, row_wanted), f"a logit moved by {np.abs(row - row_wanted).max()}"
    assert_counts(got)


def test_the_models_write_many_tokens(pair: Pair) -> None:
    """Or all of this would be easy."""
    for progress in pair.wanted.values():
        assert len(set(progress.token_ids)) > 10
        assert max(progress.token_ids) < N_VOCAB
