"""Adding pairs to a user's catalogue: no line of it changes, and what cannot be read back is not written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specui.catalog import BundledFile, Catalog, HubFile, LocalFile, Pair, add_pair
from specui.errors import CatalogError, StorageError

PLAIN = Pair("own", "own", HubFile("a/b", "c.gguf"))
FULL = Pair(
    name="no",
    title='A "title": with #signs, \\ and ünïcode ',
    target=HubFile("a/b", "*Q4_K_M.gguf", "v1"),
    draft=LocalFile(Path("/weights/d: e.gguf")),
    ctx_size=8192,
    chat_template="{% for m in messages %}\n{{ m }}\t{% endfor %}",
    licence="MIT",
    notes="- a note",
    tags=("42", "x"),
    sampling={"temperature": 0.7, "top_k": 20},
    drafting={"max_draft_tokens": 15, "adaptive_length": True},
)
COMMENTED = """\
# mine
pairs:   # the list

# above
- name: one   # behind
  target: {path: x.gguf}
  # the end"""


@pytest.mark.parametrize("pair", [PLAIN, FULL, Pair("b", "Bundled", BundledFile(), BundledFile())])
def test_what_is_added_is_read_back(tmp_path: Path, pair: Pair) -> None:
    path = tmp_path / "new" / "models.yaml"
    add_pair(path, pair)
    assert Catalog.load(path).pair(pair.name) == pair


def test_lines_and_comments_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(COMMENTED, encoding="utf-8")
    path.chmod(0o640)
    for pair in (PLAIN, FULL):
        add_pair(path, pair)
    assert path.read_text(encoding="utf-8").startswith(COMMENTED + "\n- name: ")
    assert list(Catalog.load(path).pairs) == ["one", "own", "no"]
    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["models.yaml"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "# only a comment",
        "# a comment\npairs:\n",
        "pairs:\n    - {name: x, target: bundled}\n\n# the end\n\n",
        "pairs:\n- {name: x, target: bundled}",
    ],
)
def test_files_of_several_forms_can_be_added_to(tmp_path: Path, text: str) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(text, encoding="utf-8")
    add_pair(path, PLAIN)
    assert path.read_text(encoding="utf-8").startswith(text)
    assert list(Catalog.load(path).pairs)[-1] == "own"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pairs: [{name: one, target: bundled}]\n", "the list is in brackets"),
        ("pairs:\n- {name: own, target: bundled}\n", "a pair 'own' already"),
        ("pairs:\n- {name: one, target: bundled}\n...\n", "cannot be added at its end"),
        ("pairs:\n- {nam: one}\n", "unknown key"),
    ],
)
def test_a_file_that_cannot_be_added_to_stays_as_it_was(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CatalogError, match=re.escape(said)) as caught:
        add_pair(path, PLAIN)
    assert caught.value.path == path
    assert path.read_text(encoding="utf-8") == text


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(StorageError, match="cannot be written"):
        add_pair(tmp_path / "file" / "models.yaml", PLAIN)
