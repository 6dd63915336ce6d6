"""What a benchmark runs, and in which order: every prompt with every mode, side by side, the order turning.

Pairs are what counts: for each prompt and repeat all modes run one after the other, so that a drift of the machine
meets them alike, and none of them always comes first. Knows nothing about models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from specui.bench.suite import BenchPrompt, Suite
from specui.compare.schedule import rotated
from specui.config import (
    BASELINE,
    DEFAULT_BENCH_REPEATS,
    DraftingSettings,
    Limits,
    SamplingSettings,
    StepSettings,
    parse_variant,
)
from specui.errors import SettingError
from specui.generation import GenerationRequest

MAX_REPEATS = 1000


@dataclass(frozen=True, slots=True)
class Variant:
    """A mode with its drafting settings, under the label it has in tables: `draft-model`, `draft-model:3`."""

    label: str
    drafting: DraftingSettings


@dataclass(frozen=True, slots=True)
class Turn:
    """One run to be made."""

    prompt: BenchPrompt
    variant: Variant
    repeat: int

    @property
    def key(self) -> tuple[str, str, int]:
        """What a finished run is known by."""
        return self.prompt.key, self.variant.label, self.repeat


@dataclass(frozen=True, slots=True)
class Plan:
    """Prompts of a suite, variants with `none` first, and how often. `sampling` and `stop` hold for every run.

    `max_tokens` cuts the answers of prompts that would take longer. `keep_prompt`: a prompt is evaluated once, and
    every mode goes on from there, which is faster where the speed of decoding is all that is asked for.
    """

    suite: Suite
    prompts: tuple[BenchPrompt, ...]
    variants: tuple[Variant, ...]
    repeats: int = DEFAULT_BENCH_REPEATS
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    keep_prompt: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            Limits(self.max_tokens)  # raises where it cannot work
        if not 1 <= self.repeats <= MAX_REPEATS:
            raise SettingError("--repeats", self.repeats, f"a whole number from 1 to {MAX_REPEATS:,}")

    def turns(self) -> Iterator[Turn]:
        """Yield every run: repeat by repeat, prompt by prompt, all variants together, each time another one first."""
        for repeat in range(self.repeats):
            for place, prompt in enumerate(self.prompts):
                for variant in rotated(self.variants, place + repeat):
                    yield Turn(prompt, variant, repeat)

    def __len__(self) -> int:
        return self.repeats * len(self.prompts) * len(self.variants)

    def request(self, turn: Turn) -> GenerationRequest:
        """Return the request of a run. Without a seed the repeat's number is one, the same for every mode."""
        seed = turn.repeat if self.sampling.seed is None else self.sampling.seed
        longest = turn.prompt.max_tokens
        return GenerationRequest(
            messages=turn.prompt.messages,
            settings=StepSettings(replace(self.sampling, seed=seed), turn.variant.drafting),
            limits=Limits(longest if self.max_tokens is None else min(longest, self.max_tokens), self.stop),
            fresh=not self.keep_prompt,
        )

    def reading(self, turn: Turn) -> GenerationRequest:
        """Return the request that evaluates a turn's prompt from empty memory: for the draft too, if a mode reads it.

        Mode auto lets the draft read a prompt when it is first used; that is no reason to read it here.
        """
        drafted = next((each for each in self.variants if each.drafting.speculation == "draft-model"), self.variants[0])
        request = self.request(replace(turn, variant=drafted))
        return replace(request, limits=Limits(1), fresh=True)


def parse_variants(text: str, drafting: DraftingSettings) -> tuple[Variant, ...]:
    """Return the variants of a list as `none,prompt-lookup,draft-model:3`; `none` comes first, named or not.

    The number is the longest draft; everything else comes from `drafting`. Raises SettingError.
    """
    labels = [label.strip() for label in text.split(",") if label.strip()]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None or not labels:
        raise SettingError("--modes", twice or text, "each mode once, such as none,prompt-lookup,draft-model:3")
    others = [label for label in labels if label != BASELINE]
    return tuple(Variant(label, parse_variant(label, drafting, "--modes")) for label in (BASELINE, *others))
