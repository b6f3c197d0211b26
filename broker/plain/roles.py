"""The shells of master and slave in a group without controllers: they join the cores, the journal and streams.

Source: ``DefaultHAService`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import trio
from trio.abc import Listener, Stream

from broker.ha.acks import BrokerRole, Holders, Mode, QuorumConfig, Replicas, in_sync_count
from broker.ha.config import HaConfig
from broker.ha.following import Following
from broker.ha.master import Close, Idle, LogView
from broker.ha.places import Stage
from broker.ha.port import Frame
from broker.ha.serving import HaPort
from broker.ha.wire import BLOCK, Block, Blocks, Reports
from broker.journal import Journal
from broker.plain.master import MasterCore, SendBlock
from broker.plain.slave import SlaveCore
from remoting.bodies.broker import HAConnectionRuntimeInfo, HARuntimeInfo
from remoting.streams import Connector, connect_tcp


@attrs.define(eq=False)
class PlainMasterSide:
    """Connects ``MasterCore`` to the HA port."""

    core: MasterCore
    _decoders: dict[int, Reports] = attrs.field(factory=dict)

    def opened(self, link: int, host: str, now_ns: int) -> None:
        self._decoders[link] = Reports()
        self.core.opened(link, host, now_ns)

    def heard(self, link: int, data: bytes, now_ns: int) -> list[Close]:
        offset = self._decoders[link].feed(data)
        return [] if offset is None else self.core.reported(link, offset, now_ns)

    def closed(self, link: int) -> None:
        del self._decoders[link]
        self.core.closed(link)

    def tick(self, now_ns: int) -> list[Close]:
        return self.core.tick(now_ns)

    def standing(self, link: int) -> Stage:
        return Stage.COPIES if self.core.ack(link) >= 0 else Stage.SILENT

    def next_frame(self, link: int, log: LogView, now_ns: int) -> Frame | Idle | Close:
        todo = self.core.next_send(link, log, now_ns)
        if isinstance(todo, SendBlock):
            return Frame(BLOCK.pack(todo.offset, todo.size), todo.offset, todo.size)
        return todo


class _ServedLog:
    """Serves the log on the HA port for as long as ``run`` runs."""

    def __init__(self, journal: Journal, config: HaConfig, advanced: Callable[[], None] = lambda: None) -> None:
        self._core = MasterCore(config, journal.end, journal.durable_end)
        self._journal = journal
        self._port = HaPort(journal, config, advanced=advanced, changed=lambda: None)

    async def run(self, listeners: Sequence[Listener[Stream]], *,
                  task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve slaves until cancelled; closes the listeners."""
        journal = self._journal
        journal.grown.join("role", self._grown)
        journal.ticks.join("role", self._port.tick)
        try:
            self._port.serve(PlainMasterSide(self._core))
            self._grown()
            await self._port.run(listeners, task_status=task_status)
        finally:
            journal.grown.leave("role", self._grown)
            journal.ticks.leave("role", self._port.tick)

    def _grown(self) -> None:
        self._core.advanced(self._journal.end, self._journal.durable_end)
        self._port.wake()


class PlainMaster(_ServedLog):
    """A master for as long as ``run`` runs. Implements ``broker.puts.Replication``.

    The caller sets ``alive``, the number of living replicas, the master included.
    """

    def __init__(self, journal: Journal, config: HaConfig, quorum: QuorumConfig, mode: Mode, *,
                 ha_address: str = "") -> None:
        """``mode.role`` is ASYNC_MASTER or SYNC_MASTER; ``ha_address`` is the address for slaves."""
        self.mode = mode
        self.alive = quorum.total_replicas
        self.ha_address = ha_address
        self.advanced: Callable[[], None] = lambda: None
        """Called when a slave has acknowledged, connected or disconnected."""
        super().__init__(journal, config, self._advanced)
        self.holders: Holders = self._core
        self.configure(quorum)

    def configure(self, quorum: QuorumConfig) -> None:
        """Count replicas by these keys from now on."""
        self._quorum = quorum
        self._counts = self.mode.slave_acting_master or quorum.enable_auto_in_sync_replicas

    async def run(self, listeners: Sequence[Listener[Stream]], *,
                  task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        journal = self._journal
        journal.trust.regained()  # there is no other log to compare with
        await super().run(listeners, task_status=task_status)

    def replicas(self) -> Replicas:
        if not self._counts:
            return Replicas()
        return Replicas(alive=self.alive, in_sync=self.in_sync)

    @property
    def in_sync(self) -> int:
        """Replicas in sync: the master, and slaves less than ``haMaxGapNotInSync`` behind."""
        return in_sync_count(self._quorum, self._journal.end, self._core.acks)

    @property
    def linked(self) -> list[str]:
        """Hosts of the slaves that have reported, one for each connection."""
        return [link.host for link in self._port.links.values() if self._core.ack(link.number) >= 0]

    def runtime_info(self) -> HARuntimeInfo:
        """Body of the answer to code 907."""
        end, gap = self._journal.end, self._quorum.ha_max_gap_not_in_sync
        found = []
        for link in self._port.links.values():
            ack = self._core.ack(link.number)
            found.append(HAConnectionRuntimeInfo(link.peer, ack, end - ack, end - ack < gap, link.rate, link.next))
        return HARuntimeInfo(True, end, self.in_sync - 1, found)

    def _grown(self) -> None:
        journal = self._journal
        self._core.advanced(journal.end, journal.durable_end)
        journal.confirm(journal.durable_end)
        self._port.wake()

    def _advanced(self) -> None:
        self.advanced()


class Lender(_ServedLog):
    """The HA port of a slave: a master that comes back with a shorter log copies the rest from here."""


class PlainSlave:
    """A slave for as long as ``run`` runs."""

    mode = Mode(BrokerRole.SLAVE)

    def __init__(self, journal: Journal, config: HaConfig, *, connector: Connector = connect_tcp) -> None:
        self._journal = journal
        self._following: Following[Block] = Following(
            journal, SlaveCore(config, journal.end, journal.trust.trusted_end), Blocks, config, connector)

    async def run(self) -> None:
        """Copy the master's log until cancelled."""
        self._journal.confirm(self._journal.durable_end)
        await self._following.run()

    def follow(self, ha_address: str | None) -> None:
        """Use this address of the master's HA port; None: it is unknown."""
        self._following.follow(ha_address)

    @property
    def connected(self) -> bool:
        return self._following.connected

    def runtime_info(self) -> HARuntimeInfo:
        """Body of the answer to code 907."""
        return HARuntimeInfo(ha_client_runtime_info=self._following.runtime_info())
