"""The page in a real browser on the real bundled pair: what a newcomer does first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from page_driver import Window, open_browser, serve, until
from playwright.sync_api import expect

from specui import pairs
from specui.catalog import Catalog
from specui.config import DraftingSettings, Limits, StepSettings
from specui.generation import GenerationRequest, Message
from specui.runtime import Runtime
from specui.ui.loader import PairLoader
from specui.ui.page import House

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:'future.no_silent_downcasting'"),
    pytest.mark.filterwarnings("ignore:The copy keyword is deprecated"),
]

QUESTION = "Write a long story about a lighthouse keeper and her cat."


@pytest.fixture(scope="module")
def window(runtime: Runtime) -> Iterator[Window]:
    house = House(runtime, PairLoader(runtime), Catalog.default(), pairs, "none")
    with open_browser() as browser, serve(house) as url:
        yield Window.open(browser.new_context(viewport={"width": 1280, "height": 800}), url)


def test_the_switch_takes_effect_inside_the_answer_and_changes_nothing_in_it(window: Window, runtime: Runtime) -> None:
    request = GenerationRequest(
        messages=(Message("user", QUESTION),), settings=StepSettings(drafting=DraftingSettings()), limits=Limits()
    )
    alone = runtime.start(request).result()
    window.send(QUESTION)
    assert until(lambda: "none" in window.chart_modes(), 60), "the answer's first part is written without drafts"
    window.switch("draft-model")
    assert until(lambda: "draft-model" in window.chart_modes(), 60), "the switch shows in the running answer's chart"
    expect(window.page.locator("#sp-thread .sp-line")).to_have_count(1, timeout=120_000)
    line = window.line.inner_text()
    assert "% accepted" in line and "tok/s" in line
    assert window.errors == [] and window.outside == []
    shown = window.answers.last.locator(".sp-text").inner_text()
    assert shown.split()[:60] == alone.text.split()[:60], "the text is that of mode none"


def test_stop_keeps_what_was_written_and_the_next_answer_comes(window: Window, runtime: Runtime) -> None:
    window.send("Count from one to two hundred in words.")
    assert until(lambda: len(window.page.locator("#sp-live").inner_text()) > 80, 60), "some text is there"
    window.page.locator("#sp-stop").click()
    expect(window.page.locator("#sp-thread .sp-line")).to_have_count(2)
    assert "stopped" in window.answers.last.inner_text().lower()
    assert until(lambda: runtime.queue_length() == 0, 5), "the line is free at once"
    assert window.ask("Say hello.").strip()
