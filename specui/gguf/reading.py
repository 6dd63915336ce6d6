"""Reads headers: entries and tensor descriptions become the model's shape, its tokenizer and its tensors.

From a file, or over a network by way of a `Source`. Whatever is wrong with a header is one ModelFileError that names
the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from specui.errors import ModelFileError
from specui.gguf.format import HEAD_BYTES, Numbers, Reader, Source, Strings, Tensor, Value, complaint
from specui.gguf.header import Attention, Header, Recurrent, Rope, Tokenizer, bytes_by_type

MAX_BLOCKS = 512
"""llama.cpp's own limit."""

MAX_SHARDS = 1_024
_DEFAULT_ALIGNMENT = 32
_MAX_ALIGNMENT = 2**20

_FILE_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}
"""Names of general.file_type's numbers; those left out were withdrawn by llama.cpp."""


def check_gguf(path: Path) -> None:
    """Raise ModelFileError, with what to do, unless `path` is a readable file that begins as a GGUF does."""
    if reason := complaint(_read(path, 0, HEAD_BYTES)):
        raise ModelFileError(path, reason)


def _read(path: Path, offset: int, size: int) -> bytes:
    try:
        if path.exists() and not path.is_dir() and not path.is_file():
            raise ModelFileError(path, "is no regular file; name a .gguf file")
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(size)
    except FileNotFoundError:
        raise ModelFileError(path, "no such file; check the path") from None
    except IsADirectoryError:
        raise ModelFileError(path, "is a folder; name the .gguf file in it") from None
    except ValueError as error:
        raise ModelFileError(path, f"is no path of a file ({error})") from None
    except OSError as error:
        raise ModelFileError(path, f"cannot be read ({error.strerror}); check its permissions") from None


