"""How much memory a pair takes, from its headers alone: weights, caches, compute buffers.

Follows what llama.cpp allocates for a run on the CPU (weights mapped from their file, some of them copied into the
layout the CPU likes, one cache of full length a context) and knows nothing else of it. The figures in the constants
are measured; benchmarks/estimate.py holds them against the peak of real runs.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specui.config import DEFAULT_MAX_DRAFT_TOKENS, MAX_DRAFT_TOKENS_LIMIT, MAX_SNAPSHOT_BYTES, MAX_SNAPSHOTS
from specui.gguf import TENSOR_TYPES, Header, Strings, Tensor

INTERPRETER_BYTES = 65_000_000
"""Python with the engine's libraries, before anything is loaded."""

_TOKEN_BYTES, _MERGE_BYTES = 170, 165
"""llama.cpp's tables, for each token and each merge of a vocabulary."""

_CTX_MULTIPLE = 256
"""llama.cpp rounds a context up to this."""

_USUAL_ROWS = 1 + max(DEFAULT_MAX_DRAFT_TOKENS.values())
"""Rows of logits that come up unless longer drafts are asked for."""

_LEAST_CTX_SIZE = 512
"""A smaller context is not worth advising."""

_REPACK_MULTIPLE = 8
_NOT_MULTIPLIED = ("token_embd", "position_embd", "token_types")
"""Parts of names of tables that rows are taken from; they stay as they are."""

_EVERY_NTH_SEES_ALL = {
    "cohere2": 4,
    "exaone4": 4,
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "gpt-oss": 2,
    "llama4": 4,
    "olmo2": 4,
}
"""Architectures with sliding windows in all but each n-th block, where the header does not say which blocks."""

_GEMMA3N_KV_BLOCKS = 20


_KEEP_SNAPSHOTS = (
    *("bailingmoe3", "deepseek4", "glm5-next", "kimi-k3", "lfm2", "lfm2moe"),
    *("nemotron_h", "nemotron_h_moe", "qwen35", "qwen35moe", "qwen4exp"),
)
"""Architectures whose recurrent states llama.cpp can keep earlier versions of; of the others one checkpoint is kept."""


@dataclass(frozen=True, slots=True)
class CacheKind:
    """How a context keeps its past: number type, whole past for sliding windows too or not, snapshots of states."""

    type: str = "F16"
    swa_full: bool = True
    max_snapshots: int = MAX_SNAPSHOTS
    max_snapshot_bytes: int = MAX_SNAPSHOT_BYTES


