"""The tasks of a broker in its group: sends requests, changes roles, keeps time; the rest is ``membership``'s.

It decides nothing. Requests go through one client, files are small and replaced whole. Replication takes the roles, one
at a time while everything else goes on; the other parts of the broker hear of each before and after.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import trio

from broker.ha.insync import InSync
from broker.ha.taking import Become, BecomeMaster, BecomeSlave
from broker.replicas.config import ManagerConfig
from broker.replicas.manager import LogState
from broker.replicas.membership import Membership
from broker.replicas.outputs import Leave, SendCommand
from broker.replicas.probing import PROBE_MEMBER
from broker.store.lives import StoreLives
from remoting.client import Client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.connection import Connection
from remoting.daemon.files import Files
from remoting.endpoint import Handler
from remoting.errors import RemotingError
from remoting.headers.controller import ElectMasterRequest, ElectMasterResponse, NotifyBrokerRoleChangedRequest
from remoting.wakeup import Bell

logger = logging.getLogger("broker.replicas")

_CAUGHT_UP_LOOK_S: Final = 0.002
_REPORT_AGAIN_S: Final = 30.0


class RoleTaker(Protocol):
    """Replication takes the roles that controllers give."""

    broker_id: int | None
    """This broker's id, to be set before the first role."""

    async def become_master(self, role: BecomeMaster) -> InSync:
        """Become master, or raise the reason why the role was not taken."""

    async def become_slave(self, role: BecomeSlave, ha_address: str | None) -> None:
        """Become a slave, or raise the reason. ``ha_address``: where the master replicates from, if that is known."""

    async def leave(self, reason: str) -> None:
        """Leave any role: nothing is copied or served any more."""

    def advance(self) -> None:
        """Follow a change of the accepted or the asked SyncStateSet."""


class RoleSteps(Protocol):
    """The rest of the broker, which hears of each role: in this order, and of one at a time."""

    def taking(self, role: Become) -> str | None:
        """A role is about to be taken. Returns where its master replicates from, if that is known."""

    def taken(self, role: Become) -> None:
        """Replication has taken the role in this turn; the writes of a master open right after."""

    def serve(self) -> None:
        """Writes are open from now on."""

    def fence(self, reason: str) -> None:
        """Writes are closed from now on."""

    async def left(self) -> None:
        """Replication has no role, and clients are to find another broker."""


