"""The default protocol's cores: who may send what, who counts, and when."""

from __future__ import annotations

import attrs

from broker.ha.acks import QuorumConfig, in_sync_count
from broker.ha.config import NS_PER_MS, HaConfig
from broker.ha.master import Close, Idle, LogView
from broker.ha.slave import AppendLog, Connect, Disconnect, LogTrusted, Send, SetConfirm, TruncateLog
from broker.ha.wire import Block, report
from broker.plain.master import MasterCore, SendBlock
from broker.plain.slave import COPY_BYTES, SlaveCore

MS = NS_PER_MS
CONFIG = HaConfig(transfer_batch_bytes=7, catch_up_batch_bytes=7)


def sends(master: MasterCore, log: LogView, link: int = 1, now: int = 0) -> list[SendBlock]:
    found = []
    while isinstance(sending := master.next_send(link, log, now), SendBlock):
        found.append(sending)
    assert isinstance(sending, Idle), sending
    return found


def reported(offset: int, end: int = 20, link: int = 1, host: str = "a") -> MasterCore:
    master = MasterCore(CONFIG, end, end)
    master.opened(link, host, 0)
    assert master.reported(link, offset, 0) == []
    return master


def test_nothing_is_sent_before_the_first_report() -> None:
    master = MasterCore(CONFIG, 20, 20)
    master.opened(1, "a", 0)
    assert sends(master, LogView(0, 20)) == []


def test_a_copy_goes_on_where_the_slave_ends_and_an_empty_one_begins_with_the_last_file() -> None:
    assert sends(reported(6), LogView(0, 20)) == [SendBlock(6, 7), SendBlock(13, 7)]
    assert sends(reported(0), LogView(0, 20, 16, 8)) == [SendBlock(16, 4)]


def test_no_block_goes_on_from_one_file_to_the_next() -> None:
    assert sends(reported(6), LogView(0, 20, 16, 8)) == [SendBlock(6, 2), SendBlock(8, 7), SendBlock(15, 1),
                                                         SendBlock(16, 4)]


def test_heartbeats_and_silence() -> None:
    master = reported(20)
    assert sends(master, LogView(0, 20), now=4_999 * MS) == []
    assert sends(master, LogView(0, 20), now=5_000 * MS) == [SendBlock(20, 0)]
    master.opened(2, "b", 0)
    assert [close.connection for close in master.tick(10_000 * MS)] == [2], "a port probe"
    assert [close.connection for close in master.tick(20_000 * MS)] == [1, 2]


def test_flow_control() -> None:
    master = MasterCore(attrs.evolve(CONFIG, flow_control_bytes_per_second=10), 20, 20)
    master.opened(1, "a", 0)
    master.reported(1, 1, 0)
    assert [block.size for block in sends(master, LogView(0, 20))] == [7], "the 3 bytes that are left are no batch"
    assert [block.size for block in sends(master, LogView(0, 20), now=300 * MS)] == []
    assert [block.size for block in sends(master, LogView(0, 20), now=400 * MS)] == [7]


def test_a_slave_that_is_ahead_is_closed_and_counts_for_nothing() -> None:
    """apache/rocketmq#3015: Java would take its offset for an acknowledgement of whatever comes."""
    master = MasterCore(CONFIG, 20, 20)
    master.opened(1, "a", 0)
    (close,) = master.reported(1, 21, 0)
    assert "beyond the master's" in close.reason
    assert master.holders(20) == 1


def test_a_slave_does_not_go_back_and_does_not_ask_for_what_is_gone() -> None:
    assert "reported 5 after 6" in reported(6).reported(1, 5, 0)[0].reason
    master = reported(6)
    assert master.next_send(1, LogView(8, 20), 0) == SendBlock(8, 0), "so that the slave can say why"
    close = master.next_send(1, LogView(8, 20), 0)
    assert isinstance(close, Close) and "the log holds 8 to 20" in close.reason


def test_a_slave_whose_next_bytes_are_deleted_at_its_master_says_what_to_do() -> None:
    slave = following(5)
    (left,) = slave.received(Block(8, b""), 1)
    assert isinstance(left, Disconnect)
    assert left.reason == (
        "the master sent offset 8, this log ends at 5: what is between them is deleted there. Stop this broker, move "
        "its store's directory away, and start it: it copies the log again")
    assert slave.tick(1_001 * MS) == [Connect("m:1")]


def test_two_connections_of_one_slave_are_one_holder() -> None:
    master = reported(20, host="a")
    master.opened(2, "a", 0)
    assert master.holders(20) == 1, "the older one may be the same slave's"
    master.reported(2, 20, 0)
    assert master.holders(20) == 2
    master.reported(1, 20, 0)
    assert master.holders(20) == 3, "it speaks, so there are two slaves on that host"
    assert not master.holds_all(21)
    assert master.holds_all(20)


