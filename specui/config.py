"""Settings as frozen values; every default of the program stands here and nowhere else.

Knows nothing about models, files or faces. A value that cannot work raises `SettingError` when it is built.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, cast, get_args

from specui.errors import SettingError

SpeculationMode = Literal["none", "prompt-lookup", "draft-model", "auto"]
SPECULATION_MODES: tuple[SpeculationMode, ...] = get_args(SpeculationMode)
BASELINE: SpeculationMode = "none"
"""The mode that the others are measured against."""

MAX_DRAFT_TOKENS_LIMIT = 63
"""The longest draft: with the last committed token one pass of 64 rows, which bounds the logits buffer."""

DEFAULT_MAX_DRAFT_TOKENS: dict[SpeculationMode, int] = {
    "none": 0,
    "prompt-lookup": 15,
    "draft-model": 5,
    "auto": MAX_DRAFT_TOKENS_LIMIT,
}
"""The cap per mode where the user sets none. 15 drafted tokens and the last committed one make a pass of 16 rows."""

MAX_DIGITS = 9
"""No number that a person means is longer; Python refuses to read one of several thousand digits."""

DRAFT_ROWS = 16
"""Rows of logits that a draft's context keeps: so many tokens that it reads are also guessed, to learn how often it is
right, and so many are read at once to learn what reading takes."""

MIN_NGRAM_SIZE = 3
"""Mode prompt-lookup drafts nothing on a shorter match (or on one shorter than `max_ngram_size`, if that is less)."""

MAX_REFERENCE_BYTES = 2_000_000
"""What all reference texts of an answer may have together: some 500,000 tokens. Splitting them into tokens and indexing
them takes a few seconds on two busy cores, once, and the index about 130 MB."""

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 7860
MAX_PORT = 65_535
DEFAULT_PAIR = "bundled"
DEFAULT_CTX_SIZE = 4096
MAX_QUEUE_LENGTH = 8

DEFAULT_COMPARE_MODES = "none,prompt-lookup,draft-model"
DEFAULT_COMPARE_REPEATS = 5
DEFAULT_SUITE = "builtin"
DEFAULT_BENCH_MODES = "none,prompt-lookup,draft-model,auto"
DEFAULT_BENCH_REPEATS = 3

PAGE_COMPARE_REPEATS, PAGE_COMPARE_TOKENS = 3, 128
"""What the form of the Compare tab begins with: under a minute on a small machine."""

PAGE_COMPARE_LANES = ("none", "prompt-lookup", "draft-model", "")
"""The lanes that the form begins with; an empty one does not run."""

PAGE_BENCH_REPEATS, PAGE_BENCH_LIMIT = 1, 1
"""What the form of the Benchmark tab begins with (repeats, and prompts of a kind): a few minutes' worth, where the
command line's defaults take an hour."""

MAX_SNAPSHOTS = 7
"""How many of its last recurrent states a context keeps. llama.cpp writes every snapshot with nodes of its own in the
graph, and ends the process where they are too many for it: of the Nemotron-H kind with 52 layers 11 fit and 15 do not,
of LFM2 with 16 layers 20 and not 31."""

MAX_SNAPSHOT_BYTES = 256 * 2**20
"""What all snapshots of a context may take; each is as large as the state."""


def parse_mode(value: object, key: str = "speculation") -> SpeculationMode:
    """Return `value` as a mode. Raises SettingError for anything else."""
    if value not in SPECULATION_MODES:
        raise SettingError(key, value, "one of " + ", ".join(SPECULATION_MODES))
    return value


def _check(key: str, value: object, valid: Callable[[float], bool], expected: str) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    number = number and (isinstance(value, int) or math.isfinite(cast(float, value)))
    if not number or not valid(cast(float, value)):
        raise SettingError(key, value, expected)


def _check_int(key: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int):
        raise SettingError(key, value, "a whole number")
    _check(key, value, lambda v: low <= v <= high, f"a whole number from {low:,} to {high:,}")


