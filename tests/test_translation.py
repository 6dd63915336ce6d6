"""Drafts from another vocabulary, on toy tokenizers: boundaries, open ends, characters cut in two, markup, spaces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from fake_model import Script
from toy_text import BYTES_ONLY, HALVES, PLAIN, SPACED, STORY, TOYS, WHOLE_WORDS, Toy, begun, propose, reading, writer

from specui.engine.sampling import Logits
from specui.engine.stats import TranslationCounts
from specui.engine.translation import MAX_DRAFT_RATIO, DraftText, Seam, Spelling


@pytest.mark.parametrize("target", TOYS.values(), ids=TOYS)
@pytest.mark.parametrize("draft", TOYS.values(), ids=TOYS)
class TestEveryPair:
    """A draft that knows the text, at every place of it."""

    def test_a_whole_text_comes_out_in_the_targets_own_ids(self, target: Toy, draft: Toy) -> None:
        ids = target.split(STORY.encode())
        for cut in range(1, len(ids)):
            drafter = begun(target, draft, _knowing(STORY, target, draft), ids[:cut])
            assert list(propose(drafter, ids[:cut], 100).tokens) == ids[cut:]

    @pytest.mark.parametrize("limit", [1, 3, 6])
    def test_a_cut_text_is_continued_within_the_limits(self, target: Toy, draft: Toy, limit: int) -> None:
        ids, right, proposed = target.split(STORY.encode()), 0, 0
        for cut in range(1, len(ids)):
            drafter = begun(target, draft, _knowing(STORY, target, draft), ids[:cut])
            tokens = list(propose(drafter, ids[:cut], limit).tokens)
            assert STORY.encode().startswith(target.text_of([*ids[:cut], *tokens]))
            assert len(tokens) <= limit
            assert drafter.counts.draft_tokens_written <= MAX_DRAFT_RATIO * limit
            proposed += len(tokens)
            right += next((i for i, (a, b) in enumerate(zip(tokens, ids[cut:], strict=False)) if a != b), len(tokens))
        assert right >= 0.65 * proposed > 0, "wrong only where the text ends in mid-word"


def _knowing(story: str, target: Toy, draft: Toy) -> Script:
    """Return a draft model that writes `story`; of a spaced target's text the draft sees no space in front."""
    return writer(draft, reading(story.removeprefix(" ") if target.spaced else story))


@pytest.mark.parametrize(
    ("committed", "writes", "proposed"),
    [
        (" the", " house is", [" house", " is"]),
        (" the house is big", "ger", ["g", "er"]),
        ("a", "bc", []),
        ("xa", "bcb", []),
        ("ab", " a", [" a"]),
        ("\n", "a", ["a"]),
        ("\n", "\na", []),
        ("x", "\n\na", ["\n\n", "a"]),
        ("한", "국", []),
        ("x ", "한국 the", ["한국", " the"]),
    ],
)
def test_the_boundary_must_be_one_of_the_text_as_a_whole(committed: str, writes: str, proposed: list[str]) -> None:
    """Where the target wrote `a` and the text goes on with `bc`, it did not mean `abc`, which would be one token."""
    ids = PLAIN.split(committed.encode())
    draft = begun(PLAIN, BYTES_ONLY, writer(BYTES_ONLY, reading(committed + writes)), ids)
    tokens = propose(draft, ids, 20).tokens
    assert [PLAIN.piece(token).decode() for token in tokens] == proposed
    assert draft.counts.texts_dropped == (not proposed)


class TestOpenEnd:
    """The last id may be the beginning of a longer one."""

    def test_a_draft_that_ends_by_itself_is_taken_whole(self) -> None:
        draft = begun(PLAIN, BYTES_ONLY, writer(BYTES_ONLY, reading("x ab")), PLAIN.split(b"x"))
        assert PLAIN.text_of(propose(draft, PLAIN.split(b"x"), 8).tokens) == b" ab"

    def test_shorter_tokens_of_the_draft_leave_the_last_id_out(self) -> None:
        draft = Toy([" th", "e", " ho", "use"])
        committed = PLAIN.split(b" the house")
        drafter = begun(PLAIN, draft, writer(draft, reading(" the house" * 4)), committed)
        assert PLAIN.text_of(propose(drafter, committed, 2).tokens) == b" the"
        assert drafter.counts.draft_tokens_written == 4

    def test_tokens_of_the_same_length_need_no_more_than_the_limit(self) -> None:
        script = writer(PLAIN, reading("x the house is big"))
        draft = begun(PLAIN, PLAIN, script, PLAIN.split(b"x"))
        assert [PLAIN.piece(t) for t in propose(draft, PLAIN.split(b"x"), 3).tokens] == [b" the", b" house", b" is"]
        assert draft.counts.draft_tokens_written == 3

    def test_an_unsure_guess_ends_the_draft_and_shows_how_it_may_go_on(self) -> None:
        confident = writer(BYTES_ONLY, reading("xab the"))

        def script(tokens: Sequence[int]) -> Logits:
            row = confident(tokens)
            return row * np.float32(0.05) if tokens[-1:] == [ord("b")] else row

        draft = begun(PLAIN, BYTES_ONLY, script, PLAIN.split(b"x"), p_min=0.5)
        assert [PLAIN.piece(t) for t in propose(draft, PLAIN.split(b"x"), 8).tokens] == [b"ab"]
        assert draft.counts == TranslationCounts(2, 1, 0)

        def unsure_of_c(tokens: Sequence[int]) -> Logits:
            row = writer(BYTES_ONLY, reading("xabc"))(tokens)
            return row * np.float32(0.05) if tokens[-1:] == [ord("b")] else row

        draft = begun(PLAIN, BYTES_ONLY, unsure_of_c, PLAIN.split(b"x"), p_min=0.5)
        assert list(propose(draft, PLAIN.split(b"x"), 8).tokens) == [], "the text may go on to abc"


