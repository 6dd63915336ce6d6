"""The Compare tab: set up a race, watch its lanes side by side, read what came of it, keep it and bring it back.

The race belongs to the page that started it and ends with it; it takes its turn in the line around the model. Finished
races are kept in a folder and can be shown again by any page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import gradio as gr

from specui.bench import conditions
from specui.catalog import PairFiles
from specui.compare.handle import Race
from specui.compare.history import History, Record, races_folder, read_record
from specui.compare.records import MAX_LANES, RaceRequest
from specui.compare.report import export_csv
from specui.errors import NothingLoadedError, SettingError, SpecUIError
from specui.ui import compare_live, thread
from specui.ui.compare_board import beside, board
from specui.ui.compare_form import example_text, form, read_form
from specui.ui.compare_history import races
from specui.ui.compare_live import Frame, Stream
from specui.ui.compare_report import report
from specui.ui.sessions import Session, Sessions
from specui.ui.shared import DIRECT, QUIET, ModelRuntime

Updates = dict[Any, Any]
StartRace = Callable[[Any, RaceRequest], Race]
"""Puts a race in a runtime's line; raises SpecUIError. `specui.compare.race.start_race` is one."""

SESSION = "compare "
"""Races are kept beside the pages' answers, under keys of their own, so that they end when the program ends."""
PAIRED = '<p class="sp-status" role="status">two races side by side; their bars have one scale</p>'
RUNNING = "A race is running on this page; stop it or wait for its end"

BIND = "window.specuiRace.bind(element, (values) => trigger('begin', values), () => trigger('halt'), server)"
BIND_BOARD = "window.specuiRace.bindBoard(element, (values) => trigger('save', values), watch)"
HALT = '<button type="button" class="sp-race-stop">Stop</button>'
BIND_HALT = "element.querySelector('button').addEventListener('click', () => trigger('halt'))"
BIND_HISTORY = "window.specuiRace.bindHistory(element, (values) => trigger('act', values))"
FOLLOW = "window.specuiRace.follow(element)"
DOWNLOAD = "watch('value', () => window.specuiRace.download(props.value))"


class RaceRuntime(ModelRuntime, Protocol):
    """A runtime that says which files are loaded."""

    @property
    def files(self) -> PairFiles | None: ...


def preview(key: str) -> str:
    """Return an example's text for the form; empty for a key that is none."""
    try:
        return example_text(key)
    except SettingError:
        return ""


