"""The benchmark on a fake runtime: order, records that survive any interruption, and figures worked out by hand."""

from __future__ import annotations

import csv
import io
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bench_makers import Course, bench, header, keys, log, plan, prompt, run
from fake_runtime import BUNDLED, FakeRuntime

from specui.bench import conditions, export, runner
from specui.bench.plan import Turn, parse_variants
from specui.bench.records import FILE_NAME, RunLog
from specui.bench.runner import Runner, Stopped
from specui.bench.summary import Interval, Sameness, median_interval, summarise
from specui.config import DraftingSettings, SamplingSettings
from specui.errors import BusyError, ModelFileError, SettingError
from specui.generation import Generation, GenerationRequest

FAST = 10_000.0


@pytest.fixture
def runtime() -> Iterator[FakeRuntime]:
    runtime = FakeRuntime(speed=FAST)
    yield runtime
    runtime.close()


# --- order


def test_all_modes_run_side_by_side_and_another_one_is_first_each_time() -> None:
    order = [(turn.prompt.name, turn.variant.label, turn.repeat) for turn in plan(repeats=2).turns()]
    n, p, d = "none", "prompt-lookup", "draft-model:3"
    assert order == [
        *[("a", n, 0), ("a", p, 0), ("a", d, 0)],
        *[("b", p, 0), ("b", d, 0), ("b", n, 0)],
        *[("a", p, 1), ("a", d, 1), ("a", n, 1)],
        *[("b", d, 1), ("b", n, 1), ("b", p, 1)],
    ]


def test_each_mode_is_first_equally_often() -> None:
    turns = list(plan(*(prompt(f"p{i}") for i in range(4)), repeats=3).turns())
    firsts = Counter(turn.variant.label for turn in turns[::3])
    assert firsts == {"none": 4, "prompt-lookup": 4, "draft-model:3": 4}


def test_none_runs_first_in_the_list_named_or_not() -> None:
    drafting = DraftingSettings(max_ngram_size=7, max_draft_tokens=9)
    variants = parse_variants("auto, draft-model:3", drafting)
    assert [each.label for each in variants] == ["none", "auto", "draft-model:3"]
    assert [each.drafting.max_draft_tokens for each in variants] == [9, 9, 3]
    assert {each.drafting.max_ngram_size for each in variants} == {7}
    assert variants[2].drafting.speculation == "draft-model"


@pytest.mark.parametrize("text", ["", "fast", "none:3", "draft-model:", "draft-model:x", "draft-model:0", "auto,auto"])
def test_modes_that_cannot_work_are_refused(text: str) -> None:
    with pytest.raises(SettingError):
        parse_variants(text, DraftingSettings())


def test_a_request_keeps_to_the_shorter_limit_and_seeds_every_mode_of_a_repeat_alike() -> None:
    planned = replace(plan(repeats=2), sampling=SamplingSettings(temperature=1.0))
    assert {(turn.repeat, planned.request(turn).settings.sampling.seed) for turn in planned.turns()} == {(0, 0), (1, 1)}
    turn = next(planned.turns())
    assert [replace(planned, max_tokens=cap).request(turn).limits.max_tokens for cap in (None, 2, 99)] == [6, 2, 6]


# --- runs


def test_every_run_begins_from_the_same_memory(runtime: FakeRuntime, tmp_path: Path) -> None:
    course = bench(runtime, plan(), tmp_path)
    asked = [generation.request for generation in runtime.started]
    assert [request.messages for request in asked[:3]] == [runner.WARM_UP] * 3
    measured = asked[3:]
    assert len(measured) == 6
    for real, turn in zip(measured, course.begun_turns, strict=True):
        assert real.fresh, "nothing of the run before may be cached"
        assert real.settings.drafting == turn.variant.drafting
        assert real.messages == turn.prompt.messages


def test_before_auto_the_draft_is_loaded_and_auto_warms_up_last(runtime: FakeRuntime, tmp_path: Path) -> None:
    bench(runtime, plan(modes="auto,prompt-lookup"), tmp_path)
    modes = [generation.request.settings.drafting.speculation for generation in runtime.started[:4]]
    assert modes == ["draft-model", "none", "prompt-lookup", "auto"]


def test_a_mode_that_is_off_is_refused_with_its_reason(runtime: FakeRuntime, tmp_path: Path) -> None:
    runtime.draft_off_reason = "token 5 differs"
    with pytest.raises(SettingError, match=r"draft-model:3.*token 5 differs"):
        bench(runtime, plan(), tmp_path)
    assert bench(runtime, plan(modes="prompt-lookup"), tmp_path / "other").runs


