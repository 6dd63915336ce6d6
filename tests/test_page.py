"""The page in a real browser, on a runtime that plays scripted answers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from fake_runtime import FakeFinder, FakeRuntime, catalog
from page_driver import Window, open_browser, serve, until
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

FAST, SLOW = 4.0, 1.0
Open = Callable[[], Window]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[str, FakeRuntime, FakeFinder]]:
    """One served page for all tests of this file; each test sets the runtime's speed as it needs."""
    runtime, finder = FakeRuntime(queue_limit=2), FakeFinder()
    house = House(runtime, PairLoader(runtime), catalog(), finder, "none")
    with serve(house) as url:
        yield url, runtime, finder
    runtime.close()


@pytest.fixture
def runtime(site: tuple[str, FakeRuntime, FakeFinder]) -> FakeRuntime:
    runtime = site[1]
    for generation in runtime.started:
        generation.cancel()
    assert until(lambda: not runtime.queue_length(), 5)
    runtime.started.clear()
    runtime.speed = FAST
    runtime.draft_off_reason = None
    return runtime


@pytest.fixture
def context(browser: Browser, runtime: FakeRuntime) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    yield context
    context.close()


@pytest.fixture
def open_window(context: BrowserContext, site: tuple[str, FakeRuntime, FakeFinder]) -> Iterator[Open]:
    """Open windows of one browser; at the end none may have asked anyone else, or met an error in a script."""
    windows: list[Window] = []

    def opened() -> Window:
        windows.append(Window.open(context, site[0]))
        return windows[-1]

    yield opened
    for window in windows:
        assert not window.outside, "the page must work offline"
        assert not window.errors


@pytest.fixture
def window(open_window: Open) -> Window:
    return open_window()


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
    end = _box(window.page.locator(".sp-axis-end"))
    for key in window.page.locator(".sp-keys .sp-key").all():
        assert not _overlap(_box(key), end), "the legend of four modes must leave room for the time"
        assert _box(key)["y"] + _box(key)["height"] <= _box(window.page.locator(".sp-positions"))["y"]


def _box(part: Locator) -> FloatRect:
    box = part.bounding_box()
    assert box is not None
    return box


def _overlap(one: FloatRect, other: FloatRect) -> bool:
    beside = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
    return not beside and one["y"] < other["y"] + other["height"] and other["y"] < one["y"] + one["height"]


def test_a_switch_after_the_answer_says_that_it_is_for_the_next(window: Window, runtime: FakeRuntime) -> None:
    window.switch("auto")
    assert not window.pending.is_visible(), "no answer stands yet"
    window.ask("First")
    expect(window.pending).to_be_hidden()
    window.switch("prompt-lookup")
    expect(window.pending).to_be_visible()
    switch, speed = _box(window.page.locator("#sp-switch")), _box(window.page.locator(".sp-speed"))
    note = _box(window.pending)
    assert not _overlap(note, switch) and not _overlap(note, speed)
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
    for window, secret in ((first, "secret-one"), (second, "secret-two")):
        window.reload()
        expect(window.page.locator(".sp-bubble")).to_contain_text(secret)


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


def test_html_of_a_model_is_text(window: Window) -> None:
    window.ask("html please")
    text = window.answers.last.locator(".sp-text")
    for written in ("<b>bold</b>", "List<String>", "<think>", "<style>body{display:none}</style>", "<script>"):
        expect(text).to_contain_text(written)
    assert (
        text.locator(".sp-code code").inner_text()
        == '<style>*{display:none}</style>\n<img onerror="window.hacked=1">\n'
    )
    assert text.locator("p code").inner_text() == "Map<K, V>"
    window.press("Tokens")
    expect(window.page.locator(".sp-tokens")).to_contain_text("<script>window.hacked=1</script>")
    assert window.page.locator("#sp-scroll :is(img, style, script, b:not(.sp-bar b))").count() == 0
    assert window.page.evaluate("window.hacked") is None
    assert window.page.locator("#sp-badge b").inner_text() == "SmolLM2-135M <b>F32</b>"


