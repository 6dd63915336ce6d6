"""Prompt lookup: drafts copied from where the same words stood before, in the text itself or in texts at hand.

Each place is found in constant time; which of several is copied is decided by how long the match in front of it is, how
many others go on alike, and how recent it is. Knows token ids only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from specui.config import MAX_DRAFT_TOKENS_LIMIT
from specui.engine.drafting import Outcome, Proposal
from specui.engine.verification import EMPTY_DRAFT, Draft

INDEXED_NGRAM_SIZE = 4
"""Places in texts at hand are found by n-grams of up to so many tokens; longer matches are told by comparing."""

BOUNDARY = -1
"""Stands behind each text at hand; no model has such a token."""

PART_TOKENS = 4096
"""Texts at hand are indexed in parts of so many tokens, between which that can be cancelled."""

LONGEST_MATCH = 32
"""Matches are measured up to this length."""

MOST_PLACES = 12
"""So many of the latest places are looked at, those of the own text first."""

MATCH_BOUNDS = (2, 3, 4, 6, 9, 14, 22)
"""Matches are told apart by these lengths: 1, 2, 3, 4 to 5 and so on."""

AGREEMENTS = ("alone", "agreed", "disputed", "resumed")
"""How other places with the same words go on: there are none, all go on alike, some go on otherwise; or it does not
matter, since the place takes up a long copy again that broke off shortly before."""
ALONE, AGREED, DISPUTED, RESUMED = range(len(AGREEMENTS))

FOLLOWED_MATCH = 8
"""From such a match on a text is held to follow the place."""
LONGEST_EDIT, EDIT_MATCH = 6, 3
"""So many tokens in place of so many are remembered, to be replaced again, once the copy goes on for so many behind."""
MOST_EDITS = 8
"""So many edits that begin with the same token are remembered."""
RESUME_REACH, RESUME_MEMORY = 16, 48
"""How far behind the place that was followed a copy may be taken up again, and for how many tokens after that."""


def evidence(match_length: int, agreement: int) -> int:
    """Return the class of a guess, by the length of its match and the place of its agreement in AGREEMENTS."""
    return sum(match_length >= bound for bound in MATCH_BOUNDS) * len(AGREEMENTS) + agreement


CLASSES = evidence(LONGEST_MATCH, len(AGREEMENTS))
"""How many classes of guesses there are."""

_ALONG = [
    [evidence(n, each) for n in range(LONGEST_MATCH + MAX_DRAFT_TOKENS_LIMIT + 1)] for each in range(len(AGREEMENTS))
]
"""For each agreement the classes by length of match: those along a copy are a slice, which takes no time."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What lookup found behind `length` tokens: the continuation, and the class of each of its tokens."""

    tokens: Sequence[int]
    match_length: int
    length: int
    classes: Sequence[int] = ()
    resumed: bool = False


class _Text:
    """Tokens, with the places behind each n-gram's occurrences, from the latest back."""

    def __init__(self, max_ngram_size: int) -> None:
        self.tokens: list[int] = []
        self._latest: list[dict[tuple[int, ...], int]] = [{} for _ in range(max_ngram_size)]
        self._earlier: list[list[int]] = [[] for _ in range(max_ngram_size)]

    def extend(self, tokens: Sequence[int]) -> None:
        """Write tokens. An n-gram is indexed once a token follows it, so the tail never matches itself."""
        for token in tokens:
            length = len(self.tokens)
            for n, (latest, earlier) in enumerate(zip(self._latest, self._earlier, strict=True), start=1):
                if n > length:
                    earlier.append(0)
                    continue
                ngram = tuple(self.tokens[length - n :])
                earlier.append(latest.get(ngram, 0))
                latest[ngram] = length
            self.tokens.append(token)

    def places(self, ngram: tuple[int, ...]) -> Iterator[int]:
        """Yield where tokens follow `ngram`, the latest first."""
        n = len(ngram) - 1
        place = self._latest[n].get(ngram, 0) if n < len(self._latest) else 0
        while place:
            if self.tokens[place] != BOUNDARY:
                yield place
            place = self._earlier[n][place]


class Reference:
    """Texts at hand that drafts may be copied from although no prompt holds them; indexed once, shared by answers."""

    def __init__(self, texts: Sequence[Sequence[int]], cancelled: Callable[[], bool] = lambda: False) -> None:
        self.text = _Text(INDEXED_NGRAM_SIZE)
        self._boundaries = 0
        for tokens in texts:
            for start in range(0, len(tokens), PART_TOKENS):
                if cancelled():
                    return
                self.text.extend(tokens[start : start + PART_TOKENS])
            self.text.extend([BOUNDARY])
            self._boundaries += 1

    def __len__(self) -> int:
        """How many tokens there are."""
        return len(self.text.tokens) - self._boundaries


class _Place(NamedTuple):
    text: _Text
    start: int
    match_length: int
    resumed: bool = False


