"""Replays recorded answers with measured costs: `PYTHONPATH=. python benchmarks/replay.py RECORD.json [--without …]`.

What a drafter would have drafted is checked against the recorded answer, and time is counted by the recorded costs, so
that choices of mode auto can be tried in seconds and without a machine's noise. `--costs OTHER.json` takes the costs of
another record of the same vocabulary. A wrong draft of the model goes on with confidences drawn from the record.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from specui.config import DEFAULT_MAX_DRAFT_TOKENS, DRAFT_ROWS, MIN_NGRAM_SIZE, DraftingSettings, SamplingSettings
from specui.engine import economy, lookup
from specui.engine.calibration import CALIBRATION_ROWS
from specui.engine.controller import Auto
from specui.engine.costs import MOST_ROWS, PassCosts
from specui.engine.dice import Dice
from specui.engine.drafting import Drafter, Guess, Judge, Outcome, Proposal, common_prefix
from specui.engine.economy import Experience
from specui.engine.lookup import PromptLookup
from specui.engine.verification import EMPTY_DRAFT, Draft

LENGTHS = (2, 3, 5, 8, 15)

WITHOUT: Mapping[str, Callable[[], Any]] = {
    "agreement": lambda: patch.object(lookup, "_ALONG", [lookup._ALONG[0]] * len(lookup.AGREEMENTS)),
    "resuming": lambda: patch.object(PromptLookup, "_resumed", lambda *_: None),
    "edits": lambda: patch.object(lookup._Edits, "learn", lambda *_: None),
    "ranking": lambda: patch.object(PromptLookup, "_best", lambda _, places: places[0]),
    "chaining": lambda: patch.object(PromptLookup, "find_behind", lambda *_: None),
    "caution": lambda: patch.object(economy, "HAZARD_PRIOR", 1.0),
    "stake": lambda: patch.object(economy.Stake, "allows", lambda *_: True),
    "reading": lambda: patch.object(Auto, "begin", lambda auto, prompt: auto.lookup.begin(prompt)),
    "drafting": lambda: patch.object(Experience, "draft_gain", lambda *_: 0.0),
}
"""Parts of mode auto that can be left out."""


def main() -> None:
    """Print tokens a second against plain decoding, by kind of work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("--costs", type=Path)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--without", choices=WITHOUT, action="append", default=[])
    options = parser.parse_args()
    record = json.loads(options.record.read_text())
    replay = Replay(json.loads(options.costs.read_text()) if options.costs else record)
    prompts = [Recorded.of(each, options.max_tokens) for each in record["prompts"]]
    for name in options.without:
        WITHOUT[name]().start()
    _print(replay.gains(prompts), [prompt.kind for prompt in prompts])


def _print(gains: Mapping[str, Sequence[float]], kinds: Sequence[str]) -> None:
    print(f"{'':10}", *[f"{name:>6}" for name in gains], "  auto / best fixed")
    for kind in [*dict.fromkeys(kinds), "all"]:
        chosen = [place for place, each in enumerate(kinds) if kind in (each, "all")]
        means = {name: statistics.mean(values[place] for place in chosen) for name, values in gains.items()}
        best = max((value, name) for name, value in means.items() if name != "auto")
        row = " ".join(f"{value:6.2f}" for value in means.values())
        print(f"{kind:10} {row}   {means['auto'] / best[0]:.3f} {best[1]}")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One answer and the draft model's guesses at it."""

    kind: str
    prompt: list[int]
    answer: list[int]
    guesses: list[int]
    confidences: list[float]

    @classmethod
    def of(cls, entry: Mapping[str, Any], max_tokens: int) -> Recorded:
        """Return an entry of a record, its answer cut."""
        return cls(entry["kind"], entry["prompt"], entry["answer"][:max_tokens], entry["guesses"], entry["confidences"])


