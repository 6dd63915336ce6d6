"""Downloads: several files at once, resumed where they stopped, checked, then handed to huggingface_hub's cache.

What was fetched lies beside the cache's own data until it is whole and its SHA-256 is right, also across a kill. The
library then gives it its name in the cache, as if it had fetched it itself.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from filelock import FileLock, Timeout
from huggingface_hub import constants, hf_hub_download, hf_hub_url
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_stream_backoff  # type: ignore[attr-defined]

from specui.catalog import Cancelled, HubFile, OnProgress
from specui.errors import DiskSpaceError, HubError, ModelFileError
from specui.gguf import check_gguf
from specui.hub.cache import PARTIAL, cache_folder, cached, forget_broken, free_bytes, in_cache, repo_folder
from specui.hub.listing import Part, parts
from specui.hub.reasons import FAILURES, hub_error

_FREE_MARGIN_BYTES = 50_000_000
_AT_ONCE = 4
_PIECE_BYTES = 1024 * 1024
"""What a kill can lose, and how often progress is told and a stop is seen."""
_ATTEMPTS = 5
_WAIT_SECONDS = 1.0
_POLL_SECONDS = 0.1
_SHA256_DIGITS = 64
_TRANSIENT = (httpx2.NetworkError, httpx2.TimeoutException, httpx2.RemoteProtocolError)


def download(files: Sequence[HubFile], on_progress: OnProgress, cancelled: Cancelled) -> list[Path]:
    """Return the paths of `files` (of the first part where there are several), in order.

    What the cache has is taken from it without a request. All sizes are asked for, and the disk space is checked,
    before the first byte is fetched. Raises HubError with one line for people, or DiskSpaceError; what was fetched by
    then is used the next time.
    """
    found = [cached(file) for file in files]
    missing = [file for file, path in zip(files, found, strict=True) if path is None]
    if missing:
        wanted = list(dict.fromkeys(part for file in missing for part in parts(file)))
        _fetch_all(wanted, on_progress, cancelled)
        found = [cached(file) for file in files]
    return [_surely(file, path) for file, path in zip(files, found, strict=True)]


def _surely(file: HubFile, path: Path | None) -> Path:
    if path is None:
        raise HubError(file.repo, file.file, "the file went away while it was being fetched; try again")
    return path


@dataclass(slots=True)
class _Board:
    """The progress of all files together; told by several threads."""

    on_progress: OnProgress
    cancelled: Cancelled
    done_bytes: dict[Part, int]
    failed: threading.Event = field(default_factory=threading.Event)
    _active: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def stop_if_cancelled(self) -> None:
        if self.failed.is_set() or self.cancelled():
            raise _StoppedError

    @contextmanager
    def stage(self, words: str) -> Iterator[None]:
        with self._lock:
            self._active.append(words)
            self._tell()
        try:
            yield
        finally:
            with self._lock:
                self._active.remove(words)

    def at(self, part: Part, done_bytes: int) -> None:
        with self._lock:
            self.done_bytes[part] = done_bytes
            self._tell()

    def _tell(self) -> None:
        stage = " and ".join(self._active[:2]) + (" and more" if len(self._active) > 2 else "")
        self.on_progress(stage, sum(self.done_bytes.values()), sum(part.size for part in self.done_bytes))


class _StoppedError(Exception):
    """Ends a thread when the user has had enough, or when another file failed."""


def _fetch_all(wanted: Sequence[Part], on_progress: OnProgress, cancelled: Cancelled) -> None:
    for part in wanted:
        forget_broken(part.file)
    wanted = [part for part in wanted if in_cache(part.file) is None]
    here = {part: _fetched_bytes(part) for part in wanted}
    _check_space(sum(part.size for part in wanted) - sum(here.values()))
    board = _Board(on_progress, cancelled, here)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="download") as pool:
        jobs = [pool.submit(_fetch, part, board) for part in wanted]
        try:
            wait(jobs, return_when=FIRST_EXCEPTION)
        finally:  # also for Ctrl+C: the pool ends only when its threads do
            if not all(job.done() and job.exception() is None for job in jobs):
                board.failed.set()
    _raise_first(wanted, jobs)


def _raise_first(wanted: Sequence[Part], jobs: Sequence[Future[None]]) -> None:
    """Raise what went wrong; a stop only where nothing else did."""
    errors = [(part, job.exception()) for part, job in zip(wanted, jobs, strict=True)]
    for _, error in errors:
        if error is not None and not isinstance(error, _StoppedError):
            raise error
    for part, error in errors:
        if error is not None:
            reason = "the download was stopped; start it again when you like, and it goes on from there"
            raise HubError(part.file.repo, part.file.file, reason)


def _check_space(needed: int) -> None:
    free = free_bytes()
    if needed > 0 and free < needed + _FREE_MARGIN_BYTES:
        raise DiskSpaceError(cache_folder(), needed + _FREE_MARGIN_BYTES, free, "HF_HOME")


def _blob(part: Part) -> Path:
    return repo_folder(part.file.repo) / "blobs" / part.etag


def _partial(part: Part) -> Path:
    return _blob(part).with_name(part.etag + PARTIAL)


def _fetched_bytes(part: Part) -> int:
    """How much of the file is here already, from an earlier attempt."""
    with suppress(OSError):
        return min(_blob(part).stat().st_size, part.size)
    with suppress(OSError):
        size = _partial(part).stat().st_size
        return size if size <= part.size else 0
    return 0


def _fetch(part: Part, board: _Board) -> None:
    """Bring one file into the cache, alone among all processes that use this lock."""
    try:
        board.stop_if_cancelled()
        lock = _locked(part, board)
        try:
            _fill(part, board)
        finally:
            lock.release()
        hf_hub_download(part.file.repo, part.file.file, revision=part.file.revision)
    except (_StoppedError, HubError):
        raise
    except FAILURES as error:
        raise hub_error(part.file, error) from error


def _locked(part: Part, board: _Board) -> FileLock:
    """Return the lock that huggingface_hub takes for this file, held."""
    path = cache_folder() / ".locks" / repo_folder(part.file.repo).name / f"{part.etag}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    _blob(part).parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, thread_local=False)
    with suppress(Timeout):
        lock.acquire(timeout=0)
        return lock
    with board.stage(f"Waiting for another program that downloads {part.file.file}"):
        while True:
            board.stop_if_cancelled()
            with suppress(Timeout):
                lock.acquire(timeout=_POLL_SECONDS)
                return lock


def _fill(part: Part, board: _Board) -> None:
    """Fetch what is missing, check the whole and make it the cache's data."""
    if _blob(part).exists():
        board.at(part, part.size)
        return
    path, had = _partial(part), _fetched_bytes(part)
    verb = f"Resuming {part.file.file} at {100 * had // part.size} %" if had else f"Downloading {part.file.file}"
    with board.stage(verb):
        _transfer(part, path, board)
    with board.stage(f"Checking {part.file.file}"):
        try:
            _check(part, path, board)
        except HubError:
            path.unlink(missing_ok=True)
            raise
    path.replace(_blob(part))


