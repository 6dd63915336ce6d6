"""What a page says of an answer, of the model and of its starters, without a browser."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from fake_runtime import BUNDLED, FakeFinder, FakeRuntime, catalog
from page_driver import until

import app
from specui.catalog import PairFiles
from specui.config import SPECULATION_MODES, SpeculationMode
from specui.draft_slot import NO_DRAFT
from specui.engine.stats import RatePoint, Stats
from specui.ui import figures, thread
from specui.ui.conversation import Answer
from specui.ui.loader import PairLoader
from specui.ui.models import badge, begin, trouble
from specui.ui.starters import STARTERS


def answered(*modes: SpeculationMode) -> Answer:
    rates = tuple(RatePoint(0.25 * place, 10.0, None, mode) for place, mode in enumerate(modes, start=1))
    return Answer(
        "Hi", stats=Stats(completion_tokens=9, speculation=modes[-1], speculation_used=modes[-1]), rates=rates
    )


def test_the_line_names_all_modes_in_order_up_to_five() -> None:
    assert ">none → prompt lookup → draft model → auto<" in thread.line(
        answered("none", "none", "prompt-lookup", "draft-model", "auto")
    )
    five = "none → auto → none → auto → none"
    assert f">{five}<" in thread.line(answered("none", "auto", "none", "auto", "none"))
    assert f">{five} → …<" in thread.line(answered("none", "auto", "none", "auto", "none", "auto", "none"))


def test_buttons_and_charts_explain_themselves() -> None:
    assert "of the drafts that reached this position" in figures.positions(Stats())
    for label in ("Tokens", "Figures"):
        assert thread.HINTS[label]


@pytest.mark.parametrize("mode", SPECULATION_MODES)
def test_only_a_finished_answer_is_compared_with_the_switch(mode: SpeculationMode) -> None:
    answer = answered("none", mode)
    assert f'data-asked="{mode}"' in figures.render(answer.stats, answer.rates)
    assert figures.PENDING in figures.render(answer.stats, answer.rates)
    assert figures.PENDING not in figures.render(answer.stats, answer.rates, live=True)
    assert figures.PENDING not in figures.render(Stats(), ())


def test_the_starters_leave_time_for_the_switch() -> None:
    edit, *others = (starter.prompt for starter in STARTERS)
    assert 230 <= len(edit.split()) <= 300
    assert edit.count("lighthause") > 6
    assert len(set(edit.split())) < len(edit.split()) / 2, "there must be much that a lookup finds again"
    assert all(len(prompt.split()) > 30 for prompt in others)


def test_a_failed_load_is_logged_shown_and_dismissed(caplog: pytest.LogCaptureFixture) -> None:
    runtime, finder = FakeRuntime(loaded=None), FakeFinder()
    loader = PairLoader(runtime)
    begin(loader, catalog().pair("broken"), finder)
    assert until(lambda: not loader.state.busy)
    failure = "/models/broken.gguf: is truncated at <b>40</b> %; fetch it again"
    assert until(lambda: bool(caplog.messages))
    assert caplog.messages == [f"Broken pair could not be loaded: {failure}"]
    assert "at &lt;b&gt;40&lt;/b&gt; %" in trouble(None, loader.state)
    assert ">load failed<" in badge(None, loader.state)
    loader.dismiss()
    assert "load failed" not in badge(None, loader.state)
    assert loader.state.failure == failure, "the Models tab still tells it"
    assert not trouble(FakeRuntime().loaded, loader.state)
    runtime.close()


@pytest.mark.parametrize(
    ("draft", "mode", "warned"), [(None, "draft-model", 1), (None, "auto", 0), (BUNDLED.draft, "draft-model", 0)]
)
def test_draft_mode_without_a_draft_is_one_line_at_the_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, draft: Path | None, mode: str, warned: int
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(app, "given_files", lambda arguments: PairFiles("own", "Own", BUNDLED.target, draft))
    monkeypatch.setattr(app, "Runtime", lambda settings: FakeRuntime(loaded=None))
    monkeypatch.setattr(app, "serve", lambda house, listener: listener.close())
    assert app.main(["--port", "0", "--speculation", mode]) == 0
    said = [message for message in caplog.messages if NO_DRAFT in message]
    assert len(said) == warned and all(message.startswith("--speculation draft-model: ") for message in said)
