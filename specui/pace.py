"""How fast a long transfer goes and how long it will take, from what has been done at which time.

Knows numbers only. The speed is that of the last seconds, so that a pause or a second wind shows.
"""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 5.0
_LEAST_SECONDS = 0.5
"""A speed measured over less time is noise and is not told."""


class Pace:
    """Told how far a transfer is, now and then; a new total begins a new transfer."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._total = 0

    def at(self, now_seconds: float, done: int, total: int) -> None:
        """Note that `done` of `total` bytes are here."""
        if total != self._total or (self._seen and done < self._seen[-1][1]):
            self._seen.clear()
            self._total = total
        self._seen.append((now_seconds, done))
        while len(self._seen) > 2 and self._seen[1][0] <= now_seconds - WINDOW_SECONDS:
            self._seen.popleft()

    @property
    def bytes_per_second(self) -> float | None:
        """The speed of the last seconds; None where nothing can be said yet."""
        if len(self._seen) < 2:
            return None
        (begin, before), (end, after) = self._seen[0], self._seen[-1]
        return (after - before) / (end - begin) if end - begin >= _LEAST_SECONDS else None

    @property
    def seconds_left(self) -> float | None:
        """The time to the end at this speed; None where nothing can be said."""
        speed = self.bytes_per_second
        return (self._total - self._seen[-1][1]) / speed if speed else None

    @property
    def words(self) -> str:
        """All of it for people: `34 % of 1.2 GB · 12.3 MB/s · 1 min 5 s left`; empty without a total."""
        if not self._total or not self._seen:
            return ""
        done, speed, left = self._seen[-1][1], self.bytes_per_second, self.seconds_left
        parts = [f"{100 * done // self._total} % of {size(self._total)}"]
        if done < self._total and speed:
            parts += [f"{size(speed)}/s"] + ([f"{duration(left)} left"] if left is not None else [])
        return " · ".join(parts)


def size(count: float) -> str:
    """Return bytes for people, in units of 1000: `986 MB`, `4.68 GB`."""
    if count < 999_500:
        return f"{count / 1e3:,.0f} kB"
    if count < 9_950_000:
        return f"{count / 1e6:.1f} MB"
    return f"{count / 1e6:,.0f} MB" if count < 999_500_000 else f"{count / 1e9:,.2f} GB"


def duration(seconds: float) -> str:
    """Return a time for people: `8 s`, `1 min 5 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
