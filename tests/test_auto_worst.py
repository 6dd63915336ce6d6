"""What mode `auto` costs at worst and gains at best on a machine like a real one: whole answers in scripted time."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from auto_simulation import Pair, Simulation
from auto_texts import (
    HALF_COUNTS,
    Q4_K_M,
    READING_SHARE,
    STAIRS,
    UNIT,
    Text,
    copying_text,
    fresh_text,
    looping_text,
    misleading_text,
    never,
    pieced_text,
)
from fake_clock import Clock, clock_in

from specui.engine import calibration as calibration_module
from specui.engine import decoder as decoder_module
from specui.engine import drafting as drafting_module
from specui.engine.controller import EXPLORATION
from specui.engine.economy import Known

COUNT = 256
AHEAD = COUNT + 80


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return clock_in(monkeypatch, calibration_module, decoder_module, drafting_module)


def assert_at_most(ratio: float, limit: float) -> None:
    assert ratio <= limit, f"expected at most {limit - 1:.1%} over plain decoding, took {ratio - 1:.1%}"


@pytest.mark.parametrize("n_vocab", [8, 24, 200])
@pytest.mark.parametrize("prompt_length", [10, 200])
def test_copies_that_are_never_right(clock: Clock, n_vocab: int, prompt_length: int) -> None:
    pair = Pair(misleading_text(prompt_length + AHEAD, n_vocab), stairs=Q4_K_M)
    assert_at_most(Simulation(clock, pair).against_plain(prompt_length, COUNT), 1.03)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3, 0.65])
@pytest.mark.parametrize("probability", [0.3, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("text", [fresh_text(20 + AHEAD), misleading_text(20 + AHEAD)], ids=["no match", "misleading"])
def test_a_draft_model_that_is_never_right(clock: Clock, share: float, probability: float, text: Text) -> None:
    pair = Pair(text, share, never, probability, Q4_K_M)
    assert_at_most(Simulation(clock, pair).against_plain(20, COUNT), 1.03)


def trusted(clock: Clock, share: float | None, stairs: Mapping[int, float]) -> Known:
    """Return what is known after answers in which copies and drafts held nearly always."""
    simulation = Simulation(clock, Pair(copying_text(100, 1500), share, stairs=stairs))
    for _ in range(3):
        simulation.answer(100, count=400)
    return simulation.experience.known(with_draft=share is not None)


@pytest.mark.parametrize("share", [None, 0.02, 0.05, 0.3])
@pytest.mark.parametrize("stairs", [Q4_K_M, STAIRS, HALF_COUNTS], ids=["Q4_K_M", "stairs", "half counts"])
@pytest.mark.parametrize("prompt_length", [20, 200])
def test_a_text_that_deceives_what_was_learned_from_others(
    clock: Clock, share: float | None, stairs: Mapping[int, float], prompt_length: int
) -> None:
    known = trusted(clock, share, stairs)
    simulation = Simulation(clock, Pair(misleading_text(prompt_length + AHEAD), share, never, stairs=stairs))
    simulation.experience.recall(known)
    reading = READING_SHARE * (share or 0.0) * prompt_length / COUNT  # the prompt, once, by who was always right
    for answers in range(4):
        ratio = simulation.against_plain(prompt_length, COUNT)
        assert_at_most(ratio, 1.04 + (reading if answers < 2 else 0.0))


def test_exploring_costs_no_more_than_its_share_even_if_the_draft_model_is_sure_of_itself(clock: Clock) -> None:
    """Where a second row costs as much as a pass, the pass is what exploring costs, not the draft model."""
    known = trusted(clock, 0.05, Q4_K_M)
    simulation = Simulation(clock, Pair(fresh_text(1500), 0.05, never, stairs=Q4_K_M))
    simulation.experience.recall(known)
    simulation.experience.explored_seconds = 0.0
    for _ in range(3):  # what is known to be bad is asked only to explore
        simulation.answer(20, count=300)
    experience = simulation.experience
    explored, decoded = experience.explored_seconds, experience.decode_seconds
    _, time = simulation.answer(20, count=1400)
    explored, decoded = experience.explored_seconds - explored, experience.decode_seconds - decoded
    assert 0 < explored <= EXPLORATION * decoded + 3 * UNIT
    assert time - 1400 <= 1.5 * explored / UNIT + 3, "what it says it cost is what it cost"


@pytest.mark.parametrize("share", [None, 0.3])
@pytest.mark.parametrize(
    ("text", "prompt_length"),
    [(looping_text(90 + AHEAD), 90), (copying_text(100, 100 + AHEAD), 100), (copying_text(300, 300 + AHEAD), 300)],
    ids=["loop", "short prompt", "long prompt"],
)
def test_a_copying_text_is_written_twice_as_fast(
    clock: Clock, text: Text, prompt_length: int, share: float | None
) -> None:
    ratio = Simulation(clock, Pair(text, share, stairs=Q4_K_M)).against_plain(prompt_length, COUNT)
    assert ratio <= 0.5, f"expected twice plain decoding, got {1 / ratio:.2f} times"


def test_a_draft_model_and_copies_together_are_faster_than_each_alone(clock: Clock) -> None:
    """Nothing but the model foretells which piece comes next; the copy goes on behind its first words."""
    text = pieced_text(200, 200 + AHEAD)
    both = Simulation(clock, Pair(text, 0.1)).against_plain(200, COUNT)
    copies = Simulation(clock, Pair(text)).against_plain(200, COUNT)
    model = Simulation(clock, Pair(fresh_text(200 + AHEAD), 0.1)).against_plain(200, COUNT)
    assert both <= 0.95 * min(copies, model), f"{both:.3f} of plain decoding's time against {copies:.3f}, {model:.3f}"
