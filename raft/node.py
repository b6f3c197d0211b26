"""``Node`` is one node of one group as programs see it: all that they may ask, and nothing else.

The driver carries out every call; this module decides nothing and keeps no state. Commands of a machine with a codec
become bytes here. ``docs/reference/api.md`` lists all calls.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, cast

import trio

from raft import arguments
from raft.config import MS, Config, Read
from raft.errors import Rejected, RejectReason
from raft.events import Subscription
from raft.explain import explain
from raft.membership import Membership
from raft.messages import Role, SnapshotMeta
from raft.pending import Ticket
from raft.statemachine import AnswerT_co, AnyMachine, CommandT_contra, ResultT_co, query_of
from raft.status import Status
from raft.surroundings import RunBlocking
from raft.survey import survey

if TYPE_CHECKING:
    from raft.driver import Driver


class Node(Generic[CommandT_contra, ResultT_co, AnswerT_co]):
    """One node of one group. ``open_node`` and ``Host.open_group`` make it; do not call the constructor.

    ``Node[Command, Result, Answer]`` has the types of its state machine: see ``StateMachine``.
    """

    def __init__(self, driver: Driver, encode: Callable[[Any], bytes] | None = None) -> None:
        self._driver, self._encode = driver, encode
        self._proposals = driver.proposals

    # --- writing ---------------------------------------------------------------------------------------------

    def propose(self, command: CommandT_contra, timeout_ms: int | None = None) -> Coroutine[Any, Any, ResultT_co]:
        """Replicate ``command`` and apply it. Return what ``apply`` returned on this node.

        Waits for room if ``proposals_pending_max`` or ``uncommitted_bytes_max`` is reached. Default timeout:
        ``propose_timeout_ms``. Cancelling does not withdraw the command.

        Raises ``NotLeader`` or ``Rejected`` (no effect, for certain), ``Unknown`` (it may have taken effect, or still
        may), ``Faulted``; and what the codec raises.
        """
        data: Any = command if self._encode is None else self._encode(command)
        return self._proposals.propose(data, timeout_ms)

    def propose_nowait(self, command: CommandT_contra) -> Ticket[ResultT_co]:
        """Propose without waiting: ``await ticket.wait()`` later, or never. Raises ``Busy`` at a limit, else as
        ``propose``."""
        data: Any = command if self._encode is None else self._encode(command)
        return self._proposals.propose_nowait(data)

    def propose_many(
        self, commands: Sequence[CommandT_contra], timeout_ms: int | None = None
    ) -> Coroutine[Any, Any, list[ResultT_co]]:
        """Replicate many commands, in order. Return all results, or raise one error for the whole call.

        Not atomic: after ``Unknown`` some may have taken effect. ``NotLeader`` and ``Rejected`` mean that none did.
        """
        data = arguments.listed(commands)
        return self._proposals.propose_many(data if self._encode is None else list(map(self._encode, data)), timeout_ms)

    # --- reading ---------------------------------------------------------------------------------------------

    async def read_barrier(self, level: Read = Read.INDEX, *, timeout_ms: int | None = None) -> None:
        """Wait until this node's state machine may be read, as fresh as ``level`` says.

        Works on leader and follower; ``Read.LEASE`` costs a round on a follower, ``Read.LOG`` needs the leader.
        Raises ``NotLeader`` (no leader known), ``Rejected`` (leadership changed, a snapshot is being restored, or timed
        out), ``Faulted``.
        """
        driver = self._driver
        if level is Read.UNSAFE:
            if timeout_ms is not None:
                arguments.timeout(timeout_ms)
            await trio.lowlevel.checkpoint()
            driver.check_open()
        else:
            await driver.barriers.wait(level, timeout_ms)
        if driver.applier.torn:
            raise Rejected(RejectReason.INSTALLING)

    async def query(
        self, data: bytes, *, level: Read = Read.INDEX, timeout_ms: int | None = None
    ) -> AnswerT_co:
        """Return the answer of this node's ``query(data)``, as fresh as ``level`` says.

        Meanwhile no method of the machine but ``write`` runs in any thread. Raises as ``read_barrier``, ``Rejected`` (a
        ``threaded`` machine was busy all the time), ``UsageError`` (it has no ``query``), and what ``query`` raises.
        """
        driver = self._driver
        ask = query_of(driver.state_machine)
        arguments.data("what is asked", data)
        timeout_ms = driver.config.propose_timeout_ms if timeout_ms is None else arguments.timeout(timeout_ms)
        asked_ns = driver.clock()
        await self.read_barrier(level, timeout_ms=timeout_ms)
        left_ms = max(1, timeout_ms - (driver.clock() - asked_ns) // MS)
        answer: Any = await driver.ask_machine(
            ask, data, run_blocking=driver.system.run_blocking, timeout_ms=left_ms)
        return cast("AnswerT_co", answer)

    # --- the group -------------------------------------------------------------------------------------------

    async def transfer_leadership(self, target: str | None = None) -> None:
        """Hand leadership to ``target``, or to the best placed voter. Returns when it leads.

        Raises ``NotLeader``, ``Rejected`` (it does not lead), ``Unknown`` (this node stopped, or stepped down and saw
        no new leader).
        """
        await self._driver.hand_over(target if target is None else arguments.a_name("target", target))

    async def reconfigure(
        self, voters: Mapping[str, str], learners: Mapping[str, str] | None = None, *,
        priorities: Mapping[str, int] | None = None,
    ) -> None:
        """Move the group to this membership (id to address), in as many safe steps as needed.

        New voters catch up as learners first. Asking for the present membership changes nothing. Raises ``NotLeader``,
        ``Rejected`` (illegal, another change runs, or a node did not catch up), ``Unknown``.
        """
        driver = self._driver
        wanted, others = arguments.copied("voters", voters), arguments.copied("learners", learners or {})
        ranks = None if priorities is None else arguments.copied("priorities", priorities)

        def ask(ticket: int) -> None:
            driver.replica.leading(driver.clock()).changes.begin(ticket, wanted, others, ranks)
            driver.peers.learn({**wanted, **others})

        await driver.request(ask)

    async def take_snapshot(self) -> SnapshotMeta:
        """Take a snapshot of the state machine now, so that the log before it may go.

        Raises ``DiskFull``, ``UsageError`` (the machine cannot, or nothing is applied yet), ``Faulted``, ``Rejected``
        (this node is stopping).
        """
        self._driver.check_open()
        return await self._driver.snapshots.take()

    async def accept_loss(self) -> bool:
        """Let this node vote and count again although it lost what it had acknowledged, and no leader gave it back.

        Only for when the nodes that hold it will never come back: what only they and this node had acknowledged is then
        lost, and a vote that this node forgot may be given twice. Returns whether it had lost anything. Raises
        ``Faulted``, ``Rejected`` (this node is stopping).
        """
        await trio.lowlevel.checkpoint()
        driver = self._driver
        driver.check_open()
        lapsed = driver.replica.lapse is not None
        driver.replica.regaining.accept_loss(driver.clock())
        driver.pump()
        return lapsed

    async def stop(self, *, transfer: bool) -> None:
        """Accept nothing more, and answer everybody who waits. With ``transfer`` hand leadership over first, if that is
        quick. The end of the block of ``open_node`` or ``open_host`` does this too; call it if something must happen in
        between."""
        await self._driver.stop(transfer=transfer)

    # --- looking ---------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the group that this node belongs to."""
        return self._driver.name

    @property
    def cluster(self) -> str:
        """Name of the cluster that all its peers belong to."""
        return self._driver.cluster

    @property
    def config(self) -> Config:
        """Limits and timeouts of this node."""
        return self._driver.config

    @property
    def state_machine(self) -> AnyMachine:
        """The state machine that was given to ``open_node``."""
        return self._driver.state_machine

    @property
    def node_id(self) -> str:
        """Id of this node among its peers."""
        return self._driver.replica.node_id

    @property
    def role(self) -> Role:
        """Role that this node believes to have."""
        return self._driver.replica.role

    @property
    def term(self) -> int:
        """The latest term that this node has seen."""
        return self._driver.replica.term

    @property
    def is_leader(self) -> bool:
        """True if this node believes that it leads. For reads that must be right, use ``read_barrier``."""
        return self._driver.replica.role is Role.LEADER

    @property
    def holds_lease(self) -> bool:
        """Return whether nobody else can lead at this moment, if clocks are right (``Read.LEASE``). Costs no round."""
        return self._driver.lease_valid()

    @property
    def leader(self) -> str | None:
        """Id of the leader as far as this node knows."""
        return self._driver.replica.leader

    @property
    def membership(self) -> Membership:
        """Members of the group: the latest membership in this node's log."""
        return self._driver.replica.membership

    @property
    def commit_index(self) -> int:
        """Last entry that is committed, as far as this node knows."""
        return self._driver.replica.commit_index

    @property
    def applied_index(self) -> int:
        """Last entry that the state machine has taken."""
        return self._driver.replica.applied_index

    async def wait_leader(self) -> str:
        """Wait until a leader is known, and return its id. Raises ``Faulted`` or ``Rejected`` if that cannot happen."""
        driver = self._driver
        while True:
            await trio.lowlevel.checkpoint()
            driver.check_open()
            if driver.replica.leader is not None:
                return driver.replica.leader
            await driver.role_seen.wait()

    def events(self) -> Subscription:
        """Subscribe to roles, memberships, snapshots and faults, from the present role on: ``async for event in
        node.events()``."""
        return self._driver.events_hub.subscribe(self._driver.present_role())

    def status(self) -> Status:
        """Return everything that is known of this node now."""
        return survey(self._driver)

    def explain(self) -> list[str]:
        """Return sentences that say what is wrong here and why, the gravest first; one sentence if all is well."""
        return explain(self.status())


class Served(Node[bytes, Any, Any]):
    """A node as clients reach it: commands are bytes already, and queries have threads of their own."""

    def propose(self, command: bytes, timeout_ms: int | None = None) -> Coroutine[Any, Any, Any]:
        self._driver.applier.machine.check(command)
        return super().propose(command, timeout_ms)

    def propose_nowait(self, command: bytes) -> Ticket[Any]:
        self._driver.applier.machine.check(command)
        return super().propose_nowait(command)

    def propose_many(self, commands: Sequence[bytes], timeout_ms: int | None = None) -> Coroutine[Any, Any, list[Any]]:
        for command in commands:
            self._driver.applier.machine.check(command)
        return super().propose_many(commands, timeout_ms)

    async def ask_machine(
        self, ask: Callable[[bytes], object], data: bytes, *, run_blocking: RunBlocking, timeout_ms: int | None = None,
    ) -> object:
        """Ask the state machine: see ``Driver.ask_machine``."""
        return await self._driver.ask_machine(ask, data, run_blocking=run_blocking, timeout_ms=timeout_ms)
