"""From a JSON Schema to a grammar (GBNF) whose every text is JSON that fits the schema.

A schema may allow more than its grammar writes: members stand in the schema's order, and an object with `properties`
gets no others. A keyword that cannot be held raises SettingError; none is dropped. Knows no model.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from specui.engine.gbnf import MAX_REPETITIONS, check_gbnf
from specui.errors import SettingError

Schema = Mapping[str, Any]

# Control characters, and escapes of half a surrogate pair, are not JSON that every parser takes.
_FIXED_RULES = {
    "ws": r'" " | "\n" [ \t]{0,20} | ""',
    "hex": "[0-9a-fA-F]",
    "char": r'[^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" ([0-9a-ce-fA-CE-F] hex{3} | [dD] [0-7] hex{2}))',
    "string": r'"\"" char* "\""',
    "whole": '"0" | [1-9] [0-9]{0,15}',
    "integer": '"-"? whole',
    "number": '"-"? whole ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "value": "object | array | string | number | boolean | null",
    "member": 'string ws ":" ws value',
    "object": '"{" ws (member (ws "," ws member)* ws)? "}"',
    "array": '"[" ws (value (ws "," ws value)* ws)? "]"',
}
_DATE = '[0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | "1" [0-9] | "2" [0-8])'
_TIME = (
    '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,6})? '
    '("Z" | [-+] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9])'
)
_FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f'{_DATE} "T" {_TIME}',
    "uuid": ' "-" '.join(f"[0-9a-fA-F]{{{count}}}" for count in (8, 4, 4, 4, 12)),
}
"""Days end at 28, which every month has."""

_BOUNDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
_LARGEST = 10**16 - 1

_KEYWORDS: dict[str, frozenset[str]] = {
    "object": frozenset(("properties", "required", "additionalProperties")),
    "array": frozenset(("items", "prefixItems", "minItems", "maxItems")),
    "string": frozenset(("minLength", "maxLength", "format")),
    "integer": _BOUNDS,
    "number": frozenset(),
    "boolean": frozenset(),
    "null": frozenset(),
}
_ANNOTATIONS = frozenset(
    ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator")
) | frozenset(("$schema", "$id", "$comment", "$defs", "definitions", "strict"))


def schema_to_gbnf(schema: object, key: str = "json_schema") -> str:
    """Return the grammar of a JSON Schema (parsed JSON). Raises SettingError naming the place and the keyword."""
    try:
        text = _Converter(schema, key).grammar()
    except RecursionError:
        raise SettingError(key, "this schema", "one with less nesting") from None
    check_gbnf(text, key)
    return text


def parse_schema(text: str, key: str = "json_schema") -> object:
    """Return the JSON of a schema's text. Raises SettingError."""
    try:
        schema: object = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise SettingError(key, text[:40], f"JSON ({error})") from None
    return schema


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _literal(value: object) -> str:
    """Return the GBNF literal that spells a JSON value."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text = re.sub("[\ud800-\udfff\x7f-\x9f\u2028\u2029]", lambda found: f"\\u{ord(found.group()):04x}", text)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class _Converter:
    """Turns one schema into rules; `place` is where in the schema a keyword stands, for messages."""

    def __init__(self, schema: object, key: str) -> None:
        self._schema = schema
        self._key = key
        self._rules = dict(_FIXED_RULES)
        self._references: dict[str, str] = {}

    def grammar(self) -> str:
        self._rules["root"] = self._visit(self._schema, "#")
        return "\n".join(f"{name} ::= {body}" for name, body in self._rules.items()) + "\n"

    def _error(self, place: str, value: object, expected: str) -> SettingError:
        shown = value if len(repr(value)) <= 60 else repr(value)[:59] + "…"
        return SettingError(f"{self._key} at {place}", shown, expected)

    def _rule(self, body: str) -> str:
        """Give a body a name."""
        name = f"part-{len(self._rules)}"
        self._rules[name] = body
        return name

    def _visit(self, schema: object, place: str) -> str:
        """Return the name of a rule, or a literal, for what `schema` allows."""
        if schema is True or schema == {}:
            return "value"
        if not isinstance(schema, dict):
            raise self._error(place, schema, "an object with JSON Schema keywords")
        for keyword in ("$ref", "const", "enum", "anyOf", "oneOf", "allOf"):
            if keyword in schema:
                return self._visit_keyword(keyword, schema, place)
        types = self._types(schema, place)
        used = _ANNOTATIONS.union({"type"}, *(_KEYWORDS[each] for each in types))
        if "number" in types:
            used -= _BOUNDS  # those of an integer would not hold for it
        self._refuse_others(schema, used, place)
        parts = [self._visit_type(each, schema, place) for each in types]
        return parts[0] if len(parts) == 1 else self._rule(" | ".join(parts))

    def _refuse_others(self, schema: Schema, known: frozenset[str], place: str) -> None:
        for keyword, value in schema.items():
            if keyword not in known and not (keyword == "uniqueItems" and value is False):
                supported = ", ".join(sorted(known - _ANNOTATIONS))
                raise self._error(place, keyword, f"a keyword that can be held here: {supported}")

    def _types(self, schema: Schema, place: str) -> tuple[str, ...]:
        """Return the types a schema allows: those it names, else the one its keywords speak of, else all."""
        named = schema.get("type")
        if named is None:
            spoken = tuple(kind for kind, keywords in _KEYWORDS.items() if keywords & schema.keys())
            return spoken or ("object", "array", "string", "number", "boolean", "null")
        types = tuple(named) if isinstance(named, list) else (named,)
        for each in types:
            if not isinstance(each, str) or each not in _KEYWORDS:
                raise self._error(f"{place}/type", each, "one of " + ", ".join(_KEYWORDS))
        if not types:
            raise self._error(f"{place}/type", named, "at least one type")
        return types

    def _visit_keyword(self, keyword: str, schema: Schema, place: str) -> str:
        beside = {"type"} if keyword in ("const", "enum") else set()
        self._refuse_others(schema, _ANNOTATIONS | {keyword} | beside, place)
        value, place = schema[keyword], f"{place}/{keyword}"
        if keyword == "$ref":
            return self._visit_reference(value, place)
        if keyword in ("const", "enum"):
            values = [value] if keyword == "const" else value
            return self._visit_values(values, schema, place)
        if not isinstance(value, list) or not value:
            raise self._error(place, value, "a list of schemas")
        if keyword == "allOf" and len(value) > 1:
            raise self._error(place, f"{len(value)} schemas", "one schema (write several as one)")
        parts = [self._visit(each, f"{place}/{number}") for number, each in enumerate(value)]
        return self._rule(" | ".join(parts))

    def _visit_values(self, values: object, schema: Schema, place: str) -> str:
        if not isinstance(values, list) or not values:
            raise self._error(place, values, "a list of values")
        types = self._types(schema, place) if "type" in schema else None
        fitting = [value for value in values if types is None or any(_is_of_type(value, each) for each in types)]
        if not fitting:
            raise self._error(place, values, f"a value of type {schema['type']}")
        try:
            return self._rule(" | ".join(_literal(value) for value in fitting))
        except (TypeError, ValueError):
            raise self._error(place, values, "values that JSON can spell") from None

    def _visit_reference(self, reference: object, place: str) -> str:
        if not isinstance(reference, str) or not re.match(r"#(/|$)", reference):
            raise self._error(place, reference, "a reference into this schema, such as #/$defs/name")
        known = self._references.get(reference)
        if known is None:
            known = self._references[reference] = self._rule("")
            self._rules[known] = self._visit(self._find(reference, place), reference)
        return known

    def _find(self, reference: str, place: str) -> object:
        found = self._schema
        for step in reference.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                raise self._error(place, reference, f"a reference to what is there ({name} is not)")
        return found

    def _visit_type(self, kind: str, schema: Schema, place: str) -> str:
        if not _KEYWORDS[kind] & schema.keys():
            return kind
        if kind == "object":
            return self._visit_object(schema, place)
        if kind == "integer":
            return self._visit_integer(schema, place)
        return self._visit_array(schema, place) if kind == "array" else self._visit_string(schema, place)

    def _visit_object(self, schema: Schema, place: str) -> str:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        others = schema.get("additionalProperties", True)
        if not isinstance(properties, dict):
            raise self._error(f"{place}/properties", properties, "an object")
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise self._error(f"{place}/required", required, "a list of names")
        if not isinstance(others, bool | dict) or (properties and isinstance(others, dict) and others):
            raise self._error(f"{place}/additionalProperties", others, "true or false next to properties")
        missing = [name for name in required if name not in properties]
        if missing and others is False:
            raise self._error(f"{place}/required", missing[0], "names that properties has")
        members = {**properties, **dict.fromkeys(missing, others)}
        if members:
            return self._rule('"{" ws ' + self._members(members, set(required), place) + ' "}"')
        if others is False:
            return self._rule('"{" ws "}"')
        member = self._rule(f'string ws ":" ws {self._visit(others, f"{place}/additionalProperties")}')
        return self._rule(f'"{{" ws ({member} (ws "," ws {member})* ws)? "}}"')

    def _members(self, members: Schema, required: set[str], place: str) -> str:
        """Return a body for the members in their order; those not required may be left out."""
        pairs = [
            (self._rule(f'{_literal(name)} ws ":" ws {self._visit(each, f"{place}/properties/{name}")}'), name)
            for name, each in members.items()
        ]
        # From the last to the first: what may follow a member, and every way in which the object can begin.
        rest, beginnings = "ws", ['""']
        for rule, name in reversed(pairs):
            begin = f"{rule} {rest}"
            if name in required:
                rest, beginnings = f'ws "," ws {rule} {rest}', [begin]
            else:
                rest, beginnings = f'(ws "," ws {rule})? {rest}', [begin, *beginnings]
            if len(pairs) > 1:
                rest = self._rule(rest)
        return "(" + " | ".join(beginnings) + ")"

    def _visit_array(self, schema: Schema, place: str) -> str:
        prefix, items = schema.get("prefixItems", []), schema.get("items", True)
        if isinstance(items, list):  # as prefixItems was written before the draft of 2020
            prefix, items = items, False
        if not isinstance(prefix, list):
            raise self._error(f"{place}/prefixItems", prefix, "a list of schemas")
        low, high = self._bounds(schema, "minItems", "maxItems", place)
        fixed = [self._visit(each, f"{place}/prefixItems/{number}") for number, each in enumerate(prefix)][:high]
        high = len(fixed) if items is False or (prefix and "items" not in schema and low <= len(fixed)) else high
        if high is not None and low > high:
            raise self._error(f"{place}/minItems", low, f"at most {high}")
        item = "" if high == len(fixed) else self._visit(items, f"{place}/items")
        return self._rule(f'"[" ws {self._listed(fixed, item, low, high)} "]"')

    def _listed(self, fixed: list[str], item: str, low: int, high: int | None) -> str:
        """Return a body for `fixed` items and then so many of `item` that there are `low` to `high` in all."""
        if not item:
            return ' ws "," ws '.join(fixed) + " ws"
        low, high = max(0, low - len(fixed)), None if high is None else high - len(fixed)
        another = self._rule(f'ws "," ws {item}')
        if fixed:
            return ' ws "," ws '.join(fixed) + f" {another}{_times(low, high)} ws"
        some = f"{item} {another}{_times(max(0, low - 1), None if high is None else high - 1)} ws"
        return some if low else f"({some})?"

    def _visit_string(self, schema: Schema, place: str) -> str:
        if "format" in schema:
            form = schema["format"]
            self._refuse_others(schema, _ANNOTATIONS | {"type", "format"}, place)
            if not isinstance(form, str) or form not in _FORMATS:
                raise self._error(f"{place}/format", form, "one of " + ", ".join(_FORMATS))
            return self._rule(rf'"\"" {_FORMATS[form]} "\""')
        low, high = self._bounds(schema, "minLength", "maxLength", place)
        return self._rule(rf'"\"" char{_times(low, high)} "\""')

    def _visit_integer(self, schema: Schema, place: str) -> str:
        for keyword in _BOUNDS & schema.keys():
            if not _is_of_type(schema[keyword], "number") or not abs(schema[keyword]) <= _LARGEST:
                raise self._error(f"{place}/{keyword}", schema[keyword], "a number of at most 16 digits")
        low, high = math.ceil(schema.get("minimum", -_LARGEST)), math.floor(schema.get("maximum", _LARGEST))
        low = max(low, math.floor(schema.get("exclusiveMinimum", low - 1)) + 1)
        high = min(high, math.ceil(schema.get("exclusiveMaximum", high + 1)) - 1)
        if low > high:
            raise self._error(place, dict(schema), "bounds with a whole number between them")
        parts = [f'"-" ({_whole(max(1, -high), -low)})'] if low < 0 else []
        return self._rule(" | ".join([*parts, _whole(max(0, low), high)] if high >= 0 else parts))

    def _bounds(self, schema: Schema, low_key: str, high_key: str, place: str) -> tuple[int, int | None]:
        low, high = schema.get(low_key, 0), schema.get(high_key)
        for name, value in ((low_key, low), (high_key, low if high is None else high)):
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_REPETITIONS:
                raise self._error(f"{place}/{name}", value, f"a whole number from 0 to {MAX_REPETITIONS:,}")
        if high is not None and low > high:
            raise self._error(f"{place}/{low_key}", low, f"at most {high_key} ({high})")
        return low, high


def _whole(low: int, high: int) -> str:
    """Return a body for the whole numbers from `low` to `high`, none of them negative."""
    parts = []
    for length in range(len(str(low)), len(str(high)) + 1):
        first, last = max(low, 10 ** (length - 1) if length > 1 else 0), min(high, 10**length - 1)
        parts.append(_digits(str(first), str(last)))
    return " | ".join(parts)


def _digits(first: str, last: str) -> str:
    """Return a body for the digits from `first` to `last`, which are equally long."""
    rest = len(first) - 1
    some = f" [0-9]{{{rest}}}" if rest else ""
    if first[1:] == "0" * rest and last[1:] == "9" * rest:
        return f"[{first[0]}-{last[0]}]{some}"
    if first[0] == last[0]:
        return f'"{first[0]}" ({_digits(first[1:], last[1:])})'
    parts = [f'"{first[0]}" ({_digits(first[1:], "9" * rest)})', f'"{last[0]}" ({_digits("0" * rest, last[1:])})']
    if int(last[0]) - int(first[0]) > 1:
        parts.append(f"[{int(first[0]) + 1}-{int(last[0]) - 1}]{some}")
    return " | ".join(parts)


def _times(low: int, high: int | None) -> str:
    return f"{{{low},{'' if high is None else high}}}"


def _is_of_type(value: object, kind: str) -> bool:
    if kind == "integer":
        return isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0
    types: dict[str, tuple[type, ...]] = {
        "object": (dict,),
        "array": (list,),
        "string": (str,),
        "number": (int, float),
        "boolean": (bool,),
        "null": (type(None),),
    }
    return isinstance(value, types[kind]) and (kind != "number" or not isinstance(value, bool))
