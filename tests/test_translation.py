"""Drafts from another vocabulary, on toy tokenizers: boundaries, characters cut in two, markup, and the loop."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from fake_model import FakeCache, FakeDrafters, Plan, Script, answer, assert_counts, check_cache

from specui.config import DraftingSettings, SamplingSettings, SpeculationMode
from specui.engine.dice import Dice
from specui.engine.drafting import Drafter, Outcome, Proposal
from specui.engine.sampling import Logits
from specui.engine.translation import (
    MAX_DRAFT_RATIO,
    MAX_OPEN_BYTES,
    SETTLE_BYTES,
    DraftText,
    Seam,
    Spelling,
    TranslatedDraft,
    TranslationCounts,
)
from specui.engine.verification import EMPTY_DRAFT, Draft
from specui.errors import DecodeError

LETTERS = ["a", "b", "c", " ", "\n", "é", "한", "👍"]
N_BYTES = 256


class Toy:
    """A tokenizer that takes the longest token that fits: ids 0 to 255 are the bytes, then words, then control tokens.

    `spaced`: with a space put in front of every text, as SentencePiece has it. `opening`: a control token in front.
    """

    def __init__(
        self,
        words: Sequence[str | bytes],
        controls: Sequence[str] = ("<end>",),
        spaced: bool = False,
        opening: str = "",
    ) -> None:
        self.pieces = [bytes([i]) for i in range(N_BYTES)]
        self.pieces += [word.encode() if isinstance(word, str) else word for word in words]
        self.controls = {text: len(self.pieces) + i for i, text in enumerate(controls)}
        self.n_vocab = len(self.pieces) + len(controls)
        self.end_tokens = frozenset({self.controls["<end>"]})
        self.num_bytes_read = 0
        self.spaced = spaced
        self._opening = [self.controls[opening]] if opening else []
        self._ids = {piece: i for i, piece in enumerate(self.pieces)}
        self._longest = max(map(len, self.pieces))

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        """Return ids as `llama.Model.tokenize` does."""
        self.num_bytes_read += len(text.encode())
        ids = list(self._opening) if add_special else []
        while text:
            found = [(text.index(c), c) for c in self.controls if c in text] if parse_special else []
            place, control = min(found, default=(len(text), ""))
            if place:
                ids += self.split((" " if self.spaced else "").encode() + text[:place].encode())
            if control:
                ids.append(self.controls[control])
            text = text[place + len(control) :]
        return ids

    def split(self, raw: bytes) -> list[int]:
        """Return the ids of `raw`, longest first from the left."""
        ids = []
        while raw:
            size = next(n for n in range(min(self._longest, len(raw)), 0, -1) if raw[:n] in self._ids)
            ids.append(self._ids[raw[:size]])
            raw = raw[size:]
        return ids

    def piece(self, token_id: int) -> bytes:
        """Return a token's bytes."""
        return self.pieces[token_id] if token_id < len(self.pieces) else b""

    def token_text(self, token_id: int) -> str:
        """Return the spelling of a token."""
        names = {i: text for text, i in self.controls.items()}
        return names.get(token_id) or self.pieces[token_id].decode("utf-8", "replace")

    def text_of(self, ids: Sequence[int]) -> bytes:
        """Return the bytes of `ids`."""
        return b"".join(map(self.piece, ids))


PLAIN = Toy([" the", " house", " is", " big", "er", "ab", "abc", " a", "한국", "\n\n"])
BYTES_ONLY = Toy([])
WHOLE_WORDS = Toy([" the house", " is bigger", " is", " big", "ger", "bc", "한", "국어", "👍"])
HALVES = Toy([" th", "e h", "ou", "se", b"\xed\x95", b"\x9c\xea", b"\xf0\x9f", b"\x91\x8d"])
SPACED = Toy([" the", " house", " is", "ab"], ["<end>", "<s>"], spaced=True, opening="<s>")
TOYS = {"plain": PLAIN, "bytes": BYTES_ONLY, "whole words": WHOLE_WORDS, "halves": HALVES, "spaced": SPACED}


def random_toy(seed: int, spaced: bool = False) -> Toy:
    """Return a tokenizer whose words hold blanks at the front only, as real ones do."""
    rng = np.random.default_rng(seed)
    solid = [letter for letter in LETTERS if not letter.isspace()]
    words: list[str | bytes] = ["".join(rng.choice(solid, size=rng.integers(2, 5))) for _ in range(20)]
    words += [" " + "".join(rng.choice(solid, size=rng.integers(1, 4))) for _ in range(15)]
    words += [b"\xed\x95", b"\xf0\x9f", b"\x91\x8d", "\n\n", " \n"]
    return Toy(list(dict.fromkeys(words)), spaced=spaced)


