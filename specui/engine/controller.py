"""Mode `auto`: at each step the drafter and the length that save the most time, or none.

Each step takes what promises the most tokens a second, E / T; plain decoding is one of the choices, so a draft is made
only where it is expected to win, and where it risks no more than drafts may lose in this answer. E comes
from running acceptance estimates (prompt lookup: by length of match and agreement; draft model: by its own confidence),
T from measured costs. What lookup would have proposed is checked against what was written at every step, drafted or
not, which costs nothing. Behind what the model drafts, lookup may go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from specui.config import SpeculationMode
from specui.engine.costs import MOST_ROWS
from specui.engine.drafting import DraftModel, Guess, Outcome, Proposal, Take
from specui.engine.economy import DRAFT_MARGIN, LONG_DRAFT, MARGIN, Experience, won
from specui.engine.lookup import Candidate, PromptLookup
from specui.engine.sampling import Constraint
from specui.engine.verification import EMPTY_DRAFT, Draft

EXPLORATION = 0.01
"""Share of decode time that may go into trying the draft model where it is not expected to win."""
BEST_ACCEPTANCE = 0.95
"""What a draft model must win with to be worth trying."""
TEMPTING = 0.5
"""A copy that promises more than this share of a plain step would be worth it if passes were cheaper than thought."""
LEAST_SURVIVAL = 0.01
"""Copied tokens that are less likely kept are not thought about."""


@dataclass(frozen=True, slots=True)
class _Left:
    """A guess of the draft model that was left out; `place` is where the target's own token will stand."""

    place: int
    guess: Guess


@dataclass(frozen=True, slots=True)
class _Step:
    """A step as far as it is planned: the `tokens` it is expected to emit, how likely its last drafted token is kept
    (`survival`), the rows of its pass, and the seconds its draft takes besides.
    """

    tokens: float = 1.0
    survival: float = 1.0
    rows: int = 1
    draft_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Copy:
    """How much of what lookup found is taken: as many tokens as `survivals` says how likely they are kept.

    Where nothing is taken, `tempting` is the most that any part of it promises, of `tempting_length` tokens, be it too
    risky or too little.
    """

    found: Candidate | None = None
    survivals: Sequence[float] = ()
    promise: float = 0.0
    tempting: float = 0.0
    tempting_length: int = 0

    @property
    def tokens(self) -> Sequence[int]:
        return self.found.tokens[: len(self.survivals)] if self.found is not None else ()


_PLAIN, _NO_COPY = _Step(), _Copy()


