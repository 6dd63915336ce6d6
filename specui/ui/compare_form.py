"""What is asked of a race, as a form in the browser and as a request: the prompt, two to four lanes, repeats, sampling.

Knows no gradio. What comes back from a browser is checked here; a value that cannot work raises SettingError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape
from itertools import groupby
from typing import Any

from specui.bench.suite import BenchPrompt, load_suite
from specui.catalog import PairFiles
from specui.compare.records import MAX_LANES, CacheState, LaneSpec, RaceRequest, free_label
from specui.config import (
    BASELINE,
    DEFAULT_MAX_DRAFT_TOKENS,
    DEFAULT_SUITE,
    MAX_DRAFT_TOKENS_LIMIT,
    PAGE_COMPARE_LANES,
    PAGE_COMPARE_REPEATS,
    PAGE_COMPARE_TOKENS,
    SPECULATION_MODES,
    DraftingSettings,
    Limits,
    SamplingSettings,
    StepSettings,
    parse_mode,
)
from specui.errors import SettingError
from specui.generation import GenerationRequest, Message
from specui.ui.benchmark_board import kind_name
from specui.ui.conversation import Conversation
from specui.ui.form import ChatSettings
from specui.ui.shared import MODE_NAMES

OWN, CHAT = "own", "chat"


def form() -> str:
    """Return the form. compare.js keeps what is set in it and sends it."""
    lanes = "".join(_lane(place, mode) for place, mode in enumerate(PAGE_COMPARE_LANES))
    return (
        '<form class="sp-race-form" autocomplete="off"><div class="sp-race-prompt"><label class="sp-race-field">'
        f'<span>Prompt</span><select name="source">{_sources()}</select></label>'
        '<textarea name="text" rows="5" aria-label="Text of the prompt" spellcheck="false" '
        'placeholder="What every lane shall answer…"></textarea></div>'
        f'<div class="sp-race-lanes">{lanes}</div><div class="sp-race-numbers">'
        + _number("repeats", "Repeats", PAGE_COMPARE_REPEATS, 'min="1"')
        + _number("max_tokens", "Answer limit", PAGE_COMPARE_TOKENS, 'min="1"')
        + _number("temperature", "Temperature", "0", 'min="0" max="2" step="any"')
        + _number("seed", "Seed", "", 'min="0" placeholder="fresh"')
        + '<label class="sp-race-check" title="Its twin should come out at 1.00: what the figures are worth here">'
        '<input type="checkbox" name="twin"><span>Swap check: the baseline twice</span></label>'
        '<div class="sp-race-go"><button type="submit" class="sp-race-start">Start</button>'
        '<button type="button" class="sp-race-stop">Stop</button></div></div></form>'
    )


def _sources() -> str:
    groups = groupby(load_suite(DEFAULT_SUITE).prompts, key=lambda prompt: prompt.kind)
    examples = "".join(
        f'<optgroup label="{escape(kind_name(kind))}">'
        + "".join(
            f'<option value="{escape(each.key)}">{escape(each.name.replace("-", " "))}</option>' for each in found
        )
        + "</optgroup>"
        for kind, found in groups
    )
    return (
        f'<option value="{OWN}">My own text</option><option value="{CHAT}">The conversation in Chat</option>{examples}'
    )


def _lane(place: int, chosen: str) -> str:
    none = '<option value="">no lane</option>' if place > 1 else ""
    modes = "".join(
        f'<option value="{mode}" data-length="{DEFAULT_MAX_DRAFT_TOKENS[mode]}"'
        f"{' selected' if mode == chosen else ''}>{MODE_NAMES[mode]}</option>"
        for mode in SPECULATION_MODES
    )
    return (
        f'<fieldset class="sp-race-lane"><legend>Lane {place + 1}</legend>'
        f'<label class="sp-race-field"><span>Mode</span><select name="mode">{none}{modes}</select></label>'
        '<label class="sp-race-field sp-race-length"><span>Longest draft</span><input type="number" name="length" '
        f'min="1" max="{MAX_DRAFT_TOKENS_LIMIT}"></label></fieldset>'
    )


def _number(name: str, label: str, value: object, bounds: str) -> str:
    return (
        f'<label class="sp-race-field"><span>{label}</span>'
        f'<input type="number" name="{name}" value="{value}" {bounds}></label>'
    )


def example(key: str) -> BenchPrompt:
    """Return an example prompt by its key. Raises SettingError."""
    prompts = {prompt.key: prompt for prompt in load_suite(DEFAULT_SUITE).prompts}
    if key not in prompts:
        raise SettingError("Prompt", key, "one of the examples")
    return prompts[key]


def example_text(key: str) -> str:
    """Return an example's text for people, with its roles where there are several turns."""
    messages = example(key).messages
    if len(messages) == 1:
        return messages[0].content
    return "\n\n".join(f"{message.role}: {message.content}" for message in messages)


