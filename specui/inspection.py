"""What a pair is and whether it will work here, before anything is downloaded.

Reads headers only: architecture, size, context, template, and whether the two vocabularies are one. Compares what the
pair needs with the disk and the memory there is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specui import hub
from specui.catalog import BundledFile, HubFile, Pair, Source
from specui.config import DEFAULT_CTX_SIZE, LoadSettings
from specui.errors import VocabularyError
from specui.estimate import Fit, fit
from specui.headers import Seen, look
from specui.pace import size
from specui.space import available_memory_bytes
from specui.vocab import Comparison, compare


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file of a pair, from its header; "" and 0 where the header does not say."""

    role: str
    source: str
    files: tuple[str, ...]
    on_disk: bool
    size_bytes: int
    architecture: str
    quantisation: str
    parameter_count: int
    context_length: int
    vocabulary_size: int
    has_chat_template: bool
    transferred_bytes: int


@dataclass(frozen=True, slots=True)
class PairFacts:
    """What is known of a pair. `compatible` and the rest of the comparison are None where there is no draft.

    `chat_template`: where it comes from, "models.yaml", "file" or "none". `memory`: at a context of `ctx_size`; None
    where the system does not say what is free.
    """

    name: str
    title: str
    target: FileFacts
    draft: FileFacts | None
    comparison: Comparison | None
    chat_template: str
    ctx_size: int
    memory: Fit | None
    download_bytes: int
    disk_free_bytes: int

    @property
    def transferred_bytes(self) -> int:
        """What this look has fetched."""
        return self.target.transferred_bytes + (self.draft.transferred_bytes if self.draft else 0)

    def problems(self) -> list[str]:
        """Return what will not work, one sentence each."""
        found = []
        if self.comparison is not None and self.comparison.reason:
            found.append(f"draft off: {self.comparison.reason}")
        if self.chat_template == "none":
            found.append("the target has no chat template; set chat_template in models.yaml, or use --raw")
        if self.memory is not None and not self.memory.fits:
            found.append(f"memory: {self.memory.sentence}")
        if self.download_bytes > self.disk_free_bytes:
            needed, free = self.download_bytes / 1e9, self.disk_free_bytes / 1e9
            found.append(f"the download needs {needed:.2f} GB and {free:.2f} GB are free; set HF_HOME to another disk")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        comparison = self.comparison
        return {
            **asdict(self),
            "comparison": asdict(comparison) if comparison is not None else None,
            "compatible": comparison.compatible if comparison is not None else None,
            "transferred_bytes": self.transferred_bytes,
            "problems": self.problems(),
        }


def inspect(pair: Pair, settings: LoadSettings) -> PairFacts:
    """Look at both files of a pair. Raises HubError, ModelFileError."""
    target = look(pair.target, as_target=True)
    draft = look(pair.draft, as_target=False) if pair.draft is not None else None
    facts = [_facts("target", pair.target, target)]
    if pair.draft is not None and draft is not None:
        facts.append(_facts("draft", pair.draft, draft))
    ctx_size = settings.ctx_size or pair.ctx_size or DEFAULT_CTX_SIZE
    in_file = "file" if target.header.tokenizer.chat_template else "none"
    return PairFacts(
        name=pair.name,
        title=pair.title,
        target=facts[0],
        draft=facts[1] if draft is not None else None,
        comparison=_compare(target, draft) if draft is not None else None,
        chat_template="models.yaml" if pair.chat_template else in_file,
        ctx_size=ctx_size,
        memory=_memory(target, draft, ctx_size, settings.batch_size),
        download_bytes=sum(each.size_bytes for each in facts if not each.on_disk),
        disk_free_bytes=hub.free_bytes(),
    )


def refuse_other_vocabulary(pair: Pair) -> None:
    """Raise VocabularyError where the headers show that the draft cannot draft for the target."""
    if pair.draft is None:
        return
    comparison = _compare(look(pair.target, as_target=True), look(pair.draft, as_target=False))
    if comparison.reason:
        name = describe(pair.draft)
        raise VocabularyError(Path(name), f"cannot draft for {describe(pair.target)}: {comparison.reason}")


TEMPLATE_WORDS = {"models.yaml": "from models.yaml", "file": "in the target's file", "none": "none"}


def verdict(facts: PairFacts) -> str:
    """Return in words whether the draft speaks the target's vocabulary."""
    comparison, target, draft = facts.comparison, facts.target, facts.draft
    if comparison is None or draft is None:
        return f"{target.vocabulary_size:,} tokens; no draft to compare"
    if comparison.reason:
        return f"does not fit: {comparison.reason} ({int(100 * comparison.share_equal)} % of the tokens are alike)"
    if target.vocabulary_size != draft.vocabulary_size:
        return f"fits: {target.vocabulary_size:,} and {draft.vocabulary_size:,} tokens, which differ by padding"
    return f"fits: {target.vocabulary_size:,} tokens in both"


def file_words(facts: FileFacts) -> str:
    """Return a file's figures in one line."""
    parts = [
        facts.architecture,
        f"{_parameters(facts.parameter_count)} parameters" if facts.parameter_count else "",
        facts.quantisation,
        size(facts.size_bytes) + (f" in {len(facts.files)} parts" if len(facts.files) > 1 else ""),
        f"context {facts.context_length:,}" if facts.context_length else "",
    ]
    return " · ".join(part for part in parts if part)


def _parameters(count: int) -> str:
    return f"{count / 1e9:.2f} B" if count >= 1e9 else f"{count / 1e6:.0f} M"


def describe(source: Source) -> str:
    """Return where a file comes from, for people."""
    if isinstance(source, HubFile):
        return f"{source.repo} {source.file}"
    return "the bundled weights" if isinstance(source, BundledFile) else str(source.path)


def _compare(target: Seen, draft: Seen) -> Comparison:
    return compare(target.header.vocabulary(), draft.header.vocabulary())


def _facts(role: str, source: Source, seen: Seen) -> FileFacts:
    header = seen.header
    return FileFacts(
        role=role,
        source=describe(source),
        files=seen.files,
        on_disk=seen.on_disk,
        size_bytes=seen.size_bytes,
        architecture=header.architecture,
        quantisation=header.quantisation,
        parameter_count=header.parameter_count,
        context_length=header.context_length,
        vocabulary_size=header.token_count,
        has_chat_template=bool(header.tokenizer.chat_template),
        transferred_bytes=seen.transferred_bytes,
    )


def _memory(target: Seen, draft: Seen | None, ctx_size: int, batch_size: int) -> Fit | None:
    free = available_memory_bytes()
    if free is None:
        return None
    return fit(target.header, draft.header if draft is not None else None, ctx_size, batch_size, free)
