"""llama.cpp's grammars: which tokens of a vocabulary fit a text's next place.

llama.cpp ends the process when a grammar is moved on over a token it forbids; `engine.grammar.Grammar` asks first.
"""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import llama_cpp
import numpy as np
import numpy.typing as npt

from specui.engine.gbnf import traits
from specui.engine.llama.weights import Model
from specui.errors import ModelError, SettingError

_TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
"""llama_token_data."""

_LONGEST_SPELLING = 1024

_ALWAYS_ASKED = 0xFFFF
"""A beginning that no text has, for tokens whose spelling says nothing."""


@dataclass(frozen=True, slots=True)
class _Spellings:
    """What grammars need to know of a vocabulary, read once per model.

    `hidden` [n_vocab]: control tokens, which have a spelling but leave no text. `starts` [n_vocab]: the first two bytes
    of each spelling as one number (0 for a missing byte). `singles` and `pairs`: tokens of one byte and of two, which
    tell of the longer ones.
    """

    hidden: npt.NDArray[np.bool_]
    starts: npt.NDArray[np.uint16]
    singles: npt.NDArray[np.intp]
    pairs: npt.NDArray[np.intp]

    def narrowed(self) -> _Spellings:
        """Return the same with tokens of ASCII alone as those that tell."""
        singles = self.singles[self.starts[self.singles] < 0x8000]
        pairs = self.pairs[self.starts[self.pairs] & 0x8080 == 0]
        return replace(self, singles=singles, pairs=pairs)


_known: WeakKeyDictionary[Model, _Spellings] = WeakKeyDictionary()


def _spellings(model: Model) -> _Spellings:
    known = _known.get(model)
    if known is None:
        known = _known[model] = _read_spellings(model)
    return known


def _read_spellings(model: Model) -> _Spellings:
    vocab, n_vocab = llama_cpp.llama_model_get_vocab(model.handle), model.n_vocab
    kind_of, spell = llama_cpp.llama_vocab_get_attr, llama_cpp.llama_token_to_piece
    kinds = np.fromiter((kind_of(vocab, token) for token in range(n_vocab)), np.int32, n_vocab)
    hidden = kinds & (llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN) != 0
    hidden[list(model.end_tokens)] = False
    starts, lengths = np.zeros(n_vocab, np.uint16), np.zeros(n_vocab, np.int32)
    buffer = ctypes.create_string_buffer(_LONGEST_SPELLING)
    seen = memoryview(buffer).cast("B")
    for token in range(n_vocab):
        length = lengths[token] = spell(vocab, token, buffer, _LONGEST_SPELLING, 0, True)
        starts[token] = seen[0] << 8 | (seen[1] if length > 1 else 0)
    starts[list(model.end_tokens)] = _ALWAYS_ASKED
    starts[lengths < 0] = _ALWAYS_ASKED  # longer than the buffer
    telling = ~hidden & (starts != _ALWAYS_ASKED)
    (singles,), (pairs,) = np.nonzero(telling & (lengths == 1)), np.nonzero(telling & (lengths == 2))
    return _Spellings(hidden, starts, singles, pairs)


class NativeGrammar:
    """llama.cpp's state of a grammar (GBNF) at one place of a text.

    Raises SettingError where the grammar names a token the model has not, ModelError where llama.cpp refuses it.
    """

    def __init__(self, model: Model, gbnf: str) -> None:
        known = traits(gbnf)
        _check_tokens(model, known.tokens)
        vocab = llama_cpp.llama_model_get_vocab(model.handle)
        handle = llama_cpp.llama_sampler_init_grammar(vocab, gbnf.encode(), b"root")
        if not handle:
            raise ModelError(model.path, "llama.cpp cannot use this grammar with it; write a simpler one")
        self._hold(handle)
        self._data = np.zeros(model.n_vocab, _TOKEN_DATA)
        # A grammar is about text, and control tokens add none. One that asks for tokens itself is taken at its word.
        self._spellings = None if known.tokens else _spellings(model)
        if self._spellings is not None and known.excludes_wide:
            self._spellings = self._spellings.narrowed()

    def _hold(self, handle: Any) -> None:
        self._handle = handle
        weakref.finalize(self, llama_cpp.llama_sampler_free, handle)

    def clone(self) -> NativeGrammar:
        """Return a copy that can be moved on without this one; both use the same buffer, so on one thread only."""
        copy = object.__new__(NativeGrammar)
        copy._hold(llama_cpp.llama_sampler_clone(self._handle))
        copy._data, copy._spellings = self._data, self._spellings
        return copy

    def accept(self, token: int) -> None:
        """Move on over a token, which must be allowed: llama.cpp ends the process otherwise."""
        llama_cpp.llama_sampler_accept(self._handle, token)

    def allowed(self, ids: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Return which of the tokens `ids` [n] may come next [n]."""
        data = self._data[: len(ids)]
        data["id"], data["logit"] = ids, 0
        pointer = ctypes.cast(data.ctypes.data, ctypes.POINTER(llama_cpp.llama_token_data))
        candidates = llama_cpp.llama_token_data_array(pointer, len(ids), -1, False)
        llama_cpp.llama_sampler_apply(self._handle, ctypes.byref(candidates))
        flags: npt.NDArray[np.bool_] = data["logit"] == 0
        return flags if self._spellings is None else flags & ~self._spellings.hidden[ids]

    def allowed_ids(self) -> npt.NDArray[np.intp]:
        """Return, ascending, every token that may come next."""
        ids = np.arange(len(self._data)) if self._spellings is None else self._possible(self._spellings)
        return ids[self.allowed(ids)]

    def _possible(self, spellings: _Spellings) -> npt.NDArray[np.intp]:
        """Return, ascending, the tokens whose first two bytes may come next, as far as tokens of one and two tell.

        A token is allowed only where each of its beginnings is. Most places allow a few, and asking about those short
        tokens first saves asking about the whole vocabulary.
        """
        starts = spellings.starts
        possible = np.ones((256, 256), np.bool_)
        possible[starts[spellings.singles] >> 8] = self.allowed(spellings.singles)[:, np.newaxis]
        flat = possible.reshape(-1)
        pairs = spellings.pairs[flat[starts[spellings.pairs]]]
        flat[starts[pairs]] = self.allowed(pairs)
        flat[_ALWAYS_ASKED] = True
        (ids,) = np.nonzero(flat[starts])
        return ids


def _check_tokens(model: Model, tokens: frozenset[str]) -> None:
    """Raise SettingError where a token that a grammar names, such as <think> or <[7]>, is none of the model's."""
    for token in tokens:
        if token.startswith("<["):
            known = int(token[2:-2]) < model.n_vocab
        else:
            known = len(model.tokenize(token, add_special=False, parse_special=True)) == 1
        if not known:
            raise SettingError("grammar", token, f"a token of {model.path.name}")
