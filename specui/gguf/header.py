"""A GGUF header as values: shape, tokenizer, tensors, and what follows from them without reading further.

Knows neither bytes nor files; `reading.py` makes these values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from specui.errors import ModelFileError
from specui.gguf.format import Strings, Tensor, Value
from specui.vocab import Vocabulary


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention: heads and key/value heads of each block (0 where a block has none), lengths of a head's vectors.

    `sliding_window` 0: none. `swa_blocks` says which blocks have it, where the header says so: one number (each n-th
    block sees everything), or a truth value a block.
    """

    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    key_length: int
    value_length: int
    swa_key_length: int
    swa_value_length: int
    latent_key_length: int
    sliding_window: int
    swa_blocks: int | tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Recurrent:
    """State sizes of recurrent blocks (Mamba, RWKV, short convolutions, delta rules); 0 for what a model has not."""

    conv_kernel: int
    inner_size: int
    state_size: int
    group_count: int
    wkv_head_size: int
    token_shift_count: int
    shortconv_length: int
    kda_head_length: int
    full_attention_interval: int


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The tokenizer: `kind` as the header names it ("gpt2"), ids of special tokens by name ("bos", "eot").

    Names the header leaves out are not in `special_ids`; llama.cpp then takes defaults of the kind. `add_bos` says
    whether BOS is put in front of a text; where the header does not, only the kind "llama" (SentencePiece) does it.
    """

    kind: str
    pre: str
    tokens: Strings | None
    special_ids: Mapping[str, int]
    add_bos: bool
    chat_template: str | None


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary positions; 0 or '' for what the header leaves out."""

    dimension_count: int
    freq_base: float
    scaling_type: str
    scaling_factor: float


@dataclass(frozen=True, slots=True)
class Header:
    """A GGUF file's header. Numbers the file does not give are 0, texts ''.

    `entries` holds every key as it is in the file. `tensors` is empty where only metadata was asked for;
    `tensor_count` is not. `header_bytes` is how many bytes were taken from the source. Beyond the first, shards of a
    model hold tensors and no metadata.
    """

    file: str
    version: int
    architecture: str
    model_name: str
    quantisation: str
    context_length: int
    block_count: int
    embedding_length: int
    feed_forward_lengths: tuple[int, ...]
    expert_count: int
    expert_used_count: int
    expert_feed_forward_length: int
    attention: Attention
    recurrent: Recurrent
    rope: Rope
    tokenizer: Tokenizer
    split_count: int
    split_no: int
    alignment: int
    tensor_count: int
    tensors: tuple[Tensor, ...]
    header_bytes: int
    entries: Mapping[str, Value]

    @property
    def feed_forward_length(self) -> int:
        """The widest feed-forward layer."""
        return max(self.feed_forward_lengths, default=0)

    @property
    def parameter_count(self) -> int:
        """How many numbers the tensors hold; 0 where they were not read."""
        return sum(tensor.values for tensor in self.tensors)

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors; 0 where they were not read."""
        return sum(tensor.size_bytes for tensor in self.tensors)

    @property
    def tensor_bytes_by_type(self) -> dict[str, int]:
        """Bytes of the tensors of each type, the largest first."""
        return bytes_by_type(self.tensors)

    @property
    def token_count(self) -> int:
        """How many tokens the vocabulary has."""
        tokens = self.tokenizer.tokens
        return len(tokens) if tokens is not None else 0

    def vocabulary(self) -> Vocabulary:
        """Return the vocabulary with its spellings [token_count] and special tokens, ready to be compared.

        Raises ModelFileError where the file has none.
        """
        tokenizer = self.tokenizer
        if not tokenizer.kind or not tokenizer.tokens:
            raise ModelFileError(Path(self.file), "has no vocabulary; choose a file of a whole model")
        # llama.cpp gives tokens without a spelling one of its own.
        texts = [text or f"[EMPTY_{i}]".encode() for i, text in enumerate(tokenizer.tokens)]
        special = dict(tokenizer.special_ids)
        if not tokenizer.add_bos:
            special.pop("bos", None)
        return Vocabulary(tokenizer.kind, texts, special)


def bytes_by_type(tensors: Iterable[Tensor]) -> dict[str, int]:
    """Return the bytes of the tensors of each type, the largest first."""
    total: Counter[str] = Counter()
    for tensor in tensors:
        total[tensor.type.name] += tensor.size_bytes
    return dict(total.most_common())
