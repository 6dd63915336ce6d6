"""What the server remembers of each open page: its running answer, so that the switch and stop can reach it, and files.

Knows no gradio. A page is known by gradio's session hash, which a reload renews; conversations live in the browser.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from specui.config import StepSettings
from specui.generation import Generation
from specui.references import References


@dataclass(slots=True)
class Session:
    """One open page. `show_tokens` says whether the answer in the making is shown token by token.

    `references` are what the next answer may be drafted from.
    """

    generation: Generation | None = None
    show_tokens: bool = False
    references: References = field(default_factory=lambda: References("Draft from these"))

    @property
    def running(self) -> bool:
        """Whether an answer of this page is queued or being written."""
        return self.generation is not None and not self.generation.progress.over

    def update(self, settings: StepSettings) -> None:
        """Let the running answer, if there is one, go on under `settings`."""
        if self.generation is not None:
            self.generation.update(settings)

    def stop(self) -> None:
        """End the running answer; its stream shows what was written so far."""
        if self.generation is not None:
            self.generation.cancel()

    def leave(self) -> None:
        """End the running answer and take it off the page: another conversation is shown now."""
        generation, self.generation = self.generation, None
        if generation is not None:
            generation.cancel()


class Sessions:
    """The open pages by their session hash."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}

    def get(self, key: str | None) -> Session:
        """Return the session of a page, made when first asked for."""
        with self._lock:
            return self._sessions.setdefault(key or "", Session())

    def drop(self, key: str | None) -> None:
        """Forget a page that was closed, and end its answer."""
        with self._lock:
            session = self._sessions.pop(key or "", None)
        if session is not None:
            session.leave()

    def close(self) -> None:
        """End every answer; the program ends."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.leave()

    def __len__(self) -> int:
        return len(self._sessions)
