"""What showing a race costs: `PYTHONPATH=.:tests python benchmarks/race_page.py [REPEATS]`.

Plays one race on the page in a real browser and the same race with `python -m specui compare`, in turn, on the bundled
pair. Prints compute time per token on the page against the command line, by mode, and the median over all.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

from page import wait_for
from page_driver import Window, open_browser
from prompts import STORY
from test_compare_tab import save, start

MODES = "none,prompt-lookup,draft-model"
RUNS, MAX_TOKENS = 3, 128


def main() -> None:
    """Print the ratios by mode for each repeat and the median."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, "app.py", "--port", str(port)])
    ratios: list[float] = []
    try:
        wait_for(f"http://127.0.0.1:{port}")
        with open_browser() as browser:
            context = browser.new_context(viewport={"width": 1280, "height": 800})
            page = Window.open(context, f"http://127.0.0.1:{port}").page
            page.get_by_role("tab", name="Compare").click()
            for _ in range(repeats):
                shown, plain = _on_page(page), _on_command_line()
                found = {mode: shown[mode] / plain[mode] for mode in MODES.split(",")}
                ratios += found.values()
                print(", ".join(f"{mode} {ratio:.3f}" for mode, ratio in found.items()), flush=True)
        print(f"median {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    finally:
        server.terminate()
        server.wait()


def _on_page(page: Any) -> dict[str, float]:
    start(page, STORY, repeats=RUNS, max_tokens=MAX_TOKENS)
    time.sleep(5)
    while page.locator("[data-racing]").count():  # seldom: the asking costs time as well
        time.sleep(3)
    time.sleep(1)
    return _seconds_per_token(json.loads(save(page, "JSON")))


def _on_command_line() -> dict[str, float]:
    command = [sys.executable, "-m", "specui", "compare", "--prompt", STORY, "--modes", MODES, "--json"]
    done = subprocess.run(
        [*command, "--repeats", str(RUNS), "--max-tokens", str(MAX_TOKENS)], capture_output=True, text=True, check=True
    )
    return _seconds_per_token(json.loads(done.stdout))


def _seconds_per_token(values: Any) -> dict[str, float]:
    return {
        mode: statistics.median(run["decode_seconds"] / run["completion_tokens"] for run in found["repeats"])
        for mode, found in values["modes"].items()
    }


if __name__ == "__main__":
    main()
