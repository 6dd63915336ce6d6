"""What a race is asked, how it goes, and what comes of it, as frozen values.

Knows requests, snapshots and statistics; nothing about how lanes are run or ratios computed.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from specui.catalog import PairFiles
from specui.config import (
    BASELINE,
    DEFAULT_COMPARE_MODES,
    DEFAULT_COMPARE_REPEATS,
    DraftingSettings,
    StepSettings,
    parse_variant,
)
from specui.engine.difference import Difference
from specui.errors import SettingError, SpecUIError
from specui.generation import GenerationRequest, Progress

MIN_LANES, MAX_LANES = 2, 4
MAX_REPEATS = 100

CacheState = Literal["cleared", "conversation"]
"""What every cache holds when a repeat starts: nothing, or all of the conversation but its last turn."""

RacePhase = Literal["queued", "loading", "warm-up", "racing", "judging", "done", "failed"]


@dataclass(frozen=True, slots=True)
class LaneSpec:
    """What runs in one lane, under the label it has in tables: settings of its own, and the files of its pair."""

    label: str
    settings: StepSettings
    files: PairFiles


@dataclass(frozen=True, slots=True)
class RaceRequest:
    """A prompt with its limits, two to four lanes, and how often they run.

    The settings of `prompt` are not read; each lane has its own. Labels must differ. Raises SettingError.
    """

    prompt: GenerationRequest
    lanes: tuple[LaneSpec, ...]
    repeats: int = DEFAULT_COMPARE_REPEATS
    cache: CacheState = "cleared"

    def __post_init__(self) -> None:
        labels = [lane.label for lane in self.lanes]
        if not MIN_LANES <= len(labels) <= MAX_LANES:
            raise SettingError("lanes", ", ".join(labels), f"{MIN_LANES} to {MAX_LANES} lanes")
        if len(set(labels)) < len(labels):
            raise SettingError("lanes", ", ".join(labels), "a label of its own for each lane")
        check_repeats(self.repeats)
        if self.cache not in ("cleared", "conversation"):
            raise SettingError("cache", self.cache, "cleared or conversation")

    @property
    def baseline(self) -> int:
        """The place of the lane that the others are measured against: the first of mode none, else the first."""
        modes = [lane.settings.drafting.speculation for lane in self.lanes]
        return modes.index(BASELINE) if BASELINE in modes else 0


def check_repeats(repeats: int) -> None:
    """Raise SettingError where a race cannot have so many repeats."""
    if not 1 <= repeats <= MAX_REPEATS:
        raise SettingError("repeats", repeats, f"a whole number from 1 to {MAX_REPEATS}")


def parse_modes(text: str, drafting: DraftingSettings) -> dict[str, DraftingSettings]:
    """Return the lanes of a list as `none,prompt-lookup,draft-model:8` by label; a mode named twice runs twice.

    The number is the longest draft; everything else comes from `drafting`. Raises SettingError.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not MIN_LANES <= len(names) <= MAX_LANES:
        raise SettingError("--modes", text, f"{MIN_LANES} to {MAX_LANES} modes, such as {DEFAULT_COMPARE_MODES}")
    lanes: dict[str, DraftingSettings] = {}
    for name in names:
        lanes[free_label(name, lanes)] = parse_variant(name, drafting, "--modes")
    return lanes


def free_label(name: str, taken: Container[str]) -> str:
    """Return `name`, or `name#2`, `name#3`, … where that is taken."""
    return next(label for label in (name, *(f"{name}#{n}" for n in range(2, MAX_LANES + 2))) if label not in taken)


@dataclass(frozen=True, slots=True)
class Speedup:
    """How many times as fast as the baseline: the median of the paired ratios with its interval.

    `ratios` has one entry for each repeat in which both wrote more than one token. `low` and `high` are None where
    there was too little to tell how far they scatter.
    """

    median: float
    low: float | None
    high: float | None
    ratios: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LaneResult:
    """What came of one lane: its answers, one for each repeat, and how they stand against the baseline's.

    `speedup` None: there was nothing to measure. `difference` None: the same tokens, or no common vocabulary.
    """

    spec: LaneSpec
    runs: tuple[Progress, ...]
    speedup: Speedup | None
    identical: bool
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class RaceResult:
    """All lanes in the order of the request; `baseline` is the place of the one that the others are measured against.

    Each entry of `orders` is the order in which the lanes started in that repeat.
    """

    lanes: tuple[LaneResult, ...]
    baseline: int
    orders: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class RaceProgress:
    """A snapshot of a race. `place` counts the jobs before this one while queued; `repeat` counts from 1.

    `lanes` are the snapshots of the repeat that runs, in the order of the request. A race that was cancelled is done
    without a result. `failed_lane` is the label of the lane that raised `error`, where one did.
    """

    version: int = 0
    phase: RacePhase = "queued"
    place: int = 0
    repeat: int = 0
    lanes: tuple[Progress, ...] = ()
    result: RaceResult | None = None
    error: SpecUIError | None = None
    failed_lane: str | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.phase in ("done", "failed")

    @property
    def cancelled(self) -> bool:
        """Whether it ended before its result."""
        return self.phase == "done" and self.result is None
