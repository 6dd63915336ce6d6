"""Finding a pair of one's own: models by words, by repository, by path, and drafts that fit a target.

Knows the Hub, folders and headers; writes nothing and loads nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from specui import hub, pairs
from specui.catalog import BundledFile, HubFile, LocalFile, Pair, Source, expanded
from specui.errors import SpecUIError
from specui.headers import Seen, look
from specui.inspection import describe
from specui.vocab import compare

MAX_REPOS = 20
MAX_OFFERS = 5
"""How many drafts are looked at for one target: each look costs the header of a vocabulary, some megabytes."""

_REPO = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class Model:
    """A model that can be chosen: where it is, what its name states, its bytes."""

    source: Source
    name: str
    quantisation: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Offer:
    """A draft for a target. `reason` says why it does not fit; empty where it does."""

    source: Source
    size_bytes: int
    reason: str


def is_path(words: str) -> bool:
    """Whether somebody wrote a path of this machine."""
    return words.startswith(("/", "~", "./", "../")) or (len(words) > 2 and words[1] == ":")


def is_repo(words: str) -> bool:
    """Whether somebody wrote a repository's name."""
    return not is_path(words) and _REPO.fullmatch(words) is not None


def in_repo(repo: str) -> list[Model]:
    """Return the models of a repository, smallest first. Raises HubError."""
    return [Model(each.files[0], each.name, each.quantisation, each.size) for each in hub.models_in(repo)]


def at_path(path: Path) -> list[Model]:
    """Return the model at a path, or those in the folder. Raises ModelFileError."""
    path = expanded(path)
    found = pairs.in_folder(path) if path.is_dir() else [pairs.from_paths(path).target]
    return [Model(LocalFile(each), each.name, hub.quantisation(each.name), each.stat().st_size) for each in found]


def drafts_for(target: Source, known: Iterable[Pair], more: Iterable[Source] = ()) -> list[Offer]:
    """Return drafts for a target, those that fit first, then the smaller first. Raises HubError, ModelFileError.

    Looked at are `more`, and of the known pairs' drafts those whose names are most like the target's. One that cannot
    be looked at is offered with that as its reason.
    """
    seen = look(target, as_target=True)
    candidates = [source for source in more if source != target]
    likely = {pair.draft for pair in known if pair.draft is not None and not isinstance(pair.draft, BundledFile)}
    candidates += sorted(
        likely - {target, *candidates}, key=lambda source: (-_likeness(target, source), describe(source))
    )
    with ThreadPoolExecutor(MAX_OFFERS, thread_name_prefix="offer") as pool:
        offers = list(pool.map(lambda source: _offer(seen, source), candidates[:MAX_OFFERS]))
    return sorted(offers, key=lambda offer: (bool(offer.reason), offer.size_bytes))


def _offer(target: Seen, source: Source) -> Offer:
    try:
        draft = look(source, as_target=False)
        reason = compare(target.header.vocabulary(), draft.header.vocabulary()).reason or ""
    except SpecUIError as error:
        return Offer(source, 0, str(error))
    if not reason and draft.size_bytes >= target.size_bytes:
        reason = "its file is not smaller than the target's, so it would draft too slowly"
    return Offer(source, draft.size_bytes, reason)


def _likeness(one: Source, other: Source) -> float:
    """Return the share of words that two models' names have in common."""
    ours, theirs = _words(one), _words(other)
    return len(ours & theirs) / max(1, len(ours | theirs))


def _words(source: Source) -> set[str]:
    name = source.repo.partition("/")[2] if isinstance(source, HubFile) else describe(source).rpartition("/")[2]
    return {word for word in re.split(r"[-_. ]+", name.lower()) if word not in ("gguf", "instruct", "it")}


def pair_of(target: Source, draft: Source | None, known: Iterable[str]) -> Pair:
    """Return a pair of these two with a name that none of `known` is."""
    title = " with ".join(_short(source) for source in (target, draft) if source is not None)
    base = re.sub(r"[^a-z0-9.]+", "-", _short(target).lower()).strip("-") or "own"
    name, number, taken = base, 2, set(known)
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    return Pair(name, title, target, draft, notes="Added on the Models tab.")


def _short(source: Source) -> str:
    if isinstance(source, BundledFile):
        return "bundled"
    file = source.file if isinstance(source, HubFile) else source.path.name
    return hub.shards(file)[0].rpartition("/")[2].removesuffix(".gguf").partition("-00001-of-")[0]
