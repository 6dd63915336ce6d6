"""llama.cpp's calls on the memory of one context, and what a model's metadata tells of the state in it.

Knows handles and bytes; no tokens, and not what is dropped when.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp

from specui.config import MAX_SNAPSHOT_BYTES, MAX_SNAPSHOTS
from specui.engine.checkpoint import Buffer


def is_recurrent(model: Any) -> bool:
    """Return whether a model's memory holds a state that every token changes (recurrent and hybrid models)."""
    return bool(llama_cpp.llama_model_is_recurrent(model) or llama_cpp.llama_model_is_hybrid(model))


def state_bytes(model: Any) -> int:
    """Return about how long the recurrent state is, all layers counted; 0 where the metadata does not tell."""
    architecture, layers = _meta(model, "general.architecture"), int(llama_cpp.llama_model_n_layer(model))
    width = _meta(model, f"{architecture}.shortconv.l_cache")
    if width:
        return 4 * layers * int(width) * int(llama_cpp.llama_model_n_embd(model))
    inner, state = _meta(model, f"{architecture}.ssm.inner_size"), _meta(model, f"{architecture}.ssm.state_size")
    return 4 * layers * int(inner) * int(state) if inner and state else 0


def _meta(model: Any, key: str) -> str:
    size = 128
    buffer = ctypes.create_string_buffer(size)
    count = llama_cpp.llama_model_meta_val_str(model, key.encode(), buffer, size)
    return buffer.value.decode("utf-8", "replace") if count > 0 else ""


def count_snapshots(model: Any, max_rows: int, n_batch: int) -> int:
    """Return how many of its last states a context should keep. llama.cpp makes it 0 where the model has none."""
    each = state_bytes(model) if is_recurrent(model) else 0
    if each == 0 or n_batch < MAX_SNAPSHOTS + 2:  # llama.cpp ends the process where a batch is not longer than that
        return 0
    return min(MAX_SNAPSHOTS, max_rows - 1, MAX_SNAPSHOT_BYTES // each)


class Cells:
    """The memory of one context as `checkpoint.Memory` sees it. All tokens are of sequence 0."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._memory: Any = llama_cpp.llama_get_memory(context)

    def cut(self, length: int) -> bool:
        """Drop all positions from `length` on; False where that cannot be."""
        return bool(llama_cpp.llama_memory_seq_rm(self._memory, 0, length, -1))

    def first(self) -> int:
        """Return the earliest position that every attention layer still holds."""
        return int(llama_cpp.llama_memory_seq_pos_min(self._memory, 0))

    def clear(self) -> None:
        """Forget everything."""
        llama_cpp.llama_memory_clear(self._memory, False)

    def state_bytes(self) -> int:
        """Return how long the state is, written out without the attention's keys and values."""
        flag = llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
        return int(llama_cpp.llama_state_seq_get_size_ext(self._context, 0, flag))

    def save(self, buffer: Buffer) -> bool:
        """Write the state to `buffer` [state_bytes]."""
        flag, size = llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY, len(buffer)
        return int(llama_cpp.llama_state_seq_get_data_ext(self._context, _pointer(buffer), size, 0, flag)) == size

    def restore(self, buffer: Buffer) -> bool:
        """Put back what `save` wrote."""
        flag, size = llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY, len(buffer)
        return int(llama_cpp.llama_state_seq_set_data_ext(self._context, _pointer(buffer), size, 0, flag)) == size


def _pointer(buffer: Buffer) -> Any:
    return buffer.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
