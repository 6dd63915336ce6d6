"""`models`: list the pairs of the catalogue, look at one before downloading it, fetch it, say where it is.

Knows the catalogue and what prints a look at it; headers and downloads are the business of the rooms below.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from specui import hub, inspection, pairs
from specui.catalog import Catalog, Pair, PairFiles
from specui.commands.options import DownloadProgress, Parser, say
from specui.commands.output import show, show_json
from specui.config import DEFAULT_CTX_SIZE, LoadSettings
from specui.errors import ModelFileError
from specui.inspection import FileFacts, PairFacts, describe
from specui.pace import size


def add(commands: Any) -> None:
    """Add the command to the subparsers `commands`."""
    models = commands.add_parser(
        "models", help="list, check and download pairs", description="The pairs of the catalogue."
    )
    actions = models.add_subparsers(title="actions", required=True, metavar="ACTION", parser_class=Parser)
    _action(actions, "list", run_list, "the known pairs, and which are on disk")
    check = _action(actions, "check", run_check, "look at a pair without downloading it", with_pair=True)
    check.add_argument("--ctx-size", type=int, metavar="N", help=f"context in tokens (default: {DEFAULT_CTX_SIZE})")
    _action(actions, "download", run_download, "fetch a pair's files", with_pair=True)
    _action(
        actions, "path", run_path, "print where a pair's files are; exit code 1 if they are not here", with_pair=True
    )


def _action(actions: Any, name: str, run: Any, text: str, with_pair: bool = False) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    if with_pair:
        parser.add_argument("pair", metavar="PAIR", help="a name of the catalogue")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)
    return parser


def run_list(arguments: argparse.Namespace) -> int:
    """Print the catalogue; asks no network."""
    catalog = Catalog.default()
    found = [(pair, pairs.on_disk(pair)) for pair in catalog]
    if arguments.json:
        rows = [_listed(pair, files) for pair, files in found]
        show_json({"pairs": rows, "cache": str(hub.cache_folder()), "disk_free_bytes": hub.free_bytes()})
        return 0
    width = max(len(pair.name) for pair, _ in found)
    for pair, files in found:
        state = size(_bytes(files)) if files is not None else "–"
        show(f"{pair.name:{width}}  {state:>8}  {pair.title}")
    say(f"Sizes are of pairs on disk. {size(hub.free_bytes())} are free at {hub.cache_folder()}")
    return 0


def _listed(pair: Pair, files: PairFiles | None) -> dict[str, Any]:
    return {
        "name": pair.name,
        "title": pair.title,
        "target": describe(pair.target),
        "draft": describe(pair.draft) if pair.draft is not None else None,
        "on_disk": files is not None,
        "bytes_on_disk": _bytes(files) if files is not None else 0,
        "ctx_size": pair.ctx_size,
        "licence": pair.licence,
        "tags": list(pair.tags),
        "notes": pair.notes,
    }


def _bytes(files: PairFiles) -> int:
    """Return the size of a pair's files, all parts counted."""
    firsts = [path for path in (files.target, files.draft) if path is not None]
    parts = {first.with_name(name) for first in firsts for name in hub.shards(first.name)}
    return sum(part.stat().st_size for part in parts if part.exists())


def run_check(arguments: argparse.Namespace) -> int:
    """Print what a pair's headers tell; exit code 1 where its draft cannot draft for its target."""
    pair = Catalog.default().pair(arguments.pair)
    facts = inspection.inspect(pair, LoadSettings(ctx_size=arguments.ctx_size))
    if arguments.json:
        show_json(facts.to_json())
    else:
        show("\n".join(_report(facts)))
    return 1 if facts.comparison is not None and not facts.comparison.compatible else 0


def _report(facts: PairFacts) -> list[str]:
    lines = [facts.title]
    for each in (facts.target, facts.draft):
        lines += _file_lines(each) if each is not None else ["draft      none"]
    lines.append(f"vocabulary {inspection.verdict(facts)}")
    lines.append(f"template   {inspection.TEMPLATE_WORDS[facts.chat_template]}")
    if facts.memory is not None:
        needed, free = size(facts.memory.needed_bytes), size(facts.memory.free_bytes)
        lines.append(f"memory     {needed} at a context of {facts.ctx_size:,}; {free} are free")
    lines.append(f"disk       {size(facts.download_bytes)} to fetch; {size(facts.disk_free_bytes)} are free")
    lines.append(f"read       {size(facts.transferred_bytes)} of headers")
    return [*lines, *(f"! {problem}" for problem in facts.problems())]


def _file_lines(facts: FileFacts) -> list[str]:
    words = inspection.file_words(facts)
    here = "on disk" if facts.on_disk else "not here yet"
    return [f"{facts.role:10} {facts.source} ({here})", f"           {words}"]


def run_download(arguments: argparse.Namespace) -> int:
    """Fetch what is missing of a pair, with progress on stderr, and print the paths."""
    pair = Catalog.default().pair(arguments.pair)
    files = pairs.on_disk(pair) or pairs.resolve(pair, DownloadProgress().tell)
    _print_paths(files, arguments.json)
    return 0


def run_path(arguments: argparse.Namespace) -> int:
    """Print where a pair's files are. Raises ModelFileError where they are not on disk."""
    pair = Catalog.default().pair(arguments.pair)
    files = pairs.on_disk(pair)
    if files is None:
        raise ModelFileError(Path(pair.name), f"is not on disk; run: python -m specui models download {pair.name}")
    _print_paths(files, arguments.json)
    return 0


def _print_paths(files: PairFiles, as_json: bool) -> None:
    if as_json:
        draft = str(files.draft) if files.draft is not None else None
        show_json({"name": files.name, "target": str(files.target), "draft": draft})
        return
    for path in (files.target, files.draft):
        if path is not None:
            show(str(path))
