"""Checks logs after power cuts, INV_B28 to INV_B30, for ``BrokerWatch``.

It learns losses from the disks, not from the replicas. It knows no role and no promise.
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
    """Logs in doubt after power cuts, in one scene."""

    def __init__(self, watch: BrokerWatch) -> None:
        self._watch, self._scene = watch, watch.scene
        self._synced: dict[Host, int] = {}
        """The synced end of each log at a power cut, until it is level with a master's."""
        self._copied: dict[Host, bool] = {}
        """Host -> whether its first append as a slave after the last power cut came where trust ended, or before. It
        survives a kill."""
        self._better: dict[int, list[str]] = {}
        """Epoch -> brokers that could have been elected instead and had lost nothing."""

    def cut(self, host: Host, synced: int | None) -> None:
        """Note a power cut under asynchronous flush: the log is trusted only up to its synced end.

        None: its store was never open, so nothing is in doubt. What was in doubt before and copied again is new.
        """
        is_new = self._copied.pop(host, False)
        if synced is not None:
            self._synced[host] = synced if is_new else min(synced, self._synced.get(host, synced))
        host.unsafe = True

    def trusted(self, process: BrokerProcess) -> None:
        """Note that a log is level with a master's, as replication says."""
        self._scene.counts["log in doubt no longer"] += self._synced.pop(process.host, None) is not None

    def appends(self, process: BrokerProcess, offset: int, body: bytes) -> None:
        """Check INV_B28 right before a slave appends."""
        if process.host not in self._copied:
            log = process.journal.log
            is_empty = log.min_offset == log.max_offset  # an empty log may begin anywhere
            self._copied[process.host] = is_empty or offset <= self._known(process, offset)
        self._watch.counts["INV_B28"] += 1
        if not _is_whole(body, offset, process.journal.log.file_bytes):
            self._watch.broken("INV_B28", "a part of a record", process, offset, len(body))

    def acknowledges(self, process: BrokerProcess, offset: int) -> None:
        """Check INV_B30: bytes in doubt were copied again first. A blank at the end of a file holds none."""
        if process.host not in self._synced:
            return
        self._watch.counts["INV_B30"] += 1
        known = self._known(process, offset)
        if offset > known and not self._copied.get(process.host):
            self._watch.broken("INV_B30", "acknowledged what was neither synced nor copied again", process, offset,
                               known)

    def _known(self, process: BrokerProcess, offset: int) -> int:
        """Return up to where a log that reaches ``offset`` is trusted. Nothing is known before its begin."""
        begin, synced = process.journal.begin, self._synced.get(process.host, offset)
        if begin <= synced < offset:
            synced = process.journal.log.next_offset(synced)
        return max(synced, begin)

    def chosen(self, elected: Elected, command: object, groups: Iterable[tuple[GroupKey, BrokerGroup, BrokerGroup]],
               ) -> None:
        """Note the brokers that could have been elected instead, unless an operator designated one."""
        asked = command if isinstance(command, ElectMaster) else None
        if asked is not None and asked.designate:
            return
        for _, before, _ in groups:
            among = set(before.electable)
            if asked is not None and asked.unclean:
                among &= asked.observation.live.keys()
            hosts = [self._scene.host_of(member) for member in sorted(among)]
            self._better[elected.master_epoch] = [
                host.name for host in hosts if host is not None and not (host.unsafe or host.older or host.learner)]

    def leads(self, process: BrokerProcess, epoch: int, *, again: bool, unclean: bool) -> None:
        """Check INV_B29 when a broker has become master."""
        host, plan = process.host, self._scene.plan
        self._synced.pop(host, None)
        if not host.lacks or again or unclean or not plan.all_ack:
            return
        self._scene.counts["led by who lost something"] += 1
        if not plan.java_controllers:
            self._watch.counts["INV_B29"] += 1
            if better := self._better.get(epoch):
                self._watch.broken("INV_B29", "elected though it lost something, and another one did not", process,
                                   epoch, better)
            # The gap of durability.md: a broker that is elected while it is down comes back as the only candidate.
            self._scene.counts["elected while its machine was down"] += bool(self._better.get(epoch - 1))


def _is_whole(body: bytes, offset: int, file_bytes: int) -> bool:
    """Return whether a body has only whole messages, and blanks up to the ends of files."""
    at = 0
    while at < len(body):
        at = outlines(body, offset, at)[1]
        if at < len(body):
            if len(body) - at < BLANK_BYTES_MIN or blank_size(body, at) is None:
                return False
            at += file_bytes - (offset + at) % file_bytes
    return at == len(body)
