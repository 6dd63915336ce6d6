"""The processor's name, and how many threads may run: affinity, cores and cgroup quotas from made-up trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from specui.engine import cpu


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def quota(root: Path, membership: str) -> float | None:
    path = root.parent / "membership"
    path.write_text(membership)
    return cpu.cgroup_cpu_quota(root, path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "cgroup").mkdir()
    return tmp_path / "cgroup"


def test_version_2_takes_the_smallest_quota_on_the_way_up(root: Path) -> None:
    write(root / "a" / "b" / "cpu.max", "400000 100000\n")
    write(root / "a" / "cpu.max", "150000 100000\n")
    write(root / "cpu.max", "max 100000\n")
    assert quota(root, "0::/a/b\n") == 1.5


def test_version_2_without_a_limit(root: Path) -> None:
    write(root / "a" / "cpu.max", "max 100000\n")
    assert quota(root, "0::/a\n") is None
    assert quota(root, "0::/elsewhere\n") is None


def test_version_1_reads_quota_and_period(root: Path) -> None:
    write(root / "cpu" / "docker" / "x" / "cpu.cfs_quota_us", "250000")
    write(root / "cpu" / "docker" / "x" / "cpu.cfs_period_us", "100000")
    assert quota(root, "3:memory:/docker/x\n2:cpu,cpuacct:/docker/x\n") == 2.5
    write(root / "cpu" / "docker" / "x" / "cpu.cfs_quota_us", "-1")
    assert quota(root, "2:cpu,cpuacct:/docker/x\n") is None


def test_inside_a_container_the_path_may_be_unknown_and_the_root_counts(root: Path) -> None:
    write(root / "cpu" / "cpu.cfs_quota_us", "200000")
    write(root / "cpu" / "cpu.cfs_period_us", "100000")
    assert quota(root, "2:cpu,cpuacct:/docker/unknown\n") == 2
    write(root / "cpu.max", "300000 100000")
    assert quota(root, "0::/\n") == 3


def test_no_cgroup_at_all(tmp_path: Path) -> None:
    assert cpu.cgroup_cpu_quota(tmp_path / "none", tmp_path / "nothing") is None


def test_threads_are_cores_cut_to_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_affinity", lambda: set(range(8)))
    monkeypatch.setattr(cpu, "_physical_cores", lambda cpus: len(cpus) // 2)
    for limit, threads in ((None, 4), (16.0, 4), (2.5, 3), (2.0, 2), (0.1, 1)):
        monkeypatch.setattr(cpu, "cgroup_cpu_quota", lambda limit=limit: limit)
        assert cpu.usable_threads() == threads


def test_two_hyperthreads_are_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    siblings = {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"}
    monkeypatch.setattr(cpu, "_read", lambda path: siblings.get(int(path.parts[-3].removeprefix("cpu"))))
    assert cpu._physical_cores({0, 1, 4, 5}) == 2
    assert cpu._physical_cores({0, 4}) == 1
    assert cpu._physical_cores({0, 7}) == 2, "a cpu that says nothing counts as itself"


def test_this_machine_gives_at_least_one_thread() -> None:
    assert cpu.usable_threads() >= 1


def test_the_processor_has_a_name() -> None:
    name = cpu.processor_name()
    assert name and "\n" not in name
    if (info := Path("/proc/cpuinfo")).exists() and "model name" in (text := info.read_text()):
        assert f": {name}\n" in text