class TestCharacters:
    """A character cut in two by either tokenizer."""

    @pytest.mark.parametrize("cut", range(1, 12))
    @pytest.mark.parametrize("draft", [BYTES_ONLY, HALVES, WHOLE_WORDS], ids=["bytes", "halves", "whole"])
    def test_a_committed_half_is_completed(self, cut: int, draft: Toy) -> None:
        """The draft model sees whole characters only, so it writes the cut one anew."""
        text = "x한👍é한".encode()
        committed = BYTES_ONLY.split(text[:cut])
        drafter = begun(BYTES_ONLY, draft, writer(draft, reading(text.decode())), committed)
        tokens = propose(drafter, committed, 20).tokens
        assert BYTES_ONLY.text_of(tokens) == text[cut:]

    def test_a_draft_that_goes_on_with_another_character_is_dropped(self) -> None:
        committed = BYTES_ONLY.split("x한".encode()[:-1])
        drafter = begun(BYTES_ONLY, HALVES, writer(HALVES, reading("x👍👍")), committed)
        assert len(propose(drafter, committed, 8)) == 0
        assert drafter.counts.texts_dropped == 1
        assert drafter.counts.draft_tokens_written == 1, "its first token tells"

    def test_a_half_character_at_the_end_of_a_draft_is_not_proposed(self) -> None:
        committed = PLAIN.split(b"x")
        drafter = begun(PLAIN, BYTES_ONLY, writer(BYTES_ONLY, reading("xa👍")), committed)
        assert PLAIN.text_of(propose(drafter, committed, 2).tokens) == b"a"

    def test_a_draft_of_bytes_that_are_no_text_is_dropped(self) -> None:
        committed = PLAIN.split(b"x")
        script = writer(BYTES_ONLY, lambda raw: b"\xff\xfe" if raw == b"x" else b"")
        drafter = begun(PLAIN, BYTES_ONLY, script, committed)
        assert len(propose(drafter, committed, 8)) == 0

    def test_committed_bytes_that_are_no_text_do_not_stop_drafting_for_good(self) -> None:
        committed = PLAIN.split(b"\xff\xfe the")
        drafter = begun(PLAIN, WHOLE_WORDS, writer(WHOLE_WORDS, lambda raw: b" big is"), committed)
        assert PLAIN.text_of(propose(drafter, committed, 3).tokens).startswith(b" big")


class Lowering(Toy):
    """A tokenizer that does not give back what it is given."""

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        """Return the ids of the text in small letters."""
        return super().tokenize(text.lower(), add_special, parse_special)


@pytest.mark.parametrize(("writes", "proposed"), [(" a ABC", b" a "), ("B", b""), (" ab", b" ab")])
def test_ids_whose_bytes_are_not_the_drafts_are_not_proposed(writes: str, proposed: bytes) -> None:
    target = Lowering([" the", " house"])
    committed = target.split(b"x")
    drafter = begun(target, PLAIN, writer(PLAIN, reading("x" + writes)), committed)
    assert target.text_of(propose(drafter, committed, 20).tokens) == proposed


class Forgetting(Toy):
    """A tokenizer that knows no `b` and writes a token without text for it."""

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        """Return the ids of the text with a control token for each `b`."""
        return super().tokenize(text.replace("b", "<odd>"), add_special, parse_special="b" in text)


def test_a_letter_that_the_target_does_not_know_ends_the_draft() -> None:
    target = Forgetting([" the", " house"], ["<end>", "<odd>"])
    committed = target.split(b"x")
    drafter = begun(target, PLAIN, writer(PLAIN, reading("x the b house")), committed)
    tokens = propose(drafter, committed, 20).tokens
    assert tokens == target.split(b" the ")


CHAT = Toy([" the", " house", "user", "model"], ["<end>", "<turn>", "<odd>", "<s>"], opening="<s>")
OTHER_CHAT = Toy([" the house", "us", "er"], ["<turn>", "<begin>", "<end>"], opening="<begin>")


