"""The page: its tabs, theme, styles and script, put together and mounted on an application.

Everything is served from this machine: no fonts, scripts or styles from elsewhere, no analytics, no run history.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gradio as gr

from specui.catalog import Catalog
from specui.compare.race import start_race
from specui.config import SpeculationMode
from specui.ui.benchmark import BenchmarkTab
from specui.ui.chat import ChatTab
from specui.ui.compare import CompareTab, RaceRuntime, StartRace
from specui.ui.head import CALM, ScriptFirst
from specui.ui.loader import PairLoader
from specui.ui.models import ModelsTab
from specui.ui.sessions import Sessions
from specui.ui.shared import PairFinder

Application = Any
"""A FastAPI application: only app.py and the API name that library."""

QUEUE_SECONDS = 0.05
"""How often the page's queue looks for new events."""

HERE = Path(__file__).parent
STYLES = ("page.css", "references.css", "compare.css", "benchmark.css")
SCRIPTS = ("page.js", "references.js", "compare.js")
BRAND = '<div class="sp-brand">SpecUI<span>speculative decoding, live</span></div>'
FONT = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif"]
MONO = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace"]


@dataclass(slots=True)
class House:
    """What the page is built on."""

    runtime: RaceRuntime
    loader: PairLoader
    catalog: Catalog
    finder: PairFinder
    speculation: SpeculationMode
    sessions: Sessions = field(default_factory=Sessions)
    start_race: StartRace = start_race


def build(house: House) -> gr.Blocks:
    """Return the page's blocks."""
    models = ModelsTab(house.runtime, house.loader, house.catalog, house.finder)
    chat = ChatTab(house.runtime, house.sessions, house.loader, house.speculation)
    page: gr.Blocks
    with gr.Blocks(title="SpecUI", analytics_enabled=False, fill_width=True, elem_id="sp-page") as page:
        with gr.Row(elem_id="sp-top"):
            gr.HTML(BRAND, elem_id="sp-brand", apply_default_css=False)
            models.build_badge()
        with gr.Tabs(elem_id="sp-tabs"):
            with gr.Tab("Chat", id="chat"):
                chat.build(page, models.build_trouble)
            with gr.Tab("Compare", id="compare") as compare:
                CompareTab(house.runtime, house.sessions, house.start_race).build(page, compare)
            with gr.Tab("Benchmark", id="benchmark") as benchmark:
                BenchmarkTab(house.runtime, house.sessions).build(page, benchmark)
            with gr.Tab("Models", id="models"):
                models.build(page)
    return page


def mount(app: Application, page: gr.Blocks) -> None:
    """Mount the page at the root of `app`."""
    script = "\n".join((HERE / name).read_text(encoding="utf-8") for name in SCRIPTS)
    gr.mount_gradio_app(
        app,
        page,
        path="/",
        footer_links=[],
        run_history=False,
        show_error=False,
        ssr_mode=False,
        max_file_size="1mb",
        theme=gr.themes.Base(primary_hue="slate", neutral_hue="gray", font=FONT, font_mono=MONO),
        css="\n".join((HERE / name).read_text(encoding="utf-8") for name in STYLES),
        head=f"<script>\n{script}</script>",
    )
    app.add_middleware(ScriptFirst, script=CALM)
    # gradio looks for new events a thousand times a second, which takes the interpreter away from the engine's thread
    # (on Windows it looks twenty times, as here).
    page._queue.sleep_when_free = page._queue.progress_update_sleep_when_free = QUEUE_SECONDS


def end_streams(app: Application) -> None:
    """End the connections that open pages hold, from the event loop that serves them; the server shuts down."""
    for route in app.routes:
        stop = getattr(getattr(route, "app", None), "stop_event", None)
        if isinstance(stop, asyncio.Event):
            stop.set()
