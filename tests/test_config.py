"""Settings refuse what cannot work when they are built, with the key and what would do."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from specui import config
from specui.config import DraftingSettings, Limits, LoadSettings, SamplingSettings, StepSettings, parse_variant
from specui.errors import SettingError

BAD: list[tuple[type[Any], str, list[object]]] = [
    (SamplingSettings, "temperature", [-0.1, 101, math.nan, math.inf, "1", None, True]),
    (SamplingSettings, "top_k", [-1, 2.5, 2**31, "40", True]),
    (SamplingSettings, "top_p", [-0.01, 1.01, math.nan]),
    (SamplingSettings, "min_p", [-0.01, 1.01]),
    (SamplingSettings, "repeat_penalty", [0, -1, 11]),
    (SamplingSettings, "presence_penalty", [-11, 11]),
    (SamplingSettings, "frequency_penalty", [-11, 11]),
    (SamplingSettings, "repeat_last_n", [-1, 0.5]),
    (SamplingSettings, "seed", [-1, 1.0, "7", 2**63]),
    (DraftingSettings, "speculation", ["", "None", "draft", None, 3, ["none"]]),
    (DraftingSettings, "max_draft_tokens", [0, -1, 64, 2.0, False]),
    (DraftingSettings, "max_ngram_size", [0, 33]),
    (DraftingSettings, "draft_p_min", [-0.1, 1.1, math.nan]),
    (Limits, "max_tokens", [0, -1, 1.5, 2**31]),
    (Limits, "stop", [("",), ("a", ""), (3,)]),
    (LoadSettings, "ctx_size", [0, 15, 2**24 + 1]),
    (LoadSettings, "batch_size", [0, 2**16 + 1]),
    (LoadSettings, "threads", [0, -1, 1025]),
    (LoadSettings, "gpu_layers", [-2, 10_001]),
]


@pytest.mark.parametrize(
    ("kind", "key", "value"), [(kind, key, value) for kind, key, values in BAD for value in values], ids=repr
)
def test_a_value_that_cannot_work_is_refused_by_name(kind: type[Any], key: str, value: object) -> None:
    with pytest.raises(SettingError) as caught:
        kind(**{key: value})
    assert caught.value.key == key
    assert str(caught.value).startswith(f"{key}: ")
    assert "expected" in str(caught.value)
    assert "\n" not in str(caught.value)


GOOD: list[tuple[type[Any], str, list[object]]] = [
    (SamplingSettings, "temperature", [0, 1e-6, 0.01, 1, 100]),
    (SamplingSettings, "top_p", [0, 1e-4, 1]),
    (SamplingSettings, "top_k", [0, 1]),
    (SamplingSettings, "seed", [0, 2**63 - 1, None]),
    (DraftingSettings, "speculation", list(config.SPECULATION_MODES)),
    (DraftingSettings, "max_draft_tokens", [1, 63, None]),
    (Limits, "stop", [(), ("\n",), ("END", "끝")]),
    (LoadSettings, "gpu_layers", [-1, 0, 99]),
]


@pytest.mark.parametrize(
    ("kind", "key", "value"), [(kind, key, value) for kind, key, values in GOOD for value in values], ids=repr
)
def test_the_ends_of_each_range_are_allowed(kind: type[Any], key: str, value: object) -> None:
    assert getattr(kind(**{key: value}), key) == value


@pytest.mark.parametrize("key", ["temperature", "top_k"])
def test_a_whole_number_too_large_for_a_float_is_refused_like_any_other(key: str) -> None:
    value: dict[str, Any] = {key: 10**400}
    with pytest.raises(SettingError):
        SamplingSettings(**value)


@pytest.mark.parametrize(
    "pairs", [[(1, 2)], ((1,),), ((-1, 0.0),), ((1, 101),), ((1, math.nan),), ((1, 1.0), (1, 2.0))], ids=repr
)
def test_a_logit_bias_that_cannot_work_is_refused(pairs: Any) -> None:
    with pytest.raises(SettingError, match="logit_bias"):
        SamplingSettings(logit_bias=pairs)


def test_greedy_and_penalised() -> None:
    assert SamplingSettings().greedy
    assert not SamplingSettings(temperature=1e-6).greedy
    assert not SamplingSettings().penalised
    for change in ({"repeat_penalty": 1.1}, {"presence_penalty": -0.1}, {"frequency_penalty": 0.1}):
        assert SamplingSettings(**change).penalised  # type: ignore[arg-type]
        assert not SamplingSettings(**change, repeat_last_n=0).penalised  # type: ignore[arg-type]


def test_the_cap_is_the_users_or_the_modes_own() -> None:
    assert DraftingSettings("none", 5).draft_cap == 0
    assert DraftingSettings("draft-model", 5).draft_cap == 5
    for mode in config.SPECULATION_MODES:
        assert DraftingSettings(mode).draft_cap == config.DEFAULT_MAX_DRAFT_TOKENS[mode]
        assert config.DEFAULT_MAX_DRAFT_TOKENS[mode] <= config.MAX_DRAFT_TOKENS_LIMIT


def test_a_mode_may_bring_its_longest_draft() -> None:
    base = DraftingSettings(max_ngram_size=7, max_draft_tokens=9)
    assert parse_variant("auto", base, "--modes") == DraftingSettings("auto", 9, 7)
    assert parse_variant("draft-model:3", base, "--modes") == DraftingSettings("draft-model", 3, 7)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fast",
        "fast:3",
        "none:3",
        "auto:",
        "auto:x",
        "auto:-1",
        "auto:0",
        "auto:3:4",
        "auto:64",
        "auto:" + "9" * 5000,
    ],
)
def test_a_variant_that_cannot_work_is_refused(text: str) -> None:
    with pytest.raises(SettingError):
        parse_variant(text, DraftingSettings(), "--modes")


def test_settings_are_values() -> None:
    assert StepSettings() == StepSettings()
    assert hash(StepSettings()) == hash(StepSettings())
    with pytest.raises(AttributeError):
        StepSettings().sampling = SamplingSettings()  # type: ignore[misc]


def test_home_is_where_specui_home_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECUI_HOME", str(tmp_path))
    assert config.home() == tmp_path
    monkeypatch.setenv("SPECUI_HOME", "~/place")
    assert config.home() == Path.home() / "place"
    monkeypatch.delenv("SPECUI_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert config.home() == tmp_path / "specui"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert config.home() == Path.home() / ".cache" / "specui"
