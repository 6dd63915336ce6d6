"""Mode auto against the modes whose drafter never changes: does it cost anything not to choose one by hand?

The best fixed mode of a kind is known only once all were run, and it is picked on the very runs that auto is then
compared on, which flatters it a little and auto never. Knows runs and figures; nothing about files or models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specui.bench.records import Run
from specui.bench.suite import ALL
from specui.bench.summary import Cell, Interval, median_interval, paired, ratios
from specui.config import BASELINE, SpeculationMode

AUTO: SpeculationMode = "auto"


@dataclass(frozen=True, slots=True)
class AgainstFixed:
    """Decode speed of auto over that of `mode`, the best fixed one on a kind, itself `fixed_vs_none` times none."""

    kind: str
    mode: str
    fixed_vs_none: float
    ratio: Interval

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return {"mode": self.mode, "fixed_vs_none": self.fixed_vs_none, **asdict(self.ratio)}


@dataclass(frozen=True, slots=True)
class OnKind:
    """Decode speed of auto over that of none on a kind."""

    kind: str
    speed: Interval


def is_auto(label: str) -> bool:
    """Whether a mode's label stands for auto, with or without a longest draft."""
    return label.partition(":")[0] == AUTO


def auto_label(cells: Sequence[Cell]) -> str | None:
    """Return the label of mode auto, the first where it ran with several lengths; None where it was not run."""
    return next((cell.mode for cell in cells if is_auto(cell.mode)), None)


def against_best_fixed(runs: Sequence[Run], cells: Sequence[Cell]) -> list[AgainstFixed]:
    """Return auto against the best fixed mode for each kind that both were run on; `cells` are those of `runs`.

    Mode none is a fixed mode too. Of modes that are as fast, the first in the table is the best.
    """
    auto = auto_label(cells)
    if auto is None:
        return []
    kinds = dict.fromkeys(cell.kind for cell in cells)
    found = (_on_kind(kind, auto, runs, [cell for cell in cells if cell.kind == kind]) for kind in kinds)
    return [each for each in found if each is not None]


def _on_kind(kind: str, auto: str, runs: Sequence[Run], cells: Sequence[Cell]) -> AgainstFixed | None:
    speeds = {cell.mode: speed for cell in cells if not is_auto(cell.mode) and (speed := _vs_none(cell)) is not None}
    if not speeds:
        return None
    best = max(speeds, key=lambda mode: speeds[mode])
    own = [run for run in runs if kind in (run.kind, ALL)]
    ratio = median_interval(ratios(paired(own, auto, best)))
    return AgainstFixed(kind, best, speeds[best], ratio) if ratio is not None else None


def _vs_none(cell: Cell) -> float | None:
    if cell.mode == BASELINE:
        return 1.0
    return cell.speedup_vs_none.median if cell.speedup_vs_none is not None else None


def worst_kind(cells: Sequence[Cell]) -> OnKind | None:
    """Return the kind where auto does worst against none; None where there is nothing to compare."""
    auto = auto_label(cells)
    own = [cell for cell in cells if cell.mode == auto and cell.kind != ALL]
    speeds = [OnKind(cell.kind, cell.speedup_vs_none) for cell in own if cell.speedup_vs_none is not None]
    return min(speeds, key=lambda each: each.speed.median, default=None)
