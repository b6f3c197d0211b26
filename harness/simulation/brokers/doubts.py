"""What must hold of logs that outlived their machine: INV_B28 to INV_B30, for ``BrokerWatch``.

It reads from the disks which broker lost something, whatever the replicas believe. It knows no role and no promise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from controller.metadata.commands import ElectMaster
from controller.metadata.groups import BrokerGroup, GroupKey
from controller.metadata.outcomes import Elected
from remoting.record import BLANK_BYTES_MIN, blank_size, outlines

if TYPE_CHECKING:
    from harness.simulation.brokers.host import Host
    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.watch import BrokerWatch


class Doubts:
    """What power cuts put in doubt, in one scene."""

    def __init__(self, watch: BrokerWatch) -> None:
        self._watch, self._scene = watch, watch.scene
        self._synced: dict[Host, int] = {}
        """The synced end of each log at a power cut, until it is level with a master's."""
        self._copied: dict[Host, int] = {}
        """Where a slave's appends began after the last power cut. A kill takes none of them."""
        self._better: dict[int, list[str]] = {}
        """By epoch: brokers that could have been elected instead, and lacked nothing."""

    def cut(self, host: Host, synced: int | None) -> None:
        """A power cut under asynchronous flush: what is left of the log is trusted only as far as it was synced. None:
        its store was never open, and there is nothing to doubt."""
        self._copied.pop(host, None)
        if synced is not None:
            self._synced[host] = min(synced, self._synced.get(host, synced))
        host.unsafe = True

    def trusted(self, process: BrokerProcess) -> None:
        """Takes that a log is level with a master's, as replication says."""
        self._scene.counts["log in doubt no longer"] += self._synced.pop(process.host, None) is not None

    def appends(self, process: BrokerProcess, offset: int, body: bytes) -> None:
        """Asks INV_B28 right before a slave appends."""
        self._copied.setdefault(process.host, offset)
        self._watch.counts["INV_B28"] += 1
        if not _is_whole(body, offset, process.journal.log.file_bytes):
            self._watch.broken("INV_B28", "a part of a record", process, offset, len(body))

    def acknowledges(self, process: BrokerProcess, offset: int) -> None:
        """INV_B30: what was in doubt was copied again first. A blank at the end of a file holds nothing."""
        synced = self._synced.get(process.host)
        if synced is None:
            return
        self._watch.counts["INV_B30"] += 1
        if process.journal.begin <= synced < offset:
            synced = process.journal.log.next_offset(synced)
        copied, known = self._copied.get(process.host), max(synced, process.journal.begin)
        if offset > known and (copied is None or copied > known):  # where a log begins says nothing of what was there
            self._watch.broken("INV_B30", "acknowledged what was neither synced nor copied again", process, offset,
                               synced, copied)

    def chosen(self, elected: Elected, command: object, groups: Iterable[tuple[GroupKey, BrokerGroup, BrokerGroup]],
               ) -> None:
        """Notes who else could have been elected. An operator's choice and ``unclean`` elections do not count."""
        asked = command if isinstance(command, ElectMaster) else None
        if asked is not None and asked.designate:
            return
        for _, before, _ in groups:
            among = set(before.electable)
            if asked is not None and asked.unclean:
                among &= asked.observation.live.keys()
            hosts = [self._scene.host_of(member) for member in sorted(among)]
            self._better[elected.master_epoch] = [
                host.name for host in hosts if host is not None and not host.unsafe and not host.learner]

    def leads(self, process: BrokerProcess, epoch: int, *, again: bool, unclean: bool) -> None:
        """Asks INV_B29 when a broker has become master."""
        host, plan = process.host, self._scene.plan
        self._synced.pop(host, None)
        if not host.unsafe or again or unclean or not plan.all_ack or plan.sync_flush:
            return
        self._scene.counts["led by who lost something"] += 1
        if not plan.java_controllers:
            self._watch.counts["INV_B29"] += 1
            if better := self._better.get(epoch):
                self._watch.broken("INV_B29", "elected though it lost something, and another one did not", process,
                                   epoch, better)
            # One window is open, as durability.md says: elected while it was down, it is the only one when it is back.
            self._scene.counts["elected while its machine was down"] += bool(self._better.get(epoch - 1))


def _is_whole(body: bytes, offset: int, file_bytes: int) -> bool:
    """Messages, and blanks up to the ends of files."""
    at = 0
    while at < len(body):
        at = outlines(body, offset, at)[1]
        if at < len(body):
            if len(body) - at < BLANK_BYTES_MIN or blank_size(body, at) is None:
                return False
            at += file_bytes - (offset + at) % file_bytes
    return at == len(body)
