"""A finished race as one HTML file: sentences, figures, plots and every lane's text. It asks nobody for anything.

Knows no gradio. Styles are those of the page, copied into the file; there is no script in it.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from specui.compare.history import Record
from specui.ui import compare_board, thread
from specui.ui.compare_plots import key

HERE = Path(__file__).parent
LAYOUT = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1b2330; background: #fff; margin: 0 auto; padding: 32px 20px 60px;
  max-width: 940px; --body-text-color: #1b2330; --body-background-fill: #fff; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 28px 0 8px; }
.sp-race-asked { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--sp-soft); border-radius: 10px;
  padding: 10px 14px; max-height: 320px; overflow-y: auto; }
.sp-race-save { display: none; }
.sp-key { display: inline-flex; align-items: center; gap: 5px; }
.sp-key::before { content: ""; width: 8px; height: 8px; border-radius: 2px; background: var(--mode); }
.sp-tokens { font-family: ui-monospace, monospace; }
"""


def report(record: Record) -> str:
    """Return the file's text."""
    texts = "".join(
        f'<h2>{key(lane)}</h2><div class="sp-tokens">{compare_board.spans(lane.runs[-1])}</div>'
        for lane in record.result.lanes
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>SpecUI race</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<style>{_styles()}{LAYOUT}</style></head><body><h1>A race of speculation modes</h1>"
        f'<p class="sp-plot-note">{escape(compare_board.when(record))}</p>{compare_board.board(record)}'
        f'<h2>Prompt</h2><div class="sp-race-asked">{_asked(record)}</div>'
        f"<h2>Answers of the last repeat</h2>{thread.legend()}{texts}</body></html>\n"
    )


def _asked(record: Record) -> str:
    messages = record.request.prompt.messages
    if len(messages) <= 1:
        return escape(record.question)
    return "\n\n".join(f"<b>{message.role}</b>\n{escape(message.content)}" for message in messages)


def _styles() -> str:
    """Return the parts of the page's styles that a report needs: colours, tokens by origin, the board."""
    head, *sections = (HERE / "page.css").read_text(encoding="utf-8").split("/* --- ")
    tokens = next(section for section in sections if section.startswith("tokens by origin"))
    board = (HERE / "compare.css").read_text(encoding="utf-8").partition("/* --- board */")[2]
    colours = head.replace(".gradio-container", ":root")
    return f"{colours}\n/* {tokens}\n{board}"
