"""Whole brokers: alone, in plain groups, and under controllers, with a name server, on virtual time."""

from __future__ import annotations

from collections import deque

import pytest
import trio

from broker.ha.insync import InSync
from broker.ha.taking import BecomeMaster
from broker.metrics import BrokerMetrics
from broker.roles import ControlledRole
from broker.store.checkpoint import Checkpoint
from broker.store.disk import InlineDisk, Job, Steps, Told
from broker.store.errors import StoreFailed
from broker.store.tables import SubscriptionGroup
from harness.simulation.worlds.brokers import Cluster, Node, cluster, controlled, in_sync, new_master, three, until
from remoting import properties
from remoting.bodies.broker import HARuntimeInfo
from remoting.bodies.consumers import ConsumerData, HeartbeatData
from remoting.bodies.controller import EpochEntryCache
from remoting.bodies.namesrv import KVTable, TopicConfig
from remoting.client import Client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import RemotingError
from remoting.headers.broker import (
    ExchangeHAInfoRequest,
    ExchangeHAInfoResponse,
    ResetMasterFlushOffsetRequest,
)
from remoting.headers.controller import ElectMasterRequest
from remoting.headers.pulling import PullMessageRequest
from remoting.headers.queries import TopicRequest
from remoting.headers.sending import ConsumerSendMsgBackRequest
from remoting.headers.topics import CreateTopicRequest
from remoting.record import decode_all, encode_properties

OK = ResponseCode.SUCCESS
ALL_ACK = {"allAckInSyncStateSet": "true", "totalReplicas": "3"}


async def bodies(made: Cluster, address: str, offset: int = 0, topic: str = "T") -> list[bytes]:
    answer = await made.pull(address, offset, topic)
    assert answer.code in (OK, ResponseCode.PULL_NOT_FOUND), answer
    return [record.message.body for record in decode_all(answer.body)]


async def send_all(made: Cluster, address: str, *wanted: bytes) -> None:
    for body in wanted:
        answer = await made.send(address, body)
        assert answer.code == OK, answer


# --- a single master -----------------------------------------------------------------------------------------------


