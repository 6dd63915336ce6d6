"""llama.cpp's log, which holds the reason where a call returns nothing.

Knows lines of text; neither models nor contexts.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque

import llama_cpp

_LOG_LEVELS_KEPT = (3, 4)
"""ggml's numbers for warning and error."""


class Log:
    """Keeps llama.cpp's last warnings and errors, which hold the reason when a load returns nothing."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=32)
        self._callback = llama_cpp.llama_log_callback(self._on_line)
        llama_cpp.llama_log_set(self._callback, ctypes.c_void_p(0))

    def _on_line(self, level: int, text: bytes, _user_data: ctypes.c_void_p) -> None:
        if level in _LOG_LEVELS_KEPT:
            self.lines.append(text.decode("utf-8", "replace").strip())

    def reason(self, fallback: str) -> str:
        """Return the first kept line that says what failed, without the function names in front."""
        for line in list(self.lines):
            if "error" in line.lower() or "failed" in line.lower():
                return line.split(": ", 1)[-1].removeprefix("error loading model: ")
        return fallback


_log: Log | None = None
_lock = threading.Lock()


def begin_log() -> Log:
    """Start llama.cpp's backend on the first call, and return its log with no line in it."""
    global _log
    with _lock:
        if _log is None:
            llama_cpp.llama_backend_init()
            _log = Log()
        _log.lines.clear()
        return _log
