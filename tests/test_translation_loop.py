"""Drafts from another vocabulary, step after step: what is read, what is cached, and the loop around it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from fake_model import FakeCache, Plan, answer, assert_counts, check_cache
from toy_text import (
    BYTES_ONLY,
    HALVES,
    N_BYTES,
    PLAIN,
    STORY,
    WHOLE_WORDS,
    Toy,
    TranslatedDrafters,
    outcome,
    propose,
    rambling,
    random_text,
    random_toy,
    reading,
    writer,
)

from specui.config import SamplingSettings
from specui.engine.translation import (
    MAX_DRAFT_RATIO,
    MAX_OPEN_BYTES,
    SETTLE_BYTES,
    DraftText,
    Spelling,
    TranslatedDraft,
)
from specui.engine.verification import EMPTY_DRAFT
from specui.errors import DecodeError


class Starting(Toy):
    """A tokenizer with another rule for the beginning of a text: its first token is one byte."""

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        """Return the ids of the first byte and of the rest."""
        raw = text.encode()
        self.num_bytes_read += len(raw)
        return [*raw[:1], *self.split(raw[1:])]


def starting_toy(seed: int) -> Toy:
    return Starting(random_toy(seed).pieces[N_BYTES:])


@pytest.mark.parametrize("make", [random_toy, lambda seed: random_toy(seed, spaced=True), starting_toy])
@pytest.mark.parametrize("seed", range(15))
def test_reading_bit_by_bit_gives_the_ids_of_the_whole_text(seed: int, make: Callable[[int], Toy]) -> None:
    target, draft = random_toy(seed), make(seed + 1000)
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


class Unsteady(Toy):
    """A tokenizer whose first token tells how long the text is: no text can be cut without another outcome."""

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        """Return a token for the length, and those of the text."""
        return [1_000 + len(text), *super().tokenize(text, add_special, parse_special)]


def test_a_text_that_can_be_cut_nowhere_stays_cheap() -> None:
    target, draft = random_toy(1), Unsteady([])
    text = DraftText(Spelling(target), Spelling(draft))
    ids, read = target.split(random_text(4, 3_000).encode()), 0
    for place in range(0, len(ids), 20):
        draft.num_bytes_read = 0
        text.read(ids[place : place + 20])
        read = max(read, draft.num_bytes_read)
    assert read < 2 * MAX_OPEN_BYTES


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