def test_a_run_that_fails_is_told_and_the_others_go_on(runtime: FakeRuntime, tmp_path: Path) -> None:
    planned = plan(prompt("bad", text="fail now", max_tokens=40), prompt("good"), modes="none")
    course = bench(runtime, planned, tmp_path)
    assert [key for key, error in course.failures if isinstance(error, ModelFileError)] == ["edit/bad"]
    assert [each.prompt for each in course.runs] == ["edit/good"]
    again = bench(runtime, planned, tmp_path)
    assert len(again.failures) == 1 and not again.runs, "the failed one is tried again, the good one is not"


class FullLine:
    """A runtime whose line is full the first few times."""

    def __init__(self, inner: FakeRuntime, times: int) -> None:
        self._inner = inner
        self.left = times

    def start(self, request: GenerationRequest) -> Generation:
        if self.left:
            self.left -= 1
            raise BusyError(8)
        return self._inner.start(request)


def test_a_full_line_is_waited_for(runtime: FakeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "BUSY_SECONDS", 0.001)
    full = FullLine(runtime, 5)
    assert len(bench(full, plan(), tmp_path).runs) == 6
    assert full.left == 0


def test_stop_ends_a_run_within_a_second_and_keeps_no_part_of_it(tmp_path: Path) -> None:
    slow = FakeRuntime(speed=FAST)
    planned = plan(prompt("a", text="long one", max_tokens=4000), modes="none")
    course, records = Course(), log(tmp_path, planned)
    making = Runner(slow, planned, records, course)
    outcome: list[BaseException] = []

    def work() -> None:
        try:
            making.run()
        except Stopped as stopped:
            outcome.append(stopped)

    thread = threading.Thread(target=work)
    thread.start()
    while not course.begun_turns:
        time.sleep(0.005)
    slow.speed = 0.5
    begin = time.monotonic()
    making.stop()
    thread.join(5)
    assert time.monotonic() - begin < 1.0
    assert outcome and records.runs == [] and making.count == runner.Count(0, 1)
    slow.close()


# --- interruptions


@pytest.mark.parametrize("place", range(1, 12))
def test_stopped_behind_any_run_it_goes_on_and_makes_none_twice(
    place: int, runtime: FakeRuntime, tmp_path: Path
) -> None:
    planned, course = plan(repeats=2), Course()
    making = Runner(runtime, planned, log(tmp_path, planned), course)
    course.after[place] = making.stop
    with pytest.raises(Stopped):
        making.run()
    second = bench(runtime, planned, tmp_path)
    assert [each.key for each in (*course.runs, *second.runs)] == list(keys(planned))
    assert [each.key for each in log(tmp_path, planned).runs] == list(keys(planned))


def test_a_finished_benchmark_asks_for_nothing_more(runtime: FakeRuntime, tmp_path: Path) -> None:
    bench(runtime, plan(), tmp_path)
    runtime.started.clear()
    assert bench(runtime, plan(), tmp_path).runs == []
    assert runtime.started == []
    more = bench(runtime, plan(repeats=2), tmp_path)
    assert {each.repeat for each in more.runs} == {1}, "more repeats may be added"


def test_cut_at_any_byte_the_records_go_on(tmp_path: Path) -> None:
    planned = plan()
    runs = [run(mode, name, kind=kind) for (name, kind) in (("a", "edit"), ("b", "story")) for mode in ("none", "auto")]
    whole = log(tmp_path / "whole", planned)
    for each in runs:
        whole.add(each)
    content = whole.path.read_bytes()
    assert content.count(b"\n") == 5
    ends = [place for place, byte in enumerate(content) if byte == 10]
    for cut in sorted(
        {0, 1, *range(0, len(content), 97), *ends, *(end + 1 for end in ends), *(end - 1 for end in ends)}
    ):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / FILE_NAME).write_bytes(content[:cut])
        again = log(folder, planned)
        assert len(again.runs) == max(0, content[:cut].count(b"\n") - 1), f"cut at {cut}"
        for each in runs:
            if not again.has(each.key):
                again.add(each)
        assert (folder / FILE_NAME).read_bytes() == content, f"cut at {cut}"
        assert again.runs == [*runs]


