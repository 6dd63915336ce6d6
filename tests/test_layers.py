"""The house of the design: arrows point down only, no cycles (lazy imports counted), and who may import what."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

LAYERS: Mapping[int, tuple[str, ...]] = {
    0: ("specui.errors", "specui", "specui.engine"),
    1: (
        "specui.config",
        "specui.catalog",
        "specui.pace",
        "specui.references",
        "specui.engine.dice",
        "specui.engine.sampling",
        "specui.engine.stats",
        "specui.engine.thinking",
        "specui.engine.gbnf",
        "specui.engine.json_schema",
    ),
    2: (
        "specui.engine.verification",
        "specui.engine.drafting",
        "specui.engine.lookup",
        "specui.engine.economy",
        "specui.engine.translation",
        "specui.engine.costs",
        "specui.engine.calibration",
        "specui.engine.rates",
        "specui.engine.exactness",
        "specui.engine.llama",
        "specui.engine.chat",
        "specui.engine.text",
        "specui.engine.grammar",
        "specui.engine.cpu",
        "specui.engine.checkpoint",
        "specui.hub",
        "specui.gguf",
        "specui.estimate",
        "specui.space",
        "specui.vocab",
    ),
    3: ("specui.engine.decoder", "specui.engine.controller", "specui.engine.difference"),
    4: (
        "specui.watched",
        "specui.generation",
        "specui.weights",
        "specui.draft_slot",
        "specui.experience",
        "specui.machine",
        "specui.lane",
        "specui.answer",
        "specui.line",
        "specui.reference_index",
        "specui.runtime",
        "specui.pairs",
        "specui.headers",
        "specui.inspection",
        "specui.offers",
        "specui.bundled",
        "specui.compare",
        "specui.bench",
    ),
    5: ("specui.cli", "specui.commands", "specui.api", "specui.ui", "specui.__main__", "app"),
}
"""A room is a module, or a package with all its modules."""

NEIGHBOURS = {
    ("specui.catalog", "specui.config"),
    ("specui.references", "specui.config"),
    ("specui.engine.sampling", "specui.config"),
    ("specui.engine.sampling", "specui.engine.dice"),
    ("specui.engine.stats", "specui.config"),
    ("specui.engine.stats", "specui.engine.thinking"),
    ("specui.engine.thinking", "specui.config"),
    ("specui.engine.drafting", "specui.engine.verification"),
    ("specui.engine.translation", "specui.engine.drafting"),
    ("specui.engine.translation", "specui.engine.verification"),
    ("specui.engine.lookup", "specui.engine.drafting"),
    ("specui.engine.lookup", "specui.engine.verification"),
    ("specui.engine.economy", "specui.engine.costs"),
    ("specui.engine.economy", "specui.engine.drafting"),
    ("specui.engine.economy", "specui.engine.lookup"),
    ("specui.engine.economy", "specui.engine.rates"),
    ("specui.engine.calibration", "specui.engine.costs"),
    ("specui.engine.calibration", "specui.engine.drafting"),
    ("specui.engine.exactness", "specui.engine.drafting"),
    ("specui.engine.chat", "specui.engine.llama"),
    ("specui.engine.llama", "specui.engine.checkpoint"),
    ("specui.engine.llama", "specui.engine.cpu"),
    ("specui.engine.json_schema", "specui.engine.gbnf"),
    ("specui.engine.llama", "specui.gguf"),
    ("specui.gguf", "specui.vocab"),
    ("specui.estimate", "specui.gguf"),
    ("specui.hub", "specui.gguf"),
    ("specui.hub", "specui.space"),
    ("specui.answer", "specui.generation"),
    ("specui.answer", "specui.lane"),
    ("specui.runtime", "specui.answer"),
    ("specui.runtime", "specui.generation"),
    ("specui.runtime", "specui.lane"),
    ("specui.runtime", "specui.line"),
    ("specui.runtime", "specui.reference_index"),
    ("specui.runtime", "specui.weights"),
    ("specui.lane", "specui.weights"),
    ("specui.lane", "specui.draft_slot"),
    ("specui.lane", "specui.machine"),
    ("specui.machine", "specui.experience"),
    ("specui.draft_slot", "specui.weights"),
    ("specui.bench", "specui.compare"),
    ("specui.compare", "specui.answer"),
    ("specui.compare", "specui.lane"),
    ("specui.compare", "specui.line"),
    ("specui.compare", "specui.reference_index"),
    ("specui.compare", "specui.generation"),
    ("specui.compare", "specui.runtime"),
    ("specui.compare", "specui.watched"),
    ("specui.generation", "specui.watched"),
    ("specui.pairs", "specui.bundled"),
    ("specui.pairs", "specui.inspection"),
    ("specui.headers", "specui.bundled"),
    ("specui.inspection", "specui.headers"),
    ("specui.offers", "specui.headers"),
    ("specui.offers", "specui.inspection"),
    ("specui.offers", "specui.pairs"),
    ("specui.__main__", "specui.cli"),
    ("specui.cli", "specui.commands"),
    ("app", "specui.commands"),
    ("app", "specui.ui"),
}
"""Arrows between rooms of one layer. Each is needed and none goes both ways."""

OPTIONAL_NEIGHBOURS = {
    ("app", "specui.api"),
    ("specui.bench", "specui.generation"),
    ("specui.bench", "specui.pairs"),
    ("specui.bench", "specui.runtime"),
}
"""Arrows that a room may have once it is there."""

ONLY_IN: Mapping[str, tuple[str, ...]] = {
    "llama_cpp": ("specui.engine.llama", "specui.engine.chat"),
    "jinja2": ("specui.engine.chat",),
    "gradio": ("specui.ui", "app"),
    "huggingface_hub": ("specui.hub",),
    "fastapi": ("specui.api", "app"),
    "uvicorn": ("app",),
    "filelock": ("specui.bundled", "specui.hub"),
    "yaml": ("specui.catalog",),
    "gguf": (),
    "scipy": (),
}

NUMPY_ROOMS = ("specui.engine", "specui.bench", "specui.compare")


def files() -> dict[str, Path]:
    """Return every module of the program with its file."""
    found = {"app": ROOT / "app.py"} if (ROOT / "app.py").exists() else {}
    for path in sorted((ROOT / "specui").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


FILES = files()


def imports_of(path: Path) -> Iterable[tuple[str, int]]:
    """Yield every module that a file imports anywhere in it, with the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path.name}:{node.lineno}: write imports in full"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (full if full in FILES else node.module), node.lineno


