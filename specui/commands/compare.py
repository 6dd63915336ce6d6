"""`compare`: the same prompt in two to four modes side by side, with a ratio for each and its interval.

Knows the race and the shared options; how lanes take turns and ratios are judged stands there.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from specui.answer import check_request
from specui.bench import conditions
from specui.commands.generate import INTERRUPTED
from specui.commands.options import (
    add_model_options,
    add_prompt_options,
    add_step_options,
    find_files,
    load_settings,
    read_request,
    say,
)
from specui.commands.output import show, show_json
from specui.compare.handle import Race
from specui.compare.race import start_race
from specui.compare.records import (
    LaneSpec,
    RaceProgress,
    RaceRequest,
    check_repeats,
    free_label,
    parse_modes,
)
from specui.compare.report import export_csv, export_json, result_json, sentences, table
from specui.config import BASELINE, DEFAULT_COMPARE_MODES, DEFAULT_COMPARE_REPEATS
from specui.errors import SettingError
from specui.runtime import Runtime

EXPORTS = (".json", ".csv")
FOLLOW_SECONDS = 0.5
"""How often the terminal looks at which repeat is running."""


def add(commands: Any) -> None:
    """Add the command to the subparsers `commands`."""
    text = "Answer one prompt in several modes side by side and measure how much faster or slower each is."
    compare = commands.add_parser("compare", help="the same prompt in several modes", description=text)
    add_model_options(compare)
    add_prompt_options(compare)
    add_step_options(compare)
    group = compare.add_argument_group("comparing")
    modes = f"two to four, each MODE or MODE:N with the longest draft (default: {DEFAULT_COMPARE_MODES})"
    group.add_argument("--modes", default=DEFAULT_COMPARE_MODES, metavar="LIST", help=modes)
    repeats = f"runs of every mode (default: {DEFAULT_COMPARE_REPEATS})"
    group.add_argument("--repeats", type=int, default=DEFAULT_COMPARE_REPEATS, metavar="N", help=repeats)
    twin = "run the baseline twice: its twin should come out at 1.00"
    group.add_argument("--swap-check", action="store_true", help=twin)
    group.add_argument("--export", type=Path, metavar="FILE", help="write every figure to FILE.json or FILE.csv")
    compare.add_argument("--json", action="store_true", help="print one JSON object with the statistics of every run")
    compare.set_defaults(run=run_compare)


def run_compare(arguments: argparse.Namespace) -> int:
    """Run a race; print a table and sentences, or one JSON object."""
    settings, request = load_settings(arguments), _read_race(arguments)
    runtime = Runtime(settings)
    try:
        race = start_race(runtime, request)
        try:
            progress = _follow(race)
        except BaseException:
            race.cancel()
            raise
    finally:
        runtime.close()
    if progress.result is None:
        return INTERRUPTED
    if arguments.export is not None:
        csv = arguments.export.suffix == ".csv"
        text = export_csv(progress.result) if csv else export_json(request, progress.result, _conditions())
        _write(arguments.export, text)
    if arguments.json:
        show_json(result_json(progress.result))
    else:
        show("\n".join([table(progress.result), *sentences(progress.result)]))
    return 0


def _conditions() -> dict[str, Any]:
    return {"finished": conditions.now(), "machine": conditions.machine(), "versions": conditions.versions()}


def _read_race(arguments: argparse.Namespace) -> RaceRequest:
    """Return the race of parsed arguments; what is wrong in them is said before anything is downloaded."""
    if arguments.speculation is not None:
        raise SettingError("--speculation", arguments.speculation, "--modes, which names the modes to compare")
    prompt = read_request(arguments)
    check_request(prompt)
    check_repeats(arguments.repeats)
    _check_export(arguments.export)
    modes = parse_modes(arguments.modes, prompt.settings.drafting)
    if arguments.swap_check:
        baseline = BASELINE if BASELINE in modes else next(iter(modes))
        modes[free_label(baseline, modes)] = modes[baseline]
    files = find_files(arguments)
    lanes = [LaneSpec(label, replace(prompt.settings, drafting=each), files) for label, each in modes.items()]
    return RaceRequest(prompt, tuple(lanes), arguments.repeats)


def _check_export(path: Path | None) -> None:
    if path is not None and (path.suffix not in EXPORTS or not path.resolve().parent.is_dir()):
        raise SettingError("--export", str(path), "a name that ends in .json or .csv, in a folder that is there")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingError("--export", str(path), f"a file that can be written ({error.strerror})") from None


def _follow(race: Race) -> RaceProgress:
    """Wait for the end; on a terminal say which repeat is running, without asking the race for snapshots."""
    told = None
    while not race.wait_for_end(FOLLOW_SECONDS):
        progress = race.progress
        stage = f"repeat {progress.repeat} of {race.request.repeats}" if progress.phase == "racing" else progress.phase
        if sys.stderr.isatty() and stage != told:
            say(stage)
            told = stage
    return race.result()
