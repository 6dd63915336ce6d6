"""Every kind of memory that llama.cpp has gives the same text with drafts as without, on real llama.cpp.

The models are tiny and random (`tiny_models.py`): plain attention, a sliding window, a recurrent state (mamba), and
states beside attention, copied (jamba) or with llama.cpp's own snapshots (lfm2, qwen35).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest
from tiny_models import N_VOCAB, Kind, write_tiny
from tiny_texts import (
    PROMPT,
    RECURRENT,
    Quality,
    Scripted,
    assert_holds_what_it_says,
    assert_same,
    open_context,
    write,
)

from specui.engine.calibration import calibrate
from specui.engine.checkpoint import RollbackKind
from specui.engine.drafting import DraftModel
from specui.engine.llama import AbortFlag, Context, ContextSize, Model
from specui.errors import DecodeError, RollbackError

KINDS: dict[Kind, RollbackKind] = {
    "llama": "cut",
    "gemma3": "cut",
    "mamba": "checkpoint",
    "jamba": "checkpoint",
    "lfm2": "snapshots",
    "qwen35": "snapshots",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture(scope="module")
def model(folder: Path, kind: Kind) -> Iterator[Model]:
    model = Model(write_tiny(folder / f"{kind}.gguf", kind))
    yield model
    model.close()


@pytest.fixture
def abort() -> AbortFlag:
    return AbortFlag()


@pytest.fixture
def target(model: Model, abort: AbortFlag) -> Iterator[Context]:
    context = open_context(model, abort=abort)
    yield context
    context.close()


@pytest.fixture(scope="module")
def plain(model: Model) -> Iterator[Context]:
    """A second context, for what the target should have written or held."""
    context = open_context(model)
    yield context
    context.close()


@pytest.fixture(scope="module")
def wanted(plain: Context) -> list[int]:
    """What mode none writes behind PROMPT."""
    return write(plain, PROMPT).ids


def test_how_each_kind_is_rolled_back(target: Context, kind: Kind, model: Model) -> None:
    assert target.rollback.kind == KINDS[kind]
    assert target.rollback.reason is None
    drafting = open_context(model, ContextSize(256, 64, 1))
    assert drafting.rollback.kind == ("cut" if KINDS[kind] == "cut" else "checkpoint")
    drafting.close()


class TestTexts:
    """300 tokens, a second turn, and an edited first turn, with drafts of 16 of every quality."""

    @pytest.mark.parametrize("quality", ["wrong", "half", "right", "mixed"])
    def test_three_turns_are_those_of_mode_none(
        self, target: Context, plain: Context, wanted: list[int], quality: Quality
    ) -> None:
        first = self._turn(target, plain, PROMPT, wanted, quality)
        second_prompt = [*PROMPT, *first[:-1], *range(20, 40)]
        self._turn(target, plain, second_prompt, write(plain, second_prompt, max_tokens=60).ids, quality)
        edited = [*PROMPT[:50], 77, *PROMPT[51:]]
        self._turn(target, plain, edited, write(plain, edited, max_tokens=60).ids, quality)

    def _turn(
        self, target: Context, plain: Context, prompt: Sequence[int], want: Sequence[int], quality: Quality
    ) -> list[int]:
        text = write(target, prompt, Scripted([*prompt, *want], quality), len(want))
        assert_same(plain, prompt, text.ids, want)
        assert text.failed == [], "no cut was refused"
        low, high = {"wrong": (0, 0.02), "half": (0.35, 0.6), "right": (1, 1), "mixed": (0.2, 0.7)}[quality]
        if text.ids == want:  # and not parted at a near tie, where the script ends to fit
            assert low <= text.accepted / text.drafted <= high
        assert_holds_what_it_says(target, plain)
        target.truncate(len(target.tokens) - 1)
        return text.ids

    @pytest.mark.parametrize("n_vocab", [N_VOCAB, N_VOCAB // 2], ids=["twin", "half-blind twin"])
    def test_a_draft_of_the_same_kind(
        self, model: Model, target: Context, plain: Context, wanted: list[int], n_vocab: int
    ) -> None:
        """The twin's drafts are right wherever its own memory is; half-blind it may not say half of the tokens."""
        cache = open_context(model, ContextSize(1024, 64, 1))
        text = write(target, PROMPT, DraftModel(cache, n_vocab), len(wanted))
        assert_same(plain, PROMPT, text.ids, wanted)
        if n_vocab == N_VOCAB:
            assert text.accepted / text.drafted > 0.9
        else:
            assert 0.01 < text.accepted / text.drafted < 0.5
            right = sum(token < n_vocab for token in wanted) / len(wanted)
            passes = len(wanted) - text.accepted
            assert text.accepted / passes > 0.8 * right / (1 - right), "a wrong token spoils the drafts behind it"
        assert_holds_what_it_says(cache, plain)
        cache.close()

    def test_a_stranger_as_draft(
        self, folder: Path, kind: Kind, target: Context, plain: Context, wanted: list[int]
    ) -> None:
        stranger = Model(write_tiny(folder / f"stranger-{kind}.gguf", kind, seed=9))
        cache = open_context(stranger, ContextSize(1024, 64, 1))
        text = write(target, PROMPT, DraftModel(cache, N_VOCAB), len(wanted))
        assert_same(plain, PROMPT, text.ids, wanted)
        assert text.accepted < 0.1 * text.drafted
        cache.close()
        stranger.close()

    @pytest.mark.parametrize("quality", ["wrong", "mixed", "right"])
    def test_eight_cells_left_and_drafts_of_sixteen(self, model: Model, plain: Context, quality: Quality) -> None:
        small = open_context(model, ContextSize(64, 16, 16))
        prompt = PROMPT[:56]
        want = write(plain, prompt, max_tokens=9).ids
        text = write(small, prompt, Scripted([*prompt, *want, *want], quality), 100)
        assert_same(plain, prompt, text.ids, want)
        assert text.finish_reason == "length"
        small.close()


