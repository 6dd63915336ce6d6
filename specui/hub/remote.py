"""A file on the Hub that is read in pieces, for a look at its header without a download.

Pieces are asked for with HTTP ranges through huggingface_hub's own session; what was transferred is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import httpx2
from huggingface_hub import constants, hf_hub_url
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_stream_backoff  # type: ignore[attr-defined]

from specui.catalog import HubFile
from specui.errors import HubError
from specui.hub.listing import parts
from specui.hub.reasons import FAILURES, hub_error, refuse_offline

_PIECE_BYTES = 64 * 1024
_SKIPPED_BYTES_LIMIT = 32 * 1024 * 1024
"""How much of a file is read past where a server sends no ranges."""


@dataclass(slots=True)
class RemoteFile:
    """A file of known size. `read_at` raises HubError; `bytes_read` counts what came over the network."""

    file: HubFile
    size: int
    bytes_read: int = 0

    @property
    def name(self) -> str:
        """Repository and file, for messages."""
        return f"{self.file.repo} {self.file.file}"

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`, fewer only where the file ends."""
        size = min(size, self.size - offset)
        if size <= 0:
            return b""
        refuse_offline(self.file)
        try:
            return self._read(offset, size)
        except FAILURES as error:
            raise hub_error(self.file, error) from error

    def _read(self, offset: int, size: int) -> bytes:
        url = hf_hub_url(self.file.repo, self.file.file, revision=self.file.revision)
        headers = build_hf_headers(headers={"Range": f"bytes={offset}-{offset + size - 1}"})
        headers["Accept-Encoding"] = "identity"
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with http_stream_backoff("GET", url, headers=headers, timeout=timeout, max_retries=2) as response:
            hf_raise_for_status(response)
            skipped = offset if response.status_code == httpx2.codes.OK else 0
            if skipped > _SKIPPED_BYTES_LIMIT:
                reason = "the server sends no ranges, so its header cannot be read without a download"
                raise HubError(self.file.repo, self.file.file, reason)
            return self._collect(response, skipped, size)

    def _collect(self, response: httpx2.Response, skipped: int, size: int) -> bytes:
        data = bytearray()
        for piece in response.iter_bytes(_PIECE_BYTES):
            data += piece
            self.bytes_read += len(piece)
            if len(data) >= skipped + size:
                break
        if len(data) < skipped + size:
            raise HubError(self.file.repo, self.file.file, "the server sent less than was asked for; try again")
        return bytes(data[skipped : skipped + size])


def remote_files(file: HubFile) -> list[RemoteFile]:
    """Return all parts of `file` for reading, in order, pinned to the present commit. Raises HubError."""
    return [RemoteFile(replace(part.file, revision=part.commit), part.size) for part in parts(file)]


def remote_file(file: HubFile) -> RemoteFile:
    """Return the first part of `file` for reading. Raises HubError."""
    return remote_files(file)[0]
