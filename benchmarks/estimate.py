"""Memory estimated from headers against measured: `python benchmarks/estimate.py T D [CTX_SIZE] [--fill SHARE]`.

Runs an answer in mode draft-model in a process of its own, with a prompt that fills SHARE of the context (nearly all
of it by default), and prints its peak resident memory beside the estimate.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from specui.config import DEFAULT_CTX_SIZE, LoadSettings
from specui.estimate import MemoryEstimate, estimate
from specui.gguf import read_header


def main() -> None:
    """Print one line for each file and one for the whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("ctx_size", type=int, nargs="?", default=DEFAULT_CTX_SIZE)
    parser.add_argument("--fill", type=float, default=0.9, metavar="SHARE")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(measure(options.target, options.draft, options.ctx_size, options.fill))
        return
    target, draft = read_header(options.target), read_header(options.draft)
    found = estimate(target, draft, options.ctx_size, LoadSettings().batch_size)
    done = subprocess.run([sys.executable, *sys.argv, "--measure"], capture_output=True, text=True, check=True)
    report(found, int(done.stdout.split()[-1]), options.ctx_size)


def report(found: MemoryEstimate, peak: int, ctx_size: int) -> None:
    """Print the account in MB."""
    for each in found.files:
        parts = (each.mapped_bytes, each.repacked_bytes, each.vocabulary_bytes, each.kv_bytes, each.compute_bytes)
        names = ("mapped", "repacked", "vocabulary", "KV", "compute")
        shown = "  ".join(f"{name} {part / 1e6:,.0f}" for name, part in zip(names, parts, strict=True))
        print(f"{Path(each.file).name}: {shown}")
    share = found.total_bytes / peak - 1
    print(f"context {ctx_size:,}: estimated {found.total_bytes / 1e6:,.0f}  peak {peak / 1e6:,.0f} MB  ({share:+.1%})")


def measure(target: Path, draft: Path, ctx_size: int, fill: float) -> int:
    """Answer a long prompt with the draft model and return this process's peak resident bytes."""
    from specui import pairs
    from specui.config import DraftingSettings, Limits, StepSettings
    from specui.generation import GenerationRequest
    from specui.runtime import Runtime

    runtime = Runtime(LoadSettings(ctx_size=ctx_size))
    runtime.load(pairs.from_paths(target, draft))
    prompt = "one two three four five " * max(1, int(ctx_size * fill) // 5 - 10)
    settings = StepSettings(drafting=DraftingSettings("draft-model"))
    result = runtime.start(GenerationRequest(prompt=prompt, settings=settings, limits=Limits(32))).result()
    if result.error is not None or result.stats.num_drafts == 0:
        raise SystemExit(f"nothing was drafted: {result.error}")
    runtime.close()
    # Not getrusage: it counts what the parent held when it forked.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


if __name__ == "__main__":
    main()
