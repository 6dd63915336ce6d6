"""The table of cases in docs/EXACTNESS.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "EXACTNESS.md"
ROWS = re.findall(r"^\| (\d+) \|[^|]*\| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_case_has_a_row() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, 26))


@pytest.mark.parametrize(("number", "cell"), ROWS, ids=[number for number, _ in ROWS])
def test_the_tests_of_a_case_exist(number: str, cell: str) -> None:
    content = ""
    for name in re.findall(r"`([^`]+)`", cell):
        if name.endswith(".py"):
            content = (TESTS / name).read_text(encoding="utf-8")
        else:
            assert re.search(rf"^ *(def|class) {name}\b", content, re.MULTILINE), f"case {number}: no {name}"
