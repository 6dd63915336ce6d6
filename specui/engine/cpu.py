"""The processor: its name, and how many threads this process may really use (affinity, cgroup quota, physical cores).

Knows nothing about llama.cpp. Reads /proc and /sys where they exist and falls back to the plain count elsewhere.
"""

from __future__ import annotations

import math
import os
import platform
from functools import cache
from pathlib import Path


@cache
def processor_name() -> str:
    """Return the processor's name, as the system tells it."""
    lines = (_read(Path("/proc/cpuinfo")) or "").splitlines()
    found = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return found or platform.processor() or platform.machine()


def usable_threads() -> int:
    """Return the number of compute threads worth starting, at least 1.

    It is the number of distinct physical cores in the affinity mask (two hyperthreads of a core share its arithmetic
    units), cut to the CPU quota of the cgroup the process lives in.
    """
    cores = _physical_cores(_affinity())
    quota = cgroup_cpu_quota()
    return max(1, cores if quota is None else min(cores, math.ceil(quota)))


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _physical_cores(cpus: set[int]) -> int:
    siblings = set()
    for cpu in cpus:
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        siblings.add(_read(path) or str(cpu))
    return len(siblings)


def cgroup_cpu_quota(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """Return the CPU quota in cores that binds this process (the smallest on the way up), or None without one."""
    quotas = []
    for line in (_read(membership) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        base = root if controllers == "" else root / "cpu"
        if controllers == "" or "cpu" in controllers.split(","):
            quotas += _quotas_upwards(base, path)
    return min(quotas, default=None)


def _quotas_upwards(base: Path, path: str) -> list[float]:
    folder = base / path.lstrip("/")
    folders = [folder, *folder.parents]
    inside = [each for each in folders if each == base or base in each.parents]
    return [quota for each in inside if (quota := _quota_at(each)) is not None]


def _quota_at(folder: Path) -> float | None:
    if text := _read(folder / "cpu.max"):
        quota, period = text.split()
    else:
        quota, period = _read(folder / "cpu.cfs_quota_us") or "max", _read(folder / "cpu.cfs_period_us") or "100000"
    return None if quota == "max" or float(quota) <= 0 else float(quota) / float(period)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None
