"""The Benchmark tab: choose a suite, kinds of work, modes and repeats; run, watch, stop, download.

One benchmark at a time for all open pages, since there is one model. Its runs take their turns in the line around the
model. A page asks every second how far it is; the board is sent again only when a run was finished.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import gradio as gr

from specui.bench import conditions, export
from specui.bench.job import BenchJob, BenchProgress
from specui.bench.plan import Plan, parse_variants
from specui.bench.records import RunLog
from specui.bench.suite import Selection, builtin_names, load_suite
from specui.config import (
    BASELINE,
    DEFAULT_SUITE,
    PAGE_BENCH_LIMIT,
    PAGE_BENCH_REPEATS,
    SPECULATION_MODES,
    DraftingSettings,
    home,
)
from specui.errors import NothingLoadedError, SettingError, SpecUIError
from specui.ui import thread
from specui.ui.benchmark_board import board, kind_name, status
from specui.ui.sessions import Sessions
from specui.ui.shared import DIRECT, MODE_NAMES, ModelRuntime, count

Updates = dict[Any, Any]

POLL_SECONDS = 1.0
SESSION = "benchmark"
"""The running answer is kept among the pages' own, so that it ends with them when the program ends."""

SAVE = """
element.addEventListener('click', (event) => {
  const button = event.target.closest('[data-save]');
  if (button) trigger('save', { kind: button.dataset.save });
})"""
DOWNLOAD = """
watch('value', () => {
  if (!props.value) return;
  const file = JSON.parse(props.value), link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([file.text], { type: 'text/plain' }));
  link.download = file.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
})"""


def records_folder() -> Path:
    """Return a fresh folder for the records of a benchmark that was started on the page."""
    return home() / "bench" / conditions.now().replace(":", "")


