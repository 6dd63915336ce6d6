"""Target/draft pairs as values. The catalogue itself (models.yaml) is read here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PairFiles:
    """A pair whose files are on disk, ready to load. `chat_template` overrides the one in the target's file."""

    name: str
    title: str
    target: Path
    draft: Path | None = None
    chat_template: str | None = None
    ctx_size: int | None = None
