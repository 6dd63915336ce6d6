"""File names of GGUF repositories: patterns, shards, quantisations, and what is no language model.

Pure functions on names; no network and no disk.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf$")
_QUANTISATION = re.compile(
    r"(?:^|[-._])((?:UD-)?(?:IQ|Q)\d+(?:_[A-Z0-9]+)*|BF16|F16|F32|MXFP4(?:_MOE)?)(?=[-._]|$)", re.I
)
_NO_MODEL = ("mmproj", "imatrix")
"""Files beside the models: projectors for pictures, and what quantising was guided by."""
_NEAR_NAMES = 4


def is_pattern(name: str) -> bool:
    """Whether a name may stand for several files."""
    return any(c in name for c in "*?[")


def shards(name: str) -> tuple[str, ...]:
    """Return all parts of the model that `name` is a part of, in order; (name,) for a model in one file."""
    match = _SHARD.match(name)
    if match is None:
        return (name,)
    stem, count = match[1], int(match[3])
    return tuple(f"{stem}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1))


def models(names: Iterable[str], pattern: str = "*") -> list[tuple[str, ...]]:
    """Return the models among `names` that fit the pattern, each as its parts; projectors and the like left out."""
    fitting = (name for name in names if name.endswith(".gguf") and fnmatchcase(name, pattern) and not _aside(name))
    return [shards(first) for first in sorted({shards(name)[0] for name in fitting})]


def _aside(name: str) -> bool:
    return any(word in name.rpartition("/")[2].lower() for word in _NO_MODEL)


def quantisation(name: str) -> str:
    """Return the quantisation that a file's name states, such as Q4_K_M; empty where it states none."""
    found = _QUANTISATION.findall(name.rpartition("/")[2].removesuffix(".gguf"))
    return str(found[-1]).upper() if found else ""


def near(name: str, names: Sequence[str]) -> str:
    """Return a hint that lists the GGUF files of `names` most like `name`."""
    by_lower = {each.lower(): each for each in names if each.endswith(".gguf")}
    if not by_lower:
        return "it has no GGUF file at all"
    close = difflib.get_close_matches(name.lower(), by_lower, n=_NEAR_NAMES, cutoff=0.3)
    if not close:
        return f"it has {', '.join(sorted(by_lower.values())[:_NEAR_NAMES])}"
    return f"did you mean {' or '.join(by_lower[each] for each in close)}?"