class TestCuts:
    """Whatever is decoded and cut, the memory holds `tokens`."""

    @pytest.mark.parametrize("max_rows", [24, 1], ids=["target", "draft"])
    def test_random_walks(self, model: Model, plain: Context, max_rows: int) -> None:
        context, dice = open_context(model, ContextSize(512, 64, max_rows)), random.Random(5)
        refused = 0
        for _ in range(150):
            tokens = [
                dice.randrange(3, N_VOCAB) for _ in range(min(context.room, dice.choice([2, 3, 5, 8, 9, 16, 24])))
            ]
            length = len(context.tokens)
            context.truncate(length)
            if max_rows == 1:
                for token in tokens:
                    context.decode([token], 1)
            elif tokens:
                context.decode(tokens, len(tokens))
            keep = length + dice.randrange(len(tokens) + 1)
            try:
                context.truncate(keep)
            except RollbackError:
                refused += 1
                assert len(context.tokens) == length + len(tokens), "nothing changed"
                context.clear()
            else:
                assert len(context.tokens) == keep
            if dice.random() < 0.1 and context.room:
                assert_holds_what_it_says(context, plain)
            if context.room < 30:
                context.clear()
        assert refused <= 15, "only a cut into the very first pass, which nothing is known in front of"
        context.close()

    def test_a_cut_far_back_is_right_or_refused(self, target: Context, plain: Context, kind: Kind) -> None:
        target.decode(PROMPT[:60], 0)
        for token in PROMPT[60:]:
            target.decode([token], 1)
        try:
            target.truncate(30)
        except RollbackError:
            assert kind in RECURRENT
            assert target.tokens == PROMPT
        else:
            assert target.tokens == PROMPT[:30]
        assert_holds_what_it_says(target, plain)

    def test_a_cut_to_nothing(self, target: Context, plain: Context) -> None:
        target.decode(PROMPT[:20], 1)
        target.truncate(0)
        assert target.tokens == []
        assert_holds_what_it_says(target, plain)

    def test_one_cut_after_another(self, target: Context, plain: Context) -> None:
        target.decode(PROMPT[:20], 1)
        target.decode(PROMPT[20:36], 16)
        for length in (35, 31, 22):
            target.truncate(length)
            assert target.tokens == PROMPT[:length]
        assert_holds_what_it_says(target, plain)

    def test_single_rows_take_no_copy(self, target: Context, kind: Kind) -> None:
        target.decode(PROMPT[:20], 1)
        before = target.rollback_seconds
        for token in PROMPT[20:]:
            target.decode([token], 1)
            target.truncate(len(target.tokens))
        assert target.rollback_seconds == before
        target.decode(PROMPT[:17], 17)
        assert (target.rollback_seconds > before) == (kind in RECURRENT)
        assert (target.rollback_bytes > 0) == (kind in RECURRENT)

    def test_passes_are_measured_where_something_was_kept(self, target: Context, plain: Context) -> None:
        target.decode(PROMPT[:20], 1)
        target.keep_row()
        calibrate(target)
        assert target.tokens == PROMPT[:20]
        assert_holds_what_it_says(target, plain)


