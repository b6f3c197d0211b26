"""Checks slaves' copies of their master's log, from a frame's bytes to a cut, for ``BrokerWatch``.

INV_B2, INV_B6 to INV_B12, INV_B28 and INV_C14. This module knows no promise to producers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.ha.epochs import EpochList
from broker.ha.taking import BecomeMaster
from broker.ha.wire import Ack, SlaveMessages
from broker.store.consumequeue import NOWHERE_SIZE

if TYPE_CHECKING:
    from harness.simulation.brokers.host import Host
    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.streams import End
    from harness.simulation.brokers.watch import BrokerWatch


class Copies:
    """Checks the copies of one scene."""

    def __init__(self, watch: BrokerWatch) -> None:
        self._watch, self._scene, self._counts, self._broken = watch, watch.scene, watch.counts, watch.broken
        self._compared: dict[End, int] = {}
        self._cuts_at: dict[Host, int] = {}
        """Host -> the offset of a cut that is under way."""

    def stores(self, process: BrokerProcess, end: End | None, offset: int, body: bytes) -> None:
        """Check INV_B8, INV_B11 and INV_B28 right before a slave appends."""
        log = process.journal.log
        self._watch.doubts.appends(process, offset, body)
        self._counts["INV_B11"] += 1
        if log.max_offset != offset and log.max_offset != log.min_offset:
            self._broken("INV_B11", "bytes that do not follow the log's end", process, log.max_offset, offset)
        following = process.switch.following
        master = end.other.process if end is not None and end.other is not None else None
        if following is None or master is None or self._watch.leads_in(master) is None:
            return
        self._counts["INV_B8"] += 1
        theirs, mine, last = master.switch.epochs, following.core.epochs, offset + len(body) - 1
        if not theirs.find(offset) == theirs.find(last) == mine.find(offset) == mine.find(last):
            self._broken("INV_B8", "bytes of another epoch", process, offset, last, mine, theirs)
        if master.journal.begin <= offset and self._watch.log(master, offset, offset + len(body)) != body:
            self._broken("INV_B8", "bytes that the master does not have", process, offset, len(body))

    def acknowledges(self, process: BrokerProcess, end: End | None, data: bytes) -> None:
        """Check INV_B2, INV_B7, INV_B12 and INV_C14 when a slave acknowledges."""
        for message in SlaveMessages().feed(data):
            if isinstance(message, Ack):
                self._acknowledges(process, end, message.offset)

    def _acknowledges(self, process: BrokerProcess, end: End | None, offset: int) -> None:
        journal, host = process.journal, process.host
        self._counts["INV_B12"] += 1
        log = journal.log
        safe = log.flushed_offset if self._scene.plan.sync_flush else log.written_offset
        if offset > safe:
            self._broken("INV_B12", "acknowledged beyond the safe end of the log", process, offset, safe)
        self._watch.doubts.acknowledges(process, offset)
        master = end.other.process if end is not None and end.other is not None else None
        lacks, theirs = host.unsafe or host.older, master is not None and (master.host.unsafe or master.host.older)
        if lacks and master is not None and not theirs and self._level(process, master, offset):
            host.caught_up()  # only the master's log counts, even if it has just left its role
        epoch, following = self._watch.leads_in(master), process.switch.following
        if master is None or end is None or epoch is None or following is None:
            return
        self._counts["INV_C14"] += 1
        role = process.switch.role
        if role is not None and role.epoch > epoch and (
                isinstance(role, BecomeMaster) or role.master_id != master.switch.broker_id):
            self._broken("INV_C14", "acknowledges in an epoch that it left", process, role, epoch)
        begin = max(self._compared.get(end, 0), journal.begin, master.journal.begin)
        self._counts["INV_B2"] += 1
        upto = min(offset, master.journal.log.max_offset)
        if self._watch.log(process, begin, upto) != self._watch.log(master, begin, upto):
            self._broken("INV_B2", "a slave holds other bytes than its master", process, begin, offset,
                         following.core.epochs, master.switch.epochs)
        self._compared[end] = upto
        self._same_starts(process, following.core.epochs, master.switch.epochs)
        if offset >= self._watch.confirmed and offset >= len(self._watch.acknowledged):
            host.caught_up()

    def _level(self, process: BrokerProcess, master: BrokerProcess, offset: int) -> bool:
        """Return whether the slave has acknowledged all of its master's log."""
        mine, theirs = process.journal, master.journal
        begin = max(mine.begin, theirs.begin)
        return offset >= mine.end >= theirs.end and (
            self._watch.log(process, begin, theirs.end) == self._watch.log(master, begin, theirs.end))

    def _same_starts(self, process: BrokerProcess, mine: EpochList, theirs: EpochList) -> None:
        """Check INV_B7: an epoch starts at one offset on both."""
        self._counts["INV_B7"] += 1
        for epoch, start in mine:
            other = theirs.start_of(epoch)
            if other is not None and other != start:
                self._broken("INV_B7", "two starts of one epoch", process, epoch, start, other)

    def wrote_epochs(self, process: BrokerProcess) -> None:
        """Check INV_B6 when a slave wrote its epoch file."""
        following = process.switch.following
        assert following is not None
        self.epoch_file(process, following.core.epochs)

    def epoch_file(self, process: BrokerProcess, known: EpochList) -> None:
        self._counts["INV_B6"] += 1
        written = process.switch.epoch_file.read().epochs
        if written != known:
            self._broken("INV_B6", "the epoch file is not what the broker goes by", process, written, known)
        last, end = written.last, process.journal.log.max_offset
        if last is not None and last.start > end and process.journal.begin != end:
            self._broken("INV_B6", "an epoch behind the log's end", process, last, end)

    def truncates(self, process: BrokerProcess, point: int) -> None:
        """Check INV_B9 right before a cut."""
        self._scene.counts["truncated"] += 1
        self._cuts_at[process.host] = point
        group = self._scene.group()
        if self._watch.lossless and group is not None and process.switch.broker_id in group.electable:
            self._counts["INV_B9"] += 1
            floor = self._watch.boundary(process, min(self._watch.confirmed, process.journal.end))
            if point < floor and not process.host.lacks:
                self._broken("INV_B9", "what was confirmed is cut", process, point, self._watch.confirmed,
                             process.journal.end)
        self._watch.runs.floors.pop(process.host, None)
        self._watch.cut_off(process)

    def truncated(self, process: BrokerProcess, point: int) -> None:
        """Check INV_B10 after the log was cut and all parts were told."""
        self._cuts_at.pop(process.host, None)
        if process.dead or process.journal.end != point:
            return
        self._watch.cut_off(process)
        self._watch.history.forget(process)
        following = process.switch.following
        self.nothing_behind(process, point, following.core.epochs if following is not None else process.switch.epochs)

    def nothing_behind(self, process: BrokerProcess, point: int, epochs: EpochList) -> None:
        """Check INV_B10: queues, epochs and confirm offset end at the cut."""
        self._counts["INV_B10"] += 1
        journal, messages = process.journal, process.journal.messages
        for topic, number in messages.queues():
            queue = messages.queue(topic, number)
            if queue is not None and queue.max_offset > queue.min_offset:
                offset, size, _ = queue.entry(queue.max_offset - 1)
                if size != NOWHERE_SIZE and offset + size > point:
                    self._broken("INV_B10", "a queue points behind the cut", process, number, offset, size, point)
        if epochs.last is not None and epochs.last.start > point:
            self._broken("INV_B10", "an epoch begins behind the cut", process, epochs.last, point)
        if max(journal.confirm_offset, journal.visible.offset) > point:
            self._broken("INV_B10", "confirmed behind the cut", process, journal.confirm_offset, point)

    def end_of_run(self, host: Host, end: int) -> int:
        """Return the end of the log after a run: ``end``, or lower if a cut was under way."""
        return min(end, self._cuts_at.pop(host, end))
