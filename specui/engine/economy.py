"""What mode `auto` knows: what passes and draft tokens cost here, how often guesses hold, what its choices promise.

Lives as long as a lane, across answers, and can be kept between starts. Knows costs and rates; nothing about how
drafts are found or made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from specui.config import DRAFT_ROWS
from specui.engine.costs import MOST_ROWS, MOST_SURPRISE, PassCosts
from specui.engine.drafting import Outcome
from specui.engine.lookup import AGREEMENTS, MATCH_BOUNDS
from specui.engine.rates import Record, SuccessRates
from specui.engine.thinking import ChoiceLog, MatchRate, Stair, Thinking

LOOKUP_PRIORS = {
    "alone": (0.35, 0.5, 0.6, 0.75, 0.85, 0.92, 0.92, 0.95),
    "agreed": (0.8, 0.82, 0.86, 0.9, 0.96, 0.985, 0.99, 0.995),
    "disputed": (0.15, 0.35, 0.4, 0.45, 0.6, 0.8, 0.85, 0.93),
    "resumed": (0.45, 0.75, 0.8, 0.9, 0.9, 0.93, 0.95, 0.97),
}
"""How often a copied token is right before anything is known here, by length of match."""

HAZARD_PRIOR, HAZARD_WEIGHT, HAZARD_MEMORY = 2.5, 1.0, 0.98
"""A new answer is met with caution: as if so many times the misses expected had been seen, which weighs like so many
misses. The last is what is left of a guess after each later one."""

CONFIDENCE_BOUNDS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
CONFIDENCE_PRIORS = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
ACCEPTANCE_PRIOR = 0.92
"""A new draft model is believed in until it is known better: only who drafts finds out."""
ACCEPTANCE_CARRIED = 0.5
"""An answer begins with the acceptance that is usual, into which each goes with this share of how it ended."""

READING_SHARE = 0.25
"""Reading a committed token among several costs the draft model this share of writing one, until that is measured."""
CREDIT_TOKENS, MOST_CREDIT_TOKENS = 1.5, 64.0
"""What an answer's drafts may lose to begin with and at most, in tokens' worth of plain decoding."""
ALLOWANCE = 0.01
"""They may lose this share of the time spent on plain steps besides."""
SURE = 0.15
"""A draft that risks less than this share of what it is expected to gain is no gamble and always allowed."""
LONG_DRAFT = 15
"""The most tokens that the draft model writes in a row; what it is sure of for longer, lookup finds as well."""
MARGIN, DRAFT_MARGIN = 1.02, 1.06
"""A copy, and a draft of the model, must promise this much more than a plain step: what the model takes swings more."""


class LookupRates:
    """How often copied tokens are right, by the class that `lookup.evidence` gives them.

    Texts differ in more than classes tell, so one factor for all classes says how much more often copies fail in this
    answer than their classes let expect: misses seen to misses expected.
    """

    def __init__(self) -> None:
        priors = [prior for each in zip(*LOOKUP_PRIORS.values(), strict=True) for prior in each]
        self._rates = SuccessRates(range(1, len(priors)), priors)
        self.begin_answer()

    def begin_answer(self) -> None:
        """Forget how the last answer differed, and count it among the usual."""
        self._rates.begin_answer()
        self._note_misses()
        self._misses, self._expected = HAZARD_PRIOR * HAZARD_WEIGHT, HAZARD_WEIGHT
        self._table: list[float] | None = None

    @property
    def table(self) -> list[float]:
        """The estimate for each class, as it is at present."""
        if self._table is None:
            hazard = self._misses / self._expected
            self._table = [max(0.0, 1 - hazard * miss) for miss in self._class_misses]
        return self._table

    def _note_misses(self) -> None:
        self._class_misses = [1 - rate for rate in self._rates.rates]

    def observe(self, evidence: int, hit: bool) -> None:
        """Learn from one token, copied or only thought of."""
        prior = HAZARD_WEIGHT * (1 - HAZARD_MEMORY)
        self._misses = HAZARD_MEMORY * self._misses + HAZARD_PRIOR * prior + (not hit)
        self._expected = HAZARD_MEMORY * self._expected + prior + self._class_misses[evidence]
        self._rates.observe(evidence, hit)
        self._class_misses[evidence] = 1 - self._rates.rate(evidence)
        self._table = None

    @property
    def records(self) -> tuple[Record, ...]:
        """What is known, class by class."""
        return self._rates.records

    def recall(self, records: Sequence[Record]) -> None:
        """Go on from what was known before."""
        self._rates.recall(records)
        self._note_misses()
        self._table = None

    def by_length(self) -> tuple[MatchRate, ...]:
        """Return the usual rate by length of match, all agreements together."""
        width, known, rates = len(AGREEMENTS), self.records, []
        for place, length in enumerate((1, *MATCH_BOUNDS)):
            records = known[width * place : width * (place + 1)]
            hits, trials = sum(each.hits for each in records), sum(each.trials for each in records)
            rates.append(MatchRate(length, hits / trials, sum(each.seen for each in records)))
        return tuple(rates)


def won(outcome: Outcome, costs: PassCosts) -> float:
    """Return the seconds that a step saved, or lost where negative, against plain decoding.

    A pass counts for at most MOST_SURPRISE times what is expected of it: a busy machine is no fault of the draft.
    """
    pass_seconds = min(outcome.verify_seconds, MOST_SURPRISE * costs.seconds(outcome.rows))
    return (outcome.num_accepted + 1) * costs.seconds(1) - pass_seconds - outcome.draft_seconds


class Stake:
    """What an answer's drafts may lose: what they have won, a little credit, and a small share of the answer's time.

    Expected gains can deceive where a text differs from those before it; this bounds what that may cost.
    """

    def __init__(self, plain_seconds: float) -> None:
        self.seconds = CREDIT_TOKENS * plain_seconds

    def settle(self, outcome: Outcome, costs: PassCosts, asked: bool) -> None:
        """Take account of a step; `asked`: the draft model was, whether it drafted or not."""
        tried = asked or len(outcome.draft) > 0
        earned = won(outcome, costs) if tried else ALLOWANCE * outcome.verify_seconds
        self.seconds = min(self.seconds + earned, MOST_CREDIT_TOKENS * costs.seconds(1))

    def allows(self, risk_seconds: float, gain_seconds: float) -> bool:
        """Return whether a draft may be tried that risks so much to gain so much."""
        return risk_seconds <= max(self.seconds, SURE * gain_seconds)


class DraftEconomy:
    """What the draft model costs and how often it is right. Outlives an answer.

    Its costs are held in plain passes of the target: a machine that slows down slows both, and what is not used for a
    while keeps its place beside what is.
    """

    def __init__(self, target: PassCosts, token_seconds: float) -> None:
        self._target = target
        self.measured(token_seconds)
        self.acceptance = self._usual_acceptance = ACCEPTANCE_PRIOR
        self.by_confidence = SuccessRates(CONFIDENCE_BOUNDS, CONFIDENCE_PRIORS)

    def begin_answer(self) -> None:
        """Count how the last answer went among the usual, and go back to that."""
        self.by_confidence.begin_answer()
        self.acceptance = self._usual_acceptance = self.usual_acceptance

    @property
    def usual_acceptance(self) -> float:
        """How often guesses are right as a rule, this answer counted in."""
        return self._usual_acceptance + ACCEPTANCE_CARRIED * (self.acceptance - self._usual_acceptance)

    def recall(self, by_confidence: Sequence[Record], acceptance: float) -> None:
        """Go on from what was known before."""
        self.by_confidence.recall(by_confidence)
        self.acceptance = self._usual_acceptance = acceptance

    def observe(self, confidence: float, hit: bool) -> None:
        """Learn whether one guess of the draft model was right."""
        self.by_confidence.observe(confidence, hit)
        self.acceptance += 0.05 * (hit - self.acceptance)

    def measured(self, token_seconds: float, several_seconds: float | None = None) -> None:
        """Take what a pass of one row and one of DRAFT_ROWS rows take the draft model now."""
        plain = self._target.seconds(1)
        several = several_seconds or (1 + READING_SHARE * (DRAFT_ROWS - 1)) * token_seconds
        self._passes = PassCosts({1: token_seconds / plain, DRAFT_ROWS: several / plain})

    @property
    def token_passes(self) -> float:
        """What it takes to write a token, in passes of one row of the target."""
        return self._passes.seconds(1)

    @property
    def token_seconds(self) -> float:
        """What it takes to write a token."""
        return self._target.seconds(1) * self.token_passes

    def reading_seconds(self, tokens: int) -> float:
        """Return what it takes to read so many committed tokens in front of the one behind which it writes."""
        rows = tokens + 1
        known = min(rows, MOST_ROWS)
        passes = self._passes.unpadded_seconds(known) * rows / known
        return self._target.seconds(1) * max(0.0, passes - self.token_passes)

    def observe_time(self, rows: int, seconds: float) -> None:
        """Learn from one pass of the draft model; it counts for at most MOST_SURPRISE times what is expected of it."""
        expected = self._passes.unpadded_seconds(rows)
        self._passes.observe(rows, min(seconds / self._target.seconds(1), MOST_SURPRISE * expected))


@dataclass(frozen=True, slots=True)
class Known:
    """What `auto` knows, to be kept between starts.

    `pass_seconds` by rows, with nothing in front; `draft_token_passes`: what a token takes the draft model in passes of
    one row of the target, None where none was measured.
    """

    pass_seconds: Mapping[int, float]
    cell_seconds: float
    by_match: tuple[Record, ...]
    by_confidence: tuple[Record, ...]
    acceptance: float
    draft_token_passes: float | None


SHOWN_STAIRS = 32
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
        self.lookup = LookupRates()
        self.draft = DraftEconomy(costs, costs.seconds(1) if draft_token_seconds is None else draft_token_seconds)
        self.decode_seconds = 0.0
        self.explored_seconds = 0.0
        self._draft_gains: dict[tuple[int, float | None], tuple[tuple[int, float, float], float]] = {}
        self.begin_answer()

    def begin_answer(self) -> None:
        """Forget what was chosen in the last answer; what was learned counts among the usual."""
        self.lookup.begin_answer()
        self.draft.begin_answer()
        self.stake = Stake(self.costs.seconds(1))
        self.choices = ChoiceLog()
        self.promise = _Promise()

    def known(self, with_draft: bool) -> Known:
        """Return what is worth keeping; `with_draft`: what a draft token costs was measured."""
        passes = self.draft.token_passes if with_draft else None
        records = self.lookup.records, self.draft.by_confidence.records
        costs = self.costs
        return Known(costs.points, costs.cell_seconds, *records, self.draft.usual_acceptance, passes)

    def recall(self, known: Known) -> None:
        """Go on from what was kept; the costs of passes are `costs` already."""
        self.lookup.recall(known.by_match)
        self.draft.recall(known.by_confidence, known.acceptance)
        if known.draft_token_passes is not None:
            self.draft.measured(known.draft_token_passes * self.costs.seconds(1))

    def thinking(self, with_draft: bool) -> Thinking | None:
        """Return what faces may show, or None where `auto` has not chosen yet; `with_draft`: it may ask a model."""
        if not self.choices:
            return None
        costs = self.costs
        return Thinking(
            choices=self.choices.choices(),
            stairs=tuple(self._stair(rows) for rows in range(1, SHOWN_STAIRS + 1)),
            matches=self.lookup.by_length(),
            draft_token_seconds=self.draft.token_seconds if with_draft else None,
            draft_acceptance=self.draft.acceptance if with_draft else None,
            expected_gain=self.promise.gain(costs.seconds(1)),
        )

    def _stair(self, rows: int) -> Stair:
        costs = self.costs
        padded = costs.padded(rows, MOST_ROWS)
        return Stair(rows, costs.unpadded_seconds(rows), padded, costs.unpadded_seconds(padded))

    def allows(self, tokens: float, survivals: Sequence[float], seconds: float) -> bool:
        """Return whether a step may be tried that takes `seconds` for so many expected tokens.

        At risk is what it costs beyond a plain step, if its draft does not pay for itself: `survivals` say how likely
        each drafted token is kept.
        """
        plain = self.costs.seconds(1)
        needed = min(len(survivals), max(1, ceil(seconds / plain) - 1))
        risk = (1 - survivals[needed - 1]) * max(0.0, seconds - plain)
        return self.stake.allows(risk, tokens * plain - seconds)

    @property
    def draft_wins(self) -> bool:
        """Whether drafts of the model are expected to win, by enough to begin one."""
        return self.draft_gain(LONG_DRAFT) > DRAFT_MARGIN

    def draft_gain(self, limit: int, acceptance: float | None = None) -> float:
        """Return the most that drafts of up to `limit` tokens of the model gain over plain decoding, as a factor."""
        costs, draft = self.costs, self.draft
        state = costs.version, draft.token_passes, draft.acceptance if acceptance is None else acceptance
        known = self._draft_gains.get((limit, acceptance))
        if known is None or known[0] != state:
            known = self._draft_gains[limit, acceptance] = state, self._worked_out_gain(limit, state[2])
        return known[1]

    def _worked_out_gain(self, limit: int, acceptance: float) -> float:
        costs, draft = self.costs, self.draft
        survival = tokens = 1.0
        best = 0.0
        for length in range(1, limit + 1):
            survival *= acceptance
            tokens += survival
            best = max(best, tokens / (length * draft.token_seconds + costs.seconds(length + 1)))
        return best * costs.seconds(1)

    def observe_step(self, outcome: Outcome, asked: bool = False) -> None:
        """Learn from one step's time; `asked`: the draft model was, whether it drafted or not."""
        self.costs.observe(outcome.rows, outcome.verify_seconds)
        wanted = len(outcome.draft) + 1
        if 1 < wanted < outcome.rows:
            self.costs.doubt(wanted)
        self.decode_seconds += outcome.verify_seconds + outcome.draft_seconds
        self.stake.settle(outcome, self.costs, asked)