class TestKeptRow:
    """The row behind a prompt is there again for a retry."""

    def test_a_retry_starts_from_the_same_row(self, target: Context, plain: Context) -> None:
        assert target.kept_row() is None
        target.decode(PROMPT[:60], 1)
        want = target.logits(0).copy()
        target.keep_row()
        for start in (60, 70):
            target.decode(PROMPT[start : start + 10], 10)
            assert target.kept_row() is None
        for token in PROMPT[:9]:
            target.decode([token], 1)
        target.truncate(60)
        kept = target.kept_row()
        assert kept is not None and np.array_equal(kept, want)
        assert_holds_what_it_says(target, plain)

    def test_it_is_forgotten_with_what_it_stood_behind(self, target: Context) -> None:
        target.decode(PROMPT[:40], 1)
        target.keep_row()
        target.decode(PROMPT[40:50], 10)
        target.truncate(45)
        target.truncate(40)
        assert target.kept_row() is not None
        target.clear()
        target.decode(PROMPT[:40], 1)
        assert target.kept_row() is None, "the same length, but another time"
        target.decode(PROMPT[40:60], 1)
        target.keep_row()
        try:
            target.truncate(50)
        except RollbackError:
            target.clear()
            target.decode(PROMPT[:50], 1)
        target.decode(PROMPT[:10], 1)
        assert target.kept_row() is None, "as long as before, but another text"


class TestFailures:
    """A decode that fails leaves a memory that holds what `tokens` says."""

    @pytest.mark.parametrize("count", [1, 5, 16])
    def test_an_abort(self, target: Context, plain: Context, abort: AbortFlag, count: int) -> None:
        target.decode(PROMPT[:40], 1)
        abort.set()
        with pytest.raises(DecodeError) as caught:
            target.decode(PROMPT[40 : 40 + count], 1)
        abort.clear()
        assert caught.value.code == 2
        self._assert_sound(target, plain, 40)

    @pytest.mark.parametrize("count", [1, 5, 16])
    def test_an_id_outside_the_vocabulary(self, target: Context, plain: Context, count: int) -> None:
        target.decode(PROMPT[:40], 1)
        with pytest.raises(DecodeError) as caught:
            target.decode([N_VOCAB] * count, 1)
        assert caught.value.code == -1
        assert target.tokens == PROMPT[:40], "nothing was begun"
        assert_holds_what_it_says(target, plain)

    def test_no_room(self, model: Model, plain: Context, kind: Kind) -> None:
        small = open_context(model, ContextSize(256, 64, 16))
        text = (PROMPT * 3)[:250]
        for start in range(0, 250, 50):
            small.decode(text[start : start + 50], 1)
        if kind == "mamba":
            small.decode(PROMPT[:10], 1)  # its state takes any number of tokens
        else:
            with pytest.raises(DecodeError) as caught:
                small.decode(PROMPT[:10], 1)
            assert caught.value.code == 1
            assert small.tokens == text
        assert_holds_what_it_says(small, plain)
        small.close()

    @pytest.mark.parametrize("code", [2, -2, -3])
    @pytest.mark.parametrize("count", [1, 5, 16])
    def test_a_pass_that_fails_when_it_is_nearly_done(
        self, target: Context, plain: Context, monkeypatch: pytest.MonkeyPatch, code: int, count: int
    ) -> None:
        """Worst of all: the memory was changed as if the pass had worked."""
        target.decode(PROMPT[:20], 1)
        target.keep_row()
        target.decode(PROMPT[20:40], 1)
        fail_with(monkeypatch, code)
        with pytest.raises(DecodeError) as caught:
            target.decode(PROMPT[40 : 40 + count], 1)
        monkeypatch.undo()
        assert caught.value.code == code
        self._assert_sound(target, plain, 40)

    def test_what_is_evaluated_again_fails(
        self, target: Context, plain: Context, monkeypatch: pytest.MonkeyPatch, kind: Kind
    ) -> None:
        target.decode(PROMPT[:20], 1)
        target.decode(PROMPT[20:37], 17)
        fail_with(monkeypatch, 2)
        if kind in RECURRENT:
            with pytest.raises(DecodeError):
                target.truncate(25)
        monkeypatch.undo()
        self._assert_sound(target, plain, 37)

    def _assert_sound(self, target: Context, plain: Context, most: int) -> None:
        assert target.tokens == PROMPT[: len(target.tokens)]
        assert len(target.tokens) <= most
        assert_holds_what_it_says(target, plain)


def fail_with(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Make every decode do its work and then say that it failed."""
    real = llama_cpp.llama_decode

    def decode(context: Any, batch: Any) -> int:
        assert real(context, batch) == 0
        return code

    monkeypatch.setattr(llama_cpp, "llama_decode", decode)
