"""Drafters: none, and the draft model on a strict fake cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from fake_model import PLAIN, FakeCache, blurred, random_script, saying

from specui.config import SamplingSettings
from specui.engine.dice import Dice
from specui.engine.drafting import (
    AdaptiveLength,
    DraftModel,
    NoDrafter,
    Outcome,
    Proposal,
    common_prefix,
    evaluate,
    rewind,
)
from specui.engine.sampling import Logits
from specui.engine.verification import EMPTY_DRAFT, Draft
from specui.errors import DecodeError, RollbackError


def proposal(committed: Sequence[int], limit: int, sampling: SamplingSettings | None = None) -> Proposal:
    return Proposal(list(committed), limit, sampling or SamplingSettings(), Dice(0))


def test_no_drafter_proposes_nothing() -> None:
    drafter = NoDrafter()
    assert list(drafter.begin([1, 2])) == []
    assert drafter.propose(proposal([1, 2], 5)) is EMPTY_DRAFT


SCRIPT = random_script(3)
PROMPT = [1, 2, 3, 4, 5]


def begun(cache: FakeCache, prompt: Sequence[int] = PROMPT, p_min: float = 0.0, n_vocab: int = 12) -> DraftModel:
    drafter = DraftModel(cache, n_vocab, p_min)
    for _ in drafter.begin(prompt):
        pass
    return drafter


def outcome(draft: Draft, accepted: int, length: int = len(PROMPT)) -> Outcome:
    return Outcome(
        length=length,
        draft=draft,
        num_accepted=accepted,
        rows=len(draft) + 1,
        draft_seconds=0.0,
        verify_seconds=0.0,
    )


def test_begin_evaluates_all_of_the_prompt_but_its_last_token_in_batches() -> None:
    cache = FakeCache(SCRIPT, n_batch=2)
    drafter = DraftModel(cache, 12)
    assert list(drafter.begin([1, 2, 3, 4, 5, 6])) == [2, 4, 5]
    assert cache.tokens == [1, 2, 3, 4, 5]
    assert [rows for _, rows in cache.calls] == [0, 0, 0]


def test_the_greedy_draft_is_what_the_draft_model_would_write() -> None:
    cache = FakeCache(SCRIPT)
    draft = begun(cache).propose(proposal(PROMPT, 6))
    text = list(PROMPT)
    for _ in range(6):
        text.append(int(SCRIPT(text).argmax()))
    assert list(draft.tokens) == text[5:]
    assert draft.distributions is None
    assert cache.tokens == text[:-1], "the last drafted token is not evaluated for nothing"


def test_a_sampled_draft_tells_what_each_token_was_drawn_from() -> None:
    draft = begun(FakeCache(SCRIPT)).propose(proposal(PROMPT, 6, PLAIN))
    assert draft.distributions is not None
    assert len(draft.distributions) == len(draft) == 6
    for token, d in zip(draft.tokens, draft.distributions, strict=True):
        assert d.prob(token) > 0
        assert d.probs.sum() == pytest.approx(1)


@pytest.mark.parametrize("accepted", range(7))
def test_after_the_outcome_only_what_was_committed_stays_and_nothing_is_evaluated_twice(accepted: int) -> None:
    cache = FakeCache(SCRIPT)
    drafter = begun(cache)
    draft = drafter.propose(proposal(PROMPT, 6))
    drafter.accept(outcome(draft, accepted))
    kept = [*PROMPT, *draft.tokens[:accepted]]
    assert cache.tokens == kept[: len(PROMPT) + 5]
    before = cache.num_decoded
    drafter.propose(proposal([*kept, 11], 1))
    behind = 2 if accepted == 6 else 1
    assert cache.num_decoded - before == behind, "only the target's own token, and the last drafted one if it stayed"
    assert cache.tokens == [*kept, 11]


@pytest.mark.parametrize("accepted", [0, 1, 2])
def test_after_an_early_stop_the_cache_holds_only_what_was_committed(accepted: int) -> None:
    def script(text: Sequence[int]) -> Logits:
        row = np.zeros(12, np.float32)
        row[7] = 20.0 if len(text) < 7 else 0.1
        return row

    cache = FakeCache(script)
    drafter = begun(cache, p_min=0.5)
    draft = drafter.propose(proposal(PROMPT, 8))
    assert list(draft.tokens) == [7, 7], "the model is unsure of the third"
    drafter.accept(outcome(draft, accepted))
    assert cache.tokens == [*PROMPT, *[7] * accepted]


def test_a_draft_may_be_empty_where_the_model_is_unsure_of_the_first_token() -> None:
    cache = FakeCache(lambda text: np.zeros(12, np.float32))
    drafter = begun(cache, p_min=0.5)
    draft = drafter.propose(proposal(PROMPT, 8))
    assert len(draft) == 0
    drafter.accept(outcome(draft, 0))
    assert cache.tokens == PROMPT


def test_ids_beyond_the_targets_vocabulary_are_never_proposed() -> None:
    script = random_script(4, n_vocab=20)
    for sampling in (SamplingSettings(), PLAIN):
        for seed in range(20):
            cache = FakeCache(random_script(seed, n_vocab=20))
            draft = begun(cache, n_vocab=3).propose(proposal(PROMPT, 8, sampling))
            assert set(draft.tokens) <= {0, 1, 2}
    assert len(script([1, 2])) == 20


@pytest.mark.parametrize("room", range(12))
def test_a_draft_context_that_fills_up_shortens_the_draft_and_then_drafts_nothing(room: int) -> None:
    cache = FakeCache(SCRIPT, n_ctx=len(PROMPT) + room)
    draft = begun(cache).propose(proposal(PROMPT, 8))
    assert len(draft) <= min(room, 8)
    assert len(draft) >= min(room, 8) - 1
    assert len(begun(cache, [1] * (len(PROMPT) + room + 1)).propose(proposal([1] * (len(PROMPT) + room + 1), 8))) == 0


def test_a_draft_model_without_rollback_is_filled_anew_and_proposes_the_same() -> None:
    cache, plain_cache = FakeCache(SCRIPT), FakeCache(SCRIPT)
    cache.recurrent = True
    drafter, plain = begun(cache), begun(plain_cache)
    committed = list(PROMPT)
    for accepted in (2, 0, 4, 1):
        draft, want = drafter.propose(proposal(committed, 4)), plain.propose(proposal(committed, 4))
        assert list(draft.tokens) == list(want.tokens)
        drafter.accept(outcome(draft, accepted, len(committed)))
        plain.accept(outcome(want, accepted, len(committed)))
        committed = [*committed, *draft.tokens[:accepted], 11]


def test_a_decode_that_fails_is_told_to_the_loop() -> None:
    cache = FakeCache(SCRIPT)
    drafter = begun(cache)
    cache.fail_decode = {3: 1}
    with pytest.raises(DecodeError):
        drafter.propose(proposal(PROMPT, 8))


class Watch:
    """Notes what a draft model tells of its guesses at tokens that it reads."""

    def __init__(self, drafter: DraftModel) -> None:
        self.seen: list[tuple[float, bool]] = []
        drafter.watch = lambda confidence, right: self.seen.append((confidence, right))


def guesses_by_hand(text: Sequence[int], first: int, n_vocab: int = 12) -> list[tuple[float, bool]]:
    """Return confidence and rightness of the script's guesses at `text[first:]`."""
    guesses = []
    for place in range(first, len(text)):
        row = SCRIPT(text[:place])[:n_vocab].astype(np.float64)
        probs = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        guesses.append((float(probs.max()), int(row.argmax()) == text[place]))
    return guesses