def test_who_counts_as_in_sync() -> None:
    master = reported(5)
    assert in_sync_count(QuorumConfig(ha_max_gap_not_in_sync=16), 20, master.acks) == 2
    assert in_sync_count(QuorumConfig(ha_max_gap_not_in_sync=15), 20, master.acks) == 1
    master.closed(1)
    assert in_sync_count(QuorumConfig(), 20, master.acks) == 1


def following(end: int) -> SlaveCore:
    slave = SlaveCore(CONFIG, end)
    assert slave.follow("m:1", 0) == [Connect("m:1")]
    assert slave.connected(0) == [Send(report(end))]
    return slave


def test_a_slave_stores_and_reports() -> None:
    slave = following(5)
    assert slave.received(Block(5, b"abc"), 1) == [AppendLog(5, b"abc")]
    assert slave.received(Block(8, b""), 1) == []
    assert slave.stored(8, 2) == [SetConfirm(8), Send(report(8))]
    assert slave.stored(8, 3) == []
    assert slave.tick(5_000 * MS + 2) == [Send(report(8))]


def test_an_empty_slave_begins_anywhere_and_another_one_does_not() -> None:
    assert following(0).received(Block(4_096, b"abc"), 1) == [AppendLog(4_096, b"abc")]
    slave = following(5)
    assert slave.received(Block(4, b"abc"), 1) == [Disconnect("the master sent offset 4, this log ends at 5")]
    assert slave.received(Block(5, b"abc"), 1) == [], "its last words"
    assert slave.tick(1_000 * MS) == []
    assert slave.tick(1_001 * MS) == [Connect("m:1")]


def test_much_in_a_second_is_a_copy_and_what_is_written_meanwhile_is_none() -> None:
    slave = following(5)
    piece, found = bytes(COPY_BYTES // 4), []
    for number in range(4):
        slave.received(Block(5 + number * len(piece), piece), 1)
        found.append(slave.copies)
    for second in (1, 2):
        slave.tick(second * 1_000 * MS)
        found.append(slave.copies)
        slave.received(Block(5 + 4 * len(piece) + second, b"n"), second * 1_000 * MS + 1)
    assert found == [False, False, False, True, True, False]


def test_a_slave_leaves_a_silent_master_and_goes_to_another_at_once() -> None:
    slave = following(5)
    (leave,) = slave.tick(20_000 * MS)
    assert isinstance(leave, Disconnect) and "said nothing" in leave.reason
    slave = following(5)
    assert slave.follow("m:2", 7) == [Disconnect("the master's HA address changed"), Connect("m:2")]
    assert slave.follow(None, 8) == []
    assert slave.tick(90_000 * MS) == []


def test_a_full_disk_is_tried_again_from_where_the_log_ends() -> None:
    slave = following(5)
    slave.received(Block(5, b"abc"), 1)
    slave.not_stored(6)
    slave.closed(1)
    assert slave.stored(6, 1) == [SetConfirm(6)]
    assert slave.connected(2) == [Send(report(6))]


def test_after_a_reconnection_the_first_report_waits_for_what_is_being_flushed() -> None:
    slave = following(5)
    slave.received(Block(5, b"abc"), 1)
    slave.closed(1)
    assert slave.connected(2) == []
    assert slave.stored(8, 3) == [SetConfirm(8), Send(report(8))]


def test_what_was_not_synced_before_a_power_cut_is_copied_again_once_there_is_a_master() -> None:
    slave = SlaveCore(CONFIG, 9, 5)
    slave.follow("m:1", 0)
    slave.closed(1)
    assert slave.log_end == 9, "nobody to copy from"
    assert slave.connected(2) == [TruncateLog(5)]
    assert slave.truncated(5, 2) == [LogTrusted(), Send(report(5))]
    assert slave.received(Block(5, b"abc"), 3) == [AppendLog(5, b"abc")]
    slave.closed(4)
    slave.not_stored(8)
    slave.stored(8, 4)
    assert slave.connected(5) == [Send(report(8))], "once"


def test_a_cut_that_fails_is_tried_again() -> None:
    slave = SlaveCore(CONFIG, 9, 5)
    slave.follow("m:1", 0)
    slave.connected(0)
    assert slave.truncated(None, 1) == [Disconnect("the log could not be cut at 5")]
    assert slave.connected(CONFIG.truncate_retry_ms * MS + 1) == [TruncateLog(5)]


def test_a_log_of_which_nothing_is_sure_is_not_emptied() -> None:
    """To an empty one a master sends its last file alone."""
    slave = SlaveCore(CONFIG, 9, 0)
    slave.follow("m:1", 0)
    assert slave.connected(0) == [Send(report(9))]
