"""Messages that wait for their time, and are taken back: what leaves, what is refused, whom a recall is asked of."""

from __future__ import annotations

import datetime as dt

import pytest
import trio
from trio.testing import MockClock

from broker.client import Message, MessageIllegal, MessageQueue, Refused, SendFailed, Sent, Unreachable
from broker.client.handles import read_handle
from broker.client.message import delay_of
from remoting.codes import RequestCode, ResponseCode
from remoting.command import response
from tests.broker.client.cluster import SILENCE, Cluster, cluster, refusing
from tests.broker.client.delaying import DelayingBroker, handle

SEND, RECALL = RequestCode.SEND_MESSAGE_V2, RequestCode.RECALL_MESSAGE
MINUTE = dt.timedelta(minutes=1)
NEW_YEAR = dt.datetime(2027, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))


async def started(made: Cluster, address: str = "a:1") -> DelayingBroker:
    """In the place of the broker that was there."""
    made.kill(address)
    broker = DelayingBroker(address[0])
    await made.start(address, broker)
    return broker


# --- what leaves ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "property_"), [
    ({"delay": MINUTE}, ("TIMER_DELAY_MS", "60000")),
    ({"delay": dt.timedelta(days=3, microseconds=1)}, ("TIMER_DELAY_MS", "259200001")),
    ({"delay": dt.timedelta(0)}, ("TIMER_DELAY_MS", "0")),
    ({"deliver_at": NEW_YEAR}, ("TIMER_DELIVER_MS", "1798761600000")),
    ({"delay_level": 3}, ("DELAY", "3")),
])
def test_the_time_leaves_as_a_property(given: dict[str, object], property_: tuple[str, str]) -> None:
    message = Message("orders", b"x", **given)  # type: ignore[arg-type]
    assert tuple(delay_of(message).items()) == (property_,) and message.delayed


@pytest.mark.parametrize(("given", "words"), [
    ({"delay": -MINUTE}, "below 0"),
    ({"deliver_at": NEW_YEAR.replace(tzinfo=None)}, "no time zone"),
    ({"delay": MINUTE, "deliver_at": NEW_YEAR}, "one of them"),
    ({"delay": dt.timedelta(0), "delay_level": 1}, "one of them"),
    ({"delay_level": -1}, "1 to 18"),
])
async def test_times_that_say_nothing_are_refused_here(
    given: dict[str, object], words: str, autojump_clock: MockClock,
) -> None:
    async with cluster("a") as made, made.client() as client:
        with pytest.raises(MessageIllegal, match=words):
            await client.send(Message("orders", b"x", **given))  # type: ignore[arg-type]
        assert not made.net.dialled


@pytest.mark.parametrize("given", [{"delay": MINUTE}, {"deliver_at": NEW_YEAR}])
async def test_batches_have_no_delays(given: dict[str, object], autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        with pytest.raises(MessageIllegal, match="delayed"):
            await client.send_batch([Message("orders", b"x", **given)])  # type: ignore[arg-type]


@pytest.mark.parametrize(("remark", "sends"), [
    ("accurate timer message is not enabled, timerWheelEnable is false", 1),
    ("timer message is under flow control, max num limit is 5 or the current value is greater than 3", 3),
])
async def test_a_broker_that_takes_no_timers_has_stored_nothing(
    remark: str, sends: int, autojump_clock: MockClock,
) -> None:
    """The wire has no code for it: 1 is also that of a defect after storing."""
    async with cluster("a") as made, made.client() as client:
        made.brokers["a"].refuse = refusing(SEND, ResponseCode.SYSTEM_ERROR, remark)
        with pytest.raises(SendFailed, match="timer message"):
            await client.send(Message("orders", b"x", delay=MINUTE))
        assert len(made.brokers["a"].asked(SEND)) == sends


# --- recalls -------------------------------------------------------------------------------------------------


async def test_a_delayed_message_is_taken_back_once(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        broker = await started(made)
        one, other = [await client.send(Message("orders", b"x", delay=MINUTE)) for _ in range(2)]
        assert await client.recall(one) == one.message_id
        assert other.recall_handle is not None
        assert await client.recall(other.recall_handle) == other.message_id
        assert not broker.waiting and broker.asked(RECALL)[0]["producerGroup"] == "producers"
        with pytest.raises(Refused, match="timestamp invalid") as late:
            await client.recall(one)
        assert late.value.code == 604


@pytest.mark.parametrize("text", ["", "x", "AAAA", handle(topic=""), handle(message_id="a b"),
                                  handle().replace("d", "e"), "djI" + handle()[3:], handle() + "="])
def test_what_is_no_handle_is_not_asked(text: str) -> None:
    with pytest.raises(MessageIllegal, match="no handle"):
        read_handle(text)


async def test_a_message_without_a_handle_cannot_be_recalled(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        with pytest.raises(MessageIllegal, match="gave no handle"):
            await client.recall(Sent("ID", MessageQueue("orders", "a", 0), 0, "0" * 32))


def test_the_parts_of_a_handle() -> None:
    read = read_handle(handle("t", "b", 7, "m"))
    assert (read.topic, read.broker, read.due_ms, read.message_id) == ("t", "b", 7, "m")
    assert read.text == handle("t", "b", 7, "m")


@pytest.mark.parametrize("code", [
    ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.TOPIC_NOT_EXIST])
async def test_a_recall_follows_a_failover(code: int, autojump_clock: MockClock) -> None:
    """The old master answers that it is none, then it is gone, then there is a new one."""
    async with cluster("a") as made, made.client() as client:
        broker = await started(made)
        sent = await client.send(Message("orders", b"x", delay=MINUTE))
        broker.refuse = refusing(RECALL, code)

        async def fail_over() -> None:
            await trio.sleep(0.3)
            made.kill("a:1")
            made.name_server.set("orders", {"a": {1: "a:1"}})
            await trio.sleep(0.3)
            broker.refuse = lambda _: None
            await made.start("a:2", broker)
            made.name_server.set("orders", {"a": {0: "a:2"}})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_over)
            assert await client.recall(sent) == sent.message_id
        assert not broker.waiting


async def test_a_recall_that_nobody_answers_says_so(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        broker = await started(made)
        sent = await client.send(Message("orders", b"x", delay=MINUTE))
        broker.refuse = lambda command: SILENCE if command.code == RECALL else None
        with pytest.raises(Unreachable):
            await client.recall(sent)
        broker.refuse = lambda command: response(command) if command.code == RECALL else None
        with pytest.raises(Refused, match="makes no sense"):
            await client.recall(sent)
        made.kill("a:1")
        made.name_server.set("orders", {"b": {0: "b:1"}})
        with pytest.raises(Unreachable, match="no master of a"):
            await client.recall(sent)
