"""Timers from a send to the consumer's queue, on whole brokers in virtual time."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.ha.acks import PutStatus
from broker.puts import Done, PutResult, Puts
from broker.store.files import Space
from broker.timer.handles import Handle
from broker.timer.part import TimersPart
from broker.topics.names import TIMER, TIMER_DEAD
from harness.simulation.worlds.brokers import (
    EPOCH_MS,
    Cluster,
    Node,
    cluster,
    in_sync,
    new_master,
    three,
    until,
    wall_ms,
)
from harness.simulation.worlds.sending import SendMessageRequest
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.sending import ConsumerSendMsgBackRequest
from remoting.headers.transactions import RecallMessageRequest
from remoting.record import NOTED, Message, Record, decode, decode_properties, encode_batch, encode_properties

ALL = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"}
UNIQ = "7F0000010B2C18B4AAC2355A1D8C0001"


async def send(made: Cluster, node: Node, body: bytes = b"x", uniq: str = UNIQ, **timer: Any) -> Command:
    properties = encode_properties({"UNIQ_KEY": uniq, **{name: str(value) for name, value in timer.items()}}).decode()
    return await made.send(node.address, body, properties=properties)


async def good(made: Cluster, node: Node, body: bytes = b"x", uniq: str = UNIQ, **timer: Any) -> Command:
    answer = await send(made, node, body, uniq, **timer)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def records(node: Node, topic: str = "T", queue: int = 0) -> list[Record]:
    messages = node.broker.journal.messages
    found: list[Record] = []
    while raws := messages.get(topic.encode(), queue, len(found), bytes_max=1 << 24):
        found += [decode(raw) for raw in raws]
    return found


def bodies(node: Node, topic: str = "T", queue: int = 0) -> list[bytes]:
    return [record.message.body for record in records(node, topic, queue)]


def done_ms(node: Node) -> int:
    """Slots before are done, as far as that broker heard."""
    return node.broker.parts[TimersPart]._store.read_time_ms


async def recall(made: Cluster, node: Node, handle: str, topic: str = "T") -> Command:
    return await made.ask(node.address, RequestCode.RECALL_MESSAGE, RecallMessageRequest(topic, handle, "P"))


@pytest.mark.parametrize(("name", "value", "due_ms"), [
    ("TIMER_DELAY_MS", 5_300, 5_300), ("TIMER_DELAY_SEC", 5, 5_000), ("TIMER_DELIVER_MS", EPOCH_MS + 9_000, 9_000)])
async def test_it_comes_within_a_second_of_its_time_and_never_before(
        autojump_clock: MockClock, name: str, value: int, due_ms: int) -> None:
    async with cluster() as made:
        node = await made.node()
        begun_ms = 0 if name == "TIMER_DELIVER_MS" else wall_ms() - EPOCH_MS
        timer: dict[str, Any] = {name: value}
        await good(made, node, **timer)
        while not bodies(node):
            await trio.sleep(0.01)
        came_ms = wall_ms() - EPOCH_MS - begun_ms
        assert due_ms <= came_ms < due_ms + 1_200
        values = decode_properties(records(node)[0].message.properties)
        assert values[name] == str(value)
        assert "REAL_TOPIC" not in values
        assert int(values["TIMER_DEQUEUE_MS"]) >= int(values["TIMER_OUT_MS"]) + 1_000
        await trio.sleep(20)
        assert bodies(node) == [b"x"]


@pytest.mark.parametrize("begun_s", [0.25, 0.5, 0.85])
async def test_it_comes_as_soon_as_its_slot_is_over(autojump_clock: MockClock, begun_s: float) -> None:
    async with cluster() as made:
        await trio.sleep(begun_s)
        node = await made.node()
        await good(made, node, TIMER_DELAY_MS=5_300)
        over_ms = -(-(wall_ms() + 5_300) // 1_000) * 1_000
        await until(lambda: bodies(node) == [b"x"])
        assert over_ms <= records(node)[0].store_time_ms <= over_ms + 100


async def test_what_is_due_passes_and_what_is_too_far_is_refused(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        answer = await good(made, node, b"past", TIMER_DELIVER_MS=wall_ms())
        assert "recallHandle" not in answer.ext
        await until(lambda: bodies(node) == [b"past"], within_s=1)
        for timer in ({"TIMER_DELAY_SEC": 259_201}, {"TIMER_DELIVER_MS": 2**63 - 1}, {"TIMER_DELIVER_MS": 2**70},
                      {"TIMER_DELAY_MS": "soon"}, {"TIMER_DELAY_SEC": 2**62},
                      {"TIMER_DELIVER_MS": wall_ms(), "TIMER_DEL_UNIQKEY": UNIQ}):
            answer = await send(made, node, **timer)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL, timer
            assert "259200000ms" in (answer.remark or "")
        await good(made, node, b"limit", TIMER_DELAY_SEC=259_200)
        assert bodies(node) == [b"past"]


async def test_a_message_that_waits_for_longer_than_the_window_rolls_and_comes_once(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(timerRollWindowSlot="4", recallMessageEnable="true")
        begun_ms = wall_ms()
        await good(made, node, TIMER_DELAY_SEC=15)
        kept = await good(made, node, b"recalled", "U2", TIMER_DELAY_SEC=15)
        await trio.sleep(7)
        assert (await recall(made, node, kept.ext["recallHandle"])).code == ResponseCode.SUCCESS
        await until(lambda: bodies(node))
        assert 15_000 <= wall_ms() - begun_ms < 16_200
        values = decode_properties(records(node)[0].message.properties)
        assert int(values["TIMER_ROLL_TIMES"]) >= 2
        await trio.sleep(20)
        assert bodies(node) == [b"x"]
        assert len(bodies(node, TIMER)) > 6


async def test_a_recalled_message_never_comes(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(recallMessageEnable="true")
        answer = await good(made, node, TIMER_DELAY_SEC=10)
        handle = answer.ext["recallHandle"]
        fields = urlsafe_b64decode(handle).decode().split(" ")
        assert (fields[:3], fields[4]) == (["v1", "T", "a"], UNIQ)
        await good(made, node, b"stays", "U2", TIMER_DELAY_SEC=10)
        assert (await recall(made, node, handle)).ext["msgId"] == UNIQ
        await trio.sleep(15)
        assert bodies(node) == [b"stays"]
        assert node.broker.parts[TimersPart].counters.recalled == 1


async def test_who_may_recall_what(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        answer = await good(made, node, TIMER_DELAY_SEC=10)
        await good(made, node, b"x", "U2", TIMER_DELAY_SEC=0)
        handle = answer.ext["recallHandle"]
        assert (await recall(made, node, handle)).code == ResponseCode.NO_PERMISSION
        await node.stop()
        node.settings["recallMessageEnable"] = "true"
        await node.start()
        at_ms = wall_ms() + 5_000
        for wrong, topic, code in (
                (handle, "Unknown", ResponseCode.TOPIC_NOT_EXIST), (handle, "TBW102", ResponseCode.ILLEGAL_OPERATION),
                ("", "T", ResponseCode.ILLEGAL_OPERATION), ("§", "T", ResponseCode.ILLEGAL_OPERATION),
                (handle[1:], "T", ResponseCode.ILLEGAL_OPERATION), ("A" * 10_000, "T", ResponseCode.ILLEGAL_OPERATION),
                *((attrs.evolve(Handle("T", "a", at_ms, UNIQ), **change).encode(), "T", ResponseCode.ILLEGAL_OPERATION)
                  for change in ({"broker_name": "b"}, {"time_ms": wall_ms()}, {"time_ms": wall_ms() + 259_200_001},
                                 {"topic": "Other"}))):
            assert (await recall(made, node, wrong, topic)).code == code, (wrong, topic)
        await trio.sleep(12)
        assert bodies(node) == [b"x", b"x"]


async def test_another_topics_handle_takes_nothing_back(autojump_clock: MockClock) -> None:
    """The unique id alone is not enough: it is the sender's, and another one may know it."""
    async with cluster() as made:
        node = await made.node(recallMessageEnable="true")
        await good(made, node, TIMER_DELAY_SEC=10)
        other = await made.send(node.address, b"y", "Other", properties=encode_properties(
            {"UNIQ_KEY": UNIQ, "TIMER_DELAY_SEC": "10"}).decode())
        assert (await recall(made, node, other.ext["recallHandle"], "Other")).code == ResponseCode.SUCCESS
        await trio.sleep(15)
        assert (bodies(node), bodies(node, "Other")) == ([b"x"], [])


