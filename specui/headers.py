"""The header of a pair's file, wherever the file is: on disk, or on the Hub, where nothing but the header is fetched.

Knows sources and headers; what a header means for memory or for a pair is decided elsewhere.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specui import bundled, hub
from specui.catalog import BundledFile, HubFile, Source
from specui.gguf import TENSOR_TYPES, FileSource, Header, join_shards, read_header
from specui.gguf import Source as Bytes

F32 = 0
"""ggml's number of the type."""

_KEPT = 4
"""How many headers are kept: one of a large vocabulary holds about ten megabytes."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at a file's header told. `files`: the names of all its parts; `transferred_bytes`: what it cost."""

    header: Header
    files: tuple[str, ...]
    size_bytes: int
    on_disk: bool
    transferred_bytes: int = 0


class _Kept:
    """The last headers that were read, by what identifies the bytes they came from."""

    def __init__(self) -> None:
        self._seen: OrderedDict[object, Header] = OrderedDict()
        self._lock = threading.Lock()

    def header(self, key: object, parts: Sequence[Bytes]) -> Header:
        with self._lock:
            if key in self._seen:
                self._seen.move_to_end(key)
                return self._seen[key]
        header = join_shards([read_header(part) for part in parts])
        with self._lock:
            self._seen[key] = header
            while len(self._seen) > _KEPT:
                self._seen.popitem(last=False)
        return header


_kept = _Kept()


def look(source: Source, as_target: bool) -> Seen:
    """Return what the header of `source` says. Raises HubError, ModelFileError.

    For the bundled target that is not made yet the packaged weights tell, which are the same model, written as F32.
    """
    if isinstance(source, HubFile):
        return _on_hub(source)
    if isinstance(source, BundledFile):
        return _bundled(as_target)
    return _local([source.path.with_name(name) for name in hub.shards(source.path.name)])


def _bundled(as_target: bool) -> Seen:
    made = bundled.target_on_disk() if as_target else None
    seen = _local([made or bundled.draft()])
    if not as_target or made is not None:
        return seen
    tensors = tuple(tensor._replace(type=TENSOR_TYPES[F32]) for tensor in seen.header.tensors)
    header = replace(seen.header, file=bundled.TARGET_NAME, quantisation="F32", tensors=tensors)
    return Seen(header, (bundled.TARGET_NAME,), bundled.TARGET_BYTES, on_disk=False)


def _local(paths: Sequence[Path]) -> Seen:
    parts = [FileSource(path) for path in paths]
    stats = [path.stat() for path in paths]
    key = tuple((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in zip(paths, stats, strict=True))
    size = sum(stat.st_size for stat in stats)
    return Seen(_kept.header(key, parts), tuple(path.name for path in paths), size, on_disk=True)


def _on_hub(file: HubFile) -> Seen:
    here = hub.cached_parts(file)
    if here:
        return _local(here)
    parts = hub.remote_files(file)
    header = _kept.header(tuple(part.file for part in parts), parts)
    size, transferred = sum(part.size for part in parts), sum(part.bytes_read for part in parts)
    return Seen(header, tuple(part.file.file for part in parts), size, on_disk=False, transferred_bytes=transferred)
