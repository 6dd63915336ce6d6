"""A memory of llama.cpp on some weights with the token ids in it, and the flag that ends a running decode.

Knows tokens, logits and memory; nothing about drafts, sampling or text streams.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from specui.engine.checkpoint import Memory, Plan, Rollback
from specui.engine.cpu import usable_threads
from specui.engine.llama.cells import Cells, count_snapshots, is_recurrent, state_bytes
from specui.engine.llama.log import begin_log
from specui.engine.llama.weights import Model
from specui.errors import DecodeError, ModelError, RollbackError

Logits = npt.NDArray[np.float32]


class AbortFlag:
    """Ends a running decode from another thread, in the middle of a batch.

    llama.cpp asks its abort callback at every graph node. A Python callback would take the interpreter's lock
    thousands of times a second, so the callback is the C library's strlen on a byte that is 0 until `set`.
    """

    def __init__(self) -> None:
        self._text = ctypes.create_string_buffer(2)
        strlen = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p)
        self.callback = llama_cpp.ggml_abort_callback(strlen.value or 0)
        self.address = ctypes.cast(self._text, ctypes.c_void_p)

    def set(self) -> None:
        """Make every decode that uses this flag return at once, now and until `clear`."""
        self._text[0] = b"\x01"

    def clear(self) -> None:
        """Let decodes run again."""
        self._text[0] = b"\x00"


@dataclass(frozen=True, slots=True)
class ContextSize:
    """Sizes of a context in tokens: its length, the longest batch, and the most rows of logits in one batch."""

    n_ctx: int
    n_batch: int
    max_rows: int


UNTOUCHED = (1, -1)
"""llama.cpp's decode codes for a batch that it refused before it began."""


