"""Whether a race can be believed: `python benchmarks/race.py CHECK --target T [--draft D]`.

`twins` races mode none against itself ten times and counts the intervals that hold 1; with `--busy` beside an endless
loop on one core. `alone` holds the ratios of one race against those of separate runs of `generate`, medians of five.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prompts import BY_NAME

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Run one of the checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", choices=["twins", "alone"])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--prompt", choices=sorted(BY_NAME), default="story")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--races", type=int, default=10, help="of twins")
    parser.add_argument("--modes", default="none,prompt-lookup,draft-model", help="of alone")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--busy", action="store_true", help="an endless loop on one core meanwhile")
    options = parser.parse_args()
    with _busy_core() if options.busy else contextlib.nullcontext():
        if options.check == "twins":
            _twins(options)
        else:
            _alone(options)


def _specui(options: argparse.Namespace, command: str, *more: str) -> dict[str, Any]:
    flags = ["--target", str(options.target), "--prompt", BY_NAME[options.prompt]]
    flags += ["--max-tokens", str(options.max_tokens), "--json"]
    flags += ["--draft", str(options.draft)] if options.draft else []
    flags += ["--threads", str(options.threads)] if options.threads else []
    line = [sys.executable, "-m", "specui", command, *flags, *more]
    done = subprocess.run(line, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def _twins(options: argparse.Namespace) -> None:
    """Print the interval of each race of two equal lanes, and how many hold 1."""
    held = 0
    for race in range(options.races):
        values = _specui(options, "compare", "--modes", "none,none", "--repeats", str(options.repeats))
        ratio = values["modes"]["none#2"]["speedup_vs_none"]
        holds = ratio["low"] <= 1 <= ratio["high"]
        held += holds
        figures = f"{ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"
        print(f"race {race + 1:2}: {figures} {'holds 1' if holds else 'DOES NOT HOLD 1'}", flush=True)
    print(f"{held} of {options.races} intervals hold 1")


def _alone(options: argparse.Namespace) -> None:
    """Print the ratio of each mode in a race and in runs of their own, and how far they lie apart."""
    modes = options.modes.split(",")
    race = _specui(options, "compare", "--modes", options.modes, "--repeats", str(options.repeats))["modes"]
    rates: dict[str, list[float]] = {mode: [] for mode in modes}
    for repeat in range(options.repeats):
        first = repeat % len(modes)
        for mode in (*modes[first:], *modes[:first]):
            name, _, number = mode.partition(":")
            flags = ["--max-draft-tokens", number] if number else []
            stats = _specui(options, "generate", "--speculation", name, *flags)["stats"]
            rates[mode].append(stats["decode_tokens_per_second"])
    base = statistics.median(rates[modes[0]])
    for mode in modes[1:]:
        alone, raced = statistics.median(rates[mode]) / base, race[mode]["speedup_vs_none"]["median"]
        apart = raced / alone - 1
        verdict = "within 5 %" if abs(apart) <= 0.05 else "MORE THAN 5 % APART"
        print(f"{mode}: {raced:.3f} in the race, {alone:.3f} alone, {apart:+.1%}: {verdict}", flush=True)


@contextlib.contextmanager
def _busy_core() -> Iterator[None]:
    """Keep one core busy with a process that loops."""
    process = multiprocessing.Process(target=_loop, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _loop() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    while True:
        pass


if __name__ == "__main__":
    main()
