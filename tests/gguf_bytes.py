"""Writes GGUF headers byte by byte, well-formed or not, and hands them out as a counted source."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

Plain = str | bytes | bool | int | float | list[str] | list[int] | list[float] | list[bool]


def text(value: str | bytes) -> bytes:
    """A string as it lies in a file: length and bytes."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def scalar(value: Plain) -> tuple[int, bytes]:
    """Return ggml's number for the type, and the bytes of one value."""
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    assert isinstance(value, str | bytes)
    return 8, text(value)


def entry(key: str, value: Plain) -> bytes:
    """One key with its value; lists become arrays of their first member's type."""
    if isinstance(value, list):
        parts = [scalar(each) for each in value]
        kind = parts[0][0] if parts else 4
        body = struct.pack("<IIQ", 9, kind, len(value)) + b"".join(raw for _, raw in parts)
        return text(key) + body
    kind, raw = scalar(value)
    return text(key) + struct.pack("<I", kind) + raw


def tensor(name: str, shape: Sequence[int], kind: int = 0, offset: int = 0) -> bytes:
    """One tensor's description."""
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def header(
    entries: Mapping[str, Plain] | Sequence[bytes],
    tensors: Sequence[bytes] = (),
    version: int = 3,
    counts: tuple[int, int] | None = None,
) -> bytes:
    """A whole header; `counts` (tensors, entries) lies about them."""
    parts = [entry(*each) for each in entries.items()] if isinstance(entries, Mapping) else list(entries)
    claimed = counts or (len(tensors), len(parts))
    return b"GGUF" + struct.pack("<IQQ", version, *claimed) + b"".join(parts) + b"".join(tensors)


class Bytes:
    """A source over bytes in memory that remembers what it was asked for."""

    def __init__(self, data: bytes, know_size: bool = True, name: str = "owner/repo/model.gguf") -> None:
        self.data = data
        self.name = name
        self.size = len(data) if know_size else None
        self.asked: list[tuple[int, int]] = []

    def read_at(self, offset: int, size: int) -> bytes:
        self.asked.append((offset, size))
        return self.data[offset : offset + size]
