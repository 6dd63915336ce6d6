"""The box "Draft from these" in a real browser: files in, files refused, files out, and what the next answer gets."""

from __future__ import annotations

import re

import pytest
from fake_runtime import FakeRuntime
from page_driver import Window, choose, file, fold_out, until
from page_site import SLOW, Open, browser, context, open_window, runtime, site, window
from playwright.sync_api import FilePayload, Locator, expect

from specui.config import MAX_REFERENCE_BYTES

pytestmark = [
    pytest.mark.slow,
    # Two habits of gradio's own statistics that pandas frowns on.
    pytest.mark.filterwarnings("ignore:'future.no_silent_downcasting'"),
    pytest.mark.filterwarnings("ignore:The copy keyword is deprecated"),
]

HAND_OVER = """(box, [type, text, files]) => {
    const data = new DataTransfer();
    if (text) data.setData("text/plain", text);
    for (const [name, content] of files) data.items.add(new File([content], name));
    const event = type === "paste" ? new ClipboardEvent(type, { clipboardData: data, bubbles: true, cancelable: true })
        : new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true });
    return box.dispatchEvent(event);
}"""


def test_the_next_answer_gets_the_files_and_the_running_one_does_not(window: Window, runtime: FakeRuntime) -> None:
    box = fold_out(window)
    expect(box).to_contain_text("The model never reads them")
    window.ask("First")
    runtime.speed = SLOW
    window.send("long")
    expect(window.running).to_be_visible()
    choose(box, file("style.md", b"\xef\xbb\xbfBe brief.\r\n"), file("a <b>big</b> one.py", "x = 1\n" * 2000))
    expect(box.locator("li")).to_have_text([re.compile(r"style\.md14 bytes"), re.compile("a <b>big</b> one.py12 kB")])
    assert [generation.request.references for generation in runtime.started] == [(), ()]
    window.page.locator("#sp-stop").click()
    expect(window.running).to_have_count(0)
    runtime.speed = 20
    window.ask("Third")
    assert runtime.started[2].request.references == ("Be brief.\n", "x = 1\n" * 2000)
    assert [message.content for message in runtime.started[2].request.messages][-1] == "Third"


def test_what_cannot_be_used_is_said_and_the_others_stay(window: Window, runtime: FakeRuntime) -> None:
    box = fold_out(window)
    choose(box, file("good.txt", "Good text."))
    expect(box.locator("li")).to_have_count(1)
    picture = file("<i>x</i>.png", b"\x89PNG\r\n\x1a\n\0\0")
    choose(box, picture, file("fits.txt", "Fits."), file("empty.txt", ""), file("big.txt", "y" * MAX_REFERENCE_BYTES))
    expect(box.locator(".sp-error")).to_have_text(
        [
            "Draft from these: '<i>x</i>.png' cannot be used; expected a text file in UTF-8",
            "Draft from these: 'empty.txt' cannot be used; expected a file with something in it",
            "Draft from these: 'big.txt' cannot be used; expected at most 2 MB in all files together",
        ]
    )
    expect(box.locator("li b")).to_have_text(["good.txt", "fits.txt"])
    window.ask("And?")
    assert runtime.started[-1].request.references == ("Good text.", "Fits.")
    box.get_by_role("button", name="Remove good.txt").click()
    expect(box.locator("li b")).to_have_text(["fits.txt"])
    expect(box.locator(".sp-error")).to_have_count(0)
    window.ask("And now?")
    assert list(runtime.started[-1].request.references) == ["Fits."]


def test_many_refusals_are_counted(window: Window) -> None:
    box = fold_out(window)
    choose(box, *(file(f"{place}.bin", b"\0") for place in range(9)))
    expect(box.locator(".sp-error")).to_have_count(5)
    expect(box.locator(".sp-error").last).to_have_text("… and 5 more")


def test_the_same_file_again_takes_its_old_place(window: Window, runtime: FakeRuntime) -> None:
    box = fold_out(window)
    texts = ("old", "newer")
    for text in texts:
        choose(box, file("notes.txt", text))
        expect(box.locator("li")).to_have_text([re.compile(rf"notes\.txt{len(text)} bytes")])
    window.ask("Go")
    assert runtime.started[-1].request.references == texts[1:]


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_files_and_text_can_be_dropped_and_pasted(window: Window, runtime: FakeRuntime, way: str) -> None:
    box = fold_out(window)
    target = box.locator(".sp-refs-drop")
    for text, files in (("", [["a.txt", "From a file."]]), ("  Yesterday's answer\nsaid so.", [])):
        went_on = target.evaluate(HAND_OVER, [way, text, files])
        assert not went_on, "the browser must not open it itself"
        expect(box.locator("li")).to_have_count(1 if files else 2)
    expect(box.locator("li b")).to_have_text(["a.txt", "Yesterday's answer"])
    window.ask("Go")
    assert runtime.started[-1].request.references == ("From a file.", "  Yesterday's answer\nsaid so.")


def test_each_window_has_its_own_and_a_reload_begins_anew(open_window: Open, runtime: FakeRuntime) -> None:
    first, second = open_window(), open_window()
    box = fold_out(first)
    choose(box, file("secret.txt", "A secret."))
    expect(box.locator("li")).to_have_count(1)
    expect(fold_out(second).locator("li")).to_have_count(0)
    second.ask("Hello")
    assert runtime.started[-1].request.references == ()
    first.reload()
    expect(fold_out(first).locator("li")).to_have_count(0)
    first.ask("Hello")
    assert runtime.started[-1].request.references == ()


def test_the_keyboard_reaches_everything(window: Window) -> None:
    box = fold_out(window)
    choose(box, file("notes.txt", "Notes."))
    remove, chooser = box.get_by_role("button", name="Remove notes.txt"), box.get_by_label("Draft from these")
    expect(remove).to_be_visible()
    chooser.focus()
    window.page.keyboard.press("Tab")
    expect(remove).to_be_focused()
    window.page.keyboard.press("Enter")
    expect(box.locator("li")).to_have_count(0)
    expect(chooser).to_be_focused()


@pytest.mark.parametrize("width", [390, 1280])
def test_a_long_name_stays_in_the_panel(window: Window, width: int) -> None:
    window.page.set_viewport_size({"width": width, "height": 844})
    if width < 800:
        window.page.get_by_role("button", name="Chart and settings").click()
    box = fold_out(window)
    choose(box, file("n" * 200 + ".txt", "Notes."), file("\u0007" + "m" * 90, b"\0"))
    expect(box.locator("li")).to_have_count(1)
    assert window.page.evaluate("document.documentElement.scrollWidth") <= width
    side = window.page.locator("#sp-side")
    assert side.evaluate("side => side.scrollWidth <= side.clientWidth")
    remove = box.get_by_role("button", name="Remove")
    remove.scroll_into_view_if_needed()
    expect(remove).to_be_in_viewport(ratio=1)
