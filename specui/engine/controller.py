"""Mode `auto`: at each step the drafter and the length that save the most time, or none.

A step that emits E tokens in T seconds is worth E / rate - T, where `rate` is what decoding reaches at present; plain
decoding is one of the choices, so a draft is made only where it is expected to win. E comes from running acceptance
estimates (prompt lookup: by match length; draft model: by its own confidence), T from measured costs. What lookup would
have proposed is checked against what was written at every step, drafted or not, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specui.engine.costs import PassCosts, SuccessRates
from specui.engine.drafting import Candidate, DraftModel, Outcome, PromptLookup, Proposal, Take
from specui.engine.verification import EMPTY_DRAFT, Draft

MATCH_BOUNDS = (2, 3, 4, 6, 9, 14, 22)
MATCH_PRIORS = (0.2, 0.35, 0.5, 0.65, 0.75, 0.85, 0.9, 0.95)
CONFIDENCE_BOUNDS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
CONFIDENCE_PRIORS = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
MARGIN = 1.02
"""A draft must promise this much more than a plain step."""
EXPLORATION = 0.01
"""Share of decode time that may go into trying the draft model where it is not expected to win."""


class DraftEconomy:
    """What the draft model costs and how often it is right. Outlives an answer."""

    def __init__(self, token_seconds: float) -> None:
        self.token_seconds = token_seconds
        self.acceptance = 0.75
        self.by_confidence = SuccessRates(CONFIDENCE_BOUNDS, CONFIDENCE_PRIORS)

    def observe(self, confidences: Sequence[float], outcome: Outcome) -> None:
        """Learn from one verified draft."""
        drafted, accepted = len(outcome.draft), outcome.num_accepted
        for position, confidence in enumerate(confidences[: min(drafted, accepted + 1)]):
            hit = position < accepted
            self.by_confidence.observe(confidence, hit)
            self.acceptance += 0.05 * (hit - self.acceptance)
        if drafted:
            reading = min(outcome.draft_seconds / drafted, 2 * self.token_seconds)
            self.token_seconds += 0.1 * (reading - self.token_seconds)


class Experience:
    """What `auto` knows about this machine and this pair: it lives as long as the lane, across answers."""

    def __init__(self, costs: PassCosts, draft_token_seconds: float) -> None:
        self.costs = costs
        self.by_match = SuccessRates(MATCH_BOUNDS, MATCH_PRIORS)
        self.draft = DraftEconomy(draft_token_seconds)
        self.rate = 1 / costs.seconds(1)
        self.decode_seconds = 0.0
        self.explored_seconds = 0.0

    def value(self, tokens: float, seconds: float) -> float:
        """Return the seconds a step saves against decoding on at the present rate."""
        return tokens / max(self.rate, 1 / self.costs.seconds(1)) - seconds

    def observe_step(self, rows: int, emitted: int, outcome: Outcome) -> None:
        """Learn from one step's time."""
        self.costs.observe(rows, outcome.verify_seconds)
        seconds = outcome.verify_seconds + outcome.draft_seconds
        self.decode_seconds += seconds
        self.rate += 0.05 * (emitted / seconds - self.rate)


