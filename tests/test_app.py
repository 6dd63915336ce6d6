"""What `app.py` refuses before it loads anything."""

from __future__ import annotations

import pytest

import app


@pytest.mark.parametrize("port", ["99999", "-1", "eighty"])
def test_a_port_that_is_none_is_bad_usage_in_one_line(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = app.main([f"--port={port}"])
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr().err.strip()
    assert code == 2
    assert len(said.splitlines()) == 1 and "--port" in said and port in said


def test_an_address_that_is_taken_is_an_error_of_another_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with app.listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert app.main([f"--port={port}"]) == 1
    assert f"127.0.0.1:{port}" in capsys.readouterr().err
