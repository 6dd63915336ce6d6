"""Checks a grammar in llama.cpp's notation (GBNF) before llama.cpp sees it.

llama.cpp prints the reason for a broken grammar to stderr, and some that it reads without complaint make it allocate
without end (`"a"{3,1}`, a rule that begins with itself behind an empty one). This finds both without a model, and says
at which line. Knows text only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from specui.errors import SettingError

MAX_CHARACTERS = 200_000
MAX_NAMED_RULES = 2_000
MAX_RULES = 50_000
"""Rules in all: llama.cpp makes one of every group and of every optional repetition."""

MAX_ELEMENTS = 1_000_000
"""Elements after repetitions are written out, which is what llama.cpp keeps in memory."""

MAX_DEPTH = 120
MAX_REPETITIONS = 2_000
"""llama.cpp's own bound on a repetition count, and on that count times the rules inside what is repeated."""

_BLANKS = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_BLANKS_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NAME = re.compile(r"[A-Za-z0-9-]+")
_DIGITS = re.compile(r"[0-9]{1,9}(?![0-9])")
_CHARACTER = re.compile(r'\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[tnr\\"\[\]-])|[^\\]', re.DOTALL)
_WIDE = re.compile(r"[^\x00-\x7f]|\\[uU]|\\x[89A-Fa-f]")
_TOKEN = re.compile(r"!?<(?:\[[0-9]{1,9}\]|[^\[>\r\n][^>\r\n]*)>")


@dataclass(frozen=True, slots=True)
class _Item:
    """One element of a sequence. Empty `alternatives` and no `rule`: it takes characters or a token.

    `optional` items may be left out, whatever they are.
    """

    rule: str | None = None
    alternatives: tuple[tuple[_Item, ...], ...] = ()
    optional: bool = False


@dataclass(slots=True)
class _Repeatable:
    """What a repetition sign would apply to: the item, and how many elements and rules llama.cpp makes of it."""

    item: _Item | None
    num_elements: int = 1
    num_rules: int = 1


@dataclass(slots=True)
class _Rules:
    """What was read: each rule's alternatives, the names in use, what is repeated without end and where."""

    bodies: dict[str, tuple[tuple[_Item, ...], ...]] = field(default_factory=dict)
    references: dict[str, int] = field(default_factory=dict)
    repeated: dict[int, _Item] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    excludes_wide: bool = False
    num_made: int = 0
    num_elements: int = 0

    @property
    def num_symbols(self) -> int:
        return len(self.names) + self.num_made


def check_gbnf(text: str, key: str = "grammar") -> None:
    """Raise SettingError, with `key` in front and the line, where llama.cpp could not work with `text`."""
    if not isinstance(text, str) or not text.strip():
        raise SettingError(key, text, 'a grammar in GBNF, such as root ::= "yes" | "no"')
    rules = _Reader(text, key).read()
    if "root" not in rules.bodies:
        raise SettingError(key, _shown(text), "a rule named root")
    for name, place in rules.references.items():
        if name not in rules.bodies:
            raise SettingError(key, name, f"a rule of that name, which line {_line(text, place)} uses")
    for place, item in rules.repeated.items():
        if item.optional or () in (item.alternatives or rules.bodies.get(item.rule or "", ())):
            shown = text[max(0, place - 20) : place + 1].rsplit("\n", maxsplit=1)[-1]
            raise SettingError(key, shown, f"a repetition of what is never empty at line {_line(text, place)}")
    looped = _begins_with_itself(rules)
    if looped is not None:
        raise SettingError(key, looped, "a rule that does not begin with itself (write lists as item+ or item tail)")


@dataclass(frozen=True, slots=True)
class Traits:
    """What matters about a grammar to whoever asks it for tokens.

    `tokens`: those it asks for by name or number, as it writes them (`<think>`, `<[7]>`). `excludes_wide`: it has a
    class like [^é], for which llama.cpp rejects a first part of a character that it accepts in whole.
    """

    tokens: frozenset[str]
    excludes_wide: bool


