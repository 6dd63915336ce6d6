"""Whether greedy answers are those of mode none: `python benchmarks/exactness.py MODEL [--draft D] [--exact]`.

MODEL is a GGUF file, or an architecture that the tests write with random weights (llama, gemma3, mamba, jamba, lfm2,
qwen35, nemotron_h). Every mode writes the same prompts from an empty cache; where its ids differ from those of mode
none, the first difference is measured: how far the two best logits lie apart, and how far passes of several rows move
them. Ends with code 1 where a difference is more than a near tie, or with `--exact` where there is any.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT), str(ROOT / "tests")]

from tiny_models import Kind, write_tiny  # noqa: E402

from specui.answer import Answer, render_prompt  # noqa: E402
from specui.config import (  # noqa: E402
    SPECULATION_MODES,
    DraftingSettings,
    Limits,
    LoadSettings,
    SamplingSettings,
    SpeculationMode,
    StepSettings,
)
from specui.engine.chat import ChatTemplate  # noqa: E402
from specui.engine.difference import Difference, first_difference  # noqa: E402
from specui.engine.exactness import LONGEST, identical_rows  # noqa: E402
from specui.generation import Generation, GenerationRequest, Message, Progress  # noqa: E402
from specui.lane import Lane  # noqa: E402
from specui.weights import Shelf  # noqa: E402

PROMPTS = (
    "Explain how a bicycle stays upright.",
    "Write the line 'one two three four' twenty times, each on its own line.",
    "Write a Python function that sorts a list with merge sort.",
    "List the months of the year, then list them again in the same order.",
    "Describe a harbour at dawn.",
    "What is the difference between a lake and a pond?",
    "Write an SQL table for books and their authors.",
    "Give me a recipe for onion soup with quantities.",
    "Translate 'good morning, my friend' into five languages.",
    "Write a letter to a landlord about a leaking tap.",
    "Count from one to fifty in words.",
    "Why is the sky blue and the sunset red?",
    "Write a JSON object with ten cities and their countries.",
    "Tell the story of a clock that runs backwards.",
    "Compare tea and coffee in a table.",
    "Write an HTML page with a heading and a list of four links.",
    "What should one pack for a week in the mountains?",
    "Explain photosynthesis to a child.",
    "Write a poem of four verses about a river.",
    "Name ten animals and one sentence about each.",
)

LENGTHS = (64, 320, 576)
"""Places in the first three steps of the cache at which `--exact` tells which passes are exact."""


@dataclass(frozen=True)
class Found:
    """What one mode made of one prompt: its answer, and the first difference from mode none if there is one."""

    progress: Progress
    difference: Difference | None


class Writer:
    """Writes answers on a lane, each from an empty cache."""

    def __init__(self, options: argparse.Namespace, target: Path, draft: Path) -> None:
        settings = LoadSettings(ctx_size=options.ctx_size, threads=options.threads)
        self.lane = Lane(Shelf(), target, draft, settings)
        model = self.lane.model
        self._template = lambda: ChatTemplate(model)
        self._chat = bool(model.chat_template)
        # A random model might end its text at any token; a real one ends where it ends.
        bias = () if self._chat else tuple((token, -100.0) for token in model.end_tokens)
        self.sampling = SamplingSettings(logit_bias=bias)
        self._limits = Limits(options.tokens)

    def write(self, prompt: str, drafting: DraftingSettings) -> Progress:
        """Return the answer to a prompt: a chat where the model has a template, else the text goes on."""
        settings = StepSettings(self.sampling, drafting)
        request = GenerationRequest(prompt=prompt, settings=settings, limits=self._limits)
        if self._chat:
            request = replace(request, prompt=None, messages=(Message("user", prompt),))
        self.lane.reset()
        ids = render_prompt(request, self.lane.model, self._template, self.lane.target.n_ctx)
        self.lane.begin_answer(drafting, lambda: False)
        answer = Answer(Generation(request), self.lane, ids)
        for _ in answer.begin():
            pass
        while answer.step():
            pass
        return answer.finish()

    def exact_sizes(self, length: int) -> str:
        """Return the numbers of rows that are exact behind so many tokens."""
        self.lane.reset(self.lane.model.tokenize(PROMPTS[0] * length, add_special=True, parse_special=False)[:length])
        sizes = sorted(identical_rows(self.lane.target, self.lane.model.n_vocab))
        whole = sizes == list(range(1, len(sizes) + 1)) and len(sizes) > 2
        return f"1 to {len(sizes)}" if whole else ", ".join(map(str, sizes))

    def compare(self, want: Progress, got: Progress) -> Found:
        """Return where two answers first differ, measured on the target."""
        prompt, cache = want.prompt_token_ids, self.lane.target
        return Found(got, first_difference(cache, prompt, got.token_ids, want.token_ids, self.sampling))

    def spell(self, token: int | None) -> str:
        """Return a token's text."""
        return "the end" if token is None else repr(self.lane.model.piece(token).decode("utf-8", "replace"))


