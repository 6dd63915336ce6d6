"""`bench`: run a suite of prompts with several modes, side by side, into a folder of records and tables.

Knows the benchmark's rooms and the shared options; how runs are made and judged stands there.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from specui.bench import conditions, export
from specui.bench.plan import Plan, Turn, parse_variants
from specui.bench.records import Run, RunLog
from specui.bench.runner import Count, Runner, Stopped
from specui.bench.suite import ALL, SPLITS, Selection, builtin_names, load_suite
from specui.commands.generate import INTERRUPTED
from specui.commands.options import (
    add_model_options,
    add_step_options,
    find_files,
    load_settings,
    say,
    step_settings,
)
from specui.commands.output import show, show_json
from specui.config import DEFAULT_BENCH_MODES, DEFAULT_BENCH_REPEATS, DEFAULT_SUITE, LoadSettings
from specui.errors import SettingError, SpecUIError
from specui.generation import Generation
from specui.runtime import LoadedPair, Runtime

DESCRIPTION = """Run every chosen prompt of a suite with mode none and each other mode in turn, each from the same empty
memory, or with --keep-prompt each from the prompt as it was evaluated once. Finished runs are kept in DIR/runs.jsonl,
so that the same command goes on where it was interrupted; summary.json, table.md and runs.csv are written beside it.
--max-tokens cuts the answers that would take longer."""


def add(commands: Any) -> None:
    """Add the command to the subparsers `commands`."""
    bench = commands.add_parser("bench", help="measure modes on a suite of prompts", description=DESCRIPTION)
    group = bench.add_argument_group("benchmark")
    names, selection = ", ".join(builtin_names()), Selection()
    group.add_argument("--out", type=_folder, required=True, metavar="DIR", help="folder of records and tables")
    suite = f"a builtin suite ({names}) or a YAML file (default: {DEFAULT_SUITE})"
    group.add_argument("--suite", default=DEFAULT_SUITE, metavar="NAME|FILE", help=suite)
    modes = f"modes, MODE:N for drafts of at most N tokens; none always runs (default: {DEFAULT_BENCH_MODES})"
    group.add_argument("--modes", default=DEFAULT_BENCH_MODES, metavar="A,B", help=modes)
    repeats = f"runs of each prompt and mode (default: {DEFAULT_BENCH_REPEATS})"
    group.add_argument("--repeats", type=int, default=DEFAULT_BENCH_REPEATS, metavar="N", help=repeats)
    group.add_argument("--kinds", metavar="A,B", help="kinds of work (default: all of the suite)")
    splits = f"{', '.join(SPLITS)} or {ALL}; tune settings on the one, report the other (default: {selection.split})"
    group.add_argument("--split", default=selection.split, metavar="SPLIT", help=splits)
    group.add_argument("--limit", type=int, metavar="N", help="prompts of each kind (default: all)")
    keep = "evaluate each prompt once for all modes: faster, where only the speed of decoding is asked for"
    group.add_argument("--keep-prompt", action="store_true", help=keep)
    group.add_argument("--restart", action="store_true", help="throw away the records in DIR and begin anew")
    group.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    add_model_options(bench)
    add_step_options(bench)
    bench.set_defaults(run=run_bench)


def _folder(name: str) -> Path:
    """Return the folder that --out names; an empty name is a mistake, not the folder one stands in."""
    if not name.strip():
        raise argparse.ArgumentTypeError("the name of a folder is missing")
    return Path(name)


def run_bench(arguments: argparse.Namespace) -> int:
    """Run what is left of the benchmark and print its table, also of a part that was interrupted."""
    planned, settings = read_plan(arguments), load_settings(arguments)
    files = find_files(arguments)
    runtime = Runtime(settings)
    try:
        pair = runtime.load(files)
        log = RunLog(arguments.out, _header(planned, pair, settings), arguments.restart)
        course = _Course()
        runner = Runner(runtime, planned, log, course)
        course.begin(runner.count, log.path)
        code = _run(runner, course)
    finally:
        runtime.close()
    summary = export.write_all(log.folder, log.header, log.runs)
    if arguments.json:
        show_json(summary)
    else:
        show(export.markdown(log.header, log.runs))
    return code


def read_plan(arguments: argparse.Namespace) -> Plan:
    """Return the plan of parsed arguments. Raises SettingError, CatalogError."""
    if arguments.speculation is not None:
        raise SettingError("--speculation", arguments.speculation, "the modes of a benchmark in --modes")
    suite, step = load_suite(arguments.suite), step_settings(arguments)
    kinds = tuple(kind.strip() for kind in (arguments.kinds or "").split(",") if kind.strip())
    return Plan(
        suite=suite,
        prompts=suite.select(Selection(kinds, arguments.split, arguments.limit)),
        variants=parse_variants(arguments.modes, step.drafting),
        repeats=arguments.repeats,
        sampling=step.sampling,
        max_tokens=arguments.max_tokens,
        stop=tuple(arguments.stop or ()),
        keep_prompt=arguments.keep_prompt,
    )


def _header(planned: Plan, pair: LoadedPair, settings: LoadSettings) -> dict[str, Any]:
    load = {"batch_size": settings.batch_size, "gpu_layers": settings.gpu_layers}
    return conditions.header(planned, pair, load)


def _run(runner: Runner, course: _Course) -> int:
    try:
        runner.run()
    except (KeyboardInterrupt, Stopped):
        say(f"stopped; the same command goes on from here ({runner.count.done} of {runner.count.total} runs are done)")
        return INTERRUPTED
    if course.failures:
        say(f"error: {len(course.failures)} runs failed; the first, {course.failures[0]}")
        return 1
    return 0


class _Course:
    """Says on stderr how far the benchmark is; a listener of the runner."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self._done = 0
        self._total = 0

    def begin(self, count: Count, path: Path) -> None:
        """Say what there is to do."""
        self._done, self._total = count.done, count.total
        again = f", {count.done} of them done before" if count.done else ""
        say(f"{count.total} runs{again}; records in {path}")

    def begun(self, turn: Turn | None, generation: Generation) -> None:
        """Nothing is said before a run is over."""

    def ended(self, turn: Turn, run: Run) -> None:
        """Say what came out."""
        self._done += 1
        rate = "–" if run.rate is None else f"{run.rate:.1f}"
        what = f"{run.prompt}, {run.mode}, repeat {run.repeat + 1}"
        say(f"[{self._done}/{self._total}] {what}: {run.stats['completion_tokens']} tokens, {rate} tok/s")

    def failed(self, turn: Turn, error: SpecUIError) -> None:
        """Say why there is no result."""
        self.failures.append(f"{turn.prompt.key} with {turn.variant.label}: {error}")
        say(f"failed: {self.failures[-1]}")
