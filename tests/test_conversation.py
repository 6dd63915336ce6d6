"""Conversations to and from JSON, what they ask the model, and how an answer in the making comes back."""

from __future__ import annotations

import pytest

from specui.engine.stats import RatePoint, Stats
from specui.generation import Progress, TokenPiece
from specui.ui.conversation import MAX_KEPT_RATES, Answer, Conversation, Partial, Turn, thin

ANSWER = Answer(
    "Hi <b>", "stopped", Stats(completion_tokens=2, accepted_per_position=(0.5,)), origins="ta", lengths=(2, 4)
)


def asked(*questions: str) -> Conversation:
    conversation = Conversation()
    for question in questions:
        conversation = conversation.ask(question)
    return conversation


def test_a_conversation_survives_json() -> None:
    conversation = asked("One </script>").with_turn(0, Turn("One </script>", ANSWER, "why"))
    assert Conversation.from_json(conversation.to_json()) == conversation
    assert "<" not in conversation.to_json(), "gradio takes it for the start of a script"


@pytest.mark.parametrize(
    "kept",
    ["", None, "nonsense", "[]", '{"turns": 3}', '{"turns": [{"answer": {"text": 7}}]}', '{"id": "x", "turns": [1]}'],
)
def test_what_is_no_conversation_gives_an_empty_one(kept: str | None) -> None:
    assert not Conversation.from_json(kept).turns


def test_turns_without_an_answer_are_left_out_of_the_prompt() -> None:
    turns = (Turn("a", ANSWER), Turn("b"), Turn("c", Answer(" ")), Turn("d", ANSWER), Turn("e"))
    messages = Conversation("x", turns).messages("Be brief.")
    assert [message.role for message in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert [message.content for message in messages[1::2]] == ["a", "d", "e"]
    assert Conversation("x", turns[:1]).messages("  ")[0].role == "user", "a blank system prompt is none"


def test_asking_at_a_turn_cuts_there() -> None:
    conversation = asked("a", "b", "c")
    cut = conversation.ask("B", at=1)
    assert [turn.question for turn in cut.turns] == ["a", "B"]
    assert cut.id == conversation.id
    assert cut.undo().undo().undo().turns == ()


def test_a_partial_answer_is_put_in_its_place_only() -> None:
    conversation = asked("a", "b")
    partial = Partial(conversation.id, 1, Turn("b", ANSWER))
    merged = Conversation.from_json(conversation.to_json(), partial.to_json())
    assert merged.turns[1].answer == ANSWER
    for other in (asked("a", "b"), conversation.undo(), conversation.ask("B", at=1), merged):
        assert Conversation.from_json(other.to_json(), partial.to_json()) == other
    assert Conversation.from_json(conversation.to_json(), "{}") == Conversation()


def test_an_answer_in_the_making_counts_as_stopped() -> None:
    pieces = (TokenPiece(1, "A", "target"), TokenPiece(2, "", "accepted"), TokenPiece(3, " b", "bonus"))
    answer = Answer.of(Progress(phase="decode", text="A b", pieces=pieces))
    assert (answer.status, answer.origins, answer.lengths) == ("stopped", "tab", (1, 0, 2))
    assert Answer.of(Progress(phase="done", finish_reason="length")).status == "cut"
    assert Answer.of(Progress(phase="done", finish_reason="stop")).status == "done"


def test_long_charts_are_thinned_and_keep_their_modes_and_end() -> None:
    points = [RatePoint(0.1 * i, 10.0, None, "none" if i < 700 else "auto") for i in range(1001)]
    kept = thin(tuple(points))
    assert MAX_KEPT_RATES / 4 < len(kept) <= MAX_KEPT_RATES
    assert kept[-1].decode_seconds == points[-1].decode_seconds
    assert [point.speculation_used for point in kept] == sorted(
        (point.speculation_used for point in kept), reverse=True
    )
    assert all(point.tokens_per_second == pytest.approx(10.0) for point in kept)
