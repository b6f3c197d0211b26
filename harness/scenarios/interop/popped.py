"""Requests of POP, one by one, to a Java broker and to ours: both must say the same.

It starts a broker of each kind, and sends requests that no Java client sends by itself: wrong receipts, orders, batches
of acknowledgements, other invisible times, deleted topics.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import time_ns
from typing import Any, Final

import attrs
import trio

from harness.processes import java, ours
from harness.processes.java.settings import Value
from harness.scenarios.interop.scenario import Stage, expect, scenario
from remoting.bodies.namesrv import TopicConfig
from remoting.bodies.popping import BatchAck, BatchAckRequest, bits_of
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.header import Header
from remoting.headers.popping import (
    FROM_MAX,
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    PopMessageRequest,
    PopMessageResponse,
)
from remoting.headers.sending import SendMessageRequestV2
from remoting.receipts import NORMAL, Receipt, read_starts
from remoting.record import Record, decode_all, encode_properties, property_of

GROUP: Final = "G"
AGAIN_S: Final = 7 + 5
"""Longest time after its invisible time until a message comes again, on a busy machine."""
QUIET_S: Final = 12
"""A message that has not come in this time does not come."""
LAST: Final[Mapping[str, Value]] = {"initPopOffsetByCheckMsgInMem": False}
"""A group begins with the last message of a queue even if the first one is in memory."""
SAME_HASH: Final = "Aa", "BB"
"""Two tags that Java cannot tell apart by their hashes."""


@attrs.frozen
class Got:
    """A message and its place."""

    record: Record
    receipt: Receipt
    topic: str

    @property
    def body(self) -> str:
        return self.record.message.body.decode()


@attrs.frozen
class RawPopper:
    """Sends POP requests to one broker, for one topic with one queue."""

    client: Client
    address: str
    broker: str
    topic: str

    async def ask(self, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        return await self.client.call(self.address, request(code, header, body), 20_000)

    async def send(self, *bodies: str, **properties: str) -> None:
        for body in bodies:
            header = SendMessageRequestV2(self.topic, 0, "P", "TBW102", 1, 0, time_ns() // 1_000_000, 0,
                                          encode_properties(properties).decode())
            while True:
                answer = await self.ask(RequestCode.SEND_MESSAGE_V2, header, body.encode())
                if answer.code != ResponseCode.SYSTEM_BUSY:  # Java's broker refuses a send that waited for 200 ms
                    break
                await trio.sleep(0.2)
            expect(answer.code == ResponseCode.SUCCESS, f"{self.broker} does not take a message: {answer}")

    async def popping(self, *, group: str = GROUP, count: int = 32, invisible_ms: int = 60_000, poll_ms: int = 0,
                      queue: int = 0, **more: Any) -> Command:
        return await self.ask(RequestCode.POP_MESSAGE, PopMessageRequest(
            group, self.topic, queue, count, invisible_ms, poll_ms, time_ns() // 1_000_000, **more))

    async def pop(self, *, group: str = GROUP, **more: Any) -> list[Got]:
        answer = await self.popping(group=group, **more)
        if answer.code == ResponseCode.POLLING_TIMEOUT:
            return []
        expect(answer.code == ResponseCode.SUCCESS, f"{self.broker} gives nothing: {answer}")
        told = PopMessageResponse.from_ext(answer.ext)
        starts, found = read_starts(told.start_offset_info or ""), list[Got]()
        for record in decode_all(answer.body):
            text = property_of(record.message.properties, b"POP_CK")
            receipt = Receipt.decode(text.decode()) if text is not None else Receipt(
                starts[NORMAL, record.message.queue_id], told.pop_time, told.invisible_time, told.revive_qid, NORMAL,
                self.broker, record.message.queue_id, record.queue_offset)
            topic = self.topic if receipt.retry_flag == NORMAL else f"%RETRY%{group}_{self.topic}"
            found.append(Got(record, receipt, topic))
        return found

    async def back(self, within_s: float) -> list[str]:
        """Pop and acknowledge messages for so long. No request is left waiting: it would take the next message."""
        found: list[str] = []
        until = trio.current_time() + within_s
        while trio.current_time() < until:
            for got in await self.pop(poll_ms=1_000):
                found.append(got.body)
                await self.ack(got)
        return sorted(found)

    async def ack(self, got: Got, **changes: Any) -> int:
        header = AckMessageRequest(
            GROUP, got.topic, got.receipt.queue_id, got.receipt.encode(), got.record.queue_offset)
        return (await self.ask(RequestCode.ACK_MESSAGE, attrs.evolve(header, **changes))).code

    async def change(self, got: Got, invisible_ms: int) -> Got:
        answer = await self.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleTimeRequest(
            GROUP, got.topic, got.receipt.queue_id, got.receipt.encode(), got.record.queue_offset, invisible_ms))
        expect(answer.code == ResponseCode.SUCCESS, f"{self.broker} gives no other time: {answer}")
        told = ChangeInvisibleTimeResponse.from_ext(answer.ext)
        return attrs.evolve(got, receipt=attrs.evolve(
            got.receipt, start_offset=got.record.queue_offset, pop_time_ms=told.pop_time,
            invisible_ms=told.invisible_time, revive_qid=told.revive_qid))


# --- what is asked, and what both must say --------------------------------------------------------------------


async def late_acknowledgements(popper: RawPopper) -> object:
    """P4: the message comes a second time, and both acknowledgements are taken."""
    await popper.send("late")
    (first,) = await popper.pop(invisible_ms=1_000)
    with trio.move_on_after(1 + AGAIN_S):
        while not (found := await popper.pop(poll_ms=1_000)):
            pass
        second = found[0]
        return second.body, second.record.message.reconsume_times, await popper.ack(first), await popper.ack(second)
    return "it does not come again"


async def wrong_places(popper: RawPopper) -> object:
    """P5: a queue that there is not, and an offset beyond the end."""
    await popper.send("place")
    (got,) = await popper.pop()
    return await popper.ack(got, queue_id=9), await popper.ack(got, offset=99), await popper.ack(got, topic="Nowhere")


async def waits(popper: RawPopper) -> object:
    """P6: nothing to give, and a message that comes meanwhile."""
    began = trio.current_time()
    answer = await popper.popping(poll_ms=2_000)
    took_s = trio.current_time() - began
    found: list[tuple[str, bool]] = []

    async def wait() -> None:
        got = await popper.pop(poll_ms=10_000)
        found.append((got[0].body, trio.current_time() - sent_at < 0.5))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(0.5)
        sent_at = trio.current_time()
        await popper.send("meanwhile")
    return answer.code, 1.9 <= took_s <= 2.5, found


async def beginnings(popper: RawPopper) -> object:
    """P7: a group that begins with the last message, and one that begins with the first."""
    await popper.send("0", "1", "2", "3")
    last = await popper.pop(group="Late", init_mode=FROM_MAX)
    return [got.body for got in last], [got.body for got in await popper.pop(group="Early")]


async def acknowledged_together(popper: RawPopper) -> object:
    """P8: bits 0 and 3 of a batch of five."""
    await popper.send("0", "1", "2", "3", "4")
    receipt = (await popper.pop(invisible_ms=3_000))[0].receipt
    body = BatchAckRequest(popper.broker, [BatchAck(
        GROUP, popper.topic, receipt.start_offset, 0, receipt.revive_qid, receipt.pop_time_ms, receipt.invisible_ms,
        bits_of([0, 3]))])
    answer = await popper.ask(RequestCode.BATCH_ACK_MESSAGE, body=body.to_json())
    empty = await popper.ask(RequestCode.BATCH_ACK_MESSAGE, body=BatchAckRequest(popper.broker).to_json())
    return answer.code, empty.code, await popper.back(3 + AGAIN_S)


async def other_times(popper: RawPopper) -> object:
    """P9: another time twice in a row, by the receipt that was returned; then it comes back once."""
    await popper.send("longer")
    (got,) = await popper.pop(invisible_ms=5_000)
    again = await popper.change(await popper.change(got, 5_000), 5_000)
    return again.receipt.revive_qid == got.receipt.revive_qid, await popper.back(5 + AGAIN_S + QUIET_S)


async def order(popper: RawPopper) -> object:
    """P10: nothing more until all of a batch is done with, but for the same attempt."""
    await popper.send("0", "1", "2")
    batch = await popper.pop(order=True, attempt_id="one", count=2)
    second = await popper.pop(order=True, attempt_id="two")
    again = await popper.pop(order=True, attempt_id="one", count=2)
    codes = [await popper.ack(again[0])]
    third = await popper.pop(order=True, attempt_id="two")
    codes += [await popper.ack(again[1]), await popper.ack(again[1], offset=2)]
    last = await popper.pop(order=True, attempt_id="two")
    return [[got.body for got in each] for each in (batch, second, again, third, last)], codes


async def hashes(popper: RawPopper) -> object:
    """P12: by its hash alone one tag is another one; the client tells them apart."""
    for body, tags in (("wanted", SAME_HASH[0]), ("alike", SAME_HASH[1]), ("other", "Cc")):
        await popper.send(body, TAGS=tags)
    found = await popper.pop(exp=SAME_HASH[0], exp_type="TAG")
    return [(got.body, property_of(got.record.message.properties, b"TAGS")) for got in found]


async def too_many(popper: RawPopper) -> object:
    """P13: more messages than one checkpoint has bits for."""
    answer = await popper.popping(count=33)
    return answer.code, (await popper.popping(count=32)).code


async def deleted(popper: RawPopper) -> object:
    """P14: a topic goes with messages out; what came behind them comes back all the same."""
    gone = attrs.evolve(popper, topic=f"{popper.topic}Gone")
    await make(gone)
    await gone.send("gone")
    await gone.pop(invisible_ms=2_000)
    await popper.send("stays")
    await popper.pop(invisible_ms=4_000)
    answer = await gone.client.call(gone.address, _named(RequestCode.DELETE_TOPIC_IN_BROKER, gone.topic), 10_000)
    return answer.code, await popper.back(4 + AGAIN_S + QUIET_S)


def _named(code: int, topic: str) -> Command:
    made = request(code)
    made.ext["topic"] = topic
    return made


Point = Callable[[RawPopper], Awaitable[object]]
POINTS: Final[tuple[tuple[Point, object], ...]] = (
    (late_acknowledgements, ("late", 1, 0, 0)),
    (wrong_places, (13, 208, 17)),
    (waits, (210, True, [("meanwhile", True)])),
    (beginnings, (["3"], ["0", "1", "2", "3"])),
    (acknowledged_together, (0, 208, ["1", "2", "4"])),
    (other_times, (True, ["longer"])),
    (order, ([["0", "1"], [], ["0", "1"], [], ["2"]], [0, 0, 13])),
    (hashes, [("wanted", b"Aa"), ("alike", b"BB")]),
    (too_many, (29, 210)),
    (deleted, (0, ["stays"])),
)
"""Point -> the result that both brokers must give."""


async def make(popper: RawPopper) -> None:
    """Create the popper's topic, with one queue."""
    config = TopicConfig(popper.topic, 1, 1, 6)
    answer = await popper.client.call(popper.address, _topic(config), 10_000)
    expect(answer.code == ResponseCode.SUCCESS, f"{popper.broker} makes no topic: {answer}")


