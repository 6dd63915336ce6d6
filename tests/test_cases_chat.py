"""Templates, thoughts and vocabularies, on tiny models and the bundled vocabulary.

BOS tokens, a model without a template, thoughts that a template leaves out, and drafts of another vocabulary.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import tiny_models
from asking import SPECULATIVE, ask, request
from tiny_models import N_VOCAB, write_tiny

from specui import pairs
from specui.catalog import PairFiles
from specui.config import LoadSettings, SamplingSettings, SpeculationMode
from specui.engine.chat import ChatTemplate
from specui.engine.llama import Model
from specui.errors import TemplateError
from specui.generation import Message
from specui.runtime import Runtime
from specui.ui.conversation import Answer, Conversation, Turn

RAW = "the quick brown fox jumps over the lazy dog. the quick brown fox "
NO_END = SamplingSettings(logit_bias=((2, -100.0),))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf", "llama")


@pytest.fixture(scope="module")
def tiny_model(tiny: Path) -> Iterator[Model]:
    model = Model(tiny)
    yield model
    model.close()


@pytest.fixture
def fresh() -> Iterator[Runtime]:
    runtime = Runtime(LoadSettings(ctx_size=512, threads=1))
    yield runtime
    runtime.close()


class TestTemplates:
    """Exactly the BOS tokens that a model wants; no guess where there is no template."""

    TURNS = (("user", "a b"), ("assistant", "c"), ("user", "d"))
    BODY = "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}"

    @pytest.mark.parametrize("template", [BODY, "{{ bos_token }}" + BODY], ids=["not written", "written"])
    def test_one_bos_where_the_model_wants_one(self, tiny_model: Model, template: str) -> None:
        ids = ChatTemplate(tiny_model, template).tokens(self.TURNS)
        assert [place for place, token in enumerate(ids) if token == 1] == [0]

    def test_none_where_it_wants_none(self, bundled_pair: PairFiles) -> None:
        """The bundled model's BOS is the token that opens every turn; there is one for each and no other in front."""
        assert bundled_pair.draft is not None
        model = Model(bundled_pair.draft, vocab_only=True)
        opening = model.tokenize("<|im_start|>", add_special=False, parse_special=True)
        ids = ChatTemplate(model).tokens([("system", "Be brief."), *self.TURNS])
        assert ids[:1] == opening
        assert ids.count(opening[0]) == 5, "four turns, and the one to be written"
        bare = ChatTemplate(model, self.BODY).tokens(self.TURNS)
        assert opening[0] not in bare
        model.close()

    def test_a_model_without_a_template_says_so_and_takes_raw_text(self, fresh: Runtime, tiny: Path) -> None:
        loaded = fresh.load(pairs.from_paths(tiny))
        assert not loaded.has_chat_template
        with pytest.raises(TemplateError, match=r"tiny\.gguf.*models\.yaml"):
            ask(fresh, "hello")
        assert ask(fresh, RAW, max_tokens=4, raw=True).token_ids

    def test_a_template_that_cannot_be_read_is_named(self, tiny_model: Model) -> None:
        with pytest.raises(TemplateError, match=r"tiny\.gguf.*cannot be read"):
            ChatTemplate(tiny_model, "{% for m in messages %}")


THINKING = (
    "{% for m in messages %}<{{ m.role }}>"
    "{% if m.role == 'assistant' and '</think>' in m.content %}{{ m.content.split('</think>')[-1].lstrip('\\n') }}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}<assistant>"
)
"""Leaves thoughts of earlier turns out, in the way that the templates of reasoning models do."""


class TestThoughts:
    """An answer reaches the template whole, which leaves out what it wants."""

    ANSWER = "<think>\nThey greet me. A secret.\n</think>\n\nHello!"

    def messages(self, answer: str) -> tuple[Message, ...]:
        turns = (Turn("Hi", Answer(answer)), Turn("And now?"))
        return Conversation("chat", turns).messages("")

    def rendered(self, model: Model, template: str, answer: str) -> str:
        return ChatTemplate(model, template).render([(each.role, each.content) for each in self.messages(answer)])

    def test_a_template_leaves_thoughts_out_of_the_next_prompt(self, tiny_model: Model) -> None:
        text = self.rendered(tiny_model, THINKING, self.ANSWER)
        assert text == "<user>Hi<assistant>Hello!<user>And now?<assistant>"

    def test_a_template_that_keeps_them_gets_them(self, tiny_model: Model) -> None:
        assert self.ANSWER in self.rendered(tiny_model, TestTemplates.BODY, self.ANSWER)

    def test_a_thought_that_was_stopped_is_sent_as_it_is(self, tiny_model: Model) -> None:
        """The template sees no end of it and decides; nothing of what the person wrote is lost."""
        text = self.rendered(tiny_model, THINKING, "<think>\nThey greet")
        assert text == "<user>Hi<assistant><think>\nThey greet<user>And now?<assistant>"


