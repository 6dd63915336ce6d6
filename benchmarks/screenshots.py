"""Pictures of the page for README: `PYTHONPATH=.:tests python benchmarks/screenshots.py FOLDER [NAME…]`.

Serves the page with the bundled pair. For the chat it asks for an edit and flips the switch twice in mid-answer; for
Compare it plays a race to its end. Each name is a file: a tab in light, in dark, or at phone width; without one, all.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from page import wait_for
from page_driver import Window, open_browser

FRAMES: dict[str, dict[str, Any]] = {
    "chat-light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "chat-dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "chat-phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "device_scale_factor": 2},
    "compare-light": {"viewport": {"width": 1280, "height": 1290}, "color_scheme": "light"},
}
RACE_PROMPT = "Write the multiplication table of seven, from 7 x 1 to 7 x 15, one line each."
RACE_LANES = ("none", "prompt-lookup", "draft-model", "auto")
RACE_MS = 300_000


def main() -> None:
    """Write one PNG for each frame."""
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(FRAMES)
    with _page() as url, open_browser() as browser:
        for name in names:
            window = Window(browser.new_context(**FRAMES[name]).new_page(), url)
            window.page.goto(window.url)
            window.page.wait_for_timeout(4000)  # a phone's box takes no focus that could be waited for
            if name.startswith("compare"):
                _race(window)
            else:
                _converse(window, phone="phone" in name)
            window.page.screenshot(path=folder / f"{name}.png")


@contextmanager
def _page() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, "app.py", "--port", str(port)])
    try:
        wait_for(f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _converse(window: Window, phone: bool) -> None:
    window.page.locator(".sp-example").first.click()
    window.page.wait_for_timeout(500)
    if window.box.input_value():
        window.box.press("Enter")
    if not phone:
        for mode in ("prompt-lookup", "draft-model", "auto"):
            time.sleep(1.2)
            window.switch(mode)
    window.line.wait_for(timeout=60_000)
    window.page.wait_for_timeout(800)


def _race(window: Window) -> None:
    window.tab("Compare")
    page = window.page
    page.locator("textarea[name=text]").fill(RACE_PROMPT)
    for place, mode in enumerate(RACE_LANES):
        page.locator("select[name=mode]").nth(place).select_option(mode)
    page.locator(".sp-race-start").click()
    page.locator(".sp-race-board").wait_for(timeout=RACE_MS)
    page.wait_for_timeout(800)


if __name__ == "__main__":
    main()
