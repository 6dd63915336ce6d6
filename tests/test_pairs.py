"""From pairs and paths to files: what is found, what is made, and what is said about a file that cannot be one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from specui import bundled, hub, inspection, pairs
from specui.catalog import BundledFile, Catalog, HubFile, LocalFile, OnProgress, Pair
from specui.errors import HubError, ModelFileError

HEAD = b"GGUF\x03\x00\x00\x00"


def silent(_stage: str, _done: int, _total: int) -> None:
    """Take progress and do nothing."""


@pytest.fixture
def model(tmp_path: Path) -> Callable[[str], Path]:
    def write(name: str, data: bytes = HEAD + b"rest") -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


class FakeHub:
    """Stands for specui.hub: knows some files, fetches on request, and keeps what it was asked."""

    def __init__(self, files: dict[HubFile, Path]) -> None:
        self.files = files
        self.fetched: list[HubFile] = []

    def cached(self, file: HubFile) -> Path | None:
        return self.files[file] if file in self.fetched else None

    def download(self, files: Sequence[HubFile], on_progress: OnProgress, cancelled: Callable[[], bool]) -> list[Path]:
        if cancelled():
            raise HubError("a/b", "c", "the download was stopped")
        self.fetched += files
        on_progress("Downloading", 1, 1)
        return [self.files[file] for file in files]


@pytest.fixture
def fake_hub(model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub({HubFile("a/t", "t.gguf"): model("t.gguf"), HubFile("a/d", "d.gguf"): model("d.gguf")})
    monkeypatch.setattr(hub, "cached", fake.cached)
    monkeypatch.setattr(hub, "download", fake.download)
    monkeypatch.setattr(inspection, "refuse_other_vocabulary", lambda _pair: None)  # test_inspection has the real one
    return fake


TARGET, DRAFT = HubFile("a/t", "t.gguf"), HubFile("a/d", "d.gguf")


def test_a_hub_pair_is_fetched_then_found(fake_hub: FakeHub) -> None:
    pair = Pair("p", "P", TARGET, DRAFT, 99, "x", sampling={"top_k": 1}, drafting={"draft_p_min": 0.5})
    assert pairs.on_disk(pair) is None
    seen: list[str] = []
    files = pairs.resolve(pair, lambda stage, _done, _total: seen.append(stage))
    assert (files.target, files.draft) == (fake_hub.files[TARGET], fake_hub.files[DRAFT])
    assert (files.name, files.title, files.ctx_size, files.chat_template) == ("p", "P", 99, "x")
    assert (files.sampling, files.drafting) == (pair.sampling, pair.drafting)
    assert seen == ["Looking at P", "Downloading"]
    assert pairs.on_disk(pair) == files


def test_a_pair_with_half_its_files_is_not_on_disk(fake_hub: FakeHub) -> None:
    fake_hub.fetched.append(TARGET)
    assert pairs.on_disk(Pair("p", "P", TARGET, DRAFT)) is None
    assert pairs.on_disk(Pair("p", "P", TARGET)) is not None


def test_a_pair_without_a_draft_has_none(fake_hub: FakeHub) -> None:
    files = pairs.resolve(Pair("p", "P", TARGET), silent)
    assert files.draft is None
    assert fake_hub.fetched == [TARGET]


def test_a_missing_path_is_said_before_anything_is_fetched(fake_hub: FakeHub, tmp_path: Path) -> None:
    pair = Pair("p", "P", TARGET, LocalFile(tmp_path / "none.gguf"))
    with pytest.raises(ModelFileError, match=r"none\.gguf: no such file"):
        pairs.resolve(pair, silent)
    assert fake_hub.fetched == []
    assert pairs.on_disk(pair) is None


def test_cancelled_reaches_the_download(fake_hub: FakeHub) -> None:
    with pytest.raises(HubError, match="was stopped"):
        pairs.resolve(Pair("p", "P", TARGET), silent, lambda: True)
    assert fake_hub.fetched == []


def test_the_bundled_pair(model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    made, packaged = model("f32.gguf"), model("q4.gguf")
    there: list[Path] = []
    monkeypatch.setattr(bundled, "draft", lambda: packaged)
    monkeypatch.setattr(bundled, "target_on_disk", lambda: there[0] if there else None)
    monkeypatch.setattr(bundled, "target", lambda _progress: there.append(made))
    pair = Catalog.load().pair("bundled")
    assert pairs.on_disk(pair) is None
    files = pairs.resolve(pair, silent)
    assert (files.name, files.target, files.draft) == ("bundled", made, packaged)
    assert pairs.on_disk(pair) == files


def test_bundled_weights_serve_as_draft_of_another_target(
    fake_hub: FakeHub, model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = model("q4.gguf")
    monkeypatch.setattr(bundled, "draft", lambda: packaged)
    monkeypatch.setattr(bundled, "target", lambda _progress: pytest.fail("nothing is to be made"))
    assert pairs.resolve(Pair("p", "P", TARGET, BundledFile()), silent).draft == packaged


def test_paths_make_a_pair(model: Callable[[str], Path]) -> None:
    target, draft = model("big.gguf"), model("small.gguf")
    files = pairs.from_paths(target, draft)
    assert (files.target, files.draft, files.name, files.title) == (target, draft, "big", "big with small")
    assert pairs.from_paths(target).draft is None


def test_a_path_may_begin_at_home(
    tmp_path: Path, model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model("m.gguf")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert pairs.from_paths(Path("~/m.gguf")).target == tmp_path / "m.gguf"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty; download it again"),
        (b"GGUF", "is not a GGUF file"),
        (b"<!doctype html>", "is not a GGUF file"),
        (b"lmgg" + bytes(20), "GGML format of 2023"),
        (b"tjgg" + bytes(20), "GGML format of 2023"),
        (b"GGUF\x01\x00\x00\x00", "has GGUF version 1"),
        (b"GGUF\x00\x00\x00\x03", "big-endian"),
    ],
)
def test_a_file_that_cannot_be_a_gguf_is_named(model: Callable[..., Path], data: bytes, said: str) -> None:
    good, bad = model("good.gguf"), model("bad.gguf", data)
    for target, draft in ((bad, None), (bad, good), (good, bad)):
        with pytest.raises(ModelFileError) as caught:
            pairs.from_paths(target, draft)
        assert str(caught.value).startswith(f"{bad}: ")
        assert said in str(caught.value)
        assert caught.value.path == bad


def test_a_missing_file_a_folder_and_a_closed_file_are_named(tmp_path: Path, model: Callable[[str], Path]) -> None:
    with pytest.raises(ModelFileError, match="no such file; check the path"):
        pairs.from_paths(tmp_path / "none.gguf")
    with pytest.raises(ModelFileError, match="is a folder"):
        pairs.from_paths(tmp_path)
    with pytest.raises(ModelFileError, match="cannot be read"):
        pairs.from_paths(model("file.gguf") / "inside.gguf")
    if os.name == "posix" and os.geteuid() != 0:
        closed = model("closed.gguf")
        closed.chmod(0)
        with pytest.raises(ModelFileError, match="check its permissions"):
            pairs.from_paths(closed)
