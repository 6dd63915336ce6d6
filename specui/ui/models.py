"""The Models tab: the catalogue, what is on disk and in memory, and buttons that look, fetch, load and delete.

A pair that cannot be fetched or loaded leaves the current one running; the reason stays beside its name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import gradio as gr

from specui import hub, inspection
from specui.catalog import Cancelled, Catalog, OnProgress, Pair, PairFiles
from specui.config import LoadSettings
from specui.errors import SpecUIError
from specui.pace import size as bytes_words
from specui.ui.loader import LoadState, PairLoader
from specui.ui.looks import Looks
from specui.ui.model_finder import ModelFinder
from specui.ui.model_rows import RowState, bar, button, current_row, job_line, row
from specui.ui.shared import DIRECT, Loaded, ModelRuntime, PairFinder

BUSY_SECONDS, IDLE_SECONDS = 0.5, 5.0
"""How often an open page asks how far a load is, and whether another window has loaded something."""


@runtime_checkable
class Unloads(Protocol):
    """A runtime that can let go of everything."""

    def unload(self) -> None: ...


@runtime_checkable
class UnloadsDraft(Protocol):
    """A runtime that can let go of the draft."""

    def unload_draft(self) -> None: ...


@runtime_checkable
class Keeper(Protocol):
    """A finder that knows which downloaded files a pair has, and which of them nobody else uses."""

    def downloaded(self, pair: Pair) -> list[Path]: ...
    def removable(self, pair: Pair, others: Iterable[Pair]) -> list[Path]: ...


@dataclass(frozen=True, slots=True)
class _Stored:
    """Whether all of a pair is here, and its downloaded files with their bytes."""

    whole: bool
    files: Mapping[Path, int]


class ModelsTab:
    """Layout and events of the tab, and the model's name at the top of the page."""

    def __init__(self, runtime: ModelRuntime, loader: PairLoader, catalog: Catalog, finder: PairFinder) -> None:
        self._runtime = runtime
        self._loader = loader
        self._catalog = catalog
        self._finder = finder
        self._looks = Looks(lambda pair: inspection.inspect(pair, LoadSettings()))
        self._note = ""
        self._own = ModelFinder(catalog, self._added)

    def build_badge(self) -> None:
        """Make the name of the current model, shown above all tabs."""
        self._badge = gr.HTML(self._render_badge(), elem_id="sp-badge", apply_default_css=False)
        self._timer = gr.Timer(BUSY_SECONDS)  # outside the tab: what is in a tab that was never opened does not run

    def build_trouble(self) -> None:
        """Make the place in the chat that says why there is no model."""
        script = "element.addEventListener('click', (event) => window.specui.openModels(event.target))"
        self._trouble = gr.HTML(
            self._render_trouble(), js_on_load=script, elem_id="sp-trouble", apply_default_css=False
        )

    def build(self, page: gr.Blocks) -> None:
        """Make the tab."""
        script = """element.addEventListener('click', (event) => {
            const button = event.target.closest('[data-act]');
            if (button) trigger('choose', { act: button.dataset.act, name: button.dataset.name || '' });
        })"""
        with gr.Column(elem_id="sp-models-tab"):
            self._list = gr.HTML(self._render_list(), js_on_load=script, elem_id="sp-models", apply_default_css=False)
            self._own.build()
        parts = [self._badge, self._trouble, self._list, self._timer]
        self._timer.tick(self._on_tick, None, parts, **DIRECT)
        self._list.choose(self._on_choose, None, parts, **DIRECT)
        page.load(self._on_tick, None, parts, **DIRECT)

    def _on_tick(self) -> tuple[Any, ...]:
        busy = self._loader.state.busy or self._looks.busy
        seconds = BUSY_SECONDS if busy else IDLE_SECONDS
        return self._render_badge(), self._render_trouble(), self._render_list(), gr.Timer(seconds)

    def _on_choose(self, event: gr.EventData) -> tuple[Any, ...]:
        self._note = ""
        if event.act == "cancel":
            self._loader.cancel()
        elif event.act == "unload" and isinstance(self._runtime, Unloads):
            self._aside(self._runtime.unload)
        elif event.act == "unload-draft" and isinstance(self._runtime, UnloadsDraft):
            self._aside(self._runtime.unload_draft)
        elif event.name in self._catalog.pairs:
            self._act(event.act, self._catalog.pair(event.name))
        return self._on_tick()

    def _aside(self, action: Callable[[], None]) -> None:
        """Run what must wait for its turn around the model, without keeping the page waiting; a refusal is shown."""

        def run() -> None:
            try:
                action()
            except SpecUIError as error:
                self._note = str(error)

        threading.Thread(target=run, name="unload", daemon=True).start()

    def _act(self, act: str, pair: Pair) -> None:
        if act == "look":
            self._looks.begin(pair)
        elif act == "load" and not self._loader.state.busy:
            self._looks.forget(pair.name)
            begin(self._loader, pair, self._finder)
        elif act == "delete" and not self._loader.state.busy:
            self._delete(pair)

    def _delete(self, pair: Pair) -> None:
        if not isinstance(self._finder, Keeper) or self._is_loaded(pair):
            return
        try:
            freed = hub.remove(self._finder.removable(pair, self._others(pair)))
            self._note = f"{pair.title}: {bytes_words(freed)} freed."
        except SpecUIError as error:
            self._note = str(error)
        self._looks.forget(pair.name)

    def _others(self, pair: Pair) -> list[Pair]:
        """Return the pairs whose files must stay: those that are whole on disk, and the one in use."""
        return [other for other in self._catalog if other.name != pair.name and self._on_disk(other)]

    def _is_loaded(self, pair: Pair) -> bool:
        loaded = self._runtime.loaded
        return loaded is not None and loaded.name == pair.name

    def _added(self, catalog: Catalog, pair: Pair) -> str:
        """Take over the catalogue with a pair just added, and fetch and load that pair."""
        self._catalog = catalog
        if self._loader.state.busy:
            return "It is in the list above; load it when the present download is over."
        begin(self._loader, pair, self._finder)
        return "It is in the list above, and is being fetched now."

    def _render_badge(self) -> str:
        return badge(self._runtime.loaded, self._loader.state)

    def _render_trouble(self) -> str:
        return trouble(self._runtime.loaded, self._loader.state)

    def _render_list(self) -> str:
        loaded, state = self._runtime.loaded, self._loader.state
        disk = {pair.name: self._stored(pair) for pair in self._catalog}
        rows = "".join(self._row(pair, disk) for pair in self._catalog)
        known = loaded is None or loaded.name in self._catalog.pairs
        other = "" if known or loaded is None else current_row(loaded, self._unload_buttons())
        orphan = "" if state.name in self._catalog.pairs or not state.name else job_line(state)
        note = f'<p class="sp-status" role="status">{escape(self._note)}</p>' if self._note else ""
        return f'<div class="sp-models"><h2>Models</h2>{self._summary(loaded, disk)}{note}{other}{orphan}{rows}</div>'

    def _stored(self, pair: Pair) -> _Stored:
        files = self._finder.downloaded(pair) if isinstance(self._finder, Keeper) else []
        return _Stored(self._on_disk(pair), {path: path.stat().st_size for path in files if path.exists()})

    def _row(self, pair: Pair, disk: Mapping[str, _Stored]) -> str:
        current, own = self._is_loaded(pair), disk[pair.name]
        kept = {path for name, other in disk.items() if name != pair.name and other.whole for path in other.files}
        now = RowState(
            on_disk=own.whole,
            current=current,
            freed_bytes=sum(size for path, size in own.files.items() if path not in kept),
            kept_files=len(own.files.keys() & kept),
            look=self._looks.of(pair.name),
        )
        return row(pair, now, self._loader.state, self._unload_buttons() if current else "")

    def _unload_buttons(self) -> str:
        parts = [button("unload", "Unload")] if isinstance(self._runtime, Unloads) else []
        loaded = self._runtime.loaded
        if isinstance(self._runtime, UnloadsDraft) and loaded is not None and loaded.draft_bytes:
            parts.append(button("unload-draft", "Free the draft's memory"))
        return "".join(parts)

    def _summary(self, loaded: Loaded | None, disk: Mapping[str, _Stored]) -> str:
        """Return what memory and disk hold."""
        parts = []
        if loaded is not None:
            draft = f", draft {bytes_words(loaded.draft_bytes)}" if loaded.draft_bytes else ", no draft loaded"
            parts.append(f"Weights in memory: target {bytes_words(loaded.target_bytes)}{draft}.")
        if isinstance(self._finder, Keeper):
            files = {path: size for stored in disk.values() for path, size in stored.files.items()}
            used = sum(files.values())
            parts.append(f"Downloads: {bytes_words(used)} on disk, {bytes_words(hub.free_bytes())} free.")
        return f'<p class="sp-status">{escape(" ".join(parts))}</p>' if parts else ""

    def _on_disk(self, pair: Pair) -> bool:
        try:
            return self._finder.on_disk(pair) is not None
        except SpecUIError:
            return False


