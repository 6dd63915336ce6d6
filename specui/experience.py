"""What mode `auto` learned, kept between starts: one small JSON file a pair of models, thread count and processor.

A file that is damaged, of another version or of something else is as good as none. Writing replaces the whole file at
once, so that of two processes the last one wins. Knows files; nothing about how it is measured or used.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from specui.config import home
from specui.engine.costs import MOST_ROWS
from specui.engine.cpu import processor_name
from specui.engine.economy import Known
from specui.engine.rates import Record

log = logging.getLogger("specui")

VERSION = 3
MAX_FILE_BYTES = 64 * 1024
"""A longer file is none of ours; ours take about 5 KB."""

MAX_FILES = 100
"""When a new one comes, the files that were written longest ago make room."""


@dataclass(frozen=True, slots=True)
class Key:
    """What the costs depend on: the files by name and size (draft empty: none), and the machine."""

    target: str
    draft: str
    threads: int
    gpu_layers: int
    processor: str

    @classmethod
    def of(cls, target: Path, draft: Path | None, threads: int, gpu_layers: int) -> Key:
        """Return the key of two files on this machine."""
        return cls(_named(target), "" if draft is None else _named(draft), threads, gpu_layers, processor_name())

    @property
    def path(self) -> Path:
        """Where what is known under this key is kept."""
        digest = hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()
        return folder() / f"{digest[:24]}.json"


def folder() -> Path:
    """Return the folder of all that is kept."""
    return home() / "experience"


def _named(path: Path) -> str:
    try:
        return f"{path.name} ({path.stat().st_size} bytes)"
    except OSError:  # a draft that is missing: the lane tells it
        return path.name


def load(key: Key) -> Known | None:
    """Return what is kept under `key`, or None where there is nothing to be relied on."""
    try:
        with key.path.open("rb") as file:
            content = json.loads(file.read(MAX_FILE_BYTES))
        return _known(content, key)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def save(key: Key, known: Known) -> None:
    """Keep `known` under `key`. Where the folder cannot be written this does nothing, and logs that once."""
    content = {
        "version": VERSION,
        "key": asdict(key),
        "pass_seconds": {str(rows): seconds for rows, seconds in known.pass_seconds.items()},
        "cell_seconds": known.cell_seconds,
        "by_match": [asdict(record) for record in known.by_match],
        "by_confidence": [asdict(record) for record in known.by_confidence],
        "acceptance": known.acceptance,
        "draft_token_passes": known.draft_token_passes,
    }
    try:
        _replace(key.path, json.dumps(content, indent=1, allow_nan=False))
    except (OSError, ValueError) as error:
        _complain(folder(), str(error))


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, suffix=".part", delete=False) as file:
        part = Path(file.name)
        try:
            file.write(text)
            file.close()
            if not path.exists():
                _make_room(path.parent)
            part.replace(path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise


def _make_room(where: Path) -> None:
    with suppress(OSError):  # another process may do the same
        files = sorted(where.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for old in files[: max(0, len(files) - MAX_FILES + 1)]:
            old.unlink()


@cache
def _complain(where: Path, reason: str) -> None:
    log.warning("%s: what mode auto learns cannot be kept between starts: %s", where, reason)


def _known(content: Mapping[str, Any], key: Key) -> Known:
    """Return checked values. Raises ValueError, TypeError, KeyError or AttributeError for anything else than ours."""
    if content["version"] != VERSION or content["key"] != asdict(key):
        raise ValueError("of another version, or about something else")
    passes = {int(rows): _number(seconds, low=1e-9) for rows, seconds in content["pass_seconds"].items()}
    if 1 not in passes or not 1 <= min(passes) <= max(passes) <= MOST_ROWS:
        raise ValueError("passes of no rows, or of too many")
    token_passes = content["draft_token_passes"]
    return Known(
        pass_seconds=passes,
        cell_seconds=_number(content["cell_seconds"]),
        by_match=_records(content["by_match"]),
        by_confidence=_records(content["by_confidence"]),
        acceptance=_number(content["acceptance"], high=1.0),
        draft_token_passes=None if token_passes is None else _number(token_passes, low=1e-9),
    )


def _records(entries: Sequence[Mapping[str, Any]]) -> tuple[Record, ...]:
    records = []
    for entry in entries:
        trials = _number(entry["trials"], low=1.0, high=1e3)
        records.append(Record(_number(entry["hits"], high=trials), trials, int(_number(entry["seen"], high=1e15))))
    return tuple(records)


def _number(value: object, low: float = 0.0, high: float = 1e6) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    if not low <= value <= high:  # which refuses NaN, infinities and integers beyond any float as well
        raise ValueError("out of its bounds")
    return float(value)
