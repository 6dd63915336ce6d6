"""The page in a real browser, on a runtime that plays scripted answers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from fake_runtime import FakeFinder, FakeRuntime, catalog
from page_driver import Window, open_browser, serve, until
from page_site import FAST, SLOW, Open, box_of, browser, context, open_window, overlap, runtime, site, window
from playwright.sync_api import Browser, BrowserContext, FloatRect, Locator, expect

from specui.generation import GenerationRequest, Message
from specui.ui.loader import PairLoader
from specui.ui.models import begin
from specui.ui.page import House

pytestmark = [
    pytest.mark.slow,
    # Two habits of gradio's own statistics that pandas frowns on.
    pytest.mark.filterwarnings("ignore:'future.no_silent_downcasting'"),
    pytest.mark.filterwarnings("ignore:The copy keyword is deprecated"),
]


def test_an_answer_streams_and_ends_with_its_line(window: Window, runtime: FakeRuntime) -> None:
    runtime.speed = SLOW
    window.send("How does a bicycle stay upright?")
    expect(window.running).to_be_visible()
    expect(window.box).to_have_value("")
    expect(window.answers.last).to_contain_text("A bicycle")
    early = window.answers.last.inner_text()
    expect(window.answers.last).to_contain_text("Three things")
    assert len(window.answers.last.inner_text()) > len(early)
    runtime.speed = FAST
    expect(window.line).to_have_text(
        re.compile(r"none.*[\d.]+ tok/s · – accepted · 1\.0 tokens per pass · first token \d+\.\d\d s · seed 1234")
    )
    assert window.figure("acceptance") == "–"
    assert window.page.locator(".sp-text strong").inner_text() == "steers into the fall"
    expect(window.box).to_be_focused()


def test_the_switch_acts_inside_the_running_answer(window: Window, runtime: FakeRuntime) -> None:
    runtime.speed = 2.0
    window.send("long answer please")
    expect(window.page.locator(".sp-area[data-mode=none]")).to_be_visible()
    slow = float(window.figure("speed"))
    assert window.figure("per-pass") == "1.0"
    window.switch("prompt-lookup")
    expect(window.page.locator(".sp-area[data-mode=prompt-lookup]")).to_be_visible()
    window.page.wait_for_function(f"Number(document.querySelector('[data-figure=speed]').textContent) > {1.5 * slow}")
    assert window.running.is_visible(), "the answer that was running must be the one that changed"
    runtime.speed = 0.3
    window.switch("draft-model")
    expect(window.page.locator(".sp-area[data-mode=draft-model]")).to_be_visible()
    assert window.chart_modes() == ["none", "prompt-lookup", "draft-model"]
    assert float(window.figure("per-pass")) > 1.0
    assert window.figure("acceptance").endswith(" %")
    assert runtime.started[0].settings.drafting.speculation == "draft-model"
    window.switch("auto")
    expect(window.page.locator(".sp-area[data-mode=auto]")).to_be_visible()
    assert not window.pending.is_visible()
    window.page.keyboard.press("Tab")
    window.page.locator("#sp-stop").click()
    expect(window.line).to_contain_text("none → prompt lookup → draft model → auto")
    end = box_of(window.page.locator(".sp-axis-end"))
    for key in window.page.locator(".sp-keys .sp-key").all():
        assert not overlap(box_of(key), end), "the legend of four modes must leave room for the time"
        assert box_of(key)["y"] + box_of(key)["height"] <= box_of(window.page.locator(".sp-positions"))["y"]


def test_a_switch_after_the_answer_says_that_it_is_for_the_next(window: Window, runtime: FakeRuntime) -> None:
    window.switch("auto")
    assert not window.pending.is_visible(), "no answer stands yet"
    window.ask("First")
    expect(window.pending).to_be_hidden()
    window.switch("prompt-lookup")
    expect(window.pending).to_be_visible()
    switch, speed = box_of(window.page.locator("#sp-switch")), box_of(window.page.locator(".sp-speed"))
    note = box_of(window.pending)
    assert not overlap(note, switch) and not overlap(note, speed)
    window.switch("auto")
    expect(window.pending).to_be_hidden()
    window.switch("prompt-lookup")
    window.ask("Second")
    expect(window.pending).to_be_hidden()


def test_the_speed_and_its_unit_stand_together(window: Window) -> None:
    move = """text => {
        const number = document.querySelector("[data-figure=speed]"), range = document.createRange();
        number.textContent = text;
        range.selectNodeContents(number);
        const unit = document.querySelector(".sp-unit").getBoundingClientRect().left;
        return [unit, unit - range.getBoundingClientRect().right];
    }"""
    (narrow, gap), (wide, wide_gap) = (window.page.evaluate(move, text) for text in ("9.5", "88.8"))
    assert narrow == wide, "the unit must not jump"
    assert 0 < gap < 12 and 0 < wide_gap < 12


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_selected_tab_is_the_strongest(window: Window, scheme: Literal["light", "dark"]) -> None:
    window.page.emulate_media(color_scheme=scheme)
    window.page.reload()
    window.ready()
    window.errors.clear()  # what gradio's client says while it is torn down
    contrast = """tab => {
        const grey = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0);
        return Math.abs(grey(getComputedStyle(tab).color) - grey(getComputedStyle(document.body).backgroundColor));
    }"""
    chat, models = (window.page.get_by_role("tab", name=name).evaluate(contrast) for name in ("Chat", "Models"))
    assert chat > models + 60


def test_a_mode_that_is_off_is_said(window: Window, runtime: FakeRuntime) -> None:
    option = window.page.locator("#sp-switch label", has_text="Draft model")
    expect(option).not_to_have_attribute("title", re.compile("."))
    runtime.draft_off_reason = "draft.gguf: <b>no such file</b>"
    expect(option).to_have_attribute("title", "draft.gguf: <b>no such file</b>")
    window.switch("draft-model")
    window.ask("Hello")
    expect(window.line).to_contain_text("draft off: draft.gguf: <b>no such file</b>")
    expect(window.page.locator(".sp-figures .sp-off")).to_contain_text("draft off")


def test_stop_keeps_the_answer_and_frees_the_model(window: Window, runtime: FakeRuntime) -> None:
    runtime.speed = SLOW
    window.send("long")
    expect(window.answers.last).to_contain_text("A bicycle")
    window.page.locator("#sp-stop").click()
    expect(window.page.locator(".sp-mark")).to_have_text("stopped")
    assert "A bicycle" in window.answers.last.inner_text()
    assert until(lambda: not runtime.queue_length(), 5)
    runtime.speed = FAST
    assert "riding easy" in window.ask("Another one")
    assert [message.role for message in runtime.started[-1].request.messages] == ["user", "assistant", "user"]


def test_stop_in_the_queue_leaves_it_at_once(window: Window, runtime: FakeRuntime) -> None:
    runtime.speed = SLOW
    other = runtime.start(GenerationRequest((Message("user", "long"),)))
    window.send("I wait")
    expect(window.running).to_contain_text("waiting, 1 answer ahead")
    window.page.locator("#sp-stop").click()
    expect(window.running).to_have_count(0)
    expect(window.answers.last).to_contain_text("Stopped before the first token")
    assert not other.progress.over
    assert runtime.queue_length() == 1


def test_prefill_shows_its_progress(window: Window, runtime: FakeRuntime) -> None:
    runtime.speed = 0.5
    window.send("word " * 1600)
    expect(window.running).to_contain_text(re.compile(r"reading the prompt [\d,]+/2,000"))


def test_retry_edit_undo_and_clear(window: Window, runtime: FakeRuntime) -> None:
    window.ask("First question")
    window.ask("Second question")
    window.press("Retry")
    assert until(lambda: len(runtime.started) == 3)
    expect(window.running).to_have_count(0)
    assert runtime.started[2].request.messages == runtime.started[1].request.messages

    window.page.locator(".sp-user").first.hover()
    window.page.get_by_role("button", name="Edit").first.click()
    editor = window.page.get_by_label("Edit your message")
    expect(editor).to_have_value("First question")
    editor.fill("Changed question")
    editor.press("Enter")
    expect(window.page.locator(".sp-user")).to_have_count(1)
    expect(window.line).to_be_visible()
    assert [message.content for message in runtime.started[3].request.messages] == ["Changed question"]

    window.box.fill("half a thought")
    window.press("Undo")
    expect(window.box).to_have_value("Changed question\n\nhalf a thought")
    expect(window.page.locator(".sp-empty")).to_be_visible()

    window.ask("To be cleared")
    window.page.get_by_role("button", name="Clear").click()
    expect(window.page.locator(".sp-empty")).to_be_visible()
    window.reload()
    expect(window.page.locator(".sp-empty")).to_be_visible()


def test_a_reload_keeps_conversation_and_settings(window: Window) -> None:
    window.switch("prompt-lookup")
    window.page.get_by_role("button", name="Sampling and limits").click()
    window.page.get_by_label("Top-k").fill("7")
    window.page.get_by_label("Top-k").press("Tab")
    window.ask("Remember me")
    line = window.line.inner_text()
    window.reload()
    expect(window.page.locator(".sp-user .sp-bubble")).to_have_text("Remember me")
    assert window.line.inner_text() == line
    assert window.page.locator("#sp-switch input:checked").get_attribute("value") == "prompt-lookup"
    assert window.chart_modes() == ["prompt-lookup"]
    window.page.get_by_role("button", name="Sampling and limits").click()
    expect(window.page.get_by_label("Top-k")).to_have_value("7")


def test_a_reload_in_mid_answer_stops_it_and_keeps_its_part(window: Window, runtime: FakeRuntime) -> None:
    runtime.speed = SLOW
    window.send("long tale")
    expect(window.answers.last).to_contain_text("Three things")
    window.reload()
    assert until(lambda: not runtime.queue_length(), 5), "the answer of a page that is gone must end"
    expect(window.page.locator(".sp-mark")).to_have_text("stopped")
    expect(window.answers.last).to_contain_text("A bicycle stays")
    runtime.speed = FAST
    window.ask("And now?")
    assert [message.role for message in runtime.started[-1].request.messages] == ["user", "assistant", "user"]


def test_a_closed_tab_frees_the_model(open_window: Open, runtime: FakeRuntime) -> None:
    runtime.speed = 0.3
    window = open_window()
    window.send("long tale")
    expect(window.answers.last).to_contain_text("A bicycle")
    window.page.close()
    assert until(lambda: not runtime.queue_length(), 5)


def test_two_windows_share_one_line_and_nothing_else(open_window: Open, runtime: FakeRuntime) -> None:
    runtime.speed = SLOW
    first, second = open_window(), open_window()
    first.send("long secret-one")
    expect(first.answers.last).to_contain_text("A bicycle")
    second.switch("prompt-lookup")
    second.send("thought secret-two")
    expect(second.running).to_contain_text("waiting, 1 answer ahead")
    assert runtime.started[0].settings.drafting.speculation == "none", "a window's switch is its own"
    runtime.speed = 20
    expect(first.line).to_be_visible(timeout=20_000)
    expect(second.line).to_be_visible(timeout=20_000)
    assert "secret-two" not in first.page.locator("#sp-scroll").inner_text()
    assert "secret-one" not in second.page.locator("#sp-scroll").inner_text()
    for each, secret in ((first, "secret-one"), (second, "secret-two")):
        each.reload()
        expect(each.page.locator(".sp-bubble")).to_contain_text(secret)


def test_several_chats(window: Window) -> None:
    window.ask("Chat one")
    window.page.get_by_role("button", name="New chat").click()
    expect(window.page.locator(".sp-empty")).to_be_visible()
    window.ask("Chat two")
    window.page.locator(".sp-chats summary").click()
    window.page.get_by_role("button", name="Chat one").click()
    expect(window.page.locator(".sp-bubble")).to_have_text(["Chat one"])


def test_another_chat_may_be_opened_while_an_answer_is_written(window: Window, runtime: FakeRuntime) -> None:
    runtime.speed = SLOW
    window.send("long and left")
    expect(window.answers.last).to_contain_text("A bicycle")
    window.page.get_by_role("button", name="New chat").click()
    expect(window.page.locator(".sp-empty")).to_be_visible()
    assert until(lambda: not runtime.queue_length(), 5)
    runtime.speed = FAST
    window.ask("Fresh start")
    assert [message.content for message in runtime.started[-1].request.messages] == ["Fresh start"]
    window.page.locator(".sp-chats summary").click()
    window.page.get_by_role("button", name="long and left").click()
    expect(window.page.locator(".sp-mark")).to_have_text("stopped")