def random_text(seed: int, length: int) -> str:
    return "".join(np.random.default_rng(seed).choice(LETTERS, size=length))


Continue = Callable[[bytes], bytes]
"""From a text to what follows it."""


def rambling(seed: int, wrong: float = 0.0) -> Continue:
    """Return a writer whose next letter depends on the last two; with a chance of `wrong`, on something else."""

    def next_letter(text: str) -> str:
        key = zlib.crc32(f"{seed}:{text[-2:]}".encode())
        strange = zlib.crc32(f"{key}:{text[-5:]}".encode()) % 1000 < 1000 * wrong
        return LETTERS[(key // 7 + strange) % len(LETTERS)]

    def go_on(raw: bytes) -> bytes:
        start = len(raw)
        text = raw.decode("utf-8", "ignore")
        whole = len(text.encode())
        for _ in range(16):
            text += next_letter(text)
        return text.encode()[start - whole + len(raw[:whole]) :]

    return go_on


def reading(story: str) -> Continue:
    """Return a writer that knows one text only."""
    return lambda raw: story.encode()[len(raw) :] if story.encode().startswith(raw) else b""


def writer(toy: Toy, go_on: Continue, peak: float = 20.0) -> Script:
    """Return a model that writes `go_on` in the tokens of `toy`, and its end where nothing follows.

    The logit of its best token is `peak`, that of all others 0.
    """

    def script(tokens: Sequence[int]) -> Logits:
        follows = go_on(toy.text_of(tokens).removeprefix(b" " if toy.spaced else b""))
        row = np.zeros(toy.n_vocab, np.float32)
        row[toy.split(follows)[0] if follows else next(iter(toy.end_tokens))] = peak
        return row

    return script


def propose(drafter: Drafter, committed: Sequence[int], limit: int) -> Draft:
    return drafter.propose(Proposal(list(committed), limit, SamplingSettings(), Dice(0)))


def outcome(length: int, draft: Draft, accepted: int) -> Outcome:
    return Outcome(length, draft, accepted, len(draft) + 1, 0.0, 0.0)


def begun(target: Toy, draft: Toy, script: Script, prompt: Sequence[int], p_min: float = 0.0) -> TranslatedDraft:
    drafter = TranslatedDraft(FakeCache(script), target, draft, p_min)
    for _ in drafter.begin(prompt):
        pass
    return drafter


STORY = " the house is bigger than ab abc 한국어 👍👍 the house"


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


@pytest.mark.parametrize("spaced", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_reading_bit_by_bit_gives_the_ids_of_the_whole_text(seed: int, spaced: bool) -> None:
    target, draft = random_toy(seed), random_toy(seed + 1000, spaced)
    raw = random_text(seed, 300).encode()
    ids = target.split(raw)
    text = DraftText(Spelling(target), Spelling(draft))
    rng, read = np.random.default_rng(seed), 0
    while read < len(ids):
        count = int(rng.integers(1, 30))
        text.read(ids[read : read + count])
        read += count
        done = target.text_of(ids[:read])
        whole = done[: len(done) - len(text.held)].decode()
        assert text.ids == draft.tokenize(whole, add_special=False, parse_special=False)
    assert text.num_read >= len(ids)
    assert text.open_from > 0, "a text of 300 characters settles"


@pytest.mark.parametrize("length", [2_000, 40_000])
def test_a_step_reads_no_more_of_a_long_text(length: int) -> None:
    target, draft = random_toy(1), random_toy(2)
    ids = target.split(random_text(3, length).encode())
    drafter = TranslatedDraft(FakeCache(writer(draft, rambling(1)), n_ctx=10**6), target, draft)
    for _ in drafter.begin(ids[:-20]):
        pass
    for cut in range(len(ids) - 20, len(ids)):
        target.num_bytes_read = draft.num_bytes_read = 0
        drafter.accept(outcome(cut, propose(drafter, ids[:cut], 4), 0))
        assert draft.num_bytes_read < 2 * (SETTLE_BYTES + 10 * 100)
        assert target.num_bytes_read < MAX_DRAFT_RATIO * 4 * 200


def test_a_text_that_no_tokenizer_gives_back_stays_cheap() -> None:
    target, draft = random_toy(1), random_toy(2)
    text = DraftText(Spelling(target), Spelling(draft))
    read = 0
    for place in range(900):
        draft.num_bytes_read = 0
        text.read([200 + place % 50])
        read = max(read, draft.num_bytes_read)
    assert read < 12 * MAX_OPEN_BYTES


@pytest.mark.parametrize("seed", range(30))
def test_what_is_proposed_always_continues_the_committed_text_as_the_draft_wrote_it(seed: int) -> None:
    target, draft = random_toy(seed), random_toy(seed + 1000, spaced=seed % 3 == 0)
    go_on = rambling(seed)
    ids = target.split(random_text(seed, 120).encode())
    drafter = TranslatedDraft(FakeCache(writer(draft, go_on)), target, draft)
    proposed = 0
    for cut in range(1, len(ids)):
        committed = ids[:cut]
        tokens = propose(drafter, committed, 1 + cut % 6).tokens
        before, text = target.text_of(committed), target.text_of(tokens)
        assert go_on(before).startswith(text), f"behind {before!r}"
        if tokens:
            assert target.split(before + text) == [*committed, *tokens]
        proposed += len(tokens)
    assert proposed > 50


class TranslatedDrafters(FakeDrafters):
    """A lane's rules with a drafter for each answer."""

    def __init__(self, cache: FakeCache, target: Toy, draft: Toy) -> None:
        super().__init__(cache)
        self._parts = (cache, target, draft)
        self.drafter: TranslatedDraft | None = None

    def begin_answer(self) -> None:
        super().begin_answer()
        self.drafter = None

    def pick(self, drafting: DraftingSettings) -> tuple[Drafter, SpeculationMode, str | None]:
        if drafting.speculation != "draft-model" or "draft-model" in self.failed:
            return super().pick(drafting)
        self.picked = "draft-model"
        self.drafter = self.drafter or TranslatedDraft(*self._parts, drafting.draft_p_min)
        return self.drafter, "draft-model", None


@pytest.mark.parametrize("wrong", [0.0, 0.1])
@pytest.mark.parametrize("cap", [1, 2, 5, 16])
def test_greedy_ids_equal_mode_none(cap: int, wrong: float) -> None:
    accepted = drafted = 0
    for seed in range(15):
        target, draft = random_toy(seed), random_toy(seed + 1000, spaced=seed % 3 == 0)
        script = writer(target, rambling(seed))
        plan = Plan(target.split(random_text(seed, 40).encode()), max_tokens=60, end_tokens=target.end_tokens)
        want = answer(plan, FakeCache(script))
        drafters = TranslatedDrafters(FakeCache(writer(draft, rambling(seed, wrong))), target, draft)
        got = answer(plan.with_mode("draft-model", cap), FakeCache(script), drafters)
        assert got.tokens == want.tokens, f"model {seed}"
        assert_counts(got)
        assert drafters.drafter is not None
        assert drafters.drafter.counts.target_tokens_proposed == got.stats.num_draft_tokens
        accepted += got.stats.num_accepted_tokens
        drafted += got.stats.num_draft_tokens
    assert accepted > (0.4 if wrong else 0.9) * drafted, "a draft that knows the text is mostly right"
    assert drafted > 100


def test_a_seed_gives_the_sampled_text_of_mode_none() -> None:
    """Sampled ids are often halves of characters, or no text at all."""
    accepted, sampling = 0, SamplingSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    for seed in range(15):
        target, draft = random_toy(seed), random_toy(seed + 1000)
        script = writer(target, rambling(seed), peak=8.5)
        plan = Plan(target.split(random_text(seed, 40).encode()), max_tokens=60, sampling=sampling, seed=seed)
        want = answer(plan, FakeCache(script))
        drafters = TranslatedDrafters(FakeCache(writer(draft, rambling(seed))), target, draft)
        got = answer(plan.with_mode("draft-model", 4), FakeCache(script), drafters)
        assert got.tokens == want.tokens, f"model {seed}"
        assert want.tokens != answer(Plan(plan.prompt, max_tokens=60), FakeCache(script)).tokens
        accepted += got.stats.num_accepted_tokens
    assert accepted > 100


@pytest.mark.parametrize("place", range(1, 9))
def test_behind_a_stop_the_drafts_cache_holds_only_what_was_committed(place: int) -> None:
    script = writer(PLAIN, reading(STORY))
    cache = FakeCache(writer(WHOLE_WORDS, reading(STORY)))
    drafters = TranslatedDrafters(cache, PLAIN, WHOLE_WORDS)
    plan = Plan(PLAIN.split(STORY.encode())[:1], stop_after=place)
    done = answer(plan.with_mode("draft-model", 8), FakeCache(script), drafters)
    committed = PLAIN.text_of(done.decoder.committed)
    assert committed.startswith(WHOLE_WORDS.text_of(cache.tokens))
    cache.check_rows()


def test_a_second_turn_reads_only_what_is_new() -> None:
    target, draft = random_toy(5), random_toy(6)
    cache = FakeCache(writer(draft, rambling(5)))
    first = target.split(random_text(5, 200).encode())
    for _ in TranslatedDraft(cache, target, draft).begin(first):
        pass
    before = cache.num_decoded
    drafter = TranslatedDraft(cache, target, draft)
    second = [*first, *target.split(b"\nabc")]
    for _ in drafter.begin(second):
        pass
    assert cache.num_decoded - before < 10
    assert len(propose(drafter, second, 4))


def test_begin_yields_how_many_of_the_drafts_tokens_are_done() -> None:
    cache = FakeCache(writer(BYTES_ONLY, reading("abcdef")), n_batch=2)
    drafter = TranslatedDraft(cache, PLAIN, BYTES_ONLY)
    assert list(drafter.begin(PLAIN.split(b"abcdef"))) == [2, 4, 5]
    assert [rows for _, rows in cache.calls] == [0, 0, 0]


def test_a_switch_in_mid_answer_reads_everything_at_the_first_proposal() -> None:
    drafter = TranslatedDraft(FakeCache(writer(PLAIN, reading("ab the house"))), PLAIN, PLAIN)
    assert PLAIN.text_of(propose(drafter, PLAIN.split(b"ab"), 5).tokens) == b" the house"


@pytest.mark.parametrize("room", range(4))
def test_a_draft_context_that_fills_up_shortens_the_draft_and_then_drafts_nothing(room: int) -> None:
    ids = PLAIN.split(b"ab")
    cache = FakeCache(writer(BYTES_ONLY, reading("ab the house")), n_ctx=2 + room)
    drafter = TranslatedDraft(cache, PLAIN, BYTES_ONLY)
    for _ in drafter.begin(ids):
        pass
    propose(drafter, ids, 5)
    assert drafter.counts.draft_tokens_written == room
    longer = PLAIN.split(b"abab ab abc")
    for _ in drafter.begin(longer):
        pass
    assert propose(drafter, longer, 5) == EMPTY_DRAFT
    drafter.accept(outcome(len(longer), EMPTY_DRAFT, 0))


def test_a_cache_that_cannot_be_cut_is_filled_anew_and_drafts_the_same() -> None:
    ids = PLAIN.split(STORY.encode())
    drafters = []
    for recurrent in (False, True):
        cache = FakeCache(writer(WHOLE_WORDS, reading(STORY)))
        cache.recurrent = recurrent
        drafters.append(TranslatedDraft(cache, PLAIN, WHOLE_WORDS))
    for cut in range(1, len(ids)):
        plain, recurrent_ = (propose(drafter, ids[:cut], 4) for drafter in drafters)
        assert list(plain.tokens) == list(recurrent_.tokens)
        for drafter in drafters:
            drafter.accept(outcome(cut, plain, 0))


def test_a_decode_that_fails_is_told_to_the_loop_and_the_next_proposal_is_right() -> None:
    cache = FakeCache(writer(BYTES_ONLY, reading("ab the house")))
    drafter = TranslatedDraft(cache, PLAIN, BYTES_ONLY)
    cache.fail_decode = {3: 1}
    ids = PLAIN.split(b"ab")
    with pytest.raises(DecodeError):
        propose(drafter, ids, 8)
    assert PLAIN.text_of(propose(drafter, ids, 8).tokens) == b" the house"


def test_nothing_to_read_drafts_nothing() -> None:
    half = BYTES_ONLY.split("한".encode()[:1])
    drafter = TranslatedDraft(FakeCache(writer(PLAIN, reading("한"))), BYTES_ONLY, PLAIN)
    assert list(drafter.begin(half)) == []
    assert propose(drafter, half, 4) == EMPTY_DRAFT


def test_the_loop_keeps_the_targets_cache_in_step() -> None:
    script = writer(PLAIN, reading(STORY))
    target = FakeCache(script)
    drafters = TranslatedDrafters(FakeCache(writer(HALVES, reading(STORY))), PLAIN, HALVES)
    done = answer(Plan(PLAIN.split(b" the"), max_tokens=12).with_mode("draft-model", 6), target, drafters)
    check_cache(done.decoder, target)
    assert PLAIN.text_of(done.decoder.committed) == STORY.encode()[: len(PLAIN.text_of(done.decoder.committed))]