def _check_bias(pairs: object) -> None:
    """Raise SettingError unless `pairs` are (token id, bias) with every id once."""
    if not isinstance(pairs, tuple) or any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
        raise SettingError("logit_bias", pairs, "pairs of a token id and a bias")
    for token_id, bias in pairs:
        _check_int("logit_bias", token_id, 0, 2**31 - 1)
        _check("logit_bias", bias, lambda v: -100 <= v <= 100, "-100 to 100")
    ids = [token_id for token_id, _ in pairs]
    if len(set(ids)) < len(ids):
        raise SettingError("logit_bias", max(ids, key=ids.count), "every token id once")


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How the next token is chosen. Temperature 0 is greedy; filters apply in llama.cpp's order.

    Penalties look at the last `repeat_last_n` tokens of prompt and answer. `logit_bias` holds (token id, what is added
    to its logit) pairs. `seed` None: fresh each time.
    """

    temperature: float = 0.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_last_n: int = 64
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, lambda v: 0 <= v <= 100, "0 (greedy) to 100")
        _check_int("top_k", self.top_k, 0, 2**31 - 1)
        _check("top_p", self.top_p, lambda v: 0 <= v <= 1, "0 to 1")
        _check("min_p", self.min_p, lambda v: 0 <= v <= 1, "0 to 1")
        _check("repeat_penalty", self.repeat_penalty, lambda v: 0 < v <= 10, "more than 0, at most 10")
        _check("presence_penalty", self.presence_penalty, lambda v: -10 <= v <= 10, "-10 to 10")
        _check("frequency_penalty", self.frequency_penalty, lambda v: -10 <= v <= 10, "-10 to 10")
        _check_int("repeat_last_n", self.repeat_last_n, 0, 2**31 - 1)
        _check_bias(self.logit_bias)
        if self.seed is not None:
            _check_int("seed", self.seed, 0, 2**63 - 1)

    @property
    def greedy(self) -> bool:
        """Whether the best token is always taken."""
        return self.temperature == 0

    @property
    def penalised(self) -> bool:
        """Whether any penalty changes the logits."""
        neutral = self.repeat_penalty == 1 and self.presence_penalty == 0 and self.frequency_penalty == 0
        return not neutral and self.repeat_last_n > 0


@dataclass(frozen=True, slots=True)
class DraftingSettings:
    """Which drafter proposes, and how much. `max_draft_tokens` None: the mode's own default.

    `exact`: only passes whose logits equal one row's bit for bit, so that greedy ids are those of mode none.
    """

    speculation: SpeculationMode = "none"
    max_draft_tokens: int | None = None
    max_ngram_size: int = 4
    draft_p_min: float = 0.2
    adaptive_length: bool = False
    exact: bool = False

    def __post_init__(self) -> None:
        parse_mode(self.speculation)
        if self.max_draft_tokens is not None:
            _check_int("max_draft_tokens", self.max_draft_tokens, 1, MAX_DRAFT_TOKENS_LIMIT)
        _check_int("max_ngram_size", self.max_ngram_size, 1, 32)
        _check("draft_p_min", self.draft_p_min, lambda v: 0 <= v <= 1, "0 to 1")

    @property
    def draft_cap(self) -> int:
        """The longest draft allowed under these settings, in tokens."""
        if self.speculation == "none" or self.max_draft_tokens is None:
            return DEFAULT_MAX_DRAFT_TOKENS[self.speculation]
        return self.max_draft_tokens


def parse_variant(text: str, drafting: DraftingSettings, key: str) -> DraftingSettings:
    """Return `drafting` in the mode that `text` names; in MODE:N, N is the longest draft. Raises SettingError."""
    name, colon, number = text.partition(":")
    mode = parse_mode(name, key)
    if not colon:
        return replace(drafting, speculation=mode)
    if not number.isdecimal() or len(number) > MAX_DIGITS or mode == BASELINE:
        raise SettingError(key, text[:40], "MODE or MODE:N with the longest draft, such as draft-model:8")
    return replace(drafting, speculation=mode, max_draft_tokens=int(number))


@dataclass(frozen=True, slots=True)
class StepSettings:
    """What the loop reads anew at every step, so that a change takes effect inside a running answer."""

    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    drafting: DraftingSettings = field(default_factory=DraftingSettings)


@dataclass(frozen=True, slots=True)
class Limits:
    """Where an answer ends at the latest."""

    max_tokens: int = 512
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_int("max_tokens", self.max_tokens, 1, 2**31 - 1)
        if not isinstance(self.stop, tuple) or any(not isinstance(text, str) or not text for text in self.stop):
            raise SettingError("stop", self.stop, "strings of at least one character")


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How weights and contexts are set up; a change needs a reload.

    `ctx_size` None: what the pair asks for, else DEFAULT_CTX_SIZE. `threads` None: what the process may use.
    `translate_draft`: a draft of another vocabulary drafts by way of its text instead of being refused.
    """

    ctx_size: int | None = None
    batch_size: int = 256
    threads: int | None = None
    gpu_layers: int = 0
    translate_draft: bool = False

    def __post_init__(self) -> None:
        if self.ctx_size is not None:
            _check_int("ctx_size", self.ctx_size, 16, 2**24)
        _check_int("batch_size", self.batch_size, 1, 2**16)
        if self.threads is not None:
            _check_int("threads", self.threads, 1, 1024)
        _check_int("gpu_layers", self.gpu_layers, -1, 10_000)


def home() -> Path:
    """The folder for what SpecUI makes itself: SPECUI_HOME, else the user's cache directory. Raises SettingError."""
    chosen = os.environ.get("SPECUI_HOME")
    if chosen:
        try:
            return Path(chosen).expanduser()
        except RuntimeError:
            raise SettingError("SPECUI_HOME", chosen, "a folder; nobody here has that name") from None
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "specui"