class TestMarkup:
    """Control tokens have a spelling in one vocabulary and often none in the other."""

    def test_markup_of_both_becomes_the_drafts_and_other_markup_plain_text(self) -> None:
        prompt = CHAT.tokenize("<turn>user the house<odd>a<end>", add_special=True, parse_special=True)
        text = DraftText(Spelling(CHAT), Spelling(OTHER_CHAT))
        text.read(prompt)
        begin, turn, end = (OTHER_CHAT.controls[name] for name in ("<begin>", "<turn>", "<end>"))
        middle = OTHER_CHAT.split(b"user the house<odd>a")
        assert text.ids == [begin, turn, *middle, end], "and each opens with its own"

    def test_a_half_character_in_front_of_markup_is_shown_as_unreadable(self) -> None:
        text = DraftText(Spelling(CHAT), Spelling(OTHER_CHAT))
        text.read([*CHAT.split("x한".encode()[:-1]), CHAT.controls["<turn>"], *CHAT.split(b"a")])
        begin, turn = (OTHER_CHAT.controls[name] for name in ("<begin>", "<turn>"))
        assert text.ids == [begin, *OTHER_CHAT.split("x\ufffd".encode()), turn, *OTHER_CHAT.split(b"a")]
        assert text.held == b""

    def test_a_prompt_without_its_opening_is_read_from_its_first_token(self) -> None:
        text = DraftText(Spelling(CHAT), Spelling(PLAIN))
        text.read(CHAT.split(b"user"))
        assert text.ids == PLAIN.split(b"user")

    def test_the_tail_does_not_reach_over_markup(self) -> None:
        committed = [*CHAT.split(b"house"), CHAT.controls["<turn>"], *CHAT.split(b"user")]
        spelling = Spelling(CHAT)
        text = DraftText(spelling, Spelling(PLAIN))
        text.read(committed)
        assert Seam(spelling, Spelling(PLAIN), committed, text).tail == CHAT.split(b"user")

    def test_behind_markup_the_draft_starts_on_its_own(self) -> None:
        committed = [*CHAT.split(b"x"), CHAT.controls["<turn>"]]
        drafter = begun(CHAT, OTHER_CHAT, writer(OTHER_CHAT, reading("xuser the house")), committed)
        assert CHAT.text_of(propose(drafter, committed, 8).tokens) == b"user the house"

    @pytest.mark.parametrize("name", ["<end>", "<turn>"])
    def test_a_control_token_of_the_draft_ends_it_and_is_not_proposed(self, name: str) -> None:
        def script(tokens: Sequence[int]) -> Logits:
            row = np.zeros(OTHER_CHAT.n_vocab, np.float32)
            said = OTHER_CHAT.text_of(tokens).endswith(b" the house")
            row[OTHER_CHAT.controls[name] if said else OTHER_CHAT.split(b" the house")[0]] = 9.0
            return row

        committed = CHAT.split(b"x")
        drafter = begun(CHAT, OTHER_CHAT, script, committed)
        assert CHAT.text_of(propose(drafter, committed, 8).tokens) == b" the house"
        assert drafter.counts == TranslationCounts(1, 2, 0)

    def test_an_end_that_has_a_text_ends_the_draft_as_well(self) -> None:
        """Files may list their end of turn as a plain token."""
        draft = Toy([" the", " bye"])
        draft.end_tokens = frozenset(draft.split(b" bye"))
        committed = CHAT.split(b"x")
        drafter = begun(CHAT, draft, writer(draft, reading("x the bye the")), committed)
        assert CHAT.text_of(propose(drafter, committed, 20).tokens) == b" the"

    @pytest.mark.parametrize("name", ["<end>", "<turn>", "<odd>"])
    def test_markup_written_as_text_is_proposed_as_text(self, name: str) -> None:
        committed = CHAT.split(b"x")
        drafter = begun(CHAT, PLAIN, writer(PLAIN, reading(f"x{name}")), committed)
        tokens = propose(drafter, committed, 20).tokens
        assert CHAT.text_of(tokens) == name.encode()
        assert not set(tokens) & set(CHAT.controls.values())


class TestSpaces:
    """SentencePiece puts a space in front of every text it is given."""

    def test_who_adds_one(self) -> None:
        assert [Spelling(toy).adds_space for toy in (PLAIN, SPACED)] == [False, True]
        assert [Spelling(toy).opening for toy in (PLAIN, SPACED)] == [[], [SPACED.controls["<s>"]]]

    @pytest.mark.parametrize("text", [" the house", "ab", " ", "  the", "\n the", "한"])
    def test_a_text_behind_others_gets_none(self, text: str) -> None:
        assert Spelling(SPACED).continuing(text) == SPACED.split(text.encode())

    @pytest.mark.parametrize(
        ("target", "draft"), [(PLAIN, SPACED), (SPACED, PLAIN), (SPACED, SPACED)], ids=["draft", "target", "both"]
    )
    def test_the_first_word_of_an_answer(self, target: Toy, draft: Toy) -> None:
        """Behind markup a tokenizer that adds a space writes ` house` for `house`."""
        committed = target.tokenize("the<end>", add_special=False, parse_special=True)
        story = "the" + (" " if draft.spaced else "") + "house is"
        drafter = begun(target, draft, writer(draft, reading(story)), committed)
        tokens = list(propose(drafter, committed, 20).tokens)
        assert tokens == target.tokenize("house is", add_special=False, parse_special=False)
