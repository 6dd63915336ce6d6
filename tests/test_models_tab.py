"""The Models tab in a real browser, with real downloads from a Hub on this machine; only the runtime is scripted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import gradio as gr
import pytest
from fake_runtime import FakeRuntime
from hub_models import hub_of, model, tokens
from hub_server import HubRepo, HubState
from page_driver import Window, open_browser, serve, until
from playwright.sync_api import Browser, Locator, expect

from specui import headers, pairs
from specui.catalog import Catalog, user_file
from specui.errors import BusyError
from specui.ui.loader import PairLoader
from specui.ui.models import ModelsTab
from specui.ui.page import House

pytestmark = [
    pytest.mark.slow,
    # Two habits of gradio's own statistics that pandas frowns on.
    pytest.mark.filterwarnings("ignore:'future.no_silent_downcasting'"),
    pytest.mark.filterwarnings("ignore:The copy keyword is deprecated"),
]

WORDS = tokens(1_000)
CATALOGUE = """\
# My pairs
pairs:
- name: good
  title: A <b>good</b> pair
  target: {repo: maker/big-GGUF, file: "*Q4_K_M.gguf"}
  draft: {repo: maker/small-GGUF, file: small-Q8_0.gguf}
- name: other
  title: A pair that does not fit
  target: {repo: maker/big-GGUF, file: big-Q4_K_M.gguf}
  draft: {repo: maker/other-GGUF, file: other.gguf}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubState]:
    monkeypatch.setattr(headers, "_kept", headers._Kept())
    (tmp_path / "mine.yaml").write_text(CATALOGUE, encoding="utf-8")
    monkeypatch.setenv("SPECUI_MODELS", str(tmp_path / "mine.yaml"))
    big = {"big-Q4_K_M.gguf": model(WORDS, values=4_000_000), "big-Q8_0.gguf": model(WORDS, values=8_000_000)}
    repos = {
        "maker/big-GGUF": HubRepo({**big, "mmproj-big-Q8_0.gguf": model(WORDS)}, downloads=900),
        "maker/small-GGUF": HubRepo({"small-Q8_0.gguf": model(WORDS, values=1_000_000)}),
        "maker/other-GGUF": HubRepo({"other.gguf": model(tokens(1_000, {7: "<i>«</i>"}))}),
        "maker/<i>x</i>big": HubRepo({}, gated=True),
    }
    with hub_of(repos, tmp_path / "hf" / "hub", monkeypatch) as state:
        yield state


@pytest.fixture
def window(hub: HubState, browser: Browser, tmp_path: Path) -> Iterator[Window]:
    runtime = FakeRuntime()
    catalog = Catalog.load(tmp_path / "mine.yaml")
    with serve(House(runtime, PairLoader(runtime), catalog, pairs, "none")) as url:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        window = Window.open(context, url)
        window.tab("Models")
        yield window
        assert not window.outside, "the page itself must work offline"
        assert not window.errors
        context.close()
    runtime.close()


def row(window: Window, name: str) -> Locator:
    return window.page.locator(f"[data-pair='{name}']")


def press(place: Locator, label: str) -> None:
    place.get_by_role("button", name=label, exact=True).click()


class FullRuntime(FakeRuntime):
    """A runtime in whose line no more jobs are taken."""

    def unload(self) -> None:
        raise BusyError(8)


def test_an_unload_that_is_refused_is_said() -> None:
    runtime = FullRuntime()
    tab = ModelsTab(runtime, PairLoader(runtime), Catalog({}), pairs)
    event = gr.EventData(None, {"act": "unload", "name": ""})
    tab._on_choose(event)
    assert until(lambda: str(BusyError(8)) in tab._render_list(), 5)
    runtime.close()


def test_a_look_tells_before_anything_is_fetched(window: Window, hub: HubState) -> None:
    good, other = row(window, "good"), row(window, "other")
    press(good, "Look")
    expect(good.locator(".sp-facts")).to_contain_text("llama · 4 M parameters · F32 · 16 MB · context 8,192")
    expect(good.locator(".sp-facts")).to_contain_text("fits: 1,000 tokens in both")
    expect(good.locator(".sp-facts")).to_contain_text("20 MB to fetch")
    expect(good).to_contain_text("This will work here.")
    press(other, "Look")
    expect(other.locator(".sp-error")).to_have_text("draft off: token 7 is '<i>«</i>' and the target's is 'word7'")
    assert hub.sent_bytes < 4_000_000
    expect(good.locator(".sp-state")).to_have_text("not here yet")


def test_download_cancel_resume_load_delete(window: Window, hub: HubState) -> None:
    good = row(window, "good")
    hub.seconds_per_megabyte = 0.2
    press(good, "Download and load")
    expect(good.get_by_role("status")).to_contain_text(re.compile(r"\d+ % of 20 MB · [\d.]+ [kM]B/s · \d+ s left"))
    press(good, "Cancel")
    expect(good).to_contain_text("cancelled")
    expect(window.page.locator("#sp-badge b")).to_contain_text("SmolLM2")
    hub.seconds_per_megabyte = 0.05
    press(good, "Download and load")
    expect(good.get_by_role("status")).to_contain_text("Resuming")
    expect(good.locator(".sp-state")).to_have_text("in use")
    expect(good.get_by_text("Delete…")).to_have_count(0)
    expect(window.page.locator(".sp-models > .sp-status")).to_contain_text("Downloads: 20 MB on disk")


