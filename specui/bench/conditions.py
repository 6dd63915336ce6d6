"""What a benchmark was measured on: machine, versions, model files and settings, as the first line of its records.

Files are told by name, size and a hash of both ends, never by their folders. Knows nothing about running models.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import specui
from specui.bench.plan import Plan
from specui.bench.records import FORMAT
from specui.engine.cpu import processor_name, usable_threads

PACKAGES = ("llama-cpp-python", "numpy")
END_BYTES = 1 << 20
"""So much of a file's beginning (names, shapes, vocabulary) and of its end (weights) goes into its hash."""


class Measured(Protocol):
    """The loaded pair, as far as records name it."""

    @property
    def name(self) -> str: ...
    @property
    def target(self) -> Path: ...
    @property
    def draft(self) -> Path | None: ...
    @property
    def ctx_size(self) -> int: ...
    @property
    def threads(self) -> int: ...


def header(plan: Plan, pair: Measured, load: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first line of the records; `load` has what else the pair was loaded with."""
    return {
        "format": FORMAT,
        "started": now(),
        "suite": {"name": plan.suite.name, "digest": plan.suite.digest},
        "model": {
            "pair": pair.name,
            "target": file_facts(pair.target),
            "draft": file_facts(pair.draft) if pair.draft is not None else None,
            "ctx_size": pair.ctx_size,
            "threads": pair.threads,
            **load,
        },
        "settings": {
            "modes": {variant.label: asdict(variant.drafting) for variant in plan.variants},
            "sampling": asdict(plan.sampling),
            "max_tokens": plan.max_tokens,
            "stop": list(plan.stop),
            "keep_prompt": plan.keep_prompt,
        },
        "machine": machine(),
        "versions": versions(),
    }


def versions() -> dict[str, str | None]:
    """Return the versions of what does the work."""
    packages = {name: _version(name) for name in PACKAGES}
    return {"specui": specui.__version__, "python": platform.python_version(), **packages}


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def file_facts(path: Path) -> dict[str, Any]:
    """Return a file's name, its size and a hash of size, first and last bytes; null where it cannot be read."""
    try:
        size = path.stat().st_size
        digest = hashlib.sha256(str(size).encode())
        with path.open("rb") as file:
            digest.update(file.read(END_BYTES))
            file.seek(max(0, size - END_BYTES))
            digest.update(file.read())
    except OSError:
        return {"file": path.name, "bytes": None, "digest": None}
    return {"file": path.name, "bytes": size, "digest": digest.hexdigest()}


def machine() -> dict[str, Any]:
    """Return the processor, how many of its cores may be used, and the system."""
    return {
        "processor": processor_name(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": usable_threads(),
        "system": f"{platform.system()} {platform.release()}",
    }
