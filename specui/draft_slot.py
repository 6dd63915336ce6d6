"""The draft model of a lane: loaded beside a running answer when it is first needed, freed on request.

Whatever keeps it from drafting becomes a reason that is shown; the target goes on. Knows nothing about drafters.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from specui.config import DRAFT_ROWS
from specui.engine.llama import Context, Model
from specui.errors import ModelError, SpecUIError, VocabularyError
from specui.vocab import Vocabulary, first_difference
from specui.weights import Shelf

NO_DRAFT = "this pair has no draft model"


def _vocabulary(model: Model) -> Vocabulary:
    return Vocabulary(model.vocab_type, model.token_texts(), model.special_ids)


class DraftSlot:
    """The draft model of a lane: not needed yet, loading, ready, or off with a reason."""

    def __init__(
        self,
        path: Path | None,
        target: Model,
        shelf: Shelf,
        open_context: Callable[[Model, int], Context],
        may_translate: bool = False,
    ) -> None:
        self.path = path
        self.model: Model | None = None
        self.context: Context | None = None
        self.off_reason: str | None = None if path else NO_DRAFT
        self.translated = False
        """Whether the draft has another vocabulary than the target, which its drafts are translated into."""
        self._may_translate = may_translate
        self._target = target
        self._shelf = shelf
        self._open_context = open_context
        self._thread: threading.Thread | None = None

    @property
    def own_context(self) -> Context | None:
        """The context, if its ids are the target's: not where drafts are translated."""
        return None if self.translated else self.context

    def load(self, cancelled: Callable[[], bool]) -> None:
        """Load the draft if that was not tried yet, and wait, unless `cancelled`; a failure becomes `off_reason`."""
        self.begin_load()
        while self._thread is not None and self._thread.is_alive() and not cancelled():
            self._thread.join(0.1)

    def begin_load(self) -> None:
        """Start loading in the background if that was not tried yet."""
        if self.path is not None and self.context is None and self.off_reason is None and self._thread is None:
            self._thread = threading.Thread(target=self._load, args=[self.path], name="specui-draft", daemon=True)
            self._thread.start()

    def _load(self, path: Path) -> None:
        model: Model | None = None
        try:
            model = self._shelf.take(path)
            self._check(model)
            self.context = self._open(model)
            self.model = model
        except Exception as error:  # whatever it is, the target goes on and the reason is shown
            self.off_reason = str(error) if isinstance(error, SpecUIError) else f"loading the draft failed: {error!r}"
            if model is not None:
                self._shelf.give_back(model)

    def _open(self, draft: Model) -> Context:
        context = self._open_context(draft, DRAFT_ROWS)
        if context.rollback.kind != "cut":  # rows of logits ask for snapshots there, which a long draft outruns
            context.close()
            context = self._open_context(draft, 1)
        reason = context.rollback.reason
        if reason is not None:
            context.close()
            raise ModelError(draft.path, f"{reason}; choose another draft")
        return context

    def _check(self, draft: Model) -> None:
        """Raise what keeps a loaded model from drafting for the target."""
        if draft is self._target:
            return
        difference = first_difference(_vocabulary(self._target), _vocabulary(draft))
        self.translated = difference is not None and self._may_translate
        if difference is not None and not self.translated:
            advice = "choose a draft of the same family, or translate its drafts with --translate-draft"
            reason = f"cannot draft for {self._target.path.name}: {difference}; {advice}"
            raise VocabularyError(draft.path, reason)

    def close(self) -> None:
        """Free the draft; it loads again when it is needed."""
        if self._thread is not None:
            self._thread.join()
        if self.context is not None:
            self.context.close()
        if self.model is not None:
            self._shelf.give_back(self.model)
        self.model = self.context = self._thread = None
        self.translated = False
        self.off_reason = None if self.path else NO_DRAFT
