"""What is out in order is known to every replica, and to the next master: brokers in virtual time."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from broker.groups.part import GroupsPart
from broker.ha.acks import PutStatus
from broker.metrics import BrokerMetrics
from broker.parts import PARTS
from broker.pop.order import Change, Ignored, OrderKey
from broker.pop.orderlog import PATH, OrderLog, OrderPart
from broker.pop.part import PopPart
from broker.puts import PutResult
from broker.query.part import QueriesPart
from broker.store.files import write_whole
from broker.topics.names import POP_ORDER
from harness.simulation.worlds.brokers import (
    Cluster,
    Node,
    cluster,
    controlled,
    in_sync,
    new_master,
    three,
    until,
    wall_ms,
)
from remoting.codes import RequestCode

DURABLE = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"}
KEY = OrderKey("T", "G", 0)
HOLD_MS = 60_000


def log_of(node: Node) -> OrderLog:
    return node.broker.parts[OrderPart].log


async def stored(node: Node, *changes: Change | Ignored | None) -> PutResult:
    found, done = list[Change](), list[PutResult]()
    for change in changes:
        assert isinstance(change, Change), change
        found.append(change)
    log_of(node).store(found, done.append)
    await until(lambda: done)
    return done[0]


async def good(node: Node, *changes: Change | Ignored | None) -> None:
    assert (await stored(node, *changes)).status is PutStatus.PUT_OK


async def sent(made: Cluster, node: Node, count: int = 3) -> None:
    for number in range(count):
        assert (await made.send(node.address, b"%d" % number)).code == 0


async def given(node: Node, offsets: Sequence[int], attempt: str | None = None, key: OrderKey = KEY) -> int:
    """As a POP in order does it; returns the pop time."""
    now_ms = wall_ms()
    await good(node, log_of(node).orders.deliver(key, now_ms, HOLD_MS, offsets, attempt))
    return now_ms


def forget_file(node: Node) -> None:
    """Remove the table's file, and the one before it, which is read in its place."""
    for path in (PATH, f"{PATH}.bak"):
        if node.store.exists(path):
            node.store.remove(path)


async def test_the_next_master_knows_what_is_out_and_what_of_it_is_done(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **DURABLE)
        await sent(made, master)
        pop_ms = await given(master, [0, 1, 2], "A1")
        await good(master, log_of(master).orders.ack(KEY, 0, pop_ms, 0))
        master.offsets.commit("G", "T", 0, 1)
        for _ in range(2):
            await master.kill()
            former, master = master, await new_master(*others)
            await until(lambda: log_of(master).ready)  # noqa: B023
            orders = log_of(master).orders
            assert orders.blocked(KEY, wall_ms(), "A2") and not orders.blocked(KEY, wall_ms(), "A1")
            assert orders.blocked(KEY, pop_ms + HOLD_MS - 1, None) and not orders.blocked(KEY, pop_ms + HOLD_MS, None)
            assert master.offsets.query("G", "T", 0) == 1, "as far as the acknowledged ones, whatever was copied"
            await former.start()
            await in_sync(master, 2)
            others = [node for node in (former, *others) if node is not master]
        await good(master, log_of(master).orders.ack(KEY, 1, pop_ms, 1))


async def test_a_reign_of_another_kind_of_broker_voids_what_was_out_before(autojump_clock: MockClock) -> None:
    """A broker without the part stands for Java's: it gives what it likes, and says nothing of it."""
    plain = tuple(kind for kind in PARTS if kind not in (OrderPart, PopPart, QueriesPart))
    async with cluster(controllers=3) as made:
        ours = await made.node(**controlled())
        await until(lambda: ours.serves and log_of(ours).ready)
        java = await made.node(None, plain, **controlled())
        await in_sync(ours, 1)
        await sent(made, ours)
        await given(ours, [0, 1])
        await ours.kill()
        await until(lambda: java.serves)
        await sent(made, java)
        await ours.start()
        await in_sync(java, 1)
        await java.kill()
        await until(lambda: ours.serves and log_of(ours).ready)
        assert not log_of(ours).orders.blocked(KEY, wall_ms(), None)
        assert log_of(ours).orders.state(KEY) is None
        await given(ours, [0, 1])
        for _ in range(2):
            await ours.stop()
            await ours.start()
            await until(lambda: ours.serves and log_of(ours).ready)
            assert log_of(ours).orders.blocked(KEY, wall_ms(), None), "its own reigns left word"
            await trio.sleep(0.2)
            await sent(made, ours)


