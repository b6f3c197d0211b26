"""Who becomes master goes on behind the checkpoints that stand in the log; and what else a broker with POP has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from broker.metrics import BrokerMetrics
from broker.pop import progress
from broker.pop.part import SAVED_EVERY_MS, PopPart
from broker.pop.progress import KeptProgress
from broker.store.files import MemoryFile
from broker.topics.names import pop_retry_topic
from harness.simulation.worlds.brokers import Cluster, Node, cluster, new_master, three, until, wall_ms
from remoting.bodies.popping import BatchAck, BatchAckRequest, bits_of
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.headers.consumers import ResetOffsetRequest
from remoting.headers.popping import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    NotificationRequest,
    PollingInfoRequest,
    PopMessageRequest,
)
from remoting.headers.queries import TopicRequest
from remoting.headers.topics import CreateTopicRequest
from remoting.record import Message
from tests.broker.pop.world import ALL_ACK, Popper, offset, popped
from tests.docs.test_add_a_request import broker


def part(node: Node) -> PopPart:
    return node.broker.parts[PopPart]


async def settled(node: Node) -> None:
    await until(lambda: not len(part(node).checkpoints))


async def given(made: Cluster, node: Node, count: int = 6, take: int = 4) -> Popper:
    for number in range(count):
        assert (await made.send(node.address, b"%d" % number)).code == ResponseCode.SUCCESS
    popper = Popper(made)
    assert len(await popper.pop(node, queue=0, count=take)) == take
    return popper


def forget_copies(*nodes: Node) -> None:
    """As if no offset had ever been copied."""
    for node in nodes:
        node.offsets._offsets.clear()


async def test_a_slave_that_becomes_master_goes_on_behind_the_checkpoints(autojump_clock: MockClock) -> None:
    """Though copies of offsets lag: those of this group never came."""
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, **ALL_ACK)
        popper = await given(made, master)
        await master.kill()
        forget_copies(*slaves)
        leader = await new_master(*slaves)
        await until(lambda: part(leader)._is_ready())
        assert offset(leader) == 4
        assert [each.body for each in await popper.pop(leader, queue=0)] == [b"4", b"5"]


async def test_one_that_was_started_again_does_so_too(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(flushConsumerOffsetInterval="1000000", flushDiskType="SYNC_FLUSH")
        popper = await given(made, node)
        await node.kill()
        node.store.content.pop("config/consumerOffset.json", None)
        await node.start()
        assert [each.body for each in await popper.pop(node, queue=0)] == [b"4", b"5"]
        await node.stop()
        await node.start()
        await until(lambda: part(node).progress.ends == {("T", "G", 0): 6})


@pytest.mark.parametrize("content", [b"{", b"", None])
async def test_a_damaged_file_is_made_again_from_the_log(autojump_clock: MockClock, content: bytes | None) -> None:
    async with cluster() as made:
        node = await made.node()
        popper = await given(made, node)
        await node.stop()
        for path in [path for path in node.store.content if "popProgress" in path]:
            del node.store.content[path]
        if content is not None:
            node.store.content["config/popProgress.json"] = MemoryFile(bytearray(content), content)
        del node.store.content["config/consumerOffset.json"]
        await node.start()
        if content == b"{":
            assert [each.body for each in await popper.pop(node, queue=0, poll_ms=5_000)] == [b"4", b"5"]
        else:
            assert not part(node).progress.ends, "one that was never there tells of a store without POP"


async def test_of_a_log_that_lost_its_end_the_rest_is_still_known(autojump_clock: MockClock) -> None:
    """The file was written when more was in the log than the disk had."""
    async with cluster() as made:
        node = await made.node(flushIntervalCommitLog="10000000", flushCommitLogThoroughInterval="10000000")
        popper = await given(made, node, count=8)
        await node.stop()
        await node.start()
        assert [each.body for each in await popper.pop(node, queue=0, count=2)] == [b"4", b"5"]
        await trio.sleep(3 * SAVED_EVERY_MS / 1_000)
        assert part(node).progress.ends == {("T", "G", 0): 6}
        await node.kill()
        node.store.content.pop("config/consumerOffset.json", None)
        await node.start()
        assert part(node).progress.ends == {("T", "G", 0): 4}
        assert [each.body for each in await popper.pop(node, queue=0)] == [b"4", b"5", b"6", b"7"]


async def test_of_a_log_that_is_cut_below_what_is_kept_all_is_read_again(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await given(made, node)
        await node.stop()
        file = KeptProgress(1 << 30, {"T@G": {0: 5}, "T@H": {0: 5}})
        node.store.content[progress.PATH] = MemoryFile(bytearray(file.to_json()), file.to_json())
        await node.start()
        await until(lambda: part(node).progress.ends == {("T", "G", 0): 4})
        await node.stop()
        await node.start()
        assert part(node).progress.ends == {("T", "G", 0): 4}
        part(node)._cut(0)
        await until(lambda: part(node).progress.ends == {("T", "G", 0): 4})


async def test_a_reset_holds_on_the_next_master(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, **ALL_ACK)
        popper = await given(made, master)
        await settled(master)
        asked = ResetOffsetRequest("T", "G", 0, 1)
        answer = await made.ask(master.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, asked)
        assert answer.code == ResponseCode.SUCCESS, answer
        await until(lambda: all(part(node).progress.ends == {("T", "G", 0): 1} for node in slaves))
        await master.kill()
        leader = await new_master(*slaves)
        await until(lambda: part(leader)._is_ready())
        assert [each.body for each in await popper.pop(leader, queue=0)] == [b"1", b"2", b"3", b"4", b"5"]


async def test_a_topic_that_is_made_again_begins_anew_on_the_next_master(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, **ALL_ACK)
        await given(made, master)
        assert (await made.ask(master.address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest("T"))).code == 0
        await until(lambda: all(not part(node).progress.ends for node in (master, *slaves)))
        assert (await made.send(master.address, b"new")).code == ResponseCode.SUCCESS
        assert [each.body for each in await Popper(made).pop(master, queue=0)] == [b"new"]


@pytest.mark.parametrize("keeps", [False, True])
async def test_a_topic_goes_with_what_waits_to_be_popped_again(autojump_clock: MockClock, keeps: bool) -> None:
    async with cluster() as made:
        node = await made.node(clearRetryTopicWhenDeleteTopic=str(not keeps).lower())
        await given(made, node)
        retry = pop_retry_topic("T", "G")
        await until(lambda: node.topics.get(retry) is not None, within_s=120)
        assert (await made.ask(node.address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest("T"))).code == 0
        queues = {topic.decode() for topic, _ in node.broker.journal.messages.queues()}
        assert (node.topics.get(retry) is not None) == (retry in queues) == keeps


async def test_a_slave_sends_clients_away(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        master, slave, _ = await three(made, **ALL_ACK)
        popper = await given(made, master)
        assert (await popper.ask(slave)).code == ResponseCode.SYSTEM_BUSY
        for code, asked in ((RequestCode.NOTIFICATION, NotificationRequest("G", "T", -1, 0, wall_ms())),
                            (RequestCode.ACK_MESSAGE, AckMessageRequest("G", "T", 0, "", 0)),
                            (RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
                             ChangeInvisibleTimeRequest("G", "T", 0, "", 0, 1)),
                            (RequestCode.BATCH_ACK_MESSAGE, None)):
            assert (await made.ask(slave.address, code, asked)).code == ResponseCode.SYSTEM_BUSY
        await until(lambda: slave.groups.get("G") is not None)
        assert (await popper.peek(slave)).code == ResponseCode.SUCCESS
        waiting = await made.ask(slave.address, RequestCode.POLLING_INFO, PollingInfoRequest("G", "T", -1))
        assert (waiting.code, waiting.ext) == (ResponseCode.SUCCESS, {"pollingNum": "0"})
        assert part(slave).waiting_for == "this broker follows a master"
        await until(lambda: part(slave).progress.ends == {("T", "G", 0): 4})
        assert part(master).waiting_for == ""


async def test_what_is_not_held_in_time_is_neither_given_nor_given_again(autojump_clock: MockClock) -> None:
    """It is in the log: when it is confirmed, its group goes on behind it, and it comes back as nobody acknowledged it.
    """
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, **ALL_ACK, slaveTimeout="500", haMaxTimeSlaveNotCatchup="30000")
        popper = await given(made, master, take=1)
        await settled(master)
        for node in slaves:
            made.network.silent.add(node.address)
            made.network.silent.add(f"{node.host}:10912")
        answer = await popper.ask(master, queue=0, count=2)
        assert answer.code == ResponseCode.POLLING_TIMEOUT
        assert "no checkpoint: FLUSH_SLAVE_TIMEOUT" in (answer.remark or "")
        assert offset(master) == 1
        made.network.silent.clear()
        await until(lambda: offset(master) == 3)
        assert [each.body for each in await popper.pop(master, queue=0)] == [b"3", b"4", b"5"]


async def test_who_waits_is_answered_when_the_broker_stops(autojump_clock: MockClock) -> None:
    async with cluster() as made, trio.open_nursery() as nursery:
        node = await made.node()
        await made.send(node.address, b"x", queue=1)
        codes: list[int] = []

        async def wait() -> None:
            codes.append((await Popper(made).ask(node, queue=0, poll_ms=15_000)).code)

        nursery.start_soon(wait)
        await trio.sleep(1)
        assert part(node).runtime_info()["popWaiting"] == "1"
        await node.stop()
        await until(lambda: codes == [ResponseCode.POLLING_TIMEOUT])


async def test_what_is_counted(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        popper = await given(made, node)
        message = (await popper.pop(node, queue=0, count=1))[0]
        changed = await popper.changed(node, message, 5_000)
        assert (await popper.ack(node, changed)).code == ResponseCode.SUCCESS
        page = BrokerMetrics(node.broker).exposition().decode()
        found = {line.partition("{")[0]: line.split()[-1]
                 for line in page.splitlines() if "_pop_" in line and not line.startswith("#")}
        puts = {"".join(re.findall(r'(?:consumer_group|topic|revive_message_type|put_status)="(\w+)"', line)): count
                for line, _, count in (line.rpartition(" ") for line in page.splitlines())
                if line.startswith("rocketmq_pop_revive_in_message_total")}
        assert puts == {"GPUT_OKACKT": "2.0", "GPUT_OKCKT": "3.0"}
        assert found.items() >= {
            "broker_pop_messages_total": "5.0", "broker_pop_acked_total": "1.0", "broker_pop_changed_total": "1.0",
            "rocketmq_pop_offset_buffer_size": "0.0", "broker_pop_waiting": "0.0"}.items()


async def test_how_far_behind_a_group_is(autojump_clock: MockClock) -> None:
    """By Java's names: what is out, what was not given yet, both together, and since when it waits."""
    async with cluster() as made:
        node = await made.node()

        def figures(topic: str = "T") -> list[int]:
            page = BrokerMetrics(node.broker).exposition().decode()
            labels = rf'{{.*consumer_group="G",.*topic="{re.escape(topic)}".*}} (\S+)$'
            return [int(float(re.findall(f"^rocketmq_consumer_{name}{labels}", page, re.MULTILINE)[0]))
                    for name in ("inflight_messages", "ready_messages", "lag_messages", "lag_latency_milliseconds",
                                 "queueing_latency_milliseconds")]

        popper = Popper(made)
        for number in range(6):
            await made.send(node.address, b"%d" % number)
        one, two, three, _ = await popper.pop(node, queue=0, count=4, invisible_ms=5_000)
        await settled(node)
        await trio.sleep(2)
        *counts, first_ms, next_ms = figures()
        assert counts == [4, 2, 6] and first_ms == next_ms and 2_000 <= first_ms < 2_500
        assert (await popper.ack(node, one)).code == ResponseCode.SUCCESS
        receipt = two.receipt
        body = BatchAckRequest("a", [BatchAck("G", "T", receipt.start_offset, 0, receipt.revive_qid,
                                              receipt.pop_time_ms, receipt.invisible_ms, bits_of([1]))])
        assert (await made.ask(node.address, RequestCode.BATCH_ACK_MESSAGE, body=body.to_json())).code == 0
        assert figures()[:3] == [2, 2, 4]
        await trio.sleep(12)
        assert figures()[:3] == [0, 2, 2], "two came back: they are of the retry topic now"
        again = await popper.pop(node)
        assert {each.body for each in again} >= {b"2", b"3"} and three.body == b"2"
        await settled(node)
        assert figures("%RETRY%G_T")[:3] == [2, 0, 2]


async def test_a_broker_pops_over_a_real_socket_and_disk(tmp_path: Path) -> None:
    async with open_client() as client:
        found: list[list[bytes]] = []
        for _ in range(2):
            async with broker(tmp_path) as running:
                address = running.config.address
                if not found:
                    await client.call(address, request(
                        RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequest("T", 1, 1, 6)))
                    running.journal.append([Message(b"T", b"%d" % number, 0) for number in range(40)])
                    await trio.lowlevel.checkpoint()
                    while running.journal.messages.max_offset(b"T", 0) < 40:
                        await trio.lowlevel.checkpoint()
                header = PopMessageRequest("G", "T", -1, 32, 60_000, 5_000)
                answer = await client.call(address, request(RequestCode.POP_MESSAGE, header))
                found.append([each.body for each in popped(answer, "T", "G")])
                message = popped(answer, "T", "G")[0]
                ack = AckMessageRequest("G", "T", 0, message.receipt.encode(), message.offset)
                assert (await client.call(address, request(RequestCode.ACK_MESSAGE, ack))).code == 0
        assert found == [[b"%d" % number for number in range(32)], [b"%d" % number for number in range(32, 40)]]
