"""Grammars on real vocabularies: what llama.cpp allows, what schemas write, and answers of the bundled pair."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from test_gbnf import GOOD

from specui.catalog import PairFiles
from specui.config import (
    SPECULATION_MODES,
    DraftingSettings,
    Limits,
    SamplingSettings,
    SpeculationMode,
    StepSettings,
)
from specui.engine.grammar import Grammar
from specui.engine.json_schema import schema_to_gbnf
from specui.engine.llama import Model, NativeGrammar
from specui.errors import SettingError
from specui.generation import GenerationRequest, Message, Progress
from specui.runtime import Runtime

pytestmark = pytest.mark.slow

ADDRESS = {
    "type": "object",
    "properties": {"city": {"type": "string", "minLength": 1, "maxLength": 12}, "zip": {"type": ["integer", "null"]}},
    "required": ["city"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, Any] = {
    "object": ADDRESS,
    "odd names": {
        "properties": {'a "quoted" \\ name': {"type": "boolean"}, "é\n😀": {"type": "null"}, "": {"type": "null"}},
        "required": ['a "quoted" \\ name', "é\n😀"],
    },
    "enum": {
        "enum": ["plain", 'say "hi"', "back\\slash", "line\nbreak", "tab\t", "é", "한국어", "😀", 3, 1.5, None, True]
    },
    "const": {"const": {"a": ["\u2028", "\ud83d", "\x7f"]}},
    "enum of a type": {"type": ["string", "integer"], "enum": ["a", 2, 2.5, None, True]},
    "nested arrays": {"type": "array", "minItems": 1, "items": {"type": "array", "items": {"type": "integer"}}},
    "array bounds": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    "at most one": {"type": "array", "items": {"type": "boolean"}, "maxItems": 1},
    "none": {"type": "array", "items": {"type": "boolean"}, "maxItems": 0},
    "tuple": {"prefixItems": [{"type": "boolean"}, {"type": "null"}], "items": {"type": "number"}, "maxItems": 4},
    "old tuple": {"type": "array", "items": [{"type": "boolean"}, {"type": "null"}]},
    "strings": {"type": "array", "items": {"type": "string", "maxLength": 5}, "minItems": 3, "maxItems": 3},
    "formats": {
        "properties": {name: {"type": "string", "format": name} for name in ("date", "time", "date-time", "uuid")},
        "required": ["date", "time", "date-time", "uuid"],
    },
    "optional": {"properties": {name: {"type": "null"} for name in "abcd"}, "required": ["c"]},
    "all optional": {"properties": {name: {"type": "null"} for name in "abc"}},
    "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    "one of": {"oneOf": [{"type": "integer"}, ADDRESS], "description": "either"},
    "tree": {
        "$defs": {
            "node": {"properties": {"left": {"$ref": "#/$defs/node"}, "v": {"type": "integer"}}, "required": ["v"]}
        },
        "$ref": "#/$defs/node",
    },
    "anything": {},
}


@pytest.fixture(scope="module")
def model(bundled_pair: PairFiles) -> Iterator[Model]:
    assert bundled_pair.draft is not None
    model = Model(bundled_pair.draft, vocab_only=True)
    yield model
    model.close()


def begin(model: Model, gbnf: str) -> Grammar:
    return Grammar(NativeGrammar(model, gbnf), model.n_vocab)


def write(model: Model, state: Grammar, text: str) -> bool:
    """Push the text's tokens; return whether the grammar took all of them and may end there."""
    for token in model.tokenize(text, add_special=False, parse_special=False):
        if not state.allows(token):
            return False
        state.push(token)
    return any(state.allows(token) for token in model.end_tokens)


