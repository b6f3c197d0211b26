"""The client: one connection per address, shared, remade on demand; deadlines that include connecting; going away."""

from __future__ import annotations

import re

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from harness.simulation.worlds.streams import ECHO, NEVER, Wire, ask, body_of, client_and_server, echo, net
from remoting.client import checked, open_client
from remoting.codes import ResponseCode
from remoting.command import Command, response
from remoting.config import ClientConfig
from remoting.connection import Connection
from remoting.errors import ConnectFailed, ConnectionClosed, RemotingError, RequestTimeout, ResponseError
from remoting.frame import encode
from remoting.server import Server
from remoting.streams import connect_tcp


def never(_: Connection, __: Command) -> None:
    return None


async def test_all_callers_of_an_address_share_one_connection() -> None:
    async with client_and_server() as (client, server, net):
        async def caller(number: int) -> None:
            assert body_of(await client.call("s:1", ask(ECHO, b"%d" % number))) == b"%d" % number

        for _ in range(2):
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(caller, number)
        assert net.dialled == ["s:1"] and len(server.connections) == 1
        assert (client.counters.dialled, client.counters.dials_failed) == (1, 0)


async def test_answers_of_any_code_are_returned_and_checked_raises() -> None:
    def refuse(_: Connection, request: Command) -> Command:
        return response(request, ResponseCode.NO_PERMISSION, remark="not you")

    async with client_and_server({ECHO: refuse}) as (client, _, _):
        answer = await client.call("s:1", ask())
        assert answer.code == ResponseCode.NO_PERMISSION
        with pytest.raises(ResponseError, match="response code 16 from s:1: not you") as caught:
            checked(answer, "s:1")
        assert (caught.value.code, caught.value.remark, caught.value.address) == (16, "not you", "s:1")
        good = Command(ResponseCode.SUCCESS)
        assert checked(good) is good


async def test_a_lost_connection_is_remade_on_demand() -> None:
    async with client_and_server() as (client, server, net):
        for count in range(1, 4):
            assert body_of(await client.call("s:1", ask(ECHO, b"x"))) == b"x"
            assert len(net.dialled) == count
            (connection,) = server.connections
            connection.close("enough")
            await wait_all_tasks_blocked()
            assert client.connection("s:1") is None


async def test_one_attempt_serves_all_who_wait_and_fails_them_all() -> None:
    async with client_and_server() as (client, _, net):
        errors: list[str] = []

        async def caller() -> None:
            with pytest.raises(ConnectFailed) as caught:
                await client.call("nobody:1", ask())
            errors.append(str(caught.value))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(caller)
        assert errors == ["cannot connect to nobody:1: nobody listens at nobody:1"] * 10
        assert net.dialled == ["nobody:1"] and client.counters.dials_failed == 1
        net.servers["nobody:1"] = net.servers["s:1"]
        assert body_of(await client.call("nobody:1", ask(ECHO, b"x"))) == b"x"


async def test_a_deadline_includes_connecting(autojump_clock: MockClock) -> None:
    async def connector(_: str) -> trio.abc.Stream:
        await trio.sleep(2)
        ours, theirs = memory_stream_pair()
        kept.append(theirs)
        return ours

    kept: list[trio.abc.Stream] = []
    async with open_client(connector=connector) as client:
        start = trio.current_time()
        with pytest.raises(ConnectFailed, match="no answer within 500 ms"):
            await client.call("s:1", ask(), 500)
        assert trio.current_time() - start == pytest.approx(0.5)
        with pytest.raises(RequestTimeout):  # joins the same attempt, which succeeds; nobody answers the request
            await client.call("s:1", ask(), 2_000)
        assert trio.current_time() - start == pytest.approx(2.5) and len(kept) == 1


async def test_an_attempt_ends_at_the_connect_timeout(autojump_clock: MockClock) -> None:
    async def connector(_: str) -> trio.abc.Stream:
        await trio.sleep_forever()
        raise AssertionError

    async with open_client(ClientConfig(connect_timeout_ms=700), connector=connector) as client:
        start = trio.current_time()
        with pytest.raises(ConnectFailed, match="no answer within 700 ms"):
            await client.call("s:1", ask(), 60_000)
        with pytest.raises(ConnectFailed, match="no answer within 700 ms"):
            await client.connect("s:1")
        assert trio.current_time() - start == pytest.approx(1.4)


