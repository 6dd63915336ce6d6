"""Serves a page in this process and drives it in a real browser; for the fake runtime and for a real one alike."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import Browser, BrowserContext, FilePayload, Locator, Page, expect, sync_playwright

from app import PageServer
from specui.ui.page import House

TIMEOUT_MS = 20_000
"""Long enough for a machine that is busy with something else."""

expect.set_options(timeout=TIMEOUT_MS)

BROWSER_ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
MODE_LABELS = {"none": "None", "prompt-lookup": "Prompt lookup", "draft-model": "Draft model", "auto": "Auto"}


def until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Return whether `condition` comes true within `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start a browser: the one named by CHROMIUM, else one of the system, else playwright's own."""
    names = (os.environ.get("CHROMIUM"), "/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=BROWSER_ARGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def serve(house: House) -> Iterator[str]:
    """Serve a house's page on a free port and yield its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = PageServer(house)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


@dataclass
class Window:
    """One browser window on the page. Requests to elsewhere and errors of scripts are collected."""

    page: Page
    url: str
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, context: BrowserContext, url: str) -> Window:
        window = cls(context.new_page(), url)
        page = window.page
        page.set_default_timeout(TIMEOUT_MS)
        page.on("request", lambda request: window._note(request.url))
        page.on("pageerror", lambda error: window.errors.append(str(error)))
        page.on("console", lambda said: window.errors.append(said.text) if said.type == "error" else None)
        page.goto(url)
        window.ready()
        return window

    def _note(self, address: str) -> None:
        if not address.startswith((self.url, "data:", "blob:")):
            self.outside.append(address)

    def reload(self) -> None:
        """Reload the page; what gradio's client says while it is torn down is no error of the page."""
        known = list(self.errors)
        self.page.reload()
        self.ready()
        self.errors[:] = known

    def ready(self) -> None:
        """Wait until the page answers to input."""
        expect(self.box).to_be_focused()

    @property
    def box(self) -> Locator:
        return self.page.get_by_label("Message")

    @property
    def answers(self) -> Locator:
        return self.page.locator("#sp-scroll .sp-answer")

    @property
    def running(self) -> Locator:
        return self.page.locator("[data-running]")

    @property
    def line(self) -> Locator:
        """The line of figures under the last answer."""
        return self.page.locator("#sp-thread .sp-line").last

    @property
    def notice(self) -> Locator:
        return self.page.locator("#sp-notice .sp-error")

    @property
    def badge_note(self) -> Locator:
        """What is said beside the model's name at the top."""
        return self.page.locator("#sp-badge .sp-badge-note")

    @property
    def pending(self) -> Locator:
        """The note that the switch is set otherwise than for the shown answer."""
        return self.page.locator(".sp-pending")

    def figure(self, name: str) -> str:
        """Return a figure of the panel: speed, acceptance, per-pass or first."""
        return self.page.locator(f"[data-figure={name}]").inner_text()

    def chart_modes(self) -> list[str]:
        """Return the modes seen in the strip chart, from left to right."""
        areas = self.page.locator(".sp-chart .sp-area")
        return [str(mode) for mode in areas.evaluate_all("areas => areas.map(area => area.dataset.mode)")]

    def send(self, text: str) -> None:
        """Type a message and press Enter."""
        self.box.fill(text)
        self.box.press("Enter")

    def ask(self, text: str) -> str:
        """Send a message and return the answer's text when it is complete."""
        before = self.page.locator("#sp-thread .sp-line").count()
        self.send(text)
        expect(self.page.locator("#sp-thread .sp-line")).to_have_count(before + 1)
        return self.answers.last.locator(".sp-text").inner_text()

    def switch(self, mode: str) -> None:
        """Flip the switch."""
        self.page.locator("#sp-switch label", has_text=MODE_LABELS[mode]).click()

    def press(self, label: str) -> None:
        """Press a button of the last answer."""
        self.answers.last.get_by_role("button", name=label, exact=True).click()

    def tab(self, name: str) -> None:
        """Show a tab."""
        self.page.get_by_role("tab", name=name).click()


def file(name: str, data: bytes | str) -> FilePayload:
    """Return a file to be chosen."""
    content = data.encode() if isinstance(data, str) else data
    return {"name": name, "mimeType": "application/octet-stream", "buffer": content}


def fold_out(window: Window) -> Locator:
    """Open the drafting settings of the chat and return the box of files that drafts may come from."""
    window.page.locator(".sp-fold > button", has_text="Drafting").click()
    box = window.page.locator(".sp-refs")
    expect(box).to_be_visible()
    return box


def choose(box: Locator, *files: FilePayload) -> None:
    """Add files to what drafts may come from."""
    box.get_by_label("Draft from these").set_input_files(list(files))
