"""`generate`: answer one prompt, streamed as text or as one JSON object.

Knows the runtime and the shared options; nothing about models or drafts.
"""

from __future__ import annotations

import argparse
from typing import Any

from specui.answer import check_request
from specui.commands.options import (
    add_model_options,
    add_prompt_options,
    add_step_options,
    find_files,
    load_settings,
    read_request,
    say,
)
from specui.commands.output import show, show_json
from specui.generation import Generation, Progress
from specui.runtime import Runtime

INTERRUPTED = 130


def add(commands: Any) -> None:
    """Add the command to the subparsers `commands`."""
    generate = commands.add_parser("generate", help="answer one prompt", description="Answer one prompt.")
    add_model_options(generate)
    add_prompt_options(generate)
    add_step_options(generate)
    generate.add_argument("--json", action="store_true", help="print one JSON object with text, ids and statistics")
    generate.set_defaults(run=run_generate)


def run_generate(arguments: argparse.Namespace) -> int:
    """Answer one prompt; stream the text to stdout, or print one JSON object."""
    request, settings = read_request(arguments), load_settings(arguments)
    check_request(request)
    runtime, code = Runtime(settings), 0
    try:
        runtime.load(find_files(arguments))
        generation = runtime.start(request)
        try:
            progress = generation.result() if arguments.json else _stream(generation)
        except KeyboardInterrupt:
            generation.cancel()
            progress, code = generation.result(), INTERRUPTED
        except BaseException:
            generation.cancel()
            raise
        if arguments.json:
            show_json(generation_json(progress))
        else:
            show()
            say(summary(progress))
        if code == INTERRUPTED:
            say("stopped")
    finally:
        runtime.close()
    return code


def _stream(generation: Generation) -> Progress:
    shown, seen = 0, -1
    while True:
        progress = generation.wait(seen)
        seen = progress.version
        show(progress.text[shown:], end="")
        shown = len(progress.text)
        if progress.over:
            return generation.result()


def generation_json(progress: Progress) -> dict[str, Any]:
    """Return a finished generation as the JSON object of the CLI contract."""
    stats = progress.stats.to_dict()
    return {
        "text": progress.text,
        "token_ids": list(progress.token_ids),
        "token_origins": list(progress.token_origins),
        "finish_reason": progress.finish_reason,
        "prompt_token_ids": list(progress.prompt_token_ids),
        "seed": progress.seed,
        "speculation": stats["speculation"],
        "speculation_used": stats["speculation_used"],
        **{key: stats[key] for key in ("speculation_off_reason",) if key in stats},
        "stats": stats,
    }


def summary(progress: Progress) -> str:
    """Return the line of figures under an answer."""
    stats = progress.stats
    rate = stats.decode_tokens_per_second
    first = stats.time_to_first_token_seconds
    accepted = "– accepted"
    if stats.acceptance_rate is not None:
        accepted = f"{stats.acceptance_rate:.0%} accepted ({stats.num_accepted_tokens}/{stats.num_draft_tokens})"
    parts = [
        f"{rate:.1f} tok/s" if rate is not None else "– tok/s",
        accepted,
        f"{stats.mean_acceptance_length or 1:.1f} tokens per pass",
        f"first token {first:.2f} s" if first is not None else "no token",
    ]
    if stats.speculation_off_reason:
        parts.append(f"{stats.speculation} off: {stats.speculation_off_reason}")
    return " · ".join(parts)
