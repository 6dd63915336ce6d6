"""The Benchmark tab: its HTML, the job behind it, and the tab in a real browser on a runtime that plays answers."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bench_makers import log, plan, prompt, run
from fake_runtime import BUNDLED, FakeFinder, FakeRuntime, catalog
from page_driver import Window, open_browser, serve, until
from playwright.sync_api import Browser, expect

from specui.bench.job import BenchJob, BenchProgress
from specui.bench.plan import Turn, parse_variants
from specui.config import DraftingSettings
from specui.errors import SettingError
from specui.generation import Generation
from specui.ui.benchmark import read_plan, size
from specui.ui.benchmark_board import board, status
from specui.ui.loader import PairLoader
from specui.ui.page import House

FAST, MIDDLE, SLOW = 400.0, 8.0, 4.0
browsing = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:'future.no_silent_downcasting'"),
    pytest.mark.filterwarnings("ignore:The copy keyword is deprecated"),
]


# --- HTML


def test_a_bar_is_as_long_as_its_speedup_and_marked_at_one() -> None:
    runs = [run("none"), run("auto", decode_seconds=0.5), run("none", repeat=1), run("auto", repeat=1)]
    html = board(runs)
    row = re.search(r'data-mode="auto".*?(?=<div class="sp-bench-row"|</section>)', html, re.DOTALL)
    assert row is not None
    assert '<b style="width:75.0%">' in row[0], "1.5 times none on an axis that ends at 2"
    assert '<u style="left:50.0%;width:50.0%">' in row[0], "from 1 to 2"
    assert '<i style="left:50.0%">' in row[0]
    assert "1.50 ×" in row[0] and "1.00–2.00" in row[0]


def test_all_kinds_stand_on_top_and_one_kind_stands_alone() -> None:
    one = [run("none"), run("auto")]
    assert re.findall(r'data-kind="(\w+)"', board(one)) == ["edit"]
    assert re.findall(r'data-kind="(\w+)"', board([*one, run("none", kind="story")])) == ["all", "edit", "story"]


def test_a_single_pair_has_no_interval() -> None:
    html = board([run("none"), run("auto", decode_seconds=0.5)])
    assert "2.00 ×" in html and "<u " not in html and "2.00–2.00" not in html


def test_answers_that_differ_are_marked() -> None:
    assert "1 with other tokens" in board([run("none"), run("auto", ids=(1, 2))])
    assert "other tokens" not in board([run("none"), run("auto")])


def test_auto_is_held_against_the_best_that_could_be_chosen_by_hand() -> None:
    rounds = [("none", 1.0), ("prompt-lookup:3", 0.5), ("draft-model", 0.8), ("auto", 0.4)]
    runs = [run(mode, decode_seconds=seconds, repeat=place) for place in range(2) for mode, seconds in rounds]
    html = board(runs)
    assert "auto against the best fixed mode here, prompt lookup, 3: 1.25 × (1.25 to 1.25)" in html
    assert "best fixed mode" not in board([each for each in runs if each.mode != "auto"])


def test_what_people_wrote_is_shown_as_text() -> None:
    evil = "<img src=x onerror=alert(1)>"
    turn = Turn(prompt(evil, evil), parse_variants("draft-model:3", DraftingSettings())[1], 0)
    progress = BenchProgress(phase="running", total=4, turn=turn, failures=(evil,) * 5, error=evil)
    html = status(progress) + board([run("none", kind=evil), run("auto", kind=evil, speculation_off_reason=evil)])
    assert "<img" not in html and "&lt;img" in html
    assert "draft model, 3" in html and "and 2 more failed" in html


def test_the_line_says_how_far_it_is() -> None:
    progress = BenchProgress(phase="running", done=1, total=4, place=2)
    assert "1 of 4 runs · warming up · 2 before it in the line" in status(progress)
    assert "width:25.0%" in status(progress) and "data-bench-running" in status(progress)
    for phase, words in (("done", "done: 1 of 4"), ("stopped", "stopped after 1"), ("failed", "ended after 1")):
        html = status(replace(progress, phase=phase))  # type: ignore[arg-type]  # one of its words
        assert words in html and "data-bench-running" not in html


# --- the form's values


def test_the_form_becomes_a_plan() -> None:
    planned = read_plan(("builtin", ["story", "edit"], ["auto"], 2, 1, 0, False))
    assert [each.key for each in planned.prompts] == ["edit/add-retries", "story/last-bus"]
    assert [each.label for each in planned.variants] == ["none", "auto"]
    assert planned.max_tokens is None and len(planned) == 8
    assert "2 prompts × 2 modes × 2 repeats = 8 runs" in size(planned)
    assert not planned.keep_prompt and read_plan(("builtin", ["edit"], [], 1, 1, 0, True)).keep_prompt
    assert len(read_plan(("builtin", ["edit"], [], 1, None, 30, False)).prompts) == 2
    with pytest.raises(SettingError, match="one kind"):
        read_plan(("builtin", [], ["auto"], 1, 1, None, False))
    with pytest.raises(SettingError, match="--repeats"):
        read_plan(("builtin", ["edit"], [], None, 1, None, False))


# --- the job


@pytest.fixture
def runtime() -> Iterator[FakeRuntime]:
    runtime = FakeRuntime(speed=FAST)
    yield runtime
    runtime.close()


def test_a_job_makes_its_runs_and_hands_out_every_answer(runtime: FakeRuntime, tmp_path: Path) -> None:
    planned, handed = plan(), list[Generation]()
    job = BenchJob(runtime, planned, log(tmp_path, planned), handed.append)
    assert job.wait(10)
    progress = job.progress
    assert (progress.phase, progress.done, progress.total, len(progress.runs)) == ("done", 6, 6, 6)
    assert handed == runtime.started


def test_another_pair_ends_the_job_and_its_run_is_not_kept(runtime: FakeRuntime, tmp_path: Path) -> None:
    planned = plan(prompt("a", text="long one", max_tokens=400), modes="none", repeats=50)
    runtime.speed = 20
    job = BenchJob(runtime, planned, log(tmp_path, planned), lambda generation: None)
    assert until(lambda: job.progress.tokens > 20)
    runtime.load(replace(BUNDLED, target=Path("/models/other.gguf")))
    runtime.speed = FAST
    assert job.wait(10)
    assert job.progress.phase == "failed" and "Another pair" in job.progress.error
    assert job.progress.runs == ()


def test_an_answer_ended_from_outside_ends_the_job(runtime: FakeRuntime, tmp_path: Path) -> None:
    """So it is when the program ends: every answer is cancelled."""
    planned, handed = plan(prompt("a", text="long one", max_tokens=4000)), list[Generation]()
    runtime.speed = SLOW
    job = BenchJob(runtime, planned, log(tmp_path, planned), handed.append)
    assert until(lambda: job.progress.phase == "running")
    handed[-1].cancel()
    assert job.wait(5)
    assert job.progress.phase == "stopped"


def test_a_mode_that_is_off_fails_the_job_with_the_reason(runtime: FakeRuntime, tmp_path: Path) -> None:
    runtime.draft_off_reason = "no such vocabulary"
    planned = plan()
    job = BenchJob(runtime, planned, log(tmp_path, planned), lambda generation: None)
    assert job.wait(10)
    assert job.progress.phase == "failed" and "no such vocabulary" in job.progress.error


# --- in the browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


Open = Callable[[], Window]


@pytest.fixture
def open_window(
    browser: Browser, runtime: FakeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Open]:
    """Open windows on the Benchmark tab; at the end none may have asked anyone else, or met an error in a script."""
    monkeypatch.setenv("SPECUI_HOME", str(tmp_path))
    house = House(runtime, PairLoader(runtime), catalog(), FakeFinder(), "none")
    windows: list[Window] = []
    with serve(house) as url:
        context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)

        def opened() -> Window:
            windows.append(Window.open(context, url))
            windows[-1].tab("Benchmark")
            return windows[-1]

        yield opened
        for window in windows:
            assert window.errors == [] and window.outside == []
        context.close()


class TestInTheBrowser:
    """The tab as a person uses it."""

    pytestmark = browsing

    def test_run_watch_download(self, open_window: Open, runtime: FakeRuntime, tmp_path: Path) -> None:
        window = open_window()
        page = window.page
        expect(page.locator("#sp-bench-size")).to_contain_text("8 prompts × 4 modes × 1 repeat = 32 runs")
        page.get_by_label("Free story").uncheck()
        expect(page.locator("#sp-bench-size")).to_contain_text("7 prompts × 4 modes × 1 repeat = 28 runs")
        page.get_by_label("Evaluate each prompt once").check()
        page.locator("#sp-bench-start").click()
        expect(page.locator("#sp-bench-status")).to_contain_text("done: 28 of 28 runs")
        expect(page.locator(".sp-bench-kind")).to_have_count(8)
        expect(page.locator(".sp-bench-kind[data-kind=all] .sp-bench-row")).to_have_count(4)
        folder = next((tmp_path / "bench").iterdir())
        records = (folder / "runs.jsonl").read_text()
        assert records.count("\n") == 29
        texts = {}
        for label in ("JSONL", "CSV", "Markdown", "CSV"):
            with page.expect_download() as download:
                page.get_by_role("button", name=label).click()
            texts[label] = Path(download.value.path()).read_text()
        assert texts["JSONL"] == records
        assert len(list(csv.DictReader(io.StringIO(texts["CSV"])))) == 28
        assert texts["Markdown"].startswith("# Benchmark: builtin")
        assert json.loads(records.splitlines()[0])["model"]["target"]["file"] == "target.gguf"
        assert sum(each.request.fresh for each in runtime.started) == 7, "each prompt is read once"

    def test_stop_a_second_window_and_a_chat_between_two_runs(self, open_window: Open, runtime: FakeRuntime) -> None:
        first = open_window()
        runtime.speed = MIDDLE
        first.page.locator("#sp-bench-start").click()
        expect(first.page.locator(".sp-bench-row[data-mode]").first).to_be_visible()
        runtime.speed = SLOW
        second = open_window()
        expect(second.page.locator("#sp-bench-status")).to_contain_text("of 32 runs")
        expect(second.page.locator("#sp-bench-stop")).to_be_visible()
        expect(second.page.locator("#sp-bench-start")).to_be_hidden()
        second.tab("Chat")
        assert "bicycle" in second.ask("How does a bicycle stay upright?"), "the chat gets its turn"
        first.page.locator("#sp-bench-stop").click()
        expect(first.page.locator("#sp-bench-status")).to_contain_text("stopped after")
        expect(first.page.locator("#sp-bench-start")).to_be_visible()
        assert until(lambda: runtime.queue_length() == 0, 5), "the line is free"

    def test_the_board_is_sent_once_a_run_and_not_with_every_token(
        self, open_window: Open, runtime: FakeRuntime
    ) -> None:
        page = open_window().page
        runtime.speed = MIDDLE
        page.locator("#sp-bench-start").click()
        expect(page.locator(".sp-bench-row[data-mode]").first).to_be_visible()
        runtime.speed = 0.5
        line = page.locator("#sp-bench-status .sp-status")
        page.wait_for_timeout(2500)  # what was under way arrives
        page.evaluate(
            """() => { window.changes = 0; new MutationObserver(() => { window.changes += 1; })
            .observe(document.querySelector('#sp-bench-board'), { childList: true, subtree: true }); }"""
        )
        before = line.inner_text()
        page.wait_for_timeout(3000)
        assert line.inner_text() != before, "the line goes on"
        assert page.evaluate("window.changes") == 0
        page.locator("#sp-bench-stop").click()
        expect(page.locator("#sp-bench-status")).to_contain_text("stopped after")

    def test_what_cannot_work_is_said(self, open_window: Open, runtime: FakeRuntime) -> None:
        page = open_window().page
        for box in page.locator("#sp-bench-form [data-testid=checkbox-group]").first.get_by_role("checkbox").all():
            box.uncheck()
        expect(page.locator("#sp-bench-size .sp-error")).to_contain_text("one kind at least")
        page.locator("#sp-bench-start").click()
        expect(page.locator("#sp-bench-notice .sp-error")).to_contain_text("one kind at least")
        assert runtime.started == []
