"""Mode `auto`: at each step the drafter and the length that save the most time, or none.

A step that emits E tokens in T seconds is worth E / rate - T, where `rate` is what decoding reaches at present; plain
decoding is one of the choices, so a draft is made only where it is expected to win. E comes from running acceptance
estimates (prompt lookup: by match length; draft model: by its own confidence), T from measured costs. What lookup would
have proposed is checked against what was written at every step, drafted or not, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from specui.config import DEFAULT_MAX_DRAFT_TOKENS, SpeculationMode
from specui.engine.costs import MOST_ROWS, PassCosts, Record, SuccessRates
from specui.engine.drafting import Candidate, DraftModel, Guess, Outcome, PromptLookup, Proposal, Take
from specui.engine.thinking import ChoiceLog, MatchRate, Stair, Thinking
from specui.engine.verification import EMPTY_DRAFT, Draft

MATCH_BOUNDS = (2, 3, 4, 6, 9, 14, 22)
MATCH_PRIORS = (0.2, 0.35, 0.5, 0.65, 0.75, 0.85, 0.9, 0.95)
CONFIDENCE_BOUNDS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
CONFIDENCE_PRIORS = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
MARGIN = 1.02
"""A draft must promise this much more than a plain step."""
EXPLORATION = 0.01
"""Share of decode time that may go into trying the draft model where it is not expected to win."""


CATCH_UP_SHARE = 0.25
"""Reading a committed token costs the draft model this share of writing one."""
FEWEST_STEPS = 16
"""Reading what the draft model has missed is spread over at least so many steps to come."""


class DraftEconomy:
    """What the draft model costs and how often it is right. Outlives an answer."""

    def __init__(self, token_seconds: float) -> None:
        self.token_seconds = token_seconds
        self.acceptance = 0.75
        self.by_confidence = SuccessRates(CONFIDENCE_BOUNDS, CONFIDENCE_PRIORS)

    def observe(self, confidence: float, hit: bool) -> None:
        """Learn whether one guess of the draft model was right."""
        self.by_confidence.observe(confidence, hit)
        self.acceptance += 0.05 * (hit - self.acceptance)

    def observe_time(self, seconds: float, rows: float) -> None:
        """Learn from the time that a proposal took, worth `rows` passes of one row."""
        reading = min(seconds / rows, 2 * self.token_seconds)
        self.token_seconds += 0.1 * (reading - self.token_seconds)


@dataclass(frozen=True, slots=True)
class Known:
    """What `auto` knows, to be kept between starts; `draft_token_seconds` None: no draft model was measured."""

    pass_seconds: Mapping[int, float]
    by_match: tuple[Record, ...]
    by_confidence: tuple[Record, ...]
    acceptance: float
    draft_token_seconds: float | None


SHOWN_STAIRS = DEFAULT_MAX_DRAFT_TOKENS["auto"] + 1
"""Passes of up to so many rows are shown in the staircase."""


class _Promise:
    """What the last choices promised: tokens and seconds, the older ones weighing less."""

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0

    def add(self, tokens: float, seconds: float) -> None:
        self._tokens = 0.9 * self._tokens + tokens
        self._seconds = 0.9 * self._seconds + seconds

    def gain(self, plain_seconds: float) -> float | None:
        """Return the promised tokens/s in those of plain decoding."""
        return plain_seconds * self._tokens / self._seconds if self._seconds > 0 else None


class Experience:
    """What `auto` knows about this machine and this pair: it lives as long as the lane, across answers."""

    def __init__(self, costs: PassCosts, draft_token_seconds: float | None = None) -> None:
        self.costs = costs
        self.by_match = SuccessRates(MATCH_BOUNDS, MATCH_PRIORS)
        self.draft = DraftEconomy(costs.seconds(1) if draft_token_seconds is None else draft_token_seconds)
        self.decode_seconds = 0.0
        self.explored_seconds = 0.0
        self._recent_tokens = 1.0
        self._recent_seconds = self.token_worth = costs.seconds(1)
        self.begin_answer()

    def begin_answer(self) -> None:
        """Forget what was chosen in the last answer; what was learned stays."""
        self.choices = ChoiceLog()
        self.promise = _Promise()

    def known(self, with_draft: bool) -> Known:
        """Return what is worth keeping; `with_draft`: what a draft token costs was measured."""
        seconds = self.draft.token_seconds if with_draft else None
        records = self.by_match.records, self.draft.by_confidence.records
        return Known(self.costs.points, *records, self.draft.acceptance, seconds)

    def recall(self, known: Known) -> None:
        """Go on from what was kept, at the pace of today; the costs of passes are `costs` already."""
        self.by_match.recall(known.by_match)
        self.draft.by_confidence.recall(known.by_confidence)
        self.draft.acceptance = known.acceptance
        if known.draft_token_seconds is not None:
            pace = self.costs.seconds(1) / known.pass_seconds[1]
            self.draft.token_seconds = pace * known.draft_token_seconds

    def thinking(self, with_draft: bool) -> Thinking | None:
        """Return what faces may show, or None where `auto` has not chosen yet; `with_draft`: it may ask a model."""
        if not self.choices:
            return None
        costs, shortest = self.costs, (1, *MATCH_BOUNDS)
        return Thinking(
            choices=self.choices.choices(),
            stairs=tuple(self._stair(rows) for rows in range(1, SHOWN_STAIRS + 1)),
            matches=tuple(
                MatchRate(length, record.rate, record.seen)
                for length, record in zip(shortest, self.by_match.records, strict=True)
            ),
            draft_token_seconds=self.draft.token_seconds if with_draft else None,
            draft_acceptance=self.draft.acceptance if with_draft else None,
            expected_gain=self.promise.gain(costs.seconds(1)),
        )

    def _stair(self, rows: int) -> Stair:
        costs = self.costs
        padded = costs.padded(rows, MOST_ROWS)
        return Stair(rows, costs.unpadded_seconds(rows), padded, costs.unpadded_seconds(padded))

    def value(self, tokens: float, seconds: float) -> float:
        """Return the seconds a step saves against decoding on at the present rate."""
        return tokens * self.token_worth - seconds

    def observe_step(self, outcome: Outcome) -> None:
        """Learn from one step's time."""
        self.costs.observe(outcome.rows, outcome.verify_seconds)
        wanted = len(outcome.draft) + 1
        if 1 < wanted < outcome.rows:
            self.costs.doubt(wanted)
        seconds = outcome.verify_seconds + outcome.draft_seconds
        self.decode_seconds += seconds
        self._recent_tokens = 0.95 * self._recent_tokens + outcome.num_accepted + 1
        self._recent_seconds = 0.95 * self._recent_seconds + seconds
        # Seconds a token takes at present, never more than plain decoding would take.
        self.token_worth = min(self._recent_seconds / self._recent_tokens, self.costs.seconds(1))


