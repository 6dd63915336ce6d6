"""Looks at pairs in the background, before anything is downloaded; the page asks how far each look is.

Knows no gradio. One look a pair at a time; the last result stays until the next.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from specui.catalog import Pair
from specui.errors import SpecUIError
from specui.inspection import PairFacts

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Look:
    """A look at one pair: going on, or what it told, or why it told nothing."""

    facts: PairFacts | None = None
    error: str = ""

    @property
    def busy(self) -> bool:
        """Whether it goes on."""
        return self.facts is None and not self.error


class Looks:
    """The looks at all pairs, by name. All methods may be called from any thread."""

    def __init__(self, inspect: Callable[[Pair], PairFacts]) -> None:
        self._inspect = inspect
        self._looks: dict[str, Look] = {}
        self._lock = threading.Lock()

    @property
    def busy(self) -> bool:
        """Whether any look goes on."""
        return any(look.busy for look in list(self._looks.values()))

    def of(self, name: str) -> Look | None:
        """Return the look at a pair, if there is or was one."""
        return self._looks.get(name)

    def forget(self, name: str) -> None:
        """Drop what was told of a pair."""
        with self._lock:
            self._looks.pop(name, None)

    def begin(self, pair: Pair) -> None:
        """Look at a pair, unless that goes on already."""
        with self._lock:
            look = self._looks.get(pair.name)
            if look is not None and look.busy:
                return
            self._looks[pair.name] = Look()
        threading.Thread(target=self._run, args=(pair,), name="look", daemon=True).start()

    def _run(self, pair: Pair) -> None:
        try:
            look = Look(self._inspect(pair))
        except SpecUIError as error:
            look = Look(error=str(error))
        except Exception as error:  # the thread's last stop: without this the page would wait forever
            log.exception("looking at %s failed", pair.name)
            look = Look(error=f"{type(error).__name__}: {error}")
        with self._lock:
            self._looks[pair.name] = look
