"""YAML read with the line of every value, and mistakes told as a person wants them: line, key, how to write it.

Knows PyYAML's node tree and nothing about pairs. Values are taken from the nodes, not from YAML's guesses, so that
`no` is seen where a name belongs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from specui.errors import CatalogError

_KINDS = {"bool": "a yes/no word", "int": "a number", "float": "a number", "timestamp": "a date"}
_OFF_WORDS = {"off", "no", "false", "none", "null", "~", ""}
_KEY_OF_LINE = re.compile(r"^[\s-]*(?P<key>[A-Za-z_][\w-]*)\s*:(?P<value>.*)")
_IN_BRACKETS = re.compile(r"(?P<key>[A-Za-z_][\w-]*)\s*:\s+(?P<value>[*&!%@`|>][^,}\]]*)")
"""A value inside {…} that wants quotes; the key of the line is not the one at fault there."""


def list_column(path: Path, key: str) -> int | None:
    """Return the column at which the items of the list under `key` begin, or None where there is no item yet.

    Raises CatalogError, also for a list in brackets, which nothing can be appended to.
    """
    root = _compose(path, _read_text(path))
    if not isinstance(root, MappingNode):
        return None
    top = Entry(path, root)
    node = top.node(key)
    if not isinstance(node, SequenceNode):
        return None
    if node.flow_style:
        raise top.wrong(key, "the list is in brackets and cannot be added to; write each pair below, from '- name:' on")
    return int(node.start_mark.column)


def read_list(path: Path, key: str) -> list[Entry]:
    """Return the mappings in the list under the top-level `key`. Raises CatalogError, also for an empty file."""
    text = _read_text(path)
    root = _compose(path, text)
    if root is None:
        raise CatalogError(path, None, key, f"the file is empty; write {key}: and under it a list of pairs")
    if not isinstance(root, MappingNode):
        raise CatalogError(path, _line(root), key, f"the file must begin with {key}: and a list under it")
    top = Entry(path, root)
    top.only((key,))
    items = top.node(key)
    if top.has(key) and top.plain(key) == "":
        return []
    if not isinstance(items, SequenceNode):
        raise top.wrong(key, "must be a list; begin each pair with '- name:'")
    return [_entry(path, item, key) for item in items.value]


@dataclass(slots=True)
class Entry:
    """A mapping of the file. Reading a value of the wrong kind raises CatalogError with its line."""

    path: Path
    mapping_node: MappingNode
    _values: dict[str, tuple[int, Node]] = field(init=False)

    def __post_init__(self) -> None:
        self._values = {}
        for key_node, value in self.mapping_node.value:
            key = str(key_node.value)
            if key in self._values:
                fix = f"written twice (first on line {self._values[key][0]}); keep one of the two"
                raise CatalogError(self.path, _line(key_node), key, fix)
            self._values[key] = (_line(key_node), value)

    @property
    def line(self) -> int:
        """The line on which the mapping begins."""
        return _line(self.mapping_node)

    def has(self, key: str) -> bool:
        """Whether the key is written at all."""
        return key in self._values

    def line_of(self, key: str) -> int:
        """The line of the key, or of the mapping where the key is missing."""
        return self._values[key][0] if key in self._values else self.line

    def node(self, key: str) -> Node | None:
        """The value as YAML sees it."""
        return self._values[key][1] if key in self._values else None

    def wrong(self, key: str, fix: str) -> CatalogError:
        """The error for this key, to be raised."""
        return CatalogError(self.path, self.line_of(key), key, fix)

    def only(self, known: Sequence[str]) -> None:
        """Refuse keys that are not in `known`."""
        for key in self._values:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
                raise self.wrong(key, f"unknown key; {hint}")

    def plain(self, key: str) -> str | None:
        """The characters of a scalar as they are written, whatever YAML takes them for."""
        node = self.node(key)
        return node.value if isinstance(node, ScalarNode) else None

    def is_off(self, key: str) -> bool:
        """Whether the value is missing or one of the words for nothing."""
        written = self.plain(key)
        return not self.has(key) or (written is not None and written.strip().lower() in _OFF_WORDS)

    def name(self, key: str) -> str:
        """A text that must be there and must not be blank."""
        if not self.has(key):
            raise self.wrong(key, f"is missing; write {key}: and a name")
        text = self.text(key)
        if not text.strip():
            raise self.wrong(key, f"is empty; write {key}: and a name")
        return text

    def text(self, key: str) -> str:
        """A text, or "" where the key is not written. A number, date or yes/no word without quotes is refused."""
        if not self.has(key):
            return ""
        return self._as_text(key, self._values[key][1])

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, or () where the key is not written."""
        node = self.node(key)
        if node is None:
            return ()
        if not isinstance(node, SequenceNode):
            raise self.wrong(key, f"must be a list; write {key}: [one, two]")
        return tuple(self._as_text(key, item) for item in node.value)

    def positive(self, key: str) -> int | None:
        """A whole number above zero, or None where the key is not written."""
        node = self.node(key)
        if node is None:
            return None
        digits = node.value.replace("_", "") if isinstance(node, ScalarNode) else ""
        if not digits.isdecimal() or int(digits) == 0:
            raise self.wrong(key, f"must be a whole number above 0; write {key}: 4096")
        return int(digits)

    def scalar(self, key: str) -> int | float | bool:
        """A number, true or false. A text is refused."""
        written = (self.plain(key) or "").strip()
        if written.lower() in ("true", "false"):
            return written.lower() == "true"
        for kind in (int, float):
            try:
                return kind(written)
            except ValueError:
                continue
        raise self.wrong(key, f"{written!r} cannot stand here; write {key}: and a number, true or false")

    def mapping(self, key: str, expected: str) -> Entry:
        """A mapping; `expected` says in words what belongs here."""
        node = self.node(key)
        if not isinstance(node, MappingNode):
            written = repr(node.value) if isinstance(node, ScalarNode) else "a list"
            raise self.wrong(key, f"{written} cannot stand here; write {expected}")
        return Entry(self.path, node)

    def _as_text(self, key: str, node: Node) -> str:
        if not isinstance(node, ScalarNode):
            raise self.wrong(key, f'must be a text; write {key}: "..."')
        kind = node.tag.rpartition(":")[2]
        if kind == "null":
            raise self.wrong(key, f'is empty; write {key}: "...", or leave the key out')
        if kind != "str":
            fix = f'{node.value} without quotes is {_KINDS.get(kind, kind)} in YAML; write {key}: "{node.value}"'
            raise CatalogError(self.path, _line(node), key, fix)
        return str(node.value)