class Auto:
    """The drafter of mode `auto`, for one answer."""

    def __init__(self, lookup: PromptLookup, draft: DraftModel | None, experience: Experience) -> None:
        self.lookup = lookup
        self.draft = draft
        self._know = experience
        self._length = self._room = 0
        self._constraint: Constraint | None = None
        self._candidate: Candidate | None = None
        self._confidences: list[float] = []
        self._survivals: list[float] = []
        self._guessed: list[int] = []
        self._behind: _Copy | None = None
        self._left: _Left | None = None
        self._begin_draft()
        if draft is not None:
            draft.watch = experience.draft.observe

    def begin(self, prompt: Sequence[int]) -> Iterator[int]:
        """Index the prompt; where the draft model is expected to win, let it read the prompt now."""
        yield from self.lookup.begin(prompt)
        self._know.costs.at(len(prompt))
        if self.draft is not None and self._know.draft_wins:
            yield from self.draft.begin(prompt)

    def propose(self, proposal: Proposal) -> Draft:
        """Return the draft that promises the most tokens a second, or an empty one."""
        self._learn(proposal.committed)
        self._length = len(proposal.committed)
        self._know.costs.at(self._length)
        self._begin_draft()
        self._room = proposal.limit
        self._constraint = proposal.constraint
        self._candidate = self._allowed(self.lookup.find(proposal.committed, proposal.limit))
        plain = self._promise(_PLAIN)
        copy = self._best_copy(self._candidate, _PLAIN, plain)
        if self._draft_promise(proposal) > max(plain, copy.promise):
            return self._ask_draft(proposal)
        if copy.promise > plain:
            self._survivals = list(copy.survivals)
            return Draft(copy.tokens)
        if TEMPTING * plain < copy.tempting <= plain:
            self._know.costs.passed_over(1 + copy.tempting_length)
        return self._explore(proposal)

    def _begin_draft(self) -> None:
        self._confidences, self._survivals, self._guessed = [], [], []
        self._step, self._behind, self._left = _PLAIN, None, None
        self._drafted_by_model = self._exploring = False

    def _allowed(self, found: Candidate | None) -> Candidate | None:
        """Return as much of a copy as the constraint lets come next."""
        if found is None or self._constraint is None:
            return found
        reach = self._constraint.reach(found.tokens)
        return replace(found, tokens=found.tokens[:reach], classes=found.classes[:reach])

    def _promise(self, step: _Step) -> float:
        """Return the tokens a second that a step promises."""
        return step.tokens / self._seconds(step)

    def _seconds(self, step: _Step) -> float:
        return step.draft_seconds + self._know.costs.seconds(step.rows)

    def _best_copy(self, found: Candidate | None, step: _Step, least: float) -> _Copy:
        """Return as much of what lookup found as is best put behind `step`, if that promises more than `least`."""
        if found is None:
            return _NO_COPY
        know, rates = self._know, self._know.lookup.table
        price, best, best_length = know.costs.seconds, least, 0
        tempting, tempting_length = 0.0, 0
        tokens, survival, rows, drafting = step.tokens, step.survival, step.rows, step.draft_seconds
        survivals, before = self._survivals[:], len(self._survivals)
        for length, evidence in enumerate(found.classes, start=1):
            survival *= rates[evidence]
            if survival < LEAST_SURVIVAL:
                break
            tokens += survival
            survivals.append(survival)
            seconds = drafting + price(rows + length)
            promise = tokens / (MARGIN * seconds)
            if promise > tempting:
                tempting, tempting_length = promise, length
            if promise > best and know.allows(tokens, survivals, seconds):
                best, best_length = promise, length
        if not best_length:
            return _Copy(tempting=tempting, tempting_length=tempting_length)
        return _Copy(found, survivals[before : before + best_length], best)

    def _draft_promise(self, proposal: Proposal) -> float:
        """Return what a draft of the model can be expected to promise before its first token is seen."""
        if self.draft is None or proposal.limit < 1 or not self._know.draft_wins:
            return 0.0
        debt = self._debt(self.draft, proposal.committed)
        # Nobody knows how much there is still to come that could pay for a lot of reading.
        if debt >= self._know.stake.seconds:
            return 0.0
        return self._ahead(_Step(draft_seconds=debt), proposal.limit) / DRAFT_MARGIN

    def _debt(self, draft: DraftModel, committed: Sequence[int]) -> float:
        """Return the seconds of reading what it has missed that a draft of the model would cost now."""
        return self._know.draft.reading_seconds(max(0, draft.behind(committed) - 1))

    def _ahead(self, step: _Step, limit: int) -> float:
        """Return the best promise over drafting 1 to `limit` more tokens at the mean acceptance."""
        know, best = self._know, 0.0
        tokens, survival, seconds = step.tokens, step.survival, step.draft_seconds
        for more in range(1, min(limit, LONG_DRAFT) + 1):
            survival *= know.draft.acceptance
            tokens += survival
            seconds += know.draft.token_seconds
            best = max(best, tokens / (seconds + know.costs.seconds(step.rows + more)))
        return best

    def _ask_draft(self, proposal: Proposal) -> Draft:
        if self.draft is None:
            return EMPTY_DRAFT
        self._drafted_by_model = True
        drafted = self.draft.propose(proposal.at_most(LONG_DRAFT), self._judge).tokens
        if self._behind is None or list(drafted) != self._guessed:  # sampled: the best token is not always drawn
            self._behind = None
            return Draft(drafted)
        self._survivals += self._behind.survivals
        return Draft([*drafted, *self._behind.tokens])

    def _judge(self, guess: Guess) -> Take:
        """Decide on one drafted token: leave it, take it and end, or take it and draft another.

        Behind the model's tokens lookup may know how to go on, which costs nothing but the longer pass.
        """
        before, step = self._with(guess)
        without, taken = self._promise(before), self._promise(step)
        ahead = self._ahead(step, guess.limit - guess.position - 1) / MARGIN
        risky = not self._know.allows(step.tokens, [*self._survivals, step.survival], self._seconds(step))
        if (risky or without >= max(taken, ahead)) and not (self._exploring and guess.position == 0):
            self._left = _Left(self._length + guess.position, guess)
            return "leave"
        self._step = step
        self._guessed.append(guess.token)
        self._confidences.append(guess.probability)
        self._survivals.append(step.survival)
        found = self.lookup.find_behind(self._guessed, self._room - len(self._guessed))
        best = max(without, taken, ahead)
        copy = self._best_copy(found if self._constraint is None else None, step, best)
        if copy.promise > best:
            self._behind = copy
            return "last"
        return "go-on" if ahead > taken else "last"

    def _with(self, guess: Guess) -> tuple[_Step, _Step]:
        """Return the step without and with the guess, which took its time already."""
        draft, step = self._know.draft, self._step
        survival = step.survival * draft.by_confidence.rate(guess.probability)
        before = replace(step, draft_seconds=step.draft_seconds + draft.token_seconds)
        return before, _Step(step.tokens + survival, survival, step.rows + 1, before.draft_seconds)

    def _explore(self, proposal: Proposal) -> Draft:
        """Try the draft model once in a while, within the time set aside for it, where it could win at its best."""
        know, draft = self._know, self.draft
        if draft is None or proposal.limit < 2 or know.explored_seconds > EXPLORATION * know.decode_seconds:
            return EMPTY_DRAFT
        if know.draft_gain(LONG_DRAFT, BEST_ACCEPTANCE) <= MARGIN:
            return EMPTY_DRAFT
        price = 2 * know.draft.token_seconds + know.draft.reading_seconds(draft.behind(proposal.committed))
        price += know.costs.seconds(2) - know.costs.seconds(1)
        if know.explored_seconds + price > EXPLORATION * know.decode_seconds or price > know.stake.seconds:
            return EMPTY_DRAFT
        self._exploring = True
        return self._ask_draft(proposal)

    def _learn(self, committed: Sequence[int]) -> None:
        """Check against what was written since: lookup's candidate, used or not, and the guess left out."""
        if self._left is not None and self._left.place < len(committed):
            guess = self._left.guess
            self._know.draft.observe(guess.probability, committed[self._left.place] == guess.token)
        candidate = self._candidate
        if candidate is None:
            return
        for place, token in enumerate(committed[candidate.length : candidate.length + len(candidate.tokens)]):
            hit = candidate.tokens[place] == token
            self._know.lookup.observe(candidate.classes[place], hit)
            if not hit:
                break

    def accept(self, outcome: Outcome) -> None:
        """Learn from the step."""
        self._note(outcome)
        if self.draft is not None and self._drafted_by_model:
            self._learn_from_draft(self.draft, outcome)
            self.draft.accept(outcome)
        self._know.observe_step(outcome, asked=self._drafted_by_model)
        if self._exploring:
            self._know.explored_seconds += max(0.0, -won(outcome, self._know.costs))

    def _note(self, outcome: Outcome) -> None:
        """Note what was chosen, and what it promised."""
        know, drafted = self._know, len(outcome.draft)
        drafter: SpeculationMode = "draft-model" if self._drafted_by_model else "prompt-lookup"
        know.choices.add(drafter if drafted else "none", drafted)
        seconds = know.costs.seconds(drafted + 1)
        if self._drafted_by_model:
            seconds += max(1, len(self._guessed)) * know.draft.token_seconds
        know.promise.add(1 + sum(self._survivals[:drafted]), seconds)

    def _learn_from_draft(self, draft: DraftModel, outcome: Outcome) -> None:
        guessed, accepted = len(self._guessed), outcome.num_accepted
        for position, confidence in enumerate(self._confidences[: min(len(outcome.draft), accepted + 1)]):
            self._know.draft.observe(confidence, position < accepted)
        if accepted < guessed:
            self._left = None  # what stands at its place does not follow what it followed
        elif self._behind is not None:
            self._candidate = self._behind.found
        if 0 < draft.rows_caught_up <= MOST_ROWS:
            self._know.draft.observe_time(draft.rows_caught_up, draft.catch_up_seconds)
        if draft.rows_decoded:
            written = outcome.draft_seconds - draft.catch_up_seconds
            self._know.draft.observe_time(1, written / draft.rows_decoded)
