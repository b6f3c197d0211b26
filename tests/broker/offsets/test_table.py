"""Consumer offsets beside a model: commits, resets, clones, and what is forgotten."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.offsets import OffsetsConfig, OffsetTable
from broker.store.files import MemoryFiles
from broker.store.tables import ConsumerOffsets, load, save
from remoting.bodies.namesrv import DataVersion

GROUP = st.sampled_from(["g", "gg", "h"])
TOPIC = st.sampled_from(["t", "tt"])
QUEUE = st.integers(0, 2)
OFFSET = st.integers(-1, 50)


class Machine(RuleBasedStateMachine):
    """The table beside two plain dictionaries by (group, topic, queue)."""

    def __init__(self) -> None:
        super().__init__()
        self.table = OffsetTable(OffsetsConfig(), lambda: 0)
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.resets: dict[tuple[str, str, int], int] = {}

    @rule(group=GROUP, topic=TOPIC, queue=QUEUE, offset=OFFSET)
    def commit(self, group: str, topic: str, queue: int, offset: int) -> None:
        self.table.commit(group, topic, queue, offset)
        if offset >= 0:
            self.offsets[group, topic, queue] = offset

    @rule(group=GROUP, topic=TOPIC, queue=QUEUE, offset=st.integers(0, 50))
    def reset(self, group: str, topic: str, queue: int, offset: int) -> None:
        self.table.reset(group, topic, queue, offset)
        self.offsets[group, topic, queue] = self.resets[group, topic, queue] = offset

    @rule(group=GROUP, topic=TOPIC, queue=QUEUE)
    def pull(self, group: str, topic: str, queue: int) -> None:
        assert self.table.take_reset(group, topic, queue) == self.resets.pop((group, topic, queue), None)

    @rule(source=GROUP, other=GROUP, topic=TOPIC)
    def clone(self, source: str, other: str, topic: str) -> None:
        self.table.clone(source, other, topic)
        if any(key[:2] == (source, topic) for key in self.offsets):
            kept = {key: offset for key, offset in self.offsets.items() if key[:2] != (other, topic)}
            cloned = {(other, *key[1:]): each for key, each in self.offsets.items() if key[:2] == (source, topic)}
            self.offsets = kept | cloned

    @rule(group=GROUP)
    def forget_group(self, group: str) -> None:
        self.table.forget_group(group)
        self._keep(lambda key: key[0] != group)

    @rule(topic=TOPIC)
    def forget_topic(self, topic: str) -> None:
        self.table.forget_topic(topic)
        self._keep(lambda key: key[1] != topic)

    def _keep(self, keep: Callable[[tuple[str, str, int]], bool]) -> None:
        self.offsets = {key: offset for key, offset in self.offsets.items() if keep(key)}
        self.resets = {key: offset for key, offset in self.resets.items() if keep(key)}

    @rule()
    def restart(self) -> None:
        files = MemoryFiles()
        save(files, self.table.snapshot())
        self.table = OffsetTable(OffsetsConfig(), lambda: 0, load(files, ConsumerOffsets))
        self.resets = {}

    @invariant()
    def agrees(self) -> None:
        for group in ("g", "gg", "h"):
            for topic in ("t", "tt"):
                for queue in range(3):
                    key = group, topic, queue
                    assert self.table.query(*key) == self.resets.get(key, self.offsets.get(key))
                    assert self.table.is_reset(*key) == (key in self.resets)
            assert self.table.topics_of(group) == sorted({key[1] for key in self.offsets if key[0] == group})
        for topic in ("t", "tt"):
            assert self.table.groups_of(topic) == sorted({key[0] for key in self.offsets if key[1] == topic})
            least = self.table.least(topic, {"h"}, lambda queue: 10 * queue)
            assert least == {
                queue: min(found) for queue in range(3)
                if (found := [offset for key, offset in self.offsets.items()
                              if key[1:] == (topic, queue) and key[0] != "h" and offset >= 10 * queue])}


TestMachine = Machine.TestCase


def test_every_so_many_commits_move_the_version_and_a_master_s_table_brings_its_own() -> None:
    table = OffsetTable(OffsetsConfig(consumer_offset_update_version_step=2), lambda: 9)
    table.state_version = 3
    changes: list[int] = []
    table.on_change = lambda: changes.append(1)
    for offset in range(4):
        table.commit("g", "t", 0, offset)
    assert (table.version, len(changes)) == (DataVersion(3, 9, 2), 4)
    table.reset("g", "t", 1, 0)
    changes.clear()
    table.merge(ConsumerOffsets({"t@h": {1: 5}, "t@g": {1: 7}}, data_version=DataVersion(4, 1, 1)))
    assert (table.query("g", "t", 0), table.query("g", "t", 1), table.query("h", "t", 1)) == (None, 7, 5)
    assert (table.version, len(changes), table.take_reset("g", "t", 1)) == (DataVersion(4, 1, 1), 1, None)


def test_what_was_given_is_ahead_of_what_was_processed() -> None:
    table = OffsetTable(OffsetsConfig(), lambda: 0)
    assert table.query_pulled("g", "t", 0) is None
    table.commit("g", "t", 0, 3)
    assert table.query_pulled("g", "t", 0) == 3
    table.pulled("g", "t", 0, 8)
    assert (table.query_pulled("g", "t", 0), table.query("g", "t", 0)) == (8, 3)


def test_without_resets_on_the_server_they_are_not_seen() -> None:
    table = OffsetTable(OffsetsConfig(use_server_side_reset_offset=False), lambda: 0)
    table.reset("g", "t", 0, 3)
    table.commit("g", "t", 0, 5)
    assert table.query("g", "t", 0) == 5


QUEUES = st.dictionaries(QUEUE, st.integers(0, 50), max_size=3)
TABLES = st.builds(
    ConsumerOffsets, st.dictionaries(st.sampled_from(["t@g", "t@h", "u@g"]), QUEUES, max_size=3),
    data_version=st.builds(DataVersion, counter=st.integers(0, 2)))


@given(TABLES, TABLES, st.dictionaries(st.sampled_from(["t", "u"]), st.integers(0, 50)))
def test_a_master_that_comes_back_loses_no_progress_and_takes_none_beyond_its_queues(
    kept: ConsumerOffsets, told: ConsumerOffsets, ends: dict[str, int]
) -> None:
    table = OffsetTable(OffsetsConfig(), lambda: 0, kept)
    table.join(told.to_json(), lambda topic, queue_id: ends.get(topic, 0))
    newer = kept.data_version.counter < told.data_version.counter
    for key in kept.offset_table.keys() | told.offset_table.keys():
        topic, group = key.split("@")
        for queue in range(3):
            mine = kept.offset_table.get(key, {}).get(queue)
            theirs = told.offset_table.get(key, {}).get(queue)
            fits = theirs is not None and theirs <= ends.get(topic, 0)
            wanted = theirs if theirs is not None and fits and (newer or mine is None or theirs > mine) else mine
            assert table.query(group, topic, queue) == wanted
    assert table.version == (told if newer else kept).data_version