def test_another_suite_model_or_setting_is_refused_unless_told_to_begin_anew(tmp_path: Path) -> None:
    planned = plan()
    log(tmp_path, planned).add(run("none"))
    sampled = replace(planned, sampling=SamplingSettings(temperature=0.5))
    with pytest.raises(SettingError, match=r"settings\.sampling\.temperature was 0\.0 and is 0\.5.*--restart"):
        log(tmp_path, sampled)
    with pytest.raises(SettingError, match=r"suite\.digest"):
        log(tmp_path, plan(prompt("other")))
    with pytest.raises(SettingError, match=r"model\.threads was 2 and is 4"):
        log(tmp_path, planned, threads=4)
    with pytest.raises(SettingError, match=r"settings\.keep_prompt was False and is True"):
        log(tmp_path, replace(planned, keep_prompt=True))
    with pytest.raises(SettingError, match=r"settings\.modes"):
        log(tmp_path, plan(modes="auto"))
    assert len(log(tmp_path, planned).runs) == 1, "a refusal leaves the records as they are"
    assert log(tmp_path, sampled, restart=True).runs == []


def test_a_run_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    records = log(tmp_path, plan())
    records.add(run("none"))
    with records.path.open("ab") as file:
        file.write(records.path.read_bytes().splitlines(keepends=True)[1])
    assert [each.key for each in log(tmp_path, plan()).runs] == [run("none").key]


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    records = log(tmp_path, plan())
    records.add(run("none"))
    records.add(run("auto"))
    lines = records.path.read_bytes().splitlines(keepends=True)
    records.path.write_bytes(lines[0] + b'{"type": "run"}\n' + lines[2])
    with pytest.raises(SettingError, match="line 2"):
        log(tmp_path, plan())


def test_a_folder_that_cannot_be_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(SettingError, match=r"--out.*can be written"):
        log(tmp_path / "file", plan())


# --- figures, by hand


def test_intervals_are_order_statistics() -> None:
    assert median_interval([]) is None
    assert median_interval([2.0]) == Interval(2.0, 2.0, 2.0, 0.0, 1)
    assert median_interval([3, 1, 2, 5, 4]) == Interval(3, 1, 5, 1 - 2 / 32, 5)
    assert median_interval([1, 2, 3, 4, 5, 6]) == Interval(3.5, 1, 6, 1 - 2 / 64, 6)
    assert median_interval(range(1, 9)) == Interval(4.5, 1, 8, 1 - 2 / 256, 8)
    assert median_interval(range(1, 10)) == Interval(5, 2, 8, 1 - 2 * (1 + 9) / 512, 9)
    twenty = median_interval(range(1, 21))
    assert twenty is not None
    assert (twenty.low, twenty.high) == (6, 15)
    assert twenty.coverage == pytest.approx(0.9586, abs=1e-4)


def test_speedups_are_medians_of_paired_ratios_and_rates_are_pooled() -> None:
    runs = [
        run("auto", "a", 0, decode_seconds=0.5, num_draft_tokens=8, num_accepted_tokens=6, num_passes=4),
        run("none", "a", 0, decode_seconds=1.0),  # ratio 2.0
        run("none", "a", 1, decode_seconds=2.0),
        run("auto", "a", 1, decode_seconds=1.0, num_draft_tokens=2, num_accepted_tokens=0, num_passes=10),  # 2.0
        run("none", "b", 0, completion_tokens=21, decode_seconds=2.0),
        run("auto", "b", 0, completion_tokens=21, decode_seconds=4.0, ids=(1, 2), num_passes=20),  # 0.5
    ]
    none, auto = summarise(runs, greedy=True)
    assert (none.mode, none.kind, none.runs, none.prompts, none.speedup_vs_none) == ("none", "edit", 3, 2, None)
    assert none.decode_tokens_per_second == pytest.approx((10 + 10 + 20) / 5.0)
    assert auto.decode_tokens_per_second == pytest.approx((10 + 10 + 20) / 5.5)
    assert auto.speedup_vs_none == Interval(2.0, 0.5, 2.0, 1 - 2 / 8, 3)
    assert auto.acceptance_rate == pytest.approx(6 / 10)
    assert auto.mean_acceptance_length == pytest.approx(1 + 6 / 34)
    assert auto.identical_to_none == Sameness(2, 3)
    assert none.acceptance_rate is None
    assert summarise(runs, greedy=False)[1].identical_to_none is None, "sampled answers may differ"