def _transfer(part: Part, path: Path, board: _Board) -> None:
    """Fetch until the file is whole; a connection that breaks is taken up again while new bytes come."""
    attempts = _ATTEMPTS
    path.touch()  # an empty file needs no request, and is refused as one
    while (have := _size(path)) != part.size:
        try:
            _transfer_once(part, path, board)
            break
        except _TRANSIENT:
            attempts = _ATTEMPTS if _size(path) > have else attempts - 1
            if attempts <= 0:
                raise
            _rest(board)


def _rest(board: _Board) -> None:
    end = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < end:
        board.stop_if_cancelled()
        time.sleep(_POLL_SECONDS)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _transfer_once(part: Part, path: Path, board: _Board) -> None:
    have = _size(path)
    if have > part.size:
        path.unlink()
        have = 0
    url = hf_hub_url(part.file.repo, part.file.file, revision=part.commit)
    headers = build_hf_headers() | {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with (
        http_stream_backoff(
            "GET", url, headers=headers, timeout=timeout, retry_on_exceptions=(), retry_on_status_codes=(408, 429)
        ) as response,
        path.open("ab", buffering=0) as out,
    ):
        hf_raise_for_status(response)
        if response.status_code != httpx2.codes.PARTIAL_CONTENT and have:
            out.truncate(0)
            have = 0
        for piece in response.iter_bytes(_PIECE_BYTES):
            board.stop_if_cancelled()
            out.write(piece)
            have += len(piece)
            board.at(part, have)


def _check(part: Part, path: Path, board: _Board) -> None:
    """Raise HubError unless the file has the size and the SHA-256 that the Hub names, and begins as a GGUF does."""
    size = _size(path)
    if size != part.size:
        raise HubError(part.file.repo, part.file.file, f"{size:,} bytes came, not {part.size:,}; download it again")
    try:
        check_gguf(path)
    except ModelFileError as error:
        raise HubError(part.file.repo, part.file.file, str(error).removeprefix(f"{path}: ")) from None
    if len(part.etag) == _SHA256_DIGITS and _sha256(path, board) != part.etag:
        reason = "what came has another SHA-256 than the Hub names, so it was damaged on the way; download it again"
        raise HubError(part.file.repo, part.file.file, reason)


def _sha256(path: Path, board: _Board) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            board.stop_if_cancelled()
            digest.update(piece)
    return digest.hexdigest()
