"""A runtime without a model: plays scripted answers at a chosen speed, with the figures that a real one would have.

Speed, origins and acceptance depend on the mode that is set at each step, so that a switch in mid-answer shows.
"""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from specui.catalog import BundledFile, Cancelled, Catalog, LocalFile, OnProgress, Pair, PairFiles
from specui.config import SpeculationMode
from specui.engine.stats import FinishReason, PlainPasses, StatsRecorder, StepRecord, TokenOrigin
from specui.engine.thinking import ChoiceLog, MatchRate, Stair, Thinking
from specui.errors import BlankPromptError, ModelFileError, NothingLoadedError, PromptTooLongError, SpecUIError
from specui.generation import Generation, GenerationRequest, Progress, TokenPiece
from specui.line import Job, Line

PASSES_PER_SECOND: dict[SpeculationMode, float] = {"none": 40, "prompt-lookup": 32, "draft-model": 24, "auto": 30}
DRAFT_TOKENS: dict[SpeculationMode, int] = {"none": 0, "prompt-lookup": 6, "draft-model": 3, "auto": 5}
RIGHT_CHANCE: dict[SpeculationMode, float] = {"none": 0, "prompt-lookup": 0.7, "draft-model": 0.75, "auto": 0.85}

PROSE = (
    "A bicycle stays upright because it **steers into the fall**. When it leans to one side, the front wheel turns "
    "that way, and the wheels move back under the rider.\n\n"
    "Three things help:\n\n- the *trail* of the front wheel\n- the gyroscopic effect of the turning wheels\n"
    "- small corrections of the rider\n\n"
    "```python\ndef lean(angle: float) -> list[str]:\n    return ['left' if angle < 0 else 'right']\n```\n\n"
    "None of them is needed alone; together they make riding easy.\n"
)
HTML = (
    "Text with <b>bold</b>, List<String>, <think>, <style>body{display:none}</style> and "
    '<img src=x onerror="window.hacked=1"> and <script>window.hacked=1</script>.\n\n'
    '```html\n<style>*{display:none}</style>\n<img onerror="window.hacked=1">\n```\n\nEnd `Map<K, V>`.'
)
THOUGHT = "<think>\nFirst I think <b>hard</b>.\n\nThen I stop.\n</think>\n\nThe answer is **42**."
SCRIPTS = {"html": HTML, "thought": THOUGHT, "unclosed": "<think>\nI never stop thinking", "long": PROSE * 8}


FOURS = (0.021, 0.0373, 0.0534, 0.037, 0.0541, 0.061, 0.0649, 0.0687, 0.077, 0.084, 0.092, 0.0995, *[0.101] * 4)
PASS_SECONDS = (*FOURS, *(0.101 + 0.006 * n for n in range(1, 17)))
"""By rows: kernels that work in fours."""
MATCHES = (
    (1, 0.21, 260),
    (2, 0.44, 120),
    (3, 0.61, 77),
    (4, 0.72, 41),
    (6, 0.8, 30),
    (9, 0.9, 12),
    (14, 0.9, 0),
    (22, 0.95, 1200),
)


def thinking_of(choices: ChoiceLog) -> Thinking | None:
    """Return what `auto` would go by on a machine of these costs, after `choices`."""
    if not choices:
        return None
    padded = {2: 4, 3: 4}
    stairs = []
    for rows, seconds in enumerate(PASS_SECONDS, start=1):
        size = padded.get(rows, rows)
        stairs.append(Stair(rows, seconds, size, PASS_SECONDS[size - 1]))
    matches = tuple(MatchRate(*each) for each in MATCHES)
    return Thinking(choices.choices(), tuple(stairs), matches, 0.0083, 0.74, 1.43)


@dataclass(frozen=True)
class FakePair:
    """What a loaded pair says of itself."""

    name: str
    title: str
    target: Path
    draft: Path | None
    ctx_size: int = 4096
    threads: int = 2
    target_bytes: int = 540_000_000
    draft_bytes: int = 90_000_000
    has_chat_template: bool = True
    draft_off_reason: str | None = None


TITLE = "SmolLM2-135M <b>F32</b>"
BUNDLED = PairFiles("bundled", TITLE, Path("/models/target.gguf"), Path("/models/draft.gguf"))


