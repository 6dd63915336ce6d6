"""Python's share of a step: `PYTHONPATH=. python benchmarks/overhead.py TARGET DRAFT MODE…`

Writes an answer per mode twice, from its first step to its last, text and snapshots included. Once only llama.cpp's
functions are timed, which gives the share of everything outside them; once every room of the engine too, which tells
where that goes. Time belongs to the innermost room that is open. On a busy machine `--cpu` counts the processor's time
of one thread, in which llama.cpp then computes too; with more threads its part is shorter and Python's is not.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any
from unittest.mock import patch

import llama_cpp
from prompts import BY_NAME

from specui.answer import Answer, render_prompt
from specui.config import (
    SPECULATION_MODES,
    DraftingSettings,
    Limits,
    LoadSettings,
    SamplingSettings,
    SpeculationMode,
    StepSettings,
)
from specui.engine import decoder, drafting, sampling, stats, text, verification
from specui.engine.chat import ChatTemplate, Prompt
from specui.engine.controller import Auto
from specui.engine.llama import Context, Model
from specui.generation import Generation, GenerationRequest, Message, Progress
from specui.lane import Lane, NoDrafter, PromptLookup
from specui.weights import Shelf

LLAMA, LOOP = "llama.cpp", "loop"
WARM_UP_TOKENS = 24

ROOMS: tuple[tuple[Any, str, tuple[str, ...]], ...] = (
    (Lane, "drafter's choice", ("pick", "longest", "padded")),
    (Auto, "auto", ("propose", "accept")),
    (PromptLookup, "lookup", ("propose", "find", "accept")),
    (drafting.DraftModel, "draft model", ("propose", "accept", "behind")),
    (NoDrafter, "drafter's choice", ("propose", "accept")),
    (drafting, "draft's rows", ("distribution", "top_probability")),
    (Context, "cache", ("decode", "truncate", "logits")),
    (decoder, "verification", ("verify",)),
    (verification, "target's rows", ("distribution",)),
    (sampling.Distribution, "draws", ("draw", "without")),
    (stats.StatsRecorder, "stats", ("step", "close_slice")),
    (text.TextStream, "text", ("push",)),
    (Answer, "publishing", ("progress",)),
    (Generation, "publishing", ("publish",)),
)
"""Whose methods or functions belong to which room; what they call of another room counts there."""


class Account:
    """Seconds by room of one thread since `begin`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Start from nothing, in the loop."""
        self.seconds: Counter[str] = Counter()
        self._room, self._since = LOOP, self._clock()

    def enter(self, room: str) -> str:
        """Count the time since the last call for the room that was open; return that one."""
        now, left = self._clock(), self._room
        self.seconds[left] += now - self._since
        self._room, self._since = room, now
        return left

    def within(self, room: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` with its time counted for `room`."""

        def timed(*args: Any, **values: Any) -> Any:
            before = self.enter(room)
            try:
                return function(*args, **values)
            finally:
                self.enter(before)

        return timed


class TimedAnswer(Answer):
    """An answer whose account covers its steps, without prompt and end."""

    account: Account

    def begin(self) -> Iterator[Progress]:
        """Open the account behind the prompt."""
        yield from super().begin()
        self.account.begin()

    def finish(self) -> Progress:
        """Close the account behind the last step."""
        self.account.enter("end")
        self.seconds = dict(self.account.seconds)
        return super().finish()


class Bench:
    """A loaded pair and how to write one answer with it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.account = Account(thread_time if options.cpu else perf_counter)
        self._options = options
        threads = 1 if options.cpu else options.threads
        self._lane = Lane(Shelf(), options.target, options.draft, LoadSettings(threads=threads))
        self._lane.draft.load(lambda: False)
        self._template = ChatTemplate(self._lane.model)

    def close(self) -> None:
        """Free the pair."""
        self._lane.close()

    def write(self, mode: SpeculationMode, max_tokens: int) -> tuple[dict[str, float], Progress]:
        """Write one answer; return its seconds by room and its last snapshot."""
        options = self._options
        settings = StepSettings(SamplingSettings(options.temperature, seed=1), DraftingSettings(mode))
        message = Message("user", BY_NAME[options.prompt])
        request = GenerationRequest((message,), settings=settings, limits=Limits(max_tokens))
        prompt: Prompt = render_prompt(request, self._lane.model, lambda: self._template, self._lane.target.n_ctx)
        self._lane.reset()
        self._lane.begin_answer(settings.drafting, lambda: False)
        generation = Generation(request)
        answer = TimedAnswer(generation, self._lane, prompt)
        answer.account = self.account
        watcher = threading.Thread(target=_watch, args=(generation,))
        if options.watched:
            watcher.start()
        answer.run()
        if options.watched:
            watcher.join()
        return answer.seconds, generation.progress


def _watch(generation: Generation) -> None:
    """Ask for every snapshot there is, as a stream over HTTP does."""
    progress = generation.progress
    while not progress.over:
        progress = generation.wait(progress.version)


def _llama_functions() -> list[str]:
    return [
        name
        for name, value in vars(llama_cpp).items()
        if name.startswith("llama_") and callable(value) and not isinstance(value, type)
    ]


def _time_llama(stack: ExitStack, account: Account) -> None:
    for name in _llama_functions():
        stack.enter_context(patch.object(llama_cpp, name, account.within(LLAMA, getattr(llama_cpp, name))))


def _time_rooms(stack: ExitStack, account: Account) -> None:
    for owner, room, names in ROOMS:
        for name in names:
            stack.enter_context(patch.object(owner, name, account.within(room, getattr(owner, name))))
    stack.enter_context(patch.object(Model, "piece", account.within("text", Model.piece)))


def _measure(bench: Bench, mode: SpeculationMode, max_tokens: int, rooms: bool) -> tuple[dict[str, float], Progress]:
    with ExitStack() as stack:
        _time_llama(stack, bench.account)
        if rooms:
            _time_rooms(stack, bench.account)
        return bench.write(mode, max_tokens)


def _report(mode: SpeculationMode, seconds: dict[str, float], rooms: dict[str, float], progress: Progress) -> None:
    whole, steps, detailed = sum(seconds.values()), progress.stats.num_passes, sum(rooms.values())
    share = 1 - seconds[LLAMA] / whole
    print(
        f"{mode:13} {len(progress.token_ids)} tokens, {steps} steps of {1e3 * whole / steps:.2f} ms,"
        f" Python {share:.2%} ({1e6 * share * whole / steps:.0f} µs a step)"
    )
    python = sorted(((part, room) for room, part in rooms.items() if room != LLAMA), reverse=True)
    print("   " + ", ".join(f"{room} {part / detailed:.2%}" for part, room in python), flush=True)


def main() -> None:
    """Print two lines a mode: Python's share, and its parts (the timing of these adds some of its own)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("modes", nargs="+", choices=SPECULATION_MODES)
    parser.add_argument("--prompt", choices=sorted(BY_NAME), default="write-code")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--cpu", action="store_true", help="processor time, with one thread")
    parser.add_argument("--watched", action="store_true", help="somebody asks for every snapshot")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SPECUI_HOME"] = folder  # what is learned while being timed is not worth keeping
        bench = Bench(options)
        for mode in options.modes:
            bench.write(mode, WARM_UP_TOKENS)
            seconds, progress = _measure(bench, mode, options.max_tokens, rooms=False)
            rooms, _ = _measure(bench, mode, options.max_tokens, rooms=True)
            _report(mode, seconds, rooms, progress)
        bench.close()


if __name__ == "__main__":
    main()