async def test_a_single_master_is_found_written_to_and_read(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        node = await made.node()
        await made.wait_route("TBW102", {0: node.address})
        await send_all(made, node.address, b"m0", b"m1", b"m2")
        await made.wait_route("T", {0: node.address}, within_s=1)
        assert await bodies(made, node.address) == [b"m0", b"m1", b"m2"]


async def test_what_was_stopped_in_order_is_there_again(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        node = await made.node()
        await send_all(made, node.address, b"m0", b"m1")
        await made.wait_route("T", {0: node.address})
        await node.stop()
        assert await made.route("T") == {}, "it said farewell"
        await node.start()
        assert await bodies(made, node.address) == [b"m0", b"m1"]
        await made.wait_route("T", {0: node.address})


async def test_what_was_answered_under_sync_flush_survives_the_loss_of_power(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        node = await made.node(flushDiskType="SYNC_FLUSH")
        await send_all(made, node.address, b"m0", b"m1")
        await node.kill()
        await node.start()
        assert await bodies(made, node.address) == [b"m0", b"m1"]
        await send_all(made, node.address, b"m2")
        assert await bodies(made, node.address) == [b"m0", b"m1", b"m2"]


async def test_a_name_server_that_was_lost_knows_all_again_soon(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        node = await made.node()
        await made.wait_route("TBW102", {0: node.address})
        await made.kill_namesrv()
        await trio.sleep(5)
        await made.start_namesrv()
        await made.wait_route("TBW102", {0: node.address}, within_s=3)


async def test_what_is_larger_than_may_be_sent_any_more_is_delivered_and_given_back(
    autojump_clock: trio.abc.Clock,
) -> None:
    """Its delay level stood still until the limit was raised again."""
    async with cluster() as made:
        node = await made.node(maxMessageSize=str(5 << 20), mappedFileSizeCommitLog=str(32 << 20))
        large, delayed = b"x" * (5 << 20), "DELAY\x012\x02"
        for body, properties in ((large, ""), (large, delayed), (b"behind", delayed)):
            answer = await made.send(node.address, body, properties=properties)
            assert answer.code == OK, answer
        assert (await made.send(node.address, large + b"x")).code == ResponseCode.MESSAGE_ILLEGAL
        await node.stop()
        node.settings["maxMessageSize"] = "10"
        await node.start()
        assert (await made.send(node.address, b"x" * 11)).code == ResponseCode.MESSAGE_ILLEGAL
        await trio.sleep(8)
        assert [(await bodies(made, node.address, at))[0] for at in range(3)] == [large, large, b"behind"]
        (record,) = decode_all((await made.pull(node.address)).body)
        answer = await made.ask(node.address, RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequest(
            offset=record.offset, group="G", delay_level=1))
        assert answer.code == OK, answer
        await trio.sleep(2)
        assert await bodies(made, node.address, topic="%RETRY%G") == [large]


async def test_a_disk_that_failed_ends_the_broker(autojump_clock: trio.abc.Clock) -> None:
    with pytest.raises(BaseExceptionGroup) as ended:
        async with cluster() as made:
            await send_to_a_broken_disk(made)
    assert ended.group_contains(StoreFailed, match="I/O error")


async def send_to_a_broken_disk(made: Cluster) -> None:
    node = await made.node(flushDiskType="SYNC_FLUSH")
    await send_all(made, node.address, b"m0")
    for name, file in node.store.content.items():
        if name.startswith("commitlog"):
            file.fault = OSError(5, "I/O error")
    await made.send(node.address, b"m1")
    await trio.sleep(5)


class LateDisk(InlineDisk):
    """Carries out nothing before it is closed."""

    inline = False

    def __init__(self) -> None:
        self.jobs: list[tuple[Job, Told]] = []

    def submit(self, job: Job, told: Told) -> None:
        self.jobs.append((job, told))

    def submit_steps(self, steps: Steps, told: Told) -> None:
        self.jobs.append((lambda: deque(steps, 0).clear(), told))

    def close(self) -> None:
        while self.jobs:
            trio.from_thread.run_sync(super().submit, *self.jobs.pop(0))


@pytest.mark.parametrize("in_order", [True, False])
async def test_a_disk_that_fails_while_the_broker_ends(autojump_clock: trio.abc.Clock, in_order: bool) -> None:
    async def end() -> None:
        async with cluster() as made:
            node = await made.node(LateDisk(), flushDiskType="SYNC_FLUSH", syncFlushTimeout="100")
            await made.send(node.address, b"m0")
            for name, file in node.store.content.items():
                if name.startswith("commitlog"):
                    file.fault = OSError(5, "I/O error")
            await (node.stop() if in_order else node.kill())

    if not in_order:
        await end()
        return
    with pytest.raises(BaseExceptionGroup) as ended:
        await end()
    assert ended.group_contains(StoreFailed, match="I/O error")


async def change(made: Cluster, node: Node, text: str) -> None:
    answer = await made.ask(node.address, RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())
    assert (answer.code, answer.remark) == (OK, None)


# --- what operators ask ----------------------------------------------------------------------------------------------


async def test_configuration_is_read_and_changed_while_it_runs(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        node = await made.node()
        await send_all(made, node.address, b"m0")

        async def change(text: bytes) -> tuple[int, str | None]:
            answer = await made.ask(node.address, RequestCode.UPDATE_BROKER_CONFIG, body=text)
            return answer.code, answer.remark

        mine = b"# of ours\nbrokerName = a\n\nslaveTimeout : 3000\n! no more\n"
        node.files.contents["/broker.conf"] = mine
        assert await change(b"configBlackList=x\n") == (
            ResponseCode.NO_PERMISSION, "Can not update config in black list: configBlackList")
        code, remark = await change(b"brokerPermision=4\n")
        assert code == ResponseCode.SYSTEM_ERROR
        assert remark == "brokerPermision = 4: is no known key; brokerPermission is"
        assert await change(b"haListenPort=10911\n") == (
            ResponseCode.NO_PERMISSION, "Can not update config in black list: haListenPort")
        assert await change(b"slaveTimeout=4000\nmaxMessageSize=5000\n") == (OK, "at the next start: maxMessageSize")
        assert (await change(b"masterLeaseMs=x\n"))[0] == ResponseCode.SYSTEM_ERROR
        code, remark = await change(b"totalReplicas=2\ninSyncReplicas=3\n")
        assert code == ResponseCode.SYSTEM_ERROR and remark == (
            "inSyncReplicas = 3: inSyncReplicas is 3, totalReplicas 2: no put could ever succeed")
        assert await change(b"brokerPermission=2\n") == (OK, None)
        assert (await made.pull(node.address)).code == ResponseCode.NO_PERMISSION
        answer = await made.ask(node.address, RequestCode.GET_BROKER_CONFIG)
        told = properties.parse(answer.body.decode())
        assert (told["brokerPermission"], told["slaveTimeout"], told["brokerName"]) == ("2", "4000", "a")
        kept = node.files.read("/broker.conf")
        assert kept is not None
        assert kept == mine.replace(b" : 3000", b"=4000") + b"maxMessageSize=5000\nbrokerPermission=2\n"
        node.files.error = OSError(28, "No space left on device")
        code, remark = await change(b"brokerPermission=6\n")
        assert (code, remark is not None and "No space left" in remark) == (ResponseCode.SYSTEM_ERROR, True)
        assert (await made.pull(node.address)).code == ResponseCode.NO_PERMISSION


async def test_lite_pulls_are_refused_where_the_file_says_so(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        node = await made.node(litePullMessageEnable="false")
        await send_all(made, node.address, b"m0")
        asked = PullMessageRequest(
            consumer_group="G", topic="T", queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=4, commit_offset=0,
            suspend_timeout_millis=0, subscription="*", sub_version=0)
        refused = await made.ask(node.address, RequestCode.LITE_PULL_MESSAGE, asked)
        assert (refused.code, refused.remark) == (
            ResponseCode.NO_PERMISSION, "the broker for lite pull consumer is forbidden")


async def test_state_and_replication_of_a_single_master(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        node = await made.node()
        await send_all(made, node.address, b"m0", b"m1")
        await bodies(made, node.address)
        await trio.sleep(2)
        state = KVTable.from_json((await made.ask(node.address, RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        assert state["brokerVersionDesc"] == "V5_5_0"
        assert (state["msgPutTotalTodayNow"], state["msgGetTotalTodayNow"]) == ("2", "2")
        assert float(state["putTps"].split()[0]) > 0
        assert (state["commitLogMinOffset"], int(state["commitLogMaxOffset"])) == ("0", node.broker.journal.end)
        assert int(state["earliestMessageTimeStamp"]) >= 1_700_000_000_000
        status = HARuntimeInfo.from_json((await made.ask(node.address, RequestCode.GET_BROKER_HA_STATUS)).body)
        assert (status.master, status.in_sync_slave_nums) == (True, 0)
        answer = await made.ask(node.address, RequestCode.GET_BROKER_EPOCH_CACHE)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "this broker is not in controller mode")
        answer = await made.ask(node.address, RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequest())
        told = ExchangeHAInfoResponse.from_ext(answer.ext)
        assert (told.master_address, told.master_ha_address) == (node.address, "10.0.0.1:10912")


async def test_metrics_show_role_traffic_and_store(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        node = await made.node()
        await send_all(made, node.address, b"m0", b"m1", b"m2")
        await bodies(made, node.address)
        node.offsets.commit("G", "T", 0, 1)
        page = BrokerMetrics(node.broker).exposition().decode()
        lines = {line.split("{")[0]: line.rpartition(" ")[2] for line in page.splitlines() if line[0] != "#"}
        assert lines["rocketmq_messages_in_total"] == "3.0"
        assert lines["rocketmq_messages_out_total"] == "3.0"
        assert lines["broker_writes_open"] == lines["broker_is_master"] == "1.0"
        assert float(lines["rocketmq_storage_size"]) == node.broker.journal.end
        assert 'rocketmq_consumer_lag_messages{cluster="c",consumer_group="G",is_retry="false",is_system="false",' \
            'node_id="a",node_type="broker",topic="T"} 2.0' in page


async def test_how_many_replicas_a_put_needs_is_changed_while_it_runs(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        master = await made.node(brokerRole="SYNC_MASTER")
        await send_all(made, master.address, b"m0")
        await change(made, master, "inSyncReplicas=2\nslaveTimeout=500")
        begun = trio.current_time()
        assert (await made.send(master.address, b"m1")).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert 0.4 < trio.current_time() - begun < 0.7
        await change(made, master, "enableAutoInSyncReplicas=true")
        await send_all(made, master.address, b"m2")
        await change(made, master, "minInSyncReplicas=2")
        assert (await made.send(master.address, b"m3")).code == ResponseCode.SYSTEM_ERROR
        slave = await made.node(brokerRole="SLAVE", brokerId="1")
        await until(lambda: len(master.broker.registration.members) == 2)
        await until(lambda: slave.broker.journal.end == master.broker.journal.end)
        await send_all(made, master.address, b"m4")


# --- plain groups ----------------------------------------------------------------------------------------------------


async def test_a_slave_finds_its_master_and_copies_log_and_tables(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        master = await made.node(brokerRole="SYNC_MASTER", totalReplicas="2", inSyncReplicas="2")
        slave = await made.node(brokerRole="SLAVE", brokerId="1", slaveReadEnable="true")
        await made.wait_route("TBW102", {0: master.address, 1: slave.address})
        await made.ask(master.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                       body=SubscriptionGroup("wanted").to_json())
        await until(lambda: slave.broker.journal.end == master.broker.journal.end)
        await until(lambda: slave.broker.roles.runtime_info().ha_client_runtime_info.master_addr)
        await send_all(made, master.address, b"m0", b"m1")
        await until(lambda: slave.topics.get("T"))
        assert slave.groups.get("wanted") is not None
        await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
        assert await bodies(made, slave.address) == [b"m0", b"m1"]
        answer = await made.send(slave.address, b"m2")
        assert answer.code != OK, "a slave takes no messages"
        await master.kill()
        await made.wait_route("TBW102", {1: slave.address})
        assert await bodies(made, slave.address) == [b"m0", b"m1"]


async def test_a_slave_keeps_what_its_master_had_flushed_and_operators_may_set_it(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with cluster() as made:
        master = await made.node(brokerRole="SYNC_MASTER")
        await send_all(made, master.address, b"m0")
        end = master.broker.journal.end
        await master.stop()
        await master.start()
        await send_all(made, master.address, b"m1")
        slave = await made.node(brokerRole="SLAVE", brokerId="1", syncMasterFlushOffsetWhenStartup="true")

        async def shown(node: Node) -> int:
            answer = await made.ask(node.address, RequestCode.GET_BROKER_HA_STATUS)
            return HARuntimeInfo.from_json(answer.body).ha_client_runtime_info.master_flush_offset

        told = ExchangeHAInfoRequest("10.0.0.1:10912", end, master.address)
        assert (await made.ask(slave.address, RequestCode.EXCHANGE_BROKER_HA_INFO, told)).code == OK
        answer = await made.ask(master.address, RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequest())
        assert ExchangeHAInfoResponse.from_ext(answer.ext).master_flush_offset == end, "its log at its start"
        assert await shown(slave) == end
        for node in (master, slave):
            answer = await made.ask(
                node.address, RequestCode.RESET_MASTER_FLUSH_OFFSET, ResetMasterFlushOffsetRequest(77))
            assert answer.code == OK
        assert (await shown(master), await shown(slave)) == (0, 77)
        await slave.stop()
        assert Checkpoint.decode(bytes(slave.store.content["checkpoint"].data)).master_flushed_offset == 77
        await slave.start()
        assert await shown(slave) == 77


async def test_double_writes_degrade_when_the_slave_is_gone_and_recover(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        master = await made.node(
            brokerRole="SYNC_MASTER", totalReplicas="2", inSyncReplicas="2", enableAutoInSyncReplicas="true")
        slave = await made.node(brokerRole="SLAVE", brokerId="1")
        await until(lambda: master.broker.roles.runtime_info().in_sync_slave_nums == 1)
        await send_all(made, master.address, b"m0")
        await slave.stop()
        await until(lambda: len(master.broker.registration.members) == 1)
        await send_all(made, master.address, b"m1")
        await slave.start()
        await until(lambda: slave.broker.journal.end == master.broker.journal.end)
        await send_all(made, master.address, b"m2")
        assert slave.broker.journal.end == master.broker.journal.end


# --- under controllers -----------------------------------------------------------------------------------------------


async def made_topic(made: Cluster, master: Node, name: str) -> None:
    """By an operator."""
    header = CreateTopicRequest(name, 4, 4, 6, default_topic="TBW102")
    assert (await made.ask(master.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code == OK


async def test_a_lost_master_costs_no_answered_message(autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **ALL_ACK)
        await send_all(made, master.address, *(b"a%d" % number for number in range(5)))
        await made.wait_route("T", {0: master.address, **{
            node.broker.standing.role.broker_id: node.address for node in others}}, within_s=5)
        lost = trio.current_time()
        await master.kill()
        second = await new_master(*others)
        assert trio.current_time() - lost < 1
        await send_all(made, second.address, b"b0")
        assert trio.current_time() - lost < 2.5
        assert second.broker.standing.role.broker_id == 0
        assert (await made.route("T"))[0] == second.address
        assert await bodies(made, second.address) == [*(b"a%d" % number for number in range(5)), b"b0"]
        await master.start()
        await in_sync(second, 2)
        await send_all(made, second.address, b"b1")
        logs = {node.broker.journal.read(0, node.broker.journal.end) for node in made.nodes}
        assert len(logs) == 1
        await trio.sleep(61)  # until then it passes sends on
        assert (await made.send(master.address, b"x")).code != OK


async def test_a_topic_that_only_the_lost_master_knew_is_read_at_the_next_one(
    autojump_clock: trio.abc.Clock,
) -> None:
    """An operator made it, so no send makes it again."""
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **ALL_ACK, autoCreateTopicEnable="false")
        await made_topic(made, master, "T")
        await made_topic(made, master, "gone")
        assert (await made.send(master.address, b"x", "gone")).code == OK
        await trio.sleep(0.01)
        assert (await made.ask(master.address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest("gone"))).code == OK
        await trio.sleep(5)
        await made_topic(made, master, "late")
        assert (await made.send(master.address, b"a0", "late")).code == OK
        await master.kill()
        second = await new_master(*others)
        answer = await made.pull(second.address, 0, "late")
        assert [record.message.body for record in decode_all(answer.body)] == [b"a0"]
        assert (await made.send(second.address, b"b0", "late", queue=7)).code == OK
        topics = second.topics
        assert topics.get("T") == TopicConfig("T", 4, 4) and topics.get("late") == TopicConfig("late", 8, 8)
        assert topics.get("gone") is None, "what was deleted does not come back"


async def test_a_topic_of_which_all_messages_wait_is_known_to_the_next_master(autojump_clock: trio.abc.Clock) -> None:
    """A timer, a delayed message and a half are in other topics until they are due, or decided."""
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **ALL_ACK, autoCreateTopicEnable="false")
        await trio.sleep(5)
        for topic, values in (("timed", {"TIMER_DELAY_SEC": "4"}), ("delayed", {"DELAY": "1"}),
                              ("half", {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "U"}),
                              ("gone", {"TIMER_DELAY_SEC": "4"})):
            await made_topic(made, master, topic)
            properties = encode_properties(values).decode()
            assert (await made.send(master.address, b"a0", topic, properties=properties)).code == OK
        await trio.sleep(0.01)
        await master.kill()
        second = await new_master(*others)
        await until(lambda: second.topics.get("half") is not None)
        await made_topic(made, second, "gone")
        assert (await made.ask(second.address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest("gone"))).code == OK
        for topic in ("timed", "delayed"):
            await until(lambda topic=topic: second.topics.get(topic) is not None, within_s=10)  # type: ignore[misc]
            assert (await made.pull(second.address, 0, topic)).code == OK
        assert second.topics.get("gone") is None, "what this one deleted does not come back"


async def test_slaves_ask_for_a_topic_as_soon_as_they_have_messages_of_it(autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **ALL_ACK)
        await trio.sleep(5)
        await made_topic(made, master, "T")
        await send_all(made, master.address, b"a0")
        await until(lambda: all(node.topics.get("T") == TopicConfig("T", 4, 4) for node in others),
                    within_s=0.3)


async def test_a_new_master_makes_what_its_consumers_wanted_of_a_slave(autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **ALL_ACK)
        heartbeat = HeartbeatData("c", [], [ConsumerData("G")]).to_json()
        for node in others:
            assert (await made.ask(node.address, RequestCode.HEART_BEAT, body=heartbeat)).code == OK
            assert node.topics.get("%RETRY%G") is None
        await master.kill()
        second = await new_master(*others)
        assert second.topics.get("%RETRY%G") == TopicConfig("%RETRY%G", 1, 1)


async def test_slaves_learn_where_a_new_master_replicates_from_at_once(autojump_clock: trio.abc.Clock) -> None:
    """Without a name server: the slaves ask, and the master tells those that it knows."""
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **ALL_ACK)
        await made.kill_namesrv()
        lost = trio.current_time()
        await master.kill()
        second = await new_master(*others)
        third = next(node for node in others if node is not second)
        await until(lambda: third.broker.roles.runtime_info().ha_client_runtime_info.master_addr
                    == f"{second.host}:10912")
        assert trio.current_time() - lost < 1


@pytest.mark.parametrize("all_ack", [True, False])
async def test_the_gate_rises_at_once_and_falls_when_the_controller_has_heard(
    autojump_clock: trio.abc.Clock, all_ack: bool,
) -> None:
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **(ALL_ACK if all_ack else {}), haMaxTimeSlaveNotCatchup="1000",
                                      haSendHeartbeatInterval="500", masterLeaseMs="0")
        for node in others:
            await node.kill()
        await in_sync(master, 0)
        await send_all(made, master.address, b"alone")
        await change(made, master, "minInSyncReplicas=2")
        assert (await made.send(master.address, b"refused")).code == ResponseCode.SYSTEM_ERROR
        addresses = [address for address in made.network.listeners if address.startswith("n")]
        cut = {address: made.network.listeners.pop(address) for address in addresses}
        for address in addresses:
            await made.network.drop(address)
        await change(made, master, "minInSyncReplicas=1")
        await trio.sleep(5)
        assert (await made.send(master.address, b"refused")).code == ResponseCode.SYSTEM_ERROR, "nobody has heard"
        made.network.listeners |= cut
        await trio.sleep(15)
        await send_all(made, master.address, b"alone again")
        assert await bodies(made, master.address) == [b"alone", b"alone again"]


async def test_a_master_that_is_elected_again_demands_what_it_did(autojump_clock: trio.abc.Clock) -> None:
    """Until a heartbeat of its new epoch is answered: who elected it may know an announcement of long ago."""
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **ALL_ACK, minInSyncReplicas="2", masterLeaseMs="0")
        await change(made, master, "minInSyncReplicas=1")
        roles, taken = master.broker.roles, list[int]()
        assert isinstance(roles, ControlledRole)
        await until(lambda: roles.member.manager.gate.in_force == 1)
        become_master = roles._replication.become_master

        async def taking(role: BecomeMaster) -> InSync:
            in_sync = await become_master(role)
            taken.append(in_sync.least)
            return in_sync

        roles._replication.become_master = taking  # type: ignore[method-assign]
        for node in (others[0], master):
            await designate(made, node)
            await in_sync(node, 2)
        assert taken == [2]
        await until(lambda: roles.member.manager.gate.in_force == 1)
        for node in others:
            await node.kill()
        await in_sync(master, 0)
        await send_all(made, master.address, b"alone")


@pytest.mark.parametrize("all_ack", [True, False])
async def test_a_master_that_stops_hands_over_first(autojump_clock: trio.abc.Clock, all_ack: bool) -> None:
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **(ALL_ACK if all_ack else {}))
        await send_all(made, master.address, b"m0", b"m1")
        begun = trio.current_time()
        await master.broker.stop()
        second = await new_master(*others)
        assert trio.current_time() - begun < 0.5
        await master.ended.wait()
        await send_all(made, second.address, b"m2")
        assert await bodies(made, second.address) == [b"m0", b"m1", b"m2"]
        await made.wait_route("T", {0: second.address, **{
            node.broker.standing.role.broker_id: node.address for node in others if node is not second}}, within_s=5)


async def test_what_comes_while_mastership_is_handed_over_is_not_refused(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where masters acknowledge alone, writes close first; a Java producer uses up its attempts in no time."""
    call = Client.call

    async def slowly(client: Client, address: str, command: Command, timeout_ms: float | None = None) -> Command:
        if command.code == RequestCode.CONTROLLER_ELECT_MASTER:
            await trio.sleep(0.3)
        return await call(client, address, command, timeout_ms)

    async with cluster(controllers=3) as made:
        master, *others = await three(made)
        await send_all(made, master.address, b"m0")
        monkeypatch.setattr(Client, "call", slowly)
        ended: list[object] = []

        async def send() -> None:
            try:
                ended.append((await made.send(master.address, b"m1")).code)
            except RemotingError as error:
                ended.append(type(error))

        async with trio.open_nursery() as nursery:
            await master.broker.stop()
            await trio.sleep(0.1)
            nursery.start_soon(send)
            await trio.sleep(0.1)
            assert not ended, "it waits"
        await new_master(*others)
        assert ended == [OK]


async def designate(made: Cluster, target: Node) -> None:
    """As an operator does."""
    elect = ElectMasterRequest("c", "a", target.broker.standing.role.broker_id, True)
    for controller in ("n0:1", "n1:1", "n2:1"):
        if (await made.ask(controller, RequestCode.CONTROLLER_ELECT_MASTER, elect)).code == OK:
            break


async def test_a_deposed_master_passes_requests_on_for_a_while(autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=3) as made:
        master, target, _ = await three(made, **ALL_ACK, forwardMs="10000")
        await send_all(made, master.address, b"m0")
        await designate(made, target)
        begun = trio.current_time()
        await until(lambda: target.serves)
        while (await made.send(master.address, b"m1")).code != OK:
            assert trio.current_time() - begun < 1
            await trio.sleep(0.01)
        assert await bodies(made, master.address) == [b"m0", b"m1"]
        assert await bodies(made, target.address) == [b"m0", b"m1"]
        await trio.sleep(11)
        assert (await made.send(master.address, b"m2")).code != OK


async def test_tables_follow_the_master(autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **ALL_ACK)
        await send_all(made, master.address, b"m0")
        master.offsets.commit("G", "T", 0, 1)
        await until(lambda: all(node.offsets.query("G", "T", 0) == 1 for node in others))
        await until(lambda: all(node.topics.get("T") for node in others))
        await master.kill()
        second = await new_master(*others)
        assert second.offsets.query("G", "T", 0) == 1
        assert second.topics.version.state_version == 2


async def test_epochs_and_replication_as_operators_see_them(autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=3) as made:
        master, slave, _ = await three(made, **ALL_ACK)
        await send_all(made, master.address, b"m0")
        answer = await made.ask(slave.address, RequestCode.GET_BROKER_EPOCH_CACHE)
        cache = EpochEntryCache.from_json(answer.body)
        assert [(entry.epoch, entry.start_offset) for entry in cache.epoch_list] == [(1, 0)]
        assert (cache.broker_id, cache.max_offset) == (slave.broker.standing.role.broker_id, slave.broker.journal.end)
        answer = await made.ask(master.address, RequestCode.GET_BROKER_EPOCH_CACHE)
        assert EpochEntryCache.from_json(answer.body).broker_id == 0
        answer = await made.ask(slave.address, RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequest())
        assert ExchangeHAInfoResponse.from_ext(answer.ext) == ExchangeHAInfoResponse()


async def test_a_master_that_lost_its_controllers_refuses_writes(autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=1) as made:
        master = await made.node(**controlled(1))
        await until(lambda: master.serves)
        await trio.sleep(2)
        made.network.silent.add("n0:1")
        await until(lambda: not master.serves, within_s=6)
        answer = await made.send(master.address, b"m0")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, answer
        made.network.silent.clear()
        await until(lambda: master.serves)
        await send_all(made, master.address, b"m0")
