"""The Compare tab: what its form asks for, and the tab in a real browser on scripted races and on the bundled pair."""

from __future__ import annotations

import csv
import io
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_race import DIFFERS, start_fake_race
from fake_runtime import BUNDLED, FakeFinder, FakeRuntime, catalog
from page_driver import Window, choose, file, fold_out, open_browser, serve, until
from playwright.sync_api import Browser, Page, expect

from specui import pairs
from specui.catalog import Catalog
from specui.compare.records import RaceRequest
from specui.config import DEFAULT_SUITE
from specui.errors import SettingError
from specui.runtime import Runtime
from specui.ui.compare_form import example_text, read_form
from specui.ui.conversation import Answer, Conversation, Turn
from specui.ui.loader import PairLoader
from specui.ui.page import House

FAST, WATCHED, SLOW = 40.0, 3.0, 0.2
DESKTOP, PHONE = (1280, 800), (390, 844)
EVIL = '<img src=x onerror="window.hacked=1"> ${window.hacked=1} {{value}}'
END_SECONDS = 1.5
"""Within a second the line is to be free; the rest is the browser's and this machine's."""
browsing = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:'future.no_silent_downcasting'"),
    pytest.mark.filterwarnings("ignore:The copy keyword is deprecated"),
]


# --- the form's values


LANES = [{"mode": "none", "length": ""}, {"mode": "draft-model", "length": "3"}, {"mode": "", "length": ""}]


def asked(**values: Any) -> RaceRequest:
    form = {"source": "own", "text": "Hello", "lanes": LANES, "repeats": "2", "max_tokens": "20", "temperature": "0"}
    return read_form({**form, **values}, BUNDLED)


def test_the_form_becomes_a_race() -> None:
    race = asked(seed="5")
    assert [lane.label for lane in race.lanes] == ["none", "draft-model:3"]
    assert race.lanes[1].settings.drafting.max_draft_tokens == 3
    assert (race.repeats, race.prompt.limits.max_tokens, race.cache) == (2, 20, "cleared")
    assert race.lanes[0].settings.sampling.seed is None, "nothing is drawn at temperature 0"
    assert race.prompt.messages[-1].content == "Hello"
    sampled = asked(temperature="0.7", seed="5").lanes[1].settings.sampling
    assert (sampled.temperature, sampled.seed) == (0.7, 5)


def test_lanes_of_one_mode_have_labels_of_their_own_and_the_twin_is_the_baselines() -> None:
    modes = [{"mode": "draft-model", "length": "3"}, {"mode": "draft-model", "length": "3"}, {"mode": "none"}]
    assert [lane.label for lane in asked(lanes=modes).lanes] == ["draft-model:3", "draft-model:3#2", "none"]
    assert [lane.label for lane in asked(lanes=modes, twin=True).lanes][-1] == "none#2"
    with pytest.raises(SettingError, match="Swap check"):
        asked(lanes=[*modes, {"mode": "auto"}], twin=True)


def test_an_example_and_the_conversation_are_prompts() -> None:
    assert asked(source="chat/debug-together").prompt.messages[0].role == "user"
    assert len(asked(source="chat/debug-together").prompt.messages) == 3
    assert example_text("chat/debug-together").count("\n\nassistant: ") == 1
    turns = (Turn("First?", Answer("One.")), Turn("Second?", Answer("Two.")))
    race = asked(source="chat", chat=Conversation("a", turns).to_json(), prefs='{"system": "Be brief."}')
    said = [(message.role, message.content) for message in race.prompt.messages]
    assert said == [("system", "Be brief."), ("user", "First?"), ("assistant", "One."), ("user", "Second?")]
    assert race.cache == "conversation"


def test_only_the_conversation_may_be_drafted_from_the_texts_of_the_chat() -> None:
    chat = {"source": "chat", "chat": Conversation("a", (Turn("First?", Answer("")),)).to_json(), "lanes": LANES}
    assert read_form(chat, BUNDLED, lambda: ("One text.", "Another.")).prompt.references == ("One text.", "Another.")
    own = {"source": "own", "text": "Hello", "lanes": LANES}
    assert read_form(own, BUNDLED, lambda: ("One text.",)).prompt.references == ()


