"""Ends, characters, odd settings and full contexts in every mode, `auto` and `exact` among them, on fakes.

What `test_decoder.py` holds for three modes is held here for the fourth, on a machine whose passes all cost the same,
so that `auto` drafts wherever it can; and what needs a draft that is wrong at one chosen place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from fake_model import (
    PROMPT,
    Done,
    FakeCache,
    FakeDrafters,
    Plan,
    Script,
    answer,
    assert_counts,
    best_text,
    blurred,
    random_script,
    saying,
)

from specui.config import SPECULATION_MODES, DraftingSettings, SamplingSettings, SpeculationMode, StepSettings
from specui.engine.controller import Auto
from specui.engine.costs import PassCosts
from specui.engine.decoder import Decoder, Task
from specui.engine.drafting import Drafter, DraftModel, Outcome
from specui.engine.economy import Experience
from specui.engine.lookup import PromptLookup
from specui.engine.sampling import Logits
from specui.engine.stats import TokenOrigin
from specui.engine.text import TextStream

DRAFTING: tuple[SpeculationMode, ...] = ("prompt-lookup", "draft-model", "auto")
EXACT_SIZES = (1, 2, 4, 8)
"""Numbers of rows that are exact on the fake machine."""
N_VOCAB = 2**31


class EvenExperience(Experience):
    """Every pass costs the same and a draft token next to nothing, whatever a busy machine makes of it."""

    def __init__(self) -> None:
        super().__init__(PassCosts({1: 1.0, 64: 1.0}), 0.001)
        self.draft.observe_time = lambda rows, seconds: None  # type: ignore[method-assign]

    def observe_step(self, outcome: Outcome, asked: bool = False) -> None:
        """Learn no costs."""


class EveryMode(FakeDrafters):
    """The rules of a lane in all four modes, with `exact`."""

    def __init__(self, draft: FakeCache) -> None:
        super().__init__(draft)
        self._auto: Auto | None = None

    def begin_answer(self) -> None:
        super().begin_answer()
        self._auto = None

    def pick(self, drafting: DraftingSettings) -> tuple[Drafter, SpeculationMode, str | None]:
        if drafting.speculation != "auto" or "auto" in self.failed:
            return super().pick(drafting)
        assert self.draft is not None
        self.picked = "auto"
        lookup = PromptLookup(drafting.max_ngram_size)
        self._auto = self._auto or Auto(lookup, DraftModel(self.draft, N_VOCAB, coupled=True), EvenExperience())
        return self._auto, "auto", None

    def longest(self, drafting: DraftingSettings, limit: int) -> int:
        return max(size - 1 for size in EXACT_SIZES if size - 1 <= limit) if drafting.exact and limit > 0 else limit


def plan_in(mode: SpeculationMode, cap: int | None, exact: bool = False, prompt: Sequence[int] = PROMPT) -> Plan:
    """Return a plan whose draft model is never too unsure to draft."""
    drafting = DraftingSettings(mode, None if mode == "none" else cap, draft_p_min=0.0, exact=exact)
    return Plan(prompt, drafting=drafting)


def run(plan: Plan, target: Script, draft: Script, n_ctx: int = 4096) -> tuple[Done, FakeCache, FakeCache]:
    """Return an answer and both caches as it left them."""
    caches = FakeCache(target, n_ctx), FakeCache(draft, n_ctx)
    done = answer(plan, caches[0], EveryMode(caches[1]))
    assert_counts(done)
    assert caches[1].tokens == done.decoder.committed[: len(caches[1].tokens)], "the draft's cache holds another text"
    return done, *caches


WORDS = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]


@pytest.mark.parametrize("exact", [False, True], ids=["any size", "exact"])
@pytest.mark.parametrize("mode", SPECULATION_MODES)
@pytest.mark.parametrize("cap", range(2, 9))
def test_an_end_at_each_place_of_a_block(mode: SpeculationMode, cap: int, exact: bool) -> None:
    """An end that was drafted, and one where the draft had another token and went on behind it."""
    landed = set()
    for place, end in enumerate(WORDS):
        missed = [*WORDS[:place], 20, *WORDS[place + 1 :]]
        for drafted in (WORDS, missed):
            # Lookup copies from a prompt that holds what the draft model says.
            plan = replace(plan_in(mode, cap, exact, [*drafted, 0]), end_tokens=frozenset({end}))
            done, target, _draft = run(plan, saying(WORDS), saying(drafted))
            assert done.tokens == tuple(WORDS[: place + 1])
            assert done.finish_reason == "stop"
            assert target.tokens == [*plan.prompt, *WORDS[:place]], "nothing behind the end is cached"
            block = target.calls[-1][0]
            if end in block[1:]:
                landed.add(block.index(end))
            assert drafted is WORDS or done.origins[-1] != "accepted"
    longest = max(size for size in EXACT_SIZES if size <= cap + 1) - 1 if exact else cap
    assert mode == "none" or landed >= set(range(1, longest + 1)), f"the end landed at {landed} only"


@pytest.mark.parametrize("exact", [False, True], ids=["any size", "exact"])
@pytest.mark.parametrize("mode", SPECULATION_MODES)
@pytest.mark.parametrize("k", [1, 4, 8])
def test_never_more_tokens_than_the_cap(mode: SpeculationMode, k: int, exact: bool) -> None:
    def counting(text: Sequence[int]) -> Logits:
        row: Logits = np.eye(8, dtype=np.float32)[text[-1] % 3 + 1]
        return row

    for cap in sorted({1, 2, k, k + 1, *([k - 1] if k > 1 else [])}):
        plan = replace(plan_in(mode, k, exact, [1, 2, 3] * 6), max_tokens=cap)
        done, target, _draft = run(plan, counting, counting)
        assert (len(done.tokens), done.finish_reason) == (cap, "length")
        assert target.num_decoded == 18 + cap - 1, "no token is evaluated that cannot be emitted"
        assert cap > 2 or done.stats.num_draft_tokens == 0


TEXT = "한국 👨‍👩‍👧‍👦 and 你好, é! 🏳️‍🌈"
RAW = TEXT.encode()


def of_bytes(raw: bytes) -> list[int]:
    """Return one token for each byte; 0 is kept for the end of the prompt."""
    return [byte + 1 for byte in raw]


def stream(plan: Plan, drafters: EveryMode) -> tuple[list[TokenOrigin], TextStream]:
    """Write the text of bytes, and fail where what is shown is not whole, or is taken back."""
    origins: list[TokenOrigin] = []
    text, written = TextStream(), bytearray()

    def on_token(token: int, origin: TokenOrigin) -> bool:
        origins.append(origin)
        written.append(token - 1)
        text.push(bytes([token - 1]))
        assert text.text == written.decode("utf-8", "ignore"), "not all whole characters, and those alone"
        return False

    settings = StepSettings(drafting=plan.drafting)
    task = Task(plan.prompt, len(RAW), frozenset(), 0, lambda: settings, on_token)
    drafters.begin_answer()
    decoder = Decoder(FakeCache(saying(of_bytes(RAW), 258)), drafters, task)
    for _ in decoder.prefill():
        pass
    while decoder.step():
        pass
    return origins, text


@pytest.mark.parametrize("mode", DRAFTING)
@pytest.mark.parametrize("cap", [2, 5, 8])
def test_a_character_that_is_split_where_a_draft_is_rejected(mode: SpeculationMode, cap: int) -> None:
    inside = 0
    for place in range(len(RAW)):
        wrong = bytearray(RAW)
        wrong[place] ^= 1
        tokens = of_bytes(bytes(wrong))
        drafters = EveryMode(FakeCache(saying(tokens, 258)))
        origins, text = stream(plan_in(mode, cap, prompt=[*tokens, 0]), drafters)
        assert text.finish() == TEXT
        assert "".join(text.pieces()) == TEXT
        continues = 0x80 <= RAW[place] < 0xC0
        inside += continues and origins[place - 1 : place + 1] == ["accepted", "recovered"]
    assert inside > 10, f"only {inside} drafts were rejected in the middle of a character"


@pytest.mark.parametrize("mode", DRAFTING)
@pytest.mark.parametrize("temperature", [0, 1e-300, 1e-6, 1e-4, 0.01])
@pytest.mark.parametrize(("top_p", "top_k"), [(0, 0), (1e-4, 0), (1, 0), (1, 1), (0, 1), (0.95, 40)])
def test_odd_sampling_settings_still_draft_to_the_end(
    mode: SpeculationMode, temperature: float, top_p: float, top_k: int
) -> None:
    """Warnings are errors, so that a division by zero or an overflow fails here."""
    sampling = SamplingSettings(temperature=temperature, top_p=top_p, top_k=top_k, min_p=0.0)
    script = random_script(4)
    plan = replace(plan_in(mode, 4), max_tokens=60, sampling=sampling)
    done, _target, _draft = run(plan, script, blurred(script, 0.5))
    if temperature <= 1e-4 or top_k == 1 or top_p <= 1e-4:
        assert done.tokens == best_text(script, PROMPT, 60)
    assert {"accepted"} <= set(done.origins[-15:]), "drafting ended in silence"
    assert done.stats.acceptance_rate is not None and 0 < done.stats.acceptance_rate <= 1


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingSettings(repeat_penalty=1.4),
        SamplingSettings(presence_penalty=4.0, repeat_last_n=6),
        SamplingSettings(frequency_penalty=0.7),
    ],
    ids=["repeat", "presence", "frequency"],
)
@pytest.mark.parametrize("cap", [2, 8, 48])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_penalties_in_mode_auto(sampling: SamplingSettings, cap: int, temperature: float) -> None:
    accepted = 0
    for seed in range(12):
        script = random_script(seed)
        sampled = replace(sampling, temperature=temperature, seed=seed)
        plan = replace(plan_in("auto", cap), max_tokens=80, sampling=sampled, seed=seed)
        want, *_ = run(replace(plan, drafting=DraftingSettings()), script, script)
        got, *_ = run(plan, script, blurred(script, 1.0))
        assert got.tokens == want.tokens, f"model {seed}"
        accepted += got.stats.num_accepted_tokens
    assert accepted > 100


@pytest.mark.parametrize("mode", SPECULATION_MODES)
@pytest.mark.parametrize("draft_ctx", [64, 32])
def test_every_draft_length_in_a_context_with_eight_cells_left(mode: SpeculationMode, draft_ctx: int) -> None:
    script = random_script(2)
    prompt = [1, 2, 3, 4] * 14
    want = best_text(script, prompt, 9)
    for cap in range(1, 64):
        target, drafters = FakeCache(script, n_ctx=64), EveryMode(FakeCache(script, n_ctx=draft_ctx))
        done = answer(replace(plan_in(mode, cap, prompt=prompt), max_tokens=1000), target, drafters)
        assert (done.tokens, done.finish_reason) == (want, "length"), f"drafts of {cap}"
        assert drafters.failed == {}
        assert_counts(done)
