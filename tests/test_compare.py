"""A race over fakes: what is asked, what comes of it, how it is cancelled, and what is said about it."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fake_model import FakeCache, random_script

from specui.catalog import PairFiles
from specui.compare.handle import Race
from specui.compare.judge import judge
from specui.compare.records import (
    LaneSpec,
    RaceProgress,
    RaceRequest,
    RaceResult,
    free_label,
    parse_modes,
)
from specui.compare.report import export_csv, export_json, result_json, sentences, table
from specui.compare.schedule import rotated
from specui.config import DraftingSettings, SamplingSettings, StepSettings
from specui.engine.difference import Difference, first_difference, first_index
from specui.engine.sampling import Logits
from specui.engine.stats import RatePoint, Stats
from specui.errors import DecodeError, SettingError, SpecUIError
from specui.generation import GenerationRequest, Message, Progress, TokenPiece

FILES = PairFiles("p", "P", Path("t.gguf"), Path("d.gguf"))
PROMPT = GenerationRequest(messages=(Message("user", "Hi"),))
HANG_SECONDS = 20


def specs(text: str, **settings: object) -> tuple[LaneSpec, ...]:
    modes = parse_modes(text, DraftingSettings())
    sampling = SamplingSettings(**settings)  # type: ignore[arg-type]
    return tuple(LaneSpec(label, StepSettings(sampling, each), FILES) for label, each in modes.items())


def test_modes_are_read_with_their_longest_draft() -> None:
    modes = parse_modes("none, prompt-lookup ,draft-model:8,draft-model", DraftingSettings(max_ngram_size=3))
    assert list(modes) == ["none", "prompt-lookup", "draft-model:8", "draft-model"]
    assert [each.speculation for each in modes.values()] == ["none", "prompt-lookup", "draft-model", "draft-model"]
    assert [each.max_draft_tokens for each in modes.values()] == [None, None, 8, None]
    assert {each.max_ngram_size for each in modes.values()} == {3}
    assert list(parse_modes("none,none,none", DraftingSettings())) == ["none", "none#2", "none#3"]
    assert free_label("none", {"none", "none#2"}) == "none#3"


@pytest.mark.parametrize(
    "text", ["", "none", "none,draft", "none,none:3", "none,draft-model:", "none,auto:x", "none,auto:0", "none," * 5]
)
def test_modes_that_cannot_run(text: str) -> None:
    with pytest.raises(SettingError):
        parse_modes(text, DraftingSettings())


def test_a_race_has_two_to_four_lanes_of_their_own_names() -> None:
    lanes = specs("none,prompt-lookup,draft-model,auto")
    for wrong in (lanes[:1], (*lanes, replace(lanes[0], label="fifth")), (lanes[0], lanes[0])):
        with pytest.raises(SettingError):
            RaceRequest(PROMPT, wrong)
    for repeats in (0, 101):
        with pytest.raises(SettingError):
            RaceRequest(PROMPT, lanes, repeats)
    with pytest.raises(SettingError):
        RaceRequest(PROMPT, lanes, cache="warm")  # type: ignore[arg-type]


def test_mode_none_is_the_baseline_wherever_it_stands_else_the_first() -> None:
    assert RaceRequest(PROMPT, specs("prompt-lookup,none")).baseline == 1
    assert RaceRequest(PROMPT, specs("prompt-lookup,draft-model")).baseline == 0


# What came of it


def answer(ids: Sequence[int], tokens_per_second: float | None = 10.0, reason: str | None = None) -> Progress:
    stats = Stats(completion_tokens=len(ids), decode_tokens_per_second=tokens_per_second, acceptance_rate=0.5)
    stats = replace(stats, speculation="draft-model" if reason else "none", speculation_off_reason=reason)
    rates = tuple(RatePoint(0.25 * n, tokens_per_second or 1.0, None, "none") for n in range(6))
    pieces = tuple(TokenPiece(each, f"<{each}>", "target") for each in ids)
    text = "".join(piece.text for piece in pieces)
    return Progress(phase="done", pieces=pieces, text=text, prompt_token_ids=(3, 1, 4), stats=stats, rates=rates)


def judged(lanes: Sequence[LaneSpec], answers: Sequence[Sequence[Progress]], cache: FakeCache) -> RaceResult:
    request = RaceRequest(PROMPT, tuple(lanes), len(answers[0]))
    orders = tuple(rotated(range(len(lanes)), repeat) for repeat in range(len(answers[0])))
    return RaceResult(judge(request, answers, cache), request.baseline, orders)


@pytest.fixture
def cache() -> FakeCache:
    return FakeCache(random_script(7))


def test_ratios_are_paired_within_a_repeat(cache: FakeCache) -> None:
    """The machine halves its speed from repeat to repeat; the ratio does not move."""
    base = [answer([5], speed) for speed in (80.0, 40.0, 20.0)]
    mine = [answer([5], 1.5 * speed) for speed in (80.0, 40.0, 20.0)]
    lane = judged(specs("none,auto"), [base, mine], cache).lanes[1]
    assert lane.speedup is not None
    assert (lane.speedup.median, lane.speedup.ratios) == (1.5, (1.5, 1.5, 1.5))
    assert lane.speedup.low == lane.speedup.high == pytest.approx(1.5)
    assert lane.identical and lane.difference is None


def test_one_run_that_differs_is_a_difference(cache: FakeCache) -> None:
    base = [answer([5, 6, 7])] * 3
    mine = [answer([5, 6, 7]), answer([5, 6, 8]), answer([5, 6, 7])]
    lane = judged(specs("none,auto"), [base, mine], cache).lanes[1]
    assert not lane.identical
    assert lane.difference is not None
    assert (lane.difference.index, lane.difference.left, lane.difference.right) == (2, 8, 7)


def test_answers_of_two_targets_are_held_together_by_their_text(cache: FakeCache) -> None:
    lanes = list(specs("none,auto"))
    lanes[1] = replace(lanes[1], files=replace(FILES, target=Path("other.gguf")))
    same, other = replace(answer([9]), text="<5>"), answer([9])
    assert judged(lanes, [[answer([5])], [same]], cache).lanes[1].identical
    lane = judged(lanes, [[answer([5])], [other]], cache).lanes[1]
    assert (lane.identical, lane.difference) == (False, None)


def test_answers_too_short_to_measure_have_no_ratio(cache: FakeCache) -> None:
    result = judged(specs("none,auto"), [[answer([5], None)]] * 2, cache)
    assert result.lanes[1].speedup is None
    values = result_json(result)["modes"]["auto"]["speedup_vs_none"]
    assert values == {"median": None, "low": None, "high": None}
    assert "too little" in sentences(result)[0]
    assert "–" in table(result)


def test_the_json_has_the_keys_of_the_contract_and_no_others(cache: FakeCache) -> None:
    result = judged(specs("none,auto"), [[answer([5, 6])] * 3, [answer([5, 7])] * 3], cache)
    values = json.loads(json.dumps(result_json(result), allow_nan=False))
    assert values["baseline"] == "none"
    assert list(values["modes"]) == ["none", "auto"]
    for mode in values["modes"].values():
        assert set(mode) == {"repeats", "speedup_vs_none", "identical_to_none", "first_difference"}
        assert set(mode["speedup_vs_none"]) == {"median", "low", "high"}
        assert len(mode["repeats"]) == 3
        assert mode["repeats"][0]["decode_tokens_per_second"] == 10.0
    assert values["modes"]["none"]["first_difference"] is None
    assert values["modes"]["none"]["identical_to_none"] is True
    assert values["modes"]["auto"]["identical_to_none"] is False
    assert set(values["modes"]["auto"]["first_difference"]) == {"index", "top_two_gap"}
    assert result_json(judged(specs("auto,draft-model"), [[answer([5])]] * 2, cache))["baseline"] == "auto"


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (1.62, "prompt lookup is 1.62 x faster than none (1.60 to 1.64, 5 runs); same text"),
        (0.8, "prompt lookup is slower than none: 0.80 x (0.79 to 0.81, 5 runs); same text"),
        (
            1.001,
            "prompt lookup is neither faster nor slower than none for sure: 1.00 x (0.99 to 1.02, 5 runs); same text",
        ),
    ],
)
def test_a_sentence_says_faster_and_slower(cache: FakeCache, ratio: float, words: str) -> None:
    noise = (0.99, 1.0, 1.01, 0.992, 1.008)
    mine = [answer([5], 10 * ratio * each) for each in noise]
    assert sentences(judged(specs("none,prompt-lookup"), [[answer([5])] * 5, mine], cache)) == [words]


def test_a_sentence_says_why_a_text_differs(cache: FakeCache) -> None:
    result = judged(specs("none,auto"), [[answer([5])], [answer([6])]], cache)

    def sentence(difference: Difference, lanes: tuple[LaneSpec, ...] = specs("none,auto")) -> str:
        parts = [replace(each, spec=spec) for each, spec in zip(result.lanes, lanes, strict=True)]
        return sentences(replace(result, lanes=(parts[0], replace(parts[1], difference=difference))))[0]

    assert "a near tie" in sentence(Difference(0, 6, 5, 0.01, 0.02))
    assert "does not explain" in sentence(Difference(0, 6, 5, 3.0, 0.02))
    assert "sampling" in sentence(Difference(0, 6, 5, 3.0, 0.02), specs("none,auto", temperature=1.0))


def test_a_draft_that_was_off_is_told(cache: FakeCache) -> None:
    result = judged(specs("none,draft-model"), [[answer([5])], [answer([5], reason="it is corrupt")]], cache)
    assert sentences(result)[0].endswith("; draft model was off: it is corrupt")


def test_exports_hold_every_run(cache: FakeCache) -> None:
    lanes = specs("none,auto")
    result = judged(lanes, [[answer([5, 6])] * 2, [answer([5, 7], 20.0)] * 2], cache)
    values = json.loads(export_json(RaceRequest(PROMPT, lanes, 2), result))
    assert values["orders"] == [["none", "auto"], ["auto", "none"]]
    assert values["messages"] == [{"role": "user", "content": "Hi"}]
    auto = values["lanes"][1]
    assert [run["token_ids"] for run in auto["repeats"]] == [[5, 7], [5, 7]]
    assert auto["difference"]["index"] == 1 and "near_tie" in auto["difference"]
    assert auto["speedup"]["ratios"] == [2.0, 2.0]
    rows = list(csv.DictReader(io.StringIO(export_csv(result))))
    assert [(row["lane"], row["repeat"], row["started_as"]) for row in rows] == [
        ("none", "1", "1"),
        ("none", "2", "2"),
        ("auto", "1", "2"),
        ("auto", "2", "1"),
    ]
    assert statistics.median(float(row["decode_tokens_per_second"]) for row in rows[2:]) == 20.0
    assert not rows[0].keys() & {"accepted_per_position", "translation", "thinking"}, "no cell holds several values"


# The first difference


@pytest.mark.parametrize(
    ("left", "right", "index"),
    [([], [], None), ([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1], [1, 3], 1), ([4], [5], 0), ([], [5], 0)],
)
def test_the_index_of_the_first_difference(left: list[int], right: list[int], index: int | None) -> None:
    assert first_index(left, right) == index


class RoundingCache(FakeCache):
    """A fake cache whose passes of several rows move every logit of token 2 by `shift`."""

    def __init__(self, shift: float, gap: float, n_batch: int = 64) -> None:
        def script(_tokens: Sequence[int]) -> Logits:
            row = random_script(3)([0]).copy() * 0
            row[1], row[2] = 5.0, 5.0 - gap
            return row

        super().__init__(script, n_batch=n_batch)
        self._shift = shift

    def decode(self, tokens: Sequence[int], rows: int) -> None:
        super().decode(tokens, rows)
        for row in self._rows if len(tokens) > 1 else ():
            row[2] += self._shift
        self._pristine = [row.copy() for row in self._rows]


@pytest.mark.parametrize(("shift", "gap", "near_tie"), [(0.3, 0.2, True), (0.01, 0.2, False), (0.0, 0.2, False)])
def test_a_near_tie_is_told_from_a_fault(shift: float, gap: float, near_tie: bool) -> None:
    for index in (0, 1, 5, 30):
        left, right = [1] * index + [1, 1], [1] * index + [2, 2]
        found = first_difference(RoundingCache(shift, gap), [3] * 20, left, right)
        assert found is not None
        assert (found.index, found.left, found.right) == (index, 1, 2)
        assert found.top_two_gap == pytest.approx(gap, abs=1e-6)
        assert found.kernel_shift == pytest.approx(shift, abs=1e-6)
        assert found.near_tie is near_tie


def test_penalties_count_in_the_gap_and_ends_are_none() -> None:
    found = first_difference(
        RoundingCache(0.0, 0.2), [3], [1], [1, 2], SamplingSettings(presence_penalty=3.0, repeat_last_n=8)
    )
    assert found is not None
    assert (found.index, found.left, found.right) == (1, None, 2)
    assert found.top_two_gap == pytest.approx(2.8, abs=1e-6), "token 1 was said and fell below token 2"
    assert first_difference(RoundingCache(0.0, 0.2), [3], [1], [1]) is None


def test_a_difference_is_found_in_small_batches_and_on_what_the_cache_holds() -> None:
    cache = RoundingCache(0.1, 0.2, n_batch=4)
    cache.decode([9, 9, 9], 0)
    found = first_difference(cache, [3] * 10, [1] * 6, [1] * 5 + [2])
    assert found is not None and found.kernel_shift == pytest.approx(0.1, abs=1e-6)
    assert cache.tokens == [3] * 10 + [1] * 5


# The handle


@pytest.fixture
def race() -> Race:
    return Race(RaceRequest(PROMPT, specs("none,auto")))


def test_snapshots_count_up_and_waiting_makes_them_wanted(race: Race) -> None:
    wanted = [race.wanted]
    assert race.wait(seen=0, timeout_seconds=0).phase == "queued"
    wanted.append(race.wanted)
    race.publish(RaceProgress(phase="racing", version=77))
    wanted.append(race.wanted)
    assert (race.progress.version, wanted) == (1, [False, True, False])
    race.publish(RaceProgress(phase="done"))
    assert race.wait(seen=99, timeout_seconds=HANG_SECONDS).cancelled


def test_an_error_is_named_after_its_lane(race: Race) -> None:
    error = DecodeError(Path("t.gguf"), -3)
    race.publish(RaceProgress(phase="failed", error=error, failed_lane="auto"))
    with pytest.raises(SpecUIError, match=r"^lane auto: t\.gguf.*code -3") as caught:
        race.result()
    assert caught.value.__cause__ is error
    race.publish(RaceProgress(phase="failed", error=error))
    with pytest.raises(DecodeError):
        race.result()


def test_cancel_acts_at_once_also_where_it_came_first(race: Race) -> None:
    calls: list[str] = []
    race.when_cancelled(lambda: calls.append("queued"))
    race.cancel()
    race.when_cancelled(lambda: calls.append("running"))
    race.when_cancelled(None)
    race.cancel()
    assert calls == ["queued", "running"]
