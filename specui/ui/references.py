"""The box "Draft from these" among a chat's drafting settings: files that a draft may copy from.

Their texts stay in the page's session on the server; nothing is written to disk, and a reload begins without them.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import gradio as gr

from specui import pace
from specui.config import MAX_REFERENCE_BYTES
from specui.errors import SettingError
from specui.references import ReferenceFile, References
from specui.ui.sessions import Sessions
from specui.ui.shared import DIRECT

MAX_REFUSALS = 4
"""Lines about refused files that are shown at once."""

NOTE = (
    "Prompt lookup and auto copy drafts from these files. The model never reads them: they change the speed, not the "
    "answer. Counts from the next answer on."
)


def render(references: References, refused: Sequence[str] = ()) -> str:
    """Return the box with its files, and a line for every file that was refused."""
    files = "".join(_row(file) for file in references.files)
    lines = [*refused[:MAX_REFUSALS], *([f"… and {len(refused) - MAX_REFUSALS} more"] * (len(refused) > MAX_REFUSALS))]
    refusals = "".join(f'<p class="sp-error">{escape(line)}</p>' for line in lines)
    return (
        f'<section class="sp-refs" data-limit="{MAX_REFERENCE_BYTES}"><label class="sp-refs-drop">'
        '<input type="file" multiple aria-describedby="sp-refs-note"><b>Draft from these</b>'
        f'<span>drop, paste or choose text files</span></label><p id="sp-refs-note">{NOTE}</p>'
        f'<ul aria-label="Files to draft from">{files}</ul><div role="alert">{refusals}</div></section>'
    )


def _row(file: ReferenceFile) -> str:
    name, size = escape(file.name), f"{file.size} bytes" if file.size < 1000 else pace.size(file.size)
    return (
        f'<li><b title="{name}">{name}</b><span>{size}</span>'
        f'<button type="button" class="sp-quiet" data-name="{name}" aria-label="Remove {name}">×</button></li>'
    )


BIND = """window.specuiReferences.bind(
    element, (data) => trigger('act', data), (drawn) => watch('value', drawn)
)"""


class ReferenceBox:
    """The box and its events; `build` is called inside the layout."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._lock = threading.Lock()

    def build(self) -> None:
        """Make the box."""
        box = gr.HTML(
            render(References("")),
            js_on_load=BIND,
            elem_id="sp-references",
            apply_default_css=False,
        )
        box.act(self._on_act, None, box, **DIRECT)

    def _on_act(self, request: gr.Request, event: gr.EventData) -> str:
        """Files were handed over, or one was taken away."""
        session = self._sessions.get(request.session_hash)
        refused: list[str] = []
        with self._lock:
            if event.remove:
                session.references = session.references.without(str(event.remove))
            for each in event.files:
                try:
                    session.references = _adding(session.references, each)
                except SettingError as error:
                    refused.append(str(error))
            return render(session.references, refused)


def _adding(references: References, given: Mapping[str, Any]) -> References:
    """Return `references` with a file of the browser's: its name, its size, and base64 where it was read."""
    name, size, data = str(given["name"]), int(given["size"]), given["data"]
    if size > references.room(name):
        raise references.too_much(name)
    try:
        return references.adding(name, base64.b64decode(data, validate=True))
    except (TypeError, binascii.Error):
        raise SettingError(references.key, name, "a file that the browser can read") from None
