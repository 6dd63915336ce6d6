"""The settings beside a chat: the switch, sampling, drafting, limits and the system prompt, as widgets and as values.

Every default and every bound that matters comes from `specui.config`; a value that cannot work raises `SettingError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from specui.catalog import PairFiles
from specui.config import (
    DraftingSettings,
    Limits,
    SamplingSettings,
    SpeculationMode,
    StepSettings,
    parse_mode,
)
from specui.errors import SpecUIError

SAMPLING_KEYS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "repeat_last_n",
    "seed",
)
DRAFTING_KEYS = ("speculation", "max_draft_tokens", "max_ngram_size", "draft_p_min", "adaptive_length", "exact")


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """Everything that is set beside a chat."""

    step: StepSettings = field(default_factory=StepSettings)
    limits: Limits = field(default_factory=Limits)
    system: str = ""

    def to_values(self) -> dict[str, Any]:
        """Return the settings as the widgets show them, by key."""
        sampling = {key: getattr(self.step.sampling, key) for key in SAMPLING_KEYS}
        drafting = {key: getattr(self.step.drafting, key) for key in DRAFTING_KEYS}
        limits = {"max_tokens": self.limits.max_tokens, "stop": "\n".join(self.limits.stop)}
        return {**drafting, **sampling, **limits, "system": self.system}

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> ChatSettings:
        """Read what the widgets hold; a number that was left blank means its default."""
        given = {key: value for key, value in values.items() if value is not None}
        stop = tuple(line for line in str(given.get("stop", "")).split("\n") if line)
        numbers = {"max_tokens": given["max_tokens"]} if "max_tokens" in given else {}
        return cls(
            StepSettings(
                SamplingSettings(**{key: given[key] for key in SAMPLING_KEYS if key in given}),
                DraftingSettings(**{key: given[key] for key in DRAFTING_KEYS if key in given}),
            ),
            Limits(stop=stop, **numbers),
            str(given.get("system", "")),
        )

    @classmethod
    def from_json(cls, text: str | None, start: ChatSettings) -> ChatSettings:
        """Read what the browser kept; `start` where that cannot work or is nothing."""
        try:
            return cls.from_values(json.loads(text)) if text else start
        except (SpecUIError, ValueError, TypeError, AttributeError):
            return start

    @classmethod
    def of_pair(cls, files: PairFiles | None, speculation: SpeculationMode) -> ChatSettings:
        """Return the defaults, those of a pair over the program's own, with `speculation`."""
        sampling, drafting = (files.sampling, files.drafting) if files is not None else ({}, {})
        drafting = {**drafting, "speculation": speculation}
        return cls(StepSettings(SamplingSettings(**sampling), DraftingSettings(**drafting)))


MODE_CHOICES = [
    ("None\none token per pass", "none"),
    ("Prompt lookup\ncopies from text", "prompt-lookup"),
    ("Draft model\nsmall model drafts", "draft-model"),
    ("Auto\npicks what pays", "auto"),
]


class Form:
    """The widgets, in the order of their keys; built inside the layout that is open when its methods are called."""

    def __init__(self, speculation: SpeculationMode) -> None:
        self.start = ChatSettings(StepSettings(drafting=DraftingSettings(parse_mode(speculation))))
        self.widgets: dict[str, Any] = {}

    @property
    def components(self) -> list[Any]:
        """The widgets as a list of inputs or outputs."""
        return list(self.widgets.values())

    def read(self, values: tuple[Any, ...]) -> ChatSettings:
        """Return the settings for the widgets' values, given in the order of `components`."""
        return ChatSettings.from_values(dict(zip(self.widgets, values, strict=True)))

    def to_json(self, values: tuple[Any, ...]) -> str:
        """Return the widgets' values as the browser keeps them."""
        return json.dumps(dict(zip(self.widgets, values, strict=True)))

    def fill(self, settings: ChatSettings) -> list[Any]:
        """Return the value of every widget for `settings`."""
        values = settings.to_values()
        return [values[key] for key in self.widgets]

    def build_switch(self) -> None:
        """Make the switch."""
        self.widgets["speculation"] = gr.Radio(
            MODE_CHOICES,
            value=self.start.step.drafting.speculation,
            label="Speculative decoding",
            elem_id="sp-switch",
            container=False,
        )

    def build_system(self) -> None:
        """Make the system prompt."""
        self.widgets["system"] = gr.Textbox(
            label="System prompt",
            show_label=False,
            placeholder="You are a helpful assistant.",
            lines=3,
            max_lines=8,
            container=False,
        )

    def build_sampling(self) -> None:
        """Make the sampling settings and limits."""
        start = self.start.to_values()
        self._slider("temperature", "Temperature", (0, 2, 0.05), "0 is greedy: always the best token")
        with gr.Row():
            self._number("top_k", "Top-k")
            self._number("seed", "Seed", "fresh")
        self._slider("top_p", "Top-p", (0, 1, 0.01))
        self._slider("min_p", "Min-p", (0, 1, 0.01))
        self._slider("repeat_penalty", "Repeat penalty", (0.5, 2, 0.01), "1 is off")
        self._slider("presence_penalty", "Presence penalty", (-2, 2, 0.05))
        self._slider("frequency_penalty", "Frequency penalty", (-2, 2, 0.05))
        with gr.Row():
            self._number("repeat_last_n", "Penalties look back")
            self._number("max_tokens", "Answer limit")
        self.widgets["stop"] = gr.Textbox(
            value=start["stop"], label="Stop strings", info="one a line", lines=1, max_lines=4
        )

    def build_drafting(self) -> None:
        """Make the drafting settings."""
        self._number("max_draft_tokens", "Longest draft", "mode's own")
        self._slider("max_ngram_size", "Longest n-gram looked up", (1, 32, 1))
        self._slider("draft_p_min", "Stop drafting below probability", (0, 1, 0.05))
        self.widgets["adaptive_length"] = gr.Checkbox(
            value=self.start.step.drafting.adaptive_length, label="Adapt the draft's length"
        )
        self.widgets["exact"] = gr.Checkbox(
            value=self.start.step.drafting.exact,
            label="Exact",
            info="only passes that leave every bit as one token a pass does; often slower",
        )

    def _slider(self, key: str, label: str, span: tuple[float, float, float], info: str | None = None) -> None:
        low, high, step = span
        value = self.start.to_values()[key]
        self.widgets[key] = gr.Slider(low, high, value=value, step=step, label=label, info=info, buttons=[])

    def _number(self, key: str, label: str, blank: str | None = None) -> None:
        """Make a number without bounds of its own: gradio's complaint about them would hide ours."""
        value = self.start.to_values()[key]
        self.widgets[key] = gr.Number(value=value, label=label, precision=0, min_width=90, placeholder=blank)
