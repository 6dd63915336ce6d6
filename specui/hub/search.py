"""Finding GGUF repositories on the Hub by words.

Knows what the Hub tells in a search; no file of a repository is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

from huggingface_hub import HfApi, constants

from specui.catalog import HubFile
from specui.hub.reasons import FAILURES, hub_error, refuse_offline


@dataclass(frozen=True, slots=True)
class FoundRepo:
    """A repository that a search found; None and "" where the Hub does not say."""

    repo: str
    downloads: int
    gated: bool
    architecture: str
    parameters: int | None
    context_length: int | None


def search(words: str, limit: int) -> list[FoundRepo]:
    """Return repositories with GGUF files whose names hold the words, most downloaded first. Raises HubError."""
    asked = HubFile(constants.ENDPOINT, "search")
    refuse_offline(asked)
    try:
        found = HfApi().list_models(
            filter="gguf", search=words, sort="downloads", limit=limit, expand=["downloads", "gated", "gguf"]
        )
        return [_found(each.id, each.downloads, each.gated, each.gguf) for each in found]
    except FAILURES as error:
        raise hub_error(asked, error) from error


def _found(repo: str, downloads: int | None, gated: object, gguf: dict[str, object] | None) -> FoundRepo:
    told = gguf or {}
    total, context = told.get("total"), told.get("context_length")
    return FoundRepo(
        repo=repo,
        downloads=downloads or 0,
        gated=bool(gated),
        architecture=str(told.get("architecture") or ""),
        parameters=total if isinstance(total, int) else None,
        context_length=context if isinstance(context, int) else None,
    )
