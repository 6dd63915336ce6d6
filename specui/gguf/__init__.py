"""What a GGUF file says of itself before its weights, read from a file or over a network.

Knows bytes and values; nothing about llama.cpp. No weight is read.
"""

from specui.gguf.format import TENSOR_TYPES, Source, Strings, Tensor
from specui.gguf.header import Header
from specui.gguf.reading import FileSource, check_gguf, join_shards, read_header

__all__ = [
    "TENSOR_TYPES",
    "FileSource",
    "Header",
    "Source",
    "Strings",
    "Tensor",
    "check_gguf",
    "join_shards",
    "read_header",
]
