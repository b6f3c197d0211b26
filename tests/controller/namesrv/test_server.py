"""A whole name server on virtual time, over memory streams and a disk in a dict; and once over real sockets."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from controller.namesrv.config import NamesrvConfig
from controller.namesrv.server import ControllerBeside, RunningNamesrv, serve_namesrv
from harness.simulation.worlds.streams import Net, Wire, net
from remoting.bodies.namesrv import TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.connection import Connection
from remoting.daemon.files import Files, MemoryFiles
from remoting.daemon.process import Stoppable
from remoting.errors import BodyError
from remoting.frame import encode
from remoting.server import Server
from tests.controller.namesrv.fleet import config, registration

NAMESRV = "ns:9876"


@attrs.define
class World:
    running: RunningNamesrv
    net: Net
    files: Files

    async def wire(self) -> Wire:
        """A connection of a peer of any kind."""
        return Wire(await self.net.connect(NAMESRV))

    async def broker(self, group: str, broker_id: int, **what: Any) -> Wire:
        """A connection over which this broker has registered."""
        wire = await self.wire()
        answer = await wire.ask(registration(group, broker_id, **what))
        assert answer is not None
        assert answer.code == 0
        return wire


@asynccontextmanager
async def world(
    settings: NamesrvConfig | None = None, *, files: Files | None = None, controller: ControllerBeside | None = None,
) -> AsyncGenerator[World, None]:
    files = files if files is not None else MemoryFiles()
    async with net() as made:
        running: RunningNamesrv = await made.nursery.start(partial(
            serve_namesrv, settings or NamesrvConfig(), clock=lambda: int(trio.current_time() * 1e9), files=files,
            listeners=(), connector=made.connect, controller=controller))
        made.servers[NAMESRV] = running.server
        yield World(running, made, files)


async def route(wire: Wire, topic: str = "T") -> dict[int, str] | int:
    """Addresses of the topic's first group, or the code."""
    answer = await wire.ask(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext={"topic": topic}))
    assert answer is not None
    return answer.code or TopicRouteData.from_json(answer.body).broker_datas[0].broker_addrs


async def test_a_broker_registers_and_a_client_finds_it(autojump_clock: MockClock) -> None:
    async with world() as here:
        client = await here.wire()
        assert await route(client) == ResponseCode.TOPIC_NOT_EXIST
        await here.broker("a", 0)
        assert await route(client) == {0: "a0:1"}


async def test_a_closed_connection_is_out_of_the_routes_before_the_next_request(autojump_clock: MockClock) -> None:
    async with world() as here:
        client = await here.wire()
        master, _ = await here.broker("a", 0), await here.broker("a", 1)
        assert await route(client) == {0: "a0:1", 1: "a1:1"}
        await master.stream.aclose()
        await wait_all_tasks_blocked()
        assert here.running.core.tables.groups["a"].bereft
        assert await route(client) == {1: "a1:1"}
        await here.broker("a", 0, address="a1:1", epoch=1)
        assert await route(client) == {0: "a1:1"}


async def test_silence_is_judged_on_time_and_ends_the_connection(autojump_clock: MockClock) -> None:
    async with world() as here:
        broker = await here.broker("a", 0, timeout_ms=3_000)
        heartbeat = Command(RequestCode.BROKER_HEARTBEAT, flag=2, ext={
            "clusterName": "C", "brokerAddr": "a0:1", "brokerName": "a"})
        await trio.sleep(2.5)
        await broker.send(heartbeat)
        client = await here.wire()
        await trio.sleep(2.9)
        assert await route(client) == {0: "a0:1"}
        assert await broker.receive() is None
        assert trio.current_time() == pytest.approx(5.5, abs=1e-6)
        assert await route(client) == ResponseCode.TOPIC_NOT_EXIST


async def test_an_earlier_deadline_wakes_whoever_waits_for_a_later_one(autojump_clock: MockClock) -> None:
    async with world() as here:
        patient = await here.broker("b", 0)
        hasty = await here.broker("a", 0, timeout_ms=1_000)
        assert await hasty.receive() is None
        assert trio.current_time() == pytest.approx(1, abs=1e-6)
        assert await patient.receive() is None
        assert trio.current_time() == pytest.approx(120, abs=1e-6)


