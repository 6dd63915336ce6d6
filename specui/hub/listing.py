"""Which files a repository has, and which of them a name or a pattern means.

Asks the Hub once per question. A model in several files (shards) is one entry with all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_url
from huggingface_hub.hf_api import RepoFile

from specui.catalog import HubFile
from specui.errors import HubError
from specui.hub import names
from specui.hub.reasons import FAILURES, hub_error, no_hub, refuse_offline


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A model of a repository: the parts it is made of, and their bytes together."""

    files: tuple[HubFile, ...]
    size: int

    @property
    def name(self) -> str:
        """The name of the first part."""
        return self.files[0].file

    @property
    def quantisation(self) -> str:
        """What the name states, such as Q4_K_M; empty where it states none."""
        return names.quantisation(self.name)


@dataclass(frozen=True, slots=True)
class Part:
    """One file as the Hub has it now. `etag` is the SHA-256 of its bytes for every file the Hub keeps as large."""

    file: HubFile
    size: int
    etag: str
    commit: str


def models_in(repo: str, revision: str | None = None) -> list[ListedFile]:
    """Return the GGUF models of a repository, smallest first. Raises HubError."""
    asked = HubFile(repo, "*.gguf", revision)
    sizes = _sizes(asked)
    found = [_listed(asked, parts, sizes) for parts in names.models(sizes)]
    return sorted((each for each in found if each is not None), key=lambda each: each.size)


def _listed(asked: HubFile, parts: tuple[str, ...], sizes: dict[str, int]) -> ListedFile | None:
    if any(part not in sizes for part in parts):
        return None
    return ListedFile(tuple(replace(asked, file=part) for part in parts), sum(sizes[part] for part in parts))


def exact(file: HubFile) -> tuple[HubFile, ...]:
    """Return the files that `file` means, in order: one, or all shards. A pattern asks the Hub. Raises HubError."""
    if not names.is_pattern(file.file):
        return tuple(replace(file, file=name) for name in names.shards(file.file))
    have = list(_sizes(file))
    fitting = names.models(have, file.file)
    if not fitting:
        raise HubError(file.repo, file.file, f"no file fits the pattern; {names.near(file.file, have)}")
    if len(fitting) > 1:
        some = ", ".join(parts[0] for parts in fitting[:4])
        raise HubError(file.repo, file.file, f"{len(fitting)} models fit the pattern; write one of them: {some}")
    missing = [name for name in fitting[0] if name not in have]
    if missing:
        raise HubError(file.repo, missing[0], "the repository lacks this part of the model; choose another file")
    return tuple(replace(file, file=name) for name in fitting[0])


def parts(file: HubFile) -> list[Part]:
    """Return every file that `file` means as the Hub has it now. Raises HubError."""
    return [_part(each) for each in exact(file)]


def _part(file: HubFile) -> Part:
    refuse_offline(file)
    try:
        found = get_hf_file_metadata(hf_hub_url(file.repo, file.file, revision=file.revision))
    except FAILURES as error:
        raise hub_error(file, error) from error
    if found.size is None or found.commit_hash is None or found.etag is None:
        raise no_hub(file)
    return Part(file, found.size, found.etag, found.commit_hash)


def _sizes(file: HubFile) -> dict[str, int]:
    refuse_offline(file)
    try:
        tree = HfApi().list_repo_tree(file.repo, recursive=True, revision=file.revision)
        return {each.path: each.size for each in tree if isinstance(each, RepoFile)}
    except (*FAILURES, KeyError) as error:
        raise (no_hub(file) if isinstance(error, KeyError) else hub_error(file, error)) from error