def _topic(config: TopicConfig) -> Command:
    made = request(RequestCode.UPDATE_AND_CREATE_TOPIC)
    made.ext |= {
        "topic": config.topic_name, "defaultTopic": "TBW102", "readQueueNums": str(config.read_queue_nums),
        "writeQueueNums": str(config.write_queue_nums), "perm": str(config.perm), "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false"}
    return made


@scenario("5.5.0", timeout_s=300)
async def both_brokers_say_the_same_to_who_pops(stage: Stage) -> None:
    """Late and wrong acknowledgements, waits, beginnings, batches, other times, order, tags: as Java's broker says."""
    said: dict[str, dict[str, object]] = {"java": {}, "ours": {}}

    async def one(point: Point, popper: RawPopper, whose: str) -> None:
        await make(popper)
        said[whose][point.__name__] = await point(popper)

    async with (
        open_client() as client,
        java.namesrv(stage.release, stage.here / "namesrv") as namesrv,
        java.broker(stage.release, stage.here / "java", group="java", namesrv=[namesrv.address],
                    extra={"timerWheelEnable": True, "mappedFileSizeTimerLog": 1 << 20, **LAST}) as theirs,
        ours.broker(stage.here / "ours", "ours", namesrv=[namesrv.address], extra=LAST) as mine,
        trio.open_nursery() as nursery,
    ):
        for point, _ in POINTS:
            topic = "".join(word.title() for word in point.__name__.split("_"))
            for whose, broker in (("java", theirs), ("ours", mine)):
                nursery.start_soon(partial(one, point, RawPopper(client, broker.address, whose, topic), whose))
    wrong = []
    for point, wanted in POINTS:
        stage.say(f"{point.__name__}: {wanted}")
        wrong += [f"{point.__name__}: {whose} says {found[point.__name__]}, not {wanted}"
                  for whose, found in said.items() if found[point.__name__] != wanted]
    expect(not wrong, "; ".join(wrong))
