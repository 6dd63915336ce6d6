"""Markdown of a model to HTML that cannot run, restyle or load anything: raw HTML stays visible as text.

Thoughts of a reasoning model (`<think> … </think>` at the start of an answer) are told apart from the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

ToHtml = Callable[[str], str]


def _fence(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    token = tokens[index]
    language = token.info.split()[0] if token.info.strip() else ""
    head = f'<span class="sp-lang">{escape(language)}</span>'
    copy = '<button type="button" class="sp-quiet" data-act="copy-code">Copy</button>'
    return (
        f'<div class="sp-code"><div class="sp-code-head">{head}{copy}</div>'
        f'<pre tabindex="0"><code>{escape(token.content)}</code></pre></div>\n'
    )


def _image(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    """Show an image as a link: a page that loads what a model names would tell strangers who reads it."""
    token = tokens[index]
    address = escape(str(token.attrGet("src") or ""))
    return f'<a href="{address}" target="_blank" rel="noopener noreferrer">{escape(token.content or address)}</a>'


def _link_open(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    tokens[index].attrSet("target", "_blank")
    tokens[index].attrSet("rel", "noopener noreferrer")
    return self.renderToken(tokens, index, options, env)


def _renderer() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    markdown.add_render_rule("fence", _fence)
    markdown.add_render_rule("code_block", _fence)
    markdown.add_render_rule("image", _image)
    markdown.add_render_rule("link_open", _link_open)
    return markdown


_MARKDOWN = _renderer()


def render(text: str) -> str:
    """Return `text` as HTML."""
    return str(_MARKDOWN.render(text))


_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)
_BLOCK_START = re.compile(r"\n\n(?=[^\s\-*+>|0-9`~])")


@dataclass(slots=True)
class LiveMarkdown:
    """Renders a growing text; blocks that can no longer change are rendered once."""

    _settled: str = ""
    _settled_html: str = field(default="", repr=False)

    def render(self, text: str) -> str:
        """Return `text` as HTML, in time that depends on its unfinished end only."""
        if not text.startswith(self._settled):
            self._settled, self._settled_html = "", ""
        rest = text[len(self._settled) :]
        cut = max((found.end() for found in _BLOCK_START.finditer(rest)), default=0)
        if cut and len(_FENCE.findall(rest[:cut])) % 2 == 0:
            self._settled_html += render(rest[:cut])
            self._settled, rest = self._settled + rest[:cut], rest[cut:]
        return self._settled_html + render(rest)


@dataclass(frozen=True, slots=True)
class Parts:
    """An answer's thoughts (None: it has none) and what it says; `closed` tells whether the thoughts have ended."""

    thoughts: str | None
    closed: bool
    said: str


_THOUGHT_END = re.compile(r"</think>\s*")
_LONE_END = re.compile(r"^</think>[ \t]*$\n*", re.MULTILINE)


def split_thoughts(text: str) -> Parts:
    """Tell thoughts from the answer. A tag anywhere but at the start is text, except a lone closing one."""
    opened = text.lstrip()
    if opened.startswith("<think>"):
        inner = opened.removeprefix("<think>")
        if found := _THOUGHT_END.search(inner):
            return Parts(inner[: found.start()].strip(), True, inner[found.end() :])
        return Parts(inner.strip(), False, "")
    found = _LONE_END.search(text)
    if found and len(_FENCE.findall(text[: found.start()])) % 2 == 0:
        return Parts(text[: found.start()].strip(), True, text[found.end() :])
    return Parts(None, True, text)