async def test_a_caller_cancelled_while_connecting_harms_nobody(autojump_clock: MockClock) -> None:
    async with client_and_server() as (client, server, net):
        async def connector(address: str) -> trio.abc.Stream:
            await trio.sleep(1)
            return await net.connect(address)

        client._connector = connector
        with trio.move_on_after(0.5) as scope:
            await client.call("s:1", ask())
        assert scope.cancelled_caught
        assert body_of(await client.call("s:1", ask(ECHO, b"x"))) == b"x"
        assert net.dialled == ["s:1"] and server.counters.requests[ECHO] == 1


async def test_a_connection_that_closes_at_once_means_nothing_was_sent() -> None:
    async with client_and_server() as (client, _, _):
        def slam(connection: Connection) -> None:
            connection.close("slammed")

        client._endpoint._on_open = slam
        with pytest.raises(ConnectFailed, match="closed at once"):
            await client.call("s:1", ask())


async def test_oneway_requests_connect_first_and_expect_nothing() -> None:
    async with client_and_server() as (client, server, _):
        request = ask(ECHO)
        await client.send_oneway("s:1", request)
        await client.send_oneway("s:1", request)
        await wait_all_tasks_blocked()
        assert request.is_oneway and server.counters.requests[ECHO] == 2
        assert client.counters.late_answers == 0
        with pytest.raises(ConnectFailed):
            await client.send_oneway("nobody:1", ask())


async def test_a_server_may_ask_its_client() -> None:
    async with client_and_server(client_handlers={ECHO: echo}) as (client, server, _):
        await client.call("s:1", ask())
        (connection,) = server.connections
        assert body_of(await connection.call(ask(ECHO, b"and you?"))) == b"and you?"
        results: list[Command | RemotingError] = []
        connection.call_nowait(ask(ECHO, b"later"), results.append)
        await wait_all_tasks_blocked()
        assert isinstance(results[0], Command) and results[0].body == b"later"


async def test_a_server_that_goes_away_is_asked_once_more() -> None:
    async with client_and_server({ECHO: echo, NEVER: never}) as (client, server, net):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call, "s:1", ask(NEVER))
            await wait_all_tasks_blocked()
            (old,) = server.connections
            server._endpoint.going_away = True
            answer = await client.call("s:1", ask())
            assert answer.code == ResponseCode.GO_AWAY, "it says so on the new connection too"
            assert net.dialled == ["s:1", "s:1"] and server.counters.went_away == 2
            await wait_all_tasks_blocked()
            assert server.connections == {old}, "the old one waits for the call under way"
            server._endpoint.going_away = False
            assert body_of(await client.call("s:1", ask(ECHO, b"x"))) == b"x"
            assert len(net.dialled) == 3
            nursery.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        assert old.closed and len(server.connections) == 1


async def test_a_call_without_a_task_is_told_the_answer_or_the_error(autojump_clock: MockClock) -> None:
    async with client_and_server({ECHO: echo, NEVER: never}) as (client, server, net):
        told: list[Command | RemotingError] = []

        async def result_of(address: str, command: Command) -> Command | RemotingError:
            client.call_nowait(address, command, told.append, 1_000)
            await wait_all_tasks_blocked()
            if not told:
                await trio.sleep(1.1)
            return told.pop()

        for _ in range(2):  # the second finds a connection
            answer = await result_of("s:1", ask(ECHO, b"x"))
            assert isinstance(answer, Command) and body_of(answer) == b"x"
        assert net.dialled == ["s:1"]
        assert isinstance(await result_of("nobody:1", ask()), ConnectFailed)
        assert isinstance(await result_of("s:1", ask(NEVER)), RequestTimeout)
        server._endpoint.going_away = True
        answer = await result_of("s:1", ask())
        assert isinstance(answer, Command) and answer.code == ResponseCode.GO_AWAY
        assert len(net.dialled) > 2, "it was asked again over a new connection"
        server._endpoint.going_away = False
        answer = await result_of("s:1", ask(ECHO, b"y"))
        assert isinstance(answer, Command) and body_of(answer) == b"y"


async def test_leaving_the_block_closes_and_raises_what_the_block_raised() -> None:
    closed: list[str] = []
    async with client_and_server() as (_, server, net):

        async def block() -> None:
            async with open_client(
                connector=net.connect, on_close=lambda _, reason: closed.append(reason)
            ) as client:
                await client.call("s:1", ask())
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await block()
        await wait_all_tasks_blocked()
        assert closed == ["the client was closed"] and not server.connections


async def test_calls_under_way_end_with_the_client() -> None:
    async with client_and_server({NEVER: never}) as (_, _, net):
        async with trio.open_nursery() as nursery:
            async with open_client(connector=net.connect) as client:

                async def caller() -> None:
                    with pytest.raises(ConnectionClosed, match="the client was closed"):
                        await client.call("s:1", ask(NEVER))

                nursery.start_soon(caller)
                await wait_all_tasks_blocked()