async def test_a_delivered_timer_is_no_timer_again(autojump_clock: MockClock) -> None:
    """Whoever sends on what was received, or gives it back, has it at once, or by its delay level."""
    async with cluster() as made:
        node = await made.node()
        await good(made, node, TIMER_DELAY_SEC=2, TIMER_OUT_MS=1)
        await until(lambda: bodies(node) == [b"x"], within_s=1)


async def test_what_a_consumer_gives_back_does_not_wait_for_its_timer_again(autojump_clock: MockClock) -> None:
    """36: its delay level says when it is tried again, and a dead letter waits for nothing."""
    async with cluster() as made:
        node = await made.node()
        await good(made, node, TIMER_DELAY_MS=60_000)
        await trio.sleep(61)
        (record,) = records(node)
        for level in (1, -1):
            answer = await made.ask(node.address, RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequest(
                record.offset, "G", level, origin_topic="T"))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert bodies(node, "%DLQ%G") == [b"x"]
        await trio.sleep(3)
        assert bodies(node, "%RETRY%G") == [b"x"]


async def test_a_batch_waits_for_no_timer(autojump_clock: MockClock) -> None:
    """A timer of its request is refused, as nothing could deliver it; those of its messages are theirs, as in Java."""
    async with cluster() as made:
        node = await made.node()
        body = encode_batch([(0, b"x", encode_properties({"TIMER_DELAY_MS": "5000"}))])
        for properties, code in (("TIMER_DELAY_MS\x015000\x02", ResponseCode.MESSAGE_ILLEGAL),
                                 ("TIMER_DELIVER_MS\x01far\x02", ResponseCode.MESSAGE_ILLEGAL),
                                 ("TIMER_DELIVER_MS\x011\x02", ResponseCode.SUCCESS), ("", ResponseCode.SUCCESS)):
            header = SendMessageRequest(
                producer_group="P", topic="T", default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
                born_timestamp=wall_ms(), properties=properties, reconsume_times=0, unit_mode=False, batch=True)
            answer = await made.ask(node.address, RequestCode.SEND_MESSAGE, header, body)
            assert (properties, answer.code) == (properties, code)
        assert bodies(node) == [b"x", b"x"] and not bodies(node, TIMER)


