"""Whatever comes to the HA port, or from a master: the connection ends, the broker goes on, and holds no heap of it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from broker.ha.epochs import Epoch, EpochList
from broker.ha.wire import TRANSFER, Ack, HaState, MasterHandshake, SlaveHandshake, Transfer
from tests.broker.ha.group import ALL_ACK, group

HELLO = SlaveHandshake(9).to_bytes()


async def ended(stream: trio.abc.Stream) -> bool:
    """Whether the other end closes; what it says before that is passed over."""
    with trio.move_on_after(30):
        try:
            while await stream.receive_some(1 << 16):
                pass
        except trio.BrokenResourceError:
            pass
        return True
    return False


@pytest.mark.parametrize("words", [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\0" * 64,
    b"\xff" * 64,
    (7).to_bytes(8, "big"),  # a plain slave's report
    HELLO[:9],
    HELLO + HELLO[:-1] + b"\1",
    SlaveHandshake(1).to_bytes(),
    HELLO + Ack(1 << 60).to_bytes(),
    HELLO + Ack(0).to_bytes() + b"\0\0\0\5",
    b"",
])
async def test_garbage_on_the_port_costs_its_connection(words: bytes, autojump_clock: MockClock) -> None:
    async with group(2) as (net, (a, b)):
        await a.lead(1)
        await b.follow(a, 1)
        a.put(b"one")
        stream = await net.connect(a.address)
        if words:
            await stream.send_all(words)
        assert await ended(stream)
        await trio.sleep(1)
        assert b.log == a.log
        assert len(a.switch.runtime_info().ha_connection_info) == 1


@pytest.mark.parametrize("seed", range(30))
async def test_random_bytes_cost_their_connection(seed: int, autojump_clock: MockClock) -> None:
    rng = random.Random(seed)
    async with group(2) as (net, (a, b)):
        held = await a.lead(1, {1, 2})
        await b.follow(a, 1)
        for _ in range(10):
            a.put(rng.randbytes(300))
        for _ in range(10):
            stream = await net.connect(a.address)
            good = (HELLO, Ack(0).to_bytes(), Ack(a.journal.end).to_bytes(), rng.randbytes(rng.randrange(1, 99)))
            try:
                for _ in range(rng.randrange(1, 6)):
                    await stream.send_all(rng.choice(good))
                    await trio.sleep(rng.choice((0, 0.1)))
            except trio.BrokenResourceError:
                pass
            await stream.aclose()
        await trio.sleep(12)
        assert b.log == a.log
        assert held.accepted == {1, 2}
        results = a.put(b"still here")
        await trio.sleep(1)
        assert len(results) == 1


async def test_only_so_many_connections(autojump_clock: MockClock) -> None:
    async with group(1) as (net, (a,)):
        streams = []
        for _ in range(ALL_ACK.connections_max + 1):
            streams.append(await net.connect(a.address))
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(1):
            assert await ended(streams[0]), "the newest took its place"
        await trio.sleep(3)
        for stream in streams:
            assert await ended(stream)
        await a.lead(1)
        stream = await net.connect(a.address)
        await stream.send_all(HELLO)
        assert await stream.receive_some(1_000)


async def test_a_slave_that_reads_nothing_holds_one_frame(autojump_clock: MockClock) -> None:
    async with group(2) as (net, (a, b)):
        await a.lead(1)
        for _ in range(100):
            a.put(b"x" * 400)
        stream = await net.connect(a.address)
        await stream.send_all(HELLO + b"")
        await trio.sleep(0.1)
        net.links[-1].hangs = True
        await b.follow(a, 1)
        await trio.sleep(1)
        assert b.log == a.log, "the others go on"
        await trio.sleep(25)
        assert len(a.switch.runtime_info().ha_connection_info) == 1


def hello(*epochs: tuple[int, int], end: int = 100) -> bytes:
    return MasterHandshake(end, EpochList(epochs)).to_bytes()


MASTERS: list[Callable[[random.Random], bytes]] = [
    lambda rng: rng.randbytes(200),
    lambda rng: hello((1, 0)) + rng.randbytes(200),
    lambda rng: hello((2, 0), (3, 50)) + Transfer(0, Epoch(2, 0), 0, rng.randbytes(40)).to_bytes()
    + Transfer(99, Epoch(2, 0), 0, b"gap").to_bytes(),
    lambda rng: hello((1, 0)) + Transfer(0, Epoch(1, 0), 0, b"a").to_bytes() + hello((1, 0)),
    lambda rng: hello((1, 0)) + TRANSFER.pack(HaState.TRANSFER, 1 << 30, 0, 1, 0, 0),
    lambda rng: hello((1, 0)) + Transfer(3, Epoch(1, 0), 0, b"not where a file begins").to_bytes(),
    lambda rng: Transfer(0, Epoch(1, 0), 0, b"no handshake").to_bytes(),
    lambda rng: b"HTTP/1.1 400 Bad Request\r\n\r\n",
]


@pytest.mark.parametrize("number", range(len(MASTERS)))
async def test_a_slave_leaves_a_master_that_makes_no_sense(number: int, autojump_clock: MockClock) -> None:
    rng = random.Random(number)
    async with group(2) as (net, (a, b)):
        await a.lead(4)
        a.put(b"one")
        strange = net.listen("strange:1")
        said = 0

        async def speak() -> None:
            nonlocal said
            while True:
                stream = await strange.accept()
                said += 1
                await stream.send_all(MASTERS[number](rng))

        net.nursery.start_soon(speak)
        await b.follow(a, 4, known=False)
        b.switch.follow("strange:1")
        await trio.sleep(60)
        assert said >= 2, "it tries again"
        await b.stop()
        b.files.content.clear()
        await b.start()
        await b.follow(a, 4)
        await trio.sleep(3)
        assert b.log == a.log