async def test_a_server_that_answers_rubbish_is_left(caplog: pytest.LogCaptureFixture) -> None:
    ours, theirs = memory_stream_pair()

    async def connector(_: str) -> trio.abc.Stream:
        return ours

    async with open_client(connector=connector) as client, trio.open_nursery() as nursery:
        async def caller() -> None:
            with pytest.raises(ConnectionClosed, match="header encoding 7"):
                await client.call("s:1", ask())

        nursery.start_soon(caller)
        await Wire(theirs).receive()
        await theirs.send_all(b"\0\0\0\x08\x07\0\0\x04abcd")
    assert client.counters.bad_frames == 1 and "header encoding 7" in caplog.text


async def test_answers_nobody_asked_for_are_counted() -> None:
    ours, theirs = memory_stream_pair()

    async def connector(_: str) -> trio.abc.Stream:
        return ours

    async with open_client(connector=connector) as client:
        await client.connect("s:1")
        await theirs.send_all(encode(Command(0, 4711, 1)) * 3)
        await wait_all_tasks_blocked()
        assert client.counters.late_answers == 3


async def test_over_tcp_with_both_families() -> None:
    async with trio.open_nursery() as nursery:
        server = Server({ECHO: lambda connection, request: response(request, body=connection.peer.encode())})
        listeners = [*await trio.open_tcp_listeners(0, host="127.0.0.1"), *await trio.open_tcp_listeners(0, host="::1")]
        await nursery.start(server.run, listeners)
        v4, v6 = (listener.socket.getsockname()[1] for listener in listeners)
        async with open_client() as client:
            with trio.fail_after(10):
                assert re.fullmatch(rb"127\.0\.0\.1:\d+", body_of(await client.call(f"127.0.0.1:{v4}", ask())))
                assert re.fullmatch(rb"\[::1\]:\d+", body_of(await client.call(f"[::1]:{v6}", ask())))
                assert body_of(await client.call(f"localhost:{v4}", ask()))
                local = client.connection(f"127.0.0.1:{v4}")
                assert local is not None and local.peer == f"127.0.0.1:{v4}"
                assert local.local.encode() == body_of(await client.call(f"127.0.0.1:{v4}", ask()))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("address", ["no address", "h:x", "\udcff:1", "." * 300 + ":1", "127.0.0.1:99999"])
async def test_an_address_that_makes_no_sense_is_no_worse_than_one_where_nobody_listens(address: str) -> None:
    with pytest.raises(OSError):
        await connect_tcp(address)
    async with open_client() as client:
        with pytest.raises(ConnectFailed):
            await client.call(address, ask())


async def test_nobody_listens_on_a_real_port() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    async with open_client() as client:
        with pytest.raises(ConnectFailed, match=f"cannot connect to 127.0.0.1:{port}: .*refused"):
            await client.call(f"127.0.0.1:{port}", ask())


async def test_what_the_block_raised_is_not_lost_to_a_cancellation_from_outside() -> None:
    async def fail(scope: trio.CancelScope) -> None:
        async with open_client():
            scope.cancel()
            raise KeyError("the block's own")

    with trio.CancelScope() as scope, pytest.raises(KeyError):
        await fail(scope)


async def test_a_block_that_is_cancelled_may_say_goodbye_by_new_connections_too() -> None:
    async with net() as made:
        for address in ("s:1", "s:2"):
            await made.serve(address, Server({ECHO: echo}))
        with trio.CancelScope() as scope:
            async with open_client(connector=made.connect) as client:
                await client.call("s:1", ask())
                scope.cancel()
                try:
                    await trio.sleep_forever()
                finally:
                    with trio.CancelScope(shield=True):
                        await wait_all_tasks_blocked()
                        assert body_of(await client.call("s:1", ask(ECHO, b"bye"))) == b"bye"
                        assert body_of(await client.call("s:2", ask(ECHO, b"bye"))) == b"bye"
        assert scope.cancelled_caught
        with pytest.raises(ConnectFailed, match="the client was closed"):
            await client.call("s:1", ask())
        said: list[object] = []
        client.call_nowait("s:1", ask(), said.append)
        assert isinstance(said[0], ConnectFailed)


async def test_a_client_that_is_cancelled_as_it_opens_ends() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        async with open_client():
            await trio.sleep_forever()
    assert scope.cancelled_caught
