"""Short ways to plans, runs and records of a benchmark, for its tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specui.bench.plan import Plan, Turn, parse_variants
from specui.bench.records import Run, RunLog
from specui.bench.runner import Answering, Runner
from specui.bench.suite import BenchPrompt, Suite
from specui.config import DraftingSettings
from specui.errors import SpecUIError
from specui.generation import Generation, Message

MODES = "none,prompt-lookup,draft-model:3"


def prompt(name: str, kind: str = "edit", text: str = "Write.", max_tokens: int = 6) -> BenchPrompt:
    return BenchPrompt(name, kind, "held-out", (Message("user", text),), max_tokens)


def plan(*prompts: BenchPrompt, modes: str = MODES, repeats: int = 1) -> Plan:
    chosen = prompts or (prompt("a"), prompt("b", "story"))
    return Plan(Suite("own", chosen), chosen, parse_variants(modes, DraftingSettings()), repeats)


def header(planned: Plan, **model: Any) -> dict[str, Any]:
    """Return a first line of records that is about no real machine."""
    return {
        "format": 1,
        "started": "2024-06-01T08:00:00Z",
        "suite": {"name": planned.suite.name, "digest": planned.suite.digest},
        "model": {"target": {"file": "big.gguf"}, "draft": None, "ctx_size": 4096, "threads": 2, **model},
        "settings": {
            "modes": [each.label for each in planned.variants],
            "sampling": asdict(planned.sampling),
            "keep_prompt": planned.keep_prompt,
        },
        "machine": {"processor": "abacus", "usable_cores": 2, "system": "Linux 1"},
        "versions": {"llama-cpp-python": "0", "specui": "0"},
    }


def log(folder: Path, planned: Plan, restart: bool = False, **model: Any) -> RunLog:
    return RunLog(folder, header(planned, **model), restart)


def run(mode: str, name: str = "a", repeat: int = 0, kind: str = "edit", **stats: Any) -> Run:
    """Return a run of 11 tokens in 1 second of decoding, with `stats` over that."""
    values = {
        "completion_tokens": 11,
        "decode_seconds": 1.0,
        "num_passes": 10,
        "num_draft_tokens": 0,
        "num_accepted_tokens": 0,
        "time_to_first_token_seconds": 0.5,
        "acceptance_rate": None,
        "accepted_per_position": [],
        **stats,
    }
    values["decode_tokens_per_second"] = (values["completion_tokens"] - 1) / values["decode_seconds"]
    ids = tuple(values.pop("ids", range(11)))
    return Run(f"{kind}/{name}", kind, "held-out", mode, repeat, "2024-06-01T08:00:00Z", 0, "length", values, ids, "…")


class Course:
    """A listener that writes everything down, and can do something when so many runs are over."""

    def __init__(self) -> None:
        self.warm_ups = 0
        self.begun_turns: list[Turn] = []
        self.runs: list[Run] = []
        self.failures: list[tuple[str, SpecUIError]] = []
        self.after: dict[int, Any] = {}

    def begun(self, turn: Turn | None, generation: Generation) -> None:
        if turn is None:
            self.warm_ups += 1
        else:
            self.begun_turns.append(turn)

    def ended(self, turn: Turn, run: Run) -> None:
        self.runs.append(run)
        self.after.get(len(self.runs), lambda: None)()

    def failed(self, turn: Turn, error: SpecUIError) -> None:
        self.failures.append((turn.prompt.key, error))


def keys(planned: Plan) -> Iterator[tuple[str, str, int]]:
    for turn in planned.turns():
        yield turn.key


def bench(runtime: Answering, planned: Plan, folder: Path, course: Course | None = None) -> Course:
    """Make all runs of a plan and return what was told of them."""
    course = course or Course()
    Runner(runtime, planned, log(folder, planned), course).run()
    return course
