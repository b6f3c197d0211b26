"""Puts a role on a whole broker: replication, the gate of the writes, its name for clients, where it copies tables.

There are three kinds: master or slave by configuration, or the role that controllers give. Replication takes a role;
here every part hears of it, in one order. Source: ``ReplicasManager.changeToMaster`` and ``changeToSlave``, and
``BrokerController.startService`` of RocketMQ.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

import attrs
import trio
from trio.abc import Listener, Stream

from broker.acting.members import Members
from broker.ha.acks import QuorumConfig
from broker.ha.autoswitch import AutoSwitch
from broker.ha.taking import Become, BecomeMaster, BecomeSlave
from broker.haaddress import HaAddresses, MasterAddress
from broker.journal import Journal
from broker.part import Parts
from broker.plain.roles import Lender, PlainMaster, PlainSlave
from broker.preonline.levelling import Copies, Levelling
from broker.puts import Puts
from broker.registration import Registration
from broker.relay.codes import SENDS
from broker.relay.forwarding import Forwarder
from broker.replicas.demand import Demand
from broker.replicas.manager import LogState
from broker.replicas.shell import GroupMember
from broker.standing import Role, Standing
from remoting.bodies.broker import HARuntimeInfo
from remoting.bodies.controller import EpochEntry

logger = logging.getLogger("broker")


class Roles(Protocol):
    """The operations that every kind of group offers to the rest of the broker."""

    async def run(self, listeners: Sequence[Listener[Stream]], *, task_status: trio.TaskStatus[None]) -> None:
        """Replicate, until cancelled; closes the listeners, which are the HA port's."""

    def told(self, master: MasterAddress) -> None:
        """Take note of a master's addresses."""

    def members_changed(self, members: Members) -> None:
        """Follow a change of the group's living members, as name servers see them."""

    def runtime_info(self) -> HARuntimeInfo:
        """Body of the answer to code 907."""

    def epochs(self) -> list[EpochEntry] | None:
        """Return the epochs of the log; None: no controller rules this group."""

    def configure(self, quorum: QuorumConfig, *, sync_flush_timeout_ms: int) -> None:
        """Set how many replicas puts need from now on."""

    async def stop(self) -> None:
        """Close writes for good; a master lets another one take over if it can."""

    @property
    def handed_over(self) -> bool:
        """Return whether clients must go to another broker, and may not have heard of that."""


class Bearer:
    """Bears a role, and lets ``Standing`` and every part know of it."""

    def __init__(self, parts: Parts, standing: Standing) -> None:
        self._parts, self._standing = parts, standing

    def _be(self, role: Role) -> None:
        """Take the role: parts hear of it in the order of their list, in one turn."""
        self._standing.role = role
        self._parts.role_changed(role)