def begin(loader: PairLoader, pair: Pair, finder: PairFinder) -> None:
    """Start to fetch and load `pair`."""

    def fetch(on_progress: OnProgress, cancelled: Cancelled) -> PairFiles:
        return finder.resolve(pair, on_progress, cancelled)

    loader.start(pair.name, pair.title, fetch)


def badge(loaded: Loaded | None, state: LoadState) -> str:
    """Return the name of the current model, and what is being loaded."""
    note = ""
    if state.busy:
        note = f'<span class="sp-badge-note" role="status">{escape(state.line)}</span>{bar(state)}'
    elif state.failure and not state.dismissed:
        note = f'<span class="sp-badge-note sp-off" role="alert" title="{escape(state.failure)}">load failed</span>'
    if loaded is None:
        name = "" if state.busy else "<b>no model loaded</b>"
    else:
        name = f'<b title="{escape(loaded.title)}">{escape(loaded.title)}</b>{_draft(loaded)}'
    off = (loaded.draft_off_reason if loaded else None) or ""
    return f'<div class="sp-badge" data-draft-off="{escape(off)}">{note}{name}</div>'


def trouble(loaded: Loaded | None, state: LoadState) -> str:
    """Return why there is no model and where to choose another; empty while there is one."""
    if loaded is not None or not state.failure:
        return ""
    return (
        f'<div class="sp-trouble" role="alert"><b>{escape(state.title)} could not be loaded</b>'
        f'<p class="sp-error">{escape(state.failure)}</p>'
        "<p>Mend this and load it again, or choose another pair, in the "
        '<button type="button" class="sp-link">Models tab</button>.</p></div>'
    )


def _draft(loaded: Loaded) -> str:
    if loaded.draft_off_reason:
        return f'<span class="sp-badge-draft sp-off" title="{escape(loaded.draft_off_reason)}">draft off</span>'
    return f'<span class="sp-badge-draft" title="{escape(str(loaded.draft))}">with draft</span>'
