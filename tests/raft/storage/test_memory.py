"""What the memory storage does besides the promises: chosen survivors of a crash, and little work per write."""

from __future__ import annotations

import pytest

from raft.errors import UsageError
from raft.messages import HardState, Write
from raft.storage.conformance import frames, read_all, snapshot_at
from raft.storage.memory import MemoryStorage


@pytest.mark.parametrize("survivors", range(5))
def test_the_chosen_prefix_survives_a_crash(survivors: int) -> None:
    storage, log = MemoryStorage(), frames(5)
    storage.open()
    storage.write([Write(1, 1, frames=log[:2])])
    storage.sync()
    writes = [Write(2, 1, frames=log[2:4]), Write(3, 1, truncate_from=3), Write(4, 1, hard_state=HardState(5, "x")),
              Write(5, 1, frames=frames(1, term=2, after=log[1]))]
    storage.write(writes)
    assert storage.unsynced == 4
    asked: list[int] = []

    def choose(count: int) -> int:
        asked.append(count)
        return survivors

    storage.crash(choose)
    assert asked == [4]
    found = storage.open()[1]
    assert (found.last_index, found.last_term) == [(2, 1), (4, 1), (2, 1), (2, 1), (3, 2)][survivors]
    assert found.hard_state.term == (5 if survivors > 2 else 0)
    assert len(read_all(storage, 1, 1)) == found.last_index


def test_purging_takes_place_with_the_sync() -> None:
    storage, log = MemoryStorage(), frames(10)
    storage.open()
    storage.write([Write(1, 1, frames=log)])
    storage.sync()
    storage.create_snapshot(1, snapshot_at(log[5])).finish()
    storage.write([Write(2, 1, purge_to=9)])
    assert storage.read(1, 1, 1)
    storage.crash()
    assert storage.open()[1].purged_index == 0
    storage.write([Write(2, 1, purge_to=9)])
    storage.sync()
    assert storage.open()[1].purged_index == 6
    assert storage.read(1, 6, 1) == []
    with pytest.raises(UsageError, match="cannot truncate from 6"):
        storage.write([Write(3, 1, truncate_from=6)])
