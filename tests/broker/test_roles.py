"""What parts hear as a broker takes and loses roles: of every kind of group, in the order of their list."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from broker.part import Part, Parts, Shared
from broker.parts import PARTS
from broker.roles import ControlledRole
from broker.standing import Role
from harness.simulation.worlds.brokers import Node, cluster, controlled, until

OPENED, CLOSED, STOPPING = "writes opened", "writes closed", "stopping"


class Witness(Part):
    """Notes what it hears of a role, and holds that the broker says the same of itself by then."""

    def __init__(self, shared: Shared, before: Parts) -> None:
        self.heard: list[Role | str] = []
        self._standing, self._puts = shared.standing, shared.puts

    def role_changed(self, role: Role) -> None:
        assert self._standing.role is role
        assert not self._puts.serving, "a role is known before its writes open, and after they closed"
        self.heard.append(role)

    def writes_opened(self) -> None:
        assert self._standing.role.takes_puts and not self._puts.serving
        self.heard.append(OPENED)

    def writes_closed(self) -> None:
        assert not self._puts.serving
        self.heard.append(CLOSED)

    def stopping(self) -> None:
        self.heard.append(STOPPING)


def heard(node: Node) -> list[Role | str]:
    return node.broker.parts[Witness].heard


async def test_a_master_by_configuration_is_one_before_its_writes_open(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(None, (*PARTS, Witness))
        told = heard(node)
        assert told == [Role.master(), OPENED]
        await node.stop()
        assert told == [Role.master(), OPENED, CLOSED, STOPPING]


async def test_a_slave_by_configuration_hears_once_whose_it_is(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        slave = await made.node(None, (*PARTS, Witness), brokerRole="SLAVE", brokerId="1")
        assert heard(slave) == [Role.slave(1)]
        master = await made.node()
        await trio.sleep(120)  # name servers say it at each registration
        assert heard(slave) == [Role.slave(1), Role.slave(1, master_address=master.address)]


async def test_controllers_say_who_is_what_and_parts_hear_it_before_the_writes_open(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        nodes = [await made.node(None, (*PARTS, Witness), **controlled()) for _ in range(2)]
        await until(lambda: any(node.serves for node in nodes))
        master, slave = sorted(nodes, key=lambda node: not node.serves)
        await until(lambda: heard(slave))
        first = master.broker.standing.role.epoch
        assert heard(master) == [Role.master(first), OPENED]
        assert heard(slave) == [Role.slave(slave.broker.standing.role.broker_id, first, master.address)]
        await trio.sleep(1)
        await master.kill()
        await until(lambda: slave.serves)
        second = slave.broker.standing.role.epoch
        assert second > first
        assert heard(slave)[1:] == [CLOSED, Role.master(second), OPENED]
        await master.start()
        await until(lambda: heard(master))
        assert heard(master) == [Role.slave(master.broker.standing.role.broker_id, second, slave.address)]


async def test_who_is_another_process_now_hears_it_and_leaves_the_name_servers(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        node = await made.node(None, (*PARTS, Witness), **controlled())
        await until(lambda: node.serves)
        roles = node.broker.roles
        assert isinstance(roles, ControlledRole)
        epoch = node.broker.standing.role.epoch
        roles.fence("another process has its id")
        await roles.left()
        assert heard(node)[-2:] == [CLOSED, Role.vacant(0, epoch)]
        assert not node.broker.registration.is_open


def test_who_has_no_role_is_not_listed_and_does_nothing() -> None:
    role = Role.vacant(2, 7)
    assert (role.broker_id, role.epoch, role.listed, role.master_address) == (2, 7, False, "")
    assert not (role.leads or role.takes_puts or role.serves_pulls or role.delivers)