async def test_a_delay_level_wins_over_a_timer(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await good(made, node, TIMER_DELAY_SEC=1_000, DELAY=1)
        await until(lambda: bodies(node) == [b"x"], within_s=4)


async def test_a_thousand_survive_a_restart_in_order_and_a_kill(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(flushDiskType="SYNC_FLUSH")
        for number in range(1_000):
            await good(made, node, b"%d" % number, f"U{number}", TIMER_DELIVER_MS=EPOCH_MS + 30_000 + number * 10)
        await node.stop()
        await node.start()
        await trio.sleep(max(0, EPOCH_MS / 1e3 + 33 - wall_ms() / 1e3))
        await node.kill()
        await node.start()
        await trio.sleep(20)
        assert sorted(int(body) for body in bodies(node)) == list(range(1_000)), "each once: the log says what came"


async def test_a_new_master_delivers_what_the_former_had(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        nodes = await three(made, **ALL, recallMessageEnable="true")
        master, *others = nodes
        begun_ms = wall_ms()
        kept = []
        for number in range(100):
            kept.append(await good(made, master, b"%d" % number, f"U{number}", TIMER_DELAY_MS=20_000 + number * 100))
        for answer in kept[::10]:
            assert (await recall(made, master, answer.ext["recallHandle"])).code == ResponseCode.SUCCESS
        await trio.sleep((begun_ms + 24_000 - wall_ms()) / 1e3)
        await until(lambda: all(done_ms(master) > done_ms(node) for node in others))
        await master.kill()
        after = await new_master(*others)
        await trio.sleep(25)
        found = [int(body) for body in bodies(after)]
        assert sorted(found) == [number for number in range(100) if number % 10], "each once: the log says what came"
        assert after.broker.parts[TimersPart].counters.passed_over > 0
        await master.start()
        await in_sync(after, 2)
        await trio.sleep(30)
        assert [int(body) for body in bodies(after)] == found, "the former master has nothing to add"


async def test_a_broker_that_was_killed_early_hears_in_the_log_what_was_delivered(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        for number in range(5):
            await good(made, node, b"%d" % number, f"U{number}", TIMER_DELAY_SEC=5)
        await until(lambda: len(bodies(node)) == 5)
        await node.kill()
        await node.start()
        assert node.broker.parts[TimersPart]._heard == 0, "not from where its log ended when it was started again"


async def test_what_slaves_know_to_be_delivered_no_new_master_delivers_again(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        nodes = await three(made, **ALL)
        master, *others = nodes
        for number in range(5):
            await good(made, master, b"%d" % number, f"U{number}", TIMER_DELAY_SEC=5)
        await until(lambda: len(bodies(master)) == 5)
        await trio.sleep(8)
        assert all(node.broker.parts[TimersPart].places == (5, 5) for node in nodes), "in the wheel, or through it"
        await master.kill()
        after = await new_master(*others)
        await trio.sleep(20)
        assert sorted(bodies(after)) == [b"%d" % number for number in range(5)]


async def test_who_was_away_delivers_nothing_again_that_came_meanwhile(autojump_clock: MockClock) -> None:
    """It hears how far its master is before it has in its wheel what was delivered, and is master before it hears so
    once more."""
    async with cluster(controllers=3) as made:
        master, first, second = await three(made, **ALL)
        await first.kill()
        for number in range(5):
            await good(made, master, b"%d" % number, f"U{number}", TIMER_DELAY_SEC=5)
        await until(lambda: len(bodies(master)) == 5)
        await trio.sleep(60)
        await first.start()
        await in_sync(master, 2)
        timers = first.broker.parts[TimersPart]
        await until(lambda: timers.places[0] == 5 and timers._store.settled[0] == timers._store.read_time_ms)
        late = [unit.offset for unit in timers._store.slot(timers._store.read_time_ms)]
        assert len(late) == 5, "in the first slot that is not done, as the disk says, too"
        await master.kill()
        await second.kill()
        await until(lambda: first.serves)
        await second.start()
        await in_sync(first, 1)
        await trio.sleep(20)
        assert sorted(bodies(first)) == [b"%d" % number for number in range(5)]
        assert timers.counters.passed_over == 5


async def test_too_few_replicas_at_the_due_time_put_off_and_lose_nothing(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        nodes = await three(made, **{**ALL, "minInSyncReplicas": "3", "youngMasterHoldMs": "0"})
        master, first, _ = nodes
        await good(made, master, TIMER_DELAY_SEC=20)
        await trio.sleep(5)
        await first.kill()
        await trio.sleep(30)
        assert bodies(master) == []
        await rejoined(master, first)
        await until(lambda: bodies(master) == [b"x"], within_s=5)
        await trio.sleep(10)
        assert bodies(master) == [b"x"]


async def test_what_rolls_later_than_it_is_due_is_not_done_before_it_comes(autojump_clock: MockClock) -> None:
    """Else POP would bring messages back before their acknowledgements came."""
    async with cluster(controllers=3) as made:
        nodes = await three(made, **{**ALL, "minInSyncReplicas": "3", "youngMasterHoldMs": "0",
                                     "timerRollWindowSlot": "4"})
        master, first, _ = nodes
        due_ms = wall_ms() + 7_000
        await good(made, master, TIMER_DELIVER_MS=due_ms)
        await first.kill()
        await trio.sleep(30)
        await first.start()
        while not bodies(master):
            assert done_ms(master) <= due_ms
            await trio.sleep(0.01)
        assert int(decode_properties(records(master)[0].message.properties)["TIMER_ROLL_TIMES"]) == 1
        await until(lambda: done_ms(master) > due_ms, within_s=5)


async def rejoined(master: Node, back: Node) -> None:
    await back.start()
    await in_sync(master, 2)


async def test_a_forged_mark_keeps_no_timer_back(autojump_clock: MockClock) -> None:
    """Neither that it was delivered, nor that another one took its place, can be said by a sender."""
    async with cluster() as made:
        node = await made.node()
        await good(made, node, b"x", TIMER_DELAY_SEC=20)
        (waiting,) = records(node, TIMER)
        for name in ("__QUORATE_TIMER", "__QUORATE_TIMER_MOVED"):
            forged = {name: str(waiting.offset), "TIMER_DEQUEUE_MS": str(2**60)}
            header = SendMessageRequest(
                producer_group="P", topic="T", default_topic="TBW102", default_topic_queue_nums=4, queue_id=1,
                born_timestamp=0, reconsume_times=0, unit_mode=False, batch=False, sys_flag=NOTED,
                properties=encode_properties({"UNIQ_KEY": UNIQ, **forged}).decode())
            assert (await made.ask(node.address, RequestCode.SEND_MESSAGE, header, b"y")).code == 0
            await good(made, node, b"z", "U2", TIMER_DELAY_SEC=1, **forged)
        await trio.sleep(25)
        assert sorted(bodies(node)) == [b"x", b"z", b"z"]


async def test_old_files_go_when_what_waits_there_was_put_forward(autojump_clock: MockClock) -> None:
    """On every replica; and each timer comes once, from its new place, whoever is master by then."""
    async with cluster(controllers=3) as made:
        nodes = await three(made, **{**ALL, "mappedFileSizeCommitLog": str(1 << 16)})
        master, *others = nodes
        for number in range(20):
            await good(made, master, b"%d" % number, f"U{number}", TIMER_DELAY_MS=150_000 + 10 * number)
        await made.fill_files(master)
        await trio.sleep(5)
        for node in nodes:
            node.shed()
        await until(lambda: all((node.broker.parts[TimersPart].keeps_from() or 0) > 1 << 16 for node in nodes))
        for node in nodes:
            node.shed()
        await until(lambda: all(node.broker.journal.begin >= 1 << 16 for node in nodes))
        assert master.broker.parts[TimersPart].counters.moved == 20
        await master.kill()
        after = await new_master(*others)
        await trio.sleep(160)
        assert sorted(int(body) for body in bodies(after)) == list(range(20))


async def test_a_timer_that_is_being_put_forward_is_not_put_forward_again(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, **ALL)
        await good(made, master, TIMER_DELAY_SEC=600)
        await trio.sleep(3)
        made.network.silent |= {slave.address for slave in slaves}
        part, journal = master.broker.parts[TimersPart], master.broker.journal
        ends = [journal.end]
        for _ in range(3):
            part.make_way(ends[0])
            await trio.sleep(1)
            ends.append(journal.end)
        assert ends[0] < ends[1] == ends[2] == ends[3], "no replica has it yet"
        made.network.silent.clear()
        await until(lambda: part.counters.moved == 1)


async def test_a_timer_whose_put_forward_was_refused_is_put_forward_later(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await good(made, node, TIMER_DELAY_SEC=600)
        await trio.sleep(3)
        part, journal = node.broker.parts[TimersPart], node.broker.journal
        end, node.store.disk = journal.end, Space(100, 1)
        await trio.sleep(2)
        part.make_way(end)
        await trio.sleep(2)
        assert (journal.end, part.counters.moved) == (end, 0)
        node.store.disk = Space(100, 50)
        await trio.sleep(2)
        part.make_way(end)
        await until(lambda: part.counters.moved == 1, within_s=2)


async def test_a_timer_that_no_topic_takes_is_set_aside_and_holds_up_nobody(autojump_clock: MockClock) -> None:
    """As another broker's store may have them."""
    async with cluster() as made:
        node = await made.node()
        await good(made, node, b"x", "U0", TIMER_DELAY_SEC=1)
        out = str((wall_ms() + 5_000) // 1_000 * 1_000)
        for number, values in enumerate((
                {"REAL_TOPIC": "T", "REAL_QID": "0", "K": "k" * 32_700}, {"REAL_QID": "0"}, {},
                {"REAL_TOPIC": "T", "REAL_QID": "1e9"}, {"REAL_TOPIC": "rmq_sys_wheel_timer", "REAL_QID": "0"})):
            node.broker.puts.put([Message(TIMER.encode(), b"%d" % number, properties=encode_properties(
                {"TIMER_OUT_MS": out, **values}))], lambda result: None)
        await good(made, node, b"y", "U1", TIMER_DELAY_SEC=6)
        await trio.sleep(10)
        assert bodies(node) == [b"x", b"y"]
        assert sorted(bodies(node, TIMER_DEAD)) == [b"%d" % number for number in range(5)]
        assert node.broker.parts[TimersPart].counters.set_aside == 5


async def test_a_timer_that_cannot_be_set_aside_either_is_dropped_and_counted(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    put = Puts.put

    def refuses(puts: Puts, messages: Sequence[Message], done: Done, **more: bool) -> None:
        if messages[0].topic == TIMER_DEAD.encode():
            done(PutResult(PutStatus.MESSAGE_ILLEGAL))
        else:
            put(puts, messages, done, **more)

    async with cluster() as made:
        node = await made.node()
        monkeypatch.setattr(Puts, "put", refuses)
        node.broker.puts.put([Message(TIMER.encode(), b"odd")], lambda result: None)
        await good(made, node, b"y", TIMER_DELAY_SEC=2)
        await trio.sleep(5)
        assert (bodies(node), bodies(node, TIMER_DEAD)) == ([b"y"], [])
        part = node.broker.parts[TimersPart]
        assert (part.counters.gone, part.counters.set_aside) == (1, 0)