@dataclass
class FakeFinder:
    """Knows two pairs: one on disk, one that is fetched slowly; a third whose file cannot be loaded."""

    seconds: float = 1.0
    here: set[str] = field(default_factory=lambda: {"bundled", "broken"})

    def on_disk(self, pair: Pair) -> PairFiles | None:
        return self._files(pair) if pair.name in self.here else None

    def resolve(self, pair: Pair, on_progress: OnProgress, cancelled: Cancelled) -> PairFiles:
        steps = 20
        for step in range(steps):
            if pair.name in self.here or cancelled():
                break
            on_progress(f"downloading {pair.name}.gguf", step * 10_000_000, steps * 10_000_000)
            time.sleep(self.seconds / steps)
        return self._files(pair)

    def _files(self, pair: Pair) -> PairFiles:
        return PairFiles(pair.name, pair.title, Path(f"/models/{pair.name}.gguf"), Path("/models/draft.gguf"))


def catalog() -> Catalog:
    """Return a catalogue of three pairs; one title tries to be HTML."""
    local = LocalFile(Path("/models/<i>file</i>.gguf"))
    pairs = (
        Pair("bundled", BUNDLED.title, BundledFile(), BundledFile(), notes="Comes with SpecUI; small."),
        Pair("qwen", "Qwen2.5-0.5B-Instruct", local, local, notes="A better writer; about 600 MB."),
        Pair("broken", "Broken pair", local, None),
    )
    return Catalog({pair.name: pair for pair in pairs})


class FakeRuntime:
    """Answers from `SCRIPTS`: the first word of the last message picks one. `speed` multiplies every rate."""

    def __init__(self, speed: float = 1.0, queue_limit: int = 8, loaded: PairFiles | None = BUNDLED) -> None:
        self.speed = speed
        self.draft_off_reason: str | None = None
        self.plain_seconds: float | None = None
        """What a pass without a draft takes at speed 1, where the machine is known."""
        self.started: list[Generation] = []
        self.line = Line(queue_limit)
        self._loaded = loaded

    @property
    def loaded(self) -> FakePair | None:
        files = self._loaded
        if files is None:
            return None
        return FakePair(files.name, files.title, files.target, files.draft, draft_off_reason=self.draft_off_reason)

    @property
    def files(self) -> PairFiles | None:
        return self._loaded

    def load(self, files: PairFiles) -> FakePair:
        if files.name == "broken":
            raise ModelFileError(files.target, "is truncated at <b>40</b> %; fetch it again")
        time.sleep(0.2)
        self._loaded = files
        assert self.loaded is not None
        return self.loaded

    def queue_length(self) -> int:
        return len(self.line)

    def close(self) -> None:
        for generation in self.started:
            generation.cancel()
        self.line.close()

    def start(self, request: GenerationRequest) -> Generation:
        if not request.messages[-1].content.strip():
            raise BlankPromptError
        if self._loaded is None:
            raise NothingLoadedError
        generation = Generation(request)

        def on_place(place: int) -> None:
            generation.publish(replace(generation.progress, place=place))

        job = Job(lambda: self._run(generation), on_place)

        def leave() -> None:
            if self.line.leave(job):
                generation.publish(Progress(phase="done", finish_reason="cancelled"))

        generation.when_cancelled(leave)
        self.line.join(job)
        self.started.append(generation)
        return generation

    def _run(self, generation: Generation) -> None:
        try:
            Play(generation, self).run()
        except SpecUIError as error:
            generation.publish(replace(generation.progress, phase="failed", error=error))


