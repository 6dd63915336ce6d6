"""What is dropped how, on cells that record what they are told: snapshots that are not there, copies that fail."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from specui.engine.checkpoint import Buffer, Memory, Plan, RollbackKind


@dataclass
class FakeCells:
    """Cells that say yes to every cut, as llama.cpp's do where it knows no better."""

    size: int = 8
    saves: bool = True
    restores: bool = True
    first_position: int = 0
    log: list[str] = field(default_factory=list)

    def cut(self, length: int) -> bool:
        self.log.append(f"cut {length}")
        return True

    def first(self) -> int:
        return self.first_position

    def clear(self) -> None:
        self.log.append("clear")

    def state_bytes(self) -> int:
        return self.size

    def save(self, buffer: Buffer) -> bool:
        assert len(buffer) == self.size
        self.log.append("save")
        return self.saves

    def restore(self, buffer: Buffer) -> bool:
        self.log.append("restore")
        return self.restores


def passes(memory: Memory, *counts: int) -> int:
    """Tell of passes of these lengths behind what there is, and return the length."""
    length = 0
    for count in counts:
        memory.before_pass(length, count)
        memory.after_pass(length, count)
        length += count
    return length


@pytest.mark.parametrize(
    ("plan", "kind"),
    [(Plan(False), "cut"), (Plan(True), "checkpoint"), (Plan(True, snapshots=3), "snapshots")],
)
def test_the_kind_follows_from_the_plan(plan: Plan, kind: RollbackKind) -> None:
    assert Memory(FakeCells(), plan).rollback.kind == kind


def test_a_snapshot_is_taken_only_where_the_last_pass_wrote_it() -> None:
    """llama.cpp would agree to go three back behind any pass, to states of an older one."""
    cells = FakeCells()
    memory = Memory(cells, Plan(True, snapshots=3))
    held = passes(memory, 20, 3)
    cells.log.clear()
    assert memory.cut(held, 21) == 21
    assert cells.log == ["cut 21"]
    memory = Memory(cells, Plan(True, snapshots=3))
    held = passes(memory, 20, 1)
    assert memory.cut(held, held - 1) is None, "a pass of one token wrote none"


def test_a_snapshot_serves_once() -> None:
    memory = Memory(FakeCells(), Plan(True, snapshots=3))
    held = passes(memory, 20, 4)
    assert memory.cut(held, 23) == 23
    assert memory.cut(23, 22) is None


def test_passes_longer_than_the_snapshots_are_copied_before() -> None:
    cells = FakeCells()
    memory = Memory(cells, Plan(True, snapshots=3))
    passes(memory, 20, 4)
    assert cells.log == []
    held = passes(memory, 20, 5)
    assert cells.log == ["save"]
    assert memory.cut(held, 22) == 22, "near the end a snapshot is there"
    assert memory.cut(22, 21) == 20, "then the copy, and one token to evaluate again"
    assert cells.log == ["save", "cut 22", "restore", "cut 20"]


def test_the_longest_copy_that_is_short_enough_is_put_back() -> None:
    memory = Memory(FakeCells(), Plan(True))
    passes(memory, 10)
    memory.anchor(10)
    memory.before_pass(10, 5)
    memory.after_pass(10, 5)
    memory.before_pass(15, 5)
    memory.after_pass(15, 5)
    assert memory.cut(20, 17) == 15
    assert memory.cut(17, 12) == 10
    assert memory.cut(12, 9) is None


def test_what_was_cut_off_is_no_place_to_go_back_to() -> None:
    memory = Memory(FakeCells(), Plan(True))
    passes(memory, 10, 5, 5)
    memory.anchor(20)
    memory.before_pass(20, 5)
    assert memory.cut(25, 10) is None, "no copy is that short"
    assert memory.cut(25, 22) == 20
    memory.clear()
    assert memory.cut(25, 22) is None


def test_a_copy_that_cannot_be_put_back_empties_the_memory() -> None:
    cells = FakeCells(restores=False)
    memory = Memory(cells, Plan(True))
    held = passes(memory, 10, 5)
    assert memory.cut(held, 12) == 0, "all is to be evaluated again"
    assert cells.log[-1] == "clear"
    assert memory.rollback.kind == "none"
    assert memory.rollback.reason
    assert memory.cut(12, 11) is None


@pytest.mark.parametrize("cells", [FakeCells(saves=False), FakeCells(size=0), FakeCells(restores=False)])
def test_a_state_that_cannot_be_copied_shows_at_once(cells: FakeCells) -> None:
    memory = Memory(cells, Plan(True))
    memory.probe()
    assert memory.rollback.kind == "none"


def test_attention_is_never_copied() -> None:
    cells = FakeCells(saves=False)
    memory = Memory(cells, Plan(False))
    memory.probe()
    memory.anchor(passes(memory, 10, 5))
    assert memory.rollback.kind == "cut"
    assert cells.log == []
    assert memory.copied_bytes == 0


@pytest.mark.parametrize(("first", "length", "works"), [(0, 5, True), (69, 100, True), (70, 100, False), (1, 5, False)])
def test_a_window_must_be_whole(first: int, length: int, works: bool) -> None:
    """The token at `length` looks at the 32 up to itself: positions length - 31 to length."""
    memory = Memory(FakeCells(first_position=first), Plan(False, window=32))
    assert (memory.cut(200, length) is not None) == works


def test_a_drafting_memory_copies_once_for_each_cut_asked_for() -> None:
    cells = FakeCells()
    memory = Memory(cells, Plan(True, drafting=True))
    passes(memory, 10)
    memory.cut(10, 10)
    for length in range(10, 16):
        memory.before_pass(length, 1)
        memory.after_pass(length, 1)
    assert cells.log == ["save"]
    assert memory.cut(16, 13) == 10
    memory.before_pass(10, 3)
    assert cells.log.count("save") == 1, "the copy put back is still good"


@pytest.mark.parametrize("recurrent", [True, False])
def test_a_failed_pass(recurrent: bool) -> None:
    cells = FakeCells()
    memory = Memory(cells, Plan(recurrent))
    assert memory.undo(passes(memory, 10), touched=False) == 10
    assert cells.log == []
    assert memory.undo(10, touched=True) == (0 if recurrent else 10)
    assert cells.log == (["clear"] if recurrent else ["cut 10"])
    passes(memory, 10)
    memory.before_pass(10, 5)
    assert memory.undo(10, touched=True) == 10, "a copy from just before it"
