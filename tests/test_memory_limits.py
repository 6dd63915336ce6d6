"""Memories at their limits, on real llama.cpp: no copies, a window, graphs of many layers; a runtime on states."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from tiny_models import WINDOW, Kind, write_tiny
from tiny_texts import (
    PROMPT,
    RECURRENT,
    Scripted,
    assert_holds_what_it_says,
    assert_same,
    open_context,
    write,
)

from specui import pairs
from specui.config import LoadSettings, SpeculationMode, home
from specui.engine.llama import AbortFlag, Context, ContextSize, Model
from specui.engine.llama.cells import Cells
from specui.errors import RollbackError
from specui.runtime import Runtime


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


DEEP = """
import sys
from pathlib import Path
from specui.engine.llama import AbortFlag, Context, ContextSize, Model

context = Context(Model(Path(sys.argv[1])), ContextSize(512, 256, 64), 1, AbortFlag())
context.decode([5] * 256, 0)
context.decode([5] * 64, 64)
context.truncate(290)
print(context.rollback.kind)
"""


@pytest.mark.parametrize(("kind", "n_layer"), [("lfm2", 16), ("lfm2", 30), ("nemotron_h", 52), ("qwen35", 24)])
def test_snapshots_fit_the_graphs_of_models_as_deep_as_real_ones(tmp_path: Path, kind: Kind, n_layer: int) -> None:
    """Where they do not, llama.cpp ends the process: hence another one here."""
    path = write_tiny(tmp_path / "deep.gguf", kind, n_layer=n_layer)
    run = subprocess.run(
        [sys.executable, "-c", DEEP, str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parent.parent,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr[-500:]
    assert run.stdout.strip() == "snapshots"


class TestWithoutCopies:
    """Where llama.cpp cannot write the state out, drafting is off with a reason, and text goes on."""

    @pytest.fixture
    def path(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(Cells, "save", lambda _cells, _buffer: False)
        return write_tiny(folder / "uncopied.gguf", "mamba")

    def test_cuts_are_refused(self, path: Path) -> None:
        model = Model(path)
        context = open_context(model)
        assert context.rollback.kind == "none"
        assert "cannot save" in (context.rollback.reason or "")
        assert context.tokens == []
        context.decode(PROMPT[:30], 1)
        context.keep_row()
        context.decode(PROMPT[30:40], 10)
        with pytest.raises(RollbackError):
            context.truncate(35)
        assert context.tokens == PROMPT[:40]
        context.close()
        model.close()

    def test_the_loop_goes_on_without_drafts(self, path: Path) -> None:
        model = Model(path)
        context, plain = open_context(model), open_context(model)
        want = write(plain, PROMPT, max_tokens=40).ids
        text = write(context, PROMPT, Scripted([*PROMPT, *want], "half"), 40)
        assert_same(plain, PROMPT, text.ids, want)
        assert len(text.failed) == 1
        context.close()
        plain.close()
        model.close()

    def test_a_runtime_says_why(self, path: Path) -> None:
        runtime = Runtime(LoadSettings(ctx_size=512, threads=1))
        runtime.load(pairs.from_paths(path))
        plain = ask(runtime, "hello there", "none", 24, raw=True)
        drafted = ask(runtime, "hello there", "prompt-lookup", 24, raw=True)
        assert drafted.token_ids == plain.token_ids
        assert drafted.stats.speculation_used == "none"
        assert "cannot save" in (drafted.stats.speculation_off_reason or "")
        runtime.close()


class TestSlidingWindow:
    """What a cut needs behind the window is there, or the cut is refused."""

    @pytest.fixture
    def model(self, folder: Path) -> Iterator[Model]:
        model = Model(write_tiny(folder / "window.gguf", "gemma3"))
        yield model
        model.close()

    def test_a_history_of_many_windows_is_edited_early(self, model: Model) -> None:
        context, plain = open_context(model), open_context(model)
        long = (PROMPT * 7)[: 20 * WINDOW]
        for start in range(0, len(long), 64):
            context.decode(long[start : start + 64], 1)
        for length in (19 * WINDOW + 3, 5 * WINDOW, 10):
            context.truncate(length)
            assert context.tokens == long[:length]
            assert_holds_what_it_says(context, plain)
            context.truncate(length)
        context.close()
        plain.close()

    def test_a_memory_of_the_window_alone_refuses(self, model: Model) -> None:
        """llama.cpp itself would drop the tail and leave the window empty."""

        class Narrow(Context):
            def _params(self) -> Any:
                params = super()._params()
                params.swa_full = False
                return params

        context, plain = Narrow(model, ContextSize(1024, 64, 17), 1, AbortFlag()), open_context(model)
        long = (PROMPT * 7)[: 20 * WINDOW]
        for start in range(0, len(long), 64):
            context.decode(long[start : start + 64], 1)
        with pytest.raises(RollbackError):
            context.truncate(10)
        assert context.tokens == long
        context.decode(PROMPT[:17], 17)
        context.truncate(len(long) + 3)
        assert_holds_what_it_says(context, plain)
        context.close()
        plain.close()


RAW = "the quick brown fox jumps over the lazy dog. the quick brown fox "


@pytest.mark.parametrize("kind", RECURRENT, scope="module")
def test_a_runtime_on_states(folder: Path, kind: Kind) -> None:
    """Every mode writes what none writes, then a second turn, then an edited first one."""
    target = write_tiny(folder / f"runtime-{kind}.gguf", kind)
    draft = write_tiny(folder / f"runtime-draft-{kind}.gguf", kind, seed=9)
    runtime = Runtime(LoadSettings(ctx_size=1024, batch_size=64, threads=1))
    runtime.load(pairs.from_paths(target, draft))
    model = Model(target)
    plain = open_context(model)
    modes: tuple[SpeculationMode, ...] = ("prompt-lookup", "draft-model", "auto", "none")
    for prompt in (RAW, RAW + "and again the quick brown ", RAW.replace("lazy", "busy")):
        want = ask(runtime, prompt, "none", 120, raw=True)
        for mode in modes:
            got = ask(runtime, prompt, mode, 120, raw=True)
            assert got.error is None
            assert_same(plain, want.prompt_token_ids, got.token_ids, want.token_ids)
            assert got.stats.speculation_used == mode
            assert got.stats.speculation_off_reason is None
    plain.close()
    runtime.close()
    model.close()


GEMMA = Path(os.environ.get("SPECUI_GEMMA") or home() / "gemma-3-270m-q4_k_m.gguf")


@pytest.mark.slow
@pytest.mark.skipif(not GEMMA.exists(), reason=f"no gemma-3-270m at {GEMMA}; name its file in SPECUI_GEMMA")
def test_gemma_beyond_its_window() -> None:
    """A history of more than 512 tokens, drafts of 16, then an edit near the beginning."""
    model = Model(GEMMA)
    size = ContextSize(1024, 256, 17)
    context, plain = open_context(model, size), open_context(model, size)
    words = "The river ran down from the hills and past the mill, where nobody had lived for years. "
    prompt = model.tokenize(words * 32, add_special=True, parse_special=False)[:600]
    want = write(plain, prompt, max_tokens=12).ids
    text = write(context, prompt, Scripted([*prompt, *want], "mixed"), 12)
    assert_same(plain, prompt, text.ids, want, near_tie=1.0)
    context.truncate(60)
    context.decode(prompt[60:62], 1)
    plain.clear()
    plain.decode(prompt[:62], 1)
    assert context.logits(0).argmax() == plain.logits(0).argmax()
    assert np.abs(context.logits(0) - plain.logits(0)).max() < 1.0
    context.close()
    plain.close()
    model.close()