class Auto:
    """The drafter of mode `auto`, for one answer."""

    def __init__(self, lookup: PromptLookup, draft: DraftModel | None, experience: Experience) -> None:
        self._lookup = lookup
        self._draft = draft
        self._know = experience
        self._candidate: Candidate | None = None
        self._confidences: list[float] = []
        self._survival: list[float] = []
        self._exploring = False

    @property
    def has_draft(self) -> bool:
        """Whether a draft model takes part."""
        return self._draft is not None

    def begin(self, prompt: Sequence[int]) -> Iterator[int]:
        """Index the prompt; the draft model reads it when it is first used."""
        return self._lookup.begin(prompt)

    def propose(self, proposal: Proposal) -> Draft:
        """Return the draft that is expected to save the most time, or an empty one."""
        self._learn_shadow(proposal.committed)
        self._candidate = self._lookup.find(proposal.committed, proposal.limit)
        self._confidences, self._survival = [], []
        self._exploring = False
        plain = self._know.value(1, self._know.costs.seconds(1))
        length, lookup_value = self._best_lookup(proposal.limit)
        draft_value = self._draft_value(proposal)
        if self._draft is not None and draft_value > max(plain, lookup_value):
            return self._draft.propose(proposal, self._judge)
        if self._candidate is not None and lookup_value > plain:
            return Draft(self._candidate.tokens[:length])
        return self._explore(proposal)

    def _best_lookup(self, limit: int) -> tuple[int, float]:
        """Return the best length of the lookup candidate and its value."""
        know, candidate = self._know, self._candidate
        best = (0, float("-inf"))
        if candidate is None:
            return best
        tokens = survival = 1.0
        for length in range(1, min(limit, len(candidate.tokens)) + 1):
            survival *= know.by_match.rate(candidate.match_length + length - 1)
            tokens += survival
            value = know.value(tokens, MARGIN * know.costs.seconds(length + 1))
            best = max(best, (length, value), key=lambda pair: pair[1])
        return best

    def _draft_value(self, proposal: Proposal) -> float:
        """Return the best value a draft of the model can be expected to have before its first token is seen."""
        if self._draft is None or proposal.limit < 1:
            return float("-inf")
        behind = self._draft.behind(proposal.committed)
        return self._ahead(1.0, 1.0, behind * 0.3 * self._know.draft.token_seconds, 1, proposal.limit)

    def _ahead(self, tokens: float, survival: float, spent: float, rows: int, limit: int) -> float:
        """Return the best value over drafting 1..limit more tokens at the mean acceptance."""
        know, best = self._know, float("-inf")
        for more in range(1, limit + 1):
            survival *= know.draft.acceptance
            tokens += survival
            seconds = spent + more * know.draft.token_seconds + know.costs.seconds(rows + more)
            best = max(best, know.value(tokens, MARGIN * seconds))
        return best

    def _judge(self, position: int, probability: float, limit: int) -> Take:
        """Decide on one drafted token: leave it, take it and end, or take it and draft another."""
        know = self._know
        sure = self._survival[-1] if self._survival else 1.0
        tokens = 1 + sum(self._survival)
        survival = sure * know.draft.by_confidence.rate(probability)
        without = know.value(tokens, know.costs.seconds(position + 1))
        taken = know.value(tokens + survival, know.costs.seconds(position + 2))
        ahead = self._ahead(tokens + survival, survival, 0.0, position + 2, limit - position - 1)
        if without >= max(taken, ahead) and not (self._exploring and position == 0):
            return "leave"
        self._confidences.append(probability)
        self._survival.append(survival)
        return "go-on" if ahead > taken else "last"

    def _explore(self, proposal: Proposal) -> Draft:
        """Try the draft model once in a while, within the time set aside for it, where it could win at its best."""
        know, draft = self._know, self._draft
        if draft is None or proposal.limit < 2:
            return EMPTY_DRAFT
        price = 2 * know.draft.token_seconds * (1 + 0.3 * draft.behind(proposal.committed))
        if know.explored_seconds + price > EXPLORATION * know.decode_seconds or not self._could_win(proposal.limit):
            return EMPTY_DRAFT
        know.explored_seconds += price
        self._exploring = True
        return draft.propose(proposal, self._judge)

    def _could_win(self, limit: int) -> bool:
        know = self._know
        plain = 1 / know.costs.seconds(1)
        return any(
            (1 + k * 0.95) / (k * know.draft.token_seconds + know.costs.seconds(k + 1)) > MARGIN * plain
            for k in range(1, limit + 1)
        )

    def _learn_shadow(self, committed: Sequence[int]) -> None:
        """Check what lookup proposed last time, used or not, against what was written since."""
        candidate = self._candidate
        if candidate is None:
            return
        for place, token in enumerate(committed[candidate.length :]):
            if place == len(candidate.tokens):
                break
            hit = candidate.tokens[place] == token
            self._know.by_match.observe(candidate.match_length + place, hit)
            if not hit:
                break

    def accept(self, outcome: Outcome) -> None:
        """Learn from the step."""
        if self._confidences:
            self._know.draft.observe(self._confidences, outcome)
        if self._draft is not None and self._confidences:
            self._draft.accept(outcome)
        self._know.observe_step(outcome.rows, outcome.num_accepted + 1, outcome)