class GroupMember(Membership):
    """This broker in its group. ``run`` it; ring ``bell`` when what ``log_state`` says or the slaves' state changed."""

    def __init__(
        self, config: ManagerConfig, *, files: Files, identity_path: str, check_code: str, client: Client,
        clock: Callable[[], int], log_state: Callable[[], LogState], replication: RoleTaker, steps: RoleSteps,
        doubtful_epoch: int = -1, life: int | None = None, lives: StoreLives | None = None,
    ) -> None:
        """``clock`` is monotonic, ns; the last three are as in ``Membership``.
        Raises ``IdentityError``, ``OSError``."""
        super().__init__(config, files=files, identity_path=identity_path, check_code=check_code, log_state=log_state,
                         advance=replication.advance, doubtful_epoch=doubtful_epoch, life=life, lives=lives)
        self.bell = Bell()
        self._client, self._now_ns = client, clock
        self._replication, self._steps = replication, steps
        self._nursery: trio.Nursery | None = None
        self._stopping = False
        self._roles, self._roles_to_take = trio.open_memory_channel[Become | Leave](math.inf)
        self._reported: dict[str, float] = {}

    def _clock(self) -> int:
        return self._now_ns()

    def _ring(self) -> None:
        self.bell.ring()

    # --- running ---------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Register, take roles and report, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._change_roles)
            task_status.started()
            while True:
                self._tick()
                now_ns = self._clock()
                due = self.manager.next_deadline(now_ns)
                wait_s = math.inf if due is None else (due - now_ns) / 1e9
                with trio.move_on_after(wait_s if self._unwritten is None else self._config.retry_ms / 1e3):
                    await self.bell.wait()
                await trio.lowlevel.checkpoint()
                if self._unwritten is not None:
                    self._write(self._unwritten)

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self._notify,
                PROBE_MEMBER: lambda _, command: self.probed(command)}

    def _notify(self, connection: Connection, command: Command) -> Command:
        known = connection.peer.rpartition(":")[0] in {address.rpartition(":")[0] for address in
                                                       self.manager.controllers}
        if not known:
            logger.info("a role was told by no known controller: asking the active controller", extra={
                "from": connection.peer, "epoch": NotifyBrokerRoleChangedRequest.from_ext(command.ext).master_epoch})
        self._notified(command, known=known)
        return response(command)

    def stop(self, reason: str = "the broker stops") -> None:
        """End: send no more requests, and close writes."""
        self._stopping = True
        self.carry_out(self.manager.shutdown(self._clock()))
        self._steps.fence(reason)

    # --- outputs ---------------------------------------------------------------------------------------------

    def _send(self, send: SendCommand) -> None:
        assert self._nursery is not None, "it runs"
        self._nursery.start_soon(self._ask, send)

    def _change(self, change: Become | Leave) -> None:
        self._roles.send_nowait(change)

    def _told(self, role: Become) -> None:
        self._steps.taken(role)

    def _serve(self) -> None:
        if isinstance(self.manager.role, BecomeMaster):
            logger.info("writes are open", extra={"epoch": self.manager.epoch})
        self._steps.serve()

    def _fence(self, reason: str) -> None:
        logger.log(logging.INFO if self._stopping else logging.WARNING, "writes are closed", extra={"why": reason})
        self._steps.fence(reason)

    async def _ask(self, send: SendCommand) -> None:
        try:
            answer: Command | None = await self._client.call(send.address, send.command, timeout_ms=send.timeout_ms)
        except RemotingError as error:
            logger.debug("controller %s, request %d: %s", send.address, send.command.code, error)
            answer = None
        self._answered(send, answer)

    async def _change_roles(self) -> None:
        """Take roles one at a time, in the order in which they are wanted."""
        async for change in self._roles_to_take:
            if isinstance(change, Leave):
                await self._leave(change.reason)
            else:
                await self._take(change)

    async def _take(self, role: Become) -> None:
        logger.info("taking a role", extra={
            "role": "master" if isinstance(role, BecomeMaster) else "slave", "epoch": role.epoch,
            **({"master": role.master_address} if isinstance(role, BecomeSlave) else {})})
        in_sync: InSync | None = None
        try:
            self._replication.broker_id = self.manager.broker_id
            ha_address = self._steps.taking(role)
            if isinstance(role, BecomeMaster):
                in_sync = await self._replication.become_master(role)
            else:
                await self._replication.become_slave(role, ha_address)
        except Exception as error:  # it is reported, and the role is tried again
            logger.exception("role not taken")
            self._refused(role, str(error) or type(error).__name__)
        else:
            self._took(role, in_sync)

    async def _leave(self, reason: str) -> None:
        logger.warning("giving up any role", extra={"why": reason})
        await self._replication.leave(reason)
        await self._steps.left()
        self.bell.ring()

    def _report(self, problem: str) -> None:
        """Log a trouble now and then, not at each attempt."""
        now = trio.current_time()
        if now - self._reported.get(problem, -_REPORT_AGAIN_S) >= _REPORT_AGAIN_S:
            if len(self._reported) > 100:
                self._reported.clear()
            self._reported[problem] = now
            logger.error("%s", problem)

    # --- handing over ----------------------------------------------------------------------------------------

    async def hand_over(self, timeout_ms: int) -> str | None:
        """Let another member of the SyncStateSet be elected. Returns its address; None: nobody is, or not in time.

        Where a message is answered when all members hold it, any of them will do. Else writes close first, and the
        next master is one that holds the whole log, so that nothing answered is lost.
        """
        manager, any_member = self.manager, self._config.all_ack_in_sync_state_set
        in_sync = manager.in_sync
        if in_sync is None or manager.leader is None or not isinstance(manager.role, BecomeMaster):
            return None
        if len(in_sync.accepted) < 2:
            return None
        with trio.move_on_after(timeout_ms / 1e3):
            if not any_member:
                self.carry_out(manager.hand_over(self._clock()))
            while (target := _successor(in_sync, any_member)) is None:
                await trio.sleep(_CAUGHT_UP_LOOK_S)
                in_sync = manager.in_sync  # of another mastership, if it was elected once more
                if in_sync is None or len(in_sync.accepted) < 2:
                    return None
            header = ElectMasterRequest(self._config.cluster_name, self._config.broker_name, target, True)
            try:
                answer = await self._client.call(
                    manager.leader, request(RequestCode.CONTROLLER_ELECT_MASTER, header), timeout_ms=timeout_ms)
                elected = ElectMasterResponse.from_ext(answer.ext)
            except RemotingError as error:
                logger.warning("mastership not handed over", extra={"to": target, "why": str(error)})
                return None
            done = answer.code == ResponseCode.SUCCESS
            logger.log(logging.INFO if done else logging.WARNING,
                       "mastership handed over" if done else "mastership not handed over",
                       extra={"to": target, "code": answer.code, "remark": answer.remark})
            return elected.master_address if done else None
        return None


def _successor(in_sync: InSync, any_member: bool) -> int | None:
    """Return the member whose log is longest, of several the smallest id; it has the whole log unless any will do."""
    acks = {member: ack for member, ack in in_sync.acks.items() if member in in_sync.accepted and ack is not None
            and (any_member or ack >= in_sync.log_end)}
    return min(acks, key=lambda member: (-acks[member], member), default=None)
