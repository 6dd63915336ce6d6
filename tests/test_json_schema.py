"""Schemas that cannot be held are refused with the place and the keyword. What grammars write: test_grammar_real."""

from __future__ import annotations

from typing import Any

import pytest

from specui.engine.json_schema import parse_schema, schema_to_gbnf
from specui.errors import SettingError

REFUSED: list[tuple[Any, str, str]] = [
    (False, "#", "JSON Schema"),
    ([], "#", "JSON Schema"),
    ("string", "#", "JSON Schema"),
    ({"type": "text"}, "#/type", "'text'"),
    ({"type": []}, "#/type", "at least one"),
    ({"type": "number", "minimum": 3}, "#", "'minimum'"),
    ({"type": ["integer", "number"], "maximum": 3}, "#", "'maximum'"),
    ({"type": "integer", "minimum": "3"}, "#/minimum", "a number"),
    ({"type": "integer", "maximum": 10**16}, "#/maximum", "16 digits"),
    ({"type": "integer", "minimum": 3, "exclusiveMaximum": 3}, "#", "between them"),
    ({"type": "integer", "minimum": 0.2, "maximum": 0.8}, "#", "between them"),
    ({"type": "integer", "multipleOf": 2}, "#", "'multipleOf'"),
    ({"type": "string", "pattern": "^a$"}, "#", "'pattern'"),
    ({"type": "string", "format": "email"}, "#/format", "uuid"),
    ({"type": "string", "format": "date", "maxLength": 3}, "#", "'maxLength'"),
    ({"type": "string", "minLength": 5, "maxLength": 2}, "#/minLength", "maxLength"),
    ({"type": "string", "maxLength": 2001}, "#/maxLength", "2,000"),
    ({"type": "string", "maxLength": True}, "#/maxLength", "whole number"),
    ({"type": "array", "uniqueItems": True}, "#", "'uniqueItems'"),
    ({"type": "array", "items": [{"type": "null"}], "minItems": 2}, "#/minItems", "at most 1"),
    ({"type": "array", "items": False, "minItems": 1}, "#/minItems", "at most 0"),
    ({"type": "object", "patternProperties": {}}, "#", "'patternProperties'"),
    ({"properties": {"a": {"type": "odd"}}}, "#/properties/a/type", "'odd'"),
    ({"properties": {"a": {}}, "additionalProperties": {"type": "null"}}, "#/additionalProperties", "true or false"),
    ({"required": ["a"], "additionalProperties": False}, "#/required", "'a'"),
    ({"required": "a"}, "#/required", "list"),
    ({"properties": []}, "#/properties", "object"),
    ({"additionalProperties": "no"}, "#/additionalProperties", "'no'"),
    ({"enum": []}, "#/enum", "list of values"),
    ({"enum": ["a"], "type": "integer"}, "#/enum", "integer"),
    ({"enum": ["a"], "minLength": 3}, "#", "'minLength'"),
    ({"const": float("nan")}, "#/const", "JSON"),
    ({"anyOf": []}, "#/anyOf", "list of schemas"),
    ({"anyOf": [{"type": "null"}], "type": "string"}, "#", "'type'"),
    ({"anyOf": [{"type": "null"}, {"not": {}}]}, "#/anyOf/1", "'not'"),
    ({"allOf": [{"type": "null"}, {"type": "null"}]}, "#/allOf", "one schema"),
    ({"$ref": "https://example.com/x"}, "#/$ref", "into this schema"),
    ({"$ref": "#/$defs/x"}, "#/$ref", "$defs is not"),
    ({"$ref": "#"}, "", "begin with itself"),
    (
        {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"b": {"format": "x"}}}}},
        "#/$defs/a/properties/b/format",
        "x",
    ),
]


@pytest.mark.parametrize(("schema", "place", "words"), REFUSED, ids=[str(each[0])[:50] for each in REFUSED])
def test_what_cannot_be_held_is_refused_by_place_and_keyword(schema: Any, place: str, words: str) -> None:
    with pytest.raises(SettingError) as caught:
        schema_to_gbnf(schema, "--json-schema")
    message = str(caught.value)
    assert message.startswith(f"--json-schema at {place}: " if place else "--json-schema: ")
    assert words in message
    assert "\n" not in message


def test_a_schema_nested_beyond_reason_is_refused() -> None:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(5000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(SettingError, match="less nesting"):
        schema_to_gbnf(schema)


@pytest.mark.parametrize("text", ["", "{", "{'type': 'string'}", '{"const": NaN}', "[" * 100_000])
def test_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="JSON"):
        parse_schema(text)


def test_what_says_nothing_about_the_text_is_left_alone() -> None:
    plain = schema_to_gbnf({"type": "string"})
    annotated = {"type": "string", "title": "T", "description": "D", "default": "x", "examples": ["y"], "$comment": "c"}
    assert schema_to_gbnf({"$schema": "https://json-schema.org/draft/2020-12/schema", **annotated}) == plain
