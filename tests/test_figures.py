"""What the panel says of a mode's gain and of auto's choices, as HTML and in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from fake_runtime import FakeFinder, FakeRuntime, catalog, thinking_of
from page_driver import Window, open_browser, serve
from playwright.sync_api import Browser, expect

from specui.config import SpeculationMode
from specui.engine.stats import Stats
from specui.engine.thinking import ChoiceLog, MatchRate, Stair, Thinking
from specui.ui import figures, thinking
from specui.ui.loader import PairLoader
from specui.ui.page import House


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (0.71, "slower than none here: about 0.71 ×"),
        (0.969, "slower than none here: about 0.97 ×"),
        (0.97, "about as fast as none"),
        (1.03, "about as fast as none"),
        (1.42, "about 1.42 × none"),
        (None, ""),
    ],
)
def test_the_gain_in_words(estimate: float | None, words: str) -> None:
    stats = Stats(completion_tokens=40, estimated_speedup_vs_none=estimate)
    assert figures.against_none(stats).replace("\u00a0", " ") == words
    assert ("sp-losing" in figures.render(stats, ())) is words.startswith("slower")
    assert ("sp-gain" in figures.render(stats, ())) is bool(words)


def test_no_thinking_leaves_no_trace() -> None:
    assert thinking.render(None) == ""
    assert "How auto chooses" not in figures.render(Stats(), ())


def test_nothing_known_yet_can_be_drawn() -> None:
    html = thinking.render(Thinking())
    assert "0 steps" in html
    assert "nan" not in html and "None" not in html


def test_a_padded_row_shows_what_it_saves() -> None:
    dear, cheap = Stair(3, 0.0534, 4, 0.037), Stair(4, 0.037, 4, 0.037)
    html = thinking.staircase([dear, cheap])
    assert html.count("sp-saved") == 1
    assert 'title="3 rows: 53.4 ms; padded to 4 rows 37.0 ms"' in html
    assert "saved by padding" in html and "saved by padding" not in thinking.staircase([cheap])


def test_matches_are_named_by_their_class_and_pale_where_unseen() -> None:
    html = thinking.matches([MatchRate(1, 0.2, 9), MatchRate(2, 0.5, 34_000), MatchRate(4, 0.9, 0)])
    assert re.findall(r"<span>([^<]+)<br><small>([^<]+)<", html) == [("1", "9"), ("2–3", "34k"), ("4+", "0")]
    assert re.findall(r"data-unseen", html) == ["data-unseen"]


def test_the_strip_is_as_wide_as_the_steps_and_tells_shares() -> None:
    log = ChoiceLog()
    modes: tuple[SpeculationMode, ...] = ("none", "draft-model", "draft-model", "prompt-lookup")
    for mode, length in zip(modes, (0, 2, 4, 8), strict=True):
        log.add(mode, length)
    html = thinking.strip(log.choices())
    assert re.findall(r'data-drafter="([a-z-]+)"', html) == list(modes)
    heights = [float(height) for height in re.findall(r'<rect[^>]*height="([\d.]+)"', html)]
    assert heights == [thinking.LEAST_HEIGHT, 10.0, 20.0, 40.0]
    assert "none 25 %, prompt lookup 25 %, draft model 50 %" in html


# In a browser.


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


@pytest.fixture
def site() -> Iterator[tuple[str, FakeRuntime]]:
    runtime = FakeRuntime(speed=2.0)
    house = House(runtime, PairLoader(runtime), catalog(), FakeFinder(), "auto")
    with serve(house) as url:
        yield url, runtime
    runtime.close()


BROWSER = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:'future.no_silent_downcasting'"),
    pytest.mark.filterwarnings("ignore:The copy keyword is deprecated"),
]


@pytest.fixture
def window(browser: Browser, site: tuple[str, FakeRuntime]) -> Iterator[Window]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    window = Window.open(context, site[0])
    yield window
    assert not window.errors and not window.outside
    context.close()


class TestPage:
    """On runs of the scripted runtime."""

    pytestmark = BROWSER

    def test_auto_shows_its_thinking_folded_and_it_stays_unfolded(
        self, window: Window, site: tuple[str, FakeRuntime]
    ) -> None:
        window.send("long answer please")
        page = window.page
        expect(page.locator(".sp-fold-in")).to_be_visible()
        expect(page.locator(".sp-unfolded")).to_be_hidden()
        page.locator(".sp-fold-in").click()
        expect(page.locator(".sp-unfolded")).to_be_visible()
        expect(page.locator(".sp-fold-out")).to_be_focused()
        early = page.locator(".sp-strip figcaption").inner_text()
        expect(page.locator(".sp-strip figcaption")).not_to_have_text(early)  # the panel was written anew meanwhile
        expect(page.locator(".sp-unfolded")).to_be_visible()
        expect(page.locator(".sp-choice[data-drafter=draft-model]").first).to_be_attached()
        site[1].speed = 8.0
        expect(window.line).to_contain_text("tok/s")
        expect(page.locator(".sp-unfolded")).to_be_visible()
        page.locator(".sp-fold-out").click()
        expect(page.locator(".sp-unfolded")).to_be_hidden()

    def test_a_losing_mode_is_told_in_the_panel(self, window: Window, site: tuple[str, FakeRuntime]) -> None:
        site[1].plain_seconds = 0.004
        window.switch("prompt-lookup")
        window.ask("long answer please")
        expect(window.page.locator(".sp-figures .sp-losing")).to_contain_text("slower than none here: about 0.")
        expect(window.page.locator(".sp-thinking")).to_have_count(0)


def test_the_scripted_thinking_has_every_part() -> None:
    log = ChoiceLog()
    log.add("none", 0)
    known = thinking_of(log)
    assert known is not None and known.stairs and known.matches and known.choices
