"""Starts SpecUI: parses the options, binds the address, loads the pair in the background and serves the page.

Everything else is elsewhere: the page in `specui/ui/`, the model in `specui/runtime.py`. Page and API share one
FastAPI application on one port.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
from collections.abc import Sequence

import uvicorn
from fastapi import FastAPI

from specui import pairs
from specui.catalog import Cancelled, Catalog, OnProgress, PairFiles
from specui.commands.options import Parser, add_model_options, given_files, load_settings
from specui.config import (
    DEFAULT_HOST,
    DEFAULT_PAIR,
    DEFAULT_PORT,
    MAX_PORT,
    SPECULATION_MODES,
    DraftingSettings,
    parse_mode,
)
from specui.draft_slot import NO_DRAFT
from specui.errors import PortError, SettingError, SpecUIError
from specui.runtime import Runtime
from specui.ui.loader import Fetch, PairLoader
from specui.ui.models import begin
from specui.ui.page import House, build, end_streams, mount

SHUTDOWN_SECONDS = 2
log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until interrupted. Exit code 2 for an option that cannot work, 1 for any other error, in one line."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # what failed is said in one line of ours
    arguments = _parser().parse_args(argv)
    try:
        _run(arguments)
    except SpecUIError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, SettingError) else 1
    except KeyboardInterrupt:
        pass  # the usual way to end it
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python app.py", description="A local chat with a speculation switch.")
    page = parser.add_argument_group("page")
    page.add_argument("--host", default=_default_host(), metavar="HOST", help="address (default: %(default)s)")
    page.add_argument("--port", type=int, default=DEFAULT_PORT, metavar="N", help="port (default: %(default)s)")
    add_model_options(parser)
    modes, start = ", ".join(SPECULATION_MODES), DraftingSettings().speculation
    parser.add_argument("--speculation", default=start, metavar="MODE", help=f"{modes} (default: %(default)s)")
    return parser


def _default_host() -> str:
    """Return the address to bind; a Hugging Face Space is reached from outside its container."""
    return "0.0.0.0" if os.environ.get("SPACE_ID") else DEFAULT_HOST  # noqa: S104


def _run(arguments: argparse.Namespace) -> None:
    speculation = parse_mode(arguments.speculation, "--speculation")
    catalog = Catalog.default()
    settings = load_settings(arguments)
    given = given_files(arguments)
    pair = None if given else catalog.pair(arguments.pair or DEFAULT_PAIR)
    draft = given.draft if given is not None else pair.draft if pair is not None else None
    if speculation == "draft-model" and draft is None:
        log.warning("--speculation draft-model: %s; answers are written without drafts", NO_DRAFT)
    listener = listen(arguments.host, arguments.port)
    runtime = Runtime(settings)
    house = House(runtime, PairLoader(runtime), catalog, pairs, speculation)
    if given is not None:
        house.loader.start(given.name, given.title, _already_here(given))
    elif pair is not None:
        begin(house.loader, pair, pairs)
    try:
        serve(house, listener)
    finally:
        house.loader.cancel()
        runtime.close()


def _already_here(files: PairFiles) -> Fetch:
    def fetch(on_progress: OnProgress, cancelled: Cancelled) -> PairFiles:
        return files

    return fetch


def application(house: House) -> FastAPI:
    """Return the application: the page at its root."""
    app = FastAPI(title="SpecUI", docs_url=None, redoc_url=None, openapi_url=None)
    mount(app, build(house))
    return app


def listen(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address; port 0 takes a free one. Raises SettingError, PortError."""
    if not 0 <= port <= MAX_PORT:
        raise SettingError("--port", port, f"a whole number from 0 to {MAX_PORT:,}")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        code = error.errno or 0
        reason = os.strerror(code) if code > 0 else error.strerror or str(error)
        raise PortError(host, port, reason.lower()) from None


def serve(house: House, listener: socket.socket) -> None:
    """Print the address and serve until interrupted."""
    host, port = listener.getsockname()[:2]
    shown = "localhost" if host in ("0.0.0.0", "::") else host  # noqa: S104
    address = f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
    sys.stdout.write(f"SpecUI is at {address}  (Ctrl+C ends it)\n")
    sys.stdout.flush()
    PageServer(house).run(sockets=[listener])


class PageServer(uvicorn.Server):
    """A server that ends the streams of open pages first, so that it need not tear them down with a complaint."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._app = application(house)
        forwarders = "*" if os.environ.get("SPACE_ID") else None
        super().__init__(
            uvicorn.Config(
                self._app,
                log_level="warning",
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
                forwarded_allow_ips=forwarders,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._house.sessions.close()
        end_streams(self._app)
        await super().shutdown(sockets)


if __name__ == "__main__":
    raise SystemExit(main())
