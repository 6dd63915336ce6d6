"""Toy tokenizers and models that write a text with them, for the tests of drafts from another vocabulary."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np
from fake_model import FakeCache, FakeDrafters, Script

from specui.config import DraftingSettings, SamplingSettings, SpeculationMode
from specui.engine.dice import Dice
from specui.engine.drafting import Drafter, Outcome, Proposal
from specui.engine.sampling import Logits
from specui.engine.translation import TranslatedDraft
from specui.engine.verification import Draft

STORY = " the house is bigger than ab abc 한국어 👍👍 the house"
LETTERS = ["a", "b", "c", " ", "\n", "é", "한", "👍"]
N_BYTES = 256


class Toy:
    """A tokenizer that takes the longest token that fits: ids 0 to 255 are the bytes, then words, then control tokens.

    `spaced`: with a space put in front of every text, as SentencePiece has it. `opening`: a control token in front.
    """

    def __init__(
        self,
        words: Sequence[str | bytes],
        controls: Sequence[str] = ("<end>",),
        spaced: bool = False,
        opening: str = "",
    ) -> None:
        self.pieces = [bytes([i]) for i in range(N_BYTES)]
        self.pieces += [word.encode() if isinstance(word, str) else word for word in words]
        self.controls = {text: len(self.pieces) + i for i, text in enumerate(controls)}
        self.n_vocab = len(self.pieces) + len(controls)
        self.end_tokens = frozenset({self.controls["<end>"]})
        self.num_bytes_read = 0
        self.spaced = spaced
        self._opening = [self.controls[opening]] if opening else []
        self._ids = {piece: i for i, piece in enumerate(self.pieces)}
        self._longest = max(map(len, self.pieces))

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        """Return ids as `llama.Model.tokenize` does."""
        self.num_bytes_read += len(text.encode())
        ids = list(self._opening) if add_special else []
        while text:
            found = [(text.index(c), c) for c in self.controls if c in text] if parse_special else []
            place, control = min(found, default=(len(text), ""))
            if place:
                ids += self.split((" " if self.spaced else "").encode() + text[:place].encode())
            if control:
                ids.append(self.controls[control])
            text = text[place + len(control) :]
        return ids

    def split(self, raw: bytes) -> list[int]:
        """Return the ids of `raw`, longest first from the left."""
        ids = []
        while raw:
            size = next(n for n in range(min(self._longest, len(raw)), 0, -1) if raw[:n] in self._ids)
            ids.append(self._ids[raw[:size]])
            raw = raw[size:]
        return ids

    def piece(self, token_id: int) -> bytes:
        """Return a token's bytes."""
        return self.pieces[token_id] if token_id < len(self.pieces) else b""

    def token_text(self, token_id: int) -> str:
        """Return the spelling of a token."""
        names = {i: text for text, i in self.controls.items()}
        return names.get(token_id) or self.pieces[token_id].decode("utf-8", "replace")

    def text_of(self, ids: Sequence[int]) -> bytes:
        """Return the bytes of `ids`."""
        return b"".join(map(self.piece, ids))


PLAIN = Toy([" the", " house", " is", " big", "er", "ab", "abc", " a", "한국", "\n\n"])
BYTES_ONLY = Toy([])
WHOLE_WORDS = Toy([" the house", " is bigger", " is", " big", "ger", "bc", "한", "국어", "👍"])
HALVES = Toy([" th", "e h", "ou", "se", b"\xed\x95", b"\x9c\xea", b"\xf0\x9f", b"\x91\x8d"])
SPACED = Toy([" the", " house", " is", "ab"], ["<end>", "<s>"], spaced=True, opening="<s>")
TOYS = {"plain": PLAIN, "bytes": BYTES_ONLY, "whole words": WHOLE_WORDS, "halves": HALVES, "spaced": SPACED}


def random_toy(seed: int, spaced: bool = False) -> Toy:
    """Return a tokenizer whose words hold blanks at the front only, as real ones do."""
    rng = np.random.default_rng(seed)
    solid = [letter for letter in LETTERS if not letter.isspace()]
    words: list[str | bytes] = ["".join(rng.choice(solid, size=rng.integers(2, 5))) for _ in range(20)]
    words += [" " + "".join(rng.choice(solid, size=rng.integers(1, 4))) for _ in range(15)]
    words += [b"\xed\x95", b"\xf0\x9f", b"\x91\x8d", "\n\n", " \n"]
    return Toy(list(dict.fromkeys(words)), spaced=spaced)


def random_text(seed: int, length: int) -> str:
    return "".join(np.random.default_rng(seed).choice(LETTERS, size=length))


Continue = Callable[[bytes], bytes]
"""From a text to what follows it."""


def rambling(seed: int, wrong: float = 0.0) -> Continue:
    """Return a writer whose next letter depends on the last two; with a chance of `wrong`, on something else."""

    def next_letter(text: str) -> str:
        key = zlib.crc32(f"{seed}:{text[-2:]}".encode())
        strange = zlib.crc32(f"{key}:{text[-5:]}".encode()) % 1000 < 1000 * wrong
        return LETTERS[(key // 7 + strange) % len(LETTERS)]

    def go_on(raw: bytes) -> bytes:
        start = len(raw)
        text = raw.decode("utf-8", "ignore")
        whole = len(text.encode())
        for _ in range(16):
            text += next_letter(text)
        return text.encode()[start - whole + len(raw[:whole]) :]

    return go_on


def reading(story: str) -> Continue:
    """Return a writer that knows one text only."""
    return lambda raw: story.encode()[len(raw) :] if story.encode().startswith(raw) else b""


def writer(toy: Toy, go_on: Continue, peak: float = 20.0) -> Script:
    """Return a model that writes `go_on` in the tokens of `toy`, and its end where nothing follows.

    The logit of its best token is `peak`, that of all others 0.
    """

    def script(tokens: Sequence[int]) -> Logits:
        follows = go_on(toy.text_of(tokens).removeprefix(b" " if toy.spaced else b""))
        row = np.zeros(toy.n_vocab, np.float32)
        row[toy.split(follows)[0] if follows else next(iter(toy.end_tokens))] = peak
        return row

    return script


def propose(drafter: Drafter, committed: Sequence[int], limit: int) -> Draft:
    return drafter.propose(Proposal(list(committed), limit, SamplingSettings(), Dice(0)))


def outcome(length: int, draft: Draft, accepted: int) -> Outcome:
    return Outcome(length, draft, accepted, len(draft) + 1, 0.0, 0.0)


def begun(target: Toy, draft: Toy, script: Script, prompt: Sequence[int], p_min: float = 0.0) -> TranslatedDraft:
    drafter = TranslatedDraft(FakeCache(script), target, draft, p_min)
    for _ in drafter.begin(prompt):
        pass
    return drafter


class TranslatedDrafters(FakeDrafters):
    """A lane's rules with a drafter for each answer."""

    def __init__(self, cache: FakeCache, target: Toy, draft: Toy) -> None:
        super().__init__(cache)
        self._parts = (cache, target, draft)
        self.drafter: TranslatedDraft | None = None

    def begin_answer(self) -> None:
        super().begin_answer()
        self.drafter = None

    def pick(self, drafting: DraftingSettings) -> tuple[Drafter, SpeculationMode, str | None]:
        if drafting.speculation != "draft-model" or "draft-model" in self.failed:
            return super().pick(drafting)
        self.picked = "draft-model"
        self.drafter = self.drafter or TranslatedDraft(*self._parts, drafting.draft_p_min)
        return self.drafter, "draft-model", None
