"""Finding one's own: what was typed, names of pairs, and what a button of the page may carry."""

from __future__ import annotations

from pathlib import Path

import pytest

from specui import offers
from specui.catalog import BundledFile, HubFile, LocalFile, Source
from specui.ui.model_finder import source_of, text_of


@pytest.mark.parametrize("words", ["/models", "~/x.gguf", "./x", "../x.gguf", "C:\\models"])
def test_paths_are_told_from_words(words: str) -> None:
    assert offers.is_path(words)
    assert not offers.is_repo(words)


@pytest.mark.parametrize(
    ("words", "is_repo"),
    [("owner/name", True), ("o-w.n/na_me-1.5B-GGUF", True), ("qwen coder", False), ("a/b/c", False), ("qwen", False)],
)
def test_repositories_are_told_from_words(words: str, is_repo: bool) -> None:
    assert offers.is_repo(words) is is_repo
    assert not offers.is_path(words)


def test_a_new_pair_has_a_name_of_its_own() -> None:
    target = HubFile("maker/big", "sub/Big-Q8_0-00002-of-00003.gguf")
    pair = offers.pair_of(target, LocalFile(Path("/w/Tiny é.gguf")), ["big-q8-0", "big-q8-0-2"])
    assert (pair.name, pair.title) == ("big-q8-0-3", "Big-Q8_0 with Tiny é")
    assert offers.pair_of(LocalFile(Path("/w/é.gguf")), None, []).name == "own"
    assert offers.pair_of(BundledFile(), None, []).draft is None


@pytest.mark.parametrize(
    "source", [HubFile("a/b", "c.gguf"), HubFile("a/b", 'c"<.gguf', "v1"), LocalFile(Path("/x y"))]
)
def test_a_button_carries_a_source(source: Source) -> None:
    assert source_of(text_of(source)) == source


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "5", "null", '["hub"]', '["hub", 1, 2, 3]', '["path", "a", "b"]', '{"a": 1}']
)
def test_what_is_no_source_is_none(text: str) -> None:
    assert source_of(text) is None
