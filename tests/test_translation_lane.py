"""A draft of another vocabulary on a lane: refused with the reason, or translated where that was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from asking import SEA, ask
from tiny_models import write_tiny

from specui import pairs
from specui.catalog import PairFiles
from specui.config import LoadSettings
from specui.runtime import Runtime


@pytest.fixture(scope="module")
def stranger(bundled_pair: PairFiles, tmp_path_factory: pytest.TempPathFactory) -> PairFiles:
    """The bundled Q4_1 weights as target with a tiny random draft of another vocabulary."""
    assert bundled_pair.draft is not None
    draft: Path = tmp_path_factory.mktemp("tiny") / "stranger.gguf"
    write_tiny(draft, "llama")
    return pairs.from_paths(bundled_pair.draft, draft)


@pytest.mark.parametrize("may_translate", [False, True])
def test_it_is_translated_only_where_that_was_asked_for(stranger: PairFiles, may_translate: bool) -> None:
    runtime = Runtime(LoadSettings(ctx_size=512, translate_draft=may_translate))
    try:
        runtime.load(stranger)
        want = ask(runtime, SEA, "none", 24)
        got = ask(runtime, SEA, "draft-model", 24)
        assert got.token_ids == want.token_ids
        if may_translate:
            assert got.stats.speculation_used == "draft-model"
            assert got.stats.translation is not None
            assert got.stats.translation.draft_tokens_written > 0
            assert got.stats.to_dict()["translation"]["target_tokens_proposed"] == got.stats.num_draft_tokens
        else:
            assert got.stats.speculation_used == "none"
            assert "--translate-draft" in (got.stats.speculation_off_reason or "")
            assert "translation" not in got.stats.to_dict()
    finally:
        runtime.close()
