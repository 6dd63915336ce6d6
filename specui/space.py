"""How much memory and disk is free for this process: the machine's, and what a container's cgroup leaves of it.

Reads /proc and /sys where they exist; elsewhere the machine's whole memory is all that is known.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_UNLIMITED_BYTES = 2**60
"""Version 1 of cgroups writes a number near 2**63 where there is no limit."""


def available_memory_bytes(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the memory that can still be taken without swapping, or None where the system does not say.

    Pages of files count as free: the system gives them up when memory is wanted.
    """
    machine = _machine_available(proc / "meminfo")
    known = [each for each in (machine, *_group_available(proc / "self" / "cgroup", cgroups)) if each is not None]
    return max(0, min(known)) if known else None


def free_disk_bytes(folder: Path) -> int:
    """Return what is free on the disk of a folder, which need not exist yet."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def _machine_available(meminfo: Path) -> int | None:
    for line in _read(meminfo).splitlines():
        key, _, value = line.partition(":")
        if key == "MemAvailable":
            return int(value.split()[0]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _group_available(membership: Path, root: Path) -> Iterator[int]:
    """Yield what every group on the way up has left, in either version of cgroups."""
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from _upwards(root, path, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            yield from _upwards(root / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes")


def _upwards(base: Path, path: str, limit_name: str, usage_name: str) -> Iterator[int]:
    folder = base / path.lstrip("/")
    for each in (folder, *folder.parents):
        if each == base or base in each.parents:
            limit, usage = _number(each / limit_name), _number(each / usage_name)
            if limit is not None and limit < _UNLIMITED_BYTES:
                yield limit - (usage or 0) + _file_pages(each / "memory.stat")


def _file_pages(stat: Path) -> int:
    """Return the bytes of a group and those below it that hold pages of files."""
    pairs = dict(line.split(maxsplit=1) for line in _read(stat).splitlines() if " " in line)
    prefix = "total_" if "total_inactive_file" in pairs else ""
    return sum(int(pairs.get(f"{prefix}{name}_file", 0)) for name in ("inactive", "active"))


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