@pytest.mark.parametrize(
    "values",
    [
        {"lanes": [{"mode": "none"}]},
        {"lanes": []},
        {"lanes": "none"},
        {"lanes": [{"mode": "none"}, {"mode": "warp"}]},
        {"lanes": [{"mode": "none"}, {"mode": "auto", "length": "0"}]},
        {"repeats": "0"},
        {"repeats": "many"},
        {"max_tokens": "-1"},
        {"temperature": "hot"},
        {"temperature": "nan"},
        {"temperature": "1", "seed": "-1"},
        {"source": "no/such-example"},
        {"source": "chat", "chat": ""},
        {"source": "chat", "chat": None, "prefs": 5},
    ],
)
def test_what_cannot_work_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        asked(**values)


# --- in the browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


@pytest.fixture
def runtime() -> Iterator[FakeRuntime]:
    runtime = FakeRuntime(speed=FAST)
    yield runtime
    runtime.close()


Open = Callable[..., Window]


@pytest.fixture
def house(runtime: FakeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setenv("SPECUI_HOME", str(tmp_path))
    return House(runtime, PairLoader(runtime), catalog(), FakeFinder(), "none", start_race=start_fake_race)


@pytest.fixture
def open_window(browser: Browser, house: House) -> Iterator[Open]:
    """Open windows on the Compare tab; at the end none may have asked anyone else, or met an error in a script."""
    yield from windows_on(house, browser)


def windows_on(house: House, browser: Browser) -> Iterator[Open]:
    windows: list[Window] = []
    with serve(house) as url:

        def opened(size: tuple[int, int] = DESKTOP) -> Window:
            context = browser.new_context(viewport={"width": size[0], "height": size[1]}, accept_downloads=True)
            page = context.new_page()
            window = Window(page, url)
            page.on("pageerror", lambda error: window.errors.append(str(error)))
            page.on("console", lambda said: window.errors.append(said.text) if said.type == "error" else None)
            page.on("request", lambda request: note(window, request.url))
            page.goto(url)
            window.tab("Compare")
            expect(page.locator(".sp-race-form")).to_be_visible()
            windows.append(window)
            return window

        yield opened
        for window in windows:
            assert window.errors == [] and window.outside == []
            window.page.context.close()


def note(window: Window, address: str) -> None:
    if not address.startswith((window.url, "data:", "blob:")):
        window.outside.append(address)


def start(page: Page, prompt: str, repeats: int = 3, max_tokens: int = 40) -> None:
    page.locator("textarea[name=text]").fill(prompt)
    page.locator("input[name=repeats]").fill(str(repeats))
    page.locator("input[name=max_tokens]").fill(str(max_tokens))
    page.locator(".sp-race-start").click()


def finish(page: Page, timeout_ms: int = 60_000) -> None:
    expect(page.locator(".sp-race-board")).to_be_visible(timeout=timeout_ms)
    expect(page.locator("[data-racing]")).to_have_count(0)


def save(page: Page, label: str) -> str:
    with page.expect_download() as download:
        page.locator(".sp-race-save").get_by_role("button", name=label).click()
    return Path(download.value.path()).read_text(encoding="utf-8")


def shown(page: Page, label: str, figure: str) -> str:
    return page.locator(f'.sp-race-table tr[data-lane="{label}"] [data-figure="{figure}"]').inner_text()


def check_figures(page: Page, values: dict[str, Any]) -> None:
    """Every figure on the page is the one in the file."""
    for lane in values["lanes"]:
        label, mode = lane["label"], values["modes"][lane["label"]]
        rates = [stats["decode_tokens_per_second"] for stats in mode["repeats"]]
        assert rates == [run["stats"]["decode_tokens_per_second"] for run in lane["repeats"]]
        median = f"{statistics.median(rates):,.1f}"
        assert shown(page, label, "speed") == median
        head = page.locator(f'#sp-lanes [data-lane="{label}"]')
        assert head.locator("[data-figure=speed]").inner_text() == median
        assert shown(page, label, "times") == f"{mode['speedup_vs_none']['median']:.2f} ×"
        accepted = [stats["acceptance_rate"] for stats in mode["repeats"]]
        words = "–" if accepted[0] is None else f"{100 * statistics.median(accepted):.0f} %"
        assert shown(page, label, "acceptance") == head.locator("[data-figure=acceptance]").inner_text() == words
        passes = statistics.median(stats["mean_acceptance_length"] for stats in mode["repeats"])
        assert shown(page, label, "per-pass") == head.locator("[data-figure=per-pass]").inner_text() == f"{passes:.2f}"
        first = statistics.median(stats["time_to_first_token_seconds"] for stats in mode["repeats"])
        assert shown(page, label, "first") == head.locator("[data-figure=first]").inner_text() == f"{first:.2f} s"
        place = values["lanes"].index(lane)
        text = page.locator(f"#sp-lane-text-{place}").evaluate(
            "(e) => [...e.querySelectorAll('i')].map((i) => i.textContent).join('')"
        )
        assert text == lane["repeats"][-1]["text"]


class TestInTheBrowser:
    """The tab as a person uses it."""

    pytestmark = browsing

    @pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
    def test_a_race_to_its_end(self, open_window: Open, size: tuple[int, int], tmp_path: Path) -> None:
        page = open_window(size).page
        page.locator("select[name=mode]").nth(3).select_option("auto")
        start(page, DIFFERS)
        finish(page)
        values = json.loads(save(page, "JSON"))
        assert [lane["label"] for lane in values["lanes"]] == ["none", "prompt-lookup", "draft-model", "auto"]
        check_figures(page, values)
        expect(page.locator(".sp-race-said p")).to_have_count(3)
        said = page.locator(".sp-race-said p").all_inner_texts()
        assert " x faster than none (" in said[0] and said[0].endswith("3 runs); same text")
        expect(page.locator("[data-verdict=tie]")).to_have_text("a near tie")
        assert page.locator("[data-plot]").count() == 4
        assert page.locator(".sp-race-line").count() == 4
        wide, room = page.locator("#sp-race").evaluate("(e) => [e.scrollWidth, e.clientWidth]")
        assert wide == room, "nothing is wider than the page"
        assert (tmp_path / "races").is_dir()
        tops = [page.locator(f"#sp-lane-text-{place}").bounding_box() for place in range(4)]
        assert len({box["y"] for box in tops if box}) == (1 if size == DESKTOP else 4), "side by side, or stacked"

    def test_figures_move_and_text_is_coloured_while_it_runs(self, open_window: Open, runtime: FakeRuntime) -> None:
        page = open_window().page
        runtime.speed = WATCHED / 2
        start(page, "long one", max_tokens=400, repeats=1)
        expect(page.locator("#sp-lane-text-1 .sp-tok-a").first).to_be_visible()
        expect(page.locator("#sp-race-status")).to_contain_text("repeat 1 of 1")
        lengths = []
        for _ in range(3):
            lengths.append(len(page.locator("#sp-lane-text-1").inner_text()))
            page.wait_for_timeout(700)
        assert lengths[0] < lengths[1] < lengths[2]
        assert float(page.locator("#sp-lane-head-1 [data-figure=speed]").inner_text()) > 10
        assert page.locator("#sp-lane-text-0 .sp-tok-a").count() == 0, "mode none drafts nothing"
        changes = page.evaluate(
            """() => new Promise((done) => { let changes = 0;
            const watcher = new MutationObserver(() => { changes += 1; });
            watcher.observe(document.querySelector('#sp-lane-text-1'), { childList: true, subtree: true });
            setTimeout(() => { watcher.disconnect(); done(changes); }, 2000); })"""
        )
        assert 2 <= changes <= 8, "about three times a second"
        page.locator("#sp-race-form .sp-race-stop").click()

    def test_stop_and_a_closed_page_free_the_line(self, open_window: Open, runtime: FakeRuntime, house: House) -> None:
        runtime.speed = SLOW
        for end in ("stop", "close"):
            page = open_window().page
            start(page, "long one", max_tokens=4000)
            expect(page.locator("#sp-lane-text-1 i").first).to_be_visible()
            assert runtime.queue_length() == 1
            begun, sessions = time.monotonic(), len(house.sessions)
            if end == "stop":
                page.locator("#sp-race-form .sp-race-stop").click()
            else:
                page.close()
            assert until(lambda: runtime.queue_length() == 0, 10)
            assert time.monotonic() - begun < END_SECONDS
            assert until(lambda: len(house.sessions) == sessions - (end == "close")), "a closed page is forgotten"  # noqa: B023
            if end == "stop":
                expect(page.locator("#sp-race-status")).to_contain_text("stopped")
                expect(page.locator(".sp-race-start")).to_be_visible()
                expect(page.locator(".sp-race-history li")).to_have_count(0)

    def test_two_windows_stand_in_one_line(self, open_window: Open, runtime: FakeRuntime) -> None:
        runtime.speed = WATCHED
        first, second = open_window(), open_window()
        start(first.page, "long first secret", max_tokens=300)
        expect(first.page.locator("#sp-race-status")).to_contain_text("repeat")
        start(second.page, "long second secret", max_tokens=10)
        expect(second.page.locator("#sp-race-status")).to_contain_text("waiting, 1 job ahead")
        first.page.locator("#sp-race-form .sp-race-stop").click()
        finish(second.page)
        assert "second secret" not in first.page.locator("#sp-race").inner_text()

    def test_save_and_bring_back(self, open_window: Open, tmp_path: Path) -> None:
        page = open_window().page
        start(page, DIFFERS)
        finish(page)
        saved, table = save(page, "JSON"), page.locator(".sp-race-table").inner_text()
        rows = list(csv.DictReader(io.StringIO(save(page, "CSV"))))
        assert len(rows) == 9 and {row["lane"] for row in rows} == {"none", "prompt-lookup", "draft-model"}
        html = save(page, "Report")
        assert html.startswith("<!DOCTYPE html>") and "<svg" in html and "<script" not in html
        other = open_window().page
        other.locator(".sp-race-history [data-act=forget]").click()
        expect(other.locator(".sp-race-history li")).to_have_count(0)
        file = tmp_path / "given.json"
        file.write_text(saved, encoding="utf-8")
        other.locator(".sp-race-history input[type=file]").set_input_files(file)
        finish(other)
        assert other.locator(".sp-race-table").inner_text() == table
        assert save(other, "JSON") == saved
        check_figures(other, json.loads(saved))
        expect(other.locator(".sp-race-history li")).to_have_count(1)
        file.write_text('{"format": "<img src=x onerror=window.hacked=1>"}', encoding="utf-8")
        other.locator(".sp-race-history input[type=file]").set_input_files(file)
        expect(other.locator("#sp-race-notice .sp-error")).to_contain_text("a race that SpecUI saved")

    def test_races_before_are_shown_again_and_side_by_side(self, open_window: Open) -> None:
        page = open_window().page
        for prompt in ("First race", "Second race"):
            start(page, prompt, repeats=2)
            expect(page.locator(".sp-race-history li[aria-current]")).to_contain_text(prompt)
            finish(page)
        later = open_window().page  # what a restart would show: it is read from files
        expect(later.locator(".sp-race-history li")).to_have_count(2)
        later.locator(".sp-race-open", has_text="First race").click()
        finish(later)
        expect(later.locator("#sp-race-status")).to_contain_text("First race")
        expect(later.locator("#sp-lanes .sp-lane-head")).to_have_count(3)
        pair = later.locator("[data-act=pair]")
        expect(pair).to_be_disabled()
        for box in later.locator(".sp-race-history li input").all():
            box.check()
        pair.click()
        expect(later.locator(".sp-race-beside > section")).to_have_count(2)
        assert later.locator(".sp-race-beside h3").all_inner_texts() == ["Second race", "First race"]

    def test_words_of_anybody_are_text(self, open_window: Open) -> None:
        page = open_window().page
        start(page, f"html {EVIL}", repeats=1, max_tokens=400)
        finish(page)
        page.locator(".sp-race-ran summary").click()
        assert EVIL in page.locator(".sp-race-ran").inner_text()
        assert EVIL in page.locator(".sp-race-history li").inner_text()
        assert '<img src=x onerror="window.hacked=1">' in page.locator("#sp-lane-text-1").inner_text()
        assert page.locator("#sp-race img, #sp-race style, #sp-race script").count() == 0
        html = save(page, "Report")
        assert page.evaluate("window.hacked") is None
        alone = page.context.new_page()
        alone.set_content(html)
        assert EVIL in alone.locator(".sp-race-asked").inner_text()
        assert alone.locator("img, script").count() == 0
        assert alone.evaluate("window.hacked") is None

    def test_the_form_is_kept_and_examples_are_shown(self, open_window: Open) -> None:
        window = open_window()
        page, text = window.page, window.page.locator("textarea[name=text]")
        text.fill("My words")
        page.locator("input[name=temperature]").fill("0.7")
        expect(page.locator("input[name=seed]")).to_be_enabled()
        page.locator("select[name=source]").select_option("story/last-bus")
        expect(text).to_have_value(example_text("story/last-bus"))
        expect(text).not_to_be_editable()
        page.locator("select[name=source]").select_option("chat")
        expect(text).to_have_value("There is no conversation in Chat yet.")
        page.locator(".sp-race-start").click()
        expect(page.locator("#sp-race-notice .sp-error")).to_contain_text("Chat has none yet")
        page.locator("select[name=source]").select_option("own")
        expect(text).to_have_value("My words")
        page.reload()
        window.tab("Compare")
        expect(text).to_have_value("My words")
        window.errors.clear()  # what gradio's client says while it is torn down is no error of the page
        expect(page.locator("input[name=temperature]")).to_have_value("0.7")

    def test_the_conversation_of_the_chat_is_raced(self, open_window: Open) -> None:
        window = open_window()
        page = window.page
        window.tab("Chat")
        window.ask("How does a bicycle stay upright?")
        choose(fold_out(window), file("notes.txt", "Notes on bicycles."))
        expect(page.locator("#sp-references li")).to_have_count(1)
        window.tab("Compare")
        page.locator("select[name=source]").select_option("chat")
        expect(page.locator("textarea[name=text]")).to_have_value("user: How does a bicycle stay upright?")
        page.locator(".sp-race-start").click()
        finish(page)
        values = json.loads(save(page, "JSON"))
        assert values["cache"] == "conversation"
        assert values["conditions"]["references"] == {"texts": 1, "bytes": 18}
        expect(page.locator(".sp-race-ran")).to_contain_text("drafts also fromtexts 1, bytes 18")

    def test_what_cannot_work_is_said(self, open_window: Open, runtime: FakeRuntime) -> None:
        page = open_window().page
        notice = page.locator("#sp-race-notice .sp-error")
        start(page, "   ")
        expect(notice).to_contain_text("blank")
        page.locator("select[name=mode]").nth(3).select_option("auto")
        page.get_by_label("Swap check").check()
        start(page, "Hi")
        expect(notice).to_contain_text("Swap check")
        page.get_by_label("Swap check").uncheck()
        start(page, "fail now")
        expect(page.locator("#sp-race-status .sp-error")).to_contain_text("lane none")
        assert runtime.queue_length() == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'future.no_silent_downcasting'")
@pytest.mark.filterwarnings("ignore:The copy keyword is deprecated")
def test_a_short_race_on_the_bundled_pair(
    browser: Browser, bundled_pair: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from specui.config import LoadSettings

    runtime = Runtime(LoadSettings(ctx_size=512))
    runtime.load(bundled_pair)
    monkeypatch.setenv("SPECUI_HOME", str(tmp_path))
    house = House(runtime, PairLoader(runtime), Catalog.default(), pairs, "none")
    try:
        for opened in windows_on(house, browser):
            page = opened().page
            start(page, "Count from one to ten in words.", repeats=2, max_tokens=24)
            finish(page, timeout_ms=80_000)
            values = json.loads(save(page, "JSON"))
            check_figures(page, values)
            assert values["conditions"]["model"]["target"]["file"] == bundled_pair.target.name
            assert values["modes"]["draft-model"]["repeats"][0]["num_accepted_tokens"] > 0
            assert runtime.queue_length() == 0
    finally:
        runtime.close()


def test_the_examples_are_those_of_the_suite() -> None:
    from specui.bench.suite import load_suite
    from specui.ui.compare_form import form

    html = form()
    assert html.count("<option value=") >= 2 + len(load_suite(DEFAULT_SUITE).prompts)
    assert "${" not in html and "{{" not in html and "`" not in html, "gradio would take it for a template"
