"""Target/draft pairs as values, and the catalogue (models.yaml) they are read from.

Knows YAML and the settings' names: no network, no model file is opened here. What is wrong in a catalogue is said with
its line, its key and the way to write it (`CatalogError`).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from specui.catalog.yaml_lines import Entry, read_list
from specui.config import DraftingSettings, SamplingSettings, home
from specui.errors import CatalogError, SettingError, UnknownPairError

SHIPPED = Path(__file__).resolve().parents[2] / "models.yaml"

OnProgress = Callable[[str, int, int], None]
"""Called with (stage, done_bytes, total_bytes) while files are fetched or made; stage is a line for people."""

Cancelled = Callable[[], bool]
"""Asked now and then during long work; True ends it."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a Hub repository. `revision` None: its default branch.

    `file` may be a pattern that fits one model (`*Q4_K_M.gguf`). Any part of a model in several files (shards) means
    all of them.
    """

    repo: str
    file: str
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file on this machine."""

    path: Path


@dataclass(frozen=True, slots=True)
class BundledFile:
    """The weights that come with SpecUI: as F32 in the role of the target, as Q4_1 in the role of the draft."""


Source = HubFile | LocalFile | BundledFile


@dataclass(frozen=True, slots=True)
class Pair:
    """A target, perhaps with a draft, as the catalogue describes it; nothing says yet whether the files are here.

    `sampling` and `drafting` hold the pair's own defaults, by the names of the fields of SamplingSettings and
    DraftingSettings: only those that the catalogue sets. What a person sets goes before them.
    """

    name: str
    title: str
    target: Source
    draft: Source | None = None
    ctx_size: int | None = None
    chat_template: str | None = None
    licence: str = ""
    notes: str = ""
    tags: tuple[str, ...] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    drafting: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PairFiles:
    """A pair whose files are on disk, ready to load. `chat_template` overrides the one in the target's file.

    A model in several files is named by its first; llama.cpp finds the others beside it.
    """

    name: str
    title: str
    target: Path
    draft: Path | None = None
    chat_template: str | None = None
    ctx_size: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    drafting: Mapping[str, Any] = field(default_factory=dict)


def user_file() -> Path:
    """The user's own catalogue: the file that SPECUI_MODELS names, else models.yaml in SpecUI's own folder."""
    chosen = os.environ.get("SPECUI_MODELS")
    return expanded(Path(chosen)) if chosen else home() / "models.yaml"


def expanded(path: Path) -> Path:
    """Return the path with a leading ~ resolved; where nobody has that name, the path as it is."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


@dataclass(frozen=True, slots=True)
class Catalog:
    """The known pairs by name, in the order of the file."""

    pairs: Mapping[str, Pair]

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.pairs.values())

    @classmethod
    def load(cls, *paths: Path) -> Catalog:
        """Read catalogue files, `default` without any; a pair of a later file replaces the earlier one of that name."""
        if not paths:
            return cls.default()
        return cls({pair.name: pair for path in paths for pair in _read(path)})

    @classmethod
    def default(cls) -> Catalog:
        """The shipped catalogue, and over it the user's own file where there is one."""
        own = user_file()
        return cls.load(SHIPPED, *([own] if os.environ.get("SPECUI_MODELS") or _may_be_there(own) else []))

    def pair(self, name: str) -> Pair:
        """Return the pair called `name`. Raises UnknownPairError, which lists near names first."""
        if name in self.pairs:
            return self.pairs[name]
        near = difflib.get_close_matches(name, self.pairs, n=3)
        raise UnknownPairError(name, [*near, *(known for known in self.pairs if known not in near)])


def _may_be_there(path: Path) -> bool:
    """Whether the file is there, or cannot be looked for; reading it then says why."""
    try:
        return path.exists()
    except OSError:
        return True


def _read(path: Path) -> Iterator[Pair]:
    first_lines: dict[str, int] = {}
    for entry in read_list(path, "pairs"):
        pair = _pair(entry)
        if pair.name in first_lines:
            fix = f"{pair.name!r} is the name of the pair on line {first_lines[pair.name]} too; give each its own name"
            raise CatalogError(path, entry.line_of("name"), "name", fix)
        first_lines[pair.name] = entry.line
        yield pair


PAIR_KEYS = (
    "name",
    "title",
    "target",
    "draft",
    "ctx_size",
    "chat_template",
    "sampling",
    "drafting",
    "licence",
    "notes",
    "tags",
)


def _pair(entry: Entry) -> Pair:
    entry.only(PAIR_KEYS)
    name = entry.name("name")
    target = _source(entry, "target")
    if target is None:
        raise entry.wrong("target", "a pair needs a target; write repo: and file:, or path:, or bundled")
    return Pair(
        name=name,
        title=entry.text("title") or name,
        target=target,
        draft=_source(entry, "draft"),
        ctx_size=entry.positive("ctx_size"),
        chat_template=entry.text("chat_template") or None,
        licence=entry.text("licence"),
        notes=entry.text("notes"),
        tags=entry.texts("tags"),
        sampling=_settings(entry, "sampling", SamplingSettings, ("logit_bias",)),
        drafting=_settings(entry, "drafting", DraftingSettings, ("speculation",)),
    )


def _settings(entry: Entry, key: str, kind: type[Any], barred: tuple[str, ...]) -> Mapping[str, Any]:
    """Read defaults for the settings of `kind`; the mode is the user's to choose, not the pair's."""
    if not entry.has(key):
        return {}
    known = tuple(each.name for each in fields(kind) if each.name not in barred)
    inner = entry.mapping(key, f"a mapping with any of {', '.join(known)}")
    inner.only(known)
    values = {name: inner.scalar(name) for name in known if inner.has(name)}
    for name, value in values.items():
        if isinstance(value, bool) != isinstance(getattr(kind(), name), bool):
            expected = "a number" if isinstance(value, bool) else "true or false"
            raise inner.wrong(name, f"{inner.plain(name)!r} cannot stand here; write {expected}")
    try:
        kind(**values)
    except SettingError as error:
        raise inner.wrong(error.key, str(error).removeprefix(f"{error.key}: ")) from None
    return values


def _source(entry: Entry, key: str) -> Source | None:
    """Read a source; absent, null, off, no, false and none are no source at all, quoted or not."""
    if entry.is_off(key):
        return None
    if entry.plain(key) == "bundled":
        return BundledFile()
    inner = entry.mapping(key, "a mapping with repo: and file:, or with path:; or the word bundled, or off")
    inner.only(("repo", "file", "revision", "path"))
    if inner.has("path"):
        if inner.has("repo") or inner.has("file"):
            raise inner.wrong("path", "a source is either path: or repo: and file:; keep one of the two")
        if "\0" in inner.name("path"):
            raise inner.wrong("path", "a NUL character stands here, which no path has; write the path without it")
        path = expanded(Path(inner.name("path")))
        return LocalFile(path if path.is_absolute() else entry.path.parent / path)
    return HubFile(_repo(inner), _file(inner), inner.name("revision") if inner.has("revision") else None)


def _repo(entry: Entry) -> str:
    repo = entry.name("repo")
    if repo.count("/") != 1 or not all(repo.split("/")) or any(c.isspace() for c in repo):
        raise entry.wrong("repo", f"{repo!r} is no repository; write owner/name as in the address of its page")
    return repo


def _file(entry: Entry) -> str:
    file = entry.name("file")
    if not file.endswith(".gguf"):
        raise entry.wrong("file", f"{file!r} is no GGUF file; write a name that ends in .gguf")
    return file