async def test_brokers_are_told_of_a_smaller_id_over_connections_to_their_addresses(autojump_clock: MockClock) -> None:
    async with world(config(notifyMinBrokerIdChanged=True)) as here:
        heard: list[tuple[str, Command]] = []

        def listen(address: str, connection: Connection, command: Command) -> None:
            heard.append((address, command))

        for address in ("a1:1", "a2:1"):
            listening = Server({RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: partial(listen, address)})
            await here.net.serve(address, listening)
        master = await here.broker("a", 0, acting=True)
        await here.broker("a", 1, acting=True)
        await here.broker("a", 2, acting=True)
        await here.broker("a", 3, acting=True)  # nobody listens at its address
        await master.stream.aclose()
        await trio.sleep(1)
        assert sorted(address for address, _ in heard) == ["a1:1", "a2:1"]
        assert heard[0][1].is_oneway
        assert heard[0][1].ext == {"minBrokerId": "1", "minBrokerAddr": "a1:1", "offlineBrokerAddr": "a0:1"}
        counters = here.running.core.counters
        assert (counters.notices_sent, counters.notices_failed) == (2, 1)


async def test_notices_are_bounded_and_none_is_sent_late(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("controller.namesrv.notices.WAITING_MAX", 2)

    async def hang(address: str) -> trio.abc.Stream:
        await trio.sleep_forever()
        raise AssertionError

    async with net() as made:
        running: RunningNamesrv = await made.nursery.start(partial(
            serve_namesrv, config(notifyMinBrokerIdChanged=True), clock=lambda: int(trio.current_time() * 1e9),
            files=MemoryFiles(), listeners=(), connector=hang))
        made.servers[NAMESRV] = running.server
        here = World(running, made, MemoryFiles())
        for broker_id in (5, 4, 3, 2, 1, 0):
            await here.broker("a", broker_id)
        assert running.core.counters.notices_failed > 0
        await trio.sleep(2)
        assert running.core.counters.notices_sent == 0
        assert running.core.counters.notices_failed == 15


async def test_a_key_is_on_disk_before_it_is_acknowledged_and_there_after_a_restart(autojump_clock: MockClock) -> None:
    files = MemoryFiles()
    put = Command(RequestCode.PUT_KV_CONFIG, ext={"namespace": "n", "key": "k", "value": "v"})
    async with world(config(kvConfigPath="/kv"), files=files) as here:
        answer = await (await here.wire()).ask(put)
        assert answer is not None
        assert answer.code == 0
        assert json.loads(files.contents["/kv"]) == {"configTable": {"n": {"k": "v"}}}
    async with world(config(kvConfigPath="/kv"), files=files) as here:
        answer = await (await here.wire()).ask(Command(RequestCode.GET_KV_CONFIG, ext={"namespace": "n", "key": "k"}))
        assert answer is not None
        assert answer.ext == {"value": "v"}


async def test_a_key_that_cannot_be_saved_is_answered_so(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture,
) -> None:
    files = MemoryFiles(error=OSError(28, "No space left on device"))
    async with world(config(kvConfigPath="/kv"), files=files) as here:
        answer = await (await here.wire()).ask(
            Command(RequestCode.PUT_KV_CONFIG, ext={"namespace": "n", "key": "k", "value": "v"}))
        assert answer is not None
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "No space left" in str(answer.remark)
        assert here.running.core.counters.saves_failed == 1
    assert "/kv could not be written" in caplog.text


async def test_a_damaged_table_stops_the_start_in_words(autojump_clock: MockClock) -> None:
    with pytest.RaisesGroup(BodyError, match=None, flatten_subgroups=True) as raised:
        async with world(config(kvConfigPath="/kv"), files=MemoryFiles({"/kv": b"{"})):
            pass
    assert "kvConfigPath = /kv" in str(raised.value.exceptions[0])


async def test_what_happens_is_logged_with_fields(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with world() as here:
        wire = await here.broker("a", 0)
        await here.broker("a", 1)
        await wire.stream.aclose()
        await wait_all_tasks_blocked()
        await (await here.wire()).ask(Command(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext={"topic": "T"}))
        records = [vars(record) for record in caplog.records if record.name == "controller.namesrv"]
    came, _, left, deleted = records[:4]
    assert (came["msg"], came["group"], came["broker_id"]) == ("broker registered", "a", 0)
    assert (left["msg"], left["replicas_left"], left["levelname"]) == ("broker left the routes", 1, "WARNING")
    assert (deleted["code"], deleted["ext_topic"]) == (216, "T")


async def test_a_stop_in_order_lets_clients_go_elsewhere(autojump_clock: MockClock) -> None:
    async with net() as made:
        ended = trio.Event()

        async def serve(*, task_status: trio.TaskStatus[RunningNamesrv]) -> None:
            await serve_namesrv(
                config(enableShutdownGracefully=True, shutdownWaitTimeSeconds=5), files=MemoryFiles(), listeners=(),
                clock=lambda: int(trio.current_time() * 1e9), connector=made.connect, task_status=task_status)
            ended.set()

        running: RunningNamesrv = await made.nursery.start(serve)
        made.servers[NAMESRV] = running.server
        wire = Wire(await made.connect(NAMESRV))
        assert await route(wire) == ResponseCode.TOPIC_NOT_EXIST
        made.nursery.start_soon(running.stop)
        await wait_all_tasks_blocked()
        assert await route(wire) == ResponseCode.GO_AWAY
        await ended.wait()
        assert trio.current_time() < 5
        assert await wire.receive() is None


@pytest.mark.parametrize("who", ["controller", "name server"])
async def test_no_broker_hears_that_another_left_when_it_is_the_name_server_that_leaves(
    who: str, autojump_clock: MockClock,
) -> None:
    ended, told = trio.Event(), list[Command]()

    class Beside:
        async def stop(self) -> None:
            ended.set()

    async def controller(*, task_status: trio.TaskStatus[Stoppable]) -> None:
        task_status.started(Beside())
        await ended.wait()

    async with world(config(notifyMinBrokerIdChanged=True), controller=controller) as here:
        slave = here.net.servers["a1:1"] = Server(
            {RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: lambda _, notice: told.append(notice)})
        await here.net.nursery.start(slave.run)
        wires = [await here.broker("a", broker_id, acting=True) for broker_id in (0, 1)]
        await trio.sleep(1)
        await route(wires[1])  # the connection that was quiet for longer is closed first
        if who == "controller":
            ended.set()
        else:
            await here.running.stop()
        assert [await wire.receive() for wire in wires] == [None, None]
        await wait_all_tasks_blocked()
        assert told == [], "the master lives on, and its slave must not act for it"


@pytest.mark.parametrize("who", ["controller", "name server"])
async def test_a_controller_beside_it_shares_its_life(who: str, autojump_clock: MockClock) -> None:
    stopped = trio.Event()

    class Stopping:
        async def stop(self) -> None:
            stopped.set()

    async def controller(*, task_status: trio.TaskStatus[Stoppable]) -> None:
        task_status.started(Stopping())
        await stopped.wait()

    async with world(controller=controller) as here:
        wire = await here.broker("a", 0)
        await (Stopping() if who == "controller" else here.running).stop()
        assert stopped.is_set()
        assert await wire.receive() is None


async def test_connections_full_of_noise_leave_it_serving(autojump_clock: MockClock) -> None:
    chance = Random(5)
    async with world() as here:
        await here.broker("a", 0)
        whole = encode(registration("b", 0))
        for _ in range(300):
            wire = await here.wire()
            noise = bytearray(chance.choice([chance.randbytes(chance.randrange(1, 80)), whole]))
            for _ in range(chance.randrange(0, 4)):
                noise[chance.randrange(len(noise))] = chance.randrange(256)
            await wire.stream.send_all(noise[: chance.randrange(1, len(noise) + 1)])
            await wire.stream.aclose()
        assert await route(await here.wire()) == {0: "a0:1"}
        assert set(here.running.core.tables.groups) == {"a"}


async def test_over_real_sockets() -> None:
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        with trio.fail_after(30):
            running: RunningNamesrv = await nursery.start(partial(
                serve_namesrv, NamesrvConfig(), clock=lambda: int(trio.current_time() * 1e9), files=MemoryFiles(),
                listeners=listeners))
            port = listeners[0].socket.getsockname()[1]
            broker, client = [Wire(await trio.open_tcp_stream("127.0.0.1", port)) for _ in range(2)]
            await broker.ask(registration("a", 0))
            assert await route(client) == {0: "a0:1"}
            await broker.stream.aclose()
            while await route(client) != ResponseCode.TOPIC_NOT_EXIST:
                await trio.lowlevel.checkpoint()
            await client.stream.aclose()
            await running.stop()
