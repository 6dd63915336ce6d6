"""What a race's answers say: how fast each lane was against the baseline, and whether it wrote the same.

Knows snapshots and a cache of the target, with which a first difference is looked at; nothing about running lanes.
"""

from __future__ import annotations

from collections.abc import Sequence

from specui.compare.records import LaneResult, LaneSpec, RaceRequest
from specui.compare.speedup import speedup
from specui.engine.difference import Difference, first_difference
from specui.engine.drafting import TokenCache
from specui.generation import Progress

Answers = Sequence[Progress]
"""One lane's answers, one for each repeat."""
Pair = tuple[Progress, Progress]
"""A lane's answer and the baseline's, of the same repeat."""


def judge(request: RaceRequest, answers: Sequence[Answers], cache: TokenCache) -> tuple[LaneResult, ...]:
    """Return what came of each lane; `cache` is one on the baseline's target. Raises DecodeError, RollbackError."""
    base = request.baseline
    return tuple(
        _judge_lane(spec, list(zip(mine, answers[base], strict=True)), request.lanes[base], cache)
        for spec, mine in zip(request.lanes, answers, strict=True)
    )


def _judge_lane(spec: LaneSpec, pairs: Sequence[Pair], base: LaneSpec, cache: TokenCache) -> LaneResult:
    difference = None
    if spec.files.target == base.files.target:
        identical = all(mine.token_ids == theirs.token_ids for mine, theirs in pairs)
        if not identical:
            difference = _difference(spec, pairs, cache)
    else:  # ids of different targets say nothing; their texts do
        identical = all(mine.text == theirs.text for mine, theirs in pairs)
    return LaneResult(
        spec, tuple(mine for mine, _ in pairs), speedup(_ratios(pairs), _slice_ratios(pairs)), identical, difference
    )


def _difference(spec: LaneSpec, pairs: Sequence[Pair], cache: TokenCache) -> Difference | None:
    """Return the first difference of the first repeat that has one."""
    mine, theirs = next(pair for pair in pairs if pair[0].token_ids != pair[1].token_ids)
    prompt = theirs.prompt_token_ids
    return first_difference(cache, prompt, mine.token_ids, theirs.token_ids, spec.settings.sampling)


def _ratios(pairs: Sequence[Pair]) -> list[float]:
    rates = [(mine.stats.decode_tokens_per_second, theirs.stats.decode_tokens_per_second) for mine, theirs in pairs]
    return [mine / theirs for mine, theirs in rates if mine and theirs]


def _slice_ratios(pairs: Sequence[Pair]) -> list[float]:
    """Return the ratios of whole slices of compute time, in which both lanes were at work."""
    slices = [each for mine, theirs in pairs for each in zip(mine.rates[:-1], theirs.rates[:-1], strict=False)]
    return [left.tokens_per_second / right.tokens_per_second for left, right in slices]