class Play:
    """One scripted answer: run to its end, or begun, advanced step by step and finished."""

    def __init__(self, generation: Generation, runtime: FakeRuntime) -> None:
        self._generation = generation
        self._runtime = runtime
        self._off = runtime.draft_off_reason
        self._random = random.Random(7)
        self._choices = ChoiceLog()
        self._stats = StatsRecorder(plain=PlainPasses(), think=lambda: thinking_of(self._choices))
        if runtime.plain_seconds is not None:
            self._stats.plain.observe(runtime.plain_seconds / runtime.speed)
        self._pieces: list[TokenPiece] = []
        text = generation.request.messages[-1].content
        words = text.split()
        self._words = _tokens(SCRIPTS.get(words[0], PROSE))
        self._failing = words[0] == "fail"
        self._prompt = max(8, len(text) // 4)
        seed = generation.request.settings.sampling.seed
        self._progress = Progress(
            phase="prefill",
            prefill_total=self._prompt,
            dropped_turns=2 if words[0] == "dropped" else 0,
            seed=1234 if seed is None else seed,
        )

    def run(self) -> None:
        self.begin()
        while not self._generation.cancelled.is_set() and self.advance():
            pass
        self.finish()

    def begin(self) -> None:
        if self._prompt > 4096 * 4:
            raise PromptTooLongError(self._prompt, 4096)
        self._prefill()
        self._stats.first_token(0.001)
        self._pieces.append(TokenPiece(0, self._words[0], "target"))
        self._limit = self._generation.request.limits.max_tokens

    def advance(self) -> bool:
        if len(self._pieces) >= min(self._limit, len(self._words)):
            return False
        self._step(self._limit)
        return True

    def finish(self) -> None:
        reason: FinishReason = "cancelled"
        if len(self._pieces) >= min(self._limit, len(self._words)):
            reason = "length" if len(self._pieces) < len(self._words) else "stop"
        self._stats.close_slice()
        self._publish(phase="done", finish_reason=reason)

    def _prefill(self) -> None:
        seconds = min(1.0, self._prompt / 2000) / self._runtime.speed
        self._stats.prompt_tokens = self._prompt
        for part in range(1, 11):
            if self._generation.cancelled.is_set():
                return
            time.sleep(seconds / 10)
            self._progress = replace(self._progress, prefill_done=self._prompt * part // 10)
            self._generation.publish(self._progress)
        self._stats.prefill(self._prompt, seconds)

    def _step(self, limit: int) -> None:
        asked = self._generation.settings.drafting.speculation
        used: SpeculationMode = "none" if self._off and asked == "draft-model" else asked
        if used != self._stats.speculation_used:
            self._stats.close_slice()
        self._stats.speculation = asked
        self._stats.speculation_off_reason = self._off if used != asked else None
        room = min(limit, len(self._words)) - len(self._pieces)
        drafted = min(DRAFT_TOKENS[used], room - 1)
        right = 0
        while right < drafted and self._random.random() < RIGHT_CHANCE[used]:
            right += 1
        last: TokenOrigin = "target" if not drafted else ("bonus" if right == drafted else "recovered")
        origins: list[TokenOrigin] = ["accepted"] * right
        for origin in [*origins, last]:
            word = self._words[len(self._pieces)]
            self._pieces.append(TokenPiece(len(self._pieces), word, origin))
        seconds = self._random.uniform(0.85, 1.15) / (PASSES_PER_SECOND[used] * self._runtime.speed)
        time.sleep(seconds)
        rejected = int(right < drafted)
        if used == "auto":
            self._choose(drafted)
        self._stats.step(StepRecord(drafted, right, rejected, right + 1, seconds * 0.2, seconds * 0.8, 0.0, used))
        if self._failing and len(self._pieces) > 12:
            self._publish(phase="decode")
            raise ModelFileError(Path("/models/target.gguf"), "the model failed in <b>mid-answer</b>")
        self._publish(phase="decode")

    def _choose(self, drafted: int) -> None:
        """Note a step of `auto`: a third of them by lookup, a third by the draft model, the others by none."""
        place = len(self._pieces) // 20 % 3
        drafter: SpeculationMode = ("none", "prompt-lookup", "draft-model")[place] if drafted else "none"
        self._choices.add(drafter, (0, drafted, min(3, drafted))[place])

    def _publish(self, **changes: object) -> None:
        text = "".join(piece.text for piece in self._pieces)
        self._progress = replace(
            self._progress,
            text=text,
            pieces=tuple(self._pieces),
            stats=self._stats.snapshot(),
            rates=tuple(self._stats.rates),
            **changes,  # type: ignore[arg-type]
        )
        self._generation.publish(self._progress)


def _tokens(text: str) -> list[str]:
    return re.findall(r"\s*\S{1,5}|\s+", text)
