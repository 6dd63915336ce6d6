"""`python -m specui models …` against a Hub on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_models import hub_of, model, tokens
from hub_server import TOKEN, HubRepo, HubState
from page_driver import until

from specui import headers
from specui.cli import main
from specui.hub.cache import PARTIAL

SOURCE_ROOT = Path(__file__).resolve().parent.parent
WORDS = tokens(1_000)
CATALOGUE = """\
pairs:
- name: good
  title: A <b>good</b> pair
  target: {repo: maker/big-GGUF, file: "*Q4_K_M.gguf"}
  draft: {repo: maker/small-GGUF, file: small.gguf}
  tags: [x]
- name: other
  target: {repo: maker/big-GGUF, file: big-Q4_K_M.gguf}
  draft: {repo: maker/other-GGUF, file: other.gguf}
- {name: alone, target: {repo: maker/big-GGUF, file: big-Q4_K_M.gguf}}
- {name: nowhere, target: {repo: maker/none, file: a.gguf}}
- {name: terms, target: {repo: maker/gated, file: a.gguf}}
- {name: nofile, target: {repo: maker/big-GGUF, file: big-Q5_K_M.gguf}}
"""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubState]:
    monkeypatch.setattr(headers, "_kept", headers._Kept())
    catalogue = tmp_path / "mine.yaml"
    catalogue.write_text(CATALOGUE, encoding="utf-8")
    monkeypatch.setenv("SPECUI_MODELS", str(catalogue))
    repos = {
        "maker/big-GGUF": HubRepo({"big-Q4_K_M.gguf": model(WORDS, values=4_000_000)}),
        "maker/small-GGUF": HubRepo({"small.gguf": model(WORDS, values=1_000_000)}),
        "maker/other-GGUF": HubRepo({"other.gguf": model(tokens(1_000, {7: "«"}))}),
        "maker/gated": HubRepo({"a.gguf": model(WORDS)}, gated=True),
    }
    with hub_of(repos, tmp_path / "hf" / "hub", monkeypatch) as state:
        yield state


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["models", *arguments])
    captured = capsys.readouterr()
    assert TOKEN not in captured.out + captured.err
    return code, captured.out, captured.err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0
    return json.loads(out)


def test_list_shows_what_is_on_disk_without_a_request(hub: HubState, capsys: pytest.CaptureFixture[str]) -> None:
    found = {pair["name"]: pair for pair in run_json(capsys, "list")["pairs"]}
    assert found["good"]["target"] == "maker/big-GGUF *Q4_K_M.gguf"
    assert (found["good"]["on_disk"], found["good"]["bytes_on_disk"], found["alone"]["draft"]) == (False, 0, None)
    assert hub.requests == []
    assert run(capsys, "download", "good")[0] == 0
    hub.requests.clear()
    again = {pair["name"]: pair for pair in run_json(capsys, "list")["pairs"]}
    sizes = [
        len(hub.repos[f"maker/{name}-GGUF"].files[file])
        for name, file in (("big", "big-Q4_K_M.gguf"), ("small", "small.gguf"))
    ]
    assert (again["good"]["on_disk"], again["good"]["bytes_on_disk"]) == (True, sum(sizes))
    assert again["alone"]["bytes_on_disk"] == sizes[0]
    lines = run(capsys, "list")[1].splitlines()
    assert any(line.split()[:3] == ["good", f"{sum(sizes) / 1e6:.0f}", "MB"] for line in lines)
    assert hub.requests == []


def test_check_says_what_a_pair_is(hub: HubState, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check", "good")
    assert code == 0
    assert "maker/big-GGUF *Q4_K_M.gguf (not here yet)" in out
    assert "llama · 4 M parameters · F32 · 16 MB · context 8,192" in out
    assert "vocabulary fits: 1,000 tokens in both" in out
    facts = run_json(capsys, "check", "good", "--ctx-size", "2048")
    assert (facts["compatible"], facts["problems"]) == (True, [])
    assert facts["target"]["size_bytes"] > facts["draft"]["size_bytes"]


def test_check_of_a_draft_of_another_vocabulary_is_exit_code_1(
    hub: HubState, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "check", "other")
    assert code == 1
    assert "! draft off: token 7 is '«' and the target's is 'word7'" in out
    assert run(capsys, "download", "other")[2].startswith("Looking at")
    assert run(capsys, "path", "alone")[0] == 1


def test_download_then_path(hub: HubState, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "path", "good")
    assert (code, out) == (1, "")
    assert err == "error: good: is not on disk; run: python -m specui models download good\n"
    code, out, err = run(capsys, "download", "good")
    assert code == 0
    paths = [Path(line) for line in out.splitlines()]
    assert [path.name for path in paths] == ["big-Q4_K_M.gguf", "small.gguf"]
    assert all(path.is_file() for path in paths)
    assert "% of 20 MB" in err
    hub.requests.clear()
    assert run(capsys, "download", "good")[1] == out
    assert run_json(capsys, "path", "good") == {"name": "good", "target": str(paths[0]), "draft": str(paths[1])}
    assert run_json(capsys, "path", "alone")["draft"] is None
    assert hub.requests == []


def test_failures_are_one_line_each_and_all_different(
    hub: HubState, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    said = {
        name: run(capsys, action, name) for name in ("nowhere", "terms", "nofile") for action in ("check", "download")
    }
    assert {code for code, _, _ in said.values()} == {1}
    lines = {name: err.splitlines()[-1] for name, (_, _, err) in said.items()}
    assert "error: maker/none a.gguf: no such repository" in lines["nowhere"]
    assert "its terms must be accepted first" in lines["terms"]
    assert "did you mean big-Q4_K_M.gguf?" in lines["nofile"]
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "does not accept the token (401)" in run(capsys, "download", "alone")[2]


def test_unknown_pairs_and_actions(hub: HubState, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "check", "god")[2].startswith("error: Unknown pair 'god'; the catalogue has: good")
    with pytest.raises(SystemExit) as caught:
        main(["models", "fetch"])
    assert caught.value.code == 2


def heed_interrupts() -> None:
    """What a shell starts in the background ignores the signal, and its children with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_download_interrupted_from_the_keyboard_goes_on_the_next_time(hub: HubState, tmp_path: Path) -> None:
    hub.stall_after = 3_000_000
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    variables |= {"HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": hub.endpoint, "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-m", "specui", "models", "download", "alone"]
    streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    streams |= {"preexec_fn": heed_interrupts}
    process = subprocess.Popen(command, env=variables, cwd=SOURCE_ROOT, **streams)
    assert hub.stalled.wait(20)
    arrived = (tmp_path / "hf").rglob
    assert until(lambda: any(path.stat().st_size for path in arrived(f"*{PARTIAL}")), 20), "nothing was kept to resume"
    hub.seconds_per_megabyte = 0.5  # or a busy machine has fetched the rest before it sees the signal
    process.send_signal(2)
    hub.resume.set()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.endswith("stopped\n")
    assert "Traceback" not in err
    hub.stall_after, hub.seconds_per_megabyte = None, 0.0
    done = subprocess.run(command, env=variables, cwd=SOURCE_ROOT, timeout=60, check=False, **streams)
    assert done.returncode == 0
    assert "Resuming big-Q4_K_M.gguf at " in done.stderr