class PlainMasterRole(Bearer):
    """Master because it is configured so."""

    def __init__(self, parts: Parts, standing: Standing, puts: Puts, replication: PlainMaster,
                 levelling: Levelling | None, itself: MasterAddress) -> None:
        """``levelling``: done before it leads; ``itself``: what members are told meanwhile."""
        super().__init__(parts, standing)
        self._puts, self._replication, self.levelling, self._itself = puts, replication, levelling, itself
        replication.advanced = puts.advanced

    async def run(self, listeners: Sequence[Listener[Stream]], *,
                  task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            async def serve() -> None:
                await nursery.start(self._replication.run, listeners)

            if self.levelling is None:
                await serve()
            else:
                task_status.started()  # it may take as long as to copy the log
                await self.levelling.master(self._replication, serve, self._itself, self._parts.all_joins())
            self._lead()
            if self.levelling is None:
                task_status.started()

    def _lead(self) -> None:
        if self._stops:
            return
        self._be(Role.master())
        self._parts.writes_opened()
        self._puts.serve(self._replication)

    def told(self, master: MasterAddress) -> None:
        logger.warning("another broker says that it is this group's master",
                       extra={"address": master.address, "ha_address": master.ha_address})

    def members_changed(self, members: Members) -> None:
        self._replication.alive = max(1, len(members.ids))
        self._puts.advanced()

    def runtime_info(self) -> HARuntimeInfo:
        return self._replication.runtime_info()

    def epochs(self) -> None:
        return None

    handed_over = False
    _stops = False

    def configure(self, quorum: QuorumConfig, *, sync_flush_timeout_ms: int) -> None:
        self._replication.configure(quorum)
        self._puts.configure(quorum, sync_flush_timeout_ms=sync_flush_timeout_ms)

    async def stop(self) -> None:
        self._stops = True
        self._puts.fence("the broker stops")
        self._parts.writes_closed()
        await trio.lowlevel.checkpoint()


class PlainSlaveRole(Bearer):
    """Slave because it is configured so; name servers say whose, where the configuration does not."""

    def __init__(self, parts: Parts, standing: Standing, replication: PlainSlave, ha_address: str,
                 lender: Lender | None, levelling: Levelling | None, copies: Copies, *, may_act: bool = False) -> None:
        """``ha_address``: the master's, if it is configured. ``lender``: for masters that come back. ``levelling``:
        done first, with the tables' ``copies``. ``may_act``: ``members_changed`` says which broker is master."""
        super().__init__(parts, standing)
        self._replication, self._ha_address, self._lender = replication, ha_address, lender
        self.levelling, self._copies, self._may_act = levelling, copies, may_act
        self._members = Members()

    async def run(self, listeners: Sequence[Listener[Stream]], *,
                  task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            if self._lender is not None:
                await nursery.start(self._lender.run, listeners)
            else:
                for listener in listeners:
                    await listener.aclose()
            if self._ha_address:
                self._replication.follow(self._ha_address)
            self._be(self._standing.role)
            nursery.start_soon(self._replication.run)
            task_status.started()
            if self.levelling is not None:
                await self.levelling.slave(self.told, lambda: self._replication.connected, self._copies)
                self._fit(listed=True)

    def told(self, master: MasterAddress) -> None:
        if not self._ha_address:
            self._replication.follow(master.ha_address)
        role = self._standing.role
        if master.address and master.address != role.master_address and not self._may_act:
            self._be(attrs.evolve(role, master_address=master.address))

    @property
    def hears_master(self) -> bool:
        """Return whether there is a connection to the master's replication port."""
        return self._replication.connected

    def members_changed(self, members: Members) -> None:
        """Follow a change of members. Where slaves may act, nothing is copied from a master that is away: it may come
        back with less."""
        self._members = members
        self._fit(listed=self._standing.role.listed)

    def _fit(self, *, listed: bool) -> None:
        """Set the role to what the members make of it. A slave that acts serves clients, so it is not isolated."""
        now, members = self._standing.role, self._members
        role = attrs.evolve(now, listed=listed)
        if self._may_act and members.ids:
            role = Role.slave(now.broker_id, master_address=members.master or "")
            if members.least == now.broker_id and listed:
                role = Role.acting(now.broker_id)
            role = attrs.evolve(role, listed=listed)
        if role != now:
            if role.acts != now.acts:
                logger.info("acts for its master" if role.acts else "acts no more", extra={
                    "broker_id": now.broker_id, "master": role.master_address})
            self._be(role)

    def runtime_info(self) -> HARuntimeInfo:
        return self._replication.runtime_info()

    def epochs(self) -> None:
        return None

    handed_over = False

    def configure(self, quorum: QuorumConfig, *, sync_flush_timeout_ms: int) -> None:
        """A slave takes no puts."""

    async def stop(self) -> None:
        await trio.lowlevel.checkpoint()


class ControlledRole(Bearer):
    """The role that controllers give. Implements ``broker.replicas.shell``'s ``RoleSteps``.

    ``member`` is to be set before it runs.
    """

    member: GroupMember

    def __init__(
        self, parts: Parts, puts: Puts, journal: Journal, standing: Standing, registration: Registration,
        ha_addresses: HaAddresses, replication: AutoSwitch, forwarder: Forwarder, *, quorum: QuorumConfig,
        sync_flush_timeout_ms: int, forward_ms: int, hand_over_ms: int,
    ) -> None:
        """``quorum``, ``sync_flush_timeout_ms``: what ``puts`` need. ``forward_ms``: for how long requests are passed
        on to the next master after this mastership."""
        super().__init__(parts, standing)
        self._puts, self._journal, self._registration = puts, journal, registration
        self._ha_addresses, self._replication, self._forwarder = ha_addresses, replication, forwarder
        self._forward_ms, self._hand_over_ms = forward_ms, hand_over_ms
        self._forwarding: trio.CancelScope | None = None
        """Scope of the wait after which requests are forwarded no more."""
        self._told: MasterAddress | None = None
        """The last address of a master that was told."""
        self._finding = trio.CancelScope()
        self.handed_over = False
        self._stopping = False
        self._demand = Demand(lambda: self.member.manager.gate, quorum, self._apply)
        journal.ticks.join("demand", lambda _: self._demand.settle())
        journal.disk_changed.join("role", self._changed)
        self._sync_flush_timeout_ms = sync_flush_timeout_ms
        """The time-out as it was configured last."""
        self._nursery: trio.Nursery | None = None
        replication.advanced = puts.advanced
        replication.changed = self._changed

    async def run(self, listeners: Sequence[Listener[Stream]], *,
                  task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as self._nursery:
            await self._nursery.start(self._replication.run, listeners)
            await self._nursery.start(self.member.run)
            task_status.started()

    def log_state(self) -> LogState:
        """State of the log, for heartbeats."""
        journal, last = self._journal, self._replication.epochs.last
        return LogState(-1 if last is None else last.epoch, journal.end, journal.confirm_offset, journal.trust.in_doubt,
                        master_silent=self._replication.master_silent, disk=journal.health)

    def _changed(self) -> None:
        self.member.bell.ring()

    # --- what the parts hear of a role -------------------------------------------------------------------------

    def taking(self, role: Become) -> str | None:
        self._demand.settle()
        self._finding.cancel()
        if isinstance(role, BecomeMaster):
            return None
        if self._forwarder.on:
            self._forwarder.follow(role.master_address)
        elif self._forward_ms and self._standing.role.takes_puts:
            self._forwarder.begin(role.master_address)
        elif self._forward_ms and not self._standing.role.listed:  # it may have been the master before it started
            self._forwarder.begin(role.master_address, codes=SENDS)
        if self._forwarder.on and self._forwarding is None:
            assert self._nursery is not None, "it runs"
            self._forwarding = trio.CancelScope()
            self._nursery.start_soon(self._end_forwarding, self._forwarding)
        return self._ha_address(role)

    def _ha_address(self, role: BecomeSlave) -> str | None:
        """Return the HA address that was told last for that master."""
        return self._told.ha_address if self._told is not None and self._told.address == role.master_address else None

    def taken(self, role: Become) -> None:
        broker_id = self.member.manager.broker_id
        assert broker_id is not None and self._nursery is not None, "registered, and it runs"
        if isinstance(role, BecomeMaster):
            if self._forwarding is not None:
                self._forwarding.cancel()
                self._forwarding = None
            self._forwarder.end()
            self._be(Role.master(role.epoch))
            self._nursery.start_soon(self._ha_addresses.announce, tuple(self._registration.members.values()))
        else:
            self._be(Role.slave(broker_id, role.epoch, role.master_address))
            ha_address = self._ha_address(role)
            if ha_address is not None:
                self._replication.follow(ha_address)  # it may have been told while the role was being taken
            else:
                self._finding = trio.CancelScope()
                self._nursery.start_soon(self._find, role.master_address, self._finding)

    async def left(self) -> None:
        self._finding.cancel()
        former = self._standing.role
        self._be(Role.vacant(former.broker_id, former.epoch))
        await self._registration.leave()  # so that clients find the other process

    async def _end_forwarding(self, scope: trio.CancelScope) -> None:
        """End the forwarding after a time in which clients have asked for their routes again."""
        with scope:
            await trio.sleep(self._forward_ms / 1e3)
            self._forwarder.end()
            self._forwarding = None

    async def _find(self, master_address: str, scope: trio.CancelScope) -> None:
        with scope:
            self.told(await self._ha_addresses.find(master_address))

    def serve(self) -> None:
        self._demand.settle()
        if isinstance(self.member.manager.role, BecomeMaster):
            self._parts.writes_opened()
            self._puts.serve(self._replication, self.member.manager.lease.holds)

    def fence(self, reason: str) -> None:
        self._puts.fence(reason)
        self._parts.writes_closed()
        if self._stopping and self._forward_ms and not self._forwarder.on:
            self._forwarder.begin()  # new requests wait for the next master, or for the end of their connection

    # --- for the rest of the broker ------------------------------------------------------------------------------

    def told(self, master: MasterAddress) -> None:
        role = self.member.manager.role
        address = master.address
        if not address and isinstance(role, BecomeSlave):
            address = role.master_address  # a Java master may leave it out
        self._told = MasterAddress(address, master.ha_address, master.flushed_offset)
        if isinstance(role, BecomeSlave) and role.master_address == address:
            self._finding.cancel()
            self._replication.follow(master.ha_address)

    def members_changed(self, members: Members) -> None:
        """Do nothing: in this kind of group the SyncStateSet counts."""

    def runtime_info(self) -> HARuntimeInfo:
        return self._replication.runtime_info()

    def epochs(self) -> list[EpochEntry]:
        return self._replication.epoch_entries()

    def configure(self, quorum: QuorumConfig, *, sync_flush_timeout_ms: int) -> None:
        """Raise ``minInSyncReplicas`` at once, or lower it when the active controller has answered a heartbeat of that.

        Until then others may be elected because this master acknowledges nothing alone."""
        self._sync_flush_timeout_ms = sync_flush_timeout_ms
        self._demand.change(quorum)

    def _apply(self, quorum: QuorumConfig) -> None:
        self._puts.configure(quorum, sync_flush_timeout_ms=self._sync_flush_timeout_ms)
        self._replication.demand(quorum.min_in_sync_replicas)

    async def stop(self) -> None:
        self.handed_over, self._stopping = self._forwarder.passes_all, self._standing.role.takes_puts
        if self._hand_over_ms:
            next_master = await self.member.hand_over(self._hand_over_ms)
            if next_master is not None:
                self.handed_over = True
                if self._forward_ms:
                    self._forwarder.begin(next_master)
        self.member.stop()