@dataclass(frozen=True, slots=True)
class _Left:
    """A guess of the draft model that was left out; `place` is where the target's own token will stand."""

    place: int
    guess: Guess


class Auto:
    """The drafter of mode `auto`, for one answer."""

    def __init__(self, lookup: PromptLookup, draft: DraftModel | None, experience: Experience) -> None:
        self.lookup = lookup
        self.draft = draft
        self._know = experience
        self._candidate: Candidate | None = None
        self._confidences: list[float] = []
        self._survival: list[float] = []
        self._lookup_survival: list[float] = []
        self._left: _Left | None = None
        self._length = 0
        self._prompt_length: int | None = None
        self._drafted_by_model = False
        self._exploring = False

    def begin(self, prompt: Sequence[int]) -> Iterator[int]:
        """Index the prompt; the draft model reads it when it is first used."""
        self._prompt_length = len(prompt)
        return self.lookup.begin(prompt)

    def propose(self, proposal: Proposal) -> Draft:
        """Return the draft that is expected to save the most time, or an empty one."""
        self._learn(proposal.committed)
        self._begin_step(proposal)
        plain = self._know.value(1, self._know.costs.seconds(1))
        length, lookup_value = self._best_lookup(proposal.limit)
        if self._draft_value(proposal) > max(plain, lookup_value):
            return self._ask_draft(proposal)
        if self._candidate is not None and lookup_value > plain:
            return Draft(self._candidate.tokens[:length])
        return self._explore(proposal)

    def _begin_step(self, proposal: Proposal) -> None:
        self._length = len(proposal.committed)
        if self._prompt_length is None:
            self._prompt_length = self._length
        self._candidate = self.lookup.find(proposal.committed, proposal.limit)
        self._confidences, self._survival, self._left = [], [], None
        self._lookup_survival = []
        self._drafted_by_model = self._exploring = False

    def _best_lookup(self, limit: int) -> tuple[int, float]:
        """Return the best length of the lookup candidate and its value."""
        know, candidate = self._know, self._candidate
        best = (0, float("-inf"))
        if candidate is None:
            return best
        tokens = survival = 1.0
        for length in range(1, min(limit, len(candidate.tokens)) + 1):
            survival *= know.by_match.rate(candidate.match_length + length - 1)
            self._lookup_survival.append(survival)
            tokens += survival
            value = know.value(tokens, MARGIN * know.costs.seconds(length + 1))
            best = max(best, (length, value), key=lambda pair: pair[1])
        return best

    def _draft_value(self, proposal: Proposal) -> float:
        """Return the best value a draft of the model can be expected to have before its first token is seen."""
        if self.draft is None or proposal.limit < 1:
            return float("-inf")
        return self._ahead(1.0, 1.0, 1, proposal.limit) - self._debt(self.draft, proposal.committed)

    def _debt(self, draft: DraftModel, committed: Sequence[int]) -> float:
        """Return the seconds of reading that a draft now would cost, spread over the steps that are likely to follow.

        As many tokens are expected to come as were written so far, which bounds the loss if none do.
        """
        steps = max(FEWEST_STEPS, self._length - (self._prompt_length or 0))
        behind = max(0, draft.behind(committed) - 1)
        return behind * CATCH_UP_SHARE * self._know.draft.token_seconds / steps

    def _ahead(self, tokens: float, survival: float, rows: int, limit: int) -> float:
        """Return the best value over drafting 1..limit more tokens at the mean acceptance."""
        know, best = self._know, float("-inf")
        for more in range(1, limit + 1):
            survival *= know.draft.acceptance
            tokens += survival
            seconds = more * know.draft.token_seconds + know.costs.seconds(rows + more)
            best = max(best, know.value(tokens, MARGIN * seconds))
        return best

    def _ask_draft(self, proposal: Proposal) -> Draft:
        if self.draft is None:
            return EMPTY_DRAFT
        self._drafted_by_model = True
        return self.draft.propose(proposal, self._judge)

    def _judge(self, guess: Guess) -> Take:
        """Decide on one drafted token: leave it, take it and end, or take it and draft another."""
        know, rows = self._know, guess.position + 1
        tokens = 1 + sum(self._survival)
        survival = self._survival[-1] if self._survival else 1.0
        survival *= know.draft.by_confidence.rate(guess.probability)
        without = know.value(tokens, know.costs.seconds(rows))
        taken = know.value(tokens + survival, know.costs.seconds(rows + 1))
        ahead = self._ahead(tokens + survival, survival, rows + 1, guess.limit - rows)
        if without >= max(taken, ahead) and not (self._exploring and guess.position == 0):
            self._left = _Left(self._length + guess.position, guess)
            return "leave"
        self._confidences.append(guess.probability)
        self._survival.append(survival)
        return "go-on" if ahead > taken else "last"

    def _explore(self, proposal: Proposal) -> Draft:
        """Try the draft model once in a while, within the time set aside for it, where it could win at its best."""
        know, draft = self._know, self.draft
        if draft is None or proposal.limit < 2 or not self._could_win(proposal.limit):
            return EMPTY_DRAFT
        price = (2 + CATCH_UP_SHARE * draft.behind(proposal.committed)) * know.draft.token_seconds
        if know.explored_seconds + price > EXPLORATION * know.decode_seconds:
            return EMPTY_DRAFT
        know.explored_seconds += price
        self._exploring = True
        return self._ask_draft(proposal)

    def _could_win(self, limit: int) -> bool:
        know = self._know
        plain = 1 / know.costs.seconds(1)
        return any(
            (1 + k * 0.95) / (k * know.draft.token_seconds + know.costs.seconds(k + 1)) > MARGIN * plain
            for k in range(1, limit + 1)
        )

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
            self._know.by_match.observe(candidate.match_length + place, hit)
            if not hit:
                break

    def accept(self, outcome: Outcome) -> None:
        """Learn from the step."""
        self._note(outcome)
        if self.draft is not None and self._drafted_by_model:
            self._learn_from_draft(self.draft, outcome)
            self.draft.accept(outcome)
        self._know.observe_step(outcome)

    def _note(self, outcome: Outcome) -> None:
        """Note what was chosen, and what it promised."""
        know, drafted = self._know, len(outcome.draft)
        drafter: SpeculationMode = "draft-model" if self._drafted_by_model else "prompt-lookup"
        know.choices.add(drafter if drafted else "none", drafted)
        seconds = know.costs.seconds(drafted + 1)
        if self._drafted_by_model:
            seconds += max(1, drafted) * know.draft.token_seconds
        survival = self._survival if self._drafted_by_model else self._lookup_survival
        know.promise.add(1 + sum(survival[:drafted]), seconds)

    def _learn_from_draft(self, draft: DraftModel, outcome: Outcome) -> None:
        drafted, accepted = len(outcome.draft), outcome.num_accepted
        for position, confidence in enumerate(self._confidences[: min(drafted, accepted + 1)]):
            self._know.draft.observe(confidence, position < accepted)
        if accepted < drafted:
            self._left = None  # what stands at its place does not follow what it followed
        if draft.rows_caught_up:
            read = 1 + CATCH_UP_SHARE * (draft.rows_caught_up - 1)
            self._know.draft.observe_time(outcome.draft_seconds, draft.rows_decoded + read)
