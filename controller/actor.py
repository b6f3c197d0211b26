"""The shell around ``controller.active``: does what the active controller's core wants, and tells it what came of it.

A lone closed channel is on its way to the disks one turn of the loop later; what closes in that turn goes along in the
same entry of the disks' logs. Brokers are told before anything is written down about it. Decides nothing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import trio

from controller import answers
from controller.active import ActiveController
from controller.handlers import Controller
from controller.membership import changed_members
from controller.metadata.codec import encode
from controller.metadata.commands import AnyCommand, RaiseFormat
from controller.metadata.groups import GroupKey
from controller.metadata.machine import MetadataMachine
from controller.metadata.outcomes import Elected, NotElected, Outcome
from controller.notifications import Notification
from raft.config import Read
from raft.errors import Faulted, RaftError, Rejected, RejectReason
from raft.events import NodeFaulted
from raft.messages import Role, RoleChanged
from raft.node import Node
from remoting.client import Client
from remoting.codes import RequestCode
from remoting.command import Command, request
from remoting.connection import Connection
from remoting.errors import RemotingError
from remoting.headers.controller import GetMetadataResponse
from remoting.wakeup import Bell

logger = logging.getLogger("controller")

Clock = Callable[[], int]
"""Returns monotonic time, in nanoseconds."""
PROBE_TIMEOUT_MS = 1_000
NOTIFY_TIMEOUT_MS = 3_000
AGAIN_S = 0.1
"""Wait between two barriers of one leadership."""
LOOK_S = 5.0
"""The active controller looks at the other controllers so often."""
RAISE_S = 0.2
"""The active controller asks the others so often which format they read, while a newer one than that in use exists."""
PROPOSED_MAX = 1_000
"""Commands of one batch: all have one fate, and what is not known of them is asked for again."""


class Actor:
    """Carries out what the active controller decides, in tasks.

    ``node`` and ``controller`` are set before the tasks start. ``client`` reaches brokers, ``peers`` the controllers.
    """

    node: Node
    controller: Controller

    def __init__(
        self, machine: MetadataMachine, active: ActiveController, client: Client, peers: Client, clock: Clock,
    ) -> None:
        self.machine, self.active = machine, active
        self.bell = Bell()
        self._client, self._peers, self._clock = client, peers, clock
        self._nursery: trio.Nursery | None = None
        self._gathered: list[AnyCommand] = []
        """Commands to be proposed in the next turn."""
        self._unlogged: list[Elected | NotElected] = []
        self._armed: float = math.inf
        """Time when ``act`` looks again even if nothing happens."""

    # --- events ----------------------------------------------------------------------------------------------

    def closed(self, connection: Connection, _: str) -> None:
        """A closed connection may have carried a master."""
        self.active.closed(connection)
        if self.active.stirred:
            self._turn()
            due = self.active.next_deadline()
            if due is not None and due < self._armed:
                self.bell.ring()

    def applied(self, outcome: Outcome) -> None:
        """Take note of a command that was applied here.

        Only the active controller logs an election: the others apply it too, and again when they start.
        """
        self.active.applied(self._clock(), outcome)
        if self.active.active:
            if isinstance(outcome, Elected | NotElected):
                self.controller.recorder.decided(outcome)
                self._unlogged.append(outcome)
            self.bell.ring()

    # --- tasks -----------------------------------------------------------------------------------------------

    async def follow_role(self) -> None:
        """Active from the first read barrier of a leadership on: before it, this node may lack what others committed.

        Raises ``Faulted`` when the node does.
        """
        async for event in self.node.events():
            if isinstance(event, NodeFaulted):
                raise Faulted(event.reason)
            if not isinstance(event, RoleChanged):
                continue
            if self.active.active:
                logger.warning("no longer the active controller", extra={"term": event.term, "leader": event.leader})
                self.active.deactivate()
            if event.role is Role.LEADER and await self._caught_up(event.term):
                logger.info("this is the active controller", extra={"term": event.term})
                self.active.activate(self._clock(), event.term)
                self.bell.ring()

    async def _caught_up(self, term: int) -> bool:
        """Return whether this node leads ``term`` and has applied all that earlier leaders committed.

        While it leads, a barrier that was not confirmed in time is asked for again: this leadership has no other event.
        """
        while self._leads(term):
            try:
                await self.node.read_barrier(Read.INDEX)
            except Rejected as error:
                if error.reason is RejectReason.STOPPED:
                    return False
                await trio.sleep(AGAIN_S)
            except RaftError:
                return False  # the next event tries again
            else:
                return self._leads(term)
        return False

    def _leads(self, term: int) -> bool:
        return self.node.is_leader and self.node.term == term

    async def act(self) -> None:
        """Propose and send what the core asks for, at events and at its deadlines."""
        async with trio.open_nursery() as self._nursery:
            try:
                await self._act()
            finally:
                self._nursery = None  # connections closing with this actor start no task

    async def _act(self) -> None:
        while True:
            self._turn()
            for outcome in self._unlogged:
                _log_election(outcome)
            self._unlogged.clear()
            due = self.active.next_deadline()
            self._armed = math.inf if due is None else due
            with trio.move_on_after(max(self._armed - self._clock(), 0) / 1e9):
                await self.bell.wait()

    def _turn(self) -> None:
        todo, nursery = self.active.poll(self._clock()), self._nursery
        for key, master, why in todo.replaced:
            logger.warning("a master that lives is replaced", extra={
                **_of_group(key), "broker_id": master, "why": why})
        if nursery is None:
            return
        if todo.commands:
            if not self._gathered:
                nursery.start_soon(self._propose_gathered)
            self._gathered += todo.commands
        for notification in todo.notifications:
            if not self.controller.config.notify_broker_role_changed:
                self.active.notifications.forget(notification.change.key, notification.broker_id)
            else:
                self._client.call_nowait(
                    notification.address, answers.role_changed(notification.change),
                    partial(self._told, notification), NOTIFY_TIMEOUT_MS)

    async def _propose_gathered(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()  # at its end a controller closes channels itself: no broker died
        gathered, self._gathered = self._gathered, []
        async with trio.open_nursery() as nursery:
            for at in range(PROPOSED_MAX, len(gathered), PROPOSED_MAX):
                nursery.start_soon(self._propose, gathered[at : at + PROPOSED_MAX])
            await self._propose(gathered[:PROPOSED_MAX])

    async def _propose(self, commands: Sequence[AnyCommand]) -> None:
        """All in one batch: they share the disks' one write."""
        encoded = [encode(command, self.machine.format) for command in commands]
        outcomes: Sequence[object]
        try:
            if len(encoded) == 1:  # a lone command goes out without a batch
                outcomes = [await self.node.propose(encoded[0])]
            else:
                outcomes = await self.node.propose_many(encoded)
        except RaftError as error:
            logger.warning("commands not carried out", extra={
                "command": type(commands[0]).__name__, **_of_group(getattr(commands[0], "key", None)),
                "commands": len(commands), "why": str(error)})
            outcomes = [None] * len(commands)
        now = self._clock()
        for command, outcome in zip(commands, outcomes, strict=True):
            assert outcome is None or isinstance(outcome, Outcome)
            self.active.answered(now, command, outcome)
        self.bell.ring()

    def _told(self, notification: Notification, result: Command | RemotingError) -> None:
        if isinstance(result, Command):
            self.active.notifications.acknowledged(notification)
            return
        change = notification.change
        logger.warning("broker not told of its master", extra={
            **_of_group(change.key), "broker_id": notification.broker_id, "address": notification.address,
            "epoch": change.master_epoch, "why": str(result)})
        self.active.notifications.failed(self._clock(), notification)
        self.bell.ring()

    async def readmit(self) -> None:
        """Members that lost their disks are taken in again, as learners first, when the active controller sees them."""
        while True:
            await trio.sleep(LOOK_S)
            if not (self.active.active and self.controller.config.readmit_wiped_controllers):
                continue
            status = self.node.status()
            if status.strangers and not status.change:
                logger.warning("controllers came back with empty disks: they are taken in again",
                               extra={"nodes": sorted(status.strangers)})
                voters, learners = changed_members(status.membership, "", "")
                try:
                    await self.node.reconfigure(voters, learners)
                except RaftError as error:
                    logger.warning("controllers with empty disks were not taken in; the next look tries again",
                                   extra={"why": str(error)})

    async def raise_format(self) -> None:
        """The group goes on to the next format of its log once the active controller heard every member read it."""
        while True:
            await trio.sleep(RAISE_S)
            following = self.machine.format + 1
            if not self.active.active or self.machine.reads < following:
                self.controller.holding_back = {}
                continue
            term, asked = self.active.term, self.node.membership
            read = await self._formats({name: member.address for name, member in asked.members.items()
                                        if name != self.node.node_id})
            self.controller.holding_back = {name: newest for name, newest in read.items() if newest < following}
            if not self.controller.holding_back and self.node.membership == asked:
                await self._propose([RaiseFormat(term=term, format=following)])
                if self.machine.format == following:
                    logger.info("all controllers read the next format: it is in use", extra={"format": following})

    async def _formats(self, members: Mapping[str, str]) -> dict[str, int]:
        """The newest format that each of them reads; 0 from one that does not answer, or does not say."""
        read = dict.fromkeys(members, 0)

        async def ask(name: str, address: str) -> None:
            with suppress(RemotingError):
                answer = await self._peers.call(
                    address, request(RequestCode.CONTROLLER_GET_METADATA_INFO), timeout_ms=PROBE_TIMEOUT_MS)
                read[name] = GetMetadataResponse.from_ext(answer.ext).reads_format or 0

        async with trio.open_nursery() as nursery:
            for name, address in members.items():
                nursery.start_soon(ask, name, address)
        return read


def _of_group(key: GroupKey | None) -> dict[str, str]:
    return {} if key is None else {"cluster": key.cluster, "group": key.name}


def _log_election(outcome: Elected | NotElected) -> None:
    if isinstance(outcome, Elected):
        logger.log(logging.INFO if outcome.clean else logging.WARNING, "master elected", extra={
            **_of_group(outcome.key), "broker_id": outcome.master, "address": outcome.address,
            "epoch": outcome.master_epoch, "previous": outcome.previous, "clean": outcome.clean})
    elif outcome.changed:
        logger.error("group without a master", extra={
            **_of_group(outcome.key), "epoch": outcome.master_epoch, "previous": outcome.previous,
            "why": outcome.remark})
