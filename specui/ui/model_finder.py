"""Find your own: a box for words, a repository or a path, then a target, then a draft that fits it.

The server keeps nothing of a search: what was chosen so far travels with each button, so any number of windows may
search at once. What is chosen is written into the user's own catalogue.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape
from pathlib import Path

import gradio as gr

from specui import hub, offers
from specui.catalog import BundledFile, Catalog, HubFile, LocalFile, Pair, Source, add_pair, expanded, user_file
from specui.errors import SpecUIError
from specui.inspection import describe
from specui.offers import Model, Offer
from specui.pace import size
from specui.ui.shared import DIRECT

Added = Callable[[Catalog, Pair], str]
"""Takes over a catalogue with a new pair, and says in a line what happens with it."""

FORM = """<form class="sp-finder"><h2>Find your own</h2>
<label for="sp-words">Words to search the Hub for, a repository (owner/name), or a path of this machine</label>
<div class="sp-finder-row"><input id="sp-words" type="search" autocomplete="off" spellcheck="false">
<button class="sp-button" type="submit">Search</button></div></form>"""

FORM_SCRIPT = """element.addEventListener('submit', (event) => {
    event.preventDefault();
    window.specui.looking('searching…');
    trigger('choose', { act: 'search', words: element.querySelector('input').value });
})"""

RESULTS_SCRIPT = """const ask = (event, words) => {
    event.preventDefault();
    window.specui.looking('looking…');
    trigger('choose', words);
};
element.addEventListener('click', (event) => {
    const button = event.target.closest('[data-words]');
    if (button) ask(event, JSON.parse(button.dataset.words));
});
element.addEventListener('submit', (event) => {
    const words = JSON.parse(event.target.dataset.asked);
    ask(event, { ...words, words: event.target.querySelector('input').value });
});"""


class ModelFinder:
    """Layout and events below the catalogue."""

    def __init__(self, catalog: Catalog, added: Added) -> None:
        self._catalog = catalog
        self._added = added

    def build(self) -> None:
        """Make the form and the place for what it finds."""
        form = gr.HTML(FORM, js_on_load=FORM_SCRIPT, elem_id="sp-finder", apply_default_css=False)
        found = gr.HTML("", js_on_load=RESULTS_SCRIPT, elem_id="sp-found", apply_default_css=False)
        form.choose(self._on_choose, None, [found], **DIRECT)
        found.choose(self._on_choose, None, [found], **DIRECT)

    def _on_choose(self, event: gr.EventData) -> str:
        return self.answer({key: str(getattr(event, key, "")) for key in ("act", "words", "chosen", "draft")})

    def answer(self, asked: dict[str, str]) -> str:
        """Return what was found, or why nothing was, as HTML."""
        try:
            return f'<div class="sp-found">{self._answer(asked)}</div>'
        except SpecUIError as error:
            return f'<div class="sp-found"><p class="sp-error" role="alert">{escape(str(error))}</p></div>'

    def _answer(self, asked: dict[str, str]) -> str:
        act, words = asked.get("act"), asked.get("words", "").strip()
        target = source_of(asked.get("chosen", ""))
        if act == "search" and words:
            return self._search(words)
        if act == "drafts" and target is not None:
            more = [source for source in (_typed(words),) if source is not None]
            return _drafts(target, offers.drafts_for(target, self._catalog, more))
        if act == "add" and target is not None:
            return self._add(target, source_of(asked.get("draft", "")))
        return ""

    def _search(self, words: str) -> str:
        if offers.is_path(words):
            return _models(words, offers.at_path(Path(words)))
        if offers.is_repo(words):
            return _models(words, offers.in_repo(words))
        found = hub.search(words, offers.MAX_REPOS)
        if not found:
            return "<p>No repository with GGUF files has these words in its name.</p>"
        return "<ul>" + "".join(_repo(each) for each in found) + "</ul>"

    def _add(self, target: Source, draft: Source | None) -> str:
        pair = offers.pair_of(target, draft, self._catalog.pairs)
        add_pair(user_file(), pair)
        self._catalog = Catalog({**self._catalog.pairs, pair.name: pair})
        said = self._added(self._catalog, pair)
        return (
            f'<p role="status"><b>{escape(pair.title)}</b> was added to {escape(str(user_file()))}. {escape(said)}</p>'
        )


def text_of(source: Source | None) -> str:
    """Return a source as a text that a button can carry."""
    if isinstance(source, HubFile):
        return json.dumps(["hub", source.repo, source.file, source.revision or ""])
    return json.dumps(["path", str(source.path)]) if isinstance(source, LocalFile) else ""


def source_of(text: str) -> Source | None:
    """Return the source that `text_of` made a text of; None for anything else."""
    try:
        kind, *rest = json.loads(text)
    except (ValueError, TypeError):
        return None
    if not all(isinstance(each, str) for each in rest):
        return None
    if kind == "hub" and len(rest) == 3:
        return HubFile(rest[0], rest[1], rest[2] or None)
    return LocalFile(Path(rest[0])) if kind == "path" and len(rest) == 1 else None


def _typed(words: str) -> Source | None:
    """Return the draft that somebody typed: a path, or owner/name/file.gguf."""
    if offers.is_path(words):
        return LocalFile(expanded(Path(words)))
    owner, _, rest = words.partition("/")
    name, _, file = rest.partition("/")
    return HubFile(f"{owner}/{name}", file) if owner and name and file.endswith(".gguf") else None


def _button(label: str, **words: str) -> str:
    return f'<button type="button" class="sp-button" data-words="{escape(json.dumps(words))}">{escape(label)}</button>'


def _item(title: str, told: str, buttons: str) -> str:
    return f"<li><div><b>{escape(title)}</b><span>{escape(told)}</span></div>{buttons}</li>"


def _repo(found: hub.FoundRepo) -> str:
    told = [f"{found.downloads:,} downloads", found.architecture]
    told += [f"{found.parameters / 1e9:.1f} B parameters"] if found.parameters else []
    told += ["terms to accept first"] if found.gated else []
    return _item(
        found.repo, " · ".join(each for each in told if each), _button("Files", act="search", words=found.repo)
    )


def _models(where: str, models: list[Model]) -> str:
    if not models:
        return f"<p>{escape(where)} has no GGUF model.</p>"
    rows = [
        _item(
            each.quantisation or each.name,
            f"{each.name} · {size(each.size_bytes)}",
            _button("Choose as target", act="drafts", chosen=text_of(each.source)),
        )
        for each in models
    ]
    return f"<h3>{escape(where)}</h3><ul>{''.join(rows)}</ul>"


def _drafts(target: Source, found: list[Offer]) -> str:
    bundled = [offer for offer in found if isinstance(offer.source, BundledFile)]
    rows = [_draft(target, offer) for offer in found if offer not in bundled]
    without = _item("No draft", "prompt lookup needs none", _button("Add", act="add", chosen=text_of(target)))
    carried = escape(json.dumps({"act": "drafts", "chosen": text_of(target)}))
    other = (
        f'<form class="sp-finder-row" data-asked="{carried}">'
        '<input type="search" autocomplete="off" spellcheck="false" '
        'aria-label="Another draft" placeholder="another draft: owner/name/file.gguf, or a path">'
        '<button class="sp-button" type="submit">Look</button></form>'
    )
    return f"<h3>A draft for {escape(describe(target))}</h3><ul>{''.join(rows)}{without}</ul>{other}"


def _draft(target: Source, offer: Offer) -> str:
    if offer.reason:
        return _item(describe(offer.source), offer.reason, "")
    told = f"{size(offer.size_bytes)} · speaks the target's vocabulary"
    add = _button("Add", act="add", chosen=text_of(target), draft=text_of(offer.source))
    return _item(describe(offer.source), told, add)
