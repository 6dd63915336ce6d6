"""Drafts from a model with another vocabulary: the draft reads and writes text, the target verifies its own ids.

`DraftText` keeps what was committed as ids of the draft, `Seam` turns what the draft writes into ids of the target,
and `TranslatedDraft` is the drafter between them (as String-Level Exact Match in Timor et al. 2025, "Accelerating LLM
inference with lossless speculative decoding algorithms for heterogeneous vocabularies"). Exact like every draft
without probabilities: a wrong translation costs time and changes nothing. Knows two tokenizers and the draft's cache.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from specui.engine.drafting import Outcome, Proposal, TokenCache, common_prefix, evaluate, truncate_or_clear
from specui.engine.sampling import top_probability
from specui.engine.stats import TranslationCounts
from specui.engine.verification import EMPTY_DRAFT, Draft

MAX_DRAFT_RATIO = 2
"""Draft tokens written for each target token asked for, at most: if more are needed, they cost more than they bring."""

ABOUT_AS_LONG = 1.25
"""The draft's tokens count as about as long as the target's while the text has at most so many times as many."""

SETTLE_BYTES = 192
"""From this length on, a place is looked for at which the text that is tokenized anew can begin later."""

KEPT_BYTES = 64
"""New text is taken to change no tokens that lie farther back than this."""

SETTLE_TRIES = 8
MAX_OPEN_BYTES = 1024
"""Text without such a place (of bytes that the tokenizer does not give back) is left behind as it is at this length."""

TAIL_TOKENS = 8
"""Committed target tokens in front of a respelled draft, at most; they begin with a word where there is one."""


class TextModel(Protocol):
    """The part of `llama.Model` that translates between ids and text."""

    end_tokens: frozenset[int]

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]: ...
    def piece(self, token_id: int) -> bytes: ...
    def token_text(self, token_id: int) -> str: ...


class Spelling:
    """A model's tokenizer as a running text needs it.

    SentencePiece tokenizers may put a space in front of what they are given: `adds_space` says so, and `continuing`
    takes it back. `opening` is what the model wants in front of every text, such as a BOS token.
    """

    def __init__(self, model: TextModel) -> None:
        self.model = model
        letter = self.beginning("a")
        self.adds_space = self.bytes_of(letter) == b" a"
        whole = model.tokenize("a", add_special=True, parse_special=False)
        self.opening = whole[: whole.index(letter[0])] if letter and letter[0] in whole else []
        self._anchor_length = len(self.beginning("\n"))

    def bytes_of(self, ids: Sequence[int]) -> bytes:
        """Return the text of `ids`."""
        return b"".join(map(self.model.piece, ids))

    def beginning(self, text: str) -> list[int]:
        """Return the ids of `text` at the very beginning, or behind markup."""
        return self.model.tokenize(text, add_special=False, parse_special=False)

    def continuing(self, text: str) -> list[int]:
        """Return the ids of `text` behind other text."""
        if not self.adds_space:
            return self.beginning(text)
        if text.startswith(" ") and text != " ":
            return self.beginning(text[1:])
        return self.beginning("\n" + text)[self._anchor_length :]

    def markup(self, text: str) -> int | None:
        """Return the control token that is spelled `text`, or None."""
        ids = self.model.tokenize(text, add_special=False, parse_special=True) if text else []
        return ids[0] if len(ids) == 1 and self.is_markup(ids[0]) else None

    def is_markup(self, token_id: int) -> bool:
        """Return whether a token adds no text."""
        return not self.model.piece(token_id)


class DraftText:
    """What was committed, as ids of the draft; those from `open_from` on may still change with what follows.

    Text only grows. What is new is tokenized together with the open end in front of it, and the open end is moved on
    to a place where both its sides come out alone as they do together. Markup that the draft has under the same
    spelling becomes the draft's token, other markup plain text. An unfinished character is `held` until it is whole.
    """

    def __init__(self, target: Spelling, draft: Spelling) -> None:
        self.ids = list(draft.opening)
        self.open_from = len(self.ids)
        self.num_read = 0
        self._target = target
        self._draft = draft
        self._open = ""
        self._begins = True
        self._behind_markup = True
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._markup: dict[int, int | None] = {}

    @property
    def held(self) -> bytes:
        """Committed bytes of a character that is not whole yet."""
        return self._decoder.getstate()[0]

    @property
    def at_beginning(self) -> bool:
        """Whether no text stands behind the last of the draft's control tokens."""
        return self._begins and not self._open

    def read(self, tokens: Sequence[int]) -> None:
        """Append target tokens that follow the `num_read` read so far."""
        if not tokens:
            return
        opening = len(self._target.opening)
        skipped = opening if not self.num_read and list(tokens[:opening]) == self._target.opening else 0
        for token in tokens[skipped:]:
            if self._target.is_markup(token):
                self._read_markup(token)
            else:
                self._read_text(self._target.model.piece(token))
        self.num_read += len(tokens)
        self._tokenize()
        if len(self._open) > SETTLE_BYTES:
            self._settle()

    def _read_text(self, piece: bytes) -> None:
        if self._behind_markup and self._target.adds_space:
            piece = piece.removeprefix(b" ")
        self._behind_markup = False
        self._open += self._decoder.decode(piece)

    def _read_markup(self, token: int) -> None:
        self._open += self._decoder.decode(b"", final=True)
        self._behind_markup = True
        text = self._target.model.token_text(token)
        if token not in self._markup:
            self._markup[token] = self._draft.markup(text)
        known = self._markup[token]
        if known is None:
            self._open += text
            return
        self._tokenize()
        self.ids.append(known)
        self._leave("", begins=True, place=len(self.ids))

    def _leave(self, rest: str, begins: bool, place: int) -> None:
        """Keep the ids up to `place` for good; `rest` is the text of those behind it."""
        self._open, self._begins, self.open_from = rest, begins, place

    def _tokenize(self) -> None:
        spell = self._draft.beginning if self._begins else self._draft.continuing
        self.ids[self.open_from :] = spell(self._open) if self._open else []

    def _settle(self) -> None:
        """Move the open end on: to a token, not too near the end, behind which the rest comes out alone as it is."""
        raw = self._open.encode()
        size = tries = 0
        for place in range(len(self.ids) - 1, self.open_from, -1):
            size += len(self._draft.model.piece(self.ids[place]))
            if size < KEPT_BYTES:
                continue
            rest = _decoded(raw[-size:])
            if rest and self._draft.continuing(rest) == self.ids[place:]:
                self._leave(rest, begins=False, place=place)
                return
            tries += 1
            if tries == SETTLE_TRIES:
                break
        if len(raw) > MAX_OPEN_BYTES:
            self._leave("", begins=False, place=len(self.ids))