class FileSource:
    """A file on this machine as a Source. Raises ModelFileError where it is no GGUF or cannot be read."""

    def __init__(self, path: Path) -> None:
        check_gguf(path)
        self._path = path
        self.name = str(path)
        self.size: int | None = path.stat().st_size

    def read_at(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on, fewer at the file's end."""
        return _read(self._path, offset, size)


def read_header(source: Source | Path, tensors: bool = True) -> Header:
    """Read a header and nothing behind it; without `tensors` the metadata alone.

    Raises ModelFileError where the header is damaged or of another format, and where the tensors it describes do not
    fit into the file.
    """
    reader = Reader(FileSource(source) if isinstance(source, Path) else source)
    version, tensor_count, entry_count = reader.head()
    entries: dict[str, Value] = {}
    for _ in range(entry_count):
        key, value = reader.entry()
        if key in entries:
            reader.damaged(f"the key {key!r} is there twice")
        entries[key] = value
    metadata = _Metadata(reader, entries)
    found = reader.tensors(tensor_count, metadata.alignment()) if tensors else ()
    return metadata.header(version, tensor_count, found)


def join_shards(headers: Sequence[Header]) -> Header:
    """Return the first shard's header with the tensors of all. Raises ModelFileError where one is missing."""
    first = headers[0]
    if [header.split_no for header in headers] != list(range(max(first.split_count, 1))):
        raise ModelFileError(
            Path(first.file), f"needs all of its {first.split_count} parts in order; download the missing ones"
        )
    return replace(
        first,
        tensor_count=sum(header.tensor_count for header in headers),
        tensors=tuple(tensor for header in headers for tensor in header.tensors),
        header_bytes=sum(header.header_bytes for header in headers),
    )


class _Metadata:
    """Takes values out of the entries by key and type, and makes a Header of them."""

    def __init__(self, reader: Reader, entries: Mapping[str, Value]) -> None:
        self._reader = reader
        self._entries = entries
        self._prefix = ""
        self._split_no = self._number("split.no", MAX_SHARDS)
        architecture = self._text("general.architecture")
        if not architecture and not self._split_no:
            reader.fail("names no architecture, so it is no model; choose another file")
        self._prefix = f"{architecture}."
        self._blocks = self._number("block_count", MAX_BLOCKS)

    def _get(self, key: str) -> Value | None:
        """Return an entry; the architecture's own keys are named without its name."""
        return self._entries.get(self._full(key))

    def _full(self, key: str) -> str:
        return key if key.startswith(("general.", "split.", "tokenizer.")) else self._prefix + key

    def _number(self, key: str, limit: int = 2**40, default: int = 0) -> int:
        value = self._get(key)
        if value is None:
            return default
        if not isinstance(value, int) or not 0 <= value <= limit:
            self._wrong(key, f"a whole number up to {limit:,}")
        return int(value)

    def _real(self, key: str) -> float:
        value = self._get(key)
        if value is not None and not isinstance(value, int | float):
            self._wrong(key, "a number")
        return float(value or 0)

    def _text(self, key: str) -> str:
        value = self._get(key)
        if value is not None and not isinstance(value, bytes):
            self._wrong(key, "a text")
        return (value or b"").decode("utf-8", "replace")

    def _wrong(self, key: str, wanted: str) -> NoReturn:
        value = self._get(key)
        shown = "an array" if isinstance(value, Strings | Numbers) else repr(value)[:40]
        self._reader.damaged(f"{self._full(key)!r} is {shown} and not {wanted}")

    def _whole_numbers(self, key: str) -> tuple[int, ...]:
        """Return an array of whole numbers, one a block at least."""
        value = self._get(key)
        if not isinstance(value, Numbers) or not self._blocks <= len(value) <= MAX_BLOCKS:
            self._wrong(key, f"a number, or one for each of {self._blocks} blocks")
        numbers = tuple(value)[: self._blocks]
        if any(not isinstance(number, int) or not 0 <= number <= 2**31 for number in numbers):
            self._wrong(key, "an array of whole numbers")
        return tuple(int(number) for number in numbers)

    def _by_block(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        value = self._get(key)
        if value is None:
            return default
        if isinstance(value, Numbers):
            return self._whole_numbers(key)
        return (self._number(key, 2**31),) * self._blocks

    def _most(self, key: str) -> int:
        """Return a number that may be given by block, at its largest."""
        return max(self._by_block(key, ()), default=0)

    def alignment(self) -> int:
        """Return what the data section's places are multiples of."""
        alignment = self._number("general.alignment", _MAX_ALIGNMENT, _DEFAULT_ALIGNMENT)
        if alignment == 0 or alignment & (alignment - 1):
            self._wrong("general.alignment", "a power of two")
        return alignment

    def _quantisation(self, tensors: Sequence[Tensor]) -> str:
        named = _FILE_TYPES.get(self._number("general.file_type", default=-1))
        return named or next(iter(bytes_by_type(tensors)), "")

    def _swa_blocks(self) -> int | tuple[int, ...] | None:
        key = "attention.sliding_window_pattern"
        value = self._get(key)
        if value is None:
            return None
        return self._whole_numbers(key) if isinstance(value, Numbers) else self._number(key)

    def _attention(self) -> Attention:
        heads = self._by_block("attention.head_count", (0,) * self._blocks)
        each = self._number("embedding_length") // max(heads[0], 1) if heads else 0
        key_length = self._number("attention.key_length", default=each)
        value_length = self._number("attention.value_length", default=each)
        return Attention(
            heads=heads,
            kv_heads=self._by_block("attention.head_count_kv", heads),
            key_length=key_length,
            value_length=value_length,
            swa_key_length=self._number("attention.key_length_swa", default=key_length),
            swa_value_length=self._number("attention.value_length_swa", default=value_length),
            latent_key_length=self._number("attention.key_length_mla"),
            sliding_window=self._number("attention.sliding_window"),
            swa_blocks=self._swa_blocks(),
        )

    def _recurrent(self) -> Recurrent:
        return Recurrent(
            conv_kernel=self._number("ssm.conv_kernel"),
            inner_size=self._number("ssm.inner_size"),
            state_size=self._number("ssm.state_size"),
            group_count=self._number("ssm.group_count"),
            wkv_head_size=self._number("wkv.head_size"),
            token_shift_count=self._number("token_shift_count", default=2),
            shortconv_length=self._number("shortconv.l_cache"),
            kda_head_length=self._number("kda.head_dim"),
            full_attention_interval=self._number("full_attention_interval"),
        )

    def _rope(self) -> Rope:
        return Rope(
            dimension_count=self._number("rope.dimension_count"),
            freq_base=self._real("rope.freq_base"),
            scaling_type=self._text("rope.scaling.type"),
            scaling_factor=self._real("rope.scaling.factor"),
        )

    def _tokenizer(self) -> Tokenizer:
        tokens = self._get("tokenizer.ggml.tokens")
        if tokens is not None and not isinstance(tokens, Strings):
            self._wrong("tokenizer.ggml.tokens", "an array of texts")
        kind = self._text("tokenizer.ggml.model")
        add_bos = self._get("tokenizer.ggml.add_bos_token")
        return Tokenizer(
            kind=kind,
            pre=self._text("tokenizer.ggml.pre"),
            tokens=tokens,
            special_ids=self._special_ids(),
            add_bos=kind == "llama" if add_bos is None else bool(self._number("tokenizer.ggml.add_bos_token", 1)),
            chat_template=self._text("tokenizer.chat_template") or None,
        )

    def _special_ids(self) -> dict[str, int]:
        begin, end = "tokenizer.ggml.", "_token_id"
        keys = [key for key in self._entries if key.startswith(begin) and key.endswith(end)]
        return {key[len(begin) : -len(end)]: self._number(key, 2**32 - 1) for key in keys}

    def header(self, version: int, tensor_count: int, tensors: tuple[Tensor, ...]) -> Header:
        """Return everything as one value."""
        return Header(
            file=self._reader.name,
            version=version,
            architecture=self._prefix[:-1],
            model_name=self._text("general.name"),
            quantisation=self._quantisation(tensors),
            context_length=self._number("context_length"),
            block_count=self._blocks,
            embedding_length=self._number("embedding_length"),
            feed_forward_lengths=self._by_block("feed_forward_length", (0,) * self._blocks),
            expert_count=self._number("expert_count"),
            expert_used_count=self._most("expert_used_count"),
            expert_feed_forward_length=self._most("expert_feed_forward_length"),
            attention=self._attention(),
            recurrent=self._recurrent(),
            rope=self._rope(),
            tokenizer=self._tokenizer(),
            split_count=self._number("split.count", MAX_SHARDS),
            split_no=self._split_no,
            alignment=self.alignment(),
            tensor_count=tensor_count,
            tensors=tensors,
            header_bytes=self._reader.bytes_read,
            entries=self._entries,
        )
