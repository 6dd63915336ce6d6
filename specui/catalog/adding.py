"""Adds a pair to a user's own catalogue without touching a line that is there.

The new entry is appended as text, in the indentation of the list, so that comments and order stay. The file is read as
a catalogue before it takes the old one's place.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specui.catalog.pairs import BundledFile, Catalog, HubFile, Pair, Source
from specui.catalog.yaml_lines import list_column
from specui.errors import CatalogError, StorageError


def add_pair(path: Path, pair: Pair) -> None:
    """Append `pair` to the catalogue at `path`, which is made where it is not there.

    Raises CatalogError where the file is wrong, or has a pair of that name already; StorageError where it cannot be
    written. The file is left as it was then.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    known = Catalog.load(path).pairs if _says_anything(text) else {}
    if pair.name in known:
        raise CatalogError(path, None, "name", f"there is a pair {pair.name!r} already; choose another name")
    if text and not text.endswith("\n"):
        text += "\n"
    if not _says_anything(text):
        text += "pairs:\n"
    column = list_column(path, "pairs") if known else None
    indent = " " * (2 if column is None else column)
    _replace(path, text + "".join(f"{line}\n" for line in _lines(pair, indent)))


def _says_anything(text: str) -> bool:
    """Whether there is more than blanks and comments."""
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())


def _replace(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".models-") as folder:
            new = Path(folder) / path.name
            new.write_text(text, encoding="utf-8")
            try:
                Catalog.load(new)
            except CatalogError as error:
                fix = (
                    f"a pair cannot be added at its end ({error.key}: {str(error).rpartition(': ')[2]}); add it by hand"
                )
                raise CatalogError(path, error.line, error.key, fix) from None
            if path.exists():
                new.chmod(path.stat().st_mode & 0o777)
            new.replace(path.resolve())
    except OSError as error:
        raise StorageError(path, error.strerror or str(error)) from error


def _lines(pair: Pair, indent: str) -> Iterator[str]:
    yield f"{indent}- name: {_quoted(pair.name)}"
    inner = f"{indent}  "
    if pair.title != pair.name:
        yield f"{inner}title: {_quoted(pair.title)}"
    yield f"{inner}target: {_source(pair.target)}"
    yield f"{inner}draft: {_source(pair.draft) if pair.draft is not None else 'off'}"
    if pair.ctx_size is not None:
        yield f"{inner}ctx_size: {pair.ctx_size}"
    for key in ("chat_template", "licence", "notes"):
        if getattr(pair, key):
            yield f"{inner}{key}: {_quoted(getattr(pair, key))}"
    for key in ("sampling", "drafting"):
        if getattr(pair, key):
            yield f"{inner}{key}: {_flow(getattr(pair, key))}"
    if pair.tags:
        yield f"{inner}tags: [{', '.join(map(_quoted, pair.tags))}]"


def _source(source: Source) -> str:
    if isinstance(source, BundledFile):
        return "bundled"
    if isinstance(source, HubFile):
        revision = {"revision": source.revision} if source.revision else {}
        return _flow({"repo": source.repo, "file": source.file, **revision})
    return _flow({"path": str(source.path.absolute())})


def _flow(values: Any) -> str:
    return "{" + ", ".join(f"{key}: {_quoted(value)}" for key, value in values.items()) + "}"


def _quoted(value: object) -> str:
    """Return a value as YAML takes it in double quotes, which is as JSON writes it."""
    return json.dumps(value, ensure_ascii=True)