def fits(value: Any, schema: Any, root: Any) -> bool:
    """Return whether a JSON value fits a schema, for the keywords that SCHEMAS uses."""
    if "$ref" in schema:
        return fits(value, root["$defs"]["node"], root)
    if "oneOf" in schema:
        return sum(fits(value, each, root) for each in schema["oneOf"]) == 1
    same = [each for each in schema.get("enum", [schema.get("const")]) if each == value and type(each) is type(value)]
    if ("enum" in schema or "const" in schema) and not same:
        return False
    kinds = schema.get("type", [])
    if kinds and not any(is_kind(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return False
    if isinstance(value, dict):
        return object_fits(value, schema, root)
    if isinstance(value, list):
        return array_fits(value, schema, root)
    return not isinstance(value, str) or string_fits(value, schema)


def is_kind(value: Any, kind: str) -> bool:
    kinds: Mapping[str, tuple[type, ...]] = {
        "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float),
        "boolean": (bool,), "null": (type(None),),
    }  # fmt: skip
    return isinstance(value, kinds[kind]) and (kind == "boolean" or not isinstance(value, bool))


def object_fits(value: dict[str, Any], schema: Any, root: Any) -> bool:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    return set(value) >= set(schema.get("required", [])) and all(
        fits(each, properties[name], root)
        if name in properties
        else others is True or (bool(others) and fits(each, others, root))
        for name, each in value.items()
    )


def array_fits(value: list[Any], schema: Any, root: Any) -> bool:
    items = schema.get("items", {})
    prefix = items if isinstance(items, list) else schema.get("prefixItems", [])
    rest = {} if isinstance(items, list) else items
    return schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 10**9) and all(
        fits(each, prefix[i] if i < len(prefix) else rest, root) for i, each in enumerate(value)
    )


def string_fits(value: str, schema: Any) -> bool:
    forms = {
        "date": r"\d{4}-\d\d-\d\d", "time": r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
        "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "uuid": r"[0-9a-fA-F-]{36}",
    }  # fmt: skip
    if "format" in schema and not re.fullmatch(forms[schema["format"]], value):
        return False
    return bool(schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 10**9))