class Context:
    """A memory (KV cache, recurrent state or both) and the token ids in it.

    Invariant: `tokens` is exactly what the memory holds, also after a decode that failed or was aborted.
    """

    def __init__(self, model: Model, size: ContextSize, threads: int | None, abort: AbortFlag) -> None:
        self.model = model
        self.n_ctx = size.n_ctx
        self.n_batch = min(size.n_batch, size.n_ctx)
        self.max_rows = min(size.max_rows, self.n_batch)
        self.tokens: list[int] = []
        self._abort = abort
        self.threads = threads or usable_threads()
        log = begin_log()
        handle = llama_cpp.llama_init_from_model(model.handle, self._params())
        if not handle:
            raise ModelError(
                model.path,
                log.reason("no memory for the context") + f"; start with a --ctx-size below {size.n_ctx:,}",
            )
        self._handle: Any = handle
        self._snapshots = int(llama_cpp.llama_n_rs_seq(handle))
        self._memory = Memory(Cells(handle), self._plan())
        self._replay_seconds = 0.0
        self._batch = llama_cpp.llama_batch_init(self.n_batch, 0, 1)
        self._map_batch()
        self._rows: Logits = np.empty((0, model.n_vocab), np.float32)
        self._mapped = (0, 0)
        """Address and number of the rows that `_rows` shows."""
        self._kept: tuple[int, Logits] | None = None
        self._probe()

    def _params(self) -> llama_cpp.llama_context_params:
        params: llama_cpp.llama_context_params = llama_cpp.llama_context_default_params()
        params.n_ctx = self.n_ctx
        params.n_batch = self.n_batch
        params.n_ubatch = self.n_batch
        params.n_outputs_max = self.max_rows
        params.n_rs_seq = count_snapshots(self.model.handle, self.max_rows, self.n_batch)
        # Sliding layers keep every token, not their window alone: what a cut far back needs is then always there. With
        # a window only, llama.cpp drops the tail all the same, and the text behind it goes wrong without a word. It
        # costs the memory of plain attention.
        params.swa_full = True
        params.n_threads = params.n_threads_batch = self.threads
        params.abort_callback = self._abort.callback
        params.abort_callback_data = self._abort.address
        params.no_perf = True
        return params

    def _map_batch(self) -> None:
        """Keep the C batch's arrays, so that filling it allocates nothing; all tokens are of sequence 0."""
        batch = self._batch
        self._batch_tokens, self._batch_positions, self._batch_logits = batch.token, batch.pos, batch.logits
        for i in range(self.n_batch):
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0

    def _plan(self) -> Plan:
        model = self.model.handle
        window = int(llama_cpp.llama_model_n_swa(model))
        return Plan(is_recurrent(model), self._snapshots, window, drafting=self.max_rows == 1)

    def _probe(self) -> None:
        """Learn at once, from a pass over one token, whether a recurrent state can be copied."""
        if self.rollback.kind == "cut":
            return
        try:
            self.decode([0], rows=0)
        except DecodeError as error:
            self._memory.give_up(str(error))
        else:
            self._memory.probe()
        self.clear()

    def close(self) -> None:
        """Free the cache."""
        if self._handle:
            self._rows = np.empty((0, 0), np.float32)
            llama_cpp.llama_batch_free(self._batch)
            llama_cpp.llama_free(self._handle)
            self._handle = None

    @property
    def room(self) -> int:
        """How many more tokens fit."""
        return self.n_ctx - len(self.tokens)

    @property
    def rollback(self) -> Rollback:
        """How the last tokens are dropped, or why they cannot be."""
        return self._memory.rollback

    @property
    def rollback_seconds(self) -> float:
        """Seconds spent so far on copies of the state, made and put back, and on evaluating kept tokens again."""
        return self._memory.seconds + self._replay_seconds

    @property
    def rollback_bytes(self) -> int:
        """Bytes that copies and snapshots of the state take."""
        return self._memory.copied_bytes + self._snapshots * state_bytes(self.model.handle)

    def decode(self, tokens: Sequence[int], rows: int) -> None:
        """Evaluate `tokens` behind the cached ones and keep the logits of the last `rows` of them.

        At most `n_batch` tokens and `max_rows` rows. Raises DecodeError (code 2 when aborted); the cache then holds
        what it held before, or where a recurrent state was half advanced, the part of that which was copied.
        """
        count, length = len(tokens), len(self.tokens)
        self._fill_batch(tokens, length, count - rows)
        self._memory.before_pass(length, count)
        code = llama_cpp.llama_decode(self._handle, self._batch)
        if code != 0:
            self._drop_tail(self._memory.undo(length, touched=code not in UNTOUCHED))
            raise DecodeError(self.model.path, code)
        self.tokens.extend(tokens)
        self._memory.after_pass(length, count)
        self._map_rows(rows)

    def _fill_batch(self, tokens: Sequence[int], length: int, first_row: int) -> None:
        """Write `tokens` behind `length` others into the batch, wanting logits from the token `first_row` on.

        One by one: most batches are of a few tokens, where calls of numpy take several times as long.
        """
        if len(tokens) > self.n_batch:
            raise ValueError(f"{len(tokens)} tokens do not fit a batch of {self.n_batch}")
        self._batch.n_tokens = len(tokens)
        ids, positions, logits = self._batch_tokens, self._batch_positions, self._batch_logits
        for i, token in enumerate(tokens):
            ids[i], positions[i], logits[i] = token, length + i, i >= first_row

    def _drop_tail(self, length: int) -> None:
        del self.tokens[length:]
        if self._kept is not None and self._kept[0] > length:
            self._kept = None

    def _map_rows(self, rows: int) -> None:
        if rows:
            address = ctypes.addressof(llama_cpp.llama_get_logits(self._handle).contents)
            if (address, rows) != self._mapped:
                self._mapped = (address, rows)
                raw = (ctypes.c_float * (rows * self.model.n_vocab)).from_address(address)
                self._rows = np.frombuffer(memoryview(raw), np.float32).reshape(rows, self.model.n_vocab)
        else:
            llama_cpp.llama_synchronize(self._handle)

    def logits(self, row: int) -> Logits:
        """Return a view [n_vocab] on one of the last decode's rows; the next decode overwrites it."""
        view: Logits = self._rows[row]
        return view

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens; some memories evaluate a part of them again.

        Raises RollbackError, with nothing changed, where the memory cannot; DecodeError as `decode` does.
        """
        held = len(self.tokens)
        left = self._memory.cut(held, length)
        if left is None:
            raise RollbackError(self.model.path, held, length)
        again = self.tokens[left:length]
        self._drop_tail(left if not again else length)
        if again:
            self._evaluate_again(left, again)

    def _evaluate_again(self, left: int, tokens: Sequence[int]) -> None:
        """Bring the memory, which holds `left` tokens, back to what the kept row still belongs to."""
        kept, started = self._kept, time.perf_counter()
        self._drop_tail(left)
        for start in range(0, len(tokens), self.n_batch):
            self.decode(tokens[start : start + self.n_batch], 0)
        self._kept = kept
        self._replay_seconds += time.perf_counter() - started

    def keep_row(self) -> None:
        """Copy row 0 of the last decode, for `kept_row`, and make this length one the memory can be cut to."""
        self._kept = (len(self.tokens), self._rows[0].copy())
        self._memory.anchor(len(self.tokens))

    def kept_row(self) -> Logits | None:
        """Return the copied row [n_vocab] if the cache ends where it was made, else None."""
        return self._kept[1] if self._kept is not None and self._kept[0] == len(self.tokens) else None

    def clear(self) -> None:
        """Forget every token."""
        self._memory.clear()
        self._drop_tail(0)
