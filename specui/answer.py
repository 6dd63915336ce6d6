"""Runs one generation on a lane: renders the prompt, decodes, and publishes snapshots of the text and the figures.

Knows the engine and the generation handle; nothing about queues, loading or faces.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from specui.config import SamplingSettings
from specui.engine.chat import ChatTemplate, Prompt
from specui.engine.decoder import ABORTED, Decoder, Task
from specui.engine.grammar import Grammar
from specui.engine.llama import Model, NativeGrammar
from specui.engine.stats import FinishReason, TokenOrigin
from specui.engine.text import TextStream
from specui.errors import BlankPromptError, DecodeError, PromptTooLongError, SettingError
from specui.generation import Generation, GenerationRequest, Progress, TokenPiece
from specui.lane import Lane

PUBLISH_SECONDS = 0.04
"""Snapshots are made at most this often, so that faces cost the engine next to nothing."""

UNWATCHED_SECONDS = 0.5
"""How old a snapshot may be while nobody waits for a newer one."""


def check_request(request: GenerationRequest) -> None:
    """Raise BlankPromptError where there is nothing to answer."""
    text = request.messages[-1].content if request.messages else request.prompt
    if text is None or not text.strip():
        raise BlankPromptError


def render_prompt(request: GenerationRequest, model: Model, template: Callable[[], ChatTemplate], n_ctx: int) -> Prompt:
    """Return the prompt's ids with room left for a token. Raises TemplateError, PromptTooLongError."""
    if request.prompt is None:
        return template().fit([(message.role, message.content) for message in request.messages], n_ctx - 1)
    ids = model.tokenize(request.prompt, add_special=True, parse_special=True)
    if len(ids) >= n_ctx:
        raise PromptTooLongError(len(ids) + 1, n_ctx)
    return Prompt(ids)


def _check_bias(settings: SamplingSettings, model: Model) -> None:
    """Raise SettingError where a biased token is none of the model's."""
    for token_id, _ in settings.logit_bias:
        if token_id >= model.n_vocab:
            raise SettingError("logit_bias", token_id, f"a token id below {model.n_vocab:,}, as this model has them")


def _constraint(grammar: str | None, model: Model) -> Grammar | None:
    return Grammar(NativeGrammar(model, grammar), model.n_vocab) if grammar is not None else None


class Answer:
    """One answer being written. `run` blocks until it is over; the outcome is in the generation's last snapshot.

    Whoever wants to hold the reins takes `begin` to its end, then `step` until it returns False, then `finish`;
    nothing is published then.
    """

    def __init__(self, generation: Generation, lane: Lane, prompt: Prompt) -> None:
        request = generation.request
        seed = request.settings.sampling.seed
        _check_bias(request.settings.sampling, lane.model)
        self._generation = generation
        self._lane = lane
        self._model = lane.model
        self._text = TextStream(request.limits.stop)
        self._tokens: list[tuple[int, TokenOrigin]] = []
        self._pieces: list[TokenPiece] = []
        self._published = 0.0
        self._progress = Progress(
            phase="prefill",
            prefill_total=len(prompt.token_ids),
            dropped_turns=prompt.dropped_turns,
            seed=secrets.randbits(32) if seed is None else seed,
            prompt_token_ids=tuple(prompt.token_ids),
        )
        task = Task(
            prompt=prompt.token_ids,
            max_tokens=request.limits.max_tokens,
            end_tokens=lane.model.end_tokens,
            seed=self._progress.seed,
            settings=lambda: generation.settings,
            on_token=self._on_token,
            constraint=_constraint(request.grammar, lane.model),
        )
        self._decoder = Decoder(lane.target, lane, task)

    def run(self) -> None:
        """Decode to the end, or until the generation is cancelled, publishing on the way."""
        try:
            for progress in self.begin():
                self._generation.publish(progress)
            while not self._generation.cancelled.is_set() and self.step():
                if self._due():
                    self._published = time.monotonic()
                    self._generation.publish(self.progress())
        except DecodeError as error:
            if error.code != ABORTED:
                raise
        self._generation.publish(self.finish())

    def begin(self) -> Iterator[Progress]:
        """Evaluate the prompt, yielding a snapshot after each batch; the end of it emits the first token."""
        for done in self._decoder.prefill():
            self._progress = replace(self._progress, prefill_done=done)
            yield self._progress
        self._progress = replace(self._progress, phase="decode")

    @property
    def compute_seconds(self) -> float:
        """What the answer has cost so far: prefill and decode."""
        return self._decoder.stats.compute_seconds

    def step(self) -> bool:
        """Make one engine step. Returns False when the answer is over; `finish` comes next."""
        return self._decoder.step()

    def finish(self) -> Progress:
        """Return the last snapshot: held-back text flushed, `cancelled` where the answer had not come to an end."""
        self._text.finish()
        self._decoder.stats.close_slice()
        reason: FinishReason = self._decoder.finish_reason or "cancelled"
        self._progress = replace(self._progress, phase="done", finish_reason=reason)
        return self.progress()

    def progress(self) -> Progress:
        """Return a snapshot of the text and the figures."""
        stats = self._decoder.stats
        return replace(
            self._progress,
            text=self._text.text,
            pieces=self._fresh_pieces(),
            stats=replace(stats.snapshot(), translation=self._lane.translation),
            rates=tuple(stats.rates),
        )

    def _on_token(self, token_id: int, origin: TokenOrigin) -> bool:
        self._tokens.append((token_id, origin))
        return self._text.push(self._model.piece(token_id))

    def _due(self) -> bool:
        age_seconds = time.monotonic() - self._published
        return age_seconds > (PUBLISH_SECONDS if self._generation.wanted else UNWATCHED_SECONDS)

    def _fresh_pieces(self) -> tuple[TokenPiece, ...]:
        """Return all pieces; those wholly shown never change and are kept from one snapshot to the next."""
        first = len(self._pieces)
        self._pieces += [
            TokenPiece(token_id, text, origin)
            for (token_id, origin), text in zip(self._tokens[first:], self._text.pieces(first), strict=True)
        ]
        pieces = tuple(self._pieces)
        del self._pieces[self._text.num_final_pieces :]
        return pieces
