"""Why a file could not be had, as one line for people.

Turns what huggingface_hub and its transports raise into HubError. The library's own texts hold addresses and are not
passed on.
"""

from __future__ import annotations

import httpx2
from huggingface_hub import HfApi, constants
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

from specui.catalog import HubFile
from specui.errors import HubError
from specui.hub.names import near

FAILURES = (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, RuntimeError)
"""What huggingface_hub and its transports raise where something cannot be had."""

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
"""By the kind of error, the first that fits."""

_STATUS_REASONS = {
    401: "the Hub does not accept the token (401); set HF_TOKEN to a valid one, or unset it",
    403: "access is forbidden (403); see {page} for what it takes, and whether HF_TOKEN may read it",
    429: "the Hub wants fewer requests (429); wait some minutes",
}


def refuse_offline(file: HubFile) -> None:
    """Raise HubError where no request may be made."""
    if constants.is_offline_mode():
        raise hub_error(file, OfflineModeIsEnabled())


def no_hub(file: HubFile) -> HubError:
    """The error for a server that answers otherwise than a Hub."""
    reason = f"{constants.ENDPOINT} does not answer as a Hub does; check HF_ENDPOINT and proxies"
    return HubError(file.repo, file.file, reason)


def hub_error(file: HubFile, error: BaseException) -> HubError:
    """Return what the library raised as one line for people."""
    if isinstance(error, HubError):
        return error
    if isinstance(error, LocalEntryNotFoundError):
        return hub_error(file, error.__cause__ or OfflineModeIsEnabled())
    reason = _reason(file, error)
    page = f"{constants.ENDPOINT}/{file.repo}"
    return HubError(file.repo, file.file, reason.format(page=page, revision=file.revision, endpoint=constants.ENDPOINT))


def _reason(file: HubFile, error: BaseException) -> str:
    if isinstance(error, RemoteEntryNotFoundError):
        return f"the repository has no such file; {_near_names(file)}".replace("{", "{{").replace("}", "}}")
    if type(error) is HfHubHTTPError:
        status = error.response.status_code
        return _STATUS_REASONS.get(status, f"the Hub answered {status}; try again later")
    if isinstance(error, OSError) and error.errno is not None:
        where = str(error.filename or constants.HF_HUB_CACHE).replace("{", "{{").replace("}", "}}")
        return f"{where} cannot be written ({error.strerror}); set HF_HOME to a folder that can"
    return next((text for kind, text in _REASONS if isinstance(error, kind)), "the download failed; try again")


def _near_names(file: HubFile) -> str:
    try:
        return near(file.file, HfApi().list_repo_files(file.repo, revision=file.revision))
    except FAILURES:
        return f"see {constants.ENDPOINT}/{file.repo} for its files"
