"""Finished races as files: one is read back from its JSON and checked, and the last ones are kept in a folder.

A file may come from anybody's hands, so nothing in it is believed before its types are. Knows nothing about faces.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from specui.catalog import PairFiles
from specui.compare.records import CacheState, LaneResult, LaneSpec, RaceRequest, RaceResult, Speedup
from specui.compare.report import FORMAT, export_json
from specui.config import Limits, StepSettings, home
from specui.engine.difference import Difference
from specui.engine.stats import FinishReason, RatePoint, Stats, TokenOrigin
from specui.errors import SettingError, SpecUIError, StorageError
from specui.generation import GenerationRequest, Message, Progress, TokenPiece

MAX_KEPT = 50
"""So many races are kept; the oldest goes."""
MAX_BYTES = 16 << 20
"""No file of a race is longer: four lanes and a hundred repeats of some hundred tokens are."""
KEY = re.compile(r"[0-9TZ-]{4,24}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Record:
    """A finished race with what it was run on: `conditions` holds `finished`, `machine`, `versions`, `model`."""

    request: RaceRequest
    result: RaceResult
    conditions: Mapping[str, Any]

    def to_json(self) -> str:
        """Return the record as its file has it."""
        return export_json(self.request, self.result, self.conditions)

    @property
    def finished(self) -> str:
        """When it ended, in UTC; empty where the file does not say."""
        return str(self.conditions.get("finished", ""))

    @property
    def question(self) -> str:
        """The text that was answered: the last message, or the raw prompt."""
        prompt = self.request.prompt
        return prompt.messages[-1].content if prompt.messages else prompt.prompt or ""


@dataclass(frozen=True, slots=True)
class _Run:
    seed: int
    finish_reason: FinishReason | None
    text: str
    token_ids: tuple[int, ...]
    token_origins: tuple[TokenOrigin, ...]
    token_lengths: tuple[int, ...]
    rates: tuple[RatePoint, ...]
    stats: Stats

    def progress(self) -> Progress:
        """Return the run as the snapshot it was written from."""
        pieces, start = [], 0
        for token_id, origin, length in zip(self.token_ids, self.token_origins, self.token_lengths, strict=True):
            pieces.append(TokenPiece(token_id, self.text[start : start + length], origin))
            start += length
        return Progress(
            phase="done",
            seed=self.seed,
            text=self.text,
            pieces=tuple(pieces),
            stats=self.stats,
            rates=self.rates,
            finish_reason=self.finish_reason,
        )


@dataclass(frozen=True, slots=True)
class _Lane:
    label: str
    target: str
    draft: str | None
    settings: StepSettings
    speedup: Speedup | None
    identical: bool
    difference: Difference | None
    repeats: tuple[_Run, ...]

    def result(self) -> LaneResult:
        draft = Path(self.draft) if self.draft is not None else None
        spec = LaneSpec(self.label, self.settings, PairFiles("", "", Path(self.target), draft))
        runs = tuple(run.progress() for run in self.repeats)
        return LaneResult(spec, runs, self.speedup, self.identical, self.difference)


@dataclass(frozen=True, slots=True)
class _File:
    format: str
    baseline: str
    messages: tuple[Message, ...]
    prompt: str | None
    limits: Limits
    repeats: int
    cache: CacheState
    orders: tuple[tuple[str, ...], ...]
    lanes: tuple[_Lane, ...]
    conditions: dict[str, Any] = field(default_factory=dict)

    def record(self) -> Record:
        lanes = tuple(lane.result() for lane in self.lanes)
        labels = [lane.label for lane in self.lanes]
        prompt = GenerationRequest(self.messages, self.prompt, limits=self.limits)
        request = RaceRequest(prompt, tuple(lane.spec for lane in lanes), self.repeats, self.cache)
        orders = tuple(tuple(labels.index(label) for label in order) for order in self.orders)
        if any(len(lane.repeats) != len(orders) or not orders for lane in self.lanes):
            raise ValueError("lanes of another number of repeats")
        if any(sorted(order) != list(range(len(labels))) for order in orders):
            raise ValueError("an order that does not name each lane once")
        return Record(request, RaceResult(lanes, labels.index(self.baseline), orders), self.conditions)


_FILE = TypeAdapter(_File)


def read_record(text: str) -> Record:
    """Return the race in the text of a file. Raises SettingError for anything else than a whole one."""
    if len(text) > MAX_BYTES:
        raise _wrong("it is too long")
    try:
        values = json.loads(text, parse_float=_finite, parse_constant=_finite)
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise _wrong(f'it does not say "format": "{FORMAT}"')
        return _FILE.validate_python(values).record()
    except ValidationError as error:
        first = error.errors()[0]
        raise _wrong(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except SettingError as error:
        raise error if error.key == "file" else _wrong(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise _wrong(str(error)) from None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number")
    return value


def _wrong(reason: str) -> SettingError:
    return SettingError("file", "that file", f"a race that SpecUI saved as JSON ({reason})")


@dataclass(frozen=True, slots=True)
class Kept:
    """A race in the history."""

    key: str
    record: Record


def races_folder() -> Path:
    """Return where races are kept."""
    return home() / "races"


class History:
    """The last races in a folder, newest first. Files that are no races are passed over. Any thread may call."""

    def __init__(self, folder: Path, limit: int = MAX_KEPT) -> None:
        self.folder = folder
        self._limit = limit
        self._read: dict[str, Record] = {}  # a file is written once and never changed

    def save(self, record: Record) -> str:
        """Keep a race and return its key; the same race twice is kept once. Raises StorageError."""
        text = record.to_json()
        when = re.sub(r"[^0-9TZ-]", "", record.finished)[:24] or "0000"
        key = f"{when}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        part = self.folder / f"{key}.part"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            part.write_text(text, encoding="utf-8", newline="\n")
            part.replace(self._path(key))
        except OSError as error:
            raise StorageError(self.folder, error.strerror or str(error)) from None
        for old in self._keys()[self._limit :]:
            self.forget(old)
        return key

    def kept(self) -> tuple[Kept, ...]:
        """Return what is kept, newest first."""
        found = ((key, self.find(key)) for key in self._keys())
        return tuple(Kept(key, record) for key, record in found if record is not None)

    def find(self, key: str) -> Record | None:
        """Return the race under a key, None where there is none."""
        if KEY.fullmatch(key) is None:
            return None
        if key not in self._read and (record := self._load(key)) is not None:
            self._read[key] = record
        return self._read.get(key)

    def forget(self, key: str) -> None:
        """Delete a race. Raises StorageError."""
        if KEY.fullmatch(key) is None:
            return
        self._read.pop(key, None)
        try:
            self._path(key).unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(self.folder, error.strerror or str(error)) from None

    def _keys(self) -> list[str]:
        try:
            names = [path.stem for path in self.folder.glob("*.json")]
        except OSError:
            return []
        return sorted((name for name in names if KEY.fullmatch(name)), key=self._when, reverse=True)

    def _when(self, key: str) -> tuple[str, int]:
        """Return when a race was finished, to the second, and of one second's races when its file was written."""
        try:
            written = self._path(key).stat().st_mtime_ns
        except OSError:  # another process forgot it meanwhile
            written = 0
        return key.rpartition("-")[0], written

    def _load(self, key: str) -> Record | None:
        try:
            return read_record(self._path(key).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, SpecUIError):
            return None

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"