@dataclass(frozen=True, slots=True)
class FileMemory:
    """What one file's weights and context take.

    `mapped_bytes`: weights as they lie in the file, which the system can drop and read again; `repacked_bytes`: the
    copies llama.cpp makes of some; `vocabulary_bytes`: the tokenizer's tables.
    """

    file: str
    mapped_bytes: int
    repacked_bytes: int
    vocabulary_bytes: int
    kv_bytes: int
    compute_bytes: int

    @property
    def weights_bytes(self) -> int:
        """Everything that comes with loading, without a context."""
        return self.mapped_bytes + self.repacked_bytes + self.vocabulary_bytes

    @property
    def total_bytes(self) -> int:
        """Weights and context."""
        return self.weights_bytes + self.kv_bytes + self.compute_bytes


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """What a pair takes, with each file's share. `total_bytes` is what a process with nothing else peaks at."""

    files: tuple[FileMemory, ...]
    interpreter_bytes: int = INTERPRETER_BYTES

    @property
    def weights_bytes(self) -> int:
        """Weights of all files."""
        return sum(each.weights_bytes for each in self.files)

    @property
    def kv_bytes(self) -> int:
        """Caches and recurrent states of all contexts."""
        return sum(each.kv_bytes for each in self.files)

    @property
    def compute_bytes(self) -> int:
        """Buffers of all contexts for one pass and its logits."""
        return sum(each.compute_bytes for each in self.files)

    @property
    def pair_bytes(self) -> int:
        """What loading the pair adds to a running program."""
        return sum(each.total_bytes for each in self.files)

    @property
    def total_bytes(self) -> int:
        """The pair and the program."""
        return self.interpreter_bytes + self.pair_bytes


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a pair fits into free memory, and one sentence that says so, with what to do where it does not."""

    fits: bool
    sentence: str
    needed_bytes: int
    free_bytes: int


def estimate(
    target: Header, draft: Header | None, ctx_size: int, batch_size: int, cache: CacheKind | None = None
) -> MemoryEstimate:
    """Return what a target, and a draft beside it, take at a context of `ctx_size` tokens and batches of `batch_size`.

    Headers must have been read with their tensors, those of shards joined.
    """
    kind = cache or CacheKind()
    context = _Context(-(-ctx_size // _CTX_MULTIPLE) * _CTX_MULTIPLE, min(batch_size, ctx_size), kind)
    files = [_file_memory(target, context, min(MAX_DRAFT_TOKENS_LIMIT + 1, context.batch_size))]
    if draft is not None:
        files.append(_file_memory(draft, context, rows=1, weights=draft.file != target.file))
    return MemoryEstimate(tuple(files))


def fit(target: Header, draft: Header | None, ctx_size: int, batch_size: int, free_bytes: int) -> Fit:
    """Return whether a pair fits into `free_bytes`, beside a program that runs already."""

    def needed(with_draft: Header | None, size: int) -> int:
        return estimate(target, with_draft, size, batch_size).pair_bytes

    wanted = needed(draft, ctx_size)
    sentence = f"needs {_size(wanted)}; {_size(free_bytes)} are free"
    if wanted <= free_bytes:
        return Fit(True, sentence, wanted, free_bytes)
    sizes = [size for size in (ctx_size >> halvings for halvings in range(8)) if size >= _LEAST_CTX_SIZE]
    for kept in (draft, None):
        for size in sizes:
            if needed(kept, size) <= free_bytes:
                steps = [f"choose a smaller context ({size:,} tokens)"] if size < ctx_size else []
                steps += ["leave the draft out"] if kept is not draft else []
                advice = f"{' and '.join(steps)}, which needs {_size(needed(kept, size))}"
                return Fit(False, f"{sentence}: {advice}", wanted, free_bytes)
    weights = estimate(target, None, ctx_size, batch_size).weights_bytes
    advice = f"choose a smaller model or quantisation (this target's weights take {_size(weights)})"
    return Fit(False, f"{sentence}: {advice}", wanted, free_bytes)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 950_000_000 else f"{count / 1e6:.0f} MB"


@dataclass(frozen=True, slots=True)
class _Context:
    """Sizes of a context in tokens."""

    ctx_size: int
    batch_size: int
    cache: CacheKind


def _file_memory(header: Header, context: _Context, rows: int, weights: bool = True) -> FileMemory:
    if header.tensor_count and not header.tensors:
        raise ValueError(f"{header.file}: its header was read without tensors")
    return FileMemory(
        file=header.file,
        mapped_bytes=header.tensor_bytes if weights else 0,
        repacked_bytes=repacked_bytes(header, repacked_types()) if weights else 0,
        vocabulary_bytes=_vocabulary_bytes(header) if weights else 0,
        kv_bytes=sum(_kv_bytes(header, context)) + _state_bytes(header, context.cache, rows),
        compute_bytes=_compute_bytes(header, context, rows),
    )


def repacked_types(cpu_features: frozenset[str] | None = None) -> frozenset[str]:
    """Return the tensor types that llama.cpp copies into another layout on a CPU with these features (this one's).

    After llama.cpp's choice in ggml-cpu/repack.cpp and amx/common.h, for builds made for the machine they run on.
    """
    features = _cpu_features() if cpu_features is None else cpu_features
    found: set[str] = set()
    if "avx2" in features:
        found |= {"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"}
    if "avx512f" in features:
        found |= {"Q2_K"}
    if "amx_int8" in features:
        found |= {"Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"}
    if features & {"asimddp", "i8mm"}:
        found |= {"Q1_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0"}
    if "asimddp" in features:
        found |= {"IQ4_NL", "MXFP4"}
    return frozenset(found)


def _cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        arm = platform.machine().lower() in ("arm64", "aarch64")
        return frozenset(("asimddp", "i8mm") if arm else ("avx2",))
    named = (line.partition(":") for line in lines)
    return frozenset(next((value.split() for key, _, value in named if key.strip() in ("flags", "Features")), ()))


def repacked_bytes(header: Header, types: frozenset[str]) -> int:
    """Return the bytes of the copies: weights of these types that are multiplied with, in whole groups of rows."""
    names = {tensor.name for tensor in header.tensors}
    tied = "output.weight" not in names
    return sum(tensor.size_bytes for tensor in header.tensors if _is_repacked(tensor, types, tied))


def _is_repacked(tensor: Tensor, types: frozenset[str], tied: bool) -> bool:
    if tensor.type.name not in types or len(tensor.shape) < 2 or tensor.shape[1] % _REPACK_MULTIPLE:
        return False
    # Where there is no output matrix, the table of token embeddings is multiplied with as well.
    return (tied and tensor.name == "token_embd.weight") or not any(part in tensor.name for part in _NOT_MULTIPLIED)


def _vocabulary_bytes(header: Header) -> int:
    merges = header.entries.get("tokenizer.ggml.merges")
    return _TOKEN_BYTES * header.token_count + _MERGE_BYTES * (len(merges) if isinstance(merges, Strings) else 0)


def _kv_bytes(header: Header, context: _Context) -> Iterator[int]:
    """Yield each block's bytes of keys and values."""
    attention, cache = header.attention, context.cache
    window = min(context.ctx_size, _padded(attention.sliding_window + context.batch_size))
    for block in range(_kv_blocks(header)):
        heads = 0 if _only_state(header, block) else attention.kv_heads[block]
        slides = _slides(header, block)
        key = attention.swa_key_length if slides else attention.key_length
        value = attention.swa_value_length if slides else attention.value_length
        # Latent attention keeps one compressed vector, from which keys and values are made.
        values_in_cell = heads * (key if attention.latent_key_length else key + value)
        cells = window if slides and not cache.swa_full else context.ctx_size
        yield cells * _bytes_of(cache.type, values_in_cell)


def _padded(tokens: int) -> int:
    return -(-tokens // _CTX_MULTIPLE) * _CTX_MULTIPLE


def _bytes_of(type_name: str, values: int) -> int:
    kind = next(each for each in TENSOR_TYPES.values() if each.name == type_name)
    return values * kind.block_bytes // kind.block_values


def _kv_blocks(header: Header) -> int:
    """Return how many blocks, from the first on, keep keys and values of their own."""
    if header.architecture == "gemma3n":
        return min(_GEMMA3N_KV_BLOCKS, header.block_count)
    left_out = 0
    for key in ("attention.shared_kv_layers", "nextn_predict_layers"):
        number = header.entries.get(f"{header.architecture}.{key}", 0)
        left_out += number if isinstance(number, int) else 0
    return max(0, header.block_count - left_out)


def _slides(header: Header, block: int) -> bool:
    """Return whether a block's attention has a sliding window."""
    attention = header.attention
    if not attention.sliding_window:
        return False
    if isinstance(attention.swa_blocks, tuple):
        return bool(attention.swa_blocks[block])
    every = attention.swa_blocks or _EVERY_NTH_SEES_ALL.get(header.architecture)
    return every is not None and block % every < every - 1


def _only_state(header: Header, block: int) -> bool:
    """Return whether a block is recurrent and keeps a state in place of keys and values."""
    if not _state_values(header) or header.architecture == "falcon-h1":
        return False
    if header.architecture.startswith("nemotron_h") and header.feed_forward_lengths[block]:
        return False
    interval = header.recurrent.full_attention_interval
    return (block + 1) % interval != 0 if interval else header.attention.kv_heads[block] == 0


def _state_bytes(header: Header, cache: CacheKind, rows: int) -> int:
    """Return the bytes of all recurrent states, which are F32, with the earlier ones that are kept of them."""
    every = header.architecture == "falcon-h1"
    blocks = sum(every or _only_state(header, block) for block in range(header.block_count))
    state = 4 * blocks * _state_values(header)
    if header.architecture not in _KEEP_SNAPSHOTS:
        return 2 * state
    most = min(cache.max_snapshots, rows - 1)
    return state + min(most * state, cache.max_snapshot_bytes)


def _state_values(header: Header) -> int:
    """Return how many numbers a recurrent block keeps, after llama.cpp's n_embd_r and n_embd_s."""
    state, width = header.recurrent, header.embedding_length
    if state.wkv_head_size:
        return width * (state.token_shift_count + state.wkv_head_size)
    if state.shortconv_length:
        return width * (state.shortconv_length - 1)
    convolved = max(state.conv_kernel - 1, 0)
    if state.kda_head_length:
        heads = max(header.attention.heads, default=0)
        return heads * state.kda_head_length * (3 * convolved + state.kda_head_length)
    inner = state.inner_size + 2 * state.group_count * state.state_size
    return convolved * inner + state.state_size * state.inner_size


def _compute_bytes(header: Header, context: _Context, rows: int) -> int:
    """Return the buffers of one pass: the widest point of the graph for a whole batch, or logits if those are larger.

    The widths (three of the feed-forward layer, four of the embedding) are those of measured graphs.
    """
    width, batch = header.embedding_length, context.batch_size
    inner = max(header.feed_forward_length, header.expert_used_count * header.expert_feed_forward_length)
    masks = 2 if any(_slides(header, block) for block in range(header.block_count)) else 1
    graph = batch * (4 * (3 * inner + 4 * width) + masks * 2 * context.ctx_size)
    logits = 4 * rows * header.token_count + 4 * batch * width
    kept = 4 * min(rows, _USUAL_ROWS) * header.token_count
    return max(graph, logits) + kept
