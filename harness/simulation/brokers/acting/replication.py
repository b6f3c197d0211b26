"""Both ends of the default HA protocol over simulated streams: the shipped cores, port and copying.

What ``broker.plain.roles`` does around them with tasks is repeated here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.ha.acks import BrokerRole, Holders, Mode, QuorumConfig, Replicas, in_sync_count
from broker.ha.config import HaConfig
from broker.ha.copying import CopyingCore
from broker.ha.wire import Block, Blocks
from broker.plain.master import MasterCore
from broker.plain.roles import PlainMasterSide
from broker.plain.slave import SlaveCore
from broker.preonline.tail import TailCore
from harness.simulation.brokers.replication import Dialling, SimulatedPort

if TYPE_CHECKING:
    from harness.simulation.brokers.acting.machine import MemberProcess


class MasterEnd:
    """Serves slaves: a master's, or that of a slave which lends its log. Implements ``broker.puts.Replication``."""

    def __init__(self, process: MemberProcess, config: HaConfig, quorum: QuorumConfig, mode: Mode) -> None:
        self.mode, self._quorum, self._journal = mode, quorum, process.journal
        self.alive = quorum.total_replicas
        self.advanced: Callable[[], None] = lambda: None
        self._core = MasterCore(config, process.journal.end, process.journal.durable_end)
        self.holders: Holders = self._core
        self._counts = mode.slave_acting_master or quorum.enable_auto_in_sync_replicas
        self.port = SimulatedPort(process, config, advanced=self._advanced, changed=lambda: None)

    def begin(self) -> None:
        journal = self._journal
        if self.mode.role is not BrokerRole.SLAVE:
            journal.trust.regained()
        journal.grown.join("role", self._grown)
        journal.ticks.join("role", self.port.tick)
        self.port.serve(PlainMasterSide(self._core))
        self._grown()

    def replicas(self) -> Replicas:
        if not self._counts:
            return Replicas()
        return Replicas(alive=self.alive, in_sync=in_sync_count(self._quorum, self._journal.end, self._core.acks))

    @property
    def linked(self) -> list[str]:
        """Hosts of the slaves that said where their logs end."""
        return [link.host for link in self.port.links.values() if self._core.ack(link.number) >= 0]

    def _advanced(self) -> None:
        self.advanced()

    def _grown(self) -> None:
        journal = self._journal
        self._core.advanced(journal.end, journal.durable_end)
        if self.mode.role is not BrokerRole.SLAVE:
            journal.confirm(journal.durable_end)
        self.port.wake()


class SlaveEnd(Dialling[Block]):
    """Copies its master's log, or the end of a member's."""

    def __init__(self, process: MemberProcess, config: HaConfig, core: SlaveCore | TailCore) -> None:
        made: CopyingCore[Block] = core
        super().__init__(process, made, Blocks, config.connect_timeout_ms)
