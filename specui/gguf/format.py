"""GGUF's binary format: entries and tensor descriptions out of bytes that may be cut, damaged or hostile.

Knows sizes and limits, and where bytes come from only as a `Source`; nothing about models. Every count is compared
with the bytes there are before anything is made of it, so a header cannot ask for more memory or time than it has.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

from specui.errors import ModelFileError

MAGIC = b"GGUF"
HEAD_BYTES = 8
VERSIONS = (2, 3)
_OLD_MAGICS = (b"lmgg", b"fmgg", b"tjgg", b"algg")

MAX_HEADER_BYTES = 64_000_000
"""The largest headers known (vocabularies of 262,144 tokens with their merges) have about 15 MB."""
MAX_ENTRIES = 4_096
MAX_TENSORS = 16_384
MAX_NAME_BYTES = 1_024
MAX_TEXT_BYTES = 16_000_000
MAX_DIMENSIONS = 4

_FIRST_CHUNK_BYTES = 1_000_000
_LARGEST_CHUNK_BYTES = 4_000_000

_STRING, _ARRAY = 8, 9
_NUMBERS: dict[int, struct.Struct] = {
    number: struct.Struct("<" + code)
    for number, code in {
        0: "B",
        1: "b",
        2: "H",
        3: "h",
        4: "I",
        5: "i",
        6: "f",
        7: "?",
        10: "Q",
        11: "q",
        12: "d",
    }.items()
}
_U32, _U64 = _NUMBERS[4], _NUMBERS[10]
_LEAST_ENTRY_BYTES = 8 + 1 + 4 + 1
_LEAST_TENSOR_BYTES = 8 + 4 + 4 + 8


class TensorType(NamedTuple):
    """A way to store numbers: its name, and how many values share a block of how many bytes."""

    name: str
    block_values: int
    block_bytes: int


TENSOR_TYPES: dict[int, TensorType] = {
    number: TensorType(name, values, size)
    for number, name, values, size in (
        (0, "F32", 1, 4),
        (1, "F16", 1, 2),
        (2, "Q4_0", 32, 18),
        (3, "Q4_1", 32, 20),
        (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24),
        (8, "Q8_0", 32, 34),
        (9, "Q8_1", 32, 36),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144),
        (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17),
        (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18),
        (42, "Q2_0", 64, 18),
    )
}
"""By ggml's number. Numbers left out were withdrawn by ggml."""


class Source(Protocol):
    """Bytes that can be asked for by place: a file, or a server that answers range requests.

    `name` stands in messages; `size` is the whole file's bytes where that is known. `read_at` may give fewer bytes
    than asked for only at the end.
    """

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int | None: ...

    def read_at(self, offset: int, size: int) -> bytes: ...


class Strings:
    """An array of strings, kept as it lies in the header until it is asked for."""

    __slots__ = ("_buffer", "_count", "_start")

    def __init__(self, buffer: bytearray, start: int, count: int) -> None:
        self._buffer = buffer
        self._start = start
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        view, place = memoryview(self._buffer), self._start
        unpack = _U64.unpack_from
        for _ in range(self._count):
            start = place + 8
            place = start + unpack(view, place)[0]
            yield bytes(view[start:place])


class Numbers:
    """An array of numbers, kept as it lies in the header until it is asked for."""

    __slots__ = ("_buffer", "_count", "_kind", "_start")

    def __init__(self, buffer: bytearray, start: int, count: int, kind: struct.Struct) -> None:
        self._buffer = buffer
        self._start = start
        self._count = count
        self._kind = kind

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int | float | bool]:
        end = self._start + self._count * self._kind.size
        return (number for (number,) in self._kind.iter_unpack(memoryview(self._buffer)[self._start : end]))


Value = int | float | bool | bytes | Strings | Numbers
"""What an entry can hold; a text is its bytes."""