class BenchmarkTab:
    """Layout and events of the tab; `build` is called inside the tab."""

    def __init__(self, runtime: ModelRuntime, sessions: Sessions) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._job: BenchJob | None = None
        self._starting = threading.Lock()
        self._saved = 0

    def build(self, page: gr.Blocks, tab: gr.Tab) -> None:
        """Make the tab."""
        with gr.Column(elem_id="sp-bench"):
            with gr.Column(elem_id="sp-bench-form"):
                self._build_form()
            with gr.Row(elem_id="sp-bench-go"):
                self._start = gr.Button("Start", variant="primary", elem_id="sp-bench-start", min_width=72, scale=0)
                self._stop = gr.Button("Stop", variant="stop", elem_id="sp-bench-stop", min_width=72, scale=0)
                self._size = gr.HTML(elem_id="sp-bench-size", apply_default_css=False)
            self._notice = gr.HTML("", elem_id="sp-bench-notice", apply_default_css=False)
            self._status = gr.HTML("", elem_id="sp-bench-status", apply_default_css=False)
            self._board = gr.HTML(board(()), js_on_load=SAVE, elem_id="sp-bench-board", apply_default_css=False)
        self._file = gr.HTML("", html_template="", js_on_load=DOWNLOAD, visible="hidden", apply_default_css=False)
        self._seen = gr.State(-1)
        self._timer = gr.Timer(POLL_SECONDS, active=False)
        self._wire(page, tab)

    def _build_form(self) -> None:
        kinds = load_suite(DEFAULT_SUITE).kinds
        modes = [mode for mode in SPECULATION_MODES if mode != BASELINE]
        self._suite = gr.Dropdown(
            list(builtin_names()), value=DEFAULT_SUITE, label="Suite", visible=len(builtin_names()) > 1
        )
        self._kinds = gr.CheckboxGroup(_kind_choices(kinds), value=list(kinds), label="Kinds of work")
        choices = [(MODE_NAMES[mode], mode) for mode in modes]
        self._modes = gr.CheckboxGroup(choices, value=modes, label="Modes, each against none")
        with gr.Row(elem_id="sp-bench-numbers"):
            self._repeats = gr.Number(PAGE_BENCH_REPEATS, label="Repeats", precision=0, min_width=90)
            self._limit = gr.Number(
                PAGE_BENCH_LIMIT, label="Prompts of a kind", precision=0, min_width=90, placeholder="all"
            )
            self._longest = gr.Number(None, label="Answer limit", precision=0, min_width=90, placeholder="prompt's own")
        self._keep = gr.Checkbox(
            False, label="Evaluate each prompt once for all modes", container=False, elem_id="sp-bench-keep"
        )

    def _wire(self, page: gr.Blocks, tab: gr.Tab) -> None:
        form: list[Any] = [self._suite, self._kinds, self._modes, self._repeats, self._limit, self._longest, self._keep]
        shown = [self._status, self._board, self._notice, self._seen, self._timer]
        self._start.click(self._on_start, form, shown, **DIRECT)
        self._stop.click(self._on_stop, None, None, **DIRECT)
        self._timer.tick(self._on_tick, self._seen, shown, **DIRECT)
        self._board.save(self._on_save, None, self._file, **DIRECT)
        self._suite.input(self._on_suite, self._suite, self._kinds, **DIRECT)
        for widget in form:
            widget.input(self._on_form, form, self._size, **DIRECT)
        page.load(lambda: None, None, self._longest, **DIRECT)  # a number made without a value shows 0
        for opened in (page.load, tab.select):
            opened(self._on_tick, self._seen, shown, **DIRECT)
            opened(self._on_form, form, self._size, **DIRECT)

    def _on_start(self, *values: Any) -> Updates:
        try:
            with self._starting:  # two windows may press the button at the same moment
                if self._job is None or self._job.progress.over:
                    self._job = self._begin(read_plan(values))
        except SpecUIError as error:
            return {self._notice: thread.error(str(error))}
        return self._shown(-1) | {self._notice: ""}

    def _begin(self, planned: Plan) -> BenchJob:
        pair = self._runtime.loaded
        if pair is None:
            raise NothingLoadedError
        log = RunLog(records_folder(), conditions.header(planned, pair, {}))
        session = self._sessions.get(SESSION)

        def keep(generation: Any) -> None:
            session.generation = generation

        return BenchJob(self._runtime, planned, log, keep)

    def _on_stop(self) -> None:
        if self._job is not None:
            self._job.stop()

    def _on_tick(self, seen: int) -> Updates:
        return self._shown(seen)

    def _shown(self, seen: int) -> Updates:
        """Return the line of progress, and the board if a run was finished since version `seen`."""
        progress = self._job.progress if self._job is not None else None
        if progress is None:
            return {self._status: "", self._timer: gr.Timer(active=False)}
        updates: Updates = {self._status: status(progress), self._timer: gr.Timer(active=not progress.over)}
        if self._version(progress) != seen:
            updates |= {self._board: board(progress.runs), self._seen: self._version(progress)}
        return updates

    def _version(self, progress: BenchProgress) -> int:
        """Return a number that differs from one benchmark to the next, too."""
        return hash((id(self._job), progress.version))

    def _on_form(self, *values: Any) -> str:
        """Say how many runs are chosen."""
        try:
            return size(read_plan(values))
        except SpecUIError as error:
            return thread.error(str(error))

    def _on_suite(self, name: str) -> Any:
        """Another suite brings other kinds."""
        kinds = load_suite(name).kinds
        return gr.CheckboxGroup(_kind_choices(kinds), value=list(kinds))

    def _on_save(self, event: gr.EventData) -> str:
        """Send a file to the browser, which saves it."""
        if self._job is None:
            return ""
        log, self._saved = self._job.log, self._saved + 1
        texts = {
            "jsonl": lambda: export.jsonl(log.header, log.runs),
            "csv": lambda: export.runs_csv(log.runs),
            "md": lambda: export.markdown(log.header, log.runs),
        }
        name = f"specui-{log.header['suite']['name']}.{event.kind}"
        return json.dumps({"name": name, "text": texts[str(event.kind)](), "number": self._saved})


def _kind_choices(kinds: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(kind_name(kind), kind) for kind in kinds]


def read_plan(values: tuple[Any, ...]) -> Plan:
    """Return the plan for the widgets' values; a limit left blank or at 0 is none. Raises SettingError."""
    name, kinds, modes, repeats, limit, longest, keep = values
    suite = load_suite(name)
    if not kinds:
        raise SettingError("Kinds of work", "", "one kind at least")
    selection = Selection(tuple(kinds), limit=int(limit) if limit else None)
    variants = parse_variants(",".join([BASELINE, *modes]), DraftingSettings())
    cap = int(longest) if longest else None
    return Plan(suite, suite.select(selection), variants, int(repeats or 0), max_tokens=cap, keep_prompt=bool(keep))


def size(planned: Plan) -> str:
    """Return in words how many runs a plan has."""
    parts = ((len(planned.prompts), "prompt"), (len(planned.variants), "mode"), (planned.repeats, "repeat"))
    counted = " × ".join(f"{count(n)} {word}{'s' if n != 1 else ''}" for n, word in parts)
    return f'<p class="sp-status">{counted} = {count(len(planned))} runs, on prompts kept for reporting</p>'
