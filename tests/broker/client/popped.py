"""A broker in memory that can be popped, for tests of the client: it keeps what it gave to whom, and until when."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from broker.client import ConsumerSettings, Popped, Popper, Start
from remoting import receipts
from remoting import record as codec
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.headers.popping import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    PopMessageRequest,
    PopMessageResponse,
)
from remoting.receipts import ORDERED, Receipt
from remoting.record import Record
from tests.broker.client.cluster import Cluster, FakeBroker, cluster

GROUP = "billing"
RETRY_FROM = 1_000
"""Offsets of what comes again, in the retry topic's queue."""


@attrs.define(eq=False)
class Given:
    """One message for the group."""

    record: Record
    visible_ms: int = 0
    pop_ms: int = 0
    times: int = 0
    acked: bool = False
    retry_offset: int | None = None
    given: int = 0
    suspended: bool = False


class PoppingBroker(FakeBroker):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.given: dict[tuple[str, int, int], Given] = {}
        """By topic, queue id and offset."""
        self.retries: list[Given] = []
        self.pops: list[PopMessageRequest] = []
        self.attempts: dict[tuple[str, int], str] = {}
        self.changes: list[ChangeInvisibleTimeRequest] = []

    def handlers(self) -> dict[int, Callable[[Connection, Command], Command | None]]:
        return {**super().handlers(), RequestCode.POP_MESSAGE: self._pop, RequestCode.ACK_MESSAGE: self._ack,
                RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change}

    def _now_ms(self) -> int:
        return int(trio.current_time() * 1e3)

    def _pop(self, connection: Connection, command: Command) -> Command | None:
        asked = PopMessageRequest.from_ext(command.ext)
        self.pops.append(asked)
        assert self._nursery is not None
        self._nursery.start_soon(self._answer, connection, command, asked)
        return None

    async def _answer(self, connection: Connection, command: Command, asked: PopMessageRequest) -> None:
        until_ms = self._now_ms() + asked.poll_time
        while not (found := self._visible(asked)):
            if self._now_ms() >= until_ms:
                connection.reply(command, response(
                    command, ResponseCode.POLLING_TIMEOUT, PopMessageResponse(), remark="NO_MESSAGE_IN_QUEUE"))
                return
            await trio.sleep(0.05)
        connection.reply(command, self._deliver(command, asked, found))

    def _visible(self, asked: PopMessageRequest) -> list[Given]:
        found: list[Given] = []
        for (topic, queue_id), places in sorted(self.queues.items()):
            if topic != asked.topic:
                continue
            of_queue = [self.given.setdefault((topic, queue_id, offset), Given(self.log[place]))
                        for offset, place in enumerate(places)]
            waiting = [each for each in of_queue if not each.acked]
            if asked.order and any(each.visible_ms > self._now_ms() for each in waiting) and (
                    self.attempts.get((topic, queue_id)) != asked.attempt_id):
                continue
            if asked.order and waiting:
                self.attempts[topic, queue_id] = asked.attempt_id or ""
            found += waiting if asked.order else [each for each in waiting if each.visible_ms <= self._now_ms()]
        return found[: asked.max_msg_nums]

    def _deliver(self, command: Command, asked: PopMessageRequest, found: list[Given]) -> Command:
        now_ms, revive = self._now_ms(), ORDERED if asked.order else 3
        body, starts, offsets, counts = [], dict[tuple[int, int], int](), dict[tuple[int, int], list[int]](), []
        for each in found:
            record = each.record
            if each.given and not asked.order:
                each.times += not each.suspended
                if each.retry_offset is None:
                    each.retry_offset = RETRY_FROM + len(self.retries)
                    self.retries.append(each)
                receipt = Receipt(each.retry_offset, now_ms, asked.invisible_time, revive, 1, self.name, 0,
                                  each.retry_offset)
                message = attrs.evolve(
                    record.message, queue_id=0, reconsume_times=each.times,
                    properties=record.message.properties + f"POP_CK\x01{receipt.encode()}\x02".encode())
                body.append(codec.encode(message, each.retry_offset, record.offset, record.store_time_ms))
            else:
                place = 0, record.message.queue_id
                starts.setdefault(place, record.queue_offset)
                offsets.setdefault(place, []).append(record.queue_offset)
                body.append(self._raw(record))
                if each.given:
                    counts.append((place, {record.queue_offset: each.given}, 0))
            each.given += 1
            each.suspended = False
            each.pop_ms, each.visible_ms = now_ms, now_ms + asked.invisible_time
        return response(command, header=PopMessageResponse(
            now_ms, asked.invisible_time, revive, 0, receipts.starts(starts.items()),
            receipts.offsets(offsets.items()), receipts.order_counts(counts) if asked.order else None),
            body=b"".join(body))

    def _of(self, topic: str, asked: AckMessageRequest | ChangeInvisibleTimeRequest) -> Given | None:
        receipt = Receipt.decode(asked.extra_info)
        assert (receipt.broker_name, receipt.offset) == (self.name, asked.offset)
        if topic.startswith("%RETRY%"):
            assert (topic, receipt.retry_flag, asked.queue_id) == (f"%RETRY%{GROUP}_orders", 1, 0)
            found = self.retries[asked.offset - RETRY_FROM]
        else:
            found = self.given[topic, asked.queue_id, asked.offset]
        return found if receipt.pop_time_ms == found.pop_ms else None

    def _ack(self, _: Connection, command: Command) -> Command:
        asked = AckMessageRequest.from_ext(command.ext)
        found = self._of(asked.topic, asked)
        ordered = Receipt.decode(asked.extra_info).ordered  # its batch is out until the queue is given again
        if found is not None and (ordered or found.visible_ms > self._now_ms()):
            found.acked = True
        return response(command)

    def _change(self, _: Connection, command: Command) -> Command:
        asked = ChangeInvisibleTimeRequest.from_ext(command.ext)
        self.changes.append(asked)
        found, ordered = self._of(asked.topic, asked), Receipt.decode(asked.extra_info).ordered
        if found is None and ordered:
            return response(command, header=ChangeInvisibleTimeResponse())
        assert found is not None, "a receipt that was written anew"
        found.visible_ms, found.suspended = self._now_ms() + asked.invisible_time, bool(asked.suspend)
        found.pop_ms = found.pop_ms if ordered else self._now_ms()
        return response(command, header=ChangeInvisibleTimeResponse(
            found.pop_ms, asked.invisible_time, Receipt.decode(asked.extra_info).revive_qid))

    @property
    def acked(self) -> list[int]:
        """Bodies of what was acknowledged, as numbers."""
        return sorted(int(each.record.message.body) for each in self.given.values() if each.acked)


