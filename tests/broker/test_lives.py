"""Two processes of one broker id, in whole brokers under whole controllers: one of them has a role, and which."""

from __future__ import annotations

import json

import trio
import trio.abc

from harness.simulation.worlds.brokers import CLUSTER, Cluster, Node, cluster, controlled, until
from remoting.bodies.controller import BrokerNames
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.controller import ElectMasterRequest

OK = ResponseCode.SUCCESS
MODE = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"}


async def answer_of(made: Cluster, code: int, **more: object) -> tuple[int, dict[str, str], bytes]:
    """The active controller's."""
    for name in ("n0:1", "n1:1", "n2:1") * 100:
        answer = await made.ask(name, code, **more)  # type: ignore[arg-type]
        if answer.code != ResponseCode.CONTROLLER_NOT_LEADER:
            return answer.code, answer.ext, answer.body
        await trio.sleep(0.01)
    raise AssertionError("no controller is active")


async def group_of(made: Cluster) -> dict[str, object]:
    code, _, body = await answer_of(
        made, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=BrokerNames(["a"]).to_json())
    assert code == OK
    found: dict[str, object] = json.loads(body)["replicasInfoTable"]["a"]
    return found


async def designate(made: Cluster, broker_id: int) -> dict[str, str]:
    code, ext, _ = await answer_of(made, RequestCode.CONTROLLER_ELECT_MASTER, header=ElectMasterRequest(
        CLUSTER, "a", broker_id, True))
    assert code == OK
    return ext


def id_of(node: Node) -> int:
    broker_id = node.broker.roles.member.manager.broker_id  # type: ignore[attr-defined]
    assert isinstance(broker_id, int)
    return broker_id


def role_of(node: Node) -> object:
    return node.broker.roles.member.manager.role  # type: ignore[attr-defined]


async def three(made: Cluster) -> tuple[Node, Node, Node]:
    """A master and two slaves, all in sync, with a message."""
    nodes = [await made.node(**controlled(), **MODE) for _ in range(3)]
    await until(lambda: any(node.serves for node in nodes))
    master = next(node for node in nodes if node.serves)
    await until(lambda: master.broker.roles.runtime_info().in_sync_slave_nums == 2)
    assert (await made.send(master.address, b"before")).code == OK
    await trio.sleep(1)
    first, second = (node for node in nodes if node is not master)
    return master, first, second


async def test_a_copied_directory_started_elsewhere_has_no_role_while_its_original_lives(
    autojump_clock: trio.abc.Clock,
) -> None:
    """Elected under its id, the original leads; no offset is answered twice, and nobody waits for a dead address."""
    async with cluster(controllers=3) as made:
        _, original, _ = await three(made)
        copy = await made.copy(original, "10.0.0.9")
        await trio.sleep(8)
        assert role_of(copy) is None and role_of(original) is not None
        elected = await designate(made, id_of(original))
        assert elected["masterAddress"] == original.address
        await until(lambda: original.serves)
        await trio.sleep(1)  # the copy looks for the master, and passes clients on to it
        held, offsets = copy.broker.journal.end, []
        for number in range(30):
            for node in (original, copy):
                answer = await made.send(node.address, b"to %s %d" % (node.host.encode(), number))
                assert answer.code == OK
                offsets.append(int(answer.ext["queueOffset"]))
        assert len(set(offsets)) == 60
        assert role_of(copy) is None and not copy.serves and copy.broker.journal.end == held
        await copy.kill()
        await trio.sleep(15)
        assert (await group_of(made))["masterAddress"] == original.address and original.serves
        assert (await made.send(original.address, b"after")).code == OK


async def test_a_copy_comes_in_by_itself_when_its_original_is_killed(autojump_clock: trio.abc.Clock) -> None:
    """And the original, started again, waits for the copy."""
    async with cluster(controllers=3) as made:
        master, original, _ = await three(made)
        copy = await made.copy(original, "10.0.0.9")
        await trio.sleep(3)
        await original.kill()
        await until(lambda: role_of(copy) is not None, within_s=3)  # it asks each second
        await original.start()
        await trio.sleep(20)
        assert role_of(original) is None and role_of(copy) is not None
        await until(lambda: master.broker.roles.runtime_info().in_sync_slave_nums == 2)
        await copy.kill()
        await until(lambda: role_of(original) is not None, within_s=3)
        assert (await made.send(master.address, b"after")).code == OK


