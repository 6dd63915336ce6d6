"""Markdown that cannot run or load anything, rendered whole and piece by piece; thoughts told from answers."""

from __future__ import annotations

import re

import pytest

from specui.ui.markdown import LiveMarkdown, Parts, render, split_thoughts

TEXT = (
    "# Title\n\nSome *text* with `List<String>` and <b>tags</b>.\n\n1. one\n2. two\n\n   more of two\n\n3. three\n\n"
    "- a\n\n- b\n\nText again.\n\n```python\nprint('<style>')\n\nx = 1\n\ny = 2\n```\n\nAfter the code.\n\n"
    "| a | b |\n|---|---|\n| 1 | <i> |\n\n> quoted\n\nThe end."
)


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<style>body{display:none}</style>",
        "[x](javascript:alert(1))",
        "![x](javascript:alert(1))",
        "![pixel](https://example.org/seen.png)",
        '```" onmouseover="alert(1)\ncode\n```',
        '[x](https://a.b/"onmouseover="alert(1))',
        "<iframe src='//example.org'></iframe>",
        "&lt;b&gt; <think> List<String>",
    ],
)
def test_nothing_hostile_becomes_an_element(hostile: str) -> None:
    html = render(hostile)
    tags = {tag.lower() for tag in re.findall(r"<\s*/?\s*([a-zA-Z]+)", html)}
    assert tags <= {"p", "a", "div", "span", "pre", "code", "button", "br"}
    for tag in re.findall(r"<[^>]*>", html):
        assert not re.search(r"\son\w+=", re.sub(r'"[^"]*"', '""', tag))
        assert "javascript:" not in tag


def test_what_looks_like_html_stays_readable() -> None:
    assert "&lt;think&gt; List&lt;String&gt;" in render("<think> List<String>")
    assert "<code>List&lt;String&gt;</code>" in render("`List<String>`")


def test_a_growing_text_ends_up_as_the_whole_one() -> None:
    live = LiveMarkdown()
    for end in range(0, len(TEXT), 3):
        live.render(TEXT[:end])
    assert live.render(TEXT) == render(TEXT)
    assert live.render("Something else") == render("Something else")


@pytest.mark.parametrize("end", range(5, len(TEXT), 11))
def test_every_stage_of_a_growing_text_is_what_a_fresh_start_shows(end: int) -> None:
    live = LiveMarkdown()
    for part in range(0, end, 2):
        live.render(TEXT[:part])
    assert live.render(TEXT[:end]) == render(TEXT[:end])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Hello", Parts(None, True, "Hello")),
        ("<think>\nplan\n</think>\n\nDone", Parts("plan", True, "Done")),
        ("  <think>plan", Parts("plan", False, "")),
        ("<think></think>Done", Parts("", True, "Done")),
        ("Use `<think>` and </think> as tags", Parts(None, True, "Use `<think>` and </think> as tags")),
        ("plan\n</think>\n\nDone", Parts("plan", True, "Done")),
        ("```\n</think>\n```", Parts(None, True, "```\n</think>\n```")),
    ],
)
def test_thoughts(text: str, parts: Parts) -> None:
    assert split_thoughts(text) == parts