class Tensor(NamedTuple):
    """A tensor's description: its rows have `shape[0]` values, and its data begins at `offset` in the data section."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int

    @property
    def values(self) -> int:
        """How many numbers it holds."""
        product = 1
        for length in self.shape:
            product *= length
        return product

    @property
    def size_bytes(self) -> int:
        """How many bytes it takes."""
        return self.values // self.type.block_values * self.type.block_bytes


class Reader:
    """Reads a header from its start. Each byte is asked for once; `bytes_read` counts them.

    Every method raises ModelFileError with the source's name where the bytes end or make no sense.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._buffer = bytearray()
        self._chunk_bytes = _FIRST_CHUNK_BYTES
        self.position = 0

    @property
    def name(self) -> str:
        """The source's name."""
        return self._source.name

    @property
    def bytes_read(self) -> int:
        """How many bytes were taken from the source."""
        return len(self._buffer)

    def fail(self, reason: str) -> NoReturn:
        """Raise ModelFileError."""
        raise ModelFileError(Path(self._source.name), reason)

    def damaged(self, what: str) -> NoReturn:
        """Raise ModelFileError for a file that was well-formed once."""
        self.fail(f"is damaged: {what}; download it again")

    def _need(self, size: int) -> int:
        """Step over the next `size` bytes, have them in the buffer, and return where they begin."""
        start = self.position
        self._reach(start + size)
        self.position = start + size
        return start

    def _reach(self, end: int) -> None:
        """Have the first `end` bytes in the buffer."""
        if end <= len(self._buffer):
            return
        if self._source.size is not None and end > self._source.size:
            self.damaged("its header ends too early, or claims to be longer than the file")
        if end > MAX_HEADER_BYTES:
            self.fail(
                f"claims a header beyond {MAX_HEADER_BYTES / 1e6:.0f} MB, more than any model has; get another file"
            )
        while len(self._buffer) < end:
            if not self._fetch(end):
                self.damaged("its header ends too early")

    def _fetch(self, end: int) -> int:
        """Take the next chunk from the source, up to `end` at least, and return how many bytes came."""
        have, known = len(self._buffer), self._source.size
        size = max(self._chunk_bytes, end - have)
        chunk = self._source.read_at(have, size if known is None else min(size, known - have))
        self._buffer += chunk
        self._chunk_bytes = min(2 * self._chunk_bytes, _LARGEST_CHUNK_BYTES)
        return len(chunk)

    def head(self) -> tuple[int, int, int]:
        """Read the fixed beginning: version, number of tensors, number of entries."""
        self._fetch(HEAD_BYTES)
        if reason := complaint(bytes(self._buffer[:HEAD_BYTES])):
            self.fail(reason)
        self._need(len(MAGIC))
        version, tensors, entries = self._number(_U32), self._number(_U64), self._number(_U64)
        self._check_count("tensors", tensors, MAX_TENSORS, _LEAST_TENSOR_BYTES)
        self._check_count("entries", entries, MAX_ENTRIES, _LEAST_ENTRY_BYTES)
        return version, tensors, entries

    def entry(self) -> tuple[str, Value]:
        """Read one key with its value."""
        key = self._name("key")
        kind = self._number(_U32)
        if kind == _STRING:
            return key, self._text()
        if kind == _ARRAY:
            return key, self._array(key)
        number = self._struct(kind, key)
        return key, number.unpack_from(self._buffer, self._need(number.size))[0]

    def _tensor(self) -> Tensor:
        name = self._name("tensor")
        dimensions = self._number(_U32)
        if dimensions > MAX_DIMENSIONS:
            self.damaged(f"tensor {name!r} has {dimensions:,} dimensions")
        shape = tuple(self._number(_U64) for _ in range(dimensions))
        kind = TENSOR_TYPES.get(number := self._number(_U32))
        if kind is None:
            self.fail(f"holds tensor {name!r} of an unknown type ({number}); get a file of a common quantisation")
        tensor = Tensor(name, shape, kind, self._number(_U64))
        if max(tensor.values, tensor.offset) >= 2**60 or (shape[0] if shape else 1) % kind.block_values:
            self.damaged(f"tensor {name!r} cannot have shape {list(shape)} as {kind.name}")
        return tensor

    def tensors(self, count: int, alignment: int) -> tuple[Tensor, ...]:
        """Read the descriptions behind the entries, and see that the file is long enough for what they describe."""
        found: dict[str, Tensor] = {}
        for _ in range(count):
            tensor = self._tensor()
            if tensor.name in found:
                self.damaged(f"tensor {tensor.name!r} is there twice")
            found[tensor.name] = tensor
        start = -(-self.position // alignment) * alignment
        end = max((start + tensor.offset + tensor.size_bytes for tensor in found.values()), default=0)
        if self._source.size is not None and end > self._source.size:
            self.fail(f"is cut short: {self._source.size:,} of {end:,} bytes are there; download it again")
        return tuple(found.values())

    def _array(self, key: str) -> Value:
        kind, count = self._number(_U32), self._number(_U64)
        if kind == _ARRAY:
            self.damaged(f"{key!r} is an array of arrays")
        if kind == _STRING:
            return self._strings(key, count)
        number = self._struct(kind, key)
        self._check_count(f"numbers in {key!r}", count, MAX_HEADER_BYTES, number.size)
        return Numbers(self._buffer, self._need(count * number.size), count, number)

    def _strings(self, key: str, count: int) -> Strings:
        self._check_count(f"texts in {key!r}", count, MAX_HEADER_BYTES, 8)
        start = place = self.position
        buffer, unpack = self._buffer, _U64.unpack_from
        for _ in range(count):
            if place + 8 > len(buffer):
                self._reach(place + 8)
            place += 8 + unpack(buffer, place)[0]
            if place > len(buffer):
                self._reach(place)
        self.position = place
        return Strings(buffer, start, count)

    def _struct(self, kind: int, key: str) -> struct.Struct:
        number = _NUMBERS.get(kind)
        if number is None:
            self.damaged(f"{key!r} has a value of unknown type ({kind})")
        return number

    def _number(self, kind: struct.Struct) -> int:
        number: int = kind.unpack_from(self._buffer, self._need(kind.size))[0]
        return number

    def _bytes(self, size: int) -> bytes:
        start = self._need(size)
        return bytes(self._buffer[start : start + size])

    def _text(self, limit: int = MAX_TEXT_BYTES) -> bytes:
        size = self._number(_U64)
        if size > limit:
            self.damaged(f"a text of {size:,} bytes")
        return self._bytes(size)

    def _name(self, what: str) -> str:
        raw = self._text(MAX_NAME_BYTES)
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            name = ""
        if not name.isprintable() or not name:
            self.damaged(f"a {what}'s name is {raw[:40]!r}")
        return name

    def _check_count(self, what: str, count: int, limit: int, least_bytes: int) -> None:
        end = MAX_HEADER_BYTES if self._source.size is None else min(MAX_HEADER_BYTES, self._source.size)
        if count > limit or self.position + count * least_bytes > end:
            self.damaged(f"it claims {count:,} {what}")


def complaint(head: bytes) -> str | None:
    """Return what is wrong with a file that begins with `head` (HEAD_BYTES, or the whole file), or None."""
    if not head:
        return "is empty; download it again"
    if head[:4] in _OLD_MAGICS:
        return "is in the GGML format of 2023, which llama.cpp no longer reads; get a GGUF of this model"
    if head[:4] != MAGIC or len(head) < HEAD_BYTES:
        return "is not a GGUF file (an interrupted download, or a web page under its name?); download it again"
    version = _U32.unpack_from(head, 4)[0]
    if version in VERSIONS:
        return None
    if version and version % 2**16 == 0:
        return "is written for big-endian machines; get the little-endian file of this model"
    return f"has GGUF version {version}, and only {' and '.join(map(str, VERSIONS))} can be read; get a newer file"
