"""The Models tab: the catalogue, what is on disk, and a button that fetches and loads with progress.

A pair that cannot be fetched or loaded leaves the current one running; the reason stays beside its name.
"""

from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr

from specui.catalog import BundledFile, Cancelled, Catalog, HubFile, OnProgress, Pair, PairFiles, Source
from specui.errors import SpecUIError
from specui.ui.loader import LoadState, PairLoader
from specui.ui.shared import DIRECT, Loaded, ModelRuntime, PairFinder

BUSY_SECONDS, IDLE_SECONDS = 0.5, 5.0
"""How often an open page asks how far a load is, and whether another window has loaded something."""


class ModelsTab:
    """Layout and events of the tab, and the model's name at the top of the page."""

    def __init__(self, runtime: ModelRuntime, loader: PairLoader, catalog: Catalog, finder: PairFinder) -> None:
        self._runtime = runtime
        self._loader = loader
        self._catalog = catalog
        self._finder = finder

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
        self._list = gr.HTML(self._render_list(), js_on_load=script, elem_id="sp-models", apply_default_css=False)
        parts = [self._badge, self._trouble, self._list, self._timer]
        self._timer.tick(self._on_tick, None, parts, **DIRECT)
        self._list.choose(self._on_choose, None, parts, **DIRECT)
        page.load(self._on_tick, None, parts, **DIRECT)

    def _on_tick(self) -> tuple[Any, ...]:
        seconds = BUSY_SECONDS if self._loader.state.busy else IDLE_SECONDS
        return self._render_badge(), self._render_trouble(), self._render_list(), gr.Timer(seconds)

    def _on_choose(self, event: gr.EventData) -> tuple[Any, ...]:
        if event.act == "cancel":
            self._loader.cancel()
        elif event.act == "load" and event.name in self._catalog.pairs and not self._loader.state.busy:
            begin(self._loader, self._catalog.pair(event.name), self._finder)
        return self._on_tick()

    def _render_badge(self) -> str:
        return badge(self._runtime.loaded, self._loader.state)

    def _render_trouble(self) -> str:
        return trouble(self._runtime.loaded, self._loader.state)

    def _render_list(self) -> str:
        loaded, state = self._runtime.loaded, self._loader.state
        rows = "".join(row(pair, self._on_disk(pair), loaded, state) for pair in self._catalog)
        other = "" if loaded is None or loaded.name in self._catalog.pairs else _current(loaded)
        return f'<div class="sp-models"><h2>Models</h2>{other}{_orphan(state, self._catalog)}{rows}</div>'

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


def bar(state: LoadState) -> str:
    """Return the progress of a job as a bar; empty where the total is not known."""
    if not state.total:
        return ""
    share = min(100.0, 100 * state.done / state.total)
    return f'<div class="sp-bar"><b style="width:{share:.0f}%"></b></div>'


def _source(source: Source) -> str:
    if isinstance(source, HubFile):
        return f"{source.repo} · {source.file}"
    return "comes with SpecUI" if isinstance(source, BundledFile) else str(source.path)


def row(pair: Pair, on_disk: bool, loaded: Loaded | None, state: LoadState) -> str:
    """Return one pair of the catalogue."""
    files = f"<p>target: {escape(_source(pair.target))}</p>"
    files += f"<p>draft: {escape(_source(pair.draft)) if pair.draft else 'none'}</p>"
    notes = f'<p class="sp-notes">{escape(pair.notes)}</p>' if pair.notes else ""
    current = loaded is not None and loaded.name == pair.name
    return (
        f'<article class="sp-model" data-pair="{escape(pair.name)}"><div><h3>{escape(pair.title)}</h3>{notes}'
        f'<div class="sp-files">{files}</div>{_job(pair, state)}</div>'
        f'<div class="sp-model-side"><span class="sp-state">{_state(current, on_disk)}</span>'
        f"{_action(pair, current, on_disk, state)}</div></article>"
    )


def _state(current: bool, on_disk: bool) -> str:
    return "in use" if current else ("on disk" if on_disk else "not here yet")


def _action(pair: Pair, current: bool, on_disk: bool, state: LoadState) -> str:
    if state.busy and state.name == pair.name:
        off = "" if state.phase == "fetching" else " disabled"
        return f'<button type="button" class="sp-button" data-act="cancel"{off}>Cancel</button>'
    if current:
        return ""
    label = "Load" if on_disk else "Download and load"
    off = " disabled" if state.busy else ""
    name = escape(pair.name)
    return f'<button type="button" class="sp-button" data-act="load" data-name="{name}"{off}>{label}</button>'


def _job(pair: Pair, state: LoadState) -> str:
    return _job_line(state) if state.name == pair.name else ""


def _job_line(state: LoadState) -> str:
    if state.busy:
        return f'<p class="sp-status" role="status">{escape(state.line)}</p>{bar(state)}'
    if state.phase == "failed":
        return f'<p class="sp-error" role="alert">{escape(state.line)}</p>'
    return '<p class="sp-status">cancelled</p>' if state.phase == "cancelled" else ""


def _current(loaded: Loaded) -> str:
    """Return the row of a pair that was given by its files and is in no catalogue."""
    draft = "none" if loaded.draft is None else str(loaded.draft)
    return (
        f'<article class="sp-model"><div><h3>{escape(loaded.title)}</h3><div class="sp-files">'
        f"<p>target: {escape(str(loaded.target))}</p><p>draft: {escape(draft)}</p></div></div>"
        '<div class="sp-model-side"><span class="sp-state">in use</span></div></article>'
    )


def _orphan(state: LoadState, catalog: Catalog) -> str:
    return "" if state.name in catalog.pairs or not state.name else _job_line(state)