def test_runs_without_a_partner_or_a_rate_make_no_ratio() -> None:
    runs = [
        run("none", "a"),
        run("auto", "a", decode_seconds=0.25),
        run("auto", "lonely"),
        run("none", "short", completion_tokens=1),
        run("auto", "short", completion_tokens=1),
    ]
    for each in runs[3:]:
        each.stats["decode_tokens_per_second"] = None  # type: ignore[index]  # a dict underneath
    auto = summarise(runs, greedy=True)[1]
    assert auto.speedup_vs_none == Interval(4.0, 4.0, 4.0, 0.0, 1)
    assert auto.decode_tokens_per_second == pytest.approx(20 / 1.25)


def test_kinds_are_kept_apart_and_taken_together() -> None:
    runs = [run("none"), run("auto", decode_seconds=0.5), run("none", kind="story")]
    runs.append(run("auto", kind="story", decode_seconds=2.0, speculation_off_reason="no room"))
    cells = {(cell.kind, cell.mode): cell for cell in summarise(runs, greedy=True)}
    assert list(cells) == [(kind, mode) for kind in ("edit", "story", "all") for mode in ("none", "auto")]
    medians = [found.median for kind in ("edit", "story", "all") if (found := cells[kind, "auto"].speedup_vs_none)]
    assert medians == [2.0, 0.5, 1.25]
    assert cells["edit", "auto"].speculation_off_reason is None
    assert cells["all", "auto"].speculation_off_reason == "no room"


# --- files


def test_the_files_hold_the_runs_and_no_folders(runtime: FakeRuntime, tmp_path: Path) -> None:
    planned = plan(repeats=2)
    assert runtime.loaded is not None
    records = RunLog(tmp_path, conditions.header(planned, runtime.loaded, {"batch_size": 256}))
    Runner(runtime, planned, records, Course()).run()
    summary = export.write_all(tmp_path, records.header, records.runs)
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert set(summary["modes"]) == {"none", "prompt-lookup", "draft-model:3"}
    assert summary["modes"]["prompt-lookup"]["all"]["speedup_vs_none"]["pairs"] == 4
    assert summary["model"]["target"]["file"] == BUNDLED.target.name
    rows = list(csv.DictReader(io.StringIO((tmp_path / "runs.csv").read_text())))
    assert [(row["prompt"], row["mode"], int(row["repeat"])) for row in rows] == [each.key for each in records.runs]
    assert float(rows[0]["decode_tokens_per_second"]) == records.runs[0].rate
    assert export.jsonl(records.header, records.runs) == records.path.read_text()
    for name in ("summary.json", "table.md", "runs.csv", FILE_NAME):
        text = (tmp_path / name).read_text()
        assert str(tmp_path) not in text and str(Path.home()) not in text and "/models/" not in text


def test_the_table_says_what_a_person_wants_to_know() -> None:
    planned = plan()
    runs = [run("none"), run("auto", decode_seconds=0.5, num_draft_tokens=4, num_accepted_tokens=3)]
    runs += [run("none", repeat=1), run("auto", repeat=1, decode_seconds=0.4)]
    table = export.markdown(header(planned), runs)
    assert "| edit | 2.25 (2.00 to 2.50) |" in table
    assert "| edit | auto | 2 | 22.2 | 0.50 s | 75% | 1.15 | 2 of 2 |" in table
    assert "big.gguf, no draft" in table and "abacus" in table
    assert "2.00 (one pair)" in export.markdown(header(planned), runs[:2])


def test_an_empty_benchmark_has_a_table_too() -> None:
    assert "No mode beside none was run" in export.markdown(header(plan()), [])
    assert export.runs_csv([]).startswith("prompt,kind,split,mode")


def test_a_file_is_known_by_its_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "END_BYTES", 4)
    path = tmp_path / "m.gguf"
    digests = set()
    for content in (b"head....tail", b"heaD....tail", b"head....taiL", b"head...tail", b"head.!!.tail"):
        path.write_bytes(content)
        digests.add(conditions.file_facts(path)["digest"])
    assert len(digests) == 4, "the middle is not read: files have gigabytes"
    assert conditions.file_facts(tmp_path / "gone") == {"file": "gone", "bytes": None, "digest": None}


def test_turns_and_runs_have_one_key() -> None:
    variants = parse_variants("none", DraftingSettings())
    assert Turn(prompt("a"), variants[0], 0).key == run("none").key