@pytest.mark.parametrize(
    ("n_batch", "max_rows", "told"),
    [(64, 64, 8), (64, 9, 8), (64, 8, 7), (64, 4, 3), (64, 1, 0), (9, 64, 8), (4, 4, 0), (5, 64, 3), (5, 2, 1)],
)
def test_guesses_at_tokens_that_were_read_are_told_as_far_as_there_are_rows(
    n_batch: int, max_rows: int, told: int
) -> None:
    """Nine tokens are read, the last of the prompt and eight more; only the last batch has rows."""
    best = int(SCRIPT(PROMPT).argmax())
    text = [*PROMPT, best, 7, 3, 3, 0, 11]
    text += [int(SCRIPT(text).argmax()), 2]
    cache = FakeCache(SCRIPT, n_batch=n_batch, max_rows=max_rows)
    drafter = begun(cache)
    watch = Watch(drafter)
    draft = drafter.propose(proposal(text, 3))
    expected = guesses_by_hand(text, len(text) - told)
    assert [right for _, right in watch.seen] == [right for _, right in expected]
    assert [confidence for confidence, _ in watch.seen] == pytest.approx([each for each, _ in expected], rel=1e-5)
    assert told < 8 or {right for _, right in watch.seen} == {True, False}
    assert list(draft.tokens) == list(begun(FakeCache(SCRIPT)).propose(proposal(text, 3)).tokens), "told or not"
    assert drafter.rows_caught_up == 9


