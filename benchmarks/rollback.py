"""What dropping rejected tokens costs, by kind of memory: `python benchmarks/rollback.py [GGUF ...]`.

Makes passes of 8 rows and drops 5, as verification does with a draft that was right up to there. Prints what a pass
costs beside one that nothing is kept for (single rows never have anything kept), and what the drop itself costs.
Without arguments: on the tiny models of the tests.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from tiny_models import Kind, write_tiny

from specui.engine.llama import AbortFlag, Context, ContextSize, Model

KINDS: tuple[Kind, ...] = ("llama", "gemma3", "mamba", "jamba", "lfm2", "qwen35")
ROWS, KEPT, PROMPT, ROUNDS = 8, 3, 64, 40


def main() -> None:
    """Print one line for each model and longest draft."""
    paths = [Path(argument) for argument in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        for path in paths or [write_tiny(Path(folder) / f"{kind}.gguf", kind) for kind in KINDS]:
            model = Model(path)
            for rows in (ROWS, 2 * ROWS):
                _measure(model, rows)
            model.close()


def _measure(model: Model, rows: int) -> None:
    context = Context(model, ContextSize(1024, 256, 64), None, AbortFlag())
    context.decode([5 + place % 100 for place in range(PROMPT)], 1)
    rounds = [_round(context, rows) for _ in range(ROUNDS)]
    one, several, copying, dropping = (1e3 * statistics.median(each) for each in zip(*rounds, strict=True))
    print(
        f"{model.path.stem:24} {context.rollback.kind:10} one row {one:7.3f} ms  {rows:2} rows {several:7.3f} ms,"
        f" of it copying {copying:6.3f}  dropping {rows - KEPT:2} of them {dropping:7.3f} ms"
        f"  keeps {context.rollback_bytes / 1e6:.3f} MB"
    )
    context.close()


def _round(context: Context, rows: int) -> tuple[float, float, float, float]:
    """Return the seconds of a pass of one row, of one of `rows`, of copying in it, and of dropping what was wrong."""
    t0 = time.perf_counter()
    context.decode([7], 1)
    t1, copied = time.perf_counter(), context.rollback_seconds
    length = len(context.tokens)
    context.decode(list(range(10, 10 + rows)), rows)
    t2, copied = time.perf_counter(), context.rollback_seconds - copied
    context.truncate(length + KEPT)
    return t1 - t0, t2 - t1, copied, time.perf_counter() - t2


if __name__ == "__main__":
    main()