class RecordedDraft:
    """A draft model that guesses as it was recorded; behind a wrong guess it goes on in vain."""

    def __init__(self, recorded: Recorded, token_seconds: float, p_min: float = 0.0) -> None:
        self._recorded = recorded
        self._token_seconds = token_seconds
        self._p_min = p_min
        self._read = 0
        self._random = random.Random(1)
        self.watch: Callable[[float, bool], None] | None = None
        self.seconds = self.catch_up_seconds = 0.0
        self.rows_decoded = self.rows_caught_up = 0

    def begin(self, prompt: Sequence[int]) -> Iterator[int]:
        """Read the prompt, which belongs to the prefill."""
        self._read = len(prompt) - 1
        return iter(())

    def behind(self, committed: Sequence[int]) -> int:
        """Return how many tokens are still to be read."""
        self._read = min(self._read, len(committed) - 1)
        return len(committed) - self._read

    def propose(self, proposal: Proposal, judge: Judge | None = None) -> Draft:
        """Draft along the record; `seconds` is what it takes."""
        self.rows_caught_up = self.behind(proposal.committed)
        self.rows_decoded = 0
        self.seconds = self._token_seconds * (1 + economy.READING_SHARE * (self.rows_caught_up - 1))
        self.catch_up_seconds = self.seconds
        place = len(proposal.committed) - len(self._recorded.prompt)
        self._tell(place)
        tokens = self._write(place, proposal.limit, judge or self._judge_by_p_min)
        self._read = len(proposal.committed) + self.rows_decoded
        return Draft(tokens) if tokens else EMPTY_DRAFT

    def _tell(self, place: int) -> None:
        recorded = self._recorded
        for each in range(max(0, place - min(self.rows_caught_up, DRAFT_ROWS) + 1), place) if self.watch else ():
            self.watch(recorded.confidences[each], recorded.guesses[each] == recorded.answer[each])  # type: ignore[misc]

    def _judge_by_p_min(self, guess: Guess) -> Any:
        return "leave" if guess.probability < self._p_min else "go-on"

    def _write(self, place: int, limit: int, judge: Judge) -> list[int]:
        recorded, right = self._recorded, True
        tokens: list[int] = []
        for at in range(place, min(place + limit, len(recorded.answer))):
            token = recorded.guesses[at] if right else -2
            confidence = recorded.confidences[at] if right else self._random.choice(recorded.confidences)
            take = judge(Guess(len(tokens), token, confidence, limit))
            if take == "leave":
                break
            tokens.append(token)
            right = right and token == recorded.answer[at]
            if take == "last" or len(tokens) == limit:
                break
            self.rows_decoded += 1
            self.seconds += self._token_seconds
        return tokens

    def accept(self, outcome: Outcome) -> None:
        """Forget what was rejected."""
        self._read = min(self._read, outcome.length + outcome.num_accepted)


class Replay:
    """Replays answers with the costs of a record."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._cell_seconds = record["cell_seconds"]
        self._points = {
            int(rows): seconds - int(rows) * record["behind"] * self._cell_seconds
            for rows, seconds in record["pass_seconds"].items()
        }
        self._costs = PassCosts(self._points, self._cell_seconds)
        self._draft_seconds = record["draft_token_seconds"]

    def gains(self, prompts: Sequence[Recorded]) -> dict[str, list[float]]:
        """Return tokens a second against plain decoding for each mode and prompt; auto learns from one to the next."""
        p_min = DraftingSettings().draft_p_min
        gains: dict[str, list[float]] = {"none": [1.0] * len(prompts)}
        for length in LENGTHS:
            gains[f"L{length}"] = [self.gain(each, _lookup(), length) for each in prompts]
        for length in LENGTHS:
            drafts = [RecordedDraft(each, self._draft_seconds, p_min) for each in prompts]
            gains[f"D{length}"] = [self.gain(*each, length) for each in zip(prompts, drafts, strict=True)]
        points = {rows: seconds for rows, seconds in self._points.items() if rows in CALIBRATION_ROWS}
        known = PassCosts(points, self._cell_seconds)
        know = Experience(known, self._draft_seconds)
        gains["auto"] = [self._auto(each, know) for each in prompts]
        return gains

    def _auto(self, recorded: Recorded, know: Experience) -> float:
        know.begin_answer()
        draft: Any = RecordedDraft(recorded, self._draft_seconds)
        auto = Auto(_lookup(), draft, know)
        return self.gain(recorded, auto, DEFAULT_MAX_DRAFT_TOKENS["auto"], know.costs)

    def gain(self, recorded: Recorded, drafter: Drafter, cap: int, padding: PassCosts | None = None) -> float:
        """Return how much faster than plain decoding `drafter` writes the answer."""
        for _ in drafter.begin(recorded.prompt):
            pass
        committed, answer = [*recorded.prompt, recorded.answer[0]], recorded.answer
        seconds, plain_seconds, written = 0.0, 0.0, 1
        while written < len(answer):
            limit = min(cap, len(answer) - written - 1)
            self._costs.at(len(committed))
            proposal = Proposal(committed, limit, SamplingSettings(), Dice(0))
            draft = drafter.propose(proposal) if limit > 0 else EMPTY_DRAFT
            accepted = common_prefix(draft.tokens, answer[written:])
            rows = len(draft) + 1
            rows = padding.padded(rows, MOST_ROWS) if padding is not None and draft else rows
            length, spent = len(committed), _draft_seconds(drafter)
            committed += answer[written : written + accepted + 1]
            written += accepted + 1
            passed = self._costs.unpadded_seconds(rows)
            seconds += passed + spent
            plain_seconds += (accepted + 1) * self._costs.seconds(1)
            drafter.accept(Outcome(length, draft, accepted, rows, spent, passed))
        return plain_seconds / seconds


def _lookup() -> PromptLookup:
    return PromptLookup(DraftingSettings().max_ngram_size, MIN_NGRAM_SIZE)


def _draft_seconds(drafter: Any) -> float:
    """Return what the last proposal took a draft model, and forget it."""
    draft = getattr(drafter, "draft", drafter)
    seconds = draft.seconds if isinstance(draft, RecordedDraft) else 0.0
    if seconds:
        draft.seconds = 0.0
    return seconds


if __name__ == "__main__":
    main()
