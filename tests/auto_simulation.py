"""Whole answers of mode `auto` simulated: a target and a draft in scripted time, on a text fixed by place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from auto_texts import LENGTH, N_VOCAB, READING_SHARE, STAIRS, UNIT, Text, TimedCache, always, says
from fake_clock import Clock
from fake_model import Done, FakeCache, FakeDrafters, Plan, answer

from specui.config import DraftingSettings, SpeculationMode
from specui.engine.calibration import calibrate
from specui.engine.controller import Auto
from specui.engine.drafting import Drafter, DraftModel, NoDrafter
from specui.engine.economy import Experience
from specui.engine.lookup import PromptLookup
from specui.engine.stats import PlainPasses
from specui.engine.thinking import Thinking


class AutoDrafters(FakeDrafters):
    """A lane's rules with mode `auto`: one `Auto` per answer, one experience for all, padded passes."""

    def __init__(self, experience: Experience, draft: FakeCache | None) -> None:
        super().__init__(draft)
        self.experience = experience
        self.plain = PlainPasses()
        self._auto: Auto | None = None

    def padded(self, rows: int, most: int) -> int:
        return self.experience.costs.padded(rows, most)

    def thinking(self) -> Thinking | None:
        return self.experience.thinking(with_draft=self.draft is not None)

    def begin_answer(self) -> None:
        super().begin_answer()
        self.experience.begin_answer()
        self._auto = None

    def pick(self, drafting: DraftingSettings) -> tuple[Drafter, SpeculationMode, str | None]:
        if drafting.speculation != "auto" or "auto" in self.failed:
            return NoDrafter(), "none", self.failed.get("auto")
        self.picked = "auto"
        if self._auto is None:
            draft = DraftModel(self.draft, N_VOCAB) if self.draft else None
            self._auto = Auto(PromptLookup(drafting.max_ngram_size), draft, self.experience)
        return self._auto, "auto", None


@dataclass(frozen=True)
class Pair:
    """A text to be written, the draft model's part in it, and what passes cost in single target passes."""

    text: Text
    draft_share: float | None = None
    right: Callable[[int], bool] = always
    probability: float = 0.995
    stairs: Mapping[int, float] = field(default_factory=lambda: STAIRS)


class Simulation:
    """A target and a draft in scripted time. Reading a prompt is free for the target, not for the draft."""

    def __init__(self, clock: Clock, pair: Pair) -> None:
        self.clock, self.pair = clock, pair

        def target_price(tokens: int, rows: int) -> float:
            return UNIT * pair.stairs[rows] if rows == tokens else 0.0

        self.target = TimedCache(says(pair.text), clock, target_price)
        self.draft: TimedCache | None = None
        share = pair.draft_share
        if share is not None:
            self.draft = TimedCache(
                says(pair.text, pair.right, pair.probability),
                clock,
                lambda tokens, _rows: UNIT * share * max(1.0, READING_SHARE * tokens),
            )
        costs = calibrate(self.target)
        self.experience = Experience(costs, costs.seconds(1) * (share or 1.0))
        self.drafters = AutoDrafters(self.experience, self.draft)

    def answer(self, prompt_length: int, mode: SpeculationMode = "auto", count: int = LENGTH) -> tuple[Done, float]:
        """Return an answer with its time in single target passes; its ids must be those of the text."""
        text = self.pair.text
        plan = Plan(text[:prompt_length], max_tokens=count).with_mode(mode)
        self.target.clear()
        started = self.clock.now
        done = answer(plan, self.target, self.drafters)
        assert list(done.tokens) == list(text[prompt_length : prompt_length + count]), "the ids are not the target's"
        return done, (self.clock.now - started) / UNIT

    def against_plain(self, prompt_length: int, count: int = LENGTH) -> float:
        """Return the time of an answer in `auto` as a share of the same answer's in `none`."""
        plain, plain_time = self.answer(prompt_length, "none", count)
        done, time = self.answer(prompt_length, "auto", count)
        assert plain.tokens == done.tokens
        return time / plain_time


def ahead_of(prompt_length: int, count: int = LENGTH) -> int:
    return prompt_length + count + 80