class _Edits:
    """What was written in place of what stood in the text that is copied: a rename, say, which goes on as it began."""

    def __init__(self) -> None:
        self._new: dict[int, dict[tuple[int, ...], tuple[int, ...]]] = {}

    def learn(self, old: tuple[int, ...], new: tuple[int, ...]) -> None:
        """Expect `new` in place of `old` from now on."""
        known = self._new.setdefault(old[0], {})
        known.pop(old, None)
        known[old] = new
        if len(known) > MOST_EDITS:
            del known[next(iter(known))]

    def unlearn(self, tokens: Sequence[int], place: int) -> None:
        """What stands at `place` was copied as it is."""
        old = self._at(tokens, place)
        if old is not None:
            del self._new[old[0]][old]

    def _at(self, tokens: Sequence[int], place: int) -> tuple[int, ...] | None:
        known = self._new.get(tokens[place], ())
        return next((old for old in known if tuple(tokens[place : place + len(old)]) == old), None)

    def touch(self, tokens: Sequence[int]) -> bool:
        """Return whether any of the tokens may begin what is expected to be replaced."""
        return not self._new.keys().isdisjoint(tokens)

    def replaced(self, tokens: Sequence[int], place: int) -> tuple[int, tuple[int, ...]] | None:
        """Return how many tokens at `place` are expected to be replaced, and by which; None where they are not."""
        old = self._at(tokens, place)
        return None if old is None else (len(old), self._new[old[0]][old])


@dataclass(frozen=True, slots=True)
class _Followed:
    """The place that the text followed when it was `length` tokens long."""

    place: _Place
    length: int


