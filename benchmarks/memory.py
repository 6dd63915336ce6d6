"""Peak memory of one answer: `python benchmarks/memory.py TARGET DRAFT MODE [CTX_SIZE]`, in a process of its own.

Prints what is asked of a 4,096-token context: peak resident memory less weights and KV caches, in MB.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import llama_cpp

from specui import pairs
from specui.config import DEFAULT_CTX_SIZE, DraftingSettings, Limits, LoadSettings, StepSettings, parse_mode
from specui.engine.llama import Model
from specui.generation import GenerationRequest
from specui.runtime import Runtime


def main() -> None:
    """Answer a prompt that fills most of the context, and print the account."""
    target, draft, mode = Path(sys.argv[1]), Path(sys.argv[2]), parse_mode(sys.argv[3])
    ctx_size = int(sys.argv[4]) if len(sys.argv) > 4 else DEFAULT_CTX_SIZE
    runtime = Runtime(LoadSettings(ctx_size=ctx_size))
    runtime.load(pairs.from_paths(target, draft))
    settings = StepSettings(drafting=DraftingSettings(mode))
    prompt = "one two three four five " * (ctx_size // 5 - 40)
    request = GenerationRequest(prompt=prompt, settings=settings, limits=Limits(64))
    progress = runtime.start(request).result()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    used = [target, draft] if mode in ("draft-model", "auto") else [target]
    kv = sum(_kv_bytes_per_token(path) * ctx_size for path in used)
    weights = sum(path.stat().st_size for path in used)
    print(
        f"{mode:14} prompt {progress.stats.prompt_tokens:6,}  peak {peak / 1e6:7,.0f} MB = weights {weights / 1e6:,.0f}"
        f" + KV {kv / 1e6:,.0f} + other {(peak - weights - kv) / 1e6:,.0f}"
    )
    runtime.close()


def _kv_bytes_per_token(path: Path) -> int:
    """Bytes of KV cache per token of context (plain attention, 16-bit keys and values of equal length)."""
    handle = Model(path).handle
    head = llama_cpp.llama_model_n_embd(handle) // llama_cpp.llama_model_n_head(handle)
    return int(4 * head * llama_cpp.llama_model_n_head_kv(handle) * llama_cpp.llama_model_n_layer(handle))


if __name__ == "__main__":
    main()
