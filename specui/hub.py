"""Files from the Hugging Face Hub, through huggingface_hub and its cache.

The only importer of huggingface_hub, which reads HF_HOME, HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE itself. Knows
files, sizes and why a file could not be had; nothing about pairs or models. A token is never part of a message.
"""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import httpx2
from huggingface_hub import HfApi, constants, get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from specui.catalog import Cancelled, HubFile, OnProgress
from specui.errors import DiskSpaceError, HubError, ModelFileError
from specui.gguf import check_gguf

_FREE_MARGIN_BYTES = 50_000_000
_FAILURES = (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, RuntimeError)
"""What huggingface_hub and its transports raise where a file cannot be had."""
_NEAR_NAMES = 4


def cached(file: HubFile) -> Path | None:
    """Return the file from the cache, without any request, if it is there and begins as a GGUF does."""
    path = _in_cache(file)
    if path is None:
        return None
    try:
        check_gguf(path)
    except ModelFileError:
        return None
    return path


def download(files: Sequence[HubFile], on_progress: OnProgress, cancelled: Cancelled) -> list[Path]:
    """Return the paths of `files`, in order; what the cache has is taken from it without a request.

    All sizes are asked for, and the disk space is checked, before the first byte is fetched. Raises HubError with one
    line for people, or DiskSpaceError. A file that breaks off is resumed while the program runs, and begun anew after
    the program was killed.
    """
    here = {file: cached(file) for file in files}
    missing = [file for file in here if here[file] is None]
    sizes = {file: _size(file) for file in missing}
    _check_space(sum(sizes.values()))
    fetch = _Fetch(on_progress, cancelled, sum(sizes.values()))
    fetched = {file: _fetch(file, size, fetch) for file, size in sizes.items()}
    return [here[file] or fetched[file] for file in files]


@dataclass(slots=True)
class _Fetch:
    """The progress of all files together."""

    on_progress: OnProgress
    cancelled: Cancelled
    total_bytes: int
    done_bytes: int = 0

    def stop_if_cancelled(self) -> None:
        if self.cancelled():
            raise _CancelledError

    def advance(self, stage: str, count: int) -> None:
        self.done_bytes += count
        self.on_progress(stage, min(self.done_bytes, self.total_bytes), self.total_bytes)


class _CancelledError(Exception):
    """Leaves huggingface_hub's loop when the user has had enough."""


class _Bar:
    """What huggingface_hub takes for a progress bar of one file.

    `update` is given bytes that were written, negative where a server sent the file from its start again. Having
    `update_transfer` keeps the library from opening a second bar for bytes on the wire.
    """

    def __init__(self, file: HubFile, fetch: _Fetch) -> None:
        self.total: int | None = None
        self.n = 0
        self._stage = f"Downloading {file.file}"
        self._fetch = fetch

    def update(self, count: float | None = 1) -> None:
        """Count bytes, and stop here if the user asked for it."""
        self._fetch.stop_if_cancelled()
        self.n += int(count or 0)
        self._fetch.advance(self._stage, int(count or 0))

    def update_transfer(self, count: float) -> None:
        """Ignore bytes on the wire; only written ones are shown."""

    def set_postfix_str(self, *_text: object, **_options: object) -> None:
        """Ignore the library's own text."""

    set_transfer_postfix_str = set_postfix_str

    def close(self) -> None:
        """Nothing to close."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _bar_class(file: HubFile, fetch: _Fetch) -> type[_Bar]:
    """Return the bar as a class, which the library calls with tqdm's options."""

    class Bar(_Bar):
        def __init__(self, **_options: Any) -> None:
            super().__init__(file, fetch)

    return Bar


def _in_cache(file: HubFile) -> Path | None:
    try:
        found = try_to_load_from_cache(file.repo, file.file, revision=file.revision)
    except (OSError, ValueError):
        return None
    return Path(found) if isinstance(found, str) else None


def _size(file: HubFile) -> int:
    """Ask the Hub how large the file is."""
    if constants.is_offline_mode():
        raise _error(file, OfflineModeIsEnabled())
    try:
        found = get_hf_file_metadata(hf_hub_url(file.repo, file.file, revision=file.revision))
    except _FAILURES as error:
        raise _error(file, error) from error
    if found.size is None or found.commit_hash is None:
        address = constants.ENDPOINT
        raise HubError(file.repo, file.file, f"{address} does not answer as a Hub does; check HF_ENDPOINT and proxies")
    return found.size


