"""The shelf: a file is loaded once whatever path leads to it, and freed when its last user lets go."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from specui.catalog import PairFiles
from specui.config import DraftingSettings, LoadSettings, SpeculationMode
from specui.errors import ModelFileError
from specui.lane import Lane
from specui.machine import Machine
from specui.weights import Shelf


@pytest.fixture
def path(bundled_pair: PairFiles) -> Path:
    assert bundled_pair.draft is not None
    return bundled_pair.draft


def test_one_file_is_one_model_until_the_last_user_lets_go(path: Path, tmp_path: Path) -> None:
    shelf = Shelf()
    link = tmp_path / "other-name.gguf"
    link.symlink_to(path)
    first, second = shelf.take(path), shelf.take(link)
    assert first is second
    assert len(shelf) == 1
    shelf.give_back(first)
    assert first.handle, "another still uses it"
    shelf.give_back(second)
    assert first.handle is None
    assert len(shelf) == 0
    third = shelf.take(path)
    assert third is not first and third.handle
    shelf.give_back(third)


def test_a_file_that_cannot_be_loaded_leaves_no_trace(path: Path, tmp_path: Path) -> None:
    shelf = Shelf()
    bad = tmp_path / "bad.gguf"
    for content in (None, path.read_bytes()[:500_000]):
        if content is not None:
            bad.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"bad\.gguf"):
            shelf.take(bad)
        assert len(shelf) == 0


def test_takers_at_the_same_moment_get_the_same(path: Path) -> None:
    shelf, models = Shelf(), []
    threads = [threading.Thread(target=lambda: models.append(shelf.take(path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(models) == 4
    assert all(model is models[0] for model in models)
    for model in models:
        shelf.give_back(model)
    assert len(shelf) == 0


def test_lanes_share_weights_and_give_them_back(bundled_pair: PairFiles) -> None:
    shelf, settings = Shelf(), LoadSettings(ctx_size=64)
    lanes = [Lane(shelf, bundled_pair.target, bundled_pair.draft, settings) for _ in range(2)]
    for lane in lanes:
        lane.draft.load(lambda: False)
    assert lanes[0].model is lanes[1].model
    assert lanes[0].draft.model is lanes[1].draft.model is not None
    assert len(shelf) == 2
    lanes[0].close()
    assert len(shelf) == 2, "the other lane still uses both"
    lanes[1].close()
    assert len(shelf) == 0


@pytest.mark.parametrize(
    ("mode", "may_win", "waits"),
    [("auto", True, True), ("auto", False, False), ("draft-model", False, True), ("none", True, False)],
)
def test_an_answer_begins_with_the_draft_at_hand_where_it_may_be_of_use(
    bundled_pair: PairFiles, monkeypatch: pytest.MonkeyPatch, mode: SpeculationMode, may_win: bool, waits: bool
) -> None:
    monkeypatch.setattr(Machine, "draft_may_win", lambda _: may_win)
    lane = Lane(Shelf(), bundled_pair.target, bundled_pair.draft, LoadSettings(ctx_size=64))
    lane.begin_answer(DraftingSettings(speculation=mode), cancelled=lambda: False)
    assert (lane.draft.context is not None) is waits
    lane.close()