def read_form(
    values: Mapping[str, Any], files: PairFiles, references: Callable[[], tuple[str, ...]] = tuple
) -> RaceRequest:
    """Return the race that the form asks for, on a pair's files. Raises SettingError.

    On the conversation drafts may come from the chat's `references`, as they do there.
    """
    temperature = _decimal(values, "temperature", "Temperature")
    seed = _whole(values, "seed", "Seed")
    sampling = SamplingSettings(temperature=temperature or 0.0, seed=seed if temperature else None)
    lanes = _lanes(values.get("lanes"), bool(values.get("twin")))
    specs = tuple(LaneSpec(label, StepSettings(sampling, drafting), files) for label, drafting in lanes.items())
    source = str(values.get("source", OWN))
    limits = Limits(max_tokens=_whole(values, "max_tokens", "Answer limit") or PAGE_COMPARE_TOKENS)
    texts = references() if source == CHAT else ()
    prompt = GenerationRequest(_messages(source, values), limits=limits, references=texts)
    repeats = _whole(values, "repeats", "Repeats")
    cache: CacheState = "conversation" if source == CHAT else "cleared"
    return RaceRequest(prompt, specs, PAGE_COMPARE_REPEATS if repeats is None else repeats, cache)


def _lanes(asked: object, twin: bool) -> dict[str, DraftingSettings]:
    """Return the lanes by label; the baseline's twin, if it is wanted, comes last."""
    lanes: dict[str, DraftingSettings] = {}
    for each in asked if isinstance(asked, list) else []:
        if isinstance(each, dict) and each.get("mode"):
            mode = parse_mode(each["mode"], "Mode")
            length = None if mode == BASELINE else _whole(each, "length", "Longest draft")
            label = mode if length is None else f"{mode}:{length}"
            lanes[free_label(label, lanes)] = replace(DraftingSettings(mode), max_draft_tokens=length)
    if twin and len(lanes) >= MAX_LANES:
        raise SettingError("Swap check", "on", f"at most {MAX_LANES - 1} lanes beside the baseline's twin")
    if twin and lanes:
        baseline = BASELINE if BASELINE in lanes else next(iter(lanes))
        lanes[free_label(baseline, lanes)] = lanes[baseline]
    return lanes


def _messages(source: str, values: Mapping[str, Any]) -> tuple[Message, ...]:
    if source == OWN:
        return (Message("user", str(values.get("text", ""))),)
    if source != CHAT:
        return example(source).messages
    conversation = Conversation.from_json(_text(values, "chat"))
    if not conversation.turns:
        raise SettingError("Prompt", "the conversation in Chat", "a conversation with a question; Chat has none yet")
    return conversation.messages(ChatSettings.from_json(_text(values, "prefs"), ChatSettings()).system)


def _text(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) else json.dumps(value)


def _whole(values: Mapping[str, Any], key: str, label: str) -> int | None:
    """Return a whole number; None where the field was left blank."""
    text = str(values.get(key) if values.get(key) is not None else "").strip()
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise SettingError(label, text, "a whole number") from None


def _decimal(values: Mapping[str, Any], key: str, label: str) -> float | None:
    text = str(values.get(key) if values.get(key) is not None else "").strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise SettingError(label, text, "a number") from None
