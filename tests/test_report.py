"""Races as files: written and read back, what is no race refused, a bounded history, a report that stands alone."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_race import DIFFERS, start_fake_race
from fake_runtime import BUNDLED, FakeRuntime

from specui.compare.history import History, Kept, Record, read_record
from specui.compare.records import LaneSpec, RaceRequest
from specui.compare.report import export_csv, result_json, sentences
from specui.config import DraftingSettings, Limits, SamplingSettings, SpeculationMode, StepSettings
from specui.errors import SettingError, StorageError
from specui.generation import GenerationRequest, Message
from specui.ui.compare_board import beside, board, spans
from specui.ui.compare_history import races
from specui.ui.compare_report import report

EVIL = '<img src=x onerror="window.hacked=1"> ${1+1} {{value}}'
CONDITIONS = {"finished": "2026-03-01T12:30:00Z", "machine": {"processor": "Abacus 2"}, "versions": {"specui": "9"}}


def race(prompt: str = DIFFERS, repeats: int = 3, max_tokens: int = 40) -> Record:
    """Return a finished race of three lanes on the scripted runtime."""
    modes: tuple[SpeculationMode, ...] = ("none", "prompt-lookup", "draft-model")
    lanes = tuple(LaneSpec(mode, StepSettings(drafting=DraftingSettings(mode)), BUNDLED) for mode in modes)
    asked = GenerationRequest((Message("user", prompt),), limits=Limits(max_tokens=max_tokens))
    runtime = FakeRuntime(speed=400)
    handle = start_fake_race(runtime, RaceRequest(asked, lanes, repeats))
    try:
        result = handle.result().result
    finally:
        runtime.close()
    assert result is not None
    return Record(handle.request, result, CONDITIONS)


@pytest.fixture(scope="module")
def record() -> Record:
    return race()


# --- a file


def test_a_file_holds_what_the_command_line_prints_and_the_conditions(record: Record) -> None:
    values = json.loads(record.to_json())
    printed = json.loads(json.dumps(result_json(record.result)))
    assert {key: values[key] for key in printed} == printed
    assert values["conditions"] == CONDITIONS
    assert values["lanes"][2]["settings"]["drafting"]["speculation"] == "draft-model"


def test_a_file_read_back_is_the_same_race(record: Record) -> None:
    again = read_record(record.to_json())
    assert again.to_json() == record.to_json()
    assert export_csv(again.result) == export_csv(record.result)
    assert sentences(again.result) == sentences(record.result)
    assert board(again) == board(record)
    for mine, theirs in zip(again.result.lanes, record.result.lanes, strict=True):
        assert [spans(run) for run in mine.runs] == [spans(run) for run in theirs.runs]


Change = Callable[[dict[str, Any]], object]
CHANGES: dict[str, Change] = {
    "another format": lambda values: values.update(format="specui race 99"),
    "no lanes": lambda values: values.update(lanes=[]),
    "a lane twice": lambda values: values.update(lanes=[values["lanes"][0]] * 2),
    "a baseline that is no lane": lambda values: values.update(baseline="elsewhere"),
    "a mode that is none": lambda values: values["lanes"][0]["settings"]["drafting"].update(speculation="warp"),
    "text for a number": lambda values: values["lanes"][0]["repeats"][0]["stats"].update(decode_seconds=EVIL),
    "no number": lambda values: values["lanes"][0]["repeats"][0]["stats"].update(decode_seconds=float("nan")),
    "no end": lambda values: values["lanes"][0]["repeats"][0]["stats"].update(decode_seconds=float("inf")),
    "an origin that is none": lambda values: values["lanes"][0]["repeats"][0]["token_origins"].__setitem__(0, EVIL),
    "a length missing": lambda values: values["lanes"][0]["repeats"][0]["token_lengths"].pop(),
    "a repeat missing": lambda values: values["lanes"][1]["repeats"].pop(),
    "an order of another race": lambda values: values["orders"].__setitem__(0, ["none", "none", "none"]),
    "a field missing": lambda values: values.pop("messages"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_file_that_is_no_whole_race_is_refused(record: Record, change: Change) -> None:
    values = json.loads(record.to_json())
    change(values)
    with pytest.raises(SettingError, match="a race that SpecUI saved"):
        read_record(json.dumps(values))


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 100_000, '{"format": 1e999}', "<html>"])
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="a race that SpecUI saved"):
        read_record(text)


# --- the history


def test_a_history_survives_a_restart_newest_first(record: Record, tmp_path: Path) -> None:
    folder = tmp_path / "races"
    dates = ("2026-03-01T12:30:00Z", "2026-03-02T09:00:00Z", "2026-02-01T00:00:00Z")
    keys = [History(folder).save(replace(record, conditions={"finished": date})) for date in dates]
    kept = History(folder).kept()
    assert [each.key for each in kept] == [keys[1], keys[0], keys[2]]
    assert [each.record.finished for each in kept] == [dates[1], dates[0], dates[2]]
    assert kept[0].record.to_json() == replace(record, conditions={"finished": dates[1]}).to_json()


def test_races_of_one_second_stand_in_the_order_of_their_files(record: Record, tmp_path: Path) -> None:
    keys = []
    for number in range(6):
        conditions = {"finished": "2026-03-01T12:30:00Z", "number": number}
        keys.append(History(tmp_path).save(replace(record, conditions=conditions)))
        os.utime(tmp_path / f"{keys[-1]}.json", ns=(number, number))
    assert [each.key for each in History(tmp_path).kept()] == keys[::-1]


def test_a_history_is_bounded_and_holds_a_race_once(record: Record, tmp_path: Path) -> None:
    history = History(tmp_path, limit=2)
    for day in (1, 2, 2, 3):
        history.save(replace(record, conditions={"finished": f"2026-03-0{day}T12:30:00Z"}))
    assert [each.record.finished[:10] for each in history.kept()] == ["2026-03-03", "2026-03-02"]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_history_forgets_only_its_own(record: Record, tmp_path: Path) -> None:
    outside = tmp_path / "precious.json"
    outside.write_text("{}")
    history = History(tmp_path / "races")
    key = history.save(record)
    for wrong in ("../precious", "precious", "", "x" * 300):
        history.forget(wrong)
        assert history.find(wrong) is None
    assert outside.exists() and history.find(key) is not None
    history.forget(key)
    assert history.find(key) is None and history.kept() == ()


def test_files_that_are_no_races_are_passed_over(record: Record, tmp_path: Path) -> None:
    history = History(tmp_path)
    key = history.save(record)
    (tmp_path / "0000-aaaaaaaaaaaa.json").write_text("{")
    (tmp_path / "notes.json").write_text("[]")
    assert [each.key for each in history.kept()] == [key]


def test_a_folder_that_cannot_be_written_is_named(record: Record, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StorageError, match="SPECUI_HOME"):
        History(blocked / "races").save(record)
    assert History(blocked / "races").kept() == ()


# --- HTML


def test_a_report_stands_alone(record: Record) -> None:
    html = report(record)
    assert html.startswith("<!DOCTYPE html>")
    assert "<script" not in html and "http" not in re.sub(r"http-equiv", "", html), "nothing is fetched"
    assert "@import" not in html and "url(" not in html
    assert html.count("<svg") >= 9 and "--sp-draft:" in html and ".sp-tok-a" in html and ".sp-fill" in html
    assert "Abacus 2" in html and 'data-verdict="tie"' in html
    for line in sentences(record.result):
        assert line.replace("'", "&#x27;") in html


def test_what_anybody_wrote_is_text(record: Record) -> None:
    lanes = list(record.result.lanes)
    run = lanes[1].runs[0]
    pieces = (replace(run.pieces[0], text=EVIL), *run.pieces[1:])
    stats = replace(run.stats, speculation_off_reason=EVIL)
    runs = tuple(replace(each, pieces=pieces, text=EVIL + each.text, stats=stats) for each in lanes[1].runs)
    lanes[1] = replace(lanes[1], runs=runs, spec=replace(lanes[1].spec, label=EVIL), identical=False)
    prompt = replace(record.request.prompt, messages=(Message("user", EVIL),))
    files = replace(lanes[0].spec.files, target=Path(EVIL))
    lanes[0] = replace(lanes[0], spec=replace(lanes[0].spec, files=files))
    request = replace(record.request, prompt=prompt, lanes=tuple(lane.spec for lane in lanes))
    known = {"finished": EVIL, "machine": {EVIL: [EVIL]}, "versions": EVIL}
    evil = Record(request, replace(record.result, lanes=tuple(lanes)), known)
    key = "2026-abcdefabcdef"
    for html in (report(evil), beside(evil, evil), races((Kept(key, evil),)), spans(runs[0])):
        assert "<img" not in html and "&lt;img" in html


def test_a_fault_is_told_from_a_near_tie_and_sampling_from_both(record: Record) -> None:
    lanes = list(record.result.lanes)
    assert lanes[2].difference is not None and 'data-verdict="tie"' in board(record)
    lanes[2] = replace(lanes[2], difference=replace(lanes[2].difference, top_two_gap=3.0))
    faulty = replace(record, result=replace(record.result, lanes=tuple(lanes)))
    assert 'data-verdict="fault"' in board(faulty) and "3.0000" in board(faulty)
    sampling = StepSettings(SamplingSettings(temperature=0.8), lanes[2].spec.settings.drafting)
    lanes[2] = replace(lanes[2], spec=replace(lanes[2].spec, settings=sampling))
    sampled = replace(record, result=replace(record.result, lanes=tuple(lanes)))
    assert "sampled texts may differ" in board(sampled) and "data-verdict" not in board(sampled)
