"""The bundled weights at ends, switches, failures and stops: what people meet in the middle of an answer."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import llama_cpp
import pytest
from asking import MODES, SEA, ask, assert_counts, own_draft, request
from test_llama import PROGRAM

from specui import pairs, weights
from specui.catalog import PairFiles
from specui.config import DraftingSettings, LoadSettings, SpeculationMode, StepSettings
from specui.engine.llama import Model
from specui.errors import PromptTooLongError
from specui.generation import Generation, Progress
from specui.runtime import Runtime
from specui.ui.conversation import Answer, Conversation, Turn

pytestmark = pytest.mark.slow
N_CTX = 256
BICYCLE = "Explain in detail how a bicycle works and why it stays upright."


@pytest.fixture(scope="module")
def small(bundled_pair: PairFiles) -> Iterator[Runtime]:
    """The Q4_1 weights as their own draft: drafts are all but always right, and short texts exact."""
    with own_draft(bundled_pair, LoadSettings(ctx_size=256, threads=1)) as runtime:
        yield runtime


@pytest.fixture
def fresh(bundled_pair: PairFiles) -> Iterator[Runtime]:
    """A runtime of one thread, which waits for no other on a busy machine."""
    runtime = Runtime(LoadSettings(ctx_size=N_CTX, threads=1))
    runtime.load(replace(bundled_pair, ctx_size=None))
    yield runtime
    runtime.close()


def wait_for_tokens(generation: Generation, count: int) -> Progress:
    """Return the first snapshot seen that has so many tokens, or the last one."""
    progress = generation.wait(-1)
    while len(progress.token_ids) < count and not progress.over:
        progress = generation.wait(progress.version)
    return progress


def drafting(mode: SpeculationMode) -> StepSettings:
    return StepSettings(drafting=DraftingSettings(mode))


@pytest.mark.parametrize(("cap", "exact"), [(2, False), (5, True), (8, False)])
def test_an_end_at_each_place_of_a_real_block(
    small: Runtime, monkeypatch: pytest.MonkeyPatch, cap: int, exact: bool
) -> None:
    ids = ask(small, BICYCLE, max_tokens=cap + 8).token_ids
    pair = small._pair
    assert pair is not None
    ends, target, landed = pair.model.end_tokens, pair.lane.target, set()
    for place in [place for place, token in enumerate(ids) if token not in ids[:place]]:
        monkeypatch.setattr(pair.model, "end_tokens", ends | {ids[place]})
        asked = request(BICYCLE, max_tokens=40)
        settings = DraftingSettings("draft-model", cap, draft_p_min=0.0, exact=exact)
        got = small.start(replace(asked, settings=StepSettings(drafting=settings))).result()
        assert (got.token_ids, got.finish_reason) == (ids[: place + 1], "stop")
        assert target.tokens == [*got.prompt_token_ids, *ids[:place]], "nothing behind the end is cached"
        assert_counts(got)
        origins = "".join(origin[0] for origin in got.token_origins)
        landed.add(len(origins) - len(origins.rstrip("a")))
    assert landed >= set(range(cap + 1)), f"in drafts of {cap} the end landed at {landed} only"


def test_one_thread_stays_exact_behind_512_cells(bundled_pair: PairFiles) -> None:
    """With several threads, llama.cpp splits the cells of a one-row pass among them there, and rounds otherwise."""
    assert bundled_pair.draft is not None
    runtime = Runtime(LoadSettings(ctx_size=1024, threads=1))
    runtime.load(pairs.from_paths(bundled_pair.draft, bundled_pair.draft))
    asked = request("The sea is wide and the boat is small. " * 55, max_tokens=24, raw=True)
    want = runtime.start(asked).result()
    settings = DraftingSettings("draft-model", 7, draft_p_min=0.0, exact=True)
    got = runtime.start(replace(asked, settings=StepSettings(drafting=settings))).result()
    runtime.close()
    assert want.prefill_total > 512
    assert got.token_ids == want.token_ids
    assert (got.stats.speculation_used, got.stats.speculation_off_reason) == ("draft-model", None)
    assert got.stats.num_accepted_tokens > 10


def test_the_same_prompt_twice_reads_no_prompt_and_says_so(fresh: Runtime) -> None:
    """Its first token comes at once; how fast it writes is measured apart from that."""
    ask(fresh, "Name a colour.", max_tokens=2)
    first, second = (ask(fresh, BICYCLE, max_tokens=24).stats for _ in range(2))
    assert first.cached_prompt_tokens < first.prompt_tokens == second.cached_prompt_tokens
    assert second.prefill_tokens_per_second is None, "nothing was read, so that there is no speed of reading"
    assert first.time_to_first_token_seconds is not None and second.time_to_first_token_seconds is not None
    assert second.time_to_first_token_seconds < first.time_to_first_token_seconds / 2
    for stats in (first, second):
        assert stats.decode_tokens_per_second == pytest.approx(23 / stats.decode_seconds)


class TestDraftsThatFail:
    """A switch to a draft that cannot be had: the answer goes on, and says what is used and why."""

    def assert_goes_on(self, runtime: Runtime, files: PairFiles, word: str) -> None:
        runtime.load(files)
        want = ask(runtime, BICYCLE, max_tokens=60)
        generation = runtime.start(request(BICYCLE, "none", 60))
        wait_for_tokens(generation, 5)
        generation.update(drafting("draft-model"))
        got = generation.result()
        assert got.token_ids == want.token_ids
        assert (got.stats.speculation, got.stats.speculation_used) == ("draft-model", "none")
        assert word in (got.stats.speculation_off_reason or "")
        assert "\n" not in (got.stats.speculation_off_reason or "")
        again = ask(runtime, BICYCLE, "prompt-lookup", 8)
        assert (again.token_ids, again.stats.speculation_used) == (want.token_ids[:8], "prompt-lookup")

    def test_a_switch_to_a_missing_one(self, fresh: Runtime, bundled_pair: PairFiles, tmp_path: Path) -> None:
        missing = tmp_path / "missing.gguf"
        self.assert_goes_on(fresh, replace(bundled_pair, draft=missing, ctx_size=None), "missing.gguf")

    def test_a_switch_to_a_corrupt_one(self, fresh: Runtime, bundled_pair: PairFiles, tmp_path: Path) -> None:
        assert bundled_pair.draft is not None
        cut = tmp_path / "cut.gguf"
        cut.write_bytes(bundled_pair.draft.read_bytes()[:3_000_000])
        self.assert_goes_on(fresh, replace(bundled_pair, draft=cut, ctx_size=None), "cut.gguf")

    def test_a_switch_to_one_too_large_for_memory(
        self, fresh: Runtime, bundled_pair: PairFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """llama.cpp gives no context where it gets no memory."""
        make: Any = llama_cpp.llama_init_from_model
        refused: list[Any] = []
        target = fresh._pair
        assert target is not None

        def init(model: Any, params: Any) -> Any:
            if model == target.model.handle:
                return make(model, params)
            refused.append(model)
            return None

        monkeypatch.setattr(llama_cpp, "llama_init_from_model", init)
        self.assert_goes_on(fresh, replace(bundled_pair, ctx_size=None), "no memory for the context")
        assert len(refused) == 1, "it is not tried again at every step"


def resident_mb() -> float:
    """Return what this process holds of memory."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory figures of Linux")
