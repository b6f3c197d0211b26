"""Whole controllers on virtual time: what an operator relies on, end to end but for the operating system."""

from __future__ import annotations

from functools import partial
from typing import cast

import attrs
import pytest
import trio
from trio.testing import MockClock

from controller.config import ControllerConfig
from controller.handlers import Controller
from controller.metadata import codec
from controller.own_codes import ChangeControllerGroupRequest, OwnCode
from harness.simulation.worlds.controllers import CLUSTER, World, group_of, world
from raft.membership import Member
from raft.sim.disk import DiskFaults
from remoting.client import open_client
from remoting.codes import VERSION, RequestCode, ResponseCode
from remoting.command import Command
from remoting.config import ClientConfig
from remoting.headers.controller import (
    ApplyBrokerIdRequest,
    GetReplicaInfoRequest,
    RegisterBrokerToControllerRequest,
)

CODE = RequestCode
HEARTBEAT_TIMEOUT_S = 10
ENTRIES = 800
"""More than lie between two places at which a log may be cut."""


async def test_a_closed_channel_elects_at_once(autojump_clock: MockClock) -> None:
    async with world() as made:
        first, *_ = await group_of(made, "a", 3)
        before = trio.current_time()
        await first.kill()
        info = await made.wait_master("a", 2)
        assert info.master_epoch == 2
        assert trio.current_time() - before < 0.1


async def test_silence_is_judged_at_its_deadline(autojump_clock: MockClock) -> None:
    async with world() as made:
        first, *_ = await group_of(made, "a", 3)
        last = trio.current_time()
        first.fall_silent()
        await made.wait_master("a", 2)
        took = trio.current_time() - last
        assert HEARTBEAT_TIMEOUT_S - 1 <= took <= HEARTBEAT_TIMEOUT_S + 0.1


async def test_INV_C21_a_new_active_controller_deposes_nobody(autojump_clock: MockClock) -> None:
    async with world() as made:
        await group_of(made, "a", 3)
        await trio.sleep(2)
        former = await made.active()
        await made.kill(former)
        before = trio.current_time()
        assert await made.active() != former
        assert trio.current_time() - before < 1
        for _ in range(30):
            info = await made.master_of("a")
            assert (info.master_broker_id, info.master_epoch) == (1, 1)
            await trio.sleep(1)


async def test_master_and_active_controller_lost_together(autojump_clock: MockClock) -> None:
    async with world() as made:
        first, *_ = await group_of(made, "a", 3)
        await trio.sleep(2)
        former = await made.active()
        before = trio.current_time()
        await first.kill()
        await made.kill(former)
        await made.wait_master("a", 2)
        assert trio.current_time() - before < 1.2


async def test_a_leader_whose_first_barrier_is_not_confirmed_in_time_is_active_once_it_may_be(
    autojump_clock: MockClock,
) -> None:
    """The only follower has a full disk: it hears its leader, which therefore goes on, and takes nothing."""
    async with world() as made:
        active = await made.active()
        follower, leader = (name for name in made.names if name != active)
        disk = made.disks[follower]
        disk.faults = DiskFaults(capacity_bytes=0)
        made.running[follower].core.node._driver.disk_full()
        await made.kill(active)
        await trio.sleep(20)
        assert made.running[leader].core.node.is_leader and not made.running[leader].core.active.active
        disk.faults = DiskFaults()
        while made.running[follower].core.node._driver.storage_state != "ok":
            await trio.sleep(1)
        with trio.fail_after(5):
            assert await made.active() == leader


async def test_everything_from_disk_again(autojump_clock: MockClock) -> None:
    async with world() as made:
        await group_of(made, "a", 2)
        for name in made.names:
            await made.kill(name)
        await made.start_all()
        info = await made.master_of("a")
        assert (info.master_broker_id, info.master_epoch) == (1, 1)


