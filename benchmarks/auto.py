"""Auto against fixed modes, lane by lane: `PYTHONPATH=. python benchmarks/auto.py T D [--modes …] [--split held-out]`.

Every prompt of the builtin suite is a race of up to four lanes. Their steps take turns, so that a machine whose speed
swings from one second to the next meets all of them alike; whole runs in turn (`bench`) need many repeats for that.
Prints tokens a second against mode none by prompt and kind (geometric means), and what auto reaches of the best fixed.
A `~` marks modes that wrote another text than none (two tokens nearly tied, and batches round otherwise): a text that
repeats itself is quicker to write, so the last table leaves those races out. With `--same-text` every lane is made to
write what mode none writes, at the cost of all it would do else, so that speeds alone are compared.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from unittest.mock import patch

from specui import pairs
from specui.bench.suite import Selection, load_suite
from specui.compare.race import start_race
from specui.compare.records import LaneSpec, RaceRequest, parse_modes
from specui.config import BASELINE, DEFAULT_SUITE, DraftingSettings, Limits, LoadSettings, StepSettings
from specui.engine import decoder
from specui.engine.drafting import common_prefix
from specui.engine.sampling import Logits
from specui.engine.verification import Draft, Rules, Verdict, verify
from specui.generation import GenerationRequest
from specui.runtime import Runtime

Ratios = dict[str, float]
"""Tokens a second against mode none, by mode."""


class Script:
    """Makes every lane write one answer: drafts are held against it once the target has judged them."""

    def __init__(self) -> None:
        self._prompt: list[int] = []
        self._answer: list[int] = []
        patch.object(decoder, "verify", self._verify).start()

    def write(self, runtime: Runtime, request: GenerationRequest) -> None:
        """From now on answers to this prompt are what mode none writes."""
        alone = runtime.start(replace(request, fresh=True)).result()
        self._prompt, self._answer = list(alone.prompt_token_ids), list(alone.token_ids)

    def _verify(self, draft: Draft, logits: Callable[[int], Logits], committed: Sequence[int], rules: Rules) -> Verdict:
        verdict = verify(draft, logits, committed, rules)
        length = len(self._prompt)
        if not self._prompt or list(committed[:length]) != self._prompt:
            return verdict
        rest = self._answer[len(committed) - length :]
        kept = common_prefix(draft.tokens, rest)
        if kept >= len(rest):
            return verdict
        return Verdict(kept, rest[kept], "recovered" if kept < len(draft) else "bonus" if len(draft) else "target")


@dataclass(frozen=True, slots=True)
class Raced:
    """A race: `ratios`, and the modes that wrote another text than none."""

    ratios: Ratios
    differing: tuple[str, ...]


def main() -> None:
    """Race every prompt and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--modes", default="none,prompt-lookup:3,prompt-lookup:15,auto")
    parser.add_argument("--split", default="held-out")
    parser.add_argument("--kinds", default="")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to write the ratios as well")
    parser.add_argument("--same-text", action="store_true")
    options = parser.parse_args()
    runtime = Runtime(LoadSettings())
    runtime.load(pairs.from_paths(options.target, options.draft))
    script = Script() if options.same_text else None
    kinds = tuple(kind for kind in options.kinds.split(",") if kind)
    found: dict[str, list[Raced]] = {}
    for prompt in load_suite(DEFAULT_SUITE).select(Selection(kinds, options.split)):
        limits = Limits(min(options.max_tokens, prompt.max_tokens))
        request = GenerationRequest(messages=prompt.messages, limits=limits)
        if script is not None:
            script.write(runtime, request)
        raced = _race(runtime, options, request)
        print(f"{prompt.key:30}", _row(raced.ratios, raced.differing), flush=True)
        found.setdefault(prompt.kind, []).append(raced)
    runtime.close()
    _print({kind: [each.ratios for each in races] for kind, races in found.items()})
    print("\nwhere all wrote one text:")
    _print({kind: [each.ratios for each in races if not each.differing] for kind, races in found.items()})
    if options.json:
        options.json.write_text(json.dumps({kind: [asdict(each) for each in races] for kind, races in found.items()}))


def _race(runtime: Runtime, options: argparse.Namespace, asked: GenerationRequest) -> Raced:
    files = pairs.from_paths(options.target, options.draft)
    modes = parse_modes(options.modes, DraftingSettings())
    lanes = tuple(LaneSpec(mode, replace(StepSettings(), drafting=each), files) for mode, each in modes.items())
    request = RaceRequest(asked, lanes, options.repeats)
    result = start_race(runtime, request).result().result
    if result is None:
        raise SystemExit("the race was cancelled")
    rates = {
        lane.spec.label: statistics.median(each.stats.decode_tokens_per_second or math.nan for each in lane.runs)
        for lane in result.lanes
    }
    ratios = {mode: rate / rates[BASELINE] for mode, rate in rates.items()}
    return Raced(ratios, tuple(lane.spec.label for lane in result.lanes if not lane.identical))


def _row(ratios: Mapping[str, float], differing: Sequence[str] = ()) -> str:
    marks = {mode: "~" if mode in differing else " " for mode in ratios}
    return " ".join(f"{mode} {ratio:.3f}{marks[mode]}" for mode, ratio in ratios.items() if mode != BASELINE)


def _print(found: Mapping[str, Sequence[Ratios]]) -> None:
    print()
    for kind, races in {**found, "all": [each for some in found.values() for each in some]}.items():
        long = [each for each in races if not any(math.isnan(ratio) for ratio in each.values())]
        if not long:
            continue
        means = {mode: statistics.geometric_mean(each[mode] for each in long) for mode in long[0]}
        best = max((ratio, mode) for mode, ratio in means.items() if mode != "auto")
        print(
            f"{kind:30} {_row(means)}  auto / best fixed {means['auto'] / best[0]:.3f} ({best[1]}), {len(long)} races"
        )


if __name__ == "__main__":
    main()