def test_html_of_a_person_is_text(window: Window) -> None:
    window.ask("<img src=x onerror=window.hacked=1> </textarea><b>me</b>")
    assert window.page.locator(".sp-bubble").inner_text() == "<img src=x onerror=window.hacked=1> </textarea><b>me</b>"
    assert window.page.evaluate("window.hacked") is None


def test_thoughts_are_folded(window: Window) -> None:
    assert window.ask("thought") == "The answer is 42."
    thoughts = window.answers.last.locator(".sp-thoughts")
    assert not thoughts.locator(".sp-thought").is_visible()
    thoughts.locator("summary").click()
    assert "First I think <b>hard</b>." in thoughts.locator(".sp-thought").inner_text()
    window.send("unclosed")
    expect(window.page.get_by_text("Thoughts (unfinished)")).to_be_visible()
    assert window.ask("and go on").startswith("A bicycle")


def test_every_token_shows_its_origin(window: Window) -> None:
    window.switch("prompt-lookup")
    window.ask("Colours please")
    answer = window.answers.last
    text = "".join(answer.locator(".sp-text p").first.all_inner_texts())
    window.press("Tokens")
    view = answer.locator(".sp-tokens")
    assert view.inner_text().replace("**", "").startswith(text)
    for letter in "arb":
        assert view.locator(f".sp-tok-{letter}").count() > 0
    expect(answer.locator(".sp-legend")).to_have_text("acceptedrecoveredbonustarget")
    window.press("Tokens")
    expect(answer.locator(".sp-text")).to_be_visible()


def test_refusals_keep_the_typed_text(window: Window, runtime: FakeRuntime) -> None:
    window.send("  \n ")
    expect(window.notice).to_contain_text("blank")
    assert not runtime.started
    runtime.speed = SLOW
    for _ in range(3):
        runtime.start(GenerationRequest((Message("user", "long"),)))
        time.sleep(0.05)
    window.send("Do not lose me")
    expect(window.notice).to_contain_text("Busy: 2 requests are waiting already")
    expect(window.box).to_have_value("Do not lose me")
    expect(window.page.locator(".sp-empty")).to_be_visible()


def test_sending_while_an_answer_is_written_keeps_the_text(window: Window, runtime: FakeRuntime) -> None:
    runtime.speed = SLOW
    window.send("long")
    expect(window.answers.last).to_contain_text("A bicycle")
    window.send("Me too")
    expect(window.notice).to_contain_text("stop it or wait")
    expect(window.box).to_have_value("Me too")
    expect(window.running).to_be_visible()


def test_a_failure_in_mid_answer_is_one_line_and_the_rest_stays(window: Window) -> None:
    window.send("fail now")
    expect(window.answers.last.get_by_role("alert")).to_have_text(
        "/models/target.gguf: the model failed in <b>mid-answer</b>"
    )
    assert "A bicycle" in window.answers.last.inner_text()
    assert "riding easy" in window.ask("Go on")


def test_long_messages(window: Window) -> None:
    window.send("y" * 80_000)
    expect(window.answers.last.get_by_role("alert")).to_contain_text("20,000 tokens but the context holds 4,096")
    assert "riding easy" in window.ask("x" * 50_000)


def test_limits_settings_and_notes(window: Window, runtime: FakeRuntime) -> None:
    window.page.get_by_role("button", name="Sampling and limits").click()
    limit = window.page.get_by_label("Answer limit")
    limit.fill("9")
    window.page.get_by_label("Seed").fill("77")
    window.page.get_by_label("Seed").press("Tab")
    window.ask("dropped turns")
    expect(window.page.locator(".sp-mark")).to_have_text("cut at the token limit (9)")
    expect(window.line).to_contain_text("seed 77")
    expect(window.answers.last).to_contain_text("2 old turns did not fit the context and were left out")
    limit.fill("0")
    limit.press("Tab")
    expect(window.notice).to_contain_text("max_tokens")
    window.send("Keep this")
    expect(window.box).to_have_value("Keep this")
    assert len(runtime.started) == 1


