"""Auto against the best fixed mode, by hand: whose ratio it is, which mode counts, and where it is told."""

from __future__ import annotations

import json

import pytest
from bench_makers import header, plan, run

from specui.bench import export
from specui.bench.fixed import against_best_fixed, worst_kind
from specui.bench.records import Run
from specui.bench.summary import summarise


def rounds(kind: str, **rates: tuple[float, ...]) -> list[Run]:
    """Return runs by mode, a repeat for each rate in tokens per second."""
    return [
        run(mode.replace("_", "-"), kind=kind, repeat=repeat, decode_seconds=10 / rate)
        for mode, rates_of in rates.items()
        for repeat, rate in enumerate(rates_of)
    ]


EDIT = rounds("edit", none=(10, 10, 20), prompt_lookup=(20, 30, 40), draft_model=(15, 15, 30), auto=(22, 27, 48))
STORY = rounds("story", none=(10, 10, 10), prompt_lookup=(9, 8, 9), draft_model=(7, 7, 7), auto=(9.5, 10, 11))


def test_ratios_are_paired_with_the_best_fixed_mode_of_each_kind() -> None:
    runs = [*EDIT, *STORY]
    edit, story, every = against_best_fixed(runs, summarise(runs, greedy=True))
    assert (edit.kind, edit.mode) == ("edit", "prompt-lookup")
    assert edit.fixed_vs_none == pytest.approx(2.0)
    assert [edit.ratio.low, edit.ratio.median, edit.ratio.high] == pytest.approx([0.9, 1.1, 1.2])
    assert (story.kind, story.mode, story.fixed_vs_none) == ("story", "none", 1.0)
    assert [story.ratio.low, story.ratio.median, story.ratio.high] == pytest.approx([0.95, 1.0, 1.1])
    assert (every.kind, every.mode) == ("all", "prompt-lookup"), "2, 3, 2 and 0.9, 0.8, 0.9: the median is 1.45"
    assert every.ratio.pairs == 6


def test_of_modes_that_are_as_fast_none_is_the_best() -> None:
    runs = rounds("edit", auto=(12,), prompt_lookup=(10,), none=(10,))
    assert [each.mode for each in against_best_fixed(runs, summarise(runs, greedy=True))] == ["none"]


def test_autos_are_no_fixed_modes_and_the_first_of_them_counts() -> None:
    runs = [*rounds("edit", none=(10,), auto=(12,)), run("auto:7", decode_seconds=0.1)]
    (found,) = against_best_fixed(runs, summarise(runs, greedy=True))
    assert found.mode == "none"
    assert found.ratio.median == pytest.approx(1.2)


def test_the_worst_kind_is_that_of_the_least_median_and_never_all() -> None:
    runs = [*STORY, *EDIT]
    worst = worst_kind(summarise(runs, greedy=True))
    assert worst is not None
    assert worst.kind == "story"
    assert worst.speed.median == pytest.approx(1.0)


def test_summary_and_table_tell_it_where_auto_was_run() -> None:
    runs = [*EDIT, *STORY]
    summary = json.loads(json.dumps(export.summary_dict(header(plan()), runs)))
    assert list(summary["auto_vs_best_fixed"]) == ["edit", "story", "all"]
    edit = summary["auto_vs_best_fixed"]["edit"]
    assert (edit["mode"], edit["median"], edit["low"], edit["high"]) == (
        "prompt-lookup",
        *(pytest.approx(each) for each in (1.1, 0.9, 1.2)),
    )
    assert edit["fixed_vs_none"] == pytest.approx(2.0)
    assert (summary["worst_kind"]["kind"], summary["worst_kind"]["median"]) == ("story", pytest.approx(1.0))
    table = export.markdown(header(plan()), runs)
    assert "| edit | prompt-lookup | 2.00 | 1.10 (0.90 to 1.20) |" in table
    assert "| story | none | 1.00 | 1.00 (0.95 to 1.10) |" in table
    assert "Worst kind of auto against none: story, 1.00 (0.95 to 1.10)." in table


def test_without_auto_or_without_a_pair_nothing_is_told() -> None:
    fixed = [each for each in EDIT if each.mode != "auto"]
    summary = export.summary_dict(header(plan()), fixed)
    assert "auto_vs_best_fixed" not in summary and "worst_kind" not in summary
    assert "best fixed mode" not in export.markdown(header(plan()), fixed)
    alone = [each for each in EDIT if each.mode == "auto"]
    summary = export.summary_dict(header(plan()), alone)
    assert (summary["auto_vs_best_fixed"], summary["worst_kind"]) == ({}, None)
    assert "best fixed mode" not in export.markdown(header(plan()), alone)
