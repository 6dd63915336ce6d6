"""The rows of the Models tab as HTML: what a pair is, where its files are, what can be done with it.

Pure functions; every text that is not SpecUI's own is escaped.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from specui.catalog import BundledFile, HubFile, Pair, Source
from specui.inspection import TEMPLATE_WORDS, FileFacts, PairFacts, file_words, verdict
from specui.pace import size
from specui.ui.loader import LoadState
from specui.ui.looks import Look
from specui.ui.shared import Loaded


@dataclass(frozen=True, slots=True)
class RowState:
    """What is true of a pair just now. `freed_bytes`: what deleting it would free, 0 where it cannot be deleted."""

    on_disk: bool = False
    current: bool = False
    freed_bytes: int = 0
    kept_files: int = 0
    look: Look | None = None


def row(pair: Pair, now: RowState, job: LoadState, extra: str = "") -> str:
    """Return one pair of the catalogue; `extra` are more buttons for the pair in use."""
    files = f"<p>target: {escape(_source(pair.target))}</p>"
    files += f"<p>draft: {escape(_source(pair.draft)) if pair.draft else 'none'}</p>"
    notes = f'<p class="sp-notes">{escape(pair.notes)}</p>' if pair.notes else ""
    return (
        f'<article class="sp-model" data-pair="{escape(pair.name)}"><div><h3>{escape(pair.title)}</h3>{notes}'
        f'<div class="sp-files">{files}</div>{look_block(now.look)}{_job(pair, job)}</div>'
        f'<div class="sp-model-side"><span class="sp-state">{_state(now)}</span>'
        f"{_actions(pair, now, job)}{extra}</div></article>"
    )


def _source(source: Source) -> str:
    if isinstance(source, HubFile):
        return f"{source.repo} · {source.file}"
    return "comes with SpecUI" if isinstance(source, BundledFile) else str(source.path)


def _state(now: RowState) -> str:
    return "in use" if now.current else ("on disk" if now.on_disk else "not here yet")


def _actions(pair: Pair, now: RowState, job: LoadState) -> str:
    if job.busy and job.name == pair.name:
        off = "" if job.phase == "fetching" else " disabled"
        return button("cancel", "Cancel", off=off)
    busy = " disabled" if job.busy else ""
    parts = []
    if not now.current:
        parts.append(button("load", "Load" if now.on_disk else "Download and load", pair.name, busy))
    looking = now.look is not None and now.look.busy
    parts.append(button("look", "Look", pair.name, " disabled" if looking else ""))
    if now.freed_bytes and not now.current:
        parts.append(_delete(pair, now, busy))
    return "".join(parts)


def button(act: str, label: str, name: str = "", off: str = "") -> str:
    """Return a button that tells the tab what to do with which pair."""
    named = f' data-name="{escape(name)}"' if name else ""
    return f'<button type="button" class="sp-button" data-act="{act}"{named}{off}>{escape(label)}</button>'


def _delete(pair: Pair, now: RowState, off: str) -> str:
    """Return the button that asks before it deletes."""
    kept = " What other pairs use stays." if now.kept_files else ""
    sure = button("delete", f"Delete {size(now.freed_bytes)}", pair.name, off)
    return f'<details class="sp-sure"><summary>Delete…</summary><p>From the disk, for good.{kept}</p>{sure}</details>'


def look_block(look: Look | None) -> str:
    """Return what a look at a pair told."""
    if look is None:
        return ""
    if look.facts is None:
        if look.error:
            return f'<p class="sp-error" role="alert">{escape(look.error)}</p>'
        return '<p class="sp-status" role="status">looking at the headers…</p>'
    return f'<dl class="sp-facts">{_facts(look.facts)}</dl>{_problems(look.facts)}'


def _facts(facts: PairFacts) -> str:
    lines = [_file(each) for each in (facts.target, facts.draft) if each is not None]
    lines.append(("vocabulary", verdict(facts)))
    lines.append(("template", TEMPLATE_WORDS[facts.chat_template]))
    if facts.memory is not None:
        needed, free = size(facts.memory.needed_bytes), size(facts.memory.free_bytes)
        lines.append(("memory", f"{needed} at a context of {facts.ctx_size:,}; {free} are free"))
    lines.append(("disk", f"{size(facts.download_bytes)} to fetch; {size(facts.disk_free_bytes)} are free"))
    return "".join(f"<dt>{escape(key)}</dt><dd>{escape(text)}</dd>" for key, text in lines)


def _file(facts: FileFacts) -> tuple[str, str]:
    return facts.role, file_words(facts)


def _problems(facts: PairFacts) -> str:
    found = facts.problems()
    if not found:
        return '<p class="sp-good">This will work here.</p>'
    return "".join(f'<p class="sp-error">{escape(problem)}</p>' for problem in found)


def _job(pair: Pair, state: LoadState) -> str:
    return job_line(state) if state.name == pair.name else ""


def bar(state: LoadState) -> str:
    """Return the progress of a job as a bar; empty where the total is not known."""
    if not state.total:
        return ""
    share = min(100.0, 100 * state.done / state.total)
    return f'<div class="sp-bar"><b style="width:{share:.0f}%"></b></div>'


def job_line(state: LoadState) -> str:
    """Return how far a job is, or how it ended."""
    if state.busy:
        return f'<p class="sp-status" role="status">{escape(state.line)}</p>{bar(state)}'
    if state.phase == "failed":
        return f'<p class="sp-error" role="alert">{escape(state.line)}</p>'
    return '<p class="sp-status">cancelled</p>' if state.phase == "cancelled" else ""


def current_row(loaded: Loaded, extra: str = "") -> str:
    """Return the row of a pair that was given by its files and is in no catalogue."""
    draft = "none" if loaded.draft is None else str(loaded.draft)
    return (
        f'<article class="sp-model"><div><h3>{escape(loaded.title)}</h3><div class="sp-files">'
        f"<p>target: {escape(str(loaded.target))}</p><p>draft: {escape(draft)}</p></div></div>"
        f'<div class="sp-model-side"><span class="sp-state">in use</span>{extra}</div></article>'
    )
