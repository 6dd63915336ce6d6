"""The summary of a benchmark as JSON, a Markdown table and CSV, as text or as files beside its records.

Knows records and figures; nothing about models.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from specui.bench.fixed import against_best_fixed, auto_label, worst_kind
from specui.bench.records import Run
from specui.bench.summary import INTERVAL_NOTE, Cell, Interval, summarise
from specui.errors import SettingError

SUMMARY, TABLE, RUNS = "summary.json", "table.md", "runs.csv"
RUN_COLUMNS = ("prompt", "kind", "split", "mode", "repeat", "started", "seed", "finish_reason")
LEFT_OUT = ("accepted_per_position", "translation")
"""Figures that are several values and do not fit a cell."""
KEPT_NOTE = (
    "Each prompt was evaluated once for all modes, so times to the first token tell nothing. Where mode draft-model "
    "was run, the draft had read the prompt too: mode auto did not pay for it."
)
FIXED_NOTE = (
    "The best fixed mode is the one with the largest median over none on the same runs, none included; the last column "
    "is the median of paired ratios to it."
)


def is_greedy(header: Mapping[str, Any]) -> bool:
    """Whether the recorded runs took the best token each time."""
    return bool(header["settings"]["sampling"]["temperature"] == 0)


def keeps_prompt(header: Mapping[str, Any]) -> bool:
    """Whether the recorded runs went on from a prompt that was evaluated before."""
    return bool(header["settings"]["keep_prompt"])


def _cells(header: Mapping[str, Any], runs: Sequence[Run]) -> list[Cell]:
    """Return the figures of the runs, without those that mean nothing under these conditions."""
    cells = summarise(runs, is_greedy(header))
    return [replace(cell, time_to_first_token_seconds=None) for cell in cells] if keeps_prompt(header) else cells


def summary_dict(header: Mapping[str, Any], runs: Sequence[Run]) -> dict[str, Any]:
    """Return the whole summary for JSON: conditions, figures by mode and kind, and how auto fares where it was run."""
    modes: dict[str, dict[str, Any]] = {}
    cells = _cells(header, runs)
    for cell in cells:
        modes.setdefault(cell.mode, {})[cell.kind] = cell.to_dict()
    return {**header, "runs": len(runs), "interval": INTERVAL_NOTE, "modes": modes, **_auto_dict(runs, cells)}


def _auto_dict(runs: Sequence[Run], cells: Sequence[Cell]) -> dict[str, Any]:
    if auto_label(cells) is None:
        return {}
    worst = worst_kind(cells)
    return {
        "auto_vs_best_fixed": {each.kind: each.to_dict() for each in against_best_fixed(runs, cells)},
        "worst_kind": {"kind": worst.kind, **asdict(worst.speed)} if worst is not None else None,
    }


def markdown(header: Mapping[str, Any], runs: Sequence[Run]) -> str:
    """Return tables for people: what was measured, speedups by kind and mode, and all figures."""
    cells = _cells(header, runs)
    notes = [*_reasons(cells), *([KEPT_NOTE] if keeps_prompt(header) else []), INTERVAL_NOTE]
    parts = [_conditions(header, runs), _speedups(cells), *_auto(runs, cells), _figures(cells), *notes]
    return "\n\n".join(parts) + "\n"


def _conditions(header: Mapping[str, Any], runs: Sequence[Run]) -> str:
    model, machine, versions = header["model"], header["machine"], header["versions"]
    draft = f" with {model['draft']['file']}" if model["draft"] else ", no draft"
    splits = ", ".join(sorted({run.split for run in runs})) or "no"
    lines = [
        f"# Benchmark: {header['suite']['name']}",
        f"{model['target']['file']}{draft}; context {model['ctx_size']:,}, {model['threads']} threads",
        f"{machine['processor']}, {machine['usable_cores']} usable cores, {machine['system']}",
        f"llama-cpp-python {versions['llama-cpp-python']}, SpecUI {versions['specui']}; begun {header['started']}",
        f"{len(runs)} runs, {splits} prompts, {'greedy' if is_greedy(header) else 'sampled'}",
    ]
    return "\n\n".join(lines)


def _speedups(cells: Sequence[Cell]) -> str:
    """Return the table of kinds by modes: times none, with the interval."""
    modes = [mode for mode in dict.fromkeys(cell.mode for cell in cells) if mode != "none"]
    if not modes:
        return "No mode beside none was run."
    by_place = {(cell.kind, cell.mode): cell for cell in cells}
    rows = [
        [kind, *(speedup(cell.speedup_vs_none) if (cell := by_place.get((kind, mode))) else "–" for mode in modes)]
        for kind in dict.fromkeys(cell.kind for cell in cells)
    ]
    return _table(["decode speed, times none", *modes], rows)


def _auto(runs: Sequence[Run], cells: Sequence[Cell]) -> list[str]:
    """Return the table of auto against the best fixed mode, and the kind where it does worst; nothing without auto."""
    found, worst = against_best_fixed(runs, cells), worst_kind(cells)
    if not found or worst is None:
        return []
    rows = [[each.kind, each.mode, f"{each.fixed_vs_none:.2f}", speedup(each.ratio)] for each in found]
    table = _table(["kind", "best fixed mode", "times none", "auto, times that"], rows)
    return [table, f"Worst kind of auto against none: {worst.kind}, {speedup(worst.speed)}. {FIXED_NOTE}"]


def speedup(interval: Interval | None) -> str:
    """Return a speedup with its interval in words: 1.62 (1.55 to 1.70); a single pair has none."""
    if interval is None:
        return "–"
    if interval.pairs == 1:
        return f"{interval.median:.2f} (one pair)"
    return f"{interval.median:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def _figures(cells: Sequence[Cell]) -> str:
    heads = ["kind", "mode", "runs", "tok/s", "first token", "accepted", "tokens per pass", "same ids as none"]
    return _table(heads, [_row(cell) for cell in cells])


def _row(cell: Cell) -> list[str]:
    same, first = cell.identical_to_none, cell.time_to_first_token_seconds
    return [
        cell.kind,
        cell.mode,
        str(cell.runs),
        _number(cell.decode_tokens_per_second, 1),
        f"{first:.2f} s" if first is not None else "–",
        f"{cell.acceptance_rate:.0%}" if cell.acceptance_rate is not None else "–",
        _number(cell.mean_acceptance_length, 2),
        f"{same.same} of {same.compared}" if same is not None else "–",
    ]


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _reasons(cells: Sequence[Cell]) -> list[str]:
    reasons = {cell.mode: cell.speculation_off_reason for cell in cells if cell.speculation_off_reason}
    return [f"{mode} was off in some runs: {reason}" for mode, reason in reasons.items()]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def runs_csv(runs: Sequence[Run]) -> str:
    """Return one line a run with every figure that is one value."""
    names = [name for name in (runs[0].stats if runs else {}) if name not in LEFT_OUT]
    if "speculation_off_reason" not in names:
        names.append("speculation_off_reason")
    text = io.StringIO()
    writer = csv.DictWriter(text, [*RUN_COLUMNS, *names], extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for run in runs:
        writer.writerow({**run.stats, **{name: getattr(run, name) for name in RUN_COLUMNS}})
    return text.getvalue()


def jsonl(header: Mapping[str, Any], runs: Sequence[Run]) -> str:
    """Return the records as they stand in their file."""
    lines = [{"type": "header", **header}, *({"type": "run", **asdict(run)} for run in runs)]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def write_all(folder: Path, header: Mapping[str, Any], runs: Sequence[Run]) -> dict[str, Any]:
    """Write summary, table and CSV into `folder` and return the summary. Raises SettingError where that fails."""
    summary = summary_dict(header, runs)
    texts = {
        SUMMARY: json.dumps(summary, ensure_ascii=False, indent=1) + "\n",
        TABLE: markdown(header, runs),
        RUNS: runs_csv(runs),
    }
    try:
        for name, text in texts.items():
            _replace(folder / name, text)
    except OSError as error:
        raise SettingError("--out", str(folder), f"a folder that can be written ({error.strerror})") from None
    return summary


def _replace(path: Path, text: str) -> None:
    """Write the file whole: who reads it meanwhile sees the old one or the new one."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8", newline="\n")
    os.replace(part, path)  # noqa: PTH105  # the one name for it that Windows lets replace a file
