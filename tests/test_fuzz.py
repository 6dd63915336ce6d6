"""Random conversations: send, switch, stop, edit, regenerate, change the length, and parts that fail in between.

What must hold after every answer, whatever was done: the cache is the committed tokens without the last, the counts add
up, the tokens are those that mode none writes, the text is the tokens'.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from asking import assert_counts as assert_progress_counts
from asking import own_draft
from fake_model import (
    MODES,
    N_VOCAB,
    Done,
    FakeCache,
    FakeDrafters,
    Plan,
    answer,
    assert_counts,
    best_text,
    blurred,
    random_script,
)

from specui.catalog import PairFiles
from specui.config import SPECULATION_MODES, DraftingSettings, Limits, LoadSettings, StepSettings
from specui.errors import DecodeError
from specui.generation import GenerationRequest, Message, Progress
from specui.runtime import Runtime

CONVERSATIONS, ANSWERS = 350, 12
END = 7


@dataclass
class FakeChat:
    """A conversation on fakes, driven by dice."""

    dice: random.Random
    target: FakeCache = field(init=False)
    draft: FakeCache = field(init=False)
    drafters: FakeDrafters = field(init=False)
    text: list[int] = field(default_factory=list)
    steps: int = 0

    def __post_init__(self) -> None:
        self.script = random_script(self.dice.randrange(50), order=self.dice.choice([1, 2, 3]))
        self.target = FakeCache(self.script, n_ctx=self.dice.choice([96, 256, 4096]), n_batch=self.dice.choice([8, 64]))
        self.draft = FakeCache(
            blurred(self.script, self.dice.choice([0.0, 1.0, 4.0])), n_ctx=self.dice.choice([48, 4096])
        )
        self.drafters = FakeDrafters(self.draft)

    def act(self) -> None:
        """Do one thing a person does, and look at what came of it."""
        action = self.dice.choice(["send", "send", "edit", "regenerate"])
        if action == "edit" and self.text:
            del self.text[self.dice.randrange(len(self.text)) :]
        if action != "regenerate" or not self.text:
            self.text += [self.dice.randrange(N_VOCAB) for _ in range(self.dice.randrange(1, 12))]
        del self.text[: max(0, len(self.text) - self.target.n_ctx + 2)]
        self.break_something()
        plan = Plan(
            list(self.text), self.dice.randrange(1, 40), frozenset({END}), stop_after=self.dice.choice([None, 1, 5, 9])
        )
        schedule = {n: self.settings() for n in range(0, 60, self.dice.randrange(1, 9))}
        current = [self.settings()]

        def settings(emitted: int) -> StepSettings:
            current[0] = schedule.get(emitted, current[0])
            return current[0]

        try:
            done = answer(plan, self.target, self.drafters, settings)
        except DecodeError:
            assert self.target.tokens == [] or self.target.tokens == self.text[: len(self.target.tokens)], (
                "half a pass was left"
            )
            return
        self.look(plan, done)
        if self.dice.random() < 0.7:
            self.text += done.tokens

    def settings(self) -> StepSettings:
        mode = self.dice.choice(MODES)
        cap = None if mode == "none" else self.dice.randrange(1, 12)
        p_min, adaptive = self.dice.choice([0.0, 0.3]), self.dice.random() < 0.3
        return StepSettings(drafting=DraftingSettings(mode, cap, self.dice.randrange(1, 6), p_min, adaptive))

    def break_something(self) -> None:
        """Let the draft, or a cut of the target's cache, fail once in a while."""
        self.draft.fail_decode = {self.draft._decodes + self.dice.randrange(9): 1} if self.dice.random() < 0.2 else {}
        self.draft.recurrent = self.dice.random() < 0.1
        self.target.fail_truncate = (
            {self.target._truncates + self.dice.randrange(6)} if self.dice.random() < 0.2 else set()
        )

    def look(self, plan: Plan, done: Done) -> None:
        want = best_text(self.script, plan.prompt, len(done.tokens))
        assert done.tokens == want, "not what mode none writes"
        assert END not in done.tokens[:-1], "went on behind the end"
        assert_counts(done)
        committed = done.decoder.committed
        assert committed == [*plan.prompt, *done.tokens]
        assert self.target.tokens == committed[:-1], "the cache is not what was committed"
        self.target.check_rows()
        self.steps += done.stats.num_passes


def test_random_conversations_on_fakes() -> None:
    steps = 0
    for seed in range(CONVERSATIONS):
        chat = FakeChat(random.Random(seed))
        for number in range(ANSWERS):
            try:
                chat.act()
            except AssertionError as error:
                raise AssertionError(f"conversation {seed}, answer {number}: {error}") from error
        steps += chat.steps
    assert steps > 10_000, f"only {steps} passes were made"


@pytest.fixture(scope="module")
def small(bundled_pair: PairFiles) -> Iterator[Runtime]:
    """The bundled Q4_1 weights as target and as draft: passes of any size agree bit for bit in the first 256 tokens."""
    with own_draft(bundled_pair, LoadSettings(ctx_size=1024)) as runtime:
        yield runtime


QUESTIONS = ("Count to five.", "Name three colours. Then name them again.", "Say hello twice.", "What is the sea?")


def drafting(dice: random.Random) -> StepSettings:
    mode = dice.choice(SPECULATION_MODES)
    return StepSettings(drafting=DraftingSettings(mode, None if mode == "none" else dice.randrange(1, 12)))


def test_random_conversations_on_the_real_engine(small: Runtime) -> None:
    dice, known = random.Random(4), dict[tuple[Message, ...], Progress]()
    turns: list[Message] = []
    cancelled = passes = 0
    for _ in range(24):
        action = dice.choice(["send", "edit", "regenerate"])
        if action == "send" or not turns:
            turns = (
                [*turns[-4:], Message("user", dice.choice(QUESTIONS))]
                if not turns or turns[-1].role != "user"
                else turns
            )
        elif action == "edit":
            turns = [Message("user", dice.choice(QUESTIONS))]
        asked = tuple(turns)
        request = GenerationRequest(asked, limits=Limits(24), settings=drafting(dice))
        if asked not in known:
            known[asked] = small.start(replace(request, settings=StepSettings())).result()
        generation = small.start(request)
        stop_at = dice.choice([None, None, 0.0, 0.05, 0.2])
        for _ in range(dice.randrange(4)):
            time.sleep(dice.random() * 0.05)
            generation.update(drafting(dice))
        if stop_at is not None:
            time.sleep(stop_at)
            generation.cancel()
        progress = generation.result()
        cancelled += progress.finish_reason == "cancelled"
        passes += progress.stats.num_passes
        want = known[asked]
        assert progress.token_ids == want.token_ids[: len(progress.token_ids)], (
            f"{asked}: {progress.text!r} for {want.text!r}"
        )
        if progress.finish_reason != "cancelled":
            assert progress.text == want.text
        if progress.pieces:
            assert_progress_counts(progress)
            turns = (
                [*asked, Message("assistant", progress.text)]
                if progress.text.strip() and dice.random() < 0.6
                else turns
            )
    assert cancelled >= 2
    assert passes > 100