EDGES = [(module, target, line) for module, path in FILES.items() for target, line in imports_of(path)]
OURS = [(module, target, line) for module, target, line in EDGES if target.split(".")[0] in ("specui", "app")]


def room_of(module: str) -> str:
    """Return the room a module lies in: the longest name of the table that it begins with."""
    rooms = [room for names in LAYERS.values() for room in names]
    exact = [room for room in rooms if module == room]
    around = [room for room in rooms if room not in ("specui", "specui.engine") and module.startswith(room + ".")]
    assert exact or around, f"{module} has no place in the table of this test and of docs"
    return max(exact or around, key=len)


def layer_of(room: str) -> int:
    return next(number for number, names in LAYERS.items() if room in names)


def inside(module: str, rooms: Iterable[str]) -> bool:
    return any(module == room or module.startswith(room + ".") for room in rooms)


def test_every_module_has_a_place() -> None:
    assert len(FILES) > 20
    for module in FILES:
        room_of(module)


def test_arrows_point_down_only() -> None:
    wrong = []
    for module, target, line in OURS:
        here, there = room_of(module), room_of(target)
        if here == there or layer_of(there) < layer_of(here):
            continue
        if (here, there) not in NEIGHBOURS | OPTIONAL_NEIGHBOURS:
            wrong.append(f"{FILES[module].name}:{line}: {module} imports {target}")
    assert wrong == []


def test_every_neighbour_of_the_table_is_one() -> None:
    """An arrow nobody uses any more is taken out of the table."""
    assert {(room_of(a), room_of(b)) for a, b, _ in OURS} >= NEIGHBOURS
    assert all(layer_of(a) == layer_of(b) for a, b in NEIGHBOURS | OPTIONAL_NEIGHBOURS)


def test_no_cycles_lazy_imports_counted() -> None:
    graph: dict[str, set[str]] = {module: set() for module in FILES}
    for module, target, _ in OURS:
        graph[module].add(target)
    finished: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"a cycle: {' -> '.join([*path[path.index(module) :], module])}"
        if module not in finished:
            for target in sorted(graph.get(module, ())):
                visit(target, (*path, module))
            finished.add(module)

    for module in graph:
        visit(module, ())


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_library_is_imported_only_in_its_rooms(library: str) -> None:
    wrong = [
        f"{FILES[module].name}:{line}"
        for module, target, line in EDGES
        if target.split(".")[0] == library and not inside(module, ONLY_IN[library])
    ]
    assert wrong == [], f"{library} belongs in {', '.join(ONLY_IN[library]) or 'no room'}"


def test_numpy_stays_in_the_engine() -> None:
    wrong = [
        module for module, target, _ in EDGES if target.split(".")[0] == "numpy" and not inside(module, NUMPY_ROOMS)
    ]
    assert wrong == []


def test_the_lowest_rooms_know_the_standard_library_only() -> None:
    for module, target, line in EDGES:
        if module in ("specui.errors", "specui.config", "specui.line", "specui.engine.text", "specui.engine.stats"):
            top = target.split(".")[0]
            assert top == "specui" or top in sys.stdlib_module_names, f"{module}:{line} imports {target}"


def test_nobody_imports_a_neighbours_insides() -> None:
    wrong = []
    for module, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("specui"):
                wrong += [f"{module}:{node.lineno}: {a.name}" for a in node.names if a.name.startswith("_")]
    assert wrong == []


def test_packages_import_nothing() -> None:
    """`import specui` is free: no model library, no page, no network."""
    for module in ("specui", "specui.engine", "specui.ui"):
        assert [target for target, _ in imports_of(FILES[module]) if target != "__future__"] == []


def test_files_fit_in_the_head() -> None:
    long = {module: len(path.read_text().splitlines()) for module, path in FILES.items()}
    assert {module: lines for module, lines in long.items() if lines > 420} == {}
