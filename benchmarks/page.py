"""Speed through the page against the command line: `PYTHONPATH=.:tests python benchmarks/page.py [MODE] [REPEATS]`.

Serves the page in a process of its own with the bundled pair, sends a prompt in a real browser, and runs
`python -m specui generate` with the same prompt and settings before and after it: each page figure is held against
the mean of its two neighbours. All are the program's own; the browser draws on the same machine, as a user's would.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

from page_driver import Window, open_browser
from prompts import STORY

MAX_TOKENS = 512


def main() -> None:
    """Print one line a repeat and the median."""
    mode = sys.argv[1] if len(sys.argv) > 1 else "none"
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([sys.executable, "app.py", "--port", str(port), "--speculation", mode])
    try:
        wait_for(url)
        ratios = []
        with open_browser() as browser:
            window = Window.open(browser.new_context(viewport={"width": 1280, "height": 800}), url)
            _through_page(window)  # a warm-up
            before = _through_cli(mode)
            for _ in range(repeats):
                page, after = _through_page(window), _through_cli(mode)
                line, before = (before + after) / 2, after
                ratios.append(page / line)
                print(f"page {page:6.1f} tok/s, command line {line:6.1f} tok/s: {page / line:.3f}", flush=True)
        print(f"median {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    finally:
        server.terminate()
        server.wait()


def wait_for(url: str) -> None:
    """Wait until the page answers and its pair had time to load."""
    for _ in range(240):
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            break
        time.sleep(0.25)
    time.sleep(8)  # the pair loads in the background


def _through_page(window: Window) -> float:
    window.page.get_by_text("New chat").click()
    time.sleep(0.5)
    window.send(STORY)
    while window.page.locator("#sp-thread .sp-line").count() == 0:  # seldom: the asking costs time as well
        time.sleep(3)
    found = re.search(r"([\d.]+) tok/s", window.line.inner_text())
    return float(found.group(1)) if found else 0.0


def _through_cli(mode: str) -> float:
    command = [sys.executable, "-m", "specui", "generate", "--prompt", STORY, "--json", "--speculation", mode]
    done = subprocess.run([*command, "--max-tokens", str(MAX_TOKENS)], capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["stats"]["decode_tokens_per_second"])


if __name__ == "__main__":
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    main()
