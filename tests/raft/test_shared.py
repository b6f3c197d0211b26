"""What all groups of a host share: one writer that is asked for tokens while any of them waits, one address book."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from raft.messages import TimeoutNow, Write
from raft.shared import SharedDisk, SharedPeers
from raft.storage.memory import MemoryStorage
from raft.storage.writer import InlineWriter, LogWriter, WriterEvents

EVENTS = WriterEvents(lambda tokens: None, lambda: None, lambda error: None)


class Transport(SimpleNamespace):
    """Notes what it is given; prepares what ``ready`` says, takes flushes while ``clear``."""

    def __init__(self) -> None:
        super().__init__(ready=True, clear=True, book={}, refusals={"n2": "no"})
        self.send = self.connected = self.note_sent = None

    def prepare(self, *message: object) -> Any:
        return SimpleNamespace(sent=False, send=lambda: False) if self.ready else None

    def flush(self, most: int | None = None) -> bool:
        return bool(self.clear)

    def set_address(self, peer: str, address: str) -> None:
        self.book[peer] = address


def disk_of(writer: Any, transport: Transport, groups: int = 1) -> SharedDisk:
    return SharedDisk(MemoryStorage(), writer, cast(Any, transport), range(groups))


def test_tokens_are_reported_at_once_while_any_group_waits() -> None:
    writer = LogWriter(MemoryStorage(), lambda function, *args: None, EVENTS)
    disk = disk_of(writer, Transport(), groups=2)
    seen = []
    for wanted in (True, True, False, False):
        disk.report_now(wanted)
        seen.append(writer.report_now)
    writer.close()
    assert seen == [True, True, True, False] and disk.early_acks


def test_an_acknowledgement_that_cannot_be_prepared_is_left_to_the_loop() -> None:
    submitted: list[str] = []
    writer = LogWriter(MemoryStorage(), lambda function, *args: None, EVENTS)
    writer.submit = lambda write: submitted.append("plain")  # type: ignore[method-assign]
    writer.submit_with_ack = lambda write, ack: submitted.append("acked")  # type: ignore[method-assign]
    transport = Transport()
    disk, message = disk_of(writer, transport), ("n1", TimeoutNow(1, 1, 1, 1))
    assert disk.submit_with_ack(Write(1, 1), message) is not None
    assert disk.submit_with_ack(Write(2, 1), None) is None
    transport.ready = False
    assert disk.submit_with_ack(Write(3, 1), message) is None
    writer.close()
    assert submitted == ["acked", "acked", "plain"]


def test_nothing_is_written_inline_beside_other_groups_behind_unsent_messages_or_without_a_thread() -> None:
    writer = LogWriter(MemoryStorage(), lambda function, *args: None, EVENTS)
    writer.takes_inline = lambda write: True  # type: ignore[method-assign]
    writer.write_inline = lambda write: True  # type: ignore[method-assign]
    transport, write = Transport(), Write(1, 1)
    assert disk_of(writer, transport).write_inline(write) is True
    assert disk_of(writer, transport, groups=2).write_inline(write) is None
    transport.clear = False
    assert disk_of(writer, transport).write_inline(write) is None
    writer.close()
    inline = disk_of(InlineWriter(MemoryStorage(), lambda function, *args: None, EVENTS), Transport())
    assert inline.write_inline(write) is None and not inline.early_acks
    inline.report_now(True)


def test_addresses_of_others_are_learnt() -> None:
    transport = Transport()
    peers = SharedPeers(cast(Any, transport), "n0", lambda membership: None)
    peers.learn({"n0": "h:1", "n1": "h:2", "n2": ""})
    assert transport.book == {"n1": "h:2"} and list(map(str, peers.refusals())) == ["no"]
