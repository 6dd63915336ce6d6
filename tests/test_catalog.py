"""The catalogue: what is read, and what is said (line, key, fix) about a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from specui.catalog import SHIPPED, BundledFile, Catalog, HubFile, LocalFile, user_file
from specui.errors import CatalogError, UnknownPairError

PAIR = """\
pairs:
  - name: one
    target: {repo: a/b, file: c.gguf}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "models.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_shipped_catalogue_reads_and_has_the_bundled_pair_first() -> None:
    catalog = Catalog.load(SHIPPED)
    first = next(iter(catalog))
    assert (first.name, first.target, first.draft) == ("bundled", BundledFile(), BundledFile())
    assert sum(isinstance(pair.target, HubFile) for pair in catalog) >= 10


def test_every_shipped_pair_is_complete_enough_to_be_offered() -> None:
    for pair in Catalog.load(SHIPPED):
        assert pair.draft is not None, pair.name
        assert pair.licence and pair.notes and pair.tags and pair.ctx_size, pair.name
        assert pair.title != pair.name


def test_all_fields_of_a_pair(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """\
pairs:
  - name: one
    title: "One: the first"
    target: {repo: a/b, file: sub/c.gguf, revision: v1}
    draft: {path: weights/d.gguf}
    ctx_size: 2_048
    chat_template: |
      {{ messages }}
    licence: MIT
    notes: a note
    tags: [x, "42"]
    sampling: {temperature: 0.7, top_k: 20, seed: 7}
    drafting:
      max_draft_tokens: 15
      draft_p_min: 5e-1
      adaptive_length: true
""",
    )
    pair = Catalog.load(path).pair("one")
    assert pair.title == "One: the first"
    assert pair.target == HubFile("a/b", "sub/c.gguf", "v1")
    assert pair.draft == LocalFile(tmp_path / "weights/d.gguf")
    assert pair.ctx_size == 2048
    assert pair.chat_template == "{{ messages }}\n"
    assert (pair.licence, pair.notes, pair.tags) == ("MIT", "a note", ("x", "42"))
    assert pair.sampling == {"temperature": 0.7, "top_k": 20, "seed": 7}
    assert pair.drafting == {"max_draft_tokens": 15, "draft_p_min": 0.5, "adaptive_length": True}


def test_a_pattern_may_stand_for_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, PAIR + '    draft: {repo: a/b, file: "*Q4_K_M.gguf"}\n')
    assert Catalog.load(path).pair("one").draft == HubFile("a/b", "*Q4_K_M.gguf")


def test_left_out_fields_have_their_defaults(tmp_path: Path) -> None:
    pair = Catalog.load(write(tmp_path, PAIR)).pair("one")
    assert (pair.title, pair.draft, pair.ctx_size, pair.chat_template, pair.tags) == ("one", None, None, None, ())
    assert (pair.sampling, pair.drafting) == ({}, {})


@pytest.mark.parametrize("word", ["off", "no", "false", "Off", "null", "~", "none", '"off"', '"no"', ""])
def test_a_draft_that_is_off_is_no_draft_and_never_a_path(tmp_path: Path, word: str) -> None:
    assert Catalog.load(write(tmp_path, f"{PAIR}    draft: {word}\n")).pair("one").draft is None


