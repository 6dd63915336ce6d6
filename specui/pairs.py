"""From a pair of the catalogue, or from paths, to files on disk that can be loaded.

Knows where each kind of source comes from: the bundled weights, the Hub, a path. Knows nothing about loading models.
"""

from __future__ import annotations

from pathlib import Path

from specui import bundled, hub
from specui.catalog import BundledFile, Cancelled, HubFile, LocalFile, OnProgress, Pair, PairFiles, Source
from specui.errors import ModelFileError
from specui.gguf import check_gguf


def resolve(pair: Pair, on_progress: OnProgress, cancelled: Cancelled | None = None) -> PairFiles:
    """Return the pair with its files on disk: downloaded, made or found.

    Paths and the bundled package are looked at before anything is downloaded. Raises ModelFileError, HubError,
    StorageError or DiskSpaceError; what was complete by then stays on disk.
    """
    for source in _sources(pair):
        _check_present(source)
    wanted = [source for source in _sources(pair) if isinstance(source, HubFile)]
    hub.download(wanted, on_progress, cancelled or (lambda: False))
    if isinstance(pair.target, BundledFile):
        bundled.target(on_progress)
    files = on_disk(pair)
    if files is None:
        raise ModelFileError(Path(pair.name), "a file of this pair went away while it was being fetched; try again")
    return files


def on_disk(pair: Pair) -> PairFiles | None:
    """Return the pair if all its files are here already; asks no network and makes nothing."""
    target = bundled.target_on_disk() if isinstance(pair.target, BundledFile) else _found(pair.target)
    draft = _found(pair.draft) if pair.draft is not None else None
    if target is None or (pair.draft is not None and draft is None):
        return None
    return PairFiles(pair.name, pair.title, target, draft, pair.chat_template, pair.ctx_size)


def from_paths(target: Path, draft: Path | None = None) -> PairFiles:
    """Return a pair of files given by their paths. Raises ModelFileError where one cannot be a GGUF."""
    paths = [path.expanduser() for path in (target, draft) if path is not None]
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
