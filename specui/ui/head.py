"""Puts a script at the top of the page, before gradio's own modules load; gradio's `head` comes only after them.

Knows the ASGI protocol and no library.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

HEAD = b"<head>"

CALM = """
// The sign gradio shows while the page loads goes on counting its seconds after it is gone, once a frame for ever.
// Where the browser runs on the model's machine those frames cost the model some of its speed: once a second will do.
(() => {
  const counts = /performance\\.now\\(\\).*\\/\\s*(1e3|1000)/, frame = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (callback) => (counts.test(String(callback))
    ? setTimeout(() => callback(performance.now()), 1000) : frame(callback));
})();
"""


class ScriptFirst:
    """ASGI middleware: HTML at path "/" gets `script` as the first thing in its head."""

    def __init__(self, app: Application, script: str) -> None:
        self._app = app
        self._insert = HEAD + b"<script>" + script.encode() + b"</script>"

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on; only a GET of the page itself is changed."""
        if scope["type"] != "http" or scope["path"] != "/" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        await self._app(scope, receive, _Rewriter(send, self._insert))


class _Rewriter:
    """Holds a response back until it is whole, then sends it with the insertion and its new length."""

    def __init__(self, send: Send, insert: bytes) -> None:
        self._send = send
        self._insert = insert
        self._start: Message = {}
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        body = self._body.replace(HEAD, self._insert, 1)
        kept = [(name, value) for name, value in self._start["headers"] if name != b"content-length"]
        await self._send({**self._start, "headers": [*kept, (b"content-length", str(len(body)).encode())]})
        await self._send({"type": "http.response.body", "body": body})