def test_an_example_starts_a_chat(window: Window, runtime: FakeRuntime) -> None:
    window.page.get_by_role("button", name="Edit this text").click()
    expect(window.line).to_be_visible()
    assert "lighthause" in runtime.started[0].request.messages[0].content


def test_models_are_fetched_with_progress_and_a_failure_leaves_the_old_one(
    window: Window, site: tuple[str, FakeRuntime, FakeFinder], runtime: FakeRuntime
) -> None:
    site[2].seconds = 2.0
    window.tab("Models")
    broken, qwen = (window.page.locator(f"[data-pair={name}]") for name in ("broken", "qwen"))
    broken.get_by_role("button", name="Load").click()
    expect(broken.get_by_role("alert")).to_have_text("/models/broken.gguf: is truncated at <b>40</b> %; fetch it again")
    expect(window.page.locator("[data-pair=bundled] .sp-state")).to_have_text("in use")
    expect(window.badge_note).to_have_text("load failed")
    window.tab("Chat")
    window.ask("Still there?")
    expect(window.badge_note).to_have_count(0)
    window.tab("Models")
    expect(broken.get_by_role("alert")).to_be_visible()
    qwen.get_by_role("button", name="Download and load").click()
    expect(qwen.get_by_role("status")).to_have_text(re.compile(r"downloading qwen.gguf… [1-9]\d? %"))
    qwen.get_by_role("button", name="Cancel").click()
    expect(qwen).to_contain_text("cancelled")
    site[2].seconds = 0.2
    qwen.get_by_role("button", name="Download and load").click()
    expect(qwen.locator(".sp-state")).to_have_text("in use")
    expect(window.page.locator("#sp-badge b")).to_have_text("Qwen2.5-0.5B-Instruct")
    window.page.locator("[data-pair=bundled]").get_by_role("button", name="Load").click()
    expect(window.page.locator("#sp-badge b")).to_contain_text("SmolLM2")
    assert runtime.loaded is not None


def test_without_a_model_the_chat_says_why(browser: Browser) -> None:
    runtime, finder = FakeRuntime(loaded=None), FakeFinder()
    house = House(runtime, PairLoader(runtime), catalog(), finder, "none")
    begin(house.loader, house.catalog.pair("broken"), finder)
    cause = "/models/broken.gguf: is truncated at <b>40</b> %; fetch it again"
    with serve(house) as url:
        window = Window.open(browser.new_context(), url)
        trouble = window.page.locator("#sp-trouble")
        expect(trouble).to_contain_text(cause)
        expect(window.badge_note).to_have_text("load failed")
        expect(window.badge_note).to_have_attribute("title", cause)
        window.send("Are you there?")
        expect(window.notice).to_have_text(f"No model is loaded. Broken pair: {cause}")
        expect(window.box).to_have_value("Are you there?")
        trouble.get_by_role("button", name="Models tab").click()
        window.page.locator("[data-pair=bundled]").get_by_role("button", name="Load").click()
        expect(window.page.locator("#sp-badge b")).to_contain_text("SmolLM2")
        expect(window.badge_note).to_have_count(0)
        window.tab("Chat")
        expect(trouble).to_be_hidden()
        assert "riding easy" in window.ask("And now?")
        window.page.context.close()
    runtime.close()


def test_the_page_fits_a_phone_and_a_laptop(browser: Browser, site: tuple[str, FakeRuntime, FakeFinder]) -> None:
    for width, height in ((390, 844), (1280, 800)):
        context = browser.new_context(viewport={"width": width, "height": height})
        page = context.new_page()
        page.goto(site[0])
        for part in ("#sp-box", "#sp-send", "#sp-switch label:nth-child(4)", "[data-figure=speed]"):
            expect(page.locator(part)).to_be_in_viewport(ratio=1)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.locator("#sp-box textarea").press("Enter")
        left = "line => line.getBoundingClientRect().left + parseFloat(getComputedStyle(line).paddingLeft)"
        error, box = page.locator("#sp-notice .sp-error"), page.locator("#sp-box textarea")
        assert error.evaluate(left) == pytest.approx(_box(box)["x"], abs=2), "the error stands at the box"
        context.close()
