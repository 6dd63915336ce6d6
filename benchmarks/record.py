"""Records answers to be replayed: `PYTHONPATH=. python benchmarks/record.py TARGET DRAFT OUT.json [--split tune]`.

For every prompt of the builtin suite: the target's greedy answer, and the draft model's guess at each of its tokens
with its confidence. Beside them what passes of the target and a token of the draft take. `replay.py` reads it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specui import pairs
from specui.bench.suite import BenchPrompt, Selection, load_suite
from specui.config import DEFAULT_CTX_SIZE, DEFAULT_SUITE, DRAFT_ROWS, MAX_DRAFT_TOKENS_LIMIT, Limits, LoadSettings
from specui.engine.drafting import TokenCache, evaluate, rewind
from specui.engine.llama import AbortFlag, Context, ContextSize, Model
from specui.engine.sampling import top_probability
from specui.generation import GenerationRequest
from specui.runtime import Runtime

ROWS = (*range(1, 17), 20, 24, 32, 40, 48, 64)
BEHIND = 400
"""Tokens in the cache while passes are timed."""
FAR_BEHIND, FAR_ROWS = 1600, 8
"""What attending costs is told by passes of so many rows behind so many tokens."""


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--split", default="tune")
    parser.add_argument("--max-tokens", type=int, default=400)
    options = parser.parse_args()
    pass_seconds = _pass_seconds(options.target, ROWS, BEHIND)
    far = _pass_seconds(options.target, (FAR_ROWS,), FAR_BEHIND)[FAR_ROWS]
    cell_seconds = (far - pass_seconds[FAR_ROWS]) / (FAR_ROWS * (FAR_BEHIND - BEHIND))
    draft_seconds = _pass_seconds(options.draft, (1,), BEHIND)[1]
    runtime = Runtime(LoadSettings())
    runtime.load(pairs.from_paths(options.target, None))
    draft = Model(options.draft)
    context = Context(draft, ContextSize(DEFAULT_CTX_SIZE, LoadSettings().batch_size, DRAFT_ROWS), None, AbortFlag())
    prompts = [
        _recorded(runtime, context, prompt, options.max_tokens)
        for prompt in load_suite(DEFAULT_SUITE).select(Selection(split=options.split))
    ]
    runtime.close()
    record = {
        "pass_seconds": pass_seconds,
        "behind": BEHIND,
        "cell_seconds": cell_seconds,
        "draft_token_seconds": draft_seconds,
        "prompts": prompts,
    }
    options.out.write_text(json.dumps(record))


@dataclass(frozen=True, slots=True)
class _Guesses:
    tokens: list[int]
    confidences: list[float]


def _recorded(runtime: Runtime, context: Context, prompt: BenchPrompt, max_tokens: int) -> dict[str, Any]:
    limits = Limits(min(max_tokens, prompt.max_tokens))
    request = GenerationRequest(messages=prompt.messages, limits=limits, fresh=True)
    progress = runtime.start(request).result()
    guesses = _guesses(context, progress.prompt_token_ids, progress.token_ids)
    print(f"{prompt.key}: {len(progress.token_ids)} tokens", flush=True)
    return {
        "kind": prompt.kind,
        "prompt": progress.prompt_token_ids,
        "answer": progress.token_ids,
        "guesses": guesses.tokens,
        "confidences": guesses.confidences,
    }


def _guesses(cache: TokenCache, prompt: Sequence[int], answer: Sequence[int]) -> _Guesses:
    """Return the best token and its probability at each place of the answer, the right tokens in front of it."""
    rewind(cache, ())
    for _ in evaluate(cache, prompt[:-1], rows=0):
        pass
    text, guesses = [prompt[-1], *answer[:-1]], _Guesses([], [])
    for start in range(0, len(text), cache.max_rows):
        part = text[start : start + cache.max_rows]
        cache.decode(part, len(part))
        for row in range(len(part)):
            logits = cache.logits(row)
            guesses.tokens.append(int(logits.argmax()))
            guesses.confidences.append(round(float(top_probability(logits)), 4))
    return guesses


def _pass_seconds(path: Path, sizes: Sequence[int], behind: int) -> dict[int, float]:
    """Return the median seconds of passes of each size behind so many tokens, several in a row."""
    model = Model(path)
    size = ContextSize(2 * FAR_BEHIND, LoadSettings().batch_size, MAX_DRAFT_TOKENS_LIMIT + 1)
    context = Context(model, size, None, AbortFlag())
    for _ in evaluate(context, [1] * behind, rows=0):
        pass
    found = {rows: statistics.median(_times(context, rows, behind)) for rows in sizes}
    context.close()
    model.close()
    return found


def _times(context: Context, rows: int, behind: int) -> list[float]:
    times = []
    for _ in range(9 if rows < 3 else 5):
        started = time.perf_counter()
        context.decode([1] * rows, rows)
        context.logits(rows - 1)
        times.append(time.perf_counter() - started)
        context.truncate(behind)
    return times[1:]


if __name__ == "__main__":
    main()
