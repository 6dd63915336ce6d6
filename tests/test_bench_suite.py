"""Suites: the builtin one keeps its promises, and a mistake in a user's file is told with line, key and fix."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from specui.bench.suite import BUILTIN, Selection, Suite, builtin_names, load_suite
from specui.errors import CatalogError, SettingError

GOOD = """\
prompts:
  - name: first
    kind: edit
    split: tune
    max_tokens: 20
    messages:
      - role: system
        content: Be brief.
      - role: user
        content: |
          Two
            lines.
"""


@pytest.fixture(scope="module")
def builtin() -> Suite:
    return load_suite("builtin")


def write(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_builtin_suite_has_eight_kinds_half_for_tuning(builtin: Suite) -> None:
    assert builtin.kinds == ("edit", "code", "summarise", "answer", "translate", "json", "story", "chat")
    for kind in builtin.kinds:
        splits = Counter(prompt.split for prompt in builtin.prompts if prompt.kind == kind)
        assert splits["tune"] == splits["held-out"] >= 2, kind
    assert len({prompt.key for prompt in builtin.prompts}) == len(builtin.prompts)


def test_the_builtin_material_is_long_enough_to_be_work(builtin: Suite) -> None:
    for prompt in builtin.prompts:
        text = prompt.messages[-1].content
        words, lines = len(text.split()), len(text.splitlines())
        if prompt.kind in ("edit", "code"):
            assert 40 <= lines <= 120, prompt.key
        elif prompt.kind in ("summarise", "answer", "translate", "json"):
            assert words >= 190, prompt.key
        elif prompt.kind == "chat":
            assert [message.role for message in prompt.messages].count("assistant") >= 1, prompt.key
            assert sum(len(message.content.split()) for message in prompt.messages) > 200, prompt.key


def test_the_builtin_suite_is_where_a_package_keeps_its_data() -> None:
    assert builtin_names() == ("builtin",)
    assert len(list((BUILTIN / "builtin").glob("*.yaml"))) == 8
    assert load_suite("builtin") is not None


def test_a_file_is_read_as_it_is_written(tmp_path: Path) -> None:
    suite = load_suite(write(tmp_path, GOOD))
    (prompt,) = suite.prompts
    assert (suite.name, prompt.key, prompt.split, prompt.max_tokens) == ("mine", "edit/first", "tune", 20)
    assert [(message.role, message.content) for message in prompt.messages] == [
        ("system", "Be brief."),
        ("user", "Two\n  lines.\n"),
    ]


@pytest.mark.parametrize(
    ("change", "line", "key", "words"),
    [
        (("    kind: edit\n", ""), 2, "kind", "missing"),
        (("kind: edit", "kind: all"), 3, "kind", "write one word"),
        (("split: tune", "split: test"), 4, "split", "tune or held-out"),
        (("max_tokens: 20", "max_tokens: many"), 5, "max_tokens", "whole number"),
        (("    max_tokens: 20\n", ""), 2, "max_tokens", "missing"),
        (("role: system", "role: robot"), 7, "role", "system, user or assistant"),
        (("content: Be brief.", "content: 7"), 8, "content", 'write content: "7"'),
        (("role: user", "role: assistant"), 6, "messages", "must end"),
        (("- role: system", "- say: hi\n        role: system"), 7, "say", "unknown key"),
        (("split: tune", "spilt: tune"), 4, "spilt", "did you mean split?"),
        (("prompts:", "promts:"), 1, "promts", "did you mean prompts?"),
        (("split: tune", "split:\ttune"), 4, "split", "tab"),
    ],
)
def test_a_mistake_is_told_with_line_key_and_fix(
    change: tuple[str, str], line: int, key: str, words: str, tmp_path: Path
) -> None:
    assert change[0] in GOOD
    with pytest.raises(CatalogError) as caught:
        load_suite(write(tmp_path, GOOD.replace(*change)))
    assert (caught.value.line, caught.value.key) == (line, key)
    assert "mine.yaml" in str(caught.value) and words in str(caught.value)


@pytest.mark.parametrize("text", ["", "prompts: []\n", "prompts:\n  - hello\n", "[1, 2]\n"])
def test_files_without_prompts_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"mine\.yaml"):
        load_suite(write(tmp_path, text))


@pytest.mark.parametrize("messages", ["messages: hello", "messages: []", "messages: [hello]"])
def test_messages_must_be_a_list_of_mappings(messages: str, tmp_path: Path) -> None:
    head = GOOD[: GOOD.index("    messages:")]
    with pytest.raises(CatalogError, match="- role: user"):
        load_suite(write(tmp_path, f"{head}    {messages}\n"))


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"line 13: name: edit/first is there twice"):
        load_suite(write(tmp_path, GOOD + GOOD.removeprefix("prompts:\n")))


def test_an_unknown_suite_names_the_known_ones() -> None:
    with pytest.raises(SettingError, match=r"\(builtin\)"):
        load_suite("nowhere.yaml")


def test_the_digest_follows_the_content_and_not_the_writing(tmp_path: Path) -> None:
    base = load_suite(write(tmp_path, GOOD)).digest
    assert load_suite(write(tmp_path, "# a remark\n" + GOOD.replace("Be brief.", '"Be brief."'))).digest == base
    for old, new in (("lines.", "lines!"), ("20", "21"), ("split: tune", "split: held-out"), ("first", "one")):
        assert load_suite(write(tmp_path, GOOD.replace(old, new))).digest != base


def test_a_selection_takes_kinds_split_and_so_many_of_each(builtin: Suite) -> None:
    held_out = builtin.select(Selection())
    assert {prompt.split for prompt in held_out} == {"held-out"}
    assert len(builtin.select(Selection(split="all"))) == len(builtin.prompts) == 2 * len(held_out)
    one_each = builtin.select(Selection(limit=1))
    assert [prompt.kind for prompt in one_each] == list(builtin.kinds)
    assert {prompt.kind for prompt in builtin.select(Selection(("story", "edit")))} == {"edit", "story"}


def test_a_selection_of_nothing_is_refused(builtin: Suite, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="edit, code"):
        builtin.select(Selection(("poems",)))
    with pytest.raises(SettingError, match="--split"):
        load_suite(write(tmp_path, GOOD)).select(Selection(split="held-out"))
    with pytest.raises(SettingError, match="--limit"):
        Selection(limit=0)
