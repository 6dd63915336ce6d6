"""Reference texts with real weights: faster drafts, the same text, and nothing of it in prompt or figures."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from asking import HANG_SECONDS, SEA, Judge, ask, assert_counts, request

from specui import cli
from specui.catalog import PairFiles
from specui.compare.race import start_race
from specui.compare.records import LaneSpec, RaceRequest
from specui.config import MAX_REFERENCE_BYTES, DraftingSettings, SpeculationMode, StepSettings
from specui.engine.llama import Model
from specui.engine.lookup import Reference
from specui.generation import Progress
from specui.reference_index import PART_CHARACTERS, ReferenceIndex
from specui.runtime import Runtime

pytestmark = pytest.mark.slow
TOKENS = 40


@pytest.fixture(scope="module")
def plain(runtime: Runtime) -> Progress:
    """What the model writes; as a reference the best there can be."""
    return ask(runtime, SEA, "none", TOKENS)


@pytest.fixture(scope="module")
def judge(runtime: Runtime) -> Iterator[Judge]:
    pair = runtime._pair
    assert pair is not None
    judge = Judge(pair.model)
    yield judge
    judge.close()


def test_drafts_are_copied_from_a_text_that_the_prompt_lacks(runtime: Runtime, plain: Progress, judge: Judge) -> None:
    asked = request(SEA, "prompt-lookup", TOKENS)
    without = runtime.start(asked).result()
    given = runtime.start(replace(asked, references=("Something else.", plain.text))).result()
    judge.assert_same(given, plain)
    assert_counts(given)
    assert given.prompt_token_ids == plain.prompt_token_ids, "the model never sees it"
    assert given.stats.num_accepted_tokens > without.stats.num_accepted_tokens + TOKENS // 3
    again = runtime.start(asked).result()
    assert again.stats.num_accepted_tokens <= given.stats.num_accepted_tokens - TOKENS // 3, "it is for one answer"


def test_the_same_texts_are_indexed_once(runtime: Runtime, plain: Progress, monkeypatch: pytest.MonkeyPatch) -> None:
    split: list[str] = []
    tokenize = Model.tokenize

    def noted(self: Model, text: str, add_special: bool, parse_special: bool) -> list[int]:
        split.append(text)
        return tokenize(self, text, add_special, parse_special)

    monkeypatch.setattr(Model, "tokenize", noted)
    for texts in (("one " * 9,), ("one " * 9,), (), ("one " * 9,), ("two",), ("one " * 9,)):
        runtime.start(replace(request(SEA, "prompt-lookup", 2), references=texts)).result()
    assert [text for text in split if "one" in text or text == "two"] == ["one " * 9, "two", "one " * 9]


def test_another_pair_splits_the_texts_anew(bundled_pair: PairFiles, runtime: Runtime) -> None:
    pair = runtime._pair
    assert pair is not None
    index = pair.references
    known = index.of(("text",), lambda: False)
    runtime.load(bundled_pair)
    assert runtime._pair is not None
    assert runtime._pair.references is not index
    assert index.of(("text",), lambda: False) is known


def test_what_indexing_takes_is_in_no_figure(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(self: ReferenceIndex, texts: object, cancelled: object) -> Reference:
        time.sleep(1.5)
        return Reference([[1, 2, 3]])

    monkeypatch.setattr(ReferenceIndex, "of", slow)
    before = time.monotonic()
    stats = ask(runtime, SEA, "prompt-lookup", 4).stats
    whole_seconds, first_seconds = time.monotonic() - before, stats.time_to_first_token_seconds
    assert first_seconds is not None
    assert first_seconds + stats.decode_seconds < whole_seconds - 1.5


def test_a_text_is_split_as_within_another_and_lines_stay_whole(runtime: Runtime) -> None:
    pair = runtime._pair
    assert pair is not None
    text = "".join(f"line {number} of a long text <|im_end|>\n" for number in range(3000))
    assert len(text) > 5 * PART_CHARACTERS
    index = ReferenceIndex(pair.model)
    reference = index.of((text,), lambda: False)
    assert reference is not None
    whole = pair.model.tokenize(text, add_special=False, parse_special=False)
    assert len(reference) == len(whole)
    assert index.of((), lambda: False) is None
    dense = index.of(("x" * 3 * PART_CHARACTERS,), lambda: False)
    assert dense is not None and len(dense) > 100, "a text may be one line"


def test_cancelling_while_a_long_text_is_split(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Event()
    tokenize = Model.tokenize

    def slow(self: Model, text: str, add_special: bool, parse_special: bool) -> list[int]:
        if text.startswith("long"):
            started.set()
            time.sleep(0.1)
        return tokenize(self, text, add_special, parse_special)

    monkeypatch.setattr(Model, "tokenize", slow)
    asked = replace(request(SEA, "prompt-lookup", 8), references=("long\n" * (MAX_REFERENCE_BYTES // 5),))
    generation = runtime.start(asked)
    assert started.wait(HANG_SECONDS)
    cancelled = time.monotonic()
    generation.cancel()
    got = generation.result()
    assert time.monotonic() - cancelled < 3
    assert got.finish_reason == "cancelled"
    assert len(got.token_ids) <= 1, "one may come free with a prompt that is cached"
    monkeypatch.setattr(Model, "tokenize", tokenize)
    rest = runtime.start(asked).result()
    assert rest.finish_reason == "length"
    pair = runtime._pair
    assert pair is not None
    reference = pair.references.of(asked.references, lambda: False)
    assert reference is not None and len(reference) >= 2 * MAX_REFERENCE_BYTES // 5, "no half of it was kept"


def test_every_lane_of_a_race_may_copy(runtime: Runtime, bundled_pair: PairFiles, plain: Progress) -> None:
    modes: tuple[SpeculationMode, ...] = ("none", "prompt-lookup")
    lanes = tuple(LaneSpec(mode, StepSettings(drafting=DraftingSettings(mode)), bundled_pair) for mode in modes)
    asked = replace(request(SEA, "none", TOKENS), references=(plain.text,))
    result = start_race(runtime, RaceRequest(asked, lanes, repeats=1)).result().result
    assert result is not None
    assert result.lanes[1].runs[0].stats.num_accepted_tokens > TOKENS // 2


@pytest.mark.parametrize("command", ["generate", "compare"])
def test_the_command_line_takes_files(
    capsys: pytest.CaptureFixture[str], bundled_pair: PairFiles, plain: Progress, tmp_path: Path, command: str
) -> None:
    (tmp_path / "a.txt").write_text("Something else.", encoding="utf-8")
    (tmp_path / "b.txt").write_text(plain.text, encoding="utf-8-sig")
    flags = [command, "--target", str(bundled_pair.target), "--prompt", SEA, "--max-tokens", str(TOKENS), "--json"]
    flags += ["--repeats", "1", "--modes", "none,prompt-lookup"] if command == "compare" else []
    flags += ["--speculation", "prompt-lookup"] if command == "generate" else []
    accepted = []
    for extra in ([], ["--reference", str(tmp_path / "a.txt"), "--reference", str(tmp_path / "b.txt")]):
        assert cli.main([*flags, *extra]) == 0
        told = json.loads(capsys.readouterr().out)
        stats = told["stats"] if command == "generate" else told["modes"]["prompt-lookup"]["repeats"][0]
        accepted.append(stats["num_accepted_tokens"])
    assert accepted[1] > accepted[0] + TOKENS // 3


@pytest.mark.parametrize("command", ["generate", "compare"])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, "a file that can be read (No such file or directory)"),
        (b"\x89PNG\0", "a text file in UTF-8"),
        (b"", "a file with something in it"),
        (b"y" * MAX_REFERENCE_BYTES, "at most 2 MB in all files together"),
    ],
    ids=["missing", "binary", "empty", "too large"],
)
def test_a_file_that_cannot_be_used_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, data: bytes | None, expected: str
) -> None:
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_text("Good.", encoding="utf-8")
    if data is not None:
        bad.write_bytes(data)
    assert cli.main([command, "--prompt", "Hi", "--reference", str(good), "--reference", str(bad)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"error: --reference: '{bad}' cannot be used; expected {expected}\n"


def test_a_folder_is_no_reference(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["generate", "--prompt", "Hi", "--reference", str(tmp_path)]) == 2
    assert "a file that can be read (Is a directory)" in capsys.readouterr().err