async def test_who_moved_while_all_were_down_comes_in_although_nobody_beats(autojump_clock: MockClock) -> None:
    """As when all containers are stopped, and started with new addresses: who was there before is waited for once."""
    async with world() as made:
        (first,) = await group_of(made, "a", 1, broker_life=71)
        await first.kill()
        await made.wait_master("a", None)
        while any(each.core.machine.format < codec.FORMAT for each in made.running.values()):
            await trio.sleep(1)  # to raise it would be something that happens
        for name in made.names:
            await made.kill(name)
        await made.start_all()
        moved = RegisterBrokerToControllerRequest(CLUSTER, "a", 1, "moved:1", broker_life=72)
        began = trio.current_time()
        with trio.fail_after(2 * HEARTBEAT_TIMEOUT_S):
            while (answer := await made.ask_active(CODE.CONTROLLER_REGISTER_BROKER, moved)).code:
                assert answer.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID, answer
                await trio.sleep(1)
        assert trio.current_time() - began >= HEARTBEAT_TIMEOUT_S


@pytest.mark.parametrize("reads", [1, codec.FORMAT])
async def test_who_is_heard_again_while_another_of_its_id_waits_for_a_barrier_is_not_replaced_by_it(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, reads: int,
) -> None:
    """In format 1 nothing asks later than the active controller: both would be master of one epoch."""
    async with world(reads=reads) as made:
        (first,) = await group_of(made, "a", 1)
        first.fall_silent()
        await made.wait_master("a", None)
        barrier = trio.Event()
        active = made.running[await made.active()].core
        passed = type(active)._may_read

        async def held(core: Controller) -> None:
            await barrier.wait()
            await passed(core)

        monkeypatch.setattr(type(active), "_may_read", held)
        answers: list[Command] = []

        async def ask() -> None:
            answers.append(await made.ask_active(
                CODE.CONTROLLER_REGISTER_BROKER, RegisterBrokerToControllerRequest(CLUSTER, "a", 1, "moved:1")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(0.1)
            made.network.silent.discard(first.address)
            await first.beat()
            barrier.set()
        assert [answer.code for answer in answers] == [ResponseCode.CONTROLLER_BROKER_ID_INVALID]
        assert (await made.wait_master("a", 1)).master_address == first.address


async def test_a_wiped_controller_is_taken_in_again(autojump_clock: MockClock) -> None:
    async with world() as made:
        await group_of(made, "a", 2)
        active = await made.active()
        wiped = next(name for name in made.names if name != active)
        await made.kill(wiped)
        made.wipe(wiped)
        again = await made.start(wiped)
        with trio.fail_after(60):
            while not (again.core.machine.named("a") and not made.running[active].core.node.status().strangers):
                await trio.sleep(0.1)
        # It counts again: with it and one more there is a majority.
        other = next(name for name in made.names if name not in (active, wiped))
        await made.kill(other)
        info = await made.master_of("a")
        assert info.master_broker_id == 1


async def test_who_needs_what_the_log_no_longer_has_recovers_by_snapshot(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wiped controller, and one that is new: both get the snapshot, then the entries behind it."""
    whole = ControllerConfig.raft
    monkeypatch.setattr(ControllerConfig, "raft", lambda self: attrs.evolve(whole(self), snapshot_tail_entries=5))
    async with world() as made:
        await group_of(made, "a", 2)
        for first in range(0, ENTRIES, 200):
            async with trio.open_nursery() as nursery:
                for number in range(first, first + 200):
                    header = ApplyBrokerIdRequest(CLUSTER, f"b{number}", 1, f"b{number}:1;1")
                    nursery.start_soon(made.ask_active, CODE.CONTROLLER_APPLY_BROKER_ID, header)
        active = await made.active()
        node = made.running[active].core.node
        await node.take_snapshot()
        purged = node.status().purged_index
        assert purged > 10
        wiped = next(name for name in made.names if name != active)
        await made.kill(wiped)
        made.wipe(wiped)
        again, newcomer = await made.start(wiped), await made.start("n3")
        with trio.fail_after(60):
            while node.status().strangers or not again.core.machine.named("a"):
                await trio.sleep(0.1)
        answer = await made.ask_active(OwnCode.CHANGE_CONTROLLER_GROUP, ChangeControllerGroupRequest("n3-n3:1", ""))
        assert answer.code == ResponseCode.SUCCESS, answer
        await trio.sleep(1)
        for each in (again, newcomer):
            assert each.core.node.status().snapshot_index > purged
            assert each.core.machine.state_hash() == made.running[active].core.machine.state_hash()


async def test_a_member_that_starts_late_for_the_first_time(autojump_clock: MockClock) -> None:
    async with world(late=1) as made:
        await group_of(made, "a", 2)
        active = await made.active()
        late = await made.start("n2")
        with trio.fail_after(60):
            while not late.core.machine.named("a"):
                await trio.sleep(0.1)
        await made.kill(next(name for name in ("n0", "n1") if name != active))
        assert (await made.master_of("a")).master_broker_id == 1


async def test_the_controller_group_changes_while_it_runs(autojump_clock: MockClock) -> None:
    async with world() as made:
        await group_of(made, "a", 2)
        newcomer = await made.start("n3")
        await trio.sleep(1)
        assert not newcomer.core.machine.named("a"), "it is no member before the group says so"
        answer = await made.ask_active(OwnCode.CHANGE_CONTROLLER_GROUP, ChangeControllerGroupRequest("n3-n3:1", "n0"))
        assert answer.code == ResponseCode.SUCCESS, answer
        assert answer.remark == "n1:n1:1;n2:n2:1;n3:n3:1;"
        assert newcomer.core.machine.named("a")
        await made.kill("n0")
        await made.kill("n1")
        assert (await made.master_of("a")).master_broker_id == 1
        answer = await made.ask_active(OwnCode.CHANGE_CONTROLLER_GROUP, ChangeControllerGroupRequest("", "n9"))
        assert answer.code == ResponseCode.CONTROLLER_INVALID_REQUEST and "n9 is no member" in (answer.remark or "")


async def test_followers_name_the_leader(autojump_clock: MockClock) -> None:
    async with world() as made:
        active = await made.active()
        follower = next(name for name in made.names if name != active)
        answer = await made.ask(follower, RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequest("a"))
        assert answer.code == ResponseCode.CONTROLLER_NOT_LEADER
        assert answer.ext == {"controllerLeaderAddress": f"{active}:1"}
        answer = await made.ask(follower, RequestCode.CONTROLLER_GET_METADATA_INFO)
        assert answer.ext["controllerLeaderAddress"] == f"{active}:1"
        assert answer.ext["peers"] == "n0:n0:1;n1:n1:1;n2:n2:1;"


async def test_who_has_lost_the_lead_does_not_say_that_it_leads(autojump_clock: MockClock) -> None:
    """A process that was stopped hears of its successor before the task that makes it no active controller runs."""
    async with world() as made:
        active = await made.active()
        follower = next(name for name in made.names if name != active)
        made.running[follower].core.active.active = True  # as between the two
        answer = await made.ask(follower, CODE.CONTROLLER_GET_METADATA_INFO)
        assert (answer.ext["isLeader"], answer.ext["controllerLeaderId"]) == ("false", active)
        made.running[follower].core.active.active = False
        assert (await made.ask(active, CODE.CONTROLLER_GET_METADATA_INFO)).ext["isLeader"] == "true"


async def test_brokers_are_told_until_they_answer(autojump_clock: MockClock) -> None:
    async with world() as made:
        first, second, third = await group_of(made, "a", 3)
        third.deaf = True
        await first.kill()
        await made.wait_master("a", 2)
        await trio.sleep(7)
        assert [told.master_broker_id for told in second.told][-1] == 2
        assert not any(told.master_epoch == 2 for told in third.told)
        third.deaf = False
        await trio.sleep(9)
        assert [told.master_epoch for told in third.told][-1] == 2
        count = len(third.told)
        await trio.sleep(20)
        assert len(third.told) == count


async def test_a_masters_lease_is_renewed_by_the_active_controller_alone(autojump_clock: MockClock) -> None:
    async with world() as made:
        first, second = await group_of(made, "a", 2, master_lease_ms=5_000)
        await trio.sleep(3)
        assert first.renewed[-2:] == [True, True]
        assert second.renewed[-2:] == [False, False]
        # Without a majority of controllers nobody renews.
        active = await made.active()
        for name in made.names:
            if name != active:
                await made.kill(name)
        await trio.sleep(3)
        assert first.renewed[-1] is False


async def test_a_closed_channel_can_wait_for_the_lease(autojump_clock: MockClock) -> None:
    async with world(waitMasterLease="true") as made:
        first, *_ = await group_of(made, "a", 2, master_lease_ms=5_000)
        await trio.sleep(3)
        before = trio.current_time()
        await first.kill()
        await made.wait_master("a", 2)
        assert 3.9 < trio.current_time() - before < 5.1


async def test_a_group_without_master_is_looked_at_again(autojump_clock: MockClock) -> None:
    """apache/rocketmq#5009, #6382: the last member died and comes back; it need not ask."""
    async with world() as made:
        (first,) = await group_of(made, "a", 1)
        await first.kill()
        lost = await made.wait_master("a", None)
        assert lost.master_epoch == 2
        await trio.sleep(30)
        assert (await made.master_of("a")).master_epoch == 2
        await first.come_back()
        assert (await made.wait_master("a", 1)).master_epoch == 3


async def test_one_controller_alone(autojump_clock: MockClock) -> None:
    async with world(count=1) as made:
        first, *_ = await group_of(made, "a", 2)
        await first.kill()
        await made.wait_master("a", 2)


async def test_an_orderly_stop_hands_leadership_over(autojump_clock: MockClock) -> None:
    async with world() as made:
        await group_of(made, "a", 2)
        active = await made.active()
        before = trio.current_time()
        made.nursery.start_soon(made.running.pop(active).stop)
        assert await made.active() != active
        assert trio.current_time() - before < 0.2


async def test_a_stop_at_once_says_nothing_of_the_connections_it_ends(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture,
) -> None:
    """As by a second signal, with brokers that are connected."""
    for _ in range(5):
        async with world() as made:
            await group_of(made, "a", 2)
    assert not [record for record in caplog.records if record.exc_info]


async def test_configuration_while_it_runs(autojump_clock: MockClock) -> None:
    async with world() as made:
        answer = await made.ask("n0", RequestCode.UPDATE_CONTROLLER_CONFIG, None, b"enableElectUncleanMaster=true")
        assert answer.code == ResponseCode.SUCCESS
        assert made.running["n0"].core.active.settings.unclean
        answer = await made.ask("n0", RequestCode.GET_CONTROLLER_CONFIG)
        assert b"enableElectUncleanMaster=true\n" in answer.body
        answer = await made.ask("n0", RequestCode.UPDATE_CONTROLLER_CONFIG, None, b"configStorePath=/tmp/x")
        assert answer.code == ResponseCode.NO_PERMISSION
        answer = await made.ask("n0", RequestCode.UPDATE_CONTROLLER_CONFIG, None, b"enableElectUncleanMaster=maybe")
        assert answer.code == ResponseCode.SYSTEM_ERROR and "enableElectUncleanMaster = maybe" in (answer.remark or "")


async def test_BUG_S1_heartbeats_leave_no_entry(autojump_clock: MockClock) -> None:
    """No heartbeat costs an entry of the log, however many there are; elections are decided all the same."""
    async with world() as made:
        first, *_ = await group_of(made, "a", 3)
        node = made.running[await made.active()].core.node
        await trio.sleep(1)
        before = node._driver.replica.commit_index
        await trio.sleep(60)
        assert node._driver.replica.commit_index == before
        await first.kill()
        await made.wait_master("a", 2)
        assert node._driver.replica.commit_index == before + 1


@pytest.mark.parametrize("code", [CODE.CONTROLLER_GET_REPLICA_INFO, CODE.CONTROLLER_GET_SYNC_STATE_DATA])
@pytest.mark.parametrize("every_read_asks", ["true", "false"])
async def test_BUG_S3_who_was_cut_off_answers_no_read(
    autojump_clock: MockClock, code: int, every_read_asks: str,
) -> None:
    """A controller that leads nobody any more says so, by its lease's end at the latest, whatever its memory holds."""
    async with world(isProcessReadEvent=every_read_asks) as made:
        await group_of(made, "a", 2)
        former = await made.active()

        async def read(name: str) -> Command:
            return await made.ask(name, code, GetReplicaInfoRequest("a"), b'["a"]')

        assert (await read(former)).code == ResponseCode.SUCCESS
        for name in made.names:
            if name != former:
                await made.kill(name)
        await trio.sleep(made.running[former].core.config.election_timeout_ms / 1e3)
        answer = await read(former)
        assert answer.code in (ResponseCode.CONTROLLER_NOT_LEADER, ResponseCode.SYSTEM_ERROR) and answer.remark
        assert not answer.body


async def test_BUG_S4_a_leader_on_the_loopback_goes_by_the_name_its_machine_was_met_at(
    autojump_clock: MockClock,
) -> None:
    """Whoever comes from elsewhere is told of a leader on 127.0.0.1 by the address at which this machine was met."""
    async with world(count=1) as made:
        core = made.running["n0"].core
        members = cast("dict[str, Member]", core.node._driver.replica.membership.members)
        members["n0"] = attrs.evolve(members["n0"], address="127.0.0.1:9877")
        for met_at, told in (("?", "127.0.0.1:9877"), ("127.0.0.1:9877", "127.0.0.1:9877"),
                             ("10.0.0.7:9877", "10.0.0.7:9877")):
            await made.ask("n0", CODE.CONTROLLER_GET_METADATA_INFO)
            (connection,) = (each for each in made.running["n0"].server.connections)
            connection.local = met_at
            answer = await made.ask("n0", CODE.CONTROLLER_GET_METADATA_INFO)
            assert answer.ext["controllerLeaderAddress"] == told
            core.active.deactivate()
            answer = await made.ask("n0", CODE.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequest("a"))
            assert (answer.code, answer.ext) == (
                ResponseCode.CONTROLLER_NOT_LEADER, {"controllerLeaderAddress": told})


async def test_BUG_S6_answers_tell_a_version(autojump_clock: MockClock) -> None:
    """Frames of a controller carry the version of RocketMQ whose protocol it speaks."""
    async with world(count=1) as made:
        answer = await made.ask("n0", CODE.CONTROLLER_GET_METADATA_INFO)
        assert answer.version == VERSION > 0
        _, second = await group_of(made, "a", 2)
        assert (await second.register()).version == VERSION


async def test_controllers_with_jraft_keys_are_a_group(autojump_clock: MockClock) -> None:
    """A file of a Java controller of the other type: its Raft addresses tell members apart, its RPC ones are used."""
    jraft = {
        "controllerType": "jRaft", "jRaftGroupId": "j", "jRaftInitConf": "a:9880,b:9880,c:9880",
        "jRaftControllerRPCAddr": "n0:1,n1:1,n2:1", "jRaftElectionTimeoutMs": "500"}
    async with trio.open_nursery() as nursery:
        made = World(nursery, 3, jraft)
        async with open_client(ClientConfig(), connector=made.network.connector("client")) as made.client:
            async with trio.open_nursery() as starting:
                for name, server_id in zip(made.names, "abc", strict=True):
                    starting.start_soon(partial(made.start, name, jRaftServerId=f"{server_id}:9880"))
            first, *_ = await group_of(made, "a", 2)
            answer = await made.ask("n1", CODE.CONTROLLER_GET_METADATA_INFO)
            assert (answer.ext["group"], answer.ext["peers"]) == ("j", "n0:n0:1;n1:n1:1;n2:n2:1;")
            before = trio.current_time()
            await made.kill(await made.active())
            await made.active()
            assert trio.current_time() - before < 1.5
            await first.kill()
            assert (await made.wait_master("a", 2)).master_epoch == 2
        nursery.cancel_scope.cancel()