def test_deleting_asks_first_and_leaves_what_others_use(window: Window, hub: HubState) -> None:
    for name in ("good", "other"):
        pair = Catalog.load(user_file()).pair(name)
        sources = [source for source in (pair.target, pair.draft) if source is not None]
        pairs.hub.download(sources, lambda *_progress: None, lambda: False)  # type: ignore[attr-defined]
    good, other = row(window, "good"), row(window, "other")
    expect(good.locator(".sp-state")).to_have_text("on disk")
    expect(good.get_by_role("button", name="Delete 4 MB")).to_be_hidden()
    good.get_by_text("Delete…").click()
    expect(good).to_contain_text("What other pairs use stays.")
    press(good, "Delete 4.0 MB")
    expect(good.locator(".sp-state")).to_have_text("not here yet")
    expect(other.locator(".sp-state")).to_have_text("on disk")
    expect(window.page.locator(".sp-models")).to_contain_text("4.0 MB freed")


def test_a_draft_of_another_vocabulary_is_refused_before_the_download(window: Window, hub: HubState) -> None:
    other = row(window, "other")
    press(other, "Download and load")
    expect(other.get_by_role("alert")).to_contain_text("cannot draft for maker/big-GGUF big-Q4_K_M.gguf: token 7 is")
    expect(window.page.locator("#sp-badge b")).to_contain_text("SmolLM2")
    assert pairs.downloaded(Catalog.load(user_file()).pair("other")) == []


def test_find_your_own_on_the_hub(window: Window, hub: HubState) -> None:
    found = window.page.locator("#sp-found")
    window.page.get_by_label("Words to search").fill("BIG")
    press(window.page.locator("#sp-finder"), "Search")
    expect(found.locator("li")).to_have_count(2)
    expect(found.locator("li").nth(0)).to_contain_text("900 downloads")
    expect(found.locator("li").nth(1)).to_contain_text("maker/<i>x</i>big")
    expect(found.locator("li").nth(1)).to_contain_text("terms to accept first")
    press(found.locator("li").nth(0), "Files")
    expect(found.locator("li b")).to_have_text(["Q4_K_M", "Q8_0"])
    expect(found.locator("li").nth(1)).to_contain_text("32 MB")
    press(found.locator("li").nth(1), "Choose as target")
    expect(found.locator("li b")).to_have_text(
        ["maker/small-GGUF small-Q8_0.gguf", "maker/other-GGUF other.gguf", "No draft"]
    )
    expect(found.locator("li").nth(1)).to_contain_text("token 7 is '<i>«</i>' and the target's is 'word7'")
    press(found.locator("li").nth(0), "Add")
    expect(found).to_contain_text("was added to")
    own = row(window, "big-q8-0")
    expect(own.locator(".sp-state")).to_have_text("in use")
    text = user_file().read_text(encoding="utf-8")
    assert text.startswith(CATALOGUE)
    assert Catalog.load(user_file()).pair("big-q8-0").title == "big-Q8_0 with small-Q8_0"


def test_find_your_own_on_this_machine_and_what_is_said_when_nothing_is_there(
    window: Window, hub: HubState, tmp_path: Path
) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "local-Q4_0.gguf").write_bytes(model(WORDS, values=3_000_000))
    (folder / "tiny-Q8_0.gguf").write_bytes(model(WORDS))
    form, found = window.page.locator("#sp-finder"), window.page.locator("#sp-found")
    words = window.page.get_by_label("Words to search")
    for asked, said in (
        ("nothing of this name", "No repository with GGUF files"),
        ("maker/none", "no such repository"),
        (str(tmp_path / "none.gguf"), "no such file"),
    ):
        words.fill(asked)
        press(form, "Search")
        expect(found).to_contain_text(said)
    words.fill(str(folder))
    words.press("Enter")
    press(found.locator("li", has_text="Q4_0"), "Choose as target")
    found.get_by_label("Another draft").fill(str(folder / "tiny-Q8_0.gguf"))
    press(found, "Look")
    press(found.locator("li", has_text="tiny-Q8_0.gguf"), "Add")
    expect(row(window, "local-q4-0").locator(".sp-state")).to_have_text("in use")


def test_offline_with_a_full_cache_asks_nothing(window: Window, hub: HubState, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs.resolve(Catalog.load(user_file()).pair("good"), lambda _stage, _done, _total: None)
    hub.requests.clear()
    good = row(window, "good")
    press(good, "Load")
    expect(good.locator(".sp-state")).to_have_text("in use")
    assert until(lambda: not hub.requests, 1)