class PromptLookup:
    """Copies what followed an earlier occurrence of the last tokens (Saxena 2023; with texts at hand, He et al. 2023).

    One object reads one answer's text, which only grows. Of the places behind the longest n-gram (n up to
    `max_ngram_size`) that occurred before, the one with the longest match is copied; of equals what most of them go on
    with, then the latest. Where a long copy broke off shortly before (an edit, say), a place close behind it needs half
    as long a match, and what was replaced once is expected to be replaced again. A copy that reaches the end of the
    text goes on into its own tokens, which continues a repetition.

    `propose` drafts nothing on a match shorter than `min_ngram_size`, and on one just as long no more than it is long:
    short matches are mostly chance, and a wrong draft costs a long pass.
    """

    def __init__(self, max_ngram_size: int, min_ngram_size: int = 1, reference: Reference | None = None) -> None:
        self.max_ngram_size = max_ngram_size
        self._min_ngram_size = min(min_ngram_size, max_ngram_size)
        self._own = _Text(max_ngram_size)
        self._texts = [self._own] if reference is None else [self._own, reference.text]
        self._followed: _Followed | None = None
        self._edits = _Edits()

    def begin(self, prompt: Sequence[int]) -> Iterator[int]:
        """Index the prompt."""
        self._catch_up(prompt)
        return iter(())

    def propose(self, proposal: Proposal) -> Draft:
        """Return the continuation of the best match, or an empty draft."""
        candidate, shortest = self.find(proposal.committed, proposal.limit), self._min_ngram_size
        if candidate is None or candidate.match_length < ((shortest + 1) // 2 if candidate.resumed else shortest):
            return EMPTY_DRAFT
        barely = 1 < candidate.match_length == shortest and not candidate.resumed
        tokens = candidate.tokens[:shortest] if barely else candidate.tokens
        reach = proposal.constraint.reach(tokens) if proposal.constraint is not None else len(tokens)
        return Draft(tokens[:reach])

    def find(self, committed: Sequence[int], limit: int) -> Candidate | None:
        """Return the best continuation of up to `limit` tokens (MAX_DRAFT_TOKENS_LIMIT at most), or None."""
        self._catch_up(committed)
        return self._find(self._own.tokens, (), limit)

    def find_behind(self, draft: Sequence[int], limit: int) -> Candidate | None:
        """Return the best continuation of the committed text with `draft` behind it, or None."""
        longest = LONGEST_MATCH - len(draft)
        return self._find([*self._own.tokens[-longest:], *draft], draft, limit) if longest > 0 else None

    def _find(self, tail: Sequence[int], draft: Sequence[int], limit: int) -> Candidate | None:
        """Return the best continuation of the own text with `draft` behind it, which together end with `tail`."""
        length = len(self._own.tokens) + len(draft)
        places = self._places(tail) if limit > 0 else []
        best = self._best(places) if places else None
        if best is None or best.match_length < FOLLOWED_MATCH:
            resumed = self._resumed(tail, length)
            if resumed is not None and (best is None or 2 * resumed.match_length > best.match_length):
                best = resumed
        if best is None:
            return None
        if not draft:
            self._follow(best, length)
        tokens, edited = self._copy(best, draft, limit)
        classes = _classes(best, places, tokens[:edited])
        classes += _along(RESUMED, best.match_length + len(classes), len(tokens) - len(classes))
        return Candidate(tokens, best.match_length, length, classes, best.resumed)

    def _follow(self, best: _Place, length: int) -> None:
        """Note which place the text follows, and what was written otherwise since it followed the last one."""
        followed = self._followed
        if followed is not None and best.match_length >= EDIT_MATCH:
            self._learn_edit(followed, best, length)
        if best.match_length >= FOLLOWED_MATCH:
            self._followed = _Followed(best, length)

    def _learn_edit(self, followed: _Followed, best: _Place, length: int) -> None:
        own, text = self._own.tokens, followed.place.text
        old, new = followed.place.start, followed.length
        while new < length and old < len(text.tokens) and own[new] == text.tokens[old]:
            self._edits.unlearn(text.tokens, old)
            old, new = old + 1, new + 1
        old_end, new_end = best.start - best.match_length, length - best.match_length
        short = 0 < old_end - old <= LONGEST_EDIT and 0 < new_end - new <= LONGEST_EDIT
        if text is best.text and short:
            self._edits.learn(tuple(text.tokens[old:old_end]), tuple(own[new:new_end]))

    def _places(self, tail: Sequence[int]) -> list[_Place]:
        """Return the latest places behind the longest n-gram that ends `tail` and occurred before."""
        for n in range(min(self.max_ngram_size, len(tail)), 0, -1):
            ngram = tuple(tail[len(tail) - n :])
            found = ((text, start) for text in self._texts for start in text.places(ngram))
            places = [
                _Place(text, start, _match_length(text.tokens, start, tail, n))
                for text, start in islice(found, MOST_PLACES)
            ]
            if places:
                return places
        return []

    def _best(self, places: Sequence[_Place]) -> _Place:
        if len(places) == 1:
            return places[0]
        longest = max(place.match_length for place in places)
        equals = [place for place in places if place.match_length == longest]
        if len(equals) == 1:
            return equals[0]
        nexts = [place.text.tokens[place.start] for place in equals]
        return max(equals, key=lambda place: nexts.count(place.text.tokens[place.start]))

    def _resumed(self, tail: Sequence[int], length: int) -> _Place | None:
        """Return where the copy that was followed last is best taken up again: the longest match, then the nearest."""
        followed = self._followed
        if followed is None or length - followed.length > RESUME_MEMORY:
            return None
        text, start = followed.place.text, followed.place.start
        expected = start + length - followed.length
        end = min(expected + RESUME_REACH, len(text.tokens) - 1)
        nearby = [
            place
            for place in range(start + 1, end + 1)
            if text.tokens[place - 1] == tail[-1] and text.tokens[place] != BOUNDARY
        ]
        places = [_Place(text, place, _match_length(text.tokens, place, tail), resumed=True) for place in nearby]
        return max(places, key=lambda place: (place.match_length, -abs(place.start - expected)), default=None)

    def _copy(self, place: _Place, draft: Sequence[int], limit: int) -> tuple[list[int], int]:
        """Return up to `limit` tokens from `place` on, edited where that is expected, and where the first edit begins.

        A copy that reaches the end of the own text goes on into `draft` and its own tokens; one from a text at hand
        ends with it.
        """
        tokens, end = place.text.tokens, len(place.text.tokens)
        copied = tokens[place.start : place.start + limit]
        if len(copied) == limit and BOUNDARY not in copied and not self._edits.touch(copied):
            return copied, limit
        copied = []
        at, edited = place.start, limit
        while len(copied) < limit:
            if at >= end:
                copied.append(draft[at - end] if at - end < len(draft) else copied[at - end - len(draft)])
                at += 1
                continue
            if tokens[at] == BOUNDARY:
                break
            old_length, new = self._edits.replaced(tokens, at) or (1, (tokens[at],))
            if old_length > 1 or new[0] != tokens[at]:
                edited = min(edited, len(copied))
            at += old_length
            copied += new
        return copied[:limit], edited

    def accept(self, outcome: Outcome) -> None:
        """Nothing to learn: the text itself is the state."""

    def _catch_up(self, committed: Sequence[int]) -> None:
        self._own.extend(committed[len(self._own.tokens) :])


def _match_length(tokens: Sequence[int], start: int, tail: Sequence[int], known: int = 0) -> int:
    """Return how many tokens in front of `start` equal the end of `tail`, up to LONGEST_MATCH; `known` of them do."""
    longest, end = min(start, len(tail), LONGEST_MATCH), len(tail)
    while known < longest and tokens[start - 1 - known] == tail[end - 1 - known]:
        known += 1
    return known


def _along(agreement: int, match_length: int, count: int) -> list[int]:
    """Return the classes of `count` tokens copied behind a match."""
    return _ALONG[agreement][match_length : match_length + count]


def _classes(best: _Place, places: Sequence[_Place], tokens: Sequence[int]) -> list[int]:
    """Return the class of each copied token; places that went on otherwise have no say any more."""
    if best.resumed:
        return _along(RESUMED, best.match_length, len(tokens))
    others = [place for place in places if place is not best]
    classes: list[int] = []
    for i, token in enumerate(tokens):
        going = [each for each in others if each.start + i < len(each.text.tokens)]
        if not going:
            break
        others = [each for each in going if each.text.tokens[each.start + i] == token]
        agreement = AGREED if len(others) == len(going) else DISPUTED
        classes.append(_ALONG[agreement][best.match_length + i])
    done = len(classes)
    return classes + _along(ALONE, best.match_length + done, len(tokens) - done)
