"""The page in a real browser: what models and people write, limits, models, and the sizes it is shown at."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from fake_runtime import FakeFinder, FakeRuntime, catalog
from page_driver import Window, open_browser, serve, until
from page_site import FAST, SLOW, Open, box_of, browser, context, open_window, runtime, site, window
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
        assert error.evaluate(left) == pytest.approx(box_of(box)["x"], abs=2), "the error stands at the box"
        context.close()
