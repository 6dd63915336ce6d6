"""Suites of prompts: what a benchmark asks for, by kind of work, read from YAML when it is needed.

Half of the prompts of a kind are marked `tune`, half `held-out`: settings are tuned on the first and reported on the
second. Knows nothing about models. A mistake in a suite raises CatalogError with file, line, key and what to write.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from specui.catalog import Entry, expanded, read_list
from specui.errors import CatalogError, SettingError
from specui.generation import Message, Role

Split = Literal["tune", "held-out"]
SPLITS: tuple[Split, ...] = get_args(Split)
ROLES: tuple[Role, ...] = get_args(Role)

BUILTIN = Path(__file__).parent / "suites"
"""A folder for each builtin suite, with a file for each kind of work."""

LIST_KEY = "prompts"
KEYS = ("name", "kind", "split", "max_tokens", "messages")
ALL = "all"
"""Stands for every kind in tables, and for both splits; no kind may be called so."""


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One prompt: a chat that ends with a user's turn, and the longest answer to it."""

    name: str
    kind: str
    split: Split
    messages: tuple[Message, ...]
    max_tokens: int

    @property
    def key(self) -> str:
        """What names the prompt in records: `kind/name`."""
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which prompts of a suite are run: all kinds where `kinds` is empty, at most `limit` prompts of each."""

    kinds: tuple[str, ...] = ()
    split: Split | Literal["all"] = "held-out"
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.split not in (*SPLITS, ALL):
            raise SettingError("--split", self.split, f"one of {', '.join(SPLITS)}, {ALL}")
        if self.limit is not None and self.limit < 1:
            raise SettingError("--limit", self.limit, "a whole number above 0")


@dataclass(frozen=True, slots=True)
class Suite:
    """Prompts in the order of their file."""

    name: str
    prompts: tuple[BenchPrompt, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of work, in order."""
        return tuple(dict.fromkeys(prompt.kind for prompt in self.prompts))

    @property
    def digest(self) -> str:
        """What tells this suite from another: a hash of every prompt's content."""
        text = json.dumps([asdict(prompt) for prompt in self.prompts], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def select(self, selection: Selection) -> tuple[BenchPrompt, ...]:
        """Return the chosen prompts. Raises SettingError for an unknown kind, or where nothing is left."""
        for kind in selection.kinds:
            if kind not in self.kinds:
                raise SettingError("--kinds", kind, f"kinds of {self.name}: {', '.join(self.kinds)}")
        wanted = [each for each in self.prompts if not selection.kinds or each.kind in selection.kinds]
        wanted = [each for each in wanted if selection.split in (ALL, each.split)]
        if not wanted:
            raise SettingError("--split", selection.split, f"a split that {self.name} has prompts for")
        chosen = [each for kind in self.kinds for each in _first(wanted, kind, selection.limit)]
        return tuple(each for each in wanted if each in chosen)


def _first(prompts: Sequence[BenchPrompt], kind: str, limit: int | None) -> list[BenchPrompt]:
    return [prompt for prompt in prompts if prompt.kind == kind][:limit]


def builtin_names() -> tuple[str, ...]:
    """Return the names of the suites that come with SpecUI."""
    return tuple(sorted(folder.name for folder in BUILTIN.iterdir() if folder.is_dir()))


def load_suite(name: str) -> Suite:
    """Return a builtin suite by name, or the suite in a file. Raises SettingError, CatalogError."""
    if name in builtin_names():
        return _builtin(name)
    path = expanded(Path(name))
    if not path.is_file():
        expected = f"a builtin suite ({', '.join(builtin_names())}) or the path of a YAML file"
        raise SettingError("--suite", name, expected)
    return Suite(path.stem, _unique(path, _read(path)))


@cache
def _builtin(name: str) -> Suite:
    paths = sorted((BUILTIN / name).glob("*.yaml"))
    return Suite(name, tuple(prompt for path in paths for prompt in _unique(path, _read(path))))


def _unique(path: Path, prompts: list[tuple[int, BenchPrompt]]) -> tuple[BenchPrompt, ...]:
    seen: set[str] = set()
    for line, prompt in prompts:
        if prompt.key in seen:
            raise CatalogError(path, line, "name", f"{prompt.key} is there twice; give one of the two another name")
        seen.add(prompt.key)
    return tuple(prompt for _, prompt in prompts)


def _read(path: Path) -> list[tuple[int, BenchPrompt]]:
    """Return the prompts of a file with the line of each one's name."""
    try:
        if not path.read_text(encoding="utf-8-sig").strip():
            raise CatalogError(path, None, LIST_KEY, f"the file is empty; write {LIST_KEY}: and under it a list")
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogError(path, None, "file", f"cannot be read as UTF-8 text ({error}); check the file") from None
    entries = read_list(path, LIST_KEY)
    if not entries:
        raise CatalogError(path, None, LIST_KEY, "the list is empty; begin each prompt with '- name:'")
    return [(entry.line_of("name"), _prompt(entry)) for entry in entries]


def _prompt(entry: Entry) -> BenchPrompt:
    entry.only(KEYS)
    kind, split = entry.name("kind"), entry.name("split")
    if kind == ALL or "," in kind:
        raise entry.wrong("kind", f"{kind!r} cannot be a kind; write one word, such as kind: edit")
    if split not in SPLITS:
        raise entry.wrong("split", f"{split!r} cannot be used; write split: {' or '.join(SPLITS)}")
    max_tokens = entry.positive("max_tokens")
    if max_tokens is None:
        raise entry.wrong("max_tokens", "is missing; write max_tokens: 256")
    return BenchPrompt(entry.name("name"), kind, split, _messages(entry), max_tokens)


def _messages(entry: Entry) -> tuple[Message, ...]:
    node: Any = entry.node("messages")
    if node is None or node.id != "sequence" or not node.value:
        raise entry.wrong("messages", "must be a list; begin each message with '- role: user' and 'content:'")
    messages = tuple(_message(entry, item) for item in node.value)
    if messages[-1].role != "user":
        raise entry.wrong("messages", "must end with a message whose role is user; it is what gets answered")
    return messages


def _message(entry: Entry, node: Any) -> Message:
    if node.id != "mapping":
        raise entry.wrong("messages", "each message must be a mapping; write '- role: user' and under it 'content:'")
    message = Entry(entry.path, node)
    message.only(("role", "content"))
    role = message.name("role")
    if role not in ROLES:
        raise message.wrong("role", f"{role!r} is none; write role: {', '.join(ROLES[:-1])} or {ROLES[-1]}")
    return Message(role, message.name("content"))
