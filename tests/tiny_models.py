"""Models of a few hundred kilobytes with random weights, one for each kind of memory that llama.cpp has.

They write nonsense, but always the same, and every token depends on all before it: a state that is one token off gives
another text. Weights are F32 and wide, so that the best token is rarely near the second best.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
import numpy.typing as npt

Kind = Literal["llama", "gemma3", "mamba", "jamba", "lfm2", "qwen35", "nemotron_h"]

N_VOCAB = 320
N_EMBD = 64
N_HEAD = 4
HEAD = N_EMBD // N_HEAD
N_FF = 96
N_LAYER = 2
WINDOW = 32
"""The sliding window of the tiny gemma3, in tokens."""
D_INNER = 2 * N_EMBD
D_STATE = 8
D_CONV = 4
DT_RANK = 4
N_GROUP = 2
N_STATE_HEAD = D_INNER // D_STATE
"""Heads of the states of qwen35 and nemotron_h, which are D_STATE wide."""
L_CACHE = 3
"""The width of the short convolutions of the tiny lfm2."""

Weights = npt.NDArray[np.float32]


class _File:
    """Collects metadata and random tensors of one model."""

    def __init__(self, path: Path, kind: Kind, seed: int, n_layer: int) -> None:
        self.writer: Any = gguf.GGUFWriter(str(path), kind)
        self.n_layer = n_layer
        self._rng = np.random.default_rng(seed)
        self._add_vocabulary()

    def _add_vocabulary(self) -> None:
        """A SentencePiece vocabulary: three special tokens, every byte, and the letters."""
        pieces = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))]
        types = [2, 3, 3, *[6] * 256]
        letters = [f"\u2581{letter}".encode() for letter in "abcdefghijklmnopqrstuvwxyz"]
        letters += [letter.encode() for letter in "abcdefghijklmnopqrstuvwxyz,.?!\u2581"]
        pieces += letters
        pieces += [f"w{place}".encode() for place in range(N_VOCAB - len(pieces))]
        writer = self.writer
        writer.add_tokenizer_model("llama")
        writer.add_token_list(pieces)
        writer.add_token_scores([-float(place) for place in range(N_VOCAB)])
        writer.add_token_types(types + [1] * (N_VOCAB - len(types)))
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)

    def matrix(self, name: str, rows: int, columns: int, gain: float = 1.0) -> None:
        """Add a weight [rows, columns] that gives outputs about `gain` times as large as its inputs."""
        self.tensor(name, gain * self._rng.normal(size=(rows, columns)) / np.sqrt(columns))

    def norm(self, name: str, size: int, gain: float = 1.0) -> None:
        """Add the scale of a norm."""
        self.tensor(name, gain * (1 + 0.2 * self._rng.normal(size=size)))

    def tensor(self, name: str, values: npt.NDArray[np.float64]) -> None:
        """Add a tensor as it is."""
        self.writer.add_tensor(name, np.ascontiguousarray(values, np.float32))

    def attention(self, layer: int, n_head_kv: int, normed: bool = False, gated: bool = False) -> None:
        """Add the projections of an attention layer; `normed`: norms of queries and keys, `gated`: a gate by query."""
        prefix = f"blk.{layer}.attn_"
        self.matrix(prefix + "q.weight", N_EMBD * (1 + gated), N_EMBD, 2.0)
        self.matrix(prefix + "k.weight", n_head_kv * HEAD, N_EMBD, 2.0)
        self.matrix(prefix + "v.weight", n_head_kv * HEAD, N_EMBD)
        self.matrix(prefix + "output.weight", N_EMBD, N_EMBD)
        if normed:
            self.norm(prefix + "q_norm.weight", HEAD)
            self.norm(prefix + "k_norm.weight", HEAD)

    def feed_forward(self, layer: int, normed: bool = True) -> None:
        """Add a gated feed-forward block, `normed`: with the norm before it."""
        prefix = f"blk.{layer}.ffn_"
        if normed:
            self.norm(prefix + "norm.weight", N_EMBD)
        self.matrix(prefix + "gate.weight", N_FF, N_EMBD)
        self.matrix(prefix + "up.weight", N_FF, N_EMBD)
        self.matrix(prefix + "down.weight", N_EMBD, N_FF)

    def scan(self, layer: int, normed: bool) -> None:
        """Add a selective state space layer (mamba); `normed` with the norms that jamba has."""
        prefix, rng = f"blk.{layer}.ssm_", self._rng
        self.matrix(prefix + "in.weight", 2 * D_INNER, N_EMBD)
        self.matrix(prefix + "conv1d.weight", D_INNER, D_CONV, 2.0)
        self.tensor(prefix + "conv1d.bias", 0.1 * rng.normal(size=D_INNER))
        self.matrix(prefix + "x.weight", DT_RANK + 2 * D_STATE, D_INNER, 2.0)
        self.matrix(prefix + "dt.weight", D_INNER, DT_RANK)
        self.tensor(prefix + "dt.bias", rng.uniform(-3, 0, size=D_INNER))
        self.tensor(prefix + "a", -rng.uniform(0.05, 2, size=(D_INNER, D_STATE)))
        self.tensor(prefix + "d", rng.normal(size=D_INNER))
        self.matrix(prefix + "out.weight", N_EMBD, D_INNER)
        if normed:
            for name, size in (("dt", DT_RANK), ("b", D_STATE), ("c", D_STATE)):
                self.norm(f"{prefix}{name}_norm.weight", size)

    def delta(self, layer: int) -> None:
        """Add a gated delta net (qwen35)."""
        prefix, rng, width = f"blk.{layer}.", self._rng, D_INNER + 2 * N_GROUP * D_STATE
        self.matrix(prefix + "attn_qkv.weight", width, N_EMBD)
        self.matrix(prefix + "attn_gate.weight", D_INNER, N_EMBD)
        self.matrix(prefix + "ssm_conv1d.weight", width, D_CONV, 2.0)
        self.tensor(prefix + "ssm_dt.bias", rng.uniform(-3, 0, size=N_STATE_HEAD))
        self.tensor(prefix + "ssm_a", -rng.uniform(0.05, 1, size=N_STATE_HEAD))
        self.matrix(prefix + "ssm_alpha.weight", N_STATE_HEAD, N_EMBD)
        self.matrix(prefix + "ssm_beta.weight", N_STATE_HEAD, N_EMBD)
        self.norm(prefix + "ssm_norm.weight", D_STATE)
        self.matrix(prefix + "ssm_out.weight", N_EMBD, D_INNER)

    def grouped_scan(self, layer: int) -> None:
        """Add a state space layer with heads (mamba2, as nemotron_h has it)."""
        prefix, rng, width = f"blk.{layer}.ssm_", self._rng, D_INNER + 2 * N_GROUP * D_STATE
        self.matrix(prefix + "in.weight", D_INNER + width + N_STATE_HEAD, N_EMBD)
        self.matrix(prefix + "conv1d.weight", width, D_CONV, 2.0)
        self.tensor(prefix + "conv1d.bias", 0.1 * rng.normal(size=width))
        self.tensor(prefix + "dt.bias", rng.uniform(-3, 0, size=N_STATE_HEAD))
        self.tensor(prefix + "a", -rng.uniform(0.05, 2, size=(N_STATE_HEAD, 1)))
        self.tensor(prefix + "d", rng.normal(size=(N_STATE_HEAD, 1)))
        self.tensor(prefix + "norm.weight", 1 + 0.2 * rng.normal(size=(N_GROUP, D_INNER // N_GROUP)))
        self.matrix(prefix + "out.weight", N_EMBD, D_INNER)

    def convolution(self, layer: int) -> None:
        """Add a gated short convolution (lfm2)."""
        prefix = f"blk.{layer}.shortconv."
        self.matrix(prefix + "conv.weight", N_EMBD, L_CACHE, 2.0)
        self.matrix(prefix + "in_proj.weight", 3 * N_EMBD, N_EMBD)
        self.matrix(prefix + "out_proj.weight", N_EMBD, N_EMBD)

    def sizes(self, n_head_kv: int | list[int], n_ff: int | list[int] = N_FF) -> None:
        """Add the metadata that all kinds share."""
        writer = self.writer
        writer.add_context_length(8192)
        writer.add_embedding_length(N_EMBD)
        writer.add_block_count(self.n_layer)
        writer.add_feed_forward_length(n_ff)
        writer.add_head_count(N_HEAD)
        writer.add_head_count_kv(n_head_kv)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_vocab_size(N_VOCAB)

    def scan_sizes(self, heads: bool = False) -> None:
        """Add the sizes of a state space layer; `heads`: with heads and groups."""
        self.writer.add_ssm_conv_kernel(D_CONV)
        self.writer.add_ssm_inner_size(D_INNER)
        self.writer.add_ssm_state_size(D_STATE)
        self.writer.add_ssm_time_step_rank(N_STATE_HEAD if heads else DT_RANK)
        if heads:
            self.writer.add_ssm_group_count(N_GROUP)

    def close(self, output_norm: str) -> None:
        """Add what stands before and behind the layers, and write the file."""
        self.tensor("token_embd.weight", self._rng.normal(size=(N_VOCAB, N_EMBD)))
        self.norm(output_norm, N_EMBD)
        self.matrix("output.weight", N_VOCAB, N_EMBD, 8.0)
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def _llama(file: _File) -> None:
    file.sizes(2)
    for layer in range(file.n_layer):
        file.norm(f"blk.{layer}.attn_norm.weight", N_EMBD)
        file.attention(layer, 2)
        file.feed_forward(layer)


def _gemma3(file: _File) -> None:
    """A sliding window in the first layer, plain attention in the second, and so on."""
    file.sizes(1)
    file.writer.add_key_length(HEAD)
    file.writer.add_value_length(HEAD)
    file.writer.add_sliding_window(WINDOW)
    file.writer.add_sliding_window_pattern([layer % 2 == 0 for layer in range(file.n_layer)])
    for layer in range(file.n_layer):
        file.norm(f"blk.{layer}.attn_norm.weight", N_EMBD)
        file.attention(layer, 1, normed=True)
        file.norm(f"blk.{layer}.post_attention_norm.weight", N_EMBD, 6.0)
        file.feed_forward(layer)
        file.norm(f"blk.{layer}.post_ffw_norm.weight", N_EMBD)


def _mamba(file: _File) -> None:
    file.sizes(0)
    file.scan_sizes()
    for layer in range(file.n_layer):
        file.norm(f"blk.{layer}.attn_norm.weight", N_EMBD)
        file.scan(layer, normed=False)


def _jamba(file: _File) -> None:
    """State space and attention layers in turn."""
    file.sizes([2 * (layer % 2) for layer in range(file.n_layer)])
    file.scan_sizes()
    for layer in range(file.n_layer):
        file.norm(f"blk.{layer}.attn_norm.weight", N_EMBD)
        if layer % 2:
            file.attention(layer, 2)
        else:
            file.scan(layer, normed=True)
        file.feed_forward(layer)


def _lfm2(file: _File) -> None:
    """Short convolutions and attention layers in turn."""
    file.sizes([2 * (layer % 2) for layer in range(file.n_layer)])
    file.writer.add_shortconv_l_cache(L_CACHE)
    for layer in range(file.n_layer):
        file.norm(f"blk.{layer}.attn_norm.weight", N_EMBD)
        if layer % 2:
            file.attention(layer, 2, normed=True)
        else:
            file.convolution(layer)
        file.feed_forward(layer)


def _qwen35(file: _File) -> None:
    """Gated delta nets and gated attention layers in turn."""
    file.sizes(2)
    file.scan_sizes(heads=True)
    file.writer.add_full_attention_interval(2)
    file.writer.add_key_length(HEAD)
    file.writer.add_value_length(HEAD)
    file.writer.add_rope_dimension_sections([HEAD // 4, HEAD // 4, 0, 0])
    for layer in range(file.n_layer):
        file.norm(f"blk.{layer}.attn_norm.weight", N_EMBD)
        if layer % 2:
            file.attention(layer, 2, normed=True, gated=True)
        else:
            file.delta(layer)
        file.norm(f"blk.{layer}.post_attention_norm.weight", N_EMBD)
        file.feed_forward(layer, normed=False)


def _nemotron_h(file: _File) -> None:
    """State space layers, feed-forward blocks and, at every eighth place, attention: each a layer of its own."""
    kinds = [("scan", "feed", "scan", "feed", "scan", "feed", "scan", "attention")[i % 8] for i in range(file.n_layer)]
    file.sizes([2 * (kind == "attention") for kind in kinds], [N_FF * (kind == "feed") for kind in kinds])
    file.scan_sizes(heads=True)
    file.writer.add_layer_norm_eps(1e-5)
    for layer, kind in enumerate(kinds):
        file.norm(f"blk.{layer}.attn_norm.weight", N_EMBD)
        if kind == "scan":
            file.grouped_scan(layer)
        elif kind == "attention":
            file.attention(layer, 2)
        else:
            file.matrix(f"blk.{layer}.ffn_up.weight", N_FF, N_EMBD)
            file.matrix(f"blk.{layer}.ffn_down.weight", N_EMBD, N_FF)


_WRITERS: dict[Kind, Callable[[_File], None]] = {
    "llama": _llama,
    "gemma3": _gemma3,
    "mamba": _mamba,
    "jamba": _jamba,
    "lfm2": _lfm2,
    "qwen35": _qwen35,
    "nemotron_h": _nemotron_h,
}


def write_tiny(path: Path, kind: Kind, seed: int = 1, n_layer: int | None = None) -> Path:
    """Write a model of `kind` and return its path. Equal seeds give equal weights."""
    file = _File(path, kind, seed, n_layer or (8 if kind == "nemotron_h" else N_LAYER))
    _WRITERS[kind](file)
    file.close("token_embd_norm.weight" if kind == "lfm2" else "output_norm.weight")
    return path
