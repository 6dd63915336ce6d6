"""A small Hub on 127.0.0.1 that speaks what huggingface_hub asks for, and misbehaves on request.

It serves repositories held in memory: resolve (HEAD, GET, ranges), the file tree, the model's info and the search; it
can ask for a token, be gated, redirect to another host, break off in the middle, stall, lie about a size or a
checksum. Every request is kept in `requests`, and the bytes of all answers are counted.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_test_token_that_must_never_be_shown"


@dataclass
class HubRepo:
    """One repository. `needs_token`: 401 without it; `gated` and `forbidden`: two kinds of 403."""

    files: dict[str, bytes]
    needs_token: bool = False
    gated: bool = False
    forbidden: bool = False
    status: int = 200
    downloads: int = 1
    gguf: dict[str, object] | None = None


@dataclass(frozen=True)
class SeenRequest:
    """What a client asked for."""

    method: str
    path: str
    byte_range: str | None
    token: str | None


@dataclass
class HubState:
    """The server's repositories and faults; tests change them while it runs.

    `break_offs`: for each GET of a file, in order, the bytes after which the connection is cut. `stall_after`: bytes
    after which a GET sends nothing more until `resume` is set. `claimed_size`: what HEAD says in place of the truth.
    """

    repos: dict[str, HubRepo] = field(default_factory=dict)
    break_offs: list[int] = field(default_factory=list)
    stall_after: int | None = None
    claimed_sizes: list[int] = field(default_factory=list)
    claimed_sha256: str | None = None
    storage: str | None = None
    no_ranges: bool = False
    seconds_per_megabyte: float = 0.0
    forbid_after: int | None = None
    bare: bool = False
    requests: list[SeenRequest] = field(default_factory=list)
    sent_bytes: int = 0
    answered_bytes: int = 0
    stalled: threading.Event = field(default_factory=threading.Event)
    resume: threading.Event = field(default_factory=threading.Event)
    endpoint: str = ""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def count(self, count: int, of_file: bool) -> None:
        """Add bytes that were sent; from several threads."""
        with self._lock:
            self.answered_bytes += count
            self.sent_bytes += count if of_file else 0

    def seen(self, method: str) -> list[SeenRequest]:
        """The requests of one method."""
        return [request for request in self.requests if request.method == method]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: HubState

    def log_message(self, *_args: object) -> None:
        """Keep quiet."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        token = self.headers.get("Authorization")
        self.state.requests.append(SeenRequest(self.command, path, self.headers.get("Range"), token))
        if path == "api/models":
            self._send_json(self._search())
            return
        is_api = path.startswith("api/models/")
        parts = path.removeprefix("api/models/").split("/", 4 if not is_api else 3)
        repo = self.state.repos.get("/".join(parts[:2]))
        refusal = self._refusal(repo, token)
        if refusal is not None or repo is None:
            self._send_error(*(refusal or (404, "RepoNotFound", "Repository not found")))
        elif is_api:
            self._send_json(self._api(repo, parts))
        else:
            self._resolve(repo, parts[3], parts[4])

    def _refusal(self, repo: HubRepo | None, token: str | None) -> tuple[int, str, str] | None:
        if token not in (None, f"Bearer {TOKEN}"):
            return 401, "", "Invalid credentials in Authorization header"
        if repo is None or (repo.needs_token and token is None):
            return 401, "RepoNotFound", "Repository not found"
        if repo.gated:
            return 403, "GatedRepo", "Access to this model is restricted"
        limit = self.state.forbid_after
        if repo.forbidden or (limit is not None and len(self.state.requests) > limit):
            return 403, "", "Forbidden"
        return (repo.status, "", "out of order") if repo.status != 200 else None

    def _api(self, repo: HubRepo, parts: list[str]) -> object:
        if len(parts) > 2 and parts[2] == "tree":
            return [_tree_entry(name, data) for name, data in repo.files.items()]
        return {"id": "/".join(parts[:2]), "sha": COMMIT, "siblings": [{"rfilename": name} for name in repo.files]}

    def _search(self) -> list[dict[str, object]]:
        asked = parse_qs(urlsplit(self.path).query)
        words = asked.get("search", [""])[0].lower().split()
        found = [(name, repo) for name, repo in self.state.repos.items() if all(w in name.lower() for w in words)]
        found.sort(key=lambda each: -each[1].downloads)
        return [
            {"id": name, "downloads": repo.downloads, "gated": "manual" if repo.gated else False, "gguf": repo.gguf}
            for name, repo in found[: int(asked.get("limit", ["100"])[0])]
        ]

    def _resolve(self, repo: HubRepo, revision: str, name: str) -> None:
        if revision not in ("main", COMMIT):
            self._send_error(404, "RevisionNotFound", "Invalid rev id")
        elif name not in repo.files:
            self._send_error(404, "EntryNotFound", "Entry not found")
        else:
            self._send_file(repo.files[name])

    def _send_file(self, data: bytes) -> None:
        first, last = self._range(len(data))
        sha256 = self.state.claimed_sha256 or hashlib.sha256(data).hexdigest()
        if self.state.storage is not None:
            self._send_elsewhere(sha256, len(data))
            return
        self.send_response(206 if self._ranged else 200)
        size = len(data)
        if not self.state.bare:
            self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{sha256}"')
        lies = self.command == "HEAD" and self.state.claimed_sizes
        self.send_header("X-Linked-Size", str(self.state.claimed_sizes.pop(0) if lies else size))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(last + 1 - first))
        if self._ranged:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.end_headers()
        if self.command == "GET":
            self._send_body(data[first : last + 1])

    def _send_elsewhere(self, sha256: str, size: int) -> None:
        """Answer as the Hub does for large files: headers of the file, and a redirect to where its bytes are."""
        self.send_response(302)
        self.send_header("Location", f"{self.state.storage}{self.path}")
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("X-Linked-ETag", f'"{sha256}"')
        self.send_header("X-Linked-Size", str(size))
        self.send_header("Content-Length", "0")
        self.end_headers()

    @property
    def _ranged(self) -> bool:
        return "Range" in self.headers and not self.state.no_ranges

    def _range(self, size: int) -> tuple[int, int]:
        if not self._ranged:
            return 0, size - 1
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        return int(first), min(int(last), size - 1) if last else size - 1

    def _send_body(self, data: bytes) -> None:
        cut = self.state.break_offs.pop(0) if self.state.break_offs else None
        if cut is not None:
            self._write(data[:cut])
            self.close_connection = True
        elif self.state.stall_after is not None:
            self._write(data[: self.state.stall_after])
            self.state.stalled.set()
            self.state.resume.wait(30)
            self._write(data[self.state.stall_after :])
        else:
            self._write(data)

    def _write(self, data: bytes) -> None:
        try:
            for begin in range(0, len(data), 1_000_000):
                self.wfile.write(data[begin : begin + 1_000_000])
                self.wfile.flush()
                self.state.count(len(data[begin : begin + 1_000_000]), of_file=True)
                time.sleep(self.state.seconds_per_megabyte)
        except OSError:
            self.close_connection = True

    def _send_error(self, status: int, code: str, message: str) -> None:
        self._send_json({"error": message}, status, {"X-Error-Code": code, "X-Error-Message": message})

    def _send_json(self, value: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        for key, text in (headers or {}).items():
            if text:
                self.send_header(key, text)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
            self.state.count(len(body), of_file=False)


def _tree_entry(name: str, data: bytes) -> dict[str, object]:
    sha256 = hashlib.sha256(data).hexdigest()
    return {
        "type": "file",
        "path": name,
        "size": len(data),
        "oid": hashlib.sha1(data).hexdigest(),  # noqa: S324
        "lfs": {"oid": sha256, "size": len(data), "pointerSize": 130},
    }


@contextmanager
def hub_server(repos: dict[str, HubRepo]) -> Iterator[HubState]:
    """Run a Hub with these repositories on a free port until the block ends."""
    state = HubState(repos)
    handler = type("Handler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    state.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.resume.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
