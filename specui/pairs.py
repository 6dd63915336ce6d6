"""From a pair of the catalogue, or from paths, to files on disk that can be loaded.

Knows where each kind of source comes from: the bundled weights, the Hub, a path. Knows nothing about loading models.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from specui import bundled, hub, inspection
from specui.catalog import BundledFile, Cancelled, HubFile, LocalFile, OnProgress, Pair, PairFiles, Source, expanded
from specui.errors import HubError, ModelFileError
from specui.gguf import check_gguf

log = logging.getLogger(__name__)


def resolve(pair: Pair, on_progress: OnProgress, cancelled: Cancelled | None = None) -> PairFiles:
    """Return the pair with its files on disk: downloaded, made or found.

    Paths, the bundled package and both headers are looked at before anything is downloaded. Raises ModelFileError,
    VocabularyError, HubError, StorageError or DiskSpaceError; what was complete by then stays on disk.
    """
    for source in _sources(pair):
        _check_present(source)
    wanted = [source for source in _sources(pair) if isinstance(source, HubFile)]
    if any(hub.cached(source) is None for source in wanted):
        on_progress(f"Looking at {pair.title}", 0, 0)
        _check_headers(pair)
    hub.download(wanted, on_progress, cancelled or (lambda: False))
    if isinstance(pair.target, BundledFile):
        bundled.target(on_progress)
    files = on_disk(pair)
    if files is None:
        raise ModelFileError(Path(pair.name), "a file of this pair went away while it was being fetched; try again")
    return files


def _check_headers(pair: Pair) -> None:
    """Refuse a draft of another vocabulary while nothing has been fetched for it."""
    try:
        inspection.refuse_other_vocabulary(pair)
    except HubError as error:
        log.info("%s", error)  # the download meets the same, or does without what the look needed


def on_disk(pair: Pair) -> PairFiles | None:
    """Return the pair if all its files are here already; asks no network and makes nothing."""
    target = bundled.target_on_disk() if isinstance(pair.target, BundledFile) else _found(pair.target)
    draft = _found(pair.draft) if pair.draft is not None else None
    if target is None or (pair.draft is not None and draft is None):
        return None
    return PairFiles(
        pair.name, pair.title, target, draft, pair.chat_template, pair.ctx_size, pair.sampling, pair.drafting
    )


def removable(pair: Pair, others: Iterable[Pair]) -> list[Path]:
    """Return the downloaded files of `pair` that none of `others` uses; asks no network.

    Files given by a path, and the bundled weights, are not SpecUI's to delete.
    """
    kept = {path for other in others if other.name != pair.name for path in downloaded(other)}
    return [path for path in downloaded(pair) if path not in kept]


def downloaded(pair: Pair) -> list[Path]:
    """Return the files of `pair` that lie in the Hub's cache, parts each on its own."""
    found = [path for source in _sources(pair) if isinstance(source, HubFile) for path in hub.cached_parts(source)]
    return list(dict.fromkeys(found))


def in_folder(folder: Path) -> list[Path]:
    """Return the GGUF models in a folder and below, of a model in parts the first. Raises ModelFileError."""
    if not folder.is_dir():
        raise ModelFileError(folder, "is no folder; name one that holds .gguf files")
    found = sorted(path for path in folder.rglob("*.gguf") if path.is_file())
    return [path for path in found if hub.shards(path.name)[0] == path.name and "mmproj" not in path.name.lower()]


def from_paths(target: Path, draft: Path | None = None) -> PairFiles:
    """Return a pair of files given by their paths. Raises ModelFileError where one cannot be a GGUF."""
    paths = [expanded(path) for path in (target, draft) if path is not None]
    for path in paths:
        check_gguf(path)
    title = " with ".join(path.stem for path in paths)
    return PairFiles(name=paths[0].stem, title=title, target=paths[0], draft=paths[1] if draft is not None else None)


def _sources(pair: Pair) -> list[Source]:
    return [source for source in (pair.target, pair.draft) if source is not None]


def _check_present(source: Source) -> None:
    """Raise ModelFileError where something that no download can bring is missing."""
    if isinstance(source, LocalFile):
        check_gguf(source.path)
    elif isinstance(source, BundledFile):
        bundled.draft()


def _found(source: Source) -> Path | None:
    if isinstance(source, HubFile):
        return hub.cached(source)
    try:
        _check_present(source)
    except ModelFileError:
        return None
    return source.path if isinstance(source, LocalFile) else bundled.draft()
