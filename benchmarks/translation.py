"""A draft with another vocabulary against mode none: `python benchmarks/translation.py TARGET DRAFT`

Prints for each prompt and draft length the speed against none, acceptance, tokens per pass, and what translation came
to. The counts do not depend on the machine's load; the speed does.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from prompts import BY_NAME

from specui.config import DEFAULT_MAX_DRAFT_TOKENS, DraftingSettings, SpeculationMode, StepSettings
from specui.engine.chat import ChatTemplate
from specui.engine.decoder import Decoder, Task
from specui.engine.drafting import Drafter, NoDrafter
from specui.engine.llama import AbortFlag, Context, ContextSize, Model
from specui.engine.stats import Stats
from specui.engine.translation import TranslatedDraft


@dataclass(frozen=True)
class OneDrafter:
    """A lane with one drafter."""

    drafter: Drafter
    mode: SpeculationMode

    def pick(self, drafting: DraftingSettings) -> tuple[Drafter, SpeculationMode, str | None]:
        """Return the drafter."""
        return self.drafter, self.mode, None

    def longest(self, drafting: DraftingSettings, limit: int) -> int:
        """Allow every length."""
        return limit

    def fail(self, reason: str, every_mode: bool = False) -> None:
        """End the benchmark."""
        raise SystemExit(reason)


def main() -> None:
    """Print a line for each prompt and length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--prompts", nargs="+", choices=BY_NAME, default=list(BY_NAME))
    parser.add_argument("--lengths", nargs="+", type=int, default=[DEFAULT_MAX_DRAFT_TOKENS["draft-model"]])
    parser.add_argument("--p-min", type=float, default=DraftingSettings().draft_p_min)
    parser.add_argument("--max-tokens", type=int, default=120)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    models = [Model(path) for path in (options.target, options.draft)]
    target, draft = (Context(model, ContextSize(2048, 256, 64), options.threads, AbortFlag()) for model in models)
    for name in options.prompts:
        prompt = ChatTemplate(target.model).tokens([("user", BY_NAME[name])])
        plain, stats = _write(target, prompt, options.max_tokens, OneDrafter(NoDrafter(), "none"), 0)
        base = stats.decode_tokens_per_second or 0.0
        for length in options.lengths:
            drafter = TranslatedDraft(draft, target.model, draft.model, options.p_min)
            lane = OneDrafter(drafter, "draft-model")
            ids, stats = _write(target, prompt, options.max_tokens, lane, length)
            same = "same ids" if ids == plain else "other ids"
            print(f"{name} {length}: {_line(stats, base)}, {drafter.counts}, {same}", flush=True)


def _write(
    target: Context, prompt: list[int], max_tokens: int, lane: OneDrafter, length: int
) -> tuple[list[int], Stats]:
    settings = StepSettings(drafting=DraftingSettings(lane.mode, length or None))
    end_tokens = target.model.end_tokens
    decoder = Decoder(target, lane, Task(prompt, max_tokens, end_tokens, 0, lambda: settings, lambda *_: False))
    for _ in decoder.prefill():
        pass
    while decoder.step():
        pass
    return decoder.committed[len(prompt) :], decoder.stats.snapshot()


def _line(stats: Stats, base: float) -> str:
    rate = stats.decode_tokens_per_second or 0.0
    return (
        f"{rate / base:.2f} x none, {stats.acceptance_rate or 0:.0%} of {stats.num_draft_tokens} accepted, "
        f"{stats.mean_acceptance_length or 1:.2f} a pass, drafting {stats.draft_seconds:.2f} s of "
        f"{stats.decode_seconds:.2f}"
    )


if __name__ == "__main__":
    main()
