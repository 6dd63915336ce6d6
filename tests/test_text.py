"""Text is shown in whole characters, never a part of a stop string, and the parts joined equal the whole."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from specui.engine.text import TextStream

KOREAN = "안녕하세요, 세계! 한국어 문장입니다."
FAMILY = "👨‍👩‍👧‍👦 and 🏳️‍🌈 and 👍🏽!"
CHINESE = "你好，世界"
TEXTS = [KOREAN, FAMILY, CHINESE, "naïve café", "a\0b\n\n\tc"]


def stream(parts: list[bytes], stop: tuple[str, ...] = ()) -> tuple[TextStream, list[str]]:
    """Push the parts until a stop; return the stream and what was visible after each."""
    text = TextStream(stop)
    seen = []
    for part in parts:
        stopped = text.push(part)
        seen.append(text.text)
        if stopped:
            break
    return text, seen


def assert_only_grows(seen: list[str], whole: str) -> None:
    for before, after in zip(seen, [*seen[1:], whole], strict=True):
        assert after.startswith(before), f"shown text was taken back: {before!r} then {after!r}"


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_characters_split_anywhere_are_never_shown_in_part(text: str, size: int) -> None:
    raw = text.encode()
    parts = [raw[i : i + size] for i in range(0, len(raw), size)]
    result, seen = stream(parts)
    assert result.finish() == text
    assert all("\N{REPLACEMENT CHARACTER}" not in each for each in seen)
    assert_only_grows(seen, text)
    assert "".join(result.pieces()) == text
    assert len(result.pieces()) == len(parts)


@pytest.mark.parametrize("cut", range(1, len(FAMILY.encode()) + 1))
def test_a_text_cut_anywhere_drops_its_unfinished_tail(cut: int) -> None:
    raw = FAMILY.encode()[:cut]
    result, _ = stream([raw[: cut // 2], raw[cut // 2 :]])
    want = raw.decode("utf-8", "ignore")
    assert result.finish() == want
    assert "".join(result.pieces()) == want


def test_a_piece_is_the_text_that_its_token_completed() -> None:
    raw = "한".encode()
    result, _ = stream([b"a", raw[:1], raw[1:2], raw[2:], b"b"])
    result.finish()
    assert result.pieces() == ["a", "", "", "한", "b"]


def test_bytes_that_can_never_be_a_character_are_replaced_and_do_not_hold_up_the_rest() -> None:
    result, seen = stream([b"\xff", b"ok"])
    assert seen[-1] == result.finish() == "\N{REPLACEMENT CHARACTER}ok"


@pytest.mark.parametrize("split", range(1, len("say END now")))
def test_a_stop_string_split_anywhere_is_never_shown(split: int) -> None:
    raw = b"say END now"
    result, seen = stream([raw[:split], raw[split:]], ("END",))
    assert result.stopped
    assert result.finish() == result.text == "say "
    assert not any("E" in each for each in seen)
    assert "".join(result.pieces()) == "say "


def test_a_beginning_that_fails_is_shown_at_once() -> None:
    _, seen = stream([b"x E", b"N", b"D", b"E"], ("ENDING",))
    assert seen == ["x ", "x ", "x ", "x END"], "ENDE can begin no ENDING any more, but its last E can"


def test_what_is_held_for_a_stop_string_is_flushed_at_the_end() -> None:
    result, seen = stream([b"almost EN"], ("END",))
    assert seen == ["almost "]
    assert result.finish() == "almost EN"
    assert result.pieces() == ["almost EN"]


def test_a_failed_beginning_that_holds_the_next_beginning() -> None:
    result, seen = stream([b"a", b"a", b"a", b"b"], ("aab",))
    assert seen == ["", "", "a", "a"]
    assert result.stopped
    assert result.finish() == "a"


def test_the_earliest_of_several_stop_strings_wins() -> None:
    result, _ = stream([b"one two three"], ("three", "two"))
    assert result.finish() == "one "
    result, _ = stream([b"x", b"y", b"ab"], ("yab", "ab"))
    assert result.finish() == "x"


def test_a_stop_string_of_characters_that_are_split() -> None:
    raw = "좋아요。끝 그리고".encode()
    for split in range(1, len(raw)):
        result, seen = stream([raw[:split], raw[split:]], ("끝",))
        assert result.finish() == "좋아요。"
        assert_only_grows(seen, "좋아요。")


def test_a_stop_string_alone_leaves_nothing() -> None:
    result, _ = stream([b"\n\n"], ("\n",))
    assert result.finish() == ""
    assert result.pieces() == [""]


def test_tokens_without_text_count_as_pieces() -> None:
    result, _ = stream([b"a", b"", b"b"])
    assert result.finish() == "ab"
    assert result.pieces() == ["a", "", "b"]


@pytest.mark.parametrize("seed", range(150))
def test_random_texts_and_stops_agree_with_a_plain_search(seed: int) -> None:
    rng = np.random.default_rng(seed)
    text = "".join(rng.choice(list("ab한👍"), size=30))
    stop = tuple("".join(rng.choice(list("ab한👍"), size=rng.integers(1, 5))) for _ in range(rng.integers(0, 3)))
    raw = text.encode()
    cuts = sorted({0, len(raw), *rng.integers(0, len(raw), size=12).tolist()})
    result, seen = stream([raw[a:b] for a, b in pairwise(cuts)], stop)
    # The stop that is complete first ends the text: what stands behind it was never written.
    ends = [text.find(each) + len(each) for each in stop if each in text]
    hit = min((text.find(each) for each in stop if each in text), default=len(text))
    if not ends:
        assert result.finish() == text
    else:
        assert result.stopped
        assert all(each not in result.finish() for each in stop)
        assert text.startswith(result.text) and len(result.text) >= hit
    assert_only_grows(seen, result.finish())
    assert "".join(result.pieces()) == result.text