class Seam:
    """The place where a draft joins the committed text; `ids` gives what the draft wrote in the target's spelling.

    The draft's text is tokenized behind a tail of committed tokens, so that the boundary comes out as in the text as a
    whole. `tail` begins with a word, or behind markup, where one of these is near. `as_long`: the draft's tokens are.
    """

    def __init__(self, target: Spelling, draft: Spelling, committed: Sequence[int], text: DraftText) -> None:
        self._target = target
        self.tail = _tail(target, committed)
        self._before = target.bytes_of(self.tail)
        self._held = text.held
        behind_markup = not committed or target.is_markup(committed[-1])
        self.as_long = len(text.ids) <= ABOUT_AS_LONG * len(committed)
        self._taken_off = b" " if text.at_beginning and draft.adds_space else b""
        self._put_on = b" " if behind_markup and target.adds_space else b""

    def ids(self, written: bytes, num_open: int) -> list[int] | None:
        """Return the target's ids of what the draft wrote, without those that reach into its last `num_open` bytes.

        None where it cannot follow: it does not go on with the held bytes, is no UTF-8, or would have made other
        tokens of the tail, so that the target, which chose these, means something else.
        """
        text = self._put_on + written.removeprefix(self._taken_off)
        if not text.startswith(self._held):
            return [] if self._held.startswith(text) else None
        text = text[len(self._held) :]
        whole = _decoded(self._before + text)
        if whole is None:
            return None
        if len(whole.encode()) < len(self._before):
            return []
        spelled = self._target.continuing(whole) if whole else []
        if spelled[: len(self.tail)] != self.tail:
            return None
        return self._continuing(spelled[len(self.tail) :], text, len(text) - num_open)

    def _continuing(self, ids: Sequence[int], text: bytes, end: int) -> list[int]:
        """Return the first of `ids`: those whose bytes are those of `text` and that end at `end` at the latest."""
        reached = 0
        for count, token in enumerate(ids):
            piece = self._target.model.piece(token)
            if not piece or reached + len(piece) > end or not text.startswith(piece, reached):
                return list(ids[:count])
            reached += len(piece)
        return list(ids)


def _tail(target: Spelling, committed: Sequence[int]) -> list[int]:
    """Return the last committed tokens that new text could change: from the beginning of a word on, or markup."""
    piece, length = target.model.piece, len(committed)
    start = length
    while start > max(0, length - TAIL_TOKENS) and piece(committed[start - 1]):
        start -= 1
        before = piece(committed[start - 1]) if start else b""
        if piece(committed[start])[:1].isspace() and not before[-1:].isspace():
            break
    while start < length and _inside_character(piece(committed[start])):
        start += 1
    return list(committed[start:])


