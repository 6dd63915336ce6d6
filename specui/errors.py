"""Every error a person can meet, as one tree; faces translate by type, never by message.

    SpecUIError
    ├── SettingError            a setting's value cannot work (key, value)
    ├── BlankPromptError        nothing to answer
    ├── PromptTooLongError      the prompt does not fit the context (needed, limit)
    ├── TemplateError           the model has no usable chat template (model)
    ├── BusyError               the queue is full (limit)
    ├── NothingLoadedError      no model is loaded yet
    ├── PortError               the address cannot be bound (host, port)
    ├── OutputError             stdout takes no more
    ├── StorageError            a folder or file cannot be written (path)
    │   └── DiskSpaceError      not enough room for what is to be written (needed, free)
    ├── CatalogError            models.yaml is wrong (path, line, key)
    │   └── UnknownPairError    no pair of that name (name, known)
    ├── HubError                the Hub could not give a file (repo, file)
    └── ModelError              a model file or a loaded model fails (path)
        ├── ModelFileError      missing, truncated, or not a GGUF
        ├── VocabularyError     the draft's vocabulary is not the target's
        ├── DecodeError         llama.cpp's decode failed (code)
        └── RollbackError       tokens could not be dropped from the memory (length, wanted)

Each message is one line that names what is at fault and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class SpecUIError(Exception):
    """Base of all errors that SpecUI raises on purpose."""


class SettingError(SpecUIError):
    """A setting's value cannot work."""

    def __init__(self, key: str, value: object, expected: str) -> None:
        super().__init__(f"{key}: {value!r} cannot be used; expected {expected}")
        self.key = key
        self.value = value


class BlankPromptError(SpecUIError):
    """The prompt holds nothing but blanks."""

    def __init__(self) -> None:
        super().__init__("The prompt is blank; write something to answer")


class PromptTooLongError(SpecUIError):
    """The prompt does not fit the context window."""

    def __init__(self, needed: int, limit: int) -> None:
        super().__init__(
            f"The prompt needs {needed:,} tokens but the context holds {limit:,} (one is kept for the answer); "
            "shorten it or start with a larger --ctx-size"
        )
        self.needed = needed
        self.limit = limit


class TemplateError(SpecUIError):
    """The model has no chat template, or it cannot render these messages."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(
            f"{model}: {reason}; set chat_template for it in models.yaml, or send the text as it is with --raw"
        )
        self.model = model


class BusyError(SpecUIError):
    """The queue around the model is full."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"Busy: {limit} requests are waiting already; try again in a moment")
        self.limit = limit


class NothingLoadedError(SpecUIError):
    """No model is loaded."""

    def __init__(self) -> None:
        super().__init__("No model is loaded; choose a pair first")


class PortError(SpecUIError):
    """The page's address cannot be bound."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"Cannot listen on {host}:{port}: {reason}; choose another address with --port or --host")
        self.host = host
        self.port = port


class OutputError(SpecUIError):
    """Standard output takes no more."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The output cannot be written ({reason}); send it somewhere else")


class StorageError(SpecUIError):
    """A folder or file cannot be written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: cannot be written ({reason}); set SPECUI_HOME to a folder that can")
        self.path = path


class DiskSpaceError(StorageError):
    """Too little room on the disk for what is to be written."""

    def __init__(self, path: Path, needed: int, free: int, variable: str = "SPECUI_HOME") -> None:
        SpecUIError.__init__(
            self,
            f"{path}: needs {needed / 1e6:,.0f} MB but only {free / 1e6:,.0f} MB are free; "
            f"free some room or set {variable} to another disk",
        )
        self.path = path
        self.needed = needed
        self.free = free


class CatalogError(SpecUIError):
    """models.yaml is wrong at one place."""

    def __init__(self, path: Path, line: int | None, key: str, fix: str) -> None:
        place = f"{path}, line {line}" if line is not None else f"{path}"
        super().__init__(f"{place}: {key}: {fix}")
        self.path = path
        self.line = line
        self.key = key


class UnknownPairError(CatalogError):
    """No pair of that name is in the catalogue."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        SpecUIError.__init__(self, f"Unknown pair {name!r}; the catalogue has: {', '.join(known)}")
        self.path, self.line, self.key = Path("models.yaml"), None, name
        self.name = name
        self.known = tuple(known)


class HubError(SpecUIError):
    """The Hub could not give a file."""

    def __init__(self, repo: str, file: str, reason: str) -> None:
        super().__init__(f"{' '.join(filter(None, (repo, file)))}: {reason}")
        self.repo = repo
        self.file = file


class ModelError(SpecUIError):
    """A model file, or the model loaded from it, fails."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


class ModelFileError(ModelError):
    """The file is missing, truncated, or nothing llama.cpp can load."""


class VocabularyError(ModelError):
    """The draft's vocabulary is not the target's."""


class DecodeError(ModelError):
    """llama.cpp's decode failed; `code` is its return value."""

    def __init__(self, path: Path, code: int) -> None:
        reasons = {
            1: "no room left in the KV cache; start with a larger --ctx-size",
            2: "it was cancelled; send the message again",
            -2: "out of memory; start with a smaller --ctx-size or --batch-size",
        }
        reason = reasons.get(code, "an internal error; load the pair again")
        super().__init__(path, f"decode failed: {reason} (llama.cpp code {code})")
        self.code = code


class RollbackError(ModelError):
    """The model's memory cannot drop its last tokens."""

    def __init__(self, path: Path, length: int, wanted: int) -> None:
        super().__init__(path, f"its memory holds {length} tokens and cannot be cut to {wanted}; use mode none")
        self.length = length
        self.wanted = wanted