def test_guesses_are_among_the_ids_that_may_be_proposed() -> None:
    text = [*PROMPT, 0, 1, 2, 1, 0, 2]
    drafter = begun(FakeCache(SCRIPT), n_vocab=3)
    watch = Watch(drafter)
    drafter.propose(proposal(text, 2))
    expected = guesses_by_hand(text, 5, n_vocab=3)
    assert [right for _, right in watch.seen] == [right for _, right in expected]
    assert [confidence for confidence, _ in watch.seen] == pytest.approx([each for each, _ in expected], rel=1e-5)


def test_nothing_is_guessed_where_nobody_watches_and_in_a_prompt() -> None:
    cache = FakeCache(SCRIPT)
    begun(cache).propose(proposal([*PROMPT, 1, 2, 3], 1))
    assert [rows for _, rows in cache.calls] == [0, 1]
    watched = FakeCache(SCRIPT)
    drafter = DraftModel(watched, 12)
    watch = Watch(drafter)
    list(drafter.begin(PROMPT))
    drafter.propose(proposal(PROMPT, 4))
    assert watch.seen == [], "its own drafts are judged by the target"


@pytest.mark.parametrize(
    ("steps", "lengths"),
    [
        ([(5, 5), (7, 7), (9, 9)], [7, 9, 10]),
        ([(5, 4), (4, 0), (3, 2)], [4, 3, 2]),
        ([(1, 0)] * 7, [4, 3, 2, 1, 1, 1, 1]),
        ([(0, 0)] * 2, [5, 5]),
    ],
    ids=["all accepted", "some rejected", "never below one", "nothing drafted"],
)
def test_adaptive_length_adds_two_or_takes_one(steps: list[tuple[int, int]], lengths: list[int]) -> None:
    adaptive = AdaptiveLength()
    got = []
    for drafted, accepted in steps:
        adaptive.update(drafted, accepted, cap=10)
        got.append(adaptive.length)
    assert got == lengths


def test_common_prefix() -> None:
    assert common_prefix([], [1]) == 0
    assert common_prefix([1, 2], [1, 2, 3]) == 2
    assert common_prefix([1, 2, 3], [1, 9, 3]) == 1
    assert common_prefix([4], [5]) == 0


def test_evaluate_asks_for_logits_only_in_the_last_batch() -> None:
    cache = FakeCache(SCRIPT, n_batch=3)
    assert list(evaluate(cache, [1, 2, 3, 4, 5, 6, 7], rows=1)) == [3, 6, 7]
    assert [(len(tokens), rows) for tokens, rows in cache.calls] == [(3, 0), (3, 0), (1, 1)]
    assert list(evaluate(cache, [], rows=1)) == []


def test_rewind_keeps_the_common_prefix_or_nothing() -> None:
    cache = FakeCache(SCRIPT)
    cache.decode([1, 2, 3, 4], 0)
    assert rewind(cache, [1, 2, 9]) == 2
    assert cache.tokens == [1, 2]
    cache.recurrent = True
    with pytest.raises(RollbackError):
        cache.truncate(1)
    assert rewind(cache, [1, 7]) == 0
    assert cache.tokens == []


def test_the_fakes_do_what_they_are_named_for() -> None:
    script = saying([5, 6])
    assert [int(script(text).argmax()) for text in ([0], [0, 5], [3, 0, 5, 6])] == [5, 6, 1]
    noisy = blurred(SCRIPT, 5.0)
    assert not np.array_equal(noisy([1, 2]), SCRIPT([1, 2]))
    assert np.array_equal(noisy([1, 2]), noisy([1, 2]))