@pytest.mark.parametrize(
    ("text", "line", "key", "said"),
    [
        ("", None, "pairs", "empty"),
        ("# only a comment\n", None, "pairs", "empty"),
        ("- name: one\n", 1, "pairs", "begin with pairs:"),
        ("pairs: 5\n", 1, "pairs", "must be a list"),
        ("pairs:\n  - one\n", 2, "pairs", "begin it with '- name:'"),
        ("pears:\n", 1, "pears", "did you mean pairs?"),
        (PAIR + "    name: two\n", 4, "name", "written twice (first on line 2)"),
        ("pairs: []\npairs: []\n", 2, "pairs", "written twice"),
        (PAIR + "  - name: one\n    target: bundled\n", 4, "name", "pair on line 2 too"),
        (PAIR + "\tdraft: off\n", 4, "draft", "a tab stands here"),
        (PAIR + "    title:\tText\n", 4, "title", "a tab stands here"),
        ("pairs:\n  - name: no\n    target: bundled\n", 2, "name", 'write name: "no"'),
        ("pairs:\n  - name: 42\n    target: bundled\n", 2, "name", 'is a number in YAML; write name: "42"'),
        ("pairs:\n  - name: 1.5\n    target: bundled\n", 2, "name", 'write name: "1.5"'),
        ("pairs:\n  - name: 2024-01-01\n    target: bundled\n", 2, "name", "a date"),
        ("pairs:\n  - name:\n    target: bundled\n", 2, "name", "is empty"),
        ('pairs:\n  - name: " "\n    target: bundled\n', 2, "name", "is empty"),
        ("pairs:\n  - target: bundled\n", 2, "name", "is missing"),
        ("pairs:\n  - name: one\n", 2, "target", "a pair needs a target"),
        ("pairs:\n  - name: one\n    target: off\n", 3, "target", "a pair needs a target"),
        (PAIR + "    drafts: off\n", 4, "drafts", "unknown key; did you mean draft?"),
        (PAIR + "    zzz: off\n", 4, "zzz", "known here: name, title"),
        (PAIR + "    draft:\n      repo: a/b\n      fil: c\n", 6, "fil", "did you mean file?"),
        (PAIR + "    draft: some.gguf\n", 4, "draft", "'some.gguf' cannot stand here"),
        (PAIR + "    draft: yes\n", 4, "draft", "'yes' cannot stand here"),
        (PAIR + "    draft: [a]\n", 4, "draft", "a list cannot stand here"),
        (PAIR + "    draft:\n      repo: a/b\n      file: *Q4_K_M.gguf\n", 6, "file", "begins with *"),
        (PAIR + "    draft:\n      repo: a/b\n      file: *model\n", 6, "file", "begins with *"),
        (PAIR + "    draft: {repo: a/b, file: *Q4_K_M.gguf}\n", 4, "file", 'write file: "*Q4_K_M.gguf"'),
        (PAIR + "    draft: {repo: a/b, file: *model}\n", 4, "file", 'write file: "*model"'),
        ("pairs:\n- {name: one, target: {repo: a/b, file: *Q4.gguf}}\n", 2, "file", 'write file: "*Q4.gguf"'),
        (PAIR + "    draft: {repo: a/b file: c.gguf}\n", 4, "draft", "brackets"),
        (PAIR + '    draft: {path: "a\\0b.gguf"}\n', 4, "path", "NUL"),
        (PAIR + "    draft:\n      repo: a/b\n      file: '*Q4_K_M'\n", 6, "file", "ends in .gguf"),
        (PAIR + "    draft:\n      repo: a/b\n      file: 7\n", 6, "file", 'write file: "7"'),
        (PAIR + "    draft:\n      repo: a/b\n      file: README.md\n", 6, "file", "ends in .gguf"),
        (PAIR + "    draft:\n      repo: a/b\n", 5, "file", "is missing"),
        (PAIR + "    draft: {repo: a, file: c.gguf}\n", 4, "repo", "write owner/name"),
        (PAIR + "    draft: {path: x.gguf, repo: a/b}\n", 4, "path", "keep one of the two"),
        (PAIR + "    ctx_size: big\n", 4, "ctx_size", "whole number above 0"),
        (PAIR + "    ctx_size: 0\n", 4, "ctx_size", "whole number above 0"),
        (PAIR + "    ctx_size: -5\n", 4, "ctx_size", "whole number above 0"),
        (PAIR + "    sampling: hot\n", 4, "sampling", "'hot' cannot stand here; write a mapping with any of temp"),
        (PAIR + "    sampling: {temprature: 1}\n", 4, "temprature", "did you mean temperature?"),
        (PAIR + "    sampling:\n      temperature: hot\n", 5, "temperature", "write temperature: and a number"),
        (PAIR + "    sampling:\n      top_p: 1.5\n", 5, "top_p", "1.5 cannot be used; expected 0 to 1"),
        (PAIR + "    sampling:\n      top_k: yes\n", 5, "top_k", "'yes' cannot stand here"),
        (PAIR + "    drafting:\n      max_draft_tokens: 500\n", 5, "max_draft_tokens", "from 1 to 63"),
        (PAIR + "    drafting:\n      max_draft_tokens: true\n", 5, "max_draft_tokens", "write a number"),
        (PAIR + "    drafting:\n      adaptive_length: 1\n", 5, "adaptive_length", "write true or false"),
        (PAIR + "    drafting: {speculation: auto}\n", 4, "speculation", "unknown key"),
        (PAIR + "    tags: cpu\n", 4, "tags", "must be a list"),
        (PAIR + "    tags: [1]\n", 4, "tags", 'write tags: "1"'),
        (PAIR + "    title: a: b\n", 4, "title", "quotes"),
        (PAIR + "    title: [a\n", 4, "title", "begins with ["),
        (PAIR + "    title: [a]\n", 4, "title", "must be a text"),
        (PAIR + "   title: x\n", 4, "title", "check indentation"),
        ("pairs: []\n---\npairs: []\n", 2, "syntax", "single document"),
    ],
)
def test_a_mistake_is_named_with_line_key_and_fix(
    tmp_path: Path, text: str, line: int | None, key: str, said: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(CatalogError) as caught:
        Catalog.load(path)
    error = caught.value
    assert (error.line, error.key) == (line, key)
    assert said in str(error)
    assert str(error).startswith(str(path)) and "\n" not in str(error)


def test_a_file_that_is_missing_or_not_text_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    with pytest.raises(CatalogError, match=r"cannot be read .*SPECUI_MODELS"):
        Catalog.load(missing)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"GGUF\xff\xfe\x00")
    with pytest.raises(CatalogError, match="is not UTF-8"):
        Catalog.load(binary)
    control = tmp_path / "control.yaml"
    control.write_bytes(b"pairs:\x07")
    with pytest.raises(CatalogError, match="is no YAML text"):
        Catalog.load(control)