def test_twenty_switches_with_a_load_that_fails_midway(
    fresh: Runtime, bundled_pair: PairFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draft is freed and loaded each time; memory is as after the second round, the target still the first."""
    loads: list[Path] = []

    class Counted(Model):
        def __init__(self, path: Path, *rest: Any) -> None:
            loads.append(path)
            if len(loads) == 10:
                raise MemoryError
            super().__init__(path, *rest)

    monkeypatch.setattr(weights, "Model", Counted)
    want, held, off = ask(fresh, BICYCLE, max_tokens=6).token_ids, [], 0
    modes: tuple[SpeculationMode, ...] = ("none", "draft-model", "prompt-lookup", "draft-model")
    for _ in range(20):
        for mode in modes:
            got = ask(fresh, BICYCLE, mode, 6)
            assert got.token_ids == want
            off += got.stats.speculation_used != mode
        held.append(resident_mb())
        fresh.unload_draft()
    assert off == 2, "in the one round whose load failed, and never again"
    assert loads == [bundled_pair.draft] * 20, "the target was loaded once, before"
    assert max(held[2:]) - held[1] < 20, f"resident after each round, in MB: {[round(mb) for mb in held]}"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory figures of Linux")
def test_a_context_of_32k_costs_its_cache_and_little_more(bundled_pair: PairFiles) -> None:
    """Logits of every token would be 32,768 x 49,152 x 4 bytes = 6.4 GB."""
    program = PROGRAM.replace("ContextSize(4096, 512,", "ContextSize(32768, 512,")
    assert program != PROGRAM
    root = Path(__file__).resolve().parent.parent
    line = [sys.executable, "-c", program, str(bundled_pair.draft)]
    run = subprocess.run(line, capture_output=True, text=True, check=True, cwd=root, timeout=300)
    cache_mb, grown = 30 * 2 * 3 * 64 * 2 * 32768 / 2**20, float(run.stdout)
    assert grown < cache_mb + 250, f"grew by {grown:.0f} MB, of which the cache is {cache_mb:.0f}"


@pytest.mark.parametrize("mode", MODES)
def test_after_a_prompt_that_does_not_fit_the_next_one_does(fresh: Runtime, mode: SpeculationMode) -> None:
    for length in (N_CTX, N_CTX + 1, 10 * N_CTX):
        with pytest.raises(PromptTooLongError, match=rf"{length + 1:,}.*{N_CTX:,}"):
            ask(fresh, " a" * length, mode, 8, raw=True)
        assert len(ask(fresh, SEA, mode, 4).token_ids) == 4
    longest = ask(fresh, " a" * (N_CTX - 1), mode, 8, raw=True)
    assert len(longest.token_ids) in (1, 2), "one cell, and its row gives one token more"
    assert len(ask(fresh, SEA, mode, 4).token_ids) == 4


ALTERNATING = (
    "{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)


class TestStops:
    """Stopped anywhere, then sent again, also through a template that demands alternating roles."""

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("tokens", [0, 1, 9])
    def test_stop_and_send_again(
        self, fresh: Runtime, bundled_pair: PairFiles, mode: SpeculationMode, tokens: int
    ) -> None:
        fresh.load(replace(bundled_pair, ctx_size=None, chat_template=ALTERNATING))
        chat = Conversation().ask(BICYCLE)
        got = self.stopped(fresh, chat, mode, tokens)
        assert bool(got.token_ids) == bool(tokens)
        answer = Answer.of(got)
        assert (answer.text, answer.status) == (got.text, "stopped"), "what was written is kept and marked"
        chat = chat.with_turn(0, Turn(BICYCLE, answer)).ask("Go on.")
        assert len(chat.messages("")) == (3 if got.text.strip() else 1)
        after = fresh.start(replace(request("", mode, 4), messages=chat.messages(""))).result()
        assert after.token_ids and after.finish_reason in ("length", "stop")
        pair = fresh._pair
        assert pair is not None
        assert pair.lane.target.tokens == [*after.prompt_token_ids, *after.token_ids][:-1]

    def stopped(self, runtime: Runtime, chat: Conversation, mode: SpeculationMode, tokens: int) -> Progress:
        """Stop an answer that has so many tokens; fail where that takes a second, or the cache holds more."""
        generation = runtime.start(replace(request("", mode, 400), messages=chat.messages("")))
        if tokens:
            wait_for_tokens(generation, tokens)
        started = time.monotonic()
        generation.cancel()
        got = generation.result()
        assert time.monotonic() - started < 1, "the model is not free within a second"
        assert got.finish_reason == "cancelled"
        pair = runtime._pair
        assert pair is not None
        written, held = [*got.prompt_token_ids, *got.token_ids], pair.lane.target.tokens
        assert held == (written[:-1] if got.token_ids else written[: len(held)])
        return got

    def test_a_stop_in_the_middle_of_a_long_prompt_frees_the_model_at_once(self, runtime: Runtime) -> None:
        generation = runtime.start(request(" a" * 3500, "draft-model", raw=True))
        progress = generation.wait(-1)
        while progress.prefill_done == 0:
            progress = generation.wait(progress.version)
        started = time.monotonic()
        generation.cancel()
        after = runtime.start(request("Hi", max_tokens=1, raw=True)).result()
        assert time.monotonic() - started < 5, "a second on a free machine; the whole prompt takes far longer"
        assert generation.progress.prefill_done < 3500
        assert generation.progress.finish_reason == "cancelled"
        assert len(after.token_ids) == 1
