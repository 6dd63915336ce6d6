"""The handle of an answer: snapshots, waiting, cancelling, and errors that reach whoever asks for the result."""

from __future__ import annotations

import threading

import pytest

from specui.config import SamplingSettings, StepSettings
from specui.errors import BusyError
from specui.generation import Generation, GenerationRequest, Progress, TokenPiece

HANG_SECONDS = 20


@pytest.fixture
def generation() -> Generation:
    return Generation(GenerationRequest(prompt="x"))


def test_a_new_generation_is_queued(generation: Generation) -> None:
    assert generation.progress == Progress()
    assert not generation.progress.over
    assert not generation.cancelled.is_set()


def test_each_snapshot_is_one_version_up(generation: Generation) -> None:
    generation.publish(Progress(phase="prefill", version=77))
    generation.publish(Progress(phase="decode"))
    assert (generation.progress.version, generation.progress.phase) == (2, "decode")


def test_ids_and_origins_come_from_the_pieces() -> None:
    progress = Progress(pieces=(TokenPiece(4, "a", "target"), TokenPiece(9, "", "accepted")))
    assert progress.token_ids == (4, 9)
    assert progress.token_origins == ("target", "accepted")


def test_wait_returns_what_was_not_seen_yet(generation: Generation) -> None:
    assert generation.wait(seen=0, timeout_seconds=0).version == 0
    generation.publish(Progress(phase="decode", text="a"))
    assert generation.wait(seen=0).text == "a"
    assert generation.wait(seen=1, timeout_seconds=0).version == 1
    generation.publish(Progress(phase="done"))
    assert generation.wait(seen=99, timeout_seconds=HANG_SECONDS).over, "an answer that is over keeps nobody waiting"


def test_wait_is_woken_by_a_snapshot(generation: Generation) -> None:
    seen: list[Progress] = []
    thread = threading.Thread(target=lambda: seen.append(generation.wait(seen=0, timeout_seconds=HANG_SECONDS)))
    thread.start()
    generation.publish(Progress(phase="decode", text="woken"))
    thread.join(HANG_SECONDS)
    assert [progress.text for progress in seen] == ["woken"]


def test_result_blocks_until_the_end(generation: Generation) -> None:
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(generation.result().text))
    thread.start()
    generation.publish(Progress(phase="decode", text="half"))
    assert results == []
    generation.publish(Progress(phase="done", text="whole"))
    thread.join(HANG_SECONDS)
    assert results == ["whole"]


def test_result_raises_what_ended_the_answer(generation: Generation) -> None:
    generation.publish(Progress(phase="failed", error=BusyError(8)))
    assert generation.progress.over
    with pytest.raises(BusyError):
        generation.result()


def test_update_changes_what_the_next_step_reads_and_leaves_the_request(generation: Generation) -> None:
    settings = StepSettings(SamplingSettings(temperature=0.5))
    generation.update(settings)
    assert generation.settings is settings
    assert generation.request.settings == StepSettings()


def test_cancel_acts_once_per_call_and_at_once_where_it_came_first(generation: Generation) -> None:
    calls: list[str] = []
    generation.when_cancelled(lambda: calls.append("queued"))
    generation.cancel()
    assert calls == ["queued"]
    generation.when_cancelled(lambda: calls.append("running"))
    assert calls == ["queued", "running"]
    generation.when_cancelled(None)
    generation.cancel()
    assert calls == ["queued", "running"]
    assert generation.cancelled.is_set()


def test_the_action_of_a_cancel_may_publish(generation: Generation) -> None:
    generation.when_cancelled(lambda: generation.publish(Progress(phase="done", finish_reason="cancelled")))
    generation.cancel()
    assert generation.result().finish_reason == "cancelled"


def test_after_the_action_is_taken_away_it_is_not_running(generation: Generation) -> None:
    started, release, ended = threading.Event(), threading.Event(), []

    def action() -> None:
        started.set()
        assert release.wait(HANG_SECONDS)
        ended.append(True)

    generation.when_cancelled(action)
    canceller = threading.Thread(target=generation.cancel)
    canceller.start()
    assert started.wait(HANG_SECONDS)
    threading.Timer(0.05, release.set).start()
    generation.when_cancelled(None)
    assert ended == [True], "taking the action away waits for one that runs"
    canceller.join(HANG_SECONDS)