def with_token(path: Path, copy: Path, old: bytes, new: bytes) -> Path:
    """Copy a model with one token spelled otherwise, in as many bytes."""
    head = struct.pack("<Q", len(old))
    content = path.read_bytes()
    assert content.count(head + old) == 1 and len(old) == len(new)
    copy.write_bytes(content.replace(head + old, head + new))
    return copy


class TestVocabularies:
    """Drafts that do not fit are refused with the first difference; the chat goes on. Padded ones serve."""

    def refused(self, runtime: Runtime, files: PairFiles, prompt: str) -> str:
        """Return the reason, after a look that every mode still writes what mode none writes."""
        runtime.load(files)
        want = ask(runtime, prompt, "none", 24, raw=True)
        got = ask(runtime, prompt, "draft-model", 24, raw=True)
        assert got.token_ids == want.token_ids
        assert (got.stats.speculation, got.stats.speculation_used) == ("draft-model", "none")
        for mode in ("prompt-lookup", "auto"):
            other = ask(runtime, prompt, mode, 24, raw=True)
            assert (other.token_ids, other.stats.speculation_used) == (want.token_ids, mode)
        loaded = runtime.loaded
        assert loaded is not None and loaded.draft_bytes == 0, "what was refused is freed"
        return got.stats.speculation_off_reason or ""

    def test_one_token_different(self, fresh: Runtime, tiny: Path, tmp_path: Path) -> None:
        draft = with_token(tiny, tmp_path / "draft.gguf", b"w1", b"v1")
        reason = self.refused(fresh, pairs.from_paths(tiny, draft), RAW)
        assert "draft.gguf" in reason and "'v1'" in reason and "'w1'" in reason

    def test_another_kind_of_tokenizer(self, fresh: Runtime, tiny: Path, bundled_pair: PairFiles) -> None:
        reason = self.refused(fresh, pairs.from_paths(tiny, bundled_pair.draft), RAW)
        assert "tokenizer kind" in reason

    @pytest.mark.parametrize("mode", SPECULATIVE)
    def test_a_padded_draft_never_sends_an_id_that_the_target_lacks(
        self, fresh: Runtime, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: SpeculationMode
    ) -> None:
        """A random model is as fond of its padding as of anything else."""
        monkeypatch.setattr(tiny_models, "N_VOCAB", 2 * N_VOCAB)
        draft = write_tiny(tmp_path / "padded.gguf", "llama")
        fresh.load(pairs.from_paths(tiny, draft))
        sent = self.watch(fresh, monkeypatch)
        want = ask(fresh, RAW, "none", 60, raw=True, sampling=NO_END)
        got = ask(fresh, RAW, mode, 60, raw=True, sampling=NO_END)
        assert got.token_ids == want.token_ids
        assert (got.stats.speculation_used, got.stats.speculation_off_reason) == (mode, None)
        assert mode != "draft-model" or got.stats.num_draft_tokens > 20
        assert max(sent) < N_VOCAB

    def watch(self, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> set[int]:
        """Return a set that every id sent to the target is put in."""
        pair = runtime._pair
        assert pair is not None
        sent: set[int] = set()
        decode = pair.lane.target.decode

        def watched(tokens: Sequence[int], rows: int) -> None:
            sent.update(tokens)
            decode(tokens, rows)

        monkeypatch.setattr(pair.lane.target, "decode", watched)
        return sent

    def test_a_draft_that_lacks_an_id_of_the_target_is_off_for_that_answer(
        self, fresh: Runtime, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tiny_models, "N_VOCAB", 2 * N_VOCAB)
        target = write_tiny(tmp_path / "padded.gguf", "llama")
        fresh.load(pairs.from_paths(target, tiny))
        want = fresh.start(request(RAW, "none", 60, raw=True, sampling=NO_END)).result()
        assert max(want.token_ids) >= N_VOCAB
        got = fresh.start(request(RAW, "draft-model", 60, raw=True, sampling=NO_END)).result()
        assert got.token_ids == want.token_ids
        assert "tiny.gguf" in (got.stats.speculation_off_reason or "")
