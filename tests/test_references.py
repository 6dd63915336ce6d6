"""Reference texts: what is taken from people's files, what is refused, and how much there may be."""

from __future__ import annotations

import pytest

from specui.config import MAX_REFERENCE_BYTES
from specui.errors import SettingError
from specui.generation import GenerationRequest
from specui.references import References

NONE = References("Files")


def test_files_are_kept_in_order_with_their_size() -> None:
    found = NONE.adding("a.md", "héllo".encode()).adding("b.md", b"two")
    assert found.texts == ("héllo", "two")
    assert [(file.name, file.size) for file in found.files] == [("a.md", 6), ("b.md", 3)]
    assert NONE.files == ()


def test_a_byte_order_mark_and_windows_line_ends_are_left_out() -> None:
    assert NONE.adding("a", b"\xef\xbb\xbfone\r\ntwo\n").texts == ("one\ntwo\n",)


def test_a_file_of_the_same_name_takes_the_others_place() -> None:
    found = NONE.adding("a", b"old").adding("b", b"other").adding("a", b"new")
    assert found.texts == ("other", "new")
    assert found.without("b").texts == ("new",)
    assert found.without("unknown") == found


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xff\xfeh\0i\0", "a text file in UTF-8"),
        ("grüßen".encode("latin-1"), "a text file in UTF-8"),
        (b"text\0with a zero", "a text file in UTF-8"),
        (b"", "a file with something in it"),
        (b"\xef\xbb\xbf \n\t", "a file with something in it"),
    ],
    ids=["UTF-16", "Latin-1", "binary", "empty", "blank"],
)
def test_what_is_no_text_is_refused_by_name(data: bytes, expected: str) -> None:
    with pytest.raises(SettingError) as caught:
        NONE.adding("<b>.bin", data)
    assert str(caught.value) == f"Files: '<b>.bin' cannot be used; expected {expected}"


def test_all_files_together_are_bounded() -> None:
    half = b"x" * (MAX_REFERENCE_BYTES // 2)
    found = NONE.adding("a", half).adding("b", half)
    assert found.room("c") == 0
    with pytest.raises(SettingError, match=r"Files: 'c' cannot be used; expected at most 2 MB in all files together"):
        found.adding("c", b"y")
    assert found.adding("b", half).texts == found.texts, "a file may be replaced by one of its size"


def test_a_request_bounds_its_references() -> None:
    most = "é" * (MAX_REFERENCE_BYTES // 2)
    assert GenerationRequest(prompt="x", references=(most,)).references == (most,)
    with pytest.raises(SettingError, match=r"references: '2,000,001 bytes' cannot be used; .* at most 2,000,000 bytes"):
        GenerationRequest(prompt="x", references=(most, "y"))


@pytest.mark.parametrize("references", ["text", ["text"], (b"text",), None])
def test_a_request_takes_a_tuple_of_texts(references: object) -> None:
    with pytest.raises(SettingError, match=r"references: .* a tuple of texts"):
        GenerationRequest(prompt="x", references=references)  # type: ignore[arg-type]
