"""What a pass costs on this machine, by its number of rows and the tokens in front of it.

On CPUs that is a staircase (kernels work in fours), so it is measured, not modelled. Knows numbers; nothing about who
measures them or what for.
"""

from __future__ import annotations

from collections.abc import Mapping

from specui.config import MAX_DRAFT_TOKENS_LIMIT

LEARNING, QUICK_LEARNING = 0.15, 3.0
"""A reading moves a price by this share of the difference; by 1 / (so much + the readings before) if that is more."""
MOST_SURPRISE = 2.0
"""A pass counts for at most so many times what is expected of it."""

DOUBT = 0.998
"""What is left of a size's price after each pass that was padded in its place, and of one nearly chosen that is hardly
known."""
MOST_DOUBT = 0.5
"""It is never held cheaper than this part of what it was read to take, or of what its neighbours were."""
CALIBRATED_READINGS = 2.0
"""What a calibration, or what was kept, counts for."""
SURE_READINGS = 4.0
"""A size that was read so often is known; MOST_READINGS are remembered."""
MOST_READINGS = 8.0

LENGTH_STEP = 16
"""The tables are worked out anew whenever the text has grown by so many tokens."""

MOST_ROWS = MAX_DRAFT_TOKENS_LIMIT + 1


class PassCosts:
    """Seconds of a pass by number of rows and tokens in front of it.

    Measured points, straight lines between them; and each row takes `cell_seconds` more for every token in front, since
    it attends to all of them. A pass over a draft is never held to cost more than a longer one: `padded` says to which
    length it is padded. Passes of one row are not padded, since other kernels could round them otherwise. Readings of
    one row move a drift that scales all alike (the machine got busier or clocked down); readings of more rows move
    their own point and, by its share of the pass, what attending costs. Choices depend on ratios only, which a short
    disturbance must not bend.

    A price that is too low corrects itself, since the size is used and read. One that is too high would not; so a size
    that was nearly chosen and is hardly known is held a little cheaper each time.
    """

    def __init__(self, seconds_by_rows: Mapping[int, float], cell_seconds: float = 0.0) -> None:
        """`seconds_by_rows` are those of passes with nothing in front."""
        self._points = dict(sorted(seconds_by_rows.items()))
        self._readings = dict.fromkeys(self._points, CALIBRATED_READINGS)
        self._read = self._points.copy()
        """The points as readings left them, without the doubts since."""
        self._cell_seconds = cell_seconds
        self._length = 0
        self._drift = 1.0
        self.version = 0
        """Counts the changes of the tables; the drift is no change, since it scales all alike."""
        self._fill_tables()

    def at(self, length: int) -> None:
        """From now on passes have about `length` tokens in front."""
        if abs(length - self._length) >= LENGTH_STEP:
            self._length = length
            self._fill_tables()

    def seconds(self, rows: int) -> float:
        """Return the expected seconds of a pass of 1 to MOST_ROWS rows, drift and padding included."""
        return self._drift * self._padded[rows]

    def unpadded_seconds(self, rows: int) -> float:
        """Return the expected seconds of a pass that is left as it is."""
        return self._drift * self._plain[rows]

    def padded(self, rows: int, most: int) -> int:
        """Return the cheapest size of `rows` to `most` rows for a pass over `rows` tokens, the shortest of equals."""
        if rows < 2:
            return rows
        return min(range(rows, max(rows, min(most, MOST_ROWS)) + 1), key=self._plain.__getitem__)

    @property
    def points(self) -> dict[int, float]:
        """What passes with nothing in front were read to take, drift included: seconds by number of rows, no doubts."""
        return {rows: self._drift * seconds for rows, seconds in sorted(self._read.items()) if self._readings[rows]}

    @property
    def cell_seconds(self) -> float:
        """What a row takes more for each token in front, drift included."""
        return self._drift * self._cell_seconds

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from one pass."""
        expected = self._plain[rows]
        if rows == 1:
            ratio = min(4.0, max(0.25, seconds / expected))
            self._drift += 0.1 * (ratio - self._drift)
            return
        attending = self._attending(rows)
        seen = self._readings.get(rows, 0.0)
        ratio = min(MOST_SURPRISE, max(0.25, seconds / (self._drift * expected)))
        step, share = (ratio - 1) * max(LEARNING, 1 / (QUICK_LEARNING + seen)), attending / expected
        self._points[rows] = (expected - attending) * (1 + step * (1 - share))
        self._cell_seconds *= 1 + LEARNING * (ratio - 1) * share
        self._read[rows] = self._points[rows]
        self._readings[rows] = min(MOST_READINGS, seen + 1)
        self._fill_tables()

    def _attending(self, rows: int) -> float:
        return self._cell_seconds * rows * self._length

    def doubt(self, rows: int) -> None:
        """Hold a size a little cheaper: its passes are padded, so that no reading could tell if it is held too dear.

        In the end it is tried again. Where it is as dear as thought, that costs about a hundredth of the time.
        """
        self._cheapen(rows, DOUBT)

    def passed_over(self, rows: int) -> None:
        """A draft of so many rows was nearly made: hold its pass a little cheaper, the more the less it is known."""
        rows = self.padded(rows, MOST_ROWS)
        seen = self._readings.get(rows, 0.0)
        if seen < SURE_READINGS:
            self._cheapen(rows, 1 - (1 - DOUBT) * (1 - seen / SURE_READINGS))
        self._readings[rows] = DOUBT * seen

    def check(self, rows: int, seconds: float) -> None:
        """Where a pass took less than it was held to take, hold all of several rows as much cheaper, half at most.

        A pass that mostly attends to what is in front tells nothing of the rest.
        """
        attending, expected = self._attending(rows), self._plain[rows]
        if attending > expected / 2:
            return
        factor = (seconds / self._drift - attending) / (expected - attending)
        for each in self._points:
            self._points[each] *= min(1.0, max(MOST_DOUBT, factor)) if each > 1 else 1.0
        self._read = self._points.copy()
        self._fill_tables()

    def _cheapen(self, rows: int, factor: float) -> None:
        """Hold a size cheaper; the tables show it once the text has grown a little, since it is a small change."""
        if rows not in self._points:
            self._points[rows] = self._plain[rows] - self._attending(rows)
            self._read[rows] = self._lines(self._read)[rows - 1]
            self._readings[rows] = 0.0
        self._points[rows] = max(factor * self._points[rows], MOST_DOUBT * self._read[rows])

    def _fill_tables(self) -> None:
        """Work out the seconds by number of rows, without drift: as they are, and padded. Place 0 is not used."""
        self._plain = [0.0, *self._lines(self._points)]
        if self._cell_seconds:
            cells = self._cell_seconds * self._length
            self._plain = [seconds + rows * cells for rows, seconds in enumerate(self._plain)]
        table = self._plain.copy()
        for rows in range(MOST_ROWS - 1, 1, -1):
            table[rows] = min(table[rows], table[rows + 1])
        self._padded = table
        self.version += 1

    @staticmethod
    def _lines(points: Mapping[int, float]) -> list[float]:
        """Return the seconds of 1 to MOST_ROWS rows along the lines between the points.

        Behind the last point each row costs what it does from the first point to the last, in the mean.
        """
        known = sorted(points.items())
        (row, seconds), *rest = known
        line = [seconds * each / row for each in range(1, row + 1)]
        for next_row, next_seconds in rest:
            slope = (next_seconds - seconds) / (next_row - row)
            line += [seconds + slope * (each - row) for each in range(row + 1, next_row + 1)]
            row, seconds = next_row, next_seconds
        (first, least), (last, most) = known[0], known[-1]
        slope = max(0.0, (most - least) / (last - first)) if rest else seconds / row
        return line + [seconds + slope * (each - row) for each in range(row + 1, MOST_ROWS + 1)]
