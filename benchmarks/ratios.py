"""Speed as ratios paired in one run: `python benchmarks/ratios.py TARGET --draft DRAFT VARIANT…`

A VARIANT is a mode with options, as `draft-model,max_draft_tokens=7`, or `llama-cpp-python`: `Llama.generate` on the
same file with the same settings. Each is run in turn with mode none; the median of the paired ratios is printed with
the least and the largest. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from prompts import BY_NAME

from specui import pairs
from specui.config import DEFAULT_CTX_SIZE, DraftingSettings, Limits, LoadSettings, SamplingSettings, StepSettings
from specui.engine.cpu import usable_threads
from specui.generation import GenerationRequest, Message, Progress
from specui.runtime import Runtime


def main() -> None:
    """Print one line a variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--prompt", choices=BY_NAME, default="edit-a-file")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("variants", nargs="+")
    options = parser.parse_args()
    runtime = Runtime(LoadSettings())
    runtime.load(pairs.from_paths(options.target, options.draft))
    none = _ours(runtime, options, DraftingSettings())
    none()
    for name in options.variants:
        run = _llama(options, none) if name == "llama-cpp-python" else _ours(runtime, options, _drafting(name))
        run()
        readings = [_pair(run, none, variant_first=repeat % 2 == 0) for repeat in range(options.repeats)]
        _print(name, readings)
    runtime.close()


Reading = tuple[float, list[int], Progress | None]
"""Decode tokens per second, token ids, and our figures if the run was ours."""


def _pair(run: Callable[[], Reading], none: Callable[[], Reading], variant_first: bool) -> tuple[Reading, Reading]:
    """Run both in turn, the order changing, so that a drift of the machine hits both alike."""
    if variant_first:
        reading = run()
        return reading, none()
    base = none()
    return run(), base


def _drafting(name: str) -> DraftingSettings:
    mode, *pairs_ = name.split(",")
    values: dict[str, Any] = {key: float(value) if "." in value else int(value) for key, value in _split(pairs_)}
    return DraftingSettings(mode, **values)  # type: ignore[arg-type]  # checked when it is built


def _split(texts: list[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        key, _, value = text.partition("=")
        yield key, value


def _ours(runtime: Runtime, options: argparse.Namespace, drafting: DraftingSettings) -> Callable[[], Reading]:
    request = GenerationRequest(
        messages=(Message("user", BY_NAME[options.prompt]),),
        settings=StepSettings(SamplingSettings(), drafting),
        limits=Limits(options.max_tokens),
    )

    def run() -> Reading:
        progress = runtime.start(request).result()
        return progress.stats.decode_tokens_per_second or 0.0, list(progress.token_ids), progress

    return run


def _llama(options: argparse.Namespace, none: Callable[[], Reading]) -> Callable[[], Reading]:
    import llama_cpp

    threads = usable_threads()
    settings = LoadSettings()
    llama = llama_cpp.Llama(
        str(options.target),
        n_ctx=DEFAULT_CTX_SIZE,
        n_batch=settings.batch_size,
        n_threads=threads,
        n_threads_batch=threads,
        flash_attn=True,
        verbose=False,
    )
    _, _, progress = none()
    end = llama.token_eos()
    prompt = list(progress.prompt_token_ids) if progress else []

    def run() -> Reading:
        tokens: list[int] = []
        times: list[float] = []
        for token in llama.generate(prompt, temp=0.0):
            tokens.append(token)
            times.append(time.perf_counter())
            if len(tokens) == options.max_tokens or token == end:
                break
        return (len(tokens) - 1) / (times[-1] - times[0]), tokens, None

    return run


def _print(name: str, readings: list[tuple[Reading, Reading]]) -> None:
    ratios = sorted(theirs[0] / ours[0] for theirs, ours in readings)
    (rate, ids, progress), (base, base_ids, _) = readings[-1]
    same = "same ids" if ids == base_ids else f"differs at {_first_difference(ids, base_ids)}"
    text = f"{name:40} {statistics.median(ratios):.3f} x none ({ratios[0]:.3f} to {ratios[-1]:.3f})  {rate:6.1f} tok/s"
    if progress is not None and progress.stats.acceptance_rate is not None:
        text += f"  {progress.stats.acceptance_rate:.0%} accepted, {progress.stats.mean_acceptance_length:.2f} a pass"
    print(f"{text}  {same}  (none {base:.1f})", flush=True)


def _first_difference(left: list[int], right: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


if __name__ == "__main__":
    main()