async def test_a_master_with_a_new_address_needs_no_operator(autojump_clock: trio.abc.Clock) -> None:
    """As a pod that was killed and scheduled elsewhere: the next master has begun an epoch, or this one begins it."""
    async with cluster(controllers=3) as made:
        master, *others = await three(made)
        await master.kill()
        moved = await made.copy(master, "10.0.0.9")
        await until(lambda: any(node.serves for node in (*others, moved)), within_s=5)
        await until(lambda: role_of(moved) is not None, within_s=5)
        leader = next(node for node in (*others, moved) if node.serves)
        assert (await group_of(made))["masterAddress"] == leader.address
        assert (await made.send(leader.address, b"after")).code == OK


async def test_a_lone_broker_that_moved_leads_again_where_it_is_now(autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=3) as made:
        node = await made.node(**controlled())
        await until(lambda: node.serves)
        await trio.sleep(1)
        await node.kill()
        moved = await made.copy(node, "10.0.0.9")
        await until(lambda: moved.serves, within_s=8)
        assert (await group_of(made))["masterAddress"] == moved.address


async def test_a_broker_that_fell_silent_is_replaced_at_a_new_address_after_its_timeout(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with cluster(controllers=3) as made:
        _, lost, _ = await three(made)
        made.network.silent |= {lost.address, f"{lost.host}:10912"}
        moved = await made.copy(lost, "10.0.0.9")
        began = trio.current_time()
        await until(lambda: role_of(moved) is not None)
        assert 8 < trio.current_time() - began < 14


async def test_a_broker_that_is_restarted_is_in_at_once(autojump_clock: trio.abc.Clock) -> None:
    """Its connections closed: nobody waits for a timeout."""
    async with cluster(controllers=3) as made:
        master, other, _ = await three(made)
        for node in (other, master):
            await node.kill()
            await node.start()
            await until(lambda node=node: role_of(node) is not None, within_s=2)  # type: ignore[misc]


async def test_all_restarted_at_once_wait_for_no_timeout(autojump_clock: trio.abc.Clock) -> None:
    """Controllers that never heard a broker take who serves at its address for it, and who led for gone."""
    async with cluster(controllers=3) as made:
        nodes = await three(made)
        controllers = made.controllers
        assert controllers is not None
        for name in controllers.names:
            await controllers.kill(name)
        for node in nodes:
            await node.kill()
        await controllers.start_all()
        for node in nodes:
            await node.start()
        await until(lambda: any(node.serves for node in nodes), within_s=6)
        await until(lambda: all(role_of(node) is not None for node in nodes), within_s=6)


async def test_running_brokers_tell_their_lives_when_controllers_know_them(autojump_clock: trio.abc.Clock) -> None:
    """Older controllers are replaced one by one: no role is lost, and from then on a copy is refused by its life."""
    async with cluster(controllers=3, reads=1) as made:
        master, slave, _ = await three(made)
        controllers = made.controllers
        assert controllers is not None
        roles = [role_of(node) for node in made.nodes]
        for name in controllers.names:
            controllers.reads[name] = 2
            await controllers.kill(name)
            await controllers.start(name)
            await trio.sleep(3)

        def lives() -> set[int | None]:
            return {replica.life for running in controllers.running.values()
                    for group in running.core.machine.groups.values() for replica in group.replicas.values()}

        await until(lambda: None not in lives() and len(lives()) == 3, within_s=5)
        assert [role_of(node) for node in made.nodes] == roles and master.serves
        assert (await made.send(master.address, b"after")).code == OK
        copy = await made.copy(slave, "10.0.0.9")
        await trio.sleep(5)
        assert role_of(copy) is None and role_of(slave) is not None


async def test_an_older_copy_that_is_put_back_costs_nothing_that_others_hold(autojump_clock: trio.abc.Clock) -> None:
    """It is the first to come back of a group that was down as a whole: the others have what it lacks."""
    async with cluster(controllers=3) as made:
        master, older, other = await three(made)
        await older.kill()
        backup = older.store.copied()
        await older.start()
        await until(lambda: master.broker.roles.runtime_info().in_sync_slave_nums == 2)
        assert (await made.send(master.address, b"acknowledged by all three")).code == OK
        await trio.sleep(12)  # all of it is synced
        held = master.broker.journal.end
        for node in (master, other, older):
            await node.kill()
        older.store.put_back(backup)
        await older.start()
        await trio.sleep(20)
        assert not older.serves and older.broker.journal.end < held
        for node in (master, other):
            await node.start()
        await until(lambda: master.serves or other.serves)
        await until(lambda: all(node.broker.journal.end >= held for node in (master, older, other)))
        await until(lambda: not older.broker.journal.trust.in_doubt)