def _check_space(needed: int) -> None:
    folder = Path(constants.HF_HUB_CACHE)
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if needed and free < needed + _FREE_MARGIN_BYTES:
        raise DiskSpaceError(folder, needed + _FREE_MARGIN_BYTES, free, "HF_HOME")


def _fetch(file: HubFile, size: int, fetch: _Fetch) -> Path:
    before = fetch.done_bytes
    bar = cast(Any, _bar_class(file, fetch))
    try:
        fetch.stop_if_cancelled()
        _forget_broken(file)
        path = Path(hf_hub_download(file.repo, file.file, revision=file.revision, tqdm_class=bar))
    except _CancelledError:
        raise HubError(file.repo, file.file, "the download was stopped; start it again when you like") from None
    except _FAILURES as error:
        raise _error(file, error) from error
    _check_fetched(file, path, size)
    fetch.advance(f"Downloading {file.file}", before + size - fetch.done_bytes)
    return path


def _forget_broken(file: HubFile) -> None:
    """Take a file that is no GGUF out of the cache, which would else hand it out again."""
    path = _in_cache(file)
    if path is not None and cached(file) is None:
        path.resolve().unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def _check_fetched(file: HubFile, path: Path, size: int) -> None:
    if path.stat().st_size != size:
        raise HubError(file.repo, file.file, f"{path.stat().st_size:,} bytes came, not {size:,}; download it again")
    try:
        check_gguf(path)
    except ModelFileError as error:
        raise HubError(file.repo, file.file, str(error).removeprefix(f"{path}: ")) from None


_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (OfflineModeIsEnabled, "not in the cache, and HF_HUB_OFFLINE forbids asking for it; unset it to download the file"),
    (GatedRepoError, "its terms must be accepted first; accept them at {page} and set HF_TOKEN to a token of yours"),
    (RevisionNotFoundError, "the repository has no revision {revision}; correct it in models.yaml"),
    (RepositoryNotFoundError, "no such repository, or a private one; check the name at {page}, or set HF_TOKEN"),
    (HFValidationError, "the repository's name cannot be right; write owner/name"),
    (httpx2.TimeoutException, "{endpoint} did not answer in time; check the network and try again"),
    (httpx2.RemoteProtocolError, "the download broke off; check the network and start it again"),
    (httpx2.HTTPError, "{endpoint} cannot be reached; check the network, HF_ENDPOINT and proxies"),
    (httpx2.InvalidURL, "{endpoint} is no address; correct HF_ENDPOINT"),
)
"""Why there is no file, by the kind of error, the first that fits. The library's own texts hold addresses and are
not passed on."""

_STATUS_REASONS = {
    401: "the Hub does not accept the token (401); set HF_TOKEN to a valid one, or unset it",
    403: "access is forbidden (403); see {page} for what it takes, and whether HF_TOKEN may read it",
    429: "the Hub wants fewer requests (429); wait some minutes",
}


def _error(file: HubFile, error: BaseException) -> HubError:
    """Return what the library raised as one line for people."""
    if isinstance(error, LocalEntryNotFoundError):
        return _error(file, error.__cause__ or OfflineModeIsEnabled())
    if isinstance(error, RemoteEntryNotFoundError):
        reason = f"the repository has no such file; {_near_names(file)}"
    elif type(error) is HfHubHTTPError:
        status = error.response.status_code
        reason = _STATUS_REASONS.get(status, f"the Hub answered {status}; try again later")
    elif isinstance(error, OSError) and error.errno is not None:
        where = error.filename or constants.HF_HUB_CACHE
        reason = f"{where} cannot be written ({error.strerror}); set HF_HOME to a folder that can"
    else:
        reason = next((text for kind, text in _REASONS if isinstance(error, kind)), "the download failed; try again")
    page = f"{constants.ENDPOINT}/{file.repo}"
    return HubError(file.repo, file.file, reason.format(page=page, revision=file.revision, endpoint=constants.ENDPOINT))


def _near_names(file: HubFile) -> str:
    """Name the GGUF files of the repository that look most like the one asked for."""
    try:
        names = [n for n in HfApi().list_repo_files(file.repo, revision=file.revision) if n.endswith(".gguf")]
    except _FAILURES:
        return f"see {constants.ENDPOINT}/{file.repo} for its files"
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(file.file.lower(), by_lower, n=_NEAR_NAMES, cutoff=0.3)
    if not near:
        return "it has no GGUF file at all" if not names else f"it has {', '.join(sorted(names)[:_NEAR_NAMES])}"
    return f"did you mean {' or '.join(by_lower[name] for name in near)}?"
