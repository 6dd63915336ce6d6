"""Small models for a Hub in memory: real headers with vocabularies of any size, and a Hub that this process uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gguf_bytes import Plain, header, tensor
from hub_server import HubRepo, HubState, hub_server
from huggingface_hub import constants

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
ALIGNMENT = 32


def tokens(count: int, changed: dict[int, str] | None = None) -> list[str]:
    """Return a vocabulary of `count` words, some of them changed."""
    words = [f"word{number}" for number in range(count)]
    for place, word in (changed or {}).items():
        words[place] = word
    return words


def model(
    vocabulary: list[str],
    template: bool = True,
    values: int = 64,
    merges: int = 0,
    split: tuple[int, int] | None = None,
) -> bytes:
    """Return a GGUF file of one tensor of `values` numbers; `split` (number, count) makes it a part of a model."""
    shape: dict[str, Plain] = {
        "general.architecture": "llama",
        "general.file_type": 0,
        "llama.context_length": 8192,
        "llama.block_count": 2,
        "llama.embedding_length": 64,
        "llama.feed_forward_length": 128,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
    }
    words: dict[str, Plain] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": vocabulary,
        "tokenizer.ggml.eos_token_id": 1,
    }
    if merges:
        words["tokenizer.ggml.merges"] = [f"ab cd{number}" for number in range(merges)]
    if template:
        words["tokenizer.chat_template"] = TEMPLATE
    parts: dict[str, Plain] = {"split.no": split[0], "split.count": split[1]} if split is not None else {}
    begun = split is None or split[0] == 0
    entries = {**shape, **words, **parts} if begun else parts
    raw = header(entries, [tensor(f"t{split[0] if split else 0}", [values])])
    return raw + bytes(-len(raw) % ALIGNMENT) + bytes(4 * values)


def use_hub(patch: pytest.MonkeyPatch, endpoint: str, cache: Path) -> None:
    """Make huggingface_hub in this process use a Hub and a cache, as HF_ENDPOINT and HF_HOME would at its start."""
    patch.setattr(constants, "ENDPOINT", endpoint)
    template = f"{endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    patch.setattr(constants, "HF_HUB_CACHE", str(cache))
    patch.delenv("HF_TOKEN", raising=False)


@contextmanager
def hub_of(repos: dict[str, HubRepo], cache: Path, patch: pytest.MonkeyPatch) -> Iterator[HubState]:
    """Run a Hub and make huggingface_hub in this process use it, with a cache of its own."""
    with hub_server(repos) as state:
        use_hub(patch, state.endpoint, cache)
        yield state
