"""A race without a model: scripted lanes take turns on the fake runtime's line, with a real race's figures.

In a prompt that begins with `differs`, lanes that draft write one token otherwise, as a near tie would.
"""

from __future__ import annotations

from dataclasses import replace

from fake_runtime import FakeRuntime, Play

from specui.answer import check_request
from specui.compare.handle import Race
from specui.compare.records import LaneResult, LaneSpec, RaceProgress, RaceRequest, RaceResult
from specui.compare.schedule import rotated
from specui.compare.speedup import speedup
from specui.engine.difference import Difference
from specui.errors import SpecUIError
from specui.generation import Generation, Progress
from specui.line import Job

DIFFERS_AT = 9


def start_fake_race(runtime: FakeRuntime, request: RaceRequest) -> Race:
    """Put a scripted race in the fake runtime's line."""
    check_request(request.prompt)
    race = Race(request)

    def on_place(place: int) -> None:
        race.publish(replace(race.progress, place=place))

    job = Job(lambda: _run(race, runtime), on_place)

    def leave() -> None:
        if runtime.line.leave(job):
            race.publish(RaceProgress(phase="done"))

    race.when_cancelled(leave)
    runtime.line.join(job)
    return race


def _run(race: Race, runtime: FakeRuntime) -> None:
    race.when_cancelled(None)
    places, runs, orders = range(len(race.request.lanes)), [], []
    race.publish(replace(race.progress, phase="warm-up", place=0))
    try:
        for repeat in range(race.request.repeats):
            orders.append(rotated(places, repeat))
            runs.append(_repeat(race, runtime, repeat + 1))
    except SpecUIError as error:
        race.publish(replace(race.progress, phase="failed", error=error, failed_lane=race.request.lanes[0].label))
        return
    if race.cancelled.is_set():
        race.publish(replace(race.progress, phase="done"))
        return
    answers = [list(each) for each in zip(*runs, strict=True)]
    lanes = tuple(
        _judge(race.request, spec, mine, answers) for spec, mine in zip(race.request.lanes, answers, strict=True)
    )
    result = RaceResult(lanes, race.request.baseline, tuple(orders))
    race.publish(replace(race.progress, phase="done", result=result))


def _repeat(race: Race, runtime: FakeRuntime, repeat: int) -> list[Progress]:
    generations = [Generation(replace(race.request.prompt, settings=lane.settings)) for lane in race.request.lanes]
    plays = [Play(generation, runtime) for generation in generations]

    def lanes() -> tuple[Progress, ...]:
        return tuple(_otherwise(each.progress) for each in generations)

    for play in plays:
        play.begin()
    running = list(plays)
    while running and not race.cancelled.is_set():
        running = [play for play in running if play.advance()]
        race.publish(replace(race.progress, phase="racing", repeat=repeat, lanes=lanes()))
    for play in plays:
        play.finish()
    return list(lanes())


def _otherwise(progress: Progress) -> Progress:
    """Return the answer with another token where it is to differ."""
    words = progress.stats.prompt_tokens
    if progress.stats.speculation != "draft-model" or words != DIFFERS_TOKENS or len(progress.pieces) <= DIFFERS_AT:
        return progress
    pieces = list(progress.pieces)
    pieces[DIFFERS_AT] = replace(pieces[DIFFERS_AT], token_id=7777, text=" <b>other</b>")
    return replace(progress, pieces=tuple(pieces), text="".join(piece.text for piece in pieces))


DIFFERS = "differs at one token, please: a prompt of its own length"
DIFFERS_TOKENS = max(8, len(DIFFERS) // 4)
"""Told by its length: a snapshot does not hold the prompt's text."""


def _judge(request: RaceRequest, spec: LaneSpec, mine: list[Progress], answers: list[list[Progress]]) -> LaneResult:
    base = answers[request.baseline]
    rates = [
        (a.stats.decode_tokens_per_second, b.stats.decode_tokens_per_second) for a, b in zip(mine, base, strict=True)
    ]
    identical = all(a.token_ids == b.token_ids for a, b in zip(mine, base, strict=True))
    ids = (mine[0].token_ids[DIFFERS_AT], base[0].token_ids[DIFFERS_AT]) if not identical else (0, 0)
    difference = None if identical else Difference(DIFFERS_AT, *ids, 0.0123, 0.02)
    return LaneResult(spec, tuple(mine), speedup([a / b for a, b in rates if a and b]), identical, difference)
