"""A seed reproduces an answer on the real pair, in every mode, and the text is distributed as without drafts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from asking import MODES, SEA, ask

from specui.catalog import PairFiles
from specui.config import SamplingSettings, SpeculationMode
from specui.engine.dice import Dice
from specui.engine.drafting import Drafter, DraftModel, Proposal, common_prefix
from specui.engine.llama import AbortFlag, Context, ContextSize, Model
from specui.engine.lookup import PromptLookup
from specui.engine.sampling import Logits, distribution
from specui.engine.verification import Rules, choose, verify
from specui.runtime import Runtime

WARM = SamplingSettings(temperature=0.8, seed=11)
LIST = "List the numbers from one to ten in words, then the same list again."


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("prompt", [SEA, LIST], ids=["prose", "list"])
def test_an_answer_and_three_regenerations_agree(runtime: Runtime, mode: SpeculationMode, prompt: str) -> None:
    first = ask(runtime, prompt, mode, 40, sampling=WARM)
    assert first.seed == 11
    for between in (None, "Name a colour.", None):
        if between:
            ask(runtime, between, mode, 6, sampling=SamplingSettings(temperature=1.0))
        assert ask(runtime, prompt, mode, 40, sampling=WARM).token_ids == first.token_ids


def test_another_seed_gives_another_text(runtime: Runtime) -> None:
    texts = {
        ask(runtime, SEA, max_tokens=24, sampling=SamplingSettings(temperature=0.8, seed=s)).text for s in range(4)
    }
    assert len(texts) == 4


@pytest.mark.parametrize("prompt", [SEA, LIST], ids=["prose", "list"])
def test_drafts_without_probabilities_do_not_reach_into_the_text(runtime: Runtime, prompt: str) -> None:
    want = ask(runtime, prompt, "none", 40, sampling=WARM)
    for mode in ("prompt-lookup", "auto"):
        assert ask(runtime, prompt, mode, 40, sampling=WARM).token_ids == want.token_ids


@pytest.fixture(scope="module")
def pair(bundled_pair: PairFiles) -> Iterator[tuple[Context, Context]]:
    assert bundled_pair.draft is not None
    models = [Model(bundled_pair.target), Model(bundled_pair.draft)]
    contexts = [Context(model, ContextSize(128, 64, 4), None, AbortFlag()) for model in models]
    yield contexts[0], contexts[1]
    for context, model in zip(contexts, models, strict=True):
        context.close()
        model.close()


class Remembering:
    """A context that makes every pass once: the same tokens give the same logits, so thousands of draws are cheap."""

    def __init__(self, context: Context) -> None:
        self.n_ctx, self.n_batch, self.max_rows = context.n_ctx, context.n_batch, context.max_rows
        self.tokens: list[int] = []
        self._context = context
        self._known: dict[tuple[tuple[int, ...], int], list[Logits]] = {}
        self._rows: list[Logits] = []

    def decode(self, tokens: Sequence[int], rows: int) -> None:
        before = len(self.tokens)
        self.tokens.extend(tokens)
        key = (tuple(self.tokens), rows)
        if key not in self._known:
            self._context.truncate(common_prefix(self._context.tokens, self.tokens[:before]))
            missing = self.tokens[len(self._context.tokens) : before]
            if missing:
                self._context.decode(missing, 0)
            self._context.decode(tokens, rows)
            self._known[key] = [self._context.logits(row).copy() for row in range(rows)]
        self._rows = self._known[key]

    def logits(self, row: int) -> Logits:
        return self._rows[row]

    def truncate(self, length: int) -> None:
        del self.tokens[length:]

    def clear(self) -> None:
        self.tokens.clear()

    def keep_row(self) -> None:
        raise NotImplementedError

    def kept_row(self) -> Logits | None:
        raise NotImplementedError


class TestTheFirstTwoTokens:
    """Five thousand draws of two tokens on the real pair, nine outcomes, against the target's own probabilities."""

    DRAWS = 5000
    SETTINGS = SamplingSettings(temperature=1.5, top_k=3, top_p=1.0, min_p=0.0)
    PROMPT = "Red, green, blue and red, green"

    def expected(self, target: Remembering, prompt: Sequence[int]) -> dict[tuple[int, int], float]:
        """Return the probability of each pair of tokens, from passes of two rows as verification makes them."""
        target.clear()
        target.decode(prompt, rows=1)
        first = distribution(target.logits(0), (), self.SETTINGS)
        joint: dict[tuple[int, int], float] = {}
        for a, p in zip(first.ids.tolist(), first.probs.tolist(), strict=True):
            target.truncate(len(prompt))
            target.decode([a, a], rows=2)
            second = distribution(target.logits(0), (), self.SETTINGS)
            joint |= {(a, b): p * q for b, q in zip(second.ids.tolist(), second.probs.tolist(), strict=True)}
        target.truncate(len(prompt))
        return joint

    @pytest.mark.parametrize("kind", ["draft-model", "coupled", "prompt-lookup"])
    def test_are_distributed_as_the_target_alone_writes_them(self, pair: tuple[Context, Context], kind: str) -> None:
        target, draft = Remembering(pair[0]), Remembering(pair[1])
        prompt = pair[0].model.tokenize(self.PROMPT, add_special=True, parse_special=False)
        expected = self.expected(target, prompt)
        target.clear()
        target.decode(prompt, rows=1)
        first_row = target.logits(0)
        drafter: Drafter = PromptLookup(4)
        if kind != "prompt-lookup":
            drafter = DraftModel(draft, pair[0].model.n_vocab, coupled=kind == "coupled")
        counts: Counter[tuple[int, int]] = Counter()
        accepted = drafted = 0
        for seed in range(self.DRAWS):
            rules = Rules(self.SETTINGS, Dice(seed))
            committed = [*prompt, choose(first_row, prompt, rules)]
            proposal = Proposal(committed, 1, self.SETTINGS, rules.dice)
            proposed = (PromptLookup(4) if kind == "prompt-lookup" else drafter).propose(proposal)
            target.decode([committed[-1], *(proposed.tokens or committed[-1:])], rows=2)
            verdict = verify(proposed, target.logits, committed, rules)
            second = proposed.tokens[0] if verdict.num_accepted else verdict.last_token
            counts[committed[-1], second] += 1
            accepted, drafted = accepted + verdict.num_accepted, drafted + len(proposed)
            target.truncate(len(prompt))
        total = self.DRAWS
        assert set(counts) <= set(expected), "a token came that the filters forbid"
        statistic = sum((counts[key] - total * p) ** 2 / (total * p) for key, p in expected.items())
        shares = {key: (round(p, 3), round(counts[key] / total, 3)) for key, p in expected.items()}
        assert statistic < 26.1, (
            f"chi-square {statistic:.1f}, expected below 26.1 (8 degrees); (expected, got): {shares}"
        )
        assert 0 < accepted < drafted, "the drafts must be judged both ways for this to mean anything"