def _entry(path: Path, node: Node, key: str) -> Entry:
    if not isinstance(node, MappingNode):
        raise CatalogError(path, _line(node), key, "each item must be a mapping; begin it with '- name:'")
    return Entry(path, node)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
        raise CatalogError(
            path, None, "file", f"cannot be read ({reason}); check SPECUI_MODELS and SPECUI_HOME"
        ) from None
    except UnicodeDecodeError as error:
        raise CatalogError(path, None, "file", f"is not UTF-8 text ({error.reason}); save it as UTF-8") from None


def _compose(path: Path, text: str) -> Node | None:
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(path, text, error) from None
    except yaml.YAMLError as error:
        raise CatalogError(path, None, "file", f"is no YAML text: {str(error).splitlines()[0]}") from None


def _syntax_error(path: Path, text: str, error: yaml.MarkedYAMLError) -> CatalogError:
    lines = text.splitlines() or [""]
    marks = [mark.line for mark in (error.problem_mark, error.context_mark) if mark is not None]
    number = next((line for line in marks if line < len(lines)), len(lines) - 1)
    written = lines[number]
    match = (_IN_BRACKETS.search(written) if "{" in written else None) or _KEY_OF_LINE.match(written)
    return CatalogError(path, number + 1, match["key"] if match else "syntax", _syntax_fix(written, match, error))


def _syntax_fix(written: str, match: re.Match[str] | None, error: yaml.MarkedYAMLError) -> str:
    indent = written[: len(written) - len(written.lstrip())]
    value = match["value"] if match else ""
    if "\t" in indent or value.startswith("\t") or "'\\t'" in str(error.problem):
        return "a tab stands here, which YAML forbids; use spaces"
    value = value.strip()
    if match and value[:1] in tuple("*&!%@`|>["):
        return f'a value that begins with {value[0]} means something else in YAML; write {match["key"]}: "{value}"'
    problem = ": ".join(part for part in (error.context, error.problem) if part)
    return f"{problem}; check indentation, brackets and colons, and put a text with special characters in quotes"


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1
