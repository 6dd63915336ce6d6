"""The page in a browser for tests: one site on a scripted runtime, windows on it, nothing asked of anyone else."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fake_runtime import FakeFinder, FakeRuntime, catalog
from page_driver import Window, open_browser, serve, until
from playwright.sync_api import Browser, BrowserContext, FloatRect, Locator

from specui.ui.loader import PairLoader
from specui.ui.page import House

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


def box_of(part: Locator) -> FloatRect:
    box = part.bounding_box()
    assert box is not None
    return box


def overlap(one: FloatRect, other: FloatRect) -> bool:
    beside = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
    return not beside and one["y"] < other["y"] + other["height"] and other["y"] < one["y"] + one["height"]