def traits(text: str) -> Traits:
    """Return the traits of a checked grammar."""
    rules = _Reader(text, "grammar").read()
    return Traits(frozenset(rules.tokens), rules.excludes_wide)


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _shown(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


class _Reader:
    """Reads the notation as llama.cpp does, one character behind the other."""

    def __init__(self, text: str, key: str) -> None:
        self._text = text
        self._key = key
        self._place = 0
        self._depth = 0
        self._rules = _Rules()

    def read(self) -> _Rules:
        if len(self._text) > MAX_CHARACTERS:
            raise SettingError(self._key, _shown(self._text), f"at most {MAX_CHARACTERS:,} characters")
        self._refuse(re.search("[\0\ud800-\udfff]", self._text), "text without NUL and surrogates")
        self._skip(_BLANKS_AND_LINES)
        while self._place < len(self._text):
            self._rule()
            if len(self._rules.names) > MAX_NAMED_RULES or self._rules.num_symbols > MAX_RULES:
                raise SettingError(self._key, _shown(self._text), f"a smaller grammar (at most {MAX_RULES:,} rules)")
        return self._rules

    def _refuse(self, found: re.Match[str] | None, expected: str) -> None:
        if found is not None:
            self._place = found.start()
            raise self._error(expected)

    def _error(self, expected: str) -> SettingError:
        rest = self._text[self._place : self._place + 30].split("\n")[0]
        column = self._place - (self._text.rfind("\n", 0, self._place) + 1) + 1
        return SettingError(self._key, rest, f"{expected} at line {_line(self._text, self._place)}, column {column}")

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._place)
        self._place = found.end() if found else self._place

    def _take(self, pattern: re.Pattern[str], expected: str) -> str:
        found = pattern.match(self._text, self._place)
        if found is None:
            raise self._error(expected)
        self._place = found.end()
        return found.group()

    def _at(self, mark: str) -> bool:
        return self._text.startswith(mark, self._place)

    def _expect(self, mark: str) -> None:
        if not self._at(mark):
            raise self._error(mark)
        self._place += len(mark)

    def _rule(self) -> None:
        name = self._take(_NAME, "a rule's name (letters, digits and -)")
        self._rules.names.add(name)
        self._skip(_BLANKS)
        self._expect("::=")
        self._skip(_BLANKS_AND_LINES)
        self._rules.bodies[name] = self._alternatives()
        if self._place < len(self._text) and self._text[self._place] not in "\r\n":
            raise self._error("the rule's end or another part of it")
        self._skip(_BLANKS_AND_LINES)

    def _alternatives(self) -> tuple[tuple[_Item, ...], ...]:
        alternatives = [self._sequence()]
        while self._at("|"):
            self._place += 1
            self._skip(_BLANKS_AND_LINES)
            alternatives.append(self._sequence())
        return tuple(alternatives)

    def _sequence(self) -> tuple[_Item, ...]:
        items: list[_Item] = []
        last = _Repeatable(None)
        while self._place < len(self._text):
            if self._text[self._place] in "*+?{":
                last = self._repetition(last)
                items[-1:] = [] if last.item is None else [last.item]
                continue
            found = self._element()
            if found is None:
                break
            last = found
            if last.item is not None:
                items.append(last.item)
            self._skip(_BLANKS_AND_LINES if self._depth else _BLANKS)
        return tuple(items)

    def _element(self) -> _Repeatable | None:
        """Return the next element, or None where the sequence is at its end."""
        mark = self._text[self._place]
        if mark in '"[':
            return self._characters(mark)
        if mark == "(":
            return self._group()
        if mark == ".":
            self._place += 1
            return _Repeatable(_Item())
        if mark in "<!":
            token = self._take(_TOKEN, "a token such as <[7]> or <think>")
            self._rules.tokens.add(token.removeprefix("!"))
            return _Repeatable(_Item())
        if _NAME.match(mark):
            return self._reference()
        return None

    def _reference(self) -> _Repeatable:
        place = self._place
        name = self._take(_NAME, "a name")
        self._rules.references.setdefault(name, place)
        self._rules.names.add(name)
        return _Repeatable(_Item(rule=name))

    def _characters(self, mark: str) -> _Repeatable:
        """Read a literal or a class; an empty one is no item."""
        opened, end = self._place, '"' if mark == '"' else "]"
        self._place += 2 if self._at("[^") else 1
        begin = self._place
        while not self._at(end):
            if self._place >= len(self._text):
                self._place = opened
                raise self._error(f"an end ({end}) of what begins")
            self._take(_CHARACTER, r"an escape of \n \r \t \\ \" \[ \] \- \xHH \uHHHH \UHHHHHHHH")
        self._place += 1
        length = self._place - 1 - begin
        if self._text.startswith("[^", opened) and _WIDE.search(self._text, begin, self._place):
            self._rules.excludes_wide = True
        return _Repeatable(_Item() if length else None, num_elements=length)

    def _group(self) -> _Repeatable:
        before = self._rules.num_symbols
        self._rules.num_made += 1
        self._place += 1
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"at most {MAX_DEPTH} groups within each other")
        self._skip(_BLANKS_AND_LINES)
        alternatives = self._alternatives()
        self._expect(")")
        self._depth -= 1
        num_rules = max(1, self._rules.num_symbols - before)
        return _Repeatable(_Item(alternatives=alternatives), num_rules=num_rules)

    def _repetition(self, last: _Repeatable) -> _Repeatable:
        if last.item is None:
            raise self._error("something to repeat")
        sign = self._text[self._place]
        begin = self._place
        self._place += 1
        low, high = self._bounds() if sign == "{" else {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        total = high or low or 1
        self._rules.num_elements += last.num_elements * total
        if self._rules.num_elements > MAX_ELEMENTS:
            raise self._error("a smaller grammar (repetitions make it too large)")
        if max(low, last.num_rules * total) > MAX_REPETITIONS:
            self._place = begin
            raise self._error(f"fewer repetitions (at most {MAX_REPETITIONS:,}, times the rules inside)")
        if high is None:
            self._rules.repeated[begin] = last.item
        self._rules.num_made += 1 if high is None else high - low
        self._skip(_BLANKS_AND_LINES if self._depth else _BLANKS)
        if high == 0:
            return _Repeatable(None)
        item = _Item(last.item.rule, last.item.alternatives, last.item.optional or low == 0)
        return _Repeatable(item, last.num_elements * total, last.num_rules * total)

    def _bounds(self) -> tuple[int, int | None]:
        blanks = _BLANKS_AND_LINES if self._depth else _BLANKS
        self._skip(blanks)
        low = int(self._take(_DIGITS, "a count"))
        self._skip(blanks)
        high: int | None = low
        if self._at(","):
            self._place += 1
            self._skip(blanks)
            high = None if self._at("}") else int(self._take(_DIGITS, "a count or }"))
            self._skip(blanks)
        if high is not None and high < low:
            raise self._error(f"an upper bound of at least {low}")
        self._expect("}")
        return low, high if high is None or high <= MAX_REPETITIONS else None


def _begins_with_itself(rules: _Rules) -> str | None:
    """Return a rule that can come back to itself before any character is taken, or None."""
    nullable = _nullable_rules(rules)
    begins = {name: _first_rules(body, nullable) for name, body in rules.bodies.items()}
    finished: set[str] = set()
    for start, firsts in begins.items():
        path, todo = {start}, [(start, iter(firsts))]
        while todo:
            name, rest = todo[-1]
            step = next((each for each in rest if each not in finished), None)
            if step is None:
                finished.add(name)
                path.discard(name)
                todo.pop()
            elif step in path:
                return step
            else:
                path.add(step)
                todo.append((step, iter(begins[step])))
    return None


def _nullable_rules(rules: _Rules) -> set[str]:
    """Return the rules that can be empty."""
    nullable: set[str] = set()
    grown = True
    while grown:
        fresh = {
            name
            for name, body in rules.bodies.items()
            if name not in nullable and any(_can_be_empty(sequence, nullable) for sequence in body)
        }
        nullable |= fresh
        grown = bool(fresh)
    return nullable


def _can_be_empty(sequence: tuple[_Item, ...], nullable: set[str]) -> bool:
    return all(_item_can_be_empty(item, nullable) for item in sequence)


def _item_can_be_empty(item: _Item, nullable: set[str]) -> bool:
    if item.optional or item.rule in nullable:
        return True
    return any(_can_be_empty(sequence, nullable) for sequence in item.alternatives)


def _first_rules(body: tuple[tuple[_Item, ...], ...], nullable: set[str]) -> set[str]:
    """Return the rules a body can begin with."""
    found: set[str] = set()
    for sequence in body:
        for item in sequence:
            found |= {item.rule} if item.rule else _first_rules(item.alternatives, nullable)
            if not _item_can_be_empty(item, nullable):
                break
    return found
