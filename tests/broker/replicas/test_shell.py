"""The replicas manager's shell with real controllers on memory streams and virtual time: files, roles, handing over."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import cast

import attrs
import pytest
import trio

from broker.ha.config import HaConfig
from broker.ha.insync import InSync
from broker.ha.taking import Become, BecomeMaster, BecomeSlave
from broker.replicas.config import ManagerConfig
from broker.replicas.identity import IdentityError
from broker.replicas.machine import SEASONED, Event
from broker.replicas.manager import LogState
from broker.replicas.membership import TEMP
from broker.replicas.outputs import Leave
from broker.replicas.shell import GroupMember
from harness.simulation.worlds.controllers import World, world
from raft.virtual.network import MemoryListener
from remoting.bodies.controller import SyncStateSet
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.config import ServerConfig
from remoting.connection import Connection
from remoting.daemon.files import MemoryFiles
from remoting.headers.controller import NotifyBrokerRoleChangedRequest
from remoting.server import Server

PATH = "/store/brokerIdentity"


class Crash(BaseException):
    """The process dies here."""


@attrs.define
class CrashingFiles(MemoryFiles):
    """Dies before or after the change with that number."""

    left: int = 1_000
    after: bool = False
    dead: bool = False

    def _step(self, change: Callable[[], None]) -> None:
        if self.dead:
            raise Crash
        self.left -= 1
        if self.left > 0 or self.after:
            change()
        if self.left == 0:
            self.dead = True
            raise Crash

    def replace(self, path: str, content: bytes) -> None:
        self._step(lambda: MemoryFiles.replace(self, path, content))

    def remove(self, path: str) -> None:
        self._step(lambda: MemoryFiles.remove(self, path))

    def restart(self) -> None:
        self.dead, self.left = False, 1_000


def now_ns() -> int:
    return int(trio.current_time() * 1e9)


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not condition():
            await trio.sleep(0.01)


@attrs.define(eq=False)
class Node:
    """A broker that is nothing but a member of its group, replicating at no cost."""

    world: World
    name: str
    files: MemoryFiles = attrs.field(factory=MemoryFiles)
    all_ack: bool = False
    member: GroupMember = attrs.field(init=False)
    log: list[str] = attrs.field(factory=list)
    refuse: int = 0
    slaves: dict[int, int] = attrs.field(factory=dict)
    """Acknowledged offsets that a master here knows of."""
    end: int = 100
    broker_id: int | None = None
    tells_steps: bool = False

    @property
    def address(self) -> str:
        return f"{self.name}:1"

    @property
    def epoch(self) -> int:
        return self.member.manager.epoch

    @property
    def state(self) -> tuple[type, int] | None:
        """What it serves as, if it does."""
        role = self.member.manager.role
        return (type(role), role.epoch) if role is not None and self.member.manager.serving else None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        network = self.world.network
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(open_client(connector=network.connector(self.address)))
            nursery = await stack.enter_async_context(trio.open_nursery())
            config = ManagerConfig(
                "c", "b", self.address, tuple(f"{name}:1" for name in self.world.names),
                all_ack_in_sync_state_set=self.all_ack)
            self.member = GroupMember(
                config, files=self.files, identity_path=PATH, check_code=f"{self.address};1", client=client,
                clock=now_ns, log_state=lambda: LogState(self.epoch, self.end, self.end), replication=self,
                steps=self)
            await nursery.start(self.member.run)
            server = Server(self.member.handlers(), config=ServerConfig())
            listener = network.listeners[self.address] = MemoryListener()
            await nursery.start(server.run, [listener])
            task_status.started()

    async def become_master(self, role: BecomeMaster) -> InSync:
        await trio.sleep(0.01)
        if self.refuse:
            self.refuse -= 1
            raise RuntimeError("the disk is slow today")
        assert self.member.manager.broker_id is not None
        in_sync = InSync(
            self.member.manager.broker_id, HaConfig(), role.sync_state_set, role.sync_state_set_epoch, epoch_start=0,
            confirm=0, log_end=self.end, durable_end=self.end, started_ns=now_ns())
        for broker_id, ack in self.slaves.items():
            in_sync.opened(broker_id, False, now_ns())
            in_sync.acked(broker_id, ack, now_ns())
        return in_sync

    async def become_slave(self, role: BecomeSlave, ha_address: str | None) -> None:
        assert ha_address == f"{role.master_address} is known"
        self.log += ["copies"] if self.tells_steps else []
        await trio.sleep(0.01)

    async def leave(self, reason: str) -> None:
        self.log.append("leave")
        await trio.sleep(0.01)

    def advance(self) -> None:
        """Nobody waits for acknowledgements here."""

    def taking(self, role: Become) -> str | None:
        return None if isinstance(role, BecomeMaster) else f"{role.master_address} is known"

    async def left(self) -> None:
        await trio.sleep(0.01)
        self.log.append("left")

    def taken(self, role: Become) -> None:
        self.log.append(f"{'master' if isinstance(role, BecomeMaster) else 'slave'} {role.epoch}")

    def serve(self) -> None:
        self.log.append("serve")

    def fence(self, reason: str) -> None:
        self.log.append("fence")

    async def wait(self, state: tuple[type, int]) -> None:
        await until(lambda: self.state == state)


async def test_first_boot_registers_and_becomes_master(autojump_clock: trio.abc.Clock) -> None:
    async with world(3) as made:
        node = Node(made, "b1")
        await made.nursery.start(node.run)
        await node.wait((BecomeMaster, 1))
        assert node.files.contents == {PATH: b"c#b#1"}
        assert node.log == ["master 1", "serve"]
        assert (await made.master_of("b")).master_address == "b1:1"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", [1, 2, 3])
async def test_a_crash_at_each_step_of_the_identity_costs_no_id(
    autojump_clock: trio.abc.Clock, step: int, after: bool,
) -> None:
    """Application, identity, removal of the application: before and after each change the process may die."""
    async with world(3) as made:
        files = CrashingFiles(left=step, after=after)
        node = Node(made, "b1", files)
        with pytest.raises(BaseExceptionGroup) as died:
            await node.run()
        assert died.group_contains(Crash)
        files.restart()
        again = Node(made, "b1", files)
        await made.nursery.start(again.run)
        await again.wait((BecomeMaster, 1))
        assert files.contents == {PATH: b"c#b#1"}
        other = Node(made, "b2")
        await made.nursery.start(other.run)
        await other.wait((BecomeSlave, 1))
        assert other.files.contents == {PATH: b"c#b#2"}


async def test_a_full_disk_delays_the_registration_and_no_more(
    autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(3) as made:
        files = MemoryFiles(error=OSError(28, "No space left on device"))
        node = Node(made, "b1", files)
        await made.nursery.start(node.run)
        await trio.sleep(10)
        assert node.state is None
        assert caplog.text.count("No space left on device") == 1
        files.error = None
        await node.wait((BecomeMaster, 1))
        assert files.contents == {PATH: b"c#b#1"}


@pytest.mark.parametrize(("path", "text", "what"), [
    (PATH, b"c#other#1", "belongs to broker 'other'"),
    (PATH, b"c#b", f"{PATH}: the identity file holds 'c#b'; 3 fields .* remove the file to join as a new replica"),
    (PATH + TEMP, b"d#b#1#x", "cluster 'd'"),
])
async def test_a_wrong_identity_file_stops_the_start(
    autojump_clock: trio.abc.Clock, path: str, text: bytes, what: str,
) -> None:
    async with world(1) as made:
        node = Node(made, "b1", MemoryFiles({path: text}))
        with pytest.RaisesGroup(pytest.RaisesExc(IdentityError, match=what)):
            await node.run()


async def test_a_lost_master_is_followed_by_another_at_once(autojump_clock: trio.abc.Clock) -> None:
    async with world(3) as made:
        first, second = Node(made, "b1"), Node(made, "b2")
        async with trio.open_nursery() as life:
            await life.start(first.run)
            await first.wait((BecomeMaster, 1))
            await made.nursery.start(second.run)
            await second.wait((BecomeSlave, 1))
            held = first.member.manager.in_sync
            assert held is not None
            held.opened(2, False, now_ns())
            held.acked(2, 100, now_ns())
            first.member.bell.ring()
            await until(lambda: held.accepted == {1, 2})
            lost = trio.current_time()
            life.cancel_scope.cancel()
        await second.wait((BecomeMaster, 2))
        assert trio.current_time() - lost < 0.5
        assert second.log == ["slave 1", "serve", "fence", "master 2", "serve"]


async def test_whoever_tells_of_a_role_must_run_where_a_controller_does(autojump_clock: trio.abc.Clock) -> None:
    """Other words of a role are a reason to ask; by their answer it is master on."""
    async with world(3) as made:
        node = Node(made, "b1")
        await made.nursery.start(node.run)
        await node.wait((BecomeMaster, 1))
        told = node.member.handlers()[RequestCode.NOTIFY_BROKER_ROLE_CHANGED]
        for peer, epoch in (("10.9.8.7:4000", 2**31 - 1), ("?", 2**31 - 1), (f"{made.names[0]}:4000", 7)):
            forged = request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, NotifyBrokerRoleChangedRequest(
                "b2:1", epoch, 9, 2), SyncStateSet(frozenset({2}), 9).to_json())
            told(cast(Connection, SimpleNamespace(peer=peer)), forged)
            await trio.sleep(2)
            if epoch > 7:
                assert node.log == ["master 1", "serve"], peer
        assert node.state == (BecomeSlave, 7)


def tell(node: Node, master: str, broker_id: int, epoch: int) -> None:
    """By a controller."""
    told = node.member.handlers()[RequestCode.NOTIFY_BROKER_ROLE_CHANGED]
    told(cast(Connection, SimpleNamespace(peer=f"{node.world.names[0]}:4000")), request(
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED, NotifyBrokerRoleChangedRequest(master, epoch, 9, broker_id),
        SyncStateSet(frozenset({broker_id}), 9).to_json()))


async def test_of_a_role_that_another_has_outrun_no_part_hears(autojump_clock: trio.abc.Clock) -> None:
    """Name servers would have been told of it, and clients sent."""
    async with world(3) as made:
        node = Node(made, "b1")
        await made.nursery.start(node.run)
        await node.wait((BecomeMaster, 1))
        tell(node, "b2:1", 2, 7)
        await trio.sleep(0.005)
        tell(node, "b3:1", 3, 8)
        await node.wait((BecomeSlave, 8))
        assert node.log == ["master 1", "serve", "fence", "slave 8", "serve"]


async def test_roles_are_left_and_taken_in_the_order_in_which_that_is_wanted(autojump_clock: trio.abc.Clock) -> None:
    """A role that is begun before the one before is left to its end would be left with it."""
    async with world(3) as made:
        node = Node(made, "b1")
        await made.nursery.start(node.run)
        await node.wait((BecomeMaster, 1))
        node.tells_steps = True
        machine, role = node.member.manager.machine, BecomeSlave(7, 2, "b2:1")
        machine.displaced()
        machine.happened(Event.REGISTERED)
        machine.named(role)
        node.member.carry_out([Leave("another process has this broker's id"), role])
        await trio.sleep(0.1)
        assert [what for what in node.log if what in ("leave", "left", "copies")] == ["leave", "left", "copies"]


async def test_a_role_that_cannot_be_taken_is_tried_again(
    autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(3) as made:
        node = Node(made, "b1", refuse=2)
        await made.nursery.start(node.run)
        await until(lambda: node.member.manager.machine.state in SEASONED)
        assert node.state == (BecomeMaster, node.epoch)
        assert "the disk is slow today" in caplog.text


async def test_a_master_without_controllers_closes_its_writes(autojump_clock: trio.abc.Clock) -> None:
    async with world(3) as made:
        node = Node(made, "b1")
        await made.nursery.start(node.run)
        await node.wait((BecomeMaster, 1))
        await until(lambda: node.member.manager.lease.until_ns is not None)
        cut = trio.current_time()
        made.network.silent.add("b1:1")
        await until(lambda: node.state is None)
        assert 4 < trio.current_time() - cut <= 5.01
        made.network.silent.clear()
        await until(lambda: node.state is not None)
        assert node.state == (BecomeMaster, node.epoch)


@pytest.mark.parametrize("all_ack", [False, True])
async def test_mastership_is_handed_to_a_member_that_holds_all(
    autojump_clock: trio.abc.Clock, all_ack: bool,
) -> None:
    async with world(3) as made:
        first, second = Node(made, "b1", all_ack=all_ack), Node(made, "b2", all_ack=all_ack)
        await made.nursery.start(first.run)
        await first.wait((BecomeMaster, 1))
        assert not await first.member.hand_over(1_000), "nobody to hand over to"
        assert "fence" not in first.log[2:], "so writes need not close"
        await made.nursery.start(second.run)
        await second.wait((BecomeSlave, 1))
        held = first.member.manager.in_sync
        assert held is not None
        held.opened(2, False, now_ns())
        held.acked(2, 100, now_ns())
        first.member.bell.ring()
        await until(lambda: held.accepted == {1, 2})
        held.advanced(150, 150)
        begun = trio.current_time()
        if not all_ack:
            assert not await first.member.hand_over(1_000), "it lags"
            assert trio.current_time() - begun == pytest.approx(1)
            held.acked(2, 150, now_ns())
        assert await first.member.hand_over(1_000)
        await second.wait((BecomeMaster, 2))
        await first.wait((BecomeSlave, 2))
        fences = first.log[2:first.log.index("slave 2")].count("fence")
        assert fences == (1 if all_ack else 2), "in the weaker mode writes close before the election"


async def test_a_lease_that_ends_and_is_renewed_opens_nothing_while_mastership_is_handed_over(
    autojump_clock: trio.abc.Clock,
) -> None:
    """What would be written then, the next master need not have."""
    async with world(3) as made:
        node = Node(made, "b1")
        await made.nursery.start(node.run)
        await node.wait((BecomeMaster, 1))
        held = node.member.manager.in_sync
        assert held is not None
        held.accept({1, 2}, held.accepted_epoch + 1)
        held.opened(2, False, now_ns())  # and never acknowledges anything
        await until(lambda: node.member.manager.lease.until_ns is not None)

        async def cut_for_a_moment() -> None:
            made.network.silent.add("b1:1")
            await trio.sleep(6)
            assert not node.member.manager.lease.holds(now_ns())
            made.network.silent.clear()
            await until(lambda: node.member.manager.lease.holds(now_ns()))

        made.nursery.start_soon(cut_for_a_moment)
        assert await node.member.hand_over(20_000) is None
        assert node.member.manager.lease.holds(now_ns())
        assert node.log[1] == "serve" and "serve" not in node.log[2:]


async def test_an_answer_to_a_hand_over_that_cannot_be_read_does_not_keep_the_broker_from_its_end(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(3) as made:
        node = Node(made, "b1", all_ack=True)
        await made.nursery.start(node.run)
        await node.wait((BecomeMaster, 1))
        held = node.member.manager.in_sync
        assert held is not None
        held.accept({1, 2}, held.accepted_epoch + 1)
        held.opened(2, False, now_ns())
        held.acked(2, 0, now_ns())

        async def call(client: Client, address: str, command: Command, timeout_ms: float | None = None) -> Command:
            await trio.lowlevel.checkpoint()
            return Command(ResponseCode.SUCCESS, ext={"masterBrokerId": "none"})

        monkeypatch.setattr(Client, "call", call)
        assert await node.member.hand_over(1_000) is None