def main() -> None:
    """Print one line for each mode and one for each difference."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(options.model)
        os.environ["SPECUI_HOME"] = folder  # what is learned of a random model is not worth keeping
        if options.model in get_args(Kind):
            target = write_tiny(Path(folder) / f"{options.model}.gguf", options.model)
        writer = Writer(options, target, options.draft or target)
        prompts = PROMPTS[options.first - 1 :][: options.prompts]
        wanted = [writer.write(prompt, DraftingSettings()) for prompt in prompts]
        written = sum(len(each.token_ids) for each in wanted)
        print(f"{options.model}: {len(prompts)} prompts, {written:,} tokens in mode none", flush=True)
        for length in LENGTHS if options.exact else ():
            if length + LONGEST < writer.lane.target.n_ctx:
                print(f"  exact behind {length} tokens: passes of {writer.exact_sizes(length)} rows", flush=True)
        faults = [_run(writer, mode, options, wanted) for mode in options.modes]
        writer.lane.close()
    sys.exit(1 if any(faults) else 0)


def _run(writer: Writer, mode: SpeculationMode, options: argparse.Namespace, wanted: list[Progress]) -> int:
    """Write every prompt in a mode, print what came of it, and return how many differences are faults."""
    drafting = DraftingSettings(mode, options.max_draft_tokens, exact=options.exact)
    prompts = PROMPTS[options.first - 1 :]
    found = [
        writer.compare(want, writer.write(prompt, drafting)) for prompt, want in zip(prompts, wanted, strict=False)
    ]
    different = [(number, each.difference) for number, each in enumerate(found, options.first) if each.difference]
    faults = [each for _, each in different if options.exact or not each.near_tie]
    stats = [each.progress.stats for each in found]
    accepted, drafted = (sum(getattr(each, f"num_{word}_tokens") for each in stats) for word in ("accepted", "draft"))
    words = "equal" if not different else f"{len(found) - len(different)} of {len(found)} equal"
    reasons = sorted({each.speculation_off_reason for each in stats if each.speculation_off_reason})
    print(f"  {mode}: {words}, {accepted} of {drafted} drafted tokens accepted {'; '.join(reasons)}", flush=True)
    for number, each in different:
        kind = "a near tie" if each.near_tie else "A FAULT"
        tokens = f"{writer.spell(each.left)} for {writer.spell(each.right)}"
        gap = f"gap {each.top_two_gap:.5f}, passes move logits by {each.kernel_shift:.5f}"
        print(f"    prompt {number}, token {each.index}: {tokens}, {gap}: {kind}", flush=True)
    return len(faults)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a GGUF file or an architecture")
    parser.add_argument("--draft", type=Path, help="the draft model; without it the model drafts for itself")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--first", type=int, default=1, help="the number of the prompt to begin with")
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--modes", type=lambda text: text.split(","), default=SPECULATION_MODES[1:])
    parser.add_argument("--max-draft-tokens", type=int)
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--ctx-size", type=int, default=1024)
    parser.add_argument("--threads", type=int)
    return parser.parse_args()


if __name__ == "__main__":
    main()
