"""A benchmark that keeps its prompts: each is read once, every mode goes on from it, and no first token is timed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bench_makers import bench, header, plan, prompt, run
from fake_runtime import FakeRuntime

from specui.bench import export


@pytest.fixture
def runtime() -> Iterator[FakeRuntime]:
    runtime = FakeRuntime(speed=10_000.0)
    yield runtime
    runtime.close()


def test_a_kept_prompt_is_read_once_before_any_of_its_runs(runtime: FakeRuntime, tmp_path: Path) -> None:
    planned = replace(plan(prompt("a", text="One."), prompt("b", text="Two."), repeats=2), keep_prompt=True)
    course = bench(runtime, planned, tmp_path)
    asked = [generation.request for generation in runtime.started[3:]]
    assert len(course.runs) == 12 and len(asked) == 12 + 4
    for place in range(0, 16, 4):
        reading, *runs = asked[place : place + 4]
        assert {request.messages for request in runs} == {reading.messages}
        assert (reading.fresh, reading.limits.max_tokens) == (True, 1)
        assert reading.settings.drafting.speculation == "draft-model", "the draft's memory is to hold it too"
        assert [request.fresh for request in runs] == [False] * 3
        assert {request.limits.max_tokens for request in runs} == {6}
    assert [request.messages[-1].content for request in asked[::4]] == ["One.", "Two.", "One.", "Two."]


def test_a_kept_prompt_is_read_again_behind_a_failed_run_and_a_start(runtime: FakeRuntime, tmp_path: Path) -> None:
    planned = replace(plan(prompt("a"), prompt("bad", text="fail now", max_tokens=40)), keep_prompt=True)
    planned = replace(planned, variants=planned.variants[:2])
    bench(runtime, planned, tmp_path)
    assert [(each.request.fresh, each.request.limits.max_tokens) for each in runtime.started[2:]] == [
        *[(True, 1), (False, 6), (False, 6)],
        *[(True, 1), (False, 40), (True, 1), (False, 40)],
    ]
    assert {each.request.settings.drafting.speculation for each in runtime.started[2::3]} == {"none"}


def test_a_kept_prompt_has_no_time_to_the_first_token() -> None:
    planned, runs = replace(plan(), keep_prompt=True), [run("none"), run("auto")]
    table = export.markdown(header(planned), runs)
    assert "| edit | none | 1 | 10.0 | – |" in table
    assert table.count(export.KEPT_NOTE) == 1 and export.KEPT_NOTE not in export.markdown(header(plan()), runs)
    summary = export.summary_dict(header(planned), runs)
    assert summary["modes"]["none"]["edit"]["time_to_first_token_seconds"] is None
    assert summary["settings"]["keep_prompt"] is True