def test_a_users_file_is_laid_over_the_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "pairs:\n- {name: bundled, title: Mine, target: bundled}\n- {name: own, target: {path: x.gguf}}\n"
    monkeypatch.setenv("SPECUI_MODELS", str(write(tmp_path, text)))
    catalog = Catalog.load()
    assert catalog.pair("bundled").title == "Mine"
    assert catalog.pair("own").target == LocalFile(tmp_path / "x.gguf")
    assert catalog.pair("smollm2-1.7b").draft is not None
    monkeypatch.delenv("SPECUI_MODELS")
    assert "own" not in Catalog.load().pairs


def test_the_users_file_may_lie_in_specuis_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECUI_MODELS", raising=False)
    monkeypatch.setenv("SPECUI_HOME", str(tmp_path))
    assert user_file() == tmp_path / "models.yaml"
    assert "one" not in Catalog.default().pairs
    write(tmp_path, PAIR)
    assert "one" in Catalog.default().pairs


def test_a_home_that_nobody_has_is_an_ordinary_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, PAIR.replace("{repo: a/b, file: c.gguf}", "{path: ~nobody-here/a.gguf}"))
    assert Catalog.load(path).pair("one").target == LocalFile(tmp_path / "~nobody-here/a.gguf")
    monkeypatch.setenv("SPECUI_MODELS", "~nobody-here/models.yaml")
    with pytest.raises(CatalogError, match=r"^~nobody-here/models.yaml: file: cannot be read"):
        Catalog.default()


def test_a_name_that_is_too_long_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SPECUI_HOME", "SPECUI_MODELS"):
        monkeypatch.setenv(variable, "/" + "a" * 300)
        with pytest.raises(CatalogError, match=f"File name too long.*{variable}"):
            Catalog.default()


def test_an_unknown_pair_lists_near_names_first() -> None:
    with pytest.raises(UnknownPairError, match="Unknown pair 'qwen3-8'") as caught:
        Catalog.load(SHIPPED).pair("qwen3-8")
    assert caught.value.known[0] == "qwen3-8b"
    assert "bundled" in caught.value.known
