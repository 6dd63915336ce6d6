"""llama.cpp's grammars, through the same bindings as `llama.py`: which tokens of a vocabulary fit a text's next place.

llama.cpp ends the process when a grammar is moved on over a token it forbids; `Grammar` in `grammar.py` asks first.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any
from weakref import WeakKeyDictionary

import llama_cpp
import numpy as np
import numpy.typing as npt

from specui.engine.gbnf import named_tokens
from specui.engine.llama import Model
from specui.errors import ModelError, SettingError

_TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
"""llama_token_data."""

_hidden: WeakKeyDictionary[Model, npt.NDArray[np.bool_]] = WeakKeyDictionary()


def _hidden_tokens(model: Model) -> npt.NDArray[np.bool_]:
    """Return which tokens [n_vocab] leave no text though llama.cpp has a spelling for them: control tokens."""
    known = _hidden.get(model)
    if known is None:
        get, n_vocab = llama_cpp.llama_vocab_get_attr, model.n_vocab
        vocab = llama_cpp.llama_model_get_vocab(model.handle)
        kinds = np.fromiter((get(vocab, token) for token in range(n_vocab)), np.int32, n_vocab)
        known = kinds & (llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN) != 0
        known[list(model.end_tokens)] = False
        _hidden[model] = known
    return known


class NativeGrammar:
    """llama.cpp's state of a grammar (GBNF) at one place of a text.

    Raises SettingError where the grammar names a token the model has not, ModelError where llama.cpp refuses it.
    """

    def __init__(self, model: Model, gbnf: str) -> None:
        tokens = named_tokens(gbnf)
        _check_tokens(model, tokens)
        vocab = llama_cpp.llama_model_get_vocab(model.handle)
        handle = llama_cpp.llama_sampler_init_grammar(vocab, gbnf.encode(), b"root")
        if not handle:
            raise ModelError(model.path, "llama.cpp cannot use this grammar with it; write a simpler one")
        self._hold(handle)
        self._data = np.zeros(model.n_vocab, _TOKEN_DATA)
        # A grammar is about text. Control tokens are spelled out for it but add none, unless it asks for tokens itself.
        self._hidden = np.zeros(model.n_vocab, np.bool_) if tokens else _hidden_tokens(model)

    def _hold(self, handle: Any) -> None:
        self._handle = handle
        weakref.finalize(self, llama_cpp.llama_sampler_free, handle)

    def clone(self) -> NativeGrammar:
        """Return a copy that can be moved on without this one; both use the same buffer, so on one thread only."""
        copy = object.__new__(NativeGrammar)
        copy._hold(llama_cpp.llama_sampler_clone(self._handle))
        copy._data, copy._hidden = self._data, self._hidden
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
        flags: npt.NDArray[np.bool_] = (data["logit"] == 0) & ~self._hidden[ids]
        return flags


def _check_tokens(model: Model, tokens: set[str]) -> None:
    """Raise SettingError where a token that a grammar names, such as <think> or <[7]>, is none of the model's."""
    for token in tokens:
        if token.startswith("<["):
            known = int(token[2:-2]) < model.n_vocab
        else:
            known = len(model.tokenize(token, add_special=False, parse_special=True)) == 1
        if not known:
            raise SettingError("grammar", token, f"a token of {model.path.name}")
