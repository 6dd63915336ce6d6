"""Free memory as the machine and both versions of cgroups tell it, from files made here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from specui.space import available_memory_bytes, free_disk_bytes

GIB = 2**30


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc of a machine with 8 GiB available."""
    folder = tmp_path / "proc"
    (folder / "self").mkdir(parents=True)
    (folder / "meminfo").write_text(f"MemTotal: 16777216 kB\nMemFree: 1000 kB\nMemAvailable: {8 * 2**20} kB\n")
    return folder


def group(folder: Path, files: dict[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(f"{content}\n")


def available(proc: Path, membership: str) -> int | None:
    (proc / "self" / "cgroup").write_text(membership)
    return available_memory_bytes(proc, proc.parent / "cgroup")


def test_without_groups_it_is_what_the_machine_has(proc: Path) -> None:
    assert available(proc, "0::/\n") == 8 * GIB
    assert available(proc, "") == 8 * GIB


def test_version_two_on_the_way_up_the_tightest_counts(proc: Path) -> None:
    root = proc.parent / "cgroup"
    group(root / "a" / "b", {"memory.max": "max", "memory.current": 5 * GIB})
    group(root / "a", {"memory.max": 3 * GIB, "memory.current": 2 * GIB, "memory.stat": "anon 1\ninactive_file 0"})
    assert available(proc, "0::/a/b\n") == 1 * GIB
    assert available(proc, "0::/elsewhere\n") == 8 * GIB


def test_pages_of_files_count_as_free(proc: Path) -> None:
    stat = f"anon 7\nfile {2 * GIB}\nactive_file {GIB}\ninactive_file {GIB // 2}\nshmem {GIB // 2}"
    group(proc.parent / "cgroup" / "a", {"memory.max": 4 * GIB, "memory.current": 3 * GIB, "memory.stat": stat})
    assert available(proc, "0::/a\n") == 4 * GIB - 3 * GIB + GIB + GIB // 2


def test_version_one(proc: Path) -> None:
    folder = proc.parent / "cgroup" / "memory" / "box"
    stat = f"inactive_file 5\ntotal_inactive_file {GIB}\ntotal_active_file 0"
    files = {"memory.limit_in_bytes": 2 * GIB, "memory.usage_in_bytes": 2 * GIB, "memory.stat": stat}
    group(folder, files)
    group(folder.parent, {"memory.limit_in_bytes": 9223372036854771712, "memory.usage_in_bytes": 9 * GIB})
    assert available(proc, "4:cpu,memory:/box\n2:cpu:/box\n") == 1 * GIB
    assert available(proc, "2:cpu:/box\n") == 8 * GIB


def test_more_used_than_allowed_is_none_left(proc: Path) -> None:
    group(proc.parent / "cgroup", {"memory.max": GIB, "memory.current": 2 * GIB})
    assert available(proc, "0::/\n") == 0


def test_this_machine_has_some() -> None:
    found = available_memory_bytes()
    assert found is not None and 2**20 < found < 2**50


def test_a_folder_that_is_not_there_yet_has_its_disks_room(tmp_path: Path) -> None:
    found = free_disk_bytes(tmp_path / "not" / "yet")
    assert found == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.05)
