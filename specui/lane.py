"""A lane: a target context, a draft context if one is needed, and the drafters on them.

The draft loads on first need, beside a running answer, and can be freed on request. Whatever keeps a mode from being
used becomes a reason that is shown; the target goes on. Knows the engine; nothing about queues or faces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from specui.config import (
    DEFAULT_CTX_SIZE,
    MAX_DRAFT_TOKENS_LIMIT,
    MIN_NGRAM_SIZE,
    SPECULATION_MODES,
    DraftingSettings,
    LoadSettings,
    SpeculationMode,
)
from specui.draft_slot import DraftSlot
from specui.engine.controller import Auto
from specui.engine.drafting import Drafter, DraftModel, NoDrafter, refill
from specui.engine.economy import Experience
from specui.engine.exactness import SINGLE, ExactSizes
from specui.engine.llama import AbortFlag, Context, ContextSize, Model
from specui.engine.lookup import PromptLookup, Reference
from specui.engine.stats import PlainPasses, TranslationCounts
from specui.engine.thinking import Thinking
from specui.engine.translation import TranslatedDraft
from specui.errors import RollbackError
from specui.machine import Machine
from specui.weights import Shelf

LOADING = "the draft model is loading"
ONLY_SINGLE = "exact: at this length every pass of several rows rounds otherwise than one row here"
UNMEASURED = "too little room is left in the context to measure this machine"


class Lane:
    """Contexts on one target, with the drafter for each mode; weights come from a shelf. Used by one thread at a time.

    Raises ModelError where the target cannot be loaded or its context does not fit.
    """

    def __init__(self, shelf: Shelf, target: Path, draft: Path | None, settings: LoadSettings) -> None:
        self.abort = AbortFlag()
        self.model = shelf.take(target)
        self._shelf = shelf
        self._settings = settings
        try:
            self.target = self._open_context(self.model, MAX_DRAFT_TOKENS_LIMIT + 1)
        except BaseException:
            shelf.give_back(self.model)
            raise
        self.draft = DraftSlot(draft, self.model, shelf, self._open_context, settings.translate_draft)
        self._none = NoDrafter()
        self._lookup: PromptLookup | None = None
        self._reference: Reference | None = None
        self._translated: TranslatedDraft | None = None
        self._auto: Auto | None = None
        self._machine = Machine(self.target, draft)
        self._exact = ExactSizes(self.target, self.model.n_vocab)
        self._failed: dict[SpeculationMode, str] = {}
        self._picked: SpeculationMode = "none"

    def _open_context(self, model: Model, max_rows: int) -> Context:
        size = ContextSize(self._settings.ctx_size or DEFAULT_CTX_SIZE, self._settings.batch_size, max_rows)
        return Context(model, size, self._settings.threads, self.abort)

    def reset(self, tokens: Sequence[int] = ()) -> None:
        """Make both caches hold `tokens` and nothing else; what was learned of the machine stays."""
        refill(self.target, tokens)
        self._translated = None
        if self.draft.context is not None:
            # A translated draft reads the text anew when it is first asked: these ids are not its own.
            refill(self.draft.context, () if self.draft.translated else tokens)

    def begin_answer(
        self, drafting: DraftingSettings, cancelled: Callable[[], bool], reference: Reference | None = None
    ) -> None:
        """Get ready for a new answer: forget the last one's text and failures; load the draft if it may be of use.

        Lookup may copy from `reference` as well.
        """
        self._reference = reference
        self._lookup = self._auto = self._translated = None
        self._failed.clear()
        self._machine.begin_answer()
        if self._off_reason is None and self._waits_for_draft(drafting):
            self.draft.load(cancelled)

    def _waits_for_draft(self, drafting: DraftingSettings) -> bool:
        """Return whether an answer begins with the draft at hand: later it had to read all of the prompt at once."""
        mode = drafting.speculation
        return mode == "draft-model" or (mode == "auto" and self._machine.draft_may_win())

    def pick(self, drafting: DraftingSettings) -> tuple[Drafter, SpeculationMode, str | None]:
        """Return the drafter for a step, the mode it really is, and the reason where that is not the one asked for."""
        mode = drafting.speculation
        reason = None if mode == "none" else self._failed.get(mode) or self._off_reason or self._inexact(drafting)
        drafter = None if reason or mode == "none" else self._drafter(drafting)
        if drafter is None and mode != "none" and reason is None:
            reason = UNMEASURED if mode == "auto" else self.draft.off_reason or LOADING
        if drafter is not None and mode != "auto":
            self._time_plain()
        self._picked = "none" if drafter is None else mode
        return drafter or self._none, self._picked, reason

    def _inexact(self, drafting: DraftingSettings) -> str | None:
        return ONLY_SINGLE if drafting.exact and self._exact.here() == SINGLE else None

    def longest(self, drafting: DraftingSettings, limit: int) -> int:
        """Return the longest draft of at most `limit` tokens whose pass has a size that these settings allow."""
        return self._exact.longest(limit) if drafting.exact else limit

    def _drafter(self, drafting: DraftingSettings) -> Drafter | None:
        if drafting.speculation == "prompt-lookup":
            return self._lookup_for(drafting.max_ngram_size)
        if drafting.speculation == "auto":
            return self._auto_for(drafting.max_ngram_size)
        self.draft.begin_load()
        p_min = drafting.draft_p_min
        return self._translation(p_min) if self.draft.translated else self._draft_model(p_min)

    def _translation(self, p_min: float) -> TranslatedDraft | None:
        """Return this answer's translated draft, which keeps the text it has read."""
        context, model = self.draft.context, self.draft.model
        if context is None or model is None:
            return None
        self._translated = self._translated or TranslatedDraft(context, self.model, model)
        self._translated.p_min = p_min
        return self._translated

    @property
    def translation(self) -> TranslationCounts | None:
        """What translating drafts came to in this answer; None where none was translated."""
        return self._translated.counts if self._translated is not None else None

    def _draft_model(self, p_min: float, coupled: bool = False) -> DraftModel | None:
        context = self.draft.own_context
        return DraftModel(context, self.model.n_vocab, p_min, coupled) if context is not None else None

    def _auto_for(self, max_ngram_size: int) -> Auto | None:
        """Return this answer's `auto`, made anew when the draft arrives; what it learned stays with the lane."""
        experience = self._measured()
        if experience is None:
            return None
        self.draft.begin_load()
        lookup, context = self._lookup_for(max_ngram_size), self.draft.own_context
        known = self._auto
        if known is None or known.lookup is not lookup or (known.draft is None) != (context is None):
            if context is not None:
                self._machine.measure_draft(context)
            # The judge of `auto` replaces p_min: it weighs each token's confidence against what it costs here. How long
            # its drafts are depends on time, so they must not reach into the text: they are coupled to the target's.
            known = self._auto = Auto(lookup, self._draft_model(p_min=0.0, coupled=True), experience)
        return known

    def _measured(self) -> Experience | None:
        """Return what is known of this machine, measured at the first call."""
        length = len(self.target.tokens)
        try:
            return self._machine.measure()
        except RollbackError as error:
            refill(self.target, self.target.tokens[:length])
            self.fail(str(error), every_mode=True)
            return None

    def _time_plain(self) -> None:
        length = len(self.target.tokens)
        try:
            self._machine.time_plain()
        except RollbackError:  # the mode may work all the same; only the estimate is missing
            refill(self.target, self.target.tokens[:length])

    @property
    def plain(self) -> PlainPasses:
        """What passes without a draft take on this lane."""
        return self._machine.plain

    def padded(self, rows: int, most: int) -> int:
        """Return the size of a pass over a draft: mode `auto` counts on the cheapest, the others do as told."""
        return self._machine.padded(rows, most) if self._picked == "auto" else rows

    def thinking(self) -> Thinking | None:
        """Return what mode `auto` goes by in this answer, for faces to show; None where it is not in use."""
        return self._machine.thinking()

    def _lookup_for(self, max_ngram_size: int) -> PromptLookup:
        if self._lookup is None or self._lookup.max_ngram_size != max_ngram_size:
            self._lookup = PromptLookup(max_ngram_size, MIN_NGRAM_SIZE, self._reference)
        return self._lookup

    @property
    def _off_reason(self) -> str | None:
        """Why nothing can be drafted on this target at all, or None."""
        if self.target.max_rows < 2:
            return "a batch size of 1 leaves no room for a draft"
        return self.target.rollback.reason

    def fail(self, reason: str, every_mode: bool = False) -> None:
        """Leave the drafter picked last, or every drafter, out for the rest of this answer."""
        for mode in SPECULATION_MODES if every_mode else (self._picked,):
            self._failed[mode] = reason

    def close(self) -> None:
        """Keep what was learned, free both contexts and let go of the weights."""
        self._machine.keep()
        self.draft.close()
        self.target.close()
        self._shelf.give_back(self.model)
