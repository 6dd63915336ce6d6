"""Reference texts: files that a draft may be copied from although the model never sees them.

Reads what people hand over, and refuses what is no text or too much. Knows bytes and names; nothing about tokens,
models or faces. Raises SettingError, which names the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from specui.config import MAX_REFERENCE_BYTES
from specui.errors import SettingError


@dataclass(frozen=True, slots=True)
class ReferenceFile:
    """One file's text, with its name as people know it and its size in bytes."""

    name: str
    text: str
    size: int


@dataclass(frozen=True, slots=True)
class References:
    """The files of one chat or one command; together at most MAX_REFERENCE_BYTES. `key` is what errors name first."""

    key: str
    files: tuple[ReferenceFile, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """What a request takes."""
        return tuple(file.text for file in self.files)

    def without(self, name: str) -> References:
        """Return these without the file of that name."""
        return References(self.key, tuple(file for file in self.files if file.name != name))

    def room(self, name: str) -> int:
        """Return how many bytes a file of that name may have; it takes the place of one that is here already."""
        return MAX_REFERENCE_BYTES - sum(file.size for file in self.without(name).files)

    def adding(self, name: str, data: bytes) -> References:
        """Return these with one more file, the last. Raises SettingError where it is too much or no text."""
        if len(data) > self.room(name):
            raise self.too_much(name)
        file = ReferenceFile(name, self._text(name, data), len(data))
        return References(self.key, (*self.without(name).files, file))

    def too_much(self, name: str) -> SettingError:
        """Return the error for a file that does not fit beside the others."""
        return SettingError(self.key, name, f"at most {MAX_REFERENCE_BYTES / 1e6:g} MB in all files together")

    def _text(self, name: str, data: bytes) -> str:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:  # which also tells binary files whose bytes happen to be UTF-8
            raise SettingError(self.key, name, "a text file in UTF-8")
        if not text.strip():
            raise SettingError(self.key, name, "a file with something in it")
        return text.replace("\r\n", "\n")  # models end their lines with \n; a copy must too
