"""What commands print, where stdout is full, closed or cannot write every character; and a stdin that is not there."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from specui.commands.output import show, show_json

ROOT = Path(__file__).resolve().parent.parent
FULL = Path("/dev/full")


def spawn(redirection: str, *arguments: str) -> tuple[int, list[str]]:
    """Run a command with a shell's redirection; return its code and the lines on stderr."""
    command = ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "specui", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    return done.returncode, done.stderr.splitlines()


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_full_disk_under_stdout_is_one_line(flags: list[str]) -> None:
    code, said = spawn(f">{FULL}", "models", "list", *flags)
    assert code == 1
    assert len(said) == 1 and said[0].startswith("error: The output cannot be written (No space left")


def test_a_closed_stdin_is_bad_usage() -> None:
    code, said = spawn("<&-", "generate", "--prompt-file", "-")
    assert code == 2
    assert len(said) == 1 and said[0].startswith("error: --prompt-file: '-'")


def in_ascii(print_something: Callable[[], None]) -> bytes:
    """Return what is written to a stdout that takes ASCII only."""
    written = io.BytesIO()
    with redirect_stdout(io.TextIOWrapper(written, encoding="ascii")) as stdout:
        print_something()
        stdout.detach()
    return written.getvalue()


def test_a_character_that_stdout_does_not_have_is_shown_by_its_number() -> None:
    assert in_ascii(lambda: show("ten – 日", end="")) == rb"ten \u2013 \u65e5"


@pytest.mark.parametrize("text", ["– 日 😀", "\udcff"])
def test_json_stays_json_in_ascii(text: str) -> None:
    assert json.loads(in_ascii(lambda: show_json({"text": text}))) == {"text": text}


def test_json_is_readable_where_stdout_writes_utf_8(capsys: pytest.CaptureFixture[str]) -> None:
    show_json({"text": "日"})
    assert capsys.readouterr().out == '{"text": "日"}\n'
