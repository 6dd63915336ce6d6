"""How far a pass of several rows moves the logits: `python benchmarks/row_differences.py MODEL`.

Decodes the same tokens one row at a time and in passes of 2 to 16 rows on the same prefix, and prints the largest
difference of a logit and of the gap between the two best. Greedy answers of two modes can differ only where the gap of
the two best logits is below what is printed here.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from prompts import EDIT_A_FILE

from specui.engine.llama import AbortFlag, Context, ContextSize, Logits, Model


def main() -> None:
    """Print one line for each number of rows."""
    model = Model(Path(sys.argv[1]))
    context = Context(model, ContextSize(1024, 512, 64), None, AbortFlag())
    ids = model.tokenize(EDIT_A_FILE, add_special=True, parse_special=False)
    prefix, rest = ids[:128], ids[128:192]
    single = _rows(context, prefix, rest, 1)
    for rows in (2, 3, 4, 5, 6, 8, 12, 16):
        batched = _rows(context, prefix, rest, rows)
        moved = np.abs(batched - single).max()
        gap = np.abs(_gaps(batched) - _gaps(single)).max()
        print(f"{rows:3} rows: a logit moves by up to {moved:.2e}, the gap of the best two by up to {gap:.2e}")
    context.close()
    model.close()


def _rows(context: Context, prefix: list[int], rest: list[int], rows: int) -> Logits:
    """Return the logits [len(rest), n_vocab] of `rest` behind `prefix`, decoded `rows` at a time."""
    context.clear()
    context.decode(prefix, 1)
    found = []
    for start in range(0, len(rest), rows):
        part = rest[start : start + rows]
        context.decode(part, len(part))
        found += [context.logits(row).copy() for row in range(len(part))]
    return np.stack(found)


def _gaps(logits: Logits) -> Logits:
    best: Logits = np.partition(logits, -2, axis=1)[:, -2:]
    gaps: Logits = best[:, 1] - best[:, 0]
    return gaps


if __name__ == "__main__":
    main()