class Walker:
    """Writes random texts that a grammar allows: mostly single characters, now and then a longer token."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.rng = np.random.default_rng(5)
        texts = [model.piece(token).decode(errors="replace") for token in range(model.n_vocab)]
        whole = ["\ufffd" not in text for text in texts]
        ends = list(model.end_tokens)
        self.closing = np.array([model.tokenize(each, False, False)[0] for each in '"]}'])
        self.short = np.array([i for i in range(model.n_vocab) if whole[i] and len(texts[i]) == 1] + ends)
        self.whole = np.array([i for i in range(model.n_vocab) if whole[i]])
        self.every = np.arange(model.n_vocab)

    def write(self, gbnf: str, max_tokens: int = 600) -> str | None:
        """Return a finished text, or None where it grew too long."""
        state, raw = NativeGrammar(self.model, gbnf), b""
        for _ in range(max_tokens):
            token = self._pick(state)
            if token in self.model.end_tokens:
                return raw.decode()
            raw += self.model.piece(token)
            state.accept(token)
        return None

    def _pick(self, state: NativeGrammar) -> int:
        # Parts of characters come last: llama.cpp does not mind which parts follow each other.
        for group, chance in ((self.closing, 0.15), (self.short, 0.95), (self.whole, 1), (self.every, 1)):
            ids = group[state.allowed(group)]
            if len(ids) and self.rng.random() < chance:
                return int(self.rng.choice(ids))
        raise AssertionError("a dead end")


@pytest.fixture(scope="module")
def walker(model: Model) -> Walker:
    return Walker(model)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_text_of_a_schema_is_json_that_fits(walker: Walker, name: str) -> None:
    schema, finished = SCHEMAS[name], 0
    for _ in range(25):
        text = walker.write(schema_to_gbnf(schema))
        if text is not None:
            finished += 1
            value = json.loads(text)
            assert fits(value, schema, schema), text
    assert finished > 5


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("object", ['{"city": "Zürich", "zip": 8001}', '{"city":"한","zip":null}', '{\n  "city": "\\u00fc"\n}'],
         ['{"city": ""}', '{"zip": 1}', '{"city": "1234567890123"}', '{"city": "a", "x": 1}', '{"city": "a"', "[]"]),
        ("enum", ['"say \\"hi\\""', '"back\\\\slash"', '"line\\nbreak"', '"é"', '"한국어"', '"😀"', "3", "1.5", "null"],
         ['"line\nbreak"', '"other"', '"plain', "4", "None", '"back\\slash"']),
        ("nested arrays", ["[[]]", "[[1, -2], [30]]"], ["[]", "[1]", "[[01]]", "[[1,]]", "[[1]] "]),
        ("optional", ['{"c": null}', '{"a": null, "c": null, "d": null}', '{"b":null,"c":null}'],
         ["{}", '{"c": null, "a": null}', '{"a": null}', '{"c": null,}', '{, "c": null}']),
        ("all optional", ["{}", '{"a":null}', '{"a":null,"c":null}', '{"c":null}'],
         ['{"c":null,"a":null}', '{"a":null,}']),
        ("strings", ['["a\\tb", "", "\\"\\\\"]', '["\\ud7ff","\\ue000","é한😀!a"]'],
         ['["a\tb","",""]', '["\\ud83d","",""]', '["\\x","",""]', '["123456","",""]']),
        ("tree", ['{"v": 1}', '{"left": {"left": {"v": 3}, "v": 2}, "v": 1}'], ['{"left": {"v": 1}}']),
        ("anything", ['{"a": [1.5e-3, true, {}], "": "x"}', '"x"', "-0.5", "[]"], ["01", "1.", "+1", "tru", "nan"]),
    ],
)  # fmt: skip
def test_schemas_take_and_refuse(model: Model, name: str, good: list[str], bad: list[str]) -> None:
    gbnf = schema_to_gbnf(SCHEMAS[name])
    for text in good:
        assert write(model, begin(model, gbnf), text), text
    for text in bad:
        assert not write(model, begin(model, gbnf), text), text


@pytest.mark.parametrize(
    "bounds",
    [
        {"minimum": 0},
        {"maximum": -1},
        {"minimum": 7, "maximum": 7},
        {"minimum": -12, "maximum": 105},
        {"minimum": 18, "maximum": 99},
        {"minimum": 95.5, "exclusiveMaximum": 1203},
        {"exclusiveMinimum": -100, "maximum": -9},
        {"exclusiveMinimum": -1.5, "exclusiveMaximum": 1.5},
    ],
    ids=str,
)
def test_bounds_of_integers(model: Model, bounds: dict[str, float]) -> None:
    start = begin(model, schema_to_gbnf({"type": "integer", **bounds}))
    low = max(bounds.get("minimum", -9999), bounds.get("exclusiveMinimum", -9999) + 1e-9)
    high = min(bounds.get("maximum", 9999), bounds.get("exclusiveMaximum", 9999) - 1e-9)
    for number in [*range(-130, 131), 999, 1000, 1199, 1200, 1202, 1203, 1299, 2000]:
        assert write(model, start.fork(), str(number)) == (low <= number <= high), number
    for text in ("-0", "00", "07", "+7", ""):
        assert not write(model, start.fork(), text)


class TestLlamaGrammar:
    """llama.cpp's grammar sampler, asked in the way that costs least."""

    @pytest.mark.parametrize("text", [text for text in GOOD if "<think>" not in text])
    def test_what_passes_the_check_llama_cpp_takes_in_silence(
        self, model: Model, capfd: pytest.CaptureFixture[str], text: str
    ) -> None:
        NativeGrammar(model, text).allowed_ids()
        assert capfd.readouterr().err == ""

    @pytest.mark.parametrize(
        "gbnf",
        [schema_to_gbnf(SCHEMAS[name]) for name in ("object", "enum", "anything", "map")]
        + ["root ::= [^é\\u2028]+ [ü-ÿ] .*", "root ::= [^a-y]+ <[3]> .*", 'root ::= ("한" | "é" | [0-9])+ "\\n"'],
    )
    def test_allowed_ids_are_what_a_question_about_every_token_gives(self, model: Model, gbnf: str) -> None:
        rng, every = np.random.default_rng(1), np.arange(model.n_vocab)
        for _ in range(3):
            state = NativeGrammar(model, gbnf)
            for _ in range(12):
                ids = state.allowed_ids()
                assert ids.tolist() == every[state.allowed(every)].tolist()
                token = int(rng.choice(ids)) if len(ids) else 0
                if not len(ids) or token in model.end_tokens:
                    break
                state.accept(token)

    def test_end_tokens_only_where_the_grammar_can_end(self, model: Model) -> None:
        state = begin(model, 'root ::= "a" "b"?')
        assert not any(state.allows(token) for token in model.end_tokens)
        state.push(model.tokenize("a", False, False)[0])
        assert all(state.allows(token) for token in model.end_tokens)
        row = np.zeros(model.n_vocab, np.float32)
        state.push(model.tokenize("b", False, False)[0])
        with state.masked(row):
            assert set(np.flatnonzero(np.isfinite(row)).tolist()) == set(model.end_tokens)

    def test_control_tokens_leave_no_text_and_are_no_text(self, model: Model) -> None:
        (control,) = model.tokenize("<|im_start|>", add_special=False, parse_special=True)
        assert not begin(model, "root ::= .*").allows(control)
        assert begin(model, "root ::= .* <|im_start|>").allows(control)
        assert begin(model, f"root ::= <[{control}]>").allows(control)

    @pytest.mark.parametrize("token", ["<think>", "<[49152]>"])
    def test_tokens_the_model_has_not_are_refused(self, model: Model, token: str) -> None:
        with pytest.raises(SettingError, match=re.escape(token)):
            NativeGrammar(model, f"root ::= {token}")

    def test_a_character_may_be_split_over_tokens(self, model: Model) -> None:
        tokens = model.tokenize("🦒", add_special=False, parse_special=False)
        assert len(tokens) > 1, "this vocabulary has a token for the giraffe"
        state = begin(model, 'root ::= "🦒" | "🦓"')
        for token in tokens:
            assert not any(state.allows(end) for end in model.end_tokens)
            state.push(token)
        assert any(state.allows(end) for end in model.end_tokens)

    def test_forks_are_apart(self, model: Model) -> None:
        state = begin(model, schema_to_gbnf(ADDRESS))
        assert not write(model, state, '{"city": "')
        left, right = state.fork(), state.fork()
        assert write(model, left, 'Bern"}')
        assert write(model, right, 'Genf", "zip": 1}')
        assert write(model, state, 'Chur"}')


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 24},
        "mood": {"enum": ["glad", 'so "so"', "très triste", "😀"]},
        "rows": {"type": "array", "minItems": 1, "maxItems": 2,
                 "items": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"enum": [0, 1, 2]}}},
    },
    "required": ["name", "mood", "rows"],
}  # fmt: skip


