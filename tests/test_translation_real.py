"""Drafts from another vocabulary with real weights: the bundled draft with its ids in reverse, and tiny models.

The reversed file is the same model: every token has another id. What it drafts is as good as before.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import pytest
from tiny_models import write_tiny

from specui.catalog import PairFiles
from specui.config import DraftingSettings, SpeculationMode, StepSettings
from specui.engine.chat import ChatTemplate
from specui.engine.decoder import Decoder, Task
from specui.engine.drafting import Drafter, DraftModel, NoDrafter
from specui.engine.llama import AbortFlag, Context, ContextSize, Model
from specui.engine.stats import Stats
from specui.engine.translation import DraftText, Seam, Spelling, TranslatedDraft
from specui.vocab import Vocabulary, compare

pytestmark = pytest.mark.slow
N_CTX = 512
MAX_TOKENS = 48
NORMAL = 1
"""GGUF's type of tokens that are neither markup nor bytes."""
QUESTIONS = ("Write a haiku about the sea.", "Count from one to twenty in words, then in Korean: 하나, 둘, 셋 …")
TEXTS = {
    "code": 'def add(self, amount=0):\n    """Add."""\n    if amount == 0:\n        raise ValueError(f"{amount!r}")\n\n'
    * 4,
    "prose": "The keeper's cat (12 years old) didn't like 3,141.59 storms; \"unbelievable!\", she'd say.\n\nTwice…\n"
    * 4,
    "Chinese": "自然语言处理是人工智能的一个重要方向，它研究能实现人与计算机之间用自然语言进行有效通信的方法。" * 3,
    "Korean and emoji": "안녕하세요 세계! 오늘은 날씨가 정말 좋네요. 👨‍👩‍👧‍👦 가족과 함께 산책을 갔습니다. " * 3,
    "no blanks": "abcDefGhi" * 60,
    "blanks": "\n        if x:\n            y  =  1\n\n\n\t\tz\n" * 8,
}


def reversed_vocabulary(source: Path, path: Path) -> Path:
    """Write `source` with the ids of all plain tokens in reverse order, their embeddings with them."""
    shutil.copyfile(source, path)
    reader = gguf.GGUFReader(source)
    kinds, field = (reader.fields[f"tokenizer.ggml.{name}"] for name in ("token_type", "tokens"))
    types = kinds.contents()
    plain = np.flatnonzero(np.array(types) == NORMAL)
    order = np.arange(len(types))
    order[plain] = plain[::-1]
    strings = [field.parts[part - 1].tobytes() + field.parts[part].tobytes() for part in field.data]
    start = field.offset + sum(int(part.nbytes) for part in field.parts[: field.data[0] - 1])
    embeddings = next(tensor for tensor in reader.tensors if tensor.name == "token_embd.weight")
    with path.open("rb+") as file:
        file.seek(start)
        file.write(b"".join(strings[old] for old in order))
        file.seek(embeddings.data_offset)
        file.write(np.ascontiguousarray(embeddings.data[order]).tobytes())
    return path


@pytest.fixture(scope="module")
def target(bundled_pair: PairFiles) -> Iterator[Model]:
    model = Model(bundled_pair.target)
    yield model
    model.close()


