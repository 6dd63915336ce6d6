"""What is in the Hub's cache on this machine: found, measured and removed without any request.

Relies on the layout that huggingface_hub documents: models--OWNER--NAME with refs, snapshots/COMMIT and blobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from huggingface_hub import constants, try_to_load_from_cache

from specui.catalog import HubFile
from specui.errors import ModelFileError, StorageError
from specui.gguf import check_gguf
from specui.hub import names
from specui.space import free_disk_bytes

PARTIAL = ".specui.incomplete"
"""The ending of a download that goes on where it stopped."""


def cache_folder() -> Path:
    """The folder that downloads go to."""
    return Path(constants.HF_HUB_CACHE)


def repo_folder(repo: str) -> Path:
    """The folder of one repository, whether it is there or not."""
    return cache_folder() / f"models--{repo.replace('/', '--')}"


def free_bytes() -> int:
    """How many bytes the disk of the cache has free."""
    return free_disk_bytes(cache_folder())


def cached(file: HubFile) -> Path | None:
    """Return the file, the first part where there are several, if all of it is here and begins as a GGUF does."""
    parts = cached_parts(file)
    return parts[0] if parts and all(_is_gguf(path) for path in parts) else None


def cached_parts(file: HubFile) -> list[Path]:
    """Return the paths of all parts of the file, in order; empty unless every part is here."""
    found = [in_cache(HubFile(file.repo, name, file.revision)) for name in _names(file)]
    return [path for path in found if path is not None] if all(found) else []


def in_cache(file: HubFile) -> Path | None:
    """Return the path of exactly this file, whatever it holds."""
    try:
        found = try_to_load_from_cache(file.repo, file.file, revision=file.revision)
    except (OSError, ValueError):
        return None
    return Path(found) if isinstance(found, str) else None


def _names(file: HubFile) -> tuple[str, ...]:
    if not names.is_pattern(file.file):
        return names.shards(file.file)
    snapshot = _snapshot(file)
    if snapshot is None:
        return ()
    here = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.gguf")]
    fitting = names.models(here, file.file)
    return fitting[0] if len(fitting) == 1 else ()


def _snapshot(file: HubFile) -> Path | None:
    folder, revision = repo_folder(file.repo), file.revision or constants.DEFAULT_REVISION
    try:
        commit = (folder / "refs" / revision).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        commit = revision
    snapshot = folder / "snapshots" / commit
    return snapshot if snapshot.is_dir() else None


def _is_gguf(path: Path) -> bool:
    try:
        check_gguf(path)
    except ModelFileError:
        return False
    return True


def forget_broken(file: HubFile) -> None:
    """Take a file that is no GGUF out of the cache, which would else hand it out again."""
    path = in_cache(file)
    if path is not None and not _is_gguf(path):
        path.resolve().unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def remove(paths: Iterable[Path]) -> int:
    """Delete files of the cache, with their data unless another name still leads to it; return the bytes freed.

    Raises StorageError where one cannot be deleted. A path outside the cache is refused.
    """
    freed = 0
    for path in paths:
        if not path.absolute().is_relative_to(cache_folder().absolute()):
            raise StorageError(path, "only files of the Hub's cache are deleted")
        try:
            freed += _remove(path)
        except OSError as error:
            raise StorageError(path, error.strerror or str(error)) from error
    return freed


def _remove(path: Path) -> int:
    if not path.exists():
        return 0
    blob, size = path.resolve(), path.stat().st_size
    path.unlink()
    others = path.parents[_depth(path)].rglob("*.gguf")
    if blob == path or any(other.resolve() == blob for other in others):
        return size if blob == path else 0
    blob.unlink(missing_ok=True)
    return size


def _depth(path: Path) -> int:
    """How many folders `snapshots` lies above the file's own."""
    return next(number for number, parent in enumerate(path.parents) if parent.name == "snapshots")