def ask(
    runtime: Runtime, mode: SpeculationMode, sampling: SamplingSettings, limits: Limits, gbnf: str, prompt: str
) -> Progress:
    settings = StepSettings(sampling, DraftingSettings(mode))
    messages = (Message("user", prompt),)
    request = GenerationRequest(messages=messages, settings=settings, limits=limits, grammar=gbnf)
    return runtime.start(request).result()


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingSettings(),
        SamplingSettings(temperature=0.8, seed=7),
        SamplingSettings(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0, seed=8),
        SamplingSettings(repeat_penalty=1.3, logit_bias=((18, -5.0),)),
    ],
    ids=["greedy", "sampled", "unfiltered", "penalised"],
)
def test_answers_fit_the_schema_in_every_mode(runtime: Runtime, sampling: SamplingSettings) -> None:
    prompt, gbnf = "Describe Ann as JSON with name, mood and rows.", schema_to_gbnf(PERSON)
    answers = {mode: ask(runtime, mode, sampling, Limits(200), gbnf, prompt) for mode in SPECULATION_MODES}
    for mode, answer in answers.items():
        assert answer.finish_reason == "stop"
        assert fits(json.loads(answer.text), PERSON, PERSON), answer.text
        assert answer.stats.speculation_used == mode
        if sampling.greedy:
            assert answer.token_ids == answers["none"].token_ids, mode
    assert answers["draft-model"].stats.num_accepted_tokens > 0


def test_a_grammar_keeps_the_draft_useful(runtime: Runtime) -> None:
    gbnf = 'root ::= ("ha ho hi " | "x")+'
    answer = ask(runtime, "prompt-lookup", SamplingSettings(), Limits(60), gbnf, "Say ha ho hi ha ho hi ha ho hi.")
    assert re.fullmatch("((ha ho hi )|x)*(h(a( (h(o( (h(i)?)?)?)?)?)?)?)?", answer.text), answer.text
    assert answer.stats.num_accepted_tokens > 0


@pytest.mark.parametrize("mode", SPECULATION_MODES)
def test_max_tokens_cuts_with_length(runtime: Runtime, mode: SpeculationMode) -> None:
    answer = ask(runtime, mode, SamplingSettings(), Limits(7), schema_to_gbnf(PERSON), "Describe Ann as JSON.")
    assert answer.finish_reason == "length"
    assert len(answer.token_ids) == 7
    assert answer.text.startswith("{")
    with pytest.raises(json.JSONDecodeError):
        json.loads(answer.text)


@pytest.mark.parametrize("mode", SPECULATION_MODES)
def test_a_stop_inside_a_string_ends_there(runtime: Runtime, mode: SpeculationMode) -> None:
    gbnf = schema_to_gbnf({"properties": {"word": {"enum": ["abcSTOPdef"]}}, "required": ["word"]})
    answer = ask(runtime, mode, SamplingSettings(), Limits(60, ("STOP",)), gbnf, "Say it.")
    assert answer.finish_reason == "stop"
    assert re.fullmatch(r'\{\s*"word"\s*:\s*"abc', answer.text), answer.text


def test_a_dead_end_is_an_error_and_the_next_answer_works(runtime: Runtime) -> None:
    request = GenerationRequest(prompt="a", limits=Limits(5), grammar="root ::= [b-a]")
    with pytest.raises(Exception, match="grammar"):
        runtime.start(request).result()
    assert ask(runtime, "none", SamplingSettings(), Limits(5), 'root ::= "yes"', "Say yes.").text == "yes"