def _inside_character(raw: bytes) -> bool:
    return raw[0] & 0xC0 == 0x80


def _decoded(raw: bytes) -> str | None:
    """Return the whole characters of `raw`, or None where it is no UTF-8; an unfinished end is left out."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(raw)
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True, slots=True)
class _Guess:
    """The draft model's next token with its bytes; `ends`: a control token; `unsure`: less probable than p_min."""

    token: int
    piece: bytes
    ends: bool
    unsure: bool


class TranslatedDraft:
    """A small model of another vocabulary that writes the draft as text, greedily.

    One object reads one answer's text, which only grows; the cache is its own meanwhile. Each committed token of the
    draft is decoded once, but for the few at a boundary that new text moves. A draft ends early where the model's best
    token has less than `p_min` probability or is a control token, of which none is ever proposed. Penalties are left
    to the target: they count ids, and the draft has others.
    """

    def __init__(self, cache: TokenCache, target: TextModel, draft: TextModel, p_min: float = 0.0) -> None:
        self._cache = cache
        self._target = Spelling(target)
        self._draft = Spelling(draft)
        self.p_min = p_min
        self._begin_text()

    def _begin_text(self) -> None:
        self.counts = TranslationCounts()
        self._text = DraftText(self._target, self._draft)
        self._agreed = 0
        """So many ids are known to be the same in the cache and in the text."""

    def begin(self, prompt: Sequence[int]) -> Iterator[int]:
        """Read a new prompt and evaluate it but for its last token, yielding how many of the draft's are done."""
        self._begin_text()
        self._read(prompt)
        ids = self._text.ids
        if len(ids) > self._cache.n_ctx:
            return
        keep = self._rewind(len(ids) - 1)
        for done in evaluate(self._cache, ids[keep:-1], rows=0):
            yield keep + done

    def propose(self, proposal: Proposal) -> Draft:
        """Return at most `proposal.limit` ids of what the draft model writes next, without probabilities."""
        self._read(proposal.committed[self._text.num_read :])
        ids, cache = self._text.ids, self._cache
        most = min(MAX_DRAFT_RATIO * proposal.limit, cache.n_ctx - len(ids))
        if most < 1 or not ids:
            return EMPTY_DRAFT
        keep = self._rewind(len(ids) - 1)
        for _ in evaluate(cache, ids[keep:], rows=1):
            pass
        self._agreed = len(ids)
        seam = Seam(self._target, self._draft, proposal.committed, self._text)
        return Draft(self._write(seam, proposal.limit, most))

    def accept(self, outcome: Outcome) -> None:
        """Read what was accepted and cut the cache to it; the token behind it is read by the next proposal."""
        self._read(outcome.draft.tokens[: outcome.num_accepted])
        self._rewind(len(self._text.ids))

    def _read(self, tokens: Sequence[int]) -> None:
        self._agreed = min(self._agreed, self._text.open_from)
        self._text.read(tokens)

    def _rewind(self, length: int) -> int:
        """Cut the cache to what it shares with the first `length` of the text's ids; return how many are left."""
        cache, ids = self._cache, self._text.ids
        start = max(0, min(self._agreed, len(cache.tokens), length))
        keep = start + common_prefix(cache.tokens[start:], ids[start : max(0, length)])
        truncate_or_clear(cache, keep)
        self._agreed = len(cache.tokens)
        return self._agreed

    def _write(self, seam: Seam, limit: int, most: int) -> list[int]:
        """Let the draft write until `limit` ids come of it, or `most` tokens are written, or it ends by itself."""
        written, num_written = b"", 0
        while True:
            guess = self._guess()
            if guess.ends:
                ids = seam.ids(written, 0)
                break
            # Text to come may merge into the last id. A guess that is not taken shows how it may go on; without one
            # the end of a draft token is mostly the end of an id, unless the draft's tokens are the shorter ones.
            num_written += not guess.unsure
            num_open = len(guess.piece) if guess.unsure or not seam.as_long else 0
            written += guess.piece
            ids = seam.ids(written, num_open)
            if guess.unsure or ids is None or len(ids) >= limit or num_written == most:
                break
            self._cache.decode([guess.token], rows=1)
        ids = (ids or [])[:limit]
        self.counts = self.counts.plus(num_written, len(ids))
        return ids

    def _guess(self) -> _Guess:
        row = self._cache.logits(0)
        token = int(row.argmax())
        piece = self._draft.model.piece(token)
        unsure = self.p_min > 0 and top_probability(row) < self.p_min
        return _Guess(token, piece, token in self._draft.model.end_tokens or not piece, unsure)
