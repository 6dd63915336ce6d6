"""What mode `auto` makes of prices within an answer: sizes passed over, long texts, and the draft model's time."""

from __future__ import annotations

import pytest
from auto_texts import N_VOCAB, TimedCache, ask, fresh_text, looping_text, outcome, says
from fake_clock import clock_in
from fake_model import FakeCache

from specui.engine import drafting
from specui.engine.controller import Auto
from specui.engine.costs import LENGTH_STEP, QUICK_LEARNING, PassCosts
from specui.engine.drafting import DraftModel
from specui.engine.economy import Experience
from specui.engine.lookup import CLASSES, PromptLookup
from specui.engine.verification import EMPTY_DRAFT
from specui.errors import DecodeError

TEXT = looping_text(4000)


def trusting(costs: PassCosts, misses: int = 0) -> Experience:
    """Return an experience in which every copy was right, or all but so many of ten."""
    know = Experience(costs)
    for turn in range(60):
        for each in range(CLASSES):
            know.lookup.observe(each, hit=(turn + each) % 10 >= misses)
    return know


def auto_with(know: Experience, draft: FakeCache | None = None, text: list[int] = TEXT[:100]) -> Auto:
    auto = Auto(PromptLookup(4), DraftModel(draft, N_VOCAB) if draft else None, know)
    list(auto.begin(text))
    return auto


@pytest.mark.parametrize(
    ("second", "misses", "credit", "cheaper"),
    [(2.2, 0, 1.0, True), (9.0, 0, 1.0, False), (1.5, 2, -1.0, False)],
    ids=["nearly worth it", "far from it", "worth it, but too risky"],
)
def test_only_a_copy_that_the_price_alone_kept_back_makes_its_size_cheaper(
    second: float, misses: int, credit: float, cheaper: bool
) -> None:
    know = trusting(PassCosts({1: 1.0, 2: second, 64: 63 * second}), misses)
    know.stake.seconds = credit
    before = know.costs.seconds(2)
    assert len(auto_with(know).propose(ask(TEXT[:100], 1))) == 0
    know.costs.at(100 + LENGTH_STEP)
    assert (know.costs.seconds(2) < before) is cheaper


def test_behind_a_long_text_a_copy_must_pay_for_attending_too() -> None:
    lengths = []
    for length in (60, 3000):
        know = trusting(PassCosts({1: 1.0, 2: 1.3, 16: 8.0, 64: 32.0}, cell_seconds=0.01))
        lengths.append(len(auto_with(know, text=TEXT[:length]).propose(ask(TEXT[:length], 15))))
        assert know.costs.seconds(16) == pytest.approx(8.0 + 0.01 * 16 * length, rel=LENGTH_STEP / length)
    assert lengths[0] > 0
    assert lengths[1] == 0, "sixteen rows take almost sixteen times what one takes there"


def test_reading_and_writing_of_the_draft_model_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, text = clock_in(monkeypatch, drafting), fresh_text(60)
    prices = {1: 0.12, 3: 0.2}
    model = TimedCache(says(text), clock, lambda tokens, _rows: prices.get(tokens, 0.0))
    know = Experience(PassCosts({1: 1.0, 64: 1.5}), 0.1)
    auto = auto_with(know, model, text[:10])
    held, started = know.draft.token_seconds + know.draft.reading_seconds(2), clock.now
    draft = auto.propose(ask(text[:12], 4))
    assert [len(tokens) for tokens, rows in model.calls if rows] == [3, *[1] * (len(draft) - 1)]
    auto.accept(outcome(text[:12], draft, len(draft), drafting=clock.now - started))
    written = know.draft.token_seconds
    read = written + know.draft.reading_seconds(2)
    assert written == pytest.approx(0.1 + 0.1 * (0.12 - 0.1)), "a tenth of the way"
    assert read == pytest.approx((held + (0.2 - held) / QUICK_LEARNING) * written / 0.1), "read once"


def test_a_draft_that_failed_while_it_read_teaches_no_time() -> None:
    text = fresh_text(60)
    cache = FakeCache(says(text))
    know = Experience(PassCosts({1: 1.0, 64: 1.5}), 0.02)
    auto = auto_with(know, cache, text[:10])
    reading = know.draft.reading_seconds(5)
    cache.fail_decode = {len(cache.calls): 1}
    with pytest.raises(DecodeError):
        auto.propose(ask(text[:12]))
    auto.accept(outcome(text[:12], EMPTY_DRAFT, 0))
    assert know.draft.token_seconds == pytest.approx(0.02)
    assert know.draft.reading_seconds(5) == pytest.approx(reading)
