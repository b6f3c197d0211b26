"""What the client costs: sends and consumed messages against a stub broker in a process of its own.

    python -m benchmarks.broker_client [--seconds 3] [--bytes 128]

First the client of trio, then the same calls through the client of asyncio. Each line has the rate and the microseconds
of processor time of the client's process for each message. The stub answers sends with a made-up place and pulls with
the same records; it stores nothing. It measures; it judges nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import trio

from broker.client import Client, ConsumerSettings, FlowLimits, Message, MessageQueue, Start, aio, connect
from remoting import record as codec
from remoting.bodies.consumers import ConsumerIdList, HeartbeatData
from remoting.bodies.namesrv import BrokerData, QueueData, TopicRouteData
from remoting.codes import RequestCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.headers.pulling import OffsetResponse, PullMessageRequest, PullMessageResponse
from remoting.headers.sending import SendMessageResponse
from remoting.server import Server

Together = Callable[[Callable[[], Coroutine[Any, Any, None]], int], Awaitable[None]]
"""Runs so many tasks of one kind."""
TOPIC = "Orders"
PULLED = 32


class Stub:
    """A name server and a broker in one: everything it is asked is well."""

    def __init__(self, size_bytes: int) -> None:
        self.address = ""
        self._client_id = ""
        self._properties = codec.encode_properties({"UNIQ_KEY": "0" * 32, "TAGS": "new", "WAIT": "true"})
        self._body = b"." * size_bytes
        self._sent = {"msgId": "7F00000100002A9F" + "0" * 16, "queueId": "0", "queueOffset": "0",
                      "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}

    def server(self) -> Server:
        return Server({
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route, RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._batch, RequestCode.HEART_BEAT: self._beat,
            RequestCode.UNREGISTER_CLIENT: self._well, RequestCode.UPDATE_CONSUMER_OFFSET: self._well,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members, RequestCode.QUERY_CONSUMER_OFFSET: self._offset,
            RequestCode.PULL_MESSAGE: self._pull,
        })

    def _route(self, _: Connection, command: Command) -> Command:
        return response(command, body=TopicRouteData(
            [QueueData("a", 8, 8, 6)], [BrokerData("a", "c", {0: self.address})]).to_json())

    def _send(self, _: Connection, command: Command) -> Command:
        answer = response(command)
        answer.ext = {**self._sent, "queueId": command.ext["e"]}
        return answer

    def _batch(self, _: Connection, command: Command) -> Command:
        count = len(codec.decode_batch(command.body))
        return response(command, header=SendMessageResponse(",".join([self._sent["msgId"]] * count), 0, 0))

    def _beat(self, _: Connection, command: Command) -> Command:
        self._client_id = HeartbeatData.from_json(command.body).client_id
        return response(command)

    def _well(self, _: Connection, command: Command) -> Command:
        return response(command)

    def _members(self, _: Connection, command: Command) -> Command:
        return response(command, body=ConsumerIdList([self._client_id]).to_json())

    def _offset(self, _: Connection, command: Command) -> Command:
        return response(command, header=OffsetResponse(0))

    def _pull(self, _: Connection, command: Command) -> Command | None:
        asked = PullMessageRequest.from_ext(command.ext)
        if asked.topic != TOPIC:
            return None  # held
        at, last = asked.queue_offset, asked.queue_offset + PULLED
        body = b"".join(
            codec.encode(codec.Message(TOPIC.encode(), self._body, asked.queue_id, self._properties), number, number, 0)
            for number in range(at, last))
        return response(command, header=PullMessageResponse(0, last, 0, 1 << 60), body=body)


async def _serve(size_bytes: int) -> None:
    stub = Stub(size_bytes)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    stub.address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    print(stub.address, flush=True)
    await stub.server().run(listeners)


async def _measure(
    name: str, seconds: float, tasks: int, work: Callable[[], Awaitable[int]], together: Together,
) -> None:
    """``work`` again and again in so many tasks; it returns how many messages it was."""
    counted, began, used = 0, time.perf_counter(), time.process_time()

    async def again() -> None:
        nonlocal counted
        while time.perf_counter() - began < seconds:
            made = await work()
            counted += made

    await together(again, tasks)
    took, spent = time.perf_counter() - began, time.process_time() - used
    each_us = spent / counted * 1e6
    print(f"{name:<36} {counted / took:>10,.0f}/s  {each_us:6.1f} µs of the client's for each", flush=True)


async def _on_trio(work: Callable[[], Awaitable[None]], tasks: int) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(work)


async def _on_asyncio(work: Callable[[], Coroutine[None, None, None]], tasks: int) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(work())


async def _consume(client: Client | aio.Client, seconds: float, together: Together) -> None:
    settings = ConsumerSettings(flow=FlowLimits(messages=1_000))
    async with client.consume("readers", TOPIC, start=Start.FIRST, settings=settings) as messages:
        async for message in messages:
            message.ack()
            break

        async def take() -> int:
            async for message in messages:
                message.ack()
                break
            return 1

        await _measure("consume and acknowledge", seconds, 1, take, together)


async def _run(client: Client | aio.Client, seconds: float, size_bytes: int, together: Together) -> None:
    body, queue = b"." * size_bytes, MessageQueue(TOPIC, "a", 0)

    async def send() -> int:
        await client.send(Message(TOPIC, body, "new", ["42"]))
        return 1

    async def oneway() -> int:
        await client.send_oneway(Message(TOPIC, body, "new", ["42"]), queue=queue)
        return 1

    async def batch() -> int:
        return len(await client.send_batch([Message(TOPIC, body, "new", ["42"]) for _ in range(32)]))

    await send()
    for tasks in (1, 32, 1_000):
        await _measure(f"send, {tasks} at once", seconds, tasks, send, together)
    await _measure("send one-way", seconds, 1, oneway, together)
    await _measure("send in batches of 32, 32 at once", seconds, 32, batch, together)
    await _consume(client, seconds, together)


async def _trio(address: str, seconds: float, size_bytes: int) -> None:
    print("trio")
    async with connect([address]) as client:
        await _run(client, seconds, size_bytes, _on_trio)


async def _asyncio(address: str, seconds: float, size_bytes: int) -> None:
    print("asyncio")
    async with aio.connect([address]) as client:
        await _run(client, seconds, size_bytes, _on_asyncio)


def main() -> None:
    options = argparse.ArgumentParser("benchmarks.broker_client", description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=3.0, help="per line (default: 3)")
    options.add_argument("--bytes", type=int, default=128, help="of body (default: 128)")
    options.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.serve:
        trio.run(_serve, given.bytes)
        return
    with subprocess.Popen([sys.executable, "-m", "benchmarks.broker_client", "--serve", "--bytes", str(given.bytes)],
                          stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            trio.run(_trio, address, given.seconds, given.bytes)
            asyncio.run(_asyncio(address, given.seconds, given.bytes))
        finally:
            server.kill()


if __name__ == "__main__":
    main()