async def test_javas_file_is_taken_over_and_written(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await sent(made, node)
        await node.stop()
        now_ms = wall_ms()
        java = (b'{"orderInfoCount":1,"orderedConsumptionLevel":"QUEUE","table":{"T@G":{0:{"a":"A1","cm":1,"i":60000,'
                b'"l":5,"o":[0,1,2],"popTime":%d}}}}' % now_ms)
        write_whole(node.store, PATH, java)
        await node.start()
        await until(lambda: log_of(node).ready)
        assert log_of(node).orders.blocked(KEY, now_ms + 59_999, "B")
        assert node.offsets.query("G", "T", 0) == 1, "the first is done"
        await trio.sleep(1)
        assert log_of(node).orders.unwritten() == [], "it is in the log, for other replicas"
        await node.stop()
        ours = json.loads(bytes(node.store.content[PATH].data))
        assert ours["table"]["T@G"]["0"]["o"] == [0, 1, 2] and ours["orderInfoCount"] == 1
        assert ours["orderedConsumptionLevel"] == "QUEUE"
        forget_file(node)
        await node.start()
        await until(lambda: log_of(node).ready)
        state = log_of(node).orders.state(KEY)
        assert state is not None and state.open == [1, 2], "from the log alone"
        await node.stop()
        write_whole(node.store, PATH, b'{"table":{"T@G":{0:{"cm":0,"i":60000,"l":5,"o":[1],"popTime":%d}}}}' % now_ms)
        await node.start()
        await until(lambda: log_of(node).ready)
        state = log_of(node).orders.state(KEY)
        assert state is not None and state.offsets == [1], "Java wrote last: what our log says is older"


async def test_of_what_was_out_before_a_java_broker_that_had_nothing_out_nothing_is_left(
        autojump_clock: MockClock) -> None:
    """Without controllers its file is all that it leaves."""
    async with cluster() as made:
        node = await made.node()
        await sent(made, node)
        await given(node, [0, 1])
        await trio.sleep(1)
        await node.stop()
        write_whole(node.store, PATH, b'{"orderInfoCount":0,"orderedConsumptionLevel":"QUEUE","table":{}}')
        await node.start()
        await until(lambda: log_of(node).ready)
        assert log_of(node).orders.state(KEY) is None
        await given(node, [1])
        await node.stop()
        forget_file(node)
        await node.start()
        await until(lambda: log_of(node).ready)
        state = log_of(node).orders.state(KEY)
        assert state is not None and state.offsets == [1], "without a file the log counts"


@pytest.mark.parametrize("follows", ["ours", "java"])
async def test_without_controllers_who_followed_a_java_master_knows_that_all_from_before_is_void(
        follows: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that offers no codes of ours stands for Java's."""
    async with cluster() as made:
        master = await made.node(brokerRole="ASYNC_MASTER")
        slave = await made.node(brokerRole="SLAVE", brokerId="1")
        await sent(made, master)
        await given(master, [0, 1])
        await until(lambda: log_of(slave).orders.state(KEY) is not None)
        await master.stop()
        with monkeypatch.context() as javas:
            if follows == "java":
                javas.setattr("broker.server.offering", dict)
            await master.start()
            await sent(made, master)
            await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
            await trio.sleep(10)
            await master.stop()
        await slave.stop()
        slave.settings |= {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}
        await slave.start()
        await until(lambda: slave.serves and log_of(slave).ready)
        assert log_of(slave).orders.blocked(KEY, wall_ms(), None) is (follows == "ours")


@pytest.mark.parametrize("text", [
    b"{", b'{"table":{"T@G":{0:{"o":[],"popTime":5}}}}', b'{"table":{"T@G":{0:{"o":[5,4,4],"popTime":5}}}}',
    b'{"table":{"T@G":7}}'])
async def test_a_damaged_file_is_named_and_the_log_read(
        text: bytes, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as made:
        node = await made.node()
        await sent(made, node)
        pop_ms = await given(node, [0, 1])
        await node.kill()
        forget_file(node)
        write_whole(node.store, PATH, text)
        await node.start()
        await until(lambda: log_of(node).ready)
        assert log_of(node).orders.state(KEY) is None or log_of(node).orders.blocked(KEY, pop_ms, None)
        assert PATH in caplog.text or "states of POP in order" in caplog.text


async def test_a_deleted_topic_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **DURABLE)
        await sent(made, master)
        await given(master, [0, 1])
        master.topics.delete("T")
        await trio.sleep(1)
        assert log_of(master).orders.state(KEY) is None
        await master.kill()
        master = await new_master(*others)
        await until(lambda: log_of(master).ready)
        assert log_of(master).orders.state(KEY) is None and master.offsets.query("G", "T", 0) is None


async def test_a_reset_and_a_deleted_group_end_what_is_out(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await sent(made, node)
        log = log_of(node)
        await given(node, [1, 2])
        node.offsets.reset("G", "T", 0, 0)
        assert not log.orders.blocked(KEY, wall_ms(), None), "at once"
        await given(node, [0, 1])
        await trio.sleep(1)
        assert log.orders.blocked(KEY, wall_ms(), None), "what was given since stays"
        node.broker.parts[GroupsPart].admin.on_clean("G")
        await trio.sleep(1)
        assert log.orders.state(KEY) is None
        await node.stop()
        forget_file(node)
        await node.start()
        await until(lambda: log_of(node).ready)
        assert log_of(node).orders.state(KEY) is None, "the log says so, too"


async def test_states_go_forward_before_their_files_go(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await sent(made, node)
        log = log_of(node)
        assert log.keeps_from() is None
        await given(node, [0, 1])
        await trio.sleep(1)
        first = log.keeps_from()
        assert first is not None and first < node.broker.journal.end
        end = node.broker.journal.end
        await sent(made, node)
        log.make_way(end)
        await trio.sleep(1)
        moved = log.keeps_from()
        assert moved is not None and moved >= end
        before = node.broker.journal.end
        log.make_way(end)
        assert node.broker.journal.end == before, "once is enough"


async def test_old_files_go_when_what_is_out_was_stored_behind_them(autojump_clock: MockClock) -> None:
    """The topic is one that a Java slave copies; and what its log has left says all."""
    async with cluster() as made:
        node = await made.node(mappedFileSizeCommitLog=str(1 << 16))
        await sent(made, node)
        await given(node, [0, 1])
        topics = await made.ask(node.address, RequestCode.GET_ALL_TOPIC_CONFIG)
        assert POP_ORDER in json.loads(topics.body)["topicConfigTable"]
        await made.fill_files(node)
        await trio.sleep(1)
        for _ in range(3):
            node.shed()
            await trio.sleep(1)
        assert node.broker.journal.begin >= 1 << 16
        await node.stop()
        forget_file(node)
        await node.start()
        await until(lambda: log_of(node).ready)
        state = log_of(node).orders.state(KEY)
        assert state is not None and state.open == [0, 1]


async def test_while_writes_are_closed_nothing_is_given(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await sent(made, node)
        log = log_of(node)
        log.stop()
        change = log.orders.deliver(KEY, wall_ms(), HOLD_MS, [0], None)
        result = await stored(node, change)
        assert not result.puts and "has not read the states" in result.remark
        assert log.orders.state(KEY) is None and log.refused == 1
        log.opened()
        log.start()
        node.broker.puts.fence("closed for a while")
        assert not (await stored(node, log.orders.deliver(KEY, wall_ms(), HOLD_MS, [0], None))).puts
        assert not log.orders.blocked(KEY, wall_ms(), None)


async def test_who_waits_is_told_when_a_queue_blocks_no_more(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await sent(made, node)
        log, told = log_of(node), list[tuple[OrderKey, int]]()
        log.on_unlock = lambda key: told.append((key, wall_ms()))
        pop_ms = await given(node, [0, 1])
        await good(node, log.orders.ack(KEY, 0, pop_ms, 0))
        await trio.sleep(30)
        assert told == []
        await trio.sleep(31)
        assert [key for key, _ in told] == [KEY]
        assert pop_ms + HOLD_MS <= told[0][1] <= pop_ms + HOLD_MS + 200
        pop_ms = await given(node, [1])
        await good(node, log.orders.change(KEY, 1, pop_ms, pop_ms + 5_000))
        await trio.sleep(6)
        assert len(told) == 2, "at the time that its consumer asked for"
        await good(node, log.orders.ack(KEY, 1, pop_ms, 1))
        await trio.sleep(0.3)
        assert len(told) == 3, "all is done with"


async def test_what_was_cut_is_forgotten(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await sent(made, node)
        pop_ms = await given(node, [0, 1])
        await trio.sleep(1)
        end = node.broker.journal.end
        await good(node, log_of(node).orders.ack(KEY, 0, pop_ms, 0))
        await trio.sleep(1)
        node.broker.journal.truncate(end)
        await trio.sleep(1)
        state = log_of(node).orders.state(KEY)
        assert state is not None and state.open == [0, 1]


async def test_its_numbers_are_on_the_page(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await sent(made, node)
        await given(node, [0, 1])
        table = log_of(node).table()
        assert table.order_info_count == 1
        page = BrokerMetrics(node.broker).exposition().decode()
        assert 'broker_pop_order_changes_total{' in page and 'result="stored"} 1.0' in page