@asynccontextmanager
async def popping(
    *names: str, wanted: str | dict[str, str] = "orders", ordered: bool = False, invisible_ms: int = 60_000,
    start: Start = Start.FIRST, settings: ConsumerSettings | None = None, count: int = 0,
) -> AsyncGenerator[tuple[Cluster, list[PoppingBroker], Popper], None]:
    """Brokers with ``count`` messages each, and a client that pops."""
    async with cluster(topics=()) as made:
        brokers = [PoppingBroker(name) for name in names]
        for broker in brokers:
            await made.start(f"{broker.name}:1", broker)
        made.name_server.set("orders", {name: {0: f"{name}:1"} for name in names})
        for number, broker in enumerate(brokers):
            for each in range(count):
                broker.put("orders", each % 2, b"%d" % (number * count + each))
        async with made.client("c1") as client, client.pop(
                GROUP, wanted, ordered=ordered, invisible_ms=invisible_ms, start=start, settings=settings) as popper:
            yield made, brokers, popper


async def take(popper: Popper, count: int) -> list[Popped]:
    """So many messages, within virtual minutes: what went to a connection that broke comes again after one."""
    with trio.fail_after(200):
        return [await anext(popper) for _ in range(count)]


def numbers(found: list[Popped]) -> list[int]:
    return sorted(int(message.body) for message in found)
