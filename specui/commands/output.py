"""What commands print to stdout, at once, in characters that it can take.

Knows the stream and nothing about what is printed. A reader that goes away is a BrokenPipeError, as everywhere.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from specui.errors import OutputError


def show(text: str = "", end: str = "\n") -> None:
    """Print text; a character that stdout's encoding does not have is shown by its number. Raises OutputError."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), end=end, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.strerror or str(error)) from None


def show_json(value: Any) -> None:
    """Print one JSON object on one line; in ASCII where stdout does not write UTF-8. Raises OutputError."""
    text = json.dumps(value, ensure_ascii=False)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = json.dumps(value)
    show(text)
