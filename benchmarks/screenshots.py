"""Pictures of the page for README: `PYTHONPATH=.:tests python benchmarks/screenshots.py FOLDER`.

Serves the page with the bundled pair, asks for an edit, flips the switch twice in mid-answer, and takes the page in
light, in dark, and at phone width.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from page import wait_for
from page_driver import Window, open_browser

FRAMES: dict[str, dict[str, Any]] = {
    "chat-light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "chat-dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "chat-phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "device_scale_factor": 2},
}


def main() -> None:
    """Write one PNG for each frame."""
    folder = Path(sys.argv[1])
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, "app.py", "--port", str(port)])
    try:
        wait_for(f"http://127.0.0.1:{port}")
        with open_browser() as browser:
            for name, options in FRAMES.items():
                window = Window(browser.new_context(**options).new_page(), f"http://127.0.0.1:{port}")
                window.page.goto(window.url)
                window.page.wait_for_timeout(4000)  # a phone's box takes no focus that could be waited for
                _converse(window, phone="phone" in name)
                window.page.screenshot(path=folder / f"{name}.png")
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


if __name__ == "__main__":
    main()
