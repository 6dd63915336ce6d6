"""A look at pairs through the real client and real headers: what is told, and how little is transferred for it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hub_models import hub_of, model, tokens
from hub_server import HubRepo, HubState

from specui import headers, pairs
from specui.catalog import HubFile, LocalFile, Pair
from specui.config import LoadSettings
from specui.errors import HubError, ModelFileError, VocabularyError
from specui.hub import remove
from specui.inspection import inspect, verdict

WORDS = tokens(2_000)
BIG, SMALL = HubFile("maker/big-GGUF", "*Q4_K_M.gguf"), HubFile("maker/small-GGUF", "small-Q8_0.gguf")
OTHER = HubFile("maker/other-GGUF", "other-Q8_0.gguf")
PAIR = Pair("pair", "Pair", BIG, SMALL, ctx_size=1024)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubState]:
    monkeypatch.setattr(headers, "_kept", headers._Kept())
    repos = {
        "maker/big-GGUF": HubRepo({"big-Q4_K_M.gguf": model(WORDS, values=3_000_000), "big-Q8_0.gguf": model(WORDS)}),
        "maker/small-GGUF": HubRepo({"small-Q8_0.gguf": model([*WORDS, "pad1", "pad2"], template=False)}),
        "maker/other-GGUF": HubRepo({"other-Q8_0.gguf": model(tokens(2_000, {139: "«"}))}),
    }
    with hub_of(repos, tmp_path / "cache", monkeypatch) as state:
        yield state


class Usage(NamedTuple):
    """What shutil tells of a disk, as far as it is asked for."""

    free: int


def silent(_stage: str, _done: int, _total: int) -> None:
    """Take progress and do nothing."""


def test_a_look_tells_what_the_headers_say(hub: HubState) -> None:
    facts = inspect(PAIR, LoadSettings())
    target, draft = facts.target, facts.draft
    assert draft is not None
    assert (target.files, target.on_disk) == (("big-Q4_K_M.gguf",), False)
    assert target.size_bytes == len(hub.repos["maker/big-GGUF"].files["big-Q4_K_M.gguf"])
    assert (target.architecture, target.parameter_count, target.context_length) == ("llama", 3_000_000, 8192)
    assert (target.vocabulary_size, draft.vocabulary_size) == (2_000, 2_002)
    assert (target.has_chat_template, draft.has_chat_template, facts.chat_template) == (True, False, "file")
    assert facts.comparison is not None and facts.comparison.compatible
    assert verdict(facts) == "fits: 2,000 and 2,002 tokens, which differ by padding"
    assert facts.download_bytes == target.size_bytes + draft.size_bytes
    assert facts.problems() == []
    assert facts.transferred_bytes == hub.sent_bytes
    assert facts.to_json()["compatible"] is True


def test_the_first_differing_token_is_named(hub: HubState) -> None:
    facts = inspect(Pair("p", "P", BIG, OTHER), LoadSettings())
    assert facts.problems() == ["draft off: token 139 is '«' and the target's is 'word139'"]
    assert "(99 % of the tokens are alike)" in verdict(facts)


def test_a_second_look_costs_nothing_and_a_new_file_is_seen(hub: HubState) -> None:
    inspect(PAIR, LoadSettings())
    hub.sent_bytes = 0
    assert inspect(PAIR, LoadSettings()).transferred_bytes == 0
    assert hub.sent_bytes == 0


def test_a_pair_of_another_vocabulary_is_refused_before_either_file_is_fetched(hub: HubState) -> None:
    large = hub.repos["maker/big-GGUF"].files
    large["big-Q4_K_M.gguf"] += bytes(8_000_000)
    with pytest.raises(VocabularyError, match=r"small.*token 139|other-Q8_0.*cannot draft for .*token 139"):
        pairs.resolve(Pair("p", "P", BIG, OTHER), silent)
    assert all(request.byte_range for request in hub.seen("GET") if "/tree/" not in request.path)
    assert hub.sent_bytes < 5_000_000
    assert pairs.downloaded(Pair("p", "P", BIG, OTHER)) == []


def test_both_headers_of_a_vocabulary_of_150_000_tokens_cost_less_than_20_megabytes(hub: HubState) -> None:
    words = tokens(151_936)
    for repo in ("maker/big-GGUF", "maker/small-GGUF"):
        files = hub.repos[repo].files
        for name in files:
            files[name] = model(words, values=8_000_000, merges=151_387)
    facts = inspect(PAIR, LoadSettings())
    assert facts.comparison is not None and facts.comparison.compatible
    assert facts.target.vocabulary_size == 151_936
    assert hub.answered_bytes < 20_000_000
    assert facts.transferred_bytes == hub.sent_bytes


def test_parts_are_one_model(hub: HubState) -> None:
    parts = {f"q-0000{number + 1}-of-00002.gguf": model(WORDS, split=(number, 2), values=500) for number in (0, 1)}
    hub.repos["maker/parts-GGUF"] = HubRepo(dict(parts))
    pair = Pair("p", "P", HubFile("maker/parts-GGUF", "q-00001-of-00002.gguf"))
    facts = inspect(pair, LoadSettings())
    assert facts.target.files == tuple(parts)
    assert facts.target.parameter_count == 1_000
    assert facts.target.size_bytes == sum(map(len, parts.values()))
    files = pairs.resolve(pair, silent)
    assert {path.name: path.read_bytes() for path in pairs.downloaded(pair)} == parts
    local = inspect(Pair("l", "L", LocalFile(files.target)), LoadSettings())
    assert (local.target.parameter_count, local.target.on_disk) == (1_000, True)


def test_what_is_downloaded_is_looked_at_on_disk(hub: HubState) -> None:
    pairs.resolve(PAIR, silent)
    hub.requests.clear()
    facts = inspect(PAIR, LoadSettings())
    assert (facts.target.on_disk, facts.download_bytes, facts.transferred_bytes) == (True, 0, 0)
    assert hub.requests == []


def test_a_full_disk_is_said(hub: HubState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(1_000_000))
    (problem,) = inspect(PAIR, LoadSettings()).problems()
    assert problem == "the download needs 0.01 GB and 0.00 GB are free; set HF_HOME to another disk"


def test_a_target_without_a_template_is_said(hub: HubState) -> None:
    pair = Pair("p", "P", SMALL)
    assert "no chat template" in inspect(pair, LoadSettings()).problems()[0]
    with_own = Pair("p", "P", SMALL, chat_template="x")
    assert inspect(with_own, LoadSettings()).chat_template == "models.yaml"


def test_a_web_page_under_a_models_name_is_refused_before_it_is_fetched(hub: HubState) -> None:
    hub.repos["maker/small-GGUF"].files["small-Q8_0.gguf"] = b"<!doctype html>" + bytes(30_000_000)
    with pytest.raises(ModelFileError, match=r"maker/small-GGUF small-Q8_0.gguf: is not a GGUF file"):
        pairs.resolve(PAIR, silent)
    assert hub.sent_bytes < 5_000_000


def test_a_server_without_ranges_is_fetched_from_all_the_same(hub: HubState) -> None:
    hub.no_ranges = True
    assert pairs.resolve(PAIR, silent).draft is not None


def test_a_missing_file_is_told_with_near_names(hub: HubState) -> None:
    with pytest.raises(HubError, match=r"did you mean small-Q8_0\.gguf"):
        inspect(Pair("p", "P", BIG, HubFile("maker/small-GGUF", "small-Q4_0.gguf")), LoadSettings())


def test_a_file_that_two_pairs_use_stays_when_one_is_removed(hub: HubState) -> None:
    other = Pair("other", "Other", HubFile("maker/big-GGUF", "big-Q8_0.gguf"), SMALL)
    for pair in (PAIR, other):
        pairs.resolve(pair, silent)
    gone = pairs.removable(PAIR, [PAIR, other])
    assert [path.name for path in gone] == ["big-Q4_K_M.gguf"]
    size = gone[0].stat().st_size
    assert remove(gone) == size
    assert pairs.on_disk(PAIR) is None
    assert pairs.on_disk(other) is not None
    assert pairs.removable(other, [other]) == pairs.downloaded(other)


def test_models_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    names = ["a.gguf", "mmproj-a.gguf", "sub/b-00001-of-00002.gguf", "sub/b-00002-of-00002.gguf", "c.txt"]
    for name in names:
        (tmp_path / name).write_bytes(b"GGUF")
    assert pairs.in_folder(tmp_path) == [tmp_path / "a.gguf", tmp_path / "sub/b-00001-of-00002.gguf"]
    with pytest.raises(ModelFileError, match="is no folder"):
        pairs.in_folder(tmp_path / "none")
