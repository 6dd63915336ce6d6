"""Races on the bundled pair: equal texts, equal starts, shared weights, cancelling, failures, and the command line."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from asking import SEA

from specui import cli
from specui.catalog import PairFiles
from specui.compare import drawing
from specui.compare.handle import Race
from specui.compare.race import start_race
from specui.compare.records import LaneSpec, RaceProgress, RaceRequest, RaceResult, parse_modes
from specui.config import DraftingSettings, Limits, LoadSettings, SamplingSettings, StepSettings
from specui.engine.difference import first_difference
from specui.engine.llama import Context
from specui.errors import BlankPromptError, DecodeError, SpecUIError
from specui.generation import GenerationRequest, Message
from specui.lane import Lane
from specui.runtime import Runtime

pytestmark = pytest.mark.slow

COPY = "Say this three times: red green blue yellow black white."


@pytest.fixture(scope="module")
def one_thread() -> Iterator[Runtime]:
    """A runtime with nothing loaded; one thread, so that a busy machine does not make its passes wait for another."""
    runtime = Runtime(LoadSettings(ctx_size=512, threads=1))
    yield runtime
    runtime.close()


def lanes(text: str, files: PairFiles, sampling: SamplingSettings | None = None) -> tuple[LaneSpec, ...]:
    modes = parse_modes(text, DraftingSettings())
    settings = StepSettings(sampling or SamplingSettings())
    return tuple(LaneSpec(label, replace(settings, drafting=each), files) for label, each in modes.items())


def ask(prompt: str | Sequence[Message], max_tokens: int = 24) -> GenerationRequest:
    messages = (Message("user", prompt),) if isinstance(prompt, str) else tuple(prompt)
    return GenerationRequest(messages=messages, limits=Limits(max_tokens))


def run(runtime: Runtime, request: RaceRequest) -> RaceResult:
    result = start_race(runtime, request).result().result
    assert result is not None
    assert len(runtime.shelf) == 0, "every lane let go of its weights"
    return result


def wait_for(race: Race, phase: str) -> RaceProgress:
    progress = race.progress
    while progress.phase != phase and not progress.over:
        progress = race.wait(progress.version)
    return progress


def test_every_mode_writes_the_same_and_starts_equal(one_thread: Runtime, bundled_pair: PairFiles) -> None:
    request = RaceRequest(ask(COPY), lanes("none,prompt-lookup,draft-model:4,auto", bundled_pair), repeats=2)
    result = run(one_thread, request)
    assert [lane.spec.label for lane in result.lanes] == ["none", "prompt-lookup", "draft-model:4", "auto"]
    assert result.orders == ((0, 1, 2, 3), (1, 2, 3, 0))
    for lane in result.lanes:
        assert lane.identical or (lane.difference is not None and lane.difference.near_tie)
        assert lane.speedup is not None and len(lane.speedup.ratios) == len(lane.runs) == 2
        for each in lane.runs:
            assert each.stats.cached_prompt_tokens == 0
            assert each.stats.speculation_used == lane.spec.settings.drafting.speculation
            assert each.stats.completion_tokens == len(each.token_ids) > 10
            assert each.phase == "done"
    assert result.lanes[2].runs[0].stats.num_accepted_tokens > 0
    assert result.lanes[2].runs[0].stats.max_draft_tokens == 4
    assert result.lanes[0].speedup is not None
    assert result.lanes[0].speedup.median == 1


def test_a_conversation_is_in_every_cache_alike(one_thread: Runtime, bundled_pair: PairFiles) -> None:
    turns = [Message("user", "My cat is called Tom."), Message("assistant", "Hello Tom!"), Message("user", SEA)]
    request = RaceRequest(ask(turns, 6), lanes("none,draft-model", bundled_pair), repeats=2, cache="conversation")
    runs = [each for lane in run(one_thread, request).lanes for each in lane.runs]
    cached = {each.stats.cached_prompt_tokens for each in runs}
    assert len(cached) == 1
    assert 20 < cached.pop() < runs[0].stats.prompt_tokens - 4


def test_a_seed_gives_the_same_sample_in_each_repeat(one_thread: Runtime, bundled_pair: PairFiles) -> None:
    for sampling in (SamplingSettings(temperature=0.8, seed=3), SamplingSettings(temperature=0.8)):
        request = RaceRequest(ask(SEA, 12), lanes("none,prompt-lookup", bundled_pair, sampling), repeats=2)
        result = run(one_thread, request)
        for lane in result.lanes:
            assert lane.runs[0].token_ids == lane.runs[1].token_ids
        seeds = {each.seed for lane in result.lanes for each in lane.runs}
        assert len(seeds) == 1
        assert sampling.seed in (None, *seeds)


def test_lanes_may_differ_in_target_draft_and_temperature(one_thread: Runtime, bundled_pair: PairFiles) -> None:
    small = PairFiles("small", "small", bundled_pair.draft or bundled_pair.target, bundled_pair.draft)
    plain, drafted = lanes("none,draft-model", small)
    big, _ = lanes("none,auto", bundled_pair)
    warm = replace(big, label="warm", settings=StepSettings(SamplingSettings(temperature=1.5, seed=1)))
    others = (big, replace(plain, label="small"), replace(drafted, label="itself"), warm)
    result = run(one_thread, RaceRequest(ask(SEA, 12), others, repeats=1))
    itself = result.lanes[2].runs[0].stats
    assert itself.acceptance_rate is not None and itself.acceptance_rate > 0.8
    assert [lane.difference is None for lane in result.lanes] == [True, True, True, False]


def test_a_race_waits_for_its_turn_and_leaves_when_cancelled(bundled_pair: PairFiles) -> None:
    runtime = Runtime(LoadSettings(threads=1))
    try:
        runtime.load(bundled_pair)
        check_turns(runtime, bundled_pair)
    finally:
        runtime.close()


def check_turns(runtime: Runtime, bundled_pair: PairFiles) -> None:
    held = len(runtime.shelf)
    answer = runtime.start(replace(ask(SEA, 2000), settings=StepSettings()))
    while answer.progress.phase == "queued":
        answer.wait(answer.progress.version)
    request = RaceRequest(ask(SEA, 2000), lanes("none,draft-model", bundled_pair), repeats=3)
    waiting, leaving = start_race(runtime, request), start_race(runtime, request)
    assert (waiting.progress.place, leaving.progress.place) == (1, 2)
    leaving.cancel()
    assert leaving.result().cancelled
    answer.cancel()
    seen = wait_for(waiting, "racing")
    assert (seen.phase, seen.place, seen.repeat, len(seen.lanes)) == ("racing", 0, 1, 2)
    assert len(runtime.shelf) == 2
    started = time.monotonic()
    waiting.cancel()
    assert waiting.result().cancelled
    assert time.monotonic() - started < 1
    assert len(runtime.shelf) == held
    assert runtime.start(ask("Hi", 2)).result().token_ids


def test_snapshots_grow_while_the_race_runs(
    one_thread: Runtime, bundled_pair: PairFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "SHOW_SECONDS", 0.05)
    race = start_race(one_thread, RaceRequest(ask(SEA, 40), lanes("none,draft-model", bundled_pair), repeats=1))
    seen = [race.wait(-1)]
    while not seen[-1].over:
        seen.append(race.wait(seen[-1].version))
    assert all(before.version <= after.version for before, after in pairwise(seen))
    phases = list(dict.fromkeys(each.phase for each in seen))
    assert phases[-3:] in (["racing", "judging", "done"], ["warm-up", "racing", "done"])
    racing = [each for each in seen if each.phase == "racing"]
    assert len(racing) > 3
    for before, after in pairwise(racing):
        for old, new in zip(before.lanes, after.lanes, strict=True):
            assert new.text.startswith(old.text)
            assert "".join(piece.text for piece in new.pieces) == new.text
    finals = seen[-1].result
    assert finals is not None
    assert seen[-1].lanes == tuple(lane.runs[-1] for lane in finals.lanes)


def test_a_lane_that_fails_is_named_and_everything_is_freed(
    one_thread: Runtime, bundled_pair: PairFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain, looked = lanes("none,prompt-lookup", bundled_pair)
    missing = replace(looked, files=replace(bundled_pair, target=tmp_path / "gone.gguf"))
    race = start_race(one_thread, RaceRequest(ask(SEA), (plain, missing)))
    with pytest.raises(SpecUIError, match=r"lane prompt-lookup: .*gone\.gguf"):
        race.result()
    assert race.progress.failed_lane == "prompt-lookup"
    assert len(one_thread.shelf) == 0
    decode, calls = Context.decode, []

    def dying(self: Context, tokens: Sequence[int], rows: int) -> None:
        calls.append(self)
        if len(calls) > 60:
            raise DecodeError(self.model.path, -3)
        decode(self, tokens, rows)

    monkeypatch.setattr(Context, "decode", dying)
    race = start_race(one_thread, RaceRequest(ask(SEA, 100), (plain, looked)))
    with pytest.raises(SpecUIError, match="code -3"):
        race.result()
    assert race.progress.phase == "failed"
    assert race.progress.failed_lane in ("none", "prompt-lookup")
    assert isinstance(race.progress.error, DecodeError)
    assert len(one_thread.shelf) == 0
    monkeypatch.undo()
    assert run(one_thread, RaceRequest(ask(SEA, 4), (plain, looked), repeats=1)).lanes[1].identical


def test_a_blank_prompt_never_joins_the_line(one_thread: Runtime, bundled_pair: PairFiles) -> None:
    with pytest.raises(BlankPromptError):
        start_race(one_thread, RaceRequest(ask("  "), lanes("none,auto", bundled_pair)))


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], bundled_pair: PairFiles) -> Any:
    files = ["--target", bundled_pair.target, "--draft", bundled_pair.draft, "--ctx-size", 512, "--threads", 1]

    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        try:
            code = cli.main([str(each) for each in ("compare", *files, *arguments)])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Ran(code, *capsys.readouterr())

    return call


def test_json_of_the_command_line(command: Any, tmp_path: Path) -> None:
    export = tmp_path / "race.csv"
    flags = ["--modes", "none,draft-model:3,none", "--repeats", 1, "--max-tokens", 12, "--json", "--export", export]
    ran = command("--prompt", SEA, *flags)
    assert ran.code == 0
    assert len(ran.out.splitlines()) == 1, "one JSON object on stdout and nothing else"
    values = json.loads(ran.out)
    assert set(values["modes"]) == {"none", "draft-model:3", "none#2"}
    for mode in values["modes"].values():
        assert set(mode) == {"repeats", "speedup_vs_none", "identical_to_none", "first_difference"}
        assert mode["identical_to_none"] is (mode["first_difference"] is None)
    stats = values["modes"]["draft-model:3"]["repeats"][0]
    assert (stats["speculation"], stats["max_draft_tokens"], stats["completion_tokens"]) == ("draft-model", 3, 12)
    assert len(export.read_text(encoding="utf-8").splitlines()) == 4


def test_without_json_a_table_and_sentences(command: Any, tmp_path: Path) -> None:
    export = tmp_path / "race.json"
    flags = ["--modes", "none,prompt-lookup", "--repeats", 3, "--max-tokens", 6, "--swap-check", "--export", export]
    ran = command("--prompt", SEA, *flags)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["lane", "none", "prompt-lookup", "none#2"]
    assert lines[4].startswith("prompt lookup is ") and "3 runs); same text" in lines[4]
    assert lines[5].startswith("none#2 is ")
    assert [lane["label"] for lane in json.loads(export.read_text(encoding="utf-8"))["lanes"]][-1] == "none#2"


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--modes", "none"], "--modes"),
        (["--modes", "none,draft"], "--modes"),
        (["--modes", "none,auto", "--repeats", "0"], "repeats"),
        (["--modes", "none,auto", "--repeats", "x"], "--repeats"),
        (["--speculation", "auto"], "--modes"),
        (["--export", "race.txt"], ".csv"),
        (["--export", "nowhere/at/all/race.csv"], "folder"),
        (["--modes", "none,auto,prompt-lookup,draft-model", "--swap-check"], "4 lanes"),
    ],
)
def test_bad_usage_is_one_line(command: Any, flags: list[str], word: str) -> None:
    ran = command("--prompt", "Hi", *flags)
    assert (ran.code, ran.out) == (2, "")
    assert word in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_a_prompt_that_is_too_long_is_named(command: Any) -> None:
    ran = command("--raw", "--prompt", " a" * 600, "--modes", "none,auto")
    assert (ran.code, ran.out) == (1, "")
    assert "601" in ran.err and "512" in ran.err and "Traceback" not in ran.err


def test_a_forged_token_is_told_from_a_near_tie(one_thread: Runtime, bundled_pair: PairFiles) -> None:
    """Whatever stands in for a token of the answer, the gap at its place is the target's own there."""
    base = run(one_thread, RaceRequest(ask(COPY, 16), lanes("none,prompt-lookup", bundled_pair), repeats=1)).lanes[0]
    prompt, ids = base.runs[0].prompt_token_ids, base.runs[0].token_ids
    lane = Lane(one_thread.shelf, bundled_pair.target, None, one_thread.settings)
    try:
        found = [first_difference(lane.target, prompt, [*ids[:place], 0], ids) for place in range(len(ids))]
    finally:
        lane.close()
    assert [each.index for each in found if each is not None] == list(range(len(ids)))
    clear = [each for each in found if each is not None and each.top_two_gap > 1]
    assert len(clear) > len(ids) // 2
    assert all(each.kernel_shift < 0.1 and not each.near_tie for each in clear)
