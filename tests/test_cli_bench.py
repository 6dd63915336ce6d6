"""`python -m specui bench`: exit codes, files, going on after an interruption, and a short run on the bundled pair."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fake_runtime import BUNDLED, FakeRuntime

from specui import cli
from specui.catalog import PairFiles
from specui.commands import bench

SUITE = """\
prompts:
  - name: foxes
    kind: repeat
    split: held-out
    max_tokens: 400
    messages:
      - role: user
        content: "Write this sentence five times: a red fox crossed the road."
  - name: sea
    kind: story
    split: held-out
    max_tokens: 400
    messages:
      - role: user
        content: Write three sentences about the sea.
  - name: spare
    kind: story
    split: tune
    max_tokens: 400
    messages:
      - role: user
        content: Write about a hill.
"""
FILES = {"runs.jsonl", "summary.json", "table.md", "runs.csv"}


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        try:
            code = cli.main(["bench", *(str(each) for each in arguments)])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Ran(code, *capsys.readouterr())

    return call


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    suite = tmp_path / "own.yaml"
    suite.write_text(SUITE)
    return ["--suite", str(suite), "--out", str(tmp_path / "out"), "--repeats", "1"]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeRuntime]]:
    """Let the command run on a fake runtime; those it made are in the list."""
    made: list[FakeRuntime] = []

    def make(settings: object) -> FakeRuntime:
        made.append(FakeRuntime(speed=10_000.0))
        return made[-1]

    monkeypatch.setattr(bench, "Runtime", make)
    monkeypatch.setattr(bench, "find_files", lambda arguments: BUNDLED)
    yield made
    for runtime in made:
        runtime.close()


@pytest.mark.parametrize(
    ("extra", "word"),
    [
        (["--speculation", "auto"], "--modes"),
        (["--modes", "none,quick"], "prompt-lookup"),
        (["--modes", "draft-model:0"], "max_draft_tokens"),
        (["--kinds", "poems"], "repeat, story"),
        (["--split", "train"], "held-out"),
        (["--limit", "0"], "--limit"),
        (["--repeats", "0"], "--repeats"),
        (["--max-tokens", "0"], "max_tokens"),
        (["--suite", "gone.yaml"], "(builtin)"),
        (["--modes", "draft-model:" + "9" * 5000], "draft-model:8"),
        (["--out", ""], "--out"),
    ],
)
def test_bad_usage_is_code_2_and_one_line_before_anything_is_loaded(
    extra: list[str], word: str, run: Any, flags: list[str], fake: list[FakeRuntime], tmp_path: Path
) -> None:
    ran = run(*flags, *extra)
    assert (ran.code, ran.out, fake) == (2, "", [])
    assert len(ran.err.strip().splitlines()) == 1 and word in ran.err
    assert not (tmp_path / "out").exists()


def test_a_folder_for_the_records_must_be_named(run: Any) -> None:
    ran = run("--suite", "builtin")
    assert ran.code == 2 and "--out" in ran.err


def test_a_broken_suite_is_code_1_with_file_line_and_key(run: Any, flags: list[str], fake: list[FakeRuntime]) -> None:
    path = Path(flags[1])
    path.write_text(SUITE.replace("split: tune", "split: dev"))
    ran = run(*flags)
    assert (ran.code, ran.out) == (1, "")
    assert "own.yaml, line 18: split" in ran.err


def test_an_interrupted_benchmark_shows_what_it_has_and_goes_on(
    run: Any, flags: list[str], fake: list[FakeRuntime], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []

    def interrupt(text: str) -> None:
        said.append(text)
        if text.startswith("[2/4]") and len(said) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(bench, "say", interrupt)
    ran = run(*flags, "--modes", "none,prompt-lookup", "--max-tokens", 8)
    assert ran.code == 130
    assert "2 runs" in ran.out and "goes on from here (2 of 4 runs are done)" in said[-1]
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    again = run(*flags, "--modes", "none,prompt-lookup", "--max-tokens", 8)
    assert again.code == 0
    assert "4 runs, 2 of them done before" in said[4]
    assert "4 runs" in again.out
    third = run(*flags, "--modes", "none,prompt-lookup", "--max-tokens", 9)
    assert (third.code, third.out) == (2, "")
    assert "max_tokens was 8 and is 9" in third.err
    fresh = run(*flags, "--modes", "none,prompt-lookup", "--max-tokens", 9, "--restart")
    assert fresh.code == 0


def test_failed_runs_are_code_1_and_named(run: Any, flags: list[str], fake: list[FakeRuntime]) -> None:
    path = Path(flags[1])
    path.write_text(SUITE.replace("Write three sentences", "fail with three sentences"))
    ran = run(*flags, "--modes", "none")
    assert ran.code == 1
    assert "1 runs failed; the first, story/sea with none: " in ran.err
    assert "| repeat | none | 1 |" in ran.out


@pytest.mark.slow
def test_two_prompts_and_two_modes_on_the_bundled_pair(
    run: Any, flags: list[str], bundled_pair: PairFiles, tmp_path: Path
) -> None:
    pair = ["--target", bundled_pair.target, "--draft", bundled_pair.draft, "--ctx-size", 256, "--threads", 1]
    options = ["--modes", "none,prompt-lookup", "--max-tokens", 24, "--json"]
    ran = run(*flags, *pair, *options)
    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) == 1
    summary = json.loads(ran.out)
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    assert summary == json.loads((tmp_path / "out" / "summary.json").read_text())
    assert set(summary["modes"]) == {"none", "prompt-lookup"}
    lookup = summary["modes"]["prompt-lookup"]
    assert set(lookup) == {"repeat", "story", "all"}
    assert lookup["all"]["identical_to_none"] == {"same": 2, "compared": 2}
    assert lookup["all"]["speedup_vs_none"]["pairs"] == 2
    assert lookup["repeat"]["acceptance_rate"] is None or lookup["repeat"]["acceptance_rate"] > 0
    assert summary["model"]["target"]["bytes"] == bundled_pair.target.stat().st_size

    lines = [json.loads(line) for line in (tmp_path / "out" / "runs.jsonl").read_text().splitlines()]
    runs = lines[1:]
    assert all(1 < each["stats"]["completion_tokens"] <= 24 for each in runs)
    cached: dict[str, set[int]] = {}
    for each in runs:
        cached.setdefault(each["prompt"], set()).add(each["stats"]["cached_prompt_tokens"])
    assert all(len(counts) == 1 for counts in cached.values()), "all modes of a prompt begin from the same memory"
    again = run(*flags, *pair, *options)
    assert json.loads(again.out) == summary, "nothing is left to do"


@pytest.mark.slow
def test_a_kept_prompt_is_in_the_cache_of_every_run(
    run: Any, flags: list[str], bundled_pair: PairFiles, tmp_path: Path
) -> None:
    pair = ["--target", bundled_pair.target, "--draft", bundled_pair.draft, "--ctx-size", 256, "--threads", 1]
    options = ["--modes", "none,draft-model", "--max-tokens", 8, "--json"]
    ran = run(*flags, *pair, *options, "--keep-prompt")
    assert ran.code == 0, ran.err
    lines = [json.loads(line) for line in (tmp_path / "out" / "runs.jsonl").read_text().splitlines()]
    assert lines[0]["settings"]["keep_prompt"] is True
    for each in lines[1:]:
        assert each["stats"]["cached_prompt_tokens"] == each["stats"]["prompt_tokens"], each["mode"]
    summary = json.loads(ran.out)
    assert summary["modes"]["draft-model"]["all"]["identical_to_none"] == {"same": 2, "compared": 2}
    assert summary["modes"]["none"]["all"]["time_to_first_token_seconds"] is None
    refused = run(*flags, *pair, *options)
    assert (refused.code, refused.out) == (2, "")
    assert "keep_prompt was True and is False" in refused.err
