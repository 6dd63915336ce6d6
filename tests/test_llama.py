"""Weights and caches of llama.cpp on the bundled pair: files that cannot be loaded, text, rows, cuts and aborts."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from specui.catalog import PairFiles
from specui.engine.llama import AbortFlag, Context, ContextSize, Model, quantize_f32
from specui.errors import DecodeError, ModelFileError

HANG_SECONDS = 60
SIZE = ContextSize(n_ctx=512, n_batch=256, max_rows=64)
TEXT = "The quick brown fox jumps over the lazy dog. " * 6


@pytest.fixture(scope="module")
def model(bundled_pair: PairFiles) -> Iterator[Model]:
    assert bundled_pair.draft is not None
    model = Model(bundled_pair.draft)
    yield model
    model.close()


@pytest.fixture
def abort() -> AbortFlag:
    return AbortFlag()


@pytest.fixture
def context(model: Model, abort: AbortFlag) -> Iterator[Context]:
    context = Context(model, SIZE, None, abort)
    yield context
    context.close()


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


class TestFiles:
    """A file that cannot be loaded is refused in one line that names it."""

    @pytest.mark.parametrize(
        ("content", "word"),
        [(b"", "empty"), (b"<!DOCTYPE html><html>", "not a GGUF"), (b"GG", "not a GGUF"), (b"GGUF", "m.gguf")],
        ids=["empty", "a web page", "two bytes", "the magic alone"],
    )
    def test_what_is_no_model(self, tmp_path: Path, content: bytes, word: str) -> None:
        path = write(tmp_path / "m.gguf", content)
        with pytest.raises(ModelFileError, match=word) as caught:
            Model(path)
        assert caught.value.path == path
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("share", [0.0001, 0.01, 0.5, 0.999])
    def test_a_truncated_file(self, bundled_pair: PairFiles, tmp_path: Path, share: float) -> None:
        assert bundled_pair.draft is not None
        whole = bundled_pair.draft.read_bytes()
        path = write(tmp_path / "short.gguf", whole[: int(share * len(whole))])
        with pytest.raises(ModelFileError, match=r"short\.gguf") as caught:
            Model(path)
        assert "\n" not in str(caught.value)

    def test_a_missing_file_and_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ModelFileError, match="no such file"):
            Model(tmp_path / "none.gguf")
        with pytest.raises(ModelFileError, match="folder"):
            Model(tmp_path)

    def test_conversion_of_what_is_no_model(self, tmp_path: Path) -> None:
        with pytest.raises(ModelFileError):
            quantize_f32(write(tmp_path / "bad.gguf", b"GGUF" + b"\0" * 60), tmp_path / "out.gguf")

    def test_a_name_beyond_ascii(self, bundled_pair: PairFiles, tmp_path: Path) -> None:
        assert bundled_pair.draft is not None
        path = tmp_path / "모델 é.gguf"
        path.symlink_to(bundled_pair.draft)
        Model(path, vocab_only=True).close()


class TestText:
    """Tokens to text and back."""

    @pytest.mark.parametrize("text", [TEXT, "안녕하세요 세계", "👨‍👩‍👧‍👦🏳️‍🌈", "a\n\n\tb  c", "naïve — “quoted”", ""])
    def test_pieces_joined_are_the_text(self, model: Model, text: str) -> None:
        ids = model.tokenize(text, add_special=False, parse_special=False)
        assert b"".join(model.piece(token) for token in ids).decode() == text

    def test_special_tokens_are_read_only_where_that_is_asked(self, model: Model) -> None:
        assert len(model.tokenize("<|im_end|>", add_special=False, parse_special=True)) == 1
        assert len(model.tokenize("<|im_end|>", add_special=False, parse_special=False)) > 1

    def test_a_lone_surrogate_does_not_stop_the_tokeniser(self, model: Model) -> None:
        assert model.tokenize("a\ud800b", add_special=False, parse_special=True)

    def test_the_end_set_holds_the_end_of_turn_and_more_than_the_eos(self, model: Model) -> None:
        turn = model.tokenize("<|im_end|>", add_special=False, parse_special=True)[0]
        text = model.tokenize("<|endoftext|>", add_special=False, parse_special=True)[0]
        assert {turn, text} <= model.end_tokens
        assert model.piece(turn) == b"", "a control token adds no text"

    def test_spelling_of_tokens_outside_is_empty(self, model: Model) -> None:
        assert model.token_text(-1) == model.token_text(model.n_vocab) == ""
        assert model.token_texts()[:3] == [model.token_text(i).encode() for i in range(3)]


def ids(model: Model) -> list[int]:
    return model.tokenize(TEXT, add_special=False, parse_special=False)


class TestContext:
    """A cache is what its `tokens` say."""

    def test_a_row_is_the_logits_behind_its_token(self, model: Model, context: Context) -> None:
        text = ids(model)[:20]
        context.decode(text, rows=20)
        together = np.array([context.logits(i).copy() for i in range(20)])
        assert together.shape == (20, model.n_vocab)
        context.clear()
        for i, token in enumerate(text):
            context.decode([token], rows=1)
            assert np.abs(context.logits(0) - together[i]).max() < 1.0
            assert context.logits(0).argmax() == together[i].argmax()

    def test_only_the_last_rows_are_kept(self, model: Model, context: Context) -> None:
        text = ids(model)[:12]
        context.decode(text, rows=12)
        want = context.logits(9).copy()
        context.clear()
        context.decode(text, rows=3)
        assert np.allclose(context.logits(0), want, atol=1e-4)
        with pytest.raises(IndexError):
            context.logits(3)

    def test_a_cut_leaves_nothing_behind(self, model: Model, context: Context) -> None:
        text = ids(model)
        context.decode(text[:10], rows=1)
        want = context.logits(0).copy()
        context.decode([7, 8, 9, 10], rows=4)
        context.truncate(9)
        assert context.tokens == text[:9]
        assert context.room == SIZE.n_ctx - 9
        context.decode(text[9:10], rows=1)
        assert np.allclose(context.logits(0), want, atol=1.0)
        assert context.logits(0).argmax() == want.argmax()
        context.truncate(50)
        assert context.tokens == text[:10], "nothing to cut"

    def test_clear_forgets_everything(self, model: Model, context: Context) -> None:
        text = ids(model)[:10]
        context.decode(text, rows=1)
        want = context.logits(0).copy()
        context.decode(text, rows=0)
        context.clear()
        assert context.tokens == []
        context.decode(text, rows=1)
        assert np.array_equal(context.logits(0), want)

    def test_sizes_are_cut_to_each_other(self, model: Model, abort: AbortFlag) -> None:
        small = Context(model, ContextSize(n_ctx=64, n_batch=512, max_rows=100), 1, abort)
        assert (small.n_ctx, small.n_batch, small.max_rows, small.threads) == (64, 64, 64, 1)
        small.decode([1] * 64, rows=64)
        assert small.room == 0
        small.close()
        small.close()

    def test_an_id_outside_the_vocabulary_fails_and_changes_nothing(self, model: Model, context: Context) -> None:
        context.decode([1, 2, 3], rows=0)
        with pytest.raises(DecodeError) as caught:
            context.decode([model.n_vocab], rows=1)
        assert caught.value.path == model.path
        assert context.tokens == [1, 2, 3]
        context.decode([4], rows=1)

    def test_an_abort_leaves_the_cache_as_it_was(self, model: Model, context: Context, abort: AbortFlag) -> None:
        text = ids(model)
        context.decode(text[:10], rows=0)
        abort.set()
        with pytest.raises(DecodeError) as caught:
            context.decode(text[10:], rows=1)
        assert caught.value.code == 2
        assert context.tokens == text[:10]
        abort.clear()
        context.decode(text[10:12], rows=1)
        got = context.logits(0).copy()
        context.clear()
        context.decode(text[:10], rows=0)
        context.decode(text[10:12], rows=1)
        assert np.array_equal(got, context.logits(0))

    def test_an_abort_from_another_thread_ends_a_running_batch(
        self, model: Model, context: Context, abort: AbortFlag
    ) -> None:
        codes: list[int] = []

        def work() -> None:
            try:
                while True:
                    context.decode([5] * 200, rows=0)
                    context.truncate(0)
            except DecodeError as error:
                codes.append(error.code)

        thread = threading.Thread(target=work)
        thread.start()
        threading.Timer(0.2, abort.set).start()
        thread.join(HANG_SECONDS)
        assert not thread.is_alive()
        assert codes == [2]
        assert context.tokens == []


PROGRAM = """
import sys
from pathlib import Path
from specui.config import MAX_DRAFT_TOKENS_LIMIT
from specui.engine.llama import AbortFlag, Context, ContextSize, Model

def anonymous_mb():
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024

model = Model(Path(sys.argv[1]))
before = anonymous_mb()
context = Context(model, ContextSize(4096, 512, MAX_DRAFT_TOKENS_LIMIT + 1), None, AbortFlag())
context.decode([5] * 512, 0)
context.decode([5] * 64, 64)
print(anonymous_mb() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory figures of Linux")
def test_a_context_of_4096_costs_its_cache_and_little_more(bundled_pair: PairFiles) -> None:
    """30 layers, 3 heads of 64 for keys and for values, 2 bytes each: 94 MB for 4,096 tokens.

    Logits of every token would be 4,096 x 49,152 x 4 bytes = 805 MB.
    """
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(bundled_pair.draft)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parent.parent,
        timeout=300,
    )
    cache_mb = 30 * 2 * 3 * 64 * 2 * 4096 / 2**20
    grown = float(run.stdout)
    assert grown < cache_mb + 200, f"grew by {grown:.0f} MB, of which the cache is {cache_mb:.0f}"
