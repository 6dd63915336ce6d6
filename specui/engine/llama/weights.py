"""The weights of one GGUF file with its vocabulary, and their conversion to F32.

Knows files, tokens and their spellings; nothing about contexts.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import llama_cpp

from specui.engine.cpu import usable_threads
from specui.engine.llama.log import begin_log
from specui.errors import ModelError, ModelFileError, SettingError
from specui.gguf import check_gguf


class Model:
    """The weights of one GGUF file with its vocabulary.

    Raises ModelFileError where the file is missing, truncated, or of a kind llama.cpp cannot load, SettingError for
    layers on a GPU that this build of llama.cpp cannot use.
    """

    def __init__(self, path: Path, gpu_layers: int = 0, vocab_only: bool = False) -> None:
        check_gguf(path)
        log = begin_log()
        if gpu_layers and not llama_cpp.llama_supports_gpu_offload():
            raise SettingError("gpu_layers", gpu_layers, "0: this build of llama-cpp-python uses no GPU (see README)")
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        params.vocab_only = vocab_only
        handle = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not handle:
            raise ModelFileError(path, log.reason("llama.cpp cannot load it") + "; download it again or choose another")
        self.path = path
        self.gpu_layers = gpu_layers
        self.handle: Any = handle
        self._vocab: Any = llama_cpp.llama_model_get_vocab(handle)
        self.n_vocab: int = llama_cpp.llama_vocab_n_tokens(self._vocab)
        self.end_tokens = frozenset(i for i in range(self.n_vocab) if llama_cpp.llama_vocab_is_eog(self._vocab, i))
        # Read here, once: faces ask for these from other threads, and the weights may be freed meanwhile.
        self.size_bytes = int(llama_cpp.llama_model_size(handle))
        self.attention = _attention(handle)
        """Operations of a row on one token in front of it, in those on the weights; a guess from the layers."""
        template = llama_cpp.llama_model_chat_template(handle, None)
        self.chat_template = template.decode("utf-8", "replace") if template else None
        self._pieces: dict[int, bytes] = {}

    def close(self) -> None:
        """Free the weights. Every context on them must be closed first."""
        if self.handle:
            llama_cpp.llama_model_free(self.handle)
            self.handle = None

    @property
    def vocab_type(self) -> int:
        """llama.cpp's number for the tokenizer kind."""
        return int(llama_cpp.llama_vocab_type(self._vocab))

    @property
    def special_ids(self) -> dict[str, int]:
        """Ids of special tokens by name, as far as the model has them; bos where it is put in front of a text."""
        vocab = self._vocab
        ids = {"eos": llama_cpp.llama_vocab_eos(vocab), "eot": llama_cpp.llama_vocab_eot(vocab)}
        if llama_cpp.llama_vocab_get_add_bos(vocab):
            ids["bos"] = llama_cpp.llama_vocab_bos(vocab)
        return {name: int(token) for name, token in ids.items() if token >= 0}

    def token_text(self, token_id: int) -> str:
        """Return the vocabulary's own spelling of a token ('' for ids outside, such as -1 for an absent BOS)."""
        if not 0 <= token_id < self.n_vocab:
            return ""
        text: bytes = llama_cpp.llama_vocab_get_text(self._vocab, token_id)
        return text.decode("utf-8", "replace")

    def token_texts(self) -> list[bytes]:
        """Return the vocabulary's own spelling of every token [n_vocab]."""
        get, vocab = llama_cpp.llama_vocab_get_text, self._vocab
        return [get(vocab, token_id) for token_id in range(self.n_vocab)]

    @property
    def bos_text(self) -> str:
        """Spelling of the beginning-of-sequence token."""
        return self.token_text(llama_cpp.llama_vocab_bos(self._vocab))

    @property
    def eos_text(self) -> str:
        """Spelling of the end-of-sequence token."""
        return self.token_text(llama_cpp.llama_vocab_eos(self._vocab))

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        """Return the token ids of `text`; `add_special` puts BOS (and what else the model wants) around it."""
        raw = text.encode("utf-8", "replace")
        size = len(raw) + 8
        buffer = (llama_cpp.llama_token * size)()
        count = llama_cpp.llama_tokenize(self._vocab, raw, len(raw), buffer, size, add_special, parse_special)
        if count < 0:
            raise ModelError(self.path, "the tokenizer failed on this text; take another model or another text")
        return buffer[:count]

    def piece(self, token_id: int) -> bytes:
        """Return the bytes a token adds to the text; control tokens add none."""
        known = self._pieces.get(token_id)
        if known is None:
            known = self._pieces[token_id] = self._read_piece(token_id)
        return known

    def _read_piece(self, token_id: int) -> bytes:
        size = 64
        buffer = ctypes.create_string_buffer(size)
        count = llama_cpp.llama_token_to_piece(self._vocab, token_id, buffer, size, 0, False)
        if count < 0:
            size = -count
            buffer = ctypes.create_string_buffer(size)
            count = llama_cpp.llama_token_to_piece(self._vocab, token_id, buffer, size, 0, False)
        return buffer.raw[:count]


def _attention(handle: Any) -> float:
    width = int(llama_cpp.llama_model_n_layer(handle)) * int(llama_cpp.llama_model_n_embd(handle))
    return 2 * width / max(1, int(llama_cpp.llama_model_n_params(handle)))


def quantize_f32(source: Path, destination: Path) -> None:
    """Write `source` (any quantisation) as plain F32 to `destination`. Raises ModelFileError."""
    check_gguf(source)
    log = begin_log()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_ALL_F32
    params.allow_requantize = True
    params.nthread = usable_threads()
    code = llama_cpp.llama_model_quantize(str(source).encode(), str(destination).encode(), ctypes.byref(params))
    if code != 0:
        reason = log.reason("cannot be converted to F32")
        raise ModelFileError(source, f"{reason}; free some disk space and start again")
