"""The tree in the docstring is the tree of classes, and every message is one line that names what is at fault."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from specui import errors
from specui.errors import SpecUIError

EXAMPLES = [
    errors.SettingError("top_p", 7, "0 to 1"),
    errors.BlankPromptError(),
    errors.PromptTooLongError(5000, 4096),
    errors.TemplateError("m.gguf", "the file holds no chat template"),
    errors.BusyError(8),
    errors.NothingLoadedError(),
    errors.PortError("127.0.0.1", 80, "permission denied"),
    errors.OutputError("no space left on device"),
    errors.StorageError(Path("/x"), "read-only"),
    errors.DiskSpaceError(Path("/x"), 600_000_000, 1_000_000),
    errors.CatalogError(Path("models.yaml"), 7, "draft", "write off"),
    errors.UnknownPairError("qwem", ["qwen"]),
    errors.HubError("owner/name", "x.gguf", "no such file"),
    errors.ModelError(Path("m.gguf"), "broken"),
    errors.ModelFileError(Path("m.gguf"), "is empty"),
    errors.VocabularyError(Path("d.gguf"), "token 5 differs"),
    errors.DecodeError(Path("m.gguf"), 1),
    errors.RollbackError(Path("m.gguf"), 10, 5),
]


def classes() -> set[type[SpecUIError]]:
    members = (member for _, member in inspect.getmembers(errors, inspect.isclass))
    return {member for member in members if issubclass(member, SpecUIError)}


def drawn() -> dict[str, str | None]:
    """Read child and parent of every line of the drawing."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^    (?P<branch>[│├└─ ]*)(?P<name>[A-Z]\w+Error)\b", line)
        if found is None:
            continue
        depth = len(found["branch"]) // 4
        parents[found["name"]] = path[depth - 1] if depth else None
        path[depth:] = [found["name"]]
    return parents


def test_the_drawing_is_the_tree() -> None:
    real = {each.__name__: None if each is SpecUIError else each.__bases__[0].__name__ for each in classes()}
    assert drawn() == real


def test_every_error_has_an_example_here() -> None:
    assert {type(example) for example in EXAMPLES} == classes() - {SpecUIError}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_every_message_is_one_line(error: SpecUIError) -> None:
    assert str(error).strip()
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.PromptTooLongError(5000, 4096), ["5,000", "4,096"]),
        (errors.SettingError("top_p", 7, "0 to 1"), ["top_p", "7", "0 to 1"]),
        (errors.DiskSpaceError(Path("/x"), 600_000_000, 1_000_000), ["/x", "600 MB", "1 MB"]),
        (errors.DecodeError(Path("m.gguf"), 1), ["m.gguf", "KV cache", "code 1"]),
        (errors.DecodeError(Path("m.gguf"), -9), ["m.gguf", "code -9"]),
        (errors.RollbackError(Path("m.gguf"), 10, 5), ["m.gguf", "10", "5"]),
        (errors.UnknownPairError("qwem", ["qwen", "bundled"]), ["qwem", "qwen", "bundled"]),
        (errors.CatalogError(Path("models.yaml"), 7, "draft", "write off"), ["models.yaml", "line 7", "draft"]),
        (errors.CatalogError(Path("models.yaml"), None, "pairs", "write a list"), ["models.yaml: pairs"]),
        (errors.TemplateError("m.gguf", "no template"), ["m.gguf", "models.yaml", "--raw"]),
        (errors.PortError("h", 80, "in use"), ["h:80", "in use", "--port"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, SpecUIError) else "",
)
def test_messages_name_what_is_at_fault_and_what_to_do(error: SpecUIError, words: list[str]) -> None:
    for word in words:
        assert word in str(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_has_the_fields_of_the_kinds_above_it(error: SpecUIError) -> None:
    """A face that catches the kind above may read its fields."""
    for kind, fields in {
        errors.CatalogError: ("path", "line", "key"),
        errors.StorageError: ("path",),
        errors.ModelError: ("path",),
    }.items():
        if isinstance(error, kind):
            assert all(hasattr(error, name) for name in fields)
