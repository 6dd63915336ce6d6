"""The bundled pair at its limits: room in the context, cancelling, the line, and parts that are missing or fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from asking import HANG_SECONDS, MODES, SEA, ask, assert_counts, request

from specui.catalog import PairFiles
from specui.config import MAX_QUEUE_LENGTH, LoadSettings, SpeculationMode
from specui.errors import BlankPromptError, BusyError, DecodeError, ModelError, NothingLoadedError, PromptTooLongError
from specui.generation import Generation
from specui.runtime import Runtime

pytestmark = pytest.mark.slow

N_CTX = 64


@pytest.fixture(scope="module")
def small(bundled_pair: PairFiles) -> Iterator[Runtime]:
    """A runtime with a context of 64 tokens, read in batches of 32."""
    runtime = Runtime(LoadSettings(ctx_size=N_CTX, batch_size=32))
    runtime.load(replace(bundled_pair, ctx_size=None))
    yield runtime
    runtime.close()


@pytest.fixture
def fresh() -> Iterator[Runtime]:
    runtime = Runtime(LoadSettings(ctx_size=256))
    yield runtime
    runtime.close()


def words(count: int) -> str:
    """Return a raw text of `count` tokens: one for each " a"."""
    return " a" * count


def wait_for_phase(generation: Generation, phase: str) -> None:
    seen = -1
    for _ in range(HANG_SECONDS * 100):
        progress = generation.wait(seen, timeout_seconds=0.1)
        if progress.phase == phase or progress.over:
            return
        seen = progress.version
    raise AssertionError(f"never came to {phase}")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cap", [1, 16, 63])
def test_a_context_that_fills_up_is_a_clean_end(small: Runtime, mode: SpeculationMode, cap: int) -> None:
    got = ask(small, words(N_CTX - 8), mode, 500, raw=True, cap=cap)
    assert got.prefill_total == N_CTX - 8
    assert got.finish_reason in ("length", "stop")
    assert len(got.token_ids) <= 9
    if got.finish_reason == "length":
        assert len(got.token_ids) == 9, "eight cells, and the last row gives one token more"
    assert_counts(got)


@pytest.mark.parametrize("length", [N_CTX, N_CTX + 1, 10 * N_CTX])
def test_a_prompt_over_the_context_is_refused_with_both_numbers(small: Runtime, length: int) -> None:
    with pytest.raises(PromptTooLongError) as caught:
        ask(small, words(length), raw=True)
    assert (caught.value.needed, caught.value.limit) == (length + 1, N_CTX)
    assert len(ask(small, words(N_CTX - 1), max_tokens=1, raw=True).token_ids) == 1, "the longest prompt that fits"
    assert ask(small, "Hi", max_tokens=3, raw=True).finish_reason == "length"


def test_a_chat_over_the_context_drops_whole_old_turns(small: Runtime) -> None:
    old = [("user", words(20)), ("assistant", words(12))]
    turns = [("system", "Be brief."), *old, *old, ("user", "Name a colour.")]
    got = ask(small, turns, max_tokens=4)
    want = ask(small, [turns[0], turns[-1]], max_tokens=4)
    assert got.dropped_turns == 4
    assert got.prompt_token_ids == want.prompt_token_ids, "the system prompt and the last turn are kept"
    with pytest.raises(PromptTooLongError):
        ask(small, [("system", words(50)), ("user", words(30))])


@pytest.mark.parametrize("text", ["", " ", "\n", " \n\t "])
def test_blanks_are_refused_before_they_join_the_line(runtime: Runtime, text: str) -> None:
    for raw in (True, False):
        with pytest.raises(BlankPromptError):
            runtime.start(request(text, raw=raw))


def test_an_empty_system_prompt_is_no_trouble(runtime: Runtime) -> None:
    assert ask(runtime, [("system", ""), ("user", "Name a colour.")], max_tokens=3).token_ids


@pytest.mark.parametrize("mode", MODES)
def test_a_one_token_prompt_in_every_mode(runtime: Runtime, mode: SpeculationMode) -> None:
    got = ask(runtime, "a", mode, 6, raw=True)
    assert (got.prefill_total, len(got.token_ids)) == (1, 6)


def committed(prompt: Sequence[int], answer: Sequence[int]) -> list[int]:
    return [*prompt, *answer][:-1] if answer else list(prompt)


@pytest.mark.parametrize("mode", ["none", "draft-model"])
def test_a_stop_in_prefill_leaves_a_runtime_that_works(runtime: Runtime, mode: SpeculationMode) -> None:
    want = ask(runtime, SEA, max_tokens=8)
    generation = runtime.start(request(words(3000), mode, raw=True))
    wait_for_phase(generation, "prefill")
    generation.cancel()
    got = generation.result()
    assert got.finish_reason == "cancelled"
    assert got.token_ids == ()
    assert got.text == ""
    pair = runtime._pair
    assert pair is not None
    assert pair.lane.target.tokens == list(got.prompt_token_ids[: len(pair.lane.target.tokens)])
    assert len(pair.lane.target.tokens) < 3000
    assert ask(runtime, SEA, max_tokens=8).token_ids == want.token_ids


@pytest.mark.parametrize("mode", MODES)
def test_a_stop_in_mid_answer_keeps_what_was_written(runtime: Runtime, mode: SpeculationMode) -> None:
    generation = runtime.start(request(SEA, mode, 400))
    wait_for_phase(generation, "decode")
    generation.cancel()
    got = generation.result()
    assert got.finish_reason == "cancelled"
    assert got.token_ids
    assert_counts(got)
    pair = runtime._pair
    assert pair is not None
    assert pair.lane.target.tokens == committed(got.prompt_token_ids, got.token_ids)
    again = ask(runtime, [("user", SEA), ("assistant", got.text), ("user", "Go on.")], mode, 4)
    assert again.token_ids


def test_places_leaving_and_busy(runtime: Runtime) -> None:
    running = runtime.start(request(SEA, max_tokens=2000, sampling=None))
    wait_for_phase(running, "decode")
    waiting = [runtime.start(request(SEA, max_tokens=2)) for _ in range(MAX_QUEUE_LENGTH)]
    assert [each.progress.place for each in waiting] == list(range(1, MAX_QUEUE_LENGTH + 1))
    assert runtime.queue_length() == MAX_QUEUE_LENGTH + 1
    with pytest.raises(BusyError):
        runtime.start(request(SEA))
    waiting[0].cancel()
    assert waiting[0].result().finish_reason == "cancelled"
    assert waiting[1].progress.place == 1
    late = runtime.start(request(SEA, max_tokens=2))
    running.cancel()
    assert len(late.result().token_ids) == 2
    for each in waiting[1:]:
        assert len(each.result().token_ids) == 2
    assert runtime.queue_length() <= 1


def test_nothing_loaded_is_said(fresh: Runtime) -> None:
    assert fresh.loaded is None
    with pytest.raises(NothingLoadedError):
        ask(fresh, SEA)


def test_a_load_that_fails_keeps_the_old_pair(fresh: Runtime, bundled_pair: PairFiles, tmp_path: Path) -> None:
    loaded = fresh.load(bundled_pair)
    want = ask(fresh, SEA, max_tokens=6).token_ids
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(bundled_pair.target.read_bytes()[:1_000_000])
    with pytest.raises(ModelError, match=r"bad\.gguf"):
        fresh.load(PairFiles("bad", "bad", bad))
    assert fresh.loaded == loaded
    assert ask(fresh, SEA, "draft-model", 6).token_ids == want


def test_pairs_are_swapped_and_the_draft_is_freed_and_loaded_again(fresh: Runtime, bundled_pair: PairFiles) -> None:
    assert bundled_pair.draft is not None
    fresh.load(bundled_pair)
    want = ask(fresh, SEA, "draft-model", 6)
    assert want.stats.speculation_used == "draft-model"
    first = fresh._pair
    fresh.load(replace(bundled_pair, draft=None))
    assert fresh._pair is not None and first is not None
    assert fresh._pair.model is first.model, "the same target is not loaded again"
    assert ask(fresh, SEA, max_tokens=6).token_ids == want.token_ids
    fresh.load(bundled_pair)
    for _ in range(2):
        assert ask(fresh, SEA, "draft-model", 6).token_ids == want.token_ids
        loaded = fresh.loaded
        assert loaded is not None and loaded.draft_bytes > 50_000_000
        fresh.unload_draft()
        loaded = fresh.loaded
        assert loaded is not None and loaded.draft_bytes == 0


@pytest.mark.parametrize("kind", ["none", "missing", "truncated"])
def test_a_draft_that_cannot_be_used_is_off_with_a_reason(
    fresh: Runtime, bundled_pair: PairFiles, tmp_path: Path, kind: str
) -> None:
    assert bundled_pair.draft is not None
    path = tmp_path / "draft.gguf"
    if kind == "truncated":
        path.write_bytes(bundled_pair.draft.read_bytes()[:2_000_000])
    fresh.load(replace(bundled_pair, draft=None if kind == "none" else path))
    got = ask(fresh, SEA, "draft-model", 6)
    assert len(got.token_ids) == 6
    assert (got.stats.speculation, got.stats.speculation_used) == ("draft-model", "none")
    assert got.stats.acceptance_rate is None
    reason = got.stats.speculation_off_reason
    assert reason is not None
    assert "\n" not in reason
    assert ("draft.gguf" in reason) == (kind != "none")
    assert ask(fresh, SEA, "prompt-lookup", 6).stats.speculation_used == "prompt-lookup"


def test_a_draft_that_dies_in_mid_answer(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    want = ask(runtime, SEA, "draft-model", 24, cap=2)
    pair = runtime._pair
    assert pair is not None and pair.lane.draft.context is not None
    context = pair.lane.draft.context
    decode, calls = context.decode, []

    def dying(tokens: Sequence[int], rows: int) -> None:
        calls.append(tokens)
        if len(calls) > 8:
            raise DecodeError(context.model.path, -3)
        decode(tokens, rows)

    monkeypatch.setattr(context, "decode", dying)
    got = ask(runtime, SEA, "draft-model", 24, cap=2)
    assert got.token_ids == want.token_ids
    assert got.stats.speculation_used == "none"
    assert "code -3" in (got.stats.speculation_off_reason or "")
    assert got.stats.num_accepted_tokens > 0
    monkeypatch.undo()
    assert ask(runtime, SEA, "draft-model", 24).stats.speculation_used == "draft-model"


def test_a_pairs_own_template_is_used(fresh: Runtime, bundled_pair: PairFiles) -> None:
    template = "{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}"
    fresh.load(replace(bundled_pair, chat_template=template))
    pair = fresh._pair
    assert pair is not None
    got = ask(fresh, [("system", "Be kind."), ("user", "Hi.")], max_tokens=2)
    text = b"".join(pair.model.piece(token) for token in got.prompt_token_ids).decode()
    assert text == "[system] Be kind. [user] Hi. "


def test_a_template_without_a_system_role_gets_it_in_the_first_user_turn(
    fresh: Runtime, bundled_pair: PairFiles
) -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
        "<{{ m.role }}>{{ m.content }}{% endfor %}"
    )
    fresh.load(replace(bundled_pair, chat_template=template))
    pair = fresh._pair
    assert pair is not None
    got = ask(fresh, [("system", "Be kind."), ("user", "Hi.")], max_tokens=2)
    text = b"".join(pair.model.piece(token) for token in got.prompt_token_ids).decode()
    assert text == "<user>Be kind.\n\nHi."
