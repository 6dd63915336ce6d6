"""The races of before as a list: show one, put two side by side, delete, bring one in from a file.

Knows no gradio. Prompts and files may be anybody's words and are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from specui.compare.history import Kept, Record
from specui.compare.report import in_words
from specui.ui.compare_board import title, when

NOTE = "kept on the machine that runs SpecUI, for everyone who opens this page"


def races(kept: Sequence[Kept], shown: str = "") -> str:
    """Return the list; the race under the key `shown` is the one on the page."""
    rows = "".join(_row(each, each.key == shown) for each in kept)
    body = f"<ul>{rows}</ul>" if rows else '<p class="sp-plot-note">none yet</p>'
    bring = (
        '<label class="sp-button" tabindex="0">Import JSON'
        '<input type="file" accept=".json,application/json" aria-label="Import a race saved as JSON"></label>'
    )
    pair = '<button type="button" class="sp-button" data-act="pair" disabled>Side by side</button>' if rows else ""
    return (
        f'<section class="sp-race-history"><div class="sp-race-history-head"><h3>Races so far</h3>{pair}{bring}</div>'
        f'{body}<p class="sp-plot-note">{NOTE}</p></section>'
    )


def _row(kept: Kept, is_shown: bool) -> str:
    record, name = kept.record, escape(title(kept.record))
    here = ' aria-current="true"' if is_shown else ""
    return (
        f'<li data-key="{kept.key}"{here}><input type="checkbox" aria-label="Choose {name} to put it beside another">'
        f'<button type="button" class="sp-race-open" data-act="show"><b>{name}</b><span>{_summary(record)}</span>'
        f'</button><button type="button" class="sp-quiet" data-act="forget" aria-label="Delete {name}">Delete</button>'
        "</li>"
    )


def _summary(record: Record) -> str:
    """Return when it was, on which target, and how fast each lane was against the baseline."""
    base = record.result.lanes[record.result.baseline]
    speeds = [
        f"{in_words(lane.spec.label)} {lane.speedup.median:.2f} ×"
        for lane in record.result.lanes
        if lane is not base and lane.speedup is not None
    ]
    return escape(" · ".join([when(record), record.request.lanes[0].files.target.name, *speeds]))
