"""The records of a benchmark: one line of JSON for what was measured on, then one for every finished run.

A line counts once its end is written, so a benchmark that was interrupted at any byte goes on where it was. Knows
nothing about models or how a run is made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specui.errors import SettingError

FORMAT = 1
FILE_NAME = "runs.jsonl"
COMPARED = ("format", "suite", "model", "settings", "machine", "versions")
"""Parts of the first line that must not change from one start to the next: runs would not be comparable."""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run. `stats` has the words of `Stats.to_dict`; `started` is a time in UTC."""

    prompt: str
    kind: str
    split: str
    mode: str
    repeat: int
    started: str
    seed: int
    finish_reason: str
    stats: Mapping[str, Any]
    token_ids: tuple[int, ...]
    text: str

    @property
    def key(self) -> tuple[str, str, int]:
        """What the run is known by: prompt, mode, repeat."""
        return self.prompt, self.mode, self.repeat

    @property
    def rate(self) -> float | None:
        """Decode speed in tokens per second."""
        rate: float | None = self.stats["decode_tokens_per_second"]
        return rate

    @property
    def off_reason(self) -> str | None:
        """Why the mode was not what was really used; None where it was."""
        reason: str | None = self.stats.get("speculation_off_reason")
        return reason

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Run:
        """Read a line's object. Raises TypeError or KeyError where something is missing."""
        named = {key: value for key, value in values.items() if key != "type"}
        return cls(**{**named, "token_ids": tuple(named["token_ids"])})


class RunLog:
    """The file of a benchmark's records, open for more of them."""

    def __init__(self, folder: Path, header: Mapping[str, Any], restart: bool = False) -> None:
        """Open or begin the file in `folder`; a half-written last line is dropped.

        Raises SettingError where the folder cannot be used, or holds runs of another suite, model or setting.
        """
        self.folder = folder
        self.path = folder / FILE_NAME
        self.header = dict(header)
        self.runs: list[Run] = []
        self._done: set[tuple[str, str, int]] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if restart:
                self.path.unlink(missing_ok=True)
            self._resume()
            if not self.path.exists() or not self.path.stat().st_size:
                self._append({"type": "header", **self.header})
        except OSError as error:
            raise self._refused(f"a folder that can be written ({error.strerror})") from None

    def _refused(self, expected: str) -> SettingError:
        return SettingError("--out", str(self.folder), expected)

    def _resume(self) -> None:
        if not self.path.exists():
            return
        whole = _drop_half_line(self.path)
        if len(whole.splitlines()) < 2:  # a header alone: nothing was run under it yet
            self.path.unlink()
            return
        for number, line in enumerate(whole.splitlines(), start=1):
            self._read_line(number, line)

    def _read_line(self, number: int, line: bytes) -> None:
        try:
            values = json.loads(line)
            if number == 1:
                self._check(values)
            else:
                self._keep(Run.from_dict(values))
        except (ValueError, TypeError, KeyError):
            fix = f"a folder whose {FILE_NAME} is whole; its line {number} cannot be read (--restart begins anew)"
            raise self._refused(fix) from None

    def _check(self, written: Mapping[str, Any]) -> None:
        now = json.loads(json.dumps(self.header))
        for part in COMPARED:
            for key, before, after in _differences(part, written[part], now[part]):
                fix = f"a folder for these runs; in this one {key} was {before!r} and is {after!r} now"
                raise self._refused(f"{fix} (choose another folder, or --restart to begin anew)")
        self.header = dict(written)
        del self.header["type"]

    def _keep(self, run: Run) -> None:
        if run.key not in self._done:
            self.runs.append(run)
            self._done.add(run.key)

    def has(self, key: tuple[str, str, int]) -> bool:
        """Whether this prompt, mode and repeat is done."""
        return key in self._done

    def add(self, run: Run) -> None:
        """Write a finished run, to the disk. Raises SettingError where that fails."""
        try:
            self._append({"type": "run", **asdict(run)})
        except OSError as error:
            raise self._refused(f"a folder that can be written ({error.strerror})") from None
        self._keep(run)

    def _append(self, values: Mapping[str, Any]) -> None:
        line = json.dumps(values, ensure_ascii=False).encode() + b"\n"
        with self.path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def _drop_half_line(path: Path) -> bytes:
    """Cut the file behind its last whole line and return what is left."""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        with path.open("rb+") as file:
            file.truncate(len(whole))
    return whole


def _differences(key: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield key, old and new value of everything that differs, with the keys of nested objects joined by dots."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            yield from _differences(f"{key}.{name}", before.get(name), after.get(name))
    elif before != after:
        yield key, before, after
