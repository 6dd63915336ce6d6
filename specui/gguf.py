"""Whether a file can be a GGUF at all, from its first bytes.

Knows the file format and nothing about llama.cpp; what lies behind the first eight bytes is not read here.
"""

from __future__ import annotations

import struct
from pathlib import Path

from specui.errors import ModelFileError

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_OLD_MAGICS = (b"lmgg", b"fmgg", b"tjgg", b"algg")


def check_gguf(path: Path) -> None:
    """Raise ModelFileError, with what to do, unless `path` is a readable file that begins as a GGUF does."""
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except FileNotFoundError:
        raise ModelFileError(path, "no such file; check the path") from None
    except IsADirectoryError:
        raise ModelFileError(path, "is a folder; name the .gguf file in it") from None
    except OSError as error:
        raise ModelFileError(path, f"cannot be read ({error.strerror}); check its permissions") from None
    reason = _complaint(head)
    if reason:
        raise ModelFileError(path, reason)


def _complaint(head: bytes) -> str | None:
    if not head:
        return "is empty; download it again"
    if head[:4] in _OLD_MAGICS:
        return "is in the GGML format of 2023, which llama.cpp no longer reads; get a GGUF of this model"
    if head[:4] != MAGIC or len(head) < 8:
        return "is not a GGUF file (an interrupted download, or a web page under its name?); download it again"
    version = struct.unpack("<I", head[4:])[0]
    if version not in _VERSIONS:
        return f"has GGUF version {version}, and only {' and '.join(map(str, _VERSIONS))} can be read; get a newer file"
    return None
