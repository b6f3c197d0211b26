"""The network of hosts: bytes take time, wait while a way is cut, keep their order, or their sender is told."""

from __future__ import annotations

import pytest
import trio

from raft.virtual import Latency, VirtualHost, VirtualWorld, run_on_virtual_time
from tests.raft.virtual.services import echo


async def collect(host: VirtualHost) -> None:
    """Keeps all it hears, with the moments."""
    heard: list[tuple[float, bytes]] = []

    async def take(stream: trio.abc.Stream) -> None:
        while data := await stream.receive_some():
            heard.append((trio.current_time(), bytes(data)))
        heard.append((trio.current_time(), b""))

    listener = host.listen(f"{host.name}:9")
    host.ready(heard)
    await trio.serve_listeners(take, [listener])


async def ten_pieces(world: VirtualWorld, cut: bool = False) -> list[tuple[float, bytes]]:
    heard: list[tuple[float, bytes]] = await world.host("b").start(collect)
    stream = await world.host("a").connect("b:9")
    for number in range(10):
        if cut and number == 5:
            world.cut("a", "b")
        await stream.send_all(b"%d" % number)
    await trio.sleep(10)
    world.heal()
    await stream.aclose()
    await trio.sleep(1)
    return list(heard)


def test_bytes_take_their_time_and_keep_their_order() -> None:
    for seed in range(5):
        heard = run_on_virtual_time(ten_pieces, seed=seed, latency=Latency(1_000, 50_000)).value
        assert b"".join(data for _, data in heard) == b"0123456789"
        assert 0.001 <= heard[0][0] and heard[-1][1] == b""


def test_a_cut_loses_nothing_from_the_middle() -> None:
    heard = run_on_virtual_time(ten_pieces, True).value
    assert b"".join(data for _, data in heard) == b"0123456789"
    assert b"".join(data for at, data in heard if at < 10) in (b"", b"0", b"01", b"012", b"0123", b"01234"), heard


def test_a_cut_is_of_one_way() -> None:
    async def main(world: VirtualWorld) -> list[bool]:
        await world.host("server").start(echo)
        stream = await world.host("client").connect("server:7")
        heard = []
        for source, target in (("client", "nobody"), ("server", "client"), ("client", "server")):
            world.cut(source, target)
            await stream.send_all(b"x")
            with trio.move_on_after(5) as timer:
                await stream.receive_some()
            heard.append(not timer.cancelled_caught)
            world.heal()
            await trio.sleep(1)
            if timer.cancelled_caught:
                assert await stream.receive_some() == b"x", "it waited"
        return heard

    assert run_on_virtual_time(main).value == [True, False, False]


@pytest.mark.parametrize(("prepare", "error", "seconds"), [
    ("nobody", ConnectionRefusedError, 0.1), ("dark", TimeoutError, 21), ("partition", TimeoutError, 21)])
def test_who_cannot_connect_is_told(prepare: str, error: type[OSError], seconds: float) -> None:
    async def main(world: VirtualWorld) -> float:
        server, client = world.host("server"), world.host("client")
        if prepare != "nobody":
            await server.start(echo)
        if prepare == "dark":
            await server.cut_power()
        if prepare == "partition":
            world.partition(["server"])
        with pytest.raises(error):
            await client.connect("server:7")
        return trio.current_time()

    assert run_on_virtual_time(main).value < seconds


def test_who_sends_to_the_dead_is_told() -> None:
    async def main(world: VirtualWorld) -> None:
        server = world.host("server")
        await server.start(echo)
        stream = await world.host("client").connect("server:7")
        await stream.send_all(b"1")
        await server.kill()
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(b"2")

    run_on_virtual_time(main)


def test_a_host_that_has_power_again_resets_what_it_had() -> None:
    async def main(world: VirtualWorld) -> bytes | bytearray:
        server = world.host("server")
        await server.start(echo)
        stream = await world.host("client").connect("server:7")
        await server.cut_power()
        await stream.send_all(b"lost")
        await trio.sleep(1)
        await server.restart()
        return await stream.receive_some()

    assert run_on_virtual_time(main).value == b""


def test_an_address_is_listened_at_once() -> None:
    async def main(world: VirtualWorld) -> None:
        await world.host("server").start(echo)
        with pytest.raises(OSError, match="in use"):
            world.host("other").listen("server:7")

    run_on_virtual_time(main)