class CompareTab:
    """Layout and events of the tab; `build` is called inside the tab."""

    def __init__(self, runtime: RaceRuntime, sessions: Sessions, start_race: StartRace) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._start_race = start_race
        self._history = History(races_folder())
        self._saved = 0

    def build(self, page: gr.Blocks, tab: gr.Tab) -> None:
        """Make the tab."""
        with gr.Column(elem_id="sp-race"):
            self._form = _html("sp-race-form", BIND, html_template=form(), server_functions=[preview])
            self._notice = _html("sp-race-notice")
            with gr.Row(elem_id="sp-race-bar"):
                self._status = _html("sp-race-status")
                self._halt = _html("sp-race-halt", BIND_HALT, html_template=HALT)
            gr.HTML(thread.legend(), elem_id="sp-race-legend", apply_default_css=False)
            with gr.Row(elem_id="sp-lanes"):
                self._lanes = [self._build_lane(place) for place in range(MAX_LANES)]
            self._board = _html("sp-race-result", BIND_BOARD)
            self._list = _html("sp-race-list", BIND_HISTORY)
        self._file = gr.HTML("", html_template="", js_on_load=DOWNLOAD, visible="hidden", apply_default_css=False)
        self._shown = gr.State(None)
        self._wire(page, tab)

    def _build_lane(self, place: int) -> tuple[gr.HTML, gr.HTML]:
        with gr.Column(elem_classes="sp-lane", min_width=0):
            return _html(f"sp-lane-head-{place}"), _html(f"sp-lane-text-{place}", FOLLOW, elem_classes="sp-lane-text")

    def _wire(self, page: gr.Blocks, tab: gr.Tab) -> None:
        lanes = [part for lane in self._lanes for part in lane]
        writes = [self._notice, self._status, *lanes, self._board, self._list, self._shown]
        self._form.begin(self._on_begin, None, writes, **QUIET)
        for stop in (self._form, self._halt):
            stop.halt(self._on_halt, None, None, **DIRECT)
        self._board.save(self._on_save, self._shown, self._file, **DIRECT)
        self._list.act(self._on_act, None, writes, **DIRECT)
        for opened in (page.load, tab.select):
            opened(lambda: races(self._history.kept()), None, self._list, **DIRECT)
        page.unload(self._on_unload)

    def _session(self, request: gr.Request) -> Session:
        return self._sessions.get(f"{SESSION}{request.session_hash}")

    def _references(self, request: gr.Request) -> tuple[str, ...]:
        """Return what the chat of this page may draft from."""
        return self._sessions.get(request.session_hash).references.texts

    def _on_begin(self, request: gr.Request, event: gr.EventData) -> Iterator[Updates]:
        session = self._session(request)
        if session.running:
            yield {self._notice: thread.error(RUNNING)}
            return
        try:
            files = self._runtime.files
            if files is None:
                raise NothingLoadedError
            asked = read_form(json.loads(event.form), files, lambda: self._references(request))
            race = self._start_race(self._runtime, asked)
        except SpecUIError as error:
            yield {self._notice: thread.error(str(error))}
            return
        held: Any = race  # what a session asks of an answer, a race can do as well
        session.generation = held
        yield {self._notice: "", self._board: "", self._shown: None}
        for frame in Stream(race, self._known(files, asked), lambda: session.generation is held).frames():
            yield self._updates(frame)

    def _known(self, files: PairFiles, asked: RaceRequest) -> dict[str, Any]:
        """Return what a race runs on, for its record."""
        loaded = self._runtime.loaded
        model = {
            "pair": files.name,
            "target": conditions.file_facts(files.target),
            "draft": conditions.file_facts(files.draft) if files.draft is not None else None,
            "ctx_size": loaded.ctx_size if loaded else None,
            "threads": loaded.threads if loaded else None,
        }
        known = {"machine": conditions.machine(), "versions": conditions.versions(), "model": model}
        texts = asked.prompt.references
        size = sum(len(text.encode()) for text in texts)
        return known | ({"references": {"texts": len(texts), "bytes": size}} if texts else {})

    def _updates(self, frame: Frame) -> Updates:
        updates: Updates = {} if frame.status is None else {self._status: frame.status}
        updates |= {self._lanes[place][0]: head for place, head in frame.heads.items()}
        updates |= {self._lanes[place][1]: text for place, text in frame.texts.items()}
        return updates if frame.record is None else updates | self._end(frame.record)

    def _end(self, record: Record) -> Updates:
        """Return what a finished race adds to the page; one that cannot be kept is shown all the same."""
        key, notice = "", ""
        try:
            key = self._history.save(record)
        except SpecUIError as error:
            notice = thread.error(str(error))
        return {self._notice: notice, **self._showing(record, key)}

    def _showing(self, record: Record, key: str) -> Updates:
        return {self._board: board(record), self._list: races(self._history.kept(), key), self._shown: record}

    def _on_halt(self, request: gr.Request) -> None:
        self._session(request).stop()

    def _on_unload(self, request: gr.Request) -> None:
        self._sessions.drop(f"{SESSION}{request.session_hash}")

    def _on_act(self, request: gr.Request, event: gr.EventData) -> Updates:
        """Something was asked of the races so far."""
        keys = [str(key) for key in event.keys]
        try:
            if event.act == "forget" and keys:
                self._history.forget(keys[0])
                return {self._list: races(self._history.kept())}
            if self._session(request).running:
                return {self._notice: thread.error(RUNNING)}
            return self._show(str(event.act), keys, str(event.text))
        except SpecUIError as error:
            return {self._notice: thread.error(str(error))}

    def _show(self, act: str, keys: list[str], text: str) -> Updates:
        if act == "bring":
            record = read_record(text)
            return self._updates(compare_live.finished(record))
        found = [each for key in keys if (each := self._history.find(key)) is not None]
        if act == "pair" and len(found) == 2:
            nothing = {part: "" for lane in self._lanes for part in lane}
            shown = {self._notice: "", self._status: PAIRED, self._board: beside(*found), self._shown: None}
            return {**nothing, **shown}
        if act == "show" and found:
            frame = compare_live.finished(found[0])
            lanes = self._updates(Frame(frame.status, frame.heads, frame.texts))
            return {self._notice: "", **lanes, **self._showing(found[0], keys[0])}
        return {self._list: races(self._history.kept())}

    def _on_save(self, record: Record | None, event: gr.EventData) -> str:
        """Send a file to the browser, which saves it."""
        if record is None:
            return ""
        self._saved += 1
        makers: Mapping[str, Callable[[], str]] = {
            "json": record.to_json,
            "csv": lambda: export_csv(record.result),
            "html": lambda: report(record),
        }
        name = f"specui-race-{record.finished.replace(':', '') or 'undated'}.{event.kind}"
        text = json.dumps({"name": name, "text": makers[str(event.kind)](), "number": self._saved})
        return text.replace("<", "\\u003c")  # gradio would take it for the start of a script


def _html(elem_id: str, js_on_load: str = "", **more: Any) -> gr.HTML:
    return gr.HTML("", elem_id=elem_id, js_on_load=js_on_load or None, apply_default_css=False, **more)
