"""Headers cut anywhere and damaged anywhere: refused in one line or read, within a memory limit, never a crash.

The inputs run in a process of their own that may take 48 MB of address space beyond what it starts with; the largest
input, a whole real header, is 3 MB.
"""

from __future__ import annotations

import json
import os
import random
import resource
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from gguf_bytes import Bytes, Plain, entry, header, tensor, text

from specui.catalog import PairFiles
from specui.errors import ModelFileError
from specui.estimate import estimate
from specui.gguf import read_header
from specui.gguf.format import Reader

EXTRA_BYTES = 48_000_000
DENSE_CUT_BYTES = 20_000
RANDOM_CUTS = 150
FLIPS_TINY = 12_000
FLIPS_REAL = 250
LIES = (0, 1, 2**16, 10**7, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1)


def tiny() -> bytes:
    """A header with one of everything, and its weights: 4 KB of which about 800 bytes are header."""
    own: dict[str, Plain] = {
        "block_count": 2,
        "embedding_length": 64,
        "attention.head_count": 4,
        "attention.head_count_kv": [2, 1],
    }
    entries = [entry("general.architecture", "llama"), entry("general.alignment", 64)]
    entries += [entry(f"llama.{key}", value) for key, value in own.items()]
    entries += [entry("llama.rope.freq_base", 1e4), entry("tokenizer.ggml.add_bos_token", True)]
    entries += [entry("tokenizer.ggml.model", "gpt2"), entry("tokenizer.ggml.bos_token_id", 1)]
    entries += [entry("tokenizer.ggml.tokens", ["a", "bc", "", "def"]), entry("tokenizer.ggml.scores", [0.5] * 4)]
    entries += [text("wide") + struct.pack("<IIQ3Q", 9, 10, 3, 1, 2, 3)]
    return header(entries, [tensor("token_embd.weight", [64, 4]), tensor("b", [64, 32], 2, 1024)]) + bytes(3200)


def attempt(data: bytes, know_size: bool = True) -> str:
    """Read an input as a caller would and return what came of it. Anything but ModelFileError goes through."""
    try:
        found = read_header(Bytes(data, know_size))
        assert sum(found.tensor_bytes_by_type.values()) == found.tensor_bytes
        assert estimate(found, None, 2048, 256).total_bytes > 0
        found.vocabulary()
        for value in found.entries.values():
            if not isinstance(value, int | float | bytes):
                list(value)
    except ModelFileError as error:
        message = str(error)
        if "\n" in message or len(message) > 400 or not message.startswith("owner/repo/model.gguf: "):
            raise AssertionError(f"not one line that names the file: {message!r}") from error
        return "refused"
    return "read"


def boundaries(data: bytes) -> list[int]:
    """Where each entry and each tensor of a header ends."""
    reader, places = Reader(Bytes(data)), []
    _, _, entries = reader.head()
    for _ in range(entries):
        reader.entry()
        places.append(reader.position)
    return places


def cuts(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """A real file cut at every byte at first, around every boundary, and at random places of its header."""
    places = boundaries(data)
    yield from (data[:end] for end in range(min(DENSE_CUT_BYTES, len(data))))
    yield from (data[: end + step] for end in places for step in (-1, 0, 1))
    yield from (data[: chance.randrange(places[-1] + 10_000)] for _ in range(RANDOM_CUTS))


def flipped(data: bytes, end: int, chance: random.Random) -> bytes:
    """Up to three bytes of the first `end` changed."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        changed[chance.randrange(end)] = chance.randrange(256)
    return bytes(changed)


def lies(data: bytes, end: int) -> Iterator[bytes]:
    """Every eight bytes of the first `end` overwritten with sizes and counts that are too large."""
    for place in range(4, end - 8):
        for number in LIES:
            yield data[:place] + struct.pack("<Q", number) + data[place + 8 :]


def header_end(data: bytes) -> int:
    """Where the header of a file ends."""
    reader = Reader(Bytes(data))
    _, count, entries = reader.head()
    for _ in range(entries):
        reader.entry()
    reader.tensors(count, 64)
    return reader.position


def try_everything(real: bytes) -> dict[str, dict[str, int]]:
    """Run all inputs and return how each kind of them ended."""
    chance, small = random.Random(20), tiny()
    end = header_end(small)
    kinds: dict[str, Iterator[bytes]] = {
        "tiny cut": (small[:cut] for cut in range(len(small))),
        "tiny lies": lies(small, end),
        "tiny flips": (flipped(small, end, chance) for _ in range(FLIPS_TINY)),
        "real cut": cuts(real, chance),
        "real flips": (flipped(real, len(real), chance) for _ in range(FLIPS_REAL)),
        "real flips at first": (flipped(real, 1500, chance) for _ in range(FLIPS_REAL)),
    }
    return {kind: try_all(inputs) for kind, inputs in kinds.items()}


def try_all(inputs: Iterator[bytes]) -> dict[str, int]:
    """Return how many inputs were refused and read, and the longest time in milliseconds."""
    ends: Counter[str] = Counter()
    slowest_seconds = 0.0
    for number, data in enumerate(inputs):
        began = time.process_time()
        ends[attempt(data, know_size=number % 2 == 0)] += 1
        slowest_seconds = max(slowest_seconds, time.process_time() - began)
    return {**ends, "slowest_milliseconds": int(slowest_seconds * 1000)}


def main(path: Path) -> None:
    """Set the limit, try everything on the header of `path`, and print the account."""
    with path.open("rb") as file:
        real = file.read(3_000_000)
    used_pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = used_pages * os.sysconf("SC_PAGE_SIZE") + EXTRA_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    print(json.dumps(try_everything(real)))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux to limit a process's memory")
def test_no_input_crashes_the_reader_or_costs_memory_or_time(bundled_pair: PairFiles) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    command = [sys.executable, __file__, str(bundled_pair.draft)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    account = json.loads(done.stdout)
    print(account)
    tried = {kind: ends.get("refused", 0) + ends.get("read", 0) for kind, ends in account.items()}
    assert sum(tried.values()) > 40_000, tried
    assert tried["tiny cut"] > 3_500 and account["tiny cut"].get("read", 0) < 3_500
    assert account["tiny flips"]["read"] > 500 and account["tiny flips"]["refused"] > 500
    assert all(ends["slowest_milliseconds"] < 1_000 for ends in account.values()), account


if __name__ == "__main__":
    main(Path(sys.argv[1]))