@pytest.fixture(scope="module")
def stranger(bundled_pair: PairFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    assert bundled_pair.draft is not None
    model = Model(reversed_vocabulary(bundled_pair.draft, tmp_path_factory.mktemp("models") / "reversed.gguf"))
    yield model
    model.close()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """A SentencePiece model of bytes and letters, which writes nonsense."""
    model = Model(write_tiny(tmp_path_factory.mktemp("models") / "tiny.gguf", "llama"))
    yield model
    model.close()


def open_context(model: Model) -> Context:
    """Return a context of one thread: several spin for each other on a busy machine."""
    return Context(model, ContextSize(N_CTX, 128, 16), 1, AbortFlag())


class OneDrafter:
    """A lane with one drafter."""

    def __init__(self, drafter: Drafter, mode: SpeculationMode) -> None:
        self.failures: list[str] = []
        self._picked = (drafter, mode)

    def pick(self, drafting: DraftingSettings) -> tuple[Drafter, SpeculationMode, str | None]:
        """Return the drafter."""
        return *self._picked, None

    def longest(self, drafting: DraftingSettings, limit: int) -> int:
        """Allow every length."""
        return limit

    def fail(self, reason: str, every_mode: bool = False) -> None:
        """Keep the reason."""
        self.failures.append(reason)


@dataclass(frozen=True)
class Written:
    """An answer's ids and figures."""

    tokens: list[int]
    stats: Stats


def write(model: Model, prompt: Sequence[int], drafter: Drafter | None, max_tokens: int = MAX_TOKENS) -> Written:
    """Answer `prompt` greedily."""
    mode: SpeculationMode = "draft-model" if drafter else "none"
    settings = StepSettings(drafting=DraftingSettings(mode, 5 if drafter else None))
    task = Task(prompt, max_tokens, model.end_tokens, 0, lambda: settings, lambda _token, _origin: False)
    context, lane = open_context(model), OneDrafter(drafter or NoDrafter(), mode)
    decoder = Decoder(context, lane, task)
    for _ in decoder.prefill():
        pass
    while decoder.step():
        pass
    context.close()
    assert lane.failures == []
    return Written(decoder.committed[len(prompt) :], decoder.stats.snapshot())


def test_the_reversed_vocabulary_is_another_one(target: Model, stranger: Model) -> None:
    found = compare(*(Vocabulary(model.vocab_type, model.token_texts()) for model in (target, stranger)))
    assert not found.compatible
    assert found.share_equal < 0.001
    assert found.reason is not None
    assert found.reason.startswith("token 17 is ")


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_same_model_with_other_ids_drafts_as_well_as_before(
    target: Model, stranger: Model, bundled_pair: PairFiles, question: str
) -> None:
    assert bundled_pair.draft is not None
    prompt = ChatTemplate(target).tokens([("user", question)])
    plain = write(target, prompt, None)
    own = Model(bundled_pair.draft)
    own_context, context = open_context(own), open_context(stranger)
    known = write(target, prompt, DraftModel(own_context, target.n_vocab, 0.2))
    drafter = TranslatedDraft(context, target, stranger, 0.2)
    translated = write(target, prompt, drafter)
    assert translated.tokens == plain.tokens
    assert translated.stats.acceptance_rate is not None and known.stats.acceptance_rate is not None
    assert translated.stats.acceptance_rate > known.stats.acceptance_rate - 0.1
    assert translated.stats.acceptance_rate > 0.6
    assert drafter.counts.target_tokens_proposed == translated.stats.num_draft_tokens
    for each in (own_context, context, own):
        each.close()


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_every_place_of_a_text_is_read_and_respelled_as_the_whole_text_is(
    target: Model, stranger: Model, text: str, size: int
) -> None:
    ours, theirs = Spelling(target), Spelling(stranger)
    ids = ours.beginning(text)
    read = DraftText(ours, theirs)
    for cut in range(size, len(ids) - 20, size):
        read.read(ids[cut - size : cut])
        done = ours.bytes_of(ids[:cut])
        assert read.ids == theirs.beginning(done[: len(done) - len(read.held)].decode())
        follows = text.encode()[len(done) - len(read.held) :][:60].decode("utf-8", "ignore")
        found = Seam(ours, theirs, ids[:cut], read).ids(follows.encode(), 12)
        assert found is not None
        assert found == ids[cut : cut + len(found)]
        assert found


def test_markup_of_a_chat_is_read_as_markup(target: Model, stranger: Model, tiny: Model) -> None:
    prompt = ChatTemplate(target).tokens([("user", "Hi <|im_end|> 한")])
    text = b"".join(target.token_text(t).encode() if not target.piece(t) else target.piece(t) for t in prompt).decode()
    read = DraftText(Spelling(target), Spelling(stranger))
    read.read(prompt)
    assert read.ids == stranger.tokenize(text, add_special=True, parse_special=True)
    plain = DraftText(Spelling(target), Spelling(tiny))
    plain.read(prompt)
    assert plain.ids == tiny.tokenize(text, add_special=True, parse_special=False)


@pytest.mark.parametrize("roles", ["tiny drafts", "tiny is the target"])
def test_a_draft_of_another_kind_that_writes_nonsense_changes_nothing(target: Model, tiny: Model, roles: str) -> None:
    model, draft = (target, tiny) if roles == "tiny drafts" else (tiny, target)
    prompt = model.tokenize("Once upon a time, there", add_special=True, parse_special=False)
    context = open_context(draft)
    drafter = TranslatedDraft(context, model, draft)
    assert write(model, prompt, drafter, 30).tokens == write(model, prompt, None, 30).tokens
    assert drafter.counts.draft_tokens_written > 0
    context.close()
